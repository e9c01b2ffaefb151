//! The grammar, by example and by property. Every example of docs/reference/fault-grammar.md is read here.

use std::num::NonZeroI64;

use proptest::prelude::*;

use super::*;

fn parse(line: &str) -> Fault {
    match line.parse() {
        Ok(fault) => fault,
        Err(why) => panic!("{why}\n  fix: {}", why.fix),
    }
}

fn refuse(line: &str) -> FaultError {
    line.parse::<Fault>().expect_err(line)
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
fn an_error_names_the_requirement_the_value_and_the_fix() {
    let error = refuse("replica=1 at=bzip2+0x10 n=5 reg=rex bit=3");
    assert_eq!(
        error.to_string(),
        "fault \"replica=1 at=bzip2+0x10 n=5 reg=rex bit=3\", column 29: \
         reg= takes a register, found 'reg=rex'"
    );
    assert_eq!(error.fix, "reg=rax");
}

#[test]
fn each_rule_has_a_line_that_breaks_it() {
    for (line, column, requirement) in [
        (
            "",
            1,
            "a fault says when it happens: at=, class=, read=, write=, event=, time= or every=",
        ),
        (
            "replica=1",
            10,
            "a fault says when it happens: at=, class=, read=, write=, event=, time= or every=",
        ),
        ("event=1", 8, "a fault says what it hits"),
        (
            "event=1 reg=rax",
            16,
            "'reg=rax' needs bit=, bits= or mask=",
        ),
        ("evnt=1", 1, "a fault is made of known clauses"),
        ("event", 1, "event has a value"),
        ("event=", 1, "event has a value"),
        ("at=a+0 n=1 ip=3 bit=0", 12, "ip has no value"),
        (
            "event=1 event=2 reg=rax bit=0",
            9,
            "event is given once, and stands in column 1 already",
        ),
        (
            "at=a+0 n=1 event=2 reg=rax bit=0",
            12,
            "a fault has one of at=, class=, read=, write=, event=, time=",
        ),
        ("event=0 reg=rax bit=0", 1, "event counts from 1"),
        (
            "event=1 every=1s reg=rax bit=0",
            9,
            "every= goes with time=, and 'event=1' stands there",
        ),
        (
            "every=0s reg=rax bit=0",
            1,
            "every= takes a period above zero",
        ),
        (
            "time=10 reg=rax bit=0",
            1,
            "time= takes a whole number of ns, us, ms or s",
        ),
        ("at=a+0 reg=rax bit=0", 21, "at= needs n="),
        ("at=a+0 n=0 reg=rax bit=0", 8, "n= takes K"),
        ("at=a+0 n=5..5 reg=rax bit=0", 8, "n= takes K"),
        ("at=a+0 n=5..4 reg=rax bit=0", 8, "n= takes K"),
        ("at=a+0 n=5%2 reg=rax bit=0", 8, "n= takes K"),
        ("at=a+0 n=1..%1 reg=rax bit=0", 8, "n= takes K"),
        ("at=a+0 n=+1 reg=rax bit=0", 8, "n= takes K"),
        (
            "at=a+0 n=1.. one-in=10 reg=rax bit=0",
            37,
            "one-in= needs seed=",
        ),
        (
            "at=a+0 n=1.. seed=10 reg=rax bit=0",
            14,
            "seed goes with one-in=",
        ),
        (
            "event=1 n=1 reg=rax bit=0",
            9,
            "n goes with at=, class=, read= or write=",
        ),
        (
            "event=1 in=a reg=rax bit=0",
            9,
            "in goes with class=, time= or every=",
        ),
        (
            "at=a+0 n=1 after-vote reg=rax bit=0",
            12,
            "after-vote goes with event=",
        ),
        ("at=a n=1 reg=rax bit=0", 1, "a place is MODULE+OFFSET"),
        (
            "at=/bin/a+0 n=1 reg=rax bit=0",
            1,
            "a module is a file name without directory",
        ),
        (
            "at=rax+0 n=1 reg=rax bit=0",
            1,
            "'rax' has another meaning here",
        ),
        (
            "at=log-tool+0 n=1 reg=rax bit=0",
            1,
            "'log-tool' has another meaning here",
        ),
        (
            "at=a+x n=1 reg=rax bit=0",
            1,
            "an offset is a number such as 0x1a2f0, not 'x'",
        ),
        (
            "at=a! n=1 reg=rax bit=0",
            1,
            "a symbol is spelled as nm prints it",
        ),
        (
            "at=build-id:0+0 n=1 reg=rax bit=0",
            1,
            "a build id is 1 to 32 bytes",
        ),
        (
            "class=mul n=1.. reg=rax bit=0",
            1,
            "class= takes instruction classes",
        ),
        (
            "class=load,load n=1.. reg=rax bit=0",
            1,
            "class= names each class once",
        ),
        (
            "replica=8 event=1 reg=rax bit=0",
            1,
            "replica= takes leader, follower, all, or numbers below 8",
        ),
        (
            "replica=1,1 event=1 reg=rax bit=0",
            1,
            "replica= takes leader",
        ),
        (
            "thread=main.0 event=1 reg=rax bit=0",
            1,
            "thread= takes main",
        ),
        ("cpu=1-0 event=1 reg=rax bit=0", 1, "cpu= takes ascending"),
        (
            "process=first event=1 reg=rax bit=0",
            1,
            "process= takes all or a rank",
        ),
        (
            "event=1 reg=rax ip bit=0",
            17,
            "a fault has one of reg=, flag=, mem=",
        ),
        (
            "event=1 reg=rax bit=0 mask=0x1",
            23,
            "a fault has one of bit=, bits=, mask=",
        ),
        ("event=1 reg=rax bit=64", 17, "'reg=rax' has bits 0 to 63"),
        ("event=1 reg=al bit=8", 16, "'reg=al' has bits 0 to 7"),
        (
            "event=1 reg=xmm0 mask=0x100000000000000000000000000000000",
            18,
            "'reg=xmm0' has bits 0 to 127",
        ),
        ("at=a+0 n=1 code bit=120", 17, "'code' has bits 0 to 119"),
        (
            "event=1 mem=[rsi] bit=512",
            19,
            "bit= takes one number below 512",
        ),
        ("event=1 reg=rax bits=1,1", 17, "bit 1 is listed twice"),
        ("event=1 reg=rax bits=3-1", 17, "a range ascends"),
        (
            "event=1 reg=rax mask=0",
            17,
            "a mask is 0x and hexadecimal digits",
        ),
        (
            "event=1 reg=rax mask=0x0",
            17,
            "a mask of zero changes nothing",
        ),
        ("event=1 reg=rax bit=0 stuck=2", 23, "stuck= takes 0 or 1"),
        ("event=1 reg=xmm32 bit=0", 9, "reg= takes a register"),
        ("event=1 reg=xmm1.q2 bit=0", 9, "reg= takes a register"),
        ("event=1 reg=xmm01 bit=0", 9, "reg= takes a register"),
        (
            "event=1 flag=tf",
            9,
            "flag= takes cf, pf, af, zf, sf, df, of, each once",
        ),
        (
            "event=1 flag=zf bit=0",
            17,
            "bit goes with a target other than flag=",
        ),
        ("event=1 rval bit=0", 9, "rval goes with at= or class="),
        ("event=1 addr bit=0", 9, "addr goes with at= or class="),
        ("time=1s ip bit=0", 9, "ip goes with at=, class= or event="),
        (
            "event=1 reg=rax after bit=0",
            17,
            "after goes with reg= or mem= with at= or class=",
        ),
        (
            "at=a+0 n=1 reg=rax after once bit=0",
            26,
            "a fault has one of once, after",
        ),
        ("event=1 kind=skip", 9, "this needs an instruction"),
        ("event=1 kind=boom", 9, "kind= takes one of crash"),
        ("event=1 kind=crash bit=0", 20, "bit goes with"),
        (
            "event=1 kind=crash target=agent",
            20,
            "target goes with a fault in bits",
        ),
        ("event=1 kill=65", 9, "kill= takes a signal number"),
        ("event=1 kill=9 kind=crash", 16, "a fault has one of"),
        ("event=1 mem=rsi bit=0", 9, "an address is ["),
        ("event=1 mem=[rsx] bit=0", 9, "an address is ["),
        ("event=1 mem=[rsi*8] bit=0", 9, "an address is ["),
        (
            "event=1 mem=[rsi+rsp*8] bit=0",
            9,
            "an index is a 64-bit register other than rsp",
        ),
        (
            "event=1 mem=[rsi+rcx*3] bit=0",
            9,
            "an index is scaled by 1, 2, 4 or 8",
        ),
        (
            "event=1 mem=[rsi+rcx] bit=0",
            9,
            "a displacement is +NUMBER or -NUMBER",
        ),
        (
            "event=1 mem=[[[[[[rsi]]]]]] bit=0",
            9,
            "pointers nest at most 4 deep",
        ),
        (
            "at=a+0 n=1 mem=[entry] bit=0",
            12,
            "[entry] is the log entry of an event",
        ),
        (
            "event=1 target=log reg=rax bit=0",
            9,
            "target=log needs a place in the log",
        ),
        (
            "event=1 target=agent mem=[log] bit=0",
            9,
            "the place belongs to log",
        ),
        (
            "event=1 target=app mem=[agent+0] bit=0",
            9,
            "the place belongs to agent",
        ),
        (
            "event=1 target=kernel reg=rax bit=0",
            9,
            "target= takes app, agent or log",
        ),
        ("read=* byte=0 bit=0", 20, "read= needs n="),
        (
            "read=* offset=9-9 n=1 byte=0 bit=0",
            8,
            "offset= takes a position",
        ),
        ("read=* n=1", 11, "a fault of read= says what it hits"),
        ("read=* n=1 byte=-1 bit=0", 12, "byte= takes a number"),
        (
            "read=* n=1 byte=0",
            18,
            "'byte=0' needs bit=, bits= or mask=",
        ),
        (
            "read=* n=1 kind=lost",
            12,
            "a read can be stale, misdirected",
        ),
        (
            "write=* n=1 kind=stale",
            13,
            "a write can be lost, torn, misdirected",
        ),
        (
            "write=* n=1 kind=crash",
            13,
            "a write can be lost, torn, misdirected",
        ),
        ("write=* n=1 kind=torn", 22, "kind=torn needs keep="),
        (
            "write=* n=1 kind=misdirected by=0",
            30,
            "by= takes a distance",
        ),
        ("write=* n=1 kind=lost by=8", 23, "by goes with"),
        (
            "write=* n=1 reg=rax bit=0",
            26,
            "a fault of write= says what it hits",
        ),
        ("at=a+0 n=1 kind=torn", 12, "this needs a transfer"),
        ("event=1 byte=1 bit=0", 9, "byte goes with"),
        ("event=1 offset=1 reg=rax bit=0", 9, "offset goes with"),
    ] {
        let error = refuse(line);
        assert!(
            error.requirement.contains(requirement),
            "{line}\n  {}\n  {requirement}",
            error.requirement
        );
        assert_eq!(error.column, column, "{line}\n  {error}");
        assert!(!error.fix.is_empty(), "{line}");
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
    for (pattern, path, yes) in [
        ("*.db", "dir/a.db", true),
        ("*.db", "a.dbx", false),
        ("a?c", "abc", true),
        ("a?c", "a/c", false),
        ("stdout", "/dev/stdout", true),
        ("dir/*", "dir/a", true),
        ("dir/*", "dir/a/b", false),
        ("dir/**", "dir/a/b", true),
        ("**/b", "x/dir/a/b", true),
        ("/etc/*", "etc/passwd", false),
        ("*", "a", true),
        ("", "a", false),
    ] {
        let matched = PathGlob::of(pattern).is_some_and(|glob| glob.matches(path));
        assert_eq!(matched, yes, "{pattern} {path}");
    }
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
        phase: EventPhase::BeforeArrival,
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

/// Bits in every density, from one to all.
fn any_bits(width: u16) -> impl Strategy<Value = Bits> {
    prop_oneof![
        (0..width).prop_map(|bit| Bits::single(bit).expect("below 512")),
        proptest::collection::vec(0..width, 1..40).prop_map(|positions| {
            let mut set = Bits::default();
            for bit in positions {
                set.insert(bit);
            }
            set
        }),
        (0..width, 0..width).prop_map(|(a, b)| {
            let mut set = Bits::default();
            for bit in a.min(b)..=a.max(b) {
                set.insert(bit);
            }
            set
        }),
    ]
}

fn any_module() -> impl Strategy<Value = Module> {
    prop_oneof![
        Just(Module::Agent),
        proptest::collection::vec(any::<u8>(), 1..=32).prop_map(Module::BuildId),
        "[a-zA-Z0-9_.+~@-]{1,12}"
            .prop_filter_map("a name with another meaning", |name| Module::named(&name)
                .ok()),
    ]
}

fn any_location() -> impl Strategy<Value = Location> {
    prop_oneof![
        any::<u64>().prop_map(Location::Absolute),
        (any_module(), any::<u64>())
            .prop_map(|(module, offset)| Location::Offset { module, offset }),
        (any_module(), "[a-zA-Z0-9_.$@]{1,20}", any::<u64>()).prop_map(
            |(module, symbol, offset)| Location::Symbol {
                module,
                symbol,
                offset
            }
        ),
    ]
}

fn any_gpr() -> impl Strategy<Value = Gpr> {
    (0_u8..16).prop_map(|n| Gpr::new(n).expect("below 16"))
}

fn any_register() -> impl Strategy<Value = Register> {
    let lane = |bits: u16| {
        prop_oneof![
            Just(None),
            (prop_oneof![
                Just((LaneWidth::Byte, 8_u16)),
                Just((LaneWidth::Word, 16)),
                Just((LaneWidth::Dword, 32)),
                Just((LaneWidth::Qword, 64)),
            ])
            .prop_flat_map(move |(width, size)| {
                let count = u8::try_from(bits / size).expect("64 at most");
                (0..count).prop_map(move |index| Some(Lane { width, index }))
            })
        ]
    };
    let vector = move |width, bits| {
        (0_u8..32, lane(bits)).prop_map(move |(index, lane)| Register::Vector {
            index,
            width,
            lane,
        })
    };
    prop_oneof![
        (
            any_gpr(),
            prop_oneof![
                Just(GprPart::Low8),
                Just(GprPart::Low16),
                Just(GprPart::Low32),
                Just(GprPart::Full)
            ]
        )
            .prop_map(|(gpr, part)| Register::Gpr(gpr, part)),
        (0_u8..4).prop_map(|n| Register::Gpr(Gpr::new(n).expect("below 16"), GprPart::High8)),
        Just(Register::Flags),
        vector(VectorWidth::Xmm, 128),
        vector(VectorWidth::Ymm, 256),
        vector(VectorWidth::Zmm, 512),
        (0_u8..8).prop_map(Register::Mask),
        Just(Register::Mxcsr),
        Just(Register::FsBase),
        Just(Register::GsBase),
    ]
}

fn any_expr() -> impl Strategy<Value = MemExpr> {
    let index = proptest::option::of((any_gpr(), 0_u32..4).prop_filter_map(
        "rsp is no index",
        |(register, power)| {
            (register.number() != 4).then_some(Index {
                register,
                scale: 1 << power,
            })
        },
    ));
    let leaf = prop_oneof![
        (any_gpr(), index, any::<i64>()).prop_map(|(base, index, d)| MemExpr {
            base: MemBase::Register { base, index },
            displacement: d
        }),
        any::<i64>().prop_map(|d| MemExpr {
            base: MemBase::FsBase,
            displacement: d
        }),
        any::<i64>().prop_map(|d| MemExpr {
            base: MemBase::Log,
            displacement: d
        }),
        any::<i64>().prop_map(|d| MemExpr {
            base: MemBase::Entry,
            displacement: d
        }),
        any::<u64>().prop_map(|a| MemExpr {
            base: MemBase::Absolute(a),
            displacement: 0
        }),
        any_location().prop_filter_map("absolute is another base", |location| {
            let relative = location.module().is_some();
            relative.then_some(MemExpr {
                base: MemBase::Static(location),
                displacement: 0,
            })
        }),
    ];
    leaf.prop_recursive(3, 4, 1, |inner| {
        (inner, any::<i64>()).prop_map(|(inner, d)| MemExpr {
            base: MemBase::Pointer(Box::new(inner)),
            displacement: d,
        })
    })
}

fn any_hits() -> impl Strategy<Value = Hits> {
    let odds = proptest::option::of((1_u64.., any::<u64>()).prop_map(|(one_in, seed)| Odds {
        one_in: NonZeroU64::new(one_in).expect("from 1"),
        seed,
    }));
    (
        1_u64..u64::MAX / 2,
        proptest::option::of(0_u64..1000),
        1_u64..100,
        odds,
    )
        .prop_map(|(first, span, step, odds)| Hits {
            first: NonZeroU64::new(first).expect("from 1"),
            last: span.and_then(|span| NonZeroU64::new(first + span)),
            step: NonZeroU64::new(if span == Some(0) { 1 } else { step }).expect("from 1"),
            odds,
        })
}

fn any_victim() -> impl Strategy<Value = Victim> {
    let replicas = prop_oneof![
        Just(Replicas::Leader),
        Just(Replicas::Follower),
        Just(Replicas::All),
        (1_u8..).prop_map(Replicas::Set)
    ];
    let process = prop_oneof![Just(Processes::All), any::<u32>().prop_map(Processes::Rank)];
    let thread = proptest::collection::vec(1_u32.., 0..4).prop_map(ThreadPath);
    let cpus = proptest::collection::btree_set(0_u32..256, 1..9)
        .prop_map(|cpus| cpus.into_iter().map(crate::ids::CoreId).collect::<CpuSet>());
    (
        proptest::option::of(replicas),
        proptest::option::of(process),
        proptest::option::of(thread),
        proptest::option::of(cpus),
    )
        .prop_map(|(replicas, process, thread, cpus)| Victim {
            replicas,
            process,
            thread,
            cpus,
        })
}

fn any_trigger() -> impl Strategy<Value = Trigger> {
    let scope = || {
        proptest::option::of(
            (any_module(), proptest::option::of("[a-zA-Z0-9_.$@]{1,20}"))
                .prop_map(|(module, symbol)| Scope { module, symbol }),
        )
    };
    let classes = proptest::sample::subsequence(InsnClass::ALL.to_vec(), 1..4);
    prop_oneof![
        (any_location(), any_hits()).prop_map(|(at, hits)| Trigger::Site { at, hits }),
        (classes, scope(), any_hits()).prop_map(|(classes, within, hits)| Trigger::Class {
            classes,
            within,
            hits
        }),
        (1_u64.., any::<bool>()).prop_map(|(index, after)| Trigger::Event {
            index: EventIndex(index),
            phase: if after {
                EventPhase::AfterVote
            } else {
                EventPhase::BeforeArrival
            },
        }),
        (
            proptest::sample::select(Access::ALL),
            "[a-z*?/.=]{1,6}".prop_filter_map("a path", |path| PathGlob::of(&path)),
            proptest::option::of((0_u64..1 << 40, 0_u64..1 << 40)),
            any_hits()
        )
            .prop_map(|(access, path, offset, hits)| Trigger::File {
                access,
                path,
                offset: offset.map(|(first, more)| Extent {
                    first,
                    last: first + more
                }),
                hits,
            }),
        (proptest::option::of(any::<u64>()), 1_u64.., scope()).prop_map(
            |(after_ns, every, within)| Trigger::Clock {
                after_ns,
                every_ns: NonZeroU64::new(every),
                within,
            }
        ),
    ]
}

fn any_effect() -> impl Strategy<Value = Effect> {
    let moment = || {
        prop_oneof![
            Just(Moment::Before),
            Just(Moment::BeforeOnly),
            Just(Moment::After)
        ]
    };
    let target = prop_oneof![
        (any_register(), moment()).prop_map(|(r, m)| (Target::Register(r, m), r.bits())),
        (any_expr(), moment()).prop_map(|(e, m)| (Target::Memory(e, m), 512)),
        Just((Target::ReadValue(Lasting::Sticky), 512)),
        Just((Target::ReadValue(Lasting::ReadOnly), 512)),
        Just((Target::WrittenValue, 512)),
        Just((Target::Address, 64)),
        Just((Target::ReadAddress, 64)),
        Just((Target::WrittenAddress, 64)),
        Just((Target::Ip, 64)),
        Just((Target::Code, 120)),
        any::<u64>().prop_map(|byte| (Target::Data(byte), 512)),
    ];
    let change = prop_oneof![
        Just(Change::Flip),
        Just(Change::Stuck0),
        Just(Change::Stuck1)
    ];
    let part = proptest::sample::select(Part::ALL);
    let bits = (
        target.prop_flat_map(|(target, width)| (Just(target), any_bits(width))),
        change,
        part,
    )
        .prop_map(|((target, bits), change, part)| Effect::Bits {
            part,
            target,
            bits,
            change,
        });
    prop_oneof![
        8 => bits,
        1 => proptest::sample::select(Mishap::ALL).prop_map(Effect::Mishap),
        1 => (1_u8..=64).prop_map(Effect::Kill),
        2 => prop_oneof![
            Just(Storage::Stale),
            Just(Storage::Lost),
            any::<u64>().prop_map(|keep| Storage::Torn { keep }),
            (1_i64..1 << 40, any::<bool>()).prop_filter_map("a distance", |(by, back)| {
                Some(Storage::Misdirected {
                    by: NonZeroI64::new(if back { -by } else { by })?,
                })
            }),
        ].prop_map(Effect::Storage),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// `Fault::new` says no to parts that do not go together, and never because a well-formed
    /// value prints as something else.
    #[test]
    fn every_well_formed_fault_prints_as_a_line_that_makes_it_again(
        victim in any_victim(), trigger in any_trigger(), effect in any_effect(),
    ) {
        let build = |effect| Fault::new(victim.clone(), trigger.clone(), effect);
        let built = match effect {
            // A place may belong to one part only; then just that part can be written.
            Effect::Bits { target, bits, change, .. } => Part::ALL.iter().map(|&part| {
                build(Effect::Bits { part, target: target.clone(), bits, change })
            }).collect(),
            other => vec![build(other)],
        };
        for fault in built.iter().flatten() {
            prop_assert_eq!(fault.to_string().parse::<Fault>(), Ok(fault.clone()));
        }
        let strange = |why: &FaultError| why.requirement.contains("reads back the same");
        prop_assert!(built.iter().any(|fault| !fault.as_ref().is_err_and(strange)), "{:?}", built);
    }

    #[test]
    fn bits_print_as_a_clause_that_makes_them_again(bits in any_bits(512)) {
        let line = format!("event=1 mem=[rsi] {bits}");
        match parse(&line).effect() {
            Effect::Bits { bits: read, .. } => prop_assert_eq!(*read, bits),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// Clauses thrown together: the parser says yes or no, never panics, and a yes is stable.
    #[test]
    fn no_heap_of_clauses_breaks_the_parser(clauses in proptest::collection::vec(proptest::sample::select(&[
        "replica=1", "replica=all", "process=0", "thread=main.1", "cpu=0-3", "at=a+1", "at=a!b", "class=load",
        "in=a", "n=1", "n=2..9%3", "one-in=5", "seed=1", "event=7", "after-vote", "time=1ms", "every=3ns",
        "target=agent", "target=log", "reg=rax", "reg=xmm1.d0", "flag=of", "mem=[rsi-1]", "mem=[entry+8]", "rval",
        "wval", "addr", "raddr", "waddr", "ip", "code", "once", "after", "bit=3", "bits=1-2,9", "mask=0xf0",
        "stuck=1", "read=*", "write=a/*", "offset=1-2", "byte=3", "kind=stale", "kind=torn", "keep=1", "kind=misdirected", "by=-8",
        "kind=hang", "kind=skip", "kill=11", "=", "x=", "at==", "mem=[", "n=..", "bit=-1",
    ][..]), 0..7)) {
        let line = clauses.join(" ");
        if let Ok(fault) = line.parse::<Fault>() {
            prop_assert_eq!(fault.to_string().parse::<Fault>(), Ok(fault));
        }
    }

    #[test]
    fn no_text_breaks_the_parser(text in "\\PC{0,60}") {
        let _ = text.parse::<Fault>();
        let _ = Fault::parse_all(&text);
    }

    #[test]
    fn no_value_breaks_the_parser(key in "(at|class|mem|reg|n|bits|mask|replica|cpu|thread|in|time|read|write|offset|byte|keep|by)", value in "[\\[\\]rsi0-9a-fx+*!.,%:-]{0,30}") {
        let _ = format!("event=1 {key}={value} reg=rax bit=0").parse::<Fault>();
        let _ = format!("{key}={value} n=1 reg=rax bit=0").parse::<Fault>();
    }
}
