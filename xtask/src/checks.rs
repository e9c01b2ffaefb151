//! What each check of `--protect=full` costs a request of memcached, and what gets out without it, as a table of the docs.
//!
//! Invariant: each number is published. A check whose price is not has no line; one that was not struck says so.

use std::fmt::Write as _;

use steadfast_report::published::{Files, Row};

use crate::plot::{COSTS, ERRORS, find};

/// Where the table stands in its page.
pub const BEGIN: &str = "<!-- checks: rendered by `make docs` -->";
pub const END: &str = "<!-- end of checks -->";

/// Builds that lack something: the key of their price, of their errors, and what they lack.
const BUILDS: [(&str, &str, &str); 6] = [
    ("inputs", "without-inputs", "`inputs`"),
    ("outputs", "without-outputs", "`outputs`"),
    ("places", "without-places", "`places`"),
    ("frames", "without-frames", "`frames`"),
    ("locks", "without-locks", "`locks`"),
    ("level", "level", "all: `sei`"),
];

/// A share of memcached's request above which a check is struck by a campaign of its own.
const DEAR: f64 = 2.0;

/// The table.
#[must_use]
pub fn table(files: &Files) -> String {
    let mut text =
        "| Left out | Share of a request's CPU time | Undetected without it: control flow | data flow | reads |\n|---|---|---|---|---|\n"
            .to_owned();
    let mut line = |what: &str, price: &str, build: &str, unstruck: &str| {
        let groups = ["cf", "df", "rd"].map(|group| {
            find(files, ERRORS, &format!("{build}.{group}")).map_or(unstruck.to_owned(), Row::text)
        });
        let _ = writeln!(text, "| {what} | {price} | {} |", groups.join(" | "));
    };
    line("nothing", "", "sei", "not struck");
    for (check, build, what) in BUILDS {
        let Some(price) = find(files, COSTS, &format!("mc1k.price.{check}")) else {
            continue;
        };
        let unstruck = match price.high.unwrap_or(price.value) > DEAR {
            true => "not struck",
            false => "not struck: cheap",
        };
        line(what, &price.text(), build, unstruck);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::tests::run as file;

    #[test]
    fn a_check_has_its_price_and_what_gets_out_without_it() {
        let price = |check: &str, value| Row::new(format!("mc1k.price.{check}"), "", value, "%");
        let files = Files::from([
            (
                COSTS.to_owned(),
                file(vec![price("outputs", 5.0), price("frames", 0.1)]),
            ),
            (
                ERRORS.to_owned(),
                file(vec![Row::share("without-outputs.cf", "", 1, 1000)]),
            ),
        ]);
        let text = table(&files);
        assert!(
            text.contains(
                "| `outputs` | 5 % | 1 of 1,000, 0.1 [0.0025, 0.5559] % | not struck | not struck |"
            ),
            "{text}"
        );
        assert!(
            text.contains("| `frames` | 0.1 % | not struck: cheap |"),
            "{text}"
        );
        assert!(!text.contains("`places`"), "{text}");
    }
}
