//! Flips in processes of a tree that are not its first: `process=` names them by order of creation.
//!
//! A flip of one replica, with nothing compared, shows that the fault reaches the process that it names. Others are drawn, over a
//! pipeline, subshells and programs, in any process of them: what leaves is right, or the run is stopped with a beginning of it.
//!
//! ```text
//! TREES=2000 TREES_SEED=7 cargo test -p steadfast-tests -- faults::in_children::drawn
//! TREES_S=3600 cargo test -p steadfast-tests -- faults::in_children::drawn
//! ```
//!
//! Not covered: a leader that is killed from outside, with a parent that waits: awaited.rs; one whose parent has ended:
//! returns.rs.

use libtest_mimic::Failed;
use std::time::{Duration, Instant};
use steadfast_contract::event::What;
use steadfast_contract::exit::Verdict;

use crate::bench::{Bench, some_groups};
use crate::check::{Log, last_lines, output_difference, protector, repeat};
use crate::kills::{Draw, number};
use crate::run::Invocation;
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);
/// A shell, a shell in it, a program in that one: processes 0, 1 and 2.
const GRANDCHILD: &str = "sh -c 'wc -c < /bin/sh; :'; echo end";
/// A copy of the shell that becomes no other program.
const COPY: &str = "(echo in the copy; :); echo end";

/// A parent that waits for whatever children it has.
const WAITS: &str = "perl -e '$|=1; unless (fork) { print \"child\\n\"; exit 3 } while (wait > 0) { print $? >> 8, \"\\n\" }'; echo end";

/// Pipelines, a subshell, substitutions: about fifteen processes.
const TREE: &str = "sort < /etc/services | uniq -c | sort -rn | head -20; (cd /; ls | wc -l); x=$(wc -c < /bin/sh); echo $x; \
    awk '{ n += NF } END { print n }' /etc/services; gzip -c /etc/services | gunzip | md5sum";
/// Drawn flips in the suite; a campaign asks for thousands.
const DRAWN: u64 = 8;
const REGISTERS: [&str; 15] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

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
        let _group = some_groups();
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

/// A flip of a register or of a word of the stack, in one process of the tree or in each.
fn draw(from: &mut Draw, replicas: u8) -> String {
    let process = match from.below(16) {
        15 => "all".to_owned(),
        rank => rank.to_string(),
    };
    let replica = match from.below(u64::from(replicas) + 1) {
        0 => "leader".to_owned(),
        slot => (slot - 1).to_string(),
    };
    let event = 1 + from.below(150);
    let bit = from.below(64);
    let place = match from.below(3) {
        0 => format!("mem=[rsp+{}]", 8 * from.below(30)),
        _ => {
            let register = usize::try_from(from.below(REGISTERS.len() as u64)).expect("a few");
            format!("reg={}", REGISTERS[register])
        }
    };
    format!("process={process} replica={replica} event={event} {place} bit={bit}")
}

fn drawn() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("children-drawn");
    let (flips, seed) = (number("TREES", DRAWN), number("TREES_SEED", 5));
    let time = Duration::from_secs(number("TREES_S", 0));
    let begun = Instant::now();
    let mut from = Draw::new(seed);
    let mut invocation = Invocation {
        program: "/bin/sh".into(),
        args: ["-c", TREE].map(str::to_owned).to_vec(),
        ..Invocation::default()
    };
    let bare = invocation.run(&dir, LIMIT)?;
    let events = dir.join("events");
    let (mut right, mut stopped, mut hits) = (0, 0, 0);
    for index in (0..).take_while(|index| *index < flips || begun.elapsed() < time) {
        let replicas = if from.below(3) == 0 { 3 } else { 2 };
        let line = draw(&mut from, replicas);
        let _ = std::fs::remove_file(&events);
        invocation.protector = protector(replicas, &events, &["--quiet", "--flip", &line]);
        let _group = some_groups();
        let ran = invocation.run(&dir, LIMIT)?;
        ran.nothing_left(GRACE)?;
        match ran.end().as_str() {
            end if end == bare.end() && ran.stdout == bare.stdout => right += 1,
            "status 122" if bare.stdout.starts_with(&ran.stdout) => stopped += 1,
            end => {
                return Err(format!(
                    "flip {index}, {line:?}: {end}, neither right nor stopped\n{}  run:    {}\n  repeat: TREES={} TREES_SEED={seed} {}",
                    last_lines(&ran),
                    invocation.shell_line(),
                    index + 1,
                    repeat("faults::in_children::drawn")
                )
                .into());
            }
        }
        let report = Log::read(&events)?.report;
        hits += report.faults.iter().map(|fault| fault.hits).sum::<u64>();
    }
    if right + stopped != DRAWN {
        eprintln!(
            "{} flips in a tree, seed {seed}: right {right}, stopped {stopped}, hits {hits}",
            right + stopped
        );
    }
    if hits == 0 {
        return Err("no flip hit anything".into());
    }
    Bench::get().passed(&dir);
    Ok(())
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
        // A repair makes no process that the parent would wait for.
        repaired(
            "awaited_copy",
            WAITS,
            "process=2 replica=1 at=libc.so.6!write n=1 reg=rdx bit=1",
            1,
        ),
        repaired(
            "hang_of_copy",
            COPY,
            "process=1 replica=1 at=libc.so.6!write n=1 kind=hang",
            1,
        ),
        repaired(
            "hang_of_copy_s_leader",
            COPY,
            "process=1 replica=leader at=libc.so.6!write n=1 kind=hang",
            1,
        ),
        repaired(
            "killed_follower_of_copy",
            COPY,
            "process=1 replica=1 at=libc.so.6!write n=1 kill=9",
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
    let drawn = Trial::test("faults::in_children::drawn", drawn);
    flips.into_iter().map(trial).chain([drawn]).collect()
}
