//! Random programs and inputs.

use super::*;

/// A register other than rsp.
pub(super) fn reg() -> impl Strategy<Value = u8> {
    (0u8..15).prop_map(|r| if r >= RSP { r + 1 } else { r })
}

pub(super) fn rex(reg: u8, rm: u8) -> u8 {
    0x48 | (reg >> 3) << 2 | rm >> 3
}

pub(super) fn plain() -> impl Strategy<Value = Vec<u8>> {
    // Two-register arithmetic: add or adc sbb and sub xor cmp, test, mov, xchg, imul, cmovcc.
    let two = (reg(), reg(), 0usize..12).prop_map(|(a, b, which)| {
        let modrm = 0xC0 | (a & 7) << 3 | b & 7;
        let opcode: &[u8] = [
            &[0x01][..],
            &[0x09],
            &[0x11],
            &[0x19],
            &[0x21],
            &[0x29],
            &[0x31],
            &[0x39],
            &[0x85],
            &[0x89],
            &[0x87],
            &[0x0F, 0xAF],
        ][which];
        [&[rex(a, b)], opcode, &[modrm]].concat()
    });
    let short = prop::sample::select(vec![
        vec![0x90],
        vec![0x89, 0xC2],             // mov edx, eax
        vec![0x31, 0xFF],             // xor edi, edi
        vec![0xFF, 0xC6],             // inc esi
        vec![0xF8],                   // clc
        vec![0xF9],                   // stc
        vec![0xF5],                   // cmc
        vec![0x9F],                   // lahf
        vec![0x9E],                   // sahf
        vec![0x98],                   // cwde
        vec![0x48, 0x99],             // cqo
        vec![0x0F, 0xC8],             // bswap eax
        vec![0x0F, 0x94, 0xC0],       // sete al
        vec![0x48, 0x0F, 0x42, 0xC3], // cmovb rax, rbx
        vec![0x48, 0xD1, 0xE0],       // shl rax, 1
        vec![0x50],                   // push rax
        vec![0x5B],                   // pop rbx
        vec![0x9C],                   // pushfq
        vec![0x48, 0x89, 0xE2],       // mov rdx, rsp
        vec![0x0F, 0x1F, 0x40, 0x00],
    ]);
    let imm = (reg(), any::<i32>(), 0u8..8).prop_map(|(r, v, op)| {
        [
            &[rex(0, r), 0x81, 0xC0 | op << 3 | r & 7][..],
            &v.to_le_bytes(),
        ]
        .concat()
    });
    // Stores and loads in the red zone: mov [rsp-8k], r and mov r, [rsp-8k].
    let red = (reg(), 1i8..16, any::<bool>()).prop_map(|(r, k, store)| {
        vec![
            rex(r, 0),
            if store { 0x89 } else { 0x8B },
            0x44 | (r & 7) << 3,
            0x24,
            (-8 * k) as u8,
        ]
    });
    prop_oneof![3 => two, 3 => short, 2 => imm, 1 => red]
}

pub(super) fn data() -> impl Strategy<Value = Op> {
    (reg(), 0u16..0x7E0, 0usize..7, any::<i32>()).prop_map(|(r, at, which, imm)| {
        let modrm = (r & 7) << 3 | 5;
        let (opcode, behind) = match which {
            0 => (vec![rex(r, 0), 0x8B, modrm], vec![]),
            1 => (vec![rex(r, 0), 0x89, modrm], vec![]),
            2 => (vec![rex(r, 0), 0x8D, modrm], vec![]),
            3 => (vec![rex(r, 0), 0x01, modrm], vec![]),
            4 => (vec![0x48, 0x81, 0x05 | 5 << 3], imm.to_le_bytes().to_vec()), // sub qword [rip], imm32
            5 => (vec![0x80, 0x05 | 7 << 3], vec![imm as u8]), // cmp byte [rip], imm8
            _ => (vec![0xF0, rex(r, 0), 0x0F, 0xC1, modrm], vec![]), // lock xadd
        };
        Op::Data { opcode, at, behind }
    })
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => plain().prop_map(Op::Plain),
        4 => data(),
        3 => (0u8..17, 0usize..4, any::<bool>()).prop_map(|(condition, skip, long)| Op::Branch { condition, skip, long }),
        1 => (0xE0u8..0xE4, 0usize..4, any::<bool>()).prop_map(|(opcode, skip, narrow)| Op::Counted { opcode, skip, narrow }),
        1 => (1u8..6, plain().prop_filter("keeps the stack and the count", |b| keeps_count(b)))
            .prop_map(|(times, body)| Op::Loop { times, body }),
        2 => (prop::sample::select(vec![Via::Relative, Via::Register, Via::RipMemory, Via::StackMemory]), 0usize..FUNCTIONS)
            .prop_map(|(via, function)| Op::Call { via, function }),
        2 => any::<u8>().prop_map(|then| Op::Syscall { then }),
        1 => Just(Op::Cpuid),
    ]
}

/// Whether a loop body leaves rcx and rsp alone, so that the loop ends.
pub(super) fn keeps_count(bytes: &[u8]) -> bool {
    use iced_x86::{Decoder, InstructionInfoFactory, OpAccess, Register};
    let insn = Decoder::new(64, bytes, 0).decode();
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&insn);
    info.used_registers().iter().all(|used| {
        let written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        !(written
            && matches!(
                used.register().full_register(),
                Register::RCX | Register::RSP
            ))
    })
}

pub(super) fn input() -> impl Strategy<Value = Input> {
    let value = prop_oneof![
        any::<u64>(),
        0u64..4,
        Just(u64::MAX),
        Just(1 << 63),
        Just(0x8000_0000)
    ];
    (
        prop::array::uniform16(value),
        any::<u64>(),
        any::<[u8; 32]>(),
    )
        .prop_map(|(mut regs, flags, seed)| {
            regs[usize::from(RSP)] = STACK + STACK_LEN as u64 / 2;
            let fill = |len: usize, salt: u8| {
                (0..len)
                    .map(|i| seed[i % 32] ^ salt ^ (i / 32) as u8)
                    .collect()
            };
            // Interrupts on, as the kernel insists; no trap flag.
            Input {
                regs,
                flags: flags & FLAGS_COMPARED & !0x400 | 0x202,
                data: fill(DATA_LEN, 3),
                stack: fill(STACK_LEN, 7),
            }
        })
}
