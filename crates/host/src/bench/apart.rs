//! What a process of its own costs: the same iterations of a component in the host's process, and beside it.
//!
//! Both are behind stubs and have one body, so the difference is the transport's: two switches between processes, two messages, two checksums.

use std::path::Path;

use steadfast_restart::{Component, Edge, Host};

use super::http;
use super::report::Report;
use super::tools::{LOCKS, handle, hosted, measured, plain, turns};
use super::workloads::{grant, open_write, ping_pong};
use crate::load;
use crate::told::Told;

/// The component in the host's process, and in one of its own.
fn both(folder: &Path, name: &str) -> Result<[(Host, Edge); 2], Told> {
    let inside = hosted(folder, name, plain())?;
    let mut beside = Host::new(true)?;
    let component = Component {
        process: Some(load::own_process()),
        ..measured(folder, name, plain())?
    };
    beside.add(component, None)?;
    let edges = [
        inside.edge("bench", name, &[])?,
        beside.edge("bench", name, &[])?,
    ];
    let [one, other] = edges;
    Ok([(inside, one), (beside, other)])
}

fn put(report: &mut Report, key: &str, what: &str, [inside, beside]: [f64; 2]) {
    let key = format!("process.{key}");
    let told = format!("{what}: the component in the host's process");
    report.put(&format!("{key}.inside"), &told, "µs", inside);
    let told = format!("{what}: in a process of its own");
    report.put(&key, &told, "µs", beside);
    let told = format!("{what}: a process of its own over the host's");
    report.put(&format!("{key}.over"), &told, "", beside / inside);
}

/// One call that changes an object.
pub(super) fn calls(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let [(_one, inside), (_other, beside)] = both(folder, "lock")?;
    let iteration = |edge: &Edge| -> Result<_, Told> {
        let edge = edge.clone();
        let method = |name: &str| edge.function(&format!("{LOCKS}{name}"));
        let take = method("[method]lock.take")?;
        let lock = handle(edge.call(method("[constructor]lock")?, &[])?)?;
        Ok(move || -> Result<(), Told> {
            edge.call(take, &[lock.into(), 7u32.into()])?;
            Ok(())
        })
    };
    let took = turns("process.call", iteration(&inside)?, iteration(&beside)?)?;
    put(report, "call", "a protected call", took);
    Ok(())
}

/// The paper's workloads.
pub(super) fn workloads(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let [(_one, inside), (_other, beside)] = both(folder, "scheduler")?;
    let took = turns(
        "process.ping-pong",
        ping_pong(&inside)?,
        ping_pong(&beside)?,
    )?;
    put(
        report,
        "ping-pong",
        "wake the other thread, wait, pick",
        took,
    );
    let [(_one, inside), (_other, beside)] = both(folder, "memory")?;
    let took = turns("process.page", grant(&inside)?, grant(&beside)?)?;
    put(
        report,
        "page",
        "grant a page, alias it three times, revoke it",
        took,
    );
    let [(_one, inside), (_other, beside)] = both(folder, "fs")?;
    let took = turns("process.file", open_write(&inside)?, open_write(&beside)?)?;
    put(report, "file", "open, write and read 64 bytes, close", took);
    Ok(())
}

/// A request over HTTP: three components.
pub(super) fn requests(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let took = http::apart(folder)?;
    put(report, "http", "a request for a value over HTTP", took);
    Ok(())
}
