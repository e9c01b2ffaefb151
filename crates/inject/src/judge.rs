//! From what a run left behind to one leaf: the first rule that matches.
//!
//! Invariants
//!  1. A fault that did not fire is `not_fired`, however the run ended.
//!  2. A wrong output is never better than `sdc` unless somebody said so: a detector, the
//!     program by its status or on its standard error, or the client's own check.
//!
//! Not covered: final state beyond the files of the scratch directory, such as memory; modes, owners and times of
//! these.

mod served;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use steadfast_contract::exit::Own;
use steadfast_contract::outcome::Leaf;
use steadfast_fault::PathGlob;

use crate::record::{Comparator, Detection, Limits, Outputs};
use crate::server::{CLIENT, Talk, is_replies, replies};
use crate::target::Ran;

pub use served::is_error_reply;
pub(crate) use served::{obstacle, said_so};

/// What a run wrote, by name: `stdout` (`stdout.1` and so on, where a client has several connections), `stderr`, and files by
/// path from the scratch directory; where a link leads; directories without anything in them, with a slash behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured(pub BTreeMap<String, Vec<u8>>);

impl Captured {
    /// Reads it from a sandbox's scratch directory. Links are not followed: a faulty program may
    /// have made them.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(scratch: &Path) -> io::Result<Self> {
        let mut out = BTreeMap::new();
        for name in ["stdout", "stderr"] {
            let bytes = match fs::read(scratch.join(name)) {
                Err(error) if closed(&error) => UNREADABLE.to_vec(),
                read => read?,
            };
            out.insert(name.to_owned(), bytes);
        }
        further_replies(scratch, &mut out)?;
        walk(&scratch.join("run"), "", &mut out)?;
        Ok(Self(out))
    }

    /// Digests by name.
    #[must_use]
    pub fn digests(&self) -> Outputs {
        self.0
            .iter()
            .map(|(name, bytes)| {
                (
                    name.clone(),
                    format!("crc32c:{:08x}/{}", crc32c::crc32c(bytes), bytes.len()),
                )
            })
            .collect()
    }

    /// Writes it to a directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, to: &Path) -> io::Result<()> {
        for (name, bytes) in &self.0 {
            let place = if name == "stderr" || is_replies(name) {
                to.join(name)
            } else {
                to.join("files").join(name)
            };
            if name.ends_with('/') {
                fs::create_dir_all(place)?;
                continue;
            }
            fs::create_dir_all(place.parent().unwrap_or(to))?;
            fs::write(place, bytes)?;
        }
        Ok(())
    }

    /// Reads what [`Captured::write`] wrote.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_back(from: &Path) -> io::Result<Self> {
        let mut out = BTreeMap::new();
        for name in ["stdout", "stderr"] {
            out.insert(name.to_owned(), fs::read(from.join(name))?);
        }
        further_replies(from, &mut out)?;
        if from.join("files").exists() {
            walk(&from.join("files"), "", &mut out)?;
        }
        Ok(Self(out))
    }
}

/// Those of the built-in client's connections behind the first.
fn further_replies(dir: &Path, out: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for name in (1..).map(replies) {
        match fs::read(dir.join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            read => out.insert(name, read?),
        };
    }
    Ok(())
}

/// Stands for what a program closed to its own user: it is not what the golden run left.
const UNREADABLE: &[u8] = b"(unreadable)";

fn closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn walk(dir: &Path, under: &str, out: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if closed(&error) => {
            let name = under.strip_suffix('/').unwrap_or("(directory)");
            out.insert(name.to_owned(), UNREADABLE.to_vec());
            return Ok(());
        }
        entries => entries?,
    };
    let known = out.len();
    for entry in entries {
        let entry = entry?;
        let mut name = format!("{under}{}", entry.file_name().to_string_lossy());
        if ["stderr", CLIENT].contains(&name.as_str()) || is_replies(&name) {
            // A file of the program's own, beside the stream of that name.
            name = format!("./{name}");
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), &format!("{name}/"), out)?;
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).unwrap_or_else(|_| UNREADABLE.to_vec());
            out.insert(name, bytes);
        } else if kind.is_symlink() {
            let to = fs::read_link(entry.path());
            out.insert(name, link(to));
        } else {
            out.insert(name, format!("({kind:?})").into_bytes());
        }
    }
    if out.len() == known && !under.is_empty() {
        out.insert(under.to_owned(), Vec::new());
    }
    Ok(())
}

/// A link as output: where it leads. One that cannot be read is not one that leads nowhere.
fn link(to: io::Result<PathBuf>) -> Vec<u8> {
    to.map_or(UNREADABLE.to_vec(), |to| {
        format!("(link to {})", to.display()).into_bytes()
    })
}

/// How two outputs compare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// Names that differ, standard error last.
    pub differ: Vec<String>,
    /// Files that differ and are not looked at by anybody yet: the target's own state.
    pub latent: Vec<String>,
    /// The client's own check rejects it.
    pub rejected: bool,
    /// What there is, is a beginning of what should be.
    pub prefix: bool,
}

impl Compared {
    /// Whether a client would notice: standard error is for people.
    #[must_use]
    pub fn wrong(&self) -> bool {
        self.rejected || self.differ.iter().any(|name| name != "stderr")
    }
}

/// Compares. Files that match `state` are no output.
#[must_use]
pub fn compare(
    comparator: &Comparator,
    state: &[PathGlob],
    golden: &Captured,
    run: &Captured,
) -> Compared {
    let names: std::collections::BTreeSet<&String> = golden.0.keys().chain(run.0.keys()).collect();
    let mut out = Compared {
        prefix: true,
        ..Compared::default()
    };
    for name in names {
        let pair = (golden.0.get(name), run.0.get(name));
        let same = match pair {
            (Some(a), Some(b)) => same(comparator, a, b),
            _ => false,
        };
        let output = matches!(name.as_str(), "stderr" | CLIENT) || is_replies(name);
        if !same && !output && state.iter().any(|state| state.matches(name)) {
            out.latent.push(name.clone());
        } else if !same {
            out.differ.push(name.clone());
            if name != "stderr" {
                out.prefix &= pair
                    .0
                    .is_some_and(|g| g.starts_with(pair.1.map_or(&[], Vec::as_slice)));
            }
        }
    }
    out.differ
        .sort_by_key(|name| (name == "stderr", name.clone()));
    out
}

fn same(comparator: &Comparator, a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    match comparator {
        Comparator::Byte | Comparator::Command { .. } => false,
        Comparator::Lines => {
            let sorted = |bytes: &[u8]| {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
                lines.sort();
                lines
            };
            sorted(a) == sorted(b)
        }
        Comparator::Masked { patterns } => {
            let masked = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes).into_owned();
                patterns
                    .iter()
                    .fold(text, |text, pattern| pattern.taken_out_of(&text))
            };
            masked(a) == masked(b)
        }
        Comparator::Numeric { tolerance } => numeric(
            &String::from_utf8_lossy(a),
            &String::from_utf8_lossy(b),
            *tolerance,
        ),
    }
}

/// Text that is equal but for numbers, which are near each other.
fn numeric(a: &str, b: &str, tolerance: f64) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.split_inclusive(|c: char| c.is_whitespace() || ",;:()[]".contains(c))
            .map(str::to_owned)
            .collect()
    };
    let (a, b) = (words(a), words(b));
    let bare = |word: &str| {
        word.trim_end_matches(|c: char| c.is_whitespace() || ",;:()[]".contains(c))
            .parse::<f64>()
            .ok()
    };
    a.len() == b.len()
        && a.iter().zip(&b).all(|(a, b)| {
            a == b
                || matches!((bare(a), bare(b)), (Some(x), Some(y))
                    if (x - y).abs() <= tolerance * x.abs().max(y.abs()))
        })
}

/// What a run's event file says.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// The run was reported to its end.
    pub ended: bool,
    /// As the report says.
    pub verdict: String,
    /// Times faults fired.
    pub hits: u64,
    /// Disagreements.
    pub divergences: u64,
    /// The first one.
    pub detection: Option<Detection>,
}

/// Reads an event file (docs/events.schema.json).
#[must_use]
pub fn events(text: &str) -> Seen {
    #[derive(Deserialize)]
    struct Line {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        difference: serde_json::Value,
        latency_ns: Option<u64>,
        #[serde(default)]
        verdict: String,
        #[serde(default)]
        divergences: u64,
        #[serde(default)]
        faults: Vec<serde_json::Value>,
    }
    let mut seen = Seen::default();
    for line in text.lines() {
        let Ok(line) = serde_json::from_str::<Line>(line) else {
            continue;
        };
        match line.kind.as_str() {
            "divergence" if seen.detection.is_none() => {
                let what = match &line.difference {
                    serde_json::Value::String(word) => Some(word.clone()),
                    serde_json::Value::Object(one) => one.keys().next().cloned(),
                    _ => None,
                };
                seen.detection = Some(Detection {
                    by: "replicas".into(),
                    what,
                    latency_ns: line.latency_ns,
                });
            }
            "run_end" => {
                seen.ended = true;
                seen.verdict = line.verdict;
                seen.divergences = line.divergences;
                seen.hits = line
                    .faults
                    .iter()
                    .filter_map(|fault| fault["hits"].as_u64())
                    .sum();
            }
            _ => {}
        }
    }
    seen
}

/// How a detector of the program itself makes itself known.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Detector {
    /// By this exit status.
    pub status: Option<i32>,
    /// By this text on standard error.
    pub stderr: Option<String>,
    /// By this signal.
    pub signal: Option<i32>,
    /// By the event file of a program built with `steadfast cc` (detector.rs), which has more to say than the line that every such program
    /// writes on standard error: that one is known without a word here.
    #[serde(default)]
    pub cc: bool,
}

impl Detector {
    /// Whether it spoke, and how, by how the run ended and by standard error. The event file of [`Self::cc`] is asked before this.
    #[must_use]
    pub fn spoke(&self, ran: &Ran, captured: &Captured) -> Option<Detection> {
        if let Some(detection) = hardened(captured) {
            return Some(detection);
        }
        let detection = |what: &str| {
            Some(Detection {
                by: "program".into(),
                what: Some(what.into()),
                latency_ns: None,
            })
        };
        if self.status.is_some() && ran.status == self.status {
            return detection("status");
        }
        if self.signal.is_some() && ran.signal == self.signal {
            return detection("signal");
        }
        let stderr = captured
            .0
            .get("stderr")
            .map_or("".into(), |bytes| String::from_utf8_lossy(bytes));
        self.stderr
            .as_deref()
            .and_then(|text| stderr.contains(text).then(|| detection("stderr")).flatten())
    }
}

/// The alarm of a program that `steadfast cc` built: the line on standard error that it writes with
/// its `harden_mismatch` event (cc/runtime/fail.c), for which no environment has to be given.
fn hardened(captured: &Captured) -> Option<Detection> {
    let stderr = String::from_utf8_lossy(captured.0.get("stderr")?);
    let what = stderr.lines().find_map(|line| {
        // State at rest, met by the scrubber or by code outside handlers.
        if let Some(said) = line.strip_prefix("steadfast: outside handlers: ") {
            let ends = ["; stopped", "; repaired"];
            ends.iter().find(|end| said.ends_with(**end))?;
            return Some(said.split(" at 0x").next().unwrap_or(said).to_owned());
        }
        let (_, said) = line
            .strip_prefix("steadfast: handler ")?
            .split_once("), event ")?;
        let ends = [
            "; stopped, nothing of this event has left",
            "what it sent may have left",
            "; runs again",
        ];
        ends.iter().find(|end| said.ends_with(**end))?;
        let (_, what) = said.split_once(": ")?;
        let what = what.split(": 0x").next()?;
        Some(what.split(" at 0x").next().unwrap_or(what).to_owned())
    })?;
    Some(Detection {
        by: "cc".into(),
        what: Some(what),
        latency_ns: None,
    })
}

/// Whether `steadfast run` ended by itself in this way.
fn ended_by(status: Option<i32>, own: Own) -> bool {
    status == Some(i32::from(own.code()))
}

/// Everything a verdict rests on.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// How the run went.
    pub ran: &'a Ran,
    /// How often faults fired.
    pub hits: u64,
    /// What it wrote, beside the golden run.
    pub compared: &'a Compared,
    /// Exit status of the golden run.
    pub status: i32,
    /// The first detector that spoke.
    pub detection: Option<&'a Detection>,
    /// The event file, under `steadfast run`.
    pub seen: Option<&'a Seen>,
    /// When a run is given up, or slow.
    pub limits: &'a Limits,
    /// What differs first is a line that says that something is wrong.
    pub error_reply: bool,
}

impl Evidence<'_> {
    /// Of a run whose output is right. A wrong state is a fact, and being late may be the machine's doing.
    pub(crate) fn masked(&self) -> Leaf {
        if !self.compared.latent.is_empty() {
            Leaf::MaskedLatent
        } else if self.limits.slow_ns > 0 && self.ran.wall_ns > self.limits.slow_ns {
            Leaf::Slow
        } else {
            Leaf::MaskedClean
        }
    }

    /// What it is when whoever got something wrong knows it: it cannot pass for right, whatever a
    /// detector said later.
    pub(crate) fn told(&self, talk: Talk) -> Option<Leaf> {
        if self.compared.rejected || talk == Talk::Rejected {
            return Some(Leaf::DetectedClient);
        }
        (self.error_reply && !self.compared.prefix).then_some(Leaf::ErrorMsg)
    }
}

/// The leaf of a run with an armed fault.
#[must_use]
pub fn leaf(e: &Evidence<'_>) -> Leaf {
    if e.ran.error.is_some() {
        return Leaf::Infra;
    }
    let spoke = e.detection.is_some();
    if let Some(seen) = e.seen {
        if !seen.ended && ended_by(e.ran.status, Own::Setup) {
            return Leaf::Infra;
        }
        if !seen.ended && ended_by(e.ran.status, Own::Bug) {
            return Leaf::CrashAssert;
        }
        // What replicas are there to prevent, however the run ended: a byte has left that no run without a fault shows.
        let by_output = e.ran.served.is_none() && !e.compared.rejected;
        if by_output && (spoke || e.hits > 0) && e.compared.wrong() && !e.compared.prefix {
            return match (spoke, e.ran.status == Some(e.status)) {
                (true, true) if seen.verdict == "corrected" => Leaf::CorrectedWrong,
                (true, _) => Leaf::SdcLate,
                (false, _) => Leaf::Sdc,
            };
        }
        if seen.ended
            && (seen.verdict == "stopped" || seen.verdict == "refused")
            && (spoke || e.hits > 0)
        {
            let own = ended_by(e.ran.status, Own::Mismatch) || ended_by(e.ran.status, Own::Setup);
            let served = e.ran.served.as_ref();
            return match e.told(served.map_or(Talk::Unfinished, |served| served.talk)) {
                Some(leaf) => leaf,
                None if own && (e.compared.prefix || !e.compared.wrong()) => Leaf::DetectedStop,
                None => Leaf::SdcLate,
            };
        }
    }
    // One that writes without end is ended by the sandbox's limit of a file, which the program bare has not.
    let for_limit = matches!(e.ran.signal, Some(libc::SIGXCPU | libc::SIGXFSZ));
    let killed_for_time = e.ran.timed_out || for_limit;
    // Hits are told at the end of the report: where that is lost with the launcher, a run that is not right was struck.
    let unknown = e.seen.is_some_and(|seen| !seen.ended)
        && (killed_for_time || e.ran.status != Some(e.status));
    if e.hits == 0 && !unknown {
        return Leaf::NotFired;
    }
    if let Some(served) = &e.ran.served {
        return served::leaf(e, served);
    }
    if killed_for_time {
        // One that waits has used what a whole run takes at most, a fifth of the limit; one that
        // spins may get less than half of a busy machine.
        let busy = for_limit || e.ran.cpu_ns >= e.ran.wall_ns / 4;
        return if busy {
            Leaf::HangLivelock
        } else {
            Leaf::HangDeadlock
        };
    }
    if spoke && e.seen.is_none() {
        return match (e.compared.wrong(), e.ran.status == Some(e.status)) {
            _ if e.compared.rejected => Leaf::DetectedClient,
            (false, true) => Leaf::Corrected,
            (true, true) => Leaf::CorrectedWrong,
            (_, false) if e.compared.prefix || !e.compared.wrong() => Leaf::DetectedStop,
            _ => Leaf::SdcLate,
        };
    }
    match e.ran.signal {
        Some(libc::SIGABRT) => return Leaf::CrashAssert,
        Some(_) => return Leaf::CrashSignal,
        None => {}
    }
    if e.ran.status != Some(e.status) {
        return Leaf::ErrorExit;
    }
    if e.compared.wrong() {
        if e.compared.rejected {
            return Leaf::DetectedClient;
        }
        if spoke {
            return Leaf::CorrectedWrong;
        }
        if e.compared.prefix {
            return Leaf::Truncated;
        }
        if e.compared.differ.iter().any(|name| name == "stderr") {
            return Leaf::ErrorMsg;
        }
        return Leaf::Sdc;
    }
    if spoke {
        return Leaf::Corrected;
    }
    e.masked()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(stdout: &str, stderr: &str) -> Captured {
        Captured(
            [("stdout", stdout), ("stderr", stderr)]
                .map(|(k, v)| (k.to_owned(), v.as_bytes().to_vec()))
                .into(),
        )
    }

    fn judge(ran: &Ran, run: &Captured, hits: u64, detector: &Detector) -> Leaf {
        let golden = captured("all is right\n", "");
        let compared = compare(&Comparator::Byte, &[], &golden, run);
        let limits = Limits {
            slow_ns: 1000,
            ..Limits::default()
        };
        let detection = detector.spoke(ran, run);
        leaf(&Evidence {
            ran,
            hits,
            compared: &compared,
            status: 0,
            detection: detection.as_ref(),
            seen: None,
            limits: &limits,
            error_reply: false,
        })
    }

    #[test]
    fn a_hardened_program_speaks_for_itself() {
        let stopped = "before\nsteadfast: handler handle (serve.c:12), event 3: the runs leave different values at 0x55d9: 0x1 and 0x2; stopped, nothing of this event has left\n";
        let found = hardened(&captured("", stopped)).expect("an alarm");
        assert_eq!(found.by, "cc");
        assert_eq!(
            found.what.as_deref(),
            Some("the runs leave different values")
        );
        let again = stopped.replace("stopped, nothing of this event has left", "runs again");
        assert!(hardened(&captured("", &again)).is_some());
        let late = stopped.replace(
            "nothing of this event has left",
            "what it sent may have left",
        );
        assert!(hardened(&captured("", &late)).is_some());
        let scrubbed = "steadfast: outside handlers: state has changed at rest: the copy was wrong, order at 0x8: 0x6b and 0x63; repaired\n";
        let found = hardened(&captured("", scrubbed)).expect("an alarm");
        assert_eq!(
            found.what.as_deref(),
            Some("state has changed at rest: the copy was wrong, order")
        );
        let other = "steadfast: handler handle, event 3: recovered, both runs of retry 1 agree\n";
        assert!(hardened(&captured("", other)).is_none());
        let ran = Ran {
            status: Some(122),
            ..Ran::default()
        };
        let none = Detector::default();
        assert_eq!(
            judge(&ran, &captured("all is", stopped), 1, &none),
            Leaf::DetectedStop
        );
        let ran = Ran {
            status: Some(0),
            ..Ran::default()
        };
        let right = captured("all is right\n", &again);
        assert_eq!(judge(&ran, &right, 1, &none), Leaf::Corrected);
    }

    /// A run of replicas, of which a fault hit once.
    fn under_replicas(ran: &Ran, stdout: &str, seen: Seen, status: i32) -> Leaf {
        let golden = captured("all is right\n", "");
        let compared = compare(&Comparator::Byte, &[], &golden, &captured(stdout, ""));
        leaf(&Evidence {
            ran,
            hits: seen.hits,
            compared: &compared,
            status,
            detection: seen.detection.as_ref(),
            seen: Some(&seen),
            limits: &Limits::default(),
            error_reply: false,
        })
    }

    #[test]
    fn wrong_bytes_of_replicas_outweigh_how_the_run_ended() {
        let crashed = Ran {
            signal: Some(libc::SIGSEGV),
            ..Ran::default()
        };
        let hit = || Seen {
            ended: true,
            hits: 1,
            ..Seen::default()
        };
        let leaf = |stdout: &str, seen: Seen| under_replicas(&crashed, stdout, seen, 0);
        assert_eq!(leaf("all is wrong\n", hit()), Leaf::Sdc);
        assert_eq!(leaf("all is", hit()), Leaf::CrashSignal);
        let late = Seen {
            detection: Some(Detection {
                by: "replicas".into(),
                what: None,
                latency_ns: None,
            }),
            ..hit()
        };
        assert_eq!(leaf("all is wrong\n", late), Leaf::SdcLate);
    }

    #[test]
    fn a_run_whose_report_is_lost_was_struck_if_it_is_not_right() {
        let lost = Seen::default;
        let crashed = Ran {
            signal: Some(libc::SIGSEGV),
            ..Ran::default()
        };
        assert_eq!(
            under_replicas(&crashed, "all is", lost(), 0),
            Leaf::CrashSignal
        );
        let right = Ran {
            status: Some(0),
            ..Ran::default()
        };
        let told = under_replicas(&right, "all is right\n", lost(), 0);
        assert_eq!(told, Leaf::NotFired);
    }

    #[test]
    fn each_rule_rings() {
        let ok = Ran {
            status: Some(0),
            wall_ns: 10,
            ..Ran::default()
        };
        let none = Detector::default();
        let right = captured("all is right\n", "");
        assert_eq!(judge(&ok, &right, 1, &none), Leaf::MaskedClean);
        assert_eq!(judge(&ok, &right, 0, &none), Leaf::NotFired);
        assert_eq!(
            judge(
                &Ran {
                    wall_ns: 2000,
                    ..ok.clone()
                },
                &right,
                1,
                &none
            ),
            Leaf::Slow
        );
        let endless = Ran {
            status: None,
            signal: Some(libc::SIGXFSZ),
            ..ok.clone()
        };
        assert_eq!(judge(&endless, &right, 1, &none), Leaf::HangLivelock);
        assert_eq!(
            judge(&ok, &captured("all is wrong\n", ""), 1, &none),
            Leaf::Sdc
        );
        assert_eq!(
            judge(&ok, &captured("all is", ""), 1, &none),
            Leaf::Truncated
        );
        assert_eq!(
            judge(&ok, &captured("all is wrong\n", "crc error"), 1, &none),
            Leaf::ErrorMsg
        );
        assert_eq!(
            judge(
                &Ran {
                    status: Some(2),
                    ..ok.clone()
                },
                &right,
                1,
                &none
            ),
            Leaf::ErrorExit
        );
        let died = |signal| Ran {
            status: None,
            signal: Some(signal),
            ..ok.clone()
        };
        assert_eq!(judge(&died(11), &right, 1, &none), Leaf::CrashSignal);
        assert_eq!(judge(&died(6), &right, 1, &none), Leaf::CrashAssert);
        let late = Ran {
            timed_out: true,
            wall_ns: 100,
            cpu_ns: 90,
            ..Ran::default()
        };
        assert_eq!(judge(&late, &right, 1, &none), Leaf::HangLivelock);
        assert_eq!(
            judge(&Ran { cpu_ns: 1, ..late }, &right, 1, &none),
            Leaf::HangDeadlock
        );
        let own = Detector {
            status: Some(99),
            ..Detector::default()
        };
        let stopped = Ran {
            status: Some(99),
            ..ok.clone()
        };
        assert_eq!(
            judge(&stopped, &captured("all", ""), 1, &own),
            Leaf::DetectedStop
        );
        assert_eq!(
            judge(&stopped, &captured("wrong", ""), 1, &own),
            Leaf::SdcLate
        );
        assert_eq!(
            judge(
                &Ran {
                    error: Some("x".into()),
                    ..ok
                },
                &right,
                1,
                &none
            ),
            Leaf::Infra
        );
    }

    #[test]
    fn a_file_that_nobody_has_read_yet_is_latent() {
        let with = |out: &str, cache: &str| {
            let mut captured = captured(out, "");
            for name in ["kept.cache", "sub/b.cache"] {
                captured.0.insert(name.into(), cache.as_bytes().to_vec());
            }
            captured
        };
        let state = ["*.cache".parse::<PathGlob>().expect("a pattern")];
        let golden = with("right\n", "old");
        let judged = |run: &Captured, wall_ns: u64| {
            let compared = compare(&Comparator::Byte, &state, &golden, run);
            let ran = Ran {
                status: Some(0),
                wall_ns,
                ..Ran::default()
            };
            let leaf = leaf(&Evidence {
                ran: &ran,
                hits: 1,
                compared: &compared,
                status: 0,
                detection: None,
                seen: None,
                limits: &Limits {
                    slow_ns: 1000,
                    ..Limits::default()
                },
                error_reply: false,
            });
            (leaf, compared.latent.len())
        };
        assert_eq!(judged(&golden, 1), (Leaf::MaskedClean, 0));
        assert_eq!(judged(&with("right\n", "new"), 1), (Leaf::MaskedLatent, 2));
        assert_eq!(
            judged(&with("right\n", "new"), 2000),
            (Leaf::MaskedLatent, 2)
        );
        assert_eq!(judged(&golden, 2000), (Leaf::Slow, 0));
        assert_eq!(judged(&with("wrong\n", "new"), 1), (Leaf::Sdc, 2));
        // One that is missing is no smaller difference.
        assert_eq!(judged(&captured("right\n", ""), 1), (Leaf::MaskedLatent, 2));
    }

    #[test]
    fn links_directories_and_files_named_as_streams_are_output() {
        let place = tempfile::tempdir().expect("a directory");
        let run = place.path().join("run");
        fs::create_dir_all(run.join("empty/inner")).expect("made");
        std::os::unix::fs::symlink("there", run.join("link")).expect("made");
        for name in ["stdout", "stderr", "run/stdout", "run/file"] {
            fs::write(place.path().join(name), name).expect("written");
        }
        let captured = Captured::read(place.path()).expect("read");
        let text = |name: &str| String::from_utf8_lossy(&captured.0[name]).into_owned();
        assert_eq!(text("stdout"), "stdout");
        assert_eq!(text("./stdout"), "run/stdout");
        assert_eq!(text("link"), "(link to there)");
        assert!(captured.0.contains_key("empty/inner/") && !captured.0.contains_key("empty/"));
        let kept = place.path().join("kept");
        captured.write(&kept).expect("kept");
        assert_eq!(Captured::read_back(&kept).expect("read"), captured);
    }

    #[test]
    fn what_its_program_closed_is_no_failure_of_the_test_bed() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().expect("a directory");
        let inside = place.path().join("run/closed/more");
        fs::create_dir_all(&inside).expect("made");
        fs::write(inside.join("file"), b"x").expect("written");
        for name in ["stdout", "stderr"] {
            fs::write(place.path().join(name), b"").expect("written");
        }
        let closed = inside.parent().expect("a parent");
        fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).expect("closed");
        let captured = Captured::read(place.path()).expect("read");
        // Root looks inside all the same.
        let name = if steadfast_sys::procfs::is_privileged() {
            "closed/more/file"
        } else {
            "closed"
        };
        assert!(captured.0.contains_key(name), "{captured:?}");
        captured.write(&place.path().join("kept")).expect("kept");
        crate::scratch::remove_tree(&place.path().join("run")).expect("removed");
        assert!(!closed.exists());
    }

    #[test]
    fn a_link_that_cannot_be_read_is_no_link_to_nowhere() {
        let closed = Err(io::ErrorKind::PermissionDenied.into());
        assert_eq!(link(closed), UNREADABLE);
        assert_eq!(link(Ok("there".into())), b"(link to there)");
        assert_ne!(link(Ok(PathBuf::new())), UNREADABLE);
    }

    /// An alarm on standard error is one whether or not the event file was asked for; other words of the program are none.
    #[test]
    fn the_line_of_a_hardened_program_needs_no_flag() {
        let alarm = "steadfast: handler handle (serve.c:12), event 3: the runs leave different values at 0x5: 0x1 and 0x2; runs again\n";
        for cc in [false, true] {
            let detector = Detector {
                cc,
                ..Detector::default()
            };
            let spoke = |stderr| detector.spoke(&Ran::default(), &captured("", stderr));
            assert_eq!(spoke(alarm).map(|found| found.by), Some("cc".to_owned()));
            assert_eq!(spoke("handler handle, event 3\n"), None);
        }
    }

    /// A campaign whose expression does not compile is refused when it is read, not compared without it.
    #[test]
    fn a_wrong_expression_goes_no_further() {
        let read = |pattern: &str| {
            let masked = serde_json::json!({"kind": "masked", "patterns": [pattern]});
            serde_json::from_value::<Comparator>(masked)
        };
        for wrong in ["(", ""] {
            let why = read(wrong).expect_err(wrong).to_string();
            assert!(why.contains("a regular expression is needed"), "{why}");
        }
        let right = read("pid [0-9]+").expect("a comparator");
        let text = serde_json::to_string(&right).expect("written");
        assert_eq!(text, r#"{"kind":"masked","patterns":["pid [0-9]+"]}"#);
    }

    #[test]
    fn comparators() {
        let same = |c: &Comparator, a: &str, b: &str| super::same(c, a.as_bytes(), b.as_bytes());
        assert!(!same(&Comparator::Byte, "a", "b"));
        assert!(
            same(&Comparator::Lines, "a\nb\n", "b\na\n") && !same(&Comparator::Lines, "a\n", "b\n")
        );
        let masked = Comparator::Masked {
            patterns: vec!["pid [0-9]+".parse().expect("a pattern")],
        };
        assert!(
            same(&masked, "x pid 12 y", "x pid 345 y")
                && !same(&masked, "x pid 12 y", "x pid 12 z")
        );
        let near = Comparator::Numeric { tolerance: 1e-6 };
        assert!(
            same(&near, "x = 1.0000000 ok", "x = 1.0000001 ok")
                && !same(&near, "x = 1.0 ok", "x = 1.1 ok")
        );
    }
}
