//! What differs from run to run or core to core and is no site: the vsyscall page, and instructions that nothing intercepts.
//!
//! Binaries built before 2012 load the address of a call in the vsyscall page into a register and call it. The kernel
//! answers such a call in its page fault, where no filter for system calls looks. The instruction that loads the
//! address is long enough for a jump, so its user gives another address instead.
//!
//! Not covered: an address of the page that is computed or stands in data; [`find_open`] shows the latter.
//! See arch/x86/entry/vsyscall, Intel SDM vol. 2 (LSL, SGDT, SIDT, SLDT, SMSW, STR, TPAUSE, UMWAIT), AMD APM vol. 3 (RDPRU).

use iced_x86::{Code, Instruction, Mnemonic};

use crate::Module;
use crate::index::Index;

/// The page's first call; the others follow at this distance.
const PAGE: u64 = 0xffff_ffff_ff60_0000;
const APART: u64 = 0x400;

/// The calls of the vsyscall page, in the order in which they stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Legacy {
    Gettimeofday,
    Time,
    Getcpu,
}

impl Legacy {
    fn at(address: u64) -> Option<Self> {
        [Legacy::Gettimeofday, Legacy::Time, Legacy::Getcpu]
            .into_iter()
            .find(|call| PAGE + APART * (*call as u64) == address)
    }
}

/// One instruction that loads the address of such a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LegacyLoad {
    pub addr: u64,
    pub call: Legacy,
    /// Hardware number of the 64-bit register that it loads.
    pub register: u8,
}

impl LegacyLoad {
    /// `movabs register, address`: what a payload behind the instruction executes.
    pub fn load(&self, address: u64) -> Vec<u8> {
        let mut code = vec![0x48 | self.register >> 3, 0xb8 | self.register & 7];
        code.extend(address.to_le_bytes());
        code
    }
}

/// All instructions that certainly load the address of a call in the vsyscall page, in address order.
pub(crate) fn legacy_loads(index: &Index<'_>) -> Vec<LegacyLoad> {
    let mut found = Vec::new();
    // Little-endian, from the third byte of the address on.
    certain(index, b"\x60\xff", |insn| {
        found.extend(legacy_load(insn));
    });
    found.sort_by_key(|load| load.addr);
    found.dedup();
    found
}

fn legacy_load(insn: &Instruction) -> Option<LegacyLoad> {
    if !matches!(insn.code(), Code::Mov_rm64_imm32 | Code::Mov_r64_imm64)
        || !insn.op0_register().is_gpr64()
    {
        return None;
    }
    let call = Legacy::at(insn.immediate(1))?;
    let register = u8::try_from(insn.op0_register().number()).ok()?;
    Some(LegacyLoad {
        addr: insn.ip(),
        call,
        register,
    })
}

/// An instruction, or a pointer, whose answer may differ between copies of a program and that nothing intercepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    pub addr: u64,
    pub what: &'static str,
}

/// All of them that are certainly instructions, and words of data that name the vsyscall page, in address order.
pub fn find_open(module: &Module<'_>) -> Vec<Open> {
    let index = Index::new(module);
    let mut found = Vec::new();
    for opcode in [b"\x0f\x00", b"\x0f\x01", b"\x0f\x03", b"\x0f\xae"] {
        certain(&index, opcode, |insn| {
            found.extend(named(insn).map(|what| Open {
                addr: insn.ip(),
                what,
            }));
        });
    }
    for view in module.code.iter().chain(&module.data) {
        for at in memchr::memmem::find_iter(view.bytes, b"\x60\xff\xff\xff\xff\xff") {
            let Some(word) = at
                .checked_sub(2)
                .and_then(|from| view.bytes.get(from..from + 8))
            else {
                continue;
            };
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            let addr = view.addr + at as u64 - 2;
            // An immediate of an instruction is no word of data.
            let code = index.unit_holding(addr).is_some();
            if !code && Legacy::at(word).is_some() {
                found.push(Open {
                    addr,
                    what: "a call of the vsyscall page",
                });
            }
        }
    }
    found.sort_by_key(|open| open.addr);
    found.dedup();
    found
}

fn named(insn: &Instruction) -> Option<&'static str> {
    Some(match insn.mnemonic() {
        Mnemonic::Lsl => "lsl",
        Mnemonic::Sgdt => "sgdt",
        Mnemonic::Sidt => "sidt",
        Mnemonic::Sldt => "sldt",
        Mnemonic::Str => "str",
        Mnemonic::Smsw => "smsw",
        Mnemonic::Umwait => "umwait",
        Mnemonic::Tpause => "tpause",
        Mnemonic::Rdpru => "rdpru",
        _ => return None,
    })
}

/// Every instruction around these bytes whose function decodes without a doubt.
fn certain(index: &Index<'_>, bytes: &[u8; 2], mut each: impl FnMut(&Instruction)) {
    for view in &index.code {
        for at in memchr::memmem::find_iter(view.bytes, bytes) {
            if let Some(insn) = index.certain_at(view.addr + at as u64) {
                each(&insn);
            }
        }
    }
}
