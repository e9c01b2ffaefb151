//! Sites: a program bare, twice side by side, or under a pair, in mount namespaces with data and ledger on tmpfs.
//!
//! The link is loopback TCP, or a relay of a given rate (wire.rs). Everything ends with the value.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::wire::wire;

const PATIENCE: Duration = Duration::from_secs(120);

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

/// How the two sites of a pair are started, and what lies between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Flags {
    pub(super) both: Vec<String>,
    pub(super) primary: Vec<String>,
    pub(super) secondary: Vec<String>,
    /// Bytes a second of the link; `None`: as fast as loopback is.
    pub(super) rate: Option<u64>,
}

fn site(program: &Path, words: &[&str], more: [&[String]; 2]) -> Vec<String> {
    let program = program.display().to_string();
    let first = std::iter::once(program.as_str()).chain(words.iter().copied());
    let last = [
        "--patience",
        "60",
        "--ledger",
        "/mnt/ledger",
        "--data",
        "/mnt/data",
    ];
    let own = first.chain(last).map(str::to_owned);
    let all = own.chain(more.concat());
    all.chain(["--".to_owned()]).collect()
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
        let hosts = match column {
            Column::Bare => vec![host(seed, &[], first, &said)?],
            Column::Two => vec![
                host(seed, &[], first, &said)?,
                host(seed, &[], second, &place.join("said.b"))?,
            ],
            Column::Pair => return Self::pair(program, seed, first, place, &Flags::default()),
        };
        Ok(Self { hosts, said })
    }

    pub(super) fn pair(
        program: &Path,
        seed: &Path,
        command: &[String],
        place: &Path,
        flags: &Flags,
    ) -> Result<Self> {
        let said = place.join("said.a");
        let at = format!("127.0.0.1:{}", free_port()?);
        let to = match flags.rate {
            Some(rate) => wire(at.clone(), rate)?,
            None => at.clone(),
        };
        let b = host(
            seed,
            &site(
                program,
                &["secondary", "--listen", &at],
                [&flags.both, &flags.secondary],
            ),
            command,
            &place.join("said.b"),
        )?;
        let a = host(
            seed,
            &site(
                program,
                &["primary", "--peer", &to],
                [&flags.both, &flags.primary],
            ),
            command,
            &said,
        )?;
        Ok(Self {
            hosts: vec![a, b],
            said,
        })
    }

    /// A host that joins the first one, in place of the second, which is lost; `door` is where the first one listens.
    pub(super) fn join(
        &mut self,
        program: &Path,
        seed: &Path,
        command: &[String],
        place: &Path,
        (door, flags): (&str, &Flags),
    ) -> Result<()> {
        let to = match flags.rate {
            Some(rate) => wire(door.to_owned(), rate)?,
            None => door.to_owned(),
        };
        let listen = format!("127.0.0.1:{}", free_port()?);
        let words = ["join", "--peer", &to, "--listen", &listen];
        let own = site(program, &words, [&flags.both, &[]]);
        let joined = host(seed, &own, command, &place.join("said.b"))?;
        self.hosts.push(joined);
        Ok(())
    }

    pub(super) fn lose_second(&mut self) -> Result<()> {
        self.hosts[1].kill()?;
        self.hosts[1].wait()?;
        self.hosts.truncate(1);
        Ok(())
    }

    /// A file as a host has it.
    pub(super) fn file(&self, host: usize, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.hosts[host].id()))
    }

    /// What the first host has said so far.
    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Lines of the first host that hold these words, when there are as many.
    pub(super) fn wait_for(&mut self, words: &str, many: usize) -> Result<Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.said();
            let lines: Vec<String> = said
                .lines()
                .filter(|line| line.contains(words))
                .map(str::to_owned)
                .collect();
            if lines.len() >= many {
                return Ok(lines);
            }
            let ended = self.hosts[0].try_wait()?;
            ensure!(ended.is_none(), "the program has ended: {said}");
            ensure!(
                Instant::now() < deadline,
                "nobody says {words:?} within {} s: {said}",
                PATIENCE.as_secs()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
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

/// The number of the first process of a host's namespace.
pub(super) fn first_process(host: &Child) -> Option<String> {
    let unshare = host.id();
    let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
    children.split_ascii_whitespace().next().map(str::to_owned)
}

impl Drop for Sites {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            if !matches!(host.try_wait(), Ok(Some(_))) {
                // The first process of the host's namespace takes all others along. One that has become another user's does not
                // hear that unshare has ended (prctl(2), PR_SET_PDEATHSIG).
                if let Some(first) = first_process(host) {
                    let _ = Command::new("kill")
                        .args(["-KILL", &first])
                        .stderr(Stdio::null())
                        .status();
                }
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
