//! Real files of this machine: every site is patched or refused with a counted reason, and
//! the result is read again by rules of this test's own, not the planner's.
//!
//! The second reading decodes *every* function, takes every direct branch of the module at
//! its word, and asks of each window that none of them lands behind its first byte. Then it
//! decodes the trampolines and compares each instruction with the one it replaces.
//!
//! `STEADFAST_PATCH_FILES`, separated by colons, adds files to the table.
#![allow(
    clippy::print_stdout,
    reason = "the table is this test's product; see it with --nocapture"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use steadfast_patch::{
    ArenaSpec, Coverage, Entries, Existing, Hook, Module, Place, Plan, RefusedReason, SiteKind,
    Survey, elf, find_sites, plan, plan_hooks, site_at,
};

const BIAS: u64 = 0x7f12_3400_0000;
const ENTRIES: Entries = Entries {
    syscall: 0x2a00_0000_1000,
    entropy: 0x2a00_0000_2000,
};

/// A no-op that no compiler emits: nop [rax+0x5a5a5a5a].
const PAYLOAD: [u8; 7] = [0x0F, 0x1F, 0x80, 0x5A, 0x5A, 0x5A, 0x5A];

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
    "/usr/bin/gcc",
    "/usr/lib/x86_64-linux-musl/libc.so",
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
    for write in &plan.writes {
        let window = write.addr..write.addr + write.bytes.len() as u64;
        let start = decode(&write.bytes, write.addr).near_branch_target();
        let sites = plan.patched.iter().map(|p| (&p.window, &p.trampoline));
        let hooks = plan.hooked.iter().map(|h| (&h.window, &h.trampoline));
        let mut users = sites.chain(hooks).filter(|(w, _)| w.start == window.start);
        let (_, trampoline) = users.next().expect("somebody asked for the window");
        assert!(users.all(|(w, t)| *w == window && t == trampoline));
        assert_eq!(trampoline.start, start);
        let from = plan.map.partition_point(|(at, _)| *at < trampoline.start);
        let to = plan.map.partition_point(|(at, _)| *at < trampoline.end);
        let mut expected = window.start;
        for &(at, original) in &plan.map[from..to] {
            let offset = usize::try_from(at - arena.addr).unwrap();
            let code = &plan.arena[offset..];
            let payload = if code.starts_with(&PAYLOAD) {
                PAYLOAD.len()
            } else {
                0
            };
            let (code, at) = (&code[payload..], at + payload as u64);
            assert_eq!(original, expected, "every instruction moves, in order");
            if let Some(site) = plan.patched.iter().find(|p| p.site.addr == original) {
                check_tail(code, at, site, arena);
                expected = site.site.end();
            } else if original == window.end {
                assert_eq!(decode(code, at).near_branch_target(), original);
            } else {
                let was = decode(bytes_at(module, original), original);
                equivalent(&was, code, at, plan, arena);
                expected = was.next_ip();
            }
        }
    }
    // No system-call instruction is left in a window, or made in the arena by a displacement.
    // A payload's neighbours may hold those bytes of their own.
    let arena = plan.hooked.is_empty().then_some(&plan.arena);
    for bytes in plan.writes.iter().map(|w| &w.bytes).chain(arena) {
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
fn equivalent(was: &Instruction, code: &[u8], at: u64, plan: &Plan, arena: ArenaSpec) {
    let mut moved = decode(code, at);
    let mut was = *was;
    if matches!(
        was.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    ) {
        // push [the original return address]; jmp
        assert_eq!(
            (moved.code(), moved.memory_base()),
            (Code::Push_rm64, Register::RIP)
        );
        let literal = usize::try_from(moved.memory_displacement64() - arena.addr).unwrap();
        assert_eq!(
            plan.arena[literal..literal + 8],
            was.next_ip().to_le_bytes()
        );
        moved = decode(&code[moved.len()..], moved.next_ip());
        if was.op0_kind() == OpKind::NearBranch64 {
            was.set_code(Code::Jmp_rel32_64);
        } else {
            was.set_code(Code::Jmp_rm64);
            if was.memory_base() == Register::RSP {
                was.set_memory_displacement64(was.memory_displacement64() + 8);
            }
        }
    }
    assert_eq!(was.mnemonic(), moved.mnemonic(), "{:#x}", was.ip());
    if was.op_count() > 0 && was.op0_kind() == OpKind::NearBranch64 {
        if was.is_loop() || was.is_loopcc() || was.is_jcx_short() {
            let jump = decode(&code[moved.len()..], moved.next_ip());
            assert_eq!(jump.near_branch_target(), moved.next_ip() + 7);
            assert_eq!(moved.near_branch_target(), moved.next_ip() + 2);
            moved = decode(&code[moved.len() + 2..], moved.next_ip() + 2);
        }
        assert_eq!(was.near_branch_target(), moved.near_branch_target());
        return;
    }
    assert_eq!(was.code(), moved.code());
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
    assert_eq!(was.memory_index_scale(), moved.memory_index_scale());
    assert_eq!(was.segment_prefix(), moved.segment_prefix());
}

#[test]
fn sites_of_real_files_are_patched_or_refused_for_a_reason() {
    println!(
        "{:<44} {:>8} {:>6} {:>7} {:>7} {:>5} {:>8} {:>9} {:>8}  refused",
        "file", "code", "found", "patched", "windows", "alike", "nobody's", "arena", "ms"
    );
    let more = std::env::var("STEADFAST_PATCH_FILES").unwrap_or_default();
    let mut seen = std::collections::BTreeSet::new();
    for path in FILES.iter().copied().chain(more.split(':')).map(Path::new) {
        let Ok(file) = std::fs::read(path) else {
            continue;
        };
        // One file may have two names.
        if !seen.insert(path.canonicalize().expect("it was read")) {
            continue;
        }
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
    }
    assert!(!seen.is_empty(), "no file of the list exists here");
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
    let best = (0..9).map(|_| read(&file).took).min().expect("nine");
    println!(
        "libc.so.6: found and planned in {:.2} ms",
        best.as_secs_f64() * 1e3
    );
    // The target is 10 ms on an idle machine; three times that leaves room for a busy one.
    // Debug builds decode some thirty times slower: the figure is for what ships.
    if !cfg!(debug_assertions) {
        assert!(best < Duration::from_millis(30), "{best:?}");
    }
}

/// An object without any function bounds, as a stripped one without unwind entries: nothing
/// is patched in advance, and each trap proves one boundary.
#[test]
fn trapped_sites_of_an_unknown_object_are_mostly_patched() {
    let Ok(file) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
        return;
    };
    let known = elf::module(&file, BIAS).expect("an ELF file");
    let truth = find_sites(&known);
    let unknown = Module {
        functions: vec![],
        leaders: vec![],
        ..known.clone()
    };
    assert!(find_sites(&unknown).iter().all(|site| !site.proven));
    let arena = ArenaSpec {
        addr: BIAS + 0x40_0000,
        len: 1 << 20,
    };
    let trapped: Vec<_> = truth
        .iter()
        .filter_map(|s| site_at(&unknown, s.addr, s.kind))
        .collect();
    assert_eq!(trapped, truth);
    let start = Instant::now();
    let plan = plan(&unknown, &trapped, arena, &ENTRIES);
    let took = start.elapsed();
    // Checked against what the object's unwind entries say after all.
    verify(&known, &plan, arena);
    let mut refused: BTreeMap<RefusedReason, usize> = BTreeMap::new();
    for r in &plan.refused {
        *refused.entry(r.reason).or_default() += 1;
    }
    println!(
        "without bounds: {} of {} trapped sites patched in {took:?}, refused {refused:?}",
        plan.patched.len(),
        truth.len()
    );
    assert!(plan.patched.len() * 10 > truth.len() * 9);
}

/// Payloads at a sample of all instructions, on top of the interception, as a fault injector
/// plants them; reported is the share of *static* instructions that take one.
#[test]
fn payloads_can_be_planted_at_ordinary_instructions() {
    for path in FILES {
        let Ok(file) = std::fs::read(path) else {
            continue;
        };
        let module = elf::module(&file, BIAS).expect("an ELF file");
        if module.code[0].addr < BIAS + 0x1000 || module.code[0].addr >= BIAS + 0x40_0000 {
            continue;
        }
        let end = module
            .code
            .iter()
            .chain(&module.data)
            .map(|v| v.range().end)
            .max()
            .expect("has code");
        let first_arena = ArenaSpec {
            addr: (end + 0xF_FFFF) & !0xFFF,
            len: 1 << 20,
        };
        let first = plan(&module, &find_sites(&module), first_arena, &ENTRIES);
        let mut hooks = Vec::new();
        for function in &module.functions {
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
            let decoder = Decoder::with_ip(
                64,
                &view.bytes[from..to],
                function.start,
                DecoderOptions::NONE,
            );
            hooks.extend(decoder.into_iter().map(|insn| insn.ip()));
        }
        hooks.sort_unstable();
        hooks.dedup();
        let total = hooks.len();
        // A prime, so that the sample does not fall in step with anything.
        let hooks: Vec<Hook> = hooks
            .into_iter()
            .step_by(if total > 20_000 { 397 } else { 31 })
            .map(|addr| Hook {
                addr,
                place: Place::Before,
                code: PAYLOAD.to_vec(),
            })
            .collect();
        let arena = ArenaSpec {
            addr: first_arena.addr + first_arena.len,
            len: 1 << 22,
        };
        let start = Instant::now();
        let second = plan_hooks(&module, &hooks, Existing::from(&first), arena);
        let took = start.elapsed();
        verify(&module, &second, arena);
        let new = hooks.len() - second.refused.len();
        assert_eq!(second.hooked.len(), new);
        let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
        for r in &second.refused {
            *refused.entry(r.reason.name()).or_default() += 1;
        }
        println!(
            "{path:<44} {new:>5} of {:>5} payloads ({:.1} %), {} merged with interception, {:.1} ms, refused {refused:?}",
            hooks.len(),
            100.0 * new as f64 / hooks.len() as f64,
            second.superseded.len(),
            took.as_secs_f64() * 1e3,
        );
        assert!(new * 10 > hooks.len() * 7);
    }
}

/// Every block of a real library gets a payload at once: what lends bytes, what bounces and what does
/// neither have to keep apart, and each jump has to arrive at the beginning of a trampoline.
#[test]
fn windows_that_bounce_keep_apart_from_all_others() {
    for name in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/bin/perl",
    ] {
        let Ok(file) = std::fs::read(name) else {
            continue;
        };
        let module = elf::module(&file, BIAS).expect("an ELF file");
        let arena = ArenaSpec {
            addr: BIAS - (256 << 20),
            len: 64 << 20,
        };
        let mut survey = Survey::new(&module, arena);
        let hooks: Vec<Hook> = survey
            .blocks()
            .iter()
            .map(|block| Hook {
                addr: block.range.start,
                place: Place::Before,
                code: PAYLOAD.to_vec(),
            })
            .collect();
        let plan = survey.plan(&hooks);
        assert_eq!(plan.hooked.len() + plan.refused.len(), hooks.len());
        assert!(
            plan.refused.len() * 200 < hooks.len(),
            "{} refused",
            plan.refused.len()
        );
        let ends = |w: &steadfast_patch::Write| w.addr + w.bytes.len() as u64;
        assert!(
            plan.writes
                .windows(2)
                .all(|two| ends(&two[0]) <= two[1].addr)
        );
        let starts: std::collections::HashSet<u64> = plan
            .hooked
            .iter()
            .map(|hooked| hooked.trampoline.start)
            .collect();
        let over = |addr: u64| {
            let after = plan.writes.partition_point(|w| w.addr <= addr);
            let write = &plan.writes[after.checked_sub(1).expect("a write")];
            usize::try_from(addr - write.addr)
                .ok()
                .and_then(|at| write.bytes.get(at..))
        };
        let long = |addr: u64| {
            let bytes = over(addr).expect("written");
            assert_eq!(bytes[0], 0xE9, "{addr:#x}");
            let disp = i32::from_le_bytes(bytes[1..5].try_into().expect("four bytes"));
            (addr + 5).wrapping_add_signed(disp.into())
        };
        let mut bounced = 0;
        for hooked in &plan.hooked {
            let start = hooked.window.start;
            let to = match over(start).expect("written")[..2] {
                [0xEB, by] => {
                    bounced += 1;
                    assert!(hooked.window.end - start < 5);
                    long((start + 2).wrapping_add_signed(i8::from_le_bytes([by]).into()))
                }
                _ => long(start),
            };
            assert_eq!(to, hooked.trampoline.start, "{start:#x}");
        }
        // Windows that only lend have no payload; their jumps stay within the arena all the same.
        for write in plan.writes.iter().filter(|write| write.bytes[0] == 0xE9) {
            let to = long(write.addr);
            assert!((arena.addr..arena.addr + plan.arena.len() as u64).contains(&to));
        }
        assert!(bounced > 100 && !starts.is_empty(), "{bounced} of {name}");
    }
}
