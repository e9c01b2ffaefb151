//! The benchmarks that take a runner.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use steadfast_bench::machine::Machine;
use steadfast_bench::neighbour::Neighbours;
use steadfast_bench::product::Product;
use steadfast_bench::sample::Runner;
use steadfast_bench::{
    algorithm, cc_memory, doctor, inject, later, memory, micro, repair, rest, sei, sei_alarms,
    sei_builds, sei_servers, sei_tables, servers, soak, start, touch, trees,
};
use steadfast_workloads::Store;
use steadfast_workloads::servers::SERVERS;
use steadfast_workloads::servers::build::Builds;
use steadfast_workloads::soak::Settings;

use super::cli::{Action, Common};
use super::hardened::{self, sei_report};
use super::outcome::Outcome;
use super::programs::spec_report;
use super::says::Says;
use crate::interrupts;

pub(crate) fn measure(action: &Action, common: &Common) -> Result<Outcome> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("build")
        .join("bench");
    let guests = place.join("guests");
    // The first signal asks the rounds to stop and print what there is.
    let stop = interrupts()?;
    let product = Product::find();
    let machine = Machine::here(&product);
    let runner = Runner::new(product, &place, Duration::from_secs(common.limit), stop)?;
    let mut says = Says::new(common.pairs);
    match action {
        Action::Spec {
            programs,
            columns,
            size,
        } => spec_report(
            &runner, machine, common, programs, columns, *size, &mut says,
        ),
        Action::Micro {
            events,
            scale,
            replicas,
        } => {
            let settings = micro::Settings {
                pairs: common.pairs,
                seed: common.seed,
                scale: *scale,
                replicas_max: *replicas,
                only: events.clone(),
            };
            let report = micro::measure(&runner, &guests, &settings, machine, &mut says)?;
            Ok(
                Outcome::new(&report, micro::render(&report), report.complete)?
                    .keeping(micro::rows(&report)),
            )
        }
        Action::Touch { mib } => {
            let report = touch::measure(
                &runner,
                &guests,
                *mib,
                common.pairs,
                common.seed,
                machine,
                &mut says,
            )?;
            Ok(
                Outcome::new(&report, touch::render(&report), report.complete)?
                    .keeping(touch::rows(&report)),
            )
        }
        Action::Repair {
            mib,
            repairs,
            faults,
            redis_mib,
        } => {
            let settings = repair::Settings {
                redis_mib: *redis_mib,
                seed: common.seed,
                repairs: *repairs,
                faults: *faults,
                sizes_mib: mib.clone(),
            };
            let report =
                repair::measure(&runner, &guests, &settings, machine, |step| says.say(step))?;
            Ok(
                Outcome::new(&report, repair::render(&report), report.complete)?
                    .keeping(repair::rows(&report)),
            )
        }
        Action::Memory { mib } => {
            let (rounds, seed) = (common.pairs, common.seed);
            let say = |step: &str| says.say(step);
            let report = memory::measure(&runner, &guests, mib, rounds, seed, machine, say)?;
            Ok(
                Outcome::new(&report, memory::render(&report), !runner.interrupted())?
                    .keeping(memory::rows(&report)),
            )
        }
        Action::Start => {
            let report = start::measure(&runner, common.pairs, common.seed, machine, &mut says);
            Ok(
                Outcome::new(&report, start::render(&report), report.complete)?
                    .keeping(start::rows(&report)),
            )
        }
        Action::Trees { jobs, beside } => {
            let neighbours = Neighbours::start(beside.neighbours)?;
            let report = trees::measure(
                &runner,
                &guests,
                jobs,
                common.pairs,
                common.seed,
                machine,
                &mut says,
            )?;
            Ok(
                Outcome::new(&report, trees::render(&report), report.complete)?
                    .keeping(neighbours.rows(trees::rows(&report))),
            )
        }
        Action::Servers {
            jobs,
            seconds,
            idle,
            beside,
        } => {
            let neighbours = Neighbours::start(beside.neighbours)?;
            let plan = servers::Plan {
                product: &Product::find(),
                dir: &place.join("servers"),
                jobs: jobs.clone(),
                rounds: common.pairs,
                time: Duration::from_secs(*seconds),
                idle: Duration::from_secs(*idle),
                seed: common.seed,
            };
            let report = servers::measure(&plan, machine, &|| runner.interrupted(), &mut |step| {
                says.say(step);
            })?;
            let complete = report.complete && report.failures.is_empty();
            Ok(Outcome::new(&report, servers::render(&report), complete)?
                .keeping(neighbours.rows(servers::rows(&report))))
        }
        Action::ServerFlips {
            servers,
            flips,
            replicas,
            pause,
            lines,
        } => {
            let lines = lines
                .clone()
                .unwrap_or_else(|| place.join("server-flips.jsonl"));
            let plan = servers::flips::Plan {
                product: &Product::find(),
                dir: &place.join("server-flips"),
                lines: &lines,
                servers: servers.clone(),
                replicas: *replicas,
                flips: *flips,
                pause_ms: *pause,
                seed: common.seed,
            };
            let found = servers::flips::measure(&plan, &|| runner.interrupted(), &mut |step| {
                says.say(step);
            })?;
            let complete = found.complete;
            Ok(
                Outcome::new(&found, servers::flips::render(&found), complete)?
                    .keeping(servers::flips::rows(&found)),
            )
        }
        Action::Sei { scale, libsei } => {
            let built = sei::build(&guests, &Product::find(), libsei.as_deref())?;
            let report =
                sei::measure(&built, common.pairs, common.seed, *scale, machine, |step| {
                    says.say(step)
                })?;
            Ok(
                Outcome::new(&report, sei::render(&report), !runner.interrupted())?
                    .keeping(sei::rows(&report)),
            )
        }
        Action::Rest { scale, runs } => {
            let report = rest::measure(
                &Product::find(),
                &guests,
                common.pairs,
                *runs,
                common.seed,
                *scale,
                machine,
                |step| says.say(step),
            )?;
            Outcome::new(&report, rest::render(&report), !runner.interrupted())
        }
        Action::CcMemory => {
            let (rounds, seed) = (common.pairs, common.seed);
            let say = |step: &str| says.say(step);
            let report = cc_memory::measure(&Product::find(), &guests, rounds, seed, machine, say)?;
            Ok(
                Outcome::new(&report, cc_memory::render(&report), !runner.interrupted())?
                    .keeping(cc_memory::rows(&report)),
            )
        }
        Action::Later { scale } => {
            let report = later::measure(
                &Product::find(),
                &guests,
                common.pairs,
                common.seed,
                *scale,
                machine,
                |step| says.say(step),
            )?;
            Ok(
                Outcome::new(&report, later::render(&report), !runner.interrupted())?
                    .keeping(later::rows(&report)),
            )
        }
        Action::SeiAlarms { handlers, servers } => {
            let product = Product::find();
            let recipe = |server: &_| sei_alarms::recipe(server, product.path(), &place);
            let programs = hardened::servers(servers, recipe, &mut says)?;
            let report = sei_alarms::measure(
                &programs,
                &place,
                *handlers,
                common.seed,
                machine,
                &|| runner.interrupted(),
                &mut |step| says.say(step),
            )?;
            Ok(
                Outcome::new(&report, sei_alarms::render(&report), report.complete)?
                    .keeping(sei_alarms::rows(&report)),
            )
        }
        Action::Soak {
            requests,
            seeds,
            threads,
            servers,
        } => {
            let product = Product::find();
            let recipe = |server: &_| sei_builds::recipe("mc-sei", server, &product);
            let programs = hardened::servers(servers, recipe, &mut says)?;
            let settings = Settings {
                requests: *requests,
                first_seed: common.seed,
                seeds: *seeds,
                envelope: true,
                threads: *threads,
            };
            let say = &mut |step: &str| says.say(step);
            let report = soak::measure(&programs, &place, settings, machine, say);
            Ok(Outcome::new(&report, soak::render(&report), true)?.keeping(soak::rows(&report)))
        }
        Action::Algorithm { traces, without } => {
            let say = &mut |step: &str| says.say(step);
            let report = algorithm::measure(without, machine, say)?;
            let table = algorithm::render(&report, *traces || !without.is_empty());
            let mut outcome = Outcome::new(&report, table, true)?.keeping(algorithm::rows(&report));
            outcome.differs = !report.is_as_expected();
            Ok(outcome)
        }
        Action::Doctor {
            campaigns,
            most,
            within,
        } => {
            let say = &mut |step: &str| says.say(step);
            let report = doctor::measure(campaigns, *within, *most, machine, say)?;
            let mut outcome = Outcome::new(&report, doctor::render(&report), true)?
                .keeping(doctor::rows(&report));
            outcome.differs = report.campaigns.iter().any(|one| !one.different.is_empty());
            Ok(outcome)
        }
        Action::SeiServers {
            memcached,
            dnsmasq,
            rows,
            seconds,
            rate_steps,
            low_rate,
            checks,
        } => {
            let settings = sei_servers::Settings {
                pairs: common.pairs,
                seed: common.seed,
                seconds: *seconds,
                rate_steps: *rate_steps,
                low_rate: *low_rate,
                only: rows.clone(),
            };
            let say = &mut |step: &str| says.say(step);
            let servers = sei_servers::servers(&sei_servers::ROWS, &settings);
            let mut builds =
                sei_builds::columns(&servers, memcached.as_deref(), dnsmasq.as_deref(), say)?;
            if *checks {
                builds.extend(sei_builds::without_checks(say)?);
            }
            let report = sei_servers::measure(
                &sei_servers::ROWS,
                &builds,
                &place,
                &settings,
                machine,
                &|| runner.interrupted(),
                &mut |step| says.say(step),
            )?;
            Ok(
                Outcome::new(&report, sei_servers::render(&report), report.complete)?
                    .keeping(sei_servers::rows(&report)),
            )
        }
        Action::SeiTables {
            what,
            runs,
            jobs,
            budget,
            out,
            variants,
            faults,
            seconds,
        } => {
            let settings = sei_tables::Settings {
                out: out.clone().unwrap_or_else(|| place.join("sei-tables")),
                runs: *runs,
                seed: common.seed,
                jobs: *jobs,
                budget: budget.clone(),
                faults: faults.clone(),
            };
            let report = sei_report(
                &runner, machine, common, what, &settings, variants, *seconds, &mut says,
            )?;
            Ok(
                Outcome::new(&report, sei_tables::render(&report), report.complete)?
                    .keeping(sei_tables::rows(&report)),
            )
        }
        Action::Inject {
            programs,
            exact,
            no_throughput,
            memcached,
        } => {
            let plain = Builds::at(Store::default_place().servers(), 1).find(&SERVERS[0], "plain");
            let settings = inject::Settings {
                rounds: common.pairs,
                seed: common.seed,
                programs: programs.clone(),
                exact: *exact,
                throughput: !no_throughput,
                memcached: memcached.clone().or(plain.ok().map(|built| built.program)),
            };
            let place = std::env::temp_dir().join(format!("bench-inject-{}", std::process::id()));
            let report = inject::measure(
                &place,
                &settings,
                machine,
                &|| runner.interrupted(),
                &mut |step| says.say(step),
            )?;
            Ok(
                Outcome::new(&report, inject::render(&report), report.complete)?
                    .keeping(inject::rows(&report)),
            )
        }
        Action::Model { .. }
        | Action::Show { .. }
        | Action::Reproduce { .. }
        | Action::Flips(_)
        | Action::Python { .. }
        | Action::Suite { .. }
        | Action::Slurm { .. }
        | Action::Kv { .. }
        | Action::Host { .. }
        | Action::Pair { .. } => {
            bail!("nothing to measure")
        }
    }
}
