//! Thousands of resets leave nothing behind: in a process of its own, since what is resident is counted for all of its tests.
//! `STEADFAST_REBOOTS=100000`, as `make campaign` has it, makes more of them; what is left is printed.

#[path = "cases/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use steadfast_restart::{Policy, Value};

fn path(name: &str) -> String {
    format!("steadfast:lock/locks@0.1.0#{name}")
}

/// 5,000, or as many as the environment asks for.
fn reboots() -> u32 {
    let asked = std::env::var("STEADFAST_REBOOTS").ok();
    asked.map_or(5000, |n| n.parse().expect("STEADFAST_REBOOTS is a number"))
}

/// Open descriptors and mappings of this process.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("procfs");
    let mappings = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    (descriptors.count(), mappings.lines().count())
}

fn resident_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = text.split(' ').nth(1).and_then(|n| n.parse().ok());
    pages.expect("a number")
}

#[test]
#[allow(clippy::print_stdout, reason = "what a campaign publishes")]
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
    let before = (resident_pages(), held());
    let begin = std::time::Instant::now();
    (0..reboots()).for_each(|_| round());
    let after = (resident_pages(), held());
    println!(
        "{} reboots in {:.1} s; pages, descriptors and mappings: {before:?} before, {after:?} after",
        reboots(),
        begin.elapsed().as_secs_f64()
    );
    assert!(
        after.0 < before.0 + 256,
        "{before:?} before, {after:?} after"
    );
    assert_eq!(after.1.0, before.1.0, "descriptors");
    // The allocator may have asked for an arena more.
    assert!(
        after.1.1 <= before.1.1 + 8,
        "{before:?} before, {after:?} after"
    );
}
