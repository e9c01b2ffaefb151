//! `steadfast cc` and `steadfast c++`: clang with the hardening pass, and what a link is allowed to leave behind.
//!
//! clang's words go straight to the user's terminal. Ours come only when something is in the way, or was asked for.
//!
//! Invariants
//!  1. The status is clang's own; ours are 1 (a link is refused) and those of [`Own`].
//!  2. A refused program is taken away again: make must not take it for built. Where it cannot be, that is said.
//!  3. A program is checked before it is let through: what cannot be read is refused.
//!  4. Without a handler in a program one line says so, but not to configure's probes.

use std::collections::BTreeSet;
use std::env;
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt::{Display, Write as _};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use steadfast_cc_driver::command::{Build, CommandError, Format, Request};
use steadfast_cc_driver::coverage::{self, Coverage, CoverageError, Level};
use steadfast_cc_driver::flags;
use steadfast_cc_driver::policy::Policy;
use steadfast_cc_driver::tools::Tools;
use steadfast_contract::advice::Advise;
use steadfast_contract::exit::{Exit, Own};

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
            if arguments.iter().any(|word| word == "--help") {
                console.result(&flags::help());
            }
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
        if cxx || build.has_cxx {
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
    let refusal = match Coverage::of_linked(program) {
        Err(why) => Some(Refusal::unreadable(program, &why)),
        Ok(coverage) => {
            // A program without our section has no source that was compiled here: another compiler's objects.
            let coverage = coverage.unwrap_or_default();
            match judge(build, &policy, program, &coverage) {
                Verdict::Linked => None,
                Verdict::WithoutHandlers => {
                    console.say(&format!(
                        "steadfast: note: {} has no handler, so nothing in it runs hardened; steadfast-policy(5) says how to name handlers\n",
                        program.display()
                    ));
                    None
                }
                Verdict::Refused(refusal) => Some(refusal),
            }
        }
    };
    Ok(refusal.map_or(exit, |refusal| refuse(program, &refusal, console)))
}

/// Why a program may not stay, and what to do about it.
#[derive(Debug)]
struct Refusal {
    why: String,
    fix: String,
}

impl Refusal {
    fn new(why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            fix: fix.into(),
        }
    }

    /// `PROGRAM is not linked: WHY`.
    fn not_linked(program: &Path, why: impl Display, fix: impl Into<String>) -> Self {
        let why = format!("steadfast: {} is not linked: {why}", program.display());
        Self::new(why, fix)
    }

    fn unreadable(program: &Path, why: &CoverageError) -> Self {
        let mut text = format!("what was hardened must be known, and {why}");
        if let Some(cause) = why.source() {
            let _ = write!(text, "\n  cause: {cause}");
        }
        let fix = match why {
            CoverageError::Damaged { .. } => why.fix().map_or_else(String::new, |fix| fix.what),
            _ => "let the linker write an ELF program that you may read".to_owned(),
        };
        Self::not_linked(program, text, fix)
    }
}

/// Says why, and takes the program away.
fn refuse(program: &Path, refusal: &Refusal, console: &mut Console<'_>) -> Exit {
    console.say(&format!("{}\n  fix:   {}\n", refusal.why, refusal.fix));
    if let Err(cause) = fs::remove_file(program) {
        console.say(&format!(
            "steadfast: a refused program must not stay, and {} cannot be removed\n  cause: {cause}\n  fix:   remove it by hand\n",
            program.display()
        ));
    }
    Exit::Status(1)
}

/// What is thought of a program that clang has linked.
#[derive(Debug)]
enum Verdict {
    Linked,
    /// Nothing to say against it, but nothing in it is hardened, and nobody has said so before.
    WithoutHandlers,
    Refused(Refusal),
}

fn judge(build: &Build, policy: &Policy, program: &Path, coverage: &Coverage) -> Verdict {
    if build.shared {
        return coverage.handlers().next().map_or(Verdict::Linked, |name| {
            Verdict::Refused(Refusal::not_linked(
                program,
                format_args!("a shared library has no handlers, found {name}"),
                "build the library static (--disable-shared), or name handlers in the program",
            ))
        });
    }
    if let Some(refusal) = disagreement(build, program, coverage) {
        return Verdict::Refused(refusal);
    }
    let for_another = build.is_probe() || !policy.is_for(program);
    let none = coverage.handlers().next().is_none();
    if none && (policy.handlers().is_empty() || for_another) {
        return if build.is_probe() {
            Verdict::Linked
        } else {
            Verdict::WithoutHandlers
        };
    }
    missing_name(policy, for_another, program, coverage).map_or(Verdict::Linked, Verdict::Refused)
}

/// What its files lack, or do not agree on with each other or with the link.
fn disagreement(build: &Build, program: &Path, coverage: &Coverage) -> Option<Refusal> {
    let gaps = coverage.gaps();
    if !gaps.is_empty() {
        return Some(Refusal::new(
            coverage::complain(program, &gaps),
            "compile the function with `steadfast cc`, or give it a class in a policy: pure, once, defer, wrap: steadfast-policy(5)",
        ));
    }
    if let Some(why) = coverage.mixed_state() {
        let fix = "give all files and the link the same --state";
        return Some(Refusal::not_linked(program, why, fix));
    }
    if let Some(module) = coverage.of_another_level(build.protect) {
        return Some(Refusal::not_linked(
            program,
            format_args!(
                "--protect={} is needed for all its files, and {module} was compiled with another level",
                build.protect
            ),
            "give all files and the link the same --protect",
        ));
    }
    if build.validate_later.is_some()
        && let Some(module) = coverage.not_for_later()
    {
        return Some(Refusal::not_linked(
            program,
            format_args!("{module} was compiled without --validate=async"),
            "give all files and the link the same --validate",
        ));
    }
    None
}

/// What the policy names and the program has not.
fn missing_name(
    policy: &Policy,
    for_another: bool,
    program: &Path,
    coverage: &Coverage,
) -> Option<Refusal> {
    let present: BTreeSet<&str> = coverage.handlers().collect();
    let absent = |name: &&String| !present.contains(name.as_str());
    if let Some(name) = policy.handlers().iter().find(absent) {
        return Some(Refusal::new(
            format!(
                "steadfast: the policy's handler {name} is not in {}",
                program.display()
            ),
            "correct the name, or take the statement out; `programs NAME...` in the policy says which programs it is for",
        ));
    }
    if let Some(name) = policy.named().find(|name| !coverage.names(name)) {
        return Some(Refusal::new(
            format!(
                "steadfast: the policy's {name} (output, keeps, carries or later) is not in {}",
                program.display()
            ),
            "correct the name, or take the statement out",
        ));
    }
    if for_another {
        return None;
    }
    let (name, verb) = policy.own_names().find(|(name, _)| !coverage.has(name))?;
    let kind = match verb {
        "ignore" | "racy" | "dup" | "crc" => "variable",
        _ => "function",
    };
    Some(Refusal::new(
        format!(
            "steadfast: the policy's `{verb} {name}`: no {kind} {name} is in {}",
            program.display()
        ),
        format!("correct the name, or take the statement out; ?{name} in its place may be missing"),
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A refused program goes; where it cannot, the user is told, and the status is the same.
    #[test]
    fn what_cannot_be_taken_away_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("program");
        fs::write(&file, "").expect("written");
        for (program, told) in [(file.as_path(), false), (dir.path(), true)] {
            let mut said = Vec::new();
            let mut console = Console {
                out: &mut Vec::new(),
                err: &mut said,
                lost: None,
            };
            let refusal = Refusal::not_linked(program, "why", "how");
            assert_eq!(refuse(program, &refusal, &mut console), Exit::Status(1));
            let said = String::from_utf8_lossy(&said);
            assert!(
                said.contains("is not linked: why\n  fix:   how\n"),
                "{said}"
            );
            assert_eq!(said.contains("cannot be removed"), told, "{said}");
        }
        assert!(!file.exists());
    }
}
