//! Turns: two sites exchange roles while a client sends, or the one that leads is lost, and no byte is lost.
//!
//! The server reads slowly, so what the client has sent lies in the leading site's kernel, acknowledged and unread, when the
//! roles are exchanged. In the end the server tells a digest of all that it has read.
//!
//! What is left behind: nothing, as hosts.rs has it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::board::What;
use crate::cli::{Demo, Switch};
use crate::control::told as order;
use crate::error::PairError;
use crate::hosts::{Host, Images, Scratch};
use crate::say::say;
use crate::stage::{Stage, lose, lose_as, said, told};

pub(crate) const BYTES: u64 = 12 << 20;
const PIECE: u64 = 1 << 16;
const LIMIT: Duration = Duration::from_secs(60);

/// FNV-1a (Fowler, Noll, Vo), as the server has it.
fn digest(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Numbered: no eight bytes are like any others.
fn numbered(from: u64, bytes: u64) -> Vec<u8> {
    (from / 8..(from + bytes) / 8)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

/// The client's part: how many bytes, how many seconds it waits for anything, and the server's digest of them beside its own. `resting`: after
/// a half it waits for a line before it sends on.
pub(crate) fn put(server: &str, how: &str) -> String {
    let sent = || -> io::Result<String> {
        let mut words = how.split(' ');
        let mut number = |or: u64| words.next().map_or(Ok(or), str::parse);
        let bytes = number(0).map_err(io::Error::other)?;
        let limit = Duration::from_secs(number(LIMIT.as_secs()).map_err(io::Error::other)?);
        let resting = words.next() == Some("resting");
        let address = server.parse().map_err(io::Error::other)?;
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.write_all(&bytes.to_le_bytes())?;
        let (mut at, mut sum) = (0, 0xcbf2_9ce4_8422_2325);
        while at < bytes {
            let piece = numbered(at, PIECE.min(bytes - at));
            sum = digest(sum, &piece);
            stream.write_all(&piece)?;
            at += piece.len() as u64;
            if at == bytes / 4 / PIECE * PIECE {
                say!("a quarter");
            }
            if resting && at == bytes / 2 / PIECE * PIECE {
                io::stdin().read_line(&mut String::new())?;
            }
        }
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        let theirs = u64::from_le_bytes(answer);
        Ok(if theirs == sum { "put" } else { "wrong" }.to_owned())
    };
    sent().unwrap_or_else(|error| format!("failed: {error}"))
}

fn wait_for(dir: &Path, host: &str, what: &str, times: usize) -> io::Result<()> {
    let deadline = Instant::now() + LIMIT;
    let log = dir.join(format!("{host}.err"));
    while fs::read_to_string(&log)
        .unwrap_or_default()
        .matches(what)
        .count()
        < times
    {
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("{host} does not say {what:?}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The site that leads is asked, and the other one leads with the client's connection.
fn turn(dir: &Path, from: &Host, to: &str, other: &str) -> io::Result<()> {
    let line = order(&from.file("/mnt/ledger"), What::Switch)?;
    say!("switch: {line}");
    wait_for(dir, to, "this site leads, with 1 connections (0 cut)", 1)?;
    wait_for(dir, to, "the other site is back", 1)?;
    wait_for(dir, other, "this site has joined", 1)
}

/// The client's part: eight bytes and their digest, so many times, each on a connection of its own; the median in microseconds.
pub(crate) fn ask(server: &str, times: &str) -> String {
    let mut took = Vec::new();
    for _ in 0..times.parse().unwrap_or(1) {
        let began = Instant::now();
        match put(server, "8").as_str() {
            "put" => took.push(began.elapsed().as_micros()),
            other => return other.to_owned(),
        }
    }
    took.sort_unstable();
    format!("median {}", took[took.len() / 2])
}

/// Three hosts, and a server on two of them that answers the third.
pub(crate) fn begin(dir: &Path, options: &Demo) -> Result<Stage, PairError> {
    let bad = |error| told(dir, error);
    let seed = dir.join("seed");
    fs::create_dir_all(&seed).map_err(bad)?;
    fs::create_dir_all(dir.join("witness")).map_err(bad)?;
    Images { dir }.make(&seed)?;
    let mut stage = Stage::set(dir, options)?;
    let deadline = Instant::now() + LIMIT;
    loop {
        stage.c.say("put 8").map_err(bad)?;
        if stage.c.line().map_err(bad)? == "put" {
            return Ok(stage);
        }
        if Instant::now() > deadline {
            return Err(bad(io::Error::other("the server does not answer")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn run(options: &Demo) -> Result<u8, PairError> {
    let scratch =
        Scratch::new(options.keep.as_ref()).map_err(|error| told(Path::new(""), error))?;
    let dir = scratch.path.as_path();
    let bad = |error| told(dir, error);
    let Stage {
        mut a,
        mut b,
        mut c,
        ..
    } = begin(dir, options)?;
    // Where bytes are to be lost, nobody waits long for them.
    let patience = match options.hold_acks {
        Switch::On => LIMIT.as_secs(),
        Switch::Off => 8,
    };
    // The host that joins is there a moment later than the last byte, on a busy machine.
    let resting = if options.lost_joined { " resting" } else { "" };
    c.say(&format!("put {BYTES} {patience}{resting}"))
        .map_err(bad)?;
    let quarter = c.line().map_err(bad)?;
    say!("C sends {BYTES} numbered bytes: {quarter}");
    if let Some(moment) = options.lost_at {
        std::thread::sleep(Duration::from_millis(moment));
        say!("{}", lose_as(dir, options.lose, &mut a, &c)?);
    } else if options.lost_joined {
        turn(dir, &a, "b", "a").map_err(bad)?;
        lose(&mut b, &c, "steadfast-cb")?;
        say!("B's cable is pulled, and B is killed");
        c.say("on").map_err(bad)?;
    } else {
        turn(dir, &a, "b", "a").map_err(bad)?;
        turn(dir, &b, "a", "b").map_err(bad)?;
    }
    let end = c.line().map_err(bad)?;
    say!("all are sent: {end}");
    crate::say::result(format_args!("{}", said(dir)));
    if end == "put" {
        say!("the server has read what was sent");
        return Ok(0);
    }
    say!("demo: bytes were lost or changed");
    Ok(1)
}
