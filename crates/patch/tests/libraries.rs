//! Real files of this machine: every site is patched or refused with a counted reason, and
//! the result is read again by rules of this test's own, not the planner's.
//!
//! The second reading decodes *every* function, takes every direct branch of the module at
//! its word, and asks of each window that none of them lands behind its first byte. Then it
//! decodes the trampolines and compares each instruction with the one it replaces.
#![allow(
    clippy::print_stdout,
    reason = "the table is this test's product; see it with --nocapture"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use steadfast_patch::{
    ArenaSpec, Coverage, Entries, Module, Plan, SiteKind, elf, find_sites, plan,
};

const BIAS: u64 = 0x7f12_3400_0000;
const ENTRIES: Entries = Entries {
    syscall: 0x2a00_0000_1000,
    entropy: 0x2a00_0000_2000,
};

/// Every file here is read where it exists; the first two always do where tests run.
const FILES: &[&str] = &[
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/x86_64-linux-gnu/libm.so.6",
    "/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "/usr/bin/bzip2",
    "/usr/bin/perl",
    "/usr/bin/python3",
    "/usr/bin/bash",
    "/usr/bin/busybox",
    "/usr/bin/gdb",
    "/usr/bin/git",
    "/usr/lib/musl/lib/libc.so",
];

struct Reading {
    module_sites: usize,
    plan: Plan,
    coverage: Coverage,
    took: Duration,
}

fn read(file: &[u8]) -> Reading {
    let probe = elf::module(file, 0).expect("an ELF file");
    // Position-dependent files are linked at a nonzero address and stay there.
    let bias = if probe.code[0].addr >= 0x40_0000 {
        0
    } else {
        BIAS
    };
    let module = elf::module(file, bias).expect("an ELF file");
    let end = module
        .code
        .iter()
        .chain(&module.data)
        .map(|v| v.range().end)
        .max()
        .expect("has code");
    let arena = ArenaSpec {
        addr: (end + 0xF_FFFF) & !0xFFF,
        len: 1 << 20,
    };
    let start = Instant::now();
    let sites = find_sites(&module);
    let plan = plan(&module, &sites, arena, &ENTRIES);
    let took = start.elapsed();
    verify(&module, &plan, arena);
    let coverage = Coverage::of(&module, &plan);
    assert_eq!(
        sites.len(),
        plan.patched.len() + plan.refused.len(),
        "each site has a fate"
    );
    Reading {
        module_sites: sites.len(),
        plan,
        coverage,
        took,
    }
}

fn bytes_at<'a>(module: &Module<'a>, addr: u64) -> &'a [u8] {
    let view = module
        .code
        .iter()
        .find(|v| v.range().contains(&addr))
        .expect("in code");
    &view.bytes[usize::try_from(addr - view.addr).unwrap()..]
}

fn decode(bytes: &[u8], addr: u64) -> Instruction {
    Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE).decode()
}

fn verify(module: &Module<'_>, plan: &Plan, arena: ArenaSpec) {
    let windows: BTreeMap<u64, u64> = plan
        .writes
        .iter()
        .map(|w| (w.addr, w.addr + w.bytes.len() as u64))
        .collect();
    // Disjoint, at least a jump long, a jump and then int3.
    let mut last = 0;
    for write in &plan.writes {
        assert!(write.addr >= last && write.bytes.len() >= 5);
        assert!(write.bytes[0] == 0xE9 && write.bytes[5..].iter().all(|b| *b == 0xCC));
        last = write.addr + write.bytes.len() as u64;
    }
    let inside = |addr: u64| {
        windows
            .range(..addr)
            .next_back()
            .is_some_and(|(_, end)| addr < *end)
    };
    for function in &module.functions {
        assert!(
            !inside(function.start),
            "function {:#x} starts inside a window",
            function.start
        );
        let Some(view) = module
            .code
            .iter()
            .find(|v| v.range().contains(&function.start))
        else {
            continue;
        };
        let from = usize::try_from(function.start - view.addr).unwrap();
        let to = usize::try_from(function.end - view.addr)
            .unwrap()
            .min(view.bytes.len());
        let mut decoder = Decoder::with_ip(
            64,
            &view.bytes[from..to],
            function.start,
            DecoderOptions::NONE,
        );
        for insn in &mut decoder {
            let branch = insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64;
            assert!(
                !branch || !inside(insn.near_branch_target()),
                "{:#x} enters a window at {:#x}",
                insn.ip(),
                insn.near_branch_target()
            );
            // A call in a window must end it, or it would return into the middle.
            if matches!(
                insn.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ) && !matches!(
                insn.code(),
                iced_x86::Code::Syscall | iced_x86::Code::Sysenter
            ) {
                assert!(
                    !inside(insn.next_ip()),
                    "{:#x} returns into a window",
                    insn.ip()
                );
            }
        }
    }
    for leader in &module.leaders {
        assert!(!inside(*leader), "{leader:#x} is a leader");
    }
    // Jump, trampoline, tail, resume: walked as the processor would.
    for patched in &plan.patched {
        let site = patched.site;
        let write = plan
            .writes
            .iter()
            .find(|w| w.addr == patched.window.start)
            .expect("its window is written");
        let jump = decode(&write.bytes, write.addr);
        assert_eq!(jump.near_branch_target(), patched.trampoline.start);
        assert!(patched.window.contains(&site.addr) && site.end() <= patched.window.end);
        let code = &plan.arena[usize::try_from(patched.trampoline.start - arena.addr).unwrap()..];
        let code =
            &code[..usize::try_from(patched.trampoline.end - patched.trampoline.start).unwrap()];
        let mut starts: Vec<(u64, u64)> = plan
            .map
            .iter()
            .copied()
            .filter(|(at, _)| patched.trampoline.contains(at))
            .collect();
        starts.push((patched.trampoline.end, 0));
        for pair in starts.windows(2) {
            let (at, original) = pair[0];
            let offset = usize::try_from(at - patched.trampoline.start).unwrap();
            let moved = decode(&code[offset..], at);
            if let Some(other) = plan.patched.iter().find(|p| p.site.addr == original) {
                check_tail(&code[offset..], at, other, arena);
            } else if original == patched.window.end {
                assert_eq!(moved.near_branch_target(), original, "the way back");
            } else {
                let was = decode(bytes_at(module, original), original);
                equivalent(&was, &moved);
            }
        }
    }
    // No system-call instruction is left in a window or made in the arena.
    for bytes in plan.writes.iter().map(|w| &w.bytes).chain([&plan.arena]) {
        assert!(
            !bytes
                .windows(2)
                .any(|b| matches!(b, [0x0F, 0x05] | [0x0F, 0x34] | [0xCD, 0x80]))
        );
    }
}

fn check_tail(code: &[u8], at: u64, patched: &steadfast_patch::Patched, arena: ArenaSpec) {
    let site = patched.site;
    if site.kind == SiteKind::Xbegin {
        assert_eq!(&code[..5], &[0xB8, 0, 0, 0, 0]);
        assert_eq!(
            decode(&code[5..], at + 5).near_branch_target(),
            site.fallback.unwrap()
        );
        return;
    }
    let (skip, slot) = if site.kind == SiteKind::Syscall {
        (0, 0)
    } else {
        (21, 8)
    };
    let lea = decode(&code[skip..], at + skip as u64);
    assert_eq!(lea.memory_displacement64(), patched.resume);
    let jump = decode(&code[skip + 7..], at + skip as u64 + 7);
    assert_eq!(jump.memory_displacement64(), arena.addr + slot);
    if patched.window.end == site.end() {
        assert_eq!(patched.resume, site.end());
    } else {
        assert!(patched.trampoline.contains(&patched.resume));
    }
}

/// The same operation on the same operands; addresses are absolute in decoded form.
fn equivalent(was: &Instruction, moved: &Instruction) {
    assert_eq!(was.mnemonic(), moved.mnemonic(), "{:#x}", was.ip());
    if was.op_count() > 0 && was.op0_kind() == OpKind::NearBranch64 {
        if !was.is_loop() && !was.is_loopcc() && !was.is_jcx_short() {
            assert_eq!(was.near_branch_target(), moved.near_branch_target());
        }
        return;
    }
    assert_eq!((was.code(), was.len()), (moved.code(), moved.len()));
    for op in 0..was.op_count() {
        assert_eq!(was.op_kind(op), moved.op_kind(op));
        assert_eq!(was.op_register(op), moved.op_register(op));
    }
    assert_eq!(
        was.memory_displacement64(),
        moved.memory_displacement64(),
        "{:#x}",
        was.ip()
    );
    assert_eq!(
        (was.memory_base(), was.memory_index()),
        (moved.memory_base(), moved.memory_index())
    );
}

#[test]
fn sites_of_real_files_are_patched_or_refused_for_a_reason() {
    println!(
        "{:<44} {:>8} {:>6} {:>7} {:>7} {:>5} {:>8} {:>9} {:>8}  refused",
        "file", "code", "found", "patched", "windows", "alike", "nobody's", "arena", "ms"
    );
    let mut seen = 0;
    for path in FILES.iter().map(Path::new) {
        let Ok(file) = std::fs::read(path) else {
            continue;
        };
        seen += 1;
        let r = read(&file);
        let mut refused: BTreeMap<_, usize> = BTreeMap::new();
        for tally in r.coverage.kinds.values() {
            for (reason, n) in &tally.refused {
                *refused.entry(reason.name()).or_default() += n;
            }
        }
        println!(
            "{:<44} {:>8} {:>6} {:>7} {:>7} {:>5} {:>8} {:>9} {:>8.2}  {:?}",
            path.display(),
            r.coverage.code_bytes,
            r.module_sites,
            r.plan.patched.len(),
            r.plan.writes.len(),
            r.coverage.lookalikes,
            r.coverage.uncovered_bytes,
            r.plan.arena.len(),
            r.took.as_secs_f64() * 1e3,
            refused
        );
        for (kind, tally) in &r.coverage.kinds {
            println!(
                "    {kind:<9} found {:>4}, patched {:>4}, unproven {}",
                tally.found, tally.patched, tally.unproven
            );
        }
        for refused in &r.plan.refused {
            println!("    refused {:?}", refused);
        }
    }
    assert!(seen >= 1, "no library of the list exists here");
}

#[test]
fn every_system_call_of_the_c_library_is_patched() {
    let Ok(file) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
        return;
    };
    let r = read(&file);
    let tally = &r.coverage.kinds[&SiteKind::Syscall];
    assert!(tally.found > 300, "a C library has hundreds");
    assert_eq!(tally.found, tally.patched, "{:?}", tally.refused);
    let best = (0..5).map(|_| read(&file).took).min().expect("five");
    println!(
        "libc.so.6: found and planned in {:.2} ms",
        best.as_secs_f64() * 1e3
    );
    // Debug builds decode some thirty times slower; the figure is for what ships.
    if !cfg!(debug_assertions) {
        assert!(best < Duration::from_millis(10), "{best:?}");
    }
}
