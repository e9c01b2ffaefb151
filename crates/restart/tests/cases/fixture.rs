//! Components built once for all tests, and hosts that run them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use steadfast_restart::{Component, Edge, Engine, Host, Model, Policy, Process, host, package};

fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("components");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("components/build");
        let failing = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/components");
        let shipped = script.parent().expect("a folder");
        for from in [shipped, &failing] {
            let mut build = Command::new(&script);
            let status = build.arg("--from").arg(from).arg(&out).status();
            assert!(
                status.expect("it runs").success(),
                "components/build failed"
            );
        }
        out
    })
}

/// Under which every boundary is tried: alone, with a spare, with two bodies, and with objects that all come back at once.
pub(crate) fn policies() -> [Policy; 4] {
    let [plain, spare, dual] = lazy_policies();
    let eager = Policy {
        eager: true,
        ..plain
    };
    [plain, spare, dual, eager]
}

/// The same where objects come back when they are used.
pub(crate) fn lazy_policies() -> [Policy; 3] {
    let plain = Policy {
        spare: false,
        resets_max: u32::MAX,
        ..Policy::default()
    };
    let spare = Policy {
        spare: true,
        ..plain
    };
    let dual = Policy {
        dual: true,
        compare_every: 1,
        ..plain
    };
    [plain, spare, dual]
}

/// For a case to call before each of its steps: the component crashes before one of them.
pub(crate) fn crash_before(step: usize, edge: &Edge) -> impl FnMut() {
    crash_at(2 * step, edge)
}

/// The same, with two moments for each step: before it, and at the return of its first call.
pub(crate) fn crash_at(moment: usize, edge: &Edge) -> impl FnMut() {
    let mut steps = 0;
    move || {
        if moment == 2 * steps {
            edge.reset().expect("it comes back");
        } else if moment == 2 * steps + 1 {
            edge.fail_once().expect("idle");
        }
        steps += 1;
    }
}

pub(crate) fn text(name: &str, ending: &str) -> String {
    std::fs::read_to_string(built().join(format!("{name}.{ending}")))
        .expect("components/build wrote it")
}

pub(crate) fn bytes(name: &str, ending: &str) -> Vec<u8> {
    std::fs::read(built().join(format!("{name}.{ending}"))).expect("components/build wrote it")
}

pub(crate) fn model(name: &str) -> Model {
    Model::generate(&text(name, "wit"), &text(name, "recover.toml")).expect("the model is complete")
}

/// The compiled image of a component, made once in each process: another build of wasmtime refuses the last one's.
pub(crate) fn image(name: &str) -> PathBuf {
    static MADE: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = built().join(format!("{name}.cwasm"));
    if !made.iter().any(|one| one == name) {
        let core = std::fs::read(built().join(format!("{name}.core.wasm")))
            .expect("components/build wrote it");
        let component =
            package::componentize(Path::new(name), &core, &text(name, "wit")).expect("a component");
        let compiled = Engine::new(true)
            .expect("the pad works")
            .compile(Path::new(name), &component)
            .expect("it compiles");
        // Renamed into place: another test process may have mapped the old one.
        let fresh = built().join(format!("{name}.{}", std::process::id()));
        std::fs::write(&fresh, compiled).expect("target is writable");
        std::fs::rename(&fresh, &path).expect("the same folder");
        made.push(name.to_owned());
    }
    path
}

pub(crate) fn component(name: &str, policy: Policy) -> Component {
    Component {
        name: name.into(),
        image: image(name),
        model: model(name),
        init: None,
        memory_bytes: 16 << 20,
        call_limit: Duration::from_secs(2),
        policy,
        uses: Vec::new(),
        // It asks for the time, and nobody else does unasked.
        answers: match name {
            "filesystem" => host::wall_clock(),
            _ => std::collections::BTreeMap::new(),
        },
        console: None,
        process: None,
    }
}

/// This test program as the one that runs a component.
pub(crate) fn own_process() -> Process {
    let args = ["--exact", "process::serves", "--ignored", "--nocapture"];
    Process {
        program: "/proc/self/exe".into(),
        args: args.map(Into::into).into(),
    }
}

pub(crate) fn host(name: &str, policy: Policy) -> Host {
    let mut host = Host::new(true).expect("the pad works");
    host.add(component(name, policy), None).expect("it starts");
    host
}
