//! Where guarded values live: one arena for each type, objects under numbers that are the same in every replica.
//!
//! An object's number is made of its type and of either a name, or the place of its creation: the log's index and how many were created at
//! that index before it. No counter is shared, and none is used again.
//!
//! Invariants
//!  1. Each access is noted in the entry's delta, that to an object which does not exist included.
//!  2. Objects are walked through in the order of their numbers.
//!
//! Not covered: who holds a [`Ref`] to an object that was removed finds nothing under it.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use steadfast_digest::Vote128;

use super::{Bytes, Critical, Encode, Guarded, Spoilt, Writing, shape, unpack};
use crate::core::Objects;
use crate::ids::{Digest, Index, ObjectId};
use crate::message::Pair;

/// The bits of a number below the type's: a name, or a place of creation.
const OWN_BITS: u32 = 96;
/// Of a number that is made of a name.
const NAMED: u128 = 1 << (OWN_BITS - 1);

/// The type, as a number that an object's number begins with.
#[must_use]
pub const fn tag(shape: u64) -> u128 {
    ((shape ^ shape >> 32) & 0xffff_ffff) as u128
}

/// A reference to an object: its number, which is what is encoded. The object itself is voted on alone.
pub struct Ref<T>(ObjectId, PhantomData<fn() -> T>);

impl<T> Ref<T> {
    /// The object's number.
    #[must_use]
    pub const fn id(self) -> ObjectId {
        self.0
    }
}

impl<T: Critical> Ref<T> {
    const TAG: u128 = tag(T::SHAPE) << OWN_BITS;

    /// The object of that name.
    #[must_use]
    pub fn named(name: &[u8]) -> Self {
        let name = Vote128::new().part(name).finish() & (NAMED - 1);
        Self(ObjectId(Self::TAG | NAMED | name), PhantomData)
    }

    fn created(index: Index, ordinal: u32) -> Self {
        // The highest bit tells numbers from names; no log is that long.
        let own = (u128::from(index.0) << 32 | u128::from(ordinal)) & (NAMED - 1);
        Self(ObjectId(Self::TAG | own), PhantomData)
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ref<T> {}
impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Ref<T> {}
impl<T> PartialOrd for Ref<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Ref<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}
impl<T> std::hash::Hash for Ref<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl<T> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ref({})", self.0)
    }
}

impl<T> Encode for Ref<T> {
    // Without the type behind it, which may refer back.
    const SHAPE: u64 = shape("Ref", &[]);

    fn encode(&self, to: &mut Vec<u8>) {
        self.0.0.encode(to);
    }

    fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        u128::decode(from).map(|id| Self(ObjectId(id), PhantomData))
    }
}

/// What a guard has found wrong: for a report of the hardware behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which object.
    pub object: ObjectId,
    /// Its type.
    pub kind: &'static str,
    /// Fields that did not fit their digests.
    pub fields: Vec<&'static str>,
}

/// Objects that an entry has touched, in the order of first access.
#[derive(Debug, Default)]
struct Trace {
    touched: Vec<(ObjectId, bool)>,
    at: BTreeMap<ObjectId, usize>,
    found: Vec<Found>,
}

impl Trace {
    fn note<T: Critical>(&mut self, object: ObjectId, spoilt: &Spoilt) {
        let passive = !spoilt.is_empty();
        let touched = &mut self.touched;
        let at = *self.at.entry(object).or_insert_with(|| {
            touched.push((object, false));
            touched.len() - 1
        });
        if passive && !std::mem::replace(&mut self.touched[at].1, true) {
            self.found.push(Found {
                object,
                kind: T::NAME,
                fields: spoilt.names::<T>().collect(),
            });
        }
    }
}

/// Everything of a service that is voted on: an [`Arena`], or a struct of them that derives it.
pub trait State: Objects {
    /// The shapes of all types, folded.
    const SHAPE: u64;

    /// An entry begins.
    fn begin(&mut self, index: Index);

    /// The entry is over: digests of what it has touched, from the bytes.
    fn finish(&mut self) -> Vec<Pair>;

    /// What guards have found wrong since the last call.
    fn found(&mut self) -> Vec<Found>;

    /// Whether an object with this number would be here.
    fn owns(&self, object: ObjectId) -> bool;

    /// Numbers of all objects, for a scrub and for a replica that joins.
    fn objects(&self) -> Vec<ObjectId>;

    /// Checks an object without using it, and notes it in the delta: what a scrub does.
    fn look(&self, object: ObjectId);

    /// What [`Core::new`](crate::Core::new) is given: replicas with other types are not compared with.
    fn epoch() -> u32 {
        let [a, b, c, d, ..] = Self::SHAPE.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// All objects of one type.
#[derive(Debug)]
pub struct Arena<T: Critical> {
    objects: BTreeMap<ObjectId, Guarded<T>>,
    index: Index,
    ordinal: u32,
    trace: RefCell<Trace>,
}

impl<T: Critical> Default for Arena<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            index: Index(0),
            ordinal: 0,
            trace: RefCell::default(),
        }
    }
}

impl<T: Critical> Arena<T> {
    /// Of no objects.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new object, with a number of its own.
    pub fn create(&mut self, value: T) -> Ref<T> {
        let at = Ref::created(self.index, self.ordinal);
        self.ordinal += 1;
        self.put(at, value);
        at
    }

    /// A value that owes nothing to the one that it takes the place of, if there is one.
    pub fn put(&mut self, at: Ref<T>, value: T) {
        let old = self.objects.insert(at.id(), Guarded::new(value));
        let found = old.map(|old| old.check()).unwrap_or_default();
        self.trace.get_mut().note::<T>(at.id(), &found);
    }

    /// The object ends; what it was, if there was one.
    pub fn remove(&mut self, at: Ref<T>) -> Option<T> {
        let old = self.objects.remove(&at.id());
        let found = old.as_ref().map(Guarded::check).unwrap_or_default();
        self.trace.get_mut().note::<T>(at.id(), &found);
        old.map(|old| old.value)
    }

    /// The object, checked.
    #[must_use]
    pub fn read(&self, at: Ref<T>) -> Option<&T> {
        let (value, found) = self.objects.get(&at.id()).map(Guarded::read).unzip();
        let found = found.unwrap_or_default();
        self.trace.borrow_mut().note::<T>(at.id(), &found);
        value
    }

    /// The object to be changed, checked.
    #[must_use]
    pub fn write(&mut self, at: Ref<T>) -> Option<Writing<'_, T>> {
        self.open(at, Guarded::write)
    }

    /// The same for some of its fields. Those that are not named keep their digests, so that a change to one of them is found:
    /// `accounts.write_only(at, &[AccountField::Cents])`.
    #[must_use]
    pub fn write_only(&mut self, at: Ref<T>, fields: &[T::Name]) -> Option<Writing<'_, T>> {
        self.open(at, |guarded| guarded.write_only(fields))
    }

    /// The object, for the methods of its type: `#[critical] impl` lets them be called on it.
    pub fn at(&mut self, at: Ref<T>) -> At<'_, T> {
        At { arena: self, at }
    }

    fn open<'a>(
        &'a mut self,
        at: Ref<T>,
        open: impl FnOnce(&'a mut Guarded<T>) -> (Writing<'a, T>, Spoilt),
    ) -> Option<Writing<'a, T>> {
        let (writing, found) = self.objects.get_mut(&at.id()).map(open).unzip();
        let found = found.unwrap_or_default();
        self.trace.get_mut().note::<T>(at.id(), &found);
        writing
    }

    /// References to all objects, in the order of their numbers. That one is missing from them is found when it is asked for.
    pub fn refs(&self) -> impl Iterator<Item = Ref<T>> {
        self.objects.keys().map(|id| Ref(*id, PhantomData))
    }

    /// The value behind the back of its guards, for injectors and tests: what is changed here is a fault.
    pub fn raw(&mut self, at: Ref<T>) -> Option<&mut T> {
        self.objects.get_mut(&at.id()).map(Guarded::raw)
    }
}

/// An object in its arena, on which methods of a [`critical`](macro@crate::critical) impl are called.
#[derive(Debug)]
pub struct At<'a, T: Critical> {
    arena: &'a mut Arena<T>,
    at: Ref<T>,
}

impl<T: Critical> At<'_, T> {
    /// As [`Arena::read`].
    #[must_use]
    pub fn read(&self) -> Option<&T> {
        self.arena.read(self.at)
    }

    /// As [`Arena::write`].
    #[must_use]
    pub fn write(&mut self) -> Option<Writing<'_, T>> {
        self.arena.write(self.at)
    }

    /// As [`Arena::write_only`].
    #[must_use]
    pub fn write_only(&mut self, fields: &[T::Name]) -> Option<Writing<'_, T>> {
        self.arena.write_only(self.at, fields)
    }
}

impl<T: Critical> Objects for Arena<T> {
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>> {
        self.objects.get(&object).map(Guarded::pack)
    }

    fn intact(&self, object: ObjectId) -> bool {
        self.objects
            .get(&object)
            .is_none_or(|guarded| guarded.check().is_empty())
    }

    /// Bytes that no value has leave the object as it is: the core sees that it is not what was voted for, and asks another replica.
    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>) {
        let Some(packed) = packed else {
            self.objects.remove(&object);
            return;
        };
        if let Some(guarded) = self.objects.get_mut(&object) {
            guarded.replace(packed);
        } else if self.owns(object)
            && let Some(value) = unpack(packed)
        {
            self.objects.insert(object, Guarded::new(value));
        }
    }
}

impl<T: Critical> State for Arena<T> {
    const SHAPE: u64 = T::SHAPE;

    fn begin(&mut self, index: Index) {
        self.index = index;
        self.ordinal = 0;
        // What was looked at between two entries, other replicas have not.
        let trace = self.trace.get_mut();
        trace.at.clear();
        trace.touched.clear();
    }

    fn finish(&mut self) -> Vec<Pair> {
        let trace = self.trace.get_mut();
        trace.at.clear();
        std::mem::take(&mut trace.touched)
            .into_iter()
            .map(|(object, passive)| Pair {
                object,
                digest: self
                    .objects
                    .get(&object)
                    .map_or(Digest::ABSENT, Guarded::digest),
                passive,
                doubt: false,
                unproven: false,
            })
            .collect()
    }

    fn found(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.trace.get_mut().found)
    }

    fn owns(&self, object: ObjectId) -> bool {
        object.0 >> OWN_BITS == tag(T::SHAPE)
    }

    fn objects(&self) -> Vec<ObjectId> {
        self.objects.keys().copied().collect()
    }

    fn look(&self, object: ObjectId) {
        let _ = self.read(Ref(object, PhantomData));
    }
}
