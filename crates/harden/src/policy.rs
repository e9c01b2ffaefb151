//! Policy files: what to protect in a program whose source stays untouched, and how libraries are called.
//!
//! docs/hardening.md lists the statements. Files are read and checked here; the pass receives one normalised text, a
//! statement about one name a line, so it has no errors to report about policies.
//!
//! Invariant: a later statement about a name replaces an earlier one, built-in ones come first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use steadfast_integrity::advice::{Advise, Remedy};
use steadfast_integrity::exit::Own;

/// Raised together with the pass's (harden/pass/config.cpp).
const VERSION: &str = "version 1";

/// How the C library is called.
const GLIBC: &str = include_str!("../../../harden/abi/glibc.policy");
/// How the C++ library is called.
const LIBSTDCXX: &str = include_str!("../../../harden/abi/libstdcxx.policy");

/// A policy that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("the policy {path} cannot be read")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is not a statement.
    #[error("{path}:{line}: {why}, found '{found}'")]
    Statement {
        /// Where.
        path: PathBuf,
        /// Where.
        line: usize,
        /// What is needed.
        why: &'static str,
        /// What is there.
        found: String,
    },
}

impl Advise for PolicyError {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new(match self {
            Self::Unreadable { path, .. } => format!(
                "create {}, or take it out of STEADFAST_POLICY and --steadfast-policy",
                path.display()
            ),
            Self::Statement { .. } => "see the table of statements in docs/hardening.md".to_owned(),
        }))
    }
}

/// How state is protected at rest (`--state`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// By copies.
    pub dup: bool,
    /// By checksums.
    pub crc: bool,
}

impl State {
    /// Neither: the memory is trusted.
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        !self.dup && !self.crc
    }
}

/// Statements, checked.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// One treatment for each function: verb, rest.
    treatments: BTreeMap<String, (String, String)>,
    handlers: BTreeMap<String, String>,
    outputs: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    switches: Vec<&'static str>,
    state: State,
    own_handlers: Vec<String>,
}

impl Policy {
    /// What is built in.
    ///
    /// # Errors
    /// Never: the tests read the built-in policies.
    pub fn built_in() -> Result<Self, PolicyError> {
        let mut policy = Self::default();
        policy.add(Path::new("glibc.policy"), GLIBC)?;
        policy.add(Path::new("libstdcxx.policy"), LIBSTDCXX)?;
        policy.own_handlers.clear();
        Ok(policy)
    }

    /// Adds a file.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not a statement.
    pub fn read(&mut self, path: &Path) -> Result<(), PolicyError> {
        let text = std::fs::read_to_string(path).map_err(|source| PolicyError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        self.add(path, &text)
    }

    /// Adds statements.
    ///
    /// # Errors
    /// When a line is not a statement.
    pub fn add(&mut self, path: &Path, text: &str) -> Result<(), PolicyError> {
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                self.statement(line).map_err(|why| PolicyError::Statement {
                    path: path.to_owned(),
                    line: index + 1,
                    why,
                    found: line.to_owned(),
                })?;
            }
        }
        Ok(())
    }

    fn statement(&mut self, line: &str) -> Result<(), &'static str> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (verb, names) = (words[0], &words[1..]);
        match verb {
            "atomics-once" if names.is_empty() => self.switches.push("atomics-once"),
            "handler" | "local-handler" => {
                let (name, rest) = match names {
                    [name] => (name, String::new()),
                    [name, input] if verb == "handler" => {
                        let at = input
                            .strip_prefix("input=")
                            .ok_or("`input=A:B` is needed")?;
                        let (pointer, length) =
                            at.split_once(':').ok_or("`input=A:B` is needed")?;
                        number(pointer)?;
                        if length != "strlen" {
                            number(length)?;
                        }
                        (name, format!(" {input}"))
                    }
                    _ => return Err("`handler NAME [input=A:B]` is needed"),
                };
                self.own_handlers.push((*name).to_owned());
                self.handlers
                    .insert((*name).to_owned(), format!("{verb} {name}{rest}"));
            }
            "output" => {
                let [name, at] = names else {
                    return Err("`output NAME A:B` is needed");
                };
                let (pointer, length) = at.split_once(':').ok_or("`output NAME A:B` is needed")?;
                number(pointer)?;
                number(length)?;
                self.outputs
                    .insert((*name).to_owned(), format!("output {name} {at}"));
            }
            "wrap" | "native" => {
                let [name, other] = names else {
                    return Err("two names are needed");
                };
                self.treat(name, verb, other);
            }
            "refuse" => {
                let [name, reason @ ..] = names else {
                    return Err("a name is needed");
                };
                if reason.is_empty() {
                    return Err("`refuse NAME REASON` is needed");
                }
                self.treat(name, verb, &reason.join(" "));
            }
            "local" | "pure" | "once" | "defer" => {
                if names.is_empty() {
                    return Err("a name is needed");
                }
                for name in names {
                    self.treat(name, verb, "");
                }
            }
            "racy" | "ignore" | "dup" | "crc" | "dup-memory" | "crc-memory" => {
                if names.is_empty() {
                    return Err("a name is needed");
                }
                for name in names {
                    // The same word may be a variable's name and a function's.
                    let key = if verb.ends_with("-memory") { "()" } else { "" };
                    self.variables
                        .insert(format!("{name}{key}"), format!("{verb} {name}"));
                }
            }
            _ => return Err("a statement is needed"),
        }
        Ok(())
    }

    fn treat(&mut self, name: &str, verb: &str, rest: &str) {
        self.treatments
            .insert(name.to_owned(), (verb.to_owned(), rest.to_owned()));
    }

    /// `--state`: the compiler keeps copies and checksums of what is named.
    pub fn keep(&mut self, state: State) {
        self.state = state;
    }

    /// The compiler reports every store to the runtime (`--find-nondeterminism`).
    pub fn trace(&mut self) {
        self.switches.push("trace");
    }

    /// Handlers that files have named, without the built-in.
    #[must_use]
    pub fn handlers(&self) -> &[String] {
        &self.own_handlers
    }

    /// The text for the pass (`STEADFAST_PASS`).
    #[must_use]
    pub fn for_pass(&self) -> String {
        let mut text = format!("{VERSION}\n");
        for (name, (verb, rest)) in &self.treatments {
            let _ = writeln!(text, "{}", format!("{verb} {name} {rest}").trim_end());
        }
        for line in self
            .handlers
            .values()
            .chain(self.outputs.values())
            .chain(self.variables.values())
        {
            let _ = writeln!(text, "{line}");
        }
        for line in &self.switches {
            let _ = writeln!(text, "{line}");
        }
        for (on, line) in [(self.state.dup, "state dup"), (self.state.crc, "state crc")] {
            if on {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }
}

fn number(text: &str) -> Result<u32, &'static str> {
    text.parse()
        .map_err(|_| "the number of an argument is needed (from 0)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_policies_are_policies() {
        let text = Policy::built_in().expect("checked here").for_pass();
        assert!(text.starts_with("version 1\n"));
        assert!(text.contains("\nnative malloc __sf_w_malloc\n"));
        // One environment variable holds at most 128 KiB (MAX_ARG_STRLEN, execve(2)).
        assert!(text.len() < 100 * 1024, "{}", text.len());
    }

    #[test]
    fn a_later_statement_wins() {
        let mut policy = Policy::built_in().expect("checked above");
        policy
            .add(
                Path::new("own"),
                "pure malloc # ours\n\nhandler h input=0:strlen\n",
            )
            .expect("two statements");
        let text = policy.for_pass();
        assert!(text.contains("\npure malloc\n"));
        assert!(!text.contains("native malloc "));
        assert!(text.contains("\nhandler h input=0:strlen\n"));
        assert_eq!(policy.handlers(), ["h"]);
    }

    #[test]
    fn what_is_no_statement_is_named_with_its_line() {
        for (text, why) in [
            ("\nprotect x", "a statement is needed"),
            ("\nhandler", "`handler NAME [input=A:B]` is needed"),
            (
                "\nhandler h input=a:b",
                "the number of an argument is needed (from 0)",
            ),
            (
                "\nlocal-handler h input=0:1",
                "`handler NAME [input=A:B]` is needed",
            ),
            ("\noutput f", "`output NAME A:B` is needed"),
            ("\nrefuse f", "`refuse NAME REASON` is needed"),
            ("\nwrap f", "two names are needed"),
            ("\npure", "a name is needed"),
            ("\natomics-once x", "a statement is needed"),
        ] {
            let error = Policy::default()
                .add(Path::new("p"), text)
                .expect_err("no statement")
                .to_string();
            let found = text.trim();
            assert_eq!(error, format!("p:2: {why}, found '{found}'"));
        }
    }
}
