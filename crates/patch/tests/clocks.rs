//! Real files of this machine: bytes that spell rdtsc are in doubt where they are an instruction that nothing proves, and nowhere else.
//!
//! Where there is a doubt rdtsc faults, and all clocks of the program get slow: of 2,780 programs and libraries of a
//! developer's machine two had such a place.

use steadfast_patch::{Module, Site, elf, find_sites, reads_clock};

const BIAS: u64 = 0x7f12_3400_0000;

/// Read where they exist. Tables of constants among the code (libcrypto), one segment for all (LLVM), Go's code without unwind entries.
const FILES: &[&str] = &[
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/x86_64-linux-gnu/libgcrypt.so.20",
    "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
    "/usr/lib/llvm-19/lib/LLVMPolly.so",
    "/usr/lib/x86_64-linux-musl/libc.so",
    "/usr/lib/go-1.19/pkg/tool/linux_amd64/cover",
    "/usr/bin/busybox",
    "/usr/bin/git",
    "/usr/bin/perl",
    "/usr/bin/python3",
];

fn clocks(module: &Module<'_>) -> Vec<Site> {
    let mut sites = find_sites(module);
    sites.retain(|site| reads_clock(site.kind));
    sites
}

#[test]
fn real_files_leave_no_doubt_about_rdtsc() {
    for path in FILES {
        let Ok(file) = std::fs::read(path) else {
            continue;
        };
        let probe = elf::module(&file, 0).expect("an ELF file");
        let bias = if probe.code[0].addr >= 0x40_0000 {
            0
        } else {
            BIAS
        };
        let module = elf::module(&file, bias).expect("an ELF file");
        let (sure, doubt): (Vec<Site>, Vec<Site>) =
            clocks(&module).into_iter().partition(|site| site.proven);
        assert!(doubt.is_empty(), "{path}: {doubt:x?}");
        // Where nothing is known of functions, all that are instructions stay in doubt.
        let unknown = Module {
            functions: vec![],
            leaders: vec![],
            ..module.clone()
        };
        let found = clocks(&unknown);
        for site in sure {
            let is_found = found.iter().any(|other| other.addr == site.addr);
            assert!(is_found, "{path}: {site:x?}");
        }
    }
}
