//! `steadfast-model`: the algorithm whole, each rule left out, and more faults than it is made for.

#![allow(clippy::print_stdout, reason = "a chore prints what it found")]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use steadfast_model::{Bounds, Found, ONE, Program, Rule, TWO, TWO_LONG, search};

/// Goes through every state that a fault can lead the hardening algorithm to
#[derive(Debug, Parser)]
#[command(name = "steadfast-model", version)]
struct Cli {
    /// Also two threads of which both store
    #[arg(long)]
    long: bool,
    /// Print the shortest way to each counterexample
    #[arg(long)]
    traces: bool,
    /// Leave out these rules (as the table names them), and print the way to what comes of it
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    without: Vec<String>,
}

struct Table {
    traces: bool,
    wrong: bool,
}

impl Table {
    fn row(&mut self, name: &str, inputs: &[&[u8]], without: &[Rule], bounds: Bounds) -> bool {
        let begun = Instant::now();
        let searched = search(&Program::new(inputs, without), bounds);
        let (verdict, trace) = match &searched.found {
            Found::Nothing => ("none".to_owned(), None),
            Found::Corrupt(t) => (
                format!("corrupt message after {} steps", t.0.len()),
                Some(t),
            ),
            Found::FalseAlarm(t) => (
                format!("alarm without a fault after {} steps", t.0.len()),
                Some(t),
            ),
            Found::Stuck(t) => (
                format!("standstill without a fault after {} steps", t.0.len()),
                Some(t),
            ),
        };
        println!(
            "{name:<48} {:>7} {:>9} {:>9} {:>8.1} s  {verdict}",
            inputs.len(),
            searched.states,
            searched.strikes,
            begun.elapsed().as_secs_f64()
        );
        if let Some(trace) = trace.filter(|_| self.traces) {
            print!("{trace}");
        }
        trace.is_some()
    }

    fn expect(&mut self, wanted: bool, found: bool) {
        self.wrong |= wanted != found;
    }
}

fn without(rules: &[Rule]) -> String {
    let names: Vec<String> = rules.iter().map(ToString::to_string).collect();
    format!("without {}", names.join(", "))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut table = Table {
        traces: cli.traces || !cli.without.is_empty(),
        wrong: false,
    };
    println!(
        "{:<48} {:>7} {:>9} {:>9} {:>10}  counterexample",
        "", "threads", "states", "faults", "time"
    );
    if !cli.without.is_empty() {
        let mut rules = Vec::new();
        for name in &cli.without {
            let Some(rule) = Rule::ALL.into_iter().find(|r| r.to_string() == *name) else {
                println!("model: --without names rules of the table, found {name}");
                return ExitCode::from(64);
            };
            rules.push(rule);
        }
        let _ = table.row(&without(&rules), ONE, &rules, Bounds::PAPER)
            || table.row(&without(&rules), TWO, &rules, Bounds::PAPER);
        return ExitCode::SUCCESS;
    }
    for inputs in if cli.long {
        vec![ONE, TWO, TWO_LONG]
    } else {
        vec![ONE, TWO]
    } {
        let found = table.row("complete", inputs, &[], Bounds::PAPER);
        table.expect(false, found);
    }
    for inputs in [ONE, TWO, TWO_LONG] {
        let found = table.row("protect=sei", inputs, &Rule::BEYOND, Bounds::SEI);
        table.expect(false, found);
    }
    for (rules, threads) in Rule::NEEDED {
        let found = table.row(
            &without(rules),
            steadfast_model::inputs(threads),
            rules,
            Bounds::PAPER,
        );
        table.expect(true, found);
    }
    for rule in Rule::SPARE {
        for inputs in [ONE, TWO] {
            let found = table.row(&without(&[rule]), inputs, &[rule], Bounds::PAPER);
            table.expect(false, found);
        }
    }
    for inputs in [ONE, TWO] {
        let found = table.row(
            "with faults into handlers",
            inputs,
            &[],
            Bounds {
                counted: false,
                ..Bounds::PAPER
            },
        );
        table.expect(true, found);
    }
    let found = table.row(
        "two faults",
        ONE,
        &[],
        Bounds {
            faults: 2,
            ..Bounds::PAPER
        },
    );
    table.expect(true, found);
    ExitCode::from(u8::from(table.wrong))
}
