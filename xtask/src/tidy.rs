//! `xtask tidy`: what a reader of pages and code may count on.
//!
//! | Rule | Where |
//! |---|---|
//! | no line over 160 characters, no sentence over 40 words | every page that is not generated, blocks of code excepted |
//! | a link leads to a file, and to a heading if it names one | every page |
//! | `docs/index.md` answers thirty questions at least, each by headings of pages | that page |
//! | the front pages stay short | [`LENGTHS`] |
//! | words that the right column of `docs/glossary.md` retires are gone | every page, every source file |
//! | a page that code names exists, and the heading behind it | every source file |
//! | modules use each other in no circle | every crate |
//! | a public item is named somewhere else, and not by tests alone | all Rust |
//! | functions of one program in C have different names | agent, runtime of `cc`, envelope |
//! | no function over 60 lines | agent |
//! | the list at the head of `bench` has each of its commands | bench/src/lib.rs |
//! | no file of tests over 600 lines | all Rust |
//! | rustfmt has nothing to say | all Rust |
//! | clang-format has nothing to say | C and C++ that stand in a product (`FOLDERS` in format.rs) |
//!
//! Invariants
//!  1. The rules are functions of the text; only [`all`] reads files and runs formatters.
//!  2. Every complaint names file and line.
//!
//! Not covered: whether a sentence is true, and whether a short one is clear.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::complaint::{Complaint, Pages, complaint};
use crate::{circles, format, public, source};

const LINE_CHARS_MAX: usize = 160;
const SENTENCE_WORDS_MAX: usize = 40;
const QUESTIONS_MIN: usize = 30;

/// Pages that everybody reads, and how many lines they may have; of a folder, each page of it.
const LENGTHS: [(&str, usize); 5] = [
    ("README.md", 100),
    ("CHANGELOG.md", 60),
    ("docs/limits.md", 120),
    ("docs/specification.md", 150),
    ("docs/guide/", 200),
];

/// The page that answers questions by links.
const INDEX: &str = "docs/index.md";

/// The page whose right column has the words that have gone.
const GLOSSARY: &str = "docs/glossary.md";

const SOURCES: [&str; 9] = ["rs", "c", "h", "S", "def", "cpp", "policy", "toml", "cc"];

/// Every complaint about the repository.
///
/// # Errors
/// When a folder cannot be read or rustfmt cannot be started.
pub fn all(root: &Path) -> std::io::Result<Vec<Complaint>> {
    let mut files = Vec::new();
    walk(root, root, &mut files)?;
    let is_file = |path: &str| root.join(path).exists();
    let mut pages = Pages::new();
    let mut complaints = Vec::new();
    let mut rust = Pages::new();
    let mut c = Pages::new();
    let mut sources = Vec::new();
    let gone = Retired::read(&fs::read_to_string(root.join(GLOSSARY))?);
    if gone.0.is_empty() {
        complaints.push(complaint(
            GLOSSARY,
            1,
            "no word is retired in the right column".into(),
        ));
    }
    for file in &files {
        let extension = file.rsplit_once('.').map_or("", |(_, end)| end);
        let page = extension == "md";
        if !page && !SOURCES.contains(&extension) {
            continue;
        }
        let Ok(text) = fs::read_to_string(root.join(file)) else {
            continue;
        };
        if page {
            pages.insert(file.clone(), text);
            continue;
        }
        // This file names what is retired, and its tests name pages that do not exist.
        if file != "xtask/src/tidy.rs" {
            complaints.extend(gone.find(file, &text));
            sources.push((file, text.clone()));
        }
        if extension == "rs" {
            rust.insert(file.clone(), text.clone());
        } else if matches!(extension, "c" | "h") {
            c.insert(file.clone(), text.clone());
        }
    }
    for (file, text) in &sources {
        complaints.extend(pointers(file, text, &pages));
    }
    complaints.extend(check_pages(&pages, is_file));
    complaints.extend(source::long_tests(&rust));
    complaints.extend(public::unnamed(&rust, &pages));
    complaints.extend(source::unlisted(&rust));
    complaints.extend(source::shared_names(&c));
    complaints.extend(source::long_functions(&c));
    complaints.extend(in_circles(root, &files)?);
    complaints.extend(format::rust(root, &files)?);
    complaints.extend(format::c(root, &files)?);
    complaints.sort();
    Ok(complaints)
}

fn in_circles(root: &Path, files: &[String]) -> std::io::Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for manifest in files.iter().filter(|file| file.ends_with("/Cargo.toml")) {
        let folder = manifest.trim_end_matches("/Cargo.toml");
        let src = root.join(folder).join("src");
        if !src.is_dir() {
            continue;
        }
        let complain = |why: String| Complaint {
            file: manifest.clone(),
            line: 1,
            why,
        };
        let uses = match circles::uses(&circles::files(&src)?) {
            Ok(uses) => uses,
            Err(why) => {
                complaints.push(complain(why));
                continue;
            }
        };
        let found = circles::circles(&uses);
        for circle in found {
            let names: Vec<String> = circle.into_iter().collect();
            complaints.push(complain(format!(
                "modules that use each other in a circle: {}",
                names.join(", ")
            )));
        }
    }
    Ok(complaints)
}

/// The rules of pages.
pub fn check_pages(pages: &Pages, is_file: impl Fn(&str) -> bool) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let gone = Retired::read(pages.get(GLOSSARY).map_or("", String::as_str));
    for (file, text) in pages {
        if !is_generated(text) {
            complaints.extend(lines(file, text));
            complaints.extend(sentences(file, text));
            if file != GLOSSARY {
                // Names that a format has published stay: they stand in code.
                let text: Vec<String> = text.lines().map(plain).collect();
                complaints.extend(gone.find(file, &text.join("\n")));
            }
        }
        complaints.extend(links(file, text, pages, &is_file));
    }
    for (path, most) in LENGTHS {
        let is_meant = |file: &str| file == path || path.ends_with('/') && file.starts_with(path);
        for (file, text) in pages.iter().filter(|(file, _)| is_meant(file)) {
            let found = text.lines().count();
            if found > most {
                complaints.push(complaint(
                    file,
                    found,
                    format!("{found} lines, at most {most} are allowed"),
                ));
            }
        }
    }
    if let Some(text) = pages.get(INDEX) {
        complaints.extend(answers(text));
    }
    complaints
}

/// The index: enough questions, and a heading for each link that answers one.
fn answers(text: &str) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut found = 0;
    for (at, line) in prose(text) {
        let Some((question, answer)) = line.strip_prefix('|').and_then(|row| row.split_once('|'))
        else {
            continue;
        };
        if !question.contains('?') {
            continue;
        }
        found += 1;
        let targets: Vec<&str> = answer
            .split("](")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once(')')?.0))
            .collect();
        let question = question.trim();
        if targets.is_empty() {
            complaints.push(complaint(
                INDEX,
                at,
                format!("no link answers {question:?}"),
            ));
        }
        for target in targets.iter().filter(|target| !target.contains('#')) {
            let why = format!("{target} answers {question:?}: a heading is required, PAGE#HEADING");
            complaints.push(complaint(INDEX, at, why));
        }
    }
    if found < QUESTIONS_MIN {
        complaints.push(complaint(
            INDEX,
            1,
            format!("{found} questions with an answer, {QUESTIONS_MIN} are required"),
        ));
    }
    complaints
}

fn is_generated(text: &str) -> bool {
    text.starts_with("<!-- Generated")
}

/// The lines of a page with their numbers, blocks of code left out.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            code = !code;
            return None;
        }
        (!code).then_some((at + 1, line))
    })
}

fn lines(file: &str, text: &str) -> Vec<Complaint> {
    prose(text)
        .filter_map(|(at, line)| {
            let found = line.chars().count();
            (found > LINE_CHARS_MAX).then(|| {
                complaint(
                    file,
                    at,
                    format!("{found} characters, at most {LINE_CHARS_MAX} are allowed"),
                )
            })
        })
        .collect()
}

/// A paragraph, an item of a list or a cell of a table, with the line where it begins.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    let mut last = 0;
    for (at, line) in prose(text) {
        // A block of code in between ends a paragraph.
        open = open && at == last + 1;
        last = at;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("<!--") {
            open = false;
        } else if line.starts_with('|') {
            let cells = line
                .split('|')
                .map(str::trim)
                .filter(|cell| !cell.is_empty());
            blocks.extend(cells.map(|cell| (at, cell.to_owned())));
            open = false;
        } else if let Some(item) = item(line) {
            blocks.push((at, item.to_owned()));
            open = true;
        } else if open && let Some((_, block)) = blocks.last_mut() {
            block.push(' ');
            block.push_str(line);
        } else {
            blocks.push((at, line.to_owned()));
            open = true;
        }
    }
    blocks
}

fn item(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("* ").or_else(|| line.strip_prefix("- ")) {
        return Some(rest);
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then_some(())?;
    line[digits..].strip_prefix(". ")
}

/// The text with each piece of code as one word and each link as its words.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', ']']) {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if rest.as_bytes()[at] == b'`' {
            out.push_str("Code");
            rest = tail.find('`').map_or("", |end| &tail[end + 1..]);
        } else if let Some(link) = tail.strip_prefix('(') {
            rest = link.find(')').map_or("", |end| &link[end + 1..]);
        } else {
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

fn sentences(file: &str, text: &str) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (at, block) in blocks(text) {
        let mut words = 0;
        for word in plain(&block).split_whitespace() {
            words += 1;
            let end = word.trim_end_matches([')', '"', '*', '_']);
            if end.ends_with(['.', '!', '?']) {
                complaints.extend(too_long(file, at, words));
                words = 0;
            }
        }
        complaints.extend(too_long(file, at, words));
    }
    complaints
}

fn too_long(file: &str, line: usize, words: usize) -> Option<Complaint> {
    (words > SENTENCE_WORDS_MAX).then(|| {
        complaint(
            file,
            line,
            format!("a sentence of {words} words, at most {SENTENCE_WORDS_MAX} are allowed"),
        )
    })
}

/// Words that have gone, and what is said instead.
struct Retired(Vec<(String, String)>);

impl Retired {
    /// The left and the right column of the glossary.
    fn read(glossary: &str) -> Self {
        let rows = glossary.lines().filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let (instead, _meaning, gone) = (cells.next()?, cells.next()?, cells.next()?);
            let is_head = gone == "Retired" || gone.starts_with('-');
            (!is_head).then_some((instead, gone))
        });
        let words = rows.flat_map(|(instead, gone)| {
            let words = gone.split(',').map(str::trim);
            let words = words.filter(|word| !word.is_empty());
            words.map(|word| (word.to_owned(), instead.to_owned()))
        });
        Self(words.collect())
    }

    /// Where they stand, or their plurals.
    fn find(&self, file: &str, text: &str) -> Vec<Complaint> {
        let mut complaints = Vec::new();
        for (at, line) in text.lines().enumerate() {
            for word in words(line) {
                let singular = word.strip_suffix(['s', 'S']).unwrap_or(word);
                let is_it = |gone: &str| {
                    [word, singular]
                        .iter()
                        .any(|w| w.eq_ignore_ascii_case(gone))
                };
                if let Some((gone, instead)) = self.0.iter().find(|(gone, _)| is_it(gone)) {
                    complaints.push(complaint(
                        file,
                        at + 1,
                        format!("the word {gone:?} is retired: {instead} ({GLOSSARY})"),
                    ));
                }
            }
        }
        complaints
    }
}

/// The words of a line, those of names in snake case and camel case apart.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric()).flat_map(|name| {
        let begins = name.char_indices().zip(name.chars().skip(1));
        let humps = begins.filter(|((_, before), c)| before.is_lowercase() && c.is_uppercase());
        let mut at = 0;
        let mut ends: Vec<usize> = humps
            .map(|((i, before), _)| i + before.len_utf8())
            .collect();
        ends.push(name.len());
        ends.into_iter()
            .map(move |end| &name[std::mem::replace(&mut at, end)..end])
    })
}

/// The anchor of a heading, as code hosts make it.
fn anchor(heading: &str) -> String {
    plain_heading(heading)
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

fn plain_heading(heading: &str) -> String {
    heading.replace(['`', '*'], "").trim().to_owned()
}

fn anchors(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len() && heading.starts_with(' ')).then(|| anchor(heading))
    })
}

fn links(file: &str, text: &str, pages: &Pages, is_file: impl Fn(&str) -> bool) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (at, line) in prose(text) {
        let mut rest = line;
        while let Some(begin) = rest.find("](") {
            rest = &rest[begin + 2..];
            let Some(end) = rest.find(')') else { break };
            let (target, heading) = rest[..end].split_once('#').unwrap_or((&rest[..end], ""));
            rest = &rest[end..];
            if target.contains("://")
                || target.contains(' ')
                || target.is_empty() && heading.is_empty()
            {
                continue;
            }
            let path = match target {
                "" => file.to_owned(),
                target => resolve(file, target),
            };
            let page = pages.get(&path);
            if page.is_none() && !is_file(&path) {
                complaints.push(complaint(file, at, format!("no file is called {path}")));
            } else if !heading.is_empty()
                && !page.is_some_and(|text| anchors(text).any(|found| found == heading))
            {
                complaints.push(complaint(
                    file,
                    at,
                    format!("{path} has no heading #{heading}"),
                ));
            }
        }
    }
    complaints
}

/// A link's path in the repository, seen from the page it stands in.
fn resolve(file: &str, target: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => {
                parts.pop();
            }
            Component::Normal(part) => parts.extend(part.to_str()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Pages that a source file names, and headings behind them: `docs/limits.md, "Limits"`.
fn pointers(file: &str, text: &str, pages: &Pages) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for (begin, _) in line.match_indices("docs/") {
            let path: String = line[begin..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || "/-_.".contains(*c))
                .collect();
            let path = path.trim_end_matches('.');
            if !path.ends_with(".md") {
                continue;
            }
            let Some(page) = pages.get(path) else {
                complaints.push(complaint(file, at + 1, format!("no page is called {path}")));
                continue;
            };
            let behind = line[begin + path.len()..].strip_prefix(", \"");
            if let Some((heading, _)) = behind.and_then(|rest| rest.split_once('"'))
                && !anchors(page).any(|found| found == anchor(heading))
            {
                let why = format!("{path} has no heading {heading:?}");
                complaints.push(complaint(file, at + 1, why));
            }
        }
    }
    complaints
}

/// Every file below `at`, by its path in the repository; what is built and hidden is left out.
fn walk(root: &Path, at: &Path, files: &mut Vec<String>) -> std::io::Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(at)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A workspace of its own (crates/host) builds beside itself when cargo is called there by hand.
        let built = name == "node_modules"
            || path.join("CACHEDIR.TAG").is_file()
            || at == root && ["build", "shared"].contains(&name.as_ref());
        if name.starts_with('.') || built || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, files)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            files.push(relative.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whys(pages: &[(&str, &str)]) -> Vec<String> {
        let pages = pages
            .iter()
            .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
            .collect();
        check_pages(&pages, |path| path == "Makefile")
            .into_iter()
            .map(|found| format!("{}:{} {}", found.file, found.line, found.why))
            .collect()
    }

    #[test]
    fn a_page_that_keeps_the_rules_has_no_complaint() {
        let text = "# A title\n\nA sentence. See [it](b.md#its-heading), `docs/x` and [make](../Makefile).\n";
        let other = "# B\n\n## Its `heading`\n";
        assert_eq!(whys(&[("docs/a.md", text), ("docs/b.md", other)]), [""; 0]);
    }

    #[test]
    fn a_long_line_and_a_long_sentence_are_found_and_code_is_not() {
        let long = "word ".repeat(41);
        let code = format!("```text\n{}\n```\n", "x".repeat(300));
        assert_eq!(whys(&[("a.md", &code)]), [""; 0]);
        assert_eq!(
            whys(&[("a.md", &format!("One. {}\n", long.trim()))]),
            [
                "a.md:1 209 characters, at most 160 are allowed",
                "a.md:1 a sentence of 41 words, at most 40 are allowed"
            ]
        );
        // Two items of a list are two sentences.
        let half = "word ".repeat(21);
        assert_eq!(whys(&[("a.md", &format!("* {half}\n* {half}\n"))]), [""; 0]);
        let generated = format!("<!-- Generated -->\n{long}\n");
        assert_eq!(whys(&[("a.md", &generated)]), [""; 0]);
    }

    #[test]
    fn a_link_to_nowhere_is_found() {
        assert_eq!(
            whys(&[("docs/a.md", "[x](b.md) [y](#none)\n")]),
            [
                "docs/a.md:1 no file is called docs/b.md",
                "docs/a.md:1 docs/a.md has no heading #none"
            ]
        );
    }

    #[test]
    fn a_retired_word_is_found_as_a_whole_word() {
        let glossary = "| Word | Meaning | Retired |\n|---|---|---|\n| job control | of a shell | sentry |\n\
                        | limit | of time | ration, portion |\n| type | of a fault | |\n";
        let page = |text| whys(&[("a.md", text), (GLOSSARY, glossary)]);
        assert_eq!(
            page("The Sentry stops.\n"),
            ["a.md:1 the word \"sentry\" is retired: job control (docs/glossary.md)"]
        );
        assert_eq!(page("Registration, a type, retired words.\n"), [""; 0]);
        let names = "fn post_sentry() -> OtherPortion { sentried(RATIONS) }";
        let found = Retired::read(glossary).find("a.rs", names);
        let whys: Vec<&str> = found.iter().map(|found| found.why.as_str()).collect();
        assert_eq!(
            whys,
            [
                "the word \"sentry\" is retired: job control (docs/glossary.md)",
                "the word \"portion\" is retired: limit (docs/glossary.md)",
                "the word \"ration\" is retired: limit (docs/glossary.md)"
            ]
        );
    }

    #[test]
    fn a_long_guide_is_found_and_a_long_reference_is_not() {
        let (long, most) = ("Line.\n\n".repeat(101), "Line.\n\n".repeat(100));
        assert_eq!(
            whys(&[
                ("docs/guide/a.md", &long),
                ("docs/guide/b.md", &most),
                ("docs/reference/a.md", &long)
            ]),
            ["docs/guide/a.md:202 202 lines, at most 200 are allowed"]
        );
    }

    #[test]
    fn an_index_with_few_questions_is_found() {
        let found = whys(&[(INDEX, "# A\n\n| Why? | [because](index.md#a) |\n")]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_question_that_no_heading_answers_is_found() {
        let right = "# A\n\n| Question | Answer |\n| Why? | [because](#a), [so](index.md#a) |\n"
            .to_owned()
            + &"| Why? | [because](index.md#a) |\n".repeat(QUESTIONS_MIN);
        assert_eq!(whys(&[(INDEX, &right)]), [""; 0]);
        let wrong = right + "| How? | [so](#a), [or so](index.md) |\n| When? | now |\n";
        assert_eq!(
            whys(&[(INDEX, &wrong)]),
            [
                "docs/index.md:35 index.md answers \"How?\": a heading is required, PAGE#HEADING",
                "docs/index.md:36 no link answers \"When?\""
            ]
        );
    }

    #[test]
    fn a_page_that_code_names_has_to_exist() {
        let pages = Pages::from([("docs/here.md".to_owned(), "# A\n\n## There\n".to_owned())]);
        let text =
            "// see docs/gone.md.\n// see docs/here.md, \"There\".\n// docs/here.md, \"Nowhere\"\n";
        let found = pointers("a.rs", text, &pages);
        let found: Vec<_> = found.iter().map(|it| (it.line, it.why.as_str())).collect();
        assert_eq!(
            found,
            [
                (1, "no page is called docs/gone.md"),
                (3, "docs/here.md has no heading \"Nowhere\"")
            ]
        );
    }
}
