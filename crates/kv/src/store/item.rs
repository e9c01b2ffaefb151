//! An item: one buffer of bytes and its digest. Whatever the bytes are, reading them does not panic.

use steadfast_crosscheck::{Digest, ObjectId};

/// Of one entry in the table of a shard, rounded up: a key of 16 bytes, a vector of 24, a digest of 16, at 7/8 full at most.
pub(super) const ENTRY: u64 = 72;

/// flags 4, expires 8, cas 8, key length 1, marks 1, value length 4.
pub(super) const HEADER: usize = 26;

/// Somebody has said that the value is too old.
pub(super) const STALE: u8 = 1;
/// Somebody was told to make the value anew.
pub(super) const WON: u8 = 2;
/// The key is bytes, and is named in base64.
pub(super) const BINARY: u8 = 4;

#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Digest,
}

/// An item as read from its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) flags: u32,
    pub(super) expires: u64,
    pub(super) cas: u64,
    pub(super) marks: u8,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// An item that does not fit its digest, as it was found, before anything was made of it.
#[derive(Debug, Clone)]
pub(crate) struct AtRest {
    bytes: Vec<u8>,
    digest: Digest,
}

impl AtRest {
    /// Beyond so many bytes it takes too long to try each bit of them.
    const TRIED_MAX: usize = 4096;

    /// The one bit that makes it fit, and where it is: hardware flips one. Nothing where it is not one, or the item is large.
    pub(crate) fn flip(mut self) -> Option<(Place, u32)> {
        if self.bytes.len() > Self::TRIED_MAX {
            return None;
        }
        for at in 0..self.bytes.len() {
            for bit in 0..8 {
                self.bytes[at] ^= 1 << bit;
                if Digest::of(&self.bytes) == self.digest {
                    return Some((place(&self.bytes, at), bit));
                }
                self.bytes[at] ^= 1 << bit;
            }
        }
        None
    }
}

/// How a stored object is called in reports, and where in its bytes something lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) field: &'static str,
    pub(crate) byte: usize,
}

impl Item {
    pub(super) fn new(view: View<'_>) -> Self {
        let (key, value) = (view.key, view.value);
        let mut bytes = Vec::with_capacity(HEADER + key.len() + value.len());
        bytes.extend_from_slice(&view.flags.to_le_bytes());
        bytes.extend_from_slice(&view.expires.to_le_bytes());
        bytes.extend_from_slice(&view.cas.to_le_bytes());
        bytes.push(u8::try_from(key.len()).unwrap_or(u8::MAX));
        bytes.push(view.marks);
        bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Self::packed(bytes)
    }

    pub(super) fn packed(bytes: Vec<u8>) -> Self {
        let digest = Digest::of(&bytes);
        Self { bytes, digest }
    }

    pub(super) fn view(&self) -> Option<View<'_>> {
        view(&self.bytes)
    }

    /// Its cas number, if it has one.
    pub(super) fn cas(&self) -> Option<u64> {
        self.view().map(|view| view.cas).filter(|cas| *cas != 0)
    }

    pub(super) fn intact(&self) -> bool {
        Digest::of(&self.bytes) == self.digest
    }

    /// For whoever looks for what has changed in it.
    pub(super) fn at_rest(&self) -> AtRest {
        AtRest {
            bytes: self.bytes.clone(),
            digest: self.digest,
        }
    }

    /// Whether an item with this header, key and value is what was voted on: they come from a reply that was made of it.
    pub(super) fn is(&self, key: &[u8], value: &[u8]) -> bool {
        let header = self.bytes.get(..HEADER).unwrap_or_default();
        Digest::of(&[header, key, value].concat()) == self.digest
    }

    /// What it counts for in the limit: its bytes, and what a table needs for one entry.
    pub(super) fn weight(&self) -> u64 {
        self.bytes.len() as u64 + ENTRY
    }
}

pub(super) fn view(bytes: &[u8]) -> Option<View<'_>> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let (flags, header) = header.split_first_chunk::<4>()?;
    let (expires, header) = header.split_first_chunk::<8>()?;
    let (cas, header) = header.split_first_chunk::<8>()?;
    let ([key, marks], header) = header.split_first_chunk::<2>()?;
    let (value, _) = header.split_first_chunk::<4>()?;
    let key_length = usize::from(*key);
    let value_length = usize::try_from(u32::from_le_bytes(*value)).ok()?;
    if rest.len() != key_length.checked_add(value_length)? {
        return None;
    }
    let (key, value) = rest.split_at(key_length);
    Some(View {
        flags: u32::from_le_bytes(*flags),
        expires: u64::from_le_bytes(*expires),
        cas: u64::from_le_bytes(*cas),
        marks: *marks,
        key,
        value,
    })
}

/// The key in packed bytes, for reports. Bytes that are no text are escaped: a report may be read in a terminal.
pub(crate) fn key_in(packed: &[u8]) -> Option<String> {
    let key = view(packed)?.key;
    let text = std::str::from_utf8(key).ok();
    let text = text.filter(|text| crate::once::is_slot(key) || !text.chars().any(char::is_control));
    Some(text.map_or_else(|| key.escape_ascii().to_string(), str::to_owned))
}

/// Whether these bytes are an item, and no longer the one that belongs in this place.
pub(crate) fn has_moved(packed: &[u8], object: ObjectId) -> bool {
    view(packed).is_some_and(|view| super::item_id(view.key) != object)
}

/// What a byte of a packed item is.
pub(crate) fn place(packed: &[u8], at: usize) -> Place {
    let key_length = packed.get(20).copied().map_or(0, usize::from);
    let (field, start) = match at {
        0..4 => ("flags", 0),
        4..12 => ("expires", 4),
        12..20 => ("cas", 12),
        20 => ("key length", 20),
        21 => ("marks", 21),
        22..HEADER => ("value length", 22),
        _ if at < HEADER + key_length => ("key", HEADER),
        _ => ("value", HEADER + key_length),
    };
    Place {
        field,
        byte: at - start,
    }
}
