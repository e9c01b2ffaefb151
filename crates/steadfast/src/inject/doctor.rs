//! `steadfast inject doctor`: the injector itself, on this machine or on a campaign's faults.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use steadfast_contract::exit::Exit;
use steadfast_inject::campaign::{Order, machine};
use steadfast_inject::doctor::{self, Answer};

use super::target::{OrderError, finish, stages};
use crate::os;
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A campaign's directory: its planned faults, by both engines
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// At most so many of them
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "dir")]
    most: usize,

    /// Only those that strike within so many executions of their instruction: each is two stops of some 50 us
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "dir")]
    within: u64,

    /// Write one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Whether the planned faults of a campaign strike the executions that they name.
fn exact(args: &DoctorArgs, dir: &Path, console: &mut Console<'_>) -> Result<Exit, OrderError> {
    let order = Order::of(dir, &std::env::temp_dir())?;
    let found = doctor::agreement(&order, args.within, args.most)?;
    let all = found.same + found.different.len();
    if args.json {
        console.result(&format!(
            "{}\n",
            serde_json::json!({ "schema": 1, "found": found })
        ));
    } else {
        for one in &found.different {
            console.say(&format!("inject: {one}\n"));
        }
        console.result(&format!(
            "{} of {all} drawn faults hit the execution that single steps hit; {} do what single steps do ({} at the second try), and {} of the others not the same twice by themselves; {} lie beyond {} executions\n",
            found.same + found.hit,
            found.same,
            found.stepped_again,
            found.unsteady,
            found.beyond,
            args.within
        ));
    }
    Ok(Exit::Status(u8::from(
        found.same == 0 || !found.different.is_empty(),
    )))
}

/// Examines the injector itself.
pub(super) fn doctor(args: &DoctorArgs, console: &mut Console<'_>) -> Exit {
    if let Some(dir) = &args.dir {
        return finish(console, |console| exact(args, dir, console));
    }
    finish(console, |console| {
        let place = doctor::place().map_err(|why| {
            OrderError::Campaign(
                format!("a doctor needs a directory for temporary files: {why}"),
                Some("TMPDIR=DIR".into()),
            )
        })?;
        let user = os::is_root().then_some(61_000);
        let answers = doctor::examine(place.path(), user, &mut stages(console, args.json))?;
        drop(place);
        let well = answers.iter().all(|answer| answer.ok);
        let text = if args.json {
            let object = serde_json::json!({ "schema": 1, "machine": machine(), "ok": well, "answers": answers });
            format!("{object}\n")
        } else {
            table(&answers)
        };
        console.result(&text);
        Ok(Exit::Status(u8::from(!well)))
    })
}

/// Answers for people, and the machine that they are about.
fn table(answers: &[Answer]) -> String {
    let width = answers.iter().map(|a| a.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for answer in answers {
        let word = if answer.ok { "yes" } else { "NO " };
        let _ = writeln!(text, "{word}  {:<width$}  {}", answer.name, answer.found);
    }
    let machine = machine();
    let _ = writeln!(
        text,
        "on {}, {} CPUs, Linux {}, {}, {}",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.os,
        if machine.root {
            "root"
        } else {
            "an ordinary user"
        }
    );
    text
}
