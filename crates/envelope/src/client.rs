//! The asking side of a connection: negotiates the envelope, seals requests, opens replies.
//!
//! ```text
//! client: steadfast envelope 1 0123456789abcdef\r\n        the nonce, sixteen hexadecimal digits
//! server: STEADFAST envelope 1\r\n                         from here on, frames in both directions
//!     or: ERROR\r\n, or anything else                      a stock server: plain bytes as ever
//! ```
//!
//! Works on any `Read + Write`; opening sockets and limiting time are the caller's business.

use std::io::{self, Read, Write};

use super::Damage;
use super::stream::{Front, HEADER, Opener, PAYLOAD_MAX, Sealer, Sender};

/// What a server answers that has agreed.
pub const AGREED: &[u8] = b"STEADFAST envelope 1\r\n";

/// No answer to the question is longer than this; memcached's `ERROR\r\n` is 7 bytes.
const ANSWER_MAX: usize = 256;

/// The line that asks for the envelope.
#[must_use]
pub fn hello(nonce: u64) -> String {
    format!("steadfast envelope 1 {nonce:016x}\r\n")
}

/// A connection on which both ends have agreed, or on which the server is a stock one.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    /// None on a plain connection.
    envelope: Option<(Sealer, Opener)>,
    sealed: Vec<u8>,
    /// Received and not yet handed out; the front is at `start`.
    buffer: Vec<u8>,
    start: usize,
}

impl<S: Read + Write> Connection<S> {
    /// A connection without the envelope.
    pub fn plain(stream: S) -> Self {
        Connection {
            stream,
            envelope: None,
            sealed: Vec::new(),
            buffer: Vec::new(),
            start: 0,
        }
    }

    /// Asks for the envelope; a stock server's refusal leaves a plain connection.
    ///
    /// # Errors
    /// When the stream fails or ends before the answer.
    pub fn negotiate(mut stream: S, nonce: u64) -> io::Result<Self> {
        stream.write_all(hello(nonce).as_bytes())?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n") {
            let mut byte = [0];
            if stream.read(&mut byte)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            answer.push(byte[0]);
            if answer.len() > ANSWER_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the answer to the envelope's question is not a line",
                ));
            }
        }
        let mut connection = Connection::plain(stream);
        if answer == AGREED {
            connection.envelope = Some((
                Sealer::new(nonce, Sender::Client),
                Opener::new(nonce, Sender::Server),
            ));
        }
        Ok(connection)
    }

    /// Whether messages carry the envelope.
    pub fn enveloped(&self) -> bool {
        self.envelope.is_some()
    }

    /// The stream underneath.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Sends one message.
    ///
    /// # Errors
    /// When the stream fails.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match &mut self.envelope {
            None => self.stream.write_all(message),
            Some((sealer, _)) => {
                self.sealed.clear();
                sealer.seal(message, &mut self.sealed);
                self.stream.write_all(&self.sealed)
            }
        }
    }

    /// Appends what arrives next to `out`, checked; 0 means that the server has closed.
    ///
    /// # Errors
    /// When the stream fails, or a frame is damaged (kind `InvalidData`, source [`Damage`]).
    pub fn receive(&mut self, out: &mut Vec<u8>) -> io::Result<usize> {
        let before = out.len();
        loop {
            if let Some((_, opener)) = &mut self.envelope {
                while let Front::Frame { payload, used } =
                    opener.open(&self.buffer[self.start..]).map_err(invalid)?
                {
                    out.extend_from_slice(payload);
                    self.start += used;
                }
            } else {
                out.append(&mut self.buffer);
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            if out.len() > before {
                return Ok(out.len() - before);
            }
            let filled = self.buffer.len();
            self.buffer.resize(filled + HEADER + PAYLOAD_MAX, 0);
            let got = self.stream.read(&mut self.buffer[filled..]);
            self.buffer.truncate(filled + *got.as_ref().unwrap_or(&0));
            if got? == 0 {
                if let Some((_, opener)) = &self.envelope {
                    opener.end(&self.buffer).map_err(invalid)?;
                }
                return Ok(0);
            }
        }
    }
}

fn invalid(damage: Damage) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, damage)
}
