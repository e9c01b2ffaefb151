//! What a site says of itself: `pair status`, `pair top`, Prometheus, signals.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sites::*;

/// A command about the ledger of a site, in that site's namespace.
fn told(child: &Child, args: &[&str]) -> Output {
    let output = Command::new("nsenter")
        .args(["--target", &child.id().to_string(), "--mount"])
        .args(if is_root() {
            &[][..]
        } else {
            &["--user", "--preserve-credentials"]
        })
        .args(["--", pair()])
        .args(args)
        .args(["--ledger", "/mnt/ledger"])
        .output();
    output.expect("nsenter is installed")
}

pub(crate) fn status(child: &Child) -> (Option<i32>, Value) {
    let output = told(child, &["status", "--json"]);
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        panic!("{}", String::from_utf8_lossy(&output.stderr));
    });
    (output.status.code(), value)
}

fn http(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// The value of a metric.
fn metric(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("steadfast_pair_{name}{{")))
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    let value = line.rsplit(' ').next().and_then(|value| value.parse().ok());
    value.expect("a number")
}

#[test]
fn both_sites_tell_what_they_do_and_who_goes_on_alone() {
    let dir = with_table("status");
    let (site, witness) = (sqlite_site(&dir), Witness::new("status"));
    let address = format!("127.0.0.1:{}", free_port());
    let web = format!("127.0.0.1:{}", free_port());
    let flags = witness.flags(2000);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let b = start(
        &site,
        "secondary",
        &[&["--listen", &address], &flags[..]].concat(),
    );
    let mut both = Both::with(
        start(
            &site,
            "primary",
            &[&["--peer", &address, "--http", &web], &flags[..]].concat(),
        ),
        b,
    );
    let right = both.ask(ASK);
    both.strike(&both.b, PLACE, 1);
    assert_eq!(both.ask(ASK), right);
    for (child, name) in [(&both.a, "A"), (&both.b, "B")] {
        let (code, said) = status(child);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(said["site"], name);
        assert_eq!(said["state"], "running", "{said}");
        assert_eq!(said["generation"], 0);
        assert_eq!(said["repairs"], 1, "{said}");
        assert_eq!(said["ledger_files"], 1, "{said}");
        assert!(said["ledger_pages"].as_u64() > Some(8), "{said}");
        assert!(said["pages_verified"].as_u64() > Some(8), "{said}");
        assert!(said["silent_ms"].as_u64() < Some(2000), "{said}");
    }
    let text = http(&web, "/metrics");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert_eq!(metric(&text, "repairs_total"), 1);
    assert_eq!(metric(&text, "alone"), 0);
    assert!(metric(&text, "pages_verified_total") > 8, "{text}");
    assert!(http(&web, "/readyz").ends_with("\r\n\r\nready\n"));
    assert!(http(&web, "/healthz").ends_with("\r\n\r\nok\n"));
    assert!(http(&web, "/x").starts_with("HTTP/1.1 404"));
    let top = told(&both.a, &["top", "--every", "20", "--count", "2"]);
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    assert_eq!(top.lines().count(), 3, "{top}");

    // The ledger is this site's: a look at rest would write it anew.
    let rest = told(&both.a, &["verify"]);
    let said = String::from_utf8_lossy(&rest.stderr).into_owned();
    assert_eq!(rest.status.code(), Some(121), "{said}");
    assert!(said.contains("is in use"), "{said}");

    both.b.kill().expect("a child");
    assert_eq!(both.ask("SELECT 'alone';"), "alone");
    let (code, said) = status(&both.a);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said["state"], "alone");
    assert_eq!(said["generation"], 1);
    assert_eq!(metric(&http(&web, "/metrics"), "alone"), 1);
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(0), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_site_that_is_held_says_so_and_one_that_does_not_run_is_told_from_it() {
    let dir = with_table("held");
    let (site, witness) = (sqlite_site(&dir), Witness::new("held"));
    let mut both = witnessed(&site, &witness);
    assert_eq!(both.ask("SELECT 1;"), "1");
    fs::remove_dir_all(&witness.0).expect("the witness goes");
    both.b.kill().expect("a child");
    let deadline = Instant::now() + LIMIT;
    loop {
        let (code, said) = status(&both.a);
        if code == Some(1) {
            assert_eq!(said["state"], "held", "{said}");
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::create_dir_all(&witness.0).expect("the witness comes back");
    assert_eq!(both.ask("SELECT 2;"), "2");
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(0), "{}", ends.said());
    let silent = Command::new(pair())
        .args(["status", "--ledger"])
        .arg(&dir)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&silent.stderr).into_owned();
    assert_eq!(silent.status.code(), Some(121), "{said}");
    assert!(said.contains("does not answer"), "{said}");
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn the_primary_hands_a_signal_on_and_both_programs_end_by_it() {
    let dir = with_table("signal");
    let site = sqlite_site(&dir);
    let mut both = Both::start(&site, &site);
    assert_eq!(both.ask("SELECT 1;"), "1");
    let sent = Command::new("kill")
        .args(["-TERM", &both.a.id().to_string()])
        .status()
        .expect("kill is installed");
    assert!(sent.success());
    // The program waits for a line; the signal takes it out of that, before the input ends.
    both.wait();
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(143), Some(143)], "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_service_manager_hears_when_both_sites_run() {
    let dir = with_table("manager");
    let site = sqlite_site(&dir);
    let path = dir.with_extension("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    manager
        .set_read_timeout(Some(LIMIT))
        .expect("a socket has one");
    let address = format!("127.0.0.1:{}", free_port());
    let b = start(&site, "secondary", &["--listen", &address]);
    let a = start_as(&site, "primary", &["--peer", &address], |command| {
        command.env("NOTIFY_SOCKET", &path);
    });
    let mut both = Both::with(a, b);
    let mut text = [0; 256];
    let n = manager.recv(&mut text).expect("it is told");
    assert_eq!(&text[..n], b"READY=1\nSTATUS=running\n");
    assert_eq!(both.ask("SELECT 1;"), "1");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    fs::remove_file(path)
        .and_then(|()| fs::remove_dir_all(dir))
        .expect("clean");
}
