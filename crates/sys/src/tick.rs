//! Flips that a thread makes in its own registers, when a timer finds it in given code: a campaign's thousands in seconds.
//!
//! ```text
//!   arm(register, bit) ──► a tick finds the thread in the code? ──no──► the next tick, at a random moment
//!                                      │ yes
//!                                      └──► one bit of one register changes; struck() tells it
//! ```
//!
//! Invariants
//!  1. At most one flip for each call of [`Ticks::arm`].
//!  2. The handler allocates nothing, takes no lock, and touches static atomics and the interrupted context alone.
//!
//! Not covered: exact replay, and threads other than the one that started the ticks.
//! See timer_create(2) SIGEV_THREAD_ID, signal-safety(7).

#![allow(
    unsafe_code,
    reason = "signal handlers and the interrupted context are raw pointers"
)]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::pad::ORDER;

static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
/// 0 for none, else one more than register * 64 + bit.
static ARMED: AtomicU32 = AtomicU32::new(0);
static TIMER: AtomicUsize = AtomicUsize::new(0);
/// A xorshift generator, for the moments.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Moments between two ticks: short against a call of a component, long against the handler's own time.
const PAUSE_NS: Range<u64> = 15_000..60_000;

fn signal() -> i32 {
    libc::SIGRTMIN() + 3
}

fn wind(timer: libc::timer_t) {
    let mut x = NEXT.load(Ordering::Relaxed);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    NEXT.store(x, Ordering::Relaxed);
    let ns = PAUSE_NS.start + x % (PAUSE_NS.end - PAUSE_NS.start);
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let when = libc::itimerspec {
        it_interval: none,
        it_value: libc::timespec {
            tv_nsec: ns.cast_signed(),
            ..none
        },
    };
    // SAFETY: the timer lives as long as the process, and the call may be made in a handler (signal-safety(7)).
    unsafe { libc::timer_settime(timer, 0, &raw const when, std::ptr::null_mut()) };
}

extern "C" fn on_tick(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the context is this handler's own.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    let index = |which: libc::c_int| usize::try_from(which).unwrap_or(0);
    let armed = ARMED.load(Ordering::Acquire);
    let rip = registers[index(libc::REG_RIP)].cast_unsigned();
    let inside = (START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed)).contains(&rip);
    if let Some(drawn) = armed.checked_sub(1)
        && inside
        && let Some(which) = ORDER.get(drawn as usize / 64)
    {
        registers[index(*which)] ^= 1_i64 << (drawn % 64);
        ARMED.store(0, Ordering::Release);
    }
    wind(TIMER.load(Ordering::Relaxed) as libc::timer_t);
}

/// Ticks of the thread that started them.
#[derive(Debug)]
pub struct Ticks(());

impl Ticks {
    /// Starts them, for code in `text`.
    ///
    /// # Errors
    /// As sigaction(2) and timer_create(2).
    pub fn start(text: &Range<u64>, seed: u64) -> io::Result<Self> {
        START.store(text.start, Ordering::Relaxed);
        END.store(text.end, Ordering::Relaxed);
        NEXT.store(seed | 1, Ordering::Relaxed);
        // SAFETY: all zeroes is a valid, empty sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_tick as *const () as usize;
        // On a stack of its own, since rsp may be what an earlier flip has changed.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the handler has the three arguments that SA_SIGINFO asks for.
        if unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zeroes is a valid sigevent.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        // SAFETY: takes nothing.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both structures live across the call.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        TIMER.store(timer as usize, Ordering::Relaxed);
        wind(timer);
        Ok(Self(()))
    }

    /// The next tick that finds the thread in that code flips this bit of this general register (0 is rax, 15 is r15).
    pub fn arm(&self, register: u32, bit: u32) {
        ARMED.store(1 + (register % 16) * 64 + bit % 64, Ordering::Release);
    }

    /// Whether the flip that was armed last has been made.
    #[must_use]
    pub fn struck(&self) -> bool {
        ARMED.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[inline(never)]
    fn spin(until: Instant, ticks: &Ticks) -> bool {
        while Instant::now() < until {
            if ticks.struck() {
                return true;
            }
        }
        false
    }

    #[test]
    fn code_that_was_not_named_and_registers_that_do_not_exist_are_left_alone() {
        // An empty range holds no code: nothing is struck, however long the thread computes.
        let ticks = Ticks::start(&(0..0), 7).expect("a timer");
        ticks.arm(0, 0);
        assert!(!spin(Instant::now() + Duration::from_millis(30), &ticks));
        // All code, and a register that does not exist: a flip of one that does would strike this test.
        START.store(0, Ordering::Relaxed);
        END.store(u64::MAX, Ordering::Relaxed);
        ARMED.store(1 + 16 * 64, Ordering::Release);
        assert!(!spin(Instant::now() + Duration::from_millis(10), &ticks));
        START.store(0, Ordering::Relaxed);
        END.store(0, Ordering::Relaxed);
        ARMED.store(0, Ordering::Release);
        assert!(ticks.struck());
    }
}
