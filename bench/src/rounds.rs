//! Rounds: all columns of one program in turns, so that drift hits them alike.
//!
//! One round runs each column once, in an order shuffled anew. What the first bare run of the
//! first round writes is what every other run must write.

use serde::{Deserialize, Serialize};
use steadfast_workloads::Invocation;
use steadfast_workloads::inputs::Rng;

use crate::column::{Column, How};
use crate::sample::{Failure, Runner, Sample};

/// After this many failures in a row a column is not tried again: what fails twice at once fails
/// for a reason that more rounds will not change.
const FAILURES_MAX: usize = 2;

/// All samples of one column, by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub column: String,
    /// `None` where the round failed or was not run.
    pub samples: Vec<Option<Sample>>,
    /// What went wrong, in words, for each failed round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

impl Series {
    /// One number of every round that has a sample.
    #[must_use]
    pub fn values(&self, number: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().flatten().map(number).collect()
    }

    /// This column's number divided by another's, for each round in which both have a sample.
    #[must_use]
    pub fn ratios(&self, base: &Series, number: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.paired(base, |mine, theirs| number(mine) / number(theirs))
    }

    /// A number worked out of both columns' samples, for each round in which both have one.
    #[must_use]
    pub fn paired(&self, base: &Series, number: impl Fn(&Sample, &Sample) -> f64) -> Vec<f64> {
        let rounds = self.samples.iter().zip(&base.samples);
        rounds
            .filter_map(|(mine, theirs)| Some(number(mine.as_ref()?, theirs.as_ref()?)))
            .collect()
    }

    /// The sample of the latest round that has one.
    #[must_use]
    pub fn last(&self) -> Option<&Sample> {
        self.samples.iter().flatten().last()
    }
}

/// The series of a column, by name.
#[must_use]
pub fn find<'a>(all: &'a [Series], column: &str) -> Option<&'a Series> {
    all.iter().find(|series| series.column == column)
}

/// What is told while rounds run.
pub trait Progress {
    fn step(&mut self, job: &str, round: usize, column: &str);
    fn failed(&mut self, job: &str, round: usize, column: &str, why: &Failure);
}

/// What is run in turns: one program in each of its columns.
#[derive(Clone, Debug)]
pub struct Turns {
    /// The name that progress is told under.
    pub name: String,
    /// Each column with its program; the programs may differ in an argument, the outputs not.
    pub columns: Vec<(Column, Invocation)>,
    pub rounds: usize,
    /// Each run comes right after one of the same column that does not count. Where a hypervisor finds
    /// memory when it is touched, and takes it back later, who comes first pays for all.
    pub warm: bool,
}

impl Turns {
    /// One program in several columns.
    #[must_use]
    pub fn of(name: &str, job: &Invocation, columns: &[Column], rounds: usize) -> Self {
        let columns = columns
            .iter()
            .map(|column| (column.clone(), job.clone()))
            .collect();
        Turns {
            name: name.to_owned(),
            columns,
            rounds,
            warm: false,
        }
    }
}

/// Runs all columns in every round; stops early when the user interrupts.
pub fn run(
    runner: &Runner,
    turns: &Turns,
    rng: &mut Rng,
    progress: &mut dyn Progress,
) -> Vec<Series> {
    let Turns {
        name,
        columns,
        rounds,
        warm,
    } = turns;
    let new = |(column, _): &(Column, Invocation)| Series {
        column: column.name.clone(),
        samples: Vec::new(),
        failures: Vec::new(),
    };
    let mut all: Vec<Series> = columns.iter().map(new).collect();
    let mut failed_in_a_row = vec![0; columns.len()];
    let mut reference: Option<String> = None;
    for round in 0..*rounds {
        for index in order(columns, rng, reference.is_none()) {
            let (column, job) = &columns[index];
            if failed_in_a_row[index] >= FAILURES_MAX || runner.interrupted() {
                all[index].samples.push(None);
                continue;
            }
            progress.step(name, round, &column.name);
            if *warm {
                // What went wrong here goes wrong below.
                let _ = runner.run(column, job, false);
            }
            let outcome = runner.run(column, job, false).and_then(|sample| {
                let wanted = reference.get_or_insert_with(|| sample.output.clone());
                if *wanted == sample.output {
                    Ok(sample)
                } else {
                    Err(Failure::OutputDiffers)
                }
            });
            match outcome {
                Ok(sample) => {
                    failed_in_a_row[index] = 0;
                    all[index].samples.push(Some(sample));
                }
                Err(why) => {
                    progress.failed(name, round, &column.name, &why);
                    failed_in_a_row[index] += 1;
                    all[index].samples.push(None);
                    if !matches!(why, Failure::Interrupted) {
                        all[index].failures.push(why.to_string());
                    }
                }
            }
        }
        if runner.interrupted() {
            break;
        }
    }
    all
}

/// A shuffled order; while there is no reference output, the bare columns come first, so that it
/// is never the product that says what is right.
fn order(columns: &[(Column, Invocation)], rng: &mut Rng, bare_first: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    rng.shuffle(&mut order);
    if bare_first {
        order.sort_by_key(|&index| !matches!(columns[index].0.how, How::Bare { .. }));
    }
    order
}
