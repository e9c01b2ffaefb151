//! A lock that outlives the failures of its component: the library in a program of its own.
//!
//! cargo run --manifest-path crates/host/Cargo.toml -p steadfast-restart --example lock -- target/release/components/lock.cwasm

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::path::Path;

use steadfast_restart::{Component, Host, Value};

const LOCKS: &str = "steadfast:lock/locks@0.1.0#";

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args()
        .nth(1)
        .ok_or("needs lock.cwasm, found no argument")?;
    let mut host = Host::new(true)?; // true: with the signal pad
    host.add(Component::beside(Path::new(&image))?, None)?; // lock.wit and lock.recover.toml lie there
    let edge = host.edge("client", "lock", &[])?; // no edge, no call
    let lock = edge
        .invoke(&format!("{LOCKS}[constructor]lock"), &[])?
        .ok_or("no lock")?;
    edge.invoke(
        &format!("{LOCKS}[method]lock.take"),
        &[lock.clone(), 7u32.into()],
    )?;
    edge.reset()?; // as a failure at this moment would
    let holder = edge.invoke(&format!("{LOCKS}[method]lock.holder"), &[lock])?;
    assert_eq!(holder, Some(Value::Option(Some(Box::new(Value::U32(7))))));
    println!("held by 7, after a reset");
    Ok(())
}
