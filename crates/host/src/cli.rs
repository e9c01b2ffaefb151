//! The command line.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use steadfast_contract::exit::Own;

use crate::told::Told;

/// Runs WebAssembly components that come back in microseconds when they fail, with their clients' handles intact.
#[derive(Debug, Parser)]
#[command(name = "steadfast-host", bin_name = "steadfast host", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows 64 handles that survive real register flips, beside the same flips without protection.
    Demo(crate::demo::Demo),
    /// Runs an application of components: app.toml names them, the edges between them, and who calls first.
    Run(crate::run::RunApp),
    /// Says whether an application would start: loads and starts every component, and calls nothing.
    Check(crate::run::Check),
    /// Shows components and tasks of an application that runs: calls, failures, objects.
    Top(crate::top::Top),
    /// Says which tasks of an application meet their deadlines although components fail.
    Analyse(crate::analyse::Analyse),
    /// Replaces a component of an application that runs; its clients keep their handles.
    Upgrade(crate::upgrade::Upgrade),
    /// Compiles a component ahead of time; at run time no compiler is needed.
    Compile(crate::compile::Compile),
    /// Says how the objects of an interface come back, or why they cannot.
    Generate(crate::generate::Generate),
    /// Measures resets, recovery, the record of calls, and faults on their way to the caller.
    Bench(crate::bench::Bench),
    /// Strikes components at random and says how flips end: reboots, deaths, wrong answers.
    Campaign(crate::campaign::Campaign),
    /// The second process of the demonstration and of campaigns.
    #[command(hide = true)]
    Client(crate::strike::ClientProcess),
    /// A component in a process of its own; its host is at standard input.
    #[command(hide = true)]
    Component,
    /// Prints a page of the manual
    #[command(hide = true)]
    Man {
        /// The subcommand [default: the command's own page]
        page: Option<String>,
    },
    /// Prints completions for a shell
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
}

/// One page of the manual, from the definition of the flags.
fn man(page: Option<&str>) -> Result<ExitCode, Told> {
    // `help` has no page: it would show this one.
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let (command, name) = match page {
        None => (root, "steadfast-host".to_owned()),
        Some(page) => {
            let found = root
                .get_subcommands()
                .find(|one| one.get_name() == page && !one.is_hide_set());
            let found = found.ok_or_else(|| Told {
                what: anyhow::anyhow!("a page of the manual is needed, there is no '{page}'"),
                fix: Some(
                    "one of demo, run, check, top, upgrade, analyse, compile, generate, bench, campaign"
                        .into(),
                ),
                code: Own::Usage,
            })?;
            (found.clone(), format!("steadfast-host-{page}"))
        }
    };
    let manual = clap_mangen::Man::new(command.name(name.clone()).display_name(name))
        .section("1")
        .manual("Steadfast");
    let mut out = Vec::new();
    manual.render(&mut out).map_err(anyhow::Error::new)?;
    print!("{}", String::from_utf8_lossy(&out));
    Ok(ExitCode::SUCCESS)
}

fn component() -> Result<ExitCode, Told> {
    steadfast_restart::process::serve().map_err(|error| {
        let what = anyhow::Error::new(error).context("a component in a process of its own");
        Told::setup(what, "process = true in app.toml: the host starts it")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: clap_complete::Shell) -> ExitCode {
    print!("{}", steadfast_manual::completions(shell, Cli::command()));
    ExitCode::SUCCESS
}

pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(Own::Usage.code())
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let done = match cli.command {
        Command::Demo(demo) => demo.run(),
        Command::Run(app) => app.run(),
        Command::Check(check) => check.run(),
        Command::Top(top) => top.run(),
        Command::Analyse(analyse) => analyse.run(),
        Command::Upgrade(upgrade) => upgrade.run(),
        Command::Compile(compile) => compile.run(),
        Command::Generate(generate) => generate.run(),
        Command::Bench(bench) => bench.run(),
        Command::Campaign(campaign) => campaign.run(),
        Command::Client(client) => client.run(),
        Command::Component => component(),
        Command::Man { page } => man(page.as_deref()),
        Command::Completions { shell } => Ok(completions(shell)),
    };
    match done {
        Ok(code) => code,
        Err(told) => {
            eprintln!("steadfast host: {}", told.what);
            for cause in told.what.chain().skip(1) {
                eprintln!("  cause: {cause}");
            }
            if let Some(fix) = told.fix {
                eprintln!("  fix:   {fix}");
            }
            ExitCode::from(told.code.code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_of_flags_is_that_of_the_code() {
        steadfast_manual::tests::assert_reference(
            "flags-host",
            <Cli as clap::CommandFactory>::command(),
        );
    }
}
