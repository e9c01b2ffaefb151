//! Supervise: from the first instruction to the last child reaped.
//!
//! ```text
//!   start ──► go ──► watch ──┬─► alarm ──► recovery.rs ──► watch
//!                            ├─► request of the leader (new code) ──► watch
//!                            ├─► the leader became another program (exec) ──► end the others ──► start
//!                            ├─► signal to us ──► leader (unless it has its own copy) ──► watch
//!                            ├─► leader stopped ──► all stand still, we too ──► continued ──► watch
//!                            └─► the leader ended ──► reap all ──► report
//! ```
//!
//! What stands below are the parts of one component: each adds to [`Supervisor`], and they call each other through it.
//!
//! | Part | What it adds |
//! |---|---|
//! | `hearing`, `telling` | what the group is told, and what it tells |
//! | `control_block`, `start_up`, `ending` | from shared memory to a group that stands; its end and its report |
//! | `requests` | what the leader asks for: patches, children, files |
//! | `forward` | signals to the leader, and stops |
//! | `alignment` | threads and signals: where replicas take them, at one place |
//! | `recovery` | an alarm, from the count to the repaired group |
//! | `exec` | the leader becomes another program |
//! | `tree`, `ward`, `offspring` | programs that it starts, protected; whom they belong to |
//! | `bare` | programs that it starts, unprotected |
//! | `rest` | how seldom a group is looked at that nobody asks anything |
//! | `cpu_limit` | how much of the limits a group takes |

mod alignment;
mod bare;
mod control_block;
mod cpu_limit;
mod ending;
mod exec;
mod forward;
mod hearing;
mod offspring;
pub(crate) mod recovery;
mod refusal;
mod requests;
mod rest;
mod start_up;
mod telling;
pub(crate) mod tree;
mod ward;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_contract::event::{Event, EventSink};
use steadfast_contract::plan::{OnMismatch, Plan, RunReport, StopReason};
use steadfast_fault::ids::CoreId;
use steadfast_sys::pidfd::Process;
use steadfast_sys::{child, descriptor, procfs, signals};

use self::alignment::Alignment;
pub(crate) use self::control_block::{control_block, control_block_in};
use self::cpu_limit::CpuLimit;
use self::exec::Becoming;
pub(crate) use self::hearing::{Accounts, Hearing, News};
use self::ward::Ward;
use crate::abi::{self, end};
use crate::group::{Group, at};
use crate::held::Held;
use crate::modules::Modules;
use crate::{LaunchError, Step, status};

/// Looks for hung replicas this often; fast enough for the second that the rule allows, slow
/// enough to cost an idle group nothing (10 wakes of about 20 µs a second).
pub(crate) const WATCH: Duration = Duration::from_millis(100);
/// The first signal that is real-time to the kernel (signal(7)); the C library keeps two for itself.
const REAL_TIME: i32 = 32;
/// Followers are behind their leader by what a loaded machine takes from them.
pub(crate) const LEAVES: Duration = Duration::from_secs(10);

/// What a group of a tree begins with.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) group: Arc<Group>,
    pub(crate) modules: Modules,
    pub(crate) leader: i32,
    pub(crate) process: Process,
    pub(crate) cores: Vec<usize>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ReplicaInfo {
    /// Process that is waited for: the replica itself or its namespace's init.
    pub(crate) child: i32,
    pub(crate) pid: i32,
    pub(crate) core: Option<usize>,
    /// CPU time of the processes that have been this replica and are gone.
    pub(crate) used: child::Usage,
}

pub(crate) struct Supervisor<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) sink: &'a mut dyn EventSink,
    pub(crate) group: Arc<Group>,
    pub(crate) modules: Modules,
    held: Held,
    /// What the leader had computed when a signal that ends the program began to wait for its next event, in nanoseconds.
    dying: Option<u64>,
    pub(crate) started: Instant,
    pub(crate) setup: Duration,
    pub(crate) replicas: Vec<ReplicaInfo>,
    pub(crate) cores: Vec<usize>,
    pub(crate) leader_end: Option<child::Change>,
    /// Children known to have ended.
    pub(crate) gone: HashMap<i32, child::Change>,
    /// Leaders that were killed to be replaced: their end is not the program's.
    pub(crate) replaced: HashSet<i32>,
    pub(crate) promotions: u64,
    pub(crate) hearing: &'a Hearing,
    /// News that have come and were not dealt with yet.
    mail: VecDeque<News>,
    job_control: i32,
    pub(crate) keeper: i32,
    /// Children that were killed and are yet to be reaped.
    pub(crate) leaving: Vec<i32>,
    /// Signals for which the leader's queue had no room.
    outbox: VecDeque<signals::Taken>,
    /// Signals that came to a dead leader, for the one behind it, and how many had been made by then.
    late: Vec<(signals::Taken, u64)>,
    /// The next SIGCONT is the one that ended our own stop.
    was_stopped: bool,
    parent_death: u32,
    pub(crate) divergences: u64,
    pub(crate) recoveries: u64,
    /// Those of them that were other groups', whose events the first one tells.
    recoveries_elsewhere: u64,
    /// Events of groups that have ended, the first one's own not counted.
    events_elsewhere: u64,
    /// Where this group is seen from outside; nothing before it stands, and when its leader has ended.
    row: Option<status::Row>,
    pub(crate) signals: u64,
    pub(crate) pause_max: Option<Duration>,
    pub(crate) strikes: HashMap<usize, u32>,
    pub(crate) suspects: Vec<CoreId>,
    pub(crate) stop: Option<StopReason>,
    pub(crate) watch: recovery::Watch,
    pub(crate) exec: Becoming,
    pub(crate) alignment: Alignment,
    pub(crate) cpu_limit: CpuLimit,
    stillness: rest::Stillness,
    /// Somebody has killed every replica: that is the program's end.
    pub(crate) killed: bool,
    /// Events of the programs that this one has taken the place of.
    pub(crate) past_events: u64,
    /// What is to be told when a repair is over.
    held_back: Option<Vec<Event>>,
    /// Words of the control block that keep their value, and the agent's code and constants.
    constants: Vec<(usize, u32)>,
    pub(crate) agent_fixed: Vec<u8>,
    /// The leader of a group that is not the first: its parent is another group's.
    process: Option<Arc<Process>>,
    /// Since when its replicas run what they run.
    pub(crate) stands_since: Instant,
    /// A child that is about to become another program, and copies that have been asked for.
    on_its_way: Option<tree::OnItsWay>,
    /// Of a child whose parent can have a proxy in its leader's place; and whether its leader's end is its own all the same.
    pub(crate) ward: Option<Arc<Ward>>,
    pub(crate) forsaken: bool,
    asked: Option<tree::Asked>,
}

fn io_step<T>(step: Step, result: std::io::Result<T>) -> Result<T, LaunchError> {
    result.map_err(|source| LaunchError::Step { step, source })
}

impl<'a> Supervisor<'a> {
    fn new(
        plan: &'a Plan,
        hearing: &'a Hearing,
        sink: &'a mut dyn EventSink,
        started: Instant,
        group: Arc<Group>,
        modules: Modules,
        cores: Vec<usize>,
    ) -> Self {
        Self {
            plan,
            sink,
            group,
            modules,
            held: Held::new(hearing.tree.segments.clone()),
            dying: None,
            started,
            setup: Duration::ZERO,
            replicas: vec![ReplicaInfo::default(); usize::from(plan.replicas)],
            cores,
            leader_end: None,
            gone: HashMap::new(),
            replaced: HashSet::new(),
            promotions: 0,
            hearing,
            mail: VecDeque::new(),
            job_control: 0,
            keeper: 0,
            leaving: Vec::new(),
            outbox: VecDeque::new(),
            late: Vec::new(),
            was_stopped: false,
            parent_death: 0,
            divergences: 0,
            recoveries: 0,
            recoveries_elsewhere: 0,
            events_elsewhere: 0,
            row: None,
            signals: 0,
            pause_max: None,
            strikes: HashMap::new(),
            suspects: Vec::new(),
            stop: None,
            watch: recovery::Watch::default(),
            exec: Becoming::default(),
            alignment: Alignment::default(),
            cpu_limit: CpuLimit::default(),
            stillness: rest::Stillness::default(),
            killed: false,
            past_events: 0,
            held_back: None,
            constants: Vec::new(),
            agent_fixed: Vec::new(),
            process: None,
            stands_since: started,
            on_its_way: None,
            ward: None,
            forsaken: false,
            asked: None,
        }
    }

    /// A group of a tree, whose leader stands or is about to.
    pub(crate) fn of_child(
        plan: &'a Plan,
        sink: &'a mut dyn EventSink,
        hearing: &'a Hearing,
        birth: Birth,
    ) -> Result<Self, LaunchError> {
        let Birth {
            group,
            modules,
            leader,
            process,
            cores,
        } = birth;
        let mut this = Self::new(
            plan,
            hearing,
            sink,
            hearing.tree.since,
            group,
            modules,
            cores,
        );
        this.replicas[0] = ReplicaInfo {
            child: leader,
            pid: leader,
            ..ReplicaInfo::default()
        };
        let process = Arc::new(process);
        this.process = Some(Arc::clone(&process));
        let post = hearing.post().clone();
        hearing.tree.accounts.open(leader);
        let tree = Arc::clone(&hearing.tree);
        let watch = move || {
            while !process.ends_within(Duration::from_secs(3600)) {}
            tree.looks_at_the_end(&post, leader);
            post.send(News::Ended(leader));
        };
        io_step(Step::Thread, std::thread::Builder::new().spawn(watch))?;
        Ok(this)
    }

    /// Whether this is not the first group.
    pub(crate) fn is_child(&self) -> bool {
        self.process.is_some()
    }

    /// Whether a leader that is gone can be made again.
    pub(super) fn is_kept(&self) -> bool {
        self.keeper != 0
            && !(self.is_child()
                && (self.has_lost_the_domain() || self.forsaken || self.is_condemned()))
    }

    /// Whether a process of the tree is about to kill this one.
    pub(crate) fn is_condemned(&self) -> bool {
        self.hearing.tree.is_condemned(self.hearing.post())
    }

    /// Who makes the leader's calls: itself, or the child of vfork(2) that it waits for.
    pub(crate) fn acting(&self) -> i32 {
        let leader = self.replicas[0].pid;
        let said = self
            .group
            .meant(at!(stand_in), at!(stand_in_inv))
            .unwrap_or(0)
            .cast_signed();
        if said > 1 && said != leader && procfs::descends(said, leader) {
            said
        } else {
            leader
        }
    }

    /// The process of a replica, or who acts for it.
    pub(crate) fn process_of(&self, r: usize) -> i32 {
        if r == 0 {
            self.acting()
        } else {
            self.replicas[r].pid
        }
    }

    /// Runs until the program is over.
    pub(crate) fn until_end(mut self) -> Result<RunReport, LaunchError> {
        if self.plan.ambient.handed_on && !self.plan.explain {
            io_step(Step::HandOn, descriptor::let_go_of_inherited())?;
        }
        let mut result = self.watch_over();
        while result.is_ok() && self.has_become_another() {
            result = self.become_another().and_then(|()| self.watch_over());
        }
        if result.is_err() || self.stop.is_some() {
            self.hearing.tree.end();
        }
        self.row = None;
        self.hearing.tree.parent_died(self.hearing.post());
        self.kill_all();
        let rest = self.until_the_tree_ends();
        self.kill_reaper();
        result?;
        rest?;
        Ok(self.report())
    }

    /// Runs a group of a tree until its leader has ended. One that was stopped has ended the tree.
    pub(crate) fn until_childs_end(mut self) -> Result<(), LaunchError> {
        let mut result = self.watch_over();
        while result.is_ok() && self.has_become_another() {
            result = self.become_another().and_then(|()| self.watch_over());
        }
        if result.is_ok() && self.exec.bare.is_some() && self.stop.is_none() {
            self.see_bare_leader_off();
        }
        let tree = Arc::clone(&self.hearing.tree);
        let goes_on = result.is_ok();
        // Before its end can be seen: nobody acts on the end of a process that was stopped.
        let gone = tree::over(&tree, result.map(|()| self.stop));
        tree.parent_died(self.hearing.post());
        // A parent that has a proxy is told behind the end of all others: the keeper holds descriptors that it may open anew.
        self.kill_all();
        self.is_no_ward_any_more();
        if goes_on {
            tree.count_hits(&self.report().faults);
        }
        gone
    }

    pub(crate) fn watch_over(&mut self) -> Result<(), LaunchError> {
        loop {
            let seen = self.group.bell();
            self.beat();
            self.take_news();
            self.look_for_the_proxy();
            self.look_for_proxies_that_stay();
            self.show(false);
            if self.has_become_another() || self.has_gone_bare() {
                return Ok(());
            }
            if !self.is_child() {
                // Tried again at the next look.
                let _ = self.hearing.tree.mend_reaper();
                self.tell_of_the_tree();
                match self.hearing.tree.take_failure() {
                    Some(tree::Failure::Stopped(reason)) => {
                        self.stop = Some(reason);
                        return Ok(());
                    }
                    Some(tree::Failure::Launch(error)) => return Err(error),
                    None => {}
                }
            } else if self.leader_end.is_some() && !self.is_kept() || self.hearing.tree.is_ending()
            {
                self.leave_the_domain();
                return Ok(()); // nobody makes it again: its parent may have killed it
            }
            // Alone, a replica is the program: whatever ended it ended the program.
            let said = matches!(self.group.end(), end::EXITED | end::SIGNALED)
                || self.replicas.len() == 1
                || self.exec.fatal
                || self.cpu_limit.up
                || self.killed;
            if self.leader_end.is_some() && said {
                self.leave_the_domain();
                return Ok(());
            }
            match self.group.end() {
                end::REFUSED => {
                    self.refused();
                    return Ok(());
                }
                end::BUG => return self.setup_failed(),
                end::TORN => {
                    self.torn();
                    return Ok(());
                }
                _ => {}
            }
            self.mend_constants();
            self.answer_request();
            if let Some(error) = self.modules.flips.take_error() {
                return Err(error.into());
            }
            self.copies_have_memory()?;
            if self.group.get32(at!(alarm)) != abi::alarm::QUIET {
                self.show(true);
                self.first(Self::recover);
                if self.stop.is_some() {
                    return self.failed_check().map_or(Ok(()), Err);
                }
                continue;
            }
            self.note_faults();
            let running = self.group.end() == end::RUNNING;
            let rest = if running { self.rests() } else { None };
            let mut until = rest.unwrap_or(WATCH);
            if running {
                until = self
                    .look_at_the_limit()
                    .map_or(until, |left| until.min(left));
                if !self.cpu_limit.up {
                    self.look_for_the_keeper();
                    self.look_for_the_dead();
                    self.look_for_the_hung();
                    until = until.min(self.look_for_a_waiting_signal());
                    until = until.min(self.look_for_a_waiting_thread(rest.is_some()));
                }
                if self.stop.is_some() {
                    return Ok(());
                }
            }
            until = until.min(self.hasten_death());
            if self.exec.bare.is_some() {
                until = bare::LOOK;
            }
            until = until.min(self.strike_by_the_clock());
            match rest {
                Some(_) => self.group.rest(seen, until),
                None => self.group.sleep(seen, until),
            }
            // What planning needed (a libc's symbols and instructions: 4 MiB) lies free by now.
            if self.group.bell() == seen && self.modules.rest() {
                steadfast_sys::memory::trim();
            }
        }
    }

    /// Whether this process shares writable memory with others of its tree (domain.c).
    pub(crate) fn shares_memory(&self) -> bool {
        self.group.get32(at!(domain)) != 0
    }

    /// Whether there is more of it than is known, which a leader that is made again could not have.
    pub(crate) fn has_lost_the_domain(&self) -> bool {
        self.group.get32(at!(domain)) >= abi::DOMAIN_LOST
    }

    /// Whether every replica has given back the last baton that the leader had: what they share is equal then, and others
    /// can go on. Followers may be a few events behind.
    pub(crate) fn has_left_the_domain(&self) -> bool {
        let given = |r: usize| self.group.get64(at!(baton_given) + 8 * r);
        let left = || {
            let held = self.group.get32(at!(baton_held)) != 0;
            !held && (1..self.replicas.len()).all(|r| given(r) == given(0))
        };
        !self.shares_memory() || self.group.wait_until(LEAVES, left)
    }

    /// The leader has ended. Where it was killed in the middle of something nobody knows what the others share with it.
    fn leave_the_domain(&mut self) {
        if self.stop.is_some() || self.hearing.tree.is_ending() {
            return;
        }
        if self.has_killed_itself() {
            // One that cannot be ended is found below.
            let _ = self.end_the_turn();
        }
        if !self.has_left_the_domain() {
            self.stop = Some(StopReason::Shared);
        }
    }

    /// Whether all replicas had agreed on the SIGKILL of which the leader has died.
    fn has_killed_itself(&self) -> bool {
        self.group.end() == end::SIGNALED
            && self.group.get64(at!(end_value)) == u64::from(libc::SIGKILL.unsigned_abs())
    }

    /// A signal that waits to be passed on is not joined by another one like it, as in the kernel
    /// (signal(7)): real-time signals queue, and stops keep their order.
    fn collect(&mut self) {
        for news in self.hearing.news.try_iter() {
            let waits = |signal: &signals::Taken| {
                signal.signal < REAL_TIME
                    && signal.signal != libc::SIGCONT
                    && !stops(signal.signal)
                    && self
                        .mail
                        .iter()
                        .any(|news| matches!(news, News::Signal(other) if other == signal))
            };
            if !matches!(&news, News::Signal(taken) if waits(taken)) {
                self.mail.push_back(news);
            }
        }
    }

    /// Whether there is something to be dealt with: a signal, an end.
    pub(crate) fn has_news(&mut self) -> bool {
        self.collect();
        !self.mail.is_empty()
    }

    /// A replica that failed its own check, when making it anew did not help.
    fn failed_check(&self) -> Option<LaunchError> {
        let r = (0..self.replicas.len())
            .find(|r| self.group.get32(at!(seen * r, fault_signo)) == abi::BUG_SIGNO)?;
        Some(LaunchError::Bug {
            replica: u32::try_from(r).expect("few replicas"),
            line: self.group.get32(at!(seen r, fault_code)),
            value: self.group.get64(at!(seen r, fault_addr)).cast_signed(),
        })
    }

    /// Hears what there is, and not what comes meanwhile: who sends signals faster than they can be
    /// passed on must not keep us from everything else.
    pub(crate) fn take_news(&mut self) {
        self.collect();
        for _ in 0..self.mail.len() {
            let Some(news) = self.mail.pop_front() else {
                return;
            };
            match news {
                News::Child(pid, change, usage) => {
                    self.charge(pid, usage);
                    self.child_changed(pid, change);
                }
                News::Signal(taken) => self.forward(taken),
                News::Late(taken) => self.came_late(taken),
                // Of one that can be made again this process is the parent, and is told more.
                News::Ended(pid) if !self.is_kept() => {
                    self.child_changed(pid, child::Change::Exited(0));
                }
                News::Ended(pid) => self.awaited_leader_ended(pid),
                News::Stay(_) => {}
            }
        }
    }

    pub(crate) fn child_changed(&mut self, pid: i32, change: child::Change) {
        match change {
            child::Change::Exited(_) | child::Change::Signaled(_) => {
                self.died_in_exec(pid, change);
                if let Some(at) = self.leaving.iter().position(|leaving| *leaving == pid) {
                    self.leaving.swap_remove(at);
                    return;
                }
                self.gone.insert(pid, change);
                if self.replaced.remove(&pid) {
                    return;
                }
                if pid == self.replicas[0].child {
                    self.leader_end = Some(change);
                    if let Some(ward) = self.ward.as_ref().filter(|_| self.is_kept()) {
                        ward.lead(0);
                    }
                }
            }
            child::Change::Stopped(signal)
                if pid == self.replicas[0].child
                    && !self.is_child()
                    && !self.hearing.tree.is_ending() =>
            {
                self.leader_stopped(signal)
            }
            child::Change::Traced => self.traced_stop(pid),
            child::Change::Stopped(_) | child::Change::Continued => {}
        }
    }

    fn leader(&self) -> i32 {
        self.replicas[0].pid
    }

    /// A signal that its sender found no leader for. There may be another one by now.
    fn came_late(&mut self, taken: signals::Taken) {
        let leader = self.replicas[0].pid;
        let is_killed = procfs::pending(leader) >> (libc::SIGKILL - 1) & 1 == 1;
        if self.leader_end.is_some() || is_killed || procfs::has_ended(leader) {
            self.late.push((taken, self.promotions));
        } else {
            self.outbox.push_back(taken);
        }
    }

    /// Says that this process runs, and does what it is to do now and then.
    fn beat(&mut self) {
        let beats = self.group.get32(at!(beat));
        self.group.set32(at!(beat), beats.wrapping_add(1));
        let (leader, made) = (self.replicas[0].pid, self.promotions);
        for (taken, _) in self.late.extract_if(.., |(_, before)| *before != made) {
            // As in the kernel (signal(7)), a second one that waits is none.
            let waits = |other: &signals::Taken| other.signal == taken.signal;
            if taken.signal >= REAL_TIME || !self.outbox.iter().any(waits) {
                self.outbox.push_back(taken);
            }
        }
        while let Some(taken) = self.outbox.front() {
            if self.is_kept() && (self.leader_end.is_some() || procfs::has_ended(leader)) {
                break; // for the one that is made again
            }
            if self.leader_end.is_none() && !child::queue(leader, taken) {
                break;
            }
            self.outbox.pop_front();
        }
        if self.is_child() {
            return; // it hears of its parent's end by `Tree::parent_died`
        }
        let wanted = self.group.parent_death().unwrap_or(self.parent_death);
        if wanted != self.parent_death {
            self.parent_death = wanted;
            match &self.hearing.front {
                Some(front) => front.when_parent_dies(wanted),
                None => child::when_parent_dies(wanted.cast_signed()),
            }
        }
    }

    /// Has those struck whose time has come; until the next one's.
    fn strike_by_the_clock(&mut self) -> Duration {
        if self.group.end() != end::RUNNING {
            return Duration::MAX;
        }
        let (concerned, next) = self.modules.flips.strike_by_the_clock(&self.group.memory);
        for (r, replica) in self.replicas.iter().enumerate() {
            if concerned >> r & 1 == 1 && replica.pid > 1 && !self.gone.contains_key(&replica.child)
            {
                child::kill(replica.pid, recovery::NUDGE);
            }
        }
        next.map_or(Duration::MAX, |next| next.max(Duration::from_micros(50)))
    }

    pub(crate) fn recovers(&self) -> bool {
        self.plan.on_mismatch == OnMismatch::Recover
    }
}

/// Stops by default, and can be taken.
fn stops(signal: i32) -> bool {
    matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}

/// CAP_SYS_ADMIN (bit 21) in the effective set: namespaces need no user namespace then.
pub(crate) fn has_sys_admin(process: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/status"))
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("CapEff:"))?;
            u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()
        })
        .is_some_and(|caps| caps & 1 << 21 != 0)
}
