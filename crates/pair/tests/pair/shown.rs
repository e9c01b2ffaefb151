//! The demonstration, on disk images.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::sites::*;

/// What it says, and that none of its loop devices is left. Those of others are the machine's.
fn demo(more: &[&str]) -> Output {
    let child = Command::new(pair())
        .arg("demo")
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let scratch = format!("steadfast-pair-{}/", child.id());
    let output = child.wait_with_output().expect("it ends");
    // The kernel lets go of a loop device behind the end of whoever had it mounted last.
    let deadline = Instant::now() + Duration::from_secs(10);
    let is_left = || {
        let loops = Command::new("losetup").arg("--list").output();
        let loops = loops.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&loops).contains(&scratch)
    };
    while is_left() {
        assert!(Instant::now() < deadline, "a loop device is left behind");
        std::thread::sleep(Duration::from_millis(50));
    }
    output
}

#[test]
fn the_demo_shows_both_disks_to_root_and_tells_others_what_is_missing() {
    side_by_side(&["a", "b"], |&struck| {
        let output = demo(&["--strike", struck]);
        let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat())
            .into_owned();
        if is_root() {
            assert_eq!(output.status.code(), Some(0), "{said}");
            assert!(said.contains("x.db page 8, ledger agrees with"), "{said}");
        } else {
            assert_eq!(output.status.code(), Some(121), "{said}");
            assert!(said.contains("needs root"), "{said}");
        }
    });
    let dir = seed("web");
    let web = built(&dir, "web");
    let output = demo(&["--", web.to_str().expect("of these letters")]);
    let said =
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    if is_root() {
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("with 1 connections (0 cut)"), "{said}");
    } else {
        assert_eq!(output.status.code(), Some(121), "{said}");
    }
    fs::remove_dir_all(dir).expect("clean");
}
