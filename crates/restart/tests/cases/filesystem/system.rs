//! The component with those that it calls.

use super::*;

pub(super) const STREAMS: &str = "wasi:io/streams@0.2.0#";
const T: &str = "wasi:filesystem/types@0.2.0#";

/// The component with those that it calls.
pub(super) struct System {
    pub(super) edge: Edge,
    pub(super) others: [Edge; 2],
    pub(super) opened: Vec<Option<Handle>>,
    pub(super) streams: Vec<Handle>,
    /// What happens before each operation: a reset of each of the three, bit by bit; 8: a bit flips in the second of two bodies.
    pub(super) crash: u8,
    pub(super) flips: usize,
}

impl System {
    pub(super) fn new(policy: Policy, crash: u8) -> Self {
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
    pub(super) fn answer(&mut self, path: &str, args: &[Value]) -> Option<Value> {
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

    pub(super) fn resets(&self) -> u64 {
        self.edge.stats().expect("stats").resets_total()
    }

    /// Files that the file system below holds.
    pub(super) fn files(&self) -> usize {
        let names = self.others[1].invoke("steadfast:fs/files@0.1.0#names", &[]);
        match names.expect("an answer") {
            Some(Value::List(names)) => names.len(),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) const FLIP: u8 = 8;

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

    fn set_times(&mut self, fd: usize, used: Time, changed: Time) -> Result<(), Code> {
        let args = [self.handle(fd), new_time(used), new_time(changed)];
        let set = self.call("[method]descriptor.set-times", &args);
        set.map(drop)
    }

    fn set_link_times(
        &mut self,
        dir: usize,
        path: &str,
        used: Time,
        changed: Time,
    ) -> Result<(), Code> {
        let [used, changed] = [used, changed].map(new_time);
        let args = [self.handle(dir), NO_FLAGS, path.into(), used, changed];
        let set = self.call("[method]descriptor.set-times-at", &args);
        set.map(drop)
    }

    fn times(&mut self, fd: usize) -> Times {
        times_of(self.call("[method]descriptor.stat", &[self.handle(fd)]))
    }

    fn link_times(&mut self, dir: usize, path: &str) -> Times {
        let args = [self.handle(dir), NO_FLAGS, path.into()];
        times_of(self.call("[method]descriptor.stat-at", &args))
    }
}

fn new_time(time: Time) -> Value {
    let case = |name: &str, time| Value::Variant(name.into(), time);
    match time {
        Time::Same => case("no-change", None),
        Time::Now => case("now", None),
        Time::At(seconds, rest) => case(
            "timestamp",
            Some(Box::new(Value::Record(vec![
                ("seconds".into(), seconds.into()),
                ("nanoseconds".into(), rest.into()),
            ]))),
        ),
    }
}

fn times_of(stat: Result<Option<Value>, Code>) -> Times {
    let Ok(Some(Value::Record(fields))) = stat else {
        panic!("a record is needed, found {stat:?}");
    };
    [3, 4, 5].map(|place| match &fields[place].1 {
        Value::Option(None) => None,
        Value::Option(Some(time)) => match &**time {
            Value::Record(time) => {
                let part = |at: usize| time[at].1.number().expect("a number");
                Some((part(0), u32::try_from(part(1)).expect("below a second")))
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    })
}
