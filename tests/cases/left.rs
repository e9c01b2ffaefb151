//! What a run must not leave behind: processes, mounts, shared memory, files.
//!
//! A process belongs to a run if it is in its process group or carries its mark in its environment, which every
//! descendant inherits and no namespace hides from /proc here. Zombies count: somebody failed to wait for them. Where
//! nobody is left to wait, the tests do: they adopt orphans (`adopt`), so that no other process hides or delays them.
//!
//! Not covered: memory that is anonymous and unmapped by nobody; it ends with its processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// The name under which a run marks its processes; not the product's, which guests may not find in their environment.
pub(crate) const MARK: &str = "GROUP_MARK";

/// A process of a run.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    what: String,
}

/// Makes this process the parent of orphans below it.
pub(crate) fn adopt() -> Result<(), String> {
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(|error| format!("tests: cannot adopt orphans: {error}"))
}

/// The processes of the run with this mark and process group, other than those in `but`.
pub(crate) fn processes(mark: &str, group: i32) -> Vec<Process> {
    let needle = format!("{MARK}={mark}\0");
    let Ok(proc) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    proc.filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let close = stat.rfind(')')?;
        let fields: Vec<&str> = stat.get(close + 2..)?.split(' ').collect();
        let in_group = fields.get(2)?.parse::<i32>().ok()? == group;
        let marked = || {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|env| env.windows(needle.len()).any(|w| w == needle.as_bytes()))
        };
        // An adopted orphan that has ended is gone as soon as it is waited for. The command itself has been: it is
        // looked for only after its end.
        let orphan = fields.get(1)?.parse::<u32>().ok()? == std::process::id();
        if in_group && orphan && fields[0] == "Z" && pid != group {
            let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
            return None;
        }
        (in_group || marked()).then(|| Process {
            pid,
            what: format!(
                "process {pid} {} in state {}",
                &stat[stat.find('(').unwrap_or(0)..=close],
                fields[0]
            ),
        })
    })
    .collect()
}

/// Waits until no process of the run is left, and says which are if that takes longer than `grace`.
pub(crate) fn none_of(mark: &str, group: i32, grace: Duration) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let left = processes(mark, group);
        if left.is_empty() {
            return Ok(());
        }
        if start.elapsed() >= grace {
            let names: Vec<_> = left.iter().map(|p| p.what.as_str()).collect();
            end(&left);
            return Err(format!(
                "left behind after {} ms: {}",
                grace.as_millis(),
                names.join(", ")
            ));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Ends exactly these processes.
pub(crate) fn end(processes: &[Process]) {
    for process in processes {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
}

/// Whether a name holds the number of a process that lives: then it is that one's, and not left behind. A process that should
/// have ended is found as a process. Small numbers count something else.
fn is_in_use(name: &str) -> bool {
    name.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse::<u32>().ok())
        .any(|pid| pid > 99 && Path::new(&format!("/proc/{pid}")).exists())
}

/// Places where a product could forget something. Only names that hold its own count: others use this machine too.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Places {
    names: BTreeSet<String>,
    mounts: BTreeSet<String>,
}

impl Places {
    pub(crate) fn look() -> Self {
        let mut names = BTreeSet::new();
        for dir in [
            "/dev/shm",
            "/tmp",
            "/var/tmp",
            "/run",
            "/run/lock",
            "/dev/mqueue",
            "/sys/fs/cgroup",
        ] {
            for entry in fs::read_dir(Path::new(dir)).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.contains("steadfast") && !is_in_use(&name) {
                    names.insert(format!("{dir}/{name}"));
                }
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self {
            names,
            mounts: mounts.lines().map(str::to_owned).collect(),
        }
    }

    /// What is there now and was not before.
    pub(crate) fn grown_since(&self, before: &Self) -> Option<String> {
        let new: Vec<_> = self
            .names
            .difference(&before.names)
            .chain(self.mounts.difference(&before.mounts))
            .cloned()
            .collect();
        (!new.is_empty()).then(|| format!("left behind: {}", new.join(", ")))
    }
}
