//! How bytes lie in a file: length, CRC32C of the length, CRC32C of the body, body.
//!
//! ```text
//!   length u32 | check of length u32 | check of body u32 | body ...          all little-endian
//! ```
//!
//! The end of a file that was being written when the power failed is told from a byte that changed: the former ends inside a record, or is
//! nothing but zeros; the latter is a whole record that does not fit its check.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Serialize, de::DeserializeOwned};
use steadfast_digest::crc32c;

/// Before the body.
pub(super) const HEAD: usize = 12;

/// What stands at a place of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A whole record, and the place behind it.
    Record(&'a [u8], usize),
    /// The file ends here, as it should.
    End,
    /// The file ends inside what was being written here.
    Torn,
    /// Bytes that do not fit their check.
    Damaged,
}

/// The record of these bytes, behind what `out` has.
///
/// # Errors
/// When there are 4 GiB of bytes or more.
pub fn put(body: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let length = length.to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&crc32c(&length).to_le_bytes());
    out.extend_from_slice(&crc32c(body).to_le_bytes());
    out.extend_from_slice(body);
    Ok(())
}

/// The record at a place of a file.
pub fn next(file: &[u8], at: usize) -> Next<'_> {
    let rest = &file[at.min(file.len())..];
    if rest.is_empty() {
        return Next::End;
    }
    // A length of nothing fits no check of zeros, so zeros are never a record.
    if rest.iter().all(|byte| *byte == 0) {
        return Next::Torn;
    }
    let Some(([l0, l1, l2, l3, c0, c1, c2, c3, b0, b1, b2, b3], body)) =
        rest.split_first_chunk::<HEAD>()
    else {
        return Next::Torn;
    };
    let length = [*l0, *l1, *l2, *l3];
    if crc32c(&length) != u32::from_le_bytes([*c0, *c1, *c2, *c3]) {
        return Next::Damaged;
    }
    let length = u32::from_le_bytes(length) as usize;
    let Some(body) = body.get(..length) else {
        return Next::Torn;
    };
    if crc32c(body) == u32::from_le_bytes([*b0, *b1, *b2, *b3]) {
        Next::Record(body, at + HEAD + length)
    } else {
        Next::Damaged
    }
}

/// A file with one value, all of it or none: written beside, made durable, and renamed.
pub(super) fn store<T: Serialize>(dir: &Path, name: &str, value: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(value).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    put(&body, &mut bytes)?;
    let beside = dir.join(format!("{name}.new"));
    let mut file = File::create(&beside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&beside, dir.join(name))?;
    sync_dir(dir)
}

/// The value of such a file; nothing where there is none.
pub(super) fn load<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>, Fault> {
    let path = dir.join(name);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(Fault::io(&path, why)),
    };
    match next(&bytes, 0) {
        Next::Record(body, end) if end == bytes.len() => postcard::from_bytes(body)
            .map(Some)
            .map_err(|why| Fault::damaged(&path, 0, &why.to_string())),
        // It was renamed when it was whole.
        _ => Err(Fault::damaged(&path, 0, "it does not fit its check")),
    }
}

/// Makes names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Why what is on disk cannot be used.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is not what was written.
    Damaged(String),
    /// It cannot be read.
    Io(io::Error, String),
}

impl Fault {
    pub(super) fn io(path: &Path, why: io::Error) -> Self {
        Self::Io(why, path.display().to_string())
    }

    /// As a person is told it.
    pub(super) fn told(self, dir: &Path) -> anyhow::Error {
        let at = dir.display();
        let fix = format!(
            "  fix:   mend the disk; or empty {at}, and the replica begins anew from the others"
        );
        match self {
            Self::Damaged(why) => anyhow::anyhow!("--data {at}: {why}\n{fix}"),
            Self::Io(why, path) => anyhow::anyhow!("--data {at}: {path}: {why}\n{fix}"),
        }
    }

    pub(super) fn damaged(path: &Path, at: usize, why: &str) -> Self {
        Self::Damaged(format!("{} at byte {at}: {why}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_torn_and_every_flipped_bit_is_damage() {
        let mut file = Vec::new();
        put(b"one", &mut file).unwrap();
        let second = file.len();
        put(b"", &mut file).unwrap();
        put(b"three", &mut file).unwrap();
        let Next::Record(b"one", at) = next(&file, 0) else {
            panic!("the first record is whole")
        };
        assert_eq!(at, second);
        let Next::Record(b"", third) = next(&file, second) else {
            panic!("an empty record is one")
        };
        assert_eq!(next(&file, third), Next::Record(b"three", file.len()));
        assert_eq!(next(&file, file.len()), Next::End);
        for end in third + 1..file.len() {
            assert_eq!(next(&file[..end], third), Next::Torn, "cut at {end}");
        }
        assert_eq!(next(&[0; 40], 0), Next::Torn, "zeros");
        for bit in third * 8..file.len() * 8 {
            let mut wrong = file.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(next(&wrong, third), Next::Damaged, "bit {bit}");
        }
    }
}
