//! Small pieces of code, assembled by hand, and what must become of them.
#![allow(
    clippy::single_range_in_vec_init,
    reason = "a module with one function has a list of one range"
)]

use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

use crate::{
    Analysis, ArenaSpec, CodeView, Coverage, Dest, Entries, Existing, Hook, Module, Open, Patched,
    Place, Plan, RefusedReason, Site, SiteKind, Survey, find_open, find_sites, plan, plan_hooks,
    replan, site_at,
};

mod entered;
mod hooks;
mod moved;
mod short;
mod sites;
mod windows;

const CODE: u64 = 0x7000_0000_0000;
const ARENA: ArenaSpec = ArenaSpec {
    addr: 0x7000_0100_0000,
    len: 0x1000,
};
const ENTRIES: Entries = Entries {
    syscall: 0x1111_2222_3333_4444,
    entropy: 0x5555_6666_7777_8888,
};

/// One function that is all of the code.
fn module(code: &[u8]) -> Module<'_> {
    let functions = vec![CODE..CODE + code.len() as u64];
    Module {
        code: vec![CodeView {
            addr: CODE,
            bytes: code,
        }],
        functions,
        ..Module::default()
    }
}

fn plan_all(module: &Module<'_>) -> Plan {
    plan(module, &find_sites(module), ARENA, &ENTRIES)
}

fn reasons(plan: &Plan) -> Vec<RefusedReason> {
    plan.refused.iter().map(|r| r.reason).collect()
}

fn disassemble(bytes: &[u8], addr: u64) -> Vec<String> {
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_rip_relative_addresses(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE)
        .iter()
        .map(|insn| {
            let mut text = String::new();
            formatter.format(&insn, &mut text);
            text
        })
        .collect()
}

/// What instruction 0 of `code` becomes: a trampoline with an empty payload in front, the
/// way back left out.
fn moved(code: &[u8]) -> Result<Vec<String>, RefusedReason> {
    let module = module(code);
    let hook = Hook {
        addr: CODE,
        place: Place::Before,
        code: Vec::new(),
    };
    let plan = plan_hooks(&module, &[hook], Existing::default(), ARENA);
    if let Some(refused) = plan.refused.first() {
        return Err(refused.reason);
    }
    let at = plan.hooked[0].trampoline.clone();
    let first_end = plan.map.get(1).map_or(at.end, |(second, _)| *second);
    let bytes = &plan.arena[offset(at.start)..offset(first_end)];
    Ok(disassemble(bytes, at.start))
}

fn offset(arena_addr: u64) -> usize {
    usize::try_from(arena_addr - ARENA.addr).expect("in the arena")
}

/// Code and enough no-ops behind it for any window.
fn padded(code: &[u8]) -> Vec<u8> {
    [code, &[0x90; 16], &[0xC3]].concat()
}

const PAYLOAD: [u8; 3] = [0x0F, 0x1F, 0x00]; // nop [rax]

fn hook(addr: u64, place: Place) -> Hook {
    Hook {
        addr,
        place,
        code: PAYLOAD.to_vec(),
    }
}

fn windows(plan: &Plan) -> Vec<std::ops::Range<u64>> {
    plan.patched.iter().map(|p| p.window.clone()).collect()
}
