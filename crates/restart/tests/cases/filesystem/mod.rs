//! wasi:filesystem against the tmpfs of this host: the same operations on both, in the manner of wasi-testsuite, and every answer equal;
//! then the same with resets between any two operations, and with flips that are found when a call has done half of its work.
//!
//! Both sides are told what a program would see: results, bytes, link counts, names, and errors by the names that WASI has for them.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use steadfast_restart::{CallError, Component, Edge, Handle, Host, Policy, Value};

use crate::fixture;

mod script;
mod system;
mod tmpfs;

use script::{Code, Fs, Kind, Stat, Time, Times};
use system::*;
use tmpfs::*;

fn policy() -> Policy {
    Policy {
        spare: false,
        resets_max: u32::MAX,
        ..Policy::default()
    }
}

#[test]
fn every_case_answers_as_tmpfs_does() {
    for (name, case) in script::CASES {
        let right = script::run(&mut Tmpfs::new(name), *case);
        let mut system = System::new(policy(), 0);
        assert_eq!(script::run(&mut system, *case), right, "{name}");
        assert_eq!(system.resets(), 0, "{name}: no failure, no reset");
    }
}

#[test]
fn every_case_answers_the_same_whatever_fails_before_each_operation() {
    let dual = Policy {
        dual: true,
        compare_every: 1,
        ..policy()
    };
    for (name, case) in script::CASES {
        let right = script::run(&mut Tmpfs::new(&format!("{name}-reset")), *case);
        for (policy, crash) in [(policy(), 1), (policy(), 7), (dual, 6), (dual, FLIP)] {
            let mut system = System::new(policy, crash);
            let found = script::run(&mut system, *case);
            assert_eq!(found, right, "{name}, {crash:04b}");
            assert!(crash & 9 == 0 || system.resets() > 9, "{name}, {crash:04b}");
        }
    }
}

#[test]
fn times_that_no_clock_shows_are_refused_and_the_root_has_none_until_it_changes() {
    let mut system = System::new(policy(), 7);
    assert_eq!(system.times(0), [None; 3]);
    let file = system.open(0, "a", "crw").expect("it is made");
    let [used, changed, status] = system.times(0);
    assert!(used.is_none() && changed.is_some() && changed == status);
    let before = system.times(file);
    for wrong in [Time::At(1, 1_000_000_000), Time::At(1 << 63, 0)] {
        for (used, changed) in [(wrong, Time::Now), (Time::Now, wrong)] {
            let refused = system.set_times(file, used, changed);
            assert_eq!(refused.err().as_deref(), Some("invalid"), "{wrong:?}");
        }
    }
    assert_eq!(system.times(file), before);
    let most = Time::At(i64::MAX.cast_unsigned(), 999_999_999);
    assert_eq!(system.set_times(file, most, Time::Same), Ok(()));
    assert_eq!(
        system.times(file)[0],
        Some((i64::MAX.cast_unsigned(), 999_999_999))
    );
    assert_eq!(system.set_times(0, Time::At(7, 0), Time::Same), Ok(()));
    let [used, still, status] = system.times(0);
    assert_eq!((used, still), (Some((7, 0)), changed));
    assert!(status >= still);
}

#[test]
fn what_has_neither_a_name_nor_a_descriptor_is_gone() {
    for crash in [0, 7] {
        let mut system = System::new(policy(), crash);
        let first = system.open(0, "a", "cw").expect("it is made");
        let second = system.open(0, "a", "r").expect("it is there");
        system.write(first, b"bytes", 0).expect("written");
        system.unlink(0, "a").expect("it had a name");
        assert_eq!(system.files(), 1);
        system.close(first);
        assert_eq!(system.read(second, 9, 0).as_deref(), Ok(&b"bytes"[..]));
        system.close(second);
        assert_eq!(system.files(), 0, "resets of {crash:03b}");
        // Its number is used again, and nothing of it is left.
        let third = system.open(0, "b", "crw").expect("it is made");
        assert_eq!(system.stat(third), Ok(Stat::new(Kind::File, 1, 0)));
    }
}

/// The component fails when it has closed a descriptor: to close it again must not count twice, and not to close it would keep the file.
#[test]
fn a_descriptor_is_closed_once_whatever_fails_on_the_way() {
    let dual = Policy {
        dual: true,
        compare_every: 1,
        ..policy()
    };
    for policy in [policy(), dual] {
        let mut system = System::new(policy, 0);
        let first = system.open(0, "a", "cw").expect("it is made");
        let second = system.open(0, "a", "r").expect("it is there");
        system.write(first, b"bytes", 0).expect("written");
        system.unlink(0, "a").expect("it had a name");
        for (fd, files) in [(first, 1), (second, 0)] {
            let resets = system.resets();
            system.edge.fail_once().expect("it is told");
            system.close(fd);
            assert_eq!((system.files(), system.resets()), (files, resets + 1));
            if files == 1 {
                assert_eq!(system.read(second, 9, 0).as_deref(), Ok(&b"bytes"[..]));
            }
        }
        assert_eq!(
            system
                .others
                .each_ref()
                .map(|edge| edge.stats().expect("stats").resets_total()),
            [0, 0]
        );
    }
}

#[test]
fn no_path_leads_out_of_its_directory() {
    let mut system = System::new(policy(), 0);
    system.make_directory(0, "d").expect("made");
    system.make_directory(0, "d/e").expect("made");
    let below = system.open(0, "d", "rd").expect("it is there");
    for path in ["..", "../d", "e/../..", "/d", "./../d", "e/../../d"] {
        let found = system.stat_at(below, path);
        assert_eq!(found.err().as_deref(), Some("not-permitted"), "{path}");
    }
    assert!(system.stat_at(below, "e/..").is_ok());
    assert_eq!(system.stat_at(below, "").err().as_deref(), Some("no-entry"));
    // Nor does a link lead out, and none is made that names a place outside.
    system.symlink("..", 0, "d/up").expect("made");
    system.symlink("e/../../f", 0, "d/file").expect("made");
    for path in ["up", "up/d", "file"] {
        let found = system.stat_at(below, path);
        assert_eq!(found.err().as_deref(), Some("not-permitted"), "{path}");
        assert!(system.link_stat(below, path).is_ok() || path == "up/d");
    }
    let made = system.open(below, "file", "cw");
    assert_eq!(made.err().as_deref(), Some("not-permitted"));
    assert!(system.stat_at(0, "d/up/d").is_ok());
    for (target, needed) in [
        ("/etc", "not-permitted"),
        (&*"x".repeat(4096), "name-too-long"),
    ] {
        let made = system.symlink(target, 0, "absolute");
        assert_eq!(made.err().as_deref(), Some(needed));
    }
    assert_eq!(
        system.stat_at(0, &"./".repeat(2048)).err().as_deref(),
        Some("name-too-long")
    );
    let both = system.open(0, "new", "cdrw");
    assert_eq!(both.err().as_deref(), Some("invalid"));
}

#[test]
fn a_listing_goes_on_behind_the_name_that_was_given_last() {
    let mut system = System::new(policy(), 1);
    // More than one page of keys.
    for n in 0..300 {
        let file = system.open(0, &format!("{n:03}"), "cw").expect("made");
        system.close(file);
    }
    let names = system.list(0).expect("a directory");
    let right: Vec<_> = (0..300).map(|n| format!("{n:03}")).collect();
    assert_eq!(names, right);
}

#[test]
fn a_stream_ends_with_its_file_and_says_when_it_is_ready() {
    for crash in [0, 7] {
        let mut system = System::new(policy(), crash);
        let fd = system.open(0, "a", "crw").expect("it is made");
        system.write(fd, b"bytes", 0).expect("written");
        let stream = system.reads(fd, 1).expect("a stream");
        system.close(fd);
        system.unlink(0, "a").expect("it had a name");
        assert_eq!(system.next(stream, 2).as_deref(), Some(&b"yt"[..]));
        assert_eq!(system.files(), 1, "the stream has it");
        let of = system.streams[stream];
        let path = format!("{STREAMS}[method]input-stream.subscribe");
        let ready = system.answer(&path, &[of.into()]);
        let ready = ready.and_then(|value| value.handle()).expect("a pollable");
        for _ in 0..2 {
            let path = "wasi:io/poll@0.2.0#[method]pollable.ready";
            let found = system.answer(path, &[ready.into()]);
            assert_eq!(found, Some(Value::Bool(true)), "resets of {crash:03b}");
        }
        // Those of a list come back as well, before the call.
        let other = system.answer(&path, &[of.into()]);
        let other = other.and_then(|value| value.handle()).expect("a pollable");
        for list in [vec![], vec![ready], vec![ready, other, ready]] {
            if crash & 1 == 1 {
                system.edge.reset().expect("it comes back");
            }
            let places = (0..3).take(list.len()).map(Value::U32).collect();
            let list = Value::List(list.into_iter().map(Value::Handle).collect());
            let found = system.answer("wasi:io/poll@0.2.0#poll", &[list]);
            assert_eq!(found, Some(Value::List(places)), "resets of {crash:03b}");
        }
        for wrong in [of.into(), Value::U32(7)] {
            let list = Value::List(vec![ready.into(), wrong]);
            let refused = system.edge.invoke("wasi:io/poll@0.2.0#poll", &[list]);
            assert!(
                matches!(refused, Err(CallError::Type { .. })),
                "{refused:?}"
            );
        }
        system.edge.discard(ready).expect("it was given");
        let list = Value::List(vec![other.into(), ready.into()]);
        let stale = system.edge.invoke("wasi:io/poll@0.2.0#poll", &[list]);
        assert!(matches!(stale, Err(CallError::Stale { .. })), "{stale:?}");
        system.edge.discard(other).expect("it was given");
        system.end(stream);
        assert_eq!(system.files(), 0, "resets of {crash:03b}");
        let directory = system.reads(0, 0);
        assert_eq!(directory.err().as_deref(), Some("is-directory"));
    }
}
