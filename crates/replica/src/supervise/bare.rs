//! Bare: children that become a program which `--unprotected` names.
//!
//! ```text
//!   RPC_SPAWN, RPC_EXEC ──► named? ──► not traced ──► execve ──► the agent is gone ──► told, waited for
//!                                                       └── RPC_STAY: it goes on as it is
//! ```
//!
//! Such a process is the program's own child, with the kernel alone between it and the world: a set-user-id program has
//! the rights it is for, and a 32-bit one runs. Nothing of it is compared. It ends when the tree is ended.
//!
//! Not covered: what it starts itself, which is as bare as it is and is not ended. A script whose interpreter is named is
//! asked for by its own name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use steadfast_contract::event::{Unprotected, What};
use steadfast_contract::plan::Plan;
use steadfast_sys::memory::Remote;
use steadfast_sys::{child, procfs};

use crate::abi;
use crate::supervise::{Supervisor, WATCH};

/// How often a process that is on its way is looked at: an exec takes about a millisecond.
pub(crate) const LOOK: Duration = Duration::from_millis(1);
/// PATH_MAX of the kernel.
const PATH_BYTES: u64 = 4096;
const AT_FDCWD: i64 = -100;

/// What process `pid` is about to execute, if that is to run bare.
pub(crate) fn named(plan: &Plan, pid: i32, path: u64, dir: u64) -> Option<String> {
    if plan.unprotected.is_empty() {
        return None;
    }
    let given = text(pid, path)?;
    let base = match dir.cast_signed() {
        AT_FDCWD => PathBuf::from(format!("/proc/{pid}/cwd")),
        fd => PathBuf::from(format!("/proc/{pid}/fd/{fd}")),
    };
    let found = if given.is_absolute() {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        root.join(given.strip_prefix("/").unwrap_or(&given))
    } else if given.as_os_str().is_empty() {
        base
    } else {
        base.join(&given)
    };
    let real = std::fs::canonicalize(found).unwrap_or_else(|_| given.clone());
    let is_it = |name: &PathBuf| is_named(name, &given) || is_named(name, &real);
    let program = if given.as_os_str().is_empty() {
        &real
    } else {
        &given
    };
    plan.unprotected
        .iter()
        .any(is_it)
        .then(|| program.display().to_string())
}

/// A name with a slash is a whole path, one without is a file's in any directory.
fn is_named(name: &Path, path: &Path) -> bool {
    if name.as_os_str().as_bytes().contains(&b'/') {
        name == path
    } else {
        path.file_name() == Some(name.as_os_str())
    }
}

/// A string of another process.
fn text(pid: i32, addr: u64) -> Option<PathBuf> {
    const PAGE: u64 = 4096;
    let memory = Remote::open(pid).ok()?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < PATH_BYTES {
        let at = addr.checked_add(bytes.len() as u64)?;
        // To the end of its page: the next one may not be there.
        let mut part = vec![0; usize::try_from(PAGE - at % PAGE).ok()?];
        memory.read(at, &mut part).ok()?;
        let end = part.iter().position(|byte| *byte == 0);
        bytes.extend_from_slice(&part[..end.unwrap_or(part.len())]);
        if end.is_some() {
            return Some(PathBuf::from(OsStr::from_bytes(&bytes)));
        }
    }
    None
}

/// Whether a process has left the agent behind. One that may no longer be looked at has: it runs with other rights.
pub(crate) fn has_gone(pid: i32) -> bool {
    match procfs::maps(pid) {
        Ok(maps) => !maps.is_empty() && maps.iter().all(|map| map.range.start != abi::BASE),
        Err(_) => procfs::start_time(pid).is_some() && !procfs::has_ended(pid),
    }
}

/// What a process that stands in exec has become.
pub(crate) fn program(pid: i32) -> String {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    exe.map_or_else(|_| procfs::name(pid), |path| path.display().to_string())
}

/// What is told of it.
pub(crate) fn event(pid: i32, program: String) -> What {
    What::Unprotected(Unprotected {
        program,
        pid: pid.cast_unsigned(),
    })
}

impl Supervisor<'_> {
    /// Whether the leader has become a program that runs bare.
    pub(crate) fn has_gone_bare(&self) -> bool {
        self.exec.bare.is_some() && self.leader_end.is_none() && has_gone(self.replicas[0].pid)
    }

    /// What was a group's leader runs bare, or has ended so already; until then, or the end of the tree.
    pub(crate) fn see_bare_leader_off(&mut self) {
        let pid = self.replicas[0].pid;
        self.note_faults();
        self.forget_row();
        self.end_all_but_the_leader();
        let program = self.exec.bare.clone().unwrap_or_default();
        self.emit(event(pid, program));
        while self.leader_end.is_none() && !self.hearing.tree.is_ending() {
            let seen = self.group.bell();
            self.take_news();
            if self.leader_end.is_none() {
                self.group.sleep(seen, WATCH);
            }
        }
        if self.leader_end.is_none() {
            child::kill(pid, libc::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(names: &[&str]) -> Plan {
        let mut plan = Plan::new("sh".into(), "/bin/sh".into(), Vec::new());
        plan.unprotected = names.iter().map(PathBuf::from).collect();
        plan
    }

    #[test]
    fn a_name_is_a_file_s_in_any_directory_and_a_path_is_one_file() {
        let own = i32::try_from(std::process::id()).expect("a process number");
        let asked = |names: &[&str], path: &std::ffi::CStr| {
            named(
                &plan(names),
                own,
                path.as_ptr() as u64,
                AT_FDCWD.cast_unsigned(),
            )
        };
        let program = Some("/usr/bin/env".to_owned());
        assert_eq!(asked(&["true", "env"], c"/usr/bin/env"), program);
        assert_eq!(asked(&["/usr/bin/env"], c"/usr/bin/env"), program);
        assert_eq!(asked(&["/bin/env/x", "en", "bin"], c"/usr/bin/env"), None);
        assert_eq!(asked(&[], c"/usr/bin/env"), None);
        // A link is asked for by its own name and by what it leads to.
        let real = std::fs::canonicalize("/proc/self/exe").expect("this program");
        let real = real.to_str().expect("text");
        let link = Some("/proc/self/exe".to_owned());
        assert_eq!(asked(&["exe"], c"/proc/self/exe"), link);
        assert_eq!(asked(&[real], c"/proc/self/exe"), link);
    }
}
