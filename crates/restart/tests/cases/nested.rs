//! A component that calls others: once, whatever happens to it, and with nothing left behind.

use std::sync::{Arc, Mutex};

use steadfast_restart::{
    Answer, CallError, Cause, Component, Edge, Host, LoadError, Policy, Stream, Value,
};

use crate::fixture;
use crate::lock::{HOLDER, NEW, TAKE};

fn path(name: &str) -> String {
    format!("test:client/main@0.1.0#{name}")
}

type Printed = Arc<Mutex<Vec<String>>>;

struct App {
    client: Edge,
    lock: Edge,
    printed: Printed,
}

impl App {
    fn objects(&self) -> usize {
        self.lock.stats().expect("stats").objects
    }

    fn printed(&self) -> Vec<String> {
        self.printed.lock().expect("whole").clone()
    }
}

fn client(host: &Host, policy: Policy, allow: &[String], printed: &Printed) -> Component {
    let printed = printed.clone();
    Component {
        uses: vec![host.edge("client", "lock", allow).expect("an edge")],
        console: Some(Arc::new(move |stream, text: &str| {
            if stream == Stream::Out {
                printed.lock().expect("whole").push(text.into());
            }
        })),
        ..fixture::component("client", policy)
    }
}

fn app(policy: Policy) -> App {
    let mut host = fixture::host("lock", Policy::default());
    let printed = Printed::default();
    host.add(client(&host, policy, &[], &printed), None)
        .expect("it starts");
    App {
        client: host.edge("test", "client", &[]).expect("an edge"),
        lock: host.edge("test", "lock", &[]).expect("an edge"),
        printed,
    }
}

#[test]
fn others_see_each_call_once_with_one_body_and_with_two() {
    for policy in fixture::lazy_policies() {
        let app = app(policy);
        let worked = app.client.invoke(&path("work"), &[]);
        assert_eq!(worked, Ok(Some(Value::Bool(true))));
        assert_eq!(app.printed(), ["at work"]);
        let stats = app.lock.stats().expect("stats");
        // Made, taken, released; and given back.
        assert_eq!((stats.calls, stats.objects), (3, 0));
        assert_eq!(app.client.stats().expect("stats").resets_total(), 0);
    }
}

/// The lock component fails in a call that a session makes while it comes back.
#[test]
fn a_failure_of_one_component_while_another_recovers_is_undone_as_well() {
    for policy in fixture::lazy_policies() {
        let app = app(policy);
        let made = |owner: u32| {
            let made = app
                .client
                .invoke(&path("[constructor]session"), &[owner.into()]);
            made.expect("made").expect("a session")
        };
        let sessions = [(made(7), 7), (made(8), 8)];
        for round in 1..=2 {
            app.client.reset().expect("it comes back");
            for (session, owner) in &sessions {
                app.lock.fail_once().expect("idle");
                let args = std::slice::from_ref(session);
                let holder = app.client.invoke(&path("[method]session.holder"), args);
                let right = Value::Option(Some(Box::new(Value::U32(*owner))));
                assert_eq!(holder, Ok(Some(right)), "{policy:?}");
            }
            let resets = |edge: &Edge| edge.stats().expect("stats").resets;
            let asked = std::collections::BTreeMap::from([(Cause::Asked, round)]);
            assert_eq!(resets(&app.client), asked, "{policy:?}");
            assert_eq!(resets(&app.lock)[&Cause::Asked], 2 * round, "{policy:?}");
            assert_eq!(app.objects(), 2, "no lock is left behind");
        }
    }
}

#[test]
fn the_program_answers_what_no_component_exports_and_each_question_once() {
    const CONSOLE: &str = "steadfast:host/console@0.1.0";
    for policy in fixture::lazy_policies() {
        let said = Printed::default();
        let answers = |names: &[&str]| {
            let answer = |name: &&str| {
                let said = said.clone();
                let hear: Answer = Arc::new(move |args: &[Value]| {
                    if let Some(Value::String(text)) = args.first() {
                        said.lock().expect("whole").push(text.clone());
                    }
                    None
                });
                (format!("{CONSOLE}#{name}"), hear)
            };
            names.iter().map(answer).collect()
        };
        let mut host = fixture::host("lock", Policy::default());
        let with = |host: &Host, names: &[&str]| Component {
            console: None,
            answers: answers(names),
            ..client(host, policy, &[], &said)
        };
        for (names, found) in [
            (
                &["print"][..],
                "steadfast:host/console@0.1.0 has print alone",
            ),
            (&[], CONSOLE),
        ] {
            let refused = host.add(with(&host, names), None).expect_err("refused");
            assert!(refused.to_string().contains(found), "{refused}");
        }
        host.add(with(&host, &["print", "print-error"]), None)
            .expect("it starts");
        let edge = host.edge("test", "client", &[]).expect("an edge");
        edge.fail_once().expect("asked for");
        let worked = edge.invoke(&path("work"), &[]);
        assert_eq!(worked, Ok(Some(Value::Bool(true))));
        assert_eq!(*said.lock().expect("whole"), ["at work"]);
        assert_eq!(edge.stats().expect("stats").resets[&Cause::Asked], 1);
    }
}

#[test]
fn a_call_that_is_repeated_gets_the_same_answers_and_leaves_nothing() {
    for policy in fixture::lazy_policies() {
        let app = app(policy);
        let crashed = app.client.invoke(&path("crash"), &[]);
        assert!(
            matches!(crashed, Err(CallError::Poison { attempts: 4, .. })),
            "{crashed:?}"
        );
        assert_eq!(app.printed(), ["about to crash"]);
        let stats = app.lock.stats().expect("stats");
        assert_eq!((stats.calls, stats.objects), (2, 0));
        // The next call is a new one.
        let worked = app.client.invoke(&path("work"), &[]);
        assert_eq!(worked, Ok(Some(Value::Bool(true))));
        assert_eq!(app.printed(), ["about to crash", "at work"]);
    }
}

#[test]
fn what_a_session_holds_at_others_comes_back_with_it_at_every_call_boundary() {
    for policy in fixture::lazy_policies() {
        for crash in 0..4 {
            let app = app(policy);
            let reset = |at: usize| {
                if at == crash {
                    app.client.reset().expect("it comes back");
                    // What the dead body held was given back.
                    assert_eq!(app.objects(), 0);
                }
            };
            reset(0);
            let session = app
                .client
                .invoke(&path("[constructor]session"), &[7u32.into()]);
            let session = session.expect("made").and_then(|v| v.handle());
            let session = session.expect("a handle");
            reset(1);
            for at in 2..4 {
                let holder = app
                    .client
                    .invoke(&path("[method]session.holder"), &[session.into()]);
                assert_eq!(holder.expect("an answer").and_then(|v| v.number()), Some(7));
                assert_eq!(app.objects(), 1);
                reset(at);
            }
            app.client.discard(session).expect("live");
            assert_eq!(app.objects(), 0, "crash {crash}");
        }
    }
}

#[test]
fn the_callee_fails_and_its_client_does_not_notice() {
    let app = app(Policy::default());
    let session = app
        .client
        .invoke(&path("[constructor]session"), &[7u32.into()]);
    let session = session.expect("made").and_then(|v| v.handle());
    let session = session.expect("a handle");
    app.lock.reset().expect("it comes back");
    let holder = app
        .client
        .invoke(&path("[method]session.holder"), &[session.into()]);
    assert_eq!(holder.expect("an answer").and_then(|v| v.number()), Some(7));
    assert_eq!(app.client.stats().expect("stats").resets_total(), 0);
}

#[test]
fn a_hang_after_a_call_of_another_component_is_the_callers_own() {
    let mut host = fixture::host("lock", Policy::default());
    let mut client = client(&host, Policy::default(), &[], &Printed::default());
    client.call_limit = std::time::Duration::from_millis(20);
    client.policy.redo_max = 0;
    host.add(client, None).expect("it starts");
    let [client, lock] =
        ["client", "lock"].map(|name| host.edge("test", name, &[]).expect("an edge"));
    let hung = client.invoke(&path("spin"), &[]);
    assert!(
        matches!(
            hung,
            Err(CallError::Poison {
                cause: Cause::Hang,
                ..
            })
        ),
        "{hung:?}"
    );
    let stats = lock.stats().expect("stats");
    assert_eq!((stats.resets_total(), stats.objects), (0, 0));
    let worked = client.invoke(&path("work"), &[]);
    assert_eq!(worked, Ok(Some(Value::Bool(true))));
}

#[test]
fn a_second_body_that_asks_for_something_else_is_found() {
    let app = app(Policy {
        dual: true,
        compare_every: 0,
        ..Policy::default()
    });
    let owner = 0x5ca1_ab1e_u32.to_le_bytes();
    let memory = app.client.memories().expect("memories").swap_remove(0);
    let at = memory.windows(4).position(|window| window == owner);
    let at = at.expect("the word");
    assert_eq!(app.client.flip(1, at, 3), Ok(true));
    let worked = app.client.invoke(&path("work"), &[]);
    assert_eq!(worked, Ok(Some(Value::Bool(true))));
    let resets = app.client.stats().expect("stats").resets;
    assert_eq!(
        resets.into_iter().collect::<Vec<_>>(),
        [(Cause::Mismatch, 1)]
    );
    assert_eq!(app.printed(), ["at work"]);
    assert_eq!(app.lock.stats().expect("stats").calls, 3);
}

#[test]
fn more_calls_than_the_journal_keeps_are_refused_with_two_bodies_and_pass_with_one() {
    for dual in [false, true] {
        let app = app(Policy {
            dual,
            ..Policy::default()
        });
        let talked = app.client.invoke(&path("talk"), &[65_537u32.into()]);
        match talked {
            Ok(None) => assert!(!dual),
            Err(CallError::Callee { source, .. }) => {
                assert!(dual && matches!(*source, CallError::TooMany { max: 65_536 }));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn no_edge_no_import_and_no_function_that_the_edge_does_not_allow() {
    let mut host = fixture::host("lock", Policy::default());
    let refused = |error: LoadError, what: &str| {
        assert!(matches!(error, LoadError::Import { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.fix().contains("[[edge]]"));
    };
    let alone = Component {
        console: Some(Arc::new(|_, _: &str| {})),
        ..fixture::component("client", Policy::default())
    };
    let error = host.add(alone, None).expect_err("no edge");
    refused(error, "steadfast:lock/locks@0.1.0");
    let some = [NEW.to_owned(), HOLDER.to_owned()];
    let part = client(&host, Policy::default(), &some, &Printed::default());
    let error = host.add(part, None).expect_err("not allowed");
    refused(error, "may not call");
}

#[test]
fn a_handle_of_another_client_is_refused() {
    let host = fixture::host("lock", Policy::default());
    let [one, other] = ["one", "other"].map(|name| host.edge(name, "lock", &[]).expect("an edge"));
    let lock = one.invoke(NEW, &[]).expect("made").and_then(|v| v.handle());
    let lock = lock.expect("a handle");
    let args = [lock.into(), 1u32.into()];
    let guessed = other.invoke(TAKE, &args);
    assert!(
        matches!(guessed, Err(CallError::Foreign { .. })),
        "{guessed:?}"
    );
    assert!(matches!(
        other.discard(lock),
        Err(CallError::Foreign { .. })
    ));
    assert_eq!(one.invoke(TAKE, &args), Ok(Some(Value::Bool(true))));
}

#[test]
fn calls_of_others_leave_nothing_behind() {
    let app = app(Policy {
        resets_max: u32::MAX,
        spare: false,
        ..Policy::default()
    });
    let session = app
        .client
        .invoke(&path("[constructor]session"), &[7u32.into()]);
    let session = session.expect("made").and_then(|v| v.handle());
    let session = session.expect("a handle");
    for _ in 0..1000 {
        app.client.reset().expect("it comes back");
        let holder = app
            .client
            .invoke(&path("[method]session.holder"), &[session.into()]);
        assert_eq!(holder.expect("an answer").and_then(|v| v.number()), Some(7));
        assert_eq!(app.objects(), 1);
    }
}

#[test]
fn what_an_edge_keeps_outlives_a_failure_and_goes_to_the_object_that_it_was_for() {
    // In the host's own process, and in one of its own.
    let in_own = |policy| [(policy, None), (policy, Some(fixture::own_process()))];
    for (policy, process) in fixture::lazy_policies().into_iter().flat_map(in_own) {
        for crash in 0..4 {
            let mut host = fixture::host("lock", Policy::default());
            let made = client(&host, policy, &[], &Printed::default());
            let uses = made.uses.into_iter().map(Edge::keeping).collect();
            let process = process.clone();
            let component = Component {
                uses,
                process,
                ..made
            };
            host.add(component, None).expect("it starts");
            let edge = host.edge("test", "client", &[]).expect("an edge");
            let lock = host.edge("test", "lock", &[]).expect("an edge");
            let objects = || lock.stats().expect("stats").objects;
            let session = |owner: u32| {
                let made = edge.invoke(&path("[constructor]session"), &[owner.into()]);
                made.expect("made")
                    .and_then(|v| v.handle())
                    .expect("a handle")
            };
            let holder = |of: steadfast_restart::Handle| {
                let holder = edge.invoke(&path("[method]session.holder"), &[of.into()]);
                holder.expect("an answer").and_then(|v| v.number())
            };
            let (a, b) = (session(7), session(8));
            for at in 0..4 {
                if at == crash {
                    edge.reset().expect("it comes back");
                    // Nothing was given back.
                    assert_eq!(objects(), 2);
                    let before = lock.calls();
                    // The last one first: each finds its own lock again, which is not made anew.
                    assert_eq!(holder(b), Some(8));
                    assert_eq!(lock.calls() - before, 2, "taken once more, and looked at");
                }
                assert_eq!((holder(a), holder(b), objects()), (Some(7), Some(8), 2));
            }
            edge.reset().expect("it comes back");
            edge.discard(a).expect("live");
            assert_eq!(
                objects(),
                1,
                "one that did not come back is given back with its session"
            );
            edge.discard(b).expect("live");
            assert_eq!(objects(), 0, "crash {crash}");
        }
    }
}

/// A client whose edge keeps, beside the lock that it calls.
fn keeping(policy: Policy, lock: Policy) -> (Host, Edge, Edge) {
    let mut host = fixture::host("lock", lock);
    let made = client(&host, policy, &[], &Printed::default());
    let uses = made.uses.into_iter().map(Edge::keeping).collect();
    host.add(Component { uses, ..made }, None)
        .expect("it starts");
    let edges = ["client", "lock"].map(|to| host.edge("test", to, &[]).expect("an edge"));
    let [client, lock] = edges;
    (host, client, lock)
}

fn session(client: &Edge, owner: u32) -> steadfast_restart::Handle {
    let made = client.invoke(&path("[constructor]session"), &[owner.into()]);
    let made = made.expect("made").and_then(|v| v.handle());
    made.expect("a handle")
}

/// Two equal questions, of which the return of an object asks the first one alone: it gets the first answer, whatever the names of the two are,
/// and the other one is given back.
#[test]
fn what_is_kept_and_not_asked_for_again_is_given_back() {
    for policy in fixture::lazy_policies() {
        let (_host, client, lock) = keeping(policy, Policy::default());
        let objects = || lock.stats().expect("stats").objects;
        // The second lock gets a lower place than the first one.
        let place = lock.invoke(NEW, &[]).expect("made");
        let of = session(&client, 7);
        let place = place.and_then(|v| v.handle()).expect("a handle");
        lock.discard(place).expect("live");
        let more = client.invoke(&path("[method]session.more"), &[of.into(), 9u32.into()]);
        assert_eq!((more, objects()), (Ok(Some(Value::Bool(true))), 2));
        for _ in 0..2 {
            client.reset().expect("it comes back");
            let holder = client.invoke(&path("[method]session.holder"), &[of.into()]);
            assert_eq!(holder.expect("an answer").and_then(|v| v.number()), Some(7));
            assert_eq!(objects(), 1);
        }
    }
}

#[test]
fn what_is_kept_and_gone_where_it_was_is_asked_for_anew() {
    let forgets = Policy {
        recover: false,
        ..Policy::default()
    };
    let (_host, client, lock) = keeping(Policy::default(), forgets);
    let of = session(&client, 7);
    let holder = || client.invoke(&path("[method]session.holder"), &[of.into()]);
    // All handles of it are stale from here on.
    lock.reset().expect("it starts again");
    client.reset().expect("it comes back");
    for _ in 0..2 {
        let stale = holder();
        assert!(matches!(stale, Err(CallError::Callee { .. })), "{stale:?}");
    }
    assert_eq!(holder().expect("anew").and_then(|v| v.number()), Some(7));
}

#[test]
fn a_component_that_is_given_up_keeps_nothing() {
    let once = Policy {
        resets_max: 1,
        rests_max: 0,
        spare: false,
        ..Policy::default()
    };
    let (_host, client, lock) = keeping(once, Policy::default());
    let objects = || lock.stats().expect("stats").objects;
    let of = session(&client, 7);
    client.reset().expect("it comes back");
    assert_eq!(objects(), 1);
    let up = client.reset();
    assert!(matches!(up, Err(CallError::GaveUp { .. })), "{up:?}");
    assert_eq!(objects(), 0);
    let gone = client.invoke(&path("[method]session.holder"), &[of.into()]);
    assert!(matches!(gone, Err(CallError::GaveUp { .. })), "{gone:?}");
    // It does not come back to be asked, and the handle ends.
    assert_eq!(client.discard(of), Ok(()));
    assert!(matches!(client.discard(of), Err(CallError::Stale { .. })));
    assert!(matches!(client.reset(), Err(CallError::GaveUp { .. })));
}
