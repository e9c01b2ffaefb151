//! `--keep`: what outlives a kill of the host. Slot tables lie in sealed memory that the service manager holds, or a guard of our own
//! ([`crate::guard`]); the next process goes on with them.
//!
//! Invariants
//!  1. The script runs once: a process that goes on has its objects by their names. Where the last one died before the script's end, all
//!     begin empty, and it runs again.
//!  2. Memory of another application, or of other edges, is forgotten, and that is told.
//!
//! Not covered: connections, which clients make again, and jobs under way.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use serde_json::json;
use steadfast_restart::keep::{self, BYTES, Kept};
use steadfast_restart::{Handle, Host};
use steadfast_sys::child;
use steadfast_sys::descriptor;
use steadfast_sys::manager::{self, Manager};
use steadfast_sys::shared::Shared;

use crate::app::{App, SCRIPT};
use crate::events::Events;
use crate::told::Told;

/// Who holds the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Keep {
    /// A process of our own, which starts the host again
    Own,
    /// systemd, in the service's descriptor store
    Manager,
}

/// What the guard tells the host: its own number, and NUMBER=NAME of each descriptor.
pub(crate) const GUARD: &str = "STEADFAST_HOST_GUARD";
pub(crate) const KEPT: &str = "STEADFAST_HOST_KEPT";

type Areas = [Shared; 2];
pub(crate) type Named = BTreeMap<String, Handle>;

/// Memory of an application.
#[derive(Debug)]
pub(crate) struct Keeping {
    app: String,
    components: Vec<(String, Areas)>,
    script: Kept,
}

fn told(error: io::Error) -> Told {
    let what = anyhow::Error::new(error).context("--keep needs memory that the next process has");
    Told::setup(
        what,
        "see the cause; without --keep a kill loses all objects",
    )
}

/// New memory under a name.
pub(crate) fn areas(name: &str) -> Result<Areas, Told> {
    if !name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    {
        let what =
            format!("--keep needs names of ASCII letters, digits, '.', '_' and '-', found {name}");
        return Err(Told::setup(
            anyhow::anyhow!(what),
            "another name of the component",
        ));
    }
    let area = || Shared::sealed(c"steadfast-keep", BYTES).map_err(told);
    Ok([area()?, area()?])
}

/// Whether this process was started by a guard.
pub(crate) fn is_guarded() -> bool {
    let guard = std::env::var(GUARD).ok().and_then(|text| text.parse().ok());
    guard == Some(child::parent())
}

/// Descriptors that the guard has handed down.
fn handed() -> io::Result<Vec<(String, File)>> {
    child::die_with(child::parent())?;
    let text = std::env::var(KEPT).unwrap_or_default();
    let each = text.split(':').filter_map(|one| one.split_once('='));
    each.map(|(fd, name)| {
        let fd = fd.parse().map_err(io::Error::other)?;
        Ok((name.to_owned(), descriptor::inherited(fd)?))
    })
    .collect()
}

/// The memory of each name that was given.
fn pairs(given: Vec<(String, File)>) -> Result<BTreeMap<String, Areas>, Told> {
    let mut all: BTreeMap<String, Vec<Shared>> = BTreeMap::new();
    for (name, file) in given {
        let area = Shared::of(file).map_err(told)?;
        all.entry(name).or_default().push(area);
    }
    // One of two is no pair: the process died while it gave them away.
    let pairs = all
        .into_iter()
        .filter_map(|(name, areas)| Some((name, areas.try_into().ok()?)));
    Ok(pairs.collect())
}

/// That the manager has room. One before systemd 254 does not say.
fn check_room(needed: usize) -> Result<(), Told> {
    let fix = format!("FileDescriptorStoreMax={needed} in the unit");
    match std::env::var("FDSTORE")
        .ok()
        .and_then(|text| text.parse::<usize>().ok())
    {
        Some(found) if found < needed => {
            let what = format!(
                "--keep=manager needs room for {needed} descriptors, the manager has {found}"
            );
            return Err(Told::setup(anyhow::anyhow!(what), fix));
        }
        Some(_) => {}
        None => eprintln!(
            "steadfast host: the manager does not say whether it keeps descriptors (systemd 254 does); it needs {fix}"
        ),
    }
    Ok(())
}

impl Keeping {
    /// Memory of the last process, or new memory that the next one will have.
    pub(crate) fn open(keep: Keep, app: &App) -> Result<Self, Told> {
        let given = match keep {
            Keep::Own => handed(),
            Keep::Manager => manager::given(),
        };
        let mut given = pairs(given.map_err(told)?)?;
        let names: Vec<_> = app.names().chain([SCRIPT]).collect();
        if keep == Keep::Manager {
            let manager = Manager::from_environment();
            if !manager.is_there() {
                return Err(Told::setup(
                    anyhow::anyhow!(
                        "--keep=manager needs a service manager, NOTIFY_SOCKET names none"
                    ),
                    "a unit with Type=notify, or --keep=own",
                ));
            }
            check_room(2 * names.len())?;
            for name in names
                .iter()
                .filter(|name| !given.contains_key(**name))
                .copied()
                .collect::<Vec<_>>()
            {
                let areas = areas(name)?;
                let fds = [areas[0].as_fd(), areas[1].as_fd()];
                manager.keep(name, &fds).map_err(told)?;
                given.insert(name.to_owned(), areas);
            }
        }
        let mut of = |name: &str| {
            given
                .remove(name)
                .ok_or_else(|| told(io::Error::other(format!("there is none for {name}"))))
        };
        let components = app.names().map(|name| Ok((name.to_owned(), of(name)?)));
        let components = components.collect::<Result<_, Told>>()?;
        let shape = app.shape();
        Ok(Self {
            script: Kept::new(of(SCRIPT)?, &shape, SCRIPT),
            app: shape,
            components,
        })
    }

    /// Goes on where the last process ended: objects that the script has named. None where the script has to run.
    pub(crate) fn begin(&mut self, host: &Host, events: &Events) -> Option<Named> {
        let done = self.script.entries();
        let named = done.as_ref().ok().and_then(|all| named(all.first()?));
        let components = std::mem::take(&mut self.components);
        if named.is_none() {
            components.iter().for_each(|(_, areas)| keep::forget(areas));
        }
        let damaged = done.as_ref().err().map(ToString::to_string);
        let kept = host.keep(&self.app, components);
        let refused = damaged.or(kept.as_ref().err().map(ToString::to_string));
        if let Some(found) = &refused {
            eprintln!("steadfast host: objects of the last process are lost: {found}");
        }
        let named = named.filter(|_| matches!(kept, Ok(true)));
        if named.is_none() {
            self.script.forget();
        }
        events.write(
            "host_kept",
            json!({ "restored": named.is_some(), "refused": refused }),
        );
        named
    }

    /// The script has ended.
    pub(crate) fn scripted(&mut self, named: &Named) {
        let plain = named
            .iter()
            .map(|(name, of)| (name, (of.index, of.generation)));
        let plain: BTreeMap<_, _> = plain.collect();
        let text = serde_json::to_vec(&plain).unwrap_or_default();
        if self.script.begin(&text).is_err() {
            eprintln!(
                "steadfast host: the script names too many objects for --keep: a kill loses all of them"
            );
        }
    }
}

fn named(bytes: &[u8]) -> Option<Named> {
    let plain: BTreeMap<String, (u32, u32)> = serde_json::from_slice(bytes).ok()?;
    let handles = plain
        .into_iter()
        .map(|(name, (index, generation))| (name, Handle { index, generation }));
    Some(handles.collect())
}
