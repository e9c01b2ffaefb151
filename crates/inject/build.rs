//! Builds what is placed in targets: freestanding C, linked at 0, as a flat image; and the
//! program that `doctor` controls itself with.

use std::path::Path;
use std::process::Command;

use steadfast_inside::{Build, headers};

fn main() {
    let build = Build::of("blob");
    println!("cargo:rerun-if-changed={}", build.src().display());
    println!("cargo:rerun-if-changed={}", headers().display());
    println!("cargo:rerun-if-env-changed=CC");
    build.c("strike.c", "strike.o", &[]);
    build.assembly("entry.S", "entry.o");
    build.link(
        "blob.lds",
        &["entry.o".to_owned(), "strike.o".to_owned()],
        "blob.bin",
        &["--oformat=binary"],
    );
    let program = build.src().with_file_name("control").join("control.c");
    println!("cargo:rerun-if-changed={}", program.display());
    control(&build, &program);
}

fn control(build: &Build, src: &Path) {
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
    let make = |right: &str| {
        build
            .cc(&flags)
            .arg(format!("-DRIGHT={right}"))
            .arg(src)
            .args(&["-o", "control"])
            .done();
    };
    make("0");
    let output = Command::new(build.out().join("control"))
        .arg("silent")
        .output()
        .expect("the control program runs");
    make(&format!(
        "0x{}ul",
        String::from_utf8_lossy(&output.stdout).trim()
    ));
}
