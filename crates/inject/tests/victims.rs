//! Faults bound to one thread or one process: a guest that has both, and real programs.
//!
//! Everybody in the guest computes the same sum, 338,350, of a hundred products: who is struck is who
//! prints another one. As root and as an ordinary user alike.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use common::clean;
use steadfast_contract::outcome::Outcome;
use steadfast_inject::campaign::{Order, Running};
use steadfast_inject::doctor;
use steadfast_inject::models::Model;
use steadfast_inject::record::{Comparator, Dir, Engine, Run};

fn order(name: &str) -> Order {
    common::order("victims", name, 61_114)
}

fn guest(order: &mut Order) {
    common::guest(order, "family", &["-O1", "-fno-pie", "-no-pie", "-pthread"]);
    // A thousand times the guest's own need; the guest's processes alone count for its user.
    order.spec.processes = 4096;
}

fn carried_out(order: &Order) -> BTreeMap<u64, Run> {
    let mut running = Running::prepare(order, "test", &mut |_| ()).expect("prepared");
    running
        .run(&AtomicBool::new(false), &|| false, &|_| ())
        .expect("run");
    drop(running);
    Dir::new(&order.dir).runs().expect("runs")
}

fn output(order: &Order, run: &Run) -> String {
    let kept = match &run.evidence {
        Some(evidence) if !run.differ.is_empty() => order.dir.join(evidence),
        _ => order.dir.join("golden"),
    };
    String::from_utf8_lossy(&fs::read(kept.join("stdout")).expect("an output")).into_owned()
}

struct Victim {
    /// As a line of a plan names it.
    name: &'static str,
    /// Lines of the output that are wrong when it is struck.
    wrong: &'static [&'static str],
    /// How often a fault hits that strikes each multiplication.
    hits: u64,
}

const VICTIMS: &[Victim] = &[
    Victim {
        name: "process=0 thread=main",
        wrong: &["0 main", "0 main"],
        hits: 200,
    },
    Victim {
        name: "thread=main",
        wrong: &["0 main", "0 main"],
        hits: 200,
    },
    Victim {
        name: "thread=main.1",
        wrong: &["0 main.1"],
        hits: 100,
    },
    Victim {
        name: "thread=main.1.1",
        wrong: &["0 main.1.1"],
        hits: 100,
    },
    Victim {
        name: "process=0 thread=main.2",
        wrong: &["0 main.2"],
        hits: 100,
    },
    Victim {
        name: "process=0",
        wrong: &["0 main", "0 main.1.1", "0 main.1", "0 main.2", "0 main"],
        hits: 500,
    },
    Victim {
        name: "process=1",
        wrong: &["1 main"],
        hits: 100,
    },
    Victim {
        name: "process=2",
        wrong: &["2 main"],
        hits: 100,
    },
    Victim {
        name: "process=3",
        wrong: &["3 main.1", "3 main"],
        hits: 200,
    },
    Victim {
        name: "process=3 thread=main.1",
        wrong: &["3 main.1"],
        hits: 100,
    },
    Victim {
        name: "process=3 thread=main",
        wrong: &["3 main"],
        hits: 100,
    },
];

#[test]
fn only_the_victim_is_struck() {
    let mut order = order("guest");
    guest(&mut order);
    // A bad core for one of them; and its fourth product alone, counted by itself.
    for Victim { name, .. } in VICTIMS {
        let class = "class=int-mul in=family!sum n=1.. reg=rax after bit=40";
        order.lines.push(format!("{name} {class}"));
        order
            .lines
            .push(format!("{name} {} reg=rax after bit=0", place(&order)));
    }
    order
        .lines
        .push(format!("process=9 {} reg=rax after bit=0", place(&order)));
    order.lines.push(format!(
        "thread=main.7 {} reg=rax once bit=0",
        place(&order)
    ));
    let runs = carried_out(&order);
    for (i, victim) in (0..).zip(VICTIMS) {
        for (kind, times) in [(0, victim.hits), (1, 1)] {
            let run = &runs[&(2 * i + kind)];
            assert_eq!(run.hits, times, "{}: {run:?}", victim.name);
            let output = output(&order, run);
            let found: Vec<&str> = output
                .lines()
                .filter_map(|line| line.strip_suffix(char::is_numeric).map(|_| line))
                .filter(|line| !line.ends_with(" 338350"))
                .filter_map(|line| line.rsplit_once(' '))
                .map(|(who, _)| who)
                .collect();
            // The fourth product of a whole process is its first thread's.
            let all = kind == 0;
            let expected = if all {
                victim.wrong
            } else {
                &victim.wrong[..1]
            };
            assert_eq!(found, expected, "{}", victim.name);
        }
    }
    let last = 2 * VICTIMS.len() as u64;
    for id in [last, last + 1] {
        assert_eq!(
            runs[&id].outcome.outcome(),
            Outcome::NotFired,
            "nobody is that"
        );
    }
    clean(&order);
}

/// Single steps follow every thread and child, and find the n-th execution of them all where planted code does.
#[test]
fn single_steps_follow_threads_and_children() {
    let mut order = order("stepped");
    guest(&mut order);
    order.models = vec![Model::Flags, Model::Cf];
    order.only = vec!["family!sum".into()];
    order.runs = 8;
    drop(Running::prepare(&order, "test", &mut |_| ()).expect("prepared"));
    let plan = Dir::new(&order.dir).plan().expect("a plan");
    // The first thread's are the first hundred of each, and the last.
    let others = plan.iter().filter(|p| p.n.is_some_and(|n| n > 300)).count();
    assert!(
        others > 5,
        "{others} of {} beyond the first threads",
        plan.len()
    );
    let found = doctor::agreement(&order, 1000, usize::MAX).expect("both engines run");
    assert!(
        found.different.is_empty() && found.same == plan.len(),
        "{} of {} alike:\n{}",
        found.same,
        plan.len(),
        found.different.join("\n")
    );
    clean(&order);
}

/// Of a class those are struck that can be; a fault of one place is refused where there is no room, whatever stands
/// beside it in the line.
#[test]
fn a_place_without_room_is_refused_beside_a_class() {
    let class = "class=int-mul in=tight!main n=1.. reg=rax after bit=0";
    let place = "at=tight!tight n=1 reg=rax bit=40";
    for line in [
        place.to_owned(),
        format!("{class}; {place}"),
        format!("{place}; {class}"),
    ] {
        let mut order = order("tight");
        common::guest(&mut order, "tight", &["-O1", "-fno-pie", "-no-pie"]);
        order.lines = vec![line.clone()];
        let error = Running::prepare(&order, "test", &mut |_| ())
            .map(drop)
            .expect_err(&line)
            .to_string();
        assert!(
            error.contains("room for a jump") && error.contains("tight!tight"),
            "{line}: {error}"
        );
        clean(&order);
    }
}

/// The multiplication: the only one in its function.
fn place(order: &Order) -> String {
    let dump = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "--disassemble=sum"])
        .arg(&order.spec.path)
        .output()
        .expect("objdump");
    let text = String::from_utf8_lossy(&dump.stdout);
    let address = |what: &str| {
        let line = text.lines().find(|line| line.contains(what)).expect(what);
        let digits = line.trim().split([':', ' ']).next().expect("an address");
        u64::from_str_radix(digits, 16).expect("an address")
    };
    format!(
        "at=family!sum+{:#x} n=4",
        address("imul") - address("<sum>:")
    )
}

#[test]
fn what_cannot_be_bound_is_refused_before_any_run() {
    for line in [
        "process=all thread=main.1 class=int-mul n=1.. reg=rax after bit=1",
        "thread=main.1 at=family!sum n=1.. code bit=1",
    ] {
        let mut order = order("refused");
        guest(&mut order);
        order.lines = vec![line.into()];
        Running::prepare(&order, "test", &mut |_| ()).expect_err(line);
        clean(&order);
    }
}

fn program(order: &mut Order, path: &str, argv: &[&str]) {
    let input = order.scratch.join("input");
    fs::create_dir(&input).expect("a directory");
    let text: String = (0..150_000_u64)
        .map(|i| format!("{} {i}\n", i * 7919 % 10_007))
        .collect();
    fs::write(input.join("in.txt"), text).expect("input");
    order.spec.input = Some(input);
    order.spec.file_size = 1 << 28;
    order.spec.path = PathBuf::from(path).canonicalize().expect("the program");
    order.spec.argv = argv.iter().map(|arg| (*arg).to_owned()).collect();
    order.spec.processes = 4096;
}

#[test]
fn one_worker_of_sort_and_one_child_of_a_shell_are_struck() {
    // sort with two threads: the second one alone dies, at a lock that both take.
    let mut order = order("sort");
    program(
        &mut order,
        "/usr/bin/sort",
        &["sort", "--parallel=2", "-S", "64M", "in.txt"],
    );
    order.lines = ["thread=main.1", "thread=main.5"]
        .map(|who| format!("{who} at=libc.so.6!pthread_mutex_lock n=2 kind=crash"))
        .to_vec();
    let runs = carried_out(&order);
    assert_eq!(runs[&0].hits, 1);
    assert_eq!(runs[&0].outcome.outcome(), Outcome::Crash);
    assert_eq!(
        runs[&1].outcome.outcome(),
        Outcome::NotFired,
        "it has no such thread"
    );
    clean(&order);

    // A shell whose children count by themselves: the second one dies, and the shell goes on.
    let mut order = self::order("shell");
    let script = "for who in a b c; do (i=0; while [ $i -lt 50 ]; do i=$((i+1)); done; echo $who $i); done; echo end";
    program(&mut order, "/bin/sh", &["sh", "-c", script]);
    order.comparator = Comparator::Byte;
    order.lines = vec![
        "process=2 class=branch in=dash n=200 kind=crash".into(),
        "process=0 class=branch in=dash n=10 kind=crash".into(),
    ];
    let runs = carried_out(&order);
    assert_eq!(runs[&0].hits, 1);
    let said = output(&order, &runs[&0]);
    let words = said.replace('\n', " ");
    assert_eq!(words.trim(), "a 50 c 50 end", "{:?}", runs[&0]);
    assert_eq!(runs[&1].outcome.outcome(), Outcome::Crash);
    clean(&order);
}

#[test]
fn the_timer_strikes_who_computes_and_not_who_has_ended() {
    let mut order = order("headless");
    common::guest(
        &mut order,
        "headless",
        &["-O1", "-fno-pie", "-no-pie", "-pthread"],
    );
    order.spec.processes = 4096;
    order.engine = Engine::Timer;
    order.lines = vec![
        // Nobody is ever in there: each moment finds the threads elsewhere, or gone.
        "every=5ms in=headless!main reg=rbx bit=3".into(),
        // The second thread computes then, the first has ended.
        "every=50ms in=headless!spin reg=rax bit=40 stuck=1".into(),
        "time=200ms reg=rax bit=40".into(),
    ];
    let runs = carried_out(&order);
    let ends: Vec<_> = runs.values().map(|run| run.outcome.outcome()).collect();
    let right = [Outcome::NotFired, Outcome::Sdc, Outcome::Sdc];
    assert_eq!(ends, right, "{runs:?}");
    assert!(runs[&1].hits > 0 && runs[&2].hits == 1, "{runs:?}");
    clean(&order);
}

/// Compiled code of a component is mapped from its `.cwasm` file when the program has begun. So is a library that it opens.
#[test]
fn the_timer_strikes_in_a_file_that_is_mapped_later_and_nowhere_else() {
    let mut order = order("late");
    common::guest(&mut order, "late", &["-O1", "-fno-pie", "-no-pie"]);
    let file = order.scratch.join("fs.cwasm");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guests/inject/late.c");
    let flags = ["-O1", "-shared", "-fPIC", "-DMAPPED", "-o"];
    let built = Command::new("cc")
        .args(flags)
        .arg(&file)
        .arg(source)
        .status();
    assert!(built.expect("a C compiler").success());
    order.spec.argv.push(file.display().to_string());
    order.engine = Engine::Timer;
    order.lines = vec![
        "every=5ms in=fs.cwasm reg=rbx bit=3".into(),
        "every=5ms in=late!own_spin reg=rbx bit=3".into(),
        "every=5ms in=other.cwasm reg=rbx bit=3".into(),
    ];
    let runs = carried_out(&order);
    let said = [0, 1, 2].map(|line| output(&order, &runs[&line]));
    assert_eq!(said[0], "own 0\nmapped 8\n", "{runs:?}");
    assert_eq!(said[1], "own 8\nmapped 0\n", "{runs:?}");
    let places = |line| runs[&line].fired.iter().filter_map(|it| it.file.clone());
    assert!(
        places(0)
            .next()
            .is_some_and(|at| at.starts_with("fs.cwasm+0x"))
    );
    assert_eq!((places(1).count(), runs[&2].hits), (0, 0), "{runs:?}");
    clean(&order);
}

/// A fault of the program that survives crashes, and what becomes of its numbers.
struct Survived {
    line: &'static str,
    hits: u64,
    /// Loads that crash.
    crashes: u64,
    /// Of the cells that are read.
    sum: u64,
    /// Of the doubled numbers: the scale of the index in `lea (%rdi,%rdi,1), %rax` becomes 2, so that they are tripled.
    doubled: u64,
}

/// A program that goes on after the crash: the loads that follow are not struck, nor those of a thread that
/// runs beside it, and what is planted and what single steps do is the same. Code that goes wrong on the way is
/// wrong from there on.
#[test]
fn a_crash_that_is_survived_is_not_made_again() {
    let flags = ["-O1", "-fno-pie", "-no-pie", "-pthread"];
    let cases: &[Survived] = &[
        Survived {
            line: "at=survivor!load n=5..6 raddr bit=46",
            hits: 2,
            crashes: 2,
            sum: 2016 - 4 - 5,
            doubled: 4032,
        },
        Survived {
            line: "class=load in=survivor!load n=5..9%2 raddr bit=46; at=survivor!load n=1 raddr bit=46",
            hits: 4,
            crashes: 4,
            sum: 2016 - 4 - 6 - 8,
            doubled: 4032,
        },
        Survived {
            line: "at=survivor!twice n=1.. code bit=30",
            hits: 1,
            crashes: 0,
            sum: 2016,
            doubled: 6048,
        },
        Survived {
            line: "at=survivor!twice n=5.. code bit=30",
            hits: 1,
            crashes: 0,
            sum: 2016,
            doubled: 4032 + 2010,
        },
        Survived {
            line: "at=survivor!twice n=5 code bit=30 stuck=0",
            hits: 1,
            crashes: 0,
            sum: 2016,
            doubled: 4032,
        },
    ];
    let said = |caught: u64, sum: u64, doubled: u64| {
        format!("caught {caught} moved 0\nsum {sum} doubled {doubled}\n")
    };
    let mut order = order("survivor");
    common::guest(&mut order, "survivor", &flags);
    order.lines = cases.iter().map(|case| case.line.to_owned()).collect();
    let runs = carried_out(&order);
    for (i, case) in (0..).zip(cases) {
        let expected = said(case.crashes, case.sum, case.doubled);
        assert_eq!(output(&order, &runs[&i]), expected, "{}", case.line);
        assert_eq!(runs[&i].hits, case.hits, "{}", case.line);
    }
    let found = doctor::agreement(&order, 1000, usize::MAX).expect("both engines run");
    assert!(
        found.different.is_empty() && found.same > 0,
        "{}",
        found.different.join("\n")
    );
    clean(&order);

    // Single steps make code wrong once, too.
    let mut order = self::order("stepped-code");
    common::guest(&mut order, "survivor", &flags);
    order.engine = Engine::Step;
    order.lines = vec![cases[3].line.into()];
    let runs = carried_out(&order);
    assert_eq!(output(&order, &runs[&0]), said(0, 2016, 4032 + 2010));
    clean(&order);

    let mut order = self::order("survivors");
    common::guest(&mut order, "survivor", &flags);
    order.spec.argv.push("threads".into());
    order.spec.processes = 4096;
    order.lines = vec![
        "at=survivor!load n=5 raddr bit=46".into(),
        "thread=main.1 at=survivor!load n=5 raddr bit=46".into(),
    ];
    let runs = carried_out(&order);
    for run in runs.values() {
        assert_eq!(output(&order, run), "caught 1 moved 0\n");
        assert_eq!(run.hits, 1);
    }
    clean(&order);
}

/// What was struck is put right behind the instruction; another thread that comes to it meanwhile is not struck as well.
#[test]
fn of_a_crowd_one_is_struck() {
    let mut order = order("crowd");
    common::guest(&mut order, "crowd", &["-O1", "-pthread"]);
    order.spec.processes = 4096;
    order.only = vec!["crowd!look".into(), "crowd!work".into()];
    order.models = vec![Model::Wval, Model::Waddr];
    order.runs = 60;
    let runs = carried_out(&order);
    let others: Vec<&Run> = runs.values().filter(|run| run.hits != 1).collect();
    assert!(runs.len() == 120 && others.is_empty(), "{others:?}");
    clean(&order);
}

/// A Go program as a whole, its runtime's own threads and all: a plan is drawn over everything that it executes, and its
/// runs are judged. Where there is no Go, there is nothing to show.
#[test]
fn a_go_program_is_struck_wherever_it_executes() {
    let go = ["/usr/local/go/bin/go", "/usr/bin/go"];
    let Some(go) = go.iter().find(|path| PathBuf::from(path).exists()) else {
        return;
    };
    let mut order = order("go");
    let program = order.scratch.join("hello");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../guests/inject/hello.go");
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("go");
    let built = Command::new(go)
        .args(["build", "-o"])
        .arg(&program)
        .arg(source)
        .env("GOCACHE", cache.join("cache"))
        .env("GOPATH", cache.join("path"))
        .env("GOTOOLCHAIN", "local")
        .env("GO111MODULE", "off")
        .env("CGO_ENABLED", "0")
        .status()
        .expect("the Go compiler runs");
    assert!(built.success());
    order.spec.path = program;
    order.spec.argv = vec!["hello".into()];
    order.spec.env.push(("GOGC".into(), "off".into()));
    order.spec.processes = 4096;
    order.models = vec![Model::Wreg, Model::Cf];
    order.runs = 6;
    let runs = carried_out(&order);
    assert_eq!(runs.len(), 12);
    let said = |what: Outcome| {
        runs.values()
            .filter(|run| run.outcome.outcome() == what)
            .count()
    };
    assert_eq!(said(Outcome::Infra), 0, "{runs:?}");
    // What waits for something goes round as often as it has to: a draw may lie beyond.
    assert!(said(Outcome::NotFired) <= 3, "{runs:?}");
    clean(&order);
}
