//! How often each group ended in each leaf: what rates, gates and comparisons are made from.
//!
//! Invariants
//!  1. A run is counted once, in the group that the plan drew it for.
//!  2. Runs whose fault did not fire and runs that the test bed spoilt are in no denominator of a
//!     rate per injection; they have their own, all finished runs.

use std::collections::BTreeMap;

use steadfast_contract::outcome::{Leaf, Outcome};

use crate::results::{ControlCount, Population, Results};
use crate::stats::{Share, Shares, Tally};

/// Counts of a campaign.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// By group, in the order of the plan.
    pub groups: Vec<GroupTable>,
    /// Runs that the plan asks for.
    pub planned: u64,
    /// Runs without a fault.
    pub control: ControlCount,
    /// What faults were drawn from.
    pub population: Population,
    /// Copies of the target that are struck.
    pub copies: u32,
}

/// Counts of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupTable {
    /// Its name.
    pub name: String,
    /// Share of the campaign's fault space.
    pub weight: f64,
    /// Executions that can have such a fault.
    pub population: u64,
    leaves: BTreeMap<Leaf, u64>,
}

/// Which runs are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Which {
    /// All leaves under one word.
    Outcome(Outcome),
    /// One leaf.
    Leaf(Leaf),
    /// What a user suffers: wrong answers, crashes and hangs.
    Failed,
    /// Whatever became visible.
    Manifested,
}

impl Which {
    /// The word in files and reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Outcome(outcome) => outcome.word(),
            Self::Leaf(leaf) => leaf.word(),
            Self::Failed => "failed",
            Self::Manifested => "manifested",
        }
    }

    /// Whether a run is meant.
    #[must_use]
    pub fn has(self, leaf: Leaf) -> bool {
        match self {
            Self::Outcome(outcome) => leaf.outcome() == outcome,
            Self::Leaf(one) => leaf == one,
            Self::Failed => matches!(
                leaf.outcome(),
                Outcome::Sdc | Outcome::Crash | Outcome::Hang
            ),
            Self::Manifested => leaf.is_manifested(),
        }
    }

    /// The words above the leaves.
    pub fn words() -> impl Iterator<Item = Self> {
        Outcome::ALL
            .into_iter()
            .map(Self::Outcome)
            .chain([Self::Failed, Self::Manifested])
    }

    /// Every word, outcomes before leaves: a leaf that has the name of its outcome is not reached
    /// by it (`sdc` is all wrong answers, late ones included).
    pub fn all() -> impl Iterator<Item = Self> {
        Self::words().chain(Leaf::ALL.iter().copied().map(Self::Leaf))
    }

    /// What a word means.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::all().find(|which| which.word() == word)
    }
}

impl GroupTable {
    /// A group before its first run.
    #[must_use]
    pub fn new(name: impl Into<String>, weight: f64, population: u64) -> Self {
        Self {
            name: name.into(),
            weight,
            population,
            leaves: BTreeMap::new(),
        }
    }

    /// Counts one run.
    pub fn add(&mut self, leaf: Leaf) {
        *self.leaves.entry(leaf).or_default() += 1;
    }

    /// Runs of a kind.
    #[must_use]
    pub fn count(&self, which: Which) -> u64 {
        self.sum(|leaf| which.has(leaf))
    }

    /// Finished runs.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.sum(|_| true)
    }

    /// Runs that say something about the target.
    #[must_use]
    pub fn valid(&self) -> u64 {
        self.sum(Leaf::is_valid)
    }

    /// Leaves that occurred, with their numbers.
    pub fn leaves(&self) -> impl Iterator<Item = (Leaf, u64)> {
        self.leaves.iter().map(|(leaf, count)| (*leaf, *count))
    }

    /// Runs of a kind among those that count for it.
    #[must_use]
    pub fn tally(&self, which: Which) -> Tally {
        let of = match which {
            Which::Outcome(Outcome::NotFired | Outcome::Infra)
            | Which::Leaf(Leaf::NotFired | Leaf::Infra) => self.finished(),
            _ => self.valid(),
        };
        Tally::new(self.count(which).min(of), of)
    }

    fn sum(&self, wanted: impl Fn(Leaf) -> bool) -> u64 {
        self.leaves
            .iter()
            .filter(|(leaf, _)| wanted(**leaf))
            .map(|(_, count)| count)
            .sum()
    }
}

impl Table {
    /// Counts the runs of a campaign.
    #[must_use]
    pub fn new(results: &Results) -> Self {
        let mut groups: Vec<GroupTable> = results
            .groups
            .iter()
            .map(|g| GroupTable::new(&g.name, g.weight, g.population))
            .collect();
        for run in &results.runs {
            if let Some(group) = groups.get_mut(run.group) {
                group.add(run.leaf);
            }
        }
        Self {
            groups,
            planned: results.planned,
            control: results.control,
            population: results.population.clone(),
            copies: results.provenance.copies.max(1),
        }
    }

    /// Finished runs.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.groups.iter().map(GroupTable::finished).sum()
    }

    /// Runs that say something about the target.
    #[must_use]
    pub fn valid(&self) -> u64 {
        self.groups.iter().map(GroupTable::valid).sum()
    }

    /// Runs of a kind.
    #[must_use]
    pub fn count(&self, which: Which) -> u64 {
        self.groups.iter().map(|g| g.count(which)).sum()
    }

    /// Whether every run of the plan is finished. If not, somebody may have stopped because of
    /// what was seen, and only bounds that allow for looking may be trusted.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.finished() >= self.planned
    }

    /// The group of that name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&GroupTable> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// A rate per injection, over all groups by their weight or within one.
    #[must_use]
    pub fn shares(&self, which: Which, group: Option<&str>) -> Shares {
        if matches!(
            which,
            Which::Outcome(Outcome::FalseAlarm) | Which::Leaf(Leaf::FalseAlarm)
        ) {
            let ControlCount {
                runs, false_alarms, ..
            } = self.control;
            return Shares::single(Tally::new(false_alarms.min(runs), runs));
        }
        let chosen: Vec<&GroupTable> = self
            .groups
            .iter()
            .filter(|g| group.is_none_or(|name| g.name == name))
            .collect();
        Shares::new(chosen.iter().map(|g| Share {
            weight: if group.is_some() { 1.0 } else { g.weight },
            tally: g.tally(which),
        }))
        .unwrap_or_else(|| {
            let none = Tally::default();
            Shares::single(chosen.iter().fold(none, |sum, g| sum.and(g.tally(which))))
        })
    }

    /// The same weighted by population, and that population: failures are its product.
    #[must_use]
    pub fn space(&self, which: Which, group: Option<&str>) -> (Shares, f64) {
        let chosen: Vec<&GroupTable> = self
            .groups
            .iter()
            .filter(|g| group.is_none_or(|name| g.name == name))
            .collect();
        let space: f64 = chosen.iter().map(|g| g.population as f64).sum();
        let shares = Shares::new(chosen.iter().map(|g| Share {
            weight: g.population as f64,
            tally: g.tally(which),
        }));
        (
            shares.unwrap_or_else(|| self.shares(which, group)),
            space * f64::from(self.copies),
        )
    }

    /// Of the faults that became visible, those of a kind. Shares of visible faults are themselves
    /// estimated, so over several groups the interval is approximate.
    #[must_use]
    pub fn of_manifested(&self, which: Which, group: Option<&str>) -> Option<Shares> {
        Shares::new(
            self.groups
                .iter()
                .filter(|g| group.is_none_or(|name| g.name == name))
                .map(|g| {
                    let visible = g.tally(Which::Manifested);
                    let hits = if which == Which::Outcome(Outcome::Masked) {
                        0
                    } else {
                        g.count(which)
                    };
                    Share {
                        weight: g.weight * visible.rate().unwrap_or(0.0),
                        tally: Tally::new(hits.min(visible.hits), visible.hits),
                    }
                }),
        )
    }
}
