//! A campaign for tests: generated, not measured. Names in it are as nasty as names may be.

use std::collections::BTreeMap;

use steadfast_contract::outcome::Leaf;

use crate::results::{
    ControlCount, Detection, FunctionCount, Golden, Group, Machine, Module, Place, Population,
    Provenance, Results, Run,
};

/// `runs` runs of two fault types; with `copies` above 1, most of what was wrong is repaired.
pub(crate) fn generated(runs: u64, copies: u32) -> Results {
    let group = |name: &str, population: u64| Group {
        name: name.to_owned(),
        population,
        reachable: population / 100 * 99,
        planned: runs / 2,
        weight: population as f64 / 400e6,
    };
    let functions = [
        ("deflate_fast", 150_000_000_u64),
        ("longest_match<char, \"x\">", 120_000_000),
        ("crc32", 90_000_000),
    ];
    let mut state = 1_u64;
    let mut dice = |n: u64| {
        // Knuth's MMIX generator; its high bits will do.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let runs_list = (0..runs)
        .map(|id| {
            let at = usize::try_from(dice(3)).expect("small");
            let (function, _) = functions[at];
            let bit = u16::try_from(dice(64)).expect("small");
            let bare = match dice(100) {
                0..=54 => Leaf::MaskedClean,
                55 => Leaf::Slow,
                56..=66 if at != 2 => Leaf::Sdc,
                56..=90 => Leaf::CrashSignal,
                91..=94 => Leaf::ErrorExit,
                95..=97 => Leaf::HangLivelock,
                98 => Leaf::NotFired,
                _ => Leaf::MaskedLatent,
            };
            let leaf = match (copies > 1 && bare.is_manifested(), dice(40)) {
                (true, 0) => Leaf::DetectedStop,
                (true, _) => Leaf::Corrected,
                (false, _) => bare,
            };
            let detected = matches!(leaf, Leaf::Corrected | Leaf::DetectedStop);
            let n = dice(1_000_000) + 1;
            let offset = 0x1a00 + 0x400 * at + 4 * usize::try_from(dice(6)).expect("small");
            Run {
                id,
                group: usize::from(id % 2 == 1),
                leaf,
                fault: format!("at=gzip+{offset:#x} n={n} reg=rax after bit={bit}"),
                replay: format!("steadfast inject replay results {id}"),
                place: Some(Place {
                    build_id: None,
                    module: "gzip".to_owned(),
                    offset: format!("{offset:#x}"),
                    function: (at < 2).then(|| function.to_owned()),
                    line: (at == 0).then(|| format!("deflate.c:{}", 700 + offset % 90)),
                    disassembly: "mov rax, [rdi+rcx*8]".to_owned(),
                    opcode: ["mov", "add", "xor"][at].to_owned(),
                }),
                register: Some(["rax", "rcx", "r11"][at].to_owned()),
                bits: vec![bit],
                status: (leaf != Leaf::CrashSignal).then_some(0),
                signal: (leaf == Leaf::CrashSignal).then_some(11),
                differ: if leaf == Leaf::Sdc {
                    vec!["stdout".to_owned()]
                } else {
                    Vec::new()
                },
                detection: detected.then(|| Detection {
                    by: "replicas".to_owned(),
                    what: Some("arguments".to_owned()),
                    latency_ns: Some(20_000 + dice(3_000) * dice(3_000)),
                }),
                wall_ns: 50_000_000,
                cpu_ns: 48_000_000,
                evidence: (leaf == Leaf::Sdc).then(|| format!("evidence/{id}")),
            }
        })
        .collect();
    Results {
        provenance: Provenance {
            steadfast: "0.0.0".to_owned(),
            commit: Some("0123abc".to_owned()),
            unix_ms: 1_772_366_400_000,
            command: vec!["gzip".to_owned(), "-9".to_owned(), "<a & b>.txt".to_owned()],
            protection: if copies > 1 {
                format!("run -n {copies}")
            } else {
                "bare".to_owned()
            },
            copies,
            engine: "plant".to_owned(),
            seed: "5eed".repeat(16),
            comparator: "byte for byte".to_owned(),
            shard: None,
            golden: Golden {
                status: 0,
                output_bytes: 4_096,
            },
            modules: vec![Module {
                name: "gzip".to_owned(),
                build_id: Some("4f1d6ac09e3f5d21".to_owned()),
                executions: 400_000_000,
            }],
            machine: Machine {
                cpu: "A Processor 9000".to_owned(),
                cpus: 2,
                kernel: "6.1.0".to_owned(),
                os: "debian 12".to_owned(),
                root: false,
            },
            sandbox: vec!["no network".to_owned(), "own uid".to_owned()],
            settings: BTreeMap::from([("golden runs".to_owned(), "3".to_owned())]),
        },
        population: Population {
            dynamic: 400_000_000,
            reachable: 396_000_000,
            unreachable: BTreeMap::from([("window too short".to_owned(), 4_000_000)]),
            excluded: 0,
            unstable: 0,
            sites: 1_234,
        },
        groups: vec![group("wreg", 300_000_000), group("rval", 100_000_000)],
        functions: functions[..2]
            .iter()
            .map(|(name, executions)| FunctionCount {
                module: "gzip".to_owned(),
                function: Some((*name).to_owned()),
                executions: *executions,
                reachable: *executions,
            })
            .collect(),
        planned: runs,
        runs: runs_list,
        control: ControlCount {
            runs: 50,
            masked: 50,
            false_alarms: 0,
        },
    }
}
