//! One run: its fault carried out, what it left behind judged, what shows that kept.
//!
//! Invariants
//!  1. A run that the test bed spoilt is `infra`, and the campaign goes on.
//!  2. Evidence is that of the run in `runs.jsonl`: a repeated run leaves it alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use steadfast_contract::outcome::Leaf;
use steadfast_fault::{Effect, Fault, Target, Trigger};

use super::order::Order;
use super::{CampaignError, os};
use crate::detector;
use crate::judge::{self, Captured, Compared, Evidence};
use crate::record::{Campaign, Comparator, Detection, Dir, Engine, Fired, Planned, Run};
use crate::sandbox::{Ask, Sandbox, SandboxError};
use crate::target::Ran;
use crate::victim::Strike;

/// Which run of a sandbox a fault has to go through.
fn ask(engine: Engine, lines: Vec<String>) -> Ask {
    match engine {
        Engine::Plant | Engine::Run => Ask::Plant(lines),
        Engine::Step => Ask::Step(lines),
        Engine::Timer => Ask::Timer(lines),
    }
}

/// What a program built with `steadfast cc` says by itself.
pub(super) fn heard(order: &Order, sandbox: &Sandbox, ran: &Ran) -> Option<Detection> {
    let hit = ran
        .hits
        .iter()
        .filter(|hit| hit.hits > 0)
        .map(|hit| hit.tsc)
        .min();
    order
        .detector
        .cc
        .then(|| detector::spoke(sandbox.scratch(), hit))
        .flatten()
}

/// One run: bare, or under what protects.
pub(super) fn one(
    sandbox: &mut Sandbox,
    order: &Order,
    line: Option<&str>,
    struck: Option<(Strike, Duration)>,
    engine: Engine,
    limit: Duration,
) -> Result<(Ran, Option<judge::Seen>), SandboxError> {
    let lines: Vec<String> = line.iter().map(|line| (*line).to_owned()).collect();
    let Some(first) = order.protect.first() else {
        return Ok((sandbox.run(&ask(engine, lines), limit)?, None));
    };
    let below = line.is_some_and(is_storage);
    let events = sandbox.scratch().join("events");
    let _ = fs::remove_file(&events);
    let mut argv = order.protect.clone();
    argv.push(format!("--events={}", events.display()));
    if let Some(line) = line.filter(|line| !below && !line.is_empty()) {
        argv.push("--flip".into());
        argv.push(line.to_owned());
    }
    argv.push("--".into());
    argv.push(order.spec.path.display().to_string());
    argv.extend(order.spec.argv.iter().skip(1).cloned());
    let first = PathBuf::from(first);
    // Storage goes wrong below the replicas.
    let ask = match struck {
        Some((strike, after)) => Ask::Strike(first, argv, strike, after),
        None if below => Ask::Around(first, argv, lines),
        None => Ask::Bare(Some((first, argv))),
    };
    let ran = sandbox.run(&ask, limit)?;
    let seen = judge::events(&fs::read_to_string(&events).unwrap_or_default());
    Ok((ran, Some(seen)))
}

/// What the runs of a campaign are held against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standard<'a> {
    pub(super) order: &'a Order,
    pub(super) campaign: &'a Campaign,
    pub(super) golden: &'a Captured,
    pub(super) dir: &'a Dir,
    /// When a run is given up.
    pub(super) limit: Duration,
}

/// A run, and what it left behind.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) run: Run,
    pub(super) captured: Captured,
    compared: Compared,
    /// Why the test bed spoilt it.
    error: Option<String>,
}

impl Standard<'_> {
    /// How long after the first event a strike comes: a third of a run is over when that is told.
    fn moment(&self, strike: Strike) -> Duration {
        let length = self.campaign.control_runs.wall_ns_p50 * 2 / 3;
        Duration::from_nanos(length / 1000 * strike.permille)
    }

    /// Carries a planned run out.
    ///
    /// # Errors
    /// When the sandbox is gone, or what a run left cannot be looked at.
    pub(super) fn judged(
        &self,
        sandbox: &mut Sandbox,
        planned: &Planned,
    ) -> Result<Judged, CampaignError> {
        let Self {
            order,
            campaign,
            golden,
            ..
        } = *self;
        let line = victim(order, planned.id, &planned.fault);
        let mut carried_out = |limit| {
            let strike = planned.strike.map(|strike| (strike, self.moment(strike)));
            one(sandbox, order, Some(&line), strike, order.engine, limit)
        };
        let done = match carried_out(self.limit) {
            // Given up before its fault came, it is as a run without one: the machine was slow, not the program.
            Ok((ran, None)) if ran.timed_out && hits(planned, &line, &ran, None)? == 0 => {
                carried_out(order.patience)
            }
            done => done,
        };
        let (ran, seen) = match done {
            Ok(done) => done,
            Err(SandboxError::Failed { why, .. }) => {
                let error = Some(why);
                let ran = Ran {
                    error,
                    ..Ran::default()
                };
                (ran, None)
            }
            Err(gone) => return Err(gone.into()),
        };
        let (captured, compared) = if ran.error.is_none() {
            let captured =
                Captured::read(sandbox.scratch()).map_err(os("outputs have to be readable"))?;
            let golden_dir = self.dir.path().join("golden");
            let compared = compared(order, (golden, &golden_dir), sandbox, &captured)?;
            (captured, compared)
        } else {
            (Captured::default(), Compared::default())
        };
        let hits = hits(planned, &line, &ran, seen.as_ref())?;
        let detection = seen
            .as_ref()
            .and_then(|seen| seen.detection.clone())
            .or_else(|| heard(order, sandbox, &ran))
            .or_else(|| order.detector.spoke(&ran, &captured));
        let error_reply = judge::said_so(order.spec.driver.as_ref(), golden, &captured, &compared);
        let outcome = judge::leaf(&Evidence {
            ran: &ran,
            hits,
            compared: &compared,
            status: campaign.golden.status,
            detection: detection.as_ref(),
            seen: seen.as_ref(),
            limits: &campaign.limits,
            error_reply,
        });
        let mut run = Run {
            hits,
            fired: fired(&ran),
            status: ran.status,
            signal: ran.signal,
            wall_ns: ran.wall_ns,
            cpu_ns: ran.cpu_ns,
            setup_ns: ran.setup_ns,
            differ: [&compared.differ[..], &compared.latent[..]].concat(),
            detection,
            ..Run::new(planned, outcome)
        };
        if !compared.differ.is_empty() {
            run.outputs = captured.digests();
        }
        Ok(Judged {
            run,
            captured,
            compared,
            error: ran.error,
        })
    }

    /// The line of a run that is done, with what shows how it went wrong kept.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(super) fn kept(
        &self,
        judged: Judged,
        sandbox: &Sandbox,
        planned: &Planned,
    ) -> Result<Run, CampaignError> {
        let Judged {
            mut run,
            captured,
            compared,
            error,
        } = judged;
        if matches!(run.outcome, Leaf::MaskedClean | Leaf::NotFired | Leaf::Slow) {
            return Ok(run);
        }
        let name = format!("evidence/{}", planned.id);
        let place = self.dir.path().join(&name);
        let failed = |source| CampaignError::Os {
            what: format!("{} has to be writable", place.display()),
            source,
        };
        // A run whose line a crash cut off is done again, and may end otherwise.
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).map_err(failed)?;
        // Whole outputs by the thousand would fill the disk: what differs is kept, up to a size.
        const KEPT_BYTES: usize = 1 << 20;
        let kept = captured.0.into_iter().filter(|(name, bytes)| {
            let differs = compared.differ.contains(name) || compared.latent.contains(name);
            differs && bytes.len() <= KEPT_BYTES
        });
        Captured(kept.collect()).write(&place).map_err(failed)?;
        let mut why = format!("{}\n", planned.told());
        if let Some(error) = &error {
            why.push_str(error);
            why.push('\n');
        }
        fs::write(place.join("fault"), why).map_err(failed)?;
        let events = sandbox.scratch().join("events");
        if events.exists() {
            fs::copy(events, place.join("events.jsonl")).map_err(failed)?;
        }
        run.evidence = Some(name);
        Ok(run)
    }
}

/// How what a run left compares with a golden output, which lies in a directory, too.
///
/// # Errors
/// When the client's own check cannot be asked.
pub(super) fn compared(
    order: &Order,
    (golden, golden_dir): (&Captured, &Path),
    sandbox: &Sandbox,
    run: &Captured,
) -> Result<Compared, CampaignError> {
    let mut found = judge::compare(&order.comparator, &order.state, golden, run);
    if let Comparator::Command { command } = &order.comparator
        && found.wrong()
    {
        match asked(command, order.patience, golden_dir, sandbox, run)? {
            Some(0) => found.differ.clear(),
            Some(2) => found.rejected = true,
            _ => {}
        }
    }
    Ok(found)
}

/// How often a run's faults hit.
fn hits(
    planned: &Planned,
    line: &str,
    ran: &Ran,
    seen: Option<&judge::Seen>,
) -> Result<u64, CampaignError> {
    // Written before the program begins: nothing inside it could tell.
    let code = planned.faults()?.iter().all(|f| {
        let hits = match f.trigger() {
            Trigger::Site { hits, .. } | Trigger::Class { hits, .. } => hits,
            _ => return false,
        };
        let code = matches!(
            f.effect(),
            Effect::Bits {
                target: Target::Code,
                ..
            }
        );
        code && hits.first.get() == 1
    });
    Ok(match seen {
        Some(seen) if !is_storage(line) => {
            seen.hits + ran.hits.iter().map(|hit| hit.hits).sum::<u64>()
        }
        None if code && ran.error.is_none() => 1,
        _ => ran.hits.iter().map(|hit| hit.hits).sum(),
    })
}

/// The first hit of each fault that hit.
fn fired(ran: &Ran) -> Vec<Fired> {
    let hex = |value: u64| Some(format!("{value:#x}"));
    let first = |hit: &crate::target::Hit| Fired {
        n: hit.n,
        before: hex(hit.before),
        after: hex(hit.after),
        cpu: hit.file.is_none().then_some(hit.cpu),
        file: hit.file.clone(),
    };
    ran.hits
        .iter()
        .filter(|hit| hit.hits > 0)
        .map(first)
        .collect()
}

/// What the client's own check says of an output: its exit status, if it comes to an end by itself.
///
/// # Errors
/// When it does not start.
pub(super) fn asked(
    command: &[String],
    patience: Duration,
    golden_dir: &Path,
    sandbox: &Sandbox,
    run: &Captured,
) -> Result<Option<i32>, CampaignError> {
    let Some((program, args)) = command.split_first() else {
        return Ok(None);
    };
    let place = sandbox.scratch().with_extension("compared");
    let failed = || os(format!("{} has to be writable", place.display()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).map_err(failed())?;
    run.write(&place).map_err(failed())?;
    let works = || os(format!("the comparing command {program} has to run"));
    let mut check = Command::new(program)
        .args(args)
        .arg(golden_dir)
        .arg(&place)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(works())?;
    // What a faulty run left may keep it busy for ever.
    let deadline = Instant::now() + patience;
    let status = loop {
        match check.try_wait().map_err(works())? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                check.kill().map_err(works())?;
                break check.wait().map_err(works())?;
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let _ = fs::remove_dir_all(&place);
    Ok(status.code())
}

/// Whether a line's faults are all of storage.
pub(super) fn is_storage(line: &str) -> bool {
    Fault::parse_all(line).is_ok_and(|all| !all.is_empty() && all.iter().all(Fault::is_storage))
}

/// The line with the replica that it strikes, which follows from the seed like everything else.
pub(super) fn victim(order: &Order, id: u64, line: &str) -> String {
    if order.protect.is_empty() || is_storage(line) {
        return line.to_owned();
    }
    let replicas = u64::from(order.replicas.max(1));
    let victim = order.seed.stream(u32::MAX - 1, id).below(replicas);
    let faults = Fault::parse_all(line).unwrap_or_default();
    let lines = faults.iter().map(|fault| {
        if fault.victim().replicas.is_some() {
            fault.to_string()
        } else {
            format!("replica={victim} {fault}")
        }
    });
    lines.collect::<Vec<_>>().join("; ")
}
