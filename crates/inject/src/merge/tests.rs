//! Parts that fit, and every reason why parts do not. The campaigns here are generated.

use std::collections::BTreeMap;

use steadfast_contract::outcome::{Leaf, Outcome};
use steadfast_report::report::Report;
use tempfile::TempDir;

use super::*;
use crate::record::{
    Comparator, ControlRuns, Counts, Engine, FaultType, Golden, Limits, Machine, Module, Planned,
    Population, Protection,
};
use crate::results::{ResultsError, load};

const PLANNED: u64 = 30;

fn campaign(index: u32, of: u32) -> Campaign {
    let fault_type = |name: &str, population, weight| FaultType {
        name: name.into(),
        population,
        reachable: population,
        planned: PLANNED / 2,
        weight,
    };
    Campaign {
        schema: SCHEMA,
        steadfast: "0.0.0".into(),
        commit: None,
        unix_ms: 1,
        command: vec!["/bin/true".into()],
        stdin: None,
        environment: BTreeMap::new(),
        protection: Protection {
            name: "bare".into(),
            replicas: 0,
        },
        victim: crate::victim::Victim::Program,
        modules: vec![Module {
            name: "true".into(),
            path: "/bin/true".into(),
            build_id: Some("ab".into()),
        }],
        machine: Machine::default(),
        seed: "00".into(),
        engine: Engine::Plant,
        population: Population {
            counts: Counts {
                dynamic: 4_000,
                reachable: 4_000,
                ..Counts::default()
            },
            ..Population::default()
        },
        fault_types: vec![
            fault_type("wreg", 3_000, 0.75),
            fault_type("cf", 1_000, 0.25),
        ],
        planned: PLANNED,
        shard: Shard { index, of },
        golden: Golden::default(),
        comparator: Comparator::Byte,
        state: Vec::new(),
        limits: Limits {
            wall_ns: 1_000 * u64::from(index + 1),
            ..Limits::default()
        },
        sandbox: vec!["no network".into()],
        control_runs: ControlRuns {
            runs: 10,
            masked: 10,
            ..ControlRuns::default()
        },
    }
}

fn plan() -> Vec<Planned> {
    (0..PLANNED)
        .map(|id| Planned {
            schema: SCHEMA,
            id,
            fault_type: if id % 2 == 0 { "wreg" } else { "cf" }.into(),
            fault: format!("at=true+0x1000 n={} reg=rax after bit=3", id + 1),
            site: None,
            register: Some("rax".into()),
            bits: vec![3],
            n: Some(id + 1),
            executions: Some(400),
            strike: None,
        })
        .collect()
}

/// A part with all its runs; every fifth run of the plan ended in a wrong answer.
fn part(root: &TempDir, index: u32, of: u32, change: impl Fn(&mut Campaign)) -> PathBuf {
    let path = root.path().join(format!("part-{index}"));
    let dir = Dir::new(&path);
    let mut campaign = campaign(index, of);
    change(&mut campaign);
    dir.write_plan(&plan()).expect("written");
    dir.write_campaign(&campaign).expect("written");
    let mut runs = dir.append().expect("opened");
    for planned in plan().iter().filter(|line| campaign.shard.has(line.id)) {
        let wrong = planned.id % 5 == 0;
        let mut run = Run::new(planned, if wrong { Leaf::Sdc } else { Leaf::MaskedClean });
        if wrong {
            let evidence = format!("evidence/{}", planned.id);
            fs::create_dir_all(path.join(&evidence)).expect("made");
            fs::write(path.join(&evidence).join("stdout"), b"wrong").expect("written");
            run.evidence = Some(evidence);
        }
        runs.add(&run).expect("added");
    }
    path
}

fn root() -> TempDir {
    TempDir::new().expect("a scratch directory")
}

#[test]
fn parts_add_up_to_the_whole() {
    let root = root();
    let shards = [0, 1, 2].map(|index| part(&root, index, 3, |_| ()));
    let out = root.path().join("all");
    let merged = merge(&shards, &out).expect("they fit");
    assert_eq!(
        merged,
        Merged {
            parts: 3,
            runs: PLANNED,
            missing: 0
        }
    );
    let results = load(&Dir::new(&out), "all").expect("a campaign");
    let report = Report::new(&results);
    assert_eq!(report.runs.valid, PLANNED);
    assert_eq!(report.outcome(Outcome::Sdc).expect("a row").count, 6);
    assert_eq!(report.control.runs, 30);
    assert_eq!(
        fs::read(out.join("evidence/25/stdout")).expect("kept"),
        b"wrong"
    );
    assert_eq!(results.provenance.shard, None);
    assert!(results.provenance.settings.contains_key("part 2/3"));
    // The widest limit of the parts.
    let limits = Dir::new(&out).campaign().expect("a campaign").limits;
    assert_eq!(limits.wall_ns, 3_000);
}

#[test]
fn a_missing_part_is_counted_and_may_come_later() {
    let root = root();
    let shards = [0, 1, 2].map(|index| part(&root, index, 3, |_| ()));
    let some = root.path().join("some");
    assert_eq!(merge(&shards[..2], &some).expect("they fit").missing, 10);
    let all = root.path().join("all");
    let merged = merge(&[some, shards[2].clone()], &all).expect("they fit");
    assert_eq!((merged.runs, merged.missing), (PLANNED, 0));
    let parts = load(&Dir::new(&all), "all").expect("a campaign");
    assert_eq!(
        parts
            .provenance
            .settings
            .keys()
            .filter(|k| k.starts_with("part "))
            .count(),
        3
    );
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    type Change = fn(&mut Campaign);
    let changes: [(&str, Change); 8] = [
        ("the seed", |c| c.seed = "01".into()),
        ("the build ids of all files", |c| {
            c.modules[0].build_id = None
        }),
        ("the command", |c| c.command.push("x".into())),
        ("the protection", |c| c.protection.replicas = 2),
        ("the fault types", |c| c.fault_types[0].weight = 0.5),
        ("the golden status", |c| c.golden.status = 1),
        ("the version of steadfast", |c| c.steadfast = "9".into()),
        ("the population", |c| c.population.counts.dynamic = 1),
    ];
    for (what, change) in changes {
        let root = root();
        let shards = [part(&root, 0, 2, |_| ()), part(&root, 1, 2, change)];
        let out = root.path().join("all");
        let why = merge(&shards, &out).expect_err(what).to_string();
        assert!(why.starts_with(what), "{why}");
        assert!(!out.exists(), "{what}");
    }
}

#[test]
fn another_plan_is_refused() {
    let root = root();
    let shards = [0, 1].map(|index| part(&root, index, 2, |_| ()));
    let mut other = plan();
    other[7].fault = "at=true+0x1000 n=9 reg=rbx after bit=3".into();
    Dir::new(&shards[1]).write_plan(&other).expect("written");
    let why = merge(&shards, &root.path().join("all")).expect_err("another plan");
    assert!(why.to_string().contains("run 7"), "{why}");
}

#[test]
fn a_run_that_two_parts_have_is_refused() {
    let root = root();
    let shard = part(&root, 0, 2, |_| ());
    let twice = [shard.clone(), shard];
    let why = merge(&twice, &root.path().join("all")).expect_err("twice");
    assert!(matches!(why, MergeError::Duplicate { id: 0, .. }), "{why}");
}

#[test]
fn a_run_of_another_part_is_refused() {
    let root = root();
    let shard = part(&root, 0, 2, |_| ());
    let mut runs = Dir::new(&shard).append().expect("opened");
    runs.add(&Run::new(&plan()[1], Leaf::MaskedClean))
        .expect("added");
    let why = merge(std::slice::from_ref(&shard), &root.path().join("all")).expect_err("foreign");
    assert!(
        matches!(
            why,
            MergeError::Foreign {
                id: 1,
                index: 0,
                of: 2,
                ..
            }
        ),
        "{why}"
    );
    let why = load(&Dir::new(&shard), "x").expect_err("foreign");
    assert!(
        matches!(why, ResultsError::OtherShard { id: 1, .. }),
        "{why}"
    );
}

#[test]
fn nothing_is_overwritten_and_something_is_needed() {
    let root = root();
    let shard = part(&root, 0, 1, |_| ());
    let why = merge(std::slice::from_ref(&shard), &shard).expect_err("not empty");
    assert!(matches!(why, MergeError::NotEmpty { .. }), "{why}");
    let why = merge(&[], &root.path().join("all")).expect_err("nothing");
    assert!(matches!(why, MergeError::Nothing), "{why}");
}

#[test]
fn runs_that_the_plan_does_not_have_are_refused() {
    let root = root();
    let shard = part(&root, 0, 1, |_| ());
    let mut stranger = plan()[0].clone();
    stranger.id = 99;
    let mut runs = Dir::new(&shard).append().expect("opened");
    runs.add(&Run::new(&stranger, Leaf::MaskedClean))
        .expect("added");
    let why = load(&Dir::new(&shard), "x").expect_err("unplanned");
    assert!(
        matches!(why, ResultsError::Unplanned { id: 99, .. }),
        "{why}"
    );
    let mut other = plan()[0].clone();
    other.fault_type = "cf".into();
    let shard = part(&root, 0, 1, |_| ());
    let path = shard.join("runs.jsonl");
    fs::write(&path, b"").expect("emptied");
    let mut runs = Dir::new(&shard).append().expect("opened");
    runs.add(&Run::new(&other, Leaf::MaskedClean))
        .expect("added");
    let why = load(&Dir::new(&shard), "x").expect_err("another fault type");
    assert!(
        matches!(why, ResultsError::OtherFaultType { id: 0, .. }),
        "{why}"
    );
}
