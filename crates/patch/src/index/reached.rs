//! Functions that nothing names: found by following control flow into code that no unwind
//! entry or symbol covers (stripped musl and assembly), so that their sites are proven
//! before they trap.
//!
//! Roots are where the known code leads: targets of its calls and jumps, entry points and
//! relocated pointers first, then addresses that code forms or data hold. From a root, both ways of every
//! branch are followed; calls are taken to return. What comes out counts only as a whole and
//! only if all of it makes sense: each byte decodes, no instruction starts inside another, and
//! nothing is there that user code cannot execute. A table of constants in the code, the
//! one thing such an address may mean that is no function, fails that within a few bytes.
//!
//! Last come what looks like starts of functions, padding before them, that lie before something which may be a site.
//!
//! Not covered: blocks reached through jump tables only, functions without such a start that are reached through pointers
//! built at run time. Their sites stay unproven.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::Index;
use crate::CodeView;
use crate::insn::{candidates, is_terminator, is_user_code, word};
use crate::parts::in_parts;

/// What control flow from known code reaches outside of known functions.
#[derive(Debug)]
pub(crate) struct Reached {
    bytes: States,
}

impl Reached {
    pub(crate) fn new(index: &Index<'_>) -> Self {
        let mut search = Search::new(index);
        // Popped from the end: what calls and jumps lead to goes before addresses formed.
        let mut strong: Vec<u64> = index.leaders.clone();
        let mut weak: Vec<u64> = index
            .pointers()
            .filter(|to| search.bytes.get(*to) == State::Free)
            .collect();
        for view in &index.code {
            for (led, formed) in in_parts(view.bytes.len(), |part| search.leads_of(view, part)) {
                strong.extend(led);
                weak.extend(formed);
            }
        }
        while let Some(root) = strong.pop().or_else(|| weak.pop()) {
            for insn in search.follow(root) {
                search.leads_to(&insn, &mut strong, &mut weak);
            }
        }
        // What is called by way of tables alone, and has no unwind entry (Chromium): only where there may be a site.
        for view in &index.code {
            let parts = in_parts(view.bytes.len(), |part| candidates(view, part));
            for at in parts.into_iter().flatten() {
                if search.bytes.get(at) == State::Free
                    && let Some(root) = padded_start(view, at)
                {
                    search.follow(root);
                }
            }
        }
        Reached {
            bytes: search.bytes,
        }
    }

    /// Whether an instruction starts here.
    pub(crate) fn starts(&self, addr: u64) -> bool {
        self.bytes.get(addr) == State::Start
    }

    /// Whether it is a byte of an instruction.
    pub(crate) fn holds(&self, addr: u64) -> bool {
        matches!(self.bytes.get(addr), State::Start | State::Inside)
    }

    /// The gapless run of instructions around one of them, `limit` bytes each way at most. It
    /// starts and ends on boundaries.
    pub(crate) fn run(&self, addr: u64, limit: u64) -> Option<Range<u64>> {
        let ours = |at: &u64| matches!(self.bytes.get(*at), State::Start | State::Inside);
        if !ours(&addr) {
            return None;
        }
        let back = (addr.saturating_sub(limit)..=addr).rev().take_while(ours);
        let start = back.filter(|at| self.starts(*at)).last()?;
        let ahead = (addr..addr + limit).take_while(ours);
        let mut end = ahead.last()? + 1;
        while self.bytes.get(end) == State::Inside {
            end += 1;
        }
        Some(start..end)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In no function, not reached.
    Free,
    /// In a function, or in no code at all.
    Known,
    /// First byte of an instruction reached.
    Start,
    /// A further byte of one.
    Inside,
}

/// One state for each byte of code.
#[derive(Debug)]
struct States(Vec<(Range<u64>, Vec<State>)>);

impl States {
    fn get(&self, addr: u64) -> State {
        let region = self.0.iter().find(|(range, _)| range.contains(&addr));
        let byte = region
            .and_then(|(range, states)| states.get(usize::try_from(addr - range.start).ok()?));
        byte.copied().unwrap_or(State::Known)
    }

    /// From `addr` to the end of its region.
    fn rest(&mut self, addr: u64) -> Option<&mut [State]> {
        let (range, states) = self.0.iter_mut().find(|(r, _)| r.contains(&addr))?;
        states.get_mut(usize::try_from(addr - range.start).ok()?..)
    }

    /// The range lies in one region.
    fn set(&mut self, range: Range<u64>, state: State) {
        let Some((region, states)) = self.0.iter_mut().find(|(r, _)| r.contains(&range.start))
        else {
            return;
        };
        let from = usize::try_from(range.start - region.start).unwrap_or(usize::MAX);
        let to = usize::try_from(range.end - region.start).unwrap_or(usize::MAX);
        if let Some(states) = states.get_mut(from..to) {
            states.fill(state);
        }
    }
}

struct Search<'a> {
    index: &'a Index<'a>,
    bytes: States,
}

impl<'a> Search<'a> {
    fn new(index: &'a Index<'a>) -> Self {
        let fresh = index
            .code
            .iter()
            .map(|v| (v.range(), vec![State::Free; v.bytes.len()]))
            .collect();
        let mut search = Search {
            index,
            bytes: States(fresh),
        };
        for unit in &index.units {
            search.bytes.set(unit.clone(), State::Known);
        }
        search
    }

    /// Where the functions that start in one part of a view lead.
    fn leads_of(&self, view: &CodeView<'_>, part: Range<usize>) -> (Vec<u64>, Vec<u64>) {
        let (mut strong, mut weak) = (Vec::new(), Vec::new());
        let before = |at: usize| {
            self.index
                .units
                .partition_point(|unit| unit.start < view.addr + at as u64)
        };
        for range in &self.index.units[before(part.start)..before(part.end)] {
            let Some(bytes) = self.index.bytes(range.clone()) else {
                continue;
            };
            if !self.may_lead_out(range.start, bytes) {
                continue;
            }
            for insn in &mut Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE) {
                self.leads_to(&insn, &mut strong, &mut weak);
            }
        }
        (strong, weak)
    }

    /// Whether [`Self::leads_to`] may find something in a function: looks for the bytes of such
    /// instructions at every position, which costs a fraction of decoding.
    fn may_lead_out(&self, start: u64, bytes: &[u8]) -> bool {
        let end = start + bytes.len() as u64;
        // Code that 32-bit immediates reach may be named in too many ways.
        if self.index.code.iter().any(|view| view.addr < 1 << 32) {
            return true;
        }
        let out = |to: u64| !(start..end).contains(&to) && self.bytes.get(to) == State::Free;
        let far = |at: usize| {
            let disp = bytes.get(at..at + 4)?.try_into().ok()?;
            let next = start + at as u64 + 4;
            Some(next.wrapping_add_signed(i64::from(i32::from_le_bytes(disp))))
        };
        let near = |at: usize| {
            let disp = i8::from_le_bytes([*bytes.get(at)?]);
            Some((start + at as u64 + 1).wrapping_add_signed(i64::from(disp)))
        };
        bytes.iter().enumerate().any(|(at, &byte)| {
            let next = bytes.get(at + 1).copied();
            let to = match byte {
                0xE8 | 0xE9 => far(at + 1),
                0x0F if matches!(next, Some(0x80..=0x8F)) => far(at + 2),
                0xC7 if next == Some(0xF8) => far(at + 2),
                0x8D if next.is_some_and(|modrm| modrm & 0xC7 == 0x05) => far(at + 2),
                0xB8..=0xBF => bytes.get(at + 1..at + 9).map(word),
                0x70..=0x7F | 0xE0..=0xE3 | 0xEB => near(at + 1),
                _ => None,
            };
            to.is_some_and(out)
        })
    }

    /// Where an instruction may send control, or an address of code that it forms.
    fn leads_to(&self, insn: &Instruction, strong: &mut Vec<u64>, weak: &mut Vec<u64>) {
        let free = |addr: &u64| self.bytes.get(*addr) == State::Free;
        if insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64 {
            strong.extend(Some(insn.near_branch_target()).filter(free));
        } else if insn.code() == Code::Lea_r64_m && insn.is_ip_rel_memory_operand() {
            weak.extend(Some(insn.ip_rel_memory_address()).filter(free));
        } else if matches!(
            insn.code(),
            Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32
        ) {
            weak.extend(Some(insn.immediate(1)).filter(free));
        }
    }

    /// All instructions that control reaches from `root` without leaving the unknown code;
    /// none if they do not make sense together, or nothing is new.
    fn follow(&mut self, root: u64) -> Vec<Instruction> {
        let mut body = Vec::new();
        if self.collect(root, &mut body).is_none() {
            for insn in body.drain(..) {
                self.bytes.set(insn.ip()..insn.next_ip(), State::Free);
            }
        }
        body
    }

    fn collect(&mut self, root: u64, body: &mut Vec<Instruction>) -> Option<()> {
        let mut work = vec![root];
        while let Some(at) = work.pop() {
            let code = self.index.rest(at);
            let Some(states) = self.bytes.rest(at) else {
                continue;
            };
            let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
            let mut here = 0;
            while let Some(state @ (State::Free | State::Inside)) = states.get(here).copied() {
                // A branch may skip the prefix of an instruction (glibc's conditional `lock`).
                if state == State::Inside {
                    let at = decoder.ip();
                    let prefix = self.bytes.get(at - 1) == State::Start
                        && matches!(self.index.rest(at - 1).first(), Some(0xF0 | 0xF2 | 0xF3));
                    if prefix {
                        break;
                    }
                    return None;
                }
                let insn = decoder.decode();
                let breaks = ends_a_check(&insn, code.get(here + insn.len()..)?);
                let alone = states.get_mut(here..here + insn.len())?;
                if insn.code() == Code::INVALID
                    || alone.iter().any(|state| *state != State::Free)
                    || !(breaks || is_user_code(&insn))
                {
                    return None;
                }
                alone.fill(State::Inside);
                alone[0] = State::Start;
                here += insn.len();
                body.push(insn);
                if matches!(
                    insn.flow_control(),
                    FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                ) {
                    work.push(insn.near_branch_target());
                }
                if breaks || is_terminator(&insn) {
                    break;
                }
            }
        }
        Some(())
    }
}

/// `int3`, as Clang ends a check that has failed (`int3; ud2`), or padding behind a call that does not return.
fn ends_a_check(insn: &Instruction, behind: &[u8]) -> bool {
    insn.code() == Code::Int3
        && (insn.next_ip().is_multiple_of(16)
            || behind.starts_with(&[0x0F, 0x0B])
            || behind.starts_with(&[0xCC]))
}

/// How far before an instruction its function may begin.
const FUNCTION_MAX: usize = 64 << 10;

/// The last place before `at` that looks like the start of a function as linkers and compilers lay them out: behind padding of
/// int3, aligned, a frame pointer or `endbr64` first.
fn padded_start(view: &CodeView<'_>, at: u64) -> Option<u64> {
    const STARTS: [&[u8]; 2] = [&[0x55, 0x48, 0x89, 0xE5], &[0xF3, 0x0F, 0x1E, 0xFA]];
    let to = usize::try_from(at - view.addr).ok()?;
    let from = to.saturating_sub(FUNCTION_MAX).max(1);
    let aligned = (from..=to)
        .rev()
        .filter(|here| (view.addr + *here as u64).is_multiple_of(16));
    let is_start = |here: &usize| {
        let code = &view.bytes[*here..];
        view.bytes[*here - 1] == 0xCC && STARTS.iter().any(|start| code.starts_with(start))
    };
    aligned
        .into_iter()
        .find(is_start)
        .map(|here| view.addr + here as u64)
}
