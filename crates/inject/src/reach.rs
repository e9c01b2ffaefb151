//! Reach: how much of what the processor executes no counter knows, by a sample of moments.
//!
//! Counters are planted in code that is found in files: by unwind entries and symbols, in libraries from the
//! program's entry point on. Hand-written assembly without either, constructors and resolvers of libraries, and
//! code that is made at run time are executed all the same. A share of what was *found* would not show them.
//!
//! A run is stopped at random moments, and its instruction pointer looked up. Up to the entry point it stays
//! traced, with a debug register at that instruction; from there on it runs untraced between two looks.
//!
//! Invariants
//!  1. A moment counts for the CPU time of its phase: the two phases are looked at by different means.
//!  2. Code is known if a counter's block covers it in that phase, whatever its count.
//!
//! Not covered: children; moments in the kernel belong to the instruction behind the call. The share is one of
//! time, not of instructions.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_sys::ptrace::{self, Stopped, Waited};
use steadfast_sys::{child, procfs, sandbox};

use crate::target::{Bench, SetupError, Started};

/// Moments that are enough: an unseen share of 1 % is missed with a chance below 0.1 % (0.99^700).
const MOMENTS: u64 = 700;
/// How long all runs together may take, and how many there may be.
const PATIENCE: Duration = Duration::from_secs(2);
const RUNS: u64 = 40;
/// Mean time between two looks: before the entry point, which is reached within a millisecond or two, and after.
const LOADER_MEAN_NS: u64 = 60_000;
const PROGRAM_MEAN_NS: u64 = 700_000;

/// What the moments of one phase showed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Moments.
    pub moments: u64,
    /// Those in code without a counter.
    pub unknown: u64,
    /// CPU time of the phase in all runs.
    pub cpu_ns: u64,
}

/// What all moments showed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Until the entry point.
    pub loader: Phase,
    /// From there on.
    pub program: Phase,
}

impl Reach {
    /// Share of the CPU time in code without a counter; nothing where no moment was met.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a share for display")]
    pub fn unknown_share(&self) -> Option<f64> {
        let (mut unknown, mut all) = (0.0, 0.0);
        for phase in [self.loader, self.program] {
            if phase.moments > 0 {
                all += phase.cpu_ns as f64;
                unknown += phase.cpu_ns as f64 * phase.unknown as f64 / phase.moments as f64;
            }
        }
        (all > 0.0).then(|| unknown / all)
    }

    /// Executions that `counted` ones leave out, at the same pace.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an estimate; a share of 1 gives what a float holds"
    )]
    pub fn uncounted(&self, counted: u64) -> u64 {
        match self.unknown_share() {
            Some(share) if share > 0.0 => (counted as f64 * share / (1.0 - share).max(1e-9)) as u64,
            _ => 0,
        }
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
    blocks: Vec<Vec<std::ops::Range<u64>>>,
}

impl Known<'_> {
    /// Whether a counter covers what `pid` executes at `rip`; before the entry point libraries have none.
    fn covers(&self, pid: i32, rip: u64, loader: bool) -> bool {
        let Ok(maps) = procfs::maps(pid) else {
            return true;
        };
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

    fn look(&self, phase: &mut Phase, pid: i32, rip: u64, loader: bool) {
        phase.moments += 1;
        phase.unknown += u64::from(!self.covers(pid, rip, loader));
    }
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

/// Looks at as many runs as it takes.
///
/// # Errors
/// When the target cannot be started or traced.
pub(crate) fn sample(bench: &Bench, limit: Duration) -> Result<Reach, SetupError> {
    let blocks = |module: &crate::module::Module| {
        let mut ranges: Vec<_> = module.with_survey(|survey| {
            let blocks = survey.blocks();
            blocks.into_iter().map(|block| block.range).collect()
        });
        ranges.sort_by_key(|range: &std::ops::Range<u64>| range.start);
        ranges
    };
    let known = Known {
        bench,
        blocks: bench.modules.iter().map(blocks).collect(),
    };
    let mut reach = Reach::default();
    let mut gaps = Gaps(0x5eed);
    let begun = Instant::now();
    let mut runs = 0;
    while reach.program.moments < MOMENTS && begun.elapsed() < PATIENCE && runs < RUNS {
        runs += 1;
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
    stop.detach().map_err(os)?;
    while begun.elapsed() < limit && sandbox::alive_after(pid, gaps.next(PROGRAM_MEAN_NS)) {
        for (tid, computes) in procfs::threads_below(pid) {
            if !computes || !procfs::leader(tid).is_ok_and(|leader| leader == pid) {
                continue;
            }
            let Some(stop) = ptrace::interrupt(tid).map_err(os)? else {
                continue;
            };
            let looked = stop.regs().and_then(|regs| {
                known.look(&mut reach.program, pid, regs.rip, false);
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
    reach.program.cpu_ns += ended.cpu_ns.saturating_sub(before);
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
    const AT_ENTRY: u64 = 9;
    let pid = stop.pid();
    let auxv = procfs::auxv(pid).map_err(os)?;
    let entry = auxv
        .iter()
        .find(|(kind, _)| *kind == AT_ENTRY)
        .map_or(0, |(_, at)| *at);
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
        let rip = next.regs().map_err(os)?.rip;
        if signal == libc::SIGTRAP && rip == entry {
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
            known.look(phase, pid, rip, true);
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

    fn phase(moments: u64, unknown: u64, cpu_ns: u64) -> Phase {
        Phase {
            moments,
            unknown,
            cpu_ns,
        }
    }

    #[test]
    fn a_moment_weighs_as_its_phase_does() {
        let reach = Reach {
            loader: phase(10, 10, 1_000),
            program: phase(500, 0, 9_000),
        };
        assert_eq!(reach.unknown_share(), Some(0.1));
        assert_eq!(reach.uncounted(900), 100);
    }

    #[test]
    fn without_a_moment_nothing_is_said() {
        assert_eq!(Reach::default().unknown_share(), None);
        assert_eq!(Reach::default().uncounted(900), 0);
    }

    #[test]
    fn all_moments_in_known_code_leave_nothing_out() {
        let reach = Reach {
            loader: phase(0, 0, 1_000),
            program: phase(500, 0, 9_000),
        };
        assert_eq!(reach.uncounted(900), 0);
    }
}
