//! Two campaigns side by side, by failures per unit of work.
//!
//! Compared is what users suffer ([`crate::stats::compare`] says why), for wrong answers alone and
//! for wrong answers, crashes and hangs together: a program that crashes where the other one
//! answers wrongly gains in the first and not in the second. Only fault types that both campaigns
//! have are compared.
//!
//! Not covered: whether both did the same work. The caller says how many units a run does; that
//! the commands differ is said as a doubt.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use steadfast_contract::outcome::Outcome;

use crate::format::{count, extent, percent, quantity, rate};
use crate::report::{Extent, Rate, SCHEMA};
use crate::results::{Provenance, Results};
use crate::stats::{Arm, Confidence, compare};
use crate::tabulate::{Table, Which};

const P95: Confidence = Confidence::P95;

/// What is compared, in the order of the page.
const COMPARED: [Which; 6] = [
    Which::Outcome(Outcome::Sdc),
    Which::Failed,
    Which::Outcome(Outcome::Crash),
    Which::Outcome(Outcome::Hang),
    Which::Outcome(Outcome::Detected),
    Which::Outcome(Outcome::Corrected),
];

/// Two campaigns, compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The baseline.
    pub a: Side,
    /// What is held against it.
    pub b: Side,
    /// Over all common fault types.
    pub rows: Vec<Pair>,
    /// Within each common fault type: wrong answers, and all failures.
    pub groups: Vec<GroupPair>,
    /// What makes a reader doubt the rest.
    pub doubts: Vec<String>,
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Side {
    /// What it is called on the page.
    pub name: String,
    /// Where it came from.
    pub provenance: Provenance,
    /// Runs that count, over common fault types.
    pub valid: u64,
    /// Executions that can be struck in a run, over common fault types and all copies.
    pub space: f64,
    /// Units of work that a run does.
    pub work: f64,
    /// Whether the plan was run to its end.
    pub complete: bool,
}

/// One outcome in both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pair {
    /// Its word.
    pub outcome: String,
    /// Per injection, the baseline.
    pub a: Rate,
    /// Per injection.
    pub b: Rate,
    /// Per unit of work, the baseline.
    pub a_absolute: Extent,
    /// Per unit of work.
    pub b_absolute: Extent,
    /// B over A, per unit of work; nothing if A had none or nothing was counted.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub ratio_low: f64,
    /// Upper end; nothing where none is known.
    pub ratio_high: Option<f64>,
    /// B over A is above this with at least 95 % confidence, one-sided.
    pub ratio_lower95: f64,
    /// Below this; nothing where none is known.
    pub ratio_upper95: Option<f64>,
    /// B less A, per unit of work.
    pub difference: Option<f64>,
    /// Lower end of its 95 % interval.
    pub difference_low: Option<f64>,
    /// Upper end.
    pub difference_high: Option<f64>,
}

/// One fault type in both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupPair {
    /// Its name.
    pub name: String,
    /// Wrong answers.
    pub sdc: Pair,
    /// Wrong answers, crashes and hangs.
    pub failed: Pair,
}

/// A campaign, its name on the page, and the work that one of its runs does.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The campaign.
    pub results: &'a Results,
    /// What it is called.
    pub name: &'a str,
    /// Units of work in a run: 1 unless the two do different amounts.
    pub work: f64,
}

impl Comparison {
    /// Holds `b` against the baseline `a`.
    #[must_use]
    pub fn new(a: Input<'_>, b: Input<'_>) -> Self {
        let mut doubts = Vec::new();
        let (mut one, mut two) = (Table::new(a.results), Table::new(b.results));
        let common: Vec<String> = one
            .groups
            .iter()
            .filter(|group| two.group(&group.name).is_some())
            .map(|group| group.name.clone())
            .collect();
        for (table, name) in [(&mut one, a.name), (&mut two, b.name)] {
            let before: Vec<String> = table.groups.iter().map(|g| g.name.clone()).collect();
            let lost: Vec<&str> = before
                .iter()
                .filter(|name| !common.contains(name))
                .map(String::as_str)
                .collect();
            if !lost.is_empty() {
                doubts.push(format!(
                    "Only {name} has {}: not compared.",
                    lost.join(", ")
                ));
            }
            table.groups.retain(|group| common.contains(&group.name));
        }
        differences(a, b, &mut doubts);
        let side = |input: Input<'_>, table: &Table| Side {
            name: input.name.to_owned(),
            provenance: input.results.provenance.clone(),
            valid: table.valid(),
            space: table.space(Which::Failed, None).1,
            work: input.work,
            // Of the whole plan: groups that are left out do not make it complete.
            complete: Table::new(input.results).is_complete(),
        };
        let sides = (side(a, &one), side(b, &two));
        for side in [&sides.0, &sides.1] {
            if !side.complete {
                doubts.push(format!(
                    "{} was not run to its end: the bounds hold unless it was stopped because of what it showed.",
                    side.name
                ));
            }
        }
        let work = (a.work, b.work);
        Self {
            schema: SCHEMA,
            rows: COMPARED
                .iter()
                .map(|which| pair(&one, &two, *which, None, work))
                .collect(),
            groups: common
                .iter()
                .map(|name| GroupPair {
                    name: name.clone(),
                    sdc: pair(&one, &two, Which::Outcome(Outcome::Sdc), Some(name), work),
                    failed: pair(&one, &two, Which::Failed, Some(name), work),
                })
                .collect(),
            a: sides.0,
            b: sides.1,
            doubts,
        }
    }

    /// One outcome, over all fault types.
    #[must_use]
    pub fn row(&self, which: Which) -> Option<&Pair> {
        self.rows.iter().find(|pair| pair.outcome == which.word())
    }

    /// How the first sentence is shown: in the colour of what is good only where B is shown to be better.
    #[must_use]
    pub fn tone(&self) -> &'static str {
        match self.row(Which::Outcome(Outcome::Sdc)) {
            Some(pair) if pair.ratio_upper95.is_some_and(|upper| upper < 1.0) => "",
            Some(pair) if pair.ratio_lower95 > 1.0 && pair.ratio_lower95.is_finite() => "bad",
            _ => "open",
        }
    }

    /// What came out, one sentence for wrong answers and one for all failures.
    #[must_use]
    pub fn headline(&self) -> Vec<String> {
        [
            (Which::Outcome(Outcome::Sdc), "wrong answers"),
            (Which::Failed, "failures of any kind (wrong answers, crashes, hangs)"),
        ]
        .into_iter()
        .filter_map(|(which, words)| self.row(which).map(|pair| (pair, words)))
        .map(|(pair, words)| {
            let (a, b) = (&self.a.name, &self.b.name);
            match pair.ratio_upper95 {
                Some(upper) if upper < 1.0 => format!(
                    "{b} has fewer {words} per unit of work than {a}: less than {} times as many, with 95 % confidence.",
                    quantity(upper)
                ),
                _ if pair.ratio_lower95 > 1.0 && pair.ratio_lower95.is_finite() => format!(
                    "{b} has more {words} per unit of work than {a}: more than {} times as many, with 95 % confidence.",
                    quantity(pair.ratio_lower95)
                ),
                _ => format!("These runs do not show whether {b} has fewer {words} per unit of work than {a}."),
            }
        })
        .collect()
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// For a terminal, and as Markdown.
    #[must_use]
    pub fn text(&self, markdown: bool) -> String {
        let mut text = String::new();
        if markdown {
            text.push_str("## Two campaigns compared\n\n");
        }
        for side in [("A", &self.a), ("B", &self.b)] {
            let _ = writeln!(
                text,
                "{}{} = {}: {} ({}), {} runs, {} executions that can be struck per unit of work",
                if markdown { "- " } else { "" },
                side.0,
                side.1.name,
                side.1.provenance.command.join(" "),
                side.1.provenance.protection,
                count(side.1.valid),
                quantity(side.1.space / side.1.work),
            );
        }
        text.push('\n');
        for line in self.headline() {
            let _ = writeln!(text, "{line}");
        }
        for doubt in &self.doubts {
            let _ = writeln!(text, "{doubt}");
        }
        text.push('\n');
        let rows = self
            .rows
            .iter()
            .map(|pair| {
                vec![
                    pair.outcome.clone(),
                    rate(&pair.a),
                    rate(&pair.b),
                    extent(&pair.a_absolute),
                    extent(&pair.b_absolute),
                    pair.ratio_text(),
                ]
            })
            .collect();
        let head = vec![
            "outcome",
            "A per injection",
            "B per injection",
            "A per work",
            "B per work",
            "B over A",
        ];
        text.push_str(&crate::text::table(head, rows, markdown));
        text
    }
}

impl Pair {
    /// `0.0123 (0.0081 to 0.0187)`.
    #[must_use]
    pub fn ratio_text(&self) -> String {
        match (self.ratio, self.ratio_high) {
            (Some(0.0), _) => format!(
                "0 (< {})",
                self.ratio_upper95.map_or("∞".to_owned(), quantity)
            ),
            (Some(ratio), high) => format!(
                "{} ({} to {})",
                quantity(ratio),
                quantity(self.ratio_low),
                high.map_or("∞".to_owned(), quantity)
            ),
            (None, _) => "–".to_owned(),
        }
    }
}

fn pair(a: &Table, b: &Table, which: Which, group: Option<&str>, work: (f64, f64)) -> Pair {
    let rates = (a.shares(which, group), b.shares(which, group));
    let ((a_shares, a_space), (b_shares, b_space)) = (a.space(which, group), b.space(which, group));
    let absolute = |shares, space: f64, work: f64| Extent::of(shares, space / work);
    let finite = |value: f64| value.is_finite().then_some(value);
    let mut pair = Pair {
        outcome: which.word().to_owned(),
        a: Rate::of(&rates.0),
        b: Rate::of(&rates.1),
        a_absolute: absolute(&a_shares, a_space, work.0),
        b_absolute: absolute(&b_shares, b_space, work.1),
        ratio: None,
        ratio_low: 0.0,
        ratio_high: None,
        ratio_lower95: 0.0,
        ratio_upper95: None,
        difference: None,
        difference_low: None,
        difference_high: None,
    };
    let arms = (
        Arm::new(a_shares, a_space, work.0),
        Arm::new(b_shares, b_space, work.1),
    );
    if let (Some(one), Some(two)) = arms {
        let shown = compare::ratio_interval(&one, &two, P95);
        pair.ratio = compare::ratio(&one, &two);
        pair.ratio_low = shown.low;
        pair.ratio_high = finite(shown.high);
        pair.ratio_lower95 = compare::ratio_lower(&one, &two, P95);
        pair.ratio_upper95 = finite(compare::ratio_upper(&one, &two, P95));
        if let Some((value, interval)) = compare::difference(&one, &two, P95) {
            pair.difference = Some(value);
            pair.difference_low = Some(interval.low);
            pair.difference_high = Some(interval.high);
        }
    }
    pair
}

fn differences(a: Input<'_>, b: Input<'_>, doubts: &mut Vec<String>) {
    let (one, two) = (&a.results.provenance, &b.results.provenance);
    if one.command != two.command && a.work == b.work {
        doubts.push(format!(
            "The commands differ ({} and {}): their runs may not do the same work.",
            one.command.join(" "),
            two.command.join(" ")
        ));
    }
    for (what, x, y) in [
        (
            "Outputs were compared differently",
            &one.comparator,
            &two.comparator,
        ),
        ("The processors differ", &one.machine.cpu, &two.machine.cpu),
        ("The engines differ", &one.engine, &two.engine),
    ] {
        if x != y {
            doubts.push(format!("{what}: {x} and {y}."));
        }
    }
    for input in [a, b] {
        let population = &input.results.population;
        let lost: u64 = population.unreachable.values().sum();
        if population.dynamic == 0 {
            doubts.push(format!(
                "Executed instructions of {} were not counted: failures cannot be extrapolated.",
                input.name
            ));
        } else if lost > 0 {
            doubts.push(format!(
                "{} of the executed instructions of {} cannot be struck.",
                percent(lost as f64 / population.dynamic as f64),
                input.name
            ));
        }
    }
}
