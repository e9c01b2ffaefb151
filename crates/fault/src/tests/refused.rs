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
    for (marked, requirement) in [
        (
            "^",
            "a fault says when it happens: at=, class=, read=, write=, event=, time= or every=",
        ),
        (
            "replica=1^",
            "a fault says when it happens: at=, class=, read=, write=, event=, time= or every=",
        ),
        ("event=1^", "a fault says what it hits"),
        ("event=1 reg=rax^", "'reg=rax' needs bit=, bits= or mask="),
        ("^evnt=1", "a fault is made of known clauses"),
        ("^event", "event has a value"),
        ("^event=", "event has a value"),
        ("at=a+0 n=1 ^ip=3 bit=0", "ip has no value"),
        (
            "event=1 ^event=2 reg=rax bit=0",
            "event is given once, and stands in column 1 already",
        ),
        (
            "at=a+0 n=1 ^event=2 reg=rax bit=0",
            "a fault has one of at=, class=, read=, write=, event=, time=",
        ),
        ("^event=0 reg=rax bit=0", "event counts from 1"),
        (
            "event=1 ^every=1s reg=rax bit=0",
            "every= goes with time=, and 'event=1' stands there",
        ),
        (
            "^every=0s reg=rax bit=0",
            "every= takes a period above zero",
        ),
        (
            "^time=10 reg=rax bit=0",
            "time= takes a whole number of ns, us, ms or s",
        ),
        ("at=a+0 reg=rax bit=0^", "at= needs n="),
        ("at=a+0 ^n=0 reg=rax bit=0", "n= takes K"),
        ("at=a+0 ^n=5..5 reg=rax bit=0", "n= takes K"),
        ("at=a+0 ^n=5..4 reg=rax bit=0", "n= takes K"),
        ("at=a+0 ^n=5%2 reg=rax bit=0", "n= takes K"),
        ("at=a+0 ^n=1..%1 reg=rax bit=0", "n= takes K"),
        ("at=a+0 ^n=+1 reg=rax bit=0", "n= takes K"),
        (
            "at=a+0 n=1.. one-in=10 reg=rax bit=0^",
            "one-in= needs seed=",
        ),
        (
            "at=a+0 n=1.. ^seed=10 reg=rax bit=0",
            "seed goes with one-in=",
        ),
        (
            "event=1 ^n=1 reg=rax bit=0",
            "n goes with at=, class=, read= or write=",
        ),
        (
            "event=1 ^in=a reg=rax bit=0",
            "in goes with class=, time= or every=",
        ),
        (
            "at=a+0 n=1 ^after-vote reg=rax bit=0",
            "after-vote goes with event=",
        ),
        ("^at=a n=1 reg=rax bit=0", "a place is MODULE+OFFSET"),
        (
            "^at=/bin/a+0 n=1 reg=rax bit=0",
            "a module is a file name without directory",
        ),
        (
            "^at=rax+0 n=1 reg=rax bit=0",
            "'rax' has another meaning here",
        ),
        (
            "^at=log-tool+0 n=1 reg=rax bit=0",
            "'log-tool' has another meaning here",
        ),
        (
            "^at=a+x n=1 reg=rax bit=0",
            "an offset is a number such as 0x1a2f0, not 'x'",
        ),
        (
            "^at=a! n=1 reg=rax bit=0",
            "a symbol is spelled as nm prints it",
        ),
        (
            "^at=build-id:0+0 n=1 reg=rax bit=0",
            "a build id is 1 to 32 bytes",
        ),
        (
            "^class=mul n=1.. reg=rax bit=0",
            "class= takes instruction classes",
        ),
        (
            "^class=load,load n=1.. reg=rax bit=0",
            "class= names each class once",
        ),
        (
            "^replica=8 event=1 reg=rax bit=0",
            "replica= takes leader, follower, all, or numbers below 8",
        ),
        (
            "^replica=1,1 event=1 reg=rax bit=0",
            "replica= takes leader",
        ),
        ("^thread=main.0 event=1 reg=rax bit=0", "thread= takes main"),
        ("^cpu=1-0 event=1 reg=rax bit=0", "cpu= takes ascending"),
        (
            "^process=first event=1 reg=rax bit=0",
            "process= takes all or a rank",
        ),
        (
            "event=1 reg=rax ^ip bit=0",
            "a fault has one of reg=, flag=, mem=",
        ),
        (
            "event=1 reg=rax bit=0 ^mask=0x1",
            "a fault has one of bit=, bits=, mask=",
        ),
        ("event=1 reg=rax ^bit=64", "'reg=rax' has bits 0 to 63"),
        ("event=1 reg=al ^bit=8", "'reg=al' has bits 0 to 7"),
        (
            "event=1 reg=xmm0 ^mask=0x100000000000000000000000000000000",
            "'reg=xmm0' has bits 0 to 127",
        ),
        ("at=a+0 n=1 code ^bit=120", "'code' has bits 0 to 119"),
        (
            "event=1 mem=[rsi] ^bit=512",
            "bit= takes one number below 512",
        ),
        ("event=1 reg=rax ^bits=1,1", "bit 1 is listed twice"),
        ("event=1 reg=rax ^bits=3-1", "a range ascends"),
        (
            "event=1 reg=rax ^mask=0",
            "a mask is 0x and hexadecimal digits",
        ),
        (
            "event=1 reg=rax ^mask=0x0",
            "a mask of zero changes nothing",
        ),
        ("event=1 reg=rax bit=0 ^stuck=2", "stuck= takes 0 or 1"),
        ("event=1 ^reg=xmm32 bit=0", "reg= takes a register"),
        ("event=1 ^reg=xmm1.q2 bit=0", "reg= takes a register"),
        ("event=1 ^reg=xmm01 bit=0", "reg= takes a register"),
        (
            "event=1 ^flag=tf",
            "flag= takes cf, pf, af, zf, sf, df, of, each once",
        ),
        (
            "event=1 flag=zf ^bit=0",
            "bit goes with a target other than flag=",
        ),
        ("event=1 ^rval bit=0", "rval goes with at= or class="),
        ("event=1 ^addr bit=0", "addr goes with at= or class="),
        ("time=1s ^ip bit=0", "ip goes with at=, class= or event="),
        (
            "event=1 reg=rax ^after bit=0",
            "after goes with reg= or mem= with at= or class=",
        ),
        (
            "at=a+0 n=1 reg=rax after ^once bit=0",
            "a fault has one of once, after",
        ),
        ("event=1 ^kind=skip", "this needs an instruction"),
        ("event=1 ^kind=boom", "kind= takes one of crash"),
        ("event=1 kind=crash ^bit=0", "bit goes with"),
        (
            "event=1 kind=crash ^target=agent",
            "target goes with a fault in bits",
        ),
        ("event=1 ^kill=65", "kill= takes a signal number"),
        ("event=1 kill=9 ^kind=crash", "a fault has one of"),
        ("event=1 ^mem=rsi bit=0", "an address is ["),
        ("event=1 ^mem=[rsx] bit=0", "an address is ["),
        ("event=1 ^mem=[rsi*8] bit=0", "an address is ["),
        (
            "event=1 ^mem=[rsi+rsp*8] bit=0",
            "an index is a 64-bit register other than rsp",
        ),
        (
            "event=1 ^mem=[rsi+rcx*3] bit=0",
            "an index is scaled by 1, 2, 4 or 8",
        ),
        (
            "event=1 ^mem=[rsi+rcx] bit=0",
            "a displacement is +NUMBER or -NUMBER",
        ),
        (
            "event=1 ^mem=[[[[[[rsi]]]]]] bit=0",
            "pointers nest at most 4 deep",
        ),
        (
            "at=a+0 n=1 ^mem=[entry] bit=0",
            "[entry] is the log entry of an event",
        ),
        (
            "event=1 ^target=log reg=rax bit=0",
            "target=log needs a place in the log",
        ),
        (
            "event=1 ^target=agent mem=[log] bit=0",
            "the place belongs to log",
        ),
        (
            "event=1 ^target=app mem=[agent+0] bit=0",
            "the place belongs to agent",
        ),
        (
            "event=1 ^target=kernel reg=rax bit=0",
            "target= takes app, agent or log",
        ),
        ("read=* byte=0 bit=0^", "read= needs n="),
        (
            "read=* ^offset=9-9 n=1 byte=0 bit=0",
            "offset= takes a position",
        ),
        ("read=* n=1^", "a fault of read= says what it hits"),
        ("read=* n=1 ^byte=-1 bit=0", "byte= takes a number"),
        ("read=* n=1 byte=0^", "'byte=0' needs bit=, bits= or mask="),
        ("read=* n=1 ^kind=lost", "a read can be stale, misdirected"),
        (
            "write=* n=1 ^kind=stale",
            "a write can be lost, torn, misdirected",
        ),
        (
            "write=* n=1 ^kind=crash",
            "a write can be lost, torn, misdirected",
        ),
        ("write=* n=1 kind=torn^", "kind=torn needs keep="),
        ("write=* n=1 kind=misdirected ^by=0", "by= takes a distance"),
        ("write=* n=1 kind=lost ^by=8", "by goes with"),
        (
            "write=* n=1 reg=rax bit=0^",
            "a fault of write= says what it hits",
        ),
        ("at=a+0 n=1 ^kind=torn", "this needs a transfer"),
        ("event=1 ^byte=1 bit=0", "byte goes with"),
        ("event=1 ^offset=1 reg=rax bit=0", "offset goes with"),
    ] {
        let (line, column) = unmarked(marked);
        let error = refuse(&line);
        assert!(
            error.requirement.contains(requirement),
            "{line}\n  {}\n  {requirement}",
            error.requirement
        );
        assert_eq!(error.column, column, "{line}\n  {error}");
        assert!(!error.fix.is_empty(), "{line}");
    }
}
