//! Somebody else's tests as a judge of `steadfast run`: those that Python comes with, as Debian packages them
//! (libpython3.11-testsuite), module by module, bare and then as replicas. Each test has to end as it does bare.
//!
//! Threads and child processes are protected with it. A module that does what is refused ends there; it is counted apart, and
//! must have been refused by name.
//!
//! Not covered: modules that need a network, a display, or minutes; tests that end differently from one bare
//! run to the next are judged all the same, and have to be looked at.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use steadfast_report::published::Row;

/// Seconds each for the most part; the last line has those of threads and processes.
const MODULES: &str = "array audioop base64 bigmem binascii binop bisect bool bufio builtin bytes calendar cmath collections colorsys complex \
    contextlib copy deque descr dict difflib dis enumerate eof errno exceptions fcntl file fileio float format fractions fstring \
    functools generators genericpath getopt gettext glob grammar gzip hash hashlib heapq html hmac int io iter itertools json list long lzma \
    mailbox math memoryio memoryview mimetypes minidom mmap netrc numeric_tower operator ordered_dict os pathlib pickle plistlib posix \
    posixpath pow pprint property pty pwd random range re resource richcmp set shelve shutil signal slice sort stat statistics \
    strftime string strptime struct strtod sys tarfile tempfile textwrap time timeit tuple types unicode unicodedata \
    univnewlines urlparse uu wave weakref xml_etree zipfile zlib zoneinfo select poll epoll locale largefile sched \
    fork1 queue subprocess thread threading";
/// Refused, as `steadfast run` says it.
const REFUSED: i32 = 121;
const LIMIT: Duration = Duration::from_secs(600);
const DRIVER: &str = include_str!("../../suites/python.py");

type Outcomes = BTreeMap<String, String>;

/// What came of all modules.
#[derive(Debug, Default, Serialize)]
pub struct Sum {
    pub replicas: u8,
    pub modules: u64,
    pub tests: u64,
    pub refused: u64,
    pub different: u64,
}

pub fn render(sum: &Sum) -> String {
    let Sum {
        replicas,
        modules,
        tests,
        refused,
        different,
    } = sum;
    format!(
        "{tests} tests of {modules} modules with {replicas} replicas: {different} end differently; {refused} modules refused\n"
    )
}

pub fn rows(sum: &Sum) -> Vec<Row> {
    let what = format!(
        "tests of Python 3.11, {} modules, that end differently with {} replicas; {} more modules were refused by name",
        sum.modules, sum.replicas, sum.refused
    );
    vec![Row::share("python", what, sum.different, sum.tests)]
}

/// Runs them and prints a line for each.
pub fn judge(out: &Path, steadfast: &Path, replicas: u8, only: &[String]) -> anyhow::Result<Sum> {
    let place = out.join("python");
    fs::create_dir_all(&place)?;
    let place = place.canonicalize()?;
    let steadfast = steadfast
        .canonicalize()
        .with_context(|| format!("{} is needed; fix: make build", steadfast.display()))?;
    fs::write(place.join("python.py"), DRIVER)?;
    let known: Vec<&str> = MODULES.split_whitespace().collect();
    for name in only {
        ensure!(
            known.contains(&name.as_str()),
            "a module is one of these, found {name:?}: {MODULES}"
        );
    }
    let wanted = known
        .iter()
        .filter(|name| only.is_empty() || only.iter().any(|one| one == *name));
    let mut sum = Sum {
        replicas,
        ..Sum::default()
    };
    let mut stdout = std::io::stdout();
    for name in wanted {
        let (status, bare) = run(&place, name, None)?;
        if bare.is_empty() {
            writeln!(
                stdout,
                "{name:16} no tests bare ({status}): libpython3.11-testsuite is needed, or this Python has no such module"
            )?;
            continue;
        }
        let (status, here) = run(&place, name, Some((&steadfast, replicas)))?;
        if status.code() == Some(REFUSED) {
            sum.refused += 1;
            writeln!(stdout, "{name:16} refused: {}", reason(&place)?)?;
            continue;
        }
        sum.modules += 1;
        sum.tests += bare.len() as u64;
        let other: Vec<&String> = bare
            .iter()
            .filter(|(test, end)| here.get(*test) != Some(end))
            .map(|(test, _)| test)
            .collect();
        sum.different += other.len() as u64;
        writeln!(
            stdout,
            "{name:16} {} tests, {} end differently",
            bare.len(),
            other.len()
        )?;
        for test in other {
            writeln!(
                stdout,
                "  {test}: {} bare, {} protected",
                bare[test],
                here.get(test).map_or("nothing", |end| end)
            )?;
        }
    }
    ensure!(
        sum.modules > 0,
        "no module was judged: libpython3.11-testsuite is needed; fix: scripts/setup campaign"
    );
    Ok(sum)
}

/// One module in a directory of its own, which goes with it.
fn run(
    place: &Path,
    name: &str,
    protected: Option<(&Path, u8)>,
) -> anyhow::Result<(ExitStatus, Outcomes)> {
    let work = place.join("work");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    let outcomes = place.join("outcomes");
    let _ = fs::remove_file(&outcomes);
    let mut command = match protected {
        None => Command::new("/usr/bin/python3"),
        Some((steadfast, replicas)) => {
            let mut command = Command::new(steadfast);
            command.args(["run", "-n", &replicas.to_string(), "--", "/usr/bin/python3"]);
            command
        }
    };
    let said = fs::File::create(place.join("said"))?;
    let mut child = command
        .arg("-B")
        .arg(place.join("python.py"))
        .arg(&outcomes)
        .arg(format!("test_{name}"))
        .current_dir(&work)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("HOME", &work)
        .env("TMPDIR", &work)
        .env("PYTHONHASHSEED", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .context("cannot start python3; fix: scripts/setup campaign")?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            bail!("test_{name} takes longer than {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = fs::read_to_string(&outcomes).unwrap_or_default();
    let pair = |line: &str| {
        line.split_once('\t')
            .map(|(test, end)| (test.to_owned(), end.to_owned()))
    };
    Ok((status, text.lines().filter_map(pair).collect()))
}

/// The first line of what the command said.
fn reason(place: &Path) -> anyhow::Result<String> {
    let said = fs::read(place.join("said"))?;
    let said = String::from_utf8_lossy(&said);
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("steadfast: "));
    Ok(line.context("a run was refused without a word")?.to_owned())
}
