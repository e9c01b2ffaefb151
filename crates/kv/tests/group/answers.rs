//! What clients and users are answered where nothing is struck: memcached's commands, rubbish, and wrong flags.

use super::*;

/// Each replica in turn is asked; what one has been told the others know.
#[test]
fn replies_are_those_of_the_reference_model_whoever_is_asked() {
    let group = Group::start(&[]);
    let mut lines: Vec<Line> = (0..3).map(|replica| group.connect(replica)).collect();
    for (number, step) in memcached::swept_counting_requests(11, 1200)
        .into_iter()
        .enumerate()
    {
        let line = &mut lines[number % 3];
        line.send(&step.request);
        let mut reply = vec![0; step.reply.len()];
        let read = line.0.read_exact(&mut reply);
        assert!(
            read.is_ok(),
            "step {number}: {:?}: {} came",
            text(&step.request),
            text(&reply)
        );
        assert_eq!(
            text(&reply),
            text(&step.reply),
            "step {number}: {:?}",
            text(&step.request)
        );
    }
}

#[test]
fn what_is_wrong_on_the_command_line_is_said_with_its_fix() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    struct Wrong<'a> {
        arguments: Vec<&'a str>,
        code: i32,
        words: &'a str,
    }
    for Wrong {
        arguments,
        code,
        words,
    } in [
        Wrong {
            arguments: vec!["--local", "4"],
            code: 64,
            words: "3, 5 or 7",
        },
        Wrong {
            arguments: vec!["--local", "3", "--port", &port],
            code: 121,
            words: "cannot be had",
        },
        Wrong {
            arguments: vec!["--local", "3", "--stage", "Q"],
            code: 64,
            words: "RDGX",
        },
        Wrong {
            arguments: vec!["status", "--at", "127.0.0.1:1"],
            code: 121,
            words: "no replica answers",
        },
    ] {
        let out = kv().args(&arguments).output().unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let group = Group::start(&[]);
    group.connect(0).set("a", "hello");
    for (line, words) in [
        ("replica=1 object=item:a byte=5 bit=0", "below 5"),
        ("replica=1 object=item:b byte=0 bit=0", "does not exist"),
        ("replica=3 object=item:a byte=0 bit=0", "replicas 0 to 2"),
        ("replica=1 event=4 reg=rax bit=0", "steadfast run --flip"),
        ("replica=1 object=a byte=0 bit=0", "item:KEY"),
    ] {
        let out = group.strike(line);
        assert!(!out.status.success());
        assert!(
            text(&out.stderr).contains(words),
            "{line}: {}",
            text(&out.stderr)
        );
    }
    assert_eq!(group.connect(1).get("a"), "hello");
}

#[test]
fn memccapable_passes_its_checks_of_the_text_protocol() {
    let group = Group::start(&[]);
    let at = group.clients[1];
    let out = Command::new("memccapable")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &at.port().to_string(),
            "-a",
            "-t",
            "60",
        ])
        .output()
        .expect("memccapable of libmemcached-tools, as tests/packages.txt says");
    let said = text(&out.stdout);
    assert!(
        said.contains("All tests passed"),
        "{said}{}",
        text(&out.stderr)
    );
    assert_eq!(said.matches("[pass]").count(), 27, "{said}");
}

#[test]
fn rubbish_from_a_client_is_answered_and_harms_nobody() {
    let group = Group::start(&[]);
    group.connect(0).set("a", "hello");
    for rubbish in [
        &b"\x80\0\0\0"[..],
        b"\0\0\0\r\n",
        b"set a 0 0 -1\r\n",
        b"get \xff\xfe\r\n",
        &[b'x'; 70_000],
    ] {
        let mut line = group.connect(1);
        line.send(rubbish);
        line.0
            .get_mut()
            .shutdown(std::net::Shutdown::Write)
            .unwrap();
        let mut said = Vec::new();
        let _ = line.0.read_to_end(&mut said);
        assert!(
            !said.is_empty(),
            "{:?}",
            text(&rubbish[..rubbish.len().min(20)])
        );
    }
    assert_eq!(group.connect(1).get("a"), "hello");
}

/// Requests wait for each other as long as they are told to, and no longer once there are enough.
#[test]
fn an_entry_has_as_many_requests_as_it_is_to_have() {
    let group = Group::start(&["--batch", "5", "--batch-ms", "400"]);
    let mut line = group.connect(0);
    let took = |line: &mut Line, count: usize| {
        let began = Instant::now();
        line.send("get a\r\n".repeat(count).as_bytes());
        for _ in 0..count {
            let mut said = String::new();
            line.0.read_line(&mut said).unwrap();
            assert_eq!(said, "END\r\n");
        }
        began.elapsed()
    };
    assert!(took(&mut line, 1) >= Duration::from_millis(400));
    let enough = (0..5).map(|_| took(&mut line, 5)).min().unwrap();
    assert!(enough < Duration::from_millis(400), "{enough:?}");
    for wrong in ["0", "513", "many"] {
        let said = kv()
            .args(["--local", "3", "--batch", wrong])
            .output()
            .unwrap();
        let text = text(&said.stderr);
        assert!(!said.status.success());
        assert!(
            text.contains("requirement: 1 to 512 requests") && text.contains("fix:"),
            "{text}"
        );
    }
}

#[test]
fn a_reply_that_no_replica_could_hold_is_refused_by_all_alike() {
    let group = Group::start(&[]);
    let mut line = group.connect(0);
    line.set("a", &"x".repeat(1_000_000));
    let many = |count: usize| format!("get{}\r\n", " a".repeat(count));
    for _ in 0..3 {
        assert!(
            line.ask(&many(5000))
                .starts_with("SERVER_ERROR more than 64 MiB")
        );
    }
    // Twenty fit.
    line.send(many(20).as_bytes());
    let mut reply = vec![0; 20 * ("VALUE a 0 1000000\r\n".len() + 1_000_002) + 5];
    line.0.read_exact(&mut reply).unwrap();
    assert!(reply.ends_with(b"END\r\n"));
    assert_eq!(group.status(1)["counts"]["mismatches"], 0);
    // A number that is none is refused: without it the request would store whatever there is.
    assert!(line.ask("ms a 1 Cx\r\ny\r\n").starts_with("CLIENT_ERROR"));
}

#[test]
fn a_replica_with_all_its_connections_taken_still_hears_its_group() {
    let group = Group::start(&["--connections", "4"]);
    let mut taken: Vec<Line> = (0..4).map(|_| group.connect(0)).collect();
    for line in &mut taken {
        line.set("a", "value");
    }
    let refused = "SERVER_ERROR too many connections\r\n";
    assert_eq!(group.connect(0).ask("get a\r\n"), refused);
    assert_eq!(group.status(0)["replica"], 0);
    assert_eq!(taken[0].get("a"), "value");
    // And who says nothing is told so.
    let mut said = String::new();
    group.connect(0).0.read_line(&mut said).unwrap();
    assert_eq!(said, refused);
}

/// As memcached: its bytes are read past as they come, the connection goes on behind them, and what was there before is gone.
#[test]
fn a_value_far_above_the_limit_is_skipped_and_leaves_no_older_one_behind() {
    let group = Group::start(&[]);
    let mut line = group.connect(0);
    // What looks like a command within it is none.
    let value = b"delete kept\r\n   ".repeat(20 << 16);
    let length = value.len();
    let send = |line: &mut Line, head: String| {
        line.send(head.as_bytes());
        line.send(&value);
        line.send(b"\r\nget kept\r\n");
        let mut said = vec![0; 41 + 26];
        line.0.read_exact(&mut said).unwrap();
        assert_eq!(
            text(&said),
            "SERVER_ERROR object too large for cache\r\nVALUE kept 0 3\r\nold\r\nEND\r\n",
            "{head:?}"
        );
    };
    for (head, goes) in [
        (format!("set a 0 0 {length}\r\n"), true),
        (format!("ms a {length} T30\r\n"), true),
        (format!("add a 0 0 {length}\r\n"), false),
    ] {
        line.set("a", "old");
        line.set("kept", "old");
        send(&mut line, head.clone());
        let left = group.connect(1).get("a");
        assert_eq!(left, if goes { "END" } else { "old" }, "{head:?}");
    }
}
