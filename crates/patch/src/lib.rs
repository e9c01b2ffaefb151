//! x86-64 patching as a pure function: bytes in, bytes out.
//!
//! Finds the instructions a protection has to see (system calls and instructions whose
//! result differs from one run or core to the next), chooses a window of whole
//! instructions around each, and plans a 5-byte `jmp rel32` to a trampoline in an arena
//! near the module. The trampoline holds the window's instructions rewritten for their
//! new address and a tail that enters the user's code. The same planner plants a payload
//! before or after any ordinary instruction.
//!
//! Invariants
//!  1. Nothing is read or written but the arguments: no process, no file, no `unsafe`.
//!     The caller applies [`Plan::writes`] and [`Plan::arena`].
//!  2. A window is entered at its first byte or not at all. Any byte but the first that a
//!     direct branch, a jump table, an address taken in code, a symbol or an unwind entry
//!     may reach rules the window out; so does an instruction that cannot move.
//!  3. What is not proven to be an instruction is not written to: a site that only a linear
//!     sweep finds is reported, refused and left for a trap to prove ([`site_at`]).
//!  4. No instruction is ever executed with its stack red zone, flags or registers changed
//!     by the relocation; a tail changes only what its site's hardware changes, or (entropy
//!     sites) what it first saves behind the gs base.
//!  5. Each site and hook asked for comes back in [`Plan::patched`], [`Plan::hooked`] or,
//!     with its reason, in [`Plan::refused`].
//!
//! Not covered: indirect branches computed in a way that leaves no table, address or
//! relocation behind (hand-written assembly); code that reads its own bytes; C++ landing
//! pads that are also fallen into (compilers emit none); shadow stacks, since a relocated
//! `call` is a push and a jump; unwinders that know a signal-return stub by its bytes and find
//! no unwind entry for it (musl); threads running inside a window while it is written, which
//! is the caller's protocol. Instruction addresses seen by a handler lie in the arena;
//! [`Plan::map`] leads back.
//!
//! See Intel SDM vol. 2 (encodings), System V ABI AMD64 3.2.2 (red zone).

mod blocks;
mod coverage;
mod doubt;
pub mod elf;
mod environment;
mod index;
mod insn;
mod open;
mod parts;
mod plan;
mod relocate;
mod save;
mod scan;
#[cfg(test)]
mod tests;

pub use blocks::{Block, End};
pub use coverage::{Coverage, Tally};
pub use doubt::reads_clock;
pub use environment::{Environment, find_environments};
pub use open::{Legacy, LegacyLoad, Open, find_open};
pub use plan::{Analysis, Survey, plan, plan_hooks, replan};
pub use save::{Save, find_saves};
pub use scan::{find_sites, site_at};

use std::fmt;
use std::ops::Range;

/// One executable region as it stands (or will stand) in memory, before any patch.
#[derive(Debug, Clone, Copy)]
pub struct CodeView<'a> {
    /// Run-time address of the first byte.
    pub addr: u64,
    pub bytes: &'a [u8],
}

impl CodeView<'_> {
    pub fn range(&self) -> Range<u64> {
        self.addr..self.addr + self.bytes.len() as u64
    }
}

/// What is known about a loaded object. All addresses are run-time addresses.
#[derive(Debug, Clone, Default)]
pub struct Module<'a> {
    /// Executable regions, pristine: bytes as before any window was written.
    pub code: Vec<CodeView<'a>>,
    /// Non-executable bytes, searched for jump tables. Without them a jump table's targets
    /// are unknown, and windows in functions with a `switch` rest on the other rules alone.
    pub data: Vec<CodeView<'a>>,
    /// Bounds of functions (unwind entries, sized symbols). May be empty.
    pub functions: Vec<Range<u64>>,
    /// Other addresses that execution may come to: entry points, labels, relocated pointers.
    pub leaders: Vec<u64>,
    /// Ranges no window may touch, such as restartable sequences.
    pub forbidden: Vec<Range<u64>>,
    /// Ranges of the code that nothing executes: sections that are not for code.
    pub inert: Vec<Range<u64>>,
}

/// What kind of instruction a site is. The numbers are shared with the agent, which finds
/// them in the low byte of the descriptor an entropy tail leaves at gs:[8].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SiteKind {
    Syscall = 0,
    Int80 = 1,
    Sysenter = 2,
    Rdtsc = 3,
    Rdtscp = 4,
    Cpuid = 5,
    Rdrand = 6,
    Rdseed = 7,
    Rdpid = 8,
    Xbegin = 9,
}

impl SiteKind {
    pub const ALL: [SiteKind; 10] = [
        SiteKind::Syscall,
        SiteKind::Int80,
        SiteKind::Sysenter,
        SiteKind::Rdtsc,
        SiteKind::Rdtscp,
        SiteKind::Cpuid,
        SiteKind::Rdrand,
        SiteKind::Rdseed,
        SiteKind::Rdpid,
        SiteKind::Xbegin,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SiteKind::Syscall => "syscall",
            SiteKind::Int80 => "int80",
            SiteKind::Sysenter => "sysenter",
            SiteKind::Rdtsc => "rdtsc",
            SiteKind::Rdtscp => "rdtscp",
            SiteKind::Cpuid => "cpuid",
            SiteKind::Rdrand => "rdrand",
            SiteKind::Rdseed => "rdseed",
            SiteKind::Rdpid => "rdpid",
            SiteKind::Xbegin => "xbegin",
        }
    }
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The register an instruction writes its answer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dest {
    /// Hardware number: 0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, 8.. r8..
    pub reg: u8,
    /// Bytes written: 2 keeps the rest of the register, 4 clears the upper half, 8 is all.
    pub bytes: u8,
}

/// An instruction to be intercepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Site {
    pub addr: u64,
    pub len: u8,
    pub kind: SiteKind,
    /// rdrand, rdseed, rdpid: where the answer goes.
    pub dest: Option<Dest>,
    /// xbegin: where an abort continues.
    pub fallback: Option<u64>,
    /// Whether `addr` is known to be an instruction's first byte: decoded from the start
    /// of a function, reached by control flow from one, or trapped on. Unproven sites are not
    /// patched; a caller that knows better may say so here.
    pub proven: bool,
}

impl Site {
    pub fn end(&self) -> u64 {
        self.addr + u64::from(self.len)
    }

    /// What an entropy tail stores at gs:[8]: kind | dest register << 8 | dest bytes << 16.
    pub fn descriptor(&self) -> u32 {
        let dest = self
            .dest
            .map_or(0, |d| u32::from(d.reg) << 8 | u32::from(d.bytes) << 16);
        u32::from(self.kind as u8) | dest
    }
}

/// Where trampolines go: memory the caller maps readable and executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaSpec {
    pub addr: u64,
    pub len: u64,
}

/// Absolute addresses the tails jump to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entries {
    /// Entered with rcx = resume address; r11 free; everything else as at the site.
    pub syscall: u64,
    /// Entered with rcx = resume address, the site's rcx at gs:[0] and the descriptor at gs:[8].
    pub entropy: u64,
}

/// Bytes to store at a run-time address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub addr: u64,
    pub bytes: Vec<u8>,
}

/// A site whose instruction is gone from the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patched {
    pub site: Site,
    /// The bytes replaced; shared by sites that were merged.
    pub window: Range<u64>,
    /// Where the window's instructions went; shared likewise.
    pub trampoline: Range<u64>,
    /// The value of rcx at the entry: the address after the site in the module where the
    /// site ends its window, its counterpart in the arena otherwise.
    pub resume: u64,
    pub entries: Entries,
}

/// Where a hook's payload runs relative to its instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Each time the instruction is about to execute.
    Before,
    /// Each time it has executed and control continues with the next instruction.
    After,
}

/// A payload to be run at an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub addr: u64,
    pub place: Place,
    /// Position-independent code entered at its first byte and left past its last one. It
    /// must keep whatever the program relies on, the 128 bytes below rsp included.
    pub code: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hooked {
    pub hook: Hook,
    pub window: Range<u64>,
    pub trampoline: Range<u64>,
    /// Where the payload lies in the arena.
    pub payload: Range<u64>,
}

/// Windows of earlier plans on the same module. A plan that needs their bytes takes the
/// union: it writes a larger window and a trampoline that serves both users.
#[derive(Debug, Clone, Copy, Default)]
pub struct Existing<'a> {
    pub patched: &'a [Patched],
    pub hooked: &'a [Hooked],
}

impl<'a> From<&'a Plan> for Existing<'a> {
    fn from(plan: &'a Plan) -> Self {
        Existing {
            patched: &plan.patched,
            hooked: &plan.hooked,
        }
    }
}

impl<'a> From<&'a [Patched]> for Existing<'a> {
    fn from(patched: &'a [Patched]) -> Self {
        Existing {
            patched,
            hooked: &[],
        }
    }
}

/// Why a site or hook was left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusedReason {
    /// Only a linear sweep says that an instruction starts here.
    Unproven,
    /// `int 0x80`, `sysenter`: 32-bit entries, to be answered by the filter alone.
    LegacyEntry,
    /// The address is in no code region, or no instruction starts there.
    NotAnInstruction,
    /// Every window has a byte, not its first, that something may branch to.
    Entered,
    /// The function ends, or control leaves, before five bytes are found.
    NoRoom,
    /// An instruction of the window cannot work elsewhere (far branch, breakpoint, ...).
    Immovable,
    /// `endbr64` has to stay where indirect branches land.
    Endbr,
    /// The window holds a further site that was not asked for.
    UnlistedSite,
    /// The window touches a range the caller forbade.
    Forbidden,
    /// The instruction hands control on: there is no "after".
    NoFallthrough,
    /// Arena or operand lies more than 2 GiB away.
    OutOfReach,
    /// The arena has no room left.
    ArenaFull,
}

impl RefusedReason {
    pub fn name(self) -> &'static str {
        match self {
            RefusedReason::Unproven => "unproven",
            RefusedReason::LegacyEntry => "legacy-entry",
            RefusedReason::NotAnInstruction => "not-an-instruction",
            RefusedReason::Entered => "entered",
            RefusedReason::NoRoom => "no-room",
            RefusedReason::Immovable => "immovable",
            RefusedReason::Endbr => "endbr",
            RefusedReason::UnlistedSite => "unlisted-site",
            RefusedReason::Forbidden => "forbidden",
            RefusedReason::NoFallthrough => "no-fallthrough",
            RefusedReason::OutOfReach => "out-of-reach",
            RefusedReason::ArenaFull => "arena-full",
        }
    }
}

impl fmt::Display for RefusedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Site(Site),
    Hook(Hook),
}

impl Asked {
    pub fn addr(&self) -> u64 {
        match self {
            Asked::Site(site) => site.addr,
            Asked::Hook(hook) => hook.addr,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub asked: Asked,
    pub reason: RefusedReason,
}

/// Everything the caller has to do, and what it will then have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// One per window, in address order, disjoint: a jump, then 0xCC to the window's end.
    /// Apply after the arena.
    pub writes: Vec<Write>,
    /// Contents of the arena from its first byte; never longer than it.
    pub arena: Vec<u8>,
    pub patched: Vec<Patched>,
    pub hooked: Vec<Hooked>,
    pub refused: Vec<Refused>,
    /// (address in the arena, address in the module), ascending: an arena address stands
    /// for the module address of the last entry at or below it.
    pub map: Vec<(u64, u64)>,
    /// Addresses in the arena at which eight bytes are an address in the module: all else moves
    /// along with module and arena as it is.
    pub absolutes: Vec<u64>,
    /// Windows of [`Existing`] that a write of this plan replaces. Their trampolines stay
    /// valid for whoever is still inside.
    pub superseded: Vec<Range<u64>>,
}

impl Plan {
    /// The same for a module and an arena, which began at `arena`, that both lie `by` further on.
    ///
    /// # Panics
    /// When that is not where the arena began.
    #[must_use]
    pub fn moved(&self, arena: u64, by: u64) -> Self {
        let at = |addr: &mut u64| *addr = addr.wrapping_add(by);
        let range = |range: &mut Range<u64>| {
            at(&mut range.start);
            at(&mut range.end);
        };
        let site = |site: &mut Site| {
            at(&mut site.addr);
            site.fallback.iter_mut().for_each(at);
        };
        let mut plan = self.clone();
        for place in &self.absolutes {
            let from = usize::try_from(place - arena).expect("inside the arena");
            let word = &mut plan.arena[from..from + 8];
            let value =
                u64::from_le_bytes((&*word).try_into().expect("eight bytes")).wrapping_add(by);
            word.copy_from_slice(&value.to_le_bytes());
        }
        plan.writes.iter_mut().for_each(|write| at(&mut write.addr));
        for patched in &mut plan.patched {
            site(&mut patched.site);
            range(&mut patched.window);
            range(&mut patched.trampoline);
            at(&mut patched.resume);
        }
        for hooked in &mut plan.hooked {
            at(&mut hooked.hook.addr);
            range(&mut hooked.window);
            range(&mut hooked.trampoline);
            range(&mut hooked.payload);
        }
        for refused in &mut plan.refused {
            match &mut refused.asked {
                Asked::Site(asked) => site(asked),
                Asked::Hook(hook) => at(&mut hook.addr),
            }
        }
        for (place, original) in &mut plan.map {
            at(place);
            at(original);
        }
        plan.absolutes.iter_mut().for_each(at);
        plan.superseded.iter_mut().for_each(range);
        plan
    }

    /// The module address that execution at `addr` in this plan's arena stands for.
    pub fn original(&self, addr: u64) -> Option<u64> {
        let within = |t: &Range<u64>| t.contains(&addr);
        let inside = self.patched.iter().any(|p| within(&p.trampoline))
            || self.hooked.iter().any(|h| within(&h.trampoline));
        let after = self.map.partition_point(|&(at, _)| at <= addr);
        (inside && after > 0).then(|| self.map[after - 1].1)
    }
}
