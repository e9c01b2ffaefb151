//! Policy files: what to protect in a program whose source stays untouched, and how libraries are called.
//!
//! docs/reference/policy.md lists the statements. Files are read and checked here; the pass receives one normalised text, a
//! statement about one name a line, so it has no errors to report about policies.
//!
//! Invariant: a later statement about a name replaces an earlier one, built-in ones come first, and are marked as such: a
//! program's own function may have a name of the library's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;

/// Raised together with the pass's (cc/pass/config.cpp).
const VERSION: &str = "version 5";

/// How the C library is called.
const GLIBC: &str = include_str!("../../../cc/policies/glibc.policy");
/// How the C++ library is called.
const LIBSTDCXX: &str = include_str!("../../../cc/policies/libstdcxx.policy");

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
            Self::Statement { .. } => "see the statements in steadfast-policy(5)".to_owned(),
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
    /// Those that are built in.
    library: BTreeSet<String>,
    handlers: BTreeMap<String, String>,
    outputs: BTreeMap<String, String>,
    streams: Vec<String>,
    variables: BTreeMap<String, String>,
    switches: Vec<&'static str>,
    state: State,
    own_handlers: Vec<String>,
    /// Functions and variables that files have named, each with its statement's first word.
    own_names: Vec<(String, String)>,
    /// Said to be the program's.
    own: BTreeSet<String>,
    /// The programs that the policy is for, if it says so.
    programs: Vec<String>,
    late_errors: LateErrors,
    names_fields: bool,
}

/// What becomes of an effect that fails after validation (`late-errors`; cc/runtime/late.c).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LateErrors {
    /// An error of the network is handed to the next call of a handler on that descriptor, any other stops the program.
    #[default]
    Network,
    /// Each stops the program.
    Stop,
    /// Each is the result of the next call on that descriptor.
    NextCall,
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
        policy.own_names.clear();
        policy.library = policy.treatments.keys().cloned().collect();
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
            // Within a word it is a number's sign.
            let comment = line
                .char_indices()
                .find(|&(at, letter)| {
                    letter == '#'
                        && line[..at]
                            .chars()
                            .next_back()
                            .is_none_or(char::is_whitespace)
                })
                .map_or(line.len(), |(at, _)| at);
            let line = line[..comment].trim();
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
        let verb = words[0];
        // One that may be missing is not asked for at the link.
        let optional = words.get(1).is_some_and(|name| name.starts_with('?'));
        let names: Vec<&str> = words[1..]
            .iter()
            .map(|name| name.strip_prefix('?').unwrap_or(name))
            .collect();
        let names = names.as_slice();
        match verb {
            "local" | "pure" | "once" | "defer" | "own" | "racy" | "ignore" | "dup" | "crc"
            | "dup-memory" | "crc-memory" => {
                for name in words[1..].iter().filter(|name| !name.starts_with('?')) {
                    self.own_names.push(((*name).to_owned(), verb.to_owned()));
                }
            }
            "wrap" | "native" | "refuse" if !optional => {
                if let Some(name) = names.first() {
                    self.own_names.push(((*name).to_owned(), verb.to_owned()));
                }
            }
            _ => {}
        }
        match verb {
            "late-errors" => {
                self.late_errors = match names {
                    ["stop"] => LateErrors::Stop,
                    ["network"] => LateErrors::Network,
                    ["next-call"] => LateErrors::NextCall,
                    _ => return Err("`late-errors stop`, `network` or `next-call` is needed"),
                };
            }
            "programs" => {
                if names.is_empty() {
                    return Err("a name is needed");
                }
                self.programs
                    .extend(names.iter().map(|name| (*name).to_owned()));
            }
            "atomics-once" if names.is_empty() => self.switches.push("atomics-once"),
            "dup-constants" if names.is_empty() => self.switches.push("dup-constants"),
            "handler" | "local-handler" => {
                let (name, rest) = match names {
                    [name] => (name, String::new()),
                    [name, input, unless @ ..] if verb == "handler" && unless.len() < 2 => {
                        let at = input
                            .strip_prefix("input=")
                            .ok_or("`input=A:B` is needed")?;
                        self.bytes(at, true, unless.first().copied())?;
                        (name, format!(" {}", names[1..].join(" ")))
                    }
                    _ => return Err("`handler NAME [input=A:B [unless=C&MASK]]` is needed"),
                };
                self.own_handlers.push((*name).to_owned());
                self.handlers
                    .insert((*name).to_owned(), format!("{verb} {name}{rest}"));
            }
            "stream" => {
                if names.is_empty() {
                    return Err("a name is needed");
                }
                for name in names {
                    self.handlers
                        .get(*name)
                        .filter(|statement| statement.contains(" input="))
                        .ok_or("the name of a handler with an input, said before, is needed")?;
                    self.streams.push((*name).to_owned());
                }
            }
            "output" => {
                let [name, at, unless @ ..] = names else {
                    return Err("`output NAME A:B [unless=C&MASK]` is needed");
                };
                if unless.len() > 1 {
                    return Err("`output NAME A:B [unless=C&MASK]` is needed");
                }
                self.bytes(at, false, unless.first().copied())?;
                self.outputs
                    .insert((*name).to_owned(), format!("output {}", names.join(" ")));
            }
            "keeps" => {
                let [name, at] = names else {
                    return Err("`keeps NAME A:B` is needed");
                };
                self.bytes(at, false, None)?;
                self.variables
                    .insert(format!("{name}keeps"), format!("keeps {name} {at}"));
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
            "own" => {
                if names.is_empty() {
                    return Err("a name is needed");
                }
                for name in names {
                    self.treatments.remove(*name);
                    self.library.remove(*name);
                    self.own.insert((*name).to_owned());
                }
            }
            "racy" | "ignore" | "dup" | "crc" | "dup-memory" | "crc-memory" | "carries"
            | "later" => {
                if names.is_empty() {
                    return Err("a name is needed");
                }
                for name in names {
                    // The same word may be a variable's name and a function's.
                    let key = match verb {
                        "dup-memory" | "crc-memory" => "()",
                        "carries" | "later" => verb,
                        _ => "",
                    };
                    self.variables
                        .insert(format!("{name}{key}"), format!("{verb} {name}"));
                }
            }
            _ => return Err("a statement is needed"),
        }
        Ok(())
    }

    /// Where bytes are: place and length, and a condition under which they are not looked at.
    fn bytes(
        &mut self,
        at: &str,
        may_be_string: bool,
        unless: Option<&str>,
    ) -> Result<(), &'static str> {
        let (pointer, length) = at
            .split_once(':')
            .ok_or("a place and a length are needed (`A:B`)")?;
        self.place(pointer)?;
        if !(may_be_string && matches!(length, "strlen" | "line" | "crlf")) {
            self.place(length)?;
        }
        if let Some(condition) = unless {
            let (what, mask) = condition
                .strip_prefix("unless=")
                .and_then(|rest| rest.split_once('&'))
                .ok_or("`unless=C&MASK` is needed")?;
            self.place(what)?;
            mask.parse::<u64>().map_err(|_| "a mask is a number")?;
        }
        Ok(())
    }

    /// A sum of numbers (`#2`), arguments (from 0), and fields behind them (`0->item(_stritem)->nbytes`), also of
    /// structures within structures (`0->job->record.size`).
    fn place(&mut self, text: &str) -> Result<(), &'static str> {
        const WORD: &str = "an argument's number (from 0), a field behind it, or # and a number";
        let name = |text: &str| {
            !text.is_empty()
                && text
                    .chars()
                    .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        };
        // A minus is not an arrow.
        for operand in text.replace("->", "\0").split(['+', '-']) {
            if let Some(constant) = operand.strip_prefix('#') {
                constant.parse::<u32>().map_err(|_| WORD)?;
                continue;
            }
            let mut steps = operand.split(['\0', '.']);
            number(steps.next().unwrap_or_default())?;
            for step in steps {
                self.names_fields = true;
                let (field, cast) = match step.split_once('(') {
                    Some((field, rest)) => (field, rest.strip_suffix(')').ok_or(WORD)?),
                    None => (step, "none"),
                };
                if !name(field) || !name(cast) {
                    return Err(WORD);
                }
            }
        }
        Ok(())
    }

    /// Whether fields are named, which takes debug information to find.
    #[must_use]
    pub const fn names_fields(&self) -> bool {
        self.names_fields
    }

    fn treat(&mut self, name: &str, verb: &str, rest: &str) {
        self.library.remove(name);
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

    /// What a store is about to change can be looked for in the log before it (`--recover`).
    pub fn recover(&mut self) {
        self.switches.push("recover");
    }

    /// No check that the paper's rules do not have (`--protect=sei`).
    pub fn protect_as_the_paper(&mut self) {
        self.switches.push("protect sei");
    }

    /// Code outside handlers computes everything twice (`--between=duplicate`).
    pub fn between(&mut self) {
        self.switches.push("between");
    }

    /// Functions that `output`, `keeps`, `carries` and `later` name.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let others = self.variables.values().filter_map(|line| {
            line.strip_prefix("carries ")
                .or_else(|| line.strip_prefix("later "))
                .or_else(|| line.strip_prefix("keeps ")?.split(' ').next())
        });
        self.outputs.keys().map(String::as_str).chain(others)
    }

    /// The second run comes later, so loads are kept (`--validate=async`).
    pub fn validate_later(&mut self) {
        self.switches.push("async");
    }

    /// Handlers that files have named, without the built-in.
    #[must_use]
    pub fn handlers(&self) -> &[String] {
        &self.own_handlers
    }

    /// Functions and variables that files have named and that some module of a program has to have, with their statements.
    pub fn own_names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.own_names
            .iter()
            .map(|(name, verb)| (name.as_str(), verb.as_str()))
    }

    /// Whether the policy is for a program of this file name. One that names no program is for all.
    #[must_use]
    pub fn is_for(&self, program: &Path) -> bool {
        let name = program
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        // libtool's own copy of a program that is not installed yet.
        let name = name.strip_prefix("lt-").unwrap_or(&name);
        self.programs.is_empty() || self.programs.iter().any(|program| program == name)
    }

    /// `late-errors`.
    #[must_use]
    pub const fn late_errors(&self) -> LateErrors {
        self.late_errors
    }

    /// The text for the pass (`STEADFAST_PASS`).
    #[must_use]
    pub fn for_pass(&self) -> String {
        let mut text = format!("{VERSION}\n");
        for (of_library, word) in [(true, "library"), (false, "program")] {
            let _ = writeln!(text, "{word}");
            for (name, (verb, rest)) in &self.treatments {
                if self.library.contains(name) == of_library {
                    let _ = writeln!(text, "{}", format!("{verb} {name} {rest}").trim_end());
                }
            }
        }
        for name in &self.own {
            let _ = writeln!(text, "own {name}");
        }
        for line in self
            .handlers
            .values()
            .chain(self.outputs.values())
            .chain(self.variables.values())
        {
            let _ = writeln!(text, "{line}");
        }
        // After the handlers, which they are about.
        for name in &self.streams {
            let _ = writeln!(text, "stream {name}");
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
        assert!(text.starts_with(&format!("{VERSION}\n")));
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
    fn what_is_built_in_is_told_from_what_a_file_says() {
        let mut policy = Policy::built_in().expect("checked above");
        policy
            .add(Path::new("own"), "once index\nown rindex\n")
            .expect("two statements");
        let text = policy.for_pass();
        let (library, program) = text.split_once("\nprogram\n").expect("two parts");
        assert!(library.starts_with(&format!("{VERSION}\nlibrary\n")));
        assert!(library.contains("\npure strlen\n"));
        assert!(program.starts_with("once index\n"));
        assert!(!text.contains("pure index\n") && !text.contains("pure rindex\n"));
    }

    #[test]
    fn names_that_may_be_missing_are_not_asked_for() {
        let mut policy = Policy::built_in().expect("checked above");
        policy
            .add(
                Path::new("own"),
                "once a ?b\nwrap ?c d\nignore e\nprograms server\nlate-errors next-call\n",
            )
            .expect("statements");
        let names: Vec<_> = policy.own_names().collect();
        assert_eq!(names, [("a", "once"), ("e", "ignore")]);
        let text = policy.for_pass();
        assert!(text.contains("\nonce b\n") && text.contains("\nwrap c d\n"));
        assert!(policy.is_for(Path::new("/x/.libs/lt-server")));
        assert!(!policy.is_for(Path::new("client")));
        assert_eq!(policy.late_errors(), LateErrors::NextCall);
    }

    #[test]
    fn a_stream_comes_after_its_handler() {
        let mut policy = Policy::default();
        policy
            .add(Path::new("p"), "handler h input=0:line\nstream h\n")
            .expect("a handler with an input");
        assert!(
            policy
                .for_pass()
                .contains("\nhandler h input=0:line\nstream h\n")
        );
    }

    #[test]
    fn fields_are_told_from_arguments() {
        let mut policy = Policy::default();
        policy
            .add(Path::new("p"), "handler h input=0:1\noutput f 1-#2:2+#4\n")
            .expect("arguments and numbers");
        assert!(!policy.names_fields());
        let line = "handler g input=0->end-0->item(head)->bytes:0->item(head)->bytes-#2 unless=0->state.flags&32";
        policy.add(Path::new("p"), line).expect("fields");
        assert!(policy.names_fields());
        assert!(policy.for_pass().contains(&format!("\n{line}\n")));
    }

    #[test]
    fn what_is_no_statement_is_named_with_its_line() {
        for (text, why) in [
            ("\nprotect x", "a statement is needed"),
            (
                "\nhandler",
                "`handler NAME [input=A:B [unless=C&MASK]]` is needed",
            ),
            (
                "\nhandler h input=a:b",
                "the number of an argument is needed (from 0)",
            ),
            (
                "\nlocal-handler h input=0:1",
                "`handler NAME [input=A:B [unless=C&MASK]]` is needed",
            ),
            ("\noutput f", "`output NAME A:B [unless=C&MASK]` is needed"),
            ("\noutput f 0", "a place and a length are needed (`A:B`)"),
            (
                "\noutput f 0->:1",
                "an argument's number (from 0), a field behind it, or # and a number",
            ),
            (
                "\noutput f 0->a(b:1",
                "an argument's number (from 0), a field behind it, or # and a number",
            ),
            (
                "\nhandler h input=0:#x",
                "an argument's number (from 0), a field behind it, or # and a number",
            ),
            (
                "\nhandler h input=0:1 unless=2",
                "`unless=C&MASK` is needed",
            ),
            ("\nhandler h input=0:1 unless=2&x", "a mask is a number"),
            ("\nrefuse f", "`refuse NAME REASON` is needed"),
            (
                "\nstream h",
                "the name of a handler with an input, said before, is needed",
            ),
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
