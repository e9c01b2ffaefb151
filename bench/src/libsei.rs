//! libsei, where its source is given: the same guest, the same run.
//!
//! It is fetched by nobody and kept nowhere: `bench sei --libsei DIR` takes the source of one commit, known by the digest of what its build
//! reads, builds a copy by its own Makefile with Debian's gcc, and links the guest to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};
use steadfast_workloads::store::sha256;

/// The commit of aoikida/libsei-gcc that is measured, of 10 January 2026: the fork of libsei that builds with today's gcc.
pub const COMMIT: &str = "811b70ad80b3efd55ac2920ddfa5abdfb69fcfa9";
/// [`digest`] of that commit.
const DIGEST: &str = "26b3352fad585dda9febe980a66256e0864a698ca9549f6cd6555e66f45cfa73";
/// What its build reads.
const PARTS: [&str; 3] = ["Makefile", "include", "src"];

/// SHA-256 over the path and the bytes of each file under [`PARTS`], in the order of the paths.
fn digest(source: &Path) -> Result<String> {
    let mut files = Vec::new();
    for part in PARTS {
        list(&source.join(part), &mut files)?;
    }
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let name = file.strip_prefix(source).unwrap_or(&file);
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        all.extend(format!("{} {}\n", name.display(), bytes.len()).bytes());
        all.extend(bytes);
    }
    Ok(sha256(&all))
}

fn list(path: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        into.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
        list(&entry?.path(), into)?;
    }
    Ok(())
}

/// Holds `source` against the commit.
///
/// # Errors
/// When it cannot be read, or is of another commit.
pub fn check(source: &Path) -> Result<()> {
    let found = digest(source).with_context(|| {
        format!(
            "--libsei: wanted the source of libsei-gcc, commit {COMMIT}; found no such tree in {}\n  fix:   git clone libsei-gcc \
             and check that commit out, or leave --libsei away",
            source.display()
        )
    })?;
    if found != DIGEST {
        bail!(
            "--libsei: wanted libsei-gcc, commit {COMMIT} (digest {}); found digest {} in {}\n  fix:   git -C {} checkout {COMMIT}",
            &DIGEST[..12],
            &found[..12],
            source.display(),
            source.display()
        );
    }
    Ok(())
}

fn done(what: &str, out: &Output) -> Result<()> {
    ensure!(
        out.status.success(),
        "{what} fails, {}:\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(())
}

/// Builds the library in a copy under `dir`, and the guest with it; the guest's path.
///
/// # Errors
/// When `source` is not that commit, or does not build.
pub fn build(source: &Path, dir: &Path, guest: &Path) -> Result<PathBuf> {
    check(source)?;
    let copy = dir.join("libsei");
    let mut files = Vec::new();
    for part in PARTS {
        list(&source.join(part), &mut files)?;
    }
    for file in files {
        let to = copy.join(file.strip_prefix(source)?);
        fs::create_dir_all(to.parent().unwrap_or(&copy))?;
        fs::copy(&file, &to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(&copy).arg("CC=gcc");
    // Its defaults, whatever the caller's environment says.
    for name in ["CFLAGS", "MAKEFLAGS", "DEBUG", "ROLLBACK", "MODE", "BUILD"] {
        make.env_remove(name);
    }
    done(
        "make in libsei",
        &make.output().context("make could not be started")?,
    )?;
    let program = dir.join("sei-libsei");
    let out = Command::new("gcc")
        .args([
            "-O2",
            "-fgnu-tm",
            "-fno-omit-frame-pointer",
            "-w",
            "-DLIBSEI",
            "-I",
        ])
        .arg(copy.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(guest)
        .arg("-L")
        .arg(copy.join("build"))
        .args(["-lsei", "-ldl"])
        .output()
        .context("gcc could not be started")?;
    done(&format!("gcc of {}", guest.display()), &out)?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_source_is_refused_with_the_way_to_the_right_one() {
        let dir = tempfile::tempdir().unwrap();
        let none = format!("{:#}", check(dir.path()).unwrap_err());
        assert!(none.contains(COMMIT) && none.contains("fix:"), "{none}");

        fs::write(dir.path().join("Makefile"), "all:\n").unwrap();
        for part in ["include", "src"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        let other = format!("{:#}", check(dir.path()).unwrap_err());
        assert!(
            other.contains("checkout") && other.contains("found digest"),
            "{other}"
        );
    }

    #[test]
    fn the_digest_holds_names_and_bytes() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Makefile"), "all:\n").unwrap();
        for part in ["include", "src"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        let mut seen = vec![digest(dir.path()).unwrap()];
        for (name, text) in [("src/a.c", "x"), ("src/a.c", "y"), ("include/a.h", "y")] {
            fs::write(dir.path().join(name), text).unwrap();
            let now = digest(dir.path()).unwrap();
            assert!(!seen.contains(&now), "{name}");
            seen.push(now);
        }
    }
}
