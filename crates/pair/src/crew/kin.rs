//! Kin: all processes of a program, for a site that joins: who is whose child, and how they stand and go on together.
//!
//! ```text
//!   survivor: all stand ──► kin: from the root down ──► relays have come as far ──► each is handed on ──► each goes on, its log anew
//!   joiner:   each is made by its parent ──► adopt: it lives here as one that its parent has forked
//! ```
//!
//! Invariant: while a log begins anew nobody relays it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_replica::site::{NotGiven, Place, Site};
use steadfast_sys::{child, procfs};

use super::{Crew, SETTLES, Strand, locked};
use crate::control::Handed;
use crate::error::PairError;
use crate::hold::Lines;

/// For processes that are nobody to come to a stop: a fork in progress copies page tables.
const STOPS: Duration = Duration::from_secs(2);

/// Why no site can join a program now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotNow {
    #[error("process {0} of the program has become another one (execve)")]
    Another(u32),
    #[error("process {0} of the program has a child that has ended, and nobody has waited for it")]
    Zombie(u32),
    #[error("{0}")]
    UnderWay(String),
    #[error("{0}")]
    Other(String),
}

impl NotNow {
    /// Such processes come and go.
    pub(crate) fn passes(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

impl From<NotGiven> for NotNow {
    fn from(why: NotGiven) -> Self {
        match why {
            NotGiven::UnderWay(why) => Self::UnderWay(why),
            NotGiven::Never(why) => Self::Other(why),
        }
    }
}

/// A process that stands.
#[derive(Debug)]
pub(crate) struct Kin {
    pub(crate) site: Arc<Site>,
    /// By the strand that it began with.
    pub(crate) table: u64,
    /// In the list of all; nothing: it has ended, or this is the first one.
    pub(crate) parent: Option<usize>,
}

/// A process goes on with a log that begins anew there. One that somebody has killed while it stood has such a log as well: its end
/// is told behind that.
pub(crate) fn go_on(site: &Site) -> Result<Place, String> {
    let ended = || procfs::has_ended(site.pid());
    if ended() {
        return Ok(site.begin_anew());
    }
    match site.resume() {
        Err(_) if ended() => Ok(site.begin_anew()),
        other => other,
    }
}

/// One that a joiner has made.
#[derive(Debug)]
pub(crate) struct Adopted {
    pub(crate) site: Arc<Site>,
    pub(crate) table: u64,
    pub(crate) place: Place,
}

impl Crew {
    /// Whether a process is one that no site can be given, for as long as it is there.
    pub(crate) fn may_be_joined(&self) -> Result<(), NotNow> {
        for strand in self.known() {
            let (site, is_first) = (&strand.site, Arc::ptr_eq(&strand, &self.first));
            if site.has_become() && !is_first {
                return Err(NotNow::Another(site.program_number()));
            }
            if procfs::has_zombies(site.pid()) {
                return Err(NotNow::Zombie(site.program_number()));
            }
        }
        Ok(())
    }

    /// All stand: from the first one down, each behind its parent.
    pub(crate) fn kin(&self) -> Result<Vec<Kin>, NotNow> {
        self.may_be_joined()?;
        let mut left = self.others_standing();
        let mut all = vec![Kin {
            site: Arc::clone(&self.first.site),
            table: self.first.table,
            parent: None,
        }];
        let own = i32::try_from(std::process::id()).expect("a number");
        while !left.is_empty() {
            // This one has adopted those whose parent has ended.
            let parent_of = |strand: &Strand| {
                let parent = procfs::parent(strand.site.pid())?;
                let known = all.iter().position(|kin| kin.site.pid() == parent);
                known.map(Some).or((parent == own).then_some(None))
            };
            let next = left.iter().enumerate();
            let next = next
                .filter_map(|(index, strand)| Some((index, parent_of(strand)?)))
                .next();
            let Some((index, parent)) = next else {
                return Err(NotNow::Other(format!(
                    "whose child process {} of the program is, the kernel does not say",
                    left[0].site.program_number()
                )));
            };
            let strand = left.remove(index);
            all.push(Kin {
                site: Arc::clone(&strand.site),
                table: strand.table,
                parent,
            });
        }
        Ok(all)
    }

    /// All stand: nobody relays what they have done. Or not in time, and why.
    pub(crate) fn rests(&self) -> Result<(), String> {
        let all = self.others_standing();
        let deadline = Instant::now() + SETTLES;
        let settles = |holds: &dyn Fn(&Strand) -> bool| {
            while !all.iter().all(|strand| holds(strand)) {
                if Instant::now() > deadline {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            true
        };
        let order = Ordering::SeqCst;
        let come = settles(&|one| one.relayed.load(order) >= one.stands.load(order));
        self.hold();
        for strand in &all {
            strand.rests.store(false, order);
        }
        // One that waits for an event would answer the first of another log.
        let rest = come && settles(&|one| one.rests.load(order) || locked(&one.over).is_some());
        if !rest {
            self.go_alone();
            return Err("what the program has done is not written down in time".into());
        }
        Ok(())
    }

    /// After [`Self::rests`]: the others go on, each with a log that begins anew; `joined`: for another site.
    pub(crate) fn go_on_anew(&self, joined: bool) -> Result<(), PairError> {
        for strand in self.others_standing() {
            *locked(&strand.begins) = Some(joined);
        }
        self.stand_no_more();
        let begin = || {
            self.others_standing()
                .iter()
                .any(|strand| locked(&strand.begins).is_some())
        };
        let deadline = Instant::now() + SETTLES;
        while begin() {
            for strand in self.others_standing() {
                // Nobody watches it any more.
                if locked(&strand.over).is_some() {
                    self.begins_anew(&strand).map_err(PairError::Bug)?;
                }
            }
            if Instant::now() > deadline {
                return Err(PairError::Bug(
                    "after a pause a process does not go on".into(),
                ));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        if !joined {
            self.go_alone();
        }
        Ok(())
    }

    /// A process that goes on: where its log is, which has begun anew there. Nothing: it has not.
    pub(super) fn begins_anew(&self, strand: &Strand) -> Result<bool, String> {
        let Some(joined) = *locked(&strand.begins) else {
            return Ok(false);
        };
        let place = go_on(&strand.site)?;
        *locked(&strand.anew) = Some((place, joined));
        *locked(&strand.begins) = None;
        Ok(true)
    }

    /// Joiner: its own part of a process beside the first one, which is what the survivor's is.
    pub(crate) fn adopt(self: &Arc<Self>, adopted: Adopted) {
        let Adopted { site, table, place } = adopted;
        self.alive.fetch_add(1, Ordering::SeqCst);
        self.yet_to_lead.fetch_add(1, Ordering::SeqCst);
        let strand = Strand::new(site, table, self.spins_after);
        strand.begin_at(place);
        let crew = Arc::clone(self);
        let life = move || {
            let last = crew.live(&strand, Some(place));
            crew.has_lived(table, last);
        };
        if std::thread::Builder::new().spawn(life).is_err() {
            self.alive.fetch_sub(1, Ordering::SeqCst);
            self.stop(PairError::Bug(
                "there can be no thread for a process".into(),
            ));
        }
    }

    /// By the strand that each process is at, what its clients have sent and it has not read.
    pub(crate) fn unread_of(&self, lines: &Lines) -> Handed {
        let unread = |strand: Arc<Strand>| (strand.site.strand(), lines.unread(strand.table));
        self.known().into_iter().map(unread).collect()
    }
}

/// Ends the first process and all that have been made for it, also those that came too late to be known here. While they are stopped
/// none of them makes another one.
pub(crate) fn end_all(first: i32) {
    let deadline = Instant::now() + STOPS;
    let mut all = vec![first];
    loop {
        for pid in &all {
            child::kill(*pid, libc::SIGSTOP);
        }
        let stand = |pid: &i32| procfs::is_stopped(*pid) || procfs::has_ended(*pid);
        let still = all.iter().all(stand);
        let mut found = vec![first];
        let mut next = 0;
        while let Some(pid) = found.get(next).copied() {
            found.extend(procfs::children(pid));
            next += 1;
        }
        if (still && found == all) || Instant::now() > deadline {
            break;
        }
        all = found;
        std::thread::sleep(Duration::from_millis(1));
    }
    for pid in all.iter().skip(1) {
        child::kill(*pid, libc::SIGKILL);
    }
    child::end(first);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_process_has_made_end_with_it() {
        let mut shell = std::process::Command::new("/bin/sh");
        let shell = shell.args(["-c", "(sleep 600; :) & sleep 600; :"]).spawn();
        let first = i32::try_from(shell.expect("a shell").id()).expect("a number");
        let below = |pid: i32| procfs::children(pid);
        let deadline = Instant::now() + Duration::from_secs(10);
        let all = loop {
            let own = below(first);
            let theirs: Vec<i32> = own.iter().copied().flat_map(below).collect();
            if own.len() == 2 && theirs.len() == 1 {
                break [own, theirs].concat();
            }
            assert!(Instant::now() < deadline, "{own:?} {theirs:?}");
            std::thread::sleep(Duration::from_millis(1));
        };
        end_all(first);
        while !all.iter().all(|pid| procfs::has_ended(*pid)) {
            assert!(Instant::now() < deadline, "{all:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
