//! The host: components by name, and the edges that it gives to their clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_sys::inherit::PiMutex;
use steadfast_sys::shared::Shared;

use super::component::Component;
use super::core::{self, Core};
use super::edge::{Edge, Unit, Waits};
use super::parts::Parts;
use super::{idle, keeping};
use crate::engine::{Engine, LoadError};
use crate::keep;
use crate::table::Table;
use crate::words::{CallError, Listener, Stats};

/// Components and the edges between them.
#[derive(Debug)]
pub struct Host {
    pub(super) engine: Engine,
    pub(super) units: BTreeMap<String, Arc<Unit>>,
    pub(super) edges: AtomicU32,
    /// Edges that components call by.
    pub(super) clients: BTreeSet<u32>,
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
            eager: BTreeSet::new(),
            stats: Stats::default(),
            calls: Arc::default(),
            since_compare: 0,
            audit: core::Audit::default(),
            limits: core::Limits::default(),
            in_a_row: 0,
            kept: None,
            fail_once: false,
            gone: None,
            spare: parts.spare,
            worker: parts.worker,
            idle: None,
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
        let unit = Arc::new(Unit {
            name: component.name.clone(),
            model: Mutex::new(model),
            core,
            waits: Waits::default(),
            calls,
        });
        if component.policy.idle {
            let told = idle::start(&unit).map_err(|source| LoadError::System {
                what: "the thread that brings objects back when the machine is idle does not start",
                source,
            })?;
            if let Ok(mut core) = unit.core.lock() {
                core.idle = Some(told);
            }
        }
        self.units.insert(component.name, unit);
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
            keeps: false,
        })
    }
}
