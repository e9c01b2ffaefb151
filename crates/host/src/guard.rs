//! `--keep=own`: a process that holds the memory of what is kept, and starts the host again when it was killed.
//!
//! ```text
//! start ──► the host runs ──► it exits: so do we, with its status
//!   ▲              └────────► killed, or a panic: wait 100 ms, twice as long each time ──┐
//!   └────────────────────────────────────────────────────────────────────────────────────┘  STARTS times in WINDOW, then give up
//! ```
//!
//! Invariants
//!  1. It does nothing but wait: no component, no socket, no second thread.
//!  2. The host dies with it: two hosts never share the memory.
//!
//! Not covered: its own death. `--keep=manager` has systemd in its place.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use steadfast_contract::exit::Own;
use steadfast_restart::keep;
use steadfast_sys::shared::Shared;
use steadfast_sys::{child, descriptor, signals};

use crate::app::{App, SCRIPT};
use crate::keep::{GUARD, KEPT, areas};
use crate::told::Told;

/// So many in [`WINDOW`], the first included.
const STARTS: usize = 6;
const WINDOW: Duration = Duration::from_secs(60);
const BACK_OFF: Duration = Duration::from_millis(100);
/// Between two looks, where a signal was lost.
const LOOK: Duration = Duration::from_secs(1);
/// Of a Rust program whose main thread panicked.
const PANIC: i32 = 101;

const ENDING: [i32; 2] = [libc::SIGTERM, libc::SIGINT];
const HEARD: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD];

fn told(error: std::io::Error) -> Told {
    let what = anyhow::Error::new(error).context("the host cannot be started again");
    Told::setup(what, "see the cause")
}

/// Memory that every host of this guard has.
struct Guard {
    memories: Vec<(String, [Shared; 2])>,
    /// When it began, of those within the window.
    starts: Vec<Instant>,
    /// Whether it was told to end.
    ending: bool,
}

/// Runs this command again as a child, as often as it is killed.
pub(crate) fn run(app: &App) -> Result<ExitCode, Told> {
    // Before there is a child that could end.
    signals::block(&HEARD);
    let names = app.names().chain([SCRIPT]);
    let memories = names.map(|name| Ok((name.to_owned(), areas(name)?)));
    let mut guard = Guard {
        memories: memories.collect::<Result<_, Told>>()?,
        starts: Vec::new(),
        ending: false,
    };
    for area in guard.memories.iter().flat_map(|(_, areas)| areas) {
        descriptor::hand_down(area.as_fd()).map_err(told)?;
    }
    loop {
        let status = guard.one()?;
        if let Some(code) = guard.end(status) {
            return Ok(code);
        }
    }
}

impl Guard {
    /// One host, to its end.
    fn one(&mut self) -> Result<ExitStatus, Told> {
        self.starts.push(Instant::now());
        let kept = self.memories.iter().flat_map(|(name, areas)| {
            areas
                .iter()
                .map(move |area| format!("{}={name}", area.fd()))
        });
        let kept: Vec<_> = kept.collect();
        let mut host = Command::new("/proc/self/exe");
        host.args(std::env::args_os().skip(1));
        host.env(GUARD, std::process::id().to_string())
            .env(KEPT, kept.join(":"));
        let mut host = host.spawn().map_err(told)?;
        self.wait(&mut host)
    }

    fn wait(&mut self, host: &mut Child) -> Result<ExitStatus, Told> {
        loop {
            if let Some(status) = host.try_wait().map_err(told)? {
                return Ok(status);
            }
            let heard = signals::within(&HEARD, LOOK).map(|taken| taken.signal);
            if let Some(signal) = heard.filter(|signal| ENDING.contains(signal)) {
                self.ending = true;
                child::kill(host.id().cast_signed(), signal);
            }
        }
    }

    /// How this process ends after its host has. None where another one is to start.
    fn end(&mut self, status: ExitStatus) -> Option<ExitCode> {
        let how = match (status.signal(), status.code()) {
            (None, Some(code)) if code != PANIC => {
                return Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
            }
            (Some(signal), _) => format!("was killed by signal {signal}"),
            _ => "has panicked".to_owned(),
        };
        self.starts.retain(|start| start.elapsed() < WINDOW);
        let starts = self.starts.len();
        let wait = BACK_OFF * (1 << starts.saturating_sub(1).min(STARTS));
        if self.ending {
            eprintln!("steadfast host: it {how} on its way to the end");
        } else if starts >= STARTS {
            eprintln!(
                "steadfast host: it {how}, {starts} times in {} s; given up",
                WINDOW.as_secs()
            );
        } else {
            eprintln!(
                "steadfast host: it {how} and starts again in {} ms, with the objects that it had",
                wait.as_millis()
            );
            // A signal that ends it ends the wait.
            signals::within(&ENDING, wait)?;
        }
        self.memories
            .iter()
            .for_each(|(_, areas)| keep::forget(areas));
        Some(ExitCode::from(
            status.signal().map_or(Own::Bug.code(), |signal| {
                u8::try_from(128 + signal).unwrap_or(u8::MAX)
            }),
        ))
    }
}
