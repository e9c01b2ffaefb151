//! Flips at a given instruction of given code, by single steps of the processor: the same one each time.
//!
//! ```text
//!   arm(calls, instructions) ──► so many calls pass at full speed ──► one is stepped ──► its n-th instruction in the code: the flip
//! ```
//!
//! Whoever runs such code marks each call of it ([`Passage`]). With the same calls before, the same instruction is struck.
//!
//! Invariants
//!  1. At most one flip for each call of [`Steps::arm`]; after it nothing is stepped.
//!  2. A breakpoint, or a signal that somebody else sent, goes to the handler that was there before.
//!  3. The handler allocates nothing, takes no lock, and touches static atomics and the interrupted context alone.
//!
//! Not covered: several threads that run the code at once.
//! See Intel SDM 3B 18.3.1.4 (single-step exception), sigaction(2).

#![allow(
    unsafe_code,
    reason = "signal handlers, the interrupted context, and the trap flag"
)]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::tick::{self, BITS, EIGHT};

static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
const OFF: u32 = 0;
const COUNT: u32 = 1;
const STRIKE: u32 = 2;
static MODE: AtomicU32 = AtomicU32::new(OFF);
/// Calls that still pass.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Instructions that still pass; or those that were counted.
static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
/// Register * 128 + bit.
static DRAWN: AtomicU32 = AtomicU32::new(0);
static STEPPING: AtomicBool = AtomicBool::new(false);
/// Who had the signal before.
static BEFORE: AtomicUsize = AtomicUsize::new(0);
static COUNTED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// A trap by the processor's trap flag (asm-generic/siginfo.h).
const TRAP_TRACE: i32 = 2;
/// In the flags register.
const TRAP_FLAG: i64 = 0x100;

extern "C" fn on_trap(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives this handler its own.
    let code = unsafe { (*info).si_code };
    // SAFETY: likewise.
    let of = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    if code != TRAP_TRACE {
        let before = BEFORE.load(Ordering::Relaxed);
        if before == libc::SIG_DFL || before == libc::SIG_IGN {
            // SAFETY: two numbers. Blocked here, it comes when this handler has returned.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            // SAFETY: takes a number.
            unsafe { libc::raise(signal) };
            return;
        }
        // SAFETY: installed with SA_SIGINFO, as `start` has looked.
        let before: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(before) };
        before(signal, info, context);
        return;
    }
    let index = |register: i32| usize::try_from(register).unwrap_or(0);
    let flags = index(libc::REG_EFL);
    if !STEPPING.load(Ordering::Relaxed) {
        of.uc_mcontext.gregs[flags] &= !TRAP_FLAG;
        return;
    }
    let rip = of.uc_mcontext.gregs[index(libc::REG_RIP)].cast_unsigned();
    let start = START.load(Ordering::Relaxed);
    if !(start..END.load(Ordering::Relaxed)).contains(&rip) {
        return;
    }
    let before = INSTRUCTIONS.load(Ordering::Relaxed);
    if MODE.load(Ordering::Relaxed) == COUNT {
        INSTRUCTIONS.store(before + 1, Ordering::Relaxed);
        return;
    }
    if before > 0 {
        INSTRUCTIONS.store(before - 1, Ordering::Relaxed);
        return;
    }
    STEPPING.store(false, Ordering::Relaxed);
    MODE.store(OFF, Ordering::Relaxed);
    of.uc_mcontext.gregs[flags] &= !TRAP_FLAG;
    let drawn = DRAWN.load(Ordering::Relaxed);
    tick::tell(drawn, rip - start);
    tick::flip(of, drawn / BITS, drawn % BITS);
}

/// One call of the code, while it lives.
#[derive(Debug)]
pub struct Passage(bool);

impl Passage {
    /// A call of the code that begins there; of other code, or while nothing is armed, it does nothing.
    #[must_use]
    #[inline]
    pub fn begin(text: u64) -> Self {
        if MODE.load(Ordering::Relaxed) == OFF {
            return Self(false);
        }
        Self::step(text)
    }

    #[cold]
    fn step(text: u64) -> Self {
        if text != START.load(Ordering::Relaxed) {
            return Self(false);
        }
        if MODE.load(Ordering::Relaxed) == COUNT {
            INSTRUCTIONS.store(0, Ordering::Relaxed);
        } else {
            let calls = CALLS.load(Ordering::Relaxed);
            if calls > 0 {
                CALLS.store(calls - 1, Ordering::Relaxed);
                return Self(false);
            }
        }
        STEPPING.store(true, Ordering::Relaxed);
        // SAFETY: sets the trap flag and nothing else; the handler takes it away again.
        unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
        Self(true)
    }
}

impl Drop for Passage {
    #[inline]
    fn drop(&mut self) {
        if !self.0 {
            return;
        }
        // The trap after this takes the flag away.
        STEPPING.store(false, Ordering::Relaxed);
        if MODE.load(Ordering::Relaxed) == COUNT {
            let mut counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
            counted.push(INSTRUCTIONS.load(Ordering::Relaxed));
        }
    }
}

/// Steps through given code.
#[derive(Debug)]
pub struct Steps(());

impl Steps {
    /// Prepares them, for code in `text`.
    ///
    /// # Errors
    /// As sigaction(2); where a handler without SA_SIGINFO has the signal.
    pub fn start(text: &Range<u64>) -> io::Result<Self> {
        START.store(text.start, Ordering::Relaxed);
        END.store(text.end, Ordering::Relaxed);
        // SAFETY: all zeroes is a valid, empty sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: likewise.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the handler has the three arguments that SA_SIGINFO asks for.
        if unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, &raw mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if before.sa_sigaction != action.sa_sigaction {
            BEFORE.store(before.sa_sigaction, Ordering::Relaxed);
        }
        Ok(Self(()))
    }

    /// Writes a line to this descriptor before each flip, as [`crate::tick::Ticks::tell`].
    pub fn tell(&self, fd: i32) {
        tick::tell_to(fd);
    }

    /// From now on the instructions of each call are counted.
    pub fn count(&self) {
        COUNTED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        MODE.store(COUNT, Ordering::Relaxed);
    }

    /// How many instructions of the code each call has had since then. Counting ends.
    #[must_use]
    pub fn counted(&self) -> Vec<u64> {
        MODE.store(OFF, Ordering::Relaxed);
        std::mem::take(&mut *COUNTED.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// After so many calls, and so many instructions of the one that follows, this bit of this register flips. Numbers as those of
    /// [`crate::tick::Ticks::arm`].
    pub fn arm(&self, calls: u64, instructions: u64, register: u32, bit: u32) {
        CALLS.store(calls, Ordering::Relaxed);
        INSTRUCTIONS.store(instructions, Ordering::Relaxed);
        DRAWN.store(register.min(EIGHT) * BITS + bit % BITS, Ordering::Relaxed);
        MODE.store(STRIKE, Ordering::Relaxed);
    }

    /// Whether the flip that was armed last has been made; one that was not is disarmed.
    #[must_use]
    pub fn struck(&self) -> bool {
        MODE.swap(OFF, Ordering::Relaxed) == OFF
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three instructions a turn; the sum is in rax.
    #[inline(never)]
    fn work(n: u64) -> u64 {
        let sum: u64;
        // SAFETY: changes the two registers that it names.
        unsafe {
            std::arch::asm!("2:", "add rax, 1", "dec rcx", "jnz 2b", inout("rcx") n => _, inout("rax") 0_u64 => sum);
        };
        sum
    }

    fn called(n: u64) -> u64 {
        let _passage = Passage::begin(work as *const () as u64);
        std::hint::black_box(work(std::hint::black_box(n)))
    }

    #[test]
    fn each_call_has_its_instructions_counted_and_the_one_that_is_named_is_struck() {
        let at = work as *const () as u64;
        let steps = Steps::start(&(at..at + 64)).expect("a handler");
        steps.count();
        assert_eq!([3, 3, 9].map(called), [3, 3, 9]);
        // Code that was not named is no call.
        drop(Passage::begin(at + 1));
        let counted = steps.counted();
        assert_eq!(counted.len(), 3, "{counted:?}");
        assert_eq!(counted[0], counted[1]);
        assert_eq!(counted[2] - counted[1], 3 * 6, "{counted:?}");
        // In the middle of the second of two long calls, each time the same.
        for _ in 0..3 {
            steps.arm(1, 1500, 0, 40);
            assert_eq!([1000, 1000].map(called), [1000, 1000 + (1 << 40)]);
            assert!(steps.struck());
        }
        // A place that no call comes to strikes nothing, and is told; then nothing is stepped.
        steps.arm(1, 1 << 40, 0, 40);
        assert_eq!([5, 5, 5].map(called), [5, 5, 5]);
        assert!(!steps.struck());
        assert_eq!(called(7), 7);
        assert!(steps.struck());
    }
}
