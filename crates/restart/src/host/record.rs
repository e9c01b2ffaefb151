//! What a call that succeeded has changed, noted in the slot table and the keeper.
//!
//! Invariant: nothing is noted of a call that failed, or whose results differed.

use super::core::{Core, Stop};
use crate::model::{Effect, Identity, Model, Role, Source, Stored};
use crate::table::{Keeper, Record, Slot};
use crate::value::{Handle, Value};
use crate::words::Cause;

impl Core {
    /// Notes what a call has changed.
    pub(super) fn record(
        &mut self,
        model: &Model,
        client: u32,
        function: usize,
        args: &[Value],
        mut result: Option<Value>,
    ) -> Result<Option<Value>, Stop> {
        if let Role::Create { resource, parent } = model.functions[function].role {
            let inner = self.inner();
            if inner.len() == self.bodies.len() {
                let handle = match model.resources[resource].identity {
                    None => {
                        let record = self.new_record(client, function, args, (resource, parent));
                        self.table.insert(record, self.epoch, inner)
                    }
                    Some(identity) => {
                        let again = identity.again;
                        let record = self.new_record(client, again, &[], (resource, None));
                        let handle = self.table.insert(record, self.epoch, inner);
                        self.identify(handle, identity)?;
                        handle
                    }
                };
                replace(&mut result, handle);
            }
        } else {
            self.record_change(model, function, args, result.as_ref());
        }
        Ok(result)
    }

    /// Asks a new object what it is, and notes that as how it comes back.
    fn identify(&mut self, handle: Handle, identity: Identity) -> Result<(), Stop> {
        let told = self.run(identity.of, &[handle.into()], true);
        if let (Ok(Some(told)), Ok(slot)) = (&told, self.table.slot(handle)) {
            let told = told.clone();
            slot.update(|record| record.args = vec![told]);
            return Ok(());
        }
        // The call begins again: nobody has this handle.
        self.table.remove(handle);
        match told {
            Err(stop) => Err(stop),
            Ok(_) => Err(Stop::Failed(
                Cause::Replay,
                "an object without identity".into(),
            )),
        }
    }

    /// The same for a call of another process, which made the object of that handle. None where it cannot have.
    pub(super) fn record_again(
        &mut self,
        client: u32,
        function: usize,
        args: &[Value],
        result: Option<Value>,
        made: Option<Handle>,
    ) -> Option<()> {
        match (self.model.functions[function].role, made) {
            (Role::Create { resource, parent }, Some(handle)) => {
                let record = self.new_record(client, function, args, (resource, parent));
                self.table.insert_at(handle, record)?;
            }
            (Role::Create { .. }, None) => {}
            _ => self.record_change(&self.model.clone(), function, args, result.as_ref()),
        }
        Some(())
    }

    fn new_record(
        &mut self,
        client: u32,
        function: usize,
        args: &[Value],
        (resource, parent): (usize, Option<usize>),
    ) -> Record {
        let record = Record {
            resource,
            owner: client,
            creator: function,
            args: args.to_vec(),
            fields: vec![0; self.model.resources[resource].fields.len()],
            parent: parent
                .and_then(|place| args.get(place))
                .and_then(Value::handle),
            ..Record::default()
        };
        if let Some(key) = self.model.name_of(function, args) {
            self.table.name(key, &record, self.epoch);
        }
        record
    }

    /// What a call that made nothing has changed.
    fn record_change(
        &mut self,
        model: &Model,
        function: usize,
        args: &[Value],
        result: Option<&Value>,
    ) {
        match model.functions[function].role {
            Role::Create { .. } => {}
            Role::Method { .. } => {
                if let Some(handle) = args.first().and_then(Value::handle) {
                    self.apply(model, handle, function, args, result);
                }
            }
            Role::Terminal { parameter } => {
                if let Some(handle) = args.get(parameter).and_then(Value::handle) {
                    self.forget(handle);
                }
            }
            Role::Free => {
                if let Effect::Remove {
                    resource,
                    name,
                    when,
                } = model.functions[function].effect
                    && when.holds(result)
                    && let Some(Value::String(name)) = args.get(name)
                {
                    self.table.names.remove(&(resource, name.clone()));
                }
            }
        }
    }

    fn apply(
        &mut self,
        model: &Model,
        handle: Handle,
        function: usize,
        args: &[Value],
        result: Option<&Value>,
    ) {
        let number = |place: usize| args.get(place).and_then(Value::number);
        let effect = &model.functions[function].effect;
        if let Effect::Write { when, .. } | Effect::Truncate { when, .. } = effect {
            let key = self.key(handle);
            if let Some(keeper) = self.table.keeper(handle, key.as_ref())
                && when.holds(result)
            {
                keep(keeper, effect, args, result);
            }
            return;
        }
        if let Effect::Put { .. } | Effect::Delete { .. } = effect {
            let (epoch, key) = (self.epoch, self.key(handle));
            if let Some(keeper) = self.table.keeper(handle, key.as_ref()) {
                keep_key(keeper, effect, args, result, epoch);
            }
            return;
        }
        if let Effect::Move { parent, when } = effect {
            if when.holds(result)
                && let Some(parent) = args.get(*parent).and_then(Value::handle)
            {
                self.move_to(model, handle, parent);
            }
            return;
        }
        let Ok(slot) = self.table.slot(handle) else {
            return;
        };
        match &model.functions[function].effect {
            Effect::None => {}
            Effect::State {
                to, when, remember, ..
            } if when.holds(result) => slot.update(|record| {
                record.state = *to;
                let path = &model.resources[record.resource].paths[*to];
                record.remembered.retain(|(f, _)| path.contains(f));
                if path.contains(&function) {
                    let kept = remember
                        .iter()
                        .filter_map(|place| Some((*place, args.get(*place)?.clone())));
                    // In the room of the last call's, where there was one.
                    match record.remembered.iter_mut().find(|(f, _)| *f == function) {
                        Some((_, room)) => {
                            room.clear();
                            room.extend(kept);
                        }
                        None => record.remembered.push((function, kept.collect())),
                    }
                }
            }),
            Effect::Field {
                field,
                add,
                source,
                when,
            } if when.holds(result) => {
                let value = match source {
                    Source::Result => result.and_then(Value::number),
                    Source::Param(place) => number(*place),
                };
                slot.update(|record| {
                    let base = if *add { record.fields[*field] } else { 0 };
                    record.fields[*field] = base.wrapping_add(value.unwrap_or(0));
                });
            }
            _ => {}
        }
    }

    /// The place of the parent among the arguments of the object's maker.
    fn move_to(&mut self, model: &Model, handle: Handle, parent: Handle) {
        let creator = self
            .table
            .slot(handle)
            .ok()
            .and_then(|slot| slot.record().ok().map(|record| record.creator));
        let maker = creator.and_then(|creator| model.functions.get(creator));
        if let Some(Role::Create {
            parent: Some(place),
            ..
        }) = maker.map(|maker| maker.role)
        {
            self.table.move_to(handle, parent, place);
        }
    }

    /// Takes an object out of the table, with what was made from it where that ends together with it.
    pub(super) fn forget(&mut self, handle: Handle) {
        // A hint before the record is read: a damaged one names no resource, or another one.
        let resources = &self.model.resources;
        let ends = |slot: &mut Slot| {
            let resource = resources.get(slot.resource());
            resource.is_some_and(|resource| resource.children_end)
        };
        if self.table.slot(handle).is_ok_and(ends) {
            for child in self.table.descendants(handle).unwrap_or_default() {
                self.table.remove(child);
            }
        }
        self.table.remove(handle);
        self.release_unneeded();
    }
}

/// Sets keys or takes them away, as a call did that succeeded.
fn keep_key(
    keeper: &mut Keeper,
    effect: &Effect,
    args: &[Value],
    result: Option<&Value>,
    epoch: u64,
) {
    match effect {
        Effect::Put { keys, data, when } if when.holds(result) => match data {
            Stored::Param(place) => {
                if let Some(bytes) = args.get(*place).and_then(Value::bytes) {
                    keys.named(args)
                        .for_each(|key| keeper.put(key, bytes, epoch));
                }
            }
            Stored::Result => {
                let n = result.and_then(Value::number).unwrap_or(0).to_string();
                keys.named(args)
                    .for_each(|key| keeper.put(key, n.as_bytes(), epoch));
            }
            Stored::Pair => {
                for pair in keys.items(args) {
                    if let Value::Tuple(pair) = pair
                        && let [Value::String(key), data] = &pair[..]
                        && let Some(bytes) = data.bytes()
                    {
                        keeper.put(key, bytes, epoch);
                    }
                }
            }
        },
        Effect::Delete { keys, when } if when.holds(result) => {
            keys.named(args).for_each(|key| keeper.delete(key));
        }
        _ => {}
    }
}

/// Writes or cuts what the keeper holds, as a call did that succeeded.
fn keep(keeper: &mut Keeper, effect: &Effect, args: &[Value], result: Option<&Value>) {
    let number = |place: usize| {
        args.get(place)
            .and_then(Value::number)
            .and_then(|n| usize::try_from(n).ok())
    };
    match effect {
        Effect::Write { offset, data, .. } => {
            let at = offset.map_or_else(|| keeper.length(), number);
            if let (Some(at), Some(bytes)) = (at, args.get(*data).and_then(Value::bytes)) {
                // A result that is a number tells how much of it was written.
                let n = result
                    .and_then(Value::number)
                    .and_then(|n| usize::try_from(n).ok())
                    .unwrap_or(bytes.len());
                keeper.write(at, &bytes[..n.min(bytes.len())]);
            }
        }
        Effect::Truncate { length, .. } => {
            if let Some(length) = number(*length) {
                keeper.truncate(length);
            }
        }
        _ => {}
    }
}

/// Puts a handle where a result names a new object.
pub(super) fn replace(value: &mut Option<Value>, handle: Handle) {
    fn inside(value: &mut Value, handle: Handle) {
        match value {
            Value::Handle(place) => *place = handle,
            Value::Option(Some(inner)) | Value::Result(Ok(Some(inner))) => inside(inner, handle),
            Value::List(items) | Value::Tuple(items) => {
                items.iter_mut().for_each(|item| inside(item, handle));
            }
            _ => {}
        }
    }
    if let Some(value) = value {
        inside(value, handle);
    }
}
