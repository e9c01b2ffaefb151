//! Limits of the caller and of its control groups.
//!
//! Not covered: limits that only show under load, such as a memory limit that N copies of a
//! large program reach.

#![allow(unsafe_code, reason = "getrlimit(2), fork(2)")]

use std::fs;
use std::path::{Path, PathBuf};

use steadfast_sys::limit::{self, Limited};

use crate::Finding;
use crate::boxed::{self, Answer};

pub(crate) fn findings() -> Vec<Finding> {
    let mut findings = vec![
        processes(),
        open_files(),
        address_space(),
        data(),
        file_size(),
        locked_memory(),
    ];
    findings.extend(control_groups());
    findings
}

/// The soft limit; nothing if there is none.
fn soft(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable for the call.
    let rc = unsafe { libc::getrlimit(resource, &raw mut limit) };
    (rc == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

/// A leader, two followers with the first process of their namespaces, and two re-runs.
const PROCESSES: usize = 7;

fn processes() -> Finding {
    let outcome = boxed::run(boxed::LIMIT, || {
        for _ in 0..PROCESSES {
            // SAFETY: the children only wait to be killed with the group.
            match unsafe { libc::fork() } {
                -1 => return Answer::failed(1),
                0 => loop {
                    // SAFETY: waits for the signal that ends this process.
                    unsafe { libc::pause() };
                },
                _ => {}
            }
        }
        Answer::fine([0; 6])
    });
    let limit = shown(soft(libc::RLIMIT_NPROC));
    match outcome.fine() {
        Some(_) => Finding::works(
            "processes",
            format!("the {PROCESSES} that a run starts with fit the limit of {limit}"),
        ),
        None => Finding::missing(
            "processes",
            format!("{}, the limit is {limit}", outcome.why(&["fork"])),
        )
        .needed()
        .fix("ulimit -u unlimited, and pids.max of the control group"),
    }
}

/// What a launcher needs of it; `None`: enough.
fn too_little(name: &'static str, what: Limited, shown: &dyn Fn(u64) -> String) -> Option<Finding> {
    let found = limit::reach_of(what).filter(|&found| found < what.least())?;
    let seen = format!(
        "{} are allowed, at least {} are needed",
        shown(found),
        shown(what.least())
    );
    Some(Finding::missing(name, seen).needed().fix(what.fix()))
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn open_files() -> Finding {
    too_little("open files", Limited::Descriptors, &|n| n.to_string()).unwrap_or_else(|| {
        Finding::works(
            "open files",
            format!(
                "{} are allowed",
                shown(limit::limit_of(Limited::Descriptors))
            ),
        )
    })
}

fn address_space() -> Finding {
    too_little("address space", Limited::AddressSpace, &mib).unwrap_or_else(|| {
        match limit::limit_of(Limited::AddressSpace) {
            None => Finding::works("address space", "unlimited"),
            Some(limit) => Finding::slower(
                "address space",
                format!("{} are allowed", mib(limit)),
                "a soft limit is raised by what the replicas need; for the launcher it may be too little with many processes",
            )
            .fix(Limited::AddressSpace.fix()),
        }
    })
}

fn data() -> Finding {
    too_little("data", Limited::Data, &mib).unwrap_or_else(|| {
        let limit = limit::limit_of(Limited::Data).map_or_else(|| "unlimited".to_owned(), mib);
        Finding::works("data", limit)
    })
}

fn file_size() -> Finding {
    too_little("file size", Limited::FileSize, &mib).unwrap_or_else(|| {
        let limit = limit::limit_of(Limited::FileSize).map_or_else(|| "unlimited".to_owned(), mib);
        Finding::works("file size", limit)
    })
}

fn locked_memory() -> Finding {
    let limit = soft(libc::RLIMIT_MEMLOCK);
    Finding::works(
        "locked memory",
        format!("{} bytes; none is locked", shown(limit)),
    )
}

/// Where a controller of this process lives, from the innermost group up to the root of what can
/// be seen.
fn groups(controller: &str) -> Vec<PathBuf> {
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // hierarchy:controllers:path, and an empty list for version 2 (cgroups(7)).
    let membership = |wanted: &str| {
        memberships.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let same = if wanted.is_empty() {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|c| c == wanted)
            };
            same.then(|| path.to_owned())
        })
    };
    // id parent major:minor root mountpoint options ... - type source superoptions (proc(5)).
    let mount = |kind: &str, option: Option<&str>| {
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let same = after.next()? == kind
                && option.is_none_or(|option| {
                    after
                        .nth(1)
                        .is_some_and(|super_| super_.split(',').any(|o| o == option))
                });
            let mut before = before.split(' ').skip(3);
            same.then_some((before.next()?.to_owned(), PathBuf::from(before.next()?)))
        })
    };
    let version1 = membership(controller).zip(mount("cgroup", Some(controller)));
    let Some((path, (root, point))) =
        version1.or_else(|| membership("").zip(mount("cgroup2", None)))
    else {
        return Vec::new();
    };
    // The mount may show a part of the hierarchy only.
    let inside = path
        .strip_prefix(root.trim_end_matches('/'))
        .unwrap_or(&path)
        .trim_start_matches('/')
        .to_owned();
    let innermost = point.join(inside);
    innermost
        .ancestors()
        .take_while(|group| group.starts_with(&point))
        .map(Path::to_path_buf)
        .collect()
}

/// The tightest of a file's values on the way to the root, as the first word gives it.
fn tightest(controller: &str, files: &[&str]) -> Option<u64> {
    groups(controller)
        .iter()
        .flat_map(|group| files.iter().map(move |file| group.join(file)))
        .filter_map(|file| {
            fs::read_to_string(file)
                .ok()?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .min()
}

/// CPU time per wall time, in percent of one CPU.
fn quota() -> Option<u64> {
    groups("cpu")
        .iter()
        .filter_map(|group| {
            if let Ok(both) = fs::read_to_string(group.join("cpu.max")) {
                let mut words = both.split_whitespace();
                let (quota, period): (u64, u64) =
                    (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                return (quota * 100).checked_div(period);
            }
            let number = |file: &str| {
                fs::read_to_string(group.join(file))
                    .ok()?
                    .trim()
                    .parse::<i64>()
                    .ok()
            };
            let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
            // -1 is no quota.
            u64::try_from(quota)
                .ok()
                .zip(u64::try_from(period).ok())
                .and_then(|(q, p)| (q * 100).checked_div(p))
        })
        .min()
}

fn control_groups() -> Vec<Finding> {
    // Version 1 says "unlimited" by the largest number of whole pages.
    const UNLIMITED: u64 = 1 << 62;
    let memory = tightest("memory", &["memory.max", "memory.limit_in_bytes"])
        .filter(|&limit| limit < UNLIMITED);
    let pids = tightest("pids", &["pids.max"]);
    let mut findings = Vec::new();
    findings.push(match quota() {
        Some(percent) if percent < 200 => Finding::slower(
            "cgroup cpu",
            format!("{percent} % of one CPU are granted"),
            "replicas share that: the run takes as long as all of them",
        )
        .fix("docker run --cpus 2, CPUQuota=200% in a systemd unit"),
        Some(percent) => {
            Finding::works("cgroup cpu", format!("{percent} % of one CPU are granted"))
        }
        None => Finding::works("cgroup cpu", "no quota"),
    });
    findings.push(match memory {
        Some(limit) => Finding::works(
            "cgroup memory",
            format!("{} MiB for all replicas together", limit >> 20),
        ),
        None => Finding::works("cgroup memory", "no limit"),
    });
    findings.push(match pids {
        Some(limit) => Finding::works("cgroup processes", format!("{limit} are allowed")),
        None => Finding::works("cgroup processes", "no limit"),
    });
    findings
}
