//! Apart: replicas were to meet in a computation (alignment.rs) and have not, since a fault has made one of them another.
//!
//! ```text
//!   two of them, in turn:  one stands at a payload, the other runs until it is in that state too ──► they agree
//!                          neither has come to the other's, with all the CPU time that it may need ──► they differ
//!   more than half of all differ from one ──► that one has lost (recovery.rs)
//! ```
//!
//! Invariants
//!  1. A replica that is right, and behind, comes by the state of another one that is: it has twice the CPU time for it, and a
//!     second. One that is ahead stands in the second half, where the other one comes by.
//!  2. Who is in the same state in two rounds stays in that circle. Not where others may store to what its digest leaves out.
//!  3. CPU time, never wall time. What a replica needs to look for a state is not its own.
//!
//! Not covered: loops in which nothing can be planted, code of no file, loops that count in memory and have the same registers in
//! each round.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use steadfast_sys::procfs;

use super::{ANSWER, LOOK, LOOKS, RUN, SEARCH, STEPS};
use crate::abi::{self, seek};
use crate::group::{at, ns};
use crate::pace::{Late, Look, SECOND_NS};
use crate::supervise::Supervisor;

/// A loop of two instructions takes so many times as long with a payload in it.
const SLOWED: u64 = 8;
/// What a replica needs for a look at a state that a payload has led it to is less than this.
const ENTRY_NS: i64 = 10_000;
/// Runs that are short at first: most are apart by milliseconds.
const SHORT: u32 = 3;
const SHORT_MAX: Duration = Duration::from_millis(50);
/// One that gets no processor is waited for in so many slices.
const SLICE: Duration = Duration::from_secs(1);
const STARVED: u32 = 30;
/// If so much of a replica's time in one run was for looks, nothing is known: registers are the same in each round.
const LOOKS_NS: u64 = 20 * SECOND_NS;
/// Payloads that are planted while two are compared, and have it begin again.
const BEGINS: usize = 3;

/// CPU time that a replica has had since the event that it has come to last.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effort {
    /// Until a payload was planted.
    before: u64,
    since: u64,
    /// Less what it may have needed to look for others.
    own: i64,
}

impl Effort {
    fn raw(&self) -> u64 {
        self.before + self.since
    }

    /// In which it has looked at states.
    fn looks(&self) -> u64 {
        self.raw().saturating_add_signed(self.own.saturating_neg())
    }

    fn late(&self, replica: usize, allowed: i64) -> Late {
        let cpu_ns = self.raw();
        Late {
            replica,
            cpu_ns,
            limit_ns: cpu_ns.min(u64::try_from(allowed).unwrap_or(0)),
        }
    }

    /// What `self` may need until it comes by the state of a replica that has needed `to`.
    fn allowed(&self, to: &Self) -> i64 {
        let unequal = SLOWED * (2 * to.before).saturating_sub(self.before);
        i64::try_from(self.before + 2 * to.since + unequal + SECOND_NS).unwrap_or(i64::MAX)
    }
}

/// A replica at a look: what it has burned by then, and how often it was led into the agent.
#[derive(Debug, Clone, Copy)]
struct Seen {
    pid: i32,
    place: u64,
    cpu_ns: u64,
    entered: u32,
}

#[derive(Debug, Clone, Copy)]
struct Track {
    /// When it was seen last, and before it came to the event that it was at then.
    last: Seen,
    from: Seen,
    /// Of the one that it was made from.
    inherited: u64,
    /// Its effort when a payload was planted.
    before: Option<u64>,
}

/// What all have needed, from upper bounds as in pace.rs.
#[derive(Debug, Default)]
pub(super) struct Efforts {
    tracks: Vec<Track>,
    repairs: u64,
}

impl Efforts {
    fn look(&mut self, repairs: u64, now: &[Seen]) {
        let known = self.repairs == repairs
            && self.tracks.len() == now.len()
            && self
                .tracks
                .iter()
                .zip(now)
                .all(|(track, now)| track.last.pid == now.pid);
        if !known {
            // Somebody is a copy of somebody else by now.
            let most = (0..self.tracks.len())
                .map(|r| self.raw(r, &self.tracks[r].last))
                .max();
            let inherited = most.unwrap_or(0);
            self.repairs = repairs;
            self.tracks = now
                .iter()
                .map(|&now| Track {
                    last: now,
                    from: now,
                    inherited,
                    before: Some(inherited),
                })
                .collect();
        }
        for (track, now) in self.tracks.iter_mut().zip(now) {
            if track.last.place != now.place {
                track.from = track.last;
                track.inherited = 0;
                track.before = None;
            }
            track.last = *now;
        }
    }

    fn raw(&self, r: usize, now: &Seen) -> u64 {
        let track = &self.tracks[r];
        let from = if track.last.place == now.place {
            &track.from
        } else {
            &track.last
        };
        track.inherited + now.cpu_ns.saturating_sub(from.cpu_ns)
    }

    fn of(&self, r: usize, now: &Seen) -> Effort {
        let (raw, track) = (self.raw(r, now), &self.tracks[r]);
        let entered = i64::from(now.entered.wrapping_sub(track.from.entered));
        let before = track.before.unwrap_or(0).min(raw);
        Effort {
            before,
            since: raw - before,
            own: raw
                .cast_signed()
                .saturating_sub(entered.saturating_mul(ENTRY_NS)),
        }
    }

    /// A payload is planted, in all of them.
    fn planted(&mut self, now: &[Seen]) {
        for (r, now) in now.iter().enumerate() {
            self.tracks[r].before = Some(self.raw(r, now));
        }
    }
}

/// Who agrees with whom, as far as it is known.
#[derive(Debug)]
struct Camps {
    /// The camp of each replica.
    of: Vec<usize>,
    apart: BTreeSet<(usize, usize)>,
}

impl Camps {
    fn new(n: usize) -> Self {
        Self {
            of: (0..n).collect(),
            apart: BTreeSet::new(),
        }
    }

    fn agree(&mut self, a: usize, b: usize) {
        let (stays, goes) = (self.of[a], self.of[b]);
        let camp = |camp: usize| if camp == goes { stays } else { camp };
        self.of = self.of.iter().map(|of| camp(*of)).collect();
        self.apart = self
            .apart
            .iter()
            .map(|(a, b)| (camp(*a), camp(*b)))
            .collect();
    }

    fn differ(&mut self, a: usize, b: usize) {
        self.apart
            .extend([(self.of[a], self.of[b]), (self.of[b], self.of[a])]);
    }

    fn members(&self, camp: usize) -> impl Iterator<Item = usize> {
        (0..self.of.len()).filter(move |r| self.of[*r] == camp)
    }

    fn is_one(&self) -> bool {
        self.of.iter().all(|camp| *camp == self.of[0])
    }

    /// From whom more than half of all differ.
    fn loser(&self) -> Option<usize> {
        let against = |camp: usize| -> usize {
            let others = self.apart.iter().filter(|(a, _)| *a == camp);
            others.map(|(_, b)| self.members(*b).count()).sum()
        };
        (0..self.of.len()).find(|r| 2 * against(self.of[*r]) > self.of.len())
    }

    /// Two of whom nothing is known, those that `effort` makes least first.
    fn open(&self, effort: impl Fn(usize) -> i64) -> Option<(usize, usize)> {
        let mut all: Vec<usize> = (0..self.of.len()).collect();
        all.sort_by_key(|r| effort(*r));
        let known = |a: usize, b: usize| {
            self.of[a] == self.of[b] || self.apart.contains(&(self.of[a], self.of[b]))
        };
        let pairs = all
            .iter()
            .enumerate()
            .flat_map(|(i, b)| all[..i].iter().map(move |a| (*a, *b)));
        pairs.into_iter().find(|(a, b)| !known(*a, *b))
    }
}

/// For how long somebody looks for another one's state.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// CPU time.
    Raw(u64),
    /// All that it may need.
    Own,
}

enum Came {
    There,
    Not(Late),
    Unknown,
}

enum Compared {
    Agree,
    Differ(Late),
    Unknown,
}

/// How a meeting ends that is not given up for want of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Together,
    /// Who has lost, if that is known; otherwise who has looked for another one last.
    Apart {
        late: Late,
        lost: bool,
    },
    /// Something else has come up, or nothing can be known.
    Nothing,
}

impl Supervisor<'_> {
    fn seen(&self, r: usize) -> Seen {
        let pid = self.process_of(r);
        Seen {
            pid,
            place: self.come_to(r),
            cpu_ns: procfs::burned_ns(pid).unwrap_or(0),
            entered: self.group.get32(at!(slot r, entered)),
        }
    }

    /// Takes a look of the launcher's into account.
    pub(in crate::supervise) fn note_efforts(&mut self, looks: &[Option<Look>]) {
        let entered = |r: usize| self.group.get32(at!(slot r, entered));
        let seen: Option<Vec<Seen>> = looks
            .iter()
            .enumerate()
            .map(|(r, look)| {
                let Look { pid, place, cpu_ns } = (*look)?;
                Some(Seen {
                    pid,
                    place,
                    cpu_ns,
                    entered: entered(r),
                })
            })
            .collect();
        if let Some(seen) = seen {
            self.alignment.efforts.look(self.divergences, &seen);
        }
    }

    /// A payload stands in all of them from now on.
    pub(super) fn note_planted(&mut self) {
        let seen: Vec<Seen> = (0..self.replicas.len()).map(|r| self.seen(r)).collect();
        self.alignment.efforts.look(self.divergences, &seen);
        self.alignment.efforts.planted(&seen);
    }

    fn effort(&self, r: usize) -> Effort {
        self.alignment.efforts.of(r, &self.seen(r))
    }

    /// All have paused, and did not meet when they were to do so soon.
    pub(super) fn settle_who_differs(&mut self) -> Outcome {
        let n = self.replicas.len();
        let seen: Vec<Seen> = (0..n).map(|r| self.seen(r)).collect();
        if seen.iter().any(|one| one.place != seen[0].place) {
            return Outcome::Nothing;
        }
        self.alignment.efforts.look(self.divergences, &seen);
        let mut camps = Camps::new(n);
        for (a, b) in (0..n).flat_map(|b| (0..b).map(move |a| (a, b))) {
            // Of two nobody learns who of them is wrong.
            if n > 2 && camps.of[a] != camps.of[b] {
                match self.come_near(a, b) {
                    Compared::Agree => camps.agree(a, b),
                    Compared::Differ(_) => {}
                    Compared::Unknown => return Outcome::Nothing,
                }
            }
        }
        let mut late = None;
        while !camps.is_one() {
            if let (Some(r), Some(found)) = (camps.loser(), late) {
                let late = Late {
                    replica: r,
                    ..found
                };
                return Outcome::Apart { late, lost: true };
            }
            let Some((a, b)) = camps.open(|r| self.effort(r).own) else {
                return late.map_or(Outcome::Nothing, |late| Outcome::Apart {
                    late,
                    lost: false,
                });
            };
            match self.compare(a, b, &camps) {
                Compared::Agree => camps.agree(a, b),
                Compared::Differ(found) => {
                    camps.differ(a, b);
                    late = Some(found);
                }
                Compared::Unknown => return Outcome::Nothing,
            }
        }
        match self.gather_at(self.farthest(&camps, 0), &camps) {
            Some(()) => Outcome::Together,
            None => Outcome::Nothing,
        }
    }

    /// Brings one of two to where the other one stands, if they are as near as most are.
    fn come_near(&mut self, a: usize, b: usize) -> Compared {
        let apart = self.effort(a).own.abs_diff(self.effort(b).own);
        let first = apart.clamp(ns(RUN), ns(SHORT_MAX));
        let ahead = self.effort(a).own > self.effort(b).own;
        let (mut to, mut r) = if ahead { (a, b) } else { (b, a) };
        for run in 0..SHORT {
            let Some(()) = self.halts(to) else {
                return Compared::Unknown;
            };
            match self.comes_by(r, to, Limit::Raw(first << (2 * run))) {
                Came::There => return Compared::Agree,
                Came::Not(late) if run + 1 == SHORT => return Compared::Differ(late),
                Came::Not(_) => {}
                Came::Unknown => return Compared::Unknown,
            }
            std::mem::swap(&mut to, &mut r);
        }
        Compared::Unknown
    }

    /// Whether one of two comes to where the other one stands. Who agrees with the first to run stays with it.
    fn compare(&mut self, a: usize, b: usize, camps: &Camps) -> Compared {
        let size = |r: usize| camps.members(camps.of[r]).count();
        let (a, b) = if size(a) < size(b) { (b, a) } else { (a, b) };
        let runs = self.farthest(camps, a);
        for _ in 0..BEGINS {
            if self.halts(b).is_none() {
                break;
            }
            let planted = self.modules.meets_given;
            match self.comes_by(runs, b, Limit::Own) {
                Came::There => return Compared::Agree,
                Came::Not(_) if self.gather_at(runs, camps).is_some() => {}
                _ => break,
            }
            if self.halts(runs).is_none() {
                break;
            }
            // Before there was this payload, the one that has run may have come by it unseen.
            if self.modules.meets_given != planted {
                continue;
            }
            return match self.comes_by(b, runs, Limit::Own) {
                Came::There => Compared::Agree,
                Came::Not(late) => Compared::Differ(late),
                Came::Unknown => Compared::Unknown,
            };
        }
        Compared::Unknown
    }

    /// Who has run most of those that agree with a replica.
    fn farthest(&self, camps: &Camps, r: usize) -> usize {
        let effort = |r: &usize| self.effort(*r).own;
        camps.members(camps.of[r]).max_by_key(effort).unwrap_or(r)
    }

    /// Has a replica stand at a payload, where others look for it.
    fn halts(&mut self, r: usize) -> Option<()> {
        for _ in 0..STARVED {
            let stands = self.modules.original(self.stands_at(r)?);
            let begun = self.effort(r).raw();
            let site = match self.alignment.met_at.take() {
                Some(site) => site,
                None => self.plant(stands)?,
            };
            if self.goes_to(r, site) && self.stands_at(r) == Some(site) {
                self.group.set64(abi::OFF_SEEK_WORDS + 8, 0);
                self.alignment.met_at = Some(site);
                return Some(());
            }
            self.is_called_out(r)?;
            if self.effort(r).raw().saturating_sub(begun) > ns(SEARCH) / 4 {
                self.alignment.passed_over.insert((site, stands));
            }
        }
        None
    }

    /// Waits for a replica to pause that has been called.
    fn is_called_out(&mut self, r: usize) -> Option<()> {
        let (begun, place) = (Instant::now(), self.group.get64(at!(own r, next)));
        while !self.pauses(r) && begun.elapsed() < ANSWER {
            let seen = self.group.bell();
            if self.disturbed() || self.group.get64(at!(own r, next)) != place {
                break;
            }
            self.call(r);
            self.group.sleep(seen, LOOK);
        }
        (self.pauses(r) && !self.disturbed()).then_some(())
    }

    /// Runs until it is where another one stands.
    fn comes_by(&mut self, r: usize, to: usize, limit: Limit) -> Came {
        let (begun, target) = (self.effort(r), self.effort(to));
        let allowed = begun.allowed(&target);
        let closed = !self.shares_memory() && self.group.get64(at!(settled)) == 0;
        let (mut starved, mut looked) = (0, None);
        for _ in 0..LOOKS {
            loop {
                let now = self.effort(r);
                let (raw, had) = (now.raw().saturating_sub(begun.raw()), now.own);
                let left = match limit {
                    Limit::Raw(ns) => ns.saturating_sub(raw),
                    Limit::Own => u64::try_from(allowed.saturating_sub(had)).unwrap_or(0),
                };
                if left == 0 {
                    return Came::Not(now.late(r, allowed));
                }
                let looks = now.looks().saturating_sub(begun.looks());
                if looks > LOOKS_NS || starved > STARVED {
                    return Came::Unknown;
                }
                let slice = Duration::from_nanos(left).clamp(RUN / 5, SLICE);
                if self.seek(r, STEPS, seek::FREE, slice) {
                    break;
                }
                if self.is_called_out(r).is_none() {
                    return Came::Unknown;
                }
                starved += u32::from(self.effort(r).raw() == now.raw());
            }
            let (Some(own), Some(other)) = (self.digest(r), self.digest(to)) else {
                break;
            };
            if own == other {
                return Came::There;
            }
            // It is back where it was: from here it does not come to anything else.
            if looked == Some(own) && closed {
                return Came::Not(self.effort(r).late(r, allowed));
            }
            // The next look is at the next round, whatever differs.
            if looked.replace(own).is_some() && !self.learn(r, to) {
                break;
            }
        }
        Came::Unknown
    }

    /// Brings those that agree with one of them to where it stands.
    fn gather_at(&mut self, head: usize, camps: &Camps) -> Option<()> {
        for r in camps.members(camps.of[head]).filter(|r| *r != head) {
            let there = self.stands_as(r)?;
            self.halts(head)?;
            if there != self.stands_as(head)?
                && !matches!(self.comes_by(r, head, Limit::Own), Came::There)
            {
                return None;
            }
        }
        Some(())
    }

    /// The registers and memory of a replica.
    fn stands_as(&self, r: usize) -> Option<(Vec<u64>, [u64; 2])> {
        self.stands_at(r)?;
        let register = |i| self.group.get64(abi::OFF_TRANSFER + 16 + 8 * i);
        Some(((0..abi::REGISTERS).map(register).collect(), self.digest(r)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seen(pid: i32, place: u64, ms: u64, entered: u32) -> Seen {
        Seen {
            pid,
            place,
            cpu_ns: ms * MS,
            entered,
        }
    }

    #[test]
    fn who_differs_from_more_than_half_has_lost_and_of_two_nobody_has() {
        let mut two = Camps::new(2);
        assert_eq!(two.open(|_| 0), Some((0, 1)));
        two.differ(0, 1);
        assert_eq!((two.loser(), two.open(|_| 0)), (None, None));

        let mut three = Camps::new(3);
        three.differ(0, 1);
        assert_eq!(three.loser(), None);
        // The least effort first.
        assert_eq!(three.open(|r| [9, 1, 5][r]), Some((1, 2)));
        three.agree(2, 1);
        assert_eq!(three.loser(), Some(0));
        assert!(!three.is_one());

        let mut alone = Camps::new(3);
        alone.differ(2, 0);
        alone.differ(1, 2);
        assert_eq!(alone.loser(), Some(2));
    }

    #[test]
    fn twice_the_time_of_the_other_is_allowed_and_the_loop_was_faster_without_a_payload() {
        let effort = |before, since| Effort {
            before: before * MS,
            since: since * MS,
            own: 0,
        };
        let allowed = |own: &Effort, to: &Effort| own.allowed(to) / 1_000_000;
        assert_eq!(allowed(&effort(0, 10), &effort(0, 700)), 2400);
        assert_eq!(allowed(&effort(100, 10), &effort(100, 700)), 3300);
        // One that was slow before has less to make up for.
        assert_eq!(allowed(&effort(300, 0), &effort(100, 700)), 2700);
    }

    #[test]
    fn effort_counts_from_the_last_look_that_saw_another_event() {
        let mut efforts = Efforts::default();
        efforts.look(0, &[seen(5, 1, 100, 0), seen(6, 1, 100, 0)]);
        efforts.look(0, &[seen(5, 2, 300, 0), seen(6, 2, 200, 0)]);
        assert_eq!(efforts.of(0, &seen(5, 2, 400, 0)).raw(), 300 * MS);
        // Not seen there yet.
        assert_eq!(efforts.of(1, &seen(6, 3, 250, 0)).raw(), 50 * MS);
        efforts.planted(&[seen(5, 2, 400, 0), seen(6, 2, 300, 0)]);
        let own = efforts.of(1, &seen(6, 2, 800, 10));
        assert_eq!((own.before, own.since), (200 * MS, 500 * MS));
        // Less what looks may have taken.
        assert_eq!((own.own, own.looks()), (699_900_000, 100_000));
    }

    #[test]
    fn one_that_was_made_again_has_the_effort_of_whom_it_was_made_from() {
        let mut efforts = Efforts::default();
        efforts.look(0, &[seen(5, 1, 0, 0), seen(6, 1, 0, 0)]);
        efforts.look(0, &[seen(5, 2, 900, 0), seen(6, 2, 400, 0)]);
        efforts.look(1, &[seen(5, 2, 950, 0), seen(7, 2, 20, 0)]);
        assert_eq!(efforts.of(1, &seen(7, 2, 30, 0)).raw(), 910 * MS);
        assert_eq!(efforts.of(0, &seen(5, 2, 950, 0)).raw(), 900 * MS);
    }
}
