//! Linear memory that the host owns, so that it can be restored from an image, compared and dumped.
//!
//! wasmtime asks for memory while it instantiates. The body that is being made leaves its regions in a thread-local place first.

#![allow(
    unsafe_code,
    reason = "wasmtime's traits for memory that the host provides are unsafe to implement"
)]

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast_sys::linear::Linear;

/// One memory of a component.
pub(super) type Region = Arc<Mutex<Linear>>;

pub(super) fn held(region: &Region) -> MutexGuard<'_, Linear> {
    region.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memories of one body, in the order in which its instantiation asks for them.
#[derive(Debug, Default)]
pub(super) struct Regions {
    pub(super) all: Vec<Region>,
    pub(super) next: usize,
    /// Sizes of the image, where there is one: a memory starts as large as it was then.
    pub(super) sizes: Vec<usize>,
    /// No memory may become larger.
    pub(super) limit: usize,
    /// How long the last reset spent on them.
    pub(super) spent: Duration,
}

thread_local! {
    static PENDING: RefCell<Option<Regions>> = const { RefCell::new(None) };
}

/// Runs `make` with these regions at hand, and gives them back.
pub(super) fn with<T>(mut regions: Regions, make: impl FnOnce() -> T) -> (Regions, T) {
    regions.next = 0;
    PENDING.with(|pending| pending.replace(Some(regions)));
    let made = make();
    (PENDING.with(RefCell::take).unwrap_or_default(), made)
}

#[derive(Debug)]
struct Used {
    region: Region,
    limit: usize,
}

// SAFETY: a region is page aligned, never moves, and is followed by the guard that `new_memory` was asked for.
unsafe impl wasmtime::LinearMemory for Used {
    fn byte_size(&self) -> usize {
        held(&self.region).size()
    }

    fn byte_capacity(&self) -> usize {
        self.limit
    }

    fn grow_to(&mut self, size: usize) -> wasmtime::Result<()> {
        if size > self.limit {
            return Err(wasmtime::Error::msg("memory limit"));
        }
        Ok(held(&self.region).grow(size)?)
    }

    fn as_ptr(&self) -> *mut u8 {
        held(&self.region).base()
    }
}

#[derive(Debug)]
pub(super) struct Creator;

// SAFETY: every memory lies in a reservation of its own, is zero-filled, and nobody writes to it while an instance that uses it runs.
unsafe impl wasmtime::MemoryCreator for Creator {
    fn new_memory(
        &self,
        _ty: wasmtime::MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn wasmtime::LinearMemory>, String> {
        PENDING.with(|pending| {
            let mut pending = pending.borrow_mut();
            let regions = pending
                .as_mut()
                .ok_or("memory is asked for outside an instantiation")?;
            let place = regions.next;
            regions.next += 1;
            let limit = regions.limit.min(maximum.unwrap_or(usize::MAX));
            let size = minimum.max(regions.sizes.get(place).copied().unwrap_or(0));
            if size > limit {
                return Err(format!(
                    "the component needs {size} bytes of memory, the limit is {limit}"
                ));
            }
            if regions.all.len() == place {
                let capacity = reserved.unwrap_or(limit).max(limit);
                let linear = Linear::reserve(capacity, guard).map_err(|error| error.to_string())?;
                regions.all.push(Arc::new(Mutex::new(linear)));
            }
            let region = regions.all[place].clone();
            let begin = Instant::now();
            held(&region)
                .restart(size)
                .map_err(|error| error.to_string())?;
            regions.spent += begin.elapsed();
            Ok(Box::new(Used { region, limit }) as Box<dyn wasmtime::LinearMemory>)
        })
    }
}
