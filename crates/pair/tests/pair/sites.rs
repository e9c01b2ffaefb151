//! Two sites in mount namespaces of their own, and what tests do to them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program: the one beside the tests, or a copy that stays as it is while others are built (`bench pair --lost`).
pub(crate) fn pair() -> &'static str {
    static PROGRAM: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    PROGRAM.get_or_init(|| {
        std::env::var("STEADFAST_PAIR")
            .unwrap_or_else(|_| env!("CARGO_BIN_EXE_steadfast-pair").to_owned())
    })
}

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// What a site starts from.
pub(crate) struct Site {
    pub(crate) seed: PathBuf,
    pub(crate) ledger_bytes: &'static str,
    pub(crate) data_bytes: &'static str,
    /// A ledger from before.
    pub(crate) ledger: Option<PathBuf>,
    /// Seconds by which its CLOCK_MONOTONIC is ahead of the machine's.
    pub(crate) ahead: &'static str,
    /// In whose network it is; the test's own otherwise.
    pub(crate) net: Option<u32>,
    pub(crate) command: Vec<String>,
}

/// A folder of a case. It has not the product's name, by which tests/cases/left.rs looks for what a run has forgotten.
pub(crate) fn seed(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("pair-test-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    dir
}

/// A program of the tests, built into a directory.
pub(crate) fn built(dir: &Path, name: &str) -> PathBuf {
    built_of(dir, &format!("pair/{name}.c"))
}

/// The same of any guest.
pub(crate) fn built_of(dir: &Path, guest: &str) -> PathBuf {
    let source = format!("{}/../../guests/{guest}", env!("CARGO_MANIFEST_DIR"));
    let program = dir.join(Path::new(&source).file_stem().expect("a name"));
    let status = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status()
        .expect("cc is installed");
    assert!(status.success());
    program
}

pub(crate) fn sqlite(dir: &Path, script: &str) -> String {
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

pub(crate) const TABLE: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100)
INSERT INTO t SELECT i, substr(replace(hex(zeroblob(1000)), '0', char(65 + i % 26)), 1, 1500) FROM n;";

pub(crate) fn with_table(name: &str) -> PathBuf {
    let dir = seed(name);
    sqlite(&dir, TABLE);
    dir
}

pub(crate) fn sqlite_site(seed: &Path) -> Site {
    Site {
        seed: seed.into(),
        ledger_bytes: "4m",
        data_bytes: "64m",
        ledger: None,
        ahead: "0",
        net: None,
        command: ["sqlite3", "-batch", "x.db"].map(String::from).to_vec(),
    }
}

pub(crate) fn start(site: &Site, side: &str, more: &[&str]) -> Child {
    start_as(site, side, more, |_| {})
}

pub(crate) fn start_as(
    site: &Site,
    side: &str,
    more: &[&str],
    adjust: impl FnOnce(&mut Command),
) -> Child {
    let script = format!(
        "mount -t tmpfs none /mnt && mount -t tmpfs none /dev/shm && mkdir /mnt/data /mnt/ledger && mount -t tmpfs -o size={} none /mnt/data && \
         mount -t tmpfs -o size={} none /mnt/ledger && cp -a {}/. /mnt/data && {} cd /mnt/data && exec \"$@\"",
        site.data_bytes,
        site.ledger_bytes,
        site.seed.display(),
        site.ledger
            .as_ref()
            .map_or_else(String::new, |ledger| format!(
                "cp {}/ledger /mnt/ledger/ && ",
                ledger.display()
            )),
    );
    // A test that fails leaves no site behind that goes on alone: the signal comes with the end of the test's thread.
    let mut command = Command::new("setpriv");
    if let Some(net) = site.net {
        command = Command::new("nsenter");
        command.args(["--target", &net.to_string(), "--net", "--", "setpriv"]);
    }
    command.args(["--pdeathsig", "KILL", "unshare"]);
    command.args(["--mount", "--ipc", "--propagation", "private"]);
    if site.ahead != "0" {
        command.args(["--time", "--monotonic", site.ahead]);
    }
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--", "sh", "-c", &script, "sh", pair(), side])
        .args(more);
    command
        .args(["--ledger", "/mnt/ledger", "--data", "/mnt/data", "--"])
        .args(&site.command);
    adjust(&mut command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare is installed")
}

/// The networks of two hosts and of a third, which connects them; they go when this is dropped. Each has the addresses of its own
/// loopback, as hosts do.
pub(crate) struct Cables([Child; 3]);

impl Cables {
    pub(crate) const ADDRESSES: [&str; 3] = ["10.96.0.1", "10.96.0.2", "10.96.0.3"];

    pub(crate) fn new() -> Self {
        let holders = [0; 3].map(|_| {
            let mut holder = Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "unshare", "--net", "--", "sh", "-c"])
                .arg("ip link set lo up && echo up && exec sleep 1000")
                .stdout(Stdio::piped())
                .spawn()
                .expect("unshare is installed");
            let mut up = [0; 3];
            let mut from = holder.stdout.take().expect("piped");
            from.read_exact(&mut up).expect("it is up");
            holder
        });
        let cables = Self(holders);
        cables.ip(2, "link add hub type bridge");
        cables.ip(2, "link set hub up");
        let hub = cables.nets()[2];
        for (at, end) in ["va", "vb"].into_iter().enumerate() {
            cables.ip(
                at,
                &format!("link add v type veth peer name {end} netns {hub}"),
            );
            cables.ip(2, &format!("link set {end} master hub"));
            cables.ip(2, &format!("link set {end} up"));
        }
        for (at, device) in ["v", "v", "hub"].into_iter().enumerate() {
            let address = Self::ADDRESSES[at];
            cables.ip(at, &format!("address add {address}/24 dev {device}"));
            cables.ip(at, &format!("link set {device} up"));
        }
        cables
    }

    /// What `ip` says in one of them.
    pub(crate) fn ip(&self, at: usize, words: &str) -> String {
        let output = Command::new("nsenter")
            .args(["--target", &self.nets()[at].to_string(), "--net", "ip"])
            .args(words.split(' '))
            .output()
            .expect("nsenter is installed");
        assert!(output.status.success(), "ip {words}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    pub(crate) fn nets(&self) -> [u32; 3] {
        self.0.each_ref().map(Child::id)
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for holder in &mut self.0 {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// A port that no test of this process has had. It lies below those that the kernel gives to whoever connects
/// (ip_local_port_range): one of those may be taken between now and its use.
pub(crate) fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU32, Ordering};
    const FIRST: u32 = 10_240;
    const MANY: u32 = 20_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = (std::process::id() % MANY) * 97 + GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + next % MANY).expect("below 32,768");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Cases that wait most of the time. Each is a thread of its own, whose sites end with it.
pub(crate) fn side_by_side<T: Sync>(cases: &[T], case: impl Fn(&T) + Sync) {
    let case = &case;
    std::thread::scope(|scope| {
        for one in cases {
            scope.spawn(move || case(one));
        }
    });
}

pub(crate) struct Both {
    pub(crate) a: Child,
    pub(crate) b: Child,
    pub(crate) to: Option<ChildStdin>,
    pub(crate) from: BufReader<ChildStdout>,
}

pub(crate) struct Ends {
    pub(crate) a: Output,
    pub(crate) b: Output,
}

impl Ends {
    pub(crate) fn codes(&self) -> [Option<i32>; 2] {
        [self.a.status.code(), self.b.status.code()]
    }

    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&[&self.a.stderr[..], &self.b.stderr[..]].concat()).into_owned()
    }
}

impl Both {
    pub(crate) fn start(a: &Site, b: &Site) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        Self::start_with(a, b, &address, &address, &[])
    }

    /// `listen`: where the secondary is; `peer`: where the primary believes it to be.
    pub(crate) fn start_with(a: &Site, b: &Site, listen: &str, peer: &str, more: &[&str]) -> Self {
        let b = start(b, "secondary", &[&["--listen", listen], more].concat());
        Self::with(start(a, "primary", &[&["--peer", peer], more].concat()), b)
    }

    pub(crate) fn with(mut a: Child, b: Child) -> Self {
        let (to, from) = (
            a.stdin.take(),
            BufReader::new(a.stdout.take().expect("piped")),
        );
        Self { a, b, to, from }
    }

    pub(crate) fn ask(&mut self, sql: &str) -> String {
        writeln!(self.to.as_ref().expect("open"), "{sql}").expect("it reads");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    /// It is told so, or both say why not.
    pub(crate) fn told(mut self, sql: &str, right: &str) -> Self {
        let answer = self.ask(sql);
        if answer != right {
            panic!("{sql}: {answer:?}, not {right:?}: {}", self.end().said());
        }
        self
    }

    /// Flips a bit of the database where one site keeps it. The program runs by then: it has answered.
    pub(crate) fn strike(&self, child: &Child, at: u64, bit: u8) {
        let path = format!("/proc/{}/root/mnt/data/x.db", child.id());
        crate::join::flip(&path, at, bit);
    }

    /// Until both have ended, of themselves or by force.
    pub(crate) fn wait(&mut self) {
        let deadline = Instant::now() + LIMIT;
        for child in [&mut self.a, &mut self.b] {
            while child.try_wait().expect("a child").is_none() {
                if Instant::now() > deadline {
                    child.kill().expect("a child");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    pub(crate) fn end(mut self) -> Ends {
        drop(self.to.take());
        self.wait();
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

pub(crate) const ASK: &str = ".open x.db\n.sha3sum";
/// In a text of the table, far from any header.
pub(crate) const PLACE: u64 = 8 * 4096 + 2000;

/// What a program that runs alone answers, a line to each question.
pub(crate) fn answers(program: &mut Command, asked: &[&str]) -> Vec<String> {
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let to = child.stdin.take().expect("piped");
    writeln!(&to, "{}", asked.join("\n")).expect("it reads");
    drop(to);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), asked.len(), "{said}");
    lines
}

/// A directory that both sites see.
pub(crate) struct Witness(pub(crate) PathBuf);

impl Witness {
    pub(crate) fn new(name: &str) -> Self {
        Self(seed(&format!("witness-{name}")))
    }

    pub(crate) fn flags(&self, lost_after: u64) -> [String; 4] {
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
pub(crate) fn ask_secondary(
    child: &mut Child,
    from: &mut BufReader<ChildStdout>,
    sql: &str,
) -> String {
    writeln!(child.stdin.as_ref().expect("piped"), "{sql}").expect("it reads");
    let mut line = String::new();
    from.read_line(&mut line).expect("it answers");
    line.trim_end().to_owned()
}

pub(crate) fn witnessed(site: &Site, witness: &Witness) -> Both {
    let address = format!("127.0.0.1:{}", free_port());
    let flags = witness.flags(5000);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Both::start_with(site, site, &address, &address, &flags)
}

/// The same on two hosts with networks of their own, and where each is.
pub(crate) fn cabled(
    site: &Site,
    witness: &Witness,
    lost_after: u64,
    more: &[&str],
) -> (Both, Cables) {
    let cables = Cables::new();
    let address = format!("{}:{}", Cables::ADDRESSES[1], free_port());
    let flags = witness.flags(lost_after);
    let flags: Vec<&str> = flags
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    let [a, b, _] = cables.nets().map(|net| Site {
        net: Some(net),
        seed: site.seed.clone(),
        ledger: site.ledger.clone(),
        command: site.command.clone(),
        ..*site
    });
    let both = Both::start_with(&a, &b, &address, &address, &flags);
    (both, cables)
}

pub(crate) const CHANGE: &str = "INSERT INTO t SELECT a+(SELECT max(a) FROM t), b FROM t; UPDATE t SET b = b || 'x' WHERE a % 5 = 0; SELECT count(*) FROM t;";
pub(crate) const SUM: &str =
    "SELECT count(*) || ' ' || sum(length(b)) || ' ' || max(a) FROM t; PRAGMA integrity_check;";
