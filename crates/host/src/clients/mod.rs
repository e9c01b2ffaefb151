//! Clients of the demonstration and the bench: each knows what every call must return, and counts what is wrong.
//!
//! Invariant: a handle counts as kept only if it is the one that was opened first and its object answers as it must.

mod counts;
mod keys;
mod pages;
mod requests;
mod threads;

use steadfast_restart::{CallError, Edge, Handle, Value};

pub(crate) use self::counts::Counts;
use self::counts::functions;
use self::keys::Keys;
use self::pages::Pages;
use self::requests::Requests;
use self::threads::Threads;
use crate::told::Told;

/// What the client works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    Locks,
    Files,
    Threads,
    Pages,
    Keys,
    Requests,
}

impl What {
    /// The component's name.
    pub(crate) fn component(self) -> &'static str {
        match self {
            Self::Locks => "lock",
            Self::Files => "fs",
            Self::Threads => "scheduler",
            Self::Pages => "memory",
            Self::Keys => "keyvalue",
            Self::Requests => "http",
        }
    }

    /// Components that it calls.
    pub(crate) fn others(self) -> &'static [&'static str] {
        match self {
            Self::Requests => &["keyvalue", "fs"],
            _ => &[],
        }
    }

    /// As the option takes it.
    pub(crate) fn component_word(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Files => "files",
            Self::Threads => "threads",
            Self::Pages => "pages",
            Self::Keys => "keys",
            Self::Requests => "requests",
        }
    }

    /// In a sentence.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Files => "open files",
            Self::Threads => "threads",
            Self::Pages => "pages",
            Self::Keys => "buckets",
            Self::Requests => "counters",
        }
    }
}

/// A client.
pub(crate) enum Client<'a> {
    Locks(Locks<'a>),
    Files(Files<'a>),
    Threads(Threads<'a>),
    Pages(Pages<'a>),
    Keys(Keys<'a>),
    Requests(Requests<'a>),
}

impl<'a> Client<'a> {
    pub(crate) fn new(what: What, edge: &'a Edge, handles: usize) -> Result<Self, Told> {
        Ok(match what {
            What::Locks => Self::Locks(Locks::new(edge, handles)?),
            What::Files => Self::Files(Files::new(edge, handles)?),
            What::Threads => Self::Threads(Threads::new(edge, handles)?),
            What::Pages => Self::Pages(Pages::new(edge, handles)?),
            What::Keys => Self::Keys(Keys::new(edge, handles)?),
            What::Requests => Self::Requests(Requests::new(edge, handles)?),
        })
    }

    /// One or two calls on each object.
    pub(crate) fn round(&mut self) {
        match self {
            Self::Locks(locks) => locks.round(),
            Self::Files(files) => files.round(),
            Self::Threads(threads) => threads.round(),
            Self::Pages(pages) => pages.round(),
            Self::Keys(keys) => keys.round(),
            Self::Requests(requests) => requests.round(),
        }
    }

    /// What it counted so far.
    pub(crate) fn counts(&self) -> &Counts {
        match self {
            Self::Locks(locks) => &locks.counts,
            Self::Files(files) => &files.counts,
            Self::Threads(threads) => &threads.counts,
            Self::Pages(pages) => &pages.counts,
            Self::Keys(keys) => &keys.counts,
            Self::Requests(requests) => &requests.counts,
        }
    }

    /// Asks every object, and notes which handles are kept.
    pub(crate) fn look(&mut self) {
        match self {
            Self::Locks(locks) => locks.counts.kept = locks.kept(),
            Self::Files(files) => files.counts.kept = files.kept(),
            Self::Threads(threads) => threads.counts.kept = threads.kept(),
            Self::Pages(pages) => pages.counts.kept = pages.kept(),
            Self::Keys(keys) => keys.counts.kept = keys.kept(),
            Self::Requests(requests) => requests.counts.kept = requests.kept(),
        }
    }
}

const LOCKS: [&str; 4] = [
    "steadfast:lock/locks@0.1.0#[constructor]lock",
    "steadfast:lock/locks@0.1.0#[method]lock.take",
    "steadfast:lock/locks@0.1.0#[method]lock.release",
    "steadfast:lock/locks@0.1.0#[method]lock.holder",
];

/// Takes and releases locks.
pub(crate) struct Locks<'a> {
    edge: &'a Edge,
    functions: [usize; 4],
    /// Handle, owner, and whether it is the handle that was opened at first.
    locks: Vec<(Handle, Option<u32>, bool)>,
    turn: u32,
    counts: Counts,
}

fn held(owner: Option<u32>) -> Value {
    Value::Option(owner.map(|owner| Box::new(Value::U32(owner))))
}

impl<'a> Locks<'a> {
    fn new(edge: &'a Edge, handles: usize) -> Result<Self, Told> {
        let functions = functions(edge, LOCKS)?;
        let mut client = Self {
            edge,
            functions,
            locks: Vec::new(),
            turn: 0,
            counts: Counts::default(),
        };
        for owner in 0..u32::try_from(handles).unwrap_or(u32::MAX) {
            let handle = client
                .open()
                .ok_or_else(|| anyhow::anyhow!("the component gave no lock"))?;
            let taken = edge.call(client.functions[1], &[handle.into(), owner.into()])?;
            if taken != Some(Value::Bool(true)) {
                return Err(anyhow::anyhow!("a new lock could not be taken").into());
            }
            client.locks.push((handle, Some(owner), true));
        }
        Ok(client)
    }

    fn open(&self) -> Option<Handle> {
        self.edge
            .call(self.functions[0], &[])
            .ok()
            .flatten()
            .and_then(|value| value.handle())
    }

    /// Released in one turn, taken by another owner in the next, asked in the third.
    fn round(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        for place in 0..self.locks.len() {
            let (handle, owner, _) = self.locks[place];
            let other = self.turn.wrapping_add(u32::try_from(place).unwrap_or(0)) & 0xffff;
            let (function, args, right, next) = match (self.turn % 3, owner) {
                (0, Some(owner)) => (
                    2,
                    vec![handle.into(), owner.into()],
                    Value::Result(Ok(None)),
                    None,
                ),
                (1, None) => (
                    1,
                    vec![handle.into(), other.into()],
                    Value::Bool(true),
                    Some(other),
                ),
                _ => (3, vec![handle.into()], held(owner), owner),
            };
            self.counts.calls += 1;
            match self.edge.call(self.functions[function], &args) {
                Ok(Some(value)) => {
                    self.counts.wrong += u64::from(value != right);
                    self.locks[place].1 = next;
                }
                Ok(None) => self.counts.wrong += 1,
                Err(CallError::Stale { .. }) => {
                    self.counts.lost += 1;
                    if let Some(handle) = self.open() {
                        self.locks[place] = (handle, None, false);
                    }
                }
                Err(_) => {}
            }
        }
    }

    fn kept(&self) -> usize {
        let right = |(handle, owner, first): &&(Handle, Option<u32>, bool)| {
            *first
                && self.edge.call(self.functions[3], &[(*handle).into()]) == Ok(Some(held(*owner)))
        };
        self.locks.iter().filter(right).count()
    }
}

const FILES: [&str; 3] = [
    "steadfast:fs/files@0.1.0#[static]file.open",
    "steadfast:fs/files@0.1.0#[method]file.read",
    "steadfast:fs/files@0.1.0#[method]file.write",
];

/// A file of the demonstration: small, since its bytes are compared on each read.
const FILE_BYTES: usize = 2048;
const PIECE: usize = 64;

/// Writes and reads files.
pub(crate) struct Files<'a> {
    edge: &'a Edge,
    functions: [usize; 3],
    /// Handle, what the file must hold, and whether it is the handle that was opened at first.
    files: Vec<(Handle, Vec<u8>, bool)>,
    turn: u32,
    counts: Counts,
}

fn content(value: Option<Value>) -> Option<Vec<u8>> {
    let Some(Value::Result(Ok(Some(data)))) = value else {
        return None;
    };
    match *data {
        Value::Bytes(bytes) => Some(bytes),
        Value::List(items) if items.is_empty() => Some(Vec::new()),
        _ => None,
    }
}

impl<'a> Files<'a> {
    fn new(edge: &'a Edge, handles: usize) -> Result<Self, Told> {
        let functions = functions(edge, FILES)?;
        let mut client = Self {
            edge,
            functions,
            files: Vec::new(),
            turn: 0,
            counts: Counts::default(),
        };
        for n in 0..handles {
            let handle = client
                .open(n)
                .ok_or_else(|| anyhow::anyhow!("the component opened no file"))?;
            client.files.push((handle, Vec::new(), true));
        }
        Ok(client)
    }

    fn open(&self, n: usize) -> Option<Handle> {
        let args = [Value::String(format!("file-{n}")), Value::Bool(true)];
        self.edge
            .call(self.functions[0], &args)
            .ok()
            .flatten()
            .and_then(|value| value.handle())
    }

    /// Writes a piece of each file and reads another one.
    fn round(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        for place in 0..self.files.len() {
            let handle = self.files[place].0;
            // Odd steps through the file reach every piece.
            let offset = (self.turn as usize * 5 + place) % (FILE_BYTES / PIECE) * PIECE;
            let byte = self.turn.wrapping_mul(31).to_le_bytes()[0] ^ place.to_le_bytes()[0];
            let data = [byte; PIECE];
            self.counts.calls += 2;
            match self.edge.call(
                self.functions[2],
                &[
                    handle.into(),
                    (offset as u64).into(),
                    data.as_slice().into(),
                ],
            ) {
                Ok(done) => {
                    let right = Value::Result(Ok(Some(Box::new(Value::U64(PIECE as u64)))));
                    self.counts.wrong += u64::from(done != Some(right));
                    let bytes = &mut self.files[place].1;
                    bytes.resize(bytes.len().max(offset + PIECE), 0);
                    bytes[offset..offset + PIECE].copy_from_slice(&data);
                }
                Err(CallError::Stale { .. }) => self.reopen(place),
                Err(_) => {}
            }
            let (handle, bytes, _) = &self.files[place];
            let from = (offset + FILE_BYTES / 2) % FILE_BYTES;
            let right = bytes
                .get(from..(from + PIECE).min(bytes.len()))
                .unwrap_or_default();
            let length = Value::U32(u32::try_from(PIECE).unwrap_or(0));
            match self.edge.call(
                self.functions[1],
                &[(*handle).into(), (from as u64).into(), length],
            ) {
                Ok(value) => {
                    self.counts.wrong += u64::from(content(value).as_deref() != Some(right))
                }
                Err(CallError::Stale { .. }) => self.reopen(place),
                Err(_) => {}
            }
        }
    }

    fn reopen(&mut self, place: usize) {
        self.counts.lost += 1;
        if let Some(handle) = self.open(place) {
            self.files[place] = (handle, Vec::new(), false);
        }
    }

    fn kept(&self) -> usize {
        let length = Value::U32(u32::try_from(FILE_BYTES).unwrap_or(0));
        let right = |(handle, bytes, first): &&(Handle, Vec<u8>, bool)| {
            let value = self.edge.call(
                self.functions[1],
                &[(*handle).into(), 0u64.into(), length.clone()],
            );
            *first && value.ok().and_then(content).as_deref() == Some(bytes.as_slice())
        };
        self.files.iter().filter(right).count()
    }
}
