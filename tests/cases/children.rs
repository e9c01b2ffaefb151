//! Flips in processes of a tree that are not its first: `process=` names them by order of creation.
//!
//! A flip of one replica, with nothing compared, shows that the fault reaches the process that it names.

use libtest_mimic::{Failed, Trial};
use std::time::Duration;
use steadfast_integrity::event::What;
use steadfast_integrity::exit::Verdict;

use crate::bench::{Bench, one_group};
use crate::check::{Log, last_lines, output_difference, protector};
use crate::run::Invocation;

const LIMIT: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);
/// A shell, a shell in it, a program in that one: processes 0, 1 and 2.
const GRANDCHILD: &str = "sh -c 'wc -c < /bin/sh; :'; echo end";
/// A copy of the shell that becomes no other program.
const COPY: &str = "(echo in the copy; :); echo end";

/// What a flip does in a tree.
struct Flip {
    name: &'static str,
    script: &'static str,
    replicas: u8,
    line: &'static str,
    /// How often it hits, and in a process that is not the first.
    hits: u64,
    in_child: bool,
    verdict: Verdict,
    is_right: bool,
}

impl Flip {
    fn check(&self) -> Result<(), String> {
        let dir = Bench::get().case_dir(&format!("children-{}", self.name));
        let mut invocation = Invocation {
            program: "/bin/sh".into(),
            args: ["-c", self.script].map(str::to_owned).to_vec(),
            ..Invocation::default()
        };
        let bare = invocation.run(&dir, LIMIT)?;
        let events = dir.join("events");
        let _group = one_group();
        invocation.protector = protector(self.replicas, &events, &["--quiet", "--flip", self.line]);
        let ran = invocation.run(&dir, LIMIT)?;
        let wrong = |why: String| {
            format!(
                "{why}\n{}  run:    {}",
                last_lines(&ran),
                invocation.shell_line()
            )
        };
        let difference = output_difference(&bare, &ran);
        if difference.is_none() != self.is_right {
            return Err(wrong(
                difference.unwrap_or("the fault had no effect".into()),
            ));
        }
        let log = Log::read(&events)?;
        let hits: Vec<_> = log.report.faults.iter().map(|fault| fault.hits).collect();
        let told = log.lines.iter().any(|line| {
            matches!(&line.event.what, What::Process(of) if matches!(of.what, What::Fault(_)))
        });
        if (hits, told, log.report.verdict) != (vec![self.hits], self.in_child, self.verdict) {
            let report = &log.report;
            return Err(wrong(format!(
                "told of a child: {told}, {:?}, {:?}",
                report.verdict, report.faults
            )));
        }
        ran.nothing_left(GRACE)?;
        Bench::get().passed(&dir);
        Ok(())
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let repaired = |name, script, line, hits| Flip {
        name,
        script,
        replicas: 2,
        line,
        hits,
        in_child: true,
        verdict: Verdict::Corrected,
        is_right: true,
    };
    let flips = [
        repaired(
            "event_of_grandchild",
            GRANDCHILD,
            "process=2 replica=1 event=12 reg=rax bit=3",
            1,
        ),
        repaired(
            "leader_of_grandchild",
            GRANDCHILD,
            "process=2 replica=leader at=libc.so.6!write n=1 reg=rdx bit=1",
            1,
        ),
        repaired(
            "copy",
            COPY,
            "process=1 replica=leader at=libc.so.6!write n=1 reg=rdx bit=1",
            1,
        ),
        repaired(
            "every_process",
            COPY,
            "process=all replica=1 at=libc.so.6!write n=1 reg=rdx bit=1",
            2,
        ),
        Flip {
            verdict: Verdict::Unprotected,
            replicas: 1,
            is_right: false,
            ..repaired("copy_alone", COPY, "process=1 event=2 mem=[rsi] bit=0", 1)
        },
        // No process is the tenth; without a name it is the first.
        Flip {
            verdict: Verdict::Agreed,
            in_child: false,
            ..repaired("nobody", COPY, "process=9 replica=1 event=2 kill=9", 0)
        },
        Flip {
            in_child: false,
            ..repaired("first_process", COPY, "replica=1 event=12 reg=rax bit=3", 1)
        },
    ];
    let trial = |flip: Flip| {
        Trial::test(format!("faults::in_children::{}", flip.name), move || {
            flip.check().map_err(Failed::from)
        })
    };
    flips.into_iter().map(trial).collect()
}
