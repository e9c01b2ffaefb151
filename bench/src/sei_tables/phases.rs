//! Table 5: cycles of one request in dispatch, handling and output, read off the time-stamp counter within dnsmasq.
//!
//! The counters are linked beneath the server (`guests/phases.c`), plain and hardened alike, and read from a shared file
//! while the server runs. Builds take turns; each number is the median over rounds, each ratio is taken within a round.
//!
//! Not covered: Deadwood, which the paper measured. dnsmasq is another program: shares are compared, cycles are not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::load::dns;
use steadfast_workloads::load::process::{Split, on_client_cpu};
use steadfast_workloads::servers::build::{CC, Recipe};

use crate::stats::{Estimate, median, median_estimate};
use crate::table;

/// The hardened builds, as tables call them.
pub const FULL: &str = "SEI-hardened";
pub const LEVEL: &str = "--protect=sei";

/// Requests of each round at least.
const REQUESTS_MIN: u64 = 10_000;

/// A server with the counters beneath.
#[derive(Clone, Debug)]
pub struct Build {
    pub name: String,
    pub program: PathBuf,
    /// Where its counters are.
    pub counters: PathBuf,
    pub envelope: bool,
}

/// Cycles of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cycles {
    pub dispatch: f64,
    pub handling: f64,
    pub output: f64,
}

impl Cycles {
    #[must_use]
    pub fn total(self) -> f64 {
        self.dispatch + self.handling + self.output
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phases {
    pub rounds: usize,
    /// By build, in the order measured; the first is the native one.
    pub builds: Vec<(String, Cycles)>,
    /// Of each build, round by round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Vec<Cycles>>,
}

impl Phases {
    /// A build's cycles over those of the native one, taken within each round.
    #[must_use]
    pub fn over_native(
        &self,
        build: &str,
        number: fn(&Cycles) -> f64,
        rng: &mut Rng,
    ) -> Option<Estimate> {
        let index = self.builds.iter().position(|(name, _)| name == build)?;
        let pairs = self.samples.get(index)?.iter().zip(self.samples.first()?);
        let ratios: Vec<f64> = pairs
            .map(|(mine, native)| number(mine) / number(native))
            .collect();
        median_estimate(&ratios, rng)
    }
}

/// The recipe with the counters linked beneath.
///
/// # Errors
/// When the counters do not compile.
pub fn beneath(recipe: Recipe, place: &Path, counters: &Path) -> Result<Recipe> {
    fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let object = counters.with_extension("o");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/phases.c");
    let out = Command::new(CC)
        .args([
            "-std=gnu11",
            "-O2",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-c",
        ])
        .arg(format!("-DPHASES=\"{}\"", counters.display()))
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .with_context(|| format!("{CC} could not be started"))?;
    ensure!(
        out.status.success(),
        "{} does not compile:\n{}",
        source.display(),
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(Recipe {
        variant: format!("{}-phases", recipe.variant),
        ldflags: format!(
            "{} -Wl,--wrap=answer_request,--wrap=do_poll",
            recipe.ldflags
        ),
        libs: format!("{} {}", recipe.libs, object.display()),
        ..recipe
    })
}

/// The counters so far: requests, and cycles of the three phases.
fn read(file: &Path) -> Result<[u64; 4]> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect();
    words
        .try_into()
        .ok()
        .with_context(|| format!("{} does not hold four counters", file.display()))
}

fn one(build: &Build, place: &Path, seconds: f64, seed: u64) -> Result<Cycles> {
    let split = Split::of(1)?;
    on_client_cpu(&split, || {
        let mut server = dns::start(&build.program, &split, place, &[])?;
        let mut client = dns::Client::connect(server.address, build.envelope, seed)?;
        let time = Duration::from_secs_f64(seconds);
        client.saturate(&server, Duration::ZERO, time / 4)?;
        let before = read(&build.counters)?;
        client.saturate(&server, Duration::ZERO, time)?;
        let after = read(&build.counters)?;
        server.check_alive()?;
        let requests = after[0] - before[0];
        ensure!(
            requests >= REQUESTS_MIN,
            "{}: {requests} requests in one handler call each, at least {REQUESTS_MIN} are required\n  fix:   --seconds",
            build.name
        );
        let each = |phase: usize| (after[phase] - before[phase]) as f64 / requests as f64;
        Ok(Cycles {
            dispatch: each(1),
            handling: each(2),
            output: each(3),
        })
    })
}

/// Measures all builds in turns.
///
/// # Errors
/// When a server fails, or there are fewer than two CPUs.
pub fn measure(
    builds: &[Build],
    place: &Path,
    rounds: usize,
    seconds: f64,
    seed: u64,
    say: &mut dyn FnMut(&str),
) -> Result<Phases> {
    fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let mut samples = vec![Vec::new(); builds.len()];
    for round in 0..rounds {
        say(&format!("phases: round {} of {rounds}", round + 1));
        for (build, samples) in builds.iter().zip(&mut samples) {
            samples.push(one(build, place, seconds, seed + round as u64)?);
        }
    }
    let middle = |samples: &[Cycles], phase: fn(&Cycles) -> f64| {
        median(&samples.iter().map(phase).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let found: Vec<(String, Cycles)> = builds
        .iter()
        .zip(&samples)
        .map(|(build, samples)| {
            let cycles = Cycles {
                dispatch: middle(samples, |c| c.dispatch),
                handling: middle(samples, |c| c.handling),
                output: middle(samples, |c| c.output),
            };
            (build.name.clone(), cycles)
        })
        .collect();
    Ok(Phases {
        rounds,
        builds: found,
        samples,
    })
}

/// The table as text: shares of the native build's cycles, as in the paper.
#[must_use]
pub fn render(phases: &Phases) -> String {
    let Some((_, native)) = phases.builds.first() else {
        return String::new();
    };
    let whole = native.total();
    let mut rows: Vec<Vec<String>> = phases
        .builds
        .iter()
        .map(|(name, cycles)| {
            let share = |value: f64| format!("{:.2}", 100.0 * value / whole);
            vec![
                name.clone(),
                share(cycles.dispatch),
                share(cycles.handling),
                share(cycles.output),
                share(cycles.total()),
                format!("{:.0}", cycles.total()),
                format!("{:.2}", cycles.handling / native.handling),
            ]
        })
        .collect();
    for (name, shares) in [
        (
            "paper: native",
            ["41.75", "27.51", "30.74", "100", "83000", "1.00"],
        ),
        (
            "paper: SEI-hardened",
            ["42.71", "66.81", "31.47", "141", "117000", "2.43"],
        ),
    ] {
        let mut row = vec![name.to_owned()];
        row.extend(shares.map(str::to_owned));
        rows.push(row);
    }
    format!(
        "Table 5: cycles of one request of a name server, % of the native build's (here dnsmasq, there Deadwood), {} rounds\n{}\n",
        phases.rounds,
        table::render(
            &[
                "build",
                "dispatch",
                "handling",
                "output",
                "total",
                "cycles",
                "handler x"
            ],
            &rows
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let handling = |handling| Cycles {
            handling,
            ..Cycles::default()
        };
        let phases = Phases {
            rounds: 3,
            builds: ["native", "hardened"]
                .map(|name| (name.to_owned(), handling(0.0)))
                .into(),
            samples: vec![
                [10.0, 20.0, 30.0].map(handling).into(),
                [30.0, 60.0, 90.0].map(handling).into(),
            ],
        };
        let ratio =
            |build: &str| phases.over_native(build, |cycles| cycles.handling, &mut Rng::new(1));
        let found = ratio("hardened").unwrap();
        assert_eq!((found.value, found.rounds), (3.0, 3));
        assert!(ratio("another").is_none());
    }

    #[test]
    fn shares_are_of_the_native_total() {
        let cycles = |dispatch, handling, output| Cycles {
            dispatch,
            handling,
            output,
        };
        let phases = Phases {
            rounds: 1,
            builds: vec![
                ("native".to_owned(), cycles(50.0, 30.0, 20.0)),
                ("hardened".to_owned(), cycles(50.0, 60.0, 20.0)),
            ],
            samples: Vec::new(),
        };
        let text = render(&phases);
        let hardened = text
            .lines()
            .find(|line| line.starts_with("hardened"))
            .unwrap();
        let words: Vec<&str> = hardened.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "hardened", "50.00", "60.00", "20.00", "130.00", "130", "2.00"
            ]
        );
    }
}
