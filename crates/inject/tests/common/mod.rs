//! What campaigns in these tests share: a small target in a sandbox, and a guest built for it.

use std::fs;
use std::path::Path;
use std::process::Command;

use steadfast_inject::campaign::Order;
use steadfast_inject::doctor;

/// One run of the doctor's target, without a fault; as `user` where the tests run as root.
pub(crate) fn order(test: &str, name: &str, user: u32) -> Order {
    let dir = std::env::temp_dir().join(format!("inject-{test}-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let user = steadfast_sys::procfs::is_privileged().then_some(user);
    let mut order = doctor::control(&dir, false, user).expect("a target");
    order.only = Vec::new();
    order.models = Vec::new();
    order.runs = 1;
    order
}

/// Makes a guest of guests/inject the target, built beside the order's other files.
pub(crate) fn guest(order: &mut Order, name: &str, flags: &[&str]) {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/inject");
    let source = ["c", "S"]
        .map(|kind| guests.join(name).with_extension(kind))
        .into_iter()
        .find(|path| path.exists())
        .expect("a guest of that name");
    let program = order.scratch.join(name);
    let built = Command::new("cc")
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(source)
        .status()
        .expect("a C compiler");
    assert!(built.success());
    order.spec.path = program;
    order.spec.argv = vec![name.into()];
}

pub(crate) fn clean(order: &Order) {
    fs::remove_dir_all(&order.scratch).expect("nothing is left behind");
}
