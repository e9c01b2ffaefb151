//! Components built once for all tests, and hosts that run them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use steadfast_restart::{Component, Engine, Host, Model, Policy, package};

fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("components");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("components/build");
        let status = Command::new(script)
            .arg(&out)
            .status()
            .expect("components/build runs");
        assert!(status.success(), "components/build failed");
        out
    })
}

pub fn text(name: &str, ending: &str) -> String {
    std::fs::read_to_string(built().join(format!("{name}.{ending}")))
        .expect("components/build wrote it")
}

pub fn model(name: &str) -> Model {
    Model::generate(&text(name, "wit"), &text(name, "recover.toml")).expect("the model is complete")
}

/// The compiled image of a component.
pub fn image(name: &str) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = built().join(format!("{name}-{}.cwasm", std::process::id()));
    if !path.exists() {
        let core = std::fs::read(built().join(format!("{name}.core.wasm")))
            .expect("components/build wrote it");
        let component =
            package::componentize(Path::new(name), &core, &text(name, "wit")).expect("a component");
        let compiled = Engine::new(true)
            .expect("the pad works")
            .compile(Path::new(name), &component)
            .expect("it compiles");
        std::fs::write(&path, compiled).expect("target is writable");
    }
    path
}

pub fn component(name: &str, policy: Policy) -> Component {
    Component {
        name: name.into(),
        image: image(name),
        model: model(name),
        init: None,
        memory_bytes: 16 << 20,
        call_limit: Duration::from_secs(2),
        policy,
    }
}

pub fn host(name: &str, policy: Policy) -> Host {
    let mut host = Host::new(true).expect("the pad works");
    host.add(component(name, policy), None).expect("it starts");
    host
}
