//! A wild fault in a component, in a process of its own: what makes one is the pad's self-test, which serves one test at a time.

#[path = "cases/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast_restart::{CallError, Cause, Policy};
use steadfast_sys::pad::{Runner, Wild};

#[test]
fn a_wild_fault_is_an_error_of_one_call_and_handles_stay() {
    for wild in [Wild::Low, Wild::NotCanonical, Wild::Stack] {
        let host = fixture::host(
            "bad",
            Policy {
                redo_max: 0,
                ..Policy::default()
            },
        );
        let edge = host.edge("test", "bad", &[]).expect("an edge");
        let path = |name: &str| format!("steadfast:bad/failures@0.1.0#{name}");
        let thing = edge.invoke(&path("[constructor]thing"), &[7u32.into()]);
        let thing = thing.expect("made").and_then(|v| v.handle()).expect("one");
        // The calls of this thread are numbered; one of the next few is the one that never returns.
        let here = Runner::current().pack();
        let done = AtomicBool::new(false);
        let failed = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    for call in here..here + 8 {
                        Runner::unpack(call).go_wild(wild);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let failed = edge.invoke(&path("spin"), &[]);
            done.store(true, Ordering::Release);
            failed
        });
        assert!(
            matches!(
                failed,
                Err(CallError::Poison {
                    cause: Cause::WildFault,
                    ..
                })
            ),
            "{wild:?}: {failed:?}"
        );
        let number = edge.invoke(&path("[method]thing.get"), &[thing.into()]);
        assert_eq!(
            number.expect("it is back").and_then(|v| v.number()),
            Some(7)
        );
    }
}
