//! A campaign as an array job of Slurm: its merged parts have to be what one process finds.
//!
//! ```text
//!   steadfast inject run ──────────────────────────► whole ─┐
//!   sbatch --array docs/slurm.sbatch ─► part-0.. ─ merge ─► merged ─► the same outcomes?
//! ```
//!
//! Debian's slurmctld and slurmd run in process, mount and network namespaces of their own, on an
//! address that nobody else has, with all their files below the results; they end with the first
//! process in there. `auth/none` is for such a place only.
//!
//! Not covered: more nodes than one; users without root, to whom the daemons' setgroups(2) is
//! refused in a namespace.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use steadfast_contract::outcome::{Leaf, Outcome};

const INSIDE: &str = "STEADFAST_BENCH_SLURM";
/// For documentation (RFC 5737). Without another address than loopback's, getaddrinfo(3) says
/// that there is none at all (AI_ADDRCONFIG).
const ADDRESS: &str = "192.0.2.1";

/// Proves it with this program, and says so.
pub fn prove(out: &Path, steadfast: &Path, tasks: u32, runs: u64) -> anyhow::Result<String> {
    fs::create_dir_all(out)?;
    let out = out.canonicalize()?;
    if std::env::var_os(INSIDE).is_none() {
        return Err(enter());
    }
    let place = out.join("slurm");
    // An earlier call's, whose results would be gone on with.
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    for dir in ["state", "spool", "log"] {
        fs::create_dir_all(place.join(dir))?;
    }
    let steadfast = steadfast
        .canonicalize()
        .with_context(|| format!("{} is needed; fix: make build", steadfast.display()))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = root.join("docs/slurm.sbatch").canonicalize()?;
    // Of what is below a directory of root's own, the sandbox's user can read its standard input alone.
    let input = place.join("input");
    fs::copy(root.join("README.md"), &input)?;
    let order = |command: &mut Command| {
        command
            .args(["--runs", &runs.to_string(), "--seed", "51a4"])
            .arg(format!("--stdin={}", input.display()))
            .args(["--", "gzip", "-c"]);
    };

    let conf = configure(&place)?;
    let mut daemons = Vec::new();
    for daemon in [&["slurmctld", "-D"][..], &["slurmd", "-D"]] {
        let log = fs::File::create(place.join("log").join(format!("{}.err", daemon[0])))?;
        let child = Command::new(daemon[0])
            .args(&daemon[1..])
            .env("SLURM_CONF", &conf)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} is needed; fix: scripts/setup campaign", daemon[0]))?;
        daemons.push(child);
    }
    let mut job = Command::new("sbatch");
    job.env("SLURM_CONF", &conf)
        .env("STEADFAST", &steadfast)
        .current_dir(place.join("log"))
        .args(["--quiet", "--wait"])
        .arg(format!("--array=0-{}", tasks - 1))
        .arg(&script)
        .arg(&place);
    order(&mut job);
    let ended = job.status()?;
    for mut daemon in daemons {
        daemon.kill()?;
        daemon.wait()?;
    }
    ensure!(
        ended.success(),
        "the array job ended with {ended}; its log and the daemons': {}",
        place.join("log").display()
    );

    let parts: Vec<PathBuf> = (0..tasks)
        .map(|i| place.join(format!("part-{i}")))
        .collect();
    let (merged, whole) = (place.join("merged"), place.join("whole"));
    let mut merge = Command::new(&steadfast);
    merge
        .args(["inject", "merge"])
        .args(&parts)
        .arg("--out")
        .arg(&merged);
    let mut alone = Command::new(&steadfast);
    alone
        .args(["inject", "run", "--quiet", "--out"])
        .arg(&whole);
    order(&mut alone);
    for mut command in [merge, alone] {
        let status = command.status()?;
        ensure!(status.success(), "{command:?} ended with {status}");
    }
    let (merged, whole) = (outcomes(&merged)?, outcomes(&whole)?);
    let differ: Vec<_> = whole
        .iter()
        .filter(|(id, outcome)| merged.get(id) != Some(outcome))
        .map(|(id, outcome)| {
            format!(
                "run {id}: {outcome:?} alone, {:?} in the job",
                merged.get(id)
            )
        })
        .collect();
    ensure!(
        merged.len() == whole.len() && differ.is_empty(),
        "{} runs alone and {} merged, {} of them differ: {}",
        whole.len(),
        merged.len(),
        differ.len(),
        differ.join("; ")
    );
    let mut tally: BTreeMap<Outcome, u64> = BTreeMap::new();
    for outcome in merged.values() {
        *tally.entry(*outcome).or_default() += 1;
    }
    let tally: Vec<String> = tally
        .iter()
        .map(|(outcome, n)| format!("{n} {outcome}"))
        .collect();
    Ok(format!(
        "slurm: {} runs in an array job of {tasks} tasks end as in one process: {}",
        merged.len(),
        tally.join(", ")
    ))
}

/// The same call again, alone with its processes, mounts and network; its end is theirs.
fn enter() -> anyhow::Error {
    if !rustix::process::geteuid().is_root() {
        return anyhow::anyhow!(
            "Slurm's daemons need root, found user {}; fix: sudo make bench ARGS=slurm",
            rustix::process::geteuid().as_raw()
        );
    }
    let script = format!("ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec \"$@\"");
    let flags = [
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    let me = match std::env::current_exe() {
        Ok(me) => me,
        Err(error) => return error.into(),
    };
    Command::new("unshare")
        .args(flags)
        .args(["--", "sh", "-c", &script, "sh"])
        .arg(me)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec()
        .into()
}

/// A cluster of one node: this machine.
fn configure(place: &Path) -> anyhow::Result<PathBuf> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let Some(host) = name
        .trim()
        .split('.')
        .next()
        .filter(|host| !host.is_empty())
    else {
        bail!("a host name is needed, found none; fix: hostname NAME");
    };
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let at = place.display();
    let text = format!(
        "ClusterName=campaign\n\
         SlurmctldHost={host}({ADDRESS})\n\
         SlurmUser=root\n\
         AuthType=auth/none\n\
         CredType=cred/none\n\
         MpiDefault=none\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         SwitchType=switch/none\n\
         JobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\n\
         SlurmdParameters=config_overrides\n\
         ReturnToService=2\n\
         StateSaveLocation={at}/state\n\
         SlurmdSpoolDir={at}/spool\n\
         SlurmctldPidFile={at}/slurmctld.pid\n\
         SlurmdPidFile={at}/slurmd.pid\n\
         SlurmctldLogFile={at}/log/slurmctld\n\
         SlurmdLogFile={at}/log/slurmd\n\
         NodeName={host} NodeAddr={ADDRESS} CPUs={cpus} State=UNKNOWN\n\
         PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP\n"
    );
    let conf = place.join("slurm.conf");
    fs::write(&conf, text)?;
    Ok(conf)
}

/// How each run of a campaign ended. Slow ones count by their output: the tasks share this machine.
fn outcomes(dir: &Path) -> anyhow::Result<BTreeMap<u64, Outcome>> {
    #[derive(Deserialize)]
    struct Line {
        id: u64,
        outcome: Leaf,
    }
    let path = dir.join("runs.jsonl");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.lines()
        .map(|line| {
            let line: Line = serde_json::from_str(line)?;
            Ok((line.id, line.outcome.outcome()))
        })
        .collect()
}
