//! Keys of objects, and objects that stand for a key of another one: each comes back when a call looks at it.
//!
//! Not covered: an object whose parent was given back. It stands for nothing any more, and its use is an error.

use std::borrow::Cow;
use std::time::Instant;

use smallvec::{SmallVec, smallvec};

use super::core::{Core, Stop};
use crate::model::{Effect, Keys, Model, Role, Stored, When};
use crate::value::{Handle, Value};
use crate::words::{CallError, Cause, sample};

/// One, most often.
pub(super) type Names<'a> = SmallVec<[Cow<'a, str>; 1]>;

/// Of which object a call looks at keys, or changes some.
pub(super) struct Keyed<'a> {
    pub(super) of: Handle,
    /// Those that it names; none: all of them.
    pub(super) keys: Option<Names<'a>>,
}

impl Core {
    /// Which keys a call looks at. None where it looks at none.
    pub(super) fn keyed<'a>(
        &mut self,
        model: &Model,
        function: usize,
        args: &'a [Value],
    ) -> Result<Option<Keyed<'a>>, Stop> {
        let function = &model.functions[function];
        let named = |keys: Keys| keys.named(args).map(Cow::Borrowed).collect();
        let (place, keys) = match (function.role, function.keys) {
            (Role::Method { .. }, Some(Keys::Own)) => return self.own_key(model, args, 0),
            (Role::Terminal { parameter }, Some(Keys::Own)) => {
                return self.own_key(model, args, parameter);
            }
            (Role::Method { resource }, keys) if model.resources[resource].keys.is_some() => {
                (0, keys.map(named))
            }
            (
                Role::Create {
                    parent: Some(parent),
                    ..
                },
                Some(keys),
            ) => (parent, Some(named(keys))),
            _ => return Ok(None),
        };
        let of = args.get(place).and_then(Value::handle);
        Ok(of.map(|of| Keyed { of, keys }))
    }

    /// The parent of an object that stands for one of its keys, and that key.
    fn own_key<'a>(
        &mut self,
        model: &Model,
        args: &[Value],
        place: usize,
    ) -> Result<Option<Keyed<'a>>, Stop> {
        let Some(handle) = args.get(place).and_then(Value::handle) else {
            return Ok(None);
        };
        let record = match self.table.slot(handle) {
            Ok(slot) => slot.record(),
            Err(bad) => Err(bad),
        };
        let record = match record {
            Ok(record) => record,
            Err(bad) => return Err(self.bad(bad)),
        };
        let (parent, creator) = (record.parent, &model.functions[record.creator]);
        let name = model.resources[record.resource].key.as_ref();
        let place = creator.params.iter().position(|p| Some(&p.name) == name);
        let key = match place.and_then(|place| record.args.get(place)) {
            Some(Value::String(key)) => key.clone(),
            _ => return Ok(None),
        };
        match parent {
            Some(of) if self.table.has(of) => Ok(Some(Keyed {
                of,
                keys: Some(smallvec![Cow::Owned(key)]),
            })),
            _ => Err(Stop::Refused(CallError::Orphan {
                component: self.name.clone(),
            })),
        }
    }

    /// Gives back the keys that a call may look at: those that it names, or all of the object that it is given.
    pub(super) fn bring_keys(
        &mut self,
        model: &Model,
        function: usize,
        args: &[Value],
    ) -> Result<(), Stop> {
        let Some(Keyed { of, keys }) = self.keyed(model, function, args)? else {
            return Ok(());
        };
        let Some(keys) = keys else {
            return self.bring_all_keys(of);
        };
        let resource = self.table.slot(of).map(|slot| slot.resource());
        let resource = resource.ok().and_then(|of| model.resources.get(of));
        let Some(put) = resource.and_then(|resource| resource.keys) else {
            return Ok(());
        };
        // What is set anew or taken away need not be what it was: else a damaged value would stay damaged for good.
        let function = &model.functions[function];
        let anew = function.keys != Some(Keys::Own)
            && matches!(
                function.effect,
                Effect::Put {
                    data: Stored::Param(_) | Stored::Pair,
                    ..
                } | Effect::Delete { .. }
            );
        let (name, epoch) = (self.key(of), self.epoch);
        for key in &keys {
            let keeper = self.table.keeper(of, name.as_ref());
            if keeper.is_none_or(|keeper| !keeper.lost(key, epoch)) {
                continue;
            }
            match self.bring_key(of, name.as_ref(), put, key) {
                Err(Stop::Refused(CallError::Corrupt { .. })) if anew => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Gives back all keys of an object.
    pub(super) fn bring_all_keys(&mut self, handle: Handle) -> Result<(), Stop> {
        let resource = self.table.slot(handle).map(|slot| slot.resource());
        let resource = resource.ok().and_then(|of| self.model.resources.get(of));
        let Some(put) = resource.and_then(|resource| resource.keys) else {
            return Ok(());
        };
        let (name, epoch) = (self.key(handle), self.epoch);
        let keeper = self.table.keeper(handle, name.as_ref());
        let lost = keeper.map(|keeper| keeper.all_lost(epoch));
        let lost = lost.unwrap_or_default();
        lost.iter()
            .try_for_each(|key| self.bring_key(handle, name.as_ref(), put, key))
    }

    fn bring_key(
        &mut self,
        handle: Handle,
        name: Option<&(usize, String)>,
        put: usize,
        key: &str,
    ) -> Result<(), Stop> {
        let begin = Instant::now();
        let model = self.model.clone();
        let epoch = self.epoch;
        let Effect::Put {
            keys: Keys::One(at),
            data: Stored::Param(data),
            ..
        } = model.functions[put].effect
        else {
            return Ok(());
        };
        let kept = match self
            .table
            .keeper(handle, name)
            .map(|keeper| keeper.key(key))
        {
            Some(Ok(Some(bytes))) => bytes.to_vec(),
            Some(Err(bad)) => return Err(self.bad(bad)),
            Some(Ok(None)) | None => return Ok(()),
        };
        let mut args = vec![Value::Handle(handle); 3];
        args[at] = Value::String(key.to_owned());
        args[data] = Value::Bytes(kept);
        let result = self.run(put, &args, true)?;
        if !When::Ok.holds(result.as_ref()) {
            return Err(Stop::Failed(
                Cause::Replay,
                format!("{} gave {result:?}", model.functions[put].name),
            ));
        }
        if let Some(keeper) = self.table.keeper(handle, name) {
            keeper.back(key, epoch);
        }
        self.stats.rebuilt += 1;
        sample(&mut self.stats.rebuild_ns, begin.elapsed());
        Ok(())
    }
}
