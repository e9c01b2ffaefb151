//! Two sites in mount namespaces of their own: each alarm rings, and each stays silent.
//!
//! Data and ledger are tmpfs, where what is stored past the program is at once what the "disk" returns; the demo does the
//! same on disk images, below the page cache. As an ordinary user the namespaces need user namespaces, and the demo is
//! asserted to be refused.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PAIR: &str = env!("CARGO_BIN_EXE_steadfast-pair");
const LIMIT: Duration = Duration::from_secs(60);

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// What a site starts from.
struct Site {
    seed: PathBuf,
    ledger_bytes: &'static str,
    command: Vec<String>,
}

fn seed(name: &str) -> PathBuf {
    let dir =
        std::env::temp_dir().join(format!("steadfast-pair-test-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    dir
}

fn sqlite(dir: &Path, script: &str) -> String {
    let mut child = Command::new("sqlite3")
        .args(["-batch", "x.db"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sqlite3 is installed");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(script.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const TABLE: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100)
INSERT INTO t SELECT i, substr(replace(hex(zeroblob(1000)), '0', char(65 + i % 26)), 1, 1500) FROM n;";

fn with_table(name: &str) -> PathBuf {
    let dir = seed(name);
    sqlite(&dir, TABLE);
    dir
}

fn sqlite_site(seed: &Path) -> Site {
    Site {
        seed: seed.into(),
        ledger_bytes: "4m",
        command: ["sqlite3", "-batch", "x.db"].map(String::from).to_vec(),
    }
}

fn start(site: &Site, side: &str, more: &[&str]) -> Child {
    let script = format!(
        "mount -t tmpfs none /mnt && mkdir /mnt/data /mnt/ledger && mount -t tmpfs none /mnt/data && \
         mount -t tmpfs -o size={} none /mnt/ledger && cp -r {}/. /mnt/data && cd /mnt/data && exec \"$@\"",
        site.ledger_bytes,
        site.seed.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--", "sh", "-c", &script, "sh", PAIR, side])
        .args(more);
    command
        .args(["--ledger", "/mnt/ledger", "--data", "/mnt/data", "--"])
        .args(&site.command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare is installed")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port()
}

struct Both {
    a: Child,
    b: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

struct Ends {
    a: Output,
    b: Output,
}

impl Ends {
    fn codes(&self) -> [Option<i32>; 2] {
        [self.a.status.code(), self.b.status.code()]
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&[&self.a.stderr[..], &self.b.stderr[..]].concat()).into_owned()
    }
}

impl Both {
    fn start(a: &Site, b: &Site) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        Self::start_with(a, b, &address, &address, &[])
    }

    /// `listen`: where the secondary is; `peer`: where the primary believes it to be.
    fn start_with(a: &Site, b: &Site, listen: &str, peer: &str, more: &[&str]) -> Self {
        let b = start(b, "secondary", &[&["--listen", listen], more].concat());
        let mut a = start(a, "primary", &[&["--peer", peer], more].concat());
        let (to, from) = (
            a.stdin.take(),
            BufReader::new(a.stdout.take().expect("piped")),
        );
        Self { a, b, to, from }
    }

    fn ask(&mut self, sql: &str) -> String {
        writeln!(self.to.as_ref().expect("open"), "{sql}").expect("it reads");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    /// Flips a bit of the database where one site keeps it. The program runs by then: it has answered.
    fn strike(&self, child: &Child, at: u64, bit: u8) {
        let path = format!("/proc/{}/root/mnt/data/x.db", child.id());
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .expect("the site's file");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("inside the file");
        byte[0] ^= 1 << bit;
        file.write_all_at(&byte, at).expect("it is stored");
    }

    fn end(mut self) -> Ends {
        drop(self.to.take());
        let deadline = Instant::now() + LIMIT;
        for child in [&mut self.a, &mut self.b] {
            while child.try_wait().expect("a child").is_none() {
                if Instant::now() > deadline {
                    child.kill().expect("a child");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let mut rest = Vec::new();
        self.from.read_to_end(&mut rest).expect("it has ended");
        let (mut a, b) = (
            self.a.wait_with_output().expect("a"),
            self.b.wait_with_output().expect("b"),
        );
        a.stdout = rest;
        Ends { a, b }
    }
}

const ASK: &str = ".open x.db\n.sha3sum";
/// In a text of the table, far from any header.
const PLACE: u64 = 8 * 4096 + 2000;

#[test]
fn the_pair_answers_as_sqlite3_alone_does_and_says_nothing() {
    let dir = with_table("silent");
    let script = "INSERT INTO t SELECT a+1000, b FROM t; DELETE FROM t WHERE a % 3 = 0; UPDATE t SET b = b || 'x' WHERE a % 5 = 0;
VACUUM; PRAGMA integrity_check; .sha3sum";
    let site = sqlite_site(&dir);
    let mut both = Both::start(&site, &site);
    assert_eq!(both.ask(&script.replace(" .sha3sum", "")), "ok");
    let digest = both.ask(".sha3sum");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    assert_eq!(
        format!("ok\n{digest}\n"),
        sqlite(&dir, &script.replace(" .sha3sum", "\n.sha3sum"))
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_flip_on_either_disk_is_attributed_and_repaired_and_on_both_the_program_stops() {
    let dir = with_table("flip");
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, ".sha3sum").trim().to_owned();
    for (struck, line) in [
        ("A", "disk of A, x.db page 8, ledger agrees with B"),
        ("B", "disk of B, x.db page 8, ledger agrees with A"),
    ] {
        let mut both = Both::start(&site, &site);
        assert_eq!(both.ask(ASK), right);
        both.strike(if struck == "A" { &both.a } else { &both.b }, PLACE, 1);
        assert_eq!(both.ask(ASK), right, "{struck}");
        assert_eq!(both.ask(ASK), right, "{struck}: again");
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        assert_eq!(
            ends.said().matches(line).count(),
            2,
            "once on each site, and no second time: {}",
            ends.said()
        );
    }
    let mut both = Both::start(&site, &site);
    assert_eq!(both.ask(ASK), right);
    both.strike(&both.a, PLACE, 1);
    both.strike(&both.b, PLACE, 2);
    assert_eq!(both.ask(ASK), "", "nothing wrong leaves");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(122), Some(122)], "{}", ends.said());
    assert!(
        ends.said()
            .contains("the ledgers do not tell which is right"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn files_that_differ_at_the_start_are_listed_and_nothing_starts() {
    let (dir, other) = (with_table("equal"), with_table("other"));
    let file = fs::OpenOptions::new()
        .write(true)
        .open(other.join("x.db"))
        .expect("the database");
    file.write_all_at(b"?", PLACE).expect("it is stored");
    fs::write(dir.join("more"), "x").expect("a file");
    let ends = Both::start(&sqlite_site(&dir), &sqlite_site(&other)).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    assert!(
        ends.said()
            .contains("/mnt/data/x.db: page 8 differs, no ledger tells which is right"),
        "{}",
        ends.said()
    );
    assert!(
        ends.said()
            .contains("/mnt/data/more: the secondary does not have it"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir)
        .and_then(|()| fs::remove_dir_all(other))
        .expect("clean");
}

#[test]
fn what_a_pair_cannot_do_is_refused_by_name() {
    let dir = seed("refused");
    let site = |command: &[&str]| Site {
        seed: dir.clone(),
        ledger_bytes: "4m",
        command: command.iter().map(|word| (*word).to_owned()).collect(),
    };
    let fork = site(&["sh", "-c", "(echo a); echo b"]);
    let ends = Both::start(&fork, &fork).end();
    assert_eq!(ends.a.status.code(), Some(121), "{}", ends.said());
    assert!(
        ends.said().contains("another thread, process or program"),
        "{}",
        ends.said()
    );

    let ends = Both::start(&site(&["echo", "a"]), &site(&["echo", "b"])).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    assert!(ends.said().contains("the same command"), "{}", ends.said());

    // Both on the file system of the temporary directory.
    let output = Command::new(PAIR)
        .args(["primary", "--peer", "127.0.0.1:1", "--ledger"])
        .arg(dir.join("ledger"))
        .arg("--data")
        .arg(&dir)
        .args(["--", "true"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(121), "{said}");
    assert!(
        said.contains("the ledger has to be on another device"),
        "{said}"
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn check_starts_nothing_and_tells_what_it_finds() {
    let dir = with_table("check");
    let site = Site {
        seed: dir.clone(),
        ledger_bytes: "4m",
        command: vec!["/bin/true".into()],
    };
    let output = start(&site, "check", &[])
        .wait_with_output()
        .expect("it ends");
    let said =
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("/mnt/data: 1 files")
            && said.contains("without a witness the loss of a site stops the program"),
        "{said}"
    );
    let script = Site {
        command: vec!["/usr/bin/ldd".into()],
        ..site
    };
    let output = start(&script, "check", &[])
        .wait_with_output()
        .expect("it ends");
    assert_eq!(output.status.code(), Some(121), "a script is no program");
    let verify = Command::new(PAIR)
        .args(["verify", "--ledger"])
        .arg(dir.join("none"))
        .output()
        .expect("it runs");
    assert_eq!(
        verify.status.code(),
        Some(121),
        "no ledger vouches for nothing"
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_peer_of_another_version_is_refused() {
    let dir = seed("version");
    let address = format!("127.0.0.1:{}", free_port());
    let site = Site {
        seed: dir.clone(),
        ledger_bytes: "4m",
        command: vec!["true".into()],
    };
    let mut b = start(&site, "secondary", &["--listen", &address]);
    let deadline = Instant::now() + LIMIT;
    let mut stream = loop {
        match TcpStream::connect(&address) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let body = br#"{"version":99,"steadfast":"9","command":["true"],"program_digest":"","directory":"","environment":[],"data":[],"witness":"none","kernel":"","processor":"","random":""}"#;
    let mut frame = u32::try_from(body.len())
        .expect("short")
        .to_le_bytes()
        .to_vec();
    frame.push(1);
    frame.extend(body);
    stream.write_all(&frame).expect("it listens");
    let output = {
        let _ = b.stdin.take();
        b.wait_with_output().expect("it ends")
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(121), "{said}");
    assert!(
        said.contains("the same protocol version: here 2, there 99"),
        "{said}"
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_lost_peer_and_a_full_ledger_stop_the_program() {
    let dir = with_table("lost");
    let mut both = Both::start(&sqlite_site(&dir), &sqlite_site(&dir));
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    both.b.kill().expect("a child");
    assert_eq!(both.ask("SELECT count(*)+1 FROM t;"), "");
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(122), "{}", ends.said());
    assert!(ends.said().contains("the peer is lost"), "{}", ends.said());

    let full = Site {
        ledger_bytes: "8k",
        ..sqlite_site(&dir)
    };
    let mut both = Both::start(&full, &sqlite_site(&dir));
    both.ask("INSERT INTO t SELECT a+1000, b FROM t; INSERT INTO t SELECT a+10000, b FROM t; VACUUM; SELECT 'done';");
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(121), "{}", ends.said());
    assert!(
        ends.said().contains("the ledger has to be written"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

/// A directory that both sites see.
struct Witness(PathBuf);

impl Witness {
    fn new(name: &str) -> Self {
        Self(seed(&format!("witness-{name}")))
    }

    fn flags(&self, lost_after: u64) -> [String; 4] {
        [
            "--witness".into(),
            format!("dir:{}", self.0.display()),
            "--lost-after".into(),
            lost_after.to_string(),
        ]
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the secondary's own program answers: it leads by then.
fn ask_secondary(child: &mut Child, from: &mut BufReader<ChildStdout>, sql: &str) -> String {
    writeln!(child.stdin.as_ref().expect("piped"), "{sql}").expect("it reads");
    let mut line = String::new();
    from.read_line(&mut line).expect("it answers");
    line.trim_end().to_owned()
}

fn witnessed(site: &Site, witness: &Witness) -> Both {
    let address = format!("127.0.0.1:{}", free_port());
    let flags = witness.flags(5000);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Both::start_with(site, site, &address, &address, &flags)
}

const CHANGE: &str = "INSERT INTO t SELECT a+(SELECT max(a) FROM t), b FROM t; UPDATE t SET b = b || 'x' WHERE a % 5 = 0; SELECT count(*) FROM t;";
const SUM: &str =
    "SELECT count(*) || ' ' || sum(length(b)) || ' ' || max(a) FROM t; PRAGMA integrity_check;";

#[test]
fn the_primary_goes_on_without_the_secondary_and_still_finds_what_its_disk_gets_wrong() {
    let dir = with_table("alone");
    let (site, witness) = (sqlite_site(&dir), Witness::new("alone"));
    let mut both = witnessed(&site, &witness);
    assert_eq!(both.ask(CHANGE), "200");
    both.b.kill().expect("a child");
    let sum = both.ask(&SUM.replace(" PRAGMA integrity_check;", ""));
    assert_eq!(
        both.ask(&format!("{CHANGE} PRAGMA integrity_check;")),
        "400"
    );
    let mut line = String::new();
    both.from.read_line(&mut line).expect("it answers");
    assert_eq!(line, "ok\n");
    assert_eq!(
        sum,
        sqlite(
            &dir,
            &format!(
                "BEGIN; {CHANGE} {} ROLLBACK;",
                SUM.replace(" PRAGMA integrity_check;", "")
            )
        )
        .lines()
        .nth(1)
        .unwrap_or_default()
    );
    both.strike(&both.a, PLACE, 1);
    assert_eq!(both.ask(ASK), "", "nothing wrong leaves");
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(122), "{}", ends.said());
    assert!(
        ends.said()
            .contains("the secondary is lost; this site goes on alone")
            && ends
                .said()
                .contains("not as the ledger has it, and this site is alone"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn the_secondary_goes_on_without_the_primary_with_what_was_committed() {
    let dir = with_table("leads");
    let (site, witness) = (sqlite_site(&dir), Witness::new("leads"));
    let mut both = witnessed(&site, &witness);
    assert_eq!(both.ask(CHANGE), "200");
    both.a.kill().expect("a child");
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let only = SUM.replace(" PRAGMA integrity_check;", "");
    let mut sum = ask_secondary(&mut both.b, &mut from, &only);
    // The primary's last word, if this site has not heard that it was said.
    if sum == "200" {
        sum.clear();
        from.read_line(&mut sum).expect("it answers");
        sum.truncate(sum.trim_end().len());
    }
    assert_eq!(
        sum,
        sqlite(&dir, &format!("BEGIN; {CHANGE} {only} ROLLBACK;"))
            .lines()
            .nth(1)
            .unwrap_or_default()
    );
    assert_eq!(ask_secondary(&mut both.b, &mut from, CHANGE), "400");
    assert_eq!(
        ask_secondary(&mut both.b, &mut from, "PRAGMA integrity_check;"),
        "ok"
    );
    drop(both.b.stdin.take());
    let ends = both.end();
    assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
    assert!(
        ends.said()
            .contains("the primary is lost; this site goes on alone"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_primary_that_was_frozen_finds_itself_outvoted_and_says_nothing_more() {
    let dir = with_table("frozen");
    let (site, witness) = (sqlite_site(&dir), Witness::new("frozen"));
    let address = format!("127.0.0.1:{}", free_port());
    let flags = witness.flags(500);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut both = Both::start_with(&site, &site, &address, &address, &flags);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    let signal = |child: &Child, name: &str| {
        let sent = Command::new("kill")
            .args([name, &child.id().to_string()])
            .status()
            .expect("kill is installed");
        assert!(sent.success());
    };
    signal(&both.a, "-STOP");
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let mut answer = ask_secondary(&mut both.b, &mut from, "SELECT 'here';");
    // The primary's last word, if this site has not heard that it was said.
    if answer == "100" {
        answer.clear();
        from.read_line(&mut answer).expect("it answers");
        answer.truncate(answer.trim_end().len());
    }
    assert_eq!(answer, "here");
    writeln!(
        both.to.as_ref().expect("open"),
        "INSERT INTO t VALUES(5000, 'x'); SELECT 'there';"
    )
    .expect("it reads");
    signal(&both.a, "-CONT");
    drop(both.b.stdin.take());
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(122), Some(0)], "{}", ends.said());
    assert_eq!(String::from_utf8_lossy(&ends.a.stdout), "");
    assert!(
        ends.said()
            .contains("the witness says that it goes on alone"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

/// Between the two sites; cut, it says nothing and closes nothing.
struct Wire {
    address: String,
    cut: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Wire {
    fn to(secondary: String) -> Self {
        use std::sync::atomic::{AtomicBool, Ordering};
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let cut = std::sync::Arc::new(AtomicBool::new(false));
        let is_cut = std::sync::Arc::clone(&cut);
        std::thread::spawn(move || {
            let Ok((a, _)) = listener.accept() else {
                return;
            };
            let b = loop {
                match TcpStream::connect(&secondary) {
                    Ok(stream) => break stream,
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            };
            let ways = [(&a, &b), (&b, &a)].map(|(from, to)| {
                let (mut from, mut to) = (
                    from.try_clone().expect("a socket"),
                    to.try_clone().expect("a socket"),
                );
                let is_cut = std::sync::Arc::clone(&is_cut);
                std::thread::spawn(move || {
                    let mut bytes = [0; 65536];
                    while let Ok(n) = from.read(&mut bytes) {
                        if n == 0
                            || is_cut.load(Ordering::SeqCst)
                            || to.write_all(&bytes[..n]).is_err()
                        {
                            break;
                        }
                    }
                    if !is_cut.load(Ordering::SeqCst) {
                        let _ = to.shutdown(std::net::Shutdown::Write);
                    }
                })
            });
            for way in ways {
                let _ = way.join();
            }
            // Until the test is over: whoever listens hears nothing.
            while is_cut.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Self { address, cut }
    }

    fn cut(&self) {
        self.cut.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_cut_link_leaves_one_site_that_goes_on_and_never_two() {
    let dir = with_table("cut");
    let site = sqlite_site(&dir);
    let rounds = std::env::var("PAIR_CUTS").map_or(3, |rounds| rounds.parse().expect("a number"));
    for round in 0..rounds {
        let witness = Witness::new(&format!("cut-{round}"));
        let listen = format!("127.0.0.1:{}", free_port());
        let wire = Wire::to(listen.clone());
        // Whoever is the more patient comes second.
        let flags = witness.flags(600);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut both = Both::start_with(&site, &site, &listen, &wire.address, &flags);
        assert_eq!(both.ask("SELECT count(*) FROM t;"), "100", "round {round}");
        // In the middle of work, from the second round on.
        if round > 0 {
            writeln!(both.to.as_ref().expect("open"), "{CHANGE}").expect("it reads");
            std::thread::sleep(Duration::from_micros(7919 * round % 60_000));
        }
        wire.cut();
        let deadline = Instant::now() + LIMIT;
        let primary_stopped = loop {
            if both.a.try_wait().expect("a child").is_some() {
                break true;
            }
            if both.b.try_wait().expect("a child").is_some() {
                break false;
            }
            assert!(Instant::now() < deadline, "nobody stops");
            std::thread::sleep(Duration::from_millis(5));
        };
        let ends = if primary_stopped {
            let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
            let mut answer = ask_secondary(&mut both.b, &mut from, "SELECT 'alive';");
            while answer.parse::<u32>().is_ok() {
                answer.clear();
                from.read_line(&mut answer).expect("it answers");
                answer = answer.trim_end().to_owned();
            }
            assert_eq!(answer, "alive", "round {round}");
            drop(both.b.stdin.take());
            both.end()
        } else {
            let mut answer = both.ask("SELECT 'alive';");
            while answer.parse::<u32>().is_ok() {
                let mut line = String::new();
                both.from.read_line(&mut line).expect("it answers");
                answer = line.trim_end().to_owned();
            }
            assert_eq!(answer, "alive", "round {round}");
            both.end()
        };
        let mut codes = ends.codes();
        codes.sort_unstable();
        assert_eq!(
            codes,
            [Some(0), Some(122)],
            "round {round}: {}",
            ends.said()
        );
        assert_eq!(
            ends.said()
                .matches("goes on alone, as the witness says")
                .count(),
            1,
            "round {round}: {}",
            ends.said()
        );
        assert_eq!(
            ends.said()
                .matches("the witness says that it goes on alone")
                .count(),
            1,
            "round {round}: {}",
            ends.said()
        );
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn the_demo_shows_both_disks_to_root_and_tells_others_what_is_missing() {
    for struck in ["a", "b"] {
        let output = Command::new(PAIR)
            .args(["demo", "--strike", struck])
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat())
            .into_owned();
        if is_root() {
            assert_eq!(output.status.code(), Some(0), "{said}");
            assert!(said.contains("x.db page 8, ledger agrees with"), "{said}");
        } else {
            assert_eq!(output.status.code(), Some(121), "{said}");
            assert!(said.contains("needs root"), "{said}");
        }
    }
    let dir = seed("web");
    let web = dir.join("web");
    let built = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(&web)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/web.c"))
        .status()
        .expect("cc is installed");
    assert!(built.success());
    let output = Command::new(PAIR)
        .args(["demo", "--"])
        .arg(&web)
        .output()
        .expect("it runs");
    let said =
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    if is_root() {
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("with 1 connections (0 cut)"), "{said}");
    } else {
        assert_eq!(output.status.code(), Some(121), "{said}");
    }
    fs::remove_dir_all(dir).expect("clean");
    let loops = Command::new("losetup")
        .arg("--list")
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    assert!(
        !String::from_utf8_lossy(&loops).contains("steadfast-pair-"),
        "a loop device is left behind"
    );
}
