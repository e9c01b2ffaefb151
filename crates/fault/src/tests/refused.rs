//! What breaks a rule is refused, and the error names requirement, value and fix.

use super::*;

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
