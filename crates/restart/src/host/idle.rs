//! Objects that nobody has used since a reset, brought back one by one while the machine is idle: C³'s best-effort objects.
//!
//! The thread runs below all others (SCHED_IDLE). It holds the component's lock for one object at a time, so a caller waits for one object of
//! others at most. A caller with a real-time priority lends it meanwhile. An ordinary one has none to lend, and waits until the thread runs.
//!
//! Invariant: what a caller has brought back meanwhile is not made twice.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};

use super::core::{Core, Stop};
use super::edge::Unit;
use crate::value::Handle;

/// Starts the thread. It ends with the component.
pub(super) fn start(unit: &Arc<Unit>) -> io::Result<Sender<()>> {
    let (sender, receiver) = mpsc::channel();
    let unit = Arc::downgrade(unit);
    let bring = move || {
        steadfast_sys::cpu::run_when_idle();
        while receiver.recv().is_ok() {
            match all(&unit) {
                Some(true) => {}
                // The reset that followed is no reason to begin again: an object that fails each time would never let the component rest.
                Some(false) => while receiver.try_recv().is_ok() {},
                None => return,
            }
        }
    };
    let thread = std::thread::Builder::new().name("host-idle".into());
    thread.spawn(bring)?;
    Ok(sender)
}

/// Everything that is there now, up to the first that fails; none where the component is gone.
fn all(unit: &Weak<Unit>) -> Option<bool> {
    let handles = unit.upgrade()?.core.lock().ok()?.table.handles();
    for handle in handles {
        if !unit.upgrade()?.core.lock().ok()?.bring(handle) {
            return Some(false);
        }
    }
    Some(true)
}

impl Core {
    /// One that fails now is tried again when it is used, and its user is told.
    fn bring(&mut self, handle: Handle) -> bool {
        // What rests may not even be ready.
        if self.available().is_err() {
            return false;
        }
        let whole = self
            .rebuild(handle)
            .and_then(|()| self.bring_all_keys(handle));
        if let Err(Stop::Failed(cause, detail)) = whole {
            let _ = self.recover(cause, None, detail);
            return false;
        }
        true
    }
}
