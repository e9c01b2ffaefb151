//! `bench soak`: many requests to a server without a fault, to count its false alarms.
//!
//! For each seed the server is started anew, asked as fast as one client can, and every reply is
//! compared. A wrong reply, an end of the server, or a word of its runtime in its log ends the
//! count: there is no such thing as a tolerated alarm.
//!
//! memcached gets another mix for each seed: value sizes from 1 byte to 8 KiB, shares of `get` from
//! 10 to 95 percent. dnsmasq gets other names in another order.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::load::memcached::Mix;
use crate::load::process::{Running, Split, on_client_cpu};
use crate::load::{dns, memcached};

/// How much is asked, and how.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Over all seeds.
    pub requests: u64,
    pub first_seed: u64,
    pub seeds: u64,
    pub envelope: bool,
    /// Workers (memcached).
    pub threads: usize,
}

/// Between two looks at how many requests were made.
const SLICE: Duration = Duration::from_millis(250);

const CONNECTIONS: usize = 16;
const VALUE_BYTES: [usize; 6] = [1, 8, 100, 1024, 2500, 8192];
const GET_PERCENT: [usize; 3] = [90, 50, 10];

/// Asks until each seed has had its share; returns the number of requests.
///
/// # Errors
/// With the seed, when a reply is wrong, the server ends, or it says anything of an alarm.
pub fn run(
    server: &str,
    program: &Path,
    dir: &Path,
    settings: Settings,
    mut says: impl FnMut(u64, u64),
) -> Result<u64> {
    let share = settings.requests.div_ceil(settings.seeds.max(1));
    let mut total = 0;
    for seed in settings.first_seed..settings.first_seed + settings.seeds {
        total += one(server, program, dir, settings, seed, share)
            .with_context(|| format!("with seed {seed}, after {total} requests"))?;
        says(seed, total);
    }
    Ok(total)
}

fn one(
    server: &str,
    program: &Path,
    dir: &Path,
    settings: Settings,
    seed: u64,
    share: u64,
) -> Result<u64> {
    let split = if server == "dnsmasq" {
        Split::everywhere()?
    } else {
        Split::shared(settings.threads)?
    };
    let pick = usize::try_from(seed).unwrap_or(0);
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let log = dir.join(format!("{server}.log"));
    let mut done = 0;
    let mut running: Running;
    if server == "memcached" {
        running = memcached::start(program, &split, 256, &log)?;
        let mix = Mix {
            keys: 5000,
            value_bytes: VALUE_BYTES[pick % VALUE_BYTES.len()],
            get_percent: GET_PERCENT[pick / VALUE_BYTES.len() % GET_PERCENT.len()],
        };
        on_client_cpu(&split, || {
            let mut client = memcached::Client::connect(
                running.address,
                CONNECTIONS,
                settings.envelope,
                mix,
                seed,
            )?;
            while done < share {
                done += client.saturate(&running, Duration::ZERO, SLICE)?.requests;
            }
            Ok(())
        })?;
    } else {
        running = dns::start(program, &split, dir, &[])?;
        on_client_cpu(&split, || {
            let mut client = dns::Client::connect(running.address, settings.envelope, seed)?;
            while done < share {
                done += client.saturate(&running, Duration::ZERO, SLICE)?.requests;
            }
            Ok(())
        })?;
    }
    running.check_alive()?;
    let said = fs::read_to_string(&log).unwrap_or_default();
    if let Some(line) = said.lines().find(|line| line.contains("steadfast:")) {
        bail!("the server says {line:?}");
    }
    Ok(done)
}
