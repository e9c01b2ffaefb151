//! Stored bits that flip, and replies after their vote: what clients are answered, and what is found and repaired.

use super::*;

#[test]
fn a_struck_object_is_outvoted_wherever_it_is_asked_for_and_repaired() {
    let group = Group::start(&[]);
    let value = "the quick brown fox jumps over the lazy dog";
    group.connect(0).set("a", value);
    for victim in 0..3 {
        // The victim itself is asked, and one that is right.
        for asked in [victim, (victim + 1) % 3] {
            let line = format!("replica={victim} object=item:a byte=2 bit=3");
            let struck = group.strike(&line);
            assert!(struck.status.success(), "{}", text(&struck.stderr));
            assert_eq!(group.connect(asked).get("a"), value, "asked {asked}");
            let event = group.event("repaired");
            let found = [
                "replica", "object", "field", "byte", "bit", "bits", "passive",
            ]
            .map(|name| event[name].clone());
            let wanted: [Value; 7] = [
                victim.into(),
                "item:a".into(),
                "value".into(),
                2.into(),
                3.into(),
                1.into(),
                true.into(),
            ];
            assert_eq!(found, wanted, "{event}");
            assert!(event["took_us"].as_u64().unwrap() > 0, "{event}");
        }
    }
}

#[test]
fn an_object_is_right_after_it_was_struck_in_every_field() {
    let group = Group::start(&[]);
    let fields = [
        "value",
        "key",
        "flags",
        "expires",
        "cas",
        "marks",
        "key-length",
        "value-length",
    ];
    for (number, field) in fields.into_iter().enumerate() {
        let name = format!("k{number}");
        let mut line = group.connect(1);
        line.set(&name, "value");
        let struck = group.strike(&format!(
            "replica=2 object=item:{name} field={field} byte=0 bit=1"
        ));
        assert!(struck.status.success(), "{}", text(&struck.stderr));
        assert_eq!(group.connect(2).get(&name), "value", "{field}");
        assert_eq!(group.event("repaired")["field"], field.replace('-', " "));
    }
}

#[test]
fn without_a_vote_the_same_strike_reaches_the_client_and_with_digests_alone_it_is_an_error() {
    let line = "replica=1 object=item:a byte=2 bit=3";
    let plain = Group::start(&["--stage", "RD"]);
    plain.connect(0).set("a", "hello");
    assert!(plain.strike(line).status.success());
    assert_eq!(plain.connect(1).get("a"), "hedlo");
    let guarded = Group::start(&["--stage", "RDG"]);
    guarded.connect(0).set("a", "hello");
    assert!(guarded.strike(line).status.success());
    assert_eq!(
        guarded.connect(1).get("a"),
        "SERVER_ERROR an object does not fit its digest"
    );
    assert_eq!(guarded.event("corrupt")["object"], "item:a");
    // Nor does it reach the client beside another request for the same object, or by way of a change.
    let mut line = guarded.connect(1);
    line.send(b"get a\r\nappend a 0 0 1\r\n!\r\nget a\r\nset a 0 0 3\r\nnew\r\nget a\r\n");
    let refused = "SERVER_ERROR an object does not fit its digest\r\n";
    let wanted = format!("{refused}{refused}{refused}STORED\r\nVALUE a 0 3\r\nnew\r\nEND\r\n");
    let mut said = vec![0; wanted.len()];
    line.0.read_exact(&mut said).unwrap();
    assert_eq!(text(&said), wanted);
}

#[test]
fn without_a_strike_no_alarm_rings() {
    let group = Group::start(&[]);
    let mut lines: Vec<Line> = (0..3).map(|replica| group.connect(replica)).collect();
    for round in 0..200 {
        let replica = round % 3;
        lines[replica].set(&format!("k{}", round % 17), &format!("value {round}"));
        let other = (round + 1) % 3;
        assert_eq!(
            lines[other].get(&format!("k{}", round % 17)),
            format!("value {round}")
        );
    }
    for replica in 0..3 {
        let counts = group.status(replica)["counts"].clone();
        for alarm in ["mismatches", "repairs", "refused", "poison"] {
            assert_eq!(counts[alarm], 0, "{alarm} of replica {replica}: {counts}");
        }
    }
}

#[test]
fn many_clients_at_once_and_a_strike_every_few_requests_and_no_reply_is_wrong() {
    let group = Group::start(&[]);
    let clients = 6;
    let rounds = 60;
    std::thread::scope(|scope| {
        for client in 0..clients {
            let at = &group.clients;
            scope.spawn(move || {
                let mut line = Line::to(at[client % 3]);
                for round in 0..rounds {
                    let key = format!("c{client}");
                    let value = format!("client {client} round {round}");
                    line.set(&key, &value);
                    if round % 10 == 5 {
                        // The one that has answered: another may not have executed it yet, and would mask the strike.
                        let victim = client % 3;
                        let struck = Line::to(at[victim]).ask(&format!(
                            "sf strike replica={victim} object=item:{key} byte={} bit={}\r\n",
                            round % 8,
                            round % 7
                        ));
                        assert_eq!(struck, "STRUCK\r\n");
                    }
                    assert_eq!(line.get(&key), value);
                }
            });
        }
    });
    let strikes = (clients * rounds / 10) as u64;
    // The right reply came from another replica, so the next `set` may take the place of a struck value before it is repaired.
    let least = strikes * 3 / 4;
    let until = Instant::now() + PATIENCE;
    let repairs = loop {
        let statuses: Vec<Value> = (0..3).map(|replica| group.status(replica)).collect();
        for status in &statuses {
            assert_eq!(status["counts"]["refused"], 0, "{status}");
        }
        let repairs: u64 = statuses
            .iter()
            .map(|status| status["counts"]["repairs"].as_u64().unwrap())
            .sum();
        // The last repair may still be under way behind its reply.
        if repairs >= least || Instant::now() > until {
            break repairs;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(
        (least..=strikes).contains(&repairs),
        "{repairs} of {strikes}"
    );
    // Whatever was not repaired was written anew.
    let at = group.clients[0].to_string();
    let verified = kv().args(["verify", "--at", &at]).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn a_comparison_of_everything_finds_what_nobody_asks_for() {
    let group = Group::start(&[]);
    let mut line = group.connect(0);
    for key in 0..40 {
        line.set(&format!("cold{key}"), "value");
    }
    let verify = || {
        let out = kv()
            .args(["verify", "--at", &group.clients[1].to_string()])
            .output()
            .unwrap();
        (out.status.code(), text(&out.stdout))
    };
    let (code, said) = verify();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("40 objects compared") && said.contains(" 0 differed"),
        "{said}"
    );
    for (replica, key) in [(0, 3), (2, 7)] {
        assert!(
            group
                .strike(&format!(
                    "replica={replica} object=item:cold{key} byte=0 bit=0"
                ))
                .status
                .success()
        );
    }
    let (code, said) = verify();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("replica 0 item:cold3") && said.contains("replica 2 item:cold7"),
        "{said}"
    );
    let (_, said) = verify();
    assert!(said.contains(" 0 differed"), "{said}");
}

#[test]
fn a_reply_that_changes_after_its_vote_reaches_a_stock_client_and_never_one_with_the_envelope() {
    let group = Group::start(&[]);
    group.connect(0).set("a", "hello");
    let with_envelope = || {
        let stream = TcpStream::connect(group.clients[1]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let line = Connection::negotiate(stream, 0x1234).unwrap();
        assert!(line.enveloped());
        line
    };
    let ask = |line: &mut Connection<TcpStream>, request: &str| {
        line.send(request.as_bytes())?;
        let mut said = Vec::new();
        while !said.ends_with(b"END\r\n") && !said.ends_with(b"STORED\r\n") {
            if line.receive(&mut said)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        std::io::Result::Ok(text(&said))
    };
    let mut line = with_envelope();
    let large = "y".repeat(100_000);
    let stored = ask(&mut line, &format!("set b 0 0 100000\r\n{large}\r\n"));
    assert_eq!(stored.unwrap(), "STORED\r\n");
    assert_eq!(
        ask(&mut line, "get a b\r\n").unwrap(),
        format!("VALUE a 0 5\r\nhello\r\nVALUE b 0 100000\r\n{large}\r\nEND\r\n")
    );

    // What flips behind the last check of a reply is found by a client that checks itself.
    let strike = || {
        let struck = group.strike("replica=1 message=reply bit=107");
        assert!(struck.status.success(), "{}", text(&struck.stderr));
    };
    strike();
    assert_ne!(group.connect(1).get("a"), "hello");
    strike();
    assert!(ask(&mut line, "get a\r\n").is_err());
    assert_eq!(
        ask(&mut with_envelope(), "get a\r\n").unwrap(),
        "VALUE a 0 5\r\nhello\r\nEND\r\n"
    );

    // A request that is damaged on its way is not executed.
    let stream = TcpStream::connect(group.clients[1]).unwrap();
    let mut stream = BufReader::new(stream);
    stream.get_mut().write_all(hello(9).as_bytes()).unwrap();
    let mut agreed = String::new();
    stream.read_line(&mut agreed).unwrap();
    let mut sealed = Vec::new();
    Sealer::new(9, Sender::Client).seal(b"set a 0 0 5\r\nhallo\r\n", &mut sealed);
    sealed[16 + 14] ^= 1;
    stream.get_mut().write_all(&sealed).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert_eq!(group.connect(1).get("a"), "hello");
}

#[test]
fn the_scrubber_finds_what_nobody_asks_for_and_is_silent_where_nothing_is_wrong() {
    // A shard every 8 ms.
    let group = Group::start(&["--scrub", "2"]);
    let mut line = group.connect(0);
    for key in 0..40 {
        line.set(&format!("cold{key}"), "value");
    }
    let counts = |replica| group.status(replica)["counts"].clone();
    let until = Instant::now() + PATIENCE;
    // Once around at least.
    while counts(1)["scrubbed"].as_u64().unwrap() < 80 {
        assert!(Instant::now() < until, "{}", counts(1));
        std::thread::sleep(Duration::from_millis(50));
    }
    for alarm in ["mismatches", "repairs", "scrub_found"] {
        assert_eq!(counts(1)[alarm], 0, "{alarm}");
    }
    let struck = group.strike("replica=2 object=item:cold3 byte=0 bit=0");
    assert!(struck.status.success(), "{}", text(&struck.stderr));
    let event = group.event("repaired");
    assert_eq!(
        (&event["object"], &event["replica"]),
        (&"item:cold3".into(), &2.into())
    );
    while counts(0)["scrub_found"] != 1 {
        assert!(Instant::now() < until, "{}", counts(0));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The number by which the oldest item is known is struck in one replica, which would have another one go than the others.
#[test]
fn replicas_agree_on_which_item_goes_for_want_of_room() {
    let group = Group::start(&["--memory", "1"]);
    let mut line = group.connect(0);
    let value = |key: usize| key.to_string().repeat(100_000);
    for key in 0..12 {
        line.set(&format!("a{key}"), &value(key));
        let oldest = format!("replica=1 object=item:a{key} field=cas byte=1 bit=3");
        if key == 2 {
            let struck = group.strike(&oldest);
            assert!(struck.status.success(), "{}", text(&struck.stderr));
        }
    }
    // A quarter of what was stored has gone, the same everywhere; the new ones are there.
    let left = |asked: usize| -> Vec<usize> {
        let mut line = group.connect(asked);
        (0..12)
            .filter(|key| line.get(&format!("a{key}")) == value(*key))
            .collect()
    };
    let first = left(0);
    assert_eq!(first, (12 - first.len()..12).collect::<Vec<_>>());
    assert!(first.len() < 12 && first.len() > 4, "{first:?}");
    assert_eq!(left(1), first);
    assert_eq!(left(2), first);
    super::messages::nothing_differs(&group);
    assert_eq!(group.event("repaired")["replica"], 1);
    assert!(group.status(0)["evictions"].as_u64().unwrap() > 0);
}

/// What all items weigh would be wrong in each replica, in another way: it is no part of the vote.
#[test]
fn different_items_that_are_hit_in_all_replicas_at_once_leave_a_majority() {
    let group = Group::start(&["--scrub", "0"]);
    let mut line = group.connect(0);
    for round in 0..8 {
        let items = [5, 50, 500].map(|length| "v".repeat(length));
        for (replica, value) in items.iter().enumerate() {
            line.set(&format!("k{replica}"), value);
        }
        for replica in 0..3 {
            let strike =
                format!("replica={replica} object=item:k{replica} field=key byte=0 bit={round}");
            assert!(group.strike(&strike).status.success());
        }
        // One entry: each replica leaves another item where it is.
        line.send(b"delete k0\r\ndelete k1\r\ndelete k2\r\n");
        let mut said = vec![0; 27];
        line.0.read_exact(&mut said).unwrap();
        assert_eq!(text(&said), "DELETED\r\n".repeat(3), "round {round}");
        assert_eq!(line.get("k1"), "END");
    }
    let at = group.clients[0].to_string();
    let verified = kv().args(["verify", "--at", &at]).output().unwrap();
    assert!(text(&verified.stdout).contains(" 0 differed"));
    for replica in 0..3 {
        let status = group.status(replica);
        assert_eq!((&status["held"], &status["items"]), (&0.into(), &0.into()));
        assert_eq!(status["counts"]["refused"], 0, "{status}");
    }
}
