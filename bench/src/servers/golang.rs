//! The HTTP server in Go (`workloads/programs/http.go`), built by Debian's compiler.
//!
//! Invariant: the binary is static and built once a measurement, so all columns run the same file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, ensure};

/// Where Debian's package `golang-go` puts it. A newer one on PATH would make numbers of its own.
const COMPILER: &str = "/usr/bin/go";

static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// The server; it is built when it is first asked for.
///
/// # Errors
/// When there is no compiler, or it objects.
pub(super) fn server() -> Result<PathBuf> {
    BUILT
        .get_or_init(|| build().map_err(|why| format!("{why:#}")))
        .clone()
        .map_err(|why| anyhow!(why))
}

fn build() -> Result<PathBuf> {
    ensure!(
        Path::new(COMPILER).is_file(),
        "{COMPILER} is required, found none\n  fix:   apt install golang-go"
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = root.with_file_name("build/bench/go");
    let program = place.join("http");
    let out = Command::new(COMPILER)
        .args(["build", "-o"])
        .arg(&program)
        .arg(root.with_file_name("workloads/programs/http.go"))
        // The standard library alone is needed: no module, no network, no C.
        .envs([
            ("GO111MODULE", "off"),
            ("GOFLAGS", ""),
            ("CGO_ENABLED", "0"),
        ])
        .env("GOCACHE", place.join("cache"))
        .env("GOPATH", place.join("path"))
        .env_remove("GOROOT")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{COMPILER} could not be started"))?;
    ensure!(
        out.status.success(),
        "http.go does not compile:\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(program)
}
