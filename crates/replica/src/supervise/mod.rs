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
//! | `meeting` | threads and signals: where replicas take them, at one place |
//! | `recovery` | an alarm, from the count to the repaired group |
//! | `exec` | the leader becomes another program |
//! | `tree`, `ward` | programs that it starts, protected; whom they belong to |
//! | `bare` | programs that it starts, unprotected |
//! | `cpu_limit` | how much of the limits a group takes |

mod bare;
mod cpu_limit;
mod exec;
mod meeting;
pub(crate) mod recovery;
pub(crate) mod tree;
mod ward;

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use steadfast_integrity::digest;
use steadfast_integrity::event::{Event, EventSink, Refused, ReplicaStart, Role, RunStart, What};
use steadfast_integrity::exit::Verdict;
use steadfast_integrity::ids::{CoreId, EventIndex};
use steadfast_integrity::plan::{
    Backstop, CheckMemory, HugePages, OnMismatch, Plan, ProgramEnd, ReplicaTime, RunReport,
    StopReason, Timings,
};
use steadfast_sys::memory::Remote;
use steadfast_sys::pidfd::Process;
use steadfast_sys::{child, cpu, descriptor, procfs, shared::Shared, signals};

use self::cpu_limit::CpuLimit;
use self::exec::Becoming;
use self::meeting::Meeting;
use self::tree::{Post, Tree};
use self::ward::Ward;
use crate::abi::{self, end, option, phase, standstill};
use crate::front::Front;
use crate::group::{Group, at, core_id, id, ns};
use crate::held::{self, Held};
use crate::modules::{Modules, protection_at};
use crate::segments::Asks;
use crate::{LaunchError, Step, job_control, launch, limits, status};

/// Looks for hung replicas this often; fast enough for the second that the rule allows, slow
/// enough to cost an idle group nothing (10 wakes of about 20 µs a second).
pub(crate) const WATCH: Duration = Duration::from_millis(100);
/// The first signal that is real-time to the kernel (signal(7)); the C library keeps two for itself.
const REAL_TIME: i32 = 32;
/// Followers are behind their leader by what a loaded machine takes from them.
pub(crate) const LEAVES: Duration = Duration::from_secs(10);
/// Least time between two memory checks. A check and its snapshot cost about 0.3 ms for a
/// small program, which this keeps below the default budget of 1 %.
const EPOCH_US: u64 = 50_000;
/// A thread gives way to others after so long, at an event or where a payload counts (thread.c).
const SLICE_US: u64 = 10_000;
/// After a snapshot the next store to each page makes a copy of it. Measured on the reference
/// machine: 2.2 to 2.6 µs for each 4 KiB, in huge pages too, which split.
const COPY_NS: u64 = 2_400;
/// How long a signal that ends the program may wait for an event: default actions are promised
/// within 100 ms.
const LAST_EVENT: Duration = Duration::from_millis(60);
/// A SIGCONT that was sent before job control answered is heard within this: some turns of a busy
/// core. A stop sent to us alone waits as long.
const AFTERTHOUGHT: Duration = Duration::from_millis(30);
/// Processes that are left when the first one has ended, and are asked to end, have this long.
const TREE_ENDS: Duration = Duration::from_secs(10);
/// A replica that is to stand has to get through two clones.
const START_LIMIT: Duration = Duration::from_secs(10);

/// News from the helper threads.
#[derive(Debug)]
pub(crate) enum News {
    Child(i32, child::Change, child::Usage),
    Signal(signals::Taken),
    /// This leader has ended; its parent knows how.
    Ended(i32),
    /// A child that was about to become another program does not (tree.rs).
    Stay(Sender<()>),
}

/// A thread that has seen the stop of a traced process looks again after this: its tracer has taken it by then.
const TRACER_TAKES: Duration = Duration::from_micros(100);
/// The same for one that has no child at the moment, while the tree has groups.
const NO_CHILD: Duration = Duration::from_millis(5);

/// What a group hears: changes of its processes, and, the first group, signals of this process. These are taken from
/// the start by a thread that is never replaced: an attempt to start that fails loses none.
#[derive(Debug)]
pub(crate) struct Hearing {
    /// Signals that were blocked before.
    pub(crate) mask: u64,
    post: Post,
    news: Receiver<News>,
    pub(crate) tree: Arc<Tree>,
    /// The process that the caller waits for, where that is not this one.
    pub(crate) front: Option<Arc<Front>>,
}

impl Hearing {
    pub(crate) fn start(plan: &Plan, front: Option<Front>) -> Self {
        let blocked = signals::block_all();
        let mask = front.as_ref().map_or(blocked, Front::mask);
        child::adopt_orphans();
        let (tell, news) = channel();
        let post = Post {
            tell,
            bell: Arc::default(),
        };
        let tree = Tree::new(plan);
        tree.set_first(post.clone());
        Self {
            mask,
            post,
            news,
            tree,
            front: front.map(Arc::new),
        }
    }

    pub(crate) fn of(mask: u64, post: Post, news: Receiver<News>, tree: Arc<Tree>) -> Self {
        Self {
            mask,
            post,
            news,
            tree,
            front: None,
        }
    }

    /// Its number.
    fn front(&self) -> Option<i32> {
        self.front.as_ref().map(|front| front.pid())
    }

    pub(crate) fn post(&self) -> &Post {
        &self.post
    }

    pub(crate) fn next(&self, limit: Duration) -> Result<News, std::sync::mpsc::RecvTimeoutError> {
        self.news.recv_timeout(limit)
    }

    /// From here on changes of this process are told here.
    pub(crate) fn claim(&self, pid: i32) {
        self.tree.claim(pid, &self.post);
    }

    /// Begins to wait for the children of this process, until there are none.
    fn attend(&self) -> std::io::Result<()> {
        let tree = Arc::clone(&self.tree);
        let wait = move || loop {
            match child::wait_any(|pid| tree.accounts.look(pid)) {
                Some((pid, change, usage)) => {
                    tree.deliver(pid, change, usage);
                    if change == child::Change::Traced {
                        std::thread::sleep(TRACER_TAKES);
                    }
                }
                // A leader that is becoming another program can for a moment count as nobody's child.
                None => std::thread::sleep(NO_CHILD),
            }
        };
        std::thread::Builder::new().spawn(wait).map(drop)
    }

    /// Rings this group from now on; whether it is the first.
    pub(crate) fn ring(&self, group: &Arc<Group>) -> bool {
        self.post
            .bell
            .lock()
            .expect("no panic under it")
            .replace(Arc::clone(group))
            .is_none()
    }

    /// Begins to take signals, and rings this group.
    fn listen(&self, group: &Arc<Group>) -> std::io::Result<()> {
        if !self.ring(group) {
            return Ok(());
        }
        if let Some(front) = self.front.clone() {
            let post = self.post.clone();
            let hear = move || {
                while let Some(taken) = front.next() {
                    post.send(News::Signal(taken));
                }
            };
            std::thread::Builder::new().spawn(hear).map(drop)?;
        }
        let (post, front) = (self.post.clone(), self.front());
        let hear = move || loop {
            let taken = signals::next();
            // That one wakes this process, and comes from the front as well.
            if taken.signal != libc::SIGCONT || Some(taken.pid) != front {
                post.send(News::Signal(taken));
            }
        };
        std::thread::Builder::new().spawn(hear).map(drop)
    }
}

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
    /// When a signal that ends the program began to wait for the leader's next event.
    dying: Option<Instant>,
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
    pub(crate) meeting: Meeting,
    pub(crate) cpu_limit: CpuLimit,
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

/// What the kernel has counted for each leader, read once more when it has ended and before it
/// is reaped: whether its last write happened is not known otherwise.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Mutex<HashMap<i32, Account>>);

#[derive(Debug)]
struct Account {
    file: std::fs::File,
    /// Bytes written before the agent began to count.
    base: u64,
    last: Option<u64>,
}

/// `wchar` of /proc/PID/io (proc_pid_io(5)).
fn bytes_written(file: &mut std::fs::File) -> Option<u64> {
    use std::io::{Read, Seek};
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}

impl Accounts {
    /// Begins to count for a new leader. Opened while it lives: afterwards only its reader's
    /// rights at opening count.
    pub(crate) fn open(&self, pid: i32) {
        let account = std::fs::File::open(format!("/proc/{pid}/io"))
            .ok()
            .and_then(|mut file| {
                let base = bytes_written(&mut file)?;
                Some(Account {
                    file,
                    base,
                    last: None,
                })
            });
        let mut all = self.0.lock().expect("no panic under it");
        match account {
            Some(account) => all.insert(pid, account),
            None => all.remove(&pid),
        };
    }

    pub(crate) fn close(&self, pid: i32) {
        self.0.lock().expect("no panic under it").remove(&pid);
    }

    fn look(&self, pid: i32) {
        if let Some(account) = self.0.lock().expect("no panic under it").get_mut(&pid) {
            account.last = bytes_written(&mut account.file);
        }
    }

    /// Bytes the ended leader had written since it began to count.
    pub(crate) fn final_count(&self, pid: i32) -> Option<u64> {
        let all = self.0.lock().expect("no panic under it");
        let account = all.get(&pid)?;
        Some(account.last? - account.base)
    }
}

fn io_step<T>(step: Step, result: std::io::Result<T>) -> Result<T, LaunchError> {
    result.map_err(|source| LaunchError::Step { step, source })
}

fn spin_ticks(plan: &Plan, cores: &[usize]) -> (u32, u32) {
    // A sleeping wake across cores costs about 40 µs (docs/specification.md): spin as long
    // before giving the core away. With fewer cores than replicas the one waited for may need
    // this very core, so yield at once.
    let us = cpu::ticks_per_us();
    if cores.len() >= usize::from(plan.replicas) {
        (us * 40, 0)
    } else {
        (us, 50)
    }
}

/// A new control block for a plan's group. `privileged`: its replicas may make namespaces as they are.
pub(crate) fn control_block(
    plan: &Plan,
    cores: &[usize],
    equal_pids: bool,
    privileged: bool,
    more: u32,
) -> Result<Group, LaunchError> {
    limits::room()?;
    let memory = io_step(Step::Memory, Shared::new(c"steadfast", abi::SHARED_BYTES))?;
    Ok(control_block_in(
        memory, plan, cores, equal_pids, privileged, more,
    ))
}

/// The same in memory that is there.
pub(crate) fn control_block_in(
    memory: Shared,
    plan: &Plan,
    cores: &[usize],
    equal_pids: bool,
    privileged: bool,
    more: u32,
) -> Group {
    let n = u32::from(plan.replicas);
    let group = Group::new(memory);
    group.set64(at!(magic), 0x5354_4541_4446_4153);
    group.set32(at!(version), 1);
    group.set32(at!(replicas), n);
    group.set32(at!(wait live), (1 << n) - 1);
    let (spin, yields) = spin_ticks(plan, cores);
    group.set32(at!(spin_tsc), spin);
    group.set32(at!(yields), yields);
    group.set64(at!(slice_tsc), u64::from(cpu::ticks_per_us()) * SLICE_US);
    let affinity = cpu::affinity();
    group
        .memory
        .write(at!(wait affinity), &affinity[..affinity.len().min(256)]);
    group
        .memory
        .write(at!(wait allowed), &affinity[..affinity.len().min(256)]);
    group.set32(
        at!(wait affinity_bytes),
        u32::try_from(affinity.len().min(256)).expect("small"),
    );
    let mut options = match plan.backstop {
        Backstop::Token => option::SUD,
        Backstop::Seccomp => option::SECCOMP,
        Backstop::Both => option::SUD | option::SECCOMP,
        Backstop::None => 0,
    };
    if plan.huge_pages == HugePages::Auto {
        options |= option::HUGE;
    }
    if equal_pids {
        options |= option::PRIV_NS;
        if !privileged {
            options |= option::USER_NS;
        }
    }
    // With three or more replicas a majority is at hand; two need the log for a third opinion.
    let retain = plan.replicas == 2 && plan.on_mismatch == OnMismatch::Recover;
    if retain {
        options |= option::RETAIN;
    }
    for (wanted, bit) in [
        (plan.private.text, option::PRIVATE_TEXT),
        (plan.private.rodata, option::PRIVATE_RODATA),
        (plan.private.rest, option::PRIVATE_REST),
    ] {
        if wanted {
            options |= bit;
        }
    }
    match plan.check_memory {
        CheckMemory::Off => {}
        CheckMemory::Dirty => options |= option::CHECK_DIRTY,
        CheckMemory::Full => options |= option::CHECK_FULL,
    }
    // Under a profile checks by the clock would come a hundred times as often as they do.
    let timed = more & option::PROFILE == 0;
    if plan.replicas > 1 && timed && (retain || plan.check_memory != CheckMemory::Off) {
        let ticks_per_us = u64::from(cpu::ticks_per_us());
        group.set64(at!(epoch_tsc), ticks_per_us * EPOCH_US);
        group.set64(at!(copy_tsc), ticks_per_us * COPY_NS / 1000);
        group.set32(at!(epoch_permille), plan.epoch_budget.permille().into());
        group.set32(at!(snapshot_broken), 1);
    }
    group.set32(at!(options), options | more);
    group
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
            meeting: Meeting::default(),
            cpu_limit: CpuLimit::default(),
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
        let watch = move || {
            while !process.ends_within(Duration::from_secs(3600)) {}
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
    fn is_kept(&self) -> bool {
        self.keeper != 0
            && !(self.is_child() && (self.shares_memory() || self.forsaken || self.is_condemned()))
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
    fn stand(&mut self) -> Result<(), LaunchError> {
        let deadline = Instant::now() + START_LIMIT;
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
            if Instant::now() > deadline {
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

    fn core_for(&self, r: usize) -> Option<usize> {
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

    fn announce(&mut self, program: String) {
        let replicas = self.replica_starts();
        let start = RunStart {
            steadfast: env!("CARGO_PKG_VERSION").into(),
            program,
            args: std::iter::once(&self.plan.program)
                .chain(&self.plan.args)
                .map(|arg| arg.to_string_lossy().into_owned())
                .collect(),
            unix_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .into(),
            replicas,
            faults: self.plan.flips.clone(),
        };
        self.emit(What::RunStart(start));
        let coverage = self.modules.coverage(self.plan.explain);
        self.emit(What::Coverage(coverage));
    }

    pub(crate) fn emit(&mut self, what: What) {
        let event = Event {
            t_ns: ns(self.started.elapsed()),
            what,
        };
        match &mut self.held_back {
            Some(events) => events.push(event),
            None => self.send(event),
        }
    }

    /// Names of places are looked up here: that reads a library and its symbols.
    fn send(&mut self, mut event: Event) {
        if let What::Divergence(divergence) = &mut event.what {
            for site in divergence
                .votes
                .iter_mut()
                .filter_map(|vote| vote.site.as_mut())
            {
                *site = self.modules.site(site.address.0);
            }
        }
        self.sink.emit(event);
    }

    /// Does what the program waits for, and tells of it when it goes on.
    pub(crate) fn first(&mut self, what: impl FnOnce(&mut Self)) {
        let began = ns(self.started.elapsed());
        self.held_back = Some(Vec::new());
        what(self);
        let after = self.held_back.replace(Vec::new()).unwrap_or_default();
        self.note_faults();
        let before = self.held_back.take().unwrap_or_default();
        for event in before {
            self.send(Event {
                t_ns: began,
                ..event
            });
        }
        for event in after {
            self.send(event);
        }
    }

    fn setup_failed(&self) -> Result<(), LaunchError> {
        let value = self.group.get64(at!(end_value)).cast_signed();
        let nr = self.group.get32(at!(end_nr));
        let replica = self.group.get32(at!(end_slot));
        match self.group.end() {
            end::SETUP => {
                let source = std::io::Error::from_raw_os_error(i32::try_from(-value).unwrap_or(0));
                Err(match nr {
                    // crates/agent/src/init.c: the filter, user dispatch, private copies, signals, then the keeper and replicas.
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
        self.kill_all();
        let rest = self.until_the_tree_ends();
        self.kill_reaper();
        result?;
        rest?;
        Ok(self.report())
    }

    /// The program's first process has ended: others of its tree may go on.
    fn until_the_tree_ends(&mut self) -> Result<(), LaunchError> {
        let tree = Arc::clone(&self.hearing.tree);
        let mut failed = Ok(());
        let mut asked: Option<Instant> = None;
        loop {
            let seen = self.group.bell();
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
    fn let_the_caller_go_on(&mut self) {
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
    fn events_of_others(&self) -> u64 {
        if self.is_child() || self.row.is_some() {
            return 0; // asked for the first one, which is not listed any more
        }
        self.hearing.tree.events()
    }

    /// Passes on what other groups have told, and counts it.
    fn tell_of_the_tree(&mut self) {
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

    fn kill_reaper(&mut self) {
        let reaper = self.hearing.tree.take_reaper();
        if reaper > 1 {
            child::end(reaper);
        }
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
        self.is_no_ward_any_more();
        self.kill_all();
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
            self.show(false);
            if self.has_become_another() || self.has_gone_bare() {
                return Ok(());
            }
            if !self.is_child() {
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
            if self.group.get32(at!(alarm)) != abi::alarm::QUIET {
                self.show(true);
                self.first(Self::recover);
                if self.stop.is_some() {
                    return self.failed_check().map_or(Ok(()), Err);
                }
                continue;
            }
            self.note_faults();
            let mut until = WATCH;
            if self.group.end() == end::RUNNING {
                until = self
                    .look_at_the_limit()
                    .map_or(until, |left| until.min(left));
                if !self.cpu_limit.up {
                    self.look_for_the_keeper();
                    self.look_for_the_dead();
                    self.look_for_the_hung();
                    until = until.min(self.look_for_a_waiting_signal());
                    until = until.min(self.look_for_a_waiting_thread());
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
            self.group.sleep(seen, until);
            // What planning needed (a libc's symbols and instructions: 4 MiB) lies free by now.
            if self.group.bell() == seen && self.modules.rest() {
                steadfast_sys::memory::trim();
            }
        }
    }

    /// Has `steadfast ps` see how this group is.
    fn show(&mut self, repairing: bool) {
        let Some(mut row) = self.row.take() else {
            return;
        };
        let replica = |info: &ReplicaInfo| status::Replica {
            pid: info.pid,
            core: info.core.and_then(|core| u32::try_from(core).ok()),
        };
        let replicas: Vec<_> = self.replicas.iter().map(replica).collect();
        row.show(&status::Shown {
            repairing,
            threads: self.group.get32(at!(threads)).max(1),
            events: self.event(self.group.get64(at!(own 0, next))).0,
            repairs: self.recoveries - self.recoveries_elsewhere,
            at_ns: ns(self.started.elapsed()),
            replicas: &replicas,
        });
        self.row = Some(row);
    }

    /// Has nobody see this group any more.
    pub(crate) fn forget_row(&mut self) {
        self.row = None;
    }

    /// Whether this process shares writable memory with others of its tree (domain.c).
    pub(crate) fn shares_memory(&self) -> bool {
        self.group.get32(at!(domain)) != 0
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
        if self.stop.is_none() && !self.hearing.tree.is_ending() && !self.has_left_the_domain() {
            self.stop = Some(StopReason::Shared);
        }
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

    /// What keeps its value from here on is remembered where no replica can reach it.
    fn remember_constants(&mut self) {
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
                // Of one that can be made again this process is the parent, and is told more.
                News::Ended(pid) if !self.is_kept() => {
                    self.child_changed(pid, child::Change::Exited(0));
                }
                News::Ended(pid) => self.awaited_leader_ended(pid),
                News::Stay(_) => {}
            }
        }
    }

    /// The leader's time comes with its end; followers are asked before theirs.
    fn charge(&mut self, pid: i32, usage: child::Usage) {
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
                }
            }
            child::Change::Stopped(signal) if pid == self.replicas[0].child => {
                self.leader_stopped(signal)
            }
            child::Change::Traced => self.traced_stop(pid),
            child::Change::Stopped(_) | child::Change::Continued => {}
        }
    }

    fn leader(&self) -> i32 {
        self.replicas[0].pid
    }

    /// Says that this process runs, and does what it is to do now and then.
    fn beat(&mut self) {
        let beats = self.group.get32(at!(beat));
        self.group.set32(at!(beat), beats.wrapping_add(1));
        while let Some(taken) = self.outbox.front() {
            if self.leader_end.is_none() && !child::queue(self.replicas[0].pid, taken) {
                break;
            }
            self.outbox.pop_front();
        }
        let wanted = self
            .group
            .meant(at!(pdeathsig), at!(pdeathsig_inv))
            .unwrap_or(self.parent_death);
        if wanted != self.parent_death {
            self.parent_death = wanted;
            match &self.hearing.front {
                Some(front) => front.when_parent_dies(wanted),
                None => child::when_parent_dies(wanted.cast_signed()),
            }
        }
    }

    /// Job control stopped the leader: stand still with it, as one program, and show it to
    /// whoever waits for us.
    fn leader_stopped(&mut self, signal: i32) {
        // Stopped by job control because we were: the SIGCONT that woke us is on its way here.
        if self.group.get32(at!(standstill)) == standstill::LAUNCHER {
            return;
        }
        // News may be older than the SIGCONT that ended the stop. Sent to us alone it continues the
        // leader when its turn comes (`forward`), which it never would if we stopped now.
        std::thread::sleep(Duration::from_millis(2));
        if !procfs::is_stopped(self.leader()) || self.continued_since() {
            return;
        }
        self.group.set32(at!(standstill), standstill::LEADER);
        for r in 1..self.replicas.len() {
            self.signal_replica(r, libc::SIGSTOP);
        }
        // A terminal's stop signal means nothing to a process group that is not the leader's.
        let signal = if child::in_group_of(self.leader(), self.hearing.front().unwrap_or(0)) {
            signal
        } else {
            libc::SIGSTOP
        };
        match &self.hearing.front {
            Some(front) => front.stop(signal),
            None => child::stop_self(signal),
        }
        self.was_stopped = true;
        self.go_on();
    }

    /// Whether the newest word of job control that waits to be heard is to go on. One thread takes
    /// all signals, and the kernel drops stops when a SIGCONT comes and the other way round, so
    /// their order here is the true one.
    fn continued_since(&mut self) -> bool {
        self.collect();
        let mut signals = self.mail.iter().rev().filter_map(|news| match news {
            News::Signal(taken) => Some(taken.signal),
            News::Child(..) | News::Ended(_) | News::Stay(_) => None,
        });
        signals.find(|signal| *signal == libc::SIGCONT || stops(*signal)) == Some(libc::SIGCONT)
    }

    /// As above, for a stop that came to us alone, or to a group that has been continued before
    /// job control could tell: that SIGCONT is on its way here.
    fn soon_continued(&mut self) -> bool {
        let until = Instant::now() + AFTERTHOUGHT;
        loop {
            if self.continued_since() {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Continues whatever stands, or is about to: a process that has not run since its SIGSTOP
    /// does not show it yet.
    fn go_on(&mut self) {
        let all = self.group.get32(at!(standstill)) == standstill::LAUNCHER;
        // Before job control can take it for one that has just been stopped.
        if let Some(front) = &self.hearing.front {
            front.go_on();
        }
        self.group.set32(at!(standstill), standstill::MOVING);
        for r in 0..self.replicas.len() {
            if r > 0 || all || procfs::is_stopped(self.replicas[r].pid) {
                self.signal_replica(r, libc::SIGCONT);
            }
        }
    }

    pub(crate) fn signal_replica(&self, r: usize, signal: i32) {
        if self.replicas[r].pid > 1 {
            child::kill(self.replicas[r].pid, signal);
        }
    }

    /// A signal to us is one to the program, if the program has not had it already.
    fn forward(&mut self, taken: signals::Taken) {
        let (signal, from_kernel) = (taken.signal, taken.code > 0);
        let of_our_own = matches!(
            signal,
            libc::SIGCHLD | libc::SIGPIPE | libc::SIGXCPU | libc::SIGXFSZ
        );
        if taken.pid == self.job_control && signal == libc::SIGCONT {
            self.was_stopped = false;
        }
        // Older than the SIGCONT that ended our own stop, and ended by it.
        if stops(signal) && self.was_stopped {
            return;
        }
        if (from_kernel && of_our_own)
            || taken.pid.cast_unsigned() == std::process::id()
            || taken.pid == self.job_control
        {
            return;
        }
        // kill(2) and the kernel can mean a group, sigqueue(3) and tgkill(2) cannot. Job control
        // may be told a moment after us.
        let may_be_for_all = (from_kernel || taken.code == libc::SI_USER) && self.job_control > 1;
        let for_all = may_be_for_all
            && (job_control::was_for_all(&self.group, signal) || {
                std::thread::sleep(Duration::from_millis(1));
                job_control::was_for_all(&self.group, signal)
            });
        self.signals += 1;
        if signal == libc::SIGCONT {
            let expected = std::mem::take(&mut self.was_stopped);
            let standing = self.group.get32(at!(standstill)) != standstill::MOVING;
            if standing || procfs::is_stopped(self.leader()) {
                return self.go_on();
            }
            if expected {
                return;
            }
        }
        // Job control forgets a stop of the group when the group is continued.
        if for_all || (stops(signal) && self.soon_continued()) {
            return;
        }
        if taken.pid == self.leader() && !from_kernel {
            // The program knows us as its parent, and means ours.
            let front = self.hearing.front.as_ref();
            let parent = front.map_or_else(child::parent, |front| front.parent());
            if parent > 1 {
                child::kill(parent, signal);
            }
            return;
        }
        self.outbox.push_back(taken);
        self.beat();
    }

    /// The program's number of an entry of the log, which counts memory checks and deliveries of
    /// signals as well: these come by the clock.
    pub(crate) fn event(&self, seq: u64) -> EventIndex {
        let there = |r: &usize| self.group.get64(at!(own * r, next)) == seq;
        let r = (0..self.replicas.len()).find(there).unwrap_or(0);
        EventIndex(self.past_events + seq.saturating_sub(self.group.get64(at!(seen r, own_events))))
    }

    fn refused(&mut self) {
        let nr = self.group.get32(at!(end_nr));
        let detail = self.group.get64(at!(end_value));
        let steadfast_agent::Row { name, note } = steadfast_agent::command(nr, detail);
        let (why, fix) = match note.split_once("; fix: ") {
            Some((why, fix)) => (why, fix),
            None => (
                note.as_str(),
                "run the program without steadfast, or report what needs this call",
            ),
        };
        let fix = fix.to_owned();
        let ip = self.group.get64(at!(end_ip));
        let event = Refused {
            what: name,
            reason: why.to_owned(),
            event: Some(self.event(self.group.get64(at!(own 0, next)))),
            site: Some(self.modules.site(ip)),
            fix: Some(fix),
        };
        self.emit(What::Refused(event));
        self.stop = Some(StopReason::Refused);
    }

    /// Tells which injected faults have hit since the last look.
    pub(crate) fn note_faults(&mut self) {
        let mut flips = std::mem::take(&mut self.modules.flips);
        let news = flips.news(&self.group.memory, |addr| self.modules.site(addr));
        self.modules.flips = flips;
        for hit in news {
            self.emit(What::Fault(hit));
        }
    }

    /// Has those struck whose time has come; until the next one's.
    fn strike_by_the_clock(&mut self) -> Duration {
        if self.group.end() != end::RUNNING {
            return WATCH;
        }
        let (concerned, next) = self.modules.flips.strike_by_the_clock(&self.group.memory);
        for (r, replica) in self.replicas.iter().enumerate() {
            if concerned >> r & 1 == 1 && replica.pid > 1 && !self.gone.contains_key(&replica.child)
            {
                child::kill(replica.pid, recovery::NUDGE);
            }
        }
        next.map_or(WATCH, |next| next.max(Duration::from_micros(50)))
    }

    /// Answers the leader, which waits for it.
    pub(crate) fn answer_request(&mut self) {
        let (request, arg) = match self.group.question() {
            None => return,
            Some(Ok((abi::RPC_STAY, _))) => match self.on_its_way.take() {
                Some(child) => {
                    child.stays();
                    return self.group.answer(0);
                }
                None => return self.let_stay(),
            },
            Some(Ok(question)) => question,
            Some(Err(())) => return self.group.answer(abi::RPC_STRUCK),
        };
        let ret = match request {
            abi::RPC_PATCH => {
                let plan = self.plan_patches(
                    arg[0]..arg[0].saturating_add(arg[1]),
                    arg[2].cast_signed(),
                    arg[3],
                );
                self.give(&plan, arg[4])
            }
            abi::RPC_SITE => {
                let plan = self.plan_site(arg[0]);
                self.give(&plan, arg[4])
            }
            abi::RPC_HOLD => match self.held.hold(self.replicas[0].pid, arg[0], arg[1], arg[2]) {
                Ok(number) => i64::from(number),
                Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            abi::RPC_EXEC => self.let_exec(arg[0], arg[2], arg[3]),
            abi::RPC_SPAWN => self.let_spawn(arg[0], arg[1], arg[2], arg[3]),
            abi::RPC_FORK => self.let_fork(),
            abi::RPC_UNFORK => {
                if let Some(asked) = self
                    .asked
                    .take()
                    .filter(|asked| u64::try_from(asked.number()) == Ok(arg[0]))
                {
                    asked.forget();
                }
                0
            }
            abi::RPC_MADE => {
                self.hearing.tree.segments.made((arg[0], arg[1]));
                0
            }
            abi::RPC_OTHERS => self.held.others_view((arg[0], arg[1])).into(),
            abi::RPC_KILL => {
                let target = arg[0].cast_signed();
                self.hearing.tree.condemn(target, self.replicas[0].pid);
                0
            }
            abi::RPC_SEGMENT => match self.let_share(arg) {
                Ok(sum) => sum,
                Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            abi::RPC_DROP => {
                self.held.drop(arg[0]);
                0
            }
            _ => -i64::from(libc::ENOSYS),
        };
        self.group.answer(ret);
    }

    /// A file is mapped shared: 0, if as a view, [`abi::SEGMENT_NAMELESS`], or the sum of its length and its copies' numbers.
    fn let_share(&self, arg: [u64; 5]) -> std::io::Result<i64> {
        let [fd, dev, ino, domain, end] = arg;
        let file = if end & abi::SEGMENT_HELD == 0 {
            held::meant(self.replicas[0].pid, fd, (dev, ino))?.0
        } else {
            self.held.file(fd)?
        };
        let about = file.metadata()?;
        if end & abi::SEGMENT_HELD != 0 && about.nlink() == 0 {
            return Ok(abi::SEGMENT_NAMELESS);
        }
        let pages = u32::try_from(about.len().div_ceil(4096)).map_err(std::io::Error::other)?;
        let tree = &self.hearing.tree;
        let asks = Asks {
            group: self.held.group(),
            domain,
            end: end & !(abi::SEGMENT_NOW | abi::SEGMENT_HELD),
            in_company: end & abi::SEGMENT_NOW != 0 || self.is_child() || tree.has_children(),
            followers: self.replicas.len() - 1,
        };
        let Some(numbers) = tree.segments.map(file, &asks)? else {
            return Ok(0);
        };
        let mut bytes = [0; 4 * abi::SLOTS_MAX];
        bytes[..4].copy_from_slice(&pages.to_le_bytes());
        for (at, number) in bytes.chunks_exact_mut(4).skip(1).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        self.group.memory.write(at!(segment_ids), &bytes);
        Ok(abi::SEGMENT_SUM | i64::from(digest::crc32c(&bytes)))
    }

    /// The child that stands in for the leader is about to become another program, of this path in this directory: 0,
    /// [`abi::EXEC_BARE`], or the number that refuses it.
    fn let_spawn(&mut self, mask: u64, pid: u64, path: u64, dir: u64) -> i64 {
        let pid = i32::try_from(pid).unwrap_or(0);
        if pid <= 1 || !procfs::descends(pid, self.replicas[0].pid) || self.post_reaper().is_err() {
            return abi::NR_EXEC_TRACE.into();
        }
        let bare = bare::named(self.plan, pid, path, dir);
        let answer = if bare.is_some() { abi::EXEC_BARE } else { 0 };
        match tree::by_exec(&self.hearing.tree, pid, mask, bare) {
            Ok(child) => {
                self.on_its_way = Some(child);
                answer
            }
            Err(number) => number.into(),
        }
    }

    /// The replicas are about to copy themselves: the descriptor of their copies' memory, or an errno.
    fn let_fork(&mut self) -> i64 {
        if self.post_reaper().is_err() {
            return -i64::from(libc::EAGAIN);
        }
        let fixed = self.agent_fixed.len() as u64;
        let mut modules = self.modules.copy();
        let rank = self.hearing.tree.next_rank();
        match self.modules.flips.of_copy(self.plan, rank) {
            Ok(flips) => modules.flips = flips,
            Err(_) => return -i64::from(libc::EAGAIN),
        }
        match tree::by_fork(
            &self.hearing.tree,
            &self.group,
            self.replicas[0].pid,
            self.hearing.mask,
            modules,
            fixed,
        ) {
            Ok(asked) => {
                let number = asked.number();
                self.asked = Some(asked);
                number.into()
            }
            Err(_) => -i64::from(libc::EAGAIN),
        }
    }

    /// The child that was on its way has gone it.
    pub(crate) fn forget_child(&mut self) {
        self.on_its_way = None;
    }

    fn post_reaper(&self) -> std::io::Result<()> {
        if self.is_child() {
            Ok(())
        } else {
            self.hearing.tree.post_reaper()
        }
    }

    /// Writes a plan to the payload; its length.
    fn give(&self, answer: &[u8], out: u64) -> i64 {
        let Ok(out) = usize::try_from(out) else {
            return 0;
        };
        if out.saturating_add(answer.len()) > abi::PAYLOAD_BYTES {
            return 0;
        }
        self.group.memory.write(abi::OFF_PAYLOAD + out, answer);
        i64::try_from(answer.len()).expect("bounded by the payload")
    }

    /// A program with stores to a shared mapping dies at its next event, where they can be agreed
    /// on. One that comes to none in time dies where it is: the leader does so at the second signal.
    fn hasten_death(&mut self) -> Duration {
        let signal = self
            .group
            .meant(at!(dying), at!(dying_inv))
            .unwrap_or(0)
            .cast_signed();
        if signal == 0 || self.leader_end.is_some() {
            self.dying = None;
            return WATCH;
        }
        let since = *self.dying.get_or_insert_with(Instant::now);
        if let Some(left) = LAST_EVENT.checked_sub(since.elapsed()) {
            return left.max(Duration::from_millis(1));
        }
        self.dying = None;
        self.group.set32(at!(dying), 0);
        child::kill(self.replicas[0].pid, signal);
        WATCH
    }

    fn plan_site(&mut self, addr: u64) -> Vec<u8> {
        let Ok(maps) = procfs::maps(self.replicas[0].pid) else {
            return Vec::new();
        };
        let protection = protection_at(&maps, addr);
        let mut taken: Vec<_> = maps.into_iter().map(|m| m.range).collect();
        taken.push(abi::BASE..abi::AGENT_END);
        self.modules
            .add_site(addr, &taken)
            .map_or_else(Vec::new, |prepared| prepared.encode(protection))
    }

    fn plan_patches(&mut self, region: Range<u64>, fd: i64, offset: u64) -> Vec<u8> {
        let leader = self.replicas[0].pid;
        let open_as = std::path::PathBuf::from(format!("/proc/{leader}/fd/{fd}"));
        let name = std::fs::read_link(&open_as).unwrap_or_default();
        let start = region.start;
        // Only those are asked for them that have something to be patched.
        let protection = Cell::new(0);
        let taken = || {
            let maps = procfs::maps(leader).ok()?;
            protection.set(protection_at(&maps, start));
            let mut taken: Vec<_> = maps.into_iter().map(|m| m.range).collect();
            taken.push(abi::BASE..abi::AGENT_END);
            Some(taken)
        };
        let prepared = self.modules.add(&name, &open_as, region, offset, taken);
        self.modules.flips.write(&self.group.memory);
        let Some(prepared) = prepared else {
            return Vec::new();
        };
        if prepared.writes.is_empty() && prepared.traps.is_empty() {
            return Vec::new();
        }
        prepared.encode(protection.get())
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
        if self.promotions == 0 {
            self.is_no_ward_any_more();
        }
        self.watch = recovery::Watch::default();
        self.meeting = Meeting::default();
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
    fn strike_down(&mut self, child: i32) -> bool {
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

    fn summed_up(&mut self) -> RunReport {
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
