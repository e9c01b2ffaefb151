//! `steadfast-host campaign`, small: flips strike, are counted once each, and two bodies notice those in memory that one does not.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use steadfast_inject::chacha::Seed;
use steadfast_inject::live::{self, Live};

use crate::{HOST, components, err, out};

fn campaign(name: &str, more: &[&str]) -> (Output, Vec<serde_json::Value>) {
    let file = components().join(format!("{name}.json"));
    let mut campaign = Command::new(HOST);
    campaign.args(["campaign", "--components"]);
    campaign
        .arg(components())
        .arg("--json")
        .arg(&file)
        .args(more);
    if !more.contains(&"--seed") {
        campaign.args(["--seed", "7"]);
    }
    let output = campaign.output().expect("it runs");
    assert!(output.status.success(), "{}", err(&output));
    let told = std::fs::read_to_string(&file).expect("written");
    (output, serde_json::from_str(&told).expect("a list"))
}

#[test]
fn flips_in_memory_are_noticed_by_two_bodies_and_mostly_not_by_one() {
    let args = ["--target", "memory", "--what", "locks", "--flips", "60"];
    let (output, groups) = campaign("memory", &args);
    assert_eq!(groups.len(), 5, "bare, single, dual, process, processes");
    let of = |mode: &str| {
        let found = groups.iter().find(|group| group["mode"] == mode);
        found.expect("a group of each mode")
    };
    for group in &groups {
        assert_eq!(group["flips"], 60, "{group}");
        assert_eq!(group["escaped"], 0, "{group}");
    }
    let differs = |mode: &str| {
        let causes = of(mode)["resets"].as_object().expect("causes").iter();
        causes
            .filter(|(cause, _)| cause.ends_with("differs") || cause.ends_with("differ"))
            .map(|(_, n)| n.as_u64().expect("a count"))
            .sum::<u64>()
    };
    // Each flip stays in memory until the comparison, unless a call writes over it first.
    for mode in ["dual", "processes"] {
        assert!(differs(mode) >= 50, "{}", of(mode));
        assert_eq!(of(mode)["wrong"], 0);
    }
    assert_eq!(differs("single") + differs("bare"), 0);
    assert!(
        out(&output).contains("lock memory dual: 60 flips"),
        "{}",
        out(&output)
    );
}

#[test]
fn flips_in_registers_strike_the_component_and_each_is_counted() {
    let args = ["--target", "registers", "--what", "files,keys,requests"];
    let few = ["--flips", "2", "--handles", "8"];
    let (_, groups) = campaign("registers", &[&args[..], &few].concat());
    assert_eq!(groups.len(), 15);
    for group in &groups {
        assert_eq!(group["flips"], 2, "{group}");
        let ended =
            group["escaped"].as_u64().expect("a count") + group["wrong"].as_u64().expect("");
        assert!(ended <= 2, "{group}");
        // A process that ended says nothing of its calls.
        let all_escaped = group["escaped"] == group["flips"];
        assert!(all_escaped || group["calls"].as_u64() > Some(0), "{group}");
        if group["mode"]
            .as_str()
            .is_some_and(|mode| mode.starts_with("process"))
        {
            assert_eq!(group["escaped"], 0, "{group}");
        }
    }
}

/// A line of the fault grammar names a component by its image: the injector's engine waits for a thread that stands in this code.
#[test]
fn a_line_that_names_an_image_strikes_in_that_component_and_nowhere_else() {
    let mut client = Command::new(HOST);
    client.args(["client", "--mode", "single", "--what", "files"]);
    client.args(["--handles", "8", "--components"]);
    client.arg(components()).stdin(Stdio::piped());
    let client = client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut client = client.expect("it starts");
    let mut said = BufReader::new(client.stdout.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let pid = client.id().cast_signed();
    let seed = Seed::parse("7").expect("a seed");
    let code = live::text_of(pid, "fs.cwasm").expect("its maps");
    let mut live = Live::new(pid, "fs.cwasm", seed).expect("mapped");
    let mut struck = 0;
    // The process may die of one of them: nothing isolates a component in it.
    while struck < 3
        && let Ok(Some(strike)) = live.strike(Duration::from_secs(20))
    {
        struck += 1;
        let line = &strike.line;
        assert!(line.starts_with("time=0ms in=fs.cwasm reg="), "{line}");
        let within = code.iter().any(|range| range.contains(&strike.rip));
        assert!(within, "{strike:?}");
        let bits = (strike.before ^ strike.after).count_ones();
        assert_eq!(bits, 1, "{strike:?}");
    }
    assert!(struck > 0, "no thread was met in the component");
    let other = Live::new(std::process::id().cast_signed(), "fs.cwasm", seed);
    let why = other.expect_err("nothing of that name").to_string();
    assert!(why.contains("no executable mapping of fs.cwasm"), "{why}");
    let _ = client.kill();
    client.wait().expect("it ends");
}

#[test]
fn flips_in_the_host_are_counted_as_its_own() {
    let args = ["--target", "host", "--what", "requests", "--mode", "single"];
    let (output, groups) = campaign("host", &[&args[..], &["--flips", "3"]].concat());
    assert_eq!(groups[0]["flips"], 3);
    let told = out(&output);
    assert!(told.contains("http host single: 3 flips"), "{told}");
}

#[test]
fn a_group_that_has_ended_is_not_struck_again_unless_the_flips_would_be_others() {
    let lines = components().join("groups.jsonl");
    let _ = std::fs::remove_file(&lines);
    let path = lines.display().to_string();
    let some = |seed: &'static str, mode: &'static str| {
        let args = ["--target", "memory", "--what", "locks", "--flips", "3"];
        let more = ["--lines", &path, "--mode", mode, "--seed", seed];
        let (_, groups) = campaign("lines", &[&args[..], &more].concat());
        groups
    };
    let count = || {
        let text = std::fs::read_to_string(&lines).expect("written");
        text.lines().filter(|line| line.starts_with('{')).count()
    };
    let first = some("3", "single");
    assert_eq!(count(), 1);
    // A command that was killed while it wrote leaves half a line, which counts for nothing.
    let text = std::fs::read_to_string(&lines).expect("written");
    std::fs::write(&lines, format!("{text}{{\"of\":{{")).expect("written");
    let both = some("3", "single,dual");
    assert_eq!(both[0], first[0], "seconds and all");
    assert_eq!(count(), 3, "the half line, and two whole ones");
    some("4", "single");
    assert_eq!(count(), 4);
}

#[test]
fn flips_in_what_the_host_remembers_are_refused_or_do_nothing() {
    let args = ["--target", "table", "--what", "locks,pages,threads"];
    let few = ["--mode", "single", "--flips", "60", "--handles", "8"];
    let (_, groups) = campaign("table", &[&args[..], &few].concat());
    assert_eq!(groups.len(), 3);
    for group in &groups {
        let found = (&group["flips"], &group["escaped"], &group["wrong"]);
        assert_eq!(found, (&60.into(), &0.into(), &0.into()), "{group}");
        let refused = group["resets"]["handle refused"].as_u64();
        assert!(refused > Some(10), "{group}");
    }
}

/// What comes of a flip may depend on an address, and on the clock where a call hangs. Where it strikes does not.
#[test]
fn a_flip_at_a_drawn_instruction_strikes_the_same_place_when_it_is_made_again() {
    let base = ["--target", "eight", "--what", "locks", "--handles", "1"];
    let base = [&base[..], &["--mode", "single"]].concat();
    let (_, groups) = campaign("exact", &[&base[..], &["--exact", "--flips", "3"]].concat());
    assert_eq!(groups[0]["flips"], 3, "{}", groups[0]);
    let place = |flip: &str| {
        let more = ["--seed", "7", "--replay", flip];
        let (output, _) = campaign("replay", &[&base[..], &more].concat());
        let said = out(&output);
        let line = said
            .lines()
            .find(|line| line.contains(&format!("flip {flip}: bit ")));
        line.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let first = place("0");
    assert_eq!(place("0"), first);
    assert_ne!(place("1"), first);
}

#[test]
fn exact_flips_where_nothing_can_be_stepped_are_refused() {
    for (mode, target) in [("process", "registers"), ("single", "memory")] {
        let mut campaign = Command::new(HOST);
        campaign
            .args(["campaign", "--components"])
            .arg(components());
        campaign.args(["--exact", "--what", "locks", "--flips", "1"]);
        let output = campaign.args(["--mode", mode, "--target", target]).output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(121));
        for needed in ["drawn instructions", target, mode, "fix:"] {
            assert!(err(&output).contains(needed), "{}", err(&output));
        }
    }
}
