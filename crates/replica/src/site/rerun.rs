//! Rerun: the two programs of a pair claim different things, and each host runs the past again.
//!
//! ```text
//!   halt ──► the program stands at the disputed event, or behind it
//!   look ──► a copy of the snapshot runs against the log up to the event: what it claims there, and its memory
//!   mend ──► the program becomes that copy, in place
//!   disagree_no_more ──► claims about the event, and results behind it, are forgotten; resumed, it claims anew
//! ```
//!
//! Invariants
//!  1. A re-run makes no call that has an effect: what the log holds it takes, on both sites alike.
//!  2. A program that was mended digests to what the copy does, each by its own reading.
//!
//! Not covered: who is right (crates/pair, arbiter.rs); a program that neither claims anything nor ends.

use std::time::{Duration, Instant};

use steadfast_digest::vote128;
use steadfast_sys::{child, procfs};

use super::{Place, Site};
use crate::abi::{self, alarm, cmd, phase};
use crate::group::{Claim, at};
use crate::supervise::recovery::NUDGE;
use crate::transplant;

/// A paused process answers at once; a digest of its memory takes 0.1 s per GiB.
const ANSWER: Duration = Duration::from_secs(5);
/// What was run since the newest snapshot, once more.
const AGAIN_LIMIT: Duration = Duration::from_secs(5);
/// As epoch.c, `sf_snapshot`: the first slot beyond the replicas.
const SNAPSHOT: usize = 2;
const RERUN: usize = 3;

/// What one host knows about an event. Claims and memory are told by their digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    pub claim: u128,
    /// What the re-run claims there. Nothing: there is no snapshot, or it did not come so far.
    pub again: Option<u128>,
    /// The memory of the re-run, and that of the program where it stands at the very event.
    pub image: Option<u128>,
    pub program: Option<u128>,
    /// Events that were run again.
    pub events: u64,
}

fn digest(claim: &Claim) -> u128 {
    let words = [
        u64::from(claim.nr),
        u64::from(claim.kind),
        claim.ip,
        claim.state,
        claim.bytes[0],
        claim.bytes[1],
    ];
    vote128(&words.map(u64::to_le_bytes).concat())
}

/// A re-run that stands at the disputed event. It ends with this.
#[derive(Debug)]
pub struct Again<'a> {
    site: &'a Site,
    pid: i32,
    /// Its memory, by its own reading. It stands still from then on.
    image: Option<u128>,
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        let group = &self.site.group();
        if group.phase(RERUN) == phase::PAUSED {
            group.command(RERUN, cmd::EXIT, 0);
        }
        // The next re-run has the same slot: one that is still there would obey in its place.
        let deadline = Instant::now() + ANSWER;
        let stands = || group.phase(RERUN) == phase::PAUSED && Instant::now() < deadline;
        while stands() && !procfs::has_ended(self.pid) {
            std::thread::sleep(Duration::from_micros(100));
        }
        child::kill(self.pid, libc::SIGKILL);
        group.set_pid(RERUN, 0);
        group.set32(at!(slot RERUN, phase), 0);
    }
}

impl Site {
    /// The slot of this site's program.
    pub(super) fn acting(&self) -> usize {
        usize::from(self.group().pid(0) == 0)
    }

    /// Has the program stand at event `seq`, or behind it where it was ahead.
    ///
    /// # Errors
    /// When it does not come to stand.
    pub fn halt(&self, seq: u64) -> Result<(), String> {
        let slot = self.acting();
        self.group().set64(at!(alarm_seq), seq);
        self.group().set32(at!(alarm), alarm::DIVERGED);
        let deadline = Instant::now() + ANSWER;
        while self.group().phase(slot) != phase::PAUSED {
            self.group().ring(slot);
            if slot == 0 {
                child::kill(self.pid, NUDGE);
            }
            // The agent may have asked about code before it comes to stand.
            let _ = self.news(Duration::from_millis(1));
            if Instant::now() > deadline || self.group().is_gone(slot) {
                return Err("the program does not come to a halt".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// The program stands: what it claims, and what a copy of the snapshot comes to.
    ///
    /// # Errors
    /// When the program claims nothing at the event.
    pub fn look(&self, seq: u64) -> Result<(Look, Option<Again<'_>>), String> {
        let slot = self.acting();
        let claim = self.group().claim(slot, seq);
        let mut look = Look {
            claim: claim.as_ref().map(digest).ok_or("it claims nothing")?,
            ..Look::default()
        };
        let from = self.group().get64(at!(snapshot_seq));
        let usable = from != 0 && from <= seq && self.group().get32(at!(snapshot_broken)) == 0;
        let Some(mut again) = usable.then(|| self.run_again(seq)).flatten() else {
            return Ok((look, None));
        };
        look.events = seq - from;
        look.again = self.group().claim(RERUN, seq).as_ref().map(digest);
        again.image = self.image(RERUN);
        look.image = again.image;
        if self.group().get64(at!(own slot, again)) == seq {
            look.program = self.image(slot);
        }
        Ok((look, Some(again)))
    }

    fn image(&self, slot: usize) -> Option<u128> {
        self.group().order(slot, cmd::HASH, 0, ANSWER)?;
        let word = |index: usize| u128::from(self.group().get64(at!(own slot, hash) + 8 * index));
        Some(word(1) << 64 | word(0))
    }

    fn run_again(&self, seq: u64) -> Option<Again<'_>> {
        self.group().set64(at!(rerun_until), seq);
        self.group().clear_ring(RERUN);
        self.group().set32(at!(slot RERUN, phase), 0);
        // No core of its own: the other host is what makes its vote another one.
        self.group()
            .command2(SNAPSHOT, cmd::RERUN, RERUN as u64, u64::MAX);
        let pid = self.group().obeyed(SNAPSHOT, ANSWER)?;
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1)?;
        self.group().set_pid(RERUN, pid);
        let again = Again {
            site: self,
            pid,
            image: None,
        };
        let stands = self.group().wait_until(AGAIN_LIMIT, || {
            self.group().phase(RERUN) == phase::PAUSED || procfs::has_ended(pid)
        });
        (stands && !procfs::has_ended(pid)).then_some(again)
    }

    /// The program becomes the re-run. How many pages of its memory were written.
    ///
    /// # Errors
    /// When it does not: it has to be ended.
    pub fn mend(&self, again: &Again<'_>) -> Result<u64, String> {
        let slot = self.acting();
        let silent = || "it does not answer".to_owned();
        self.group()
            .order(RERUN, cmd::SEND, 0, ANSWER)
            .ok_or_else(silent)?;
        let pages = transplant::copy(&self.group(), again.pid, (slot, self.pid), false)
            .map_err(|error| format!("its memory cannot be written: {error}"))?
            .ok_or("its mappings are not those of the re-run")?;
        let received = self.group().order(slot, cmd::RECEIVE, 0, ANSWER);
        if received != Some(0) {
            return Err("it cannot have the state of the re-run".into());
        }
        let own = self.image(slot);
        if own.is_none() || own != again.image {
            return Err("its memory is not what was copied".into());
        }
        Ok(pages)
    }

    /// The program stands: what was claimed about event `seq` counts no more, and `rewind`: neither does what the primary has
    /// done since. Where relays go on.
    ///
    /// # Errors
    /// When the program does not say where its log is.
    pub fn disagree_no_more(&self, seq: u64, rewind: bool) -> Result<Place, String> {
        self.group()
            .order(self.acting(), cmd::SEND, 0, ANSWER)
            .ok_or("it does not answer")?;
        // struct sf_transfer (crates/agent/src/repair/transfer.h): the event that it stands at, then the base of its log.
        let base = self.group().get64(abi::OFF_TRANSFER + 8);
        if base > seq {
            return Err("its log begins behind the event".into());
        }
        if rewind {
            self.group().clear_ring(0);
            self.group().clear_results(base, seq);
            self.group().set64(at!(own 0, next), seq - 1);
        }
        self.group().clear_ring(1);
        self.group().set64(at!(own 1, next), seq - 1);
        self.group().set64(at!(alarm_seq), 0);
        self.group().set32(at!(alarm), alarm::QUIET);
        Ok(Place {
            seq,
            base,
            strand: self.strand(),
        })
    }

    /// Primary: the newest event that it has done, where its program stands.
    #[must_use]
    pub fn done_by_primary(&self) -> u64 {
        self.group().get64(at!(own 0, again)) - 1
    }

    /// The program goes on from the event that it stands at, and claims it anew.
    ///
    /// # Errors
    /// When it does not.
    pub fn claim_anew(&self) -> Result<(), String> {
        let slot = self.acting();
        self.group().withdraw(slot);
        match self.group().order(slot, cmd::RESUME, 0, ANSWER) {
            Some(_) => Ok(()),
            None => Err("the program does not go on".into()),
        }
    }
}
