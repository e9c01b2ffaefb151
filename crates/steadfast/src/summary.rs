//! What happened, in words, for whoever reads stderr.
//!
//! Invariants
//!  1. Bounded memory: a run with a million divergences is summed up like one with three.
//!  2. Nothing to say, nothing said, unless `--verbose` asked.

use std::fmt::Write as _;
use std::path::Path;

use steadfast_contract::event::{
    Cause, CoreSuspect, Difference, Divergence, FaultHit, Judgement, LogCheck, Recovery,
    RecoveryAction, Refused, SuspectAction, Unprotected, What,
};
use steadfast_contract::exit::Verdict;
use steadfast_contract::plan::{Plan, ProgramEnd, RunReport, StopReason};
use steadfast_fault::ids::ReplicaId;

use crate::cli::Volume;
use crate::remedies;

/// As many as fit a screen with their two lines each; the rest is in `--events`.
const SHOWN_MAX: usize = 8;

/// A disagreement and what was done about it. Each process of a program counts its own.
#[derive(Debug)]
struct Told {
    /// Nothing: the first process.
    process: Option<u32>,
    divergence: Divergence,
    recoveries: Vec<Recovery>,
}

/// Collects what is worth telling.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    divergences: Vec<Told>,
    divergences_beyond: u64,
    hits: Vec<FaultHit>,
    suspects: Vec<CoreSuspect>,
    refused: Option<Refused>,
    unprotected: Vec<Unprotected>,
    unprotected_beyond: u64,
}

impl Summary {
    /// Takes note of an event.
    pub(crate) fn see(&mut self, what: &What) {
        self.see_in(None, what);
    }

    fn see_in(&mut self, process: Option<u32>, what: &What) {
        match what {
            What::Divergence(divergence) if self.divergences.len() < SHOWN_MAX => {
                self.divergences.push(Told {
                    process,
                    divergence: divergence.clone(),
                    recoveries: Vec::new(),
                });
            }
            What::Divergence(_) => self.divergences_beyond += 1,
            What::Recovery(recovery) => {
                let told = self.divergences.iter_mut().find(|told| {
                    told.process == process && told.divergence.id == recovery.divergence
                });
                if let Some(told) = told
                    && told.recoveries.len() < SHOWN_MAX
                {
                    told.recoveries.push(recovery.clone());
                }
            }
            What::Fault(hit) if self.hits.len() < SHOWN_MAX => self.hits.push(hit.clone()),
            What::CoreSuspect(suspect) => {
                // The latest word on a core replaces earlier ones.
                self.suspects.retain(|other| other.core != suspect.core);
                self.suspects.push(suspect.clone());
            }
            What::Process(of) => self.see_in(Some(of.pid), &of.what),
            What::Unprotected(one) if self.unprotected.len() < SHOWN_MAX => {
                self.unprotected.push(one.clone());
            }
            What::Unprotected(_) => self.unprotected_beyond += 1,
            What::Refused(refused) => self.refused = Some(refused.clone()),
            _ => {}
        }
    }

    /// The divergences and what was done about them.
    pub(crate) fn divergences(&self) -> String {
        let mut text = String::new();
        for told in &self.divergences {
            tell(&mut text, told);
        }
        if self.divergences_beyond > 0 {
            let _ = writeln!(
                text,
                "steadfast: {} more divergences, each in --events",
                self.divergences_beyond
            );
        }
        text
    }

    /// The whole summary; empty when there is nothing to say.
    pub(crate) fn text(&self, plan: &Plan, report: &RunReport, volume: Volume) -> String {
        if volume == Volume::Quiet {
            return String::new();
        }
        let mut text = String::new();
        for hit in &self.hits {
            tell_hit(&mut text, hit);
        }
        for missed in report.faults.iter().filter(|fault| fault.hits == 0) {
            let _ = writeln!(
                text,
                "steadfast: fault \"{}\" did not hit: the run says nothing about it",
                missed.fault
            );
        }
        for Unprotected { program, pid } in &self.unprotected {
            let _ = writeln!(
                text,
                "steadfast: process {pid} ran {program} unprotected, as --unprotected asks"
            );
        }
        if self.unprotected_beyond > 0 {
            let beyond = counted(self.unprotected_beyond, "more process");
            let _ = writeln!(text, "steadfast: {beyond} unprotected, each in --events");
        }
        text.push_str(&self.divergences());
        for suspect in &self.suspects {
            let action = match suspect.action {
                SuspectAction::Avoided => "avoided from now on",
                SuspectAction::Reported => "still used, there is no other",
            };
            let _ = writeln!(
                text,
                "steadfast: core {} is suspect: blamed for {} of {} divergences, {action}",
                suspect.core, suspect.strikes, suspect.divergences
            );
        }
        if let Some(refused) = &self.refused {
            tell_refusal(&mut text, refused, Path::new(&plan.program));
        }
        if let Some(open) = report.coverage.open_sites.first() {
            let beyond = report.coverage.open_sites.len() - 1;
            let more = if beyond > 0 {
                format!(", and {}", counted(beyond as u64, "more place"))
            } else {
                String::new()
            };
            let _ = writeln!(
                text,
                "  hint:    the program has {} in {}{more}: it may answer each replica differently without a fault, and is not intercepted",
                open.instruction, open.site
            );
        }
        let stopped = report.verdict == Verdict::Stopped;
        if !text.is_empty() || volume == Volume::Always || report.divergences > 0 || stopped {
            let _ = writeln!(text, "steadfast: {}", verdict(plan, report));
        }
        if volume == Volume::Always {
            let coverage = &report.coverage;
            let _ = writeln!(
                text,
                "steadfast: {} patched, {} on the slow path, {} denied; {} s, of which {} s to start",
                counted(coverage.patched, "site"),
                coverage.slow_path,
                counted(coverage.denied, "call"),
                seconds(report.timings.wall_ns),
                seconds(report.timings.setup_ns)
            );
        }
        text
    }
}

/// One line on how the run went.
fn verdict(plan: &Plan, report: &RunReport) -> String {
    let events = counted(report.events, "event");
    let divergences = counted(report.divergences, "divergence");
    match (report.verdict, report.end) {
        (Verdict::Agreed, _) => format!("{} replicas agreed on {events}", plan.replicas),
        (Verdict::Corrected, _) => {
            format!("{divergences} in {events}, repaired; what left is what the replicas agreed on")
        }
        (Verdict::Unprotected, _) => format!("1 replica ran {events}: nothing was compared"),
        (_, ProgramEnd::Stopped(StopReason::Unrecoverable)) => {
            format!(
                "stopped after {events}: a divergence could not be repaired; nothing wrong has left"
            )
        }
        (_, ProgramEnd::Stopped(StopReason::Shared)) => {
            format!(
                "stopped after {events}: a process that shares memory with others failed or was killed; it cannot be repaired; nothing wrong has left"
            )
        }
        (Verdict::Refused, _) | (_, ProgramEnd::Stopped(StopReason::Refused)) => {
            format!("stopped after {events}, before it happened; what had been agreed on stays")
        }
        (Verdict::Stopped, _) => {
            format!("stopped after {events} on a divergence, as asked; nothing wrong has left")
        }
    }
}

fn tell(text: &mut String, told: &Told) {
    let Told {
        process,
        divergence,
        recoveries,
    } = told;
    let blamed = match divergence.judgement {
        Judgement::Blamed(replica) => Some(replica),
        Judgement::Undecided | Judgement::Unresolvable => None,
    };
    let vote = divergence
        .votes
        .iter()
        .find(|vote| Some(vote.replica) == blamed)
        .or(divergence.votes.first());
    let who = match (blamed, vote.and_then(|vote| vote.core)) {
        (Some(replica), Some(core)) => format!("replica {replica} on core {core}"),
        (Some(replica), None) => format!("replica {replica}"),
        (None, _) => "the replicas".to_owned(),
    };
    let _ = write!(text, "steadfast: {who} disagreed");
    if let Some(pid) = process {
        let _ = write!(text, " in process {pid}");
    }
    if let Some(event) = divergence.event {
        let _ = write!(text, " at event {event}");
    }
    if let Some(call) = &divergence.call {
        let _ = write!(text, ", {call}");
    }
    if let Some(site) = vote.and_then(|vote| vote.site.as_ref()) {
        let _ = write!(text, ", in {site}");
    }
    let _ = writeln!(text, ": {}", difference(&divergence.difference));

    let camps = |camp: u8| {
        divergence
            .votes
            .iter()
            .filter(|vote| vote.camp == camp)
            .count()
    };
    let _ = match blamed {
        Some(replica) if divergence.votes.is_empty() => {
            writeln!(text, "  verdict: replica {replica} is wrong")
        }
        Some(replica) => {
            let own = vote.map_or(0, |vote| camps(vote.camp));
            let others = divergence.votes.len().saturating_sub(own);
            writeln!(
                text,
                "  verdict: replica {replica} is wrong, {own} against {others}"
            )
        }
        None if divergence.judgement == Judgement::Undecided => {
            writeln!(text, "  verdict: no majority; the log decides")
        }
        None => writeln!(text, "  verdict: no majority, and nothing to decide by"),
    };
    for recovery in recoveries {
        let _ = writeln!(
            text,
            "  action:  {}, because {}; the program stood still for {} ms",
            action(recovery.action),
            cause(recovery.cause, recovery.replica),
            milliseconds(recovery.pause_ns)
        );
    }
}

fn difference(difference: &Difference) -> String {
    match difference {
        Difference::Call => "another call".to_owned(),
        Difference::Argument { index } => format!("argument {index} differs"),
        Difference::Buffer {
            argument,
            offset: Some(offset),
        } => {
            format!("the bytes behind argument {argument} differ, from byte {offset} on")
        }
        Difference::Buffer {
            argument,
            offset: None,
        } => format!("the bytes behind argument {argument} differ"),
        Difference::Register { name } => format!("register {name} differs"),
        Difference::Stack => "the top of the stack differs".to_owned(),
        Difference::Result => "the result differs".to_owned(),
        Difference::Fault { signal, address } => format!("a fault, signal {signal} at {address}"),
        Difference::Death {
            signal: Some(signal),
        } => format!("death by signal {signal}"),
        Difference::Death { signal: None } => "death".to_owned(),
        Difference::Exit => "an exit of its own".to_owned(),
        Difference::Hang { cpu_ns, limit_ns } => format!(
            "no claim after {} s of CPU time, {} s were allowed",
            seconds(*cpu_ns),
            seconds(*limit_ns)
        ),
        Difference::Early => "came to it alone, and the others did not come".to_owned(),
        Difference::Memory { page, pages } => format!(
            "{} of memory differ, from {page} on",
            counted(*pages, "page")
        ),
        Difference::Log {
            check: LogCheck::Checksum,
        } => "a log entry with a wrong checksum".to_owned(),
        Difference::Log {
            check: LogCheck::Sequence,
        } => "a log entry with a wrong sequence number".to_owned(),
        Difference::Gate => "a call past the gate".to_owned(),
    }
}

fn action(action: RecoveryAction) -> String {
    match action {
        RecoveryAction::Reforked { from } => format!("made again from replica {from}"),
        RecoveryAction::RolledBack { to, reran } => {
            format!(
                "rolled back to event {to}, {} run again against the log",
                counted(reran, "event")
            )
        }
        RecoveryAction::Promoted { to } => format!("replica {to} leads now"),
        RecoveryAction::Moved { to } => format!("moved to core {to}"),
        RecoveryAction::LogRepaired { event } => {
            format!("the log of event {event} was written again")
        }
        RecoveryAction::Stopped => "stopped".to_owned(),
    }
}

fn cause(cause: Cause, replica: Option<ReplicaId>) -> String {
    let who = replica.map_or_else(
        || "a replica".to_owned(),
        |replica| format!("replica {replica}"),
    );
    match cause {
        Cause::Outvoted => format!("{who} was outvoted"),
        Cause::Crashed(signal) => format!("{who} crashed of signal {signal}"),
        Cause::Killed(signal) => format!("{who} was killed by signal {signal}"),
        Cause::OutOfMemory => format!("the kernel killed {who} for want of memory"),
        Cause::Hung => format!("{who} did not arrive"),
        Cause::Exited(status) => format!("{who} exited early with status {status}"),
        Cause::MemoryDiffers => format!("the memory of {who} differs"),
        Cause::LogDamaged => format!("the log of {who} is damaged"),
        Cause::GateBypassed => format!("{who} called past the gate"),
        Cause::SuspectCore => format!("the core of {who} is suspect"),
    }
}

fn tell_hit(text: &mut String, hit: &FaultHit) {
    let _ = write!(
        text,
        "steadfast: fault \"{}\" hit replica {}",
        hit.fault, hit.replica
    );
    if let Some(site) = &hit.site {
        let _ = write!(text, " in {site}");
    }
    if let (Some(before), Some(after)) = (&hit.before, &hit.after) {
        let _ = write!(text, ": {before} became {after}");
    }
    text.push('\n');
}

fn tell_refusal(text: &mut String, refused: &Refused, program: &Path) {
    let _ = write!(
        text,
        "steadfast: {} is not supported: {}",
        refused.what, refused.reason
    );
    if let Some(site) = &refused.site {
        let _ = write!(text, ", asked for in {site}");
    }
    text.push('\n');
    if let Some(fix) = &refused.fix {
        let _ = writeln!(text, "  fix:   {fix}");
    }
    // Of a tree it is not known who asked: the flag is the first program's, and helps only against threads.
    let of_threads = refused.what.to_ascii_lowercase().contains("thread");
    if let Some(flag) = remedies::one_thread(program).filter(|_| of_threads) {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(text, "  or:    {name} {flag}   (no threads)");
    }
}

fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn seconds(ns: u64) -> String {
    let ms = ns / 1_000_000;
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn milliseconds(ns: u64) -> String {
    let us = ns / 1000;
    format!("{}.{:02}", us / 1000, us % 1000 / 10)
}
