//! What befalls a group while clients work: repairs timed one by one, throughput under faults and false alarms, and strikes without end.
//!
//! Invariant: no strike makes an object wrong in two replicas at a time, which is more than the vote promises to stand.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;

use super::load::{Clients, Load, Shape};
use super::{
    Group, KEY_BYTES, Plan, READY, VALUE_BYTES, WARM, percent, row, without_a_wrong_reply,
};

/// Faults a second in the comparison with none.
const FAULTS_A_SECOND: f64 = 10.0;
/// False alarms a second of each replica that raises them, as in the paper.
const ALARMS_A_SECOND: f64 = 4.0;

/// What befalls a group in one slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Nothing,
    Faults,
    AlarmsOfOne,
    AlarmsOfAll,
}

impl Turn {
    const ALL: [Self; 4] = [
        Self::Nothing,
        Self::Faults,
        Self::AlarmsOfOne,
        Self::AlarmsOfAll,
    ];

    /// Its rows: key, and what it is compared in.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Nothing => ("none", "nothing"),
            Self::Faults => ("faults.10-over-0", "10 faults a second"),
            Self::AlarmsOfOne => (
                "alarms.one-over-0",
                "4 false alarms a second, of one replica",
            ),
            Self::AlarmsOfAll => (
                "alarms.all-over-0",
                "4 false alarms a second, of each replica",
            ),
        }
    }
}

/// One repair after the other of 512 bytes, from the mismatch to the right bytes.
pub(super) fn repairs(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    says("repairs of 512 bytes");
    let group = Group::start(plan, "RDGX")?;
    let mut rng = Rng::new(plan.seed);
    let shape = Shape {
        value_bytes: 512,
        ..Shape::of_paper(3, 100)
    };
    let mut clients = group.connect(shape, plan.seed)?;
    for number in 0..plan.repairs {
        let key = clients.some_key(&mut rng);
        let replica = number % 3;
        let said = group.ask(
            replica,
            &format!(
                "strike replica={replica} object=item:{key} byte={} bit=3",
                rng.below(512)
            ),
        )?;
        ensure!(said == "STRUCK", "{said}");
        let until = Instant::now() + READY;
        while group.repairs().len() <= number {
            ensure!(
                Instant::now() < until,
                "strike {number} was not repaired in {READY:?}"
            );
            without_a_wrong_reply(&clients.saturate(Duration::from_millis(20))?, "a strike")?;
        }
    }
    let all = group.repairs();
    let parts = [
        (
            "took_us",
            "repair",
            "repair of 512 B, mismatch to right bytes",
        ),
        ("ordered_us", "repair.ordered", "of it: until it is ordered"),
        ("moved_us", "repair.moved", "of it: vote, fetch, replace"),
    ];
    for (field, key, what) in parts {
        let mut values: Vec<f64> = all
            .iter()
            .filter_map(|event| Some(event[field].as_u64()? as f64 / 1000.0))
            .collect();
        values.sort_by(f64::total_cmp);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        // The interval of a mean of so many values, by the normal law.
        let spread = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>()
            / (values.len() as f64 - 1.0).max(1.0);
        let half = 1.96 * (spread / values.len() as f64).sqrt();
        let digits = |value: f64| (value * 1000.0).round() / 1000.0;
        rows.push(
            Row::new(
                format!("{key}.mean"),
                format!("{what}, mean"),
                digits(mean),
                "ms",
            )
            .within(
                digits(mean - half),
                digits(mean + half),
                values.len() as u64,
            ),
        );
    }
    Ok(())
}

/// Faults, false alarms of one replica and of all, and nothing, in slices that take turns in one group.
pub(super) fn faults(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    says("faults and false alarms, in turns with nothing");
    let group = Group::start(plan, "RDGX")?;
    let mut clients = group.connect(Shape::of_paper(30, 75), plan.seed)?;
    clients.saturate(WARM)?;
    let mut rates: BTreeMap<Turn, Vec<f64>> = BTreeMap::new();
    let mut raised = 0;
    for round in 0..plan.rounds {
        for number in 0..Turn::ALL.len() {
            let turn = Turn::ALL[(round + number) % Turn::ALL.len()];
            let (load, alarms) = slice(plan, round, turn, &group, &mut clients)?;
            without_a_wrong_reply(&load, turn.words().1)?;
            raised += alarms;
            rates.entry(turn).or_default().push(load.rate());
        }
    }
    let (heard, repaired) = (group.count("mismatches")?, group.repairs().len());
    says(&format!(
        "{raised} false alarms and {repaired} repairs; replicas saw {heard} mismatches"
    ));
    for turn in [Turn::Faults, Turn::AlarmsOfOne, Turn::AlarmsOfAll] {
        let ratios = percent(&rates[&turn], &rates[&Turn::Nothing]);
        let (key, what) = turn.words();
        rows.push(row(
            key.to_owned(),
            format!("throughput with {what} over that with none"),
            &ratios,
            "%",
        ));
    }
    Ok(())
}

/// One slice, and how many false alarms were raised in it: each of them heard by somebody, and none followed by a repair.
fn slice(
    plan: &Plan,
    round: usize,
    turn: Turn,
    group: &Group,
    clients: &mut Clients,
) -> Result<(Load, u64)> {
    let time = plan.slice * 4;
    let replicas = match turn {
        Turn::Nothing => return Ok((clients.saturate(time)?, 0)),
        Turn::Faults => {
            let seed = plan.seed + round as u64;
            return Ok((
                under_strikes(group, clients, time, FAULTS_A_SECOND, seed)?.0,
                0,
            ));
        }
        Turn::AlarmsOfOne => vec![round % group.clients.len()],
        Turn::AlarmsOfAll => (0..group.clients.len()).collect(),
    };
    let before = group.count("mismatches")?;
    let (load, raised) = under(group, clients, time, ALARMS_A_SECOND, |lines, turn| {
        let mut raised = 0;
        for replica in &replicas {
            let bit = (turn * 7 + replica) % 128;
            let said = ask(
                &mut lines[*replica],
                &format!("strike replica={replica} message=check bit={bit}"),
            )?;
            // On a machine that is busy with something else the one before may not have met a CHECK yet: it is the one that counts.
            ensure!(
                said == "STRUCK" || said.contains("waits already"),
                "a false alarm was answered with {said:?}"
            );
            raised += u64::from(said == "STRUCK");
        }
        Ok(raised)
    })?;
    let heard = group.count("mismatches")? - before;
    // Two that hit the digests of one entry are heard as one.
    ensure!(
        heard > 0,
        "{raised} false alarms were raised and none heard"
    );
    Ok((load, raised))
}

/// A connection of its own to one replica, for the service's own commands.
pub(super) struct Line {
    at: SocketAddr,
    open: Option<BufReader<TcpStream>>,
}

/// One of these commands. A replica may be replaced under its strikes: it then says nothing, and the next command is for its follower.
pub(super) fn ask(line: &mut Line, command: &str) -> Result<String> {
    let mut open = match line.open.take() {
        Some(open) => open,
        None => {
            let stream = TcpStream::connect(line.at)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(READY))?;
            BufReader::new(stream)
        }
    };
    let mut said = String::new();
    let exchange = open
        .get_mut()
        .write_all(format!("sf {command}\r\n").as_bytes())
        .and_then(|()| open.read_line(&mut said));
    match exchange {
        Ok(bytes) if bytes > 0 => line.open = Some(open),
        Err(why) if why.kind() == ErrorKind::WouldBlock => {
            bail!("{} says nothing to {command:?}", line.at)
        }
        _ => return Ok(String::new()),
    }
    Ok(said.trim_end().to_owned())
}

/// Load for a while, and beside it something that happens so often a second: it is told the how manieth time it is, and says how many
/// faults it has made.
pub(super) fn under(
    group: &Group,
    clients: &mut Clients,
    time: Duration,
    a_second: f64,
    mut fault: impl FnMut(&mut [Line], usize) -> Result<u64> + Send,
) -> Result<(Load, u64)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let striker = scope.spawn(|| -> Result<u64> {
            let line = |at: &SocketAddr| Line {
                at: *at,
                open: None,
            };
            let mut lines: Vec<Line> = group.clients.iter().map(line).collect();
            let began = Instant::now();
            let mut made = 0;
            for turn in 0_u32.. {
                let due = began + Duration::from_secs_f64(f64::from(turn) / a_second);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if over.load(Ordering::Relaxed) {
                    break;
                }
                made += fault(&mut lines, turn as usize)?;
            }
            Ok(made)
        });
        let load = clients.saturate(time);
        over.store(true, Ordering::Relaxed);
        let made = striker
            .join()
            .map_err(|_| anyhow::anyhow!("the striker panicked"))??;
        Ok((load?, made))
    })
}

/// Load for a while, with strikes at random objects, fields, bytes and bits of random replicas; how many hit.
fn under_strikes(
    group: &Group,
    clients: &mut Clients,
    time: Duration,
    a_second: f64,
    seed: u64,
) -> Result<(Load, u64)> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let keys: Vec<String> = (0..512).map(|_| clients.some_key(&mut rng)).collect();
    under(group, clients, time, a_second, |lines, _| {
        // An object is hit in one replica alone: two at a time are more than the vote promises to stand.
        let key = &keys[rng.below(keys.len())];
        let replica = key.bytes().map(usize::from).sum::<usize>() % lines.len();
        let (field, bytes) = [
            ("value", VALUE_BYTES),
            ("key", KEY_BYTES),
            ("flags", 4),
            ("expires", 8),
            ("cas", 8),
        ][[0, 0, 0, 0, 0, 0, 1, 2, 3, 4][rng.below(10)]];
        let command = format!(
            "strike replica={replica} object=item:{key} field={field} byte={} bit={}",
            rng.below(bytes),
            rng.below(8)
        );
        match ask(&mut lines[replica], &command)?.as_str() {
            "STRUCK" => Ok(1),
            // Struck before, and not repaired yet: its key or its lengths do not read.
            said if said.is_empty() || said.starts_with("ERROR") => Ok(0),
            said => bail!("a strike was answered with {said:?}"),
        }
    })
}

/// Strikes until there are enough, and what the clients were answered.
pub(super) fn strikes(
    plan: &Plan,
    stage: &str,
    says: &mut dyn FnMut(&str),
    rows: &mut Vec<Row>,
) -> Result<()> {
    let group = Group::start(plan, stage)?;
    let shape = Shape {
        keys: 100,
        ..Shape::of_paper(30, 75)
    };
    let mut clients = group.connect(shape, plan.seed)?;
    let mut sum = Load::default();
    let mut hits = 0;
    // Without the vote a group serves wrong values from the first second on: a look is enough.
    let wanted = if stage == "RDGX" {
        plan.strikes
    } else {
        plan.strikes.min(500)
    };
    while hits < wanted {
        let (load, struck) = under_strikes(
            &group,
            &mut clients,
            Duration::from_secs(5),
            200.0,
            plan.seed + hits,
        )?;
        hits += struck;
        sum.add(load);
        says(&format!(
            "{stage}: {hits} strikes, {} requests, {} wrong replies, {} errors{}",
            sum.requests,
            sum.wrong,
            sum.refused,
            sum.example
                .iter()
                .map(|text| format!(", such as {text:?}"))
                .collect::<String>()
        ));
    }
    let key = stage.to_lowercase();
    rows.push(Row::share(
        format!("strikes.{key}.wrong"),
        format!("wrong replies for each strike under load, {stage}"),
        sum.wrong.min(hits),
        hits,
    ));
    rows.push(Row::share(
        format!("strikes.{key}.refused"),
        format!("requests under strikes that were answered with an error, {stage}"),
        sum.refused,
        sum.requests,
    ));
    if stage == "RDGX" {
        let repairs = group.count("repairs")?;
        rows.push(Row::share(
            format!("strikes.{key}.repaired"),
            "strikes that a repair undid; a SET undoes the others".to_owned(),
            repairs.min(hits),
            hits,
        ));
    }
    Ok(())
}
