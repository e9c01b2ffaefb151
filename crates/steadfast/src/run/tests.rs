//! The command with an engine that says what the test wants.

use std::ffi::OsString;

use steadfast_contract::event::{
    Cause, CoreSuspect, Difference, Divergence, FaultHit, Judgement, Recovery, RecoveryAction,
    Refused, Role, SuspectAction, Vote, What,
};
use steadfast_contract::exit::Verdict;
use steadfast_contract::plan::{
    Coverage, DeniedCall, FaultReport, ModuleCoverage, ProgramEnd, SlowSite, StopReason, Timings,
};
use steadfast_fault::ids::{CoreId, EventIndex, GuestAddr, ReplicaId, Site};

use super::*;
use crate::cli::{self, Command};
use crate::engine::Failure;

struct Said {
    exit: Exit,
    out: String,
    err: String,
}

/// Runs `steadfast run ARGS -- sh` with an engine that emits `events` and ends with `result`.
fn run_with(args: &[&str], events: Vec<What>, result: Result<RunReport, Failure>) -> Said {
    run_program("sh", args, events, result)
}

fn run_program(
    program: &str,
    args: &[&str],
    events: Vec<What>,
    result: Result<RunReport, Failure>,
) -> Said {
    let words = ["steadfast", "run"]
        .iter()
        .chain(args)
        .chain([&"--", &program])
        .map(OsString::from);
    let Ok(Command::Run(args)) = cli::parse(words) else {
        panic!("arguments")
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        out: &mut out,
        err: &mut err,
        lost: None,
    };
    let exit = run(&args, &mut console, |_, sink| {
        for (t_ns, what) in (0..).zip(events) {
            sink.emit(Event { t_ns, what });
        }
        Ran::Continue(result)
    });
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Said {
        exit,
        out: text(out),
        err: text(err),
    }
}

fn report(verdict: Verdict, end: ProgramEnd, divergences: u64) -> RunReport {
    RunReport {
        verdict,
        end,
        events: 4711,
        divergences,
        recoveries: divergences,
        promotions: 0,
        signals: 0,
        faults: Vec::new(),
        suspects: Vec::new(),
        coverage: Coverage {
            patched: 572,
            slow_path: 1,
            denied: 1,
            unpatched_bytes: 12,
            modules: vec![
                ModuleCoverage {
                    module: "ld-linux-x86-64.so.2".to_owned(),
                    build_id: None,
                    patched: [("syscall".to_owned(), 46), ("rdtsc".to_owned(), 21)].into(),
                    slow_path: 0,
                    executable_bytes: 151_552,
                    unpatched_bytes: 0,
                    starts: Vec::new(),
                },
                ModuleCoverage {
                    module: "libc.so.6".to_owned(),
                    build_id: None,
                    patched: [("syscall".to_owned(), 505)].into(),
                    slow_path: 1,
                    executable_bytes: 1_396_736,
                    unpatched_bytes: 12,
                    starts: vec!["pthread_create".to_owned()],
                },
            ],
            slow_sites: vec![SlowSite {
                site: site("libc.so.6", 0x1180, "clone3+0x10"),
                instruction: "syscall".to_owned(),
                reason: "a branch enters the window".to_owned(),
            }],
            open_sites: Vec::new(),
            denied_calls: vec![DeniedCall {
                call: "io_uring_setup".to_owned(),
                errno: "ENOSYS".to_owned(),
                count: 0,
            }],
        },
        timings: Timings {
            wall_ns: 1_234_000_000,
            setup_ns: 9_000_000,
            cpu_ns: Vec::new(),
            repair_pause_ns_max: None,
        },
    }
}

fn site(module: &str, offset: u64, symbol: &str) -> Site {
    Site {
        address: GuestAddr(0x7fff_f7dd_0000 + offset),
        module: Some(module.to_owned()),
        offset: Some(GuestAddr(offset)),
        symbol: Some(symbol.to_owned()),
        build_id: None,
    }
}

fn vote(replica: u8, camp: u8) -> Vote {
    Vote {
        replica: ReplicaId(replica),
        role: if replica == 0 {
            Role::Leader
        } else {
            Role::Follower
        },
        core: Some(CoreId(replica.into())),
        camp,
        site: Some(site("bzip2", 0x1a2f0, "BZ2_compressBlock+0x40")),
        value: Some("0x2a".to_owned()),
    }
}

fn divergence(id: u64) -> What {
    What::Divergence(Divergence {
        id,
        event: Some(EventIndex(12)),
        call: Some("write".to_owned()),
        difference: Difference::Buffer {
            argument: 1,
            offset: Some(8),
        },
        votes: vec![vote(0, 0), vote(1, 1), vote(2, 0)],
        judgement: Judgement::Blamed(ReplicaId(1)),
        latency_ns: None,
    })
}

fn recovery(divergence: u64) -> What {
    What::Recovery(Recovery {
        divergence,
        action: RecoveryAction::Reforked { from: ReplicaId(0) },
        cause: Cause::Outvoted,
        replica: Some(ReplicaId(1)),
        core: Some(CoreId(1)),
        pause_ns: 640_000,
    })
}

#[test]
fn a_quiet_run_says_nothing_and_passes_the_status_through() {
    for status in [0, 1, 64, 121, 122, 123, 255] {
        let said = run_with(
            &[],
            vec![],
            Ok(report(Verdict::Agreed, ProgramEnd::Exited(status), 0)),
        );
        let status = u8::try_from(status).expect("a byte");
        assert_eq!(
            (said.exit, said.out.as_str(), said.err.as_str()),
            (Exit::Status(status), "", "")
        );
    }
    let said = run_with(
        &[],
        vec![],
        Ok(report(Verdict::Agreed, ProgramEnd::Signaled(11), 0)),
    );
    assert_eq!((said.exit, said.err.as_str()), (Exit::Signal(11), ""));
}

#[test]
fn verbose_says_how_it_went() {
    let said = run_with(
        &["-v"],
        vec![],
        Ok(report(Verdict::Agreed, ProgramEnd::Exited(0), 0)),
    );
    insta::assert_snapshot!("verbose", said.err);
    let alone = run_with(
        &["-v", "-n1"],
        vec![],
        Ok(report(Verdict::Unprotected, ProgramEnd::Exited(0), 0)),
    );
    insta::assert_snapshot!("verbose_unprotected", alone.err);
}

#[test]
fn a_corrected_run_says_what_happened_and_keeps_the_status() {
    let hit = What::Fault(FaultHit {
        fault: Box::new(
            "replica=1 at=bzip2+0x1a2f0 n=5 reg=rax bit=17"
                .parse()
                .expect("a fault"),
        ),
        replica: ReplicaId(1),
        core: Some(CoreId(1)),
        site: Some(site("bzip2", 0x1a2f0, "BZ2_compressBlock+0x40")),
        n: 5,
        before: Some("0x2a".to_owned()),
        after: Some("0x2002a".to_owned()),
    });
    let suspect = |action| {
        What::CoreSuspect(CoreSuspect {
            core: CoreId(1),
            strikes: 2,
            divergences: 2,
            action,
        })
    };
    let events = vec![
        hit,
        divergence(1),
        recovery(1),
        suspect(SuspectAction::Reported),
        suspect(SuspectAction::Avoided),
    ];
    let said = run_with(
        &["-n3"],
        events.clone(),
        Ok(report(Verdict::Corrected, ProgramEnd::Exited(3), 1)),
    );
    assert_eq!(said.exit, Exit::Status(3));
    insta::assert_snapshot!("corrected", said.err);
    let quiet = run_with(
        &["-n3", "-q"],
        events,
        Ok(report(Verdict::Corrected, ProgramEnd::Exited(3), 1)),
    );
    assert_eq!(quiet.err, "");
}

#[test]
fn every_difference_cause_and_action_has_words() {
    let differences = [
        Difference::Call,
        Difference::Argument { index: 2 },
        Difference::Buffer {
            argument: 1,
            offset: None,
        },
        Difference::Register {
            name: "rbx".to_owned(),
        },
        Difference::Stack,
        Difference::Result,
        Difference::Fault {
            signal: 11,
            address: GuestAddr(8),
        },
    ];
    let mut events = Vec::new();
    let causes = [
        Cause::Crashed(11),
        Cause::Killed(9),
        Cause::OutOfMemory,
        Cause::Hung,
        Cause::Exited(1),
    ];
    let actions = [
        RecoveryAction::RolledBack {
            to: EventIndex(3),
            reran: 1,
        },
        RecoveryAction::Promoted { to: ReplicaId(1) },
        RecoveryAction::Moved { to: CoreId(0) },
        RecoveryAction::LogRepaired {
            event: EventIndex(12),
        },
        RecoveryAction::Stopped,
    ];
    for (id, difference) in (1..).zip(differences) {
        events.push(What::Divergence(Divergence {
            id,
            event: None,
            call: None,
            difference,
            votes: vec![vote(0, 0), vote(1, 1)],
            judgement: if id == 1 {
                Judgement::Unresolvable
            } else {
                Judgement::Undecided
            },
            latency_ns: None,
        }));
        if let (Some(&action), Some(&cause)) = (
            actions.get(usize::try_from(id).expect("small") - 1),
            causes.get(usize::try_from(id).expect("small") - 1),
        ) {
            events.push(What::Recovery(Recovery {
                divergence: id,
                action,
                cause,
                replica: Some(ReplicaId(1)),
                core: None,
                pause_ns: 12_345_678,
            }));
        }
    }
    let said = run_with(
        &[],
        events,
        Ok(report(Verdict::Corrected, ProgramEnd::Exited(0), 7)),
    );
    insta::assert_snapshot!("words", said.err);
    let rest = [
        Difference::Death { signal: Some(9) },
        Difference::Death { signal: None },
        Difference::Exit,
        Difference::Hang {
            cpu_ns: 3_200_000_000,
            limit_ns: 1_600_000_000,
        },
        Difference::Memory {
            page: GuestAddr(0x1000),
            pages: 2,
        },
        Difference::Log {
            check: steadfast_contract::event::LogCheck::Checksum,
        },
        Difference::Log {
            check: steadfast_contract::event::LogCheck::Sequence,
        },
        Difference::Gate,
    ];
    let mut events = Vec::new();
    let causes = [
        Cause::MemoryDiffers,
        Cause::LogDamaged,
        Cause::GateBypassed,
        Cause::SuspectCore,
        Cause::Outvoted,
    ];
    for (id, difference) in (1..).zip(rest) {
        events.push(What::Divergence(Divergence {
            id,
            event: None,
            call: None,
            difference,
            votes: vec![],
            judgement: Judgement::Blamed(ReplicaId(1)),
            latency_ns: None,
        }));
        if let Some(&cause) = causes.get(usize::try_from(id).expect("small") - 1) {
            events.push(What::Recovery(Recovery {
                divergence: id,
                action: RecoveryAction::Stopped,
                cause,
                replica: None,
                core: None,
                pause_ns: 0,
            }));
        }
    }
    let end = ProgramEnd::Stopped(StopReason::Unrecoverable);
    let said = run_with(&[], events, Ok(report(Verdict::Stopped, end, 8)));
    assert_eq!(said.exit, Exit::Own(Own::Mismatch));
    insta::assert_snapshot!("more_words", said.err);
}

#[test]
fn a_hundred_thousand_divergences_are_summed_up_like_three() {
    let events = (1..=100_000)
        .flat_map(|id| [divergence(id), recovery(id)])
        .collect();
    let said = run_with(
        &[],
        events,
        Ok(report(Verdict::Corrected, ProgramEnd::Exited(0), 100_000)),
    );
    assert!(said.err.contains("99992 more divergences"), "{}", said.err);
    assert!(said.err.lines().count() < 40);
}

#[test]
fn a_stop_is_122_and_a_refusal_121() {
    let stopped = report(
        Verdict::Stopped,
        ProgramEnd::Stopped(StopReason::Mismatch),
        1,
    );
    let said = run_with(&["--on-mismatch=stop"], vec![divergence(1)], Ok(stopped));
    assert_eq!(said.exit, Exit::Own(Own::Mismatch));
    insta::assert_snapshot!("stopped", said.err);

    let refused = What::Refused(Refused {
        what: "clone(CLONE_THREAD)".to_owned(),
        reason: "a second thread is not supported yet".to_owned(),
        event: Some(EventIndex(90)),
        site: Some(site("libc.so.6", 0xf9c0, "clone3+0x2c")),
        fix: Some("run the program with one thread".to_owned()),
    });
    let end = ProgramEnd::Stopped(StopReason::Refused);
    let said = run_with(&[], vec![refused], Ok(report(Verdict::Refused, end, 0)));
    assert_eq!(said.exit, Exit::Own(Own::Setup));
    insta::assert_snapshot!("refused", said.err);
}

#[test]
fn a_fault_that_did_not_hit_is_never_silent() {
    let mut found = report(Verdict::Agreed, ProgramEnd::Exited(0), 0);
    found.faults = vec![FaultReport {
        fault: "replica=1 event=99999 reg=rax bit=0"
            .parse()
            .expect("a fault"),
        hits: 0,
    }];
    let said = run_with(
        &["--flip", "replica=1 event=99999 reg=rax bit=0"],
        vec![],
        Ok(found),
    );
    insta::assert_snapshot!("not_fired", said.err);
}

#[test]
fn explain_is_a_result_and_always_succeeds() {
    let said = run_with(
        &["--explain"],
        vec![],
        Ok(report(Verdict::Agreed, ProgramEnd::Signaled(9), 0)),
    );
    assert_eq!((said.exit, said.err.as_str()), (Exit::Status(0), ""));
    insta::assert_snapshot!("explain", said.out);
    let json = run_with(
        &["--explain", "--json"],
        vec![],
        Ok(report(Verdict::Agreed, ProgramEnd::Signaled(9), 0)),
    );
    let value: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(value["coverage"]["patched"], 572);
}

#[test]
fn json_is_the_last_line_of_events_without_its_place() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (events, json) = (scratch.path().join("events"), scratch.path().join("json"));
    let found = report(Verdict::Corrected, ProgramEnd::Exited(0), 1);
    let end = What::RunEnd(Box::new(found.clone()));
    let said = run_with(
        &[
            "-q",
            &format!("--events={}", events.display()),
            &format!("--json={}", json.display()),
        ],
        vec![divergence(1), end],
        Ok(found.clone()),
    );
    assert_eq!(said.err, "");
    let lines = std::fs::read_to_string(events).expect("events");
    let mut last: serde_json::Value =
        serde_json::from_str(lines.lines().last().expect("two lines")).expect("JSON");
    let fields = last.as_object_mut().expect("an object");
    assert_eq!(fields.remove("seq"), Some(1.into()));
    assert_eq!(fields.remove("t_ns"), Some(1.into()));
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).expect("json")).expect("JSON");
    assert_eq!(report, last);

    let said = run_with(&["-q", "--json"], vec![], Ok(found));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&said.err).expect("JSON"),
        report
    );
}

#[test]
fn a_file_that_cannot_be_written_stops_the_run_before_it_starts() {
    for flag in ["--events", "--json"] {
        let said = run_with(
            &[&format!("{flag}=/no/such/directory/file")],
            vec![],
            Err(Box::new(Unreachable)),
        );
        assert_eq!(said.exit, Exit::Own(Own::Setup));
        insta::assert_snapshot!(format!("unwritable{flag}"), said.err);
    }
}

#[test]
fn a_full_disk_does_not_change_the_programs_status() {
    let found = report(Verdict::Agreed, ProgramEnd::Exited(7), 0);
    let said = run_with(
        &["--events=/dev/full", "--json=/dev/full"],
        vec![divergence(1)],
        Ok(found),
    );
    assert_eq!(said.exit, Exit::Status(7));
    insta::assert_snapshot!("full_disk", said.err);
}

#[derive(Debug, thiserror::Error)]
#[error("the engine was not to be called")]
struct Unreachable;

impl Advise for Unreachable {
    fn exit(&self) -> Own {
        Own::Bug
    }
}

#[derive(Debug, thiserror::Error)]
#[error("replica 1 needs a user namespace: max_user_namespaces is 0, at least 2 is required")]
struct Denied {
    source: io::Error,
}

impl Advise for Denied {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::with_note(
            "sysctl user.max_user_namespaces=64",
            "to keep it: a file in /etc/sysctl.d",
        ))
    }

    fn alternatives(&self) -> Vec<Remedy> {
        vec![Remedy::with_note(
            "--equal-pids=off",
            "programs that print or hash their pid will then diverge",
        )]
    }
}

#[test]
fn an_error_of_the_engine_has_the_common_shape() {
    let source = io::Error::from_raw_os_error(28);
    let said = run_with(&[], vec![], Err(Box::new(Denied { source })));
    assert_eq!(said.exit, Exit::Own(Own::Setup));
    insta::assert_snapshot!("engine_error", said.err);
}

#[test]
fn a_refusal_of_threads_names_the_flag_without_them_and_no_other_refusal_does() {
    for (what, named) in [
        (
            "threads in a process that shares writable memory with another one",
            true,
        ),
        ("io_uring_setup", false),
    ] {
        let refused = What::Refused(Refused {
            what: what.to_owned(),
            reason: "a reason".to_owned(),
            event: None,
            site: None,
            fix: None,
        });
        let end = ProgramEnd::Stopped(StopReason::Refused);
        let said = run_program(
            "sort",
            &[],
            vec![refused],
            Ok(report(Verdict::Refused, end, 0)),
        );
        assert_eq!(
            said.err.contains("or:    sort --parallel=1   (no threads)"),
            named,
            "{}",
            said.err
        );
    }
}
