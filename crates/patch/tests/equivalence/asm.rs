//! The assembler: what this test knows of machine code, and the programs that it makes of operations.

use super::*;

/// What this test knows of assembly: bytes and 32-bit fields.
#[derive(Default)]
pub(super) struct Asm(pub(super) Vec<u8>);

impl Asm {
    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// An absolute [disp32] operand for `opcode`, with `reg` in the register field.
    pub(super) fn absolute(&mut self, opcode: &[u8], reg: u8, addr: u64) -> &mut Self {
        // Opcodes here are REX.W forms or take no register beyond 7.
        let mut opcode = opcode.to_vec();
        if reg >= 8 {
            opcode[0] |= 4;
        }
        self.raw(&opcode)
            .raw(&[(reg & 7) << 3 | 4, 0x25])
            .raw(&(addr as u32).to_le_bytes())
    }

    pub(super) fn load(&mut self, reg: u8, addr: u64) -> &mut Self {
        self.absolute(&[0x48, 0x8B], reg, addr)
    }

    pub(super) fn store(&mut self, reg: u8, addr: u64) -> &mut Self {
        self.absolute(&[0x48, 0x89], reg, addr)
    }
}

/// Adds one to [COUNT] without touching flags, stack or registers.
pub(super) fn counter() -> Vec<u8> {
    let mut asm = Asm::default();
    asm.store(RCX, COUNT_SAVE).load(RCX, COUNT);
    asm.raw(&[0x48, 0x8D, 0x49, 0x01]); // lea rcx, [rcx+1]
    asm.store(RCX, COUNT).load(RCX, COUNT_SAVE);
    asm.0
}

pub(super) struct Stubs {
    pub(super) enter: u64,
    pub(super) leave: u64,
    pub(super) entries: Entries,
}

/// Assembles the harness's own code at `STUBS`.
pub(super) fn stubs() -> (Vec<u8>, Stubs) {
    let mut asm = Asm::default();
    let here = |asm: &Asm| STUBS + asm.0.len() as u64;
    let enter = here(&asm);
    asm.raw(&[0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57]); // push rbx rbp r12..r15
    asm.store(RSP, HOST_RSP);
    asm.load(RSP, REG_IN + 8 * u64::from(RSP));
    asm.absolute(&[0xFF], 6, FLAGS_IN).raw(&[0x9D]); // push [flags]; popfq
    for reg in (0..16).filter(|r| *r != RSP) {
        asm.load(reg, REG_IN + 8 * u64::from(reg));
    }
    asm.absolute(&[0xFF], 4, START); // jmp [start]
    let leave = here(&asm);
    for reg in 0..16 {
        asm.store(reg, REG_OUT + 8 * u64::from(reg));
    }
    asm.load(RSP, HOST_RSP);
    asm.raw(&[0x9C]).absolute(&[0x8F], 0, FLAGS_OUT); // pushfq; pop [flags]
    asm.raw(&[0xFC, 0xB8, 1, 0, 0, 0]).store(0, DONE); // cld; mov eax, 1
    asm.raw(&[
        0x41, 0x5F, 0x41, 0x5E, 0x41, 0x5D, 0x41, 0x5C, 0x5D, 0x5B, 0xC3,
    ]);
    let syscall = here(&asm);
    asm.store(RCX, SAVED)
        .raw(&[0x0F, 0x05])
        .load(RCX, SAVED)
        .raw(&[0xFF, 0xE1]);
    let entropy = here(&asm);
    asm.store(RCX, SAVED);
    asm.raw(&[0x65, 0x48, 0x8B, 0x0C, 0x25, 0, 0, 0, 0]); // mov rcx, gs:[0]
    asm.raw(&[0x0F, 0xA2]); // every entropy site here is a cpuid
    asm.absolute(&[0xFF], 4, SAVED);
    (
        asm.0,
        Stubs {
            enter,
            leave,
            entries: Entries { syscall, entropy },
        },
    )
}

#[derive(Debug, Clone)]
pub(super) enum Op {
    /// Bytes without labels or RIP-relative operands.
    Plain(Vec<u8>),
    /// Opcode and modrm with mod 00, rm 101; displacement into DATA; bytes behind it.
    Data {
        opcode: Vec<u8>,
        at: u16,
        behind: Vec<u8>,
    },
    /// Condition 0..16, or 16 for jmp; how many operations to skip; the long form.
    Branch {
        condition: u8,
        skip: usize,
        long: bool,
    },
    /// `loopne`, `loope`, `loop`, `jrcxz` forward.
    Counted {
        opcode: u8,
        skip: usize,
        narrow: bool,
    },
    /// mov ecx, n; again: lea rax, [rax+rcx]; body; loop again.
    Loop {
        times: u8,
        body: Vec<u8>,
    },
    Call {
        via: Via,
        function: usize,
    },
    Syscall {
        then: u8,
    },
    Cpuid,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Via {
    Relative,
    Register,
    RipMemory,
    StackMemory,
}

pub(super) const FUNCTIONS: usize = 3;

/// Bodies of the functions that `Op::Call` reaches: what they see of their return address
/// ends up in a register, and so in the compared state.
pub(super) const BODIES: [&[u8]; FUNCTIONS] = [
    &[0x4C, 0x8B, 0x2C, 0x24, 0xC3],             // mov r13, [rsp]; ret
    &[0x48, 0x8D, 0x49, 0x07, 0xC2, 0x00, 0x00], // lea rcx, [rcx+7]; ret 0
    &[0x41, 0x5E, 0x41, 0xFF, 0xE6],             // pop r14; jmp r14
];

#[derive(Debug, Clone)]
pub(super) struct Assembled {
    pub(super) code: Vec<u8>,
    /// Start of each operation, and of each instruction a payload may be planted at.
    pub(super) instructions: Vec<u64>,
}

/// `None` if an 8-bit branch does not reach.
pub(super) fn assemble(ops: &[Op]) -> Option<Assembled> {
    let mut asm = Asm::default();
    let mut starts = Vec::new();
    let mut instructions = Vec::new();
    // (position of field, size, operation or function it leads to)
    let mut fixups: Vec<(usize, usize, Result<usize, usize>)> = Vec::new();
    let mut begin = |asm: &mut Asm| instructions.push(CODE + asm.0.len() as u64);
    for (i, op) in ops.iter().enumerate() {
        starts.push(asm.0.len());
        match op {
            Op::Plain(bytes) => {
                begin(&mut asm);
                asm.raw(bytes);
            }
            Op::Data { opcode, at, behind } => {
                begin(&mut asm);
                asm.raw(opcode);
                let next = CODE + asm.0.len() as u64 + 4 + behind.len() as u64;
                let disp = (DATA + u64::from(*at)).wrapping_sub(next) as u32;
                asm.raw(&disp.to_le_bytes()).raw(behind);
            }
            Op::Branch {
                condition,
                skip,
                long,
            } => {
                begin(&mut asm);
                match (*condition, long) {
                    (16, true) => asm.raw(&[0xE9, 0, 0, 0, 0]),
                    (16, false) => asm.raw(&[0xEB, 0]),
                    (c, true) => asm.raw(&[0x0F, 0x80 | c, 0, 0, 0, 0]),
                    (c, false) => asm.raw(&[0x70 | c, 0]),
                };
                let size = if *long { 4 } else { 1 };
                fixups.push((asm.0.len() - size, size, Ok((i + 1 + skip).min(ops.len()))));
            }
            Op::Counted {
                opcode,
                skip,
                narrow,
            } => {
                begin(&mut asm);
                if *narrow {
                    asm.raw(&[0x67]);
                }
                asm.raw(&[*opcode, 0]);
                fixups.push((asm.0.len() - 1, 1, Ok((i + 1 + skip).min(ops.len()))));
            }
            Op::Loop { times, body } => {
                begin(&mut asm);
                asm.raw(&[0xB9, *times, 0, 0, 0]);
                let again = asm.0.len();
                begin(&mut asm);
                asm.raw(&[0x48, 0x8D, 0x04, 0x08]);
                begin(&mut asm);
                asm.raw(body);
                begin(&mut asm);
                asm.raw(&[0xE2]);
                let back = i8::try_from(again as i64 - asm.0.len() as i64 - 1).ok()?;
                asm.raw(&back.to_le_bytes());
            }
            Op::Call { via, function } => {
                let lea = |asm: &mut Asm, fixups: &mut Vec<_>| {
                    asm.raw(&[0x48, 0x8D, 0x05, 0, 0, 0, 0]); // lea rax, [rip+function]
                    fixups.push((asm.0.len() - 4, 4, Err(*function)));
                };
                begin(&mut asm);
                match via {
                    Via::Relative => {
                        asm.raw(&[0xE8, 0, 0, 0, 0]);
                        fixups.push((asm.0.len() - 4, 4, Err(*function)));
                    }
                    Via::Register => {
                        lea(&mut asm, &mut fixups);
                        begin(&mut asm);
                        asm.raw(&[0xFF, 0xD0]);
                    }
                    Via::RipMemory => {
                        lea(&mut asm, &mut fixups);
                        begin(&mut asm);
                        let to = |asm: &Asm, len: u64| {
                            (DATA + 0x800).wrapping_sub(CODE + asm.0.len() as u64 + len) as u32
                        };
                        let disp = to(&asm, 7);
                        asm.raw(&[0x48, 0x89, 0x05]).raw(&disp.to_le_bytes()); // mov [rip+slot], rax
                        begin(&mut asm);
                        let disp = to(&asm, 6);
                        asm.raw(&[0xFF, 0x15]).raw(&disp.to_le_bytes()); // call [rip+slot]
                    }
                    Via::StackMemory => {
                        lea(&mut asm, &mut fixups);
                        begin(&mut asm);
                        asm.raw(&[0x48, 0x89, 0x44, 0x24, 0x18]); // mov [rsp+24], rax
                        begin(&mut asm);
                        asm.raw(&[0xFF, 0x54, 0x24, 0x18]); // call [rsp+24]
                    }
                }
            }
            Op::Syscall { then } => {
                begin(&mut asm);
                asm.raw(&[0xB8, 110, 0, 0, 0]); // getppid
                begin(&mut asm);
                asm.raw(&[0x0F, 0x05]);
                begin(&mut asm);
                // The hardware leaves the next address in rcx, a trampoline may leave its own:
                // no program may look, so this one forgets it at once.
                asm.raw(match then % 3 {
                    0 => &[0x31, 0xC9],
                    1 => &[0xB9, 5, 0, 0, 0],
                    _ => &[0x48, 0x89, 0xD1],
                });
            }
            Op::Cpuid => {
                begin(&mut asm);
                asm.raw(&[0x31, 0xC0]);
                begin(&mut asm);
                asm.raw(&[0x31, 0xC9]);
                begin(&mut asm);
                asm.raw(&[0x0F, 0xA2]);
            }
        }
    }
    starts.push(asm.0.len());
    begin(&mut asm);
    asm.absolute(&[0xFF], 4, LEAVE); // jmp [leave]
    let mut functions = Vec::new();
    for body in BODIES {
        functions.push(asm.0.len());
        asm.raw(body);
    }
    for (at, size, to) in fixups {
        let target = match to {
            Ok(op) => starts[op],
            Err(function) => functions[function],
        };
        let disp = target as i64 - (at + size) as i64;
        match size {
            1 => asm.0[at] = i8::try_from(disp).ok()?.to_le_bytes()[0],
            _ => asm.0[at..at + 4].copy_from_slice(&(disp as i32).to_le_bytes()),
        }
    }
    Some(Assembled {
        code: asm.0,
        instructions,
    })
}
