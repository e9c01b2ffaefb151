//! Page: what a digest is of, what it is made by, and the digests of a whole file.
//!
//! The function is the same for all ledgers of a process: it is chosen once, before any is opened.

use std::io::{self, Read};
use std::sync::OnceLock;

use md5::{Digest as _, Md5};
use steadfast_digest::{crc32c, vote128};

/// Bytes of a page, on every file system that Linux mounts on x86-64.
pub(crate) const PAGE: usize = 4096;

/// What digests of pages are made by: XXH3, or one of the two functions of the paper (its variants C1 to C4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Digest {
    /// 128 bits
    Xxh3,
    /// 128 bits
    Md5,
    /// 32 bits: one of 4,294,967,296 wrong pages passes
    Crc32c,
}

impl Digest {
    pub(crate) const ALL: [Self; 3] = [Self::Xxh3, Self::Md5, Self::Crc32c];

    pub(crate) fn word(self) -> &'static str {
        ["xxh3", "md5", "crc32c"][self as usize]
    }

    /// Whether nothing but the right page fits it.
    pub(crate) fn proves(self) -> bool {
        self != Self::Crc32c
    }

    fn of(self, page: &[u8]) -> u128 {
        match self {
            Self::Xxh3 => vote128(page),
            Self::Md5 => u128::from_be_bytes(Md5::digest(page).into()),
            Self::Crc32c => crc32c(page).into(),
        }
    }
}

static CHOSEN: OnceLock<Digest> = OnceLock::new();

/// Before the first digest is made.
pub(crate) fn choose(digest: Digest) {
    let chosen = *CHOSEN.get_or_init(|| digest);
    assert_eq!(chosen, digest, "digests were made by another function");
}

pub(crate) fn chosen() -> Digest {
    *CHOSEN.get_or_init(|| Digest::Xxh3)
}

/// The digest of a page; what lies behind the end of the file counts as zeros.
pub(crate) fn page_digest(bytes: &[u8]) -> u128 {
    if bytes.len() == PAGE {
        return chosen().of(bytes);
    }
    let mut page = [0; PAGE];
    page[..bytes.len()].copy_from_slice(bytes);
    chosen().of(&page)
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) size: u64,
    pub(crate) pages: Vec<u128>,
}

impl Digests {
    pub(crate) fn of(mut file: impl Read) -> io::Result<Self> {
        let mut this = Self {
            size: 0,
            pages: Vec::new(),
        };
        let mut page = vec![0; PAGE];
        loop {
            let mut n = 0;
            while n < PAGE {
                match file.read(&mut page[n..])? {
                    0 => break,
                    more => n += more,
                }
            }
            if n == 0 {
                return Ok(this);
            }
            this.size += n as u64;
            this.pages.push(page_digest(&page[..n]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    /// RFC 1321, A.5: the bytes in the order in which they are written.
    #[test]
    fn md5_is_the_published_one() {
        let abc = 0x9001_5098_3cd2_4fb0_d696_3f7d_28e1_7f72;
        assert_eq!(Digest::Md5.of(b"abc"), abc);
    }
}
