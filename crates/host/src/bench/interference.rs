//! An urgent task that recovers its one object in a component where others hold many.

use std::path::Path;
use std::time::{Duration, Instant};

use steadfast_restart::{CallError, Edge, Handle, Host, Policy};
use steadfast_sys::cpu;

use super::report::{Report, median_us};
use super::series::WARM;
use super::tools::{BATCH, LOCKS, handle, hosted, none, ns, plain};
use crate::told::Told;

/// Objects that others hold while one task recovers its own.
const OTHERS: [u32; 4] = [10, 100, 1000, 10_000];

/// An urgent task with one object in a component where others hold many.
struct Point {
    others: u32,
    mine: Edge,
    holder: usize,
    lock: Handle,
    took: Vec<u64>,
    /// Ends with it.
    _host: Host,
}

impl Point {
    fn of(folder: &Path, others: u32, eager: bool) -> Result<Self, Told> {
        let host = hosted(folder, "lock", Policy { eager, ..plain() })?;
        let (mine, theirs) = (
            host.edge("urgent", "lock", &[])?,
            host.edge("others", "lock", &[])?,
        );
        let make = mine.function(&format!("{LOCKS}[constructor]lock"))?;
        let holder = mine.function(&format!("{LOCKS}[method]lock.holder"))?;
        for _ in 0..others {
            theirs.call(make, &[])?;
        }
        let lock = handle(mine.call(make, &[])?)?;
        Ok(Self {
            others,
            mine,
            holder,
            lock,
            took: Vec::new(),
            _host: host,
        })
    }

    fn recover(&mut self) -> Result<(), CallError> {
        for _ in 0..WARM {
            self.mine.call(self.holder, &[self.lock.into()])?;
        }
        let begin = Instant::now();
        self.mine.reset()?;
        self.mine.call(self.holder, &[self.lock.into()])?;
        self.took.push(ns(begin));
        Ok(())
    }
}

/// An urgent task with one object, others with many: what one of theirs adds to its recovery.
///
/// The points take turns, in an order that is drawn anew each time: a machine that becomes faster or slower meanwhile does so for all of them.
pub(super) fn interference(folder: &Path, report: &mut Report) -> Result<(), Told> {
    for (key, what, eager) in [
        (
            "interference.on-demand",
            "an urgent task's recovery, for each object of others, on demand",
            false,
        ),
        (
            "interference.eager",
            "the same when all objects come back at once",
            true,
        ),
    ] {
        let mut points = Vec::new();
        for others in OTHERS {
            points.push(Point::of(folder, others, eager)?);
        }
        let batch = if eager { BATCH / 6 } else { BATCH };
        let urgent = || -> Result<bool, CallError> {
            let given = cpu::run_first().is_ok();
            let mut drawn = SHUFFLES;
            for _ in 0..batch {
                shuffle(&mut points, &mut drawn);
                for point in &mut points {
                    point.recover()?;
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            Ok(given)
        };
        let ended = std::thread::scope(|scope| scope.spawn(urgent).join());
        report.fifo = ended.map_err(|_| none("the urgent task panicked"))??;
        points.sort_by_key(|point| point.others);
        let word = if eager { "eager" } else { "on demand" };
        let mut line = Vec::new();
        for point in points {
            let us = median_us(point.took).ok_or_else(|| none(key))?;
            let others = point.others;
            report.put(
                &format!("{key}.{others}"),
                &format!(
                    "an urgent task's reset and first call, {word}, others hold {others} objects"
                ),
                "µs",
                us,
            );
            line.push((f64::from(others), us * 1000.0));
        }
        report.put(
            key,
            what,
            "ns",
            slope(&line).ok_or_else(|| none("a slope"))?,
        );
    }
    Ok(())
}

/// Any number but 0: the order is to have nothing to do with the points, and may be the same in each round.
const SHUFFLES: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fisher and Yates, with numbers of xorshift.
fn shuffle<T>(of: &mut [T], drawn: &mut u64) {
    for last in (1..of.len()).rev() {
        *drawn ^= *drawn << 13;
        *drawn ^= *drawn >> 7;
        *drawn ^= *drawn << 17;
        let place = *drawn % (last as u64 + 1);
        of.swap(last, usize::try_from(place).unwrap_or(0));
    }
}

/// Of the least-squares line.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a handful of points")]
    let count = points.len() as f64;
    let (mx, my) = (
        points.iter().map(|p| p.0).sum::<f64>() / count,
        points.iter().map(|p| p.1).sum::<f64>() / count,
    );
    let spread: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let common: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    (spread > 0.0).then(|| common / spread)
}
