//! An edge: what a client holds, and the only way to a component.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use steadfast_sys::inherit::PiMutex;

use super::core::Core;
use crate::body::Body;
use crate::engine::{self, Callee, Numbers};
use crate::model::Model;
use crate::value::{Handle, Value};
use crate::words::{CallError, Cause, Counts, Stats};

/// Enough to find a moment between two calls of a busy client.
const LOOKS: u32 = 10;

/// A component in a host.
pub(crate) struct Unit {
    pub(super) name: String,
    /// Of the present version, for edges that are made now.
    pub(super) model: Mutex<Arc<Model>>,
    pub(super) core: PiMutex<Core>,
    pub(super) waits: Waits,
    pub(super) calls: Arc<AtomicU64>,
}

/// Threads that wait for something that calls of others bring about. They wait here, so none is inside a component that fails.
#[derive(Default)]
pub(super) struct Waits {
    waiting: AtomicU32,
    ended: Mutex<Ended>,
    changed: Condvar,
}

/// How many calls have ended, and how many of them may end a wait that the sidecar file tells of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Ended {
    all: u64,
    waking: u64,
}

impl Waits {
    /// A call has ended; `waking` says whether it may end a wait. Asked only where somebody waits.
    pub(super) fn wake(&self, waking: impl FnOnce() -> bool) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let waking = waking();
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.all += 1;
            ended.waking += u64::from(waking);
            drop(ended);
            self.changed.notify_all();
        }
    }
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What a client holds: it may call what the edge allows, and nothing else.
#[derive(Debug, Clone)]
pub struct Edge {
    /// Whose objects it reaches.
    pub(super) client: u32,
    pub(super) from: String,
    pub(super) unit: Arc<Unit>,
    /// Of the version for which it was made; later ones keep its functions in their places.
    pub(super) model: Arc<Model>,
    pub(super) allowed: Arc<Vec<bool>>,
    /// What its component holds there outlives that component's failure.
    pub(super) keeps: bool,
}

impl Edge {
    /// The same, for a component whose objects there outlive its failure: each is given to the object that it was for, when that comes back
    /// and asks the same again, and given back when that ends. Otherwise they are given back at once, and asked for anew.
    #[must_use]
    pub fn keeping(self) -> Self {
        Self {
            keeps: true,
            ..self
        }
    }

    /// The same, for a client whose objects come back at once after a failure, in the thread that met it: whoever calls next pays for them.
    /// The objects of others come back when they are used, as the policy says.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn eagerly(self) -> Result<Self, CallError> {
        let core = self.unit.core.lock().map_err(|_| self.reentered());
        core?.eager.insert(self.client);
        Ok(self)
    }

    /// The place of a function, by `interface#name`.
    ///
    /// # Errors
    /// When there is none, or the edge does not allow it.
    pub fn function(&self, path: &str) -> Result<usize, CallError> {
        let place = self.model.function(path);
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
        let outcome =
            self.unit
                .core
                .lock()
                .map_err(|_| self.reentered())?
                .call(self.client, function, args);
        // By the present version: the edge may be of an older one. An error may be the last that is heard of the component.
        if outcome.is_err() {
            self.unit.waits.wake(|| true);
        } else {
            self.woken(function);
        }
        outcome
    }

    /// A call of that function has ended.
    fn woken(&self, function: usize) {
        self.unit.waits.wake(|| {
            let model = self.unit.model.lock();
            let model = model.unwrap_or_else(PoisonError::into_inner);
            model.functions.get(function).is_none_or(|f| f.wakes)
        });
    }

    /// Calls a function now, and again after calls of others, until `ready` holds for its result. None where that takes longer than `limit`.
    ///
    /// The thread waits in the host, not in the component: a reset meanwhile loses no wait. What a waiter looks for must be a state that
    /// lasts, such as a count, and not a moment.
    ///
    /// # Errors
    /// As [`Edge::call`].
    pub fn wait(
        &self,
        function: usize,
        args: &[Value],
        limit: Duration,
        ready: impl Fn(&Option<Value>) -> bool,
    ) -> Result<Option<Option<Value>>, CallError> {
        self.wait_for(function, args, limit, ready, |ended| ended.all)
    }

    /// Calls a function that blocks, as the sidecar file tells (`until`, `woken_by`): now, and again after each call that may end its wait,
    /// until it has what it waits for. None where that takes longer than `limit`. A function that does not block is called once.
    ///
    /// The wait is counted, so a call between a try and the wait is not missed, and neither is one that a failure repeats.
    ///
    /// # Errors
    /// As [`Edge::call`].
    pub fn until(
        &self,
        function: usize,
        args: &[Value],
        limit: Duration,
    ) -> Result<Option<Option<Value>>, CallError> {
        let wait = self.model.functions.get(function);
        let Some(until) = wait.and_then(|f| f.wait.as_ref()).map(|wait| wait.until) else {
            return self.call(function, args).map(Some);
        };
        let over = |value: &Option<Value>| until.holds(value.as_ref());
        let outcome = self.wait_for(function, args, limit, over, |ended| ended.waking);
        // It may be what others wait for: a lock that was taken is one that can be given back.
        self.woken(function);
        outcome
    }

    fn wait_for(
        &self,
        function: usize,
        args: &[Value],
        limit: Duration,
        ready: impl Fn(&Option<Value>) -> bool,
        count: impl Fn(&Ended) -> u64,
    ) -> Result<Option<Option<Value>>, CallError> {
        let waits = &self.unit.waits;
        waits.waiting.fetch_add(1, Ordering::SeqCst);
        let end = Instant::now() + limit;
        let outcome = loop {
            let before = count(&waits.ended.lock().unwrap_or_else(PoisonError::into_inner));
            // Not `call`, which would wake the other waiters for nothing: a look changes nothing.
            let looked = if self.allowed.get(function).copied().unwrap_or(false) {
                let core = self.unit.core.lock();
                core.map_err(|_| self.reentered())
                    .and_then(|mut core| core.call(self.client, function, args))
            } else {
                Err(self.refuse(function))
            };
            match looked {
                Err(error) => break Err(error),
                Ok(value) if ready(&value) => break Ok(Some(value)),
                Ok(_) => {}
            }
            let ended = waits.ended.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = end.saturating_duration_since(Instant::now());
            let (ended, timeout) = waits
                .changed
                .wait_timeout_while(ended, rest, |ended| count(ended) == before)
                .unwrap_or_else(PoisonError::into_inner);
            drop(ended);
            if timeout.timed_out() {
                break Ok(None);
            }
        };
        waits.waiting.fetch_sub(1, Ordering::SeqCst);
        outcome
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
        let outcome = self
            .unit
            .core
            .lock()
            .map_err(|_| self.reentered())?
            .discard(self.client, handle);
        // What an object held is free again.
        self.unit.waits.wake(|| true);
        outcome
    }

    /// Whose component it leads to.
    #[must_use]
    pub fn to(&self) -> &str {
        &self.unit.name
    }

    /// Resets the component as a failure at this moment would: for tests and for `steadfast host top`.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn reset(&self) -> Result<(), CallError> {
        let mut core = self.unit.core.lock().map_err(|_| self.reentered())?;
        core.recover(Cause::Asked, None, "asked for".into())?;
        core.rebuild_eagerly();
        Ok(())
    }

    /// Makes the next call fail once, at its return: the component has done its work, and nothing of it is noted. For tests.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn fail_once(&self) -> Result<(), CallError> {
        self.unit
            .core
            .lock()
            .map_err(|_| self.reentered())?
            .fail_once = true;
        Ok(())
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

    /// Flips a bit of what the host remembers of this component's objects, behind all checksums: for tests and campaigns. `draw` gives numbers
    /// below the one that it is given. False where nothing lies at the place that was drawn.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn flip_record(&self, draw: &mut dyn FnMut(u64) -> u64) -> Result<bool, CallError> {
        let mut core = self.unit.core.lock().map_err(|_| self.reentered())?;
        Ok(core.table.flip(draw))
    }

    /// What happened so far.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn stats(&self) -> Result<Stats, CallError> {
        let core = self.unit.core.lock().map_err(|_| self.reentered())?;
        let mut stats = core.stats.clone();
        stats.objects = core.table.len();
        stats.calls = self.calls();
        Ok(stats)
    }

    /// How many calls were asked for so far, without waiting for the one that is under way.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.unit.calls.load(Ordering::Relaxed)
    }

    /// What happened so far, without waiting: none where every one of a few looks meets a call.
    #[must_use]
    pub fn look(&self) -> Option<Counts> {
        for look in 0..LOOKS {
            if look > 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
            if let Some(core) = self.unit.core.try_lock() {
                return Some(core.counts());
            }
        }
        None
    }

    /// Flips a bit of a general register of one body's own process, once it stands in the component's code: for campaigns. False where that
    /// body has no process of its own.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn strike(&self, body: usize, register: u32, bit: u32) -> Result<bool, CallError> {
        let mut core = self.unit.core.lock().map_err(|_| self.reentered())?;
        let remote = core.bodies.get_mut(body).and_then(Body::remote);
        Ok(remote.is_some_and(|remote| remote.strike(register, bit)))
    }

    /// Where the component's instructions lie, in its own process if it has one.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn text(&self) -> Result<std::ops::Range<u64>, CallError> {
        let core = self.unit.core.lock().map_err(|_| self.reentered())?;
        Ok(core.bodies.first().map(Body::text).unwrap_or_default())
    }

    /// Whether the flip that was armed last was made, or the process that was to make it is gone.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn struck(&self, body: usize) -> Result<bool, CallError> {
        let mut core = self.unit.core.lock().map_err(|_| self.reentered())?;
        let remote = core.bodies.get_mut(body).and_then(Body::remote);
        Ok(remote.is_none_or(|remote| remote.struck().unwrap_or(true)))
    }

    /// What the memories of the component hold, for a dump.
    ///
    /// # Errors
    /// When called from within the component.
    pub fn memories(&self) -> Result<Vec<Vec<u8>>, CallError> {
        let mut core = self.unit.core.lock().map_err(|_| self.reentered())?;
        Ok(core
            .bodies
            .first_mut()
            .map(Body::memories)
            .unwrap_or_default())
    }

    /// How its objects come back.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }
}

/// What components of another program hold of a component, by the edge that its linker was given.
#[derive(Debug)]
pub struct Linked {
    edge: Edge,
    held: Numbers,
}

impl Linked {
    /// Gives back what the program's components hold: when their Store is thrown away, because they trapped or are done.
    pub fn release(&self) {
        for handle in engine::take_all(&self.held) {
            // Whoever is gone has nothing to give back.
            let _ = self.edge.discard(handle);
        }
    }
}

impl Edge {
    /// Answers the component's interfaces in a linker of the program's own, whose components then import them as those of any other one, and
    /// keep their handles when it fails. One linker for each client: what it holds is told apart by the edge.
    ///
    /// # Errors
    /// When the linker has such an interface already.
    pub fn link<T: 'static>(
        &self,
        linker: &mut wasmtime::component::Linker<T>,
    ) -> wasmtime::Result<Linked> {
        let held = Numbers::default();
        let answers: Arc<dyn Callee> = Arc::new(self.clone());
        engine::link(linker, &self.model, &self.allowed, &answers, &held)?;
        Ok(Linked {
            edge: self.clone(),
            held,
        })
    }
}

impl Callee for Edge {
    fn call(&self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        Self::call(self, function, args)
    }

    fn discard(&self, handle: Handle) -> Result<(), CallError> {
        Self::discard(self, handle)
    }
}
