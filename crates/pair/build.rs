//! Compiles what holds acknowledgements back: its instructions, without the ELF file around them.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

const SOURCE: &str = "src/hold.bpf.c";
const SECTION: &[u8] = b"egress\0";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=STEADFAST_CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let object = out.join("hold.o");
    let clang = env::var("STEADFAST_CLANG").unwrap_or_else(|_| "clang-19".into());
    let built = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g0", "-ffreestanding"])
        .args(["-Wall", "-Wextra", "-Werror", "-c", SOURCE, "-o"])
        .arg(&object)
        .status();
    match built {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} cannot compile {SOURCE} for the kernel: {status}"),
        Err(error) => panic!(
            "{clang} is needed to compile {SOURCE}: {error}; fix: scripts/setup pair, or name it in STEADFAST_CLANG"
        ),
    }
    let object = fs::read(&object).expect("compiled");
    fs::write(out.join("hold.code"), section(&object)).expect("room in OUT_DIR");
}

/// The bytes of the section (elf(5), 64 bits, little-endian).
fn section(elf: &[u8]) -> &[u8] {
    let number = |at: usize, bytes: usize| {
        elf[at..at + bytes]
            .iter()
            .rev()
            .fold(0, |all, byte| all << 8 | usize::from(*byte))
    };
    let header = |index: usize| number(40, 8) + index * number(58, 2);
    let place = |index: usize| number(header(index) + 24, 8);
    let names = place(number(62, 2));
    let index = (0..number(60, 2))
        .find(|index| elf[names + number(header(*index), 4)..].starts_with(SECTION))
        .expect("named in the source");
    &elf[place(index)..place(index) + number(header(index) + 32, 8)]
}
