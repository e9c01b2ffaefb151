//! One sample of every event, held against the published schema.

use std::collections::BTreeMap;

use super::*;
use crate::exit::Verdict;
use crate::plan::{
    DeniedCall, FaultReport, ModuleCoverage, ProgramEnd, ReplicaTime, SlowSite, StopReason, Timings,
};

const SCHEMA: &str = include_str!("../../../../docs/events.schema.json");

fn fault() -> Fault {
    "replica=1 at=bzip2+0x1a2f0 n=1000000 reg=rax bit=17"
        .parse()
        .expect("a fault")
}

fn site() -> Site {
    Site {
        address: GuestAddr(0x5555_5556_f2f0),
        module: Some("bzip2".to_owned()),
        offset: Some(GuestAddr(0x1a2f0)),
        symbol: Some("BZ2_compressBlock+0x40".to_owned()),
        build_id: Some("4f1d6ac09e3f5d21".to_owned()),
    }
}

fn coverage() -> Coverage {
    Coverage {
        patched: 527,
        slow_path: 1,
        denied: 1,
        unpatched_bytes: 12,
        modules: vec![ModuleCoverage {
            module: "libc.so.6".to_owned(),
            build_id: None,
            patched: BTreeMap::from([("syscall".to_owned(), 525), ("rdtsc".to_owned(), 2)]),
            slow_path: 1,
            executable_bytes: 1_396_736,
            unpatched_bytes: 12,
            starts: Vec::new(),
        }],
        slow_sites: vec![SlowSite {
            site: Site::at(GuestAddr(0x7fff_f7dd_1000)),
            instruction: "syscall".to_owned(),
            reason: "a branch enters the window".to_owned(),
        }],
        open_sites: Vec::new(),
        denied_calls: vec![DeniedCall {
            call: "io_uring_setup".to_owned(),
            errno: "ENOSYS".to_owned(),
            count: 1,
        }],
    }
}

fn report(end: ProgramEnd, verdict: Verdict) -> RunReport {
    RunReport {
        verdict,
        end,
        events: 4711,
        divergences: 1,
        recoveries: 1,
        promotions: 0,
        signals: 0,
        faults: vec![FaultReport {
            fault: fault(),
            hits: 1,
        }],
        suspects: vec![CoreId(1)],
        coverage: coverage(),
        timings: Timings {
            wall_ns: 1,
            setup_ns: 1,
            cpu_ns: vec![ReplicaTime {
                replica: ReplicaId(0),
                user_ns: 1,
                system_ns: 1,
            }],
            repair_pause_ns_max: Some(812_000),
        },
    }
}

fn vote(replica: u8, camp: u8, role: Role) -> Vote {
    Vote {
        replica: ReplicaId(replica),
        role,
        core: Some(CoreId(replica.into())),
        camp,
        site: Some(site()),
        value: Some("0x2a".to_owned()),
    }
}

/// At least one of every type, action, cause, difference and judgement.
fn samples() -> Vec<Event> {
    let mut what = vec![
        What::RunStart(RunStart {
            steadfast: "0.1.0".to_owned(),
            program: "/usr/bin/bzip2".to_owned(),
            args: vec!["bzip2".to_owned(), "-k".to_owned()],
            unix_ms: 1_700_000_000_000,
            kernel: "6.1.0".to_owned(),
            replicas: vec![ReplicaStart {
                replica: ReplicaId(0),
                role: Role::Leader,
                pid: 42,
                core: None,
            }],
            faults: vec![fault()],
        }),
        What::Coverage(coverage()),
        What::Exec(Exec {
            event: EventIndex(157),
            program: "/usr/bin/python3.11".to_owned(),
            args: vec!["python3".to_owned()],
            replicas: Vec::new(),
        }),
        What::Unprotected(Unprotected {
            program: "/usr/bin/sudo".to_owned(),
            pid: 43,
        }),
        What::Fault(FaultHit {
            fault: Box::new(fault()),
            replica: ReplicaId(1),
            core: Some(CoreId(1)),
            site: Some(site()),
            n: 1_000_000,
            before: Some("0x0".to_owned()),
            after: Some("0x20000".to_owned()),
        }),
        What::Signal(Signal {
            signal: 15,
            event: Some(EventIndex(9)),
            sender_pid: None,
            latency_ns: 900,
        }),
        What::Refused(Refused {
            what: "clone(CLONE_THREAD)".to_owned(),
            reason: "a second thread is not supported".to_owned(),
            event: Some(EventIndex(90)),
            site: Some(site()),
            fix: None,
        }),
        What::CoreSuspect(CoreSuspect {
            core: CoreId(1),
            strikes: 2,
            divergences: 2,
            action: SuspectAction::Reported,
        }),
        What::RunEnd(Box::new(report(ProgramEnd::Exited(0), Verdict::Corrected))),
        What::RunEnd(Box::new(report(ProgramEnd::Signaled(11), Verdict::Agreed))),
        What::RunEnd(Box::new(report(
            ProgramEnd::Stopped(StopReason::Unrecoverable),
            Verdict::Stopped,
        ))),
    ];
    for difference in [
        Difference::Call,
        Difference::Argument { index: 1 },
        Difference::Buffer {
            argument: 1,
            offset: Some(8),
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
        Difference::Death { signal: Some(9) },
        Difference::Exit,
        Difference::Hang {
            cpu_ns: 3,
            limit_ns: 2,
        },
        Difference::Early,
        Difference::Memory {
            page: GuestAddr(0x1000),
            pages: 1,
        },
        Difference::Log {
            check: LogCheck::Checksum,
        },
        Difference::Gate,
    ] {
        for judgement in [
            Judgement::Blamed(ReplicaId(1)),
            Judgement::Undecided,
            Judgement::Unresolvable,
        ] {
            what.push(What::Divergence(Divergence {
                id: 1,
                event: Some(EventIndex(12)),
                call: Some("write".to_owned()),
                difference: difference.clone(),
                votes: vec![vote(0, 0, Role::Leader), vote(1, 1, Role::Follower)],
                judgement,
                latency_ns: Some(1200),
            }));
        }
    }
    let causes = [
        Cause::Outvoted,
        Cause::Crashed(11),
        Cause::Killed(9),
        Cause::OutOfMemory,
        Cause::Hung,
        Cause::Exited(1),
        Cause::MemoryDiffers,
        Cause::LogDamaged,
        Cause::GateBypassed,
        Cause::SuspectCore,
    ];
    for action in [
        RecoveryAction::Reforked { from: ReplicaId(0) },
        RecoveryAction::RolledBack {
            to: EventIndex(3),
            reran: 9,
        },
        RecoveryAction::Promoted { to: ReplicaId(1) },
        RecoveryAction::Moved { to: CoreId(0) },
        RecoveryAction::LogRepaired {
            event: EventIndex(12),
        },
        RecoveryAction::Stopped,
    ] {
        for cause in causes {
            what.push(What::Recovery(Recovery {
                divergence: 1,
                action,
                cause,
                replica: Some(ReplicaId(1)),
                core: Some(CoreId(1)),
                pause_ns: 812_000,
            }));
        }
    }
    for action in [HardenAction::Retry, HardenAction::Stopped] {
        what.push(What::HardenMismatch(HardenMismatch {
            handler: "handle".to_owned(),
            r#where: "serve.c:12".to_owned(),
            event: 4711,
            run: 2,
            what: "the runs leave different values".to_owned(),
            name: None,
            at: Some("0x55d92ddd8f00".to_owned()),
            object: matches!(action, HardenAction::Stopped).then(|| "table".to_owned()),
            first: "0x1".to_owned(),
            second: "0x2".to_owned(),
            tsc: Some("0x7f3a5b".to_owned()),
            later: matches!(action, HardenAction::Stopped).then_some(3),
            action,
        }));
    }
    for action in [StateAction::Repaired, StateAction::Stopped] {
        what.push(What::HardenState(HardenState {
            handler: String::new(),
            what: "state has changed at rest: the copy was wrong,".to_owned(),
            object: "memory".to_owned(),
            at: "0x140000000100".to_owned(),
            offset: "0x140000000100".to_owned(),
            first: "0x6b".to_owned(),
            second: "0x63".to_owned(),
            tsc: "0x7f3a5b".to_owned(),
            action,
        }));
    }
    what.push(What::HardenRecovered(HardenRecovered {
        handler: "handle".to_owned(),
        event: 4711,
        retries: 1,
    }));
    what.into_iter()
        .map(|what| Event { t_ns: 1, what })
        .collect()
}

fn lines(events: Vec<Event>) -> String {
    let mut sink = JsonLines::new(Vec::new());
    for event in events {
        sink.emit(event);
    }
    String::from_utf8(sink.finish().expect("memory")).expect("JSON is UTF-8")
}

#[test]
fn the_published_schema_is_the_one_of_the_types() {
    let types =
        serde_json::to_string_pretty(&schemars::schema_for!(Line)).expect("a schema") + "\n";
    if std::env::var_os("STEADFAST_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.schema.json");
        std::fs::write(path, &types).expect("docs/ can be written");
        return;
    }
    assert_eq!(
        types, SCHEMA,
        "run this test with STEADFAST_BLESS=1 and look at the difference"
    );
}

#[test]
fn every_event_validates() {
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let text = lines(samples());
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if let Err(why) = validator.validate(&value) {
            panic!("{line}\n{why}");
        }
    }
}

#[test]
fn the_schema_refuses_what_is_no_event() {
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for line in [
        r#"{}"#,
        r#"{"v":1,"seq":0,"t_ns":1}"#,
        r#"{"v":1,"seq":0,"t_ns":1,"type":"party"}"#,
        r#"{"v":1,"seq":0,"t_ns":-1,"type":"signal","signal":15,"latency_ns":1}"#,
        r#"{"v":1,"seq":0,"t_ns":1,"type":"signal","signal":"TERM","latency_ns":1}"#,
        r#"{"v":1,"seq":0,"t_ns":1,"type":"core_suspect","core":1,"strikes":2,"divergences":2,"action":"burned"}"#,
    ] {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(!validator.is_valid(&value), "{line}");
    }
}

#[test]
fn every_event_reads_back() {
    let events = samples();
    for (seq, (line, event)) in lines(events.clone()).lines().zip(events).enumerate() {
        let read: Line = serde_json::from_str(line).expect(line);
        assert_eq!(
            read,
            Line {
                v: SCHEMA_VERSION,
                seq: seq as u64,
                event
            }
        );
    }
}

#[test]
fn a_reader_ignores_fields_that_it_does_not_know() {
    let line =
        r#"{"v":1,"seq":7,"t_ns":1,"type":"signal","signal":15,"latency_ns":1,"mood":"calm"}"#;
    let read: Line = serde_json::from_str(line).expect("a line");
    assert_eq!(read.seq, 7);
}

#[test]
fn a_line_is_one_line_and_has_the_documented_shape() {
    let text = lines(vec![Event {
        t_ns: 812_345_678,
        what: What::Recovery(Recovery {
            divergence: 1,
            action: RecoveryAction::Reforked { from: ReplicaId(0) },
            cause: Cause::Outvoted,
            replica: Some(ReplicaId(1)),
            core: None,
            pause_ns: 640_000,
        }),
    }]);
    assert_eq!(
        text,
        "{\"v\":1,\"seq\":0,\"t_ns\":812345678,\"type\":\"recovery\",\"divergence\":1,\
         \"action\":{\"reforked\":{\"from\":0}},\"cause\":\"outvoted\",\"replica\":1,\"pause_ns\":640000}\n"
    );
}

#[test]
fn a_report_alone_is_the_last_line_without_its_place() {
    let found = report(ProgramEnd::Exited(0), Verdict::Corrected);
    let event = Event {
        t_ns: 5,
        what: What::RunEnd(Box::new(found.clone())),
    };
    let text = lines(vec![event]);
    assert_eq!(
        report_line(&found),
        text.replacen("\"seq\":0,\"t_ns\":5,", "", 1)
    );
}

/// Takes `room` bytes, then fails as a full disk does.
struct FullDisk {
    room: usize,
    taken: usize,
}

impl io::Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.taken + bytes.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.taken += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_reported_once_and_stops_the_file_at_a_line() {
    let mut sink = JsonLines::new(FullDisk {
        room: 200,
        taken: 0,
    });
    for _ in 0..100 {
        sink.emit(Event {
            t_ns: 1,
            what: What::Signal(Signal {
                signal: 15,
                event: None,
                sender_pid: None,
                latency_ns: 1,
            }),
        });
    }
    assert_eq!(
        sink.finish().err().map(|error| error.kind()),
        Some(io::ErrorKind::StorageFull)
    );
}
