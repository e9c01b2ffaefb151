//! Values as bytes: what a host and a component's process say to each other, and what is kept for the next process of a host.
//!
//! ```text
//!   length u32 │ CRC-32C u32 │ message
//! ```
//!
//! Both sides speak in turns. The checksum covers how many messages its sender has received before, so an answer that comes twice answers
//! nothing else.
//!
//! A message is what its type says, number by number, little-endian. Either side may be damaged, so whatever does not fit is an error.
//!
//! Invariants
//!  1. No message is used whose checksum does not fit, or that has bytes left over.
//!  2. What a damaged length asks for is never allocated at once.
//!  3. An answer is used for the question that it was sent after, and for no later one.
//!
//! Not covered: two versions of this program on one socket; both ends are the same binary.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use steadfast_sys::pad::Seen;

use crate::value::{Handle, Value};

/// A dump of all memories of a component is the largest message.
const FRAME_MAX: usize = 1 << 30;
/// Values within values; no interface that anybody has written is deeper.
const DEPTH_MAX: u32 = 64;

/// What is left of a message.
pub(crate) struct Rest<'a> {
    bytes: &'a [u8],
    depth: u32,
}

impl<'a> Rest<'a> {
    fn cut(&mut self, n: usize) -> Option<&'a [u8]> {
        let (cut, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(cut)
    }
}

/// A part of a message.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(rest: &mut Rest<'_>) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(rest: &mut Rest<'_>) -> Option<Self> {
                Some(Self::from_le_bytes(rest.cut(size_of::<Self>())?.try_into().ok()?))
            }
        }
    )* };
}
numbers!(u8, u16, u32, u64, i8, i16, i32, i64);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        match u8::take(rest)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Self::try_from(u64::take(rest)?).ok()
    }
}

/// Bytes as they are; `Vec<u8>` would go one by one.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    bytes.len().put(out);
    out.extend_from_slice(bytes);
}

impl Wire for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(&self.0, out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let length = usize::take(rest)?;
        Some(Self(rest.cut(length)?.to_vec()))
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Self::from_utf8(Bytes::take(rest)?.0).ok()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let count = usize::take(rest)?;
        // Not reserved: the count may be damaged.
        let mut items = Self::new();
        for _ in 0..count {
            items.push(T::take(rest)?);
        }
        Some(items)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(inner) = self {
            inner.put(out);
        }
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Some(match bool::take(rest)? {
            true => Some(T::take(rest)?),
            false => None,
        })
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Some(Self::new(T::take(rest)?))
    }
}

macro_rules! tuples {
    ($(($($part:ident $place:tt),*)),*) => { $(
        impl<$($part: Wire),*> Wire for ($($part,)*) {
            fn put(&self, out: &mut Vec<u8>) {
                $( self.$place.put(out); )*
            }

            fn take(rest: &mut Rest<'_>) -> Option<Self> {
                Some(($($part::take(rest)?,)*))
            }
        }
    )* };
}
tuples!((A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3));

impl Wire for Handle {
    fn put(&self, out: &mut Vec<u8>) {
        (self.index, self.generation).put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (index, generation) = Wire::take(rest)?;
        Some(Self { index, generation })
    }
}

impl Wire for Seen {
    fn put(&self, out: &mut Vec<u8>) {
        (self.signal, self.rip, self.address).put(out);
        self.registers.iter().for_each(|register| register.put(out));
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (signal, rip, address) = Wire::take(rest)?;
        let mut registers = [0; 16];
        for register in &mut registers {
            *register = u64::take(rest)?;
        }
        Some(Self {
            signal,
            rip,
            address,
            registers,
        })
    }
}

/// Whatever part of a variant it is.
macro_rules! part {
    ($part:ident, $rest:ident) => {
        $crate::wire::Wire::take($rest)?
    };
}
pub(crate) use part;

/// An enum whose variants have unnamed parts: its number, then the parts.
macro_rules! variants {
    ($name:ty { $($number:literal $variant:ident $(($($part:ident),*))?),* $(,)? }) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$variant $(($($part),*))? => {
                        out.push($number);
                        $($( $part.put(out); )*)?
                    } )*
                }
            }

            fn take(rest: &mut Rest<'_>) -> Option<Self> {
                Some(match u8::take(rest)? {
                    $( $number => Self::$variant $(($( part!($part, rest) ),*))?, )*
                    _ => return None,
                })
            }
        }
    };
}
pub(crate) use variants;

impl Wire for Value {
    fn put(&self, out: &mut Vec<u8>) {
        macro_rules! tagged {
            ($tag:literal, $inner:expr) => {{
                out.push($tag);
                $inner.put(out);
            }};
        }
        match self {
            Self::Bool(b) => tagged!(1, b),
            Self::U8(n) => tagged!(2, n),
            Self::U16(n) => tagged!(3, n),
            Self::U32(n) => tagged!(4, n),
            Self::U64(n) => tagged!(5, n),
            Self::S8(n) => tagged!(6, n),
            Self::S16(n) => tagged!(7, n),
            Self::S32(n) => tagged!(8, n),
            Self::S64(n) => tagged!(9, n),
            Self::F32(n) => tagged!(10, n),
            Self::F64(n) => tagged!(11, n),
            Self::Char(c) => tagged!(12, u32::from(*c)),
            Self::String(s) => tagged!(13, s),
            Self::Bytes(bytes) => {
                out.push(14);
                put_bytes(bytes, out);
            }
            Self::List(items) => tagged!(15, items),
            Self::Record(fields) => tagged!(16, fields),
            Self::Tuple(items) => tagged!(17, items),
            Self::Variant(name, inner) => {
                out.push(18);
                name.put(out);
                inner.put(out);
            }
            Self::Enum(name) => tagged!(19, name),
            Self::Option(inner) => tagged!(20, inner),
            Self::Result(Ok(inner)) => tagged!(21, inner),
            Self::Result(Err(inner)) => tagged!(22, inner),
            Self::Flags(names) => tagged!(23, names),
            Self::Handle(handle) => tagged!(24, handle),
        }
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        rest.depth += 1;
        if rest.depth > DEPTH_MAX {
            return None;
        }
        let value = match u8::take(rest)? {
            1 => Self::Bool(Wire::take(rest)?),
            2 => Self::U8(Wire::take(rest)?),
            3 => Self::U16(Wire::take(rest)?),
            4 => Self::U32(Wire::take(rest)?),
            5 => Self::U64(Wire::take(rest)?),
            6 => Self::S8(Wire::take(rest)?),
            7 => Self::S16(Wire::take(rest)?),
            8 => Self::S32(Wire::take(rest)?),
            9 => Self::S64(Wire::take(rest)?),
            10 => Self::F32(Wire::take(rest)?),
            11 => Self::F64(Wire::take(rest)?),
            12 => Self::Char(char::from_u32(Wire::take(rest)?)?),
            13 => Self::String(Wire::take(rest)?),
            14 => Self::Bytes(Bytes::take(rest)?.0),
            15 => Self::List(Wire::take(rest)?),
            16 => Self::Record(Wire::take(rest)?),
            17 => Self::Tuple(Wire::take(rest)?),
            18 => Self::Variant(Wire::take(rest)?, Wire::take(rest)?),
            19 => Self::Enum(Wire::take(rest)?),
            20 => Self::Option(Wire::take(rest)?),
            21 => Self::Result(Ok(Wire::take(rest)?)),
            22 => Self::Result(Err(Wire::take(rest)?)),
            23 => Self::Flags(Wire::take(rest)?),
            24 => Self::Handle(Wire::take(rest)?),
            _ => return None,
        };
        rest.depth -= 1;
        Some(value)
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

/// A whole message.
pub(crate) fn parsed<T: Wire>(bytes: &[u8]) -> Option<T> {
    let mut rest = Rest { bytes, depth: 0 };
    let message = T::take(&mut rest)?;
    rest.bytes.is_empty().then_some(message)
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Line {
    stream: UnixStream,
    out: Vec<u8>,
    /// What has come and was not used.
    input: Vec<u8>,
    sent: u32,
    received: u32,
}

/// Of a message that was sent after so many had come.
fn checksum(bytes: &[u8], received: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(bytes), &received.to_le_bytes())
}

const HEAD: usize = 8;
/// Of one read.
const PIECE: usize = 64 << 10;

impl Line {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            out: Vec::new(),
            input: Vec::new(),
            sent: 0,
            received: 0,
        }
    }

    pub(crate) fn send(&mut self, message: &impl Wire) -> io::Result<()> {
        self.out.clear();
        self.out.resize(HEAD, 0);
        message.put(&mut self.out);
        let length = u32::try_from(self.out.len() - HEAD).map_err(|_| damaged("too long"))?;
        self.out[..4].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(&self.out[HEAD..], self.received);
        self.out[4..HEAD].copy_from_slice(&crc.to_le_bytes());
        self.stream.write_all(&self.out)?;
        self.sent = self.sent.wrapping_add(1);
        Ok(())
    }

    /// The next message. `silent` is asked whenever the stream's read timeout passes, and ends the wait by an error.
    pub(crate) fn receive<T: Wire>(
        &mut self,
        mut silent: impl FnMut() -> io::Result<()>,
    ) -> io::Result<T> {
        let mut piece = [0_u8; PIECE];
        loop {
            if let Some(head) = self.input.first_chunk::<HEAD>() {
                let [a, b, c, d, crc @ ..] = *head;
                let length = u32::from_le_bytes([a, b, c, d]) as usize;
                if length > FRAME_MAX {
                    return Err(damaged("a length that no message has"));
                }
                if let Some(bytes) = self.input.get(HEAD..HEAD + length) {
                    if checksum(bytes, self.sent) != u32::from_le_bytes(crc) {
                        return Err(damaged("a checksum that does not fit"));
                    }
                    let message = parsed(bytes).ok_or_else(|| damaged("a message that is none"));
                    self.input.drain(..HEAD + length);
                    self.received = self.received.wrapping_add(1);
                    return message;
                }
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.input.extend_from_slice(&piece[..n]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => silent()?,
                    _ => return Err(error),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Vec<Value> {
        let handle = Handle {
            index: 7,
            generation: 9,
        };
        let text = Value::String("täxt".into());
        let all = vec![
            Value::Bool(true),
            Value::U8(1),
            Value::U16(2),
            Value::U32(3),
            Value::U64(u64::MAX),
            Value::S8(-1),
            Value::S16(-2),
            Value::S32(-3),
            Value::S64(i64::MIN),
            Value::F32(f32::NAN.to_bits()),
            Value::F64(1.5_f64.to_bits()),
            Value::Char('ä'),
            Value::Bytes(vec![0, 255]),
            Value::Record(vec![("a".into(), text.clone())]),
            Value::Tuple(vec![text.clone()]),
            Value::Variant("b".into(), Some(Box::new(text.clone()))),
            Value::Enum("c".into()),
            Value::Option(None),
            Value::Result(Ok(Some(Box::new(Value::Handle(handle))))),
            Value::Result(Err(None)),
            Value::Flags(vec!["d".into()]),
        ];
        let mut with_all = all.clone();
        with_all.push(Value::List(all));
        with_all
    }

    #[test]
    fn values_arrive_as_they_were_sent_and_no_shorter_message_is_one() {
        let mut bytes = Vec::new();
        values().put(&mut bytes);
        assert_eq!(parsed::<Vec<Value>>(&bytes), Some(values()));
        for cut in 0..bytes.len() {
            assert_eq!(parsed::<Vec<Value>>(&bytes[..cut]), None, "{cut}");
        }
        bytes.push(0);
        assert_eq!(parsed::<Vec<Value>>(&bytes), None, "a byte too many");
    }

    #[test]
    fn values_within_values_end_somewhere() {
        let mut bytes = [20, 1].repeat(100_000);
        bytes.extend([1, 1]);
        assert_eq!(parsed::<Value>(&bytes), None);
    }

    #[test]
    fn an_answer_that_comes_twice_answers_one_question() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (mut host, mut process) = (Line::new(near), Line::new(far));
        for n in 0..3_u32 {
            host.send(&n).expect("sent");
            assert_eq!(process.receive(|| Ok(())).ok(), Some(n));
            process.send(&(n + 10)).expect("sent");
            assert_eq!(host.receive(|| Ok(())).ok(), Some(n + 10));
        }
        process.send(&12_u32).expect("sent");
        host.send(&3_u32).expect("sent");
        let found = host.receive::<u32>(|| Ok(()));
        assert!(found.is_err(), "{found:?}");
    }

    #[test]
    fn any_flip_in_a_frame_is_an_error_and_never_a_message() {
        let (near, far) = UnixStream::pair().expect("a pair");
        Line::new(near).send(&values()).expect("sent");
        let mut whole = Line::new(far);
        let found = whole.receive::<Vec<Value>>(|| Ok(()));
        assert_eq!(found.expect("whole"), values());
        let frame = {
            let (near, mut far) = UnixStream::pair().expect("a pair");
            let mut line = Line::new(near);
            line.send(&values()).expect("sent");
            drop(line);
            let mut frame = Vec::new();
            far.read_to_end(&mut frame).expect("read");
            frame
        };
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (mut near, far) = UnixStream::pair().expect("a pair");
            near.write_all(&flipped).expect("sent");
            drop(near);
            let found = Line::new(far).receive::<Vec<Value>>(|| Ok(()));
            assert!(found.is_err(), "bit {bit}");
        }
    }
}
