//! How long redis with so many MiB of values stands still while one of its replicas is repaired.
//!
//! A client writes all the time. Registers are struck that a program keeps for long, one flip a long time behind the repair before; a
//! life of the server takes several.
//!
//! Not covered: flips that nobody notices, which have no pause.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_contract::event::What;
use steadfast_workloads::inputs::Rng;

use super::service::{Data, Service, Started, program};
use crate::product::{Files, Product};

/// Flips of one life.
const FLIPS: usize = 8;
const APART: Duration = Duration::from_millis(500);
/// A life may take so much longer until it is filled than twice the one before.
const SLACK: Duration = Duration::from_secs(1);
/// Of a value.
const BYTES: usize = 1024;
/// Lives without a repair; then something is wrong.
const IDLE_MAX: usize = 3;

/// Pauses at one size with one number of replicas.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pauses {
    pub mib: usize,
    pub replicas: u8,
    /// One per repair, in nanoseconds.
    pub pause_ns: Vec<f64>,
    /// Runs in which the fault never hit or nobody noticed.
    pub without_repair: usize,
    pub errors: Vec<String>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub product: &'a Product,
    pub dir: &'a Path,
    pub mib: usize,
    /// Repairs for each number of replicas.
    pub repairs: usize,
}

/// A client that is ended with this.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn benchmark(server: &Started, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(program("redis-benchmark", "redis-tools")?);
    command
        .args(["-h", "127.0.0.1", "-p", &server.address.port().to_string()])
        .args(["-t", "set", "-q"])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command)
}

/// Starts a server and gives it its values.
fn filled(plan: &Plan<'_>, words: &[String]) -> Result<Started> {
    let server =
        Service::Redis.start_with(plan.dir, Some((plan.product, words)), Data::Fleeting)?;
    let (count, bytes) = ((plan.mib << 20) / BYTES, BYTES.to_string());
    let status = benchmark(
        &server,
        &[
            "-n",
            &count.to_string(),
            "-r",
            "1000000000",
            "-d",
            &bytes,
            "-P",
            "16",
        ],
    )?
    .status()?;
    ensure!(
        status.success(),
        "redis-benchmark: {status}; {}",
        server.last_words()
    );
    Ok(server)
}

/// The flips of a life, in milliseconds from its start.
fn drawn(replicas: u8, from: Duration, rng: &mut Rng) -> Vec<String> {
    (0..FLIPS)
        .map(|at| {
            let time = from + APART * u32::try_from(at).unwrap_or(0);
            let victim = if at % 2 == 0 || replicas < 2 {
                "leader"
            } else {
                "follower"
            };
            format!(
                "--flip=replica={victim} time={}ms reg={} bit={}",
                time.as_millis(),
                rng.pick(&["rbx", "rbp", "r12", "r13"]),
                rng.below(32)
            )
        })
        .collect()
}

/// One life: the pauses of its repairs, in nanoseconds.
fn life(plan: &Plan<'_>, replicas: u8, ready: Duration, rng: &mut Rng) -> Result<Vec<f64>> {
    let dir = plan.dir.parent().context("a place for events")?;
    let files = Files {
        report: dir.join("redis-repair.json"),
        events: Some(dir.join("redis-repair.events")),
    };
    files.clear();
    let from = 2 * ready + SLACK;
    let mut words = vec![
        format!("--replicas={replicas}"),
        format!("--json={}", files.report.display()),
        format!("--events={}", dir.join("redis-repair.events").display()),
    ];
    words.extend(drawn(replicas, from, rng));
    let begun = Instant::now();
    let mut server = filled(plan, &words)?;
    {
        let _client =
            Client(benchmark(&server, &["-c", "4", "-n", "1000000000", "-r", "1000"])?.spawn()?);
        let last = from + APART * u32::try_from(FLIPS + 1).unwrap_or(0);
        while begun.elapsed() < last && !server.has_ended()? {
            thread::sleep(Duration::from_millis(20));
        }
    }
    server.end()?;
    let pauses = files
        .read_events()?
        .into_iter()
        .filter_map(|line| match line.event.what {
            What::Recovery(recovery) => Some(recovery.pause_ns as f64),
            _ => None,
        });
    Ok(pauses.collect())
}

/// Strikes servers until so many repairs are there.
pub fn measure(plan: &Plan<'_>, replicas: u8, rng: &mut Rng, stop: &dyn Fn() -> bool) -> Pauses {
    let mut found = Pauses {
        mib: plan.mib,
        replicas,
        pause_ns: Vec::new(),
        without_repair: 0,
        errors: Vec::new(),
    };
    let quiet = || -> Result<Duration> {
        let begun = Instant::now();
        let mut server = filled(plan, &[format!("--replicas={replicas}")])?;
        let ready = begun.elapsed();
        server.stop()?;
        Ok(ready)
    };
    let ready = match quiet() {
        Ok(ready) => ready,
        Err(why) => {
            found.errors.push(format!("without a fault: {why:#}"));
            return found;
        }
    };
    while found.pause_ns.len() < plan.repairs && found.without_repair < IDLE_MAX && !stop() {
        match life(plan, replicas, ready, rng) {
            Ok(pauses) if !pauses.is_empty() => found.pause_ns.extend(pauses),
            Ok(_) => found.without_repair += 1,
            Err(why) => {
                found.errors.push(format!("{why:#}"));
                found.without_repair += 1;
            }
        }
    }
    found
}
