//! Errors of processor and memory in processes beside the first one, and in programs that a process has become: put right as the
//! first one's are. What they have read and written is neither read nor written again.

use std::fs;
use std::io::Read;
use std::process::Command;

use crate::processor::flipped;
use crate::sites::*;

/// Two children at a time, programs that children become, one that outlives its parent, and one that takes the first one's place.
const SCRIPT: &str = "counts() { i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i >>$1; done; }; counts f & counts g & wait; \
    md5sum f g; cat f g | sort -n | uniq -c | md5sum; x=$(md5sum <x.db); echo $x; (counts h; md5sum h >i) & wait; cat h i; \
    exec md5sum f x.db";

fn shell(dir: &std::path::Path, script: &str) -> Site {
    Site {
        command: ["/bin/sh", "-c", script].map(String::from).to_vec(),
        ..sqlite_site(dir)
    }
}

/// What the script says on a host that nothing happens to.
fn bare(dir: &std::path::Path, script: &str) -> String {
    let copy = seed(&format!(
        "bare-{}",
        dir.file_name().expect("named").display()
    ));
    let from = format!("{}/.", dir.display());
    let copied = Command::new("cp").arg("-a").arg(from).arg(&copy).status();
    assert!(copied.expect("cp").success());
    let mut own = Command::new("/bin/sh");
    let output = own.args(["-c", script]).current_dir(&copy).output();
    fs::remove_dir_all(copy).expect("clean");
    String::from_utf8_lossy(&output.expect("a shell").stdout).into_owned()
}

/// With these faults on either site the program says what it says without. What the sites say.
fn says(site: &Site, right: &str, [a, b]: [&str; 2]) -> String {
    let mut both = flipped(site, a, b, &[]);
    let mut said = String::new();
    both.from.read_to_string(&mut said).expect("it ends");
    let ends = both.end();
    let told = ends.said();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{a:?} {b:?}: {told}");
    assert_eq!(said, right, "{a:?} {b:?}: {told}");
    told
}

fn fault(replica: usize, process: u32, event: u32, what: &str) -> String {
    format!("replica={replica} process={process} event={event} {what} bit=5")
}

/// One line on each site for each of these sites, and none beside.
fn are_blamed(told: &str, sites: &[&str]) {
    for site in sites {
        let line = format!("processor or memory of {site} at event");
        let times = sites.iter().filter(|other| *other == site).count();
        assert_eq!(told.matches(&line).count(), 2 * times, "{told}");
    }
    assert_eq!(told.lines().count(), 2 * sites.len(), "{told}");
}

/// Each site's faults in a process of this rank, in turn.
fn on_one(n: usize, text: &str) -> [&str; 2] {
    let mut both = ["", ""];
    both[n % 2] = text;
    both
}

#[test]
fn wrong_results_of_children_and_of_programs_that_they_become_are_put_right() {
    let dir = with_table("child");
    let site = shell(&dir, SCRIPT);
    let right = bare(&dir, SCRIPT);
    let cases = [
        (1, 30, "reg=rbx"),
        (2, 80, "mem=[rsp+16]"),
        (3, 40, "reg=rbx"),
        (6, 10, "reg=r12"),
        (8, 70, "reg=rbx"),
        (9, 40, "reg=rsi"),
        (10, 60, "reg=rbp"),
    ];
    let cases: Vec<_> = cases.into_iter().enumerate().collect();
    side_by_side(&cases, |(n, (process, event, what))| {
        let text = fault(n % 2, *process, *event, what);
        let told = says(&site, &right, on_one(*n, &text));
        are_blamed(&told, &[["A", "B"][n % 2]]);
    });
    are_blamed(
        &says(&site, &right, [&fault(0, 90, 10, "reg=rbx"), ""]),
        &[],
    );
    fs::remove_dir_all(dir).expect("clean");
}

const KINDS: &str = r#"
perl -e 'for (1..20) { my $p = fork(); if (!$p) { my $s = 0; $s += $_ for 1..20000; print "c $s
"; exit 0 } waitpid $p, 0 } print "done
"'
tar cf t.tar --mtime=@0 x.db; tar tf t.tar; gzip -nc t.tar | gunzip | wc -c
for i in 1 2 3 4 5 6 7 8; do echo $i | sed s/1/x/ | tr x y >>out; done; md5sum out
find . -name x.db | xargs -n1 echo | awk '{ print NR, $0 }'
(sleep 0.2; echo a) & (sleep 0.1; echo b >>out) & wait
exec sh -c 'md5sum out x.db'
"#;

#[test]
fn processes_of_many_kinds_are_silent_without_a_fault() {
    let dir = with_table("child-silent");
    let site = shell(&dir, KINDS);
    let right = bare(&dir, KINDS);
    are_blamed(&says(&site, &right, ["", ""]), &[]);
    fs::remove_dir_all(dir).expect("clean");
}

/// A bit that no event shows, in memory that each child gets: a check before each fork finds it, or that of the child.
#[test]
fn memory_that_errs_before_a_fork_is_put_right_in_parent_and_child() {
    let dir = with_table("child-memory");
    let site = shell(&dir, SCRIPT);
    let right = bare(&dir, SCRIPT);
    let cases = [54, 57, 60, 63, 90, 93];
    let cases: Vec<_> = cases.into_iter().enumerate().collect();
    side_by_side(&cases, |(n, event)| {
        let text = fault(n % 2, 0, *event, "mem=[rsp-20000]");
        let told = says(&site, &right, on_one(*n, &text));
        are_blamed(&told, &[["A", "B"][n % 2]]);
    });
    fs::remove_dir_all(dir).expect("clean");
}

/// Each dispute waits for the one before, whichever site finds it.
#[test]
fn children_that_err_at_the_same_time_are_put_right_one_by_one() {
    let dir = with_table("child-several");
    let site = shell(&dir, SCRIPT);
    let right = bare(&dir, SCRIPT);
    let (a, b) = (fault(0, 1, 60, "reg=rbx"), fault(1, 2, 60, "reg=rbx"));
    let two = format!("{a};{}", fault(0, 2, 60, "reg=rbx"));
    let other = fault(1, 1, 60, "reg=rbx").replace("bit=5", "bit=6");
    let cases = [
        ([a.clone(), b], &["A", "B"][..]),
        ([two, String::new()], &["A", "A"]),
        ([a, other], &["A and of B"]),
    ];
    side_by_side(&cases, |([a, b], blamed)| {
        let told = says(&site, &right, [a, b]);
        are_blamed(&told, blamed);
    });
    fs::remove_dir_all(dir).expect("clean");
}

/// A program that has put itself into the background, or has become another one before it has made any process.
#[test]
fn what_outlives_the_first_process_and_what_takes_its_place_is_put_right() {
    let dir = with_table("child-outlives");
    let scripts = [
        "(i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i >>f; done; md5sum f) & exit 0",
        "exec sh -c 'i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i >>f; done; exec md5sum f x.db'",
    ];
    let cases: Vec<_> = [(0, 1), (1, 0)]
        .into_iter()
        .flat_map(|case| [(case, 0), (case, 1)])
        .collect();
    let right = scripts.map(|script| bare(&dir, script));
    side_by_side(&cases, |((script, process), replica)| {
        let (site, right) = (shell(&dir, scripts[*script]), &right[*script]);
        are_blamed(&says(&site, right, ["", ""]), &[]);
        let text = fault(*replica, *process, 150, "reg=rbx");
        let told = says(&site, right, on_one(*replica, &text));
        are_blamed(&told, &[["A", "B"][*replica]]);
    });
    fs::remove_dir_all(dir).expect("clean");
}

/// A process that shares memory has no snapshot, and one without snapshots has none either.
#[test]
fn without_a_snapshot_a_child_that_errs_stops_both_before_anything_wrong_leaves() {
    let dir = with_table("child-stops");
    let shares = built(&dir, "shares").display().to_string();
    let cases = [
        (vec![shares, "100".into()], &[][..]),
        (
            ["/bin/sh", "-c", "cat x.db | md5sum"]
                .map(String::from)
                .to_vec(),
            &["--snapshots", "off"][..],
        ),
    ];
    side_by_side(&cases, |(command, more)| {
        let site = Site {
            command: command.clone(),
            ..sqlite_site(&dir)
        };
        let mut both = flipped(&site, "", &fault(1, 1, 20, "reg=rbx"), more);
        let mut said = String::new();
        both.from.read_to_string(&mut said).expect("it ends");
        let ends = both.end();
        let told = ends.said();
        assert_eq!(ends.codes(), [Some(122), Some(122)], "{told}");
        assert_eq!(said, "", "{told}");
        assert!(told.contains("has no snapshot to run again from"), "{told}");
    });
    fs::remove_dir_all(dir).expect("clean");
}
