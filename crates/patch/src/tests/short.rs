//! Windows of two to four bytes, and what nothing intercepts.

use super::*;

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
