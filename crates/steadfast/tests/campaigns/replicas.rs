//! Replicated targets, programs and servers.

use super::*;

#[test]
fn a_replicated_target_is_counted_once() {
    let place = Place::new();
    let of = |replicas: &str| {
        let out = format!("plan-{replicas}");
        place.well(&on(
            "plan",
            &["--out", &out, "--runs", "2", "--replicas", replicas],
        ));
        Dir::new(place.path(&out))
            .campaign()
            .expect("a campaign")
            .population
            .counts
    };
    let (bare, two) = (of("0"), of("2"));
    assert_eq!((bare.dynamic, bare.sites), (two.dynamic, two.sites));
}

/// A group carries out what its lines say: in the replica that they name, by the clock, in code. What it cannot is said
/// before any run.
#[test]
fn a_replicated_target_is_struck_as_its_lines_say() {
    let place = Place::new();
    let under = |out: &str, faults: &[&str]| {
        let mut words = vec!["run", "--quiet", "--replicas", "2", "--runs", "1", "--out"];
        words.push(out);
        for fault in faults {
            words.extend(["--fault", fault]);
        }
        words.extend(["--", "./control", "silent"]);
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        place.well(&words);
    };
    all(&under(
        "lines",
        &[
            "replica=1 at=control!mix n=100 kind=crash",
            "replica=0 at=control!mix n=100 code bit=0",
            "replica=1 time=1us kind=crash",
            "at=control!mix n=100 reg=rsp bit=40",
            "replica=0 at=control!mix n=100 kind=hang",
        ],
    ));
    let runs = place.runs("lines");
    assert_eq!(runs.len(), 5);
    assert_eq!(runs[&4].outcome.word(), "corrected", "{:?}", runs[&4]);
    for (id, run) in &runs {
        let ended = run.outcome.outcome().to_string();
        let over = *id == 2 && ended == "not_fired";
        assert!(over || ended == "corrected" || ended == "masked", "{run:?}");
    }
    let planned = place.plan("lines");
    assert!(
        planned[0].fault.starts_with("replica=1 at="),
        "{:?}",
        planned[0]
    );
    let mixed = "replica=0 at=control!mix n=9 kind=crash; read=in.txt n=1 byte=0 bit=0";
    let words = under("mixed", &[mixed]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = place.does(&words);
    assert_ne!(said.status.code(), Some(0));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("faults of storage, or others"), "{said}");
    place.clean();
}

/// A DNS question over TCP for a name's address, and dnsmasq's answer to it.
fn dns(id: u8, name: &str) -> (Vec<u8>, Vec<u8>) {
    let labels: Vec<u8> = name
        .split('.')
        .flat_map(|label| {
            let length = u8::try_from(label.len()).expect("short");
            std::iter::once(length).chain(label.bytes())
        })
        .collect();
    let message = |head: [u8; 10], tail: &[u8]| {
        let mut body = vec![0, id];
        body.extend(head);
        body.extend(&labels);
        body.extend([0, 0, 1, 0, 1]); // the root; an address, of the internet
        body.extend(tail);
        let length = u16::try_from(body.len()).expect("short");
        [&length.to_be_bytes()[..], &body].concat()
    };
    // Flags, then how many questions, answers, authorities and additions.
    let ask = message([1, 0, 0, 1, 0, 0, 0, 0, 0, 0], &[]);
    // The name again, by its place; kind and class; no time to live; four bytes of address.
    let said = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 10, 1, 2, 3];
    (ask, message([0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], &said))
}

#[test]
fn a_server_runs_as_replicas_and_its_clients_see_no_wrong_answer() {
    let place = Place::new();
    let steps = (0..20)
        .map(|i| dns(i, &format!("host{i}.example.test")))
        .collect();
    fs::write(place.path("trace"), Trace(vec![steps]).to_bytes()).expect("written");
    for replicas in ["0", "2"] {
        let out = format!("served-{replicas}");
        place.well(&[
            "run",
            "--quiet",
            "--out",
            &out,
            "--runs",
            "3",
            "--seed",
            "21",
            "--jobs",
            "1",
            "--replicas",
            replicas,
            "--driver",
            "trace:trace",
            "--ready",
            "5353",
            "--",
            "/usr/sbin/dnsmasq",
            "--no-daemon", // one process, for queries over TCP as well
            "--conf-file=/dev/null",
            "--port=5353",
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
            "--no-resolv",
            "--no-hosts",
            "--address=/example.test/10.1.2.3",
            "--log-facility=/dev/null",
        ]);
    }
    let (bare, two) = (place.runs("served-0"), place.runs("served-2"));
    // Seven fault types; both campaigns have the same plan.
    assert_eq!((bare.len(), two.len()), (21, 21));
    let failed = |run: &&Run| !matches!(run.outcome, Leaf::MaskedClean | Leaf::Slow);
    assert!(bare.values().any(|run| failed(&run)), "no fault did harm");
    // Nothing is said about time: on a busy machine a run may count as slow or hung.
    let wrong = |leaf: Leaf| matches!(leaf, Leaf::Sdc | Leaf::SdcLate | Leaf::CorrectedWrong);
    for run in two.values() {
        assert!(!wrong(run.outcome), "run {}: {:?}", run.id, run.outcome);
    }
    assert!(
        two.values().any(|run| run.outcome == Leaf::Corrected
            && run
                .detection
                .as_ref()
                .is_some_and(|detection| detection.by == "replicas")),
        "nothing was repaired"
    );
    place.clean();
}
