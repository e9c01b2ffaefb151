//! Pace: how much CPU time each replica needed from event to event, and who has needed too much.
//!
//! The launcher looks ten times a second. Between two looks a replica may have passed many events, so what it
//! needed from one event to the next is known as an upper bound: from the last look that saw it before, to the
//! first that saw it behind. An allowance made from upper bounds never accuses a replica that is merely slower.
//!
//! Invariants
//!  1. A replica is late when it has burned more than max(2 x, + 1 s) of what others needed between the same two
//!     events (docs/concepts/replication.md). CPU time, never wall time: a stopped process burns nothing. Of the kernel's
//!     time a sixteenth counts (`procfs::burned_ns`).
//!  2. It hangs if a majority has come to the event. Otherwise those who have may be the ones that are wrong: a
//!     crash, or a loop left too early, comes first. That is for a vote, once all others are late.
//!  3. What was learned of a process is forgotten with it.
//!
//! Not covered: replicas that all stand at the same event. They may compute for ever, as the bare program may.

use std::collections::VecDeque;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

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
pub(crate) struct Late {
    pub(crate) replica: usize,
    pub(crate) cpu_ns: u64,
    pub(crate) limit_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// A majority has come to where this one should be.
    Hung(Late),
    /// Those who are late are half of the replicas, or more: either they hang, or the others should not be where they
    /// are, at the event behind `place`.
    Doubt { place: u64, late: Vec<Late> },
    /// Replicas were to meet, and this one does not come by the others' states (alignment/apart.rs). Whether it has lost is
    /// known where there are others that agree.
    Apart { late: Late, lost: bool },
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
        if self
            .seen
            .back()
            .is_none_or(|&(place, _)| place != look.place)
        {
            self.seen.push_back((look.place, look.cpu_ns));
        }
    }

    /// At most this much was needed from `place` to the event behind it.
    fn needed(&self, place: u64) -> u64 {
        let behind = self.seen.partition_point(|&(seen, _)| seen <= place);
        let Some(&(_, end)) = self.seen.get(behind) else {
            return 0;
        };
        let start = behind
            .checked_sub(1)
            .map_or(0, |before| self.seen[before].1);
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
    /// Takes a look into account; `None` where a replica could not be read. Says what is wrong.
    pub(crate) fn look(&mut self, looks: &[Option<Look>]) -> Option<Finding> {
        self.tracks.resize_with(looks.len(), Track::default);
        for (track, look) in self.tracks.iter_mut().zip(looks) {
            if let Some(look) = look {
                track.note(look);
            }
        }
        let last = looks.iter().flatten().map(|look| look.place).min()?;
        let all = 0..looks.len();
        let hung = all
            .clone()
            .find_map(|r| self.judge(r, looks).filter(|(_, outvoted)| *outvoted));
        let finding = match hung {
            Some((late, _)) => Some(Finding::Hung(late)),
            None => all.clone().find_map(|r| self.doubt(r, looks)),
        };
        for track in &mut self.tracks {
            track.forget(last);
        }
        finding
    }

    /// Whether a replica is late, and whether a majority says so.
    fn judge(&self, replica: usize, looks: &[Option<Look>]) -> Option<(Late, bool)> {
        let look = looks[replica]?;
        let (_, since) = *self.tracks[replica].seen.back()?;
        let cpu_ns = look.cpu_ns.saturating_sub(since);
        let there = looks
            .iter()
            .zip(&self.tracks)
            .filter(|(other, _)| other.is_some_and(|other| other.place > look.place));
        let mut needed: Vec<u64> = there.map(|(_, track)| track.needed(look.place)).collect();
        needed.sort_unstable();
        // The last one of the majority, or of those who are there: one alone may have come too early.
        let majority = looks.len() / 2 + 1;
        let needed_ns = *needed.get(majority - 1).or(needed.last())?;
        let limit_ns = (2 * needed_ns).max(needed_ns + SECOND_NS);
        (cpu_ns > limit_ns).then_some((
            Late {
                replica,
                cpu_ns,
                limit_ns,
            },
            needed.len() >= majority,
        ))
    }

    /// Whether everybody who has not come farther than this replica is late.
    fn doubt(&self, replica: usize, looks: &[Option<Look>]) -> Option<Finding> {
        let place = looks[replica]?.place;
        let behind = (0..looks.len()).filter(|r| looks[*r].is_none_or(|look| look.place <= place));
        let late = behind
            .map(|r| self.judge(r, looks).map(|(late, _)| late))
            .collect::<Option<Vec<Late>>>()?;
        Some(Finding::Doubt { place, late })
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
    fn two(pace: &mut Pace, a: (u64, u64), b: (u64, u64)) -> Option<Finding> {
        looks(pace, &[a, b])
    }

    fn looks(pace: &mut Pace, at: &[(u64, u64)]) -> Option<Finding> {
        let look = |(pid, (place, ms)): (i32, &(u64, u64))| {
            Some(Look {
                pid,
                place: *place,
                cpu_ns: ms * MS,
            })
        };
        pace.look(&(1..).zip(at).map(look).collect::<Vec<_>>())
    }

    fn late(replica: usize, ms: u64, limit: u64) -> Late {
        Late {
            replica,
            cpu_ns: ms * MS,
            limit_ns: limit * MS,
        }
    }

    fn doubt(place: u64, late: &[Late]) -> Option<Finding> {
        Some(Finding::Doubt {
            place,
            late: late.to_vec(),
        })
    }

    #[test]
    fn a_replica_that_is_slower_than_the_other_by_less_than_half_is_left_alone() {
        let mut pace = Pace::default();
        assert_eq!(two(&mut pace, (5, 0), (5, 0)), None);
        assert_eq!(two(&mut pace, (5, 7000), (5, 7000)), None);
        assert_eq!(two(&mut pace, (6, 7050), (5, 7100)), None);
        // At the looks after the first claim as well, at which nobody moves.
        assert_eq!(two(&mut pace, (6, 7050), (5, 8500)), None);
        assert_eq!(two(&mut pace, (6, 7050), (5, 14_000)), None);
        assert_eq!(two(&mut pace, (7, 7060), (6, 14_010)), None);
    }

    #[test]
    fn twice_the_time_of_the_first_arriver_is_late_and_one_against_one_is_a_doubt() {
        let mut pace = Pace::default();
        two(&mut pace, (5, 0), (5, 0));
        two(&mut pace, (6, 7000), (5, 7000));
        assert_eq!(
            two(&mut pace, (6, 7000), (5, 14_001)),
            doubt(5, &[late(1, 14_001, 14_000)])
        );
    }

    #[test]
    fn who_is_late_by_the_time_of_a_majority_hangs() {
        let mut pace = Pace::default();
        looks(&mut pace, &[(5, 0), (5, 0), (5, 0)]);
        looks(&mut pace, &[(6, 2000), (6, 3000), (5, 3000)]);
        // By the second to arrive, not the first.
        assert_eq!(looks(&mut pace, &[(6, 2000), (6, 3000), (5, 5900)]), None);
        let hung = Some(Finding::Hung(late(2, 6001, 6000)));
        assert_eq!(looks(&mut pace, &[(6, 2000), (6, 3000), (5, 6001)]), hung);
    }

    #[test]
    fn who_came_alone_is_in_doubt_when_all_others_are_late() {
        let mut pace = Pace::default();
        looks(&mut pace, &[(5, 0), (5, 0), (5, 0)]);
        looks(&mut pace, &[(5, 100), (6, 100), (5, 100)]);
        assert_eq!(looks(&mut pace, &[(5, 9000), (6, 100), (5, 1000)]), None);
        let found = looks(&mut pace, &[(5, 9000), (6, 100), (5, 1101)]);
        assert_eq!(found, doubt(5, &[late(0, 9000, 1100), late(2, 1101, 1100)]));
        // One of them comes: it was slow, and the third has as long from then on.
        assert_eq!(looks(&mut pace, &[(6, 9000), (6, 100), (5, 9000)]), None);
    }

    #[test]
    fn a_second_is_allowed_whatever_the_first_arriver_needed() {
        let mut pace = Pace::default();
        two(&mut pace, (5, 100), (5, 100));
        assert_eq!(two(&mut pace, (9, 102), (6, 102)), None);
        assert_eq!(two(&mut pace, (9, 102), (6, 1100)), None);
        assert_eq!(
            two(&mut pace, (9, 102), (6, 1105)),
            doubt(6, &[late(1, 1003, 1002)])
        );
    }

    #[test]
    fn the_replica_ahead_is_measured_at_the_event_of_the_one_behind() {
        let mut pace = Pace::default();
        two(&mut pace, (5, 0), (5, 0));
        // Three seconds at event 5, then on at once; the other is still at 5.
        two(&mut pace, (6, 3000), (5, 3000));
        two(&mut pace, (40, 3100), (5, 3100));
        assert_eq!(two(&mut pace, (40, 3100), (5, 5900)), None);
        assert_eq!(
            two(&mut pace, (40, 3100), (5, 6001)),
            doubt(5, &[late(1, 6001, 6000)])
        );
    }

    #[test]
    fn a_new_process_starts_anew_and_nobody_is_late_alone() {
        let mut pace = Pace::default();
        two(&mut pace, (5, 9000), (5, 9000));
        let again = |ms: u64| {
            [
                Some(Look {
                    pid: 1,
                    place: 6,
                    cpu_ns: 9100 * MS,
                }),
                Some(Look {
                    pid: 3,
                    place: 5,
                    cpu_ns: ms * MS,
                }),
            ]
        };
        assert_eq!(pace.look(&again(10)), None);
        assert_eq!(pace.look(&again(900)), None);
        assert_eq!(
            pace.look(&[Some(Look {
                pid: 3,
                place: 5,
                cpu_ns: 90_000 * MS
            })]),
            None
        );
    }
}
