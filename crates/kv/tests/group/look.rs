//! What an operator is shown: `top` and `coverage`.

use super::*;

#[test]
fn top_shows_every_replica_what_it_does_and_what_it_has_found() {
    let group = Group::start(&[]);
    let mut line = group.connect(0);
    line.set("a", "hello");
    assert!(
        group
            .strike("replica=1 object=item:a byte=2 bit=3")
            .status
            .success()
    );
    assert_eq!(group.connect(1).get("a"), "hello");
    group.event("repaired");
    let at = group.clients[0].to_string();
    let mut top = kv()
        .args([
            "top",
            "--at",
            &at,
            "--json",
            "--interval",
            "0.5",
            "--count",
            "3",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(top.stdout.take().unwrap());
    let mut looks = Vec::new();
    for said in out.lines().map_while(Result::ok) {
        for _ in 0..20 {
            line.set("a", "again");
        }
        looks.push(serde_json::from_str::<Value>(&said).unwrap());
    }
    assert!(top.wait().unwrap().success());
    assert_eq!(looks.len(), 3);
    let last = looks[2]["replicas"].as_array().unwrap();
    assert_eq!(last.len(), 3);
    assert!(
        last.iter()
            .all(|row| row["requests_per_s"].as_f64() > Some(0.0)),
        "{last:?}"
    );
    assert_eq!(looks[0]["replicas"][0]["requests_per_s"], Value::Null);
    let leading = last.iter().filter(|row| row["state"] == "leads");
    assert_eq!(leading.count(), 1, "{last:?}");
    let repairs: Vec<&Value> = last.iter().map(|row| &row["repairs"]).collect();
    assert_eq!(repairs, [0, 1, 0], "{last:?}");

    let table = kv()
        .args(["top", "--at", &at, "--count", "1"])
        .output()
        .unwrap();
    let table = text(&table.stdout);
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(!table.contains('\x1b'), "no terminal, no escapes: {table}");
}

#[test]
fn top_goes_on_when_the_replica_that_it_asked_dies() {
    let group = Group::start(&[]);
    let at = group.clients[0].to_string();
    let mut top = kv()
        .args(["top", "--at", &at, "--json", "--interval", "0.3"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(top.stdout.take().unwrap()).lines();
    out.next().unwrap().unwrap();
    let killed = Command::new("kill")
        .args(["-9", &group.pids[0].to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    group.event("replaced");
    let until = Instant::now() + PATIENCE;
    loop {
        let said: Value = serde_json::from_str(&out.next().unwrap().unwrap()).unwrap();
        let rows = said["replicas"].as_array().unwrap();
        let alive = rows.iter().filter(|row| row["items"].is_u64()).count();
        if rows.len() == 3
            && alive == 3
            && rows[0]["uptime_s"].as_u64() < rows[1]["uptime_s"].as_u64()
        {
            break;
        }
        assert!(Instant::now() < until, "{said}");
    }
    let _ = top.kill();
    let _ = top.wait();
}

#[test]
fn the_list_of_what_is_voted_on_says_why_the_rest_is_not() {
    let said = kv().arg("coverage").output().unwrap();
    let said = text(&said.stdout);
    let (voted, rest) = said.split_once("not voted on").unwrap();
    assert!(
        voted.contains("value") && rest.contains("statistics") && rest.contains("as in the paper"),
        "{said}"
    );
    let json = kv().args(["coverage", "--json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&json.stdout).unwrap();
    let parts = list["parts"].as_array().unwrap();
    assert!(
        parts
            .iter()
            .all(|part| part["how"].as_str().is_some_and(|how| !how.is_empty()))
    );
    let refused = kv().args(["top", "--interval", "0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(64));
    assert!(text(&refused.stderr).contains("fix:"), "{refused:?}");
}

#[test]
fn systemd_has_nothing_to_say_about_the_unit() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/steadfast-kv@.service");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_steadfast-kv"));
    let folder = program.parent().unwrap().display().to_string();
    let unit = std::fs::read_to_string(source).unwrap();
    let unit = unit.replace("@bindir@", &folder);
    let dir = std::env::temp_dir().join(format!("kv-unit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let verify = |text: &str| {
        let path = dir.join("steadfast-kv@.service");
        std::fs::write(&path, text).unwrap();
        let mut verify = Command::new("systemd-analyze");
        let said = verify.args(["verify", "--man=no"]).arg(path).output();
        // Without systemd there is nobody to ask. Other units of the machine are told of as well.
        let said = said.map(|out| text_of_own(&out.stderr)).ok()?;
        Some(said)
    };
    if let Some(said) = verify(&unit) {
        assert_eq!(said, "");
        let misspelt = verify(&unit.replace("WatchdogSec", "WatchdogSecs")).unwrap();
        assert!(misspelt.contains("WatchdogSecs"), "{misspelt}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

fn text_of_own(bytes: &[u8]) -> String {
    let said = text(bytes);
    let own = said.lines().filter(|line| line.contains("steadfast"));
    own.collect::<Vec<_>>().join("\n")
}
