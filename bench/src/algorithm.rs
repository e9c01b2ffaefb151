//! `bench algorithm`: the model of the hardening algorithm whole, each rule left out, and more faults than it is made for.
//!
//! Invariant: each search says what it should find, and one that finds anything else fails the command.
//!
//! Not covered: what the model leaves out (crates/model/src/lib.rs).

use std::time::Instant;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use steadfast_model::{self as model, Bounds, Found, ONE, Program, Rule, TWO, TWO_LONG};
use steadfast_report::published::Row;

use crate::machine::Machine;
use crate::table;

/// What the algorithm is searched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Complete,
    /// The level of the paper's rules.
    Level,
    /// A rule, or two groups of gates, is left out, and a fault does harm then.
    Without,
    /// A rule is left out, and none does.
    Spare,
    /// Faults that the algorithm is not made for.
    Beyond,
    /// A rule is left out because the command line says so.
    Asked,
}

/// One search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Search {
    pub kind: Kind,
    pub name: String,
    pub threads: usize,
    pub states: usize,
    pub faults: u64,
    pub seconds: f64,
    pub found: String,
    /// The shortest way to it, where something was found.
    pub trace: Option<Vec<String>>,
}

impl Search {
    fn is_as_expected(&self) -> bool {
        match self.kind {
            Kind::Complete | Kind::Level | Kind::Spare => self.trace.is_none(),
            Kind::Without | Kind::Beyond => self.trace.is_some(),
            Kind::Asked => true,
        }
    }
}

/// The whole result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AlgorithmReport {
    pub bench: String,
    pub machine: Machine,
    pub searches: Vec<Search>,
}

impl AlgorithmReport {
    /// Whether each search found what it should.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        self.searches.iter().all(Search::is_as_expected)
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Search> {
        self.searches
            .iter()
            .filter(move |search| search.kind == kind)
    }
}

fn search(kind: Kind, name: &str, inputs: &[&[u8]], without: &[Rule], bounds: Bounds) -> Search {
    let begun = Instant::now();
    let searched = model::search(&Program::new(inputs, without), bounds);
    let (found, trace) = match searched.found {
        Found::Nothing => ("none", None),
        Found::Corrupt(trace) => ("corrupt message", Some(trace)),
        Found::FalseAlarm(trace) => ("alarm without a fault", Some(trace)),
        Found::Stuck(trace) => ("standstill without a fault", Some(trace)),
    };
    Search {
        kind,
        name: name.to_owned(),
        threads: inputs.len(),
        states: searched.states,
        faults: searched.strikes,
        seconds: begun.elapsed().as_secs_f64(),
        found: found.to_owned(),
        trace: trace.map(|trace| trace.0),
    }
}

fn without(rules: &[Rule]) -> String {
    let names: Vec<String> = rules.iter().map(ToString::to_string).collect();
    format!("without {}", names.join(", "))
}

/// Searches: all that the specification asks, or with these rules left out.
///
/// # Errors
/// When there is no rule of a name.
pub fn measure(
    left_out: &[String],
    machine: Machine,
    say: &mut dyn FnMut(&str),
) -> Result<AlgorithmReport> {
    let mut searches = Vec::new();
    let mut one = |kind, name: &str, inputs: &[&[u8]], rules: &[Rule], bounds| {
        say(name);
        searches.push(search(kind, name, inputs, rules, bounds));
        searches.last().is_some_and(|search| search.trace.is_some())
    };
    if left_out.is_empty() {
        for inputs in [ONE, TWO, TWO_LONG] {
            one(Kind::Complete, "complete", inputs, &[], Bounds::PAPER);
            let rules = &Rule::BEYOND;
            one(Kind::Level, "protect=sei", inputs, rules, Bounds::SEI);
        }
        for (rules, case) in Rule::NEEDED {
            let inputs = model::inputs(case);
            one(Kind::Without, &without(rules), inputs, rules, Bounds::PAPER);
        }
        for rule in Rule::SPARE {
            for inputs in [ONE, TWO] {
                let name = without(&[rule]);
                one(Kind::Spare, &name, inputs, &[rule], Bounds::PAPER);
            }
        }
        let into_handlers = Bounds {
            counted: false,
            ..Bounds::PAPER
        };
        for inputs in [ONE, TWO] {
            let name = "with faults into handlers";
            one(Kind::Beyond, name, inputs, &[], into_handlers);
        }
        let two = Bounds {
            faults: 2,
            ..Bounds::PAPER
        };
        one(Kind::Beyond, "two faults", ONE, &[], two);
    } else {
        let mut rules = Vec::new();
        for name in left_out {
            let Some(rule) = Rule::ALL.into_iter().find(|rule| rule.to_string() == *name) else {
                let known = Rule::ALL.map(|rule| rule.to_string()).join(", ");
                bail!("no rule is called {name:?}; known: {known}");
            };
            rules.push(rule);
        }
        let name = without(&rules);
        // The first counterexample is the shortest.
        let _ = one(Kind::Asked, &name, ONE, &rules, Bounds::PAPER)
            || one(Kind::Asked, &name, TWO, &rules, Bounds::PAPER);
    }
    Ok(AlgorithmReport {
        bench: "algorithm".to_owned(),
        machine,
        searches,
    })
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &AlgorithmReport) -> Vec<Row> {
    let found = |kind| {
        let with_harm = report.of(kind).filter(|search| search.trace.is_some());
        u64::try_from(with_harm.count()).unwrap_or(u64::MAX)
    };
    let mut rows = Vec::new();
    let faults: u64 = report.of(Kind::Complete).map(|search| search.faults).sum();
    if faults > 0 {
        let states: usize = report.of(Kind::Complete).map(|search| search.states).sum();
        let what = format!(
            "corrupt messages taken for sound, of every single fault in {:.1} million states of the complete algorithm",
            states as f64 / 1e6
        );
        rows.push(Row::share("one-fault", what, found(Kind::Complete), faults));
    }
    let left_out = report.of(Kind::Without).count();
    if left_out > 0 {
        let what = "rules and groups of gates that are missed, left out one by one";
        let mut row = Row::exactly("rules", what, 100.0, "%");
        row.n = u64::try_from(left_out).ok();
        row.hits = Some(found(Kind::Without));
        row.value = found(Kind::Without) as f64 / left_out as f64 * 100.0;
        rows.push(row);
    }
    rows
}

/// The table; with `traces` the shortest way to each counterexample.
#[must_use]
pub fn render(report: &AlgorithmReport, traces: bool) -> String {
    let header = ["", "threads", "states", "faults", "s", "counterexample"];
    let rows: Vec<Vec<String>> = report
        .searches
        .iter()
        .map(|search| {
            let found = match &search.trace {
                Some(trace) => format!("{} after {} steps", search.found, trace.len()),
                None => search.found.clone(),
            };
            let wrong = match search.is_as_expected() {
                true => "",
                false => ", NOT AS EXPECTED",
            };
            vec![
                search.name.clone(),
                search.threads.to_string(),
                search.states.to_string(),
                search.faults.to_string(),
                format!("{:.1}", search.seconds),
                found + wrong,
            ]
        })
        .collect();
    let mut out = table::render(&header, &rows);
    for search in report.searches.iter().filter(|_| traces) {
        for (at, step) in search.trace.iter().flatten().enumerate() {
            if at == 0 {
                out += &format!("{}, {} threads:\n", search.name, search.threads);
            }
            out += &format!("    {step}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(kind: Kind, trace: Option<Vec<String>>) -> Search {
        Search {
            kind,
            name: "complete".to_owned(),
            threads: 1,
            states: 2_100_000,
            faults: 1000,
            seconds: 1.0,
            found: "none".to_owned(),
            trace,
        }
    }

    fn report(searches: Vec<Search>) -> AlgorithmReport {
        AlgorithmReport {
            bench: "algorithm".to_owned(),
            machine: crate::tests::machine(),
            searches,
        }
    }

    #[test]
    fn what_is_not_as_expected_fails_and_what_is_does_not() {
        let way = || Some(vec!["a step".to_owned()]);
        let good = report(vec![
            searched(Kind::Complete, None),
            searched(Kind::Without, way()),
            searched(Kind::Beyond, way()),
        ]);
        assert!(good.is_as_expected());
        let rows = rows(&good);
        assert_eq!((rows[0].hits, rows[0].n), (Some(0), Some(1000)));
        assert_eq!((rows[1].hits, rows[1].n), (Some(1), Some(1)));
        assert!(!report(vec![searched(Kind::Complete, way())]).is_as_expected());
        assert!(!report(vec![searched(Kind::Without, None)]).is_as_expected());
    }

    #[test]
    fn a_rule_that_is_left_out_is_named_with_the_way_to_the_harm() {
        let asked = ["R5".to_owned()];
        let found = measure(&asked, crate::tests::machine(), &mut |_| ()).unwrap();
        assert!(render(&found, true).contains("FAULT: "));
        assert!(rows(&found).is_empty());
        let unknown = measure(&["R99".to_owned()], crate::tests::machine(), &mut |_| ());
        assert!(unknown.unwrap_err().to_string().contains("known: "));
    }
}
