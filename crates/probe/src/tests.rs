use std::collections::BTreeSet;

use super::*;

#[test]
fn every_gap_says_what_happens_instead_or_how_to_close_it() {
    let check = check(Measure::Skip);
    for finding in &check.findings {
        assert!(!finding.seen.is_empty(), "{finding:?}");
        match finding.state {
            State::Works => assert!(
                finding.instead.is_none() && finding.fix.is_none(),
                "{finding:?}"
            ),
            State::Slower => assert!(finding.instead.is_some(), "{finding:?}"),
            State::Missing => assert!(finding.fix.is_some(), "{finding:?}"),
        }
    }
}

#[test]
fn names_are_unique_and_verdict_follows_from_findings() {
    let check = check(Measure::Skip);
    let names: BTreeSet<_> = check.findings.iter().map(|finding| finding.name).collect();
    assert_eq!(names.len(), check.findings.len());
    let lacking: Vec<_> = check
        .findings
        .iter()
        .filter(|f| f.needed && f.state == State::Missing)
        .collect();
    assert_eq!(check.usable, lacking.is_empty(), "{lacking:?}");
    assert!(check.costs.is_empty());
}

#[test]
fn costs_are_measured_or_explained() {
    let check = check(Measure::Costs);
    let names: BTreeSet<_> = check.costs.iter().map(|cost| cost.name).collect();
    assert_eq!(names.len(), check.costs.len());
    for cost in &check.costs {
        assert_eq!(cost.value.is_none(), cost.reason.is_some(), "{cost:?}");
        assert!(
            cost.value
                .is_none_or(|value| value >= 0.0 && value.is_finite()),
            "{cost:?}"
        );
    }
    let call = check
        .costs
        .iter()
        .find(|cost| cost.name == "system call")
        .and_then(|cost| cost.value);
    // A processor of 6 GHz needs more than 10 ns to enter and leave a kernel; a nested virtual
    // machine that traps each call would still need less than 100 us.
    assert!(
        call.is_some_and(|ns| (10.0..100_000.0).contains(&ns)),
        "{call:?}"
    );
}

/// An ordinary user may have no priority, and everything else works for anybody.
#[test]
fn rows_of_components_are_tried_and_not_assumed() {
    let found = components();
    let names: Vec<_> = found.iter().map(|finding| finding.name).collect();
    let wanted = [
        "signal pad",
        "priority inheritance",
        "real-time priority",
        "code from files alone",
    ];
    assert_eq!(names, wanted);
    for finding in found {
        assert!(
            !finding.needed,
            "steadfast run works without it: {finding:?}"
        );
        let tried = std::thread::spawn(|| steadfast_sys::cpu::run_at(1).is_ok());
        let may = finding.name != "real-time priority" || tried.join().expect("it ends");
        let wanted = if may { State::Works } else { State::Missing };
        assert_eq!(finding.state, wanted, "{finding:?}");
    }
}
