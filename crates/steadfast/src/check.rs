//! `steadfast check`: what works here, at which cost, and how to get the rest.

use std::fmt::Write as _;

use steadfast_contract::exit::{Exit, Own};
use steadfast_probe::{Check, Cost, Finding, Measure, State};

use crate::cli::CheckArgs;
use crate::report::Console;

/// Probes this machine and says what was found. The exit code tells whether `run` can work.
pub(crate) fn check(args: &CheckArgs, console: &mut Console<'_>) -> Exit {
    let measure = if args.costs() {
        Measure::Costs
    } else {
        Measure::Skip
    };
    let check = steadfast_probe::check(measure);
    console.result(&if args.json() {
        json(&check)
    } else {
        table(&check)
    });
    if check.usable {
        Exit::Status(0)
    } else {
        Exit::Own(Own::Setup)
    }
}

fn json(check: &Check) -> String {
    // Strings, numbers and lists: there is always a JSON form.
    serde_json::to_string(check).unwrap_or_default() + "\n"
}

fn table(check: &Check) -> String {
    let machine = &check.machine;
    let mut text = format!(
        "Linux {} on {}, {}: {} on {}, user {}\n\n",
        machine.kernel,
        machine.architecture,
        machine.cpu,
        counted(machine.cpus.len(), "CPU"),
        counted(machine.cores, "core"),
        machine.uid
    );
    let width = check
        .findings
        .iter()
        .map(|finding| finding.name.len())
        .max()
        .unwrap_or(0);
    for finding in &check.findings {
        row(&mut text, finding, width);
    }
    if !check.costs.is_empty() {
        text.push_str("\ncosts here\n");
        let width = check
            .costs
            .iter()
            .map(|cost| cost.name.len())
            .max()
            .unwrap_or(0);
        for cost in &check.costs {
            let _ = writeln!(text, "  {:<width$}  {}", cost.name, amount(cost));
        }
    }
    text.push('\n');
    let lacking: Vec<&str> = check
        .findings
        .iter()
        .filter(|f| f.needed && f.state == State::Missing)
        .map(|f| f.name)
        .collect();
    let slower = check
        .findings
        .iter()
        .filter(|f| f.state == State::Slower)
        .count();
    let _ = match (lacking.as_slice(), slower) {
        ([], 0) => writeln!(text, "steadfast run works here, with everything it can use"),
        ([], 1) => writeln!(
            text,
            "steadfast run works here, with one thing done another way"
        ),
        ([], slower) => writeln!(
            text,
            "steadfast run works here, with {slower} things done another way"
        ),
        (lacking, _) => writeln!(
            text,
            "steadfast run cannot work here: {} missing",
            lacking.join(", ")
        ),
    };
    text
}

fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn row(text: &mut String, finding: &Finding, width: usize) {
    let state = match finding.state {
        State::Works => "works",
        State::Slower => "slower",
        State::Missing => "missing",
    };
    let _ = writeln!(
        text,
        "{state:<8} {:<width$}  {}",
        finding.name, finding.seen
    );
    if let Some(instead) = &finding.instead {
        let _ = writeln!(text, "{:<8}   instead: {instead}", "");
    }
    if let Some(fix) = &finding.fix {
        let _ = writeln!(text, "{:<8}   fix:     {fix}", "");
    }
}

/// A cost in the unit in which it is easily read.
fn amount(cost: &Cost) -> String {
    match (cost.value, cost.unit) {
        (None, _) => format!(
            "not measured: {}",
            cost.reason.as_deref().unwrap_or("unknown")
        ),
        (Some(ns), "ns") if ns >= 1e6 => format!("{:>8.1} ms", ns / 1e6),
        (Some(ns), "ns") if ns >= 1e4 => format!("{:>8.1} us", ns / 1e3),
        (Some(value), unit) => format!("{value:>8.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_probe::{Machine, SCHEMA_VERSION};

    fn finding(name: &'static str, state: State, needed: bool) -> Finding {
        Finding {
            name,
            state,
            needed,
            seen: "what was seen".to_owned(),
            instead: (state == State::Slower).then(|| "another way".to_owned()),
            fix: (state != State::Works).then(|| "sysctl something=1".to_owned()),
        }
    }

    fn sample(findings: Vec<Finding>, usable: bool) -> Check {
        let cost = |name, value, unit| Cost {
            name,
            value,
            unit,
            reason: None,
        };
        Check {
            v: SCHEMA_VERSION,
            machine: Machine {
                kernel: "6.1.0-18-amd64".to_owned(),
                architecture: "x86_64".to_owned(),
                cpu: "Some Processor".to_owned(),
                cpus: vec![0, 1],
                cores: 2,
                uid: 1000,
            },
            usable,
            findings,
            costs: vec![
                cost("system call", Some(112.4), "ns"),
                cost("wake by futex, other core", Some(38_123.4), "ns"),
                cost("fork of 16 MiB", Some(1_234_567.0), "ns"),
                cost("checksum", Some(12.3), "GB/s"),
                Cost {
                    name: "hand-off",
                    value: None,
                    unit: "ns",
                    reason: Some("only one CPU may be used".to_owned()),
                },
            ],
        }
    }

    #[test]
    fn the_table_names_state_alternative_and_fix() {
        let findings = vec![
            finding("ptrace", State::Works, true),
            finding("cpuid faulting", State::Slower, false),
        ];
        insta::assert_snapshot!("table", table(&sample(findings, true)));
        let findings = vec![
            finding("ptrace", State::Missing, true),
            finding("shared memory", State::Missing, true),
        ];
        insta::assert_snapshot!("table_unusable", table(&sample(findings, false)));
    }
}
