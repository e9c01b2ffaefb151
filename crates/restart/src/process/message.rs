//! What host and process say to each other.

use steadfast_sys::pad::Seen;

use crate::engine::Asked;
use crate::value::{Handle, Value};
use crate::wire::{Bytes, Rest, Wire, part, variants};

/// A function of an import: its name, its place, and which resource it gives an object of.
pub(super) type Wanted = (String, usize, Option<usize>);

/// What the host says.
pub(super) enum Order {
    Start(Box<Opening>),
    /// Function, whether it has a result, arguments; a handle is the process's number for an object.
    Call(usize, bool, Vec<Value>),
    Discard(u32),
    Reset,
    /// A bit of linear memory.
    Flip(usize, u8),
    /// A general register and its bit, at the next tick that finds the component's code.
    Strike(u32, u32),
    Struck,
    Digest,
    Dump,
    /// Answers [`Reply::Ask`]; none where the call is over.
    Answer(Option<Option<Value>>),
}
variants!(Order {
    1 Start(opening),
    2 Call(function, has_result, args),
    3 Discard(object),
    4 Reset,
    5 Flip(address, bit),
    6 Strike(register, bit),
    7 Struck,
    8 Digest,
    9 Dump,
    10 Answer(answer),
});

/// The first order.
pub(super) struct Opening {
    pub(super) name: String,
    pub(super) image: String,
    /// Interface, name, arguments that are given away.
    pub(super) functions: Vec<(String, String, Vec<usize>)>,
    pub(super) imports: Vec<(String, Vec<Wanted>)>,
    pub(super) init: Option<String>,
    pub(super) memory: usize,
    pub(super) call_ns: u64,
    pub(super) pad: bool,
}

impl Wire for Opening {
    fn put(&self, out: &mut Vec<u8>) {
        (self.name.clone(), self.image.clone()).put(out);
        self.functions.put(out);
        self.imports.put(out);
        self.init.put(out);
        (self.memory, self.call_ns, self.pad).put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (name, image) = Wire::take(rest)?;
        let (functions, imports) = (Wire::take(rest)?, Wire::take(rest)?);
        let init = Wire::take(rest)?;
        let (memory, call_ns, pad) = Wire::take(rest)?;
        Some(Self {
            name,
            image,
            functions,
            imports,
            init,
            memory,
            call_ns,
            pad,
        })
    }
}

/// Of each memory: length and checksum.
pub(crate) type Memories = Vec<(usize, u32)>;

/// What the process says.
pub(super) enum Reply {
    /// Where the component's code lies there, and what its memories hold before the first call.
    Started(u64, u64, Memories),
    /// It does not start, or did not come back.
    Refused(String),
    Done(Box<Outcome>),
    Failed(Fault, Option<Seen>),
    /// A question to another component, by the place of the import.
    Ask(usize, Asked),
    Yes(bool),
    /// What its memories hold, after a reset as well.
    Digest(Memories),
    Dump(Vec<Bytes>),
}
variants!(Reply {
    1 Started(start, end, memories),
    2 Refused(why),
    3 Done(outcome),
    4 Failed(fault, seen),
    5 Ask(import, asked),
    6 Yes(yes),
    7 Digest(memories),
    8 Dump(memories),
});

/// What a call came to.
pub(super) struct Outcome {
    pub(super) value: Option<Value>,
    /// Numbers of the objects that it gave.
    pub(super) made: Vec<u32>,
    /// What the component holds at others.
    pub(super) held: Vec<(usize, Handle)>,
}

impl Wire for Outcome {
    fn put(&self, out: &mut Vec<u8>) {
        self.value.put(out);
        self.made.put(out);
        self.held.put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Some(Self {
            value: Wire::take(rest)?,
            made: Wire::take(rest)?,
            held: Wire::take(rest)?,
        })
    }
}

/// [`Failure`], as a process tells it.
pub(super) enum Fault {
    Pad,
    Trap(String),
    Hang(u64),
    Invalid(String),
    /// It was answered [`Order::Answer`] without an answer; the host knows why.
    Unanswered,
}
variants!(Fault {
    1 Pad,
    2 Trap(what),
    3 Hang(at),
    4 Invalid(what),
    5 Unanswered,
});

impl Wire for Asked {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Call(function, args) => (1_u8, *function, args.clone()).put(out),
            Self::Discard(handle) => (2_u8, *handle).put(out),
        }
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Some(match u8::take(rest)? {
            1 => Self::Call(Wire::take(rest)?, Wire::take(rest)?),
            2 => Self::Discard(Wire::take(rest)?),
            _ => return None,
        })
    }
}
