//! What a campaign adds up to, on every page but HTML; and the published schema.

use proptest::prelude::*;
use steadfast_contract::outcome::{Leaf, Outcome};

use crate::compare::{Comparison, Input};
use crate::gate::Gate;
use crate::report::{Report, SHOWN};
use crate::results::Results;
use crate::sample::generated;
use crate::tabulate::{Table, Which};
use crate::{junit, rows, text};

const SCHEMA: &str = include_str!("../../../docs/report.schema.json");

fn both(a: &Results, b: &Results) -> Comparison {
    let input = |results, name| Input {
        results,
        name,
        work: 1.0,
    };
    Comparison::new(input(a, "bare"), input(b, "protected"))
}

#[test]
fn text_and_markdown() {
    let (bare, protected) = (generated(600, 1), generated(600, 2));
    insta::assert_snapshot!("plain_bare", text::plain(&Report::new(&bare)));
    insta::assert_snapshot!("plain_protected", text::plain(&Report::new(&protected)));
    let gate = Gate::parse("sdc.upper95 < 0.1% or hang.count == 0").expect("a gate");
    let gates = [gate.judge(&Table::new(&bare), None).expect("asked")];
    insta::assert_snapshot!("markdown_bare", text::markdown(&Report::new(&bare), &gates));
    let comparison = both(&bare, &protected);
    insta::assert_snapshot!("compared", comparison.text(false));
    insta::assert_snapshot!("compared_markdown", comparison.text(true));
}

#[test]
fn rows_and_cases() {
    let few = generated(12, 1);
    insta::assert_snapshot!("csv", rows::csv(&few));
    insta::assert_snapshot!("junit", junit::junit(&Report::new(&few), &[]));
    let gate = Gate::parse("sdc.upper95 < 0.1% and masked.count > 0").expect("a gate");
    let gates = [gate.judge(&Table::new(&few), None).expect("asked")];
    insta::assert_snapshot!("junit_gates", junit::junit(&Report::new(&few), &gates));
}

#[test]
fn csv_keeps_commas_and_quotes_apart() {
    let mut few = generated(3, 1);
    few.runs[0].fault = "a,\"b\"\nc".to_owned();
    let text = rows::csv(&few);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let records: Vec<csv::StringRecord> = reader.records().map(|r| r.expect("a row")).collect();
    assert_eq!(records.len(), 3);
    assert_eq!(&records[0][4], "a,\"b\"\nc");
}

#[test]
fn the_published_schema_is_the_one_of_the_types() {
    #[derive(schemars::JsonSchema)]
    #[schemars(untagged, title = "Steadfast report: a campaign, or two compared")]
    #[expect(dead_code, reason = "only its schema is wanted")]
    enum Page {
        Campaign(Box<Report>),
        Comparison(Box<Comparison>),
    }
    let types =
        serde_json::to_string_pretty(&schemars::schema_for!(Page)).expect("a schema") + "\n";
    if std::env::var_os("STEADFAST_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/report.schema.json");
        std::fs::write(path, &types).expect("docs/ can be written");
        return;
    }
    assert_eq!(
        types, SCHEMA,
        "run this test with STEADFAST_BLESS=1 and look at the difference"
    );
}

#[test]
fn json_validates_and_reads_back() {
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for results in [generated(600, 1), generated(600, 2), generated(0, 1)] {
        let report = Report::new(&results);
        let value: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
        if let Err(why) = validator.validate(&value) {
            panic!("{why}");
        }
        let back: Report = serde_json::from_value(value).expect("a report");
        assert_eq!(back.runs, report.runs);
        let comparison = both(&results, &generated(600, 2));
        let value: serde_json::Value = serde_json::from_str(&comparison.json()).expect("JSON");
        assert!(validator.is_valid(&value));
    }
    for wrong in ["{}", "[]", r#"{"schema":1}"#] {
        let value: serde_json::Value = serde_json::from_str(wrong).expect("JSON");
        assert!(!validator.is_valid(&value), "{wrong}");
    }
}

#[test]
fn failures_of_functions_add_up_to_the_whole() {
    let report = Report::new(&generated(2_000, 1));
    let parts: f64 = report
        .functions
        .iter()
        .filter_map(|f| f.absolute.failures)
        .sum();
    let whole = report
        .outcome(Outcome::Sdc)
        .and_then(|row| row.absolute.failures)
        .expect("failures");
    assert!((parts - whole).abs() < 1e-6 * whole, "{parts} of {whole}");
}

#[test]
fn two_equal_campaigns_show_no_difference() {
    let one = generated(2_000, 1);
    let comparison = both(&one, &one);
    assert!(
        comparison
            .headline()
            .iter()
            .all(|line| line.starts_with("These runs do not show"))
    );
    let sdc = comparison.row(Which::Outcome(Outcome::Sdc)).expect("a row");
    assert_eq!(sdc.ratio, Some(1.0));
    assert!(
        comparison
            .doubts
            .iter()
            .all(|doubt| doubt.contains("cannot be struck"))
    );
}

#[test]
fn what_makes_a_comparison_doubtful_is_said() {
    let one = generated(100, 1);
    let mut other = one.clone();
    other.provenance.command.push("--fast".to_owned());
    other.provenance.machine.cpu = "Another".to_owned();
    other.groups[1].name = "cf".to_owned();
    other.planned = 1_000;
    let said = both(&one, &other).doubts.join("\n");
    for part in [
        "Only bare has rval",
        "Only protected has cf",
        "The commands differ",
        "The processors differ",
        "was not run to its end",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// No run is lost or counted twice, whatever became of it.
    #[test]
    fn everything_adds_up(leaves in prop::collection::vec(prop::sample::select(Leaf::ALL), 1..200)) {
        let mut results = generated(leaves.len() as u64, 1);
        for (run, leaf) in results.runs.iter_mut().zip(&leaves) {
            run.leaf = *leaf;
        }
        let report = Report::new(&results);
        let runs = report.runs;
        let alarms = leaves.iter().filter(|leaf| **leaf == Leaf::FalseAlarm).count() as u64;
        prop_assert_eq!(runs.valid + runs.not_fired + runs.infra + alarms, runs.finished);
        let outcomes: u64 = report.all.outcomes.iter().map(|row| row.count).sum();
        prop_assert_eq!(outcomes, runs.valid);
        let by_group: u64 = report.groups.iter().map(|group| group.valid).sum();
        prop_assert_eq!(by_group, runs.valid);
        for row in &report.all.outcomes {
            let leaves: u64 = row.leaves.iter().map(|leaf| leaf.count).sum();
            prop_assert_eq!(leaves, row.count);
        }
        for cells in [&report.registers, &report.bits, &report.opcodes] {
            let sum: u64 = cells.iter().map(|cell| cell.counts.valid).sum();
            prop_assert_eq!(sum, runs.valid);
            for outcome in SHOWN {
                let sum: u64 = cells.iter().map(|cell| cell.counts.of(outcome)).sum();
                prop_assert_eq!(sum, report.outcome(outcome).map_or(0, |row| row.count));
            }
        }
        let wrong = report.outcome(Outcome::Sdc).map_or(0, |row| row.count);
        prop_assert_eq!(report.wrong.len() as u64, wrong);
    }
}
