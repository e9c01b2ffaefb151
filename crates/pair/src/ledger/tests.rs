//! The ledger against a model: a file that is written, cut and made durable, and its digests.

use std::fs;

use proptest::prelude::*;

use super::*;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("ledger-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    dir
}

fn digests(bytes: &[u8]) -> Vec<u128> {
    bytes.chunks(PAGE).map(page_digest).collect()
}

/// What the agent sends along: the pages that a write covers in part, as they were.
fn write(
    ledger: &mut Ledger,
    id: FileId,
    file: &mut Vec<u8>,
    offset: usize,
    bytes: &[u8],
) -> Result<(), Wrong> {
    let page = |file: &[u8], number: usize| {
        let mut page = file.get(number * PAGE..).unwrap_or_default().to_vec();
        page.resize(PAGE, 0);
        page
    };
    let end = offset + bytes.len();
    let (first, last) = (offset / PAGE, end / PAGE);
    let head = (!bytes.is_empty()
        && (!offset.is_multiple_of(PAGE) || (!end.is_multiple_of(PAGE) && last == first)))
        .then(|| page(file, first));
    let apart = !end.is_multiple_of(PAGE) && (head.is_none() || last != first);
    let tail = (!bytes.is_empty() && apart).then(|| page(file, last));
    ledger.wrote(
        id,
        offset as u64,
        bytes,
        [head.as_deref(), tail.as_deref()],
        false,
    )?;
    // Writing nothing behind the end makes no file longer.
    if bytes.is_empty() {
        return Ok(());
    }
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
    Ok(())
}

fn expected(ledger: &Ledger, id: FileId) -> Vec<u128> {
    (0..).map_while(|page| ledger.expected(id, page)).collect()
}

proptest! {
    #[test]
    fn whatever_is_written_and_cut_the_ledger_has_the_digests_of_the_file(
        steps in prop::collection::vec((0_usize..40_000, 0_usize..9000, any::<u8>(), any::<bool>()), 1..40)
    ) {
        let mut ledger = Ledger::in_memory();
        let id = ledger.file(Path::new("/x"));
        let mut file = Vec::new();
        for (at, len, byte, cut) in steps {
            if cut {
                let last = (!at.is_multiple_of(PAGE)).then(|| {
                    let mut page = file.get(at / PAGE * PAGE..).unwrap_or_default().to_vec();
                    page.resize(PAGE, 0);
                    page
                });
                ledger.truncated(id, at as u64, last.as_deref()).expect("no page is wrong");
                file.resize(at, 0);
            } else {
                write(&mut ledger, id, &mut file, at, &vec![byte; len]).expect("no page is wrong");
            }
            prop_assert_eq!(expected(&ledger, id), digests(&file));
        }
    }
}

#[test]
fn a_bad_page_under_a_partial_write_is_not_blessed() {
    let mut ledger = Ledger::in_memory();
    let id = ledger.file(Path::new("/x"));
    let mut file = Vec::new();
    write(&mut ledger, id, &mut file, 0, &[7; 3 * PAGE]).expect("no page is wrong");
    file[PAGE + 5] ^= 4;
    let wrong = write(&mut ledger, id, &mut file.clone(), PAGE + 100, &[1; 10])
        .expect_err("the page before is wrong");
    assert_eq!(
        wrong,
        Wrong {
            path: "/x".into(),
            page: 1
        }
    );
    write(&mut ledger, id, &mut file, 100, &[1; 10]).expect("the page next to it is right");
}

#[test]
fn a_page_that_is_not_durable_yet_may_be_old_or_new() {
    let mut ledger = Ledger::in_memory();
    let id = ledger.file(Path::new("/x"));
    let mut file = Vec::new();
    write(&mut ledger, id, &mut file, 0, &[1; PAGE]).expect("right");
    ledger.durable(id);
    write(&mut ledger, id, &mut file, 0, &[2; PAGE]).expect("right");
    write(&mut ledger, id, &mut file, 0, &[3; PAGE]).expect("right");
    let of = |byte| page_digest(&[byte; PAGE]);
    assert_eq!(ledger.accepted(id, 0), vec![of(3), of(1)]);
    ledger.durable(id);
    assert_eq!(ledger.accepted(id, 0), vec![of(3)]);
}

#[test]
fn it_is_the_same_after_it_was_closed_and_after_a_torn_end_and_refused_after_damage() {
    let dir = scratch("reopen");
    let mut ledger = Ledger::open(&dir).expect("a ledger");
    let id = ledger.file(Path::new("/data/x.db"));
    let mut file = Vec::new();
    write(&mut ledger, id, &mut file, 0, &[1; 2 * PAGE + 17]).expect("right");
    ledger.durable(id);
    write(&mut ledger, id, &mut file, PAGE, &[2; PAGE]).expect("right");
    ledger.renamed(Path::new("/data/x.db"), Path::new("/data/y.db"));
    ledger.flush(true).expect("room");
    let before: Vec<_> = (0..3).map(|page| ledger.accepted(id, page)).collect();

    let second = Ledger::open(&dir);
    assert!(
        matches!(second, Err(LedgerError::Busy { .. })),
        "{second:?}"
    );
    drop(ledger);

    let path = dir.join("ledger");
    let whole = fs::read(&path).expect("the journal");
    fs::write(&path, [&whole[..], &[3, 200, 0]].concat()).expect("a torn record");
    let again = Ledger::open(&dir).expect("the torn end is dropped");
    let id = again.id(Path::new("/data/y.db")).expect("the new name");
    assert_eq!(
        (0..3)
            .map(|page| again.accepted(id, page))
            .collect::<Vec<_>>(),
        before
    );
    assert_eq!(again.id(Path::new("/data/x.db")), None);
    drop(again);

    for at in [9, 30, whole.len() / 2] {
        let mut struck = fs::read(&path).expect("the journal");
        struck[at] ^= 1;
        fs::write(&path, &struck).expect("a flip");
        let opened = Ledger::open(&dir);
        assert!(
            matches!(opened, Err(LedgerError::Damaged { .. })),
            "byte {at}: {opened:?}"
        );
        struck[at] ^= 1;
        fs::write(&path, &struck).expect("back");
    }
    fs::remove_dir_all(&dir).expect("clean");
}

#[test]
fn it_says_what_its_digests_are_made_by_and_no_other_digest_is_held_against_it() {
    let dir = scratch("made-by");
    let mut ledger = Ledger::open(&dir).expect("a ledger");
    ledger.enrol(Path::new("/data/x.db"), 1, &[page_digest(b"x")]);
    ledger.flush(true).expect("room");
    drop(ledger);
    assert_eq!(Ledger::made_by(&dir), Digest::Xxh3);
    let path = dir.join("ledger");
    let own = fs::read(&path).expect("the journal");
    let mut other = Ledger::in_memory();
    other.log(record::MADE_BY, &(Digest::Md5 as u64).to_le_bytes());
    let head = other.pending.len();
    fs::write(&path, [&other.pending[..], &own[head..]].concat()).expect("a file");
    assert_eq!(Ledger::made_by(&dir), Digest::Md5);
    let opened = Ledger::open(&dir);
    assert!(
        matches!(
            opened,
            Err(LedgerError::Digest {
                told: "xxh3",
                found: "md5",
                ..
            })
        ),
        "{opened:?}"
    );
    // One of before there was a choice.
    fs::write(&path, &own[head..]).expect("a file");
    assert_eq!(Ledger::made_by(&dir), Digest::Xxh3);
    assert!(Ledger::open(&dir).is_ok());
    fs::remove_dir_all(&dir).expect("clean");
}

#[test]
fn the_journal_is_written_anew_when_it_has_grown_and_files_without_a_name_go() {
    let dir = scratch("grown");
    let path = dir.join("ledger");
    let mut ledger = Ledger::open(&dir).expect("a ledger");
    let id = ledger.file(Path::new("/data/x.db"));
    let gone = ledger.file(Path::new("/data/gone"));
    let held = ledger.file(Path::new("/data/held"));
    let (mut file, mut other) = (Vec::new(), Vec::new());
    write(&mut ledger, gone, &mut other, 0, &[9; PAGE]).expect("right");
    ledger.unlinked(Path::new("/data/gone"));
    ledger.unlinked(Path::new("/data/held"));
    ledger.growth_max = 1000;
    let mut longest = 0;
    for round in 0..200_u8 {
        write(&mut ledger, id, &mut file, 0, &[round; 2 * PAGE]).expect("right");
        // Whoever has it open writes on.
        write(&mut ledger, held, &mut other, 0, &[round; PAGE]).expect("right");
        if round % 3 == 0 {
            ledger.durable(id);
        }
        ledger.flush(false).expect("room");
        longest = longest.max(fs::metadata(&path).expect("a journal").len());
        if ledger.has_grown() {
            ledger.compact(|id| id == held).expect("room");
            ledger.growth_max = 1000;
        }
    }
    assert!(longest < 2000, "{longest}");
    assert!(ledger.accepted(gone, 0).is_empty());
    assert_eq!(ledger.accepted(held, 0)[0], page_digest(&[199; PAGE]));
    write(&mut ledger, held, &mut other, PAGE, &[1; PAGE]).expect("right");
    let before: Vec<_> = (0..2).map(|page| ledger.accepted(id, page)).collect();
    ledger.flush(true).expect("room");
    // No room for a second journal: the first one goes on.
    fs::create_dir(path.with_extension("new")).expect("in its way");
    ledger.compact(|_| true).expect("the old one");
    drop(ledger);
    fs::remove_dir(path.with_extension("new")).expect("clean");
    let again = Ledger::open(&dir).expect("whole");
    let id = again.id(Path::new("/data/x.db")).expect("a name");
    let after: Vec<_> = (0..2).map(|page| again.accepted(id, page)).collect();
    assert_eq!(after, before);
    assert_eq!(again.names().count(), 1);
    drop(again);
    fs::remove_dir_all(&dir).expect("clean");
}

#[test]
fn verify_names_the_page_that_flipped_and_is_silent_before() {
    let dir = scratch("verify");
    let path = dir.join("x");
    let mut file = vec![5; 5 * PAGE + 9];
    fs::write(&path, &file).expect("a file");
    let mut ledger = Ledger::in_memory();
    ledger.enrol(&path, file.len() as u64, &digests(&file));
    assert_eq!(ledger.verify(&path).expect("readable"), Vec::<u64>::new());
    file[3 * PAGE + 1] ^= 0x20;
    fs::write(&path, &file).expect("a flip");
    assert_eq!(ledger.verify(&path).expect("readable"), vec![3]);
    fs::write(&path, &file[..4 * PAGE]).expect("cut");
    assert!(
        ledger.verify(&path).expect("readable").contains(&6),
        "the size"
    );
    fs::remove_dir_all(&dir).expect("clean");
}

#[test]
fn a_file_keeps_its_pages_until_its_last_name_is_gone_and_the_journal_knows_all_names() {
    let dir = scratch("names");
    let [a, b, c, d] = ["/d/a", "/d/b", "/d/c", "/d/d"].map(Path::new);
    let page = page_digest(&[1; PAGE]);
    let mut ledger = Ledger::open(&dir).expect("an empty ledger");
    ledger.enrol(a, PAGE as u64, &[page]);
    ledger.enrol(d, 0, &[]);
    let id = ledger.linked(a, b).expect("a file");
    ledger.renamed(a, b);
    ledger.renamed(a, a);
    assert_eq!([ledger.id(a), ledger.id(b)], [Some(id); 2]);
    ledger.renamed(a, c);
    ledger.linked(c, a);
    ledger.unlinked(b);
    // A name that takes another file's place.
    ledger.renamed(c, d);
    for _ in 0..2 {
        // By the records as they came, and then by the journal as it was written anew.
        ledger.flush(true).expect("room");
        drop(ledger);
        ledger = Ledger::open(&dir).expect("whole");
        let names: Vec<_> = ledger.names().map(|(path, _)| path.to_owned()).collect();
        assert_eq!(names, [a, d]);
        assert_eq!(ledger.id(a), ledger.id(d));
        assert!(ledger.has_other_names(a));
    }
    ledger.unlinked(a);
    assert!(!ledger.has_other_names(d));
    let id = ledger.id(d).expect("its last name");
    assert_eq!(ledger.accepted(id, 0), [page]);
    ledger.unlinked(d);
    ledger.flush(true).expect("room");
    drop(ledger);
    assert!(Ledger::open(&dir).expect("whole").is_empty());
    fs::remove_dir_all(&dir).expect("clean");
}

#[test]
fn a_ledger_beside_its_data_is_refused() {
    let dir = scratch("device");
    assert!(matches!(
        Ledger::check_device(&dir, std::slice::from_ref(&dir)),
        Err(LedgerError::SameDevice { .. })
    ));
    Ledger::check_device(&dir, &[PathBuf::from("/proc")]).expect("another device");
    fs::remove_dir_all(&dir).expect("clean");
}

#[test]
fn what_was_written_is_behind_until_the_journal_is_on_its_disk_and_an_error_of_that_is_told_once() {
    let dir = scratch("behind");
    let mut ledger = Ledger::open(&dir).expect("an empty ledger");
    let (id, mut file) = (ledger.file(Path::new("/data/x")), Vec::new());
    ledger.flush(true).expect("room");
    assert!(!ledger.is_behind(id) && ledger.unsynced().is_none());
    write(&mut ledger, id, &mut file, 0, &[1; 100]).expect("nothing was there");
    ledger.flush(false).expect("room");
    assert!(ledger.is_behind(id));
    // More came while it was on its way.
    let (journal, grown) = ledger.unsynced().expect("records");
    write(&mut ledger, id, &mut file, 0, &[2; 100]).expect("as it was");
    ledger.flush(false).expect("room");
    ledger.synced(grown, journal.sync_data());
    assert!(ledger.is_behind(id));
    let (journal, grown) = ledger.unsynced().expect("records");
    ledger.synced(grown, journal.sync_data());
    assert!(!ledger.is_behind(id) && ledger.unsynced().is_none());
    // The file itself is not durable: either page may be on its disk.
    assert_eq!(ledger.accepted(id, 0).len(), 2);
    write(&mut ledger, id, &mut file, 0, &[3; 100]).expect("as it was");
    ledger.flush(false).expect("room");
    let (_, grown) = ledger.unsynced().expect("records");
    ledger.synced(grown, Err(io::Error::other("a bad sector")));
    let told = ledger.flush(true).expect_err("nobody else hears of it");
    assert!(told.to_string().contains("has to be written"), "{told}");
    assert!(
        ledger.is_behind(id),
        "what was not synced is not on the disk"
    );
    ledger.flush(true).expect("told once");
    fs::remove_dir_all(dir).expect("clean");
}
