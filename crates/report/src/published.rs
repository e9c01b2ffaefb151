//! Published numbers: what a measurement leaves behind, what was promised, and whether the one keeps the other.
//!
//! A [`File`] is one file of `results/`. It holds [`Run`]s, which say where, when and how; a run holds [`Row`]s, the values.
//! A [`Promise`] is one line of the specification. It names rows by file and key and says what they have to show.
//! [`Promise::status`] is the rule: nobody types "met".
//!
//! Invariants
//!  1. A row without date, commit, machine, load or command does not pass [`File::errors`].
//!  2. A key stands once in a file. A new value takes the place of the old one, which stays under `earlier`.
//!  3. What was not measured is pending, and pending is never met.
//!  4. A value is held against a limit by its interval. One without an interval may miss; it meets a limit only where it says that
//!     nothing of it varies ([`Row::exact`]), or where the limit is one of counts, and else it is pending.
//!
//! Not covered: whether a value is true. The command beside it measures it again.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::stats::{Confidence, Tally};

/// The version of the files that this code writes and reads.
pub const SCHEMA: u32 = 1;

/// What a promise may be about: `all`, or a command of `steadfast`.
pub const PARTS: [&str; 7] = ["all", "run", "cc", "inject", "kv", "host", "pair"];

/// Rows measured from this day on have an interval, or say why they need none; older ones without stay as they were published.
const INTERVALS_SINCE: &str = "2026-11-28";

/// From this day on each command writes its values: nobody types them.
const WRITTEN_SINCE: &str = "2026-12-01";

/// One file of `results/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub schema: u32,
    /// What the file is about, in one sentence.
    pub about: String,
    pub runs: Vec<Run>,
}

/// One call of a command, and what it measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// `YYYY-MM-DD`.
    pub date: String,
    /// Begins with the hash of the commit that was measured.
    pub commit: String,
    pub machine: String,
    /// What else the machine did.
    pub load: String,
    pub command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The values were typed from what the command had said, since it did not write them then.
    #[serde(default, skip_serializing_if = "is_false")]
    pub typed: bool,
    pub rows: Vec<Row>,
}

/// One value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Unique in its file; what a promise names.
    pub key: String,
    pub what: String,
    pub value: f64,
    /// The 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    pub unit: String,
    /// Rounds, runs or requests that the value rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// How many of `n`, where the value is a share of a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Counted, not sampled: measured again it is the same, and there is no interval.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exact: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Values that this one took the place of, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Earlier>,
}

/// A value that a newer one took the place of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Earlier {
    pub date: String,
    pub commit: String,
    pub value: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Row {
    /// A row with a value alone; the rest is set by the caller.
    #[must_use]
    pub fn new(
        key: impl Into<String>,
        what: impl Into<String>,
        value: f64,
        unit: impl Into<String>,
    ) -> Self {
        Row {
            key: key.into(),
            what: what.into(),
            value,
            unit: unit.into(),
            ..Row::default()
        }
    }

    /// A row of a count that is the same however often it is taken.
    #[must_use]
    pub fn exactly(
        key: impl Into<String>,
        what: impl Into<String>,
        value: f64,
        unit: impl Into<String>,
    ) -> Self {
        let mut row = Row::new(key, what, value, unit);
        row.exact = true;
        row
    }

    /// The row with its 95 % interval and what it rests on.
    #[must_use]
    pub fn within(mut self, low: f64, high: f64, n: u64) -> Self {
        (self.low, self.high, self.n) = (Some(low), Some(high), Some(n));
        self
    }

    /// A share: `hits` of `n`, in percent, with its exact 95 % interval.
    #[must_use]
    pub fn share(key: impl Into<String>, what: impl Into<String>, hits: u64, n: u64) -> Self {
        let interval = Tally::new(hits, n).clopper_pearson(Confidence::P95);
        let percent = |count: u64| match n {
            0 => 0.0,
            n => count as f64 / n as f64 * 100.0,
        };
        let mut row = Row::new(key, what, percent(hits), "%").within(
            interval.low * 100.0,
            interval.high * 100.0,
            n,
        );
        row.hits = Some(hits);
        row
    }

    /// Value, interval and unit as text.
    #[must_use]
    pub fn text(&self) -> String {
        text(
            self.value, self.low, self.high, self.n, self.hits, &self.unit,
        )
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

fn text(
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
    n: Option<u64>,
    hits: Option<u64>,
    unit: &str,
) -> String {
    let unit = match unit {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let range = match (low, high) {
        (Some(low), Some(high)) => format!(" [{}, {}]", number(low), number(high)),
        _ => String::new(),
    };
    match (hits, n) {
        (Some(0), Some(n)) => match high {
            Some(high) => format!("0 of {} (< {}{unit})", grouped(n), number(high)),
            None => format!("0 of {}", grouped(n)),
        },
        (Some(hits), Some(n)) if hits == n && low.is_none() => {
            format!("{} of {}", grouped(hits), grouped(n))
        }
        (Some(hits), Some(n)) => format!(
            "{} of {}, {}{range}{unit}",
            grouped(hits),
            grouped(n),
            number(value)
        ),
        _ => format!("{}{range}{unit}", number(value)),
    }
}

impl Earlier {
    /// Value and interval as text.
    #[must_use]
    pub fn text(&self, unit: &str) -> String {
        text(self.value, self.low, self.high, self.n, self.hits, unit)
    }
}

/// As many digits as tell something: four significant ones, two below a tenth, and no fewer than the whole part has.
#[must_use]
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    if magnitude >= 3.0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rounded, positive, and below 2^53"
        )]
        let whole = grouped(value.abs().round() as u64);
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{whole}");
    }
    let significant = if magnitude < -1.0 { 2.0 } else { 4.0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 20 by the clamp"
    )]
    let places = (significant - 1.0 - magnitude).clamp(0.0, 20.0) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// `1234567` as `1,234,567`.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl File {
    /// An empty file.
    #[must_use]
    pub fn new(about: impl Into<String>) -> Self {
        File {
            schema: SCHEMA,
            about: about.into(),
            runs: Vec::new(),
        }
    }

    /// Adds a run. Rows of older runs with the same keys go, their values stay under `earlier`.
    pub fn add(&mut self, mut run: Run) {
        for row in &mut run.rows {
            for old in &mut self.runs {
                let Some(at) = old.rows.iter().position(|other| other.key == row.key) else {
                    continue;
                };
                let gone = old.rows.remove(at);
                row.earlier.push(Earlier {
                    date: old.date.clone(),
                    commit: old.commit.clone(),
                    value: gone.value,
                    low: gone.low,
                    high: gone.high,
                    n: gone.n,
                    hits: gone.hits,
                    note: gone.note,
                });
                row.earlier.extend(gone.earlier);
            }
        }
        self.runs.retain(|old| !old.rows.is_empty());
        self.runs.push(run);
    }

    /// The row of a key, and the run that measured it.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<(&Run, &Row)> {
        self.runs
            .iter()
            .flat_map(|run| run.rows.iter().map(move |row| (run, row)))
            .find(|(_, row)| row.key == key)
    }

    /// The rows `KEY.N` of a key, in the order of N.
    #[must_use]
    pub fn points(&self, key: &str) -> Vec<(u32, &Row)> {
        let rows = self.runs.iter().flat_map(|run| &run.rows);
        let mut points: Vec<_> = rows
            .filter_map(|row| {
                let count = row.key.strip_prefix(key)?.strip_prefix('.')?;
                Some((count.parse().ok()?, row))
            })
            .collect();
        points.sort_by_key(|(count, _)| *count);
        points
    }

    /// The commit of each run and of each earlier value, as its hash in hexadecimal digits.
    pub fn commits(&self) -> impl Iterator<Item = &str> {
        let runs = self.runs.iter().map(|run| &run.commit);
        let rows = self.runs.iter().flat_map(|run| &run.rows);
        let earlier = rows.flat_map(|row| row.earlier.iter().map(|old| &old.commit));
        runs.chain(earlier).map(|text| digits(text))
    }

    /// What is wrong with the file; empty when it may be published.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.schema != SCHEMA {
            errors.push(format!("schema is {}, {SCHEMA} is required", self.schema));
        }
        if self.about.trim().is_empty() {
            errors.push("about is empty".to_owned());
        }
        let mut keys = BTreeMap::new();
        for (at, run) in self.runs.iter().enumerate() {
            let at = format!("run {} ({})", at + 1, run.date);
            for (name, value) in [
                ("machine", &run.machine),
                ("load", &run.load),
                ("command", &run.command),
            ] {
                if value.trim().is_empty() {
                    errors.push(format!("{at}: {name} is empty"));
                }
            }
            if !is_date(&run.date) {
                errors.push(format!(
                    "{at}: date is {:?}, YYYY-MM-DD is required",
                    run.date
                ));
            }
            if run.typed && run.date.as_str() >= WRITTEN_SINCE {
                errors.push(format!(
                    "{at}: values are typed, the command writes them with --results"
                ));
            }
            if !run.typed && run.seed.is_none() {
                errors.push(format!(
                    "{at}: seed is missing, which each command writes; values that were typed say so"
                ));
            }
            if !is_commit(&run.commit) {
                errors.push(format!(
                    "{at}: commit is {:?}, a hash of seven digits or more is required",
                    run.commit
                ));
            }
            for row in &run.rows {
                if keys.insert(row.key.clone(), ()).is_some() {
                    errors.push(format!("{at}: the key {:?} stands twice", row.key));
                }
                errors.extend(row.errors().into_iter().map(|why| format!("{at}: {why}")));
                if run.date.as_str() >= INTERVALS_SINCE && row.lacks_interval() {
                    errors.push(format!(
                        "{at}: row {:?}: an interval is required of a value that rests on {} rounds",
                        row.key,
                        row.n.unwrap_or_default()
                    ));
                }
            }
        }
        errors
    }
}

impl Row {
    /// Whether it rests on several rounds and does not say how far they lie apart.
    fn lacks_interval(&self) -> bool {
        let several = self.n.is_some_and(|n| n > 1);
        several && !self.exact && self.interval().is_none()
    }

    /// What the value may be: its interval, or itself where nothing varies.
    fn interval(&self) -> Option<(f64, f64)> {
        match self.low.zip(self.high) {
            None if self.exact => Some((self.value, self.value)),
            interval => interval,
        }
    }

    fn errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut wrong = |why: &str| errors.push(format!("row {:?}: {why}", self.key));
        if self.key.trim().is_empty() || self.key.contains(char::is_whitespace) {
            wrong("a key is one word");
        }
        if self.what.trim().is_empty() {
            wrong("what is empty");
        }
        if let (Some(low), Some(high)) = (self.low, self.high)
            && low > high
        {
            wrong("the interval is upside down");
        }
        if self.low.is_some() != self.high.is_some() {
            wrong("an interval has two ends");
        }
        if self.exact && (self.low.is_some() || self.high.is_some()) {
            wrong("an exact value has no interval");
        }
        if let Some(hits) = self.hits
            && self.n.is_none_or(|n| hits > n)
        {
            wrong("hits need an n that is no smaller");
        }
        for old in &self.earlier {
            if !is_date(&old.date) || !is_commit(&old.commit) {
                wrong("an earlier value has no date or commit");
            }
        }
        errors
    }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.len() == 3
        && parts
            .iter()
            .zip([4, 2, 2])
            .all(|(part, len)| part.len() == len && part.bytes().all(|b| b.is_ascii_digit()))
}

/// The hash that a commit begins with.
fn digits(commit: &str) -> &str {
    &commit[..commit.bytes().take_while(u8::is_ascii_hexdigit).count()]
}

fn is_commit(text: &str) -> bool {
    let digits = digits(text).len();
    (7..=40).contains(&digits) && !text[digits..].starts_with(|c: char| c.is_alphanumeric())
}

/// The table of promises: `docs/specification.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promises {
    pub promise: Vec<Promise>,
    /// How the commands of the promises are run to see that they run at all.
    #[serde(default)]
    pub smallest: Vec<Smallest>,
}

/// The smallest size of commands.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smallest {
    /// As [`Promise::commands`] has them.
    pub commands: Vec<String>,
    /// Lines for a shell, in the repository; each must succeed.
    pub run: String,
}

/// One line of the specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Never used again, even when the promise goes.
    pub id: u32,
    /// One of [`PARTS`].
    pub part: String,
    pub what: String,
    /// What a paper or another tool has, if there is one to compare with.
    #[serde(default)]
    pub rival: String,
    /// The target in words, where the limits of the values do not say it.
    #[serde(default)]
    pub target: String,
    /// Measures it.
    pub command: String,
    /// `results/NAME.json`, for values that name none.
    #[serde(default)]
    pub file: String,
    #[serde(default)]
    pub values: Vec<Value>,
    /// Keys whose rows `KEY.N` are drawn over N, beside the papers' numbers.
    #[serde(default)]
    pub plot: Vec<String>,
    /// Files of tests that `make test` runs and that hold the promise.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Why there is no value.
    #[serde(default)]
    pub pending: String,
}

/// A value that a promise rests on, and what it has to show. Without a limit it is only published.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    #[serde(default)]
    pub key: String,
    #[serde(default)]
    pub file: String,
    /// Stands before the value.
    #[serde(default)]
    pub label: String,
    /// What the paper has, in the unit of the value: shown beside it, judged by nobody.
    pub paper: Option<f64>,
    /// The upper end of the interval is at most this; with `upper`, the value is.
    pub most: Option<f64>,
    /// Added to `most`: room for the noise of a shared virtual machine, in the unit of the value.
    #[serde(default)]
    pub slack: f64,
    /// The upper end of the interval is at most this.
    pub upper: Option<f64>,
    /// The lower end of the interval is at least this.
    pub least: Option<f64>,
    /// The interval holds this.
    pub holds: Option<f64>,
    /// No hit, of at least so many.
    pub none: Option<u64>,
    /// Every one hit, of at least so many.
    pub all: Option<u64>,
    /// Why this value is not there.
    #[serde(default)]
    pub pending: String,
}

/// What became of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Met,
    /// There is no limit; the value itself was promised.
    Published,
    Pending,
    Missed,
}

impl Status {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Status::Met => "met",
            Status::Published => "published",
            Status::Pending => "pending",
            Status::Missed => "**missed**",
        }
    }
}

impl Value {
    fn limited(&self) -> bool {
        self.most.is_some()
            || self.least.is_some()
            || self.holds.is_some()
            || self.none.is_some()
            || self.all.is_some()
    }

    /// The rule.
    #[must_use]
    pub fn judge(&self, row: &Row) -> Status {
        if !self.limited() {
            return Status::Published;
        }
        let by_counts = self.most.is_none() && self.least.is_none() && self.holds.is_none();
        let interval = row.interval();
        let (low, high) = interval.unwrap_or((row.value, row.value));
        let most = self.most.is_none_or(|most| match self.upper {
            Some(upper) => row.value <= most + self.slack && high <= upper,
            None => high <= most + self.slack,
        });
        let least = self.least.is_none_or(|least| low >= least);
        let holds = self.holds.is_none_or(|held| low <= held && held <= high);
        let none = self
            .none
            .is_none_or(|n| row.hits == Some(0) && row.n >= Some(n));
        let all = self
            .all
            .is_none_or(|n| row.hits.is_some() && row.hits == row.n && row.n >= Some(n));
        match most && least && holds && none && all {
            // A bare value shows a loss, and never that there is none.
            true if interval.is_none() && !by_counts => Status::Pending,
            true => Status::Met,
            false => Status::Missed,
        }
    }

    /// The limit as text.
    fn target(&self, unit: &str) -> Option<String> {
        let unit = match unit {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        let mut parts = Vec::new();
        if let Some(most) = self.most {
            parts.push(format!("≤ {}{unit}", number(most)));
        }
        if let Some(upper) = self.upper {
            parts.push(format!("upper end ≤ {}{unit}", number(upper)));
        }
        if let Some(least) = self.least {
            parts.push(format!("≥ {}{unit}", number(least)));
        }
        match self.none {
            Some(0 | 1) => parts.push("0".to_owned()),
            Some(n) => parts.push(format!("0 of ≥ {}", grouped(n))),
            None => {}
        }
        match self.all {
            Some(0 | 1) => parts.push("all".to_owned()),
            Some(n) => parts.push(format!("all of ≥ {}", grouped(n))),
            None => {}
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Every file of `results/`, by its path in the repository.
pub type Files = BTreeMap<String, File>;

impl Promise {
    /// The values, each with the run and the row that it names.
    pub fn rows<'a>(
        &'a self,
        files: &'a Files,
    ) -> impl Iterator<Item = (&'a Value, Option<(&'a Run, &'a Row)>)> {
        self.values.iter().map(|value| {
            let file = if value.file.is_empty() {
                &self.file
            } else {
                &value.file
            };
            (
                value,
                files.get(file).and_then(|file| file.find(&value.key)),
            )
        })
    }

    /// One value missed is a miss; else one that is not there leaves it pending.
    #[must_use]
    pub fn status(&self, files: &Files) -> Status {
        if !self.tests.is_empty() {
            return Status::Met;
        }
        let judged = self.rows(files).map(|(value, found)| match found {
            Some((_, row)) => value.judge(row),
            None => Status::Pending,
        });
        let judged: Vec<Status> = judged.collect();
        let worst = judged.iter().copied().max().unwrap_or(Status::Pending);
        // Values without a limit stand beside those that have one.
        match worst {
            Status::Published if judged.contains(&Status::Met) => Status::Met,
            worst => worst,
        }
    }

    /// What `command` has between backquotes and is no file: two words and more, or a program's path with its arguments.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        let quoted = self.command.split('`').skip(1).step_by(2);
        quoted.filter(|word| word.contains(' '))
    }

    fn errors(&self, files: &Files, exists: impl Fn(&str) -> bool) -> Vec<String> {
        let mut errors = Vec::new();
        let mut wrong = |why: String| errors.push(format!("promise {}: {why}", self.id));
        if self.what.trim().is_empty() || self.command.trim().is_empty() {
            wrong("what or command is empty".to_owned());
        }
        if self.values.is_empty() && self.tests.is_empty() && self.pending.is_empty() {
            wrong("it has no value, no test, and no reason why it is pending".to_owned());
        }
        for test in self.tests.iter().filter(|test| !exists(test)) {
            wrong(format!("the test {test} does not exist"));
        }
        for key in &self.plot {
            let points = files.get(&self.file).map_or(0, |f| f.points(key).len());
            if points < 2 {
                wrong(format!(
                    "a plot needs two rows {key}.N, {} has {points}",
                    self.file
                ));
            }
        }
        for (value, found) in self.rows(files) {
            match found {
                None if value.key.is_empty() && !value.pending.is_empty() => {}
                None => wrong(format!(
                    "no file of results/ has the key {:?} that it names ({})",
                    value.key,
                    if value.file.is_empty() {
                        &self.file
                    } else {
                        &value.file
                    }
                )),
                Some(_) if !value.pending.is_empty() => {
                    wrong(format!("{:?} is pending and has a value", value.key));
                }
                Some(_) => {}
            }
        }
        errors
    }
}

impl Promises {
    /// What is wrong with the table and the files it names; `exists` tells whether a path of the repository does.
    #[must_use]
    pub fn errors(&self, files: &Files, exists: impl Fn(&str) -> bool) -> Vec<String> {
        let mut errors = Vec::new();
        for (path, file) in files {
            errors.extend(
                file.errors()
                    .into_iter()
                    .map(|why| format!("{path}: {why}")),
            );
        }
        for pair in self.promise.windows(2) {
            if pair[0].id >= pair[1].id {
                errors.push(format!(
                    "promise {} stands after {}: ids are unique and in order",
                    pair[1].id, pair[0].id
                ));
            }
        }
        for promise in &self.promise {
            errors.extend(promise.errors(files, &exists));
            if !PARTS.contains(&promise.part.as_str()) {
                errors.push(format!(
                    "promise {}: its part is {:?}, one of {PARTS:?} is required",
                    promise.id, promise.part
                ));
            }
        }
        errors.extend(self.errors_of_smallest());
        errors
    }

    /// Each command has one smallest size, and each of these is of a command.
    fn errors_of_smallest(&self) -> Vec<String> {
        let mut sizes: BTreeMap<&str, usize> = self
            .promise
            .iter()
            .flat_map(Promise::commands)
            .map(|command| (command, 0))
            .collect();
        let mut errors = Vec::new();
        for command in self.smallest.iter().flat_map(|size| &size.commands) {
            match sizes.get_mut(command.as_str()) {
                Some(count) => *count += 1,
                None => errors.push(format!("smallest: no promise has the command {command:?}")),
            }
        }
        for (command, count) in sizes {
            if count != 1 {
                errors.push(format!(
                    "the command {command:?} has {count} entries [[smallest]], one is required"
                ));
            }
        }
        errors
    }

    /// A table of some promises, in the order of `ids`: what, first value, target, what became of it.
    #[must_use]
    pub fn summary(&self, files: &Files, ids: &[u32]) -> String {
        let mut out = String::from(
            "| Id | What | Value [95 %] | Target | Status |\n|---:|---|---|---|---|\n",
        );
        for id in ids {
            let Some(promise) = self.promise.iter().find(|promise| promise.id == *id) else {
                continue;
            };
            let value = promise.rows(files).next().and_then(|(_, found)| found);
            let _ = writeln!(
                out,
                "| {id} | {} | {} | {} | {} |",
                cell(&promise.what),
                value.map_or("pending".to_owned(), |(_, row)| row.text()),
                cell(&promise.target(files)),
                promise.status(files).word()
            );
        }
        out
    }

    /// The specification as a page.
    #[must_use]
    pub fn page(&self, files: &Files) -> String {
        let mut out = String::new();
        let mut counts: BTreeMap<Status, usize> = BTreeMap::new();
        for promise in &self.promise {
            *counts.entry(promise.status(files)).or_default() += 1;
        }
        let count = |status| counts.get(&status).copied().unwrap_or(0);
        let _ = writeln!(
            out,
            "{} promises: {} met, {} missed, {} pending; {} more publish a value without a target.",
            self.promise.len(),
            count(Status::Met),
            count(Status::Missed),
            count(Status::Pending),
            count(Status::Published),
        );
        out.push_str(
            "\n| Id | Part | Promise | Paper or rival | Target | Value [95 %] | Status | Command |\n|---:|---|---|---|---|---|---|---|\n",
        );
        for promise in &self.promise {
            let tested = !promise.tests.is_empty();
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                promise.id,
                promise.part,
                cell(&promise.what),
                cell(&promise.rival),
                if tested {
                    "holds in every `make test`".to_owned()
                } else {
                    cell(&promise.target(files))
                },
                cell(&promise.value(files)),
                promise.status(files).word(),
                cell(&promise.command)
            );
        }
        out
    }
}

impl Promise {
    /// The target, from its own words or from the limits of its values.
    #[must_use]
    pub fn target(&self, files: &Files) -> String {
        if !self.target.is_empty() {
            return self.target.clone();
        }
        let mut targets: Vec<String> = Vec::new();
        for (value, found) in self.rows(files) {
            let unit = found.map_or("", |(_, row)| row.unit.as_str());
            if let Some(target) = value.target(unit)
                && !targets.contains(&target)
            {
                targets.push(target);
            }
        }
        targets.join("; ")
    }

    fn value(&self, files: &Files) -> String {
        if self.values.is_empty() {
            return self.pending.clone();
        }
        let values: Vec<String> = self
            .rows(files)
            .map(|(value, found)| {
                let text = match found {
                    Some((_, row)) => row.text(),
                    None => value.pending.clone(),
                };
                match value.label.as_str() {
                    "" => text,
                    label => format!("{label} {text}"),
                }
            })
            .collect();
        values.join("; ")
    }
}

/// Every value of every file as a page with the one before it, newest runs last.
#[must_use]
pub fn values_page(files: &Files) -> String {
    let mut out = String::new();
    for (path, file) in files {
        let _ = writeln!(out, "\n## {path}\n\n{}", file.about);
        for run in &file.runs {
            let seed = run
                .seed
                .map_or(String::new(), |seed| format!(", seed {seed}"));
            let typed = match run.typed {
                true => "; values typed from what it said",
                false => "",
            };
            let _ = writeln!(
                out,
                "\n{}, commit {}, {}; {}.\n`{}`{seed}{typed}\n\n| Key | What | Value [95 %] | n | Note |\n|---|---|---|---:|---|",
                run.date, run.commit, run.machine, run.load, run.command
            );
            for row in &run.rows {
                // The value before this one; a row is one fact, and the file has the others.
                let before = row.earlier.first().map(|old| {
                    let value = old.text(&row.unit);
                    let more = match row.earlier.len() - 1 {
                        0 => String::new(),
                        more => format!(", {more} older in the file"),
                    };
                    format!("{} on {}: {value}{more}", old.date, old.commit)
                });
                let notes: Vec<String> = row.note.iter().cloned().chain(before).collect();
                let _ = writeln!(
                    out,
                    "| `{}` | {} | {} | {} | {} |",
                    row.key,
                    cell(&row.what),
                    cell(&row.text()),
                    row.n.map_or(String::new(), grouped),
                    cell(&notes.join("; "))
                );
            }
        }
    }
    out
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests;
