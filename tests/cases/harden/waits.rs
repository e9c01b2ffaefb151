//! Waits for conditions in the middle of a handler: struck, and refused.

use libtest_mimic::Failed;

use super::compile::{ended, own_program, program, run};
use crate::bench::Bench;
use crate::trial::Trial;

/// A fault before, at or after a wait of conditions.c. Frames that a wait has kept are each run's own: what was wrong in them before stays so.
struct Wait {
    place: &'static str,
    /// The run of the handler that is struck, 1 or 2.
    run: u8,
    event: u8,
    says: &'static str,
    /// Whether `--recover` repairs it.
    repaired: bool,
}

#[rustfmt::skip]
const WAITS: &[Wait] = &[
    Wait { place: "local_before", run: 1, event: 7, says: "leave different values", repaired: false },
    Wait { place: "local_before", run: 2, event: 7, says: "leave different values", repaired: false },
    Wait { place: "local_after", run: 1, event: 7, says: "leave different values", repaired: true },
    Wait { place: "local_after", run: 2, event: 8, says: "leave different values", repaired: true },
    Wait { place: "state", run: 1, event: 9, says: "leave different values", repaired: true },
    Wait { place: "state", run: 2, event: 9, says: "leave different values", repaired: true },
    Wait { place: "message", run: 1, event: 10, says: "an input has changed", repaired: false },
    Wait { place: "message", run: 2, event: 10, says: "an input has changed", repaired: false },
    Wait { place: "other_condition", run: 1, event: 0, says: "different conditions", repaired: true },
    Wait { place: "other_condition", run: 2, event: 2, says: "different conditions", repaired: true },
    Wait { place: "no_wait", run: 1, event: 15, says: "only the second run waits", repaired: true },
    Wait { place: "no_wait", run: 2, event: 18, says: "only the first run waits", repaired: true },
];

/// A fault before, at or after a wait for a condition.
fn struck_waiting(
    flags: &'static [&str],
    &Wait {
        place,
        run: in_run,
        event,
        says: names,
        repaired,
    }: &Wait,
) -> Result<(), Failed> {
    let way = if flags.contains(&"--recover") {
        "recover"
    } else {
        "O2"
    };
    let golden = run(&program("conditions.c", "O2", &["-O2"], false)?, &[])?;
    let hardened = program("conditions.c", way, flags, true)?;
    let ran = run(&hardened, &[place, &in_run.to_string(), &event.to_string()])?;
    if way == "recover" && repaired {
        ended(&ran, 0, &[names, "recovered"], &[])?;
        if ran.stdout != golden.stdout {
            return Err(format!("{place}: {}", String::from_utf8_lossy(&ran.stdout)).into());
        }
        return Ok(());
    }
    ended(&ran, 122, &[names], &["recovered", "not deterministic"])
}

/// Waits that are refused when they happen: in the middle of a message, and without the lock.
fn waits_refused() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-wait-refused");
    let text = include_str!("../../../cc/tests/programs/refused/wait.c");
    struct Row {
        name: &'static str,
        flags: &'static [&'static str],
        status: i32,
        says: &'static str,
    }
    for Row {
        name,
        flags,
        status,
        says,
    } in [
        Row {
            name: "message.c",
            flags: &["-O1", "-DIN_A_MESSAGE"],
            status: 121,
            says: "sf_output_done before the wait",
        },
        Row {
            name: "lock.c",
            flags: &["-O1"],
            status: 122,
            says: "a lock that this thread does not hold",
        },
    ] {
        let program = own_program(&dir, name, text, flags)?;
        ended(&run(&program, &[])?, status, &[says], &[])?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("harden::refuse::wait", waits_refused)];
    for wait in WAITS {
        for (kind, flags) in [("strike", &["-O2"][..]), ("recover", &["-O2", "--recover"])] {
            trials.push(Trial::test(
                format!("harden::{kind}::wait_{}_{}", wait.place, wait.run),
                move || struck_waiting(flags, wait),
            ));
        }
    }
    trials
}
