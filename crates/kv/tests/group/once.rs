//! Numbered requests: sent again, to whichever replica, they are answered as the first time and executed once.

use super::*;

/// One line, and the line behind it where it announces a value.
fn meta(line: &mut Line, request: &str) -> String {
    let mut said = line.ask(request);
    if said.starts_with("VA ") {
        line.0.read_line(&mut said).unwrap();
    }
    said
}

fn kill(group: &Group, replica: usize, pid: u32) {
    let killed = Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    assert!(killed.success(), "replica {replica}");
    assert_eq!(group.event("replaced")["replica"], replica);
}

#[test]
fn a_retry_after_the_leader_has_died_is_answered_as_the_first_time_and_executed_once() {
    let group = Group::start(&[]);
    let leader = usize::try_from(group.status(0)["leader"].as_u64().unwrap()).unwrap();
    let other = (leader + 1) % 3;
    let add = "ma hits N0 J0 D1 v Oonce:web-1:7\r\n";
    assert_eq!(
        meta(&mut group.connect(leader), "ma hits N0 J0 D1 v O1\r\n"),
        "VA 1 O1\r\n0\r\n"
    );
    let first = meta(&mut group.connect(leader), add);
    assert_eq!(first, "VA 1 Oonce:web-1:7\r\n1\r\n");
    let delete = "md gone Oonce:web-1:8\r\n";
    group.connect(leader).set("gone", "x");
    assert_eq!(
        meta(&mut group.connect(leader), delete),
        "HD Oonce:web-1:8\r\n"
    );
    kill(&group, leader, group.pids[leader]);
    // At a replica that has gone on, and at the process that has taken the leader's place.
    for at in [other, leader, other] {
        assert_eq!(meta(&mut group.connect(at), add), first, "replica {at}");
        assert_eq!(meta(&mut group.connect(at), delete), "HD Oonce:web-1:8\r\n");
    }
    assert_eq!(group.connect(other).get("hits"), "1");
    // Without a number the same request is executed as often as it comes.
    assert_eq!(
        meta(&mut group.connect(other), "ma hits v O9\r\n"),
        "VA 1 O9\r\n2\r\n"
    );
    assert_eq!(
        meta(&mut group.connect(other), "ma hits v O9\r\n"),
        "VA 1 O9\r\n3\r\n"
    );
    // Another client's same number is another request; a number of another request is refused.
    assert_eq!(
        meta(&mut group.connect(other), "ma hits v Oonce:web-2:7\r\n"),
        "VA 1 Oonce:web-2:7\r\n4\r\n"
    );
    let said = group.connect(other).ask("ma hits D5 v Oonce:web-1:7\r\n");
    assert!(
        said.starts_with("CLIENT_ERROR number 7 of client web-1 was another request"),
        "{said}"
    );
    let said = group.connect(other).ask("ma hits v Oonce:web-1:x\r\n");
    assert!(
        said.starts_with("CLIENT_ERROR a numbered request is"),
        "{said}"
    );
    assert_eq!(group.connect(leader).get("hits"), "4");
}

#[test]
fn a_replica_that_dies_with_requests_under_way_loses_none_and_doubles_none() {
    let group = Group::start(&["--snapshot-every", "100"]);
    let mut pids = group.pids.clone();
    group.connect(0).set("sum", "0");
    let rounds = 5;
    for round in 0..rounds {
        let asked = round % 3;
        let add = format!("ma sum D1 v Oonce:racer:{}\r\n", round + 1);
        let mut line = group.connect(asked);
        line.send(add.as_bytes());
        // Before, while, or after it goes through the log.
        std::thread::sleep(Duration::from_micros(700 * round as u64));
        let killed = Command::new("kill")
            .args(["-9", &pids[asked].to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        let other = (asked + 1) % 3;
        let said = loop {
            let said = meta(&mut group.connect(other), &add);
            if said.starts_with("VA") {
                break said;
            }
            assert!(said.starts_with("SERVER_ERROR"), "{said}");
        };
        assert!(
            said.ends_with(&format!("\n{}\r\n", round + 1)),
            "round {round}: {said}"
        );
        pids[asked] = group.event("replaced")["pid"]
            .as_u64()
            .unwrap()
            .try_into()
            .unwrap();
    }
    assert_eq!(group.connect(0).get("sum"), rounds.to_string());
}

#[test]
fn kept_replies_are_voted_on_and_repaired_as_items_are() {
    let group = Group::start(&[]);
    let add = "ma hits N0 J5 v Oonce:web:1\r\n";
    let first = meta(&mut group.connect(0), add);
    assert_eq!(first, "VA 1 Oonce:web:1\r\n5\r\n");
    for victim in 0..3 {
        // The reply itself, at the end of what is kept.
        let line = format!("replica={victim} object=client:web byte=20 bit=1");
        let struck = group.strike(&line);
        assert!(struck.status.success(), "{}", text(&struck.stderr));
        assert_eq!(
            meta(&mut group.connect(victim), add),
            first,
            "replica {victim}"
        );
        let event = group.event("repaired");
        let name = event["object"].as_str().unwrap();
        assert!(name.starts_with("once:"), "{event}");
        assert_eq!(
            (&event["replica"], &event["passive"]),
            (&victim.into(), &true.into())
        );
        // As it was struck, whatever the request has made of it.
        let place = ["field", "byte", "bit", "xor", "bits"].map(|name| event[name].clone());
        let right = [
            Value::from("value"),
            20.into(),
            1.into(),
            2.into(),
            1.into(),
        ];
        assert_eq!(place, right);
    }
    assert_eq!(group.connect(1).get("hits"), "5");
    assert_eq!(group.status(0)["items"], 1);
}
