//! PostgreSQL: processes that share memory by a key and by names, and a database of which no committed row may be missing.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::join::{Told, flags};
use crate::servers::{TURNS, strike_at, turn, words};
use crate::several::left_alone_at;
use crate::sites::*;
use crate::switch::order;

/// The directory with PostgreSQL's programs.
fn postgres() -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .expect("postgresql is installed")
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    found.sort();
    found.pop().expect("a version")
}

const AS_POSTGRES: [&str; 6] = [
    "setpriv",
    "--reuid",
    "postgres",
    "--regid",
    "postgres",
    "--clear-groups",
];

fn done(program: &Path, words: &str) -> String {
    let own = Command::new(AS_POSTGRES[0]);
    tried(own, program, words).unwrap_or_else(|failed| panic!("{failed}"))
}

/// What to begin a command with that is to ask a server of this host.
fn within(net: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &net.to_string(), "--net", "--", AS_POSTGRES[0]]);
    command
}

fn tried(mut command: Command, program: &Path, words: &str) -> Result<String, String> {
    let output = command
        .args(&AS_POSTGRES[1..])
        .arg(program)
        .args(words.split(' ').map(|word| word.replace('~', " ")))
        .current_dir("/")
        .output()
        .expect("it runs");
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{}: {said}", program.display()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

const SUM: &str = "-AtXc select~sum(abalance),sum(hashtext(filler)),count(*)~from~pgbench_accounts";

/// `PAIR_STRIKES`: on how many pages of each disk a bit flips before the other site comes to lead.
fn strikes() -> usize {
    std::env::var("PAIR_STRIKES").map_or(1, |text| text.parse().expect("a number"))
}

/// A database with the tables of pgbench.
struct Database {
    bin: PathBuf,
    dir: PathBuf,
    data: PathBuf,
    /// The file of its largest table, and what the server says of all of it.
    file: String,
    sum: String,
}

impl Database {
    fn new(name: &str) -> Self {
        let bin = postgres();
        let dir = seed(name);
        let data = dir.join("data");
        fs::create_dir(&data).expect("a directory");
        for path in [&dir, &data] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a directory");
            std::os::unix::fs::chown(path, Some(id_of("-u")), Some(id_of("-g"))).expect("root");
        }
        let at = data.join("pg").display().to_string();
        let port = free_port();
        let client = client(port);
        let options =
            format!("-p {port} -k /tmp -c listen_addresses=127.0.0.1 -c shared_buffers=2MB");
        done(
            &bin.join("initdb"),
            &format!("-A trust -U postgres --no-sync --wal-segsize=1 -D {at}"),
        );
        let control = bin.join("pg_ctl");
        let quoted = options.replace(' ', "~");
        done(
            &control,
            &format!("-D {at} -s -w -l /dev/null -o {quoted} start"),
        );
        done(&bin.join("pgbench"), &format!("{client} -i -q postgres"));
        for sql in [
            "create~extension~amcheck",
            "create~table~acknowledged(n~int)",
        ] {
            done(&bin.join("psql"), &format!("{client} -qXc {sql} postgres"));
        }
        let file = "-AtXc select~pg_relation_filepath('pgbench_accounts')";
        let file = done(&bin.join("psql"), &format!("{client} {file} postgres"));
        let sum = done(&bin.join("psql"), &format!("{client} {SUM} postgres"));
        done(&control, &format!("-D {at} -s -w stop"));
        Self {
            bin,
            dir,
            data,
            file,
            sum,
        }
    }

    fn site(&self, port: u16) -> Site {
        self.site_at("127.0.0.1", port)
    }

    fn site_at(&self, address: &str, port: u16) -> Site {
        let server = format!(
            "{} {} -D /mnt/data/pg -p {port} -k /mnt/data -c listen_addresses={address} -c shared_buffers=2MB",
            AS_POSTGRES.join(" "),
            self.bin.join("postgres").display(),
        );
        Site {
            command: words(&server),
            data_bytes: "300m",
            ledger_bytes: "16m",
            ..sqlite_site(&self.data)
        }
    }

    /// What a client in this network is told.
    fn ask(&self, net: u32, what: &str, words: &str) -> Result<String, String> {
        tried(within(net), &self.bin.join(what), words)
    }

    fn is_ready(&self, net: u32, port: u16) -> bool {
        self.ask(net, "pg_isready", &client(port)).is_ok()
    }

    fn sum(&self, net: u32, port: u16) -> Result<String, String> {
        self.ask(net, "psql", &format!("{} {SUM} postgres", client(port)))
    }

    fn strike(&self, site: &Child, page: u64) {
        strike_at(site, &format!("pg/{}", self.file), page * 4096 + 300);
    }

    /// The name of the file that is struck.
    fn struck(&self) -> String {
        let name = Path::new(&self.file).file_name().expect("a name");
        name.display().to_string()
    }
}

fn client(port: u16) -> String {
    format!("-h 127.0.0.1 -p {port} -U postgres")
}

/// Its processes share memory, and files of it.
#[test]
fn postgresql_keeps_what_it_has_committed() {
    if !is_root() {
        return; // the files belong to another user
    }
    let database = Database::new("postgres");
    side_by_side(&TURNS, |how| commits_until(how, &database));
    fs::remove_dir_all(&database.dir).expect("clean");
}

/// What a client has in its session is in its server's memory alone. No process of the server's may repair a connection.
#[test]
fn a_session_goes_on_when_the_host_that_leads_is_lost() {
    if !is_root() {
        return; // the files belong to another user
    }
    let database = Database::new("postgres-session");
    let rules = database.data.join("pg/pg_hba.conf");
    let mut rules = fs::OpenOptions::new().append(true).open(rules).expect("it");
    writeln!(rules, "host all all 10.96.0.0/24 trust").expect("it is stored");
    let port = free_port();
    let site = database.site_at("0.0.0.0", port);
    let witness = Witness::new("postgres-session");
    let address = ["--address", "10.96.0.5/24@v"];
    let (mut both, cables) = cabled(&site, &witness, 4000, &address);
    let [a, _, client] = cables.nets();
    let deadline = Instant::now() + LIMIT;
    while !database.is_ready(a, port) {
        assert!(Instant::now() < deadline, "it is not ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    let words = format!("-h 10.96.0.5 -p {port} -U postgres -qAtX postgres");
    let mut session = within(client)
        .args(&AS_POSTGRES[1..])
        .arg(database.bin.join("psql"))
        .args(words.split(' '))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(session.stdout.take().expect("piped")).lines();
    let mut asks = |sql: &str| {
        writeln!(session.stdin.as_ref().expect("piped"), "{sql}").expect("it reads");
        lines.next().map(|line| line.expect("text"))
    };
    let first = asks("create temp table t as select 7 as n; select n from t;");
    assert_eq!(first.as_deref(), Some("7"));
    cables.ip(2, "link set va down");
    both.a.kill().expect("a child");
    let second = asks("select n + 1 from t;");
    assert_eq!(second.as_deref(), Some("8"));
    drop(session.stdin.take());
    session.wait().expect("a child");
    both.b.kill().expect("a child");
    let ends = both.end();
    let taken = "with 1 connections (0 cut)";
    assert!(ends.said().contains(taken), "{}", ends.said());
    fs::remove_dir_all(&database.dir).expect("clean");
}

fn commits_until(how: &str, database: &Database) {
    let port = free_port();
    let client = client(port);
    let site = database.site(port);
    let witness = Witness::new(&format!("postgres-{how}"));
    let (mut both, cables) = cabled(&site, &witness, 5000, &[]);
    let [a, b, _] = cables.nets();
    let deadline = Instant::now() + LIMIT;
    while !database.is_ready(a, port) {
        assert!(Instant::now() < deadline, "it is not ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    let sum = || {
        database
            .sum(a, port)
            .unwrap_or_else(|failed| panic!("{failed}"))
    };
    assert_eq!(sum(), database.sum);
    for page in (100..).step_by(3).take(strikes()) {
        for struck in [&both.a, &both.b] {
            database.strike(struck, page);
            assert_eq!(sum(), database.sum);
        }
    }
    let load = format!("{client} -n -c 2 -t 20 postgres");
    database
        .ask(a, "pgbench", &load)
        .unwrap_or_else(|failed| panic!("{failed}"));
    let committed = sum();
    turn(how, &mut both);
    // Until all of its processes lead on the other site, nobody listens.
    let deadline = Instant::now() + LIMIT;
    while !database.is_ready(b, port) {
        let has_ended = both.b.try_wait().expect("a child").is_some();
        if has_ended || Instant::now() > deadline {
            steadfast_sys::child::kill(both.b.id().cast_signed(), libc::SIGTERM);
            panic!("it does not serve on: {}", both.end().said());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let check = format!("{client} postgres");
    let left = database
        .sum(b, port)
        .and_then(|left| database.ask(b, "pgbench", &load).map(|_| left))
        .and_then(|left| database.ask(b, "pg_amcheck", &check).map(|_| left));
    if let Err(failed) = &left {
        steadfast_sys::child::kill(both.b.id().cast_signed(), libc::SIGTERM);
        panic!("{failed}{}", both.end().said());
    }
    assert_eq!(left, Ok(committed), "{how}");
    steadfast_sys::child::kill(both.b.id().cast_signed(), libc::SIGTERM);
    let ends = both.end();
    assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
    for struck in ['A', 'B'] {
        let line = format!("disk of {struck}, {} page 100,", database.struck());
        assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
    }
}

/// A client that commits row after row, each when the one before it is acknowledged, until it is told to rest.
struct Commits {
    child: Child,
    rests: AtomicBool,
    acknowledged: AtomicU32,
}

impl Commits {
    fn new(database: &Database, net: u32, port: u16) -> (Self, BufReader<ChildStdout>) {
        let mut child = within(net)
            .args(&AS_POSTGRES[1..])
            .arg(database.bin.join("psql"))
            .args(words(&client(port)))
            .args(["-qAtX", "postgres"])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql is installed");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        let this = Self {
            child,
            rests: AtomicBool::new(false),
            acknowledged: AtomicU32::new(0),
        };
        (this, from)
    }

    fn run(&self, mut from: BufReader<ChildStdout>) {
        let mut to = self.child.stdin.as_ref().expect("piped");
        for n in 1.. {
            if self.rests.load(Ordering::SeqCst) {
                return;
            }
            let mut line = String::new();
            writeln!(to, "insert into acknowledged values({n}) returning n;").expect("it reads");
            from.read_line(&mut line).expect("it answers");
            assert_eq!(line.trim_end(), n.to_string());
            self.acknowledged.store(n, Ordering::SeqCst);
        }
    }

    fn acknowledged(&self) -> u32 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    fn wait_for(&self, more: u32, sites: [&Told; 2]) {
        let wanted = self.acknowledged() + more;
        let deadline = Instant::now() + LIMIT;
        while self.acknowledged() < wanted {
            let said = || sites.map(Told::said).concat();
            assert!(Instant::now() < deadline, "no commit comes: {}", said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Its client ends where the test fails, which waits for it.
struct Ends<'a>(&'a Commits);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            steadfast_sys::child::kill(self.0.child.id().cast_signed(), libc::SIGKILL);
        }
    }
}

/// For a database to be compared and brought, on a machine that has much else to do.
const JOINS: Duration = Duration::from_secs(180);

/// How the site that was joined comes to lead no more.
const LEAVES: [&str; 2] = ["killed", "switched"];

/// A site joins it while a client commits. Then that one leads alone, or the one that led joins it in its turn, and leads again.
#[test]
fn a_site_joins_postgresql_and_leads_with_every_row_that_was_acknowledged() {
    // The files belong to another user. A database of this size is joined within the minute only where processors are free.
    if !is_root() || std::env::var_os("STEADFAST_ALL").is_none() {
        return;
    }
    let database = Database::new("postgres-joined");
    for how in LEAVES {
        is_joined(how, &database);
    }
    fs::remove_dir_all(&database.dir).expect("clean");
}

fn is_joined(how: &str, database: &Database) {
    let port = free_port();
    let witness = Witness::new(&format!("postgres-joined-{how}"));
    let cables = Cables::new();
    let [a, b, _] = cables.nets();
    let sites = [a, b].map(|net| Site {
        net: Some(net),
        ..database.site(port)
    });
    let said = witness.flags(3000);
    let [first, second, _] = Cables::ADDRESSES;
    let addresses = [first, second].map(|host| format!("{host}:{}", free_port()));
    let mut one = left_alone_at(&sites, &addresses, &said, &witness.0);
    let deadline = Instant::now() + LIMIT;
    while !database.is_ready(a, port) {
        assert!(Instant::now() < deadline, "it is not ready: {}", one.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    let (commits, answers) = Commits::new(database, a, port);
    let mut other = std::thread::scope(|scope| {
        scope.spawn(|| commits.run(answers));
        let _ends = Ends(&commits);
        let [door, back] = &addresses;
        let to = flags(&said, &["--peer", door, "--listen", back]);
        let other = Told::start(&sites[1], "join", &to, &witness.0, "c");
        one.wait_so_long("the other site is back", 1, JOINS);
        other.wait_for("this site has joined");
        // Its clients on the same host come by a socket that has a name.
        let socket = format!("/proc/{}/root/mnt/data/.s.PGSQL.{port}", other.child.id());
        let about = fs::metadata(socket).expect("a socket");
        assert_eq!((about.mode() & 0o777, about.uid()), (0o777, id_of("-u")));
        commits.wait_for(20, [&one, &other]);
        for (struck, disk) in [(&one.child, 'A'), (&other.child, 'B')] {
            database.strike(struck, 100);
            assert_eq!(
                database.sum(a, port),
                Ok(database.sum.clone()),
                "{}",
                one.said()
            );
            one.wait_for(&format!("disk of {disk}, {} page 100,", database.struck()));
        }
        commits.rests.store(true, Ordering::SeqCst);
        other
    });
    let rows = commits.acknowledged();
    let (leads, net) = if how == "killed" {
        one.kill();
        other.wait_for("this site goes on alone");
        (other, b)
    } else {
        assert_eq!(order("switch", &one.child).0, Some(0), "{}", one.said());
        other.wait_so_long("the other site is back", 1, JOINS);
        one.wait_for("this site has joined");
        other.kill();
        one.wait_for("this site goes on alone");
        (one, a)
    };
    let deadline = Instant::now() + LIMIT;
    while !database.is_ready(net, port) {
        assert!(
            Instant::now() < deadline,
            "it does not serve on: {}",
            leads.said()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = "-AtXc select~count(*),count(distinct~n),max(n)~from~acknowledged";
    let client = client(port);
    let load = format!("{client} -n -c 2 -t 10 postgres");
    let check = format!("{client} postgres");
    let found = database
        .ask(net, "psql", &format!("{client} {asked} postgres"))
        .and_then(|found| database.sum(net, port).map(|sum| (found, sum)))
        .and_then(|found| database.ask(net, "pgbench", &load).map(|_| found))
        .and_then(|found| database.ask(net, "pg_amcheck", &check).map(|_| found));
    let right = (format!("{rows}|{rows}|{rows}"), database.sum.clone());
    assert_eq!(found, Ok(right), "{how}: {}", leads.said());
    steadfast_sys::child::kill(leads.child.id().cast_signed(), libc::SIGTERM);
    let (status, told) = leads.end();
    assert_eq!(status, Some(0), "{told}");
}

fn id_of(which: &str) -> u32 {
    let output = Command::new("id").args([which, "postgres"]).output();
    let said = String::from_utf8(output.expect("id").stdout).expect("a number");
    said.trim().parse().expect("the user postgres")
}
