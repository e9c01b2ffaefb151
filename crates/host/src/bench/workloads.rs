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

use steadfast_restart::{Bare, CallError, Edge, Value};

use super::report::Report;
use super::tools::{BATCH, FILES, handle, hosted, in_turns, measured, plain, put};
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

/// Who runs and who is woken, in turns, and the time.
#[derive(Default)]
struct Turn {
    this: Cell<u64>,
}

impl Turn {
    fn next(&self) -> (usize, usize, u64) {
        let this = self.this.get();
        self.this.set(this + 1);
        let own = usize::from(this % 2 == 1);
        (own, 1 - own, this + 3)
    }
}

/// The calls of both threads.
fn thread_calls(edge: &Edge) -> Result<[usize; 4], CallError> {
    let method = |name: &str| edge.function(&format!("{THREADS}{name}"));
    Ok([
        method("[constructor]thread")?,
        method("[method]thread.ready")?,
        method("[method]thread.block")?,
        method("pick")?,
    ])
}

fn thread_args(id: u64) -> [Value; 3] {
    [id.into(), 5u32.into(), id.into()]
}

/// An iteration of two threads that wake each other, behind stubs.
pub(super) fn ping_pong(edge: &Edge) -> Result<impl FnMut() -> Result<(), Told> + use<'_>, Told> {
    let [make, ready, block, pick] = thread_calls(edge)?;
    let threads = [
        handle(edge.call(make, &thread_args(0))?)?,
        handle(edge.call(make, &thread_args(1))?)?,
    ];
    let turn = Turn::default();
    Ok(move || {
        let (own, woken, now) = turn.next();
        edge.call(ready, &[threads[woken].into(), now.into()])?;
        must(
            edge.call(block, &[threads[own].into()])?,
            &Value::Bool(true),
        )?;
        must(edge.call(pick, &[])?, &chosen(woken as u64))
    })
}

/// Two threads that wake each other.
pub(super) fn threads(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let host = hosted(folder, "scheduler", plain())?;
    let edge = host.edge("bench", "scheduler", &[])?;
    let mut other = Bare::new(host.engine(), &measured(folder, "scheduler", plain())?)?;
    let [make, ready, block, pick] = thread_calls(&edge)?;
    let bare_threads = [
        handle(other.call(make, &thread_args(0)).map_err(failed)?)?,
        handle(other.call(make, &thread_args(1)).map_err(failed)?)?,
    ];
    let turn = Turn::default();
    let bare = || {
        let (own, woken, now) = turn.next();
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
    let what = "wake the other thread, wait, pick";
    in_turns(report, "ping-pong", what, bare, ping_pong(&edge)?)?;
    for _ in 0..BATCH {
        edge.reset()?;
        edge.call(pick, &[])?;
    }
    let what = "a thread comes back, ready or waiting";
    put(report, "object.thread", what, edge.stats()?.rebuild_ns)
}

fn whole(found: Option<Value>) -> Result<(), Told> {
    match &found {
        Some(Value::List(places)) if places.len() == 1 + ALIASES as usize => Ok(()),
        _ => Err(anyhow::anyhow!("four mappings were due, found {found:?}").into()),
    }
}

fn granted() -> [Value; 3] {
    [7u32.into(), 0u32.into(), 4096u64.into()]
}

/// An iteration of grant, three aliases and revoke, behind stubs.
pub(super) fn grant(edge: &Edge) -> Result<impl FnMut() -> Result<(), Told> + use<'_>, Told> {
    let method = |name: &str| edge.function(&format!("{PAGES}{name}"));
    let (grant, alias) = (method("[constructor]page")?, method("[method]page.alias")?);
    let revoke = method("revoke")?;
    Ok(move || {
        let page = handle(edge.call(grant, &granted())?)?;
        for space in 1..=ALIASES {
            edge.call(alias, &[page.into(), space.into(), 4096u64.into()])?;
        }
        whole(edge.call(revoke, &[page.into()])?)
    })
}

/// Grant, three aliases, revoke.
pub(super) fn pages(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let host = hosted(folder, "memory", plain())?;
    let edge = host.edge("bench", "memory", &[])?;
    let mut other = Bare::new(host.engine(), &measured(folder, "memory", plain())?)?;
    let method = |name: &str| edge.function(&format!("{PAGES}{name}"));
    let (grant, alias) = (method("[constructor]page")?, method("[method]page.alias")?);
    let (mappings, revoke) = (method("[method]page.mappings")?, method("revoke")?);
    let bare = || {
        let page = handle(other.call(grant, &granted()).map_err(failed)?)?;
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
    let what = "grant a page, alias it three times, revoke it";
    in_turns(report, "page", what, bare, self::grant(&edge)?)?;
    let page = handle(edge.call(grant, &granted())?)?;
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

/// An iteration of open, write, read and close, behind stubs.
pub(super) fn open_write(edge: &Edge) -> Result<impl FnMut() -> Result<(), Told> + use<'_>, Told> {
    let method = |name: &str| edge.function(&format!("{FILES}{name}"));
    let open = method("[static]file.open")?;
    let (write, read) = (method("[method]file.write")?, method("[method]file.read")?);
    let name = [Value::String("file".into()), Value::Bool(true)];
    let data: Value = [9_u8; 64].as_slice().into();
    Ok(move || {
        let file = handle(edge.call(open, &name)?)?;
        edge.call(write, &[file.into(), 0u64.into(), data.clone()])?;
        edge.call(read, &[file.into(), 0u64.into(), 64u32.into()])?;
        Ok(edge.discard(file)?)
    })
}
