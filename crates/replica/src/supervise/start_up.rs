//! Start: replicas, keeper and job control, from shared memory that nobody uses yet to a group that stands.
//!
//! ```text
//!   start ──► stand ──► ready ──► go
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_contract::event::{EventSink, ReplicaStart, Role};
use steadfast_contract::plan::Plan;
use steadfast_fault::ids::CoreId;
use steadfast_sys::memory::Remote;
use steadfast_sys::{child, cpu, procfs};

use super::{Hearing, ReplicaInfo, Supervisor, control_block, has_sys_admin, io_step};
use crate::abi::{end, option, phase};
use crate::group::{Group, at, core_id, id};
use crate::{LaunchError, Step, abi, job_control, launch};

/// A replica that is to stand has to get through two clones. What it and this process wait for a processor is not counted.
const START_LIMIT: Duration = Duration::from_secs(10);

impl<'a> Supervisor<'a> {
    /// `more`: options that no flag sets.
    pub(crate) fn start(
        plan: &'a Plan,
        hearing: &'a Hearing,
        equal_pids: bool,
        more: u32,
        sink: &'a mut dyn EventSink,
    ) -> Result<Self, LaunchError> {
        let started = Instant::now();
        let cores = launch::cores(plan)?;
        io_step(Step::Memory, hearing.tree.make_visible(hearing.front()))?;
        let group = control_block(plan, &cores, equal_pids, has_sys_admin("self"), more)?;
        if let Ok(own) = i32::try_from(std::process::id()) {
            hearing.tree.gives_turns(&group, own);
        }
        let job_control = io_step(Step::Fork, job_control::post(&group, hearing.front()))?;
        let inherited = launch::Inherited {
            mask: hearing.mask,
            cpu: cores.first().copied(),
            group_of: hearing.front(),
        };
        let launched = launch::launch(plan, &group.memory, &inherited);
        let launched = launched.inspect_err(|_| child::kill(job_control, libc::SIGKILL))?;
        let group = Arc::new(group);
        hearing.tree.accounts.open(launched.pid);
        let heard = hearing.listen(&group).and_then(|()| hearing.attend());
        if heard.is_err() {
            child::end(launched.pid);
            child::end(job_control);
        }
        io_step(Step::Thread, heard)?;
        let mut this = Self::new(plan, hearing, sink, started, group, launched.modules, cores);
        this.job_control = job_control;
        hearing.claim(launched.pid);
        hearing.claim(job_control);
        this.replicas[0] = ReplicaInfo {
            child: launched.pid,
            pid: launched.pid,
            ..ReplicaInfo::default()
        };
        let program = launched.program;
        this.ready(launched.fixed)?;
        this.setup = this.started.elapsed();
        this.announce(program);
        this.go();
        Ok(this)
    }

    /// From a leader at its first instruction to a group that stands there.
    pub(crate) fn ready(&mut self, fixed: u64) -> Result<(), LaunchError> {
        let stood = self.stand();
        if stood.is_err() {
            self.kill_all();
            stood?;
        }
        self.agent_fixed = vec![0; usize::try_from(fixed).expect("a small image")];
        self.remember_constants();
        // A process that has become another program keeps its row, and what is counted there.
        if self.row.is_none() {
            self.row = self.hearing.tree.row();
        }
        Ok(())
    }

    pub(crate) fn go(&self) {
        self.group.set32(at!(go), 1);
        steadfast_sys::futex::wake(self.group.memory.u32(at!(go)));
    }

    /// Waits for all replicas to stand before the first instruction, and places them.
    pub(super) fn stand(&mut self) -> Result<(), LaunchError> {
        let deadline = Instant::now() + START_LIMIT;
        let delayed_before = procfs::own_delayed_ns().unwrap_or(0);
        loop {
            let seen = self.group.bell();
            self.take_news();
            self.setup_failed()?;
            if self.is_child() {
                match self.leader_end {
                    None if !self.hearing.tree.is_ending() => {}
                    // Killed, or heard of by its descriptor, which does not say how: its parent is told.
                    None
                    | Some(child::Change::Signaled(libc::SIGKILL) | child::Change::Exited(0)) => {
                        return Err(LaunchError::Gone);
                    }
                    Some(change) => {
                        return Err(LaunchError::Early {
                            replica: 0,
                            how: format!("{change:?}"),
                        });
                    }
                }
            }
            if (0..self.replicas.len()).all(|r| self.group.phase(r) == phase::RUNNING) {
                break;
            }
            for r in 0..self.replicas.len() {
                let child = if r == 0 {
                    self.replicas[0].child
                } else {
                    self.said_child(r)
                };
                self.hearing.claim(child);
                if let Some(change) = self.gone.get(&child) {
                    return Err(LaunchError::Early {
                        replica: r,
                        how: format!("{change:?}"),
                    });
                }
            }
            if Instant::now() > deadline + self.delayed_since(delayed_before) {
                return Err(LaunchError::Early {
                    replica: 0,
                    how: "it did not stand in time".into(),
                });
            }
            self.group.sleep(seen, Duration::from_millis(20));
        }
        self.stands_since = Instant::now();
        if !self.is_child() {
            self.adopt_keeper();
        }
        for r in 0..self.replicas.len() {
            self.adopt(r);
        }
        Ok(())
    }

    /// How long this process, since it had waited for so many nanoseconds, and replicas have waited for a processor.
    fn delayed_since(&self, before: u64) -> Duration {
        let own = procfs::own_delayed_ns().unwrap_or(0).saturating_sub(before);
        let replicas =
            (0..self.replicas.len()).filter_map(|r| procfs::delayed_ns(self.process_of(r)));
        Duration::from_nanos(own + replicas.sum::<u64>())
    }

    /// The child that the agent made for a slot, as it says: for looking it up, never to be believed
    /// alone.
    pub(crate) fn said_child(&self, slot: usize) -> i32 {
        self.group.get32(at!(own slot, init_pid)).cast_signed()
    }

    /// The child of this process that the agent has just made for a slot. A fault can make the number
    /// it left anybody's; then it is the one child that nobody else is.
    pub(crate) fn new_child(&self, said: i32) -> i32 {
        let known = |pid: i32| {
            pid == self.keeper
                || pid == self.job_control
                || self.leaving.contains(&pid)
                || self.replicas.iter().any(|info| info.child == pid)
        };
        if said > 1 && !known(said) && child::is_child(said) {
            self.hearing.claim(said);
            return said;
        }
        // Whose the others are nobody knows then.
        if self.is_child() || self.hearing.tree.has_children() {
            return 0;
        }
        let own = i32::try_from(std::process::id()).expect("a process number");
        procfs::children(own)
            .into_iter()
            .find(|pid| !known(*pid) && !self.gone.contains_key(pid))
            .unwrap_or(0)
    }

    pub(crate) fn adopt_keeper(&mut self) {
        self.keeper = 0;
        // The replicas are not known yet at the start, but said to be children.
        let others: Vec<i32> = (1..self.replicas.len())
            .map(|r| self.said_child(r))
            .collect();
        let said = self.said_child(abi::KEEPER);
        self.keeper = if others.contains(&said) {
            0
        } else {
            self.new_child(said)
        };
        self.group.set_pid(abi::KEEPER, self.keeper);
    }

    /// Learns the process of a replica that has just come to be, and puts it on its core.
    pub(crate) fn adopt(&mut self, r: usize) {
        if r > 0 {
            self.replicas[r].child = 0;
            let child = self.new_child(self.said_child(r));
            let private = self.group.get32(at!(options)) & option::PRIV_NS != 0;
            let pid = if private {
                procfs::only_child(child).unwrap_or(child)
            } else {
                child
            };
            self.replicas[r].child = child;
            self.replicas[r].pid = pid;
        }
        let pid = self.replicas[r].pid;
        self.group.set_pid(r, pid);
        self.group.set32(at!(own r, pid), pid.cast_unsigned());
        self.hearing.tree.joined_by(self.hearing.post(), r, pid);
        let core = self.core_for(r);
        // A core that has gone offline since is no reason to stop: the kernel places it then.
        self.replicas[r].core = core.filter(|core| cpu::pin(pid, *core).is_ok());
    }

    pub(super) fn core_for(&self, r: usize) -> Option<usize> {
        let good: Vec<_> = self
            .cores
            .iter()
            .filter(|core| {
                !self
                    .suspects
                    .contains(&CoreId(u32::try_from(**core).unwrap_or(u32::MAX)))
            })
            .collect();
        let pool = if good.is_empty() {
            self.cores.iter().collect()
        } else {
            good
        };
        pool.get(r % pool.len().max(1)).map(|core| **core)
    }

    pub(crate) fn replica_starts(&self) -> Vec<ReplicaStart> {
        self.replicas
            .iter()
            .enumerate()
            .map(|(r, info)| ReplicaStart {
                replica: id(r),
                role: if r == 0 { Role::Leader } else { Role::Follower },
                pid: info.pid.cast_unsigned(),
                core: core_id(info.core),
            })
            .collect()
    }

    pub(super) fn setup_failed(&self) -> Result<(), LaunchError> {
        let value = self.group.get64(at!(end_value)).cast_signed();
        let nr = self.group.get32(at!(end_nr));
        let replica = self.group.get32(at!(end_slot));
        match self.group.end() {
            end::SETUP => {
                let source = std::io::Error::from_raw_os_error(i32::try_from(-value).unwrap_or(0));
                Err(match nr {
                    // crates/agent/src/ground/init.c: the filter, user dispatch, private copies, signals, then the keeper and replicas.
                    2 => LaunchError::Backstop {
                        what: "a seccomp filter",
                        source,
                    },
                    3 => LaunchError::Backstop {
                        what: "syscall user dispatch, Linux 5.11",
                        source,
                    },
                    4 => LaunchError::Private { source },
                    5 => LaunchError::Step {
                        step: Step::Inherit,
                        source,
                    },
                    _ => LaunchError::Agent {
                        replica: nr.saturating_sub(10),
                        step: nr,
                        source,
                    },
                })
            }
            end::BUG => Err(LaunchError::Bug {
                replica,
                line: nr,
                value,
            }),
            _ => Ok(()),
        }
    }

    /// What keeps its value from here on is remembered where no replica can reach it.
    pub(super) fn remember_constants(&mut self) {
        let words = [
            at!(magic),
            at!(magic) + 4,
            at!(version),
            at!(replicas),
            at!(spin_tsc),
            at!(yields),
            at!(options),
            at!(leader_pid),
            at!(epoch_permille),
            at!(epoch_tsc),
            at!(epoch_tsc) + 4,
            at!(wait live),
        ];
        self.constants = words
            .iter()
            .map(|at| (*at, self.group.get32(*at)))
            .collect();
        let memory = Remote::open(self.replicas[0].pid);
        if !memory.is_ok_and(|memory| memory.read(abi::BASE, &mut self.agent_fixed).is_ok()) {
            self.agent_fixed.clear();
        }
    }

    /// Such a word that has changed was struck: everybody waits for what does not exist, or not
    /// at all. A standstill ends when it is right again (recovery.rs).
    pub(crate) fn mend_constants(&self) {
        for (at, value) in &self.constants {
            if self.group.get32(*at) != *value {
                self.group.set32(*at, *value);
            }
        }
    }

    /// Starts job control anew, for another group.
    pub(crate) fn post_job_control(&mut self, group: &Group) -> Result<(), LaunchError> {
        if self.is_child() {
            return Ok(());
        }
        self.job_control = io_step(Step::Fork, job_control::post(group, self.hearing.front()))?;
        self.hearing.claim(self.job_control);
        Ok(())
    }
}
