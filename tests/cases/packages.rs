//! Debian packages that the tests use: one list, which `make setup` installs and which error messages name.

use std::path::{Path, PathBuf};

/// The file of a program, or which package brings it.
pub(crate) fn program(path: &str) -> Result<PathBuf, String> {
    let path = Path::new(path);
    if path.exists() {
        return Ok(path.to_path_buf());
    }
    Err(format!(
        "{} is missing\n  fix:   make setup, which installs the packages of tests/packages.txt",
        path.display()
    ))
}
