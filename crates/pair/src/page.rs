//! Page: what a digest is of, and the digests of a whole file.

use std::io::{self, Read};

use steadfast_integrity::digest::vote128;

/// Bytes of a page, on every file system that Linux mounts on x86-64.
pub(crate) const PAGE: usize = 4096;

/// The digest of a page; what lies behind the end of the file counts as zeros.
pub(crate) fn page_digest(bytes: &[u8]) -> u128 {
    if bytes.len() == PAGE {
        return vote128(bytes);
    }
    let mut page = [0; PAGE];
    page[..bytes.len()].copy_from_slice(bytes);
    vote128(&page)
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
