//! Builds the agent: freestanding C and assembly, linked at its final address.

use std::path::Path;

use steadfast_inside::{Build, headers};

const C: [&str; 44] = [
    "ground/base",
    "vote/log",
    "vote/args",
    "calls/calls",
    "calls/exec",
    "calls/spawn",
    "calls/entropy",
    "memory/memory",
    "memory/shared",
    "signals/signal",
    "repair/recover",
    "repair/epoch",
    "faults/flip",
    "faults/profile",
    "memory/behind",
    "memory/private",
    "calls/wait",
    "calls/kernel_state",
    "repair/align",
    "threads/thread",
    "threads/futex",
    "threads/try",
    "threads/fifo",
    "threads/take",
    "threads/parked",
    "threads/owner",
    "threads/queued",
    "calls/pidfd",
    "calls/number",
    "calls/ward",
    "calls/room",
    "memory/domain",
    "memory/segment",
    "memory/written",
    "pair/storage",
    "pair/channel",
    "pair/alarm",
    "pair/crew",
    "pair/join",
    "pair/ipc",
    "pair/parts",
    "pair/shown",
    "memory/settle",
    "ground/init",
];

/// Besides what every such image is built with. The strategies: what the compiler knows the size of is cleared and
/// copied by stores, never by `rep stos` and `rep movs`, which take tens of cycles to begin (Intel's Optimization
/// Reference Manual, "REP Prefix and Data Movement"): those on the way of every event were 20 to 100 ns of it.
const FLAGS: [&str; 6] = [
    "-g",
    "-mpopcnt",
    "-mcrc32",
    "-mmemset-strategy=unrolled_loop:256:noalign,libcall:-1:noalign",
    "-mmemcpy-strategy=unrolled_loop:256:noalign,libcall:-1:noalign",
    "-mprfchw", // a hint, and nothing where the processor lacks it (Intel SDM, PREFETCHW)
];

fn main() {
    let build = Build::of("src");
    println!("cargo:rerun-if-changed={}", build.src().display());
    println!("cargo:rerun-if-changed={}", headers().display());
    println!("cargo:rerun-if-env-changed=CC");

    generate_names(&build.src().join("tables"), build.out());

    build.assembly("ground/vdso.S", "vdso.o");
    build
        .cc(&[
            "-shared",
            "-nostdlib",
            "-Wl,-soname,linux-vdso.so.1",
            "-Wl,--hash-style=both",
        ])
        .args(&["-Wl,-z,max-page-size=4096", "-Wl,--build-id=none"])
        .arg(format!(
            "-Wl,-T,{}",
            build.src().join("ground/vdso.lds").display()
        ))
        .args(&["vdso.o", "-o", "vdso.so"])
        .done();
    let mut objects = vec![
        "image.o".to_owned(),
        "gate.o".to_owned(),
        "flipentry.o".to_owned(),
    ];
    for path in C {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let object = format!("{name}.o");
        build.c(&format!("{path}.c"), &object, &FLAGS);
        objects.push(object);
    }
    build.assembly("ground/gate.S", "gate.o");
    build.assembly("faults/flip.S", "flipentry.o");
    // The assembler looks for vdso.so (.incbin) in the current directory: OUT_DIR.
    build.assembly("ground/image.S", "image.o");
    build.link("ground/agent.lds", &objects, "agent.elf", &[]);
}

/// Names and notes of the calls and their commands, for messages: the same rows the agent's
/// tables are made of.
fn generate_names(tables: &Path, out: &Path) {
    let read = |file: &str| {
        let path = tables.join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    // A row's note is its last string; it ends at the quote before the closing parenthesis.
    let note = |row: &str, skip: usize| {
        let mut rest = row;
        for _ in 0..=skip {
            rest = rest.split_once('"').map_or("", |(_, after)| after);
        }
        rest.split("\")").next().unwrap_or("").to_owned()
    };
    let mut code = String::from("static CALLS: &[(u32, &str, &str)] = &[\n");
    for row in read("calls.def").split("\nCALL(").skip(1) {
        let mut fields = row.splitn(3, ',');
        let number = fields.next().expect("a row starts with its number").trim();
        let name = fields.next().expect("a row has a name").trim();
        code.push_str(&format!(
            "    ({number}, {name:?}, \"{}\"),\n",
            note(row, 0)
        ));
    }
    code.push_str("];\nstatic COMMANDS: &[(&str, u64, &str, &str)] = &[\n");
    for table in [
        "ioctl",
        "fcntl",
        "prctl",
        "arch_prctl",
        "semctl",
        "shmctl",
        "msgctl",
    ] {
        for row in read(&format!("{table}.def")).split("\nSUB(").skip(1) {
            let number = row
                .split(',')
                .next()
                .expect("a row starts with its command")
                .trim();
            let name = row.split('"').nth(1).expect("a row has a name");
            // The name is a row's first string, the note its second.
            code.push_str(&format!(
                "    ({table:?}, {number}, {name:?}, \"{}\"),\n",
                note(row, 2)
            ));
        }
    }
    code.push_str("];\n");
    std::fs::write(out.join("calls.rs"), code).expect("OUT_DIR is writable");
}
