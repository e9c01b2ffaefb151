//! The process's side: one component, and the host's orders one after the other.
//!
//! Invariants
//!  1. It ends when the host does, or says what is no order.
//!  2. What a call has asked others for is forgotten when the call ends: the host keeps the journal.
//!
//! Not covered: a terminal's signals, which are the host's business; they are ignored here.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_sys::tick::Ticks;
use steadfast_sys::{cpu, signals};
use wasmtime::component::ResourceAny;

use super::message::{Fault, Opening, Order, Outcome, Reply};
use crate::engine::{
    Asked, Body, Callee, Engine, Failure, Image, Import, ImportFunction, Journal, Limits, Mold,
    open,
};
use crate::value::{Handle, Value};
use crate::wire::{Bytes, Line};
use crate::words::CallError;

/// What the host answers by [`Order::Answer`]; a host that is gone ends the process.
struct Host {
    line: Arc<Mutex<Line>>,
    import: usize,
}

fn held(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An order, however long it takes.
fn next(line: &mut Line) -> io::Result<Order> {
    line.receive(|| Ok(()))
}

impl Host {
    fn ask(&self, asked: Asked) -> Result<Option<Value>, CallError> {
        let mut line = held(&self.line);
        let sent = line.send(&Reply::Ask(self.import, asked));
        match sent.and_then(|()| next(&mut line)) {
            Ok(Order::Answer(Some(answer))) => Ok(answer),
            Ok(Order::Answer(None)) => Err(CallError::Asserted {
                text: String::new(),
            }),
            _ => std::process::exit(1),
        }
    }
}

impl Callee for Host {
    fn call(&self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        self.ask(Asked::Call(function, args.to_vec()))
    }

    fn discard(&self, handle: Handle) -> Result<(), CallError> {
        self.ask(Asked::Discard(handle)).map(drop)
    }
}

/// Objects of the component, by the numbers that the host has for them.
#[derive(Default)]
struct Objects {
    all: Vec<Option<ResourceAny>>,
    free: Vec<u32>,
}

impl Objects {
    fn insert(&mut self, object: ResourceAny) -> u32 {
        if let Some(place) = self.free.pop() {
            self.all[place as usize] = Some(object);
            return place;
        }
        self.all.push(Some(object));
        u32::try_from(self.all.len() - 1).expect("fewer than 2^32 objects")
    }

    fn get(&self, place: u32) -> Option<ResourceAny> {
        self.all.get(place as usize).copied().flatten()
    }

    fn remove(&mut self, place: u32) -> Option<ResourceAny> {
        let object = self.all.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(object)
    }
}

/// One component that runs.
struct Server {
    body: Body,
    image: Image,
    journal: Arc<Mutex<Journal>>,
    objects: Objects,
    /// By function: arguments that are given away.
    own: Vec<Vec<usize>>,
    ticks: Option<Ticks>,
}

/// Serves the component that the host names, on standard input, until the host ends.
///
/// # Errors
/// When standard input is no socket of a host, or the component does not start.
pub fn serve() -> io::Result<()> {
    // A terminal sends it to the whole group; the host ends this process when its own work is done.
    signals::block(&[libc::SIGINT]);
    // Whoever started it may have run at another priority, and each call has another caller.
    cpu::run_ordinarily();
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let line = Arc::new(Mutex::new(Line::new(UnixStream::from(socket))));
    let first = next(&mut held(&line))?;
    let Order::Start(opening) = first else {
        return Err(io::Error::other("the first order is to start a component"));
    };
    let mut server = match Server::start(&opening, &line) {
        Ok(server) => server,
        Err(why) => return held(&line).send(&Reply::Refused(why)),
    };
    let text = server.body.text();
    let memories = server.body.digest();
    let started = Reply::Started(text.start, text.end, memories);
    match held(&line).send(&started) {
        Err(error) if is_gone(&error) => return Ok(()),
        sent => sent?,
    }
    loop {
        let order = match next(&mut held(&line)) {
            Ok(order) => order,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let reply = server.obey(order)?;
        match held(&line).send(&reply) {
            Err(error) if is_gone(&error) => return Ok(()),
            sent => sent?,
        }
    }
}

/// Whether the host has ended, which is no fault of this process, whatever it was doing.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

impl Server {
    fn start(opening: &Opening, line: &Arc<Mutex<Line>>) -> Result<Self, String> {
        let limits = Limits {
            memory: opening.memory,
            call: Duration::from_nanos(opening.call_ns),
        };
        // The host says which component it is.
        let told = |error: crate::LoadError| match error {
            crate::LoadError::Start { found, .. } => found,
            error => error.to_string(),
        };
        let engine = Engine::new(opening.pad).map_err(told)?;
        let code = engine.load(Path::new(&opening.image)).map_err(told)?;
        let imports = imports(opening, line, &code.wanted())?;
        let functions = opening.functions.iter();
        let functions = functions.map(|(interface, name, _)| (interface.clone(), name.clone()));
        let functions: Vec<_> = functions.collect();
        let init = opening.init.as_deref();
        let mold = Mold::new(
            &opening.name,
            Arc::new(code),
            &functions,
            &imports,
            init,
            limits,
        );
        let journal = Arc::new(Mutex::new(Journal::new(false)));
        let (mut body, image) =
            Body::new(&Arc::new(mold.map_err(told)?), None, &journal).map_err(told)?;
        // From the image from the first call on, as after each reset.
        body.reset(Some(&image))?;
        Ok(Self {
            body,
            image,
            journal,
            objects: Objects::default(),
            own: opening.functions.iter().map(|f| f.2.clone()).collect(),
            ticks: None,
        })
    }

    fn obey(&mut self, order: Order) -> io::Result<Reply> {
        Ok(match order {
            Order::Call(function, has_result, args) => self.call(function, has_result, &args),
            Order::Discard(object) => {
                let outcome = match self.objects.remove(object) {
                    Some(object) => self.body.discard(object),
                    None => Err(Failure::Invalid("it has no such object".into())),
                };
                self.told(outcome.map(|()| None), Vec::new())
            }
            Order::Reset => {
                self.objects = Objects::default();
                match self.body.reset(Some(&self.image)) {
                    // The image lies in this process, where a wild store may have changed it: the host compares.
                    Ok(()) => Reply::Digest(self.body.digest()),
                    Err(why) => Reply::Refused(why),
                }
            }
            Order::Flip(address, bit) => Reply::Yes(self.body.flip(address, bit)),
            Order::Strike(register, bit) => Reply::Yes(self.strike(register, bit)),
            Order::Struck => Reply::Yes(self.ticks.as_ref().is_none_or(Ticks::struck)),
            Order::Digest => Reply::Digest(self.body.digest()),
            Order::Dump => {
                let memories = self.body.memories().into_iter();
                Reply::Dump(memories.map(Bytes).collect())
            }
            Order::Start(_) | Order::Answer(_) => {
                return Err(io::Error::other("an order that was not due"));
            }
        })
    }

    fn call(&mut self, function: usize, has_result: bool, args: &[Value]) -> Reply {
        let Some(own) = self.own.get(function) else {
            let failure = Failure::Invalid("it has no such function".into());
            return self.told(Err(failure), Vec::new());
        };
        let mut made = Vec::new();
        let objects = &self.objects;
        let mut inner = |handle: Handle| objects.get(handle.index);
        let value = self
            .body
            .call(function, args, &mut inner, has_result, &mut made);
        if value.is_ok() {
            let given = own.iter().filter_map(|place| args.get(*place)?.handle());
            for handle in given {
                self.objects.remove(handle.index);
            }
        }
        self.told(value, made)
    }

    /// What a call came to.
    fn told(&mut self, value: Result<Option<Value>, Failure>, made: Vec<ResourceAny>) -> Reply {
        open(&self.journal).clear();
        let fault = match value {
            Ok(value) => {
                let made = made.into_iter().map(|object| self.objects.insert(object));
                return Reply::Done(Box::new(Outcome {
                    value,
                    made: made.collect(),
                    held: self.body.held().into_iter().collect(),
                }));
            }
            Err(Failure::Pad(_)) => Fault::Pad,
            Err(Failure::Trap(what)) => Fault::Trap(what),
            Err(Failure::Hang(at)) => Fault::Hang(at),
            Err(Failure::Callee(_)) => Fault::Unanswered,
            Err(Failure::Invalid(what) | Failure::Differs(what) | Failure::Ended(what)) => {
                Fault::Invalid(what)
            }
        };
        Reply::Failed(fault, self.body.seen())
    }

    /// Arms a flip of a register of this thread, which runs the component.
    fn strike(&mut self, register: u32, bit: u32) -> bool {
        if self.ticks.is_none() {
            let seed = u64::from(std::process::id()) << 16 | u64::from(register * 64 + bit);
            self.ticks = Ticks::start(&self.body.text(), seed).ok();
        }
        self.ticks
            .as_ref()
            .map(|ticks| ticks.arm(register, bit))
            .is_some()
    }
}

/// The host's imports, asked over the line.
fn imports(
    opening: &Opening,
    line: &Arc<Mutex<Line>>,
    wanted: &[crate::engine::Wanted],
) -> Result<Vec<Import>, String> {
    let all = opening.imports.iter().enumerate();
    let all = all.map(|(place, (interface, functions))| {
        let wanted = wanted.iter().find(|wanted| wanted.interface == *interface);
        let wanted = wanted.ok_or_else(|| format!("its image does not import {interface}"))?;
        let functions = functions.iter().map(|(name, place, gives)| ImportFunction {
            name: name.clone(),
            place: *place,
            gives: *gives,
        });
        Ok(Import {
            interface: interface.clone(),
            functions: functions.collect(),
            resources: wanted.resources.clone(),
            callee: Arc::new(Host {
                line: line.clone(),
                import: place,
            }),
            // The host's journal knows.
            keeps: false,
        })
    });
    all.collect()
}
