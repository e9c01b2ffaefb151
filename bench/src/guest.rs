//! Guests: the small C programs of `guests/bench/`, built with the system's compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use steadfast_workloads::{Invocation, Normalise};

/// Builds a guest into `dir` and says how to run it.
///
/// # Errors
/// When the compiler is missing or objects.
pub fn build(dir: &Path, name: &str) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../guests/bench")
        .join(format!("{name}.c"));
    let program = dir.join(name);
    // Another bench may run or build it at this moment: the finished file takes its place.
    static BUILDS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let build = BUILDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let fresh = dir.join(format!("{name}.{}.{build}", std::process::id()));
    let out = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&fresh)
        .arg(&source)
        .output()
        .context("cc could not be started")?;
    ensure!(
        out.status.success(),
        "{} does not compile:\n{}",
        source.display(),
        String::from_utf8_lossy(&out.stderr)
    );
    fs::rename(&fresh, &program).with_context(|| format!("cannot create {}", program.display()))?;
    Ok(program)
}

/// A run of a program with arguments, the same short environment as the workloads', and nothing
/// to read.
#[must_use]
pub fn invocation(program: &Path, args: &[&str]) -> Invocation {
    Invocation {
        program: program.to_owned(),
        args: args.iter().map(Into::into).collect(),
        env: [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C")]
            .map(|(key, value)| (key.into(), value.into()))
            .into(),
        cwd: "/".into(),
        stdin: None,
        normalise: Normalise::Verbatim,
    }
}
