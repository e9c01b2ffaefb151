//! What sjeng searches: positions at a fixed depth, and how its clock readings are ignored.
//!
//! Three habits of sjeng shape the script. While it searches it polls standard input and stops
//! at anything but a full stop (which asks for statistics, and prints them in xboard mode only),
//! and a file is always readable; so each `go` is followed by more lines of one full stop than
//! the search can eat. What is left over is then answered with "Illegal move" or a prompt.
//! It prints centiseconds and nodes per second, which no two runs share: [`drop_clock`]. And it
//! learns: each search is recorded in the user's home and changes the next run; the set-up makes
//! those files links to /dev/null ([`crate::Workload::state_in_home`]).

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::Size;

/// Middle games with White to move (with Black to move sjeng searches twice).
const POSITIONS: [&str; 5] = [
    "r1bq1rk1/pp2ppbp/2np1np1/8/3NP3/2N1BP2/PPPQ2PP/R3KB1R w KQ - 0 9",
    "r2q1rk1/1b1nbppp/p2ppn2/1p6/3NP3/1BN1BP2/PPPQ2PP/R4RK1 w - - 0 12",
    "2rq1rk1/pb1nbppp/1p2pn2/2pp4/3P1B2/2PBPN2/PP1N1PPP/R2Q1RK1 w - - 0 11",
    "rnbq1rk1/pp2ppbp/6p1/2p5/2BPP3/2P5/P3NPPP/R1BQK2R w KQ - 0 8",
    "r1b2rk1/ppq1bppp/2nppn2/8/3NPP2/2N1B3/PPP1B1PP/R2Q1RK1 w - - 0 10",
];

pub(crate) fn generate(dir: &Path, size: Size) -> Result<()> {
    let (positions, depth, full_stops) = size.pick((1, 9, 400), (3, 10, 3_000));
    // `d` turns the diagrams off; the time per move is beyond reach, so depth alone ends a search.
    let mut script = String::from("d\nst 1000000\n");
    for position in &POSITIONS[..positions] {
        script += &format!("setboard {position}\nsd {depth}\ngo\n");
        script += &".\n".repeat(full_stops);
    }
    Ok(fs::write(dir.join("positions.txt"), script + "quit\n")?)
}

/// Removes what depends on the clock, and only that:
/// the lines `Used time : N` and `NPS: N`, and the third column (centiseconds) of a line of
/// thinking output, ` DEPTH SCORE TIME NODES MOVES`.
#[must_use]
pub fn drop_clock(output: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(output.len());
    for line in output.split_inclusive(|&byte| byte == b'\n') {
        if line.starts_with(b"Used time") || line.starts_with(b"NPS:") {
            continue;
        }
        match time_column(line) {
            Some(range) => {
                kept.extend_from_slice(&line[..range.start]);
                kept.push(b'*');
                kept.extend_from_slice(&line[range.end..]);
            }
            None => kept.extend_from_slice(line),
        }
    }
    kept
}

/// Where the third of at least four leading numbers lies, with the padding before it.
fn time_column(line: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut columns = Vec::with_capacity(4);
    let mut at = 0;
    while columns.len() < 4 {
        let start = at;
        at += line[at..].iter().take_while(|&&byte| byte == b' ').count();
        let digits = at;
        at += line[at..]
            .iter()
            .take_while(|&&byte| byte.is_ascii_digit() || byte == b'-')
            .count();
        // The first column fills its width from depth 10 on, so it may have no padding.
        if at == digits || (digits == start && start > 0) {
            return None;
        }
        columns.push(start..at);
    }
    columns.into_iter().nth(2)
}
