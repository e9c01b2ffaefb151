//! `bench host`, `bench pair`, `bench kv`: programs of their own, which need no runner.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use steadfast_bench::{host, kv, pair};

use super::cli::{Action, Common};
use super::outcome::Outcome;

pub(crate) fn host(action: &Action, common: &Common) -> Result<Outcome> {
    let Action::Host {
        program,
        flips,
        flips_only,
        lines,
        lines_only,
        as_paper,
        vectors,
        only,
    } = action
    else {
        bail!("nothing to measure")
    };
    let groups = match (as_paper, vectors) {
        (true, _) => Some(host::Groups::Paper),
        (_, true) => Some(host::Groups::Vectors),
        _ => None,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = root.with_file_name("build/bench");
    let lines = lines.clone();
    let plan = host::Plan {
        program: program
            .clone()
            .unwrap_or_else(|| root.with_file_name("target/release/steadfast-host")),
        flips: *flips,
        flips_only: *flips_only,
        rounds: common.pairs,
        seed: common.seed,
        lines: lines.unwrap_or_else(|| place.join("host-flips.jsonl")),
        lines_only: *lines_only,
        only: only.clone(),
        groups,
        place,
    };
    let rows = host::measure(&plan)?;
    let outcome = Outcome::new(&rows, host::render(&rows), true)?;
    Ok(outcome.keeping(rows))
}

pub(crate) fn pair(action: &Action, common: &Common) -> Result<Outcome> {
    let Action::Pair {
        program,
        hold,
        micro,
        exchange,
        digest,
        tracking,
        every,
        dirty,
        memory,
        servers,
        postmark,
        image,
        reads,
        lost,
        lose,
        only,
        server,
    } = action
    else {
        bail!("nothing to measure")
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = program
        .clone()
        .unwrap_or_else(|| root.with_file_name("target/release/steadfast-pair"));
    let place = root.with_file_name("build/bench");
    if *micro {
        let own = exchange.as_ref().map(|exchange| pair::Own {
            exchange: exchange.clone(),
            digest: digest.clone(),
            tracking: tracking.clone(),
            every: *every,
            dirty: *dirty,
            megabytes: *memory,
        });
        let (rows, table) = pair::micro(&program, common.pairs, own.as_ref(), &place.join("pair"))?;
        return Ok(Outcome::new(&rows, table, true)?.keeping(rows));
    }
    let alone = if *postmark {
        Some(pair::postmark(&program, common.pairs, &place.join("pair"))?)
    } else if let Some(megabytes) = *image {
        Some(pair::image(
            &program,
            common.pairs,
            megabytes,
            &place.join("pair"),
        )?)
    } else if let Some(pages) = *reads {
        Some(pair::reads(&program, pages, &place.join("pair"))?)
    } else if let Some(times) = *lost {
        Some(pair::lost(times, &place, &mut |step| {
            eprintln!("bench: {step}")
        })?)
    } else {
        None
    };
    if let Some(rows) = alone {
        return Ok(Outcome::new(&rows, pair::render(&rows), true)?.keeping(rows));
    }
    if *servers {
        // Other users' programs read there.
        let rows = pair::load(
            &program,
            common.pairs,
            only,
            Path::new("/tmp/steadfast-bench-pair"),
        )?;
        return Ok(Outcome::new(&rows, pair::render(&rows), true)?.keeping(rows));
    }
    let rows = pair::measure(&pair::Plan {
        program,
        rounds: common.pairs,
        hold: *hold,
        lose: lose.clone(),
        server: server.clone(),
        place,
    })?;
    let outcome = Outcome::new(&rows, pair::render(&rows), true)?;
    Ok(outcome.keeping(rows))
}

pub(crate) fn kv(action: &Action, common: &Common) -> Result<Outcome> {
    let Action::Kv {
        program,
        memcached,
        etcd,
        yrmcds,
        workers,
        clients,
        slice_ms,
        repairs,
        strikes,
        class,
        simulated,
        runs,
        quiet,
        only,
    } = action
    else {
        bail!("nothing to measure")
    };
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target/release/steadfast-kv");
    let plan = kv::Plan {
        program: program.clone().unwrap_or(built),
        memcached: memcached.clone(),
        etcd: etcd.clone(),
        yrmcds: yrmcds.clone(),
        workers: workers.clone(),
        rounds: common.pairs,
        clients: clients.clone(),
        slice: Duration::from_millis(*slice_ms),
        repairs: *repairs,
        strikes: *strikes,
        classes: class.clone(),
        simulated: *simulated,
        runs: *runs,
        quiet: *quiet,
        only: *only,
        seed: common.seed,
    };
    let report = kv::measure(&plan, &mut |line| eprintln!("bench: {line}"))?;
    let outcome = Outcome::new(&report.rows, report.render(), true)?;
    Ok(outcome.keeping(report.rows))
}
