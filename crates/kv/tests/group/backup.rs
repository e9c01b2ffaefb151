//! A backup of one group, and what it brings back in another one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::serve::Hosts;
use super::*;

fn asked(hosts: &Hosts, verb: &[&str], file: &Path, secret: &Path) -> Output {
    let at = hosts.clients[1].to_string();
    kv().args(verb)
        .arg(file)
        .args(["--at", &at, "--secret-file"])
        .arg(secret)
        .output()
        .unwrap()
}

fn up(name: &str) -> Hosts {
    let mut hosts = Hosts::new(name, &["--scrub", "0"]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    hosts
}

#[test]
fn a_backup_holds_what_was_voted_on_and_another_group_gets_all_of_it() {
    let old = up("saved");
    let mut line = old.connect(0);
    let large = "v".repeat(1_000_000);
    for i in 0..200 {
        line.set(&format!("k{i}"), &i.to_string());
    }
    line.set("large", &large);
    line.send(b"set f 77 0 1\r\nx\r\nset over 0 -1 1\r\nx\r\n");
    assert_eq!(line.ask(""), "STORED\r\n");
    assert_eq!(line.ask(""), "STORED\r\n");
    let cas = line.ask("mg f c f\r\n");

    // A bit that flipped while nobody used the item is not saved.
    let mut struck = old.connect(1);
    let strike = "sf strike replica=1 object=item:k7 byte=0 bit=0\r\n";
    assert_eq!(struck.ask(strike), "STRUCK\r\n");
    let file = old.dir.join("backup");
    let said = asked(&old, &["backup"], &file, &old.secret());
    assert!(said.status.success(), "{}", text(&said.stderr));
    assert!(
        text(&said.stdout).starts_with("202 items"),
        "{}",
        text(&said.stdout)
    );
    assert_eq!(old.status(1)["counts"]["repairs"], 1);

    // Nor do eight faults a second keep a backup from being made.
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in (0..200)
                .cycle()
                .take_while(|_| !over.load(Ordering::Relaxed))
            {
                let at = format!("object=item:k{round} byte=0 bit=0");
                let said = struck.ask(&format!("sf strike replica=1 {at}\r\n"));
                assert_eq!(said, "STRUCK\r\n");
                assert_eq!(struck.get(&format!("k{round}")), round.to_string());
                std::thread::sleep(Duration::from_millis(120));
            }
        });
        let said = asked(&old, &["backup"], &file, &old.secret());
        over.store(true, Ordering::Relaxed);
        assert!(said.status.success(), "{}", text(&said.stderr));
        assert!(text(&said.stdout).starts_with("202 items"));
    });
    assert!(old.status(1)["counts"]["repairs"].as_u64() > Some(1));

    // Who does not know the secret gets nothing.
    let other = old.dir.join("other");
    fs::write(&other, "0".repeat(32)).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
    let said = asked(&old, &["backup"], &old.dir.join("none"), &other);
    assert_eq!(said.status.code(), Some(121));
    assert!(text(&said.stderr).contains("the group's secret"));
    assert!(!old.dir.join("none").exists());

    let new = up("restored");
    // One flipped bit in the file, and nothing is restored.
    let mut bytes = fs::read(&file).unwrap();
    let wrong = old.dir.join("wrong");
    bytes[5000] ^= 1;
    fs::write(&wrong, &bytes).unwrap();
    let said = asked(&new, &["restore"], &wrong, &new.secret());
    assert_eq!(said.status.code(), Some(121));
    assert!(text(&said.stderr).contains("restores nothing"));
    assert_eq!(new.status(0)["items"], 0);

    let said = asked(&new, &["restore"], &file, &new.secret());
    assert!(said.status.success(), "{}", text(&said.stderr));
    for replica in 0..3 {
        let mut line = new.connect(replica);
        assert_eq!(line.get("k7"), "7");
        assert_eq!(line.get("k199"), "199");
        assert_eq!(line.get("large"), large);
        assert_eq!(line.get("over"), "END");
        assert_eq!(line.ask("mg f c f\r\n"), cas, "flags and cas unique");
        assert_eq!(new.status(replica)["counts"]["mismatches"], 0);
    }
    let said = asked(&new, &["restore"], &file, &new.secret());
    assert!(text(&said.stderr).contains("--over"), "a group with items");
    let mut line = new.connect(0);
    line.set("k7", "new");
    line.set("more", "kept");
    let said = asked(&new, &["restore", "--over"], &file, &new.secret());
    assert!(said.status.success(), "{}", text(&said.stderr));
    assert_eq!(line.get("k7"), "7");
    assert_eq!(line.get("more"), "kept");
}
