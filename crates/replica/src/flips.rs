//! Flips: from a fault's line to a payload in the victim and a record of its hit.
//!
//! ```text
//!   plan ──► compile ──► table in the control block ──► agents arm their counters
//!                 │            ▲ addresses, operands
//!                 ├─ module mapped ──► hooks ──► patch plan ──► payloads in every replica
//!                 └─ by the clock ──► due, and a signal to the victim │ hit
//!   events, report ◄── news ◄────────── records, one per replica ◄────┘
//! ```
//!
//! Invariants
//!  1. What cannot be done is refused: before the program starts where the module is the
//!     program or its loader, before the code can run where it is a library.
//!  2. A payload needs no flag, no register and no stack of the program.
//!  3. All replicas are patched alike; whom a fault strikes is decided by counters.
//!
//! Not covered: storage, which all replicas share; of `class=` instructions that do not happen, branches that go the other
//! way and `code`; the gs base, sites without a window for a jump, faults in code that no file backs.
//!
//! Layouts: crates/agent/src/faults/flip.h; what a record is made of: crates/strike/src/record.rs.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object, ObjectSymbol};
use steadfast_contract::event::FaultHit;
use steadfast_contract::plan::{FaultReport, Plan};
use steadfast_fault::ids::{CoreId, GuestAddr, Site};
use steadfast_fault::{
    Effect, EventPhase, Fault, Incident, InsnClass, Location, Module, Part, Processes, Replicas,
    Scope, Target, Trigger,
};
use steadfast_patch as patch;
use steadfast_strike::record::{self, HIT_BYTES, Hit};
use steadfast_strike::{From, Place, Refusal, Strike, What, class, refuse};
use steadfast_sys::shared::Shared;

use crate::abi::{self, tls};
use crate::group::id;

// Layouts of crates/agent/src/faults/flip.h, whose assertions are the other half; flips/tests.rs holds the numbers against it.
const FLIPS_MAX: usize = 16;
const SLOTS: usize = 8;
const OFF_FLIPS: usize = 0xC000;
const OFF_HITS: usize = 0xD000;
const OFF_NOTES: usize = 0xF000;
/// `due` of `struct sf_flip_notes`.
const OFF_DUE: usize = OFF_NOTES + 8 + 8 * FLIPS_MAX * SLOTS;
/// `struct sf_flip`.
const FLIP_BYTES: usize = 256;
const _: () = assert!(size_of::<abi::Group>() <= OFF_FLIPS);
const _: () = assert!(OFF_FLIPS + FLIPS_MAX * FLIP_BYTES <= OFF_HITS);
const _: () = assert!(OFF_HITS + FLIPS_MAX * SLOTS * HIT_BYTES <= OFF_NOTES);
const _: () = assert!(OFF_DUE + 4 * SLOTS <= abi::OFF_CLAIMS);
/// Where hooks in the agent's own code go: behind its image.
pub(crate) const AGENT_ARENA: u64 = abi::BASE + (16 << 20);
const AGENT_ARENA_BYTES: u64 = 16 << 20;

const ENTRY_FLIP: u64 = abi::BASE + 32;
const DESC_FLIP: u32 = 0xf0;
/// `SF_FLIP_DONE` and `SF_FLIP_OWN` of a descriptor, whose low byte comes with the payload.
const FLIP_DONE: u32 = 1 << 8;
const FLIP_OWN: u32 = 1 << 9;

/// `enum sf_flip_when`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum When {
    Site = 0,
    Event,
    Voted,
    Claim,
    Result,
    Tick,
}

/// When a fault by the clock strikes: in running time since the program began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clock {
    /// Nothing once it is over.
    next: Option<Duration>,
    every: Option<Duration>,
}

impl Clock {
    /// Whether it strikes now. Moments that went by while nobody looked are one.
    fn strikes(&mut self, now: Duration) -> bool {
        let Some(next) = self.next.filter(|next| *next <= now) else {
            return false;
        };
        self.next = self.every.map(|every| {
            let periods = (now - next).as_nanos() / every.as_nanos() + 1;
            next + every.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX))
        });
        true
    }
}

/// Instructions of a class that each need a record: with its two payloads one takes up to 600 bytes of an
/// arena of 1 MiB (modules.rs), in which the program's own sites come first.
const OWN_RECORDS_MAX: usize = 1024;
/// What a payload ends with, behind a record of its own: ud2, and a jump to itself. `crash` and `hang` go there (flip.c).
const TRAILER: [u8; 4] = [0x0f, 0x0b, 0xeb, 0xfe];

/// One fault of the plan.
#[derive(Debug, Clone)]
struct One {
    /// Which of the plan's it is.
    index: usize,
    fault: Fault,
    strike: Strike,
    /// A bit for each replica that it strikes.
    slots: u32,
    /// `struct sf_choice`.
    choice: Vec<u8>,
    /// Payloads for instructions of a class that are left out, until they have a place.
    left_out: Vec<patch::Hook>,
    event: u64,
    when: When,
    /// The instruction that it waits for.
    site: Option<Location>,
    /// The instructions that it waits for, all counted together.
    class: Option<(Vec<InsnClass>, Option<Scope>)>,
    clock: Option<Clock>,
    /// Where the program has to be at that moment.
    within: Option<Scope>,
    /// Where that is, once its module is mapped; 0 for a class.
    addr: u64,
    /// The place in memory as the fault has it: a library may be mapped more than once.
    place: Place,
    seen: [bool; SLOTS],
    /// Hits in the program that this one has taken the place of.
    hits_before: u64,
}

impl One {
    /// Whether it is a defect of the place where a replica stands, not a particle: it has no end. Code that goes wrong
    /// is wrong in one process: who is made again has it whole.
    fn lasts(&self) -> bool {
        match self.fault.trigger() {
            Trigger::Site { hits, .. } | Trigger::Class { hits, .. } => {
                hits.last.is_none() && self.strike.what != What::Code
            }
            Trigger::Clock { every_ns, .. } => every_ns.is_some(),
            _ => false,
        }
    }

    /// Whether processes that this one will make may be its victims.
    fn may_strike_elsewhere(&self) -> bool {
        !matches!(self.fault.victim().process, None | Some(Processes::Rank(0)))
    }

    /// Whether the instructions of its class share a record: what is hit does not depend on which one it is.
    fn shares(&self) -> bool {
        let alike = match self.fault.effect() {
            Effect::Bits { target, .. } => {
                matches!(target, Target::Register(..) | Target::Memory(..))
            }
            Effect::Incident(incident) => {
                matches!(incident, Incident::Crash | Incident::Stop | Incident::Hang)
            }
            Effect::Kill(_) => true,
            Effect::Storage(_) => false,
        };
        alike && !self.strike.once
    }

    /// `struct sf_flip`.
    fn bytes(&self) -> Vec<u8> {
        let agent = self.fault.part() == Part::Agent && self.strike.place.from != From::Entry;
        let mut out = Vec::with_capacity(FLIP_BYTES);
        out.extend(u64::from(self.slots).to_le_bytes());
        out.extend(self.event.to_le_bytes());
        out.extend(&self.choice);
        out.extend(
            self.strike
                .record(&self.fault, self.addr, self.when as u8, agent),
        );
        out.resize(FLIP_BYTES, 0);
        out
    }
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
            Module::Name(name) => {
                !self.agent
                    && self
                        .name
                        .file_name()
                        .is_some_and(|own| own.to_string_lossy() == *name)
            }
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
            Location::Symbol {
                module,
                symbol,
                offset,
            } => self.is(module).then(|| {
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

    /// What of this module a scope means.
    fn range(&self, scope: &Scope) -> Option<Range<u64>> {
        if !self.is(&scope.module) {
            return None;
        }
        let Some(symbol) = &scope.symbol else {
            return Some(self.region.clone());
        };
        let mut all = self.file.symbols().chain(self.file.dynamic_symbols());
        let found = all.find(|s| s.name() == Ok(symbol.as_str()) && !s.is_undefined())?;
        let start = found.address().wrapping_add(self.bias);
        Some(start..start + found.size())
    }

    fn instruction(&self, addr: u64) -> Option<(Instruction, &[u8])> {
        let view = self
            .module
            .code
            .iter()
            .find(|view| view.range().contains(&addr))?;
        let at = usize::try_from(addr - view.addr).ok()?;
        let insn = Decoder::with_ip(64, &view.bytes[at..], addr, DecoderOptions::NONE).decode();
        (!insn.is_invalid()).then(|| (insn, &view.bytes[at..at + insn.len()]))
    }
}

/// The faults of a run.
#[derive(Debug, Default)]
pub(crate) struct Flips {
    list: Vec<One>,
    error: Option<Refusal>,
    ticks_per_us: u64,
    /// Those of programs that have become another one since, with their places in the plan.
    past: Vec<(usize, FaultReport)>,
    /// When the program began.
    began: Option<Instant>,
    /// Which process of the tree they are armed in, by order of creation.
    rank: u32,
}

impl Flips {
    /// Checks what can be checked without the program.
    pub(crate) fn compile(plan: &Plan, rank: u32) -> Result<Self, Refusal> {
        if let Some(fault) = plan.flips.get(FLIPS_MAX) {
            return Err(refuse(
                fault,
                "a run with at most 16 faults",
                plan.flips.len().to_string(),
                "one run for each",
            ));
        }
        let list = plan
            .flips
            .iter()
            .enumerate()
            .map(|(index, fault)| compile(index, fault, plan.replicas, rank))
            .collect::<Result<_, _>>()?;
        let ticks_per_us = if plan.flips.is_empty() {
            0
        } else {
            u64::from(steadfast_sys::cpu::ticks_per_us())
        };
        Ok(Self {
            list,
            ticks_per_us,
            rank,
            ..Self::default()
        })
    }

    /// The same for a copy of this process: what is planted in its code is there already, and nothing has hit yet.
    pub(crate) fn of_copy(&self, plan: &Plan, rank: u32) -> Result<Self, Refusal> {
        let anew = |one: &One| {
            let anew = compile(one.index, &one.fault, plan.replicas, rank)?;
            Ok(One {
                slots: anew.slots,
                event: anew.event,
                clock: anew.clock,
                seen: [false; SLOTS],
                hits_before: 0,
                ..one.clone()
            })
        };
        let list = self.list.iter().map(anew).collect::<Result<_, _>>()?;
        // Those are no other process's, or they would be in the list.
        let past = self.past.iter().map(|(index, report)| {
            let fault = report.fault.clone();
            (*index, FaultReport { fault, hits: 0 })
        });
        Ok(Self {
            list,
            past: past.collect(),
            ticks_per_us: self.ticks_per_us,
            rank,
            ..Self::default()
        })
    }

    /// Those that have not hit, and those that last, for the program that takes this one's place after `events` events of
    /// the run. What has waited for one of these is over.
    pub(crate) fn carry_on(
        self,
        plan: &Plan,
        memory: &Shared,
        events: u64,
    ) -> Result<Self, Refusal> {
        let mut next = Self {
            ticks_per_us: self.ticks_per_us,
            began: self.began,
            rank: self.rank,
            ..Self::default()
        };
        for (one, report) in self.list.iter().zip(self.reports_of_list(memory)) {
            let anew = One {
                clock: one.clock,
                ..compile(one.index, &one.fault, plan.replicas, self.rank)?
            };
            let over = report.hits > 0 || (anew.event > 0 && anew.event <= events);
            if one.lasts() {
                next.list.push(One {
                    hits_before: report.hits,
                    ..anew
                });
            } else if over && one.may_strike_elsewhere() {
                next.list.push(One {
                    slots: 0,
                    hits_before: report.hits,
                    ..anew
                });
            } else if over {
                next.past.push((one.index, report));
            } else {
                next.list.push(One {
                    event: anew.event.saturating_sub(events),
                    hits_before: report.hits,
                    slots: one.slots & anew.slots,
                    ..anew
                });
            }
        }
        next.past.extend(self.past);
        Ok(next)
    }

    /// What could not be planted, once.
    pub(crate) fn take_error(&mut self) -> Option<Refusal> {
        self.error.take()
    }

    /// Whether nothing is to be planted.
    pub(crate) fn is_none(&self) -> bool {
        self.list.is_empty()
    }

    /// Payloads for a module that is about to run.
    pub(crate) fn hooks(&mut self, loaded: &Loaded<'_>) -> Vec<patch::Hook> {
        let mut hooks = Vec::new();
        for (i, one) in self.list.iter_mut().enumerate() {
            let found = match one.resolve(loaded) {
                Ok(true) => Ok(one.hooks(i)),
                Ok(false) => match &one.class {
                    Some((classes, within)) => {
                        let found = one.class_hooks(i, classes, within.as_ref(), loaded);
                        if let (Ok(found), What::Skip | What::Invert) = (&found, one.strike.what) {
                            one.left_out.clone_from(found);
                        }
                        found
                    }
                    None => continue,
                },
                Err(error) => Err(error),
            };
            match found {
                Ok(found) => hooks.extend(found),
                Err(error) => self.error = Some(error),
            }
        }
        hooks
    }

    /// What became of those payloads, in a module whose code is this.
    pub(crate) fn planted(
        &mut self,
        plan: &mut patch::Plan,
        arena: u64,
        code: &[patch::CodeView<'_>],
    ) {
        for refused in &plan.refused {
            let patch::Asked::Hook(hook) = &refused.asked else {
                continue;
            };
            // Of a class, those are struck that can be.
            let Some(one) = self.list.iter().find(|one| one.addr == hook.addr) else {
                continue;
            };
            self.error = Some(refuse(
                &one.fault,
                "an instruction with room for a jump in its place",
                format!("{:#x} ({})", hook.addr, refused.reason),
                "an instruction before or after it in the same basic block",
            ));
        }
        for one in &mut self.list {
            let Some(hooked) = plan.hooked.iter().find(|h| h.hook.addr == one.addr) else {
                continue;
            };
            if one.strike.what == What::Code
                && let Err(error) = one.uncover(hooked, plan, code)
            {
                self.error = Some(error);
            }
            one.strike.next = moved(plan, hooked, one.strike.next);
        }
        self.lead_on(plan, arena);
    }

    /// Where execution goes on past an instruction of a class that is left out: each has that in a record of its own.
    fn lead_on(&mut self, plan: &mut patch::Plan, arena: u64) {
        let left_out: Vec<_> = self
            .list
            .iter_mut()
            .flat_map(|one| one.left_out.drain(..))
            .collect();
        if left_out.is_empty() {
            return;
        }
        let mut words = Vec::new();
        for hooked in plan
            .hooked
            .iter()
            .filter(|hooked| left_out.contains(&hooked.hook))
        {
            let end = usize::try_from(hooked.payload.end - arena).expect("inside the arena");
            let at = end - TRAILER.len() - record::STRIKE_BYTES + record::STRIKE_NEXT;
            let next = u64::from_le_bytes(plan.arena[at..at + 8].try_into().expect("eight bytes"));
            words.push((at, moved(plan, hooked, next)));
        }
        for (at, next) in words {
            plan.arena[at..at + 8].copy_from_slice(&next.to_le_bytes());
        }
    }

    /// Tells the agents.
    pub(crate) fn write(&self, memory: &Shared) {
        for (i, one) in self.list.iter().enumerate() {
            memory.write(OFF_FLIPS + i * FLIP_BYTES, &one.bytes());
        }
    }

    /// Tells a replica's agent what is due there, as bits by replica, and says how long it is until the next.
    pub(crate) fn strike_by_the_clock(&mut self, memory: &Shared) -> (u32, Option<Duration>) {
        if self.list.iter().all(|one| one.clock.is_none()) {
            return (0, None);
        }
        let now = self.began.get_or_insert_with(Instant::now).elapsed();
        let mut concerned = 0;
        for (i, one) in self.list.iter_mut().enumerate() {
            if !one.clock.as_mut().is_some_and(|clock| clock.strikes(now)) {
                continue;
            }
            for slot in (0..SLOTS).filter(|slot| one.slots >> slot & 1 == 1) {
                memory
                    .u32(OFF_DUE + 4 * slot)
                    .fetch_or(1 << i, Ordering::AcqRel);
            }
            concerned |= one.slots;
        }
        let next = self.list.iter().filter_map(|one| one.clock?.next).min();
        (concerned, next.map(|next| next.saturating_sub(now)))
    }

    /// First hits that nobody has been told about.
    pub(crate) fn news(&mut self, memory: &Shared, site: impl Fn(u64) -> Site) -> Vec<FaultHit> {
        let mut out = Vec::new();
        for (i, one) in self.list.iter_mut().enumerate() {
            for slot in 0..SLOTS {
                let at = OFF_HITS + (i * SLOTS + slot) * HIT_BYTES;
                let hit = Hit::read(|word| memory.get64(at + 8 * word));
                if one.seen[slot] || hit.hits == 0 {
                    continue;
                }
                one.seen[slot] = true;
                let shown = |value: u64| {
                    ((one.strike.what as u32) <= What::Ip as u32).then(|| format!("{value:#x}"))
                };
                out.push(FaultHit {
                    fault: Box::new(one.fault.clone()),
                    replica: id(slot),
                    core: Some(CoreId(hit.cpu)),
                    site: (hit.addr != 0).then(|| site(hit.addr)),
                    n: hit.n,
                    before: shown(hit.before),
                    after: shown(hit.after),
                });
            }
        }
        out
    }

    /// What became of each fault.
    pub(crate) fn reports(&self, memory: &Shared) -> Vec<FaultReport> {
        let now = self
            .list
            .iter()
            .map(|one| one.index)
            .zip(self.reports_of_list(memory));
        let mut all: Vec<_> = self.past.iter().cloned().chain(now).collect();
        all.sort_by_key(|(index, _)| *index);
        all.into_iter().map(|(_, report)| report).collect()
    }

    fn reports_of_list(&self, memory: &Shared) -> Vec<FaultReport> {
        let hits = |i: usize| {
            (0..SLOTS)
                .map(|slot| memory.get64(OFF_HITS + (i * SLOTS + slot) * HIT_BYTES))
                .sum::<u64>()
        };
        self.list
            .iter()
            .enumerate()
            .map(|(i, one)| FaultReport {
                fault: one.fault.clone(),
                hits: one.hits_before + hits(i),
            })
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

/// `rank`: the process that it is to be armed in; in one that is no victim it strikes no replica.
fn compile(index: usize, fault: &Fault, replicas: u8, rank: u32) -> Result<One, Refusal> {
    let victim = fault.victim();
    let all = (1_u32 << replicas) - 1;
    let is_victim = match victim.process {
        None => rank == 0,
        Some(Processes::All) => true,
        Some(Processes::Rank(wanted)) => rank == wanted,
    };
    let slots = match &victim.replicas {
        _ if !is_victim => 0,
        None | Some(Replicas::All) => all,
        // The leader keeps slot 0: a repair makes it anew in place.
        Some(Replicas::Leader) => 1,
        Some(Replicas::Follower) => 2,
        Some(Replicas::Set(set)) => u32::from(*set),
    };
    if victim
        .thread
        .as_ref()
        .is_some_and(|thread| !thread.ranks().is_empty())
    {
        return Err(refuse(
            fault,
            "the first thread",
            "another one",
            "thread=main",
        ));
    }
    if fault.is_storage() {
        return Err(refuse(
            fault,
            "a fault at an instruction, an event or a moment",
            "one of storage, which all replicas share",
            "`steadfast inject run --replicas N`, where storage goes wrong below the replicas",
        ));
    }
    let mut strike = Strike::of(fault)?;
    if strike.place.from == From::Log {
        strike.place = Place {
            from: From::Log,
            ..strike.place.at(abi::SHARED)
        };
    }
    let mut one = One {
        index,
        fault: fault.clone(),
        place: strike.place,
        strike,
        slots,
        choice: record::choice(fault, None)?,
        event: 0,
        when: When::Site,
        site: None,
        class: None,
        clock: None,
        within: None,
        left_out: Vec::new(),
        addr: 0,
        seen: [false; SLOTS],
        hits_before: 0,
    };
    match fault.trigger() {
        Trigger::Site { at, hits } => {
            one.choice = record::choice(fault, Some(hits))?;
            one.site = Some(at.clone());
        }
        Trigger::Event { index, phase } => {
            one.event = index.0;
            one.when = match (phase, one.strike.place.from) {
                (EventPhase::BeforeClaim, From::Entry) => When::Claim,
                (EventPhase::AfterVote, From::Entry) => When::Result,
                (EventPhase::BeforeClaim, _) => When::Event,
                (EventPhase::AfterVote, _) => When::Voted,
            };
        }
        Trigger::File { .. } => unreachable!("refused above"),
        Trigger::Class {
            classes,
            within,
            hits,
        } => {
            // What stands in an instruction's place is written back for one alone.
            if one.strike.what == What::Code {
                return Err(refuse(
                    fault,
                    "one instruction, for code",
                    "class=",
                    "at=MODULE+OFFSET, or `steadfast inject run` without --replicas",
                ));
            }
            one.choice = record::choice(fault, Some(hits))?;
            one.class = Some((classes.clone(), within.clone()));
        }
        Trigger::Clock {
            after_ns,
            every_ns,
            within,
        } => {
            if fault.part() == Part::Agent && one.strike.what != What::Mem
                || one.strike.place.from == From::Entry
            {
                return Err(refuse(
                    fault,
                    "the program's own state, for time=",
                    "the agent's, or an entry of the log",
                    "event=1",
                ));
            }
            let every = every_ns.map(|every| Duration::from_nanos(every.get()));
            one.when = When::Tick;
            one.clock = Some(Clock {
                next: after_ns.map(Duration::from_nanos).or(every),
                every,
            });
            one.within.clone_from(within);
            if within.is_some() {
                confine(&mut one.strike, &NOWHERE_YET);
            }
        }
    }
    if one.strike.what == What::Code && one.when != When::Site {
        return Err(refuse(
            fault,
            "an instruction, for code",
            "another moment",
            "at=MODULE+OFFSET n=1 code bit=5",
        ));
    }
    Ok(one)
}

/// In no module.
const NOWHERE_YET: Range<u64> = 1..1;

/// For faults by the clock these two words of `struct sf_strike` say where the program has to be.
fn confine(strike: &mut Strike, range: &Range<u64>) {
    (strike.next, strike.target) = (range.start, range.end);
}

impl One {
    /// Fills in what this module tells. `true`: the site lies in it.
    fn resolve(&mut self, loaded: &Loaded<'_>) -> Result<bool, Refusal> {
        let wrong = |fault: &Fault, found: String| {
            refuse(
                fault,
                "a place that exists",
                found,
                "an address that objdump -d prints for this file",
            )
        };
        if self.place.from == From::File
            && let Some(found) = self
                .strike
                .start
                .as_ref()
                .and_then(|start| loaded.address(start))
        {
            self.strike.place = self
                .place
                .at(found.map_err(|found| wrong(&self.fault, found))?);
        }
        if self.clock.is_some()
            && let Some(range) = self.within.as_ref().and_then(|scope| loaded.range(scope))
        {
            // A module's code may be mapped in parts.
            let known = self.strike.next..self.strike.target;
            let all = if known == NOWHERE_YET {
                range
            } else {
                known.start.min(range.start)..known.end.max(range.end)
            };
            confine(&mut self.strike, &all);
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
        self.addr = site;
        self.strike.fit(&self.fault, &insn, bytes)?;
        Ok(true)
    }

    /// Payloads at every instruction of a class that is about to become executable: one counter, and
    /// a record of its own for each where operands differ.
    fn class_hooks(
        &self,
        index: usize,
        classes: &[InsnClass],
        within: Option<&Scope>,
        loaded: &Loaded<'_>,
    ) -> Result<Vec<patch::Hook>, Refusal> {
        let inside = match within {
            None if loaded.agent => return Ok(Vec::new()),
            None => loaded.region.clone(),
            Some(scope) => match loaded.range(scope) {
                Some(range) => range,
                None => return Ok(Vec::new()),
            },
        };
        // Where the arena goes does not matter to what is an instruction.
        let survey = patch::Survey::new(loaded.module, patch::ArenaSpec { addr: 0, len: 0 });
        let mut hooks = Vec::new();
        let mut records = 0;
        for addr in survey
            .blocks()
            .iter()
            .flat_map(|block| &block.starts)
            .copied()
        {
            if !inside.contains(&addr) || !loaded.region.contains(&addr) {
                continue;
            }
            let Some((insn, bytes)) = loaded.instruction(addr) else {
                continue;
            };
            let mut strike = self.strike.clone();
            let concerned = class::of(&insn).iter().any(|one| classes.contains(one));
            if !concerned || strike.fit(&self.fault, &insn, bytes).is_err() {
                continue;
            }
            if self.shares() {
                hooks.extend(payloads(index, addr, &strike, &[]));
                continue;
            }
            records += 1;
            if records > OWN_RECORDS_MAX {
                return Err(refuse(
                    &self.fault,
                    &format!("at most {OWN_RECORDS_MAX} instructions of its class in a module"),
                    format!("more in {}", loaded.name.display()),
                    "in=MODULE!FUNCTION, or a register that stays wrong",
                ));
            }
            let record = strike.record(&self.fault, addr, self.when as u8, loaded.agent);
            hooks.extend(payloads(index, addr, &strike, &record));
        }
        Ok(hooks)
    }

    /// What has to stand in the instruction's place for it to be executed there, as the fault makes it.
    fn uncover(
        &mut self,
        hooked: &patch::Hooked,
        plan: &patch::Plan,
        code: &[patch::CodeView<'_>],
    ) -> Result<(), Refusal> {
        let window = &hooked.window;
        let meets = |other: &Range<u64>| other.start < window.end && window.start < other.end;
        let others = plan.patched.iter().any(|other| meets(&other.window))
            || plan
                .hooked
                .iter()
                .any(|other| other.hook.addr != self.addr && meets(&other.window));
        let room = self.strike.place.disp.len() * 8;
        let len = usize::try_from(window.end - window.start).unwrap_or(usize::MAX);
        let bytes = code
            .iter()
            .find(|view| view.range().contains(&window.start))
            .and_then(|view| {
                let at = usize::try_from(window.start - view.addr).ok()?;
                view.bytes.get(at..at.checked_add(len)?)
            });
        let Some(bytes) = bytes.filter(|_| !others && len <= room) else {
            return Err(refuse(
                &self.fault,
                "an instruction whose place nothing else has been put into",
                format!("{:#x}, beside a system call or another fault", self.addr),
                "another instruction of the same function",
            ));
        };
        let mut whole = [0; 40];
        whole[..len].copy_from_slice(bytes);
        let at = usize::try_from(self.addr - window.start).expect("a window holds its instruction");
        let wrong = steadfast_strike::code(&self.fault, &bytes[at..], &self.strike.mask);
        whole[at..at + wrong.len()].copy_from_slice(&wrong);
        for (word, bytes) in self.strike.place.disp.iter_mut().zip(whole.chunks_exact(8)) {
            *word = i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        self.strike.place.pointers = u8::try_from(len).expect("below 40");
        self.strike.target = window.start;
        Ok(())
    }

    fn hooks(&self, index: usize) -> Vec<patch::Hook> {
        payloads(index, self.addr, &self.strike, &[])
    }
}

/// Where execution goes on that would go on at `next`: left out inside a window, inside the trampoline.
fn moved(plan: &patch::Plan, hooked: &patch::Hooked, next: u64) -> u64 {
    if !hooked.window.contains(&next) {
        return next;
    }
    let copy = |(at, from): &&(u64, u64)| hooked.trampoline.contains(at) && *from == next;
    plan.map.iter().find(copy).map_or(next, |(at, _)| *at)
}

/// The payloads of a fault at one instruction; `own`: the record of what happens there, where it is
/// not the fault's.
fn payloads(index: usize, addr: u64, strike: &Strike, own: &[u8]) -> Vec<patch::Hook> {
    let i = u32::try_from(index).expect("below FLIPS_MAX");
    let hook = |place, code| patch::Hook { addr, place, code };
    if strike.after {
        return vec![hook(patch::Place::After, count(i, own))];
    }
    let mut hooks = vec![hook(patch::Place::Before, count(i, own))];
    if strike.once {
        hooks.push(hook(patch::Place::After, finish(i, own)));
    }
    hooks
}

/// Counts one execution and enters the agent when none is left: `lea` and `jrcxz` touch no
/// flag, and rcx is kept in the thread page.
fn count(flip: u32, own: &[u8]) -> Vec<u8> {
    payload(flip, tls::FLIP_COUNT + 8 * flip, true, own)
}

/// Enters the agent when flip's word says that there is something to do.
fn finish(flip: u32, own: &[u8]) -> Vec<u8> {
    payload(flip | FLIP_DONE, tls::FLIP_AFTER + 8 * flip, false, own)
}

fn payload(which: u32, word: u32, counts: bool, own: &[u8]) -> Vec<u8> {
    const MOV_GS_RCX: [u8; 5] = [0x65, 0x48, 0x89, 0x0c, 0x25];
    const MOV_RCX_GS: [u8; 5] = [0x65, 0x48, 0x8b, 0x0c, 0x25];
    const MOV_GS_IMM: [u8; 4] = [0x65, 0xc7, 0x04, 0x25];
    const LEA_RCX_MINUS_1: [u8; 4] = [0x48, 0x8d, 0x49, 0xff];
    const LEA_RCX_RIP: [u8; 3] = [0x48, 0x8d, 0x0d];
    const JMP_RIP: [u8; 2] = [0xff, 0x25];
    /// jmp and the slot.
    const LEAVE_LEN: usize = 6 + 8;
    /// mov gs:[..], imm32; lea.
    const ENTER_LEN: usize = 12 + 7;

    let rest = u32::try_from(LEAVE_LEN + own.len() + TRAILER.len()).expect("short");
    let which = if own.is_empty() {
        which
    } else {
        which | FLIP_OWN
    };
    let mut out = Vec::with_capacity(96 + own.len());
    let gs = |out: &mut Vec<u8>, opcode: &[u8], at: u32| {
        out.extend(opcode);
        out.extend(at.to_le_bytes());
    };
    gs(&mut out, &MOV_GS_RCX, tls::FLIP_RCX);
    gs(&mut out, &MOV_RCX_GS, word);
    if counts {
        out.extend(LEA_RCX_MINUS_1);
        gs(&mut out, &MOV_GS_RCX, word);
    }
    // jrcxz over the way on: mov rcx, gs:[..] (9) and jmp (5).
    out.extend([0xe3, 14]);
    gs(&mut out, &MOV_RCX_GS, tls::FLIP_RCX);
    out.push(0xe9);
    out.extend((u32::try_from(ENTER_LEN).expect("short") + rest).to_le_bytes());
    gs(&mut out, &MOV_GS_IMM, tls::FLIP_DESC);
    out.extend((DESC_FLIP | which << 8).to_le_bytes());
    // From the end of each to the end of all, and to the slot.
    out.extend(LEA_RCX_RIP);
    out.extend(rest.to_le_bytes());
    out.extend(JMP_RIP);
    out.extend(0_u32.to_le_bytes());
    out.extend(ENTRY_FLIP.to_le_bytes());
    out.extend(own);
    out.extend(TRAILER);
    out
}

/// Whether a fault at an instruction of `file` can be planted: for campaigns, which want to know
/// what they can reach before they run anything.
///
/// # Errors
/// What is in the way.
pub fn plantable(name: &Path, file: &[u8], fault: &Fault) -> Result<(), Refusal> {
    let mut flips = Flips {
        list: vec![compile(0, fault, 1, 0)?],
        ..Flips::default()
    };
    let broken = || {
        refuse(
            fault,
            "a 64-bit x86-64 ELF file",
            name.display().to_string(),
            "the program's own file",
        )
    };
    let parsed = object::File::parse(file).map_err(|_| broken())?;
    let start =
        object::ObjectSegment::address(&parsed.segments().next().ok_or_else(broken)?) & !0xfff;
    // Anywhere that an arena can be near.
    let bias = 0x1000_0000 - start.min(0x1000_0000);
    let module = patch::elf::module(file, bias).map_err(|_| broken())?;
    let build_id = parsed
        .build_id()
        .ok()
        .flatten()
        .map(|id| id.iter().map(|b| format!("{b:02x}")).collect::<String>());
    let end = module
        .code
        .iter()
        .map(|view| view.range().end)
        .max()
        .unwrap_or(0);
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
    let entries = patch::Entries {
        syscall: abi::ENTRY_SYSCALL,
        entropy: abi::ENTRY_ENTROPY,
    };
    let arena = patch::ArenaSpec {
        addr: 0x800_0000,
        len: 1 << 20,
    };
    let mut plan = patch::replan(
        &module,
        &sites,
        &entries,
        &hooks,
        patch::Existing::default(),
        arena,
    );
    flips.planted(&mut plan, arena.addr, &module.code);
    flips.take_error().map_or(Ok(()), Err)
}

/// As [`plantable`], for an instruction of the agent.
///
/// # Errors
/// What is in the way.
pub fn plantable_in_agent(fault: &Fault) -> Result<(), Refusal> {
    let mut flips = Flips {
        list: vec![compile(0, fault, 8, 0)?],
        ..Flips::default()
    };
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
    let ring = abi::RING * size_of::<abi::ClaimRecord>();
    OwnPlaces {
        fixed: 0..image.fixed,
        written: image.fixed..wide(image.bytes.len()),
        control: 0..wide(size_of::<abi::Group>()),
        claims: (0..abi::SLOTS_MAX)
            .map(|slot| {
                wide(abi::OFF_CLAIMS + slot * ring)..wide(abi::OFF_CLAIMS + (slot + 1) * ring)
            })
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
    let arena = patch::ArenaSpec {
        addr: AGENT_ARENA,
        len: AGENT_ARENA_BYTES,
    };
    let mut plan = patch::plan_hooks(&module, &hooks, patch::Existing::default(), arena);
    flips.planted(&mut plan, AGENT_ARENA, &module.code);
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
        .filter(|s| {
            s.kind() == object::SymbolKind::Text
                && (s.address()..s.address() + s.size()).contains(&addr)
        })
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
