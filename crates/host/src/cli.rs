//! The command line, and how errors are told.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use steadfast_inject::chacha::Seed;
use steadfast_integrity::exit::Own;

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
    let mut root = Cli::command();
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
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "steadfast-host", &mut out);
    print!("{}", String::from_utf8_lossy(&out));
    ExitCode::SUCCESS
}

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
