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
//!  4. More failures than the policy allows within its window make the component rest, longer each time, and then end it.
//!  5. A client reaches its own objects alone: a handle of another client is refused.
//!  6. A component calls those alone that were added before it, so no two wait for each other.
//!
//! Not covered: what a component has asked others for is not undone when it fails; its repetition gets the same answers (the journal).

mod bare;
mod check;
mod core;
mod keeping;
mod parts;
mod rebuild;
mod record;
mod upgrade;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use steadfast_sys::inherit::PiMutex;
use steadfast_sys::shared::Shared;

pub use self::bare::Bare;
use self::core::Core;
use self::parts::Parts;
pub use self::upgrade::{UpgradeError, Upgraded};
pub use self::words::{
    BodyDump, CallError, Cause, Counts, Dump, Kept, Listener, Policy, Report, State, Stats,
};
use crate::body::Body;
use crate::engine::{Callee, Engine, LoadError};
use crate::keep;
use crate::model::Model;
use crate::process::Process;
use crate::table::Table;
use crate::value::{Handle, Value};

/// What a component is made from.
#[derive(Clone)]
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
    /// Components that it may call.
    pub uses: Vec<Edge>,
    /// Where it prints, if it imports [`CONSOLE`].
    pub console: Option<Console>,
    /// Runs it in a process of its own.
    pub process: Option<Process>,
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Component")
            .field("name", &self.name)
            .field("image", &self.image)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Where a component's text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Gets each text that a component prints, once.
pub type Console = Arc<dyn Fn(Stream, &str) + Send + Sync>;

/// The interface by which a component prints: `print` and `print-error`, both `func(text: string)`.
pub const CONSOLE: &str = "steadfast:host/console@0.1.0";

/// The interface by which a component says that an assertion of its own failed, which is a failure of the component:
/// `failed: func(text: string)`. Cheaper than a trap, since no signal is involved.
pub const ASSERTION: &str = "steadfast:host/assertion@0.1.0";

/// Enough to find a moment between two calls of a busy client.
const LOOKS: u32 = 10;

/// A component in a host.
pub(crate) struct Unit {
    name: String,
    /// Of the present version, for edges that are made now.
    model: Mutex<Arc<Model>>,
    core: PiMutex<Core>,
    waits: Waits,
    calls: Arc<AtomicU64>,
}

/// Threads that wait for something that calls of others bring about. They wait here, so none is inside a component that fails.
#[derive(Default)]
struct Waits {
    waiting: AtomicU32,
    calls: Mutex<u64>,
    changed: Condvar,
}

impl Waits {
    /// A call has ended.
    fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            *self.calls.lock().unwrap_or_else(PoisonError::into_inner) += 1;
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

/// Components and the edges between them.
#[derive(Debug)]
pub struct Host {
    engine: Engine,
    units: BTreeMap<String, Arc<Unit>>,
    edges: AtomicU32,
    /// Edges that components call by.
    clients: BTreeSet<u32>,
}

/// What a client holds: it may call what the edge allows, and nothing else.
#[derive(Debug, Clone)]
pub struct Edge {
    /// Whose objects it reaches.
    client: u32,
    from: String,
    unit: Arc<Unit>,
    /// Of the version for which it was made; later ones keep its functions in their places.
    model: Arc<Model>,
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
            clients: BTreeSet::new(),
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
        let model = Arc::new(component.model.clone());
        let parts = Parts::new(&self.engine, &component, &model)?;
        let made = vec![Vec::new(); parts.bodies.len()];
        let core = Core {
            name: component.name.clone(),
            whole: vec![1; model.resources.len()],
            model: model.clone(),
            image: parts.image,
            bodies: parts.bodies,
            table: Table::default(),
            epoch: 1,
            policy: component.policy,
            stats: Stats::default(),
            calls: Arc::default(),
            since_compare: 0,
            limits: core::Limits::default(),
            in_a_row: 0,
            kept: None,
            gone: None,
            spare: parts.spare,
            worker: parts.worker,
            listener,
            made,
            imports: parts.imports,
            journal: parts.journal,
        };
        let calls = core.calls.clone();
        let edges = component.uses.iter().map(|edge| edge.client);
        self.clients.extend(edges);
        let core = PiMutex::new(core).map_err(|source| LoadError::System {
            what: "locks with priority inheritance are needed",
            source,
        })?;
        self.units.insert(
            component.name.clone(),
            Arc::new(Unit {
                name: component.name,
                model: Mutex::new(model),
                core,
                waits: Waits::default(),
                calls,
            }),
        );
        Ok(())
    }

    /// Keeps what the next process of the host has to know of these components in memory that it will be given, and goes on with what the last
    /// one has kept there. True where all of them had something; else all begin empty, and old handles are stale. After all edges are made,
    /// in the same order each time, and before the first call. `app` says what makes an application another one.
    ///
    /// # Errors
    /// When there is no such component; when what was kept is damaged, or another application's: then all of it is forgotten, and from now
    /// on it is kept again.
    pub fn keep(&self, app: &str, memories: Vec<(String, [Shared; 2])>) -> Result<bool, LoadError> {
        let edges = self.edges.load(Ordering::SeqCst);
        // Edges of later versions of a component have greater numbers.
        let component = |client| client >= edges || self.clients.contains(&client);
        let mut found = Ok(true);
        let mut kept = Vec::new();
        for (name, areas) in memories {
            let unit = self.units.get(&name);
            let core = unit.and_then(|unit| Some((unit, unit.core.lock().ok()?)));
            let (unit, mut core) = core.ok_or_else(|| LoadError::Kept {
                component: name,
                found: "there is no such component".into(),
            })?;
            let of = keep::Kept::new(areas, app, &keeping::fingerprint(&core.model));
            found = found.and_then(|all| Ok(core.take_over(&of)? && all));
            kept.push((unit, of));
        }
        for (unit, of) in kept {
            if let Ok(mut core) = unit.core.lock() {
                core.keep(of, matches!(found, Ok(true)), component);
            }
        }
        found
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
        let model = unit.model.lock().unwrap_or_else(PoisonError::into_inner);
        let model = model.clone();
        let mut allowed = vec![allow.is_empty(); model.functions.len()];
        for name in allow {
            allowed[model.function(name).ok_or_else(|| none(name))?] = true;
        }
        Ok(Edge {
            client: self.edges.fetch_add(1, Ordering::Relaxed),
            from: from.into(),
            unit: unit.clone(),
            model,
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
        self.unit.waits.wake();
        outcome
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
        let waits = &self.unit.waits;
        waits.waiting.fetch_add(1, Ordering::SeqCst);
        let end = Instant::now() + limit;
        let outcome = loop {
            let before = *waits.calls.lock().unwrap_or_else(PoisonError::into_inner);
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
            let calls = waits.calls.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = end.saturating_duration_since(Instant::now());
            let (calls, timeout) = waits
                .changed
                .wait_timeout_while(calls, rest, |calls| *calls == before)
                .unwrap_or_else(PoisonError::into_inner);
            drop(calls);
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
        self.unit
            .core
            .lock()
            .map_err(|_| self.reentered())?
            .discard(self.client, handle)
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

impl Callee for Edge {
    fn call(&self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        Self::call(self, function, args)
    }

    fn discard(&self, handle: Handle) -> Result<(), CallError> {
        Self::discard(self, handle)
    }
}
