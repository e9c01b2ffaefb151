//! What a site takes with it: its window.

use super::*;

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
