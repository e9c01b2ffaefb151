//! The processor: where replicas can run, and which instructions it has.

#![allow(unsafe_code, reason = "sched_getaffinity(2), getauxval(3)")]

use std::collections::BTreeSet;
use std::fs;

use crate::{Finding, Machine, read};

pub(crate) fn machine() -> Machine {
    let cpus = allowed();
    let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        text.lines().find_map(|line| {
            Some(
                line.strip_prefix("model name")?
                    .split_once(':')?
                    .1
                    .trim()
                    .to_owned(),
            )
        })
    });
    Machine {
        kernel: read::release(),
        architecture: std::env::consts::ARCH.to_owned(),
        cpu: model.unwrap_or_else(|| "unknown".to_owned()),
        cores: cores(&cpus).len(),
        cpus,
        // SAFETY: geteuid has no failure.
        uid: unsafe { libc::geteuid() },
    }
}

/// Logical CPUs that this process may use.
pub(crate) fn allowed() -> Vec<u32> {
    // SAFETY: all-zero bytes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is writable for the size given.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return vec![0];
    }
    // SAFETY: every number is below the capacity of the set.
    (0..libc::CPU_SETSIZE.unsigned_abs())
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) })
        .collect()
}

/// Keeps this process on one CPU.
pub(crate) fn pin(cpu: u32) -> bool {
    // SAFETY: all-zero bytes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: CPU_SET checks the number against the capacity.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: `set` is readable for the size given.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0 }
}

/// Physical cores behind logical CPUs, each by its first thread. Without a topology every CPU
/// counts as a core of its own.
fn cores(cpus: &[u32]) -> BTreeSet<String> {
    cpus.iter()
        .map(|cpu| {
            read::word(&format!(
                "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            ))
            .unwrap_or_else(|| cpu.to_string())
        })
        .collect()
}

/// Two CPUs on different physical cores, or failing that two CPUs.
pub(crate) fn pair() -> Option<(u32, u32)> {
    let cpus = allowed();
    let siblings = |cpu: u32| {
        read::word(&format!(
            "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        ))
    };
    let &first = cpus.first()?;
    let apart = cpus
        .iter()
        .skip(1)
        .find(|&&cpu| siblings(cpu) != siblings(first) || siblings(cpu).is_none());
    apart.or(cpus.get(1)).map(|&second| (first, second))
}

pub(crate) fn architecture() -> Option<Finding> {
    (!cfg!(target_arch = "x86_64")).then(|| {
        Finding::missing("architecture", std::env::consts::ARCH)
            .needed()
            .fix("a machine with an x86-64 processor")
    })
}

pub(crate) fn findings() -> Vec<Finding> {
    vec![
        cpus(),
        siblings(),
        crc(),
        fsgsbase(),
        entropy(),
        clock(),
        counters(),
    ]
}

fn cpus() -> Finding {
    let cpus = allowed();
    let cores = cores(&cpus).len();
    let seen = match (cpus.len(), cores) {
        (1, _) => "one CPU may be used".to_owned(),
        (cpus, 1) => format!("{cpus} CPUs on one physical core may be used"),
        (cpus, cores) => format!("{cpus} CPUs on {cores} physical cores may be used"),
    };
    if cores >= 2 {
        return Finding::works("cores", seen);
    }
    let finding = Finding::slower(
        "cores",
        seen,
        "replicas take turns, and share a core that may be the bad one: the run takes as long as all of them",
    );
    let online = read::word("/sys/devices/system/cpu/online").unwrap_or_default();
    // The mask of this process is narrower than the machine.
    finding.maybe_fix(
        (online != "0" && cpus.len() == 1)
            .then(|| format!("taskset -c {online} steadfast run ...")),
    )
}

fn siblings() -> Finding {
    let cpus = allowed();
    let cores = cores(&cpus).len();
    if cores == cpus.len() {
        Finding::works("smt siblings", "every CPU is a core of its own")
    } else {
        Finding::works(
            "smt siblings",
            format!(
                "{} CPUs share {cores} cores; one replica per core is used",
                cpus.len()
            ),
        )
    }
}

fn crc() -> Finding {
    if std::arch::is_x86_feature_detected!("sse4.2") {
        Finding::works("sse4.2", "checksums are computed in hardware")
    } else {
        Finding::missing("sse4.2", "the processor has no crc32 instruction")
            .needed()
            .fix("a processor made after 2011")
    }
}

fn fsgsbase() -> Finding {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: getauxval takes a number.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0 {
        Finding::works("fsgsbase", "segment bases are read without a system call")
    } else {
        Finding::slower(
            "fsgsbase",
            "not enabled by this kernel",
            "segment bases are read by arch_prctl(2)",
        )
        .fix("a kernel of 5.9 or later, without nofsgsbase")
    }
}

fn entropy() -> Finding {
    let has =
        |leaf: u32, sub: u32, register: fn(std::arch::x86_64::CpuidResult) -> u32, bit: u32| {
            let highest = std::arch::x86_64::__cpuid(leaf & 0x8000_0000).eax;
            leaf <= highest && register(std::arch::x86_64::__cpuid_count(leaf, sub)) >> bit & 1 == 1
        };
    // Intel SDM vol. 2, CPUID: leaf 1 ecx, leaf 7 ebx and ecx, leaf 0x80000001 edx.
    let instructions = [
        ("rdrand", has(1, 0, |r| r.ecx, 30)),
        ("rdseed", has(7, 0, |r| r.ebx, 18)),
        ("rdtscp", has(0x8000_0001, 0, |r| r.edx, 27)),
        ("rdpid", has(7, 0, |r| r.ecx, 22)),
        ("rtm", has(7, 0, |r| r.ebx, 11)),
    ];
    let present: Vec<&str> = instructions
        .iter()
        .filter(|(_, has)| *has)
        .map(|&(name, _)| name)
        .collect();
    let seen = match present.as_slice() {
        [] => "none of rdrand, rdseed, rdtscp, rdpid, rtm".to_owned(),
        list => format!("the processor has {}, which are patched", list.join(", ")),
    };
    Finding::works("entropy instructions", seen)
}

fn clock() -> Finding {
    let source = read::word("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    match source.as_deref() {
        // Only these are read without entering the kernel (vdso(7)).
        Some(source @ ("tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page")) => Finding::works(
            "clock",
            format!("{source} is read without entering the kernel"),
        ),
        Some(source) => Finding::slower(
            "clock",
            format!("{source} is read by the kernel"),
            "every clock read is a system call",
        )
        .fix("boot with clocksource=tsc, if the machine keeps it steady"),
        None => Finding::works("clock", "the source is not shown here"),
    }
}

fn counters() -> Finding {
    match fs::read_dir("/sys/bus/event_source/devices/cpu") {
        Ok(_) => Finding::works("performance counters", "present, and not needed"),
        Err(_) => Finding::works("performance counters", "absent, and not needed"),
    }
}
