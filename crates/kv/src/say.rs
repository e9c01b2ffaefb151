//! The only place that prints what a running replica or group has to say: one line each, on standard error, or as JSON on standard output.
//!
//! ```text
//! line, error ──► queue ──► thread ──► pipe, file, terminal
//! ```
//!
//! Invariants
//!  1. Nobody who has something to say waits for who should read it. What the queue has no room for is dropped, and counted.
//!  2. A process that ends by `exit` has written what was said before, if it can be written within a second.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use crate::news::News;

/// Lines that wait: a pipe holds some 400 of them, as a repair says it.
const WAITING: usize = 4096;
/// How long an end waits for them.
const LAST: Duration = Duration::from_secs(1);

enum Said {
    Out(String),
    Err(String),
    /// Everything before it is written.
    All(SyncSender<()>),
}

static QUEUE: OnceLock<Option<SyncSender<Said>>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);
static LOST: OnceLock<std::io::Error> = OnceLock::new();

/// The way to the thread that writes; none where there can be no thread.
fn queue() -> Option<&'static SyncSender<Said>> {
    let started = QUEUE.get_or_init(|| {
        let (queue, lines) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("say".to_owned())
            .spawn(move || {
                for said in lines {
                    write(said);
                }
            })
            .ok()
            .map(|_| queue)
    });
    started.as_ref()
}

/// There is nobody left to tell if this fails.
fn write(said: Said) {
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    if dropped > 0 {
        let _ = writeln!(
            std::io::stderr(),
            "steadfast kv: {dropped} lines were dropped: nobody read them"
        );
    }
    match said {
        Said::Out(line) => {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
        Said::Err(line) => drop(writeln!(std::io::stderr(), "steadfast kv: {line}")),
        Said::All(written) => drop(written.send(())),
    }
}

fn say(said: Said) {
    match queue() {
        Some(queue) => {
            if queue.try_send(said).is_err() {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
        None => write(said),
    }
}

/// One event, as a sentence or as an object. An event without a sentence is for programs only.
pub(crate) fn line(json: bool, text: &str, news: &News) {
    if !json {
        sentence(text);
    } else if let Ok(object) = serde_json::to_string(news) {
        say(Said::Out(object));
    }
}

/// What is for a person alone.
pub(crate) fn sentence(text: &str) {
    if !text.is_empty() {
        say(Said::Err(text.to_owned()));
    }
}

/// An error with what to do about it.
pub(crate) fn error(text: &str) {
    say(Said::Err(text.to_owned()));
}

/// What a command was asked for: all of it, however slowly it is read.
pub(crate) fn result(text: &str) {
    finish();
    let mut out = std::io::stdout().lock();
    if let Err(why) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        // The first reason is the one.
        let _ = LOST.set(why);
    }
}

/// Why a result was not written. Whoever has closed a pipe has seen what it wanted.
pub(crate) fn lost() -> Option<&'static std::io::Error> {
    LOST.get()
}

/// Waits until what was said is written.
pub(crate) fn finish() {
    let Some(Some(queue)) = QUEUE.get() else {
        return;
    };
    let (written, all) = sync_channel(1);
    if queue.try_send(Said::All(written)).is_ok() {
        let _ = all.recv_timeout(LAST);
    }
}

/// Ends the process.
pub(crate) fn exit(code: steadfast_contract::exit::Own) -> ! {
    finish();
    std::process::exit(code.code().into());
}
