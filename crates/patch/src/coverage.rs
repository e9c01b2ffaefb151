//! What was found, patched and refused, and how much code nobody vouches for.
//!
//! Not covered: payloads at ordinary instructions ([`crate::Survey`] tells of each by itself).

use std::collections::BTreeMap;

use crate::index::{Index, is_padding};
use crate::scan::scan;
use crate::{Asked, Module, Plan, RefusedReason, SiteKind};

/// Numbers for one kind of site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub found: usize,
    pub unproven: usize,
    pub patched: usize,
    pub refused: BTreeMap<RefusedReason, usize>,
}

/// The summary that a report prints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    pub kinds: BTreeMap<SiteKind, Tally>,
    /// Opcode bytes of sites inside other instructions or in data: not patched, and reachable
    /// only by a jump that the program's own code does not contain.
    pub lookalikes: usize,
    pub code_bytes: u64,
    /// Executable bytes in no function, padding left out.
    pub uncovered_bytes: u64,
}

impl Coverage {
    /// Sums up a plan for (some of) the sites of `module`.
    pub fn of(module: &Module<'_>, plan: &Plan) -> Self {
        let index = Index::new(module);
        let scan = scan(&index);
        let mut sum = Coverage {
            lookalikes: scan.lookalikes,
            ..Coverage::default()
        };
        for site in &scan.sites {
            let tally = sum.kinds.entry(site.kind).or_default();
            tally.found += 1;
            tally.unproven += usize::from(!site.proven);
        }
        for patched in &plan.patched {
            sum.kinds.entry(patched.site.kind).or_default().patched += 1;
        }
        for refused in &plan.refused {
            if let Asked::Site(site) = &refused.asked {
                *sum.kinds
                    .entry(site.kind)
                    .or_default()
                    .refused
                    .entry(refused.reason)
                    .or_default() += 1;
            }
        }
        for view in &index.code {
            let range = view.range();
            sum.code_bytes += range.end - range.start;
            let mut at = range.start;
            while let Some(gap) = (at < range.end).then(|| index.gap_of(at)).flatten() {
                sum.uncovered_bytes += unpadded(&index, gap.start.max(at)..gap.end);
                at = gap.end;
                while let Some(unit) = index.unit_of(at) {
                    at = index.units[unit].end;
                }
            }
        }
        sum
    }

    pub fn patched(&self) -> usize {
        self.kinds.values().map(|t| t.patched).sum()
    }

    pub fn found(&self) -> usize {
        self.kinds.values().map(|t| t.found).sum()
    }

    pub fn refused(&self) -> usize {
        self.kinds.values().flat_map(|t| t.refused.values()).sum()
    }
}

/// Length of a gap behind its leading padding, trailing zeros left out.
fn unpadded(index: &Index<'_>, gap: std::ops::Range<u64>) -> u64 {
    let mut at = gap.start;
    while at < gap.end {
        match index.instruction(at) {
            Some(insn) if is_padding(&insn) => at = insn.next_ip(),
            _ => break,
        }
    }
    let bytes = index.bytes(at.min(gap.end)..gap.end).unwrap_or(&[]);
    bytes
        .iter()
        .rposition(|b| *b != 0)
        .map_or(0, |last| last as u64 + 1)
}
