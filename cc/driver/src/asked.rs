//! What a command line of `steadfast cc` has asked for.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::coverage::Level;
use crate::policy::State;

/// What our flags have asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) build: Build,
    pub(crate) coverage: Option<Format>,
    pub(crate) explain: Option<String>,
}

/// Text or JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// A compilation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// For clang, without ours.
    pub arguments: Vec<OsString>,
    /// The linked program, if there is one.
    pub program: Option<PathBuf>,
    /// From `--steadfast-policy`.
    pub policies: Vec<PathBuf>,
    /// `--find-nondeterminism`.
    pub trace: bool,
    /// `--protect`.
    pub protect: Level,
    /// `--recover`.
    pub recover: bool,
    /// `--other-core`.
    pub other_core: bool,
    /// `--validate=async`: handlers that may wait for their second run.
    pub validate_later: Option<u32>,
    /// `--hold-output`.
    pub hold_output: bool,
    /// `--barrier`.
    pub barrier: bool,
    /// `--state`.
    pub state: State,
    /// `--between=duplicate`.
    pub between: bool,
    /// The user chose a linker.
    pub(crate) names_linker: bool,
    /// Whether a source is C++, by its ending or by `-x`.
    pub has_cxx: bool,
    /// Link-time optimisation.
    pub(crate) lto: bool,
    /// The user chose a level of debug information.
    pub(crate) debug: bool,
    /// `-r`: a relocatable object, not a program.
    pub(crate) relocatable: bool,
    /// `-shared`: a library, none of which runs hardened.
    pub shared: bool,
    /// What keeps the C library out of the link, which the runtime needs.
    pub no_library: Option<String>,
}
