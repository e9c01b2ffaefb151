//! Arbiter: which of two disks is wrong about a page, and which of two programs about an event. Pure: digests in, verdict out.
//!
//! Four digests tell: the page as each site's disk gives it, and its digest in each site's ledger. A
//! page is right when a ledger vouches for it and no ledger vouches for the other page. A page that was written and is not
//! durable yet has two digests: while the program runs a disk has to give the new one, so the old one is a lost write.
//!
//! Where no page is right, the digest that both ledgers have may still fit a page made of the two (mosaic.rs).
//!
//! Where the programs claim different things, no read was wrong: both disks have given the same. Each host then runs the
//! past again, and what the re-runs of both come to is right. A processor that always computes wrongly has its own re-run
//! on its side, and not the other host's.
//!
//! Not covered: two hosts that err alike.

use serde::{Deserialize, Serialize};

/// What is known about one page.
#[derive(Debug, Clone)]
pub(crate) struct Evidence {
    pub(crate) primary: u128,
    pub(crate) secondary: u128,
    /// Digests that each ledger accepts, what the page is now before what it was when it was last durable; empty where it does
    /// not know the page.
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

impl Evidence {
    /// What both ledgers say that the page is now, where neither disk has it.
    pub(crate) fn nowhere(&self) -> Option<u128> {
        let now = *self.primary_ledger.first()?;
        let on_a_disk = now == self.primary || now == self.secondary;
        (self.secondary_ledger.first() == Some(&now) && !on_a_disk).then_some(now)
    }
}

pub(crate) fn judge(evidence: &Evidence) -> Verdict {
    let vouched = |digest: u128| {
        evidence.primary_ledger.contains(&digest) || evidence.secondary_ledger.contains(&digest)
    };
    if evidence.primary == evidence.secondary {
        return Verdict::Equal;
    }
    let is_now = |digest: u128| {
        let ledgers = [&evidence.primary_ledger, &evidence.secondary_ledger];
        ledgers.iter().any(|ledger| ledger.first() == Some(&digest))
    };
    match (vouched(evidence.primary), vouched(evidence.secondary)) {
        (true, false) => Verdict::SecondaryWrong,
        (false, true) => Verdict::PrimaryWrong,
        (true, true) => match (is_now(evidence.primary), is_now(evidence.secondary)) {
            (true, false) => Verdict::SecondaryWrong,
            (false, true) => Verdict::PrimaryWrong,
            _ => Verdict::Undecided,
        },
        (false, false) => Verdict::Undecided,
    }
}

/// What one host knows about a disputed event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) claim: u128,
    /// What its re-run claims, and the memory that this has then.
    pub(crate) again: Option<u128>,
    pub(crate) image: Option<u128>,
    /// The program's memory, where it stands at the event as well.
    pub(crate) program: Option<u128>,
}

impl Host {
    fn is(&self, claim: u128, image: u128) -> bool {
        self.claim == claim && self.program.is_none_or(|program| program == image)
    }
}

/// Whether the program of each site is wrong, or why nobody knows.
pub(crate) fn judge_programs(a: &Host, b: &Host) -> Result<[bool; 2], &'static str> {
    let (Some(claim), Some(other)) = (a.again, b.again) else {
        return Err("a host has no snapshot to run again from");
    };
    if claim != other {
        return Err(if a.claim == claim && b.claim == other {
            "each host comes to its own claim again"
        } else {
            "the re-runs of the two hosts differ"
        });
    }
    let (Some(image), true) = (a.image, a.image == b.image) else {
        return Err("the memory of the two re-runs differs");
    };
    if a.claim == b.claim && a.claim != claim {
        return Err("both programs claim what no re-run comes to");
    }
    Ok([a, b].map(|host| !host.is(claim, image)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(primary: u128, secondary: u128, ledgers: [&[u128]; 2]) -> Evidence {
        Evidence {
            primary,
            secondary,
            primary_ledger: ledgers[0].to_vec(),
            secondary_ledger: ledgers[1].to_vec(),
        }
    }

    #[test]
    fn what_the_re_runs_of_both_hosts_come_to_is_right_and_nobody_guesses() {
        let host = |claim, again, image| Host {
            claim,
            again: Some(again),
            image: Some(image),
            program: None,
        };
        let judge = |a: Host, b: Host| judge_programs(&a, &b);
        assert_eq!(judge(host(1, 1, 7), host(2, 1, 7)), Ok([false, true]));
        assert_eq!(judge(host(2, 1, 7), host(1, 1, 7)), Ok([true, false]));
        assert_eq!(
            judge(host(2, 1, 7), host(3, 1, 7)),
            Ok([true, true]),
            "both erred, and both become what the past comes to"
        );
        let latent = Host {
            program: Some(8),
            ..host(1, 1, 7)
        };
        assert_eq!(
            judge(latent, host(2, 1, 7)),
            Ok([true, true]),
            "it claims what is right, and holds an error that no event has shown"
        );
        let clean = Host {
            program: Some(7),
            ..host(1, 1, 7)
        };
        assert_eq!(judge(clean, host(2, 1, 7)), Ok([false, true]));
        let nobody_knows = |a, b, why| {
            let told = judge(a, b).expect_err("nobody knows");
            assert!(told.contains(why), "{told}");
        };
        nobody_knows(host(1, 1, 7), host(2, 2, 8), "its own claim again");
        nobody_knows(host(1, 2, 7), host(2, 1, 8), "of the two hosts differ");
        nobody_knows(host(1, 1, 7), host(2, 1, 8), "memory of the two re-runs");
        nobody_knows(host(1, 2, 7), host(1, 2, 7), "what no re-run comes to");
        let without = Host {
            claim: 2,
            ..Host::default()
        };
        nobody_knows(host(1, 1, 7), without, "no snapshot");
    }

    #[test]
    fn a_page_is_put_together_only_where_both_ledgers_agree_and_no_disk_has_it() {
        assert_eq!(evidence(1, 2, [&[3], &[3]]).nowhere(), Some(3));
        assert_eq!(evidence(1, 2, [&[3, 1], &[3]]).nowhere(), Some(3));
        assert_eq!(evidence(1, 2, [&[3], &[4]]).nowhere(), None);
        assert_eq!(evidence(1, 2, [&[2], &[2]]).nowhere(), None);
        assert_eq!(evidence(1, 2, [&[], &[3]]).nowhere(), None);
    }

    #[test]
    fn the_ledger_decides_and_nobody_guesses() {
        assert_eq!(judge(&evidence(1, 1, [&[1], &[1]])), Verdict::Equal);
        assert_eq!(
            judge(&evidence(1, 2, [&[1], &[1]])),
            Verdict::SecondaryWrong
        );
        assert_eq!(judge(&evidence(2, 1, [&[1], &[1]])), Verdict::PrimaryWrong);
        assert_eq!(
            judge(&evidence(1, 2, [&[1], &[9]])),
            Verdict::SecondaryWrong,
            "one ledger is lost or damaged"
        );
        assert_eq!(
            judge(&evidence(1, 2, [&[1], &[2]])),
            Verdict::Undecided,
            "two against two"
        );
        assert_eq!(
            judge(&evidence(1, 2, [&[3], &[3]])),
            Verdict::Undecided,
            "both disks are wrong"
        );
        assert_eq!(
            judge(&evidence(1, 2, [&[], &[]])),
            Verdict::Undecided,
            "the page was never enrolled"
        );
        assert_eq!(
            judge(&evidence(1, 2, [&[5, 1], &[5, 1]])),
            Verdict::SecondaryWrong,
            "written, not durable yet"
        );
        assert_eq!(
            judge(&evidence(5, 1, [&[5, 1], &[5, 1]])),
            Verdict::SecondaryWrong,
            "a write that is not durable yet, and that one disk has lost"
        );
        assert_eq!(
            judge(&evidence(1, 5, [&[5, 1], &[5, 1]])),
            Verdict::PrimaryWrong,
            "the same of the other one"
        );
        assert_eq!(
            judge(&evidence(5, 1, [&[5, 1], &[1]])),
            Verdict::Undecided,
            "one ledger knows of a write, and the other one does not"
        );
    }
}
