//! `steadfast cc` and `steadfast c++`: clang with the hardening pass, and what a link is allowed to leave behind.
//!
//! clang's words go straight to the user's terminal. Ours come only when something is in the way, or was asked for.
//!
//! Invariants
//!  1. The status is clang's own; ours are 1 (the program cannot be hardened: it is not linked) and those of [`Own`].
//!  2. A program with gaps is taken away again: make must not take it for built.
//!  3. Without a handler in a program one line says so, but not to configure's probes.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Command;

use steadfast_cc_driver::command::{Build, CommandError, Format, Request};
use steadfast_cc_driver::coverage::{self, Coverage, Level};
use steadfast_cc_driver::policy::Policy;
use steadfast_cc_driver::tools::Tools;
use steadfast_integrity::advice::Advise;
use steadfast_integrity::exit::{Exit, Own};

use crate::report::Console;

/// Which language an executable of this name compiles; nothing if it is the command itself.
pub(crate) fn by_name(argv0: &OsString) -> Option<bool> {
    match PathBuf::from(argv0).file_name()?.to_str()? {
        "steadfast-cc" => Some(false),
        "steadfast-c++" => Some(true),
        _ => None,
    }
}

/// Compiles, links, or says what was hardened.
pub(crate) fn compile(cxx: bool, arguments: &[OsString], console: &mut Console<'_>) -> Exit {
    match attempt(cxx, arguments, console) {
        Ok(exit) => exit,
        Err(Failure(why)) => console.refuse(&*why),
    }
}

/// Any error of the driver, on its way to the user.
struct Failure(Box<dyn Advise>);

impl<E: Advise + 'static> From<E> for Failure {
    fn from(why: E) -> Self {
        Self(Box::new(why))
    }
}

fn attempt(cxx: bool, arguments: &[OsString], console: &mut Console<'_>) -> Result<Exit, Failure> {
    match Request::read(arguments)? {
        Request::Pass(arguments) => {
            let tools = Tools::find(cxx)?;
            let mut include = vec!["-isystem".into(), tools.include.clone().into()];
            include.extend(arguments);
            Ok(run(Command::new(&tools.clang).args(include), console))
        }
        Request::Build(build) => self::build(cxx, &build, console),
        Request::Coverage { format, program } => {
            let summary = Coverage::read(&program)?.summary();
            console.result(&match format {
                Format::Text => summary.text(),
                Format::Json => {
                    let mut text = serde_json::to_string_pretty(&summary).unwrap_or_default();
                    text.push('\n');
                    text
                }
            });
            Ok(Exit::Status(0))
        }
        Request::Explain { place, program } => {
            let said = Coverage::read(&program)?.explain(&place);
            let mut text = String::new();
            for line in &said {
                let _ = writeln!(text, "{place}: {line}");
            }
            if said.is_empty() {
                let _ = writeln!(text, "{place}: no store, call or function of hardened code");
            }
            console.result(&text);
            Ok(Exit::Status(0))
        }
    }
}

fn build(cxx: bool, build: &Build, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let tools = Tools::find(cxx)?;
    let mut policy = Policy::built_in()?;
    let from_environment = env::var_os("STEADFAST_POLICY").unwrap_or_default();
    for path in env::split_paths(&from_environment)
        .filter(|path| !path.as_os_str().is_empty())
        .chain(build.policies.iter().cloned())
    {
        policy.read(&path)?;
    }
    if build.trace {
        policy.trace();
    }
    if build.recover {
        policy.recover();
    }
    if build.protect == Level::Sei {
        policy.protect_as_the_paper();
    }
    if build.between {
        policy.between();
    }
    if build.validate_later.is_some() {
        if cxx {
            return Err(CommandError::ValidateCxx.into());
        }
        policy.validate_later();
    }
    policy.keep(build.state);
    build.agrees_with(&policy)?;
    let exit = run(
        Command::new(&tools.clang)
            .args(build.for_clang(&tools, &policy, cxx))
            .envs(Build::environment(&policy)),
        console,
    );
    let (Exit::Status(0), Some(program)) = (exit, &build.program) else {
        if let (Some(flag), Some(program), false) =
            (&build.no_library, &build.program, build.shared)
        {
            console.say(&format!(
                "steadfast: note: {} takes the hardening runtime, which needs the C library, found {flag}\n  fix:   add -lc; or build this program with clang-19, if it has no handlers\n",
                program.display()
            ));
        }
        return Ok(exit);
    };
    if !fs::metadata(program).is_ok_and(|file| file.is_file()) {
        // -o /dev/null: nothing was kept that could run.
        return Ok(exit);
    }
    // A program without our section has no source that was compiled here: another compiler's objects.
    let coverage = Coverage::read(program).unwrap_or_default();
    if build.shared {
        let Some(name) = coverage.handlers().next() else {
            return Ok(exit);
        };
        console.say(&format!(
            "steadfast: {} is not linked: a shared library has no handlers, found {name}\n  fix:   build the library static (--disable-shared), or name handlers in the program\n",
            program.display()
        ));
        let _ = fs::remove_file(program);
        return Ok(Exit::Status(1));
    }
    let gaps = coverage.gaps();
    if !gaps.is_empty() {
        console.say(&coverage::complain(program, &gaps));
        let _ = fs::remove_file(program);
        return Ok(Exit::Status(1));
    }
    if let Some(why) = coverage.mixed_state() {
        console.say(&format!(
            "steadfast: {} is not linked: {why}\n  fix:   give all files and the link the same --state\n",
            program.display()
        ));
        let _ = fs::remove_file(program);
        return Ok(Exit::Status(1));
    }
    if let Some(module) = coverage.of_another_level(build.protect) {
        console.say(&format!(
            "steadfast: {} is not linked: {} is needed for all its files, and {module} was compiled with another level\n  fix:   give all files and the link the same --protect\n",
            program.display(),
            format_args!("--protect={}", build.protect),
        ));
        let _ = fs::remove_file(program);
        return Ok(Exit::Status(1));
    }
    if build.validate_later.is_some()
        && let Some(module) = coverage.not_for_later()
    {
        console.say(&format!(
            "steadfast: {} is not linked: {module} was compiled without --validate=async\n  fix:   give all files and the link the same --validate\n",
            program.display()
        ));
        let _ = fs::remove_file(program);
        return Ok(Exit::Status(1));
    }
    let present: BTreeSet<&str> = coverage.handlers().collect();
    let for_another = build.is_probe() || !policy.is_for(program);
    if present.is_empty() && (policy.handlers().is_empty() || for_another) {
        if !build.is_probe() {
            console.say(&format!(
                "steadfast: note: {} has no handler, so nothing in it runs hardened; steadfast-policy(5) says how to name handlers\n",
                program.display()
            ));
        }
        return Ok(exit);
    }
    let missing: Vec<&String> = policy
        .handlers()
        .iter()
        .filter(|name| !present.contains(name.as_str()))
        .collect();
    if let Some(name) = missing.first() {
        console.say(&format!(
            "steadfast: the policy's handler {name} is not in {}\n  fix:   correct the name, or take the statement out; `programs NAME...` in the policy says which programs it is for\n",
            program.display()
        ));
        let _ = fs::remove_file(program);
        return Ok(Exit::Status(1));
    }
    if let Some(name) = policy.named().find(|name| !coverage.names(name)) {
        console.say(&format!(
            "steadfast: the policy's {name} (output, keeps, carries or later) is not in {}\n  fix:   correct the name, or take the statement out\n",
            program.display()
        ));
        let _ = fs::remove_file(program);
        return Ok(Exit::Status(1));
    }
    if !for_another
        && let Some((name, verb)) = policy.own_names().find(|(name, _)| !coverage.has(name))
    {
        let kind = match verb {
            "ignore" | "racy" | "dup" | "crc" => "variable",
            _ => "function",
        };
        console.say(&format!(
            "steadfast: the policy's `{verb} {name}`: no {kind} {name} is in {}\n  fix:   correct the name, or take the statement out; ?{name} in its place may be missing\n",
            program.display()
        ));
        let _ = fs::remove_file(program);
        return Ok(Exit::Status(1));
    }
    Ok(exit)
}

fn run(command: &mut Command, console: &mut Console<'_>) -> Exit {
    match command.status() {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Status(u8::try_from(code & 0xff).unwrap_or(1)),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Own(Own::Bug),
        },
        Err(why) => {
            console.say(&format!(
                "steadfast: the compiler cannot be started\n  cause: {why}\n"
            ));
            Exit::Own(Own::NotExecutable)
        }
    }
}
