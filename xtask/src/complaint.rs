//! What `xtask tidy` has to say, and of what.

use std::collections::BTreeMap;

/// One complaint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    pub file: String,
    pub line: usize,
    pub why: String,
}

/// Pages by their path in the repository.
pub(crate) type Pages = BTreeMap<String, String>;

pub(crate) fn complaint(file: &str, line: usize, why: String) -> Complaint {
    Complaint {
        file: file.to_owned(),
        line,
        why,
    }
}
