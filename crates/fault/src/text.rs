//! Small text helpers for parsers: strict numbers, and the nearest known word for an error.

/// Parses a decimal or `0x` hexadecimal number: no sign, no separators, no leading `+`.
pub(crate) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // from_str_radix tolerates a leading '+', which would make two spellings of one number.
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// The known word closest to `word`, if it is close enough to be a likely slip.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Two edits at most, and never more than half of the word: beyond that a guess misleads.
    let limit = 2.min(word.len().div_ceil(2));
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|&(edits, _)| edits <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance, one row at a time.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_spelling_per_radix() {
        assert_eq!(number("17"), Some(17));
        assert_eq!(number("0x1a"), Some(26));
        assert_eq!(number("18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "0x",
            "+1",
            "-1",
            "1_000",
            "18446744073709551616",
            "1a",
            " 1",
        ] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_slip_finds_its_word_and_noise_finds_none() {
        assert_eq!(nearest("rex", ["rax", "rsp"]), Some("rax"));
        assert_eq!(nearest("replca", ["replica", "reg"]), Some("replica"));
        assert_eq!(nearest("quux", ["rax", "rbx"]), None);
    }
}
