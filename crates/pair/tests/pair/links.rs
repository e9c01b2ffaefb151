//! Names of files: several of one (link(2)), and one that changes while it is open; on both sites, in both ledgers, at a site that joins.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::back::keep;
use crate::join::{Told, flags};
use crate::servers::strike_at;
use crate::several::left_alone;
use crate::sites::*;

/// Does what a line says, and answers with a line.
pub(crate) const DOES: &str = "while read -r line; do eval \"$line\" </dev/null 2>&1; done";

pub(crate) fn shell(seed: &Path) -> Site {
    Site {
        command: ["/bin/sh", "-c", DOES].map(String::from).to_vec(),
        ..sqlite_site(seed)
    }
}

/// Two files of three pages; one has two names.
fn with_names(name: &str) -> PathBuf {
    let dir = seed(name);
    for file in ["f", "g"] {
        fs::write(dir.join(file), file.repeat(9000)).expect("a file");
    }
    fs::hard_link(dir.join("g"), dir.join("h")).expect("a name");
    dir
}

const BEFORE: [&str; 2] = [
    "ln f f2 && stat -c %h f2",
    "echo more >>f2; cksum <f", // both names are read and written
];
const BEHIND: [&str; 7] = [
    "cksum <f2",
    "mv f f3 && cksum <f3",
    "rm f2 && stat -c %h f3",
    // Neither changes anything (rename(2)).
    "ln f3 f4 && perl -e 'print rename(\"f3\", \"f4\") + rename(\"f4\", \"f4\"), \"\\n\"'",
    "echo end >>f3; cksum <f4",
    "echo more >>g; cksum <h",
    "stat -c '%n %h' * | tr '\\n' ' '; echo",
];

fn bare(dir: &Path, asked: &[&str]) -> Vec<String> {
    let own = seed("links-bare");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(format!("{}/.", dir.display()))
        .arg(&own)
        .status();
    assert!(copied.expect("cp is installed").success());
    let mut program = Command::new("/bin/sh");
    let said = answers(program.args(["-c", DOES]).current_dir(&own), asked);
    fs::remove_dir_all(own).expect("clean");
    said
}

/// How many names each name's file has at a site, and what it holds.
fn names(site: &Child) -> Vec<(String, u64, Vec<u8>)> {
    let data = format!("/proc/{}/root/mnt/data", site.id());
    let one = |entry: fs::DirEntry| {
        let links = entry.metadata().expect("a file").nlink();
        let bytes = fs::read(entry.path()).expect("a file");
        (entry.file_name().to_string_lossy().into(), links, bytes)
    };
    let mut all: Vec<_> = fs::read_dir(data)
        .expect("it is there")
        .flatten()
        .map(one)
        .collect();
    all.sort();
    all
}

#[test]
fn a_file_may_have_several_names_and_each_ledger_knows_them() {
    let dir = with_names("links");
    let site = shell(&dir);
    let right = bare(&dir, &[&BEFORE[..], &BEHIND].concat());
    let mut both = Both::start(&site, &site);
    for (line, right) in BEFORE.iter().zip(&right) {
        assert_eq!(both.ask(line), right.trim_end(), "{line}");
    }
    strike_at(&both.b, "f2", 5000);
    for (line, right) in BEHIND.iter().zip(&right[BEFORE.len()..]) {
        assert_eq!(both.ask(line), right.trim_end(), "{line}");
    }
    assert_eq!(names(&both.a), names(&both.b));
    let known = [keep(&both.a, "links-a"), keep(&both.b, "links-b")];
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    let said = ends.said();
    assert_eq!(said.matches("disk of B, f page 1").count(), 2, "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");

    // Their ledgers have the names as well, and give them to a site that has none of it.
    let right = known.map(|known| Site {
        command: site.command.clone(),
        ..known
    });
    let address = format!("127.0.0.1:{}", free_port());
    let words = ["--right", "primary"];
    let mut both = Both::start_with(&right[0], &site, &address, &address, &words);
    assert_eq!(both.ask("stat -c %h f3"), "2");
    assert_eq!(names(&both.a), names(&both.b));
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    let mut both = Both::start(&right[0], &right[1]);
    assert_eq!(both.ask("rm g && echo x >>h && stat -c %h h"), "1");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    assert_eq!(ends.said(), "");

    // Two files that are alike are none that has two names.
    let apart = seed("links-apart");
    for name in ["f", "g", "h"] {
        fs::copy(dir.join(name), apart.join(name)).expect("a copy");
    }
    let ends = Both::start(&site, &shell(&apart)).end();
    assert_eq!(ends.codes(), [Some(121); 2], "{}", ends.said());
    let line = "h: one with /mnt/data/g on the primary, a file of its own on the secondary";
    assert_eq!(ends.said().matches(line).count(), 2, "{}", ends.said());
    for dir in [&dir, &apart, &right[0].seed, &right[1].seed] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

#[test]
fn a_site_that_joins_gets_all_names_of_a_file() {
    let dir = with_names("links-join");
    let (sites, witness) = ([shell(&dir), shell(&dir)], Witness::new("links-join"));
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&sites, ["127.0.0.1"; 2], &said, &witness.0);
    assert_eq!(a.ask("ln f f2 && mv f2 e && stat -c %h f"), "2");
    // On the joiner's disk these two are one file.
    assert_eq!(a.ask("rm h && cp g h && echo own >>h && stat -c %h g"), "1");
    let to = flags(&said, &["--peer", &door]);
    let mut c = Told::start(&sites[1], "join", &to, &witness.0, "c");
    a.wait_for("the other site is back");
    c.wait_for("this site has joined");
    assert_eq!(a.ask("echo more >>e; echo $(tail -c 5 f)"), "more");
    assert_eq!(a.ask("echo $(tail -c 4 h)"), "own");
    assert_eq!(names(&a.child), names(&c.child));
    a.kill();
    c.wait_for("this site goes on alone");
    let mut line = c.ask("echo $(tail -c 5 f)");
    while line == "own" || line == "2" || line == "1" {
        line = c.line(); // what the lost one was not heard to say
    }
    assert_eq!(line, "more");
    let (status, said) = c.end();
    assert_eq!(status, Some(0), "{said}");
    fs::remove_dir_all(dir).expect("clean");
}

/// The joiner's ledger knows it by the name that it has then.
#[test]
fn a_file_whose_name_has_changed_while_it_is_open_is_written_to_behind_a_join() {
    let dir = with_names("links-open");
    let (sites, witness) = ([shell(&dir), shell(&dir)], Witness::new("links-open"));
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&sites, ["127.0.0.1"; 2], &said, &witness.0);
    assert_eq!(a.ask("exec 3<>f && mv f f2 && echo moved"), "moved");
    let to = flags(&said, &["--peer", &door]);
    let mut c = Told::start(&sites[1], "join", &to, &witness.0, "c");
    a.wait_for("the other site is back");
    assert_eq!(a.ask("printf new >&3; echo $(head -c 4 f2)"), "newf");
    a.kill();
    c.wait_for("this site goes on alone");
    let mut line = c.ask("echo $(head -c 5 f2)");
    while ["moved", "newf"].contains(&line.as_str()) {
        line = c.line(); // what the lost one was not heard to say
    }
    assert_eq!(line, "newff", "{}", c.said());
    let (status, said) = c.end();
    assert_eq!(status, Some(0), "{said}");
    fs::remove_dir_all(dir).expect("clean");
}

/// As it is configured by default: an object is linked to its name, and the name that it was written under goes.
#[test]
fn git_commits_packs_and_finds_no_fault() {
    const SCRIPT: &str = "git init -q r && cd r && git config user.email a@b && git config user.name a && \
        for i in 1 2 3; do seq $i 200 >f$i; git add . && git commit -qm $i; done && git gc -q && git fsck && git log --oneline | wc -l";
    let dir = seed("git");
    let site = Site {
        command: ["/bin/sh", "-c", SCRIPT].map(String::from).to_vec(),
        ..sqlite_site(&dir)
    };
    let ends = Both::start(&site, &site).end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    assert!(!ends.said().contains("steadfast"), "{}", ends.said());
    let said = String::from_utf8_lossy(&ends.a.stdout).into_owned();
    assert_eq!(said.trim(), "3", "{said}");
    fs::remove_dir_all(dir).expect("clean");
}
