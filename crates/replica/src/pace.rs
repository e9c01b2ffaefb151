//! Pace: how much CPU time each replica needed from event to event, and who has needed too much.
//!
//! The launcher looks ten times a second. Between two looks a replica may have passed many events, so what it
//! needed from one event to the next is known as an upper bound: from the last look that saw it before, to the
//! first that saw it behind. An allowance made from upper bounds never accuses a replica that is merely slower.
//!
//! Invariants
//!  1. A replica hangs when it has burned more than max(2 x, + 1 s) of what the fastest other one needed between
//!     the same two events (docs/replication.md). CPU time, never wall time: a stopped process burns nothing.
//!     Of the kernel's time a sixteenth counts (`procfs::burned_ns`).
//!  2. What was learned of a process is forgotten with it.
//!
//! Not covered: replicas that all stand at the same event. They may compute for ever, as the bare program may.

use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;

/// A replica as one look finds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) pid: i32,
    /// Index of the event it will arrive at next.
    pub(crate) place: u64,
    pub(crate) cpu_ns: u64,
}

/// A replica that burned more than it was allowed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hung {
    pub(crate) replica: usize,
    pub(crate) cpu_ns: u64,
    pub(crate) limit_ns: u64,
}

/// What is remembered of one replica: the places it was seen at, each with its CPU time when first seen there.
#[derive(Debug, Default)]
struct Track {
    pid: i32,
    seen: VecDeque<(u64, u64)>,
}

impl Track {
    fn note(&mut self, look: &Look) {
        if self.pid != look.pid {
            self.pid = look.pid;
            self.seen.clear();
        }
        if self.seen.back().is_none_or(|&(place, _)| place != look.place) {
            self.seen.push_back((look.place, look.cpu_ns));
        }
    }

    /// At most this much was needed from `place` to the event behind it.
    fn needed(&self, place: u64) -> u64 {
        let behind = self.seen.partition_point(|&(seen, _)| seen <= place);
        let Some(&(_, end)) = self.seen.get(behind) else { return 0 };
        let start = behind.checked_sub(1).map_or(0, |before| self.seen[before].1);
        end.saturating_sub(start)
    }

    /// Forgets what nobody at `place` or behind it can be compared with.
    fn forget(&mut self, place: u64) {
        while self.seen.get(1).is_some_and(|&(next, _)| next <= place) {
            self.seen.pop_front();
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pace {
    tracks: Vec<Track>,
}

impl Pace {
    /// Takes a look into account; `None` where a replica could not be read. Says who hangs.
    pub(crate) fn look(&mut self, looks: &[Option<Look>]) -> Option<Hung> {
        self.tracks.resize_with(looks.len(), Track::default);
        for (track, look) in self.tracks.iter_mut().zip(looks) {
            if let Some(look) = look {
                track.note(look);
            }
        }
        let last = looks.iter().flatten().map(|look| look.place).min()?;
        let hung = looks.iter().enumerate().find_map(|(r, look)| self.judge(r, look.as_ref()?, looks));
        for track in &mut self.tracks {
            track.forget(last);
        }
        hung
    }

    fn judge(&self, replica: usize, look: &Look, looks: &[Option<Look>]) -> Option<Hung> {
        let (_, since) = *self.tracks[replica].seen.back()?;
        let cpu_ns = look.cpu_ns.saturating_sub(since);
        let needed = looks
            .iter()
            .zip(&self.tracks)
            .filter(|(other, _)| other.is_some_and(|other| other.place > look.place))
            .map(|(_, track)| track.needed(look.place))
            .min()?;
        let limit_ns = (2 * needed).max(needed + SECOND_NS);
        (cpu_ns > limit_ns).then_some(Hung { replica, cpu_ns, limit_ns })
    }

    /// What a replica has burned since it was first seen where it is.
    pub(crate) fn burned(&self, replica: usize, cpu_ns: u64) -> u64 {
        let since = self.tracks.get(replica).and_then(|track| track.seen.back());
        since.map_or(0, |(_, since)| cpu_ns.saturating_sub(*since))
    }

    pub(crate) fn clear(&mut self) {
        self.tracks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks at two replicas: place and CPU time in milliseconds of each.
    fn two(pace: &mut Pace, a: (u64, u64), b: (u64, u64)) -> Option<Hung> {
        let look = |pid, (place, ms): (u64, u64)| Some(Look { pid, place, cpu_ns: ms * MS });
        pace.look(&[look(1, a), look(2, b)])
    }

    #[test]
    fn a_replica_that_is_slower_than_the_other_by_less_than_half_is_left_alone() {
        let mut pace = Pace::default();
        assert_eq!(two(&mut pace, (5, 0), (5, 0)), None);
        assert_eq!(two(&mut pace, (5, 7000), (5, 7000)), None);
        assert_eq!(two(&mut pace, (6, 7050), (5, 7100)), None);
        // At the looks after the first arrival as well, at which nobody moves.
        assert_eq!(two(&mut pace, (6, 7050), (5, 8500)), None);
        assert_eq!(two(&mut pace, (6, 7050), (5, 14_000)), None);
        assert_eq!(two(&mut pace, (7, 7060), (6, 14_010)), None);
    }

    #[test]
    fn twice_the_time_of_the_first_arriver_is_a_hang() {
        let mut pace = Pace::default();
        two(&mut pace, (5, 0), (5, 0));
        two(&mut pace, (6, 7000), (5, 7000));
        let hung = Hung { replica: 1, cpu_ns: 14_001 * MS, limit_ns: 14_000 * MS };
        assert_eq!(two(&mut pace, (6, 7000), (5, 14_001)), Some(hung));
    }

    #[test]
    fn a_second_is_allowed_whatever_the_first_arriver_needed() {
        let mut pace = Pace::default();
        two(&mut pace, (5, 100), (5, 100));
        assert_eq!(two(&mut pace, (9, 102), (6, 102)), None);
        assert_eq!(two(&mut pace, (9, 102), (6, 1100)), None);
        assert_eq!(two(&mut pace, (9, 102), (6, 1105)).map(|hung| hung.replica), Some(1));
    }

    #[test]
    fn the_replica_ahead_is_measured_at_the_event_of_the_one_behind() {
        let mut pace = Pace::default();
        two(&mut pace, (5, 0), (5, 0));
        // Three seconds at event 5, then on at once; the other is still at 5.
        two(&mut pace, (6, 3000), (5, 3000));
        two(&mut pace, (40, 3100), (5, 3100));
        assert_eq!(two(&mut pace, (40, 3100), (5, 5900)), None);
        assert_eq!(two(&mut pace, (40, 3100), (5, 6001)).map(|hung| hung.limit_ns), Some(6000 * MS));
    }

    #[test]
    fn a_new_process_starts_anew_and_nobody_hangs_alone() {
        let mut pace = Pace::default();
        two(&mut pace, (5, 9000), (5, 9000));
        let again = |ms: u64| {
            [Some(Look { pid: 1, place: 6, cpu_ns: 9100 * MS }), Some(Look { pid: 3, place: 5, cpu_ns: ms * MS })]
        };
        assert_eq!(pace.look(&again(10)), None);
        assert_eq!(pace.look(&again(900)), None);
        assert_eq!(pace.look(&[Some(Look { pid: 3, place: 5, cpu_ns: 90_000 * MS })]), None);
    }
}
