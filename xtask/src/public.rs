//! Public items that nobody names, or tests alone.
//!
//! The compiler tells of private items that nobody uses. A public one might have its user in another crate: all of them are at hand here.
//!
//! Code of tests is what lies in `tests.rs` or below `tests/`, what stands under `#[cfg(test)]`, and functions under `#[test]`. What only it
//! names is dead, but for what a guide shows to users of a library. `pub use` names nothing: whoever needs the item names it there.
//!
//! Not covered: an item that shares its name with a word of other code, as methods do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::complaint::{Complaint, Pages, complaint};

/// What begins an item that has a name.
const ITEMS: [&str; 7] = ["fn", "struct", "enum", "const", "static", "trait", "type"];
/// What may stand between `pub` and `fn`, `trait` or `impl`.
const QUALIFIERS: [&str; 4] = ["const", "async", "unsafe", "extern"];
/// What begins an item, a statement or a variant with an end of its own. A field's and an argument's is a comma.
const BLOCKS: [&str; 8] = ["pub", "mod", "use", "impl", "let", "struct", "enum", "type"];
/// Attributes of items that are named elsewhere than in Rust.
const EXPORTS: [&str; 4] = [
    "unsafe(no_mangle)",
    "no_mangle",
    "proc_macro",
    "doc=include_str!",
];

/// Pages whose code is written for users of a library: what they name has its users elsewhere.
const GUIDES: &str = "docs/guide/";

/// Whether a file has nothing but tests and what they share.
pub(crate) fn is_of_tests(file: &str) -> bool {
    let path = Path::new(file);
    path.file_stem().is_some_and(|stem| stem == "tests")
        || path.components().any(|part| part.as_os_str() == "tests")
}

/// Public items that nothing names but their own line, or that only tests do.
pub(crate) fn unnamed(rust: &Pages, pages: &Pages) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut readings = BTreeMap::new();
    for (file, text) in rust {
        match text.parse::<TokenStream>() {
            Ok(tokens) => {
                let mut reading = Reading::default();
                reading.read(tokens, is_of_tests(file));
                readings.insert(file.as_str(), reading);
            }
            Err(why) => complaints.push(complaint(file, 1, format!("no Rust: {why}"))),
        }
    }
    let modules: Vec<String> = readings
        .iter()
        .flat_map(|(file, reading)| reading.modules.iter().map(move |name| below(file, name)))
        .collect();
    let is_of_module = |file: &str| {
        let stem = file.trim_end_matches(".rs");
        let is_it = |module: &String| {
            stem.strip_prefix(module.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        modules.iter().any(is_it)
    };
    for (file, reading) in &mut readings {
        if is_of_module(file) {
            reading.all_is_of_tests();
        }
    }
    let (product, all) = (named(&readings, true), named(&readings, false));
    let offered: BTreeSet<&str> = pages
        .iter()
        .filter(|(page, _)| page.starts_with(GUIDES))
        .flat_map(|(_, text)| code_words(text))
        .collect();
    for (file, reading) in &readings {
        for item in &reading.items {
            let name = &item.name;
            let why = if all.is_dead(name) {
                format!("nobody names {name}")
            } else if !item.of_tests && product.is_dead(name) {
                format!("tests alone name {name}")
            } else {
                continue;
            };
            if !offered.contains(name.as_str()) {
                complaints.push(complaint(file, item.line, why));
            }
        }
    }
    complaints
}

/// The words of a page's code, in lines and in blocks.
fn code_words(page: &str) -> impl Iterator<Item = &str> {
    let code = page.split('`').skip(1).step_by(2);
    code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'))
}

/// Where the file of a module lies that another one declares, without its ending.
fn below(file: &str, module: &str) -> String {
    let stem = file.trim_end_matches(".rs");
    match stem.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => format!("{folder}/{module}"),
        _ => format!("{stem}/{module}"),
    }
}

/// How often words stand in some code, and how often as the name of a public item's definition.
struct Named {
    words: BTreeMap<String, usize>,
    definitions: BTreeMap<String, usize>,
}

impl Named {
    /// Whether it stands nowhere but where it is defined.
    fn is_dead(&self, name: &str) -> bool {
        let count = |of: &BTreeMap<String, usize>| of.get(name).copied().unwrap_or(0);
        count(&self.words) <= count(&self.definitions)
    }
}

fn named(readings: &BTreeMap<&str, Reading>, product_only: bool) -> Named {
    let mut named = Named {
        words: BTreeMap::new(),
        definitions: BTreeMap::new(),
    };
    for reading in readings.values() {
        for ((word, of_tests), count) in &reading.words {
            if !(product_only && *of_tests) {
                *named.words.entry(word.clone()).or_default() += count;
            }
        }
        for item in &reading.items {
            if !(product_only && item.of_tests) {
                *named.definitions.entry(item.name.clone()).or_default() += 1;
            }
        }
    }
    named
}

struct Item {
    name: String,
    line: usize,
    of_tests: bool,
}

/// What one file defines and names.
#[derive(Default)]
struct Reading {
    /// Public items that Rust alone can name.
    items: Vec<Item>,
    /// How often a word stands in code of tests, and in other code.
    words: BTreeMap<(String, bool), usize>,
    /// Modules under `#[cfg(test)]` in files of their own.
    modules: Vec<String>,
}

impl Reading {
    fn read(&mut self, tokens: TokenStream, of_tests: bool) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        self.read_trees(&trees, of_tests);
    }

    fn read_trees(&mut self, trees: &[TokenTree], of_tests: bool) {
        let mut attributes = Vec::new();
        let mut at = 0;
        while at < trees.len() {
            if let Some((attribute, next)) = attribute(trees, at) {
                let text = attribute.to_string().replace(' ', "");
                // Comments name nothing.
                if !text.starts_with("doc=") {
                    self.read(attribute, of_tests);
                }
                attributes.push(text);
                at = next;
                continue;
            }
            let attributes = std::mem::take(&mut attributes);
            let is_test = |attribute: &String| attribute == "cfg(test)" || attribute == "test";
            if !of_tests && attributes.iter().any(is_test) {
                let end = end_of_item(trees, at);
                self.modules.extend(module_elsewhere(&trees[at..end]));
                self.read_trees(&trees[at..end], true);
                at = end;
                continue;
            }
            if is_word(trees.get(at), "pub") {
                if is_word(trees.get(at + 1), "use") {
                    let uses = trees[at..].iter().take_while(|tree| !is_punct(tree, ';'));
                    at += uses.count();
                    continue;
                }
                let exported =
                    |attribute: &String| EXPORTS.iter().any(|export| attribute.starts_with(export));
                if !attributes.iter().any(exported) {
                    self.items.extend(item(trees, at, of_tests));
                }
            }
            self.read_tree(&trees[at], of_tests);
            at += 1;
        }
    }

    fn read_tree(&mut self, tree: &TokenTree, of_tests: bool) {
        match tree {
            TokenTree::Group(group) => self.read(group.stream(), of_tests),
            TokenTree::Ident(ident) => self.count(&ident.to_string(), of_tests),
            // Macros that format take names out of braces.
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                for rest in text.split('{').skip(1) {
                    let is_word = |c: char| c.is_alphanumeric() || c == '_';
                    self.count(rest.split(|c| !is_word(c)).next().unwrap_or(""), of_tests);
                }
            }
            TokenTree::Punct(_) => {}
        }
    }

    fn count(&mut self, word: &str, of_tests: bool) {
        *self.words.entry((word.to_owned(), of_tests)).or_default() += 1;
    }

    fn all_is_of_tests(&mut self) {
        for item in &mut self.items {
            item.of_tests = true;
        }
        for ((word, _), count) in std::mem::take(&mut self.words) {
            *self.words.entry((word, true)).or_default() += count;
        }
    }
}

/// The attribute that begins here, and what follows it.
fn attribute(trees: &[TokenTree], at: usize) -> Option<(TokenStream, usize)> {
    let inner = trees.get(at + 1).is_some_and(|tree| is_punct(tree, '!'));
    let group = at + 1 + usize::from(inner);
    match trees.get(group) {
        Some(TokenTree::Group(it))
            if is_punct(&trees[at], '#') && it.delimiter() == Delimiter::Bracket =>
        {
            Some((it.stream(), group + 1))
        }
        _ => None,
    }
}

/// The public item that begins here, unless it is a field, a module or not for everybody (`pub(crate)`).
fn item(trees: &[TokenTree], at: usize, of_tests: bool) -> Option<Item> {
    let word = |at: usize| match trees.get(at) {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    };
    let mut kind = at + 1;
    // `const` is an item of its own as well: what follows it tells.
    while word(kind).is_some_and(|it| QUALIFIERS.contains(&it.as_str()))
        || matches!(trees.get(kind), Some(TokenTree::Literal(_)))
    {
        let next = word(kind + 1);
        let is_constant = word(kind).is_some_and(|it| it == "const")
            && !next.is_some_and(|it| it == "fn" || QUALIFIERS.contains(&it.as_str()));
        if is_constant {
            break;
        }
        kind += 1;
    }
    word(kind).filter(|it| ITEMS.contains(&it.as_str()))?;
    let name = kind + 1 + usize::from(is_word(trees.get(kind + 1), "mut"));
    Some(Item {
        name: word(name)?,
        line: trees[name].span().start().line,
        of_tests,
    })
}

/// One past the last token of what begins here: an item, a statement, a field.
fn end_of_item(trees: &[TokenTree], from: usize) -> usize {
    let first = trees.get(from).map(ToString::to_string).unwrap_or_default();
    let has_end = [&ITEMS[..], &QUALIFIERS[..], &BLOCKS[..]]
        .iter()
        .any(|words| words.contains(&first.as_str()));
    let ends = |tree: &TokenTree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        tree => is_punct(tree, ';') || !has_end && is_punct(tree, ','),
    };
    let length = trees[from..].iter().position(ends);
    length.map_or(trees.len(), |length| from + length + 1)
}

/// The name in `mod NAME;`.
fn module_elsewhere(trees: &[TokenTree]) -> Option<String> {
    let at = trees.iter().position(|tree| is_word(Some(tree), "mod"))?;
    let is_elsewhere = trees.last().is_some_and(|tree| is_punct(tree, ';'));
    is_elsewhere.then(|| trees.get(at + 1).map(ToString::to_string))?
}

fn is_word(tree: Option<&TokenTree>, word: &str) -> bool {
    matches!(tree, Some(TokenTree::Ident(ident)) if *ident == word)
}

fn is_punct(tree: &TokenTree, c: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let own = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
        let (rust, pages): (Pages, Pages) = files
            .iter()
            .map(own)
            .partition(|(file, _)| file.ends_with(".rs"));
        let complaints = unnamed(&rust, &pages);
        complaints
            .iter()
            .map(|it| format!("{}:{} {}", it.file, it.line, it.why))
            .collect()
    }

    #[test]
    fn an_item_that_nobody_names_is_found() {
        let text = "pub fn alone() {}\npub const fn used() {}\n#[no_mangle]\npub fn out() {}\n";
        let other = "fn f() { used() } // alone\n";
        assert_eq!(
            found(&[("a.rs", text), ("b.rs", other)]),
            ["a.rs:1 nobody names alone"]
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
            "impl A { pub fn idle(&self) {} }",
            "pub use below::idle; mod below { pub fn idle() {} }",
        ] {
            let whys = found(&[("a.rs", item)]);
            assert_eq!(whys, ["a.rs:1 nobody names idle"], "{item}");
        }
    }

    #[test]
    fn an_item_that_tests_alone_name_is_found_wherever_they_stand() {
        let dead = ["a/src/lib.rs:1 tests alone name idle"];
        for test in [
            ("a/tests/b.rs", "fn f() { a::idle() }"),
            ("a/src/tests.rs", "fn f() { idle() }"),
            (
                "a/src/b.rs",
                "#[cfg(test)]\nmod tests { fn f() { idle() } }",
            ),
            ("a/src/b.rs", "#[cfg(test)]\nuse crate::idle;\nfn f() {}"),
            ("a/src/b.rs", "#[test]\nfn f() { idle() }"),
            (
                "a/src/b.rs",
                "impl A { #[cfg(test)] #[must_use] fn f(&self) -> u8 { idle() } }",
            ),
            ("a/src/b.rs", "#[cfg(test)]\nmod seam;"),
        ] {
            let seam = ("a/src/b/seam.rs", "fn f() { idle() }");
            let files = [("a/src/lib.rs", "pub fn idle() {}"), test, seam];
            let files = if test.1.ends_with("seam;") {
                &files[..]
            } else {
                &files[..2]
            };
            assert_eq!(found(files), dead, "{test:?}");
        }
    }

    #[test]
    fn an_item_that_other_code_names_is_alive() {
        for user in [
            "fn f() { a::busy() }",
            "#[cfg(test)]\nmod tests {}\nfn f() { busy() }",
            "#[cfg(test)]\nuse b::{c, d};\nfn f() { busy() }",
            "struct A { #[cfg(test)] c: u8, d: [u8; busy()] }",
            "fn f() { assert!(x == 1, \"{busy}\") }",
            "macro_rules! m { () => { $crate::busy() } }",
            "#[serde(with = busy)]\nstruct A;",
            "#[cfg(not(test))]\nfn f() { busy() }",
        ] {
            let files = [("a.rs", "pub fn busy() {}"), ("b.rs", user)];
            assert_eq!(found(&files), [""; 0], "{user}");
        }
        let shared = [
            ("a/tests/common.rs", "pub fn helps() {}"),
            ("a/tests/b.rs", "fn f() { common::helps() }"),
        ];
        assert_eq!(found(&shared), [""; 0]);
    }

    #[test]
    fn an_item_that_a_guide_shows_is_alive() {
        let guide = format!("{GUIDES}a.md");
        let whys = |page: &str, text: &str| found(&[("a.rs", "pub fn shown() {}"), (page, text)]);
        for code in ["Call `a::shown(1)`.", "```rust\na::shown(1)\n```\n"] {
            assert_eq!(whys(&guide, code), [""; 0], "{code}");
        }
        let dead = ["a.rs:1 nobody names shown"];
        assert_eq!(whys(&guide, "`b` is shown, `c` is not."), dead);
        assert_eq!(whys("notes.md", "`shown`"), dead);
    }

    #[test]
    fn a_file_that_is_no_rust_is_named() {
        let whys = found(&[("a.rs", "fn f( {")]);
        assert!(whys[0].starts_with("a.rs:1 no Rust: "), "{whys:?}");
    }
}
