//! Can a system call, or an instruction with a result of its own, be kept from happening unseen?

#![allow(
    unsafe_code,
    reason = "seccomp(2), prctl(2), signal handlers and a page of code"
)]

use std::arch::asm;
use std::arch::x86_64::_rdtsc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::boxed::{self, Answer};
use crate::{Finding, read};

pub(crate) fn findings() -> Vec<Finding> {
    let (seccomp, dispatch) = (seccomp(), dispatch());
    let none = seccomp.state != crate::State::Works && dispatch.state != crate::State::Works;
    let mut findings = vec![seccomp, dispatch];
    if none {
        findings.push(
            Finding::missing("backstop", "neither a seccomp filter nor user dispatch")
                .needed()
                .fix("--backstop=none (a wild jump then reaches the kernel unseen)"),
        );
    }
    findings.extend([code(), tsc(), cpuid()]);
    findings
}

/// What a probe's handler writes as the result of a call that was caught.
const CAUGHT: i64 = 0x5afe;

/// The selector of user dispatch; in the child only.
static SELECTOR: AtomicU8 = AtomicU8::new(ALLOW);
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// Calls that the handler has seen; in the child only.
static SEEN: AtomicU64 = AtomicU64::new(0);

const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
const PR_SYS_DISPATCH_ON: u64 = 1;

/// getppid(2) by the instruction itself: no library between.
pub(crate) fn raw_getppid() -> i64 {
    let result: i64;
    // SAFETY: getppid takes nothing and writes nothing; the kernel clobbers rcx and r11
    // (System V ABI, AMD64 supplement, appendix A.2.1).
    unsafe {
        asm!("syscall", inlateout("rax") libc::SYS_getppid => result, out("rcx") _, out("r11") _, options(nostack));
    }
    result
}

/// Gives a caught call its result, and lets the return from here pass.
extern "C" fn on_sigsys(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    SELECTOR.store(ALLOW, Ordering::Relaxed);
    SEEN.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel hands a handler with SA_SIGINFO a whole ucontext, which is ours to edit.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = CAUGHT;
}

/// Steps over a two-byte instruction that faulted.
extern "C" fn on_sigsegv(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    SEEN.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as in `on_sigsys`.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    // rdtsc is 0f 31.
    context.uc_mcontext.gregs[libc::REG_RIP as usize] += 2;
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

fn handle(signal: i32, handler: Handler) -> bool {
    // SAFETY: all-zero bytes are a valid `sigaction` with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: `action` is whole, and its handler has the signature that SA_SIGINFO asks for.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == 0 }
}

/// Catches SIGSYS as the agent would.
pub(crate) fn catch_sigsys() -> bool {
    handle(libc::SIGSYS, on_sigsys)
}

/// One instruction of a filter: `seccomp_data` is nr, arch, instruction pointer, arguments.
const fn op(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    // The codes of linux/bpf_common.h fit 16 bits.
    libc::sock_filter {
        code: (code & 0xffff) as u16,
        jt,
        jf,
        k,
    }
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
/// `SYS_getppid` as a filter compares it.
const GETPPID: u32 = 110;
const _: () = assert!(libc::SYS_getppid == GETPPID as i64);

const OFFSET_NR: u32 = 0;
const OFFSET_IP: u32 = 8;

const FILTER_LENGTH: u16 = 8;

/// A filter that passes getppid(2) from one address only and everything else from anywhere: what
/// the backstop does for every call, on one that can be tried.
fn only_from(ip: u64, otherwise: u32) -> [libc::sock_filter; FILTER_LENGTH as usize] {
    let halves = [(ip & 0xffff_ffff) as u32, (ip >> 32) as u32];
    [
        op(LOAD, OFFSET_NR, 0, 0),
        op(EQUAL, GETPPID, 0, 4),
        op(LOAD, OFFSET_IP, 0, 0),
        op(EQUAL, halves[0], 0, 3),
        op(LOAD, OFFSET_IP + 4, 0, 0),
        op(EQUAL, halves[1], 0, 1),
        op(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        op(RETURN, otherwise, 0, 0),
    ]
}

/// Puts this process under [`only_from`]; an ordinary user gives up gaining privileges first.
pub(crate) fn filter(ip: u64, otherwise: u32) -> bool {
    let program = only_from(ip, otherwise);
    // SAFETY: numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return false;
    }
    let program = libc::sock_fprog {
        len: FILTER_LENGTH,
        filter: program.as_ptr().cast_mut(),
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `program` and the instructions that it names live across the call, which copies them.
    unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program) == 0 }
}

/// A page with `mov eax, getppid; syscall; ret`, and the address that a filter sees for it.
fn gate() -> Option<(extern "C" fn() -> i64, u64)> {
    const CODE: [u8; 8] = [0xb8, GETPPID.to_le_bytes()[0], 0, 0, 0, 0x0f, 0x05, 0xc3];
    let (length, flags) = (4096, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page is writable and larger than the code.
    unsafe { std::ptr::copy_nonoverlapping(CODE.as_ptr(), page.cast(), CODE.len()) };
    // SAFETY: the page is ours, and nothing points into it.
    if unsafe { libc::mprotect(page, length, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
        return None;
    }
    // SAFETY: the page holds a whole function of this signature that keeps to the C convention:
    // it changes rax, rcx and r11 only.
    let function =
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i64>(page) };
    // The filter sees the address after the syscall instruction.
    Some((function, page.addr() as u64 + 7))
}

/// Patches and trampolines are written before they are executed.
fn code() -> Finding {
    const NAME: &str = "writable code";
    let outcome = boxed::run(boxed::LIMIT, || match gate() {
        Some(_) => Answer::fine([0; 6]),
        None => Answer::failed(1),
    });
    match outcome.fine() {
        Some(_) => Finding::works(NAME, "a page that was written became executable"),
        None => Finding::missing(NAME, outcome.why(&["a page of code"]))
            .fix("MemoryDenyWriteExecute=no in the unit (PR_SET_MDWE, or a filter like it)"),
    }
    .needed()
}

fn seccomp() -> Finding {
    const STEPS: [&str; 3] = [
        "a page of code",
        "seccomp",
        "telling callers apart by address",
    ];
    let outcome = boxed::run(boxed::LIMIT, || {
        let Some((gate, ip)) = gate() else {
            return Answer::failed(1);
        };
        // No call answers getppid with this errno.
        let no: u32 = libc::SECCOMP_RET_ERRNO | libc::EXDEV.unsigned_abs();
        if !filter(ip, no) {
            return Answer::failed(2);
        }
        if gate() > 0 && raw_getppid() == -i64::from(libc::EXDEV) {
            Answer::fine([0; 6])
        } else {
            Answer::wrong(3)
        }
    });
    match outcome.fine() {
        Some(_) => Finding::works(
            "seccomp by address",
            "a call passed from the gate and failed from elsewhere",
        ),
        None => Finding::slower(
            "seccomp by address",
            outcome.why(&STEPS),
            "the token at the gate is the only backstop (--backstop=token)",
        )
        .maybe_fix(
            read::is_filtered().then(|| "docker run --security-opt seccomp=unconfined".to_owned()),
        ),
    }
}

/// Turns user dispatch on, with no address that passes by itself.
pub(crate) fn dispatch_on() -> bool {
    let selector = SELECTOR.as_ptr();
    // SAFETY: the selector is a static byte, which stays readable for as long as calls are made.
    unsafe {
        libc::prctl(
            PR_SET_SYSCALL_USER_DISPATCH,
            PR_SYS_DISPATCH_ON,
            0_u64,
            0_u64,
            selector,
        ) == 0
    }
}

fn dispatch() -> Finding {
    let outcome = boxed::run(boxed::LIMIT, || {
        if !catch_sigsys() || !dispatch_on() {
            return Answer::failed(1);
        }
        SELECTOR.store(BLOCK, Ordering::Relaxed);
        let blocked = raw_getppid();
        let allowed = raw_getppid();
        if blocked == CAUGHT && allowed > 0 {
            Answer::fine([0; 6])
        } else {
            Answer::wrong(2)
        }
    });
    match outcome.fine() {
        Some(_) => Finding::works(
            "system call user dispatch",
            "a call was caught by its selector",
        ),
        None => Finding::slower(
            "system call user dispatch",
            outcome.why(&["PR_SET_SYSCALL_USER_DISPATCH", "the selector"]),
            "the filter in the kernel is the only backstop (--backstop=seccomp)",
        )
        .fix("a kernel of 5.11 or later, and no seccomp profile that denies it"),
    }
}

fn tsc() -> Finding {
    let outcome = boxed::run(boxed::LIMIT, || {
        if !handle(libc::SIGSEGV, on_sigsegv) {
            return Answer::failed(1);
        }
        // SAFETY: numbers only.
        if unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) } != 0 {
            return Answer::failed(1);
        }
        // SAFETY: every x86-64 processor has the instruction, and the handler steps over it.
        unsafe { _rdtsc() };
        if SEEN.load(Ordering::Relaxed) == 1 {
            Answer::fine([0; 6])
        } else {
            Answer::wrong(2)
        }
    });
    match outcome.fine() {
        Some(_) => Finding::works("rdtsc faulting", "an rdtsc that was not patched would trap"),
        None => Finding::slower(
            "rdtsc faulting",
            outcome.why(&["PR_SET_TSC", "rdtsc"]),
            "rdtsc is patched; one in bytes that are not decoded stays unseen (run --explain)",
        ),
    }
}

fn cpuid() -> Finding {
    const ARCH_CPUID_SET: i64 = 0x1012;
    let outcome = boxed::run(boxed::LIMIT, || {
        // SAFETY: numbers only. Nothing after this executes cpuid in the child.
        match unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_CPUID_SET, 0) } {
            0 => Answer::fine([0; 6]),
            _ => Answer::failed(1),
        }
    });
    match outcome.fine() {
        Some(_) => Finding::works("cpuid faulting", "a cpuid that was not patched would trap"),
        None => Finding::slower(
            "cpuid faulting",
            outcome.why(&["ARCH_CPUID_SET"]),
            "cpuid is patched; one in bytes that are not decoded stays unseen (run --explain)",
        ),
    }
}
