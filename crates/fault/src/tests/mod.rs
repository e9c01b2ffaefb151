//! The grammar, by example and by property. Every example of docs/reference/fault-grammar.md is read here.

use std::num::NonZeroI64;

use proptest::prelude::*;

use super::*;

mod random;
mod refused;
mod service;

fn parse(line: &str) -> Fault {
    match line.parse() {
        Ok(fault) => fault,
        Err(why) => panic!("{why}\n  fix: {}", why.fix),
    }
}

fn refuse(line: &str) -> FaultError {
    line.parse::<Fault>().expect_err(line)
}

/// A line whose mark (^) stands where it is wrong: the line itself, and the column.
fn unmarked(marked: &str) -> (String, usize) {
    let at = marked.find('^').expect("a mark");
    (marked.replacen('^', "", 1), at + 1)
}

#[test]
fn a_line_prints_as_it_was_read() {
    for line in [
        "replica=1 at=bzip2+0x1a2f0 n=1000000 reg=rax bit=17",
        "replica=leader event=12 mem=[rsi+0x8] bit=3",
        "replica=0 at=libc.so.6!memcpy+0x20 n=5 addr bit=40",
        "replica=follower at=0x401136 n=1 ip bit=4",
        "replica=0,2 event=3 after-vote mem=[rsi] bit=0",
        "replica=all at=bzip2+0x1a2f0 n=7 reg=rbx bits=0,3-5",
        "process=1 thread=main.2.1 cpu=1 at=libc.so.6!memcpy n=9 reg=rcx once bit=2",
        "at=gzip+0x10 n=5 reg=xmm3.d2 after bit=31",
        "at=gzip+0x10 n=5 reg=zmm31 bit=511",
        "at=gzip+0x10 n=5 reg=ah bit=7",
        "at=gzip+0x10 n=5 reg=k1 bit=63",
        "at=gzip+0x10 n=5 reg=rflags after bits=0,6",
        "at=gzip+0x10 n=5 rval once bit=3",
        "at=gzip+0x10 n=5 wval bits=0-7 stuck=0",
        "at=gzip+0x10 n=5 raddr bit=12",
        "at=gzip+0x10 n=5 waddr bit=12",
        "at=gzip+0x10 n=5.. code bit=3",
        "at=gzip+0x10 n=5 kind=skip",
        "class=int-mul,crc in=libcrypto.so.3 n=1.. reg=rax after mask=0x8421084210842108",
        "class=load in=memcached!process_command n=1..%2 one-in=1000 seed=42 rval once bit=0",
        "cpu=1 class=fp-mul n=1000.. reg=xmm0 after bit=51",
        "at=memcached!process_command n=5000..%5000 mem=[[rdi+0x8]+0x3] bit=6",
        "event=9 target=agent reg=r13 bit=1",
        "event=9 target=log mem=[entry+0x8] bit=1",
        "event=9 target=log mem=[log+0x40] bit=1",
        "at=agent+0x120 n=3 target=agent reg=rdx bit=9",
        "event=9 target=agent mem=[agent+0x4000] bit=1",
        "at=build-id:0123456789abcdef+0x10 n=1 reg=rax bit=0",
        "event=1 mem=[rbp+rcx*8-0x10] bit=511",
        "event=1 mem=[fsbase+0x28] bit=0",
        "event=1 mem=[bzip2!buffer+0x10] bit=0",
        "event=1 mem=[0x7ffff7dd1000] bit=0",
        "time=10ms reg=rsp bit=3",
        "every=10ms in=memcached!event_loop reg=rsp bit=3",
        "time=1s every=1500us reg=rsp bit=3",
        "replica=1 event=4 kind=hang",
        "replica=1 event=4 kill=9",
        "read=*.db n=3 byte=0 bit=7",
        "read=/dev/stdin n=1.. byte=4096 bits=0-7 stuck=0",
        "process=1 read=a/**/b?.txt offset=4096-8191 n=2 byte=1 bit=500",
        "read=*.db n=1..%2 kind=stale",
        "read=x offset=17 n=1 kind=misdirected by=-4096",
        "write=x n=1 byte=9 bit=3",
        "write=x n=1.. one-in=10 seed=3 kind=lost",
        "write=a=b n=1 kind=torn keep=0",
        "write=stdout n=9 kind=misdirected by=512",
    ] {
        assert_eq!(parse(line).to_string(), line);
    }
}

#[test]
fn other_spellings_of_the_same_fault_are_the_same_value() {
    for (spelling, canonical) in [
        ("bit=17 reg=rax n=1 at=a+16", "at=a+0x10 n=1 reg=rax bit=17"),
        (
            "  at=a+0x10\tn=1   reg=rax bits=17 ",
            "at=a+0x10 n=1 reg=rax bit=17",
        ),
        (
            "at=a+0x10 n=1 reg=rax mask=0x20000",
            "at=a+0x10 n=1 reg=rax bit=17",
        ),
        (
            "at=a+0x10 n=1 flag=zf,cf",
            "at=a+0x10 n=1 reg=rflags bits=0,6",
        ),
        ("at=a!f+0 n=1 ip bit=0", "at=a!f n=1 ip bit=0"),
        (
            "event=1 mem=[entry] bit=0",
            "event=1 target=log mem=[entry] bit=0",
        ),
        (
            "at=agent+0 n=1 ip bit=0",
            "at=agent+0x0 n=1 target=agent ip bit=0",
        ),
        ("event=1 target=app reg=rax bit=0", "event=1 reg=rax bit=0"),
        (
            "class=store,load n=1.. rval bit=0",
            "class=load,store n=1.. rval bit=0",
        ),
        ("time=1000us reg=rax bit=0", "time=1ms reg=rax bit=0"),
        (
            "replica=2,0 event=1 reg=rax bit=0",
            "replica=0,2 event=1 reg=rax bit=0",
        ),
    ] {
        assert_eq!(parse(spelling).to_string(), canonical);
    }
}

#[test]
fn a_plan_is_lines_semicolons_and_comments() {
    let text = "# two faults in one run\n\nevent=1 reg=rax bit=0 # the first\nevent=2 reg=rbx bit=1; event=3 kill=9\n";
    let faults = Fault::parse_all(text).expect("a plan");
    assert_eq!(
        faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "event=1 reg=rax bit=0",
            "event=2 reg=rbx bit=1",
            "event=3 kill=9"
        ]
    );
    assert_eq!(Fault::parse_all(""), Ok(vec![]));
}

#[test]
fn an_error_in_a_plan_points_into_the_file() {
    let error =
        Fault::parse_all("event=1 kill=9\nevent=1 kill=9; event=2 kill=0\n").expect_err("line 2");
    assert_eq!((error.line_number, error.column), (Some(2), 25));
    assert!(
        error
            .to_string()
            .starts_with("fault plan, line 2, column 25: "),
        "{error}"
    );
    // A single line is not a file.
    assert_eq!(
        Fault::parse_all("event=1 kill=9; event=2 kill=0")
            .expect_err("part 2")
            .line_number,
        None
    );
}

#[test]
fn columns_count_characters() {
    assert_eq!(refuse("in=größe event=1 kill=0").column, 18);
}

#[test]
fn faults_have_the_models_of_the_literature() {
    for (line, model) in [
        ("at=a+0 n=1 reg=rax after bit=0", "wreg"),
        ("at=a+0 n=1 reg=rax once bit=0", "rreg"),
        ("at=a+0 n=1 wval bit=0", "wval"),
        ("at=a+0 n=1 rval bit=0", "rval"),
        ("at=a+0 n=1 waddr bit=0", "waddr"),
        ("at=a+0 n=1 raddr bit=0", "raddr"),
        ("at=a+0 n=1 addr bit=0", "addr"),
        ("at=a+0 n=1 ip bit=0", "cf"),
        ("at=a+0 n=1 kind=invert", "cf"),
        ("at=a+0 n=1 flag=cf", "flags"),
        ("event=1 mem=[rsi] bit=0", "mem"),
        ("at=a+0 n=1 code bit=0", "code"),
        ("event=1 kind=stop", "process"),
        ("read=* n=1 byte=0 bit=0", "rdata"),
        ("write=* n=1 byte=0 bit=0", "wdata"),
        ("read=* n=1 kind=stale", "stale"),
        ("read=* n=1 kind=misdirected by=1", "misread"),
        ("write=* n=1 kind=misdirected by=1", "miswrite"),
        ("write=* n=1 kind=lost", "lost"),
        ("write=* n=1 kind=torn keep=1", "torn"),
    ] {
        assert_eq!(parse(line).model().word(), model, "{line}");
    }
}

#[test]
fn paths_match_by_their_last_part_or_whole() {
    let matched =
        |pattern: &str, path: &str| PathGlob::of(pattern).is_some_and(|glob| glob.matches(path));
    assert!(matched("*.db", "dir/a.db"));
    assert!(!matched("*.db", "a.dbx"));
    assert!(matched("a?c", "abc"));
    assert!(!matched("a?c", "a/c"));
    assert!(matched("stdout", "/dev/stdout"));
    assert!(matched("dir/*", "dir/a"));
    assert!(!matched("dir/*", "dir/a/b"));
    assert!(matched("dir/**", "dir/a/b"));
    assert!(matched("**/b", "x/dir/a/b"));
    assert!(!matched("/etc/*", "etc/passwd"));
    assert!(matched("*", "a"));
    assert!(!matched("", "a"));
    assert_eq!(PathGlob::of("*a*b*c*d*e"), None);
    let extent: Extent = "10-19".parse().expect("a range");
    assert!(extent.meets(19, 1) && extent.meets(0, 11) && extent.meets(0, 100));
    assert!(!extent.meets(20, 5) && !extent.meets(0, 10) && !extent.meets(12, 0));
}

#[test]
fn hits_follow_their_range_and_step() {
    let hits = |n: &str| match parse(&format!("at=a+0 n={n} kind=skip")).trigger() {
        Trigger::Site { hits, .. } => (1..=12).filter(|&n| hits.includes(n)).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(hits("5"), [5]);
    assert_eq!(hits("10.."), [10, 11, 12]);
    assert_eq!(hits("2..9%3"), [2, 5, 8]);
    assert_eq!(hits("4..%4"), [4, 8, 12]);
}

#[test]
fn a_follower_is_the_lowest_that_does_not_lead() {
    let live = || [0, 1, 2].map(ReplicaId);
    let struck = |who: Replicas, leader: u8| -> Vec<u8> {
        live()
            .into_iter()
            .filter(|&r| who.includes(r, ReplicaId(leader), live()))
            .map(|r| r.0)
            .collect()
    };
    assert_eq!(struck(Replicas::Follower, 0), [1]);
    assert_eq!(struck(Replicas::Follower, 1), [0]);
    assert_eq!(struck(Replicas::Leader, 2), [2]);
    assert_eq!(struck(Replicas::All, 0), [0, 1, 2]);
    assert_eq!(struck(Replicas::Set(0b101), 0), [0, 2]);
}

#[test]
fn a_fault_built_by_hand_obeys_the_same_rules() {
    let bits = |bit| Bits::single(bit).expect("below 512");
    let register = |name: &str| Target::Register(name.parse().expect("a register"), Moment::Before);
    let event = || Trigger::Event {
        index: EventIndex(1),
        phase: EventPhase::BeforeClaim,
    };
    let flip = |target, bits| Effect::Bits {
        part: Part::App,
        target,
        bits,
        change: Change::Flip,
    };

    assert!(Fault::new(Victim::default(), event(), flip(register("eax"), bits(31))).is_ok());
    assert!(Fault::new(Victim::default(), event(), flip(register("eax"), bits(32))).is_err());
    assert!(
        Fault::new(
            Victim::default(),
            event(),
            flip(register("eax"), Bits::default())
        )
        .is_err()
    );
    assert!(
        Fault::new(
            Victim::default(),
            event(),
            flip(Target::ReadAddress, bits(0))
        )
        .is_err()
    );
    let spaced = Location::Offset {
        module: Module::Name("a b".to_owned()),
        offset: 0,
    };
    let site = Trigger::Site {
        at: spaced,
        hits: Hits::once(NonZeroU64::MIN),
    };
    assert!(Fault::new(Victim::default(), site, Effect::Kill(9)).is_err());
    let nobody = Victim {
        replicas: Some(Replicas::Set(0)),
        ..Victim::default()
    };
    assert!(Fault::new(nobody, event(), Effect::Kill(9)).is_err());
}

#[test]
fn the_fault_of_the_manual_is_the_fault_of_the_parser() {
    let manual = include_str!("../../../../docs/reference/fault-grammar.md");
    let examples: Vec<&str> = manual
        .split("```fault\n")
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .flat_map(str::lines)
        .collect();
    assert!(
        examples.len() > 20,
        "the manual has an example for every model"
    );
    for example in &examples {
        if let Err(why) = Fault::parse_all(example) {
            panic!("docs/reference/fault-grammar.md: {why}");
        }
    }
    for model in Model::ALL {
        let shown = examples.iter().any(|line| {
            Fault::parse_all(line).is_ok_and(|f| f.iter().any(|f| f.model() == *model))
        });
        assert!(
            shown,
            "docs/reference/fault-grammar.md has no example of {model}"
        );
    }
}

#[test]
fn json_carries_the_line() {
    let fault = parse("replica=1 event=12 mem=[rsi+0x8] bit=3");
    let json = serde_json::to_string(&fault).expect("a string");
    assert_eq!(json, "\"replica=1 event=12 mem=[rsi+0x8] bit=3\"");
    assert_eq!(
        serde_json::from_str::<Fault>(&json).expect("a fault"),
        fault
    );
    assert!(serde_json::from_str::<Fault>("\"event=1\"").is_err());
}
