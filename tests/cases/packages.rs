//! Debian packages: those that the tests use, one list, which `make setup` installs and which error messages name; and our own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bench::Bench;
use crate::check::last_lines;
use crate::run::Invocation;
use crate::trial::Trial;

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

/// What the package unpacks to works where it lies, and holds a manual for each command.
pub(crate) fn unpacked() -> Trial {
    const NAME: &str = "package";
    Trial::test(format!("command::{NAME}"), || {
        let dir = Bench::get().case_dir(&format!("command-{NAME}"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("scripts/deb");
        let run = |program: &Path, args: &[&str]| -> Result<(), String> {
            let ran = Invocation {
                program: program.to_path_buf(),
                args: args.iter().map(|&word| word.to_owned()).collect(),
                ..Invocation::default()
            }
            .run(&dir, Duration::from_secs(100))?;
            if ran.status.code() == Some(0) {
                return Ok(());
            }
            Err(format!(
                "{} {args:?} ended with {}\n{}",
                program.display(),
                ran.end(),
                last_lines(&ran)
            ))
        };
        let out = dir.join("deb");
        let place = |path: &Path| path.display().to_string();
        run(&script, &[&place(&out)])?;
        let package = std::fs::read_dir(&out)
            .map_err(|error| error.to_string())?
            .find_map(|entry| {
                Some(entry.ok()?.path()).filter(|path| path.extension().is_some_and(|e| e == "deb"))
            })
            .ok_or("no package was made")?;
        let root = out.join("unpacked");
        run(
            Path::new("/usr/bin/dpkg-deb"),
            &["-x", &place(&package), &place(&root)],
        )?;
        run(&root.join("usr/bin/steadfast"), &["run", "--", "/bin/true"])?;
        let program = out.join("nothing");
        let source = out.join("nothing.c");
        std::fs::write(
            &source,
            include_str!("../../cc/tests/programs/probes/header.c"),
        )
        .map_err(|error| error.to_string())?;
        run(
            &root.join("usr/bin/steadfast-cc"),
            &["-O1", &place(&source), "-o", &place(&program)],
        )?;
        for entry in std::fs::read_dir(root.join("usr/bin")).map_err(|error| error.to_string())? {
            let name = entry.map_err(|error| error.to_string())?.file_name();
            let page = root.join(format!("usr/share/man/man1/{}.1.gz", name.display()));
            if !page.is_file() {
                return Err(format!("{} is missing", page.display()).into());
            }
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}
