//! Bounces: windows of two to four bytes, for instructions that nothing larger can be put around.
//!
//! ```text
//!  guest  eb xx ──► e9 xx xx xx xx ──► trampoline of the guest ──► behind the guest
//!                   ▲ bytes that nothing executes: padding behind a terminator, or the second
//!                     five bytes of a window whose own jump takes the first five
//! ```
//!
//! A window that is made only to lend bytes moves its instructions like any other.
//!
//! Invariants
//!  1. What is lent belongs to one guest, and nothing is known to lead there.
//!  2. A guest and the window that lends to it are written both or not at all.
//!  3. Windows stay disjoint; one that lends, and one that bounces, is never widened.
//!
//! Not covered: instructions of one byte with nothing beside them; a protection's own sites
//! ([`super::Analysis`]), where a trap serves the few that have no room.

use std::ops::Range;

use super::{Candidate, Item, JUMP_LEN, Planner, Window};
use crate::index::{Decoded, entered};
use crate::insn::{ends_block, is_terminator};
use crate::relocate::reaches;
use crate::{Asked, Refused, RefusedReason, Write};

/// `jmp rel8`.
pub(super) const SHORT_LEN: u64 = 2;

/// Where a guest's long jump goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounce {
    /// Its address.
    pub(super) at: u64,
    /// Start of the window that lends the bytes; nothing if they are padding.
    pub(super) lender: Option<u64>,
}

impl Bounce {
    /// Puts the long jump into its lender's write; into padding, it is one of its own.
    pub(super) fn write(self, long: Vec<u8>, lenders: &mut [Write]) -> Option<Write> {
        let Some(lender) = self.lender else {
            return Some(Write {
                addr: self.at,
                bytes: long,
            });
        };
        let lender = lenders
            .binary_search_by_key(&lender, |write| write.addr)
            .expect("looked up before the guest was laid down");
        let write = &mut lenders[lender];
        let at = usize::try_from(self.at - write.addr).expect("inside the window");
        write.bytes[at..at + long.len()].copy_from_slice(&long);
        None
    }
}

impl Planner<'_> {
    /// Tries again, with less room, what was refused for want of it.
    pub(super) fn bounce_refused(&mut self) {
        for Refused { asked, reason } in std::mem::take(&mut self.refused) {
            let item = match &asked {
                Asked::Hook(hook) => Item::Hook(hook.clone()),
                Asked::Site(_) => {
                    self.refused.push(Refused { asked, reason });
                    continue;
                }
            };
            let roomless = matches!(reason, RefusedReason::NoRoom | RefusedReason::Entered);
            if !roomless || self.bounce(&item).is_none() {
                self.refused.push(Refused { asked, reason });
            }
        }
    }

    fn bounce(&mut self, item: &Item) -> Option<()> {
        let addr = item.addr();
        let around = self.known_around(item).ok()?;
        let at = around.starting(addr)?;
        // A window that was made to lend may hold it by now.
        if let Some(window) = self.holding(addr) {
            let window = self.windows.get_mut(&window)?;
            if window.code_end < around.ins[at].end() {
                return None;
            }
            window.add(item.clone(), true);
            return Some(());
        }
        for guest in self.guests(&around, at) {
            let Some(bounce) = self.lent(&around, &guest.range) else {
                continue;
            };
            let mut window = Window {
                bounce: Some(bounce),
                ..Window::over(guest.range, guest.code_end)
            };
            window.add(item.clone(), true);
            match bounce.lender {
                Some(lender) => self.windows.get_mut(&lender)?.lent += JUMP_LEN,
                None => {
                    self.padding_lent.insert(bounce.at);
                }
            }
            self.windows.insert(window.range.start, window);
            return Some(());
        }
        None
    }

    /// Windows of two to four bytes that hold instruction `at`, the smallest first.
    fn guests(&self, around: &Decoded, at: usize) -> Vec<Candidate> {
        let mut out = Vec::new();
        for first in (0..=at).rev() {
            let start = around.ins[first].addr;
            let ends = |i: usize| {
                self.insn(around.ins[i].addr)
                    .is_none_or(|insn| ends_block(&insn))
            };
            if around.ins[at].end() - start >= JUMP_LEN || first < at && ends(first) {
                break;
            }
            for last in at..around.ins.len() {
                let end = around.ins[last].end();
                if end - start >= JUMP_LEN {
                    break;
                }
                let candidate = Candidate {
                    range: start..end,
                    code_end: end,
                };
                if end - start >= SHORT_LEN
                    && self.overlapping(&candidate.range).is_empty()
                    && self.check(around, &candidate).is_ok()
                {
                    out.push(candidate);
                }
                let next = around.ins.get(last + 1);
                if ends(last) || next.is_none_or(|next| next.addr != end) {
                    break;
                }
            }
        }
        out.sort_by_key(|c| c.range.end - c.range.start);
        out
    }

    /// Five bytes for a guest's long jump; a window that lends them is there afterwards.
    fn lent(&mut self, around: &Decoded, guest: &Range<u64>) -> Option<Bounce> {
        let from = guest.start + SHORT_LEN;
        let reach = from.saturating_sub(128)..from.saturating_add(128);
        let near = reach.start.saturating_sub(256)..reach.end;
        let spare = self.windows.range(near).find_map(|(start, window)| {
            let at = start + JUMP_LEN + window.lent;
            let fits = window.bounce.is_none() && at + JUMP_LEN <= window.range.end;
            (fits && reach.contains(&at)).then_some(Bounce {
                at,
                lender: Some(*start),
            })
        });
        spare
            .or_else(|| self.padding(around, &reach))
            .or_else(|| self.lender(around, guest, &reach))
    }

    /// Padding that nothing falls into and nothing leads to.
    fn padding(&self, around: &Decoded, reach: &Range<u64>) -> Option<Bounce> {
        let first = around
            .ins
            .partition_point(|ins| ins.end() + 128 < reach.start);
        for (i, ins) in around.ins.iter().enumerate().skip(first) {
            if ins.addr >= reach.end {
                break;
            }
            let insn = self.insn(ins.addr)?;
            if !is_terminator(&insn) {
                continue;
            }
            let Some(end) = self.padding_end(around, i) else {
                continue;
            };
            let mut at = ins.end().max(reach.start);
            while at + JUMP_LEN <= end && reach.contains(&at) {
                let range = at..at + JUMP_LEN;
                // The byte before the first one stands for the first one being entered too.
                let taken = self
                    .padding_lent
                    .range(at.saturating_sub(JUMP_LEN - 1)..range.end)
                    .next()
                    .is_some()
                    || !self.overlapping(&range).is_empty()
                    || !reaches(&self.arena, range.end)
                    || entered(
                        &self.index,
                        self.targets.as_ref()?,
                        around,
                        &(at - 1..range.end),
                    );
                if !taken {
                    return Some(Bounce { at, lender: None });
                }
                at += 1;
            }
        }
        None
    }

    /// Makes a window of ten bytes or more, or widens one.
    fn lender(
        &mut self,
        around: &Decoded,
        guest: &Range<u64>,
        reach: &Range<u64>,
    ) -> Option<Bounce> {
        let first = around
            .ins
            .partition_point(|ins| ins.addr + JUMP_LEN < reach.start);
        let mut found = None;
        for (i, ins) in around.ins.iter().enumerate().skip(first) {
            if ins.addr + JUMP_LEN >= reach.end {
                break;
            }
            let Some((last, end)) = self.extend_by(around, ins.addr, i, 2 * JUMP_LEN) else {
                continue;
            };
            let candidate = Candidate {
                range: ins.addr..end,
                code_end: around.ins[last].end(),
            };
            let (union, parts) = self.unite(candidate);
            // A window may reach into the padding behind a terminator.
            let from = union.range.start.saturating_sub(JUMP_LEN - 1);
            let clear = (union.range.end <= guest.start || guest.end <= union.range.start)
                && self
                    .padding_lent
                    .range(from..union.range.end)
                    .next()
                    .is_none();
            let fixed = parts.iter().any(|part| {
                let window = &self.windows[part];
                window.bounce.is_some() || window.lent > 0
            });
            if !clear
                || fixed
                || !reach.contains(&(union.range.start + JUMP_LEN))
                || self.check(around, &union).is_err()
            {
                continue;
            }
            // One that moves nothing else's code is found first, or else the first one.
            let apart = parts.is_empty();
            if apart || found.is_none() {
                found = Some((union, parts));
            }
            if apart {
                break;
            }
        }
        let (union, parts) = found?;
        let start = union.range.start;
        let mut window = Window::over(union.range, union.code_end);
        for part in parts {
            let old = self.windows.remove(&part)?;
            window.replaces.extend(old.replaces);
            window.items.extend(old.items);
        }
        self.windows.insert(start, window);
        Some(Bounce {
            at: start + JUMP_LEN,
            lender: Some(start),
        })
    }
}
