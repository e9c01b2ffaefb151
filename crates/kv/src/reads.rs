//! `--reads`: how requests that change nothing are answered, by class.
//!
//! | Mode | Order | Check |
//! |---|---|---|
//! | `voted` | an entry of the log | the vote, before the reply leaves |
//! | `local` | the leader says up to which entry this replica must have executed | the item's bytes against the digest that won the vote when it was written |
//! | `plain` | none: another replica's last write may be missing | none |
//!
//! A class is a command: `get`, `gets`, `mg`. One that changes something (`gat`, `mg` with `N`, `R` or `T`) takes the log, whatever is said here.
//!
//! Not covered: modes of single requests. A client that wants another one asks another replica, or uses another command.

use std::fmt;
use std::str::FromStr;

use crate::request::Request;

/// How one class is answered; each is stronger than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Plain,
    Local,
    Voted,
}

const MODES: [(&str, Mode); 3] = [
    ("plain", Mode::Plain),
    ("local", Mode::Local),
    ("voted", Mode::Voted),
];
const CLASSES: [&str; 3] = ["get", "gets", "mg"];

/// The mode of each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modes([Mode; 3]);

impl Default for Modes {
    fn default() -> Self {
        Self([Mode::Voted; 3])
    }
}

impl Modes {
    /// Of one request.
    pub(crate) fn of(&self, request: &Request) -> Mode {
        let class = match request {
            Request::Get {
                cas: false,
                touch: None,
                ..
            } => 0,
            Request::Get { touch: None, .. } => 1,
            Request::MetaGet { .. } if request.reads() => 2,
            _ => return Mode::Voted,
        };
        self.0[class]
    }

    /// Of requests that are answered together: the strongest of theirs.
    pub(crate) fn of_all(&self, requests: &[Request]) -> Mode {
        requests
            .iter()
            .map(|request| self.of(request))
            .max()
            .unwrap_or(Mode::Voted)
    }

    /// Class and mode, in words.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        CLASSES.into_iter().zip(self.0.map(Mode::word))
    }
}

impl Mode {
    fn word(self) -> &'static str {
        MODES
            .iter()
            .find(|(_, mode)| *mode == self)
            .map_or("voted", |(word, _)| word)
    }
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (class, mode)) in self.words().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{class}={mode}")?;
        }
        Ok(())
    }
}

impl FromStr for Modes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = |word: &str| {
            MODES
                .iter()
                .find(|(known, _)| *known == word)
                .map(|(_, mode)| *mode)
                .ok_or_else(|| {
                    format!(
                        "requirement: voted, local or plain; found: '{word}'\n  fix:   --reads local, or --reads get=local,mg=voted"
                    )
                })
        };
        let mut modes = Self::default();
        for clause in text.split(',') {
            let Some((class, word)) = clause.split_once('=') else {
                modes.0 = [mode(clause)?; 3];
                continue;
            };
            let at = CLASSES.iter().position(|known| *known == class).ok_or_else(|| {
                format!(
                    "requirement: a command that reads, get, gets or mg; found: '{class}'\n  fix:   --reads get=local,mg=voted"
                )
            })?;
            modes.0[at] = mode(word)?;
        }
        Ok(modes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Parsed, parse};

    fn request(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Request(_, request) => request,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn each_class_has_its_mode_and_what_changes_something_takes_the_log() {
        let modes: Modes = "plain,get=local,mg=voted".parse().unwrap();
        for (text, mode) in [
            ("get a\r\n", Mode::Local),
            ("gets a b\r\n", Mode::Plain),
            ("mg a v\r\n", Mode::Voted),
            ("gat 10 a\r\n", Mode::Voted),
            ("me a\r\n", Mode::Voted),
            ("delete a\r\n", Mode::Voted),
        ] {
            assert_eq!(modes.of(&request(text)), mode, "{text}");
        }
        let touching: Modes = "plain".parse().unwrap();
        for flag in ["T10", "N10", "R10"] {
            let text = format!("mg a v {flag}\r\n");
            assert_eq!(touching.of(&request(&text)), Mode::Voted, "{text}");
        }
        let both = [request("gets a\r\n"), request("get a\r\n")];
        assert_eq!(modes.of_all(&both), Mode::Local);
        assert_eq!(modes.to_string().parse(), Ok(modes));
    }

    #[test]
    fn a_wrong_word_says_what_is_needed() {
        for text in ["", "fast", "get=fast", "set=local", "get=local,"] {
            let why = text.parse::<Modes>().unwrap_err();
            assert!(
                why.contains("requirement:") && why.contains("fix:"),
                "{text}: {why}"
            );
        }
    }
}
