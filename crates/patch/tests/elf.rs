//! What is read from ELF files as they come, and as little as is left of them.

use std::process::Command;

use steadfast_patch::{SiteKind, elf, find_sites};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const BIAS: u64 = 0x7F00_0000_0000;

/// Offsets in the ELF header and program headers (System V ABI, chapters 4 and 5).
const E_PHOFF: usize = 0x20;
const E_SHOFF: usize = 0x28;
const E_PHNUM: usize = 0x38;
const E_SHNUM: usize = 0x3C;
const PHENT: usize = 56;
const PT_GNU_EH_FRAME: u32 = 0x6474_E550;

fn without_sections(mut file: Vec<u8>) -> Vec<u8> {
    file[E_SHOFF..E_SHOFF + 8].fill(0);
    file[E_SHNUM..E_SHNUM + 4].fill(0);
    file
}

fn without_unwind_header(mut file: Vec<u8>) -> Vec<u8> {
    let table = usize::try_from(u64::from_le_bytes(
        file[E_PHOFF..E_PHOFF + 8].try_into().unwrap(),
    ))
    .unwrap();
    let count = usize::from(u16::from_le_bytes([file[E_PHNUM], file[E_PHNUM + 1]]));
    for entry in (0..count).map(|i| table + i * PHENT) {
        if file[entry..entry + 4] == PT_GNU_EH_FRAME.to_le_bytes() {
            file[entry..entry + 4].fill(0);
        }
    }
    file
}

#[test]
fn unwind_entries_survive_the_loss_of_the_section_table() {
    let Ok(file) = std::fs::read(LIBC) else {
        return;
    };
    let whole = elf::functions(&file, BIAS).expect("an ELF file");
    assert!(whole.functions.len() > 2000 && whole.functions.is_sorted_by_key(|f| f.start));
    assert!(
        whole
            .functions
            .iter()
            .all(|f| f.start >= BIAS && f.start < f.end)
    );
    let stripped = without_sections(file.clone());
    let left = elf::functions(&stripped, BIAS).expect("an ELF file");
    // Symbols are gone; every system call lies in a function with an unwind entry all the same.
    assert!(left.functions.len() > 2000 && left.functions.len() < whole.functions.len());
    let module = elf::module(&stripped, BIAS).expect("an ELF file");
    let sites = find_sites(&module);
    assert!(sites.iter().all(|site| site.proven));
    assert_eq!(
        sites,
        find_sites(&elf::module(&file, BIAS).expect("an ELF file"))
    );
}

#[test]
fn a_file_that_says_nothing_is_no_error() {
    let Ok(file) = std::fs::read(LIBC) else {
        return;
    };
    let bare = without_unwind_header(without_sections(file));
    let found = elf::functions(&bare, BIAS).expect("an ELF file");
    assert!(found.functions.is_empty());
    // Its entry point is in the header.
    assert_eq!(found.leaders.len(), 1);
    let module = elf::module(&bare, BIAS).expect("an ELF file");
    assert!(
        find_sites(&module)
            .iter()
            .filter(|s| s.kind == SiteKind::Syscall)
            .count()
            > 300
    );
}

#[test]
fn other_files_are_refused() {
    for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7FELF"] {
        assert!(elf::functions(bytes, 0).is_err());
    }
    let Ok(mut file) = std::fs::read(LIBC) else {
        return;
    };
    file[0x12] = 0xB7; // e_machine: AArch64
    let message = elf::module(&file, 0)
        .expect_err("another machine")
        .to_string();
    assert!(message.contains("Aarch64"), "{message}");
}

#[test]
fn the_signal_return_stub_starts_where_it_does() {
    let Ok(file) = std::fs::read(LIBC) else {
        return;
    };
    let module = elf::module(&file, BIAS).expect("an ELF file");
    // mov rax, 15; syscall: unwinders know the stub by these bytes.
    let stub = [0x48, 0xC7, 0xC0, 15, 0, 0, 0, 0x0F, 0x05];
    let view = module.code[0];
    let at = view
        .bytes
        .windows(stub.len())
        .position(|w| w == stub)
        .expect("glibc has one");
    let addr = view.addr + at as u64;
    assert!(module.functions.iter().any(|f| f.start == addr));
    assert!(
        find_sites(&module)
            .iter()
            .any(|s| s.addr == addr + 7 && s.proven)
    );
}

#[test]
fn restartable_sequences_are_forbidden_ground() {
    let source = "
        .text
        .globl f
        .type f, @function
     f: nop
     1: mov $1, %eax
        mov $2, %ecx
     2: ret
        .byte 0x0f, 0xb9, 0x3d
        .long 0x53053053
     3: ret
        .size f, . - f
        .section __rseq_cs, \"aw\"
        .balign 32
        .long 0, 0
        .quad 1b, 2b - 1b, 3b
        .section .note.GNU-stack, \"\", @progbits
    ";
    let dir = std::env::temp_dir().join(format!("steadfast-patch-rseq-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    let (input, output) = (dir.join("f.s"), dir.join("f.so"));
    std::fs::write(&input, source).expect("the directory is there");
    let built = Command::new("cc")
        .args(["-shared", "-nostdlib", "-o"])
        .arg(&output)
        .arg(&input)
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "the workspace needs a C compiler anyway"
    );
    let file = std::fs::read(&output).expect("just built");
    let _ = std::fs::remove_dir_all(&dir);
    let found = elf::functions(&file, BIAS).expect("an ELF file");
    let f = found
        .functions
        .iter()
        .find(|f| f.end - f.start == 20)
        .expect("f")
        .start;
    assert_eq!(found.forbidden, [f + 1..f + 11, f + 15..f + 19]);
}
