//! Windows, trampolines and the jumps that tie them together.
//!
//! For each site or hook, in address order:
//!
//! ```text
//!  candidates: whole instructions around it, >= 5 bytes, smallest first, best kind first
//!    └─ checked: not entered, all movable, no site that was not asked for, in reach
//!        └─ overlaps a window already taken? ── no ──► taken
//!             └─ yes ──► the union is checked and replaces both
//! ```
//!
//! Then each new or changed window is emitted:
//!
//! ```text
//!  module                         arena
//!  mov eax, 39  ─┐   jmp ───────► mov eax, 39
//!  syscall       │   CC CC        lea rcx, [rip+resume]     tail: the agent returns to rcx
//!  cmp rax, ...◄─┴── resume       jmp [rip+slot]
//! ```
//!
//! Invariants
//!  1. Windows of one plan and of the plans it builds on are disjoint, and no window's end
//!     (where an old trampoline may still return to) is inside another window.
//!  2. An existing window that cannot be widened stays exactly as it was.
//!  3. Neither a jump nor a trampoline spells a system-call opcode by accident, where moving
//!     the trampoline by a few bytes can avoid it.
//!
//! A [`Survey`] goes one step further where five bytes are not to be had: see [`bounce`].
//!
//! Not covered: int3; sites without a window are refused and stay with the caller's slow path.

mod bounce;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bounce::Bounce;

use iced_x86::Instruction;

use crate::index::{Decoded, Index, Targets, entered, is_padding};
use crate::insn::{ends_block, is_terminator, site_of};
use crate::relocate::{Emitter, Movable, OutOfReach, reaches, rel32};
use crate::scan::scan;
use crate::{
    ArenaSpec, Asked, Entries, Existing, Hook, Hooked, Module, Patched, Place, Plan, Refused,
    RefusedReason, Site, SiteKind, Write,
};

/// `jmp rel32`.
const JUMP_LEN: u64 = 5;
/// Trampolines start on the boundary the decoder of current cores fetches from.
const ALIGN: u64 = 16;
/// Two addresses per set of entries, at the start of the arena.
const SLOTS_LEN: u64 = 16;
/// By how much a trampoline is moved, in turn, while its displacements spell a system-call
/// opcode: small steps change their low byte, large ones the next. The upper two are the
/// caller's choice of arena.
const SHIFTS: [u64; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 256, 264, 512];

/// Plans the interception of `sites`.
pub fn plan(module: &Module<'_>, sites: &[Site], arena: ArenaSpec, entries: &Entries) -> Plan {
    replan(module, sites, entries, &[], Existing::default(), arena)
}

/// Plans payloads at instructions. Where windows of `existing` are in the way, both users are
/// served; `module` holds the bytes as they were before *any* window was written.
pub fn plan_hooks(
    module: &Module<'_>,
    hooks: &[Hook],
    existing: Existing<'_>,
    arena: ArenaSpec,
) -> Plan {
    // No new site, so no tail uses these; sites of existing windows bring their own.
    replan(
        module,
        &[],
        &Entries {
            syscall: 0,
            entropy: 0,
        },
        hooks,
        existing,
        arena,
    )
}

/// The general form: sites and hooks on a module that may have windows already, such as a
/// site that trapped after the first plan.
pub fn replan(
    module: &Module<'_>,
    sites: &[Site],
    entries: &Entries,
    hooks: &[Hook],
    existing: Existing<'_>,
    arena: ArenaSpec,
) -> Plan {
    Analysis::new(module).replan(sites, entries, hooks, existing, arena)
}

/// A module whose sites are looked for and then planned for: what following its control flow
/// says, the larger part of the work where much code has no unwind entries, is worked out once.
#[derive(Debug)]
pub struct Analysis<'a> {
    index: Rc<Index<'a>>,
}

impl<'a> Analysis<'a> {
    pub fn new(module: &'a Module<'a>) -> Self {
        Analysis {
            index: Rc::new(Index::new(module)),
        }
    }

    /// As [`crate::find_sites`].
    pub fn sites(&self) -> Vec<Site> {
        scan(&self.index).sites
    }

    /// All instructions that certainly load the address of a call in the vsyscall page, in address order.
    pub fn legacy_loads(&self) -> Vec<crate::LegacyLoad> {
        crate::open::legacy_loads(&self.index)
    }

    /// As [`replan`].
    pub fn replan(
        &self,
        sites: &[Site],
        entries: &Entries,
        hooks: &[Hook],
        existing: Existing<'_>,
        arena: ArenaSpec,
    ) -> Plan {
        let mut asked: Vec<Item> = sites
            .iter()
            .map(|site| Item::Site(*site, *entries))
            .chain(hooks.iter().map(|hook| Item::Hook(hook.clone())))
            .collect();
        // Stable: several hooks at one place run in the order given, a site's own tail between
        // those before and those after it.
        asked.sort_by_key(Item::addr);
        let mut planner = Planner::new(Rc::clone(&self.index), &asked, existing, arena);
        for item in asked {
            planner.place(item);
        }
        planner.emit()
    }
}

/// A module that is planned for again and again: what its bytes say is worked out once.
///
/// Each plan stands by itself, as if no other window had been written. Instructions that a
/// protection would intercept (system calls and the like) may move: here nobody does.
#[derive(Debug)]
pub struct Survey<'a> {
    planner: Planner<'a>,
}

impl<'a> Survey<'a> {
    /// Looks at the module.
    pub fn new(module: &'a Module<'a>, arena: ArenaSpec) -> Self {
        let index = Rc::new(Index::new(module));
        let mut planner = Planner::new(index, &[], Existing::default(), arena);
        planner.targets = Some(Arc::new(Targets::new(&planner.index)));
        planner.moves_sites = true;
        Survey { planner }
    }

    /// Plans payloads.
    pub fn plan(&mut self, hooks: &[Hook]) -> Plan {
        let mut asked: Vec<Item> = hooks.iter().cloned().map(Item::Hook).collect();
        asked.sort_by_key(Item::addr);
        for item in asked {
            self.planner.place(item);
        }
        self.planner.bounce_refused();
        let plan = self.planner.emit();
        self.planner.returns.clear();
        self.planner.padding_lent.clear();
        plan
    }

    pub(crate) fn index(&self) -> &Index<'a> {
        &self.planner.index
    }

    pub(crate) fn targets(&self) -> &Targets {
        self.planner.targets.as_ref().expect("built by new")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Site(Site, Entries),
    Hook(Hook),
}

impl Item {
    fn addr(&self) -> u64 {
        match self {
            Item::Site(site, _) => site.addr,
            Item::Hook(hook) => hook.addr,
        }
    }

    fn into_asked(self) -> Asked {
        match self {
            Item::Site(site, _) => Asked::Site(site),
            Item::Hook(hook) => Asked::Hook(hook),
        }
    }
}

#[derive(Debug, Clone)]
struct Window {
    range: Range<u64>,
    /// End of the instructions that move; padding behind a terminator does not.
    code_end: u64,
    /// (item, whether this plan was asked for it), by address, in order of execution.
    items: Vec<(Item, bool)>,
    /// Windows in memory that this one takes the place of.
    replaces: Vec<Range<u64>>,
    changed: bool,
    /// It has room for a short jump alone, to a long one here.
    bounce: Option<Bounce>,
    /// Bytes behind its own jump that hold jumps of others.
    lent: u64,
}

/// A window that an item could have.
#[derive(Debug, Clone)]
struct Candidate {
    range: Range<u64>,
    code_end: u64,
}

#[derive(Debug)]
struct Planner<'a> {
    index: Rc<Index<'a>>,
    /// Built when first needed: it costs a pass over all code.
    targets: Option<Arc<Targets>>,
    /// Where windows are asked for, or are already.
    places: Vec<u64>,
    arena: Range<u64>,
    /// Sites that a window may hold, because their tails will be emitted.
    listed: BTreeSet<u64>,
    /// By start.
    windows: BTreeMap<u64, Window>,
    /// Ends of windows in memory: old trampolines jump there.
    returns: BTreeSet<u64>,
    refused: Vec<Refused>,
    /// Whether windows may move system calls and the like that nobody asked for.
    moves_sites: bool,
    /// Padding that holds somebody's long jump.
    padding_lent: BTreeSet<u64>,
}

impl<'a> Planner<'a> {
    fn new(index: Rc<Index<'a>>, asked: &[Item], existing: Existing<'_>, arena: ArenaSpec) -> Self {
        let windows = windows_of(&index, existing);
        let returns = windows.values().map(|w| w.range.end).collect();
        let listed = asked
            .iter()
            .chain(
                windows
                    .values()
                    .flat_map(|w| w.items.iter().map(|(item, _)| item)),
            )
            .filter_map(|item| match item {
                Item::Site(site, _) => refuse_outright(site).is_none().then_some(site.addr),
                Item::Hook(_) => None,
            })
            .collect();
        let places = asked
            .iter()
            .map(Item::addr)
            .chain(windows.keys().copied())
            .collect();
        Planner {
            index,
            targets: None,
            places,
            arena: arena.addr..arena.addr.saturating_add(arena.len),
            listed,
            windows,
            returns,
            refused: Vec::new(),
            moves_sites: false,
            padding_lent: BTreeSet::new(),
        }
    }

    fn place(&mut self, item: Item) {
        if let Err(reason) = self.try_place(&item) {
            self.refused.push(Refused {
                asked: item.into_asked(),
                reason,
            });
        }
    }

    fn try_place(&mut self, item: &Item) -> Result<(), RefusedReason> {
        let addr = item.addr();
        let around = self.known_around(item)?;
        if self.targets.is_none() {
            self.targets = Some(self.index.targets_around(&self.places));
        }
        let at = around
            .starting(addr)
            .ok_or(RefusedReason::NotAnInstruction)?;
        // Already part of a window: its instructions move, so only the tail is added.
        if let Some(window) = self.holding(addr) {
            let window = self
                .windows
                .get_mut(&window)
                .expect("holding() names a window");
            if window.code_end < around.ins[at].end() {
                return Err(RefusedReason::NotAnInstruction);
            }
            window.add(item.clone(), true);
            return Ok(());
        }
        let mut reason = RefusedReason::NoRoom;
        let mut apart = Vec::new();
        let mut united = Vec::new();
        for candidate in self.candidates(&around, at, item) {
            match self.overlapping(&candidate.range).is_empty() {
                true => apart.push(candidate),
                false => united.push(candidate),
            }
        }
        for candidate in apart {
            match self.check(&around, &candidate) {
                Ok(()) => {
                    self.take(candidate, item, Vec::new());
                    return Ok(());
                }
                Err(why) => reason = more_telling(reason, why),
            }
        }
        for candidate in united {
            let (union, parts) = self.unite(candidate);
            match self.check(&around, &union) {
                Ok(()) => {
                    self.take(union, item, parts);
                    return Ok(());
                }
                Err(why) => reason = more_telling(reason, why),
            }
        }
        Err(reason)
    }

    /// The instruction starts around an item, once it is clear that the item can have a window.
    fn known_around(&self, item: &Item) -> Result<Arc<Decoded>, RefusedReason> {
        let addr = item.addr();
        let insn = self
            .index
            .instruction(addr)
            .ok_or(RefusedReason::NotAnInstruction)?;
        match item {
            Item::Site(site, _) => {
                if let Some(reason) = refuse_outright(site) {
                    return Err(reason);
                }
                if site_of(&insn, site.proven) != Some(*site) {
                    return Err(RefusedReason::NotAnInstruction);
                }
            }
            Item::Hook(hook) => {
                // Conditional branches too: "after" one would run on one of its two ways only.
                let falls_through = site_of(&insn, true).is_some() || !leaves(&insn);
                if hook.place == Place::After && (!falls_through || ends_block(&insn)) {
                    return Err(RefusedReason::NoFallthrough);
                }
            }
        }
        self.index
            .around(addr)
            .ok_or(RefusedReason::NotAnInstruction)
    }

    /// Start of the window that has `addr` among the instructions it moves.
    fn holding(&self, addr: u64) -> Option<u64> {
        let (start, window) = self.windows.range(..=addr).next_back()?;
        (addr < window.code_end).then_some(*start)
    }

    fn overlapping(&self, range: &Range<u64>) -> Vec<u64> {
        // Windows are disjoint, so only the last one that starts before can reach in.
        let before = self
            .windows
            .range(..range.start)
            .next_back()
            .filter(|(_, w)| w.range.end > range.start);
        before
            .into_iter()
            .chain(self.windows.range(range.clone()))
            .map(|(start, _)| *start)
            .collect()
    }

    /// Windows that hold instruction `at`, best first.
    fn candidates(&self, around: &Decoded, at: usize, item: &Item) -> Vec<Candidate> {
        let mut found: Vec<(bool, u64, usize, Candidate)> = Vec::new();
        for first in (0..=at).rev() {
            if first < at
                && self
                    .insn(around.ins[first].addr)
                    .is_none_or(|insn| ends_block(&insn))
            {
                break;
            }
            let start = around.ins[first].addr;
            let Some((last, end)) = self.extend(around, start, at) else {
                continue;
            };
            let code_end = around.ins[last].end();
            let rank = match item {
                // A window that ends with the site leaves the resume address the program's own.
                Item::Site(..) => last > at || end > code_end,
                Item::Hook(_) => false,
            };
            found.push((
                rank,
                end - start,
                at - first,
                Candidate {
                    range: start..end,
                    code_end,
                },
            ));
            if around.ins[at].end() - start >= JUMP_LEN {
                break;
            }
        }
        found.sort_by_key(|(rank, len, before, _)| (*rank, *len, *before));
        found.into_iter().map(|(.., candidate)| candidate).collect()
    }

    /// The last instruction and the end of the shortest window from `start` that holds `at`.
    fn extend(&self, around: &Decoded, start: u64, at: usize) -> Option<(usize, u64)> {
        self.extend_by(around, start, at, JUMP_LEN)
    }

    /// The same with room for `len` bytes.
    fn extend_by(&self, around: &Decoded, start: u64, at: usize, len: u64) -> Option<(usize, u64)> {
        let mut last = at;
        loop {
            let end = around.ins[last].end();
            if end - start >= len {
                return Some((last, end));
            }
            let insn = self.insn(around.ins[last].addr)?;
            if is_terminator(&insn) {
                let want = start + len;
                return (self.padding_end(around, last)? >= want).then_some((last, want));
            }
            if ends_block(&insn) || last + 1 == around.ins.len() || around.ins[last + 1].addr != end
            {
                return None;
            }
            last += 1;
        }
    }

    /// Where the padding behind a terminator ends, if that is what stands there: no-ops up to
    /// something known to be branched to, or up to the next function. A branch to the no-ops
    /// themselves is looked for by the check of the window.
    fn padding_end(&self, around: &Decoded, terminator: usize) -> Option<u64> {
        let mut at = around.ins[terminator].end();
        let unit = self.index.unit_of(around.ins[terminator].addr)?;
        let unit_end = self.index.units[unit].end;
        // Compilers align to 64 at most; a longer run is not looked through.
        let limit = at + 128;
        let targets = self.targets.as_ref()?;
        while at < limit {
            if at == unit_end {
                let gap_end = self.index.gap_of(at).map_or(at, |gap| gap.end);
                return self.only_padding(at..gap_end).then_some(gap_end);
            }
            let known = targets.contains(at) || around.branches.binary_search(&at).is_ok();
            if known && at > around.ins[terminator].end() {
                return Some(at);
            }
            let insn = self.insn(at)?;
            if !is_padding(&insn) {
                return None;
            }
            at = insn.next_ip();
        }
        None
    }

    fn only_padding(&self, range: Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.insn(at) {
                Some(insn) if is_padding(&insn) => at = insn.next_ip(),
                // The linker fills the last page of a segment with zeros.
                _ => {
                    return self
                        .index
                        .view(at)
                        .is_some_and(|v| v.range().end == range.end)
                        && self
                            .index
                            .bytes(at..range.end)
                            .is_some_and(|b| b.iter().all(|b| *b == 0));
                }
            }
        }
        at == range.end
    }

    fn insn(&self, addr: u64) -> Option<Instruction> {
        self.index.instruction(addr)
    }

    /// The candidate grown over every window it meets.
    fn unite(&self, candidate: Candidate) -> (Candidate, Vec<u64>) {
        let mut union = candidate;
        loop {
            let parts = self.overlapping(&union.range);
            let mut grown = union.clone();
            for part in &parts {
                let window = &self.windows[part];
                grown.range.start = grown.range.start.min(window.range.start);
                grown.range.end = grown.range.end.max(window.range.end);
                grown.code_end = grown.code_end.max(window.code_end);
            }
            if grown.range == union.range {
                return (grown, parts);
            }
            union = grown;
        }
    }

    /// Every rule a window has to meet.
    fn check(&self, around: &Decoded, window: &Candidate) -> Result<(), RefusedReason> {
        let range = &window.range;
        if self
            .index
            .module
            .forbidden
            .iter()
            .any(|f| f.start < range.end && range.start < f.end)
        {
            return Err(RefusedReason::Forbidden);
        }
        // The jump, the way back and every operand are checked against all of the arena, as
        // where in it the trampoline will lie is not known yet.
        if !reaches(&self.arena, range.start) || !reaches(&self.arena, range.end) {
            return Err(RefusedReason::OutOfReach);
        }
        let first = around
            .starting(range.start)
            .ok_or(RefusedReason::NotAnInstruction)?;
        let mut at = range.start;
        for ins in &around.ins[first..] {
            if at >= window.code_end {
                break;
            }
            if ins.addr != at {
                return Err(RefusedReason::NotAnInstruction);
            }
            at = ins.end();
            let insn = self.insn(ins.addr).ok_or(RefusedReason::NotAnInstruction)?;
            let movable_site = |site: &Site| self.moves_sites && site.kind != SiteKind::Xbegin;
            if let Some(site) = site_of(&insn, true).filter(|site| !movable_site(site)) {
                if !self.listed.contains(&site.addr) {
                    return Err(RefusedReason::UnlistedSite);
                }
                if site.fallback.is_some_and(|to| !reaches(&self.arena, to)) {
                    return Err(RefusedReason::OutOfReach);
                }
            } else {
                let movable = Movable::new(self.index.rest(ins.addr), ins.addr)?;
                if movable.reach().is_some_and(|to| !reaches(&self.arena, to)) {
                    return Err(RefusedReason::OutOfReach);
                }
            }
            if ends_block(&insn) && at < window.code_end {
                return Err(RefusedReason::NoRoom);
            }
        }
        if at != window.code_end {
            return Err(RefusedReason::NoRoom);
        }
        if self
            .returns
            .range(range.start + 1..range.end)
            .next()
            .is_some()
        {
            return Err(RefusedReason::Entered);
        }
        let targets = self.targets.as_ref().expect("built before the first check");
        if entered(&self.index, targets, around, range) {
            return Err(RefusedReason::Entered);
        }
        Ok(())
    }

    fn take(&mut self, candidate: Candidate, item: &Item, parts: Vec<u64>) {
        let mut window = Window::over(candidate.range, candidate.code_end);
        for part in parts {
            let old = self.windows.remove(&part).expect("parts are windows");
            window.replaces.extend(old.replaces);
            window.items.extend(old.items);
        }
        window.add(item.clone(), true);
        self.windows.insert(window.range.start, window);
    }

    fn emit(&mut self) -> Plan {
        let mut plan = Plan {
            refused: std::mem::take(&mut self.refused),
            ..Plan::default()
        };
        let (mut changed, bounced): (Vec<Window>, Vec<Window>) = std::mem::take(&mut self.windows)
            .into_values()
            .filter(|w| w.changed)
            .partition(|w| w.bounce.is_none());
        // Behind what lends to them.
        changed.extend(bounced);
        let mut slots: Vec<Entries> = Vec::new();
        for (item, _) in changed.iter().flat_map(|w| &w.items) {
            if let Item::Site(_, entries) = item
                && !slots.contains(entries)
            {
                slots.push(*entries);
            }
        }
        for entries in &slots {
            plan.arena.extend(entries.syscall.to_le_bytes());
            plan.arena.extend(entries.entropy.to_le_bytes());
        }
        let room = usize::try_from(self.arena.end - self.arena.start).unwrap_or(usize::MAX);
        if plan.arena.len() > room {
            plan.arena.clear();
        }
        let mut short: Vec<Write> = Vec::new();
        for window in changed {
            let lender = window.bounce.and_then(|bounce| bounce.lender);
            let lends = |start: u64| plan.writes.binary_search_by_key(&start, |w| w.addr).is_ok();
            let laid = if lender.is_none_or(lends) {
                self.lay_down(&window, &slots, &plan)
            } else {
                Err(RefusedReason::NoRoom)
            };
            match laid {
                Ok(mut laid) => {
                    let long = std::mem::take(&mut laid.long);
                    let bounce = window.bounce;
                    laid.commit(&self.arena, window, &mut plan);
                    if let Some(bounce) = bounce {
                        // Kept apart: the lenders' writes are looked up by address meanwhile.
                        short.extend(plan.writes.pop());
                        short.extend(bounce.write(long, &mut plan.writes));
                    }
                }
                Err(reason) => {
                    let new = window.items.into_iter().filter(|(_, new)| *new);
                    plan.refused.extend(new.map(|(item, _)| Refused {
                        asked: item.into_asked(),
                        reason,
                    }));
                }
            }
        }
        plan.refused.sort_by_key(|r| r.asked.addr());
        plan.writes.extend(short);
        plan.writes.sort_by_key(|write| write.addr);
        plan
    }

    fn lay_down(
        &self,
        window: &Window,
        slots: &[Entries],
        plan: &Plan,
    ) -> Result<Laid, RefusedReason> {
        let used = self.arena.start + plan.arena.len() as u64;
        let start = used.next_multiple_of(ALIGN);
        let mut best: Option<(usize, Laid)> = None;
        for shift in SHIFTS {
            let laid = self.lay_down_at(window, slots, start + shift)?;
            if laid.trampoline.end > self.arena.end {
                break;
            }
            // More than zero where an immediate or a payload of the users' own spells one.
            let spelled = self.entries_spelled(window, &laid);
            if best.as_ref().is_none_or(|(least, _)| spelled < *least) {
                best = Some((spelled, laid));
            }
            if spelled == 0 {
                break;
            }
        }
        best.map(|(_, laid)| laid).ok_or(RefusedReason::ArenaFull)
    }

    /// How often jump and trampoline hold the bytes of a system-call instruction, at any offset.
    fn entries_spelled(&self, window: &Window, laid: &Laid) -> usize {
        // At either end of the address space there is no neighbour.
        let byte = |at: Option<u64>| {
            at.and_then(|at| self.index.bytes(at..at.checked_add(1)?))
                .unwrap_or(&[])
        };
        let before = byte(window.range.start.checked_sub(1));
        let in_place: Vec<u8> = [before, &laid.jump, byte(Some(window.range.end))].concat();
        let spells = |pair: &&[u8]| matches!(pair, [0x0F, 0x05 | 0x34] | [0xCD, 0x80]);
        in_place.windows(2).filter(spells).count() + laid.bytes.windows(2).filter(spells).count()
    }

    fn lay_down_at(
        &self,
        window: &Window,
        slots: &[Entries],
        start: u64,
    ) -> Result<Laid, RefusedReason> {
        let mut out = Emitter::new(start);
        let mut laid = Laid::default();
        let mut at = window.range.start;
        let mut open = true;
        while at < window.code_end {
            let insn = self.insn(at).ok_or(RefusedReason::NotAnInstruction)?;
            let next = insn.next_ip();
            let own = |place: Place| {
                window
                    .items
                    .iter()
                    .enumerate()
                    .filter_map(move |(i, (item, _))| match item {
                        Item::Hook(hook) if hook.addr == at && hook.place == place => {
                            Some((i, hook))
                        }
                        _ => None,
                    })
            };
            laid.map.push((out.here(), at));
            for (i, hook) in own(Place::Before) {
                let payload = out.here();
                out.raw(&hook.code);
                laid.payloads.push((i, payload..out.here()));
            }
            let site = window
                .items
                .iter()
                .enumerate()
                .find_map(|(i, (item, _))| match item {
                    Item::Site(site, entries) if site.addr == at => Some((i, site, entries)),
                    _ => None,
                });
            let hooked_after = own(Place::After).next().is_some();
            if let Some((i, site, entries)) = site {
                let in_module = next == window.code_end && !hooked_after;
                let slot = slots
                    .iter()
                    .position(|s| s == entries)
                    .expect("collected before") as u64;
                let slot = self.arena.start + slot * SLOTS_LEN;
                let resume = tail(&mut out, site, slot, in_module.then_some(next))?;
                laid.resumes.push((i, resume));
                open = !in_module && site.kind != SiteKind::Xbegin;
            } else {
                Movable::new(self.index.rest(at), at)?.emit(&mut out)?;
                open = !ends_block(&insn);
            }
            if hooked_after {
                laid.map.push((out.here(), next));
            }
            for (i, hook) in own(Place::After) {
                let payload = out.here();
                out.raw(&hook.code);
                laid.payloads.push((i, payload..out.here()));
            }
            at = next;
        }
        if open {
            laid.map.push((out.here(), window.code_end));
            out.jmp(window.code_end)?;
        }
        laid.trampoline = start..out.here();
        (laid.bytes, laid.absolutes) = out.into_parts();
        let from = window.bounce.map_or(window.range.start, |bounce| bounce.at);
        let disp = rel32(from + JUMP_LEN, start).ok_or(OutOfReach)?;
        laid.jump = vec![0xE9];
        laid.jump.extend(disp.to_le_bytes());
        if let Some(bounce) = window.bounce {
            let behind = window.range.start + bounce::SHORT_LEN;
            let short = i8::try_from(bounce.at.wrapping_sub(behind).cast_signed())
                .map_err(|_| OutOfReach)?;
            laid.long = std::mem::replace(&mut laid.jump, [0xEB, short.to_le_bytes()[0]].into());
        }
        laid.jump.resize(
            usize::try_from(window.range.end - window.range.start).map_err(|_| OutOfReach)?,
            0xCC,
        );
        Ok(laid)
    }
}

impl Window {
    /// A new one, that nothing is in yet.
    fn over(range: Range<u64>, code_end: u64) -> Self {
        Self {
            range,
            code_end,
            items: Vec::new(),
            replaces: Vec::new(),
            changed: true,
            bounce: None,
            lent: 0,
        }
    }

    fn add(&mut self, item: Item, new: bool) {
        if self.items.iter().any(|(known, _)| *known == item) {
            return;
        }
        self.items.push((item, new));
        // Stable, so hooks at one address keep the order they came in.
        self.items.sort_by_key(|(item, _)| item.addr());
        self.changed = true;
    }
}

/// A window's code, before it is known to fit.
#[derive(Debug, Default)]
struct Laid {
    trampoline: Range<u64>,
    bytes: Vec<u8>,
    absolutes: Vec<u64>,
    jump: Vec<u8>,
    /// The long jump of a window that has room for a short one.
    long: Vec<u8>,
    map: Vec<(u64, u64)>,
    /// Index of a site among the window's items, and its resume address.
    resumes: Vec<(usize, u64)>,
    /// Index of a hook among the window's items, and where its payload lies.
    payloads: Vec<(usize, Range<u64>)>,
}

impl Laid {
    fn commit(self, arena: &Range<u64>, window: Window, plan: &mut Plan) {
        let offset =
            usize::try_from(self.trampoline.start - arena.start).expect("inside the arena");
        plan.arena.resize(offset, 0xCC);
        plan.arena.extend(self.bytes);
        plan.map.extend(self.map);
        plan.absolutes.extend(self.absolutes);
        plan.writes.push(Write {
            addr: window.range.start,
            bytes: self.jump,
        });
        plan.superseded.extend(window.replaces.iter().cloned());
        for (i, (item, _)) in window.items.into_iter().enumerate() {
            match item {
                Item::Site(site, entries) => plan.patched.push(Patched {
                    site,
                    window: window.range.clone(),
                    trampoline: self.trampoline.clone(),
                    resume: self
                        .resumes
                        .iter()
                        .find(|(at, _)| *at == i)
                        .map_or(site.end(), |(_, resume)| *resume),
                    entries,
                }),
                Item::Hook(hook) => plan.hooked.push(Hooked {
                    hook,
                    window: window.range.clone(),
                    trampoline: self.trampoline.clone(),
                    payload: self
                        .payloads
                        .iter()
                        .find(|(at, _)| *at == i)
                        .map_or(0..0, |(_, p)| p.clone()),
                }),
            }
        }
    }
}

/// Leaves the trampoline for the agent. `resume` is the address to come back to, `None` for
/// the byte behind the tail; the address used is returned.
fn tail(out: &mut Emitter, site: &Site, slot: u64, resume: Option<u64>) -> Result<u64, OutOfReach> {
    /// `lea rcx, [rip+disp32]`.
    const LEA_RCX: &[u8] = &[0x48, 0x8D, 0x0D];
    const LEA_LEN: u64 = 7;
    /// `jmp qword ptr [rip+disp32]`: a 64-bit target without a register.
    const JMP_SLOT: &[u8] = &[0xFF, 0x25];
    const JMP_SLOT_LEN: u64 = 6;
    let slot = match site.kind {
        SiteKind::Syscall => slot,
        SiteKind::Xbegin => {
            // What a transaction that aborts at once does: eax = 0 ("unspecified, do not
            // retry"), upper half cleared as for any 32-bit write, flags kept.
            let fallback = site.fallback.ok_or(OutOfReach)?;
            out.raw(&[0xB8, 0, 0, 0, 0]);
            out.jmp(fallback)?;
            return Ok(fallback);
        }
        _ => {
            // mov gs:[0], rcx
            out.raw(&[0x65, 0x48, 0x89, 0x0C, 0x25, 0, 0, 0, 0]);
            // mov dword ptr gs:[8], descriptor
            out.raw(&[0x65, 0xC7, 0x04, 0x25, 8, 0, 0, 0]);
            out.raw(&site.descriptor().to_le_bytes());
            slot + 8
        }
    };
    let behind = out.here() + LEA_LEN + JMP_SLOT_LEN;
    let resume = resume.unwrap_or(behind);
    out.relative(LEA_RCX, resume)?;
    out.relative(JMP_SLOT, slot)?;
    debug_assert_eq!(out.here(), behind);
    Ok(resume)
}

/// The windows in memory. A list that spans several plans may name a window and the one that
/// replaced it; such windows overlap and count as one.
fn windows_of(index: &Index<'_>, existing: Existing<'_>) -> BTreeMap<u64, Window> {
    let sites = existing
        .patched
        .iter()
        .map(|p| (&p.window, Item::Site(p.site, p.entries)));
    let hooks = existing
        .hooked
        .iter()
        .map(|h| (&h.window, Item::Hook(h.hook.clone())));
    // A window that this module cannot have had is none of its.
    let fits = |range: &Range<u64>| {
        index
            .bytes(range.clone())
            .is_some_and(|bytes| bytes.len() as u64 >= JUMP_LEN)
    };
    let mut named: Vec<(&Range<u64>, Item)> = sites
        .chain(hooks)
        .filter(|(range, _)| fits(range))
        .collect();
    named.sort_by_key(|(range, item)| (range.start, item.addr()));
    let mut windows: Vec<Window> = Vec::new();
    for (range, item) in named {
        let joins = windows
            .last()
            .is_some_and(|last| range.start < last.range.end);
        if !joins {
            windows.push(Window {
                changed: false,
                ..Window::over(range.clone(), range.start)
            });
        }
        let Some(window) = windows.last_mut() else {
            continue;
        };
        window.range.end = window.range.end.max(range.end);
        if !window.replaces.contains(range) {
            window.replaces.push(range.clone());
        }
        if !window.items.iter().any(|(known, _)| *known == item) {
            window.items.push((item, false));
        }
    }
    for window in &mut windows {
        window.items.sort_by_key(|(item, _)| item.addr());
        // Padding behind a terminator is part of the window, not of what moves.
        while window.code_end < window.range.end {
            let Some(insn) = index.instruction(window.code_end) else {
                break;
            };
            window.code_end = insn.next_ip();
            if is_terminator(&insn) {
                break;
            }
        }
    }
    windows.into_iter().map(|w| (w.range.start, w)).collect()
}

/// Sites that no window is looked for.
fn refuse_outright(site: &Site) -> Option<RefusedReason> {
    match site.kind {
        SiteKind::Int80 | SiteKind::Sysenter => Some(RefusedReason::LegacyEntry),
        _ if !site.proven => Some(RefusedReason::Unproven),
        _ => None,
    }
}

impl From<OutOfReach> for RefusedReason {
    fn from(OutOfReach: OutOfReach) -> Self {
        RefusedReason::OutOfReach
    }
}

/// Whether control may go elsewhere than to the next instruction.
fn leaves(insn: &Instruction) -> bool {
    insn.flow_control() != iced_x86::FlowControl::Next
}

/// Of the reasons of several windows, the one that says most about the site.
fn more_telling(one: RefusedReason, other: RefusedReason) -> RefusedReason {
    if one == RefusedReason::NoRoom {
        other
    } else {
        one
    }
}
