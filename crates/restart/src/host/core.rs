//! The path of a call through one component, and what follows a failure.
//!
//! ```text
//!   available? ─► arguments ─► attempt ──ok──► settle with those that it called
//!                                 ▲  └─failed─► recover: release, spare, reset or new process, count ─► repeat, at most redo_max times
//! ```
//!
//! Not covered: what a first of two bodies has asked others for is in effect before the second is heard.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::parts::Refill;
use crate::body::{Body, Inner, Inners};
use crate::engine::{ENTRIES_MAX, Failure, Image, Import, Journal, at_next_tick, open};
use crate::keep::Kept;
use crate::model::{Effect, Model, Passing, Role};
use crate::table::{Bad, Sealed, Table};
use crate::value::{Handle, Value};
use crate::words::{
    CallError, Cause, Counts, Dump, Listener, Policy, Report, State, Stats, sample,
};

/// A second fault may strike while a body is made ready. After three in a row it rests.
pub(super) const RESET_TRIES: u32 = 3;

pub(super) struct Core {
    pub(super) name: String,
    pub(super) model: Arc<Model>,
    pub(super) image: Arc<Image>,
    pub(super) bodies: Vec<Body>,
    pub(super) table: Table,
    pub(super) epoch: u64,
    /// By resource: the epoch in which all of its objects have come back. What is made later is of that epoch as well.
    pub(super) whole: Vec<u64>,
    pub(super) policy: Policy,
    /// Clients whose objects come back at once where the policy brings back none.
    pub(super) eager: BTreeSet<u32>,
    pub(super) stats: Stats,
    /// Readable without the lock; written under it.
    pub(super) calls: Arc<AtomicU64>,
    pub(super) since_compare: u32,
    pub(super) audit: Audit,
    pub(super) limits: Limits,
    /// Failures since the last call that succeeded; with two bodies, since their memories were last found equal. From the second on a component
    /// with a process of its own gets a new one: what a reset in place does not touch may be what is damaged.
    pub(super) in_a_row: u32,
    /// The next call fails when the component has done its work, before anything is noted.
    pub(super) fail_once: bool,
    pub(super) gone: Option<CallError>,
    pub(super) spare: Arc<Mutex<Option<Vec<Body>>>>,
    pub(super) worker: Option<Refill>,
    /// Told of each reset: who brings objects back while the machine is idle.
    pub(super) idle: Option<mpsc::Sender<()>>,
    pub(super) listener: Option<Listener>,
    pub(super) made: Vec<Vec<Inner>>,
    /// What the next process of the host will know.
    pub(super) kept: Option<Kept>,
    /// Others that it may call.
    pub(super) imports: Vec<Import>,
    pub(super) journal: Arc<Mutex<Journal>>,
}

/// Whose turn it is to be asked for what the host knows.
#[derive(Debug, Default)]
pub(super) struct Audit {
    pub(super) calls: u32,
    pub(super) place: usize,
}

/// How often it failed of late, and what follows from that.
#[derive(Debug, Default)]
pub(super) struct Limits {
    recent: VecDeque<Instant>,
    rests: u32,
    /// Until then every call is refused.
    until: Option<Instant>,
}

pub(super) enum Stop {
    /// The component failed; after a reset the call may be repeated.
    Failed(Cause, String),
    /// Another component, which it called, has no answer.
    Callee(CallError),
    /// The caller's business.
    Refused(CallError),
}

pub(super) fn failed(failure: Failure) -> Stop {
    match failure {
        Failure::Pad(seen) => Stop::Failed(
            Cause::WildFault,
            format!(
                "signal {} at {:#x}, address {:#x}",
                seen.signal, seen.rip, seen.address
            ),
        ),
        Failure::Trap(what) => Stop::Failed(Cause::Trap, what),
        Failure::Hang(at) => Stop::Failed(Cause::Hang, format!("at {at:#x}")),
        Failure::Invalid(what) => Stop::Failed(Cause::Range, what),
        Failure::Differs(what) => Stop::Failed(Cause::Mismatch, what),
        Failure::Ended(what) => Stop::Failed(Cause::Process, what),
        Failure::Callee(error) => match *error {
            CallError::Asserted { text } => Stop::Failed(Cause::Assertion, text),
            error => Stop::Callee(error),
        },
    }
}

/// An epoch that has changed by itself: whether the component has the object is not known, so it starts again, and has it not.
pub(super) fn unknown(epoch: &mut Sealed) -> Stop {
    *epoch = Sealed::of(0);
    Stop::Failed(
        Cause::Wrong,
        "an epoch of the slot table changed by itself".into(),
    )
}

/// Two at a time: a region is locked while it is read, so a body is never compared with itself.
fn same_memory(bodies: &mut [Body]) -> bool {
    (1..bodies.len()).all(|place| {
        let (before, rest) = bodies.split_at_mut(place);
        before[place - 1].same_memory(&mut rest[0])
    })
}

impl Core {
    pub(super) fn bad(&self, bad: Bad) -> Stop {
        let component = self.name.clone();
        Stop::Refused(match bad {
            Bad::Stale => CallError::Stale { component },
            Bad::Corrupt => CallError::Corrupt { component },
        })
    }

    /// Calls every body and compares what they say. New objects are in `self.made`, body by body.
    pub(super) fn run(
        &mut self,
        function: usize,
        args: &[Value],
        replaying: bool,
    ) -> Result<Option<Value>, Stop> {
        let model = self.model.clone();
        self.run_of(&model, function, args, replaying)
    }

    /// The same for whoever has a count of the model already: one more is a locked instruction.
    pub(super) fn run_of(
        &mut self,
        model: &Model,
        function: usize,
        args: &[Value],
        replaying: bool,
    ) -> Result<Option<Value>, Stop> {
        let mut first: Option<Option<Value>> = None;
        for (which, body) in self.bodies.iter_mut().enumerate() {
            if !self.imports.is_empty() {
                open(&self.journal).begin(replaying, which);
            }
            let table = &mut self.table;
            let mut inner = |handle: Handle| table.slot(handle).ok()?.inner.get(which).copied();
            let made = &mut self.made[which];
            made.clear();
            let value = body
                .call(
                    function,
                    args,
                    &mut inner,
                    model.functions[function].result.is_some(),
                    made,
                )
                .map_err(failed)?;
            match &first {
                None => first = Some(value),
                Some(other) if *other != value => {
                    return Err(Stop::Failed(
                        Cause::Mismatch,
                        format!(
                            "{}: {other:?} and {value:?}",
                            model.functions[function].name
                        ),
                    ));
                }
                Some(_) => {}
            }
        }
        let most = usize::from(model.functions[function].given().is_some());
        let odd = |made: &Vec<Inner>| made.len() != self.made[0].len() || made.len() > most;
        if self.made.iter().any(odd) {
            return Err(Stop::Failed(
                Cause::Range,
                format!("a call gave more objects than {most}"),
            ));
        }
        Ok(first.unwrap_or_default())
    }

    pub(super) fn inner(&self) -> Inners {
        self.made
            .iter()
            .filter_map(|made| made.first().copied())
            .collect()
    }

    /// Whether it serves: it may be gone, or rest.
    pub(super) fn available(&mut self) -> Result<(), CallError> {
        if let Some(gone) = &self.gone {
            return Err(gone.clone());
        }
        let Some(until) = self.limits.until else {
            return Ok(());
        };
        let rest = until.saturating_duration_since(Instant::now());
        if rest > Duration::ZERO {
            return Err(CallError::Resting {
                component: self.name.clone(),
                rest,
            });
        }
        self.limits.until = None;
        Ok(())
    }

    pub(super) fn counts(&self) -> Counts {
        let resting = self
            .limits
            .until
            .is_some_and(|until| Instant::now() < until);
        let state = match (&self.gone, resting) {
            (Some(_), _) => State::Gone,
            (None, true) => State::Rests,
            (None, false) => State::Serves,
        };
        Counts {
            state,
            rebuilt: self.stats.rebuilt,
            swapped: self.stats.swapped,
            renewed: self.stats.renewed,
            rests: self.stats.rests,
            objects: self.table.len(),
            kept: self.stats.kept,
            processes: self.bodies.iter().filter_map(Body::pid).collect(),
        }
    }

    /// One more failure: too many in a window, and the component rests; too many rests, and it is gone.
    fn count(&mut self, now: Instant) -> Result<(), CallError> {
        let (policy, limits) = (self.policy, &mut self.limits);
        limits.recent.push_back(now);
        while limits
            .recent
            .front()
            .is_some_and(|at| now.duration_since(*at) > policy.window)
        {
            limits.recent.pop_front();
            // A whole window without too many of them: what was before is forgotten.
            limits.rests = 0;
        }
        if limits.recent.len() <= policy.resets_max as usize {
            return Ok(());
        }
        limits.recent.clear();
        Err(self.rest(CallError::GaveUp {
            component: self.name.clone(),
            max: policy.resets_max,
            window: policy.window,
        }))
    }

    /// The next rest, twice as long as the last one. After too many of them in a row it is gone, and `why` is told.
    fn rest(&mut self, why: CallError) -> CallError {
        let (policy, limits) = (self.policy, &mut self.limits);
        if limits.rests >= policy.rests_max {
            return self.end(why);
        }
        let rest = policy.rest.saturating_mul(1 << limits.rests.min(16));
        limits.rests += 1;
        limits.until = Some(Instant::now() + rest);
        self.stats.rests += 1;
        CallError::Resting {
            component: self.name.clone(),
            rest,
        }
    }

    /// Makes the bodies ready again after a failure. Objects come back when they are used, or now where the policy says so.
    pub(super) fn recover(
        &mut self,
        cause: Cause,
        function: Option<usize>,
        detail: String,
    ) -> Result<(), CallError> {
        if let Some(gone) = &self.gone {
            return Err(gone.clone());
        }
        let begin = Instant::now();
        self.in_a_row += 1;
        *self.stats.resets.entry(cause).or_default() += 1;
        let dump = self.dump(cause);
        self.epoch += 1;
        self.since_compare = 0;
        if !self.policy.recover {
            self.table.clear();
        }
        self.release();
        let swapped = self.swap();
        let mut renewed = false;
        let mut ready = Ok(());
        if !swapped {
            ready = self.reset_bodies();
            renewed = self.bodies.iter().any(Body::renewed);
            self.stats.renewed += u64::from(renewed);
        }
        sample(&mut self.stats.reset_ns, begin.elapsed());
        if let Some(idle) = &self.idle {
            // It ends with the host.
            let _ = idle.send(());
        }
        if let Some(listener) = &self.listener {
            listener(&Report {
                component: self.name.clone(),
                function: function.map(|function| self.model.functions[function].name.clone()),
                cause,
                detail,
                epoch: self.epoch,
                reset_ns: u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX),
                swapped,
                renewed,
                dump,
            });
        }
        ready?;
        if cause == Cause::Callee {
            return Ok(());
        }
        self.count(begin)
    }

    /// What the bodies hold, where somebody wants it and the component itself has failed.
    fn dump(&mut self, cause: Cause) -> Option<Arc<Dump>> {
        if !self.policy.dump || matches!(cause, Cause::Callee | Cause::Asked) {
            return None;
        }
        Some(Arc::new(Dump {
            text: self.bodies.first()?.text(),
            bodies: self.bodies.iter_mut().map(Body::dump).collect(),
        }))
    }

    /// Takes the spare, if there is one; the dead bodies are made ready by the thread that runs when nobody else wants to.
    fn swap(&mut self) -> bool {
        // Never waited for: the thread that fills it runs only when the machine is idle.
        let spare = self
            .spare
            .try_lock()
            .ok()
            .and_then(|mut spare| spare.take());
        let Some(spare) = spare else {
            return false;
        };
        self.stats.swapped += 1;
        let dead = std::mem::replace(&mut self.bodies, spare);
        if let Some(worker) = self.worker.clone() {
            let anew = self.in_a_row > 1;
            // Whoever met the failure does not wake anybody. The worker ends with the host; until then it takes what it is given.
            at_next_tick(Box::new(move || {
                let _ = worker.send((dead, anew));
            }));
        }
        true
    }

    fn reset_bodies(&mut self) -> Result<(), CallError> {
        let mut memory = Duration::ZERO;
        for place in 0..self.bodies.len() {
            let mut tries = 1;
            let anew = |tries: u32| tries > 1 || self.in_a_row > 1;
            while let Err(found) = self.bodies[place].reset(&self.image, anew(tries)) {
                if tries == RESET_TRIES {
                    // What cannot be made ready now may be later; the call after the rest finds it as it is, and begins here again.
                    return Err(self.rest(CallError::Dead {
                        component: self.name.clone(),
                        found,
                    }));
                }
                tries += 1;
            }
            memory += self.bodies[place].refilled();
        }
        if !memory.is_zero() {
            sample(&mut self.stats.reset_memory_ns, memory);
        }
        Ok(())
    }

    /// Gives back what failed bodies hold at others, or keeps it where the edge says so; what the call under way was given stays, since its
    /// repetition is given it again.
    fn release(&mut self) {
        if self.imports.is_empty() {
            return;
        }
        let given = open(&self.journal).given();
        let held: std::collections::BTreeSet<_> = self.bodies.iter().flat_map(Body::held).collect();
        let held = held.difference(&given).copied().collect();
        let kept = open(&self.journal).save(&held);
        for (import, handle) in held.difference(&kept) {
            // Whoever is gone has nothing to give back.
            let _ = self.imports[*import].callee.discard(*handle);
        }
        self.release_unneeded();
    }

    /// Gives back what was kept for objects that have ended.
    pub(super) fn release_unneeded(&mut self) {
        if self.imports.is_empty() {
            return;
        }
        let table = &self.table;
        let over = open(&self.journal).unneeded(|object| !table.has(object));
        self.discard_there(over);
    }

    /// Gives back what nobody needs any more.
    pub(super) fn discard_there(&self, over: Vec<(usize, Handle)>) {
        for (import, handle) in over {
            let _ = self.imports[import].callee.discard(handle);
        }
    }

    /// After a call: what it was given and does not hold is given back, and its journal ends.
    pub(super) fn settle(&mut self) {
        if self.imports.is_empty() || open(&self.journal).is_empty() {
            return;
        }
        let mut given = open(&self.journal).given();
        given.append(&mut open(&self.journal).orphans());
        let held = self.bodies.first().map(Body::held).unwrap_or_default();
        for (import, handle) in given.difference(&held) {
            let _ = self.imports[*import].callee.discard(*handle);
        }
        open(&self.journal).still(&held);
        open(&self.journal).clear();
    }

    fn end(&mut self, error: CallError) -> CallError {
        self.gone = Some(error.clone());
        for body in &mut self.bodies {
            body.kill();
        }
        // Another version may take its place, and asks for what it needs.
        let over = open(&self.journal).unneeded(|_| true);
        self.discard_there(over);
        error
    }

    fn attempt(
        &mut self,
        model: &Model,
        client: u32,
        function: usize,
        args: &[Value],
    ) -> Result<Option<Value>, Stop> {
        for (arg, param) in args.iter().zip(&model.functions[function].params) {
            if param.passing == Passing::Value {
                continue;
            }
            for handle in arg.lent().iter().filter_map(Value::handle) {
                if self.table.ended(handle) {
                    return Err(self.bad(Bad::Stale));
                }
                self.rebuild(handle)?;
            }
        }
        if model.functions[function].children {
            // Of a move the new parent: it may be full.
            let of = match model.functions[function].effect {
                Effect::Move { parent, .. } => args.get(parent).and_then(Value::handle),
                _ => args.iter().find_map(Value::handle),
            };
            if let Some(handle) = of {
                self.rebuild_children(handle)?;
            }
        }
        if let Role::Terminal { parameter } = model.functions[function].role
            && let Some(handle) = args.get(parameter).and_then(Value::handle)
        {
            self.leave_children(handle)?;
        }
        self.audit()?;
        self.bring_keys(model, function, args)?;
        self.rename_for(model, function, args)?;
        let result = self.run_of(model, function, args, false)?;
        if std::mem::take(&mut self.fail_once) {
            return Err(Stop::Failed(Cause::Asked, "at its return".into()));
        }
        self.check_result(model, function, args, result.as_ref())?;
        if self.bodies.len() > 1 && self.policy.compare_every != 0 {
            self.since_compare += 1;
            if self.since_compare >= self.policy.compare_every {
                self.since_compare = 0;
                if !same_memory(&mut self.bodies) {
                    return Err(Stop::Failed(Cause::Memory, "after equal results".into()));
                }
            }
        }
        if let Role::Terminal { parameter } = model.functions[function].role
            && let Some(handle) = args.get(parameter).and_then(Value::handle)
        {
            self.end_children(handle)?;
        }
        let result = self.record(model, client, function, args, result)?;
        self.write_down(client, function, args, result.as_ref());
        Ok(result)
    }

    pub(super) fn call(
        &mut self,
        client: u32,
        function: usize,
        args: &[Value],
    ) -> Result<Option<Value>, CallError> {
        self.available()?;
        // One thread at a time writes: no read-modify-write is needed.
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls + 1, Ordering::Relaxed);
        // Once: an atomic counter costs as much as a check.
        let model = self.model.clone();
        self.check_arguments(&model, client, function, args)?;
        let outcome = self.repeat(&model, client, function, args);
        if !self.imports.is_empty() {
            let made = matches!(model.functions[function].role, Role::Create { .. });
            let gives = model.functions[function].given().is_some();
            let given = match &outcome {
                Ok(Some(value)) if gives => value.handle(),
                _ => None,
            };
            let object = match &outcome {
                Ok(_) if !made => given.or_else(|| args.first().and_then(Value::handle)),
                _ => given,
            };
            open(&self.journal).belongs(object);
        }
        self.settle();
        outcome
    }

    /// Whether the call that has just succeeded says all that can be said of the bodies: of two, their memories were compared behind it.
    fn compared(&self) -> bool {
        self.bodies.len() < 2 || self.policy.compare_every == 0 || self.since_compare == 0
    }

    fn repeat(
        &mut self,
        model: &Model,
        client: u32,
        function: usize,
        args: &[Value],
    ) -> Result<Option<Value>, CallError> {
        let of = || model.functions[function].name.clone();
        let mut noticed: Option<Instant> = None;
        let mut last = Cause::Trap;
        for _ in 0..=self.policy.redo_max {
            let (cause, detail) = match self.attempt(model, client, function, args) {
                Ok(result) => {
                    if self.compared() {
                        self.in_a_row = 0;
                    }
                    if let Some(noticed) = noticed {
                        sample(&mut self.stats.recovery_ns, noticed.elapsed());
                    }
                    return Ok(result);
                }
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Callee(source)) => {
                    self.recover(Cause::Callee, Some(function), source.to_string())?;
                    return Err(CallError::Callee {
                        component: self.name.clone(),
                        function: of(),
                        source: Box::new(source),
                    });
                }
                Err(Stop::Failed(cause, detail)) => (cause, detail),
            };
            noticed.get_or_insert_with(Instant::now);
            last = cause;
            self.recover(cause, Some(function), detail)?;
            if !self.policy.recover {
                return Err(CallError::Failed {
                    component: self.name.clone(),
                    function: of(),
                    cause,
                });
            }
            if !self.imports.is_empty() && open(&self.journal).overflow() {
                return Err(CallError::TooLong {
                    component: self.name.clone(),
                    function: of(),
                    cause,
                    max: ENTRIES_MAX,
                });
            }
            self.rebuild_eagerly();
        }
        Err(CallError::Poison {
            component: self.name.clone(),
            function: of(),
            attempts: self.policy.redo_max + 1,
            cause: last,
        })
    }
}
