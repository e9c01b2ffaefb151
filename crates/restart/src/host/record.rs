//! What a call that succeeded has changed, noted in the slot table and the keeper.
//!
//! Invariant: nothing is noted of a call that failed, or whose results differed.

use super::core::{Core, Stop};
use super::keys::Names;
use crate::body::Inners;
use crate::model::{Effect, Identity, Model, Param, Role, Source, Stored};
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
        let Some(resource) = model.functions[function].given() else {
            self.record_change(model, function, args, result.as_ref());
            return Ok(result);
        };
        let inner = self.inner();
        let made = inner.len() == self.bodies.len();
        if let Role::Create { resource, parent } = model.functions[function].role {
            if made {
                let handle = match model.resources[resource].identity {
                    None => {
                        let record = self.new_record(client, function, args, (resource, parent));
                        self.table.insert(record, self.epoch, inner)
                    }
                    Some(identity) => {
                        let given = &model.functions[function].params;
                        let args = identity_args(model, identity, given, args);
                        self.insert_again(model, client, (resource, identity), args, inner)?
                    }
                };
                replace(&mut result, handle);
            }
            return Ok(result);
        }
        if made
            && let Role::Terminal { parameter } = model.functions[function].role
            && let Some(identity) = model.resources[resource].identity
            && let Some(ended) = args.get(parameter).and_then(Value::handle)
        {
            // Beside its identity it is made of what the object was made of whose place it takes.
            let ended = match self.table.slot(ended).and_then(|slot| slot.record()) {
                Ok(record) => record,
                Err(bad) => return Err(self.bad(bad)),
            };
            let given = &model.functions[ended.creator].params;
            let args = identity_args(model, identity, given, &ended.args);
            let handle = self.insert_again(model, client, (resource, identity), args, inner)?;
            replace(&mut result, handle);
        }
        self.record_change(model, function, args, result.as_ref());
        Ok(result)
    }

    /// An object that comes back by its identity, for which it is asked.
    fn insert_again(
        &mut self,
        model: &Model,
        client: u32,
        (resource, identity): (usize, Identity),
        args: Vec<Value>,
        inner: Inners,
    ) -> Result<Handle, Stop> {
        let parent = match model.functions[identity.again].role {
            Role::Create { parent, .. } => parent,
            _ => None,
        };
        let record = self.new_record(client, identity.again, &args, (resource, parent));
        let handle = self.table.insert(record, self.epoch, inner);
        self.identify(handle, identity)?;
        Ok(handle)
    }

    /// Asks a new object what it is, and notes that as how it comes back.
    fn identify(&mut self, handle: Handle, identity: Identity) -> Result<(), Stop> {
        let told = self.run(identity.of, &[handle.into()], true);
        if let (Ok(Some(told)), Ok(slot)) = (&told, self.table.slot(handle)) {
            let told = told.clone();
            slot.update(|record| record.args[identity.place] = told);
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
                    self.apply_keys(model, function, args, result);
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
            self.apply_keys(model, function, args, result);
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

    /// Keys that a call has set or taken away.
    fn apply_keys(
        &mut self,
        model: &Model,
        function: usize,
        args: &[Value],
        result: Option<&Value>,
    ) {
        let effect = &model.functions[function].effect;
        if !matches!(effect, Effect::Put { .. } | Effect::Delete { .. }) {
            return;
        }
        // Looked at before the call as well: what has no key was refused there.
        let Ok(Some(keyed)) = self.keyed(model, function, args) else {
            return;
        };
        let (epoch, name) = (self.epoch, self.key(keyed.of));
        if let Some(keeper) = self.table.keeper(keyed.of, name.as_ref()) {
            let keys = keyed.keys.unwrap_or_default();
            keep_keys(keeper, effect, &keys, args, result, epoch);
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
        let stays = |slot: &mut Slot| {
            let resource = resources.get(slot.resource());
            resource.is_some_and(|resource| resource.children_stay)
        };
        if !(self.table.slot(handle).is_ok_and(stays) && self.table.stay(handle)) {
            self.table.remove(handle);
        }
        self.release_unneeded();
    }
}

/// What makes an object again of its identity, which is not known yet: the other arguments are those of its maker.
fn identity_args(model: &Model, identity: Identity, given: &[Param], args: &[Value]) -> Vec<Value> {
    let params = model.functions[identity.again].params.iter().enumerate();
    let of = |(place, param): (usize, &Param)| {
        let of = given.iter().position(|other| other.name == param.name);
        let arg = of
            .filter(|_| place != identity.place)
            .and_then(|of| args.get(of));
        arg.cloned().unwrap_or(Value::Option(None))
    };
    params.map(of).collect()
}

/// Sets keys or takes them away, as a call did that succeeded.
fn keep_keys(
    keeper: &mut Keeper,
    effect: &Effect,
    keys: &Names<'_>,
    args: &[Value],
    result: Option<&Value>,
    epoch: u64,
) {
    match effect {
        Effect::Put {
            keys: of,
            data,
            when,
        } if when.holds(result) => match data {
            Stored::Param(place) => {
                if let Some(bytes) = args.get(*place).and_then(Value::bytes) {
                    keys.iter().for_each(|key| keeper.put(key, bytes, epoch));
                }
            }
            Stored::Result => {
                let n = result
                    .and_then(Value::decimal)
                    .unwrap_or_else(|| "0".into());
                keys.iter()
                    .for_each(|key| keeper.put(key, n.as_bytes(), epoch));
            }
            Stored::Pair => {
                for pair in of.items(args) {
                    if let Value::Tuple(pair) = pair
                        && let [Value::String(key), data] = &pair[..]
                        && let Some(bytes) = data.bytes()
                    {
                        keeper.put(key, bytes, epoch);
                    }
                }
            }
        },
        Effect::Delete { when, .. } if when.holds(result) => {
            keys.iter().for_each(|key| keeper.delete(key));
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
            Value::Option(Some(inner))
            | Value::Result(Ok(Some(inner)) | Err(Some(inner)))
            | Value::Variant(_, Some(inner)) => inside(inner, handle),
            Value::List(items) | Value::Tuple(items) => {
                items.iter_mut().for_each(|item| inside(item, handle));
            }
            Value::Record(fields) => {
                let values = fields.iter_mut().map(|(_, value)| value);
                values.for_each(|value| inside(value, handle));
            }
            _ => {}
        }
    }
    if let Some(value) = value {
        inside(value, handle);
    }
}
