//! One incarnation of a component, wherever it runs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use wasmtime::component::ResourceAny;

use crate::engine::{self, Failure, Image, Journal, LoadError, Mold};
use crate::shape::Shape;
use crate::value::{Handle, Value};

/// An object inside a body. Valid until the body is reset.
pub(crate) type Inner = ResourceAny;

/// A body in this process.
pub(crate) struct Body(engine::Body);

impl Body {
    pub(crate) fn new(
        mold: &Arc<Mold>,
        image: Option<&Image>,
        journal: &Arc<Mutex<Journal>>,
    ) -> Result<(Self, Image), LoadError> {
        engine::Body::new(mold, image, journal).map(|(body, image)| (Self(body), image))
    }

    pub(crate) fn reset(&mut self, image: &Image) -> Result<(), String> {
        self.0.reset(Some(image))
    }

    pub(crate) fn call(
        &mut self,
        function: usize,
        args: &[Value],
        inner: &mut dyn FnMut(Handle) -> Option<Inner>,
        result: Option<&Shape>,
        made: &mut Vec<Inner>,
    ) -> Result<Option<Value>, Failure> {
        self.0.call(function, args, inner, result.is_some(), made)
    }

    pub(crate) fn discard(&mut self, inner: Inner) -> Result<(), Failure> {
        self.0.discard(inner)
    }

    pub(crate) fn held(&self) -> BTreeSet<(usize, Handle)> {
        self.0.held()
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    pub(crate) fn flip(&mut self, address: usize, bit: u8) -> bool {
        self.0.flip(address, bit)
    }

    pub(crate) fn memories(&self) -> Image {
        self.0.memories()
    }
}

/// Whether all bodies hold the same memory.
pub(crate) fn same_memory(bodies: &mut [Body]) -> Result<bool, Failure> {
    let (one, rest) = bodies.split_at(1);
    Ok(rest.iter().all(|body| body.0.same_memory(&one[0].0)))
}
