//! Arbiter: which of two disks is wrong about a page. Pure: digests in, verdict out.
//!
//! Four opinions: the page as each site's disk gives it, and its digest in each site's ledger. A
//! page is right when a ledger vouches for it and no ledger vouches for the other page.
//!
//! Not covered: an error in the program or in memory (the claims of the two sites then differ,
//! crates/agent/src/log.c).

/// What is known about one page.
#[derive(Debug, Clone)]
pub(crate) struct Opinions {
    pub(crate) primary: u128,
    pub(crate) secondary: u128,
    /// Digests that each ledger accepts; empty where it does not know the page.
    pub(crate) primary_ledger: Vec<u128>,
    pub(crate) secondary_ledger: Vec<u128>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both give the same by now.
    Equal,
    PrimaryWrong,
    SecondaryWrong,
    /// Neither page, or each of them, has a ledger behind it: nobody guesses.
    Undecided,
}

pub(crate) fn judge(opinions: &Opinions) -> Verdict {
    let vouched = |digest: u128| {
        opinions.primary_ledger.contains(&digest) || opinions.secondary_ledger.contains(&digest)
    };
    if opinions.primary == opinions.secondary {
        return Verdict::Equal;
    }
    match (vouched(opinions.primary), vouched(opinions.secondary)) {
        (true, false) => Verdict::SecondaryWrong,
        (false, true) => Verdict::PrimaryWrong,
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opinions(primary: u128, secondary: u128, ledgers: [&[u128]; 2]) -> Opinions {
        Opinions {
            primary,
            secondary,
            primary_ledger: ledgers[0].to_vec(),
            secondary_ledger: ledgers[1].to_vec(),
        }
    }

    #[test]
    fn the_ledger_decides_and_nobody_guesses() {
        assert_eq!(judge(&opinions(1, 1, [&[1], &[1]])), Verdict::Equal);
        assert_eq!(
            judge(&opinions(1, 2, [&[1], &[1]])),
            Verdict::SecondaryWrong
        );
        assert_eq!(judge(&opinions(2, 1, [&[1], &[1]])), Verdict::PrimaryWrong);
        assert_eq!(
            judge(&opinions(1, 2, [&[1], &[9]])),
            Verdict::SecondaryWrong,
            "one ledger is lost or damaged"
        );
        assert_eq!(
            judge(&opinions(1, 2, [&[1], &[2]])),
            Verdict::Undecided,
            "two against two"
        );
        assert_eq!(
            judge(&opinions(1, 2, [&[3], &[3]])),
            Verdict::Undecided,
            "both disks are wrong"
        );
        assert_eq!(
            judge(&opinions(1, 2, [&[], &[]])),
            Verdict::Undecided,
            "the page was never enrolled"
        );
        assert_eq!(
            judge(&opinions(1, 2, [&[5, 1], &[5, 1]])),
            Verdict::SecondaryWrong,
            "written, not durable yet"
        );
    }
}
