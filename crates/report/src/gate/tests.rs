//! Every answer rung and kept silent, every error said.

use proptest::prelude::*;
use steadfast_contract::advice::Advise;
use steadfast_contract::outcome::Leaf;

use super::*;
use crate::results::{ControlCount, Population};
use crate::tabulate::GroupTable;

/// A campaign of one group that ended so, run to its end.
fn table(leaves: &[(Leaf, u64)]) -> Table {
    let mut group = GroupTable::new("wreg", 1.0, 1_000_000);
    for (leaf, count) in leaves {
        for _ in 0..*count {
            group.add(*leaf);
        }
    }
    let planned = group.finished();
    Table {
        groups: vec![group],
        planned,
        control: ControlCount {
            runs: 50,
            masked: 50,
            false_alarms: 0,
        },
        population: Population {
            dynamic: 1_000_000,
            reachable: 990_000,
            unreachable: [("too short".to_owned(), 10_000)].into(),
            ..Population::default()
        },
        copies: 1,
    }
}

fn answer(gate: &str, table: &Table) -> Answer {
    let gate = Gate::parse(gate).expect(gate);
    gate.judge(table, None).expect("can be asked").answer
}

#[test]
fn the_claim_of_a_thousandth_needs_2995_clean_runs() {
    let gate = "sdc.upper95 < 0.1%";
    assert_eq!(
        answer(gate, &table(&[(Leaf::MaskedClean, 2_995)])),
        Answer::Pass
    );
    let short = table(&[(Leaf::MaskedClean, 2_994)]);
    assert_eq!(answer(gate, &short), Answer::Inconclusive);
    let judgement = Gate::parse(gate)
        .expect("a gate")
        .judge(&short, None)
        .expect("asked");
    assert_eq!(judgement.findings[0].more_runs, Some(1));
    assert_eq!(
        answer(gate, &table(&[(Leaf::MaskedClean, 900), (Leaf::Sdc, 100)])),
        Answer::Fail
    );
    assert_eq!(answer(gate, &table(&[])), Answer::Inconclusive);
}

#[test]
fn late_and_wrongly_repaired_answers_are_wrong_answers() {
    for leaf in [Leaf::Sdc, Leaf::SdcLate, Leaf::CorrectedWrong] {
        assert_eq!(answer("sdc.count == 0", &table(&[(leaf, 1)])), Answer::Fail);
    }
    assert_eq!(
        answer("sdc.count == 0", &table(&[(Leaf::CrashSignal, 1)])),
        Answer::Pass
    );
    assert_eq!(
        answer("sdc_late.count == 0", &table(&[(Leaf::Sdc, 1)])),
        Answer::Pass
    );
}

#[test]
fn a_campaign_that_was_stopped_early_needs_more() {
    let mut early = table(&[(Leaf::MaskedClean, 2_995)]);
    early.planned = 10_000;
    assert_eq!(answer("sdc.upper95 < 0.1%", &early), Answer::Inconclusive);
    let mut enough = table(&[(Leaf::MaskedClean, 3_500)]);
    enough.planned = 10_000;
    assert_eq!(answer("sdc.upper95 < 0.1%", &enough), Answer::Pass);
}

#[test]
fn a_broken_test_bed_answers_nothing() {
    let gate = "sdc.upper95 < 10%";
    let sound = table(&[(Leaf::MaskedClean, 1_000), (Leaf::Infra, 1)]);
    assert_eq!(answer(gate, &sound), Answer::Pass);
    let broken = table(&[(Leaf::MaskedClean, 1_000), (Leaf::Infra, 2)]);
    assert_eq!(answer(gate, &broken), Answer::Infrastructure);
    let mut unclean = table(&[(Leaf::MaskedClean, 1_000)]);
    unclean.control.masked = 49;
    assert_eq!(answer(gate, &unclean), Answer::Infrastructure);
    // A false alarm is a finding about the detector, not about the test bed.
    unclean.control.false_alarms = 1;
    assert_eq!(answer(gate, &unclean), Answer::Pass);
    assert_eq!(answer("false_alarm.count == 0", &unclean), Answer::Fail);
}

#[test]
fn faults_that_did_not_fire_count_for_nothing() {
    let idle = table(&[(Leaf::NotFired, 5_000)]);
    assert_eq!(answer("sdc.upper95 < 0.1%", &idle), Answer::Inconclusive);
    assert_eq!(answer("not_fired.rate < 1%", &idle), Answer::Fail);
    assert_eq!(answer("valid.count >= 1", &idle), Answer::Inconclusive);
}

#[test]
fn logic_has_three_values() {
    let some = table(&[(Leaf::MaskedClean, 900), (Leaf::CrashSignal, 100)]);
    // pass, fail, open
    let (p, f, o) = (
        "crash.count == 100",
        "crash.count == 0",
        "sdc.upper95 < 0.1%",
    );
    for (gate, wanted) in [
        (format!("{p} and {p}"), Answer::Pass),
        (format!("{p} and {f}"), Answer::Fail),
        (format!("{p} and {o}"), Answer::Inconclusive),
        (format!("{f} and {o}"), Answer::Fail),
        (format!("{p} or {o}"), Answer::Pass),
        (format!("{f} or {o}"), Answer::Inconclusive),
        (format!("{f} or {f}"), Answer::Fail),
        (format!("{f} or {p} and {o}"), Answer::Inconclusive),
        (format!("({f} or {p}) and {p}"), Answer::Pass),
    ] {
        assert_eq!(answer(&gate, &some), wanted, "{gate}");
    }
}

#[test]
fn lower_bounds_mirror_upper_ones() {
    let some = table(&[(Leaf::Corrected, 990), (Leaf::MaskedClean, 10)]);
    assert_eq!(answer("corrected.lower95 > 97%", &some), Answer::Pass);
    assert_eq!(answer("corrected.lower95 > 99.9%", &some), Answer::Fail);
    assert_eq!(
        answer("corrected.lower95 > 98.8%", &some),
        Answer::Inconclusive
    );
    assert_eq!(answer("corrected.lower99 > 97%", &some), Answer::Pass);
    assert_eq!(answer("unreachable.rate <= 1%", &some), Answer::Pass);
    assert_eq!(answer("unreachable.rate < 1%", &some), Answer::Fail);
}

#[test]
fn ratios_are_of_failures_and_not_of_shares() {
    let bare = table(&[(Leaf::MaskedClean, 9_000), (Leaf::Sdc, 1_000)]);
    let mut padded = table(&[(Leaf::MaskedClean, 9_500), (Leaf::Sdc, 500)]);
    padded.groups[0].population *= 2;
    let gate = Gate::parse("ratio.sdc.upper95 < 0.6").expect("a gate");
    // Half the share over twice the space is no gain, and known to be none.
    let judge = |table: &Table| gate.judge(table, Some(&bare)).expect("asked").answer;
    assert_eq!(judge(&padded), Answer::Fail);
    padded.groups[0].population /= 2;
    assert_eq!(judge(&padded), Answer::Pass);
    // Crashing instead of answering wrongly helps `sdc`, not `failed`.
    let crashing = table(&[(Leaf::MaskedClean, 9_000), (Leaf::CrashSignal, 1_000)]);
    assert_eq!(judge(&crashing), Answer::Pass);
    let failed = Gate::parse("ratio.failed.upper95 < 0.6").expect("a gate");
    assert_eq!(
        failed.judge(&crashing, Some(&bare)).expect("asked").answer,
        Answer::Fail
    );
    // Three copies are struck three times as often.
    padded.copies = 3;
    assert_eq!(judge(&padded), Answer::Fail);
}

#[test]
fn what_cannot_be_asked_is_said() {
    let some = table(&[(Leaf::MaskedClean, 10)]);
    let said = |gate: &str| match Gate::parse(gate).and_then(|gate| gate.judge(&some, None)) {
        Ok(judgement) => format!("{gate}: {:?}", judgement.answer),
        Err(why) => format!(
            "{gate}\n  {why}\n  fix: {}",
            why.fix().map(|fix| fix.what).unwrap_or_default()
        ),
    };
    let lines: Vec<String> = [
        "",
        "sdc",
        "sdx.upper95 < 0.1%",
        "sdc.upper < 0.1%",
        "sdc.upper95",
        "sdc.upper95 = 0.1%",
        "sdc.upper95 < much",
        "sdc.upper95 < -1%",
        "sdc.upper95 < 5",
        "sdc.count < 0.5",
        "sdc.count < 10%",
        "sdc[].count == 0",
        "sdc[cf].count == 0",
        "(sdc.count == 0",
        "sdc.count == 0 hang.count == 0",
        "sdc.count == 0 and",
        "ratio.sdc.upper95 < 0.5",
        "ratio.valid.count < 5",
        "ratio.sdc.count < 5",
        "valid.rate > 0.5",
        "unreachable.upper95 < 1%",
    ]
    .into_iter()
    .map(said)
    .collect();
    insta::assert_snapshot!("errors", lines.join("\n"));
}

proptest! {
    #[test]
    fn any_text_is_a_gate_or_an_error(text in ".{0,60}") {
        let _ = Gate::parse(&text);
    }

    #[test]
    fn any_words_are_a_gate_or_an_error(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "sdc", ".", "upper95", "<", "0.1", "%", "and", "or", "(", ")", "[", "]", "e", "ratio",
                "count", "==", " ", "0",
            ]),
            0..12,
        )
    ) {
        let text = words.concat();
        if let Ok(gate) = Gate::parse(&text) {
            // What was read is what is said again.
            let asked: Vec<&str> = gate.comparisons().iter().map(|c| c.text.as_str()).collect();
            for one in asked {
                prop_assert!(Gate::parse(one).is_ok(), "{one}");
            }
        }
    }
}
