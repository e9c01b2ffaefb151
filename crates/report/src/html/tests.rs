//! Pages as snapshots, and what must hold for any of them.

use proptest::prelude::*;

use super::*;
use crate::compare::Input;
use crate::gate::Gate;
use crate::results::Results;
use crate::sample::generated;
use crate::tabulate::Table;

fn page(results: &Results) -> String {
    let gates: Vec<Judgement> = [
        "sdc.upper95 < 0.1%",
        "crash.count >= 0",
        "sdc.count < 100000 and hang.upper95 < 99%",
    ]
    .into_iter()
    .map(|gate| {
        Gate::parse(gate)
            .expect("a gate")
            .judge(&Table::new(results), None)
            .expect("asked")
    })
    .collect();
    report(&Report::new(results), &gates)
}

fn both(a: &Results, b: &Results) -> Comparison {
    let input = |results, name| Input {
        results,
        name,
        work: 1.0,
    };
    Comparison::new(input(a, "bare"), input(b, "<protected>"))
}

/// Every element that is opened is closed, in order.
fn balanced(html: &str) -> Result<(), String> {
    const VOID: [&str; 7] = ["meta", "br", "hr", "line", "circle", "path", "svg_"];
    let mut open: Vec<String> = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest.find('>').ok_or("a tag without an end")?;
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name: String = tag
            .trim_start_matches('/')
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        if tag.starts_with('!') || tag.ends_with('/') || VOID.contains(&name.as_str()) {
            continue;
        }
        if tag.starts_with('/') {
            let last = open.pop().ok_or(format!("</{name}> closes nothing"))?;
            if last != name {
                return Err(format!("</{name}> closes <{last}>"));
            }
        } else {
            open.push(name);
        }
    }
    open.pop()
        .map_or(Ok(()), |name| Err(format!("<{name}> stays open")))
}

fn needs_nothing_else(html: &str) {
    for forbidden in [
        "<script",
        "src=",
        "href=\"http",
        "url(",
        "@import",
        "<link",
        "javascript:",
    ] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    assert_eq!(balanced(html), Ok(()));
}

#[test]
fn the_page_of_a_bare_program() {
    let html = page(&generated(600, 1));
    needs_nothing_else(&html);
    assert!(html.contains("longest_match&lt;char"));
    assert!(html.contains("&lt;a &amp; b&gt;.txt"));
    insta::assert_snapshot!(html);
}

#[test]
fn the_page_of_a_protected_program() {
    let html = page(&generated(600, 2));
    needs_nothing_else(&html);
    assert!(html.contains("None of "));
    assert!(html.contains("<h2>From fault to alarm</h2>"));
}

#[test]
fn the_page_of_nothing() {
    let html = page(&generated(0, 1));
    needs_nothing_else(&html);
    assert!(html.contains("No run says anything"));
}

#[test]
fn two_campaigns() {
    let (bare, protected) = (generated(600, 1), generated(600, 2));
    let html = comparison(&both(&bare, &protected));
    needs_nothing_else(&html);
    assert!(html.contains("&lt;protected&gt; has fewer wrong answers"));
    insta::assert_snapshot!(html);
}

#[test]
fn only_what_is_shown_to_be_better_looks_good() {
    let (bare, protected) = (generated(600, 1), generated(600, 2));
    struct Row<'a> {
        a: &'a Results,
        b: &'a Results,
        class: &'static str,
    }
    for Row { a, b, class } in [
        Row {
            a: &bare,
            b: &protected,
            class: "headline",
        },
        Row {
            a: &protected,
            b: &bare,
            class: "headline bad",
        },
        Row {
            a: &bare,
            b: &bare,
            class: "headline open",
        },
    ] {
        let html = comparison(&both(a, b));
        assert!(html.contains(&format!("<p class=\"{class}\">")), "{class}");
    }
}

#[test]
fn the_alarm_of_the_balance_rings() {
    assert!(balanced("<p><b></p></b>").is_err());
    assert!(balanced("<p>").is_err());
    assert!(balanced("</p>").is_err());
    assert_eq!(balanced("<p><br></p>"), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn no_name_becomes_markup(name in "[<>&\"'/a-z ]{1,30}") {
        let mut results = generated(40, 1);
        results.provenance.command = vec![name.clone()];
        results.groups[0].name = name.clone();
        for run in &mut results.runs {
            run.fault = name.clone();
            run.register = Some(name.clone());
            run.differ = vec![name.clone()];
            if let Some(place) = &mut run.place {
                place.function = Some(name.clone());
                place.disassembly = name.clone();
            }
        }
        prop_assert_eq!(balanced(&page(&results)), Ok(()));
        prop_assert_eq!(balanced(&comparison(&both(&results, &results))), Ok(()));
    }
}
