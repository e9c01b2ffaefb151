//! A directory that is written, closed, hit, and opened again.

use openraft::EntryPayload;
use openraft::entry::RaftEntry as _;
use openraft::vote::RaftLeaderId as _;

use super::*;
use crate::entry::Bytes;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("disk-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Self(dir)
    }

    fn open(&self) -> Disk {
        Disk::open(&self.0, 1, "RDGX").unwrap()
    }

    /// A second file of the log.
    fn append_elsewhere(&self) {
        let mut bytes = Vec::new();
        segments::put(&entry(1, 3, b"three"), &mut bytes).unwrap();
        fs::write(self.0.join("log-00000002"), bytes).unwrap();
    }

    fn logs(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(&self.0).unwrap();
        let mut logs: Vec<PathBuf> = all
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().contains("/log-"))
            .collect();
        logs.sort();
        logs
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn id(term: u64, index: u64) -> LogIdOf<Types> {
    let leader = openraft::alias::LeaderIdOf::<Types>::new(term, 9);
    LogIdOf::<Types>::new(leader.to_committed(), index)
}

fn entry(term: u64, index: u64, bytes: &[u8]) -> EntryOf<Types> {
    EntryOf::<Types>::new(id(term, index), EntryPayload::Normal(Bytes(bytes.to_vec())))
}

/// Writes with the directory's own hand, and waits until all of it is durable.
fn write(disk: Disk, with: impl AsyncFnOnce(&Keeper)) -> Entries {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (keeper, found) = disk.start().unwrap();
    runtime.block_on(async {
        with(&keeper).await;
        keeper.cut(u64::MAX).await.unwrap();
    });
    drop(keeper);
    found.entries
}

fn texts(disk: &Disk) -> Vec<(u64, String)> {
    let entries = disk.loaded.entries.iter();
    entries
        .map(|(index, entry)| match &entry.payload {
            EntryPayload::Normal(Bytes(bytes)) => {
                (*index, String::from_utf8_lossy(bytes).into_owned())
            }
            _ => (*index, "other".to_owned()),
        })
        .collect()
}

/// Three entries, and a vote, in an open directory.
fn three(scratch: &Scratch) {
    write(scratch.open(), async |keeper| {
        keeper.vote(VoteOf::<Types>::new(1, 9)).await.unwrap();
        for (index, text) in [(0, "zero"), (1, "one"), (2, "two")] {
            let entries = [entry(1, index, text.as_bytes())];
            keeper.append(&entries, IOFlushed::noop()).unwrap();
        }
    });
}

#[test]
fn what_was_written_is_there_under_the_same_number_and_every_start_counts() {
    let scratch = Scratch::new("whole");
    let first = scratch.open();
    assert!(!first.resumes() && !first.lost());
    let node = first.node();
    let vote = VoteOf::<Types>::new(1, 9);
    write(first, async |keeper| {
        keeper.vote(vote).await.unwrap();
        for (index, text) in [(0, "zero"), (1, "one"), (2, "wrong"), (3, "wrong")] {
            let entries = [entry(1, index, text.as_bytes())];
            keeper.append(&entries, IOFlushed::noop()).unwrap();
        }
        keeper.cut(2).await.unwrap();
        let entries = [entry(2, 2, b"two"), entry(2, 3, b"three")];
        keeper.append(&entries, IOFlushed::noop()).unwrap();
    });
    let mut again = scratch.open();
    assert_eq!((again.node(), again.starts()), (node, 2));
    assert!(again.resumes() && !again.lost() && again.notes().is_empty());
    assert_eq!(again.vote, Some(vote));
    let all = [(0, "zero"), (1, "one"), (2, "two"), (3, "three")];
    assert_eq!(texts(&again), all.map(|(i, text)| (i, text.to_owned())));
}

#[test]
fn the_log_goes_on_behind_a_state_and_what_the_state_has_is_removed() {
    let scratch = Scratch::new("state");
    three(&scratch);
    let meta = SnapshotMetaOf::<Types> {
        last_log_id: Some(id(1, 50)),
        ..Default::default()
    };
    // A state of another replica, far ahead: what was here is stale, and what follows begins behind it.
    write(scratch.open(), async |keeper| {
        keeper.state(meta.clone(), vec![7; 9]).await.unwrap();
        keeper.purge(id(1, 50)).unwrap();
        let entries = [entry(1, 51, b"next")];
        keeper.append(&entries, IOFlushed::noop()).unwrap();
    });
    let mut again = scratch.open();
    assert_eq!(again.notes(), [""; 0]);
    assert_eq!(again.state, Some((meta, vec![7; 9])));
    assert_eq!(texts(&again), [(51, "next".to_owned())]);
}

#[test]
fn states_that_are_stored_at_once_leave_the_last_of_them() {
    let scratch = Scratch::new("states");
    let meta = |index| SnapshotMetaOf::<Types> {
        last_log_id: Some(id(1, index)),
        ..Default::default()
    };
    write(scratch.open(), async |keeper| {
        keeper.vote(VoteOf::<Types>::new(1, 9)).await.unwrap();
        let all = (0..20u8).map(|i| {
            let index = u64::from(i * 7 % 20);
            keeper.state(meta(index), vec![i; 100_000])
        });
        for stored in futures_util::future::join_all(all).await {
            stored.unwrap();
        }
    });
    // Nor is it forgotten from one start to the next.
    write(scratch.open(), async |keeper| {
        keeper.state(meta(3), vec![0; 9]).await.unwrap();
    });
    let again = scratch.open();
    assert_eq!(again.state, Some((meta(19), vec![17; 100_000])));
}

#[test]
fn full_files_go_when_a_state_has_all_of_them() {
    let scratch = Scratch::new("purge");
    let large = vec![1; 6 << 20];
    write(scratch.open(), async |keeper| {
        keeper.vote(VoteOf::<Types>::new(1, 9)).await.unwrap();
        for index in 0..7 {
            let entries = [entry(1, index, &large)];
            keeper.append(&entries, IOFlushed::noop()).unwrap();
            keeper.cut(u64::MAX).await.unwrap();
        }
    });
    assert_eq!(scratch.logs().len(), 3);
    let meta = SnapshotMetaOf::<Types> {
        last_log_id: Some(id(1, 5)),
        ..Default::default()
    };
    write(scratch.open(), async |keeper| {
        keeper.state(meta, Vec::new()).await.unwrap();
        keeper.purge(id(1, 5)).unwrap();
    });
    assert_eq!(scratch.logs().len(), 1);
    let again = scratch.open();
    assert_eq!(
        again.loaded.entries.keys().copied().collect::<Vec<_>>(),
        [6]
    );
}

/// All files, to be put back.
struct Copied(Vec<(PathBuf, Vec<u8>)>);

impl Copied {
    fn of(scratch: &Scratch) -> Self {
        let files = fs::read_dir(&scratch.0).unwrap();
        let files = files
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| (path.clone(), fs::read(path).unwrap()));
        Self(files.collect())
    }

    fn restore(&self, scratch: &Scratch) {
        let _ = fs::remove_dir_all(&scratch.0);
        fs::create_dir(&scratch.0).unwrap();
        for (path, bytes) in &self.0 {
            fs::write(path, bytes).unwrap();
        }
    }
}

#[test]
fn a_record_that_nobody_heard_of_is_a_torn_tail_wherever_it_is_cut() {
    let scratch = Scratch::new("cut");
    three(&scratch);
    let log = scratch.logs().pop().unwrap();
    let durable = fs::read(&log).unwrap();
    let mut whole = durable.clone();
    segments::put(&entry(1, 3, b"three"), &mut whole).unwrap();
    let node = scratch.open().node();
    for length in durable.len() + 1..whole.len() {
        fs::write(&log, &whole[..length]).unwrap();
        let mut again = scratch.open();
        assert_eq!(again.node(), node, "cut at {length}");
        assert_eq!(again.loaded.entries.len(), 3);
        let notes = again.notes();
        assert!(matches!(&notes[..], [note] if note.contains("cut off")));
        assert_eq!(again.faults(), 0);
    }
    // Room that was made and never filled.
    fs::write(&log, [&durable[..], &[0; 4096]].concat()).unwrap();
    assert_eq!(scratch.open().loaded.entries.len(), 3);
}

#[test]
fn a_log_that_is_shorter_than_was_called_durable_is_lost_and_nothing_of_it_goes() {
    let scratch = Scratch::new("short");
    three(&scratch);
    let log = scratch.logs().pop().unwrap();
    let whole = fs::read(&log).unwrap();
    let node = scratch.open().node();
    let copied = Copied::of(&scratch);
    let lost = |length: usize| {
        let mut again = scratch.open();
        assert!(again.lost() && !again.resumes(), "{length} bytes are left");
        assert_ne!(again.node(), node, "{length} bytes are left");
        let notes = again.notes();
        assert!(matches!(&notes[..], [note] if note.contains("were durable")));
        let aside = scratch.0.join(DAMAGED).join("log-00000001");
        assert_eq!(fs::read(aside).map_or(0, |bytes| bytes.len()), length);
    };
    // Empty, inside of records, and where one ends.
    for length in 0..whole.len() {
        copied.restore(&scratch);
        fs::write(&log, &whole[..length]).unwrap();
        lost(length);
    }
    copied.restore(&scratch);
    fs::remove_file(&log).unwrap();
    lost(0);
    copied.restore(&scratch);
    assert_eq!(scratch.open().node(), node);
}

#[test]
fn a_mark_has_a_slot_that_is_whole_and_says_the_last_of_both() {
    let scratch = Scratch::new("mark");
    three(&scratch);
    let path = scratch.0.join(DURABLE);
    let whole = fs::read(&path).unwrap();
    let node = scratch.open().node();
    let last = Marker::open(&scratch.0).unwrap().unwrap().mark();
    assert!(last.voted);
    assert_eq!(
        (last.file, last.length),
        (1, fs::metadata(&scratch.logs()[0]).unwrap().len())
    );
    for bit in (0..whole.len() * 8).step_by(29) {
        let mut wrong = whole.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, wrong).unwrap();
        let mut again = scratch.open();
        assert_eq!(again.node(), node, "bit {bit}");
        // Between the halves there is nothing; of both it is said.
        let is_said = match &again.notes()[..] {
            [] => false,
            [note] => note.contains("does not fit its check"),
            notes => panic!("{notes:?}"),
        };
        let is_hit = bit / 8 < 10 || bit / 8 >= 512;
        assert!(is_said || !is_hit, "bit {bit}");
        assert_eq!(again.faults(), u64::from(is_said), "bit {bit}");
        assert!(!is_said || !(20..512).contains(&(bit / 8)), "bit {bit}");
        drop(again);
        // And mended.
        assert_eq!(scratch.open().notes(), [""; 0]);
    }
    fs::write(&path, &whole[..512]).unwrap();
    assert_eq!(scratch.open().notes().len(), 1, "a half is cut off");
    assert_eq!(fs::metadata(&path).unwrap().len(), whole.len() as u64);
    // What is written next goes over the slot that does not hold the mark.
    fs::write(&path, &whole).unwrap();
    let mut marker = Marker::open(&scratch.0).unwrap().unwrap();
    marker.log(1, last.length + 9).unwrap();
    let after = fs::read(&path).unwrap();
    let kept = [0, 512].map(|at| after[at..at + 14] == whole[at..at + 14]);
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 1);
    let mut bytes = after;
    let newer = if kept[0] { 512 } else { 0 };
    bytes[newer + 13] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(Marker::open(&scratch.0).unwrap().unwrap().mark(), last);
    bytes[(512 - newer) + 13] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(scratch.open().lost(), "no slot is left");
}

#[test]
fn what_an_interrupted_putting_aside_leaves_is_damage_again_and_all_of_it_stays() {
    let scratch = Scratch::new("aside");
    three(&scratch);
    let copied = Copied::of(&scratch);
    let files = copied.0.iter().map(|(path, _)| path.clone());
    let files: Vec<PathBuf> = files.filter(|path| !path.ends_with(LOCK)).collect();
    // Every single one as the only one that is left, and as the only one that is gone.
    for alone in &files {
        for gone in [true, false] {
            copied.restore(&scratch);
            fs::create_dir(scratch.0.join(DAMAGED)).unwrap();
            fs::write(scratch.0.join(DAMAGED).join("earlier"), b"kept").unwrap();
            for path in files.iter().filter(|path| (*path == alone) == gone) {
                fs::remove_file(path).unwrap();
            }
            let at = format!("{} {gone}", alone.display());
            assert!(scratch.open().lost(), "{at}");
            assert!(scratch.open().lost(), "{at}");
            assert!(scratch.0.join(DAMAGED).join("earlier").exists(), "{at}");
            assert!(scratch.0.join("damaged-2").exists(), "{at}");
            assert!(!scratch.0.join("damaged-3").exists(), "{at}");
        }
    }
    // Nothing is left, and who begins anew has not been stored.
    copied.restore(&scratch);
    files.iter().for_each(|path| fs::remove_file(path).unwrap());
    assert!(!scratch.open().lost(), "a new directory");
    fs::remove_file(scratch.0.join(REPLICA)).unwrap();
    fs::create_dir(scratch.0.join(DAMAGED)).unwrap();
    assert!(scratch.open().lost());
}

#[test]
fn a_state_whose_entries_are_purged_cannot_go_and_stale_entries_make_no_hole() {
    let scratch = Scratch::new("stale");
    three(&scratch);
    let meta = SnapshotMetaOf::<Types> {
        last_log_id: Some(id(1, 50)),
        ..Default::default()
    };
    // The process ends between the state and the record that says what is part of it.
    write(scratch.open(), async |keeper| {
        keeper.state(meta, vec![7; 9]).await.unwrap();
    });
    write(scratch.open(), async |keeper| {
        let entries = [entry(1, 51, b"next")];
        keeper.append(&entries, IOFlushed::noop()).unwrap();
    });
    let mut again = scratch.open();
    assert_eq!(again.notes(), [""; 0]);
    assert_eq!(texts(&again), [(51, "next".to_owned())]);
    drop(again);
    let copied = Copied::of(&scratch);
    fs::remove_file(scratch.0.join(STATE)).unwrap();
    assert!(scratch.open().lost());

    copied.restore(&scratch);
    write(scratch.open(), async |keeper| {
        keeper.purge(id(1, 51)).unwrap();
    });
    assert!(
        scratch.open().lost(),
        "the state ends before what is purged"
    );
}

#[test]
fn every_flipped_bit_has_the_replica_begin_anew_under_another_number() {
    let scratch = Scratch::new("flip");
    three(&scratch);
    let meta = SnapshotMetaOf::<Types> {
        last_log_id: Some(id(1, 0)),
        ..Default::default()
    };
    write(scratch.open(), async |keeper| {
        keeper.state(meta, vec![3; 40]).await.unwrap();
    });
    let log = scratch.logs().pop().unwrap();
    let names = [
        log.clone(),
        scratch.0.join(VOTE),
        scratch.0.join(STATE),
        scratch.0.join(REPLICA),
    ];
    let whole = names.each_ref().map(|name| fs::read(name).unwrap());
    for (hit, name) in names.iter().enumerate() {
        for bit in (0..whole[hit].len() * 8).step_by(29) {
            for (name, bytes) in names.iter().zip(&whole) {
                fs::write(name, bytes).unwrap();
            }
            let before = scratch.open().node();
            let mut wrong = fs::read(name).unwrap();
            wrong[bit / 8] ^= 1 << (bit % 8);
            fs::write(name, wrong).unwrap();
            let mut again = scratch.open();
            let at = format!("{} bit {bit}", name.display());
            assert_ne!(again.node(), before, "{at}");
            assert!(again.lost() && !again.resumes(), "{at}");
            assert_eq!((again.notes().len(), again.faults()), (1, 1), "{at}");
            assert!(scratch.0.join(DAMAGED).join("replica").exists(), "{at}");
            drop(again);
            // Until it has something of the others' it stays one that has lost its data.
            assert!(scratch.open().lost());
        }
    }
}

#[test]
fn a_hole_in_the_log_and_a_missing_file_are_damage() {
    let scratch = Scratch::new("hole");
    write(scratch.open(), async |keeper| {
        let entries = [entry(1, 0, b"zero"), entry(1, 2, b"two")];
        keeper.append(&entries, IOFlushed::noop()).unwrap();
    });
    assert!(scratch.open().lost());
    for name in [REPLICA, VOTE, DURABLE, "log-00000001"] {
        let scratch = Scratch::new("gone");
        three(&scratch);
        scratch.append_elsewhere();
        fs::remove_file(scratch.0.join(name)).unwrap();
        assert!(scratch.open().lost(), "{name}");
    }
}

#[test]
fn a_directory_has_one_process_and_one_place() {
    let scratch = Scratch::new("taken");
    let open = scratch.open();
    let refused = |slot, service| {
        let why = Disk::open(&scratch.0, slot, service).unwrap_err();
        format!("{why:#}")
    };
    assert!(refused(1, "RDGX").contains("another one that has it"));
    drop(open);
    assert!(refused(2, "RDGX").contains("found: that of replica 1"));
    assert!(refused(1, "RD").contains("--stage RDGX"));
    drop(scratch.open());
}
