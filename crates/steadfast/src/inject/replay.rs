//! `steadfast inject replay`: one run of a campaign again, or gdb just before its fault.
//!
//! Not covered: gdb follows the first process, so a site that children alone execute is not come to.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use steadfast_contract::exit::{Exit, Own};
use steadfast_inject::campaign::{Order, Running};
use steadfast_inject::record::{Dir, Planned, Run};
use steadfast_inject::scratch::{self, Scratch};

use super::target::{OrderError, finish};
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Directory of the campaign
    #[arg(value_name = "DIR")]
    out: PathBuf,

    /// Number of the run in the plan
    #[arg(value_name = "ID")]
    id: u64,

    /// Stop in gdb just before the fault, outside the sandbox
    #[arg(long)]
    gdb: bool,

    /// Where the target runs; must be a place that its user can reach
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Write one JSON object instead of words
    #[arg(long)]
    json: bool,
}

/// Repeats one run.
pub(super) fn replay(args: &ReplayArgs, console: &mut Console<'_>) -> Exit {
    finish(console, |console| {
        let base = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
        let order = Order::of(&args.out, &base)?;
        let running = Running::prepare(&order, env!("CARGO_PKG_VERSION"), &mut |_| ())?;
        if args.gdb {
            debug(args, &base, &order, running, console)
        } else {
            repeat(args, running, console)
        }
    })
}

/// The run again, beside how it ended before.
fn repeat(
    args: &ReplayArgs,
    mut running: Running,
    console: &mut Console<'_>,
) -> Result<Exit, OrderError> {
    let (planned, run, captured) = running.replay(args.id)?;
    let before = Dir::new(&args.out)
        .runs()
        .ok()
        .and_then(|runs| runs.get(&args.id).cloned());
    if args.json {
        let object = serde_json::json!({ "planned": planned, "run": run, "before": before });
        console.result(&format!("{object}\n"));
    } else {
        console.result(&told(&planned, &run, before.as_ref()));
        let stderr = captured
            .0
            .get("stderr")
            .map_or_else(String::new, |b| String::from_utf8_lossy(b).into_owned());
        console.say(&stderr);
    }
    let same = before.is_none_or(|before| before.ends_as(&run));
    Ok(if same {
        Exit::Status(0)
    } else {
        Exit::Own(Own::Mismatch)
    })
}

/// The target in gdb, just before its fault.
fn debug(
    args: &ReplayArgs,
    base: &Path,
    order: &Order,
    running: Running,
    console: &mut Console<'_>,
) -> Result<Exit, OrderError> {
    let (addr, n, fault) = running.whereabouts(args.id)?;
    drop(running);
    console.say(&format!(
        "inject: {fault}\ninject: gdb stops before execution {n} of {addr:#x}\n"
    ));
    if order.spec.driver.is_some() {
        console.say("inject: nobody asks the server in gdb: start its client beside it\n");
    }
    let status = Scratch::make(base, scratch::RUNS).and_then(|place| {
        let dir = place.path().join("run");
        order.spec.lay_out(&dir)?;
        debugger(order, addr, n).current_dir(&dir).status()
    });
    let status = status.map_err(|why| {
        OrderError::Campaign(
            format!("--gdb needs gdb: {why}"),
            Some("apt install gdb".into()),
        )
    })?;
    Ok(Exit::Status(
        u8::try_from(status.code().unwrap_or(1)).unwrap_or(1),
    ))
}

/// gdb at the site, with the executions before it passed over. A hardware breakpoint leaves the
/// code as it is, and no shell stands between gdb and the program, which would be counted too.
fn debugger(order: &Order, addr: u64, n: u64) -> Command {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    let words: Vec<String> = order
        .spec
        .argv
        .iter()
        .skip(1)
        .map(|word| quoted(word))
        .collect();
    let stdin = order
        .spec
        .stdin
        .as_deref()
        .unwrap_or(Path::new("/dev/null"));
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-q",
        "-nx",
        "-iex",
        "set debuginfod enabled off",
        "-ex",
        "set disable-randomization on",
    ]);
    // gdb adds these to what the program sees.
    gdb.args([
        "-ex",
        "unset environment LINES",
        "-ex",
        "unset environment COLUMNS",
    ]);
    for command in [
        format!(
            "starti {} < {}",
            words.join(" "),
            quoted(&stdin.display().to_string())
        ),
        format!("hbreak *{addr:#x}"),
        format!("ignore 1 {}", n - 1),
        "continue".into(),
    ] {
        gdb.arg("-ex").arg(command);
    }
    gdb.env_clear()
        .envs(order.spec.env.iter().map(|(k, v)| (k, v)));
    gdb.arg(&order.spec.path);
    gdb
}

fn told(planned: &Planned, run: &Run, before: Option<&Run>) -> String {
    let mut text = format!("{}\n", planned.fault);
    if let Some(site) = &planned.site {
        let function = site
            .function
            .as_deref()
            .map_or_else(String::new, |f| format!(" in {f}"));
        let _ = writeln!(
            text,
            "  at     {}+{}{function}: {}",
            site.module, site.offset, site.disassembly
        );
    }
    for fired in &run.fired {
        let value = |v: &Option<String>| v.clone().unwrap_or_default();
        let _ = writeln!(
            text,
            "  fired  at execution {}: {} became {}",
            fired.n,
            value(&fired.before),
            value(&fired.after)
        );
        if let Some(file) = &fired.file {
            let _ = writeln!(text, "         in {file}");
        }
    }
    let ended = match (run.status, run.signal) {
        (Some(status), _) => format!("exit status {status}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "given up".into(),
    };
    let _ = writeln!(
        text,
        "  {}, {ended}{}",
        run.outcome,
        if run.differ.is_empty() {
            String::new()
        } else {
            format!(", {} differ", run.differ.join(", "))
        }
    );
    if let Some(before) = before {
        let word = if before.ends_as(run) {
            "as before"
        } else {
            "not as before"
        };
        let _ = writeln!(text, "  {word}: {}", before.outcome);
    }
    text
}
