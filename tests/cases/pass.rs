//! The compiler pass by itself: cc/tests/pass/*.ll, one concern each, through opt.
//!
//! ```text
//! ; POLICY: pure reads         a statement for the pass, as the driver would hand it over
//! ; CHECK: text                the result has it, behind what the CHECK before it found
//! ; NEVER: text                the result does not have it anywhere
//! ; THEN: passes               of LLVM's, which go over the result first, as those of a link with LTO do
//! ```
//!
//! Not covered: what the whole of clang makes of it (the guests of harden.rs).

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;

use crate::bench::{Bench, workspace};
use crate::trial::Trial;

/// The first line of the settings that this pass accepts (cc/pass/config.cpp).
const VERSION: &str = "version 5";

/// The folder of the pass and the runtime: beside the command, or where its variable says (cc/driver/src/tools.rs).
pub(crate) fn pieces() -> PathBuf {
    std::env::var_os("STEADFAST_HARDEN")
        .map_or_else(|| Bench::get().binary().with_file_name("cc"), PathBuf::from)
}

fn matches(file: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(file)?;
    let lines = |word: &'static str| {
        let head = format!("; {word}: ");
        text.lines()
            .filter_map(move |line| line.strip_prefix(&head).map(str::to_owned))
    };
    let mut settings = vec![VERSION.to_owned()];
    settings.extend(lines("POLICY"));
    let passes: Vec<String> = ["steadfast-prepare", "steadfast-harden"]
        .map(str::to_owned)
        .into_iter()
        .chain(lines("THEN"))
        .collect();
    let ran = Command::new("opt-19")
        .arg(format!(
            "-load-pass-plugin={}",
            pieces().join("steadfast-pass.so").display()
        ))
        .arg(format!("-passes={}", passes.join(",")))
        .arg("-S")
        .arg(file)
        .env("STEADFAST_PASS", settings.join("\n"))
        .output()?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(format!("{}: {}\n{said}", file.display(), ran.status).into());
    }
    let made = String::from_utf8_lossy(&ran.stdout);
    let mut rest: &str = &made;
    for wanted in lines("CHECK") {
        let Some(at) = rest.find(&wanted) else {
            return Err(format!("{}: no {wanted:?} in\n{rest}", file.display()).into());
        };
        rest = &rest[at + wanted.len()..];
    }
    if let Some(found) = lines("NEVER").find(|never| made.contains(never)) {
        return Err(format!("{}: {found:?} in\n{made}", file.display()).into());
    }
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    let folder = workspace().join("cc/tests/pass");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("a folder of this repository")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "ll"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no tests", folder.display());
    files
        .into_iter()
        .map(|file| {
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            Trial::test(format!("harden::pass::{name}"), move || matches(&file))
        })
        .collect()
}
