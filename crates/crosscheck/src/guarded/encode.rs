//! The one encoding of guarded values: digests are made of it, repairs are sent in it, and an object is made anew from it.
//!
//! Invariants
//!  1. Equal values have equal bytes in every replica: fixed widths, little endian, no address, no padding, no hash-map order.
//!  2. What a value is made from takes all of its bytes; a length is compared with what is left before anything is reserved.
//!  3. Every NaN is one NaN. Zero and minus zero differ: they are different bits, and a program can tell them apart.
//!
//! Not covered: types without an implementation. They do not compile, and the compiler's message names the remedy.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash};

/// Bytes that a value is made from.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// All of these.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `length` bytes, if so many are left.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next length. No type here has values of no bytes, so one beyond what is left is wrong.
    fn length(&mut self) -> Option<usize> {
        let length = usize::try_from(u64::decode(self)?).ok()?;
        (length <= self.0.len()).then_some(length)
    }
}

/// A value with an encoding that is the same in every replica.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be voted on: it has no bytes that are the same in every replica",
    label = "has no encoding",
    note = "pointers, references, Rc, Arc, Cell, RefCell, Mutex, functions, usize and clocks differ from replica to replica, or change unseen",
    note = "fix: own the value; refer to another object with `Ref<T>`; use u64 for usize; derive `Critical` for a type of your own",
    note = "or:  leave the field out with #[critical(skip = \"why\")]: nobody votes on it or repairs it"
)]
pub trait Encode: Sized {
    /// What the bytes mean: names and types, folded. Replicas whose types differ have different ones.
    const SHAPE: u64;

    /// Appends the value's bytes.
    fn encode(&self, to: &mut Vec<u8>);

    /// The value that has these bytes; nothing if none has.
    fn decode(from: &mut Bytes<'_>) -> Option<Self>;
}

/// FNV-1a, for shapes: names are short, and it can be computed at compile time.
#[must_use]
pub const fn shape(name: &str, parts: &[u64]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < name.len() {
        sum = (sum ^ name.as_bytes()[at] as u64).wrapping_mul(PRIME);
        at += 1;
    }
    let mut at = 0;
    while at < parts.len() {
        let mut byte = 0;
        while byte < 8 {
            sum = (sum ^ (parts[at] >> (8 * byte) & 0xff)).wrapping_mul(PRIME);
            byte += 1;
        }
        at += 1;
    }
    sum
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Encode for $type {
            const SHAPE: u64 = shape(stringify!($type), &[]);

            fn encode(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(from: &mut Bytes<'_>) -> Option<Self> {
                let bytes = from.take(size_of::<Self>())?;
                Some(Self::from_le_bytes(bytes.try_into().ok()?))
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

macro_rules! floats {
    ($($type:ty, $bits:ty, $nan:literal);*) => {$(
        impl Encode for $type {
            const SHAPE: u64 = shape(stringify!($type), &[]);

            fn encode(&self, to: &mut Vec<u8>) {
                // What a NaN carries besides depends on the instruction that made it.
                let bits: $bits = if self.is_nan() { $nan } else { self.to_bits() };
                bits.encode(to);
            }

            fn decode(from: &mut Bytes<'_>) -> Option<Self> {
                <$bits>::decode(from).map(Self::from_bits)
            }
        }
    )*};
}
floats!(f32, u32, 0x7fc0_0000; f64, u64, 0x7ff8_0000_0000_0000);

impl Encode for bool {
    const SHAPE: u64 = shape("bool", &[]);

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        match u8::decode(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Encode for char {
    const SHAPE: u64 = shape("char", &[]);

    fn encode(&self, to: &mut Vec<u8>) {
        u32::from(*self).encode(to);
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        Self::from_u32(u32::decode(from)?)
    }
}

impl Encode for String {
    const SHAPE: u64 = shape("String", &[]);

    fn encode(&self, to: &mut Vec<u8>) {
        (self.len() as u64).encode(to);
        to.extend_from_slice(self.as_bytes());
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        let length = from.length()?;
        String::from_utf8(from.take(length)?.to_vec()).ok()
    }
}

impl<T: Encode> Encode for Option<T> {
    const SHAPE: u64 = shape("Option", &[T::SHAPE]);

    fn encode(&self, to: &mut Vec<u8>) {
        self.is_some().encode(to);
        if let Some(value) = self {
            value.encode(to);
        }
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        Some(if bool::decode(from)? {
            Some(T::decode(from)?)
        } else {
            None
        })
    }
}

impl<T: Encode> Encode for Box<T> {
    const SHAPE: u64 = T::SHAPE;

    fn encode(&self, to: &mut Vec<u8>) {
        T::encode(self, to);
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        T::decode(from).map(Self::new)
    }
}

impl<T: Encode, const N: usize> Encode for [T; N] {
    const SHAPE: u64 = {
        assert!(N > 0, "an array of no elements has nothing to vote on");
        shape("array", &[N as u64, T::SHAPE])
    };

    fn encode(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|value| value.encode(to));
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        let values: Option<Vec<T>> = (0..N).map(|_| T::decode(from)).collect();
        values?.try_into().ok()
    }
}

/// What is a list of elements in an order of its own.
macro_rules! lists {
    ($($type:ident, $name:literal, $($bound:ident)*);*) => {$(
        impl<T: Encode $(+ $bound)*> Encode for $type<T> {
            const SHAPE: u64 = shape($name, &[T::SHAPE]);

            fn encode(&self, to: &mut Vec<u8>) {
                (self.len() as u64).encode(to);
                self.iter().for_each(|value| value.encode(to));
            }

            fn decode(from: &mut Bytes<'_>) -> Option<Self> {
                let length = from.length()?;
                let values: Option<Self> = (0..length).map(|_| T::decode(from)).collect();
                values.filter(|values| values.len() == length)
            }
        }
    )*};
}
lists!(Vec, "Vec",; VecDeque, "Vec",; BTreeSet, "Set", Ord);

impl<K: Encode + Ord, V: Encode> Encode for BTreeMap<K, V> {
    const SHAPE: u64 = shape("Map", &[K::SHAPE, V::SHAPE]);

    fn encode(&self, to: &mut Vec<u8>) {
        (self.len() as u64).encode(to);
        for (key, value) in self {
            key.encode(to);
            value.encode(to);
        }
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        let length = from.length()?;
        let entries: Option<Self> = (0..length)
            .map(|_| Some((K::decode(from)?, V::decode(from)?)))
            .collect();
        entries.filter(|entries| entries.len() == length)
    }
}

/// Elements without an order are put into that of their bytes.
fn in_order<'a, T: 'a>(
    elements: impl ExactSizeIterator<Item = T>,
    encode: impl Fn(T, &mut Vec<u8>),
    to: &mut Vec<u8>,
) {
    (elements.len() as u64).encode(to);
    let mut all: Vec<Vec<u8>> = elements
        .map(|element| {
            let mut bytes = Vec::new();
            encode(element, &mut bytes);
            bytes
        })
        .collect();
    all.sort_unstable();
    all.iter().for_each(|bytes| to.extend_from_slice(bytes));
}

impl<K: Encode + Eq + Hash, V: Encode, S: BuildHasher + Default> Encode for HashMap<K, V, S> {
    const SHAPE: u64 = shape("HashMap", &[K::SHAPE, V::SHAPE]);

    fn encode(&self, to: &mut Vec<u8>) {
        let entry = |(key, value): (&K, &V), to: &mut Vec<u8>| {
            key.encode(to);
            value.encode(to);
        };
        in_order(self.iter(), entry, to);
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        let length = from.length()?;
        let entries: Option<Self> = (0..length)
            .map(|_| Some((K::decode(from)?, V::decode(from)?)))
            .collect();
        entries.filter(|entries| entries.len() == length)
    }
}

impl<T: Encode + Eq + Hash, S: BuildHasher + Default> Encode for HashSet<T, S> {
    const SHAPE: u64 = shape("HashSet", &[T::SHAPE]);

    fn encode(&self, to: &mut Vec<u8>) {
        in_order(self.iter(), T::encode, to);
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        let length = from.length()?;
        let values: Option<Self> = (0..length).map(|_| T::decode(from)).collect();
        values.filter(|values| values.len() == length)
    }
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),*))*) => {$(
        impl<$($name: Encode),*> Encode for ($($name,)*) {
            const SHAPE: u64 = shape("tuple", &[$($name::SHAPE),*]);

            fn encode(&self, to: &mut Vec<u8>) {
                $(self.$at.encode(to);)*
            }

            fn decode(from: &mut Bytes<'_>) -> Option<Self> {
                Some(($($name::decode(from)?,)*))
            }
        }
    )*};
}
tuples! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }
