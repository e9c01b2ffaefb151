//! JUnit XML: what build servers show.
//!
//! One case for each gate, and one for each fault type. With gates it is they that fail; without
//! any, a fault type fails when one of its runs ended in a wrong answer. A test bed that failed is
//! an error, not a failure. Failures carry the commands that repeat them.
//!
//! Not covered: a case for each run, by the thousand: those are rows of CSV.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as Xml, TestCase, TestCaseStatus, TestSuite};

use steadfast_contract::outcome::Outcome;

use crate::format::{count, rate};
use crate::gate::{Answer, Judgement};
use crate::report::{Group, Report};

/// How many repeats a failure lists.
const REPLAYS_MAX: usize = 20;

/// The report and what its gates said.
#[must_use]
pub fn junit(report: &Report, gates: &[Judgement]) -> String {
    let target = report.provenance.command.join(" ");
    let mut suite = TestSuite::new(format!("steadfast inject: {target}"));
    suite.add_property(("protection", report.provenance.protection.as_str()));
    suite.add_property(("seed", report.provenance.seed.as_str()));
    let golden = &report.provenance.golden;
    let (status, bytes) = (golden.status.to_string(), golden.output_bytes.to_string());
    suite.add_property(("golden_status", status.as_str()));
    suite.add_property(("golden_output_bytes", bytes.as_str()));
    suite.add_property(("engine", report.provenance.engine.as_str()));
    for finding in gates.iter().flat_map(|judgement| &judgement.findings) {
        let status = match finding.answer {
            Answer::Pass => TestCaseStatus::success(),
            answer => {
                let kind = if answer == Answer::Fail {
                    NonSuccessKind::Failure
                } else {
                    NonSuccessKind::Error
                };
                let mut status = TestCaseStatus::non_success(kind);
                status
                    .set_type(answer.word())
                    .set_message(format!("{}: {}", finding.asked, finding.found));
                if answer == Answer::Fail {
                    status.set_description(replays(report, None));
                }
                status
            }
        };
        let mut case = TestCase::new(finding.asked.clone(), status);
        case.set_classname("gate");
        suite.add_test_case(case);
    }
    for group in &report.groups {
        suite.add_test_case(fault_type(report, group, gates.is_empty()));
    }
    let mut xml = Xml::new("steadfast inject");
    suite.set_time(Duration::from_nanos(report.runs.cpu_ns));
    xml.add_test_suite(suite);
    // Writing to memory does not fail.
    xml.to_string().unwrap_or_default()
}

fn fault_type(report: &Report, group: &Group, decides: bool) -> TestCase {
    let sdc = group.row(Outcome::Sdc);
    let wrong = sdc.map_or(0, |row| row.count);
    let words = format!(
        "{} of {} runs ended in a wrong answer: {}",
        count(wrong),
        count(group.valid),
        sdc.map_or(String::new(), |row| rate(&row.per_injection))
    );
    let status = if decides && wrong > 0 {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status
            .set_type("sdc")
            .set_message(words.clone())
            .set_description(replays(report, Some(&group.name)));
        status
    } else if group.valid == 0 {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status
            .set_type("no runs")
            .set_message("no run says anything");
        status
    } else {
        TestCaseStatus::success()
    };
    let mut case = TestCase::new(group.name.clone(), status);
    case.set_classname("fault type");
    case.set_system_out(words);
    case
}

fn replays(report: &Report, group: Option<&str>) -> String {
    let lines: Vec<&str> = report
        .wrong
        .iter()
        .filter(|wrong| group.is_none_or(|name| wrong.group == name))
        .map(|wrong| wrong.replay.as_str())
        .collect();
    let mut text = lines[..lines.len().min(REPLAYS_MAX)].join("\n");
    if lines.len() > REPLAYS_MAX {
        text.push_str(&format!("\nand {} more", lines.len() - REPLAYS_MAX));
    }
    text
}
