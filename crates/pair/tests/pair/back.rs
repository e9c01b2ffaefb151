//! A site that was lost comes back: it gets the survivor's files, if those are right.

use std::fs;
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::sites::*;

/// What a site holds, for another one to start from.
pub(crate) fn keep(child: &Child, name: &str) -> Site {
    let dir = seed(name);
    let root = format!("/proc/{}/root/mnt", child.id());
    let copied = Command::new("cp")
        .args(["-a", &format!("{root}/data"), &format!("{root}/ledger")])
        .arg(&dir)
        .status()
        .expect("cp is installed");
    assert!(copied.success());
    Site {
        ledger: Some(dir.join("ledger")),
        ..sqlite_site(&dir.join("data"))
    }
}

fn right(primary: &Site, secondary: &Site, word: &str) -> Both {
    let address = format!("127.0.0.1:{}", free_port());
    Both::start_with(
        primary,
        secondary,
        &address,
        &address,
        &["--right", word, "--scrub", "0"],
    )
}

fn tree(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                all.push((path.clone(), None));
                left.push(path);
            } else {
                let bytes = fs::read(&path).expect("a file");
                all.push((path, Some(bytes)));
            }
        }
    }
    all.sort();
    all
}

/// As its site sees them.
fn files(child: &Child) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let root = PathBuf::from(format!("/proc/{}/root", child.id()));
    tree(&root.join("mnt/data"))
        .into_iter()
        .map(|(path, bytes)| {
            let path = path.strip_prefix(&root).expect("below it").to_path_buf();
            (path, bytes)
        })
        .collect()
}

#[test]
fn a_lost_site_gets_the_pages_that_it_lacks_from_a_survivor_that_is_verified() {
    let dir = with_table("back");
    let (site, witness) = (sqlite_site(&dir), Witness::new("back"));
    let mut both = witnessed(&site, &witness);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    let lost = keep(&both.a, "back-a");
    both.a.kill().expect("a child");
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let few = "UPDATE t SET b = 'new' || b WHERE a = 50; SELECT 'changed';";
    let mut answer = ask_secondary(&mut both.b, &mut from, few);
    // The primary's last word, if this site has not heard that it was said.
    if answer == "100" {
        answer = ask_secondary(&mut both.b, &mut from, "SELECT 'again';");
    }
    assert_eq!(answer, "changed");
    let survivor = keep(&both.b, "back-b");
    drop(both.b.stdin.take());
    both.end();

    let ends = Both::start(&survivor, &lost).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    assert!(
        ends.said().contains("--right primary"),
        "nobody guesses: {}",
        ends.said()
    );
    let ask = "SELECT substr(b, 1, 3) FROM t WHERE a = 50;";
    #[derive(Clone, Copy)]
    struct Way<'a> {
        a: &'a Site,
        b: &'a Site,
        word: &'static str,
        line: &'static str,
    }
    let ways = [
        Way {
            a: &survivor,
            b: &lost,
            word: "primary",
            line: "the secondary gets ",
        },
        Way {
            a: &lost,
            b: &survivor,
            word: "secondary",
            line: "the primary gets ",
        },
    ];
    for Way { a, b, word, line } in ways {
        let mut both = right(a, b, word);
        let answer = both.ask(ask);
        if answer != "new" {
            panic!("{answer}: {}", both.end().said());
        }
        assert_eq!(files(&both.a), files(&both.b));
        assert_eq!(
            both.ask(&CHANGE.replace("SELECT count(*)", "SELECT 2*count(*)")),
            "400"
        );
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        let said = ends.said();
        let (_, rest) = said.split_once(line).expect("it says what it gives");
        let pages: u64 = rest
            .split(' ')
            .next()
            .and_then(|pages| pages.parse().ok())
            .expect("a number");
        assert!((1..10).contains(&pages), "no whole file: {said}");
    }

    // An error that nobody has met is not spread.
    let path = survivor.seed.join("x.db");
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.write_all_at(b"?", PLACE))
        .expect("a flip");
    for Way { a, b, word, .. } in ways {
        let ends = right(a, b, word).end();
        assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
        assert!(
            ends.said().contains("page 8 is not as its ledger has it"),
            "{}",
            ends.said()
        );
    }
    for dir in [
        &dir,
        &survivor.seed.with_file_name(""),
        &lost.seed.with_file_name(""),
    ] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

#[test]
fn names_directories_and_rights_are_compared_and_brought() {
    let (dir, other) = (with_table("names"), with_table("names-other"));
    let mut both = Both::start(&sqlite_site(&dir), &sqlite_site(&dir));
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    let known = keep(&both.a, "names-known");
    both.end();
    // The same files; the other one has more, and lacks some.
    fs::create_dir_all(other.join("old/deep")).expect("a directory");
    fs::write(other.join("old/deep/file"), "old").expect("a file");
    Command::new("chmod")
        .arg("0600")
        .arg(other.join("x.db"))
        .status()
        .expect("chmod is installed");
    let ends = Both::start(&known, &sqlite_site(&other)).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    for line in [
        "/mnt/data/old/deep: nothing on the primary, a directory, mode ",
        "/mnt/data/old/deep/file: the primary does not have it",
        "/mnt/data/x.db: mode 0644 of ",
    ] {
        assert!(ends.said().contains(line), "{line}: {}", ends.said());
    }
    let mut both = right(&known, &sqlite_site(&other), "primary");
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    assert_eq!(files(&both.a), files(&both.b));
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert!(
        ends.said()
            .contains("gets 0 pages of 1 files, 3 names removed"),
        "{}",
        ends.said()
    );

    // Each site is told by its own operator.
    let address = format!("127.0.0.1:{}", free_port());
    let b = start(
        &known,
        "secondary",
        &["--listen", &address, "--right", "secondary"],
    );
    let a = start(
        &known,
        "primary",
        &["--peer", &address, "--right", "primary"],
    );
    let ends = Both::with(a, b).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    assert!(ends.said().contains("--right"), "{}", ends.said());
    for dir in [&dir, &other, &known.seed.with_file_name("")] {
        fs::remove_dir_all(dir).expect("clean");
    }
}
