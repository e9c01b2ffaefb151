//! Published tables, exact identities, simulated coverage, and properties.

use proptest::prelude::*;
use statrs::distribution::{Binomial, DiscreteCDF};

use super::compare::{self, Arm, at_most};
use super::interval::{Confidence, Interval, Tally};
use super::sequential::{Decision, Sequential};
use super::shares::{Share, Shares};
use super::special::{ln_1m_exp, ln_beta_reg};
use super::{bootstrap, power};

const P95: Confidence = Confidence::P95;

fn near(found: f64, wanted: f64, slack: f64) {
    assert!((found - wanted).abs() <= slack, "{found} is not {wanted}");
}

fn ends(found: Interval, low: f64, high: f64) {
    // Tables have four decimals.
    near(found.low, low, 0.000_051);
    near(found.high, high, 0.000_051);
}

/// Newcombe 1998, Statistics in Medicine 17, 857–872, table I.
#[test]
fn one_rate_as_in_newcombes_table() {
    struct Row {
        k: u64,
        n: u64,
        wilson: (f64, f64),
        exact: (f64, f64),
    }
    for Row {
        k,
        n,
        wilson,
        exact,
    } in [
        Row {
            k: 81,
            n: 263,
            wilson: (0.2553, 0.3662),
            exact: (0.2527, 0.3676),
        },
        Row {
            k: 15,
            n: 148,
            wilson: (0.0624, 0.1605),
            exact: (0.0578, 0.1617),
        },
        Row {
            k: 0,
            n: 20,
            wilson: (0.0000, 0.1611),
            exact: (0.0000, 0.1684),
        },
        Row {
            k: 1,
            n: 29,
            wilson: (0.0061, 0.1718),
            exact: (0.0009, 0.1776),
        },
    ] {
        let tally = Tally::new(k, n);
        ends(tally.wilson(P95), wilson.0, wilson.1);
        ends(tally.clopper_pearson(P95), exact.0, exact.1);
    }
}

/// Newcombe 1998, Statistics in Medicine 17, 873–890, table II, method 10.
#[test]
fn differences_as_in_newcombes_table() {
    let arm = |k, n| Arm::new(Shares::single(Tally::new(k, n)), 1.0, 1.0).expect("an arm");
    struct Row {
        b: (u64, u64),
        a: (u64, u64),
        low: f64,
        high: f64,
    }
    for Row { b, a, low, high } in [
        Row {
            b: (56, 70),
            a: (48, 80),
            low: 0.0524,
            high: 0.3339,
        },
        Row {
            b: (9, 10),
            a: (3, 10),
            low: 0.1705,
            high: 0.8090,
        },
        Row {
            b: (6, 7),
            a: (2, 7),
            low: 0.0582,
            high: 0.8062,
        },
        Row {
            b: (5, 56),
            a: (0, 29),
            low: -0.0381,
            high: 0.1926,
        },
        Row {
            b: (0, 10),
            a: (0, 20),
            low: -0.1611,
            high: 0.2775,
        },
        Row {
            b: (10, 10),
            a: (0, 20),
            low: 0.6791,
            high: 1.0000,
        },
    ] {
        let (_, interval) =
            compare::difference(&arm(a.0, a.1), &arm(b.0, b.1), P95).expect("both have runs");
        ends(interval, low, high);
    }
}

#[test]
fn nothing_seen_has_the_published_bounds() {
    // 1 − 0.05^(1/n); the rule of three is its approximation.
    near(Tally::new(0, 80).upper(P95), 0.0368, 0.0001);
    near(Tally::new(0, 300).upper(P95), 0.0099, 0.0001);
    near(Tally::new(0, 680).upper(P95), 0.0044, 0.0001);
    near(Tally::new(0, 8_000).upper(P95), 0.000_374, 0.000_001);
    for n in [50, 500, 5_000_000] {
        let n_f = n as f64;
        let bound = Tally::new(0, n).upper(P95);
        assert!(bound < 3.0 / n_f && bound > 2.9 / n_f, "{n}: {bound}");
    }
}

#[test]
fn clean_runs_for_a_claim() {
    for (limit, runs) in [(0.01, 299), (0.001, 2_995), (0.0001, 29_956)] {
        assert_eq!(power::clean_runs(limit, P95), Some(runs));
        assert!(Tally::new(0, runs).upper(P95) < limit);
        assert!(Tally::new(0, runs - 1).upper(P95) >= limit);
    }
    assert_eq!(power::clean_runs(0.0, P95), None);
    assert_eq!(power::clean_runs(1.0, P95), None);
}

#[test]
fn the_incomplete_beta_function_is_the_librarys() {
    use statrs::function::beta::beta_reg;
    for a in [0.25, 0.5, 1.0, 3.0, 40.0, 170.5] {
        for b in [0.5, 1.0, 7.0, 100.0] {
            for x in [1e-6, 0.01, 0.2, 0.5, 0.8, 0.999] {
                let (found, wanted) = (ln_beta_reg(a, b, x).exp(), beta_reg(a, b, x));
                assert!(
                    (found - wanted).abs() <= 1e-11 * wanted.max(1e-3),
                    "I_{x}({a}, {b}): {found} is not {wanted}"
                );
            }
        }
    }
    near(ln_1m_exp(-1e-20), (1e-20_f64).ln(), 1e-9);
}

/// A million runs: where the library's fraction gives up, the normal approximation is exact enough.
#[test]
fn the_middle_of_a_million_runs() {
    let exact = Tally::new(500_000, 1_000_000).clopper_pearson(P95);
    near(exact.low, 0.5 - 0.000_980_5, 2e-6);
    near(exact.high, 0.5 + 0.000_980_5, 2e-6);
}

#[test]
fn the_binomial_tail_is_the_librarys() {
    let law = Binomial::new(0.03, 500).expect("a law");
    for k in [0, 3, 15, 40] {
        near(at_most(k, 500, 0.03), law.cdf(k), 1e-10);
    }
}

/// Coverage of the exact interval, summed over all outcomes: never below what it says.
#[test]
fn the_exact_bound_covers_every_rate() {
    for n in [1, 5, 30, 100] {
        let bounds: Vec<f64> = (0..=n).map(|k| Tally::new(k, n).upper(P95)).collect();
        for p in (1..200).map(|i| f64::from(i) / 200.0) {
            let mut missed = 0.0;
            let mut before = 0.0;
            for (k, bound) in bounds.iter().enumerate() {
                let up_to = at_most(k as u64, n, p);
                if *bound < p {
                    missed += up_to - before;
                }
                before = up_to;
            }
            assert!(missed <= 0.05 + 1e-9, "{n} runs at {p}: wrong {missed}");
        }
    }
}

/// Simulated: a stream of runs looked at after each one.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        // SplitMix64 (Steele, Lea and Flood 2014): any generator would do.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Dice {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below n"
    )]
    fn below(&mut self, n: usize) -> usize {
        (self.next() * n as f64) as usize
    }
}

/// How many of `streams` ever say `wrong` about `limit`.
fn ever(streams: u32, runs: u64, p: f64, mut says_wrong: impl FnMut(Tally) -> bool) -> f64 {
    let mut dice = Dice(7);
    let mut count = 0;
    for _ in 0..streams {
        let mut tally = Tally::default();
        for _ in 0..runs / 10 {
            let hits = (0..10).filter(|_| dice.next() < p).count() as u64;
            tally = tally.and(Tally::new(hits, 10));
            if says_wrong(tally) {
                count += 1;
                break;
            }
        }
    }
    f64::from(count) / f64::from(streams)
}

#[test]
fn looking_often_fools_a_fixed_interval_and_not_the_sequential_one() {
    let (p, runs) = (0.05, 1_500);
    let fixed = ever(200, runs, p, |tally| tally.upper(P95) < p);
    assert!(fixed > 0.10, "the alarm that must ring is silent: {fixed}");
    let sequential = Sequential::new(P95);
    let below = ever(200, runs, p, |t| sequential.decide(t, p) == Decision::Below);
    let above = ever(200, runs, p, |t| sequential.decide(t, p) == Decision::Above);
    // 5 % and two standard deviations of 200 streams.
    assert!(below <= 0.08 && above <= 0.08, "{below} {above}");
}

#[test]
fn a_clear_case_is_decided_soon() {
    let sequential = Sequential::new(P95);
    let clean = (1..10_000)
        .find(|&n| sequential.decide(Tally::new(0, n), 0.001) == Decision::Below)
        .expect("decided");
    assert!((3_380..3_430).contains(&clean), "{clean}");
    assert_eq!(
        sequential.decide(Tally::new(20, 100), 0.001),
        Decision::Above
    );
    assert_eq!(
        sequential.decide(Tally::new(1, 1_000), 0.001),
        Decision::Open
    );
    near(sequential.upper(Tally::new(0, clean)), 0.001, 0.000_001);
}

#[test]
fn padding_changes_the_share_and_not_the_failures() {
    let bare = Arm::new(Shares::single(Tally::new(400, 10_000)), 1e6, 1.0).expect("an arm");
    let padded = Arm::new(Shares::single(Tally::new(200, 10_000)), 2e6, 1.0).expect("an arm");
    near(compare::ratio(&bare, &padded).expect("a ratio"), 1.0, 1e-12);
    assert!(compare::ratio_interval(&bare, &padded, P95).contains(1.0));
    // Half the share at the same space is better, and known to be.
    let better = Arm::new(Shares::single(Tally::new(200, 10_000)), 1e6, 1.0).expect("an arm");
    assert!(compare::ratio_upper(&bare, &better, P95) < 0.65);
    assert!(compare::ratio_interval(&bare, &better, P95).high < 0.6);
    // Twice the work in the same space is better as well.
    let busy = Arm::new(Shares::single(Tally::new(400, 10_000)), 1e6, 2.0).expect("an arm");
    near(compare::ratio(&bare, &busy).expect("a ratio"), 0.5, 1e-12);
}

#[test]
fn no_failures_at_all_still_has_a_ratio_bound() {
    let bare = Arm::new(Shares::single(Tally::new(967, 10_000)), 1e6, 1.0).expect("an arm");
    let safe = Arm::new(Shares::single(Tally::new(0, 10_000)), 3e6, 1.0).expect("an arm");
    assert_eq!(compare::ratio(&bare, &safe), Some(0.0));
    let upper = compare::ratio_upper(&bare, &safe, P95);
    assert!(upper > 0.0 && upper < 0.02, "{upper}");
    // The other way round nothing bounds it.
    assert_eq!(compare::ratio(&safe, &bare), None);
    assert!(compare::ratio_upper(&safe, &bare, P95).is_infinite());
    assert!(compare::ratio_lower(&safe, &bare, P95) > 50.0);
}

/// Behrens et al. 2013, data flow: 21.0 % of 8,000 bare, 30 escapes hardened. Gain by share 224,
/// and half of that if the hardened run executes twice the instructions.
#[test]
fn gain_by_failures_is_not_gain_by_share() {
    let bare = Arm::new(Shares::single(Tally::new(6_720, 32_000)), 1.0, 1.0).expect("an arm");
    let hard = Arm::new(Shares::single(Tally::new(30, 32_000)), 2.0, 1.0).expect("an arm");
    near(
        1.0 / compare::ratio(&bare, &hard).expect("a ratio"),
        112.0,
        0.1,
    );
}

#[test]
fn groups_count_by_their_weight() {
    let shares = Shares::new([
        Share {
            weight: 9.0,
            tally: Tally::new(0, 1_000),
        },
        Share {
            weight: 1.0,
            tally: Tally::new(500, 1_000),
        },
    ])
    .expect("weights");
    near(shares.rate().expect("runs"), 0.05, 1e-12);
    let shown = shares.interval(P95);
    assert!(shown.low > 0.04 && shown.high < 0.06, "{shown:?}");
    assert!(shares.lower(P95) < 0.05 && shares.upper(P95) > 0.05);
    assert!(shares.upper(P95) < 0.06, "{}", shares.upper(P95));
    // All runs alike would say 25 %.
    near(shares.pooled().rate().expect("runs"), 0.25, 1e-12);
}

#[test]
fn a_group_without_runs_may_be_anything() {
    let shares = Shares::new([
        Share {
            weight: 0.75,
            tally: Tally::new(0, 1_000),
        },
        Share {
            weight: 0.25,
            tally: Tally::new(0, 0),
        },
    ])
    .expect("weights");
    assert_eq!(shares.rate(), None);
    assert_eq!(shares.interval(P95), Interval::UNKNOWN);
    let upper = shares.upper(P95);
    assert!((0.25..0.26).contains(&upper), "{upper}");
}

#[test]
fn planning_keeps_its_power() {
    let runs = power::runs_for(0.0005, 0.001, 0.8, P95).expect("a plan");
    let allowed = power::hits_allowed(runs, 0.001, P95).expect("some");
    assert!(at_most(allowed, runs, 0.0005) >= 0.8);
    assert!((15_000..40_000).contains(&runs), "{runs}");
    assert_eq!(power::runs_for(0.001, 0.001, 0.8, P95), None);
    assert_eq!(power::runs_if(0.0, 0.001, P95), Some(2_995));
}

#[test]
fn the_bootstrap_of_equal_values_is_a_point() {
    let mut dice = Dice(1);
    let mut pick = |n: usize| dice.below(n);
    let median = |lists: &[Vec<f64>]| bootstrap::quantile(&lists[0], 0.5);
    let (value, interval) = bootstrap::bootstrap(&[&[3.0; 10]], &mut pick, median).expect("values");
    assert_eq!((value, interval.low, interval.high), (3.0, 3.0, 3.0));
    let spread: Vec<f64> = (0..100).map(f64::from).collect();
    let (value, interval) = bootstrap::bootstrap(&[&spread], &mut pick, median).expect("values");
    assert_eq!(value, 49.5);
    // The standard error of this median is 5.
    assert!(interval.low > 32.0 && interval.low < 44.0 && interval.high < 67.0);
    assert!(bootstrap::bootstrap(&[&[]], &mut pick, median).is_none());
}

fn tallies() -> impl Strategy<Value = Tally> {
    (1_u64..20_000).prop_flat_map(|n| (0..=n).prop_map(move |k| Tally::new(k, n)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_interval_holds_its_estimate_and_stays_a_rate(tally in tallies()) {
        let rate = tally.rate().expect("runs");
        for interval in [tally.wilson(P95), tally.clopper_pearson(P95)] {
            prop_assert!(0.0 <= interval.low && interval.low <= rate + 1e-12);
            prop_assert!(rate <= interval.high + 1e-12 && interval.high <= 1.0);
        }
        let sequential = Sequential::new(P95);
        prop_assert!(sequential.upper(tally) >= tally.upper(P95) - 1e-9);
        prop_assert!(sequential.lower(tally) <= tally.lower(P95) + 1e-9);
    }

    #[test]
    fn the_ends_of_the_exact_interval_have_the_tails_they_promise(tally in tallies()) {
        let exact = tally.clopper_pearson(P95);
        if tally.hits < tally.runs {
            prop_assert!((at_most(tally.hits, tally.runs, exact.high) - 0.025).abs() < 1e-8);
        }
        if tally.hits > 0 {
            prop_assert!((1.0 - at_most(tally.hits - 1, tally.runs, exact.low) - 0.025).abs() < 1e-8);
        }
    }

    #[test]
    fn misses_mirror_hits(tally in tallies()) {
        let mirrored = Tally::new(tally.runs - tally.hits, tally.runs);
        prop_assert!((tally.upper(P95) - (1.0 - mirrored.lower(P95))).abs() < 1e-9);
        prop_assert!((tally.wilson(P95).low - (1.0 - mirrored.wilson(P95).high)).abs() < 1e-9);
    }

    #[test]
    fn more_hits_never_lower_a_bound(tally in tallies()) {
        if tally.hits < tally.runs {
            let more = Tally::new(tally.hits + 1, tally.runs);
            prop_assert!(more.upper(P95) >= tally.upper(P95));
            prop_assert!(more.lower(P95) >= tally.lower(P95));
            let s = Sequential::new(P95);
            prop_assert!(s.upper(more) >= s.upper(tally) - 1e-12);
        }
    }

    #[test]
    fn one_group_is_the_simple_case_and_equal_groups_lose_nothing(tally in tallies()) {
        let single = Shares::single(tally);
        prop_assert!((single.upper(P95) - tally.upper(P95)).abs() < 1e-12);
        prop_assert!((single.interval(P95).high - tally.wilson(P95).high).abs() < 1e-12);
        let halves = Shares::new([tally, tally].map(|tally| Share { weight: 0.5, tally }))
            .expect("weights");
        let both = tally.and(tally);
        prop_assert!((halves.upper(P95) - both.upper(P95)).abs() < 1e-12);
        prop_assert!((halves.lower(P95) - both.lower(P95)).abs() < 1e-12);
    }

    #[test]
    fn scaling_both_arms_leaves_their_ratio(
        a in tallies(), b in tallies(), scale in 0.001_f64..1e9
    ) {
        let arm = |tally, by| Arm::new(Shares::single(tally), by, 1.0).expect("an arm");
        let plain = compare::ratio_interval(&arm(a, 1.0), &arm(b, 1.0), P95);
        let scaled = compare::ratio_interval(&arm(a, scale), &arm(b, scale), P95);
        prop_assert!((plain.low - scaled.low).abs() <= 1e-9 * plain.low.max(1e-9));
        if let Some(value) = compare::ratio(&arm(a, 1.0), &arm(b, 1.0)) {
            prop_assert!(plain.low <= value * (1.0 + 1e-9) && value <= plain.high * (1.0 + 1e-9));
            let upper = compare::ratio_upper(&arm(a, 1.0), &arm(b, 1.0), P95);
            prop_assert!(upper >= value);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    /// The guaranteed bound of weighted groups, by simulation, at any allocation.
    #[test]
    fn weighted_bounds_cover(
        rates in prop::collection::vec(0.0_f64..0.1, 3),
        weights in prop::collection::vec(0.05_f64..1.0, 3),
        runs in prop::collection::vec(20_u64..400, 3),
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        let sum: f64 = weights.iter().sum();
        let truth: f64 = rates.iter().zip(&weights).map(|(p, w)| p * w / sum).sum();
        let trials = 60;
        let missed = (0..trials)
            .filter(|_| {
                let shares = Shares::new(rates.iter().zip(&weights).zip(&runs).map(|((p, w), n)| {
                    let hits = (0..*n).filter(|_| dice.next() < *p).count() as u64;
                    Share { weight: *w, tally: Tally::new(hits, *n) }
                }))
                .expect("weights");
                shares.upper(P95) < truth
            })
            .count();
        // 5 % of 60 is 3; more than 12 has a chance of 10^-5 per case.
        prop_assert!(missed <= 12, "{missed} of {trials}");
    }
}
