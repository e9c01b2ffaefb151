//! A process that says what it must not: whatever its damage makes it say is a failure of it, and never an answer.

use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::message::{Fault, Memories, Order, Outcome, Reply};
use super::remote::{Function, Process, Remote, Running, Start};
use crate::engine::{Asked, Callee, Failure, Import, Journal, Limits, open};
use crate::shape::Shape;
use crate::value::{Handle, Value};
use crate::wire::Line;
use crate::words::CallError;

/// Somebody whom nobody asks.
struct Nobody;

impl Callee for Nobody {
    fn call(&self, _: usize, _: &[Value]) -> Result<Option<Value>, CallError> {
        panic!("it was asked");
    }

    fn discard(&self, _: Handle) -> Result<(), CallError> {
        panic!("it was asked");
    }
}

const MEMORY: (usize, u32) = (65_536, 7);
/// Functions: one that gives a number, one that gives an object, one that gives nothing.
const NUMBER: usize = 0;
const OBJECT: usize = 1;
const NOTHING: usize = 2;

/// A component whose process gives these replies, whatever it is told.
fn speaking(replies: Vec<Reply>) -> Remote {
    let function = |result| Function {
        interface: "i".into(),
        name: "f".into(),
        own: Vec::new(),
        result,
    };
    let start = Start {
        name: "c".into(),
        image: "none".into(),
        functions: vec![
            function(Some(Shape::U32)),
            function(Some(Shape::Option(Box::new(Shape::Handle(0))))),
            function(None),
        ],
        init: None,
        limits: Limits {
            memory: 1 << 16,
            call: Duration::from_secs(1),
        },
        pad: true,
        memories: OnceLock::from(Memories::from([MEMORY])),
    };
    // What it would be replaced by does not start.
    let process = Process {
        program: "/nonexistent/process".into(),
        args: Vec::new(),
    };
    let import = Import {
        interface: "other".into(),
        functions: Vec::new(),
        resources: Vec::new(),
        callee: Arc::new(Nobody),
        keeps: false,
    };
    let journal = Arc::new(Mutex::new(Journal::new(false)));
    open(&journal).begin(false, 0);
    let mut remote = Remote::idle(&process, &Arc::new(start), &[import], &journal);
    let (near, far) = UnixStream::pair().expect("a pair");
    std::thread::spawn(move || {
        let mut line = Line::new(far);
        for reply in replies {
            if line.receive::<Order>(|| Ok(())).is_err() {
                return;
            }
            let _ = line.send(&reply);
        }
    });
    let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
    remote.running = Some(Running {
        child: child.expect("it runs"),
        line: Line::new(near),
        text: 0..0,
    });
    remote
}

fn done(value: Option<Value>, made: &[u32]) -> Reply {
    Reply::Done(Box::new(Outcome {
        value,
        made: made.to_vec(),
        held: Vec::new(),
    }))
}

fn call(remote: &mut Remote, function: usize) -> Result<(Option<Value>, Vec<u32>), Failure> {
    let mut made = Vec::new();
    let value = remote.call(function, &[], &mut |_| None, function != NOTHING, &mut made)?;
    Ok((value, made))
}

fn object(index: u32) -> Option<Value> {
    let handle = Value::Handle(Handle {
        index,
        generation: 0,
    });
    Some(Value::Option(Some(Box::new(handle))))
}

/// What a process answers to a call of a function: a value, and the objects that it has made.
struct Answer {
    function: usize,
    value: Option<Value>,
    made: &'static [u32],
}

#[test]
fn a_result_of_another_type_is_no_answer() {
    for Answer {
        function,
        value,
        made,
    } in [
        Answer {
            function: NUMBER,
            value: Some(Value::U64(5)),
            made: &[],
        },
        Answer {
            function: NUMBER,
            value: None,
            made: &[],
        },
        Answer {
            function: NUMBER,
            value: object(0),
            made: &[4],
        },
        // A number of its own in place of an object that it has made.
        Answer {
            function: OBJECT,
            value: object(0),
            made: &[],
        },
        Answer {
            function: OBJECT,
            value: Some(Value::Option(None)),
            made: &[4],
        },
        Answer {
            function: NOTHING,
            value: Some(Value::U32(5)),
            made: &[],
        },
    ] {
        let mut remote = speaking(vec![done(value.clone(), made)]);
        let found = call(&mut remote, function);
        assert!(
            matches!(found, Err(Failure::Ended(_))),
            "{value:?}: {found:?}"
        );
        assert!(remote.pid().is_none(), "it is not spoken to again");
    }
    for Answer {
        function,
        value,
        made,
    } in [
        Answer {
            function: NUMBER,
            value: Some(Value::U32(5)),
            made: &[],
        },
        Answer {
            function: OBJECT,
            value: object(0),
            made: &[4],
        },
        Answer {
            function: OBJECT,
            value: Some(Value::Option(None)),
            made: &[],
        },
        Answer {
            function: NOTHING,
            value: None,
            made: &[],
        },
    ] {
        let mut remote = speaking(vec![done(value.clone(), made)]);
        assert_eq!(call(&mut remote, function), Ok((value, made.to_vec())));
        assert!(remote.pid().is_some());
    }
}

#[test]
fn it_asks_others_within_calls_alone() {
    let asks = || Reply::Ask(0, Asked::Call(0, Vec::new()));
    let mut remote = speaking(vec![asks()]);
    assert_eq!(remote.digest(), None);
    assert!(remote.pid().is_none());
    let mut remote = speaking(vec![asks()]);
    assert!(remote.reset(false).is_err(), "no other process starts");
    // Nobody was asked: `Nobody` would have said so. An import that does not exist ends the call.
    let wrong = Reply::Ask(9, Asked::Call(0, Vec::new()));
    let mut remote = speaking(vec![wrong, Reply::Failed(Fault::Unanswered, None)]);
    assert!(matches!(
        call(&mut remote, NUMBER),
        Err(Failure::Invalid(_))
    ));
}

#[test]
fn a_reset_to_another_memory_takes_a_new_process() {
    let mut remote = speaking(vec![Reply::Digest(vec![MEMORY])]);
    assert_eq!(remote.reset(false), Ok(()));
    assert!(!remote.renewed() && remote.pid().is_some());
    let other = (MEMORY.0, MEMORY.1 ^ 1);
    for memories in [vec![], vec![other], vec![MEMORY, MEMORY]] {
        let mut remote = speaking(vec![Reply::Digest(memories)]);
        // The one that is not there shows that another one was asked for.
        let found = remote.reset(false);
        assert!(found.is_err_and(|found| found.contains("/nonexistent/process")));
        assert!(remote.renewed() && remote.pid().is_none());
    }
}
