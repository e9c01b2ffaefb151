//! Programs of several processes: the same as bare, with a wrong page, a killed process, a lost site; and nothing is left behind.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::sites::*;

fn shell(dir: &Path, script: &str) -> Site {
    Site {
        command: ["/bin/sh", "-c", script].map(String::from).to_vec(),
        ..sqlite_site(dir)
    }
}

/// What the script says without a pair, in a copy of the data.
fn bare(site: &Site) -> (Option<i32>, String) {
    let dir = seed(&format!(
        "bare-{}",
        site.seed.file_name().expect("named").display()
    ));
    let copied = Command::new("cp")
        .arg("-a")
        .arg(format!("{}/.", site.seed.display()))
        .arg(&dir)
        .status()
        .expect("cp");
    assert!(copied.success());
    let output = Command::new(&site.command[0])
        .args(&site.command[1..])
        .current_dir(&dir)
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    fs::remove_dir_all(dir).expect("clean");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), said)
}

/// Processes of this site's program: its launcher's children and all below, without the launcher's helpers.
pub(crate) fn program(launcher: &Child) -> Vec<u32> {
    fn below(pid: u32, into: &mut Vec<u32>) {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            let child = child.parse().expect("a number");
            into.push(child);
            below(child, into);
        }
    }
    let mut all = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", launcher.id()))
        .into_iter()
        .flatten()
        .flatten()
    {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            let child = child.parse().expect("a number");
            all.push(child);
            below(child, &mut all);
        }
    }
    let exe = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = exe(launcher.id());
    all.retain(|pid| own.is_none() || exe(*pid) != own);
    all
}

/// Whether a process is one that the program knows: its snapshots end without a signal.
pub(crate) fn is_known(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    fields.split(' ').nth(35) == Some("17")
}

fn named(pids: &[u32], name: &str) -> Option<u32> {
    let head = format!("({name}) ");
    let is = |pid: &&u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(&head) && !stat.contains(") Z ") && is_known(**pid)
    };
    pids.iter().find(is).copied()
}

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32) {
    let killed = Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .expect("kill");
    assert!(killed.success());
}

const PIPES: &str = "for i in 3 1 2; do echo $i; done | sort | tee f | wc -l; (echo child >>f; exit 3); echo $?; \
    head -c 300000 /dev/zero | tr '\\0' x | tee g | md5sum; md5sum f g; x=$(ls | wc -l); echo $x; (cat f; cat f) | tail -2; \
    (sleep 0.1; echo late >>f) & wait; cat f; { sh -c 'kill -9 $$'; echo $?; } 2>/dev/null; exec md5sum f x.db";

#[test]
fn pipelines_programs_and_files_of_children_are_as_without_a_pair() {
    let dir = with_table("tree");
    let site = shell(&dir, PIPES);
    let right = bare(&site);
    let ends = Both::start(&site, &site).end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    assert_eq!(
        String::from_utf8_lossy(&ends.a.stdout),
        right.1,
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_page_that_a_child_reads_wrong_is_repaired_on_either_site() {
    let dir = with_table("tree-disk");
    let site = shell(&dir, "while read q; do cat x.db | md5sum; done");
    let right = bare(&shell(&dir, "cat x.db | md5sum")).1;
    for struck in ['A', 'B'] {
        let mut both = Both::start(&site, &site);
        assert_eq!(both.ask("?"), right.trim());
        both.strike(if struck == 'A' { &both.a } else { &both.b }, PLACE, 1);
        assert_eq!(both.ask("?"), right.trim());
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        let line = format!("disk of {struck}, x.db page 8");
        assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

/// On the primary it is the program's to hear of; on the secondary nobody would know what it was for.
#[test]
fn a_killed_process_is_its_parents_to_hear_of_and_stops_both_on_the_secondary() {
    let dir = with_table("tree-kill");
    let site = shell(&dir, "while read q; do sleep 1000; echo $?; done");
    let mut both = Both::start(&site, &site);
    writeln!(both.to.as_ref().expect("open"), "?").expect("it reads");
    let sleeps = |site: &Child, not: u32| {
        let pid = until(|| {
            let all: Vec<u32> = program(site)
                .into_iter()
                .filter(|pid| *pid != not)
                .collect();
            named(&all, "sleep")
        });
        // It has its name before it is that program on both sites.
        std::thread::sleep(Duration::from_millis(500));
        pid
    };
    let first = sleeps(&both.b, 0);
    kill(sleeps(&both.a, 0));
    let mut line = String::new();
    both.from.read_line(&mut line).expect("it answers");
    assert_eq!(line, "137\n");
    writeln!(both.to.as_ref().expect("open"), "?").expect("it reads");
    kill(sleeps(&both.b, first));
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(122), Some(122)], "{}", ends.said());
    assert!(
        ends.said().contains("has ended on B alone"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

/// The program knows its processes by the numbers of a host that is lost: they are not those of the other host's.
#[test]
fn processes_signal_each_other_by_their_numbers_when_the_primary_is_lost() {
    let dir = with_table("tree-signals");
    let script = "sleep 1000 & s=$!; (while read q; do kill -0 $s && echo lives; done); kill $s; wait $s; echo $?";
    let site = shell(&dir, script);
    let witness = Witness::new("tree-signals");
    let mut both = witnessed(&site, &witness);
    assert_eq!(both.ask("?"), "lives");
    both.a.kill().expect("a child");
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    for _ in 0..3 {
        assert_eq!(ask_secondary(&mut both.b, &mut from, "?"), "lives");
    }
    drop(both.b.stdin.take());
    let mut said = String::new();
    from.read_to_string(&mut said).expect("it ends");
    let ends = both.end();
    // Behind the primary's last line, if it was said again.
    assert_eq!(said.lines().last(), Some("143"), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

const LONG: &str = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i | cat >>f; sort -n f | tail -1; sleep 0.02; done; md5sum f";

/// Lines that a pipeline says again or not at all, at the moment of the change.
#[test]
fn a_lost_site_leaves_the_other_one_with_all_processes() {
    let dir = with_table("tree-lost");
    let site = shell(&dir, LONG);
    let right = bare(&site).1;
    let last = right.lines().last().expect("it ends");
    side_by_side(&[('B', 100), ('A', 100), ('A', 417)], |&(lost, pause)| {
        let witness = Witness::new(&format!("tree-{lost}-{pause}"));
        let mut both = witnessed(&site, &witness);
        let mut line = String::new();
        both.from.read_line(&mut line).expect("it begins");
        assert_eq!(line, "1\n");
        std::thread::sleep(Duration::from_millis(pause));
        let mut said = String::new();
        if lost == 'B' {
            both.b.kill().expect("a child");
            both.from.read_to_string(&mut said).expect("it goes on");
            assert_eq!(line + &said, right, "not a line is lost");
        } else {
            both.a.kill().expect("a child");
            let from = both.b.stdout.as_mut().expect("piped");
            BufReader::new(from)
                .read_to_string(&mut said)
                .expect("it goes on");
            assert_eq!(said.lines().last(), Some(last), "{pause}: {said}");
        }
        let ends = both.end();
        let survivor = if lost == 'A' { &ends.b } else { &ends.a };
        assert_eq!(survivor.status.code(), Some(0), "{}", ends.said());
    });
    fs::remove_dir_all(dir).expect("clean");
}

/// Most of the time a process is on its way: its log may end before its first event is done.
#[test]
fn a_process_that_has_just_begun_goes_on_when_the_primary_is_lost() {
    let dir = with_table("tree-begins");
    let site = shell(
        &dir,
        "echo go; i=0; while [ $i -lt 25 ]; do i=$((i+1)); (:); done; echo end",
    );
    side_by_side(&[20, 140, 260, 380, 500], |&pause| {
        let witness = Witness::new(&format!("tree-begins-{pause}"));
        let mut both = witnessed(&site, &witness);
        let mut line = String::new();
        both.from.read_line(&mut line).expect("it begins");
        std::thread::sleep(Duration::from_millis(pause));
        both.a.kill().expect("a child");
        let mut said = String::new();
        let from = both.b.stdout.as_mut().expect("piped");
        from.read_to_string(&mut said).expect("it goes on");
        let ends = both.end();
        assert_eq!(ends.b.status.code(), Some(0), "{pause}: {}", ends.said());
        // Where the machine is fast, the primary has said it.
        let all = String::from_utf8_lossy(&ends.a.stdout).into_owned() + &said;
        assert!(all.ends_with("end\n"), "{pause}: {all}");
    });
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn nothing_of_a_tree_outlives_a_launcher_that_is_killed() {
    let dir = with_table("tree-left");
    let site = shell(&dir, "(sleep 1000 | cat) & sleep 1000; echo never");
    let mut both = Both::start(&site, &site);
    let all: Vec<u32> = [&both.a, &both.b]
        .iter()
        .flat_map(|launcher| {
            until(|| {
                let all = program(launcher);
                (named(&all, "cat").is_some() && named(&all, "sleep").is_some()).then_some(all)
            })
        })
        .collect();
    assert!(all.len() >= 8, "{all:?}");
    both.a.kill().expect("a child");
    both.b.kill().expect("a child");
    both.wait();
    let ended = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .map_or(true, |stat| stat.contains(") Z ") || stat.contains(") X "))
    };
    until(|| all.iter().all(ended).then_some(()));
    fs::remove_dir_all(dir).expect("clean");
}

/// Who stores when is a function of the log: the sum depends on the order.
#[test]
fn processes_that_share_memory_store_in_one_order_on_both_sites() {
    let dir = seed("tree-shared");
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let program = built(&dir, "shares");
    let site = Site {
        command: vec![program.display().to_string()],
        ..sqlite_site(&data)
    };
    let ends = Both::start(&site, &site).end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    assert_eq!(String::from_utf8_lossy(&ends.a.stdout), "2100 turns\n");
    side_by_side(&['A', 'B'], |&lost| {
        let witness = Witness::new(&format!("tree-shared-{lost}"));
        let mut both = witnessed(&site, &witness);
        // Each takes orders from its start on.
        let runs = |site: &Child| {
            let orders = format!("/proc/{}/root/mnt/ledger/control", site.id());
            Path::new(&orders).exists()
        };
        until(|| (runs(&both.a) && runs(&both.b)).then_some(()));
        std::thread::sleep(Duration::from_millis(600));
        let mut said = String::new();
        if lost == 'A' {
            both.a.kill().expect("a child");
            let from = both.b.stdout.as_mut().expect("piped");
            from.read_to_string(&mut said).expect("it goes on");
        } else {
            both.b.kill().expect("a child");
            both.from.read_to_string(&mut said).expect("it goes on");
        }
        let ends = both.end();
        assert_eq!(said, "2100 turns\n", "{}", ends.said());
    });
    fs::remove_dir_all(dir).expect("clean");
}

/// It has events of the log left, and will never do them.
#[test]
fn a_program_that_stands_still_while_it_catches_up_is_not_waited_for_without_end() {
    let dir = with_table("tree-stands");
    let site = shell(&dir, "echo go; while :; do [ -e x.db ]; done");
    let witness = Witness::new("tree-stands");
    let address = format!("127.0.0.1:{}", free_port());
    let flags = witness.flags(5000);
    let flags = [
        &flags.each_ref().map(String::as_str)[..],
        &["--spins-after", "2"],
    ]
    .concat();
    let mut both = Both::start_with(&site, &site, &address, &address, &flags);
    let mut line = String::new();
    both.from.read_line(&mut line).expect("it begins");
    let pid = until(|| named(&program(&both.b), "sh"));
    steadfast_sys::child::kill(pid.cast_signed(), libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(300));
    both.a.kill().expect("a child");
    let ends = both.end();
    assert_eq!(ends.b.status.code(), Some(122), "{}", ends.said());
    assert!(
        ends.said().contains("has done nothing for 2 s"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

fn hands(name: &str, more: &[&str]) -> (std::path::PathBuf, Site) {
    let dir = seed(name);
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    fs::write(data.join("f"), "handed").expect("a file");
    let mut command = vec![built(&dir, "hands").display().to_string()];
    command.extend(more.iter().map(ToString::to_string));
    let site = Site {
        command,
        ..sqlite_site(&data)
    };
    (dir, site)
}

/// A pair of sockets, a counter, and a pipe that has come by a message: the survivor's hold what the lost site's held.
#[test]
fn what_processes_hand_each_other_is_there_when_a_site_is_lost() {
    let (dir, site) = hands("tree-hands", &["800"]);
    let right = bare(&site).1;
    side_by_side(
        &[('B', 50), ('A', 0), ('A', 130), ('A', 310)],
        |&(lost, pause)| {
            let witness = Witness::new(&format!("tree-hands-{lost}-{pause}"));
            let mut both = witnessed(&site, &witness);
            let mut line = String::new();
            both.from.read_line(&mut line).expect("it begins");
            std::thread::sleep(Duration::from_millis(pause));
            let mut said = String::new();
            if lost == 'B' {
                both.b.kill().expect("a child");
                both.from.read_to_string(&mut said).expect("it goes on");
            } else {
                both.a.kill().expect("a child");
                let from = both.b.stdout.as_mut().expect("piped");
                from.read_to_string(&mut said).expect("it goes on");
            }
            let ends = both.end();
            let last = |said: &str| said.lines().last().map(str::to_owned);
            assert_eq!(last(&said), last(&right), "{lost} {pause}: {}", ends.said());
        },
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_file_that_comes_by_a_message_is_refused_by_name() {
    let (dir, site) = hands("tree-handed", &["1", "f"]);
    let ends = Both::start(&site, &site).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    assert!(ends.said().contains("SCM_RIGHTS"), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

/// A process with a session of its own, as PostgreSQL's have, is in no group of the site's.
const APART: &str = "setsid sleep 1000 & while read q; do echo $q; done";

#[test]
fn what_ends_a_site_s_process_group_leaves_none_of_its_program() {
    let dir = with_table("tree-group");
    let site = shell(&dir, APART);
    side_by_side(&["TERM", "KILL"], |signal| {
        let address = format!("127.0.0.1:{}", free_port());
        let own_group = |command: &mut Command| {
            std::os::unix::process::CommandExt::process_group(command, 0);
        };
        let b = start_as(&site, "secondary", &["--listen", &address], own_group);
        let a = start_as(&site, "primary", &["--peer", &address], own_group);
        let mut both = Both::with(a, b);
        assert_eq!(both.ask("begun"), "begun");
        let of = |child: &Child| {
            until(|| {
                let all = program(child);
                // It has its name while the launcher still traces it.
                let sleep = named(&all, "sleep")?;
                let about = fs::read_to_string(format!("/proc/{sleep}/status")).ok()?;
                about.contains("TracerPid:\t0").then_some(all)
            })
        };
        let all = [of(&both.a), of(&both.b)].concat();
        let groups = [&both.a, &both.b].map(|child| format!("-{}", child.id()));
        let mut kill = Command::new("kill");
        let killed = kill.args(["-s", signal, "--"]).args(&groups).status();
        assert!(killed.expect("kill").success());
        let has_ended = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        until(|| all.iter().all(has_ended).then_some(()));
        both.wait();
    });
    fs::remove_dir_all(dir).expect("clean");
}
