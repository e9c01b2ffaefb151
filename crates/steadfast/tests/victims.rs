//! `steadfast inject run --victim`: what protects a program is struck, what comes of it is judged, and what does not go with it is refused.
//!
//! Rates are for `make campaign`: a few runs of each type show that each is drawn, planted and told. Strikes from outside need root.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use steadfast_contract::outcome::Outcome;
use steadfast_inject::models::Model;
use steadfast_inject::record::Dir;
use steadfast_inject::victim::Victim;
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("inject-victims-")
            .tempdir()
            .expect("a directory");
        let text: String = (0..200).map(|i| format!("{}\n", i * 7919 % 1000)).collect();
        fs::write(dir.path().join("in"), text).expect("input");
        Self(dir)
    }

    fn dir(&self, name: &str) -> Dir {
        Dir::new(self.0.path().join(name))
    }

    fn run(&self, out: &str, flags: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command.args(["inject", "run", "--quiet", "--seed", "7", "--out", out]);
        command.args(["--runs", "2", "--stdin", "in"]).args(flags);
        command.args(["--", "sort"]).current_dir(self.0.path());
        command.env("TMPDIR", self.0.path());
        command.output().expect("it starts")
    }

    fn struck(&self, victim: Victim) {
        let name = victim.word();
        let out = self.run(name, &["--replicas", "2", "--victim", name]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{name}: {said}");
        let dir = self.dir(name);
        let campaign = dir.campaign().expect("a campaign");
        assert_eq!(campaign.victim, victim);
        let names: Vec<String> = campaign
            .fault_types
            .iter()
            .map(|s| s.name.clone())
            .collect();
        assert_eq!(names, victim.fault_types(&Model::SEI));
        // Armed faults that never come ring nothing.
        let control_runs = campaign.control_runs;
        assert_eq!(
            (control_runs.false_alarms, control_runs.masked),
            (0, control_runs.runs)
        );
        let runs = dir.runs().expect("runs");
        assert_eq!(runs.len(), dir.plan().expect("a plan").len());
        let hit = runs.values().filter(|run| run.hits > 0).count();
        assert!(2 * hit > runs.len(), "{name}: {hit} of {} hit", runs.len());
        for planned in dir.plan().expect("a plan") {
            let run = &runs[&planned.id];
            // A fault in the agent's variables may come before there is a group, which then refuses to start.
            let started = run.outcome.outcome() != Outcome::Infra || name == "agent";
            assert!(started, "{}: {run:?}", planned.told());
            let outside = planned.strike.is_some();
            assert_eq!(outside, planned.told().contains("from outside"));
            assert!(!outside || run.hits == 0 || run.fired.iter().any(|f| f.file.is_some()));
        }
    }
}

fn is_root() -> bool {
    steadfast_sys::procfs::is_privileged()
}

#[test]
fn the_agent_and_the_log_are_struck() {
    let place = Place::new();
    place.struck(Victim::Agent);
    place.struck(Victim::Log);
    // A directory is gone on with for the victim that it was begun with.
    let other = place.run("agent", &["--replicas", "2"]);
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_ne!(other.status.code(), Some(0));
    assert!(said.contains("the same faults"), "{said}");
    let report: PathBuf = place.0.path().join("agent");
    let told = Command::new(env!("CARGO_BIN_EXE_steadfast"))
        .args(["inject", "report"])
        .arg(report)
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("agent-wreg"), "{told}");
}

#[test]
fn processes_around_the_replicas_are_struck() {
    let place = Place::new();
    if is_root() {
        place.struck(Victim::Processes);
    } else {
        let out = place.run("x", &["--replicas", "2", "--victim", "processes"]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains("without root"), "{said}");
    }
}

#[test]
fn what_does_not_go_with_a_victim_is_refused() {
    let place = Place::new();
    for (flags, words) in [
        (&["--victim", "agent"][..], "--replicas 2 or 3"),
        (
            &["--victim", "agent", "--replicas", "1"],
            "--replicas 2 or 3",
        ),
        (
            &["--victim", "log", "--replicas", "2", "--fault", "cf"],
            "types of their own",
        ),
        (
            &["--victim", "agent", "--replicas", "2", "--fault", "code"],
            "agent-fixed",
        ),
        (
            &["--victim", "agent", "--replicas", "2", "--fault", "rdata"],
            "faults of files",
        ),
        (
            &[
                "--victim",
                "agent",
                "--replicas",
                "2",
                "--fault",
                "event=1 reg=rax bit=0",
            ],
            "for lines",
        ),
        (
            &["--victim", "nobody", "--replicas", "2"],
            "one of program, agent, log, processes",
        ),
    ] {
        let out = place.run("x", flags);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_ne!(out.status.code(), Some(0), "{flags:?}");
        assert!(said.contains(words), "{flags:?}: {said}");
        assert!(!place.0.path().join("x").exists(), "{flags:?}");
    }
}
