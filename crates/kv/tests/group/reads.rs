//! Reads beside the log: what they show, what they check, and that anything in doubt takes the vote.

use super::*;

fn number(group: &Group, replica: usize, name: &str) -> u64 {
    let status = group.status(replica);
    status[name]
        .as_u64()
        .or_else(|| status["counts"][name].as_u64())
        .unwrap_or_else(|| panic!("no {name} in {status}"))
}

#[test]
fn local_reads_show_what_any_replica_has_answered_and_leave_the_log_alone() {
    let group = Group::start(&["--reads", "local", "--scrub", "0"]);
    let mut lines: Vec<Line> = (0..3).map(|replica| group.connect(replica)).collect();
    for (number, step) in memcached::swept_counting_requests(12, 600)
        .into_iter()
        .enumerate()
    {
        let line = &mut lines[number % 3];
        line.send(&step.request);
        let mut reply = vec![0; step.reply.len()];
        line.0.read_exact(&mut reply).unwrap();
        assert_eq!(
            text(&reply),
            text(&step.reply),
            "step {number}: {:?}",
            text(&step.request)
        );
    }
    for round in 0..100 {
        lines[round % 3].set("a", &format!("value {round}"));
        for (other, line) in lines.iter_mut().enumerate() {
            assert_eq!(
                line.get("a"),
                format!("value {round}"),
                "round {round}, replica {other}"
            );
        }
    }
    let before: Vec<u64> = (0..3)
        .map(|replica| number(&group, replica, "entries"))
        .collect();
    for round in 0..90 {
        assert_eq!(lines[round % 3].get("a"), "value 99");
    }
    for (replica, before) in before.iter().enumerate() {
        assert!(
            number(&group, replica, "reads_local") >= 30,
            "replica {replica}"
        );
        assert_eq!(
            number(&group, replica, "entries"),
            *before,
            "replica {replica}"
        );
    }
    let stats = group.connect(1).ask("stats\r\n");
    assert!(stats.starts_with("STAT pid"), "{stats}");
}

#[test]
fn a_local_read_of_a_struck_or_lost_item_is_voted_on_and_right() {
    let group = Group::start(&["--reads", "local"]);
    group.connect(0).set("a", "hello");
    for victim in 0..3 {
        assert_eq!(group.connect(victim).get("a"), "hello");
        let logged = number(&group, victim, "reads_logged");
        let line = format!("replica={victim} object=item:a byte=2 bit=3");
        assert!(group.strike(&line).status.success());
        assert_eq!(group.connect(victim).get("a"), "hello", "replica {victim}");
        let event = group.event("repaired");
        assert_eq!(
            (&event["replica"], &event["passive"]),
            (&victim.into(), &true.into())
        );
        assert!(number(&group, victim, "reads_logged") > logged);
    }
    // Its key unreadable, an item is as good as lost: a miss is never answered alone.
    assert!(
        group
            .strike("replica=1 object=item:a field=key byte=0 bit=1")
            .status
            .success()
    );
    assert_eq!(group.connect(1).get("a"), "hello");
}

#[test]
fn a_plain_read_serves_what_is_stored_and_a_voted_one_beside_it_what_is_right() {
    let group = Group::start(&["--reads", "plain,gets=voted"]);
    let mut line = group.connect(1);
    line.set("a", "hello");
    assert_eq!(line.get("a"), "hello");
    assert!(
        group
            .strike("replica=1 object=item:a byte=2 bit=3")
            .status
            .success()
    );
    assert_eq!(line.get("a"), "hedlo");
    let head = line.ask("gets a\r\n");
    assert!(head.starts_with("VALUE a 0 5 "), "{head}");
    let mut rest = [0; 12];
    line.0.read_exact(&mut rest).unwrap();
    assert_eq!(text(&rest), "hello\r\nEND\r\n");
    group.event("repaired");
    assert_eq!(line.get("a"), "hello");
    let at = group.clients[1].to_string();
    let said = kv().args(["status", "--at", &at]).output().unwrap();
    assert!(
        text(&said.stdout).contains("get plain, gets voted, mg plain"),
        "{said:?}"
    );
    assert_eq!(number(&group, 1, "reads_plain"), 3);
}

#[test]
fn time_passes_for_local_reads_and_they_go_on_when_the_leader_dies() {
    let group = Group::start(&["--reads", "local"]);
    let leader = usize::try_from(group.status(0)["leader"].as_u64().unwrap()).unwrap();
    let mut line = group.connect((leader + 1) % 3);
    line.set("kept", "value");
    assert_eq!(line.ask("set brief 0 1 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(line.get("brief"), "x");
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(line.get("brief"), "END");
    let killed = Command::new("kill")
        .args(["-9", &group.pids[leader].to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        assert_eq!(line.get("kept"), "value");
    }
    assert!(number(&group, (leader + 1) % 3, "reads_local") > 10);
}

#[test]
fn a_mode_that_does_not_exist_is_refused_with_its_fix() {
    for modes in ["fast", "set=local"] {
        let said = kv()
            .args(["--local", "3", "--reads", modes])
            .output()
            .unwrap();
        assert_eq!(said.status.code(), Some(64));
        assert!(text(&said.stderr).contains("fix:"), "{said:?}");
    }
}
