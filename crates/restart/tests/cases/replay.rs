//! Faults while objects come back, in the component at each step and in what the host keeps; and requests that always fail, of two callers
//! at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast_restart::{
    Answer, CallError, Cause, Component, Edge, Handle, Host, LoadError, Policy, UpgradeError, Value,
};

use crate::fixture;

/// Two pieces of a replay.
const BYTES: usize = 20_000;
/// Maker, mode, two pieces of bytes, sum.
const STEPS: u64 = 5;

/// Which questions of the component are answered with a fault.
#[derive(Clone)]
struct Faults {
    asked: Arc<AtomicU64>,
    from: Arc<AtomicU64>,
    to: Arc<AtomicU64>,
}

impl Faults {
    fn none() -> Self {
        let word = || Arc::new(AtomicU64::new(0));
        Self {
            asked: word(),
            from: word(),
            to: word(),
        }
    }

    /// Those of these numbers, from now on.
    fn at(&self, range: std::ops::Range<u64>) {
        self.from.store(range.start, Ordering::SeqCst);
        self.to.store(range.end, Ordering::SeqCst);
        self.asked.store(0, Ordering::SeqCst);
    }

    fn answer(&self) -> Answer {
        let own = self.clone();
        Arc::new(move |_| {
            let n = own.asked.fetch_add(1, Ordering::SeqCst);
            let range = own.from.load(Ordering::SeqCst)..own.to.load(Ordering::SeqCst);
            Some(Value::Bool(range.contains(&n)))
        })
    }
}

struct App {
    host: Host,
    edge: Edge,
    faults: Faults,
}

/// The component, whose questions are answered by these faults.
fn again(policy: Policy, own: bool, faults: &Faults) -> Component {
    Component {
        answers: BTreeMap::from([("test:fault/fault@0.1.0#here".into(), faults.answer())]),
        process: own.then(fixture::own_process),
        call_limit: Duration::from_millis(200),
        ..fixture::component("again", policy)
    }
}

fn path(name: &str) -> String {
    format!("test:again/things@0.1.0#{name}")
}

fn bytes() -> Vec<u8> {
    (0..=250).cycle().take(BYTES).collect()
}

impl App {
    fn new(policy: Policy, own: bool) -> Self {
        Self::begun(policy, own, None).expect("it starts")
    }

    fn begun(policy: Policy, own: bool, init: Option<&str>) -> Result<Self, LoadError> {
        Self::changed(policy, own, init, |_| {})
    }

    fn changed(
        policy: Policy,
        own: bool,
        init: Option<&str>,
        change: impl FnOnce(&mut Component),
    ) -> Result<Self, LoadError> {
        let faults = Faults::none();
        let mut component = Component {
            init: init.map(Into::into),
            ..again(policy, own, &faults)
        };
        change(&mut component);
        let mut host = Host::new(true).expect("the pad works");
        host.add(component, None)?;
        let edge = host.edge("test", "again", &[]).expect("an edge");
        Ok(Self { host, edge, faults })
    }

    fn call(&self, name: &str, args: &[Value]) -> Result<Option<Value>, CallError> {
        self.edge.invoke(&path(name), args)
    }

    fn made(&self, n: u32) -> Handle {
        let made = self.call("[constructor]thing", &[n.into()]);
        let made = made.expect("made").and_then(|value| value.handle());
        made.expect("a thing")
    }

    /// With a mode, a sum and bytes.
    fn full(&self, n: u32) -> Handle {
        let thing = self.made(n);
        let call = |name: &str, args: &[Value]| {
            let args = [&[thing.into()], args].concat();
            self.call(name, &args).expect("an answer");
        };
        call("[method]thing.open", &[3u32.into()]);
        call("[method]thing.write", &[0u32.into(), bytes()[..].into()]);
        call("[method]thing.add", &[4u32.into()]);
        call("[method]thing.add", &[5u32.into()]);
        thing
    }

    fn look(&self, thing: Handle) -> Result<String, CallError> {
        match self.call("[method]thing.look", &[thing.into()])? {
            Some(Value::String(text)) => Ok(text),
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, thing: Handle) -> Result<Option<Value>, CallError> {
        let args = [thing.into(), 0u32.into(), 100_000u32.into()];
        self.call("[method]thing.read", &args)
    }

    fn resets(&self, cause: Cause) -> u64 {
        let stats = self.edge.stats().expect("stats");
        stats.resets.get(&cause).copied().unwrap_or(0)
    }
}

fn whole() -> Option<Value> {
    Some(Value::Result(Ok(Some(Box::new(bytes()[..].into())))))
}

fn plain() -> Policy {
    Policy {
        spare: false,
        ..Policy::default()
    }
}

fn ways() -> impl Iterator<Item = (Policy, bool)> {
    let dual = Policy {
        dual: true,
        compare_every: 1,
        ..plain()
    };
    let eager = Policy {
        eager: true,
        ..plain()
    };
    let all = [plain(), Policy::default(), dual, eager];
    all.into_iter()
        .flat_map(|policy| [(policy, false), (policy, true)])
}

#[test]
fn a_fault_at_any_step_of_a_replay_costs_a_reset_more_and_no_caller_notices() {
    for (policy, own) in ways() {
        let app = App::new(policy, own);
        let (thing, other) = (app.full(5), app.made(7));
        assert_eq!(app.edge.stats().expect("stats").resets_total(), 0);
        for step in 0..STEPS {
            app.faults.at(step..step + 1);
            app.edge.reset().expect("it comes back");
            let told = || format!("step {step} of {policy:?}, own process: {own}");
            assert_eq!(app.look(thing).as_deref(), Ok("5 3 9 0"), "{}", told());
            assert_eq!(app.resets(Cause::Trap), step + 1, "{}", told());
            assert_eq!(app.read(thing), Ok(whole()), "{}", told());
            assert_eq!(app.look(other).as_deref(), Ok("7 0 0 0"), "{}", told());
        }
        assert_eq!(app.resets(Cause::Asked), STEPS);
    }
}

/// A crash of the new version costs a try. Where each try meets one, the old version goes on, and knows nothing of it.
#[test]
fn an_upgrade_that_crashes_at_any_step_is_made_or_leaves_the_old_version() {
    let dual = Policy {
        dual: true,
        compare_every: 1,
        ..plain()
    };
    for (policy, own) in [(plain(), false), (plain(), true), (dual, false)] {
        let app = App::new(policy, own);
        let (thing, other) = (app.full(5), app.made(7));
        let upgrade = |faults: std::ops::Range<u64>| {
            app.faults.at(faults);
            app.host.upgrade(again(policy, own, &app.faults))
        };
        assert_eq!(upgrade(0..0).expect("it fits").objects, 2);
        let steps = app.faults.asked.load(Ordering::SeqCst);
        assert!(steps > STEPS, "both objects come into the new version");
        for step in 0..steps {
            let told = format!("step {step} of {policy:?}, own process: {own}");
            let right = || {
                app.faults.at(0..0);
                assert_eq!(app.look(thing).as_deref(), Ok("5 3 9 0"), "{told}");
                assert_eq!(app.read(thing), Ok(whole()), "{told}");
                assert_eq!(app.look(other).as_deref(), Ok("7 0 0 0"), "{told}");
            };
            assert_eq!(upgrade(step..step + 1).expect("a try more").objects, 2);
            right();
            let refused = upgrade(step..u64::MAX).expect_err("each try meets a crash");
            assert!(matches!(refused, UpgradeError::Replay { .. }), "{refused}");
            right();
        }
        assert_eq!(app.edge.stats().expect("stats").resets_total(), 0);
    }
}

/// The second fault in a row takes a new process, where there is one.
#[test]
fn a_replay_that_always_fails_is_an_error_of_its_caller_and_the_object_is_there_later() {
    for own in [false, true] {
        let app = App::new(plain(), own);
        let (thing, other) = (app.full(5), app.made(7));
        for step in 0..STEPS {
            app.edge.reset().expect("it comes back");
            assert_eq!(app.look(other).as_deref(), Ok("7 0 0 0"));
            // Each try gets one step further than the last one, and then the same again.
            app.faults.at(step..u64::MAX);
            let failed = app.look(thing);
            let poison = matches!(
                failed,
                Err(CallError::Poison {
                    attempts: 4,
                    cause: Cause::Trap,
                    ..
                })
            );
            assert!(poison, "step {step}: {failed:?}");
            app.faults.at(0..0);
            assert_eq!(app.look(other).as_deref(), Ok("7 0 0 0"));
            assert_eq!(app.look(thing).as_deref(), Ok("5 3 9 0"));
            assert_eq!(app.read(thing), Ok(whole()));
        }
        assert_eq!(app.edge.stats().expect("stats").renewed > 0, own);
    }
}

/// Each object fails when it comes back: the component rests once, and is not given up on the way.
#[test]
fn objects_that_all_fail_at_once_make_the_component_rest_and_no_more() {
    let policy = Policy {
        eager: true,
        resets_max: 3,
        rest: Duration::from_millis(500),
        rests_max: 2,
        ..plain()
    };
    let app = App::new(policy, false);
    let things: Vec<_> = (0..40).map(|n| app.made(n)).collect();
    app.faults.at(0..u64::MAX);
    app.edge.reset().expect("the reset itself succeeds");
    let resting = app.look(things[0]);
    assert!(
        matches!(resting, Err(CallError::Resting { .. })),
        "{resting:?}"
    );
    let stats = app.edge.stats().expect("stats");
    assert_eq!((stats.rests, stats.resets_total()), (1, 4));
    app.faults.at(0..0);
    std::thread::sleep(policy.rest);
    for (n, thing) in things.iter().enumerate() {
        assert_eq!(app.look(*thing), Ok(format!("{n} 0 0 0")));
    }
}

/// An object whose end fails is gone all the same, and others come back.
#[test]
fn a_fault_in_a_destructor_ends_its_object_and_no_other() {
    for (policy, own) in ways() {
        let app = App::new(policy, own);
        let (thing, other) = (app.made(5), app.full(7));
        app.faults.at(0..1);
        app.edge.discard(thing).expect("it is gone");
        assert_eq!(app.resets(Cause::Trap), 1, "{policy:?}");
        let stale = app.look(thing);
        assert!(matches!(stale, Err(CallError::Stale { .. })), "{stale:?}");
        assert_eq!(app.look(other).as_deref(), Ok("7 3 9 0"));
        assert_eq!(app.read(other), Ok(whole()));
        assert_eq!(app.edge.stats().expect("stats").objects, 1);
    }
}

/// What it has asked is answered as before at each try, so it fails each time: others go on to see what its end would have changed.
#[test]
fn an_end_that_others_see_is_an_error_where_it_fails_at_each_try() {
    for (policy, own) in ways() {
        let closes = |component: &mut Component| component.model.resources[0].closes = true;
        let app = App::changed(policy, own, None, closes).expect("it starts");
        let (thing, other, good) = (app.made(5), app.full(7), app.made(9));
        assert_eq!(app.edge.discard(good), Ok(()));
        assert_eq!(app.resets(Cause::Trap), 0, "{policy:?}");
        app.faults.at(0..1);
        let told = app.edge.discard(thing);
        assert!(
            matches!(told, Err(CallError::Poison { attempts: 4, .. })),
            "{told:?}"
        );
        assert_eq!(app.resets(Cause::Trap), 4, "{policy:?}");
        assert_eq!(app.look(other).as_deref(), Ok("7 3 9 0"));
        assert_eq!(app.edge.stats().expect("stats").objects, 1);
    }
}

/// Numbers for [`Edge::flip_record`], in the order in which it asks.
fn flip(edge: &Edge, numbers: &[u64]) {
    let mut numbers = numbers.iter().copied();
    let flipped = edge.flip_record(&mut |_| numbers.next().expect("as many as are asked for"));
    assert_eq!(flipped, Ok(true));
    assert_eq!(numbers.next(), None);
}

/// What is damaged lies in the second piece: the first one is in the component when that is seen.
#[test]
fn damage_in_what_the_host_keeps_is_told_in_the_middle_of_a_replay_and_others_come_back() {
    for (policy, own) in ways() {
        let app = App::new(policy, own);
        let (thing, other) = (app.full(5), app.full(7));
        // The first object; the first of its data; a block, a byte, a bit.
        flip(&app.edge, &[0, 14, 36, 11, 2]);
        app.edge.reset().expect("it comes back");
        for _ in 0..2 {
            let lost = app.look(thing);
            assert!(matches!(lost, Err(CallError::Corrupt { .. })), "{lost:?}");
            assert_eq!(app.look(other).as_deref(), Ok("7 3 9 0"));
            assert_eq!(app.read(other), Ok(whole()));
        }
        assert_eq!(app.edge.stats().expect("stats").resets_total(), 1);
        app.edge.discard(thing).expect("it can be given back");
        let again = app.full(5);
        app.edge.reset().expect("it comes back");
        assert_eq!(app.look(again).as_deref(), Ok("5 3 9 0"));
        assert_eq!(app.read(again), Ok(whole()));
    }
}

/// A file whose bytes are damaged where the host keeps them: told at each use, until it is taken away. Then its name is free.
#[test]
fn a_damaged_file_can_be_taken_away_once_nobody_has_it_open() {
    for (policy, own) in ways() {
        let component = Component {
            process: own.then(fixture::own_process),
            ..fixture::component("fs", policy)
        };
        let mut host = Host::new(true).expect("the pad works");
        host.add(component, None).expect("it starts");
        let edge = host.edge("test", "fs", &[]).expect("an edge");
        let call = |name: &str, args: &[Value]| {
            edge.invoke(&format!("steadfast:fs/files@0.1.0#{name}"), args)
        };
        let open = |name: &str| {
            let file = call("[static]file.open", &[name.into(), Value::Bool(true)])?;
            Ok(file.and_then(|value| value.handle()).expect("a file"))
        };
        let write = |file: Handle| {
            call(
                "[method]file.write",
                &[file.into(), 0u64.into(), bytes()[..].into()],
            )
        };
        let size = |file: Handle| call("[method]file.size", &[file.into()]);
        let corrupt = |outcome: Result<Option<Value>, CallError>| {
            assert!(
                matches!(outcome, Err(CallError::Corrupt { .. })),
                "{outcome:?}"
            );
        };
        let (a, b) = (open("a").expect("open"), open("b").expect("open"));
        write(a).expect("written");
        write(b).expect("written");
        // Behind two objects the first name; the first of its data; a block in its second piece, a byte, a bit.
        flip(&edge, &[2, 10, 36, 11, 2]);
        edge.reset().expect("it comes back");
        corrupt(size(a));
        assert_eq!(size(b), Ok(Some(Value::U64(BYTES as u64))));
        // Whoever has it open would find it empty.
        corrupt(call("remove", &["a".into()]));
        edge.discard(a).expect("live");
        corrupt(open("a").map(|_| None));
        corrupt(call("names", &[]));
        corrupt(call("remove", &["a".into()]));
        let names = call("names", &[]).expect("an answer");
        assert_eq!(names, Some(Value::List(vec!["b".into()])));
        let a = open("a").expect("a new one");
        assert_eq!(size(a), Ok(Some(Value::U64(0))));
        edge.reset().expect("it comes back");
        assert_eq!(size(a), Ok(Some(Value::U64(0))));
        assert_eq!(size(b), Ok(Some(Value::U64(BYTES as u64))));
    }
}

#[test]
fn a_damaged_key_can_be_set_anew_or_taken_away() {
    for policy in [plain(), Policy::default()] {
        let host = fixture::host("keyvalue", policy);
        let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
        let call = |name: &str, args: &[Value]| {
            edge.invoke(&format!("wasi:keyvalue/store@0.2.0-draft2#{name}"), args)
        };
        let bucket = call("open", &["a".into()]).expect("open");
        let bucket = bucket.and_then(|value| value.handle()).expect("a bucket");
        let of = |name: &str, more: &[Value]| {
            let args = [&[bucket.into()], more].concat();
            call(&format!("[method]bucket.{name}"), &args)
        };
        let value = |bytes: &[u8]| Value::from(bytes);
        let corrupt = |outcome: Result<Option<Value>, CallError>| {
            assert!(
                matches!(outcome, Err(CallError::Corrupt { .. })),
                "{outcome:?}"
            );
        };
        let got = |bytes: &[u8]| {
            let some = Value::Option(Some(Box::new(bytes.into())));
            Ok(Some(Value::Result(Ok(Some(Box::new(some))))))
        };
        let done = || Ok(Some(Value::Result(Ok(None))));
        for key in ["k", "l"] {
            assert_eq!(of("set", &[key.into(), value(b"one")]), done());
        }
        // Behind one object the first name; bytes of a key of its data; the first and the second key, a byte, a bit.
        flip(&edge, &[1, 13, 0, 1, 2]);
        flip(&edge, &[1, 13, 1, 1, 2]);
        edge.reset().expect("it comes back");
        corrupt(of("get", &["k".into()]));
        corrupt(of("get", &["l".into()]));
        assert_eq!(of("set", &["k".into(), value(b"two")]), done());
        assert_eq!(of("get", &["k".into()]), got(b"two"));
        corrupt(of("list-keys", &[Value::Option(None)]));
        assert_eq!(of("delete", &["l".into()]), done());
        edge.reset().expect("it comes back");
        assert_eq!(of("get", &["k".into()]), got(b"two"));
        let there = of("exists", &["l".into()]).expect("an answer");
        let no = Value::Result(Ok(Some(Box::new(Value::Bool(false)))));
        assert_eq!(there, Some(no));
    }
}

/// The image is taken behind it, so that each reset finds what it did and none does it again.
#[test]
fn a_component_is_begun_once_and_one_that_does_not_begin_is_refused_with_the_reason() {
    for (policy, own) in ways() {
        let app = App::begun(policy, own, Some("begin")).expect("it starts");
        let thing = app.full(5);
        for _ in 0..4 {
            assert_eq!(app.look(thing).as_deref(), Ok("5 3 9 1"), "{policy:?}");
            app.edge.reset().expect("it comes back");
        }
    }
    for own in [false, true] {
        for (init, why) in [
            ("begin-trap", "trap"),
            ("begin-spin", "it computed for too long"),
            ("begin-ask", "calls others while it starts"),
        ] {
            match App::begun(plain(), own, Some(init)) {
                Err(LoadError::Start { found, .. }) => {
                    assert!(found.contains(why), "{init}, own process: {own}: {found}");
                }
                Err(other) => panic!("{init}: {other}"),
                Ok(_) => panic!("{init} has begun"),
            }
        }
    }
}

fn failures(edge: &Edge, name: &str, args: &[Value]) -> Result<Option<Value>, CallError> {
    edge.invoke(&format!("steadfast:bad/failures@0.1.0#{name}"), args)
}

/// Two clients whose requests always fail, in different ways, beside one whose requests never do.
#[test]
fn requests_that_always_fail_are_errors_of_their_own_callers_when_two_come_at_once() {
    const ROUNDS: u64 = 10;
    for own in [false, true] {
        for dual in [false, true] {
            let component = Component {
                process: own.then(fixture::own_process),
                ..fixture::component("bad", Policy { dual, ..plain() })
            };
            let mut host = Host::new(true).expect("the pad works");
            host.add(component, None).expect("it starts");
            let edge = |name: &str| host.edge(name, "bad", &[]).expect("an edge");
            let poison = |edge: &Edge, name: &str, args: &[Value], of: Cause| {
                let thing = failures(edge, "[constructor]thing", &[7u32.into()]);
                let thing = thing.expect("made").and_then(|value| value.handle());
                let thing = thing.expect("a thing");
                for _ in 0..ROUNDS {
                    match failures(edge, name, args) {
                        Err(CallError::Poison {
                            attempts: 4,
                            cause,
                            function,
                            ..
                        }) => assert_eq!((cause, &*function), (of, name)),
                        other => panic!("{name}: {other:?}"),
                    }
                    let n = failures(edge, "[method]thing.get", &[thing.into()]);
                    assert_eq!(n, Ok(Some(7u32.into())));
                }
            };
            let (one, two, good) = (edge("one"), edge("two"), edge("good"));
            std::thread::scope(|scope| {
                scope.spawn(|| poison(&one, "trap", &[], Cause::Trap));
                scope.spawn(|| poison(&two, "echo", &[101u32.into()], Cause::Range));
                scope.spawn(|| {
                    let sum = failures(&good, "[constructor]thing", &[1u32.into()]);
                    let thing = sum.expect("made").and_then(|value| value.handle());
                    let thing = thing.expect("a thing");
                    for n in 1..=200u64 {
                        let sum =
                            failures(&good, "[method]thing.add", &[thing.into(), 1u32.into()]);
                        assert_eq!(sum, Ok(Some(Value::U64(n))));
                    }
                });
            });
            let stats = good.stats().expect("stats");
            assert_eq!(stats.resets[&Cause::Trap], 4 * ROUNDS);
            assert_eq!(stats.resets[&Cause::Range], 4 * ROUNDS);
            assert_eq!(stats.resets_total(), 8 * ROUNDS);
        }
    }
}
