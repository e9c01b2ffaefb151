//! Status: what a site is doing, for people, programs and Prometheus, and how `pair status` and `pair top` ask for it.
//!
//! A site answers on a socket in the directory of its ledger (`status`), and with `--http` on a port of its own. Both only
//! read; nothing can be changed here.
//!
//! | Path of `--http` | 200 | 503 |
//! |---|---|---|
//! | `/metrics` | always | |
//! | `/healthz` | the thread that decides answers | it has not come round for ten seconds |
//! | `/readyz` | both sites run, or this one goes on alone | it waits for the peer or for the witness |
//!
//! Invariants
//!  1. Whoever asks slowly, or for ever, holds up nothing but this.
//!  2. It answers while the files are held, for as long as a program stands for a site that joins: with the counts of the answer before.
//!
//! Not covered: TLS; connections that stay open.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_contract::monitor::{self, BUSY, Kind, Metrics, OK, UNKNOWN};
use steadfast_replica::site::{Part, Site};
use steadfast_sys::manager::Manager;
use steadfast_sys::{child, procfs, signals};

use crate::board::{Board, State};
use crate::cli::{self, Side};
use crate::control;
use crate::error::PairError;
use crate::files::Files;
use crate::say::say;

/// For a whole exchange, and for the answer to `pair status`.
const PATIENCE: Duration = Duration::from_secs(2);
/// Files that are held for longer than this are held by somebody who waits for the other site.
const HELD: Duration = Duration::from_millis(300);
/// The thread that decides comes round every 20 ms; a repair may take this long.
const HUNG: Duration = Duration::from_secs(10);

/// What one site answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Status {
    /// A is the primary, B the secondary.
    pub(crate) site: char,
    pub(crate) state: State,
    pub(crate) command: Vec<String>,
    pub(crate) pid: i32,
    pub(crate) run: String,
    pub(crate) witness: String,
    /// How often the witness has given the program to this site.
    pub(crate) generation: u64,
    pub(crate) seconds: u64,
    pub(crate) events: u64,
    /// Events that this site has come to and the other one has not done.
    pub(crate) events_open: u64,
    /// For how long the oldest of these has been open, as far as anybody has looked.
    pub(crate) lag_ms: u64,
    /// Since the last word of the peer.
    pub(crate) silent_ms: u64,
    /// Pages that were read on both sites and compared.
    pub(crate) pages_verified: u64,
    pub(crate) pages_written: u64,
    /// Pages that the scrubber has read from the device and held against the ledger; those that were wrong; whole rounds.
    pub(crate) pages_scrubbed: u64,
    pub(crate) scrub_found: u64,
    pub(crate) scrub_rounds: u64,
    pub(crate) repairs: u64,
    #[serde(default)]
    pub(crate) mended: u64,
    pub(crate) ledger_files: u64,
    pub(crate) ledger_pages: u64,
    #[serde(default)]
    hung: bool,
}

/// What a site knows of itself.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    site: Arc<Site>,
    files: Arc<Mutex<Files>>,
    board: Arc<Board>,
    command: Vec<String>,
    witness: String,
    counts: Arc<Mutex<Counts>>,
}

/// What is counted of the files.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    verified: u64,
    written: u64,
    /// Files and pages.
    ledger: (u64, u64),
}

/// Begins what both sites do for whoever runs them: signals, status, the service manager. Call it before there is a second thread.
///
/// # Errors
/// When a socket or a thread cannot be had.
pub(crate) fn begin(source: Source, side: &Side) -> Result<(Arc<Board>, Manager), PairError> {
    forward_signals(&source)?;
    let board = Arc::clone(&source.board);
    source.serve(side)?;
    control::listen(&side.ledger, &board)?;
    let manager = Manager::to(side.notify_socket.as_deref(), side.watchdog_usec);
    Ok((board, manager))
}

impl Source {
    pub(crate) fn new(
        part: Part,
        side: &Side,
        site: &Arc<Site>,
        files: &Arc<Mutex<Files>>,
        run: &str,
    ) -> Self {
        let board = Board::default();
        board.leads.store(part == Part::Primary, Ordering::SeqCst);
        board.pair_up(run);
        Self {
            site: Arc::clone(site),
            files: Arc::clone(files),
            board: Arc::new(board),
            command: side.command.clone(),
            witness: side.witness.clone(),
            counts: Arc::default(),
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = self.counts.lock().expect("no panic under it");
        let asked = Instant::now();
        while asked.elapsed() < HELD {
            if let Ok(files) = self.files.try_lock() {
                *counts = Counts {
                    verified: files.pages_read,
                    written: files.pages_written,
                    ledger: files.ledger.extent(),
                };
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        *counts
    }
}

/// Who hears of a signal to the program: its first process; where that has ended, those that have no parent in the program any more.
fn heads(first: i32) -> Vec<i32> {
    if !procfs::has_ended(first) {
        return vec![first];
    }
    let exe = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = i32::try_from(std::process::id()).expect("a number");
    let mut all = procfs::children(own);
    // Helpers of this command are no part of it.
    all.retain(|pid| *pid != first && exe(*pid) != exe(own));
    all
}

/// Hands the signals of this command on to the program, from now on. A secondary that does not lead ends instead: to the primary it
/// is lost.
fn forward_signals(source: &Source) -> Result<(), PairError> {
    let _ = signals::block_all();
    let (site, board) = (Arc::clone(&source.site), Arc::clone(&source.board));
    let forward = move || {
        loop {
            let taken = signals::next();
            match taken.signal {
                libc::SIGCHLD | libc::SIGPIPE | libc::SIGCONT | libc::SIGURG => {}
                signal if board.part() == Part::Secondary => std::process::exit(128 + signal),
                // A terminal signals the whole group.
                _ if taken.code > 0 && child::in_our_group(site.pid()) => {}
                signal => heads(site.pid())
                    .into_iter()
                    .for_each(|pid| child::kill(pid, signal)),
            }
        }
    };
    std::thread::Builder::new()
        .spawn(forward)
        .map(drop)
        .map_err(|source| PairError::Kernel {
            part: "a thread for signals",
            source,
        })
}

impl Source {
    fn status(&self) -> Status {
        let board = &self.board;
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (claimed, done) = self.site.progress(board.part());
        let state = board.state();
        // Alone nobody is waited for.
        let events_open = if matches!(state, State::Alone | State::Joining) {
            0
        } else {
            claimed.saturating_sub(done)
        };
        let lag_ms = board.lag(done, events_open);
        let counts = self.counts();
        Status {
            site: if board.part() == Part::Primary {
                'A'
            } else {
                'B'
            },
            state,
            command: self.command.clone(),
            pid: self.site.pid(),
            run: board.run.lock().expect("no panic under it").clone(),
            witness: self.witness.clone(),
            generation: count(&board.generation),
            seconds: board.began.elapsed().as_secs(),
            events: claimed,
            events_open,
            lag_ms,
            silent_ms: board.now().saturating_sub(count(&board.heard)),
            pages_verified: counts.verified,
            pages_written: counts.written,
            pages_scrubbed: count(&board.scrubbed),
            scrub_found: count(&board.scrub_found),
            scrub_rounds: count(&board.scrub_rounds),
            repairs: count(&board.repairs),
            mended: count(&board.mended),
            ledger_files: counts.ledger.0,
            ledger_pages: counts.ledger.1,
            hung: board.now().saturating_sub(count(&board.round))
                > u64::try_from(HUNG.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Answers from now on, until the process ends.
    ///
    /// # Errors
    /// When one of the two sockets cannot be had.
    fn serve(self, side: &Side) -> Result<(), PairError> {
        let path = socket(&side.ledger);
        // Of a process that has ended: the ledger's lock says that no other one lives.
        let _ = std::fs::remove_file(&path);
        let local = UnixListener::bind(&path).map_err(|source| PairError::Directory {
            path: path.clone(),
            source,
        })?;
        let this = self.clone();
        std::thread::spawn(move || {
            for mut stream in local.incoming().flatten() {
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let text = serde_json::to_vec(&this.status()).expect("plain data");
                let _ = stream.write_all(&text);
            }
        });
        let Some(address) = &side.http else {
            return Ok(());
        };
        let listener = TcpListener::bind(address).map_err(|source| PairError::Listen {
            address: address.clone(),
            source,
        })?;
        std::thread::spawn(move || {
            monitor::serve(&listener, |path| reply(path, &self.status()));
        });
        Ok(())
    }
}

fn reply(path: &str, status: &Status) -> monitor::Reply {
    match path {
        "/metrics" => (OK, metrics(status)),
        "/healthz" if status.hung => (BUSY, "the thread that decides does not answer\n".into()),
        "/healthz" => (OK, "ok\n".into()),
        "/readyz" if status.state.is_ready() => (OK, "ready\n".into()),
        "/readyz" => (BUSY, format!("{}\n", status.state.name())),
        _ => (UNKNOWN, "known: /metrics, /healthz, /readyz\n".into()),
    }
}

fn metrics(status: &Status) -> String {
    let mut page = Metrics::default();
    let site = status.site.to_string();
    let mut put = |kind: Kind, name: &str, help: &str, value: u64| {
        page.family(kind, &format!("steadfast_pair_{name}"), help);
        page.sample(&[("site", &site)], value);
    };
    let counters = [
        (
            "events_total",
            "events that this site has come to",
            status.events,
        ),
        (
            "pages_verified_total",
            "pages that were read on both sites and compared",
            status.pages_verified,
        ),
        (
            "pages_written_total",
            "pages that were written",
            status.pages_written,
        ),
        (
            "pages_scrubbed_total",
            "pages that the scrubber has held against the ledger",
            status.pages_scrubbed,
        ),
        (
            "scrub_found_total",
            "pages that the scrubber has found wrong",
            status.scrub_found,
        ),
        (
            "scrub_rounds_total",
            "times that the scrubber has gone through all files",
            status.scrub_rounds,
        ),
        (
            "repairs_total",
            "pages of this pair that were repaired",
            status.repairs,
        ),
        (
            "mended_total",
            "programs put right after an error of processor or memory",
            status.mended,
        ),
    ];
    for (name, help, value) in counters {
        put(Kind::Counter, name, help, value);
    }
    let gauges = [
        (
            "events_open",
            "events that the other site has not done",
            status.events_open,
        ),
        (
            "lag_milliseconds",
            "for how long the oldest of these has been open",
            status.lag_ms,
        ),
        (
            "silent_milliseconds",
            "since the last word of the peer",
            status.silent_ms,
        ),
        (
            "generation",
            "0 while both sites run, 1 when the witness has given the program to this one",
            status.generation,
        ),
        (
            "ready",
            "whether the program runs, and is not held",
            u64::from(status.state.is_ready()),
        ),
        (
            "alone",
            "whether the peer is lost and this site goes on",
            u64::from(status.state == State::Alone),
        ),
        ("ledger_files", "files in the ledger", status.ledger_files),
        ("ledger_pages", "pages in the ledger", status.ledger_pages),
    ];
    for (name, help, value) in gauges {
        put(Kind::Gauge, name, help, value);
    }
    page.into_text()
}

fn socket(ledger: &Path) -> PathBuf {
    ledger.join("status")
}

fn ask(ledger: &Path) -> Result<Status, PairError> {
    let path = socket(ledger);
    let silent = |source| PairError::Silent {
        path: path.clone(),
        source,
    };
    let mut stream = UnixStream::connect(&path).map_err(silent)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(silent)?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).map_err(silent)?;
    serde_json::from_slice(&text).map_err(|error| silent(io::Error::other(error)))
}

/// `pair status`: 0 when both sites run, 1 when one of them is lost or this one is held.
pub(crate) fn show(options: &cli::Status) -> Result<u8, PairError> {
    let status = ask(&options.ledger)?;
    if options.json {
        say!("{}", serde_json::to_string(&status).expect("plain data"));
    } else {
        crate::say::result(format_args!("{}", page(&status)));
    }
    Ok(u8::from(!matches!(
        status.state,
        State::Running | State::Arbitrating
    )))
}

fn page(status: &Status) -> String {
    let part = if status.site == 'A' {
        "primary"
    } else {
        "secondary"
    };
    let rows = [
        ("site", format!("{} ({part})", status.site)),
        ("state", status.state.name().to_owned()),
        (
            "program",
            format!("{}, pid {}", status.command.join(" "), status.pid),
        ),
        (
            "witness",
            format!("{}, generation {}", status.witness, status.generation),
        ),
        ("up", format!("{} s", status.seconds)),
        (
            "events",
            format!(
                "{}, {} open for {} ms; peer silent for {} ms",
                status.events, status.events_open, status.lag_ms, status.silent_ms
            ),
        ),
        (
            "pages",
            format!(
                "{} read and compared, {} written, {} repaired; memory of {} programs mended",
                status.pages_verified, status.pages_written, status.repairs, status.mended
            ),
        ),
        (
            "scrubber",
            format!(
                "{} pages, {} wrong, {} rounds",
                status.pages_scrubbed, status.scrub_found, status.scrub_rounds
            ),
        ),
        (
            "ledger",
            format!(
                "{} files, {} pages",
                status.ledger_files, status.ledger_pages
            ),
        ),
    ];
    rows.iter().fold(String::new(), |mut out, (name, value)| {
        let _ = writeln!(out, "{name:9} {value}");
        out
    })
}

/// `pair top`: a line each interval, with what has come since the line before.
pub(crate) fn top(options: &cli::Top) -> Result<u8, PairError> {
    let mut before = ask(&options.ledger)?;
    let seconds = Duration::from_millis(options.every).as_secs_f64();
    say!("site state        events/s   open  lag ms  read/s written/s scrubbed/s  wrong repaired");
    let mut left = options.count;
    while left != Some(0) && !crate::say::is_lost() {
        std::thread::sleep(Duration::from_millis(options.every));
        let now = ask(&options.ledger)?;
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        say!(
            "{:4} {:11} {:10.0} {:6} {:7} {:7.0} {:9.0} {:10.0} {:6} {:8}",
            now.site,
            now.state.name(),
            rate(now.events, before.events),
            now.events_open,
            now.lag_ms,
            rate(now.pages_verified, before.pages_verified),
            rate(now.pages_written, before.pages_written),
            rate(now.pages_scrubbed, before.pages_scrubbed),
            now.scrub_found,
            now.repairs,
        );
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(0)
}
