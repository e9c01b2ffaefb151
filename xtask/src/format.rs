//! What the formatters say: rustfmt of all Rust, clang-format of C and C++ that stand in a product.
//!
//! The style of C is in the nearest `.clang-format` above it: one at the root, one in `crates/` for C that stands beside Rust,
//! one in `crates/crosscheck-c/` for headers, which is as the root's.
//!
//! Not covered: guests, fixtures and benchmarks in C, which show one thing each and are laid out by hand.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::complaint::{Complaint, complaint};

/// Folders whose C and C++ is formatted.
pub(crate) const FOLDERS: [&str; 11] = [
    "cc/envelope/",
    "cc/include/",
    "cc/pass/",
    "cc/runtime/",
    "crates/agent/src/",
    "crates/crosscheck-c/include/",
    "crates/inject/blob/",
    "crates/inject/control/",
    "crates/inside/include/",
    "crates/pair/src/",
    "crates/restart/components/",
];

/// By this name Debian installs the version that the styles are written for.
const CLANG_FORMAT: &str = "clang-format-19";

/// What rustfmt would change.
pub(crate) fn rust(root: &Path, files: &[String]) -> io::Result<Vec<Complaint>> {
    let wanted = files.iter().filter(|file| file.ends_with(".rs"));
    let out = Command::new("rustfmt")
        .args(["--check", "--edition", "2024", "-l"])
        .args(wanted)
        .current_dir(root)
        .output()?;
    let mut complaints: Vec<Complaint> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .map(|path| {
            let path = Path::new(path);
            let path = path.strip_prefix(root).unwrap_or(path);
            let said = "rustfmt would change it".to_owned();
            complaint(&path.display().to_string(), 1, said)
        })
        .collect();
    if complaints.is_empty() && !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).replace('\n', " ");
        complaints.push(complaint("rustfmt", 0, said));
    }
    complaints.dedup();
    Ok(complaints)
}

/// What clang-format would change.
pub(crate) fn c(root: &Path, files: &[String]) -> io::Result<Vec<Complaint>> {
    let wanted = files.iter().filter(|file| {
        let extension = file.rsplit_once('.').map_or("", |(_, end)| end);
        ["c", "h", "cpp", "hpp", "cc"].contains(&extension)
            && FOLDERS.iter().any(|folder| file.starts_with(folder))
    });
    let out = match Command::new(CLANG_FORMAT)
        .args(["--dry-run", "-Werror", "--ferror-limit=1"])
        .args(wanted)
        .current_dir(root)
        .output()
    {
        Ok(out) => out,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let said = format!("{CLANG_FORMAT} is needed and was not found; fix: make setup");
            return Ok(vec![complaint(CLANG_FORMAT, 0, said)]);
        }
        Err(error) => return Err(error),
    };
    Ok(said(
        &String::from_utf8_lossy(&out.stderr),
        out.status.success(),
    ))
}

/// The places in what clang-format prints: `FILE:LINE:COLUMN: error: WHY`, each with an extract below it.
fn said(text: &str, success: bool) -> Vec<Complaint> {
    let mut complaints: Vec<Complaint> = text
        .lines()
        .filter_map(|line| {
            let (place, _) = line.split_once(": error: ")?;
            let mut parts = place.rsplitn(3, ':');
            let (_column, number, file) = (parts.next()?, parts.next()?, parts.next()?);
            let said = format!("clang-format would change it; fix: {CLANG_FORMAT} -i {file}");
            Some(complaint(file, number.parse().ok()?, said))
        })
        .collect();
    if complaints.is_empty() && !success {
        complaints.push(complaint(CLANG_FORMAT, 0, text.replace('\n', " ")));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn each_place_is_a_complaint_with_its_fix() {
        let text = "cc/runtime/log.c:12:3: error: code should be clang-formatted [-Wclang-format-violations]\n  int  x;\n     ^\n";
        let complaints = said(text, false);
        assert_eq!(complaints.len(), 1);
        assert_eq!(
            (complaints[0].file.as_str(), complaints[0].line),
            ("cc/runtime/log.c", 12)
        );
        assert!(
            complaints[0]
                .why
                .contains("clang-format-19 -i cc/runtime/log.c")
        );
    }

    #[test]
    fn silence_is_no_complaint_and_a_failure_is_one() {
        assert!(said("", true).is_empty());
        assert_eq!(said("no such style", false).len(), 1);
    }
}
