//! The reachable share is one of what the processor executes, not of what the injector has found.

mod common;

use std::collections::BTreeMap;
use std::process::Command;

use common::{clean, guest, order};
use steadfast_inject::campaign::{Field, Order};
use steadfast_inject::record::Population;

/// Share of the running time in code without a counter.
fn unknown_share(order: &Order) -> f64 {
    let mut field = Field::open(order).expect("a target");
    let reach = field.reach().expect("a sample");
    let (mut unknown, mut own) = (0.0, 0.0);
    for phase in [reach.loader, reach.program] {
        // A moment stands for this much CPU time.
        let each = phase.cpu_ns as f64 / phase.moments.max(1) as f64;
        unknown += each * phase.unknown as f64;
        own += each * (phase.moments - phase.kernel) as f64;
    }
    assert!(own > 0.0, "no moment was met: {reach:?}");
    unknown / own
}

/// What a target executes, with what its counters do not show.
fn population(order: &Order) -> Population {
    let mut field = Field::open(order).expect("a target");
    let profile = field.profile().expect("counts");
    let mut population = field.population(&profile, None);
    field.beyond(&profile, &mut population).expect("a look");
    clean(order);
    population
}

/// The guest with so many rounds of four instructions that no counter knows.
fn hidden(name: &str, rounds: u64) -> Order {
    let mut order = order("reach", name, 65534);
    guest(&mut order, "hidden", &["-O1"]);
    order.spec.argv.push(rounds.to_string());
    order
}

#[test]
fn code_without_unwind_entry_or_symbol_is_seen() {
    let order = hidden("hidden", 30_000_000);
    let share = unknown_share(&order);
    assert!(share > 0.8, "nearly all of its time: {share}");
    clean(&order);
}

#[test]
fn code_that_is_counted_is_not_called_unknown() {
    let mut order = order("reach", "shown", 65534);
    guest(&mut order, "hidden", &["-O1"]);
    let share = unknown_share(&order);
    assert!(share < 0.2, "none but the loader's constructors: {share}");
    clean(&order);
}

#[test]
fn of_a_short_program_each_instruction_is_seen() {
    let found = population(&hidden("short", 20_000));
    let others = found.uncounted.checked_sub(4 * 20_000);
    assert!(
        others.is_some_and(|n| n < 20_000),
        "the loop, and what libraries do before the entry point: {found:?}"
    );
}

#[test]
fn of_a_program_of_a_millisecond_the_share_is_one_of_instructions() {
    let found = population(&hidden("millisecond", 1_000_000)).with_uncounted();
    let share = found.reachable_share();
    assert!(share < 0.1, "4,000,000 of 4,100,000 are not: {share}");
}

#[test]
fn a_program_in_which_nothing_is_found_has_executed_something() {
    let mut order = order("reach", "stripped", 65534);
    guest(&mut order, "stripped", &["-nostdlib", "-static", "-s"]);
    let found = population(&order);
    assert_eq!((found.counts.dynamic, found.uncounted), (0, 40_004));
}

/// Makes a guest the target that is a program and a library, both from one source.
fn with_library(order: &mut Order, name: &str) {
    let library = order.scratch.join(format!("lib{name}.so"));
    let guests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guests/inject");
    let built = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-DLIBRARY", "-o"])
        .arg(&library)
        .arg(format!("{guests}/{name}.c"))
        .status()
        .expect("a C compiler");
    assert!(built.success());
    let dir = order.scratch.display().to_string();
    guest(
        order,
        name,
        &[
            "-O1",
            &format!("-Wl,-rpath,{dir}"),
            &format!("-L{dir}"),
            &format!("-Wl,--no-as-needed,-l{name}"),
        ],
    );
}

#[test]
fn code_above_a_large_library_is_counted() {
    let mut order = order("reach", "large", 65534);
    order.spec.memory = 4 << 30;
    with_library(&mut order, "large");
    let mut field = Field::open(&order).expect("a target");
    let profile = field.profile().expect("counts");
    let functions = field.functions(&profile);
    let counted = functions
        .iter()
        .any(|f| f.function.as_deref() == Some("said"));
    assert!(counted, "{functions:?}");
    clean(&order);
}

#[test]
fn a_constructor_of_a_library_is_seen() {
    let mut order = order("reach", "busy", 65534);
    with_library(&mut order, "busy");
    let share = unknown_share(&order);
    assert!(share > 0.8, "nearly all of its time: {share}");
    clean(&order);
}

/// What counting makes the guest execute besides, by module.
fn surplus(name: &str, arguments: &[&str]) -> BTreeMap<String, i64> {
    let mut order = order("reach", name, 65534);
    guest(&mut order, "looks", &["-O1"]);
    order
        .spec
        .argv
        .extend(arguments.iter().map(|word| (*word).into()));
    let found = population(&order).surplus;
    found.expect("a short program").by_module
}

#[test]
fn who_reads_its_map_executes_more_than_bare() {
    let found = surplus("looks", &["x"]);
    assert!(found.values().any(|more| *more > 100), "{found:?}");
}

#[test]
fn who_does_not_executes_what_a_bare_run_does() {
    let found = surplus("looks-elsewhere", &[]);
    assert!(found.is_empty(), "{found:?}");
}
