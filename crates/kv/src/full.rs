//! What happens where `--memory` is used up. All replicas of a group do the same.

/// What happens to an item for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Full {
    Evict,
    Refuse,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Evict => "evict",
            Self::Refuse => "refuse",
        })
    }
}
