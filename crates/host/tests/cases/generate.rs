//! `steadfast host generate --test`: a sidecar file that says all, one that loses something, and what is refused.

use std::process::{Command, Output};

use super::{HOST, components, err, out};

fn generate(name: &str, more: &[&str]) -> Output {
    let mut host = Command::new(HOST);
    host.arg("generate").arg(components().join(name));
    host.args(["--test", "--sequences", "2"]).args(more);
    host.output().expect("it runs")
}

#[test]
fn a_generated_test_holds_for_what_comes_with_it_and_rings_for_a_count_that_is_lost() {
    let good = generate("lock.wit", &[]);
    assert!(good.status.success(), "{}", err(&good));
    assert!(out(&good).contains("every answer is the one without a crash"));
    assert!(!out(&good).contains("tried:"), "{}", out(&good));
    let good = generate("http.wit", &["--uses", "keyvalue,fs"]);
    assert!(good.status.success(), "{}", err(&good));
    let lost = components().join("lost.recover.toml");
    let full =
        std::fs::read_to_string(components().join("lock.recover.toml")).expect("it is there");
    // A lock that comes back free, and whose holder nobody checks.
    let (head, _) = full.split_once("[function").expect("functions");
    let none: String = ["take", "release", "holder"]
        .map(|name| {
            format!(
                "[function.\"steadfast:lock/locks@0.1.0#[method]lock.{name}\"]\neffect = \"none\"\n"
            )
        })
        .concat();
    std::fs::write(&lost, format!("{head}{none}")).expect("written");
    let bad = generate("lock.wit", &["--recover", &lost.to_string_lossy()]);
    assert!(!bad.status.success(), "{}", out(&bad));
    for needed in ["a crash", "must give", "found", "fix:", "lock.take"] {
        assert!(err(&bad).contains(needed), "{needed}: {}", err(&bad));
    }
}

#[test]
fn a_generated_test_without_what_it_calls_says_what_is_missing() {
    let refused = generate("http.wit", &[]);
    assert!(!refused.status.success());
    for needed in ["does not start", "wasi:keyvalue", "--uses"] {
        assert!(err(&refused).contains(needed), "{}", err(&refused));
    }
}
