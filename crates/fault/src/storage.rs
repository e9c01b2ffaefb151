//! Storage that lies: which transfers between a program and its files go wrong, and how.
//!
//! A transfer is one call that moves bytes of a file: `read`, `pread`, `readv` and their kin, or
//! `write` and its. The faults are those of Balakrishnan et al.'s and CARP's disks: data changed,
//! stale, misdirected, lost, torn.
//!
//! Invariant: `n=` counts the transfers that can have the fault, so that the n-th one has it.
//!
//! Not covered: files that are mapped; names of files, their sizes and times.

use std::fmt;
use std::num::NonZeroI64;
use std::str::FromStr;

use crate::text;

words! {
    /// Which way the bytes go.
    Access {
        /// From the file.
        Read = "read",
        /// To the file.
        Write = "write",
    }
}

/// Names of files: `*` stands for any characters but `/`, `**` for any, `?` for one but `/`. A
/// pattern without `/` is held against the last part of a path, one with `/` against all of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathGlob(String);

impl PathGlob {
    /// The pattern that this path, and files of the same spelling, match; nothing if it cannot be
    /// written.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        path.parse().ok()
    }

    /// Whether a path matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let path = if self.0.contains('/') {
            path
        } else {
            path.rsplit('/').next().unwrap_or(path)
        };
        matches(self.0.as_bytes(), path.as_bytes())
    }
}

fn matches(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => path.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=path.len()).any(|at| matches(rest, &path[at..])),
        [b'*', rest @ ..] => {
            let end = path.iter().position(|b| *b == b'/').unwrap_or(path.len());
            (0..=end).any(|at| matches(rest, &path[at..]))
        }
        [b'?', rest @ ..] => match path {
            [first, path @ ..] if *first != b'/' => matches(rest, path),
            _ => false,
        },
        [one, rest @ ..] => path.first() == Some(one) && matches(rest, &path[1..]),
    }
}

/// More than four wildcards are a slip, and would take long to match.
const WILDCARDS_MAX: usize = 4;

impl FromStr for PathGlob {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, Self::Err> {
        let odd = |c: char| c.is_whitespace() || c.is_control() || ";#".contains(c);
        if pattern.is_empty() || pattern.contains(odd) {
            return Err("a path has no white space and none of ; and #; * stands for them".into());
        }
        if pattern.replace("**", "*").matches('*').count() > WILDCARDS_MAX {
            return Err(format!("a path has at most {WILDCARDS_MAX} wildcards"));
        }
        Ok(Self(pattern.to_owned()))
    }
}

impl fmt::Display for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Bytes of a file by position, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl Extent {
    /// Whether `len` bytes from `at` on have one of these among them.
    #[must_use]
    pub const fn meets(&self, at: u64, len: u64) -> bool {
        len > 0 && at <= self.last && self.first < at.saturating_add(len)
    }
}

impl FromStr for Extent {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (text::number(first), text::number(last)),
            None => (text::number(text), text::number(text)),
        };
        match (first, last) {
            (Some(first), Some(last)) if first < last || !text.contains('-') && first == last => {
                Ok(Self { first, last })
            }
            _ => Err(()),
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.last != self.first {
            write!(f, "-{}", self.last)?;
        }
        Ok(())
    }
}

/// What a transfer does instead of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storage {
    /// A read brings what stood there before the last write of this run.
    Stale,
    /// A write is acknowledged, and nothing arrives.
    Lost,
    /// A write is acknowledged, and only its first bytes arrive.
    Torn {
        /// How many.
        keep: u64,
    },
    /// The bytes come from, or go to, another place of the file.
    Misdirected {
        /// Its distance.
        by: NonZeroI64,
    },
}

impl Storage {
    /// The words of `kind=` that only transfers have.
    pub const WORDS: [&str; 4] = ["stale", "lost", "torn", "misdirected"];
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("kind=stale"),
            Self::Lost => f.write_str("kind=lost"),
            Self::Torn { keep } => write!(f, "kind=torn keep={keep}"),
            Self::Misdirected { by } => write!(f, "kind=misdirected by={by}"),
        }
    }
}
