//! Reach: how much of what the processor executes no counter knows.
//!
//! Counters are planted in code that is found in files: by unwind entries and symbols, in libraries from the
//! program's entry point on. Hand-written assembly without either, constructors and resolvers of libraries, and
//! code that is made at run time are executed all the same. A share of what was *found* would not show them.
//!
//! A short run is stepped through, and each instruction looked up: that is exact. A longer one is stopped at random
//! moments instead. Up to the entry point it stays traced, with a debug register at that instruction; from there on
//! it runs untraced between two looks. Moments tell the time that was spent in code without a counter, and
//! [`PACE`] what was executed in it.
//!
//! Invariants
//!  1. A moment counts for the CPU time of its phase: the two phases are looked at by different means.
//!  2. Code is known if a counter's block covers it in that phase, whatever its count.
//!  3. A moment within a system call is nobody's: who makes many does not execute more. So is one at which a thread waits for
//!     a processor.
//!
//! Not covered: children, and of several threads a stepped run (moments see all of them). A page fault's time belongs
//! to the instruction that met it.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_sandbox as sandbox;
use steadfast_sys::ptrace::{self, Regs, Stopped, Waited};
use steadfast_sys::{child, procfs};

use crate::step;
use crate::target::{Bench, Ran, SetupError, Started, entry};

/// Moments that are enough: an unseen share of 1 % is missed with a chance below 0.1 % (0.99^700).
const MOMENTS: u64 = 700;
/// Moments below which a run more is worth its time: a share of a tenth is missed by as many with a chance of 4 % (0.9^30).
const FEW: u64 = 30;
/// How long all runs together may take, and how many there may be. On busy processors a run takes longer, and one of a millisecond is
/// over before this process has a processor to look at it: while moments are few both may be this many times as much.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
const LONGER: u32 = 4;
const RUNS: u64 = 40;
/// A thread that has computed for less since it was last stopped is where it was: it waits for a processor that others have, which says
/// nothing of where it computes. The stop itself takes some microseconds.
const MOVED_NS: u64 = 50_000;
/// Mean time between two looks: before the entry point, which is reached within a millisecond or two, and after.
const LOADER_MEAN_NS: u64 = 60_000;
const PROGRAM_MEAN_NS: u64 = 700_000;
/// Instructions that a nanosecond of code without a counter stands for, at least: a loop of simple instructions
/// retires one to three a cycle, at two to four cycles a nanosecond. The pace of counted code alone would not do: of a
/// short program it is that of a start, with a page fault every few hundred instructions.
const PACE: f64 = 2.0;
/// Of this much time in a run nothing of the kind is known: libraries that set themselves up meet a page fault every few
/// hundred instructions as well, and of 100 us of it some thousand instructions are all there is.
const COLD_NS: f64 = 100_000.0;

/// What the moments of one phase showed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Moments.
    pub moments: u64,
    /// Those in code without a counter.
    pub unknown: u64,
    /// Those in a system call.
    pub kernel: u64,
    /// CPU time of the phase in all runs.
    pub cpu_ns: u64,
}

/// What all moments showed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Runs that were looked at.
    pub runs: u64,
    /// Until the entry point.
    pub loader: Phase,
    /// From there on.
    pub program: Phase,
}

impl Reach {
    /// CPU time in the program's own code of both phases: without a counter, and with one.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    fn spent(&self) -> (f64, f64) {
        let (mut unknown, mut known) = (0.0, 0.0);
        for phase in [self.loader, self.program] {
            if phase.moments > 0 {
                let each = phase.cpu_ns as f64 / phase.moments as f64;
                unknown += each * phase.unknown as f64;
                known += each * (phase.moments - phase.unknown - phase.kernel) as f64;
            }
        }
        (unknown, known)
    }

    /// Executions of one run that `counted` ones leave out.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an estimate"
    )]
    pub fn uncounted(&self, counted: u64) -> u64 {
        let (unknown, known) = self.spent();
        let runs = self.runs.max(1) as f64;
        let pace = if known > 0.0 {
            counted as f64 * runs / known
        } else {
            PACE
        };
        let each = unknown / runs;
        let cold = each.min(COLD_NS);
        (cold * pace + (each - cold) * pace.max(PACE)) as u64
    }
}

fn os(source: std::io::Error) -> SetupError {
    SetupError::Os {
        what: "the program has to be traced",
        source,
    }
}

/// Where counters are: sorted ranges of blocks, by module.
struct Known<'a> {
    bench: &'a Bench,
    blocks: Vec<Vec<Range<u64>>>,
}

impl<'a> Known<'a> {
    fn new(bench: &'a Bench) -> Self {
        let blocks = |module: &crate::module::Module| {
            let mut ranges: Vec<Range<u64>> = module.with_survey(|survey| {
                let blocks = survey.blocks();
                blocks.into_iter().map(|block| block.range).collect()
            });
            ranges.sort_by_key(|range| range.start);
            ranges
        };
        Self {
            bench,
            blocks: bench.modules.iter().map(blocks).collect(),
        }
    }

    /// Whether a counter covers what is executed at `rip`; before the entry point libraries have none.
    fn covers(&self, maps: &[procfs::Mapping], rip: u64, loader: bool) -> bool {
        let Some(map) = maps.iter().find(|map| map.range.contains(&rip)) else {
            return false;
        };
        let Some(module) = self
            .bench
            .modules
            .iter()
            .position(|module| module.path() == map.path)
        else {
            return false;
        };
        if loader && !self.bench.early(module) {
            return false;
        }
        let lowest = maps
            .iter()
            .filter(|other| other.path == map.path)
            .map(|other| other.range.start)
            .min()
            .unwrap_or(0);
        let addr = rip - lowest + self.bench.modules[module].found.lowest;
        let blocks = &self.blocks[module];
        let next = blocks.partition_point(|block| block.start <= addr);
        next.checked_sub(1)
            .is_some_and(|at| blocks[at].contains(&addr))
    }

    fn look(&self, phase: &mut Phase, pid: i32, regs: &Regs, loader: bool) {
        phase.moments += 1;
        // A number of a system call stands there while one is made, -1 otherwise.
        if regs.orig_rax.cast_signed() >= 0 {
            phase.kernel += 1;
        } else if let Ok(maps) = procfs::maps(pid) {
            phase.unknown += u64::from(!self.covers(&maps, regs.rip, loader));
        }
    }
}

/// What single steps showed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stepped {
    /// Executions of each site that was asked for: from the entry point on, but of the loader and the program itself.
    pub counts: Vec<u64>,
    /// Executions in code without a counter.
    pub unknown: u64,
}

/// Steps through a run of at most so many instructions.
///
/// # Errors
/// When the target cannot be started or traced.
pub(crate) fn stepped(
    bench: &Bench,
    sites: &[(usize, u64)],
    most: u64,
    limit: Duration,
) -> Result<(Stepped, Ran), SetupError> {
    let known = Known::new(bench);
    let early: HashMap<u64, bool> = sites
        .iter()
        .map(|(module, addr)| (*addr, bench.early(*module)))
        .collect();
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut covered: HashMap<(u64, bool), bool> = HashMap::new();
    let mut unknown = 0;
    let ran = step::walk(bench, most, limit, &mut |pid, rip, loader| {
        if early.get(&rip).is_some_and(|early| *early || !loader) {
            *counts.entry(rip).or_default() += 1;
        }
        // What lay at an address when it was first executed is taken to stay there.
        let covered = covered.entry((rip, loader)).or_insert_with(|| {
            procfs::maps(pid).is_ok_and(|maps| known.covers(&maps, rip, loader))
        });
        unknown += u64::from(!*covered);
    })?;
    let count = |(_, addr): &(usize, u64)| counts.get(addr).copied().unwrap_or(0);
    let counts = sites.iter().map(count).collect();
    Ok((Stepped { counts, unknown }, ran))
}

/// Times between looks: a linear congruence (Knuth, MMIX), of which the upper bits are used. Looks must not fall in
/// step with the program; nothing has to be repeatable.
struct Gaps(u64);

impl Gaps {
    fn next(&mut self, mean_ns: u64) -> Duration {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Duration::from_nanos((self.0 >> 33) % (2 * mean_ns))
    }
}

/// Looks at as many runs as it takes, for about so long; no run may take longer than the limit.
///
/// # Errors
/// When the target cannot be started or traced.
pub(crate) fn sample(
    bench: &Bench,
    patience: Duration,
    limit: Duration,
) -> Result<Reach, SetupError> {
    let known = Known::new(bench);
    let mut reach = Reach::default();
    let mut gaps = Gaps(0x5eed);
    let begun = Instant::now();
    while reach.program.moments < MOMENTS {
        let longer = if reach.program.moments < FEW {
            LONGER
        } else {
            1
        };
        if begun.elapsed() >= patience * longer || reach.runs >= RUNS * u64::from(longer) {
            break;
        }
        reach.runs += 1;
        one(&known, &mut gaps, &mut reach, limit)?;
    }
    Ok(reach)
}

fn one(
    known: &Known<'_>,
    gaps: &mut Gaps,
    reach: &mut Reach,
    limit: Duration,
) -> Result<(), SetupError> {
    let Started { stop, .. } = known.bench.launch(limit, false)?;
    let pid = stop.pid();
    let begun = Instant::now();
    let Some(stop) = loader(known, gaps, &mut reach.loader, stop, begun + limit)? else {
        known.bench.finish(pid, Duration::ZERO);
        return Ok(());
    };
    let before = procfs::cpu_ns(pid).unwrap_or(0);
    reach.loader.cpu_ns += before;
    // What the kernel adds up in the end contains children: of a process that has some, what it had at the last look.
    let (mut last, mut others) = (before, false);
    let mut computed = HashMap::from([(pid, before)]);
    stop.detach().map_err(os)?;
    while begun.elapsed() < limit && sandbox::alive_after(pid, gaps.next(PROGRAM_MEAN_NS)) {
        last = procfs::cpu_ns(pid).unwrap_or(last);
        for (tid, computes) in procfs::threads_below(pid) {
            if !procfs::leader(tid).is_ok_and(|leader| leader == pid) {
                others = true;
                continue;
            }
            if !computes {
                continue;
            }
            let Some(stop) = ptrace::interrupt(tid).map_err(os)? else {
                continue;
            };
            // Brought up to date when a thread stops, and not while it computes.
            let now = procfs::cpu_ns(tid).unwrap_or(0);
            let moved = now.saturating_sub(computed.insert(tid, now).unwrap_or(0)) >= MOVED_NS;
            let looked = stop.regs().and_then(|regs| {
                if moved {
                    known.look(&mut reach.program, pid, &regs, false);
                }
                stop.detach()
            });
            match looked {
                // Another thread has ended the program meanwhile. A thread that is traced is collected by its tracer;
                // the first one is the program, which `finish` collects.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    if tid != pid {
                        ptrace::wait(tid).map_err(os)?;
                    }
                }
                looked => looked.map_err(os)?,
            }
        }
    }
    let ended = known
        .bench
        .finish(pid, limit.saturating_sub(begun.elapsed()));
    let spent = if others { last } else { ended.cpu_ns };
    reach.program.cpu_ns += spent.saturating_sub(before);
    Ok(())
}

/// From the exec stop to the entry point; nothing if it ends before.
fn loader(
    known: &Known<'_>,
    gaps: &mut Gaps,
    phase: &mut Phase,
    mut stop: Stopped,
    deadline: Instant,
) -> Result<Option<Stopped>, SetupError> {
    let pid = stop.pid();
    let entry = entry(pid).map_err(os)?;
    if stop.regs().map_err(os)?.rip == entry {
        return Ok(Some(stop));
    }
    stop.watch_execution(entry).map_err(os)?;
    let mut deliver = 0;
    // A stop that was asked for and has not come yet.
    let mut asked = false;
    while Instant::now() < deadline {
        let until = Instant::now() + gaps.next(LOADER_MEAN_NS);
        let waited = match stop.run_until(false, deliver, || until).map_err(os)? {
            Some(waited) => waited,
            None => {
                child::kill(pid, libc::SIGSTOP);
                asked = true;
                ptrace::wait(pid).map_err(os)?
            }
        };
        let Waited::Stopped {
            stop: next, signal, ..
        } = waited
        else {
            return Ok(None);
        };
        deliver = 0;
        let regs = next.regs().map_err(os)?;
        if signal == libc::SIGTRAP && regs.rip == entry {
            next.watch_execution(0).map_err(os)?;
            if !asked {
                return Ok(Some(next));
            }
            // The stop that is on its way comes before the next instruction.
            return match next.run(0).map_err(os)? {
                Waited::Stopped { stop, .. } => Ok(Some(stop)),
                _ => Ok(None),
            };
        }
        if signal == libc::SIGSTOP && asked {
            asked = false;
            known.look(phase, pid, &regs, true);
        } else {
            deliver = signal;
        }
        stop = next;
    }
    sandbox::end_all(&mut sandbox::Ended::default(), Some(pid));
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(moments: u64, unknown: u64, kernel: u64, cpu_ns: u64) -> Phase {
        Phase {
            moments,
            unknown,
            kernel,
            cpu_ns,
        }
    }

    fn reach(loader: Phase, program: Phase) -> Reach {
        Reach {
            runs: 2,
            loader,
            program,
        }
    }

    #[test]
    fn a_moment_weighs_as_its_phase_does() {
        let reach = reach(phase(10, 10, 0, 1_000), phase(500, 0, 0, 9_000));
        assert_eq!(reach.spent(), (1_000.0, 9_000.0));
    }

    #[test]
    fn counted_code_that_is_fast_sets_the_pace() {
        let reach = reach(phase(10, 10, 0, 1_000_000), phase(500, 0, 0, 9_000_000));
        // Twice 18,000,000 in 9,000,000 ns: four a nanosecond, for 500,000 ns of each run.
        assert_eq!(reach.uncounted(18_000_000), 2_000_000);
    }

    #[test]
    fn counted_code_that_is_slow_does_so_while_all_is_cold() {
        let reach = reach(phase(10, 10, 0, 1_000_000), phase(500, 0, 0, 9_000_000));
        // 100,000 ns at a fifth of an instruction each, 400,000 at two.
        assert_eq!(reach.uncounted(900_000), 820_000);
    }

    #[test]
    fn without_counted_code_there_is_a_pace_as_well() {
        let reach = reach(phase(10, 10, 0, 1_000), phase(0, 0, 0, 0));
        assert_eq!(reach.uncounted(0), 1_000);
    }

    #[test]
    fn a_moment_in_a_system_call_is_nobodys() {
        let reach = reach(phase(0, 0, 0, 0), phase(500, 100, 300, 9_000));
        assert_eq!(reach.spent(), (1_800.0, 1_800.0));
    }

    #[test]
    fn without_a_moment_nothing_is_said() {
        assert_eq!(Reach::default().uncounted(900), 0);
    }

    #[test]
    fn all_moments_in_known_code_leave_nothing_out() {
        let reach = reach(phase(0, 0, 0, 1_000), phase(500, 0, 0, 9_000));
        assert_eq!(reach.uncounted(900), 0);
    }
}
