//! The parent of a group on one machine: what it starts anew, and how it ends.

use std::fs;
use std::path::Path;

use super::*;

fn signal(pid: u32, signal: &str) {
    let pid = pid.to_string();
    let done = Command::new("kill").args([signal, &pid]).status();
    assert!(done.unwrap().success());
}

/// Whether a process of this number is there and has not ended.
fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

#[test]
fn a_group_whose_program_is_replaced_or_removed_goes_on_with_the_one_that_it_is() {
    let built = Path::new(env!("CARGO_BIN_EXE_steadfast-kv"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kv-{}", std::process::id()));
    let _ = fs::remove_file(&program);
    fs::hard_link(built, &program).unwrap();
    let group = Group::of(&mut Command::new(&program), &[]);
    let mut line = group.connect(0);
    line.set("a", "value");
    // As an upgrade does; a process of this one would say nothing that a replica says.
    let other = program.with_extension("new");
    fs::copy("/bin/true", &other).unwrap();
    fs::rename(&other, &program).unwrap();
    signal(group.pids[1], "-9");
    assert_eq!(group.event("replaced")["replica"], 1);
    assert_eq!(group.connect(1).get("a"), "value");
    fs::remove_file(&program).unwrap();
    signal(group.pids[2], "-9");
    assert_eq!(group.event("replaced")["replica"], 2);
    assert_eq!(group.connect(2).get("a"), "value");
}

#[test]
fn a_group_that_is_told_to_end_while_it_starts_ends_at_once_and_leaves_nothing_behind() {
    let mut parent = kv()
        .args(["--local", "3", "--port", "0"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = parent.id();
    let until = Instant::now() + PATIENCE;
    let replicas: Vec<u32> = loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let children = children.split_whitespace();
        let children: Vec<u32> = children.map(|child| child.parse().unwrap()).collect();
        if children.len() == 3 {
            break children;
        }
        assert!(Instant::now() < until, "{children:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    // One that says nothing: the group is not ready before it does.
    signal(replicas[0], "-STOP");
    std::thread::sleep(Duration::from_millis(100));
    let told = Instant::now();
    signal(pid, "-INT");
    assert!(parent.wait().unwrap().success());
    let took = told.elapsed();
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    while replicas.iter().any(|replica| runs(*replica)) {
        assert!(Instant::now() < until, "{replicas:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
