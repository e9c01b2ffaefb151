//! The reachable share is one of what the processor executes, not of what the injector has found.

mod common;

use std::process::Command;

use common::{clean, guest, order};
use steadfast_inject::campaign::{Field, Order};

/// Share of the running time in code without a counter.
fn unknown_share(order: &Order) -> f64 {
    let mut field = Field::open(order).expect("a target");
    let reach = field.reach().expect("a sample");
    reach.unknown_share().expect("moments were met")
}

#[test]
fn code_without_unwind_entry_or_symbol_is_seen() {
    let mut order = order("reach", "hidden", 65534);
    guest(&mut order, "hidden", &["-O1"]);
    let share = unknown_share(&order);
    assert!(share > 0.8, "nearly all of its time: {share}");
    clean(&order);
}

#[test]
fn code_that_is_counted_is_not_called_unknown() {
    let mut order = order("reach", "shown", 65534);
    guest(&mut order, "hidden", &["-O1"]);
    order.spec.argv.push("counted".into());
    let share = unknown_share(&order);
    assert!(share < 0.2, "none but the loader's constructors: {share}");
    clean(&order);
}

#[test]
fn a_constructor_of_a_library_is_seen() {
    let mut order = order("reach", "busy", 65534);
    let library = order.scratch.join("libbusy.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/busy.c");
    let built = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-DLIBRARY", "-o"])
        .arg(&library)
        .arg(source)
        .status()
        .expect("a C compiler");
    assert!(built.success());
    let dir = order.scratch.display().to_string();
    guest(
        &mut order,
        "busy",
        &[
            "-O1",
            &format!("-Wl,-rpath,{dir}"),
            &format!("-L{dir}"),
            "-Wl,--no-as-needed,-lbusy",
        ],
    );
    let share = unknown_share(&order);
    assert!(share > 0.8, "nearly all of its time: {share}");
    clean(&order);
}
