//! Alarms about nothing: they change no reply, and whatever number of threads a replica has.

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
    let group = Group::start(&["--workers", "1,2,4"]);
    assert_eq!(alarmed(&group, &[]), 0, "nothing was struck");
    let one = alarmed(&group, &[1]);
    assert!(one > 0, "nobody heard of it");
    assert!(alarmed(&group, &[0, 1, 2]) > one);
    let at = group.clients[0].to_string();
    let verified = kv().args(["verify", "--at", &at]).output().unwrap();
    assert!(text(&verified.stdout).contains(" 0 differed"));
}
