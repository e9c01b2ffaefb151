//! Values between wasmtime's form and ours.

use wasmtime::component::{ResourceAny, Val};

use crate::value::{Handle, Value};

pub(super) fn to_val(
    value: &Value,
    inner: &mut dyn FnMut(Handle) -> Option<ResourceAny>,
) -> Option<Val> {
    let mut boxed = |value: &Option<Box<Value>>| match value {
        None => Some(None),
        Some(value) => to_val(value, inner).map(|value| Some(Box::new(value))),
    };
    Some(match value {
        Value::Bool(b) => Val::Bool(*b),
        Value::U8(n) => Val::U8(*n),
        Value::U16(n) => Val::U16(*n),
        Value::U32(n) => Val::U32(*n),
        Value::U64(n) => Val::U64(*n),
        Value::S8(n) => Val::S8(*n),
        Value::S16(n) => Val::S16(*n),
        Value::S32(n) => Val::S32(*n),
        Value::S64(n) => Val::S64(*n),
        Value::F32(bits) => Val::Float32(f32::from_bits(*bits)),
        Value::F64(bits) => Val::Float64(f64::from_bits(*bits)),
        Value::Char(c) => Val::Char(*c),
        Value::String(s) => Val::String(s.clone()),
        Value::Bytes(bytes) => Val::List(bytes.iter().map(|byte| Val::U8(*byte)).collect()),
        Value::List(items) => Val::List(
            items
                .iter()
                .map(|item| to_val(item, inner))
                .collect::<Option<_>>()?,
        ),
        Value::Tuple(items) => Val::Tuple(
            items
                .iter()
                .map(|item| to_val(item, inner))
                .collect::<Option<_>>()?,
        ),
        Value::Record(fields) => Val::Record(
            fields
                .iter()
                .map(|(name, value)| Some((name.clone(), to_val(value, inner)?)))
                .collect::<Option<_>>()?,
        ),
        Value::Variant(name, value) => Val::Variant(name.clone(), boxed(value)?),
        Value::Enum(name) => Val::Enum(name.clone()),
        Value::Option(value) => Val::Option(boxed(value)?),
        Value::Result(Ok(value)) => Val::Result(Ok(boxed(value)?)),
        Value::Result(Err(value)) => Val::Result(Err(boxed(value)?)),
        Value::Flags(names) => Val::Flags(names.clone()),
        Value::Handle(handle) => Val::Resource(inner(*handle)?),
    })
}

/// An object of a result: its place in `made`.
pub(super) fn made_place(inner: ResourceAny, made: &mut Vec<ResourceAny>) -> Option<Value> {
    let index = u32::try_from(made.len()).ok()?;
    made.push(inner);
    Some(Value::Handle(Handle {
        index,
        generation: u32::MAX,
    }))
}

/// A value of a result. A handle in it becomes its place in `made`.
pub(super) fn from_val(value: &Val, made: &mut Vec<ResourceAny>) -> Option<Value> {
    let mut boxed = |value: &Option<Box<Val>>| match value {
        None => Some(None),
        Some(value) => from_val(value, made).map(|value| Some(Box::new(value))),
    };
    Some(match value {
        Val::Bool(b) => Value::Bool(*b),
        Val::U8(n) => Value::U8(*n),
        Val::U16(n) => Value::U16(*n),
        Val::U32(n) => Value::U32(*n),
        Val::U64(n) => Value::U64(*n),
        Val::S8(n) => Value::S8(*n),
        Val::S16(n) => Value::S16(*n),
        Val::S32(n) => Value::S32(*n),
        Val::S64(n) => Value::S64(*n),
        Val::Float32(n) => Value::F32(n.to_bits()),
        Val::Float64(n) => Value::F64(n.to_bits()),
        Val::Char(c) => Value::Char(*c),
        Val::String(s) => Value::String(s.clone()),
        Val::List(items) if matches!(items.first(), Some(Val::U8(_))) => Value::Bytes(
            items
                .iter()
                .map(|item| {
                    if let Val::U8(byte) = item {
                        Some(*byte)
                    } else {
                        None
                    }
                })
                .collect::<Option<_>>()?,
        ),
        Val::List(items) => Value::List(
            items
                .iter()
                .map(|item| from_val(item, made))
                .collect::<Option<_>>()?,
        ),
        Val::Tuple(items) => Value::Tuple(
            items
                .iter()
                .map(|item| from_val(item, made))
                .collect::<Option<_>>()?,
        ),
        Val::Record(fields) => Value::Record(
            fields
                .iter()
                .map(|(name, value)| Some((name.clone(), from_val(value, made)?)))
                .collect::<Option<_>>()?,
        ),
        Val::Variant(name, value) => Value::Variant(name.clone(), boxed(value)?),
        Val::Enum(name) => Value::Enum(name.clone()),
        Val::Option(value) => Value::Option(boxed(value)?),
        Val::Result(Ok(value)) => Value::Result(Ok(boxed(value)?)),
        Val::Result(Err(value)) => Value::Result(Err(boxed(value)?)),
        Val::Flags(names) => Value::Flags(names.clone()),
        Val::Resource(inner) => made_place(*inner, made)?,
        _ => return None,
    })
}
