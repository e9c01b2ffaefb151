//! Sites: a program bare, twice side by side, or under a pair, in mount namespaces with data and ledger on tmpfs.
//!
//! The link is loopback TCP. Everything ends with the value.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Bare,
    Two,
    Pair,
}

pub(super) const COLUMNS: [Column; 3] = [Column::Bare, Column::Two, Column::Pair];

/// One host each: the first is the one that a client asks.
#[derive(Debug)]
pub(super) struct Sites {
    pub(super) hosts: Vec<Child>,
    said: PathBuf,
}

pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn host(seed: &Path, own: &[String], command: &[String], said: &Path) -> Result<Child> {
    let script = "mount -t tmpfs none /mnt && mount -t tmpfs none /dev/shm && mkdir /mnt/data /mnt/ledger && mount -t tmpfs none \
                  /mnt/data && mount -t tmpfs none /mnt/ledger && cp -a \"$1\"/. /mnt/data && cd /mnt/data && shift && exec \"$@\"";
    let log = fs::File::create(said)?;
    Command::new("unshare")
        .args([
            "--mount",
            "--ipc",
            "--propagation",
            "private",
            "--kill-child",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .args(["--", "sh", "-c", script, "sh"])
        .arg(seed)
        .args(own)
        .args(command)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("unshare")
}

impl Sites {
    /// `command`: of the first host, and of the second where it runs alone.
    pub(super) fn start(
        column: Column,
        program: &Path,
        seed: &Path,
        [first, second]: [&[String]; 2],
        place: &Path,
    ) -> Result<Self> {
        let said = place.join("said.a");
        let port = free_port()?;
        let site = |side: &str, flag: &str| -> Vec<String> {
            let at = format!("127.0.0.1:{port}");
            [
                &program.display().to_string(),
                side,
                flag,
                &at,
                "--patience",
                "60",
                "--ledger",
                "/mnt/ledger",
                "--data",
                "/mnt/data",
                "--",
            ]
            .map(str::to_owned)
            .to_vec()
        };
        let mut hosts = Vec::new();
        match column {
            Column::Bare => hosts.push(host(seed, &[], first, &said)?),
            Column::Two => {
                hosts.push(host(seed, &[], first, &said)?);
                hosts.push(host(seed, &[], second, &place.join("said.b"))?);
            }
            Column::Pair => {
                let b = host(
                    seed,
                    &site("secondary", "--listen"),
                    first,
                    &place.join("said.b"),
                )?;
                hosts.push(host(seed, &site("primary", "--peer"), first, &said)?);
                hosts.push(b);
            }
        }
        Ok(Self { hosts, said })
    }

    /// What the first one has said, when all have ended.
    pub(super) fn output(mut self) -> Result<String> {
        for host in &mut self.hosts {
            let status = host.wait()?;
            let said = || fs::read_to_string(&self.said).unwrap_or_default();
            ensure!(status.success(), "{status}: {}", said());
        }
        Ok(fs::read_to_string(&self.said)?)
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            if !matches!(host.try_wait(), Ok(Some(_))) {
                let _ = host.kill();
                let _ = host.wait();
            }
        }
        // What the kernel has left to do for them.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The median and what it lies within: of fewer than seven rounds the smallest and the largest.
pub(super) fn middle(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (
        sorted[sorted.len() / 2],
        sorted[0],
        sorted[sorted.len() - 1],
    )
}
