//! Ward: a child whose leader can be made again while its parent lives and waits for it (crates/agent, ward.c).
//!
//! ```text
//!   a child of some age, whose parent is a group of the tree ──► a keeper, and an entry in the parent's control block
//!   its leader is killed ──► the parent's agent leaves a proxy of the same number ──► recovery.rs
//!   its new leader ends  ──► so does the proxy, as its parent then sees
//! ```
//!
//! Only where a process may choose its number (CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN): the proxy needs that of the leader.
//!
//! Not covered: a program whose own will it is that this child ends (SIGKILL by a process of the tree): it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_integrity::plan::StopReason;
use steadfast_sys::{child, procfs};

use crate::abi::{self, end, ward};
use crate::group::{Group, at};
use crate::supervise::recovery::NUDGE;
use crate::supervise::{Supervisor, has_sys_admin};

/// The parent's agent looks at the launcher's nudge. One that is stopped, or has become another program, does not.
const LOOKS: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(2);

/// An entry in the control block of a parent.
#[derive(Debug)]
pub(crate) struct Ward {
    group: Arc<Group>,
    parent: i32,
    /// The leader's number, the proxy's afterwards.
    pid: i32,
    at: usize,
}

macro_rules! of {
    ($ward:expr, $field:ident) => {
        $ward.at + std::mem::offset_of!(abi::Ward, $field)
    };
}

impl Ward {
    fn claim(group: Arc<Group>, parent: i32, pid: i32) -> Option<Self> {
        let state = std::mem::offset_of!(abi::Ward, state);
        let at = (0..abi::WARDS_MAX)
            .map(|index| at!(ward) + index * size_of::<abi::Ward>())
            .find(|at| {
                let word = group.memory.u32(at + state);
                word.compare_exchange(
                    ward::FREE,
                    ward::CLAIMED,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
            })?;
        let this = Self {
            group,
            parent,
            pid,
            at,
        };
        let number = pid.cast_unsigned();
        this.group.set32(of!(this, pid), number);
        this.group.set32(of!(this, pid_inv), !number);
        this.lead(0);
        this.group.set32(of!(this, state), ward::KEPT);
        Some(this)
    }

    fn state(&self) -> u32 {
        self.group.get32(of!(self, state))
    }

    /// From here on the parent hears of its leader's end, if it has not ended before.
    pub(crate) fn let_go(&self) {
        let word = self.group.memory.u32(of!(self, state));
        let _ = word.compare_exchange(ward::KEPT, ward::FREE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whom the proxy passes signals on to.
    fn lead(&self, pid: i32) {
        self.group.set32(of!(self, leader), pid.cast_unsigned());
        self.group
            .set32(of!(self, leader_inv), !pid.cast_unsigned());
    }

    /// Has the proxy end as the leader has.
    fn end(&self, how: child::Change) {
        self.let_go();
        if self.state() == ward::PROXY {
            let status = match how {
                child::Change::Exited(status) => (status & 0xff) << 8,
                child::Change::Signaled(signal) => signal & 0x7f,
                _ => libc::SIGKILL,
            };
            self.group.set32(of!(self, status), status.cast_unsigned());
            self.group.set32(of!(self, state), ward::ENDED);
            child::kill(self.pid, libc::SIGURG);
            // It reads its entry once more.
            let since = Instant::now();
            while !procfs::has_ended(self.pid) && since.elapsed() < LOOKS {
                std::thread::sleep(LOOK);
            }
        }
        if self.state() != ward::FREE {
            self.group.set32(of!(self, state), ward::FREE);
        }
    }
}

impl Supervisor<'_> {
    /// The group whose leader has this one's leader as a child, where that can have a proxy.
    fn parents_group(&self) -> Option<(i32, Arc<Group>)> {
        let parent = procfs::parent(self.replicas[0].pid)?;
        let group = self.hearing.tree.led_by_process(parent)?;
        has_sys_admin(&parent.to_string()).then_some((parent, group))
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
            .and_then(|(parent, group)| Ward::claim(group, parent, pid));
        match ward {
            Some(ward) => {
                let ward = Arc::new(ward);
                self.hearing.tree.has_ward(self.hearing.post(), &ward);
                self.ward = Some(ward);
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
        while !agreed && !self.is_condemned() && since.elapsed() < LOOKS {
            match ward.state() {
                ward::KEPT if procfs::parent(pid) == own => return, // heard of as any child
                ward::KEPT => child::kill(ward.parent, NUDGE),
                ward::PROXY => {
                    let parent = ward.parent.cast_unsigned();
                    self.group.set32(at!(parent), parent);
                    self.group.set32(at!(parent_inv), !parent);
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

    /// A proxy passes signals on to the new leader.
    pub(crate) fn leads_a_ward(&self) {
        if let Some(ward) = &self.ward {
            ward.lead(self.replicas[0].pid);
        }
    }

    /// Somebody has killed the proxy, and so the process that the new leader is.
    pub(crate) fn look_for_the_proxy(&mut self) {
        let Some(ward) = &self.ward else { return };
        let is_there = || child::exists(ward.pid) && !procfs::has_ended(ward.pid);
        let lost = match ward.state() {
            ward::PROXY => !is_there(),
            ward::GONE => self.promotions > 0,
            _ => false,
        };
        if lost && !self.forsaken {
            self.forsaken = true;
            self.signal_replica(0, libc::SIGKILL);
        }
    }

    /// This child has ended, or is another program from here on.
    pub(crate) fn is_no_ward_any_more(&mut self) {
        if let Some(ward) = self.ward.take() {
            let replaced = self.promotions > 0;
            let how = self.leader_end.filter(|_| replaced);
            ward.end(how.unwrap_or(child::Change::Signaled(libc::SIGKILL)));
        }
    }
}
