//! Errors as a user sees them, and what each command reads and writes besides: seeds, files, JSON.

use std::path::{Path, PathBuf};

use steadfast_contract::exit::Own;
use steadfast_inject::chacha::Seed;
use steadfast_restart::trial::TrialError;

/// An error as the user sees it: what is required and what was found, the cause, and what would help.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) what: anyhow::Error,
    pub(crate) fix: Option<String>,
    pub(crate) code: Own,
}

impl Told {
    pub(crate) fn setup(what: impl Into<anyhow::Error>, fix: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            fix: Some(fix.into()),
            code: Own::Setup,
        }
    }
}

/// The seed that was given, or one that nobody has drawn before.
pub(crate) fn seed(given: Option<&str>) -> Result<Seed, Told> {
    match given {
        Some(text) => Seed::parse(text).ok_or_else(|| {
            Told::setup(anyhow::anyhow!("{text} is no seed"), "--seed with a number")
        }),
        None => Seed::fresh()
            .map_err(|error| Told::setup(anyhow::Error::new(error), "a kernel with getrandom(2)")),
    }
}

/// Writes what `--json` asks for.
pub(crate) fn write_json(path: &Path, report: &impl serde::Serialize) -> Result<(), Told> {
    let text = serde_json::to_string_pretty(report)
        .map_err(|error| anyhow::Error::new(error).context("the report"))?;
    std::fs::write(path, text + "\n").map_err(|error| {
        let what = anyhow::Error::new(error).context(path.display().to_string());
        Told::setup(what, "--json with a path that can be written")
    })
}

impl From<steadfast_restart::LoadError> for Told {
    fn from(error: steadfast_restart::LoadError) -> Self {
        let fix = error.fix();
        Self::setup(error, fix)
    }
}

impl From<steadfast_restart::ModelError> for Told {
    fn from(error: steadfast_restart::ModelError) -> Self {
        let fix = error.fix();
        Self::setup(error, fix)
    }
}

impl From<steadfast_restart::CallError> for Told {
    fn from(error: steadfast_restart::CallError) -> Self {
        let fix = error.fix();
        Self::setup(error, fix)
    }
}

impl From<TrialError> for Told {
    fn from(error: TrialError) -> Self {
        let (fix, differs) = (error.fix(), matches!(error, TrialError::Differs(_)));
        Self {
            code: if differs { Own::Mismatch } else { Own::Setup },
            ..Self::setup(error, fix)
        }
    }
}

impl From<anyhow::Error> for Told {
    fn from(error: anyhow::Error) -> Self {
        Self {
            what: error,
            fix: None,
            code: Own::Setup,
        }
    }
}

/// Reads a file, or says which one is missing.
pub(crate) fn read(path: &PathBuf) -> Result<Vec<u8>, Told> {
    std::fs::read(path).map_err(|error| {
        let what = anyhow::Error::new(error).context(format!("{} cannot be read", path.display()));
        Told::setup(what, "give the path of an existing file")
    })
}

pub(crate) fn read_text(path: &PathBuf) -> Result<String, Told> {
    let bytes = read(path)?;
    String::from_utf8(bytes).map_err(|error| {
        Told::setup(
            anyhow::Error::new(error).context(path.display().to_string()),
            "a text file in UTF-8",
        )
    })
}
