use std::collections::VecDeque;
use std::io::{self, Read, Write};

use proptest::prelude::*;

use super::client::{AGREED, Connection, hello};
use super::stream::{Front, HEADER, Opener, PAYLOAD_MAX, Sealer, Sender};
use super::{Damage, crc, dns};

const NONCE: u64 = 0x0123_4567_89ab_cdef;

#[test]
fn the_tables_agree_with_the_published_vectors() {
    // RFC 3720, appendix B.4.
    let ascending: Vec<u8> = (0..32).collect();
    assert_eq!(crc::crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc::crc32c(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc::crc32c(&ascending), 0x46dd_794e);
    assert_eq!(crc::crc32c(b""), 0);
}

proptest! {
    #[test]
    fn the_tables_agree_with_the_instruction(bytes: Vec<u8>, cut: usize) {
        let (head, tail) = bytes.split_at(cut % (bytes.len() + 1));
        prop_assert_eq!(crc::crc32c(&bytes), steadfast_digest::crc32c(&bytes));
        prop_assert_eq!(crc::append(crc::crc32c(head), tail), crc::crc32c(&bytes));
    }

    #[test]
    fn what_is_sealed_is_opened(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..20)) {
        let mut wire = Vec::new();
        let mut sealer = Sealer::new(NONCE, Sender::Client);
        for message in &messages {
            sealer.seal(message, &mut wire);
        }
        prop_assert_eq!(open_all(&wire, Sender::Client).unwrap(), messages.concat());
    }

    #[test]
    fn dns_messages_survive_and_arbitrary_bytes_do_no_harm(serial: u32, bytes: Vec<u8>) {
        let query = query(false);
        let sealed = dns::seal(&query, serial, 1232).unwrap();
        let opened = dns::open(&sealed).unwrap().unwrap();
        prop_assert_eq!(opened.serial, serial);
        let _ = dns::open(&bytes);
        let _ = dns::seal(&bytes, serial, 512);
    }
}

fn open_all(mut wire: &[u8], sender: Sender) -> Result<Vec<u8>, Damage> {
    let mut opener = Opener::new(NONCE, sender);
    let mut out = Vec::new();
    while let Front::Frame { payload, used } = opener.open(wire)? {
        out.extend_from_slice(payload);
        wire = &wire[used..];
    }
    opener.end(wire)?;
    Ok(out)
}

fn frames() -> Vec<u8> {
    let mut wire = Vec::new();
    let mut sealer = Sealer::new(NONCE, Sender::Server);
    sealer.seal(b"VALUE a 0 1\r\n1\r\nEND\r\n", &mut wire);
    sealer.seal(b"STORED\r\n", &mut wire);
    wire
}

#[test]
fn every_flipped_bit_is_found() {
    let sound = frames();
    let first = open_all(&sound, Sender::Server).unwrap();
    for bit in 0..sound.len() * 8 {
        let mut wire = sound.clone();
        wire[bit / 8] ^= 1 << (bit % 8);
        let found = open_all(&wire, Sender::Server);
        assert!(found.is_err(), "bit {bit} gave {found:?}");
    }
    assert_eq!(first, b"VALUE a 0 1\r\n1\r\nEND\r\nSTORED\r\n");
}

#[test]
fn frames_that_are_lost_repeated_swapped_or_cut_off_are_found() {
    let wire = frames();
    let cut = HEADER + b"VALUE a 0 1\r\n1\r\nEND\r\n".len();
    let (one, two) = wire.split_at(cut);
    let sequence = |bytes: &[u8]| {
        matches!(
            open_all(bytes, Sender::Server),
            Err(Damage::Sequence { .. })
        )
    };
    assert!(sequence(two));
    assert!(sequence(&[one, one].concat()));
    assert!(sequence(&[two, one].concat()));
    assert_eq!(
        open_all(&wire[..wire.len() - 1], Sender::Server),
        Err(Damage::Truncated)
    );
}

#[test]
fn a_frame_of_another_connection_or_direction_does_not_check() {
    let wire = frames();
    let checksum = |found| matches!(found, Err(Damage::Checksum { .. }));
    assert!(checksum(open_all(&wire, Sender::Client)));
    let mut other = Opener::new(NONCE + 1, Sender::Server);
    assert!(checksum(other.open(&wire).map(|_| Vec::new())));
    // And for ever: nobody knows where the next frame begins.
    assert!(other.open(&frames()).is_err());
}

#[test]
fn long_messages_are_cut_into_frames() {
    let message = vec![7; PAYLOAD_MAX * 2 + 1];
    let mut wire = Vec::new();
    Sealer::new(NONCE, Sender::Client).seal(&message, &mut wire);
    assert_eq!(wire.len(), message.len() + 3 * HEADER);
    assert_eq!(open_all(&wire, Sender::Client).unwrap(), message);
}

#[test]
fn a_length_that_would_make_the_receiver_wait_is_found_at_once() {
    let mut wire = frames();
    wire[1] ^= 0x20;
    let found = Opener::new(NONCE, Sender::Server).open(&wire[..HEADER]);
    assert!(matches!(found, Err(Damage::Length { .. })), "{found:?}");
}

/// A peer whose answers are known beforehand, a few bytes a read.
#[derive(Debug)]
struct Scripted {
    answers: VecDeque<u8>,
    sent: Vec<u8>,
}

impl Read for Scripted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(self.answers.len()).min(5);
        for (slot, byte) in into.iter_mut().zip(self.answers.drain(..count)) {
            *slot = byte;
        }
        Ok(count)
    }
}

impl Write for Scripted {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.sent.extend_from_slice(from);
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn peer(answers: &[u8]) -> Scripted {
    Scripted {
        answers: answers.iter().copied().collect(),
        sent: Vec::new(),
    }
}

#[test]
fn a_server_that_agrees_speaks_frames_and_a_stock_one_plain_bytes() {
    let hardened = peer(&[AGREED, &frames()].concat());
    let mut connection = Connection::negotiate(hardened, NONCE).unwrap();
    assert!(connection.enveloped());
    connection.send(b"get a\r\n").unwrap();
    let (greeting, sent) = connection.stream().sent.split_at(hello(NONCE).len());
    assert_eq!(greeting, hello(NONCE).as_bytes());
    assert_eq!(open_all(sent, Sender::Client).unwrap(), b"get a\r\n");
    let mut reply = Vec::new();
    while connection.receive(&mut reply).unwrap() > 0 {}
    assert_eq!(reply, b"VALUE a 0 1\r\n1\r\nEND\r\nSTORED\r\n");

    let stock = peer(b"ERROR\r\nEND\r\n");
    let mut connection = Connection::negotiate(stock, NONCE).unwrap();
    assert!(!connection.enveloped());
    connection.send(b"get a\r\n").unwrap();
    assert!(connection.stream().sent.ends_with(b"get a\r\n"));
    let mut reply = Vec::new();
    connection.receive(&mut reply).unwrap();
    assert!(b"END\r\n".starts_with(&reply));
}

#[test]
fn a_damaged_reply_is_an_error_and_none_of_it_is_handed_out() {
    let mut wire = frames();
    wire[HEADER] ^= 1;
    let mut connection = Connection::negotiate(peer(&[AGREED, &wire].concat()), NONCE).unwrap();
    let mut reply = Vec::new();
    let error = connection.receive(&mut reply).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(reply.is_empty());
}

/// `a. IN A`, with or without an OPT record.
fn query(edns: bool) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, edns.into()];
    query.extend_from_slice(&[1, b'a', 0, 0, 1, 0, 1]);
    if edns {
        query.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    }
    query
}

#[test]
fn the_option_comes_and_goes_and_the_message_stays() {
    let with = query(true);
    let sealed = dns::seal(&with, 7, 1232).unwrap();
    assert_eq!(sealed.len(), with.len() + dns::OPTION_BYTES);
    assert_eq!(dns::open(&sealed).unwrap().unwrap().message, with);
    // A message without an OPT record gets one.
    let sealed = dns::seal(&query(false), 7, 1232).unwrap();
    assert_eq!(dns::open(&sealed).unwrap().unwrap().message, with);
    assert_eq!(dns::open(&with), Ok(None));
}

#[test]
fn every_flipped_bit_of_a_datagram_is_found_or_hides_the_option() {
    let sealed = dns::seal(&query(true), 7, 1232).unwrap();
    for bit in 0..sealed.len() * 8 {
        let mut damaged = sealed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // A flip in the option's code or the record's type makes it another option: then there
        // is no envelope where one was due, which a client that asked for one does not accept.
        let found = dns::open(&damaged);
        assert!(!matches!(found, Ok(Some(_))), "bit {bit} gave {found:?}");
    }
}
