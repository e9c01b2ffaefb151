//! Alarms about nothing, and faults while a replica repairs: neither may change a reply.

use super::serve::Hosts;
use super::*;

/// Strikes what these replicas tell the others while clients of all three work; how often a replica saw a mismatch.
fn alarmed(group: &Group, replicas: &[usize]) -> u64 {
    std::thread::scope(|scope| {
        for (client, at) in group.clients.iter().enumerate() {
            scope.spawn(move || {
                let mut line = Line::to(*at);
                for round in 0..60 {
                    // The others have their own clients, so the strikes fall into different entries.
                    if round % 12 == 0 && replicas.contains(&client) {
                        let strike =
                            format!("sf strike replica={client} message=check bit={round}\r\n");
                        assert_eq!(line.ask(&strike), "STRUCK\r\n");
                    }
                    let (key, value) = (format!("c{client}"), format!("round {round}"));
                    line.set(&key, &value);
                    assert_eq!(line.get(&key), value);
                }
            });
        }
    });
    let counts: Vec<Value> = (0..3).map(|r| group.status(r)["counts"].clone()).collect();
    for count in &counts {
        for harm in ["repairs", "refused"] {
            assert_eq!(count[harm], 0, "{harm}: {count}");
        }
    }
    counts
        .iter()
        .map(|count| count["mismatches"].as_u64().unwrap())
        .sum()
}

#[test]
fn digests_that_flip_on_their_way_ring_an_alarm_and_repair_nothing() {
    let group = Group::start(&[]);
    assert_eq!(alarmed(&group, &[]), 0, "nothing was struck");
    let one = alarmed(&group, &[1]);
    assert!(one > 0, "nobody heard of it");
    assert!(alarmed(&group, &[0, 1, 2]) > one);
    let at = group.clients[0].to_string();
    let verified = kv().args(["verify", "--at", &at]).output().unwrap();
    assert!(text(&verified.stdout).contains(" 0 differed"));
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
