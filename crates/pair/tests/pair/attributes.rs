//! Extended attributes of protected names: compared at the start, and what a site that comes back gets.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use steadfast_sys::attributes;

use crate::join::{Told, alone, flags};
use crate::sites::*;

/// An access list (acl(5), linux/posix_acl_xattr.h): its owner and the group read and write, and so does user 1234.
fn list_of_1234() -> Vec<u8> {
    let entries = [
        (1_u16, 6_u16, u32::MAX), // its owner
        (2, 6, 1234),             // a user by number
        (4, 4, u32::MAX),         // its group
        (16, 6, u32::MAX),        // the mask
        (32, 4, u32::MAX),        // all others
    ];
    let version = 2_u32.to_le_bytes().to_vec();
    entries.iter().fold(version, |mut all, (tag, may, id)| {
        all.extend(tag.to_le_bytes());
        all.extend(may.to_le_bytes());
        all.extend(id.to_le_bytes());
        all
    })
}

/// `cap_net_raw` in a file's effective set (`struct vfs_cap_data`, revision 2).
const CAPABILITY: &[u8] = &[
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

fn set(path: &Path, name: &CStr, value: &[u8]) {
    attributes::set(path, name, value).unwrap_or_else(|error| panic!("{path:?} {name:?}: {error}"));
}

/// Where a site has its files.
fn data(child: &Child) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root/mnt/data", child.id()))
}

/// All that some names have, a line each.
fn all_of(dir: &Path) -> Vec<String> {
    let lines = [".", "x.db", "x.bin", "sub", "sub/new"].map(|name| {
        format!(
            "{name}: {:?}",
            attributes::list(&dir.join(name)).expect("listed")
        )
    });
    lines.to_vec()
}

/// What an ordinary user may give, and, by root, what only root may.
fn give(dir: &Path) {
    set(&dir.join("x.db"), c"user.comment", b"new\0value");
    set(&dir.join("sub"), c"user.of", b"a directory");
    set(dir, c"user.of", b"the root");
    if is_root() {
        set(
            &dir.join("x.db"),
            c"system.posix_acl_access",
            &list_of_1234(),
        );
        set(
            &dir.join("sub"),
            c"system.posix_acl_default",
            &list_of_1234(),
        );
        set(&dir.join("x.db"), c"trusted.sum", b"1");
        set(&dir.join("x.bin"), c"security.capability", CAPABILITY);
    }
}

fn with_names(name: &str) -> PathBuf {
    let dir = with_table(name);
    fs::create_dir(dir.join("sub")).expect("a directory");
    fs::write(dir.join("x.bin"), "#!/bin/sh\n").expect("a file");
    set(&dir.join("x.db"), c"user.stale", b"old");
    dir
}

#[test]
fn a_site_that_joins_gets_attributes_and_access_lists() {
    let dir = with_names("joins-attributes");
    let (site, witness) = (sqlite_site(&dir), Witness::new("joins-attributes"));
    let said = witness.flags(2000);
    let (mut a, door) = alone(&site, &witness, &said);
    let of_a = data(&a.child);
    give(&of_a);
    attributes::remove(&of_a.join("x.db"), c"user.stale").expect("it is there");
    // The program makes a file in a directory that has its files inherit a list; no list of it is to be made up elsewhere.
    let made =
        "ATTACH 'sub/new' AS n; CREATE TABLE n.t(a); INSERT INTO n.t VALUES (1); SELECT 'made';";
    assert_eq!(a.ask(made), "made");
    let mut c = Told::start(
        &site,
        "join",
        &flags(&said, &["--peer", &door]),
        &witness.0,
        "c",
    );
    a.wait_for("the other site is back");
    c.wait_for("this site has joined");
    assert_eq!(all_of(&of_a), all_of(&data(&c.child)));
    let x = attributes::list(&data(&c.child).join("x.db")).expect("listed");
    assert!(
        x.contains(&(c"user.comment".to_owned(), b"new\0value".to_vec())),
        "{x:?}"
    );
    assert!(!x.iter().any(|(name, _)| name == c"user.stale"), "{x:?}");
    a.kill();
    assert_eq!(c.ask_after_loss("PRAGMA integrity_check;"), "ok");
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn attributes_that_differ_are_listed_at_the_start_and_brought_by_right() {
    let (dir, other) = (with_names("attributes-one"), with_names("attributes-other"));
    let copied = Command::new("cp")
        .arg("-a")
        .arg(dir.join("x.db"))
        .arg(&other)
        .status();
    assert!(copied.expect("cp is installed").success());
    let mut both = Both::start(&sqlite_site(&dir), &sqlite_site(&dir));
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    let known = crate::back::keep(&both.a, "attributes-known");
    both.end();
    give(&known.seed);
    attributes::remove(&known.seed.join("x.db"), c"user.stale").expect("it is there");
    let ends = Both::start(&known, &sqlite_site(&other)).end();
    assert_eq!(ends.codes(), [Some(121); 2], "{}", ends.said());
    let mut lines = vec![
        "/mnt/data/x.db: attribute user.comment: 0x6e65770076616c7565 on the primary, none on the secondary",
        "/mnt/data/x.db: attribute user.stale: none on the primary, 0x6f6c64 on the secondary",
        "/mnt/data/sub: attribute user.of: 0x",
        "/mnt/data: attribute user.of: 0x",
    ];
    if is_root() {
        lines.extend([
            "/mnt/data/x.db: attribute system.posix_acl_access: ",
            "/mnt/data/sub: attribute system.posix_acl_default: ",
            "/mnt/data/x.bin: attribute security.capability: ",
            "/mnt/data/x.db: attribute trusted.sum: 0x31 on the primary, none on the secondary",
        ]);
    }
    for line in lines {
        assert!(ends.said().contains(line), "{line}: {}", ends.said());
    }
    let address = format!("127.0.0.1:{}", free_port());
    let more = ["--right", "primary", "--scrub", "0"];
    let mut both = Both::start_with(&known, &sqlite_site(&other), &address, &address, &more);
    assert_eq!(
        both.ask("ATTACH 'sub/new' AS n; CREATE TABLE n.t(a); SELECT count(*) FROM t;"),
        "100"
    );
    assert_eq!(all_of(&data(&both.a)), all_of(&data(&both.b)));
    let has = attributes::list(&data(&both.b).join("x.db")).expect("listed");
    assert_eq!(
        has,
        attributes::list(&known.seed.join("x.db")).expect("listed")
    );
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    for dir in [&dir, &other, &known.seed.with_file_name("")] {
        fs::remove_dir_all(dir).expect("clean");
    }
}
