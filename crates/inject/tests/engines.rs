//! Planted faults against single steps, and a campaign from plan to last line.
//!
//! As root and as an ordinary user alike; every faulty run is boxed.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use steadfast_contract::outcome::Outcome;
use steadfast_inject::campaign::{Order, Running};
use steadfast_inject::doctor;
use steadfast_inject::models::{Model, Shape};
use steadfast_inject::record::{Dir, Engine, Run};

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("steadfast-inject-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

fn user() -> Option<u32> {
    steadfast_sys::procfs::is_privileged().then_some(61_111)
}

fn order(name: &str, guarded: bool) -> Order {
    doctor::control(&scratch(name), guarded, user()).expect("a control target")
}

fn clean(order: &Order) {
    fs::remove_dir_all(&order.scratch).expect("nothing is left behind");
}

fn carried_out(order: &Order) -> Running {
    let mut running = Running::prepare(order, "test", &mut |_| ()).expect("prepared");
    running
        .run(&AtomicBool::new(false), &|| false, &|_| ())
        .expect("run");
    running
}

fn alike(name: &str, change: impl FnOnce(&mut Order)) {
    let mut order = order(name, false);
    // Of each type a few: what each operand is struck by is worked out in recipes.rs, and `inject doctor` draws by the thousand (make campaign).
    order.runs = 3;
    change(&mut order);
    drop(Running::prepare(&order, "test", &mut |_| ()).expect("prepared"));
    let doctor::Agreement {
        same, different, ..
    } = doctor::agreement(&order, u64::MAX, usize::MAX).expect("both engines run");
    assert!(
        different.is_empty() && same > 0,
        "{same} alike, but {}:\n{}",
        different.len(),
        different.join("\n")
    );
    clean(&order);
}

#[test]
fn each_model_strikes_the_nth_execution_as_single_steps_do() {
    alike("models", |order| {
        order.models = [&Model::SEI[..], &[Model::Flags]].concat()
    });
}

#[test]
fn many_bits_and_stuck_bits_are_alike_too() {
    alike("bits", |order| {
        order.shape = Shape {
            count: 4,
            burst: true,
            stuck: None,
        }
    });
    alike("stuck", |order| {
        order.shape = Shape {
            count: 2,
            burst: false,
            stuck: Some(true),
        }
    });
}

#[test]
fn written_lines_are_alike() {
    alike("lines", |order| {
        order.runs = 1;
        // Wide registers where the processor has them: nothing is kept of these but by the engines.
        let wide: &[&str] = if is_x86_feature_detected!("avx512f") {
            &[
                "at=control!mix n=5 reg=zmm1 after bits=3,400",
                "at=control!mix n=5 reg=zmm20 bit=100",
                "at=control!mix n=5 reg=k3 bit=7",
                "at=control!mix n=5 reg=zmm3 once bits=8-15 stuck=1",
            ]
        } else if is_x86_feature_detected!("avx") {
            &["at=control!mix n=5 reg=ymm1 after bits=3,200"]
        } else {
            &[]
        };
        order.lines = [
            "at=control!mix n=100 reg=rdi once bit=3",
            "at=control!mix n=100 kind=skip",
            "at=control!copy+3 n=7 reg=rcx bit=1",
            "at=control!copy+3 n=7 rval bit=5",
            "at=control!copy+3 n=7 raddr bit=4",
            "at=control!mix n=5 flag=zf",
            "at=control!mix+0x9 n=5 reg=xmm1 after bits=3,70",
            "at=control!work n=1 kind=crash",
            "at=control!mix n=1000 mem=[rsp] bit=13",
            // One of two neighbouring bits is set in the address, the other one clear or not:
            // the stack pointer goes up and down.
            "at=control!deep_store n=7 waddr bit=5",
            "at=control!deep_store n=8 waddr bit=6",
            "at=control!deep_store n=9 waddr bit=7",
            "at=control!deep_load n=7 raddr bit=5",
            "at=control!deep_load n=8 raddr bit=6",
            "at=control!deep_load n=9 raddr bit=40",
            "at=control!deep_push n=7 waddr bit=6",
            "at=control!deep_push n=8 waddr bit=7",
            "at=control!deep_pop n=7 raddr bit=6",
            "at=control!deep_pop n=8 raddr bit=7",
        ]
        .iter()
        .chain(wide)
        .map(|line| (*line).to_owned())
        .collect();
    });
}

#[test]
fn a_bad_core_is_wrong_each_time_and_only_there() {
    let here = steadfast_sys::cpu::allowed()[0];
    let mut order = order("core", false);
    order.runs = 2;
    let line = |cpu: usize, odds: &str| {
        format!("cpu={cpu} class=int-mul n=1.. {odds} reg=rax after bit=0")
    };
    let elsewhere = if here == 200 { 201 } else { 200 };
    order.lines = vec![
        line(here, ""),
        line(elsewhere, ""),
        line(here, "one-in=3 seed=7"),
        line(here, "one-in=3 seed=8"),
    ];
    // The test's thread and all that comes of it; other tests have threads of their own.
    steadfast_sys::cpu::pin(0, here).expect("pinned");
    drop(carried_out(&order));
    let runs = Dir::new(&order.dir).runs().expect("runs");
    let of = |line: u64| [&runs[&line], &runs[&(line + 4)]];
    for line in 0..4 {
        let [first, second] = of(line);
        assert_eq!(
            (first.hits, &first.outputs),
            (second.hits, &second.outputs),
            "line {line} is repeatable"
        );
    }
    // 30 rounds of 64 multiplications, each of them wrong.
    assert_eq!((of(0)[0].hits, of(1)[0].hits), (1920, 0));
    assert_eq!(of(1)[0].outcome.outcome(), Outcome::NotFired);
    assert_eq!(of(0)[0].outcome.outcome(), Outcome::Sdc);
    // A third of 1,920 within five standard deviations (20.7 each), drawn from the seed.
    for line in [2, 3] {
        assert!(
            (536..=744).contains(&of(line)[0].hits),
            "{}",
            of(line)[0].hits
        );
    }
    assert_ne!(of(2)[0].outputs, of(3)[0].outputs);
    clean(&order);
}

#[test]
fn addresses_may_differ_from_run_to_run() {
    let mut order = order("aslr", false);
    order.spec.path = "/usr/bin/sort".into();
    order.spec.argv = vec!["sort".into(), "/etc/passwd".into()];
    order.spec.aslr = true;
    // Not the libraries: where a loop of theirs goes on to an alignment, how often it runs is
    // decided by addresses.
    order.only = vec!["sort".into()];
    order.runs = 4;
    drop(carried_out(&order));
    let runs = Dir::new(&order.dir).runs().expect("runs");
    let fired = runs.values().filter(|run| run.hits == 1).count();
    assert_eq!((fired, runs.len()), (28, 28));
    // Where the program lies has 28 bits of chance, twelve of them in these digits: 55555 without.
    let places: std::collections::BTreeSet<_> = runs
        .values()
        .filter(|run| run.fault_type == "cf")
        .flat_map(|run| &run.fired)
        .filter_map(|fired| Some(fired.before.as_deref()?.get(2..7)?.to_owned()))
        .collect();
    assert!(places.len() > 1, "the program always lies at {places:?}");
    clean(&order);
}

#[test]
fn flips_of_code_are_masked_or_not_but_always_there() {
    let mut order = order("code", false);
    order.models = vec![Model::Code];
    order.runs = 60;
    drop(carried_out(&order));
    let runs = Dir::new(&order.dir).runs().expect("runs");
    assert!(runs.len() == 60 && runs.values().all(|run| run.hits == 1));
    let of = |outcome| {
        runs.values()
            .filter(|run| run.outcome.outcome() == outcome)
            .count()
    };
    assert!(of(Outcome::Sdc) > 0 && of(Outcome::Crash) > 0, "{runs:?}");
    clean(&order);
}

#[test]
fn threads_share_the_counters() {
    let mut order = order("threads", false);
    order.spec.path = "/usr/bin/xz".into();
    order.spec.argv = ["xz", "-T2", "--block-size=4096", "-c", "/etc/services"]
        .map(str::to_owned)
        .to_vec();
    order.only = Vec::new();
    order.models = vec![Model::Wreg];
    order.runs = 10;
    let mut field = steadfast_inject::campaign::Field::open(&order).expect("opened");
    assert!(field.discovered.threads, "it has threads");
    let (first, second) = (
        field.profile().expect("counted"),
        field.profile().expect("counted"),
    );
    let most = |profile: &steadfast_inject::profile::Profile| {
        profile
            .sites
            .iter()
            .map(|site| (site.count, site.addr))
            .max()
    };
    // The inner loop is the workers': nothing of it is lost between them.
    assert!(most(&first).is_some_and(|(count, _)| count > 10_000) && most(&first) == most(&second));
    let library = field
        .discovered
        .modules
        .iter()
        .filter_map(|found| found.path.file_name()?.to_str());
    order.only = library
        .filter(|name| name.starts_with("liblzma"))
        .map(str::to_owned)
        .collect();
    drop(field);
    drop(carried_out(&order));
    let runs = Dir::new(&order.dir).runs().expect("runs");
    assert!(
        runs.len() == 10 && runs.values().all(|run| run.hits == 1),
        "{runs:?}"
    );
    clean(&order);
}

#[test]
fn native_counts_are_those_of_single_steps() {
    let order = order("counts", false);
    let (sites, wrong) = doctor::counts(&order, 4_000_000).expect("counted");
    assert!(wrong.is_empty() && sites > 60, "{sites}, {wrong:?}");
    clean(&order);
}

#[test]
fn an_unchecked_target_shows_wrong_answers_and_a_checked_one_none() {
    let open = order("silent", false);
    let running = carried_out(&open);
    let control_runs = running.campaign.control_runs;
    assert_eq!(
        (control_runs.masked, control_runs.false_alarms),
        (control_runs.runs, 0)
    );
    drop(running);
    let of = |order: &Order, outcome| {
        Dir::new(&order.dir)
            .runs()
            .expect("runs")
            .values()
            .filter(|r| r.outcome.outcome() == outcome)
            .count()
    };
    assert!(of(&open, Outcome::Sdc) > 0 && of(&open, Outcome::NotFired) == 0);
    clean(&open);
    let guarded = order("guarded", true);
    drop(carried_out(&guarded));
    assert!(of(&guarded, Outcome::Sdc) == 0 && of(&guarded, Outcome::Detected) > 0);
    clean(&guarded);
}

#[test]
fn a_replay_is_the_run_again_and_a_second_call_does_the_rest_only() {
    let mut order = order("replay", false);
    order.runs = 3;
    let mut running = carried_out(&order);
    let runs = Dir::new(&order.dir).runs().expect("runs");
    for (id, run) in &runs {
        let (_, again, _) = running.replay(*id).expect("replayed");
        let fired = |run: &Run| {
            run.fired
                .iter()
                .map(|f| (f.n, f.before.clone(), f.after.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (again.outcome.outcome(), fired(&again), &again.outputs),
            (run.outcome.outcome(), fired(run), &run.outputs),
            "{id}"
        );
    }
    drop(running);
    // A crash that cut the last line off: that run is done again, and no other.
    let path = order.dir.join("runs.jsonl");
    let text = fs::read(&path).expect("runs");
    fs::write(&path, &text[..text.len() - 30]).expect("cut");
    let mut running = Running::prepare(&order, "test", &mut |_| ()).expect("taken up");
    assert_eq!(
        running
            .run(&AtomicBool::new(false), &|| false, &|_| ())
            .expect("run"),
        1
    );
    let again = Dir::new(&order.dir).runs().expect("runs");
    assert_eq!(again.len(), runs.len());
    clean(&order);
}

#[test]
fn the_same_seed_makes_the_same_plan() {
    let mut first = order("seed-a", false);
    let mut second = order("seed-b", false);
    (first.runs, second.runs) = (5, 5);
    for order in [&first, &second] {
        drop(Running::prepare(order, "test", &mut |_| ()).expect("prepared"));
    }
    assert_eq!(
        Dir::new(&first.dir).plan().expect("plan"),
        Dir::new(&second.dir).plan().expect("plan")
    );
    clean(&first);
    clean(&second);
}

#[test]
fn a_mercurial_core_strikes_every_execution_of_a_class() {
    let mut order = order("class", false);
    order.runs = 1;
    order.lines = vec!["class=int-mul n=1.. reg=rax after bit=0".into()];
    drop(carried_out(&order));
    let runs = Dir::new(&order.dir).runs().expect("runs");
    // 30 rounds of 64 multiplications.
    assert_eq!(runs[&0].hits, 1920);
    assert_eq!(runs[&0].outcome.outcome(), Outcome::Sdc);
    clean(&order);
}

#[test]
fn a_fault_in_the_loader_is_the_program_s_end_and_not_the_injector_s() {
    let mut order = order("loader", false);
    order.spec.path = "/usr/bin/sort".into();
    order.spec.argv = vec!["sort".into(), "/etc/passwd".into()];
    order.only = Vec::new();
    order.runs = 1;
    order.lines = vec!["class=store n=2.. waddr bit=46".into()];
    drop(carried_out(&order));
    let runs = Dir::new(&order.dir).runs().expect("runs");
    assert_eq!(runs[&0].outcome.outcome(), Outcome::Crash, "{:?}", runs[&0]);
    assert!(runs[&0].hits > 0);
    clean(&order);
}

#[test]
fn a_selector_that_selects_nothing_is_refused() {
    for (scope, found) in [
        ("nothing", "the modules control"),
        ("lib*", "the modules control"),
        ("control!absent", "of its functions "),
    ] {
        let mut order = order("selector", false);
        order.only = vec![scope.into()];
        let error = Running::prepare(&order, "test", &mut |_| ())
            .map(drop)
            .expect_err(scope)
            .to_string();
        assert!(error.contains(scope) && error.contains(found), "{error}");
        clean(&order);
    }
    let mut order = order("selects", false);
    (order.only, order.runs) = (vec!["contr?l!de*".into()], 3);
    drop(Running::prepare(&order, "test", &mut |_| ()).expect("prepared"));
    let plan = Dir::new(&order.dir).plan().expect("a plan");
    let function = |run: &steadfast_inject::record::Planned| run.site.as_ref()?.function.clone();
    assert!(
        plan.iter()
            .all(|run| function(run).is_some_and(|name| name.starts_with("de")))
    );
    clean(&order);
    // As the caller calls it: by a symbolic link, say, of which the path no longer tells.
    let mut order = order_named_by("a-link");
    (order.only, order.runs) = (vec!["a-link".into()], 3);
    drop(Running::prepare(&order, "test", &mut |_| ()).expect("prepared"));
    clean(&order);
}

fn order_named_by(link: &str) -> Order {
    let mut order = order("link", false);
    order.spec.argv[0] = format!("/usr/local/bin/{link}");
    order
}

#[test]
fn impossible_orders_are_refused_before_any_run() {
    struct Row {
        name: &'static str,
        line: &'static str,
        needed: &'static str,
    }
    for Row { name, line, needed } in [
        Row {
            name: "no-module",
            line: "at=nowhere+0x10 n=1 reg=rax bit=0",
            needed: "no module",
        },
        Row {
            name: "no-symbol",
            line: "at=control!nothing n=1 reg=rax bit=0",
            needed: "no symbol",
        },
        Row {
            name: "class",
            line: "class=shuffle n=1.. reg=xmm0 after bit=0",
            needed: "of that class",
        },
        Row {
            name: "event",
            line: "event=1 reg=rax bit=0",
            needed: "steadfast run",
        },
    ] {
        let mut order = order(name, false);
        order.runs = 1;
        order.lines = vec![line.into()];
        let error = Running::prepare(&order, "test", &mut |_| ())
            .map(drop)
            .expect_err(line)
            .to_string();
        assert!(error.contains(needed), "{line}: {error}");
        assert!(!order.dir.join("runs.jsonl").exists());
        clean(&order);
    }
}

#[test]
fn the_step_engine_carries_a_campaign_too() {
    let mut order = order("step", false);
    order.runs = 2;
    order.engine = Engine::Step;
    drop(carried_out(&order));
    let runs = Dir::new(&order.dir).runs().expect("runs");
    assert!(
        runs.len() == 14 && runs.values().all(|run| run.hits > 0),
        "{runs:?}"
    );
    clean(&order);
}
