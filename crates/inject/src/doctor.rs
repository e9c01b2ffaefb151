//! Doctor: whether the injector can be believed on this machine.
//!
//! A target whose answers are known is put through small campaigns: one that checks nothing has
//! to show wrong outputs, one that checks everything must not; armed runs without a fault have to
//! be as bare ones; planted faults have to do what single steps do; and native counts have to be
//! those of single steps.
//!
//! Not covered: the user's own target. `steadfast inject profile` says how much of it is reached.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use steadfast_integrity::fault::{self, Fault};
use steadfast_integrity::outcome::Outcome;

use crate::campaign::{CampaignError, Field, Order, Progress, Running};
use crate::chacha::Seed;
use crate::judge::{Captured, Detector};
use crate::models::{Model, Shape};
use crate::record::{Comparator, Dir, Engine, Planned, Shard};
use crate::scratch::{self, Scratch};
use crate::target::{Ran, Spec};
use crate::warden::{Ask, Tell};

/// The control target.
static CONTROL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/control"));

/// One question and its answer.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// What was asked.
    pub name: &'static str,
    /// Whether all is well.
    pub ok: bool,
    /// What was found.
    pub found: String,
}

/// An order for the control target.
///
/// # Errors
/// When it cannot be written.
pub fn control(dir: &Path, guarded: bool, user: Option<u32>) -> std::io::Result<Order> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    let path = dir.join("control");
    // A process that is forked while this file is open for writing keeps it open, and nobody may
    // execute it then (ETXTBSY): another process does the writing of what is executed.
    let bytes = dir.join("control.bytes");
    fs::write(&bytes, CONTROL)?;
    let copied = std::process::Command::new("cp")
        .arg(&bytes)
        .arg(&path)
        .status()?;
    fs::remove_file(&bytes)?;
    if !copied.success() {
        return Err(std::io::Error::other(format!(
            "cp to {} failed",
            path.display()
        )));
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let word = if guarded { "guarded" } else { "silent" };
    Ok(Order {
        spec: Spec {
            path,
            argv: vec!["control".into(), word.into()],
            file_size: 1 << 20,
            processes: 64,
            user,
            ..Spec::default()
        },
        dir: dir.join(word),
        scratch: dir.to_owned(),
        models: Model::SEI.to_vec(),
        lines: Vec::new(),
        shape: Shape::default(),
        runs: 12,
        seed: Seed::parse("5eed").expect("a seed"),
        engine: Engine::Plant,
        jobs: 1,
        comparator: Comparator::Byte,
        detector: Detector {
            status: Some(99),
            ..Detector::default()
        },
        only: vec![
            "control!work".into(),
            "control!mix".into(),
            "control!copy".into(),
        ],
        except: Vec::new(),
        files: Vec::new(),
        state: Vec::new(),
        shard: Shard { index: 0, of: 1 },
        protect: Vec::new(),
        replicas: 0,
        patience: Duration::from_secs(20),
        network: false,
        budget: None,
    })
}

/// Asks everything. `dir` is a scratch directory that programs of `user` can reach.
///
/// # Errors
/// When there is no box or no target at all.
pub fn examine(
    dir: &Path,
    user: Option<u32>,
    tell: &mut dyn FnMut(Progress),
) -> Result<Vec<Answer>, CampaignError> {
    let os = |source| CampaignError::Os {
        what: format!("{} has to be writable", dir.display()),
        source,
    };
    let mut out = Vec::new();
    let silent = control(&dir.join("positive"), false, user).map_err(os)?;
    let stop = AtomicBool::new(false);
    let mut quiet = |_: Progress| ();
    tell(Progress::Stage("a target that checks nothing".into()));
    let mut running = Running::prepare(&silent, "doctor", &mut quiet)?;
    running.run(&stop, &|| false, &|_| ())?;
    let count = |order: &Order, outcome: Outcome| -> Result<u64, CampaignError> {
        let runs = Dir::new(&order.dir).runs()?;
        Ok(runs
            .values()
            .filter(|run| run.outcome.outcome() == outcome)
            .count() as u64)
    };
    let (sdc, fired) = (
        count(&silent, Outcome::Sdc)?,
        Dir::new(&silent.dir)
            .runs()?
            .values()
            .filter(|r| r.hits > 0)
            .count(),
    );
    let planned = running.campaign.planned;
    out.push(Answer {
        name: "wrong answers of an unchecked target are seen",
        ok: sdc > 0,
        found: format!("{sdc} of {planned} runs"),
    });
    out.push(Answer {
        name: "every planned fault fires",
        ok: fired as u64 == planned,
        found: format!("{fired} of {planned}"),
    });
    let dummies = running.campaign.dummies;
    out.push(Answer {
        name: "armed runs without a fault are as bare ones",
        ok: dummies.masked == dummies.runs && dummies.false_alarms == 0,
        found: format!("{} of {} masked", dummies.masked, dummies.runs),
    });
    let (closed, open) = running.walls()?;
    out.push(Answer {
        name: "faulty programs are boxed in",
        ok: open.is_empty(),
        found: if open.is_empty() {
            closed.join("; ")
        } else {
            open.join("; ")
        },
    });
    drop(running);
    tell(Progress::Stage("a target that checks everything".into()));
    let guarded = control(&dir.join("negative"), true, user).map_err(os)?;
    let mut running = Running::prepare(&guarded, "doctor", &mut quiet)?;
    running.run(&stop, &|| false, &|_| ())?;
    let (sdc, detected) = (
        count(&guarded, Outcome::Sdc)?,
        count(&guarded, Outcome::Detected)?,
    );
    out.push(Answer {
        name: "no wrong answer of a checked target is seen",
        ok: sdc == 0 && detected > 0,
        found: format!(
            "{sdc} wrong, {detected} detected, of {} runs",
            running.campaign.planned
        ),
    });
    drop(running);
    tell(Progress::Stage("planted faults and single steps".into()));
    let Agreement {
        same, different, ..
    } = agreement(&silent, u64::MAX, usize::MAX)?;
    out.push(Answer {
        name: "planted faults do what single steps do",
        ok: different.is_empty() && same > 0,
        found: different.first().map_or_else(
            || format!("{same} of {same} faults alike"),
            |d| {
                format!(
                    "{} of {} differ: {d}",
                    different.len(),
                    same + different.len()
                )
            },
        ),
    });
    let (sites, wrong) = counts(&silent, 4_000_000)?;
    out.push(Answer {
        name: "native counts are those of single steps",
        ok: wrong.is_empty() && sites > 0,
        found: wrong
            .first()
            .cloned()
            .unwrap_or_else(|| format!("{sites} of {sites} instructions")),
    });
    Ok(out)
}

/// What both engines made of the same faults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Faults that both carried out alike.
    pub same: usize,
    /// The others, and in what they differ.
    pub different: Vec<String>,
    /// Of those, the ones in which both hit the same execution of the same instruction, once.
    pub hit: usize,
    /// Faults that planting alone does not carry out alike twice: what they meet, or how they end,
    /// differs from run to run.
    pub unsteady: usize,
    /// Faults that lie beyond what is worth stepping to, or have no single place.
    pub beyond: usize,
}

/// Runs faults of a plan that was made with both engines: at most so many, at most so many
/// executions into the run, since each costs a stop.
///
/// # Errors
/// When a warden fails.
pub fn agreement(order: &Order, executions: u64, most: usize) -> Result<Agreement, CampaignError> {
    let plan: Vec<Planned> = Dir::new(&order.dir).plan()?;
    let mut field = Field::open(order)?;
    // Each stop takes longer than a planted execution, on a busy machine ten times as long as else.
    let stops =
        Duration::from_micros(500).saturating_mul(u32::try_from(executions).unwrap_or(u32::MAX));
    let limit = match Dir::new(&order.dir).campaign() {
        Ok(campaign) if campaign.limits.wall_ns > 0 => {
            (3 * Duration::from_nanos(campaign.limits.wall_ns) + stops).min(order.patience)
        }
        _ => order.patience,
    };
    let mut out = Agreement::default();
    for planned in &plan {
        if out.same + out.different.len() >= most {
            break;
        }
        let near = planned.n.is_none_or(|n| n <= executions);
        // What code was before and is then, planting does not tell.
        let code = |fault: &Fault| fault.model() == fault::Model::Code;
        if planned.faults()?.iter().any(code) || planned.site.is_none() || !near {
            out.beyond += 1;
            continue;
        }
        let lines = vec![planned.fault.clone()];
        let mut once = |ask: Ask| -> Result<(Ran, Captured), CampaignError> {
            let ran = field.warden().run(&ask, limit)?;
            let captured =
                Captured::read(field.warden().scratch()).map_err(|source| CampaignError::Os {
                    what: "outputs have to be readable".into(),
                    source,
                })?;
            Ok((ran, captured))
        };
        let (planted, first) = once(Ask::Plant(lines.clone()))?;
        let (stepped, second) = once(Ask::Step(lines))?;
        let hit = |ran: &Ran| {
            ran.hits
                .iter()
                .map(|h| (h.hits, h.n, h.before, h.after))
                .collect::<Vec<_>>()
        };
        let end = |ran: &Ran| (ran.status, ran.signal, ran.timed_out);
        let alike = |a: (&Ran, &Captured), b: (&Ran, &Captured)| {
            hit(a.0) == hit(b.0) && end(a.0) == end(b.0) && a.1 == b.1
        };
        if alike((&planted, &first), (&stepped, &second)) {
            out.same += 1;
        } else {
            let where_to = |ran: &Ran| ran.hits.iter().map(|h| (h.hits, h.n)).collect::<Vec<_>>();
            out.hit += usize::from(where_to(&planted) == where_to(&stepped));
            let (again, third) = once(Ask::Plant(vec![planned.fault.clone()]))?;
            out.unsteady += usize::from(!alike((&planted, &first), (&again, &third)));
            out.different.push(format!(
                "{}: planted {:x?} {:?}, stepped {:x?} {:?}{}",
                planned.fault,
                hit(&planted),
                end(&planted),
                hit(&stepped),
                end(&stepped),
                if first == second {
                    ""
                } else {
                    ", outputs differ"
                }
            ));
        }
    }
    Ok(out)
}

/// Compares native counts with those of single steps, instruction by instruction.
///
/// # Errors
/// When a warden fails.
pub fn counts(order: &Order, most: u64) -> Result<(usize, Vec<String>), CampaignError> {
    let mut field = Field::open(order)?;
    let profile = field.profile()?;
    let sites: Vec<(usize, u64)> = profile.sites.iter().map(|s| (s.module, s.addr)).collect();
    let limit = Duration::from_secs(200);
    let Tell::Counts(steps, ran) = field.warden().ask(&Ask::Steps(sites, most), limit)? else {
        return Ok((0, vec!["no counts".into()]));
    };
    if ran.timed_out {
        return Ok((0, vec![format!("more than {most} steps")]));
    }
    let wrong: Vec<String> = profile
        .sites
        .iter()
        .zip(steps)
        .filter(|(site, steps)| Some(site.count) != *steps)
        .map(|(site, steps)| {
            let place = field.place(site.module, site.addr);
            format!(
                "{}+{} {}: {} counted, {} stepped",
                place.module,
                place.offset,
                place.disassembly,
                site.count,
                steps.unwrap_or(0)
            )
        })
        .collect();
    Ok((profile.sites.len() - wrong.len(), wrong))
}

/// Where a doctor may work: a directory of its own among temporary files, which goes with the value.
///
/// # Errors
/// When it cannot be made.
pub fn place() -> std::io::Result<Scratch> {
    Scratch::make(&std::env::temp_dir(), scratch::DOCTOR)
}
