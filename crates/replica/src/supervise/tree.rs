//! Tree: the processes of a program, each a group of its own.
//!
//! ```text
//!   a leader asks (RPC_SPAWN, RPC_FORK) ──► a thread for the child's group ──► watch ──► its leader has ended
//!   exec:  seize ──► exec stop ──► launch_again ──► ready ──► go
//!   fork:  memory for the group ──► leader and followers copy themselves into it ──► ready ──► go
//! ```
//!
//! One launcher supervises all of them, with a thread and a [`Supervisor`] for each group. Leaders are the children of
//! the leaders that made them, so numbers, statuses and process groups are the program's own; all other processes are
//! children of the launcher, which orphans come to. The thread that waits for children hands each change to the group
//! whose process it is.
//!
//! Invariants
//!  1. A group that cannot go on ends the tree: nothing of it runs on unprotected, or without one of its parts.
//!  2. Leaders outlive the launcher in no case: a process that survives it, the reaper, ends those on its list.
//!
//! What a leader that is killed had for children, and what a killed child is to its parent, is in ward.rs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use steadfast_contract::event::{Event, EventSink, Exec, OfProcess, What};
use steadfast_contract::plan::{FaultReport, Plan, StopReason};
use steadfast_fault::ids::EventIndex;
use steadfast_sys::pidfd::Process;
use steadfast_sys::shared::Shared;
use steadfast_sys::signals::Taken;
use steadfast_sys::{child, procfs, ptrace, segment};

use crate::abi::{self, end, option};
use crate::flips::Flips;
use crate::group::{Group, at};
use crate::modules::Modules;
use crate::segments::Segments;
use crate::status::LEADERS_MAX;
use crate::supervise::bare;
use crate::supervise::offspring::Offspring;
use crate::supervise::ward::Ward;
use crate::supervise::{
    Accounts, Birth, Hearing, News, Supervisor, control_block, control_block_in,
};
use crate::{LaunchError, launch, status};

/// How long somebody's death is remembered for a group that has not heard of its life.
const UNCLAIMED: Duration = Duration::from_secs(10);
/// How often a thread that waits for its child looks whether the tree has ended.
const LOOK: Duration = Duration::from_millis(100);
/// How often a copy that has not said its number is looked for: its parent remembers the last ones ([`abi::FORKED_MAX`]), and
/// makes less than one in a millisecond.
const BORN: Duration = Duration::from_millis(5);
/// A thread that was told of a child answers at once.
const ANSWER: Duration = Duration::from_secs(5);

/// Where a group's news go.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    pub(crate) tell: Sender<News>,
    pub(crate) bell: Arc<Mutex<Option<Arc<Group>>>>,
}

impl Post {
    pub(crate) fn send(&self, news: News) {
        let _ = self.tell.send(news);
        self.ring();
    }

    pub(crate) fn group(&self) -> Option<Arc<Group>> {
        locked(&self.bell).clone()
    }

    /// Whether both are the same group's.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bell, &other.bell)
    }

    fn ring(&self) {
        if let Some(group) = locked(&self.bell).as_ref() {
            group.ring_launcher();
        }
    }
}

/// Why the tree cannot go on.
#[derive(Debug)]
pub(crate) enum Failure {
    Stopped(StopReason),
    Launch(LaunchError),
}

/// A group that has a thread.
#[derive(Debug)]
struct Living {
    post: Post,
    /// Of the group that made it.
    parent: Post,
    /// Its leader, once that is known; and what was passed on to all before.
    leader: Option<Process>,
    owed: Vec<i32>,
    /// The processes of its replicas, as far as they are known.
    crew: Vec<i32>,
    /// Its leader can be made again: its end is not the group's.
    kept: bool,
    /// Unless a process of the tree kills it.
    condemned: bool,
    /// The number that its parent knows it by.
    number: i32,
    ward: Option<Arc<Ward>>,
}

#[derive(Debug, Default)]
struct Register {
    posts: HashMap<i32, Post>,
    unclaimed: HashMap<i32, (child::Change, child::Usage, Instant)>,
}

/// What all groups of a run have in common.
#[derive(Debug)]
pub(crate) struct Tree {
    plan: Plan,
    pub(crate) since: Instant,
    register: Mutex<Register>,
    living: Mutex<HashMap<usize, Living>>,
    pub(crate) offspring: Offspring,
    born: AtomicUsize,
    /// Processes that have become groups, the first one not counted; and what faults have done in those that have ended.
    ranked: AtomicU32,
    hits: Mutex<Vec<u64>>,
    told: Mutex<Vec<Event>>,
    first: Mutex<Option<Post>>,
    first_crew: Mutex<Vec<i32>>,
    failed: Mutex<Option<Failure>>,
    ending: AtomicBool,
    /// Whether a leader was made again.
    renumbered: AtomicBool,
    list: Mutex<Option<Shared>>,
    reaper: AtomicI32,
    shown: OnceLock<Arc<status::Table>>,
    pub(crate) segments: Segments,
    /// Where the processes of all its programs take turns, if this system has such segments (domain.c).
    turns: Option<Shared>,
    pub(crate) accounts: Accounts,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Tree {
    pub(crate) fn new(plan: &Plan) -> Arc<Self> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let owner = procfs::effective_ids(own).unwrap_or_default();
        Arc::new(Self {
            plan: plan.clone(),
            since: Instant::now(),
            register: Mutex::default(),
            living: Mutex::default(),
            offspring: Offspring::default(),
            born: AtomicUsize::new(0),
            ranked: AtomicU32::new(0),
            hits: Mutex::default(),
            told: Mutex::default(),
            first: Mutex::default(),
            first_crew: Mutex::default(),
            failed: Mutex::default(),
            ending: AtomicBool::new(false),
            renumbered: AtomicBool::new(false),
            list: Mutex::default(),
            reaper: AtomicI32::new(0),
            shown: OnceLock::new(),
            segments: Segments::default(),
            turns: Shared::attachable(4096, owner, 0o600).ok(),
            accounts: Accounts::default(),
        })
    }

    /// A program is about to begin in a process, which attaches what all of them have.
    pub(crate) fn gives_turns(&self, group: &Group, pid: i32) {
        if let Some(number) = self.turns.as_ref().and_then(Shared::id)
            && procfs::effective_ids(pid).is_some_and(|ids| segment::give_to(number, ids).is_ok())
        {
            group.set64(at!(domain_page), u64::try_from(number).map_or(0, |n| n + 1));
        }
    }

    /// Where events of the tree are to be heard.
    pub(crate) fn set_first(&self, post: Post) {
        *locked(&self.first) = Some(post);
    }

    /// Makes the table that groups are shown in; called before the first one starts.
    pub(crate) fn make_visible(&self, front: Option<i32>) -> std::io::Result<()> {
        let table = status::Table::new(front)?;
        self.shown.get_or_init(|| table);
        Ok(())
    }

    /// Where a group shows itself.
    pub(crate) fn row(&self) -> Option<status::Row> {
        self.shown.get()?.row()
    }

    /// Events of all groups that are shown.
    pub(crate) fn events(&self) -> u64 {
        self.shown.get().map_or(0, |table| table.events())
    }

    /// The place of a new group in the order of creation, which faults name it by; the first process has 0.
    pub(crate) fn next_rank(&self) -> u32 {
        self.ranked.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// What the faults of the plan have done in a group that has ended.
    pub(crate) fn count_hits(&self, faults: &[FaultReport]) {
        let mut hits = locked(&self.hits);
        let len = hits.len().max(faults.len());
        hits.resize(len, 0);
        for (all, one) in hits.iter_mut().zip(faults) {
            *all += one.hits;
        }
    }

    /// Adds what they have done in all groups but the first.
    pub(crate) fn add_hits(&self, faults: &mut [FaultReport]) {
        for (one, elsewhere) in faults.iter_mut().zip(locked(&self.hits).iter()) {
            one.hits += elsewhere;
        }
    }

    /// From here on changes of this process are this group's.
    pub(crate) fn claim(&self, pid: i32, post: &Post) {
        if pid <= 1 {
            return;
        }
        self.offspring.reused(pid);
        let mut register = locked(&self.register);
        if let Some((change, usage, _)) = register.unclaimed.remove(&pid) {
            drop(register);
            post.send(News::Child(pid, change, usage));
        } else {
            register.posts.entry(pid).or_insert_with(|| post.clone());
        }
    }

    /// The same of a process that has just been made. One that had its number before was perhaps its parent's to wait for: of that one's end nobody
    /// here was told.
    fn claim_new(&self, pid: i32, post: &Post) {
        self.disclaim(pid);
        self.claim(pid, post);
    }

    /// Changes of this process are nobody's again.
    fn disclaim(&self, pid: i32) {
        locked(&self.register).posts.remove(&pid);
    }

    /// A group is no more. Of a leader's end its parent was told, and not this process: whoever is told of that number's changes is
    /// forgotten here, and the memory that the group had in common with it.
    fn forget(&self, post: &Post) {
        locked(&self.register)
            .posts
            .retain(|_, other| !other.is(post));
        *locked(&post.bell) = None;
    }

    /// A child, or a process that somebody here traces, has changed.
    pub(crate) fn deliver(&self, pid: i32, change: child::Change, usage: child::Usage) {
        let ended = matches!(
            change,
            child::Change::Exited(_) | child::Change::Signaled(_)
        );
        if ended {
            self.offspring.ended(pid, change);
        }
        let mut register = locked(&self.register);
        let post = if ended {
            register.posts.remove(&pid)
        } else {
            register.posts.get(&pid).cloned()
        };
        if post.is_none() && ended {
            register
                .unclaimed
                .retain(|_, (_, _, when)| when.elapsed() < UNCLAIMED);
            register
                .unclaimed
                .insert(pid, (change, usage, Instant::now()));
        }
        drop(register);
        if let Some(post) = post {
            post.send(News::Child(pid, change, usage));
        }
    }

    /// Whether there is a group beside the first.
    pub(crate) fn has_children(&self) -> bool {
        !locked(&self.living).is_empty()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Ends every group. Nobody hears of another one's end and goes on, by a wait or by the end of a pipe: all stand still before
    /// the first one ends, parents first, since a stop is told to them.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        let first = locked(&self.first_crew).first().copied();
        let first = first.filter(|leader| child::is_child(*leader));
        let all = locked(&self.living);
        let mut groups: Vec<_> = all.iter().collect();
        groups.sort_unstable_by_key(|(born, _)| **born);
        for signal in [libc::SIGSTOP, libc::SIGKILL] {
            if let Some(leader) = first {
                child::kill(leader, signal);
            }
            for (_, living) in &groups {
                if let Some(leader) = &living.leader {
                    leader.signal(signal);
                }
            }
        }
        for (_, living) in groups {
            living.post.ring();
        }
    }

    /// Whether a process other than the first has not ended; groups that are being wound up do not count.
    pub(crate) fn goes_on(&self) -> bool {
        let lives = |living: &Living| {
            let leader = living.leader.as_ref();
            living.kept || leader.is_some_and(|leader| !leader.ends_within(Duration::ZERO))
        };
        locked(&self.living).values().any(lives)
    }

    /// Sends a signal to every process of the tree, those that are being made included.
    pub(crate) fn pass_on(&self, taken: &Taken) {
        for one in locked(&self.living).values_mut() {
            match &one.leader {
                Some(leader) => leader.signal(taken.signal),
                None => one.owed.push(taken.signal),
            }
        }
    }

    /// A group's leader is known from here on.
    fn led_by(&self, id: usize, pid: i32) {
        if let Some(living) = locked(&self.living).get_mut(&id) {
            living.leader = Process::open(pid).ok();
            for signal in std::mem::take(&mut living.owed) {
                child::kill(pid, signal);
            }
            living.crew = vec![pid];
            living.number = pid;
            self.offspring.born(&living.parent, &living.post, pid);
        }
        if let Some(first) = locked(&self.first).as_ref() {
            first.ring();
        }
    }

    /// Another process leads the group that is told of changes here.
    pub(crate) fn led_anew(&self, post: &Post, pid: i32) {
        self.change(post, |living| living.leader = Process::open(pid).ok());
        self.offspring.led_anew(post, pid);
        self.renumbered.store(true, Ordering::SeqCst);
        let all = locked(&self.living);
        let groups = all.values().map(|living| &living.post);
        groups
            .chain(locked(&self.first).as_ref())
            .filter_map(Post::group)
            .for_each(|group| self.says_who_is_renumbered(&group));
    }

    /// Whether a leader was made again: its number may be another one (crates/agent, number.c).
    pub(crate) fn says_who_is_renumbered(&self, group: &Group) {
        let renumbered = self.renumbered.load(Ordering::SeqCst);
        group.set32(at!(renumbered), renumbered.into());
    }

    /// The group that processes of the tree know by this number, and who leads it.
    fn known_as(&self, number: i32) -> Option<(Post, i32)> {
        let all = locked(&self.living);
        if let Some(living) = all.values().find(|living| living.number == number) {
            let leader = living.crew.first().copied().unwrap_or(0);
            return Some((living.post.clone(), leader));
        }
        let first = locked(&self.first).clone()?;
        let its = first.group()?.get32(at!(leader_pid));
        let leader = locked(&self.first_crew).first().copied().unwrap_or(0);
        (its == number.cast_unsigned()).then_some((first, leader))
    }

    /// Who leads the group of this number, if that is another process; else 0.
    pub(crate) fn led_by_another(&self, number: u64) -> i64 {
        let number = i32::try_from(number).unwrap_or(0);
        let another = |(_, leader): &(Post, i32)| *leader > 1 && *leader != number;
        let known = self.known_as(number).filter(another);
        known.map_or(0, |(_, leader)| leader.into())
    }

    /// The number of the process that has made this group, if that goes on though its leader was killed; else 0.
    pub(crate) fn parent_of(&self, post: &Post) -> i64 {
        let all = locked(&self.living);
        let Some(of) = all.values().find(|living| living.post.is(post)) else {
            return 0;
        };
        let (parent, number) = (of.parent.clone(), |living: &Living| living.number);
        let its = all.values().find(|living| living.post.is(&parent));
        let number = its.map(number).or_else(|| {
            let first = locked(&self.first);
            let group = first.as_ref().filter(|first| first.is(&parent))?.group()?;
            Some(group.get32(at!(leader_pid)).cast_signed())
        });
        drop(all);
        let is_running = |group: Arc<Group>| group.end() == end::RUNNING;
        let goes_on = self.is_kept(&parent) && parent.group().is_some_and(is_running);
        number.filter(|_| goes_on).map_or(0, i64::from)
    }

    /// A signal has come to this process when its leader was dead: whether another one will get it.
    pub(crate) fn tell_later(&self, number: i32, taken: Taken) -> bool {
        let Some((post, _)) = self.known_as(number) else {
            return false;
        };
        let is_running = |group: Arc<Group>| group.end() == end::RUNNING;
        let goes_on = self.is_kept(&post) && post.group().is_some_and(is_running);
        if goes_on && taken.signal > 0 {
            post.send(News::Late(taken));
        }
        goes_on
    }

    /// Whether a group goes on when its leader has ended, as far as is known. The first one does if it can.
    fn is_kept(&self, post: &Post) -> bool {
        let all = locked(&self.living);
        let its = all.values().find(|living| living.post.is(post));
        let may = |one: &Living| (one.kept || one.ward.is_some()) && !one.condemned;
        its.is_none_or(may)
    }

    /// That group goes on when its leader has ended.
    pub(crate) fn keeps(&self, post: &Post) {
        self.change(post, |living| living.kept = true);
        self.offspring.kept(post);
    }

    /// A group has a new process for replica `r`.
    pub(crate) fn joined_by(&self, post: &Post, r: usize, pid: i32) {
        let put = |crew: &mut Vec<i32>| {
            crew.resize(crew.len().max(r + 1), 0);
            crew[r] = pid;
        };
        if self.is_first(post) {
            return put(&mut locked(&self.first_crew));
        }
        self.change(post, |living| put(&mut living.crew));
    }

    fn is_first(&self, post: &Post) -> bool {
        let first = locked(&self.first);
        let first = first.as_ref();
        first.is_some_and(|first| Arc::ptr_eq(&first.bell, &post.bell))
    }

    /// The processes of all other groups, leaders first; of one that is on its way there may be none yet.
    pub(crate) fn others(&self, post: &Post) -> Vec<Vec<i32>> {
        let mut crews = Vec::new();
        if !self.is_first(post) {
            crews.push(locked(&self.first_crew).clone());
        }
        let all = locked(&self.living);
        let others = all
            .values()
            .filter(|one| !Arc::ptr_eq(&one.post.bell, &post.bell));
        crews.extend(others.map(|one| one.crew.clone()));
        crews
    }

    /// Its parent is told of its leader's end by a proxy.
    pub(crate) fn has_ward(&self, post: &Post, ward: &Arc<Ward>) {
        self.change(post, |living| living.ward = Some(Arc::clone(ward)));
        self.offspring.has_ward(post, ward);
    }

    /// A leader has ended, and its parent may wait for it: what the kernel knows of it is read before.
    pub(super) fn looks_at_the_end(&self, post: &Post, leader: i32) {
        self.accounts.look(leader);
        self.change(post, |living| {
            if let Some(ward) = &living.ward {
                ward.was_looked_at(leader);
            }
        });
    }

    /// Whether a process of the tree has this number, as its program knows it.
    pub(crate) fn has(&self, number: u64) -> bool {
        let first = locked(&self.first).as_ref().and_then(Post::group);
        let is_first = |group: Arc<Group>| u64::from(group.get32(at!(leader_pid))) == number;
        let all = locked(&self.living);
        first.is_some_and(is_first)
            || all
                .values()
                .any(|one| u64::try_from(one.number) == Ok(number))
    }

    /// The memory of the group that a process leads.
    pub(crate) fn led_by_process(&self, pid: i32) -> Option<Arc<Group>> {
        if locked(&self.first_crew).first() == Some(&pid) {
            return locked(&self.first).as_ref()?.group();
        }
        let all = locked(&self.living);
        let leads = |living: &&Living| living.crew.first() == Some(&pid);
        all.values().find(leads)?.post.group()
    }

    /// A process of the tree is about to kill these, as kill(2) means them: where a leader dies of it that is its group's end.
    pub(crate) fn condemn(&self, target: i64, sender: i32) {
        let group = match target {
            0 => child::group_of(sender),
            ..=-2 => i32::try_from(-target).ok(),
            _ => None,
        };
        for living in locked(&self.living).values_mut() {
            let leader = living.crew.first().copied().unwrap_or(0);
            let meant = target == -1
                || target > 0 && [living.number, leader].map(i64::from).contains(&target)
                || group.is_some() && leader > 1 && child::group_of(leader) == group;
            if meant {
                living.condemned = true;
                if let Some(ward) = &living.ward {
                    ward.let_go();
                }
            }
        }
    }

    /// The process of this group has ended: its children hear of that as they have asked (prctl(2), PR_SET_PDEATHSIG).
    pub(crate) fn parent_died(&self, parent: &Post) {
        let mut all = locked(&self.living);
        for living in all.values_mut().filter(|one| one.parent.is(parent)) {
            let wanted = living.post.group().and_then(|group| group.parent_death());
            let Some(signal) = wanted.filter(|signal| *signal != 0) else {
                continue;
            };
            if signal.cast_signed() == libc::SIGKILL {
                living.condemned = true;
                if let Some(ward) = &living.ward {
                    ward.let_go();
                }
            }
            if let Some(leader) = &living.leader {
                leader.signal(signal.cast_signed());
            }
        }
    }

    pub(crate) fn is_condemned(&self, post: &Post) -> bool {
        let all = locked(&self.living);
        let mut its = all
            .values()
            .filter(|one| Arc::ptr_eq(&one.post.bell, &post.bell));
        its.next().is_some_and(|living| living.condemned)
    }

    fn change(&self, post: &Post, how: impl FnOnce(&mut Living)) {
        let mut all = locked(&self.living);
        let its = |living: &&mut Living| Arc::ptr_eq(&living.post.bell, &post.bell);
        if let Some(living) = all.values_mut().find(its) {
            how(living);
        }
    }

    pub(crate) fn fail(&self, failure: Failure) {
        locked(&self.failed).get_or_insert(failure);
        if let Some(first) = locked(&self.first).as_ref() {
            first.ring();
        }
        self.end();
    }

    pub(crate) fn take_failure(&self) -> Option<Failure> {
        locked(&self.failed).take()
    }

    /// What has happened in other groups since the last call.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *locked(&self.told))
    }

    /// Has the reaper know a leader, before it can outlive this process. In the first thread alone the reaper can be
    /// made: it hears of that thread's end.
    pub(crate) fn list(&self, pid: i32) -> Option<usize> {
        let list = locked(&self.list);
        let list = list.as_ref()?;
        let free = (0..LEADERS_MAX).find(|index| list.get64(16 * index) == 0)?;
        list.set64(16 * free + 8, procfs::start_time(pid).unwrap_or(0));
        list.set64(16 * free, u64::try_from(pid).ok()?);
        Some(free)
    }

    fn strike_off(&self, entry: usize) {
        if let Some(list) = locked(&self.list).as_ref() {
            list.set64(16 * entry, 0);
        }
    }

    /// Makes the reaper; called by the first group's thread.
    pub(crate) fn post_reaper(&self) -> std::io::Result<()> {
        let mut place = locked(&self.list);
        if place.is_some() {
            return Ok(());
        }
        let list = Shared::new(c"steadfast-tree", 16 * LEADERS_MAX)?;
        self.reaper.store(reaper(&list)?, Ordering::SeqCst);
        *place = Some(list);
        Ok(())
    }

    /// Makes another reaper where the last one has ended, killed or by a fault; called by the first group's thread.
    pub(crate) fn mend_reaper(&self) -> std::io::Result<()> {
        let last = self.reaper.load(Ordering::SeqCst);
        if last > 1
            && !child::is_child(last)
            && let Some(list) = locked(&self.list).as_ref()
        {
            self.reaper.store(reaper(list)?, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The reaper's number, once: whoever takes it ends it.
    pub(crate) fn take_reaper(&self) -> i32 {
        self.reaper.swap(0, Ordering::SeqCst)
    }
}

fn reaper(list: &Shared) -> std::io::Result<i32> {
    let launcher = i32::try_from(std::process::id()).unwrap_or(0);
    let since = procfs::start_time(launcher);
    child::survivor(|| reap(list, launcher, since))
}

/// Ends leaders that have outlived the launcher. That it has ended is looked at once more: a fault may have struck this process.
fn reap(list: &Shared, launcher: i32, since: Option<u64>) {
    while procfs::start_time(launcher) == since && !procfs::has_ended(launcher) {
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..3 {
        for index in 0..LEADERS_MAX {
            let (pid, since) = (list.get64(16 * index), list.get64(16 * index + 8));
            let Ok(pid) = i32::try_from(pid) else {
                continue;
            };
            if pid > 1 && procfs::start_time(pid) == Some(since) {
                child::kill(pid, libc::SIGKILL);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tells the first group's thread, which tells the user.
struct Told {
    tree: Arc<Tree>,
    pid: i32,
}

impl EventSink for Told {
    fn emit(&mut self, event: Event) {
        let what = What::Process(Box::new(OfProcess {
            pid: self.pid.cast_unsigned(),
            what: event.what,
        }));
        locked(&self.tree.told).push(Event {
            t_ns: event.t_ns,
            what,
        });
        if let Some(first) = locked(&self.tree.first).as_ref() {
            first.ring();
        }
    }
}

/// A child that is on its way to become another program, as its parent's group knows it.
#[derive(Debug)]
pub(crate) struct OnItsWay {
    post: Post,
    pub(crate) pid: i32,
    /// The event of its parent's group that it leaves by.
    pub(crate) event: u64,
    fate: Arc<OnceLock<Fate>>,
}

/// What has become of a child that was on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Another,
    Ended,
    /// It has ended, as the one or the other.
    Unknown,
}

/// A copy of a group that has been asked for, as its parent knows it.
#[derive(Debug)]
pub(crate) struct Asked {
    number: i32,
    post: Post,
}

/// Strikes a group off when its thread ends, however that is.
struct Life {
    tree: Arc<Tree>,
    id: usize,
    entry: Option<usize>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.tree.strike_off(entry);
        }
        let living = locked(&self.tree.living).remove(&self.id);
        if let Some(living) = living {
            self.tree.offspring.left(&living.post);
            self.tree.forget(&living.post);
        }
        if let Some(first) = locked(&self.tree.first).as_ref() {
            first.ring();
        }
    }
}

fn begin(
    tree: &Arc<Tree>,
    parent: &Post,
    mask: u64,
    life: impl FnOnce(Hearing, Life) + Send + 'static,
) -> std::io::Result<Post> {
    let (tell, news) = channel();
    let post = Post {
        tell,
        bell: Arc::default(),
    };
    let id = tree.born.fetch_add(1, Ordering::SeqCst) + 1;
    let living = Living {
        post: post.clone(),
        parent: parent.clone(),
        leader: None,
        owed: Vec::new(),
        crew: Vec::new(),
        kept: false,
        condemned: false,
        number: 0,
        ward: None,
    };
    locked(&tree.living).insert(id, living);
    let hearing = Hearing::of(mask, post.clone(), news, Arc::clone(tree));
    let alive = Life {
        tree: Arc::clone(tree),
        id,
        entry: None,
    };
    std::thread::Builder::new().spawn(move || life(hearing, alive))?;
    Ok(post)
}

/// Cores of the group that was born as number `id`: leaders make all calls, so they take turns.
fn cores(plan: &Plan, id: usize) -> Vec<usize> {
    let mut cores = launch::cores(plan).unwrap_or_default();
    let len = cores.len().max(1);
    cores.rotate_left(id % len);
    cores
}

/// A group for the child `pid`, which is about to become another program; or nobody but a thread, where that runs bare. An
/// error: the agent's number for why not.
pub(crate) fn by_exec(
    tree: &Arc<Tree>,
    parent: &Post,
    pid: i32,
    mask: u64,
    parent_death: u32,
    bare: Option<String>,
    event: u64,
) -> Result<OnItsWay, u32> {
    let (ready, answer) = channel();
    let fate = Arc::new(OnceLock::new());
    let its = Arc::clone(&fate);
    let life = move |hearing: Hearing, life: Life| match bare {
        Some(program) => unprotected(&hearing, life, pid, program, (&ready, &its)),
        None => exec(&hearing, life, pid, (mask, parent_death), (&ready, &its)),
    };
    let post = begin(tree, parent, mask, life).map_err(|_| abi::NR_EXEC_TRACE)?;
    match answer.recv_timeout(ANSWER) {
        Ok(true) => Ok(OnItsWay {
            post,
            pid,
            event,
            fate,
        }),
        _ => Err(abi::NR_EXEC_TRACE),
    }
}

impl OnItsWay {
    /// It stays what it is: returns when it is no longer traced.
    pub(crate) fn stays(&self) {
        let (reply, done) = channel();
        self.post.send(News::Stay(reply));
        let _ = done.recv_timeout(ANSWER);
    }

    /// What has become of it, once that is known.
    pub(crate) fn fate(&self) -> Option<Fate> {
        let begun = Instant::now();
        while self.fate.get().is_none() && begun.elapsed() < ANSWER {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.fate.get().copied()
    }

    /// It was killed with its parent, before it was a process that anybody knows.
    pub(crate) fn is_unborn(&self, tree: &Tree) {
        tree.offspring.unborn(&self.post);
    }
}

/// Where a child that is on its way is spoken of: whether it may go, and what becomes of it.
type Words<'a> = (&'a Sender<bool>, &'a OnceLock<Fate>);

/// `has`: the mask of signals, and the signal at its parent's death, that the child has chosen before.
fn exec(hearing: &Hearing, mut life: Life, pid: i32, has: (u64, u32), (ready, fate): Words<'_>) {
    let tree = Arc::clone(&life.tree);
    tree.claim_new(pid, hearing.post());
    life.entry = tree.list(pid);
    if life.entry.is_none() || ptrace::seize_for_exec(pid).is_err() {
        let _ = ready.send(false);
        return;
    }
    let process = Process::open(pid);
    tree.led_by(life.id, pid);
    let _ = ready.send(true);
    let stop = exec_stop(hearing, &tree, pid);
    fate.get_or_init(|| match stop {
        Some(_) => Fate::Another,
        None => Fate::Ended,
    });
    let (Some(stop), Ok(process)) = (stop, process) else {
        return;
    };
    let started = Instant::now();
    let name = bare::program(pid);
    let made = launched(hearing, &tree, life.id, stop, has, process);
    let mut told = Told {
        tree: Arc::clone(&tree),
        pid,
    };
    match made {
        Ok((group, launched, process)) => {
            let birth = Birth {
                group,
                modules: launched.modules,
                leader: pid,
                process,
                cores: cores(&tree.plan, life.id),
            };
            let copies = Arc::clone(&birth.group);
            let end = Supervisor::of_child(&tree.plan, &mut told, hearing, birth).and_then(
                |mut supervisor| {
                    supervisor.ready(launched.fixed)?;
                    supervisor.setup = started.elapsed();
                    let args = procfs::command_line(pid);
                    let exec = Exec {
                        event: EventIndex(0),
                        program: launched.program,
                        args,
                        replicas: supervisor.replica_starts(),
                    };
                    supervisor.emit(What::Exec(exec));
                    supervisor.go();
                    supervisor.until_childs_end()
                },
            );
            if over(&tree, end.map(|()| None)).is_err() {
                end_copies(&tree, &copies);
            }
        }
        // It stands in exec, and dies with this thread: behind all others.
        Err(error) => {
            let _ = over(&tree, Err(error.of_child(name)));
        }
    }
}

/// A child becomes a program that runs bare; until it has ended.
fn unprotected(
    hearing: &Hearing,
    mut life: Life,
    pid: i32,
    program: String,
    (ready, fate): Words<'_>,
) {
    let tree = Arc::clone(&life.tree);
    life.entry = tree.list(pid);
    let process = Process::open(pid);
    let _ = ready.send(life.entry.is_some() && process.is_ok());
    let (Some(_), Ok(process)) = (life.entry, process) else {
        return;
    };
    let mut program = Some(program);
    loop {
        let look = if program.is_some() { bare::LOOK } else { LOOK };
        let ended = process.ends_within(look);
        // Said before it goes on as it was, or ends.
        if let Ok(News::Stay(reply)) = hearing.next(Duration::ZERO) {
            let _ = reply.send(());
            return;
        }
        let gone = bare::has_gone(pid);
        if (ended || gone)
            && let Some(program) = program.take()
        {
            fate.get_or_init(|| if gone { Fate::Another } else { Fate::Unknown });
            tree.led_by(life.id, pid);
            let mut told = Told {
                tree: Arc::clone(&tree),
                pid,
            };
            told.emit(Event {
                t_ns: u64::try_from(tree.since.elapsed().as_nanos()).unwrap_or(u64::MAX),
                what: bare::event(pid, program),
            });
        }
        if ended {
            return;
        }
        if tree.is_ending() {
            process.signal(libc::SIGKILL);
            return;
        }
    }
}

/// A group has ended: one that was stopped, or could not be made, ends the tree. The error is that its leader was gone
/// before it was one.
pub(crate) fn over(
    tree: &Tree,
    end: Result<Option<StopReason>, LaunchError>,
) -> Result<(), LaunchError> {
    match end {
        Err(LaunchError::Gone) => return Err(LaunchError::Gone),
        Ok(None) => {}
        Ok(Some(reason)) => tree.fail(Failure::Stopped(reason)),
        // What comes of a tree that is being ended is no failure of its own.
        Err(error) if !tree.is_ending() => tree.fail(Failure::Launch(error)),
        Err(_) => {}
    }
    Ok(())
}

/// Waits until the child stands in exec. Nothing: it stays, or has ended.
fn exec_stop(hearing: &Hearing, tree: &Tree, pid: i32) -> Option<ptrace::Stopped> {
    let mut stays: Option<Sender<()>> = None;
    loop {
        match hearing.next(LOOK) {
            Ok(News::Child(of, child::Change::Traced, _)) if of == pid => match ptrace::poll(pid) {
                Ok(Some(ptrace::Waited::Stopped { stop, event, .. }))
                    if event == libc::PTRACE_EVENT_EXEC =>
                {
                    return Some(stop);
                }
                Ok(Some(ptrace::Waited::Stopped {
                    stop,
                    signal,
                    event,
                })) => match stays.take() {
                    Some(reply) => {
                        // It may become another program at its next attempt, by another thread.
                        tree.disclaim(pid);
                        let _ = stop.detach_with(if event == 0 { signal } else { 0 });
                        let _ = reply.send(());
                        return None;
                    }
                    None => {
                        let _ = stop.resume_with(if event == 0 { signal } else { 0 });
                    }
                },
                Ok(Some(_)) => return None,
                Ok(None) | Err(_) => {}
            },
            Ok(News::Child(of, child::Change::Exited(_) | child::Change::Signaled(_), _))
                if of == pid =>
            {
                return None;
            }
            Ok(News::Stay(reply)) => {
                stays = Some(reply);
                // One that has ended meanwhile is heard of as such.
                let _ = ptrace::request_stop(pid);
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                if tree.is_ending() {
                    child::kill(pid, libc::SIGKILL);
                    return None;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

type Made = (Arc<Group>, launch::Launched, Process);

fn launched(
    hearing: &Hearing,
    tree: &Tree,
    id: usize,
    stop: ptrace::Stopped,
    (mask, parent_death): (u64, u32),
    process: Process,
) -> Result<Made, LaunchError> {
    let group = control_block(
        &tree.plan,
        &cores(&tree.plan, id),
        false,
        false,
        option::TREE,
    )?;
    group.set32(at!(pdeathsig), parent_death);
    group.set32(at!(pdeathsig_inv), !parent_death);
    tree.gives_turns(&group, stop.pid());
    let launched = launch::launch_again(
        stop,
        &group.memory,
        mask,
        Flips::compile(&tree.plan, tree.next_rank())?,
    )?;
    let group = Arc::new(group);
    hearing.ring(&group);
    Ok((group, launched, process))
}

/// A group for copies of a group's replicas, which attach its memory by [`Asked::number`].
pub(crate) fn by_fork(
    hearing: &Hearing,
    parent: &Arc<Group>,
    leader: i32,
    modules: Modules,
    fixed: u64,
) -> Result<Asked, LaunchError> {
    let tree = &hearing.tree;
    let id = tree.born.load(Ordering::SeqCst) + 1;
    let step = |step| move |source| LaunchError::Step { step, source };
    let owner = procfs::effective_ids(leader)
        .ok_or_else(|| std::io::Error::from_raw_os_error(libc::ESRCH))
        .map_err(step(crate::Step::Read))?;
    let memory =
        Shared::attachable(abi::SHARED_BYTES, owner, 0o600).map_err(step(crate::Step::Memory))?;
    let number = memory.id().expect("a segment");
    let group = Arc::new(control_block_in(
        memory,
        &tree.plan,
        &cores(&tree.plan, id),
        false,
        false,
        option::TREE,
    ));
    let mut affinity = [0; 256];
    parent.memory.read(at!(wait affinity), &mut affinity);
    group.memory.write(at!(wait affinity), &affinity);
    // Where its leader was made again, a copy's leader has what are files for others as memory of its own, too.
    group.set32(at!(remade), parent.get32(at!(remade)));
    modules.flips.write(&group.memory);
    let its = Arc::clone(&group);
    let parent = Arc::clone(parent);
    let life = move |hearing: Hearing, life: Life| {
        let made = || forked(&parent, number);
        fork(&hearing, life, its, made, modules, fixed);
    };
    let post =
        begin(tree, hearing.post(), hearing.mask, life).map_err(step(crate::Step::Thread))?;
    Ok(Asked { number, post })
}

impl Asked {
    pub(crate) fn number(&self) -> i32 {
        self.number
    }

    /// There is no copy.
    pub(crate) fn forget(&self) {
        self.post.send(News::Stay(channel().0));
    }
}

/// Ends what followers have made of a child whose leader has been killed: each says its number as soon as it runs.
fn end_copies(tree: &Tree, group: &Group) {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let begun = Instant::now();
    let mut left: Vec<usize> = (1..usize::from(tree.plan.replicas)).collect();
    while !left.is_empty() && begun.elapsed() < ANSWER && !tree.is_ending() {
        let seen = group.bell();
        left.retain(|&r| {
            let said = group.get32(at!(own r, init_pid)).cast_signed();
            let there = said > 1 && procfs::is_below(said, own);
            if there {
                child::kill(said, libc::SIGKILL);
            }
            !there
        });
        group.sleep(seen, LOOK);
    }
}

/// The process that a leader has made for the group of this number, once it says so.
fn forked(parent: &Group, number: i32) -> Option<i32> {
    (0..abi::FORKED_MAX)
        .map(|index| parent.get64(at!(forked) + 8 * index))
        .find(|word| *word & 0xffff_ffff == u64::from(number.cast_unsigned()) && word >> 32 > 1)
        .and_then(|word| i32::try_from(word >> 32).ok())
}

fn fork(
    hearing: &Hearing,
    mut life: Life,
    group: Arc<Group>,
    made: impl Fn() -> Option<i32>,
    modules: Modules,
    fixed: u64,
) {
    let tree = Arc::clone(&life.tree);
    hearing.ring(&group);
    let started = Instant::now();
    let mut known = None;
    let pid = loop {
        let seen = group.bell();
        known = known.or_else(&made);
        let said = group.get32(at!(own 0, init_pid)).cast_signed();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        if said > 1 && procfs::is_below(said, own) {
            break said;
        }
        if matches!(hearing.next(Duration::ZERO), Ok(News::Stay(_))) {
            return;
        }
        if tree.is_ending() {
            // It is on no list yet, and may wait for its end.
            if let Some(pid) = known.filter(|pid| procfs::is_below(*pid, own)) {
                child::kill(pid, libc::SIGKILL);
            }
            return;
        }
        // It may be killed at any moment, before it has said its number too.
        let is_gone = |pid: i32| !child::exists(pid) || procfs::has_ended(pid);
        if said > 1 && !child::exists(said) || said <= 1 && known.is_some_and(is_gone) {
            return end_copies(&tree, &group);
        }
        if started.elapsed() > 4 * ANSWER {
            let how = "its leader did not say its number".into();
            return tree.fail(Failure::Launch(LaunchError::Early { replica: 0, how }));
        }
        group.sleep(seen, BORN);
    };
    life.entry = tree.list(pid);
    let process = match (Process::open(pid), life.entry) {
        (Ok(process), Some(_)) => process,
        _ => {
            child::kill(pid, libc::SIGKILL);
            return end_copies(&tree, &group);
        }
    };
    tree.led_by(life.id, pid);
    tree.claim_new(pid, hearing.post());
    let mut told = Told {
        tree: Arc::clone(&tree),
        pid,
    };
    let birth = Birth {
        group,
        modules,
        leader: pid,
        process,
        cores: cores(&tree.plan, life.id),
    };
    let copies = Arc::clone(&birth.group);
    let end =
        Supervisor::of_child(&tree.plan, &mut told, hearing, birth).and_then(|mut supervisor| {
            supervisor.ready(fixed)?;
            supervisor.setup = started.elapsed();
            supervisor.go();
            supervisor.until_childs_end()
        });
    if over(&tree, end.map(|()| None)).is_err() {
        end_copies(&tree, &copies);
    }
}
