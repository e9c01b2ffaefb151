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
            self.end_inner(child)?;
        }
        Ok(())
    }

    /// Ends an object in the bodies, where it is there.
    pub(super) fn end_inner(&mut self, handle: Handle) -> Result<(), Stop> {
        let epoch = self.epoch;
        let inner = match self.table.slot(handle) {
            Ok(slot) if slot.epoch == epoch => std::mem::take(&mut slot.inner),
            Ok(slot) if slot.epoch.get().is_none() => return Err(unknown(&mut slot.epoch)),
            _ => return Ok(()),
        };
        let mut outcome = Ok(());
        for (which, (body, inner)) in self.bodies.iter_mut().zip(inner).enumerate() {
            if !self.imports.is_empty() {
                open(&self.journal).begin(true, which);
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
        let back = match self.model.resources.get(resource) {
            Some(resource) if resource.closes => self.rebuild(handle),
            _ => Ok(()),
        };
        let ended = back
            .and_then(|()| self.end_children(handle))
            .and_then(|()| self.end_inner(handle));
        self.forget(handle);
        self.write_discard(handle);
        match ended {
            Err(Stop::Failed(cause, detail)) => self.recover(cause, None, detail),
            Err(Stop::Callee(error)) => self.recover(Cause::Callee, None, error.to_string()),
            Err(Stop::Refused(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }
}
