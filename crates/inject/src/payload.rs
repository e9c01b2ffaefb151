//! From a fault to what is placed in the target: records for the code that strikes, and the
//! payloads that lead to it.
//!
//! Invariants
//!  1. A payload touches no flag, no register and no byte of stack above the red zone's end.
//!  2. What cannot be done is refused before anything starts, with what it would need.
//!
//! Not covered: threads and processes by name, event triggers (they belong to `steadfast run`),
//! the gs base; `code` from a later execution on than the first.
//!
//! Layouts: crates/inject/blob/strike.h.

use iced_x86::{Code, FlowControl, Instruction};
use steadfast_integrity::fault::{
    Change, Effect, Fault, Hits, Lasting, MemBase, MemExpr, Mishap, Moment, Part, Processes,
    Register, Replicas, Target,
};
use steadfast_patch as patch;

use crate::operand::{self, Undo, Which};

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
pub(crate) const SITE_BYTES: usize = 352;
const FAULT_BYTES: usize = 256;
pub(crate) const HIT_BYTES: usize = 64;

const NO_REG: u8 = 0xff;
const REG_FLAGS: u8 = 16;

/// Why a fault cannot be injected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the fault \"{fault}\" needs {requirement}, found {found}")]
pub struct Refusal {
    /// The fault's line.
    pub fault: String,
    /// What it needs.
    pub requirement: String,
    /// What there is.
    pub found: String,
    /// What would work.
    pub fix: String,
}

fn refuse(fault: &Fault, requirement: &str, found: impl Into<String>, fix: &str) -> Refusal {
    Refusal {
        fault: fault.to_string(),
        requirement: requirement.into(),
        found: found.into(),
        fix: fix.into(),
    }
}

/// `enum si_what`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum What {
    Reg = 1,
    Vector,
    Kmask,
    Mxcsr,
    FsBase,
    Mem,
    Wval,
    Addr,
    Ip,
    Crash,
    Stop,
    Hang,
    Kill,
    Skip,
    Repeat,
    Invert,
}

/// `struct si_fault`.
pub(crate) fn fault_record(fault: &Fault, hits: &Hits) -> Result<Vec<u8>, Refusal> {
    let mut cpus = [0_u64; 4];
    for core in fault.victim().cpus.iter().flat_map(|cpus| cpus.iter()) {
        let word = usize::try_from(core.0 / 64)
            .ok()
            .and_then(|word| cpus.get_mut(word));
        *word.ok_or_else(|| refuse(fault, "a CPU below 256", core.0.to_string(), "cpu=0"))? |=
            1 << (core.0 % 64);
    }
    let change = match fault.effect() {
        Effect::Bits {
            change: Change::Stuck0,
            ..
        } => 1,
        Effect::Bits {
            change: Change::Stuck1,
            ..
        } => 2,
        _ => 0,
    };
    let mut words = vec![
        hits.first.get(),
        hits.last.map_or(u64::MAX, std::num::NonZero::get),
        hits.step.get(),
    ];
    words.extend(
        hits.odds
            .map_or([0, 0], |odds| [odds.one_in.get(), odds.seed]),
    );
    words.extend(cpus);
    words.extend([hits.first.get(), change]);
    words.resize(FAULT_BYTES / 8, 0);
    Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
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
            "--protect 'steadfast run -n 2 --'",
        ));
    }
    if !matches!(victim.process, None | Some(Processes::All)) {
        return Err(refuse(
            fault,
            "every process of the target",
            "one by number",
            "process=all",
        ));
    }
    if victim.thread.is_some() {
        return Err(refuse(
            fault,
            "every thread of the target",
            "one by name",
            "the line without thread=",
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

/// `struct si_place`.
#[derive(Debug, Clone, Copy)]
struct Place {
    from: u8,
    base: u8,
    index: u8,
    scale: u8,
    pointers: u8,
    disp: [i64; 5],
}

const NOWHERE: Place = Place {
    from: 0,
    base: NO_REG,
    index: NO_REG,
    scale: 1,
    pointers: 0,
    disp: [0; 5],
};

/// One instruction of a fault.
#[derive(Debug, Clone)]
pub(crate) struct SiteRecord {
    pub(crate) addr: u64,
    what: What,
    mask: [u64; 8],
    place: Place,
    pub(crate) next: u64,
    target: u64,
    undo: u64,
    pub(crate) once: bool,
    pub(crate) after: bool,
    reg: u8,
    undo_how: u8,
    signal: u8,
    condition: u8,
}

impl SiteRecord {
    /// `struct si_site`.
    pub(crate) fn bytes(&self, fault: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(SITE_BYTES);
        out.extend(u32::try_from(fault).unwrap_or(0).to_le_bytes());
        out.extend((self.what as u32).to_le_bytes());
        out.extend(self.mask.iter().flat_map(|word| word.to_le_bytes()));
        let p = &self.place;
        out.extend([p.from, p.base, p.index, p.scale, p.pointers, 0, 0, 0]);
        out.extend(p.disp.iter().flat_map(|d| d.to_le_bytes()));
        out.extend(
            [self.addr, self.next, self.target, self.undo]
                .iter()
                .flat_map(|w| w.to_le_bytes()),
        );
        out.extend([
            u8::from(self.once),
            self.reg,
            self.undo_how,
            self.signal,
            self.condition,
            0,
            0,
            0,
        ]);
        out.resize(SITE_BYTES, 0);
        out
    }

    fn set_undo(&mut self, undo: Undo) {
        (self.undo_how, self.undo) = match undo {
            Undo::Nothing => (0, 0),
            Undo::Bits(kept) => (1, kept),
            Undo::Compare => (2, 0),
            Undo::Delta => (3, 0),
        };
    }
}

/// Whether execution goes on with the next instruction.
pub(crate) fn falls_through(insn: &Instruction) -> bool {
    insn.flow_control() == FlowControl::Next || insn.code() == Code::Syscall
}

/// Reads off fault and instruction what is to be done there. `start` works out a static address
/// of a memory expression.
pub(crate) fn site_record(
    fault: &Fault,
    insn: &Instruction,
    bytes: &[u8],
    start: &dyn Fn(&steadfast_integrity::fault::Location) -> Option<u64>,
) -> Result<SiteRecord, Refusal> {
    let no = |requirement: &str| {
        refuse(
            fault,
            requirement,
            format!("{:#x}: {insn}", insn.ip()),
            "another instruction",
        )
    };
    let mut record = SiteRecord {
        addr: insn.ip(),
        what: What::Reg,
        mask: [0; 8],
        place: NOWHERE,
        next: insn.next_ip(),
        target: 0,
        undo: 0,
        once: false,
        after: false,
        reg: NO_REG,
        undo_how: 0,
        signal: 0,
        condition: 0,
    };
    let on = falls_through(insn);
    let goes_on = |requirement: &str| if on { Ok(()) } else { Err(no(requirement)) };
    const GOES_ON: &str = "an instruction that goes on with the next one";
    match fault.effect() {
        Effect::Bits { target, bits, .. } => {
            record.mask = *bits.words();
            let highest = bits_end(&record.mask);
            match target {
                Target::Register(register, moment) => {
                    record.what = register_of(fault, *register, &mut record)?;
                    record.after = *moment == Moment::After;
                    record.once = *moment == Moment::BeforeOnly;
                    if *moment != Moment::Before {
                        goes_on(GOES_ON)?;
                    }
                    match register {
                        Register::Gpr(gpr, _) => {
                            record.set_undo(operand::register_undo(insn, gpr.number()))
                        }
                        Register::Flags => record.set_undo(Undo::Bits(operand::flags_kept(insn))),
                        Register::Vector { index, .. } => {
                            record.undo_how = u8::from(!operand::vector_written(insn, *index));
                        }
                        _ => record.undo_how = 1,
                    }
                }
                Target::Memory(expr, moment) => {
                    record.what = What::Mem;
                    record.after = *moment == Moment::After;
                    record.once = *moment == Moment::BeforeOnly;
                    record.place = place(fault, expr, start)?;
                    if *moment != Moment::Before {
                        goes_on(GOES_ON)?;
                    }
                }
                Target::ReadValue(_) | Target::WrittenValue => {
                    let written = matches!(target, Target::WrittenValue);
                    let which = if written { Which::Written } else { Which::Read };
                    let operand = operand::memory(insn, which).map_err(|why| no(&why))?;
                    if highest > operand.bits() {
                        return Err(no(&format!("a bit below {}", operand.bits())));
                    }
                    record.what = if written { What::Wval } else { What::Mem };
                    record.once = written || *target == Target::ReadValue(Lasting::ReadOnly);
                    if record.once {
                        goes_on(GOES_ON)?;
                    }
                    record.place = place_of(&operand);
                }
                Target::Address | Target::ReadAddress | Target::WrittenAddress => {
                    let which = match target {
                        Target::Address => Which::Only,
                        Target::ReadAddress => Which::Read,
                        _ => Which::Written,
                    };
                    let operand = operand::memory(insn, which).map_err(|why| no(&why))?;
                    let (register, undo) =
                        operand::address(insn, &operand).map_err(|why| no(&why))?;
                    record.what = What::Addr;
                    record.reg = register;
                    record.set_undo(undo);
                    record.once = undo != Undo::Nothing;
                    if record.once {
                        goes_on(GOES_ON)?;
                    }
                    record.place = place_of(&operand);
                    // What the segment adds is no part of the effective address.
                    record.place.from = 0;
                }
                Target::Ip => record.what = What::Ip,
                Target::Code => {
                    return Err(refuse(
                        fault,
                        "a state other than code",
                        "code",
                        "n=1.. code bit=N at one site",
                    ));
                }
            }
        }
        Effect::Mishap(mishap) => {
            record.what = match mishap {
                Mishap::Crash => What::Crash,
                Mishap::Stop => What::Stop,
                Mishap::Hang => What::Hang,
                Mishap::Skip => What::Skip,
                Mishap::Repeat => {
                    goes_on(GOES_ON)?;
                    record.once = true;
                    What::Repeat
                }
                Mishap::Invert => {
                    let (to, condition) = operand::branch(insn, bytes)
                        .ok_or_else(|| no("a conditional branch on flags"))?;
                    record.target = to;
                    record.condition = condition;
                    What::Invert
                }
            };
            if *mishap == Mishap::Skip && insn.flow_control() == FlowControl::Return {
                return Err(no("an instruction with code behind it"));
            }
        }
        Effect::Kill(signal) => {
            record.what = What::Kill;
            record.signal = *signal;
        }
    }
    Ok(record)
}

/// One above the highest bit.
pub(crate) fn bits_end(mask: &[u64; 8]) -> usize {
    mask.iter().rposition(|word| *word != 0).map_or(0, |word| {
        word * 64 + 64 - usize::try_from(mask[word].leading_zeros()).unwrap_or(0)
    })
}

fn register_of(
    fault: &Fault,
    register: Register,
    record: &mut SiteRecord,
) -> Result<What, Refusal> {
    let shift = usize::from(register.first_bit());
    let mut mask = [0_u64; 8];
    for (word, bits) in record.mask.iter().enumerate() {
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let to = word * 64 + bit + shift;
            mask[to / 64] |= 1 << (to % 64);
        }
    }
    record.mask = mask;
    Ok(match register {
        Register::Gpr(gpr, _) => {
            record.reg = gpr.number();
            What::Reg
        }
        Register::Flags => {
            // cf pf af zf sf df of; single steps and alignment checks are nobody's result.
            if mask[0] & !0x00dd5 != 0 {
                return Err(refuse(
                    fault,
                    "a flag that a program computes with",
                    "another bit",
                    "flag=cf, pf, af, zf, sf, df or of",
                ));
            }
            record.reg = REG_FLAGS;
            What::Reg
        }
        Register::Vector { index, .. } => {
            let high = mask[4..].iter().any(|word| *word != 0) || index > 15;
            let wide = mask[2..4].iter().any(|word| *word != 0);
            if high && !is_x86_feature_detected!("avx512f")
                || wide && !is_x86_feature_detected!("avx")
            {
                return Err(refuse(
                    fault,
                    "a register of this processor",
                    "one it does not have",
                    "reg=xmm0",
                ));
            }
            record.reg = index;
            What::Vector
        }
        Register::Mask(k) => {
            if !is_x86_feature_detected!("avx512f") {
                return Err(refuse(
                    fault,
                    "a processor with mask registers",
                    "one without",
                    "reg=rax",
                ));
            }
            record.reg = k;
            What::Kmask
        }
        Register::Mxcsr => What::Mxcsr,
        Register::FsBase => What::FsBase,
        Register::GsBase => {
            return Err(refuse(
                fault,
                "a register that programs use",
                "the gs base",
                "reg=fsbase",
            ));
        }
    })
}

fn place(
    fault: &Fault,
    expr: &MemExpr,
    start: &dyn Fn(&steadfast_integrity::fault::Location) -> Option<u64>,
) -> Result<Place, Refusal> {
    let mut place = match &expr.base {
        MemBase::Pointer(inner) => {
            let mut place = place(fault, inner, start)?;
            place.pointers += 1;
            *place
                .disp
                .get_mut(usize::from(place.pointers))
                .ok_or_else(|| {
                    refuse(
                        fault,
                        "at most four pointers to follow",
                        "more",
                        "[[rdi]+8]",
                    )
                })? = expr.displacement;
            return Ok(place);
        }
        _ => Place {
            disp: [expr.displacement, 0, 0, 0, 0],
            ..NOWHERE
        },
    };
    let bare = |what: &str| refuse(fault, "an address in a bare program", what, "[rsi+8]");
    match &expr.base {
        MemBase::Register { base, index } => {
            place.base = base.number();
            if let Some(index) = index {
                place.index = index.register.number();
                place.scale = index.scale;
            }
        }
        MemBase::FsBase => place.from = 1,
        MemBase::GsBase => return Err(bare("the gs base")),
        MemBase::Absolute(address) => place.disp[0] = address.cast_signed(),
        MemBase::Static(location) => {
            let addr = start(location)
                .ok_or_else(|| bare("a module or symbol that the target does not have"))?;
            place.disp[0] = place.disp[0].wrapping_add(addr.cast_signed());
        }
        MemBase::Log | MemBase::Entry => return Err(bare("the log of replicas")),
        MemBase::Pointer(_) => {}
    }
    Ok(place)
}

fn place_of(operand: &operand::Operand) -> Place {
    Place {
        from: u8::from(operand.fs),
        base: operand.base.unwrap_or(NO_REG),
        index: operand.index.unwrap_or(NO_REG),
        scale: operand.scale,
        pointers: 0,
        disp: [operand.displacement.cast_signed(), 0, 0, 0, 0],
    }
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
}

const LEA_RSP_DOWN: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
const LEA_RSP_UP: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];
const PUSH_RCX: u8 = 0x51;
const POP_RCX: u8 = 0x59;
const MOV_RCX_RIP: [u8; 3] = [0x48, 0x8b, 0x0d];
const MOV_RIP_RCX: [u8; 3] = [0x48, 0x89, 0x0d];

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
    pub(crate) fn count(site: usize, counting: Counting) -> Self {
        let mut p = Self {
            code: LEA_RSP_DOWN.to_vec(),
            words: Vec::new(),
            entry: None,
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
        p.cold(site, desc, back);
        p
    }

    /// Enters the code that strikes when a word is zero: something is to be undone.
    pub(crate) fn finish(site: usize) -> Self {
        let mut p = Self {
            code: LEA_RSP_DOWN.to_vec(),
            words: Vec::new(),
            entry: None,
        };
        p.code.push(PUSH_RCX);
        p.word(&MOV_RCX_RIP);
        p.code.extend([0xe3, 0]);
        p.cold(site, 1 << 16, POP_RCX);
        p
    }

    /// The way on, and the way into the code that strikes, which the two bytes before jump to.
    fn cold(&mut self, site: usize, desc: u32, back: u8) {
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
        }
    }
}

/// The payloads of one site of a fault.
pub(crate) fn hooks(
    record: &SiteRecord,
    fault: usize,
    site: usize,
    counting: Counting,
) -> Vec<Hooked> {
    let (counter, after) = (OFF_COUNTERS + 8 * fault, OFF_AFTER + 8 * fault);
    let count = |place| Hooked::new(record.addr, place, Payload::count(site, counting), counter);
    if record.after {
        return vec![count(patch::Place::After)];
    }
    let mut out = vec![count(patch::Place::Before)];
    if record.once {
        out.push(Hooked::new(
            record.addr,
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
