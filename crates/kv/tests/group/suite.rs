//! memcached's own tests, in Perl, against a group: those that any server of its text and meta commands can pass.

use std::path::PathBuf;

use steadfast_workloads::Store;
use steadfast_workloads::servers::source::Sources;
use steadfast_workloads::servers::suite::{self, End};

use super::*;

/// memcached's source, which goes with the test.
struct Tree(PathBuf);

impl Tree {
    fn new() -> Self {
        let name = format!("steadfast-kv-suite-{}", std::process::id());
        let tree = Self(std::env::temp_dir().join(name));
        let sources = Sources::at(Store::default_place().sources());
        suite::unpack(&sources, &tree.0, &mut |_| {}).expect("Debian's archive answers");
        tree
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn memcacheds_own_tests_of_its_commands_pass() {
    let tree = Tree::new();
    let group = Group::start(&["--workers", "1,2,4"]);
    // 38,000 checks by itself: for a campaign.
    let names = suite::OF_ANY_SERVER
        .iter()
        .filter(|name| **name != "getset.t");
    let names: Vec<String> = names.map(ToString::to_string).collect();
    let runs = suite::run_at(group.clients[1], &tree.0, &names, PATIENCE, &mut |_| {}).unwrap();
    assert_eq!(runs.len(), names.len());
    for run in &runs {
        let said = std::fs::read_to_string(&run.log).unwrap_or_default();
        assert_eq!(run.end, End::Passed, "{}: {said}", run.name);
    }
    for replica in 0..3 {
        let counts = &group.status(replica)["counts"];
        for harm in ["mismatches", "repairs", "refused"] {
            assert_eq!(counts[harm], 0, "{harm}: {counts}");
        }
    }
}
