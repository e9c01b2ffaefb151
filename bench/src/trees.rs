//! `bench trees`: what programs with children and threads cost: a spawn, `make -j2`, a switch between threads, a free mutex, and
//! programs that share their work between two threads.
//!
//! | Job | What is run |
//! |---|---|
//! | `spawn` | a shell that starts `true` again and again |
//! | `cc1` | a shell that has gcc's cc1 compile a file of one line again and again |
//! | `make` | `make -j2` of a C project of 16 files by gcc, in a directory of its own |
//! | `cond` | two threads that take turns by a condition variable |
//! | `mutex` | one thread, and a mutex that nobody else wants |
//! | `pigz`, `xz`, `x264` | Debian's, with two threads, on the inputs of workloads |
//!
//! Columns: bare; two unconnected copies side by side, the floor; two replicas. Copies and replicas are pinned alike, one to a CPU; of
//! the programs with two threads the bare copy has two CPUs, so what it is faster by is what threads in turn give away.
//!
//! Invariants
//!  1. Every column runs the same words, and what it prints is compared with the bare run's.
//!  2. A job whose program is missing is named in the table as left out; the others are measured.
//!
//! Not covered: servers under load (redis, nginx, PostgreSQL).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::{Invocation, Size, Store, find as workload};

use crate::column::{Column, Pages};
use crate::guest;
use crate::machine::Machine;
use crate::results;
use crate::rounds::{self, Progress, Series, Turns, find};
use crate::sample::{Runner, Sample};
use crate::stats::{Estimate, median_estimate};
use crate::table;

/// Children of one run of `spawn`: the start of the run itself is then some percent of it.
const SPAWNS: usize = 200;
/// The same of `cc1`, a larger program.
const COMPILERS: usize = 50;
const SWITCHES: usize = 100_000;
const LOCKS: usize = 20_000_000;
const FILES: usize = 16;

/// A program that shares its work between two threads.
#[derive(Debug)]
struct Threaded {
    name: &'static str,
    program: &'static str,
    words: &'static [&'static str],
    /// The workload whose inputs it reads: text, code and noise; a film.
    inputs: &'static str,
}

/// Debian's packages have the names of the jobs, but for xz-utils. Levels are such that one copy on a core takes some seconds.
const THREADED: [Threaded; 3] = [
    Threaded {
        name: "pigz",
        program: "/usr/bin/pigz",
        words: &["-p", "2", "-n", "-c", "mixed.bin"],
        inputs: "bzip2",
    },
    Threaded {
        name: "xz",
        program: "/usr/bin/xz",
        words: &["-0", "-T2", "-c", "mixed.bin"],
        inputs: "bzip2",
    },
    Threaded {
        name: "x264",
        program: "/usr/bin/x264",
        words: &[
            "--quiet",
            "--no-progress",
            "--threads",
            "2",
            "--muxer",
            "raw",
            "--output",
            "-",
            "film.y4m",
        ],
        inputs: "x264",
    },
];

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TreesReport {
    pub bench: String,
    pub machine: Machine,
    pub pairs: usize,
    pub seed: u64,
    pub complete: bool,
    /// By job.
    pub jobs: Vec<(String, Vec<Series>)>,
    /// Jobs whose programs are missing, and how to get them.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// Measures the jobs whose names begin like one of `only`; all if there are none.
///
/// # Errors
/// When the guest does not build, the project cannot be written, or no job has such a name.
pub fn measure(
    runner: &Runner,
    guests: &Path,
    only: &[String],
    pairs: usize,
    seed: u64,
    machine: Machine,
    progress: &mut dyn Progress,
) -> Result<TreesReport> {
    let switch = guest::build(guests, "switch")?;
    let project = project(&guests.join("project"))?;
    let shell = |script: &str| guest::invocation("/bin/sh".as_ref(), &["-c", script]);
    let spawn =
        format!("i=0; while [ $i -lt {SPAWNS} ]; do /bin/true; i=$((i + 1)); done; echo $i");
    let make = format!(
        "d=$(mktemp -d) && cp {}/* $d && make -s -j2 -C $d && $d/project; rm -rf $d",
        project.display()
    );
    let source = guests.join("line.c");
    fs::write(&source, "int line;\n").with_context(|| source.display().to_string())?;
    let cc1 = format!(
        "c=$(gcc -print-prog-name=cc1); i=0; while [ $i -lt {COMPILERS} ]; do $c -quiet -o /dev/null {} || exit; i=$((i + 1)); done; echo $i",
        source.display()
    );
    let jobs: [(&str, Invocation); 5] = [
        ("spawn", shell(&spawn)),
        ("cc1", shell(&cc1)),
        ("make", shell(&make)),
        (
            "cond",
            guest::invocation(&switch, &["cond", &SWITCHES.to_string()]),
        ),
        (
            "mutex",
            guest::invocation(&switch, &["mutex", &LOCKS.to_string()]),
        ),
    ];
    let columns = [
        Column::bare("bare", 1, Pages::AsIs),
        Column::bare("corun2", 2, Pages::AsIs),
        Column::protected("n2", 2, &[]),
    ];
    let mut rng = Rng::new(seed);
    let mut report = TreesReport {
        bench: "trees".to_owned(),
        machine,
        pairs,
        seed,
        complete: true,
        jobs: Vec::new(),
        left_out: Vec::new(),
    };
    let wanted =
        |name: &str| only.is_empty() || only.iter().any(|one| name.starts_with(one.as_str()));
    let mut turns: Vec<Turns> = jobs
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, job)| Turns::of(name, job, &columns, pairs))
        .collect();
    for program in THREADED.iter().filter(|program| wanted(program.name)) {
        match program.job() {
            Ok(job) => turns.push(program.turns(&job, &columns, pairs, runner)),
            Err(why) => report.left_out.push(format!("{}: {why:#}", program.name)),
        }
    }
    ensure!(
        !turns.is_empty() || !report.left_out.is_empty(),
        "--jobs: spawn, cc1, make, cond, mutex, pigz, xz or x264 is required, found {}",
        only.join(", ")
    );
    for turns in turns {
        let series = rounds::run(runner, &turns, &mut rng, progress);
        report.jobs.push((turns.name, series));
        report.complete = !runner.interrupted();
    }
    Ok(report)
}

impl Threaded {
    /// The program on its inputs, which are made if they are not there.
    fn job(&self) -> Result<Invocation> {
        ensure!(
            Path::new(self.program).is_file(),
            "{} is required, found none\n  fix:   apt install {}",
            self.program,
            if self.name == "xz" {
                "xz-utils"
            } else {
                self.name
            }
        );
        let store = Store::default_place();
        let inputs = workload(self.inputs).context("no such workload")?;
        store.generate(inputs, Size::Full)?;
        let mut job = guest::invocation(self.program.as_ref(), self.words);
        job.cwd = store.inputs(inputs, Size::Full);
        Ok(job)
    }

    /// The bare copy has the CPUs of both replicas.
    fn turns(&self, job: &Invocation, columns: &[Column], pairs: usize, runner: &Runner) -> Turns {
        let mut turns = Turns::of(self.name, job, columns, pairs);
        let both = format!("{},{}", runner.cpu(0), runner.cpu(1));
        for (_, job) in turns
            .columns
            .iter_mut()
            .filter(|(column, _)| column.name == "bare")
        {
            let mut words = vec!["-c".into(), both.clone().into(), self.program.into()];
            words.append(&mut job.args);
            job.args = words;
            job.program = "/usr/bin/taskset".into();
        }
        turns
    }
}

/// Writes a C project of some files that gcc takes a while for.
fn project(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut objects = String::from("main.o");
    let mut parts = String::new();
    for n in 0..FILES {
        let source = format!(
            "#define PART {n}\n#define STRIDE {}\n{}",
            n % 5 + 1,
            include_str!("../../guests/bench/project_part.c")
        );
        fs::write(dir.join(format!("part{n}.c")), source)?;
        objects += &format!(" part{n}.o");
        parts += &format!("PART({n})\n");
    }
    fs::write(dir.join("parts.h"), parts)?;
    fs::write(
        dir.join("main.c"),
        include_str!("../../guests/bench/project_main.c"),
    )?;
    fs::write(
        dir.join("Makefile"),
        format!("CFLAGS = -O2\nproject: {objects}\n\t$(CC) -o $@ {objects}\n"),
    )?;
    Ok(dir.to_owned())
}

impl TreesReport {
    fn series(&self, job: &str, column: &str) -> Option<&Series> {
        let (_, series) = self.jobs.iter().find(|(name, _)| name == job)?;
        find(series, column)
    }

    /// The median of a number of a run.
    fn value(
        &self,
        job: &str,
        column: &str,
        rng: &mut Rng,
        of: impl Fn(&Sample) -> f64,
    ) -> Option<Estimate> {
        median_estimate(&self.series(job, column)?.values(of), rng)
    }

    /// Percent by which two replicas take longer.
    fn over(&self, job: &str, base: &str, rng: &mut Rng) -> Option<Estimate> {
        let ratios = self
            .series(job, "n2")?
            .ratios(self.series(job, base)?, |sample| sample.wall);
        let percent: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0) * 100.0).collect();
        median_estimate(&percent, rng)
    }
}

/// Nanoseconds that a guest measured itself, in its slowest copy.
fn own_ns(sample: &Sample) -> f64 {
    sample
        .said
        .iter()
        .filter_map(|said| {
            said.lines()
                .find_map(|line| line.strip_prefix("ns ")?.trim().parse().ok())
        })
        .fold(f64::NAN, f64::max)
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &TreesReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    for column in ["bare", "corun2", "n2"] {
        let each = |count: usize, unit: f64| move |value: f64| value / count as f64 * unit;
        let spawn = report.value("spawn", column, &mut rng, |sample| {
            each(SPAWNS, 1e3)(sample.wall)
        });
        rows.extend(results::row(
            format!("spawn.{column}"),
            format!("one true(1) from a shell, {column}"),
            "ms",
            spawn,
        ));
        let cc1 = report.value("cc1", column, &mut rng, |sample| {
            each(COMPILERS, 1e3)(sample.wall)
        });
        rows.extend(results::row(
            format!("cc1.{column}"),
            format!("one cc1 on a line of C from a shell, {column}"),
            "ms",
            cc1,
        ));
        let cond = report.value("cond", column, &mut rng, |sample| {
            each(SWITCHES, 1e-3)(own_ns(sample))
        });
        rows.extend(results::row(
            format!("cond.{column}"),
            format!("one switch by a condition variable, {column}"),
            "µs",
            cond,
        ));
        let mutex = report.value("mutex", column, &mut rng, |sample| {
            each(LOCKS, 1.0)(own_ns(sample))
        });
        rows.extend(results::row(
            format!("mutex.{column}"),
            format!("a free mutex taken and given, {column}"),
            "ns",
            mutex,
        ));
    }
    for (base, key) in [("corun2", "make.floor"), ("bare", "make.bare")] {
        let what = format!("make -j2 of {FILES} C files, two replicas over {base}");
        rows.extend(results::row(
            key,
            what,
            "%",
            report.over("make", base, &mut rng),
        ));
    }
    for Threaded { name, .. } in &THREADED {
        rows.extend(results::row(
            format!("{name}.floor"),
            format!("{name} with two threads: two replicas over two copies, each on a core"),
            "%",
            report.over(name, "corun2", &mut rng),
        ));
        rows.extend(results::row(
            format!("{name}.cores"),
            format!("{name} with two threads: two replicas over one copy on two cores"),
            "%",
            report.over(name, "bare", &mut rng),
        ));
    }
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &TreesReport) -> String {
    let lines: Vec<Vec<String>> = rows(report)
        .into_iter()
        .map(|row| vec![row.what.clone(), row.text()])
        .collect();
    let mut out = report.machine.render();
    out += &format!(
        "{} rounds, seed {}{}\n\n",
        report.pairs,
        report.seed,
        if report.complete { "" } else { ", INTERRUPTED" }
    );
    out += &table::render(&["what", "median [95 %]"], &lines);
    out.push('\n');
    for job in &report.left_out {
        out += &format!("left out {job}\n");
    }
    for (job, series) in &report.jobs {
        for series in series {
            for failure in &series.failures {
                out += &format!("error   {job}, {}: {failure}\n", series.column);
            }
        }
    }
    out
}
