//! The builds of servers that `bench sei-servers` and `bench sei-tables` compare: plain, hardened at each level and with each mode, and
//! hardened without one of the checks that are beyond the paper's rules.
//!
//! Invariant: what is measured as hardened is asked for its handlers and its level, by the binary, before anything runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use steadfast_workloads::Store;
use steadfast_workloads::servers::build::{Builds, Recipe};
use steadfast_workloads::servers::deadwood::DEADWOOD;
use steadfast_workloads::servers::source::Sources;
use steadfast_workloads::servers::{SERVERS, Server};

use crate::product::Product;
use crate::{machine, sei};

/// One build that is measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Build {
    pub column: String,
    pub server: String,
    pub program: PathBuf,
    /// Whether clients ask for the message envelope.
    pub envelope: bool,
}

/// The column at the level of the paper's rules that has the envelope: what it needs less than one without all checks of the runtime is what
/// the compiler pass adds beyond these rules.
pub const LEVEL: &str = "sei with envelope";

/// The column of a build without a check.
#[must_use]
pub fn without_column(check: &str) -> String {
    format!("without {check}")
}

/// The paper's variants, and ours: what [`recipe`] builds them with.
pub const VARIANTS: [&str; 8] = [
    "mc",
    "mc-sei",
    "mc-seil",
    "mc-sei-dup",
    "mc-sei-between",
    "mc-sei-dup-between",
    "mc-sei-recover",
    "mc-sei-level",
];

/// What a variant's name begins with that lacks one check.
const WITHOUT: &str = "mc-sei-without-";

/// Of these, those that the paper has.
pub const PAPER_VARIANTS: [&str; 3] = ["mc", "mc-sei", "mc-sei-dup"];

/// A check that is beyond the paper's rules, and its bit in cc/runtime/runtime.h.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub name: &'static str,
    bit: u32,
    pub what: &'static str,
}

const fn check(name: &'static str, bit: u32, what: &'static str) -> Check {
    Check { name, bit, what }
}

/// The checks of the runtime that are beyond the paper's rules.
pub const CHECKS: [Check; 5] = [
    check(
        "inputs",
        1,
        "inputs compared with what was received, and streams",
    ),
    check(
        "outputs",
        2,
        "outputs compared when the kernel is handed them",
    ),
    check("places", 4, "where the runtime's own stores went"),
    check("frames", 8, "both records of the frames' bounds"),
    check("locks", 16, "the sum of the list of locks"),
];

/// Whether a variant is known, or which are.
///
/// # Errors
/// When it is not.
pub fn known(variant: &str) -> Result<()> {
    if VARIANTS.contains(&variant) || lacks(variant).is_some() {
        return Ok(());
    }
    let checks: Vec<String> = CHECKS
        .iter()
        .map(|check| format!("{WITHOUT}{}", check.name))
        .collect();
    bail!(
        "no variant is called {variant:?}; known: {}, {}",
        VARIANTS.join(", "),
        checks.join(", ")
    )
}

/// The variants that are meant, in one order: those that are named, or the paper's.
///
/// # Errors
/// When a name is not known.
pub fn wanted(only: &[String]) -> Result<Vec<&str>> {
    if only.is_empty() {
        return Ok(PAPER_VARIANTS.to_vec());
    }
    only.iter().try_for_each(|name| known(name))?;
    let mut names: Vec<&str> = only.iter().map(String::as_str).collect();
    names.sort_by_key(|name| {
        VARIANTS
            .iter()
            .position(|known| known == name)
            .unwrap_or(VARIANTS.len())
    });
    Ok(names)
}

/// The check that a variant lacks.
fn lacks(variant: &str) -> Option<&'static Check> {
    let name = variant.strip_prefix(WITHOUT)?;
    CHECKS.iter().find(|check| check.name == name)
}

/// How a variant is built.
///
/// # Errors
/// When it needs a runtime of its own that cannot be made.
pub fn recipe(variant: &str, server: &Server, product: &Product) -> Result<Recipe> {
    let hardened = |name, words, policies: &[&str]| {
        Recipe::hardened(name, server, product.path(), words, policies)
    };
    if let Some(check) = lacks(variant) {
        return without(check, server, product);
    }
    Ok(match variant {
        "mc" => Recipe::plain(),
        "mc-sei-dup" => hardened("hardened-dup", "--state=dup", &["state"]),
        "mc-sei-between" => hardened("hardened-between", "--between=duplicate", &["between"]),
        "mc-sei-dup-between" => hardened(
            "hardened-dup-between",
            "--state=dup --between=duplicate",
            &["state", "between"],
        ),
        "mc-sei-recover" => hardened("hardened-recover", "--recover", &[]),
        "mc-sei-level" => hardened("hardened-level", "--protect=sei", &[]),
        "barrier" => hardened("hardened-barrier", "--barrier", &[]),
        _ => hardened("hardened", "", &[]),
    })
}

/// At the level of the paper's rules, and as its variants were measured: checksums are computed and do not leave.
#[must_use]
pub fn bare_level(server: &Server) -> Recipe {
    let product = Product::find();
    Recipe {
        envelope: false,
        ..Recipe::hardened("level-sei", server, product.path(), "--protect=sei", &[])
    }
}

/// All checks of `--protect=full` but one.
fn without(check: &Check, server: &Server, product: &Product) -> Result<Recipe> {
    let folder = runtime_without(check, product)?;
    let name = format!("without-{}", check.name);
    let mut recipe = Recipe::hardened(&name, server, product.path(), "", &[]);
    let folder = folder.display().to_string();
    recipe.env.push(("STEADFAST_HARDEN".to_owned(), folder));
    Ok(recipe)
}

/// A copy of what is built, in which the runtime lacks a check (cc/Makefile: BEYOND). It is made once for each build.
fn runtime_without(check: &Check, product: &Product) -> Result<PathBuf> {
    let place = Store::default_place().servers();
    std::fs::create_dir_all(&place)
        .with_context(|| format!("cannot create {}", place.display()))?;
    let folder = std::path::absolute(place.join(format!("runtime-without-{}", check.name)))?;
    let whole = product.path().with_file_name("cc");
    let made = |folder: &Path| std::fs::metadata(folder.join("complete"))?.modified();
    if made(&folder).is_ok_and(|own| made(&whole).is_ok_and(|whole| own > whole)) {
        return Ok(folder);
    }
    // The pass is the same, and so is all but what the checks are in.
    let _ = std::fs::remove_dir_all(&folder);
    let copied = Command::new("cp")
        .args(["-a", "-T"])
        .args([&whole, &folder])
        .status()?;
    if !copied.success() {
        bail!(
            "the runtime in {} is needed\n  fix:   make build",
            whole.display()
        );
    }
    for made_anew in ["core", "locks", "carry"] {
        let _ = std::fs::remove_file(folder.join(format!("obj/{made_anew}.rt.o")));
    }
    let all: u32 = CHECKS.iter().fold(0, |all, check| all | check.bit);
    let made = Command::new("make")
        .arg("-C")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("cc"))
        .arg(format!("OUT={}", folder.display()))
        .arg(format!("BEYOND={}", all & !check.bit))
        .output()
        .context("make could not be started")?;
    if !made.status.success() {
        bail!("{}", String::from_utf8_lossy(&made.stderr));
    }
    Ok(folder)
}

/// Servers as they are built.
struct Shop<'a> {
    sources: Sources,
    makes: Builds,
    product: Product,
    say: &'a mut dyn FnMut(&str),
}

impl<'a> Shop<'a> {
    fn open(say: &'a mut dyn FnMut(&str)) -> Self {
        let store = Store::default_place();
        Shop {
            sources: Sources::at(store.sources()),
            makes: Builds::at(store.servers(), machine::cores()),
            product: Product::find(),
            say,
        }
    }

    fn build(&mut self, server: &'static Server, recipe: &Recipe) -> Result<PathBuf> {
        let built = self
            .makes
            .build(server, recipe, &self.sources, &mut |step| (self.say)(step))?;
        Ok(built.program)
    }

    /// Of a level that the binary says.
    fn hardened(
        &mut self,
        server: &'static Server,
        recipe: &Recipe,
        level: &str,
    ) -> Result<PathBuf> {
        let program = self.build(server, recipe)?;
        is_hardened(server, &program)?;
        sei::has_level(&self.product, &program, level)?;
        Ok(program)
    }
}

/// A program that is measured as hardened has the handlers of the server's policy, with stores that are logged: read from the binary.
fn is_hardened(server: &Server, program: &Path) -> Result<()> {
    let told = Command::new(Product::find().path())
        .args(["cc", "--coverage=json"])
        .arg(program)
        .output()?;
    let coverage: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    let has = |name: &str| {
        coverage["handlers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|handler| handler["name"] == name))
    };
    let needed = match server.name {
        "memcached" => "process_command_ascii",
        "deadwood" => "get_local_udp_packet",
        _ => "answer_request",
    };
    let bytes = std::fs::read(program)?;
    let abi = bytes.windows(9).any(|name| name == b"__sf_abi_");
    let logged = coverage["stores"]["logged"].as_u64().unwrap_or_default();
    if !has(needed) || logged == 0 || !abi {
        bail!(
            "a hardened {} with the handler {needed} is needed, found {} without it\n  fix:   leave the option out: the bench builds it itself",
            server.name,
            program.display()
        );
    }
    Ok(())
}

/// The columns of `bench sei-servers` for these servers: plain, plain with zeroed locals, with the message envelope alone, hardened (the program that is given,
/// or built), and at the level of the paper's rules.
///
/// # Errors
/// When a build fails, or is not what it is said to be.
pub fn columns(
    servers: &BTreeSet<&str>,
    memcached: Option<&Path>,
    dnsmasq: Option<&Path>,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Build>> {
    let mut shop = Shop::open(say);
    let product = Product::find();
    let mut builds = Vec::new();
    for server in SERVERS
        .iter()
        .filter(|server| servers.contains(server.name))
    {
        let mut add = |column: &str, program: PathBuf| {
            builds.push(Build {
                column: column.to_owned(),
                server: server.name.to_owned(),
                program,
                envelope: !["plain", "zeroed", "sei"].contains(&column),
            });
        };
        for recipe in [Recipe::plain(), Recipe::zeroed(), Recipe::envelope()] {
            add(&recipe.variant, shop.build(server, &recipe)?);
        }
        let given = match server.name {
            "memcached" => memcached,
            _ => dnsmasq,
        };
        match given {
            Some(program) => {
                is_hardened(server, program)?;
                add("hardened", program.to_owned());
            }
            None => {
                let full = recipe("mc-sei", server, &product)?;
                add("hardened", shop.hardened(server, &full, "full")?);
            }
        }
        add("sei", shop.hardened(server, &bare_level(server), "sei")?);
    }
    if servers.contains(DEADWOOD.name) && shop.sources.fetch(&DEADWOOD, shop.say).is_ok() {
        builds.extend(deadwood(&mut shop)?);
    }
    Ok(builds)
}

/// The published evaluation's own DNS server, where its source was given (`workloads server build deadwood --source DIR`). It sends by a call
/// that the envelope does not cover.
fn deadwood(shop: &mut Shop<'_>) -> Result<Vec<Build>> {
    let product = Product::find();
    let hardened = Recipe {
        envelope: false,
        ..Recipe::hardened("hardened", &DEADWOOD, product.path(), "", &[])
    };
    let programs = [
        ("plain", shop.build(&DEADWOOD, &Recipe::plain())?),
        ("hardened", shop.hardened(&DEADWOOD, &hardened, "full")?),
        (
            "sei",
            shop.hardened(&DEADWOOD, &bare_level(&DEADWOOD), "sei")?,
        ),
    ];
    let builds = programs.map(|(column, program)| Build {
        column: column.to_owned(),
        server: DEADWOOD.name.to_owned(),
        program,
        envelope: false,
    });
    Ok(builds.into())
}

/// memcached without each check, and, with the envelope as all of these, at the level of the paper's rules.
///
/// # Errors
/// As [`columns`].
pub fn without_checks(say: &mut dyn FnMut(&str)) -> Result<Vec<Build>> {
    let mut shop = Shop::open(say);
    let product = Product::find();
    let server = SERVERS
        .iter()
        .find(|server| server.name == "memcached")
        .context("memcached is among the servers")?;
    let mut builds = Vec::new();
    let mut add = |column: String, program: PathBuf| {
        builds.push(Build {
            column,
            server: server.name.to_owned(),
            program,
            envelope: true,
        });
    };
    for check in &CHECKS {
        let program = shop.hardened(server, &without(check, server, &product)?, "full")?;
        add(without_column(check.name), program);
    }
    let level = recipe("mc-sei-level", server, &product)?;
    add(LEVEL.to_owned(), shop.hardened(server, &level, "sei")?);
    Ok(builds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_known_by_name_or_by_the_check_they_lack() {
        assert!(known("mc-sei-level").is_ok());
        assert!(known("mc-sei-without-outputs").is_ok());
        let error = known("mc-sei-without-hope").unwrap_err().to_string();
        assert!(error.contains("mc-sei-without-locks"), "{error}");
    }

    #[test]
    fn checks_are_those_of_the_runtime() {
        let header = include_str!("../../cc/runtime/runtime.h");
        for check in &CHECKS {
            let line = format!("#define SF_{} {}", check.name.to_uppercase(), check.bit);
            let defined = header.lines().any(|there| {
                there
                    .strip_prefix(line.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            });
            assert!(defined, "{line}");
        }
    }
}
