//! Programs that tests run beside replicas.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::*;

/// Runs a tool of the system that has to succeed.
pub(super) fn tool(words: &[&str]) {
    let out = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(out.status.success(), "{words:?}: {}", text(&out.stderr));
}

/// Builds a program of tests/go, once; Go fetches what it needs, and go.sum says what that is.
pub(super) fn go_program(name: &str) -> PathBuf {
    static ONCE: Mutex<()> = Mutex::new(());
    let _one = ONCE.lock();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = dir.join(name);
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(format!("./{name}"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/go"))
        .env("GOPATH", dir.join("go"))
        .env("GOCACHE", dir.join("go-cache"))
        .env("GOFLAGS", "-mod=readonly -modcacherw")
        .env("GOTOOLCHAIN", "local")
        .output()
        .expect("go is installed: scripts/setup test");
    assert!(built.status.success(), "{}", text(&built.stderr));
    program
}
