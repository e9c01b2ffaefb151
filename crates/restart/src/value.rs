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

    /// It as bytes, where it is some. A list without items has no type when a component gives it.
    #[must_use]
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::List(items) if items.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// Adds it to a checksum.
    pub(crate) fn feed(&self, crc: u32) -> u32 {
        let one = |crc: u32, tag: u8, bytes: &[u8]| {
            let mut head = [tag; 12];
            if bytes.len() <= 8 {
                head[1..=bytes.len()].copy_from_slice(bytes);
                return crc32c::crc32c_append(crc, &head);
            }
            head[4..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            crc32c::crc32c_append(crc32c::crc32c_append(crc, &head), bytes)
        };
        let boxed = |crc: u32, tag: u8, inner: Option<&Value>| {
            let crc = one(crc, tag, &[u8::from(inner.is_some())]);
            inner.map_or(crc, |inner| inner.feed(crc))
        };
        match self {
            Self::Bool(b) => one(crc, 1, &[u8::from(*b)]),
            Self::U8(n) => one(crc, 2, &n.to_le_bytes()),
            Self::U16(n) => one(crc, 3, &n.to_le_bytes()),
            Self::U32(n) => one(crc, 4, &n.to_le_bytes()),
            Self::U64(n) => one(crc, 5, &n.to_le_bytes()),
            Self::S8(n) => one(crc, 6, &n.to_le_bytes()),
            Self::S16(n) => one(crc, 7, &n.to_le_bytes()),
            Self::S32(n) => one(crc, 8, &n.to_le_bytes()),
            Self::S64(n) => one(crc, 9, &n.to_le_bytes()),
            Self::F32(n) => one(crc, 10, &n.to_le_bytes()),
            Self::F64(n) => one(crc, 11, &n.to_le_bytes()),
            Self::Char(c) => one(crc, 12, &u32::from(*c).to_le_bytes()),
            Self::String(s) | Self::Enum(s) => one(crc, 13, s.as_bytes()),
            Self::Bytes(bytes) => one(crc, 14, bytes),
            Self::List(items) | Self::Tuple(items) => {
                let crc = one(crc, 15, &(items.len() as u64).to_le_bytes());
                items.iter().fold(crc, |crc, item| item.feed(crc))
            }
            Self::Record(fields) => fields.iter().fold(one(crc, 16, &[]), |crc, (name, value)| {
                value.feed(one(crc, 17, name.as_bytes()))
            }),
            Self::Variant(name, inner) => {
                boxed(one(crc, 18, name.as_bytes()), 19, inner.as_deref())
            }
            Self::Option(inner) => boxed(crc, 20, inner.as_deref()),
            Self::Result(Ok(inner)) => boxed(crc, 21, inner.as_deref()),
            Self::Result(Err(inner)) => boxed(crc, 22, inner.as_deref()),
            Self::Flags(names) => names
                .iter()
                .fold(one(crc, 23, &[]), |crc, name| one(crc, 24, name.as_bytes())),
            Self::Handle(handle) => one(
                crc,
                25,
                &(u64::from(handle.index) | u64::from(handle.generation) << 32).to_le_bytes(),
            ),
        }
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
