//! Replicas that are slow, or that stand still.

use super::serve::Hosts;
use super::*;

fn signal(pid: u32, signal: &str) {
    let done = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(done.unwrap().success());
}

/// Stopped, and so as slow as can be; nothing of it is lost.
#[test]
fn a_replica_that_is_held_up_for_seconds_catches_up_and_nobody_calls_it_wrong() {
    let mut hosts = Hosts::new("slow", &[]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    let leader = usize::try_from(hosts.status(0)["leader"].as_u64().unwrap()).unwrap();
    // A follower first, then the leader.
    for (round, slow) in [(leader + 1) % 3, leader].into_iter().enumerate() {
        let asked = (slow + 1) % 3;
        let mut line = hosts.connect(asked);
        signal(hosts.pid(slow), "-STOP");
        let [least, most] = [Duration::from_secs(2), PATIENCE].map(|time| Instant::now() + time);
        let mut last = String::new();
        let mut count = 0;
        while Instant::now() < least || (count <= 20 && Instant::now() < most) {
            last = format!("{round}:{count}");
            let said = line.ask(&format!("set a 0 0 {}\r\n{last}\r\n", last.len()));
            // Until there is a new leader nobody orders anything.
            if said == "STORED\r\n" {
                count += 1;
            }
        }
        assert!(
            count > 20,
            "{count} sets beside a replica that stands still"
        );
        let right = line.get("a");
        signal(hosts.pid(slow), "-CONT");
        hosts.wait_ready(slow);
        assert_eq!(
            hosts.connect(slow).get("a"),
            right,
            "last asked for: {last}"
        );
    }
    for replica in 0..3 {
        let counts = &hosts.status(replica)["counts"];
        assert_eq!(counts["mismatches"], 0, "replica {replica}: {counts}");
    }
    assert!(!hosts.heard("\"stalled\"") && !hosts.heard("\"replace\""));
}

#[test]
fn a_replica_that_waits_for_what_never_comes_is_ended_by_its_watchdog() {
    let group = Group::start(&["--watchdog", "1"]);
    let mut line = group.connect(0);
    line.set("a", "value");
    // The recovery of the second strike is held under a number that no recovery ends.
    for clauses in ["queue=held bit=40", "object=item:a byte=0 bit=0"] {
        let said = group.strike(&format!("replica=1 {clauses}"));
        assert!(said.status.success(), "{}", text(&said.stderr));
    }
    assert_eq!(line.get("a"), "value");
    // The others go on, with what it does not execute.
    for _ in 0..20 {
        line.set("b", "more");
        assert_eq!(line.get("a"), "value");
    }
    let stalled = group.event("stalled");
    assert_eq!(stalled["replica"], 1);
    assert_eq!(stalled["waits_for"][0], "item:a");
    assert_eq!(group.event("replaced")["replica"], 1);
    assert_eq!(group.connect(1).get("a"), "value");
}

#[test]
fn a_group_of_which_nobody_goes_on_is_not_ended_by_its_watchdogs() {
    let mut hosts = Hosts::new("waits", &["--watchdog", "1"]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    hosts.connect(0).set("a", "value");
    for stopped in [1, 2] {
        signal(hosts.pid(stopped), "-STOP");
    }
    std::thread::sleep(Duration::from_secs(3));
    for stopped in [1, 2] {
        signal(hosts.pid(stopped), "-CONT");
    }
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    assert_eq!(hosts.connect(0).get("a"), "value");
    assert!(!hosts.heard("\"stalled\""));
}

#[test]
fn time_in_which_nobody_could_go_on_does_not_count_for_the_watchdog() {
    let mut hosts = Hosts::new("counts", &["--watchdog", "3", "--scrub", "0"]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    let mut line = hosts.connect(0);
    line.set("a", "value");
    let mut struck = hosts.connect(1);
    assert_eq!(struck.get("a"), "value");
    for clauses in ["queue=held bit=40", "object=item:a byte=0 bit=0"] {
        let strike = format!("sf strike replica=1 {clauses}\r\n");
        assert_eq!(struck.ask(&strike), "STRUCK\r\n");
    }
    assert_eq!(line.get("a"), "value");
    hosts.wait("the recovery ends", || hosts.heard("\"repaired\""));
    // Behind the recovery, and so held back for ever at the struck one.
    assert_eq!(line.get("a"), "value");
    // With the third one still no majority executes anything, for longer than the limit.
    signal(hosts.pid(2), "-STOP");
    std::thread::sleep(Duration::from_secs(5));
    assert!(!hosts.heard("\"stalled\""));
    signal(hosts.pid(2), "-CONT");
    hosts.wait("the hung replica ends", || {
        let _ = line.ask("set c 0 0 1\r\nx\r\n");
        hosts.heard("\"stalled\"")
    });
    assert!(hosts.heard("\"event\":\"waits\""));
    assert_eq!(hosts.wait_end(1).code(), Some(122));
}

/// Stops one thread of a process, and hears of its end, as who traces it has to before its parent does.
const FREEZE: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
thread = int(sys.argv[1])
for what in (SEIZE, INTERRUPT):
    if libc.ptrace(what, thread, 0, 0) != 0:
        sys.exit(ctypes.get_errno())
os.waitpid(thread, WALL)
print('frozen', flush=True)
while os.WIFSTOPPED(os.waitpid(thread, WALL)[1]):
    pass
";

#[test]
fn a_replica_whose_thread_stands_still_is_ended_by_the_one_beside_it() {
    let group = Group::start(&["--watchdog", "1"]);
    group.connect(0).set("a", "value");
    let victim = group.pids[1].to_string();
    let mut freezer = Command::new("python3")
        .args(["-c", FREEZE, &victim])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = std::io::BufReader::new(freezer.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut said).unwrap();
    assert_eq!(said, "frozen\n");
    assert_eq!(group.event("hung")["replica"], 1);
    assert_eq!(group.event("replaced")["replica"], 1);
    assert!(freezer.wait().unwrap().success());
    assert_eq!(group.connect(1).get("a"), "value");
}

#[test]
fn what_nobody_reads_holds_nothing_up() {
    let mut child = kv()
        .args(["--local", "3", "--port", "0", "--allow-strikes"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut ready).unwrap();
    let clients: Vec<SocketAddr> = ready
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [mut line, mut struck] = [0, 1].map(|replica| Line::to(clients[replica]));
    // A pipe holds 64 KiB, and a repair says more than 150 bytes.
    for round in 0..600 {
        let value = round.to_string();
        line.set("a", &value);
        // Two of three have answered, and the one that is struck may be the third.
        assert_eq!(struck.get("a"), value);
        let said = struck.ask("sf strike replica=1 object=item:a byte=0 bit=0\r\n");
        assert_eq!(said, "STRUCK\r\n");
        assert_eq!(struck.get("a"), value);
    }
    child.kill().unwrap();
    let mut said = String::new();
    let _ = std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said);
    child.wait().unwrap();
    assert!(said.len() > 1 << 15, "{} bytes were said", said.len());
}

#[test]
fn an_error_to_a_request_without_a_reply_ends_the_connection() {
    let mut hosts = Hosts::new("silent", &[]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    let mut line = hosts.connect(0);
    line.set("a", "value");
    for stopped in [1, 2] {
        signal(hosts.pid(stopped), "-STOP");
    }
    // Its error would be taken for the reply to what is asked next.
    let silent = b"set a 0 0 1 noreply\r\nx\r\n";
    line.0.get_mut().write_all(silent).unwrap();
    let mut said = String::new();
    line.0.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("SERVER_ERROR "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for stopped in [1, 2] {
        signal(hosts.pid(stopped), "-CONT");
    }
}
