//! The machine: fixed mappings, and a program in a child, bare, patched or stepped.

use super::*;

#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) regs: [u64; 16],
    pub(super) flags: u64,
    pub(super) data: Vec<u8>,
    pub(super) stack: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) done: bool,
    pub(super) regs: Vec<u64>,
    pub(super) flags: u64,
    pub(super) data: Vec<u8>,
    pub(super) stack: Vec<u8>,
}

/// The fixed mappings, made once and used by one run at a time.
pub(super) struct Machine {
    pub(super) stubs: Stubs,
}

pub(super) static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);

pub(super) fn machine() -> MutexGuard<'static, Option<Machine>> {
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

pub(super) fn map(addr: u64, len: usize, prot: i32, sharing: i32) {
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
pub(super) fn poke(addr: u64, bytes: &[u8]) {
    // SAFETY: callers pass addresses inside mappings that machine() made writable and that
    // no Rust object lives in; the mutex makes this the only access.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, bytes.len()) }
}

pub(super) fn peek(addr: u64, len: usize) -> Vec<u8> {
    // SAFETY: as for poke; the children that write there have been waited for.
    unsafe { std::slice::from_raw_parts(addr as *const u8, len) }.to_vec()
}

pub(super) fn peek_word(addr: u64) -> u64 {
    u64::from_le_bytes(peek(addr, 8).try_into().expect("eight bytes"))
}

pub(super) const FLAGS_COMPARED: u64 = 0xCD5; // CF PF AF ZF SF DF OF

impl Machine {
    /// Runs the program at `CODE` to its end in a child.
    pub(super) fn run(&self, input: &Input) -> Output {
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
    pub(super) fn count(&self, input: &Input, addr: u64, len: u64, after: bool) -> u64 {
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
    pub(super) fn start(&self, input: &Input, traced: bool) -> libc::pid_t {
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

    pub(super) fn install(&self, code: &[u8], plans: &[(&Plan, u64)]) {
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

pub(super) fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process and writes one int.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status
}

pub(super) fn stopped_by_trap(status: i32) -> bool {
    libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP
}

pub(super) fn registers(pid: libc::pid_t) -> libc::user_regs_struct {
    // SAFETY: all zeroes is a register set.
    let mut regs = unsafe { std::mem::zeroed() };
    // SAFETY: the child is stopped, as the caller saw, and `regs` holds a register set.
    let rc = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut regs) };
    assert_eq!(rc, 0);
    regs
}

pub(super) fn set_registers(pid: libc::pid_t, regs: &libc::user_regs_struct) {
    // SAFETY: as for registers().
    let rc = unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, 0, &raw const *regs) };
    assert_eq!(rc, 0);
}

/// Replaces one byte of a stopped child's code.
pub(super) fn set_byte(pid: libc::pid_t, addr: u64, byte: u8) {
    // The rest of the word is as in this process: the child changes none of its code.
    let mut word = peek(addr, 8);
    word[0] = byte;
    let word = i64::from_le_bytes(word.try_into().expect("eight bytes"));
    // SAFETY: writes to the stopped child's memory only.
    let rc = unsafe { libc::ptrace(libc::PTRACE_POKETEXT, pid, addr, word) };
    assert_eq!(rc, 0);
}

pub(super) fn resume(pid: libc::pid_t, how: libc::c_uint) {
    // SAFETY: the child is stopped; no signal is delivered.
    let rc = unsafe { libc::ptrace(how, pid, 0, 0) };
    assert_eq!(rc, 0);
}
