//! What a module's bytes say: where functions lie, where instructions start, and which
//! addresses something may branch to.
//!
//! Two questions are kept apart. *Boundaries* come from decoding a function from its start,
//! and only for functions that hold something of interest. *Targets* must be complete over
//! the whole module (a cold part in another function jumps back into the middle of the hot
//! one), so they come from a scan of every byte position for whatever looks like a 32-bit
//! branch, an address taken or a jump table: a superset of the truth, cheap enough to build
//! for all code, and false hits only cost a window. 8-bit branches are too dense for that;
//! they reach 128 bytes and are looked up around each window, with boundaries where these
//! are known.
//!
//! Not covered: indirect targets that leave no trace in code, data or relocations.

mod reached;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use crate::insn::{INSN_BYTES_MAX, ends_block, site_of, word};
use crate::parts::in_parts;
use crate::{CodeView, Module};
use reached::Reached;

/// Start and length of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ins {
    pub(crate) addr: u64,
    pub(crate) len: u8,
}

impl Ins {
    pub(crate) fn end(&self) -> u64 {
        self.addr + u64::from(self.len)
    }
}

/// A run of instructions whose starts are known.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) ins: Vec<Ins>,
    /// All bytes decoded and the last instruction ended where the function does. Anything
    /// else means data or a wrong bound, and the starts are not to be relied on.
    pub(crate) clean: bool,
    /// Where the function's own branches lead inside it, sorted.
    pub(crate) branches: Vec<u64>,
    /// What follows an end of a block and its padding, sorted: nothing falls into it, so if no
    /// branch is seen to lead there, one that leaves no trace does (tables of distances from a
    /// label that is not the table, as computed gotos have them).
    pub(crate) landings: Vec<u64>,
}

impl Decoded {
    /// Index of the instruction that holds `addr`.
    pub(crate) fn holding(&self, addr: u64) -> Option<usize> {
        let after = self.ins.partition_point(|i| i.addr <= addr);
        let at = after.checked_sub(1)?;
        (addr < self.ins[at].end()).then_some(at)
    }

    pub(crate) fn starting(&self, addr: u64) -> Option<usize> {
        self.ins.binary_search_by_key(&addr, |i| i.addr).ok()
    }
}

#[derive(Debug)]
pub(crate) struct Index<'a> {
    pub(crate) module: &'a Module<'a>,
    /// Sorted by address.
    pub(crate) code: Vec<CodeView<'a>>,
    /// Units of decoding: from one function start to the next or to the end of the function,
    /// disjoint and sorted. A function with labels inside that unwind entries or symbols
    /// start at is several units.
    pub(crate) units: Vec<Range<u64>>,
    /// Module::leaders, sorted.
    pub(crate) leaders: Vec<u64>,
    decoded: Mutex<HashMap<usize, Arc<Decoded>>>,
    /// Built when first needed: it decodes all code.
    reached: OnceLock<Reached>,
    /// Around what was asked about first.
    targets: OnceLock<Arc<Targets>>,
}

impl<'a> Index<'a> {
    pub(crate) fn new(module: &'a Module<'a>) -> Self {
        let mut code: Vec<CodeView<'a>> = module
            .code
            .iter()
            .copied()
            .filter(|v| !v.bytes.is_empty() && is_user(v))
            .collect();
        code.sort_by_key(|v| v.addr);
        let mut leaders = module.leaders.clone();
        // Go's scheduler pushes goexit + 1 as where a goroutine's first function returns to, and
        // leaves no trace of that address: the function begins with a no-op of one byte and a call.
        leaders.extend(module.functions.iter().filter_map(|function| {
            let view = code.iter().find(|v| v.range().contains(&function.start))?;
            let at = usize::try_from(function.start - view.addr).ok()?;
            view.bytes[at..]
                .starts_with(&[0x90, 0xE8])
                .then_some(function.start + 1)
        }));
        leaders.sort_unstable();
        leaders.dedup();
        let units = units(&code, &module.functions);
        Index {
            module,
            code,
            units,
            leaders,
            decoded: Mutex::default(),
            reached: OnceLock::new(),
            targets: OnceLock::new(),
        }
    }

    pub(crate) fn view(&self, addr: u64) -> Option<&CodeView<'a>> {
        let after = self.code.partition_point(|v| v.addr <= addr);
        let view = &self.code[after.checked_sub(1)?];
        view.range().contains(&addr).then_some(view)
    }

    /// The bytes of a range that lies in one region.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Option<&'a [u8]> {
        let view = self.view(range.start)?;
        let from = usize::try_from(range.start - view.addr).ok()?;
        let to = usize::try_from(range.end.checked_sub(view.addr)?).ok()?;
        view.bytes.get(from..to)
    }

    /// Bytes from `addr` to the end of its region.
    pub(crate) fn rest(&self, addr: u64) -> &'a [u8] {
        self.view(addr).map_or(&[], |v| {
            let from = usize::try_from(addr - v.addr).unwrap_or(usize::MAX);
            v.bytes.get(from..).unwrap_or(&[])
        })
    }

    pub(crate) fn unit_of(&self, addr: u64) -> Option<usize> {
        let after = self.units.partition_point(|u| u.start <= addr);
        let at = after.checked_sub(1)?;
        self.units[at].contains(&addr).then_some(at)
    }

    /// The stretch around `addr` that no function covers.
    pub(crate) fn gap_of(&self, addr: u64) -> Option<Range<u64>> {
        let view = self.view(addr)?.range();
        let after = self.units.partition_point(|u| u.start <= addr);
        let start = after
            .checked_sub(1)
            .map_or(view.start, |at| self.units[at].end);
        let end = self.units.get(after).map_or(view.end, |u| u.start);
        Some(start.max(view.start)..end.min(view.end))
    }

    pub(crate) fn decoded(&self, unit: usize) -> Arc<Decoded> {
        let known = || self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().get(&unit) {
            return Arc::clone(known);
        }
        let range = self.units[unit].clone();
        let mut fresh = decode(self.bytes(range.clone()).unwrap_or(&[]), range.start);
        if fresh.clean {
            self.run_on(&mut fresh, range.end);
        }
        let fresh = Arc::new(fresh);
        known().insert(unit, Arc::clone(&fresh));
        fresh
    }

    /// Follows a function that runs on behind its stated end (glibc's `clone3` closes its
    /// unwind entry just before the system call) until control leaves or the next one starts.
    fn run_on(&self, decoded: &mut Decoded, end: u64) {
        let falls_through = |insn: Instruction| {
            matches!(
                insn.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            )
        };
        let last = decoded
            .ins
            .last()
            .and_then(|ins| self.instruction(ins.addr));
        if !last.is_some_and(falls_through)
            || self.view(end).is_none()
            || self.unit_of(end).is_some()
        {
            return;
        }
        let Some(gap) = self.gap_of(end) else { return };
        let run = decode_to(self.bytes(gap).unwrap_or(&[]), end);
        for ins in run.ins {
            decoded.ins.push(ins);
            if !self
                .instruction(ins.addr)
                .is_some_and(|insn| site_of(&insn, true).is_some() || falls_through(insn))
            {
                break;
            }
        }
    }

    /// The unit whose instructions, run on behind its end or not, hold `addr`.
    pub(crate) fn unit_holding(&self, addr: u64) -> Option<usize> {
        if let Some(unit) = self.unit_of(addr) {
            return Some(unit);
        }
        let before = self
            .units
            .partition_point(|u| u.start <= addr)
            .checked_sub(1)?;
        self.view(self.units[before].start)
            .filter(|v| v.range().contains(&addr))?;
        self.decoded(before).holding(addr).map(|_| before)
    }

    /// The instruction at `addr`, whatever `addr` is.
    pub(crate) fn instruction(&self, addr: u64) -> Option<Instruction> {
        let rest = self.rest(addr);
        let bytes = &rest[..rest.len().min(INSN_BYTES_MAX)];
        let insn = Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE).decode();
        (insn.code() != Code::INVALID).then_some(insn)
    }

    /// The instruction around `addr`, if the function that holds it decodes without a doubt.
    pub(crate) fn certain_at(&self, addr: u64) -> Option<Instruction> {
        let decoded = self.decoded(self.unit_holding(addr)?);
        let at = decoded.holding(addr).filter(|_| decoded.clean)?;
        self.instruction(decoded.ins[at].addr)
    }

    /// Every aligned word of the data, for those that are addresses of code.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.module.data.iter().flat_map(|view| {
            let skew = usize::try_from(view.addr.wrapping_neg() % 8).unwrap_or(0);
            view.bytes
                .get(skew..)
                .unwrap_or(&[])
                .chunks_exact(8)
                .map(word)
        })
    }

    /// As [`Targets::around`], which costs a pass over all code: what was worked out first serves whoever asks for less.
    pub(crate) fn targets_around(&self, places: &[u64]) -> Arc<Targets> {
        if let Some(known) = self.targets.get().filter(|known| known.cover(places)) {
            return Arc::clone(known);
        }
        let fresh = Arc::new(Targets::around(self, places));
        // Who came first stays.
        let _ = self.targets.set(Arc::clone(&fresh));
        fresh
    }

    pub(crate) fn reached_by_now(&self) -> Option<&Reached> {
        self.reached.get()
    }

    pub(crate) fn reached(&self) -> &Reached {
        self.reached.get_or_init(|| Reached::new(self))
    }

    /// Known instruction starts around `addr`, itself one by the caller's word (a trap, or a
    /// clean decode). From a cleanly decoded function where there is one, else from what control
    /// flow reaches. Elsewhere by convergence: of any 15 consecutive bytes one starts an instruction, so where decodes
    /// from all 15 meet, the program's own instruction stream has a boundary as well, as long
    /// as the bytes between are code and not data.
    pub(crate) fn around(&self, addr: u64) -> Option<Arc<Decoded>> {
        let unit = self.unit_holding(addr);
        if let Some(unit) = unit {
            let decoded = self.decoded(unit);
            if decoded.clean {
                return decoded.starting(addr).is_some().then_some(decoded);
            }
        }
        // As far as an 8-bit branch comes from, 128 bytes, and some 15 instructions more for
        // the decodes to meet.
        const LOOK_BACK: u64 = 192;
        const LOOK_AHEAD: u64 = 64;
        if unit.is_none()
            && self.reached().starts(addr)
            && let Some(run) = self.reached().run(addr, LOOK_BACK)
        {
            return Some(Arc::new(decode_to(self.bytes(run.clone())?, run.start)));
        }
        let bounds = match unit {
            Some(unit) => self.units[unit].clone(),
            None => self.gap_of(addr)?,
        };
        let from = addr.saturating_sub(LOOK_BACK).max(bounds.start);
        let to = addr.saturating_add(LOOK_AHEAD).min(bounds.end);
        let first = self.converged(from, addr);
        let mut ins = decode_to(self.bytes(first..addr)?, first).ins;
        let mut ahead = decode_to(self.bytes(addr..to)?, addr).ins;
        // Data may stand behind what ends the block.
        let ends = |ins: &Ins| {
            self.instruction(ins.addr)
                .is_none_or(|insn| ends_block(&insn))
        };
        if let Some(last) = ahead.iter().position(ends) {
            ahead.truncate(last + 1);
        }
        if ahead.is_empty() {
            return None;
        }
        ins.append(&mut ahead);
        Some(Arc::new(Decoded {
            ins,
            ..Decoded::default()
        }))
    }

    /// The lowest address in `from..=addr` at which all decodes that reach `addr` agree.
    fn converged(&self, from: u64, addr: u64) -> u64 {
        let mut common: Option<Vec<u64>> = None;
        let last = (from + INSN_BYTES_MAX as u64 - 1).min(addr);
        for start in from..=last {
            let Some(bytes) = self.bytes(start..addr) else {
                continue;
            };
            let run = decode_to(bytes, start);
            if run.ins.last().map_or(start, Ins::end) != addr {
                continue;
            }
            let starts: Vec<u64> = run
                .ins
                .iter()
                .map(|i| i.addr)
                .filter(|a| *a >= last)
                .collect();
            common = Some(match common {
                None => starts,
                Some(known) => known
                    .into_iter()
                    .filter(|a| starts.binary_search(a).is_ok())
                    .collect(),
            });
        }
        common.and_then(|c| c.first().copied()).unwrap_or(addr)
    }
}

/// Whether a region lies where user space can be. Addresses beyond are a caller's mistake;
/// leaving them out keeps every sum of an address and a length from overflowing.
fn is_user(view: &CodeView<'_>) -> bool {
    const USER_END: u64 = 1 << 56; // 57-bit addresses, lower half (Intel SDM vol. 1, 3.3.7.1)
    view.addr < USER_END && view.bytes.len() as u64 <= USER_END - view.addr
}

/// Disjoint units from possibly overlapping functions. Bounds outside the code are dropped.
fn units(code: &[CodeView<'_>], functions: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = functions
        .iter()
        .filter(|f| f.start < f.end)
        .filter(|f| {
            let after = code.partition_point(|v| v.addr <= f.start);
            after > 0
                && f.start < code[after - 1].range().end
                && f.end <= code[after - 1].range().end
        })
        .cloned()
        .collect();
    sorted.sort_by_key(|f| (f.start, f.end));
    let mut units: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    // Ends of enclosing functions that resume after a nested one are not restarted: what
    // follows a nested function belongs to its unit up to the outermost end.
    let mut cluster_end = 0;
    for f in sorted {
        match units.last_mut() {
            Some(last) if f.start == last.start => last.end = last.end.max(f.end),
            Some(last) if f.start < cluster_end => {
                last.end = f.start;
                units.push(f.start..cluster_end.max(f.end));
            }
            _ => units.push(f.clone()),
        }
        cluster_end = cluster_end.max(f.end);
    }
    units
}

/// Decodes a whole function and judges whether what came out is its code.
///
/// Two signs of data among code, or of a wrong start, beyond bytes that do not decode: a
/// branch of the function into the middle of one of its instructions (one that skips a
/// `lock` prefix aside), and string I/O, which traps in user mode and is what the letters
/// l, m, n, o decode to. Over 3.9 million instructions of Debian's libc, ld.so, libcrypto,
/// libstdc++, libm, python3, perl, gdb and busybox the first has one hit, a string inside
/// a function of libcrypto.
fn decode(bytes: &[u8], addr: u64) -> Decoded {
    let end = addr + bytes.len() as u64;
    let mut targets = Vec::new();
    let mut strange = false;
    let mut landings = Vec::new();
    let mut ended = false;
    let mut run = walk(bytes, addr, |insn| {
        if ended && !is_padding(insn) {
            landings.push(insn.ip());
            ended = false;
        }
        ended |= ends_block(insn);
        let branch = insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64;
        if branch && (addr..end).contains(&insn.near_branch_target()) {
            targets.push(insn.near_branch_target());
        }
        strange |= matches!(
            insn.mnemonic(),
            Mnemonic::Insb
                | Mnemonic::Insd
                | Mnemonic::Insw
                | Mnemonic::Outsb
                | Mnemonic::Outsd
                | Mnemonic::Outsw
        );
    });
    let after_prefix = |target: u64| {
        let before = usize::try_from(target - addr)
            .ok()
            .and_then(|at| at.checked_sub(1));
        before.is_some_and(|at| matches!(bytes[at], 0xF0 | 0xF2 | 0xF3))
            && run.starting(target - 1).is_some()
    };
    let aligned = targets
        .iter()
        .all(|&target| run.starting(target).is_some() || after_prefix(target));
    let whole = run.ins.last().map_or(addr, Ins::end) == end;
    run.clean = whole && aligned && !strange;
    targets.sort_unstable();
    run.branches = targets;
    run.landings = landings;
    run
}

/// Decodes until the bytes end or make no sense.
fn decode_to(bytes: &[u8], addr: u64) -> Decoded {
    walk(bytes, addr, |_| ())
}

fn walk(bytes: &[u8], addr: u64, mut see: impl FnMut(&Instruction)) -> Decoded {
    // 4 bytes is the average length of an x86-64 instruction in compiled code.
    let mut ins = Vec::with_capacity(bytes.len() / 4 + 1);
    let mut decoder = Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE);
    let mut insn = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut insn);
        if insn.code() == Code::INVALID {
            break;
        }
        see(&insn);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an instruction has at most 15 bytes"
        )]
        ins.push(Ins {
            addr: insn.ip(),
            len: insn.len() as u8,
        });
    }
    Decoded {
        ins,
        ..Decoded::default()
    }
}

/// Instructions that compilers and linkers put between functions and blocks.
pub(crate) fn is_padding(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

/// Every address in code that something may branch to, 8-bit branches aside, and bytes of code that
/// code reads: no window may begin before such an address and end behind it.
#[derive(Debug)]
pub(crate) struct Targets {
    regions: Vec<Marks>,
    /// What was asked about, ascending.
    places: Vec<u64>,
}

/// One bit for each byte of a region.
#[derive(Debug)]
struct Marks {
    range: Range<u64>,
    bits: Vec<u64>,
    /// One bit for each word of `bits` that somebody is going to ask about. Of the others nothing
    /// is known.
    wanted: Vec<u64>,
}

impl Marks {
    fn wants(&self, word: usize) -> bool {
        self.wanted[word / 64] & 1 << (word % 64) != 0
    }
}

impl Targets {
    /// All of them.
    pub(crate) fn new(index: &Index<'_>) -> Self {
        Self::collect(index, None, |marks| marks.wanted.fill(u64::MAX))
    }

    /// Those around some addresses. Everything else counts as a target.
    ///
    /// The marks of a large module do not fit a cache, and most modules are asked about in
    /// some places only.
    fn around(index: &Index<'_>, places: &[u64]) -> Self {
        // A window and the padding behind it lie within 128 bytes of what was asked for.
        const REACH: u64 = 512;
        let mut sorted = places.to_vec();
        sorted.sort_unstable();
        Self::collect(index, Some((&sorted, REACH)), |marks| {
            let near = |at: &&u64| marks.range.contains(*at);
            for &at in places.iter().filter(near) {
                let from = at.saturating_sub(REACH).max(marks.range.start);
                let to = at.saturating_add(REACH).min(marks.range.end);
                let word = |addr: u64| {
                    usize::try_from((addr - marks.range.start) / 64).unwrap_or(usize::MAX)
                };
                for word in word(from)..=word(to - 1) {
                    marks.wanted[word / 64] |= 1 << (word % 64);
                }
            }
        })
    }

    /// `places`: those that somebody asks about, ascending, and how far around each.
    fn collect(
        index: &Index<'_>,
        places: Option<(&[u64], u64)>,
        want: impl Fn(&mut Marks),
    ) -> Self {
        let marks = |view: &CodeView<'_>| {
            let words = view.bytes.len().div_ceil(64);
            let mut marks = Marks {
                range: view.range(),
                bits: vec![0; words],
                wanted: vec![0; words.div_ceil(64)],
            };
            want(&mut marks);
            marks
        };
        let mut targets = Targets {
            regions: index.code.iter().map(marks).collect(),
            places: places.map_or_else(Vec::new, |(places, _)| places.to_vec()),
        };
        for &leader in &index.leaders {
            targets.mark(leader);
        }
        for function in &index.module.functions {
            targets.mark(function.start);
        }
        let mut formed = Vec::new();
        for view in &index.code {
            targets.scan(view, &mut formed);
        }
        targets.label_tables(index, &formed, places);
        let tables = formed.iter().map(|(_, to)| *to);
        targets.jump_tables(index, tables.filter(|to| to % 4 == 0).collect());
        targets.pointers(index);
        targets
    }

    fn cover(&self, places: &[u64]) -> bool {
        let asked = |place: &u64| self.places.binary_search(place).is_ok();
        places.iter().all(asked)
    }

    /// The region of an address, and how far in it is.
    fn region_of(&self, addr: u64) -> Option<(usize, usize)> {
        // Almost always one region, so a scan beats a search.
        self.regions.iter().enumerate().find_map(|(region, marks)| {
            let offset = addr.wrapping_sub(marks.range.start);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "offset is below the length of a slice"
            )]
            (offset < marks.range.end - marks.range.start).then_some((region, offset as usize))
        })
    }

    fn wants(&self, addr: u64) -> bool {
        self.region_of(addr)
            .is_some_and(|(region, offset)| self.regions[region].wants(offset / 64))
    }

    /// Whether it lies in code.
    fn mark(&mut self, addr: u64) -> bool {
        let Some((region, offset)) = self.region_of(addr) else {
            return false;
        };
        let marks = &mut self.regions[region];
        if marks.wants(offset / 64) {
            marks.bits[offset / 64] |= 1 << (offset % 64);
        }
        true
    }

    pub(crate) fn contains(&self, addr: u64) -> bool {
        self.regions.iter().any(|marks| {
            let offset =
                usize::try_from(addr.wrapping_sub(marks.range.start)).unwrap_or(usize::MAX);
            marks.range.contains(&addr)
                && (marks.bits[offset / 64] & 1 << (offset % 64) != 0 || !marks.wants(offset / 64))
        })
    }

    /// Marks what 32-bit displacements at any byte position lead to; collects the addresses
    /// `lea` forms, which may be jump tables, and where it stands.
    fn scan(&mut self, view: &CodeView<'_>, formed: &mut Vec<(u64, u64)>) {
        for (targets, here) in in_parts(view.bytes.len(), |part| self.led_to(view, part)) {
            for target in targets {
                self.mark(target);
            }
            formed.extend(here);
        }
    }

    /// What opcodes in one part of a view lead to, where somebody asks about it; what `lea` forms.
    fn led_to(&self, view: &CodeView<'_>, part: Range<usize>) -> (Vec<u64>, Vec<(u64, u64)>) {
        let bytes = view.bytes;
        let disp = |at: usize| -> Option<i32> {
            Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let relative = |at: usize| -> Option<u64> {
            let next = view.addr.wrapping_add(at as u64 + 4);
            Some(next.wrapping_add_signed(i64::from(disp(at)?)))
        };
        // Position-dependent code below 4 GiB forms addresses by 32-bit immediates.
        let low = view.range().end <= 1 << 32;
        let (mut targets, mut formed) = (Vec::new(), Vec::new());
        for at in part {
            let next = bytes.get(at + 1).copied();
            let target = match bytes[at] {
                0xE8 | 0xE9 => relative(at + 1),
                0x0F if matches!(next, Some(0x80..=0x8F)) => relative(at + 2),
                0xC7 if next == Some(0xF8) => relative(at + 2),
                0x8D if next.is_some_and(|modrm| modrm & 0xC7 == 0x05) => {
                    let target = relative(at + 2);
                    formed.extend(target.map(|to| (view.addr + at as u64, to)));
                    target
                }
                0xB8..=0xBF | 0x68 if low => absolute(disp(at + 1)),
                // `movabs`, the large code model.
                0xB8..=0xBF => bytes.get(at + 1..at + 9).map(word),
                0xC7 if low && matches!(next, Some(0xC0..=0xC7)) => absolute(disp(at + 2)),
                _ => None,
            };
            targets.extend(target.filter(|target| self.wants(*target)));
            // What code reads of code has to stay as well: compilers that keep their constants in the
            // immediates of earlier instructions (V8) load eight bytes from the middle of one.
            let reads = bytes[at] == 0x8B && next.is_some_and(|modrm| modrm & 0xC7 == 0x05);
            if let Some(read) = relative(at + 2).filter(|_| reads) {
                let kept = read..=read.saturating_add(8);
                targets.extend(kept.filter(|byte| self.wants(*byte)));
            }
        }
        (targets, formed)
    }

    /// Tables of 32-bit offsets relative to the table itself, as compilers emit for `switch`.
    /// A table runs until an entry leaves the code or the next table starts.
    fn jump_tables(&mut self, index: &Index<'_>, mut tables: Vec<u64>) {
        tables.sort_unstable();
        tables.dedup();
        let mut views: Vec<CodeView<'_>> = index.code.clone();
        views.extend(index.module.data.iter().filter(|v| is_user(v)));
        for view in views {
            let range = view.range();
            let from = tables.partition_point(|t| *t < range.start);
            let to = tables.partition_point(|t| *t < range.end);
            for at in from..to {
                let base = tables[at];
                let end = if at + 1 < to {
                    tables[at + 1]
                } else {
                    range.end
                };
                let offset = |addr: u64| usize::try_from(addr - view.addr).unwrap_or(usize::MAX);
                for entry in view.bytes[offset(base)..offset(end)].chunks_exact(4) {
                    let delta = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
                    if !self.mark(base.wrapping_add_signed(i64::from(delta))) {
                        break;
                    }
                }
            }
        }
    }

    /// Tables of 32-bit offsets relative to a label in the code, as programs with computed jumps
    /// have (`&&label - &&base`; printf of the GNU C library). The two `lea` stand near each other,
    /// and all labels are of one function: an entry farther away ends the table.
    fn label_tables(
        &mut self,
        index: &Index<'_>,
        formed: &[(u64, u64)],
        places: Option<(&[u64], u64)>,
    ) {
        // printf's are 30 bytes apart, its function is 9 KiB long.
        const NEAR: u64 = 512;
        const FUNCTION: u32 = 64 << 10;
        let in_code = |addr: u64| index.code.iter().any(|view| view.range().contains(&addr));
        let data: Vec<CodeView<'_>> = index
            .module
            .data
            .iter()
            .filter(|v| is_user(v))
            .copied()
            .collect();
        let starts: std::collections::HashSet<u64> =
            index.module.functions.iter().map(|f| f.start).collect();
        // Of a large module most labels lie far from all that somebody asks about, and a table of zeros is long.
        let asked = |base: u64| {
            places.is_none_or(|(places, reach)| {
                let near = u64::from(FUNCTION) + reach;
                let from = places.partition_point(|place| *place < base.saturating_sub(near));
                places
                    .get(from)
                    .is_some_and(|place| *place <= base.saturating_add(near))
            })
        };
        let mut done = std::collections::HashSet::new();
        for (i, &(at, base)) in formed.iter().enumerate() {
            if at.abs_diff(base) > FUNCTION.into()
                || !asked(base)
                || !in_code(base)
                || starts.contains(&base)
            {
                continue;
            }
            let before = formed[..i]
                .iter()
                .rev()
                .take_while(|(other, _)| at.abs_diff(*other) <= NEAR);
            let behind = formed[i + 1..]
                .iter()
                .take_while(|(other, _)| at.abs_diff(*other) <= NEAR);
            for &(_, table) in before.chain(behind) {
                let view = data.iter().find(|view| view.range().contains(&table));
                let Some(view) = view.filter(|_| table % 4 == 0 && done.insert((table, base)))
                else {
                    continue;
                };
                let offset = usize::try_from(table - view.addr).unwrap_or(usize::MAX);
                for entry in view.bytes[offset..].chunks_exact(4) {
                    let delta = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
                    if delta.unsigned_abs() > FUNCTION
                        || !self.mark(base.wrapping_add_signed(i64::from(delta)))
                    {
                        break;
                    }
                }
            }
        }
    }

    /// Tables of absolute addresses (position-dependent code, or relocated data).
    fn pointers(&mut self, index: &Index<'_>) {
        for pointer in index.pointers() {
            self.mark(pointer);
        }
    }
}

fn absolute(value: Option<i32>) -> Option<u64> {
    value.and_then(|v| u64::try_from(v).ok())
}

/// Whether something may branch to a byte of `window` other than its first. `around` is what
/// the window was chosen from.
pub(crate) fn entered(
    index: &Index<'_>,
    targets: &Targets,
    around: &Decoded,
    window: &Range<u64>,
) -> bool {
    (window.start + 1..window.end)
        .any(|addr| targets.contains(addr) || around.landings.binary_search(&addr).is_ok())
        || entered_short(index, around, window)
}

/// The 8-bit branches: `jmp`, `jcc`, `loop*` and `jrcxz`, all an opcode and a displacement.
/// Where instruction starts are not known, whatever looks like one counts.
fn entered_short(index: &Index<'_>, around: &Decoded, window: &Range<u64>) -> bool {
    short_branches(index, around, &(window.start + 1..window.end))
        .is_none_or(|mut targets| targets.next().is_some())
}

/// Where 8-bit branches lead within a range; nothing if there is no code there.
pub(crate) fn short_branches<'a>(
    index: &'a Index<'_>,
    around: &'a Decoded,
    range: &Range<u64>,
) -> Option<impl Iterator<Item = u64> + use<'a>> {
    let view = index.view(range.start)?;
    // Reach of 8 bits from the end of a two-byte instruction.
    let from = range.start.saturating_sub(130).max(view.addr);
    let to = range.end.saturating_add(126).min(view.range().end);
    let bytes = index.bytes(from..to)?;
    let range = range.clone();
    let found = bytes.windows(2).enumerate().filter_map(move |(at, pair)| {
        let opcode = from + at as u64;
        let target = (opcode + 2).wrapping_add_signed(i64::from(i8::from_le_bytes([pair[1]])));
        let leads = matches!(pair[0], 0x70..=0x7F | 0xE0..=0xE3 | 0xEB)
            && range.contains(&target)
            && !refuted(index, around, opcode, target);
        leads.then_some(target)
    });
    Some(found)
}

/// Whether known instruction starts say that no branch to `target` has its opcode here.
fn refuted(index: &Index<'_>, around: &Decoded, opcode: u64, target: u64) -> bool {
    // The opcode is the last byte but one of its instruction, if it is one.
    let is_branch = |ins: &Ins| {
        ins.end() == opcode + 2
            && index
                .instruction(ins.addr)
                .is_some_and(|insn| insn.near_branch_target() == target)
    };
    if let Some(at) = around.holding(opcode) {
        return !is_branch(&around.ins[at]);
    }
    if let Some(unit) = index.unit_holding(opcode) {
        let decoded = index.decoded(unit);
        return decoded.clean
            && decoded
                .holding(opcode)
                .is_none_or(|at| !is_branch(&decoded.ins[at]));
    }
    let reached = index.reached.get();
    let run = reached.and_then(|reached| reached.run(opcode, INSN_BYTES_MAX as u64));
    run.is_some_and(|run| {
        let decoded = decode_to(index.bytes(run.clone()).unwrap_or(&[]), run.start);
        decoded
            .holding(opcode)
            .is_some_and(|at| !is_branch(&decoded.ins[at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan must not depend on how many processors there are: opcodes across the border of two
    /// parts count once, in the same order.
    #[test]
    fn parts_see_what_the_whole_shows() {
        // Half of the bytes are the start of something that is looked for; Knuth's MMIX generator.
        const STARTS: [u8; 8] = [0xE8, 0xE9, 0x0F, 0x8D, 0xC7, 0xB8, 0x05, 0xF8];
        let mut state = 1_u64;
        let mut byte = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let [kind, value, ..] = state.to_be_bytes();
            if kind & 1 == 0 {
                STARTS[usize::from(value) % 8]
            } else {
                value
            }
        };
        let bytes: Vec<u8> = (0..600_000).map(|_| byte()).collect();
        let view = CodeView {
            addr: 0x7f00_0000_0000,
            bytes: &bytes,
        };
        let module = Module {
            code: vec![view],
            ..Module::default()
        };
        let targets = Targets::new(&Index::new(&module));
        let whole = targets.led_to(&view, 0..bytes.len());
        assert!(!whole.0.is_empty() && !whole.1.is_empty());
        for parts in [2, 3, 7, 1000] {
            let border = |n: usize| bytes.len() * n / parts;
            let (to, formed): (Vec<_>, Vec<_>) = (0..parts)
                .map(|n| targets.led_to(&view, border(n)..border(n + 1)))
                .unzip();
            assert_eq!((to.concat(), formed.concat()), whole, "{parts} parts");
        }
        assert!(whole.0.iter().all(|target| targets.contains(*target)));
    }
}
