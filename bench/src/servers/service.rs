//! The servers: how each is started on data of its own, and what all its processes use.
//!
//! Invariants
//!  1. Bare and protected runs have the same words, files and user.
//!  2. A server that has said anything of a divergence fails its run: no fault is made here.
//!
//! Not covered: what a server leaves that it has itself put into another session. CPU time comes in ticks of 10 ms.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use steadfast_workloads::load::process::free_address;

use super::golang;
use crate::product::Product;

/// How long a server may take until it listens, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// Who runs PostgreSQL, which refuses to run as root.
const OWNER: &str = "postgres";
/// Length of what nginx serves.
const FILE_BYTES: usize = 20_000;

/// What nginx serves: no part of it looks like another one near.
pub(super) fn page() -> Vec<u8> {
    (0..FILE_BYTES / 10)
        .flat_map(|line| format!("{line:09}\n").into_bytes())
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Redis,
    Nginx,
    /// `workloads/programs/http.go`.
    Go,
    Memcached,
    Postgres,
}

/// What a server runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// New; redis keeps nothing on disk.
    Fleeting,
    /// New; what is acknowledged is on disk.
    Kept,
    /// What an earlier one has left, kept likewise.
    Left,
}

/// A server that listens.
#[derive(Debug)]
pub(super) struct Started {
    child: Child,
    said: PathBuf,
    protected: bool,
    pub(super) address: SocketAddr,
    pub(super) dir: PathBuf,
}

/// A program of PATH, or of PostgreSQL's own folder.
pub(super) fn program(name: &str, package: &str) -> Result<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| {
            format!(
                "{name} is required, found in no folder of PATH\n  fix:   apt install {package}"
            )
        })
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// A command of PostgreSQL: as its own user where we are root.
fn as_owner(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", OWNER, "--regid", OWNER, "--clear-groups", "--"])
        .arg(program);
    command
}

fn owned(dir: &Path) -> Result<()> {
    if is_root() {
        let text = fs::read_to_string("/etc/passwd")?;
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{OWNER}:")))
            .with_context(|| {
                format!("the user {OWNER} is required, found none\n  fix:   apt install postgresql")
            })?;
        let id = |at: usize| line.split(':').nth(at).and_then(|id| id.parse().ok());
        chown(dir, id(2), id(3))?;
    }
    Ok(())
}

fn done(command: &mut Command) -> Result<()> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    ensure!(
        out.status.success(),
        "{command:?}: {}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(())
}

impl Service {
    /// # Errors
    /// When its program is missing, or cannot be built.
    pub(super) fn check(self) -> Result<()> {
        self.program().map(drop)
    }

    fn program(self) -> Result<PathBuf> {
        match self {
            Service::Redis => program("redis-server", "redis-server"),
            Service::Nginx => program("nginx", "nginx-light"),
            Service::Go => golang::server(),
            Service::Memcached => program("memcached", "memcached"),
            Service::Postgres => program("postgres", "postgresql"),
        }
    }

    /// Starts it on data of its own in `dir`, protected or not, and waits until it listens.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn start(self, dir: &Path, protector: Option<&Product>) -> Result<Started> {
        let flags = ["--replicas=2".to_owned()];
        self.start_with(
            dir,
            protector.map(|product| (product, &flags[..])),
            Data::Fleeting,
        )
    }

    /// The same with flags of `steadfast run`.
    ///
    /// # Errors
    /// As above.
    pub(super) fn start_with(
        self,
        dir: &Path,
        protector: Option<(&Product, &[String])>,
        data: Data,
    ) -> Result<Started> {
        if data != Data::Left {
            let _ = fs::remove_dir_all(dir);
        }
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
        let dir = fs::canonicalize(dir)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_address()?.port()));
        let words = self.words(&dir, address.port(), data != Data::Fleeting)?;
        let mut command = match protector {
            None => self.command(&self.program()?),
            Some((product, flags)) => {
                let mut command = self.command(product.path());
                command
                    .arg("run")
                    .args(flags)
                    .arg("--")
                    .arg(self.program()?);
                command
            }
        };
        let said = dir.join("said");
        let err = fs::File::create(&said)?;
        let mut child = command
            .args(words)
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(err.try_clone()?)
            .stderr(err)
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.said_ready(&dir).then(|| TcpStream::connect(address)) {
                Some(Ok(_)) => break,
                None if Instant::now() < deadline => {}
                None => {
                    let _ = child.kill();
                    let _ = child.wait();
                    bail!("not ready within {} s", PATIENCE.as_secs());
                }
                Some(Err(why))
                    if why.kind() == ErrorKind::ConnectionRefused && Instant::now() < deadline => {}
                Some(Err(why)) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    bail!(
                        "{address}: {why}; it said:\n{}",
                        fs::read_to_string(&said).unwrap_or_default()
                    );
                }
            }
            if let Some(status) = child.try_wait()? {
                bail!(
                    "it ended, {status}, and said:\n{}",
                    fs::read_to_string(&said).unwrap_or_default()
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Started {
            child,
            said,
            protected: protector.is_some(),
            address,
            dir,
        })
    }

    /// PostgreSQL makes a process for each client, also for one that comes too early, and notes when none does any more.
    fn said_ready(self, dir: &Path) -> bool {
        let said = || fs::read_to_string(dir.join("data/postmaster.pid")).unwrap_or_default();
        self != Service::Postgres
            || said()
                .lines()
                .nth(7)
                .is_some_and(|word| word.trim() == "ready")
    }

    fn command(self, program: &Path) -> Command {
        match self {
            Service::Postgres => as_owner(program),
            _ => Command::new(program),
        }
    }

    /// Its arguments; files that it needs are written.
    fn words(self, dir: &Path, port: u16, durable: bool) -> Result<Vec<String>> {
        let at = dir.display();
        let words = match self {
            Service::Redis if durable => {
                format!(
                    "--port {port} --bind 127.0.0.1 --save  --appendonly yes --appendfsync always --dir {at}"
                )
            }
            Service::Redis => {
                format!("--port {port} --bind 127.0.0.1 --save  --appendonly no --dir {at}")
            }
            Service::Nginx => {
                fs::write(dir.join("file"), page())?;
                fs::write(
                    dir.join("nginx.conf"),
                    format!(
                        "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error;\nevents {{}}\nhttp {{ access_log off; \
                         client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; \
                         scgi_temp_path {at}/s; keepalive_requests 100000000; server {{ listen 127.0.0.1:{port}; root {at}; }} }}\n"
                    ),
                )?;
                format!("-p {at} -c {at}/nginx.conf -e {at}/error")
            }
            Service::Go => {
                fs::write(dir.join("file"), page())?;
                format!("127.0.0.1:{port} {at}/file")
            }
            Service::Memcached => {
                let user = if is_root() { "-u root" } else { "" };
                format!("-l 127.0.0.1 -p {port} -U 0 -t 4 -m 64 {user}")
            }
            Service::Postgres => {
                let data = dir.join("data");
                fs::create_dir_all(&data)?;
                owned(dir)?;
                owned(&data)?;
                if !data.join("PG_VERSION").exists() {
                    let initdb = program("initdb", "postgresql")?;
                    done(
                        as_owner(&initdb)
                            .args(["-A", "trust", "-U", OWNER, "-N", "-D"])
                            .arg(&data),
                    )?;
                }
                format!("-D {at}/data -p {port} -k {at} -c listen_addresses=127.0.0.1")
            }
        };
        // redis's "no snapshots" is an empty word.
        let words = words.trim_end().split(' ').map(str::to_owned);
        Ok(match self {
            Service::Memcached => words.filter(|word| !word.is_empty()).collect(),
            _ => words.collect(),
        })
    }
}

/// Every process: its number and its parent's, and the CPU time that it and its threads have used.
fn processes() -> Vec<(u32, u32, Duration)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
            // proc_pid_stat(5), counted from the state, field 3: 4 is the parent, 14 and 15 the time in clock ticks of 10 ms,
            // 16 and 17 that of children that were waited for.
            let ticks: u64 = fields
                .get(11..15)?
                .iter()
                .filter_map(|field| field.parse::<u64>().ok())
                .sum();
            Some((
                pid,
                fields.get(1)?.parse().ok()?,
                Duration::from_millis(10 * ticks),
            ))
        })
        .collect()
}

impl Started {
    /// CPU time of all its processes.
    pub(super) fn cpu(&self) -> Duration {
        let all = processes();
        let mut tree = vec![self.child.id()];
        let mut at = 0;
        while let Some(parent) = tree.get(at).copied() {
            tree.extend(
                all.iter()
                    .filter(|(_, of, _)| *of == parent)
                    .map(|(pid, ..)| *pid),
            );
            at += 1;
        }
        all.iter()
            .filter(|(pid, ..)| tree.contains(pid))
            .map(|(.., time)| *time)
            .sum()
    }

    /// The last lines that it has said.
    pub(super) fn last_words(&self) -> String {
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(4)..].join("\n")
    }

    /// What was said by whom protects it.
    pub(super) fn protectors_words(&self) -> String {
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        let own = |line: &&str| line.starts_with("steadfast:") || line.starts_with("  ");
        said.lines().filter(own).collect::<Vec<_>>().join("\n")
    }

    /// Ends it as its service manager would.
    ///
    /// # Errors
    /// When it does not end, or has told of a divergence that nobody made.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.end()?;
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        let alarm = said
            .lines()
            .find(|line| line.starts_with("steadfast:") && !line.contains("0 divergences"));
        if let (true, Some(line)) = (self.protected, alarm) {
            bail!("no fault was made, and it said: {line}");
        }
        Ok(())
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// When nobody knows.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Ends it, if it has not ended already.
    ///
    /// # Errors
    /// When it does not end.
    pub(super) fn end(&mut self) -> Result<()> {
        crate::process::terminate(self.child.id());
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                bail!("it did not end within {} s of SIGTERM", PATIENCE.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
