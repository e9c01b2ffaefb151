//! What root may and others may not: an ordinary user runs a pair, and is told by name what it goes without.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::sites::*;

/// A site that root prepares, and that somebody without any right runs.
fn as_nobody(seed: &std::path::Path, words: &[&str], program: &[&str]) -> Child {
    let script = "mount -t tmpfs none /mnt && mount -t tmpfs none /dev/shm && chmod 1777 /dev/shm && mkdir /mnt/data /mnt/ledger && \
         mount -t tmpfs none /mnt/data && mount -t tmpfs none /mnt/ledger && cp -a \"$1\"/. /mnt/data && \
         chown -R 65534:65534 /mnt && cd /mnt/data && shift && exec \"$@\"";
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--ipc"])
        .args(["--propagation", "private", "--", "sh", "-c", script, "sh"])
        .arg(seed)
        .args(["setpriv", "--reuid", "65534", "--regid", "65534"])
        .args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .arg(pair())
        .args(words)
        .args(["--ledger", "/mnt/ledger", "--data", "/mnt/data", "--"])
        .args(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare is installed")
}

const SQLITE: [&str; 3] = ["sqlite3", "-batch", "x.db"];

fn said(site: Child) -> (Option<i32>, String) {
    let output = site.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), said)
}

fn pair_of_nobody(seed: &std::path::Path, program: &[&str]) -> Both {
    let listen = format!("127.0.0.1:{}", free_port());
    let b = as_nobody(seed, &["secondary", "--listen", &listen], program);
    Both::with(as_nobody(seed, &["primary", "--peer", &listen], program), b)
}

#[test]
fn an_ordinary_user_is_told_what_root_would_have() {
    if !is_root() {
        return; // who gives rights away has to have them
    }
    let dir = with_table("rights");
    let (status, found) = said(as_nobody(&dir, &["check"], &SQLITE));
    assert_eq!(status, Some(0), "{found}");
    for lacks in ["without CAP_NET_ADMIN", "without CAP_SYS_NICE"] {
        assert_eq!(found.matches(lacks).count(), 1, "{lacks}: {found}");
    }
    let witness = Witness::new("rights");
    let all = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    fs::set_permissions(&witness.0, all).expect("its owner's");
    let place = format!("dir:{}", witness.0.display());
    let address = ["--address", "10.97.0.5/32@lo", "--witness", &place];
    for side in ["check", "primary", "secondary"] {
        let words = [&[side], &address[..]].concat();
        let (status, found) = said(as_nobody(&dir, &words, &SQLITE));
        assert_eq!(status, Some(121), "{side}: {found}");
        let line = "--address 10.97.0.5/32@lo can only be moved and announced with CAP_NET_ADMIN and CAP_NET_RAW, \
                    found: no CAP_NET_ADMIN, no CAP_NET_RAW";
        assert!(found.contains(line), "{side}: {found}");
        let fix = "fix:   start the site as root, or give it these";
        assert!(found.contains(fix), "{side}: {found}");
    }
    // Root is told of neither.
    let (status, found) = said(start(&sqlite_site(&dir), "check", &[]));
    assert_eq!(status, Some(0), "{found}");
    assert!(!found.contains("CAP_"), "{found}");
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn an_ordinary_user_has_a_page_repaired_on_either_site() {
    if !is_root() {
        return; // every other test is run by one then
    }
    let dir = with_table("rights-pair");
    let right = sqlite(&dir, ".sha3sum").trim().to_owned();
    let mut both = pair_of_nobody(&dir, &SQLITE);
    assert_eq!(both.ask(ASK), right);
    both.strike(&both.a, PLACE, 1);
    assert_eq!(both.ask(ASK), right);
    both.strike(&both.b, PLACE, 1);
    assert_eq!(both.ask(ASK), right);
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said().matches("disk of").count(), 4, "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

/// What nobody can read again is no page of zeros: no disk is blamed. Root reads it all (kinds.rs, `crowded`).
#[test]
fn a_write_to_a_part_of_a_page_that_nobody_may_read_stops_before_it_is_made() {
    if !is_root() {
        return; // in a namespace of his own an ordinary user may read what is his
    }
    let (dir, program) = crate::kinds::with_file("rights-blind");
    let program = program.display().to_string();
    let mut both = pair_of_nobody(&dir.join("data"), &[&program, "f"]);
    assert_eq!(both.ask("put blind"), "put blind done", "there was nothing");
    assert_eq!(both.ask("put blind"), "");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(121); 2], "{}", ends.said());
    let line =
        "a write to a part of a page that cannot be read (/mnt/data/f.blind: Permission denied";
    assert_eq!(ends.said().matches(line).count(), 2, "{}", ends.said());
    assert!(!ends.said().contains("ledger"), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}
