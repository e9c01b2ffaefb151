//! How objects come back after a reset, when they are used next or all at once: parents first, then the maker, the way to the state,
//! data, fields; names with what they stand for.

use std::borrow::Cow;
use std::time::Instant;

use super::core::{Core, Stop, failed, unknown};
use crate::body::Inners;
use crate::engine::open;
use crate::model::{Effect, Model, When};
use crate::shape::Shape;
use crate::table::{Bad, PIECE, Record, Sealed, Slot};
use crate::value::{Handle, Value};
use crate::words::{CallError, Cause, sample};

impl Core {
    /// Makes the object behind a handle exist in the present bodies: parents first, creation, way to its state, data, fields.
    pub(super) fn rebuild(&mut self, handle: Handle) -> Result<(), Stop> {
        // What was given back comes back for what was made from it, and then.
        if self.table.ended(handle) {
            return Ok(());
        }
        let mut lost = Vec::new();
        let mut next = Some(handle);
        while let Some(at) = next {
            let epoch = self.epoch;
            let (there, parent) = match self.table.slot(at) {
                Ok(slot) => match slot.record() {
                    Ok(record) if slot.epoch.get().is_some() => {
                        (slot.epoch == epoch, record.parent)
                    }
                    Ok(_) => return Err(unknown(&mut slot.epoch)),
                    Err(bad) => return Err(self.bad(bad)),
                },
                Err(_) if at != handle => {
                    return Err(Stop::Refused(CallError::Orphan {
                        component: self.name.clone(),
                    }));
                }
                Err(bad) => return Err(self.bad(bad)),
            };
            if there {
                break;
            }
            lost.push(at);
            next = parent;
        }
        let mut back = lost
            .iter()
            .rev()
            .try_for_each(|handle| self.rebuild_one(*handle));
        let Some(top) = lost.iter().rev().copied().find(|of| self.table.ended(*of)) else {
            return back;
        };
        let family = self.table.descendants(top);
        back = back.and_then(|()| match &family {
            Ok(family) => self.bring_family(family),
            Err(bad) => Err(self.bad(*bad)),
        });
        // What was made last is given back first, also where not all of it has come back.
        let made = family.unwrap_or_else(|_| lost.into_iter().rev().collect());
        for handle in made.into_iter().rev().chain([top]) {
            if self.table.ended(handle) {
                back = back.and(self.end_again(handle));
            }
        }
        back
    }

    /// What was made from an object that was given back: all of it shares that object, so all of it comes back while that is there. One that is
    /// damaged is an error of its own user.
    fn bring_family(&mut self, family: &[Handle]) -> Result<(), Stop> {
        let epoch = self.epoch;
        for handle in family {
            let Ok(slot) = self.table.slot(*handle) else {
                continue;
            };
            if slot.epoch.get().is_none() {
                return Err(unknown(&mut slot.epoch));
            }
            let parent = match slot.record() {
                Ok(record) if slot.epoch != epoch => record.parent,
                _ => continue,
            };
            let parent = parent.and_then(|parent| self.table.slot(parent).ok());
            if parent.is_some_and(|parent| parent.epoch == epoch) {
                self.rebuild_one(*handle)?;
            }
        }
        Ok(())
    }

    /// Gives an object back once more, which was there for what was made from it.
    fn end_again(&mut self, handle: Handle) -> Result<(), Stop> {
        let ended = self.end_inner(handle, true);
        if let Ok(slot) = self.table.slot(handle) {
            slot.inner.clear();
            slot.epoch = Sealed::of(0);
        }
        ended
    }

    /// Before an object ends whose children outlive it: those that have not come back yet do so now, since they share it with those that have.
    pub(super) fn leave_children(&mut self, handle: Handle) -> Result<(), Stop> {
        let (epoch, resources) = (self.epoch, &self.model.resources);
        let leaves = |slot: &mut Slot| {
            let resource = resources.get(slot.resource());
            slot.epoch == epoch && resource.is_some_and(|resource| resource.children_stay)
        };
        if !self.table.slot(handle).is_ok_and(leaves) {
            return Ok(());
        }
        match self.rebuild_children(handle) {
            Err(Stop::Refused(CallError::Corrupt { .. } | CallError::Orphan { .. })) => Ok(()),
            other => other,
        }
    }

    /// All objects at once, or those of some clients, where the policy or an edge says so.
    pub(super) fn rebuild_eagerly(&mut self) {
        let all = self.policy.eager;
        if !all && self.eager.is_empty() {
            return;
        }
        // Names of some clients' objects come back with these.
        let keys: Vec<_> = match all {
            true => self.table.names.keys().cloned().collect(),
            false => Vec::new(),
        };
        for key in keys {
            // What rests is not asked: each object that fails would make it rest once more, until it is given up.
            if self.available().is_err() {
                return;
            }
            if let Err(Stop::Failed(cause, detail)) = self.rename(&key) {
                let _ = self.recover(cause, None, detail);
            }
        }
        for handle in self.table.handles() {
            let owner = self.table.slot(handle).map(|slot| slot.owner());
            if !all && !owner.is_ok_and(|owner| self.eager.contains(&owner)) {
                continue;
            }
            if self.available().is_err() {
                return;
            }
            // One that fails now is tried again when it is used, and its user is told.
            let whole = self
                .rebuild(handle)
                .and_then(|()| self.bring_all_keys(handle));
            if let Err(Stop::Failed(cause, detail)) = whole {
                let _ = self.recover(cause, None, detail);
            }
        }
    }

    /// What was made from an object, and from that.
    pub(super) fn rebuild_children(&mut self, handle: Handle) -> Result<(), Stop> {
        let all = self.table.descendants(handle);
        let all = all.map_err(|bad| self.bad(bad))?;
        all.iter().try_for_each(|child| self.rebuild(*child))
    }

    /// An object whose parent is there, and whose record was looked at.
    fn rebuild_one(&mut self, handle: Handle) -> Result<(), Stop> {
        let begin = Instant::now();
        let Ok(slot) = self.table.slot(handle) else {
            return Err(self.bad(Bad::Stale));
        };
        let record = slot.take();
        if !self.imports.is_empty() {
            open(&self.journal).returns(Some(handle));
        }
        // Once for all calls of the replay.
        let model = self.model.clone();
        let made = self.make_again(&model, &record);
        let made = made.and_then(|inner| {
            let epoch = self.epoch;
            if let Ok(slot) = self.table.slot(handle) {
                (slot.inner, slot.epoch) = (inner, Sealed::of(epoch));
            }
            self.refit(&model, handle, &record)
        });
        if !self.imports.is_empty() {
            let over = {
                let mut journal = open(&self.journal);
                journal.returns(None);
                match &made {
                    Ok(()) => journal.is_back(handle),
                    // What is kept may be damaged, or gone at the one who gave it.
                    Err(
                        Stop::Failed(..)
                        | Stop::Callee(
                            CallError::Stale { .. }
                            | CallError::Corrupt { .. }
                            | CallError::Orphan { .. },
                        ),
                    ) => {
                        journal.is_not_back(handle);
                        Vec::new()
                    }
                    Err(_) => Vec::new(),
                }
            };
            self.discard_there(over);
        }
        if let Ok(slot) = self.table.slot(handle) {
            slot.put(record);
            if made.is_err() {
                // Half an object is none: the next use begins again, and is refused again if the record is what is damaged.
                slot.inner.clear();
                slot.epoch = Sealed::of(0);
            }
        }
        made?;
        self.stats.rebuilt += 1;
        sample(&mut self.stats.rebuild_ns, begin.elapsed());
        Ok(())
    }

    /// Leads a new object to the state, the data and the fields that its record has.
    fn refit(&mut self, model: &Model, handle: Handle, record: &Record) -> Result<(), Stop> {
        let epoch = self.epoch;
        let resource = &model.resources[record.resource];
        for &function in &resource.paths[record.state] {
            let mut args = vec![Value::Handle(handle)];
            let given = &model.functions[function].replay;
            for place in 1..model.functions[function].params.len() {
                let fixed = given.iter().find(|(of, _)| *of == place).map(|(_, v)| v);
                match fixed.or_else(|| record.remembered(function, place)) {
                    Some(value) => args.push(value.clone()),
                    None => {
                        return Err(Stop::Failed(
                            Cause::Replay,
                            format!(
                                "{}: an argument was not remembered",
                                model.functions[function].name
                            ),
                        ));
                    }
                }
            }
            let result = self.run_of(model, function, &args, true)?;
            if let Effect::State { when, .. } = model.functions[function].effect
                && !when.holds(result.as_ref())
            {
                return Err(Stop::Failed(
                    Cause::Replay,
                    format!("{} gave {result:?}", model.functions[function].name),
                ));
            }
        }
        if let Some(function) = resource.data {
            let key = model.name_of(record.creator, &record.args);
            let named = key.as_ref().and_then(|key| self.table.names.get_mut(key));
            let there = match named {
                Some(named) if named.epoch.get().is_none() => {
                    return Err(unknown(&mut named.epoch));
                }
                Some(named) => named.epoch == epoch,
                None => false,
            };
            if !there {
                self.refill(handle, key.as_ref(), function)?;
            }
            if let Some(named) = key.and_then(|key| self.table.names.get_mut(&key)) {
                named.epoch = Sealed::of(epoch);
            }
        }
        for &(function, parameter, field) in &resource.restore {
            let what = &model.functions[function];
            let value = what.params[parameter].shape.of_number(record.fields[field]);
            let Some(value) = value else {
                return Err(Stop::Failed(
                    Cause::Replay,
                    format!("{} cannot take {}", what.name, record.fields[field]),
                ));
            };
            let result = self.run_of(model, function, &[Value::Handle(handle), value], true)?;
            if !When::Ok.holds(result.as_ref()) {
                return Err(Stop::Failed(
                    Cause::Replay,
                    format!("{} gave {result:?}", what.name),
                ));
            }
        }
        Ok(())
    }

    /// Calls an object's maker again.
    fn make_again(&mut self, model: &Model, record: &Record) -> Result<Inners, Stop> {
        let function = &model.functions[record.creator];
        let mut args = Cow::Borrowed(&record.args);
        for (place, value) in &function.replay {
            args.to_mut()[*place] = value.clone();
        }
        self.run_of(model, record.creator, &args, true)?;
        let inner = self.inner();
        if inner.len() == self.bodies.len() {
            Ok(inner)
        } else {
            Err(Stop::Failed(
                Cause::Replay,
                format!("{} gave no object", function.name),
            ))
        }
    }

    /// Gives the component back what a name stands for, where it lost it.
    pub(super) fn rename(&mut self, key: &(usize, String)) -> Result<(), Stop> {
        let epoch = self.epoch;
        let record = match self.table.names.get_mut(key) {
            None => return Ok(()),
            Some(named) if named.epoch.get().is_none() => return Err(unknown(&mut named.epoch)),
            Some(named) if named.epoch == epoch => return Ok(()),
            Some(named) => named.record().cloned(),
        };
        let record = record.map_err(|bad| self.bad(bad))?;
        let begin = Instant::now();
        let inner = self.make_again(&self.model.clone(), &record)?;
        let resource = record.resource;
        // An object for the time of the refill alone.
        let handle = self.table.insert(record, epoch, inner.clone());
        let done = match self.model.resources[resource].data {
            Some(function) => self.refill(handle, Some(key), function),
            None => Ok(()),
        };
        self.table.remove(handle);
        // A failed body is reset; where the record is what is damaged it goes on, and must not keep the object.
        if matches!(done, Ok(()) | Err(Stop::Refused(_))) {
            for (body, inner) in self.bodies.iter_mut().zip(inner) {
                body.discard(inner).map_err(failed)?;
            }
        }
        done?;
        if let Some(named) = self.table.names.get_mut(key) {
            named.epoch = Sealed::of(epoch);
        }
        self.stats.rebuilt += 1;
        sample(&mut self.stats.rebuild_ns, begin.elapsed());
        Ok(())
    }

    /// Gives back the names that a call may look at.
    pub(super) fn rename_for(
        &mut self,
        model: &Model,
        function: usize,
        args: &[Value],
    ) -> Result<(), Stop> {
        if let Some(key) = model.name_of(function, args) {
            return self.rename(&key);
        }
        match model.functions[function].effect {
            Effect::Remove { resource, name, .. } => {
                if let Some(Value::String(name)) = args.get(name) {
                    let key = (resource, name.clone());
                    let back = self.rename(&key);
                    if matches!(back, Err(Stop::Refused(CallError::Corrupt { .. }))) {
                        self.take_damaged(&key, function);
                    }
                    back?;
                    // Whether it may go depends on who has it open: they all come back.
                    for handle in self.table.handles() {
                        let record = self
                            .table
                            .slot(handle)
                            .ok()
                            .and_then(|slot| slot.record().ok().cloned());
                        let key =
                            record.and_then(|record| model.name_of(record.creator, &record.args));
                        if key.is_some_and(|(of, key)| of == resource && key == *name) {
                            self.rebuild(handle)?;
                        }
                    }
                }
                Ok(())
            }
            Effect::All { ref resources } => resources
                .iter()
                .try_for_each(|resource| self.bring_all(*resource)),
            _ => Ok(()),
        }
    }

    /// A name whose record or data are damaged cannot come back, but whoever takes it away has it free again, after an error that says so.
    fn take_damaged(&mut self, key: &(usize, String), function: usize) {
        for handle in self.table.handles() {
            let Ok(slot) = self.table.slot(handle) else {
                continue;
            };
            // An object of that name would find it empty; a damaged one might be of that name.
            let of = slot.resource() == key.0;
            let record = slot.record().ok();
            let name = record.and_then(|record| self.model.name_of(record.creator, &record.args));
            if name.as_ref() == Some(key) || of && name.is_none() {
                return;
            }
        }
        self.table.names.remove(key);
        self.begin_anew();
        // The component may have a part of it.
        let what = format!(
            "{} is damaged where the host keeps it, and taken away",
            key.1
        );
        let _ = self.recover(Cause::Replay, Some(function), what);
    }

    /// Gives back everything of a resource: what its names stand for, or its objects where it has no names. Once an epoch.
    fn bring_all(&mut self, resource: usize) -> Result<(), Stop> {
        if self.whole[resource] == self.epoch {
            return Ok(());
        }
        if self.model.resources[resource].named.is_some() {
            let names = self.table.names.keys();
            let keys: Vec<_> = names.filter(|(of, _)| *of == resource).cloned().collect();
            keys.iter().try_for_each(|key| self.rename(key))?;
        } else {
            for handle in self.table.handles() {
                let of = self.table.slot(handle).map(|slot| slot.resource());
                if of == Ok(resource) {
                    self.rebuild(handle)?;
                }
            }
        }
        self.whole[resource] = self.epoch;
        Ok(())
    }

    /// The name that an object was made with.
    pub(super) fn key(&mut self, handle: Handle) -> Option<(usize, String)> {
        let slot = self.table.slot(handle).ok()?;
        // Most resources have no names; a damaged record is met where it is used.
        self.model.resources.get(slot.resource())?.named.as_ref()?;
        let record = slot.record().ok()?;
        self.model.name_of(record.creator, &record.args)
    }

    /// Writes an object's data back.
    fn refill(
        &mut self,
        handle: Handle,
        key: Option<&(usize, String)>,
        function: usize,
    ) -> Result<(), Stop> {
        let model = self.model.clone();
        let Effect::Write {
            offset: at, data, ..
        } = model.functions[function].effect
        else {
            return Ok(());
        };
        let length = self
            .table
            .keeper(handle, key)
            .map_or(Some(0), |keeper| keeper.length());
        let length = length.ok_or_else(|| self.bad(Bad::Corrupt))?;
        let mut done = 0;
        while done < length {
            let piece = self
                .table
                .keeper(handle, key)
                .and_then(|keeper| keeper.read(done, PIECE));
            let Some(piece) = piece else {
                return Err(self.bad(Bad::Corrupt));
            };
            let what = &model.functions[function];
            let mut args = vec![Value::Handle(handle); what.params.len()];
            // Without an offset it appends.
            if let Some(at) = at {
                let Some(offset) = what.params[at].shape.of_number(done as u64) else {
                    return Err(Stop::Failed(
                        Cause::Replay,
                        format!("{} cannot take {done}", what.name),
                    ));
                };
                args[at] = offset;
            }
            let n = piece.len();
            done += n;
            args[data] = Value::Bytes(piece);
            let result = self.run(function, &args, true)?;
            // A result that counts tells that all of it was taken.
            let counts = what.result.as_ref().is_some_and(Shape::counts);
            let short = counts && result.as_ref().and_then(Value::number) != Some(n as u64);
            if short || !When::Ok.holds(result.as_ref()) {
                return Err(Stop::Failed(
                    Cause::Replay,
                    format!("{} gave {result:?}", model.functions[function].name),
                ));
            }
        }
        Ok(())
    }
}
