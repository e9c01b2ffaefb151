use super::*;
use steadfast_fault::cpus::CpuSet;

fn run_args(args: &[&str]) -> Result<RunArgs, clap::Error> {
    let words = ["steadfast", "run"].iter().chain(args).map(OsString::from);
    match parse(words)? {
        Command::Run(args) => Ok(*args),
        other => panic!("{other:?}"),
    }
}

fn plan(args: &[&str]) -> Plan {
    run_args(args)
        .expect("arguments")
        .plan(None)
        .expect("a plan")
}

#[test]
fn the_definition_is_sound() {
    definition().debug_assert();
}

#[test]
fn without_flags_every_default_protects() {
    let bare = plan(&["--", "sh", "-c", "true"]);
    let expected = Plan::new(
        "sh".into(),
        bare.path.clone(),
        vec!["-c".into(), "true".into()],
    );
    assert_eq!(
        bare,
        Plan {
            ambient: bare.ambient,
            ..expected
        }
    );
    assert_eq!(bare.replicas, 2);
    assert_eq!(bare.on_mismatch, OnMismatch::Recover);
    assert_eq!(bare.backstop, Backstop::Token);
}

#[test]
fn every_flag_reaches_the_plan() {
    let all = plan(&[
        "-n",
        "3",
        "--on-mismatch=stop",
        "--check-memory",
        "dirty",
        "--epoch-budget=2.5",
        "--private=text,rodata",
        "--placement=0,2-3",
        "--smt-siblings=allow",
        "--huge-pages=off",
        "--backstop=token",
        "--equal-pids=on",
        "--flip",
        "replica=1 event=1 reg=rax bit=0; replica=2 event=2 kill=9",
        "--flip",
        "replica=leader event=3 ip bit=1",
        "--explain",
        "--",
        "sh",
    ]);
    assert_eq!(all.replicas, 3);
    assert_eq!(all.on_mismatch, OnMismatch::Stop);
    assert_eq!(all.check_memory, CheckMemory::Dirty);
    assert_eq!(all.epoch_budget.permille(), 25);
    assert_eq!(
        all.private,
        Private {
            text: true,
            rodata: true,
            rest: false
        }
    );
    assert_eq!(
        all.placement,
        Placement::Cpus("0,2-3".parse::<CpuSet>().expect("a list"))
    );
    assert_eq!(all.smt_siblings, SmtSiblings::Allow);
    assert_eq!(all.huge_pages, HugePages::Off);
    assert_eq!(all.backstop, Backstop::Token);
    assert_eq!(all.equal_pids, EqualPids::On);
    assert_eq!(
        all.flips
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [
            "replica=1 event=1 reg=rax bit=0",
            "replica=2 event=2 kill=9",
            "replica=leader event=3 ip bit=1"
        ]
    );
    assert!(all.explain);
    assert_eq!(plan(&["--private=all", "sh"]).private, Private::ALL);
}

#[test]
fn flags_after_the_program_are_its_own() {
    let theirs = plan(&["-n", "1", "sh", "-n", "--json", "--", "-q"]);
    assert_eq!(theirs.args, ["-n", "--json", "--", "-q"]);
    assert_eq!(theirs.replicas, 1);
    // A slip in a flag of ours is never taken for a program.
    assert!(run_args(&["--replcas", "3", "sh"]).is_err());
}

#[test]
fn json_goes_to_stderr_unless_a_file_is_named() {
    assert_eq!(run_args(&["sh"]).expect("arguments").json(), None);
    assert_eq!(
        run_args(&["--json", "sh"]).expect("arguments").json(),
        Some(&PathBuf::from("-"))
    );
    assert_eq!(
        run_args(&["--json=out", "sh"]).expect("arguments").json(),
        Some(&PathBuf::from("out"))
    );
}

#[test]
fn values_out_of_range_are_refused() {
    for bad in [
        &["-n", "0"][..],
        &["-n", "9"],
        &["--epoch-budget=0"],
        &["--epoch-budget=100.1"],
        &["--epoch-budget=1.25"],
        &["--epoch-budget=-1"],
        &["--placement=far"],
        &["--placement=3-1"],
        &["--private=stack"],
        &["--backstop=sud"],
        &["--quiet", "--verbose"],
    ] {
        let args: Vec<&str> = bad.iter().copied().chain(["sh"]).collect();
        assert!(run_args(&args).is_err(), "{bad:?}");
    }
    assert!(run_args(&["--epoch-budget=0.1", "sh"]).is_ok());
    assert!(run_args(&["--epoch-budget=100", "sh"]).is_ok());
}

#[test]
fn a_wrong_flip_is_reported_before_a_missing_program() {
    let error = run_args(&["--flip", "event=1", "no-such-program"])
        .expect("arguments")
        .plan(None)
        .expect_err("flip");
    assert_eq!(error.exit(), Own::Usage);
}
