//! `steadfast run`: from arguments to an exit code.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::event::{Event, EventSink, JsonLines, report_line};
use steadfast_contract::exit::{Exit, Own};
use steadfast_contract::plan::{Plan, RunReport};

use crate::cli::{RunArgs, Volume};
use crate::engine::Ran;
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
struct Sinks<'a, 'b> {
    plan: &'a Plan,
    args: &'a RunArgs,
    console: &'a mut Console<'b>,
    summary: Summary,
    file: Option<(PathBuf, JsonLines<File>)>,
    /// The caller's command has ended before the program's last process: nobody is there to be told more.
    alone: bool,
}

impl Sinks<'_, '_> {
    fn sum_up(&mut self, found: &RunReport) {
        if self.args.json().is_some_and(|path| path.as_os_str() == "-") {
            self.console.say(&report_line(found));
        }
        let text = self.summary.text(self.plan, found, self.args.volume());
        self.console.say(&text);
    }
}

impl EventSink for Sinks<'_, '_> {
    fn emit(&mut self, event: Event) {
        self.summary.see(&event.what);
        if let Some((_, file)) = &mut self.file {
            file.emit(event);
        }
    }

    fn first_ended(&mut self, found: &RunReport) {
        self.sum_up(found);
        self.alone = true;
    }
}

/// Runs a program by `engine`.
pub(crate) fn run(
    args: &RunArgs,
    console: &mut Console<'_>,
    engine: impl FnOnce(&Plan, &mut dyn EventSink) -> Ran,
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
        plan: &plan,
        args,
        console,
        summary: Summary::default(),
        file,
        alone: false,
    };
    let result = match engine(&plan, &mut sinks) {
        Ran::Continue(result) => result,
        // Descriptors that this process has objects of are closed: nothing may be dropped.
        Ran::Break(exit) => crate::end(exit),
    };

    // The program is gone: its streams are ours now.
    if let Some((path, file)) = sinks.file.take()
        && let Err(source) = file.finish()
    {
        // The program's status stands: it did nothing wrong.
        sinks.console.say(&report::error(&OutputError::Write {
            flag: "--events",
            path,
            source,
        }));
    }
    let found = match result {
        Ok(found) => found,
        Err(why) => {
            if args.volume() != Volume::Quiet {
                sinks.console.say(&sinks.summary.divergences());
            }
            return sinks.console.refuse(why.as_ref());
        }
    };
    if let Some((path, mut file)) = json
        && let Err(source) = file.write_all(report_line(&found).as_bytes())
    {
        sinks.console.say(&report::error(&OutputError::Write {
            flag: "--json",
            path,
            source,
        }));
    }
    if plan.explain {
        // Nothing ran, so standard output is free for the result.
        match args.json() {
            None => {
                let coverage = report::explain(&found.coverage, Path::new(&plan.program));
                sinks.console.result(&coverage);
            }
            Some(path) if path.as_os_str() == "-" => sinks.console.result(&report_line(&found)),
            Some(_) => {}
        }
        return Exit::Status(0);
    }
    if !sinks.alone {
        sinks.sum_up(&found);
    }
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
