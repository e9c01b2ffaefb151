//! `steadfast inject` from outside, over campaigns that are generated here: what each verb says,
//! and the exit status that a build server acts on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use steadfast_contract::outcome::Leaf;
use steadfast_inject::record::{
    Campaign, Comparator, ControlRuns, Counts, Dir, Engine, FaultType, Golden, Limits, Machine,
    Place, Planned, Population, Protection, Run, SCHEMA, Shard,
};
use tempfile::TempDir;

const RUNS: u64 = 3_000;

/// A campaign of two parts in which run `id` ended as `ends` says; both parts are run by `of` 1.
fn campaign(path: &Path, shard: Shard, ends: impl Fn(u64) -> Leaf) {
    let dir = Dir::new(path);
    let plan: Vec<Planned> = (0..RUNS)
        .map(|id| Planned {
            schema: SCHEMA,
            id,
            fault_type: "wreg".into(),
            fault: format!("at=tool+0x1000 n={} reg=rax after bit=3", id + 1),
            site: Some(Place {
                module: "tool".into(),
                build_id: Some("ab".into()),
                offset: "0x1000".into(),
                function: Some("main".into()),
                line: Some("tool.c:7".into()),
                disassembly: "mov rax, rdi".into(),
                opcode: "mov".into(),
            }),
            register: Some("rax".into()),
            bits: vec![3],
            n: Some(id + 1),
            executions: Some(RUNS),
            strike: None,
        })
        .collect();
    dir.write_plan(&plan).expect("written");
    let fault_type = FaultType {
        name: "wreg".into(),
        population: 1_000_000,
        reachable: 990_000,
        planned: RUNS,
        weight: 1.0,
    };
    let control_runs = ControlRuns {
        runs: 20,
        masked: 20,
        ..ControlRuns::default()
    };
    dir.write_campaign(&Campaign {
        schema: SCHEMA,
        steadfast: "0.0.0".into(),
        commit: None,
        unix_ms: 1_772_366_400_000,
        command: vec!["tool".into(), "input".into()],
        stdin: None,
        environment: BTreeMap::new(),
        protection: Protection {
            name: "bare".into(),
            replicas: 0,
        },
        victim: steadfast_inject::victim::Victim::Program,
        modules: Vec::new(),
        machine: Machine::default(),
        seed: "5eed".repeat(16),
        engine: Engine::Plant,
        population: Population {
            counts: Counts {
                dynamic: 1_000_000,
                reachable: 990_000,
                unreachable: BTreeMap::from([("too short".into(), 10_000)]),
                ..Counts::default()
            },
            ..Population::default()
        },
        fault_types: vec![fault_type],
        planned: RUNS,
        shard,
        golden: Golden::default(),
        comparator: Comparator::Byte,
        state: Vec::new(),
        limits: Limits::default(),
        sandbox: Vec::new(),
        control_runs,
    })
    .expect("written");
    let mut runs = String::new();
    for planned in plan.iter().filter(|line| shard.has(line.id)) {
        let run = Run::new(planned, ends(planned.id));
        runs += &(serde_json::to_string(&run).expect("JSON") + "\n");
    }
    fs::write(path.join("runs.jsonl"), runs).expect("written");
}

const WHOLE: Shard = Shard { index: 0, of: 1 };

fn clean(_: u64) -> Leaf {
    Leaf::MaskedClean
}

fn tenth(id: u64) -> Leaf {
    match id % 20 {
        0 => Leaf::Sdc,
        1 => Leaf::CrashSignal,
        _ => Leaf::MaskedClean,
    }
}

struct Bench {
    root: TempDir,
}

impl Bench {
    fn new() -> Self {
        let root = TempDir::new().expect("a scratch directory");
        let bench = Self { root };
        campaign(&bench.path("clean"), WHOLE, clean);
        campaign(&bench.path("bare"), WHOLE, tenth);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_steadfast"))
            .arg("inject")
            .args(args)
            .current_dir(self.root.path())
            .env("COLUMNS", "100")
            .stdin(Stdio::null())
            .output()
            .expect("the command starts")
    }

    /// Exit status, and all that was said.
    fn says(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.run(args);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("text"))
    }
}

#[test]
fn every_answer_of_a_gate_has_its_exit_status() {
    let bench = Bench::new();
    let broken = bench.path("broken");
    campaign(&broken, WHOLE, |id| {
        if id < 30 {
            Leaf::Infra
        } else {
            Leaf::MaskedClean
        }
    });
    let garbled = bench.path("garbled");
    campaign(&garbled, WHOLE, clean);
    let text = fs::read_to_string(garbled.join("runs.jsonl")).expect("runs");
    fs::write(
        garbled.join("runs.jsonl"),
        text.replacen("masked_clean", "fine", 1),
    )
    .expect("written");
    let mut said = String::new();
    for (code, args) in [
        (0, &["gate", "sdc.upper95 < 0.1%", "clean"][..]),
        (1, &["gate", "sdc.upper95 < 0.1%", "bare"]),
        (2, &["gate", "sdc.upper95 < 0.01%", "clean"]),
        (3, &["gate", "sdc.upper95 < 0.1%", "broken"]),
        (3, &["gate", "sdc.upper95 < 0.1%", "nowhere"]),
        (3, &["gate", "sdc.upper95 < 0.1%", "garbled"]),
        (64, &["gate", "sdc.upper95 <", "clean"]),
        (64, &["gate", "sdc[cf].count == 0", "clean"]),
        (64, &["gate", "ratio.sdc.upper95 < 1", "clean"]),
        (2, &["gate", "sdc.count == 0"]),
        (0, &["gate", "sdc.count == 0 and crash.count == 0", "clean"]),
        (1, &["gate", "sdc.count == 0 and crash.count > 5", "bare"]),
        (
            0,
            &[
                "gate",
                "ratio.failed.upper95 < 0.5",
                "clean",
                "--against",
                "bare",
            ],
        ),
        (
            1,
            &[
                "gate",
                "ratio.failed.upper95 < 0.5",
                "bare",
                "--against",
                "bare",
            ],
        ),
        (
            1,
            &[
                "gate",
                "--json",
                "hang.count == 0 and sdc.count == 0",
                "bare",
            ],
        ),
    ] {
        let (status, text) = bench.says(args);
        assert_eq!(status, Some(code), "{args:?}: {text}");
        said += &format!("$ {}\n{text}", args.join(" "));
    }
    insta::assert_snapshot!("gate", said);
}

#[test]
fn a_gate_behind_its_directory_is_put_right() {
    let (status, text) = Bench::new().says(&["gate", "clean", "sdc.upper95 < 0.1%"]);
    assert_eq!(status, Some(64), "{text}");
    assert!(
        text.contains("steadfast inject gate 'sdc.upper95 < 0.1%' clean"),
        "{text}"
    );
}

#[test]
fn a_report_goes_where_it_was_sent() {
    let bench = Bench::new();
    let args = [
        "report",
        "bare",
        "--html",
        "r.html",
        "--csv",
        "r.csv",
        "--junit",
        "r.xml",
        "--markdown=r.md",
        "--json=r.json",
        "--gate",
        "sdc.upper95 < 0.1%",
    ];
    let (status, summary) = bench.says(&args);
    assert_eq!(status, Some(0), "{summary}");
    insta::assert_snapshot!("report", summary);
    let read = |name: &str| fs::read_to_string(bench.path(name)).expect(name);
    assert!(
        read("r.html").ends_with("</html>\n") && read("r.html").contains("sdc.upper95 &lt; 0.1%")
    );
    assert_eq!(read("r.csv").lines().count() as u64, RUNS + 1);
    assert!(read("r.xml").contains("failures=\"1\""));
    assert!(read("r.md").contains("`steadfast inject replay bare 0`"));
    let json: serde_json::Value = serde_json::from_str(&read("r.json")).expect("JSON");
    assert_eq!(json["wrong"].as_array().map(Vec::len), Some(150));
    // The same results give the same bytes.
    let before = read("r.html");
    bench.says(&args);
    assert_eq!(before, read("r.html"));
}

#[test]
fn json_to_standard_output_stands_alone() {
    let bench = Bench::new();
    let output = bench.run(&["report", "clean", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(json["runs"]["valid"], RUNS);
    assert!(output.stderr.is_empty());
}

#[test]
fn what_cannot_be_shown_is_said() {
    let bench = Bench::new();
    let mut said = String::new();
    for (code, args) in [
        (121, &["report", "nowhere"][..]),
        (64, &["report", "clean", "--json", "--markdown"]),
        (121, &["report", "clean", "--html", "no/such/r.html"]),
        (64, &["report", "clean", "--gate", "sdc"]),
        (64, &["report"]),
        (121, &["compare", "clean", "nowhere"]),
        (64, &["compare", "clean", "bare", "--work-a", "0"]),
        (121, &["merge", "nowhere", "--out", "all"]),
        (121, &["merge", "clean", "--out", "bare"]),
        (121, &["merge", "clean", "clean", "--out", "all"]),
        (121, &["merge", "clean", "other", "--out", "all"]),
        (64, &["merge", "--out", "all"]),
        (64, &["merge", "clean"]),
    ] {
        if args.contains(&"other") {
            campaign(&bench.path("other"), WHOLE, clean);
            let path = bench.path("other/campaign.json");
            let text = fs::read_to_string(&path).expect("a campaign");
            fs::write(path, text.replace("5eed", "0000")).expect("written");
        }
        let (status, text) = bench.says(args);
        assert_eq!(status, Some(code), "{args:?}: {text}");
        said += &format!("$ {}\n{text}", args.join(" "));
    }
    insta::assert_snapshot!("refused", said);
}

#[test]
fn parts_become_a_campaign() {
    let bench = Bench::new();
    for index in 0..3 {
        campaign(
            &bench.path(&format!("part-{index}")),
            Shard { index, of: 3 },
            tenth,
        );
    }
    let merged = bench.says(&["merge", "part-0", "part-2", "part-1", "--out", "all"]);
    assert_eq!(
        merged,
        (Some(0), "all: 3,000 runs of 3 parts, complete\n".to_owned())
    );
    let all = bench.run(&["report", "all", "--csv", "-"]).stdout;
    let bare = bench.run(&["report", "bare", "--csv", "-"]).stdout;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    assert_eq!(text(all).replace("replay all", "replay bare"), text(bare));
    let some = bench.says(&["merge", "part-0", "part-1", "--out", "some"]);
    assert!(
        some.1.contains("1,000 runs of the plan are missing"),
        "{}",
        some.1
    );
    // Not complete: the bound allows for having stopped at a good moment.
    assert_eq!(
        bench.says(&["gate", "sdc.upper95 < 0.1%", "some"]).0,
        Some(1)
    );
}

/// A real one, made by `steadfast inject run --runs 30 -- gzip -c /usr/share/common-licenses/GPL-3`
/// on Debian 12; without its evidence, which no report looks at.
#[test]
fn a_real_campaign_is_shown() {
    let bench = Bench::new();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples/gzip");
    let target = bench.path("gzip");
    fs::create_dir(&target).expect("made");
    for file in ["campaign.json", "profile.jsonl", "plan.jsonl", "runs.jsonl"] {
        fs::copy(Path::new(sample).join(file), target.join(file)).expect(file);
    }
    let (status, text) = bench.says(&["report", "gzip", "--html", "g.html"]);
    assert_eq!(status, Some(0), "{text}");
    insta::assert_snapshot!("real", text);
    let html = fs::read_to_string(bench.path("g.html")).expect("a page");
    assert!(html.ends_with("</html>\n") && !html.contains("<script"));
    assert_eq!(bench.says(&["gate", "sdc.upper95 < 1%", "gzip"]).0, Some(1));
    assert_eq!(bench.says(&["gate", "sdc.lower95 > 1%", "gzip"]).0, Some(0));
}

#[test]
fn two_campaigns_are_compared() {
    let bench = Bench::new();
    let (status, text) = bench.says(&["compare", "bare", "clean", "--html", "c.html"]);
    assert_eq!(status, Some(0), "{text}");
    insta::assert_snapshot!("compare", text);
    assert!(
        fs::read_to_string(bench.path("c.html"))
            .expect("a page")
            .ends_with("</html>\n")
    );
    let output = bench.run(&["compare", "bare", "clean", "--json", "--work-b", "2"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(json["b"]["work"], 2.0);
}

#[test]
fn help_is_a_result() {
    let bench = Bench::new();
    for verb in ["report", "compare", "gate", "merge"] {
        let output = bench.run(&[verb, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{verb}");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains("Example"), "{verb}");
        insta::assert_snapshot!(format!("help_{verb}"), text);
    }
}
