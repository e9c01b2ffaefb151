//! The series of the bench. Each part starts hosts of its own, so a round knows nothing of the last one.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_restart::{Bare, CallError, Edge, Policy, Value};
use steadfast_sys::pad::{self, Runner, Wild};

use super::report::Report;
use super::tools::{
    BATCH, FILES, ITERATIONS, LOCKS, TURNS, handle, hosted, in_turns, measured, ns, plain, put,
};
use super::{apart, detectors, http, interference, keep, workloads};
use crate::told::Told;

type Part = fn(&Path, &mut Report) -> Result<(), Told>;

/// All of them by name, in the order of the first round.
pub(super) const PARTS: &[(&str, Part)] = &[
    ("resets", resets),
    ("swaps", swaps),
    ("objects", objects),
    ("files", files),
    ("threads", workloads::threads),
    ("pages", workloads::pages),
    ("calls", calls),
    ("keep", keep::kept),
    ("detectors", detectors::detectors),
    ("faults", faults),
    ("http", http::requests),
    ("http-faults", http::faults),
    ("apart-calls", apart::calls),
    ("apart-workloads", apart::workloads),
    ("apart-http", apart::requests),
    ("interference", interference::interference),
];

/// Calls before a measurement that follows a sleep.
pub(super) const WARM: usize = 20;

const PROBE: &str = "steadfast:probe/probe@0.1.0#";

fn probe(edge: &Edge, name: &str) -> Result<usize, CallError> {
    edge.function(&format!("{PROBE}{name}"))
}

/// In place: memory cleared and filled from the image, a new Store and instance, the first call.
fn resets(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let host = hosted(folder, "probe", plain())?;
    let edge = host.edge("bench", "probe", &[])?;
    let (dirty, nothing) = (probe(&edge, "dirty")?, probe(&edge, "nothing")?);
    let mut took = Vec::new();
    for _ in 0..BATCH {
        edge.call(dirty, &[64u32.into()])?;
        let begin = Instant::now();
        edge.reset()?;
        edge.call(nothing, &[])?;
        took.push(ns(begin));
    }
    let again = edge.call(dirty, &[0u32.into()])?;
    if again != Some(Value::U32(1)) {
        return Err(anyhow::anyhow!("a reset left {again:?} of the component's memory").into());
    }
    put(
        report,
        "reset.probe",
        "reset and first call, 64 KiB changed",
        took,
    )?;
    for name in ["probe", "lock", "fs", "scheduler", "memory"] {
        let host = hosted(folder, name, plain())?;
        let edge = host.edge("bench", name, &[])?;
        for _ in 0..BATCH {
            edge.reset()?;
        }
        let stats = edge.stats()?;
        let execution = stats.reset_ns.iter().zip(&stats.reset_memory_ns);
        put(
            report,
            &format!("reset.{name}.memory"),
            &format!("of a reset of {name}: linear memory"),
            stats.reset_memory_ns.iter().copied(),
        )?;
        put(
            report,
            &format!("reset.{name}.execution"),
            &format!("of a reset of {name}: Store and instance"),
            execution.map(|(all, memory)| all.saturating_sub(*memory)),
        )?;
    }
    Ok(())
}

/// With a spare that stands ready.
fn swaps(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let host = hosted(folder, "probe", Policy::default())?;
    let edge = host.edge("bench", "probe", &[])?;
    let (dirty, nothing) = (probe(&edge, "dirty")?, probe(&edge, "nothing")?);
    let mut took = Vec::new();
    let end = Instant::now() + Duration::from_secs(5);
    while took.len() < BATCH && Instant::now() < end {
        // The spare is made ready by a thread that runs when the machine is idle.
        std::thread::sleep(Duration::from_micros(500));
        // A component fails while it works, not when it has just woken up.
        for _ in 0..WARM {
            edge.call(dirty, &[64u32.into()])?;
        }
        let before = edge.stats()?.swapped;
        let begin = Instant::now();
        edge.reset()?;
        edge.call(nothing, &[])?;
        let this = ns(begin);
        if edge.stats()?.swapped > before {
            took.push(this);
        }
    }
    put(
        report,
        "swap.probe",
        "swap with a spare and first call, 64 KiB changed",
        took,
    )
}

/// One object, from the epoch that differs to the object that is as it was.
fn objects(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let host = hosted(folder, "lock", plain())?;
    let edge = host.edge("bench", "lock", &[])?;
    let method = |name: &str| edge.function(&format!("{LOCKS}{name}"));
    let holder = method("[method]lock.holder")?;
    let lock = handle(edge.call(method("[constructor]lock")?, &[])?)?;
    edge.call(method("[method]lock.take")?, &[lock.into(), 7u32.into()])?;
    for _ in 0..BATCH {
        edge.reset()?;
        edge.call(holder, &[lock.into()])?;
    }
    put(
        report,
        "object.lock",
        "a lock that is held comes back",
        edge.stats()?.rebuild_ns,
    )?;
    let host = hosted(folder, "fs", plain())?;
    let edge = host.edge("bench", "fs", &[])?;
    let method = |name: &str| edge.function(&format!("{FILES}{name}"));
    let (open, size) = (method("[static]file.open")?, method("[method]file.size")?);
    let write = method("[method]file.write")?;
    let mut files = Vec::new();
    for n in 0..8 {
        let args = [Value::String(format!("file-{n}")), Value::Bool(true)];
        let file = handle(edge.call(open, &args)?)?;
        let data = [7_u8; 64];
        edge.call(write, &[file.into(), 0u64.into(), data.as_slice().into()])?;
        files.push(file);
    }
    for _ in 0..BATCH {
        edge.reset()?;
        for file in &files {
            edge.call(size, &[(*file).into()])?;
        }
    }
    let took = edge.stats()?.rebuild_ns;
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (place, ns) in took.into_iter().enumerate() {
        let list = if place % files.len() == 0 {
            &mut first
        } else {
            &mut rest
        };
        list.push(ns);
    }
    put(
        report,
        "object.file-first",
        "an open file with 64 bytes comes back: the first one",
        first,
    )?;
    put(
        report,
        "object.file-rest",
        "an open file with 64 bytes comes back: another one",
        rest,
    )
}

/// Open, write, read, close.
fn files(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let host = hosted(folder, "fs", plain())?;
    let edge = host.edge("bench", "fs", &[])?;
    let mut other = Bare::new(host.engine(), &measured(folder, "fs", plain())?)?;
    let method = |name: &str| edge.function(&format!("{FILES}{name}"));
    let open = method("[static]file.open")?;
    let (write, read) = (method("[method]file.write")?, method("[method]file.read")?);
    let name = [Value::String("file".into()), Value::Bool(true)];
    let data: Value = [9_u8; 64].as_slice().into();
    let failed = |failure| Told::from(anyhow::anyhow!("without stubs: {failure:?}"));
    let bare = || {
        let file = handle(other.call(open, &name).map_err(failed)?)?;
        let args = [file.into(), 0u64.into(), data.clone()];
        other.call(write, &args).map_err(failed)?;
        let args = [file.into(), 0u64.into(), 64u32.into()];
        other.call(read, &args).map_err(failed)?;
        other.discard(file).map_err(failed)
    };
    in_turns(
        report,
        "file",
        "open, write and read 64 bytes, close",
        bare,
        workloads::open_write(&edge)?,
    )
}

/// One call: as wasmtime makes it with types known before, without, and behind stubs.
fn calls(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let host = hosted(folder, "lock", plain())?;
    let edge = host.edge("bench", "lock", &[])?;
    let mut other = Bare::new(host.engine(), &measured(folder, "lock", plain())?)?;
    let method = |name: &str| edge.function(&format!("{LOCKS}{name}"));
    let (make, take) = (method("[constructor]lock")?, method("[method]lock.take")?);
    let failed = |failure| Told::from(anyhow::anyhow!("without stubs: {failure:?}"));
    let lock = handle(edge.call(make, &[])?)?;
    let bare = handle(other.call(make, &[]).map_err(failed)?)?;
    let times = u32::try_from(ITERATIONS).unwrap_or(1);
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    for turn in 0..=TURNS {
        for (which, took) in took.iter_mut().enumerate() {
            let begin = Instant::now();
            match which {
                0 => {
                    let taken = other.call_typed(take, bare, 7, times).map_err(failed)?;
                    if taken != times {
                        return Err(anyhow::anyhow!("{taken} of {times} calls took it").into());
                    }
                }
                1 => {
                    for _ in 0..times {
                        other
                            .call(take, &[bare.into(), 7u32.into()])
                            .map_err(failed)?;
                    }
                }
                _ => {
                    for _ in 0..times {
                        edge.call(take, &[lock.into(), 7u32.into()])?;
                    }
                }
            }
            if turn > 0 {
                took.push(ns(begin) / u64::from(times));
            }
        }
    }
    let [typed, untyped, protected] = took;
    put(
        report,
        "call.typed",
        "a call across Stores without stubs, types known when it was compiled",
        typed,
    )?;
    put(
        report,
        "call.bare",
        "a call across Stores without stubs, with wasmtime's values",
        untyped,
    )?;
    put(
        report,
        "call.protected",
        "the same call behind stubs",
        protected,
    )?;
    for (key, what, over) in [
        (
            "call.over-bare",
            "a protected call over a bare one",
            "call.bare",
        ),
        (
            "call.over-typed",
            "a protected call over one with known types",
            "call.typed",
        ),
    ] {
        if let (Some(of), Some(over)) = (report.last("call.protected"), report.last(over)) {
            report.put(key, what, "", of / over);
        }
    }
    Ok(())
}

/// From the fault to the error in the caller's hand, without the reset.
fn faults(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let policy = Policy {
        redo_max: 0,
        ..plain()
    };
    let host = hosted(folder, "probe", policy)?;
    let edge = host.edge("bench", "probe", &[])?;
    let kinds = [
        (
            "trap",
            "trap",
            "a trap until the caller has its error, without the reset",
        ),
        (
            "assert-host",
            "assert",
            "an assertion told to the host, likewise",
        ),
    ];
    let reset_ns = |edge: &Edge| {
        edge.stats()
            .map(|s| s.reset_ns.last().copied().unwrap_or(0))
    };
    for (name, key, what) in kinds {
        let function = probe(&edge, name)?;
        let mut took = Vec::new();
        for _ in 0..BATCH {
            let begin = Instant::now();
            let failed = edge.call(function, &[]);
            let all = ns(begin);
            if failed.is_ok() {
                return Err(anyhow::anyhow!("{name} returned").into());
            }
            took.push(all.saturating_sub(reset_ns(&edge)?));
        }
        put(report, &format!("fault.{key}"), what, took)?;
    }
    let spin = probe(&edge, "spin")?;
    let mut took = Vec::new();
    for _ in 0..BATCH / 3 {
        // The component is entered once. A signal for any other call would arrive in the middle of what is measured.
        let call = Runner::unpack(Runner::current().pack() + 1);
        let done = AtomicBool::new(false);
        let before = pad::wild_ns();
        let failed = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) && pad::wild_ns() == before {
                    call.go_wild(Wild::NotCanonical);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let failed = edge.call(spin, &[]);
            let end = pad::now_ns();
            done.store(true, Ordering::Release);
            failed.map_or(Some(end), |_| None)
        });
        let end = failed.ok_or_else(|| anyhow::anyhow!("a loop without end has ended"))?;
        let wild = pad::wild_ns();
        // The hang breaker may have come first.
        if wild != before {
            took.push(end.saturating_sub(wild).saturating_sub(reset_ns(&edge)?));
        }
    }
    put(
        report,
        "fault.pad",
        "a wild fault until the caller has its error, without the reset",
        took,
    )
}
