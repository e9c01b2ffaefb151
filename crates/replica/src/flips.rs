//! Flips: from a fault's line to a payload in the victim and a record of its hit.
//!
//! ```text
//!   plan ──► compile ──► table in the control block ──► agents arm their counters
//!                 │            ▲ addresses, operands
//!                 └─ module mapped ──► hooks ──► patch plan ──► payloads in every replica
//!                                                                   │ hit
//!   events, report ◄── news ◄────────── records, one per replica ◄──┘
//! ```
//!
//! Invariants
//!  1. What cannot be done is refused: before the program starts where the module is the
//!     program or its loader, before the code can run where it is a library.
//!  2. A payload needs no flag, no register and no stack of the program.
//!  3. All replicas are patched alike; whom a fault strikes is decided by counters.
//!
//! Not covered: `class=`, `time=` and `every=` triggers, `code`, the gs base, sites without a
//! window for a jump, faults in code that no file backs.
//!
//! Layouts: crates/agent/src/flip.h.

mod operand;

use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use object::{Object, ObjectSymbol};
use steadfast_integrity::event::FaultHit;
use steadfast_integrity::fault::{
    Change, Effect, EventPhase, Fault, GprPart, Lasting, Location, MemBase, MemExpr, Mishap, Module, Moment, Part,
    Processes, Register, Replicas, Target, Trigger,
};
use steadfast_integrity::ids::{CoreId, GuestAddr, Site};
use steadfast_integrity::plan::{FaultReport, Plan};
use steadfast_patch as patch;
use steadfast_sys::shared::Shared;

use crate::abi;
use crate::supervise::id;
use operand::{Undo, Which};

const FLIPS_MAX: usize = 16;
const SLOTS: usize = 8;
const OFF_FLIPS: usize = 0xC000;
const OFF_HITS: usize = 0xD000;
const OFF_NOTES: usize = 0xF000;
const HIT_BYTES: usize = 64;
/// Where hooks in the agent's own code go: behind its image.
pub(crate) const AGENT_ARENA: u64 = abi::BASE + (16 << 20);
const AGENT_ARENA_BYTES: u64 = 16 << 20;

const TLS_RCX: u32 = 2048;
const TLS_DESC: u32 = 2056;
const TLS_COUNT: u32 = 2176;
const TLS_AFTER: u32 = 2304;
const ENTRY_FLIP: u64 = abi::BASE + 32;
const DESC_FLIP: u32 = 0xf0;

/// Why a fault cannot be injected.
#[derive(Debug, thiserror::Error)]
#[error("--flip \"{fault}\" needs {requirement}, found {found}")]
pub struct FlipError {
    /// The fault.
    pub fault: Box<Fault>,
    /// What it needs.
    pub requirement: String,
    /// What there is.
    pub found: String,
    /// What would work.
    pub fix: String,
}

/// `enum sf_flip_what`.
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

/// `enum sf_flip_when`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum When {
    Site = 0,
    Event,
    Voted,
    Arrival,
    Result,
}

const NO_REG: u8 = 0xff;
const REG_FLAGS: u8 = 16;
const FROM_UNKNOWN: u8 = 0;
const FROM_REGS: u8 = 1;
const FROM_FS: u8 = 2;
const FROM_ENTRY: u8 = 3;

/// `struct sf_place`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Place {
    from: u8,
    base: u8,
    index: u8,
    scale: u8,
    pointers: u8,
    spare: [u8; 3],
    disp: [i64; 5],
}

/// `struct sf_flip`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Raw {
    what: u32,
    slots: u32,
    hits: [u64; 3],
    odds: [u64; 2],
    event: u64,
    cpus: [u64; 4],
    mask: [u64; 8],
    place: Place,
    site: u64,
    next: u64,
    target: u64,
    undo: u64,
    when: u8,
    change: u8,
    once: u8,
    reg: u8,
    undo_how: u8,
    signal: u8,
    condition: u8,
    agent: u8,
    spare: [u64; 2],
}
const _: () = assert!(size_of::<Place>() == 48, "shared with crates/agent/src/flip.h");
const _: () = assert!(size_of::<Raw>() == 256, "shared with crates/agent/src/flip.h");

impl Raw {
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(size_of::<Self>());
        out.extend(self.what.to_le_bytes());
        out.extend(self.slots.to_le_bytes());
        let words = |out: &mut Vec<u8>, words: &[u64]| out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        words(&mut out, &self.hits);
        words(&mut out, &self.odds);
        words(&mut out, &[self.event]);
        words(&mut out, &self.cpus);
        words(&mut out, &self.mask);
        let p = &self.place;
        out.extend([p.from, p.base, p.index, p.scale, p.pointers, 0, 0, 0]);
        out.extend(p.disp.iter().flat_map(|d| d.to_le_bytes()));
        words(&mut out, &[self.site, self.next, self.target, self.undo]);
        out.extend([
            self.when, self.change, self.once, self.reg, self.undo_how, self.signal, self.condition, self.agent,
        ]);
        words(&mut out, &self.spare);
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

/// One fault of the plan.
#[derive(Debug, Clone)]
struct One {
    fault: Fault,
    raw: Raw,
    /// The instruction that it waits for.
    site: Option<Location>,
    /// The module that its address expression starts from.
    start: Option<Location>,
    seen: [bool; SLOTS],
}

/// A module that has been mapped, as far as a fault wants to know it.
pub(crate) struct Loaded<'a> {
    pub(crate) name: &'a Path,
    pub(crate) build_id: Option<&'a str>,
    pub(crate) bias: u64,
    pub(crate) start: u64,
    /// What is about to become executable.
    pub(crate) region: std::ops::Range<u64>,
    pub(crate) file: &'a object::File<'a>,
    pub(crate) module: &'a patch::Module<'a>,
    pub(crate) agent: bool,
}

impl Loaded<'_> {
    fn is(&self, module: &Module) -> bool {
        match module {
            Module::Agent => self.agent,
            Module::Name(name) => !self.agent && self.name.file_name().is_some_and(|own| own.to_string_lossy() == *name),
            Module::BuildId(id) => {
                let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
                self.build_id.is_some_and(|own| own == hex)
            }
        }
    }

    /// The run-time address of a place in this module; nothing if it is another module's.
    fn address(&self, location: &Location) -> Option<Result<u64, String>> {
        match location {
            Location::Absolute(address) => self.region.contains(address).then_some(Ok(*address)),
            Location::Offset { module, offset } => self.is(module).then(|| Ok(self.start + offset)),
            Location::Symbol { module, symbol, offset } => self.is(module).then(|| {
                self.file
                    .symbols()
                    .chain(self.file.dynamic_symbols())
                    // A versioned name is printed as `memcpy@@GLIBC_2.14`; the tables hold it bare.
                    .find(|s| s.name() == Ok(symbol.as_str()) && !s.is_undefined())
                    .map(|s| s.address().wrapping_add(self.bias) + offset)
                    .ok_or_else(|| format!("no symbol {symbol}"))
            }),
        }
    }

    fn instruction(&self, addr: u64) -> Option<(Instruction, &[u8])> {
        let view = self.module.code.iter().find(|view| view.range().contains(&addr))?;
        let at = usize::try_from(addr - view.addr).ok()?;
        let insn = Decoder::with_ip(64, &view.bytes[at..], addr, DecoderOptions::NONE).decode();
        (!insn.is_invalid()).then(|| (insn, &view.bytes[at..at + insn.len()]))
    }
}

/// The faults of a run.
#[derive(Debug, Default)]
pub(crate) struct Flips {
    list: Vec<One>,
    error: Option<FlipError>,
    ticks_per_us: u64,
}

fn refuse(fault: &Fault, requirement: &str, found: impl Into<String>, fix: &str) -> FlipError {
    FlipError {
        fault: Box::new(fault.clone()),
        requirement: requirement.into(),
        found: found.into(),
        fix: fix.into(),
    }
}

impl Flips {
    /// Checks what can be checked without the program.
    pub(crate) fn compile(plan: &Plan) -> Result<Self, FlipError> {
        if let Some(fault) = plan.flips.get(FLIPS_MAX) {
            return Err(refuse(fault, "a run with at most 16 faults", plan.flips.len().to_string(), "one run for each"));
        }
        let list = plan
            .flips
            .iter()
            .map(|fault| compile(fault, plan.replicas))
            .collect::<Result<_, _>>()?;
        let ticks_per_us = if plan.flips.is_empty() { 0 } else { u64::from(steadfast_sys::cpu::ticks_per_us()) };
        Ok(Self { list, error: None, ticks_per_us })
    }

    /// What could not be planted, once.
    pub(crate) fn take_error(&mut self) -> Option<FlipError> {
        self.error.take()
    }

    /// Payloads for a module that is about to run.
    pub(crate) fn hooks(&mut self, loaded: &Loaded<'_>) -> Vec<patch::Hook> {
        let mut hooks = Vec::new();
        for (i, one) in self.list.iter_mut().enumerate() {
            match one.resolve(loaded) {
                Ok(false) => {}
                Ok(true) => hooks.extend(one.hooks(i)),
                Err(error) => self.error = Some(error),
            }
        }
        hooks
    }

    /// What became of those payloads.
    pub(crate) fn planted(&mut self, plan: &patch::Plan) {
        for refused in &plan.refused {
            let patch::Asked::Hook(hook) = &refused.asked else { continue };
            let Some(one) = self.list.iter().find(|one| one.raw.site == hook.addr) else { continue };
            self.error = Some(refuse(
                &one.fault,
                "an instruction with room for a jump in its place",
                format!("{:#x} ({})", hook.addr, refused.reason),
                "an instruction before or after it in the same basic block",
            ));
        }
        for one in &mut self.list {
            // Left out inside a window, execution goes on inside the trampoline.
            let Some(hooked) = plan.hooked.iter().find(|h| h.hook.addr == one.raw.site) else { continue };
            if hooked.window.contains(&one.raw.next) {
                one.raw.next = plan
                    .map
                    .iter()
                    .find(|(at, from)| hooked.trampoline.contains(at) && *from == one.raw.next)
                    .map_or(one.raw.next, |(at, _)| *at);
            }
        }
    }

    /// Tells the agents.
    pub(crate) fn write(&self, memory: &Shared) {
        for (i, one) in self.list.iter().enumerate() {
            memory.write(OFF_FLIPS + i * size_of::<Raw>(), &one.raw.bytes());
        }
    }

    /// First hits that nobody has been told about.
    pub(crate) fn news(&mut self, memory: &Shared, site: impl Fn(u64) -> Site) -> Vec<FaultHit> {
        let mut out = Vec::new();
        for (i, one) in self.list.iter_mut().enumerate() {
            for slot in 0..SLOTS {
                let at = OFF_HITS + (i * SLOTS + slot) * HIT_BYTES;
                if one.seen[slot] || memory.get64(at) == 0 {
                    continue;
                }
                one.seen[slot] = true;
                let word = |index: usize| memory.get64(at + 8 * index);
                let shown = |value: u64| (one.raw.what <= What::Ip as u32).then(|| format!("{value:#x}"));
                out.push(FaultHit {
                    fault: Box::new(one.fault.clone()),
                    replica: id(slot),
                    core: Some(CoreId(memory.get32(at + 48))),
                    site: Some(site(word(3))),
                    n: word(1),
                    before: shown(word(4)),
                    after: shown(word(5)),
                });
            }
        }
        out
    }

    /// What became of each fault.
    pub(crate) fn reports(&self, memory: &Shared) -> Vec<FaultReport> {
        let hits = |i: usize| (0..SLOTS).map(|slot| memory.get64(OFF_HITS + (i * SLOTS + slot) * HIT_BYTES)).sum();
        self.list
            .iter()
            .enumerate()
            .map(|(i, one)| FaultReport { fault: one.fault.clone(), hits: hits(i) })
            .collect()
    }

    /// From the first hit to the newest alarm.
    pub(crate) fn latency_ns(&self, memory: &Shared) -> Option<u64> {
        let alarm = memory.get64(OFF_NOTES);
        let first = (0..self.list.len() * SLOTS)
            .map(|at| OFF_HITS + at * HIT_BYTES)
            .filter(|at| memory.get64(*at) > 0)
            .map(|at| memory.get64(at + 16))
            .min()?;
        Some(alarm.checked_sub(first)? * 1000 / self.ticks_per_us.max(1))
    }
}

fn compile(fault: &Fault, replicas: u8) -> Result<One, FlipError> {
    let victim = fault.victim();
    let all = (1_u32 << replicas) - 1;
    let slots = match &victim.replicas {
        None | Some(Replicas::All) => all,
        // The leader keeps slot 0: a repair makes it anew in place.
        Some(Replicas::Leader) => 1,
        Some(Replicas::Follower) => 2,
        Some(Replicas::Set(set)) => u32::from(*set),
    };
    if !matches!(victim.process, None | Some(Processes::All | Processes::Rank(0))) {
        return Err(refuse(fault, "the first process", "another one", "process=0"));
    }
    if victim.thread.as_ref().is_some_and(|thread| !thread.ranks().is_empty()) {
        return Err(refuse(fault, "the first thread", "another one", "thread=main"));
    }
    let mut cpus = [0; 4];
    for CoreId(core) in victim.cpus.iter().flat_map(|cpus| cpus.iter()) {
        let word = usize::try_from(core / 64).ok().and_then(|word| cpus.get_mut(word));
        *word.ok_or_else(|| refuse(fault, "a CPU below 256", core.to_string(), "cpu=0"))? |= 1 << (core % 64);
    }
    let none = Place {
        from: FROM_UNKNOWN,
        base: NO_REG,
        index: NO_REG,
        scale: 1,
        pointers: 0,
        spare: [0; 3],
        disp: [0; 5],
    };
    let mut raw = Raw {
        what: 0,
        slots,
        hits: [0; 3],
        odds: [0; 2],
        event: 0,
        cpus,
        mask: [0; 8],
        place: none,
        site: 0,
        next: 0,
        target: 0,
        undo: 0,
        when: When::Site as u8,
        change: 0,
        once: 0,
        reg: 0,
        undo_how: 0,
        signal: 0,
        condition: 0,
        agent: u8::from(fault.part() == Part::Agent),
        spare: [0; 2],
    };
    let mut one = One { fault: fault.clone(), raw, site: None, start: None, seen: [false; SLOTS] };
    match fault.trigger() {
        Trigger::Site { at, hits } => {
            raw.hits = [hits.first.get(), hits.last.map_or(u64::MAX, |last| last.get()), hits.step.get()];
            raw.odds = hits.odds.map_or([0; 2], |odds| [odds.one_in.get(), odds.seed]);
            one.site = Some(at.clone());
        }
        Trigger::Event { index, phase } => {
            raw.event = index.0;
            raw.when = match phase {
                EventPhase::BeforeArrival => When::Event,
                EventPhase::AfterVote => When::Voted,
            } as u8;
        }
        Trigger::Class { .. } => {
            return Err(refuse(fault, "one instruction or one event", "class=", "at=MODULE+OFFSET n=1.."));
        }
        Trigger::Clock { .. } => {
            return Err(refuse(fault, "a moment that can be repeated", "a clock", "at=MODULE+OFFSET n=1, or event=1"));
        }
    }
    let what = match fault.effect() {
        Effect::Bits { target, bits, change, .. } => {
            raw.change = match change {
                Change::Flip => 0,
                Change::Stuck0 => 1,
                Change::Stuck1 => 2,
            };
            raw.mask = *bits.words();
            match target {
                Target::Register(register, moment) => {
                    raw.once = u8::from(*moment == Moment::BeforeOnly);
                    register_of(fault, *register, &mut raw)?
                }
                Target::Memory(expr, moment) => {
                    raw.once = u8::from(*moment == Moment::BeforeOnly);
                    let start = innermost(expr);
                    if let MemBase::Static(location) = start
                        && location.module().is_some()
                    {
                        one.start = Some(location.clone());
                    }
                    if matches!(start, MemBase::Entry) {
                        raw.when = if raw.when == When::Voted as u8 { When::Result } else { When::Arrival } as u8;
                        raw.agent = 0;
                    }
                    raw.place = place(fault, expr)?;
                    What::Mem
                }
                Target::ReadValue(lasting) => {
                    raw.once = u8::from(*lasting == Lasting::ReadOnly);
                    What::Mem
                }
                Target::WrittenValue => {
                    raw.once = 1;
                    What::Wval
                }
                Target::Address | Target::ReadAddress | Target::WrittenAddress => {
                    raw.once = 1;
                    What::Addr
                }
                Target::Ip => What::Ip,
                Target::Code => {
                    let fix = "ip bit=N, kind=skip or kind=invert for a wrong path";
                    return Err(refuse(fault, "state other than code", "code", fix));
                }
            }
        }
        Effect::Mishap(mishap) => match mishap {
            Mishap::Crash => What::Crash,
            Mishap::Stop => What::Stop,
            Mishap::Hang => What::Hang,
            Mishap::Skip => What::Skip,
            Mishap::Repeat => {
                raw.once = 1;
                What::Repeat
            }
            Mishap::Invert => What::Invert,
        },
        Effect::Kill(signal) => {
            raw.signal = *signal;
            What::Kill
        }
    };
    raw.what = what as u32;
    one.raw = raw;
    Ok(one)
}

fn register_of(fault: &Fault, register: Register, raw: &mut Raw) -> Result<What, FlipError> {
    let shift = usize::from(register.first_bit());
    let mut mask = [0_u64; 8];
    for (word, bits) in raw.mask.iter().enumerate() {
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let to = word * 64 + bit + shift;
            mask[to / 64] |= 1 << (to % 64);
        }
    }
    raw.mask = mask;
    Ok(match register {
        Register::Gpr(gpr, GprPart::Low8 | GprPart::High8 | GprPart::Low16 | GprPart::Low32 | GprPart::Full) => {
            raw.reg = gpr.number();
            What::Reg
        }
        Register::Flags => {
            // Single steps and alignment checks belong to whoever traces the replica.
            if raw.mask[0] & !0x00dd5 != 0 {
                let fix = "flag=cf, pf, af, zf, sf, df or of";
                return Err(refuse(fault, "a flag that a program computes with", "another bit", fix));
            }
            raw.reg = REG_FLAGS;
            What::Reg
        }
        Register::Vector { index, .. } => {
            let high = raw.mask[4..].iter().any(|word| *word != 0) || index > 15;
            let wide = raw.mask[2..4].iter().any(|word| *word != 0);
            if high && !is_x86_feature_detected!("avx512f") || wide && !is_x86_feature_detected!("avx") {
                return Err(refuse(fault, "a register of this processor", "one it does not have", "reg=xmm0"));
            }
            raw.reg = index;
            What::Vector
        }
        Register::Mask(k) => {
            if !is_x86_feature_detected!("avx512f") {
                return Err(refuse(fault, "a processor with mask registers", "one without", "reg=rax"));
            }
            raw.reg = k;
            What::Kmask
        }
        Register::Mxcsr => What::Mxcsr,
        Register::FsBase => What::FsBase,
        Register::GsBase => {
            return Err(refuse(fault, "a register that the program has", "the gs base, which is the agent's", "reg=fsbase"));
        }
    })
}

fn innermost(expr: &MemExpr) -> &MemBase {
    match &expr.base {
        MemBase::Pointer(inner) => innermost(inner),
        base => base,
    }
}

fn place(fault: &Fault, expr: &MemExpr) -> Result<Place, FlipError> {
    let mut place = match &expr.base {
        MemBase::Pointer(inner) => {
            let mut place = place(fault, inner)?;
            place.pointers += 1;
            place.disp[usize::from(place.pointers)] = expr.displacement;
            return Ok(place);
        }
        _ => Place {
            from: FROM_REGS,
            base: NO_REG,
            index: NO_REG,
            scale: 1,
            pointers: 0,
            spare: [0; 3],
            disp: [expr.displacement, 0, 0, 0, 0],
        },
    };
    match &expr.base {
        MemBase::Register { base, index } => {
            place.base = base.number();
            if let Some(index) = index {
                place.index = index.register.number();
                place.scale = index.scale;
            }
        }
        MemBase::FsBase => place.from = FROM_FS,
        MemBase::GsBase => {
            return Err(refuse(fault, "an address that the program can form", "the gs base, which is the agent's", "[fsbase+0x28]"));
        }
        MemBase::Absolute(address) => place.disp[0] = address.cast_signed(),
        MemBase::Static(Location::Absolute(address)) => place.disp[0] = address.cast_signed(),
        // Filled in when the module is mapped.
        MemBase::Static(_) => place.from = FROM_UNKNOWN,
        MemBase::Log => place.disp[0] = place.disp[0].wrapping_add(abi::SHARED.cast_signed()),
        MemBase::Entry => place.from = FROM_ENTRY,
        MemBase::Pointer(_) => {}
    }
    Ok(place)
}

impl One {
    /// Fills in what this module tells. `true`: the site lies in it.
    fn resolve(&mut self, loaded: &Loaded<'_>) -> Result<bool, FlipError> {
        let wrong = |fault: &Fault, found: String| {
            refuse(fault, "a place that exists", found, "an address that objdump -d prints for this file")
        };
        if let Some(start) = &self.start
            && let Some(found) = loaded.address(start)
        {
            let addr = found.map_err(|found| wrong(&self.fault, found))?;
            self.raw.place.disp[0] = addr.cast_signed();
            self.raw.place.from = FROM_REGS;
        }
        let Some(found) = self.site.as_ref().and_then(|site| loaded.address(site)) else {
            return Ok(false);
        };
        let site = found.map_err(|found| wrong(&self.fault, found))?;
        // Another part of the module is mapped, or one that was mapped before.
        if !loaded.region.contains(&site) {
            return Ok(false);
        }
        let Some((insn, bytes)) = loaded.instruction(site) else {
            return Err(wrong(&self.fault, format!("no code at {site:#x}")));
        };
        self.raw.site = site;
        self.raw.next = insn.next_ip();
        self.fit(&insn, bytes)?;
        Ok(true)
    }

    /// Reads off the instruction what the fault needs to know of it.
    fn fit(&mut self, insn: &Instruction, bytes: &[u8]) -> Result<(), FlipError> {
        let fault = &self.fault;
        let no = |requirement: &str| {
            refuse(fault, requirement, format!("{:#x}: {insn}", insn.ip()), "another instruction")
        };
        let on = |one: Which| operand::memory(insn, one).map_err(|why| no(&why));
        let highest = self.raw.mask.iter().rposition(|word| *word != 0).map_or(0, |word| {
            word * 64 + 63 - usize::try_from(self.raw.mask[word].leading_zeros()).unwrap_or(0)
        });
        let raw = &mut self.raw;
        let falls_through = insn.flow_control() == FlowControl::Next || insn.code() == iced_x86::Code::Syscall;
        if let Effect::Bits { target, .. } = fault.effect() {
            match target {
                Target::Register(register, moment) => {
                    if *moment != Moment::Before && !falls_through {
                        return Err(no("an instruction that goes on with the next one"));
                    }
                    match register {
                        Register::Gpr(gpr, _) => raw.set_undo(operand::register_undo(insn, gpr.number())),
                        Register::Flags => raw.set_undo(Undo::Bits(operand::flags_kept(insn))),
                        Register::Vector { index, .. } => {
                            raw.undo_how = u8::from(!operand::vector_written(insn, *index));
                        }
                        _ => raw.undo_how = 1,
                    }
                }
                Target::Memory(_, moment) => {
                    if *moment != Moment::Before && !falls_through {
                        return Err(no("an instruction that goes on with the next one"));
                    }
                }
                Target::ReadValue(_) | Target::WrittenValue => {
                    let written = matches!(target, Target::WrittenValue);
                    let operand = on(if written { Which::Written } else { Which::Read })?;
                    if highest >= operand.bits() {
                        return Err(no(&format!("a bit below {}", operand.bits())));
                    }
                    if raw.once != 0 && !falls_through {
                        return Err(no("an instruction that goes on with the next one"));
                    }
                    raw.place = place_of(&operand);
                }
                Target::Address | Target::ReadAddress | Target::WrittenAddress => {
                    let operand = on(match target {
                        Target::Address => Which::Only,
                        Target::ReadAddress => Which::Read,
                        _ => Which::Written,
                    })?;
                    let (register, undo) = operand::address(insn, &operand).map_err(|why| no(&why))?;
                    raw.reg = register;
                    raw.set_undo(undo);
                    raw.once = u8::from(undo != Undo::Nothing);
                    if raw.once != 0 && !falls_through {
                        return Err(no("an instruction that goes on with the next one"));
                    }
                    raw.place = place_of(&operand);
                    // What the segment adds is no part of the effective address.
                    raw.place.from = FROM_REGS;
                }
                Target::Ip | Target::Code => {}
            }
        }
        match fault.effect() {
            Effect::Mishap(Mishap::Repeat) if !falls_through => {
                return Err(no("an instruction that goes on with the next one"));
            }
            Effect::Mishap(Mishap::Invert) => {
                let (target, condition) =
                    operand::branch(insn, bytes).ok_or_else(|| no("a conditional branch on flags"))?;
                raw.target = target;
                raw.condition = condition;
            }
            Effect::Mishap(Mishap::Skip) if insn.flow_control() == FlowControl::Return => {
                return Err(no("an instruction with code behind it"));
            }
            _ => {}
        }
        Ok(())
    }

    fn hooks(&self, index: usize) -> Vec<patch::Hook> {
        let i = u32::try_from(index).expect("below FLIPS_MAX");
        let hook = |place, code| patch::Hook { addr: self.raw.site, place, code };
        let after = matches!(
            self.fault.effect(),
            Effect::Bits { target: Target::Register(_, Moment::After) | Target::Memory(_, Moment::After), .. }
        );
        if after {
            return vec![hook(patch::Place::After, count(i))];
        }
        let mut hooks = vec![hook(patch::Place::Before, count(i))];
        if self.raw.once != 0 {
            hooks.push(hook(patch::Place::After, finish(i)));
        }
        hooks
    }
}

fn place_of(operand: &operand::Operand) -> Place {
    Place {
        from: if operand.fs { FROM_FS } else { FROM_REGS },
        base: operand.base.unwrap_or(NO_REG),
        index: operand.index.unwrap_or(NO_REG),
        scale: operand.scale,
        pointers: 0,
        spare: [0; 3],
        disp: [operand.displacement.cast_signed(), 0, 0, 0, 0],
    }
}

/// Counts one execution and enters the agent when none is left: `lea` and `jrcxz` touch no
/// flag, and rcx is kept in the thread page.
fn count(flip: u32) -> Vec<u8> {
    payload(flip, TLS_COUNT + 8 * flip, true)
}

/// Enters the agent when flip's word says that there is something to do.
fn finish(flip: u32) -> Vec<u8> {
    payload(flip | 1 << 8, TLS_AFTER + 8 * flip, false)
}

fn payload(which: u32, word: u32, counts: bool) -> Vec<u8> {
    const MOV_GS_RCX: [u8; 5] = [0x65, 0x48, 0x89, 0x0c, 0x25];
    const MOV_RCX_GS: [u8; 5] = [0x65, 0x48, 0x8b, 0x0c, 0x25];
    const MOV_GS_IMM: [u8; 4] = [0x65, 0xc7, 0x04, 0x25];
    const LEA_RCX_MINUS_1: [u8; 4] = [0x48, 0x8d, 0x49, 0xff];
    const LEA_RCX_RIP: [u8; 3] = [0x48, 0x8d, 0x0d];
    const JMP_RIP: [u8; 2] = [0xff, 0x25];
    /// ud2, and a jump to itself: `crash` and `hang` go there (flip.c).
    const TRAILER: [u8; 4] = [0x0f, 0x0b, 0xeb, 0xfe];
    /// mov gs:[..], imm32; lea; jmp; the slot; the trailer.
    const COLD_LEN: u8 = 12 + 7 + 6 + 8 + 4;

    let mut out = Vec::with_capacity(96);
    let gs = |out: &mut Vec<u8>, opcode: &[u8], at: u32| {
        out.extend(opcode);
        out.extend(at.to_le_bytes());
    };
    gs(&mut out, &MOV_GS_RCX, TLS_RCX);
    gs(&mut out, &MOV_RCX_GS, word);
    if counts {
        out.extend(LEA_RCX_MINUS_1);
        gs(&mut out, &MOV_GS_RCX, word);
    }
    // jrcxz over the way on: mov rcx, gs:[..] (9) and jmp (2).
    out.extend([0xe3, 11]);
    gs(&mut out, &MOV_RCX_GS, TLS_RCX);
    out.extend([0xeb, COLD_LEN]);
    let cold = out.len();
    gs(&mut out, &MOV_GS_IMM, TLS_DESC);
    out.extend((DESC_FLIP | which << 8).to_le_bytes());
    // From the end of each to the end of all, and to the slot.
    out.extend(LEA_RCX_RIP);
    out.extend(18_u32.to_le_bytes());
    out.extend(JMP_RIP);
    out.extend(0_u32.to_le_bytes());
    out.extend(ENTRY_FLIP.to_le_bytes());
    out.extend(TRAILER);
    assert_eq!(out.len() - cold, usize::from(COLD_LEN));
    out
}

/// Whether a fault at an instruction of `file` can be planted: for campaigns, which want to know
/// what they can reach before they run anything.
///
/// # Errors
/// What is in the way.
pub fn plantable(name: &Path, file: &[u8], fault: &Fault) -> Result<(), FlipError> {
    let mut flips = Flips { list: vec![compile(fault, 1)?], ..Flips::default() };
    let broken = || refuse(fault, "a 64-bit x86-64 ELF file", name.display().to_string(), "the program's own file");
    let parsed = object::File::parse(file).map_err(|_| broken())?;
    let start = object::ObjectSegment::address(&parsed.segments().next().ok_or_else(broken)?) & !0xfff;
    // Anywhere that an arena can be near.
    let bias = 0x1000_0000 - start.min(0x1000_0000);
    let module = patch::elf::module(file, bias).map_err(|_| broken())?;
    let build_id = parsed.build_id().ok().flatten().map(|id| id.iter().map(|b| format!("{b:02x}")).collect::<String>());
    let end = module.code.iter().map(|view| view.range().end).max().unwrap_or(0);
    let hooks = flips.hooks(&Loaded {
        name,
        build_id: build_id.as_deref(),
        bias,
        start: start + bias,
        region: start + bias..end,
        file: &parsed,
        module: &module,
        agent: false,
    });
    if let Some(error) = flips.take_error() {
        return Err(error);
    }
    let sites = patch::find_sites(&module);
    let entries = patch::Entries { syscall: abi::ENTRY_SYSCALL, entropy: abi::ENTRY_ENTROPY };
    let arena = patch::ArenaSpec { addr: 0x800_0000, len: 1 << 20 };
    flips.planted(&patch::replan(&module, &sites, &entries, &hooks, patch::Existing::default(), arena));
    flips.take_error().map_or(Ok(()), Err)
}

/// As [`plantable`], for an instruction of the agent.
///
/// # Errors
/// What is in the way.
pub fn plantable_in_agent(fault: &Fault) -> Result<(), FlipError> {
    let mut flips = Flips { list: vec![compile(fault, 8)?], ..Flips::default() };
    let mut image = crate::image::Image::new();
    agent_hooks(&mut flips, &mut image.bytes);
    flips.take_error().map_or(Ok(()), Err)
}

/// Where the group keeps its own state, for campaigns that strike there: distances from the start
/// of the agent's image, and from the start of the shared memory.
#[derive(Debug, Clone)]
pub struct OwnPlaces {
    /// The agent's code and constants.
    pub fixed: std::ops::Range<u64>,
    /// The agent's variables and stacks.
    pub written: std::ops::Range<u64>,
    /// The control block.
    pub control: std::ops::Range<u64>,
    /// One replica's ring of claims, by replica.
    pub claims: Vec<std::ops::Range<u64>>,
    /// One result after another.
    pub results: u64,
    /// Bytes of a result.
    pub result_bytes: u64,
    /// Where the bytes of results begin.
    pub payload: u64,
}

/// Where those places are.
#[must_use]
pub fn own_places() -> OwnPlaces {
    let image = crate::image::Image::new();
    let wide = |bytes: usize| bytes as u64;
    let ring = abi::RING * size_of::<abi::Arrival>();
    OwnPlaces {
        fixed: 0..image.fixed,
        written: image.fixed..wide(image.bytes.len()),
        control: 0..wide(size_of::<abi::Group>()),
        claims: (0..abi::SLOTS_MAX)
            .map(|slot| wide(abi::OFF_ARRIVALS + slot * ring)..wide(abi::OFF_ARRIVALS + (slot + 1) * ring))
            .collect(),
        results: wide(abi::OFF_RESULTS),
        result_bytes: wide(size_of::<abi::Result>()),
        payload: wide(abi::OFF_PAYLOAD),
    }
}

/// Plans hooks in the agent's own image; they are written before it is placed.
pub(crate) fn agent_hooks(flips: &mut Flips, image: &mut [u8]) -> Option<Vec<u8>> {
    let file = object::File::parse(steadfast_agent::ELF).expect("built by our own build.rs");
    let module = patch::elf::module(steadfast_agent::ELF, 0).expect("built by our own build.rs");
    let loaded = Loaded {
        name: Path::new("agent"),
        build_id: None,
        bias: 0,
        start: abi::BASE,
        region: abi::BASE..abi::BASE + image.len() as u64,
        file: &file,
        module: &module,
        agent: true,
    };
    let hooks = flips.hooks(&loaded);
    if hooks.is_empty() {
        return None;
    }
    let arena = patch::ArenaSpec { addr: AGENT_ARENA, len: AGENT_ARENA_BYTES };
    let plan = patch::plan_hooks(&module, &hooks, patch::Existing::default(), arena);
    flips.planted(&plan);
    for write in &plan.writes {
        let at = usize::try_from(write.addr - abi::BASE).expect("inside the image");
        image[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
    }
    Some(plan.arena)
}

/// The agent's own code is no module of the program.
pub(crate) fn agent_site(addr: u64) -> Option<Site> {
    if !(abi::BASE..AGENT_ARENA + AGENT_ARENA_BYTES).contains(&addr) {
        return None;
    }
    let file = object::File::parse(steadfast_agent::ELF).ok()?;
    let symbol = file
        .symbols()
        .filter(|s| s.kind() == object::SymbolKind::Text && (s.address()..s.address() + s.size()).contains(&addr))
        .find_map(|s| Some(format!("{}+{:#x}", s.name().ok()?, addr - s.address())));
    Some(Site {
        module: Some("agent".into()),
        offset: Some(GuestAddr(addr - abi::BASE)),
        symbol,
        ..Site::at(GuestAddr(addr))
    })
}

#[cfg(test)]
mod tests;
