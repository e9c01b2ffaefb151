//! `bench model`: what it would cost to harden what is still trusted.
//!
//! Döbel and Härtig (2013), Section 5, ask what replication costs when the reliable computing
//! base (there the master and the kernel, here the agent and the kernel) is itself hardened by a
//! compiler that slows it down by a factor C:
//!
//! ```text
//! t_PROT  = t_app + C x (t_kern + t_master + t'_kern) + t_hw      their (3)
//! t'_PROT = t_NAT + C x (t_REP - t_NAT)                           their upper bound, as used
//! ```
//!
//! They had to set t_kern and t_hw to zero, which makes the second an upper bound. Here the terms
//! are measured apart: t_app and t_kern are user and system time of the bare run; t_master is the
//! number of events times what one event costs when nothing waits (`bench micro`); t'_kern is
//! the system time of the leader beyond t_kern; t_hw is what is left. No new run is made: the
//! inputs are the files that `bench spec` and `bench micro` wrote.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::micro::{MicroReport, master_ns};
use crate::rounds::{Series, find};
use crate::spec::{Program, SpecReport};
use crate::stats::{geometric_mean, median};
use crate::table;

/// Slow-downs from Schiffel et al., "Software-Implemented Hardware Error Detection: Costs and
/// Gains", 2010, as the paper uses them.
pub const C_SWIFT: f64 = 1.095;
pub const C_ANBD: f64 = 3.896;

/// Where the time of one program goes, in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Breakdown {
    pub name: String,
    pub native: f64,
    pub replicated: f64,
    pub app: f64,
    pub kernel: f64,
    pub master: f64,
    pub kernel_extra: f64,
    pub hardware: f64,
}

impl Breakdown {
    /// The overhead over native, in percent, with a trusted base slowed down by `c`.
    #[must_use]
    pub fn hardened(&self, c: f64) -> f64 {
        let time = self.app + c * (self.kernel + self.master + self.kernel_extra) + self.hardware;
        (time / self.native - 1.0) * 100.0
    }

    /// The paper's upper bound on the same, which takes all added time for the trusted base's.
    #[must_use]
    pub fn upper_bound(&self, c: f64) -> f64 {
        c * (self.replicated - self.native) / self.native * 100.0
    }
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelReport {
    pub bench: String,
    pub machine: Machine,
    pub replicas: u8,
    /// What one event costs when nothing waits.
    pub master_ns: f64,
    pub programs: Vec<Breakdown>,
    pub errors: Vec<String>,
}

/// Works the model out from what two other benchmarks wrote.
#[must_use]
pub fn work_out(spec: &SpecReport, micro: &MicroReport, replicas: u8) -> ModelReport {
    let mut errors = Vec::new();
    let master = master_ns(micro, replicas).unwrap_or_else(|| {
        errors.push(format!(
            "no cost per event for {replicas} replicas in the micro file; taken as 0"
        ));
        0.0
    });
    if spec.machine.commit != micro.machine.commit {
        errors.push(format!(
            "the files are of two commits, {} and {}",
            spec.machine.commit, micro.machine.commit
        ));
    }
    let unknown = |program: &Program| {
        let series = find(&program.series, &format!("n{replicas}"));
        series
            .and_then(Series::last)
            .is_some_and(|sample| !sample.cpu_known)
    };
    if spec.programs.iter().any(unknown) {
        errors
            .push("the product did not report system time; t'_kern is counted as t_hw".to_owned());
    }
    let mut programs = Vec::new();
    for program in &spec.programs {
        match breakdown(program, master, replicas) {
            Some(found) => programs.push(found),
            None => errors.push(format!(
                "{}: not measured bare and with {replicas} replicas",
                program.name
            )),
        }
    }
    ModelReport {
        bench: "model".to_owned(),
        machine: spec.machine.clone(),
        replicas,
        master_ns: master,
        programs,
        errors,
    }
}

fn breakdown(program: &Program, master_ns: f64, replicas: u8) -> Option<Breakdown> {
    let bare = find(&program.series, "bare")?;
    let replicated = find(&program.series, &format!("n{replicas}"))?;
    let middle = |values: Vec<f64>| median(&values);
    let native = middle(bare.values(|sample| sample.wall))?;
    let kernel = middle(bare.values(|sample| sample.system))?;
    let total = middle(replicated.values(|sample| sample.wall))?;
    let report = replicated.last()?.report.as_ref()?;
    // The replicas share the kernel's work unevenly; the one that waits least sets the pace.
    let system = report
        .timings
        .cpu_ns
        .iter()
        .map(|time| time.system_ns)
        .max()
        .unwrap_or(0);
    let kernel_extra = (system as f64 / 1e9 - kernel).max(0.0);
    let master = report.events as f64 * master_ns.max(0.0) / 1e9;
    let app = native - kernel;
    Some(Breakdown {
        name: program.name.clone(),
        native,
        replicated: total,
        app,
        kernel,
        master,
        kernel_extra,
        hardware: total - native - master - kernel_extra,
    })
}

/// The report as text: the analogues of the paper's Figures 4, 6 and 7, and what is missing.
#[must_use]
pub fn render(report: &ModelReport) -> String {
    let percent = |part: f64, of: f64| format!("{:+.3}", part / of * 100.0);
    let row = |found: &Breakdown| {
        let mut row = vec![found.name.clone(), format!("{:.3}", found.native)];
        let parts = [
            found.kernel,
            found.master,
            found.kernel_extra,
            found.hardware,
            found.replicated - found.native,
        ];
        row.extend(parts.map(|part| percent(part, found.native)));
        row.extend([C_SWIFT, C_ANBD].map(|c| format!("{:+.3}", found.hardened(c))));
        row.extend([C_SWIFT, C_ANBD].map(|c| format!("{:+.3}", found.upper_bound(c))));
        row
    };
    let mut rows: Vec<Vec<String>> = report.programs.iter().map(row).collect();
    let mean = |overhead: &dyn Fn(&Breakdown) -> f64| {
        let ratios: Vec<f64> = report
            .programs
            .iter()
            .map(|found| 1.0 + overhead(found) / 100.0)
            .collect();
        geometric_mean(&ratios).map_or("-".to_owned(), |ratio| {
            format!("{:+.3}", (ratio - 1.0) * 100.0)
        })
    };
    let mut last = vec!["geometric mean".to_owned()];
    last.extend(vec![String::new(); 5]);
    last.push(mean(&|found| found.upper_bound(1.0)));
    last.extend([
        mean(&|found| found.hardened(C_SWIFT)),
        mean(&|found| found.hardened(C_ANBD)),
    ]);
    last.extend([
        mean(&|found| found.upper_bound(C_SWIFT)),
        mean(&|found| found.upper_bound(C_ANBD)),
    ]);
    rows.push(last);
    let header = [
        "program",
        "t_NAT s",
        "t_kern %",
        "t_master %",
        "t'_kern %",
        "t_hw %",
        "overhead %",
        "SWIFT %",
        "ANBD %",
        "SWIFT, bound %",
        "ANBD, bound %",
    ];
    let mut out = report.machine.render();
    out += &format!(
        "{} replicas, {:.1} ns per event without waiting; parts are shares of t_NAT (Figure 6),\n\
         overheads are over native (Figures 4 and 7); C is {C_SWIFT} for SWIFT and {C_ANBD} for ANBD\n\n",
        report.replicas, report.master_ns
    );
    out += &table::render(&header, &rows);
    out += "\npaper, 3 replicas: 1.8 % as measured, 1.97 % with SWIFT, 7.03 % with ANBD (bounds)\n";
    if !report.machine.counters {
        out += "Tables 2 and 3 (L2 and L3 misses): not measurable here, the machine has no event counters\n";
    }
    out += "Figure 5 (replicas spread over two last-level caches): not measurable on one cache\n";
    for error in &report.errors {
        out += &format!("error   {error}\n");
    }
    out
}
