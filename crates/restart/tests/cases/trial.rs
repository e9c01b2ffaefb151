//! Generated tests of the components that come with it, and of sidecar files that lose something.

use super::fixture;
use steadfast_restart::trial::{MakeError, Trial, TrialError, Tried};
use steadfast_restart::{Component, Edge, Host, Model, Policy, Samples, host::stopped_clock};

/// The last one, which may use those before it.
fn tried(parts: &[Component], policy: Policy) -> Result<Tried, MakeError> {
    let mut host = Host::new(true)?;
    let mut all: Vec<Edge> = Vec::new();
    for (place, one) in parts.iter().enumerate() {
        let mut component = Component {
            policy,
            ..one.clone()
        };
        for other in &parts[..place] {
            component.uses.push(host.edge(&one.name, &other.name, &[])?);
        }
        host.add(component, None)?;
        all.push(host.edge("trial", &one.name, &[])?);
    }
    let edge = all.pop().ok_or("no component")?;
    Ok(Tried {
        host,
        edge,
        others: all,
    })
}

fn trial(
    name: &str,
    uses: &[&str],
    sidecar: &str,
    sequences: u32,
) -> Result<Vec<String>, TrialError> {
    let samples = Samples::of(sidecar, &fixture::model(name))?;
    let trial = Trial {
        samples,
        seed: 1,
        sequences,
        calls: match name {
            // A list that lends an object with a price needs four calls before it.
            "shelf" => 60,
            _ if uses.is_empty() => 24,
            _ => 40,
        },
    };
    let parts = uses.iter().copied().chain([name]);
    let mut parts: Vec<_> = parts
        .map(|one| Component {
            answers: stopped_clock(),
            ..fixture::component(one, Policy::default())
        })
        .collect();
    if let Some(own) = parts.last_mut() {
        own.model = Model::generate(&fixture::text(name, "wit"), sidecar)?;
    }
    let held = trial.run(&|policy| tried(&parts, policy))?;
    assert!(held.crashes > held.calls, "{held:?}");
    assert_eq!(held.failed, 0, "{:?}", held.failure);
    let idle = held.functions.iter().filter(|(_, (_, good))| *good == 0);
    Ok(idle.map(|(path, _)| path.clone()).collect())
}

/// That it holds, and does all but so many functions.
fn holds(name: &str, uses: &[&str], sequences: u32, idle_max: usize) {
    let idle = trial(name, uses, &fixture::text(name, "recover.toml"), sequences);
    let idle = idle.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(
        idle.len() <= idle_max,
        "{name}: nothing was asked of {idle:?}"
    );
}

#[test]
fn a_generated_test_of_each_component_finds_no_difference() {
    for name in [
        "lock",
        "fs",
        "event",
        "timer",
        "memory",
        "scheduler",
        "keyvalue",
        "shelf",
        "notes",
        "branch",
    ] {
        holds(name, &[], 4, 0);
    }
}

#[test]
fn a_generated_test_crashes_what_a_component_uses_as_well() {
    holds("http", &["keyvalue", "fs"], 2, 0);
    // Two thirds of its 50 functions act on streams, which a short sequence seldom comes to.
    holds("filesystem", &["keyvalue", "fs"], 4, 36);
}

#[test]
fn a_sidecar_file_that_loses_something_is_found_with_few_calls() {
    let lost = fixture::text("lock", "recover.toml").replace("remember = [\"owner\"]", "");
    assert!(Model::generate(&fixture::text("lock", "wit"), &lost).is_err());
    let none = r#"
        [function."steadfast:event/events@0.1.0#[method]event.trigger"]
        effect = "none"
        [function."steadfast:event/events@0.1.0#[method]event.occurred"]
        effect = "none"
        [function."steadfast:event/events@0.1.0#[method]event.put-occurred"]
        effect = "none"
    "#;
    let found = trial("event", &[], none, 6).expect_err("the count is lost");
    let text = found.to_string();
    let TrialError::Differs(found) = found else {
        panic!("{text}");
    };
    assert!(found.steps.lines().count() <= 4, "{text}");
}

#[test]
fn objects_that_a_list_lends_are_drawn_and_a_loss_that_only_they_show_is_found() {
    let kept = fixture::text("shelf", "recover.toml");
    let lost = kept.replace(
        "to = \"priced\"\nremember = [\"price\"]",
        "effect = \"none\"",
    );
    assert_ne!(lost, kept);
    let found = trial("shelf", &[], &lost, 12).expect_err("the price is lost");
    let text = found.to_string();
    assert!(matches!(found, TrialError::Differs(_)), "{text}");
    assert!(text.contains("total([#"), "{text}");
}

#[test]
fn values_for_a_name_that_nothing_has_are_refused() {
    for (test, needed) in [("nobody = [1]", "nobody"), ("owner = [\"a\"]", "no value")] {
        let own = fixture::text("lock", "recover.toml");
        let (own, _) = own.split_once("[test]").expect("it has values for tests");
        let sidecar = format!("{own}[test]\n{test}\n");
        let refused = trial("lock", &[], &sidecar, 1).expect_err("no such value");
        assert!(refused.to_string().contains(needed), "{refused}");
    }
}
