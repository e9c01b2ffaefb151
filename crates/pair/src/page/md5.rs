//! MD5 (RFC 1321), which the paper's variants C1 and C2 have: for comparison, and for nobody who forges pages.

/// Bits by which a round turns, four times each (RFC 1321, 3.4).
const TURNS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

/// The whole part of 2^32 |sin(i + 1)|.
const TABLE: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

fn block(state: &mut [u32; 4], bytes: &[u8]) {
    let word = |n: usize| {
        let at = bytes[4 * n..4 * n + 4].try_into();
        u32::from_le_bytes(at.expect("four bytes"))
    };
    let [mut a, mut b, mut c, mut d] = *state;
    for i in 0..64 {
        let (f, from) = match i / 16 {
            0 => ((b & c) | (!b & d), i),
            1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
            2 => (b ^ c ^ d, (3 * i + 5) % 16),
            _ => (c ^ (b | !d), 7 * i % 16),
        };
        let sum = f.wrapping_add(a).wrapping_add(TABLE[i]);
        let sum = sum.wrapping_add(word(from));
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(TURNS[i / 16][i % 4]));
    }
    for (state, more) in state.iter_mut().zip([a, b, c, d]) {
        *state = state.wrapping_add(more);
    }
}

pub(super) fn md5(bytes: &[u8]) -> u128 {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let whole = bytes.chunks_exact(64);
    let mut last = whole.remainder().to_vec();
    whole.for_each(|part| block(&mut state, part));
    last.push(0x80);
    while last.len() % 64 != 56 {
        last.push(0);
    }
    last.extend((8 * bytes.len() as u64).to_le_bytes());
    last.chunks_exact(64)
        .for_each(|part| block(&mut state, part));
    let mut digest = [0; 16];
    for (to, word) in digest.chunks_exact_mut(4).zip(state) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    u128::from_be_bytes(digest)
}

#[cfg(test)]
mod tests {
    use super::md5;

    /// RFC 1321, A.5.
    #[test]
    fn its_test_suite() {
        for (text, digest) in [
            ("", 0xd41d_8cd9_8f00_b204_e980_0998_ecf8_427e),
            ("abc", 0x9001_5098_3cd2_4fb0_d696_3f7d_28e1_7f72),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                0x57ed_f4a2_2be3_c955_ac49_da2e_2107_b67a,
            ),
        ] {
            assert_eq!(md5(text.as_bytes()), digest, "{text}");
        }
    }
}
