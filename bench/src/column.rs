//! Columns: the ways in which one program is run.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::product::Flags;

/// Which pages a program gets for its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// As the system is set.
    AsIs,
    /// 4 KiB, whatever the system or the program asks for (PR_SET_THP_DISABLE).
    Small,
    /// Huge ones as far as can be had without touching the program or the system: where
    /// the system leaves it to the program ("madvise"), the C library is asked to ask for them
    /// (GLIBC_TUNABLES), which covers what malloc hands out and not what is static.
    Huge,
}

/// How a program is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Copies that know nothing of each other, side by side, each pinned to a CPU. The time is
    /// that of the slowest, because a group of replicas is as slow as its slowest.
    Bare { copies: usize },
    /// Under the product.
    Protected { replicas: u8, flags: Flags },
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub how: How,
    pub pages: Pages,
}

impl Column {
    #[must_use]
    pub fn bare(name: &str, copies: usize, pages: Pages) -> Self {
        Column {
            name: name.to_owned(),
            how: How::Bare { copies },
            pages,
        }
    }

    #[must_use]
    pub fn protected(name: &str, replicas: u8, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Column {
            name: name.to_owned(),
            how: How::Protected { replicas, flags },
            pages: Pages::AsIs,
        }
    }

    /// How many instances of the program run.
    #[must_use]
    pub fn copies(&self) -> usize {
        match self.how {
            How::Bare { copies } => copies,
            How::Protected { replicas, .. } => replicas.into(),
        }
    }

    /// What is added to the program's environment. As long in every column: where the environment ends
    /// decides where the stack begins, and hmmer2 is 5 % faster or slower for it.
    #[must_use]
    pub fn extra_environment(&self) -> Vec<(OsString, OsString)> {
        let value = match self.pages {
            Pages::Huge => "glibc.malloc.hugetlb=1",
            Pages::AsIs | Pages::Small => "glibc.malloc.hugetlb=0",
        };
        vec![("GLIBC_TUNABLES".into(), value.into())]
    }
}
