//! `bench soak`: false alarms of hardened memcached and dnsmasq, over requests from clients with many connections.
//!
//! Invariant: a wrong reply, an end of the server or a word of its runtime ends the count of its server, and stands in the
//! table as an error.
//!
//! Not covered: as many handlers as `bench sei-alarms` counts, which does without a network.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::soak::{self, Settings};

use crate::machine::Machine;
use crate::table;

/// One server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Count {
    pub server: String,
    pub requests: u64,
    /// What ended the count before its time.
    pub alarm: Option<String>,
}

/// The whole result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SoakReport {
    pub bench: String,
    pub machine: Machine,
    pub seed: u64,
    pub seeds: u64,
    pub servers: Vec<Count>,
}

/// Asks the servers given, by name and program.
pub fn measure(
    servers: &[(String, PathBuf)],
    place: &Path,
    settings: Settings,
    machine: Machine,
    say: &mut dyn FnMut(&str),
) -> SoakReport {
    let place = place.join("soak");
    let count = |(name, program): &(String, PathBuf)| {
        let mut requests = 0;
        let asked = soak::run(name, program, &place, settings, |seed, total| {
            requests = total;
            say(&format!("{name}: seed {seed}: {total} requests"));
        });
        Count {
            server: name.clone(),
            requests,
            alarm: asked.err().map(|why| format!("{why:#}")),
        }
    };
    SoakReport {
        bench: "soak".to_owned(),
        machine,
        seed: settings.first_seed,
        seeds: settings.seeds,
        servers: servers.iter().map(count).collect(),
    }
}

/// What is kept in `results/`: a count that an alarm ended has one.
#[must_use]
pub fn rows(report: &SoakReport) -> Vec<Row> {
    let row = |count: &Count| {
        let what = format!(
            "alarms in requests to {} over sockets, {} seeds; every reply right",
            count.server, report.seeds
        );
        let alarms = u64::from(count.alarm.is_some());
        let requests = count.requests.max(alarms);
        Row::share(format!("soak.{}", count.server), what, alarms, requests)
    };
    report.servers.iter().map(row).collect()
}

/// The table.
#[must_use]
pub fn render(report: &SoakReport) -> String {
    let row = |count: &Count| {
        let alarms = u64::from(count.alarm.is_some());
        let (requests, seeds) = (count.requests.to_string(), report.seeds.to_string());
        vec![count.server.clone(), requests, seeds, alarms.to_string()]
    };
    let rows: Vec<Vec<String>> = report.servers.iter().map(row).collect();
    let mut text = report.machine.render();
    text += &table::render(&["server", "requests", "seeds", "false alarms"], &rows);
    for count in &report.servers {
        if let Some(why) = &count.alarm {
            text += &format!("error {}: {why}\n", count.server);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_an_error_and_none_is_a_row() {
        let count = |server: &str, requests, alarm: Option<&str>| Count {
            server: server.to_owned(),
            requests,
            alarm: alarm.map(str::to_owned),
        };
        let report = SoakReport {
            bench: "soak".to_owned(),
            machine: crate::tests::machine(),
            seed: 1,
            seeds: 50,
            servers: vec![
                count("memcached", 2000, None),
                count("dnsmasq", 0, Some("a reply is wrong")),
            ],
        };
        let rows = rows(&report);
        assert_eq!(
            (rows[0].key.as_str(), rows[0].hits, rows[0].n),
            ("soak.memcached", Some(0), Some(2000))
        );
        assert_eq!((rows[1].hits, rows[1].n), (Some(1), Some(1)));
        let text = render(&report);
        assert!(text.contains("\nerror dnsmasq: a reply is wrong\n"));
        assert!(!text.contains("error memcached"));
    }
}
