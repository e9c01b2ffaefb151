//! Link: what the two sites say to each other, framed over one TCP connection.
//!
//! A frame is its length, its kind, its body and a sum of these. A long body is compressed where that makes it shorter. Both ends speak one version;
//! another one is refused at the greeting.
//!
//! Invariant: a frame that was changed between its two ends, in a buffer or on its way, ends the link. TCP's own sum has 16 bits.
//!
//! Not covered: secrecy and authentication without certificates (tls.rs). Such a link belongs into a network of its own.

use std::io::{self, BufReader, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;
use crate::cli::{Right, Side};
use crate::error::PairError;
use crate::tls::{Incoming, Outgoing};
use steadfast_digest::{crc32c, crc32c_append};

/// Bumped with every change of what is said.
pub(crate) const VERSION: u32 = 18;
/// A frame is no longer than what one event brings (abi.h, `SF_READ_MAX`), and its names.
const FRAME_MAX: usize = 192 << 20;
/// A shorter body fits into a packet or two as it is.
const COMPRESSED_MIN: usize = 1024;
/// In the byte of the kind: the body is its length and an LZ4 block.
const COMPRESSED: u8 = 0x80;
/// CRC32C of kind and body as they were before they were compressed, behind the body.
const SUM: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    Greeting = 1,
    Manifest,
    Refusal,
    Ready,
    Go,
    Step,
    Claims,
    End,
    Ask,
    Tell,
    Incident,
    Stop,
    Bye,
    /// Nothing new: this site is there.
    Beat,
    /// From the site that is right to the other one, before anything starts: what its files lack (bring.rs).
    Patch,
    /// A page that the primary's scrubber does not find as the ledger has it.
    Suspect,
    /// Pages of the program's memory: their address, and bytes (door.rs).
    Memory,
    /// What a site that comes back needs besides memory and files (given.rs).
    Given,
    /// The two programs claim different things (dispute.rs).
    Dispute,
    /// This site leaves the pair, and will not go on: the other one does. Why, unless it was asked to.
    Leave,
    /// The primary's program stands: lead it, with what its clients' connections have left unread (control.rs).
    Handover,
    /// A process of the primary's is another program (crew.rs).
    Exec,
    /// A process beside the first one has ended.
    Ended,
    /// What the primary claims about an event that it has not done yet (crew.rs).
    Claimed,
    /// What the processes of a program that a site joins are to each other (given.rs).
    Others,
}

impl Tag {
    const ALL: [Self; 25] = [
        Self::Greeting,
        Self::Manifest,
        Self::Refusal,
        Self::Ready,
        Self::Go,
        Self::Step,
        Self::Claims,
        Self::End,
        Self::Ask,
        Self::Tell,
        Self::Incident,
        Self::Stop,
        Self::Bye,
        Self::Beat,
        Self::Patch,
        Self::Suspect,
        Self::Memory,
        Self::Given,
        Self::Dispute,
        Self::Leave,
        Self::Handover,
        Self::Exec,
        Self::Ended,
        Self::Claimed,
        Self::Others,
    ];
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) tag: Tag,
    pub(crate) body: Vec<u8>,
}

impl Frame {
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(&self.body).map_err(io::Error::other)
    }
}

/// The sending half: any thread may send.
#[derive(Debug)]
pub(crate) struct Sender(Mutex<Outgoing>);

impl Sender {
    pub(crate) fn send(&self, tag: Tag, parts: &[&[u8]]) -> io::Result<()> {
        let frame = frame(tag, parts)?;
        self.0.lock().expect("no panic under it").write_all(&frame)
    }

    pub(crate) fn say<T: Serialize>(&self, tag: Tag, what: &T) -> io::Result<()> {
        self.send(tag, &[&serde_json::to_vec(what).map_err(io::Error::other)?])
    }

    /// From now on a peer that says nothing, or takes nothing, for so long counts as lost.
    pub(crate) fn expect_within(&self, limit: Duration) -> io::Result<()> {
        let outgoing = self.0.lock().expect("no panic under it");
        let stream = outgoing.stream();
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))
    }

    /// Has the other half's reading end.
    pub(crate) fn close(&self) {
        let _ = self
            .0
            .lock()
            .expect("no panic under it")
            .stream()
            .shutdown(std::net::Shutdown::Both);
    }
}

fn sum(tag: Tag, parts: &[&[u8]]) -> [u8; SUM] {
    let first = crc32c(&[tag as u8]);
    let all = parts
        .iter()
        .fold(first, |sum, part| crc32c_append(sum, part));
    all.to_le_bytes()
}

/// Whoever greets may speak to another version: a greeting is never compressed, and has no sum.
fn frame(tag: Tag, parts: &[&[u8]]) -> io::Result<Vec<u8>> {
    let greets = tag == Tag::Greeting;
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let put = |kind: u8, len: usize, parts: &[&[u8]], sum: &[u8]| -> io::Result<Vec<u8>> {
        let whole = u32::try_from(len + sum.len()).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(len + SUM + 5);
        frame.extend(whole.to_le_bytes());
        frame.push(kind);
        for part in parts.iter().chain([&sum]) {
            frame.extend_from_slice(part);
        }
        Ok(frame)
    };
    if greets {
        return put(tag as u8, len, parts, &[]);
    }
    let sum = sum(tag, parts);
    if len >= COMPRESSED_MIN {
        let short = lz4_flex::compress_prepend_size(&parts.concat());
        if short.len() < len {
            return put(tag as u8 | COMPRESSED, short.len(), &[&short], &sum);
        }
    }
    put(tag as u8, len, parts, &sum)
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is not a steadfast pair")
}

fn tag_of(kind: u8) -> io::Result<Tag> {
    let mut all = Tag::ALL.into_iter();
    all.find(|tag| *tag as u8 == kind & !COMPRESSED)
        .ok_or_else(foreign)
}

fn parse(kind: u8, mut body: Vec<u8>) -> io::Result<Frame> {
    let tag = tag_of(kind)?;
    if tag == Tag::Greeting {
        return Ok(Frame { tag, body });
    }
    let damaged = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "a frame of the link was changed on its way",
        )
    };
    let at = body.len().checked_sub(SUM).ok_or_else(foreign)?;
    let told = body.split_off(at);
    if kind & COMPRESSED != 0 {
        let (size, block) = lz4_flex::block::uncompressed_size(&body).map_err(|_| damaged())?;
        if size > FRAME_MAX {
            return Err(damaged());
        }
        body = lz4_flex::decompress(block, size).map_err(|_| damaged())?;
    }
    if told != sum(tag, &[&body]) {
        return Err(damaged());
    }
    Ok(Frame { tag, body })
}

#[derive(Debug)]
pub(crate) struct Receiver(BufReader<Incoming>);

impl Receiver {
    pub(crate) fn next(&mut self) -> io::Result<Frame> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let len = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
        tag_of(head[4])?; // what somebody else says has another length than its first bytes seem to tell
        if len > FRAME_MAX + SUM {
            return Err(foreign());
        }
        let mut body = vec![0; len];
        self.0.read_exact(&mut body)?;
        parse(head[4], body)
    }

    pub(crate) fn expect(&mut self, tag: Tag) -> io::Result<Frame> {
        let frame = self.next()?;
        if frame.tag == tag {
            Ok(frame)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{tag:?} was expected, {:?} came", frame.tag),
            ))
        }
    }
}

/// The two halves of a connection that is set up (tls.rs).
pub(crate) fn halves((outgoing, incoming): (Outgoing, Incoming)) -> (Sender, Receiver) {
    (
        Sender(Mutex::new(outgoing)),
        Receiver(BufReader::with_capacity(1 << 16, incoming)),
    )
}

pub(crate) fn connect(side: &Side) -> Result<TcpStream, PairError> {
    let Some(address) = side.peer.clone() else {
        return Err(PairError::Missing(
            "--peer has to name the secondary".into(),
            "--peer HOST:PORT".into(),
        ));
    };
    let deadline = Instant::now() + Duration::from_secs(side.patience);
    loop {
        let tried = address.to_socket_addrs().and_then(|mut all| {
            let one = all
                .next()
                .ok_or_else(|| io::Error::other("no address by this name"))?;
            TcpStream::connect_timeout(&one, Duration::from_secs(2))
        });
        match tried {
            Ok(stream) => return Ok(stream),
            Err(source) if Instant::now() > deadline => {
                return Err(PairError::Peer {
                    address,
                    seconds: side.patience,
                    source,
                });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// What was asked for, or the peer's refusal.
pub(crate) fn answer<T: DeserializeOwned>(
    receiver: &mut Receiver,
    tag: Tag,
) -> Result<T, PairError> {
    let frame = receiver.next().map_err(PairError::Link)?;
    if frame.tag == Tag::Refusal {
        return Err(PairError::Refused(frame.parse().unwrap_or_default()));
    }
    if frame.tag != tag {
        return Err(PairError::Link(io::Error::other(format!(
            "{tag:?} was expected, {:?} came",
            frame.tag
        ))));
    }
    frame.parse().map_err(PairError::Link)
}

/// A link to a secondary whose program stands where this one's does.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) sender: Arc<Sender>,
    pub(crate) receiver: Receiver,
    /// Of the pair, for the witness.
    pub(crate) name: String,
}

/// What has to be equal on both sites, and what the primary decides for both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) version: u32,
    pub(crate) steadfast: String,
    pub(crate) command: Vec<String>,
    pub(crate) program_digest: String,
    pub(crate) directory: String,
    pub(crate) environment: Vec<String>,
    pub(crate) data: Vec<String>,
    pub(crate) witness: String,
    /// Who the program runs as, and its umask: rights and owners of its files follow from them.
    #[serde(default)]
    pub(crate) user: String,
    /// The primary goes on where no witness answers.
    #[serde(default)]
    pub(crate) prefer_primary: bool,
    /// Which site's files are right, where they differ.
    #[serde(default)]
    pub(crate) right: Option<Right>,
    /// Both sites keep snapshots, and compare memory.
    #[serde(default)]
    pub(crate) snapshots: bool,
    /// Acknowledgements are held back.
    #[serde(default)]
    pub(crate) hold_acks: bool,
    /// Which of the paper's variants.
    #[serde(default)]
    pub(crate) variant: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    /// The primary's; 32 hexadecimal digits.
    pub(crate) random: String,
}

impl Greeting {
    /// What differs: what it is, here, there.
    pub(crate) fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let rows: [(&'static str, String, String); 16] = [
            (
                "protocol version",
                self.version.to_string(),
                other.version.to_string(),
            ),
            (
                "version of steadfast",
                self.steadfast.clone(),
                other.steadfast.clone(),
            ),
            ("command", self.command.join(" "), other.command.join(" ")),
            (
                "program file",
                self.program_digest.clone(),
                other.program_digest.clone(),
            ),
            (
                "working directory",
                self.directory.clone(),
                other.directory.clone(),
            ),
            (
                "environment",
                self.environment.join(" "),
                other.environment.join(" "),
            ),
            (
                "protected directories",
                self.data.join(" "),
                other.data.join(" "),
            ),
            ("witness", self.witness.clone(), other.witness.clone()),
            (
                "word on who is preferred (--prefer-primary)",
                self.prefer_primary.to_string(),
                other.prefer_primary.to_string(),
            ),
            ("user and umask", self.user.clone(), other.user.clone()),
            (
                "word on whose files are right (--right)",
                format!("{:?}", self.right),
                format!("{:?}", other.right),
            ),
            (
                "word on snapshots (--snapshots)",
                self.snapshots.to_string(),
                other.snapshots.to_string(),
            ),
            (
                "word on acknowledgements (--hold-acks)",
                self.hold_acks.to_string(),
                other.hold_acks.to_string(),
            ),
            (
                "variant (--exchange, --every, --digest, --tracking)",
                self.variant.clone(),
                other.variant.clone(),
            ),
            ("kernel", self.kernel.clone(), other.kernel.clone()),
            ("processor", self.processor.clone(), other.processor.clone()),
        ];
        rows.into_iter()
            .filter(|(_, here, there)| here != there)
            .collect()
    }
}

/// Rights and owners of a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl Owner {
    pub(crate) fn of(meta: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            mode: meta.mode() & 0o7777,
            user: meta.uid(),
            group: meta.gid(),
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mode {:04o} of {}:{}", self.mode, self.user, self.group)
    }
}

/// Everything below the protected directories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) files: Vec<Listed>,
    /// Each before what it holds.
    pub(crate) directories: Vec<Directory>,
    /// Symbolic links, and what else has a name: what it is.
    pub(crate) others: Vec<(String, String)>,
}

impl Manifest {
    /// The files were brought: a ledger that knew others is written anew.
    pub(crate) fn forget_wrong(&mut self) {
        for file in &mut self.files {
            file.wrong.clear();
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Directory {
    pub(crate) path: String,
    pub(crate) owner: Owner,
    pub(crate) attributes: Attributes,
}

/// A file as a site has it. Digests are hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) path: String,
    pub(crate) size: u64,
    pub(crate) pages: Vec<String>,
    /// Pages that are not as the site's own ledger has them.
    pub(crate) wrong: Vec<u64>,
    pub(crate) owner: Owner,
    pub(crate) attributes: Attributes,
    /// Of a file with several names (link(2)), unless this is the first one.
    pub(crate) first_name: Option<String>,
}

impl Listed {
    /// Whatever the ledgers say.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.size == other.size
            && self.pages == other.pages
            && self.owner == other.owner
            && self.attributes == other.attributes
    }

    /// Whose name it is.
    pub(crate) fn name_of(&self) -> String {
        self.first_name.as_ref().map_or_else(
            || "a file of its own".into(),
            |first| format!("one with {first}"),
        )
    }
}

/// The secondary to the primary, about pages of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// What the primary has there, on its disk and in its ledger.
    Page { path: String, page: u64 },
    /// The same, past the page cache.
    OnDevice { path: String, page: u64 },
    /// Let the program come to no further event that changes anything.
    Hold,
    /// Let it go on.
    Release,
    /// This is right: put it there, and give the program these bytes for what it has read at event `seq`.
    Repair {
        path: String,
        page: u64,
        bytes: String,
    },
    /// Both disks and the secondary's ledger have this digest there, and the primary's ledger has another one: put it right.
    Mend {
        path: String,
        page: u64,
        digest: String,
    },
    /// The read of event `seq` brought these bytes.
    Correct {
        strand: u64,
        seq: u64,
        base: u64,
        bytes: String,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Tell {
    Page {
        bytes: String,
        ledger: Vec<String>,
    },
    Done,
    /// The program is held, and the newest event that it has done is this.
    Held(u64),
    /// A storage call is under way, or the program computes.
    Busy,
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(tag: Tag, body: &[u8]) -> (usize, Frame) {
        let (half, rest) = body.split_at(body.len() / 3);
        let bytes = frame(tag, &[half, rest]).expect("a frame");
        let len = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        assert_eq!(len as usize, bytes.len() - 5);
        (
            bytes.len(),
            parse(bytes[4], bytes[5..].to_vec()).expect("a frame"),
        )
    }

    #[test]
    fn a_body_arrives_as_it_was_and_a_long_one_is_shorter_on_its_way() {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word.to_be_bytes()[0]
        })
        .take(20_000)
        .collect();
        let text = b"INSERT INTO t VALUES".repeat(1000);
        for (tag, body) in [
            (Tag::Step, &noise[..]),
            (Tag::Step, &text[..]),
            (Tag::Step, b""),
            (Tag::Greeting, &text[..]),
        ] {
            let (bytes, frame) = sent(tag, body);
            assert_eq!((frame.tag, &frame.body[..]), (tag, body));
            let shorter = tag == Tag::Step && body == &text[..];
            assert_eq!(bytes < body.len(), shorter, "{bytes}");
        }
    }

    #[test]
    fn a_bit_that_flips_in_a_frame_is_found_or_changes_nothing() {
        for body in [&b"INSERT INTO t VALUES".repeat(100)[..], b"done", b""] {
            let whole = frame(Tag::Step, &[body]).expect("a frame");
            for bit in 32..8 * whole.len() {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let parsed = parse(bytes[4], bytes[5..].to_vec());
                // Where a greeting is due nothing else is, and the other way round.
                let whole = |frame: &Frame| frame.tag == Tag::Greeting || frame.body == body;
                assert!(parsed.as_ref().map_or(true, whole), "bit {bit}");
            }
            let parsed = parse(whole[4], whole[5..].to_vec()).expect("as it was");
            assert_eq!(parsed.body, body);
        }
    }

    #[test]
    fn a_length_that_no_frame_has_and_a_damaged_block_are_refused() {
        let kind = Tag::Step as u8 | COMPRESSED;
        let whole = frame(Tag::Step, &[&[7; 4096]]).expect("a frame");
        let mut huge = whole[5..].to_vec();
        huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut longer = whole[5..].to_vec();
        longer[..4].copy_from_slice(&4095_u32.to_le_bytes());
        for body in [huge, longer, vec![1, 2]] {
            assert!(parse(kind, body).is_err());
        }
        assert!(parse(0x7f, Vec::new()).is_err());
    }
}
