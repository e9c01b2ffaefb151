//! The rows of `bench sei-servers`: a server, its load, and what is promised about it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use steadfast_workloads::load::dns;
use steadfast_workloads::load::memcached::Mix;

/// What a row's promise limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Loss of saturated throughput per CPU: percent by which CPU time per request grows, turned
    /// into the throughput that is lost.
    ThroughputLoss,
    /// Percent by which the mean response time at a low rate grows.
    ResponseTime,
}

/// One row: a server under one load.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: Cow<'static, str>,
    pub server: &'static str,
    pub threads: usize,
    pub(super) mix: Mix,
    /// Requests per second at which response times are compared, where it is not what the caller says: the published one.
    pub(super) low_rate: Option<f64>,
    /// What is promised, in percent.
    pub(super) targets: &'static [(Metric, f64)],
    /// The same at the level of the paper's rules.
    pub(super) sei: &'static [(Metric, f64)],
}

/// The rows of dnsmasq and Deadwood ask for these.
const NAMES: Mix = mix(dns::HOSTS, 4, 100);

/// The published rate of Deadwood's response times.
const DEADWOOD_RATE: Option<f64> = Some(1000.0);

const fn mix(keys: usize, value_bytes: usize, get_percent: usize) -> Mix {
    Mix {
        keys,
        value_bytes,
        get_percent,
    }
}

/// The rows, in the order in which they are shown. 8 B values over 8 threads need nine CPUs.
pub const ROWS: [Row; 12] = [
    Row {
        name: Cow::Borrowed("8 B, 8 threads"),
        server: "memcached",
        threads: 8,
        mix: mix(100_000, 8, 95),
        low_rate: None,
        targets: &[(Metric::ThroughputLoss, 10.0)],
        sei: &[],
    },
    Row {
        name: Cow::Borrowed("128 B, 8 threads"),
        server: "memcached",
        threads: 8,
        mix: mix(100_000, 128, 95),
        low_rate: None,
        targets: &[(Metric::ThroughputLoss, 2.0)],
        sei: &[],
    },
    Row {
        name: Cow::Borrowed("8 B"),
        server: "memcached",
        threads: 1,
        mix: mix(100_000, 8, 95),
        low_rate: None,
        targets: &[],
        sei: &[],
    },
    Row {
        name: Cow::Borrowed("8 B, half sets"),
        server: "memcached",
        threads: 1,
        mix: mix(100_000, 8, 50),
        low_rate: None,
        targets: &[],
        sei: &[],
    },
    Row {
        name: Cow::Borrowed("8 B, 10 keys"),
        server: "memcached",
        threads: 1,
        mix: mix(10, 8, 95),
        low_rate: None,
        targets: &[],
        sei: &[],
    },
    Row {
        name: Cow::Borrowed("8 B, 1 M keys"),
        server: "memcached",
        threads: 1,
        mix: mix(1_000_000, 8, 95),
        low_rate: None,
        targets: &[],
        sei: &[],
    },
    Row {
        name: Cow::Borrowed("128 B"),
        server: "memcached",
        threads: 1,
        mix: mix(100_000, 128, 95),
        low_rate: None,
        targets: &[],
        sei: &[],
    },
    Row {
        name: Cow::Borrowed("1 KiB"),
        server: "memcached",
        threads: 1,
        mix: mix(100_000, 1 << 10, 95),
        low_rate: None,
        targets: &[(Metric::ThroughputLoss, 8.0), (Metric::ResponseTime, 3.0)],
        sei: &[(Metric::ThroughputLoss, 12.0)],
    },
    Row {
        name: Cow::Borrowed("8 KiB"),
        server: "memcached",
        threads: 1,
        mix: mix(20_000, 8 << 10, 95),
        low_rate: None,
        targets: &[],
        sei: &[],
    },
    Row {
        name: Cow::Borrowed("DNS, A record"),
        server: "dnsmasq",
        threads: 1,
        mix: NAMES,
        low_rate: None,
        targets: &[],
        sei: &[],
    },
    Row {
        name: Cow::Borrowed("Deadwood, cached names"),
        server: "deadwood",
        threads: 1,
        mix: NAMES,
        low_rate: DEADWOOD_RATE,
        targets: &[(Metric::ThroughputLoss, 45.0), (Metric::ResponseTime, 15.0)],
        sei: &[(Metric::ThroughputLoss, 35.0), (Metric::ResponseTime, 10.0)],
    },
    Row {
        name: Cow::Borrowed(FORWARDED),
        server: "deadwood",
        threads: 1,
        mix: NAMES,
        low_rate: DEADWOOD_RATE,
        targets: &[],
        sei: &[],
    },
];

/// Deadwood asks another server about each of its names.
pub(super) const FORWARDED: &str = "Deadwood, forwarded names";

/// The rows of the paper's Figure 6, get requests alone: threads from 1 to 8 with 1,000 keys, then numbers of keys with as
/// many threads as the paper has, or as this machine can give.
#[must_use]
pub fn figure6_rows(cpus: usize) -> Vec<Row> {
    let row = |threads: usize, keys: usize, value_bytes: usize| Row {
        name: Cow::Owned(format!("{value_bytes} B, {threads} threads, {keys} keys")),
        server: "memcached",
        threads,
        mix: mix(keys, value_bytes, 100),
        low_rate: None,
        targets: &[],
        sei: &[],
    };
    let sizes = [8, 128, 256];
    let most = cpus.saturating_sub(1).clamp(1, 8);
    let mut rows = Vec::new();
    for threads in [1, 2, 4, 8] {
        rows.extend(sizes.map(|bytes| row(threads, 1000, bytes)));
    }
    for keys in [10, 100, 10_000, 1_000_000] {
        rows.extend(sizes.map(|bytes| row(most, keys, bytes)));
    }
    rows
}
