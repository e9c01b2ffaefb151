//! Below the page cache: data on images that each site mounts, struck where the file's blocks lie, as a disk would err.
//!
//! Each class on each site, read by the program, and found by the scrubber while the page cache still has the right bytes.

use std::fs;
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use steadfast_sys::disk::{forget, place};

use crate::sites::*;

const PAGE: usize = 4096;

const SQLITE: [&str; 3] = ["sqlite3", "-batch", "x.db"];

/// An image with the files of a seed.
fn image(dir: &Path, side: &str, seed: &Path) -> PathBuf {
    let path = dir.join(format!("{side}.img"));
    let file = fs::File::create(&path).expect("a file");
    file.set_len(24 << 20).expect("sparse");
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "4096", "-O", "^has_journal", "-d"])
        .arg(seed)
        .arg(&path)
        .status()
        .expect("e2fsprogs is installed");
    assert!(made.success());
    path
}

/// A site whose data is on an image. The device goes with its last user.
fn start_on(image: &Path, side: &str, more: &[&str]) -> Child {
    start_with("data", image, None, side, more, &SQLITE)
}

/// A site of which `what`, data or ledger, is on an image; the other one is on tmpfs, the data with the files of a seed.
fn start_with(
    what: &str,
    image: &Path,
    seed: Option<&Path>,
    side: &str,
    more: &[&str],
    program: &[&str],
) -> Child {
    let script = "mount -t tmpfs none /mnt && mkdir /mnt/data /mnt/ledger && mount -t tmpfs none /dev/shm && \
         mount -t tmpfs none /mnt/ledger && mount -t tmpfs none /mnt/data && device=$(losetup --find --show --direct-io=on \"$1\") && \
         mount -t ext4 \"$device\" /mnt/$2; losetup --detach \"$device\"; [ -z \"$3\" ] || cp -a \"$3\"/. /mnt/data; \
         cd /mnt/data && shift 3 && exec \"$@\"";
    Command::new("setpriv")
        .args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--ipc",
            "--propagation",
            "private",
        ])
        .args(["--", "sh", "-c", script, "sh"])
        .arg(image)
        .arg(what)
        .arg(seed.unwrap_or_else(|| Path::new("")))
        .args([pair(), side])
        .args(more)
        .args(["--ledger", "/mnt/ledger", "--data", "/mnt/data"])
        .args(["--scrub", "200", "--"])
        .args(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare is installed")
}

struct Disk {
    file: fs::File,
    image: fs::File,
}

impl Disk {
    fn of(site: &Child, image: &Path) -> Self {
        let path = format!("/proc/{}/root/mnt/data/x.db", site.id());
        let mut open = fs::OpenOptions::new();
        open.read(true).write(true);
        Self {
            file: fs::File::open(path).expect("a file"),
            image: open.open(image).expect("an image"),
        }
    }

    fn at(&self, page: usize) -> u64 {
        place(&self.file, (page * PAGE) as u64)
            .expect("FIEMAP")
            .expect("it has blocks")
    }

    fn page(&self, page: usize) -> Vec<u8> {
        let mut bytes = vec![0; PAGE];
        self.image
            .read_exact_at(&mut bytes, self.at(page))
            .expect("inside");
        bytes
    }

    fn put(&self, page: usize, bytes: &[u8]) {
        self.image
            .write_all_at(bytes, self.at(page))
            .expect("stored");
        self.image.sync_all().expect("stored");
    }

    /// The next read comes from the device.
    fn forget(&self) {
        self.file.sync_all().expect("stored");
        forget(&self.file).expect("fadvise");
    }

    fn pages(&self) -> usize {
        usize::try_from(self.file.metadata().expect("a file").len()).expect("small") / PAGE
    }

    fn becomes(&self, page: usize, right: &[u8], what: &str) {
        let deadline = Instant::now() + LIMIT;
        while self.page(page) != right {
            assert!(Instant::now() < deadline, "{what}: nobody repairs it");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

const MAPPED: &str = ".open x.db\nPRAGMA mmap_size=16777216;";

/// What the device holds instead, of each page that it holds wrong.
fn wrong(class: &str, page: usize, now: &[u8], old: &[u8], other: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let half = PAGE / 2;
    match class {
        "flip" => {
            let mut one = now.to_vec();
            one[2000] ^= 2;
            vec![(page, one)]
        }
        // The write has never come to the device, and what it gives is from before.
        "lost write" => vec![(page, old.to_vec())],
        "torn page" => vec![(page, [&now[..half], &old[half..]].concat())],
        // A drive that gives another page's bytes for this one.
        "misdirected read" => vec![(page, other.to_vec())],
        // Written where another page lies: that one is wrong, and this one as it was.
        "misdirected write" => vec![(page, old.to_vec()), (page + 1, now.to_vec())],
        "zeros" => vec![(page, vec![0; PAGE])],
        _ => unreachable!("{class}"),
    }
}

const CLASSES: [&str; 6] = [
    "flip",
    "lost write",
    "torn page",
    "misdirected read",
    "misdirected write",
    "zeros",
];

/// Pages of the table of which both halves have changed, and the one behind as well.
fn struck_at(before: &[Vec<u8>], now: &[Vec<u8>]) -> usize {
    let half = PAGE / 2;
    let changed = |page: usize| {
        before[page][..half] != now[page][..half] && before[page][half..] != now[page][half..]
    };
    (2..before.len() - 1)
        .find(|page| changed(*page) && changed(page + 1))
        .expect("a page of the table")
}

#[test]
fn each_class_of_error_below_the_page_cache_is_attributed_and_repaired_read_or_scrubbed() {
    if !is_root() {
        return; // who mounts an image has to be
    }
    let seed = with_table("below-seed");
    // What is cached waits for the scrubber.
    side_by_side(&["A", "B"], |struck| errs(&seed, struck));
    fs::remove_dir_all(seed).expect("clean");
}

/// A pair of which one disk errs in each way.
fn errs(seed: &Path, name: &str) {
    let dir = crate::sites::seed(&format!("below-{name}"));
    let images = [image(&dir, "a", seed), image(&dir, "b", seed)];
    let address = format!("127.0.0.1:{}", free_port());
    let b = start_on(&images[1], "secondary", &["--listen", &address]);
    let a = start_on(&images[0], "primary", &["--peer", &address]);
    let mut both = Both::with(a, b);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    let disks = [Disk::of(&both.a, &images[0]), Disk::of(&both.b, &images[1])];
    let all = |disk: &Disk| -> Vec<Vec<u8>> {
        disk.forget();
        (0..disk.pages()).map(|page| disk.page(page)).collect()
    };
    let before = all(&disks[0]);
    assert_eq!(both.ask("UPDATE t SET b = lower(b); SELECT 1;"), "1");
    let now = all(&disks[0]);
    let page = struck_at(&before, &now);
    let right = both.ask(ASK);
    // Nothing is said of a device that gives what it was given.
    disks.iter().for_each(Disk::forget);
    assert_eq!(both.ask(ASK), right);
    let mut lines = Vec::new();
    let disk = &disks[usize::from(name == "B")];
    for class in CLASSES {
        for cached in [false, true] {
            let what = format!("{class} on {name}, cached: {cached}");
            disk.forget();
            if cached {
                assert_eq!(both.ask(ASK), right, "{what}");
            }
            let all = wrong(class, page, &now[page], &before[page], &now[page + 2]);
            for (page, bytes) in &all {
                assert_ne!(*bytes, now[*page], "{what}: it would be no fault");
                disk.put(*page, bytes);
            }
            if !cached {
                disk.forget();
                assert_eq!(both.ask(ASK), right, "{what}");
            }
            for (page, _) in &all {
                disk.becomes(*page, &now[*page], &what);
                lines.push(format!("disk of {name}, x.db page {page}, ledger agrees"));
            }
            assert_eq!(both.ask(ASK), right, "{what}");
        }
    }
    // Who would have its file mapped is told that this file system has no mappings, and reads.
    disk.forget();
    let wrong = wrong("flip", page, &now[page], &before[page], &now[page + 2]);
    disk.put(page, &wrong[0].1);
    disk.forget();
    assert_eq!(both.ask(MAPPED), "16777216");
    assert_eq!(both.ask(".sha3sum"), right, "mapped on {name}");
    disk.becomes(page, &now[page], "mapped");
    lines.push(format!("disk of {name}, x.db page {page}, ledger agrees"));
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    let said = ends.said();
    for line in &lines {
        let wanted = 2 * lines.iter().filter(|other| *other == line).count();
        assert_eq!(
            said.matches(line.as_str()).count(),
            wanted,
            "{line}: {said}"
        );
    }
    assert_eq!(said.matches("disk of").count(), 2 * lines.len(), "{said}");
    assert_eq!(said.lines().count(), 2 * lines.len(), "{said}");
    drop(disks);
    fs::remove_dir_all(dir).expect("clean");
}

/// The device that a site has its data on, or its ledger.
fn device(site: &Child, what: &str) -> String {
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", site.id())).expect("proc(5)");
    let place = format!(" /mnt/{what} ");
    let mounted = |line: &&str| line.contains(&place) && line.contains(" - ext4 ");
    let line = mounts.lines().find(mounted);
    let device = line.and_then(|line| line.split(" - ext4 ").nth(1)?.split(' ').next());
    device.expect("it is mounted").to_owned()
}

/// The file system of a site's ledger takes no more writes, as ext4 does after an error (`errors=remount-ro`). What is open for writing
/// stays open, so that mount(8) would refuse to do it (EBUSY).
fn is_read_only_from_here_on(site: &Child) {
    let told = Command::new("nsenter")
        .args(["--target", &site.id().to_string(), "--mount", "--"])
        .args(["mount", "-o", "remount,errors=remount-ro", "/mnt/ledger"])
        .status()
        .expect("nsenter is installed");
    assert!(told.success());
    let device = device(site, "ledger");
    let name = device.strip_prefix("/dev/").expect("a device");
    fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "pair").expect("it errs");
}

/// The device of a site's data, or of its ledger, ends before its files do: every read and write there is an error.
fn fails(site: &Child, what: &str, image: &Path) {
    let device = device(site, what);
    fs::File::options()
        .write(true)
        .open(image)
        .and_then(|file| file.set_len(1 << 20))
        .expect("an image");
    let told = Command::new("losetup")
        .args(["--set-capacity", &device])
        .status()
        .expect("losetup is installed");
    assert!(told.success());
}

#[test]
fn a_site_whose_disk_has_failed_leaves_the_program_to_the_other_one() {
    if !is_root() {
        return; // who mounts an image has to be
    }
    let seed = with_table("fails-seed");
    let right = sqlite(&seed, ".sha3sum").trim().to_owned();
    side_by_side(&["A", "B"], |failed| {
        let dir = crate::sites::seed(&format!("fails-{failed}"));
        let images = [image(&dir, "a", &seed), image(&dir, "b", &seed)];
        let witness = Witness::new(&format!("fails-{failed}"));
        let address = format!("127.0.0.1:{}", free_port());
        let flags = witness.flags(2000);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let with = |flag| [&[flag, address.as_str()], &flags[..]].concat();
        let b = start_on(&images[1], "secondary", &with("--listen"));
        let a = start_on(&images[0], "primary", &with("--peer"));
        let mut both = Both::with(a, b);
        assert_eq!(both.ask(ASK), right);
        let is_a = *failed == "A";
        let (site, image) = if is_a {
            (&both.a, &images[0])
        } else {
            (&both.b, &images[1])
        };
        Disk::of(site, image).forget();
        fails(site, "data", image);
        let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
        if is_a {
            assert_eq!(both.ask(ASK), "", "nothing is said twice");
            assert_eq!(ask_secondary(&mut both.b, &mut from, ASK), right);
            drop(both.b.stdin.take());
        } else {
            assert_eq!(both.ask(ASK), right);
            assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
        }
        let ends = both.end();
        let mut codes = [Some(0); 2];
        codes[usize::from(!is_a)] = Some(122);
        assert_eq!(ends.codes(), codes, "{failed}: {}", ends.said());
        let line = "its disk has failed";
        assert_eq!(ends.said().matches(line).count(), 2, "{}", ends.said());
        assert!(!ends.said().contains("disk of"), "{}", ends.said());
        fs::remove_dir_all(dir).expect("clean");
    });
    fs::remove_dir_all(seed).expect("clean");
}

/// What is written to a device that has ended is an error at the next sync, by the program's own or by the site's within a second. What is
/// written to a file system that has turned read-only is one at once.
#[test]
fn a_site_whose_ledger_has_failed_leaves_the_program_to_the_other_one() {
    if !is_root() {
        return; // who mounts an image has to be
    }
    const CHANGES: [(&str, &str); 3] = [
        ("synced", "UPDATE t SET b = b || 'x';"),
        (
            "unsynced",
            "PRAGMA synchronous=OFF; UPDATE t SET b = b || 'x';",
        ),
        ("read-only", "UPDATE t SET b = b || 'x';"),
    ];
    let (seed, empty) = (with_table("gone-seed"), crate::sites::seed("gone-empty"));
    let cases: Vec<_> = ["A", "B"]
        .iter()
        .flat_map(|failed| CHANGES.map(|(name, change)| (*failed, name, change)))
        .collect();
    side_by_side(&cases, |&(failed, name, change)| {
        let dir = crate::sites::seed(&format!("gone-{failed}-{name}"));
        let witness = Witness::new(&format!("gone-{failed}-{name}"));
        let image = image(&dir, "ledger", &empty);
        let address = format!("127.0.0.1:{}", free_port());
        let flags = witness.flags(2000);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let with = |flag| [&[flag, address.as_str()], &flags[..]].concat();
        let is_a = failed == "A";
        let site = sqlite_site(&seed);
        struct Start {
            side: &'static str,
            flag: &'static str,
            fails: bool,
        }
        let mut starts = [
            Start {
                side: "secondary",
                flag: "--listen",
                fails: !is_a,
            },
            Start {
                side: "primary",
                flag: "--peer",
                fails: is_a,
            },
        ]
        .into_iter()
        .map(|Start { side, flag, fails }| {
            if fails {
                start_with("ledger", &image, Some(&seed), side, &with(flag), &SQLITE)
            } else {
                start(&site, side, &with(flag))
            }
        });
        let b = starts.next().expect("two");
        let mut both = Both::with(starts.next().expect("two"), b);
        assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
        let struck = if is_a { &both.a } else { &both.b };
        let why = if name == "read-only" {
            is_read_only_from_here_on(struck);
            "Read-only file system"
        } else {
            fails(struck, "ledger", &image);
            "Input/output error"
        };
        let changes = format!("{change} SELECT 'done';");
        let sum = format!("{change}{change} SELECT sum(length(b)) FROM t;");
        let model = crate::sites::seed(&format!("gone-model-{failed}-{name}"));
        fs::copy(seed.join("x.db"), model.join("x.db")).expect("a copy");
        let right = sqlite(&model, &sum);
        let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
        let until_it_leaves = |mut gone: Box<dyn FnMut() -> bool>| {
            let deadline = Instant::now() + LIMIT;
            while !gone() {
                assert!(Instant::now() < deadline, "{failed} {name}: it stays");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        };
        if is_a {
            // The primary may have said it, or the secondary is the first to do.
            both.ask(&changes);
            until_it_leaves(Box::new(|| both.a.try_wait().expect("a child").is_some()));
            let mut answer =
                ask_secondary(&mut both.b, &mut from, &format!("{change} SELECT 'twice';"));
            while answer != "twice" {
                assert_eq!(answer, "done", "{failed} {name}");
                answer.clear();
                std::io::BufRead::read_line(&mut from, &mut answer).expect("it answers");
                answer.truncate(answer.trim_end().len());
            }
            let sum = ask_secondary(&mut both.b, &mut from, "SELECT sum(length(b)) FROM t;");
            assert_eq!(sum, right.trim(), "{failed} {name}");
            drop(both.b.stdin.take());
        } else {
            assert_eq!(both.ask(&changes), "done");
            until_it_leaves(Box::new(|| both.b.try_wait().expect("a child").is_some()));
            assert_eq!(both.ask(&changes), "done");
            let sum = both.ask("SELECT sum(length(b)) FROM t;");
            assert_eq!(sum, right.trim(), "{failed} {name}");
        }
        let ends = both.end();
        let said = ends.said();
        let mut codes = [Some(0); 2];
        codes[usize::from(!is_a)] = Some(121);
        assert_eq!(ends.codes(), codes, "{failed} {name}: {said}");
        for what in ["the ledger has to be written", why] {
            assert!(said.contains(what), "{what}: {said}");
        }
        assert!(!said.contains("disk of"), "{said}");
        for dir in [dir, model] {
            fs::remove_dir_all(dir).expect("clean");
        }
    });
    for dir in [seed, empty] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

/// One site's page cache has a page, and the other's has not: a read that is not to wait is none that both can answer alike.
#[test]
fn a_read_that_would_wait_on_one_site_alone_stops_nobody() {
    if !is_root() {
        return; // who mounts an image has to be
    }
    const SCRIPT: &str = "open F, '<', 'x.db'; my $b = ' ' x 4096; my $v = pack 'PQ', $b, 4096; \
        print syscall(327, fileno F, $v, 1, 0, 0, 8), ' ', 0 + $!, \"\\n\"";
    let seed = with_table("waits-seed");
    fs::write(seed.join("reads.pl"), SCRIPT).expect("a script");
    let dir = crate::sites::seed("waits");
    let images = [image(&dir, "a", &seed), image(&dir, "b", &seed)];
    let address = format!("127.0.0.1:{}", free_port());
    let program = ["/bin/sh", "-c", crate::links::DOES];
    let start =
        |image: &Path, side, more: &[&str]| start_with("data", image, None, side, more, &program);
    let b = start(&images[1], "secondary", &["--listen", &address]);
    let a = start(&images[0], "primary", &["--peer", &address]);
    let both = Both::with(a, b).told("cat x.db reads.pl >/dev/null; echo read", "read");
    Disk::of(&both.b, &images[1]).forget();
    let ends = both.told("perl reads.pl", "-1 95").end(); // EOPNOTSUPP
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    for dir in [dir, seed] {
        fs::remove_dir_all(dir).expect("clean");
    }
}
