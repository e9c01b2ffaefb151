//! Register names: everything a fault can be put into besides memory.
//!
//! A name selects a part of a full register, so `eax`, `ah` and `xmm3.d2` are places, not sizes:
//! a fault in `eax` touches the low 32 bits of `rax` and nothing else. (A *write* to `eax` clears
//! the upper half; a fault is not a write.)
//!
//! Invariant: a name prints as it was read, in lower case, and bit numbers are relative to the
//! named part.
//!
//! Not covered: x87 and MMX registers, segment selectors, control and debug registers.

use std::fmt;
use std::str::FromStr;

use crate::text;

/// A general-purpose register by its hardware number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gpr(u8);

/// 64-bit names in the order of the hardware numbers (Intel SDM vol. 2, table 3-1).
const GPR64: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
const GPR32: [&str; 16] = [
    "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d",
    "r13d", "r14d", "r15d",
];
const GPR16: [&str; 16] = [
    "ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8w", "r9w", "r10w", "r11w", "r12w", "r13w",
    "r14w", "r15w",
];
const GPR8_LOW: [&str; 16] = [
    "al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil", "r8b", "r9b", "r10b", "r11b", "r12b",
    "r13b", "r14b", "r15b",
];
/// Only the first four registers have an addressable second byte.
const GPR8_HIGH: [&str; 4] = ["ah", "ch", "dh", "bh"];

impl Gpr {
    /// The register with this hardware number, 0 to 15.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number < 16 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Hardware number, as encoded in ModRM and REX.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The register of this 64-bit name.
    #[must_use]
    pub fn from_name64(name: &str) -> Option<Self> {
        index_of(&GPR64, name).map(Self)
    }
}

impl fmt::Display for Gpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(GPR64[usize::from(self.0)])
    }
}

/// The part of a general-purpose register that a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GprPart {
    /// Bits 0 to 7.
    Low8,
    /// Bits 8 to 15, of rax, rcx, rdx and rbx only.
    High8,
    /// Bits 0 to 15.
    Low16,
    /// Bits 0 to 31.
    Low32,
    /// All 64 bits.
    Full,
}

/// The width by which a vector register is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VectorWidth {
    /// 128 bits.
    Xmm,
    /// 256 bits.
    Ymm,
    /// 512 bits.
    Zmm,
}

impl VectorWidth {
    const fn bits(self) -> u16 {
        match self {
            Self::Xmm => 128,
            Self::Ymm => 256,
            Self::Zmm => 512,
        }
    }
}

/// One element of a vector register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// Width of the element: 8, 16, 32 or 64 bits.
    pub width: LaneWidth,
    /// Which one, from the least significant end.
    pub index: u8,
}

/// Width of a vector element, by the letter Intel uses for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneWidth {
    /// 8 bits.
    Byte,
    /// 16 bits.
    Word,
    /// 32 bits.
    Dword,
    /// 64 bits.
    Qword,
}

impl LaneWidth {
    const fn bits(self) -> u16 {
        match self {
            Self::Byte => 8,
            Self::Word => 16,
            Self::Dword => 32,
            Self::Qword => 64,
        }
    }

    const fn letter(self) -> char {
        match self {
            Self::Byte => 'b',
            Self::Word => 'w',
            Self::Dword => 'd',
            Self::Qword => 'q',
        }
    }
}

/// A register, or a named part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Register {
    /// A general-purpose register.
    Gpr(Gpr, GprPart),
    /// The flags, 64 bits, of which the processor uses the documented ones.
    Flags,
    /// A vector register under one of its three names, or a lane of it.
    Vector {
        /// 0 to 31.
        index: u8,
        /// The name by which it was given.
        width: VectorWidth,
        /// One element, or the whole.
        lane: Option<Lane>,
    },
    /// An AVX-512 mask register, k0 to k7.
    Mask(u8),
    /// Control and status of vector arithmetic.
    Mxcsr,
    /// Base of thread-local storage.
    FsBase,
    /// Base of the other segment.
    GsBase,
}

impl Register {
    /// Number of bits that can be hit under this name.
    #[must_use]
    pub const fn bits(self) -> u16 {
        match self {
            Self::Gpr(_, GprPart::Low8 | GprPart::High8) => 8,
            Self::Gpr(_, GprPart::Low16) => 16,
            Self::Gpr(_, GprPart::Low32) | Self::Mxcsr => 32,
            Self::Gpr(_, GprPart::Full)
            | Self::Flags
            | Self::Mask(_)
            | Self::FsBase
            | Self::GsBase => 64,
            Self::Vector {
                width, lane: None, ..
            } => width.bits(),
            Self::Vector {
                lane: Some(lane), ..
            } => lane.width.bits(),
        }
    }

    /// Bit of the full register at which this name begins.
    #[must_use]
    pub const fn first_bit(self) -> u16 {
        match self {
            Self::Gpr(_, GprPart::High8) => 8,
            Self::Vector {
                lane: Some(lane), ..
            } => lane.width.bits() * lane.index as u16,
            _ => 0,
        }
    }
}

fn index_of(names: &[&str], name: &str) -> Option<u8> {
    names
        .iter()
        .position(|&n| n == name)
        .and_then(|i| u8::try_from(i).ok())
}

/// All names without a lane, for suggestions and tests.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    [
        &GPR64[..],
        &GPR32,
        &GPR16,
        &GPR8_LOW,
        &GPR8_HIGH,
        &["rflags", "mxcsr", "fsbase", "gsbase"],
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The flags that a program can see the result of, with their bit in rflags.
pub(super) const FLAGS: [(&str, u16); 7] = [
    ("cf", 0),
    ("pf", 2),
    ("af", 4),
    ("zf", 6),
    ("sf", 7),
    ("df", 10),
    ("of", 11),
];

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Gpr(gpr, part) => {
                let n = usize::from(gpr.0);
                f.write_str(match part {
                    GprPart::Low8 => GPR8_LOW[n],
                    // There is no such name for the other twelve; the parser cannot make one.
                    GprPart::High8 => GPR8_HIGH[n % GPR8_HIGH.len()],
                    GprPart::Low16 => GPR16[n],
                    GprPart::Low32 => GPR32[n],
                    GprPart::Full => GPR64[n],
                })
            }
            Self::Flags => f.write_str("rflags"),
            Self::Vector { index, width, lane } => {
                let letter = match width {
                    VectorWidth::Xmm => 'x',
                    VectorWidth::Ymm => 'y',
                    VectorWidth::Zmm => 'z',
                };
                write!(f, "{letter}mm{index}")?;
                match lane {
                    Some(lane) => write!(f, ".{}{}", lane.width.letter(), lane.index),
                    None => Ok(()),
                }
            }
            Self::Mask(k) => write!(f, "k{k}"),
            Self::Mxcsr => f.write_str("mxcsr"),
            Self::FsBase => f.write_str("fsbase"),
            Self::GsBase => f.write_str("gsbase"),
        }
    }
}

impl FromStr for Register {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let tables: [(&[&str], GprPart); 5] = [
            (&GPR64, GprPart::Full),
            (&GPR32, GprPart::Low32),
            (&GPR16, GprPart::Low16),
            (&GPR8_LOW, GprPart::Low8),
            (&GPR8_HIGH, GprPart::High8),
        ];
        for (table, part) in tables {
            if let Some(n) = index_of(table, name) {
                return Ok(Self::Gpr(Gpr(n), part));
            }
        }
        match name {
            "rflags" => return Ok(Self::Flags),
            "mxcsr" => return Ok(Self::Mxcsr),
            "fsbase" => return Ok(Self::FsBase),
            "gsbase" => return Ok(Self::GsBase),
            _ => {}
        }
        vector(name)
            .or_else(|| mask(name))
            .ok_or_else(|| match text::nearest(name, names()) {
                Some(near) => format!("reg={near}"),
                None => {
                    "a name such as rax, r8d, al, rflags, xmm3, ymm3.q2, k1 or fsbase".to_owned()
                }
            })
    }
}

/// Small number without leading zeros, so that a register has one spelling.
fn small(digits: &str, below: u16) -> Option<u8> {
    if digits.len() > 1 && digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|&n: &u8| u16::from(n) < below)
}

fn mask(name: &str) -> Option<Register> {
    small(name.strip_prefix('k')?, 8).map(Register::Mask)
}

fn vector(name: &str) -> Option<Register> {
    let (register, lane) = match name.split_once('.') {
        Some((register, lane)) => (register, Some(lane)),
        None => (name, None),
    };
    let (width, digits) = [
        (VectorWidth::Xmm, "xmm"),
        (VectorWidth::Ymm, "ymm"),
        (VectorWidth::Zmm, "zmm"),
    ]
    .into_iter()
    .find_map(|(width, prefix)| Some((width, register.strip_prefix(prefix)?)))?;
    let index = small(digits, 32)?;
    let lane = match lane {
        None => None,
        Some(lane) => {
            let lane_width = [
                LaneWidth::Byte,
                LaneWidth::Word,
                LaneWidth::Dword,
                LaneWidth::Qword,
            ]
            .into_iter()
            .find(|w| lane.starts_with(w.letter()))?;
            Some(Lane {
                width: lane_width,
                index: small(&lane[1..], width.bits() / lane_width.bits())?,
            })
        }
    };
    Some(Register::Vector { index, width, lane })
}
