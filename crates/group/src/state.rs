//! States between their making and their use: minutes in memory, hours on disk, and the network. A digest at their end goes with them.

use steadfast_digest::Vote128;

/// Bytes of the digest.
const LENGTH: usize = 16;

/// A state with the digest of its bytes behind it.
#[must_use]
pub fn sealed(mut state: Vec<u8>) -> Vec<u8> {
    let digest = Vote128::new().part(&state).finish();
    state.extend_from_slice(&digest.to_le_bytes());
    state
}

/// The state, if it still fits its digest.
#[must_use]
pub fn opened(bytes: &[u8]) -> Option<&[u8]> {
    let (state, digest) = bytes.split_last_chunk::<LENGTH>()?;
    let fits = Vote128::new().part(state).finish() == u128::from_le_bytes(*digest);
    fits.then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_opened_as_it_was_sealed_and_not_with_a_bit_that_flipped() {
        let kept = sealed(b"a whole state".to_vec());
        assert_eq!(opened(&kept), Some(&b"a whole state"[..]));
        for bit in 0..kept.len() * 8 {
            let mut hit = kept.clone();
            hit[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opened(&hit), None, "bit {bit}");
        }
        assert_eq!(opened(&kept[1..]), None);
        assert_eq!(opened(b"short"), None);
    }
}
