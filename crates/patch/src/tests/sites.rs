//! Sites are found, with their operands and the proof that they are code.

use super::*;

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

/// As lld lays functions out for Chromium, which has no unwind entries: this one is called by way of a table, and ends in `int3; ud2`
/// where a check fails.
#[test]
fn padding_before_a_frame_pointer_begins_a_function() {
    let function = [
        0x55, 0x48, 0x89, 0xE5, // push rbp; mov rbp, rsp
        0x0F, 0x31, // rdtsc
        0x85, 0xC0, 0x74, 0x02, // test eax, eax; jz to the end
        0x5D, 0xC3, // pop rbp; ret
        0xCC, 0x0F, 0x0B, // int3; ud2
    ];
    let after = |padding: u8| {
        let mut code = vec![0xC3];
        code.extend([padding; 15]);
        code.extend(function);
        code
    };
    let is_proven = |code: &[u8]| {
        let unnamed = Module {
            functions: Vec::new(),
            ..module(code)
        };
        let sites = find_sites(&unnamed);
        assert_eq!(sites.len(), 1);
        sites[0].proven
    };
    assert!(is_proven(&after(0xCC)));
    assert!(!is_proven(&after(0x90)));
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

/// Code that no function covers and nothing leads to, with what stands before and behind the bytes `0f 31`.
fn clocks_of(code: &[u8], inert: &[std::ops::Range<u64>]) -> Vec<u64> {
    let unknown = Module {
        functions: Vec::new(),
        inert: inert.to_vec(),
        ..module(code)
    };
    let sites = find_sites(&unknown);
    assert!(sites.iter().all(|site| !site.proven));
    sites.iter().map(|site| site.addr - CODE).collect()
}

#[test]
fn what_may_read_the_clock_stays_in_doubt() {
    // mov rbx, rax and so on; ret; rdtsc; ret
    let before = [[0x48, 0x89, 0xC3].repeat(80), vec![0xC3]].concat();
    let at = before.len() as u64;
    let code = [&before[..], &[0x0F, 0x31, 0xC3]].concat();
    assert_eq!(clocks_of(&code, &[]), [at]);
    // Data that decodes as anything does not make it less of one.
    let code = [
        &b"no code, but a text\0 of some length\0"[..],
        &[0x0F, 0x01, 0xF9, 0xC3],
    ]
    .concat();
    assert_eq!(clocks_of(&code, &[]), [36]);
}

#[test]
fn what_lies_in_an_instruction_reads_no_clock() {
    // ...; jmp over; xor eax, eax: what Go has.
    let before = [0x48, 0x89, 0xC3].repeat(80);
    let at = before.len() as u64 + 1;
    let behind = [0x90; 17];
    let code = [&before[..], &[0xEB, 0x0F, 0x31, 0xC0], &behind, &[0xC3]].concat();
    assert_eq!(clocks_of(&code, &[]), []);
    // A branch leads to the second byte of the jump.
    let back = code.len() as u64 + 2 - at;
    let entered = [&code[..], &[0xEB, back.wrapping_neg().to_le_bytes()[0]]].concat();
    assert_eq!(clocks_of(&entered, &[]), [at]);
}

#[test]
fn tables_read_no_clock() {
    // rdtsc; in al, dx: no program goes on so.
    assert_eq!(clocks_of(&[0xC3, 0x0F, 0x31, 0xEC, 0xC3], &[]), []);
    // rdtsc; call to where there is no code.
    assert_eq!(
        clocks_of(&[0xC3, 0x0F, 0x31, 0xE8, 0, 0, 1, 0, 0xC3], &[]),
        []
    );
    // A section that is not for code.
    let code = [0xC3, 0x0F, 0x31, 0xC3];
    assert_eq!(clocks_of(&code, &[]), [1]);
    assert_eq!(clocks_of(&code, &[CODE + 1..CODE + 4]), []);
}
