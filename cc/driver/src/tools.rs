//! Where clang, the pass and the runtime are. All of them, or an error: nothing is compiled with a piece missing.
//!
//! ```text
//! build tree   target/release/steadfast     target/release/cc/{steadfast-pass.so,libsteadfast-sei.a,libsteadfast-level-sei.a,libsteadfast-plain.a,leave.o,hold.o,barrier.o,include/,complete}
//! installed    PREFIX/bin/steadfast         PREFIX/lib/steadfast/...
//! ```
//! `STEADFAST_HARDEN` names another folder.

use std::env;
use std::path::{Path, PathBuf};

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;

/// The major version that the pass is built for.
pub const LLVM_MAJOR: u32 = 19;

/// A piece is missing.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// No compiler.
    #[error("{name} is needed to harden, it is not on PATH")]
    NoClang {
        /// What is looked for.
        name: String,
    },
    /// No pass, runtime or header.
    #[error("the compiler pass and its runtime are needed, {missing} is not there")]
    NoHarden {
        /// The file.
        missing: PathBuf,
    },
    /// Not even our own path is known.
    #[error("the path of this program is needed to find its compiler pass")]
    NoSelf(#[source] std::io::Error),
}

impl Advise for ToolsError {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        Some(match self {
            Self::NoClang { .. } => Remedy::new(format!(
                "apt-get install clang-{LLVM_MAJOR}     (as root; Debian 12 has it)"
            )),
            Self::NoHarden { .. } => Remedy::with_note(
                "make build",
                "and make install, if this is an installed command",
            ),
            Self::NoSelf(_) => Remedy::new("mount /proc, or set STEADFAST_HARDEN"),
        })
    }
}

/// Everything that compiling needs.
#[derive(Debug, Clone)]
pub struct Tools {
    /// clang-19 or clang++-19.
    pub clang: PathBuf,
    /// The plugin.
    pub pass: PathBuf,
    /// The runtime.
    pub runtime: PathBuf,
    /// The same for `--protect=sei`.
    pub runtime_sei: PathBuf,
    /// What stands for it in shared libraries.
    pub plain: PathBuf,
    /// Linked with `--validate=async`.
    pub leave: PathBuf,
    /// Linked with `--hold-output`.
    pub hold: PathBuf,
    /// Linked with `--barrier`.
    pub barrier: PathBuf,
    /// Linked with `late-errors next-call` of a policy.
    pub late: PathBuf,
    /// For `#include <steadfast/sei.h>`.
    pub include: PathBuf,
}

impl Tools {
    /// Finds all pieces.
    ///
    /// # Errors
    /// When one is missing.
    pub fn find(cxx: bool) -> Result<Self, ToolsError> {
        let name = format!("clang{}-{LLVM_MAJOR}", if cxx { "++" } else { "" });
        let clang = on_path(&name).ok_or(ToolsError::NoClang { name })?;
        let folder = match env::var_os("STEADFAST_HARDEN") {
            Some(folder) => PathBuf::from(folder),
            None => beside(&env::current_exe().map_err(ToolsError::NoSelf)?),
        };
        let piece = |name: &str| {
            let path = folder.join(name);
            if path.exists() {
                Ok(path)
            } else {
                Err(ToolsError::NoHarden { missing: path })
            }
        };
        // Made last, so that a build that was cut off is not taken for a whole one.
        piece("complete")?;
        Ok(Self {
            clang,
            pass: piece("steadfast-pass.so")?,
            runtime: piece("libsteadfast-sei.a")?,
            runtime_sei: piece("libsteadfast-level-sei.a")?,
            plain: piece("libsteadfast-plain.a")?,
            leave: piece("leave.o")?,
            hold: piece("hold.o")?,
            barrier: piece("barrier.o")?,
            late: piece("late.o")?,
            include: piece("include/steadfast/sei.h")
                .and_then(|_| piece("include/steadfast/cxx.h"))
                .and_then(|_| piece("include/steadfast/containers.h"))
                .map(|_| folder.join("include"))?,
        })
    }
}

/// The folder of the pass for a command at `exe`.
fn beside(exe: &Path) -> PathBuf {
    let folder = exe.parent().unwrap_or(Path::new("/"));
    let built = folder.join("cc");
    if built.exists() {
        return built;
    }
    folder.join("../lib/steadfast")
}

fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
