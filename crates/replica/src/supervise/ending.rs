//! Ending: whoever is left is ended and reaped, and what was counted becomes the report.

use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_contract::event::What;
use steadfast_contract::exit::Verdict;
use steadfast_contract::plan::{ProgramEnd, ReplicaTime, RunReport, StopReason, Timings};
use steadfast_sys::{child, descriptor, procfs};

use super::alignment::Alignment;
use super::{News, Supervisor, WATCH, recovery, tree};
use crate::abi::end;
use crate::group::{at, id, ns};
use crate::held::Held;
use crate::{LaunchError, abi};

/// Processes that are left when the first one has ended, and are asked to end, have this long.
const TREE_ENDS: Duration = Duration::from_secs(10);

impl Supervisor<'_> {
    /// The program's first process has ended: others of its tree may go on.
    pub(super) fn until_the_tree_ends(&mut self) -> Result<(), LaunchError> {
        let tree = Arc::clone(&self.hearing.tree);
        let mut failed = Ok(());
        let mut asked: Option<Instant> = None;
        loop {
            let seen = self.group.bell();
            // Tried again at the next look.
            let _ = tree.mend_reaper();
            self.tell_of_the_tree();
            match tree.take_failure() {
                Some(tree::Failure::Stopped(reason)) => {
                    self.stop.get_or_insert(reason);
                }
                Some(tree::Failure::Launch(error)) => failed = Err(error),
                None => {}
            }
            if !tree.has_children() {
                self.tell_of_the_tree();
                return failed;
            }
            if !tree.is_ending() && tree.goes_on() {
                self.let_the_caller_go_on();
            }
            self.collect();
            for news in std::mem::take(&mut self.mail) {
                let News::Signal(taken) = news else {
                    continue;
                };
                if matches!(
                    taken.signal,
                    libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT
                ) {
                    // Who asks twice does not want to wait.
                    if asked.replace(Instant::now()).is_some() {
                        tree.end();
                    }
                    tree.pass_on(&taken);
                }
            }
            if asked.is_some_and(|since| since.elapsed() > TREE_ENDS) {
                tree.end();
            }
            self.group.sleep(seen, WATCH);
        }
    }

    /// The command of the caller ends as the program's first process has, and this process stays for the others. It has
    /// nothing of the caller's any more: no stream, no directory, no process group.
    pub(super) fn let_the_caller_go_on(&mut self) {
        let Some(front) = self.hearing.front.clone() else {
            return;
        };
        if front.is_gone() || self.leader_end.is_none() {
            return;
        }
        self.tell_of_the_tree();
        let report = self.summed_up();
        self.sink.first_ended(&report);
        descriptor::let_go_of_standard_error();
        // It may be on a file system that somebody wants to unmount.
        let _ = std::env::set_current_dir("/");
        front.end(report.exit());
    }

    /// Events of groups that have not ended.
    pub(super) fn events_of_others(&self) -> u64 {
        if self.is_child() || self.row.is_some() {
            return 0; // asked for the first one, which is not listed any more
        }
        self.hearing.tree.events()
    }

    /// Passes on what other groups have told, and counts it.
    pub(super) fn tell_of_the_tree(&mut self) {
        for event in self.hearing.tree.take_events() {
            if let What::Process(of) = &event.what {
                match of.what {
                    What::Divergence(_) => self.divergences += 1,
                    What::Recovery(_) => {
                        self.recoveries += 1;
                        self.recoveries_elsewhere += 1;
                    }
                    What::RunEnd(ref report) => self.events_elsewhere += report.events,
                    _ => {}
                }
            }
            match &mut self.held_back {
                Some(events) => events.push(event),
                None => self.sink.emit(event),
            }
        }
    }

    pub(super) fn kill_reaper(&mut self) {
        let reaper = self.hearing.tree.take_reaper();
        if reaper > 1 {
            child::end(reaper);
        }
    }

    /// The leader's time comes with its end; followers are asked before theirs.
    pub(super) fn charge(&mut self, pid: i32, usage: child::Usage) {
        let leader = &mut self.replicas[0];
        if leader.child == pid {
            leader.used.user_ns += usage.user_ns;
            leader.used.system_ns += usage.system_ns;
        }
    }

    /// Notes what a follower has used before it is ended.
    pub(crate) fn charge_follower(&mut self, r: usize) {
        if let Some((user_ns, system_ns)) = procfs::times(self.replicas[r].pid) {
            self.replicas[r].used.user_ns += user_ns;
            self.replicas[r].used.system_ns += system_ns;
        }
    }

    /// Ends whoever would be left over when the leader has become another program. Its stop has the
    /// thread that waits for children stand still, so they are waited for here.
    pub(crate) fn end_all_but_the_leader(&mut self) {
        let keeper = if self.keeper == 0 {
            self.said_child(abi::KEEPER)
        } else {
            self.keeper
        };
        let mut ends = vec![keeper, self.job_control];
        for r in 1..self.replicas.len() {
            self.charge_follower(r);
            ends.push(self.replicas[r].child);
        }
        for pid in ends {
            if pid > 1
                && pid != self.replicas[0].pid
                && !self.gone.contains_key(&pid)
                && child::is_child(pid)
            {
                child::end(pid);
            }
        }
    }

    /// Forgets what was known about a group that is no more.
    pub(crate) fn forget_the_group(&mut self) {
        self.held = Held::new(self.hearing.tree.segments.clone());
        self.dying = None;
        self.keeper = 0;
        if self.promotions == 0 && !self.is_adopted() {
            self.is_no_ward_any_more();
        }
        self.watch = recovery::Watch::default();
        self.alignment = Alignment::default();
    }

    /// Ends and reaps every process of the group.
    pub(crate) fn kill_all(&mut self) {
        for r in 1..self.replicas.len() {
            self.charge_follower(r);
        }
        if let Some(process) = &self.process
            && self.leader_end.is_none()
        {
            process.signal(libc::SIGKILL);
        }
        let keeper = if self.keeper == 0 {
            self.said_child(abi::KEEPER)
        } else {
            self.keeper
        };
        let mut children = vec![keeper, std::mem::take(&mut self.job_control)];
        for r in (0..self.replicas.len()).rev() {
            let known = self.replicas[r].child;
            children.push(if known == 0 && r > 0 {
                self.said_child(r)
            } else {
                known
            });
        }
        // All at once: each takes its time to die, with its namespaces.
        for child in &children {
            self.strike_down(*child);
        }
        for child in children {
            self.kill_child(child);
        }
        self.hearing.tree.accounts.close(self.replicas[0].child);
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.leaving.is_empty() && Instant::now() < deadline {
            let seen = self.group.bell();
            self.take_news();
            if !self.leaving.is_empty() {
                self.group.sleep(seen, Duration::from_millis(10));
            }
        }
    }

    /// Kills one child. The number may come from shared memory, where a fault can make it anybody's. The
    /// real child then dies with this process.
    pub(super) fn strike_down(&mut self, child: i32) -> bool {
        if child <= 1 || self.gone.contains_key(&child) || !child::is_child(child) {
            return false;
        }
        self.hearing.claim(child);
        self.forget_exec(child);
        child::kill(child, libc::SIGKILL);
        true
    }

    /// Kills one child and waits until it is reaped.
    pub(crate) fn kill_child(&mut self, child: i32) {
        if !self.strike_down(child) {
            return;
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.gone.contains_key(&child) && Instant::now() < deadline {
            let seen = self.group.bell();
            self.take_news();
            if self.gone.contains_key(&child) {
                break;
            }
            self.group.sleep(seen, Duration::from_millis(10));
        }
    }

    pub(crate) fn report(mut self) -> RunReport {
        let report = self.summed_up();
        self.emit(What::RunEnd(Box::new(report.clone())));
        report
    }

    pub(super) fn summed_up(&mut self) -> RunReport {
        self.note_faults();
        let said = self.group.end();
        let value = i32::from(self.group.get32(at!(end_value)).to_le_bytes()[0]);
        let end = match (self.stop, self.leader_end) {
            (Some(reason), _) => ProgramEnd::Stopped(reason),
            // The leader was killed on its way to the end that all have agreed on.
            (None, Some(child::Change::Signaled(_))) if said == end::EXITED => {
                ProgramEnd::Exited(value)
            }
            (None, Some(child::Change::Signaled(_))) if said == end::SIGNALED => {
                ProgramEnd::Signaled(value)
            }
            (None, Some(child::Change::Exited(status))) => ProgramEnd::Exited(status),
            (None, Some(child::Change::Signaled(signal))) => ProgramEnd::Signaled(signal),
            (None, _) => ProgramEnd::Stopped(StopReason::Unrecoverable),
        };
        let verdict = match (&end, self.divergences, self.recoveries) {
            (ProgramEnd::Stopped(StopReason::Refused), ..) => Verdict::Refused,
            (ProgramEnd::Stopped(_), ..) => Verdict::Stopped,
            (_, 0, _) if self.plan.replicas == 1 => Verdict::Unprotected,
            (_, 0, _) => Verdict::Agreed,
            _ => Verdict::Corrected,
        };
        let mut coverage = self.modules.coverage(self.plan.explain);
        if self.divergences > 0 {
            coverage.open_sites = self.modules.open_sites();
        }
        let mut faults = self.modules.flips.reports(&self.group.memory);
        if !self.is_child() {
            self.hearing.tree.add_hits(&mut faults);
        }
        RunReport {
            verdict,
            end,
            events: self.event(self.group.get64(at!(own 0, next))).0
                + self.events_elsewhere
                + self.events_of_others(),
            divergences: self.divergences,
            recoveries: self.recoveries,
            promotions: self.promotions,
            signals: self.signals,
            faults,
            suspects: self.suspects.clone(),
            coverage,
            timings: Timings {
                wall_ns: ns(self.started.elapsed()),
                setup_ns: ns(self.setup),
                cpu_ns: (0..self.replicas.len())
                    .map(|r| {
                        let child::Usage { user_ns, system_ns } = self.replicas[r].used;
                        ReplicaTime {
                            replica: id(r),
                            user_ns,
                            system_ns,
                        }
                    })
                    .collect(),
                repair_pause_ns_max: self.pause_max.map(ns),
            },
        }
    }
}
