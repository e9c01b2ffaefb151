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
mod rebuild;
mod record;
mod words;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use steadfast_sys::inherit::PiMutex;

pub use self::bare::Bare;
use self::core::Core;
pub use self::words::{CallError, Cause, Listener, Policy, Report, Stats};
use crate::engine::{
    Body, Callee, Engine, Import, ImportFunction, Journal, Limits, LoadError, Mold, Wanted,
};
use crate::model::{Model, Role};
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

/// Gets each text that a component prints, once.
pub type Console = Arc<dyn Fn(&str) + Send + Sync>;

/// The interface by which a component prints: `print: func(text: string)`.
pub const CONSOLE: &str = "steadfast:host/console@0.1.0";

/// The interface by which a component says that an assertion of its own failed, which is a failure of the component:
/// `failed: func(text: string)`. Cheaper than a trap, since no signal is involved.
pub const ASSERTION: &str = "steadfast:host/assertion@0.1.0";

struct Asserts;

impl Callee for Asserts {
    fn call(&self, _: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        let text = match args.first() {
            Some(Value::String(text)) => text.clone(),
            _ => String::new(),
        };
        Err(CallError::Asserted { text })
    }

    fn discard(&self, _: Handle) -> Result<(), CallError> {
        Ok(())
    }
}

struct Printer(Console);

impl Callee for Printer {
    fn call(&self, _: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        if let Some(Value::String(text)) = args.first() {
            (self.0)(text);
        }
        Ok(None)
    }

    fn discard(&self, _: Handle) -> Result<(), CallError> {
        Ok(())
    }
}

/// Who answers what a component imports: an edge, the console, or whoever hears assertions; anything else is refused by name.
fn imports(component: &Component, wanted: &[Wanted]) -> Result<Vec<Import>, LoadError> {
    let lacks = |found: String| LoadError::Import {
        component: component.name.clone(),
        found,
    };
    let mut imports = Vec::new();
    for wanted in wanted {
        let interface = wanted.interface.clone();
        let own: Option<(&str, Arc<dyn Callee>)> = match (&*interface, &component.console) {
            (CONSOLE, Some(console)) => Some(("print", Arc::new(Printer(console.clone())))),
            (ASSERTION, _) => Some(("failed", Arc::new(Asserts))),
            _ => None,
        };
        if let Some((only, callee)) = own {
            let function = |name: &String| ImportFunction {
                name: name.clone(),
                place: 0,
                gives: None,
            };
            if wanted.functions.iter().any(|name| name != only) {
                return Err(lacks(format!("{interface} has {only} alone")));
            }
            imports.push(Import {
                interface,
                functions: wanted.functions.iter().map(function).collect(),
                resources: Vec::new(),
                callee,
            });
            continue;
        }
        let edge = component
            .uses
            .iter()
            .find(|edge| edge.unit.model.interfaces.contains(&interface))
            .ok_or_else(|| lacks(interface.clone()))?;
        let model = &edge.unit.model;
        let mut functions = Vec::new();
        for name in &wanted.functions {
            let place = edge
                .function(&format!("{interface}#{name}"))
                .map_err(|error| lacks(error.to_string()))?;
            let gives = match model.functions[place].role {
                Role::Create { resource, .. } => {
                    let resource = &model.resources[resource];
                    let there = wanted.resources.iter().position(|r| *r == resource.name);
                    if resource.interface != interface || there.is_none() {
                        return Err(lacks(format!(
                            "{interface}#{name} gives an object of another interface, which is not supported"
                        )));
                    }
                    there
                }
                _ => None,
            };
            functions.push(ImportFunction {
                name: name.clone(),
                place,
                gives,
            });
        }
        imports.push(Import {
            interface,
            functions,
            resources: wanted.resources.clone(),
            callee: Arc::new(edge.clone()),
        });
    }
    Ok(imports)
}

/// A component in a host.
pub(crate) struct Unit {
    name: String,
    model: Arc<Model>,
    core: PiMutex<Core>,
    waits: Waits,
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
}

/// What a client holds: it may call what the edge allows, and nothing else.
#[derive(Debug, Clone)]
pub struct Edge {
    /// Whose objects it reaches.
    client: u32,
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
        let imports = imports(&component, &code.wanted())?;
        let journal = Arc::new(Mutex::new(Journal::new(component.policy.dual)));
        let functions: Vec<_> = component
            .model
            .functions
            .iter()
            .map(|function| (function.interface.clone(), function.name.clone()))
            .collect();
        let mold = Arc::new(Mold::new(
            &component.name,
            code,
            &functions,
            &imports,
            component.init.as_deref(),
            limits,
        )?);
        let (first, image) = Body::new(&mold, None, &journal)?;
        let image = Arc::new(image);
        let mut bodies = vec![first];
        if component.policy.dual {
            bodies.push(Body::new(&mold, Some(&image), &journal)?.0);
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
                .map(|_| Body::new(&mold, Some(&image), &journal).map(|(body, _)| body))
                .collect::<Result<Vec<_>, _>>()?;
            *spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
            let (sender, receiver) = mpsc::channel::<Vec<Body>>();
            let (image, spare) = (image.clone(), spare.clone());
            let refill = move || {
                steadfast_sys::cpu::run_when_idle();
                for mut bodies in receiver {
                    // A second fault here costs a try, not the spare.
                    let mut ready =
                        |body: &mut Body| (0..3).any(|_| body.reset(Some(&image)).is_ok());
                    if bodies.iter_mut().all(&mut ready) {
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
            whole: vec![1; model.resources.len()],
            model: model.clone(),
            image,
            bodies,
            table: Table::default(),
            epoch: 1,
            policy: component.policy,
            stats: Stats::default(),
            since_compare: 0,
            limits: core::Limits::default(),
            gone: None,
            spare,
            worker,
            listener,
            made,
            imports,
            journal,
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
                waits: Waits::default(),
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
        Ok(Edge {
            client: self.edges.fetch_add(1, Ordering::Relaxed),
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

impl Callee for Edge {
    fn call(&self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        Self::call(self, function, args)
    }

    fn discard(&self, handle: Handle) -> Result<(), CallError> {
        Self::discard(self, handle)
    }
}
