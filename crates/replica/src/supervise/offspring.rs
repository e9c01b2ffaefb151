//! Offspring: which group has made which, and how each has ended, for a leader that is made again: its children are this
//! process's by then, and its program waits for them.
//!
//! Invariants
//!  1. No lock is held while a process is waited for; the thread that hears of its end takes it.
//!  2. A number that the kernel has given to another process is no child's: a process is known by its start as well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast_sys::{child, procfs};

use super::tree::Post;
use super::ward::{self, Ward};
use crate::group::Group;

/// The end of a leader is heard of by two threads, within this.
const SOON: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

#[derive(Debug)]
struct Child {
    parent: Post,
    its: Post,
    /// What its parent knows it by.
    number: i32,
    leader: i32,
    since: Option<u64>,
    /// Its group decides what its leader's end is, as long as it has a thread.
    kept: bool,
    lives: bool,
    /// As this process, and so no parent of its, has seen.
    how: Option<child::Change>,
    ward: Option<Arc<Ward>>,
}

impl Child {
    /// Whether a leader that was made again has to be told of its end.
    fn is_owed(&self) -> bool {
        let ward = self.ward.as_ref();
        if ward.is_some_and(|ward| ward.is_adopted()) {
            return ward.is_some_and(|ward| ward.waits());
        }
        let own = i32::try_from(std::process::id()).ok();
        let is_ours = || procfs::parent(self.leader) == own && self.is_there();
        self.how.is_some() || self.kept && self.lives || is_ours()
    }

    /// Whether its leader has not been waited for.
    fn is_there(&self) -> bool {
        let began = procfs::start_time(self.leader);
        began.is_some() && began == self.since
    }

    fn finish(&self) {
        if let (Some(ward), Some(how), false) = (&self.ward, self.how, self.kept && self.lives) {
            ward.finish(how);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Offspring {
    all: Mutex<Vec<Child>>,
    adopted: AtomicBool,
}

impl Offspring {
    fn all(&self) -> MutexGuard<'_, Vec<Child>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, post: &Post, how: impl FnOnce(&mut Child)) {
        if let Some(one) = self.all().iter_mut().find(|one| one.its.is(post)) {
            how(one);
        }
    }

    pub(crate) fn born(&self, parent: &Post, its: &Post, number: i32) {
        let mut all = self.all();
        let waited_for = |one: &Child| one.ward.as_ref().is_some_and(|ward| ward.waits());
        all.retain(|one| one.number != number && (one.lives || waited_for(one) || one.is_there()));
        all.push(Child {
            parent: parent.clone(),
            its: its.clone(),
            number,
            leader: number,
            since: procfs::start_time(number),
            kept: false,
            lives: true,
            how: None,
            ward: None,
        });
    }

    /// It has ended before it was one that its parent could know.
    pub(crate) fn unborn(&self, post: &Post) {
        self.all().retain(|one| !one.its.is(post));
    }

    pub(crate) fn led_anew(&self, post: &Post, leader: i32) {
        let since = procfs::start_time(leader);
        self.change(post, |one| {
            (one.leader, one.since, one.how) = (leader, since, None);
        });
    }

    pub(crate) fn kept(&self, post: &Post) {
        self.change(post, |one| one.kept = true);
    }

    pub(crate) fn has_ward(&self, post: &Post, ward: &Arc<Ward>) {
        self.change(post, |one| {
            one.kept = true;
            one.ward = Some(Arc::clone(ward));
        });
    }

    /// The number is that of a new child of this process. Who had it before has been waited for by its parent.
    pub(crate) fn reused(&self, pid: i32) {
        self.all()
            .retain(|one| one.lives || one.leader != pid || one.how.is_some());
    }

    /// Its thread is gone.
    pub(crate) fn left(&self, post: &Post) {
        self.change(post, |one| {
            one.lives = false;
            one.finish();
        });
    }

    /// A child of this process has ended.
    pub(crate) fn ended(&self, pid: i32, how: child::Change) {
        if let Some(one) = self.all().iter_mut().find(|one| one.leader == pid) {
            one.how = Some(how);
            one.finish();
        }
    }

    /// Whether a parent was ever made again.
    pub(crate) fn has_adopted(&self) -> bool {
        self.adopted.load(Ordering::Relaxed)
    }

    pub(crate) fn has_heard_of(&self, pid: i32) -> bool {
        let all = self.all();
        all.iter().any(|one| one.leader == pid && one.how.is_some())
    }

    /// What this group is to a parent that was made again.
    pub(crate) fn ward_of(&self, post: &Post) -> Option<Arc<Ward>> {
        let all = self.all();
        let ward = all.iter().find(|one| one.its.is(post))?.ward.clone();
        ward.filter(|ward| ward.is_adopted())
    }

    /// What the children of a group are to it.
    pub(crate) fn wards(&self, post: &Post) -> Vec<Arc<Ward>> {
        let all = self.all();
        let its = all.iter().filter(|one| one.parent.is(post));
        its.filter_map(|one| one.ward.clone()).collect()
    }

    /// A group whose leader could have been made again is over; this process has heard how, or is about to.
    pub(crate) fn is_over(&self, post: &Post) {
        let since = Instant::now();
        loop {
            let (mut known, late) = (true, since.elapsed() > SOON);
            self.change(post, |one| {
                if late {
                    one.how
                        .get_or_insert(child::Change::Signaled(libc::SIGKILL));
                }
                known = one.how.is_some();
                one.lives &= !known;
                one.finish();
            });
            if known {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// `parent` leads a group whose last leader was killed: it gets the children of that one. `false`: there is no room for all
    /// of them.
    pub(crate) fn adopted_by(&self, post: &Post, group: &Arc<Group>, parent: i32) -> bool {
        self.adopted.store(true, Ordering::Relaxed);
        let (mut wards, mut all) = (Vec::new(), self.all());
        for one in all.iter_mut().filter(|one| one.parent.is(post)) {
            if !one.is_owed() {
                continue;
            }
            let known = one.ward.take().filter(|ward| ward.waits());
            if known.as_ref().is_some_and(|ward| ward.is_left()) {
                return false;
            }
            let new = || Ward::of_orphan(group, parent, one.number).map(Arc::new);
            let Some(ward) = known.or_else(new) else {
                return false;
            };
            wards.push((Arc::clone(&ward), one.leader));
            one.ward = Some(ward);
            if let Some(its) = one.its.group() {
                ward::says_parent(&its, group, parent);
            }
        }
        drop(all);
        for (ward, leader) in wards {
            ward.adopt(parent, leader);
        }
        self.all().iter().for_each(Child::finish);
        true
    }
}
