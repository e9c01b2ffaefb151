//! The paper's micro-benchmark (its Table 1 and Figs. 3 to 5): its four variants, and a pair, over recording alone.
//!
//! Recording alone is `steadfast run -n 2`: a leader, its log and a follower. The variants C1 to C4 are rebuilt in the program
//! itself (micro.c): exchange, digest and tracking. What they add is measured bare, and added to recording alone.
//!
//! A pair compares every read before the program goes on. So it has no N, and no exchange that is not waited for.
//!
//! Not measured: replicas on hosts of their own; the paper's disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use steadfast_report::published::Row;

use super::sites::{Column, Sites, middle};
use crate::results::digits;

/// The paper has 100,000.
const OPERATIONS: u32 = 20_000;
const VARIANTS: [(&str, [&str; 3]); 4] = [
    ("C1", ["sync", "md5", "mprotect"]),
    ("C2", ["async", "md5", "mprotect"]),
    ("C3", ["async", "crc32c", "mprotect"]),
    ("C4", ["async", "crc32c", "wp-async"]),
];

struct Setting {
    key: &'static str,
    what: &'static str,
    n: u32,
    dirty: u32,
    megabytes: u32,
    /// What the paper has over its recording alone.
    paper: &'static str,
}

const SETTINGS: [Setting; 5] = [
    Setting {
        key: "n10",
        what: "N 10",
        n: 10,
        dirty: 5,
        megabytes: 1,
        paper: "C1 10.23, C4 1.84",
    },
    Setting {
        key: "n50",
        what: "N 50, 5 dirty pages, 1 MB",
        n: 50,
        dirty: 5,
        megabytes: 1,
        paper: "C1 5.59, C4 1.66",
    },
    Setting {
        key: "n1000",
        what: "N 1000",
        n: 1000,
        dirty: 5,
        megabytes: 1,
        paper: "C1 4.16, C4 1.33",
    },
    Setting {
        key: "d500",
        what: "500 dirty pages",
        n: 50,
        dirty: 500,
        megabytes: 1,
        paper: "C1 1.72, C4 1.12",
    },
    Setting {
        key: "m100",
        what: "100 MB of memory",
        n: 50,
        dirty: 5,
        megabytes: 100,
        paper: "C1 x4, C4 x1.5 of 1 MB",
    },
];

/// The milliseconds that the program says.
fn taken(said: &str) -> Result<f64> {
    let line = said.lines().find(|line| line.contains(" ms "));
    let word = line.and_then(|line| line.split(' ').next());
    let word = word.with_context(|| format!("the micro-benchmark says {said}"))?;
    Ok(word.parse()?)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

/// Rows, and the table of them beside the paper's.
///
/// # Errors
/// When a program is missing, or fails.
pub fn measure(pair: &Path, rounds: usize, place: &Path) -> Result<(Vec<Row>, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pair/micro.c");
    let (micro, seed) = (place.join("micro"), place.join("micro-data"));
    fs::create_dir_all(&seed)?;
    output(
        Command::new("cc")
            .args(["-O2", "-msse4.2", "-o"])
            .arg(&micro)
            .arg(source),
    )?;
    fs::write(seed.join("file"), vec![7; 1 << 20])?;
    let run = pair.with_file_name("steadfast");
    let mut rows = Vec::new();
    let mut table = format!(
        "Over recording alone; the paper's beside it. {OPERATIONS} operations, median of {rounds}.\n{:<28}{:>8}{:>8}{:>8}{:>8}{:>8}   paper\n",
        "", "C1", "C2", "C3", "C4", "pair"
    );
    for setting in &SETTINGS {
        let mut ratios = vec![Vec::new(); VARIANTS.len() + 1];
        let own = |file: PathBuf| -> Vec<String> {
            let numbers = [OPERATIONS, setting.n, setting.dirty, setting.megabytes];
            let numbers = numbers.iter().map(ToString::to_string);
            [micro.display().to_string(), file.display().to_string()]
                .into_iter()
                .chain(numbers)
                .collect()
        };
        for _ in 0..rounds.max(1) {
            let words = own(seed.join("file"));
            let bare = taken(&output(Command::new(&words[0]).args(&words[1..]))?)?;
            let recorded = taken(&output(
                Command::new(&run)
                    .args(["run", "-n", "2", "--"])
                    .args(&words),
            )?)?;
            for (at, (_, variant)) in VARIANTS.iter().enumerate() {
                let with = taken(&output(
                    Command::new(&words[0]).args(&words[1..]).args(variant),
                )?)?;
                ratios[at].push((recorded + with - bare) / recorded);
            }
            let words = own("/mnt/data/file".into());
            let sites = Sites::start(Column::Pair, pair, &seed, [&words, &words], place)?;
            ratios[VARIANTS.len()].push(taken(&sites.output()?)? / recorded);
        }
        table.push_str(&format!("{:<28}", setting.what));
        let names = VARIANTS.iter().map(|(name, _)| *name).chain(["pair"]);
        for (name, ratios) in names.zip(&ratios) {
            let (value, low, high) = middle(ratios);
            table.push_str(&format!("{value:>8.2}"));
            let key = format!("micro.{}.{}", setting.key, name.to_lowercase());
            let what = format!(
                "micro-benchmark, {}: {name} over recording alone",
                setting.what
            );
            rows.push(Row::new(key, what, digits(value), String::new()).within(
                digits(low),
                digits(high),
                ratios.len() as u64,
            ));
        }
        table.push_str(&format!("   {}\n", setting.paper));
    }
    Ok((rows, table))
}
