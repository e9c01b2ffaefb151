//! Source: what `xtask tidy` asks of code beside its form. Rules are functions of the text.
//!
//! Not covered: functions of C that a macro makes.

use std::collections::{BTreeMap, BTreeSet};

use crate::complaint::{Complaint, Pages, complaint};
use crate::public::is_of_tests;

const TEST_LINES_MAX: usize = 600;
/// What a screen shows at once.
const FUNCTION_LINES_MAX: usize = 60;
/// Votes, repairs and calls of every replica: who reads a function of these sees all that it does.
const SHORT: &str = "crates/agent/src/";

/// Programs in C, each in a folder. Modules qualify the names of Rust and namespaces those of C++; a name of C is all that a search has.
const COMPONENTS: [&str; 3] = ["crates/agent/src/", "cc/runtime/", "cc/envelope/"];

/// Files of tests that nobody reads to the end.
pub(crate) fn long_tests(rust: &Pages) -> Vec<Complaint> {
    rust.iter()
        .filter(|(file, _)| is_of_tests(file))
        .filter_map(|(file, text)| {
            let found = text.lines().count();
            let why = format!("{found} lines of tests, at most {TEST_LINES_MAX} are allowed");
            (found > TEST_LINES_MAX).then(|| complaint(file, 1, why))
        })
        .collect()
}

const BENCH_COMMANDS: &str = "bench/src/command/cli.rs";
const BENCH_LIST: &str = "bench/src/lib.rs";

/// Commands of `bench` that the list at the head of its library does not have.
pub(crate) fn unlisted(rust: &Pages) -> Vec<Complaint> {
    let (Some(commands), Some(list)) = (rust.get(BENCH_COMMANDS), rust.get(BENCH_LIST)) else {
        return Vec::new();
    };
    let items = match syn::parse_file(commands) {
        Ok(file) => file.items,
        Err(why) => return vec![complaint(BENCH_COMMANDS, 1, why.to_string())],
    };
    let actions = items.into_iter().filter_map(|item| match item {
        syn::Item::Enum(item) if item.ident == "Action" => Some(item.variants),
        _ => None,
    });
    let names = actions
        .flatten()
        .map(|action| kebab(&action.ident.to_string()));
    names
        .filter(|name| !list.contains(&format!("`bench {name}`")))
        .map(|name| complaint(BENCH_LIST, 1, format!("`bench {name}` is not in the list")))
        .collect()
}

/// `SeiTables` as a command is called: `sei-tables`.
fn kebab(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 {
            out.push('-');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// Functions of one component in C that share a name. One that its headers declare stands in another's place where that one is left out,
/// and one of the C library's that a runtime takes over (`SF_API`) has the name that it must.
pub(crate) fn shared_names(c: &Pages) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for folder in COMPONENTS {
        let files = || c.iter().filter(|(file, _)| file.starts_with(folder));
        let declared: BTreeSet<&str> = files()
            .filter(|(file, _)| file.ends_with(".h"))
            .flat_map(|(_, text)| text.lines())
            .filter(|line| line.ends_with(");") && !line.starts_with("static "))
            .filter_map(of_function)
            .collect();
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        for (file, text) in files().filter(|(file, _)| file.ends_with(".c")) {
            let mut lines = text.lines().enumerate().peekable();
            while let Some((at, line)) = lines.next() {
                let begins =
                    line.ends_with('{') || lines.peek().is_some_and(|(_, next)| *next == "{");
                let Some(name) =
                    of_function(line).filter(|name| begins && !declared.contains(name))
                else {
                    continue;
                };
                match seen.get(name) {
                    Some(other) if other != file => {
                        let why = format!("{name} is a function of {other} too");
                        complaints.push(complaint(file, at + 1, why));
                    }
                    _ => {
                        seen.insert(name, file);
                    }
                }
            }
        }
    }
    complaints
}

/// Functions of the agent that are too long. clang-format puts their braces in the first column, and those of macros nowhere there.
pub(crate) fn long_functions(c: &Pages) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (file, text) in c {
        if !file.starts_with(SHORT) {
            continue;
        }
        let mut opened = None;
        for (at, line) in text.lines().enumerate() {
            if line == "{" {
                opened = Some(at);
            } else if line == "}"
                && let Some(from) = opened.take()
            {
                let found = at - from - 1;
                if found > FUNCTION_LINES_MAX {
                    let why = format!(
                        "a function of {found} lines, at most {FUNCTION_LINES_MAX} are allowed"
                    );
                    complaints.push(complaint(file, from, why));
                }
            }
        }
    }
    complaints
}

/// The name of the function that a line declares: the word before the first parenthesis, behind a type and in the first column.
fn of_function(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("__attribute__((") {
        Some(rest) => rest.split_once(")) ")?.1,
        None => line,
    };
    if !line.starts_with(|c: char| c.is_ascii_alphabetic()) || line.starts_with("SF_API ") {
        return None;
    }
    let (before, _) = line.split_once('(')?;
    let at = before.rfind([' ', '*'])?;
    let name = &before[at + 1..];
    let is_name =
        name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') && !before.contains('=');
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_one_program_in_c_that_share_a_name_are_found() {
        let first = "static int look(int a)\n{\n\treturn 1;\n}\nstatic const struct step steps = { look, 0 };\n";
        let second = "int get(void)\n{\n}\n__attribute__((constructor(1))) static void look(void) {\n}\n\tlook(1);\n";
        let third = "static u8 *get(void)\n{\n}\nint look(int a);\nint put(void)\n{\n}\n";
        let fourth = "static int put(void)\n{\n}\n";
        let found = shared_names(&pages(&[
            ("crates/agent/src/a.c", first),
            ("crates/agent/src/b.c", second),
            ("crates/agent/src/c.c", third),
            ("crates/agent/src/d.c", fourth),
            (
                "crates/agent/src/get.h",
                "int get(void);\nstatic int look(void);\n",
            ),
            ("crates/inside/put.h", "int put(void);\n"),
            ("cc/runtime/a.c", first),
        ]));
        let too = |name, other| format!("{name} is a function of crates/agent/src/{other} too");
        assert_eq!(
            found,
            [
                complaint("crates/agent/src/b.c", 4, too("look", "a.c")),
                complaint("crates/agent/src/d.c", 1, too("put", "c.c"))
            ]
        );
    }

    #[test]
    fn a_function_of_the_agent_that_no_screen_shows_is_found() {
        let of = |lines: usize| format!("static int f(void)\n{{\n{}}}\n", "\tg();\n".repeat(lines));
        let text = of(60) + &of(61);
        let found = long_functions(&pages(&[
            ("crates/agent/src/a.c", &text),
            ("cc/runtime/a.c", &text),
        ]));
        let why = "a function of 61 lines, at most 60 are allowed".to_owned();
        assert_eq!(found, [complaint("crates/agent/src/a.c", 64, why)]);
        assert_eq!(
            long_functions(&pages(&[("crates/agent/src/a.c", &of(60))])),
            []
        );
    }

    fn pages(files: &[(&str, &str)]) -> Pages {
        let own = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
        files.iter().map(own).collect()
    }

    #[test]
    fn a_command_of_bench_that_its_list_lacks_is_found() {
        let commands = "enum Action { Spec { size: u8 }, SeiTables, Start }\nenum Other { None }\n";
        let list = "//! | `bench spec` | x |\n//! | `bench sei-tables` | y |\n";
        let found = unlisted(&pages(&[(BENCH_COMMANDS, commands), (BENCH_LIST, list)]));
        let why = "`bench start` is not in the list".to_owned();
        assert_eq!(found, [complaint(BENCH_LIST, 1, why)]);
        let whole = format!("{list}//! | `bench start` | z |\n");
        assert_eq!(
            unlisted(&pages(&[(BENCH_COMMANDS, commands), (BENCH_LIST, &whole)])),
            []
        );
    }

    #[test]
    fn a_long_file_of_tests_is_found() {
        let long = "\n".repeat(601);
        let found = long_tests(&pages(&[("a/tests/b.rs", &long), ("a/b.rs", &long)]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(long_tests(&pages(&[("a/tests.rs", &long[1..])])), []);
    }
}
