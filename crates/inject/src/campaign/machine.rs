//! Where a campaign was begun: the machine, and the commit of the tree around it.

use std::fs;
use std::path::Path;

use crate::record::Machine;

/// Looks at the machine.
#[must_use]
pub fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |text: &str, key: &str| {
        text.lines()
            .find(|l| l.starts_with(key))
            .and_then(|l| l.split_once([':', '=']))
            .map_or(String::new(), |(_, v)| {
                v.trim().trim_matches('"').to_owned()
            })
    };
    let release = read("/etc/os-release");
    Machine {
        cpu: field(&cpuinfo, "model name"),
        cpus: u32::try_from(steadfast_sys::cpu::allowed().len()).unwrap_or(0),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        os: format!(
            "{} {}",
            field(&release, "ID="),
            field(&release, "VERSION_ID=")
        ),
        root: steadfast_sys::procfs::is_privileged(),
    }
}

/// The commit of the tree that a directory lies in, `-dirty` included.
pub(super) fn commit(dir: &Path) -> Option<String> {
    let git = |args: &[&str]| {
        let out = std::process::Command::new("git")
            .arg("-C")
            .arg(dir)
            .args(args)
            .output()
            .ok()?;
        out.status
            .success()
            .then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "HEAD"])?;
    let dirty = git(&["status", "--porcelain", "-uno"]).is_some_and(|s| !s.is_empty());
    Some(if dirty { format!("{head}-dirty") } else { head })
}
