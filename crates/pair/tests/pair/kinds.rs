//! Every kind of call that reads or writes a file: what it brings is compared and repaired, and both disks hold what the program
//! alone would have written.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sites::*;

const PAGE: u64 = 4096;
/// Those that the kernel may refuse say which way the bytes came: as without a pair, but for `synced`, which no disk has.
const READS: [&str; 16] = [
    "read", "pread", "readv", "preadv", "preadv2", "direct", "sendfile", "splice", "streamed",
    "spliced", "served", "mapped", "private", "changed", "run", "synced",
];
const WRITES: [&str; 27] = [
    "write", "pwrite", "writev", "pwritev", "pwritev2", "append", "direct", "sync", "shorter",
    "longer", "beyond", "room", "added", "adds", "short", "even", "over", "exchange", "linked",
    "crowded", "filled", "taken", "shows", "bred", "alarmed", "rung", "anew",
];

/// Six pages, and a part of a seventh.
pub(crate) fn with_file(name: &str) -> (PathBuf, PathBuf) {
    let dir = seed(name);
    let program = built(&dir, "kinds");
    let data = dir.join("data");
    fs::create_dir_all(&data).expect("a directory");
    let bytes: Vec<u8> = (0..6 * 4096 + 1234_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0])
        .collect();
    fs::write(data.join("f"), bytes).expect("a file");
    (dir, program)
}

pub(crate) fn site(data: &Path, program: &Path) -> Site {
    Site {
        command: vec![program.display().to_string(), "f".to_owned()],
        ..sqlite_site(data)
    }
}

/// What the program alone answers, and the file that it leaves.
fn bare(dir: &Path, program: &Path, lines: &str) -> (String, Vec<u8>) {
    let own = dir.join("bare");
    let _ = fs::remove_dir_all(&own);
    fs::create_dir_all(&own).expect("a directory");
    fs::copy(dir.join("data/f"), own.join("f")).expect("a copy");
    let mut child = Command::new(program)
        .arg("f")
        .current_dir(&own)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut to = child.stdin.take().expect("piped");
    to.write_all(lines.as_bytes()).expect("it reads");
    drop(to);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (said, fs::read(own.join("f")).expect("a file"))
}

#[test]
fn what_any_kind_of_read_brings_from_a_wrong_page_of_either_disk_is_repaired() {
    let (dir, program) = with_file("reads");
    let site = site(&dir.join("data"), &program);
    let (right, _) = bare(&dir, &program, &(READS.join("\n") + "\n"));
    let right: Vec<&str> = right.lines().collect();
    assert_eq!(right.len(), READS.len());
    let mut both = Both::start(&site, &site);
    for (kind, right) in READS.iter().zip(right) {
        both = both.told(kind, right);
        for struck in ["A", "B"] {
            let child = if struck == "A" { &both.a } else { &both.b };
            let path = format!("/proc/{}/root/mnt/data/f", child.id());
            let mut open = fs::OpenOptions::new();
            let file = open.read(true).write(true).open(path).expect("a file");
            // In the middle, and in the page that the file's end cuts.
            for at in [2 * PAGE + 7, 6 * PAGE + 1000] {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).expect("inside");
                file.write_all_at(&[byte[0] ^ 16], at).expect("stored");
            }
            both = both.told(kind, right);
        }
        assert_eq!(both.ask(kind), right, "{kind}: again");
    }
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    for (of, with) in [("A", "B"), ("B", "A")] {
        for page in [2, 6] {
            let line = format!("disk of {of}, f page {page}, ledger agrees with {with}");
            let told = ends.said().matches(&line).count();
            assert_eq!(told, 2 * READS.len(), "{line}: {}", ends.said());
        }
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn what_any_kind_of_write_stores_is_on_both_disks_and_in_both_ledgers() {
    let (dir, program) = with_file("writes");
    let site = site(&dir.join("data"), &program);
    let lines: Vec<String> = WRITES
        .iter()
        .chain(&["nameless"])
        .flat_map(|kind| [format!("put {kind}"), "pread".to_owned()])
        .collect();
    let (right, whole) = bare(&dir, &program, &(lines.join("\n") + "\n"));
    let mut both = Both::start(&site, &site);
    for (line, right) in lines.iter().zip(right.lines()) {
        assert_eq!(both.ask(line), right);
        assert!(
            !line.starts_with("put") || right.ends_with("done"),
            "{right}"
        );
    }
    let path = |child: &std::process::Child| format!("/proc/{}/root/mnt/data/f", child.id());
    for child in [&both.a, &both.b] {
        assert_eq!(fs::read(path(child)).expect("a file"), whole);
    }
    // The ledgers have followed: each page is vouched for.
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path(&both.b));
    let file = file.expect("a file");
    let pages = (whole.len() as u64).div_ceil(PAGE);
    for page in 0..pages {
        let mut byte = [0];
        file.read_exact_at(&mut byte, page * PAGE).expect("inside");
        file.write_all_at(&[!byte[0]], page * PAGE).expect("stored");
    }
    let last = right.lines().last().expect("an answer");
    assert_eq!(both.ask("pread"), last);
    assert_eq!(fs::read(path(&both.b)).expect("a file"), whole);
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    let told = ends.said().matches("disk of B, f page").count() as u64;
    assert_eq!(told, 2 * pages, "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn what_would_leave_the_sites_unequal_is_refused_by_name() {
    let (dir, program) = with_file("refusals");
    let site = site(&dir.join("data"), &program);
    for (kind, line) in [
        ("map", "mapping a protected file"),
        ("punch", "fallocate that cuts or shifts a protected file"),
        ("cut", "truncate(2) by name"),
        ("root", "another root directory (chroot)"),
        ("link", "a second name (link)"),
        (
            "breeds",
            "changing a protected file that another process has mapped",
        ),
    ] {
        let mut both = Both::start(&site, &site);
        let before = both.ask("pread");
        assert!(before.starts_with("pread "), "{before}");
        assert_eq!(both.ask(&format!("put {kind}")), "");
        let ends = both.end();
        // The ledger refuses such a name when the primary has made it, which stops the secondary.
        let secondary = if kind == "link" { 122 } else { 121 };
        let codes = [Some(121), Some(secondary)];
        assert_eq!(ends.codes(), codes, "{kind}: {}", ends.said());
        assert!(ends.said().contains(line), "{kind}: {}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

fn file_of(child: &std::process::Child, name: &str) -> fs::File {
    let path = format!("/proc/{}/root/mnt/data/{name}", child.id());
    let mut open = fs::OpenOptions::new();
    open.read(true).write(true).open(path).expect("a file")
}

fn flip(file: &fs::File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("inside");
    file.write_all_at(&[byte[0] ^ 16], at).expect("stored");
}

#[test]
fn a_wrong_page_of_an_open_file_is_repaired_under_its_new_name_and_stops_the_program_under_none() {
    let (dir, program) = with_file("held");
    let site = site(&dir.join("data"), &program);
    for struck in ["A", "B"] {
        let mut both = Both::start(&site, &site);
        assert_eq!(both.ask("put hold"), "put hold done");
        let right = both.ask("held");
        assert_eq!(both.ask("put away"), "put away done");
        let file = file_of(if struck == "A" { &both.a } else { &both.b }, "f.away");
        flip(&file, 2 * PAGE + 7);
        assert_eq!(both.ask("held"), right, "{struck}");
        assert_eq!(both.ask("put gone"), "put gone done");
        assert_eq!(both.ask("held"), right, "{struck}");
        flip(&file, 2 * PAGE + 7);
        assert_eq!(both.ask("held"), "", "nothing wrong leaves");
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(122); 2], "{}", ends.said());
        let line = format!("disk of {struck}, f.away page 2, ledger agrees with");
        assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
        assert!(ends.said().contains("its name is gone"), "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

/// The kernel maps it without a pair.
#[test]
fn a_mapping_of_more_than_a_gib_is_one_that_the_file_system_has_not() {
    let (dir, program) = with_file("huge");
    let site = site(&dir.join("data"), &program);
    let (right, _) = bare(&dir, &program, "put huge\n");
    assert_eq!(right, "put huge done\n");
    let mut both = Both::start(&site, &site);
    assert_eq!(both.ask("put huge"), "put huge No such device");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    assert_eq!(ends.said(), "");
    fs::remove_dir_all(dir).expect("clean");
}

/// Fio reads back what it has written at random places in random pieces, and holds it against sums of its own.
#[test]
fn fio_finds_what_it_has_written() {
    let dir = seed("fio");
    for engine in ["psync", "pvsync --direct=1", "sync"] {
        let command = format!(
            "fio --name=v --filename=f --size=256k --rw=randrw --bsrange=512-12k --verify=crc32c --thread --fsync=16 --randseed=7 \
             --output-format=terse --ioengine={engine}"
        );
        let site = Site {
            command: command.split(' ').map(str::to_owned).collect(),
            ..sqlite_site(&dir)
        };
        let ends = Both::start(&site, &site).end();
        assert_eq!(ends.codes(), [Some(0); 2], "{engine}: {}", ends.said());
        // The fifth field is its error (fio(1), TERSE OUTPUT).
        let said = String::from_utf8_lossy(&ends.a.stdout).into_owned();
        assert_eq!(said.split(';').nth(4), Some("0"), "{engine}: {said}");
        let said = ends.said(); // fio has words of its own
        assert!(!said.contains("steadfast pair:"), "{engine}: {said}");
    }
    fs::remove_dir_all(dir).expect("clean");
}

/// The same while bits of its file flip on one disk. `PAIR_FIO`: how often it writes as much as its file has.
#[test]
fn fio_finds_what_it_has_written_while_pages_of_one_disk_are_struck() {
    let dir = seed("fio-struck");
    let times: u64 = std::env::var("PAIR_FIO").map_or(3, |text| text.parse().expect("a number"));
    let command = format!(
        "fio --name=v --filename=f --size=512k --io_size={}k --rw=randwrite --norandommap --bs=4k --verify=crc32c --thread --fsync=16 \
         --randseed=7 --output-format=terse --ioengine=psync",
        512 * times
    );
    let site = Site {
        command: command.split(' ').map(str::to_owned).collect(),
        ..sqlite_site(&dir)
    };
    side_by_side(&["A", "B"], |struck| {
        let mut both = Both::start(&site, &site);
        let child = if *struck == "A" { &both.a } else { &both.b };
        let path = format!("/proc/{}/root/mnt/data/f", child.id());
        let mut flips = 0_u64;
        while both.a.try_wait().expect("a child").is_none() {
            let open = fs::OpenOptions::new().read(true).write(true).open(&path);
            if let Ok(file) = open
                && file.metadata().is_ok_and(|meta| meta.len() == 512 << 10)
            {
                flip(&file, (flips * 37 % 128) * PAGE + 11 * (flips % 300));
                flips += 1;
            }
            // A page's turn comes again after 2.5 s: not within the three repairs that one read may take.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let ends = both.end();
        let said = ends.said();
        assert_eq!(ends.codes(), [Some(0); 2], "{struck}: {said}");
        let output = String::from_utf8_lossy(&ends.a.stdout).into_owned();
        assert_eq!(output.split(';').nth(4), Some("0"), "{struck}: {output}");
        let of = format!("disk of {struck}, f page");
        assert!(flips > 20 && said.contains(&of), "{flips}: {said}");
        let other = if *struck == "A" {
            "disk of B"
        } else {
            "disk of A"
        };
        assert!(!said.contains(other), "{said}");
    });
    fs::remove_dir_all(dir).expect("clean");
}
