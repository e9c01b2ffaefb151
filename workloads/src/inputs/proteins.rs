//! What hmmer2 searches: a database in which some sequences carry a made-up protein family.
//!
//! One ancestor sequence is mutated into an alignment; hmmer2's own tools turn that into a
//! calibrated model (with a fixed seed), and the search looks for it in random proteins, one in
//! eight of which holds a mutated copy.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::Rng;

const AMINO: &[u8; 20] = b"ACDEFGHIKLMNPQRSTVWY";
const FAMILY_LENGTH: usize = 160;

pub(crate) fn generate(dir: &Path, sequences: usize) -> Result<()> {
    let mut rng = Rng::new(0x686d_6d65_7232);
    let ancestor: Vec<u8> = (0..FAMILY_LENGTH).map(|_| *rng.pick(AMINO)).collect();

    let mut alignment = String::from("# STOCKHOLM 1.0\n");
    for member in 0..24 {
        let _ = writeln!(
            alignment,
            "member{member:02} {}",
            mutate(&mut rng, &ancestor, 30, b'.')
        );
    }
    fs::write(dir.join("family.sto"), alignment + "//\n")?;

    let mut database = String::new();
    for index in 0..sequences {
        let mut protein: String = (0..120 + rng.below(480))
            .map(|_| char::from(*rng.pick(AMINO)))
            .collect();
        if rng.chance(12) {
            let at = rng.below(protein.len());
            protein.insert_str(at, &mutate(&mut rng, &ancestor, 45, b'.').replace('.', ""));
        }
        let _ = writeln!(database, ">protein{index:05}");
        for line in protein.as_bytes().chunks(60) {
            let _ = writeln!(database, "{}", String::from_utf8_lossy(line));
        }
    }
    fs::write(dir.join("proteins.fa"), database)?;

    tool(dir, "hmm2build", &["-F", "family.hmm", "family.sto"])?;
    tool(
        dir,
        "hmm2calibrate",
        &["--cpu", "0", "--seed", "1", "--num", "1000", "family.hmm"],
    )?;
    // The model records when it was built; the search never looks at that.
    let model = fs::read_to_string(dir.join("family.hmm"))?;
    let undated: String = model
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("DATE"))
        .collect();
    Ok(fs::write(dir.join("family.hmm"), undated)?)
}

fn mutate(rng: &mut Rng, ancestor: &[u8], percent: usize, gap: u8) -> String {
    let letter = |&old: &u8| match rng.below(100) {
        roll if roll < percent => char::from(*rng.pick(AMINO)),
        roll if roll < percent + 4 => char::from(gap),
        _ => char::from(old),
    };
    ancestor.iter().map(letter).collect()
}

fn tool(dir: &Path, name: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(name)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{name} of package hmmer2 could not be started"))?;
    ensure!(
        output.status.success(),
        "{name} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
