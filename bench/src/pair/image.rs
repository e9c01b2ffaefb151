//! A program with an image of many megabytes under a pair: how long it stands still while a page is repaired, or while a host comes
//! back; what the ledger takes on disk and in memory; which share of the image changes between two comparisons of memory.
//!
//! An error of a disk leaves memory alone, so its repair needs no tracking; with snapshots memory is compared and kept as well,
//! which is the paper's tracking. An error of memory is repaired from the snapshots.
//!
//! Invariant: a page that is struck is repaired, or the bench fails.
//!
//! Not measured: the paper's disk, hosts with cores of their own.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use steadfast_digest::crc32c;
use steadfast_report::published::Row;

use super::sites::{Flags, Sites, first_process, free_port, middle};
use crate::results::digits;

const PAGE: u64 = 4096;
const DATA: &str = "/mnt/data/file";
/// Of the file that is read while pages are struck: each is read again soon.
const PAGES: u64 = 256;
/// Struck in each run of the program.
const STRIKES: usize = 10;
/// One gigabit a second.
const GIGABIT: u64 = 125_000_000;
/// A pair compares memory twenty times a second at most (docs/concepts/pair.md).
const EPOCH: Duration = Duration::from_millis(50);

/// Builds the program, and makes the file that it reads.
pub(super) fn prepare(place: &Path, name: &str, pages: u64) -> Result<(PathBuf, PathBuf)> {
    let (program, seed) = (place.join("pages"), place.join(name));
    fs::create_dir_all(&seed)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/bench/pair/pages.c");
    let built = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(source)
        .status()?;
    ensure!(built.success(), "cc: {built}");
    let mut file = std::io::BufWriter::new(File::create(seed.join("file"))?);
    for page in 0..pages {
        file.write_all(&page.to_le_bytes())?;
        file.write_all(&[7; 4088])?;
    }
    file.flush()?;
    Ok((program, seed))
}

pub(super) fn words(program: &Path, memory: u64, pages: u64) -> Vec<String> {
    let program = program.display().to_string();
    vec![program, DATA.into(), memory.to_string(), pages.to_string()]
}

/// The milliseconds at the end of a line.
fn pause(line: &str) -> Result<f64> {
    let number = line
        .strip_suffix(" ms")
        .and_then(|line| line.rsplit(' ').next());
    let number = number.with_context(|| format!("no milliseconds: {line}"))?;
    Ok(number.parse()?)
}

struct Bench<'a> {
    pair: &'a Path,
    place: &'a Path,
    program: PathBuf,
    seed: PathBuf,
    megabytes: u64,
}

impl Bench<'_> {
    fn start(&self, flags: &Flags) -> Result<Sites> {
        let own = words(&self.program, self.megabytes, 0);
        let mut sites = Sites::pair(self.pair, &self.seed, &own, self.place, flags)?;
        sites.wait_for("ready", 1)?;
        Ok(sites)
    }

    /// Pages of the disk of the second host and the first in turns are struck, and read: how long each repair took.
    fn page(&self, flags: &Flags) -> Result<Vec<f64>> {
        let mut sites = self.start(flags)?;
        for strike in 0..STRIKES {
            let path = sites.file((strike + 1) % 2, DATA);
            let file = File::options().read(true).write(true).open(path)?;
            let page = PAGES / 2 + 7 * strike as u64;
            let at = page * PAGE + 2000;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at)?;
            file.write_all_at(&[byte[0] ^ 2], at)?;
            sites.wait_for("disk of ", strike + 1)?;
            file.read_exact_at(&mut byte, at)?;
            ensure!(
                byte == [7],
                "page {page} was not repaired: {}",
                sites.said()
            );
        }
        let lines = sites.wait_for("disk of ", STRIKES)?;
        lines.iter().map(|line| pause(line)).collect()
    }

    /// A word of the stack of the second host's program flips.
    fn memory(&self, flags: &Flags, event: usize) -> Result<f64> {
        let fault = format!("replica=1 event={event} mem=[rsp-20000] bit=3");
        let flags = Flags {
            secondary: vec!["--flip".into(), fault],
            ..flags.clone()
        };
        let mut sites = self.start(&flags)?;
        let lines = sites.wait_for("processor or memory of B", 1)?;
        pause(&lines[0])
    }

    /// The second host is lost, and another one joins.
    fn comes_back(&self, flags: &Flags) -> Result<f64> {
        let witness = self.place.join("witness");
        let _ = fs::remove_dir_all(&witness);
        fs::create_dir_all(&witness)?;
        let door = format!("127.0.0.1:{}", free_port()?);
        let mut flags = flags.clone();
        flags.both.extend([
            "--witness".into(),
            format!("dir:{}", witness.display()),
            "--lost-after".into(),
            "2000".into(),
        ]);
        flags.primary = vec!["--listen".into(), door.clone()];
        let mut sites = self.start(&flags)?;
        sites.lose_second()?;
        sites.wait_for("this site goes on alone", 1)?;
        let own = words(&self.program, self.megabytes, 0);
        sites.join(self.pair, &self.seed, &own, self.place, (&door, &flags))?;
        let lines = sites.wait_for("the other site is back", 1)?;
        pause(&lines[0])
    }
}

/// What the ledger of a file of so many pages takes on disk, and all that the command of the first host takes in memory.
fn ledger(pair: &Path, place: &Path, pages: u64) -> Result<(u64, u64)> {
    let (program, seed) = prepare(place, &format!("ledger-{pages}"), pages)?;
    let own = words(&program, 1, 0);
    let mut sites = Sites::pair(pair, &seed, &own, place, &Flags::default())?;
    sites.wait_for("ready", 1)?;
    let disk = fs::metadata(sites.file(0, "/mnt/ledger/ledger"))?.len();
    let command = first_process(&sites.hosts[0]).context("the first host has no process")?;
    // What is shared is the log, whose size does not depend on the ledger.
    let status = fs::read_to_string(format!("/proc/{command}/status"))?;
    let anonymous = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    drop(sites);
    fs::remove_dir_all(seed)?;
    Ok((disk, 1024 * anonymous.context("RssAnon")?))
}

type Image = HashMap<u64, u32>;

/// A sum of each page of private, writable memory that holds anything.
fn image(child: &Child) -> Option<Image> {
    let own = PathBuf::from(format!("/proc/{}", child.id()));
    let maps = fs::read_to_string(own.join("maps")).ok()?;
    let memory = File::open(own.join("mem")).ok()?;
    let mut pages = HashMap::new();
    let mut page = vec![0; 4096];
    let zero = page.clone();
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let (from, to) = (
            u64::from_str_radix(from, 16).ok()?,
            u64::from_str_radix(to, 16).ok()?,
        );
        for at in (from..to).step_by(4096) {
            if memory.read_exact_at(&mut page, at).is_ok() && page != zero {
                pages.insert(at, crc32c(&page));
            }
        }
    }
    Some(pages)
}

fn signal(child: &Child, name: &str) -> Result<()> {
    Command::new("kill")
        .args([name, &child.id().to_string()])
        .stderr(Stdio::null())
        .status()?;
    Ok(())
}

/// Percent of a program's pages that change within each epoch, while it runs bare.
fn dirty(command: &mut Command, input: &str) -> Result<Vec<f64>> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let mut to = child.stdin.take().context("piped")?;
    let text = input.to_owned();
    let feeder = std::thread::spawn(move || to.write_all(text.as_bytes()));
    let mut shares = Vec::new();
    let mut before: Option<Image> = None;
    while child.try_wait()?.is_none() {
        std::thread::sleep(EPOCH);
        signal(&child, "-STOP")?;
        let now = image(&child);
        signal(&child, "-CONT")?;
        let Some(now) = now.filter(|now| !now.is_empty()) else {
            break;
        };
        if let Some(before) = before {
            let changed = now
                .iter()
                .filter(|(at, sum)| before.get(at) != Some(sum))
                .count();
            shares.push(100.0 * changed as f64 / now.len() as f64);
        }
        before = Some(now);
    }
    let ended = child.wait()?;
    let _ = feeder.join();
    ensure!(ended.success(), "{command:?}: {ended}");
    ensure!(!shares.is_empty(), "{command:?} ended within an epoch");
    Ok(shares)
}

/// Rows of a program with so many megabytes of memory.
///
/// # Errors
/// When a program is missing, fails, or a page that was struck is not repaired.
pub fn measure(pair: &Path, rounds: usize, megabytes: u64, place: &Path) -> Result<Vec<Row>> {
    let (program, seed) = prepare(place, "image", PAGES)?;
    let bench = Bench {
        pair,
        place,
        program,
        seed,
        megabytes,
    };
    let both = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let off = Flags {
        both: both(&["--snapshots", "off"]),
        ..Flags::default()
    };
    let on = Flags::default();
    let wire = Flags {
        rate: Some(GIGABIT),
        ..Flags::default()
    };
    let mut rows = Vec::new();
    let mut keep = |key: &str, what: String, unit: &str, values: &[f64]| {
        let (value, low, high) = middle(values);
        rows.push(Row::new(key, what, digits(value), unit).within(
            digits(low),
            digits(high),
            values.len() as u64,
        ));
    };
    let image = format!("a program of {megabytes} MB stands still");
    let pages: [(&str, &str, &Flags); 3] = [
        ("repair.plain", "no snapshots", &off),
        ("repair.page", "snapshots", &on),
        ("repair.wire", "snapshots, link of 1 Gb/s", &wire),
    ];
    for (key, how, flags) in pages {
        let values = bench.page(flags)?;
        let what = format!("{image} while a page of a disk is repaired: {how}");
        keep(key, what, "ms", &values);
    }
    let rounds = rounds.max(1);
    let memory: Result<Vec<f64>> = (0..rounds)
        .map(|round| bench.memory(&on, 2000 + 100 * round))
        .collect();
    let what = format!("{image} while a page of memory is repaired");
    keep("repair.memory", what, "ms", &memory?);
    for (key, how, flags) in [("back", "", &on), ("back.wire", ", link of 1 Gb/s", &wire)] {
        let values: Result<Vec<f64>> = (0..rounds).map(|_| bench.comes_back(flags)).collect();
        let what = format!("{image} while its other host comes back{how}");
        keep(key, what, "ms", &values?);
    }
    let (few, many) = (256, 256 * megabytes.max(2));
    let (_, little) = ledger(pair, place, few)?;
    let (disk, much) = ledger(pair, place, many)?;
    let percent = |bytes: u64, of: u64| 100.0 * bytes as f64 / (of * PAGE) as f64;
    let what = "the ledger on its disk, of the files";
    keep("ledger.disk", what.into(), "%", &[percent(disk, many)]);
    let what = "the ledger in the command's memory, of the files";
    let memory = percent(much.saturating_sub(little), many - few);
    keep("ledger.memory", what.into(), "%", &[memory]);
    let work = place.join("postmark");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let shares = dirty(
        Command::new("postmark").current_dir(&work),
        &super::load::postmark_script(20_000),
    )?;
    let what = "pages of memory that Postmark changes within 50 ms, of those that it has";
    keep("dirty.postmark", what.into(), "%", &shares);
    let statements = "INSERT INTO t(b) VALUES(hex(zeroblob(200)));\n".repeat(20_000);
    let script = format!("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);\n{statements}");
    let mut sqlite = Command::new("sqlite3");
    sqlite.args(["-batch", "x.db"]).current_dir(&work);
    let what = "the same of sqlite3, which commits";
    keep(
        "dirty.sqlite3",
        what.into(),
        "%",
        &dirty(&mut sqlite, &script)?,
    );
    fs::remove_dir_all(&work)?;
    Ok(rows)
}

/// A program that reads so many pages, and writes some, while nothing is wrong: whoever says anything has raised an alarm.
///
/// # Errors
/// When the program fails, or does not read as many.
pub fn reads(pair: &Path, pages: u64, place: &Path) -> Result<Vec<Row>> {
    let (program, seed) = prepare(place, "reads", 2048)?;
    let own = words(&program, 4, pages);
    let sites = Sites::pair(pair, &seed, &own, place, &Flags::default())?;
    let said = sites.output()?;
    let read = said
        .lines()
        .find_map(|line| line.strip_suffix(" pages read")?.parse::<u64>().ok())
        .with_context(|| format!("the program says {said}"))?;
    ensure!(read >= pages, "{read} pages were read");
    let told = said + &fs::read_to_string(place.join("said.b"))?;
    let alarms = told
        .lines()
        .filter(|line| line.starts_with("steadfast pair:"))
        .count();
    Ok(vec![Row::share(
        "alarms",
        "false alarms of a program that reads pages and writes some",
        alarms as u64,
        read,
    )])
}
