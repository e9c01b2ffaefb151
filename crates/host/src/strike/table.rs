//! Flips in what the host remembers of objects. Each has a host and a client of its own, since what is damaged stays so.

use std::io::Write as _;
use std::process::ExitCode;

use steadfast_inject::chacha::Seed;
use steadfast_restart::{Edge, Host};

use super::words::{ROUNDS, Report, WRONG};
use crate::clients::{Client, Counts, What};
use crate::told::Told;

/// How a handle ended that its client could not use any more.
const REFUSED: &str = "handle refused";

/// So many of them, and what each has come to.
pub(super) fn strike(
    host: impl Fn() -> Result<(Host, Edge), Told>,
    what: What,
    handles: usize,
    seed: Seed,
    flips: u64,
) -> Result<ExitCode, Told> {
    let mut draw = seed.stream(2, 0);
    let mut out = std::io::stdout();
    println!("ready");
    let mut report = Report {
        resets: vec![(REFUSED.into(), 0)],
        ..Report::default()
    };
    while report.flips < flips {
        // Told before it is made, since it may end the process.
        report.flips += 1;
        let line = serde_json::to_string(&report).unwrap_or_default();
        let _ = writeln!(out, "{line}");
        let (_host, edge) = host()?;
        let mut client = Client::new(what, &edge, handles)?;
        client.round();
        while !edge.flip_record(&mut |below| draw.below(below))? {}
        // In use, after a reset, and again: a damaged record must not become right by being written.
        for _ in 0..2 {
            (0..ROUNDS).for_each(|_| client.round());
            edge.reset()?;
        }
        (0..ROUNDS).for_each(|_| client.round());
        client.look();
        let Counts {
            calls, wrong, kept, ..
        } = *client.counts();
        report.counts.calls += calls;
        report.counts.wrong += wrong;
        report.resets[0].1 += u64::from(kept < handles && wrong == 0);
        if wrong > 0 {
            break;
        }
    }
    let line = serde_json::to_string(&report).unwrap_or_default();
    let _ = writeln!(out, "{line}");
    Ok(match report.counts.wrong {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(WRONG),
    })
}
