//! Gates: what a campaign must show, as one line, and the answer.
//!
//! ```text
//! gate       = term { "or" term }
//! term       = factor { "and" factor }
//! factor     = comparison | "(" gate ")"
//! comparison = field operator number
//! field      = ["ratio."] outcome ["[" group "]"] "." measure
//! outcome    = sdc | crash | hang | detected | corrected | masked | failed | manifested
//!            | false_alarm | not_fired | infra | a leaf | unreachable | valid
//! measure    = rate | upper95 | lower95 | count        (also 90 and 99)
//! operator   = "<" | "<=" | ">" | ">=" | "=="
//! number     = digits ["." digits] ["e" digits] ["%" | "ppm"]
//! ```
//!
//! `sdc.upper95 < 0.1%`: wrong answers per injection are below 0.1 %, with at least 95 %
//! confidence. `sdc[wreg].count == 0`: among the runs of one fault type. `ratio.failed.upper95 <
//! 0.5`: failures per unit of work are less than half of the baseline's.
//!
//! A bound that does not reach its limit yet is no failure: it is *inconclusive*, unless the data
//! already contradict it with the same confidence. Then it fails. Of a campaign that was not run
//! to its planned end the bounds allow for having been looked at after every run.
//!
//! Invariants
//!  1. Nothing passes for lack of data: an empty campaign is inconclusive.
//!  2. A campaign whose test bed failed in more than a thousandth of its runs, or whose controls
//!     did not come out clean, answers nothing: [`Answer::Infrastructure`].

mod parse;

use std::fmt;

use steadfast_contract::outcome::Outcome;

use crate::format::{count, percent, quantity};
use crate::stats::{Arm, Confidence, Shares, compare, power};
use crate::tabulate::{Table, Which};
pub use parse::GateError;

/// A gate, parsed.
#[derive(Debug, Clone, PartialEq)]
pub enum Gate {
    /// One comparison.
    Compare(Comparison),
    /// All must hold.
    And(Vec<Gate>),
    /// One must hold.
    Or(Vec<Gate>),
}

/// `field operator number`.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What is measured.
    pub field: Field,
    /// How it compares.
    pub operator: Operator,
    /// With what; shares are between 0 and 1.
    pub limit: f64,
    text: String,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Over the baseline's, per unit of work.
    pub ratio: bool,
    /// Of what.
    pub subject: Subject,
    /// Within one fault type.
    pub group: Option<String>,
    /// The number that is taken.
    pub measure: Measure,
}

/// Of what a measure is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Runs of a kind.
    Runs(Which),
    /// Executions at which no fault can be planted.
    Unreachable,
    /// Runs that count.
    Valid,
}

/// The number that is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// How many.
    Count,
    /// The estimate.
    Rate,
    /// The guaranteed one-sided upper bound.
    Upper(Confidence),
    /// The guaranteed one-sided lower bound.
    Lower(Confidence),
}

/// A comparison of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
}

/// What a gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It holds.
    Pass,
    /// It does not hold.
    Fail,
    /// More runs are needed.
    Inconclusive,
    /// The campaign says nothing.
    Infrastructure,
}

/// The answer, and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// For the exit code.
    pub answer: Answer,
    /// One line for each comparison, or for what is wrong with the campaign.
    pub findings: Vec<Finding>,
}

/// One comparison, decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What was asked.
    pub asked: String,
    /// What was found, in words.
    pub found: String,
    /// Its own answer.
    pub answer: Answer,
    /// How many more runs would decide it, when that can be said.
    pub more_runs: Option<u64>,
}

/// Runs that an upper bound asks for when what it bounds never happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// The comparison.
    pub asked: String,
    /// Of a number fixed in advance.
    pub clean: u64,
    /// When somebody may stop after each.
    pub watched: u64,
    /// Of a number fixed in advance, with one hit among them.
    pub one_hit: u64,
}

impl Comparison {
    fn needed(&self) -> Option<Needed> {
        let Measure::Upper(confidence) = self.field.measure else {
            return None;
        };
        let below = matches!(self.operator, Operator::Less | Operator::AtMost);
        if self.field.ratio || !below || !matches!(self.field.subject, Subject::Runs(_)) {
            return None;
        }
        Some(Needed {
            asked: self.text.clone(),
            clean: power::clean_runs(self.limit, confidence)?,
            watched: power::watched_runs(self.limit, confidence)?,
            one_hit: power::runs_with(1, self.limit, confidence)?,
        })
    }
}

impl Answer {
    /// The exit code of `steadfast inject gate`.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::Inconclusive => 2,
            Self::Infrastructure => 3,
        }
    }

    /// The word in reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
            Self::Infrastructure => "infrastructure",
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Operator {
    fn holds(self, found: f64, limit: f64) -> bool {
        match self {
            Self::Less => found < limit,
            Self::AtMost => found <= limit,
            Self::Greater => found > limit,
            Self::AtLeast => found >= limit,
            Self::Equal => (found - limit).abs() <= f64::EPSILON * limit.abs(),
        }
    }
}

impl Gate {
    /// Reads a gate.
    ///
    /// # Errors
    /// When it is none; the error says where and what could stand there.
    pub fn parse(text: &str) -> Result<Self, GateError> {
        parse::gate(text)
    }

    /// Every comparison in it.
    pub fn comparisons(&self) -> Vec<&Comparison> {
        match self {
            Self::Compare(one) => vec![one],
            Self::And(parts) | Self::Or(parts) => {
                parts.iter().flat_map(Self::comparisons).collect()
            }
        }
    }

    /// Whether it needs a baseline.
    #[must_use]
    pub fn needs_baseline(&self) -> bool {
        self.comparisons().iter().any(|one| one.field.ratio)
    }

    /// What its upper bounds ask for before the first run: nothing for other comparisons.
    #[must_use]
    pub fn needed(&self) -> Vec<Needed> {
        self.comparisons()
            .into_iter()
            .filter_map(Comparison::needed)
            .collect()
    }

    /// Decides it. `baseline` is what ratios are over.
    ///
    /// # Errors
    /// When a group is named that the campaign does not have, or a ratio has no baseline.
    pub fn judge(&self, table: &Table, baseline: Option<&Table>) -> Result<Judgement, GateError> {
        for one in self.comparisons() {
            check(one, table, baseline)?;
        }
        let unsound: Vec<Finding> = [(Some(table), ""), (baseline, "baseline: ")]
            .into_iter()
            .filter_map(|(table, whose)| table.map(|table| (table, whose)))
            .flat_map(|(table, whose)| soundness(table, whose))
            .collect();
        let mut findings = Vec::new();
        let answer = self.decide(table, baseline, &mut findings);
        if unsound.is_empty() {
            return Ok(Judgement { answer, findings });
        }
        Ok(Judgement {
            answer: Answer::Infrastructure,
            findings: unsound,
        })
    }

    fn decide(&self, table: &Table, base: Option<&Table>, findings: &mut Vec<Finding>) -> Answer {
        match self {
            Self::Compare(one) => {
                let finding = one.decide(table, base);
                let answer = finding.answer;
                findings.push(finding);
                answer
            }
            // Every part is decided, so that the reader sees all of them.
            Self::And(parts) => combine(parts, table, base, findings, Answer::Fail, Answer::Pass),
            Self::Or(parts) => combine(parts, table, base, findings, Answer::Pass, Answer::Fail),
        }
    }
}

/// Three-valued logic: one `strong` part decides, `weak` needs all of them.
fn combine(
    parts: &[Gate],
    table: &Table,
    base: Option<&Table>,
    findings: &mut Vec<Finding>,
    strong: Answer,
    weak: Answer,
) -> Answer {
    let answers: Vec<Answer> = parts
        .iter()
        .map(|part| part.decide(table, base, findings))
        .collect();
    if answers.contains(&strong) {
        strong
    } else if answers.iter().all(|answer| *answer == weak) {
        weak
    } else {
        Answer::Inconclusive
    }
}

fn check(one: &Comparison, table: &Table, baseline: Option<&Table>) -> Result<(), GateError> {
    if one.field.ratio && baseline.is_none() {
        return Err(GateError::NoBaseline {
            asked: one.text.clone(),
        });
    }
    let Some(group) = &one.field.group else {
        return Ok(());
    };
    for table in [Some(table), baseline.filter(|_| one.field.ratio)]
        .into_iter()
        .flatten()
    {
        if table.group(group).is_none() {
            return Err(GateError::NoGroup {
                group: group.clone(),
                groups: table.groups.iter().map(|g| g.name.clone()).collect(),
            });
        }
    }
    Ok(())
}

/// Reasons to believe nothing.
fn soundness(table: &Table, whose: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |asked: &str, found: String| {
        findings.push(Finding {
            asked: format!("{whose}{asked}"),
            found,
            answer: Answer::Infrastructure,
            more_runs: None,
        });
    };
    let (infra, finished) = (
        table.count(Which::Outcome(Outcome::Infra)),
        table.finished(),
    );
    // A thousandth: research and the field take it as the most that a test bed may lose without
    // casting doubt on the rest.
    if infra * 1_000 > finished {
        say(
            "infra.rate <= 0.1%",
            format!(
                "the test bed failed in {} of {} runs",
                count(infra),
                count(finished)
            ),
        );
    }
    let control = table.control;
    if control.masked + control.false_alarms < control.runs {
        say(
            "controls as the golden run",
            format!(
                "{} of {} runs without a fault ended differently",
                control.runs - control.masked - control.false_alarms,
                control.runs
            ),
        );
    }
    findings
}

impl Comparison {
    fn decide(&self, table: &Table, baseline: Option<&Table>) -> Finding {
        let finding = |found: String, answer, more_runs| Finding {
            asked: self.text.clone(),
            found,
            answer,
            more_runs,
        };
        let plain = |value: f64, found: String| {
            let holds = self.operator.holds(value, self.limit);
            finding(found, if holds { Answer::Pass } else { Answer::Fail }, None)
        };
        let which = match self.field.subject {
            Subject::Unreachable => {
                let population = &table.population;
                let lost: u64 = population.unreachable.values().sum();
                if population.dynamic == 0 {
                    let found = "executions were not counted".to_owned();
                    return finding(found, Answer::Inconclusive, None);
                }
                let value = match self.field.measure {
                    Measure::Count => lost as f64,
                    _ => lost as f64 / population.dynamic as f64,
                };
                return plain(
                    value,
                    format!(
                        "{} of {} executions",
                        count(lost),
                        count(population.dynamic)
                    ),
                );
            }
            Subject::Valid => {
                let valid = match &self.field.group {
                    None => table.valid(),
                    Some(name) => table.group(name).map_or(0, |g| g.valid()),
                };
                // Too few runs are not a failure of the target.
                let holds = self.operator.holds(valid as f64, self.limit);
                let answer = if holds {
                    Answer::Pass
                } else {
                    Answer::Inconclusive
                };
                return finding(format!("{} runs count", count(valid)), answer, None);
            }
            Subject::Runs(which) => which,
        };
        if self.field.ratio {
            return match baseline {
                Some(baseline) => self.decide_ratio(which, table, baseline),
                None => finding("no baseline".to_owned(), Answer::Inconclusive, None),
            };
        }
        let shares = table.shares(which, self.field.group.as_deref());
        let tally = shares.pooled();
        let of = format!("{} of {} runs", count(tally.hits), count(tally.runs));
        if tally.runs == 0 {
            return finding(
                "no runs".to_owned(),
                Answer::Inconclusive,
                self.more(&shares),
            );
        }
        let early = !table.is_complete();
        let bounds = |confidence: Confidence| {
            if early {
                (
                    shares.lower_any_time(confidence),
                    shares.upper_any_time(confidence),
                )
            } else {
                (shares.lower(confidence), shares.upper(confidence))
            }
        };
        match self.field.measure {
            Measure::Count => plain(tally.hits as f64, of),
            Measure::Rate => match shares.rate() {
                Some(rate) => plain(rate, format!("{}, {of}", percent(rate))),
                None => finding("a group has no runs".to_owned(), Answer::Inconclusive, None),
            },
            Measure::Upper(confidence) | Measure::Lower(confidence) => {
                let (lower, upper) = bounds(confidence);
                let (value, other, side) = match self.field.measure {
                    Measure::Upper(_) => (upper, lower, "below"),
                    _ => (lower, upper, "above"),
                };
                let looked = if early {
                    ", looked at before the end"
                } else {
                    ""
                };
                let found = format!("{side} {}, {of}{looked}", percent(value));
                if self.operator.holds(value, self.limit) {
                    return finding(found, Answer::Pass, None);
                }
                // Contradicted when even the opposite bound is on the wrong side.
                if !self.operator.holds(other, self.limit) {
                    return finding(found, Answer::Fail, None);
                }
                finding(found, Answer::Inconclusive, self.more(&shares))
            }
        }
    }

    fn decide_ratio(&self, which: Which, table: &Table, baseline: &Table) -> Finding {
        let finding = |found: String, answer| Finding {
            asked: self.text.clone(),
            found,
            answer,
            more_runs: None,
        };
        let group = self.field.group.as_deref();
        let arm = |table: &Table| {
            let (shares, space) = table.space(which, group);
            Arm::new(shares, space, 1.0)
        };
        let (Some(a), Some(b)) = (arm(baseline), arm(table)) else {
            let found = "executions were not counted, so failures cannot be extrapolated";
            return finding(found.to_owned(), Answer::Inconclusive);
        };
        let failures = |arm: &Arm| arm.absolute().map_or("?".to_owned(), quantity);
        let of = format!("{} failures over {}", failures(&b), failures(&a));
        match self.field.measure {
            Measure::Count => finding("a ratio has no count".to_owned(), Answer::Inconclusive),
            Measure::Rate => match compare::ratio(&a, &b) {
                Some(ratio) if self.operator.holds(ratio, self.limit) => {
                    finding(format!("{}, {of}", quantity(ratio)), Answer::Pass)
                }
                Some(ratio) => finding(format!("{}, {of}", quantity(ratio)), Answer::Fail),
                None => finding(
                    format!("no failures to compare with, {of}"),
                    Answer::Inconclusive,
                ),
            },
            Measure::Upper(confidence) | Measure::Lower(confidence) => {
                let lower = compare::ratio_lower(&a, &b, confidence);
                let upper = compare::ratio_upper(&a, &b, confidence);
                let (value, other, side) = match self.field.measure {
                    Measure::Upper(_) => (upper, lower, "below"),
                    _ => (lower, upper, "above"),
                };
                let found = format!("{side} {}, {of}", quantity(value));
                if self.operator.holds(value, self.limit) {
                    finding(found, Answer::Pass)
                } else if !self.operator.holds(other, self.limit) {
                    finding(found, Answer::Fail)
                } else {
                    finding(found, Answer::Inconclusive)
                }
            }
        }
    }

    /// Runs that would bring an upper bound below its limit if nothing new happens.
    fn more(&self, shares: &Shares) -> Option<u64> {
        let Measure::Upper(confidence) = self.field.measure else {
            return None;
        };
        let tally = shares.pooled();
        power::runs_if(tally.rate().unwrap_or(0.0), self.limit, confidence)?
            .checked_sub(tally.runs)
            .filter(|more| *more > 0)
    }
}

#[cfg(test)]
mod tests;
