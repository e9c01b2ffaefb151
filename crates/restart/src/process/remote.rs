//! The host's side: it starts a process, speaks to it, and takes another one when it has ended.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use steadfast_sys::cpu;
use steadfast_sys::pad::Seen;

use super::message::{Fault, Memories, Opening, Order, Outcome, Reply};
use crate::engine::{self, Asked, Failure, Import, Journal, Limits, answered, put};
use crate::shape::Shape;
use crate::value::{Handle, Value};
use crate::wire::Line;
use crate::words::BodyDump;

/// The program that runs a component: it calls [`serve`], and finds its socket as standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// What a process needs to know of a component.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) name: String,
    pub(crate) image: PathBuf,
    pub(crate) functions: Vec<Function>,
    pub(crate) init: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) pad: bool,
    /// What its memories hold at each start and after each reset, as the first process has told.
    pub(crate) memories: OnceLock<Memories>,
}

/// One function that is called.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) interface: String,
    pub(crate) name: String,
    /// Arguments that are given away.
    pub(crate) own: Vec<usize>,
    pub(crate) result: Option<Shape>,
}

/// A process may say nothing for so long beyond its limit of a call: on a busy machine it waits for the processor.
pub const SILENT: Duration = Duration::from_secs(5);
/// So long is waited before somebody looks whether it still computes.
const LOOK: Duration = Duration::from_millis(20);
/// It loads an image and tests its pad.
const START: Duration = Duration::from_secs(20);

/// How long somebody was silent while this process was there to listen: one that was stopped itself, with a container or by a debugger, has
/// heard nothing, and that is no fault of the other one.
struct Silence {
    last: Instant,
    heard: Duration,
}

impl Silence {
    fn new(now: Instant) -> Self {
        Self {
            last: now,
            heard: Duration::ZERO,
        }
    }

    fn look(&mut self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.last);
        self.last = now;
        self.heard += since.min(10 * LOOK);
        self.heard
    }
}

/// A process that runs.
pub(super) struct Running {
    pub(super) child: Child,
    pub(super) line: Line,
    pub(super) text: Range<u64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// How it ended, in words.
    fn ended(&mut self, error: &io::Error) -> String {
        // The socket may close a moment before the status is there; one that is damaged need not end by itself.
        let _ = self.child.kill();
        let status = self.child.wait();
        match (error.kind(), status) {
            (
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset,
                Ok(status),
            ) => {
                let signal = status.signal();
                signal.map_or_else(|| status.to_string(), |signal| format!("signal {signal}"))
            }
            _ => error.to_string(),
        }
    }

    /// The next reply, within a limit: of processor time, or of silence.
    fn receive(&mut self, limit: Duration) -> io::Result<Reply> {
        let pid = self.child.id().cast_signed();
        let spent = || cpu::process_time_ns(pid).map_or(Duration::ZERO, Duration::from_nanos);
        let mut silence = Silence::new(Instant::now());
        let mut before = None;
        self.line.receive(|| {
            // The breaker of the process comes first; this is for a process that its breaker does not reach.
            let computed = spent().saturating_sub(*before.get_or_insert_with(spent));
            if computed > 2 * limit + LOOK {
                return Err(io::Error::other(
                    "it computed for longer than twice its limit",
                ));
            }
            if silence.look(Instant::now()) > limit + SILENT {
                return Err(io::Error::other("it was silent for too long"));
            }
            Ok(())
        })
    }
}

/// The host's side of a component in a process of its own.
pub(crate) struct Remote {
    process: Process,
    start: Arc<Start>,
    imports: Vec<Import>,
    journal: Arc<Mutex<Journal>>,
    pub(super) running: Option<Running>,
    /// What it holds at others, or more: what it gave away in a call that failed may be among it.
    held: BTreeSet<(usize, Handle)>,
    seen: Option<Seen>,
    /// Whether the last reset took a new process.
    renewed: bool,
}

impl Remote {
    /// Starts a process.
    pub(crate) fn new(
        process: &Process,
        start: &Arc<Start>,
        imports: &[Import],
        journal: &Arc<Mutex<Journal>>,
    ) -> Result<Self, String> {
        let mut remote = Self::idle(process, start, imports, journal);
        remote.launch()?;
        Ok(remote)
    }

    /// Without a process.
    pub(super) fn idle(
        process: &Process,
        start: &Arc<Start>,
        imports: &[Import],
        journal: &Arc<Mutex<Journal>>,
    ) -> Self {
        Self {
            process: process.clone(),
            start: start.clone(),
            imports: imports.to_vec(),
            journal: journal.clone(),
            running: None,
            held: BTreeSet::new(),
            seen: None,
            renewed: false,
        }
    }

    fn launch(&mut self) -> Result<(), String> {
        self.running = None;
        let told = |error: io::Error| format!("{}: {error}", self.process.program.display());
        let (near, far) = UnixStream::pair().map_err(told)?;
        near.set_read_timeout(Some(LOOK)).map_err(told)?;
        let child = Command::new(&self.process.program)
            .args(&self.process.args)
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(told)?;
        let mut running = Running {
            child,
            line: Line::new(near),
            text: 0..0,
        };
        let opening = Order::Start(Box::new(self.opening()));
        let sent = running.line.send(&opening);
        match sent.and_then(|()| running.receive(START)) {
            Ok(Reply::Started(start, end, memories)) if self.begins_with(&memories) => {
                running.text = start..end;
            }
            Ok(Reply::Started(..)) => {
                return Err(
                    "its memory begins with something else than that of its first process".into(),
                );
            }
            Ok(Reply::Refused(why)) => return Err(why),
            Ok(_) => return Err("its process does not speak as it must".into()),
            Err(error) => return Err(format!("its process: {}", running.ended(&error))),
        }
        self.running = Some(running);
        Ok(())
    }

    /// Whether these are the memories of a component that has just started: the same in each of its processes.
    fn begins_with(&self, memories: &Memories) -> bool {
        self.start.memories.get_or_init(|| memories.clone()) == memories
    }

    fn opening(&self) -> Opening {
        let start = &self.start;
        let functions = start.functions.iter();
        let functions = functions.map(|f| (f.interface.clone(), f.name.clone(), f.own.clone()));
        let imports = self.imports.iter().map(|import| {
            let wanted = import.functions.iter();
            let wanted = wanted.map(|f| (f.name.clone(), f.place, f.gives));
            (import.interface.clone(), wanted.collect())
        });
        Opening {
            name: start.name.clone(),
            image: start.image.to_string_lossy().into_owned(),
            functions: functions.collect(),
            imports: imports.collect(),
            init: start.init.clone(),
            memory: start.limits.memory,
            call_ns: u64::try_from(start.limits.call.as_nanos()).unwrap_or(u64::MAX),
            pad: start.pad,
        }
    }

    /// One order and its last reply; questions in between are answered.
    fn tell(&mut self, order: &Order) -> Result<Reply, Failure> {
        let limit = self.start.limits.call;
        // Nothing else runs the component's code, and the journal is that of the call under way.
        let may_ask = matches!(order, Order::Call(..) | Order::Discard(_));
        let Some(running) = self.running.as_mut() else {
            return Err(Failure::Ended("it has no process".into()));
        };
        let mut unanswered = None;
        let mut sent = running.line.send(order);
        loop {
            let reply = match sent.and_then(|()| running.receive(limit)) {
                Ok(Reply::Ask(import, asked)) if may_ask => (import, asked),
                Ok(Reply::Ask(..)) => return Err(self.nonsense()),
                Ok(Reply::Failed(Fault::Unanswered, _)) if unanswered.is_some() => {
                    return Err(unanswered.unwrap_or(Failure::Ended(String::new())));
                }
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    let why = running.ended(&error);
                    self.running = None;
                    return Err(Failure::Ended(why));
                }
            };
            let (import, asked) = reply;
            let gives_back = match &asked {
                Asked::Discard(handle) => Some(*handle),
                Asked::Call(..) => None,
            };
            let found = match self.imports.get(import) {
                Some(known) => {
                    let ask = |asked: &Asked| put(&*known.callee, asked);
                    answered(&self.journal, import, asked, ask).map_err(Failure::from)
                }
                None => Err(Failure::Invalid("it asks somebody who is not there".into())),
            };
            if let (Some(handle), true) = (gives_back, found.is_ok()) {
                self.held.remove(&(import, handle));
            }
            let found = match found {
                Ok(answer) => {
                    let given = answer.as_ref().and_then(Value::handle);
                    self.held.extend(given.map(|handle| (import, handle)));
                    Some(answer)
                }
                Err(failure) => {
                    unanswered = Some(failure);
                    None
                }
            };
            sent = running.line.send(&Order::Answer(found));
        }
    }

    /// The same for an order whose reply says how a call ended.
    fn outcome(&mut self, order: &Order) -> Result<Outcome, Failure> {
        match self.tell(order)? {
            Reply::Done(outcome) => {
                self.held = outcome.held.iter().copied().collect();
                Ok(*outcome)
            }
            Reply::Failed(fault, seen) => {
                self.seen = seen;
                Err(match (fault, seen) {
                    (Fault::Pad, Some(seen)) => Failure::Pad(Box::new(seen)),
                    (Fault::Trap(what), _) => Failure::Trap(what),
                    (Fault::Hang(at), _) => Failure::Hang(at),
                    (Fault::Invalid(what), _) => Failure::Invalid(what),
                    (Fault::Pad | Fault::Unanswered, _) => self.nonsense(),
                })
            }
            _ => Err(self.nonsense()),
        }
    }

    /// Who does not keep to what is agreed is not spoken to again.
    fn nonsense(&mut self) -> Failure {
        self.running = None;
        Failure::Ended("it does not speak as it must".into())
    }

    pub(crate) fn call(
        &mut self,
        function: usize,
        args: &[Value],
        inner: &mut dyn FnMut(Handle) -> Option<u32>,
        has_result: bool,
        made: &mut Vec<u32>,
    ) -> Result<Option<Value>, Failure> {
        let args: Option<Vec<Value>> = args.iter().map(|arg| arg.numbered(inner)).collect();
        let Some(args) = args else {
            return Err(Failure::Invalid("an argument names no object".into()));
        };
        let outcome = self.outcome(&Order::Call(function, has_result, args))?;
        // A damaged process may say anything. A number of its own that passed for a handle would name another object.
        let objects = outcome.value.as_ref().map_or(0, Value::handles);
        if !self.fits(function, outcome.value.as_ref()) || objects != outcome.made.len() {
            return Err(self.nonsense());
        }
        made.extend(outcome.made);
        Ok(outcome.value)
    }

    /// Whether a function has a result like this.
    fn fits(&self, function: usize, value: Option<&Value>) -> bool {
        let function = self.start.functions.get(function);
        match (function.and_then(|f| f.result.as_ref()), value) {
            (None, None) => true,
            (Some(shape), Some(value)) => shape.fits(value),
            _ => false,
        }
    }

    pub(crate) fn discard(&mut self, object: u32) -> Result<(), Failure> {
        self.outcome(&Order::Discard(object)).map(drop)
    }

    /// In place where the process can, else, or where that was not enough before, by a new process.
    pub(crate) fn reset(&mut self, anew: bool) -> Result<(), String> {
        (self.seen, self.renewed) = (None, false);
        self.held.clear();
        if !anew && self.running.is_some() {
            match self.tell(&Order::Reset) {
                // A wild store may have struck the image that it is reset from; then another process begins with a good one.
                Ok(Reply::Digest(memories)) if self.begins_with(&memories) => return Ok(()),
                _ => self.running = None,
            }
        }
        self.renewed = true;
        self.launch()
    }

    /// Whether the last reset took a new process.
    pub(crate) fn renewed(&self) -> bool {
        self.renewed
    }

    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    pub(crate) fn text(&self) -> Range<u64> {
        self.running
            .as_ref()
            .map_or(0..0, |running| running.text.clone())
    }

    pub(crate) fn held(&self) -> BTreeSet<(usize, Handle)> {
        self.held.clone()
    }

    pub(crate) fn flip(&mut self, address: usize, bit: u8) -> bool {
        matches!(self.tell(&Order::Flip(address, bit)), Ok(Reply::Yes(true)))
    }

    /// Arms a flip of a register of the process.
    pub(crate) fn strike(&mut self, register: u32, bit: u32) -> bool {
        matches!(
            self.tell(&Order::Strike(register, bit)),
            Ok(Reply::Yes(true))
        )
    }

    /// Whether the flip that was armed last has been made. None where the process that was to make it is gone, or another one.
    pub(crate) fn struck(&mut self) -> Option<bool> {
        match self.tell(&Order::Struck) {
            Ok(Reply::Yes(yes)) => Some(yes),
            _ => None,
        }
    }

    /// Length and checksum of each memory.
    pub(crate) fn digest(&mut self) -> Option<Vec<(usize, u32)>> {
        match self.tell(&Order::Digest) {
            Ok(Reply::Digest(memories)) => Some(memories),
            _ => None,
        }
    }

    pub(crate) fn memories(&mut self) -> engine::Memories {
        match self.tell(&Order::Dump) {
            Ok(Reply::Dump(memories)) => memories.into_iter().map(|bytes| bytes.0).collect(),
            _ => engine::Memories::new(),
        }
    }

    pub(crate) fn dump(&mut self) -> BodyDump {
        BodyDump {
            seen: self.seen,
            memories: self.memories(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_what_was_listened_to() {
        let begin = Instant::now();
        let mut silence = Silence::new(begin);
        let mut now = begin;
        for _ in 0..100 {
            now += LOOK;
            silence.look(now);
        }
        assert_eq!(silence.look(now), 100 * LOOK);
        // Both were stopped for an hour.
        now += Duration::from_secs(3600);
        assert_eq!(silence.look(now), 110 * LOOK);
        for _ in 0..300 {
            now += LOOK;
            silence.look(now);
        }
        assert!(silence.look(now) > SILENT, "one that is silent is found");
    }
}
