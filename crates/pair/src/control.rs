//! Control: what an operator asks of a site that runs: to exchange roles with the other one, or to leave it.
//!
//! ```text
//!   pair switch, pair detach ──► socket in the ledger's directory ──► the thread that decides
//!   the site that leads:  its program stands ──► the other site leads ──► this one joins it (switch) or ends (detach)
//!   the site that follows: says that it leaves, and ends; the other one goes on alone (detach)
//! ```
//!
//! Invariant: who is asked and cannot answers why, and goes on as before.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use steadfast_replica::site::{End, Unread};

use crate::board::{Board, Order, What};
use crate::cli;
use crate::error::PairError;
use crate::hex::{hex, unhex};
use crate::say::say;

/// For a handover, the witness included.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a site's part in a pair ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Ended(End),
    /// The other site leads, and this one has left.
    Left,
    /// The other site leads, and this one is to join it.
    Follows,
}

impl Outcome {
    /// How the program has ended, if it has.
    pub(crate) fn end(&self) -> Option<&End> {
        match self {
            Self::Ended(end) => Some(end),
            Self::Left | Self::Follows => None,
        }
    }
}

fn socket(ledger: &Path) -> PathBuf {
    ledger.join("control")
}

/// Takes orders from now on, until the process ends.
///
/// # Errors
/// When the socket cannot be had.
pub(crate) fn listen(ledger: &Path, board: &Arc<Board>) -> Result<(), PairError> {
    let path = socket(ledger);
    let failed = |source| PairError::Directory {
        path: path.clone(),
        source,
    };
    // Of a process that has ended: the ledger's lock says that no other one lives.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(failed)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let board = Arc::clone(board);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = serve(stream, &board);
        }
    });
    Ok(())
}

fn serve(mut stream: UnixStream, board: &Board) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let what = [What::Switch, What::Detach]
        .into_iter()
        .find(|what| what.word() == line.trim_end());
    let Some(what) = what else {
        return writeln!(stream, "refused: known are switch and detach");
    };
    let (answer, answered) = channel();
    let (_writes, written) = channel();
    let order = Order {
        what,
        answer,
        written,
    };
    *board.order.lock().expect("no panic under it") = Some(order);
    match answered.recv_timeout(PATIENCE) {
        Ok(Ok(done)) => writeln!(stream, "done: {done}"),
        Ok(Err(why)) => writeln!(stream, "refused: {why}"),
        // What nobody has taken up is not to happen later, when nobody waits for it.
        Err(_) if board.take_order().is_some() => {
            writeln!(stream, "refused: the site is busy; nothing has changed")
        }
        Err(_) => writeln!(
            stream,
            "refused: it has not come to an end; see pair status"
        ),
    }
}

/// What a site answers.
pub(crate) fn told(ledger: &Path, what: What) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket(ledger))?;
    stream.set_read_timeout(Some(PATIENCE + Duration::from_secs(1)))?;
    writeln!(stream, "{}", what.word())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// Asks a site of this machine; 1 if it refuses.
pub(crate) fn ask(order: &cli::Order, what: What) -> Result<u8, PairError> {
    let line = told(&order.ledger, what).map_err(|source| PairError::Silent {
        path: order.ledger.clone(),
        source,
    })?;
    if let Some(done) = line.strip_prefix("done: ") {
        say!("{done}");
        return Ok(0);
    }
    let why = line.strip_prefix("refused: ").unwrap_or("it has ended");
    eprintln!("steadfast pair: {}: {why}", what.word());
    Ok(1)
}

/// Executes this command again as one that joins the other site.
pub(crate) fn follow() -> PairError {
    let failed = |source| PairError::Kernel {
        part: "this command, as one that joins,",
        source,
    };
    let mut args: Vec<_> = std::env::args_os().skip(2).collect();
    let program = args
        .iter()
        .position(|arg| arg == "--")
        .map_or_else(Vec::new, |at| args.split_off(at));
    // It is about a start of both.
    if let Some(at) = args.iter().position(|arg| arg == "--right") {
        args.drain(at..args.len().min(at + 2));
    }
    args.retain(|arg| !arg.to_string_lossy().starts_with("--right="));
    args.extend(program);
    steadfast_sys::signals::unblock_all();
    match std::fs::read_link("/proc/self/exe") {
        Ok(own) => failed(
            std::process::Command::new(own)
                .arg("join")
                .args(args)
                .exec(),
        ),
        Err(error) => failed(error),
    }
}

/// For the link: of each process, by the strand that it is at, of each descriptor.
pub(crate) type Encoded = Vec<(u64, Vec<(i32, Option<String>)>)>;

/// What clients' connections have left unread, by strand.
pub(crate) type Handed = Vec<(u64, Vec<Unread>)>;

pub(crate) fn encode(unread: &[(u64, Vec<Unread>)]) -> Encoded {
    let one = |(fd, bytes): &Unread| (*fd, bytes.as_deref().map(hex));
    let of = |(strand, all): &(u64, Vec<Unread>)| (*strand, all.iter().map(one).collect());
    unread.iter().map(of).collect()
}

pub(crate) fn decode(told: &Encoded) -> io::Result<Handed> {
    let one = |(fd, text): &(i32, Option<String>)| {
        let bytes = text.as_deref().map(unhex).transpose()?;
        Ok((*fd, bytes))
    };
    told.iter()
        .map(|(strand, all)| Ok((*strand, all.iter().map(one).collect::<io::Result<_>>()?)))
        .collect()
}
