//! Relay: claims, results, payload and notes from one site's segment of memory into the other's.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_sys::futex;

use crate::abi::{self, end};
use crate::group::at;

use super::step::{half, word};
use super::{
    CLAIM_BYTES, End, FIXED, NOTE_BYTES, NOTES, RESULT_BYTES, RESULT_RESET, SLEEP, Site, Step,
};

/// Where a relay is in the log.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub seq: u64,
    pub base: u64,
}

impl Place {
    #[must_use]
    pub fn first() -> Self {
        Self { seq: 1, base: 1 }
    }

    pub(super) fn pass(&mut self, step: &Step) {
        self.seq += 1;
        if step.flags() & RESULT_RESET != 0 {
            self.base = self.seq;
        }
    }
}

/// What a relay has sent of the secondary's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    pub claim: u64,
    pub done: u64,
}

impl Site {
    pub(super) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.group.memory.read(at, &mut bytes);
        bytes
    }

    /// A record whose first word, the number, is stored last.
    pub(super) fn put(&self, at: usize, bytes: &[u8]) {
        self.group.set64(at, u64::MAX);
        self.group.memory.write(at + 8, &bytes[8..]);
        self.group.set64(at, word(bytes, 0));
    }

    /// Sleeps as the replica of `slot` would, until it holds, the replica of this site has ended, or `limit` is over.
    pub(super) fn wait_as(
        &self,
        slot: usize,
        limit: Duration,
        mut holds: impl FnMut() -> bool,
    ) -> bool {
        let deadline = Instant::now() + limit;
        let sleepers = self.group.memory.u32(at!(wait sleepers));
        let bell = self.group.memory.u32(at!(slot slot, bell));
        loop {
            if holds() {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            let seen = bell.load(Ordering::SeqCst);
            sleepers.fetch_or(1 << slot, Ordering::SeqCst);
            if !holds() {
                futex::wait(bell, seen, SLEEP.min(limit));
            }
            sleepers.fetch_and(!(1 << slot), Ordering::SeqCst);
        }
    }

    pub(super) fn wake(&self, slot: usize) {
        if self
            .group
            .memory
            .u32(at!(wait sleepers))
            .load(Ordering::SeqCst)
            & 1 << slot
            != 0
        {
            self.group.ring(slot);
        }
    }

    /// Primary: the next event that it has done. Nothing in time: none.
    pub fn next_step(&self, place: &mut Place, limit: Duration) -> Option<Step> {
        let at = result_at(place)?;
        if !self.wait_as(1, limit, || self.group.get64(at) == place.seq) {
            return None;
        }
        Some(self.take_step(place, at))
    }

    pub(super) fn take_step(&self, place: &mut Place, at: usize) -> Step {
        let result: [u8; RESULT_BYTES] = self.read(at);
        let mut payload = vec![0; half(&result, 8) as usize];
        self.group
            .memory
            .read(abi::OFF_PAYLOAD + half(&result, 9) as usize, &mut payload);
        let claim = self.read(abi::arrival(0, place.seq));
        let step = Step {
            claim,
            result,
            note: self.read(note_at(place.seq)),
            payload,
        };
        place.pass(&step);
        step
    }

    /// The other site is gone for good: claims of this site's program, from behind `echoed` on, count as agreed, and the
    /// next event that it has done is returned, as by [`Self::next_step`].
    pub fn next_alone(&self, echoed: &mut u64, place: &mut Place, limit: Duration) -> Option<Step> {
        let at = result_at(place)?;
        let claimed = || self.group.get64(at!(own 0, next));
        let done = || self.group.get64(at) == place.seq;
        if !self.wait_as(1, limit, || claimed() > *echoed || done()) {
            return None;
        }
        let newest = claimed();
        if newest > *echoed {
            for seq in *echoed + 1..=newest {
                self.group.echo_as(0, 1, seq);
            }
            *echoed = newest;
            self.group.set64(at!(own 1, next), newest);
            self.wake(0);
        }
        done().then(|| self.take_step(place, at))
    }

    /// Primary: the claim about the event after the last that it has done, with which a program ends.
    #[must_use]
    pub fn last_claim(&self, place: &Place) -> Option<Vec<u8>> {
        let claim: [u8; CLAIM_BYTES] = self.read(abi::arrival(0, place.seq));
        (word(&claim, 0) == place.seq).then(|| claim.to_vec())
    }

    /// Secondary: an event that the primary has done. `false`: it is not the next one.
    pub fn put_step(&self, place: &mut Place, step: &Step) -> bool {
        let Some(at) = result_at(place).filter(|_| step.seq() == place.seq) else {
            return false;
        };
        let from = abi::OFF_PAYLOAD + step.offset() as usize;
        if from + step.payload.len() > abi::OFF_PAYLOAD + abi::PAYLOAD_BYTES {
            return false;
        }
        self.group.memory.write(from, &step.payload);
        if word(&step.note, 0) == step.seq() {
            self.put(note_at(place.seq), &step.note);
        }
        self.put(at, &step.result);
        self.put(abi::arrival(0, place.seq), &step.claim);
        self.group.set64(at!(own 0, next), place.seq);
        place.pass(step);
        self.wake(1);
        true
    }

    /// Secondary: what the primary has claimed last, and how it has ended.
    pub fn put_end(&self, claim: &[u8], end: &End) {
        if claim.len() == CLAIM_BYTES {
            self.put(abi::arrival(0, word(claim, 0)), claim);
            self.group.set64(at!(own 0, next), word(claim, 0));
        }
        let (code, value) = match end {
            End::Exited(status) => (end::EXITED, *status),
            End::Signaled(signal) => (end::SIGNALED, *signal),
            End::Refused(..) | End::Failed(_) => (end::REFUSED, 0),
        };
        self.group
            .set64(at!(end_value), u64::from(value.cast_unsigned()));
        self.group.set32(at!(end_inv), !code);
        self.group.set32(at!(end), code);
        self.group.ring(1);
    }

    /// Secondary: claims that it has made since `sent`, and how many events it has done.
    pub fn next_claims(&self, sent: &mut Sent, limit: Duration) -> Option<(Vec<Vec<u8>>, u64)> {
        let news = || {
            self.group.get64(at!(own 1, next)) > sent.claim
                || self.group.get64(at!(own 1, done)) > sent.done
        };
        if !self.wait_as(0, limit, news) {
            return None;
        }
        // What is done is read first: claims come after it.
        sent.done = self.group.get64(at!(own 1, done));
        let newest = self.group.get64(at!(own 1, next));
        let mut claims = Vec::new();
        while sent.claim < newest {
            let claim: [u8; CLAIM_BYTES] = self.read(abi::arrival(1, sent.claim + 1));
            if word(&claim, 0) != sent.claim + 1 {
                break;
            }
            claims.push(claim.to_vec());
            sent.claim += 1;
        }
        Some((claims, sent.done))
    }

    /// Primary: a claim of the secondary's.
    pub fn put_claim(&self, claim: &[u8]) -> bool {
        if claim.len() != CLAIM_BYTES {
            return false;
        }
        let seq = word(claim, 0);
        self.put(abi::arrival(1, seq), claim);
        self.group.set64(at!(own 1, next), seq);
        self.wake(0);
        true
    }

    /// Primary: how many events the secondary has done.
    pub fn put_done(&self, done: u64) {
        self.group.set64(at!(own 1, done), done);
        self.wake(0);
    }

    /// Bytes of the payload of an event that is still in the log, from `offset` of it on.
    #[must_use]
    pub fn payload(&self, base: u64, seq: u64, len: usize) -> Vec<u8> {
        let Some(at) = result_at(&Place { seq, base }) else {
            return Vec::new();
        };
        let from = abi::OFF_PAYLOAD + self.group.get32(at + 36) as usize;
        let mut bytes = vec![0; len.min(self.group.get32(at + 32) as usize)];
        self.group.memory.read(from, &mut bytes);
        bytes
    }

    /// Puts the bytes that a read has brought right. On the primary the program gets them before it goes on.
    pub fn correct(&self, base: u64, seq: u64, bytes: &[u8]) {
        let Some(at) = result_at(&Place { seq, base }) else {
            return;
        };
        let len = bytes.len().min(self.group.get32(at + 32) as usize);
        self.group.memory.write(
            abi::OFF_PAYLOAD + self.group.get32(at + 36) as usize,
            &bytes[..len],
        );
        self.group.set64(FIXED, seq);
    }
}

pub(super) fn result_at(place: &Place) -> Option<usize> {
    let index = usize::try_from(place.seq.checked_sub(place.base)?)
        .ok()
        .filter(|index| *index < abi::RESULTS_MAX)?;
    Some(abi::OFF_RESULTS + index * RESULT_BYTES)
}

pub(super) fn note_at(seq: u64) -> usize {
    NOTES + usize::try_from(seq % abi::RING as u64).expect("below RING") * NOTE_BYTES
}
