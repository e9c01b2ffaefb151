//! Process: what the program makes of its process in a pair: another one (fork), or another program (execve).
//!
//! ```text
//!   fork:  agent asks ──► memory for a group ──► both sites' processes copy themselves into it ──► Newborn::ready ──► go
//!   exec:  agent asks ──► traced ──► stands in exec ──► the other site is told (crates/pair) ──► become ──► go
//! ```
//!
//! Each process on each site has a group of its own, and a strand of the log. Its number follows from the strand and the
//! event that it began by, so both sites call it alike without a word.
//!
//! Invariants
//!  1. A new program runs nothing before the other site has been told of it.
//!  2. A thread that traces a process is the one that asks for its news.
//!
//! Not covered: memory that parent and child share, whose turns stand in the log (crates/agent, domain.c).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use steadfast_contract::plan::Plan;
use steadfast_digest::vote128;
use steadfast_sys::pidfd::Process;
use steadfast_sys::shared::Shared;
use steadfast_sys::{child, futex, procfs, ptrace};

use super::relay::put;
use super::{Body, CLAIM_BYTES, EVERY, FIXED, LATE, PREFIX_BYTES, PREFIXES, RANDOM, Site, stands};
use crate::abi::{self, cmd, option};
use crate::group::{Group, at};
use crate::modules::Modules;
use crate::supervise::{control_block, control_block_in, has_sys_admin};
use crate::{LaunchError, launch};

/// Classes of descriptors, as the agent keeps them (storage.h).
pub const CLASSES: usize = 1024;
/// struct sf_pair (abi.h).
const EXEC_SEQ: usize = abi::OFF_UNDO + 8256;
const TREE: usize = EXEC_SEQ + 8;
const INHERITS: usize = EXEC_SEQ + 12;
const CLASSES_AT: usize = EXEC_SEQ + 16;
const KEPT_AT: usize = LATE + 4;
const KEPT_BYTES: usize = 3592;
/// A process that was asked for says its number at once.
const BIRTH: Duration = Duration::from_secs(20);
/// A traced process that is asked to stop stands at once.
const STOP: Duration = Duration::from_secs(5);

/// What processes of one site have in common (abi.h, `SF_TREE_BYTES`).
const TREE_BYTES: usize = 20_480;

/// Where processes of one site take turns (storage.c, `sf_pair_turn`).
pub(super) fn turns() -> std::io::Result<Arc<Shared>> {
    let owner = procfs::effective_ids(i32::try_from(std::process::id()).unwrap_or(0));
    let owner = owner.ok_or_else(|| std::io::Error::from_raw_os_error(libc::ESRCH))?;
    Shared::attachable(TREE_BYTES, owner, 0o666).map(Arc::new)
}

pub(super) fn show(group: &Group, turns: &Shared) {
    group.set32(TREE, turns.id().expect("a segment").cast_unsigned());
}

pub(super) fn strand(of: u64, event: u64) -> u64 {
    let digest = vote128(&[of.to_le_bytes(), event.to_le_bytes()].concat());
    u64::try_from(digest >> 64).expect("64 bits") | 1
}

/// Nobody's call: while it is kept no process of this site makes one on a file or a pipe, and none is under way on either site,
/// since a turn ends when both have made the call.
#[derive(Debug)]
pub struct Turn(Arc<Shared>);

impl Drop for Turn {
    fn drop(&mut self) {
        give_turn(&self.0, std::process::id());
    }
}

fn give_turn(turns: &Shared, owner: u32) {
    let _ = turns
        .u32(0)
        .compare_exchange(owner, 0, Ordering::SeqCst, Ordering::SeqCst);
}

/// A process that is about to become another program.
#[derive(Debug)]
pub(super) struct Traced {
    mask: u64,
    event: u64,
}

/// A process that stands in execve(2).
#[derive(Debug)]
pub struct Becoming {
    stop: ptrace::Stopped,
    mask: u64,
    /// The strand that ends, and the event it ends with.
    pub strand: u64,
    pub event: u64,
    /// What this site claims about that event.
    pub claim: Vec<u8>,
    /// What the program leaves open.
    pub classes: Vec<u8>,
}

/// A process that has been asked for.
#[derive(Debug)]
pub struct Newborn {
    pub strand: u64,
    site: Site,
    slot: usize,
    dropped: Arc<AtomicBool>,
}

impl Newborn {
    /// Waits until it stands before its first event. Nothing: it has not come to be.
    #[must_use]
    pub fn ready(mut self) -> Option<Site> {
        let group = self.site.group();
        let deadline = Instant::now() + BIRTH;
        let pid = loop {
            let seen = group.bell();
            let said = group.get32(at!(own self.slot, init_pid)).cast_signed();
            if said > 1 {
                break said;
            }
            if self.dropped.load(Ordering::SeqCst) || Instant::now() > deadline {
                return None;
            }
            group.sleep(seen, Duration::from_millis(5));
        };
        self.site.pid = pid;
        self.site.process = Process::open(pid).ok();
        group.set_pid(self.slot, pid);
        let known = self.site.process.is_some() && self.site.tree.list(pid).is_some();
        if !known || stands(&group, self.slot).is_err() {
            child::kill(pid, libc::SIGKILL);
            return None;
        }
        Some(self.site)
    }
}

impl Site {
    /// The strand of the log that the program is at.
    #[must_use]
    pub fn strand(&self) -> u64 {
        self.group().strand
    }

    /// Whether it is another program than it was started with.
    #[must_use]
    pub fn has_become(&self) -> bool {
        self.has_become.load(Ordering::SeqCst)
    }

    /// The file of the program that it is.
    ///
    /// # Errors
    /// When procfs does not tell.
    pub fn program_file(&self) -> std::io::Result<std::path::PathBuf> {
        std::fs::read_link(format!("/proc/{}/exe", self.pid))
    }

    /// Lets a process that is ready go.
    pub fn let_go(&self) {
        let group = self.group();
        group.set32(at!(go), 1);
        futex::wake(group.memory.u32(at!(go)));
    }

    /// What a group of this program has in common with the last one.
    pub(super) fn hand_down(&self, from: &Group, to: &Group) {
        to.set32(at!(spin_tsc), 0);
        to.set32(at!(yields), 0);
        let mut random = [0; 16];
        from.memory.read(RANDOM, &mut random);
        to.memory.write(RANDOM, &random);
        let mut prefixes = vec![0; PREFIX_BYTES];
        from.memory.read(PREFIXES, &mut prefixes);
        to.memory.write(PREFIXES, &prefixes);
        to.set64(FIXED, 0);
        for word in [EVERY, LATE] {
            to.set32(word, from.get32(word));
        }
        // Whether there is another site to compare memory with.
        to.set64(at!(epoch_tsc), from.get64(at!(epoch_tsc)));
        let compares = from.get32(at!(options)) & option::RETAIN;
        let options = to.get32(at!(options)) & !option::RETAIN;
        to.set32(at!(options), options | compares);
        show(to, &self.turns);
        let mut affinity = [0; 256];
        from.memory.read(at!(wait affinity), &mut affinity);
        to.memory.write(at!(wait affinity), &affinity);
    }

    pub(super) fn options(&self, is_first: bool) -> u32 {
        let leads = self.group().pid(0) != 0;
        let whose = if is_first { 0 } else { option::TREE };
        let how = self.group().get32(at!(options)) & option::FAULTS;
        option::PAIR | whose | how | if leads { 0 } else { option::PAIR_SECONDARY }
    }

    /// What a copy of this process has of what this launcher knows of it.
    pub(super) fn for_a_child(&self) -> Option<(Plan, Modules)> {
        let plan = self.plan.clone();
        let rank = self.tree.next_rank();
        let known = self.modules.lock().expect("no panic under it");
        let mut modules = known.copy();
        modules.flips = known.flips.of_copy(&plan, rank).ok()?;
        Some((plan, modules))
    }

    /// The program is about to make a process, by this event. Answers the agent.
    pub(super) fn beget(&self, event: u64) -> Option<Newborn> {
        let refuse = || {
            self.group().answer(-i64::from(libc::EAGAIN));
            None
        };
        let parent = self.group();
        let Some((plan, modules)) = self.for_a_child() else {
            return refuse();
        };
        let (Ok(cores), Some(owner)) = (launch::cores(&plan), procfs::effective_ids(self.pid))
        else {
            return refuse();
        };
        let Ok(memory) = Shared::attachable(abi::SHARED_BYTES, owner, 0o600) else {
            return refuse();
        };
        let number = memory.id().expect("a segment");
        let group = control_block_in(memory, &plan, &cores, false, false, self.options(false));
        self.hand_down(&parent, &group);
        group.set32(at!(remade), parent.get32(at!(remade)));
        modules.flips.write(&group.memory);
        let strand = strand(parent.strand, event);
        let dropped = Arc::new(AtomicBool::new(false));
        *self.unborn.lock().expect("no panic under it") = Some(Arc::clone(&dropped));
        let site = self.with(Body { strand, group }, modules, plan);
        let slot = self.acting();
        parent.answer(number.into());
        Some(Newborn {
            strand,
            site,
            slot,
            dropped,
        })
    }

    pub(super) fn with(&self, body: Body, modules: Modules, plan: Plan) -> Self {
        Self {
            body: RwLock::new(Arc::new(body)),
            modules: Mutex::new(modules),
            plan,
            part: self.part,
            pid: 0,
            gone: Arc::default(),
            process: None,
            tree: Arc::clone(&self.tree),
            turns: Arc::clone(&self.turns),
            traced: Mutex::default(),
            unborn: Mutex::default(),
            heard: Mutex::default(),
            past: AtomicU64::new(0),
            has_become: AtomicBool::new(false),
            acts: Mutex::default(),
            epoch_tsc: self.epoch_tsc,
        }
    }

    /// There is no copy.
    pub(super) fn miscarry(&self) {
        if let Some(dropped) = self.unborn.lock().expect("no panic under it").take() {
            dropped.store(true, Ordering::SeqCst);
        }
        self.group().answer(0);
    }

    pub(super) fn is_traced(&self) -> bool {
        self.traced.lock().expect("no panic under it").is_some()
    }

    /// Secondary: the primary is another program by this event, and this one is not yet.
    pub(super) fn is_becoming(&self, event: u64) -> bool {
        self.is_traced() || self.group().get64(EXEC_SEQ) == event
    }

    /// The program is about to become another one.
    pub(super) fn let_exec(&self, mask: u64, event: u64) {
        let refused = if procfs::holds_record_lock(self.pid) {
            abi::NR_EXEC_LOCKS
        } else if ptrace::seize_for_exec(self.pid).is_err() {
            abi::NR_EXEC_TRACE
        } else {
            *self.traced.lock().expect("no panic under it") = Some(Traced { mask, event });
            0
        };
        self.group().answer(refused.into());
    }

    /// It did not, and is let go.
    pub(super) fn let_stay(&self) {
        self.traced.lock().expect("no panic under it").take();
        let deadline = Instant::now() + STOP;
        let _ = ptrace::request_stop(self.pid);
        while Instant::now() < deadline {
            match ptrace::poll(self.pid) {
                Ok(Some(ptrace::Waited::Stopped { stop, .. })) => {
                    let _ = stop.detach();
                    break;
                }
                Ok(Some(_)) | Err(_) => break,
                Ok(None) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        self.group().answer(0);
    }

    /// Looks whether it stands in exec.
    pub(super) fn exec_stop(&self) -> Option<Becoming> {
        match ptrace::poll(self.pid) {
            Ok(Some(ptrace::Waited::Stopped { stop, event, .. }))
                if event == libc::PTRACE_EVENT_EXEC =>
            {
                let Traced { mask, event } =
                    self.traced.lock().expect("no panic under it").take()?;
                let group = self.group();
                let mut claim = vec![0; CLAIM_BYTES];
                group
                    .memory
                    .read(abi::claim(self.acting(), event), &mut claim);
                let mut classes = vec![0; CLASSES];
                group.memory.read(CLASSES_AT, &mut classes);
                if let Some(heard) = self.heard.lock().expect("no panic under it").take() {
                    classes = heard;
                }
                Some(Becoming {
                    stop,
                    mask,
                    strand: group.strand,
                    event,
                    claim,
                    classes,
                })
            }
            Ok(Some(ptrace::Waited::Stopped {
                stop,
                signal,
                event,
            })) => {
                let _ = stop.resume_with(if event == 0 { signal } else { 0 });
                None
            }
            Ok(Some(ptrace::Waited::Exited(status))) => {
                self.set_gone(child::Change::Exited(status));
                None
            }
            Ok(Some(ptrace::Waited::Signaled(signal))) => {
                self.set_gone(child::Change::Signaled(signal));
                None
            }
            Ok(None) | Err(_) => None,
        }
    }

    fn set_gone(&self, change: child::Change) {
        self.traced.lock().expect("no panic under it").take();
        *self.gone.lock().expect("no panic under it") = Some(change);
    }

    /// Secondary: the primary is another program, by event `event`, about which it has claimed this.
    pub fn put_exec(&self, event: u64, claim: &[u8], classes: &[u8]) {
        let group = self.group();
        if claim.len() != CLAIM_BYTES {
            return;
        }
        *self.heard.lock().expect("no panic under it") = Some(classes.to_vec());
        group.set64(EXEC_SEQ, event);
        put(&group, abi::claim(0, event), claim);
        group.set64(at!(own 0, next), event);
        group.ring(1);
    }

    /// The process is to go on as another program, once it is let go. The strand that begins.
    ///
    /// # Errors
    /// As for a start.
    pub fn become_another(&self, becoming: Becoming) -> Result<u64, LaunchError> {
        let old = self.group();
        let plan = self.plan.clone();
        let cores = launch::cores(&plan)?;
        let privileged = has_sys_admin(&self.pid.to_string());
        let group = control_block(
            &plan,
            &cores,
            false,
            privileged,
            self.options(self.process.is_none()),
        )?;
        self.hand_down(&old, &group);
        group.memory.write(CLASSES_AT, &becoming.classes);
        let mut kept = vec![0; KEPT_BYTES];
        old.memory.read(KEPT_AT, &mut kept);
        group.memory.write(KEPT_AT, &kept);
        group.set32(INHERITS, 1);
        for word in [at!(pdeathsig), at!(pdeathsig_inv)] {
            group.set32(word, old.get32(word));
        }
        let past = self.past.load(Ordering::SeqCst) + becoming.event;
        self.past.store(past, Ordering::SeqCst);
        let flips = std::mem::take(&mut self.modules.lock().expect("no panic under it").flips)
            .carry_on(&plan, &old.memory, past)?;
        // It has the descriptors of the program before.
        if old.get64(at!(snapshot_seq)) != 0 {
            old.set64(at!(snapshot_seq), 0);
            old.command(2, cmd::EXIT, 0);
        }
        let launched = launch::launch_again(becoming.stop, &group.memory, becoming.mask, flips)?;
        let slot = self.acting();
        group.set_pid(slot, self.pid);
        stands(&group, slot)?;
        group.set32(at!(leader_pid), old.get32(at!(leader_pid)));
        *self.modules.lock().expect("no panic under it") = launched.modules;
        let strand = strand(old.strand, becoming.event);
        *self.body.write().expect("no panic under it") = Arc::new(Body { strand, group });
        self.has_become.store(true, Ordering::SeqCst);
        Ok(strand)
    }

    /// Whether its process is gone by then.
    #[must_use]
    pub fn ends_within(&self, limit: Duration) -> bool {
        self.process
            .as_ref()
            .is_none_or(|process| process.ends_within(limit))
    }

    /// It has ended, and may have had its turn.
    pub fn end_turn(&self) {
        give_turn(&self.turns, self.pid.cast_unsigned());
    }

    /// Leader, of a program that has made processes: takes the turn of all of them, if it comes in time.
    #[must_use]
    pub fn take_turn(&self, limit: Duration) -> Option<Turn> {
        let deadline = Instant::now() + limit;
        let (owner, own) = (self.turns.u32(0), std::process::id());
        while owner
            .compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst)
            .is_err()
        {
            if Instant::now() > deadline {
                return None;
            }
            // Shorter than a process rests (crew.c, `take_turn`).
            std::thread::sleep(Duration::from_micros(20));
        }
        Some(Turn(Arc::clone(&self.turns)))
    }

    /// A secondary's or a primary's.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.acting() == 0
    }

    /// How many processes the program has made.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.turns.get32(4)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The first one is the last to go.
        if self.process.is_none() && self.pid > 0 && self.part_of_the_first() {
            let reaper = self.tree.take_reaper();
            if reaper > 1 {
                child::kill(reaper, libc::SIGKILL);
            }
        }
    }
}

impl Site {
    fn part_of_the_first(&self) -> bool {
        Arc::strong_count(&self.tree) == 1
    }
}
