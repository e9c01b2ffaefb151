//! A component as wasmtime alone runs it, called across Stores without stubs: what protection is measured against.
//!
//! Not covered: everything else. A failure ends it, and what it asked others for is not known.

use std::sync::{Arc, Mutex, PoisonError};

use super::component::Component;
use super::parts;
use crate::engine::{Body, Callee, Engine, Failure, Inner, Journal, Limits, LoadError, Mold};
use crate::model::Model;
use crate::value::{Handle, Value};
use crate::words::CallError;

/// One Store, one instance.
pub struct Bare {
    body: Body,
    model: Model,
    objects: Vec<Option<Inner>>,
    free: Vec<u32>,
    made: Vec<Inner>,
}

impl std::fmt::Debug for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bare")
            .field("objects", &self.objects.len())
            .finish_non_exhaustive()
    }
}

/// One that another one calls.
struct Other {
    interfaces: Vec<String>,
    bare: Mutex<Bare>,
}

impl Other {
    fn new(bare: Bare) -> Self {
        Self {
            interfaces: bare.model.interfaces.clone(),
            bare: Mutex::new(bare),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Bare) -> Result<T, Failure>) -> Result<T, CallError> {
        let mut bare = self.bare.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut bare).map_err(|failure| CallError::Asserted {
            text: format!("{failure:?}"),
        })
    }
}

impl Callee for Other {
    fn call(&self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        self.with(|bare| bare.call(function, args))
    }

    fn discard(&self, handle: Handle) -> Result<(), CallError> {
        self.with(|bare| bare.discard(handle))
    }
}

impl Bare {
    /// Loads and starts a component.
    ///
    /// # Errors
    /// When its image is refused, it imports something, or it does not start.
    pub fn new(engine: &Engine, component: &Component) -> Result<Self, LoadError> {
        Self::using(engine, component, Vec::new())
    }

    /// The same for a component that calls others, which are bare as well. Its edges say only what they are called.
    ///
    /// # Errors
    /// As [`Bare::new`].
    pub fn using(
        engine: &Engine,
        component: &Component,
        others: Vec<Self>,
    ) -> Result<Self, LoadError> {
        let code = Arc::new(engine.load(&component.image)?);
        let functions: Vec<_> = component
            .model
            .functions
            .iter()
            .map(|function| (function.interface.clone(), function.name.clone()))
            .collect();
        let limits = Limits {
            memory: component.memory_bytes,
            call: component.call_limit,
        };
        let init = component.init.as_deref();
        let others: Vec<_> = others
            .into_iter()
            .map(|other| Arc::new(Other::new(other)))
            .collect();
        let mut imports = parts::imports(component, &code.wanted())?;
        for import in &mut imports {
            let answers = |other: &&Arc<Other>| other.interfaces.contains(&import.interface);
            if let Some(other) = others.iter().find(answers) {
                import.callee = other.clone();
            }
        }
        let mold = Mold::new(&component.name, code, &functions, &imports, init, limits)?;
        let journal = Arc::new(Mutex::new(Journal::off()));
        let (body, _) = Body::new(&Arc::new(mold), None, &journal)?;
        Ok(Self {
            body,
            model: component.model.clone(),
            objects: Vec::new(),
            free: Vec::new(),
            made: Vec::new(),
        })
    }

    /// The place of a function, by `interface#name`.
    #[must_use]
    pub fn function(&self, path: &str) -> Option<usize> {
        self.model.function(path)
    }

    /// Calls a function.
    ///
    /// # Errors
    /// When it traps.
    pub fn call(&mut self, function: usize, args: &[Value]) -> Result<Option<Value>, Failure> {
        let objects = &self.objects;
        let mut inner = |handle: Handle| objects.get(handle.index as usize).copied().flatten();
        self.made.clear();
        let has_result = self.model.functions[function].result.is_some();
        let mut result =
            self.body
                .call_bare(function, args, &mut inner, has_result, &mut self.made)?;
        if let Some(made) = self.made.first().copied() {
            let index = self.free.pop().unwrap_or_else(|| {
                self.objects.push(None);
                u32::try_from(self.objects.len() - 1).unwrap_or(u32::MAX)
            });
            self.objects[index as usize] = Some(made);
            let handle = Handle {
                index,
                generation: 0,
            };
            super::record::replace(&mut result, handle);
        }
        Ok(result)
    }

    /// Gives an object back.
    ///
    /// # Errors
    /// When its destructor traps, or there is no such object.
    pub fn discard(&mut self, handle: Handle) -> Result<(), Failure> {
        let object = self.objects.get_mut(handle.index as usize);
        let object = object.and_then(Option::take);
        let object = object.ok_or_else(|| Failure::Invalid("a handle names no object".into()))?;
        self.free.push(handle.index);
        self.body.discard_bare(object)
    }

    /// Forgets an object that a call has taken.
    pub fn forget(&mut self, handle: Handle) {
        if self
            .objects
            .get_mut(handle.index as usize)
            .and_then(Option::take)
            .is_some()
        {
            self.free.push(handle.index);
        }
    }

    /// Calls `func(object, u32) -> bool` so often, with types that were checked once. How often it returned true.
    ///
    /// # Errors
    /// When the function has another type, or traps.
    pub fn call_typed(
        &mut self,
        function: usize,
        of: Handle,
        n: u32,
        times: u32,
    ) -> Result<u32, Failure> {
        let object = self.objects.get(of.index as usize).copied().flatten();
        let object = object.ok_or_else(|| Failure::Invalid("a handle names no object".into()))?;
        self.body.call_typed(function, object, n, times)
    }
}
