//! `steadfast-host demo`: flips come, handles stay; and without protection they are lost.

use std::process::{Command, Output};

use serde_json::Value as Json;

use crate::{HOST, components, err};

fn demo(name: &str, more: &[&str]) -> (Output, Json) {
    let file = components().join(format!("{name}.json"));
    let mut demo = Command::new(HOST);
    demo.args(["demo", "--components"]).arg(components());
    demo.arg("--json").arg(&file).args(["--seed", "7"]);
    let output = demo.args(more).output().expect("it runs");
    let told = std::fs::read_to_string(&file).expect("written");
    let told: Json = serde_json::from_str(&told).expect("a list");
    (output, told[0].clone())
}

#[test]
fn a_busy_component_is_struck_often_and_its_handles_stay() {
    let args = ["--half", "protected", "--handles", "4", "--every-ms", "5"];
    let (output, told) = demo("demo-protected", &[&args[..], &["--flips", "25"]].concat());
    assert!(output.status.success(), "{}", err(&output));
    assert!(told["flips"].as_u64() >= Some(25), "{told}");
    assert_eq!((&told["kept"], &told["handles"]), (&4.into(), &4.into()));
    assert_eq!(told["wrong"], 0, "{told}");
    assert_eq!(told["deaths"], Json::Array(vec![]), "{told}");
    assert!(
        !told["resets"].as_object().expect("causes").is_empty(),
        "{told}"
    );
}

#[test]
fn without_protection_flips_end_the_client_or_its_handles() {
    let args = ["--half", "bare", "--handles", "4", "--every-ms", "5"];
    let (_, told) = demo("demo-bare", &[&args[..], &["--flips", "25"]].concat());
    assert!(told["flips"].as_u64() >= Some(25), "{told}");
    let deaths = told["deaths"].as_array().expect("a list").len();
    assert!(deaths > 0 || told["lost"].as_u64() > Some(0), "{told}");
}
