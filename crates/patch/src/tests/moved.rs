//! Instructions that move mean what they meant.

use super::*;

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
    struct Call {
        code: &'static [u8],
        returns: u64,
        jump: &'static str,
    }
    let cases: &[Call] = &[
        Call {
            code: &[0xE8, 0x20, 0, 0, 0],
            returns: 5,
            jump: "jmp 700000000025h",
        },
        Call {
            code: &[0x48, 0x31, 0xC0, 0xFF, 0xD0],
            returns: 5,
            jump: "jmp rax",
        },
        Call {
            code: &[0xFF, 0x15, 0x10, 0, 0, 0],
            returns: 6,
            jump: "jmp qword ptr [700000000016h]",
        },
        Call {
            code: &[0xFF, 0x54, 0x24, 0x10, 0x90],
            returns: 4,
            jump: "jmp qword ptr [rsp+18h]",
        },
        Call {
            code: &[0x41, 0xFF, 0x94, 0xC4, 0x78, 0, 0, 0],
            returns: 8,
            jump: "jmp qword ptr [r12+rax*8+78h]",
        },
        Call {
            code: &[0xFF, 0x54, 0x24, 0x78, 0x90],
            returns: 4,
            jump: "jmp qword ptr [rsp+80h]",
        },
        Call {
            code: &[0x64, 0xFF, 0x14, 0x25, 0x10, 0, 0, 0],
            returns: 8,
            jump: "jmp qword ptr fs:[10h]",
        },
    ];
    for Call {
        code,
        returns,
        jump,
    } in cases
    {
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
