//! Relay: claims, results, payload and notes from one site's segment of memory into the other's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_sys::futex;

use crate::abi::{self, end};
use crate::group::{Group, at};

use super::step::{half, word};
use super::{
    Body, CLAIM_BYTES, End, FIXED, NOTE_BYTES, NOTES, RESULT_BYTES, RESULT_RESET, SLEEP, Site, Step,
};

/// Where a relay is in the log.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub seq: u64,
    pub base: u64,
    /// Of which log.
    pub strand: u64,
}

impl Place {
    #[must_use]
    pub fn first() -> Self {
        Self::first_of(0)
    }

    /// Of a log that has just begun.
    #[must_use]
    pub fn first_of(strand: u64) -> Self {
        Self {
            seq: 1,
            base: 1,
            strand,
        }
    }

    pub(super) fn pass(&mut self, step: &Step) {
        self.seq += 1;
        if step.flags() & RESULT_RESET != 0 {
            self.base = self.seq;
        }
    }
}

/// What the primary has to tell.
#[derive(Debug)]
pub enum Told {
    Step(Box<Step>),
    Claim(Vec<u8>),
}

/// What a relay has sent of the secondary's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    pub claim: u64,
    pub done: u64,
    pub strand: u64,
}

/// Sleeps as the replica of `slot` would, until it holds, or `limit` is over.
fn wait_as(group: &Group, slot: usize, limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    let sleepers = group.memory.u32(at!(wait sleepers));
    let bell = group.memory.u32(at!(slot slot, bell));
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

fn read<const N: usize>(group: &Group, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    group.memory.read(at, &mut bytes);
    bytes
}

/// A record whose first word, the number, is stored last.
pub(super) fn put(group: &Group, at: usize, bytes: &[u8]) {
    group.set64(at, u64::MAX);
    group.memory.write(at + 8, &bytes[8..]);
    group.set64(at, word(bytes, 0));
}

fn wake(group: &Group, slot: usize) {
    let sleepers = group.memory.u32(at!(wait sleepers));
    if sleepers.load(Ordering::SeqCst) & 1 << slot != 0 {
        group.ring(slot);
    }
}

fn take_step(group: &Group, place: &mut Place, at: usize) -> Step {
    let result: [u8; RESULT_BYTES] = read(group, at);
    let mut payload = vec![0; half(&result, 8) as usize];
    group
        .memory
        .read(abi::OFF_PAYLOAD + half(&result, 9) as usize, &mut payload);
    let step = Step {
        claim: read(group, abi::claim(0, place.seq)),
        result,
        note: read(group, note_at(place.seq)),
        payload,
    };
    place.pass(&step);
    step
}

impl Site {
    /// Primary: the next event that it has done; nothing in time: none. Where processes share memory, also what it claims
    /// about that event, which says that others may have their turn.
    pub fn next_told(&self, place: &mut Place, claimed: &mut u64, limit: Duration) -> Option<Told> {
        let strand = place.strand;
        let group = self.at_strand(place);
        if strand != place.strand {
            *claimed = 0;
        }
        let at = result_at(place)?;
        let done = || group.get64(at) == place.seq;
        let claims = || {
            *claimed < place.seq
                && group.get32(at!(domain)) != 0
                && group.get64(at!(own 0, next)) == place.seq
        };
        if !wait_as(&group, 1, limit, || done() || claims()) {
            return None;
        }
        if done() {
            return Some(Told::Step(Box::new(take_step(&group, place, at))));
        }
        let claim: [u8; CLAIM_BYTES] = read(&group, abi::claim(0, place.seq));
        if word(&claim, 0) != place.seq {
            return None;
        }
        *claimed = place.seq;
        Some(Told::Claim(claim.to_vec()))
    }

    /// Secondary: what the primary claims about an event that it has not done.
    pub fn put_claim_of_primary(&self, strand: u64, claim: &[u8]) {
        let Some(group) = self
            .of_strand(strand)
            .filter(|_| claim.len() == CLAIM_BYTES)
        else {
            return;
        };
        let seq = word(claim, 0);
        put(&group, abi::claim(0, seq), claim);
        group.set64(at!(own 0, next), seq);
        wake(&group, 1);
    }

    /// The log that the program is at. A place in one that has ended becomes the beginning of that.
    fn at_strand(&self, place: &mut Place) -> Arc<Body> {
        let group = self.group();
        if group.strand != place.strand {
            *place = Place::first_of(group.strand);
        }
        group
    }

    /// The log of this strand, if the program is at it.
    fn of_strand(&self, strand: u64) -> Option<Arc<Body>> {
        Some(self.group()).filter(|group| group.strand == strand)
    }

    /// The other site is gone for good: claims of this site's program, from behind `echoed` on, count as agreed, and the
    /// next event that it has done is returned, as by [`Self::next_step`].
    pub fn next_alone(&self, echoed: &mut u64, place: &mut Place, limit: Duration) -> Option<Step> {
        let strand = place.strand;
        let group = self.at_strand(place);
        if strand != place.strand {
            *echoed = 0;
        }
        let at = result_at(place)?;
        let claimed = || group.get64(at!(own 0, next));
        let done = || group.get64(at) == place.seq;
        if !wait_as(&group, 1, limit, || claimed() > *echoed || done()) {
            return None;
        }
        let newest = claimed();
        if newest > *echoed {
            for seq in *echoed + 1..=newest {
                group.echo_as(0, 1, seq);
            }
            *echoed = newest;
            group.set64(at!(own 1, next), newest);
            wake(&group, 0);
        }
        done().then(|| take_step(&group, place, at))
    }

    /// Primary: the claim about the event after the last that it has done, with which a program ends.
    #[must_use]
    pub fn last_claim(&self, place: &Place) -> Option<Vec<u8>> {
        let claim: [u8; CLAIM_BYTES] = read(&self.group(), abi::claim(0, place.seq));
        (word(&claim, 0) == place.seq).then(|| claim.to_vec())
    }

    /// Secondary: an event that the primary has done. `false`: it is not the next one.
    pub fn put_step(&self, place: &mut Place, step: &Step) -> bool {
        let Some(group) = self.of_strand(place.strand) else {
            return false;
        };
        let Some(at) = result_at(place).filter(|_| step.seq() == place.seq) else {
            return false;
        };
        let from = abi::OFF_PAYLOAD + step.offset() as usize;
        if from + step.payload.len() > abi::OFF_PAYLOAD + abi::PAYLOAD_BYTES {
            return false;
        }
        group.memory.write(from, &step.payload);
        if word(&step.note, 0) == step.seq() {
            put(&group, note_at(place.seq), &step.note);
        }
        put(&group, at, &step.result);
        let claimed = abi::claim(0, place.seq);
        if group.get64(claimed) != place.seq {
            put(&group, claimed, &step.claim);
        }
        group.set64(at!(own 0, next), place.seq);
        place.pass(step);
        wake(&group, 1);
        true
    }

    /// Secondary: what the primary has claimed last, and how it has ended.
    pub fn put_end(&self, claim: &[u8], end: &End) {
        if claim.len() == CLAIM_BYTES {
            put(&self.group(), abi::claim(0, word(claim, 0)), claim);
            self.group().set64(at!(own 0, next), word(claim, 0));
        }
        let (code, value) = match end {
            End::Exited(status) => (end::EXITED, *status),
            End::Signaled(signal) => (end::SIGNALED, *signal),
            End::Refused(..) | End::Failed(_) => (end::REFUSED, 0),
        };
        self.group()
            .set64(at!(end_value), u64::from(value.cast_unsigned()));
        self.group().set32(at!(end_inv), !code);
        self.group().set32(at!(end), code);
        self.group().ring(1);
    }

    /// Secondary: claims that it has made since `sent`, and how many events it has done.
    pub fn next_claims(&self, sent: &mut Sent, limit: Duration) -> Option<(Vec<Vec<u8>>, u64)> {
        let group = self.group();
        if group.strand != sent.strand {
            *sent = Sent {
                strand: group.strand,
                ..Sent::default()
            };
        }
        let news = || {
            group.get64(at!(own 1, next)) > sent.claim || group.get64(at!(own 1, done)) > sent.done
        };
        if !wait_as(&group, 0, limit, news) {
            return None;
        }
        // What is done is read first: claims come after it.
        sent.done = group.get64(at!(own 1, done));
        let newest = group.get64(at!(own 1, next));
        let mut claims = Vec::new();
        while sent.claim < newest {
            let claim: [u8; CLAIM_BYTES] = read(&group, abi::claim(1, sent.claim + 1));
            if word(&claim, 0) != sent.claim + 1 {
                break;
            }
            claims.push(claim.to_vec());
            sent.claim += 1;
        }
        Some((claims, sent.done))
    }

    /// Primary: a claim of the secondary's.
    pub fn put_claim(&self, strand: u64, claim: &[u8]) -> bool {
        let Some(group) = self
            .of_strand(strand)
            .filter(|_| claim.len() == CLAIM_BYTES)
        else {
            return false;
        };
        let seq = word(claim, 0);
        put(&group, abi::claim(1, seq), claim);
        group.set64(at!(own 1, next), seq);
        wake(&group, 0);
        true
    }

    /// Primary: how many events the secondary has done.
    pub fn put_done(&self, strand: u64, done: u64) {
        if let Some(group) = self.of_strand(strand) {
            group.set64(at!(own 1, done), done);
            wake(&group, 0);
        }
    }

    /// Bytes of the payload of an event that is still in the log, from `offset` of it on.
    #[must_use]
    pub fn payload(&self, base: u64, seq: u64, len: usize) -> Vec<u8> {
        let Some(at) = result_at_of(seq, base) else {
            return Vec::new();
        };
        let from = abi::OFF_PAYLOAD + self.group().get32(at + 36) as usize;
        let mut bytes = vec![0; len.min(self.group().get32(at + 32) as usize)];
        self.group().memory.read(from, &mut bytes);
        bytes
    }

    /// Puts the bytes that a read has brought right. On the primary the program gets them before it goes on.
    pub fn correct(&self, base: u64, seq: u64, bytes: &[u8]) {
        let Some(at) = result_at_of(seq, base) else {
            return;
        };
        let len = bytes.len().min(self.group().get32(at + 32) as usize);
        self.group().memory.write(
            abi::OFF_PAYLOAD + self.group().get32(at + 36) as usize,
            &bytes[..len],
        );
        self.group().set64(FIXED, seq);
    }
}

pub(super) fn result_at(place: &Place) -> Option<usize> {
    result_at_of(place.seq, place.base)
}

fn result_at_of(seq: u64, base: u64) -> Option<usize> {
    let index = usize::try_from(seq.checked_sub(base)?)
        .ok()
        .filter(|index| *index < abi::RESULTS_MAX)?;
    Some(abi::OFF_RESULTS + index * RESULT_BYTES)
}

pub(super) fn note_at(seq: u64) -> usize {
    NOTES + usize::try_from(seq % abi::RING as u64).expect("below RING") * NOTE_BYTES
}
