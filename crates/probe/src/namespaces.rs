//! Can a follower have the leader's process number?
//!
//! The probe goes the whole way that a follower is made: a process in a pid and a mount namespace
//! of its own (and in a user namespace, for an ordinary user), with its own procfs, that makes
//! another with a chosen number and shares one descriptor table with it.

#![allow(
    unsafe_code,
    reason = "clone3(2), mount(2) and shared memory have no safe interface"
)]

use std::fs;
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::boxed::{self, Answer, Outcome};
use crate::{Finding, read};

/// Steps of the way, from 1.
const STEPS: [&str; 7] = [
    "shared memory",
    "clone3",
    "uid_map",
    "a private mount tree",
    "mounting procfs",
    "clone3 with set_tid",
    "a shared descriptor table",
];
const CLONE: u32 = 2;
const UID_MAP: u32 = 3;
const PRIVATE: u32 = 4;
const PROCFS: u32 = 5;
const SET_TID: u32 = 6;
const FILES: u32 = 7;

/// What stands on the page on which the processes of the probe meet, in the word of each step: 0
/// while it has not been reached, then this, or the errno above it.
const WORKED: u64 = 1;

fn encode(result: Result<(), i32>) -> u64 {
    match result {
        Ok(()) => WORKED,
        Err(errno) => WORKED + 1 + u64::from(errno.unsigned_abs()),
    }
}

fn decode(word: u64) -> Result<(), i32> {
    match word {
        WORKED => Ok(()),
        // Not reached counts as a failure without a reason.
        word => Err(i32::try_from(word.saturating_sub(WORKED + 1)).unwrap_or(0)),
    }
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

// CLONE_ARGS_SIZE_VER2 of linux/sched.h.
const _: () = assert!(
    size_of::<CloneArgs>() == 88,
    "struct clone_args, linux/sched.h"
);

pub(crate) fn findings() -> Vec<Finding> {
    let admin = read::is_admin();
    let outcome = boxed::run(boxed::LIMIT, || walk(admin));
    let way = if admin {
        "as root"
    } else {
        "in a user namespace"
    };
    let unequal = "followers get other process numbers, and the agent answers with the leader's (--equal-pids=auto)";
    let Some(answer) = outcome.fine() else {
        let fix = fix(admin, outcome);
        return vec![
            Finding::slower("equal pids", outcome.why(&STEPS), unequal).maybe_fix(fix),
            own_procfs_missing(outcome.why(&STEPS)),
        ];
    };
    // From here on the namespaces exist; procfs and the table may still be denied.
    let mut findings = vec![Finding::works(
        "equal pids",
        format!("a follower had the leader's number, {way}"),
    )];
    findings.push(match decode(answer.values[0]) {
        Ok(()) => Finding::works("own procfs", "mounted in a follower's namespaces"),
        // The kernel refuses a procfs that shows more than the one that is there.
        Err(errno) => own_procfs_missing(format!("{}: {}", STEPS[PROCFS as usize - 1], boxed::name(errno)))
            .fix("a /proc without mounts over it; in a container: docker run --security-opt systempaths=unconfined"),
    });
    findings
}

fn own_procfs_missing(seen: String) -> Finding {
    Finding::slower(
        "own procfs",
        seen,
        "what a follower reads of /proc is the leader's answer",
    )
}

/// Makes a process as a follower is made. The first value says how mounting procfs went; without
/// it the rest is still worth having.
fn walk(admin: bool) -> Answer {
    let Some(page) = shared_page() else {
        return Answer::failed(1);
    };
    // SAFETY: getpid has no failure.
    let number = unsafe { libc::getpid() };
    // SAFETY: getuid has no failure.
    let uid = unsafe { libc::getuid() };
    // SAFETY: getgid has no failure.
    let gid = unsafe { libc::getgid() };
    let mut flags =
        u64::from((libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_FILES).unsigned_abs());
    if !admin {
        flags |= u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    }
    let child = clone3(&CloneArgs {
        flags,
        exit_signal: signal_of_a_child(),
        ..CloneArgs::default()
    });
    if child == 0 {
        inside(page, (!admin).then_some((uid, gid)), number);
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) };
    }
    if child == -1 {
        return Answer::failed(CLONE);
    }
    let mut status = 0;
    boxed::wait(child, &mut status);
    for step in [UID_MAP, PRIVATE, SET_TID, FILES] {
        // Procfs may fail alone; everything else ends the walk.
        if let Err(errno) = decode(page[step as usize].load(Ordering::Relaxed)) {
            return Answer {
                step,
                errno,
                ..Answer::default()
            };
        }
    }
    Answer::fine([page[PROCFS as usize].load(Ordering::Relaxed), 0, 0, 0, 0, 0])
}

/// First process of the namespaces.
fn inside(page: &[AtomicU64; 8], map: Option<(u32, u32)>, number: i32) {
    let note = |step: u32, result: Result<(), i32>| {
        page[step as usize].store(encode(result), Ordering::Relaxed);
        result.is_ok()
    };
    let mapped = match map {
        None => Ok(()),
        Some((uid, gid)) => write_maps(uid, gid),
    };
    if !note(UID_MAP, mapped) {
        return;
    }
    let none = c"".as_ptr();
    let change = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: terminated strings; the kernel ignores source, type and data when it changes the
    // propagation type (mount(2)).
    let private = unsafe {
        libc::mount(
            none,
            c"/".as_ptr(),
            std::ptr::null(),
            change,
            std::ptr::null(),
        )
    };
    if !note(PRIVATE, ok(private)) {
        return;
    }
    let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let (proc, root) = (c"proc".as_ptr(), c"/proc".as_ptr());
    // SAFETY: terminated strings, no data. The mount is in a namespace of our own.
    note(
        PROCFS,
        ok(unsafe { libc::mount(proc, root, proc, quiet, std::ptr::null()) }),
    );

    let numbers = [number];
    let child = clone3(&CloneArgs {
        flags: u64::from(libc::CLONE_FILES.unsigned_abs()),
        exit_signal: signal_of_a_child(),
        set_tid: numbers.as_ptr().expose_provenance() as u64,
        set_tid_size: 1,
        ..CloneArgs::default()
    });
    if child == 0 {
        // SAFETY: getpid has no failure; the raw call, since glibc may remember another number.
        let own = unsafe { libc::syscall(libc::SYS_getpid) };
        note(
            SET_TID,
            if own == i64::from(number) {
                Ok(())
            } else {
                Err(0)
            },
        );
        // SAFETY: a terminated path. The descriptor is left open for the other process to see.
        let fd = unsafe { libc::open(c"/".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        page[0].store(u64::try_from(fd).unwrap_or(u64::MAX), Ordering::Relaxed);
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) };
    }
    if child == -1 {
        note(SET_TID, Err(boxed::errno()));
        return;
    }
    let mut status = 0;
    boxed::wait(child, &mut status);
    let fd = i32::try_from(page[0].load(Ordering::Relaxed)).unwrap_or(-1);
    // SAFETY: F_GETFD touches no memory; a descriptor that is not there is an error, as wanted.
    note(FILES, ok(unsafe { libc::fcntl(fd, libc::F_GETFD) }));
}

fn write_maps(uid: u32, gid: u32) -> Result<(), i32> {
    let write = |path: &str, text: String| {
        fs::write(path, text).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

fn ok(rc: i32) -> Result<(), i32> {
    if rc == -1 {
        Err(boxed::errno())
    } else {
        Ok(())
    }
}

fn signal_of_a_child() -> u64 {
    u64::from(libc::SIGCHLD.unsigned_abs())
}

fn clone3(args: &CloneArgs) -> i32 {
    // SAFETY: `args` is a whole clone_args of the size given. Without CLONE_VM and with no stack
    // the child goes on here on a copy of this one's memory, as after fork(2).
    let rc = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            std::ptr::from_ref(args),
            size_of::<CloneArgs>(),
        )
    };
    i32::try_from(rc).unwrap_or(-1)
}

fn shared_page() -> Option<&'static [AtomicU64; 8]> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page is zeroed, large enough, aligned, never unmapped, and only accessed
    // through atomics from now on.
    Some(unsafe { &*page.cast::<[AtomicU64; 8]>() })
}

/// How to get the namespaces that were denied.
fn fix(admin: bool, outcome: Outcome) -> Option<String> {
    let errno = outcome.errno()?;
    if errno == libc::ENOSPC {
        let kinds: &[&str] = if admin {
            &["pid", "mnt"]
        } else {
            &["user", "pid", "mnt"]
        };
        let full = kinds
            .iter()
            .find(|kind| read::number(&format!("/proc/sys/user/max_{kind}_namespaces")) == Some(0));
        return Some(format!(
            "sysctl user.max_{}_namespaces=64",
            full.unwrap_or(&"user")
        ));
    }
    if errno == libc::ENOSYS {
        return Some(
            "a container runtime that allows clone3: docker run --security-opt seccomp=unconfined"
                .to_owned(),
        );
    }
    if !admin && read::number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Some("sysctl kernel.unprivileged_userns_clone=1".to_owned());
    }
    if !admin && read::number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return Some(
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile that allows userns"
                .to_owned(),
        );
    }
    if read::is_filtered() {
        return Some(
            "docker run --security-opt seccomp=unconfined, or --cap-add SYS_ADMIN".to_owned(),
        );
    }
    (!admin).then(|| "run as root".to_owned())
}
