//! One run of the target inside the sandbox: started, planted, left alone, ended.
//!
//! ```text
//!   start ──► exec stop: program and loader are patched ──► entry point: libraries are patched
//!                                                             └──► detach ──► runs natively
//! ```
//!
//! Invariants
//!  1. Every run of a campaign, golden and control runs included, is started the same way, so none
//!     differs from another by its environment.
//!  2. The scratch directory is emptied before each run, and everything alive in the sandbox is
//!     killed after it.
//!
//! Not covered: libraries that a program loads itself; programs that execute another (the faults
//! stay with the first).

mod arm;
mod family;
mod files;
mod planted;

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use steadfast_fault::Fault;
use steadfast_sandbox::{self as sandbox, Ended, Limits, Program};
use steadfast_strike::Refusal;
use steadfast_sys::procfs;
use steadfast_sys::ptrace::{self, Stopped, Waited};
use steadfast_sys::shared::Shared;

use self::family::Bound;
use self::files::{copy_tree, keep_time, own_tree};
use crate::module::{Found, Module, SHARED_BYTES};
use crate::payload::Counting;
use crate::scratch::remove_tree;
use crate::server::{self, Driver, Served, Stage};
use crate::storage;
use crate::victim::strike::{self, Strike};

/// What is run, and how.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Spec {
    /// Absolute path of the program.
    pub path: PathBuf,
    /// `argv`, with `argv[0]`.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// File for standard input.
    pub stdin: Option<PathBuf>,
    /// Directory whose contents are in the working directory at the start of each run.
    pub input: Option<PathBuf>,
    /// Randomised addresses, as the kernel likes it.
    pub aslr: bool,
    /// Address space, bytes; 0: unlimited.
    pub memory: u64,
    /// Largest file, bytes.
    pub file_size: u64,
    /// Processes of the user.
    pub processes: u64,
    /// User to run as.
    pub user: Option<u32>,
    /// It is run by something that makes namespaces of its own.
    pub nested: bool,
    /// It is a server: who asks it, and when.
    #[serde(default)]
    pub driver: Option<Driver>,
}

impl Spec {
    /// Makes a working directory as each run has one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn lay_out(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir(dir)?;
        match &self.input {
            Some(input) => copy_tree(&input.canonicalize()?, input, dir),
            None => keep_time(UNIX_EPOCH, dir),
        }
    }
}

/// What a run left behind, beside its files.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ran {
    /// Exit status.
    pub status: Option<i32>,
    /// Signal that it died of.
    pub signal: Option<i32>,
    /// It was given up.
    pub timed_out: bool,
    /// From the start of the program to its end.
    pub wall_ns: u64,
    /// CPU time of all its processes.
    pub cpu_ns: u64,
    /// Start and planting.
    pub setup_ns: u64,
    /// Of those, what planting took.
    pub plant_ns: u64,
    /// One for each fault: times it hit, and the first hit.
    pub hits: Vec<Hit>,
    /// The injector failed.
    pub error: Option<String>,
    /// Of a server: what its client met with.
    #[serde(default)]
    pub served: Option<Served>,
}

/// What became of a fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// How often it hit.
    pub hits: u64,
    /// Its place could not be reached so often.
    pub missed: u64,
    /// The first hit's execution.
    pub n: u64,
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
    /// CPU.
    pub cpu: u32,
    /// Time stamp of the first hit.
    pub tsc: u64,
    /// Of storage: the file, and where in it. Of a strike from outside: the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// Why a run could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The operating system.
    #[error("{what}: {source}")]
    Os {
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A fault that this target cannot have.
    #[error(transparent)]
    Fault(Box<Refusal>),
    /// It ended before its first instruction could be patched.
    #[error("the program did not start: {0}")]
    NotStarted(String),
    /// It was still going on when the caller's patience was over.
    #[error("a target that ends, found one that runs longer than {0:?}")]
    NotEnded(Duration),
}

fn os(what: &'static str) -> impl FnOnce(io::Error) -> SetupError {
    move |source| SetupError::Os { what, source }
}

/// Where the launcher's descriptor of the shared memory is in the target until it is mapped.
const SHARED_FD: i32 = 1023;
/// What lies nearer than this below a module has been mapped with it.
const MAPPED_TOGETHER: u64 = 1 << 30;

/// A target, inside the sandbox.
#[derive(Debug)]
pub struct Bench {
    pub(crate) spec: Spec,
    /// Holds `run`, `stdout` and `stderr`.
    pub(crate) scratch: PathBuf,
    pub(crate) modules: Vec<Module>,
    pub(crate) interpreter: Option<PathBuf>,
    pub(crate) counting: Counting,
    pub(crate) shared: Shared,
    /// How a server is driven.
    stage: Option<Stage>,
    /// The process that drives it in this run.
    driver_pid: Cell<Option<i32>>,
    /// Faults of the next run that are bound to a process or a thread of it.
    bound: RefCell<Vec<Bound>>,
    /// What the watcher of transfers does in the next run, if there is one.
    task: RefCell<Option<storage::Task>>,
}

/// A target that stands at its first instruction.
pub(crate) struct Started {
    pub(crate) stop: Stopped,
    pub(crate) at: Instant,
}

fn c_string(text: &[u8]) -> Result<CString, SetupError> {
    CString::new(text).map_err(|_| {
        os("arguments without zero bytes are needed")(io::ErrorKind::InvalidInput.into())
    })
}

impl Bench {
    /// Gets ready; nothing is started.
    ///
    /// # Errors
    /// When there is no shared memory.
    pub fn new(spec: Spec, scratch: PathBuf) -> io::Result<Self> {
        let bytes = usize::try_from(SHARED_BYTES).unwrap_or(usize::MAX);
        Ok(Self {
            stage: spec
                .driver
                .as_ref()
                .map(|driver| Stage::set(driver, spec.nested))
                .transpose()?,
            driver_pid: Cell::new(None),
            bound: RefCell::default(),
            task: RefCell::default(),
            spec,
            scratch,
            modules: Vec::new(),
            interpreter: None,
            counting: Counting::Plain,
            shared: Shared::new(c"steadfast-inject", bytes)?,
        })
    }

    /// Takes over what an earlier discovery found.
    ///
    /// # Errors
    /// When a module cannot be read.
    pub fn adopt(&mut self, discovered: &Discovered) -> io::Result<()> {
        self.modules = discovered
            .modules
            .iter()
            .map(Module::open)
            .collect::<io::Result<_>>()?;
        self.interpreter.clone_from(&discovered.interpreter);
        self.counting = if discovered.threads {
            Counting::Locked
        } else {
            Counting::Plain
        };
        Ok(())
    }

    fn clean(&self) -> Result<(), SetupError> {
        let dir = self.scratch.join("run");
        let what = os("the scratch directory has to be emptied");
        (|| {
            if let Err(error) = remove_tree(&dir)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
            self.spec.lay_out(&dir)?;
            // What a hardened program leaves for its judge, and the driver; outputs that a faulty program has
            // closed to its user could not be opened again.
            File::create(self.scratch.join("events"))?;
            let gone = |name: &str| match fs::remove_file(self.scratch.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                removed => removed.map(|()| true),
            };
            for name in [
                "served",
                "transfers",
                strike::TOLD,
                "stdout",
                "stderr",
                "client",
            ] {
                gone(name)?;
            }
            for name in (1..).map(server::replies) {
                if !gone(&name)? {
                    break;
                }
            }
            match self.spec.user {
                Some(user) => {
                    own_tree(&self.scratch.join("events"), user)?;
                    own_tree(&dir, user)
                }
                None => Ok(()),
            }
        })()
        .map_err(what)
    }

    /// Starts the program; it stands at its first instruction, or, untraced, runs.
    fn start(&self, limit: Duration, traced: bool) -> Result<i32, SetupError> {
        self.clean()?;
        let stdin = self.spec.stdin.as_deref().unwrap_or(Path::new("/dev/null"));
        let stdin = File::open(stdin).map_err(os("standard input has to be readable"))?;
        let create = |name: &str| {
            File::create(self.scratch.join(name)).map_err(os("output files have to be writable"))
        };
        let (stdout, stderr) = (create("stdout")?, create("stderr")?);
        // What a server prints is its own words: its client's output is judged.
        let out = if self.stage.is_some() {
            &stderr
        } else {
            &stdout
        };
        let streams = [stdin.as_raw_fd(), out.as_raw_fd(), stderr.as_raw_fd()];
        let socket = self.watcher()?;
        let watched = socket.as_ref().map(AsRawFd::as_raw_fd);
        let (path, argv) = (&self.spec.path, &self.spec.argv);
        let pid = self.begin(path, argv, streams, limit, traced, watched)?;
        if let Some(stage) = &self.stage {
            let client = |path: &Path, argv: &[String]| {
                let words = File::create(self.scratch.join("client"))?;
                let streams = [stdin.as_raw_fd(), stdout.as_raw_fd(), words.as_raw_fd()];
                self.begin(path, argv, streams, limit, false, None)
                    .map_err(io::Error::other)
            };
            let driver_pid = sandbox::aside(|| stage.drive(pid, &self.scratch, &client))
                .map_err(os("a process is needed"))?;
            self.driver_pid.set(Some(driver_pid));
        }
        Ok(pid)
    }

    /// Starts the process that watches transfers, if somebody asked for it; the socket over which
    /// the program hands its listener to it.
    fn watcher(&self) -> Result<Option<UnixStream>, SetupError> {
        let Some(task) = self.task.take() else {
            return Ok(None);
        };
        let what = || os("a process that watches transfers is needed");
        let (ours, theirs) = UnixStream::pair().map_err(what())?;
        let theirs = RefCell::new(Some(theirs));
        let log = storage::log(&self.scratch).map_err(what())?;
        sandbox::aside(|| {
            // The other end would keep this one open.
            drop(theirs.take());
            storage::watch(&ours, &task, &self.scratch, log, &self.shared)
        })
        .map_err(what())?;
        Ok(theirs.take())
    }

    /// Has the next run's transfers watched, if one of these faults is in them.
    pub(crate) fn watch(&self, faults: &[Fault]) {
        let rules = storage::rules(faults);
        if !rules.is_empty() {
            self.task.replace(Some(storage::Task::Strike(rules)));
        }
    }

    /// Runs it bare, with faults of storage alone.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn unplanted(&self, limit: Duration, faults: usize) -> Result<Ran, SetupError> {
        let mut ran = self.bare(limit)?;
        ran.hits = self.hits(faults);
        Ok(ran)
    }

    /// Runs it bare, and writes down what it transfers.
    ///
    /// # Errors
    /// When it cannot be started, or the watcher failed.
    pub(crate) fn transfers(
        &self,
        limit: Duration,
    ) -> Result<(storage::Transfers, Ran), SetupError> {
        self.task.replace(Some(storage::Task::Record));
        let ran = self.bare(limit)?;
        let found = storage::recorded(&self.scratch)
            .map_err(os("what transfers were watched has to be readable"))?;
        Ok((found, ran))
    }

    fn begin(
        &self,
        path: &Path,
        argv: &[String],
        streams: [i32; 3],
        limit: Duration,
        traced: bool,
        watched: Option<i32>,
    ) -> Result<i32, SetupError> {
        let path = c_string(path.as_os_str().as_bytes())?;
        let argv: Vec<CString> = argv
            .iter()
            .map(|arg| c_string(arg.as_bytes()))
            .collect::<Result<_, _>>()?;
        let env: Vec<CString> = self
            .spec
            .env
            .iter()
            .map(|(k, v)| c_string(format!("{k}={v}").as_bytes()))
            .collect::<Result<_, _>>()?;
        let dir = c_string(self.scratch.join("run").as_os_str().as_bytes())?;
        sandbox::start(&Program {
            path: &path,
            argv: &argv,
            env: &env,
            dir: &dir,
            streams,
            inherit: traced.then(|| (self.shared.fd(), SHARED_FD)),
            user: self.spec.user,
            limits: Limits {
                memory: self.spec.memory,
                file_size: self.spec.file_size,
                cpu_s: limit.as_secs() + 2,
                processes: self.spec.processes,
            },
            nested: self.spec.nested && !traced,
            fixed_addresses: !self.spec.aslr,
            traced,
            cpu: None,
            watched: watched.map(|socket| (socket, &storage::CALLS[..])),
        })
        .map_err(os("a process is needed"))
    }

    pub(crate) fn launch(&self, limit: Duration, threads: bool) -> Result<Started, SetupError> {
        let at = Instant::now();
        let pid = self.start(limit, true)?;
        let stopped = |pid| match ptrace::wait(pid).map_err(os("the program has to be traced"))? {
            Waited::Stopped { stop, .. } => Ok(stop),
            Waited::Exited(127) => Err(SetupError::NotStarted(
                "it cannot be executed by this user".into(),
            )),
            Waited::Exited(125) => Err(SetupError::NotStarted(
                "its user or directory was refused".into(),
            )),
            other => Err(SetupError::NotStarted(format!("{other:?}"))),
        };
        let mut stop = stopped(pid)?;
        let trace = || os("the program has to be traced");
        stop.set_plain_options(threads).map_err(trace())?;
        if !self.spec.aslr {
            // What the loader makes stack guards and mangled pointers of: else a fault that meets one
            // does something else each time.
            const AT_RANDOM: u64 = 25;
            let auxv = procfs::auxv(pid).map_err(trace())?;
            if let Some((_, place)) = auxv.iter().find(|(kind, _)| *kind == AT_RANDOM) {
                stop.write(*place, b"\0steadfast-seed!").map_err(trace())?;
            }
        }
        Ok(Started { stop, at })
    }

    /// Runs it bare: no tracing, no planting.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn bare(&self, limit: Duration) -> Result<Ran, SetupError> {
        let at = Instant::now();
        let pid = self.start(limit, false)?;
        let setup = at.elapsed();
        let ended = self.finish(pid, limit);
        Ok(self.tell(ran(
            ended,
            at.elapsed().saturating_sub(setup),
            setup,
            Duration::ZERO,
            Vec::new(),
        )))
    }

    /// Runs it untraced, and has one of its processes struck.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn struck(
        &self,
        strike: &Strike,
        after: Duration,
        limit: Duration,
    ) -> Result<Ran, SetupError> {
        let at = Instant::now();
        let pid = self.start(limit, false)?;
        let setup = at.elapsed();
        sandbox::aside(|| strike::wait_and_strike(pid, &self.scratch, strike, after))
            .map_err(os("a process that strikes is needed"))?;
        let ended = self.finish(pid, limit);
        let hits = strike::told(&self.scratch).map(|place| Hit {
            hits: 1,
            file: Some(place),
            ..Hit::default()
        });
        Ok(ran(
            ended,
            at.elapsed().saturating_sub(setup),
            setup,
            Duration::ZERO,
            hits.into_iter().collect(),
        ))
    }

    /// Runs it once to its end, watching what it maps and whether it has threads.
    ///
    /// # Errors
    /// When it cannot be started or traced.
    pub fn discover(&mut self, limit: Duration) -> Result<Discovered, SetupError> {
        let Started { stop, .. } = self.launch(limit, true)?;
        let pid = stop.pid();
        let found = self.to_entry(stop);
        let (stop, interpreter) = match found {
            Ok(found) => found,
            Err(error) => {
                sandbox::end_all(&mut Ended::default(), Some(pid));
                return Err(error);
            }
        };
        let maps = procfs::maps(pid).map_err(os("the program's memory map has to be readable"))?;
        let mut modules: Vec<Found> = Vec::new();
        let real = fs::canonicalize(&self.spec.path).unwrap_or_else(|_| self.spec.path.clone());
        for map in maps
            .iter()
            .filter(|map| map.executable && map.path.is_absolute())
        {
            let lowest = maps
                .iter()
                .filter(|m| m.path == map.path)
                .map(|m| m.range.start)
                .min()
                .unwrap_or(0);
            if !modules.iter().any(|m| m.path == map.path) {
                // A library may be larger than the distance to its arena: libLLVM has 120 MB.
                let near = |m: &&procfs::Mapping| {
                    m.range.start <= lowest && lowest - m.range.start < MAPPED_TOGETHER
                };
                let floor = maps.iter().filter(near).map(|m| m.range.start).min();
                modules.push(Found {
                    path: map.path.clone(),
                    lowest,
                    floor: floor.unwrap_or(lowest),
                    index: 0,
                });
            }
        }
        // The program first.
        modules.sort_by_key(|m| m.path != real);
        for (index, module) in modules.iter_mut().enumerate() {
            module.index = index;
        }
        let threads = if self.stage.is_some() {
            // A server is let go, or its client would wait; it counts as one with threads.
            stop.detach().map_err(os("the program has to be let go"))?;
            self.finish(pid, limit);
            true
        } else {
            let threads = watch_threads(stop, limit);
            if threads.is_none() {
                sandbox::end_all(&mut Ended::default(), Some(pid));
            }
            threads.ok_or(SetupError::NotEnded(limit))?
        };
        sandbox::end_all(&mut Ended::default(), Some(pid));
        let discovered = Discovered {
            modules,
            interpreter,
            threads,
        };
        self.adopt(&discovered)
            .map_err(os("the target's files have to be readable"))?;
        Ok(discovered)
    }

    /// From the exec stop to the entry point of the program.
    fn to_entry(&self, mut stop: Stopped) -> Result<(Stopped, Option<PathBuf>), SetupError> {
        let pid = stop.pid();
        let read = || os("the program's memory has to be readable");
        let auxv = procfs::auxv(pid).map_err(read())?;
        let value = |kind: u64| auxv.iter().find(|(k, _)| *k == kind).map_or(0, |(_, v)| *v);
        let (base, entry) = (value(7), value(9)); // AT_BASE, AT_ENTRY
        let maps = procfs::maps(pid).map_err(read())?;
        let interpreter = maps
            .iter()
            .find(|map| base != 0 && map.range.contains(&base))
            .map(|map| map.path.clone());
        if stop.regs().map_err(read())?.rip != entry {
            stop = match run_to(stop, entry)? {
                Planted::Stands(stop) => stop,
                Planted::Ended(ended) => {
                    return Err(SetupError::NotStarted(format!(
                        "it ended in its loader, {}",
                        ended.signal.map_or_else(
                            || format!("with status {}", ended.status.unwrap_or(0)),
                            |signal| format!("of signal {signal}")
                        )
                    )));
                }
            };
        }
        Ok((stop, interpreter))
    }

    /// After the end of a target that was followed: who is followed is waited for together with everybody
    /// else, so its client may have been collected already.
    pub(crate) fn followed(&self, pid: i32, mut ended: Ended, limit: Duration) -> Ended {
        if let Some(driver_pid) = self.driver_pid.take() {
            let left = if ended.timed_out {
                Duration::ZERO
            } else {
                limit
            };
            let lives = steadfast_sys::child::is_child(driver_pid);
            if lives && sandbox::await_end(driver_pid, left).timed_out {
                sandbox::end_all(&mut Ended::default(), Some(driver_pid));
            }
        }
        sandbox::end_all(&mut ended, Some(pid));
        ended
    }

    /// Waits for the target's end, and its client's; nothing is alive in the sandbox afterwards.
    pub(crate) fn finish(&self, pid: i32, limit: Duration) -> Ended {
        match self.driver_pid.take() {
            Some(driver_pid) => server::finish(&self.scratch, pid, driver_pid, limit),
            None => sandbox::finish(pid, limit),
        }
    }

    /// Waits for the client of a server that has ended.
    pub(crate) fn settle(&self, limit: Duration) {
        if let Some(driver_pid) = self.driver_pid.take() {
            sandbox::await_end(driver_pid, limit);
        }
    }

    /// Adds what the client of a server met with.
    pub(crate) fn tell(&self, mut ran: Ran) -> Ran {
        if self.stage.is_some() {
            let served = server::served(&self.scratch);
            // It was ended by its driver; how the client ended says how the run did.
            if served.lived {
                (ran.status, ran.signal) = (served.status, None);
            }
            ran.served = Some(served);
        }
        ran
    }
}

/// What a run of the target showed of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Discovered {
    /// Files that are executed from, the program first.
    pub modules: Vec<Found>,
    /// The loader.
    pub interpreter: Option<PathBuf>,
    /// Whether it has more than one thread.
    pub threads: bool,
}

/// A program on its way to its first instruction behind the loader.
#[derive(Debug)]
pub(crate) enum Planted {
    /// It stands there.
    Stands(Stopped),
    /// It did not come so far.
    Ended(Ended),
}

/// The program's entry point, as the kernel tells its loader; 0 where it does not.
pub(crate) fn entry(pid: i32) -> io::Result<u64> {
    const AT_ENTRY: u64 = 9;
    let auxv = steadfast_sys::procfs::auxv(pid)?;
    let entry = auxv.iter().find(|(kind, _)| *kind == AT_ENTRY);
    Ok(entry.map_or(0, |(_, at)| *at))
}

/// Runs up to an address.
fn run_to(mut stop: Stopped, addr: u64) -> Result<Planted, SetupError> {
    let what = || os("the program has to be traced");
    let mut byte = [0];
    stop.read(addr, &mut byte).map_err(what())?;
    stop.write(addr, &[0xcc]).map_err(what())?;
    let mut deliver = 0;
    loop {
        stop = match stop.run(deliver).map_err(what())? {
            Waited::Stopped { stop, signal, .. } => {
                deliver = signal;
                stop
            }
            Waited::Exited(status) => {
                return Ok(Planted::Ended(Ended {
                    status: Some(status),
                    ..Ended::default()
                }));
            }
            Waited::Signaled(signal) => {
                return Ok(Planted::Ended(Ended {
                    signal: Some(signal),
                    // Nothing else limits a loader that spins: it used its CPU time up.
                    timed_out: signal == libc::SIGXCPU,
                    ..Ended::default()
                }));
            }
        };
        let mut regs = stop.regs().map_err(what())?;
        if deliver == libc::SIGTRAP && regs.rip == addr + 1 {
            regs.rip = addr;
            stop.set_regs(&regs).map_err(what())?;
            stop.write(addr, &byte).map_err(what())?;
            return Ok(Planted::Stands(stop));
        }
    }
}

/// Lets the program run to its end or to its second thread: whether it has one, or nothing after so long.
/// It may wait for something that never comes, so nobody waits for it without a limit.
fn watch_threads(stop: Stopped, limit: Duration) -> Option<bool> {
    let pid = stop.pid();
    let deadline = Instant::now() + limit;
    let mut idle = 0_u32;
    let mut going = stop.resume();
    while going.is_ok() {
        match ptrace::poll(pid) {
            Ok(Some(Waited::Stopped { event, .. })) if event == libc::PTRACE_EVENT_CLONE => {
                return Some(true);
            }
            Ok(Some(Waited::Stopped { stop, signal, .. })) => going = stop.resume_with(signal),
            Ok(None) if Instant::now() > deadline => return None,
            Ok(None) => {
                // Most are over in no time; one that computes is left alone.
                idle += 1;
                let us = if idle < 100 { 10 } else { 500 };
                std::thread::sleep(Duration::from_micros(us));
            }
            _ => break,
        }
    }
    Some(false)
}

fn ran(ended: Ended, wall: Duration, setup: Duration, plant: Duration, hits: Vec<Hit>) -> Ran {
    let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    Ran {
        status: ended.status,
        signal: ended.signal,
        timed_out: ended.timed_out,
        wall_ns: ns(wall),
        cpu_ns: ended.cpu_ns,
        setup_ns: ns(setup),
        plant_ns: ns(plant),
        hits,
        error: None,
        served: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_finds_its_files_as_old_as_they_are() {
        let place = tempfile::tempdir().expect("a directory");
        let input = place.path().join("input");
        fs::create_dir_all(input.join("sub")).expect("made");
        fs::write(input.join("sub/file"), "words").expect("written");
        for (to, link) in [("sub/file", "inside"), ("/etc/passwd", "outside")] {
            std::os::unix::fs::symlink(to, input.join(link)).expect("made");
        }
        let old = UNIX_EPOCH + Duration::new(1_000_000_000, 5);
        for name in ["sub/file", "sub", "."] {
            keep_time(old, &input.join(name)).expect("set");
        }
        let laid = place.path().join("laid");
        let mut spec = Spec {
            input: Some(input),
            ..Spec::default()
        };
        spec.lay_out(&laid).expect("laid out");
        let time = |name: &str| {
            let at = fs::metadata(laid.join(name)).expect("there");
            at.modified().expect("a time")
        };
        assert_eq!(["sub/file", "sub", "."].map(time), [old; 3]);
        let link = |name: &str| laid.join(name).is_symlink();
        // What would lead out of the target's own directory is there itself.
        assert!(link("inside") && !link("outside") && laid.join("outside").is_file());
        fs::remove_dir_all(&laid).expect("gone");
        spec.input = None;
        spec.lay_out(&laid).expect("laid out");
        assert_eq!(time("."), UNIX_EPOCH);
    }
}
