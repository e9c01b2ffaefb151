//! The command as a whole, against stand-ins for the product: shell scripts that run the program
//! they are given, well or badly.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use steadfast_contract::exit::Verdict;
use steadfast_contract::plan::{Coverage, ProgramEnd, ReplicaTime, RunReport, Timings};
use steadfast_fault::ids::ReplicaId;

/// A script that passes for the product: it writes a sound report and then does `act`, in which
/// `"$@"` is the program.
fn product(dir: &Path, act: &str) -> PathBuf {
    let report = RunReport {
        verdict: Verdict::Agreed,
        end: ProgramEnd::Exited(0),
        events: 7,
        divergences: 0,
        recoveries: 0,
        promotions: 0,
        signals: 0,
        faults: Vec::new(),
        suspects: Vec::new(),
        coverage: Coverage {
            patched: 5,
            ..Coverage::default()
        },
        timings: Timings {
            cpu_ns: vec![ReplicaTime {
                replica: ReplicaId(0),
                user_ns: 1,
                system_ns: 1,
            }],
            ..Timings::default()
        },
    };
    let report = serde_json::to_string(&report).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo stand-in 1; exit; }}\n\
         while [ \"$1\" != -- ]; do case $1 in --json=*) file=${{1#--json=}};; esac; shift; done\n\
         shift\nprintf '%s\\n' '{report}' > \"$file\"\n{act}\n"
    );
    let path = dir.join("stand-in");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn bench(product: &Path, args: &[&str]) -> Output {
    command(product, args).output().unwrap()
}

fn command(product: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command
        .args(args)
        .env("STEADFAST_BIN", product)
        .stdin(Stdio::null());
    command
}

const MICRO: [&str; 7] = [
    "micro", "--events", "getppid", "--scale", "0.01", "--pairs", "2",
];

#[test]
fn a_sound_product_gives_numbers_in_table_and_file() {
    let dir = tempfile::tempdir().unwrap();
    let product = product(dir.path(), "exec \"$@\"");
    let file = dir.path().join("micro.json");
    let args = [&MICRO[..], &["--json", file.to_str().unwrap()]].concat();
    let out = bench(&product, &args);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        out.status.code(),
        Some(0),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(
        text.contains("n2 both") && text.contains("stand-in 1"),
        "{text}"
    );
    assert!(!text.contains("error"), "{text}");
    // A file shows the same table again.
    let again = bench(&product, &["show", file.to_str().unwrap()]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
}

#[test]
fn published_values_are_kept_with_what_they_took_the_place_of() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kept.json");
    let sound = product(dir.path(), "exec \"$@\"");
    let keep = [&MICRO[..], &["--results", file.to_str().unwrap()]].concat();
    for earlier in [0, 1] {
        let out = bench(&sound, &keep);
        assert_eq!(
            out.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let text = fs::read_to_string(&file).unwrap();
        let kept: serde_json::Value = serde_json::from_str(&text).unwrap();
        let run = kept["runs"].as_array().unwrap().last().unwrap();
        assert_eq!(
            run["command"],
            "bench micro --events getppid --scale 0.01 --pairs 2"
        );
        let rows = run["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"] == "getppid.n2").unwrap();
        assert_eq!(row["n"], 2);
        assert_eq!(row["earlier"].as_array().map_or(0, Vec::len), earlier);
    }
    let before = fs::read(&file).unwrap();
    let failing = product(dir.path(), "exit 121");
    assert_eq!(bench(&failing, &keep).status.code(), Some(3));
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn a_missing_product_is_an_error_row_and_never_a_number() {
    let out = bench(
        Path::new("/nonexistent/steadfast"),
        &["start", "--pairs", "2"],
    );
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1), "{text}");
    for column in ["n1", "n2", "n3"] {
        assert!(
            text.contains(&format!("error   {column}: could not start")),
            "{text}"
        );
    }
}

#[test]
fn a_product_that_fails_is_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let product = product(dir.path(), "echo 'steadfast: no room' >&2; exit 121");
    let out = bench(&product, &["start", "--pairs", "2"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text.contains("exit status: 121: steadfast: no room"),
        "{text}"
    );
}

#[test]
fn a_product_that_changes_the_output_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let product = product(dir.path(), "\"$@\" | sed s/times/tines/");
    let out = bench(&product, &MICRO);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("wrote other bytes than bare"), "{text}");
}

#[test]
fn an_interrupt_prints_what_there_is_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let product = product(dir.path(), "exec \"$@\"");
    let mut command = command(&product, &["start", "--pairs", "1000000"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(
        text.contains("INTERRUPTED") && text.contains("n3"),
        "{text}"
    );
    let scratch = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("build/bench")
        .join(format!("scratch.{pid}"));
    assert!(!scratch.exists());
}

#[test]
fn every_command_explains_itself() {
    let commands: BTreeMap<&str, &str> = BTreeMap::from([
        ("spec", "--columns"),
        ("micro", "--scale"),
        ("touch", "--mib"),
        ("repair", "--faults"),
        ("memory", "--mib"),
        ("start", "--pairs"),
        ("model", "--micro"),
    ]);
    for (command, flag) in commands {
        let out = bench(Path::new("/nonexistent"), &[command, "--help"]);
        assert!(out.status.success());
        assert!(
            String::from_utf8(out.stdout).unwrap().contains(flag),
            "{command}"
        );
    }
}
