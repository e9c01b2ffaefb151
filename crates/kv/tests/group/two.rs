//! Two replicas alive: nobody has a majority against the other, so what each found of its own objects decides. And what is said of the third.

use super::serve::Hosts;
use super::*;

fn signal(pid: u32, signal: &str) {
    let done = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(done.unwrap().success());
}

fn struck(hosts: &Hosts, replica: usize, clauses: &str) {
    let strike = format!("sf strike replica={replica} {clauses}\r\n");
    assert_eq!(hosts.connect(replica).ask(&strike), "STRUCK\r\n");
}

/// Three that are ready, of which the last has ended.
fn two(name: &str, flags: &[&str]) -> Hosts {
    let mut hosts = Hosts::new(name, &[&["--scrub", "0"], flags].concat());
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    hosts.end(2, "-KILL");
    hosts.wait("the end of the third is known", || {
        let members = hosts.status(0)["members"].clone();
        let alive = members.as_array().unwrap().iter();
        alive.filter(|member| member["alive"] == true).count() == 2
            && hosts.status(0)["leader"]
                .as_u64()
                .is_some_and(|leader| leader < 2)
    });
    hosts
}

#[test]
fn what_was_made_of_a_struck_object_is_decided_as_the_object_is() {
    let hosts = two("two", &[]);
    let mut lines = [hosts.connect(0), hosts.connect(1)];
    struct Row {
        place: &'static str,
        change: &'static str,
        said: &'static str,
    }
    // What each comes to differs in the struck replica.
    let changes = [
        Row {
            place: "field=key byte=0 bit=0",
            change: "delete a\r\n",
            said: "DELETED\r\n",
        },
        Row {
            place: "byte=0 bit=6",
            change: "incr a 1\r\n",
            said: "6\r\n",
        },
        Row {
            place: "field=cas byte=0 bit=7",
            change: "append a 0 0 1\r\n0\r\n",
            said: "STORED\r\n",
        },
        Row {
            place: "field=expires byte=0 bit=0",
            change: "incr a 2\r\n",
            said: "7\r\n",
        },
    ];
    for (round, row) in changes.into_iter().enumerate() {
        let Row {
            place,
            change,
            said,
        } = row;
        for asked in [0, 1] {
            lines[asked].set("a", "5");
            struck(&hosts, 1, &format!("object=item:a {place}"));
            assert_eq!(lines[asked].ask(change), said, "{place}, asked {asked}");
            // And what follows from it, before and after the repair.
            lines[asked].set("b", &format!("{round}{asked}"));
            let cas = [0, 1].map(|replica| lines[replica].ask("mg b c v\r\n"));
            let values = [0, 1].map(|replica| {
                let mut value = String::new();
                lines[replica].0.read_line(&mut value).unwrap();
                value
            });
            assert_eq!(cas[0], cas[1], "{place}, asked {asked}");
            assert_eq!(values[0], values[1]);
        }
    }
    assert!(!hosts.heard("\"stuck\""), "{:?}", hosts.lines("stuck"));
    for replica in [0, 1] {
        assert_eq!(hosts.status(replica)["held"], 0);
    }
    // An append owes nothing to the number that was struck.
    assert!(hosts.status(1)["counts"]["repairs"].as_u64() >= Some(6));
    assert_eq!(hosts.status(0)["counts"]["repairs"], 0);
}

#[test]
fn a_struck_head_of_the_log_is_repaired_by_the_only_other_replica() {
    let hosts = two("head", &[]);
    let mut lines = [hosts.connect(0), hosts.connect(1)];
    lines[0].set("a", "value");
    // Of chain, time, number of the last change, flush, flush to come; then what all items weigh, which is counted anew.
    for byte in [0, 16, 24, 32, 47, 48, 55] {
        struck(&hosts, 1, &format!("object=log:head byte={byte} bit=5"));
        for line in &mut lines {
            assert_eq!(line.get("a"), "value", "byte {byte}");
            line.set("b", "more");
        }
    }
    assert!(!hosts.heard("\"stuck\""), "{:?}", hosts.lines("stuck"));
    // An entry between a mismatch and its recovery may bring another one.
    assert!(hosts.count("\"object\":\"log:head\"") >= 5);
    assert_eq!(hosts.count("\"object\":\"log:weight\""), 2);
    assert_eq!(hosts.status(0)["counts"]["repairs"], 0);
}

#[test]
fn what_the_struck_replica_alone_leaves_out_is_decided_too() {
    let hosts = two("leaves", &["--memory", "1"]);
    let mut lines = [hosts.connect(0), hosts.connect(1)];
    let mut goes_on = |place: &str| {
        for line in &mut lines {
            line.set("other", place);
            assert_eq!(line.get("other"), place);
        }
        assert!(
            !hosts.heard("\"stuck\""),
            "{place}: {:?}",
            hosts.lines("stuck")
        );
    };
    let mut line = hosts.connect(0);
    // The number that a client's next one has to be behind: its request is not executed there.
    assert_eq!(line.ask("ma n N0 J1 Oonce:cl:5\r\n"), "HD Oonce:cl:5\r\n");
    struck(&hosts, 1, "object=client:cl byte=4 bit=4");
    assert_eq!(line.ask("ma n N0 J1 Oonce:cl:6\r\n"), "HD Oonce:cl:6\r\n");
    goes_on("client");
    // The weight of all items: less has to go there. The item that goes first: another one goes there.
    for place in ["log:head byte=50 bit=3", "item:big0 field=cas byte=1 bit=3"] {
        for number in 0..9 {
            line.set(&format!("big{number}"), &"v".repeat(100_000));
        }
        struck(&hosts, 1, &format!("object={place}"));
        line.set("new", &"n".repeat(300_000));
        goes_on(place);
    }
    // An entry that it cannot read: it executes nothing of it.
    struck(&hosts, 1, "queue=log bit=400");
    line.set("n", "5");
    goes_on("entry");
    assert_eq!(line.get("n"), "5");
    assert_eq!(hosts.connect(1).get("n"), "5");
}

/// Nothing changes at rest, so neither of the two finds anything wrong with its own: what each comes to a second time decides.
#[test]
fn what_one_of_them_computed_wrongly_once_is_decided_by_a_second_run() {
    let hosts = two("computed", &[]);
    let mut lines = [hosts.connect(0), hosts.connect(1)];
    for asked in [0, 1] {
        struct Row {
            request: &'static str,
            said: &'static str,
            next: &'static str,
        }
        for Row {
            request,
            said,
            next,
        } in [
            Row {
                request: "set b 0 0 1\r\n0\r\n",
                said: "STORED\r\n",
                next: "1\r\n",
            },
            Row {
                request: "append b 0 0 1\r\n1\r\n",
                said: "STORED\r\n",
                next: "12\r\n",
            },
            Row {
                request: "delete a\r\n",
                said: "NOT_FOUND\r\n",
                next: "13\r\n",
            },
            Row {
                request: "incr b 1\r\n",
                said: "14\r\n",
                next: "15\r\n",
            },
        ] {
            struck(&hosts, 1, "queue=run bit=1");
            assert_eq!(lines[asked].ask(request), said, "asked {asked}");
            // And what is made of it.
            assert_eq!(lines[1 - asked].ask("incr b 1\r\n"), next, "asked {asked}");
        }
        assert_eq!([0, 1].map(|replica| lines[replica].get("b")), ["15", "15"]);
    }
    assert!(!hosts.heard("\"stuck\""), "{:?}", hosts.lines("stuck"));
    for (replica, is_struck) in [(0, false), (1, true)] {
        let counts = &hosts.status(replica)["counts"];
        assert!(counts["reruns"].as_u64() >= Some(6), "{counts}");
        assert_eq!(counts["repairs"] != 0, is_struck, "{counts}");
        assert_eq!(counts["refused"], 0, "{counts}");
    }
}

#[test]
fn what_was_not_compared_is_said() {
    let mut hosts = Hosts::new("missing", &["--scrub", "0"]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    hosts.connect(0).set("a", "value");
    let at = hosts.clients[0].to_string();
    let secret = hosts.secret();
    let verify = || kv().args(["verify", "--at", &at]).output().unwrap();
    let said = verify();
    assert_eq!(said.status.code(), Some(0));
    assert!(text(&said.stdout).contains("compared in all replicas"));
    // One that stands still, and holds a struck item.
    struck(&hosts, 2, "object=item:a byte=0 bit=0");
    signal(hosts.pid(2), "-STOP");
    let said = verify();
    assert_eq!(said.status.code(), Some(122), "{said:?}");
    assert!(
        text(&said.stdout).contains("not compared: replica 2"),
        "{said:?}"
    );
    let file = hosts.dir.join("backup");
    let saved = kv()
        .arg("backup")
        .arg(&file)
        .args(["--at", &at, "--secret-file"])
        .arg(&secret)
        .output()
        .unwrap();
    assert!(saved.status.success(), "{saved:?}");
    assert!(
        text(&saved.stdout).contains("not compared: replica 2"),
        "{saved:?}"
    );
    signal(hosts.pid(2), "-CONT");
    hosts.wait_ready(2);
    let said = verify();
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert_eq!(hosts.connect(2).get("a"), "value");
}

#[test]
fn requests_that_nobody_can_order_end_with_an_error() {
    let mut hosts = Hosts::new("alone", &["--scrub", "0"]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    let mut line = hosts.connect(0);
    line.set("a", "value");
    for stopped in [1, 2] {
        signal(hosts.pid(stopped), "-STOP");
    }
    let began = Instant::now();
    let said = line.ask("get a\r\n");
    assert!(said.starts_with("SERVER_ERROR"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(30));
    for stopped in [1, 2] {
        signal(hosts.pid(stopped), "-CONT");
    }
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    assert_eq!(line.get("a"), "value");
}

#[test]
fn a_number_that_one_replica_alone_has_used_is_used_again() {
    let mut hosts = Hosts::new("number", &["--scrub", "0"]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    let mut line = hosts.connect(2);
    line.set("a", "old");
    // Two have executed it before it is answered: the third may not have had it yet, and a strike would hit that entry there.
    hosts.wait("all have executed the same entries", || {
        let executed = [0, 1, 2].map(|replica| hosts.status(replica)["executed"].as_u64());
        executed.iter().all(|each| *each == executed[0])
    });
    // The same bit at two of them: both execute nothing, and outvote the one that has executed its own entry.
    for replica in [0, 1] {
        struck(&hosts, replica, "queue=log bit=200");
    }
    let said = line.ask("set a 0 0 3\r\nnew\r\n");
    assert!(said.starts_with("SERVER_ERROR"), "{said}");
    line.set("b", "more");
    assert_eq!(line.get("a"), "old");
    assert_eq!(line.get("b"), "more");
}
