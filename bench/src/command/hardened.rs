//! What `bench sei-alarms`, `bench soak` and `bench sei-tables` build and measure.

use std::path::PathBuf;

use anyhow::Result;
use steadfast_bench::machine::{self, Machine};
use steadfast_bench::product::Product;
use steadfast_bench::sample::Runner;
use steadfast_bench::sei_tables::phases;
use steadfast_bench::{sei_builds, sei_servers, sei_tables};
use steadfast_workloads::Store;
use steadfast_workloads::servers::build::{Builds, Recipe};
use steadfast_workloads::servers::source::Sources;
use steadfast_workloads::servers::{SERVERS, Server};

use super::cli::{Common, SeiTable};
use super::outcome::save;
use super::says::Says;

/// Servers that are built so, of those names; memcached and dnsmasq if none is said.
pub(crate) fn servers(
    names: &[String],
    recipe: impl Fn(&Server) -> Result<Recipe>,
    says: &mut Says,
) -> Result<Vec<(String, PathBuf)>> {
    let store = Store::default_place();
    let sources = Sources::at(store.sources());
    let makes = Builds::at(store.servers(), machine::cores());
    SERVERS
        .iter()
        .filter(|server| server.name != "nghttpd")
        .filter(|server| names.is_empty() || names.iter().any(|name| name == server.name))
        .map(|server| {
            let recipe = recipe(server)?;
            let built = makes.build(server, &recipe, &sources, &mut |step| says.say(step))?;
            Ok((server.name.to_owned(), built.program))
        })
        .collect()
}

#[expect(
    clippy::too_many_arguments,
    reason = "what the command line says, passed on once"
)]
pub(crate) fn sei_report(
    runner: &Runner,
    machine: Machine,
    common: &Common,
    what: &[SeiTable],
    settings: &sei_tables::Settings,
    only: &[String],
    seconds: f64,
    says: &mut Says,
) -> Result<sei_tables::SeiTablesReport> {
    let wanted = sei_builds::wanted(only)?;
    let recipe =
        |variant: &str, server: &Server| sei_builds::recipe(variant, server, &Product::find());
    let product = Product::find();
    let store = Store::default_place();
    let sources = Sources::at(store.sources());
    let makes = Builds::at(store.servers(), machine::cores());
    let build = |server: &'static Server, recipe: &Recipe, says: &mut Says| {
        makes.build(server, recipe, &sources, &mut |step| says.say(step))
    };
    let memcached = &SERVERS[0];
    let variant = |name: &str, built_as: &str, says: &mut Says| -> Result<sei_tables::Variant> {
        // A table of what is there needs no program.
        let program = match settings.runs {
            0 => PathBuf::new(),
            _ => build(memcached, &recipe(built_as, memcached)?, says)?.program,
        };
        Ok(sei_tables::Variant {
            name: name.to_owned(),
            program,
            hardened: name != "mc",
        })
    };
    let variants = |names: &[&str], says: &mut Says| -> Result<Vec<sei_tables::Variant>> {
        names.iter().map(|name| variant(name, name, says)).collect()
    };
    let mut report = sei_tables::SeiTablesReport {
        bench: "sei-tables".to_owned(),
        machine,
        seed: common.seed,
        table2: None,
        table3: None,
        table4: None,
        table5: None,
        figure6: None,
        complete: true,
    };
    for what in what {
        match what {
            SeiTable::Table2 => {
                let names: Vec<&str> = wanted
                    .iter()
                    .copied()
                    .filter(|name| *name != "mc-seil")
                    .collect();
                let variants = variants(&names, says)?;
                let say = &mut |step: &str| says.say(step);
                let table = sei_tables::table2(product.path(), &variants, settings, say)?;
                report.table2 = Some(table);
            }
            SeiTable::Table3 => {
                // With one thread the barrier waits for nobody, so Table 2's mc-sei does without.
                let variants = [("mc-sei", "barrier"), ("mc-seil", "mc-sei")]
                    .into_iter()
                    .filter(|(name, _)| only.is_empty() || only.iter().any(|word| word == name))
                    .map(|(name, built_as)| variant(name, built_as, says))
                    .collect::<Result<Vec<_>>>()?;
                let say = &mut |step: &str| says.say(step);
                let table = sei_tables::table3(product.path(), &variants, settings, say)?;
                report.table3 = Some(table);
            }
            SeiTable::Table4 => {
                let names: Vec<&str> = wanted
                    .iter()
                    .copied()
                    .filter(|name| ["mc", "mc-sei"].contains(name))
                    .collect();
                let variants = variants(&names, says)?;
                let say = &mut |step: &str| says.say(step);
                let table = sei_tables::table4(product.path(), &variants, settings, say)?;
                report.table4 = Some(table);
            }
            SeiTable::Table5 => {
                let dnsmasq = &SERVERS[1];
                let mut builds = Vec::new();
                for (name, file, recipe) in [
                    ("native", "native", Recipe::plain()),
                    (phases::FULL, "full", recipe("mc-sei", dnsmasq)?),
                    (phases::LEVEL, "sei", sei_builds::bare_level(dnsmasq)),
                ] {
                    let counters = store.servers().join(format!("phases-{file}.bin"));
                    let recipe = phases::beneath(recipe, &store.servers(), &counters)?;
                    let built =
                        makes.build(dnsmasq, &recipe, &sources, &mut |step| says.say(step))?;
                    builds.push(phases::Build {
                        name: name.to_owned(),
                        program: built.program,
                        counters,
                        envelope: recipe.envelope,
                    });
                }
                report.table5 = Some(phases::measure(
                    &builds,
                    &settings.out.join("phases"),
                    common.pairs,
                    seconds,
                    common.seed,
                    &mut |step| says.say(step),
                )?);
            }
            SeiTable::Figure6 => {
                let mut builds = Vec::new();
                for name in ["mc", "mc-sei"] {
                    let recipe = recipe(name, memcached)?;
                    let built =
                        makes.build(memcached, &recipe, &sources, &mut |step| says.say(step))?;
                    builds.push(sei_builds::Build {
                        column: if name == "mc" { "plain" } else { "hardened" }.to_owned(),
                        server: memcached.name.to_owned(),
                        program: built.program,
                        envelope: recipe.envelope,
                    });
                }
                let measured = sei_servers::measure(
                    &sei_servers::figure6_rows(machine::cores()),
                    &builds,
                    &settings.out,
                    &sei_servers::Settings {
                        pairs: common.pairs,
                        seed: common.seed,
                        seconds,
                        rate_steps: 6,
                        low_rate: 10_000.0,
                        only: Vec::new(),
                    },
                    report.machine.clone(),
                    &|| runner.interrupted(),
                    &mut |step| says.say(step),
                )?;
                report.complete = measured.complete;
                report.figure6 = Some(measured);
            }
        }
        if let Some(file) = &common.json {
            save(file, &serde_json::to_value(&report)?)?;
        }
    }
    Ok(report)
}
