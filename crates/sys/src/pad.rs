//! The signal pad: a fault in generated code becomes a trap that the runtime of that code knows how to unwind.
//!
//! A wild fault (a flipped base register, a jump into the middle of an instruction) arises where the compiler expected none, so a runtime
//! such as wasmtime takes it for a bug of its own and lets the process die. The pad is the address of one trap that the runtime does know.
//! The handlers here stand before the runtime's. They move the interrupted context to the pad and call the runtime's handler, as if the trap
//! there had just happened. It unwinds to the place where generated code was entered, which it remembers elsewhere than in the damaged
//! registers. So one signal is enough, and the instruction at the pad is never executed.
//!
//! ```text
//!   fault in generated code, or in no executable mapping ──► rip = pad, known trap ──► the caller gets an error
//!   fault in the host's own code                         ──► the runtime's handler: the process dies
//! ```
//!
//! Invariants
//!  1. Nothing is diverted unless this thread is inside generated code ([`Inside`]).
//!  2. A fault with the program counter in the host's own text is never diverted: its frames may hold locks.
//!  3. The handlers allocate nothing, take no lock, and write only to this thread's record and to static atomics; what the runtime's own
//!     handler does it would do for a trap of its own.
//!
//! Not covered: a stack pointer that changes while generated code is being entered, before the runtime has saved it: the process dies.
//! Also not covered: a wild store that hits mapped memory of the host, and a jump into the host's text that does not fault.
//! See sigaction(2), signal-safety(7).

#![allow(
    unsafe_code,
    reason = "signal handlers and the interrupted context are raw pointers"
)]

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Ranges of one kind, readable from a signal handler. A slot is valid when its end is not zero.
struct Ranges<const N: usize> {
    start: [AtomicU64; N],
    end: [AtomicU64; N],
    /// Slots behind these were never taken: a handler does not read them, which would take longer than all the rest that it does.
    used: AtomicUsize,
}

impl<const N: usize> Ranges<N> {
    const fn new() -> Self {
        Self {
            start: [const { AtomicU64::new(0) }; N],
            end: [const { AtomicU64::new(0) }; N],
            used: AtomicUsize::new(0),
        }
    }

    fn contains(&self, at: u64) -> bool {
        let used = self.used.load(Ordering::Acquire);
        self.start
            .iter()
            .zip(&self.end)
            .take(used)
            .any(|(start, end)| {
                let end = end.load(Ordering::Acquire);
                end > at && start.load(Ordering::Relaxed) <= at
            })
    }

    fn insert(&self, range: &Range<u64>) -> bool {
        for (start, end) in self.start.iter().zip(&self.end) {
            if end.load(Ordering::Acquire) == range.end
                && start.load(Ordering::Relaxed) == range.start
            {
                return true;
            }
        }
        for (place, (start, end)) in self.start.iter().zip(&self.end).enumerate() {
            // A start that no address reaches marks the slot as taken until the end is in place.
            if end.load(Ordering::Acquire) == 0
                && start
                    .compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                start.store(range.start, Ordering::Release);
                end.store(range.end, Ordering::Release);
                self.used.fetch_max(place + 1, Ordering::AcqRel);
                return true;
            }
        }
        false
    }

    fn remove(&self, range: &Range<u64>) {
        for (start, end) in self.start.iter().zip(&self.end) {
            if end.load(Ordering::Acquire) == range.end
                && start.load(Ordering::Relaxed) == range.start
            {
                end.store(0, Ordering::Release);
                start.store(0, Ordering::Release);
            }
        }
    }
}

/// Text of components. 256 components in one process are more than any use known so far.
static GENERATED: Ranges<256> = Ranges::new();
/// Executable mappings of the program and its libraries.
static HOST: Ranges<512> = Ranges::new();
static PAD: AtomicU64 = AtomicU64::new(0);
static DIVERTED: AtomicUsize = AtomicUsize::new(0);
/// Signals of the hardware for which a runtime has handlers.
const RUNTIME: [i32; 3] = [libc::SIGILL, libc::SIGSEGV, libc::SIGFPE];
/// The handlers that these had before; 0 where there was none that takes three arguments.
static BEFORE: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// A handler with SA_SIGINFO.
type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// What a signal found, for the dump of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The signal, or 0 where there was none.
    pub signal: i32,
    /// Where the program counter stood.
    pub rip: u64,
    /// The address that the access went to (siginfo_t.si_addr).
    pub address: u64,
    /// General registers in the order of the hardware's numbers: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub registers: [u64; 16],
}

/// The hang breaker and a fault may meet in one call; more than that is a way out that does not lead out.
const TRIES_MAX: u32 = 4;

const NOTHING: Seen = Seen {
    signal: 0,
    rip: 0,
    address: 0,
    registers: [0; 16],
};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static SEEN: Cell<Seen> = const { Cell::new(NOTHING) };
    /// Faults diverted since this thread entered generated code.
    static TRIES: Cell<u32> = const { Cell::new(0) };
    /// The number of the call that this thread is in.
    static CALL: Cell<u32> = const { Cell::new(0) };
}

/// Held while this thread runs generated code.
#[derive(Debug)]
pub struct Inside(());

impl Inside {
    /// From here on faults of this thread may be diverted.
    #[must_use]
    #[inline]
    pub fn enter() -> Self {
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        CALL.with(|call| call.set(call.get().wrapping_add(1)));
        TRIES.with(|tries| tries.set(0));
        Self(())
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        CALL.with(|call| call.set(call.get().wrapping_add(1)));
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}

/// Held while generated code has called its host: the host's own faults are not to be diverted past its frames, which may hold locks.
#[derive(Debug)]
pub struct Outside {
    depth: u32,
}

impl Outside {
    /// From here on nothing is diverted in this thread, until generated code is entered again.
    #[must_use]
    #[inline]
    pub fn enter() -> Self {
        CALL.with(|call| call.set(call.get().wrapping_add(1)));
        Self {
            depth: DEPTH.with(|depth| depth.replace(0)),
        }
    }
}

impl Drop for Outside {
    /// The stretch that follows has a number of its own, so that a break that was meant for the one before does not end it.
    #[inline]
    fn drop(&mut self) {
        CALL.with(|call| call.set(call.get().wrapping_add(1)));
        DEPTH.with(|depth| depth.set(self.depth));
        TRIES.with(|tries| tries.set(0));
    }
}

/// What the last signal of this thread found; forgets it.
#[must_use]
pub fn take_seen() -> Option<Seen> {
    let seen = SEEN.with(|seen| seen.replace(NOTHING));
    (seen.signal != 0).then_some(seen)
}

/// How many faults this process has diverted.
#[must_use]
pub fn diverted() -> usize {
    DIVERTED.load(Ordering::Relaxed)
}

/// Sets the address of the trap that the runtime knows.
pub fn set_pad(at: u64) {
    PAD.store(at, Ordering::Release);
}

/// The pad's address, 0 while there is none.
#[must_use]
pub fn pad() -> u64 {
    PAD.load(Ordering::Acquire)
}

/// Adds the text of a component.
///
/// # Errors
/// When 256 components are known already.
pub fn add_generated(range: &Range<u64>) -> io::Result<()> {
    HOST.remove(range);
    if GENERATED.insert(range) {
        Ok(())
    } else {
        Err(io::Error::other("more than 256 components in one process"))
    }
}

/// Takes the text of a component away before it is unmapped.
pub fn remove_generated(range: &Range<u64>) {
    GENERATED.remove(range);
}

/// Whether an address lies in a component's text.
#[must_use]
pub fn is_generated(at: u64) -> bool {
    GENERATED.contains(at)
}

/// Takes stock of the program's and its libraries' executable mappings, so that what lies in none of them is known to be nowhere.
///
/// # Errors
/// When /proc/self/maps cannot be read, or has more than 512 such mappings.
pub fn take_stock() -> io::Result<()> {
    for map in crate::procfs::maps(std::process::id().cast_signed())? {
        if map.executable && !GENERATED.contains(map.range.start) && !HOST.insert(&map.range) {
            return Err(io::Error::other("more than 512 executable mappings"));
        }
    }
    Ok(())
}

/// The registers of an interrupted context in hardware order.
pub(crate) const ORDER: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

fn register(context: &libc::ucontext_t, which: libc::c_int) -> u64 {
    let index = usize::try_from(which).unwrap_or(0);
    context.uc_mcontext.gregs[index].cast_unsigned()
}

fn note(signal: i32, address: u64, context: &libc::ucontext_t) {
    let mut registers = [0; 16];
    for (value, which) in registers.iter_mut().zip(ORDER) {
        *value = register(context, which);
    }
    SEEN.with(|seen| {
        seen.set(Seen {
            signal,
            rip: register(context, libc::REG_RIP),
            address,
            registers,
        })
    });
}

/// Moves the interrupted context to the pad where that is sound, and says whether it did.
///
/// # Safety
/// `info` and `context` are what the kernel gave the handler of `signal` that is running.
unsafe fn divert(signal: i32, info: *const libc::siginfo_t, context: *mut libc::c_void) -> bool {
    let pad = PAD.load(Ordering::Acquire);
    if pad == 0 || DEPTH.with(Cell::get) == 0 {
        return false;
    }
    // SAFETY: the caller passes the handler's own context, which nobody else touches until the handler returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let rip = register(context, libc::REG_RIP);
    // The pad's own trap belongs to the runtime.
    if rip == pad {
        return false;
    }
    if !GENERATED.contains(rip) && HOST.contains(rip) {
        return false;
    }
    // SAFETY: the caller passes the handler's own structure.
    let info = unsafe { &*info };
    // SAFETY: for these signals the kernel fills in the address (sigaction(2)).
    let address = unsafe { info.si_addr() } as u64;
    // A flip before the way out was saved damages the way out as well: the pad would lead back here for ever. The process dies instead.
    if TRIES.with(|tries| tries.replace(tries.get() + 1)) >= TRIES_MAX {
        return false;
    }
    note(signal, address, context);
    DIVERTED.fetch_add(1, Ordering::Relaxed);
    let index = usize::try_from(libc::REG_RIP).unwrap_or(0);
    context.uc_mcontext.gregs[index] = pad.cast_signed();
    true
}

/// Hands a signal to the handler that was there before. False where there was none.
///
/// # Safety
/// As for [`divert`]; the context may have been moved to the pad, with SIGILL for what happens there.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) -> bool {
    let place = RUNTIME.iter().position(|of| *of == signal);
    let before = place.map_or(0, |place| BEFORE[place].load(Ordering::Acquire));
    if before == 0 {
        return false;
    }
    // SAFETY: `install` stored the address of a handler with these three arguments, which is there as long as the process lives.
    let before = unsafe { std::mem::transmute::<usize, Handler>(before) };
    before(signal, info, context);
    true
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel called this handler with these arguments.
    let signal = match unsafe { divert(signal, info, context) } {
        // What the instruction at the pad would raise.
        true => libc::SIGILL,
        false => signal,
    };
    // SAFETY: likewise. Where nobody takes it, what was diverted traps at the pad.
    if unsafe { pass_on(signal, info, context) } {
        return;
    }
    // Nobody's: it happens again at the same instruction, and then ends the process as it would have.
    // SAFETY: SIG_DFL is a disposition that every signal here may have.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    if signal == libc::SIGTRAP {
        // int3 does not happen again: rip stands behind it.
        // SAFETY: raises a signal in this thread.
        unsafe { libc::raise(signal) };
    }
}

/// The signal of the hang breaker. SIGURG is ignored by default, so one that arrives late does nothing.
pub const BREAKER: i32 = libc::SIGURG;

/// A wild fault that the self-test makes: where the program counter goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wild {
    /// No fault: the hang breaker alone.
    Break,
    /// The first page, which is never mapped: SIGSEGV.
    Low,
    /// An address that is not canonical: SIGSEGV without an address.
    NotCanonical,
    /// rsp and rip wrong together: the handler must not need the stack.
    Stack,
}

/// All of them.
pub const WILD: [Wild; 4] = [Wild::Break, Wild::Low, Wild::NotCanonical, Wild::Stack];

/// What the next break does instead of moving to the pad; 0 for nothing. Used by the self-test alone, before any component runs.
static TEST: AtomicUsize = AtomicUsize::new(0);

/// When the last wild fault was made, by CLOCK_MONOTONIC in ns.
static WILD_NS: AtomicU64 = AtomicU64::new(0);

/// When the last wild fault was made, by CLOCK_MONOTONIC in ns; 0 where none was.
#[must_use]
pub fn wild_ns() -> u64 {
    WILD_NS.load(Ordering::Acquire)
}

/// CLOCK_MONOTONIC in ns.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is writable for the call, which may be made in a signal handler (signal-safety(7)).
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn break_wildly(context: &mut libc::ucontext_t, how: usize) {
    WILD_NS.store(now_ns(), Ordering::Release);
    let rip = usize::try_from(libc::REG_RIP).unwrap_or(0);
    let rsp = usize::try_from(libc::REG_RSP).unwrap_or(0);
    match WILD.get(how) {
        Some(Wild::Low) => context.uc_mcontext.gregs[rip] = 16,
        Some(Wild::NotCanonical) => context.uc_mcontext.gregs[rip] ^= 1 << 55,
        Some(Wild::Stack) => {
            context.uc_mcontext.gregs[rsp] ^= 1 << 45;
            context.uc_mcontext.gregs[rip] = 64;
        }
        Some(Wild::Break) | None => {}
    }
}

extern "C" fn on_break(_signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a structure that lives as long as the handler runs.
    let queued = unsafe { &*info };
    // SAFETY: rt_tgsigqueueinfo(2) filled in a value (see `Runner::interrupt`).
    let wanted = unsafe { queued.si_value() }.sival_ptr as u64;
    if wanted != u64::from(CALL.with(Cell::get)) || DEPTH.with(Cell::get) == 0 {
        return;
    }
    // On its way out already. The way begins in generated code, and the runtime does not bear to be sent there twice.
    if TRIES.with(Cell::get) > 0 {
        return;
    }
    // SAFETY: the context is this handler's own.
    let rip = register(
        unsafe { &*context.cast::<libc::ucontext_t>() },
        libc::REG_RIP,
    );
    if !GENERATED.contains(rip) {
        return;
    }
    let test = TEST.swap(0, Ordering::AcqRel);
    if test != 0 {
        // SAFETY: the context is this handler's own.
        break_wildly(unsafe { &mut *context.cast::<libc::ucontext_t>() }, test);
        return;
    }
    // SAFETY: as for `on_fault`.
    if unsafe { divert(BREAKER, info, context) } {
        // SAFETY: likewise.
        unsafe { pass_on(libc::SIGILL, info, context) };
    }
}

/// A thread that runs generated code, for the hang breaker of another thread.
#[derive(Debug, Clone, Copy)]
pub struct Runner {
    tid: i32,
    call: u32,
}

impl Runner {
    /// This thread, in the call that it is in.
    #[must_use]
    pub fn current() -> Self {
        Self {
            tid: own_tid(),
            call: CALL.with(Cell::get),
        }
    }

    /// Its number in the kernel.
    #[must_use]
    pub fn tid(self) -> i32 {
        self.tid
    }

    /// As one word, for an atomic.
    #[must_use]
    pub fn pack(self) -> u64 {
        u64::from(self.tid.cast_unsigned()) << 32 | u64::from(self.call)
    }

    /// From the word.
    #[must_use]
    pub fn unpack(word: u64) -> Self {
        let (tid, call) = ((word >> 32) & 0xffff_ffff, word & 0xffff_ffff);
        Self {
            tid: u32::try_from(tid).unwrap_or(0).cast_signed(),
            call: u32::try_from(call).unwrap_or(0),
        }
    }

    /// Makes a wild fault in that call: for the self-test.
    pub fn go_wild(self, wild: Wild) {
        TEST.store(
            WILD.iter().position(|one| *one == wild).unwrap_or(0),
            Ordering::Release,
        );
        self.interrupt();
    }

    /// Takes back a wild fault that was asked for and not made, because the call had ended before.
    pub fn go_no_more_wild() {
        TEST.store(0, Ordering::Release);
    }

    /// Ends that call as a trap, if the thread is still in it and in generated code just now. To be asked again until the call has ended.
    pub fn interrupt(self) {
        let mut info = crate::signals::RawInfo {
            signal: BREAKER,
            code: libc::SI_QUEUE,
            ..Default::default()
        };
        info.value = u64::from(self.call);
        let pid = std::process::id().cast_signed();
        // SAFETY: the structure has the kernel's layout and lives across the call; a thread that is gone is an error that does not matter.
        unsafe {
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                pid,
                self.tid,
                BREAKER,
                &raw const info,
            )
        };
    }
}

fn own_tid() -> i32 {
    thread_local! {
        static TID: Cell<i32> = const { Cell::new(0) };
    }
    TID.with(|tid| {
        if tid.get() == 0 {
            // SAFETY: takes nothing.
            tid.set(unsafe { libc::gettid() });
        }
        tid.get()
    })
}

/// Installs handlers before those of a WebAssembly runtime, which has to have installed its own, and for what it has none: SIGBUS, SIGTRAP
/// and the hang breaker's. Once.
///
/// # Errors
/// When the runtime has no handler; as sigaction(2).
pub fn install() -> io::Result<()> {
    let all = [
        (libc::SIGILL, on_fault as *const () as usize),
        (libc::SIGSEGV, on_fault as *const () as usize),
        (libc::SIGFPE, on_fault as *const () as usize),
        (libc::SIGBUS, on_fault as *const () as usize),
        (libc::SIGTRAP, on_fault as *const () as usize),
        (BREAKER, on_break as *const () as usize),
    ];
    for (signal, handler) in all {
        // SAFETY: all zeroes is a valid, empty sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler;
        // On a stack of its own, since rsp may be what a fault has changed; not blocked, since a way out that was damaged faults again.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
        // SAFETY: likewise.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // The one before is known before this one can run.
        if let Some(place) = RUNTIME.iter().position(|of| *of == signal) {
            // SAFETY: asks, and changes nothing.
            if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut before) } != 0 {
                return Err(io::Error::last_os_error());
            }
            if before.sa_flags & libc::SA_SIGINFO == 0 {
                return Err(io::Error::other("the runtime handles no signals"));
            }
            if before.sa_sigaction != handler {
                BEFORE[place].store(before.sa_sigaction, Ordering::Release);
            }
        }
        // SAFETY: the handler has the three arguments that SA_SIGINFO asks for.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_known_until_they_are_taken_away_however_many_there_are() {
        static FEW: Ranges<3> = Ranges::new();
        let all = [10..20, 30..40, 50..60];
        assert!(!FEW.contains(15));
        for (place, range) in all.iter().enumerate() {
            assert!(FEW.insert(range) && FEW.insert(range), "twice is once");
            for (other, range) in all.iter().enumerate() {
                assert_eq!(FEW.contains(range.start), other <= place);
                assert!(!FEW.contains(range.end));
            }
        }
        assert!(!FEW.insert(&(70..80)), "no room");
        FEW.remove(&all[0]);
        assert!(!FEW.contains(15) && FEW.contains(35) && FEW.contains(55));
        assert!(FEW.insert(&(70..80)) && FEW.contains(75));
    }

    /// One that is left would strike the first call that hangs, and its cause would be a wild fault.
    #[test]
    fn a_wild_fault_that_was_not_made_is_taken_back() {
        // Nothing is inside generated code here, so nothing is struck.
        Runner::current().go_wild(Wild::Stack);
        assert_ne!(TEST.load(Ordering::Acquire), 0);
        Runner::go_no_more_wild();
        assert_eq!(TEST.load(Ordering::Acquire), 0);
    }
}
