//! The manifest for Kubernetes: with the capabilities that it adds, and no other, a site has what it needs.

use std::fs;
use std::process::Command;

use crate::sites::*;

const MANIFEST: &str = include_str!("../../kubernetes/pair.yaml");

/// What each container of the manifest adds, as setpriv(1) has it.
fn added() -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut lines = MANIFEST
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    while let Some(line) = lines.next() {
        let Some(rest) = line.trim().strip_prefix("add:") else {
            continue;
        };
        let in_line = rest.trim().trim_matches(['[', ']']);
        let names: Vec<String> = if in_line.is_empty() {
            lines
                .by_ref()
                .map_while(|line| line.trim().strip_prefix("- "))
                .map(|name| name.trim().to_owned())
                .collect()
        } else {
            in_line.split(", ").map(str::to_owned).collect()
        };
        all.push(names.iter().map(|name| name.to_lowercase()).collect());
    }
    all
}

/// `pair check` with an address and held acknowledgements, which are tried out, by somebody who has these capabilities alone.
fn checked(with: &[String], more: &[&str]) -> (Option<i32>, String) {
    let dir = with_table("kubernetes");
    let witness = Witness::new("kubernetes");
    let only: String = with.iter().fold("-all".into(), |all, one| all + ",+" + one);
    let script = "mount -t tmpfs none /mnt && mkdir /mnt/data /mnt/ledger && mount -t tmpfs none /mnt/data && \
                  mount -t tmpfs none /mnt/ledger && cp -a \"$1\"/. /mnt/data && cd /mnt/data && ip link set lo up && shift && exec \"$@\"";
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "--propagation",
            "private",
            "--",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .arg(&dir)
        .args([
            "setpriv",
            "--no-new-privs",
            "--bounding-set",
            &only,
            "--inh-caps",
            &only,
            pair(),
            "check",
        ])
        .args([
            "--ledger",
            "/mnt/ledger",
            "--data",
            "/mnt/data",
            "--address",
            "10.97.0.5/32@lo",
        ])
        .args(["--witness", &format!("dir:{}", witness.0.display())])
        .args(more)
        .args(["--", "sqlite3", "x.db"])
        .output()
        .expect("unshare is installed");
    fs::remove_dir_all(dir).expect("clean");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), said)
}

#[test]
fn the_capabilities_of_the_manifest_are_those_that_a_site_needs() {
    if !is_root() {
        return; // who gives capabilities away has to have them
    }
    let added = added();
    assert_eq!(added.len(), 2, "a container for each site");
    assert_eq!(added[0], added[1]);
    assert!(added[0].len() > 5, "{added:?}");
    let (status, said) = checked(&added[0], &[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        !said.contains("is lost with the primary"),
        "it is held: {said}"
    );
    for needed in ["net_admin", "net_raw", "bpf", "perfmon"] {
        let fewer: Vec<String> = added[0]
            .iter()
            .filter(|one| *one != needed)
            .cloned()
            .collect();
        let (status, said) = checked(&fewer, &[]);
        assert_eq!(status, Some(121), "without {needed}: {said}");
        if needed != "bpf" {
            continue;
        }
        // Nothing holds acknowledgements back then: what that costs is told, and it has to be chosen.
        assert!(
            said.contains("--hold-acks off on both sites: bytes"),
            "{said}"
        );
        let (status, said) = checked(&fewer, &["--hold-acks", "off"]);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("is lost with the primary"), "{said}");
    }
    let (ptraces, not) = ("sys_ptrace".to_owned(), "--tracking faults lists no pages");
    for (with, lacks) in [(false, true), (true, false)] {
        let has: Vec<String> = added[0]
            .iter()
            .filter(|one| **one != ptraces)
            .chain(with.then_some(&ptraces))
            .cloned()
            .collect();
        let (status, said) = checked(&has, &["--tracking", "faults"]);
        assert_eq!(status, Some(0), "{said}");
        assert_eq!(said.contains(not), lacks, "{said}");
    }
}
