//! Builds the agent: freestanding C and assembly, linked at its final address.
//!
//! Only the C compiler and the linker that every Debian build machine has are used; flags
//! forbid vector registers, since vector state inside a replica belongs to the program.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const C: [&str; 11] = [
    "base", "log", "args", "calls", "entropy", "memory", "signal", "recover", "epoch", "flip", "init",
];

const CFLAGS: [&str; 17] = [
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

/// Names and notes of the calls, for messages: the same rows the agent's table is made of.
fn generate_names(src: &Path, out: &Path) {
    let text = std::fs::read_to_string(src.join("calls.def")).expect("calls.def is readable");
    let mut code = String::from("static CALLS: &[(u32, &str, &str)] = &[\n");
    for row in text.split("\nCALL(").skip(1) {
        let mut fields = row.splitn(3, ',');
        let number: u32 = fields
            .next()
            .and_then(|n| n.trim().parse().ok())
            .expect("a row starts with its number");
        let name = fields.next().expect("a row has a name").trim();
        // The note is the row's only string; it ends at the quote before the closing paren.
        let note = row
            .split_once('"')
            .and_then(|(_, rest)| rest.split("\")").next())
            .unwrap_or("");
        code.push_str(&format!("    ({number}, {name:?}, \"{note}\"),\n"));
    }
    code.push_str("];\n");
    std::fs::write(out.join("calls.rs"), code).expect("OUT_DIR is writable");
}
