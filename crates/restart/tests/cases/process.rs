//! Components in processes of their own: whatever happens to such a process, its clients keep their handles and the host lives.

use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast_restart::{
    Answer, CallError, Cause, Component, Edge, Handle, Host, LoadError, Policy, Process, Value,
    process,
};

use crate::fixture;
use crate::lock::{HOLDER, NEW, TAKE};

/// Not a test: what a process of a component runs, when a host starts this program again.
#[test]
#[ignore = "a host starts it"]
fn serves() {
    let _ = process::serve();
}

fn component(name: &str, policy: Policy) -> Component {
    Component {
        process: Some(fixture::own_process()),
        call_limit: Duration::from_millis(100),
        ..fixture::component(name, policy)
    }
}

fn plain() -> Policy {
    Policy {
        spare: false,
        ..Policy::default()
    }
}

fn hosted(component: Component) -> (Host, Edge) {
    let name = component.name.clone();
    let mut host = Host::new(true).expect("the pad works");
    host.add(component, None).expect("it starts");
    let edge = host.edge("test", &name, &[]).expect("an edge");
    (host, edge)
}

fn pids(edge: &Edge) -> Vec<u32> {
    edge.look().expect("nobody calls").processes
}

fn signal(signal: &str, pids: &[u32]) {
    for pid in pids {
        let status = Command::new("kill")
            .args([signal, &pid.to_string()])
            .status();
        assert!(status.expect("it runs").success());
    }
}

fn renewed(edge: &Edge) -> u64 {
    edge.stats().expect("stats").renewed
}

fn resets(edge: &Edge, cause: Cause) -> u64 {
    let stats = edge.stats().expect("stats");
    stats.resets.get(&cause).copied().unwrap_or(0)
}

fn held_lock(edge: &Edge) -> Handle {
    let lock = edge.invoke(NEW, &[]).expect("made");
    let lock = lock.and_then(|value| value.handle()).expect("a lock");
    let taken = edge.invoke(TAKE, &[lock.into(), 7u32.into()]);
    assert_eq!(taken, Ok(Some(Value::Bool(true))));
    lock
}

fn holder(edge: &Edge, lock: Handle) -> Option<u64> {
    let holder = edge.invoke(HOLDER, &[lock.into()]);
    holder.expect("an answer").and_then(|value| value.number())
}

#[test]
fn a_killed_process_comes_back_with_its_handles_at_every_call_boundary() {
    for policy in fixture::lazy_policies() {
        for kill in 0..3 {
            let (_host, edge) = hosted(component("lock", policy));
            let killed = |at: usize| {
                if at == kill {
                    signal("-KILL", &pids(&edge));
                }
            };
            killed(0);
            let lock = held_lock(&edge);
            killed(1);
            assert_eq!(holder(&edge, lock), Some(7));
            killed(2);
            assert_eq!(holder(&edge, lock), Some(7));
            assert_eq!(resets(&edge, Cause::Process), 1);
            let stats = edge.stats().expect("stats");
            assert_eq!((stats.resets_total(), stats.objects), (1, 1));
            assert_eq!(stats.renewed + stats.swapped, 1, "{policy:?}");
        }
    }
}

#[test]
fn without_a_failure_a_process_stays_and_ends_with_its_host() {
    let (host, edge) = hosted(component("lock", fixture::lazy_policies()[2]));
    let before = pids(&edge);
    assert_eq!(before.len(), 2, "one for each body");
    let lock = held_lock(&edge);
    assert!((0..100).all(|_| holder(&edge, lock) == Some(7)));
    assert_eq!(pids(&edge), before);
    assert_eq!(edge.stats().expect("stats").resets_total(), 0);
    drop((host, edge));
    for pid in before {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

fn bad(name: &str) -> String {
    format!("steadfast:bad/failures@0.1.0#{name}")
}

/// The first failure of a call is reset in place, the next one takes a new process; what a request does is an error of its caller alone.
#[test]
fn a_failure_that_returns_takes_a_new_process() {
    let once = Policy {
        redo_max: 0,
        ..plain()
    };
    for (policy, takes) in [(once, 0), (plain(), 3)] {
        let (_host, edge) = hosted(component("bad", policy));
        let thing = edge.invoke(&bad("[constructor]thing"), &[7u32.into()]);
        let thing = thing.expect("made").and_then(|v| v.handle()).expect("one");
        let before = pids(&edge);
        for (name, cause) in [("trap", Cause::Trap), ("spin", Cause::Hang)] {
            let failed = edge.invoke(&bad(name), &[]);
            match failed {
                Err(CallError::Poison { cause: found, .. }) => assert_eq!(found, cause, "{name}"),
                other => panic!("{name}: {other:?}"),
            }
            let number = edge.invoke(&bad("[method]thing.get"), &[thing.into()]);
            assert_eq!(number.expect("back").and_then(|v| v.number()), Some(7));
        }
        assert_eq!(renewed(&edge), 2 * takes);
        assert_eq!(pids(&edge) == before, takes == 0);
        assert_eq!(resets(&edge, Cause::Process), 0);
    }
}

#[test]
fn a_process_that_stands_still_is_replaced() {
    let (_host, edge) = hosted(component("lock", plain()));
    let lock = held_lock(&edge);
    let pids = pids(&edge);
    assert_eq!(pids.len(), 1);
    signal("-STOP", &pids);
    while !stands(pids[0]) {
        std::thread::yield_now();
    }
    assert_eq!(holder(&edge, lock), Some(7));
    assert_eq!((resets(&edge, Cause::Process), renewed(&edge)), (1, 1));
}

/// Whether every thread of a process is stopped.
fn stands(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

#[test]
fn two_processes_are_compared_by_results_and_by_memory() {
    let (_host, edge) = hosted(component("lock", fixture::lazy_policies()[2]));
    let lock = held_lock(&edge);
    assert_eq!(holder(&edge, lock), Some(7));
    assert_eq!(resets(&edge, Cause::Memory), 0);
    let last = edge.memories().expect("a copy")[0].len() - 1;
    assert_eq!(edge.flip(1, last, 5), Ok(true));
    assert_eq!(holder(&edge, lock), Some(7));
    assert_eq!((resets(&edge, Cause::Memory), renewed(&edge)), (1, 0));
}

/// Changes a byte wherever a process holds these bytes: in its linear memory, and in the image that a reset takes it from.
fn strike_copies(pid: u32, of: &[u8], at: usize) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let memory = std::fs::File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .expect("our child");
    let known = of.iter().position(|byte| *byte != 0).expect("data");
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let range = line.split(' ').next().and_then(|r| r.split_once('-'));
        let (from, to) = range.expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        let (from, to) = (number(from), number(to));
        let mut bytes = vec![0; usize::try_from(to - from).expect("it fits")];
        if memory.read_exact_at(&mut bytes, from).is_err() {
            continue;
        }
        // malloc(3) aligns by 16.
        for place in (0..bytes.len().saturating_sub(of.len() - 1)).step_by(16) {
            if bytes[place + known] == of[known] && bytes[place..].starts_with(of) {
                let byte = [of[at] ^ 0x20];
                let to = from + (place + at) as u64;
                memory.write_all_at(&byte, to).expect("writable");
                found += 1;
            }
        }
    }
    found
}

/// A wild store of a component strikes its own process, and there the image of its memory: whoever is reset from that begins with a wrong
/// byte, each time.
#[test]
fn a_process_whose_image_has_changed_is_replaced_and_two_bodies_become_equal_again() {
    let dual = |spare| Policy {
        dual: true,
        spare,
        compare_every: 4,
        ..plain()
    };
    let things = |name: &str| format!("test:again/things@0.1.0#{name}");
    // What is copied at a reset is what its start has changed.
    let begun = |policy| {
        let never: Answer = Arc::new(|_| Some(Value::Bool(false)));
        hosted(Component {
            init: Some("begin".into()),
            answers: [("test:fault/fault@0.1.0#here".to_owned(), never)].into(),
            ..component("again", policy)
        })
    };
    let image = {
        let (_host, edge) = begun(plain());
        edge.reset().expect("it comes back");
        edge.memories().expect("a copy").remove(0)
    };
    for policy in [plain(), dual(false), dual(true)] {
        let (_host, edge) = begun(policy);
        let thing = edge.invoke(&things("[constructor]thing"), &[7u32.into()]);
        let thing = thing.expect("made").and_then(|v| v.handle()).expect("one");
        let answers = || {
            let told = edge.invoke(&things("[method]thing.look"), &[thing.into()]);
            assert_eq!(told, Ok(Some(Value::String("7 0 0 1".into()))));
        };
        let struck = *pids(&edge).last().expect("a process");
        assert!(strike_copies(struck, &image, DATA) >= 1);
        // With one body the damage meets the next reset, with two a comparison before.
        for _ in 0..6 {
            (0..16).for_each(|_| answers());
            // The spare is made ready meanwhile, from a process that must not be the one that was struck.
            std::thread::sleep(Duration::from_millis(100));
            edge.reset().expect("it comes back");
            let memory = edge.memories().expect("a copy").remove(0);
            assert!(memory == image, "{policy:?}");
        }
        assert!(resets(&edge, Cause::Memory) <= 1, "{policy:?}");
        assert!(!pids(&edge).contains(&struck), "{policy:?}");
    }
}

/// The stack comes first, of 16 KiB. Behind it lies what the start has changed, and within the same 4 KiB nothing at their end.
const DATA: usize = (20 << 10) - 8;

type Printed = Arc<Mutex<Vec<String>>>;

fn main(name: &str) -> String {
    format!("test:client/main@0.1.0#{name}")
}

/// A component in a process that calls one of the host: each call once, and nothing stays behind when it is killed.
#[test]
fn what_a_process_asks_others_takes_effect_once_and_what_it_held_is_given_back() {
    let mut host = fixture::host("lock", plain());
    let printed = Printed::default();
    let to = printed.clone();
    let client = Component {
        uses: vec![host.edge("client", "lock", &[]).expect("an edge")],
        console: Some(Arc::new(move |_, text: &str| {
            to.lock().expect("whole").push(text.into());
        })),
        ..component("client", plain())
    };
    host.add(client, None).expect("it starts");
    let client = host.edge("test", "client", &[]).expect("an edge");
    let lock = host.edge("test", "lock", &[]).expect("an edge");
    let told = || {
        let stats = lock.stats().expect("stats");
        (stats.calls, stats.objects)
    };
    let crashed = client.invoke(&main("crash"), &[]);
    assert!(
        matches!(crashed, Err(CallError::Poison { .. })),
        "{crashed:?}"
    );
    // Made and taken, once in four attempts, and given back.
    assert_eq!(told(), (2, 0));
    let mut all = printed.lock().expect("whole");
    assert_eq!(
        all.iter().filter(|line| *line == "about to crash").count(),
        1
    );
    all.clear();
    drop(all);
    let worked = client.invoke(&main("work"), &[]);
    assert_eq!(worked, Ok(Some(Value::Bool(true))));
    assert_eq!(told(), (5, 0));
    let session = client.invoke(&main("[constructor]session"), &[9u32.into()]);
    let session = session.expect("made").and_then(|v| v.handle());
    let session = session.expect("a session");
    assert_eq!(told().1, 1);
    signal("-KILL", &pids(&client));
    let holder = client.invoke(&main("[method]session.holder"), &[session.into()]);
    assert_eq!(holder.expect("back").and_then(|v| v.number()), Some(9));
    assert_eq!(told().1, 1, "the one of the dead process was given back");
    client.discard(session).expect("live");
    assert_eq!(told().1, 0);
}

/// A component and the one that it calls fail at the same moment: both come back in one call, and nobody is asked twice.
#[test]
fn two_components_that_fail_at_once_come_back_in_one_call() {
    let mut host = Host::new(true).expect("the pad works");
    host.add(component("lock", plain()), None)
        .expect("it starts");
    let client = Component {
        uses: vec![host.edge("client", "lock", &[]).expect("an edge")],
        console: Some(Arc::new(|_, _: &str| {})),
        ..component("client", plain())
    };
    host.add(client, None).expect("it starts");
    let client = host.edge("test", "client", &[]).expect("an edge");
    let lock = host.edge("test", "lock", &[]).expect("an edge");
    let session = client.invoke(&main("[constructor]session"), &[9u32.into()]);
    let session = session.expect("made").and_then(|v| v.handle());
    let session = session.expect("a session");
    let holder = || {
        let holder = client.invoke(&main("[method]session.holder"), &[session.into()]);
        holder.expect("an answer").and_then(|value| value.number())
    };
    assert_eq!(holder(), Some(9));
    assert_eq!((renewed(&client), renewed(&lock)), (0, 0), "nothing failed");
    for round in 1..4 {
        let both = [pids(&client), pids(&lock)].concat();
        assert_eq!(both.len(), 2, "a process each");
        signal("-KILL", &both);
        assert_eq!(holder(), Some(9));
        assert_eq!((renewed(&client), renewed(&lock)), (round, round));
        assert_eq!(lock.stats().expect("stats").objects, 1, "one lock is held");
    }
}

#[test]
fn what_cannot_be_made_ready_rests_and_serves_again_when_it_can() {
    let link = std::env::temp_dir().join(format!("restart-ready-{}", std::process::id()));
    let own = std::env::current_exe().expect("a mounted /proc");
    let there = || std::os::unix::fs::symlink(&own, &link).expect("made");
    there();
    let policy = Policy {
        spare: true,
        rest: Duration::from_millis(50),
        ..plain()
    };
    let mut leaves = component("lock", policy);
    leaves.process.as_mut().expect("one").program = link.clone();
    let (_host, edge) = hosted(leaves);
    let lock = held_lock(&edge);
    let holder = || edge.invoke(HOLDER, &[lock.into()]);
    let held = holder();
    std::fs::remove_file(&link).expect("there");
    signal("-KILL", &pids(&edge));
    assert_eq!(holder(), held, "the spare");
    signal("-KILL", &pids(&edge));
    let rests = holder();
    assert!(matches!(rests, Err(CallError::Resting { .. })), "{rests:?}");
    there();
    let by = |done: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < end, "{:?}", edge.stats());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    by(&|| holder() == held);
    // The spare that could not be made ready is, and takes its turn.
    by(&|| {
        signal("-KILL", &pids(&edge));
        assert_eq!(holder(), held);
        edge.stats().expect("stats").swapped > 1
    });
    std::fs::remove_file(&link).expect("there");
}

#[test]
fn a_program_that_is_no_component_is_refused_and_one_that_is_gone_ends_it() {
    let speaks = ["-c", "echo this is no frame >&0; cat >/dev/null"];
    struct Wrong<'a> {
        program: &'static str,
        args: &'a [&'static str],
        why: &'static str,
    }
    for Wrong { program, args, why } in [
        Wrong {
            program: "/nonexistent/host",
            args: &[],
            why: "No such file",
        },
        Wrong {
            program: "/bin/true",
            args: &[],
            why: "exit status: 0",
        },
        Wrong {
            program: "/bin/sh",
            args: &speaks,
            why: "a length that no message has",
        },
    ] {
        let wrong = Component {
            process: Some(Process {
                program: program.into(),
                args: args.iter().map(Into::into).collect(),
            }),
            ..component("lock", plain())
        };
        let mut host = Host::new(true).expect("the pad works");
        match host.add(wrong, None) {
            Err(LoadError::Start { found, .. }) => assert!(found.contains(why), "{found}"),
            other => panic!("{program}: {other:?}"),
        }
    }
    let link = std::env::temp_dir().join(format!("restart-process-{}", std::process::id()));
    let own = std::env::current_exe().expect("a mounted /proc");
    std::os::unix::fs::symlink(own, &link).expect("made");
    let policy = Policy {
        rest: Duration::from_millis(50),
        rests_max: 1,
        ..plain()
    };
    let mut leaves = component("lock", policy);
    leaves.process.as_mut().expect("one").program = link.clone();
    let (_host, edge) = hosted(leaves);
    let lock = held_lock(&edge);
    std::fs::remove_file(&link).expect("there");
    signal("-KILL", &pids(&edge));
    let rests = edge.invoke(HOLDER, &[lock.into()]);
    assert!(matches!(rests, Err(CallError::Resting { .. })), "{rests:?}");
    std::thread::sleep(policy.rest);
    let gone = edge.invoke(HOLDER, &[lock.into()]);
    assert!(matches!(gone, Err(CallError::Dead { .. })), "{gone:?}");
    let gone = edge.invoke(HOLDER, &[lock.into()]);
    assert!(matches!(gone, Err(CallError::Dead { .. })), "{gone:?}");
}

/// rsp and a bit of it that no address of a process has: the next use of the stack faults.
const WILD: (u32, u32) = (4, 45);

/// A register of the callee's process goes wild while the caller's frames are on the stack, wherever each of the two runs.
#[test]
fn a_wild_fault_below_a_nested_call_is_repeated_there_wherever_the_two_run() {
    let desks = |name: &str| format!("test:desk/desks@0.1.0#{name}");
    for (caller, policy) in [
        (false, plain()),
        (true, plain()),
        (true, fixture::lazy_policies()[1]),
    ] {
        let mut host = Host::new(true).expect("the pad works");
        let long = |component: Component| Component {
            call_limit: Duration::from_secs(5),
            ..component
        };
        host.add(long(component("mill", policy)), None)
            .expect("it starts");
        let of = long(match caller {
            true => component("desk", policy),
            false => fixture::component("desk", policy),
        });
        let uses = vec![host.edge("desk", "mill", &[]).expect("an edge")];
        host.add(Component { uses, ..of }, None).expect("it starts");
        let [desk, mill] = ["desk", "mill"].map(|to| host.edge("test", to, &[]).expect("an edge"));
        let made = desk.invoke(&desks("[constructor]desk"), &[7u32.into()]);
        let made = made.expect("made").expect("a desk");
        let ask = |rounds: u32| {
            let args = [made.clone(), rounds.into()];
            desk.invoke(&desks("[method]desk.ask"), &args)
        };
        let right = Ok(Some(Value::U32(14)));
        // A stack pointer that goes wild where the component is left may end its process instead.
        let failures = || {
            let wild = resets(&mill, Cause::WildFault) + resets(&mill, Cause::Process);
            assert_eq!(mill.stats().expect("stats").resets_total(), wild);
            wild
        };
        assert_eq!(
            (ask(10), failures()),
            (right.clone(), 0),
            "silent without a fault"
        );
        // Not each one that is armed strikes the call under way.
        let mut asked = 0;
        while failures() < 3 {
            asked += 1;
            assert!(asked < 40, "{policy:?}: {} struck", failures());
            assert_eq!(mill.strike(0, WILD.0, WILD.1), Ok(true));
            assert_eq!(ask(5_000_000), right, "{policy:?}");
            assert_eq!(desk.stats().expect("stats").resets_total(), 0);
            assert_eq!(mill.stats().expect("stats").objects, 1, "nothing is left");
        }
        // The caller's process ends between two calls: what it held is given back.
        if caller {
            let calls = mill.calls();
            signal("-KILL", &pids(&desk));
            assert_eq!(ask(10), right);
            assert_eq!(mill.calls() - calls, 2, "a mill made anew, and one call");
            assert_eq!(mill.stats().expect("stats").objects, 1);
        }
        desk.discard(made.handle().expect("one")).expect("live");
        assert_eq!(mill.stats().expect("stats").objects, 0);
    }
}
