//! What a file system is asked, and a protocol of what it answers.

use std::fmt::Debug;

mod links;
mod times;

pub(crate) use times::{Time, Times};

/// An error, by its name in wasi:filesystem.
pub(crate) type Code = String;

/// What stands behind a name in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
}

impl Kind {
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::File => "",
            Self::Directory => "/",
            Self::Link => "@",
        }
    }
}

/// Of a directory no count and no size: file systems differ in these.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    kind: Kind,
    links: Option<u64>,
    size: Option<u64>,
}

impl Stat {
    pub(crate) fn new(kind: Kind, links: u64, size: u64) -> Self {
        let told = kind != Kind::Directory;
        Self {
            kind,
            links: told.then_some(links),
            size: told.then_some(size),
        }
    }
}

/// A file system. Descriptors are numbers; 0 is the directory that is open from the start.
pub(crate) trait Fs {
    /// `how`: c create, x exclusive, d directory, t truncate, r read, w write, n do not follow a symbolic link at the end.
    fn open(&mut self, dir: usize, path: &str, how: &str) -> Result<usize, Code>;
    fn close(&mut self, fd: usize);
    fn read(&mut self, fd: usize, length: u64, offset: u64) -> Result<Vec<u8>, Code>;
    fn write(&mut self, fd: usize, bytes: &[u8], offset: u64) -> Result<u64, Code>;
    /// A stream that reads from there; of `append` one that writes at the end. Streams have numbers of their own.
    fn reads(&mut self, fd: usize, offset: u64) -> Result<usize, Code>;
    fn writes(&mut self, fd: usize, offset: u64) -> Result<usize, Code>;
    fn appends(&mut self, fd: usize) -> Result<usize, Code>;
    /// None at the end.
    fn next(&mut self, stream: usize, length: u64) -> Option<Vec<u8>>;
    fn skip(&mut self, stream: usize, length: u64) -> Option<u64>;
    /// False where there is no room.
    fn put(&mut self, stream: usize, bytes: &[u8]) -> bool;
    fn zeroes(&mut self, stream: usize, length: u64) -> bool;
    /// From one stream into another one: how much, none where it cannot go on.
    fn splice(&mut self, to: usize, from: usize, length: u64) -> Option<u64>;
    fn end(&mut self, stream: usize);
    fn set_size(&mut self, fd: usize, size: u64) -> Result<(), Code>;
    fn stat(&mut self, fd: usize) -> Result<Stat, Code>;
    fn stat_at(&mut self, dir: usize, path: &str) -> Result<Stat, Code>;
    /// The same of a symbolic link itself.
    fn link_stat(&mut self, dir: usize, path: &str) -> Result<Stat, Code>;
    fn same(&mut self, one: usize, other: usize) -> bool;
    /// Names, sorted, each with the mark of its kind.
    fn list(&mut self, dir: usize) -> Result<Vec<String>, Code>;
    fn make_directory(&mut self, dir: usize, path: &str) -> Result<(), Code>;
    fn remove_directory(&mut self, dir: usize, path: &str) -> Result<(), Code>;
    fn unlink(&mut self, dir: usize, path: &str) -> Result<(), Code>;
    fn link(&mut self, dir: usize, old: &str, to: usize, new: &str) -> Result<(), Code>;
    fn rename(&mut self, dir: usize, old: &str, to: usize, new: &str) -> Result<(), Code>;
    fn symlink(&mut self, target: &str, dir: usize, path: &str) -> Result<(), Code>;
    fn target(&mut self, dir: usize, path: &str) -> Result<String, Code>;
    /// When data were used, and when they were changed.
    fn set_times(&mut self, fd: usize, used: Time, changed: Time) -> Result<(), Code>;
    /// The same of a symbolic link itself.
    fn set_link_times(
        &mut self,
        dir: usize,
        path: &str,
        used: Time,
        changed: Time,
    ) -> Result<(), Code>;
    fn times(&mut self, fd: usize) -> Times;
    fn link_times(&mut self, dir: usize, path: &str) -> Times;
}

/// A file system, and what it has answered so far.
pub(crate) struct Asked<'a> {
    fs: &'a mut dyn Fs,
    protocol: Vec<String>,
}

impl Asked<'_> {
    fn note(&mut self, what: impl Into<String>, answer: impl Debug) {
        self.protocol.push(format!("{}: {answer:?}", what.into()));
    }

    fn open(&mut self, dir: usize, path: &str, how: &str) -> usize {
        let opened = self.fs.open(dir, path, how);
        self.note(format!("open {path:?} {how}"), &opened);
        opened.unwrap_or(usize::MAX)
    }

    fn close(&mut self, fd: usize) {
        self.fs.close(fd);
    }

    fn read(&mut self, fd: usize, length: u64, offset: u64) {
        let found = self.fs.read(fd, length, offset);
        let found = found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        self.note(format!("read {length} at {offset}"), found);
    }

    fn write(&mut self, fd: usize, text: &str, offset: u64) {
        let written = self.fs.write(fd, text.as_bytes(), offset);
        self.note(format!("write {text:?} at {offset}"), written);
    }

    fn reads(&mut self, fd: usize, offset: u64) -> usize {
        let stream = self.fs.reads(fd, offset);
        self.note(format!("reads from {offset}"), stream.as_ref().map(drop));
        stream.unwrap_or(usize::MAX)
    }

    fn writes(&mut self, fd: usize, offset: u64) -> usize {
        let stream = self.fs.writes(fd, offset);
        self.note(format!("writes from {offset}"), stream.as_ref().map(drop));
        stream.unwrap_or(usize::MAX)
    }

    fn appends(&mut self, fd: usize) -> usize {
        let stream = self.fs.appends(fd);
        self.note("appends", stream.as_ref().map(drop));
        stream.unwrap_or(usize::MAX)
    }

    fn next(&mut self, stream: usize, length: u64) {
        let found = self.fs.next(stream, length);
        let found = found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        self.note(format!("next {length}"), found);
    }

    fn skip(&mut self, stream: usize, length: u64) {
        let skipped = self.fs.skip(stream, length);
        self.note(format!("skip {length}"), skipped);
    }

    fn put(&mut self, stream: usize, text: &str) {
        let put = self.fs.put(stream, text.as_bytes());
        self.note(format!("put {text:?}"), put);
    }

    fn zeroes(&mut self, stream: usize, length: u64) {
        let put = self.fs.zeroes(stream, length);
        self.note(format!("zeroes {length}"), put);
    }

    fn splice(&mut self, to: usize, from: usize, length: u64) {
        let moved = self.fs.splice(to, from, length);
        self.note(format!("splice {length}"), moved);
    }

    fn set_size(&mut self, fd: usize, size: u64) {
        let set = self.fs.set_size(fd, size);
        self.note(format!("size {size}"), set);
    }

    fn stat(&mut self, fd: usize) {
        let stat = self.fs.stat(fd);
        self.note("stat", stat);
    }

    fn stat_at(&mut self, dir: usize, path: &str) {
        let stat = self.fs.stat_at(dir, path);
        self.note(format!("stat {path:?}"), stat);
    }

    fn link_stat(&mut self, dir: usize, path: &str) {
        let stat = self.fs.link_stat(dir, path);
        self.note(format!("link stat {path:?}"), stat);
    }

    fn symlink(&mut self, target: &str, dir: usize, path: &str) {
        let made = self.fs.symlink(target, dir, path);
        self.note(format!("symlink {target:?} {path:?}"), made);
    }

    fn target(&mut self, dir: usize, path: &str) {
        let target = self.fs.target(dir, path);
        self.note(format!("target {path:?}"), target);
    }

    fn same(&mut self, one: usize, other: usize) {
        let same = self.fs.same(one, other);
        self.note("same", same);
    }

    fn list(&mut self, dir: usize) {
        let names = self.fs.list(dir);
        self.note("list", names);
    }

    fn mkdir(&mut self, dir: usize, path: &str) {
        let made = self.fs.make_directory(dir, path);
        self.note(format!("mkdir {path:?}"), made);
    }

    fn rmdir(&mut self, dir: usize, path: &str) {
        let removed = self.fs.remove_directory(dir, path);
        self.note(format!("rmdir {path:?}"), removed);
    }

    fn unlink(&mut self, dir: usize, path: &str) {
        let unlinked = self.fs.unlink(dir, path);
        self.note(format!("unlink {path:?}"), unlinked);
    }

    fn link(&mut self, dir: usize, old: &str, to: usize, new: &str) {
        let linked = self.fs.link(dir, old, to, new);
        self.note(format!("link {old:?} {new:?}"), linked);
    }

    fn rename(&mut self, dir: usize, old: &str, to: usize, new: &str) {
        let renamed = self.fs.rename(dir, old, to, new);
        self.note(format!("rename {old:?} {new:?}"), renamed);
    }

    /// A file with these bytes, closed again.
    fn file(&mut self, path: &str, text: &str) {
        let fd = self.open(0, path, "ctw");
        self.write(fd, text, 0);
        self.close(fd);
    }

    fn show(&mut self, path: &str) {
        let fd = self.open(0, path, "r");
        if fd != usize::MAX {
            self.read(fd, 100, 0);
            self.stat(fd);
            self.close(fd);
        }
    }
}

pub(crate) type Case = fn(&mut Asked<'_>);

pub(crate) const CASES: &[(&str, Case)] = &[
    ("open-flags", open_flags),
    ("access", access),
    ("truncate", truncate),
    ("streams", streams),
    ("streams-apart", streams_apart),
    ("spliced", spliced),
    ("rename-file", rename_file),
    ("rename-directory", rename_directory),
    ("hard-links", links::hard_links),
    ("symbolic-links", links::symbolic_links),
    ("symbolic-links-and-names", links::symbolic_links_and_names),
    ("unlink-open", links::unlink_while_open),
    ("directories", directories),
    ("paths", paths),
    ("times", times::files),
    ("times-and-names", times::names),
];

pub(crate) fn run(fs: &mut dyn Fs, case: Case) -> Vec<String> {
    let mut asked = Asked {
        fs,
        protocol: Vec::new(),
    };
    case(&mut asked);
    asked.protocol
}

fn open_flags(fs: &mut Asked<'_>) {
    fs.open(0, "none", "r");
    fs.open(0, "none", "w");
    fs.open(0, "a", "cw");
    fs.open(0, "a", "cxw");
    fs.open(0, "b", "cxrw");
    fs.open(0, "a", "crw");
    fs.open(0, "a", "rd");
    fs.mkdir(0, "d");
    fs.open(0, "d", "r");
    fs.open(0, "d", "rd");
    fs.open(0, "d", "w");
    fs.open(0, "d", "rw");
    fs.open(0, "d", "cr");
    fs.open(0, "d", "cxw");
    fs.open(0, "d", "tw");
    fs.file("t", "some text");
    let fd = fs.open(0, "t", "trw");
    fs.stat(fd);
    fs.read(fd, 10, 0);
    fs.open(0, "n", "tw");
    fs.open(0, "t/", "cw");
    fs.open(0, "t/", "cxw");
    fs.open(0, "d/", "cr");
    fs.list(0);
}

fn access(fs: &mut Asked<'_>) {
    let writes = fs.open(0, "a", "cw");
    fs.write(writes, "text", 0);
    fs.read(writes, 4, 0);
    let reads = fs.open(0, "a", "r");
    fs.read(reads, 4, 0);
    fs.write(reads, "x", 0);
    fs.set_size(reads, 1);
    fs.mkdir(0, "d");
    let directory = fs.open(0, "d", "r");
    fs.read(directory, 4, 0);
    fs.write(directory, "x", 0);
    fs.set_size(directory, 0);
    fs.stat(directory);
    fs.same(reads, writes);
    fs.same(reads, directory);
    fs.show("a");
}

fn truncate(fs: &mut Asked<'_>) {
    let fd = fs.open(0, "a", "crw");
    fs.read(fd, 10, 0);
    fs.write(fd, "0123456789", 0);
    fs.read(fd, 4, 8);
    fs.read(fd, 4, 10);
    fs.read(fd, 4, 1000);
    fs.read(fd, 0, 0);
    fs.write(fd, "", 20);
    fs.stat(fd);
    fs.set_size(fd, 4);
    fs.read(fd, 100, 0);
    // What was cut is gone, also where the file grows again.
    fs.set_size(fd, 8);
    fs.read(fd, 100, 0);
    fs.write(fd, "end", 12);
    fs.read(fd, 100, 0);
    fs.stat(fd);
    // Over the host's blocks of data.
    fs.write(fd, &"x".repeat(5000), 4000);
    fs.read(fd, 10, 8995);
    fs.set_size(fd, 4100);
    fs.set_size(fd, 9000);
    fs.read(fd, 4, 4098);
    fs.set_size(fd, 0);
    fs.stat(fd);
    fs.write(fd, "again", 0);
    fs.close(fd);
    fs.show("a");
}

fn streams(fs: &mut Asked<'_>) {
    let fd = fs.open(0, "a", "crw");
    let out = fs.writes(fd, 0);
    fs.put(out, "one ");
    fs.put(out, "");
    fs.put(out, "two ");
    fs.zeroes(out, 2);
    fs.put(out, "three");
    fs.stat(fd);
    let end = fs.appends(fd);
    fs.put(end, " four");
    // A stream goes on where it was, whatever others have written.
    fs.put(out, "FIVE");
    fs.put(end, " six");
    fs.fs.end(end);
    fs.fs.end(out);
    let all = fs.reads(fd, 0);
    fs.next(all, 0);
    for length in [3, 5, 100, 1] {
        fs.next(all, length);
    }
    let some = fs.reads(fd, 4);
    fs.skip(some, 4);
    fs.next(some, 4);
    fs.skip(some, 0);
    fs.skip(some, 1000);
    fs.skip(some, 1);
    fs.next(some, 1);
    // The end moves.
    fs.write(fd, "!", 40);
    fs.next(some, 100);
    let beyond = fs.reads(fd, 1000);
    fs.next(beyond, 1);
    // Into a hole, and over several blocks.
    let far = fs.writes(fd, 60);
    fs.put(far, "far");
    for piece in 0..5 {
        fs.put(far, &format!("{piece}").repeat(700));
    }
    fs.read(fd, 20, 35);
    fs.read(fd, 10, 60 + 3 + 700 * 3 - 5);
    fs.stat(fd);
    fs.set_size(fd, 2);
    fs.next(all, 1);
    fs.put(far, "again");
    fs.stat(fd);
    let writes = fs.open(0, "a", "w");
    fs.reads(writes, 0);
    let reads = fs.open(0, "a", "r");
    fs.writes(reads, 0);
    fs.appends(reads);
}

fn streams_apart(fs: &mut Asked<'_>) {
    fs.file("a", "some text");
    fs.file("b", "other text");
    let (a, b) = (fs.open(0, "a", "rw"), fs.open(0, "b", "r"));
    let (one, two) = (fs.reads(a, 0), fs.reads(b, 0));
    fs.next(one, 4);
    fs.next(two, 5);
    fs.rename(0, "a", 0, "c");
    fs.next(one, 3);
    // The stream keeps its file: neither a name nor a descriptor is left.
    let out = fs.writes(a, 5);
    fs.close(a);
    fs.unlink(0, "c");
    fs.put(out, "TEXT, and more");
    fs.next(one, 100);
    fs.file("a", "new");
    fs.next(two, 100);
    fs.next(one, 1);
    fs.fs.end(one);
    fs.fs.end(out);
    fs.show("a");
    fs.list(0);
}

fn spliced(fs: &mut Asked<'_>) {
    fs.file("a", "some text to move");
    fs.file("b", "old");
    let (a, b) = (fs.open(0, "a", "rw"), fs.open(0, "b", "rw"));
    let (from, to) = (fs.reads(a, 0), fs.writes(b, 1));
    for length in [4, 0, 7, 100, 1] {
        fs.splice(to, from, length);
        fs.show("b");
    }
    // The source has gone on by what was taken, and nothing is lost between.
    fs.write(a, "!!", 17);
    fs.splice(to, from, 1);
    fs.next(from, 5);
    fs.put(to, " end");
    fs.show("b");
    let end = fs.appends(b);
    let again = fs.reads(b, 0);
    fs.splice(end, again, 3);
    fs.show("b");
}

fn rename_file(fs: &mut Asked<'_>) {
    fs.rename(0, "none", 0, "a");
    fs.file("a", "first");
    fs.file("b", "second");
    let (a, b) = (fs.open(0, "a", "rw"), fs.open(0, "b", "r"));
    fs.rename(0, "a", 0, "c");
    fs.list(0);
    fs.rename(0, "c", 0, "b");
    fs.list(0);
    // Descriptors stay with their files: one has another name, one has none.
    fs.read(a, 10, 0);
    fs.write(a, "F", 0);
    fs.read(b, 10, 0);
    fs.stat(a);
    fs.stat(b);
    fs.show("b");
    fs.rename(0, "b", 0, "b");
    fs.rename(0, "b", 0, "b/");
    fs.rename(0, "b", 0, "x/");
    fs.rename(0, "b/", 0, "x");
    fs.rename(0, "b", 0, "none/x");
    fs.rename(0, "b", 0, "b/x");
    fs.mkdir(0, "d");
    fs.rename(0, "b", 0, "d");
    fs.rename(0, "b", 0, "d/b");
    let d = fs.open(0, "d", "rd");
    fs.list(d);
    fs.rename(d, "b", 0, "e");
    fs.rename(0, "e", d, "f");
    fs.list(d);
    fs.list(0);
    fs.read(a, 10, 0);
    fs.close(b);
    fs.close(a);
    fs.show("d/f");
}

fn rename_directory(fs: &mut Asked<'_>) {
    fs.mkdir(0, "a");
    fs.mkdir(0, "a/b");
    fs.file("a/b/f", "deep");
    let b = fs.open(0, "a/b", "rd");
    fs.rename(0, "a", 0, "a");
    fs.rename(0, "a", 0, "a/c");
    fs.rename(0, "a", 0, "a/b/c");
    fs.rename(0, "a/b", 0, "c");
    fs.show("c/f");
    fs.list(b);
    fs.list(0);
    fs.stat_at(0, "c/../a");
    fs.rename(0, "c", 0, "a/");
    fs.list(0);
    fs.show("a/f");
    fs.mkdir(0, "e");
    fs.rename(0, "e", 0, "a");
    fs.rename(0, "a", 0, "e");
    fs.file("g", "file");
    fs.rename(0, "e", 0, "g");
    fs.rename(0, "g", 0, "e");
    fs.rename(0, "e", 0, "new/");
    fs.rename(0, ".", 0, "x");
    fs.rename(0, "new", 0, ".");
    fs.rename(0, "new", b, "self");
    fs.mkdir(0, "h");
    fs.mkdir(0, "h/i");
    let h = fs.open(0, "h", "rd");
    fs.rename(h, "i", b, "i");
    fs.stat_at(0, "new/i/../f");
    fs.list(b);
    fs.list(h);
}

fn directories(fs: &mut Asked<'_>) {
    fs.list(0);
    fs.mkdir(0, "a");
    fs.mkdir(0, "a");
    fs.mkdir(0, "a/b/");
    fs.mkdir(0, "none/b");
    fs.mkdir(0, ".");
    fs.file("f", "x");
    fs.mkdir(0, "f");
    fs.mkdir(0, "f/b");
    fs.list(0);
    fs.rmdir(0, "none");
    fs.rmdir(0, "f");
    fs.rmdir(0, "a");
    fs.rmdir(0, "a/.");
    fs.rmdir(0, "a/b/..");
    fs.unlink(0, "a");
    fs.unlink(0, "a/");
    fs.unlink(0, "f/");
    let a = fs.open(0, "a", "rd");
    fs.list(a);
    let f = fs.open(0, "f", "r");
    fs.list(f);
    fs.rmdir(a, "b");
    fs.list(a);
    fs.file("a/x", "1");
    fs.file("a/y", "2");
    fs.unlink(a, "x");
    fs.rmdir(0, "a/");
    fs.unlink(a, "y");
    fs.rmdir(0, "a/");
    fs.stat_at(0, "a");
    fs.list(0);
}

fn paths(fs: &mut Asked<'_>) {
    fs.mkdir(0, "a");
    fs.mkdir(0, "a/b");
    fs.file("a/b/f", "text");
    for path in [
        "a/b/f",
        "a//b/f",
        "./a/./b/f",
        "a/../a/b/f",
        "a/b/../b/f",
        "a/b/f/",
        "a/b/f/.",
        "a/b/f/..",
        "a/b/",
        "a/b/.",
        "a/b/..",
        "a/none/..",
        "a/none/f",
        ".",
        "./",
    ] {
        fs.stat_at(0, path);
    }
    fs.open(0, "a/b/f/", "r");
    fs.open(0, "a/b/new/", "cw");
    fs.open(0, "a/b/f/x", "cw");
    fs.open(0, &"n".repeat(255), "cw");
    fs.open(0, &"n".repeat(256), "cw");
    fs.open(0, "b\u{e4}\u{1f980}", "cw");
    fs.list(0);
}
