//! Builds what is placed in targets: freestanding C, linked at 0, as a flat image.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const CFLAGS: [&str; 13] = [
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fpie",
    "-mgeneral-regs-only",
    "-mno-red-zone",
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
    let src = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("blob");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let cc = env::var("CC").unwrap_or_else(|_| "cc".into());
    println!("cargo:rerun-if-changed={}", src.display());
    println!("cargo:rerun-if-env-changed=CC");
    run(Command::new(&cc)
        .current_dir(&out)
        .args(CFLAGS)
        .arg("-fvisibility=hidden")
        .arg("-c")
        .arg(src.join("strike.c"))
        .args(["-o", "strike.o"]));
    run(Command::new(&cc)
        .current_dir(&out)
        .arg("-c")
        .arg(src.join("entry.S"))
        .args(["-o", "entry.o"]));
    let mut link = Command::new("ld");
    link.current_dir(&out).args([
        "-static",
        "--build-id=none",
        "--no-warn-rwx-segments",
        "--oformat=binary",
        "-T",
    ]);
    run(link
        .arg(src.join("blob.lds"))
        .args(["entry.o", "strike.o", "-o", "blob.bin"]));
    let program = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("control/control.c");
    println!("cargo:rerun-if-changed={}", program.display());
    control(&cc, &program, &out);
}

fn control(cc: &str, src: &std::path::Path, out: &std::path::Path) {
    // Plain code that any x86-64 compiler makes from C, so that it runs where it is built. The
    // guarded half has to know the sum: the first build tells it.
    let flags = [
        "-O1",
        "-g0",
        "-ffreestanding",
        "-nostdlib",
        "-static",
        "-fno-stack-protector",
        "-fcf-protection=none",
        "-fno-pie",
        "-no-pie",
    ];
    let build = |right: &str| {
        run(Command::new(cc)
            .current_dir(out)
            .args(flags)
            .arg(format!("-DRIGHT={right}"))
            .arg(src)
            .args(["-o", "control"]));
    };
    build("0");
    let output = Command::new(out.join("control"))
        .arg("silent")
        .output()
        .expect("the control program runs");
    build(&format!(
        "0x{}ul",
        String::from_utf8_lossy(&output.stdout).trim()
    ));
}
