//! What a repair takes from everybody else: replies to 30 clients in the 2 ms around it (Fig. 12 of the paper).
//!
//! One item is struck in one replica and read, ten times a second. The clients have items of their own, of which one in 256 is in its
//! shard. A repair is told on the group's output when it is over; it began as long before as it says that it took.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use steadfast_report::published::Row;

use super::faults::{ask, under};
use super::load::Shape;
use super::{Group, Plan, READY, WARM, without_a_wrong_reply};

/// As in the paper.
const BIN: Duration = Duration::from_millis(2);
/// Bins before a repair that it is compared with, and how many bins lie between.
const BEFORE: u32 = 20;
const GAP: u32 = 3;
const A_SECOND: f64 = 10.0;
const KEY: &str = "the-one-that-is-struck";

pub(super) fn beside(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    says("repairs of one object, and the replies to everybody else");
    let group = Group::start(plan, "RDGX")?;
    let mut clients = group.connect(Shape::of_paper(30, 75), plan.seed)?;
    without_a_wrong_reply(&clients.saturate(WARM)?, "RDGX")?;
    let stream = TcpStream::connect(group.clients[0])?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(READY))?;
    let mut own = BufReader::new(stream);
    let value = "v".repeat(512);
    let (mut around, mut next) = (Vec::new(), Vec::new());
    let mut replica = 0;
    while around.len() < plan.repairs {
        let known = group.repairs_at().len();
        clients.keep_ends();
        let (load, _) = under(
            &group,
            &mut clients,
            Duration::from_secs(4),
            A_SECOND,
            |lines, turn| {
                replica = (replica + 1) % lines.len();
                request(
                    &mut own,
                    &format!("set {KEY} 0 0 512\r\n{value}\r\n"),
                    "STORED\r\n",
                )?;
                let bit = turn % 8;
                let strike = format!("strike replica={replica} object=item:{KEY} byte=9 bit={bit}");
                ensure!(ask(&mut lines[replica], &strike)? == "STRUCK", "no strike");
                let right = format!("VALUE {KEY} 0 512\r\n{value}\r\nEND\r\n");
                request(&mut own, &format!("get {KEY}\r\n"), &right)?;
                Ok(1)
            },
        )?;
        without_a_wrong_reply(&load, "a repair")?;
        let ends = clients.ends();
        for (over, event) in group.repairs_at().into_iter().skip(known) {
            let took = Duration::from_micros(event["took_us"].as_u64().context("took_us")?);
            if let Some((during, after)) = shares(&ends, over, took) {
                around.push(during);
                next.push(after);
            }
        }
        says(&format!("{} repairs", around.len()));
    }
    rows.push(mean(
        "beside.during",
        "replies to everybody else in the 2 ms bins of a repair, of those before",
        &around,
    ));
    rows.push(mean("beside.after", "the same in the bin behind it", &next));
    Ok(())
}

fn request(line: &mut BufReader<TcpStream>, text: &str, right: &str) -> Result<()> {
    line.get_mut().write_all(text.as_bytes())?;
    let mut said = vec![0; right.len()];
    line.read_exact(&mut said)
        .with_context(|| format!("no reply to {:?}", &text[..text.len().min(40)]))?;
    ensure!(
        said == right.as_bytes(),
        "{:?} was answered with {:?}",
        &text[..text.len().min(40)],
        String::from_utf8_lossy(&said)
    );
    Ok(())
}

/// Replies in the bins that end with a repair and hold all of it, and in the one behind, in percent of those well before; nothing where the
/// load had not begun then, or had ended.
fn shares(ends: &[Instant], over: Instant, took: Duration) -> Option<(f64, f64)> {
    let bins = u32::try_from(took.as_micros().div_ceil(BIN.as_micros()))
        .ok()?
        .max(1);
    let began = over.checked_sub(BIN * bins)?;
    let calm = began.checked_sub(BIN * GAP)?;
    let first = calm.checked_sub(BIN * BEFORE)?;
    if *ends.first()? > first || *ends.last()? < over + BIN {
        return None;
    }
    // They are in the order in which they came.
    let count = |from: Instant, to: Instant| {
        (ends.partition_point(|at| *at < to) - ends.partition_point(|at| *at < from)) as f64
    };
    let usual = count(first, calm) / f64::from(BEFORE);
    (usual > 0.0).then(|| {
        (
            100.0 * count(began, over) / f64::from(bins) / usual,
            100.0 * count(over, over + BIN) / usual,
        )
    })
}

/// The mean, with its interval by the normal law.
fn mean(key: &str, what: &str, values: &[f64]) -> Row {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let spread = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let half = 1.96 * (spread / count).sqrt();
    let digits = |value: f64| (value * 10.0).round() / 10.0;
    Row::new(key, what, digits(mean), "%").within(
        digits(mean - half),
        digits(mean + half),
        values.len() as u64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_one_bin_is_seen_there_and_nowhere_else() {
        let began = Instant::now();
        let ms = |ms: f64| began + Duration::from_secs_f64(ms / 1000.0);
        // Ten replies a bin, but none from 80 to 82 ms.
        let ends: Vec<Instant> = (0..1000)
            .map(|n| f64::from(n) / 5.0)
            .filter(|at| !(80.0..82.0).contains(at))
            .map(ms)
            .collect();
        let (during, after) = shares(&ends, ms(82.0), Duration::from_millis(1)).unwrap();
        assert!(during == 0.0 && (after - 100.0).abs() < 11.0, "{after}");
        let (during, _) = shares(&ends, ms(84.0), Duration::from_millis(1)).unwrap();
        assert!((during - 100.0).abs() < 11.0, "{during}");
        // A repair of 3 ms has two bins, of which one has all of the pause.
        let (during, _) = shares(&ends, ms(82.0), Duration::from_millis(3)).unwrap();
        assert!((during - 50.0).abs() < 11.0, "{during}");
        for over in [40.0, 199.5] {
            assert_eq!(shares(&ends, ms(over), Duration::from_millis(1)), None);
        }
    }
}
