//! The flags of `steadfast cc`, each defined once: the parser, the manual, the help and the completions take them from here.
//!
//! They stand among clang's, whose own parser is not ours: what is in no row is clang's.

use std::ffi::OsString;
use std::slice;

use crate::asked::{Asked, Format};
use crate::coverage::Level;
use crate::error::CommandError;
use crate::policy::State;

/// A flag.
#[derive(Debug)]
pub struct Flag {
    /// Without its dashes.
    pub name: &'static str,
    /// What it takes, as a reader is shown it.
    pub value: Option<Value>,
    /// One line.
    pub help: &'static str,
    means: Means,
}

/// A flag's value.
#[derive(Debug, Clone, Copy)]
pub struct Value {
    /// As a reader is shown it.
    pub name: &'static str,
    /// Whether it stands in the flag's own argument, behind `=`.
    pub same_argument: bool,
}

type Word = fn(&mut Asked, &str) -> Result<(), CommandError>;

#[derive(Debug)]
enum Means {
    Switch(fn(&mut Asked)),
    /// Behind `=`.
    Word(Word),
    /// Behind `=`, and one of these; other values are clang's.
    Among(&'static [&'static str], Word),
    /// A file: behind `=`, or the next argument.
    File(fn(&mut Asked, OsString)),
    /// The next argument.
    Next(fn(&mut Asked, String)),
}

const fn switch(name: &'static str, set: fn(&mut Asked), help: &'static str) -> Flag {
    Flag {
        name,
        value: None,
        help,
        means: Means::Switch(set),
    }
}

const fn takes(name: &'static str, value: &'static str, means: Means, help: &'static str) -> Flag {
    let same_argument = !matches!(means, Means::Next(_));
    Flag {
        name,
        value: Some(Value {
            name: value,
            same_argument,
        }),
        help,
        means,
    }
}

/// All of them.
pub const FLAGS: &[Flag] = &[
    takes(
        "steadfast-policy",
        "FILE",
        Means::File(|asked, path| asked.build.policies.push(path.into())),
        "What handlers, inputs and outputs are: steadfast-policy(5); also STEADFAST_POLICY=FILE",
    ),
    takes(
        "coverage",
        "text|json",
        // Alone it is gcov's.
        Means::Among(&["text", "json"], |asked, word| {
            asked.coverage = Some(match word {
                "json" => Format::Json,
                _ => Format::Text,
            });
            Ok(())
        }),
        "Say what was hardened in the PROGRAM that follows, and what was not",
    ),
    takes(
        "explain",
        "FILE:LINE",
        Means::Next(|asked, place| asked.explain = Some(place)),
        "Say what was done with this line in the PROGRAM that follows",
    ),
    switch(
        "find-nondeterminism",
        |asked| asked.build.trace = true,
        "For all files and the link: name the first store in which the runs of a handler differ",
    ),
    switch(
        "recover",
        |asked| asked.build.recover = true,
        "For all files and the link: put memory back after a difference and run the handler again",
    ),
    takes(
        "protect",
        "full|sei",
        Means::Word(|asked, word| {
            asked.build.protect = match word {
                "sei" => Level::Sei,
                "full" => Level::Full,
                other => return Err(CommandError::Protect(other.to_owned())),
            };
            Ok(())
        }),
        "For all files and the link: all checks, or the paper's rules R1 to R9 and no more [default: full]",
    ),
    switch(
        "other-core",
        |asked| asked.build.other_core = true,
        "At the link: each handler's second run on another core",
    ),
    switch(
        "barrier",
        |asked| asked.build.barrier = true,
        "At the link: what leaves waits for threads that are inside a handler",
    ),
    takes(
        "state",
        "ecc|dup|crc|dup,crc",
        Means::Word(|asked, words| {
            asked.build.state = state(words)?;
            Ok(())
        }),
        "For all files and the link: copies or checksums of named objects between handlers [default: ecc]",
    ),
    takes(
        "between",
        "off|duplicate",
        Means::Word(|asked, word| {
            asked.build.between = match word {
                "off" => false,
                "duplicate" => true,
                other => return Err(CommandError::Between(other.to_owned())),
            };
            Ok(())
        }),
        "For a file: compute code outside handlers twice and compare [default: off]",
    ),
    takes(
        "validate",
        "sync|async[:HANDLERS]",
        Means::Word(|asked, word| {
            asked.build.validate_later = validate(word)?;
            Ok(())
        }),
        "For all files and the link: second runs later, on another core, at most so many handlers behind (64 if none is said) [default: sync]",
    ),
    switch(
        "hold-output",
        |asked| asked.build.hold_output = true,
        "At the link, with --validate=async: messages wait until all handlers before them are validated",
    ),
];

/// The flags for people, a line each: what `--help` says before clang's own.
#[must_use]
pub fn help() -> String {
    let words: Vec<String> = FLAGS
        .iter()
        .map(|flag| match flag.value {
            None => format!("--{}", flag.name),
            Some(value) if value.same_argument => format!("--{}={}", flag.name, value.name),
            Some(value) => format!("--{} {}", flag.name, value.name),
        })
        .collect();
    let width = words.iter().map(String::len).max().unwrap_or_default();
    let mut text = String::from("Flags of steadfast cc, which stand among clang's:\n");
    for (words, flag) in words.iter().zip(FLAGS) {
        text += &format!("  {words:width$}  {}\n", flag.help);
    }
    text
}

/// Names that a flag had before, or has where clang has the other.
const ALIASES: &[(&str, &str)] = &[
    ("--steadfast-coverage", "--coverage=text"),
    ("--steadfast-coverage=json", "--coverage=json"),
];

/// Whether the argument is one of ours; it is taken then, and its value from the rest.
pub(crate) fn take(
    asked: &mut Asked,
    argument: &str,
    rest: &mut slice::Iter<'_, OsString>,
) -> Result<bool, CommandError> {
    let argument = ALIASES
        .iter()
        .find(|(alias, _)| *alias == argument)
        .map_or(argument, |(_, meant)| meant);
    let Some(argument) = argument.strip_prefix("--") else {
        return Ok(false);
    };
    let (name, value) = argument
        .split_once('=')
        .map_or((argument, None), |(name, value)| (name, Some(value)));
    let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else {
        return Ok(false);
    };
    let next = |rest: &mut slice::Iter<'_, OsString>| {
        rest.next().cloned().ok_or(CommandError::NoValue(flag.name))
    };
    match (&flag.means, value) {
        (Means::Switch(set), None) => set(asked),
        (Means::Word(set), Some(word)) => set(asked, word)?,
        (Means::Among(words, set), Some(word)) if words.contains(&word) => set(asked, word)?,
        (Means::File(set), Some(path)) => set(asked, path.into()),
        (Means::File(set), None) => set(asked, next(rest)?),
        (Means::Next(set), None) => set(asked, next(rest)?.to_string_lossy().into_owned()),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Handlers that may wait when none is said. A burst of so many is a few hundred microseconds of work for most handlers.
pub(crate) const LAG: u32 = 64;
/// As many as the runtime has places for (cc/runtime/async.c: `LAG_MAX`).
const LAG_MAX: u32 = 4096;

fn state(words: &str) -> Result<State, CommandError> {
    let mut state = State::default();
    for word in words.split(',') {
        match word {
            "ecc" if words == "ecc" => {}
            "dup" => state.dup = true,
            "crc" => state.crc = true,
            _ => return Err(CommandError::State(words.to_owned())),
        }
    }
    Ok(state)
}

fn validate(word: &str) -> Result<Option<u32>, CommandError> {
    let handlers = match word.split_once(':') {
        None if word == "sync" => return Ok(None),
        None if word == "async" => Some(LAG),
        Some(("async", number)) => number.parse().ok(),
        _ => None,
    };
    handlers
        .filter(|&n| (1..=LAG_MAX).contains(&n))
        .map(Some)
        .ok_or_else(|| CommandError::Validate(word.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_a_line_of_each_flag() {
        let text = help();
        assert_eq!(text.lines().count(), FLAGS.len() + 1);
        for words in [
            "--recover ",
            "--state=ecc|dup|crc|dup,crc ",
            "--explain FILE:LINE ",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }
}
