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
//! Not covered: exact replay ([`crate::step`]), and threads other than the one that started the ticks.
//! See timer_create(2) SIGEV_THREAD_ID, signal-safety(7).

#![allow(
    unsafe_code,
    reason = "signal handlers and the interrupted context are raw pointers"
)]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::pad::ORDER;

static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
/// 0 for none, else one more than register * 128 + bit.
static ARMED: AtomicU32 = AtomicU32::new(0);
/// Where each flip is told before it is made, or -1.
static TOLD: AtomicI32 = AtomicI32::new(-1);
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

pub(crate) fn tell_to(fd: i32) {
    TOLD.store(fd, Ordering::Relaxed);
}

/// `struck RRBB OFFSET`, all in hexadecimal: the register, the bit, and the place in the code.
pub(crate) fn tell(drawn: u32, offset: u64) {
    let fd = TOLD.load(Ordering::Relaxed);
    if fd < 0 {
        return;
    }
    let mut line = *b"struck 0000 0000000000000000\n";
    let digit = |n: u64| b"0123456789abcdef"[usize::try_from(n & 15).unwrap_or(0)];
    let number = u64::from(drawn / BITS) << 8 | u64::from(drawn % BITS);
    for place in 0..4 {
        line[10 - place] = digit(number >> (4 * place));
    }
    for place in 0..16 {
        line[27 - place] = digit(offset >> (4 * place));
    }
    // SAFETY: writes what lies on the stack; write(2) may be called in a handler (signal-safety(7)).
    unsafe { libc::write(fd, line.as_ptr().cast(), line.len()) };
}

/// Registers are numbered: general ones by the hardware's numbers, then vector registers, then [`EIGHT`]; so many bits each at most.
pub(crate) const BITS: u32 = 128;
/// The first vector register, xmm0.
pub const VECTOR: u32 = 16;
/// Eight registers at once, as Song et al. (RTSS 2013) flip them: eax, ecx, edx, ebx, esp, ebp, esi, edi.
pub const EIGHT: u32 = 32;

/// Makes a flip in an interrupted context; false where there is no such register.
pub(crate) fn flip(context: &mut libc::ucontext_t, register: u32, bit: u32) -> bool {
    let general = &mut context.uc_mcontext.gregs;
    let mut general = |place: usize, bit: u32| {
        let index = usize::try_from(ORDER[place]).unwrap_or(0);
        general[index] ^= 1_i64 << (bit % 64);
    };
    match register {
        0..VECTOR => general(register as usize, bit),
        VECTOR..EIGHT => {
            // SAFETY: the kernel points to the state that it restores when the handler returns, or nowhere.
            let Some(state) = (unsafe { context.uc_mcontext.fpregs.as_mut() }) else {
                return false;
            };
            let words = &mut state._xmm[(register - VECTOR) as usize].element;
            words[(bit / 32 % 4) as usize] ^= 1 << (bit % 32);
        }
        // As wide as theirs were: 32 bits, each of another place.
        EIGHT => (0..8).for_each(|place| general(place as usize, (bit + 5 * place) % 32)),
        _ => return false,
    }
    true
}

extern "C" fn on_tick(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the context is this handler's own.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let armed = ARMED.load(Ordering::Acquire);
    let at = usize::try_from(libc::REG_RIP).unwrap_or(0);
    let rip = context.uc_mcontext.gregs[at].cast_unsigned();
    let inside = (START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed)).contains(&rip);
    if let Some(drawn) = armed.checked_sub(1)
        && inside
        && drawn / BITS <= EIGHT
    {
        tell(drawn, rip - START.load(Ordering::Relaxed));
        if flip(context, drawn / BITS, drawn % BITS) {
            ARMED.store(0, Ordering::Release);
        }
    }
    // Without a flip to make, a tick would only wake a thread that waits.
    if ARMED.load(Ordering::Acquire) != 0 {
        wind(TIMER.load(Ordering::Relaxed) as libc::timer_t);
    }
}

/// Ticks of the thread that started them.
#[derive(Debug)]
pub struct Ticks(());

impl Ticks {
    /// Prepares them, for code in `text`; they come while a flip is armed.
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
        Ok(Self(()))
    }

    /// Writes a line to this descriptor before each flip: which bit of which register, and where in the code.
    pub fn tell(&self, fd: i32) {
        tell_to(fd);
    }

    /// The next tick that finds the thread in that code flips this bit of this register: 0 is rax, 15 is r15, 16 is xmm0, 31 is xmm15, and 32
    /// are eight at once.
    pub fn arm(&self, register: u32, bit: u32) {
        ARMED.store(
            1 + register.min(EIGHT) * BITS + bit % BITS,
            Ordering::Release,
        );
        wind(TIMER.load(Ordering::Relaxed) as libc::timer_t);
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
        ARMED.store(1 + (EIGHT + 1) * BITS, Ordering::Release);
        assert!(!spin(Instant::now() + Duration::from_millis(10), &ticks));
        START.store(0, Ordering::Relaxed);
        END.store(0, Ordering::Relaxed);
        ARMED.store(0, Ordering::Release);
        assert!(ticks.struck());
    }

    #[test]
    fn a_flip_is_told_as_register_bit_and_place() {
        let (mut out, into) = std::io::pipe().expect("a pipe");
        TOLD.store(std::os::fd::AsRawFd::as_raw_fd(&into), Ordering::Relaxed);
        tell(12 * BITS + 33, 0x40f6);
        TOLD.store(-1, Ordering::Relaxed);
        tell(0, 0);
        drop(into);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut out, &mut said).expect("text");
        assert_eq!(said, "struck 0c21 00000000000040f6\n");
    }

    #[test]
    fn one_bit_of_one_register_flips_and_of_eight_one_each() {
        // SAFETY: all zeroes is a context without vector registers.
        let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        // SAFETY: all zeroes is a state of vector registers.
        let mut state: libc::_libc_fpstate = unsafe { std::mem::zeroed() };
        assert!(!flip(&mut context, VECTOR, 0), "none to flip");
        context.uc_mcontext.fpregs = &raw mut state;
        let ones = |context: &libc::ucontext_t| {
            let of = |which: &libc::c_int| {
                context.uc_mcontext.gregs[usize::try_from(*which).expect("small")].count_ones()
            };
            ORDER.iter().map(of).collect::<Vec<_>>()
        };
        assert!(flip(&mut context, 15, 63));
        assert_eq!(
            ones(&context),
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert!(flip(&mut context, 15, 63) && flip(&mut context, EIGHT, 31));
        assert_eq!(
            ones(&context),
            [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert!(flip(&mut context, VECTOR + 3, 127));
        assert_eq!(state._xmm[3].element, [0, 0, 0, 1 << 31]);
        assert!(!flip(&mut context, EIGHT + 1, 0));
    }
}
