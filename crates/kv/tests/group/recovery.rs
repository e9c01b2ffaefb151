//! Faults and deaths while a replica is being repaired: surely within, since the one that is repaired is stopped in the middle of it.

use std::os::unix::process::ExitStatusExt as _;

use super::serve::Hosts;
use super::*;

/// Large and many, so that a repair has a middle: a REPAIR carries one of them.
const OBJECTS: usize = 12;
const BYTES: usize = 300_000;

fn value(key: usize) -> String {
    format!("{key:03} ").repeat(BYTES / 4)
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.unwrap().success(), "{name} {pid}");
}

/// How many objects of this replica have been repaired, and from whom the last was.
fn repaired(hosts: &Hosts, replica: usize) -> (usize, Option<usize>) {
    let lines = hosts.lines("\"event\":\"repaired\"");
    let of: Vec<Value> = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &Value| event["replica"] == replica)
        .collect();
    let source = of.last().and_then(|event| event["source"].as_u64());
    (of.len(), source.and_then(|source| source.try_into().ok()))
}

/// Strikes every object of a replica, has them looked at, and stops the replica while some are repaired and others are not. Who gives it
/// the right ones.
fn stopped_within(hosts: &Hosts, victim: usize) -> usize {
    for _ in 0..20 {
        let mut line = hosts.connect(victim);
        assert_eq!(
            line.get("k0").len(),
            BYTES,
            "it has executed what came before"
        );
        for key in 0..OBJECTS {
            let byte = 1000 * key + 7;
            let strike =
                format!("sf strike replica={victim} object=item:k{key} byte={byte} bit=1\r\n");
            assert_eq!(line.ask(&strike), "STRUCK\r\n");
        }
        let before = repaired(hosts, victim).0;
        let looks: String = (0..OBJECTS).map(|key| format!("mg k{key}\r\n")).collect();
        line.send(looks.as_bytes());
        hosts.wait_for("the first is repaired", Duration::from_micros(200), || {
            repaired(hosts, victim).0 > before
        });
        signal(hosts.pid(victim), "-STOP");
        // What it had said before it was stopped is heard by then; one more may be right and not have been named.
        std::thread::sleep(Duration::from_millis(100));
        let (count, source) = repaired(hosts, victim);
        if count - before + 1 < OBJECTS {
            return source.unwrap();
        }
        signal(hosts.pid(victim), "-CONT");
    }
    panic!("every repair was over before its replica could be stopped");
}

/// Everything is right in every replica, whoever is asked.
fn all_is_right(hosts: &Hosts) {
    for replica in 0..3 {
        for key in 0..OBJECTS {
            let mut said = String::new();
            hosts.wait("it is answered", || {
                said = hosts.connect(replica).get(&format!("k{key}"));
                !said.starts_with("SERVER_ERROR")
            });
            assert!(said == value(key), "replica {replica} k{key} is wrong");
        }
    }
    let at = hosts.clients[0].to_string();
    hosts.wait("nothing differs", || {
        let verified = kv().args(["verify", "--at", &at]).output().unwrap();
        text(&verified.stdout).contains(" 0 differed")
    });
}

/// Makes a replica the leader.
fn lead(hosts: &Hosts, replica: usize) {
    hosts.wait("the lead is handed on", || {
        let said = kv()
            .args(["transfer", "--to", &replica.to_string()])
            .args(["--at", &hosts.clients[replica].to_string()])
            .arg("--secret-file")
            .arg(hosts.secret())
            .output()
            .unwrap();
        said.status.success()
    });
}

#[test]
fn whoever_dies_within_a_recovery_what_is_answered_is_right_and_the_rest_is_repaired() {
    let mut hosts = Hosts::new("within", &[]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    for key in 0..OBJECTS {
        hosts.connect(0).set(&format!("k{key}"), &value(key));
    }
    struct Row {
        leader: usize,
        victim: usize,
        dies: &'static str,
    }
    // Who leads, who is struck, and whom of the struck one, its donor and the third a kill hits.
    for Row {
        leader,
        victim,
        dies,
    } in [
        Row {
            leader: 0,
            victim: 1,
            dies: "leader",
        },
        Row {
            leader: 0,
            victim: 1,
            dies: "victim",
        },
        Row {
            leader: 2,
            victim: 2,
            dies: "victim",
        },
        Row {
            leader: 1,
            victim: 0,
            dies: "donor",
        },
    ] {
        lead(&hosts, leader);
        let donor = stopped_within(&hosts, victim);
        let dead = match dies {
            "leader" => leader,
            "victim" => victim,
            _ => donor,
        };
        assert_eq!(hosts.end(dead, "-KILL").signal(), Some(9));
        if dead != victim {
            signal(hosts.pid(victim), "-CONT");
            // The two that are left: one wrong, one right, and the evidence of the digests at rest.
            let mut said = String::new();
            hosts.wait("the repaired one answers", || {
                said = hosts.connect(victim).get("k11");
                !said.starts_with("SERVER_ERROR")
            });
            assert!(said == value(11), "{dies} {dead}: k11 is wrong");
        }
        hosts.start(dead);
        hosts.wait_ready(dead);
        all_is_right(&hosts);
    }
}

#[test]
fn a_leader_that_dies_and_a_second_fault_while_a_replica_repairs_change_no_reply() {
    let mut hosts = Hosts::new("recovery", &[]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    // Large, so that fetching them takes a while.
    let value = |key: usize| format!("{key}").repeat(10_000);
    let keys = 10..18;
    for key in keys.clone() {
        hosts.connect(0).set(&format!("k{key}"), &value(key));
    }
    let leader = usize::try_from(hosts.status(0)["leader"].as_u64().unwrap()).unwrap();
    let (victim, third) = ((leader + 1) % 3, (leader + 2) % 3);
    // Whoever has answered has executed what came before.
    assert_eq!(hosts.connect(victim).get("k17"), value(17));
    for key in keys.clone() {
        let strike = format!("sf strike replica={victim} object=item:k{key} byte={key} bit=1\r\n");
        assert_eq!(hosts.connect(victim).ask(&strike), "STRUCK\r\n");
    }
    let mut reader = hosts.connect(third);
    for key in keys.clone() {
        reader.send(format!("get k{key}\r\n").as_bytes());
    }
    hosts.wait("the first is repaired", || {
        hosts.heard("\"event\":\"repaired\"")
    });
    // The rest may be under way: what is repaired, what leads, and what is right change at once.
    let mut line = hosts.connect(third);
    let strike = format!("sf strike replica={third} object=item:k10 byte=5 bit=5\r\n");
    assert_eq!(line.ask(&strike), "STRUCK\r\n");
    hosts.end(leader, "-KILL");
    for replica in [victim, third] {
        for key in keys.clone() {
            let mut said = String::new();
            hosts.wait("it is answered", || {
                said = hosts.connect(replica).get(&format!("k{key}"));
                !said.starts_with("SERVER_ERROR")
            });
            assert!(said == value(key), "replica {replica} k{key} is wrong");
        }
    }
    hosts.start(leader);
    hosts.wait_ready(leader);
    for key in keys {
        assert!(hosts.connect(leader).get(&format!("k{key}")) == value(key));
    }
    let at = hosts.clients[third].to_string();
    let verified = kv().args(["verify", "--at", &at]).output().unwrap();
    assert!(verified.status.success(), "{}", text(&verified.stderr));
    assert!(text(&verified.stdout).contains(" 0 differed"));
}
