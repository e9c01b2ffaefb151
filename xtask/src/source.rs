//! Source: what `xtask tidy` asks of Rust beside its form. Rules are functions of the text.
//!
//! Not covered: items that only a macro names, methods of the same name as another's.

use std::collections::BTreeMap;
use std::path::Path;

use crate::complaint::{Complaint, Pages, complaint};

const TEST_LINES_MAX: usize = 600;

/// What begins a public item, and the attributes of those that are named elsewhere than in Rust.
const ITEMS: [&str; 7] = ["fn", "struct", "enum", "const", "static", "trait", "type"];
/// What may stand in front of `fn`. `const` is an item of its own as well: what follows it tells.
const QUALIFIERS: [&str; 5] = ["const", "async", "unsafe", "extern", "C"];
const EXPORTS: [&str; 4] = [
    "#[unsafe(no_mangle)]",
    "#[no_mangle]",
    "#[proc_macro",
    "#[doc = include_str!",
];

/// Files of tests that nobody reads to the end.
pub(crate) fn long_tests(rust: &Pages) -> Vec<Complaint> {
    let of_tests = |file: &str| {
        let path = Path::new(file);
        path.file_stem().is_some_and(|stem| stem == "tests")
            || path.components().any(|part| part.as_os_str() == "tests")
    };
    rust.iter()
        .filter(|(file, _)| of_tests(file))
        .filter_map(|(file, text)| {
            let found = text.lines().count();
            let why = format!("{found} lines of tests, at most {TEST_LINES_MAX} are allowed");
            (found > TEST_LINES_MAX).then(|| complaint(file, 1, why))
        })
        .collect()
}

/// Public items that no other line of Rust names. What a macro or a doctest exports has an attribute before it.
pub(crate) fn unnamed(rust: &Pages) -> Vec<Complaint> {
    let words = |line: &str| -> Vec<String> {
        let code = line.split("//").next().unwrap_or_default();
        code.split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    for line in rust.values().flat_map(|text| text.lines()) {
        for word in words(line) {
            *named.entry(word).or_default() += 1;
        }
    }
    let mut complaints = Vec::new();
    for (file, text) in rust {
        let mut attribute = false;
        for (at, line) in text.lines().enumerate() {
            let item = line
                .trim_start()
                .strip_prefix("pub ")
                .and_then(|rest| name_of(&words(rest)));
            if let Some(item) = item.filter(|item| !attribute && named[item] == 1) {
                let why = format!("nobody names {item}");
                complaints.push(complaint(file, at + 1, why));
            }
            let line = line.trim_start();
            attribute = EXPORTS.iter().any(|export| line.starts_with(export));
        }
    }
    complaints
}

/// The name of a public item, from the words behind `pub`.
fn name_of(words: &[String]) -> Option<String> {
    let behind = words
        .iter()
        .find(|word| !QUALIFIERS.contains(&word.as_str()));
    let kind = if behind.is_some_and(|word| word == "fn") {
        words.iter().position(|word| word == "fn")
    } else {
        words.iter().position(|word| ITEMS.contains(&word.as_str()))
    }?;
    // `static mut NAME`.
    words[kind + 1..]
        .iter()
        .find(|word| *word != "mut")
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_item_that_nobody_names_and_a_long_file_of_tests_are_found() {
        let pages = |files: &[(&str, &str)]| -> Pages {
            let own = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
            files.iter().map(own).collect()
        };
        let found = unnamed(&pages(&[
            (
                "a.rs",
                "pub fn alone() {}\npub const fn used() {}\n#[no_mangle]\npub fn out() {}\n",
            ),
            ("b.rs", "fn f() { used() } // alone\n"),
        ]));
        assert_eq!(
            found,
            [complaint("a.rs", 1, "nobody names alone".to_owned())]
        );
        for item in [
            "pub const fn idle() {}",
            "pub unsafe fn idle() {}",
            "pub async fn idle() {}",
            "pub const unsafe fn idle() {}",
            "pub unsafe extern \"C\" fn idle() {}",
            "pub const idle: u8 = 0;",
            "pub static mut idle: u8 = 0;",
            "pub unsafe trait idle {}",
        ] {
            let found = unnamed(&pages(&[("a.rs", item)]));
            let why = "nobody names idle".to_owned();
            assert_eq!(found, [complaint("a.rs", 1, why)], "{item}");
        }
        let long = "\n".repeat(601);
        let found = long_tests(&pages(&[("a/tests/b.rs", &long), ("a/b.rs", &long)]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(long_tests(&pages(&[("a/tests.rs", &long[1..])])), []);
    }
}
