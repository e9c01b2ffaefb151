//! `steadfast inject` with real programs: campaigns that are stopped, killed, cut in parts and gone
//! on with, outputs compared in each way, and orders that are refused before any run.
//!
//! Nothing here judges by the clock. Faulty runs are boxed, as root and as an ordinary user.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use steadfast_contract::outcome::Leaf;
use steadfast_inject::record::{Dir, Planned, Run};
use steadfast_inject::server::Trace;
use tempfile::TempDir;

mod directories;
mod orders;
mod replicas;
mod strikes;

/// A directory that the sandbox's user can reach, with some input in it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("inject-")
            .tempdir()
            .expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        let text: String = (0..400)
            .map(|i| format!("{} line {i}\n", i * 7919 % 1000))
            .collect();
        fs::write(dir.path().join("in.txt"), text).expect("input");
        steadfast_inject::doctor::control(dir.path(), false, None).expect("the control program");
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command
            .arg("inject")
            .args(words)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command.env("TMPDIR", self.0.path());
        command
    }

    fn does(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it starts")
    }

    /// Does it with status 0; what it said.
    fn well(&self, words: &[&str]) -> String {
        let out = self.does(words);
        assert_eq!(
            out.status.code(),
            Some(0),
            "{words:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn refused(&self, words: &[&str], status: i32, text: &str) {
        let out = self.does(words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(status), "{words:?}: {said}");
        assert!(said.contains(text), "{words:?}: {said}");
        let runs = self.path("inject-results/runs.jsonl");
        assert!(!runs.exists(), "{words:?} ran something");
    }

    fn runs(&self, dir: &str) -> BTreeMap<u64, Run> {
        Dir::new(self.path(dir)).runs().unwrap_or_default()
    }

    fn plan(&self, dir: &str) -> Vec<Planned> {
        Dir::new(self.path(dir)).plan().expect("a plan")
    }

    /// Lines of a results file, whole ones.
    fn lines(&self, dir: &str) -> usize {
        fs::read(self.path(dir).join("runs.jsonl"))
            .map_or(0, |bytes| bytes.iter().filter(|b| **b == b'\n').count())
    }

    /// Waits until so many runs are written, or the command is over.
    fn wait_for(&self, child: &mut Child, dir: &str, lines: usize) {
        while self.lines(dir) < lines && child.try_wait().expect("a child").is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// No directory of a run is left.
    fn clean(&self) {
        let left: Vec<_> = fs::read_dir(self.0.path())
            .expect("readable")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("steadfast-"))
            .collect();
        assert!(left.is_empty(), "{left:?} left behind");
    }
}

/// A small program without a library, so that surveying it takes no time: it prints a sum.
const TARGET: [&str; 7] = [
    "--fault",
    "wreg",
    "--seed",
    "7",
    "--",
    "./control",
    "silent",
];

fn on<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[verb, "--quiet", "--stdin", "in.txt"], more, &TARGET].concat()
}

fn of(run: &Run) -> (u64, String, Option<i32>, Option<i32>, Vec<String>) {
    (
        run.id,
        ending(run),
        run.status,
        run.signal,
        run.differ.clone(),
    )
}

/// What a loaded machine does not change: being slow is no wrong answer.
fn ending(run: &Run) -> String {
    match run.outcome {
        Leaf::Slow => Leaf::MaskedClean.to_string(),
        other => other.to_string(),
    }
}
