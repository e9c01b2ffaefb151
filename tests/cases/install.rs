//! What `make install` puts on a machine, and that `make uninstall` takes it away again.
//!
//! What is installed is what has been built: `make test` builds the command, and parts that nobody has built are not there to be looked at.
//!
//! Not covered: `make deb`, which builds every part first.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;

use crate::bench::{Bench, workspace};
use crate::trial::Trial;

/// Commands that are installed where they have been built.
const PARTS: [&str; 4] = [
    "steadfast",
    "steadfast-kv",
    "steadfast-pair",
    "steadfast-host",
];

/// `make TARGET` for a machine of its own.
fn make(target: &str, root: &Path) -> Result<(), Failed> {
    let made = Command::new("make")
        .current_dir(workspace())
        .env_remove("MAKEFLAGS")
        .args(["--no-print-directory", target, "PREFIX=/usr"])
        .arg(format!("DESTDIR={}", root.display()))
        .output()?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr);
    Err(format!("make {target}: {}\n{said}", made.status).into())
}

/// Everything below a folder that is no folder.
fn files(dir: &Path) -> Result<Vec<PathBuf>, Failed> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The visible subcommands of a command, as its help lists them.
fn commands(binary: &Path, words: &[String]) -> Result<Vec<String>, Failed> {
    let help = Command::new(binary).args(words).arg("--help").output()?;
    let help = String::from_utf8_lossy(&help.stdout);
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        // Deeper lines go on with the words of the one above.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    Ok(listed
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect())
}

/// A page as its reader sees it, so far: names without their type faces.
fn plain(page: &str) -> String {
    let mut text = page.replace("\\-", "-");
    for face in ["\\fB", "\\fI", "\\fR", "\\fP"] {
        text = text.replace(face, "");
    }
    text
}

/// The pages of ours that a text names: `steadfast-run(1)`.
fn cited(text: &str) -> BTreeSet<(String, String)> {
    let name = |c: char| c.is_ascii_alphanumeric() || "-+".contains(c);
    text.match_indices('(')
        .filter_map(|(at, _)| {
            let section = text[at + 1..].split_once(')')?.0;
            let mut before = text[..at].char_indices().rev();
            let start = before
                .find(|(_, c)| !name(*c))
                .map_or(0, |(at, c)| at + c.len_utf8());
            let page = &text[start..at];
            (page.starts_with("steadfast") && section.len() == 1)
                .then(|| (page.to_owned(), section.to_owned()))
        })
        .collect()
}

/// What is told of a command, and of each below it, that has neither a page nor a section in the page above it.
fn untold(man: &Path, binary: &Path, above: &str, words: &[String]) -> Result<Vec<String>, Failed> {
    let page = std::fs::read_to_string(man.join(format!("man1/{above}.1")))?;
    let page = plain(&page).to_uppercase();
    let mut missing = Vec::new();
    for name in commands(binary, words)? {
        let own = format!("{above}-{name}");
        let mut words = words.to_vec();
        words.push(name.clone());
        let title = name.to_uppercase();
        let section = [format!(".SH {title}\n"), format!(".SH \"{title}\"\n")];
        if man.join(format!("man1/{own}.1")).exists() {
            // A compiler's help is clang's.
            if !["cc", "c++"].contains(&name.as_str()) {
                missing.extend(untold(man, binary, &own, &words)?);
            }
        } else if !section.iter().any(|head| page.contains(head)) {
            missing.push(own);
        }
    }
    Ok(missing)
}

/// Each command has a page or a section, each page that one names is there, and nothing stays behind.
fn comes_and_goes() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("install");
    let root = dir.join("root");
    make("install", &root)?;
    let man = root.join("usr/share/man");
    let mut wrong = Vec::new();
    let mut parts = 0;
    for part in PARTS {
        let binary = root.join("usr/bin").join(part);
        if binary.exists() {
            parts += 1;
            let missing = untold(&man, &binary, part, &[])?;
            wrong.extend(missing.iter().map(|name| format!("{name} has no page")));
        }
    }
    if parts == 0 {
        wrong.push("no command was installed".to_owned());
    }
    for path in files(&man)? {
        let page = plain(&std::fs::read_to_string(&path)?);
        for (name, section) in cited(&page) {
            // Another command has its page where it is installed.
            let is_elsewhere =
                PARTS.contains(&name.as_str()) && !root.join("usr/bin").join(&name).exists();
            if !is_elsewhere && !man.join(format!("man{section}/{name}.{section}")).exists() {
                let from = path.display();
                wrong.push(format!(
                    "{from} names {name}({section}), which is not there"
                ));
            }
        }
    }
    make("uninstall", &root)?;
    let left = files(&root)?;
    wrong.extend(left.iter().map(|path| format!("{} stays", path.display())));
    if !wrong.is_empty() {
        return Err(wrong.join("\n").into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// What finds fault with pages finds some.
fn readers_of_pages() -> Result<(), Failed> {
    let page = plain(
        ".SH NAME\nsteadfast\\-run \\- runs, \\fBsteadfast\\-cc\\fR(1), steadfast-c++(1), see signal(7) (and more)\n",
    );
    let found: Vec<(String, String)> = cited(&page).into_iter().collect();
    let named = |name: &str| (name.to_owned(), "1".to_owned());
    if found != [named("steadfast-c++"), named("steadfast-cc")] {
        return Err(format!("{found:?} of {page}").into());
    }
    Ok(())
}

/// The unit as systemd reads it: nothing to say, but of a misspelt key something.
fn unit() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("install-unit");
    let source = workspace().join("crates/steadfast/systemd/steadfast-run@.service");
    let bin = Bench::get().binary();
    let bin = bin.parent().ok_or("a folder")?.display().to_string();
    let unit = std::fs::read_to_string(source)?.replace("@bindir@", &bin);
    let verify = |text: &str| -> Result<Option<(bool, String)>, Failed> {
        let path = dir.join("steadfast-run@.service");
        std::fs::write(&path, text)?;
        let mut verify = Command::new("systemd-analyze");
        // Without systemd there is nobody to ask.
        let Ok(ran) = verify.args(["verify", "--man=no"]).arg(&path).output() else {
            return Ok(None);
        };
        // Other units of the machine are told of as well.
        let said = String::from_utf8_lossy(&ran.stderr);
        let own = said.lines().filter(|line| line.contains("steadfast-run@"));
        let own: Vec<&str> = own.collect();
        Ok(Some((ran.status.success(), own.join("\n"))))
    };
    match verify(&unit)? {
        None => {}
        Some((true, said)) if said.is_empty() => {
            let misspelt = verify(&unit.replace("StateDirectory", "StateDirectories"))?;
            if !misspelt.is_some_and(|(_, said)| said.contains("StateDirectories")) {
                return Err("a misspelt key is not told".into());
            }
        }
        Some((_, said)) => return Err(said.into()),
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("command::install", comes_and_goes),
        Trial::test("command::install_reads_pages", readers_of_pages),
        Trial::test("command::install_unit", unit),
    ]
}
