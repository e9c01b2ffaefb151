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
mod tmpfs;

use script::{Code, Fs, Kind, Stat};
use tmpfs::*;

const STREAMS: &str = "wasi:io/streams@0.2.0#";
const T: &str = "wasi:filesystem/types@0.2.0#";

/// The component with those that it calls.
pub(crate) struct System {
    edge: Edge,
    others: [Edge; 2],
    opened: Vec<Option<Handle>>,
    streams: Vec<Handle>,
    /// What happens before each operation: a reset of each of the three, bit by bit; 8: a bit flips in the second of two bodies.
    crash: u8,
    flips: usize,
}

impl System {
    fn new(policy: Policy, crash: u8) -> Self {
        let mut host = Host::new(true).expect("the pad works");
        for name in ["keyvalue", "fs"] {
            let component = fixture::component(name, policy);
            host.add(component, None).expect("it starts");
        }
        let uses = ["keyvalue", "fs"].map(|to| host.edge("filesystem", to, &[]).expect("an edge"));
        let component = Component {
            uses: uses.into(),
            ..fixture::component("filesystem", policy)
        };
        host.add(component, None).expect("it starts");
        let edge = |to: &str| host.edge("test", to, &[]).expect("an edge");
        let own = edge("filesystem");
        let root = own.invoke("wasi:filesystem/preopens@0.2.0#get-directories", &[]);
        let root = root.expect("an answer");
        let root = root.and_then(|list| list.handle());
        Self {
            edge: own,
            others: [edge("keyvalue"), edge("fs")],
            opened: vec![Some(root.expect("a directory"))],
            streams: Vec::new(),
            crash,
            flips: 0,
        }
    }

    fn handle(&self, fd: usize) -> Value {
        self.opened[fd].expect("open").into()
    }

    fn call(&mut self, name: &str, args: &[Value]) -> Result<Option<Value>, Code> {
        match self.answer(&format!("{T}{name}"), args) {
            Some(Value::Result(Ok(value))) => Ok(value.map(|value| *value)),
            Some(Value::Result(Err(Some(code)))) => match *code {
                Value::Enum(code) => Err(code),
                other => panic!("{name} gave {other:?}"),
            },
            other => Ok(other),
        }
    }

    /// A method of a stream; none where it is closed.
    fn stream(&mut self, name: &str, stream: usize, more: &[Value]) -> Option<Option<Value>> {
        let args = [&[self.streams[stream].into()][..], more].concat();
        match self.answer(&format!("{STREAMS}[method]{name}"), &args) {
            Some(Value::Result(Ok(value))) => Some(value.map(|value| *value)),
            Some(Value::Result(Err(Some(why)))) => {
                assert_eq!(*why, Value::Variant("closed".into(), None), "{name}");
                None
            }
            other => panic!("{name} gave {other:?}"),
        }
    }

    fn begin(&mut self, name: &str, args: &[Value]) -> Result<usize, Code> {
        let made = self.call(&format!("[method]descriptor.{name}"), args)?;
        let made = made.and_then(|value| value.handle()).expect("a stream");
        self.streams.push(made);
        Ok(self.streams.len() - 1)
    }

    /// What happens before each operation, and the operation.
    fn answer(&mut self, path: &str, args: &[Value]) -> Option<Value> {
        if self.crash & FLIP != 0 {
            // Odd steps over the stack, which comes first, and data.
            self.flips += 1;
            let address = self.flips * 1009 % (24 << 10);
            self.edge.flip(1, address, 3).expect("two bodies");
        }
        for (bit, edge) in [&self.edge, &self.others[0], &self.others[1]]
            .into_iter()
            .enumerate()
        {
            if self.crash & 1 << bit != 0 {
                edge.reset().expect("it comes back");
            }
        }
        self.edge.invoke(path, args).expect("an answer")
    }

    fn resets(&self) -> u64 {
        self.edge.stats().expect("stats").resets_total()
    }

    /// Files that the file system below holds.
    fn files(&self) -> usize {
        let names = self.others[1].invoke("steadfast:fs/files@0.1.0#names", &[]);
        match names.expect("an answer") {
            Some(Value::List(names)) => names.len(),
            other => panic!("{other:?}"),
        }
    }
}

const FLIP: u8 = 8;

fn flags(given: &str, known: &[(char, &str)]) -> Value {
    let named = known.iter().filter(|(letter, _)| given.contains(*letter));
    Value::Flags(named.map(|(_, name)| (*name).into()).collect())
}

const NO_FLAGS: Value = Value::Flags(Vec::new());

fn follow() -> Value {
    Value::Flags(vec!["symlink-follow".into()])
}

fn kind(told: &Value) -> Kind {
    match told {
        Value::Enum(kind) if kind == "regular-file" => Kind::File,
        Value::Enum(kind) if kind == "directory" => Kind::Directory,
        Value::Enum(kind) if kind == "symbolic-link" => Kind::Link,
        other => panic!("{other:?}"),
    }
}

fn stat_of(value: Option<Value>) -> Stat {
    let Some(Value::Record(fields)) = value else {
        panic!("a record is needed, found {value:?}");
    };
    let number = |name: &str| {
        let field = fields.iter().find(|(field, _)| field == name);
        field
            .and_then(|(_, value)| value.number())
            .expect("a number")
    };
    Stat::new(kind(&fields[0].1), number("link-count"), number("size"))
}

impl Fs for System {
    fn open(&mut self, dir: usize, path: &str, how: &str) -> Result<usize, Code> {
        let open = [
            ('c', "create"),
            ('x', "exclusive"),
            ('d', "directory"),
            ('t', "truncate"),
        ];
        let made = self.call(
            "[method]descriptor.open-at",
            &[
                self.handle(dir),
                if how.contains('n') {
                    NO_FLAGS
                } else {
                    follow()
                },
                path.into(),
                flags(how, &open),
                flags(how, &[('r', "read"), ('w', "write")]),
            ],
        )?;
        self.opened.push(made.and_then(|value| value.handle()));
        Ok(self.opened.len() - 1)
    }

    fn close(&mut self, fd: usize) {
        let handle = self.opened[fd].take().expect("open");
        if self.crash & 1 != 0 {
            self.edge.reset().expect("it comes back");
        }
        self.edge.discard(handle).expect("it was open");
    }

    fn read(&mut self, fd: usize, length: u64, offset: u64) -> Result<Vec<u8>, Code> {
        let args = [self.handle(fd), length.into(), offset.into()];
        match self.call("[method]descriptor.read", &args)? {
            Some(Value::Tuple(parts)) => match parts.into_iter().next() {
                Some(Value::Bytes(bytes)) => Ok(bytes),
                Some(Value::List(none)) if none.is_empty() => Ok(Vec::new()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, fd: usize, bytes: &[u8], offset: u64) -> Result<u64, Code> {
        let args = [self.handle(fd), bytes.into(), offset.into()];
        let written = self.call("[method]descriptor.write", &args)?;
        Ok(written.and_then(|value| value.number()).expect("a number"))
    }

    fn reads(&mut self, fd: usize, offset: u64) -> Result<usize, Code> {
        self.begin("read-via-stream", &[self.handle(fd), offset.into()])
    }

    fn writes(&mut self, fd: usize, offset: u64) -> Result<usize, Code> {
        self.begin("write-via-stream", &[self.handle(fd), offset.into()])
    }

    fn appends(&mut self, fd: usize) -> Result<usize, Code> {
        self.begin("append-via-stream", &[self.handle(fd)])
    }

    fn next(&mut self, stream: usize, length: u64) -> Option<Vec<u8>> {
        match self.stream("input-stream.read", stream, &[length.into()])? {
            Some(Value::Bytes(bytes)) => Some(bytes),
            Some(Value::List(none)) if none.is_empty() => Some(Vec::new()),
            other => panic!("{other:?}"),
        }
    }

    fn skip(&mut self, stream: usize, length: u64) -> Option<u64> {
        let skipped = self.stream("input-stream.blocking-skip", stream, &[length.into()])?;
        skipped.and_then(|value| value.number())
    }

    fn put(&mut self, stream: usize, bytes: &[u8]) -> bool {
        let room = self.stream("output-stream.check-write", stream, &[]);
        let room = room.flatten().and_then(|value| value.number());
        assert!(room >= Some(bytes.len() as u64));
        let write = "output-stream.blocking-write-and-flush";
        self.stream(write, stream, &[bytes.into()]).is_some()
    }

    fn zeroes(&mut self, stream: usize, length: u64) -> bool {
        let write = "output-stream.write-zeroes";
        self.stream(write, stream, &[length.into()]).is_some()
    }

    fn splice(&mut self, to: usize, from: usize, length: u64) -> Option<u64> {
        let args = [self.streams[from].into(), length.into()];
        let moved = self.stream("output-stream.splice", to, &args)?;
        moved.and_then(|value| value.number())
    }

    fn end(&mut self, stream: usize) {
        self.edge
            .discard(self.streams[stream])
            .expect("it was open");
    }

    fn set_size(&mut self, fd: usize, size: u64) -> Result<(), Code> {
        let args = [self.handle(fd), size.into()];
        self.call("[method]descriptor.set-size", &args).map(drop)
    }

    fn stat(&mut self, fd: usize) -> Result<Stat, Code> {
        self.call("[method]descriptor.stat", &[self.handle(fd)])
            .map(stat_of)
    }

    fn stat_at(&mut self, dir: usize, path: &str) -> Result<Stat, Code> {
        let args = [self.handle(dir), follow(), path.into()];
        self.call("[method]descriptor.stat-at", &args).map(stat_of)
    }

    fn link_stat(&mut self, dir: usize, path: &str) -> Result<Stat, Code> {
        let args = [self.handle(dir), NO_FLAGS, path.into()];
        self.call("[method]descriptor.stat-at", &args).map(stat_of)
    }

    fn same(&mut self, one: usize, other: usize) -> bool {
        let args = [self.handle(one), self.handle(other)];
        let same = self.call("[method]descriptor.is-same-object", &args);
        same == Ok(Some(Value::Bool(true)))
    }

    fn list(&mut self, dir: usize) -> Result<Vec<String>, Code> {
        let listing = self.call("[method]descriptor.read-directory", &[self.handle(dir)])?;
        let listing = listing.and_then(|value| value.handle()).expect("a listing");
        let mut names = Vec::new();
        loop {
            let next = "[method]directory-entry-stream.read-directory-entry";
            match self.call(next, &[listing.into()])? {
                Some(Value::Option(Some(entry))) => match *entry {
                    Value::Record(fields) => match (&fields[0].1, &fields[1].1) {
                        (of, Value::String(name)) => {
                            names.push(format!("{name}{}", kind(of).mark()));
                        }
                        other => panic!("{other:?}"),
                    },
                    other => panic!("{other:?}"),
                },
                Some(Value::Option(None)) => break,
                other => panic!("{other:?}"),
            }
        }
        self.edge.discard(listing).expect("it was open");
        Ok(names)
    }

    fn make_directory(&mut self, dir: usize, path: &str) -> Result<(), Code> {
        let args = [self.handle(dir), path.into()];
        self.call("[method]descriptor.create-directory-at", &args)
            .map(drop)
    }

    fn remove_directory(&mut self, dir: usize, path: &str) -> Result<(), Code> {
        let args = [self.handle(dir), path.into()];
        self.call("[method]descriptor.remove-directory-at", &args)
            .map(drop)
    }

    fn unlink(&mut self, dir: usize, path: &str) -> Result<(), Code> {
        let args = [self.handle(dir), path.into()];
        self.call("[method]descriptor.unlink-file-at", &args)
            .map(drop)
    }

    fn link(&mut self, dir: usize, old: &str, to: usize, new: &str) -> Result<(), Code> {
        let to = self.handle(to);
        let args = [self.handle(dir), NO_FLAGS, old.into(), to, new.into()];
        self.call("[method]descriptor.link-at", &args).map(drop)
    }

    fn rename(&mut self, dir: usize, old: &str, to: usize, new: &str) -> Result<(), Code> {
        let args = [self.handle(dir), old.into(), self.handle(to), new.into()];
        self.call("[method]descriptor.rename-at", &args).map(drop)
    }

    fn symlink(&mut self, target: &str, dir: usize, path: &str) -> Result<(), Code> {
        let args = [self.handle(dir), target.into(), path.into()];
        self.call("[method]descriptor.symlink-at", &args).map(drop)
    }

    fn target(&mut self, dir: usize, path: &str) -> Result<String, Code> {
        let args = [self.handle(dir), path.into()];
        match self.call("[method]descriptor.readlink-at", &args)? {
            Some(Value::String(target)) => Ok(target),
            other => panic!("{other:?}"),
        }
    }
}

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
