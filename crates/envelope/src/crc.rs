//! CRC32C by tables: eight bytes a step, no processor instruction.
//!
//! Independent on purpose of [`steadfast_digest`], which uses the instruction where there is one.
//! The polynomial is Castagnoli's, reflected: 0x82f63b78. Table `k` holds the remainder of a byte
//! that is followed by `k` zero bytes, so eight look-ups advance by eight bytes at once.

const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = (rest >> 1) ^ if rest & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = rest;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// The checksum of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    append(0, bytes)
}

/// The checksum of a message whose first part has the checksum `so_far` and whose rest is `bytes`.
#[must_use]
pub fn append(so_far: u32, bytes: &[u8]) -> u32 {
    let mut rest = !so_far;
    let (chunks, tail) = bytes.as_chunks::<8>();
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk) ^ u64::from(rest);
        rest = 0;
        for (table, byte) in TABLES.iter().rev().zip(word.to_le_bytes()) {
            rest ^= table[usize::from(byte)];
        }
    }
    for &byte in tail {
        rest = (rest >> 8) ^ TABLES[0][usize::from(byte ^ (rest & 0xff).to_le_bytes()[0])];
    }
    !rest
}
