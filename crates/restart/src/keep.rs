//! What outlives the host's own process: the calls that changed the slot table of a component, in memory that somebody else holds as well.
//!
//! ```text
//!   header: magic │ fingerprint │ turn │ length         entries: length u32 │ CRC-32C u32 │ bytes
//!   two of them: while one is filled up, the other one takes a snapshot; the greater turn counts
//! ```
//!
//! A process that is killed leaves its shared memory as it is. The next one has the same memory from whoever kept it (a parent, or systemd's
//! descriptor store), repeats the entries on an empty table, and every object comes back at its next use as after any reset.
//!
//! Invariants
//!  1. An entry counts only when the length says so, which is stored last.
//!  2. What is damaged, or was made by another application, is never used: the table begins empty, and old handles are stale.
//!
//! Not covered: a failure of the machine, and calls under way when the process dies: what they had asked others for stays in effect.

use std::io;
use std::sync::atomic::Ordering;

use steadfast_sys::shared::Shared;

/// "sfkeep", and the version.
const MAGIC: u64 = 0x7366_6b65_6570_0001;
const AT_MAGIC: usize = 0;
const AT_FINGERPRINT: usize = 8;
const AT_TURN: usize = 16;
const AT_LENGTH: usize = 24;
const BODY: usize = 4096;
const HEAD: usize = 8;

/// Of each of the two: sparse, so what is not written costs nothing.
pub const BYTES: usize = 256 << 20;

/// Two areas, one of which counts.
#[derive(Debug)]
pub struct Kept {
    areas: [Shared; 2],
    /// Of the application.
    app: u64,
    fingerprint: u64,
    /// Which one is written.
    now: usize,
    /// Where it is full enough for a snapshot.
    full: u64,
}

/// Entries beyond twice the last snapshot: a snapshot then costs less than what it makes room for, and memory stays in proportion.
const ENTRIES: u64 = 1 << 20;

/// Why nothing can be kept any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Kept {
    /// What these areas hold, and where it goes on. Entries are those of the last process, none where there was none; an error where they
    /// are damaged, after which [`Kept::begin`] is due. `app` and `model` are all that makes an application, and a model, another one.
    #[must_use]
    pub fn new(areas: [Shared; 2], app: &str, model: &str) -> Self {
        let app = fingerprint(FNV, app);
        let turn = |area: &Shared| match area.get64(AT_MAGIC) == MAGIC {
            true => area.get64(AT_TURN),
            false => 0,
        };
        let now = usize::from(turn(&areas[1]) > turn(&areas[0]));
        Self {
            areas,
            app,
            fingerprint: fingerprint(app, model),
            now,
            full: ENTRIES,
        }
    }

    /// Entries of the last process, in order.
    ///
    /// # Errors
    /// When they are damaged, or another application's.
    pub fn entries(&self) -> io::Result<Vec<Vec<u8>>> {
        let area = &self.areas[self.now];
        if area.get64(AT_MAGIC) != MAGIC {
            return Ok(Vec::new());
        }
        if area.get64(AT_FINGERPRINT) != self.fingerprint {
            return Err(io::Error::other(
                "another application's, or another version's",
            ));
        }
        let end = area.get64(AT_LENGTH);
        let end = usize::try_from(end)
            .ok()
            .and_then(|end| BODY.checked_add(end));
        let end = end.filter(|end| *end <= area.bytes());
        let damaged = || io::Error::other("damaged");
        let end = end.ok_or_else(damaged)?;
        let (mut all, mut at) = (Vec::new(), BODY);
        while at < end {
            let mut head = [0; HEAD];
            if at + HEAD > end {
                return Err(damaged());
            }
            area.read(at, &mut head);
            let [a, b, c, d, crc @ ..] = head;
            let length = u32::from_le_bytes([a, b, c, d]) as usize;
            if length > end - at - HEAD {
                return Err(damaged());
            }
            let mut bytes = vec![0; length];
            area.read(at + HEAD, &mut bytes);
            if crc32c::crc32c(&bytes) != u32::from_le_bytes(crc) {
                return Err(damaged());
            }
            all.push(bytes);
            at += HEAD + length;
        }
        Ok(all)
    }

    /// Adds an entry. False where it is time for a snapshot.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let area = &self.areas[self.now];
        add(area, bytes) && area.get64(AT_LENGTH) < self.full
    }

    /// Forgets all entries and begins with this one, in the other area: at any moment one of the two is whole.
    ///
    /// # Errors
    /// When there is no room for it. Nothing is kept then.
    pub fn begin(&mut self, first: &[u8]) -> Result<(), Full> {
        let turn = self.areas[self.now].get64(AT_TURN);
        let next = &self.areas[1 - self.now];
        next.set64(AT_MAGIC, 0);
        next.set64(AT_LENGTH, 0);
        next.set64(AT_FINGERPRINT, self.fingerprint);
        next.set64(AT_TURN, turn.wrapping_add(1));
        if !add(next, first) {
            self.forget();
            return Err(Full);
        }
        self.full = 2 * next.get64(AT_LENGTH) + ENTRIES;
        next.u64(AT_MAGIC).store(MAGIC, Ordering::SeqCst);
        self.now = 1 - self.now;
        Ok(())
    }

    /// From now on nothing is kept: the next process begins empty.
    pub fn forget(&self) {
        for area in &self.areas {
            area.set64(AT_MAGIC, 0);
        }
    }

    /// The same areas for another version.
    pub(crate) fn renamed(&mut self, model: &str) {
        self.fingerprint = fingerprint(self.app, model);
    }
}

const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, from what came before.
fn fingerprint(before: u64, text: &str) -> u64 {
    text.bytes().fold(before, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn add(area: &Shared, bytes: &[u8]) -> bool {
    let Ok(length) = u32::try_from(bytes.len()) else {
        return false;
    };
    let Ok(at) = usize::try_from(area.get64(AT_LENGTH)) else {
        return false;
    };
    let end = at + HEAD + bytes.len();
    if BODY + end > area.bytes() {
        return false;
    }
    area.write(BODY + at, &length.to_le_bytes());
    area.write(BODY + at + 4, &crc32c::crc32c(bytes).to_le_bytes());
    area.write(BODY + at + HEAD, bytes);
    area.set64(AT_LENGTH, end as u64);
    true
}
