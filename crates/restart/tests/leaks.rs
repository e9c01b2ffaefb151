//! Thousands of resets leave nothing behind: in a process of its own, since what is resident is counted for all of its tests.

#[path = "cases/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use steadfast_restart::{Policy, Value};

fn path(name: &str) -> String {
    format!("steadfast:lock/locks@0.1.0#{name}")
}

fn resident_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = text.split(' ').nth(1).and_then(|n| n.parse().ok());
    pages.expect("a number")
}

#[test]
fn resets_leave_nothing_behind() {
    let policy = Policy {
        resets_max: u32::MAX,
        spare: false,
        ..Policy::default()
    };
    let host = fixture::host("lock", policy);
    let edge = host.edge("test", "lock", &[]).expect("an edge");
    let made = edge.invoke(&path("[constructor]lock"), &[]).expect("made");
    let lock = made.and_then(|value| value.handle()).expect("a lock");
    let take = [lock.into(), 7u32.into()];
    let taken = edge.invoke(&path("[method]lock.take"), &take);
    assert_eq!(taken, Ok(Some(Value::Bool(true))));
    let holder = Ok(Some(Value::Option(Some(Box::new(7u32.into())))));
    let round = || {
        edge.reset().expect("it comes back");
        let found = edge.invoke(&path("[method]lock.holder"), &[lock.into()]);
        assert_eq!(found, holder);
    };
    (0..200).for_each(|_| round());
    let before = resident_pages();
    (0..5000).for_each(|_| round());
    let after = resident_pages();
    assert!(
        after < before + 256,
        "pages: {before} before, {after} after"
    );
}
