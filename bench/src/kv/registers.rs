//! `bench kv --only registers`: registers of a whole group flip under load, by `steadfast inject` and its timer.
//!
//! A run is a fresh group in a sandbox and one client that knows every reply. From the moment when it answers, one bit of one register
//! flips ten times a second, in whichever thread of the three replicas and their launcher computes then.
//!
//! Invariants
//!  1. Registers and bits follow from the seed; when and whom a flip meets does not, since a clock decides.
//!  2. Only runs in which a flip has hit are counted. A wrong reply makes a run wrong, however it ends.
//!
//! Not covered: a client that goes to another replica when its own dies. This one stops there, and the run is told as broken off.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use steadfast_contract::outcome::Outcome;
use steadfast_inject::record::Dir;
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::replay;

use super::Plan;

/// Some three seconds of load on two CPUs.
const REQUESTS: usize = 4000;
/// Before the first flip: the replicas have found each other.
const START: &str = "250ms";
const EVERY: &str = "100ms";
const GENERAL: [&str; 16] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
/// One of so many runs strikes a vector register.
const VECTORS: usize = 5;
/// In the sandbox, whose network is its own.
const PORT: &str = "21311";

pub(super) fn registers(
    plan: &Plan,
    says: &mut dyn FnMut(&str),
    rows: &mut Vec<Row>,
) -> Result<()> {
    // A seed's campaign goes on where it stopped.
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("build/bench/kv-registers");
    std::fs::create_dir_all(&place)
        .with_context(|| format!("{} has to be writable", place.display()))?;
    let trace = place.join("requests");
    std::fs::write(
        &trace,
        replay::written(&replay::memcached::swept_counting_requests(1, REQUESTS)),
    )
    .with_context(|| format!("{} has to be writable", trace.display()))?;
    let dir = place.join(format!("{:x}-{}", plan.seed, plan.runs));
    let mut rng = Rng::new(plan.seed ^ 0x4e65);
    let mut command = Command::new(plan.program.with_file_name("steadfast"));
    command
        .args(["inject", "run", "--engine=timer", "--runs=1", "--stop=TERM"])
        .arg("--out")
        .arg(&dir)
        .arg(format!("--driver=trace:{}", trace.display()))
        .args(["--ready", PORT])
        .arg("--error-reply=^(SERVER_|CLIENT_)?ERROR");
    for _ in 0..plan.runs {
        command.arg(format!("--fault={}", fault(&mut rng)));
    }
    let status = command
        .arg("--")
        .arg(&plan.program)
        .args(["--local", "3", "--port", PORT])
        .stdout(Stdio::null())
        .status()
        .context("steadfast could not be started\n  fix:   make build")?;
    ensure!(
        status.success(),
        "the campaign in {} ended with {status}; the same call goes on with it",
        dir.display()
    );
    let (mut runs, mut wrong, mut broken, mut hung, mut hits) = (0, 0, 0, 0, 0);
    for run in Dir::new(&dir).runs()?.into_values() {
        let outcome = run.outcome.outcome();
        if matches!(outcome, Outcome::NotFired | Outcome::Infra) {
            continue;
        }
        runs += 1;
        hits += run.hits;
        match outcome {
            Outcome::Sdc => {
                says(&format!("run {} has a wrong reply", run.id));
                wrong += 1;
            }
            Outcome::Hang => hung += 1,
            Outcome::Crash | Outcome::Detected | Outcome::FalseAlarm => broken += 1,
            Outcome::Masked | Outcome::Corrected | Outcome::NotFired | Outcome::Infra => {}
        }
    }
    rows.push(Row::share(
        "registers.wrong",
        format!("runs with a wrong reply to a client without the envelope, {hits} flips of registers in a group"),
        wrong,
        runs,
    ));
    rows.push(Row::share(
        "registers.broken",
        "of these runs, those whose client was cut off or answered with an error",
        broken,
        runs,
    ));
    rows.push(Row::share(
        "registers.hung",
        "of these runs, those whose client heard nothing any more",
        hung,
        runs,
    ));
    Ok(())
}

fn fault(rng: &mut Rng) -> String {
    let (register, bits) = if rng.below(VECTORS) == 0 {
        (format!("xmm{}", rng.below(16)), 128)
    } else {
        (GENERAL[rng.below(GENERAL.len())].to_owned(), 64)
    };
    let bit = rng.below(bits);
    format!("time={START} every={EVERY} reg={register} bit={bit}")
}
