//! Loads of the paper under a pair, over two bare copies: pgbench (Fig. 6), Apache (Fig. 7), Postmark (not shown there), and
//! lighttpd.
//!
//! Not measured: httperf's rates: the client here asks as fast as it is answered.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use steadfast_report::published::Row;

use super::sites::{COLUMNS, Column, Sites, free_port, middle};
use crate::results::digits;

const PATIENCE: Duration = Duration::from_secs(60);
const REQUESTS: u32 = 1000;
/// Of each client.
const TRANSACTIONS: u32 = 200;
/// Of Postmark, which divides by a tenth of them.
const MAILS: u32 = 5000;
const FEW_MAILS: u32 = 100;

fn words(line: &str) -> Vec<String> {
    line.split_ascii_whitespace().map(str::to_owned).collect()
}

fn until(mut ready: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        ensure!(
            Instant::now() < deadline,
            "the server is not ready within {} s",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn get(port: u16) -> Option<usize> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /file HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let is_right = answer.starts_with(b"HTTP/1.") && answer[8..].starts_with(b" 200");
    is_right.then_some(answer.len())
}

/// Microseconds that a request for 20 KB takes.
fn apache(column: Column, program: &Path, place: &Path) -> Result<f64> {
    let dir = place.join("apache");
    let data = dir.join("data");
    fs::create_dir_all(&data)?;
    fs::write(data.join("file"), vec![b'x'; 20 << 10])?;
    let configured = |name: &str, port: u16| -> Result<Vec<String>> {
        let (file, modules) = (dir.join(name), "/usr/lib/apache2/modules");
        fs::write(
            &file,
            format!(
                "ServerRoot {}\nLoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so\nLoadModule authz_core_module \
                 {modules}/mod_authz_core.so\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile /mnt/pid\nDefaultRuntimeDir /mnt\n\
                 Mutex sysvsem\nErrorLog /mnt/error\nDocumentRoot /mnt/data\nEnableSendfile Off\nEnableMMAP Off\nUser www-data\n\
                 Group www-data\nStartServers 2\nServerLimit 4\nMinSpareServers 1\nMaxSpareServers 2\nMaxRequestWorkers 4\n",
                dir.display()
            ),
        )?;
        Ok(words(&format!(
            "/usr/sbin/apache2 -DFOREGROUND -f {}",
            file.display()
        )))
    };
    let ports = [free_port()?, free_port()?];
    let commands = [
        configured("one.conf", ports[0])?,
        configured("two.conf", ports[1])?,
    ];
    let mean = |took: &[f64]| took.iter().sum::<f64>() / took.len() as f64;
    asked(column, program, place, (&data, &commands, ports)).map(|took| mean(&took))
}

/// Microseconds that a request for 20 KB takes, the median of all.
fn lighttpd(column: Column, program: &Path, place: &Path) -> Result<f64> {
    let dir = place.join("lighttpd");
    let data = dir.join("data");
    fs::create_dir_all(&data)?;
    fs::write(data.join("file"), vec![b'x'; 20 << 10])?;
    let configured = |name: &str, port: u16| -> Result<Vec<String>> {
        let file = dir.join(name);
        fs::write(
            &file,
            format!(
                "server.document-root = \"/mnt/data\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\nserver.modules = ()\n"
            ),
        )?;
        Ok(words(&format!(
            "/usr/sbin/lighttpd -D -m /usr/lib/lighttpd -f {}",
            file.display()
        )))
    };
    let ports = [free_port()?, free_port()?];
    let commands = [
        configured("one.conf", ports[0])?,
        configured("two.conf", ports[1])?,
    ];
    let mut took = asked(column, program, place, (&data, &commands, ports))?;
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}

/// Microseconds of each request, of the slower copy where there are two.
fn asked(
    column: Column,
    program: &Path,
    place: &Path,
    (data, commands, ports): (&Path, &[Vec<String>; 2], [u16; 2]),
) -> Result<Vec<f64>> {
    let _sites = Sites::start(column, program, data, [&commands[0], &commands[1]], place)?;
    let asked = if column == Column::Two {
        &ports[..]
    } else {
        &ports[..1]
    };
    for &port in asked {
        until(|| get(port).is_some())?;
    }
    let one = |port: u16| -> Option<f64> {
        let began = Instant::now();
        get(port)
            .is_some_and(|bytes| bytes > 20 << 10)
            .then(|| 1e6 * began.elapsed().as_secs_f64())
    };
    let all: Vec<Option<Vec<f64>>> = std::thread::scope(|scope| {
        let clients: Vec<_> = asked
            .iter()
            .map(|&port| scope.spawn(move || (0..REQUESTS).map(|_| one(port)).collect()))
            .collect();
        let all = clients
            .into_iter()
            .map(|client| client.join().ok().flatten());
        all.collect()
    });
    let all: Option<Vec<Vec<f64>>> = all.into_iter().collect();
    let slower = all.and_then(|all| {
        all.into_iter()
            .max_by(|a, b| f64::total_cmp(&a.iter().sum(), &b.iter().sum()))
    });
    slower.context("an answer of the server is not whole")
}

fn as_postgres() -> Command {
    let mut command = Command::new("setpriv");
    command
        .args([
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
            "--clear-groups",
        ])
        .current_dir("/");
    command
}

fn bin() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .context("PostgreSQL\n  fix:   apt install postgresql")?;
    let newest = versions.flatten().map(|one| one.path().join("bin")).max();
    newest.context("PostgreSQL\n  fix:   apt install postgresql")
}

fn done(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A directory with a database whose tables are pgbench's.
fn database(place: &Path) -> Result<PathBuf> {
    let (dir, bin, port) = (place.join("postgres"), bin()?, free_port()?);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
    let at = dir.join("pg");
    done(
        as_postgres()
            .arg(bin.join("initdb"))
            .args([
                "-A",
                "trust",
                "-U",
                "postgres",
                "--no-sync",
                "--wal-segsize=1",
                "-D",
            ])
            .arg(&at),
    )?;
    let options = format!("-p {port} -k /tmp -c listen_addresses=127.0.0.1");
    let control = |word: &str| {
        done(
            as_postgres()
                .arg(bin.join("pg_ctl"))
                .args(["-s", "-w", "-l", "/dev/null", "-o", &options, "-D"])
                .arg(&at)
                .arg(word),
        )
    };
    control("start")?;
    let made = done(Command::new(bin.join("pgbench")).args([
        "-h",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-U",
        "postgres",
        "-i",
        "-q",
        "postgres",
    ]));
    control("stop")?;
    made.map(|_| dir)
}

/// Milliseconds that a transaction of a client takes, with so many clients.
fn pgbench(column: Column, clients: u32, program: &Path, seed: &Path, place: &Path) -> Result<f64> {
    let bin = bin()?;
    let ports = [free_port()?, free_port()?];
    let command = |port: u16| {
        words(&format!(
            "/usr/bin/setpriv --reuid postgres --regid postgres --clear-groups {} -D /mnt/data/pg -p {port} -k /mnt/data -c \
             listen_addresses=127.0.0.1",
            bin.join("postgres").display()
        ))
    };
    let commands = ports.map(command);
    let _sites = Sites::start(column, program, seed, [&commands[0], &commands[1]], place)?;
    let asked = if column == Column::Two {
        &ports[..]
    } else {
        &ports[..1]
    };
    for port in asked {
        until(|| {
            let mut ready = Command::new(bin.join("pg_isready"));
            ready
                .args(["-h", "127.0.0.1", "-p", &port.to_string()])
                .stdout(Stdio::null());
            ready.status().is_ok_and(|status| status.success())
        })?;
    }
    let loads: Vec<_> = asked
        .iter()
        .map(|port| {
            Command::new(bin.join("pgbench"))
                .args([
                    "-h",
                    "127.0.0.1",
                    "-U",
                    "postgres",
                    "-n",
                    "-p",
                    &port.to_string(),
                    "-c",
                    &clients.to_string(),
                ])
                .args(["-t", &TRANSACTIONS.to_string(), "postgres"])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
        })
        .collect::<std::io::Result<_>>()?;
    let mut slowest = 0.0_f64;
    for load in loads {
        let output = load.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("latency average = "));
        let Some(ms) = line.and_then(|line| line.split(' ').next()?.parse().ok()) else {
            bail!("pgbench says {said}");
        };
        slowest = slowest.max(ms);
    }
    Ok(slowest)
}

/// Postmark 1.53, as Debian has it: small files are created, read, appended to and removed.
pub(super) fn postmark_script(transactions: u32) -> String {
    format!(
        "set number 500\nset size 500 10000\nset seed 42\nset transactions {transactions}\nset report terse\nrun\nquit\n"
    )
}

fn postmark_seconds(
    column: Column,
    transactions: u32,
    program: &Path,
    place: &Path,
) -> Result<f64> {
    let seed = place.join("postmark-data");
    let _ = fs::remove_dir_all(&seed);
    fs::create_dir_all(&seed)?;
    let file = place.join("postmark.conf");
    fs::write(&file, postmark_script(transactions))?;
    let own = words(&format!("/usr/bin/postmark {}", file.display()));
    let began = Instant::now();
    let sites = Sites::start(column, program, &seed, [&own, &own], place)?;
    sites.output()?;
    Ok(began.elapsed().as_secs_f64())
}

/// Microseconds of a transaction of Postmark, without its start and end: its own clock counts seconds.
fn postmark_one(column: Column, program: &Path, place: &Path) -> Result<f64> {
    let few = postmark_seconds(column, FEW_MAILS, program, place)?;
    let many = postmark_seconds(column, FEW_MAILS + MAILS, program, place)?;
    Ok(1e6 * (many - few) / f64::from(MAILS))
}

type Load<'a> = (&'a str, &'a str, &'a str, &'a dyn Fn(Column) -> Result<f64>);

/// Bare, two bare copies and a pair in turns, and what the pair adds.
fn in_turns(loads: &[Load<'_>], rounds: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (key, what, unit, run) in loads {
        let mut taken = Vec::new();
        for round in 0..rounds.max(1) {
            let mut times = [0.0; COLUMNS.len()];
            for turn in 0..COLUMNS.len() {
                let at = (round + turn) % COLUMNS.len();
                times[at] = run(COLUMNS[at])?;
            }
            taken.push(times);
        }
        let mut keep = |name: &str, more: &str, unit: &str, of: &dyn Fn(&[f64; 3]) -> f64| {
            let (value, low, high) = middle(&taken.iter().map(of).collect::<Vec<_>>());
            let row = Row::new(
                format!("{key}.{name}"),
                format!("{what}, {more}"),
                digits(value),
                unit.to_owned(),
            );
            rows.push(row.within(digits(low), digits(high), taken.len() as u64));
        };
        keep("bare", "bare", unit, &|times| times[0]);
        keep("pair", "pair", unit, &|times| times[2]);
        keep(
            "over-floor",
            "added by the pair over two bare copies",
            "%",
            &|times| 100.0 * (times[2] / times[1] - 1.0),
        );
        keep(
            "added",
            "added by the pair over two bare copies",
            unit,
            &|times| times[2] - times[1],
        );
        keep("over-bare", "added by the pair over bare", "%", &|times| {
            100.0 * (times[2] / times[0] - 1.0)
        });
    }
    Ok(rows)
}

/// Rows of Postmark.
///
/// # Errors
/// When Postmark is missing, or fails.
pub fn postmark(program: &Path, rounds: usize, place: &Path) -> Result<Vec<Row>> {
    fs::create_dir_all(place)?;
    ensure!(
        Path::new("/usr/bin/postmark").exists(),
        "Postmark has to be installed\n  fix:   apt install postmark"
    );
    let one = |column| postmark_one(column, program, place);
    in_turns(
        &[("postmark", "a transaction of Postmark", "µs", &one)],
        rounds,
    )
}

/// Rows of pgbench, Apache and lighttpd; `only`: of those whose names begin so.
///
/// # Errors
/// When a program is missing, or fails.
pub fn measure(program: &Path, rounds: usize, only: &str, place: &Path) -> Result<Vec<Row>> {
    fs::create_dir_all(place)?;
    fs::set_permissions(place, fs::Permissions::from_mode(0o755))?;
    let seed = database(place)?;
    let one = |column| pgbench(column, 1, program, &seed, place);
    let four = |column| pgbench(column, 4, program, &seed, place);
    let page = |column| apache(column, program, place);
    let reply = |column| lighttpd(column, program, place);
    let all: [Load<'_>; 4] = [
        (
            "pgbench.1",
            "a transaction of pgbench, 1 client",
            "ms",
            &one,
        ),
        (
            "pgbench.4",
            "a transaction of pgbench, 4 clients",
            "ms",
            &four,
        ),
        ("apache", "20 KB from Apache, prefork", "µs", &page),
        (
            "lighttpd",
            "20 KB from lighttpd, median of 1,000 replies",
            "µs",
            &reply,
        ),
    ];
    let wanted: Vec<Load<'_>> = all
        .into_iter()
        .filter(|load| load.0.starts_with(only))
        .collect();
    ensure!(!wanted.is_empty(), "--only {only} names no load");
    in_turns(&wanted, rounds)
}
