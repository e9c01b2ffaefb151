//! Parts of the product that are binaries of their own: `steadfast NAME ARGUMENTS` executes `steadfast-NAME`.
//!
//! The launcher of `run` stays free of what they are built on. A part's binary is looked for beside this one, then in ../libexec/steadfast,
//! then on PATH.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;

/// A part, and how its binary is made.
pub(crate) struct Part {
    name: &'static str,
    build: &'static str,
}

const PARTS: &[Part] = &[
    Part {
        name: "host",
        build: "make build-host",
    },
    Part {
        name: "kv",
        build: "make build-kv",
    },
    Part {
        name: "pair",
        build: "make build-pair",
    },
];

/// The part of that name.
pub(crate) fn named(word: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.name == word)
}

/// A part's binary is not there, or cannot be executed.
#[derive(Debug, thiserror::Error)]
#[error(
    "steadfast {name} needs the program steadfast-{name}, which was not found beside this one, in libexec or on PATH"
)]
pub(crate) struct Missing {
    name: &'static str,
    build: &'static str,
    source: std::io::Error,
}

impl Advise for Missing {
    fn exit(&self) -> Own {
        Own::NotFound
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new(self.build))
    }
}

impl Part {
    fn binary(&self) -> PathBuf {
        let name = format!("steadfast-{}", self.name);
        let beside = std::env::current_exe()
            .ok()
            .and_then(|own| own.parent().map(PathBuf::from));
        let places = beside.iter().flat_map(|folder| {
            [
                folder.join(&name),
                folder.join("../libexec/steadfast").join(&name),
            ]
        });
        places
            .into_iter()
            .find(|path| path.is_file())
            .unwrap_or_else(|| name.into())
    }

    /// Becomes the part's program.
    pub(crate) fn execute(&self, arguments: &[OsString]) -> Result<Infallible, Missing> {
        let source = Command::new(self.binary()).args(arguments).exec();
        Err(Missing {
            name: self.name,
            build: self.build,
            source,
        })
    }
}
