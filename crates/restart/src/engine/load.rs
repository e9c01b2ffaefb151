//! The engine: it compiles components, maps their images, and tests the signal pad before anything runs.

#![allow(
    unsafe_code,
    reason = "loading compiled code, and wasmtime's hook for signals, are unsafe by signature"
)]

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use steadfast_sys::{pad, publish};
use wasmtime::component::Component;
use wasmtime::unix::StoreExt as _;
use wasmtime::{Config, CustomCodeMemory, Store};

use super::error::LoadError;
use super::imports::{self, Wanted};
use super::{memory, watch};

/// Compiles and loads components.
#[derive(Clone)]
pub struct Engine {
    pub(super) engine: wasmtime::Engine,
    pub(super) pad: bool,
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

/// Maps code to be executed, and never changes memory from writable to executable, which hardened systems forbid.
struct Published;

impl CustomCodeMemory for Published {
    fn required_alignment(&self) -> usize {
        PAGE
    }

    fn publish_executable(&self, at: *const u8, len: usize) -> wasmtime::Result<()> {
        // SAFETY: wasmtime passes whole pages of its own mapping, whose relocations are done.
        unsafe { publish::executable(at, len) }.map_err(wasmtime::Error::from)
    }

    /// Asked for before the mapping goes, which needs nothing.
    fn unpublish_executable(&self, _at: *const u8, _len: usize) -> wasmtime::Result<()> {
        Ok(())
    }
}

/// Of x86-64.
const PAGE: usize = 4096;

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
            .with_custom_code_memory(Some(Arc::new(Published)))
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
    pad::take_stock().map_err(|error| format!("/proc/self/maps: {error}"))?;
    let mut found = SelfTest::default();
    for wild in pad::WILD {
        let mut store = Store::new(engine, ());
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
        pad::Runner::go_no_more_wild();
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
    pub(super) component: Component,
    pub(super) text: Range<u64>,
    pub(super) engine: Engine,
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
