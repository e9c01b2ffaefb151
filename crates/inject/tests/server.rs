//! A server as the target: its client's replies are what is judged.
//!
//! The server is the control target's, whose answers are known; the network is the sandbox's own.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use common::clean;
use steadfast_contract::outcome::{Leaf, Outcome};
use steadfast_inject::campaign::{Order, Running};
use steadfast_inject::doctor;
use steadfast_inject::record::{Dir, Run};
use steadfast_inject::server::{Client, Driver, Exchange, Ready, Trace};

const PORT: u16 = 7007;

/// A campaign against the control server; `trace` is what its client asks and expects.
fn order(name: &str, trace: &[(&str, &str)]) -> Order {
    let dir: PathBuf =
        std::env::temp_dir().join(format!("steadfast-server-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let user = steadfast_sys::procfs::is_privileged().then_some(61_112);
    let mut order = doctor::control(&dir, false, user).expect("a control target");
    order.spec.argv = vec!["control".into(), "port".into(), PORT.to_string()];
    let file = dir.join("trace");
    let steps = trace
        .iter()
        .map(|(request, reply)| (request.as_bytes().to_vec(), reply.as_bytes().to_vec()))
        .collect();
    fs::write(&file, Trace(vec![steps]).to_bytes()).expect("written");
    order.spec.driver = Some(Driver {
        client: Client::Trace {
            file,
            envelope: false,
        },
        ready: Ready::Port(PORT),
        stop: libc::SIGKILL,
        error_reply: Some("^no$".parse().expect("a pattern")),
    });
    order
}

fn runs(order: &Order) -> (BTreeMap<u64, Run>, Running) {
    let mut running = Running::prepare(order, "test", &mut |_| ()).expect("prepared");
    running
        .run(&AtomicBool::new(false), &|| false, &|_| ())
        .expect("run");
    (Dir::new(&order.dir).runs().expect("runs"), running)
}

/// What the control target answers to one and to two rounds. Tests run side by side, each with a folder of
/// its own.
fn sums(of: &str) -> [String; 2] {
    let ask = order(&format!("{of}-sums"), &[("\u{1}\n", "?"), ("\u{2}\n", "?")]);
    // The right replies are the server's own: the first campaign is refused and says so.
    let error = Running::prepare(&ask, "test", &mut |_| ()).expect_err("a wrong trace");
    assert!(
        error.to_string().contains("a wrong reply to request 1"),
        "{error}"
    );
    clean(&ask);
    // The control target's work, once more.
    let sum = |rounds: u64| {
        let factors = [3_u64, 5, 7, 11, 13, 17, 19, 23];
        let mut table: Vec<u64> = (0..64_u64)
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let mut sum = 1_u64;
        for round in 0..rounds {
            for i in 0..64_usize {
                let x = table[i].wrapping_add(sum);
                let at = i as u64;
                let y = x.wrapping_add(x);
                table[i] =
                    (y >> 7) ^ x.wrapping_mul(factors[i & 7]) ^ if x & 1 == 1 { at } else { !at };
                sum = sum
                    .rotate_left(3)
                    .wrapping_add(table[(i * 5 + usize::try_from(round).expect("small")) & 63]);
            }
            sum ^= table[usize::try_from(round).expect("small") & 63];
        }
        format!("{sum:016x}\n")
    };
    [sum(1), sum(2)]
}

#[test]
fn replies_are_judged_and_runs_can_be_repeated() {
    let [one, two] = sums("judged");
    let mut order = order(
        "judged",
        &[
            ("\u{1}\n", &one),
            ("?\n", "no\n"),
            ("\u{2}\n", &two),
            ("\u{1}\n", &one),
        ],
    );
    order.runs = 8;
    let (done, mut running) = runs(&order);
    let control_runs = running.campaign.control_runs;
    assert_eq!(
        (control_runs.masked, control_runs.false_alarms),
        (control_runs.runs, 0)
    );
    assert_eq!(done.len(), 56);
    let of = |outcome: Outcome| {
        done.values()
            .filter(|r| r.outcome.outcome() == outcome)
            .count()
    };
    assert!(of(Outcome::Sdc) > 5, "{}", of(Outcome::Sdc));
    assert_eq!((of(Outcome::Infra), of(Outcome::NotFired)), (0, 0));
    // A run again is the run again, by the engine that leaves the code alone too.
    for (id, run) in done.iter().filter(|(_, r)| r.outcome == Leaf::Sdc).take(3) {
        let (_, again, _) = running.replay(*id).expect("replayed");
        assert_eq!((again.outcome, &again.outputs), (run.outcome, &run.outputs));
    }
    drop(running);
    clean(&order);
}

#[test]
fn written_faults_end_in_the_leaf_of_what_the_client_saw() {
    let [one, two] = sums("written");
    let trace = [("\u{1}\n", one.as_str()), ("\u{2}\n", two.as_str())];
    struct Row {
        name: &'static str,
        line: &'static str,
        leaf: Leaf,
    }
    for Row { name, line, leaf } in [
        // The second request's rounds: a wrong sum, and nobody noticed.
        Row {
            name: "wrong",
            line: "at=control!mix n=100 reg=rdi bit=3",
            leaf: Leaf::Sdc,
        },
        // It dies between two replies.
        Row {
            name: "dead",
            line: "at=control!mix n=100 kind=crash",
            leaf: Leaf::CrashSignal,
        },
        Row {
            name: "stuck",
            line: "at=control!mix n=100 kind=hang",
            leaf: Leaf::HangLivelock,
        },
    ] {
        let mut order = order(name, &trace);
        order.runs = 1;
        order.lines = vec![line.into()];
        let (done, running) = runs(&order);
        // How busy a hung process is depends on the machine: either leaf of a hang will do.
        let seen = done[&0].outcome;
        let hung = leaf == Leaf::HangLivelock && seen == Leaf::HangDeadlock;
        assert!(seen == leaf || hung, "{name}: {:?}", done[&0]);
        drop(running);
        clean(&order);
    }
}

#[test]
fn a_thread_of_a_server_can_be_the_victim() {
    let [one, two] = sums("victim");
    let mut order = order("victim", &[("\u{1}\n", &one), ("\u{2}\n", &two)]);
    order.runs = 1;
    order.lines = ["thread=main", "process=0", "thread=main.1", "process=1"]
        .map(|who| format!("{who} at=control!mix n=100 reg=rdi bit=3"))
        .to_vec();
    let (done, running) = runs(&order);
    let leaves: Vec<Leaf> = done.values().map(|run| run.outcome).collect();
    assert_eq!(
        leaves,
        [Leaf::Sdc, Leaf::Sdc, Leaf::NotFired, Leaf::NotFired],
        "{done:?}"
    );
    drop(running);
    clean(&order);
}

/// Two connections, each with its thread: what goes wrong on the way of one is found there, and the other is answered on.
#[test]
fn connections_are_played_side_by_side_and_judged_apart() {
    let asks = |digits: &[u8]| -> Vec<Exchange> {
        let answer = |digit: &u8| {
            let square = format!("{}\n", u64::from(*digit).pow(2));
            (format!("{digit}\n").into_bytes(), square.into_bytes())
        };
        digits.iter().map(answer).collect()
    };
    for (wrong, asked) in [(false, asks(&[2, 3, 9])), (true, asks(&[12, 3, 9]))] {
        let mut order = common::order("server", "pair", 61_112);
        common::guest(
            &mut order,
            "pair",
            &["-O1", "-fno-pie", "-no-pie", "-pthread"],
        );
        order.spec.processes = 4096;
        let file = order.scratch.join("trace");
        fs::write(&file, Trace(vec![asks(&[4, 5, 6]), asked]).to_bytes()).expect("written");
        order.spec.driver = Some(Driver {
            client: Client::Trace {
                file,
                envelope: false,
            },
            ready: Ready::Port(7008),
            stop: libc::SIGKILL,
            error_reply: None,
        });
        order.lines = [
            "thread=main.2 at=pair!square n=2 reg=rdi bit=3",
            "thread=main.2 at=pair!square n=2 kind=crash",
            "thread=main.3 at=pair!square n=2 reg=rdi bit=3",
        ]
        .map(str::to_owned)
        .to_vec();
        if wrong {
            let error = Running::prepare(&order, "test", &mut |_| ()).expect_err("refused");
            assert!(error.to_string().contains("a wrong reply"), "{error}");
        } else {
            let (done, running) = runs(&order);
            let leaves: Vec<Leaf> = done.values().map(|run| run.outcome).collect();
            assert_eq!(leaves, [Leaf::Sdc, Leaf::CrashSignal, Leaf::NotFired]);
            assert_eq!(done[&0].differ, ["stdout.1"]);
            let kept = order.dir.join(done[&0].evidence.as_ref().expect("kept"));
            let replies = fs::read_to_string(kept.join("stdout.1")).expect("replies");
            assert_eq!(replies, "4\n121\n");
            drop(running);
        }
        clean(&order);
    }
}

#[test]
fn a_client_that_fails_without_a_fault_is_refused() {
    for (program, found) in [
        ("/usr/bin/false", "a client that failed (status Some(1)"),
        ("/usr/bin/true", "a client that printed no answers"),
    ] {
        let mut order = order("client", &[("?\n", "no\n")]);
        if let Some(driver) = &mut order.spec.driver {
            driver.client = Client::Command(program.into(), vec![program.into()]);
        }
        let error = Running::prepare(&order, "test", &mut |_| ()).expect_err("refused");
        assert!(error.to_string().contains(found), "{error}");
        assert!(!order.dir.join("runs.jsonl").exists());
        clean(&order);
    }
}

#[test]
fn a_server_that_is_never_ready_is_refused_by_name() {
    let mut order = order("never", &[("?\n", "no\n")]);
    order.patience = std::time::Duration::from_millis(300);
    if let Some(driver) = &mut order.spec.driver {
        driver.ready = Ready::Port(PORT + 1);
    }
    let error = Running::prepare(&order, "test", &mut |_| ()).expect_err("refused");
    assert!(error.to_string().contains("never ready"), "{error}");
    clean(&order);
}
