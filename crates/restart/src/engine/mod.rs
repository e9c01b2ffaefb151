//! All of wasmtime's API that this crate uses: one Store per component, and bodies that are reset in place.
//!
//! ```text
//!   Engine ──load──► Code (a .cwasm, mapped) ──► Body (Store, instance, memory) ──call──► Ok | Failure
//!                                                  ▲                                        │
//!                                                  └──────────── reset ◄────────────────────┘
//! ```
//!
//! wasmtime 48 poisons the whole Store when a component traps, so a body has a Store of its own and a reset makes a new one. The memory is
//! the host's ([`memory`]): it stays mapped, and is filled from the image that was taken after the component's `init`.
//!
//! Invariants
//!  1. A body that failed is never called again before it was reset.
//!  2. Backtraces are off: walking frames with a damaged frame pointer would fault inside the signal handler.
//!  3. Nothing of a failed call is kept: results are read only after success.
//!
//! Not covered: component-model async, shared memory, several components in one Store.
//! See wasmtime's `Store`, `StoreExt::set_signal_handler`, `MemoryCreator`.

#![allow(
    unsafe_code,
    reason = "loading compiled code, and wasmtime's hook for signals, are unsafe by signature"
)]

mod imports;
mod memory;
mod watch;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use steadfast_sys::pad;
use wasmtime::component::{
    Component, ComponentExportIndex, Func, Instance, InstancePre, Linker, ResourceAny, Val,
};
use wasmtime::unix::StoreExt as _;
use wasmtime::{Config, Store};

pub(crate) use self::imports::{
    Asked, Callee, ENTRIES_MAX, Import, ImportFunction, Journal, Wanted, answered, open, put,
};
use self::imports::{Context, Nested};
use crate::host::{BodyDump, CallError};
use crate::value::{Handle, Value};

/// Why an engine, an image or a component is refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the signal pad is needed and its self-test failed: {found}")]
    Pad { found: String },
    #[error("{} cannot be compiled: {found}", path.display())]
    Compile { path: PathBuf, found: String },
    #[error("{} is not an image that this build of steadfast-host made: {found}", path.display())]
    Image { path: PathBuf, found: String },
    #[error("{component} needs an import that the application does not provide: {found}")]
    Import { component: String, found: String },
    #[error("{component} has no function {function} of {interface}")]
    Export {
        component: String,
        interface: String,
        function: String,
    },
    #[error("{component} does not start: {found}")]
    Start { component: String, found: String },
    #[error("what the last process kept of {component} cannot be used: {found}")]
    Kept { component: String, found: String },
    #[error("{what}")]
    System {
        what: &'static str,
        #[source]
        source: std::io::Error,
    },
}

impl LoadError {
    /// What would help.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Pad { .. } => {
                "run on x86-64 Linux without a sandbox that filters signals, or set pad = false and accept that wild faults end the process"
            }
            Self::Compile { .. } => {
                "give a WebAssembly component; a core module becomes one with `steadfast host compile --wit FILE`"
            }
            Self::Image { .. } => "compile it again: steadfast host compile COMPONENT.wasm",
            Self::Import { .. } => {
                "an [[edge]] from it to a component that exports this; one with allow must list the function"
            }
            Self::Export { .. } => "the WIT beside the component must be the one it was built from",
            Self::Start { .. } => {
                "see the message; memory_mib in app.toml raises the limit of memory"
            }
            Self::Kept { .. } => {
                "none is needed: it is forgotten, all begin empty, and old handles are stale"
            }
            Self::System { .. } => "see the cause",
        }
    }
}

/// Compiles and loads components.
#[derive(Clone)]
pub struct Engine {
    engine: wasmtime::Engine,
    pad: bool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("pad", &self.pad)
            .finish_non_exhaustive()
    }
}

/// What the self-test of the pad measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct SelfTest {
    /// Wild faults that became traps.
    pub diverted: u32,
    /// From such a fault to the error in the caller: the longest.
    pub slowest_ns: u64,
}

/// (module (func (export "p") unreachable) (func (export "l") (loop br 0)))
const PAD_MODULE: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x03\x02\0\0\x07\x09\x02\x01p\0\0\x01l\0\x01\x0a\x0d\x02\x03\0\0\x0b\x07\0\x03\x40\x0c\0\x0b\x0b";

impl Engine {
    /// An engine. With `pad` wild faults in components become errors; the self-test says whether they do here.
    ///
    /// # Errors
    /// When the pad is asked for and does not work.
    pub fn new(pad: bool) -> Result<Self, LoadError> {
        let mut config = Config::new();
        config
            .wasm_backtrace_max_frames(None)
            .memory_init_cow(false)
            .memory_may_move(false)
            .with_host_memory(Arc::new(memory::Creator))
            // Two bodies with the same input must do the same: NaN payloads and relaxed SIMD may not depend on the machine.
            .cranelift_nan_canonicalization(true)
            .wasm_relaxed_simd(false);
        let engine = wasmtime::Engine::new(&config).map_err(|error| LoadError::Pad {
            found: error.to_string(),
        })?;
        if pad {
            let found = PAD.get_or_init(|| prepare_pad(&engine).map_err(|found| found.to_string()));
            if let Err(found) = found {
                return Err(LoadError::Pad {
                    found: found.clone(),
                });
            }
        }
        watch::start().map_err(|source| LoadError::System {
            what: "the thread that ends hung calls does not start",
            source,
        })?;
        Ok(Self { engine, pad })
    }

    /// Whether wild faults become errors.
    pub(crate) fn pad(&self) -> bool {
        self.pad
    }

    /// What the self-test of the pad found.
    #[must_use]
    pub fn self_test(&self) -> Option<SelfTest> {
        PAD.get()
            .and_then(|found| found.as_ref().ok().copied())
            .filter(|_| self.pad)
    }

    /// Compiles a component, for [`Engine::load`].
    ///
    /// # Errors
    /// When it is not a component.
    pub fn compile(&self, path: &Path, component: &[u8]) -> Result<Vec<u8>, LoadError> {
        self.engine
            .precompile_component(component)
            .map_err(|error| LoadError::Compile {
                path: path.into(),
                found: format!("{error:#}"),
            })
    }

    /// Maps a compiled component from its file.
    ///
    /// # Errors
    /// When another wasmtime or another configuration compiled it.
    pub fn load(&self, path: &Path) -> Result<Code, LoadError> {
        let image = |error: wasmtime::Error| LoadError::Image {
            path: path.into(),
            found: format!("{error:#}"),
        };
        // SAFETY: the file is one that `compile` wrote: wasmtime checks its version and configuration, and whoever may write to it may
        // write to this program as well (docs/concepts/restart.md).
        let component =
            unsafe { Component::deserialize_file(&self.engine, path) }.map_err(image)?;
        let text = component.text().as_ptr_range();
        let text = text.start as u64..text.end as u64;
        if self.pad {
            pad::add_generated(&text).map_err(|source| LoadError::System {
                what: "no more components fit",
                source,
            })?;
        }
        Ok(Code {
            component,
            text,
            engine: self.clone(),
        })
    }
}

static PAD: OnceLock<Result<SelfTest, String>> = OnceLock::new();

fn hook<T: 'static>(store: &mut Store<T>) {
    let divert = |signal, info, context: *const libc::c_void| {
        // SAFETY: wasmtime passes the arguments of the handler that is running.
        unsafe { pad::divert(signal, info, context.cast_mut()) }
    };
    // SAFETY: `divert` is async-signal-safe.
    unsafe { store.set_signal_handler(divert) };
}

/// Finds the address of a trap that wasmtime knows, and tries wild faults of each kind.
fn prepare_pad(engine: &wasmtime::Engine) -> Result<SelfTest, String> {
    let text = |error: wasmtime::Error| format!("{error:#}");
    pad::install().map_err(|error| error.to_string())?;
    let module = wasmtime::Module::new(engine, PAD_MODULE).map_err(text)?;
    let range = module.text().as_ptr_range();
    let range = range.start as u64..range.end as u64;
    let mut store = Store::new(engine, ());
    let note = |_, _: *const libc::siginfo_t, context: *const libc::c_void| {
        // SAFETY: wasmtime passes the context of the handler that is running.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let rip = context.uc_mcontext.gregs[usize::try_from(libc::REG_RIP).unwrap_or(0)];
        pad::set_pad(rip.cast_unsigned());
        false
    };
    // SAFETY: the handler stores one number.
    unsafe { store.set_signal_handler(note) };
    let instance = wasmtime::Instance::new(&mut store, &module, &[]).map_err(text)?;
    let trap = instance
        .get_typed_func::<(), ()>(&mut store, "p")
        .map_err(text)?;
    if trap.call(&mut store, ()).is_ok() || !range.contains(&pad::pad()) {
        return Err("a deliberate trap was not seen by the signal hook".into());
    }
    // The loop alone, and not the trampoline before it: a call that is sent to the pad before its way out is saved has none.
    let spins = module
        .functions()
        .last()
        .ok_or("the module of the pad has no loop")?;
    let spins = range.start + spins.offset as u64..range.start + (spins.offset + spins.len) as u64;
    pad::add_generated(&spins).map_err(|error| error.to_string())?;
    pad::take_stock().map_err(|error| error.to_string())?;
    let mut found = SelfTest::default();
    for wild in pad::WILD {
        let mut store = Store::new(engine, ());
        hook(&mut store);
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).map_err(text)?;
        let spin = instance
            .get_typed_func::<(), ()>(&mut store, "l")
            .map_err(text)?;
        let inside = pad::Inside::enter();
        let runner = pad::Runner::current();
        let done = std::sync::atomic::AtomicBool::new(false);
        let before = pad::wild_ns();
        let ended = std::thread::scope(|scope| {
            let done = &done;
            scope.spawn(move || {
                let end = Instant::now() + Duration::from_secs(5);
                while !done.load(std::sync::atomic::Ordering::Acquire) && Instant::now() < end {
                    runner.go_wild(wild);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let ended = spin.call(&mut store, ());
            // The breaker is no fault: it makes none.
            let made = pad::wild_ns();
            if made > before {
                found.slowest_ns = found.slowest_ns.max(pad::now_ns().saturating_sub(made));
            }
            done.store(true, std::sync::atomic::Ordering::Release);
            ended
        });
        drop(inside);
        let _ = pad::take_seen();
        if ended.is_ok() {
            return Err(format!("a loop without end has ended ({wild:?})"));
        }
        found.diverted += 1;
    }
    // The pad is needed as long as the process lives.
    std::mem::forget(module);
    Ok(found)
}

/// A compiled component, mapped from its file.
pub struct Code {
    component: Component,
    text: Range<u64>,
    engine: Engine,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Code")
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

impl Code {
    /// What the component imports.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        imports::wanted(&self.component, &self.engine.engine)
    }

    /// Where its instructions lie.
    #[must_use]
    pub fn text(&self) -> Range<u64> {
        self.text.clone()
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        pad::remove_generated(&self.text);
    }
}

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
            .collect::<Result<_, _>>()?;
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
            exports,
            init,
            code: code.clone(),
            limits,
        })
    }
}

/// What the memories held after `init`.
pub(crate) type Image = Vec<Vec<u8>>;

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
            let _ = pad::take_seen();
            done.map_err(|error| starts(format!("{error:#}")))?;
            live.store.data_mut().starting = false;
        }
        let image: Image = body
            .regions
            .all
            .iter()
            .map(|region| memory::held(region).bytes().to_vec())
            .collect();
        Ok((body, image))
    }

    /// A new Store and instance in the same memory.
    pub(crate) fn reset(&mut self, image: Option<&Image>) -> Result<(), String> {
        (self.live, self.seen) = (None, None);
        let context = Context::new(self.journal.clone(), self.watch.clone());
        let mut store = Store::new(&self.mold.code.engine.engine, context);
        if self.mold.code.engine.pad {
            hook(&mut store);
        }
        let mut regions = std::mem::take(&mut self.regions);
        regions.sizes.clear();
        regions.spent = Duration::ZERO;
        regions
            .sizes
            .extend(image.into_iter().flatten().map(Vec::len));
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
        for (region, bytes) in self.regions.all.iter().zip(image.into_iter().flatten()) {
            memory::held(region).bytes_mut()[..bytes.len()].copy_from_slice(bytes);
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
        let params: Option<Vec<Val>> = args.iter().map(|arg| to_val(arg, inner)).collect();
        let Some(params) = params else {
            return Err(Failure::Invalid("an argument names no object".into()));
        };
        let mut results = [Val::Bool(false)];
        let results = &mut results[..usize::from(has_result)];
        let outcome = {
            let _inside = pad::Inside::enter();
            self.watch.begin();
            let outcome = func.call(&mut live.store, &params, results);
            self.watch.end();
            outcome
        };
        match outcome {
            Ok(()) => match results.first() {
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
    pub(crate) fn memories(&self) -> Image {
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

fn to_val(value: &Value, inner: &mut dyn FnMut(Handle) -> Option<ResourceAny>) -> Option<Val> {
    let mut boxed = |value: &Option<Box<Value>>| match value {
        None => Some(None),
        Some(value) => to_val(value, inner).map(|value| Some(Box::new(value))),
    };
    Some(match value {
        Value::Bool(b) => Val::Bool(*b),
        Value::U8(n) => Val::U8(*n),
        Value::U16(n) => Val::U16(*n),
        Value::U32(n) => Val::U32(*n),
        Value::U64(n) => Val::U64(*n),
        Value::S8(n) => Val::S8(*n),
        Value::S16(n) => Val::S16(*n),
        Value::S32(n) => Val::S32(*n),
        Value::S64(n) => Val::S64(*n),
        Value::F32(bits) => Val::Float32(f32::from_bits(*bits)),
        Value::F64(bits) => Val::Float64(f64::from_bits(*bits)),
        Value::Char(c) => Val::Char(*c),
        Value::String(s) => Val::String(s.clone()),
        Value::Bytes(bytes) => Val::List(bytes.iter().map(|byte| Val::U8(*byte)).collect()),
        Value::List(items) => Val::List(
            items
                .iter()
                .map(|item| to_val(item, inner))
                .collect::<Option<_>>()?,
        ),
        Value::Tuple(items) => Val::Tuple(
            items
                .iter()
                .map(|item| to_val(item, inner))
                .collect::<Option<_>>()?,
        ),
        Value::Record(fields) => Val::Record(
            fields
                .iter()
                .map(|(name, value)| Some((name.clone(), to_val(value, inner)?)))
                .collect::<Option<_>>()?,
        ),
        Value::Variant(name, value) => Val::Variant(name.clone(), boxed(value)?),
        Value::Enum(name) => Val::Enum(name.clone()),
        Value::Option(value) => Val::Option(boxed(value)?),
        Value::Result(Ok(value)) => Val::Result(Ok(boxed(value)?)),
        Value::Result(Err(value)) => Val::Result(Err(boxed(value)?)),
        Value::Flags(names) => Val::Flags(names.clone()),
        Value::Handle(handle) => Val::Resource(inner(*handle)?),
    })
}

/// A value of a result. A handle in it becomes its place in `made`.
fn from_val(value: &Val, made: &mut Vec<ResourceAny>) -> Option<Value> {
    let mut boxed = |value: &Option<Box<Val>>| match value {
        None => Some(None),
        Some(value) => from_val(value, made).map(|value| Some(Box::new(value))),
    };
    Some(match value {
        Val::Bool(b) => Value::Bool(*b),
        Val::U8(n) => Value::U8(*n),
        Val::U16(n) => Value::U16(*n),
        Val::U32(n) => Value::U32(*n),
        Val::U64(n) => Value::U64(*n),
        Val::S8(n) => Value::S8(*n),
        Val::S16(n) => Value::S16(*n),
        Val::S32(n) => Value::S32(*n),
        Val::S64(n) => Value::S64(*n),
        Val::Float32(n) => Value::F32(n.to_bits()),
        Val::Float64(n) => Value::F64(n.to_bits()),
        Val::Char(c) => Value::Char(*c),
        Val::String(s) => Value::String(s.clone()),
        Val::List(items) if matches!(items.first(), Some(Val::U8(_))) => Value::Bytes(
            items
                .iter()
                .map(|item| {
                    if let Val::U8(byte) = item {
                        Some(*byte)
                    } else {
                        None
                    }
                })
                .collect::<Option<_>>()?,
        ),
        Val::List(items) => Value::List(
            items
                .iter()
                .map(|item| from_val(item, made))
                .collect::<Option<_>>()?,
        ),
        Val::Tuple(items) => Value::Tuple(
            items
                .iter()
                .map(|item| from_val(item, made))
                .collect::<Option<_>>()?,
        ),
        Val::Record(fields) => Value::Record(
            fields
                .iter()
                .map(|(name, value)| Some((name.clone(), from_val(value, made)?)))
                .collect::<Option<_>>()?,
        ),
        Val::Variant(name, value) => Value::Variant(name.clone(), boxed(value)?),
        Val::Enum(name) => Value::Enum(name.clone()),
        Val::Option(value) => Value::Option(boxed(value)?),
        Val::Result(Ok(value)) => Value::Result(Ok(boxed(value)?)),
        Val::Result(Err(value)) => Value::Result(Err(boxed(value)?)),
        Val::Flags(names) => Value::Flags(names.clone()),
        Val::Resource(inner) => {
            let index = u32::try_from(made.len()).ok()?;
            made.push(*inner);
            Value::Handle(Handle {
                index,
                generation: u32::MAX,
            })
        }
        _ => return None,
    })
}
