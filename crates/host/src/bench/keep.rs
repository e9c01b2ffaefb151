//! What `--keep` adds to a call that changes something, and how long the next process takes for each object.

use std::path::Path;
use std::time::Instant;

use steadfast_restart::{Edge, Handle, Host};
use steadfast_sys::shared::Shared;

use super::report::Report;
use super::tools::{LOCKS, handle, hosted, ns, plain, put};
use crate::keep;
use crate::told::Told;

/// Objects that the next process goes on with.
const OBJECTS: u32 = 1000;
/// Calls of one batch, in pairs; batches of a round.
const PAIRS: u64 = 300;
const TURNS: usize = 7;

struct Locks {
    _host: Host,
    edge: Edge,
    make: usize,
    take: usize,
    release: usize,
}

/// A host of locks, which keeps what it must know in this memory.
fn locks(folder: &Path, memory: Option<[Shared; 2]>) -> Result<Locks, Told> {
    let host = hosted(folder, "lock", plain())?;
    let edge = host.edge("bench", "lock", &[])?;
    if let Some(memory) = memory {
        host.keep("bench", vec![("lock".into(), memory)])?;
    }
    let method = |name: &str| edge.function(&format!("{LOCKS}{name}"));
    let (make, take) = (method("[constructor]lock")?, method("[method]lock.take")?);
    let release = method("[method]lock.release")?;
    Ok(Locks {
        _host: host,
        edge,
        make,
        take,
        release,
    })
}

impl Locks {
    fn lock(&self) -> Result<Handle, Told> {
        handle(self.edge.call(self.make, &[])?)
    }
}

fn again(areas: &[Shared; 2]) -> Result<[Shared; 2], Told> {
    let one = |area: &Shared| {
        let fd = area.as_fd().try_clone_to_owned();
        fd.and_then(|fd| Shared::of(fd.into()))
            .map_err(anyhow::Error::new)
    };
    Ok([one(&areas[0])?, one(&areas[1])?])
}

pub(super) fn kept(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let areas = keep::areas("bench")?;
    let hosts = [locks(folder, None)?, locks(folder, Some(again(&areas)?))?];
    let objects = [hosts[0].lock()?, hosts[1].lock()?];
    let mut took = [Vec::new(), Vec::new()];
    // The first turn warms up.
    for turn in 0..=TURNS {
        for ((host, lock), took) in hosts.iter().zip(objects).zip(&mut took) {
            let begin = Instant::now();
            for _ in 0..PAIRS {
                let args = [lock.into(), 7u32.into()];
                host.edge.call(host.take, &args)?;
                host.edge.call(host.release, &args)?;
            }
            if turn > 0 {
                took.push(ns(begin) / (2 * PAIRS));
            }
        }
    }
    let [without, with] = took;
    put(
        report,
        "keep.without",
        "a call that changes a lock",
        without,
    )?;
    put(report, "keep.with", "the same with --keep", with)?;
    if let (Some(with), Some(without)) = (report.last("keep.with"), report.last("keep.without")) {
        let what = "a call that changes a lock, added by --keep";
        report.put("keep.call", what, "µs", with - without);
    }
    for owner in 0..OBJECTS {
        let lock = hosts[1].lock()?;
        let args = [lock.into(), owner.into()];
        hosts[1].edge.call(hosts[1].take, &args)?;
    }
    drop(hosts);
    let host = hosted(folder, "lock", plain())?;
    let _edge = host.edge("bench", "lock", &[])?;
    let begin = Instant::now();
    if !host.keep("bench", vec![("lock".into(), areas)])? {
        return Err(anyhow::anyhow!("the next process found nothing").into());
    }
    // Two entries for each of the objects, and those of the calls before.
    put(
        report,
        "keep.object",
        "an object of 1,000, until the next process knows it",
        vec![ns(begin) / u64::from(OBJECTS)],
    )
}
