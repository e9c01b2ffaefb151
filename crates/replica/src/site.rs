//! Site: one half of a group whose other half runs on another host (`steadfast pair`).
//!
//! Each host has a segment of shared memory of its own, with one real replica and one slot that is
//! filled by a relay. The agent talks to its segment as always; whoever holds a [`Site`] carries
//! claims, results, payload and notes between the two segments.
//!
//! ```text
//!   primary (slot 0 real)                                   secondary (slot 1 real)
//!   next_step ──► claim + result + payload + note ──► put_step
//!   put_claim ◄── claim, events done              ◄── next_claim
//! ```
//!
//! Invariants
//!  1. Records are carried in order and unchanged: the agents check them as if they had come
//!     from a neighbour.
//!  2. A relay sleeps on the bell of the slot that it stands for, as the replica would.
//!
//! Not covered: what a difference means, and what becomes of it (crates/pair).

mod flow;
mod handover;
mod join;
mod memfd;
mod named;
mod objects;
mod open;
mod process;
mod relay;
mod rerun;
mod rights;
mod several;
mod spin;
mod step;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use steadfast_contract::plan::{OnMismatch, Plan};
use steadfast_sys::memory::Remote;
use steadfast_sys::pidfd::Process;
use steadfast_sys::shared::Shared;
use steadfast_sys::{child, descriptor, futex, procfs, write_faults};

use crate::abi::{self, alarm, cmd, end, option, phase};
use crate::group::{Group, at};
use crate::launch;
use crate::modules::{Modules, Prepared, protection_at};
use crate::supervise::tree::Tree;
use crate::supervise::{control_block, has_sys_admin};
use crate::{LaunchError, Step as Doing};

pub use flow::{Flow, Line};
pub use handover::{Silence, Unread, has_room};
pub use join::{Given, Handed, Known, NotGiven, Now, Pages};
pub use memfd::Memfds;
pub use named::{Name, Segment, Segments};
pub use objects::{Counterparts, Objects};
pub use open::{List, sort_out};
pub use process::{Becoming, CLASSES, Newborn, Turn};
pub use relay::{Place, Sent, Told};
pub use rerun::{Again, Look};
pub use several::{Attached, InCommon};
pub use spin::{Spins, Watch};
pub use step::{Kind, Note, Step};

/// Room for the names of protected directories, each with its NUL, and one more.
pub const PREFIX_BYTES: usize = 4096;
/// Descriptors that the program may have (storage.c, `FDS_MAX`).
pub const DESCRIPTORS_MAX: u64 = 1024;
const FIXED: usize = abi::OFF_UNDO;
const RANDOM: usize = abi::OFF_UNDO + 8;
const CARRIED: usize = abi::OFF_UNDO + 24;
const PREFIXES: usize = abi::OFF_UNDO + 32;
/// Behind what process.rs has.
const EVERY: usize = abi::OFF_UNDO + 9296;
const LATE: usize = EVERY + 4;
const NOTES: usize = (PREFIXES + PREFIX_BYTES).next_multiple_of(64);
const NOTE_BYTES: usize = 64;
const CLAIM_BYTES: usize = size_of::<abi::ClaimRecord>();
const RESULT_BYTES: usize = size_of::<abi::Result>();
const RESULT_RESET: u16 = 1;
const START_LIMIT: Duration = Duration::from_secs(10);
/// A program that waits in the agent answers at once.
const LEAD_LIMIT: Duration = Duration::from_secs(5);
/// A program that has its log before it does its next event, or computes.
const CATCH_UP: Duration = Duration::from_secs(20);
/// ... and computes for so long at most.
const COMPUTES: Duration = Duration::from_secs(600);
/// A lost ring costs this at most.
const SLEEP: Duration = Duration::from_millis(50);
const RPC_READ: u32 = 32;
const RPC_DIFFERS: u32 = 33;
const RPC_PAGE: u32 = 34;
const RPC_SET: u32 = 35;
const RPC_BIND: u32 = 36;
const RPC_FAULTS: u32 = 37;
/// `SF_NR_PAIR_UNREAD` (abi.h).
const NR_UNREAD: u32 = 0x8000_0128;
const PAGE: u64 = 4096;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Primary,
    Secondary,
}

impl Part {
    fn slot(self) -> usize {
        usize::from(self == Part::Secondary)
    }
}

/// A question of the secondary's agent.
#[derive(Debug, Clone, Copy)]
pub enum Question {
    /// The own disk gave other bytes than the log holds.
    Read {
        seq: u64,
        fd: i32,
        offset: u64,
        own: i64,
        theirs: i64,
    },
    /// A storage call ended otherwise.
    Differs {
        seq: u64,
        nr: u32,
        own: i64,
        theirs: i64,
        fd: i32,
    },
}

/// How this site's replica ended.
#[derive(Debug, Clone)]
pub enum End {
    Exited(i32),
    Signaled(i32),
    /// The program asked for something that is not supported: what, why, fix.
    Refused(String, String),
    Failed(String),
}

/// What has come up.
#[derive(Debug)]
pub enum News {
    Question(Question),
    End(End),
    /// The claims of the two sites differ at this event; what each claims.
    Dispute(u64, String),
    /// A record of the log is damaged at this event.
    Damaged(u64),
    /// The program makes a process, which may not come to be.
    Born(Box<Newborn>),
    /// The program stands in execve(2).
    Exec(Becoming),
}

/// The memory of a program from its exec, or its fork, to its end.
#[derive(Debug)]
struct Body {
    /// Names it on both sites: it follows from the events that led to it.
    strand: u64,
    group: Group,
}

impl std::ops::Deref for Body {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

/// One process of the program.
#[derive(Debug)]
pub struct Site {
    body: RwLock<Arc<Body>>,
    modules: Mutex<Modules>,
    plan: Plan,
    part: Part,
    pid: i32,
    gone: Arc<Mutex<Option<child::Change>>>,
    /// Of a process that is no child of this one.
    process: Option<Process>,
    tree: Arc<Tree>,
    turns: Arc<Shared>,
    traced: Mutex<Option<process::Traced>>,
    unborn: Mutex<Option<Arc<AtomicBool>>>,
    /// Secondary: what the primary leaves open for the program that it has become.
    heard: Mutex<Option<Vec<u8>>>,
    /// Events of the programs before this one.
    past: AtomicU64,
    has_become: AtomicBool,
    /// Held by whoever answers a question about its sockets (rights.rs).
    acts: Mutex<()>,
    /// Ticks between memory checks while there are two sites; 0: none, and no snapshots.
    epoch_tsc: u64,
}

/// When the primary hears what the secondary has read (storage.c, `sf_pair_wait`).
#[derive(Debug, Clone, Copy)]
pub struct Exchanges {
    /// Reads at a place of their own from one exchange to the next; 1: each is compared before the program goes on.
    pub every: u32,
    /// What was read until the last exchange alone is waited for.
    pub late: bool,
}

/// What both sites agree on before they start.
#[derive(Debug)]
pub struct Setup<'a> {
    pub plan: &'a Plan,
    pub part: Part,
    pub random: [u8; 16],
    pub prefixes: &'a [&'a Path],
    /// Secondary: the program runs elsewhere, at this strand, and this process will become it (join.rs).
    pub joins: Option<u64>,
    pub exchange: Exchanges,
    /// With a list of what was written: it is kept by write faults.
    pub faults: bool,
}

impl Site {
    /// Starts the program up to its first instruction. Call it before there is a second thread.
    ///
    /// # Errors
    /// As for [`crate::run`].
    pub fn start(setup: &Setup<'_>) -> Result<Self, LaunchError> {
        use std::os::unix::ffi::OsStrExt;
        let cores = launch::cores(setup.plan)?;
        let io = |step| move |source| LaunchError::Step { step, source };
        child::adopt_orphans();
        let tree = Tree::new(setup.plan);
        tree.post_reaper().map_err(io(Doing::Fork))?;
        let turns = process::turns().map_err(io(Doing::Memory))?;
        let more = option::PAIR
            | if setup.part == Part::Secondary {
                option::PAIR_SECONDARY
            } else {
                0
            }
            | if setup.joins.is_some() {
                option::PAIR_JOIN
            } else {
                0
            }
            | if setup.faults { option::FAULTS } else { 0 };
        let group = control_block(setup.plan, &cores, false, has_sys_admin("self"), more)?;
        // The other replica is a network away: nothing is gained by spinning long.
        group.set32(at!(spin_tsc), 0);
        group.set32(at!(yields), 0);
        group.memory.write(RANDOM, &setup.random);
        group.set32(EVERY, setup.exchange.every);
        group.set32(LATE, setup.exchange.late.into());
        let mut prefixes: Vec<u8> = setup
            .prefixes
            .iter()
            .flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat())
            .collect();
        prefixes.push(0);
        group
            .memory
            .write(PREFIXES, &prefixes[..prefixes.len().min(PREFIX_BYTES)]);
        process::show(&group, &turns);
        let launched = launch::launch(setup.plan, &group.memory, &launch::Inherited::default())?;
        let slot = setup.part.slot();
        group.set_pid(slot, launched.pid);
        group.set32(at!(remade), setup.joins.is_some().into());
        let epoch_tsc = group.get64(at!(epoch_tsc));
        let strand = setup.joins.unwrap_or(0);
        let gone = Arc::new(Mutex::new(None));
        stands(&group, slot).inspect_err(|_| child::end(launched.pid))?;
        Ok(Self {
            body: RwLock::new(Arc::new(Body { strand, group })),
            modules: Mutex::new(launched.modules),
            plan: setup.plan.clone(),
            part: setup.part,
            pid: launched.pid,
            gone,
            process: None,
            tree,
            turns,
            traced: Mutex::default(),
            unborn: Mutex::default(),
            heard: Mutex::default(),
            past: AtomicU64::new(0),
            has_become: AtomicBool::new(strand != 0),
            acts: Mutex::default(),
            epoch_tsc,
        })
    }

    fn group(&self) -> Arc<Body> {
        Arc::clone(&self.body.read().expect("no panic under it"))
    }

    /// Begins to wait for the program, and lets it go.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub fn go(&self) -> Result<(), LaunchError> {
        let gone = Arc::clone(&self.gone);
        let first = self.pid;
        let wait = move || {
            while let Some((pid, change, _)) = child::wait_any(|_| ()) {
                match change {
                    child::Change::Exited(_) | child::Change::Signaled(_) if pid == first => {
                        *gone.lock().expect("no panic under it") = Some(change);
                    }
                    // It is for the thread that traces (process.rs).
                    child::Change::Traced => std::thread::sleep(Duration::from_micros(200)),
                    _ => {}
                }
            }
        };
        std::thread::Builder::new()
            .spawn(wait)
            .map_err(|source| LaunchError::Step {
                step: Doing::Thread,
                source,
            })?;
        self.group().set32(at!(go), 1);
        futex::wake(self.group().memory.u32(at!(go)));
        Ok(())
    }

    /// The program's process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What each program of both sites finds as AT_RANDOM (getauxval(3)).
    #[must_use]
    pub fn random(&self) -> [u8; 16] {
        let mut random = [0; 16];
        self.group().memory.read(RANDOM, &mut random);
        random
    }

    /// The number that the program goes by on both sites.
    #[must_use]
    pub fn program_number(&self) -> u32 {
        self.group().get32(at!(leader_pid))
    }

    pub fn set_program_number(&self, number: u32) {
        self.group().set32(at!(leader_pid), number);
    }

    fn gone(&self) -> Option<child::Change> {
        let known = *self.gone.lock().expect("no panic under it");
        // Whose child it is hears how it has ended; what ends a process without its agent is a kill.
        known.or_else(|| {
            let process = self.process.as_ref()?;
            let ended = process.ends_within(Duration::ZERO);
            ended.then_some(child::Change::Signaled(libc::SIGKILL))
        })
    }

    /// Survivor, paused, with a site that has joined: both compare memory now and then, and each keeps a snapshot. The
    /// joiner has copies of files.
    pub fn keep_snapshots(&self) {
        if self.epoch_tsc == 0 {
            return;
        }
        let retains = if self.plan.on_mismatch == OnMismatch::Recover {
            option::RETAIN
        } else {
            0
        };
        let options = self.group().get32(at!(options)) | retains;
        self.group().set32(at!(remade), 1);
        self.group().set64(at!(snapshot_seq), 0);
        self.group().set32(at!(snapshot_broken), 1);
        self.group().set64(at!(epoch_tsc), self.epoch_tsc);
        self.group().set32(at!(options), options);
    }

    /// The other site is gone: nobody would compare, and the log would grow for nothing.
    pub fn drop_snapshots(&self) {
        let options = self.group().get32(at!(options)) & !option::RETAIN;
        self.group().set64(at!(epoch_tsc), 0);
        self.group().set32(at!(options), options);
        if self.group().get64(at!(snapshot_seq)) != 0 {
            self.group().set64(at!(snapshot_seq), 0);
            self.group().command(2, cmd::EXIT, 0);
        }
    }

    /// Answers what the agent asks about its own code, and waits for what else comes up.
    #[must_use]
    pub fn news(&self, limit: Duration) -> Option<News> {
        let deadline = Instant::now() + limit;
        loop {
            let seen = self.group().bell();
            match self.group().question() {
                None => {}
                Some(Err(())) => self.group().answer(abi::RPC_STRUCK),
                Some(Ok((abi::RPC_PATCH, arg))) => {
                    let plan = self.plan_patches(arg);
                    self.give(&plan, arg[4]);
                }
                Some(Ok((abi::RPC_SITE, arg))) => {
                    let plan = self.plan_site(arg[0]);
                    self.give(&plan, arg[4]);
                }
                Some(Ok((RPC_PAGE, arg))) => match self.page_of(number(arg[0]), arg[1]) {
                    Ok(page) => self.give(&page, arg[4]),
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(libc::EIO);
                        self.group().answer(-i64::from(errno));
                    }
                },
                Some(Ok((RPC_FAULTS, arg))) => {
                    let opens = self.opens_pages(number(arg[0]));
                    self.group().answer(opens);
                }
                Some(Ok((RPC_SET | RPC_BIND, _))) => {
                    self.acts_for_it();
                }
                Some(Ok((RPC_READ, arg))) => {
                    return Some(News::Question(Question::Read {
                        seq: arg[0],
                        fd: number(arg[1]),
                        offset: arg[2],
                        own: arg[3].cast_signed(),
                        theirs: arg[4].cast_signed(),
                    }));
                }
                Some(Ok((RPC_DIFFERS, arg))) => {
                    return Some(News::Question(Question::Differs {
                        seq: arg[0],
                        nr: u32::try_from(arg[1]).unwrap_or(u32::MAX),
                        own: arg[2].cast_signed(),
                        theirs: arg[3].cast_signed(),
                        fd: number(arg[4]),
                    }));
                }
                Some(Ok((abi::RPC_FORK, arg))) => {
                    if let Some(newborn) = self.beget(arg[0]) {
                        return Some(News::Born(Box::new(newborn)));
                    }
                }
                Some(Ok((abi::RPC_UNFORK, _))) => self.miscarry(),
                Some(Ok((abi::RPC_EXEC, arg))) => self.let_exec(arg[0], arg[4]),
                Some(Ok((abi::RPC_STAY, _))) => self.let_stay(),
                Some(Ok(_)) => self.group().answer(-i64::from(libc::ENOSYS)),
            }
            let traced = self.is_traced();
            if traced && let Some(becoming) = self.exec_stop() {
                return Some(News::Exec(becoming));
            }
            if let Some(end) = self.end() {
                return Some(News::End(end));
            }
            // A request is this side's own.
            if !matches!(
                self.group().get32(at!(alarm)),
                alarm::QUIET | alarm::REQUEST
            ) {
                let seq = self.group().get64(at!(alarm_seq));
                if self.group().get32(at!(alarm)) != alarm::DIVERGED {
                    return Some(News::Damaged(seq));
                }
                return Some(News::Dispute(seq, self.claims(seq)));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let look = if traced { 1 } else { 20 };
            self.group()
                .sleep(seen, left.min(Duration::from_millis(look)));
        }
    }

    /// The event about which the two sites claim different things.
    #[must_use]
    pub fn disputed(&self) -> Option<u64> {
        let differs = self.group().get32(at!(alarm)) == alarm::DIVERGED;
        differs.then(|| self.group().get64(at!(alarm_seq)))
    }

    /// What each site claims about an event, as far as it is known here.
    #[must_use]
    pub fn claims(&self, seq: u64) -> String {
        format!("A {}, B {}", self.claimed(0, seq), self.claimed(1, seq))
    }

    fn claimed(&self, slot: usize, seq: u64) -> String {
        self.group().claim(slot, seq).map_or_else(
            || "nothing".into(),
            |claim| {
                let name = abi::kind::name(claim.kind, claim.nr);
                let args = claim.args.map(|arg| format!("{arg:#x}")).join(", ");
                format!(
                    "{name}({args}) at {:#x}, stack {:#x}, registers {:016x}, bytes {:016x}",
                    claim.ip, claim.sp, claim.regs, claim.bytes[0]
                )
            },
        )
    }

    fn end(&self) -> Option<End> {
        let value = self.group().get64(at!(end_value));
        let nr = self.group().get32(at!(end_nr));
        let status = i32::from(value.to_le_bytes()[0]);
        match self.group().end() {
            end::EXITED => Some(End::Exited(status)),
            end::SIGNALED => Some(End::Signaled(status)),
            end::REFUSED => {
                let row = steadfast_agent::command(nr, value);
                let (why, fix) = row
                    .note
                    .split_once("; fix: ")
                    .unwrap_or((&row.note, "run the program without steadfast pair"));
                let which = if nr == NR_UNREAD {
                    self.unread(value)
                } else {
                    String::new()
                };
                Some(End::Refused(
                    format!("{}{which}: {why}", row.name),
                    fix.to_owned(),
                ))
            }
            end::BUG => Some(End::Failed(format!(
                "the agent failed its own check at line {nr}"
            ))),
            end::TORN => Some(End::Failed(
                "what the kernel gave and what the log holds differ".into(),
            )),
            _ => match self.gone()? {
                child::Change::Exited(status) => Some(End::Exited(status)),
                child::Change::Signaled(signal) => Some(End::Signaled(signal)),
                _ => None,
            },
        }
    }

    fn path_of(&self, fd: i32) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{fd}", self.pid))
    }

    /// From here on somebody opens pages of the program that are closed to stores, until it has ended.
    fn opens_pages(&self, fd: i32) -> i64 {
        let pid = self.pid;
        let opens = descriptor::duplicate(pid, fd).and_then(|faults| {
            let serves = move || write_faults::open_pages(&faults, || !procfs::has_ended(pid));
            std::thread::Builder::new().spawn(serves)
        });
        if opens.is_ok() {
            0
        } else {
            -i64::from(libc::EPERM)
        }
    }

    /// A page of what a descriptor of the program names; shorter at the end of the file.
    fn page_of(&self, fd: i32, page: u64) -> std::io::Result<Vec<u8>> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = std::fs::File::open(self.path_of(fd))?;
        file.seek(SeekFrom::Start(page * PAGE))?;
        let mut bytes = Vec::new();
        file.take(PAGE).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Which file the program was about to write to, and why it cannot be read.
    fn unread(&self, value: u64) -> String {
        let fd = number(self.group().get64(at!(end_arg)));
        let path = std::fs::read_link(self.path_of(fd)).unwrap_or_default();
        let errno = i32::try_from(-value.cast_signed()).unwrap_or(0);
        let why = std::io::Error::from_raw_os_error(errno);
        format!(" ({}: {why})", path.display())
    }

    /// Answers the agent: 0 has it make the read again, or says that the call may end so.
    pub fn answer(&self, ret: i64) {
        self.group().answer(ret);
    }

    fn give(&self, answer: &[u8], out: u64) {
        let fits = usize::try_from(out)
            .ok()
            .filter(|out| out.saturating_add(answer.len()) <= abi::PAYLOAD_BYTES);
        let Some(out) = fits else {
            return self.group().answer(0);
        };
        self.group().memory.write(abi::OFF_PAYLOAD + out, answer);
        self.group()
            .answer(i64::try_from(answer.len()).expect("bounded by the payload"));
    }

    fn plan_site(&self, addr: u64) -> Vec<u8> {
        let Ok(maps) = procfs::maps(self.pid) else {
            return Vec::new();
        };
        let protection = protection_at(&maps, addr);
        let mut taken: Vec<_> = maps.into_iter().map(|m| m.range).collect();
        taken.push(abi::BASE..abi::AGENT_END);
        let mut modules = self.modules.lock().expect("no panic under it");
        modules
            .add_site(addr, &taken)
            .map_or_else(Vec::new, |prepared| prepared.encode(protection))
    }

    fn plan_patches(&self, arg: [u64; 5]) -> Vec<u8> {
        let region = arg[0]..arg[0].saturating_add(arg[1]);
        let open_as =
            std::path::PathBuf::from(format!("/proc/{}/fd/{}", self.pid, arg[2].cast_signed()));
        let name = std::fs::read_link(&open_as).unwrap_or_default();
        let start = region.start;
        let protection = std::cell::Cell::new(0);
        let taken = || {
            let maps = procfs::maps(self.pid).ok()?;
            protection.set(protection_at(&maps, start));
            let mut taken: Vec<_> = maps.into_iter().map(|m| m.range).collect();
            taken.push(abi::BASE..abi::AGENT_END);
            Some(taken)
        };
        let mut modules = self.modules.lock().expect("no panic under it");
        let prepared = modules
            .add(&name, &open_as, region.clone(), arg[3], taken)
            .unwrap_or_else(|| Prepared::unknown(&region));
        if prepared.is_nothing() {
            return Vec::new();
        }
        prepared.encode(protection.get())
    }

    /// The event that a site's program has come to, and the newest that the other one has done.
    #[must_use]
    pub fn progress(&self, part: Part) -> (u64, u64) {
        let claimed = self.claimed_last(part);
        let done = match part {
            Part::Primary => self.group().get64(at!(own 1, done)),
            // What the log holds is done on the primary.
            Part::Secondary => self.claimed_last(Part::Primary),
        };
        (claimed, done)
    }

    /// The system call that a site's program has claimed as event `seq`: its number and first argument.
    #[must_use]
    pub fn claimed_call(&self, part: Part, seq: u64) -> Option<(u32, u64)> {
        let claim = self.group().claim(part.slot(), seq)?;
        (claim.kind == abi::kind::SYSCALL).then_some((claim.nr, claim.args[0]))
    }

    /// Secondary: the path that its program names in the call that it has claimed, if that names one.
    #[must_use]
    pub fn named_path(&self, seq: u64) -> Option<PathBuf> {
        let claim = self.group().claim(Part::Secondary.slot(), seq)?;
        let place = match i64::from(claim.nr) {
            libc::SYS_open
            | libc::SYS_creat
            | libc::SYS_mkdir
            | libc::SYS_rmdir
            | libc::SYS_unlink
            | libc::SYS_rename
            | libc::SYS_chmod
            | libc::SYS_chown
            | libc::SYS_lchown
            | libc::SYS_truncate
            | libc::SYS_stat
            | libc::SYS_lstat => 0,
            libc::SYS_openat
            | libc::SYS_openat2
            | libc::SYS_mkdirat
            | libc::SYS_unlinkat
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_fchmodat
            | libc::SYS_fchownat
            | libc::SYS_newfstatat
            | libc::SYS_statx => 1,
            _ => return None,
        };
        let memory = Remote::open(self.pid).ok()?;
        let mut path = [0; 4096];
        // Its string may end in the last page that there is.
        let from = claim.args[place];
        let first = usize::try_from(4096 - from % 4096).ok()?;
        let _ = memory.read(from, &mut path[..first]);
        let _ = memory.read(from + first as u64, &mut path[first..]);
        let end = path.iter().position(|byte| *byte == 0)?;
        (end > 0).then(|| PathBuf::from(OsStr::from_bytes(&path[..end])))
    }

    /// Secondary: the newest event that it has done.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.group().get64(at!(own 1, done))
    }

    /// The event that a slot has claimed last.
    #[must_use]
    pub fn claimed_last(&self, part: Part) -> u64 {
        self.group().get64(at!(own part.slot(), next))
    }

    /// Secondary whose primary is lost: has the program lead, from the event at `place` on, of which the log holds
    /// nothing. No relay may run. `grow` takes processes that it makes until then, and says where the log ends. `announce` is called when its connections are set up, and before they speak: an answer to
    /// what they say has to come here. `unread`: what the primary has handed over of its clients' bytes. `spins_after`: for how long it may
    /// stand still, if that is shorter than it is waited for anyway. Connections that the program goes on with, and those that it has lost.
    ///
    /// # Errors
    /// When it cannot: why.
    pub fn lead(
        &self,
        place: &Place,
        unread: &[Unread],
        spins_after: Duration,
        announce: impl FnOnce(),
        mut grow: impl FnMut(News) -> Result<Place, String>,
    ) -> Result<(u32, u32), String> {
        // What the log holds is done first.
        let mut place = *place;
        let mut catches_up = CatchUp::new(spins_after);
        loop {
            match self.news(Duration::from_millis(5)) {
                Some(News::Question(_)) => return Err(
                    "its disk gives other bytes than the lost primary's, and nobody is left to ask"
                        .into(),
                ),
                Some(News::Dispute(event, claims)) => {
                    return Err(format!(
                        "at event {event} the two programs claimed different things ({claims})"
                    ));
                }
                Some(News::Damaged(event)) => {
                    return Err(format!("the log is damaged at event {event}"));
                }
                Some(News::End(_)) => return Err("its program has ended".into()),
                Some(news @ (News::Born(_) | News::Exec(_))) => place = grow(news)?,
                None => {}
            }
            // What the primary is already, it becomes first.
            if self.claimed_last(Part::Secondary) >= place.seq
                && self.group().get64(at!(own 1, done)) >= place.seq
                && !self.is_becoming(place.seq)
            {
                break;
            }
            let done = self.group().get64(at!(own 1, done));
            let at = (self.claimed_last(Part::Secondary), done);
            catches_up.is_at(at, place.seq, procfs::cpu_ns(self.pid).unwrap_or(0))?;
        }
        self.group().set64(at!(alarm_seq), 0);
        self.group().set32(at!(alarm), alarm::REQUEST);
        let stands = self.group().wait_until(LEAD_LIMIT, || {
            self.group().ring(1);
            self.group().phase(1) == phase::PAUSED
        });
        if !stands {
            return Err("its program does not come to a halt".into());
        }
        self.put_unread(unread)?;
        led(self.order(1, cmd::LEAD, 0, LEAD_LIMIT))?;
        self.group().set_pid(0, self.pid);
        self.group().set_pid(1, 0);
        self.group().set32(at!(alarm), alarm::QUIET);
        announce();
        self.order(0, cmd::RESUME, 0, LEAD_LIMIT)
            .ok_or("its program does not go on")?;
        Ok((self.group().get32(CARRIED), self.group().get32(CARRIED + 4)))
    }

    /// Ends the program of this site.
    pub fn kill(&self) {
        if self.gone().is_some() {
            return;
        }
        // Its snapshot, and what that was copied to, have its descriptors as well, and die a moment later.
        let copies: Vec<i32> = procfs::children(self.pid)
            .into_iter()
            .flat_map(|copy| [vec![copy], procfs::children(copy)].concat())
            .collect();
        child::kill(self.pid, libc::SIGKILL);
        let ended = || self.gone().is_some() && copies.iter().all(|copy| procfs::has_ended(*copy));
        let deadline = Instant::now() + Duration::from_secs(5);
        while !ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[must_use]
    pub fn part(&self) -> Part {
        self.part
    }

    /// Events that this site has come to.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.group().get64(at!(own self.part.slot(), next))
    }
}

/// Waits until the agent stands before the program's first instruction.
fn stands(group: &Group, slot: usize) -> Result<(), LaunchError> {
    let deadline = Instant::now() + START_LIMIT;
    while group.phase(slot) != phase::RUNNING {
        let seen = group.bell();
        if group.end() == end::SETUP || group.is_gone(slot) || Instant::now() > deadline {
            let nr = group.get32(at!(end_nr));
            let source = std::io::Error::from_raw_os_error(
                i32::try_from(-group.get64(at!(end_value)).cast_signed()).unwrap_or(0),
            );
            return Err(LaunchError::Agent {
                replica: 0,
                step: nr,
                source,
            });
        }
        group.sleep(seen, Duration::from_millis(20));
    }
    Ok(())
}

fn number(word: u64) -> i32 {
    u32::try_from(word & 0xffff_ffff)
        .expect("masked")
        .cast_signed()
}

/// How a program comes to the end of its log, whose leader is lost.
struct CatchUp {
    at: (u64, u64),
    since: Instant,
    used: u64,
    limit: Duration,
}

impl CatchUp {
    fn new(spins_after: Duration) -> Self {
        let limit = if spins_after.is_zero() {
            CATCH_UP
        } else {
            CATCH_UP.min(spins_after)
        };
        Self {
            at: (0, 0),
            since: Instant::now(),
            used: 0,
            limit,
        }
    }

    /// It has claimed and done so much, of `all`, and has used so much processor time, in nanoseconds. Or nobody is to wait
    /// for it any more.
    fn is_at(&mut self, at: (u64, u64), all: u64, used: u64) -> Result<(), String> {
        if at != self.at {
            (self.at, self.since, self.used) = (at, Instant::now(), used);
        }
        let (waited, left) = (self.since.elapsed(), all.saturating_sub(at.1));
        // A twentieth of the time: of a host with more to do than this it gets as much.
        let computes = u128::from(used.saturating_sub(self.used)) > self.limit.as_nanos() / 20;
        if waited > self.limit && !computes {
            Err(format!(
                "its program has {left} events of the log left, and has done nothing for {} s",
                self.limit.as_secs()
            ))
        } else if waited > COMPUTES {
            Err(format!(
                "its program has {left} events of the log left, and computes for {} s without one",
                COMPUTES.as_secs()
            ))
        } else {
            Ok(())
        }
    }
}

/// What the agent says about whether a program can be led by this site.
fn led(answer: Option<i64>) -> Result<(), String> {
    match answer {
        Some(0) => Ok(()),
        Some(refused) if refused <= -1000 => Err(format!(
            "descriptor {} of the program was the primary's alone (a device, a file of procfs, or an outgoing connection)",
            -1000 - refused
        )),
        Some(-1) => Err(
            "the program has made more settings of its process than are kept for a take-over"
                .into(),
        ),
        Some(-11) => {
            Err("its kernel has just done what the log does not hold yet: ask again".into())
        }
        _ => Err("its program does not answer".into()),
    }
}
