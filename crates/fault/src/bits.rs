//! The set of bits that a fault touches.
//!
//! Invariants
//!  1. A set that a fault carries is not empty and names no bit twice.
//!  2. It prints in one way: as bits and ranges when that is short, else as a mask.

use std::fmt;

use crate::text;

/// Widest thing that a fault can touch: one ZMM register, or 64 bytes of memory.
pub(super) const WIDTH_MAX: u16 = 512;

const WORDS: usize = (WIDTH_MAX / 64) as usize;

/// A printed list of more runs than this is harder to read than the mask.
const RUNS_MAX: usize = 8;

/// A set of bit positions below 512; bit 0 is the least significant bit of a register, or of the
/// byte at the lowest address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bits([u64; WORDS]);

impl Bits {
    /// The set that holds only `bit`; nothing if there is no such bit.
    #[must_use]
    pub fn single(bit: u16) -> Option<Self> {
        let mut set = Self::default();
        set.insert(bit).then_some(set)
    }

    /// Adds a bit; false if it was there or cannot be.
    pub fn insert(&mut self, bit: u16) -> bool {
        let Some(word) = self.0.get_mut(usize::from(bit / 64)) else {
            return false;
        };
        let fresh = *word & (1 << (bit % 64)) == 0;
        *word |= 1 << (bit % 64);
        fresh
    }

    /// Whether `bit` is in the set.
    #[must_use]
    pub fn contains(&self, bit: u16) -> bool {
        self.0
            .get(usize::from(bit / 64))
            .is_some_and(|word| word & (1 << (bit % 64)) != 0)
    }

    /// Positions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..WIDTH_MAX).filter(|&bit| self.contains(bit))
    }

    /// Number of bits in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The most significant bit; nothing if the set is empty.
    #[must_use]
    pub fn highest(&self) -> Option<u16> {
        self.iter().last()
    }

    /// As words, least significant first: the form in which engines XOR.
    #[must_use]
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// Maximal runs of neighbours, ascending.
    fn runs(&self) -> Vec<(u16, u16)> {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for bit in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == bit => *last = bit,
                _ => runs.push((bit, bit)),
            }
        }
        runs
    }

    /// Reads the value of `bits=`: numbers and ranges, ascending or not, none twice.
    pub(super) fn parse_list(list: &str) -> Result<Self, String> {
        let position = |s: &str| -> Result<u16, String> {
            text::number(s)
                .and_then(|n| u16::try_from(n).ok())
                .filter(|&n| n < WIDTH_MAX)
                .ok_or_else(|| format!("a bit is a number below {WIDTH_MAX}, not '{s}'"))
        };
        let mut set = Self::default();
        for part in list.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (position(first)?, position(last)?),
                None => (position(part)?, position(part)?),
            };
            if first > last {
                return Err(format!("a range ascends, unlike '{part}'"));
            }
            for bit in first..=last {
                if !set.insert(bit) {
                    return Err(format!("bit {bit} is listed twice"));
                }
            }
        }
        Ok(set)
    }

    /// Reads the value of `mask=`: 0x and hexadecimal digits, not zero.
    pub(super) fn parse_mask(mask: &str) -> Result<Self, String> {
        let digits = mask
            .strip_prefix("0x")
            .ok_or("a mask is 0x and hexadecimal digits")?;
        let mut set = Self::default();
        for (place, digit) in digits.bytes().rev().enumerate() {
            let value = char::from(digit)
                .to_digit(16)
                .ok_or("a mask is 0x and hexadecimal digits")?;
            let place = u16::try_from(place).unwrap_or(u16::MAX).saturating_mul(4);
            for bit in (0..4).filter(|bit| value >> bit & 1 == 1) {
                if !set.insert(place.saturating_add(bit)) {
                    return Err(format!("a mask has at most {WIDTH_MAX} bits"));
                }
            }
        }
        if set == Self::default() {
            Err("a mask of zero changes nothing".to_owned())
        } else {
            Ok(set)
        }
    }
}

impl fmt::Debug for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bits({self})")
    }
}

/// The clause as the grammar spells it: `bit=3`, `bits=3,5-7` or `mask=0x..`.
impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.runs();
        if let [(first, last)] = runs[..]
            && first == last
        {
            return write!(f, "bit={first}");
        }
        if runs.len() > RUNS_MAX {
            let mut words = self.0.iter().rev().skip_while(|&&word| word == 0);
            write!(f, "mask={:#x}", words.next().unwrap_or(&0))?;
            return words.try_for_each(|word| write!(f, "{word:016x}"));
        }
        f.write_str("bits=")?;
        for (i, (first, last)) in runs.into_iter().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
        }
        Ok(())
    }
}
