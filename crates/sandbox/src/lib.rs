//! A sandbox for programs that do wrong things: namespaces of its own, a read-only file system, no
//! privilege, no network, and an end that takes everything along.
//!
//! ```text
//!   caller ── fork ──► keeper (waits) ── fork ──► first process: pid 1 of a pid namespace
//!                                                         └─ spawn ──► program, traced, unprivileged
//! ```
//!
//! Invariants
//!  1. Nothing inside can signal, trace or see a process outside.
//!  2. When the first process or its caller dies, the kernel kills everything inside.
//!  3. What the kernel would not give is told ([`Isolation`]), never assumed.
//!
//! Not covered: denial of service beyond the limits given, kernel bugs.

#![allow(
    unsafe_code,
    reason = "namespaces, seccomp and what happens between fork and exec"
)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use steadfast_sys::ptrace::Stopped;
use steadfast_sys::{child, procfs};

pub mod notify;

/// What a sandbox closes off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Isolation {
    /// What was closed off.
    pub closed: Vec<String>,
    /// What could not be.
    pub open: Vec<String>,
}

/// How the sandbox is to be.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The only directory that can be written to.
    pub scratch: CString,
    /// User and group that programs run as; only root can choose.
    pub user: Option<u32>,
    /// Whether programs reach the network of the machine.
    pub network: bool,
    /// Whether programs make namespaces of their own.
    pub nested: bool,
}

fn ok(rc: i64) -> io::Result<i64> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

/// Makes a sandbox: `life` runs as process 1 of new namespaces and exits with its result.
/// Returns the keeper's process id here.
///
/// # Errors
/// When a process or a namespace is refused.
pub fn enter(rules: &Rules, life: impl FnOnce(Isolation) -> i32) -> io::Result<i32> {
    // SAFETY: getuid(2) cannot fail.
    let uid = unsafe { libc::getuid() };
    // SAFETY: getgid(2) cannot fail.
    let gid = unsafe { libc::getgid() };
    // SAFETY: getpid(2) cannot fail.
    let us = unsafe { libc::getpid() };
    // SAFETY: the caller has one thread here, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        pid => return Ok(pid),
    }
    child::when_parent_dies(libc::SIGKILL);
    if child::parent() != us {
        exit(1);
    }
    let mut isolation = Isolation::default();
    let sockets = listening();
    let mut flags =
        libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    if !rules.network {
        flags |= libc::CLONE_NEWNET;
    }
    if uid != 0 {
        flags |= libc::CLONE_NEWUSER;
    }
    // SAFETY: unshare(2) takes numbers.
    let unshared = ok(unsafe { libc::unshare(flags) }.into());
    let namespaces = match unshared {
        Ok(_) => {
            if uid != 0 {
                let _ = std::fs::write("/proc/self/setgroups", "deny");
                let _ = std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"));
                let _ = std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"));
            }
            true
        }
        Err(error) => {
            isolation.open.push(format!(
                "no namespaces ({error}): a faulty program has the rights of user {uid}"
            ));
            false
        }
    };
    // SAFETY: one thread, as above.
    let first = unsafe { libc::fork() };
    if first < 0 {
        exit(1);
    }
    if first > 0 {
        let mut status = 0;
        // SAFETY: `status` is valid for the call.
        while unsafe { libc::waitpid(first, &raw mut status, 0) } < 0 {}
        exit(if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            1
        });
    }
    child::when_parent_dies(libc::SIGKILL);
    if namespaces {
        isolation
            .closed
            .push("pid, mount, ipc, uts namespaces of its own".into());
        if rules.network {
            isolation.open.push("the network, on request".into());
        } else {
            isolation.closed.push(match loopback() {
                Ok(()) => "no network but a loopback of its own".into(),
                Err(error) => format!("no network, nor a loopback ({error})"),
            });
        }
        match file_system(rules) {
            Ok(()) => isolation
                .closed
                .push("file system read-only but for the scratch directory".into()),
            Err(error) => isolation.open.push(format!(
                "files can be written where user {uid} may ({error})"
            )),
        }
        if rules.network {
            isolation
                .open
                .push("unix sockets of the machine, on request".into());
        } else {
            match mask(&sockets, &rules.scratch) {
                Ok(()) => isolation.closed.push(
                    "no unix sockets of the machine: /run is empty, others are masked".into(),
                ),
                Err(error) => isolation
                    .open
                    .push(format!("unix sockets of the machine ({error})")),
            }
        }
    }
    match (uid, rules.user) {
        (0, Some(user)) => isolation
            .closed
            .push(format!("user {user}, no capabilities")),
        (0, None) => isolation.open.push("runs as root, on request".into()),
        _ => isolation
            .closed
            .push(format!("user {uid}, no capabilities")),
    }
    if rules.nested {
        isolation.open.push(
            "calls that change the machine, since replicas make namespaces of their own".into(),
        );
    } else {
        isolation
            .closed
            .push("calls that change the machine are denied (seccomp)".into());
    }
    let code = life(isolation);
    exit(code)
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process without running what its parent left to run at exit.
    unsafe { libc::_exit(code) }
}

/// Switches the loopback interface of a new network namespace on: servers listen there.
fn loopback() -> io::Result<()> {
    // SAFETY: socket(2) takes numbers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    ok(fd.into())?;
    // SAFETY: ifreq is plain bytes and numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = from.cast_signed();
    }
    // IFF_UP and IFF_RUNNING are 0x41.
    request.ifr_ifru.ifru_flags = 0x41;
    // SAFETY: SIOCSIFFLAGS reads one ifreq.
    let rc = unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw const request) };
    let done = ok(rc.into()).map(drop);
    // SAFETY: this descriptor is ours.
    unsafe { libc::close(fd) };
    done
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: all three are NUL-terminated, and there is no data.
    let rc = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            std::ptr::null(),
        )
    };
    ok(rc.into()).map(drop)
}

fn file_system(rules: &Rules) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        set: u64,
        clear: u64,
        propagation: u64,
        userns: u64,
    }
    const AT_RECURSIVE: libc::c_uint = 0x8000;
    const RDONLY: u64 = 1;
    let attr = |path: &CStr, set: u64, clear: u64, flags: libc::c_uint| {
        let attr = Attr {
            set,
            clear,
            propagation: 0,
            userns: 0,
        };
        // SAFETY: mount_setattr(2) reads a path and one structure of the size given.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                libc::AT_FDCWD,
                path.as_ptr(),
                flags,
                &raw const attr,
                size_of::<Attr>(),
            )
        };
        ok(rc).map(drop)
    };
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(&rules.scratch, &rules.scratch, c"", libc::MS_BIND)?;
    attr(c"/", RDONLY, 0, AT_RECURSIVE)?;
    attr(&rules.scratch, 0, RDONLY, 0)?;
    // What /proc shows are the sandbox's own processes. Where other mounts hide parts of the old
    // one (in containers), an ordinary user may not: the old one stays, read-only.
    let _ = mount(
        c"proc",
        c"/proc",
        c"proc",
        libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
    );
    Ok(())
}

/// Unix sockets of this network namespace that have a path and are listened at. A network namespace confines
/// abstract names alone: whoever reaches the path of another socket reaches its owner (unix(7)).
fn listening() -> Vec<CString> {
    // Columns of /proc/net/unix (proc(5)): address, references, protocol, flags, type, state, inode, path.
    // Flag 0x10000 is __SO_ACCEPTCON; datagram sockets never listen and are reached all the same.
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let path = |line: &str| {
        let mut rest = line;
        for _ in 0..7 {
            rest = rest.trim_start().split_once(' ')?.1;
        }
        let path = rest.trim_start();
        path.starts_with('/').then(|| CString::new(path).ok())?
    };
    let mut paths: Vec<CString> = table.lines().skip(1).filter_map(path).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Closes the sockets of the machine: an empty /run, where services keep theirs and will make new ones, and
/// /dev/null over every other, to which connect(2) answers ECONNREFUSED.
fn mask(sockets: &[CString], scratch: &CStr) -> io::Result<()> {
    let within = |path: &[u8], dir: &str| path.starts_with(format!("{dir}/").as_bytes());
    let mut emptied = Vec::new();
    for dir in ["/run", "/var/run"] {
        let real = std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir());
        if !real || within(scratch.to_bytes(), dir) {
            continue;
        }
        let target = CString::new(dir)?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
        mount(c"tmpfs", &target, c"tmpfs", flags)?;
        emptied.push(dir);
    }
    for path in sockets {
        if emptied.iter().any(|dir| within(path.to_bytes(), dir)) {
            continue;
        }
        match mount(c"/dev/null", path, c"", libc::MS_BIND) {
            Ok(()) => {}
            // A socket whose name is gone, or that another mount namespace sees, is out of reach here.
            Err(gone) if matches!(gone.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Limits of one program.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Address space, bytes; 0: as it is.
    pub memory: u64,
    pub file_size: u64,
    /// CPU time of one process, seconds; 0: as it is.
    pub cpu_s: u64,
    pub processes: u64,
}

/// One program to be started.
#[derive(Debug)]
pub struct Program<'a> {
    pub path: &'a CStr,
    pub argv: &'a [CString],
    pub env: &'a [CString],
    pub dir: &'a CStr,
    /// Standard input, output and error.
    pub streams: [RawFd; 3],
    /// Kept open across exec under this number.
    pub inherit: Option<(RawFd, RawFd)>,
    pub user: Option<u32>,
    pub limits: Limits,
    /// Whether it makes namespaces of its own, as replicas do: no call is denied then.
    pub nested: bool,
    /// Whether addresses are the same in each run.
    pub fixed_addresses: bool,
    /// Whether it asks to be traced, and so stops at exec, of SIGTRAP.
    pub traced: bool,
    pub cpu: Option<usize>,
    /// Calls that somebody at the other end of this socket answers.
    pub watched: Option<(RawFd, &'a [i64])>,
}

/// What a child needs between its birth and exec, made before it is born.
struct Birth<'a> {
    program: &'a Program<'a>,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    filter: Vec<libc::sock_filter>,
    asking: Option<(RawFd, Vec<libc::sock_filter>)>,
}

/// Stack of a child until exec: some hundred bytes of calls, and the message that hands a listener over.
const BIRTH_STACK_BYTES: usize = 64 << 10;

/// Starts a program inside the sandbox. With `traced` it stops at exec, of SIGTRAP.
///
/// The child borrows the caller's memory, which stands still until exec: a copy of the page tables of the first process,
/// which knows every instruction of its target, takes longer than all the rest of a start.
///
/// # Errors
/// As clone(2). A failed exec shows as exit status 127.
pub fn start(program: &Program<'_>) -> io::Result<i32> {
    let list = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings
            .iter()
            .map(|s| s.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let birth = Birth {
        program,
        argv: list(program.argv),
        env: list(program.env),
        filter: if program.nested { Vec::new() } else { filter() },
        asking: program
            .watched
            .map(|(socket, calls)| (socket, notify::filter(calls))),
    };
    let mut stack: Vec<u128> = Vec::with_capacity(BIRTH_STACK_BYTES / size_of::<u128>());
    // SAFETY: the end of the allocation, one past its last byte; 16-byte aligned as the ABI wants.
    let top = unsafe { stack.as_mut_ptr().add(stack.capacity()) };
    // SAFETY: the first process has one thread, which stands still until the child has executed or ended
    // (CLONE_VFORK), so `birth` and the stack outlive its use of them and nothing else writes them.
    let pid = unsafe {
        libc::clone(
            be_born,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw const birth).cast_mut().cast(),
        )
    };
    let error = io::Error::last_os_error();
    if program.user.is_some() {
        // The child's change of user has made the memory that it borrowed one that is not dumped.
        // SAFETY: prctl(2) takes numbers.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    }
    if pid < 0 { Err(error) } else { Ok(pid) }
}

extern "C" fn be_born(birth: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` passes one that outlives this child's use of its memory.
    let birth = unsafe { &*birth.cast::<Birth<'_>>() };
    // SAFETY: this is the child.
    unsafe { become_program(birth) }
}

/// # Safety
/// Called in a new child only. Its memory is the caller's: what it does has to be all right for the caller too,
/// and calls that libc makes for all threads of a process (setresuid(3)) are made by number.
#[allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one straight line between birth and exec"
)]
unsafe fn become_program(birth: &Birth<'_>) -> ! {
    let (program, filter) = (birth.program, &birth.filter);
    // SAFETY: system calls on valid arguments; none of them changes the caller's memory but for errno.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if let Some(cpu) = program.cpu {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
        let limit = |what, value: u64| {
            let limit = libc::rlimit {
                rlim_cur: value,
                rlim_max: value,
            };
            libc::setrlimit(what, &raw const limit);
        };
        limit(libc::RLIMIT_CORE, 0);
        limit(libc::RLIMIT_FSIZE, program.limits.file_size);
        if program.limits.memory > 0 {
            limit(libc::RLIMIT_AS, program.limits.memory);
        }
        if program.limits.cpu_s > 0 {
            limit(libc::RLIMIT_CPU, program.limits.cpu_s);
        }
        for (fd, from) in (0..).zip(program.streams) {
            libc::dup2(from, fd);
        }
        if let Some((from, to)) = program.inherit {
            libc::dup2(from, to);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if program.fixed_addresses {
            libc::personality(0x0004_0000); // ADDR_NO_RANDOMIZE
        }
        if libc::chdir(program.dir.as_ptr()) != 0 {
            libc::_exit(125);
        }
        if let Some(user) = program.user {
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>());
            if libc::syscall(libc::SYS_setresgid, user, user, user) != 0
                || libc::syscall(libc::SYS_setresuid, user, user, user) != 0
            {
                libc::_exit(125);
            }
            // A change of user takes this away.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        limit(libc::RLIMIT_NPROC, program.limits.processes);
        if program.traced {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
        }
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let filter = libc::sock_fprog {
            len: u16::try_from(filter.len()).unwrap_or(0),
            filter: filter.as_ptr().cast_mut(),
        };
        if filter.len > 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            ) != 0
        {
            libc::_exit(125);
        }
        if let Some((socket, filter)) = &birth.asking
            && !notify::hand_over(filter, *socket)
        {
            libc::_exit(124);
        }
        libc::execve(
            program.path.as_ptr(),
            birth.argv.as_ptr(),
            birth.env.as_ptr(),
        );
        libc::_exit(127)
    }
}

/// Denied with EPERM: what changes the machine rather than the program's own state. A program
/// that runs right does not need them; one that runs wrong must not have them.
const DENIED: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_open_by_handle_at,
];

fn filter() -> Vec<libc::sock_filter> {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    const AUDIT_X86_64: u32 = 0xc000_003e;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let eperm = ERRNO | libc::EPERM.cast_unsigned();
    // Another architecture's numbers mean other calls: none of them.
    let mut out = vec![
        op(LOAD, 0, 0, 4),
        op(EQUAL, 1, 0, AUDIT_X86_64),
        op(RETURN, 0, 0, eperm),
        op(LOAD, 0, 0, 0),
    ];
    for &nr in DENIED {
        out.push(op(EQUAL, 0, 1, u32::try_from(nr).unwrap_or(u32::MAX)));
        out.push(op(RETURN, 0, 0, eperm));
    }
    out.push(op(RETURN, 0, 0, ALLOW));
    out
}

/// How a program ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    pub status: Option<i32>,
    pub signal: Option<i32>,
    /// Nobody waited longer.
    pub timed_out: bool,
    /// Of the program and of all processes it left behind or waited for.
    pub cpu_ns: u64,
}

/// Waits for a child, `limit` at most; then kills everything in this pid namespace but process
/// 1, which the caller has to be, and collects the dead.
pub fn finish(pid: i32, limit: std::time::Duration) -> Ended {
    let mut ended = await_end(pid, limit);
    let main = ended.timed_out.then_some(pid);
    end_all(&mut ended, main);
    ended
}

/// Forks a helper of the first process: it runs `life`, and ends with its result, or with that process.
///
/// # Errors
/// As fork(2).
pub fn aside(life: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: the first process has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            child::when_parent_dies(libc::SIGKILL);
            exit(life())
        }
        pid => Ok(pid),
    }
}

/// A process that is watched by its descriptor: its number may be another's by now.
#[derive(Debug)]
pub struct Watched(std::os::fd::OwnedFd);

impl Watched {
    /// Takes hold of a process.
    ///
    /// # Errors
    /// As `pidfd_open(2)`.
    pub fn new(pid: i32) -> io::Result<Self> {
        use std::os::fd::FromRawFd as _;
        // SAFETY: pidfd_open(2) takes numbers.
        let fd = ok(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }))
    }

    /// Whether it has ended, or does within so long.
    #[must_use]
    pub fn ends_within(&self, wait: std::time::Duration) -> bool {
        use std::os::fd::AsRawFd as _;
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = libc::timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        // SAFETY: one valid pollfd and a valid time.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const limit, std::ptr::null()) > 0 }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        use std::os::fd::AsRawFd as _;
        // SAFETY: numbers and no siginfo.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }
}

/// Waits for a child, `limit` at most.
pub fn await_end(pid: i32, limit: std::time::Duration) -> Ended {
    let mut ended = Ended::default();
    let deadline = std::time::Instant::now() + limit;
    // SAFETY: pidfd_open(2) takes numbers.
    let fd = i32::try_from(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).unwrap_or(-1);
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let ms = i32::try_from(left.as_millis().min(1_000_000)).unwrap_or(i32::MAX)
            + i32::from(!left.is_zero());
        // SAFETY: one valid pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, if fd < 0 { ms.min(5) } else { ms }) };
        if take(pid, &mut ended, libc::WNOHANG) {
            break;
        }
        if left.is_zero() && ready <= 0 {
            ended.timed_out = true;
            break;
        }
    }
    if fd >= 0 {
        // SAFETY: this descriptor is ours.
        unsafe { libc::close(fd) };
    }
    ended
}

/// A thread or process that a traced program has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Born {
    pub tid: i32,
    pub parent: i32,
    /// It is a thread of its parent's process.
    pub thread: bool,
}

/// What became of one who stopped by himself.
#[derive(Debug)]
pub enum Trapped {
    /// It stands again, and goes on with this signal (0 for none).
    Goes(Stopped, i32),
    /// It has ended meanwhile, like this.
    Ended(Ended),
    /// Its process has: who is left to be waited for says how.
    Gone,
}

/// What is done with whoever is followed.
pub trait Follower {
    /// A thread or process was made, which has not executed anything.
    fn born(&mut self, born: Born);

    /// It is about to execute its first instruction.
    ///
    /// # Errors
    /// As ptrace(2).
    fn begins(&mut self, stop: Stopped) -> io::Result<Stopped> {
        Ok(stop)
    }

    /// One of them stopped with SIGTRAP.
    ///
    /// # Errors
    /// As ptrace(2).
    fn trapped(&mut self, stop: Stopped) -> io::Result<Trapped> {
        Ok(Trapped::Goes(stop, libc::SIGTRAP))
    }

    /// The limit has passed: whether the program is given up.
    fn is_over(&self) -> bool {
        true
    }
}

/// Lets a traced program run, and all that it makes, telling of each before its first
/// instruction; until the program ends, `limit` at most. Nothing stops it that `what` does not ask for.
///
/// # Errors
/// When it cannot be followed.
pub fn follow(
    stop: Stopped,
    limit: std::time::Duration,
    what: &mut dyn Follower,
) -> io::Result<Ended> {
    const MADE: [i32; 3] = [
        libc::PTRACE_EVENT_CLONE,
        libc::PTRACE_EVENT_FORK,
        libc::PTRACE_EVENT_VFORK,
    ];
    let main = stop.pid();
    stop.set_following_options()?;
    stop.resume()?;
    let deadline = std::time::Instant::now() + limit;
    let mut ended = Ended::default();
    // Stopped at birth, and not told of yet; told of, and not stopped yet.
    let (mut waiting, mut expected) = (Vec::new(), Vec::new());
    let go = |tid: i32, signal: i32| {
        // SAFETY: PTRACE_CONT takes numbers; a thread that was killed meanwhile is no matter.
        unsafe { libc::ptrace(libc::PTRACE_CONT, tid, 0, signal) };
    };
    let mut known = vec![main];
    let mut idle = 0_u32;
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain numbers, for which zero is a value.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        let flags = libc::__WALL | libc::WNOHANG;
        // SAFETY: `status` and `used` are valid for the call.
        let tid = unsafe { libc::wait4(-1, &raw mut status, flags, &raw mut used) };
        if tid <= 0 {
            if std::time::Instant::now() > deadline && what.is_over() {
                ended.timed_out = true;
                return Ok(ended);
            }
            // Births come in groups; a program that computes is left alone.
            idle += 1;
            std::thread::sleep(std::time::Duration::from_micros(if idle < 100 {
                10
            } else {
                500
            }));
            continue;
        }
        idle = 0;
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            known.retain(|one| *one != tid);
            let ns = |t: libc::timeval| {
                t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_usec.cast_unsigned() * 1000
            };
            ended.cpu_ns += ns(used.ru_utime) + ns(used.ru_stime);
            if tid == main {
                if libc::WIFEXITED(status) {
                    ended.status = Some(libc::WEXITSTATUS(status));
                } else {
                    ended.signal = Some(libc::WTERMSIG(status));
                }
                return Ok(ended);
            }
            continue;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if MADE.contains(&event) {
            let mut child: libc::c_ulong = 0;
            // SAFETY: PTRACE_GETEVENTMSG writes one word.
            let rc = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut child) };
            ok(rc)?;
            let child = i32::try_from(child).map_err(io::Error::other)?;
            let leader = |of| procfs::leader(of).unwrap_or(child);
            what.born(Born {
                tid: child,
                parent: tid,
                thread: event == libc::PTRACE_EVENT_CLONE && leader(child) != child,
            });
            known.push(child);
            if let Some(at) = waiting.iter().position(|one| *one == child) {
                waiting.swap_remove(at);
                what.begins(Stopped::standing(child))?.resume()?;
            } else {
                expected.push(child);
            }
            go(tid, 0);
        } else if event != 0 {
            go(tid, 0);
        } else if let Some(at) = expected.iter().position(|one| *one == tid) {
            expected.swap_remove(at);
            what.begins(Stopped::standing(tid))?.resume()?;
        } else if signal == libc::SIGTRAP && known.contains(&tid) {
            match what.trapped(Stopped::standing(tid))? {
                Trapped::Goes(stop, signal) => go(stop.pid(), signal),
                Trapped::Gone => {}
                Trapped::Ended(its) => {
                    known.retain(|one| *one != tid);
                    ended.cpu_ns += its.cpu_ns;
                    if tid == main {
                        (ended.status, ended.signal) = (its.status, its.signal);
                        return Ok(ended);
                    }
                }
            }
        } else if !known.contains(&tid) {
            waiting.push(tid);
        } else {
            go(tid, signal);
        }
    }
}

/// Whether a child still runs after so long.
#[must_use]
pub fn alive_after(pid: i32, wait: std::time::Duration) -> bool {
    // SAFETY: pidfd_open(2) takes numbers.
    let fd = i32::try_from(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).unwrap_or(-1);
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = libc::timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    // SAFETY: one valid pollfd and a valid time.
    let ready = unsafe { libc::ppoll(&raw mut poll, 1, &raw const limit, std::ptr::null()) };
    // SAFETY: this descriptor is ours.
    unsafe { libc::close(fd) };
    ready == 0
}

/// Kills what is left and collects it.
pub fn end_all(ended: &mut Ended, main: Option<i32>) {
    // SAFETY: getpid(2) cannot fail.
    if unsafe { libc::getpid() } == 1 {
        // SAFETY: from process 1 of a pid namespace this reaches that namespace and no more.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    } else if let Some(pid) = main {
        // SAFETY: a child's session, started by setsid(2); it is not reaped yet.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
        child::kill(pid, libc::SIGKILL);
    }
    while take(-1, ended, 0) {}
}

/// Reaps; adds what CPU time was used. Only the program itself tells how it ended.
fn take(pid: i32, ended: &mut Ended, flags: i32) -> bool {
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zero is a value.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `status` and `used` are valid for the call.
    let rc = unsafe { libc::wait4(pid, &raw mut status, flags | libc::__WALL, &raw mut used) };
    if rc <= 0 {
        return false;
    }
    let ns = |t: libc::timeval| {
        t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_usec.cast_unsigned() * 1000
    };
    ended.cpu_ns += ns(used.ru_utime) + ns(used.ru_stime);
    if pid > 0 && libc::WIFEXITED(status) {
        ended.status = Some(libc::WEXITSTATUS(status));
    } else if pid > 0 && libc::WIFSIGNALED(status) {
        ended.signal = Some(libc::WTERMSIG(status));
    }
    true
}

/// A path for the kernel.
///
/// # Errors
/// When it has a zero byte.
pub fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::other("a path without zero bytes is needed"))
}
