//! What the numbers were measured on.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::product::Product;

/// Everything about a machine that a reader needs to judge a number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    /// Hardware threads per core, from the first core's siblings.
    pub threads_per_core: usize,
    /// Last-level cache and which CPUs share it, for CPU 0.
    pub last_level_cache: String,
    pub hypervisor: bool,
    /// Whether the kernel offers the CPU's own event counters.
    pub counters: bool,
    pub memory_mib: u64,
    pub kernel: String,
    /// Contents of transparent_hugepage/enabled.
    pub huge_pages: String,
    pub system: String,
    /// Runnable processes averaged over a minute when the measurement began.
    pub load: f64,
    pub commit: String,
    pub product: String,
}

impl Machine {
    /// Describes the machine this runs on.
    #[must_use]
    pub fn here(product: &Product) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let family = format!(
            "family {} model {} stepping {}",
            field("cpu family").unwrap_or_default(),
            cpuinfo
                .lines()
                .find_map(|line| line.strip_prefix("model\t\t: "))
                .unwrap_or("?"),
            field("stepping").unwrap_or_default()
        );
        let memory = read("/proc/meminfo");
        let total = memory
            .split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<u64>().ok());
        let release = read("/etc/os-release");
        Machine {
            cpu: format!("{} ({family})", field("model name").unwrap_or_default()),
            cores: cores(),
            threads_per_core: siblings(),
            last_level_cache: last_level_cache(),
            hypervisor: field("flags").is_some_and(|flags| flags.contains(" hypervisor")),
            counters: Path::new("/sys/bus/event_source/devices/cpu").exists(),
            memory_mib: total.unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .trim()
                .to_owned(),
            system: release
                .lines()
                .find_map(|line| line.strip_prefix("PRETTY_NAME="))
                .unwrap_or("unknown")
                .trim_matches('"')
                .to_owned(),
            load: read("/proc/loadavg")
                .split_whitespace()
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
            commit: commit(),
            product: product.version(),
        }
    }

    /// The description as lines that stand above a table.
    #[must_use]
    pub fn render(&self) -> String {
        let virtual_or_not = if self.hypervisor {
            "virtual"
        } else {
            "bare metal"
        };
        let counters = if self.counters {
            ""
        } else {
            ", no event counters"
        };
        let mut out = format!(
            "machine: {}, {} CPUs ({virtual_or_not}, {} thread per core{counters}), {}, {} MiB\n\
             system:  {}, Linux {}, huge pages: {}\n\
             commit:  {}; product: {}\n",
            self.cpu,
            self.cores,
            self.threads_per_core,
            self.last_level_cache,
            self.memory_mib,
            self.system,
            self.kernel,
            self.huge_pages,
            self.commit,
            self.product,
        );
        // Half a process on average is already half a core that a replica does not get.
        if self.load > 0.5 {
            out += &format!(
                "caution: the load was {} before the first run; numbers suffer\n",
                self.load
            );
        }
        out
    }
}

/// The machine in a few words, as files of `results/` have it.
#[must_use]
pub fn sentence() -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let kind = if field("flags").is_some_and(|flags| flags.contains(" hypervisor")) {
        "virtual machine"
    } else {
        "machine"
    };
    let release = read("/proc/sys/kernel/osrelease");
    let version: Vec<&str> = release.trim().split('.').take(2).collect();
    format!(
        "{kind}, {} CPUs of type {}, Linux {}",
        cores(),
        field("model name").unwrap_or_default(),
        version.join(".")
    )
}

/// How many CPUs this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn siblings() -> usize {
    // A list such as "0,4" or "0-1".
    read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
        .trim()
        .split(',')
        .filter_map(|part| match part.split_once('-') {
            Some((from, to)) => Some(to.parse::<usize>().ok()? + 1 - from.parse::<usize>().ok()?),
            None => Some(1),
        })
        .sum()
}

fn last_level_cache() -> String {
    let caches = (0..8).filter_map(|index| {
        let dir = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let level = read(&format!("{dir}/level")).trim().parse::<u32>().ok()?;
        let part = |name: &str| read(&format!("{dir}/{name}")).trim().to_owned();
        Some((
            level,
            format!(
                "L{level} {} of CPUs {}",
                part("size"),
                part("shared_cpu_list")
            ),
        ))
    });
    caches
        .max()
        .map_or("caches unknown".to_owned(), |(_, text)| text)
}

/// The commit that is checked out; `with changes` if files differ from it.
#[must_use]
pub fn commit() -> String {
    let git = |args: &[&str]| {
        let out = Command::new("git")
            .args(args)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        out.ok()
            .filter(|out| out.status.success())
            .map(|out| out.stdout)
    };
    let Some(hash) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain"]).is_some_and(|out| !out.is_empty());
    let hash = String::from_utf8_lossy(&hash).trim().to_owned();
    if changed {
        hash + " with changes"
    } else {
        hash
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
