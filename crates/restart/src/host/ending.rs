//! How objects end: given back by a client, or together with what they were made from.

use super::core::{Core, Stop, failed, unknown};
use crate::engine::open;
use crate::table::Slot;
use crate::value::Handle;
use crate::words::{CallError, Cause};

impl Core {
    /// Ends in the bodies what was made from an object that ends, the last made first. The table follows when all of it has succeeded.
    pub(super) fn end_children(&mut self, handle: Handle) -> Result<(), Stop> {
        // A hint before the record is read: a damaged one names no resource, or another one.
        let resources = &self.model.resources;
        let ends = |slot: &mut Slot| {
            let resource = resources.get(slot.resource());
            resource.is_some_and(|resource| resource.children_end)
        };
        if !self.table.slot(handle).is_ok_and(ends) {
            return Ok(());
        }
        let all = self.table.descendants(handle);
        let all = all.map_err(|bad| self.bad(bad))?;
        for child in all.into_iter().rev() {
            self.end_inner(child, true)?;
        }
        Ok(())
    }

    /// Ends an object in the bodies, where it is there. What it asks others for on the way is answered as in a replay, or, where its end may be
    /// repeated, as in a call.
    pub(super) fn end_inner(&mut self, handle: Handle, replaying: bool) -> Result<(), Stop> {
        let epoch = self.epoch;
        let inner = match self.table.slot(handle) {
            Ok(slot) if slot.epoch == epoch => std::mem::take(&mut slot.inner),
            Ok(slot) if slot.epoch.get().is_none() => return Err(unknown(&mut slot.epoch)),
            _ => return Ok(()),
        };
        let mut outcome = Ok(());
        for (which, (body, inner)) in self.bodies.iter_mut().zip(inner).enumerate() {
            if !self.imports.is_empty() {
                open(&self.journal).begin(replaying, which);
            }
            if let Err(failure) = body.discard(inner) {
                outcome = Err(failed(failure));
            }
        }
        outcome
    }

    pub(super) fn discard(&mut self, client: u32, handle: Handle) -> Result<(), CallError> {
        let stale = || CallError::Stale {
            component: self.name.clone(),
        };
        if self.table.ended(handle) {
            return Err(stale());
        }
        let slot = self.table.slot(handle).map_err(|_| stale())?;
        if slot.owner() != client {
            return Err(CallError::Foreign {
                component: self.name.clone(),
                function: "discard".into(),
            });
        }
        let resource = slot.resource();
        if self.gone.is_some() {
            // Nothing of it is anywhere but in the table.
            self.forget(handle);
            self.write_discard(handle);
            return Ok(());
        }
        let resource = self.model.resources.get(resource);
        let closes = resource.is_some_and(|resource| resource.closes);
        let ended = if closes {
            self.close(handle)
        } else {
            self.leave_children(handle)
                .and_then(|()| self.end_children(handle))
                .and_then(|()| self.end_inner(handle, true))
        };
        self.forget(handle);
        self.write_discard(handle);
        let component = self.name.clone();
        let function = "discard".to_owned();
        match ended {
            Err(Stop::Failed(cause, detail)) => {
                self.recover(cause, None, detail)?;
                // Others go on to see what its end would have changed.
                let lost = CallError::Poison {
                    component,
                    function,
                    attempts: self.policy.redo_max + 1,
                    cause,
                };
                if closes { Err(lost) } else { Ok(()) }
            }
            Err(Stop::Callee(error)) => {
                self.recover(Cause::Callee, None, error.to_string())?;
                let lost = CallError::Callee {
                    component,
                    function,
                    source: Box::new(error),
                };
                if closes { Err(lost) } else { Ok(()) }
            }
            Err(Stop::Refused(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// Ends an object whose end changes what others see: it is carried out once, whatever fails on the way. A lost object comes back first.
    fn close(&mut self, handle: Handle) -> Result<(), Stop> {
        let mut tries = 0;
        let outcome = loop {
            let ended = self
                .rebuild(handle)
                .and_then(|()| self.end_children(handle))
                .and_then(|()| self.end_inner(handle, false));
            let ended = match ended {
                Ok(()) if std::mem::take(&mut self.fail_once) => {
                    Err(Stop::Failed(Cause::Asked, "at its return".into()))
                }
                other => other,
            };
            match ended {
                Err(Stop::Failed(cause, detail))
                    if tries < self.policy.redo_max && self.policy.recover =>
                {
                    tries += 1;
                    if let Err(error) = self.recover(cause, None, detail) {
                        break Err(Stop::Refused(error));
                    }
                }
                other => break other,
            }
        };
        if !self.imports.is_empty() {
            open(&self.journal).belongs(None);
        }
        self.settle();
        outcome
    }
}
