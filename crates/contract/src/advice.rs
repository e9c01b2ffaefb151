//! What an error owes the user beside its message: a way out.
//!
//! The command prints every error in one shape, so no part formats its own:
//!
//! ```text
//! steadfast: requirement, value found
//!   cause: the chain of sources, once
//!   fix:   what to do about it
//!   or:    an alternative                     (and what it costs)
//! ```
//!
//! Three kinds of failure stay three types of exit: [`crate::exit::Own::Setup`] when the user
//! can fix it, [`crate::exit::Own::Mismatch`] when the product did its work, and
//! [`crate::exit::Own::Bug`] when it is our fault.

use crate::exit::Own;

/// One thing a user can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// A command, a flag or an action, ready to be copied.
    pub what: String,
    /// What it costs or how to keep it; empty when there is nothing to say.
    pub note: String,
}

impl Remedy {
    /// An action without a note.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            note: String::new(),
        }
    }

    /// An action and its price.
    pub fn with_note(what: impl Into<String>, note: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            note: note.into(),
        }
    }
}

/// An error that reaches the user.
pub trait Advise: std::error::Error {
    /// The exit code of a run that ends with this error.
    fn exit(&self) -> Own;

    /// What makes the error go away without losing protection.
    fn fix(&self) -> Option<Remedy> {
        None
    }

    /// Ways to go on that give something up, dearest last.
    fn alternatives(&self) -> Vec<Remedy> {
        Vec::new()
    }
}
