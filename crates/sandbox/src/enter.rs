//! The way in: namespaces of its own, a file system that is read-only, and nobody of the machine to talk to.
//!
//! Order: sockets of the machine are listed while they can still be seen, and masked when the mounts are ours.

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

use steadfast_sys::child;

use crate::{exit, ok};

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
    // What a terminal sends to the caller's process group is the caller's to hear: it ends its sandboxes itself.
    // SAFETY: setpgid(2) takes numbers.
    unsafe { libc::setpgid(0, 0) };
    let mut isolation = Isolation::default();
    let sockets = listening();
    let namespaces = unshare(rules, (uid, gid), &mut isolation);
    // SAFETY: one thread, as above.
    let first = unsafe { libc::fork() };
    if first < 0 {
        exit(1);
    }
    if first > 0 {
        keep(first);
    }
    child::when_parent_dies(libc::SIGKILL);
    if namespaces {
        enclose(rules, uid, &sockets, &mut isolation);
    }
    tell_rights(rules, uid, &mut isolation);
    let code = life(isolation);
    exit(code)
}

/// The namespaces of its own, of which process ids begin with the next child. `false`: the kernel gives none.
fn unshare(rules: &Rules, (uid, gid): (u32, u32), isolation: &mut Isolation) -> bool {
    let mut flags =
        libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    if !rules.network {
        flags |= libc::CLONE_NEWNET;
    }
    if uid != 0 {
        flags |= libc::CLONE_NEWUSER;
    }
    // SAFETY: unshare(2) takes numbers.
    match ok(unsafe { libc::unshare(flags) }.into()) {
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
    }
}

/// The keeper's life: until the first process ends.
fn keep(first: i32) -> ! {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    while unsafe { libc::waitpid(first, &raw mut status, 0) } < 0 {}
    exit(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        1
    })
}

/// Closes what namespaces alone leave open: the network, files and sockets.
fn enclose(rules: &Rules, uid: u32, sockets: &[CString], isolation: &mut Isolation) {
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
        match mask(sockets, &rules.scratch) {
            Ok(()) => isolation
                .closed
                .push("no unix sockets of the machine: /run is empty, others are masked".into()),
            Err(error) => isolation
                .open
                .push(format!("unix sockets of the machine ({error})")),
        }
    }
}

/// Says which rights programs have. What takes them away happens at each start.
fn tell_rights(rules: &Rules, uid: u32, isolation: &mut Isolation) {
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

/// A path for the kernel.
///
/// # Errors
/// When it has a zero byte.
pub fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::other("a path without zero bytes is needed"))
}
