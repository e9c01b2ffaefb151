//! One running incarnation of a component, and how it is made.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use steadfast_sys::pad;
use steadfast_sys::step::Passage;
use wasmtime::Store;
use wasmtime::component::{
    ComponentExportIndex, Func, Instance, InstancePre, Linker, ResourceAny, Val,
};

use super::error::LoadError;
use super::imports::{self, Context, Import, Journal, Nested};
use super::load::Code;
use super::quick::{self, Quick};
use super::value::{from_val, to_val};
use super::{memory, watch};
use crate::value::{Handle, Value};
use crate::words::{BodyDump, CallError};

/// Why a call did not return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A signal that the pad turned into a trap.
    Pad(Box<pad::Seen>),
    /// A trap that the runtime knows: an assertion, a bounds check.
    Trap(String),
    /// It computed too long; where it stood.
    Hang(u64),
    /// What it returned is no value of its type.
    Invalid(String),
    /// A second body asked other components for something else.
    Differs(String),
    /// A component that it called has no answer.
    Callee(Box<CallError>),
    /// The process that it runs in has ended, or does not speak as it must.
    Ended(String),
}

impl From<Nested> for Failure {
    fn from(nested: Nested) -> Self {
        match nested {
            Nested::Callee(error) => Self::Callee(Box::new(error)),
            Nested::Differs(what) => Self::Differs(what),
            other => Self::Invalid(other.to_string()),
        }
    }
}

/// Limits of one component.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of linear memory.
    pub memory: usize,
    /// How long one call may take.
    pub call: Duration,
}

/// A component and how it is made: shared by its bodies.
pub(crate) struct Mold {
    pub(crate) name: String,
    pre: InstancePre<Context>,
    exports: Vec<ComponentExportIndex>,
    /// How each function is called where its types are known here; looked up once.
    quick: Vec<OnceLock<Option<Quick>>>,
    init: Option<ComponentExportIndex>,
    pub(crate) code: Arc<Code>,
    limits: Limits,
}

impl Mold {
    pub(crate) fn new(
        name: &str,
        code: Arc<Code>,
        functions: &[(String, String)],
        imports: &[Import],
        init: Option<&str>,
        limits: Limits,
    ) -> Result<Self, LoadError> {
        let mut linker = Linker::new(&code.engine.engine);
        let lacks = |found: String| LoadError::Import {
            component: name.into(),
            found,
        };
        imports::link(&mut linker, imports).map_err(|error| lacks(format!("{error:#}")))?;
        let pre = linker
            .instantiate_pre(&code.component)
            .map_err(|error| lacks(format!("{error:#}")))?;
        let lookup = |interface: &str, function: &str| {
            let outer = code.component.get_export_index(None, interface);
            outer
                .and_then(|outer| code.component.get_export_index(Some(&outer), function))
                .ok_or_else(|| LoadError::Export {
                    component: name.into(),
                    interface: interface.into(),
                    function: function.into(),
                })
        };
        let exports = functions
            .iter()
            .map(|(interface, name)| lookup(interface, name))
            .collect::<Result<Vec<_>, _>>()?;
        let init = match init {
            None => None,
            Some(init) => Some(code.component.get_export_index(None, init).ok_or_else(|| {
                LoadError::Export {
                    component: name.into(),
                    interface: "the world".into(),
                    function: init.into(),
                }
            })?),
        };
        Ok(Self {
            name: name.into(),
            pre,
            quick: exports.iter().map(|_| OnceLock::new()).collect(),
            exports,
            init,
            code: code.clone(),
            limits,
        })
    }
}

/// What the memories hold.
pub(crate) type Memories = Vec<Vec<u8>>;

/// What the memories held after `init`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    memories: Memories,
    /// Of each, what `init` has changed: the rest is as an instantiation leaves it, and need not be copied after one.
    changed: Vec<Vec<Range<usize>>>,
}

/// In pieces of this size an image is compared with what an instantiation leaves.
const PIECE: usize = 4096;

impl Image {
    /// Of memories after `init`, and before it; none where there was no `init`.
    fn new(memories: Memories, before: Option<&Memories>) -> Self {
        let changed = |(which, after): (usize, &Vec<u8>)| {
            let Some(before) = before else {
                return Vec::new();
            };
            let before = before.get(which).map_or(&[][..], Vec::as_slice);
            let pieces = (0..after.len()).step_by(PIECE);
            let pieces = pieces.map(|at| at..after.len().min(at + PIECE));
            let differs = |piece: &Range<usize>| match before.get(piece.clone()) {
                Some(before) => *before != after[piece.clone()],
                // Grown by `init`: it reads as zero where nothing was written.
                None => after[piece.clone()].iter().any(|byte| *byte != 0),
            };
            pieces.filter(differs).collect()
        };
        Self {
            changed: memories.iter().enumerate().map(changed).collect(),
            memories,
        }
    }
}

struct Live {
    store: Store<Context>,
    instance: Instance,
    funcs: Vec<Option<Func>>,
}

impl Live {
    /// A function, looked up once.
    fn func(&mut self, mold: &Mold, function: usize) -> Result<Func, Failure> {
        if let Some(func) = self.funcs[function] {
            return Ok(func);
        }
        let found = self
            .instance
            .get_func(&mut self.store, mold.exports[function]);
        let func = found.ok_or_else(|| Failure::Invalid("a function has disappeared".into()))?;
        self.funcs[function] = Some(func);
        Ok(func)
    }
}

/// An object inside a body. Valid until the body is reset.
pub(crate) type Inner = ResourceAny;

/// One running incarnation of a component, in this process.
pub(crate) struct Body {
    mold: Arc<Mold>,
    journal: Arc<Mutex<Journal>>,
    regions: memory::Regions,
    live: Option<Live>,
    watch: watch::Cell,
    /// For the arguments of a call.
    room: Vec<Val>,
    /// The signal that ended it.
    seen: Option<pad::Seen>,
}

impl Body {
    /// A body, with the image of its memory if none was taken before.
    pub(crate) fn new(
        mold: &Arc<Mold>,
        image: Option<&Image>,
        journal: &Arc<Mutex<Journal>>,
    ) -> Result<(Self, Image), LoadError> {
        let regions = memory::Regions {
            limit: mold.limits.memory,
            ..memory::Regions::default()
        };
        let mut body = Self {
            mold: mold.clone(),
            journal: journal.clone(),
            regions,
            live: None,
            watch: watch::Cell::new(mold.limits.call),
            room: Vec::new(),
            seen: None,
        };
        let starts = |found: String| LoadError::Start {
            component: mold.name.clone(),
            found,
        };
        body.reset(image).map_err(starts)?;
        if let Some(image) = image {
            return Ok((body, image.clone()));
        }
        let before = mold.init.is_some().then(|| body.memories());
        if let Some(init) = &mold.init {
            let live = body
                .live
                .as_mut()
                .ok_or_else(|| starts("no instance".into()))?;
            let func = live
                .instance
                .get_func(&mut live.store, init)
                .ok_or_else(|| starts("no init".into()))?;
            live.store.data_mut().starting = true;
            let _inside = pad::Inside::enter();
            body.watch.begin();
            let done = func.call(&mut live.store, &[], &mut []);
            body.watch.end();
            let seen = pad::take_seen();
            done.map_err(|error| match seen {
                Some(seen) if seen.signal == pad::BREAKER => {
                    starts("it computed for too long in its init function".into())
                }
                _ => starts(format!("{error:#}")),
            })?;
            live.store.data_mut().starting = false;
        }
        let image = Image::new(body.memories(), before.as_ref());
        Ok((body, image))
    }

    /// A new Store and instance in the same memory.
    pub(crate) fn reset(&mut self, image: Option<&Image>) -> Result<(), String> {
        (self.live, self.seen) = (None, None);
        let context = Context::new(self.journal.clone(), self.watch.clone());
        let mut store = Store::new(&self.mold.code.engine.engine, context);
        let mut regions = std::mem::take(&mut self.regions);
        regions.sizes.clear();
        regions.spent = Duration::ZERO;
        let held = image.iter().flat_map(|image| &image.memories);
        regions.sizes.extend(held.map(Vec::len));
        let (regions, made) = memory::with(regions, || {
            let _inside = pad::Inside::enter();
            self.watch.begin();
            let made = self.mold.pre.instantiate(&mut store);
            self.watch.end();
            made
        });
        self.regions = regions;
        // What a fault at this point has left is told by the error.
        let _ = pad::take_seen();
        store.data_mut().starting = false;
        let instance = made.map_err(|error| format!("{error:#}"))?;
        let begin = Instant::now();
        let image = image
            .iter()
            .flat_map(|of| of.memories.iter().zip(&of.changed));
        for (region, (bytes, changed)) in self.regions.all.iter().zip(image) {
            for piece in changed {
                memory::held(region).bytes_mut()[piece.clone()]
                    .copy_from_slice(&bytes[piece.clone()]);
            }
        }
        self.regions.spent += begin.elapsed();
        let funcs = vec![None; self.mold.exports.len()];
        self.live = Some(Live {
            store,
            instance,
            funcs,
        });
        Ok(())
    }

    /// How long the last reset spent on linear memory.
    pub(crate) fn refilled(&self) -> Duration {
        self.regions.spent
    }

    /// Makes it fail by itself, as a crash at this place would.
    pub(crate) fn kill(&mut self) {
        self.live = None;
    }

    /// Calls a function. Handles among the arguments are looked up by `inner`; those in the result are put into `made`, in order.
    pub(crate) fn call(
        &mut self,
        function: usize,
        args: &[Value],
        inner: &mut dyn FnMut(Handle) -> Option<ResourceAny>,
        has_result: bool,
        made: &mut Vec<ResourceAny>,
    ) -> Result<Option<Value>, Failure> {
        let Some(live) = self.live.as_mut() else {
            return Err(Failure::Trap("the component has been stopped".into()));
        };
        let func = live.func(&self.mold, function)?;
        let quick = self.mold.quick[function].get_or_init(|| quick::known(func, &live.store));
        let none = || Failure::Invalid("an argument names no object".into());
        let params = &mut self.room;
        params.clear();
        if quick.is_none() {
            for arg in args {
                params.push(to_val(arg, inner).ok_or_else(none)?);
            }
        }
        let mut results = [Val::Bool(false)];
        let results = &mut results[..usize::from(has_result)];
        let outcome = {
            let _inside = pad::Inside::enter();
            self.watch.begin();
            let passage = Passage::begin(self.mold.code.text.start);
            let outcome = match quick {
                Some(quick) => quick(func, &mut live.store, args, inner, made),
                None => Some(func.call(&mut live.store, params, results).map(|()| None)),
            };
            drop(passage);
            self.watch.end();
            outcome.ok_or_else(none)?
        };
        match outcome {
            Ok(given @ Some(_)) => Ok(given),
            Ok(None) => match results.first().filter(|_| quick.is_none()) {
                None => Ok(None),
                Some(value) => from_val(value, made)
                    .map(Some)
                    .ok_or_else(|| Failure::Invalid("a result of an unknown kind".into())),
            },
            Err(error) => {
                let seen = pad::take_seen();
                Err(match seen {
                    Some(seen) => self.failure_of(seen),
                    None if error.downcast_ref::<Nested>().is_some() => nested(&error),
                    None if error.downcast_ref::<wasmtime::Trap>().is_some() => {
                        Failure::Trap(error.root_cause().to_string())
                    }
                    None => Failure::Invalid(error.root_cause().to_string()),
                })
            }
        }
    }

    /// A call as wasmtime makes it, without pad, watch and reasons: what [`Body::call`] is measured against.
    pub(crate) fn call_bare(
        &mut self,
        function: usize,
        args: &[Value],
        inner: &mut dyn FnMut(Handle) -> Option<ResourceAny>,
        has_result: bool,
        made: &mut Vec<ResourceAny>,
    ) -> Result<Option<Value>, Failure> {
        let invalid = |error: wasmtime::Error| Failure::Invalid(error.root_cause().to_string());
        let live = self.live.as_mut();
        let live = live.ok_or_else(|| Failure::Trap("the component has been stopped".into()))?;
        let func = live.func(&self.mold, function)?;
        let params: Option<Vec<Val>> = args.iter().map(|arg| to_val(arg, inner)).collect();
        let params =
            params.ok_or_else(|| Failure::Invalid("an argument names no object".into()))?;
        let mut results = [Val::Bool(false)];
        let results = &mut results[..usize::from(has_result)];
        func.call(&mut live.store, &params, results)
            .map_err(invalid)?;
        Ok(results.first().and_then(|value| from_val(value, made)))
    }

    /// The same with types that were checked before, `func(object, u32) -> bool`: the cheapest call that wasmtime has.
    pub(crate) fn call_typed(
        &mut self,
        function: usize,
        of: ResourceAny,
        n: u32,
        times: u32,
    ) -> Result<u32, Failure> {
        let invalid = |error: wasmtime::Error| Failure::Invalid(error.root_cause().to_string());
        let live = self.live.as_mut();
        let live = live.ok_or_else(|| Failure::Trap("the component has been stopped".into()))?;
        let func = live.func(&self.mold, function)?;
        let typed = func
            .typed::<(ResourceAny, u32), (bool,)>(&live.store)
            .map_err(invalid)?;
        let mut held = 0;
        for _ in 0..times {
            let (taken,) = typed.call(&mut live.store, (of, n)).map_err(invalid)?;
            held += u32::from(taken);
        }
        Ok(held)
    }

    /// Gives an object back as wasmtime does.
    pub(crate) fn discard_bare(&mut self, inner: ResourceAny) -> Result<(), Failure> {
        let invalid = |error: wasmtime::Error| Failure::Invalid(error.root_cause().to_string());
        match self.live.as_mut() {
            None => Ok(()),
            Some(live) => inner.resource_drop(&mut live.store).map_err(invalid),
        }
    }

    /// Gives an object back.
    pub(crate) fn discard(&mut self, inner: ResourceAny) -> Result<(), Failure> {
        let Some(live) = self.live.as_mut() else {
            return Ok(());
        };
        let outcome = {
            let _inside = pad::Inside::enter();
            self.watch.begin();
            let outcome = inner.resource_drop(&mut live.store);
            self.watch.end();
            outcome
        };
        outcome.map_err(|error| match pad::take_seen() {
            Some(seen) => self.failure_of(seen),
            None if error.downcast_ref::<Nested>().is_some() => nested(&error),
            None => Failure::Trap(error.root_cause().to_string()),
        })
    }

    /// What a signal in a call means. The pad diverts planned traps as well, since only the runtime could tell them apart in the handler.
    fn failure_of(&mut self, seen: pad::Seen) -> Failure {
        self.seen = Some(seen);
        let text = self.mold.code.component.text();
        let start = self.mold.code.text.start;
        let at = |n: u64| {
            let place = usize::try_from(seen.rip.checked_sub(start)? + n).ok()?;
            text.get(place).copied()
        };
        let in_memory = self.regions.all.iter().any(|region| {
            let region = memory::held(region);
            let base = region.base() as u64;
            (base..base + region.reserved() as u64).contains(&seen.address)
        });
        match seen.signal {
            pad::BREAKER => Failure::Hang(seen.rip),
            // ud2: where the compiler put an assertion or a check.
            libc::SIGILL if at(0) == Some(0x0f) && at(1) == Some(0x0b) => Failure::Trap(format!(
                "a check of the code at {:#x} failed",
                seen.rip - start
            )),
            libc::SIGFPE if at(0).is_some() => {
                Failure::Trap(format!("a division at {:#x} failed", seen.rip - start))
            }
            libc::SIGSEGV if at(0).is_some() && in_memory => Failure::Trap(format!(
                "an access at {:#x} was out of bounds",
                seen.rip - start
            )),
            _ => Failure::Pad(Box::new(seen)),
        }
    }

    /// Objects of others that it holds.
    pub(crate) fn held(&self) -> BTreeSet<(usize, Handle)> {
        let live = self.live.as_ref();
        live.map(|live| live.store.data().held())
            .unwrap_or_default()
    }

    /// Flips a bit of its memory.
    pub(crate) fn flip(&mut self, address: usize, bit: u8) -> bool {
        let Some(region) = self.regions.all.first() else {
            return false;
        };
        let mut linear = memory::held(region);
        match linear.bytes_mut().get_mut(address) {
            Some(byte) => {
                *byte ^= 1 << (bit & 7);
                true
            }
            None => false,
        }
    }

    /// Whether all memories hold the same as another body's.
    pub(crate) fn same_memory(&self, other: &Self) -> bool {
        self.regions.all.len() == other.regions.all.len()
            && self
                .regions
                .all
                .iter()
                .zip(&other.regions.all)
                .all(|(a, b)| memory::held(a).bytes() == memory::held(b).bytes())
    }

    /// Where its instructions lie.
    pub(crate) fn text(&self) -> Range<u64> {
        self.mold.code.text()
    }

    /// What it held when it failed.
    pub(crate) fn dump(&self) -> BodyDump {
        BodyDump {
            seen: self.seen,
            memories: self.memories(),
        }
    }

    /// The signal that ended it, if one did.
    pub(crate) fn seen(&self) -> Option<pad::Seen> {
        self.seen
    }

    /// Length and checksum of each memory: what two bodies in processes of their own are compared by.
    pub(crate) fn digest(&self) -> Vec<(usize, u32)> {
        let regions = self.regions.all.iter().map(memory::held);
        regions
            .map(|region| (region.bytes().len(), crc32c::crc32c(region.bytes())))
            .collect()
    }

    /// Copies of its memories, for a dump.
    pub(crate) fn memories(&self) -> Memories {
        self.regions
            .all
            .iter()
            .map(|region| memory::held(region).bytes().to_vec())
            .collect()
    }
}

/// Why a call of another component had no answer.
fn nested(error: &wasmtime::Error) -> Failure {
    match error.downcast_ref::<Nested>() {
        Some(nested) => nested.clone().into(),
        None => Failure::Invalid(error.to_string()),
    }
}
