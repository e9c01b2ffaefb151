//! A client of the scheduler: it knows who is ready since when, so it knows every choice.

use steadfast_restart::{CallError, Edge, Handle, Value};

use super::counts::{Counts, functions};
use crate::told::Told;

const THREADS: [&str; 4] = [
    "steadfast:scheduler/threads@0.1.0#[constructor]thread",
    "steadfast:scheduler/threads@0.1.0#[method]thread.ready",
    "steadfast:scheduler/threads@0.1.0#[method]thread.block",
    "steadfast:scheduler/threads@0.1.0#pick",
];

struct Thread {
    handle: Handle,
    priority: u32,
    /// Since when it is ready, if it is.
    ready: Option<u64>,
    /// Whether it is the handle that was made at first.
    first: bool,
}

/// Wakes and blocks threads.
pub(crate) struct Threads<'a> {
    edge: &'a Edge,
    functions: [usize; 4],
    threads: Vec<Thread>,
    now: u64,
    pub(super) counts: Counts,
}

impl<'a> Threads<'a> {
    pub(super) fn new(edge: &'a Edge, handles: usize) -> Result<Self, Told> {
        let mut client = Self {
            edge,
            functions: functions(edge, THREADS)?,
            threads: Vec::new(),
            now: 0,
            counts: Counts::default(),
        };
        for place in 0..handles {
            let thread = client.make(place, true);
            let thread = thread.ok_or_else(|| anyhow::anyhow!("the component made no thread"))?;
            client.threads.push(thread);
        }
        Ok(client)
    }

    fn make(&mut self, place: usize, first: bool) -> Option<Thread> {
        self.now += 1;
        let priority = u32::try_from(place % 4).unwrap_or(0);
        let args = [(place as u64).into(), priority.into(), self.now.into()];
        let made = self.edge.call(self.functions[0], &args).ok().flatten();
        Some(Thread {
            handle: made?.handle()?,
            priority,
            ready: Some(self.now),
            first,
        })
    }

    /// The threads are gone, so all of them are made again: a choice among some of them would be another one.
    fn again(&mut self) {
        self.counts.lost += self.threads.len() as u64;
        for place in 0..self.threads.len() {
            if let Some(thread) = self.make(place, false) {
                self.threads[place] = thread;
            }
        }
    }

    fn choice(&self) -> Value {
        let threads = self.threads.iter().enumerate();
        let ready = threads.filter_map(|(id, t)| Some((t.priority, t.ready?, id as u64)));
        let best = ready.min().map(|(_, _, id)| Box::new(Value::U64(id)));
        Value::Option(best)
    }

    /// Notes whether an answer is right; false where there is none and the threads may be gone.
    fn judge(
        &mut self,
        answer: Result<Option<Value>, CallError>,
        right: impl Fn(&Self) -> Option<Value>,
    ) -> bool {
        self.counts.calls += 1;
        match answer {
            Ok(value) => self.counts.wrong += u64::from(value != right(self)),
            Err(CallError::Stale { .. } | CallError::Failed { .. }) => {
                self.again();
                return false;
            }
            Err(_) => return false,
        }
        true
    }

    /// The thread that runs next waits, another one becomes ready.
    pub(super) fn round(&mut self) {
        for place in 0..self.threads.len() {
            self.now += 1;
            let handle = self.threads[place].handle.into();
            let done = if self.threads[place].ready.is_some() {
                let answer = self.edge.call(self.functions[2], &[handle]);
                self.judge(answer, |_| Some(Value::Bool(true)))
                    .then_some(None)
            } else {
                let args = [handle, self.now.into()];
                let answer = self.edge.call(self.functions[1], &args);
                self.judge(answer, |_| None).then_some(Some(self.now))
            };
            if let Some(ready) = done {
                self.threads[place].ready = ready;
            }
            let answer = self.edge.call(self.functions[3], &[]);
            self.judge(answer, |client| Some(client.choice()));
        }
    }

    /// Threads whose handle says what it must: to block one that waits is no change.
    pub(super) fn kept(&self) -> usize {
        let chosen = self.edge.call(self.functions[3], &[]) == Ok(Some(self.choice()));
        let right = |thread: &&Thread| {
            let answer = self.edge.call(self.functions[2], &[thread.handle.into()]);
            thread.first && answer == Ok(Some(Value::Bool(thread.ready.is_some())))
        };
        match chosen {
            true => self.threads.iter().filter(right).count(),
            false => 0,
        }
    }
}
