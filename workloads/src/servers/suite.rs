//! The server's own test suite, run against a build.
//!
//! memcached's is in Perl (`t/*.t`) and drives `memcached-debug`, in which assertions are on.
//! Debian leaves out `whitespace.t`, which looks at the source's layout; so does this.
//!
//! Against a server that runs, whatever it is ([`run_at`]), nothing has to be built: an unpacked source is enough.
//!
//! "Single-threaded" means that a wrapper around `memcached-debug` adds `-t 1` in front of the
//! test's own arguments, so a test that asks for a number of threads still gets it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::source::Sources;
use super::{Built, find};

/// Not run, as in Debian's build of the package.
const LEFT_OUT: [&str; 1] = ["whitespace.t"];

/// Those whose requests any server of memcached's text and meta commands answers as memcached does: they ask for no other flags, no clock
/// that is moved, no number of slabs, threads or connections, and nothing of its source.
pub const OF_ANY_SERVER: [&str; 20] = [
    "bogus-commands.t",
    "cas.t",
    "evictions.t",
    "flags.t",
    "getandtouch.t",
    "getset.t",
    "incrdecr.t",
    "issue_108.t",
    "issue_14.t",
    "issue_152.t",
    "issue_192.t",
    "issue_3.t",
    "issue_41.t",
    "issue_68.t",
    "issue_70.t",
    "malicious-commands.t",
    "multiversioning.t",
    "noreply.t",
    "quit.t",
    "touch.t",
];

/// How one test file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    Failed,
    /// It was ended after its time limit.
    TimedOut,
}

/// One test file's result.
#[derive(Clone, Debug)]
pub struct TestRun {
    pub name: String,
    pub end: End,
    pub seconds: f64,
    /// The file its output went to.
    pub log: PathBuf,
}

/// Runs the test files whose name is in `only` (all if empty), one after the other.
///
/// # Errors
/// When the build has no suite, or a test cannot be started.
pub fn run(
    built: &Built,
    single_threaded: bool,
    only: &[String],
    limit: Duration,
    say: &mut dyn FnMut(&TestRun),
) -> Result<Vec<TestRun>> {
    ensure!(
        built.server == "memcached",
        "{} has no test suite in its source package\n  see:   workloads server replay {0}",
        built.server
    );
    set_threads(built, single_threaded)?;
    all(&built.tree, only, None, limit, say)
}

/// The same against the server that runs at this address, whatever it is; without names, those of [`OF_ANY_SERVER`]. `tree` is memcached's
/// source.
///
/// # Errors
/// When a test cannot be started, or nobody answers there.
pub fn run_at(
    at: SocketAddr,
    tree: &Path,
    only: &[String],
    limit: Duration,
    say: &mut dyn FnMut(&TestRun),
) -> Result<Vec<TestRun>> {
    // The tests ask it what it was built with, and are content with nothing.
    let program = tree.join("memcached-debug");
    if !program.exists() {
        fs::write(&program, "#!/bin/sh\n")?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    let any = OF_ANY_SERVER.map(str::to_owned);
    let only = if only.is_empty() { &any[..] } else { only };
    all(tree, only, Some(at), limit, say)
}

/// Unpacks memcached's source, downloaded if it is not there yet, as `tree`, which must not exist.
///
/// # Errors
/// When it cannot be had.
pub fn unpack(sources: &Sources, tree: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    let server = find("memcached").context("memcached is no server of these")?;
    sources.unpack(&sources.fetch(server, say)?, tree)
}

fn all(
    tree: &Path,
    only: &[String],
    at: Option<SocketAddr>,
    limit: Duration,
    say: &mut dyn FnMut(&TestRun),
) -> Result<Vec<TestRun>> {
    let mut results = Vec::new();
    for name in files(tree, only)? {
        let result = one(tree, &name, at, limit)?;
        say(&result);
        results.push(result);
    }
    Ok(results)
}

fn files(tree: &Path, only: &[String]) -> Result<Vec<String>> {
    let dir = tree.join("t");
    let mut names: Vec<String> = fs::read_dir(&dir)
        .with_context(|| format!("no tests in {}", dir.display()))?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| name.ends_with(".t") && !LEFT_OUT.contains(&name.as_str()))
        .filter(|name| {
            only.is_empty()
                || only
                    .iter()
                    .any(|wanted| name.trim_end_matches(".t") == wanted.trim_end_matches(".t"))
        })
        .collect();
    names.sort();
    ensure!(
        !names.is_empty(),
        "no test of that name in {}",
        dir.display()
    );
    Ok(names)
}

/// Puts a wrapper in the place of `memcached-debug`, or the program itself back.
fn set_threads(built: &Built, single: bool) -> Result<()> {
    let program = built.tree.join("memcached-debug");
    let aside = built.tree.join("memcached-debug.real");
    if !aside.exists() {
        fs::rename(&program, &aside).context("the build has no memcached-debug")?;
    }
    let more = if single { "-t 1 " } else { "" };
    // exec keeps the process id, which the tests signal.
    fs::write(
        &program,
        format!("#!/bin/sh\nexec '{}' {more}\"$@\"\n", aside.display()),
    )?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn one(tree: &Path, name: &str, at: Option<SocketAddr>, limit: Duration) -> Result<TestRun> {
    let logs = tree.join("suite");
    fs::create_dir_all(&logs)?;
    let log = logs.join(format!("{name}.log"));
    let out = fs::File::create(&log)?;
    let begun = Instant::now();
    // A process group of its own, so that the servers a stuck test has started end with it.
    let mut prove = Command::new("prove");
    if let Some(at) = at {
        // What the file before has stored is none of this one's.
        let mut server = TcpStream::connect(at).with_context(|| format!("no server at {at}"))?;
        server.write_all(b"flush_all\r\n")?;
        let mut said = [0; 4];
        server.read_exact(&mut said)?;
        ensure!(&said == b"OK\r\n", "{at} does not flush");
        // Where memcached's tests look for a server before they start one.
        prove.env("T_MEMD_USE_DAEMON", at.to_string());
    }
    let mut test = prove
        .arg("--verbose")
        .arg(format!("t/{name}"))
        .current_dir(tree)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .process_group(0)
        .spawn()
        .context("prove could not be started\n  fix:   apt-get install perl")?;
    let end = loop {
        if let Some(status) = test.try_wait()? {
            break if status.success() {
                End::Passed
            } else {
                End::Failed
            };
        }
        if begun.elapsed() > limit {
            // The negative number means the whole group; kill(1) spares an unsafe call.
            Command::new("kill")
                .args(["-KILL", "--", &format!("-{}", test.id())])
                .status()?;
            test.wait()?;
            break End::TimedOut;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    Ok(TestRun {
        name: name.to_owned(),
        end,
        seconds: begun.elapsed().as_secs_f64(),
        log,
    })
}
