//! Values that a generated test gives: `[test]` of the sidecar file, by the name of a parameter or of a field of a record.

use std::collections::BTreeMap;

use super::sidecar::Sidecar;
use super::words::{Model, ModelError};
use crate::shape::Shape;
use crate::value::Value;

/// What the sidecar file says of them.
#[derive(Debug, Clone, Default)]
pub struct Samples(BTreeMap<String, Vec<toml::Value>>);

impl Samples {
    /// Those of a sidecar file.
    ///
    /// # Errors
    /// When it cannot be read; when no parameter or field of the interface has such a name, or not that type.
    pub fn of(sidecar: &str, model: &Model) -> Result<Self, ModelError> {
        let sidecar: Sidecar =
            toml::from_str(sidecar).map_err(|error| ModelError::Sidecar(error.to_string()))?;
        for (name, values) in &sidecar.test {
            let mut shapes = Vec::new();
            for param in model.functions.iter().flat_map(|f| &f.params) {
                named(&param.name, &param.shape, name, &mut shapes);
            }
            if shapes.is_empty() {
                return Err(ModelError::Unknown(format!("[test] {name}")));
            }
            let fits = |value: &toml::Value| shapes.iter().any(|s| value_of(s, value).is_some());
            if let Some(other) = values.iter().find(|value| !fits(value)) {
                return Err(ModelError::Sidecar(format!(
                    "[test] {name}: {other:?} is no value of its type"
                )));
            }
        }
        Ok(Self(sidecar.test))
    }

    /// Those of a name that are of that type.
    pub(crate) fn get(&self, name: &str, shape: &Shape) -> Vec<Value> {
        let values = self.0.get(name).into_iter().flatten();
        values.filter_map(|value| value_of(shape, value)).collect()
    }
}

/// The types that a name stands for in a type.
fn named<'a>(own: &str, shape: &'a Shape, name: &str, found: &mut Vec<&'a Shape>) {
    if own == name {
        found.push(shape);
    }
    match shape {
        Shape::List(inner) | Shape::Option(inner) => named("", inner, name, found),
        Shape::Record(fields) => fields
            .iter()
            .for_each(|(field, shape)| named(field, shape, name, found)),
        Shape::Tuple(shapes) => shapes.iter().for_each(|s| named("", s, name, found)),
        Shape::Variant(cases) => cases.iter().for_each(|(case, shape)| {
            shape.iter().for_each(|s| named(case, s, name, found));
        }),
        _ => {}
    }
}

fn value_of(shape: &Shape, value: &toml::Value) -> Option<Value> {
    Some(match (shape, value) {
        (Shape::Bool, toml::Value::Boolean(b)) => Value::Bool(*b),
        (Shape::String, toml::Value::String(text)) => Value::String(text.clone()),
        (Shape::Enum(cases), toml::Value::String(text)) if cases.contains(text) => {
            Value::Enum(text.clone())
        }
        (Shape::List(_), toml::Value::String(text)) if shape.is_bytes() => {
            Value::Bytes(text.clone().into_bytes())
        }
        (Shape::Flags(names), toml::Value::Array(given)) => {
            let given = given.iter().filter_map(toml::Value::as_str);
            let given: Vec<_> = given.map(str::to_owned).collect();
            given
                .iter()
                .all(|flag| names.contains(flag))
                .then_some(Value::Flags(given))?
        }
        (Shape::Option(inner), value) => Value::Option(Some(Box::new(value_of(inner, value)?))),
        (Shape::S8, toml::Value::Integer(n)) => Value::S8(i8::try_from(*n).ok()?),
        (Shape::S16, toml::Value::Integer(n)) => Value::S16(i16::try_from(*n).ok()?),
        (Shape::S32, toml::Value::Integer(n)) => Value::S32(i32::try_from(*n).ok()?),
        (Shape::S64, toml::Value::Integer(n)) => Value::S64(*n),
        (shape, toml::Value::Integer(n)) => shape.of_number(u64::try_from(*n).ok()?)?,
        _ => return None,
    })
}
