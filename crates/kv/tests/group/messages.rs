//! Flips in what passes: messages between replicas, entries on their way into the log and out of it, replies that wait. None changes a reply.

use super::*;

/// Has the next of a kind struck, in these replicas.
fn strike(group: &Group, replicas: &[usize], what: &str) {
    for replica in replicas {
        let line = format!("sf strike replica={replica} {what}\r\n");
        assert_eq!(group.connect(*replica).ask(&line), "STRUCK\r\n", "{what}");
    }
}

fn count(group: &Group, replica: usize, name: &str) -> u64 {
    group.status(replica)["counts"][name].as_u64().unwrap()
}

/// Everything in every replica is compared; nothing of a strike may be left once what it has set off is over.
pub(super) fn nothing_differs(group: &Group) {
    let at = group.clients[0].to_string();
    let until = Instant::now() + PATIENCE;
    loop {
        let verified = kv().args(["verify", "--at", &at]).output().unwrap();
        if text(&verified.stdout).contains(" 0 differed") {
            return;
        }
        assert!(Instant::now() < until, "{verified:?}");
    }
}

#[test]
fn an_entry_that_flips_on_its_way_into_the_log_is_executed_by_nobody_and_ordered_again() {
    let group = Group::start(&[]);
    for (number, bit) in [3, 40, 200].into_iter().enumerate() {
        strike(&group, &[number], &format!("message=entry bit={bit}"));
        group.connect(number).set("a", &format!("value {number}"));
        for asked in 0..3 {
            assert_eq!(group.connect(asked).get("a"), format!("value {number}"));
            assert_eq!(count(&group, asked, "poison"), number as u64 + 1);
        }
    }
    // The copy that would be sent again is as wrong: an error, and the next request is executed.
    strike(&group, &[1], "queue=submit bit=70");
    let said = group.connect(1).ask("set a 0 0 5\r\nwrong\r\n");
    assert!(
        said.starts_with("SERVER_ERROR the request was damaged"),
        "{said}"
    );
    assert_eq!(group.connect(1).get("a"), "value 2");
    group.connect(1).set("a", "value 3");
    assert_eq!(group.connect(0).get("a"), "value 3");
    nothing_differs(&group);
}

#[test]
fn an_entry_that_flips_between_the_log_and_its_execution_is_outvoted_and_its_objects_repaired() {
    let group = Group::start(&[]);
    group.connect(0).set("a", "first");
    // Its time stamp, which the check of its origin does not cover, and its body.
    for (number, bit) in [9, 100].into_iter().enumerate() {
        let victim = number + 1;
        strike(&group, &[victim], &format!("queue=log bit={bit}"));
        let value = format!("value {number}");
        group.connect(0).set("a", &value);
        for asked in [0, victim] {
            assert_eq!(group.connect(asked).get("a"), value);
        }
        // The one before may have been repaired in several parts.
        while group.event("repaired")["replica"] != victim {}
        nothing_differs(&group);
    }
    assert_eq!([0, 1, 2].map(|r| count(&group, r, "poison")), [0, 0, 1]);
    // The one that is asked: the request is executed, and what it says is not known to it.
    strike(&group, &[1], "queue=log bit=100");
    let said = group.connect(1).ask("set a 0 0 4\r\nlast\r\n");
    assert!(
        said.starts_with("SERVER_ERROR the request was executed"),
        "{said}"
    );
    assert_eq!(group.connect(1).get("a"), "last");
    nothing_differs(&group);
    // Where only the time stamp was hit it has executed the request: the reply is the one that all have.
    strike(&group, &[1], "queue=log bit=9");
    assert_eq!(
        group.connect(1).ask("set a 0 0 4\r\nmore\r\n"),
        "STORED\r\n"
    );
    for asked in 0..3 {
        assert_eq!(group.connect(asked).get("a"), "more");
    }
    nothing_differs(&group);
}

/// Recoveries overlap, and what one replica alone takes for an order to compare is among them: nothing is held back for ever.
#[test]
fn a_replica_whose_entries_flip_again_and_again_goes_on() {
    let group = Group::start(&[]);
    std::thread::scope(|scope| {
        for client in 0..6 {
            let at = group.clients[client % 3];
            scope.spawn(move || {
                let mut line = Line::to(at);
                for round in 0..40 {
                    let value = format!("{round:04}");
                    let set = format!("set c{client} 0 0 4\r\n{value}\r\n");
                    while line.ask(&set).starts_with("SERVER_ERROR") {}
                    let said = line.get(&format!("c{client}"));
                    assert!(
                        said == value || said.starts_with("SERVER_ERROR"),
                        "{said:?}"
                    );
                }
            });
        }
        for bit in 0..20 {
            let line = format!("sf strike replica=0 queue=log bit={}\r\n", bit * 37 % 900);
            let said = group.connect(0).ask(&line);
            assert!(
                said == "STRUCK\r\n" || said.contains("waits already"),
                "{said}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    nothing_differs(&group);
}

/// An entry that its own origin has lost is not submitted again while others of it come out of the log: who asked is told all the same.
#[test]
fn who_asked_for_an_entry_that_its_origin_has_lost_is_told_while_load_goes_on() {
    let group = Group::start(&[]);
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    let slowest = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let (at, is_over) = (group.clients[1], &is_over);
                scope.spawn(move || {
                    let mut line = Line::to(at);
                    let mut slowest = Duration::ZERO;
                    let mut lost = 0;
                    while !is_over() {
                        let began = Instant::now();
                        let said = line.ask(&format!("set c{client} 0 0 1\r\nx\r\n"));
                        lost += u64::from(said.contains("has lost its reply"));
                        slowest = slowest.max(began.elapsed());
                    }
                    (slowest, lost)
                })
            })
            .collect();
        let until = Instant::now() + Duration::from_secs(12);
        let mut bit = 100;
        while Instant::now() < until {
            group
                .connect(1)
                .ask(&format!("sf strike replica=1 queue=log bit={bit}\r\n"));
            bit += 37;
            std::thread::sleep(Duration::from_millis(200));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let ends: Vec<(Duration, u64)> = clients.into_iter().map(|c| c.join().unwrap()).collect();
        assert!(ends.iter().any(|(_, lost)| *lost > 0), "none was lost");
        ends.into_iter().map(|(slowest, _)| slowest).max().unwrap()
    });
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    nothing_differs(&group);
}

#[test]
fn a_repair_that_flips_on_its_way_is_refused_and_another_replica_asked() {
    let group = Group::start(&[]);
    let value = "the quick brown fox";
    group.connect(0).set("a", value);
    for struck in [&[0][..], &[0, 2]] {
        let before = group.status(1)["repairs_refused"].as_u64().unwrap();
        strike(&group, struck, "message=repair bit=99");
        strike(&group, &[1], "object=item:a byte=4 bit=2");
        for asked in 0..3 {
            assert_eq!(group.connect(asked).get("a"), value);
        }
        let event = group.event("repaired");
        assert_eq!(event["replica"], 1);
        let refused = group.status(1)["repairs_refused"].as_u64().unwrap() - before;
        assert_eq!(refused, struck.len() as u64, "{event}");
    }
    nothing_differs(&group);
    // Without a strike at the message none is refused.
    strike(&group, &[1], "object=item:a byte=4 bit=2");
    assert_eq!(group.connect(1).get("a"), value);
    assert_eq!(group.event("repaired")["replica"], 1);
    assert_eq!(group.status(1)["repairs_refused"], 3);
}

#[test]
fn the_order_of_a_recovery_that_flips_is_given_again() {
    let group = Group::start(&[]);
    group.connect(0).set("a", "balance 1000");
    strike(&group, &[0, 1, 2], "message=recover bit=90");
    strike(&group, &[1], "object=item:a byte=8 bit=3");
    for asked in 0..3 {
        assert_eq!(group.connect(asked).get("a"), "balance 1000");
    }
    assert_eq!(group.event("repaired")["replica"], 1);
    assert!(count(&group, 2, "poison") > 0);
    nothing_differs(&group);
}

#[test]
fn a_reply_that_flips_while_it_waits_for_its_vote_does_not_leave() {
    let group = Group::start(&[]);
    group.connect(0).set("a", "value");
    strike(&group, &[1], "queue=replies bit=100");
    assert_eq!(
        group.connect(1).get("a"),
        "SERVER_ERROR a reply was corrupted after its vote"
    );
    assert_eq!(count(&group, 1, "refused"), 1);
    assert_eq!(group.connect(1).get("a"), "value");
    nothing_differs(&group);
    // One at a time.
    strike(&group, &[1], "queue=submit bit=1");
    let said = group.strike("replica=1 queue=submit bit=2");
    assert!(text(&said.stderr).contains("waits already"), "{said:?}");
    // Where nobody votes there is none of these.
    let plain = Group::start(&["--stage", "RD"]);
    let said = plain.strike("replica=1 message=check bit=1");
    assert!(
        text(&said.stderr).contains("requirement --stage RDGX"),
        "{said:?}"
    );
}
