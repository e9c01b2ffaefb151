//! The product as the benchmarks see it: a command with flags, a report and a file of events.
//!
//! This is the only module that knows `steadfast run`'s flags.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use steadfast_contract::event::Line;
use steadfast_contract::plan::RunReport;

/// The `steadfast` that is measured.
#[derive(Clone, Debug)]
pub struct Product {
    path: PathBuf,
}

/// Flags of `steadfast run`, one word each.
pub type Flags = Vec<String>;

impl Product {
    /// The one that `STEADFAST_BIN` names, or else this repository's release build.
    #[must_use]
    pub fn find() -> Self {
        let built =
            Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target/release/steadfast");
        Product {
            path: env::var_os("STEADFAST_BIN").map_or(built, PathBuf::from),
        }
    }

    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Product { path }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it calls itself, or why it cannot be asked.
    #[must_use]
    pub fn version(&self) -> String {
        match Command::new(&self.path).arg("--version").output() {
            Ok(out) if out.status.success() => {
                String::from_utf8_lossy(&out.stdout).trim().to_owned()
            }
            Ok(out) => format!(
                "{} --version ended with {}",
                self.path.display(),
                out.status
            ),
            Err(error) => format!("{}: {error}", self.path.display()),
        }
    }

    /// The words that stand before a program to run it protected.
    ///
    /// The replicas are placed where the unprotected copies are pinned: replica i on the i-th
    /// CPU, starting over when there are more replicas than CPUs.
    #[must_use]
    pub fn wrapper(
        &self,
        replicas: u8,
        cpus: &[usize],
        flags: &[String],
        files: &Files,
    ) -> Vec<OsString> {
        let placement: Vec<_> = cpus.iter().map(ToString::to_string).collect();
        let mut words: Vec<OsString> =
            vec![self.path.clone().into(), "run".into(), "--quiet".into()];
        words.push(format!("--replicas={replicas}").into());
        words.push(format!("--placement={}", placement.join(",")).into());
        words.push(joined("--json=", &files.report));
        if let Some(events) = &files.events {
            words.push(joined("--events=", events));
        }
        words.extend(flags.iter().map(OsString::from));
        words.push("--".into());
        words
    }
}

fn joined(flag: &str, path: &Path) -> OsString {
    let mut word = OsString::from(flag);
    word.push(path);
    word
}

/// Where one run's report and events go.
#[derive(Clone, Debug)]
pub struct Files {
    pub report: PathBuf,
    pub events: Option<PathBuf>,
}

impl Files {
    /// Removes what an earlier run left, so that it cannot be taken for this run's.
    pub fn clear(&self) {
        for file in self.events.iter().chain([&self.report]) {
            let _ = fs::remove_file(file);
        }
    }

    /// Reads the report.
    ///
    /// # Errors
    /// When there is none or it is not one.
    pub fn read_report(&self) -> Result<RunReport> {
        let text = fs::read_to_string(&self.report)
            .with_context(|| format!("no report in {}", self.report.display()))?;
        serde_json::from_str(&text).context("the report is not what the schema says")
    }

    /// Reads the events; a kind of event that is unknown here is left out, as the schema asks.
    ///
    /// # Errors
    /// When there is no file, or a line of it is not JSON.
    pub fn read_events(&self) -> Result<Vec<Line>> {
        let file = self.events.as_ref().context("events were not asked for")?;
        let text =
            fs::read_to_string(file).with_context(|| format!("no events in {}", file.display()))?;
        let mut lines = Vec::new();
        for line in text.lines() {
            let value: serde_json::Value =
                serde_json::from_str(line).context("an event is not JSON")?;
            ensure!(value.get("type").is_some(), "an event has no type: {line}");
            lines.extend(serde_json::from_value::<Line>(value).ok());
        }
        Ok(lines)
    }
}
