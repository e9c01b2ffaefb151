//! A program executed by single steps, for those who ask where it comes by.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use steadfast_sandbox::{self as sandbox, Ended};
use steadfast_sys::cpu;
use steadfast_sys::ptrace::{Regs, Stopped, Waited};

use super::patience::{ended, given_up, os};
use crate::target::{Bench, Ran, SetupError, Started, entry};

/// The program and its tracer on one CPU: a step costs two switches then, not two wakes of an idle CPU, a quarter of the
/// time. A program that asks by sched_getaffinity(2) is told the CPUs that it may run on as ever; /proc shows the one.
struct Together {
    pid: i32,
    /// The one, by the last digits of the clock: several campaigns divide the CPUs among themselves.
    one: usize,
    /// What it may use, and what its tracer may.
    its: Vec<usize>,
    own: Vec<usize>,
}

impl Together {
    fn new(pid: i32) -> Self {
        let its = cpu::allowed_to(pid);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let digits = since.map_or(0, |since| since.subsec_micros() as usize);
        let nth = digits % its.len().max(1);
        let together = Self {
            pid,
            one: its.get(nth).copied().unwrap_or_default(),
            its,
            own: cpu::allowed(),
        };
        together.join();
        let _ = cpu::pin(0, together.one);
        together
    }

    /// A CPU more or less changes nothing but the time.
    fn join(&self) {
        let _ = cpu::pin(self.pid, self.one);
    }

    fn step(&mut self, stop: Stopped, rax: u64, deliver: i32) -> std::io::Result<Waited> {
        // Where this is the number of a system call, the next instruction may ask or say where it may run.
        let call = rax.cast_signed();
        if call != libc::SYS_sched_getaffinity && call != libc::SYS_sched_setaffinity {
            return stop.step(deliver);
        }
        let _ = cpu::bind(self.pid, &self.its);
        let waited = stop.step(deliver);
        self.its = cpu::allowed_to(self.pid);
        self.join();
        waited
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        let _ = cpu::bind(0, &self.own);
    }
}

/// Executes the program by single steps, at most so many, and tells `each` where it stands: a repeated string
/// instruction once, and whether the entry point is still to come. One that makes a process is given up.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn walk(
    bench: &Bench,
    most: u64,
    limit: Duration,
    each: &mut dyn FnMut(i32, u64, bool),
) -> Result<Ran, SetupError> {
    let Started { mut stop, at } = bench.launch(limit, false)?;
    let pid = stop.pid();
    let deadline = Instant::now() + limit;
    let entry = entry(pid).map_err(os)?;
    let mut together = Together::new(pid);
    let mut loader = entry != 0;
    let mut deliver = 0;
    let mut last = u64::MAX;
    let mut steps = 0;
    let ended = loop {
        let Regs { rip, rax, .. } = stop.regs().map_err(os)?;
        loader &= rip != entry;
        let repeats = rip == last && deliver == 0;
        if !(repeats && is_repeated(&mut stop, rip)) {
            each(pid, rip, loader);
        }
        last = rip;
        steps += 1;
        // Children and other programs are not followed: counters see them, steps do not.
        let leaves = PROCESSES.contains(&rax.cast_signed()) && is_call(&mut stop, rip);
        if steps > most || leaves || Instant::now() > deadline {
            break given_up();
        }
        match together.step(stop, rax, deliver).map_err(os)? {
            Waited::Stopped {
                stop: next, signal, ..
            } => {
                deliver = if signal == libc::SIGTRAP { 0 } else { signal };
                stop = next;
            }
            other => break ended(&other, 0),
        }
    };
    sandbox::end_all(&mut Ended::default(), Some(pid));
    Ok(Ran {
        status: ended.status,
        signal: ended.signal,
        timed_out: ended.timed_out,
        wall_ns: u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX),
        ..Ran::default()
    })
}

/// Calls that make a process or a thread, or another program of this one.
const PROCESSES: [i64; 6] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
];

/// Whether `syscall` stands there.
fn is_call(stop: &mut Stopped, rip: u64) -> bool {
    let mut bytes = [0; 2];
    stop.read(rip, &mut bytes).is_ok() && bytes == [0x0f, 0x05]
}

fn is_repeated(stop: &mut Stopped, rip: u64) -> bool {
    let mut bytes = [0; 15];
    let _ = stop.read(rip, &mut bytes);
    let insn = iced_x86::Decoder::with_ip(64, &bytes, rip, iced_x86::DecoderOptions::NONE).decode();
    insn.has_rep_prefix() || insn.has_repne_prefix()
}
