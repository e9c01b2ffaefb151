//! What stands around a target: what it must be like without a fault, and what it cannot reach or hold up.
//!
//! Each refusal rings in one case and stays silent in its neighbour.

mod common;

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use common::{clean, guest, order};
use steadfast_inject::campaign::{Order, Running};

/// What preparing a campaign says: nothing if it stands, else the requirement, what was found, and the fix.
fn prepared(order: &mut Order) -> Result<Vec<String>, String> {
    // A fault of storage needs no count of what is executed.
    order.lines = vec!["read=*.absent n=1 byte=0 bit=5".into()];
    let mut running = Running::prepare(order, "test", &mut |_| {})
        .map_err(|why| format!("{why}; fix: {}", why.fix().unwrap_or("none")))?;
    let (closed, _) = running
        .isolation()
        .expect("the sandbox says what it closed");
    Ok(closed)
}

#[test]
fn a_target_that_fails_without_a_fault_is_refused() {
    let mut order = order("sandbox", "fails", 65534);
    order.spec.path = "/bin/false".into();
    order.spec.argv = vec!["false".into()];
    let said = prepared(&mut order).expect_err("status 1 is no right answer");
    assert!(
        said.contains("ends with status 0 without a fault, found status 1")
            && said.contains("--golden-exit=1"),
        "{said}"
    );
    clean(&order);
}

#[test]
fn a_target_that_fails_as_it_should_is_not_refused() {
    let mut order = order("sandbox", "fails-so", 65534);
    order.spec.path = "/bin/false".into();
    order.spec.argv = vec!["false".into()];
    order.golden_exit = 1;
    prepared(&mut order).expect("status 1 was announced");
    clean(&order);
}

#[test]
fn a_socket_of_the_machine_is_out_of_reach() {
    let mut order = order("sandbox", "socket", 65534);
    guest(&mut order, "reaches", &[]);
    let path = order.scratch.join("machine.socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("its owner is this user");
    order.spec.argv.push(path.display().to_string());
    let closed = prepared(&mut order).expect("nothing was reached");
    assert!(
        closed.iter().any(|one| one.contains("unix sockets")),
        "{closed:?}"
    );
    drop(listener);
    clean(&order);
}

#[test]
fn a_socket_of_the_machine_is_reached_with_its_network() {
    let mut order = order("sandbox", "socket-open", 65534);
    guest(&mut order, "reaches", &[]);
    let path = order.scratch.join("machine.socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("its owner is this user");
    order.spec.argv.push(path.display().to_string());
    order.network = true;
    let said = prepared(&mut order).expect_err("the guest fails where it reaches one");
    assert!(said.contains("status 1"), "{said}");
    drop(listener);
    clean(&order);
}

#[test]
fn a_target_that_stops_process_1_of_its_box_ends_the_campaign() {
    let mut order = order("sandbox", "traces", 65534);
    guest(&mut order, "traces", &[]);
    order.patience = Duration::from_secs(2);
    // With its caller's rights, which are root's or not.
    order.spec.user = None;
    let begun = Instant::now();
    match prepared(&mut order) {
        Ok(_) => assert!(!steadfast_sys::procfs::is_privileged(), "root may trace it"),
        Err(said) => assert!(said.contains("traces process 1"), "{said}"),
    }
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "the limit of a run holds"
    );
    clean(&order);
}
