//! Commands that whoever leads carries out: `transfer` and `remove`.
//!
//! A leader that has just died is named as one until another is elected, and counts as alive until it has been silent for long enough. So a
//! command asks again, within a limit, until it is done or one that leads has said why not.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use steadfast_group::secret;

use crate::ask::{ask_within, plain, status_of};
use crate::cli::At;
use crate::service::{HEARD, NOT_LEADER, NOT_TAKEN};

/// An election takes two seconds at most, and as long a replica that has died counts as one that answers.
const LIMIT: Duration = Duration::from_secs(10);
/// How long one that leads may take: a member goes when f+1 have that in their logs.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a replica that lives may take to say so.
const ALIVE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);

/// What came of one attempt.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Done,
    /// It may be otherwise soon.
    Later(String),
    Refused(String),
}

/// What an answer means. `answers` finds out whether the replica that is to be removed says anything.
fn meaning(answer: &str, answers: impl FnOnce() -> bool) -> Said {
    let is_later = answer == "ASKED"
        || answer == NOT_LEADER
        || answer.starts_with(NOT_TAKEN)
        || (answer.contains(HEARD) && !answers());
    match answer {
        "DONE" => Said::Done,
        _ if is_later => Said::Later(plain(answer)),
        _ => Said::Refused(plain(answer)),
    }
}

/// Has whoever leads do something about a replica, and asks until it is done.
pub(crate) fn order(what: &str, replica: u64, at: &At, secret: &Path) -> anyhow::Result<()> {
    let secret = secret::read(secret)?;
    let until = Instant::now() + LIMIT;
    let line = format!("sf {what} {secret:032x} {replica}");
    let mut was_member = false;
    loop {
        let status = status_of(at)?;
        let members = status["members"].as_array().cloned().unwrap_or_default();
        let client = |slot: &serde_json::Value| {
            let mut with = members.iter().filter(|it| it["replica"] == *slot);
            with.next()
                .and_then(|it| it["client"].as_str())
                .map(str::to_owned)
        };
        let wanted = client(&replica.into());
        // An order whose answer was lost may have been carried out.
        if what == "remove" && was_member && wanted.is_none() {
            return Ok(());
        }
        was_member |= wanted.is_some();
        let leader = client(&status["leader"]).unwrap_or_else(|| at.at.clone());
        let answers = || {
            let to = wanted.as_deref().map(|client| at.also(client));
            to.is_some_and(|to| ask_within(&to, "sf status", ALIVE).is_ok())
        };
        let said = match ask_within(&at.also(&leader), &line, ANSWER) {
            Ok(answer) => meaning(&answer, answers),
            Err(why) => Said::Later(format!("{why:#}")),
        };
        match said {
            Said::Done => return Ok(()),
            Said::Refused(why) => bail!("{why}"),
            Said::Later(why) if Instant::now() > until => bail!(
                "{what}: requirement: a leader that carries it out; found: none within {} s: {why}\n  fix:   steadfast kv status: f+1 replicas have to answer",
                LIMIT.as_secs()
            ),
            Said::Later(_) => std::thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_otherwise_soon_is_asked_again_and_nothing_else_is() {
        struct Row<'a> {
            answer: &'a str,
            /// Whether the replica that the answer is about still answers.
            is_there: bool,
            later: bool,
        }
        let heard = "ERROR requirement: a replica that does not answer; found: replica 2 answers; fix: stop it first";
        let rows = [
            Row {
                answer: "ASKED",
                is_there: true,
                later: true,
            },
            Row {
                answer: NOT_LEADER,
                is_there: true,
                later: true,
            },
            Row {
                answer: "ERROR the log has not taken it: has to forward",
                is_there: true,
                later: true,
            },
            Row {
                answer: heard,
                is_there: false,
                later: true,
            },
            Row {
                answer: heard,
                is_there: true,
                later: false,
            },
            Row {
                answer: "ERROR the group has no replica '7'",
                is_there: true,
                later: false,
            },
        ];
        for row in rows {
            let said = meaning(row.answer, || row.is_there);
            let later = matches!(said, Said::Later(_));
            assert_eq!(later, row.later, "{}: {said:?}", row.answer);
        }
        assert_eq!(meaning("DONE", || true), Said::Done);
    }
}
