//! The host: components, edges between them and their clients, and the path of a call.
//!
//! ```text
//!   lock ─► rebuild what the arguments name ─► check arguments ─► call (each body) ─► compare, check ─► record ─► unlock
//!              ▲                                                        │
//!              └── reset, epoch + 1 ◄── cause: trap, wild fault, hang, mismatch, invalid
//! ```
//!
//! Invariants
//!  1. A component is a monitor: one call at a time, under a lock that lends priority; a call back into it is an error, never a deadlock.
//!  2. A slot is changed only after a call that succeeded in every body, with equal results.
//!  3. A call that fails again and again is answered with an error to its caller alone; the component stays in service for others.
//!  4. More resets than the policy allows within its window end the component, and every later call says so.
//!
//! Not covered: calls that a component makes to others are not undone when it fails; `effect` in the sidecar says which may be repeated.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use steadfast_sys::inherit::PiMutex;

use crate::engine::{Body, Engine, Failure, Image, Inner, Limits, LoadError, Mold};
use crate::model::{Effect, Model, Passing, Returns, Role, Source, When};
use crate::shape::Shape;
use crate::table::{BLOCK, Bad, Keeper, Record, Table};
use crate::value::{Handle, Value};

/// Why a component was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A trap that the compiler had planned: a bounds check, an assertion.
    Trap,
    /// A fault where none was planned; the signal pad made an error of it.
    WildFault,
    /// A call took longer than its limit.
    Hang,
    /// Two bodies returned different results to the same call.
    Mismatch,
    /// Two bodies returned the same and hold different memory.
    Memory,
    /// A result or an argument that the interface does not allow.
    Range,
    /// A result that the slot table knows to be wrong.
    Wrong,
    /// An object did not come back as it was.
    Replay,
}

impl Cause {
    /// The word for it in events and reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::WildFault => "wild fault",
            Self::Hang => "hang",
            Self::Mismatch => "results differ",
            Self::Memory => "memory differs",
            Self::Range => "out of range",
            Self::Wrong => "wrong result",
            Self::Replay => "replay failed",
        }
    }
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("{from} may not call {function} of {to}: no edge of the application allows it")]
    NoEdge {
        from: String,
        to: String,
        function: String,
    },
    #[error("{component} has no function {function}")]
    NoFunction { component: String, function: String },
    #[error("{component} is not part of the application")]
    NoComponent { component: String },
    #[error("{function} takes {needed} arguments, found {found}")]
    Count {
        function: String,
        needed: usize,
        found: usize,
    },
    #[error("argument {parameter} of {function} is not of the type that the interface has for it")]
    Type { function: String, parameter: String },
    #[error(
        "an object of {component} cannot come back: the object it was made from was given back"
    )]
    Orphan { component: String },
    #[error("the handle names no object of {component} any more")]
    Stale { component: String },
    #[error("the record of an object of {component} is damaged; the object is lost")]
    Corrupt { component: String },
    #[error("{component} failed {attempts} times in a row in {function}, last by {}; this request is given up", cause.word())]
    Poison {
        component: String,
        function: String,
        attempts: u32,
        cause: Cause,
    },
    #[error("{component} failed in {function} by {}; its objects are lost", cause.word())]
    Failed {
        component: String,
        function: String,
        cause: Cause,
    },
    #[error("{component} is called while it calls: components may not be re-entered")]
    Reentered { component: String },
    #[error("{component} was reset more than {max} times in {} s and is given up", window.as_secs())]
    GaveUp {
        component: String,
        max: u32,
        window: Duration,
    },
    #[error("{component} does not come back: {found}")]
    Dead { component: String, found: String },
    #[error("argument {parameter} of {function} is {found}, at most {max} is allowed")]
    Argument {
        function: String,
        parameter: String,
        found: u64,
        max: u64,
    },
}

/// How a component is watched and brought back.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Two bodies execute every call and are compared.
    pub dual: bool,
    /// With `dual`: memories are compared every so many calls; 0 for never.
    pub compare_every: u32,
    /// A failed call is repeated so often before its caller gets an error.
    pub redo_max: u32,
    /// More resets than this in `window` end the component.
    pub resets_max: u32,
    pub window: Duration,
    /// A second set of bodies stands ready, so that a reset is a swap.
    pub spare: bool,
    /// All objects come back at once, instead of each when it is used next.
    pub eager: bool,
    /// Without: a failure is an error, and all objects are lost. For comparisons.
    pub recover: bool,
    /// Results are held against their bounds, the slot's state and the keeper.
    pub checks: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            dual: false,
            compare_every: 16,
            redo_max: 3,
            resets_max: 1000,
            window: Duration::from_secs(10),
            spare: true,
            eager: false,
            recover: true,
            checks: true,
        }
    }
}

/// What a component is made from.
#[derive(Debug, Clone)]
pub struct Component {
    pub name: String,
    /// The compiled image.
    pub image: PathBuf,
    pub model: Model,
    /// A function of the world that is called once, before the image of the memory is taken.
    pub init: Option<String>,
    pub memory_bytes: usize,
    pub call_limit: Duration,
    pub policy: Policy,
}

/// What happened to a component so far.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub calls: u64,
    pub resets: BTreeMap<Cause, u64>,
    /// From the moment when a failure was noticed to the result of the repeated call, in ns: the last few thousand.
    pub recovery_ns: Vec<u64>,
    /// Making a body ready again, alone.
    pub reset_ns: Vec<u64>,
    /// Objects that came back.
    pub rebuilt: u64,
    /// What one of them took.
    pub rebuild_ns: Vec<u64>,
    /// Resets that found a spare ready.
    pub swapped: u64,
    pub objects: usize,
}

impl Stats {
    /// Resets of all causes.
    #[must_use]
    pub fn resets_total(&self) -> u64 {
        self.resets.values().sum()
    }
}

/// Samples are kept for a median, not for an archive.
const SAMPLES: usize = 8192;

fn sample(to: &mut Vec<u64>, since: Instant) {
    if to.len() < SAMPLES {
        to.push(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}

/// A failure, for whoever logs.
#[derive(Debug, Clone)]
pub struct Report {
    pub component: String,
    pub function: String,
    pub cause: Cause,
    pub detail: String,
    pub epoch: u64,
}

type Listener = Arc<dyn Fn(&Report) + Send + Sync>;

struct Core {
    name: String,
    model: Arc<Model>,
    image: Arc<Image>,
    bodies: Vec<Body>,
    table: Table,
    epoch: u64,
    policy: Policy,
    stats: Stats,
    since_compare: u32,
    recent: VecDeque<Instant>,
    gone: Option<CallError>,
    spare: Arc<Mutex<Option<Vec<Body>>>>,
    worker: Option<mpsc::Sender<Vec<Body>>>,
    listener: Option<Listener>,
    made: Vec<Vec<Inner>>,
}

/// A component in a host.
pub(crate) struct Unit {
    name: String,
    model: Arc<Model>,
    core: PiMutex<Core>,
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

enum Stop {
    /// The component failed; after a reset the call may be repeated.
    Failed(Cause, String),
    /// The caller's business.
    Refused(CallError),
}

fn failed(failure: Failure) -> Stop {
    match failure {
        Failure::Pad(seen) => Stop::Failed(
            Cause::WildFault,
            format!(
                "signal {} at {:#x}, address {:#x}",
                seen.signal, seen.rip, seen.address
            ),
        ),
        Failure::Trap(what) => Stop::Failed(Cause::Trap, what),
        Failure::Hang(seen) => Stop::Failed(Cause::Hang, format!("at {:#x}", seen.rip)),
        Failure::Invalid(what) => Stop::Failed(Cause::Range, what),
    }
}

impl Core {
    fn bad(&self, bad: Bad) -> Stop {
        let component = self.name.clone();
        Stop::Refused(match bad {
            Bad::Stale => CallError::Stale { component },
            Bad::Corrupt => CallError::Corrupt { component },
        })
    }

    /// Calls every body and compares what they say. New objects are in `self.made`, body by body.
    fn run(&mut self, function: usize, args: &[Value]) -> Result<Option<Value>, Stop> {
        let model = self.model.clone();
        let mut first: Option<Option<Value>> = None;
        for (which, body) in self.bodies.iter_mut().enumerate() {
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
        if self
            .made
            .iter()
            .any(|made| made.len() != self.made[0].len() || made.len() > 1)
        {
            return Err(Stop::Failed(
                Cause::Range,
                "a call gave more than one object".into(),
            ));
        }
        Ok(first.unwrap_or_default())
    }

    fn inner(&self) -> Vec<Inner> {
        self.made
            .iter()
            .filter_map(|made| made.first().copied())
            .collect()
    }

    /// Makes the object behind a handle exist in the present bodies: parents first, creation, way to its state, data, fields.
    fn rebuild(&mut self, handle: Handle) -> Result<(), Stop> {
        let epoch = self.epoch;
        match self.table.slot(handle) {
            Err(bad) => return Err(self.bad(bad)),
            Ok(slot) => match slot.record() {
                Err(bad) => return Err(self.bad(bad)),
                Ok(_) if slot.epoch == epoch => return Ok(()),
                Ok(_) => {}
            },
        }
        let begin = Instant::now();
        let record = match self.table.slot(handle).map(|slot| slot.record().cloned()) {
            Ok(Ok(record)) => record,
            Ok(Err(bad)) | Err(bad) => return Err(self.bad(bad)),
        };
        if let Some(parent) = record.parent {
            if self.table.slot(parent).is_err() {
                return Err(Stop::Refused(CallError::Orphan {
                    component: self.name.clone(),
                }));
            }
            self.rebuild(parent)?;
        }
        let inner = self.make_again(&record)?;
        if let Ok(slot) = self.table.slot(handle) {
            (slot.inner, slot.epoch) = (inner, epoch);
        }
        if let Err(stop) = self.refit(handle, &record) {
            // Half an object is none: the next use begins again, and is refused again if the record is what is damaged.
            if let Ok(slot) = self.table.slot(handle) {
                slot.inner.clear();
                slot.epoch = 0;
            }
            return Err(stop);
        }
        self.stats.rebuilt += 1;
        sample(&mut self.stats.rebuild_ns, begin);
        Ok(())
    }

    /// Leads a new object to the state, the data and the fields that its record has.
    fn refit(&mut self, handle: Handle, record: &Record) -> Result<(), Stop> {
        let epoch = self.epoch;
        let model = self.model.clone();
        let resource = &model.resources[record.resource];
        for &function in &resource.paths[record.state] {
            let mut args = vec![Value::Handle(handle)];
            let given = &model.functions[function].replay;
            for place in 1..model.functions[function].params.len() {
                let fixed = given.iter().find(|(of, _)| *of == place).map(|(_, v)| v);
                match fixed.or_else(|| record.remembered(function, place)) {
                    Some(value) => args.push(value.clone()),
                    None => {
                        return Err(Stop::Failed(
                            Cause::Replay,
                            format!(
                                "{}: an argument was not remembered",
                                model.functions[function].name
                            ),
                        ));
                    }
                }
            }
            let result = self.run(function, &args)?;
            if let Effect::State { when, .. } = model.functions[function].effect
                && !when.holds(result.as_ref())
            {
                return Err(Stop::Failed(
                    Cause::Replay,
                    format!("{} gave {result:?}", model.functions[function].name),
                ));
            }
        }
        if let Some(function) = resource.data {
            let key = model.name_of(record.creator, &record.args);
            let there = key
                .as_ref()
                .and_then(|key| self.table.names.get(key))
                .is_some_and(|named| named.epoch == epoch);
            if !there {
                self.refill(handle, key.as_ref(), function)?;
            }
            if let Some(named) = key.and_then(|key| self.table.names.get_mut(&key)) {
                named.epoch = epoch;
            }
        }
        for &(function, parameter, field) in &resource.restore {
            let what = &model.functions[function];
            let value = what.params[parameter].shape.of_number(record.fields[field]);
            let Some(value) = value else {
                return Err(Stop::Failed(
                    Cause::Replay,
                    format!("{} cannot take {}", what.name, record.fields[field]),
                ));
            };
            let result = self.run(function, &[Value::Handle(handle), value])?;
            if !When::Ok.holds(result.as_ref()) {
                return Err(Stop::Failed(
                    Cause::Replay,
                    format!("{} gave {result:?}", what.name),
                ));
            }
        }
        Ok(())
    }

    /// Calls an object's maker again.
    fn make_again(&mut self, record: &Record) -> Result<Vec<Inner>, Stop> {
        let model = self.model.clone();
        let function = &model.functions[record.creator];
        let mut args = record.args.clone();
        for (place, value) in &function.replay {
            args[*place] = value.clone();
        }
        self.run(record.creator, &args)?;
        let inner = self.inner();
        if inner.len() == self.bodies.len() {
            Ok(inner)
        } else {
            Err(Stop::Failed(
                Cause::Replay,
                format!("{} gave no object", function.name),
            ))
        }
    }

    /// Gives the component back what a name stands for, where it lost it.
    fn rename(&mut self, key: &(usize, String)) -> Result<(), Stop> {
        let epoch = self.epoch;
        let record = match self.table.names.get(key) {
            None => return Ok(()),
            Some(named) if named.epoch == epoch => return Ok(()),
            Some(named) => named.record().cloned(),
        };
        let record = record.map_err(|bad| self.bad(bad))?;
        let inner = self.make_again(&record)?;
        let begin = Instant::now();
        let resource = record.resource;
        // An object for the time of the refill alone.
        let handle = self.table.insert(record, epoch, inner.clone());
        let done = match self.model.resources[resource].data {
            Some(function) => self.refill(handle, Some(key), function),
            None => Ok(()),
        };
        self.table.remove(handle);
        done?;
        for (body, inner) in self.bodies.iter_mut().zip(inner) {
            body.discard(inner).map_err(failed)?;
        }
        if let Some(named) = self.table.names.get_mut(key) {
            named.epoch = epoch;
        }
        self.stats.rebuilt += 1;
        sample(&mut self.stats.rebuild_ns, begin);
        Ok(())
    }

    /// Gives back the names that a call may look at.
    fn rename_for(&mut self, function: usize, args: &[Value]) -> Result<(), Stop> {
        let model = self.model.clone();
        if let Some(key) = model.name_of(function, args) {
            return self.rename(&key);
        }
        match model.functions[function].effect {
            Effect::Remove { resource, name, .. } => {
                if let Some(Value::String(name)) = args.get(name) {
                    self.rename(&(resource, name.clone()))?;
                    // Whether it may go depends on who has it open: they all come back.
                    for handle in self.table.handles() {
                        let record = self
                            .table
                            .slot(handle)
                            .ok()
                            .and_then(|slot| slot.record().ok().cloned());
                        let key =
                            record.and_then(|record| model.name_of(record.creator, &record.args));
                        if key.is_some_and(|(of, key)| of == resource && key == *name) {
                            self.rebuild(handle)?;
                        }
                    }
                }
                Ok(())
            }
            Effect::All { resource } => {
                let keys: Vec<_> = self
                    .table
                    .names
                    .keys()
                    .filter(|(of, _)| *of == resource)
                    .cloned()
                    .collect();
                keys.iter().try_for_each(|key| self.rename(key))
            }
            _ => Ok(()),
        }
    }

    /// The name that an object was made with.
    fn key(&mut self, handle: Handle) -> Option<(usize, String)> {
        let record = self.table.slot(handle).ok()?.record().ok()?;
        self.model.name_of(record.creator, &record.args)
    }

    /// Writes an object's data back.
    fn refill(
        &mut self,
        handle: Handle,
        key: Option<&(usize, String)>,
        function: usize,
    ) -> Result<(), Stop> {
        let model = self.model.clone();
        let Effect::Write {
            offset: Some(at),
            data,
            ..
        } = model.functions[function].effect
        else {
            return Ok(());
        };
        let length = self
            .table
            .keeper(handle, key)
            .map_or(0, |keeper| keeper.length());
        let mut done = 0;
        while done < length {
            let piece = self
                .table
                .keeper(handle, key)
                .and_then(|keeper| keeper.read(done, 4 * BLOCK));
            let Some(piece) = piece else {
                return Err(self.bad(Bad::Corrupt));
            };
            let what = &model.functions[function];
            let Some(offset) = what.params[at].shape.of_number(done as u64) else {
                return Err(Stop::Failed(
                    Cause::Replay,
                    format!("{} cannot take {done}", what.name),
                ));
            };
            let n = piece.len();
            done += n;
            let mut args = vec![Value::Handle(handle); 3];
            args[at] = offset;
            args[data] = Value::Bytes(piece);
            let result = self.run(function, &args)?;
            // A result that counts tells that all of it was taken.
            let counts = what.result.as_ref().is_some_and(Shape::counts);
            let short = counts && result.as_ref().and_then(Value::number) != Some(n as u64);
            if short || !When::Ok.holds(result.as_ref()) {
                return Err(Stop::Failed(
                    Cause::Replay,
                    format!("{} gave {result:?}", model.functions[function].name),
                ));
            }
        }
        Ok(())
    }

    /// Resets the bodies after a failure. Objects come back when they are used, or now where the policy says so.
    fn recover(&mut self, cause: Cause, function: usize, detail: String) -> Result<(), CallError> {
        *self.stats.resets.entry(cause).or_default() += 1;
        self.epoch += 1;
        self.since_compare = 0;
        if !self.policy.recover {
            self.table.clear();
        }
        if let Some(listener) = &self.listener {
            let function = self.model.functions[function].name.clone();
            listener(&Report {
                component: self.name.clone(),
                function,
                cause,
                detail,
                epoch: self.epoch,
            });
        }
        let now = Instant::now();
        self.recent.push_back(now);
        while self
            .recent
            .front()
            .is_some_and(|at| now.duration_since(*at) > self.policy.window)
        {
            self.recent.pop_front();
        }
        if self.recent.len() > self.policy.resets_max as usize {
            return Err(self.end(CallError::GaveUp {
                component: self.name.clone(),
                max: self.policy.resets_max,
                window: self.policy.window,
            }));
        }
        let begin = Instant::now();
        // Never waited for: the thread that fills it runs only when the machine is idle.
        let spare = self
            .spare
            .try_lock()
            .ok()
            .and_then(|mut spare| spare.take());
        if let Some(spare) = spare {
            self.stats.swapped += 1;
            let dead = std::mem::replace(&mut self.bodies, spare);
            if let Some(worker) = &self.worker {
                // The worker ends with the host; until then it takes what it is given.
                let _ = worker.send(dead);
            }
        } else {
            for body in &mut self.bodies {
                if let Err(found) = body.reset(Some(&self.image)) {
                    return Err(self.end(CallError::Dead {
                        component: self.name.clone(),
                        found,
                    }));
                }
            }
        }
        sample(&mut self.stats.reset_ns, begin);
        Ok(())
    }

    fn end(&mut self, error: CallError) -> CallError {
        self.gone = Some(error.clone());
        for body in &mut self.bodies {
            body.kill();
        }
        error
    }

    fn check_arguments(&mut self, function: usize, args: &[Value]) -> Result<(), CallError> {
        let model = self.model.clone();
        let function = &model.functions[function];
        if args.len() != function.params.len() {
            return Err(CallError::Count {
                function: function.name.clone(),
                needed: function.params.len(),
                found: args.len(),
            });
        }
        for (arg, param) in args.iter().zip(&function.params) {
            // A stale handle is told when it is looked up; one of another resource must not reach the component either.
            let other = |table: &mut Table| match (&param.shape, arg) {
                (Shape::Handle(of), Value::Handle(handle)) => {
                    table.slot(*handle).is_ok_and(|slot| slot.resource() != *of)
                }
                _ => false,
            };
            if !param.shape.fits(arg) || other(&mut self.table) {
                return Err(CallError::Type {
                    function: function.name.clone(),
                    parameter: param.name.clone(),
                });
            }
        }
        for &(place, max) in &function.argument_max {
            if let Some(found) = args.get(place).and_then(Value::number)
                && found > max
            {
                let parameter = function.params[place].name.clone();
                return Err(CallError::Argument {
                    function: function.name.clone(),
                    parameter,
                    found,
                    max,
                });
            }
        }
        Ok(())
    }

    /// Whether the result is one that the interface, and the slot, allow.
    fn check_result(
        &mut self,
        function: usize,
        args: &[Value],
        result: Option<&Value>,
    ) -> Result<(), Stop> {
        if !self.policy.checks {
            return Ok(());
        }
        let model = self.model.clone();
        let function = &model.functions[function];
        if let (Effect::State { from, when, .. }, Some(Value::Handle(handle))) =
            (&function.effect, args.first())
            && !from.is_empty()
            && when.holds(result)
            && let Ok(Ok(record)) = self.table.slot(*handle).map(|slot| slot.record())
            && !from.contains(&record.state)
        {
            let state = &model.resources[record.resource].states[record.state];
            return Err(Stop::Failed(
                Cause::Wrong,
                format!("{} succeeded in state {state}", function.name),
            ));
        }
        if let (Some(max), Some(found)) = (function.result_max, result.and_then(Value::number))
            && found > max
        {
            return Err(Stop::Failed(
                Cause::Range,
                format!("{} gave {found}, at most {max} is allowed", function.name),
            ));
        }
        let (Some(returns), Some(Value::Handle(handle)), Some(result)) =
            (&function.returns, args.first(), result)
        else {
            return Ok(());
        };
        let key = self.key(*handle);
        let right = match returns {
            Returns::Remembered {
                state,
                function,
                parameter,
            } => {
                let Ok(slot) = self.table.slot(*handle) else {
                    return Ok(());
                };
                let record = slot.record().ok();
                let known = record
                    .filter(|r| r.state == *state)
                    .and_then(|r| r.remembered(*function, *parameter))
                    .cloned();
                *result == Value::Option(known.map(Box::new))
            }
            Returns::Data { offset, length } => {
                let number = |place: usize| {
                    args.get(place)
                        .and_then(Value::number)
                        .and_then(|n| usize::try_from(n).ok())
                };
                let Some(keeper) = self.table.keeper(*handle, key.as_ref()) else {
                    return Ok(());
                };
                match (number(*offset), number(*length), result) {
                    (Some(offset), Some(length), Value::Result(Ok(Some(data)))) => {
                        match (&**data, keeper.read(offset, length)) {
                            (Value::Bytes(bytes), Some(kept)) => *bytes == kept,
                            (Value::List(items), Some(kept)) => items.is_empty() && kept.is_empty(),
                            _ => false,
                        }
                    }
                    _ => true,
                }
            }
        };
        if right {
            Ok(())
        } else {
            Err(Stop::Failed(
                Cause::Wrong,
                format!("{} gave {result:?}", function.name),
            ))
        }
    }

    fn attempt(&mut self, function: usize, args: &[Value]) -> Result<Option<Value>, Stop> {
        let model = self.model.clone();
        for (arg, param) in args.iter().zip(&model.functions[function].params) {
            if param.passing != Passing::Value
                && let Some(handle) = arg.handle()
            {
                self.rebuild(handle)?;
            }
        }
        self.rename_for(function, args)?;
        let result = self.run(function, args)?;
        self.check_result(function, args, result.as_ref())?;
        if self.bodies.len() > 1 && self.policy.compare_every != 0 {
            self.since_compare += 1;
            if self.since_compare >= self.policy.compare_every {
                self.since_compare = 0;
                let (one, rest) = self.bodies.split_at(1);
                if rest.iter().any(|body| !body.same_memory(&one[0])) {
                    return Err(Stop::Failed(Cause::Memory, "after equal results".into()));
                }
            }
        }
        self.record(function, args, result)
    }

    /// Notes what a call has changed.
    fn record(
        &mut self,
        function: usize,
        args: &[Value],
        mut result: Option<Value>,
    ) -> Result<Option<Value>, Stop> {
        let model = self.model.clone();
        match model.functions[function].role {
            Role::Create { resource, parent } => {
                let inner = self.inner();
                if inner.len() == self.bodies.len() {
                    let record = Record {
                        resource,
                        creator: function,
                        args: args.to_vec(),
                        fields: vec![0; model.resources[resource].fields.len()],
                        parent: parent
                            .and_then(|place| args.get(place))
                            .and_then(Value::handle),
                        ..Record::default()
                    };
                    if let Some(key) = model.name_of(function, args) {
                        self.table.name(key, &record, self.epoch);
                    }
                    let handle = self.table.insert(record, self.epoch, inner);
                    replace(&mut result, handle);
                }
            }
            Role::Method { .. } => {
                if let Some(handle) = args.first().and_then(Value::handle) {
                    self.apply(handle, function, args, result.as_ref());
                }
            }
            Role::Terminal { parameter } => {
                if let Some(handle) = args.get(parameter).and_then(Value::handle) {
                    self.forget(handle);
                }
            }
            Role::Free => {
                if let Effect::Remove {
                    resource,
                    name,
                    when,
                } = model.functions[function].effect
                    && when.holds(result.as_ref())
                    && let Some(Value::String(name)) = args.get(name)
                {
                    self.table.names.remove(&(resource, name.clone()));
                }
            }
        }
        Ok(result)
    }

    fn apply(&mut self, handle: Handle, function: usize, args: &[Value], result: Option<&Value>) {
        let model = self.model.clone();
        let key = self.key(handle);
        let number = |place: usize| args.get(place).and_then(Value::number);
        let effect = &model.functions[function].effect;
        if let Effect::Write { when, .. } | Effect::Truncate { when, .. } = effect {
            if let Some(keeper) = self.table.keeper(handle, key.as_ref())
                && when.holds(result)
            {
                keep(keeper, effect, args, result);
            }
            return;
        }
        let Ok(slot) = self.table.slot(handle) else {
            return;
        };
        match &model.functions[function].effect {
            Effect::None => {}
            Effect::State {
                to, when, remember, ..
            } if when.holds(result) => slot.update(|record| {
                record.state = *to;
                let path = &model.resources[record.resource].paths[*to];
                record
                    .remembered
                    .retain(|(f, _)| path.contains(f) && *f != function);
                if path.contains(&function) {
                    let kept = remember
                        .iter()
                        .filter_map(|place| Some((*place, args.get(*place)?.clone())))
                        .collect();
                    record.remembered.push((function, kept));
                }
            }),
            Effect::Field {
                field,
                add,
                source,
                when,
            } if when.holds(result) => {
                let value = match source {
                    Source::Result => result.and_then(Value::number),
                    Source::Param(place) => number(*place),
                };
                slot.update(|record| {
                    let base = if *add { record.fields[*field] } else { 0 };
                    record.fields[*field] = base.wrapping_add(value.unwrap_or(0));
                });
            }
            _ => {}
        }
    }

    fn forget(&mut self, handle: Handle) {
        let ends = self.table.slot(handle).ok().and_then(|s| {
            s.record()
                .ok()
                .map(|r| self.model.resources[r.resource].children_end)
        });
        self.table.remove(handle);
        if ends == Some(true) {
            for child in self.table.handles() {
                let parent = self
                    .table
                    .slot(child)
                    .ok()
                    .and_then(|s| s.record().ok().and_then(|r| r.parent));
                if parent == Some(handle) {
                    self.forget(child);
                }
            }
        }
    }

    fn call(&mut self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        if let Some(gone) = &self.gone {
            return Err(gone.clone());
        }
        self.stats.calls += 1;
        self.check_arguments(function, args)?;
        let mut noticed = None;
        let mut last = Cause::Trap;
        for _ in 0..=self.policy.redo_max {
            match self.attempt(function, args) {
                Ok(result) => {
                    if let Some(noticed) = noticed {
                        sample(&mut self.stats.recovery_ns, noticed);
                    }
                    return Ok(result);
                }
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Failed(cause, detail)) => {
                    noticed.get_or_insert_with(Instant::now);
                    last = cause;
                    self.recover(cause, function, detail)?;
                    if !self.policy.recover {
                        return Err(CallError::Failed {
                            component: self.name.clone(),
                            function: self.model.functions[function].name.clone(),
                            cause,
                        });
                    }
                    if self.policy.eager {
                        self.rebuild_all();
                    }
                }
            }
        }
        let function = self.model.functions[function].name.clone();
        Err(CallError::Poison {
            component: self.name.clone(),
            function,
            attempts: self.policy.redo_max + 1,
            cause: last,
        })
    }

    fn rebuild_all(&mut self) {
        let keys: Vec<_> = self.table.names.keys().cloned().collect();
        for key in keys {
            if let Err(Stop::Failed(cause, detail)) = self.rename(&key) {
                let _ = self.recover(cause, 0, detail);
            }
        }
        for handle in self.table.handles() {
            // One that fails now is tried again when it is used, and its user is told.
            if let Err(Stop::Failed(cause, detail)) = self.rebuild(handle) {
                let _ = self.recover(cause, 0, detail);
            }
        }
    }

    fn discard(&mut self, handle: Handle) -> Result<(), CallError> {
        let epoch = self.epoch;
        let inner = match self.table.slot(handle) {
            Ok(slot) if slot.epoch == epoch => slot.inner.clone(),
            Ok(_) => Vec::new(),
            Err(_) => {
                return Err(CallError::Stale {
                    component: self.name.clone(),
                });
            }
        };
        let mut why = None;
        for (body, inner) in self.bodies.iter_mut().zip(inner) {
            if let Err(failure) = body.discard(inner) {
                why = Some(failed(failure));
            }
        }
        self.forget(handle);
        if let Some(Stop::Failed(cause, detail)) = why {
            self.recover(cause, 0, detail)?;
        }
        Ok(())
    }
}

/// Writes or cuts what the keeper holds, as a call did that succeeded.
fn keep(keeper: &mut Keeper, effect: &Effect, args: &[Value], result: Option<&Value>) {
    let number = |place: usize| {
        args.get(place)
            .and_then(Value::number)
            .and_then(|n| usize::try_from(n).ok())
    };
    match effect {
        Effect::Write { offset, data, .. } => {
            let at = offset.map_or(Some(keeper.length()), number);
            if let (Some(at), Some(Value::Bytes(bytes))) = (at, args.get(*data)) {
                // A result that is a number tells how much of it was written.
                let n = result
                    .and_then(Value::number)
                    .and_then(|n| usize::try_from(n).ok())
                    .unwrap_or(bytes.len());
                keeper.write(at, &bytes[..n.min(bytes.len())]);
            }
        }
        Effect::Truncate { length, .. } => {
            if let Some(length) = number(*length) {
                keeper.truncate(length);
            }
        }
        _ => {}
    }
}

/// Puts a handle where a result names a new object.
fn replace(value: &mut Option<Value>, handle: Handle) {
    fn inside(value: &mut Value, handle: Handle) {
        match value {
            Value::Handle(place) => *place = handle,
            Value::Option(Some(inner)) | Value::Result(Ok(Some(inner))) => inside(inner, handle),
            _ => {}
        }
    }
    if let Some(value) = value {
        inside(value, handle);
    }
}

/// Components and the edges between them.
#[derive(Debug)]
pub struct Host {
    engine: Engine,
    units: BTreeMap<String, Arc<Unit>>,
    edges: AtomicU32,
}

/// What a client holds: it may call what the edge allows, and nothing else.
#[derive(Debug, Clone)]
pub struct Edge {
    from: String,
    unit: Arc<Unit>,
    allowed: Arc<Vec<bool>>,
}

impl Host {
    /// An empty host.
    ///
    /// # Errors
    /// When the pad is asked for and its self-test fails.
    pub fn new(pad: bool) -> Result<Self, LoadError> {
        Ok(Self {
            engine: Engine::new(pad)?,
            units: BTreeMap::new(),
            edges: AtomicU32::new(0),
        })
    }

    /// Its engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Loads and starts a component. `listener` hears of each failure, in the thread that met it.
    ///
    /// # Errors
    /// When its image is refused, or it does not start.
    pub fn add(
        &mut self,
        component: Component,
        listener: Option<Listener>,
    ) -> Result<(), LoadError> {
        let code = Arc::new(self.engine.load(&component.image)?);
        let limits = Limits {
            memory: component.memory_bytes,
            call: component.call_limit,
        };
        let imports: crate::engine::Imports = Arc::new(|_, _| Ok(()));
        let mold = Arc::new(Mold::new(
            &component.name,
            code,
            &component.model,
            &imports,
            component.init.as_deref(),
            limits,
        )?);
        let (first, image) = Body::new(&mold, None)?;
        let image = Arc::new(image);
        let mut bodies = vec![first];
        if component.policy.dual {
            bodies.push(Body::new(&mold, Some(&image))?.0);
        }
        // Every body starts from the image, the first one included: two must not differ by how they were made.
        for body in &mut bodies {
            body.reset(Some(&image)).map_err(|found| LoadError::Start {
                component: component.name.clone(),
                found,
            })?;
        }
        let spare = Arc::new(Mutex::new(None));
        let mut worker = None;
        if component.policy.spare {
            let made = bodies
                .iter()
                .map(|_| Body::new(&mold, Some(&image)).map(|(body, _)| body))
                .collect::<Result<Vec<_>, _>>()?;
            *spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
            let (sender, receiver) = mpsc::channel::<Vec<Body>>();
            let (image, spare) = (image.clone(), spare.clone());
            let refill = move || {
                steadfast_sys::cpu::run_when_idle();
                for mut bodies in receiver {
                    if bodies
                        .iter_mut()
                        .all(|body| body.reset(Some(&image)).is_ok())
                    {
                        *spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(bodies);
                    }
                }
            };
            let spawned = std::thread::Builder::new()
                .name("host-spare".into())
                .spawn(refill);
            spawned.map_err(|source| LoadError::System {
                what: "the thread that prepares spares does not start",
                source,
            })?;
            worker = Some(sender);
        }
        let model = Arc::new(component.model);
        let made = vec![Vec::new(); bodies.len()];
        let core = Core {
            name: component.name.clone(),
            model: model.clone(),
            image,
            bodies,
            table: Table::default(),
            epoch: 1,
            policy: component.policy,
            stats: Stats::default(),
            since_compare: 0,
            recent: VecDeque::new(),
            gone: None,
            spare,
            worker,
            listener,
            made,
        };
        let core = PiMutex::new(core).map_err(|source| LoadError::System {
            what: "locks with priority inheritance are needed",
            source,
        })?;
        self.units.insert(
            component.name.clone(),
            Arc::new(Unit {
                name: component.name,
                model,
                core,
            }),
        );
        Ok(())
    }

    /// An edge from a client to a component; `allow` names functions (`interface#name`), an empty list allows all.
    ///
    /// # Errors
    /// When there is no such component or function.
    pub fn edge(&self, from: &str, to: &str, allow: &[String]) -> Result<Edge, CallError> {
        let none = |function: &str| CallError::NoFunction {
            component: to.into(),
            function: function.into(),
        };
        let unit = self.units.get(to).ok_or_else(|| CallError::NoComponent {
            component: to.into(),
        })?;
        let mut allowed = vec![allow.is_empty(); unit.model.functions.len()];
        for name in allow {
            allowed[unit.model.function(name).ok_or_else(|| none(name))?] = true;
        }
        self.edges.fetch_add(1, Ordering::Relaxed);
        Ok(Edge {
            from: from.into(),
            unit: unit.clone(),
            allowed: Arc::new(allowed),
        })
    }
}

impl Edge {
    /// The place of a function, by `interface#name`.
    ///
    /// # Errors
    /// When there is none, or the edge does not allow it.
    pub fn function(&self, path: &str) -> Result<usize, CallError> {
        let place = self.unit.model.function(path);
        let place = place.ok_or_else(|| CallError::NoFunction {
            component: self.unit.name.clone(),
            function: path.into(),
        })?;
        if self.allowed[place] {
            Ok(place)
        } else {
            Err(self.refuse(place))
        }
    }

    fn refuse(&self, function: usize) -> CallError {
        let function = self
            .unit
            .model
            .functions
            .get(function)
            .map_or_else(|| function.to_string(), |f| f.name.clone());
        CallError::NoEdge {
            from: self.from.clone(),
            to: self.unit.name.clone(),
            function,
        }
    }

    fn reentered(&self) -> CallError {
        CallError::Reentered {
            component: self.unit.name.clone(),
        }
    }

    /// Calls a function. When the component fails meanwhile it is reset, what the arguments name is made again, and the call is repeated.
    ///
    /// # Errors
    /// When the edge does not allow the function, a handle is stale, or the component fails again and again.
    pub fn call(&self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        if !self.allowed.get(function).copied().unwrap_or(false) {
            return Err(self.refuse(function));
        }
        self.unit
            .core
            .lock()
            .map_err(|_| self.reentered())?
            .call(function, args)
    }

    /// Calls a function by its path.
    ///
    /// # Errors
    /// As [`Edge::call`].
    pub fn invoke(&self, path: &str, args: &[Value]) -> Result<Option<Value>, CallError> {
        self.call(self.function(path)?, args)
    }

    /// Gives an object back.
    ///
    /// # Errors
    /// When the handle is stale.
    pub fn discard(&self, handle: Handle) -> Result<(), CallError> {
        self.unit
            .core
            .lock()
            .map_err(|_| self.reentered())?
            .discard(handle)
    }

    /// Resets the component as a failure at this moment would: for tests and for `steadfast host top`.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn reset(&self) -> Result<(), CallError> {
        self.unit
            .core
            .lock()
            .map_err(|_| self.reentered())?
            .recover(Cause::Trap, 0, "asked for".into())
    }

    /// Flips a bit in a component's linear memory, in one body alone, as a faulty cell or cache line would: for tests and campaigns.
    /// False where the body or the address does not exist.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn flip(&self, body: usize, address: usize, bit: u8) -> Result<bool, CallError> {
        let mut core = self.unit.core.lock().map_err(|_| self.reentered())?;
        let body = core.bodies.get_mut(body);
        Ok(body.is_some_and(|body| body.flip(address, bit)))
    }

    /// What happened so far.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn stats(&self) -> Result<Stats, CallError> {
        let core = self.unit.core.lock().map_err(|_| self.reentered())?;
        let mut stats = core.stats.clone();
        stats.objects = core.table.len();
        Ok(stats)
    }

    /// What the memories of the component hold, for a dump.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn memories(&self) -> Result<Vec<Vec<u8>>, CallError> {
        let core = self.unit.core.lock().map_err(|_| self.reentered())?;
        Ok(core.bodies.first().map(Body::memories).unwrap_or_default())
    }

    /// How its objects come back.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.unit.model
    }
}
