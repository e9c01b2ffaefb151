//! Replicas that keep their log on disk: started again alone and together, with a torn log, a flipped byte, and a disk that is full.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};

use steadfast_group::Post;
use steadfast_group::disk::record;
use steadfast_group::wire::{self, Hello};

use super::serve::Hosts;
use super::*;

/// The newest file of a replica's log.
fn log_of(hosts: &Hosts, replica: usize) -> std::path::PathBuf {
    let mut files: Vec<_> = fs::read_dir(hosts.data(replica))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("/log-"))
        .collect();
    files.sort();
    files.pop().expect("a log is on disk")
}

fn up(name: &str, more: &[&str]) -> Hosts {
    let mut hosts = Hosts::new(name, more);
    hosts.keep_data();
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    hosts
}

/// Sets a key, again where the lead is just changing hands.
fn set(hosts: &Hosts, replica: usize, key: &str, value: &str) {
    hosts.wait(&format!("{key} is set"), || {
        let line = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        hosts.connect(replica).ask(&line) == "STORED\r\n"
    });
}

fn flip(path: &std::path::Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    let at = usize::try_from(at).unwrap();
    bytes[at] ^= 1 << 3;
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_was_stored_survives_the_end_of_one_replica_and_of_all() {
    let mut hosts = up("durable", &["--snapshot-every", "100"]);
    let nodes: Vec<Value> = (0..3).map(|r| hosts.status(r)["node"].clone()).collect();
    set(&hosts, 0, "a", "one");
    // So much that a state is stored and the log behind it cut.
    for i in 0..150 {
        set(&hosts, 1, &format!("k{i}"), &i.to_string());
    }
    hosts.wait("a state is stored", || hosts.data(2).join("state").exists());

    // One comes back as who it was, with what it missed, and votes: what is struck in it is repaired.
    hosts.end(2, "-KILL");
    set(&hosts, 0, "b", "two");
    hosts.start(2);
    hosts.wait_ready(2);
    assert_eq!(hosts.status(2)["node"], nodes[2]);
    assert_eq!(hosts.status(2)["joined"], "disk");
    let mut line = hosts.connect(2);
    assert_eq!(line.get("b"), "two");
    let strike = "sf strike replica=2 object=item:a byte=0 bit=0\r\n";
    assert_eq!(line.ask(strike), "STRUCK\r\n");
    assert_eq!(line.get("a"), "one");
    hosts.wait("the repair is counted", || {
        hosts.status(2)["counts"]["repairs"] == 1
    });

    // All at once, without a word.
    for replica in 0..3 {
        hosts.end(replica, "-KILL");
    }
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    for (replica, node) in nodes.iter().enumerate() {
        assert_eq!(hosts.status(replica)["node"], *node);
        let mut line = hosts.connect(replica);
        assert_eq!(line.get("a"), "one");
        assert_eq!(line.get("b"), "two");
        assert_eq!(line.get("k149"), "149");
    }
    set(&hosts, 1, "c", "three");
    assert_eq!(hosts.connect(0).get("c"), "three");
    let at = hosts.clients[0].to_string();
    let verified = kv().args(["verify", "--at", &at]).output().unwrap();
    assert!(verified.status.success(), "{}", text(&verified.stdout));
    assert!(
        text(&verified.stdout).contains(" 0 differed"),
        "{}",
        text(&verified.stdout)
    );
    assert!(!hosts.heard("\"disk\""), "nothing was torn or damaged");
}

#[test]
fn replicas_that_do_not_vote_come_back_too() {
    let mut hosts = up("plain", &["--stage", "RD"]);
    set(&hosts, 0, "a", "one");
    hosts.end(1, "-KILL");
    hosts.start(1);
    hosts.wait_ready(1);
    assert_eq!(hosts.connect(1).get("a"), "one");
    for replica in 0..3 {
        hosts.end(replica, "-KILL");
    }
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    assert_eq!(hosts.connect(2).get("a"), "one");
}

#[test]
fn a_torn_log_is_cut_and_a_flipped_byte_has_the_replica_rebuilt() {
    let mut hosts = up("torn", &[]);
    for i in 0..20 {
        set(&hosts, i % 3, &format!("k{i}"), "value");
    }
    let nodes: Vec<Value> = (0..3).map(|r| hosts.status(r)["node"].clone()).collect();

    // The power failed in the middle of a record: all that was acknowledged is there.
    hosts.end(1, "-KILL");
    let mut log = fs::OpenOptions::new()
        .append(true)
        .open(log_of(&hosts, 1))
        .unwrap();
    let length = log.seek(SeekFrom::End(0)).unwrap();
    log.write_all(&[200, 0, 0]).unwrap();
    hosts.start(1);
    hosts.wait_ready(1);
    assert!(hosts.heard("3 bytes of a record"), "it says what it cut");
    assert_eq!(hosts.status(1)["counts"]["disk_faults"], 0);
    assert!(fs::metadata(log_of(&hosts, 1)).unwrap().len() >= length);
    assert_eq!(hosts.status(1)["node"], nodes[1]);
    assert_eq!(hosts.connect(1).get("k19"), "value");

    // A bit of an entry flipped while nobody read it.
    hosts.end(1, "-KILL");
    flip(&log_of(&hosts, 1), length / 2);
    hosts.start(1);
    hosts.wait_ready(1);
    assert!(hosts.heard("a record does not fit its check"));
    assert_eq!(hosts.status(1)["counts"]["disk_faults"], 1);
    assert_ne!(hosts.status(1)["node"], nodes[1], "another voter");
    assert!(hosts.data(1).join("damaged/replica").exists());
    assert_eq!(hosts.connect(1).get("k19"), "value");

    // In all of them: nobody has what was stored, and no empty group takes its place.
    for replica in 0..3 {
        hosts.end(replica, "-KILL");
        flip(&log_of(&hosts, replica), 20);
    }
    (0..3).for_each(|replica| hosts.start(replica));
    hosts.wait("they refuse", || {
        hosts.heard("no replica has what was stored")
    });
}

/// Has replica 1 come back with what `lose` has left of its directory: the others answer meanwhile, and it is rebuilt as another voter.
fn lost_and_rebuilt(hosts: &mut Hosts, how: &str, lose: impl FnOnce(&Hosts)) {
    let before = hosts.status(1)["node"].clone();
    let others = [0, 2].map(|replica| hosts.status(replica)["node"].clone());
    hosts.end(1, "-KILL");
    lose(hosts);
    hosts.start(1);
    set(hosts, 0, "meanwhile", how);
    assert_eq!(hosts.connect(2).get("meanwhile"), how);
    hosts.wait_ready(1);
    let after = hosts.status(1)["node"].clone();
    assert_ne!(after, before, "{how}: another voter");
    assert_eq!(hosts.connect(1).get("a"), "one", "{how}");
    assert_eq!(hosts.connect(1).get("meanwhile"), how);
    let still = [0, 2].map(|replica| hosts.status(replica)["node"].clone());
    assert_eq!(still, others, "{how}: the same processes");
}

#[test]
fn a_replica_whose_log_is_gone_or_shorter_is_rebuilt_and_stops_nobody() {
    let mut hosts = up("shorter", &[]);
    set(&hosts, 0, "a", "one");
    lost_and_rebuilt(&mut hosts, "only the identity is left", |hosts| {
        for entry in fs::read_dir(hosts.data(1)).unwrap() {
            let path = entry.unwrap().path();
            if !path.ends_with("replica") {
                fs::remove_file(path).unwrap();
            }
        }
    });
    lost_and_rebuilt(&mut hosts, "the log is gone", |hosts| {
        fs::remove_file(log_of(hosts, 1)).unwrap();
    });
    lost_and_rebuilt(&mut hosts, "the log is empty", |hosts| {
        fs::write(log_of(hosts, 1), "").unwrap();
    });
    lost_and_rebuilt(&mut hosts, "the log ends a record too early", |hosts| {
        let log = log_of(hosts, 1);
        let bytes = fs::read(&log).unwrap();
        let (mut last, mut at) = (0, 0);
        while let record::Next::Record(_, end) = record::next(&bytes, at) {
            (last, at) = (at, end);
        }
        assert!(last > 0 && at == bytes.len(), "whole records");
        fs::write(&log, &bytes[..last]).unwrap();
    });
    assert!(hosts.heard("were durable"), "it says why it begins anew");
    assert!(hosts.data(1).join("damaged-3").exists(), "all of it stays");
}

#[test]
fn a_directory_put_back_to_an_older_state_stops_nobody() {
    let mut hosts = up("older", &[]);
    set(&hosts, 0, "a", "one");
    assert_eq!(hosts.connect(1).get("a"), "one");
    let node = hosts.status(1)["node"].clone();
    let older: Vec<_> = fs::read_dir(hosts.data(1))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    set(&hosts, 0, "b", "two");
    hosts.wait("all have it", || hosts.connect(1).get("b") == "two");
    hosts.end(1, "-KILL");
    for (path, bytes) in older {
        fs::write(path, bytes).unwrap();
    }
    hosts.start(1);
    hosts.wait_ready(1);
    assert_eq!(hosts.status(1)["node"], node, "nothing in it tells");
    set(&hosts, 2, "c", "three");
    for replica in 0..3 {
        let mut line = hosts.connect(replica);
        assert_eq!(line.get("b"), "two");
        assert_eq!(line.get("c"), "three");
    }
}

#[test]
fn an_entry_that_does_not_fit_its_check_is_executed_by_nobody_and_stops_nothing() {
    let mut hosts = up("poison", &[]);
    set(&hosts, 0, "a", "one");
    // Bytes that a replica hands on for the log, and that were hit on the way there.
    let secret = fs::read_to_string(hosts.secret()).unwrap();
    let hello = Hello::Vote {
        from: 7,
        to: hosts.status(0)["node"].as_u64().unwrap(),
        secret: u128::from_str_radix(secret.trim(), 16).unwrap(),
    };
    let mut to = TcpStream::connect(&hosts.peers[0]).unwrap();
    to.write_all(&wire::preamble(1)).unwrap();
    to.write_all(&wire::frame(&hello).unwrap()).unwrap();
    for bytes in [vec![], vec![0; 3], vec![0xa5; 100]] {
        let post = Post::Submit(bytes);
        to.write_all(&wire::frame(&post).unwrap()).unwrap();
    }
    for replica in 0..3 {
        hosts.wait("it is counted", || {
            hosts.status(replica)["counts"]["poison"] == 3
        });
        assert_eq!(hosts.connect(replica).get("a"), "one");
        assert_eq!(hosts.status(replica)["counts"]["mismatches"], 0);
    }
    // Nor when it is read from disk.
    hosts.end(1, "-KILL");
    hosts.start(1);
    hosts.wait_ready(1);
    assert_eq!(hosts.status(1)["counts"]["poison"], 3);
    assert_eq!(hosts.connect(1).get("a"), "one");
}

#[test]
fn a_full_disk_ends_one_replica_and_the_others_go_on() {
    let mut hosts = up("full", &[]);
    set(&hosts, 0, "a", "one");
    hosts.end(2, "-KILL");
    // A file that may not grow fails as a disk without room does, in the middle of a record.
    let room = fs::metadata(log_of(&hosts, 2)).unwrap().len() + 3000;
    let limit = format!("--fsize={room}");
    hosts.through[2] = ["prlimit", &limit, "env", "--ignore-signal=XFSZ"]
        .map(str::to_owned)
        .to_vec();
    hosts.start(2);
    hosts.wait_ready(2);
    let value = "v".repeat(1000);
    for i in 0..10 {
        set(&hosts, 0, &format!("k{i}"), &value);
    }
    hosts.wait("it says why it ends", || {
        hosts.heard("nothing can be written any more")
    });
    assert_eq!(hosts.wait_end(2).code(), Some(121));
    set(&hosts, 1, "b", "two");

    // With room it comes back with what it had.
    hosts.through[2].clear();
    hosts.start(2);
    hosts.wait_ready(2);
    let mut line = hosts.connect(2);
    assert_eq!(line.get("b"), "two");
    assert_eq!(line.get("k9"), value);
}

#[test]
fn a_directory_that_is_not_this_replicas_is_refused() {
    let mut hosts = Hosts::new("refused", &[]);
    hosts.keep_data();
    let said = |mut command: Command| {
        let out = command.output().unwrap();
        (out.status.code(), text(&out.stderr))
    };
    hosts.start(0);
    hosts.wait("the directory is taken", || {
        hosts.data(0).join("replica").exists()
    });
    let mut second = hosts.command(1);
    second.arg("--data").arg(hosts.data(0));
    let (code, why) = said(second);
    assert_eq!(code, Some(121));
    assert!(why.contains("one process for a directory"), "{why}");
    hosts.end(0, "-KILL");
    let mut other = hosts.command(1);
    other.arg("--data").arg(hosts.data(0));
    let (code, why) = said(other);
    assert_eq!(code, Some(121));
    assert!(why.contains("found: that of replica 0"), "{why}");
    let mut stage = hosts.command(0);
    stage.args(["--stage", "R", "--data"]).arg(hosts.data(0));
    let (code, why) = said(stage);
    assert_eq!(code, Some(121));
    assert!(why.contains("stage RD or above"), "{why}");
}
