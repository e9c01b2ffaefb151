//! Hooks, and plans that are laid over others.

use super::*;
use crate::find_environments;

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

#[test]
fn zeros_go_over_what_the_x87_unit_tells_of_its_last_instruction() {
    // fnstenv [rsp+8]; fxsave64 [rdi+rcx*2]; fnstcw [rsp]; ret
    let code = [
        0xD9, 0x74, 0x24, 8, 0x48, 0x0F, 0xAE, 0x04, 0x4F, 0xD9, 0x3C, 0x24, 0xC3,
    ];
    let found = find_environments(&module(&code));
    let at: Vec<u64> = found.iter().map(|one| one.addr).collect();
    assert_eq!(at, [CODE, CODE + 4]);
    assert_eq!(
        disassemble(&found[0].clear, 0),
        [
            "mov dword ptr [rsp+14h],0",
            "mov dword ptr [rsp+18h],0",
            "mov dword ptr [rsp+1Ch],0",
            "mov word ptr [rsp+20h],0",
        ]
    );
    let fxsave = disassemble(&found[1].clear, 0);
    assert_eq!(fxsave[0], "mov word ptr [rdi+rcx*2+6],0");
    assert_eq!(fxsave[4], "mov dword ptr [rdi+rcx*2+14h],0");
}
