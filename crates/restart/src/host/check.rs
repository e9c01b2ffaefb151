//! What a call may be given, and what it may return: handles, ranges, and results that are known beforehand.
//!
//! Invariant: a check looks and changes nothing; what fails it before the call is the caller's error, behind it the component's.
//!
//! Not covered: results that nothing is known about; two bodies compare these.

use super::core::{Core, Stop};
use crate::model::{Effect, Keys, Model, Passing, Returns};
use crate::shape::Shape;
use crate::table::{Bad, Table};
use crate::value::Value;
use crate::words::{CallError, Cause};

impl Core {
    pub(super) fn check_arguments(
        &mut self,
        model: &Model,
        client: u32,
        function: usize,
        args: &[Value],
    ) -> Result<(), CallError> {
        let function = &model.functions[function];
        if args.len() != function.params.len() {
            return Err(CallError::Count {
                function: function.name.clone(),
                needed: function.params.len(),
                found: args.len(),
            });
        }
        for (arg, param) in args.iter().zip(&function.params) {
            let lent = match param.passing {
                Passing::Value => &[],
                _ => arg.lent(),
            };
            // A stale handle is told when it is looked up; one of another resource must not reach the component either.
            let of = match &param.shape {
                Shape::List(inner) => inner,
                shape => shape,
            };
            let other = |table: &mut Table| {
                lent.iter().any(|one| match (of, one) {
                    (Shape::Handle(of), Value::Handle(handle)) => {
                        table.slot(*handle).is_ok_and(|slot| slot.resource() != *of)
                    }
                    _ => false,
                })
            };
            if !param.shape.fits(arg) || other(&mut self.table) {
                return Err(CallError::Type {
                    function: function.name.clone(),
                    parameter: param.name.clone(),
                });
            }
            // Handles are numbers, so whoever guesses one must not reach another client's object.
            let foreign = |table: &mut Table| {
                lent.iter()
                    .filter_map(Value::handle)
                    .any(|handle| table.slot(handle).is_ok_and(|slot| slot.owner() != client))
            };
            if foreign(&mut self.table) {
                return Err(CallError::Foreign {
                    component: self.name.clone(),
                    function: function.name.clone(),
                });
            }
        }
        for &(place, max) in &function.argument_max {
            if let Some(found) = args.get(place).and_then(Value::number)
                && found > max
            {
                let parameter = function.params[place].name.clone();
                return Err(CallError::Argument {
                    function: function.name.clone(),
                    parameter,
                    found,
                    max,
                });
            }
        }
        Ok(())
    }

    /// Whether the result is one that the interface, and the slot, allow.
    pub(super) fn check_result(
        &mut self,
        model: &Model,
        function: usize,
        args: &[Value],
        result: Option<&Value>,
    ) -> Result<(), Stop> {
        let function = &model.functions[function];
        if let Effect::Move { parent, when } = &function.effect
            && when.holds(result)
            && let (Some(child), Some(parent)) = (
                args.first().and_then(Value::handle),
                args.get(*parent).and_then(Value::handle),
            )
        {
            // Nothing could make it again: each would have to be there first.
            let below = self.table.descendants(child);
            let below = below.map_err(|bad| self.bad(bad))?;
            if parent == child || below.contains(&parent) {
                return Err(Stop::Failed(
                    Cause::Wrong,
                    format!("{} moved an object into itself", function.name),
                ));
            }
        }
        if !self.policy.checks {
            return Ok(());
        }
        if let (Effect::State { from, when, .. }, Some(Value::Handle(handle))) =
            (&function.effect, args.first())
            && !from.is_empty()
            && when.holds(result)
            && let Ok(Ok(record)) = self.table.slot(*handle).map(|slot| slot.record())
            && !from.contains(&record.state)
        {
            let state = &model.resources[record.resource].states[record.state];
            return Err(Stop::Failed(
                Cause::Wrong,
                format!("{} succeeded in state {state}", function.name),
            ));
        }
        if let (Some(max), Some(found)) = (function.result_max, result.and_then(Value::number))
            && found > max
        {
            return Err(Stop::Failed(
                Cause::Range,
                format!("{} gave {found}, at most {max} is allowed", function.name),
            ));
        }
        let (Some(returns), Some(Value::Handle(handle)), Some(result)) =
            (&function.returns, args.first(), result)
        else {
            return Ok(());
        };
        let key = self.key(*handle);
        let right = match returns {
            Returns::Remembered {
                state,
                function,
                parameter,
            } => {
                let Ok(slot) = self.table.slot(*handle) else {
                    return Ok(());
                };
                let record = slot.record().ok();
                let known = record
                    .filter(|r| r.state == *state)
                    .and_then(|r| r.remembered(*function, *parameter))
                    .cloned();
                *result == Value::Option(known.map(Box::new))
            }
            Returns::Keys(keys) => {
                let Some(keeper) = self.table.keeper(*handle, key.as_ref()) else {
                    return Ok(());
                };
                let of = |name| keeper.key(name).map(|kept| (name, kept));
                let told = match (keys, result) {
                    // An error is not known beforehand.
                    (_, Value::Result(Err(_))) => Ok(true),
                    (Keys::One(_), result) => keys
                        .named(args)
                        .try_fold(true, |_, name| Ok(tells(result, of(name)?))),
                    (Keys::Each(_), result) => tell(result, keys.named(args).map(of)),
                    (Keys::Own, _) => Ok(true),
                };
                match told {
                    Ok(right) => right,
                    Err(bad) => return Err(self.bad(bad)),
                }
            }
            Returns::Data { offset, length } => {
                let number = |place: usize| {
                    args.get(place)
                        .and_then(Value::number)
                        .and_then(|n| usize::try_from(n).ok())
                };
                let Some(keeper) = self.table.keeper(*handle, key.as_ref()) else {
                    return Ok(());
                };
                match (number(*offset), number(*length), result) {
                    (Some(offset), Some(length), Value::Result(Ok(Some(data)))) => {
                        let kept = keeper.read(offset, length);
                        let kept = kept.ok_or_else(|| self.bad(Bad::Corrupt))?;
                        match &**data {
                            Value::Bytes(bytes) => *bytes == kept,
                            Value::List(items) => items.is_empty() && kept.is_empty(),
                            _ => false,
                        }
                    }
                    _ => true,
                }
            }
        };
        if right {
            Ok(())
        } else {
            Err(Stop::Failed(
                Cause::Wrong,
                format!("{} gave {result:?}", function.name),
            ))
        }
    }
}

/// A key, and what is kept for it.
type Known<'a> = (&'a str, Option<&'a [u8]>);

/// Whether a list says of each key, in their order, what is kept.
fn tell<'a>(
    result: &Value,
    keys: impl Iterator<Item = Result<Known<'a>, Bad>>,
) -> Result<bool, Bad> {
    let items = match result {
        Value::Result(Ok(Some(inner))) => return tell(inner, keys),
        Value::List(items) => &items[..],
        _ => return Ok(false),
    };
    let mut items = items.iter();
    for known in keys {
        let known = known?;
        if !items.next().is_some_and(|item| tells(item, known)) {
            return Ok(false);
        }
    }
    Ok(items.next().is_none())
}

/// Whether a result says of a key what is kept: its value, alone or beside the key, or whether it is there.
fn tells(result: &Value, (key, kept): Known<'_>) -> bool {
    match (result, kept) {
        (Value::Result(Ok(Some(inner))), _) => tells(inner, (key, kept)),
        (Value::Bool(there), _) => *there == kept.is_some(),
        (Value::Option(None), None) => true,
        (Value::Option(Some(value)), Some(kept)) => match &**value {
            Value::Tuple(pair) => match &pair[..] {
                [Value::String(of), value] => of == key && value.bytes() == Some(kept),
                _ => false,
            },
            value => value.bytes() == Some(kept),
        },
        _ => false,
    }
}
