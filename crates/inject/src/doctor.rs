//! Doctor: whether the injector can be believed on this machine.
//!
//! A target whose answers are known is put through small campaigns: one that checks nothing has
//! to show wrong outputs, one that checks everything must not; armed runs without a fault have to
//! be as bare ones; flips of code have to be executed, and a byte that a file got wrong has to be
//! found; planted faults have to do what single steps do; and native counts have to be those of
//! single steps.
//!
//! Not covered: the user's own target. `steadfast inject profile` says how much of it is reached.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use steadfast_contract::outcome::Outcome;
use steadfast_fault::{self as fault, Fault};

use crate::campaign::{CampaignError, Field, Order, Progress, Running};
use crate::chacha::Seed;
use crate::judge::{Captured, Detector};
use crate::models::{Model, Shape};
use crate::record::{Comparator, Dir, Engine, Planned, Run, Shard};
use crate::sandbox::{Ask, Tell};
use crate::scratch::{self, Scratch};
use crate::target::{Ran, Spec};

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
        victim: crate::victim::Victim::Program,
        patience: Duration::from_secs(20),
        golden_exit: 0,
        network: false,
        budget: None,
    })
}

/// Asks everything. `dir` is a scratch directory that programs of `user` can reach.
///
/// # Errors
/// When there is no sandbox or no target at all.
pub fn examine(
    dir: &Path,
    user: Option<u32>,
    tell: &mut dyn FnMut(Progress),
) -> Result<Vec<Answer>, CampaignError> {
    let order = |name: &str, guarded: bool| {
        control(&dir.join(name), guarded, user).map_err(|source| CampaignError::Os {
            what: format!("{} has to be writable", dir.display()),
            source,
        })
    };
    let mut stage = |what: &str| tell(Progress::Stage(what.into()));
    let silent = order("positive", false)?;
    stage("a target that checks nothing");
    let mut out = unchecked(&silent)?.to_vec();
    stage("a target that checks everything");
    out.push(checked(&order("negative", true)?)?);
    stage("flips of code, and bytes on their way to a file");
    out.push(flipped(order("code", false)?)?);
    out.push(written(&order("files", false)?)?);
    stage("planted faults and single steps");
    out.push(alike(&silent)?);
    out.push(counted(&silent)?);
    Ok(out)
}

/// Carries a campaign out; its runs.
fn carried_out(order: &Order) -> Result<(Running, Vec<Run>), CampaignError> {
    let mut running = Running::prepare(order, "doctor", &mut |_| ())?;
    running.run(&AtomicBool::new(false), &|| false, &|_| ())?;
    let runs = Dir::new(&order.dir).runs()?.into_values().collect();
    Ok((running, runs))
}

fn count(runs: &[Run], of: Outcome) -> usize {
    runs.iter()
        .filter(|run| run.outcome.outcome() == of)
        .count()
}

fn fired(runs: &[Run]) -> usize {
    runs.iter().filter(|run| run.hits > 0).count()
}

/// A target that prints whatever comes out.
fn unchecked(order: &Order) -> Result<[Answer; 4], CampaignError> {
    let (mut running, runs) = carried_out(order)?;
    let (sdc, fired) = (count(&runs, Outcome::Sdc), fired(&runs));
    let planned = running.campaign.planned;
    let control_runs = running.campaign.control_runs;
    let (closed, open) = running.isolation()?;
    Ok([
        Answer {
            name: "wrong answers of an unchecked target are seen",
            ok: sdc > 0,
            found: format!("{sdc} of {planned} runs"),
        },
        Answer {
            name: "every planned fault fires",
            ok: fired as u64 == planned,
            found: format!("{fired} of {planned}"),
        },
        Answer {
            name: "armed runs without a fault are as bare ones",
            ok: control_runs.masked == control_runs.runs && control_runs.false_alarms == 0,
            found: format!("{} of {} masked", control_runs.masked, control_runs.runs),
        },
        Answer {
            name: "faulty programs are boxed in",
            ok: open.is_empty(),
            found: if open.is_empty() { closed } else { open }.join("; "),
        },
    ])
}

/// A target that knows the right answer, and gives no other.
fn checked(order: &Order) -> Result<Answer, CampaignError> {
    let (_, runs) = carried_out(order)?;
    let (sdc, detected) = (count(&runs, Outcome::Sdc), count(&runs, Outcome::Detected));
    Ok(Answer {
        name: "no wrong answer of a checked target is seen",
        ok: sdc == 0 && detected > 0,
        found: format!("{sdc} wrong, {detected} detected, of {} runs", runs.len()),
    })
}

/// Code that is wrong from the start on.
fn flipped(order: Order) -> Result<Answer, CampaignError> {
    let order = Order {
        models: vec![Model::Code],
        ..order
    };
    let (_, runs) = carried_out(&order)?;
    let masked = count(&runs, Outcome::Masked);
    Ok(Answer {
        name: "flips of code are executed",
        ok: masked < runs.len() && fired(&runs) == runs.len(),
        found: format!("{} of {} runs went wrong", runs.len() - masked, runs.len()),
    })
}

/// A byte that arrives wrong in a file: output, and then the target's own state.
fn written(order: &Order) -> Result<Answer, CampaignError> {
    let mut found = Vec::new();
    for (name, state) in [("output", None), ("state", Some("kept"))] {
        let mut order = Order {
            dir: order.scratch.join(name),
            models: Vec::new(),
            only: Vec::new(),
            lines: vec!["write=kept n=1 byte=0 bit=0".into()],
            runs: 1,
            state: state
                .into_iter()
                .filter_map(|word: &str| word.parse().ok())
                .collect(),
            ..order.clone()
        };
        order.spec.path = "/bin/sh".into();
        order.spec.argv = ["sh", "-c", "echo kept > kept"].map(str::to_owned).to_vec();
        let (_, runs) = carried_out(&order)?;
        found.extend(runs);
    }
    // Nothing depends on how long it took: a slow one is masked as well.
    let right = [Outcome::Sdc, Outcome::Masked];
    let ends = found.iter().map(|run| run.outcome.outcome());
    let words: Vec<&str> = found.iter().map(|run| run.outcome.word()).collect();
    Ok(Answer {
        name: "a wrong file is seen, and is latent where it is state",
        ok: ends.eq(right) && found.iter().all(|run| run.differ == ["kept"]),
        found: words.join(", "),
    })
}

/// Both engines, on the faults of a plan.
fn alike(order: &Order) -> Result<Answer, CampaignError> {
    let Agreement {
        same,
        different,
        stepped_again,
        ..
    } = agreement(order, u64::MAX, usize::MAX)?;
    let all = same + different.len();
    Ok(Answer {
        name: "planted faults do what single steps do",
        ok: different.is_empty() && same > 0,
        found: match different.first() {
            None if stepped_again > 0 => {
                format!("{same} of {same} faults alike, {stepped_again} of them stepped twice")
            }
            None => format!("{same} of {same} faults alike"),
            Some(first) => format!("{} of {all} differ: {first}", different.len()),
        },
    })
}

/// Native counts and those of single steps.
fn counted(order: &Order) -> Result<Answer, CampaignError> {
    let (sites, wrong) = counts(order, 4_000_000)?;
    Ok(Answer {
        name: "native counts are those of single steps",
        ok: wrong.is_empty() && sites > 0,
        found: match wrong.into_iter().next() {
            None => format!("{sites} of {sites} instructions"),
            Some(first) => first,
        },
    })
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
    /// Of those that both carried out alike, the ones that single steps did otherwise at first: a virtual machine
    /// may stop twice before one execution, which is then counted twice.
    pub stepped_again: usize,
    /// Faults that lie beyond what is worth stepping to, or have no single place.
    pub beyond: usize,
}

/// Runs faults of a plan that was made with both engines: at most so many, at most so many
/// executions into the run, since each costs a stop.
///
/// # Errors
/// When a sandbox fails.
pub fn agreement(order: &Order, executions: u64, most: usize) -> Result<Agreement, CampaignError> {
    let plan: Vec<Planned> = Dir::new(&order.dir).plan()?;
    let mut field = Field::open(order)?;
    // Each stop takes longer than a planted execution: 10 us, where others want the processor some time slices of 1 ms.
    let stops =
        Duration::from_millis(2).saturating_mul(u32::try_from(executions).unwrap_or(u32::MAX));
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
            let ran = field.sandbox().run(&ask, limit)?;
            let captured =
                Captured::read(field.sandbox().scratch()).map_err(|source| CampaignError::Os {
                    what: "outputs have to be readable".into(),
                    source,
                })?;
            Ok((ran, captured))
        };
        let (planted, first) = once(Ask::Plant(lines.clone()))?;
        let (mut stepped, mut second) = once(Ask::Step(lines.clone()))?;
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
        let mut same = alike((&planted, &first), (&stepped, &second));
        if !same {
            (stepped, second) = once(Ask::Step(lines))?;
            same = alike((&planted, &first), (&stepped, &second));
            out.stepped_again += usize::from(same);
        }
        if same {
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
/// When a sandbox fails.
pub fn counts(order: &Order, most: u64) -> Result<(usize, Vec<String>), CampaignError> {
    let mut field = Field::open(order)?;
    let profile = field.profile()?;
    let sites: Vec<(usize, u64)> = profile.sites.iter().map(|s| (s.module, s.addr)).collect();
    let limit = Duration::from_secs(200);
    let Tell::Stepped(stepped, ran) = field.sandbox().ask(&Ask::Steps { sites, most }, limit)?
    else {
        return Ok((0, vec!["no counts".into()]));
    };
    if ran.timed_out {
        return Ok((0, vec![format!("more than {most} steps")]));
    }
    let wrong: Vec<String> = profile
        .sites
        .iter()
        .zip(stepped.counts)
        .filter(|(site, steps)| site.count != *steps)
        .map(|(site, steps)| {
            let place = field.place(site.module, site.addr);
            format!(
                "{}+{} {}: {} counted, {} stepped",
                place.module, place.offset, place.disassembly, site.count, steps
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
