//! A site that was lost comes back while the program runs on the other one.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use crate::sites::*;

/// What a site has said so far goes to a file, so that tests can wait for it.
pub(crate) struct Told {
    pub(crate) child: Child,
    path: std::path::PathBuf,
    from: BufReader<ChildStdout>,
    copier: std::thread::JoinHandle<()>,
}

impl Told {
    pub(crate) fn start(
        site: &Site,
        side: &str,
        flags: &[&str],
        dir: &std::path::Path,
        name: &str,
    ) -> Self {
        Self::of(start_as(site, side, flags, |_| {}), dir, name)
    }

    /// A site that was started with pipes.
    pub(crate) fn of(mut child: Child, dir: &std::path::Path, name: &str) -> Self {
        let path = dir.join(format!("{name}.err"));
        let file = fs::File::create(&path).expect("a file");
        let mut err = child.stderr.take().expect("piped");
        let copier = std::thread::spawn(move || {
            let mut file = file;
            let _ = std::io::copy(&mut err, &mut file);
        });
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            path,
            from,
            copier,
        }
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.path).unwrap_or_default()
    }

    pub(crate) fn wait_for(&self, what: &str) {
        self.wait_for_n(what, 1);
    }

    pub(crate) fn wait_for_n(&self, what: &str, n: usize) {
        self.wait_so_long(what, n, LIMIT);
    }

    pub(crate) fn wait_so_long(&self, what: &str, n: usize, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.said().matches(what).count() < n {
            assert!(
                Instant::now() < deadline,
                "it does not say {what:?}:\n{}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn ask(&mut self, sql: &str) -> String {
        ask_secondary(&mut self.child, &mut self.from, sql)
    }

    /// The first answers may be ones that the lost primary has not been heard to give.
    pub(crate) fn ask_after_loss(&mut self, sql: &str) -> String {
        let mark = format!("mark{}", std::process::id());
        let mut line = self.ask(&format!("SELECT '{mark}'; {sql}"));
        while line != mark {
            line.clear();
            self.from.read_line(&mut line).expect("it answers");
            line.truncate(line.trim_end().len());
        }
        line.clear();
        self.from.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    /// What the program says next.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        line.truncate(line.trim_end().len());
        line
    }

    pub(crate) fn lines_until(&mut self, last: &str) -> Vec<String> {
        let mut all = vec![self.line()];
        while all
            .last()
            .is_some_and(|line| line != last && !line.is_empty())
        {
            all.push(self.line());
        }
        all
    }

    /// What it has said until it ended.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let mut rest = String::new();
        self.from.read_to_string(&mut rest).expect("it ends");
        rest.lines().map(str::to_owned).collect()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child");
        let _ = self.child.wait();
    }

    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        let _ = self.from.read_to_string(&mut rest);
        let status = self.child.wait().expect("a child");
        let path = self.path.clone();
        self.copier.join().expect("it copies");
        (status.code(), fs::read_to_string(path).unwrap_or_default())
    }
}

const ONLY: &str = "SELECT count(*) || ' ' || sum(length(b)) || ' ' || max(a) FROM t;";

pub(crate) fn flags<'a>(witness: &'a [String; 4], more: &[&'a str]) -> Vec<&'a str> {
    [
        more,
        &witness.iter().map(String::as_str).collect::<Vec<_>>(),
    ]
    .concat()
}

/// The same flags, and how memory is tracked.
pub(crate) fn tracked([witness, at, lost, after]: [String; 4], how: &str) -> [String; 4] {
    let lost = format!("{lost}={after}");
    [witness, at, lost, format!("--tracking={how}")]
}

#[test]
fn a_lost_secondary_comes_back_and_survives_the_primary_and_another_joins_it() {
    side_by_side(&["none", "wp-async", "faults"], |how| comes_back(how));
}

fn comes_back(how: &str) {
    let name = format!("joins-{how}");
    let dir = with_table(&name);
    let (site, witness) = (sqlite_site(&dir), Witness::new(&name));
    let [first, door_a, door_c] = [0; 3].map(|_| format!("127.0.0.1:{}", free_port()));
    let said = tracked(witness.flags(2000), how);
    let mut b = Told::start(
        &site,
        "secondary",
        &flags(&said, &["--listen", &first]),
        &witness.0,
        "b",
    );
    let mut a = Told::start(
        &site,
        "primary",
        &flags(&said, &["--peer", &first, "--listen", &door_a]),
        &witness.0,
        "a",
    );
    assert_eq!(a.ask(CHANGE), "200");
    b.kill();
    assert_eq!(a.ask(CHANGE), "400");
    // The files of the one that joins are those of the start: it lacks what was done since.
    let mut c = Told::start(
        &site,
        "join",
        &flags(&said, &["--peer", &door_a, "--listen", &door_c]),
        &witness.0,
        "c",
    );
    a.wait_for("the other site is back");
    c.wait_for("this site has joined");
    assert_eq!(a.ask(CHANGE), "800");
    a.kill();
    let right = sqlite(&dir, &format!("{CHANGE}{CHANGE}{CHANGE}{CHANGE}{ONLY}"));
    assert_eq!(c.ask_after_loss(CHANGE), "1600");
    assert_eq!(Some(c.ask(ONLY).as_str()), right.lines().last());
    assert_eq!(c.ask("PRAGMA integrity_check;"), "ok");

    let mut d = Told::start(
        &site,
        "join",
        &flags(&said, &["--peer", &door_c]),
        &witness.0,
        "d",
    );
    c.wait_for("the other site is back");
    assert_eq!(c.ask("SELECT count(*)+1 FROM t;"), "1601");
    c.kill();
    assert_eq!(d.ask_after_loss(ONLY), right.lines().last().unwrap_or(""));
    let (status, said) = d.end();
    assert_eq!(status, Some(0), "{said}");
    fs::remove_dir_all(dir).expect("clean");
}

/// A primary that is alone, and where it lets others in.
pub(crate) fn alone(site: &Site, witness: &Witness, said: &[String; 4]) -> (Told, String) {
    let [first, door] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let listen = ["--listen", first.as_str()];
    let mut b = Told::start(site, "secondary", &flags(said, &listen), &witness.0, "b");
    let to = ["--peer", first.as_str(), "--listen", door.as_str()];
    let mut a = Told::start(site, "primary", &flags(said, &to), &witness.0, "a");
    assert_eq!(a.ask(CHANGE), "200");
    b.kill();
    a.wait_for("this site goes on alone");
    (a, door)
}

#[test]
fn who_is_not_the_same_is_refused_and_a_wrong_disk_is_not_handed_on() {
    let dir = with_table("refused");
    let (site, witness) = (sqlite_site(&dir), Witness::new("refused"));
    let said = witness.flags(2000);
    let (mut a, door) = alone(&site, &witness, &said);
    let to = flags(&said, &["--peer", &door]);

    let other = Site {
        command: ["sqlite3", "x.db"].map(String::from).to_vec(),
        ..sqlite_site(&dir)
    };
    let c = Told::start(&other, "join", &to, &witness.0, "c");
    let (status, told) = c.end();
    assert_eq!(status, Some(121), "{told}");
    assert!(told.contains("have to have the same command"), "{told}");
    a.wait_for("is refused: both sites have to have the same command");

    // Nobody who says something else holds anything up.
    let mut stream = std::net::TcpStream::connect(&door).expect("it listens");
    std::io::Write::write_all(&mut stream, b"GET / HTTP/1.0\r\n\r\n").expect("it reads");
    drop(stream);
    a.wait_for_n("is refused", 2);

    let path = format!("/proc/{}/root/mnt/data/x.db", a.child.id());
    flip(&path, PLACE, 3);
    let d = Told::start(&site, "join", &to, &witness.0, "d");
    a.wait_for("did not join");
    let (status, told) = d.end();
    assert_eq!(status, Some(121), "{told}");
    assert!(
        told.contains("x.db: page 8 is not as its ledger has it"),
        "{told}"
    );
    assert_eq!(a.ask("SELECT 'alive';"), "alive");

    flip(&path, PLACE, 3);
    let mut e = Told::start(&site, "join", &to, &witness.0, "e");
    a.wait_for("the other site is back");
    assert_eq!(a.ask(CHANGE), "400");
    a.kill();
    assert_eq!(e.ask_after_loss("PRAGMA integrity_check;"), "ok");
    assert_eq!(e.end().0, Some(0));
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_site_that_dies_while_it_joins_leaves_the_program_as_it_was() {
    let dir = with_table("halfway");
    let (site, witness) = (sqlite_site(&dir), Witness::new("halfway"));
    let said = witness.flags(2000);
    let (mut a, door) = alone(&site, &witness, &said);
    let to = flags(&said, &["--peer", &door]);
    for (rows, ms) in (201..).zip([20, 60, 100, 140, 180, 220, 300]) {
        let mut c = Told::start(&site, "join", &to, &witness.0, "c");
        std::thread::sleep(Duration::from_millis(ms));
        c.kill();
        assert_eq!(a.ask("INSERT INTO t SELECT a+(SELECT max(a) FROM t), b FROM t WHERE a = 1; SELECT count(*) FROM t;"), rows.to_string(), "{ms} ms: {}", a.said());
    }
    assert_eq!(a.ask("PRAGMA integrity_check;"), "ok");
    assert_eq!(a.end().0, Some(0));
    fs::remove_dir_all(dir).expect("clean");
}

/// As on a busy host: the joiner's program does not go on at once. The site says that it is there meanwhile.
#[test]
fn a_site_whose_program_is_slow_to_go_on_after_a_join_is_not_lost() {
    let dir = with_table("slow");
    let (site, witness) = (sqlite_site(&dir), Witness::new("slow"));
    let said = witness.flags(500);
    let (mut a, door) = alone(&site, &witness, &said);
    let to = flags(&said, &["--peer", &door]);
    let mut c = Told::start(&site, "join", &to, &witness.0, "c");
    // Between the last word of the join and the first event there is about a millisecond: who comes too late rings nothing.
    c.wait_for("the other site has given");
    let deadline = Instant::now() + LIMIT;
    let mut stopped = Vec::new();
    while stopped.is_empty() || !c.said().contains("this site has joined") {
        assert!(Instant::now() < deadline, "{}", c.said());
        if stopped.is_empty() {
            stopped = crate::tree::program(&c.child);
        }
    }
    let signal = |signal| {
        for pid in &stopped {
            steadfast_sys::child::kill(i32::try_from(*pid).expect("a number"), signal);
        }
    };
    signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(1200));
    signal(libc::SIGCONT);
    a.wait_for("the other site is back");
    assert_eq!(a.ask(CHANGE), "400");
    let lost = a.said().matches("this site goes on alone").count();
    assert_eq!(lost, 1, "{}{}", a.said(), c.said());
    a.kill();
    assert_eq!(c.ask_after_loss("PRAGMA integrity_check;"), "ok");
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

/// The site that leads says that it is there from the last word of a join on: its program, which is stopped here, goes on later.
#[test]
fn a_site_whose_program_stands_on_after_a_join_is_not_lost_to_the_one_that_has_joined() {
    let dir = with_table("stands-on");
    let (site, witness) = (sqlite_site(&dir), Witness::new("stands-on"));
    let said = witness.flags(500);
    let (mut a, door) = alone(&site, &witness, &said);
    let to = flags(&said, &["--peer", &door]);
    let mut c = Told::start(&site, "join", &to, &witness.0, "c");
    c.wait_for("the other site has given");
    let joiner = c.child.id().cast_signed();
    let signal = |pid, signal| steadfast_sys::child::kill(pid, signal);
    // The joiner comes on little by little, until the program stands for it.
    let deadline = Instant::now() + LIMIT;
    signal(joiner, libc::SIGSTOP);
    while crate::status::status(&a.child).1["state"] != "joining" {
        let late = c.said().contains("this site has joined") || Instant::now() > deadline;
        assert!(!late, "it was not seen to join: {}", c.said());
        signal(joiner, libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(2));
        signal(joiner, libc::SIGSTOP);
    }
    // What it is to give, it has given.
    std::thread::sleep(Duration::from_millis(300));
    let stopped = crate::tree::program(&a.child);
    for pid in &stopped {
        signal(pid.cast_signed(), libc::SIGSTOP);
    }
    signal(joiner, libc::SIGCONT);
    c.wait_for("this site has joined");
    std::thread::sleep(Duration::from_millis(1200));
    for pid in &stopped {
        signal(pid.cast_signed(), libc::SIGCONT);
    }
    a.wait_for("the other site is back");
    assert_eq!(a.ask(CHANGE), "400");
    let told = c.said();
    assert!(
        !told.contains("nothing more is heard"),
        "{told}{}",
        a.said()
    );
    a.kill();
    assert_eq!(c.ask_after_loss("PRAGMA integrity_check;"), "ok");
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

pub(crate) fn flip(path: &str, at: u64, bit: u8) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the site's file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("inside the file");
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, at).expect("it is stored");
}

/// What follows the kind of call: how much, and its digest.
fn digest(answer: &str) -> &str {
    answer.split_once(' ').map_or("", |(_, rest)| rest)
}

/// The joiner has the memory, and knows which of its files that shows.
#[test]
fn a_mapping_shows_what_is_written_after_a_join_and_on_the_site_that_joined() {
    let (dir, program) = crate::kinds::with_file("joins-mapped");
    let site = crate::kinds::site(&dir.join("data"), &program);
    let witness = Witness::new("joins-mapped");
    let [first, door_a, door_c] = [0; 3].map(|_| format!("127.0.0.1:{}", free_port()));
    let said = witness.flags(2000);
    let start = |side: &str, more: &[&str], name: &str| {
        Told::start(&site, side, &flags(&said, more), &witness.0, name)
    };
    let mut b = start("secondary", &["--listen", &first], "b");
    let mut a = start("primary", &["--peer", &first, "--listen", &door_a], "a");
    assert_eq!(a.ask("put keep"), "put keep done");
    b.kill();
    assert_eq!(a.ask("put pwrite"), "put pwrite done");
    let mut c = start("join", &["--peer", &door_a, "--listen", &door_c], "c");
    a.wait_for("the other site is back");
    c.wait_for("this site has joined");
    assert_eq!(a.ask("put writev"), "put writev done");
    assert_eq!(digest(&a.ask("kept")), digest(&a.ask("pread")));
    a.kill();
    let mut answer = c.ask("put append");
    while answer != "put append done" {
        answer = c.line();
    }
    let kept = c.ask("kept");
    assert!(kept.starts_with("kept ") && digest(&kept) == digest(&c.ask("pread")));
    let (code, said) = c.end();
    assert_eq!(code, Some(0), "{said}");
    fs::remove_dir_all(dir).expect("clean");
}
