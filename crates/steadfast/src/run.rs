//! `steadfast run`: from arguments to an exit code.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use steadfast_integrity::advice::{Advise, Remedy};
use steadfast_integrity::event::{Event, JsonLines, report_line};
use steadfast_integrity::exit::{Exit, Own};
use steadfast_integrity::plan::{EventSink, Plan, RunReport};

use crate::cli::{RunArgs, Volume};
use crate::engine::Failure;
use crate::report::{self, Console};
use crate::summary::Summary;

/// A file that was asked for cannot be written.
#[derive(Debug, thiserror::Error)]
enum OutputError {
    #[error("{flag} needs a file that can be written, '{}' cannot", .path.display())]
    Open {
        flag: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{flag} could not be written to the end: '{}' is incomplete", .path.display())]
    Write {
        flag: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl Advise for OutputError {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        match self {
            Self::Open { flag, .. } => Some(Remedy::new(format!(
                "{flag} with a file in a directory of yours"
            ))),
            Self::Write { .. } => None,
        }
    }
}

/// Where events go: always to the summary, to a file if one was asked for.
struct Sinks {
    summary: Summary,
    file: Option<(PathBuf, JsonLines<File>)>,
}

impl EventSink for Sinks {
    fn emit(&mut self, event: Event) {
        self.summary.see(&event.what);
        if let Some((_, file)) = &mut self.file {
            file.emit(event);
        }
    }
}

/// Runs a program by `engine`.
pub(crate) fn run(
    args: &RunArgs,
    console: &mut Console<'_>,
    engine: impl FnOnce(&Plan, &mut dyn EventSink) -> Result<RunReport, Failure>,
) -> Exit {
    let plan = match args.plan(std::env::var_os("PATH").as_deref()) {
        Ok(plan) => plan,
        Err(why) => return console.refuse(&why),
    };
    // Both files are opened before anything starts: a report that cannot be written is no report.
    let file = match args.events().map(|path| open("--events", path)).transpose() {
        Ok(file) => file.map(|(path, file)| (path, JsonLines::new(file))),
        Err(why) => return console.refuse(&why),
    };
    let json = match args
        .json()
        .filter(|path| path.as_os_str() != "-")
        .map(|path| open("--json", path))
        .transpose()
    {
        Ok(json) => json,
        Err(why) => return console.refuse(&why),
    };

    let mut sinks = Sinks {
        summary: Summary::default(),
        file,
    };
    let result = engine(&plan, &mut sinks);

    // The program is gone: its streams are ours now.
    if let Some((path, file)) = sinks.file
        && let Err(source) = file.finish()
    {
        // The program's status stands: it did nothing wrong.
        console.say(&report::error(&OutputError::Write {
            flag: "--events",
            path,
            source,
        }));
    }
    let found = match result {
        Ok(found) => found,
        Err(why) => {
            if args.volume() != Volume::Quiet {
                console.say(&sinks.summary.divergences());
            }
            return console.refuse(why.as_ref());
        }
    };
    match (args.json(), json) {
        (None, _) => {}
        (Some(_), Some((path, mut file))) => {
            if let Err(source) = file.write_all(report_line(&found).as_bytes()) {
                console.say(&report::error(&OutputError::Write {
                    flag: "--json",
                    path,
                    source,
                }));
            }
        }
        // Nothing ran, so standard output is free for the result.
        (Some(_), None) if plan.explain => console.result(&report_line(&found)),
        (Some(_), None) => console.say(&report_line(&found)),
    }
    if plan.explain {
        if args.json().is_none() {
            console.result(&report::explain(&found.coverage, Path::new(&plan.program)));
        }
        return Exit::Status(0);
    }
    console.say(&sinks.summary.text(&plan, &found, args.volume()));
    found.exit()
}

fn open(flag: &'static str, path: &Path) -> Result<(PathBuf, File), OutputError> {
    match File::create(path) {
        Ok(file) => Ok((path.to_owned(), file)),
        Err(source) => Err(OutputError::Open {
            flag,
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests;
