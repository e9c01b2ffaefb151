//! What `steadfast host` needs of a machine, without a WebAssembly runtime: wild faults that become errors, locks that lend priority,
//! threads with a priority, and code that never was writable.
//!
//! The pad's test is the product's own pad (`steadfast_sys::pad`) beneath the smallest runtime there is: a loop, a trap that is known, and
//! a way out of it.
//!
//! Not covered: wasmtime itself. `steadfast host check` tests the pad beneath it.
//! See sigaction(2), futex(2) FUTEX_LOCK_PI, sched(7), PR_SET_MDWE(2const).

#![allow(
    unsafe_code,
    reason = "fork(2), mappings of code, signal handlers and what they change"
)]

use std::arch::asm;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steadfast_sys::inherit::PiMutex;
use steadfast_sys::{cpu, pad, publish};

use crate::boxed::{self, Answer};
use crate::{Finding, read};

pub(crate) fn findings() -> Vec<Finding> {
    vec![signal_pad(), lending(), urgent(), code()]
}

const PAGE: usize = 4096;

/// `entry` saves what its caller wants kept, tells where the stack stands (rdi), and spins; `out` gives all of it back.
///
/// ```text
///   entry: push rbx, rbp, r12, r13, r14, r15; mov [rdi], rsp
///   spin:  jmp spin
///   trap:  ud2
///   out:   pop r15, r14, r13, r12, rbp, rbx; ret
/// ```
const TEXT: &[u8] = &[
    0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, 0x48, 0x89, 0x27, // entry
    0xeb, 0xfe, // spin
    0x0f, 0x0b, // trap
    0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3, // out
];
const SPIN: u64 = 13;
const TRAP: u64 = 15;
const OUT: u64 = 17;

/// Where `entry` left the stack, and where `out` lies; in the child only.
static STACK: AtomicU64 = AtomicU64::new(0);
static WAY_OUT: AtomicU64 = AtomicU64::new(0);

/// What a runtime does, behind the pad's handlers: it knows the pad's own trap, and the way out of it.
extern "C" fn on_fault(signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO a whole ucontext, which is ours to edit.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    if registers[libc::REG_RIP as usize].cast_unsigned() == pad::pad() {
        registers[libc::REG_RSP as usize] = STACK.load(Ordering::Acquire).cast_signed();
        registers[libc::REG_RIP as usize] = WAY_OUT.load(Ordering::Acquire).cast_signed();
    } else {
        // It happens again, and ends the child.
        // SAFETY: SIG_DFL is a disposition that every signal here may have.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// A page of code that was never writable and executable at once; nothing where the system forbids that as well.
fn published() -> Option<u64> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, placed by the kernel.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, rights, kind, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    let at = at.cast::<u8>();
    // SAFETY: the page is ours and longer than the text.
    unsafe { at.copy_from_nonoverlapping(TEXT.as_ptr(), TEXT.len()) };
    // SAFETY: one whole page of ours, and nobody writes to it any more.
    unsafe { publish::executable(at, PAGE) }.ok()?;
    Some(at as u64)
}

/// Room for the handlers: a wild fault may take the stack with it.
fn alternate_stack() -> bool {
    const BYTES: usize = 64 << 10;
    let room = Box::leak(vec![0_u8; BYTES].into_boxed_slice());
    let stack = libc::stack_t {
        ss_sp: room.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: BYTES,
    };
    // SAFETY: the room is never freed.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) == 0 }
}

fn handle(signal: i32) -> bool {
    // SAFETY: all-zero bytes are a valid `sigaction` with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: `action` is whole, and its handler has the signature that SA_SIGINFO asks for.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == 0 }
}

/// Spins in the code at `text` until `wild` has thrown it out. How long the fault took to arrive, in ns.
fn thrown_out(text: u64, wild: pad::Wild) -> u64 {
    let inside = pad::Inside::enter();
    let runner = pad::Runner::current();
    let done = AtomicBool::new(false);
    let before = pad::wild_ns();
    let took = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                runner.go_wild(wild);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        // SAFETY: `text` is `TEXT`, which keeps what the System V ABI has a function keep, and returns by `out`.
        unsafe {
            asm!("call {text}", text = in(reg) text, in("rdi") STACK.as_ptr(), clobber_abi("C"));
        }
        let made = pad::wild_ns();
        done.store(true, Ordering::Release);
        // The breaker alone makes no fault.
        if made > before {
            pad::now_ns() - made
        } else {
            0
        }
    });
    drop(inside);
    pad::Runner::go_no_more_wild();
    let _ = pad::take_seen();
    took
}

fn signal_pad() -> Finding {
    const STEPS: &[&str] = &["code from a file", "sigaction", "/proc/self/maps"];
    let outcome = boxed::run(boxed::LIMIT, || {
        let Some(text) = published() else {
            return Answer::failed(1);
        };
        let handlers = [libc::SIGILL, libc::SIGSEGV, libc::SIGFPE].map(handle);
        if handlers != [true; 3] || pad::install().is_err() || !alternate_stack() {
            return Answer::failed(2);
        }
        pad::set_pad(text + TRAP);
        WAY_OUT.store(text + OUT, Ordering::Release);
        if pad::add_generated(&(text + SPIN..text + TRAP)).is_err() || pad::take_stock().is_err() {
            return Answer::failed(3);
        }
        let slowest = pad::WILD
            .map(|wild| thrown_out(text, wild))
            .into_iter()
            .max();
        Answer::fine([slowest.unwrap_or(0), pad::diverted() as u64, 0, 0, 0, 0])
    });
    match outcome.fine() {
        Some(answer) => Finding::works(
            PAD,
            format!(
                "{} wild faults became errors, the slowest in {} us",
                pad::WILD.len(),
                answer.values[0] / 1000
            ),
        ),
        None => Finding::missing(PAD, outcome.why(STEPS)).fix(
            "steadfast host needs it: a mounted /proc, and a sandbox that lets sigaction(2) and rt_tgsigqueueinfo(2) through",
        ),
    }
}

const PAD: &str = "signal pad";

/// Two threads meet at a lock, so that the kernel is asked; where a thread may have a priority, the holder is seen to have it lent.
fn lending() -> Finding {
    const NAME: &str = "priority inheritance";
    let outcome = boxed::run(boxed::LIMIT, || {
        let Ok(lock) = PiMutex::new(()) else {
            return Answer::failed(1);
        };
        let Ok(held) = lock.lock() else {
            return Answer::wrong(1);
        };
        if lock.lock().is_ok() {
            return Answer::wrong(2);
        }
        let own = current_tid();
        let (waiter, may) = (AtomicI32::new(0), AtomicI32::new(0));
        std::thread::scope(|scope| {
            let (waiter, may, lock) = (&waiter, &may, &lock);
            let waiting = scope.spawn(move || {
                may.store(i32::from(cpu::run_at(1).is_ok()), Ordering::Release);
                waiter.store(current_tid(), Ordering::Release);
                lock.lock().is_ok()
            });
            // It sleeps in the kernel before the lock is given back.
            let end = Instant::now() + Duration::from_secs(3);
            let mut lent = false;
            let mut asleep = false;
            while Instant::now() < end && !asleep {
                std::thread::sleep(Duration::from_millis(1));
                asleep =
                    stat(waiter.load(Ordering::Acquire)).is_some_and(|(state, _)| state == 'S');
                // Ordinary threads have 0 to 39 there, and those with a priority -2 and less (proc_pid_stat(5)).
                lent = stat(own).is_some_and(|(_, priority)| priority < 0);
            }
            drop(held);
            let may = may.load(Ordering::Acquire) == 1;
            match (asleep && waiting.join().unwrap_or(false), may, lent) {
                (false, ..) => Answer::wrong(3),
                (true, true, false) => Answer::wrong(4),
                (true, may, _) => Answer::fine([u64::from(may), 0, 0, 0, 0, 0]),
            }
        })
    });
    const STEPS: &[&str] = &[
        "a lock with priority inheritance",
        "the error for a lock that its holder takes again",
        "the wait for a lock that another thread holds",
        "lending the priority of who waits",
    ];
    match outcome.fine() {
        Some(answer) if answer.values[0] == 1 => Finding::works(
            NAME,
            "the holder of a lock ran at the priority of who waited",
        ),
        Some(_) => Finding::works(
            NAME,
            "two threads met at such a lock; none may have a priority here",
        ),
        None => Finding::missing(NAME, outcome.why(STEPS))
            .fix("a kernel with CONFIG_FUTEX_PI, and a sandbox that lets futex(2) through"),
    }
}

fn current_tid() -> i32 {
    // SAFETY: takes nothing.
    unsafe { libc::gettid() }
}

/// State and priority of a thread of this process.
fn stat(tid: i32) -> Option<(char, i64)> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).ok()?;
    // The name may have blanks and parentheses; behind it: state is field 3, priority 18.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(14)?.parse().ok()?))
}

fn urgent() -> Finding {
    const NAME: &str = "real-time priority";
    let outcome = boxed::run(boxed::LIMIT, || match cpu::run_at(1) {
        Ok(()) => Answer::fine([0; 6]),
        Err(_) => Answer::failed(1),
    });
    match outcome.fine() {
        Some(_) => Finding::works(NAME, "a thread ran at SCHED_FIFO"),
        None => Finding::missing(NAME, outcome.why(&["SCHED_FIFO"])).fix(
            "tasks of steadfast host with a priority need CAP_SYS_NICE, ulimit -r 99, or LimitRTPRIO=99 in a systemd unit",
        ),
    }
}

const PR_SET_MDWE: i32 = 65;
const PR_MDWE_REFUSE_EXEC_GAIN: u64 = 1;

fn code() -> Finding {
    const NAME: &str = "code from files alone";
    let outcome = boxed::run(boxed::LIMIT, || {
        // SAFETY: takes numbers; the child alone is concerned.
        let strict = unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) } == 0;
        let Some(text) = published() else {
            return Answer::failed(1);
        };
        // SAFETY: `out` alone, which takes back six registers that are pushed here, and returns behind them.
        unsafe {
            asm!(
                "lea {back}, [rip + 2f]",
                "push {back}", "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
                "jmp {out}",
                "2:",
                back = out(reg) _, out = in(reg) text + OUT,
            );
        }
        let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, placed by the kernel.
        let both = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, rights, kind, -1, 0) };
        if strict && both != libc::MAP_FAILED {
            return Answer::wrong(2);
        }
        Answer::fine([u64::from(strict), 0, 0, 0, 0, 0])
    });
    const STEPS: &[&str] = &["code from a memory file", "PR_SET_MDWE"];
    match outcome.fine() {
        Some(answer) if answer.values[0] == 1 => Finding::works(
            NAME,
            "code ran that was never writable, in a process that may not have any other",
        ),
        Some(_) => Finding::works(
            NAME,
            format!("code ran that was never writable; Linux {} cannot forbid other code", read::release()),
        ),
        None => Finding::missing(NAME, outcome.why(STEPS))
            .fix("steadfast host needs it: memfd_create(2) with executable mappings (vm.memfd_noexec, SELinux execmem)"),
    }
}
