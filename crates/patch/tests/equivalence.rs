//! Relocation against the processor: random programs run as they are and patched, from the
//! same registers, flags and memory, and must end in the same state, bit for bit.
//!
//! A program is a list of operations assembled by this file: arithmetic with flags, RIP-relative
//! loads, stores and read-modify-writes, both forms of every branch, `loop`, `jrcxz`, direct
//! and indirect calls whose callees look at their return address, red-zone stores, system calls
//! and `cpuid`. Three runs of each:
//!
//!  1. bare;
//!  2. patched, with every site intercepted (the entries below stand for the agent) and a
//!     counting payload planted at a random instruction: the same final state as 1;
//!  3. bare with a breakpoint at that instruction: stopped as often as the payload of 2 ran.
//!     A payload that some path skips, or runs twice, shows here.
//!
//! Some of the patched programs are a survey's instead: nothing is intercepted, payloads stand
//! close together, and windows of two to four bytes bounce.
//!
//! Each run is a forked child, so that a wild jump fails the test and not the harness. Stack
//! bytes below the final rsp are compared as well.
//!
//! Not covered: vector registers (moved as plain bytes), string instructions, faults.
#![allow(unsafe_code, reason = "runs machine code that the test assembles")]
#![allow(
    clippy::print_stdout,
    reason = "how many windows the runs went through is worth seeing"
)]
#![allow(clippy::cast_possible_truncation, reason = "assembling bytes")]

use std::sync::{Mutex, MutexGuard};

use proptest::prelude::*;
use steadfast_patch::{
    ArenaSpec, CodeView, Entries, Existing, Hook, Module, Place, Plan, SiteKind, Survey,
    find_sites, plan, plan_hooks, replan,
};

// Below 2 GiB, so that the harness reaches its own memory by absolute 32-bit addresses.
const CODE: u64 = 0x1000_0000; // program, as mapped private and executable
const ARENA: u64 = 0x1080_0000; // trampolines of the first plan, then of the second
const ARENA_LEN: u64 = 0x1_0000;
const STUBS: u64 = 0x10C0_0000; // entry, exit and the agent's stand-ins
const DATA: u64 = 0x1100_0000; // shared: what programs load and store
const DATA_LEN: usize = 0x1000;
const STACK: u64 = 0x1200_0000; // shared
const STACK_LEN: usize = 0x2000;
const STATE: u64 = 0x1300_0000; // shared: registers in, registers out, scratch
const GS: u64 = 0x1400_0000; // what the entropy tail saves into

const REG_IN: u64 = STATE;
const FLAGS_IN: u64 = STATE + 0x80;
const START: u64 = STATE + 0x88;
const REG_OUT: u64 = STATE + 0x100;
const FLAGS_OUT: u64 = STATE + 0x180;
const DONE: u64 = STATE + 0x188;
const HOST_RSP: u64 = STATE + 0x200;
const SAVED: u64 = STATE + 0x208;
const COUNT: u64 = STATE + 0x210;
const COUNT_SAVE: u64 = STATE + 0x218;
const LEAVE: u64 = STATE + 0x220;

const RSP: u8 = 4;
const RCX: u8 = 1;

/// What this test knows of assembly: bytes and 32-bit fields.
#[derive(Default)]
struct Asm(Vec<u8>);

impl Asm {
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// An absolute [disp32] operand for `opcode`, with `reg` in the register field.
    fn absolute(&mut self, opcode: &[u8], reg: u8, addr: u64) -> &mut Self {
        // Opcodes here are REX.W forms or take no register beyond 7.
        let mut opcode = opcode.to_vec();
        if reg >= 8 {
            opcode[0] |= 4;
        }
        self.raw(&opcode)
            .raw(&[(reg & 7) << 3 | 4, 0x25])
            .raw(&(addr as u32).to_le_bytes())
    }

    fn load(&mut self, reg: u8, addr: u64) -> &mut Self {
        self.absolute(&[0x48, 0x8B], reg, addr)
    }

    fn store(&mut self, reg: u8, addr: u64) -> &mut Self {
        self.absolute(&[0x48, 0x89], reg, addr)
    }
}

/// Adds one to [COUNT] without touching flags, stack or registers.
fn counter() -> Vec<u8> {
    let mut asm = Asm::default();
    asm.store(RCX, COUNT_SAVE).load(RCX, COUNT);
    asm.raw(&[0x48, 0x8D, 0x49, 0x01]); // lea rcx, [rcx+1]
    asm.store(RCX, COUNT).load(RCX, COUNT_SAVE);
    asm.0
}

struct Stubs {
    enter: u64,
    leave: u64,
    entries: Entries,
}

/// Assembles the harness's own code at `STUBS`.
fn stubs() -> (Vec<u8>, Stubs) {
    let mut asm = Asm::default();
    let here = |asm: &Asm| STUBS + asm.0.len() as u64;
    let enter = here(&asm);
    asm.raw(&[0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57]); // push rbx rbp r12..r15
    asm.store(RSP, HOST_RSP);
    asm.load(RSP, REG_IN + 8 * u64::from(RSP));
    asm.absolute(&[0xFF], 6, FLAGS_IN).raw(&[0x9D]); // push [flags]; popfq
    for reg in (0..16).filter(|r| *r != RSP) {
        asm.load(reg, REG_IN + 8 * u64::from(reg));
    }
    asm.absolute(&[0xFF], 4, START); // jmp [start]
    let leave = here(&asm);
    for reg in 0..16 {
        asm.store(reg, REG_OUT + 8 * u64::from(reg));
    }
    asm.load(RSP, HOST_RSP);
    asm.raw(&[0x9C]).absolute(&[0x8F], 0, FLAGS_OUT); // pushfq; pop [flags]
    asm.raw(&[0xFC, 0xB8, 1, 0, 0, 0]).store(0, DONE); // cld; mov eax, 1
    asm.raw(&[
        0x41, 0x5F, 0x41, 0x5E, 0x41, 0x5D, 0x41, 0x5C, 0x5D, 0x5B, 0xC3,
    ]);
    let syscall = here(&asm);
    asm.store(RCX, SAVED)
        .raw(&[0x0F, 0x05])
        .load(RCX, SAVED)
        .raw(&[0xFF, 0xE1]);
    let entropy = here(&asm);
    asm.store(RCX, SAVED);
    asm.raw(&[0x65, 0x48, 0x8B, 0x0C, 0x25, 0, 0, 0, 0]); // mov rcx, gs:[0]
    asm.raw(&[0x0F, 0xA2]); // every entropy site here is a cpuid
    asm.absolute(&[0xFF], 4, SAVED);
    (
        asm.0,
        Stubs {
            enter,
            leave,
            entries: Entries { syscall, entropy },
        },
    )
}

#[derive(Debug, Clone)]
enum Op {
    /// Bytes without labels or RIP-relative operands.
    Plain(Vec<u8>),
    /// Opcode and modrm with mod 00, rm 101; displacement into DATA; bytes behind it.
    Data {
        opcode: Vec<u8>,
        at: u16,
        behind: Vec<u8>,
    },
    /// Condition 0..16, or 16 for jmp; how many operations to skip; the long form.
    Branch {
        condition: u8,
        skip: usize,
        long: bool,
    },
    /// `loopne`, `loope`, `loop`, `jrcxz` forward.
    Counted {
        opcode: u8,
        skip: usize,
        narrow: bool,
    },
    /// mov ecx, n; again: lea rax, [rax+rcx]; body; loop again.
    Loop {
        times: u8,
        body: Vec<u8>,
    },
    Call {
        via: Via,
        function: usize,
    },
    Syscall {
        then: u8,
    },
    Cpuid,
}

#[derive(Debug, Clone, Copy)]
enum Via {
    Relative,
    Register,
    RipMemory,
    StackMemory,
}

const FUNCTIONS: usize = 3;

/// Bodies of the functions that `Op::Call` reaches: what they see of their return address
/// ends up in a register, and so in the compared state.
const BODIES: [&[u8]; FUNCTIONS] = [
    &[0x4C, 0x8B, 0x2C, 0x24, 0xC3],             // mov r13, [rsp]; ret
    &[0x48, 0x8D, 0x49, 0x07, 0xC2, 0x00, 0x00], // lea rcx, [rcx+7]; ret 0
    &[0x41, 0x5E, 0x41, 0xFF, 0xE6],             // pop r14; jmp r14
];

#[derive(Debug, Clone)]
struct Assembled {
    code: Vec<u8>,
    /// Start of each operation, and of each instruction a payload may be planted at.
    instructions: Vec<u64>,
}

/// `None` if an 8-bit branch does not reach.
fn assemble(ops: &[Op]) -> Option<Assembled> {
    let mut asm = Asm::default();
    let mut starts = Vec::new();
    let mut instructions = Vec::new();
    // (position of field, size, operation or function it leads to)
    let mut fixups: Vec<(usize, usize, Result<usize, usize>)> = Vec::new();
    let mut begin = |asm: &mut Asm| instructions.push(CODE + asm.0.len() as u64);
    for (i, op) in ops.iter().enumerate() {
        starts.push(asm.0.len());
        match op {
            Op::Plain(bytes) => {
                begin(&mut asm);
                asm.raw(bytes);
            }
            Op::Data { opcode, at, behind } => {
                begin(&mut asm);
                asm.raw(opcode);
                let next = CODE + asm.0.len() as u64 + 4 + behind.len() as u64;
                let disp = (DATA + u64::from(*at)).wrapping_sub(next) as u32;
                asm.raw(&disp.to_le_bytes()).raw(behind);
            }
            Op::Branch {
                condition,
                skip,
                long,
            } => {
                begin(&mut asm);
                match (*condition, long) {
                    (16, true) => asm.raw(&[0xE9, 0, 0, 0, 0]),
                    (16, false) => asm.raw(&[0xEB, 0]),
                    (c, true) => asm.raw(&[0x0F, 0x80 | c, 0, 0, 0, 0]),
                    (c, false) => asm.raw(&[0x70 | c, 0]),
                };
                let size = if *long { 4 } else { 1 };
                fixups.push((asm.0.len() - size, size, Ok((i + 1 + skip).min(ops.len()))));
            }
            Op::Counted {
                opcode,
                skip,
                narrow,
            } => {
                begin(&mut asm);
                if *narrow {
                    asm.raw(&[0x67]);
                }
                asm.raw(&[*opcode, 0]);
                fixups.push((asm.0.len() - 1, 1, Ok((i + 1 + skip).min(ops.len()))));
            }
            Op::Loop { times, body } => {
                begin(&mut asm);
                asm.raw(&[0xB9, *times, 0, 0, 0]);
                let again = asm.0.len();
                begin(&mut asm);
                asm.raw(&[0x48, 0x8D, 0x04, 0x08]);
                begin(&mut asm);
                asm.raw(body);
                begin(&mut asm);
                asm.raw(&[0xE2]);
                let back = i8::try_from(again as i64 - asm.0.len() as i64 - 1).ok()?;
                asm.raw(&back.to_le_bytes());
            }
            Op::Call { via, function } => {
                let lea = |asm: &mut Asm, fixups: &mut Vec<_>| {
                    asm.raw(&[0x48, 0x8D, 0x05, 0, 0, 0, 0]); // lea rax, [rip+function]
                    fixups.push((asm.0.len() - 4, 4, Err(*function)));
                };
                begin(&mut asm);
                match via {
                    Via::Relative => {
                        asm.raw(&[0xE8, 0, 0, 0, 0]);
                        fixups.push((asm.0.len() - 4, 4, Err(*function)));
                    }
                    Via::Register => {
                        lea(&mut asm, &mut fixups);
                        begin(&mut asm);
                        asm.raw(&[0xFF, 0xD0]);
                    }
                    Via::RipMemory => {
                        lea(&mut asm, &mut fixups);
                        begin(&mut asm);
                        let to = |asm: &Asm, len: u64| {
                            (DATA + 0x800).wrapping_sub(CODE + asm.0.len() as u64 + len) as u32
                        };
                        let disp = to(&asm, 7);
                        asm.raw(&[0x48, 0x89, 0x05]).raw(&disp.to_le_bytes()); // mov [rip+slot], rax
                        begin(&mut asm);
                        let disp = to(&asm, 6);
                        asm.raw(&[0xFF, 0x15]).raw(&disp.to_le_bytes()); // call [rip+slot]
                    }
                    Via::StackMemory => {
                        lea(&mut asm, &mut fixups);
                        begin(&mut asm);
                        asm.raw(&[0x48, 0x89, 0x44, 0x24, 0x18]); // mov [rsp+24], rax
                        begin(&mut asm);
                        asm.raw(&[0xFF, 0x54, 0x24, 0x18]); // call [rsp+24]
                    }
                }
            }
            Op::Syscall { then } => {
                begin(&mut asm);
                asm.raw(&[0xB8, 110, 0, 0, 0]); // getppid
                begin(&mut asm);
                asm.raw(&[0x0F, 0x05]);
                begin(&mut asm);
                // The hardware leaves the next address in rcx, a trampoline may leave its own:
                // no program may look, so this one forgets it at once.
                asm.raw(match then % 3 {
                    0 => &[0x31, 0xC9],
                    1 => &[0xB9, 5, 0, 0, 0],
                    _ => &[0x48, 0x89, 0xD1],
                });
            }
            Op::Cpuid => {
                begin(&mut asm);
                asm.raw(&[0x31, 0xC0]);
                begin(&mut asm);
                asm.raw(&[0x31, 0xC9]);
                begin(&mut asm);
                asm.raw(&[0x0F, 0xA2]);
            }
        }
    }
    starts.push(asm.0.len());
    begin(&mut asm);
    asm.absolute(&[0xFF], 4, LEAVE); // jmp [leave]
    let mut functions = Vec::new();
    for body in BODIES {
        functions.push(asm.0.len());
        asm.raw(body);
    }
    for (at, size, to) in fixups {
        let target = match to {
            Ok(op) => starts[op],
            Err(function) => functions[function],
        };
        let disp = target as i64 - (at + size) as i64;
        match size {
            1 => asm.0[at] = i8::try_from(disp).ok()?.to_le_bytes()[0],
            _ => asm.0[at..at + 4].copy_from_slice(&(disp as i32).to_le_bytes()),
        }
    }
    Some(Assembled {
        code: asm.0,
        instructions,
    })
}

#[derive(Debug, Clone)]
struct Input {
    regs: [u64; 16],
    flags: u64,
    data: Vec<u8>,
    stack: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Output {
    done: bool,
    regs: Vec<u64>,
    flags: u64,
    data: Vec<u8>,
    stack: Vec<u8>,
}

/// The fixed mappings, made once and used by one run at a time.
struct Machine {
    stubs: Stubs,
}

static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);

fn machine() -> MutexGuard<'static, Option<Machine>> {
    let mut guard = MACHINE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    guard.get_or_insert_with(|| {
        let private = libc::MAP_PRIVATE;
        let shared = libc::MAP_SHARED;
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        map(CODE, 0x1000, all, private);
        map(ARENA, 2 * ARENA_LEN as usize, all, private);
        map(STUBS, 0x1000, all, private);
        map(DATA, DATA_LEN, rw, shared);
        map(STACK, STACK_LEN, rw, shared);
        map(STATE, 0x1000, rw, shared);
        map(GS, 0x1000, rw, private);
        let (bytes, stubs) = stubs();
        poke(STUBS, &bytes);
        Machine { stubs }
    });
    guard
}

fn map(addr: u64, len: usize, prot: i32, sharing: i32) {
    // SAFETY: NOREPLACE refuses an address that is in use, so no memory of this process is
    // replaced.
    let got = unsafe {
        libc::mmap(
            addr as *mut _,
            len,
            prot,
            sharing | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    assert_eq!(got as u64, addr, "{}", std::io::Error::last_os_error());
}

/// Writes into one of the mappings above.
fn poke(addr: u64, bytes: &[u8]) {
    // SAFETY: callers pass addresses inside mappings that machine() made writable and that
    // no Rust object lives in; the mutex makes this the only access.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, bytes.len()) }
}

fn peek(addr: u64, len: usize) -> Vec<u8> {
    // SAFETY: as for poke; the children that write there have been waited for.
    unsafe { std::slice::from_raw_parts(addr as *const u8, len) }.to_vec()
}

fn peek_word(addr: u64) -> u64 {
    u64::from_le_bytes(peek(addr, 8).try_into().expect("eight bytes"))
}

const FLAGS_COMPARED: u64 = 0xCD5; // CF PF AF ZF SF DF OF

impl Machine {
    /// Runs the program at `CODE` to its end in a child.
    fn run(&self, input: &Input) -> Output {
        let pid = self.start(input, false);
        let status = wait(pid);
        let regs = (0..16).map(|i| peek_word(REG_OUT + 8 * i)).collect();
        Output {
            done: status == 0 && peek_word(DONE) == 1,
            regs,
            flags: peek_word(FLAGS_OUT) & FLAGS_COMPARED,
            data: peek(DATA, DATA_LEN),
            stack: peek(STACK, STACK_LEN),
        }
    }

    /// How often the program at `CODE` executes the instruction at `addr` and (for `after`)
    /// goes on to the one behind it.
    fn count(&self, input: &Input, addr: u64, len: u64, after: bool) -> u64 {
        let byte = peek(addr, 1)[0];
        poke(addr, &[0xCC]);
        let pid = self.start(input, true);
        let mut hits = 0;
        // Not one of the results of a stop: the child has ended.
        while stopped_by_trap(wait(pid)) {
            let mut regs = registers(pid);
            if regs.rip != addr + 1 {
                break;
            }
            regs.rip = addr;
            set_registers(pid, &regs);
            set_byte(pid, addr, byte);
            resume(pid, libc::PTRACE_SINGLESTEP);
            if !stopped_by_trap(wait(pid)) {
                break;
            }
            hits += u64::from(!after || registers(pid).rip == addr + len);
            set_byte(pid, addr, 0xCC);
            resume(pid, libc::PTRACE_CONT);
        }
        assert_eq!(
            peek_word(DONE),
            1,
            "the program ended under the breakpoint too"
        );
        hits
    }

    /// Forks the child that runs the program, and leaves it running.
    fn start(&self, input: &Input, traced: bool) -> libc::pid_t {
        poke(STATE, &[0; 0x400]);
        for (i, value) in input.regs.iter().enumerate() {
            poke(REG_IN + 8 * i as u64, &value.to_le_bytes());
        }
        poke(FLAGS_IN, &input.flags.to_le_bytes());
        poke(START, &CODE.to_le_bytes());
        poke(LEAVE, &self.stubs.leave.to_le_bytes());
        poke(DATA, &input.data);
        poke(STACK, &input.stack);
        // SAFETY: the child runs the program and _exit only, neither of which needs a lock
        // that another thread of this process may hold.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            const ARCH_SET_GS: i32 = 0x1001;
            if traced {
                // SAFETY: asks to be traced by the parent, which waits for that.
                unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
            }
            // SAFETY: a deadline; the default action ends this process.
            unsafe { libc::alarm(5) };
            // SAFETY: nothing in this process uses the gs base on Linux x86-64.
            unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, GS) };
            // SAFETY: the stub at this address follows the C calling convention; the program
            // runs on its own stack.
            let enter: extern "C" fn() =
                unsafe { std::mem::transmute(self.stubs.enter as *const ()) };
            enter();
            // SAFETY: ends the child without running the harness's own clean-up.
            unsafe { libc::_exit(0) };
        }
        pid
    }

    fn install(&self, code: &[u8], plans: &[(&Plan, u64)]) {
        poke(CODE, &[0xCC; 0x1000]);
        poke(CODE, code);
        for (plan, arena) in plans {
            poke(*arena, &plan.arena);
            for write in &plan.writes {
                poke(write.addr, &write.bytes);
            }
        }
    }
}

fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process and writes one int.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status
}

fn stopped_by_trap(status: i32) -> bool {
    libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP
}

fn registers(pid: libc::pid_t) -> libc::user_regs_struct {
    // SAFETY: all zeroes is a register set.
    let mut regs = unsafe { std::mem::zeroed() };
    // SAFETY: the child is stopped, as the caller saw, and `regs` holds a register set.
    let rc = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut regs) };
    assert_eq!(rc, 0);
    regs
}

fn set_registers(pid: libc::pid_t, regs: &libc::user_regs_struct) {
    // SAFETY: as for registers().
    let rc = unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, 0, &raw const *regs) };
    assert_eq!(rc, 0);
}

/// Replaces one byte of a stopped child's code.
fn set_byte(pid: libc::pid_t, addr: u64, byte: u8) {
    // The rest of the word is as in this process: the child changes none of its code.
    let mut word = peek(addr, 8);
    word[0] = byte;
    let word = i64::from_le_bytes(word.try_into().expect("eight bytes"));
    // SAFETY: writes to the stopped child's memory only.
    let rc = unsafe { libc::ptrace(libc::PTRACE_POKETEXT, pid, addr, word) };
    assert_eq!(rc, 0);
}

fn resume(pid: libc::pid_t, how: libc::c_uint) {
    // SAFETY: the child is stopped; no signal is delivered.
    let rc = unsafe { libc::ptrace(how, pid, 0, 0) };
    assert_eq!(rc, 0);
}

// --- Programs -------------------------------------------------------------------------

/// A register other than rsp.
fn reg() -> impl Strategy<Value = u8> {
    (0u8..15).prop_map(|r| if r >= RSP { r + 1 } else { r })
}

fn rex(reg: u8, rm: u8) -> u8 {
    0x48 | (reg >> 3) << 2 | rm >> 3
}

fn plain() -> impl Strategy<Value = Vec<u8>> {
    // Two-register arithmetic: add or adc sbb and sub xor cmp, test, mov, xchg, imul, cmovcc.
    let two = (reg(), reg(), 0usize..12).prop_map(|(a, b, which)| {
        let modrm = 0xC0 | (a & 7) << 3 | b & 7;
        let opcode: &[u8] = [
            &[0x01][..],
            &[0x09],
            &[0x11],
            &[0x19],
            &[0x21],
            &[0x29],
            &[0x31],
            &[0x39],
            &[0x85],
            &[0x89],
            &[0x87],
            &[0x0F, 0xAF],
        ][which];
        [&[rex(a, b)], opcode, &[modrm]].concat()
    });
    let short = prop::sample::select(vec![
        vec![0x90],
        vec![0x89, 0xC2],             // mov edx, eax
        vec![0x31, 0xFF],             // xor edi, edi
        vec![0xFF, 0xC6],             // inc esi
        vec![0xF8],                   // clc
        vec![0xF9],                   // stc
        vec![0xF5],                   // cmc
        vec![0x9F],                   // lahf
        vec![0x9E],                   // sahf
        vec![0x98],                   // cwde
        vec![0x48, 0x99],             // cqo
        vec![0x0F, 0xC8],             // bswap eax
        vec![0x0F, 0x94, 0xC0],       // sete al
        vec![0x48, 0x0F, 0x42, 0xC3], // cmovb rax, rbx
        vec![0x48, 0xD1, 0xE0],       // shl rax, 1
        vec![0x50],                   // push rax
        vec![0x5B],                   // pop rbx
        vec![0x9C],                   // pushfq
        vec![0x48, 0x89, 0xE2],       // mov rdx, rsp
        vec![0x0F, 0x1F, 0x40, 0x00],
    ]);
    let imm = (reg(), any::<i32>(), 0u8..8).prop_map(|(r, v, op)| {
        [
            &[rex(0, r), 0x81, 0xC0 | op << 3 | r & 7][..],
            &v.to_le_bytes(),
        ]
        .concat()
    });
    // Stores and loads in the red zone: mov [rsp-8k], r and mov r, [rsp-8k].
    let red = (reg(), 1i8..16, any::<bool>()).prop_map(|(r, k, store)| {
        vec![
            rex(r, 0),
            if store { 0x89 } else { 0x8B },
            0x44 | (r & 7) << 3,
            0x24,
            (-8 * k) as u8,
        ]
    });
    prop_oneof![3 => two, 3 => short, 2 => imm, 1 => red]
}

fn data() -> impl Strategy<Value = Op> {
    (reg(), 0u16..0x7E0, 0usize..7, any::<i32>()).prop_map(|(r, at, which, imm)| {
        let modrm = (r & 7) << 3 | 5;
        let (opcode, behind) = match which {
            0 => (vec![rex(r, 0), 0x8B, modrm], vec![]),
            1 => (vec![rex(r, 0), 0x89, modrm], vec![]),
            2 => (vec![rex(r, 0), 0x8D, modrm], vec![]),
            3 => (vec![rex(r, 0), 0x01, modrm], vec![]),
            4 => (vec![0x48, 0x81, 0x05 | 5 << 3], imm.to_le_bytes().to_vec()), // sub qword [rip], imm32
            5 => (vec![0x80, 0x05 | 7 << 3], vec![imm as u8]), // cmp byte [rip], imm8
            _ => (vec![0xF0, rex(r, 0), 0x0F, 0xC1, modrm], vec![]), // lock xadd
        };
        Op::Data { opcode, at, behind }
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => plain().prop_map(Op::Plain),
        4 => data(),
        3 => (0u8..17, 0usize..4, any::<bool>()).prop_map(|(condition, skip, long)| Op::Branch { condition, skip, long }),
        1 => (0xE0u8..0xE4, 0usize..4, any::<bool>()).prop_map(|(opcode, skip, narrow)| Op::Counted { opcode, skip, narrow }),
        1 => (1u8..6, plain().prop_filter("keeps the stack and the count", |b| keeps_count(b)))
            .prop_map(|(times, body)| Op::Loop { times, body }),
        2 => (prop::sample::select(vec![Via::Relative, Via::Register, Via::RipMemory, Via::StackMemory]), 0usize..FUNCTIONS)
            .prop_map(|(via, function)| Op::Call { via, function }),
        2 => any::<u8>().prop_map(|then| Op::Syscall { then }),
        1 => Just(Op::Cpuid),
    ]
}

/// Whether a loop body leaves rcx and rsp alone, so that the loop ends.
fn keeps_count(bytes: &[u8]) -> bool {
    use iced_x86::{Decoder, InstructionInfoFactory, OpAccess, Register};
    let insn = Decoder::new(64, bytes, 0).decode();
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&insn);
    info.used_registers().iter().all(|used| {
        let written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        !(written
            && matches!(
                used.register().full_register(),
                Register::RCX | Register::RSP
            ))
    })
}

fn input() -> impl Strategy<Value = Input> {
    let value = prop_oneof![
        any::<u64>(),
        0u64..4,
        Just(u64::MAX),
        Just(1 << 63),
        Just(0x8000_0000)
    ];
    (
        prop::array::uniform16(value),
        any::<u64>(),
        any::<[u8; 32]>(),
    )
        .prop_map(|(mut regs, flags, seed)| {
            regs[usize::from(RSP)] = STACK + STACK_LEN as u64 / 2;
            let fill = |len: usize, salt: u8| {
                (0..len)
                    .map(|i| seed[i % 32] ^ salt ^ (i / 32) as u8)
                    .collect()
            };
            // Interrupts on, as the kernel insists; no trap flag.
            Input {
                regs,
                flags: flags & FLAGS_COMPARED & !0x400 | 0x202,
                data: fill(DATA_LEN, 3),
                stack: fill(STACK_LEN, 7),
            }
        })
}

fn module(code: &[u8]) -> Module<'_> {
    #[expect(clippy::single_range_in_vec_init, reason = "one function")]
    let functions = vec![CODE..CODE + code.len() as u64];
    Module {
        code: vec![CodeView {
            addr: CODE,
            bytes: code,
        }],
        functions,
        ..Module::default()
    }
}

fn decode_len(bytes: &[u8]) -> u64 {
    iced_x86::Decoder::new(64, bytes, 0).decode().len() as u64
}

/// How the hook meets the interception.
#[derive(Debug, Clone, Copy)]
enum Order {
    Together,
    SitesFirst,
    HooksFirst,
    /// A survey, which plants into less room too; nobody intercepts anything, and payloads that
    /// do nothing crowd the hook.
    Survey,
}

#[derive(Default)]
struct Seen {
    runs: usize,
    sites: usize,
    hooks: usize,
    refused_hooks: usize,
    merged: usize,
    hits: u64,
    bounced: usize,
}

static SEEN: Mutex<Seen> = Mutex::new(Seen {
    runs: 0,
    sites: 0,
    hooks: 0,
    refused_hooks: 0,
    merged: 0,
    hits: 0,
    bounced: 0,
});

fn check(
    ops: &[Op],
    input: &Input,
    pick: prop::sample::Index,
    after: bool,
    order: Order,
) -> Result<(), TestCaseError> {
    let guard = machine();
    let machine = guard.as_ref().expect("made");
    let Some(bare) = assemble(ops) else {
        return Err(TestCaseError::reject("an 8-bit branch does not reach"));
    };
    let module = module(&bare.code);
    let n = pick.index(bare.instructions.len());
    let addr = bare.instructions[n];
    let place = if after { Place::After } else { Place::Before };
    let hooks = [Hook {
        addr,
        place,
        code: counter(),
    }];
    let sites = find_sites(&module);
    for site in &sites {
        prop_assert!(site.proven && matches!(site.kind, SiteKind::Syscall | SiteKind::Cpuid));
    }
    let one = ArenaSpec {
        addr: ARENA,
        len: ARENA_LEN,
    };
    let two = ArenaSpec {
        addr: ARENA + ARENA_LEN,
        len: ARENA_LEN,
    };
    let entries = &machine.stubs.entries;
    let plans = match order {
        Order::Together => vec![replan(
            &module,
            &sites,
            entries,
            &hooks,
            Existing::default(),
            one,
        )],
        Order::SitesFirst => {
            let first = plan(&module, &sites, one, entries);
            let second = plan_hooks(&module, &hooks, Existing::from(&first), two);
            vec![first, second]
        }
        Order::HooksFirst => {
            let first = plan_hooks(&module, &hooks, Existing::default(), one);
            let second = replan(&module, &sites, entries, &[], Existing::from(&first), two);
            vec![first, second]
        }
        Order::Survey => {
            let every = 1 + n % 4;
            let crowd = bare.instructions.iter().step_by(every).map(|addr| Hook {
                addr: *addr,
                place: Place::Before,
                code: vec![0x0F, 0x1F, 0x00], // nop [rax]
            });
            let asked: Vec<Hook> = hooks.iter().cloned().chain(crowd).collect();
            vec![Survey::new(&module, one).plan(&asked)]
        }
    };
    let planted = plans
        .iter()
        .any(|p| p.hooked.iter().any(|hooked| hooked.hook == hooks[0]));
    let bounced = plans
        .iter()
        .flat_map(|p| &p.writes)
        .filter(|w| w.bytes[0] == 0xEB)
        .count();
    // 1: bare.
    machine.install(&bare.code, &[]);
    let expected = machine.run(input);
    prop_assert!(expected.done, "the bare program has to end");
    // 2: patched.
    let placed: Vec<(&Plan, u64)> = plans.iter().zip([one.addr, two.addr]).collect();
    machine.install(&bare.code, &placed);
    let found = machine.run(input);
    let hits = peek_word(COUNT);
    prop_assert!(found.done, "the patched program ends");
    prop_assert_eq!(&found.regs, &expected.regs);
    prop_assert_eq!(found.flags, expected.flags);
    prop_assert!(found.data == expected.data, "data differ");
    prop_assert!(found.stack == expected.stack, "stacks differ");
    // 3: counted by a breakpoint.
    let mut seen = SEEN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if planted {
        machine.install(&bare.code, &[]);
        let len = decode_len(&bare.code[(addr - CODE) as usize..]);
        prop_assert_eq!(
            hits,
            machine.count(input, addr, len, after),
            "payload at {:#x}",
            addr
        );
        seen.hits += hits;
    }
    seen.runs += 1;
    seen.bounced += bounced;
    let last = plans.last().expect("one or two");
    seen.sites += plans.iter().map(|p| p.patched.len()).sum::<usize>();
    seen.hooks += usize::from(planted);
    seen.refused_hooks += usize::from(!planted);
    seen.merged += usize::from(!last.superseded.is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn patched_programs_end_in_the_same_state(
        ops in prop::collection::vec(op(), 1..24),
        input in input(),
        pick in any::<prop::sample::Index>(),
        after in any::<bool>(),
        order in prop::sample::select(vec![Order::Together, Order::SitesFirst, Order::HooksFirst, Order::Survey, Order::Survey]),
    ) {
        check(&ops, &input, pick, after, order)?;
    }
}

#[test]
fn zz_the_runs_reached_what_they_are_for() {
    // Named to come last with --test-threads=1; in any order the numbers only grow.
    let seen = SEEN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    println!(
        "{} runs: {} sites patched, {} payloads planted ({} refused), {} windows merged across plans, {} of two to four bytes, {} counted hits",
        seen.runs, seen.sites, seen.hooks, seen.refused_hooks, seen.merged, seen.bounced, seen.hits
    );
}
