//! Semaphores and queues of System V: each site has its own, and whichever is lost, the program has what it had.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::join::{Told, flags};
use crate::several::{alike, left_alone};
use crate::sites::*;
use crate::switch::order;

/// The same on a host that nothing happens to.
fn bare(program: &Path, asked: &[&str]) -> Vec<String> {
    let mut own = Command::new("unshare");
    own.args(["--map-root-user", "--ipc", "--"]).arg(program);
    answers(&mut own, asked)
}

fn guest(name: &str) -> (PathBuf, Site) {
    let dir = seed(name);
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let site = Site {
        command: vec![built(&dir, "ipc").display().to_string()],
        ..sqlite_site(&data)
    };
    (dir, site)
}

/// What a site's host has of them.
fn objects(site: &Child) -> String {
    let output = Command::new("nsenter")
        .args(["--target", &site.id().to_string(), "--ipc", "--"])
        .args(["tail", "-qn+2", "/proc/sysvipc/sem", "/proc/sysvipc/msg"])
        .output()
        .expect("nsenter is installed");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The answer of a site that has taken over: what the lost one has said may come again.
fn answer(site: &mut Told, question: &str, before: &str) -> String {
    let mut line = site.ask(question);
    while line == before {
        line = site.line();
    }
    line
}

const ASKED: [&str; 8] = [
    "one", "two", "wait", "three", "four", "signal", "five", "last",
];

#[test]
fn semaphores_and_queues_are_there_on_whichever_site_goes_on() {
    let (dir, site) = guest("ipc");
    let right = bare(Path::new(&site.command[0]), &ASKED);
    side_by_side(&["first", "joined", "switched"], |how| {
        let witness = Witness::new(&format!("ipc-{how}"));
        match *how {
            "first" => is_lost(&site, &right, &witness),
            "joined" => is_joined(&site, &right, &witness),
            _ => is_switched(&site, &right, &witness),
        }
    });
    fs::remove_dir_all(dir).expect("clean");
}

/// The secondary has followed from the start.
fn is_lost(site: &Site, right: &[String], witness: &Witness) {
    let said = witness.flags(2000);
    let listen = format!("127.0.0.1:{}", free_port());
    let mut b = Told::start(
        site,
        "secondary",
        &flags(&said, &["--listen", &listen]),
        &witness.0,
        "b",
    );
    let mut a = Told::start(
        site,
        "primary",
        &flags(&said, &["--peer", &listen]),
        &witness.0,
        "a",
    );
    for at in 0..4 {
        assert_eq!(a.ask(ASKED[at]), right[at], "{}", a.said());
    }
    a.kill();
    b.wait_for("this site goes on alone");
    for at in 4..8 {
        assert_eq!(
            answer(&mut b, ASKED[at], &right[at - 1]),
            right[at],
            "{}",
            b.said()
        );
    }
    assert_eq!(objects(&b.child), "");
    let (status, told) = b.end();
    assert_eq!(status, Some(0), "{told}");
}

/// Of what the survivor has, the joiner's is made.
fn is_joined(site: &Site, right: &[String], witness: &Witness) {
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&alike(site), ["127.0.0.1"; 2], &said, &witness.0);
    for at in 0..3 {
        assert_eq!(a.ask(ASKED[at]), right[at], "{}", a.said());
    }
    let to = flags(&said, &["--peer", &door]);
    let mut c = Told::start(site, "join", &to, &witness.0, "c");
    a.wait_for("the other site is back");
    c.wait_for("this site has joined");
    assert_eq!(a.ask(ASKED[3]), right[3], "{}", a.said());
    a.kill();
    c.wait_for("this site goes on alone");
    for at in 4..8 {
        assert_eq!(
            answer(&mut c, ASKED[at], &right[at - 1]),
            right[at],
            "{}",
            c.said()
        );
    }
    assert_eq!(objects(&c.child), "");
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
}

/// The site that leaves keeps nothing, and is joined to the other one with what that has.
fn is_switched(site: &Site, right: &[String], witness: &Witness) {
    let [address, door] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let to = ["--listen", address.as_str(), "--peer", door.as_str()];
    let mut b = Told::start(site, "secondary", &to, &witness.0, "b");
    let to = ["--peer", address.as_str(), "--listen", door.as_str()];
    let mut a = Told::start(site, "primary", &to, &witness.0, "a");
    let exchange = |from: &Told, to: &Told| {
        let (status, line) = order("switch", &from.child);
        assert_eq!(
            (status, line.as_str()),
            (Some(0), "the other site leads"),
            "{}",
            from.said()
        );
        to.wait_for("the other site is back");
        from.wait_for("this site has joined");
    };
    let ask = |site: &mut Told, at: usize| {
        assert_eq!(site.ask(ASKED[at]), right[at], "{}", site.said());
    };
    (0..3).for_each(|at| ask(&mut a, at));
    exchange(&a, &b);
    (3..6).for_each(|at| ask(&mut b, at));
    exchange(&b, &a);
    (6..8).for_each(|at| ask(&mut a, at));
    for site in [&a, &b] {
        assert_eq!(objects(&site.child), "");
    }
    drop(b.child.stdin.take());
    let (status, told) = a.end();
    assert_eq!(status, Some(0), "{told}");
    let (status, told) = b.end();
    assert_eq!(status, Some(0), "{told}");
}

/// Something else has one by the program's key on this site's host.
fn is_taken(site: &Child, by: &str) {
    let made = "import ctypes,sys; sys.exit(eval('ctypes.CDLL(None).'+sys.argv[1])<0)";
    let own = fs::read_link("/proc/self/ns/ipc").expect("procfs");
    let deadline = std::time::Instant::now() + LIMIT;
    while fs::read_link(format!("/proc/{}/ns/ipc", site.id())).is_ok_and(|ns| ns == own) {
        assert!(std::time::Instant::now() < deadline, "it has no namespace");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let status = Command::new("nsenter")
        .args(["--target", &site.id().to_string(), "--ipc", "--"])
        .args(["python3", "-c", made, by])
        .status()
        .expect("nsenter is installed");
    assert!(status.success());
}

#[test]
fn what_something_else_has_made_is_refused_by_name_on_either_host() {
    const SET: &str = "semget(0x5f3759e0,5,0o1600)";
    const QUEUE: &str = "msgget(0x5f3759e0,0o1600)";
    let (dir, site) = guest("ipc-other");
    struct Row {
        of_primary: bool,
        by: &'static str,
        why: &'static str,
    }
    let cases = [
        Row {
            of_primary: true,
            by: SET,
            why: "has not made",
        },
        Row {
            of_primary: true,
            by: QUEUE,
            why: "has not made",
        },
        Row {
            of_primary: false,
            by: SET,
            why: "the program has made a set of semaphores",
        },
        Row {
            of_primary: false,
            by: QUEUE,
            why: "the program has made a queue",
        },
    ];
    side_by_side(
        &cases,
        |&Row {
             of_primary,
             by,
             why,
         }| {
            let address = format!("127.0.0.1:{}", free_port());
            let a = || start(&site, "primary", &["--peer", &address]);
            let b = || start(&site, "secondary", &["--listen", &address]);
            // Either waits for the other one.
            let (a, b) = if of_primary {
                let a = a();
                is_taken(&a, by);
                (a, b())
            } else {
                let b = b();
                is_taken(&b, by);
                (a(), b)
            };
            let ends = Both::with(a, b).end();
            let said = ends.said();
            let status = if of_primary { 121 } else { 122 };
            assert_eq!(ends.a.status.code(), Some(status), "{by}: {said}");
            assert!(said.contains(why), "{by}: {said}");
            assert_eq!(ends.a.stdout, b"", "{by}");
        },
    );
    fs::remove_dir_all(dir).expect("clean");
}
