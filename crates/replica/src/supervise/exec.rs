//! Exec: the leader becomes another program, and a group is started from it.
//!
//! ```text
//!   RPC_EXEC ──► traced ──► stop in exec ──► the others end ──► launch_again ──► ready ──► go
//!                  │ RPC_STAY                     nothing of the new program has run yet
//!                  └──► stopped, let go ──► answered
//! ```
//!
//! The leader's process stays, with what execve(2) preserves. All the rest of the group is made
//! anew as at the beginning: shared memory, log, agent, patches, followers. What was counted goes
//! on being counted.
//!
//! Invariants
//!  1. From RPC_EXEC until it is let go the leader dies with this process.
//!  2. All stops of the leader are first seen by the thread that waits for children, which takes none of them: that is
//!     for the thread that traces.
//!
//! Not covered: a stop signal that reaches the leader between RPC_EXEC and the exec is lost.

use std::sync::Arc;
use std::time::Instant;

use steadfast_contract::event::{Exec, What};
use steadfast_contract::plan::EqualPids;
use steadfast_fault::ids::EventIndex;
use steadfast_sys::{child, cpu, procfs, ptrace};

use crate::abi::{self, option};
use crate::group::at;
use crate::supervise::bare;
use crate::supervise::{Supervisor, control_block, has_sys_admin};
use crate::{LaunchError, launch};

/// What is known about a leader that is becoming another program.
#[derive(Debug, Default)]
pub(crate) struct Becoming {
    /// Its process while it is traced.
    traced: Option<i32>,
    /// The signal mask that the new program inherits (execve(2)).
    mask: u64,
    /// The call failed: it is to be let go before its question is answered.
    stays: bool,
    /// It stands in exec.
    done: Option<ptrace::Stopped>,
    /// It is not traced, and becomes this program, which runs unprotected.
    pub(crate) bare: Option<String>,
    /// It died there, of what the kernel found in the new program's file: all had agreed on that.
    pub(crate) fatal: bool,
}

impl Supervisor<'_> {
    /// The leader asks to become another program, of this path in this directory: 0, [`abi::EXEC_BARE`], or the number
    /// that refuses it (abi.h).
    pub(crate) fn let_exec(&mut self, mask: u64, path: u64, dir: u64) -> i64 {
        self.forget_child();
        let bare = bare::named(self.plan, self.replicas[0].pid, path, dir);
        let options = self.group.get32(at!(options));
        let refused = if options & option::SECCOMP != 0 {
            abi::NR_EXEC_FILTER
        } else if options & option::PROFILE != 0 {
            abi::NR_EXEC_COUNT
        } else if procfs::holds_record_lock(self.replicas[0].pid) {
            abi::NR_EXEC_LOCKS
        } else if bare.is_some() && !self.is_child() {
            abi::NR_EXEC_BARE
        } else if bare.is_some() && self.has_left_the_domain() {
            self.exec.bare = bare;
            return abi::EXEC_BARE;
        } else if !self.has_left_the_domain()
            || self.exec.traced.is_none() && ptrace::seize_for_exec(self.replicas[0].pid).is_err()
        {
            abi::NR_EXEC_TRACE
        } else {
            self.exec.traced = Some(self.replicas[0].pid);
            self.exec.mask = mask;
            return 0;
        };
        refused.into()
    }

    /// It did not: the answer follows when it has been let go.
    pub(crate) fn let_stay(&mut self) {
        if self.exec.bare.take().is_some()
            && let Some(core) = self.replicas[0].core
        {
            // It had been given back the cores that it may run on. Where it cannot be placed the kernel does it.
            let _ = cpu::pin(self.replicas[0].pid, core);
        }
        let Some(pid) = self.exec.traced else {
            return self.group.answer(0);
        };
        if !std::mem::replace(&mut self.exec.stays, true) {
            // A leader that has ended meanwhile is noticed as such.
            let _ = ptrace::request_stop(pid);
        }
    }

    /// A stop that its tracer has yet to take.
    pub(crate) fn traced_stop(&mut self, pid: i32) {
        let known = self.exec.traced == Some(pid);
        match ptrace::poll(pid) {
            Ok(Some(ptrace::Waited::Stopped { stop, event, .. }))
                if known && event == libc::PTRACE_EVENT_EXEC =>
            {
                self.exec.done = Some(stop);
            }
            Ok(Some(ptrace::Waited::Stopped {
                stop,
                signal,
                event,
            })) if self.exec.stays => {
                self.forget_exec(pid);
                // It fails for one that was killed, which is noticed as such.
                let _ = stop.detach_with(if event == 0 { signal } else { 0 });
                self.group.answer(0);
            }
            // A stop of a group has the signal too, and goes on.
            Ok(Some(ptrace::Waited::Stopped {
                stop,
                signal,
                event,
            })) => {
                let _ = stop.resume_with(if event == 0 { signal } else { 0 });
            }
            Ok(Some(ptrace::Waited::Exited(status))) => {
                self.child_changed(pid, child::Change::Exited(status))
            }
            Ok(Some(ptrace::Waited::Signaled(signal))) => {
                self.child_changed(pid, child::Change::Signaled(signal))
            }
            Ok(None) | Err(_) => {}
        }
    }

    /// A traced leader has ended. What the kernel cannot load any more it kills by a signal; a kill is
    /// somebody else's, and repaired.
    pub(crate) fn died_in_exec(&mut self, pid: i32, change: child::Change) {
        if self.exec.traced == Some(pid) {
            self.forget_exec(pid);
            self.exec.fatal =
                matches!(change, child::Change::Signaled(signal) if signal != libc::SIGKILL);
        }
    }

    /// Whoever was becoming another program has ended, or will not.
    pub(crate) fn forget_exec(&mut self, pid: i32) {
        if self.exec.traced == Some(pid) {
            self.exec = Becoming::default();
        }
    }

    /// The leader stands in exec.
    pub(crate) fn has_become_another(&self) -> bool {
        self.exec.done.is_some()
    }

    /// Ends what is left of the group and starts one from the new program.
    pub(crate) fn become_another(&mut self) -> Result<(), LaunchError> {
        let began = Instant::now();
        let Becoming {
            mask,
            done: Some(stop),
            ..
        } = std::mem::take(&mut self.exec)
        else {
            return Ok(());
        };
        let name = bare::program(stop.pid());
        let started = self.start_again(stop, mask);
        let (program, fixed) = if self.is_child() {
            started.map_err(|error| error.of_child(name))?
        } else {
            started?
        };
        self.ready(fixed)?;
        self.setup += began.elapsed();
        let args = procfs::command_line(self.replicas[0].pid);
        let exec = Exec {
            event: EventIndex(self.past_events),
            program,
            args,
            replicas: self.replica_starts(),
        };
        self.emit(What::Exec(exec));
        self.emit(What::Coverage(self.modules.coverage(false)));
        self.go();
        Ok(())
    }

    fn start_again(
        &mut self,
        stop: ptrace::Stopped,
        mask: u64,
    ) -> Result<(String, u64), LaunchError> {
        let pid = stop.pid();
        self.note_faults();
        self.end_all_but_the_leader();
        let old = Arc::clone(&self.group);
        self.past_events = self.event(old.get64(at!(own 0, next))).0;
        let options = old.get32(at!(options));
        let equal_pids = options & option::PRIV_NS != 0;
        let group = control_block(
            self.plan,
            &self.cores,
            equal_pids,
            has_sys_admin(&pid.to_string()),
            options & option::TREE,
        )?;
        if self.plan.equal_pids == EqualPids::Auto {
            group.set32(at!(options), group.get32(at!(options)) | option::NS_OR_NOT);
        }
        // What the program asked for and execve(2) preserves, and the agent keeps here.
        let mut affinity = [0; 256];
        old.memory.read(at!(wait affinity), &mut affinity);
        group.memory.write(at!(wait affinity), &affinity);
        for word in [
            at!(pdeathsig),
            at!(pdeathsig_inv),
            at!(parent),
            at!(parent_inv),
            at!(parent_process),
        ] {
            group.set32(word, old.get32(word));
        }
        self.takes_children_along(&group);
        self.hearing.tree.gives_turns(&group, pid);
        let flips = std::mem::take(&mut self.modules.flips).carry_on(
            self.plan,
            &old.memory,
            self.past_events,
        )?;
        self.post_job_control(&group)?;
        let launched = launch::launch_again(stop, &group.memory, mask, flips)?;
        self.group = Arc::new(group);
        self.hearing.tree.accounts.open(pid);
        self.hearing.ring(&self.group);
        self.modules = launched.modules;
        for r in 0..self.replicas.len() {
            let info = &mut self.replicas[r];
            (info.child, info.pid) = if r == 0 { (pid, pid) } else { (0, 0) };
        }
        self.forget_the_group();
        Ok((launched.program, launched.fixed))
    }
}
