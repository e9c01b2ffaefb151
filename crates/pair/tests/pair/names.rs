//! Metadata: names, types, sizes, rights and owners of protected files are each site's own, and compared.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::links;
use crate::sites::*;

const LIST: &str = "SELECT count(*) FROM fsdir('.');";

fn with_files(name: &str) -> PathBuf {
    let dir = with_table(name);
    fs::create_dir(dir.join("sub")).expect("a directory");
    for file in ["one", "two", "three"] {
        fs::write(dir.join("sub").join(file), file).expect("a file");
    }
    dir
}

#[test]
fn listings_and_facts_are_equal_while_names_come_and_go() {
    let dir = with_files("facts");
    let site = sqlite_site(&dir);
    let mut both = Both::start(&site, &site);
    assert_eq!(both.ask(LIST), "6");
    assert_eq!(
        both.ask("CREATE TEMP TABLE n AS WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x < 40) SELECT x FROM i; SELECT sum(writefile('sub/f' || x, 'abc')) FROM n;"),
        "120"
    );
    assert_eq!(both.ask(LIST), "46");
    // With a journal that is there for as long as the transaction.
    assert_eq!(
        both.ask(&format!("BEGIN; DELETE FROM t WHERE a = 1; {LIST} COMMIT;")),
        "47"
    );
    assert_eq!(
        both.ask(&format!("CREATE TABLE u AS SELECT * FROM t; {LIST}")),
        "46"
    );
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_name_or_a_fact_that_one_site_alone_has_stops_the_program() {
    let dir = with_files("lost-name");
    let site = sqlite_site(&dir);
    type Change = fn(PathBuf);
    struct Row {
        name: &'static str,
        change: Change,
        line: &'static str,
    }
    let changes: [Row; 5] = [
        Row {
            name: "more",
            change: |data| fs::write(data.join("sub/four"), "x").expect("a file"),
            line: "getdents64",
        },
        Row {
            name: "less",
            change: |data| fs::remove_file(data.join("sub/two")).expect("a file"),
            line: "getdents64",
        },
        Row {
            name: "another",
            change: |data| fs::rename(data.join("sub/two"), data.join("sub/TWO")).expect("a file"),
            line: "listed",
        },
        Row {
            name: "size",
            change: |data| fs::write(data.join("sub/two"), "twofold").expect("a file"),
            line: "gave",
        },
        Row {
            name: "rights",
            change: |data| {
                fs::set_permissions(data.join("sub/two"), fs::Permissions::from_mode(0o600))
                    .expect("a file");
            },
            line: "gave different rights, owners or links",
        },
    ];
    for Row { name, change, line } in changes {
        side_by_side(&["A", "B"], |&struck| {
            let mut both = Both::start(&site, &site);
            assert_eq!(both.ask(LIST), "6");
            let child = if struck == "A" { &both.a } else { &both.b };
            change(PathBuf::from(format!("/proc/{}/root/mnt/data", child.id())));
            assert_eq!(
                both.ask(LIST),
                "",
                "{name} on {struck}: nothing wrong leaves"
            );
            let ends = both.end();
            assert_eq!(ends.codes(), [Some(122), Some(122)], "{}", ends.said());
            // A name that is missing on B is met by lstat first, one on A by the listing.
            let found = ends.said().contains(line)
                || (matches!(name, "more" | "less" | "another") && ends.said().contains("gave"));
            assert!(found, "{name} on {struck}: {}", ends.said());
        });
    }
    fs::remove_dir_all(dir).expect("clean");
}

/// Who is told that something ended differently has to find it.
#[test]
fn a_call_that_ends_otherwise_on_one_site_is_told_with_its_path() {
    let dir = with_table("names-path");
    let site = Site {
        command: ["/bin/sh", "-c", "mkdir /dev/shm/made"]
            .map(String::from)
            .to_vec(),
        ..sqlite_site(&dir)
    };
    for is_there in [false, true] {
        let address = format!("127.0.0.1:{}", free_port());
        let b = start(&site, "secondary", &["--listen", &address]);
        let host = format!("/proc/{}/root", b.id());
        let deadline = std::time::Instant::now() + LIMIT;
        while !Path::new(&format!("{host}/mnt/ledger")).exists() {
            assert!(std::time::Instant::now() < deadline, "it does not start");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if is_there {
            fs::create_dir(format!("{host}/dev/shm/made")).expect("a directory");
        }
        let a = start(&site, "primary", &["--peer", &address]);
        let ends = Both::with(a, b).end();
        let said = ends.said();
        if is_there {
            assert_eq!(ends.codes(), [Some(122); 2], "{said}");
            let line = "mkdir (/dev/shm/made) gave 0 on A and -17 on B";
            assert!(said.contains(line), "{said}");
        } else {
            assert_eq!(ends.codes(), [Some(0); 2], "{said}");
        }
    }
    fs::remove_dir_all(dir).expect("clean");
}

/// Access lists are such attributes: a survivor whose files lack them would grant more, or less.
#[test]
fn rights_and_extended_attributes_are_set_on_both_disks() {
    const SCRIPT: &str = "my ($call, $at, $name, $value) = @ARGV; open F, '<', $at; $at = fileno F if $call == 190; \
        print syscall($call, $at, $name, $value, length $value, 0), \"\\n\"";
    let dir = with_files("attributes");
    fs::write(dir.join("does.pl"), SCRIPT).expect("a script");
    let mut both = Both::start(&links::shell(&dir), &links::shell(&dir));
    let has = |site: &Child, name: &str| {
        let path = format!("/proc/{}/root/mnt/data/x.db", site.id());
        let look = format!(
            "my ($b, $n, $p) = (' ' x 9, 'user.{name}', '{path}'); print syscall(191, $p, $n, $b, 9), $b"
        );
        let said = Command::new("perl").args(["-e", &look]).output();
        String::from_utf8(said.expect("perl is installed").stdout).expect("text")
    };
    let chmod = "perl -e '$p = \"x.db\"; print syscall(452, -100, $p, 0640, 0), \"\\n\"'";
    assert_eq!(both.ask(chmod), "0", "fchmodat2");
    assert_eq!(both.ask("stat -c %a x.db"), "640");
    // By name, and by descriptor.
    assert_eq!(both.ask("perl does.pl 188 x.db user.a one"), "0");
    assert_eq!(both.ask("perl does.pl 190 x.db user.b two"), "0");
    for site in [&both.a, &both.b] {
        assert_eq!(has(site, "a"), "3one      ");
        assert_eq!(has(site, "b"), "3two      ");
    }
    assert_eq!(both.ask("perl does.pl 197 x.db user.a none"), "0");
    for site in [&both.a, &both.b] {
        assert_eq!(has(site, "a"), "-1         ");
    }
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    fs::remove_dir_all(dir).expect("clean");
}

/// The same bytes, in fewer blocks: as cp(1) leaves them, or a site that has joined.
#[test]
fn holes_that_a_file_has_on_one_disk_alone_are_no_difference() {
    use std::os::unix::fs::FileExt;
    let [sparse, dense] = ["holes-sparse", "holes-dense"].map(seed);
    let file = fs::File::create(sparse.join("f")).expect("a file");
    file.set_len(100_000).expect("room");
    file.write_all_at(b"middle", 50_000).expect("stored");
    let bytes = fs::read(sparse.join("f")).expect("a file");
    fs::write(dense.join("f"), bytes).expect("a file");
    for [a, b] in [[&sparse, &dense], [&dense, &sparse]] {
        let both = Both::start(&links::shell(a), &links::shell(b));
        let ends = both
            .told("cp f g && cmp f g && echo copied", "copied")
            .end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        assert_eq!(ends.said(), "");
    }
    for dir in [sparse, dense] {
        fs::remove_dir_all(dir).expect("clean");
    }
}
