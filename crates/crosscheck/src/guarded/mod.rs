//! Objects of a service that replicas vote on: each value with digests of its fields, behind guards.
//!
//! ```text
//!   read   ── fields against their digests ──► &T                 noted in the entry's delta, with what was found
//!   write  ── fields against their digests ──► &mut T ──► drop: digests of what has changed
//! ```
//!
//! A struct derives [`Critical`](derive@crate::Critical), its values live in an [`Arena`], and a service's arenas are its [`State`]. What a
//! service hands to [`Core::executed`](crate::Core::executed) and [`Core::recover`](crate::Core::recover) comes from there.
//!
//! Invariants
//!  1. No guard is had without a check, and each check is noted. Once a guard is had, what it guards is not checked again.
//!  2. A field that did not fit its digest fits none after a write either, and nor does a field that was changed beside it: what was made
//!     from a wrong value must not look right. Only a vote, or a new value in its place, makes them fit.
//!  3. A digest is of bytes as they are encoded for a repair: there is one encoding.
//!  4. A stored digest that was hit is told from a value that was: the digest of the whole is kept beside those of the fields.
//!
//! Not covered: fields that are skipped, and what a service keeps outside its arenas.
//! See Borchert et al., DSN 2023, for differential digests; Martens et al., Section III, for guards.

mod arena;
mod encode;
#[cfg(test)]
mod tests;

use std::ops::{Deref, DerefMut};

use steadfast_digest::Vote128;

pub use arena::{Arena, At, Found, Ref, State, tag};
pub use encode::{Bytes, Encode, shape};

use crate::ids::Digest;

/// A field of a [`Critical`] type, for reports of what is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// As in the source.
    pub name: &'static str,
    /// Its type, as in the source.
    pub kind: &'static str,
    /// Why nobody votes on it; nothing for a field that is protected.
    pub skipped: Option<&'static str>,
}

/// A type whose values are objects: derive it.
///
/// ```
/// use steadfast_crosscheck::{Critical, Encode};
///
/// #[derive(Critical)]
/// struct Account {
///     owner: String,
///     cents: i64,
///     #[critical(skip = "statistics: answers for one replica")]
///     reads: u64,
/// }
/// assert_eq!(Account::FIELDS[1].name, "cents");
/// assert!(Account::FIELDS[2].skipped.is_some());
/// ```
///
/// A type that cannot be protected does not compile, and the message names the remedy:
///
/// ```compile_fail
/// # use steadfast_crosscheck::Critical;
/// #[derive(Critical)]
/// struct Account { next: *const Account }
/// ```
/// ```compile_fail
/// # use steadfast_crosscheck::Critical;
/// #[derive(Critical)]
/// struct Account { owner: std::rc::Rc<String> }
/// ```
/// ```compile_fail
/// # use steadfast_crosscheck::Critical;
/// #[derive(Critical)]
/// struct Account { cents: std::cell::RefCell<i64> }
/// ```
/// ```compile_fail
/// # use steadfast_crosscheck::Critical;
/// #[derive(Critical)]
/// struct Account { interest: fn(i64) -> i64 }
/// ```
/// ```compile_fail
/// # use steadfast_crosscheck::Critical;
/// #[derive(Critical)]
/// struct Account { slot: usize }
/// ```
/// Nor does one whose name hides what it is, or a field that is left out without a reason:
///
/// ```compile_fail
/// # use steadfast_crosscheck::Critical;
/// type Owner = std::sync::Arc<String>;
/// #[derive(Critical)]
/// struct Account { owner: Owner }
/// ```
/// ```compile_fail
/// # use steadfast_crosscheck::Critical;
/// #[derive(Critical)]
/// struct Account { cents: i64, #[critical(skip)] reads: u64 }
/// ```
///
/// The methods of such a type are called on an object in its arena with [`critical`](macro@crate::critical):
///
/// ```
/// use steadfast_crosscheck::{Arena, Critical, Ref, critical};
///
/// #[derive(Critical)]
/// struct Account { owner: String, cents: i64 }
///
/// #[critical]
/// impl Account {
///     #[critical(only(cents))]
///     fn pay(&mut self, cents: i64) -> i64 {
///         self.cents += cents;
///         self.balance()
///     }
///     fn balance(&self) -> i64 { self.cents }
/// }
///
/// let mut accounts = Arena::new();
/// let alice = Ref::named(b"alice");
/// accounts.put(alice, Account { owner: "alice".to_owned(), cents: 0 });
/// assert_eq!(accounts.at(alice).pay(7), Some(7));
/// assert_eq!(accounts.at(alice).balance(), Some(7));
/// assert_eq!(accounts.at(Ref::named(b"bob")).balance(), None);
/// ```
///
/// A method whose guard would not hold for all of it does not compile, nor does one that names a field that the type has not:
///
/// ```compile_fail
/// # use steadfast_crosscheck::{Critical, critical};
/// # #[derive(Critical)] struct Account { cents: i64 }
/// #[critical] impl Account { fn cents(&mut self) -> &mut i64 { &mut self.cents } }
/// ```
/// ```compile_fail
/// # use steadfast_crosscheck::{Critical, critical};
/// # #[derive(Critical)] struct Account { cents: i64 }
/// #[critical] impl Account { fn close(self) -> i64 { self.cents } }
/// ```
/// ```compile_fail
/// # use steadfast_crosscheck::{Critical, critical};
/// # #[derive(Critical)] struct Account { cents: i64 }
/// #[critical] impl Account { #[critical(only(euros))] fn pay(&mut self) { self.cents += 1 } }
/// ```
/// ```compile_fail
/// # use steadfast_crosscheck::critical;
/// struct Account { cents: i64 }
/// #[critical] impl Account { fn pay(&mut self) { self.cents += 1 } }
/// ```
pub trait Critical: Encode {
    /// Names of the protected fields, for [`Arena::write_only`].
    type Name: Copy + Into<usize>;
    /// What it is called in reports.
    const NAME: &'static str;
    /// All fields.
    const FIELDS: &'static [Field];
    /// How many of them are protected.
    const PROTECTED: usize;

    /// Appends the bytes of one protected field.
    fn encode_field(&self, field: usize, to: &mut Vec<u8>);

    /// Takes the skipped fields of the value in whose place this one comes.
    fn keep(&mut self, old: Self);
}

/// Protected fields, in their order.
fn protected<T: Critical>() -> impl Iterator<Item = &'static Field> {
    T::FIELDS.iter().filter(|field| field.skipped.is_none())
}

/// A value and the digests of its fields.
#[derive(Debug)]
pub struct Guarded<T> {
    value: T,
    fields: Box<[u128]>,
    /// The sum of the fields' digests: by it a hit digest is told from a hit field.
    whole: u128,
}

/// What a check has found: protected fields whose bytes do not fit their digests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spoilt(Vec<usize>);

impl Spoilt {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the fields are called.
    pub fn names<T: Critical>(&self) -> impl Iterator<Item = &'static str> {
        protected::<T>()
            .enumerate()
            .filter(|(at, _)| self.0.contains(at))
            .map(|(_, field)| field.name)
    }
}

/// Of one field: its number takes part, so that two fields cannot change places.
fn digest_of<T: Critical>(value: &T, field: usize, room: &mut Vec<u8>) -> u128 {
    room.clear();
    value.encode_field(field, room);
    Vote128::new()
        .part(&T::SHAPE.to_le_bytes())
        .part(&(field as u64).to_le_bytes())
        .part(room)
        .finish()
}

fn digests_of<T: Critical>(value: &T) -> Box<[u128]> {
    let mut room = Vec::new();
    (0..T::PROTECTED)
        .map(|field| digest_of(value, field, &mut room))
        .collect()
}

fn sum(fields: &[u128]) -> u128 {
    fields.iter().fold(0, |sum, one| sum.wrapping_add(*one))
}

impl<T: Critical> Guarded<T> {
    /// A new value, which is right by definition.
    pub fn new(value: T) -> Self {
        let fields = digests_of(&value);
        let whole = sum(&fields);
        Self {
            value,
            fields,
            whole,
        }
    }

    /// The digest of the object, from its bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        // An object that exists never has the digest of one that does not.
        match sum(&digests_of(&self.value)) {
            0 => Digest(1),
            whole => Digest(whole),
        }
    }

    /// The digests of the fields, as they are stored.
    #[must_use]
    pub fn fields(&self) -> &[u128] {
        &self.fields
    }

    /// Fields whose bytes do not fit their digests. Where the digest of the whole fits, only a digest of a field was hit.
    #[must_use]
    pub fn check(&self) -> Spoilt {
        self.spoilt(&digests_of(&self.value))
    }

    fn spoilt(&self, now: &[u128]) -> Spoilt {
        if sum(now) == self.whole {
            return Spoilt::default();
        }
        let wrong = |field: &usize| now[*field] != self.fields[*field];
        Spoilt((0..T::PROTECTED).filter(wrong).collect())
    }

    /// The value, with what a check has found.
    pub fn read(&self) -> (&T, Spoilt) {
        (&self.value, self.check())
    }

    /// The value, to be changed, with what a check has found.
    pub fn write(&mut self) -> (Writing<'_, T>, Spoilt) {
        self.open(None)
    }

    /// The same, for these fields alone: where another one changes it fits its digest no more.
    pub fn write_only(&mut self, fields: &[T::Name]) -> (Writing<'_, T>, Spoilt) {
        self.open(Some(fields.iter().map(|name| (*name).into()).collect()))
    }

    fn open(&mut self, only: Option<Vec<usize>>) -> (Writing<'_, T>, Spoilt) {
        let before = digests_of(&self.value);
        let spoilt = self.spoilt(&before);
        if spoilt.is_empty() {
            // If anything was hit it is a digest: which one does not matter.
            self.whole = sum(&before);
        }
        let writing = Writing {
            guarded: self,
            before,
            spoilt: spoilt.clone(),
            only,
        };
        (writing, spoilt)
    }

    /// The bytes of the object.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.value.encode(&mut bytes);
        bytes
    }

    /// Puts what these bytes say in the place of the value; false if they say nothing.
    pub fn replace(&mut self, packed: &[u8]) -> bool {
        let Some(value) = unpack::<T>(packed) else {
            return false;
        };
        let old = std::mem::replace(self, Self::new(value));
        self.value.keep(old.value);
        true
    }

    /// The value behind the back of its guards, for injectors and tests: what is changed here is a fault.
    pub fn raw(&mut self) -> &mut T {
        &mut self.value
    }
}

/// What these bytes say, all of them.
fn unpack<T: Encode>(packed: &[u8]) -> Option<T> {
    let mut bytes = Bytes::new(packed);
    T::decode(&mut bytes).filter(|_| bytes.is_empty())
}

/// A value that is being changed. Its digests follow when it is dropped.
#[derive(Debug)]
pub struct Writing<'a, T: Critical> {
    guarded: &'a mut Guarded<T>,
    before: Box<[u128]>,
    spoilt: Spoilt,
    only: Option<Vec<usize>>,
}

impl<T: Critical> Deref for Writing<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guarded.value
    }
}

impl<T: Critical> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guarded.value
    }
}

impl<T: Critical> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        // A panic leaves a change half done: nothing of it may look right.
        let doubtful = std::thread::panicking() || !self.spoilt.is_empty();
        let mut room = Vec::new();
        for (field, before) in self.before.iter().enumerate() {
            let was_wrong = self.spoilt.0.contains(&field);
            let declared = self.only.as_ref().is_none_or(|only| only.contains(&field));
            let stored = &mut self.guarded.fields[field];
            if !declared {
                // Not looked at: where it has changed after all, what it was stays on record and tells so.
                if !was_wrong {
                    *stored = *before;
                }
                continue;
            }
            let now = digest_of(&self.guarded.value, field, &mut room);
            let spoils = was_wrong || (doubtful && now != *before);
            *stored = if spoils { !now } else { now };
        }
        self.guarded.whole = sum(&self.guarded.fields);
    }
}
