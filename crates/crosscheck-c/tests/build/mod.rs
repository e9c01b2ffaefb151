//! Compiles C++ against the headers and the library of this crate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// One compiler at a time: tests share two cores, and the same program is wanted by several of them.
static ONE: Mutex<()> = Mutex::new(());

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn compiler() -> Command {
    let mut command = Command::new("c++");
    command
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_dir().join("include"));
    command
}

/// Where cargo has put the library: beside the test, which was built with it.
fn library() -> PathBuf {
    let deps = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let newest = std::fs::read_dir(&deps)
        .unwrap()
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libsteadfast_crosscheck_c") && name.ends_with(".a")
        })
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    newest.expect("cargo builds the static library with the tests")
}

/// The program of that source, linked with the library.
pub(crate) fn compiled(source: &str) -> PathBuf {
    compiled_with(source, &[])
}

/// The same with more flags.
pub(crate) fn compiled_with(source: &str, flags: &[&str]) -> PathBuf {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{source}{}", flags.concat()).replace(['/', '.', '='], "_"));
    let sources = [crate_dir().join("tests").join(source), library()];
    let is_new = |of: &Path| of.metadata().and_then(|data| data.modified()).ok();
    let headers = std::fs::read_dir(crate_dir().join("include/steadfast")).unwrap();
    let newest = headers
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .chain(sources.iter().cloned())
        .filter_map(|path| is_new(&path))
        .max();
    if is_new(&program) > newest {
        return program;
    }
    let done = compiler()
        .args(flags)
        .args(&sources)
        .args(["-lcpp-httplib", "-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    program
}

/// What the compiler says of the type of `refused.cc` that is meant; nothing if it takes it.
#[allow(dead_code, reason = "each test takes what it needs of this module")]
pub(crate) fn refused(meant: &str) -> Option<String> {
    let done = compiler()
        .args(["-fsyntax-only", &format!("-D{meant}")])
        .arg(crate_dir().join("tests/refused.cc"))
        .output()
        .unwrap();
    (!done.status.success()).then(|| String::from_utf8_lossy(&done.stderr).into_owned())
}
