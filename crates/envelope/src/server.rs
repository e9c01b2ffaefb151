//! The answering side of a connection, for servers in Rust: sees whether a client asks for the envelope, opens requests, seals replies.
//!
//! A reply can be sealed with a judge: it looks at the sealed bytes once their checksum has been computed over them. What the judge has
//! seen is what the checksum vouches for, so nothing between a vote on a reply and the client goes unchecked.
//!
//! Invariant: a request whose checksum or place in the sequence does not fit is never handed out.
//!
//! Not covered: datagrams; a request between its last check here and whoever executes it.

use super::Damage;
use super::client::AGREED;
use super::stream::{Front, HEADER, Opener, PAYLOAD_MAX, Sealer, Sender};

const ASKING: &[u8] = b"steadfast envelope 1 ";
/// The asking line: its words, sixteen digits, the end of the line.
const LINE: usize = 39;

/// What the first bytes of a connection ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing: plain bytes.
    Plain,
    /// They may become the asking line.
    Partial,
    /// The envelope, with this nonce. The line is all that the client has sent.
    Envelope(u64),
}

/// Reads the first bytes of a connection.
#[must_use]
pub fn asked(first: &[u8]) -> Asked {
    let common = first.len().min(ASKING.len());
    if first[..common] != ASKING[..common] || first.len() > LINE {
        return Asked::Plain;
    }
    if first.len() < LINE {
        return Asked::Partial;
    }
    let (digits, end) = first[ASKING.len()..].split_at(16);
    let lower = digits
        .iter()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let nonce = std::str::from_utf8(digits).ok().filter(|_| lower);
    match nonce.and_then(|text| u64::from_str_radix(text, 16).ok()) {
        Some(nonce) if end == b"\r\n" => Asked::Envelope(nonce),
        _ => Asked::Plain,
    }
}

/// Both directions of a connection whose client has asked.
#[derive(Debug)]
pub struct Envelope {
    sealer: Sealer,
    opener: Opener,
}

impl Envelope {
    /// What the client is answered, in plain bytes, before anything else.
    pub const AGREED: &'static [u8] = AGREED;

    #[must_use]
    pub fn new(nonce: u64) -> Self {
        Self {
            sealer: Sealer::new(nonce, Sender::Server),
            opener: Opener::new(nonce, Sender::Client),
        }
    }

    /// Moves the payloads of all whole frames from the front of `sealed` to `plain`.
    ///
    /// # Errors
    /// When a frame is damaged: the connection is of no use any more.
    pub fn open(&mut self, sealed: &mut Vec<u8>, plain: &mut Vec<u8>) -> Result<(), Damage> {
        let mut start = 0;
        while let Front::Frame { payload, used } = self.opener.open(&sealed[start..])? {
            plain.extend_from_slice(payload);
            start += used;
        }
        sealed.drain(..start);
        Ok(())
    }

    /// Appends a message as frames; then hands their payloads, as they lie there, to `right`. False where that says no: what was
    /// appended must not be sent, and the connection is of no use any more.
    pub fn seal(
        &mut self,
        message: &[u8],
        out: &mut Vec<u8>,
        right: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let start = out.len();
        self.sealer.seal(message, out);
        let frames = &out[start..];
        match frames.len() {
            0..=HEADER => right(&[]),
            one if one <= HEADER + PAYLOAD_MAX => right(&frames[HEADER..]),
            _ => {
                let payloads: Vec<u8> = frames
                    .chunks(HEADER + PAYLOAD_MAX)
                    .flat_map(|frame| frame.iter().skip(HEADER))
                    .copied()
                    .collect();
                right(&payloads)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::hello;

    #[test]
    fn only_the_whole_line_alone_asks() {
        let line = hello(0xfe);
        assert_eq!(asked(line.as_bytes()), Asked::Envelope(0xfe));
        for length in 0..LINE {
            assert_eq!(
                asked(&line.as_bytes()[..length]),
                Asked::Partial,
                "{length}"
            );
        }
        for other in [
            "get a\r\n".to_owned(),
            line.to_uppercase(),
            line.replace("fe", "FE"),
            line.replace("\r\n", "00"),
            line + "get a\r\n",
        ] {
            assert_eq!(asked(other.as_bytes()), Asked::Plain, "{other:?}");
        }
    }

    #[test]
    fn both_ends_understand_each_other_and_the_judge_sees_what_is_sent() {
        for length in [0, 1, PAYLOAD_MAX, PAYLOAD_MAX + 1, 3 * PAYLOAD_MAX] {
            let message: Vec<u8> = (0..length).map(|at| at.to_le_bytes()[0]).collect();
            let mut server = Envelope::new(7);
            let mut sealed = Vec::new();
            assert!(server.seal(&message, &mut sealed, |found| found == message));
            assert!(!server.seal(&message, &mut Vec::new(), |found| found.len() != length));
            let mut client = Opener::new(7, Sender::Server);
            let mut opened = Vec::new();
            let mut start = 0;
            while let Front::Frame { payload, used } = client.open(&sealed[start..]).unwrap() {
                opened.extend_from_slice(payload);
                start += used;
            }
            assert_eq!(opened, message);

            let mut asking = Vec::new();
            Sealer::new(7, Sender::Client).seal(&message, &mut asking);
            let mut read = Vec::new();
            server.open(&mut asking, &mut read).unwrap();
            assert_eq!((read, asking.len()), (message, 0));
        }
    }
}
