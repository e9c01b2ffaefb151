use std::collections::BTreeSet;

use super::*;
use crate::inputs::chess::drop_clock;

#[test]
fn the_list_is_the_one_that_was_announced() {
    let names: BTreeSet<_> = ALL.iter().map(|workload| workload.name).collect();
    let announced = [
        "astar",
        "bzip2",
        "cc1",
        "gnugo",
        "hmmer2",
        "libquantum",
        "mcf",
        "ns2",
        "perl",
        "sjeng",
        "x264",
        "xalan",
    ];
    assert_eq!(names, BTreeSet::from(announced));
}

#[test]
fn inputs_made_twice_are_the_same_bytes() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    // hmmer2 needs its own package to make its model; every other generator is pure.
    for workload in ALL.iter().filter(|workload| workload.name != "hmmer2") {
        let [first, second] = dirs.each_ref().map(|dir| {
            let store = Store::at(dir.path().into());
            store.generate(workload, Size::Small).unwrap();
            std::fs::read_to_string(store.inputs(workload, Size::Small).join("stamp")).unwrap()
        });
        assert_eq!(first, second, "{}", workload.name);
    }
}

#[test]
fn inputs_that_are_there_are_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path().into());
    let workload = find("gnugo").unwrap();
    assert_eq!(
        store.generate(workload, Size::Small).unwrap(),
        store::Made::Now
    );
    assert_eq!(
        store.generate(workload, Size::Small).unwrap(),
        store::Made::Already
    );
}

#[test]
fn missing_inputs_are_refused_with_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path().into());
    let error = store
        .invocation(find("bzip2").unwrap(), Size::Small)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("workloads setup --size small bzip2"),
        "{error}"
    );
}

#[test]
fn only_clock_readings_are_dropped_from_sjeng() {
    let run = |depth: &str, time: &str, nps: &str| {
        let thoughts = format!("{depth}      65    {time}   127411  Nxc6 <bxc6>\n");
        format!("{thoughts}Used time : {time}\nNPS: {nps}\nNodes: 127411 (1%)\n")
    };
    for depth in [" 9", "10"] {
        let (one, other) = (run(depth, "14", "899598"), run(depth, "  9", "1164985"));
        assert_eq!(drop_clock(one.as_bytes()), drop_clock(other.as_bytes()));
        let different = one.replace("127411  N", "127412  N");
        assert_ne!(drop_clock(one.as_bytes()), drop_clock(different.as_bytes()));
    }
    assert_eq!(drop_clock(b"d4c6\n 1 2\n"), b"d4c6\n 1 2\n");
}

#[test]
fn a_shell_line_survives_spaces_and_quotes() {
    assert_eq!(quote("plain-1.0/x"), "plain-1.0/x");
    assert_eq!(quote("it's here"), r"'it'\''s here'");
    assert_eq!(quote(""), "''");
}
