//! The timer engine: the changes of the step engine at a moment of time. Its runs are not repeatable.

use std::time::{Duration, Instant};

use steadfast_fault::{Effect, Fault, Module as Named, Moment, Scope, Target, Trigger};
use steadfast_sandbox as sandbox;
use steadfast_strike::Refusal;
use steadfast_sys::procfs;
use steadfast_sys::ptrace::Stopped;

use super::patience::{Patience, os};
use super::struck::Struck;
use crate::target::{Bench, Hit, Ran, SetupError, Started};

/// Whom a moment may strike, one after the other: a thread that computes then, any of them with the same chance;
/// where nobody does the first one, and in a part of the program whoever is there.
fn candidates(pid: i32, now: Duration, everybody: bool) -> Vec<i32> {
    let all = procfs::threads_below(pid);
    let (mut busy, mut idle): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, computes)| *computes);
    if !busy.is_empty() {
        // Moments of this engine are not repeatable: the last digits of the clock are as good as a draw.
        let first = usize::try_from(now.as_nanos() / 100 % busy.len() as u128).unwrap_or(0);
        busy.rotate_left(first);
    }
    if !everybody {
        idle.retain(|(tid, _)| *tid == pid);
    }
    busy.into_iter().chain(idle).map(|(tid, _)| tid).collect()
}

/// Where an address lies in a file that the program has mapped since it began: a library that it has opened, a component's compiled code.
fn mapped(tid: i32, within: Option<&Scope>, address: u64) -> Option<String> {
    let (Named::Name(name), None) = within.map(|scope| (&scope.module, &scope.symbol))? else {
        return None;
    };
    let maps = procfs::maps(tid).ok()?;
    let of_file = |map: &&procfs::Mapping| map.path.file_name().is_some_and(|it| it == &**name);
    let mut code = maps.iter().filter(of_file).filter(|map| map.executable);
    code.find(|map| map.range.contains(&address))?;
    let lowest = maps.iter().filter(of_file).map(|map| map.range.start).min();
    Some(format!("{name}+{:#x}", address - lowest?))
}

/// Runs the target and changes a register at moments of time.
///
/// # Errors
/// When it cannot be started, or the fault is of another kind.
pub(crate) fn timer(bench: &Bench, faults: &[Fault], limit: Duration) -> Result<Ran, SetupError> {
    let [fault] = faults else {
        return Err(SetupError::NotStarted(format!(
            "the timer engine takes one fault a run, found {}",
            faults.len()
        )));
    };
    let refuse = |requirement: &str, found: &str| {
        SetupError::Fault(Box::new(Refusal {
            fault: fault.to_string(),
            requirement: requirement.into(),
            found: found.into(),
            fix: "time=10ms reg=rax bit=3".into(),
        }))
    };
    let Trigger::Clock {
        after_ns,
        every_ns,
        within,
    } = fault.trigger()
    else {
        return Err(refuse("a moment of time", "another trigger"));
    };
    if crate::payload::bound(fault).is_some() {
        return Err(refuse("the first thread", "process= or thread="));
    }
    let Effect::Bits {
        target: Target::Register(register, Moment::Before),
        bits,
        change,
        ..
    } = fault.effect()
    else {
        return Err(refuse("a register that is hit, to stay", "another effect"));
    };
    let Started { stop, at } = bench.launch(limit, false)?;
    let pid = stop.pid();
    stop.detach().map_err(os)?;
    let setup = at.elapsed();
    let begin = Instant::now();
    let patience = Patience::new(pid, limit);
    let mut hit = Hit::default();
    let mut due = Duration::from_nanos(
        after_ns
            .or(every_ns.map(std::num::NonZero::get))
            .unwrap_or(0),
    );
    let mut n = 0;
    while due < limit && sandbox::alive_after(pid, due.saturating_sub(begin.elapsed())) {
        n += 1;
        let mut met = false;
        for tid in candidates(pid, begin.elapsed(), within.is_some()) {
            let Some(stop) = steadfast_sys::ptrace::interrupt(tid).map_err(os)? else {
                continue;
            };
            let rip = stop.regs().map_err(os)?.rip;
            let place = mapped(tid, within.as_ref(), rip);
            met = place.is_some() || bench.inside(within.as_ref(), rip);
            if met {
                hit.file = hit.file.or(place);
                Struck {
                    hit: &mut hit,
                    n,
                    among: false,
                    patience: &patience,
                }
                .register(&stop, *register, bits, *change)?;
            }
            stop.detach().map_err(os)?;
            if met {
                break;
            }
        }
        hit.missed += u64::from(!met);
        let Some(every) = every_ns else { break };
        due += Duration::from_nanos(every.get());
    }
    let ended = bench.finish(pid, limit.saturating_sub(begin.elapsed()));
    let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    Ok(bench.tell(Ran {
        status: ended.status,
        signal: ended.signal,
        timed_out: ended.timed_out,
        wall_ns: ns(begin.elapsed()),
        cpu_ns: ended.cpu_ns,
        setup_ns: ns(setup),
        hits: vec![hit],
        ..Ran::default()
    }))
}

/// Strikes a stopped thread where it stands, with a fault of the timer engine, and says what the register held before and after.
pub(crate) fn now(
    stop: &Stopped,
    fault: &Fault,
    limit: Duration,
) -> Result<(u64, u64), SetupError> {
    let Effect::Bits {
        target: Target::Register(register, Moment::Before),
        bits,
        change,
        ..
    } = fault.effect()
    else {
        return Err(SetupError::NotStarted(format!(
            "{fault}: a register is needed"
        )));
    };
    let mut hit = Hit::default();
    Struck {
        hit: &mut hit,
        n: 1,
        among: false,
        patience: &Patience::new(stop.pid(), limit),
    }
    .register(stop, *register, bits, *change)?;
    Ok((hit.before, hit.after))
}
