//! Finding sites: opcode bytes first, then proof that they are an instruction.
//!
//! Decoding everything would cost 15 ns an instruction, 5 ms for a C library; searching
//! bytes costs a tenth and leaves some thousand candidates. Each is confirmed by decoding
//! its function from the start. Candidates in no function are confirmed by a linear sweep,
//! which proves nothing (data looks like code), and are marked so unless control flow from
//! known code reaches them.
//!
//! Not covered: instructions that overlap others (a jump into the middle of an instruction
//! whose tail is `0f 05`). The run-time filter sees those; see [`Scan::lookalikes`].

use iced_x86::{Code, Decoder, DecoderOptions, Instruction};

use crate::doubt::{self, reads_clock};
use crate::index::Index;
use crate::insn::{INSN_BYTES_MAX, candidates, site_of};
use crate::parts::in_parts;
use crate::{Module, Site, SiteKind};

/// All sites of a module, in address order.
pub fn find_sites(module: &Module<'_>) -> Vec<Site> {
    scan(&Index::new(module)).sites
}

/// The site at an address that trapped, which proves the boundary. `None` if no such
/// instruction stands there.
pub fn site_at(module: &Module<'_>, addr: u64, kind: SiteKind) -> Option<Site> {
    let insn = Index::new(module).instruction(addr)?;
    site_of(&insn, true).filter(|site| site.kind == kind)
}

#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) sites: Vec<Site>,
    /// Opcode bytes that lie inside other instructions or in data.
    pub(crate) lookalikes: usize,
}

pub(crate) fn scan(index: &Index<'_>) -> Scan {
    let mut found = Scan::default();
    let mut sweep = Sweep::default();
    let mut clocks = Vec::new();
    for view in &index.code {
        let parts = in_parts(view.bytes.len(), |part| candidates(view, part));
        for at in parts.into_iter().flatten() {
            let unit = index.unit_holding(at);
            if doubt::spells_clock(index.rest(at)) {
                clocks.extend(doubt::is_open(index, unit, at).then_some(at));
            }
            let site = match unit {
                Some(unit) => {
                    let decoded = index.decoded(unit);
                    decoded
                        .holding(at)
                        .and_then(|i| index.instruction(decoded.ins[i].addr))
                        .and_then(|insn| site_of(&insn, decoded.clean))
                }
                None => sweep
                    .insn_holding(index, at)
                    .and_then(|insn| site_of(&insn, false)),
            };
            match site {
                Some(site) if found.sites.last().is_none_or(|last| last.addr < site.addr) => {
                    found.sites.push(site)
                }
                // Two candidates in one instruction: `f3 0f c7 f8` and the `c7 f8` in it.
                Some(_) => {}
                None => found.lookalikes += 1,
            }
        }
    }
    for site in found.sites.iter_mut().filter(|site| !site.proven) {
        site.proven = index.unit_holding(site.addr).is_none() && index.reached().starts(site.addr);
    }
    doubt(index, &clocks, &mut found);
    found
}

/// Of the instructions that read a clock those stay unproven that may be ones, whatever the sweep says.
fn doubt(index: &Index<'_>, clocks: &[u64], found: &mut Scan) {
    let before = found.sites.len();
    found
        .sites
        .retain(|site| site.proven || !reads_clock(site.kind));
    found.lookalikes += before - found.sites.len();
    let known: Vec<u64> = found.sites.iter().map(|site| site.addr).collect();
    let open = doubt::clocks(index, clocks, &known);
    found.lookalikes = found.lookalikes.saturating_sub(open.len());
    found.sites.extend(open);
    found.sites.sort_by_key(|site| site.addr);
}

/// A linear sweep through code that no function covers, started again at every known leader.
#[derive(Debug, Default)]
struct Sweep {
    /// Decoding goes on here; valid up to `end`.
    next: u64,
    end: u64,
}

impl Sweep {
    /// Addresses are asked for in ascending order.
    fn insn_holding(&mut self, index: &Index<'_>, addr: u64) -> Option<Instruction> {
        let gap = index.gap_of(addr)?;
        let after = index.leaders.partition_point(|l| *l <= addr);
        let leader = after.checked_sub(1).map_or(0, |at| index.leaders[at]);
        if self.end != gap.end || self.next > addr || self.next < gap.start {
            self.next = gap.start;
            self.end = gap.end;
        }
        self.next = self.next.max(leader);
        let bytes = index.bytes(self.next..gap.end)?;
        let mut decoder = Decoder::with_ip(64, bytes, self.next, DecoderOptions::NONE);
        let mut insn = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut insn);
            if insn.code() == Code::INVALID {
                // Data: try again one byte on, as objdump does.
                let resume = insn.ip() + 1;
                if resume > addr {
                    self.next = resume.min(gap.end);
                    return None;
                }
                let skip = usize::try_from(resume - self.next).ok()?;
                decoder = Decoder::with_ip(64, bytes.get(skip..)?, resume, DecoderOptions::NONE);
                continue;
            }
            if insn.next_ip() > addr {
                // Start here again: the next candidate may lie in this very instruction.
                self.next = insn.ip();
                return Some(insn);
            }
        }
        debug_assert!(insn.len() <= INSN_BYTES_MAX);
        None
    }
}
