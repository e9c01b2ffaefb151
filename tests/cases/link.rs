//! What becomes of a program when it is put together: archives, weak names, functions that the loader chooses, names that
//! the C library has as well, and command lines that are not the usual ones.
//!
//! Not covered: whole build tools (harden.rs: configure, CMake, meson).

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;

use crate::bench::{Bench, write_executable};
use crate::harden::{build, compiler, ended, run};
use crate::trial::Trial;

/// A folder with these files.
fn folder(name: &str, files: &[(&str, &str)]) -> Result<PathBuf, Failed> {
    let dir = Bench::get().case_dir(&format!("harden-link-{name}"));
    for (file, text) in files {
        std::fs::write(dir.join(file), text)?;
    }
    Ok(dir)
}

fn prints(program: &Path, wanted: &str) -> Result<(), Failed> {
    let ran = run(program, &[])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    let said = String::from_utf8_lossy(&ran.stdout);
    if said == wanted {
        Ok(())
    } else {
        Err(format!("{said:?} is printed, not {wanted:?}").into())
    }
}

/// The handler's own body is the only one to call what lies in the archive.
fn archive() -> Result<(), Failed> {
    let dir = folder(
        "archive",
        &[
            (
                "main.c",
                include_str!("../../cc/tests/programs/link/summed/main.c"),
            ),
            (
                "parse.c",
                include_str!("../../cc/tests/programs/link/summed/parse.c"),
            ),
        ],
    )?;
    for (level, lto) in [("-O0", false), ("-O2", false), ("-O2", true)] {
        let lto: &[&str] = if lto { &["-flto=thin"] } else { &[] };
        let (object, library) = (dir.join("parse.o"), dir.join("libparse.a"));
        let flags = [&[level, "-c"], lto].concat();
        build(
            compiler(true, false),
            &flags,
            &[dir.join("parse.c")],
            &object,
        )?;
        let packed = Command::new("llvm-ar-19")
            .arg("rcs")
            .args([&library, &object])
            .output()?;
        ended(&packed, 0, &[], &[])?;
        let flags = [&[level], lto].concat();
        let out = dir.join("main");
        build(
            compiler(true, false),
            &flags,
            &[dir.join("main.c"), library],
            &out,
        )?;
        prints(&out, "38\n")?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A weak alias gives way to another module's definition, in hardened code as in plain.
fn weak_alias() -> Result<(), Failed> {
    let dir = folder(
        "weak",
        &[
            (
                "main.c",
                include_str!("../../cc/tests/programs/link/hook/main.c"),
            ),
            (
                "other.c",
                include_str!("../../cc/tests/programs/link/hook/other.c"),
            ),
        ],
    )?;
    let (main, other) = (dir.join("main.c"), dir.join("other.c"));
    for level in ["-O0", "-O2"] {
        let out = dir.join("main");
        build(
            compiler(true, false),
            &[level],
            &[main.clone(), other.clone()],
            &out,
        )?;
        prints(&out, "701 700\n")?;
        build(
            compiler(true, false),
            &[level],
            std::slice::from_ref(&main),
            &out,
        )?;
        prints(&out, "8 7\n")?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Functions that the loader chooses among: by a resolver, and by what the processor has.
fn chosen() -> Result<(), Failed> {
    let dir = folder(
        "chosen",
        &[(
            "main.c",
            include_str!("../../cc/tests/programs/link/chosen.c"),
        )],
    )?;
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-fno-pie", "-no-pie"]] {
        let out = dir.join("main");
        build(compiler(true, false), flags, &[dir.join("main.c")], &out)?;
        prints(&out, "114 77\n")?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A program's function with a name that is built in is hardened; where only its name is seen, somebody has to say so.
fn own_name() -> Result<(), Failed> {
    let dir = folder(
        "own",
        &[
            (
                "main.c",
                include_str!("../../cc/tests/programs/link/isatty/main.c"),
            ),
            (
                "own.c",
                include_str!("../../cc/tests/programs/link/isatty/own.c"),
            ),
            ("policy", "own isatty\n"),
        ],
    )?;
    let sources = [dir.join("main.c"), dir.join("own.c")];
    let out = dir.join("main");
    let refused = compiler(true, false)
        .arg("-O1")
        .args(&sources)
        .arg("-o")
        .arg(&out)
        .output()?;
    ended(&refused, 1, &["main.c:4", "own isatty"], &[])?;
    if out.exists() {
        return Err("a program was left behind".into());
    }
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    build(compiler(true, false), &["-O1", &policy], &sources, &out)?;
    prints(&out, "7\n")?;
    Bench::get().passed(&dir);
    Ok(())
}

/// What a program says of itself.
const SMALL: &str = include_str!("../../cc/tests/programs/link/small.c");

fn has_handler(program: &Path) -> Result<(), Failed> {
    let coverage = Command::new(Bench::get().binary())
        .args(["cc", "--coverage=json"])
        .arg(program)
        .output()?;
    let json: serde_json::Value = serde_json::from_slice(&coverage.stdout)?;
    if json["handlers"][0]["name"] == "handle" {
        return prints(program, "7\n");
    }
    Err(format!("{json:#}").into())
}

/// clang tells what it does, and does it: with the pass.
fn verbose() -> Result<(), Failed> {
    let dir = folder("verbose", &[("main.c", SMALL)])?;
    let out = dir.join("main");
    let ran = compiler(true, false)
        .args(["-v", "-O1"])
        .arg(dir.join("main.c"))
        .arg("-o")
        .arg(&out)
        .output()?;
    ended(&ran, 0, &["-fpass-plugin="], &[])?;
    has_handler(&out)?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A long command line in a file, as build tools write it: what it links is looked at all the same.
fn response_file() -> Result<(), Failed> {
    let dir = folder(
        "response",
        &[
            ("main.c", SMALL),
            ("gap.c", include_str!("../../cc/tests/programs/link/gap.c")),
        ],
    )?;
    let out = dir.join("main");
    for (source, status) in [("main.c", 0), ("gap.c", 1)] {
        let words = dir.join("words");
        std::fs::write(
            &words,
            format!(
                "-O1\n\"{}\" -o '{}'\n",
                dir.join(source).display(),
                out.display()
            ),
        )?;
        let _ = std::fs::remove_file(&out);
        let ran = compiler(true, false)
            .arg(format!("@{}", words.display()))
            .output()?;
        ended(&ran, status, &[], &[])?;
        if status == 0 {
            has_handler(&out)?;
        } else if out.exists() {
            return Err("a program with a gap was left behind".into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A header that is compiled first, as CMake and meson do it.
fn precompiled_header() -> Result<(), Failed> {
    let dir = folder(
        "header",
        &[
            (
                "all.h",
                include_str!("../../cc/tests/programs/link/precompiled/all.h"),
            ),
            (
                "main.cc",
                include_str!("../../cc/tests/programs/link/precompiled/main.cc"),
            ),
        ],
    )?;
    let (header, out) = (dir.join("all.h.pch"), dir.join("main"));
    let made = compiler(true, true)
        .args(["-O1", "-x", "c++-header"])
        .arg(dir.join("all.h"))
        .arg("-o")
        .arg(&header)
        .output()?;
    ended(&made, 0, &[], &["steadfast"])?;
    let used = compiler(true, true)
        .args(["-O1", "-include-pch"])
        .arg(&header)
        .arg(dir.join("main.cc"))
        .arg("-o")
        .arg(&out)
        .output()?;
    ended(&used, 0, &[], &["steadfast"])?;
    has_handler(&out)?;
    Bench::get().passed(&dir);
    Ok(())
}

/// Atomic operations of all kinds, done once and replayed; the reference counts of the C++ library among them.
fn atomics_once() -> Result<(), Failed> {
    let text = include_str!("../../cc/tests/programs/link/once.cc");
    let dir = folder(
        "atomics",
        &[("main.cc", text), ("policy", "atomics-once\n")],
    )?;
    let source = [dir.join("main.cc")];
    let (plain, hardened) = (dir.join("plain"), dir.join("hardened"));
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    for level in ["-O0", "-O2"] {
        build(compiler(false, true), &[level], &source, &plain)?;
        build(compiler(true, true), &[level, &policy], &source, &hardened)?;
        let golden = run(&plain, &[])?;
        prints(&hardened, &String::from_utf8_lossy(&golden.stdout))?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Functions that are left in the middle and gone on with by a later handler.
fn coroutines() -> Result<(), Failed> {
    let text = include_str!("../../cc/tests/programs/link/coroutines.cc");
    let dir = folder("coroutines", &[("main.cc", text)])?;
    let source = [dir.join("main.cc")];
    let (plain, hardened) = (dir.join("plain"), dir.join("hardened"));
    for level in ["-O0", "-O2"] {
        let flags = [level, "-std=c++20"];
        build(compiler(false, true), &flags, &source, &plain)?;
        build(compiler(true, true), &flags, &source, &hardened)?;
        let golden = run(&plain, &[])?;
        prints(&hardened, &String::from_utf8_lossy(&golden.stdout))?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Operators new and delete of the program's own, in a module that the handler's does not see: called in both runs as hardened code,
/// for every form that the language derives from them, and what one side allocates the other may free.
fn operators() -> Result<(), Failed> {
    let main = include_str!("../../cc/tests/programs/link/allocators/main.cc");
    let own = include_str!("../../cc/tests/programs/link/allocators/own.cc");
    let dir = folder("operators", &[("main.cc", main), ("own.cc", own)])?;
    let sources = [dir.join("main.cc"), dir.join("own.cc")];
    let (plain, hardened) = (dir.join("plain"), dir.join("hardened"));
    for level in [
        &["-O0"][..],
        &["-O2"],
        &["-O2", "-flto=thin", "-fuse-ld=lld"],
    ] {
        build(compiler(false, true), level, &sources, &plain)?;
        build(compiler(true, true), level, &sources, &hardened)?;
        let golden = run(&plain, &[])?;
        prints(&hardened, &String::from_utf8_lossy(&golden.stdout))?;
    }
    // What they do is looked at when the program is linked.
    let refused = compiler(true, true)
        .args(["-O1", "-DATOMIC"])
        .args(&sources)
        .arg("-o")
        .arg(&hardened)
        .output()?;
    ended(&refused, 1, &["_Znwm reaches an atomic operation"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// The same operators in a shared library: refused, since a block of theirs is not one of malloc's. Beside a malloc they are an allocator's.
fn operators_elsewhere() -> Result<(), Failed> {
    let main = include_str!("../../cc/tests/programs/link/elsewhere/main.cc");
    let library = include_str!("../../cc/tests/programs/link/elsewhere/library.cc");
    let allocator = include_str!("../../cc/tests/programs/link/elsewhere/allocator.cc");
    let dir = folder(
        "operators-elsewhere",
        &[
            ("main.cc", main),
            ("replaced.cc", library),
            ("allocator.cc", allocator),
        ],
    )?;
    let out = dir.join("main");
    for name in ["replaced", "allocator"] {
        let library = dir.join(format!("{name}.so"));
        let source = [dir.join(format!("{name}.cc"))];
        build(
            compiler(false, true),
            &["-O1", "-fPIC", "-shared"],
            &source,
            &library,
        )?;
        build(
            compiler(true, true),
            &["-O1"],
            &[dir.join("main.cc"), library],
            &out,
        )?;
        if name == "allocator" {
            prints(&out, "3\n")?;
        } else {
            ended(&run(&out, &[])?, 121, &["shared library", "fix:"], &[])?;
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Without the C library there is nothing that the runtime could stand on, and the linker's words alone would not say so.
fn no_library() -> Result<(), Failed> {
    let dir = folder(
        "no-library",
        &[(
            "main.c",
            include_str!("../../cc/tests/programs/probes/start.c"),
        )],
    )?;
    let ran = compiler(true, false)
        .args(["-ffreestanding", "-nostdlib", "-static"])
        .arg(dir.join("main.c"))
        .arg("-o")
        .arg(dir.join("main"))
        .output()?;
    ended(
        &ran,
        1,
        &["needs the C library, found -nostdlib", "add -lc"],
        &[],
    )?;
    Bench::get().passed(&dir);
    Ok(())
}

/// What was hardened cannot be read from what the linker has written: the program is refused and taken away. Another compiler's object has
/// nothing to read, and is welcome.
fn unreadable() -> Result<(), Failed> {
    let dir = folder(
        "unreadable",
        &[
            (
                "main.c",
                include_str!("../../cc/tests/programs/link/unreadable/main.c"),
            ),
            (
                "other.s",
                include_str!("../../cc/tests/programs/link/unreadable/other.s"),
            ),
        ],
    )?;
    for section in ["none", "whole", "damaged", "short", "newer"] {
        let object = dir.join(format!("{section}.o"));
        let assembled = Command::new("clang-19")
            .args(["-c", &format!("-Wa,--defsym,{section}=1")])
            .arg(dir.join("other.s"))
            .arg("-o")
            .arg(&object)
            .status()?;
        if !assembled.success() {
            return Err(format!("{section}: {assembled}").into());
        }
    }
    let out = dir.join("main");
    let cuts = format!(
        "#!/bin/sh\nld.lld-19 \"$@\" && truncate -s 40 '{}'\n",
        out.display()
    );
    write_executable(&dir.join("cuts"), cuts.as_bytes(), 0o755)?;
    let cases: [(&str, &[&str]); 6] = [
        ("none.o", &[]),
        ("whole.o", &[]),
        (
            "damaged.o",
            &["not linked", r#"found "F\tf"#, "compile all"],
        ),
        ("short.o", &["not linked", r#"found "A\tf"#, "compile all"]),
        ("newer.o", &["not linked", r#"found "Z\tf"#, "compile all"]),
        (
            "--ld-path=cuts",
            &[
                "not linked",
                "no program or object",
                "fix:   let the linker",
            ],
        ),
    ];
    for (what, words) in cases {
        let operand = match what.strip_prefix("--ld-path=") {
            Some(linker) => format!("--ld-path={}", dir.join(linker).display()),
            None => dir.join(what).display().to_string(),
        };
        let ran = compiler(true, false)
            .args(["-O1", "-fuse-ld=lld", "-Wl,--no-gc-sections"])
            .arg(dir.join("main.c"))
            .arg(operand)
            .arg("-o")
            .arg(&out)
            .output()?;
        let status = i32::from(!words.is_empty());
        ended(&ran, status, words, &[])?;
        if words.is_empty() {
            ended(&run(&out, &[])?, 0, &[], &["steadfast"])?;
            std::fs::remove_file(&out)?;
        } else if out.exists() {
            return Err(format!("{what}: the refused program is there").into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

type Check = fn() -> Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Check); 13] = [
        ("unreadable", unreadable),
        ("archive", archive),
        ("weak_alias", weak_alias),
        ("chosen", chosen),
        ("own_name", own_name),
        ("verbose", verbose),
        ("response_file", response_file),
        ("precompiled_header", precompiled_header),
        ("atomics_once", atomics_once),
        ("coroutines", coroutines),
        ("operators", operators),
        ("operators_elsewhere", operators_elsewhere),
        ("no_library", no_library),
    ];
    tests
        .into_iter()
        .map(|(name, test)| Trial::test(format!("harden::link::{name}"), test))
        .collect()
}
