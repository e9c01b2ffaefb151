//! Runs without a fault: what is right, whether it is always the same, and how long it takes.
//!
//! Invariants
//!  1. A target that does not end alike each time is refused before anything is drawn from it.
//!  2. Limits come from armed runs under the campaign's own load, not from bare ones.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::one::{asked, compared, heard, is_storage, one, victim};
use super::order::Order;
use super::plan::Drafted;
use super::{CampaignError, Field, Progress, Running, needs, os, parallel};
use crate::judge::{self, Captured, Compared};
use crate::payload;
use crate::profile::Profile;
use crate::record::{Comparator, ControlRuns, Engine, Golden, Limits, Planned};
use crate::sandbox::Sandbox;
use crate::server;
use crate::target::Ran;

/// More executions than any run has.
const NEVER: u64 = 1 << 60;
/// Golden runs that are compared.
const GOLDEN: u32 = 3;
/// Armed runs that limits are taken from.
const CONTROL_RUNS: u64 = 20;

impl Field {
    /// Runs without a fault until it is clear that they are alike.
    pub(super) fn golden(&mut self) -> Result<(Golden, Captured), CampaignError> {
        let order = self.order.clone();
        let sandbox = &mut self.sandboxes[0];
        let kept = sandbox.scratch().with_extension("golden");
        let (ran, status, first) = sound(sandbox, &order)?;
        first
            .write(&kept)
            .map_err(os(format!("{} has to be writable", kept.display())))?;
        let mut golden = Golden {
            runs: GOLDEN,
            status,
            outputs: first.digests(),
            wall_ns_max: ran.wall_ns,
            cpu_ns_max: ran.cpu_ns,
        };
        if let Comparator::Command { command } = &order.comparator {
            let found = asked(command, order.patience, &kept, sandbox, &first)?;
            if found != Some(0) {
                return Err(needs(
                    "a comparing command to which an output equals itself",
                    format!("status {found:?} of {}", command.join(" ")),
                    "--compare command=CMD: it gets two directories, and exits with 0, 1 or 2",
                ));
            }
        }
        for _ in 1..GOLDEN {
            let (ran, status, captured) = sound(sandbox, &order)?;
            golden.wall_ns_max = golden.wall_ns_max.max(ran.wall_ns);
            golden.cpu_ns_max = golden.cpu_ns_max.max(ran.cpu_ns);
            let found = compared(&order, (&first, &kept), sandbox, &captured)?;
            if status != golden.status || found.wrong() || !found.latent.is_empty() {
                return Err(differs(&found, &first, &captured));
            }
        }
        let _ = fs::remove_dir_all(&kept);
        Ok((golden, first))
    }

    /// Refuses a target that fails without a fault: nothing that faults do to it would mean anything. Tells of
    /// one that may not do what it was meant to, as one whose file is in the caller's directory alone.
    pub(super) fn doubted(
        &self,
        golden: &Golden,
        captured: &Captured,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<(), CampaignError> {
        let said = captured.0.get("stderr").map(Vec::as_slice).unwrap_or(&[]);
        let said = String::from_utf8_lossy(said);
        let said = said.lines().next().unwrap_or("nothing said");
        let right = golden.status == self.order.golden_exit;
        match (right, self.order.left_behind()) {
            (true, None) => {}
            (true, Some(file)) => tell(Progress::Stage(format!(
                "{file} is in this directory and not in the target's own: if it is to be read, --input or its whole path"
            ))),
            (false, None) => {
                return Err(needs(
                    &format!(
                        "a target that ends with status {} without a fault",
                        self.order.golden_exit
                    ),
                    format!("status {}: {said}", golden.status),
                    &format!(
                        "a command that works; or --golden-exit={} if that status is right",
                        golden.status
                    ),
                ));
            }
            (false, Some(file)) => {
                return Err(needs(
                    "files as the target finds them, which runs in a directory of its own",
                    format!(
                        "{file} in the caller's alone, and status {}: {said}",
                        golden.status
                    ),
                    "its whole path, or --input DIR with the file in it",
                ));
            }
        }
        Ok(())
    }

    /// Refuses a target that ends in another way while it is counted, or executes nothing.
    pub(super) fn countable(
        &self,
        golden: &Golden,
        drafted: &Drafted,
        profile: &Profile,
    ) -> Result<(), CampaignError> {
        let counted = self.order.protect.is_empty() && drafted.counted;
        if counted && profile.ran.status != Some(golden.status) {
            return Err(needs(
                "a counted run that ends as the others do",
                format!(
                    "status {:?}, signal {:?}, {} where it should be {}; it said {:?}",
                    profile.ran.status,
                    profile.ran.signal,
                    if profile.ran.timed_out {
                        "given up"
                    } else {
                        "ended"
                    },
                    golden.status,
                    self.said.as_deref().unwrap_or("nothing")
                ),
                "report this, with the program: a counter changed what it does",
            ));
        }
        if drafted.population.counts.dynamic == 0 && drafted.counted {
            return Err(needs(
                "a target that executes something",
                "no instructions",
                "another command",
            ));
        }
        Ok(())
    }
}

/// What armed runs showed.
#[derive(Debug, Default)]
struct Armed {
    wall_ns: Vec<u64>,
    masked: u64,
    alarms: u64,
    /// One that did not end as a run without a fault.
    wrong: Option<String>,
}

impl Running {
    /// Faults that are armed and never reached: the measure of time, and of false alarms.
    pub(super) fn control_runs(&mut self) -> Result<(), CampaignError> {
        let lines = self.never();
        let order = self.field.order.clone();
        let golden_dir = self.dir.path().join("golden");
        let (golden, status) = (&self.golden, self.campaign.golden.status);
        let next = AtomicUsize::new(0);
        let armed = Mutex::new(Armed::default());
        parallel(&mut self.field.sandboxes, |sandbox, _| {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i as u64 >= CONTROL_RUNS {
                    return Ok(());
                }
                let line = lines
                    .get(i % lines.len().max(1))
                    .map(|line| victim(&order, i as u64, line));
                let patience = order.patience;
                let (ran, seen) = one(
                    sandbox,
                    &order,
                    line.as_deref(),
                    None,
                    Engine::Plant,
                    patience,
                )?;
                let captured =
                    Captured::read(sandbox.scratch()).map_err(os("outputs have to be readable"))?;
                let found = compared(&order, (golden, &golden_dir), sandbox, &captured)?;
                let alarm = seen.as_ref().is_some_and(|seen| seen.divergences > 0)
                    || heard(&order, sandbox, &ran).is_some()
                    || order.detector.spoke(&ran, &captured).is_some();
                let right = ran.status == Some(status) && !found.wrong();
                let mut armed = armed.lock().expect("no panics inside");
                armed.wall_ns.push(ran.wall_ns);
                armed.masked += u64::from(right && !alarm);
                armed.alarms += u64::from(alarm);
                if !right {
                    armed.wrong = Some(format!(
                        "status {:?}, signal {:?}, {} differ, under {}; it said {:?}",
                        ran.status,
                        ran.signal,
                        found.differ.join(", "),
                        line.as_deref().unwrap_or("no fault"),
                        first_line(&captured)
                    ));
                }
            }
        })?;
        let mut armed = armed.into_inner().expect("no panics inside");
        if let Some(found) = armed.wrong {
            self.steady(&golden_dir)?;
            return Err(needs(
                "runs with a fault that is never reached have to be as those without",
                found,
                "report this; --engine step leaves the program's code alone",
            ));
        }
        armed.wall_ns.sort_unstable();
        self.limit_by(&armed.wall_ns, armed.masked, armed.alarms);
        Ok(())
    }

    /// Refuses a target that has begun to end otherwise without any fault, as one does that tells the time.
    fn steady(&mut self, golden_dir: &Path) -> Result<(), CampaignError> {
        let order = self.field.order.clone();
        let sandbox = &mut self.field.sandboxes[0];
        let (_, status, captured) = sound(sandbox, &order)?;
        let found = compared(&order, (&self.golden, golden_dir), sandbox, &captured)?;
        if status == self.campaign.golden.status && !found.wrong() {
            return Ok(());
        }
        Err(differs(&found, &self.golden, &captured))
    }

    /// Faults of the plan, at an execution that never comes. Runs in which somebody is followed take longer than others, the more so
    /// where processors are busy.
    fn never(&self) -> Vec<String> {
        let order = &self.field.order;
        let planted = order.engine == Engine::Plant && order.protect.is_empty();
        let follows = |p: &Planned| {
            let faults = p.faults().unwrap_or_default();
            planted && faults.iter().any(|fault| payload::bound(fault).is_some())
        };
        let never = |p: &Planned| {
            let (head, rest) = p.fault.split_once(" n=")?;
            let tail = rest.split_once(' ').map_or("", |(_, tail)| tail);
            let usable = (p.site.is_some() || is_storage(&p.fault) || follows(p))
                && !p.fault.contains(';')
                && p.fault_type != "code";
            usable.then(|| format!("{head} n={NEVER} {tail}"))
        };
        let most = usize::try_from(CONTROL_RUNS).unwrap_or(0);
        self.plan.iter().filter_map(never).take(most).collect()
    }

    /// Sets the campaign's limits by how long armed runs took, the shortest first.
    fn limit_by(&mut self, times: &[u64], masked: u64, false_alarms: u64) {
        let at = |share: usize| {
            times
                .get((times.len().saturating_sub(1)) * share / 100)
                .copied()
                .unwrap_or(0)
        };
        let (p50, p99) = (at(50), at(99));
        // Five times the slowest of ordinary runs, and a second for the machine's other work.
        let wall = (5 * p99).max(p99 + 1_000_000_000) + self.field.order.notices();
        self.campaign.control_runs = ControlRuns {
            runs: times.len() as u64,
            masked,
            false_alarms,
            wall_ns_p99: p99,
            wall_ns_p50: p50,
        };
        self.campaign.limits = Limits {
            wall_ns: wall,
            cpu_ns: wall,
            slow_ns: 3 * p99,
            memory: self.field.order.spec.memory,
            file_size: self.field.order.spec.file_size,
        };
    }
}

/// Two runs without a fault that did not end alike.
fn differs(found: &Compared, first: &Captured, other: &Captured) -> CampaignError {
    let name = found.differ.iter().chain(&found.latent).next();
    let name = name.map_or("the exit status", String::as_str);
    needs(
        "a target with the same output in each run without a fault",
        format!(
            "{name} differs between two of them{}",
            first_difference(first.0.get(name), other.0.get(name))
        ),
        "--compare masked=REGEX, lines, numeric=TOLERANCE or command=CMD; or fix its clock, seed or threads",
    )
}

/// What a run said first on its standard error.
fn first_line(captured: &Captured) -> String {
    let said = captured.0.get("stderr").map_or(&[][..], Vec::as_slice);
    let said = String::from_utf8_lossy(said);
    said.lines().next().unwrap_or("nothing").to_owned()
}

/// Where two outputs differ first, for a message.
fn first_difference(a: Option<&Vec<u8>>, b: Option<&Vec<u8>>) -> String {
    let (Some(a), Some(b)) = (a, b) else {
        return String::new();
    };
    let at = a
        .iter()
        .zip(b)
        .position(|(x, y)| x != y)
        .unwrap_or(a.len().min(b.len()));
    let near = |bytes: &[u8]| {
        let from = at.saturating_sub(12);
        String::from_utf8_lossy(&bytes[from..bytes.len().min(at + 24)]).into_owned()
    };
    format!(" at byte {at}: {:?} and {:?}", near(a), near(b))
}

/// A run without a fault that ends by itself, its exit status, and what it left.
fn sound(sandbox: &mut Sandbox, order: &Order) -> Result<(Ran, i32, Captured), CampaignError> {
    let (ran, seen) = one(sandbox, order, None, None, Engine::Plant, order.patience)?;
    if seen.is_some_and(|seen| !seen.ended) {
        let said = fs::read(sandbox.scratch().join("stderr")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        return Err(needs(
            "a target that `steadfast run` can run in the sandbox",
            format!(
                "status {:?}: {}",
                ran.status,
                said.lines().next().unwrap_or("nothing said")
            ),
            "steadfast run -n 2 -- CMD, by hand; steadfast check",
        ));
    }
    if let Some(no) = unanswered(sandbox, &ran)? {
        return Err(no);
    }
    if ran.timed_out {
        return Err(needs(
            "a target that ends",
            format!("one that runs longer than {:?}", order.patience),
            "--patience SECONDS; for a server --driver and --ready",
        ));
    }
    if ran.signal == Some(libc::SIGXFSZ) {
        return Err(needs(
            &format!(
                "a target whose files stay below {} MiB, the sandbox's limit",
                order.spec.file_size >> 20
            ),
            "death by SIGXFSZ, of the sandbox's doing",
            "an input that makes less output",
        ));
    }
    let Some(status) = ran.status else {
        return Err(needs(
            "a target that exits by itself",
            format!("death by signal {:?}", ran.signal),
            "another command",
        ));
    };
    let captured = Captured::read(sandbox.scratch()).map_err(os("outputs have to be readable"))?;
    Ok((ran, status, captured))
}

/// Why a server's run without a fault is not as it has to be.
pub(super) fn unanswered(
    sandbox: &Sandbox,
    ran: &Ran,
) -> Result<Option<CampaignError>, CampaignError> {
    if ran.served.is_none() {
        return Ok(None);
    }
    let mut captured =
        Captured::read(sandbox.scratch()).map_err(os("outputs have to be readable"))?;
    if let Ok(words) = fs::read(sandbox.scratch().join(server::CLIENT)) {
        captured.0.insert(server::CLIENT.into(), words);
    }
    Ok(judge::obstacle(ran, &captured)
        .map(|(found, fix)| needs("a server that answers its client", found, fix)))
}
