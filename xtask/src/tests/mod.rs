use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use crate::def::{self, Expr};
use crate::docs;
use crate::tables::{Class, FOLDER, Kind, SUB_TABLES, Tables};

mod kernel;
mod mistakes;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository")
        .to_path_buf()
}

fn tables() -> Tables {
    Tables::read(&root()).unwrap_or_else(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

fn sources() -> BTreeMap<String, String> {
    let read = |name: &str| {
        fs::read_to_string(root().join(FOLDER).join(format!("{name}.def"))).expect("a table")
    };
    SUB_TABLES
        .into_iter()
        .chain(["calls", "sockopt", "entropy"])
        .map(|n| (n.to_owned(), read(n)))
        .collect()
}

#[test]
fn every_number_has_exactly_one_row() {
    let tables = tables();
    let mut seen = BTreeSet::new();
    for call in &tables.calls {
        assert!(seen.insert(call.nr), "{} stands twice", call.nr);
    }
    for gap in &tables.gaps {
        for nr in gap.first..=gap.last {
            assert!(seen.insert(nr), "{nr} stands twice");
        }
    }
    assert!(seen.into_iter().eq(0..=tables.max));
}

#[test]
fn no_row_can_be_lost() {
    let whole = sources();
    let calls = &whole["calls"];
    let rows = def::parse("calls.def", calls).expect("parses").rows;
    for row in rows.iter().filter(|r| r.name == "CALL") {
        // A row may go on on the next line; without its first line it is no row at all.
        let without: Vec<&str> = calls
            .lines()
            .enumerate()
            .filter(|(i, _)| i + 1 != row.line)
            .map(|(_, l)| l)
            .collect();
        let mut damaged = whole.clone();
        damaged.insert("calls".to_owned(), without.join("\n"));
        assert!(
            Tables::parse(&damaged).is_err(),
            "line {} went unmissed",
            row.line
        );
    }
}

#[test]
fn the_documents_are_what_the_tables_say() {
    for (name, text) in docs::all(&tables()) {
        let old = fs::read_to_string(root().join(name)).unwrap_or_default();
        assert!(
            old == text,
            "{name} is stale: cargo run -p steadfast-xtask -- docs"
        );
    }
}

#[test]
fn every_table_row_is_in_a_document() {
    let tables = tables();
    let text = docs::all(&tables)
        .into_iter()
        .map(|(_, text)| text)
        .collect::<String>();
    for call in &tables.calls {
        assert!(
            text.contains(&format!("| {} | `{}` |", call.nr, call.name)),
            "{}",
            call.name
        );
    }
    let rows = text.lines().filter(|l| l.starts_with("| 0x")).count();
    assert_eq!(
        rows,
        tables.subs.iter().map(|t| t.rows.len()).sum::<usize>()
    );
}

#[test]
fn nothing_that_leaves_the_group_is_a_query() {
    let tables = tables();
    for name in [
        "write", "writev", "sendto", "sendmsg", "sendmmsg", "unlink", "rename", "truncate", "kill",
        "fsync",
    ] {
        assert_eq!(
            tables.class_of("calls", name),
            Some(Class::Commit),
            "{name}"
        );
    }
    for call in tables.calls.iter().filter(|c| c.class == Class::Query) {
        let sends = call
            .args
            .iter()
            .any(|a| matches!(a.kind, Kind::InIov | Kind::InMsg));
        assert!(!sends, "{}", call.name);
    }
}
