//! The container image, as far as it can be seen without building it: what it copies is there, and what it starts would start.

use std::path::Path;

use crate::{err, host};

#[test]
fn the_container_copies_what_exists_and_its_application_would_start() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tree.join("crates/host/container");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
    let container = text("Containerfile");
    let copied = container
        .lines()
        .filter_map(|line| line.strip_prefix("COPY crates/"));
    let copied: Vec<_> = copied
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(copied, ["host/container/shop.toml"]);
    // Any port, so that no other test is in the way.
    let app = text("shop.toml").replace("0.0.0.0:8080", "127.0.0.1:0");
    let checked = host("check", "container", &app, &[]);
    assert!(checked.status.success(), "{}", err(&checked));
    let started = host("run", "container", &app, &["--keep", "own", "--for", "0"]);
    assert!(started.status.success(), "{}", err(&started));
}
