//! The compiler in the hands of configure scripts, CMake, meson, and as the maker of shared libraries.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

use super::compile::{compiler, ended, named, run};
use crate::bench::{Bench, workspace};
use crate::trial::Trial;

/// Without its pieces the driver compiles nothing.
fn a_missing_piece() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-missing");
    let object = dir.join("x.o");
    let ran = compiler(true, false)
        .env("STEADFAST_HARDEN", &dir)
        .arg("-c")
        .arg(workspace().join("cc/tests/programs/probes/main.c"))
        .arg("-o")
        .arg(&object)
        .output()?;
    ended(&ran, 121, &["make build"], &[])?;
    if object.exists() {
        return Err("an object was made all the same".into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// What configure scripts ask a compiler: silence and success where there is nothing to say, failure where there is.
fn configure() -> Result<(), Failed> {
    struct Probe {
        text: &'static str,
        flags: &'static [&'static str],
        compiles: bool,
    }
    const PROBES: &[Probe] = &[
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/main.c"),
            flags: &[],
            compiles: true,
        },
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/main.c"),
            flags: &["-c"],
            compiles: true,
        },
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/stdint.c"),
            flags: &["-O2", "-g"],
            compiles: true,
        },
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/no_header.c"),
            flags: &["-E"],
            compiles: false,
        },
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/no_function.c"),
            flags: &[],
            compiles: false,
        },
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/function.c"),
            flags: &["-w"],
            compiles: true,
        },
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/undeclared.c"),
            flags: &["-c"],
            compiles: false,
        },
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/size.c"),
            flags: &["-c"],
            compiles: true,
        },
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/main.c"),
            flags: &["-fno-such-flag"],
            compiles: false,
        },
        Probe {
            text: include_str!("../../../cc/tests/programs/probes/math.c"),
            flags: &["-lm"],
            compiles: true,
        },
    ];
    let dir = Bench::get().case_dir("harden-configure");
    for (index, probe) in PROBES.iter().enumerate() {
        let Probe {
            text,
            flags,
            compiles,
        } = *probe;
        let source = dir.join(format!("conftest{index}.c"));
        std::fs::write(&source, text)?;
        let ran = compiler(true, false)
            .arg(&source)
            .args(flags)
            .arg("-o")
            .arg(dir.join(format!("conftest{index}")))
            .output()?;
        let silent = ran.stderr.is_empty();
        if ran.status.success() != compiles || silent != compiles {
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("probe {index} {flags:?}: {}\n{said}\n{text}", ran.status).into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A CMake project of C and C++ by the toolchain file, as it lies when it is installed.
fn cmake() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-cmake");
    let (bin, lib, tree) = (dir.join("bin"), dir.join("lib/steadfast"), dir.join("tree"));
    for folder in [&bin, &lib, &tree] {
        std::fs::create_dir_all(folder)?;
    }
    for name in ["steadfast-cc", "steadfast-c++"] {
        std::os::unix::fs::symlink(Bench::get().binary(), bin.join(name))?;
    }
    let toolchain = lib.join("steadfast-toolchain.cmake");
    std::fs::copy(workspace().join("cc/steadfast-toolchain.cmake"), &toolchain)?;
    let write = |name: &str, text: &str| std::fs::write(tree.join(name), text);
    write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.13)\nproject(served C CXX)\nadd_library(state state.c)\nadd_executable(serve main.cc)\n\
         target_link_libraries(serve state)\n",
    )?;
    write(
        "state.c",
        include_str!("../../../cc/tests/programs/project/state.c"),
    )?;
    write(
        "main.cc",
        include_str!("../../../cc/tests/programs/project/main.cc"),
    )?;
    let made = dir.join("made");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&tree).arg("-B").arg(&made);
    configure.arg(format!("-DCMAKE_TOOLCHAIN_FILE={}", toolchain.display()));
    let mut make = Command::new("cmake");
    make.arg("--build").arg(&made);
    for mut command in [configure, make] {
        let ran = command
            .env_remove("STEADFAST_POLICY")
            .output()
            .map_err(|why| format!("cmake is required: {why}"))?;
        if !ran.status.success() || !ran.stderr.is_empty() {
            let told = String::from_utf8_lossy(&ran.stdout).into_owned();
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("{}\n{told}{said}", ran.status).into());
        }
    }
    adds_to_seven(&made.join("serve"))?;
    Bench::get().passed(&dir);
    Ok(())
}

/// What the projects of other build tools make: handle(3) and handle(4), hardened.
fn adds_to_seven(program: &Path) -> Result<(), Failed> {
    let coverage = Command::new(Bench::get().binary())
        .args(["cc", "--coverage=json"])
        .arg(program)
        .output()?;
    let json: serde_json::Value = serde_json::from_slice(&coverage.stdout)?;
    let ran = run(program, &[])?;
    if ran.stdout != b"7\n" || json["handlers"][0]["name"] != "handle" {
        return Err(format!("{:?}\n{json:#}", ran.stdout).into());
    }
    Ok(())
}

/// A meson project of C and C++, found by CC and CXX.
fn meson() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-meson");
    let (bin, tree, made) = (dir.join("bin"), dir.join("tree"), dir.join("made"));
    for folder in [&bin, &tree] {
        std::fs::create_dir_all(folder)?;
    }
    for name in ["steadfast-cc", "steadfast-c++"] {
        std::os::unix::fs::symlink(Bench::get().binary(), bin.join(name))?;
    }
    let write = |name: &str, text: &str| std::fs::write(tree.join(name), text);
    write(
        "meson.build",
        "project('served', 'c', 'cpp', default_options : ['buildtype=debugoptimized'])\n\
         state = static_library('state', 'state.c')\n\
         executable('serve', 'main.cc', link_with : state, dependencies : dependency('threads'))\n",
    )?;
    write(
        "state.c",
        include_str!("../../../cc/tests/programs/project/state.c"),
    )?;
    write(
        "main.cc",
        include_str!("../../../cc/tests/programs/project/main.cc"),
    )?;
    let meson = crate::packages::program("/usr/bin/meson")?;
    let mut setup = Command::new(&meson);
    setup.arg("setup").args([&made, &tree]);
    let mut compile = Command::new(&meson);
    compile.arg("compile").arg("-C").arg(&made);
    for mut command in [setup, compile] {
        let ran = command
            .env_remove("STEADFAST_POLICY")
            .env("CC", bin.join("steadfast-cc"))
            .env("CXX", bin.join("steadfast-c++"))
            .env("HOME", &dir)
            .output()?;
        if !ran.status.success() {
            let told = String::from_utf8_lossy(&ran.stdout).into_owned();
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("{}\n{told}{said}", ran.status).into());
        }
    }
    adds_to_seven(&made.join("serve"))?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A shared library is plain code: a program's handlers reach it by a policy's word alone, and none are in it.
fn shared_library() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-shared-library");
    std::fs::write(
        dir.join("library.c"),
        include_str!("../../../cc/tests/programs/shared_library/library.c"),
    )?;
    std::fs::write(
        dir.join("main.c"),
        include_str!("../../../cc/tests/programs/shared_library/main.c"),
    )?;
    let library = dir.join("libours.so");
    let out = dir.join("main");
    let made = |policy: &str, arguments: &[&str]| {
        Ok::<_, Failed>(
            compiler(true, false)
                .arg("-O2")
                .arg(named(&dir, policy)?)
                .args(arguments)
                .current_dir(&dir)
                .output()?,
        )
    };
    let as_library = [
        "-fPIC",
        "-shared",
        "-Wl,-z,defs",
        "library.c",
        "-o",
        "libours.so",
    ];
    ended(&made("", &as_library)?, 0, &[], &["steadfast"])?;
    let names = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library)
        .output()?;
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    if !names.contains("twice") || names.contains(".sf") || names.contains("__sf_") {
        return Err(names.into());
    }
    // Many of them may be opened: each takes next to nothing of the thread-local memory that there is for these.
    const MANY: usize = 40;
    for n in 0..MANY {
        std::fs::copy(&library, dir.join(format!("l{n}.so")))?;
    }
    std::fs::write(
        dir.join("many.c"),
        include_str!("../../../cc/tests/programs/shared_library/many.c"),
    )?;
    let opener = compiler(false, false)
        .args(["many.c", "-o", "many"])
        .current_dir(&dir)
        .output()?;
    ended(&opener, 0, &[], &[])?;
    let opened = Command::new("./many")
        .arg(MANY.to_string())
        .current_dir(&dir)
        .output()?;
    if opened.stdout != format!("{}\n", MANY * (MANY - 1)).as_bytes() {
        return Err(String::from_utf8_lossy(&opened.stdout).into_owned().into());
    }
    let rpath = format!("-Wl,-rpath,{}", dir.display());
    let as_program = ["main.c", "-L.", "-lours", &rpath, "-o", "main"];
    ended(
        &made("local-handler handle\npure length\n", &as_program)?,
        0,
        &[],
        &["steadfast"],
    )?;
    let ran = run(&out, &[])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    if ran.stdout != b"5360 5\n" {
        return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
    }
    for statements in ["local-handler handle\n", "local-handler reach\n"] {
        std::fs::remove_file(&out).or_else(|why| {
            (why.kind() == std::io::ErrorKind::NotFound)
                .then_some(())
                .ok_or(why)
        })?;
        let ran = made(statements, &as_program)?;
        if ran.status.success() || out.exists() {
            return Err(String::from_utf8_lossy(&ran.stderr).into_owned().into());
        }
    }
    ended(
        &made("local-handler twice\n", &as_library)?,
        1,
        &["a shared library has no handlers, found twice"],
        &[],
    )?;
    if library.exists() {
        return Err("a library with a handler was left behind".into());
    }
    Ok(())
}

pub(super) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("harden::shared_library", shared_library),
        Trial::test("harden::a_missing_piece", a_missing_piece),
        Trial::test("harden::configure", configure),
        Trial::test("harden::cmake", cmake),
        Trial::test("harden::meson", meson),
    ]
}
