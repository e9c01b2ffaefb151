//! The paper's workloads over threads and pages: what an iteration costs with and without stubs, and how an object comes back.
//!
//! | Workload | Iteration |
//! |---|---|
//! | ping-pong | a thread wakes the other one, waits, and the scheduler picks who runs next |
//! | page | a page is granted, aliased three times, and revoked |
//!
//! Threads do not change here: a switch costs more than the calls, and would hide what stubs add.

use std::cell::Cell;
use std::path::Path;

use steadfast_restart::{Bare, Value};

use super::report::Report;
use super::tools::{BATCH, handle, hosted, in_turns, measured, plain, put};
use crate::told::Told;

const THREADS: &str = "steadfast:scheduler/threads@0.1.0#";
const PAGES: &str = "steadfast:memory/pages@0.1.0#";
const ALIASES: u32 = 3;

fn failed(failure: steadfast_restart::Failure) -> Told {
    anyhow::anyhow!("without stubs: {failure:?}").into()
}

fn must(found: Option<Value>, right: &Value) -> Result<(), Told> {
    match found.as_ref() == Some(right) {
        true => Ok(()),
        false => Err(anyhow::anyhow!("{right:?} was due, found {found:?}").into()),
    }
}

fn chosen(id: u64) -> Value {
    Value::Option(Some(Box::new(id.into())))
}

/// Two threads that wake each other.
pub(super) fn threads(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let host = hosted(folder, "scheduler", plain())?;
    let edge = host.edge("bench", "scheduler", &[])?;
    let mut other = Bare::new(host.engine(), &measured(folder, "scheduler", plain())?)?;
    let method = |name: &str| edge.function(&format!("{THREADS}{name}"));
    let make = method("[constructor]thread")?;
    let (ready, block) = (
        method("[method]thread.ready")?,
        method("[method]thread.block")?,
    );
    let pick = method("pick")?;
    let args = |id: u64| [id.into(), 5u32.into(), id.into()];
    let bare_threads = [
        handle(other.call(make, &args(0)).map_err(failed)?)?,
        handle(other.call(make, &args(1)).map_err(failed)?)?,
    ];
    let tracked_threads = [
        handle(edge.call(make, &args(0))?)?,
        handle(edge.call(make, &args(1))?)?,
    ];
    let now = Cell::new(2u64);
    let next = |turn: &Cell<u64>| {
        now.set(now.get() + 1);
        let this = turn.get();
        turn.set(this + 1);
        // Who runs, and who is woken.
        let own = usize::from(this % 2 == 1);
        (own, 1 - own, now.get())
    };
    let (bare_turn, tracked_turn) = (Cell::new(0), Cell::new(0));
    let bare = || {
        let (own, woken, now) = next(&bare_turn);
        let args = [bare_threads[woken].into(), now.into()];
        other.call(ready, &args).map_err(failed)?;
        let args = [bare_threads[own].into()];
        must(
            other.call(block, &args).map_err(failed)?,
            &Value::Bool(true),
        )?;
        must(
            other.call(pick, &[]).map_err(failed)?,
            &chosen(woken as u64),
        )
    };
    let tracked = || {
        let (own, woken, now) = next(&tracked_turn);
        edge.call(ready, &[tracked_threads[woken].into(), now.into()])?;
        must(
            edge.call(block, &[tracked_threads[own].into()])?,
            &Value::Bool(true),
        )?;
        must(edge.call(pick, &[])?, &chosen(woken as u64))
    };
    let what = "wake the other thread, wait, pick";
    in_turns(report, "ping-pong", what, bare, tracked)?;
    for _ in 0..BATCH {
        edge.reset()?;
        edge.call(pick, &[])?;
    }
    let what = "a thread comes back, ready or waiting";
    put(report, "object.thread", what, edge.stats()?.rebuild_ns)
}

/// Grant, three aliases, revoke.
pub(super) fn pages(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let host = hosted(folder, "memory", plain())?;
    let edge = host.edge("bench", "memory", &[])?;
    let mut other = Bare::new(host.engine(), &measured(folder, "memory", plain())?)?;
    let method = |name: &str| edge.function(&format!("{PAGES}{name}"));
    let (grant, alias) = (method("[constructor]page")?, method("[method]page.alias")?);
    let (mappings, revoke) = (method("[method]page.mappings")?, method("revoke")?);
    let whole = |found: Option<Value>| match &found {
        Some(Value::List(places)) if places.len() == 1 + ALIASES as usize => Ok(()),
        _ => Err(Told::from(anyhow::anyhow!(
            "four mappings were due, found {found:?}"
        ))),
    };
    let granted = [7u32.into(), 0u32.into(), 4096u64.into()];
    let bare = || {
        let page = handle(other.call(grant, &granted).map_err(failed)?)?;
        let mut aliases = Vec::new();
        for space in 1..=ALIASES {
            let args = [page.into(), space.into(), 4096u64.into()];
            aliases.push(handle(other.call(alias, &args).map_err(failed)?)?);
        }
        whole(other.call(revoke, &[page.into()]).map_err(failed)?)?;
        other.forget(page);
        // The stubs do this as part of the revocation.
        aliases
            .into_iter()
            .rev()
            .try_for_each(|alias| other.discard(alias).map_err(failed))
    };
    let tracked = || {
        let page = handle(edge.call(grant, &granted)?)?;
        for space in 1..=ALIASES {
            edge.call(alias, &[page.into(), space.into(), 4096u64.into()])?;
        }
        whole(edge.call(revoke, &[page.into()])?)
    };
    let what = "grant a page, alias it three times, revoke it";
    in_turns(report, "page", what, bare, tracked)?;
    let page = handle(edge.call(grant, &granted)?)?;
    for space in 1..=ALIASES {
        edge.call(alias, &[page.into(), space.into(), 4096u64.into()])?;
    }
    let before = edge.stats()?.rebuild_ns.len();
    for _ in 0..BATCH {
        edge.reset()?;
        whole(edge.call(mappings, &[page.into()])?)?;
    }
    let took = &edge.stats()?.rebuild_ns[before..];
    let took = took.chunks_exact(1 + ALIASES as usize);
    let what = "a page with three aliases comes back, all four mappings";
    put(
        report,
        "object.page",
        what,
        took.map(|four| four.iter().sum()),
    )
}
