//! A component in a process of its own, behind the same stubs.
//!
//! ```text
//!   host: stubs, slot table, keeper ──Start, Call, Discard, Reset──► process: Store, instance, memory
//!         edges to others, journal  ◄──Ask────────────────────────── (serve.rs)
//! ```
//!
//! Flips in a component, wild stores and jumps included, then reach nothing of the host. A process that ends is one more failure: it is started
//! again, and objects come back as after any reset.
//!
//! | Tier | When |
//! |---|---|
//! | reset in the process | a failure that the process itself has reported |
//! | a new process | it has ended, is silent for too long, says what is no message, or did not come back by a reset |
//! | give up | so many tries in a row have failed, or too many failures in a window (`Policy`) |
//!
//! Invariants
//!  1. The host waits no longer for a process than [`SILENT`] beyond its own limit of a call.
//!  2. What a process holds at others is known here, so it is given back when the process is gone.
//!  3. A process ends with its host: its socket says so.
//!
//! Not covered: the priority of the caller, which another process does not inherit.

mod serve;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast_sys::cpu;
use steadfast_sys::pad::Seen;

pub use self::serve::serve;
use crate::engine::{Asked, Failure, Image, Import, Journal, Limits, answered, put};
use crate::host::BodyDump;
use crate::value::{Handle, Value};
use crate::wire::{Bytes, Line, Rest, Wire, part, variants};

/// The program that runs a component: it calls [`serve`], and finds its socket as standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// What a process needs to know of a component.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) name: String,
    pub(crate) image: PathBuf,
    pub(crate) functions: Vec<Function>,
    pub(crate) init: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) pad: bool,
}

/// One function that is called.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) interface: String,
    pub(crate) name: String,
    /// Arguments that are given away.
    pub(crate) own: Vec<usize>,
}

/// A function of an import: its name, its place, and which resource it gives an object of.
type Wanted = (String, usize, Option<usize>);

/// What the host says.
enum Order {
    Start(Box<Opening>),
    /// Function, whether it has a result, arguments; a handle is the process's number for an object.
    Call(usize, bool, Vec<Value>),
    Discard(u32),
    Reset,
    /// A bit of linear memory.
    Flip(usize, u8),
    /// A general register and its bit, at the next tick that finds the component's code.
    Strike(u32, u32),
    Struck,
    Digest,
    Dump,
    /// Answers [`Reply::Ask`]; none where the call is over.
    Answer(Option<Option<Value>>),
}
variants!(Order {
    1 Start(opening),
    2 Call(function, has_result, args),
    3 Discard(object),
    4 Reset,
    5 Flip(address, bit),
    6 Strike(register, bit),
    7 Struck,
    8 Digest,
    9 Dump,
    10 Answer(answer),
});

/// The first order.
struct Opening {
    name: String,
    image: String,
    /// Interface, name, arguments that are given away.
    functions: Vec<(String, String, Vec<usize>)>,
    imports: Vec<(String, Vec<Wanted>)>,
    init: Option<String>,
    memory: usize,
    call_ns: u64,
    pad: bool,
}

impl Wire for Opening {
    fn put(&self, out: &mut Vec<u8>) {
        (self.name.clone(), self.image.clone()).put(out);
        self.functions.put(out);
        self.imports.put(out);
        self.init.put(out);
        (self.memory, self.call_ns, self.pad).put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (name, image) = Wire::take(rest)?;
        let (functions, imports) = (Wire::take(rest)?, Wire::take(rest)?);
        let init = Wire::take(rest)?;
        let (memory, call_ns, pad) = Wire::take(rest)?;
        Some(Self {
            name,
            image,
            functions,
            imports,
            init,
            memory,
            call_ns,
            pad,
        })
    }
}

/// What the process says.
enum Reply {
    /// Where the component's code lies there.
    Started(u64, u64),
    /// It does not start, or did not come back.
    Refused(String),
    Done(Box<Outcome>),
    Failed(Fault, Option<Seen>),
    /// A question to another component, by the place of the import.
    Ask(usize, Asked),
    Yes(bool),
    /// Of each memory: length and checksum.
    Digest(Vec<(usize, u32)>),
    Dump(Vec<Bytes>),
}
variants!(Reply {
    1 Started(start, end),
    2 Refused(why),
    3 Done(outcome),
    4 Failed(fault, seen),
    5 Ask(import, asked),
    6 Yes(yes),
    7 Digest(memories),
    8 Dump(memories),
});

/// What a call came to.
struct Outcome {
    value: Option<Value>,
    /// Numbers of the objects that it gave.
    made: Vec<u32>,
    /// What the component holds at others.
    held: Vec<(usize, Handle)>,
}

impl Wire for Outcome {
    fn put(&self, out: &mut Vec<u8>) {
        self.value.put(out);
        self.made.put(out);
        self.held.put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Some(Self {
            value: Wire::take(rest)?,
            made: Wire::take(rest)?,
            held: Wire::take(rest)?,
        })
    }
}

/// [`Failure`], as a process tells it.
enum Fault {
    Pad,
    Trap(String),
    Hang(u64),
    Invalid(String),
    /// It was answered [`Order::Answer`] without an answer; the host knows why.
    Unanswered,
}
variants!(Fault {
    1 Pad,
    2 Trap(what),
    3 Hang(at),
    4 Invalid(what),
    5 Unanswered,
});

impl Wire for Asked {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Call(function, args) => (1_u8, *function, args.clone()).put(out),
            Self::Discard(handle) => (2_u8, *handle).put(out),
        }
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Some(match u8::take(rest)? {
            1 => Self::Call(Wire::take(rest)?, Wire::take(rest)?),
            2 => Self::Discard(Wire::take(rest)?),
            _ => return None,
        })
    }
}

/// A process may say nothing for so long beyond its limit of a call: on a busy machine it waits for the processor.
pub const SILENT: Duration = Duration::from_secs(5);
/// So long is waited before somebody looks whether it still computes.
const LOOK: Duration = Duration::from_millis(20);
/// It loads an image and tests its pad.
const START: Duration = Duration::from_secs(20);

/// A process that runs.
struct Running {
    child: Child,
    line: Line,
    text: Range<u64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// How it ended, in words.
    fn ended(&mut self, error: &io::Error) -> String {
        // The socket may close a moment before the status is there; one that is damaged need not end by itself.
        let _ = self.child.kill();
        let status = self.child.wait();
        match (error.kind(), status) {
            (
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset,
                Ok(status),
            ) => {
                let signal = status.signal();
                signal.map_or_else(|| status.to_string(), |signal| format!("signal {signal}"))
            }
            _ => error.to_string(),
        }
    }

    /// The next reply, within a limit: of processor time, or of silence.
    fn receive(&mut self, limit: Duration) -> io::Result<Reply> {
        let pid = self.child.id().cast_signed();
        let spent = || cpu::process_time_ns(pid).map_or(Duration::ZERO, Duration::from_nanos);
        let begin = Instant::now();
        let mut before = None;
        self.line.receive(|| {
            // The breaker of the process comes first; this is for a process that its breaker does not reach.
            let computed = spent().saturating_sub(*before.get_or_insert_with(spent));
            if computed > 2 * limit + LOOK || begin.elapsed() > limit + SILENT {
                return Err(io::Error::other("it was silent for too long"));
            }
            Ok(())
        })
    }
}

/// The host's side of a component in a process of its own.
pub(crate) struct Remote {
    process: Process,
    start: Arc<Start>,
    imports: Vec<Import>,
    journal: Arc<Mutex<Journal>>,
    running: Option<Running>,
    /// What it holds at others, or more: what it gave away in a call that failed may be among it.
    held: BTreeSet<(usize, Handle)>,
    seen: Option<Seen>,
    /// Whether the last reset took a new process.
    renewed: bool,
}

impl Remote {
    /// Starts a process.
    pub(crate) fn new(
        process: &Process,
        start: &Arc<Start>,
        imports: &[Import],
        journal: &Arc<Mutex<Journal>>,
    ) -> Result<Self, String> {
        let mut remote = Self {
            process: process.clone(),
            start: start.clone(),
            imports: imports.to_vec(),
            journal: journal.clone(),
            running: None,
            held: BTreeSet::new(),
            seen: None,
            renewed: false,
        };
        remote.launch()?;
        Ok(remote)
    }

    fn launch(&mut self) -> Result<(), String> {
        self.running = None;
        let told = |error: io::Error| format!("{}: {error}", self.process.program.display());
        let (near, far) = UnixStream::pair().map_err(told)?;
        near.set_read_timeout(Some(LOOK)).map_err(told)?;
        let child = Command::new(&self.process.program)
            .args(&self.process.args)
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(told)?;
        let mut running = Running {
            child,
            line: Line::new(near),
            text: 0..0,
        };
        let opening = Order::Start(Box::new(self.opening()));
        let sent = running.line.send(&opening);
        match sent.and_then(|()| running.receive(START)) {
            Ok(Reply::Started(start, end)) => running.text = start..end,
            Ok(Reply::Refused(why)) => return Err(why),
            Ok(_) => return Err("its process does not speak as it must".into()),
            Err(error) => return Err(format!("its process: {}", running.ended(&error))),
        }
        self.running = Some(running);
        Ok(())
    }

    fn opening(&self) -> Opening {
        let start = &self.start;
        let functions = start.functions.iter();
        let functions = functions.map(|f| (f.interface.clone(), f.name.clone(), f.own.clone()));
        let imports = self.imports.iter().map(|import| {
            let wanted = import.functions.iter();
            let wanted = wanted.map(|f| (f.name.clone(), f.place, f.gives));
            (import.interface.clone(), wanted.collect())
        });
        Opening {
            name: start.name.clone(),
            image: start.image.to_string_lossy().into_owned(),
            functions: functions.collect(),
            imports: imports.collect(),
            init: start.init.clone(),
            memory: start.limits.memory,
            call_ns: u64::try_from(start.limits.call.as_nanos()).unwrap_or(u64::MAX),
            pad: start.pad,
        }
    }

    /// One order and its last reply; questions in between are answered.
    fn tell(&mut self, order: &Order) -> Result<Reply, Failure> {
        let limit = self.start.limits.call;
        let Some(running) = self.running.as_mut() else {
            return Err(Failure::Ended("it has no process".into()));
        };
        let mut unanswered = None;
        let mut sent = running.line.send(order);
        loop {
            let reply = match sent.and_then(|()| running.receive(limit)) {
                Ok(Reply::Ask(import, asked)) => (import, asked),
                Ok(Reply::Failed(Fault::Unanswered, _)) if unanswered.is_some() => {
                    return Err(unanswered.unwrap_or(Failure::Ended(String::new())));
                }
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    let why = running.ended(&error);
                    self.running = None;
                    return Err(Failure::Ended(why));
                }
            };
            let (import, asked) = reply;
            let found = match self.imports.get(import) {
                Some(known) => {
                    let ask = || put(&*known.callee, &asked);
                    answered(&self.journal, import, &asked, ask).map_err(Failure::from)
                }
                None => Err(Failure::Invalid("it asks somebody who is not there".into())),
            };
            if let (Asked::Discard(handle), true) = (&asked, found.is_ok()) {
                self.held.remove(&(import, *handle));
            }
            let found = match found {
                Ok(answer) => {
                    let given = answer.as_ref().and_then(Value::handle);
                    self.held.extend(given.map(|handle| (import, handle)));
                    Some(answer)
                }
                Err(failure) => {
                    unanswered = Some(failure);
                    None
                }
            };
            sent = running.line.send(&Order::Answer(found));
        }
    }

    /// The same for an order whose reply says how a call ended.
    fn outcome(&mut self, order: &Order) -> Result<Outcome, Failure> {
        match self.tell(order)? {
            Reply::Done(outcome) => {
                self.held = outcome.held.iter().copied().collect();
                Ok(*outcome)
            }
            Reply::Failed(fault, seen) => {
                self.seen = seen;
                Err(match (fault, seen) {
                    (Fault::Pad, Some(seen)) => Failure::Pad(Box::new(seen)),
                    (Fault::Trap(what), _) => Failure::Trap(what),
                    (Fault::Hang(at), _) => Failure::Hang(at),
                    (Fault::Invalid(what), _) => Failure::Invalid(what),
                    (Fault::Pad | Fault::Unanswered, _) => self.nonsense(),
                })
            }
            _ => Err(self.nonsense()),
        }
    }

    /// Who does not keep to what is agreed is not spoken to again.
    fn nonsense(&mut self) -> Failure {
        self.running = None;
        Failure::Ended("it does not speak as it must".into())
    }

    pub(crate) fn call(
        &mut self,
        function: usize,
        args: &[Value],
        inner: &mut dyn FnMut(Handle) -> Option<u32>,
        has_result: bool,
        made: &mut Vec<u32>,
    ) -> Result<Option<Value>, Failure> {
        let args: Option<Vec<Value>> = args.iter().map(|arg| arg.numbered(inner)).collect();
        let Some(args) = args else {
            return Err(Failure::Invalid("an argument names no object".into()));
        };
        let outcome = self.outcome(&Order::Call(function, has_result, args))?;
        if outcome.value.is_some() != has_result {
            return Err(self.nonsense());
        }
        made.extend(outcome.made);
        Ok(outcome.value)
    }

    pub(crate) fn discard(&mut self, object: u32) -> Result<(), Failure> {
        self.outcome(&Order::Discard(object)).map(drop)
    }

    /// In place where the process can, else, or where that was not enough before, by a new process.
    pub(crate) fn reset(&mut self, anew: bool) -> Result<(), String> {
        (self.seen, self.renewed) = (None, false);
        self.held.clear();
        if !anew && self.running.is_some() {
            match self.tell(&Order::Reset) {
                Ok(Reply::Yes(true)) => return Ok(()),
                // A new process, at once.
                _ => self.running = None,
            }
        }
        self.renewed = true;
        self.launch()
    }

    /// Whether the last reset took a new process.
    pub(crate) fn renewed(&self) -> bool {
        self.renewed
    }

    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    pub(crate) fn text(&self) -> Range<u64> {
        self.running
            .as_ref()
            .map_or(0..0, |running| running.text.clone())
    }

    pub(crate) fn held(&self) -> BTreeSet<(usize, Handle)> {
        self.held.clone()
    }

    pub(crate) fn flip(&mut self, address: usize, bit: u8) -> bool {
        matches!(self.tell(&Order::Flip(address, bit)), Ok(Reply::Yes(true)))
    }

    /// Arms a flip of a register of the process.
    pub(crate) fn strike(&mut self, register: u32, bit: u32) -> bool {
        matches!(
            self.tell(&Order::Strike(register, bit)),
            Ok(Reply::Yes(true))
        )
    }

    /// Whether the flip that was armed last has been made. None where the process that was to make it is gone, or another one.
    pub(crate) fn struck(&mut self) -> Option<bool> {
        match self.tell(&Order::Struck) {
            Ok(Reply::Yes(yes)) => Some(yes),
            _ => None,
        }
    }

    /// Length and checksum of each memory.
    pub(crate) fn digest(&mut self) -> Option<Vec<(usize, u32)>> {
        match self.tell(&Order::Digest) {
            Ok(Reply::Digest(memories)) => Some(memories),
            _ => None,
        }
    }

    pub(crate) fn memories(&mut self) -> Image {
        match self.tell(&Order::Dump) {
            Ok(Reply::Dump(memories)) => memories.into_iter().map(|bytes| bytes.0).collect(),
            _ => Image::new(),
        }
    }

    pub(crate) fn dump(&mut self) -> BodyDump {
        BodyDump {
            seen: self.seen,
            memories: self.memories(),
        }
    }
}
