//! Replicas with one, two and four threads that execute, in one group.

use super::*;

const MIXED: [&str; 2] = ["--workers", "1,2,4"];

/// Many requests at once from each of three clients, some of them on keys that all share.
fn work(clients: &[SocketAddr], rounds: usize) {
    std::thread::scope(|scope| {
        for (client, at) in clients.iter().enumerate() {
            scope.spawn(move || {
                let mut line = Line::to(*at);
                for round in 0..rounds {
                    let mut asked = String::new();
                    let mut wanted = String::new();
                    for key in 0..16 {
                        asked += &format!("set c{client}-{key} 0 0 3\r\n{:03}\r\n", round % 1000);
                        asked += &format!("get c{client}-{key}\r\nincr shared-{key} 1 noreply\r\n");
                        wanted += "STORED\r\n";
                        wanted += &format!(
                            "VALUE c{client}-{key} 0 3\r\n{:03}\r\nEND\r\n",
                            round % 1000
                        );
                    }
                    line.send(asked.as_bytes());
                    let mut said = vec![0; wanted.len()];
                    line.0.read_exact(&mut said).unwrap();
                    assert_eq!(text(&said), wanted);
                }
            });
        }
    });
}

fn counts(group: &Group, name: &str) -> u64 {
    (0..3)
        .map(|replica| group.status(replica)["counts"][name].as_u64().unwrap())
        .sum()
}

fn set_shared(group: &Group) {
    let mut line = group.connect(0);
    for key in 0..16 {
        line.set(&format!("shared-{key}"), "0");
    }
}

fn right(group: &Group, rounds: usize) {
    for replica in 0..3 {
        let mut line = group.connect(replica);
        for key in 0..16 {
            let count = line.get(&format!("shared-{key}"));
            assert_eq!(count, (3 * rounds).to_string(), "shared-{key}");
        }
    }
    let at = group.clients[0].to_string();
    let verified = kv().args(["verify", "--at", &at]).output().unwrap();
    let said = text(&verified.stdout);
    assert!(said.contains(" 0 differed"), "{said}");
}

#[test]
fn replicas_with_different_numbers_of_threads_never_differ() {
    let group = Group::start(&MIXED);
    set_shared(&group);
    work(&group.clients, 200);
    right(&group, 200);
    for harm in ["mismatches", "repairs", "refused"] {
        assert_eq!(counts(&group, harm), 0, "{harm}");
    }
    for (replica, threads) in [1, 2, 4].into_iter().enumerate() {
        let status = group.status(replica);
        assert_eq!(status["workers"], threads);
        let spread = status["spread"].as_u64().unwrap();
        assert_eq!(spread > 10_000, threads > 1, "{threads}: {spread}");
    }
}

#[test]
fn a_struck_object_is_repaired_whatever_number_of_threads_its_replica_has() {
    let group = Group::start(&MIXED);
    set_shared(&group);
    std::thread::scope(|scope| {
        let clients = &group.clients;
        let busy = scope.spawn(|| work(clients, 150));
        for round in 0..12 {
            let victim = round % 3;
            let line = format!("replica={victim} object=item:shared-{round} byte=0 bit=3");
            let struck = group.strike(&line);
            assert!(struck.status.success(), "{}", text(&struck.stderr));
            std::thread::sleep(Duration::from_millis(30));
        }
        busy.join().unwrap();
    });
    right(&group, 150);
    assert_eq!(counts(&group, "refused"), 0);
    assert!(counts(&group, "repairs") >= 6);
}

#[test]
fn a_number_of_threads_that_makes_no_sense_is_refused() {
    for bad in ["0", "17", "two", "1,0"] {
        let told = kv()
            .args(["--local", "3", "--workers", bad])
            .output()
            .unwrap();
        assert!(!told.status.success());
        let said = text(&told.stderr);
        assert!(said.contains("1 to 16 threads that execute"), "{said}");
        assert!(said.contains("fix:"), "{said}");
    }
}
