//! Cores: which may be used, and putting a process on one.

#![allow(
    unsafe_code,
    reason = "cpu_set_t is only reachable through raw pointers"
)]

use std::fs;
use std::io;
use std::sync::OnceLock;

/// Cores this process may use, ascending.
#[must_use]
pub fn allowed() -> Vec<usize> {
    allowed_to(0)
}

/// Cores another process may use, ascending; none if it is gone.
#[must_use]
pub fn allowed_to(pid: i32) -> Vec<usize> {
    let bits = affinity_of(pid);
    (0..bits.len() * 8)
        .filter(|cpu| bits[cpu / 8] & 1 << (cpu % 8) != 0)
        .collect()
}

/// The affinity mask of this process as the kernel gives it.
#[must_use]
pub fn affinity() -> Vec<u8> {
    affinity_of(0)
}

fn affinity_of(pid: i32) -> Vec<u8> {
    let mut bits = vec![0_u8; 256];
    // SAFETY: the kernel writes at most the length given.
    let n = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            pid,
            bits.len(),
            bits.as_mut_ptr(),
        )
    };
    bits.truncate(usize::try_from(n).unwrap_or(0));
    bits
}

/// Puts a process on one core.
///
/// # Errors
/// As sched_setaffinity(2).
pub fn pin(pid: i32, cpu: usize) -> io::Result<()> {
    bind(pid, &[cpu])
}

/// Lets a process run on these cores only; 0 is this thread.
///
/// # Errors
/// As sched_setaffinity(2).
pub fn bind(pid: i32, cpus: &[usize]) -> io::Result<()> {
    // SAFETY: cpu_set_t is plain bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: CPU_SET checks the number against the set's size.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: the set is valid for the call.
    let rc = unsafe { libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), &raw const set) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The last-level cache a core uses, by the kernel's number; 0 where it does not say.
#[must_use]
pub fn last_level_cache(cpu: usize) -> usize {
    (0..5)
        .rev()
        .find_map(|index| {
            fs::read_to_string(format!(
                "/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/id"
            ))
            .ok()
        })
        .and_then(|id| id.trim().parse().ok())
        .unwrap_or(0)
}

/// The lowest-numbered sibling of a core: equal for threads of one physical core.
#[must_use]
pub fn physical(cpu: usize) -> usize {
    fs::read_to_string(format!(
        "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    ))
    .ok()
    .and_then(|list| {
        list.trim()
            .split([',', '-'])
            .next()
            .and_then(|n| n.parse().ok())
    })
    .unwrap_or(cpu)
}

/// Time-stamp ticks per microsecond, measured once against the monotonic clock over 2 ms: short
/// against a run, long against the 50 ns that reading both clocks takes.
#[must_use]
pub fn ticks_per_us() -> u32 {
    static MEASURED: OnceLock<u32> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let start = std::time::Instant::now();
        let t0 = ticks();
        while start.elapsed().as_micros() < 2000 {
            std::hint::spin_loop();
        }
        let ticks = ticks() - t0;
        u32::try_from(ticks / u64::try_from(start.elapsed().as_micros().max(1)).unwrap_or(1))
            .unwrap_or(2000)
    })
}

/// The time-stamp counter.
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has rdtsc, and no kernel disables it for this process.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The parts of vector state that the kernel manages, tiles aside, and where in the standard
/// format of xsave the upper halves of ymm, the mask registers, the upper halves of zmm and
/// zmm16 to zmm31 lie (Intel SDM vol. 1, 13.4 and 13.5).
#[must_use]
pub fn vector_state() -> (u64, [u32; 4]) {
    use std::arch::x86_64::__cpuid_count;
    let place = |part| __cpuid_count(0xd, part).ebx;
    let supported = __cpuid_count(0xd, 0);
    // x87, sse, avx, opmask, zmm_hi256, hi16_zmm: what a fault can hit. Other parts stay loaded.
    let mask = u64::from(supported.eax) & 0xe7;
    (mask, [place(2), place(5), place(6), place(7)])
}

/// Lets this thread run only when nobody else wants to (SCHED_IDLE). Where that is refused it runs as before.
pub fn run_when_idle() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: thread 0 is the caller, and the structure lives across the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) };
}

/// Lets this thread run as an ordinary one (SCHED_OTHER). Where that is refused it runs as before.
pub fn run_ordinarily() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: thread 0 is the caller, and the structure lives across the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const param) };
}

/// Lets this thread run before all ordinary ones (SCHED_FIFO), at the lowest of those priorities.
///
/// # Errors
/// As [`run_at`].
pub fn run_first() -> io::Result<()> {
    run_at(1)
}

/// Lets this thread run before all ordinary ones (SCHED_FIFO) and those of lower priority, 1 to 99.
///
/// # Errors
/// As sched_setscheduler(2): an ordinary user is refused.
pub fn run_at(priority: u8) -> io::Result<()> {
    let param = libc::sched_param {
        sched_priority: priority.into(),
    };
    // SAFETY: thread 0 is the caller, and the structure lives across the call.
    let rc = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// CPU time that a thread of this process has used, in ns. None when it has ended.
#[must_use]
pub fn thread_time_ns(tid: i32) -> Option<u64> {
    // CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED
    clock_ns(tid, 6)
}

/// CPU time that all threads of a process have used, in ns. None when it has ended.
#[must_use]
pub fn process_time_ns(pid: i32) -> Option<u64> {
    // CPUCLOCK_SCHED
    clock_ns(pid, 2)
}

/// A CPU clock's number is its kind beside the complement of a thread's or process's number (clock_getcpuclockid(3)).
fn clock_ns(of: i32, kind: i32) -> Option<u64> {
    let clock = (!of << 3) | kind;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is writable for the call; a clock of a thread that is gone is an error.
    let rc = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let ns = time
        .tv_sec
        .checked_mul(1_000_000_000)?
        .checked_add(time.tv_nsec)?;
    (rc == 0).then(|| u64::try_from(ns).ok()).flatten()
}
