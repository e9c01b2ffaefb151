//! Step: one event as it travels between the two sites.

use super::{CLAIM_BYTES, NOTE_BYTES, RESULT_BYTES};

/// SF_R_SPAWNED (crates/agent/src/layout/abi.h).
const SPAWNED: u16 = 4096;

/// What a note is about (abi.h, `enum sf_note_kind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    None,
    Open,
    Close,
    Duplicate,
    Read,
    Write,
    Sync,
    Truncate,
    Allocate,
    Other,
    Name,
    /// A descriptor of something that is no file.
    New,
}

/// What the primary's agent says about a storage call.
#[derive(Debug, Clone, Copy)]
pub struct Note {
    pub kind: Kind,
    pub fd: i32,
    pub offset: u64,
    pub len: u64,
    pub extra: (u32, u32),
    /// A first page, and a last page, stand before the bytes that were written.
    pub head: bool,
    pub tail: bool,
    /// ... as it is after a write that was cut short.
    pub after: bool,
    pub protected: bool,
}

/// One event as the primary has done it.
#[derive(Debug, Clone)]
pub struct Step {
    pub(super) claim: [u8; CLAIM_BYTES],
    pub(super) result: [u8; RESULT_BYTES],
    pub(super) note: [u8; NOTE_BYTES],
    pub payload: Vec<u8>,
}

impl Step {
    /// Bytes before the payload when it travels.
    pub const HEAD: usize = CLAIM_BYTES + RESULT_BYTES + NOTE_BYTES;

    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        [&self.claim[..], &self.result, &self.note].concat()
    }

    /// From what [`Step::head`] gave, and the payload. Nothing: it is not one.
    #[must_use]
    pub fn from_parts(head: &[u8], payload: Vec<u8>) -> Option<Self> {
        let (claim, rest) = head.split_first_chunk()?;
        let (result, rest) = rest.split_first_chunk()?;
        let this = Self {
            claim: *claim,
            result: *result,
            note: *rest.first_chunk()?,
            payload,
        };
        (this.seq() == word(&this.claim, 0)
            && usize::try_from(half(&this.result, 8)).ok()? == this.payload.len())
        .then_some(this)
    }

    #[must_use]
    pub fn seq(&self) -> u64 {
        word(&self.result, 0)
    }

    /// What the call returned.
    #[must_use]
    pub fn ret(&self) -> i64 {
        word(&self.result, 2).cast_signed()
    }

    /// The strand of the process that this event of `strand` has made.
    #[must_use]
    pub fn made(&self, strand: u64) -> Option<u64> {
        (self.flags() & SPAWNED != 0).then(|| super::process::strand(strand, self.seq()))
    }

    pub(super) fn flags(&self) -> u16 {
        u16::from_le_bytes([self.result[44], self.result[45]])
    }

    pub(super) fn offset(&self) -> u32 {
        half(&self.result, 9)
    }

    /// The note, if this is a storage call.
    #[must_use]
    pub fn note(&self) -> Option<Note> {
        if word(&self.note, 0) != self.seq() {
            return None;
        }
        let kind = match half(&self.note, 2) {
            1 => Kind::Open,
            2 => Kind::Close,
            3 => Kind::Duplicate,
            4 => Kind::Read,
            5 => Kind::Write,
            6 => Kind::Sync,
            7 => Kind::Truncate,
            8 => Kind::Allocate,
            9 => Kind::Other,
            10 => Kind::Name,
            11 => Kind::New,
            _ => return None,
        };
        let parts = half(&self.note, 10);
        Some(Note {
            kind,
            fd: half(&self.note, 3).cast_signed(),
            offset: word(&self.note, 2),
            len: word(&self.note, 3),
            extra: (half(&self.note, 8), half(&self.note, 9)),
            head: parts & 1 != 0,
            tail: parts & 2 != 0,
            after: parts & 4 != 0,
            protected: half(&self.note, 11) == 3,
        })
    }

    /// What stands behind the bytes that the call brought.
    #[must_use]
    pub fn extra(&self) -> &[u8] {
        let Some(note) = self.note() else { return &[] };
        let from = note.extra.0 as usize;
        self.payload
            .get(from..from + note.extra.1 as usize)
            .unwrap_or(&[])
    }
}

pub(super) fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(
        bytes[8 * index..8 * index + 8]
            .try_into()
            .expect("eight bytes"),
    )
}

pub(super) fn half(bytes: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(
        bytes[4 * index..4 * index + 4]
            .try_into()
            .expect("four bytes"),
    )
}
