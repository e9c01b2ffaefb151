//! Random programs of csmith (volatile, unions, bit-fields, pointers to pointers), one mode of `steadfast cc` each: hardened they
//! print what they print plain, and the compiler does not stop.
//!
//! `func_1`, which calls all others, is the handler; with copies or checksums all global variables have them. Sample: a fixed
//! seed for each program. STEADFAST_CSMITH=N takes N programs a mode, from seed 1000 on (`make campaign`).
//!
//! Not covered: programs that do not end within two seconds; csmith says that these may come, and they are passed over. Those that
//! end do so in milliseconds.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

use crate::bench::Bench;
use crate::harden::compiler;
use crate::trial::Trial;

struct Mode {
    name: &'static str,
    flags: &'static [&'static str],
    /// Of the 24 programs of `make test`. Copies, where a generator has found a crash, get most.
    programs: u64,
}

#[rustfmt::skip]
const MODES: &[Mode] = &[
    Mode { name: "O0", flags: &["-O0"], programs: 2 },
    Mode { name: "O2", flags: &["-O2"], programs: 2 },
    Mode { name: "O3_thinlto", flags: &["-O3", "-flto=thin", "-fuse-ld=lld"], programs: 2 },
    Mode { name: "recover", flags: &["-O2", "--recover"], programs: 3 },
    Mode { name: "other_core", flags: &["-O1", "--other-core"], programs: 1 },
    Mode { name: "async", flags: &["-O2", "--validate=async"], programs: 2 },
    Mode { name: "between", flags: &["-O2", "--between=duplicate"], programs: 2 },
    Mode { name: "dup_O0", flags: &["-O0", "--state=dup"], programs: 2 },
    Mode { name: "dup", flags: &["-O2", "--state=dup"], programs: 3 },
    Mode { name: "crc", flags: &["-O1", "--state=crc"], programs: 2 },
    Mode { name: "dup_recover", flags: &["-O2", "--state=dup", "--recover"], programs: 2 },
    Mode { name: "sei", flags: &["-O2", "--protect=sei"], programs: 1 },
];

/// Small enough to be compiled in a blink, with all that csmith has but what 64 bits do not hold.
#[rustfmt::skip]
const SHAPE: &[&str] = &[
    "--max-funcs", "4",
    "--max-block-depth", "3",
    "--max-block-size", "3",
    "--max-expr-complexity", "6",
];

/// What a program may be refused for: a union of more than 64 bits that is read whole while it is volatile.
const REFUSED: &str = "reaches a volatile or atomic load of more than 64 bits";

/// What this program prints, built by `compiler`; nothing if it does not end.
fn printed(
    mut compiler: Command,
    flags: &[String],
    dir: &Path,
    (out, limit_s): (&str, u32),
) -> Result<Option<Vec<u8>>, String> {
    let out = dir.join(out);
    let built = compiler
        .args(flags)
        .args(["-w", "-I/usr/include/csmith"])
        .arg(dir.join("random.c"))
        .arg("-o")
        .arg(&out)
        .output()
        .map_err(|why| why.to_string())?;
    if !built.status.success() {
        return Err(format!(
            "{flags:?}: {}",
            String::from_utf8_lossy(&built.stderr)
        ));
    }
    let ran = Command::new("timeout")
        .arg(limit_s.to_string())
        .arg(&out)
        .arg("1")
        .output()
        .map_err(|why| why.to_string())?;
    if ran.status.code() == Some(124) {
        return Ok(None);
    }
    if !ran.status.success() || !ran.stderr.is_empty() {
        return Err(format!(
            "{flags:?}: {} {}",
            ran.status,
            String::from_utf8_lossy(&ran.stderr)
        ));
    }
    Ok(Some(ran.stdout))
}

fn program(seed: u64, mode: &str, flags: &[&str]) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("harden-csmith-{mode}-{seed}"));
    let made = Command::new("csmith")
        .args(["--seed", &seed.to_string()])
        .args(SHAPE)
        .arg("--output")
        .arg(dir.join("random.c"))
        .current_dir(&dir)
        .output()
        .map_err(|why| format!("csmith: {why}\n  fix:   make setup, which installs the packages of tests/packages.txt"))?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into_owned().into());
    }
    let text = std::fs::read_to_string(dir.join("random.c"))?;
    let mut policy = String::from("local-handler func_1\n");
    let kept = flags.iter().find_map(|flag| flag.strip_prefix("--state="));
    if let Some(word) = kept {
        let globals: BTreeSet<&str> = text
            .lines()
            .filter_map(global)
            .filter(|name| name.starts_with("g_"))
            .collect();
        for name in globals {
            let _ = writeln!(policy, "{word} ?{name}");
        }
    }
    std::fs::write(dir.join("policy"), policy)?;
    let plain = printed(compiler(false, false), &["-O1".into()], &dir, ("plain", 2))?;
    let mut all: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    all.push(format!(
        "--steadfast-policy={}",
        dir.join("policy").display()
    ));
    if plain.is_none() {
        return Ok(()); // it does not end
    }
    let hardened = printed(compiler(true, false), &all, &dir, ("hardened", 60));
    if hardened.as_ref().is_err_and(|why| why.contains(REFUSED)) {
        Bench::get().passed(&dir);
        return Ok(());
    }
    let hardened =
        hardened.map_err(|why| format!("csmith --seed {seed} {}: {why}", SHAPE.join(" ")))?;
    if hardened != plain {
        return Err(format!(
            "csmith --seed {seed} {}: {flags:?} prints another sum",
            SHAPE.join(" ")
        )
        .into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// The name in a definition like `static int32_t * volatile g_12 = &g_4;`.
fn global(line: &str) -> Option<&str> {
    let before = line
        .strip_prefix("static ")?
        .split(['=', ';', '['])
        .next()?;
    (!before.contains("const ") && !before.contains('(')).then_some(())?;
    before.split_whitespace().next_back()
}

pub(crate) fn trials() -> Vec<Trial> {
    let more: Option<u64> = std::env::var("STEADFAST_CSMITH")
        .ok()
        .and_then(|n| n.parse().ok());
    let mut trials = Vec::new();
    let mut seed = 0;
    for mode in MODES {
        let seeds = match more {
            Some(n) => 1000..1000 + n,
            None => seed + 1..seed + 1 + mode.programs,
        };
        seed += mode.programs;
        for seed in seeds {
            trials.push(Trial::test(
                format!("harden::csmith::{}::{seed}", mode.name),
                move || program(seed, mode.name, mode.flags),
            ));
        }
    }
    trials
}
