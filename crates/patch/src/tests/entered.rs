//! What may be entered from elsewhere is not overwritten.

use super::*;

/// mov eax, edx; push; push; syscall; ret, at `at` of 0x400 bytes of pushes.
fn four_small(at: usize) -> Vec<u8> {
    let mut code = vec![0x50; 0x400];
    code[at - 1] = 0xC3;
    code[at..at + 7].copy_from_slice(&[0x89, 0xD0, 0x55, 0x53, 0x0F, 0x05, 0xC3]);
    code
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
