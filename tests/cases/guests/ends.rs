//! How a guest ends: by an exit of any code, by a signal of any number, with stores that have not reached their file.

use super::row::{Row, row};
use crate::build::Variant;
use crate::sample::all;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    // Stores to a shared mapping outlive every agreed end.
    for (how, end) in [
        ("exit", "status 4"),
        ("quick", "status 3"),
        ("abort", "signal 6"),
        ("kill", "signal 9"),
        ("null", "signal 11"),
        ("fpe", "signal 8"),
        ("alarm", "signal 14"),
    ] {
        rows.push(row("mmap_shared_death.c").args(how, &[how]).ends(end));
    }
    for (how, end) in [
        ("abort", "signal 6"),
        ("segv", "signal 11"),
        ("null", "signal 11"),
        ("exec", "signal 11"),
        ("hlt", "signal 11"),
        ("stack", "signal 11"),
        ("fpe", "signal 8"),
        ("ill", "signal 4"),
        ("trap", "signal 5"),
        ("bus", "signal 7"),
    ] {
        rows.push(
            row("die_by.c")
                .args(how, &[how])
                .ends(end)
                .shapes(Variant::PAIR),
        );
    }
    // Every signal whose default is to end: numbers of signal(7) for x86-64, and the first realtime ones.
    for (turn, (number, end)) in [
        ("1", "signal 1"),
        ("2", "signal 2"),
        ("3", "signal 3"),
        ("9", "signal 9"),
        ("10", "signal 10"),
        ("12", "signal 12"),
        ("13", "signal 13"),
        ("14", "signal 14"),
        ("15", "signal 15"),
        ("16", "signal 16"),
        ("24", "signal 24"),
        ("25", "signal 25"),
        ("26", "signal 26"),
        ("27", "signal 27"),
        ("29", "signal 29"),
        ("30", "signal 30"),
        ("31", "signal 31"),
        ("34", "signal 34"),
        ("64", "signal 64"),
        ("17", "status 0"),
        ("18", "status 0"),
        ("23", "status 0"),
        ("28", "status 0"),
    ]
    .into_iter()
    .enumerate()
    {
        rows.push(
            row("die_by.c")
                .args(number, &[number])
                .ends(end)
                .replicas(one_in_turn(turn, &[2, 3])),
        );
    }
    // The product's own codes are among them: a program may use them as well.
    for (turn, (code, end)) in [
        ("1", "status 1"),
        ("2", "status 2"),
        ("42", "status 42"),
        ("63", "status 63"),
        ("64", "status 64"),
        ("120", "status 120"),
        ("121", "status 121"),
        ("122", "status 122"),
        ("123", "status 123"),
        ("125", "status 125"),
        ("126", "status 126"),
        ("127", "status 127"),
        ("128", "status 128"),
        ("137", "status 137"),
        ("139", "status 139"),
        ("255", "status 255"),
    ]
    .into_iter()
    .enumerate()
    {
        rows.push(
            row("exit_code.c")
                .args(code, &[code])
                .ends(end)
                .replicas(one_in_turn(turn, &[1, 2, 3])),
        );
    }
    struct Exit {
        label: &'static str,
        args: [&'static str; 2],
        end: &'static str,
    }
    for Exit { label, args, end } in [
        Exit {
            label: "by_exit",
            args: ["7", "e"],
            end: "status 7",
        },
        Exit {
            label: "by_underscore",
            args: ["8", "_"],
            end: "status 8",
        },
        Exit {
            label: "by_raw_call",
            args: ["9", "s"],
            end: "status 9",
        },
    ] {
        rows.push(row("exit_code.c").args(label, &args).ends(end).shapes(&[
            Variant::Dynamic,
            Variant::Static,
            Variant::Musl,
        ]));
    }
    rows
}

/// The sizes of group for one of many rows that differ in a number alone: they go round.
fn one_in_turn(turn: usize, sizes: &'static [u8]) -> &'static [u8] {
    if all() {
        return sizes;
    }
    &sizes[turn % sizes.len()..][..1]
}
