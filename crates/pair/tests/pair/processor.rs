//! Errors of processor and memory: the claims of the two programs differ, and neither disk is blamed.

use std::fs;

use crate::sites::*;

#[test]
fn a_register_that_flips_on_either_site_stops_both_before_anything_wrong_leaves() {
    let dir = with_table("register");
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, "SELECT sum(length(b)) FROM t;");
    let ask = "SELECT sum(length(b)) FROM t;";
    // The same run without a fault, and with one that no program comes to.
    for (a, b) in [("", ""), ("replica=0 event=100000000 reg=rdi bit=2", "")] {
        let mut both = flipped(&site, a, b);
        assert_eq!(both.ask(ask), right.trim());
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        assert_eq!(ends.said(), "");
    }
    for event in [60, 90, 120] {
        for (a, b) in [
            (
                format!("replica=0 event={event} reg=rbx bit=5"),
                String::new(),
            ),
            (
                String::new(),
                format!("replica=1 event={event} reg=rbx bit=5"),
            ),
        ] {
            let mut both = flipped(&site, &a, &b);
            let answer = both.ask(ask);
            assert!(answer.is_empty() || answer == right.trim(), "{answer}");
            let ends = both.end();
            assert_eq!(
                ends.codes(),
                [Some(122), Some(122)],
                "{a}{b}: {}",
                ends.said()
            );
            assert!(
                ends.said()
                    .contains("a processor or memory of one site erred"),
                "{a}{b}: {}",
                ends.said()
            );
            assert!(!ends.said().contains("disk of"), "{}", ends.said());
        }
    }
    fs::remove_dir_all(dir).expect("clean");
}

fn flipped(site: &Site, a: &str, b: &str) -> Both {
    let address = format!("127.0.0.1:{}", free_port());
    let with = |fault: &str| -> Vec<String> {
        if fault.is_empty() {
            Vec::new()
        } else {
            vec!["--flip".into(), fault.into()]
        }
    };
    let start = |side: &str, flag: &str, fault: &str| {
        let more = [vec![flag.to_owned(), address.clone()], with(fault)].concat();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        start(site, side, &more)
    };
    let b = start("secondary", "--listen", b);
    Both::with(start("primary", "--peer", a), b)
}
