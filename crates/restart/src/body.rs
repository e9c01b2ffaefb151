//! One running incarnation of a component: in this process, or in one of its own.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
use wasmtime::component::ResourceAny;

use crate::engine::{self, Failure, Image, Import, Journal, LoadError, Memories, Mold};
use crate::process::{Process, Remote, Start};
use crate::value::{Handle, Value};
use crate::words::BodyDump;

/// An object inside a body. Valid until the body is reset.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Inner {
    Here(Twice<ResourceAny>),
    /// The number that the process has for it.
    There(Twice<u32>),
}

/// The same object in each body. Few components have more than two, and one that has just been made needs no memory of its own.
pub(crate) type Inners = SmallVec<[Inner; 2]>;

/// What the host's table holds twice: a name of an object that changed by itself would be that of another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Twice<T>(T, T);

impl<T: Copy + PartialEq> Twice<T> {
    fn new(of: T) -> Self {
        Self(of, of)
    }

    fn get(self) -> Option<T> {
        (self.0 == self.1).then_some(self.0)
    }

    /// Both: a fault strikes one of them.
    pub(crate) fn both(&mut self) -> [&mut T; 2] {
        [&mut self.0, &mut self.1]
    }
}

fn changed() -> Failure {
    Failure::Invalid("the slot table's name of an object changed by itself".into())
}

/// Makes bodies of one component.
pub(crate) enum Maker {
    Here(Arc<Mold>),
    There {
        process: Process,
        start: Arc<Start>,
        imports: Vec<Import>,
    },
}

impl Maker {
    /// A body, with the image of its memory if none was taken before. A process keeps its image.
    pub(crate) fn make(
        &self,
        image: Option<&Image>,
        journal: &Arc<Mutex<Journal>>,
    ) -> Result<(Body, Image), LoadError> {
        match self {
            Self::Here(mold) => {
                let (body, image) = engine::Body::new(mold, image, journal)?;
                let body = Body::Here(Box::new(body), Vec::new());
                Ok((body, image))
            }
            Self::There {
                process,
                start,
                imports,
            } => {
                let remote = Remote::new(process, start, imports, journal);
                let remote = remote.map_err(|found| LoadError::Start {
                    component: start.name.clone(),
                    found,
                })?;
                Ok((Body::There(Box::new(remote)), Image::default()))
            }
        }
    }
}

pub(crate) enum Body {
    /// With room for the objects of one call.
    Here(Box<engine::Body>, Vec<ResourceAny>),
    There(Box<Remote>),
}

impl Body {
    /// Calls a function. Handles among the arguments are looked up by `inner`; those in the result are put into `made`, in order.
    pub(crate) fn call(
        &mut self,
        function: usize,
        args: &[Value],
        inner: &mut dyn FnMut(Handle) -> Option<Inner>,
        has_result: bool,
        made: &mut Vec<Inner>,
    ) -> Result<Option<Value>, Failure> {
        match self {
            Self::Here(body, objects) => {
                objects.clear();
                let mut inner = |handle: Handle| match inner(handle)? {
                    Inner::Here(object) => object.get(),
                    Inner::There(_) => None,
                };
                let value = body.call(function, args, &mut inner, has_result, objects);
                made.extend(
                    objects
                        .drain(..)
                        .map(|object| Inner::Here(Twice::new(object))),
                );
                value
            }
            Self::There(remote) => {
                let mut objects = Vec::new();
                let mut inner = |handle: Handle| match inner(handle)? {
                    Inner::There(object) => object.get(),
                    Inner::Here(_) => None,
                };
                let value = remote.call(function, args, &mut inner, has_result, &mut objects);
                made.extend(objects.into_iter().map(|n| Inner::There(Twice::new(n))));
                value
            }
        }
    }

    /// Gives an object back. One of another kind of body is not there any more.
    pub(crate) fn discard(&mut self, inner: Inner) -> Result<(), Failure> {
        match (self, inner) {
            (Self::Here(body, _), Inner::Here(object)) => {
                body.discard(object.get().ok_or_else(changed)?)
            }
            (Self::There(remote), Inner::There(object)) => {
                remote.discard(object.get().ok_or_else(changed)?)
            }
            _ => Ok(()),
        }
    }

    /// As after its start. `anew`: a reset in place was not enough, so a process is replaced.
    pub(crate) fn reset(&mut self, image: &Image, anew: bool) -> Result<(), String> {
        match self {
            Self::Here(body, _) => body.reset(Some(image)),
            Self::There(remote) => remote.reset(anew),
        }
    }

    /// Whether the last reset took a new process.
    pub(crate) fn renewed(&self) -> bool {
        matches!(self, Self::There(remote) if remote.renewed())
    }

    /// How long the last reset spent on linear memory, where that is known.
    pub(crate) fn refilled(&self) -> Duration {
        match self {
            Self::Here(body, _) => body.refilled(),
            Self::There(_) => Duration::ZERO,
        }
    }

    /// Makes it fail by itself, as a crash at this place would.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Here(body, _) => body.kill(),
            Self::There(remote) => remote.kill(),
        }
    }

    /// The process that it has for itself.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Here(..) => None,
            Self::There(remote) => remote.pid(),
        }
    }

    /// Objects of others that it holds.
    pub(crate) fn held(&self) -> BTreeSet<(usize, Handle)> {
        match self {
            Self::Here(body, _) => body.held(),
            Self::There(remote) => remote.held(),
        }
    }

    /// Flips a bit of its memory.
    pub(crate) fn flip(&mut self, address: usize, bit: u8) -> bool {
        match self {
            Self::Here(body, _) => body.flip(address, bit),
            Self::There(remote) => remote.flip(address, bit),
        }
    }

    /// The process that it has for itself, if it has one.
    pub(crate) fn remote(&mut self) -> Option<&mut Remote> {
        match self {
            Self::Here(..) => None,
            Self::There(remote) => Some(remote),
        }
    }

    /// Whether all memories hold the same as another body's: where both lie here bit for bit, else by a checksum that no single flip passes.
    pub(crate) fn same_memory(&mut self, other: &mut Self) -> bool {
        match (self, other) {
            (Self::Here(body, _), Self::Here(other, _)) => body.same_memory(other),
            (Self::There(remote), Self::There(other)) => {
                let digest = remote.digest();
                digest.is_some() && digest == other.digest()
            }
            _ => false,
        }
    }

    /// Where its instructions lie.
    pub(crate) fn text(&self) -> Range<u64> {
        match self {
            Self::Here(body, _) => body.text(),
            Self::There(remote) => remote.text(),
        }
    }

    /// What it held when it failed.
    pub(crate) fn dump(&mut self) -> BodyDump {
        match self {
            Self::Here(body, _) => body.dump(),
            Self::There(remote) => remote.dump(),
        }
    }

    /// Copies of its memories.
    pub(crate) fn memories(&mut self) -> Memories {
        match self {
            Self::Here(body, _) => body.memories(),
            Self::There(remote) => remote.memories(),
        }
    }
}
