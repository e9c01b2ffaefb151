//! The search in small, as part of the suite; `bench algorithm` goes further.

use crate::{Bounds, Found, ONE, Program, Rule, TWO, TWO_LONG, inputs, search};

fn found(inputs: &[&[u8]], without: &[Rule], bounds: Bounds) -> Found {
    search(&Program::new(inputs, without), bounds).found
}

#[test]
fn the_complete_algorithm_lets_no_corrupt_message_out() {
    for inputs in [ONE, TWO, TWO_LONG] {
        let searched = search(&Program::new(inputs, &[]), Bounds::PAPER);
        assert_eq!(searched.found, Found::Nothing);
        // It is a check only if faults strike and are noticed.
        assert!(
            searched.strikes > 10_000 && searched.alarms > 1_000,
            "{searched:?}"
        );
    }
}

/// It rests on one more assumption than the complete algorithm, and would let a message out without that.
#[test]
fn the_level_of_the_paper_lets_no_corrupt_message_out() {
    for inputs in [ONE, TWO, TWO_LONG] {
        assert_eq!(found(inputs, &Rule::BEYOND, Bounds::SEI), Found::Nothing);
    }
    assert_ne!(found(ONE, &Rule::BEYOND, Bounds::PAPER), Found::Nothing);
}

#[test]
fn without_a_fault_there_is_no_alarm() {
    for inputs in [ONE, TWO] {
        let none = Bounds {
            faults: 0,
            ..Bounds::PAPER
        };
        let searched = search(&Program::new(inputs, &[]), none);
        assert_eq!((searched.found, searched.alarms), (Found::Nothing, 0));
    }
}

#[test]
fn each_rule_that_is_left_out_lets_one_fault_do_harm() {
    for (rules, threads) in Rule::NEEDED {
        let found = found(inputs(threads), rules, Bounds::PAPER);
        assert_ne!(found, Found::Nothing, "without {rules:?}");
    }
}

#[test]
fn every_rule_is_either_needed_or_said_to_be_spare() {
    for rule in Rule::ALL {
        let needed = Rule::NEEDED.iter().any(|(rules, _)| *rules == [rule]);
        assert_ne!(needed, Rule::SPARE.contains(&rule), "{rule}");
    }
}

#[test]
fn a_fault_that_goes_from_outside_into_a_handler_is_beyond_it() {
    let found = found(
        ONE,
        &[],
        Bounds {
            counted: false,
            ..Bounds::PAPER
        },
    );
    let Found::Corrupt(trace) = found else {
        panic!("{found:?}");
    };
    assert!(trace.to_string().contains("FAULT: jumps to I: "), "{trace}");
}

#[test]
fn two_faults_are_beyond_it() {
    let found = found(
        ONE,
        &[],
        Bounds {
            faults: 2,
            ..Bounds::PAPER
        },
    );
    let Found::Corrupt(trace) = found else {
        panic!("{found:?}");
    };
    assert_eq!(trace.to_string().matches("FAULT").count(), 2, "{trace}");
}
