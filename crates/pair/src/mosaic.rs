//! Mosaic: a page that is wrong on both disks, put together from what each of them has left of it. Pure: bytes in, bytes out.
//!
//! Nobody guesses: what is put together is right because the ledger's 128-bit digest fits it, and nothing else does. Three
//! ways are tried, at most 70,000 pages in all, so that by chance one of 2^111 wrong pages would pass.
//!
//! ```text
//!   each bit in which the two differ is one or the other's       a bit has flipped on each
//!   each sector in which the two differ is one or the other's    one is torn, the other one lacks another part
//!   one bit of either page                                       a bit has flipped on one, the other one is anything
//! ```
//!
//! Not covered: more bits and sectors than these, and digests of 32 bits, which would fit a wrong page now and then.

use crate::page::PAGE;

const SECTOR: usize = 512;
/// Of which each may be one page's or the other's: 4,096 ways.
const BITS_MAX: usize = 12;

/// The page that `is_right` says yes to, if the two hold it between them. Both are as long as the page is.
pub(crate) fn put_together(
    a: &[u8],
    b: &[u8],
    is_right: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    if a.len() != b.len() || a.len() > PAGE {
        return None;
    }
    let bits: Vec<usize> = (0..8 * a.len())
        .filter(|bit| (a[bit / 8] ^ b[bit / 8]) >> (bit % 8) & 1 == 1)
        .take(BITS_MAX + 1)
        .collect();
    let mut page = a.to_vec();
    if bits.len() <= BITS_MAX {
        for choice in 1..1_usize << bits.len() {
            // Gray's order: one place changes at a time.
            let bit = bits[choice.trailing_zeros() as usize];
            page[bit / 8] ^= 1 << (bit % 8);
            if is_right(&page) {
                return Some(page);
            }
        }
    } else {
        let sectors: Vec<usize> = (0..a.len())
            .step_by(SECTOR)
            .filter(|at| a[*at..].chunks(SECTOR).next() != b[*at..].chunks(SECTOR).next())
            .collect();
        for choice in 1..1_usize << sectors.len() {
            let from = sectors[choice.trailing_zeros() as usize];
            let to = (from + SECTOR).min(a.len());
            let other = if page[from..to] == a[from..to] { b } else { a };
            page[from..to].copy_from_slice(&other[from..to]);
            if is_right(&page) {
                return Some(page);
            }
        }
    }
    for wrong in [a, b] {
        page.copy_from_slice(wrong);
        for bit in 0..8 * page.len() {
            page[bit / 8] ^= 1 << (bit % 8);
            if is_right(&page) {
                return Some(page);
            }
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Vec<u8> {
        (0..PAGE)
            .map(|at| u8::try_from(at * 31 % 251).expect("below 251"))
            .collect()
    }

    /// The page with these bytes changed.
    fn with(changes: &[(usize, u8)]) -> Vec<u8> {
        let mut page = page();
        for (at, by) in changes {
            page[*at] ^= by;
        }
        page
    }

    fn together(a: &[u8], b: &[u8], right: &[u8]) -> bool {
        let made = put_together(a, b, |page| page == right);
        assert!(made.as_deref().is_none_or(|made| made == right));
        made.is_some()
    }

    #[test]
    fn bits_that_have_flipped_on_both_are_put_right_wherever_they_are() {
        let right = page();
        for other in [(2000, 2), (2001, 1), (0, 128), (PAGE - 1, 1)] {
            assert!(together(&with(&[(2000, 1)]), &with(&[other]), &right));
        }
        let several = with(&[(1, 1), (2, 1), (3, 1), (4, 7)]);
        assert!(together(&several, &with(&[(9, 63)]), &right), "12 bits");
    }

    #[test]
    fn sectors_of_either_page_make_one() {
        let (right, old) = (page(), vec![0xee; PAGE]);
        let torn = [&right[..PAGE / 2], &old[PAGE / 2..]].concat();
        let other = [&old[..SECTOR], &right[SECTOR..]].concat();
        assert!(together(&torn, &other, &right));
        assert!(together(&other, &torn, &right));
        assert!(
            together(&old, &with(&[(70, 4)]), &right),
            "one bit, and nothing"
        );
        let short = &right[..1234];
        assert!(together(&old[..1234], &with(&[(1233, 4)])[..1234], short));
    }

    #[test]
    fn what_is_nowhere_is_not_made_up() {
        let (right, old) = (page(), vec![0xee; PAGE]);
        assert!(!together(&old, &with(&[(70, 4), (71, 4)]), &right));
        let many = with(&[(1, 255), (2, 255)]);
        assert!(
            !together(&many, &with(&[(3, 255)]), &right),
            "in one sector"
        );
        assert!(!together(&old[..9], &old, &right), "one is shorter");
    }
}
