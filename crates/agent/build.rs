//! Builds the agent: freestanding C and assembly, linked at its final address.
//!
//! Only the C compiler and the linker that every Debian build machine has are used; flags
//! forbid vector registers, since vector state inside a replica belongs to the program.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const C: [&str; 16] = [
    "base", "log", "args", "calls", "entropy", "memory", "shared", "signal", "recover", "epoch", "flip", "profile", "private",
    "wait", "kept", "init",
];

const CFLAGS: [&str; 18] = [
    "-std=gnu11",
    "-O2",
    "-g",
    "-Wall",
    "-Wextra",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fpie",
    "-fvisibility=hidden",
    "-mgeneral-regs-only",
    "-mno-red-zone",
    "-mpopcnt",
    "-mcrc32",
    "-mprfchw", // a hint, and nothing where the processor lacks it (Intel SDM, PREFETCHW)
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-fno-strict-aliasing",
];

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?} did not start: {error}"));
    assert!(status.success(), "{command:?} failed: {status}");
}

fn main() {
    let src = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("src");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let cc = env::var("CC").unwrap_or_else(|_| "cc".into());
    println!("cargo:rerun-if-changed={}", src.display());
    println!("cargo:rerun-if-env-changed=CC");

    generate_names(&src, &out);

    let compile = |from: &Path, to: &str, more: &[&str]| {
        run(Command::new(&cc)
            .current_dir(&out)
            .args(more)
            .arg(format!("-I{}", src.display()))
            .arg("-c")
            .arg(from)
            .arg("-o")
            .arg(to));
    };
    compile(&src.join("vdso.S"), "vdso.o", &[]);
    run(Command::new(&cc).current_dir(&out).args([
        "-shared",
        "-nostdlib",
        &format!("-Wl,-T,{}", src.join("vdso.lds").display()),
        "-Wl,-soname,linux-vdso.so.1",
        "-Wl,--hash-style=both",
        "-Wl,-z,max-page-size=4096",
        "-Wl,--build-id=none",
        "vdso.o",
        "-o",
        "vdso.so",
    ]));
    let mut objects = vec!["image.o".to_owned(), "gate.o".to_owned(), "flipentry.o".to_owned()];
    for name in C {
        let object = format!("{name}.o");
        compile(&src.join(format!("{name}.c")), &object, &CFLAGS);
        objects.push(object);
    }
    compile(&src.join("gate.S"), "gate.o", &[]);
    compile(&src.join("flip.S"), "flipentry.o", &[]);
    // The assembler looks for vdso.so (.incbin) in the current directory: OUT_DIR.
    compile(&src.join("image.S"), "image.o", &["-Wa,-I."]);
    run(Command::new("ld")
        .current_dir(&out)
        .args(["-static", "--build-id=none", "--no-warn-rwx-segments", "-T"])
        .arg(src.join("agent.lds"))
        .args(&objects)
        .args(["-o", "agent.elf"]));
}

/// Names and notes of the calls and their commands, for messages: the same rows the agent's
/// tables are made of.
fn generate_names(src: &Path, out: &Path) {
    let read = |file: &str| {
        let path = src.join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    // A row's note is its last string; it ends at the quote before the closing parenthesis.
    let note = |row: &str, skip: usize| {
        let mut rest = row;
        for _ in 0..=skip {
            rest = rest.split_once('"').map_or("", |(_, after)| after);
        }
        rest.split("\")").next().unwrap_or("").to_owned()
    };
    let mut code = String::from("static CALLS: &[(u32, &str, &str)] = &[\n");
    for row in read("calls.def").split("\nCALL(").skip(1) {
        let mut fields = row.splitn(3, ',');
        let number = fields.next().expect("a row starts with its number").trim();
        let name = fields.next().expect("a row has a name").trim();
        code.push_str(&format!("    ({number}, {name:?}, \"{}\"),\n", note(row, 0)));
    }
    code.push_str("];\nstatic COMMANDS: &[(&str, u64, &str, &str)] = &[\n");
    for table in ["ioctl", "fcntl", "prctl", "arch_prctl"] {
        for row in read(&format!("{table}.def")).split("\nSUB(").skip(1) {
            let number = row.split(',').next().expect("a row starts with its command").trim();
            let name = row.split('"').nth(1).expect("a row has a name");
            // The name is a row's first string, the note its second.
            code.push_str(&format!("    ({table:?}, {number}, {name:?}, \"{}\"),\n", note(row, 2)));
        }
    }
    code.push_str("];\n");
    std::fs::write(out.join("calls.rs"), code).expect("OUT_DIR is writable");
}
