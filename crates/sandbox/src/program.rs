//! The start of a program inside: what it may use, who it is, and which calls it may make.
//!
//! Invariant: nothing between birth and exec allocates or changes memory of the caller, whose it is.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::RawFd;

use crate::filter::{ALLOW, ASK, fail, filter};
use crate::notify;

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
        filter: if program.nested {
            Vec::new()
        } else {
            filter(DENIED, fail(libc::EPERM), fail(libc::EPERM))
        },
        asking: program
            .watched
            .map(|(socket, calls)| (socket, filter(calls, ASK, ALLOW))),
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
