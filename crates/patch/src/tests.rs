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

// --- Windows --------------------------------------------------------------------------

#[test]
fn a_site_that_ends_its_window_returns_to_the_module() {
    // mov eax, 39; syscall; ret
    let code = [0xB8, 39, 0, 0, 0, 0x0F, 0x05, 0xC3];
    let plan = plan_all(&module(&code));
    assert_eq!(plan.writes.len(), 1);
    assert_eq!(plan.writes[0].addr, CODE);
    // The trampoline stands behind the two slots; the jump starts 0x100_0000 below.
    assert_eq!(
        plan.writes[0].bytes,
        [0xE9, 0x0B, 0x00, 0x00, 0x01, 0xCC, 0xCC]
    );
    assert_eq!(plan.arena[..8], ENTRIES.syscall.to_le_bytes());
    assert_eq!(plan.arena[8..16], ENTRIES.entropy.to_le_bytes());
    let text = disassemble(&plan.arena[16..], ARENA.addr + 16);
    assert_eq!(
        text,
        [
            "mov eax,27h",
            "lea rcx,[700000000007h]",
            "jmp qword ptr [700001000000h]"
        ]
    );
    assert_eq!(plan.patched[0].resume, CODE + 7);
    assert_eq!(plan.patched[0].window, CODE..CODE + 7);
}

#[test]
fn a_site_that_is_branched_to_takes_what_follows() {
    // je +2; xor eax, eax; L: syscall; cmp rax, -4095; ret
    let code = [
        0x74, 2, 0x31, 0xC0, 0x0F, 0x05, 0x48, 0x3D, 0x01, 0xF0, 0xFF, 0xFF, 0xC3,
    ];
    let plan = plan_all(&module(&code));
    assert_eq!(plan.patched[0].window, CODE + 4..CODE + 12);
    let text = disassemble(&plan.arena[16..], ARENA.addr + 16);
    assert_eq!(text[0], format!("lea rcx,[{:X}h]", plan.patched[0].resume));
    assert_eq!(plan.patched[0].resume, ARENA.addr + 16 + 13);
    assert_eq!(
        text[2..],
        ["cmp rax,0FFFFFFFFFFFFF001h", "jmp 70000000000Ch"]
    );
    assert_eq!(plan.original(plan.patched[0].resume), Some(CODE + 6));
    assert_eq!(plan.original(ARENA.addr), None);
}

#[test]
fn the_endless_exit_loop_is_one_window() {
    // L: xor edi, edi; mov eax, edx; syscall; jmp L
    let code = [0x31, 0xFF, 0x89, 0xD0, 0x0F, 0x05, 0xEB, 0xF8];
    assert_eq!(plan_all(&module(&code)).patched[0].window, CODE..CODE + 6);
}

#[test]
fn two_sites_within_five_bytes_share_a_window() {
    // syscall; syscall; nop; ret
    let code = [0x0F, 0x05, 0x0F, 0x05, 0x90, 0xC3];
    let plan = plan_all(&module(&code));
    assert_eq!((plan.writes.len(), plan.patched.len()), (1, 2));
    let [one, two] = [&plan.patched[0], &plan.patched[1]];
    assert_eq!(
        (one.window.clone(), two.window.clone()),
        (CODE..CODE + 5, CODE..CODE + 5)
    );
    assert_eq!(plan.original(one.resume), Some(CODE + 2));
    assert_eq!(plan.original(two.resume), Some(CODE + 4));
    let text = disassemble(&plan.arena[16..], ARENA.addr + 16);
    assert_eq!(
        text.iter()
            .filter(|t| *t == "jmp qword ptr [700001000000h]")
            .count(),
        2
    );
}

#[test]
fn overlapping_windows_become_their_union() {
    // rdtsc; syscall; mov eax, 1; syscall; ret: the second's best window is free of the
    // first's; with a leader on the mov it has to share.
    let code = [
        0x0F, 0x31, 0x89, 0xC7, 0x0F, 0x05, 0x90, 0x0F, 0x05, 0xC3, 0xC3, 0xC3, 0xC3,
    ];
    let plan = plan_all(&module(&code));
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    assert_eq!(plan.patched.len(), 3);
    for pair in plan.writes.windows(2) {
        assert!(pair[0].addr + pair[0].bytes.len() as u64 <= pair[1].addr);
    }
}

#[test]
fn adjacent_windows_stay_apart() {
    let code = [
        0xB8, 1, 0, 0, 0, 0x0F, 0x05, 0xB8, 2, 0, 0, 0, 0x0F, 0x05, 0xC3,
    ];
    let plan = plan_all(&module(&code));
    assert_eq!(plan.writes.len(), 2);
    assert_eq!(plan.patched[0].resume, plan.patched[1].window.start);
}

#[test]
fn a_window_may_use_padding_but_not_the_next_function() {
    // syscall; ret | int3, int3 up to the next function
    let code = [0x0F, 0x05, 0xC3, 0xCC, 0xCC, 0xC3, 0x90, 0x90];
    let mut module = module(&code);
    module.functions = vec![CODE..CODE + 3, CODE + 5..CODE + 6];
    let plan = plan_all(&module);
    assert_eq!(plan.patched[0].window, CODE..CODE + 5);
    // The padding is not executed, so it is not moved.
    let text = disassemble(&plan.arena[16..], ARENA.addr + 16);
    assert_eq!(text[2..], ["ret"]);
    // One byte less and there is no room.
    let code = [0x0F, 0x05, 0xC3, 0xCC, 0xC3, 0x90, 0x90];
    let mut module = self::module(&code);
    module.functions = vec![CODE..CODE + 3, CODE + 4..CODE + 5];
    assert_eq!(reasons(&plan_all(&module)), [RefusedReason::NoRoom]);
    // Something other than padding between the functions: nobody knows who enters it.
    let code = [0x0F, 0x05, 0xC3, 0x90, 0x90, 0x50, 0xC3, 0x90];
    let mut module = self::module(&code);
    module.functions = vec![CODE..CODE + 3, CODE + 6..CODE + 7];
    assert_eq!(reasons(&plan_all(&module)), [RefusedReason::NoRoom]);
}

#[test]
fn code_behind_a_jump_is_not_taken_for_padding() {
    // syscall; jmp out; nop, nop, nop; ret: a table may lead to the no-ops.
    let code = [0x0F, 0x05, 0xEB, 0x10, 0x90, 0x90, 0x90, 0xC3];
    assert_eq!(reasons(&plan_all(&module(&code))), [RefusedReason::NoRoom]);
    // Something known to be branched to behind them makes them alignment.
    let code = [0x0F, 0x05, 0xEB, 1, 0x90, 0xC3];
    assert_eq!(plan_all(&module(&code)).patched[0].window, CODE..CODE + 5);
}

#[test]
fn a_call_ends_a_window() {
    // syscall; call +0: the call returns behind the window or nowhere.
    let code = [0x0F, 0x05, 0xFF, 0xD0, 0x90, 0xC3];
    assert_eq!(reasons(&plan_all(&module(&code))), [RefusedReason::NoRoom]);
    let code = [0x0F, 0x05, 0xE8, 0, 0, 0, 0, 0xC3];
    assert_eq!(plan_all(&module(&code)).patched[0].window, CODE..CODE + 7);
}

// --- What may be entered --------------------------------------------------------------

/// mov eax, edx; push; push; syscall; ret, at `at` of 0x400 bytes of pushes.
fn four_small(at: usize) -> Vec<u8> {
    let mut code = vec![0x50; 0x400];
    code[at - 1] = 0xC3;
    code[at..at + 7].copy_from_slice(&[0x89, 0xD0, 0x55, 0x53, 0x0F, 0x05, 0xC3]);
    code
}

fn windows(plan: &Plan) -> Vec<std::ops::Range<u64>> {
    plan.patched.iter().map(|p| p.window.clone()).collect()
}

#[test]
fn without_branches_the_window_is_free() {
    let code = four_small(0x200);
    assert_eq!(
        windows(&plan_all(&module(&code))),
        [CODE + 0x200..CODE + 0x206]
    );
}

#[test]
fn what_follows_padding_behind_a_jump_is_entered() {
    // jmp over; nop [rax] (three bytes); mov eax, 1; ret: a computed goto leads to the mov, by a
    // table of distances from somewhere else.
    let mut code = vec![0x90; 64];
    code[..2].copy_from_slice(&[0xeb, 0x20]);
    code[2..5].copy_from_slice(&[0x0f, 0x1f, 0x00]);
    code[5..11].copy_from_slice(&[0xb8, 1, 0, 0, 0, 0xc3]);
    code[34..36].copy_from_slice(&[0x31, 0xc0]);
    code[63] = 0xc3;
    let module = module(&code);
    let survey = Survey::new(&module, ARENA);
    let blocks = survey.blocks();
    let at = |addr: u64| blocks.iter().find(|b| b.range.start == CODE + addr);
    assert!(
        at(2).is_none(),
        "padding that nothing falls into is no block"
    );
    assert!(at(5).is_some_and(|block| block.entered));
    assert!(
        blocks
            .iter()
            .all(|b| !(b.range.start + 1..b.range.end).contains(&(CODE + 5)))
    );
}

#[test]
fn a_leader_inside_refuses() {
    let code = four_small(0x200);
    let module = Module {
        leaders: vec![CODE + 0x203],
        ..module(&code)
    };
    assert_eq!(reasons(&plan_all(&module)), [RefusedReason::Entered]);
    let first = Module {
        leaders: vec![CODE + 0x200],
        ..module
    };
    assert!(plan_all(&first).refused.is_empty());
}

#[test]
fn a_far_jump_from_another_function_refuses() {
    // A cold part jumps back into the hot one.
    let mut code = four_small(0x200);
    code[0x10] = 0xE9;
    code[0x11..0x15].copy_from_slice(&(0x203 - 0x15_i32).to_le_bytes());
    let mut module = module(&code);
    module.functions = vec![CODE..CODE + 0x100, CODE + 0x200..CODE + 0x207];
    assert_eq!(reasons(&plan_all(&module)), [RefusedReason::Entered]);
}

#[test]
fn a_short_jump_from_a_neighbour_refuses_if_it_is_one() {
    let mut code = four_small(0x200);
    // jmp 0x203 at 0x1f0.
    code[0x1F0] = 0xEB;
    code[0x1F1] = 0x11;
    let mut module = module(&code);
    module.functions = vec![CODE + 0x1E0..CODE + 0x1FF, CODE + 0x200..CODE + 0x207];
    assert_eq!(reasons(&plan_all(&module)), [RefusedReason::Entered]);
    // The same bytes inside an instruction: mov eax, imm32.
    let mut code = code.clone();
    code[0x1EF] = 0xB8;
    let module = Module {
        code: vec![CodeView {
            addr: CODE,
            bytes: &code,
        }],
        ..module
    };
    assert!(plan_all(&module).refused.is_empty());
}

#[test]
fn a_jump_table_refuses() {
    // lea rax, [rip+table] at 0x10; the table holds offsets from itself.
    let mut code = four_small(0x200);
    let table = CODE + 0x10_0000;
    code[0x10..0x13].copy_from_slice(&[0x48, 0x8D, 0x05]);
    code[0x13..0x17].copy_from_slice(&(0x10_0000 - 0x17_i32).to_le_bytes());
    let entries: Vec<u8> = [0x40_i32, 0x204, 0x60]
        .iter()
        .flat_map(|to| (to - 0x10_0000).to_le_bytes())
        .collect();
    let without = module(&code);
    assert!(plan_all(&without).refused.is_empty());
    let with = Module {
        data: vec![CodeView {
            addr: table,
            bytes: &entries,
        }],
        ..without
    };
    assert_eq!(reasons(&plan_all(&with)), [RefusedReason::Entered]);
}

#[test]
fn a_table_of_labels_refuses() {
    // lea rsi, [rip+table] at 0x10, lea rcx, [rip+label] at 0x17; the table holds offsets from
    // the label, as printf's does.
    let mut code = four_small(0x200);
    let (table, label) = (CODE + 0x10_0000, 0x41_i32);
    code[0x10..0x13].copy_from_slice(&[0x48, 0x8D, 0x35]);
    code[0x13..0x17].copy_from_slice(&(0x10_0000 - 0x17_i32).to_le_bytes());
    code[0x17..0x1A].copy_from_slice(&[0x48, 0x8D, 0x0D]);
    code[0x1A..0x1E].copy_from_slice(&(label - 0x1E).to_le_bytes());
    let entries: Vec<u8> = [0x40_i32, 0x204, 0x60]
        .iter()
        .flat_map(|to| (to - label).to_le_bytes())
        .collect();
    let without = module(&code);
    assert!(plan_all(&without).refused.is_empty());
    let with = Module {
        data: vec![CodeView {
            addr: table,
            bytes: &entries,
        }],
        ..without
    };
    assert_eq!(reasons(&plan_all(&with)), [RefusedReason::Entered]);
}

#[test]
fn an_address_taken_refuses() {
    let mut code = four_small(0x200);
    code[0x10..0x13].copy_from_slice(&[0x48, 0x8D, 0x05]);
    code[0x13..0x17].copy_from_slice(&(0x203 - 0x17_i32).to_le_bytes());
    assert_eq!(reasons(&plan_all(&module(&code))), [RefusedReason::Entered]);
}

// --- Instructions that move -----------------------------------------------------------

#[test]
fn operands_and_branches_keep_their_meaning() {
    // CODE is 0x7000_0000_0000; the first instruction of each is the one that moves.
    let cases: &[(&[u8], &[&str])] = &[
        // Plain bytes, odd prefixes kept.
        (&[0x48, 0x89, 0xD0], &["mov rax,rdx"]),
        (&[0xF3, 0x0F, 0x1E, 0xC8], &["rdsspd eax"]),
        (
            &[0x66, 0x66, 0x2E, 0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0],
            &["nop [rax+rax]"],
        ),
        // RIP-relative: load, store with an immediate behind the displacement, lea, vector.
        (
            &[0x48, 0x8B, 0x05, 0x10, 0, 0, 0],
            &["mov rax,[700000000017h]"],
        ),
        (
            &[0xC7, 0x05, 0x10, 0, 0, 0, 9, 0, 0, 0],
            &["mov dword ptr [70000000001Ah],9"],
        ),
        (
            &[0x83, 0x3D, 0xF0, 0xFF, 0xFF, 0xFF, 1],
            &["cmp dword ptr [6FFFFFFFFFF7h],1"],
        ),
        (
            &[0x48, 0x8D, 0x35, 0x10, 0, 0, 0],
            &["lea rsi,[700000000017h]"],
        ),
        (
            &[0xC5, 0xFD, 0x6F, 0x05, 0x10, 0, 0, 0],
            &["vmovdqa ymm0,[700000000018h]"],
        ),
        (
            &[0x64, 0x48, 0x8B, 0x04, 0x25, 0x28, 0, 0, 0],
            &["mov rax,fs:[28h]"],
        ),
        // Branches widen.
        (&[0xEB, 0x7F], &["jmp 700000000081h"]),
        (&[0xE9, 0x20, 0, 0, 0], &["jmp 700000000025h"]),
        (&[0x74, 0x7F], &["je 700000000081h"]),
        (&[0x0F, 0x8F, 0x20, 0, 0, 0], &["jg 700000000026h"]),
        // The literal behind a call is its return address, not code.
        (&[0xFF, 0xE0], &["jmp rax"]),
        (
            &[0xFF, 0x25, 0x10, 0, 0, 0],
            &["jmp qword ptr [700000000016h]"],
        ),
        (&[0xF2, 0xC3], &["bnd ret"]),
        (&[0x0F, 0x0B], &["ud2"]),
    ];
    for (code, expected) in cases {
        let code = if matches!(
            code[..],
            [0xFF, 0xE0] | [0xF2, 0xC3] | [0x0F, 0x0B] | [0xEB, 0x7F]
        ) {
            // Nothing falls through these: give them padding up to a known target.
            let module_code = [code, &[0x90, 0x90, 0x90, 0xC3][..]].concat();
            let module = Module {
                leaders: vec![CODE + code.len() as u64 + 3],
                ..module(&module_code)
            };
            let hook = Hook {
                addr: CODE,
                place: Place::Before,
                code: Vec::new(),
            };
            let plan = plan_hooks(&module, &[hook], Existing::default(), ARENA);
            assert!(plan.refused.is_empty(), "{code:02x?}: {:?}", plan.refused);
            let at = plan.hooked[0].trampoline.clone();
            assert_eq!(
                disassemble(&plan.arena[offset(at.start)..], at.start),
                *expected,
                "{code:02x?}"
            );
            continue;
        } else {
            padded(code)
        };
        assert_eq!(
            moved(&code).as_deref(),
            Ok(&expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..])
        );
    }
}

#[test]
fn counted_branches_grow_a_landing() {
    let base = ARENA.addr;
    for (code, name) in [
        (&[0xE3, 0x10][..], "jrcxz"),
        (&[0x67, 0xE3, 0x0F], "jecxz"),
        (&[0xE2, 0x10], "loop"),
        (&[0xE1, 0x10], "loope"),
        (&[0xE0, 0x10], "loopne"),
    ] {
        let text = moved(&padded(code)).expect("moves");
        let len = code.len() as u64;
        assert_eq!(text[0], format!("{name} {:X}h", base + len + 2));
        assert_eq!(text[1], format!("jmp short {:X}h", base + len + 7));
        assert_eq!(text[2], "jmp 700000000012h");
    }
}

#[test]
fn a_call_pushes_its_original_return_address() {
    let cases: &[(&[u8], u64, &str)] = &[
        (&[0xE8, 0x20, 0, 0, 0], 5, "jmp 700000000025h"),
        (&[0x48, 0x31, 0xC0, 0xFF, 0xD0], 5, "jmp rax"),
        (
            &[0xFF, 0x15, 0x10, 0, 0, 0],
            6,
            "jmp qword ptr [700000000016h]",
        ),
        (
            &[0xFF, 0x54, 0x24, 0x10, 0x90],
            4,
            "jmp qword ptr [rsp+18h]",
        ),
        (
            &[0x41, 0xFF, 0x94, 0xC4, 0x78, 0, 0, 0],
            8,
            "jmp qword ptr [r12+rax*8+78h]",
        ),
        (
            &[0xFF, 0x54, 0x24, 0x78, 0x90],
            4,
            "jmp qword ptr [rsp+80h]",
        ),
        (
            &[0x64, 0xFF, 0x14, 0x25, 0x10, 0, 0, 0],
            8,
            "jmp qword ptr fs:[10h]",
        ),
    ];
    for (code, returns, jump) in cases {
        let mut code = code.to_vec();
        let call_at = if code[0] == 0x48 { CODE + 3 } else { CODE };
        if *returns == 4 {
            // Too short for a window of its own, and a call ends one: put something before it.
            code.pop();
            code.splice(0..0, [0x48, 0x89, 0xC0]);
        }
        let shift = code.len() as u64 - returns;
        code.push(0xC3);
        let module = module(&code);
        let hook = Hook {
            addr: CODE,
            place: Place::Before,
            code: Vec::new(),
        };
        let plan = plan_hooks(&module, &[hook], Existing::default(), ARENA);
        assert!(plan.refused.is_empty(), "{code:02x?} {:?}", plan.refused);
        let tramp = plan.hooked[0].trampoline.clone();
        let bytes = &plan.arena[offset(tramp.start)..offset(tramp.end)];
        let literal = u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().expect("eight"));
        assert_eq!(literal, CODE + shift + returns, "call at {call_at:x}");
        let text = disassemble(&bytes[..bytes.len() - 8], tramp.start);
        let push = text
            .iter()
            .position(|t| t.starts_with("push"))
            .expect("a push");
        assert_eq!(text[push], format!("push qword ptr [{:X}h]", tramp.end - 8));
        assert_eq!(text[push + 1..], [*jump]);
    }
}

#[test]
fn some_instructions_stay() {
    use RefusedReason::{Endbr, Immovable, UnlistedSite};
    let cases: &[(&[u8], RefusedReason)] = &[
        (&[0xF3, 0x0F, 0x1E, 0xFA], Endbr),
        (&[0xCC], Immovable),
        (&[0xCD, 0x03], Immovable),
        // jmp far [rax]; call far [rax]; retf; iretq.
        (&[0xFF, 0x28], Immovable),
        (&[0xFF, 0x18], Immovable),
        // call [rsp-8]; call rsp.
        (&[0x90, 0x90, 0xFF, 0x54, 0x24, 0xF8], Immovable),
        (&[0x90, 0x90, 0x90, 0xFF, 0xD4], Immovable),
        // jmp rel32 under an operand-size prefix; mov eax, [eip+16].
        (&[0x66, 0xE9, 0x10, 0, 0, 0], Immovable),
        (&[0x67, 0x8B, 0x05, 0x10, 0, 0, 0], Immovable),
        // A site nobody asked for: rdtsc; xbegin.
        (&[0x0F, 0x31], UnlistedSite),
        (&[0xC7, 0xF8, 0x10, 0, 0, 0], UnlistedSite),
        (&[0xCD, 0x80], UnlistedSite),
    ];
    for (code, reason) in cases {
        let refused = moved(&padded(code)).expect_err("stays");
        // What ends a block has no room before it has a chance to be immovable.
        let early = refused == RefusedReason::NoRoom && code.len() < 5;
        assert!(refused == *reason || early, "{code:02x?}: {refused}");
    }
}

// --- Sites ----------------------------------------------------------------------------

#[test]
fn every_kind_is_found_with_its_operands() {
    use SiteKind::{Cpuid, Int80, Rdpid, Rdrand, Rdseed, Rdtsc, Rdtscp, Syscall, Sysenter, Xbegin};
    let some = |reg, bytes| Some(Dest { reg, bytes });
    let cases: &[(&[u8], SiteKind, Option<Dest>)] = &[
        (&[0x0F, 0x05], Syscall, None),
        (&[0x48, 0x0F, 0x05], Syscall, None),
        (&[0xCD, 0x80], Int80, None),
        (&[0x0F, 0x34], Sysenter, None),
        (&[0x0F, 0x31], Rdtsc, None),
        (&[0x0F, 0x01, 0xF9], Rdtscp, None),
        (&[0x0F, 0xA2], Cpuid, None),
        (&[0x0F, 0xC7, 0xF0], Rdrand, some(0, 4)),
        (&[0x66, 0x41, 0x0F, 0xC7, 0xF1], Rdrand, some(9, 2)),
        (&[0x49, 0x0F, 0xC7, 0xF7], Rdrand, some(15, 8)),
        (&[0x48, 0x0F, 0xC7, 0xFB], Rdseed, some(3, 8)),
        (&[0x66, 0x0F, 0xC7, 0xFC], Rdseed, some(4, 2)),
        (&[0xF3, 0x41, 0x0F, 0xC7, 0xF8], Rdpid, some(8, 8)),
        (&[0xC7, 0xF8, 0x02, 0, 0, 0], Xbegin, None),
    ];
    for (bytes, kind, dest) in cases {
        let code = padded(bytes);
        let sites = find_sites(&module(&code));
        assert_eq!(sites.len(), 1, "{bytes:02x?}");
        let site = sites[0];
        assert_eq!(
            (site.addr, site.kind, site.dest, site.proven),
            (CODE, *kind, *dest, true)
        );
        assert_eq!(usize::from(site.len), bytes.len());
        assert_eq!(site.fallback, (*kind == Xbegin).then_some(CODE + 8));
        let plan = plan_all(&module(&code));
        if matches!(kind, Int80 | Sysenter) {
            assert_eq!(reasons(&plan), [RefusedReason::LegacyEntry]);
        } else {
            assert!(plan.refused.is_empty(), "{kind}: {:?}", plan.refused);
            // The opcode is gone from the window.
            assert!(
                !plan.writes[0]
                    .bytes
                    .windows(2)
                    .any(|w| bytes.windows(2).any(|b| b == w && w[0] == 0x0F))
            );
        }
    }
    assert!(
        find_sites(&module(&padded(&[0x0F, 0xC7, 0x30]))).is_empty(),
        "vmptrld is no rdrand"
    );
    assert!(
        find_sites(&module(&padded(&[0xB8, 0x0F, 0x05, 0, 0]))).is_empty(),
        "an immediate is no site"
    );
}

#[test]
fn an_entropy_tail_keeps_rcx_and_names_the_instruction() {
    // rdrand r9w, at the end of its window.
    let code = [0x66, 0x41, 0x0F, 0xC7, 0xF1, 0xC3];
    let plan = plan_all(&module(&code));
    let text = disassemble(&plan.arena[16..], ARENA.addr + 16);
    // 6 | 9 << 8 | 2 << 16.
    assert_eq!(
        text,
        [
            "mov gs:[0],rcx",
            "mov dword ptr gs:[8],20906h",
            "lea rcx,[700000000005h]",
            "jmp qword ptr [700001000008h]",
        ]
    );
}

#[test]
fn a_transaction_aborts_at_once() {
    let code = padded(&[0xC7, 0xF8, 0x08, 0, 0, 0]);
    let plan = plan_all(&module(&code));
    let text = disassemble(&plan.arena[16..], ARENA.addr + 16);
    assert_eq!(text, ["mov eax,0", "jmp 70000000000Eh"]);
    assert_eq!(plan.patched[0].resume, CODE + 14);
}

#[test]
fn a_sweep_proves_nothing_and_a_trap_does() {
    let code = [0xB8, 39, 0, 0, 0, 0x0F, 0x05, 0xC3];
    let mut unknown = module(&code);
    unknown.functions.clear();
    let sites = find_sites(&unknown);
    assert_eq!(sites.len(), 1);
    assert!(!sites[0].proven);
    assert_eq!(reasons(&plan_all(&unknown)), [RefusedReason::Unproven]);

    // With enough code before it that decodes from every byte meet, the trap's word is
    // enough for a backward window.
    let mut long = [0x48, 0x89, 0xC3].repeat(60);
    long.extend(code);
    let unknown = Module {
        functions: Vec::new(),
        ..module(&long)
    };
    let at = CODE + long.len() as u64 - 3;
    assert_eq!(site_at(&unknown, at, SiteKind::Rdtsc), None);
    assert_eq!(site_at(&unknown, at - 1, SiteKind::Syscall), None);
    let site = site_at(&unknown, at, SiteKind::Syscall).expect("a syscall stands there");
    let plan = plan(&unknown, &[site], ARENA, &ENTRIES);
    assert_eq!(windows(&plan), [at - 5..at + 2]);
}

#[test]
fn what_control_flow_reaches_is_proven() {
    // entry: call f; lea rsi, [rip+g]; ret   f: je +1; nop; mov eax, 39; syscall; ret
    // g: mov eax, 1; syscall; ret   h, which nothing leads to: mov eax, 2; syscall; ret
    let mut code = vec![0xE8, 8, 0, 0, 0, 0x48, 0x8D, 0x35, 12, 0, 0, 0, 0xC3];
    code.extend([0x74, 1, 0x90, 0xB8, 39, 0, 0, 0, 0x0F, 0x05, 0xC3]);
    code.extend([0xB8, 1, 0, 0, 0, 0x0F, 0x05, 0xC3]);
    code.extend([0xB8, 2, 0, 0, 0, 0x0F, 0x05, 0xC3]);
    let entered = Module {
        functions: Vec::new(),
        leaders: vec![CODE],
        ..module(&code)
    };
    let proven: Vec<bool> = find_sites(&entered)
        .iter()
        .map(|site| site.proven)
        .collect();
    assert_eq!(proven, [true, true, false]);
    let plan = plan_all(&entered);
    assert_eq!(windows(&plan), [CODE + 16..CODE + 23, CODE + 24..CODE + 31]);
    // A root that leads to what no program executes (outsb, from text) proves nothing.
    let mut other = code.clone();
    other[24] = b'n';
    let entered = Module {
        code: vec![CodeView {
            addr: CODE,
            bytes: &other,
        }],
        ..entered
    };
    assert!(
        find_sites(&entered)
            .iter()
            .filter(|site| site.proven)
            .count()
            < 2
    );
}

#[test]
fn the_summary_counts_every_site_and_byte() {
    // A function with one site, padding, then four bytes that nobody vouches for.
    let code = [
        0xB8, 39, 0, 0, 0, 0x0F, 0x05, 0xC3, 0x90, 0x90, 0x0F, 0x31, 0x50, 0xC3, 0, 0,
    ];
    let module = Module {
        functions: vec![CODE..CODE + 8],
        ..module(&code)
    };
    let plan = plan_all(&module);
    let sum = Coverage::of(&module, &plan);
    assert_eq!((sum.found(), sum.patched(), sum.refused()), (2, 1, 1));
    assert_eq!(
        sum.kinds[&SiteKind::Rdtsc].refused[&RefusedReason::Unproven],
        1
    );
    assert_eq!(sum.kinds[&SiteKind::Rdtsc].unproven, 1);
    assert_eq!(
        (sum.code_bytes, sum.uncovered_bytes, sum.lookalikes),
        (16, 4, 0)
    );
}

#[test]
fn data_inside_a_function_takes_its_proof_away() {
    // jmp over a string that decodes, back into its middle by its own account.
    let text = b"rc4(8x,int)\0";
    let mut code = vec![0x72, 0x63, 0x34, 0x28, 0x38, 0x78, 0x2C];
    code.extend(text);
    code.extend([0x0F, 0x05, 0x90, 0x90, 0x90, 0xC3]);
    assert!(find_sites(&module(&code)).iter().all(|site| !site.proven));
}

#[test]
fn a_function_that_runs_on_behind_its_end_is_followed() {
    // clone3: the unwind entry ends before the system call.
    let code = [
        0xB8, 0xB3, 1, 0, 0, 0x0F, 0x05, 0x48, 0x85, 0xC0, 0xC3, 0x0F, 0x05,
    ];
    let mut module = module(&code);
    module.functions[0].end = CODE + 5;
    let sites = find_sites(&module);
    assert_eq!(
        sites.iter().map(|s| s.proven).collect::<Vec<_>>(),
        [true, false]
    );
    assert_eq!(windows(&plan_all(&module)), [CODE..CODE + 7]);
}

#[test]
fn arena_and_forbidden_ranges_are_respected() {
    let code = [0xB8, 39, 0, 0, 0, 0x0F, 0x05, 0xC3];
    let module = module(&code);
    let sites = find_sites(&module);
    let far = ArenaSpec {
        addr: CODE + (1 << 31),
        len: 0x1000,
    };
    assert_eq!(
        reasons(&plan(&module, &sites, far, &ENTRIES)),
        [RefusedReason::OutOfReach]
    );
    for len in [0, 8, 16, 33] {
        let small = ArenaSpec { len, ..ARENA };
        let plan = plan(&module, &sites, small, &ENTRIES);
        assert_eq!(reasons(&plan), [RefusedReason::ArenaFull], "{len}");
        assert!(plan.writes.is_empty() && plan.arena.len() as u64 <= len);
    }
    let fits = ArenaSpec {
        len: 16 + 18,
        ..ARENA
    };
    assert!(plan(&module, &sites, fits, &ENTRIES).refused.is_empty());
    let forbidden = Module {
        forbidden: vec![CODE + 6..CODE + 7],
        ..module.clone()
    };
    assert_eq!(reasons(&plan_all(&forbidden)), [RefusedReason::Forbidden]);
}

#[test]
fn no_jump_spells_a_system_call() {
    // The displacement to the first free place would be 0f 05 00 00.
    let code = [0xB8, 39, 0, 0, 0, 0x0F, 0x05, 0xC3];
    let module = module(&code);
    let arena = ArenaSpec {
        addr: CODE + 5 + 0x050F - 16 - 4,
        len: 0x100,
    };
    let arena = ArenaSpec {
        addr: arena.addr & !15,
        ..arena
    };
    let plan = plan(&module, &find_sites(&module), arena, &ENTRIES);
    assert!(plan.refused.is_empty());
    assert!(!plan.writes[0].bytes.windows(2).any(|b| b == [0x0F, 0x05]));
    assert!(!plan.arena.windows(2).any(|b| b == [0x0F, 0x05]));
}

// --- Hooks and composition ------------------------------------------------------------

const PAYLOAD: [u8; 3] = [0x0F, 0x1F, 0x00]; // nop [rax]

fn hook(addr: u64, place: Place) -> Hook {
    Hook {
        addr,
        place,
        code: PAYLOAD.to_vec(),
    }
}

#[test]
fn a_payload_runs_on_either_side_of_its_instruction() {
    // xor edi, edi; mov eax, edx; inc ecx; ret
    let code = [0x31, 0xFF, 0x89, 0xD0, 0xFF, 0xC1, 0xC3];
    for (place, expected) in [
        (
            Place::Before,
            ["xor edi,edi", "nop [rax]", "mov eax,edx", "inc ecx"],
        ),
        (
            Place::After,
            ["xor edi,edi", "mov eax,edx", "nop [rax]", "inc ecx"],
        ),
    ] {
        let module = module(&code);
        let plan = plan_hooks(
            &module,
            &[hook(CODE + 2, place)],
            Existing::default(),
            ARENA,
        );
        assert!(plan.refused.is_empty());
        let hooked = &plan.hooked[0];
        // Three two-byte instructions, whichever end the window starts from.
        let text = disassemble(
            &plan.arena[offset(hooked.trampoline.start)..],
            hooked.trampoline.start,
        );
        if hooked.window.start == CODE {
            assert_eq!(text[..4], expected);
        } else {
            assert_eq!(text[..3], expected[1..]);
        }
        assert_eq!(
            plan.arena[offset(hooked.payload.start)..offset(hooked.payload.end)],
            PAYLOAD
        );
    }
}

/// V8 keeps a constant in one place: later code loads it from the immediate of the instruction that had it first.
#[test]
fn an_immediate_that_other_code_reads_stays_where_it_is() {
    // movabs rax, 1 << 32; nop [rax+rax]; mov r12, [rip-0x14]: the immediate; nop [rax+rax]; ret
    let movabs = [0x48, 0xB8, 0, 0, 0, 0, 1, 0, 0, 0];
    let nop = [0x0F, 0x1F, 0x44, 0, 0];
    let load = [0x4C, 0x8B, 0x25, 0xEC, 0xFF, 0xFF, 0xFF];
    let read = [&movabs[..], &nop, &load, &nop, &[0xC3]].concat();
    // The same, of a place behind all code.
    let elsewhere = [0x4C, 0x8B, 0x25, 0, 1, 0, 0];
    let other = [&movabs[..], &nop, &elsewhere, &nop, &[0xC3]].concat();
    for (code, refused) in [(&read, true), (&other, false)] {
        let module = module(code);
        let hooks = [hook(CODE, Place::Before)];
        let plan = plan_hooks(&module, &hooks, Existing::default(), ARENA);
        let reasons = reasons(&plan);
        assert_eq!(reasons.first(), refused.then_some(&RefusedReason::Entered));
    }
}

#[test]
fn there_is_no_after_where_control_leaves() {
    for code in [
        &[0xEB, 0x03][..],
        &[0x74, 3],
        &[0xE8, 0, 0, 0, 0],
        &[0xC3],
        &[0xE2, 3],
        &[0x0F, 0x0B],
    ] {
        let code = padded(code);
        let module = module(&code);
        let plan = plan_hooks(
            &module,
            &[hook(CODE, Place::After)],
            Existing::default(),
            ARENA,
        );
        assert_eq!(reasons(&plan), [RefusedReason::NoFallthrough]);
    }
}

/// mov eax, 39; syscall; mov edi, eax; mov edi, 7; ret
const COMPOSED: [u8; 15] = [
    0xB8, 39, 0, 0, 0, 0x0F, 0x05, 0x89, 0xC7, 0xBF, 7, 0, 0, 0, 0xC3,
];
const SECOND: ArenaSpec = ArenaSpec {
    addr: ARENA.addr + 0x1000,
    len: 0x1000,
};

#[test]
fn two_users_of_one_window_are_both_served() {
    let module = module(&COMPOSED);
    let first = plan_all(&module);
    assert_eq!(windows(&first), [CODE..CODE + 7]);
    // Before and after the system call itself.
    let hooks = [hook(CODE + 5, Place::Before), hook(CODE + 5, Place::After)];
    let second = plan_hooks(&module, &hooks, Existing::from(&first), SECOND);
    assert!(second.refused.is_empty(), "{:?}", second.refused);
    assert_eq!(second.superseded, [CODE..CODE + 7]);
    assert_eq!((second.patched.len(), second.hooked.len()), (1, 2));
    let at = second.patched[0].trampoline.start;
    let code = &second.arena[usize::try_from(at - SECOND.addr).expect("inside")..];
    // The tail uses slots of the new arena, which hold the entries the site came with, and
    // returns into the trampoline for the payload behind it.
    assert_eq!(second.arena[..8], ENTRIES.syscall.to_le_bytes());
    let text = disassemble(code, at);
    assert_eq!(
        text,
        [
            "mov eax,27h".to_owned(),
            "nop [rax]".to_owned(),
            format!("lea rcx,[{:X}h]", second.hooked[1].payload.start),
            format!("jmp qword ptr [{:X}h]", SECOND.addr),
            "nop [rax]".to_owned(),
            "jmp 700000000007h".to_owned(),
        ]
    );
    assert_eq!(second.patched[0].resume, second.hooked[1].payload.start);
    // A third user on top of both plans.
    let patched: Vec<Patched> = [&first.patched[..], &second.patched].concat();
    let existing = Existing {
        patched: &patched,
        hooked: &second.hooked,
    };
    let third_arena = ArenaSpec {
        addr: SECOND.addr + 0x1000,
        len: 0x1000,
    };
    let third = plan_hooks(&module, &[hook(CODE, Place::Before)], existing, third_arena);
    assert_eq!(
        (third.patched.len(), third.hooked.len(), third.writes.len()),
        (1, 3, 1)
    );
}

#[test]
fn an_instruction_behind_a_window_gets_its_own() {
    let module = module(&COMPOSED);
    let first = plan_all(&module);
    let second = plan_hooks(
        &module,
        &[hook(CODE + 7, Place::Before)],
        Existing::from(&first),
        SECOND,
    );
    assert_eq!(second.hooked[0].window, CODE + 7..CODE + 14);
    assert!(second.superseded.is_empty() && second.patched.is_empty());
}

#[test]
fn a_window_whose_end_is_returned_to_is_not_run_over() {
    // mov edi, eax; ret behind the window: no room without running over its end.
    let code = &[&COMPOSED[..9], &[0xC3]].concat();
    let module = module(code);
    let first = plan_all(&module);
    let second = plan_hooks(
        &module,
        &[hook(CODE + 7, Place::Before)],
        Existing::from(&first),
        SECOND,
    );
    assert_eq!(reasons(&second), [RefusedReason::Entered]);
    assert!(second.writes.is_empty());
}

#[test]
fn a_late_site_joins_what_is_there() {
    let module = module(&COMPOSED);
    let first = plan_hooks(
        &module,
        &[hook(CODE, Place::Before)],
        Existing::default(),
        ARENA,
    );
    assert_eq!(first.hooked[0].window, CODE..CODE + 5);
    let site = site_at(&module, CODE + 5, SiteKind::Syscall).expect("stands there");
    let second = replan(
        &module,
        &[site],
        &ENTRIES,
        &[],
        Existing::from(&first),
        SECOND,
    );
    // syscall, mov edi, eax, mov edi, 7: forward, since the hook's window ends at the site.
    assert_eq!(windows(&second), [CODE + 5..CODE + 14]);
}

#[test]
fn a_duplicate_changes_nothing() {
    let module = module(&COMPOSED);
    let sites = find_sites(&module);
    let twice = [sites[0], sites[0]];
    assert_eq!(plan(&module, &twice, ARENA, &ENTRIES), plan_all(&module));
    let again: Vec<Site> = twice.to_vec();
    let first = plan_all(&module);
    assert_eq!(
        replan(
            &module,
            &again,
            &ENTRIES,
            &[],
            Existing::from(&first),
            SECOND
        ),
        Plan::default()
    );
}

// --- Windows of two to four bytes -------------------------------------------------------

/// A loop whose branch has a branch target on either side.
const LOOP: [u8; 52] = [
    0x48, 0x83, 0xEC, 0x08, // sub rsp, 8
    0xB8, 0, 0, 0, 0, // mov eax, 0
    0xBE, 0, 0, 0, 0, // mov esi, 0
    0x48, 0x89, 0xF2, // 14: mov rdx, rsi
    0x48, 0xC1, 0xE2, 0x05, // shl rdx, 5
    0x7A, 0x0F, // 21: jp 38
    0x90, 0x48, 0x83, 0xC0, 0x01, // add rax, 1
    0x74, 0x06, // 28: je 36
    0x48, 0x3D, 0x20, 0x4E, 0, 0, // 30: cmp rax, 20000
    0x75, 0xE8, // 36: jne 14
    0xB8, 0, 0, 0, 0, // 38: mov eax, 0
    0x48, 0x83, 0xC4, 0x08, // add rsp, 8
    0xC3, // 47: ret
    0x90, 0x90, 0x90, 0x90, // 48: padding
];

#[test]
fn a_survey_finds_room_for_a_branch_of_two_bytes() {
    let module = module(&LOOP);
    let hooks: Vec<Hook> = (0..LOOP.len() as u64)
        .filter(|at| [14, 28, 30, 36, 38].contains(at))
        .map(|at| hook(CODE + at, Place::Before))
        .collect();
    for asked in hooks
        .iter()
        .map(|hook| vec![hook.clone()])
        .chain([hooks.clone()])
    {
        let plan = Survey::new(&module, ARENA).plan(&asked);
        assert!(plan.refused.is_empty(), "{asked:?}: {:?}", plan.refused);
        assert_eq!(plan.hooked.len(), asked.len());
        // Disjoint, in order, and each short jump leads to a long one inside another write.
        assert!(
            plan.writes
                .windows(2)
                .all(|w| w[0].addr + w[0].bytes.len() as u64 <= w[1].addr)
        );
        for write in plan.writes.iter().filter(|write| write.bytes[0] == 0xEB) {
            let to =
                (write.addr + 2).wrapping_add_signed(i8::from_le_bytes([write.bytes[1]]).into());
            let lender = plan
                .writes
                .iter()
                .find(|w| (w.addr..w.addr + w.bytes.len() as u64).contains(&to))
                .expect("bytes to jump to");
            let at = usize::try_from(to - lender.addr).expect("inside");
            assert_eq!(lender.bytes[at], 0xE9);
            let disp: [u8; 4] = lender.bytes[at + 1..at + 5].try_into().expect("four bytes");
            let trampoline = (to + 5).wrapping_add_signed(i32::from_le_bytes(disp).into());
            assert!(plan.hooked.iter().any(|h| h.trampoline.start == trampoline));
        }
    }
    // Who intercepts has traps for what has no room, and gets no such windows.
    let branch = [hook(CODE + 36, Place::Before)];
    let refused = plan_hooks(&module, &branch, Existing::default(), ARENA);
    assert!(refused.writes.is_empty() && refused.refused.len() == 1);
}

#[test]
fn behind_a_no_op_that_begins_a_function_something_may_return() {
    // nop; call +0; nop, as Go's goexit.
    let code = padded(&[0x90, 0xE8, 0, 0, 0, 0, 0x90]);
    let module = module(&code);
    for at in 0..2 {
        let plan = Survey::new(&module, ARENA).plan(&[hook(CODE + at, Place::Before)]);
        let over = |write: &crate::Write| {
            (write.addr + 1..write.addr + write.bytes.len() as u64).contains(&(CODE + 1))
        };
        assert!(!plan.writes.iter().any(over), "{:?}", plan.writes);
    }
}

/// `mov r14, time(2)`, `mov rax, gettimeofday(2)`, `movabs r11, getcpu(2)`, an address beside them, and one in data.
#[test]
fn addresses_of_the_vsyscall_page_are_found_where_code_loads_them() {
    use crate::{Legacy, LegacyLoad};
    let code = [
        &[0x49, 0xC7, 0xC6, 0x00, 0x04, 0x60, 0xFF][..],
        &[0x48, 0xC7, 0xC0, 0x00, 0x00, 0x60, 0xFF],
        &[0x49, 0xBB, 0x00, 0x08, 0x60, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        &[0x48, 0xC7, 0xC0, 0x10, 0x04, 0x60, 0xFF, 0xC3],
    ]
    .concat();
    let mut module = module(&code);
    let found = Analysis::new(&module).legacy_loads();
    let load = |at, call, register| LegacyLoad {
        addr: CODE + at,
        call,
        register,
    };
    assert_eq!(
        found,
        [
            load(0, Legacy::Time, 14),
            load(7, Legacy::Gettimeofday, 0),
            load(14, Legacy::Getcpu, 11)
        ]
    );
    // movabs r14, imm64.
    assert_eq!(
        found[0].load(0x1122_3344_5566_7788),
        [0x49, 0xBE, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]
    );
    assert_eq!(find_open(&module), []);
    let word = 0xffff_ffff_ff60_0800_u64.to_le_bytes();
    module.data = vec![CodeView {
        addr: CODE + 0x1000,
        bytes: &word,
    }];
    assert_eq!(
        find_open(&module),
        [Open {
            addr: CODE + 0x1000,
            what: "a call of the vsyscall page"
        }]
    );
}

#[test]
fn instructions_that_nothing_intercepts_are_named_where_they_stand() {
    // mov eax, 0x0001010f: bytes of sgdt inside; lsl eax, ecx; sgdt [rdi]; smsw eax; rdpru; syscall; ret.
    let code = [
        &[0xB8, 0x0F, 0x01, 0x07, 0x00][..],
        &[0x0F, 0x03, 0xC1],
        &[0x0F, 0x01, 0x07],
        &[0x0F, 0x01, 0xE0],
        &[0x0F, 0x01, 0xFD],
        &[0x0F, 0x05, 0xC3],
    ]
    .concat();
    let found = find_open(&module(&code));
    let found: Vec<_> = found
        .iter()
        .map(|open| (open.addr - CODE, open.what))
        .collect();
    assert_eq!(
        found,
        [(5, "lsl"), (8, "sgdt"), (11, "smsw"), (14, "rdpru")]
    );
}
