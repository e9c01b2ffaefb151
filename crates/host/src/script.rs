//! Calls that `app.toml` names: arguments from its text, results as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value as Json, json};
use steadfast_restart::{Edge, Handle, Shape, Value};

use crate::app::Call;
use crate::told::Told;

/// A result as JSON; an object as `$`, since its number means nothing outside.
fn plain(value: &Value) -> Json {
    let maybe = |value: &Option<Box<Value>>| value.as_ref().map_or(Json::Null, |v| plain(v));
    match value {
        Value::Bool(b) => (*b).into(),
        Value::U8(n) => (*n).into(),
        Value::U16(n) => (*n).into(),
        Value::U32(n) => (*n).into(),
        Value::U64(n) => (*n).into(),
        Value::S8(n) => (*n).into(),
        Value::S16(n) => (*n).into(),
        Value::S32(n) => (*n).into(),
        Value::S64(n) => (*n).into(),
        Value::F32(bits) => f64::from(f32::from_bits(*bits)).into(),
        Value::F64(bits) => f64::from_bits(*bits).into(),
        Value::Char(c) => c.to_string().into(),
        Value::String(text) | Value::Enum(text) => text.clone().into(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into(),
        Value::List(items) | Value::Tuple(items) => items.iter().map(plain).collect(),
        Value::Record(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Variant(name, value) => json!({ name: maybe(value) }),
        Value::Option(value) => maybe(value),
        Value::Result(Ok(value)) => json!({ "ok": maybe(value) }),
        Value::Result(Err(value)) => json!({ "err": maybe(value) }),
        Value::Flags(names) => names.clone().into(),
        Value::Handle(_) => "$".into(),
    }
}

/// An argument of the script as a value of the parameter's type.
fn argument(given: &toml::Value, shape: &Shape, named: &BTreeMap<String, Handle>) -> Option<Value> {
    use toml::Value as Toml;
    Some(match (shape, given) {
        (Shape::Bool, Toml::Boolean(b)) => Value::Bool(*b),
        (Shape::S8, Toml::Integer(n)) => Value::S8(i8::try_from(*n).ok()?),
        (Shape::S16, Toml::Integer(n)) => Value::S16(i16::try_from(*n).ok()?),
        (Shape::S32, Toml::Integer(n)) => Value::S32(i32::try_from(*n).ok()?),
        (Shape::S64, Toml::Integer(n)) => Value::S64(*n),
        (_, Toml::Integer(n)) if shape.is_number() => shape.of_number(u64::try_from(*n).ok()?)?,
        (Shape::String, Toml::String(text)) => Value::String(text.clone()),
        (Shape::Enum(cases), Toml::String(text)) if cases.contains(text) => {
            Value::Enum(text.clone())
        }
        (Shape::List(_), Toml::String(text)) if shape.is_bytes() => {
            Value::Bytes(text.as_bytes().to_vec())
        }
        (Shape::List(inner), Toml::Array(items)) => Value::List(
            items
                .iter()
                .map(|item| argument(item, inner, named))
                .collect::<Option<_>>()?,
        ),
        (Shape::Option(inner), given) => {
            Value::Option(Some(Box::new(argument(given, inner, named)?)))
        }
        (Shape::Handle(_), Toml::String(text)) => {
            Value::Handle(*named.get(text.strip_prefix('$')?)?)
        }
        _ => return None,
    })
}

/// The arguments of a call, as the function's types want them.
pub(crate) fn arguments(
    given: &[toml::Value],
    edge: &Edge,
    function: usize,
    named: &BTreeMap<String, Handle>,
) -> Result<Vec<Value>, Told> {
    let function = &edge.model().functions[function];
    let pairs = given.iter().zip(&function.params);
    let values = pairs.map(|(given, param)| {
        argument(given, &param.shape, named).ok_or_else(|| {
            let given = serde_json::to_value(given).unwrap_or_default();
            Told::setup(
                anyhow::anyhow!(
                    "argument {} of {} needs a value of its type, found {given}",
                    param.name,
                    function.path()
                ),
                "a number, a boolean or a text; $NAME for the object of an earlier call with as = \"NAME\"",
            )
        })
    });
    values.collect()
}

/// One line of the script. False where it returned something else than it must.
pub(crate) fn scripted(
    call: &Call,
    edge: &Edge,
    named: &mut BTreeMap<String, Handle>,
) -> Result<bool, Told> {
    let function = edge.function(&call.function)?;
    let args = arguments(&call.args, edge, function, named)?;
    if call.wait_ms.is_some() && edge.model().functions[function].wait.is_none() {
        return Err(Told::setup(
            anyhow::anyhow!(
                "wait_ms needs a function that blocks, and {} of {} has no until in its sidecar file",
                call.function,
                call.to
            ),
            "until and woken_by in the sidecar file, or no wait_ms",
        ));
    }
    for _ in 0..call.repeat {
        let result = match call.wait_ms {
            None => edge.call(function, &args)?,
            Some(ms) => match edge.until(function, &args, Duration::from_millis(ms))? {
                Some(result) => result,
                None => {
                    eprintln!(
                        "steadfast host: {} of {} did not get what it waits for in {ms} ms",
                        call.function, call.to
                    );
                    return Ok(false);
                }
            },
        };
        if let (Some(name), Some(handle)) = (&call.name, result.as_ref().and_then(Value::handle)) {
            named.insert(name.clone(), handle);
        }
        let found = result.as_ref().map_or(Json::Null, plain);
        if call.repeat == 1 {
            println!("{} {}: {found}", call.to, call.function);
        }
        if let Some(expect) = &call.expect {
            let wanted = serde_json::to_value(expect).unwrap_or_default();
            if wanted != found {
                eprintln!(
                    "steadfast host: {} of {} must return {wanted}, found {found}",
                    call.function, call.to
                );
                return Ok(false);
            }
        }
    }
    Ok(true)
}
