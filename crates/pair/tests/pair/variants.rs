//! The paper's variants as flags: each repairs, or stops before anything wrong leaves.

use std::fs;
use std::path::Path;

use crate::processor::{QUESTION, ask_until_mended, flipped, register};
use crate::sites::*;

/// Of memory that nobody reads.
const HIDDEN: &str = "replica=0 event=80 mem=[rsp-20000] bit=3";

fn pair_of(site: &Site, flags: &[&str]) -> Both {
    let address = format!("127.0.0.1:{}", free_port());
    Both::start_with(site, site, &address, &address, flags)
}

/// A page of each side's disk is wrong, one after the other.
fn repairs_both(dir: &Path, flags: &[&str]) {
    let site = sqlite_site(dir);
    let mut both = pair_of(&site, flags);
    let right = both.ask(ASK);
    assert_eq!(right, sqlite(dir, ".sha3sum").trim());
    both.strike(&both.b, PLACE, 1);
    assert_eq!(both.ask(ASK), right, "{flags:?}");
    both.strike(&both.a, PLACE, 2);
    assert_eq!(both.ask(ASK), right, "{flags:?}");
    assert_eq!(both.ask(CHANGE), "200");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    for struck in ["disk of A, x.db page 8", "disk of B, x.db page 8"] {
        assert_eq!(ends.said().matches(struck).count(), 2, "{}", ends.said());
    }
}

#[test]
fn pages_are_repaired_by_each_digest() {
    // XXH3 is that of all other tests.
    for digest in ["md5", "crc32c"] {
        let dir = with_table(digest);
        repairs_both(&dir, &["--digest", digest]);
        fs::remove_dir_all(dir).expect("clean");
    }
}

#[test]
fn with_a_list_of_what_was_written_pages_and_memory_are_repaired() {
    side_by_side(&["wp-async", "faults"], |how| is_tracked(how));
}

/// Whether a site's command has the descriptor by which it opens pages that are stored to.
fn opens_pages(site: &std::process::Child) -> bool {
    let all = fs::read_dir(format!("/proc/{}/fd", site.id())).expect("it runs");
    let mut links = all.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    links.any(|link| link.as_os_str() == "anon_inode:[userfaultfd]")
}

fn is_tracked(how: &str) {
    let dir = with_table(how);
    let flags = ["--tracking", how];
    repairs_both(&dir, &flags);
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, QUESTION);
    for (a, b) in [(HIDDEN, ""), ("", &*HIDDEN.replace("=0", "=1"))] {
        let mut both = flipped(&site, a, b, &flags);
        ask_until_mended(&mut both, right.trim());
        if is_root() {
            let opens = [&both.a, &both.b].map(opens_pages);
            assert_eq!(opens, [how == "faults"; 2]);
        }
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        let name = if b.is_empty() { 'A' } else { 'B' };
        let line = format!("processor or memory of {name} at event");
        assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
        assert!(ends.said().contains("1 page of memory"), "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn reads_that_are_compared_later_are_repaired_on_the_secondary_and_stop_the_primary() {
    let dir = with_table("ahead");
    let site = sqlite_site(&dir);
    for flags in [
        &["--exchange", "async"][..],
        &["--exchange", "async", "--every", "50"],
        &["--every", "10"],
        &["--every", "1000"],
    ] {
        let mut both = pair_of(&site, flags);
        let right = both.ask(ASK);
        assert_eq!(right, sqlite(&dir, ".sha3sum").trim());
        both.strike(&both.b, PLACE, 1);
        assert_eq!(both.ask(ASK), right, "{flags:?}");
        assert_eq!(both.ask(CHANGE), "200");
        // Stops before the answer.
        let right = both.ask(ASK);
        both.strike(&both.a, PLACE, 1);
        let answer = both.ask(ASK);
        assert!(answer.is_empty(), "{flags:?}: {answer}, not {right}");
        let ends = both.end();
        let said = ends.said();
        assert_eq!(ends.codes(), [Some(122), Some(122)], "{flags:?}: {said}");
        for line in [
            "disk of B, x.db page 8",
            "disk of A, x.db page 8",
            "may have gone on with the wrong bytes of /mnt/data/x.db",
        ] {
            assert_eq!(said.matches(line).count(), 2, "{flags:?}: {said}");
        }
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_wrong_claim_is_repaired_while_reads_are_compared_later() {
    let dir = with_table("ahead-flip");
    let site = sqlite_site(&dir);
    let flags = ["--exchange", "async", "--every", "20"];
    let right = sqlite(&dir, QUESTION);
    // The same events on the other site: processor.rs.
    for (event, replica) in [(60, 0), (90, 1), (105, 0), (120, 1)] {
        let flip = register(replica, event);
        let faults = [["", &flip], [&flip, ""]][usize::from(replica == 0)];
        let mut both = flipped(&site, faults[0], faults[1], &flags);
        assert_eq!(both.ask(QUESTION), right.trim(), "{flip}");
        assert_eq!(both.ask(CHANGE), "200", "{flip}");
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{flip}: {}", ends.said());
        assert!(!ends.said().contains("disk of"), "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn both_sites_have_to_be_told_the_same_variant() {
    let dir = with_table("unlike");
    let site = sqlite_site(&dir);
    for flags in [
        ["--digest", "md5"],
        ["--exchange", "async"],
        ["--every", "2"],
        ["--tracking", "wp-async"],
    ] {
        let address = format!("127.0.0.1:{}", free_port());
        let b = start(&site, "secondary", &["--listen", &address]);
        let a = start(
            &site,
            "primary",
            &[&["--peer", &address], &flags[..]].concat(),
        );
        let ends = Both::with(a, b).end();
        assert_eq!(ends.codes(), [Some(121); 2], "{}", ends.said());
        assert!(ends.said().contains(flags[0]), "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}
