//! Frames between replicas: length and its CRC32C, the CRC32C of the bytes, the bytes. What does not fit its CRC ends the connection, which is
//! made anew.
//!
//! A connection begins with the secret of its group, so that other users of a machine cannot speak for a replica.
//!
//! Not covered: secrecy; see `tls`.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use steadfast_crosscheck::{Message, Node};
use steadfast_digest::crc32c;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::who::Who;

/// Entries of the largest size that the engine sends at once.
const FRAME_MAX: usize = 1 << 30;
/// Bytes before those of a frame.
const HEAD: usize = 12;
/// Before the secret has been seen nothing large is taken.
const HELLO_MAX: usize = 4096;
/// After this a connection of the vote counts as dead, whatever the network says of it: each end says that it is alive ten times meanwhile.
/// A host that has lost its power, or a firewall that has forgotten the connection, says nothing for a quarter of an hour.
pub const SILENCE: Duration = Duration::from_secs(3);
/// The version of everything that replicas say to each other.
pub const PROTOCOL: u16 = 9;

/// What each connection begins with. Its layout never changes, so that replicas of different versions can tell each other so.
#[must_use]
pub fn preamble(epoch: u16) -> [u8; 8] {
    let [p0, p1] = PROTOCOL.to_le_bytes();
    let [e0, e1] = epoch.to_le_bytes();
    [b'S', b'F', b'K', b'V', p0, p1, e0, e1]
}

/// The other side's epoch; an error names both if they may not differ and do. Versions of the messages never may.
///
/// # Errors
/// When the connection ends, no replica answers there, or it has another version, or another epoch where that may not be.
pub async fn read_preamble(
    from: &mut (impl AsyncRead + Unpin),
    epoch: u16,
    mixed: bool,
) -> io::Result<u16> {
    let mut found = [0; 8];
    from.read_exact(&mut found).await?;
    let theirs = u16::from_le_bytes([found[6], found[7]]);
    if found == preamble(if mixed { theirs } else { epoch }) {
        return Ok(theirs);
    }
    let [b'S', b'F', b'K', b'V', p0, p1, e0, e1] = found else {
        return Err(io::Error::other("no replica of such a group answers there"));
    };
    Err(io::Error::other(format!(
        "it speaks version {} with digests of epoch {}, this one version {PROTOCOL} with epoch {epoch}: replicas of one group have the same",
        u16::from_le_bytes([p0, p1]),
        u16::from_le_bytes([e0, e1]),
    )))
}

/// The first frame of a connection: what it is for, from which process and to which. A process that has taken another's place listens at
/// the same address, and must not be taken for it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Hello {
    /// Questions of the ordering engine, each answered.
    Order { from: u64, to: u64, secret: u128 },
    /// Messages of the vote, and submissions; nothing is answered.
    Vote { from: u64, to: u64, secret: u128 },
    /// A process that belongs to no group yet. Answered once.
    Meet { secret: u128, who: Who },
}

/// A message that is not answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Post {
    /// Of the vote.
    Vote(Message),
    /// For the log, to whoever leads.
    Submit(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Nothing to say, but alive.
    Alive,
    /// Asks the leader which entry reads that have come must have seen.
    ReadIndex { ticket: u64 },
    /// Which it is; nothing if this is no leader, or none for certain.
    ReadAt { ticket: u64, at: Option<ReadAt> },
}

/// What the leader says: the entry that a read must have seen, and its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadAt {
    /// The entry.
    pub index: u64,
    /// The leader's clock.
    pub time_ms: u64,
}

/// A message and where it goes.
pub type Posted = (Node, Post);

/// The bytes of one frame.
///
/// # Errors
/// When the value has no form in bytes, or one of 4 GiB or more.
pub fn frame<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD];
    bytes = postcard::to_extend(value, bytes).map_err(io::Error::other)?;
    let crc = crc32c(&bytes[HEAD..]);
    let length = u32::try_from(bytes.len() - HEAD).map_err(io::Error::other)?;
    let length = length.to_le_bytes();
    bytes[..4].copy_from_slice(&length);
    bytes[4..8].copy_from_slice(&crc32c(&length).to_le_bytes());
    bytes[8..HEAD].copy_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

/// Whether a word is the group's secret, compared in a time that does not tell how much of it is right.
pub fn is_secret(word: &str, secret: u128) -> bool {
    u128::from_str_radix(word, 16).is_ok_and(|found| std::hint::black_box(found ^ secret) == 0)
}

/// The first frame of a connection.
///
/// # Errors
/// When the connection ends, or the frame is too long, damaged, or no such message.
pub async fn read_hello(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Hello> {
    read_up_to(from, HELLO_MAX, None).await
}

/// The next frame.
///
/// # Errors
/// As [`read_hello`].
pub async fn read<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    read_up_to(from, FRAME_MAX, None).await
}

/// The next frame of a connection on which something is said all the time: a silence ends it.
///
/// # Errors
/// As [`read_hello`], and after a silence.
pub async fn read_or_end<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<T> {
    read_up_to(from, FRAME_MAX, Some(SILENCE)).await
}

async fn read_up_to<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    most: usize,
    silence: Option<Duration>,
) -> io::Result<T> {
    let mut words = [0; HEAD];
    fill(from, &mut words, silence).await?;
    let (words, _) = words.as_chunks::<4>();
    let [length, of_length, of_bytes] = [0, 1, 2].map(|at| u32::from_le_bytes(words[at]));
    // One that was hit would have this side wait for what never comes, and take all that does for it.
    if crc32c(&words[0]) != of_length {
        return Err(io::Error::other(
            "the length of a frame does not fit its CRC",
        ));
    }
    let length = usize::try_from(length).map_err(io::Error::other)?;
    if length > most {
        return Err(io::Error::other(format!(
            "a frame of {length} bytes, at most {most} are taken"
        )));
    }
    let mut bytes = vec![0; length];
    fill(from, &mut bytes, silence).await?;
    if crc32c(&bytes) != of_bytes {
        return Err(io::Error::other("a frame does not fit its CRC"));
    }
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

/// Reads all of these bytes. However many they are, no part of them may be so long in coming.
async fn fill(
    from: &mut (impl AsyncRead + Unpin),
    bytes: &mut [u8],
    silence: Option<Duration>,
) -> io::Result<()> {
    for part in bytes.chunks_mut(1 << 16) {
        let read = from.read_exact(part);
        match silence {
            None => read.await?,
            Some(silence) => timeout(silence, read).await??,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use steadfast_crosscheck::{Index, ObjectId};

    use super::*;

    #[test]
    fn a_frame_survives_and_every_flipped_bit_is_noticed() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let bytes = frame(&Post::Submit(vec![7; 40])).unwrap();
        let read_back = |bytes: &[u8]| runtime.block_on(read::<Post>(&mut &bytes[..]));
        assert!(matches!(read_back(&bytes), Ok(Post::Submit(body)) if body == vec![7; 40]));
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            // Enough follows for any length that could be read out of it.
            wrong.resize(1 << 20, 0);
            let why = read_back(&wrong).unwrap_err().to_string();
            assert!(why.ends_with("does not fit its CRC"), "bit {bit}: {why}");
            assert_eq!(bit / 8 < 8, why.contains("length"), "bit {bit}: {why}");
        }
    }

    #[test]
    fn objects_and_replies_are_written_as_lists_of_numbers_are() {
        let (index, object) = (Index(7), ObjectId(9));
        let bytes = vec![1, 2, 200];
        let repair = Message::Repair {
            index,
            objects: vec![(object, Some(bytes.clone())), (object, None)],
        };
        let lists = (
            4_u8,
            index,
            vec![(object, Some(bytes.clone())), (object, None)],
        );
        let written = postcard::to_stdvec(&repair).unwrap();
        assert_eq!(written, postcard::to_stdvec(&lists).unwrap());
        assert_eq!(postcard::from_bytes::<Message>(&written), Ok(repair));
        let replies = Message::Replies {
            index,
            replies: vec![bytes.clone(), Vec::new()],
        };
        let lists = (6_u8, index, vec![bytes, Vec::new()]);
        let written = postcard::to_stdvec(&replies).unwrap();
        assert_eq!(written, postcard::to_stdvec(&lists).unwrap());
        assert_eq!(postcard::from_bytes::<Message>(&written), Ok(replies));
    }
}
