//! What must not become a program.

use std::process::Command;

use libtest_mimic::Failed;

use super::compile::{compiler, ended, named, run};
use crate::bench::Bench;
use crate::trial::Trial;

/// Compiling this must fail, with these words on standard error, and leave no program.
pub(super) fn refused(
    name: &str,
    text: &str,
    flags: &[&str],
    words: &[&str],
) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("refused-{name}"));
    let source = dir.join("refused.c");
    std::fs::write(&source, text)?;
    let out = dir.join("refused");
    let ran = compiler(true, false)
        .arg("-O1")
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .output()?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() || out.exists() || !words.iter().all(|word| said.contains(word)) {
        return Err(format!("{name}: {}, expected {words:?}\n{said}", ran.status).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A source that must not become a program.
pub(crate) struct Refused {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) flags: &'static [&'static str],
    /// Words of the error.
    pub(crate) says: &'static [&'static str],
}

impl Refused {
    /// Its case in this part of the tests.
    pub(crate) fn trial(&'static self, part: &str) -> Trial {
        let name = format!("{}-{}", part.replace("::", "-"), self.name);
        Trial::test(format!("{part}::refuse::{}", self.name), move || {
            refused(&name, self.text, self.flags, self.says)
        })
    }
}

const CXX: &[&str] = &["-xc++", "-std=c++17", "-lstdc++"];

const REFUSED: &[Refused] = &[
    Refused {
        name: "unhardened_callee",
        text: include_str!("../../../cc/tests/programs/refused/unhardened_callee.c"),
        flags: &[],
        says: &["handle", "elsewhere", "no hardened code", "refused.c:3"],
    },
    Refused {
        name: "inline_assembly",
        text: include_str!("../../../cc/tests/programs/refused/inline_assembly.c"),
        flags: &[],
        says: &["inline assembly", "refused.c:3"],
    },
    Refused {
        name: "atomic_operation",
        text: include_str!("../../../cc/tests/programs/refused/atomic_operation.c"),
        flags: &[],
        says: &["an atomic operation", "refused.c:3"],
    },
    Refused {
        name: "fork",
        text: include_str!("../../../cc/tests/programs/refused/fork.c"),
        flags: &[],
        says: &["a call of fork", "outside handlers"],
    },
    Refused {
        name: "setjmp",
        text: include_str!("../../../cc/tests/programs/refused/setjmp.c"),
        flags: &[],
        says: &["returns twice"],
    },
    Refused {
        name: "kept_label",
        text: include_str!("../../../cc/tests/programs/refused/kept_label.c"),
        flags: &[],
        says: &["a label that is kept in memory", "use switch"],
    },
    Refused {
        name: "exception_ptr",
        text: include_str!("../../../cc/tests/programs/refused/exception_ptr.cc"),
        flags: CXX,
        says: &["current_exception", "keeps an exception of one run"],
    },
    Refused {
        name: "pool_of_memory",
        text: include_str!("../../../cc/tests/programs/refused/pool_of_memory.cc"),
        flags: CXX,
        says: &["std::pmr has no hardened form"],
    },
];

/// What the pass finds wrong in a policy is said in its own words, without the compiler's stack around them.
fn policy_that_does_not_fit() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-policy-fields");
    std::fs::write(
        dir.join("main.c"),
        include_str!("../../../cc/tests/programs/input_in_fields.c"),
    )?;
    let out = dir.join("main");
    for (length, why) in [
        ("0->head.size", ""),
        ("0->head.length", "'record' has no member 'length'"),
        ("0->next.size", "'.size' is taken of is no structure"),
        (
            "0->head->size",
            "'->size' is taken of is no pointer to a structure",
        ),
    ] {
        let ran = compiler(true, false)
            .arg("-O1")
            .arg(named(
                &dir,
                &format!("handler handle input=0->text:{length}\n"),
            )?)
            .arg(dir.join("main.c"))
            .arg("-o")
            .arg(&out)
            .output()?;
        if why.is_empty() {
            ended(&ran, 0, &[], &["steadfast"])?;
            ended(&run(&out, &[])?, 0, &[], &["steadfast"])?;
        } else {
            ended(
                &ran,
                1,
                &[
                    "steadfast: the policy's input of handler handle does not fit: ",
                    why,
                ],
                &["Stack dump", "bug report"],
            )?;
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A pointer leads to a call of what has no hardened code: the place that is told is that of this call, not of another module's.
fn place_of_a_missing_clone() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-missing-clone");
    let files = [
        (
            "main.c",
            include_str!("../../../cc/tests/programs/missing_clone/main.c"),
        ),
        (
            "other.c",
            include_str!("../../../cc/tests/programs/missing_clone/other.c"),
        ),
        (
            "far.c",
            include_str!("../../../cc/tests/programs/missing_clone/far.c"),
        ),
    ];
    for (name, text) in files {
        std::fs::write(dir.join(name), text)?;
    }
    let out = dir.join("main");
    for flag in ["-fPIE", "-no-pie"] {
        let built = compiler(true, false)
            .args(["-g", "-O1", flag])
            .args(files.map(|(name, _)| dir.join(name)))
            .arg("-o")
            .arg(&out)
            .output()?;
        ended(&built, 0, &[], &["steadfast"])?;
        let ran = run(&out, &[])?;
        ended(
            &ran,
            121,
            &["reaches a call of a function that has no hardened code: chdir"],
            &[],
        )?;
        let said = String::from_utf8_lossy(&ran.stderr);
        let place = said
            .split_whitespace()
            .find(|word| word.starts_with("0x"))
            .ok_or("no address")?;
        let line = Command::new("addr2line")
            .arg("-e")
            .arg(&out)
            .arg(place)
            .output()?;
        let line = String::from_utf8_lossy(&line.stdout).into_owned();
        if !line.trim_end().ends_with("/far.c:2") {
            return Err(format!("{said}{line}").into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn refused_by_driver(name: &str, flags: &[&str], words: &[&str]) -> Result<(), Failed> {
    refused(
        name,
        include_str!("../../../cc/tests/programs/probes/main.c"),
        flags,
        words,
    )
}

pub(super) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = REFUSED.iter().map(|row| row.trial("harden")).collect();
    trials.extend([
        Trial::test("harden::refuse::fields", policy_that_does_not_fit),
        Trial::test("harden::refuse::pointer", place_of_a_missing_clone),
        Trial::test("harden::refuse::shared_library", || {
            refused_by_driver("shared", &["-shared", "--recover"], &["-shared", "static"])
        }),
        Trial::test("harden::refuse::policy_that_is_none", || {
            refused_by_driver(
                "no-policy",
                &["--steadfast-policy=/no/such/file"],
                &["/no/such/file", "fix:"],
            )
        }),
    ]);
    trials
}
