//! Faults of storage: a guest that moves bytes in every way at known places, and real programs.
//!
//! What each line does to the guest was worked out by hand; the runs have to show that and no
//! more. As root and as an ordinary user alike.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use common::clean;
use steadfast_contract::outcome::Outcome;
use steadfast_inject::campaign::{Order, Progress, Running};
use steadfast_inject::models::Model;
use steadfast_inject::record::{Dir, Planned, Run};

fn order(name: &str) -> Order {
    common::order("storage", name, 61_113)
}

fn guest(order: &mut Order) {
    common::guest(order, "files", &["-O1"]);
}

fn carried_out(order: &Order) -> (BTreeMap<u64, Run>, Vec<Planned>) {
    let mut running = Running::prepare(order, "test", &mut |_| ()).expect("prepared");
    running
        .run(&AtomicBool::new(false), &|| false, &|_| ())
        .expect("run");
    drop(running);
    let dir = Dir::new(&order.dir);
    (dir.runs().expect("runs"), dir.plan().expect("a plan"))
}

fn output(order: &Order, run: &Run, name: &str) -> Vec<u8> {
    let path = Path::new(name);
    let differs = run.differ.iter().any(|file| path.ends_with(file));
    let kept = if differs {
        order.dir.join(run.evidence.as_deref().expect("evidence"))
    } else {
        order.dir.join("golden")
    };
    fs::read(kept.join(path)).expect("an output")
}

/// A fault whose end was worked out by hand.
struct Known {
    fault: &'static str,
    /// The lines of the guest's output that differ then.
    differ: &'static [&'static str],
    /// The file and the place in it that is hit.
    place: &'static str,
    /// What stands there before and after.
    bytes: (&'static str, &'static str),
}

const KNOWN: &[Known] = &[
    Known {
        fault: "read=x.db n=1 byte=0 bit=0",
        differ: &["read 4096 A 1"],
        place: "x.db+0x0",
        bytes: ("A", "@"),
    },
    Known {
        fault: "read=x.db n=2 byte=4095 bit=1",
        differ: &["read 4096 b 1"],
        place: "x.db+0x1fff",
        bytes: ("b", "`"),
    },
    Known {
        fault: "read=x.db n=3 byte=98 bits=0,8,16,24",
        differ: &["readv 4096 C 4"],
        place: "x.db+0x2062",
        bytes: ("C", "B"),
    },
    Known {
        fault: "read=x.db n=4 byte=0 mask=0xffff stuck=1",
        differ: &["preadv2 4096 D 2"],
        place: "x.db+0x3000",
        bytes: ("D", "\u{ff}"),
    },
    // The one that stands in the second block of the file, however it is read.
    Known {
        fault: "read=x.db offset=4196 n=1.. byte=0 bit=2",
        differ: &["read 4096 b 1", "pread 4096 b 1"],
        place: "x.db+0x1064",
        bytes: ("b", "f"),
    },
    Known {
        fault: "read=x.db offset=4196 n=2 byte=0 bit=2",
        differ: &["pread 4096 b 1"],
        place: "x.db+0x1064",
        bytes: ("b", "f"),
    },
    Known {
        fault: "read=x.db n=6 byte=5 bit=2",
        differ: &["preadv 4096 C 1"],
        place: "x.db+0x2005",
        bytes: ("C", "G"),
    },
    Known {
        fault: "read=x.db n=7 byte=5 bit=0",
        differ: &["child 4096 D 1"],
        place: "x.db+0x3005",
        bytes: ("D", "E"),
    },
    Known {
        fault: "read=x.db n=8 byte=5 bit=0",
        differ: &["copy 4096 A 1"],
        place: "x.db+0x5",
        bytes: ("A", "@"),
    },
    Known {
        fault: "read=z.db n=1 byte=5 bit=0",
        differ: &["copy 4096 A 1"],
        place: "z.db+0x5",
        bytes: ("A", "@"),
    },
    // The second block alone was written over.
    Known {
        fault: "read=*.db n=1 kind=stale",
        differ: &["read 4096 B 0"],
        place: "x.db+0x1000",
        bytes: ("b", "B"),
    },
    Known {
        fault: "read=*.db n=2 kind=stale",
        differ: &["pread 4096 B 0"],
        place: "x.db+0x1000",
        bytes: ("b", "B"),
    },
    Known {
        fault: "read=x.db n=1 kind=misdirected by=8192",
        differ: &["read 4096 C 0"],
        place: "x.db+0x0",
        bytes: ("A", "C"),
    },
    // The first read, and the first write, have no block before them.
    Known {
        fault: "read=x.db n=1 kind=misdirected by=-4096",
        differ: &["read 4096 A 0"],
        place: "x.db+0x1000",
        bytes: ("b", "A"),
    },
    Known {
        fault: "write=x.db n=1 byte=7 bit=5",
        differ: &["read 4096 A 1", "copy 4096 A 1"],
        place: "x.db+0x7",
        bytes: ("A", "a"),
    },
    Known {
        fault: "write=x.db n=4 byte=98 bits=5,21",
        differ: &["preadv2 4096 D 2", "child 4096 D 2"],
        place: "x.db+0x3062",
        bytes: ("D", "d"),
    },
    // Nothing arrives: the file has grown all the same. The first block leaves zeros.
    Known {
        fault: "write=x.db n=1 kind=lost",
        differ: &["read 4096 0 0", "copy 4096 0 0"],
        place: "x.db+0x0",
        bytes: ("A", "\0"),
    },
    Known {
        fault: "write=x.db n=5 kind=lost",
        differ: &["read 4096 B 0", "pread 4096 B 0"],
        place: "x.db+0x1000",
        bytes: ("b", "B"),
    },
    Known {
        fault: "write=x.db n=5 kind=torn keep=512",
        differ: &["read 4096 B 512", "pread 4096 B 512"],
        place: "x.db+0x1200",
        bytes: ("b", "B"),
    },
    Known {
        fault: "write=x.db n=4 kind=misdirected by=-4096",
        differ: &[
            "read 4096 b 0",
            "read 4096 B 0",
            "pread 4096 B 0",
            "copy 4096 b 0",
        ],
        place: "x.db+0x1000",
        bytes: ("b", "B"),
    },
    Known {
        fault: "write=stdout n=1 byte=5 bit=0",
        differ: &["read 5096 A 0"],
        place: "/dev/stdout+0x5",
        bytes: ("4", "5"),
    },
];

#[test]
fn each_fault_does_what_was_worked_out_by_hand() {
    let mut order = order("known");
    guest(&mut order);
    order.lines = KNOWN.iter().map(|known| known.fault.to_owned()).collect();
    // What only files show: bytes at the end of a file that is appended to.
    order.lines.extend(
        [
            "write=y.db n=1 kind=lost",
            "write=y.db n=2 byte=9 bit=0",
            "write=y.db n=1 kind=misdirected by=-10",
            "write=y.db n=3 kind=lost",
            "read=x.db n=1 byte=4096 bit=0",
            "write=x.db n=1.. one-in=2 seed=0 byte=0 bit=0",
            "read=x.db n=1 byte=0 bit=0; read=x.db n=2 byte=0 bit=0",
        ]
        .map(str::to_owned),
    );
    let (runs, _) = carried_out(&order);
    let golden = fs::read_to_string(order.dir.join("golden/stdout")).expect("golden");
    for (id, known) in (0..).zip(KNOWN) {
        let (line, (before, after)) = (known.fault, known.bytes);
        let run = &runs[&id];
        let now = output(&order, run, "stdout");
        let now = String::from_utf8_lossy(&now);
        let found: Vec<&str> = now
            .lines()
            .zip(golden.lines())
            .filter(|(now, was)| now != was)
            .map(|(now, _)| now)
            .collect();
        assert_eq!(found, known.differ, "{line}");
        assert_eq!(run.outcome.outcome(), Outcome::Sdc, "{line}");
        let fired = &run.fired[0];
        assert_eq!(fired.file.as_deref(), Some(known.place), "{line}");
        let first = |value: &Option<String>| {
            let text = value.as_deref().expect("a value").trim_start_matches("0x");
            let byte = u64::from_str_radix(text, 16).expect("hexadecimal") & 0xff;
            char::from_u32(u32::try_from(byte).expect("a byte")).expect("a character")
        };
        assert_eq!(
            (
                first(&fired.before).to_string(),
                first(&fired.after).to_string()
            ),
            (before.to_owned(), after.to_owned()),
            "{line}"
        );
    }
    let from = KNOWN.len() as u64;
    let y = |n: u64| {
        String::from_utf8_lossy(&output(&order, &runs[&(from + n)], "files/y.db")).into_owned()
    };
    assert_eq!(y(0), "\0\0\0\0\0\0\0\0\0\0yyyyyyyyyy");
    assert_eq!(y(1), "xxxxxxxxxxyyyyyyyyyx");
    assert_eq!(y(2), "yyyyyyyyyy\0\0\0\0\0\0\0\0\0\0");
    for id in [3, 4] {
        assert_eq!(
            runs[&(from + id)].outcome.outcome(),
            Outcome::NotFired,
            "what cannot have the fault does not"
        );
    }
    let drawn = &runs[&(from + 5)];
    assert_eq!(
        (drawn.hits, drawn.fired[0].n),
        (2, 2),
        "the second and the fourth"
    );
    assert_eq!(
        (runs[&(from + 6)].hits, runs[&(from + 6)].fired.len()),
        (2, 2)
    );
    clean(&order);
}

#[test]
fn faults_that_storage_cannot_have_are_refused_before_any_run() {
    for line in [
        "process=1 read=* n=1 byte=0 bit=0",
        "thread=main.1 read=* n=1 byte=0 bit=0",
        "cpu=1 write=* n=1 kind=lost",
        "replica=1 write=* n=1 kind=lost",
    ] {
        let mut order = order("refused");
        guest(&mut order);
        order.lines = vec![line.into()];
        let error = Running::prepare(&order, "test", &mut |_| ()).expect_err(line);
        assert!(error.to_string().contains("storage"), "{error}");
        clean(&order);
    }
}

/// A type that nothing can have is left out beside others, and refused alone.
#[test]
fn a_type_without_a_place_is_left_out() {
    let mut order = order("nowhere");
    common::guest(
        &mut order,
        "waits",
        &["-O1", "-nostdlib", "-static", "-fno-stack-protector"],
    );
    order.models = vec![Model::Rdata, Model::Wreg];
    let mut said = Vec::new();
    let running = Running::prepare(&order, "test", &mut |progress| {
        if let Progress::Stage(stage) = progress {
            said.push(stage);
        }
    })
    .expect("prepared");
    let names: Vec<_> = running
        .campaign
        .fault_types
        .iter()
        .map(|fault_type| fault_type.name.clone())
        .collect();
    assert_eq!(names, ["wreg"]);
    assert!(
        said.iter()
            .any(|stage| stage.starts_with("rdata is left out")),
        "{said:?}"
    );
    drop(running);
    fs::remove_dir_all(&order.dir).expect("a campaign");
    order.models = vec![Model::Rdata];
    let error = Running::prepare(&order, "test", &mut |_| ()).expect_err("nothing to strike");
    assert!(
        error.to_string().contains("a campaign of rdata needs"),
        "{error}"
    );
    clean(&order);
}

/// Faults drawn over a real program's transfers: each fires at the transfer it was drawn for, and
/// comes out the same when it is repeated.
fn campaign(name: &str, program: &str, argv: &[&str], models: &[Model], files: &[&str]) {
    let mut order = order(name);
    let input = order.scratch.join("input");
    fs::create_dir(&input).expect("a directory");
    let text: String = (0..20_000_u64)
        .map(|i| format!("{} {i}\n", i * 7919 % 10_007))
        .collect();
    fs::write(input.join("in.txt"), text).expect("input");
    order.spec.input = Some(input);
    order.spec.path = PathBuf::from(program).canonicalize().expect("the program");
    order.spec.argv = argv.iter().map(|arg| (*arg).to_owned()).collect();
    order.models = models.to_vec();
    order.files = files
        .iter()
        .map(|file| file.parse().expect("a pattern"))
        .collect();
    order.runs = 6;
    let (runs, plan) = carried_out(&order);
    assert_eq!(runs.len(), 6 * models.len());
    for planned in &plan {
        let run = &runs[&planned.id];
        assert_eq!(run.hits, 1, "{}", planned.fault);
        assert_eq!(Some(run.fired[0].n), planned.n, "{}", planned.fault);
    }
    let wrong = |run: &&Run| run.outcome.outcome() == Outcome::Sdc;
    assert!(
        runs.values().any(|run| wrong(&run)),
        "some answers are wrong"
    );
    let mut running = Running::prepare(&order, "test", &mut |_| ()).expect("gone on with");
    for id in 0..6 {
        let (_, again, _) = running.replay(id).expect("repeated");
        let first = &runs[&id];
        assert_eq!(
            (again.outcome, &again.outputs, &again.fired),
            (first.outcome, &first.outputs, &first.fired)
        );
    }
    drop(running);
    clean(&order);
}

#[test]
fn sort_with_bad_files_gives_wrong_answers_that_can_be_repeated() {
    campaign(
        "sort",
        "/usr/bin/sort",
        &["sort", "-S", "256K", "-T", ".", "-o", "out.txt", "in.txt"],
        &[
            Model::Rdata,
            Model::Wdata,
            Model::Misread,
            Model::Miswrite,
            Model::Lost,
            Model::Torn,
        ],
        &["*.txt"],
    );
}

#[test]
fn gzip_with_bad_files_gives_wrong_answers_that_can_be_repeated() {
    campaign(
        "gzip",
        "/usr/bin/gzip",
        &["gzip", "-nk", "in.txt"],
        &[Model::Rdata, Model::Wdata, Model::Lost],
        &["in.txt", "in.txt.gz"],
    );
}

/// Of a file that is mapped and not read, no fault can be had, and that is said before any run; what is read
/// as well is struck there, and the mapping has it right.
#[test]
fn a_file_that_is_only_mapped_is_refused_by_name() {
    let line = "read=m.db n=1 byte=0 bit=0";
    let mut order = order("mapped");
    common::guest(&mut order, "mapped", &["-O1"]);
    order.lines = vec![line.into()];
    let error = Running::prepare(&order, "test", &mut |_| ())
        .map(drop)
        .expect_err(line)
        .to_string();
    assert!(error.contains("m.db mapped"), "{error}");
    order.lines.clear();
    order.models = vec![Model::Rdata];
    order.files = vec!["m.db".parse().expect("a pattern")];
    let error = Running::prepare(&order, "test", &mut |_| ())
        .map(drop)
        .expect_err("nothing to draw from")
        .to_string();
    assert!(error.contains("m.db is mapped"), "{error}");
    clean(&order);

    let mut order = self::order("mapped-too");
    common::guest(&mut order, "mapped", &["-O1"]);
    order.spec.argv.push("both".into());
    order.lines = vec![line.into()];
    let (runs, _) = carried_out(&order);
    let said = String::from_utf8(output(&order, &runs[&0], "stdout")).expect("text");
    assert_eq!(said, "mapped A\nread @\n");
    clean(&order);
}

/// A byte that arrives wrong and that nobody reads back: wrong where the file is output, latent where it is the
/// program's state.
#[test]
fn a_wrong_file_of_state_is_latent() {
    for (state, leaf) in [(None, "sdc"), (Some("*.db"), "masked_latent")] {
        let mut order = order(leaf);
        common::guest(&mut order, "mapped", &["-O1"]);
        order.lines = vec!["write=m.db n=1 byte=4095 bit=0".into()];
        order.state = state
            .iter()
            .map(|state| state.parse().expect("a pattern"))
            .collect();
        let (runs, _) = carried_out(&order);
        assert_eq!(runs[&0].outcome.word(), leaf, "{:?}", runs[&0]);
        assert_eq!(runs[&0].differ, ["m.db"]);
        clean(&order);
    }
}
