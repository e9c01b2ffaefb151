//! The next process of a host: a second host gets the memory of the first one, which ended without a word, and clients use their old handles.

use std::sync::Arc;

use steadfast_restart::{CallError, Component, Edge, Handle, Host, LoadError, Policy, Value};
use steadfast_sys::shared::Shared;

use crate::fixture;
use crate::lock::{HOLDER, NEW, TAKE};

const BYTES: usize = 64 << 10;
const FILES: &str = "steadfast:fs/files@0.1.0#";

struct Memory([Arc<Shared>; 2]);

impl Memory {
    fn new(bytes: usize) -> Self {
        let made = || Arc::new(Shared::sealed(c"test-keep", bytes).expect("a memfd"));
        Self([made(), made()])
    }

    /// As whoever kept the descriptors gives them to the next process.
    fn given(&self) -> [Shared; 2] {
        let again = |area: &Arc<Shared>| {
            let fd = area.as_fd().try_clone_to_owned().expect("a descriptor");
            Shared::of(fd.into()).expect("a mapping")
        };
        [again(&self.0[0]), again(&self.0[1])]
    }
}

struct Process {
    _host: Host,
    edges: Vec<Edge>,
    /// Whether it goes on with what the last one has kept.
    restored: Result<bool, LoadError>,
}

fn process(names: &[&str], memories: &[&Memory]) -> Process {
    let mut host = Host::new(true).expect("the pad works");
    let mut edges: Vec<Edge> = Vec::new();
    for name in names {
        let uses = match *name {
            "client" => vec![host.edge(name, "lock", &[]).expect("an edge")],
            "filesystem" => {
                let edge = |to: &str| host.edge(name, to, &[]).expect("an edge");
                ["keyvalue", "fs"].map(edge).into()
            }
            _ => Vec::new(),
        };
        let component = Component {
            uses,
            console: Some(Arc::new(|_, _: &str| {})),
            ..fixture::component(name, Policy::default())
        };
        host.add(component, None).expect("it starts");
        edges.push(host.edge("test", name, &[]).expect("an edge"));
    }
    let given = names.iter().zip(memories);
    let given = given.map(|(name, memory)| ((*name).to_owned(), memory.given()));
    let restored = host.keep("test", given.collect());
    Process {
        _host: host,
        edges,
        restored,
    }
}

fn is_stale(edge: &Edge, path: &str, of: Handle) {
    let stale = edge.invoke(path, &[of.into()]);
    assert!(matches!(stale, Err(CallError::Stale { .. })), "{stale:?}");
}

fn handle(value: Result<Option<Value>, CallError>) -> Handle {
    let value = value.expect("an answer").expect("a result");
    value.handle().expect("a handle")
}

fn open(edge: &Edge, name: &str) -> Handle {
    let args = [name.into(), Value::Bool(true)];
    handle(edge.invoke(&format!("{FILES}[static]file.open"), &args))
}

fn write(edge: &Edge, file: Handle, at: u64, data: &[u8]) {
    let args = [file.into(), at.into(), data.into()];
    let done = edge.invoke(&format!("{FILES}[method]file.write"), &args);
    assert_eq!(
        done.expect("an answer").and_then(|v| v.number()),
        Some(data.len() as u64)
    );
}

fn read(edge: &Edge, file: Handle) -> Vec<u8> {
    let args = [file.into(), 0u64.into(), 65_536u32.into()];
    match edge.invoke(&format!("{FILES}[method]file.read"), &args) {
        Ok(Some(Value::Result(Ok(Some(data))))) => match *data {
            Value::Bytes(bytes) => bytes,
            _ => Vec::new(),
        },
        other => panic!("{other:?}"),
    }
}

/// A descriptor comes back by what it is, in the next process as well: its file has another name by now, and none at last.
#[test]
fn descriptors_of_files_that_were_renamed_come_back_in_the_next_process() {
    const TYPES: &str = "wasi:filesystem/types@0.2.0#[method]descriptor.";
    let names = ["keyvalue", "fs", "filesystem"];
    let memories = names.map(|_| Memory::new(1 << 20));
    let memories: Vec<_> = memories.iter().collect();
    let call = |edge: &Edge, name: &str, args: &[Value]| {
        let answer = edge.invoke(&format!("{TYPES}{name}"), args);
        answer.expect("an answer").expect("a result")
    };
    let flags = |names: &[&str]| Value::Flags(names.iter().map(|&name| name.into()).collect());
    let first = process(&names, &memories);
    let edge = &first.edges[2];
    let root = handle(edge.invoke("wasi:filesystem/preopens@0.2.0#get-directories", &[]));
    let open = [
        root.into(),
        flags(&[]),
        "a".into(),
        flags(&["create"]),
        flags(&["read", "write"]),
    ];
    let file = call(edge, "open-at", &open).handle().expect("a file");
    let text = [file.into(), (&b"text"[..]).into(), 0u64.into()];
    call(edge, "write", &text);
    let rename = [root.into(), "a".into(), root.into(), "b".into()];
    assert_eq!(call(edge, "rename-at", &rename), Value::Result(Ok(None)));
    drop(first);
    let next = process(&names, &memories);
    assert!(next.restored.expect("whole"));
    let edge = &next.edges[2];
    let unlink = call(edge, "unlink-file-at", &[root.into(), "b".into()]);
    assert_eq!(unlink, Value::Result(Ok(None)));
    let found = call(edge, "read", &[file.into(), 9u64.into(), 0u64.into()]);
    let right = Value::Tuple(vec![(&b"text"[..]).into(), Value::Bool(false)]);
    assert_eq!(found, Value::Result(Ok(Some(Box::new(right)))));
}

/// More bytes than there is room for: tables take the place of entries again and again.
#[test]
fn files_and_their_handles_come_back_in_process_after_process() {
    let memory = Memory::new(BYTES);
    let mut files: Vec<(Handle, Vec<u8>)> = Vec::new();
    for process_number in 0..4_u8 {
        let process = process(&["fs"], &[&memory]);
        assert_eq!(process.restored.expect("whole"), process_number > 0);
        let fs = &process.edges[0];
        for (file, bytes) in &files {
            assert_eq!(read(fs, *file), *bytes);
        }
        let file = open(fs, &format!("file-{process_number}"));
        assert!(files.iter().all(|(other, _)| *other != file));
        files.push((file, Vec::new()));
        for turn in 0..60_u8 {
            let place = usize::from(turn) % files.len();
            let (file, bytes) = &mut files[place];
            let data = [turn ^ process_number; 1000];
            let at = usize::from(turn % 5) * 700;
            write(fs, *file, at as u64, &data);
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(&data);
        }
        if process_number == 2 {
            let (file, _) = files.remove(0);
            fs.discard(file).expect("live");
            let stale = fs.discard(file);
            assert!(matches!(stale, Err(CallError::Stale { .. })), "{stale:?}");
        }
        let kept = fs.stats().expect("stats").kept;
        assert_eq!(kept.word(), "yes");
    }
}

/// What a component held at another one is no client's: it makes it again.
#[test]
fn what_components_held_at_others_is_not_there_twice() {
    let memories = [Memory::new(BYTES), Memory::new(BYTES)];
    let memories = [&memories[0], &memories[1]];
    let main = |name: &str| format!("test:client/main@0.1.0#{name}");
    let names = ["lock", "client"];
    let (lock, session) = {
        let Process { edges, .. } = process(&names, &memories);
        let lock = handle(edges[0].invoke(NEW, &[]));
        let taken = edges[0].invoke(TAKE, &[lock.into(), 3u32.into()]);
        assert_eq!(taken, Ok(Some(Value::Bool(true))));
        let session = handle(edges[1].invoke(&main("[constructor]session"), &[9u32.into()]));
        assert_eq!(edges[0].stats().expect("stats").objects, 2);
        (lock, session)
    };
    let Process { edges, .. } = process(&names, &memories);
    assert_eq!(edges[0].stats().expect("stats").objects, 1);
    let holder = |edge: &Edge, path: &str, of: Handle| {
        let found = edge.invoke(path, &[of.into()]).expect("an answer");
        found.and_then(|value| value.number())
    };
    assert_eq!(
        holder(&edges[1], &main("[method]session.holder"), session),
        Some(9)
    );
    assert_eq!(holder(&edges[0], HOLDER, lock), Some(3));
    assert_eq!(edges[0].stats().expect("stats").objects, 2);
}

fn held(edge: &Edge) -> Handle {
    let lock = handle(edge.invoke(NEW, &[]));
    let taken = edge.invoke(TAKE, &[lock.into(), 3u32.into()]);
    assert_eq!(taken, Ok(Some(Value::Bool(true))));
    lock
}

/// Length of the first entry, its checksum, its bytes; what says that anything is there, the fingerprint, the length of all. The other
/// component's objects are gone as well.
#[test]
fn what_is_damaged_is_refused_once_and_then_all_of_it_is_forgotten() {
    let names = ["lock", "fs"];
    for at in [4096, 4100, 4104, 4112, 0, 8, 24, 28] {
        let memories = [Memory::new(BYTES), Memory::new(BYTES)];
        let memories = [&memories[0], &memories[1]];
        let (lock, file) = {
            let Process { edges, .. } = process(&names, &memories);
            (held(&edges[0]), open(&edges[1], "file"))
        };
        for area in &memories[0].0 {
            let mut byte = [0];
            area.read(at, &mut byte);
            area.write(at, &[byte[0] ^ 4]);
        }
        let Process {
            edges, restored, ..
        } = process(&names, &memories);
        assert!(
            matches!(restored, Err(LoadError::Kept { .. })),
            "{at}: {restored:?}"
        );
        is_stale(&edges[0], HOLDER, lock);
        is_stale(&edges[1], &format!("{FILES}[method]file.size"), file);
        let lock = held(&edges[0]);
        drop(edges);
        let Process {
            edges, restored, ..
        } = process(&names, &memories);
        assert!(restored.expect("whole"), "kept again");
        let holder = edges[0].invoke(HOLDER, &[lock.into()]).expect("an answer");
        assert_eq!(holder.and_then(|value| value.number()), Some(3));
    }
}

#[test]
fn a_turn_that_changes_brings_no_older_state_back() {
    let memory = Memory::new(BYTES);
    drop(process(&["lock"], &[&memory]));
    let lock = {
        let Process { edges, .. } = process(&["lock"], &[&memory]);
        held(&edges[0])
    };
    for turns in [[9, 8], [8, 9]] {
        for (area, turn) in memory.0.iter().zip(turns) {
            area.set64(16, turn);
        }
        let Process { edges, .. } = process(&["lock"], &[&memory]);
        let holder = edges[0].invoke(HOLDER, &[lock.into()]).expect("an answer");
        assert_eq!(holder.and_then(|value| value.number()), Some(3));
    }
}

#[test]
fn what_another_component_has_kept_is_refused() {
    let memory = Memory::new(BYTES);
    assert!(!process(&["lock"], &[&memory]).restored.expect("new"));
    let other = process(&["fs"], &[&memory]).restored;
    assert!(matches!(other, Err(LoadError::Kept { .. })), "{other:?}");
}

#[test]
fn a_table_that_is_too_large_is_told_and_leaves_no_part_of_it() {
    let memory = Memory::new(16 << 10);
    let file = {
        let Process { edges, .. } = process(&["fs"], &[&memory]);
        let file = open(&edges[0], "large");
        for at in 0..20 {
            write(&edges[0], file, at * 1000, &[1; 1000]);
        }
        assert_eq!(read(&edges[0], file).len(), 20_000);
        let kept = edges[0].stats().expect("stats").kept;
        assert_eq!(kept.word(), "too large");
        file
    };
    let Process {
        edges, restored, ..
    } = process(&["fs"], &[&memory]);
    assert!(!restored.expect("empty"));
    is_stale(&edges[0], &format!("{FILES}[method]file.size"), file);
}

/// What an operation has seen, and what one was given in place of another, is known in the next process.
#[test]
fn a_swap_succeeds_or_fails_in_the_next_process_as_it_would_have_in_the_last_one() {
    let atomics = |name: &str| format!("wasi:keyvalue/atomics@0.2.0-draft2#{name}");
    let store = |name: &str| format!("wasi:keyvalue/store@0.2.0-draft2#{name}");
    let memory = Memory::new(BYTES);
    let swap = |edge: &Edge, cas: Handle, value: &[u8]| {
        let swapped = edge.invoke(&atomics("swap"), &[cas.into(), value.into()]);
        swapped.expect("an answer").expect("a result").handle()
    };
    let (bucket, next, old) = {
        let Process { edges, .. } = process(&["keyvalue"], &[&memory]);
        let bucket = handle(edges[0].invoke(&store("open"), &["a".into()]));
        let begin = || {
            let args = [bucket.into(), "x".into()];
            handle(edges[0].invoke(&atomics("[static]cas.new"), &args))
        };
        let all = [begin(), begin(), begin()];
        assert_eq!(swap(&edges[0], all[0], b"1"), None);
        let next = swap(&edges[0], all[1], b"2");
        (bucket, next.expect("it was set meanwhile"), all[2])
    };
    let Process {
        edges, restored, ..
    } = process(&["keyvalue"], &[&memory]);
    assert!(restored.expect("whole"));
    assert_eq!(edges[0].stats().expect("stats").objects, 3);
    let late = swap(&edges[0], old, b"late").expect("it was set meanwhile");
    assert_eq!(swap(&edges[0], next, b"2"), None);
    assert!(swap(&edges[0], late, b"late").is_some(), "it was swapped");
    let args = [bucket.into(), "x".into()];
    let found = edges[0].invoke(&store("[method]bucket.get"), &args);
    let right = Value::Option(Some(Box::new(b"2".as_slice().into())));
    assert_eq!(found, Ok(Some(Value::Result(Ok(Some(Box::new(right)))))));
}
