//! What a server's run was: by its client's answers first, then by how the server ended.
//!
//! Invariant: a whole reply that is wrong and that nobody rejected is `sdc`, whatever the server does next.

use steadfast_contract::outcome::Leaf;

use super::{Captured, Compared, Evidence};
use crate::record::Pattern;
use crate::server::{CLIENT, Driver, Served, Talk, is_replies};
use crate::target::Ran;

/// Why a run without a fault cannot be a golden one.
pub(crate) fn obstacle(ran: &Ran, captured: &Captured) -> Option<(String, &'static str)> {
    let served = ran.served.as_ref()?;
    let said = first_line(captured, "stderr");
    let own = || {
        format!(
            "one that ended by itself (status {:?}, signal {:?}){said}",
            ran.status, ran.signal
        )
    };
    if served.ready_ns.is_none() {
        return Some(if ran.timed_out {
            (
                format!("one that was never ready{said}"),
                "--ready PORT, a path with a slash, or what it says",
            )
        } else {
            (
                own(),
                "run the server by hand as the user of the sandbox (--user)",
            )
        });
    }
    if ran.timed_out {
        return Some((
            "one whose client was not done in time".into(),
            "--patience SECONDS, or a shorter trace",
        ));
    }
    if !served.lived {
        return Some((own(), "a server that goes on until it is stopped (--stop)"));
    }
    let fix = "the trace's replies have to be those of this server, started as it is here";
    match served.talk {
        // A client that fails without a fault would call every run a right one.
        Talk::Complete if served.signal.is_some() || served.status != Some(0) => Some((
            format!(
                "a client that failed (status {:?}, signal {:?}){}",
                served.status,
                served.signal,
                first_line(captured, CLIENT)
            ),
            "a --driver that exits with 0 when all was answered; try it by hand beside the server",
        )),
        Talk::Complete if nothing(captured) => Some((
            format!(
                "a client that printed no answers{}",
                first_line(captured, CLIENT)
            ),
            "a --driver that prints what it was answered: that is what is judged",
        )),
        Talk::Complete => None,
        Talk::Wrong => Some((
            format!(
                "a wrong reply to request {} of the trace",
                served.answered + 1
            ),
            fix,
        )),
        _ => Some((
            format!(
                "one that hung up or was rejected at request {} of the trace",
                served.answered + 1
            ),
            fix,
        )),
    }
}

/// Whether a run left nothing that could be judged.
fn nothing(captured: &Captured) -> bool {
    captured
        .0
        .iter()
        .all(|(name, bytes)| bytes.is_empty() || ["stderr", CLIENT].contains(&name.as_str()))
}

/// The beginning of what somebody said, for a message.
fn first_line(captured: &Captured, name: &str) -> String {
    captured.0.get(name).map_or_else(String::new, |said| {
        let said = String::from_utf8_lossy(said);
        format!(": {}", said.lines().next().unwrap_or("nothing said"))
    })
}

/// Whether the first difference between what a client should and did get lies in a line that
/// says that something is wrong.
#[must_use]
pub fn is_error_reply(pattern: &Pattern, golden: &[u8], got: &[u8]) -> bool {
    let at = golden.iter().zip(got).take_while(|(a, b)| a == b).count();
    let from = got[..at]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let line = got[from..]
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or(&[]);
    pattern.is_in(line)
}

/// The leaf of a run of a server, whose fault has fired.
///
/// What the client has been told comes first: of one that was given something wrong, what the server did
/// next changes nothing but the kind of wrong.
pub(crate) fn leaf(e: &Evidence<'_>, served: &Served) -> Leaf {
    let wrong = e.compared.wrong();
    // Nothing wrong has reached the client: all is right, or less than all.
    let clean = !wrong || e.compared.prefix;
    let spoke = e.detection.is_some();
    if let Some(leaf) = e.told(served.talk) {
        return leaf;
    }
    let whole = served.lived && served.talk == Talk::Complete;
    if !clean {
        return match (spoke, whole) {
            (false, _) => Leaf::Sdc,
            (true, true) => Leaf::CorrectedWrong,
            (true, false) => Leaf::SdcLate,
        };
    }
    let late = e.ran.timed_out || e.ran.signal == Some(libc::SIGXCPU);
    // A server that spoke and neither went on nor stopped has hung.
    if spoke && !late {
        return if whole && !wrong {
            Leaf::Corrected
        } else {
            Leaf::DetectedStop
        };
    }
    if late {
        let busy = e.ran.signal == Some(libc::SIGXCPU) || e.ran.cpu_ns >= e.ran.wall_ns / 2;
        return if busy {
            Leaf::HangLivelock
        } else {
            Leaf::HangDeadlock
        };
    }
    if !served.lived {
        return match e.ran.signal {
            Some(libc::SIGABRT) => Leaf::CrashAssert,
            Some(_) => Leaf::CrashSignal,
            None => Leaf::ErrorExit,
        };
    }
    if wrong || served.talk == Talk::Closed {
        return Leaf::Truncated;
    }
    if served.signal.is_some() || served.status != Some(e.status) {
        return Leaf::ErrorExit;
    }
    e.masked()
}

/// Whether a client's own words about a server count as an error reply.
pub(crate) fn said_so(
    driver: Option<&Driver>,
    golden: &Captured,
    captured: &Captured,
    compared: &Compared,
) -> bool {
    let Some(pattern) = driver.and_then(|driver| driver.error_reply.as_ref()) else {
        return false;
    };
    let get = |captured: &Captured, name: &str| captured.0.get(name).cloned().unwrap_or_default();
    // Of several connections every one that was told something wrong has to be told so.
    let mut wrong = compared
        .differ
        .iter()
        .filter(|name| is_replies(name))
        .map(|name| (get(golden, name), get(captured, name)))
        .filter(|(right, got)| !right.starts_with(got))
        .peekable();
    wrong.peek().is_some() && wrong.all(|(right, got)| is_error_reply(pattern, &right, &got))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::compare;
    use crate::record::{Comparator, Detection, Limits};
    use crate::server::{Client, Ready, replies};

    #[test]
    fn an_error_reply_is_a_whole_line_of_its_own() {
        let golden = b"STORED\r\nVALUE a 0 1\r\n";
        let pattern = "^(SERVER_|CLIENT_)?ERROR".parse().expect("a pattern");
        let error = |got: &[u8]| is_error_reply(&pattern, golden, got);
        assert!(error(b"STORED\r\nERROR\r\n"));
        assert!(error(b"SERVER_ERROR out of memory\r\n"));
        assert!(!error(b"STORED\r\nVALUE b ERROR\r\n") && !error(b"STORED\r\nEND\r\n"));
    }

    #[test]
    fn what_one_connection_took_is_not_undone_by_another() {
        assert!(Talk::Wrong > Talk::Rejected && Talk::Rejected > Talk::Closed);
        assert!(Talk::Closed > Talk::Complete);
        let captured = |texts: [&str; 2]| {
            let named = |(index, text): (usize, &str)| (replies(index), text.as_bytes().to_vec());
            Captured(texts.into_iter().enumerate().map(named).collect())
        };
        struct Row {
            replies: [&'static str; 2],
            /// Whether the server said that it failed.
            said_so: bool,
            /// Whether each reply begins as the right one does.
            prefix: bool,
        }
        let golden = captured(["one\n", "two\n"]);
        let driver = Driver {
            client: Client::Command("client".into(), Vec::new()),
            ready: Ready::Port(1),
            stop: libc::SIGKILL,
            error_reply: Some("^E".parse().expect("a pattern")),
        };
        let rows = [
            Row {
                replies: ["ERR\n", "two\n"],
                said_so: true,
                prefix: false,
            },
            Row {
                replies: ["ERR\n", "tw"],
                said_so: true,
                prefix: false,
            },
            Row {
                replies: ["ERR\n", "twx\n"],
                said_so: false,
                prefix: false,
            },
            Row {
                replies: ["o", "tw"],
                said_so: false,
                prefix: true,
            },
        ];
        for row in rows {
            let run = captured(row.replies);
            let compared = compare(&Comparator::Byte, &[], &golden, &run);
            assert_eq!(
                (
                    said_so(Some(&driver), &golden, &run, &compared),
                    compared.prefix
                ),
                (row.said_so, row.prefix),
                "{:?}",
                row.replies
            );
        }
    }

    fn judged(
        got: &str,
        change: impl FnOnce(&mut Ran, &mut Served),
        detection: Option<Detection>,
    ) -> Leaf {
        let captured =
            |text: &str| Captured([("stdout".to_owned(), text.as_bytes().to_vec())].into());
        let golden = captured("one\ntwo\n");
        let compared = compare(&Comparator::Byte, &[], &golden, &captured(got));
        let mut ran = Ran {
            status: Some(0),
            ..Ran::default()
        };
        let mut served = Served {
            ready_ns: Some(1),
            talk: Talk::Complete,
            status: Some(0),
            lived: true,
            ..Served::default()
        };
        change(&mut ran, &mut served);
        leaf(
            &Evidence {
                ran: &ran,
                hits: 1,
                compared: &compared,
                status: 0,
                detection: detection.as_ref(),
                seen: None,
                limits: &Limits::default(),
                error_reply: is_error_reply(
                    &"^E".parse().expect("a pattern"),
                    b"one\ntwo\n",
                    got.as_bytes(),
                ),
            },
            &served,
        )
    }

    #[test]
    fn each_rule_rings() {
        let same = |_: &mut Ran, _: &mut Served| ();
        let talk = |talk| move |_: &mut Ran, served: &mut Served| served.talk = talk;
        let died = |signal: i32| {
            move |ran: &mut Ran, served: &mut Served| {
                (ran.status, ran.signal) = (None, Some(signal));
                (served.talk, served.lived) = (Talk::Closed, false);
            }
        };
        let hung = |ran: &mut Ran, served: &mut Served| {
            ran.timed_out = true;
            (served.talk, served.lived) = (Talk::Unfinished, false);
        };
        assert_eq!(judged("one\ntwo\n", same, None), Leaf::MaskedClean);
        assert_eq!(judged("one\ntwx\n", talk(Talk::Wrong), None), Leaf::Sdc);
        assert_eq!(
            judged("one\nERR\n", talk(Talk::Wrong), None),
            Leaf::ErrorMsg
        );
        assert_eq!(judged("one\n", talk(Talk::Closed), None), Leaf::Truncated);
        assert_eq!(
            judged("one\n", talk(Talk::Rejected), None),
            Leaf::DetectedClient
        );
        assert_eq!(judged("one\n", died(11), None), Leaf::CrashSignal);
        assert_eq!(judged("one\n", died(6), None), Leaf::CrashAssert);
        // A wrong reply stays one, whether the server dies or hangs afterwards.
        assert_eq!(judged("two\n", died(11), None), Leaf::Sdc);
        assert_eq!(judged("two\n", hung, None), Leaf::Sdc);
        assert_eq!(judged("one\n", hung, None), Leaf::HangLivelock);
        let spoke = || {
            Some(Detection {
                by: "cc".into(),
                what: None,
                latency_ns: None,
            })
        };
        assert_eq!(
            judged("one\n", talk(Talk::Closed), spoke()),
            Leaf::DetectedStop
        );
        assert_eq!(judged("two\n", talk(Talk::Wrong), spoke()), Leaf::SdcLate);
        assert_eq!(judged("one\ntwo\n", same, spoke()), Leaf::Corrected);
        // A client that was told knows: a detector that stops the server afterwards takes nothing back,
        // and one that lets it go on has not made the reply right.
        assert_eq!(judged("one\nERR\n", died(6), spoke()), Leaf::ErrorMsg);
        assert_eq!(
            judged("one\nERR\n", talk(Talk::Wrong), spoke()),
            Leaf::ErrorMsg
        );
        assert_eq!(judged("one\nERR\n", same, spoke()), Leaf::ErrorMsg);
        // The other side: the first wrong line is what counts, and this one passes for right.
        assert_eq!(judged("two\nERR\n", died(6), spoke()), Leaf::SdcLate);
        assert_eq!(judged("two\nERR\n", same, spoke()), Leaf::CorrectedWrong);
        assert_eq!(judged("two\nERR\n", died(6), None), Leaf::Sdc);
        // What the envelope refused is the client's finding, whoever spoke beside it.
        assert_eq!(
            judged("one\n", talk(Talk::Rejected), spoke()),
            Leaf::DetectedClient
        );
        // Spoken and then neither gone on nor stopped.
        assert_eq!(judged("one\n", hung, spoke()), Leaf::HangLivelock);
        assert_eq!(judged("two\n", hung, spoke()), Leaf::SdcLate);
    }
}
