//! Flips at drawn instructions, each in a host and with a client of its own: any of them can be made again.
//!
//! The calls of a client are counted once, instruction by instruction, in the component's code. A flip's number draws one of these, a register
//! and a bit, so that every instruction is as likely as any other. A timer finds what takes long more often.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadfast_inject::chacha::{Draw, Seed};
use steadfast_restart::{Component, Edge, Host};
use steadfast_sys::step::Steps;
use steadfast_sys::tick::{EIGHT, VECTOR};

use super::words::{ROUNDS, Report, Target, WRONG};
use crate::clients::{Client, Counts, What};
use crate::told::Told;

/// A stepped call takes longer than the limit of others.
const CALL: Duration = Duration::from_secs(1);

pub(super) fn slow(component: Component) -> Component {
    Component {
        call_limit: CALL,
        ..component
    }
}

/// Where a flip strikes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct At {
    /// Its number among the flips of the seed.
    pub(crate) flip: u64,
    /// Calls before the one that it strikes.
    pub(crate) call: u64,
    /// Instructions of that call before it.
    pub(crate) instruction: u64,
    pub(crate) register: u32,
    pub(crate) bit: u32,
}

impl At {
    fn new(flip: u64, seed: &Seed, target: Target, counted: &[u64]) -> Self {
        let mut draw: Draw = seed.stream(3, flip);
        let mut below = |n: u32| u32::try_from(draw.below(n.into())).unwrap_or(0);
        let (register, bit) = match target {
            Target::Vectors => (VECTOR + below(EIGHT - VECTOR), below(128)),
            Target::Eight => (EIGHT, below(32)),
            _ => (below(16), below(64)),
        };
        let mut instruction = draw.below(counted.iter().sum::<u64>().max(1));
        let mut call = 0;
        for n in counted {
            if instruction < *n {
                break;
            }
            instruction -= n;
            call += 1;
        }
        Self {
            flip,
            call,
            instruction,
            register,
            bit,
        }
    }
}

/// Those flips.
pub(super) fn strike(
    host: impl Fn() -> Result<(Host, Edge), Told>,
    (what, handles): (What, usize),
    (target, seed): (Target, Seed),
    flips: std::ops::Range<u64>,
) -> Result<ExitCode, Told> {
    let start = |edge: &Edge| -> Result<Steps, Told> {
        let steps = Steps::start(&edge.text()?);
        let steps = steps.map_err(|error| Told::from(anyhow::Error::new(error)))?;
        steps.tell(std::os::fd::AsRawFd::as_raw_fd(&std::io::stdout()));
        Ok(steps)
    };
    let counted = {
        let (_host, edge) = host()?;
        let mut client = Client::new(what, &edge, handles)?;
        client.round();
        let steps = start(&edge)?;
        steps.count();
        (0..ROUNDS).for_each(|_| client.round());
        steps.counted()
    };
    println!("ready");
    let mut report = Report::default();
    let tell = |report: &Report| {
        let line = serde_json::to_string(report).unwrap_or_default();
        let _ = writeln!(std::io::stdout(), "{line}");
    };
    for flip in flips {
        let at = At::new(flip, &seed, target, &counted);
        // Told before it is made, since it may end the process.
        report.flips += 1;
        report.at = Some(at);
        tell(&report);
        let (_host, edge) = host()?;
        let mut client = Client::new(what, &edge, handles)?;
        client.round();
        let steps = start(&edge)?;
        steps.arm(at.call, at.instruction, at.register, at.bit);
        (0..ROUNDS).for_each(|_| client.round());
        if !steps.struck() {
            return Err(anyhow::anyhow!("no call came to {at:?}").into());
        }
        (0..ROUNDS).for_each(|_| client.round());
        client.look();
        let Counts { calls, wrong, .. } = *client.counts();
        report.counts.calls += calls;
        report.counts.wrong += wrong;
        let stats = edge.stats()?;
        report.rebuilt += stats.rebuilt;
        for (cause, n) in super::client::causes(&stats) {
            match report.resets.iter_mut().find(|(of, _)| *of == cause) {
                Some((_, sum)) => *sum += n,
                None => report.resets.push((cause, n)),
            }
        }
        if wrong > 0 {
            break;
        }
    }
    tell(&report);
    Ok(match report.counts.wrong {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(WRONG),
    })
}
