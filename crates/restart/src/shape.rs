//! Types of values that cross the edge of a component, as the WIT has them.
//!
//! Invariant: an argument that does not fit is the caller's mistake and never reaches a component, so that no caller can have one reset.

use std::collections::BTreeSet;

use crate::value::Value;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    Bool,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F32,
    F64,
    Char,
    String,
    List(Box<Shape>),
    Record(Vec<(String, Shape)>),
    Tuple(Vec<Shape>),
    Variant(Vec<(String, Option<Box<Shape>>)>),
    Enum(Vec<String>),
    Option(Box<Shape>),
    Result(Option<Box<Shape>>, Option<Box<Shape>>),
    Flags(Vec<String>),
    /// An object of that resource.
    Handle(usize),
}

fn maybe(shape: Option<&Shape>, value: Option<&Value>) -> bool {
    match (shape, value) {
        (None, None) => true,
        (Some(shape), Some(value)) => shape.fits(value),
        _ => false,
    }
}

impl Shape {
    /// Whether a value is of this type; of a handle only that it is one.
    #[must_use]
    pub fn fits(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Bool, Value::Bool(_))
            | (Self::U8, Value::U8(_))
            | (Self::U16, Value::U16(_))
            | (Self::U32, Value::U32(_))
            | (Self::U64, Value::U64(_))
            | (Self::S8, Value::S8(_))
            | (Self::S16, Value::S16(_))
            | (Self::S32, Value::S32(_))
            | (Self::S64, Value::S64(_))
            | (Self::F32, Value::F32(_))
            | (Self::F64, Value::F64(_))
            | (Self::Char, Value::Char(_))
            | (Self::String, Value::String(_))
            | (Self::Handle(_), Value::Handle(_)) => true,
            (Self::List(inner), Value::Bytes(_)) => **inner == Self::U8,
            (Self::List(inner), Value::List(items)) => items.iter().all(|item| inner.fits(item)),
            (Self::Record(fields), Value::Record(values)) => {
                fields.len() == values.len()
                    && fields
                        .iter()
                        .zip(values)
                        .all(|((name, shape), (given, value))| name == given && shape.fits(value))
            }
            (Self::Tuple(shapes), Value::Tuple(values)) => {
                shapes.len() == values.len()
                    && shapes
                        .iter()
                        .zip(values)
                        .all(|(shape, value)| shape.fits(value))
            }
            (Self::Variant(cases), Value::Variant(name, value)) => cases
                .iter()
                .any(|(case, shape)| case == name && maybe(shape.as_deref(), value.as_deref())),
            (Self::Enum(cases), Value::Enum(name)) => cases.contains(name),
            (Self::Option(inner), Value::Option(value)) => {
                value.as_ref().is_none_or(|value| inner.fits(value))
            }
            (Self::Result(ok, err), Value::Result(value)) => match value {
                Ok(value) => maybe(ok.as_deref(), value.as_deref()),
                Err(value) => maybe(err.as_deref(), value.as_deref()),
            },
            (Self::Flags(names), Value::Flags(given)) => {
                given.iter().all(|flag| names.contains(flag))
            }
            _ => false,
        }
    }

    /// The same, whichever resource an object is of.
    pub(crate) fn plain(&self) -> Self {
        let boxed = |of: &Option<Box<Self>>| of.as_ref().map(|of| Box::new(of.plain()));
        match self {
            Self::Handle(_) => Self::Handle(0),
            Self::List(inner) => Self::List(Box::new(inner.plain())),
            Self::Option(inner) => Self::Option(Box::new(inner.plain())),
            Self::Tuple(shapes) => Self::Tuple(shapes.iter().map(Self::plain).collect()),
            Self::Record(fields) => {
                let fields = fields.iter();
                Self::Record(
                    fields
                        .map(|(name, of)| (name.clone(), of.plain()))
                        .collect(),
                )
            }
            Self::Variant(cases) => {
                let cases = cases.iter();
                Self::Variant(cases.map(|(name, of)| (name.clone(), boxed(of))).collect())
            }
            Self::Result(ok, err) => Self::Result(boxed(ok), boxed(err)),
            other => other.clone(),
        }
    }

    /// As WIT names it, or its kind.
    pub(crate) fn word(&self) -> String {
        match self {
            Self::List(inner) => format!("list<{}>", inner.word()),
            Self::Option(inner) => format!("option<{}>", inner.word()),
            Self::Handle(_) => "an object".into(),
            Self::Record(_) => "a record".into(),
            Self::Tuple(_) => "a tuple".into(),
            Self::Variant(_) => "a variant".into(),
            Self::Enum(_) => "an enum".into(),
            Self::Flags(_) => "flags".into(),
            Self::Result(ok, err) => {
                let word = |of: &Option<Box<Self>>| of.as_ref().map_or("_".into(), |of| of.word());
                format!("result<{}, {}>", word(ok), word(err))
            }
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// Whether an object is in it anywhere.
    #[must_use]
    pub fn has_handle(&self) -> bool {
        match self {
            Self::Handle(_) => true,
            Self::List(inner) | Self::Option(inner) => inner.has_handle(),
            Self::Record(fields) => fields.iter().any(|(_, shape)| shape.has_handle()),
            Self::Tuple(shapes) => shapes.iter().any(Self::has_handle),
            Self::Variant(cases) => cases
                .iter()
                .filter_map(|(_, shape)| shape.as_ref())
                .any(|shape| shape.has_handle()),
            Self::Result(ok, err) => [ok, err].into_iter().flatten().any(|s| s.has_handle()),
            _ => false,
        }
    }

    /// Whether a result of this type holds no object, or just one where the host looks for it: directly, in `ok` or in `some`.
    #[must_use]
    pub fn gives_one(&self) -> bool {
        match self {
            Self::Handle(_) => true,
            Self::Option(inner) => inner.gives_one(),
            Self::Result(ok, err) => {
                ok.as_ref().is_none_or(|ok| ok.gives_one())
                    && !err.as_ref().is_some_and(|err| err.has_handle())
            }
            other => !other.has_handle(),
        }
    }

    /// How many objects a value of this type holds at most; none where there is no bound.
    #[must_use]
    pub fn objects_max(&self) -> Option<usize> {
        let of = |shape: &Option<Box<Self>>| shape.as_ref().map_or(Some(0), |of| of.objects_max());
        match self {
            Self::Handle(_) => Some(1),
            Self::List(inner) => inner.objects_max().filter(|most| *most == 0),
            Self::Option(inner) => inner.objects_max(),
            Self::Record(fields) => fields.iter().map(|(_, of)| of.objects_max()).sum(),
            Self::Tuple(shapes) => shapes.iter().map(Self::objects_max).sum(),
            Self::Variant(cases) => {
                let mut most = cases.iter().map(|(_, shape)| of(shape));
                most.try_fold(0, |most, one| Some(most.max(one?)))
            }
            Self::Result(ok, err) => Some(of(ok)?.max(of(err)?)),
            _ => Some(0),
        }
    }

    /// Of which resources objects are that are in it anywhere.
    #[must_use]
    pub fn resources(&self) -> BTreeSet<usize> {
        fn all<'a>(shapes: impl Iterator<Item = &'a Shape>) -> BTreeSet<usize> {
            shapes.flat_map(Shape::resources).collect()
        }
        match self {
            Self::Handle(resource) => BTreeSet::from([*resource]),
            Self::List(inner) | Self::Option(inner) => inner.resources(),
            Self::Record(fields) => all(fields.iter().map(|(_, shape)| shape)),
            Self::Tuple(shapes) => all(shapes.iter()),
            Self::Variant(cases) => all(cases.iter().filter_map(|(_, of)| of.as_deref())),
            Self::Result(ok, err) => all([ok, err].into_iter().filter_map(|of| of.as_deref())),
            _ => BTreeSet::new(),
        }
    }

    /// Whether an object is where nobody looks for one: in a record, a variant or an error.
    #[must_use]
    pub fn hides_object(&self) -> bool {
        match self {
            Self::List(inner) | Self::Option(inner) => inner.hides_object(),
            Self::Tuple(shapes) => shapes.iter().any(Self::hides_object),
            Self::Result(ok, err) => {
                ok.as_ref().is_some_and(|ok| ok.hides_object())
                    || err.as_ref().is_some_and(|err| err.has_handle())
            }
            Self::Record(_) | Self::Variant(_) => self.has_handle(),
            _ => false,
        }
    }

    /// An unsigned number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    /// `list<u8>`.
    #[must_use]
    pub fn is_bytes(&self) -> bool {
        matches!(self, Self::List(inner) if **inner == Self::U8)
    }

    /// `list<tuple<string, list<u8>>>`.
    #[must_use]
    pub fn is_pairs(&self) -> bool {
        matches!(self, Self::List(inner) if inner.is_pair())
    }

    fn is_pair(&self) -> bool {
        matches!(self, Self::Tuple(pair) if matches!(&pair[..], [Self::String, data] if data.is_bytes()))
    }

    /// A list, or one in `ok`, that says of each key whether it is there, or what it holds, alone or beside the key.
    #[must_use]
    pub fn tells_each(&self) -> bool {
        match self {
            Self::Result(Some(ok), _) => ok.tells_each(),
            Self::List(inner) => match &**inner {
                Self::Bool => true,
                Self::Option(value) => value.is_bytes() || value.is_pair(),
                _ => false,
            },
            _ => false,
        }
    }

    /// A number, or a number or bytes in `ok` or `some`: what [`Value::number`] reads.
    #[must_use]
    pub fn counts(&self) -> bool {
        match self {
            Self::Option(inner) => inner.counts(),
            Self::Result(Some(ok), _) => ok.counts(),
            other => other.is_number() || other.is_bytes(),
        }
    }

    /// The same, or a number with a sign: what [`Value::decimal`] reads.
    #[must_use]
    pub fn is_decimal(&self) -> bool {
        match self {
            Self::S8 | Self::S16 | Self::S32 | Self::S64 => true,
            Self::Option(inner) => inner.is_decimal(),
            Self::Result(Some(ok), _) => ok.is_decimal(),
            other => other.counts(),
        }
    }

    /// A number as a value of this type, where it is one and the number fits.
    #[must_use]
    pub fn of_number(&self, n: u64) -> Option<Value> {
        Some(match self {
            Self::U8 => Value::U8(u8::try_from(n).ok()?),
            Self::U16 => Value::U16(u16::try_from(n).ok()?),
            Self::U32 => Value::U32(u32::try_from(n).ok()?),
            Self::U64 => Value::U64(n),
            _ => return None,
        })
    }
}
