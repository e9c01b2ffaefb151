//! What strikes a program, and what sees it: comparators, the doctor, gdb, the clock.

use super::*;

#[test]
fn each_comparator_sees_what_it_is_for() {
    let place = Place::new();
    let check = place.path("check");
    let mut file = fs::File::create(&check).expect("a file");
    // Equal if there are as many lines, rejected if there is nothing.
    file.write_all(
        b"#!/bin/sh\n[ -s $2/stdout ] || exit 2\n[ $(wc -l < $1/stdout) = $(wc -l < $2/stdout) ] || exit 1\n",
    )
    .expect("written");
    drop(file);
    fs::set_permissions(&check, fs::Permissions::from_mode(0o755)).expect("its mode");
    let by_command = format!("command={}", check.display());
    let mut found = BTreeMap::new();
    for how in [
        "byte",
        "lines",
        "masked=[0-9a-f]+",
        "numeric=1",
        &by_command,
    ] {
        let out = how.split('=').next().unwrap_or(how).to_owned();
        place.well(&on(
            "run",
            &["--out", &out, "--runs", "40", "--compare", how],
        ));
        let runs = place.runs(&out);
        let wrong: Vec<u64> = runs
            .values()
            .filter(|run| run.outcome.outcome().to_string() == "sdc")
            .map(|run| run.id)
            .collect();
        found.insert(out, wrong);
    }
    // The time is another in each run, but always one line.
    let clock = [
        "run", "--quiet", "--out", "clock", "--runs", "2", "--seed", "7",
    ];
    let by = [
        "--fault",
        "wreg",
        "--compare",
        &by_command,
        "--",
        "date",
        "+%N",
    ];
    place.well(&[&clock[..], &by].concat());
    let wrong = |how: &str| found[how].clone();
    // It prints one line of digits: a line in another order is the same, without digits nothing is left.
    assert!(
        !wrong("byte").is_empty() && wrong("lines") == wrong("byte"),
        "{found:?}"
    );
    assert!(
        wrong("masked").is_empty() && wrong("command").is_empty(),
        "{found:?}"
    );
    for how in ["lines", "masked", "numeric", "command"] {
        let all = wrong(how).iter().all(|id| wrong("byte").contains(id));
        assert!(
            all,
            "{how} objects to what is equal byte for byte: {found:?}"
        );
    }
}

#[test]
fn a_doctor_comes_to_an_end_and_finds_the_injector_well() {
    let place = Place::new();
    let out = place.does(&["doctor", "--json"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let found: serde_json::Value = serde_json::from_str(&said).expect("one object");
    let answers = found["answers"].as_array().expect("answers");
    assert_eq!(answers.len(), 9, "{said}");
    for answer in answers {
        // Where there are no namespaces the sandbox is open, and is said to be.
        let boxed = answer["name"] == "faulty programs are boxed in";
        assert!(boxed || answer["ok"] == true, "{answer}");
    }
    let well = answers.iter().all(|answer| answer["ok"] == true);
    assert_eq!(out.status.code(), Some(i32::from(!well)), "{said}");
    place.clean();
}

#[test]
fn gdb_stands_just_before_the_fault() {
    let place = Place::new();
    if Command::new("gdb")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        place.well(&on("plan", &["--out", "plan", "--runs", "1"]));
        place.refused(&["replay", "plan", "0", "--gdb"], 121, "apt install gdb");
        return;
    }
    place.well(&on("run", &["--out", "runs", "--runs", "12"]));
    let runs = place.runs("runs");
    let plan = place.plan("runs");
    let planned = plan
        .iter()
        .filter(|p| p.n.is_some())
        .min_by_key(|p| p.n)
        .expect("an early one");
    let id = planned.id.to_string();
    let mut child = place
        .command(&["replay", "runs", &id, "--gdb"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let register = planned.register.as_deref().expect("a register");
    // The fault is in a register after the instruction: one step on there stands what it had before.
    let words = format!("p/x $rip\nstepi\np/x ${register}\nkill\nquit\n");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(words.as_bytes())
        .expect("taken");
    let out = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let value = |n: u32| {
        let mark = format!("${n} = 0x");
        said.lines()
            .find_map(|l| u64::from_str_radix(l.split_once(&mark)?.1.trim(), 16).ok())
    };
    let site = planned.site.as_ref().expect("a site");
    let offset = u64::from_str_radix(site.offset.trim_start_matches("0x"), 16).expect("an offset");
    assert_eq!(
        value(1).map(|rip| rip & 0xfff),
        Some(offset & 0xfff),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let before = runs[&planned.id].fired[0].before.as_deref().expect("fired");
    let before = u64::from_str_radix(before.trim_start_matches("0x"), 16).expect("a number");
    assert_eq!(value(2), Some(before), "{said}");
    place.clean();
}

#[test]
fn a_moment_of_time_strikes_a_program_that_waits_for_it() {
    let place = Place::new();
    // It waits in the kernel; the stack pointer is wrong when it comes back.
    let words = [
        "run",
        "--quiet",
        "--out",
        "timer",
        "--engine",
        "timer",
        "--runs",
        "2",
        "--fault",
        "time=50ms reg=rsp bit=46",
        "--",
        "sleep",
        "0.5",
    ];
    place.well(&words);
    let runs = place.runs("timer");
    assert!(
        runs.len() == 2 && runs.values().all(|run| run.hits == 1),
        "{runs:?}"
    );
    assert!(
        runs.values()
            .all(|run| run.outcome.outcome().to_string() != "not_fired")
    );
    let campaign = Dir::new(place.path("timer"))
        .campaign()
        .expect("a campaign");
    assert_eq!(
        campaign.population.counts.dynamic, 0,
        "moments are drawn from no instructions"
    );
    place.well(&["report", "timer"]);
}
