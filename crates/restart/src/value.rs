//! Values that cross the edge of a component, independent of any Store.
//!
//! Invariants
//!  1. A [`Handle`] names a slot of the table, never an object inside a component: it stays valid when the component is reset.
//!  2. Two values are equal exactly when every bit that a caller can see is equal; floats compare by their bits.
//!
//! Not covered: futures and streams of WASI 0.3, which are bound to one Store.

/// A client's name for an object: a place in the slot table and how often that place was used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    pub index: u32,
    pub generation: u32,
}

/// A value of the component model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Bool(bool),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    S8(i8),
    S16(i16),
    S32(i32),
    S64(i64),
    /// The bits of a float.
    F32(u32),
    /// The bits of a double.
    F64(u64),
    Char(char),
    String(String),
    /// `list<u8>`.
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Record(Vec<(String, Value)>),
    Tuple(Vec<Value>),
    Variant(String, Option<Box<Value>>),
    Enum(String),
    Option(Option<Box<Value>>),
    Result(Result<Option<Box<Value>>, Option<Box<Value>>>),
    Flags(Vec<String>),
    Handle(Handle),
}

impl Value {
    /// The first handle in it.
    #[must_use]
    pub fn handle(&self) -> Option<Handle> {
        match self {
            Self::Handle(handle) => Some(*handle),
            Self::Option(Some(inner))
            | Self::Result(Ok(Some(inner)) | Err(Some(inner)))
            | Self::Variant(_, Some(inner)) => inner.handle(),
            Self::List(items) | Self::Tuple(items) => items.iter().find_map(Self::handle),
            Self::Record(fields) => fields.iter().find_map(|(_, value)| value.handle()),
            _ => None,
        }
    }

    /// What it lends or gives as an argument: itself, or each item of a list.
    pub(crate) fn lent(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            one => std::slice::from_ref(one),
        }
    }

    /// How many handles are in it.
    pub(crate) fn handles(&self) -> usize {
        match self {
            Self::Handle(_) => 1,
            Self::Option(Some(inner))
            | Self::Result(Ok(Some(inner)) | Err(Some(inner)))
            | Self::Variant(_, Some(inner)) => inner.handles(),
            Self::List(items) | Self::Tuple(items) => items.iter().map(Self::handles).sum(),
            Self::Record(fields) => fields.iter().map(|(_, value)| value.handles()).sum(),
            _ => 0,
        }
    }

    /// It with a component's numbers for its handles; none where one has no number.
    pub(crate) fn numbered(&self, number: &mut dyn FnMut(Handle) -> Option<u32>) -> Option<Self> {
        let mut boxed = |inner: &Option<Box<Self>>| match inner {
            None => Some(None),
            Some(inner) => inner.numbered(number).map(|inner| Some(Box::new(inner))),
        };
        Some(match self {
            Self::Handle(handle) => Self::Handle(Handle {
                index: number(*handle)?,
                generation: 0,
            }),
            Self::Option(inner) => Self::Option(boxed(inner)?),
            Self::Result(Ok(inner)) => Self::Result(Ok(boxed(inner)?)),
            Self::Result(Err(inner)) => Self::Result(Err(boxed(inner)?)),
            Self::Variant(name, inner) => Self::Variant(name.clone(), boxed(inner)?),
            Self::List(items) => Self::List(
                items
                    .iter()
                    .map(|item| item.numbered(number))
                    .collect::<Option<_>>()?,
            ),
            Self::Tuple(items) => Self::Tuple(
                items
                    .iter()
                    .map(|item| item.numbered(number))
                    .collect::<Option<_>>()?,
            ),
            Self::Record(fields) => {
                let fields = fields.iter();
                let fields =
                    fields.map(|(name, value)| Some((name.clone(), value.numbered(number)?)));
                Self::Record(fields.collect::<Option<_>>()?)
            }
            other => other.clone(),
        })
    }

    /// It as a number, where it is one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        Some(match self {
            Self::U8(n) => u64::from(*n),
            Self::U16(n) => u64::from(*n),
            Self::U32(n) => u64::from(*n),
            Self::U64(n) => *n,
            Self::Option(Some(inner)) | Self::Result(Ok(Some(inner))) => return inner.number(),
            Self::Bytes(bytes) => bytes.len() as u64,
            _ => return None,
        })
    }

    /// It as decimal text, where it is a number, with a sign or without.
    #[must_use]
    pub(crate) fn decimal(&self) -> Option<String> {
        Some(match self {
            Self::S8(n) => n.to_string(),
            Self::S16(n) => n.to_string(),
            Self::S32(n) => n.to_string(),
            Self::S64(n) => n.to_string(),
            Self::Option(Some(inner)) | Self::Result(Ok(Some(inner))) => return inner.decimal(),
            other => other.number()?.to_string(),
        })
    }

    /// It as bytes, where it is some. A list without items has no type when a component gives it.
    #[must_use]
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::List(items) if items.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// Adds it to a sum.
    pub(crate) fn feed(&self, sum: Sum) -> Sum {
        let boxed = |sum: Sum, tag: u8, inner: Option<&Self>| {
            let sum = sum.one(tag, u64::from(inner.is_some()));
            inner.map_or(sum, |inner| inner.feed(sum))
        };
        match self {
            Self::Bool(b) => sum.one(1, u64::from(*b)),
            Self::U8(n) => sum.one(2, u64::from(*n)),
            Self::U16(n) => sum.one(3, u64::from(*n)),
            Self::U32(n) => sum.one(4, u64::from(*n)),
            Self::U64(n) => sum.one(5, *n),
            Self::S8(n) => sum.one(6, i64::from(*n).cast_unsigned()),
            Self::S16(n) => sum.one(7, i64::from(*n).cast_unsigned()),
            Self::S32(n) => sum.one(8, i64::from(*n).cast_unsigned()),
            Self::S64(n) => sum.one(9, n.cast_unsigned()),
            Self::F32(n) => sum.one(10, u64::from(*n)),
            Self::F64(n) => sum.one(11, *n),
            Self::Char(c) => sum.one(12, u64::from(*c)),
            Self::String(s) | Self::Enum(s) => sum.bytes(13, s.as_bytes()),
            Self::Bytes(bytes) => sum.bytes(14, bytes),
            Self::List(items) | Self::Tuple(items) => {
                let sum = sum.one(15, items.len() as u64);
                items.iter().fold(sum, |sum, item| item.feed(sum))
            }
            Self::Record(fields) => {
                let sum = sum.one(16, fields.len() as u64);
                fields.iter().fold(sum, |sum, (name, value)| {
                    value.feed(sum.bytes(17, name.as_bytes()))
                })
            }
            Self::Variant(name, inner) => {
                boxed(sum.bytes(18, name.as_bytes()), 19, inner.as_deref())
            }
            Self::Option(inner) => boxed(sum, 20, inner.as_deref()),
            Self::Result(Ok(inner)) => boxed(sum, 21, inner.as_deref()),
            Self::Result(Err(inner)) => boxed(sum, 22, inner.as_deref()),
            Self::Flags(names) => {
                let sum = sum.one(23, names.len() as u64);
                names
                    .iter()
                    .fold(sum, |sum, name| sum.bytes(24, name.as_bytes()))
            }
            Self::Handle(handle) => sum.one(
                25,
                u64::from(handle.index) | u64::from(handle.generation) << 32,
            ),
        }
    }
}

/// A sum over words, in their order. Each step is a bijection of the sum and of the word, so a change within one word always changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum(pub(crate) u64);

impl Sum {
    pub(crate) const NEW: Self = Self(0x6a09_e667_f3bc_c908);

    /// One more word.
    #[inline]
    pub(crate) fn word(self, word: u64) -> Self {
        // 2^64 over the golden ratio (Knuth, vol. 3, section 6.4); the turn brings upper bits, which a product mixes best, down again.
        Self(
            (self.0 ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29),
        )
    }

    fn one(self, tag: u8, word: u64) -> Self {
        self.word(u64::from(tag)).word(word)
    }

    fn bytes(self, tag: u8, bytes: &[u8]) -> Self {
        let sum = self.one(tag, bytes.len() as u64);
        if bytes.len() > 8 {
            return sum.word(u64::from(crc32c::crc32c(bytes)));
        }
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        sum.word(u64::from_le_bytes(word))
    }
}

impl From<u32> for Value {
    fn from(n: u32) -> Self {
        Self::U32(n)
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::U64(n)
    }
}

impl From<Handle> for Value {
    fn from(handle: Handle) -> Self {
        Self::Handle(handle)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flip_of_one_bit_and_every_other_order_changes_a_sum() {
        let words = [0, 1, u64::MAX, 0x9e37_79b9_7f4a_7c15, 7];
        let of = |words: &[u64]| words.iter().fold(Sum::NEW, |sum, word| sum.word(*word));
        let sum = of(&words);
        for place in 0..words.len() {
            for bit in 0..64 {
                let mut flipped = words;
                flipped[place] ^= 1 << bit;
                assert_ne!(of(&flipped), sum, "bit {bit} of word {place}");
            }
            let mut turned = words;
            turned.swap(place, (place + 1) % words.len());
            assert_ne!(of(&turned), sum);
        }
    }

    #[test]
    fn values_that_differ_have_other_sums() {
        let text = |text: &str| Value::String(text.into());
        let some = |value: Value| Value::Option(Some(Box::new(value)));
        let all = [
            Value::U32(1),
            Value::U64(1),
            Value::S32(-1),
            Value::S64(-1),
            text(""),
            text("a"),
            text("a longer text"),
            text("a longer tExt"),
            Value::Bytes(b"a".to_vec()),
            Value::Option(None),
            some(Value::U32(1)),
            some(text("")),
            Value::List(vec![]),
            Value::List(vec![Value::U32(1)]),
            Value::List(vec![Value::U32(1), text("")]),
            Value::Result(Ok(None)),
            Value::Result(Err(None)),
        ];
        for (at, one) in all.iter().enumerate() {
            for other in &all[..at] {
                assert_ne!(
                    one.feed(Sum::NEW),
                    other.feed(Sum::NEW),
                    "{one:?} {other:?}"
                );
            }
        }
    }
}
