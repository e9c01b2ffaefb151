//! Faults of services: the same parser, and errors in the same form.

use super::*;

fn strike(line: &str) -> ServiceFault {
    match line.parse() {
        Ok(fault) => fault,
        Err(why) => panic!("{why}\n  fix: {}", why.fix),
    }
}

#[test]
fn a_strike_prints_as_it_was_read() {
    for line in [
        "replica=1 object=item:a byte=2 bit=3",
        "replica=1 object=item:a;b#c=d field=cas byte=0 bit=0",
        "replica=0 object=client:web-1 byte=9 bit=7",
        "replica=7 object=log:head byte=24 bit=0",
    ] {
        assert_eq!(strike(line).to_string(), line);
    }
    for passing in Passing::ALL {
        let line = format!("replica=2 {passing} bit=77");
        let fault = strike(&line);
        assert_eq!(fault.to_string(), line);
        let (replica, bit) = (ReplicaId(2), 77);
        let passing = *passing;
        assert_eq!(fault.replica(), replica);
        assert_eq!(*fault.place(), Place::Next { passing, bit });
    }
    for field in Field::ALL {
        let fault = strike(&format!(
            "bit=0 byte=0 field={field} object=item:a replica=0"
        ));
        assert!(matches!(fault.place(), Place::Stored { field: it, .. } if it == field));
    }
}

#[test]
fn a_line_that_is_no_strike_says_where_and_what_would_be_one() {
    for (marked, requirement) in [
        ("^", "a strike says what it hits: one of object="),
        (
            "replica=1 reg=rax bit=0^",
            "a strike says what it hits: one of object=",
        ),
        (
            "replica=1 ^event=1 reg=rax bit=0",
            "event= is a moment of a program, which steadfast run --flip and inject hit",
        ),
        ("object=item:a byte=2 bit=3^", "a strike says whom it hits"),
        (
            "^replica=8 object=item:a byte=2 bit=3",
            "a strike has one replica, below 8",
        ),
        (
            "^replica=0,1 object=item:a byte=2 bit=3",
            "a strike has one replica",
        ),
        (
            "^replica=all message=reply bit=3",
            "a strike has one replica",
        ),
        ("replica=1 ^object=a byte=2 bit=3", "object= takes item:KEY"),
        (
            "replica=1 ^object=client: byte=2 bit=3",
            "object= takes item:KEY",
        ),
        ("replica=1 object=item:a bit=3^", "a strike needs byte="),
        ("replica=1 object=item:a byte=2^", "a strike needs bit="),
        (
            "replica=1 object=item:a byte=2 ^bit=8",
            "bit= takes a number below 8",
        ),
        (
            "replica=1 object=item:a byte=2 bit=3 ^bit=4",
            "bit is given once",
        ),
        (
            "replica=1 object=item:a ^field=age byte=2 bit=3",
            "field= takes one of value, key, flags",
        ),
        (
            "replica=1 object=log:head ^field=cas byte=0 bit=0",
            "field goes with object=item:",
        ),
        (
            "replica=1 ^message=fetch bit=1",
            "it is one of message=reply, message=check",
        ),
        (
            "replica=1 ^queue=reply bit=1",
            "it is one of queue=submit, queue=log",
        ),
        (
            "replica=1 message=check ^bit=128",
            "bit= takes a number below 128",
        ),
        ("replica=1 message=reply^", "a strike needs bit="),
        (
            "replica=1 message=reply ^object=item:a bit=1",
            "a fault has one of object=, message=, queue=, and 'message=reply' stands before",
        ),
        (
            "replica=1 message=reply ^byte=1 bit=1",
            "byte goes with read=, write= or object=",
        ),
        (
            "replica=1 ^event=4 message=reply bit=1",
            "event goes with a fault without",
        ),
        ("^whom=1", "a fault is made of known clauses"),
        ("^replica 1", "replica has a value"),
    ] {
        let (line, column) = unmarked(marked);
        let why = line.parse::<ServiceFault>().expect_err(&line);
        assert_eq!(why.column, column, "{line}: {why}");
        assert!(why.requirement.starts_with(requirement), "{line}: {why}");
        assert!(!why.fix.is_empty(), "{line}");
    }
}

#[test]
fn a_slip_is_told_its_word() {
    for (line, fix) in [
        ("replica=1 message=replay bit=1", "message=reply"),
        (
            "replica=1 object=item:a field=flag byte=0 bit=0",
            "field=flags",
        ),
        (
            "replica=1 obect=item:a byte=0 bit=0",
            "did you mean 'object'?",
        ),
    ] {
        assert_eq!(line.parse::<ServiceFault>().expect_err(line).fix, fix);
    }
}

/// A program has no objects, and a service no registers: the other command is named.
#[test]
fn a_strike_is_no_fault_of_a_program() {
    for (line, column) in [
        ("replica=1 object=item:a byte=2 bit=3", 11),
        ("message=reply bit=77", 1),
        ("replica=0 queue=log bit=5", 11),
    ] {
        let why = refuse(line);
        assert_eq!(why.column, column, "{why}");
        assert!(
            why.requirement.contains("which steadfast kv strike hits"),
            "{why}"
        );
        assert_eq!(why.fix, format!("steadfast kv strike '{line}'"));
    }
}

#[test]
fn what_an_engine_does_not_have_is_refused_at_its_clause() {
    let line = "replica=5 object=item:a byte=2 bit=3";
    let why = FaultError::beyond(line, "replica", "this group has three", "replica=1");
    assert_eq!(
        why.to_string(),
        "fault \"replica=5 object=item:a byte=2 bit=3\", column 1: this group has three, \
         found 'replica=5'"
    );
    assert_eq!(why.fix, "replica=1");
}

#[test]
fn the_strikes_of_the_manual_are_strikes_of_the_parser() {
    let manual = include_str!("../../../../docs/reference/fault-grammar.md");
    let examples: Vec<&str> = manual
        .split("```strike\n")
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .flat_map(str::lines)
        .map(|line| line.split(" #").next().unwrap_or(line).trim_end())
        .collect();
    for example in &examples {
        assert_eq!(strike(example).to_string(), *example);
    }
    for passing in Passing::ALL {
        let has = |line: &&str| line.contains(passing.word());
        assert!(examples.iter().any(has), "no example of {passing}");
        let row = format!("| `{passing}` |");
        assert!(manual.contains(&row), "the manual says what {passing} is");
    }
    for object in ["object=item:", "object=client:", "object=log:head"] {
        assert!(
            examples.iter().any(|line| line.contains(object)),
            "{object}"
        );
    }
    for field in Field::ALL {
        assert!(manual.contains(&format!("\"{field}\"")), "{field}");
    }
}
