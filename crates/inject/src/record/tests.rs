use super::*;

fn planned(id: u64) -> Planned {
    Planned {
        schema: SCHEMA,
        id,
        fault_type: "wreg".into(),
        fault: "at=gzip+0x1a2f n=17 reg=rax after bit=3".into(),
        site: None,
        register: Some("rax".into()),
        bits: vec![3],
        n: Some(17),
        executions: Some(400),
        strike: None,
    }
}

fn scratch(name: &str) -> Dir {
    let path = std::env::temp_dir().join(format!("steadfast-record-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a scratch directory");
    Dir::new(path)
}

#[test]
fn a_plan_comes_back_as_it_was_written() {
    let dir = scratch("plan");
    let plan = vec![planned(0), planned(1)];
    dir.write_plan(&plan).expect("written");
    assert_eq!(dir.plan().expect("read"), plan);
    assert_eq!(plan[0].faults().expect("a fault").len(), 1);
    fs::remove_dir_all(dir.path()).expect("removed");
}

#[test]
fn a_line_that_was_cut_off_is_none_and_the_last_of_an_id_counts() {
    let dir = scratch("runs");
    let mut to = dir.append().expect("opened");
    to.add(&Run::new(&planned(0), Leaf::MaskedClean))
        .expect("added");
    to.add(&Run::new(&planned(0), Leaf::Sdc)).expect("added");
    drop(to);
    let path = dir.path().join("runs.jsonl");
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .expect("opened");
    file.write_all(b"{\"schema\":2,\"id\":1,\"faul")
        .expect("written");
    let runs = dir.runs().expect("read");
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[&0].outcome, Leaf::Sdc);
    let mut to = dir.append().expect("opened");
    to.add(&Run::new(&planned(1), Leaf::NotFired))
        .expect("added");
    assert_eq!(dir.runs().expect("read").len(), 2);
    fs::remove_dir_all(dir.path()).expect("removed");
}

#[test]
fn another_schema_and_a_broken_line_are_refused() {
    let dir = scratch("schema");
    for (schema, fix) in [(3, "a newer steadfast"), (1, "a new campaign")] {
        let line = format!("{{\"schema\":{schema}}}\n");
        fs::write(dir.path().join("plan.jsonl"), line).expect("written");
        let why = dir.plan().expect_err("another schema").to_string();
        assert!(
            why.contains(&format!("line 1: schema 2, or {fix}"))
                && why.ends_with(&format!("found {schema}")),
            "{why}"
        );
    }
    fs::write(dir.path().join("plan.jsonl"), "{\"schema\":2}\n").expect("written");
    assert!(matches!(dir.plan(), Err(RecordError::Wrong { .. })));
    fs::remove_dir_all(dir.path()).expect("removed");
}

/// The sample was written by an earlier version: what is read is written again byte for byte.
#[test]
fn a_campaign_file_is_written_as_it_was_read() {
    let sample = include_str!("../../../steadfast/tests/samples/gzip/campaign.json");
    let campaign: Campaign = serde_json::from_str(sample).expect("a campaign");
    assert!(campaign.population.counts.dynamic > 0);
    let again = serde_json::to_string_pretty(&campaign).expect("written") + "\n";
    assert_eq!(again, sample);
}
