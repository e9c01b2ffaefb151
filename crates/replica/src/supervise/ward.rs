//! Ward: a child whose leader can be made again while its parent lives and waits for it (crates/agent, ward.c).
//!
//! ```text
//!   a child of some age, whose parent is a group of the tree ──► a keeper, and an entry in the parent's control block
//!   its leader is killed ──► the parent's agent leaves a proxy of the same number ──► recovery.rs
//!   its new leader ends  ──► so does the proxy, as its parent then sees
//! ```
//!
//! An ordinary user's proxy cannot have that number (it takes CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN). The parent's agent says it then,
//! as below.
//!
//! The other way round, of a parent that was made again:
//!
//! ```text
//!   its leader is killed ──► its children are this process's
//!                        ──► an entry for each in its control block, to be adopted ──► a proxy for each under the new leader
//!   a child ends         ──► so does its proxy, whoever of the two threads hears of it
//! ```
//!
//! Not covered: a program whose own will it is that this child ends (SIGKILL by a process of the tree): it ends.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use steadfast_contract::plan::StopReason;
use steadfast_sys::{child, procfs};

use crate::abi::{self, end, ward};
use crate::group::{Group, at};
use crate::supervise::recovery::NUDGE;
use crate::supervise::{Supervisor, has_sys_admin, tree};

/// The parent's agent looks at the launcher's nudge. One that is stopped, or has become another program, does not.
const LOOKS: Duration = Duration::from_secs(2);
/// ... and one that waits for a processor may come later.
const LOOKS_LATE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(2);

/// An entry in the control block of a parent.
#[derive(Debug)]
pub(crate) struct Ward {
    group: Arc<Group>,
    parent: AtomicI32,
    /// The leader's number, and the proxy's afterwards if that is no other leader's.
    pid: i32,
    at: usize,
    /// This process is the parent of the child's leader, and sees its end.
    adopted: AtomicBool,
    over: AtomicBool,
    /// Since when the proxy has been made, or has been to end.
    since: Mutex<Instant>,
    /// Its parent has become another program since.
    left: AtomicBool,
}

macro_rules! of {
    ($ward:expr, $field:ident) => {
        $ward.at + std::mem::offset_of!(abi::Ward, $field)
    };
}

impl Ward {
    /// An entry that is nobody's; the child of an adopted one may have ended where nobody waits for it.
    fn claim(group: Arc<Group>, parent: i32, pid: i32) -> Option<Self> {
        let word = |at: usize| {
            let state = std::mem::offset_of!(abi::Ward, state);
            group.memory.u32(at + state)
        };
        let take = |at: &usize, from: u32| {
            let taken = word(*at).compare_exchange(
                from,
                ward::CLAIMED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            taken.is_ok()
        };
        let forgotten = |at: &usize| {
            let field = |offset| group.get32(at + offset);
            let proxy = field(std::mem::offset_of!(abi::Ward, proxy)).cast_signed();
            field(std::mem::offset_of!(abi::Ward, over)) != 0 && !child::exists(proxy)
        };
        let mut all = (0..abi::WARDS_MAX).map(|index| at!(ward) + index * size_of::<abi::Ward>());
        let at = all.clone().find(|at| take(at, ward::FREE)).or_else(|| {
            all.find(|at| {
                word(*at).load(Ordering::Acquire) == ward::ADOPTED
                    && forgotten(at)
                    && take(at, ward::ADOPTED)
            })
        })?;
        let this = Self {
            group,
            parent: parent.into(),
            pid,
            at,
            adopted: AtomicBool::new(false),
            over: AtomicBool::new(false),
            since: Mutex::new(Instant::now()),
            left: AtomicBool::new(false),
        };
        let number = pid.cast_unsigned();
        this.group.set32(of!(this, pid), number);
        this.group.set32(of!(this, pid_inv), !number);
        this.group.set32(of!(this, over), 0);
        this.group.set32(of!(this, looked), 0);
        this.group.set32(of!(this, any_number), 0);
        this.is_proxied_by(0);
        this.lead(0);
        Some(this)
    }

    /// A child whose leader has a keeper. Its parent may have died meanwhile.
    fn keep(group: Arc<Group>, parent: i32, pid: i32) -> Option<Self> {
        let this = Self::claim(group, parent, pid)?;
        let may_choose = has_sys_admin(&parent.to_string());
        this.group
            .set32(of!(this, any_number), (!may_choose).into());
        this.group.set32(of!(this, state), ward::KEPT);
        if procfs::parent(pid) == Some(parent) {
            return Some(this);
        }
        this.let_go();
        None
    }

    /// A child whose parent's leader was killed, and is made again: an entry for the new one.
    pub(crate) fn of_orphan(group: &Arc<Group>, parent: i32, pid: i32) -> Option<Self> {
        Self::claim(Arc::clone(group), parent, pid)
    }

    /// Its parent has a new leader, `parent`, which makes a proxy in the name of `leader` before it runs.
    pub(crate) fn adopt(&self, parent: i32, leader: i32) {
        self.parent.store(parent, Ordering::SeqCst);
        self.adopted.store(true, Ordering::SeqCst);
        let last = match self.state() {
            ward::PROXY => self.pid,
            ward::ADOPTED => self.proxy(),
            _ => 0,
        };
        // First, so that its end is nobody's deed (`look_for_the_proxy`).
        self.is_proxied_by(0);
        if last > 1 && child::is_child(last) {
            child::kill(last, libc::SIGKILL);
            let since = Instant::now();
            while child::exists(last) && since.elapsed() < LOOKS {
                std::thread::sleep(LOOK);
            }
        }
        self.begins();
        self.lead(leader);
        self.group.set32(of!(self, state), ward::ADOPT);
    }

    pub(crate) fn is_adopted(&self) -> bool {
        self.adopted.load(Ordering::SeqCst)
    }

    /// Another child has the entry once this one is let go.
    fn is_its_entry(&self) -> bool {
        let its = self.group.meant(of!(self, pid), of!(self, pid_inv));
        its == Some(self.pid.cast_unsigned())
    }

    /// Whether its parent has yet to be told of its end.
    pub(crate) fn waits(&self) -> bool {
        self.is_its_entry()
            && matches!(
                self.state(),
                ward::KEPT | ward::PROXY | ward::ADOPT | ward::ADOPTED
            )
    }

    /// Its parent is about to become another program, which knows an adopted child by its number, too. What is said to the
    /// proxy stands where that looks.
    pub(crate) fn goes_along(&self, group: &Group) {
        if !self.is_adopted() || self.left.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut entry = [0; size_of::<abi::Ward>()];
        self.group.memory.read(self.at, &mut entry);
        group.memory.write(self.at, &entry);
        group.set32(of!(self, over), 1);
    }

    /// Whether that is so, and another leader could not be told of it.
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    fn proxy(&self) -> i32 {
        let said = self.group.meant(of!(self, proxy), of!(self, proxy_inv));
        said.unwrap_or(0).cast_signed()
    }

    fn is_proxied_by(&self, pid: i32) {
        self.group.set32(of!(self, proxy), pid.cast_unsigned());
        self.group.set32(of!(self, proxy_inv), !pid.cast_unsigned());
    }

    /// An adopted child has ended. Its proxy does, or will when it is made; the parent's agent frees the entry.
    pub(crate) fn finish(&self, how: child::Change) {
        if !self.is_adopted() || self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        self.begins();
        if !self.waits() {
            let word = self.group.memory.u32(of!(self, state));
            let _ =
                word.compare_exchange(ward::GONE, ward::FREE, Ordering::AcqRel, Ordering::Relaxed);
            return;
        }
        self.group.set32(of!(self, status), status(how));
        self.group.set32(of!(self, over), 1);
        if self.proxy() > 1 {
            child::kill(self.proxy(), libc::SIGURG);
        }
    }

    fn state(&self) -> u32 {
        self.group.get32(of!(self, state))
    }

    fn begins(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Somebody has killed the proxy, and so the process that the leader is.
    fn has_lost_its_proxy(&self) -> bool {
        let is_there = |pid: i32| child::exists(pid) && !procfs::has_ended(pid);
        match self.state() {
            // One of a parent that is being made again is ended by `adopt`.
            ward::PROXY => !is_there(self.pid) && !self.is_adopted(),
            ward::ADOPTED if !self.over.load(Ordering::SeqCst) => {
                let proxy = self.proxy();
                proxy > 1 && !is_there(proxy) && self.proxy() == proxy
            }
            _ => false,
        }
    }

    /// Whether the proxy stays though the child has ended: its parent would wait for ever. One that is stopped hears of it when
    /// it is continued.
    fn has_a_proxy_that_stays(&self) -> bool {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let proxy = self.proxy();
        self.over.load(Ordering::SeqCst)
            && is_late(since, proxy)
            && self.state() == ward::ADOPTED
            && proxy > 1
            && procfs::parent(proxy) == Some(self.parent.load(Ordering::SeqCst))
            && !procfs::has_ended(proxy)
            && !procfs::is_stopped(proxy)
    }

    /// From here on the parent hears of its leader's end, if it has not ended before.
    pub(crate) fn let_go(&self) {
        let word = self.group.memory.u32(of!(self, state));
        let _ = word.compare_exchange(ward::KEPT, ward::FREE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// This leader has ended; its parent may reap it.
    pub(crate) fn was_looked_at(&self, leader: i32) {
        if leader == self.pid && self.is_its_entry() {
            self.group.set32(of!(self, looked), 1);
        }
    }

    /// Whom the proxy passes signals on to; 0: they wait for one.
    pub(crate) fn lead(&self, pid: i32) {
        self.group.set32(of!(self, leader), pid.cast_unsigned());
        self.group
            .set32(of!(self, leader_inv), !pid.cast_unsigned());
    }

    /// Has the proxy end as the leader has; whether its parent will be told so.
    fn end(&self, how: child::Change) -> bool {
        if self.is_adopted() {
            self.finish(how);
            return true;
        }
        let mut hears = true;
        self.let_go();
        if self.state() == ward::PROXY {
            self.group.set32(of!(self, status), status(how));
            self.group.set32(of!(self, state), ward::ENDED);
            child::kill(self.pid, libc::SIGURG);
            // It reads its entry once more.
            let since = Instant::now();
            while !procfs::has_ended(self.pid) && !is_late(since, self.pid) {
                std::thread::sleep(LOOK);
            }
            // One that is stopped hears it when it is continued.
            hears = procfs::has_ended(self.pid) || procfs::is_stopped(self.pid);
        }
        if self.state() != ward::FREE {
            self.group.set32(of!(self, state), ward::FREE);
        }
        hears
    }
}

/// Whether a process has had its time to answer, `since` it was asked.
fn is_late(since: Instant, pid: i32) -> bool {
    let waited = since.elapsed();
    waited > LOOKS && (waited > LOOKS_LATE || !procfs::runs(pid))
}

/// As wait(2) tells it.
fn status(how: child::Change) -> u32 {
    let status = match how {
        child::Change::Exited(status) => (status & 0xff) << 8,
        child::Change::Signaled(signal) => signal & 0x7f,
        _ => libc::SIGKILL,
    };
    status.cast_unsigned()
}

impl Supervisor<'_> {
    /// The group whose leader has this one's leader as a child.
    fn parents_group(&self) -> Option<(i32, Arc<Group>)> {
        let parent = procfs::parent(self.replicas[0].pid)?;
        Some((parent, self.hearing.tree.led_by_process(parent)?))
    }

    /// Whether the parent of this child, which is not this process, can have a proxy for it.
    pub(crate) fn can_be_a_ward(&self) -> bool {
        self.ward.is_none() && self.parents_group().is_some()
    }

    /// There is a keeper now. Where another process is the parent of this child that one has to know; else there is none
    /// again.
    pub(crate) fn becomes_a_ward(&mut self) {
        let own = i32::try_from(std::process::id()).ok();
        let pid = self.replicas[0].pid;
        if !self.is_child() || procfs::parent(pid) == own {
            return;
        }
        let ward = self
            .parents_group()
            .and_then(|(parent, group)| Ward::keep(group, parent, pid));
        match ward {
            Some(ward) => {
                let ward = Arc::new(ward);
                self.hearing.tree.has_ward(self.hearing.post(), &ward);
                self.ward = Some(ward);
                if procfs::has_ended(pid) {
                    let tree = &self.hearing.tree;
                    tree.looks_at_the_end(self.hearing.post(), pid);
                }
            }
            None => {
                let keeper = std::mem::take(&mut self.keeper);
                self.group.set_pid(abi::KEEPER, 0);
                self.group.set32(at!(slot abi::KEEPER, phase), 0);
                self.kill_child(keeper);
            }
        }
    }

    /// The leader of a child that can be made again has ended, and its parent has, or will be, told how.
    pub(crate) fn awaited_leader_ended(&mut self, pid: i32) {
        let (Some(ward), false) = (self.ward.clone(), self.gone.contains_key(&pid)) else {
            return;
        };
        let own = i32::try_from(std::process::id()).ok();
        let since = Instant::now();
        let agreed = matches!(self.group.end(), end::EXITED | end::SIGNALED);
        while !agreed && !self.is_condemned() && !is_late(since, ward.parent.load(Ordering::SeqCst))
        {
            // Heard of as any child, or to be heard.
            let is_ours =
                procfs::parent(pid) == own || self.hearing.tree.offspring.has_heard_of(pid);
            let parent = ward.parent.load(Ordering::SeqCst);
            match ward.state() {
                _ if is_ours || ward.is_adopted() => return,
                ward::KEPT => child::kill(parent, NUDGE),
                ward::PROXY | ward::ADOPTED => {
                    if ward.state() == ward::ADOPTED {
                        ward.adopted.store(true, Ordering::SeqCst);
                    }
                    says_parent(&self.group, &ward.group, parent);
                    return self.child_changed(pid, child::Change::Signaled(libc::SIGKILL));
                }
                ward::FAILED => {
                    self.stop = Some(StopReason::Unrecoverable);
                    break;
                }
                _ => break,
            }
            std::thread::sleep(LOOK);
        }
        self.forsaken = true;
        self.child_changed(pid, child::Change::Exited(0));
    }

    /// This group's leader was made again: the children of the last one have nobody but this process.
    pub(crate) fn adopts_children(&self) -> bool {
        let (parent, post) = (self.replicas[0].pid, self.hearing.post());
        let offspring = &self.hearing.tree.offspring;
        offspring.adopted_by(post, &self.group, parent)
    }

    pub(super) fn takes_children_along(&self, group: &Group) {
        let wards = self.hearing.tree.offspring.wards(self.hearing.post());
        wards.iter().for_each(|ward| ward.goes_along(group));
    }

    /// Whether its parent was made again.
    pub(crate) fn is_adopted(&mut self) -> bool {
        self.is_somebodys();
        self.ward.as_ref().is_some_and(|ward| ward.is_adopted())
    }

    /// A proxy passes signals on to the new leader.
    pub(crate) fn leads_a_ward(&mut self) {
        self.is_somebodys();
        if let Some(ward) = &self.ward {
            ward.lead(self.replicas[0].pid);
        }
    }

    /// Its parent may have been made again, and has a ward for it.
    fn is_somebodys(&mut self) {
        if self.ward.is_none() && self.is_child() {
            self.ward = self.hearing.tree.offspring.ward_of(self.hearing.post());
        }
    }

    /// This child ends where its proxy was killed, or its parent has been told of its end.
    pub(crate) fn look_for_the_proxy(&mut self) {
        if self.keeper != 0 || self.hearing.tree.offspring.has_adopted() {
            self.is_somebodys();
        }
        let Some(ward) = &self.ward else { return };
        let gone = ward.state() == ward::GONE && (self.promotions > 0 || ward.is_adopted());
        if (gone || ward.has_lost_its_proxy()) && !self.forsaken {
            self.forsaken = true;
            self.signal_replica(0, libc::SIGKILL);
        }
    }

    /// The proxies of this group's children, where its leader was made again.
    pub(crate) fn look_for_proxies_that_stay(&mut self) {
        if self.promotions == 0 {
            return;
        }
        let wards = self.hearing.tree.offspring.wards(self.hearing.post());
        if wards.iter().any(|ward| ward.has_a_proxy_that_stays()) {
            self.stop.get_or_insert(StopReason::Unrecoverable);
        }
    }

    /// This child has ended, or is another program from here on.
    pub(crate) fn is_no_ward_any_more(&mut self) {
        self.is_somebodys();
        if let Some(ward) = self.ward.take() {
            if ward.is_adopted() {
                return self.hearing.tree.offspring.is_over(self.hearing.post());
            }
            let replaced = self.promotions > 0;
            let how = self.leader_end.filter(|_| replaced);
            if !ward.end(how.unwrap_or(child::Change::Signaled(libc::SIGKILL))) {
                // A fault has struck it: its parent would wait for ever.
                let stopped = tree::Failure::Stopped(StopReason::Unrecoverable);
                self.hearing.tree.fail(stopped);
                child::kill(ward.pid, libc::SIGKILL);
            }
        }
    }
}

/// What a group's program is told of its parent from here on, as long as `process` leads that.
pub(super) fn says_parent(group: &Group, parent: &Group, process: i32) {
    let number = parent.get32(at!(leader_pid));
    group.set32(at!(parent_process), process.cast_unsigned());
    group.set32(at!(parent), number);
    group.set32(at!(parent_inv), !number);
}
