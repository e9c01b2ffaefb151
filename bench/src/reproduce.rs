//! `bench reproduce`: measures again what this machine can, and shows each paper's value, the published one and today's on one page.
//!
//! What is measured follows from `docs/specification.toml`: every command there that is one of `bench`. A step is one of them. Its values go
//! into a file of the output directory, in the form of `results/`; a step whose file is of the commit that is checked out has been done.
//!
//! [`smallest`] runs every command of the specification, those of other programs too, as small as it goes: what it shows is that each
//! can be run where only `make setup` and the command itself have installed anything.
//!
//! Invariants
//!  1. `results/` is only read.
//!  2. A step that fails or is interrupted leaves no file; the next call begins with it.
//!
//! Not covered: campaigns of hours (`make campaign`), and what other commands than `bench` measure; the page shows their published values.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use steadfast_report::published::{File, Files, Promise, Promises, Row};

use crate::machine;
use crate::plot::{self, escape};

/// Minutes that a command takes on two cores, by how it begins; the first that fits. What is not here takes `UNKNOWN`.
const MINUTES: [(&str, f64); 21] = [
    ("bench micro", 6.0),
    ("bench start", 0.5),
    ("bench trees", 12.0),
    ("bench memory", 4.0),
    ("bench touch", 5.0),
    ("bench repair", 8.0),
    ("bench spec", 240.0),
    ("bench sei-servers", 40.0),
    ("bench sei-alarms", 240.0),
    ("bench sei-tables table5", 6.0),
    ("bench sei-tables", 300.0),
    ("bench sei", 3.0),
    ("bench cc-memory", 0.5),
    ("bench soak", 15.0),
    ("bench suite", 10.0),
    ("bench later", 10.0),
    ("bench inject", 30.0),
    ("bench kv", 10.0),
    ("bench servers", 18.0),
    ("bench host --flips", 45.0),
    ("bench host", 6.0),
];
const UNKNOWN: f64 = 30.0;

/// One command of the specification.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// As the specification has it, `bench` included.
    pub command: String,
    /// The file of `results/` that its values are in, without folder.
    pub file: String,
    pub minutes: f64,
}

/// The commands of `bench` that the specification names, each once, the quickest first; not those that want a word of the caller's (`DIR`).
#[must_use]
pub fn steps(promises: &Promises) -> Vec<Step> {
    let mut steps: BTreeMap<String, Step> = BTreeMap::new();
    for promise in promises
        .promise
        .iter()
        .filter(|promise| !promise.file.is_empty())
    {
        for command in promise.command.split('`').skip(1).step_by(2) {
            if !command.starts_with("bench ") || command.split(' ').any(is_placeholder) {
                continue;
            }
            let known = MINUTES
                .iter()
                .find(|(begins, _)| command.starts_with(begins));
            steps.entry(command.to_owned()).or_insert_with(|| Step {
                command: command.to_owned(),
                file: promise
                    .file
                    .rsplit('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                minutes: known.map_or(UNKNOWN, |(_, minutes)| *minutes),
            });
        }
    }
    let mut steps: Vec<Step> = steps.into_values().collect();
    steps.sort_by(|a, b| a.minutes.total_cmp(&b.minutes));
    steps
}

/// A word that stands for one of the caller's.
fn is_placeholder(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// What has been done in an output directory: steps by their command, with the commit.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Done {
    commits: BTreeMap<String, String>,
}

impl Done {
    /// Nothing, where there is none yet or it is no such file.
    fn read(note: &Path) -> Done {
        let bytes = fs::read(note).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

/// The specification and `results/` of a repository.
///
/// # Errors
/// When a file cannot be read.
pub fn read(root: &Path) -> Result<(Promises, Files)> {
    let table = root.join("docs/specification.toml");
    let text = fs::read_to_string(&table).with_context(|| table.display().to_string())?;
    Ok((toml::from_str(&text)?, files(&root.join("results"))?))
}

fn files(folder: &Path) -> Result<Files> {
    let mut files = Files::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if name.ends_with(".json") && name != "done.json" {
            let text = fs::read_to_string(&path)?;
            let file: File =
                serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            files.insert(format!("results/{name}"), file);
        }
    }
    Ok(files)
}

/// Does the steps of at most so many minutes each that are not done, and writes the page; true if every one of them succeeded.
///
/// # Errors
/// When the specification cannot be read, or the output directory not be written.
pub fn run(
    root: &Path,
    out: &Path,
    minutes_max: f64,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<(PathBuf, bool)> {
    let (promises, published) = read(root)?;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let note = out.join("done.json");
    let mut done = Done::read(&note);
    let commit = machine::commit();
    let (steps, long): (Vec<Step>, Vec<Step>) = steps(&promises)
        .into_iter()
        .partition(|step| step.minutes <= minutes_max);
    let mut good = true;
    for (at, step) in steps.iter().enumerate() {
        if done.commits.get(&step.command) == Some(&commit) {
            say(&format!(
                "[{}/{}] {}: done before",
                at + 1,
                steps.len(),
                step.command
            ));
            continue;
        }
        if interrupted() {
            bail!("interrupted; the same call goes on with {}", step.command);
        }
        let left: f64 = steps[at..]
            .iter()
            .filter(|step| done.commits.get(&step.command) != Some(&commit))
            .map(|step| step.minutes)
            .sum();
        say(&format!(
            "[{}/{}] {}: about {:.0} min; {left:.0} min left",
            at + 1,
            steps.len(),
            step.command,
            step.minutes.ceil()
        ));
        let start = Instant::now();
        if measure(step, &out.join(&step.file))? {
            done.commits.insert(step.command.clone(), commit.clone());
            fs::write(&note, serde_json::to_vec_pretty(&done)?)?;
            say(&format!("    done in {}", minutes(start.elapsed())));
        } else {
            good = false;
            say("    failed; the page shows its published values");
        }
    }
    for step in long {
        say(&format!(
            "left out: {}, about {:.0} min (--minutes {:.0} takes it in)",
            step.command, step.minutes, step.minutes
        ));
    }
    let page = out.join("index.html");
    let here = files(out)?;
    fs::write(&page, html(&promises, &published, &here))?;
    Ok((page, good))
}

/// Where the smallest runs leave what they make.
const SMALLEST: &str = "build/smallest";

/// Runs every command of the specification at its smallest size; true if each succeeded. What one printed lies in a file.
///
/// # Errors
/// When the specification cannot be read, or a command not be started.
pub fn smallest(
    root: &Path,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<bool> {
    let (promises, _) = read(root)?;
    let out = root.join(SMALLEST);
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let note = out.join("done.json");
    let mut done = Done::read(&note);
    let commit = machine::commit();
    let begin = Instant::now();
    let mut failed = Vec::new();
    let count = promises.smallest.len();
    for (at, size) in promises.smallest.iter().enumerate() {
        let name = size.commands.join(", ");
        let head = format!("[{}/{count}] {name}", at + 1);
        if done.commits.get(&name) == Some(&commit) {
            say(&format!("{head}: done before"));
            continue;
        }
        if interrupted() {
            bail!("interrupted; the same call goes on with {name}");
        }
        let log = out.join(format!("{}.log", at + 1));
        let start = Instant::now();
        if shell(root, &size.run, &log)? {
            done.commits.insert(name, commit.clone());
            fs::write(&note, serde_json::to_vec_pretty(&done)?)?;
            say(&format!(
                "{head}: ok, {:.0} s",
                start.elapsed().as_secs_f64()
            ));
        } else {
            say(&format!("{head}: FAILED, see {}", log.display()));
            failed.push(name);
        }
    }
    say(&format!(
        "{} of {count} commands of the specification run, in {}",
        count - failed.len(),
        minutes(begin.elapsed())
    ));
    Ok(failed.is_empty())
}

/// Lines of a shell in the repository, with what is built there on the path.
fn shell(root: &Path, lines: &str, log: &Path) -> Result<bool> {
    let built = root.join("target/release");
    let path = std::env::var("PATH").unwrap_or_default();
    let log = fs::File::create(log).with_context(|| log.display().to_string())?;
    let status = Command::new("sh")
        .args(["-euxc", lines])
        .current_dir(root)
        .env("PATH", format!("{}:{path}", built.display()))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()?;
    Ok(status.success())
}

fn minutes(time: Duration) -> String {
    format!("{:.1} min", time.as_secs_f64() / 60.0)
}

/// Runs this program once more with the words of a step; whether it left its values.
fn measure(step: &Step, file: &Path) -> Result<bool> {
    let words = words(&step.command);
    let status = Command::new(std::env::current_exe()?)
        .args(&words[1..])
        .arg("--results")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    Ok(status.success())
}

/// The words of a command; double quotes hold one together.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in command.split('"').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}table{border-collapse:collapse;width:100%}\
td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #d8dee4;vertical-align:top}td.n{white-space:nowrap;width:11rem}td.b{width:270px}\
svg{display:block}.q{color:#59636e}@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td,th{border-color:#30363d}.q{color:#9198a1}}";

/// Every promise that has a rival beside it, or that was measured here, as a page that needs nothing else.
fn html(promises: &Promises, published: &Files, here: &Files) -> String {
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>Steadfast: the papers' numbers, and ours</title><style>{STYLE}</style>\
         <h1>The papers' numbers, and ours</h1><p>{}. Bars: what the paper has (hatched), what is published here (grey), \
         what this machine measured (blue); whiskers are 95 % intervals. Rows that are missed stay.</p>",
        escape(&machine::sentence())
    );
    for promise in &promises.promise {
        let lines = lines(promise, published, here);
        let measured = lines.iter().any(|line| line.fill == HERE);
        if promise.rival.is_empty() && promise.plot.is_empty() && !measured {
            continue;
        }
        let facts = [
            escape(&promise.rival),
            match promise.target(published).as_str() {
                "" => String::new(),
                target => format!("target {}", escape(target)),
            },
            promise
                .status(published)
                .word()
                .trim_matches('*')
                .to_owned(),
            format!("<code>{}</code>", escape(&promise.command.replace('`', ""))),
        ];
        let facts: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
        let _ = write!(
            out,
            "<h2>{}. {}</h2><p class=q>{}</p><table>",
            promise.id,
            escape(&promise.what),
            facts.join(" · ")
        );
        // Values of one unit share a scale.
        let most = |unit: &str| {
            let same = lines.iter().filter(|line| line.unit == unit);
            same.flat_map(|line| [line.value, line.interval.map_or(0.0, |(_, high)| high)])
                .fold(0.0_f64, f64::max)
        };
        for line in &lines {
            let bar = svg(line.fill, line.value, line.interval, most(&line.unit));
            let _ = write!(
                out,
                "<tr><td>{}<td class=n>{}<td class=b>{bar}",
                escape(&line.who),
                escape(&line.text)
            );
        }
        for value in promise
            .values
            .iter()
            .filter(|value| !value.pending.is_empty())
        {
            let _ = write!(
                out,
                "<tr><td>{}<td class=n>pending<td class=b>",
                escape(&value.label)
            );
        }
        out.push_str("</table>");
        out.push_str(&plot::svg(
            promise,
            [
                ("published", PUBLISHED, published.get(&promise.file)),
                ("here", HERE, here.get(&promise.file)),
            ],
        ));
    }
    out.push_str(
        "<svg width=0 height=0><defs><pattern id=h width=6 height=6 patternUnits=userSpaceOnUse patternTransform='rotate(45)'>\
         <rect width=3 height=6 fill='#9a6700'/></pattern></defs></svg></html>\n",
    );
    out
}

const PAPER: &str = "url(#h)";
const PUBLISHED: &str = "#8c959f";
const HERE: &str = "#0969da";

/// One bar.
struct Line {
    who: String,
    text: String,
    unit: String,
    value: f64,
    interval: Option<(f64, f64)>,
    fill: &'static str,
}

/// The bars of a promise: the paper's, the published and today's, value by value.
fn lines(promise: &Promise, published: &Files, here: &Files) -> Vec<Line> {
    let mut lines = Vec::new();
    for (value, found) in promise.rows(published) {
        let Some((run, row)) = found else {
            continue;
        };
        let who = |what: String| match value.label.as_str() {
            "" => what,
            label => format!("{label}: {what}"),
        };
        if let Some(paper) = value.paper {
            lines.push(Line {
                who: who("paper".to_owned()),
                text: format!("{paper} {}", row.unit),
                unit: row.unit.clone(),
                value: paper,
                interval: None,
                fill: PAPER,
            });
        }
        let bar = |what: String, row: &Row, fill| Line {
            who: who(what),
            text: row.text(),
            unit: row.unit.clone(),
            value: row.value,
            interval: row.low.zip(row.high),
            fill,
        };
        lines.push(bar(
            format!("published ({}, {})", run.date, run.commit),
            row,
            PUBLISHED,
        ));
        let file = if value.file.is_empty() {
            &promise.file
        } else {
            &value.file
        };
        if let Some((_, today)) = here.get(file).and_then(|file| file.find(&value.key)) {
            lines.push(bar("here".to_owned(), today, HERE));
        }
    }
    lines
}

/// A bar on a scale from 0 to `most`; what is negative has none.
fn svg(fill: &str, value: f64, interval: Option<(f64, f64)>, most: f64) -> String {
    const WIDTH: f64 = 260.0;
    let x = |value: f64| {
        if most > 0.0 {
            (value / most).clamp(0.0, 1.0) * WIDTH
        } else {
            0.0
        }
    };
    let mut out = format!(
        "<svg width={WIDTH} height=14 role=img aria-label='{value}'><rect y=2 height=10 width={:.1} fill='{fill}'/>",
        x(value).max(1.0)
    );
    if let Some((low, high)) = interval {
        let _ = write!(
            out,
            "<path d='M{:.1} 7H{:.1}' stroke=currentColor />",
            x(low),
            x(high)
        );
    }
    out + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")
    }

    #[test]
    fn steps_are_the_commands_of_the_specification_each_once() {
        let (promises, _) = read(&root()).unwrap();
        let steps = steps(&promises);
        assert!(
            steps
                .iter()
                .any(|step| step.command == "bench micro" && step.file == "micro.json")
        );
        let all: std::collections::BTreeSet<&str> =
            steps.iter().map(|step| step.command.as_str()).collect();
        assert_eq!(all.len(), steps.len());
        assert!(all.contains("bench soak"));
        assert!(!all.contains("bench doctor DIR") && !all.contains("bench pair -- SERVER"));
        assert!(
            steps
                .windows(2)
                .all(|pair| pair[0].minutes <= pair[1].minutes)
        );
    }

    #[test]
    fn a_quoted_word_stays_one() {
        assert_eq!(
            words("bench a --rows \"1 KiB;DNS\" b"),
            ["bench", "a", "--rows", "1 KiB;DNS", "b"]
        );
    }

    #[test]
    fn the_page_shows_the_paper_the_published_value_and_todays() {
        let (promises, published) = read(&root()).unwrap();
        let mut here = Files::new();
        let mut file = published["results/spec.json"].clone();
        file.runs[0].rows[0].value = 4.25;
        here.insert("results/spec.json".to_owned(), file);
        let page = html(&promises, &published, &here);
        for shown in [
            "paper<td class=n>0.66 %",
            "published (",
            "here<td class=n>4.25",
            "missed",
        ] {
            assert!(page.contains(shown), "{shown}");
        }
        assert!(!page.contains("<script"), "a page without scripts");
    }
}
