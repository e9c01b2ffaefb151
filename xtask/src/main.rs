//! `xtask docs` writes the generated documents; `xtask docs --check` fails if they differ. `xtask tidy` checks pages and
//! formatting; `xtask test` runs every test.

#![allow(
    clippy::print_stderr,
    reason = "a chore talks to the developer who called it"
)]

mod suite;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use steadfast_xtask::{docs, specification, tables::Tables, tidy};

const USAGE: &str = "usage: xtask docs [--check]
       xtask tidy
       xtask test

docs writes the reference of system calls and of entropy from crates/agent/src/tables/*.def,
docs/specification.md from docs/specification.toml and results/*.json, and docs/reference/results.md.
  --check   write nothing; fail if a file differs from what would be written
tidy checks pages (lines, sentences, links, retired words) and the formatting of code.
test runs every test of the repository, part by part (make test).";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let check = match args[..] {
        ["docs"] => false,
        ["docs", "--check"] => true,
        ["tidy"] => return tidied(),
        ["test"] => return suite::run(&root()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    let root = root();
    let pages = Tables::read(&root)
        .map(|tables| docs::all(&tables))
        .map_err(|errors| errors.iter().map(ToString::to_string).collect());
    let pages = pages.and_then(|mut pages: Vec<(&'static str, String)>| {
        pages.extend(specification::all(&root)?);
        Ok::<_, Vec<String>>(pages)
    });
    let pages = match pages {
        Ok(pages) => pages,
        Err(errors) => {
            for error in &errors {
                eprintln!("xtask: {error}");
            }
            return ExitCode::FAILURE;
        }
    };
    let mut stale = false;
    for (name, text) in pages {
        let path = root.join(name);
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if check {
            eprintln!(
                "xtask: {name} is not what its sources say\n  fix: cargo run -p steadfast-xtask -- docs"
            );
            stale = true;
        } else if let Err(error) = write(&path, &text) {
            eprintln!("xtask: {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    if stale {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn tidied() -> ExitCode {
    match tidy::all(&root()) {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            for found in &complaints {
                eprintln!("{}:{}: {}", found.file, found.line, found.why);
            }
            eprintln!("xtask: {} things are not tidy", complaints.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository")
        .to_path_buf()
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}
