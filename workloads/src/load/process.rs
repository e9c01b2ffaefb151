//! A server process: started on CPUs of its own, watched, ended.

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A running server, ended when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pub address: SocketAddr,
    pub cpus: usize,
}

/// Which CPUs the server and the client get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    pub server: Vec<usize>,
    pub client: usize,
}

impl Split {
    /// `threads` CPUs for the server and another one for the client.
    ///
    /// # Errors
    /// When there are not that many.
    pub fn of(threads: usize) -> Result<Self> {
        let all = sched_getaffinity(None)?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| all.is_set(cpu))
            .collect();
        ensure!(
            cpus.len() > threads,
            "{threads} CPUs for the server and one for its client are required, this machine gives {}",
            cpus.len()
        );
        Ok(Split {
            server: cpus[..threads].to_vec(),
            client: cpus[cpus.len() - 1],
        })
    }
}

impl Split {
    /// For checks that time nothing: server and client share all CPUs; `threads` is how many
    /// workers the server is told to start.
    ///
    /// # Errors
    /// When the CPUs cannot be listed.
    pub fn shared(threads: usize) -> Result<Self> {
        let all = sched_getaffinity(None)?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).cycle();
        Ok(Split {
            server: cpus.by_ref().take(threads).collect(),
            client: cpus.next().context("no CPU at all")?,
        })
    }
}

impl Split {
    /// The same for a server without workers: it may use all CPUs, as one whose second runs are on another core has to.
    ///
    /// # Errors
    /// When the CPUs cannot be listed.
    pub fn everywhere() -> Result<Self> {
        let all = sched_getaffinity(None)?;
        let server: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| all.is_set(cpu))
            .collect();
        let client = *server.last().context("no CPU at all")?;
        Ok(Split { server, client })
    }
}

fn pin(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).context("a thread cannot be bound to its CPUs")
}

/// Runs `work` on the client's CPU and gives the thread its CPUs back.
///
/// # Errors
/// When the thread cannot be bound, and whatever `work` fails with.
pub fn on_client_cpu<T>(split: &Split, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = sched_getaffinity(None)?;
    pin(&[split.client])?;
    let result = work();
    sched_setaffinity(None, &before)?;
    result
}

impl Running {
    /// Starts a server on the CPUs of `split`; a new process inherits them from the thread that
    /// starts it. `ready` is asked until it says yes.
    ///
    /// # Errors
    /// When it cannot be started, ends at once, or is not ready within ten seconds.
    pub fn start(
        program: &Path,
        args: &[String],
        address: SocketAddr,
        split: &Split,
        log: &Path,
        mut ready: impl FnMut(SocketAddr) -> bool,
    ) -> Result<Self> {
        let out =
            fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let before = sched_getaffinity(None)?;
        pin(&split.server)?;
        let child = Command::new(program)
            .args(args)
            .env_clear()
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn();
        sched_setaffinity(None, &before)?;
        let child = child.with_context(|| format!("{} could not be started", program.display()))?;
        let mut running = Running {
            child,
            address,
            cpus: split.server.len(),
        };
        let begun = Instant::now();
        while !ready(address) {
            if let Some(status) = running.child.try_wait()? {
                bail!(
                    "{} ended with {status} before it served\n{}",
                    program.display(),
                    fs::read_to_string(log).unwrap_or_default()
                );
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(10),
                "{} did not serve within ten seconds",
                program.display()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }

    /// CPU time of all threads so far, from the scheduler's own count (nanoseconds, where
    /// /proc/PID/stat counts ticks of ten milliseconds).
    ///
    /// # Errors
    /// When the process is gone.
    pub fn cpu_ns(&self) -> Result<u64> {
        let pid = self.child.id();
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{pid}/task")).context("the server is gone")? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            sum += text
                .split_whitespace()
                .next()
                .and_then(|first| first.parse::<u64>().ok())
                .context(
                    "/proc/PID/task/TID/schedstat is empty: the kernel lacks CONFIG_SCHED_INFO",
                )?;
        }
        Ok(sum)
    }

    /// Peak resident memory in KiB.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn peak_kib(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        status
            .lines()
            .find_map(|line| {
                line.strip_prefix("VmHWM:")?
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            })
            .context("/proc/PID/status has no VmHWM")
    }

    /// Fails when the server has ended by itself.
    ///
    /// # Errors
    /// With its status.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server ended by itself with {status}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of the loopback that nobody has right now, for streams and datagrams alike.
///
/// # Errors
/// When there is none.
pub fn free_address() -> Result<SocketAddr> {
    for _ in 0..100 {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        if UdpSocket::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port of 127.0.0.1 is free for streams and datagrams alike")
}
