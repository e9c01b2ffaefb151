//! From a fault to what is placed in the target: records for the code that strikes, and the
//! payloads that lead to it.
//!
//! Invariants
//!  1. A payload touches no flag, no register and no byte of stack above the red zone's end.
//!  2. What cannot be done is refused before anything starts, with what it would need.
//!
//! Not covered: event triggers (they belong to `steadfast run`), the gs base; `code` of a class from a later execution
//! on than the first.
//!
//! Layouts: crates/inject/blob/strike.h; what a record is made of: crates/strike/src/record.rs.

use iced_x86::Instruction;
use steadfast_fault::{Effect, Fault, Hits, Part, Processes, Replicas, Target, ThreadPath};
use steadfast_patch as patch;
use steadfast_strike::record::{self, STRIKE_BYTES, STRUCK_BYTES};
use steadfast_strike::{From, Refusal, Strike, What, refuse};

/// The code that strikes, placed whole at a page's start.
pub(crate) static BLOB: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/blob.bin"));

pub(crate) const MAGIC: u64 = 0x5453_464a_454e_434e;
pub(crate) const FAULTS_MAX: usize = 64;
pub(crate) const SITES_MAX: usize = 16384;
pub(crate) const OFF_FAULTS: usize = 0x1000;
pub(crate) const OFF_HITS: usize = 0x6000;
pub(crate) const OFF_COUNTERS: usize = 0x8000;
pub(crate) const OFF_AFTER: usize = 0x8400;
pub(crate) const OFF_SITES: usize = 0x10000;
/// In `struct si_site`: `struct sf_strike`,
pub(crate) const SITE_STRIKE: usize = 8;
/// `struct sf_struck`.
pub(crate) const SITE_STRUCK: usize = SITE_STRIKE + STRIKE_BYTES;
pub(crate) const SITE_BYTES: usize = SITE_STRUCK + STRUCK_BYTES;
const FAULT_BYTES: usize = 256;
/// In `struct si_fault`: `who`, then process and thread.
const FAULT_WHO: usize = 80;
pub(crate) const FAULT_PID: usize = FAULT_WHO + 4;
pub(crate) const FAULT_TID: usize = FAULT_WHO + 8;

/// `struct si_fault`.
pub(crate) fn fault_record(fault: &Fault, hits: &Hits) -> Result<Vec<u8>, Refusal> {
    let mut out = record::choice(fault, Some(hits))?;
    out.extend(hits.first.get().to_le_bytes());
    assert_eq!(out.len(), FAULT_WHO, "crates/inject/blob/strike.h");
    // enum si_who
    let who: u32 = match bound(fault) {
        None => 0,
        Some((_, None)) => 1,
        Some((_, Some(_))) => 2,
    };
    out.extend(who.to_le_bytes());
    out.resize(FAULT_BYTES, 0);
    Ok(out)
}

/// The process and the thread that a fault is bound to, if it is: a thread is one of the first
/// process where the line does not say which.
pub(crate) fn bound(fault: &Fault) -> Option<(u32, Option<&ThreadPath>)> {
    let victim = fault.victim();
    let rank = match victim.process {
        Some(Processes::Rank(rank)) => Some(rank),
        _ => None,
    };
    match (rank, &victim.thread) {
        (None, None) => None,
        (rank, thread) => Some((rank.unwrap_or(0), thread.as_ref())),
    }
}

/// What can be said without the target.
pub(crate) fn check(fault: &Fault) -> Result<(), Refusal> {
    let victim = fault.victim();
    if !matches!(&victim.replicas, None | Some(Replicas::All))
        && victim.replicas != Some(Replicas::Set(1))
    {
        return Err(refuse(
            fault,
            "a target with replicas",
            "a bare program",
            "--replicas 2",
        ));
    }
    if victim.thread.is_some() && victim.process == Some(Processes::All) {
        return Err(refuse(
            fault,
            "one process, for thread=",
            "process=all",
            "process=0",
        ));
    }
    let code = matches!(
        fault.effect(),
        Effect::Bits {
            target: Target::Code,
            ..
        }
    );
    if code && bound(fault).is_some() {
        return Err(refuse(
            fault,
            "code that all threads and processes share",
            "process= or thread=",
            "the line without them",
        ));
    }
    if fault.part() != Part::App {
        return Err(refuse(
            fault,
            "the program's own state",
            "the agent's or the log's",
            "target=app",
        ));
    }
    Ok(())
}

/// `struct si_site`.
pub(crate) fn site_bytes(
    insn: &Instruction,
    fault: &Fault,
    strike: &Strike,
    number: usize,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(SITE_BYTES);
    out.extend(u32::try_from(number).unwrap_or(0).to_le_bytes());
    let mut strike = strike.clone();
    let (mut copy, mut moves) = (0, 0);
    if beside(&strike) {
        strike.once = false;
        copy = u16::try_from(insn.len() + BESIDE_REST).unwrap_or(0);
        moves = i16::try_from(insn.stack_pointer_increment()).unwrap_or(0);
    }
    out.extend(copy.to_le_bytes());
    out.extend(moves.to_le_bytes());
    out.extend(strike.record(fault, insn.ip(), 0, false));
    out.resize(SITE_BYTES, 0);
    out
}

/// Reads off fault and instruction what is to be done there. `start` works out a static address
/// of a memory expression.
pub(crate) fn strike(
    fault: &Fault,
    insn: &Instruction,
    bytes: &[u8],
    start: &dyn Fn(&steadfast_fault::Location) -> Option<u64>,
) -> Result<Strike, Refusal> {
    let mut strike = Strike::of(fault)?;
    let bare = |what: &str| refuse(fault, "an address in a bare program", what, "[rsi+8]");
    match (strike.place.from, &strike.start) {
        (From::File, Some(location)) => {
            let addr = start(location)
                .ok_or_else(|| bare("a module or symbol that the target does not have"))?;
            strike.place = strike.place.at(addr);
        }
        (From::Log | From::Entry, _) => return Err(bare("the log of replicas")),
        _ => {}
    }
    strike.fit(fault, insn, bytes)?;
    if strike.what == What::Reg && strike.reg == RSP && strike.once {
        return Err(refuse(
            fault,
            "a stack to put things right on behind the instruction",
            "once, of the stack pointer",
            "--engine step, or the line without once",
        ));
    }
    Ok(strike)
}

/// How a payload counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counting {
    /// One thread: no flag is touched and nothing is locked.
    Plain,
    /// Several threads share the counter: locked, flags saved around it.
    Locked,
}

/// A payload, and where in it addresses go once it has one.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub(crate) code: Vec<u8>,
    /// Places of 32-bit displacements to the word, each relative to its own end.
    pub(crate) words: Vec<usize>,
    /// Place of the entry's address.
    pub(crate) entry: Option<usize>,
    /// Place of a displacement to the word that the stack pointer is kept in; see [`beside`].
    pub(crate) kept: Option<usize>,
}

const LEA_RSP_DOWN: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
const LEA_RSP_UP: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];
const PUSH_RCX: u8 = 0x51;
const POP_RCX: u8 = 0x59;
const MOV_RCX_RIP: [u8; 3] = [0x48, 0x8b, 0x0d];
const MOV_RIP_RCX: [u8; 3] = [0x48, 0x89, 0x0d];
const XCHG_RSP_RIP: [u8; 3] = [0x48, 0x87, 0x25];
const RSP: u8 = 4;
/// What stands behind the copy of an instruction: `xchg`, and a jump of two bytes.
const BESIDE_REST: usize = XCHG_RSP_RIP.len() + 4 + 2;

impl Payload {
    fn word(&mut self, opcode: &[u8]) {
        self.code.extend(opcode);
        self.words.push(self.code.len());
        self.code.extend([0; 4]);
    }

    /// Adds one to a word.
    pub(crate) fn tally(counting: Counting) -> Self {
        let mut p = Self {
            code: LEA_RSP_DOWN.to_vec(),
            words: Vec::new(),
            entry: None,
            kept: None,
        };
        match counting {
            Counting::Plain => {
                p.code.push(PUSH_RCX);
                p.word(&MOV_RCX_RIP);
                p.code.extend([0x48, 0x8d, 0x49, 0x01]); // lea rcx, [rcx+1]
                p.word(&MOV_RIP_RCX);
                p.code.push(POP_RCX);
            }
            Counting::Locked => {
                p.code.push(0x9c); // pushfq
                p.word(&[0xf0, 0x48, 0xff, 0x05]); // lock inc qword ptr [rip+..]
                p.code.push(0x9d); // popfq
            }
        }
        p.code.extend(LEA_RSP_UP);
        p
    }

    /// Takes one from a word, and enters the code that strikes when that was the last.
    pub(crate) fn count(site: usize, counting: Counting, beside: &[u8]) -> Self {
        let mut p = Self {
            code: LEA_RSP_DOWN.to_vec(),
            words: Vec::new(),
            entry: None,
            kept: None,
        };
        let (desc, jump, back) = match counting {
            Counting::Plain => {
                p.code.push(PUSH_RCX);
                p.word(&MOV_RCX_RIP);
                p.code.extend([0x48, 0x8d, 0x49, 0xff]); // lea rcx, [rcx-1]
                p.word(&MOV_RIP_RCX);
                (0, [0xe3, 0], POP_RCX) // jrcxz
            }
            Counting::Locked => {
                p.code.push(0x9c);
                p.word(&[0xf0, 0x48, 0xff, 0x0d]); // lock dec qword ptr [rip+..]
                (1 << 17, [0x74, 0], 0x9d) // jz; popfq
            }
        };
        p.code.extend(jump);
        p.cold(site, desc, back, beside);
        p
    }

    /// Enters the code that strikes each time: it counts by itself, for whom the fault is bound to.
    pub(crate) fn each(site: usize, beside: &[u8]) -> Self {
        let mut p = Self {
            code: LEA_RSP_DOWN.to_vec(),
            words: Vec::new(),
            entry: None,
            kept: None,
        };
        p.code.push(PUSH_RCX);
        p.code.extend([0xeb, 0]); // jmp
        p.cold(site, 0, POP_RCX, beside);
        p
    }

    /// Enters the code that strikes when a word is zero: something is to be undone.
    pub(crate) fn finish(site: usize) -> Self {
        let mut p = Self {
            code: LEA_RSP_DOWN.to_vec(),
            words: Vec::new(),
            entry: None,
            kept: None,
        };
        p.code.push(PUSH_RCX);
        p.word(&MOV_RCX_RIP);
        p.code.extend([0xe3, 0]);
        p.cold(site, 1 << 16, POP_RCX, &[]);
        p
    }

    /// The way on, and the way into the code that strikes, which the two bytes before jump to.
    ///
    /// `beside`: the instruction once more, for a fault in an address that the stack pointer
    /// forms. Behind it no payload could run, since the stack is not where it was: the code that
    /// strikes leaves to this copy, keeps the stack pointer in a word, and the copy takes it back
    /// without a flag or a register before it goes on behind the instruction.
    fn cold(&mut self, site: usize, desc: u32, back: u8, beside: &[u8]) {
        let jump = self.code.len();
        self.code.push(back);
        self.code.extend(LEA_RSP_UP);
        let over = self.code.len() + 2;
        self.code.extend([0xeb, 0]);
        let cold = self.code.len();
        self.code.push(0x68); // push imm32
        self.code
            .extend((desc | u32::try_from(site).unwrap_or(0)).to_le_bytes());
        self.code.extend([0xff, 0x15, 7, 0, 0, 0]); // call [rip+7]: over lea and jmp
        // Comes back here only when the code was busy; 15 bytes to the end (PAYLOAD_REST).
        self.code.extend([0x48, 0x8d, 0x64, 0x24, 0x08]); // lea rsp, [rsp+8]
        let here = self.code.len() + 2;
        self.code.extend([0xeb, displacement(here, jump)]);
        self.entry = Some(self.code.len());
        self.code.extend([0; 8]);
        if !beside.is_empty() {
            self.code.extend(beside);
            self.code.extend(XCHG_RSP_RIP);
            self.kept = Some(self.code.len());
            self.code.extend([0; 4]);
            let length = u8::try_from(beside.len()).expect("at most 15");
            self.code.extend([0xeb, length]);
        }
        self.code[jump - 1] = displacement(jump, cold);
        self.code[over - 1] = displacement(over, self.code.len());
    }
}

fn displacement(from: usize, to: usize) -> u8 {
    let wide = isize::try_from(to).unwrap_or(0) - isize::try_from(from).unwrap_or(0);
    i8::try_from(wide)
        .expect("payloads are short")
        .to_le_bytes()[0]
}

/// A payload at a place, as the planner wants it.
#[derive(Debug, Clone)]
pub(crate) struct Hooked {
    pub(crate) hook: patch::Hook,
    pub(crate) payload: Payload,
    /// Offset of its word in the shared memory.
    pub(crate) word: usize,
    /// Offset of the word that the stack pointer is kept in, if it is.
    pub(crate) kept: usize,
}

impl Hooked {
    pub(crate) fn new(addr: u64, place: patch::Place, payload: Payload, word: usize) -> Self {
        Self {
            hook: patch::Hook {
                addr,
                place,
                code: payload.code.clone(),
            },
            payload,
            word,
            kept: 0,
        }
    }
}

impl Hooked {
    /// The number of the fault that it belongs to, as [`hooks`] made it.
    pub(crate) fn fault(&self) -> usize {
        let words = if self.word < OFF_AFTER {
            OFF_COUNTERS
        } else {
            OFF_AFTER
        };
        (self.word - words) / 8
    }
}

/// Whether the fault is carried out in a copy of the instruction: see [`Payload::cold`].
pub(crate) fn beside(strike: &Strike) -> bool {
    strike.what == What::Addr && strike.reg == RSP
}

/// The payloads of one site of a fault; without a way of counting, the code that strikes counts.
pub(crate) fn hooks(
    addr: u64,
    strike: &Strike,
    bytes: &[u8],
    fault: usize,
    site: usize,
    counting: Option<Counting>,
) -> Vec<Hooked> {
    let (counter, after) = (OFF_COUNTERS + 8 * fault, OFF_AFTER + 8 * fault);
    let copy = if beside(strike) { bytes } else { &[] };
    let count = |place| {
        let payload = counting.map_or_else(
            || Payload::each(site, copy),
            |counting| Payload::count(site, counting, copy),
        );
        Hooked {
            kept: after,
            ..Hooked::new(addr, place, payload, counter)
        }
    };
    if strike.after {
        return vec![count(patch::Place::After)];
    }
    let mut out = vec![count(patch::Place::Before)];
    if strike.once && copy.is_empty() {
        out.push(Hooked::new(
            addr,
            patch::Place::After,
            Payload::finish(site),
            after,
        ));
    }
    out
}

/// What the code that strikes wants to know of the processor.
pub(crate) fn head() -> Vec<u8> {
    let (mask, places) = steadfast_sys::cpu::vector_state();
    let mut out = MAGIC.to_le_bytes().to_vec();
    out.extend(places.iter().flat_map(|place| place.to_le_bytes()));
    out.extend(mask.to_le_bytes());
    out.extend(0_u64.to_le_bytes());
    out
}
