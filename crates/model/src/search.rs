//! Breadth first through every state, so that what is found is shortest.
//!
//! Steps that no other thread can tell are taken at once, without trying who else might come before (they commute with all
//! that others do).

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::machine::{Next, State};
use crate::program::{Op, Program};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No message that is both corrupt and taken for sound; no alarm and no standstill without a fault.
    Nothing,
    /// Error isolation is broken.
    Corrupt(Trace),
    /// Accuracy is broken: an alarm without a fault.
    FalseAlarm(Trace),
    /// Accuracy is broken: without a fault the process stands still.
    Stuck(Trace),
}

/// The steps that lead there, one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace(pub Vec<String>);

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

/// What a search has been through.
#[derive(Debug, Clone)]
pub struct Searched {
    pub states: usize,
    /// Faults tried: a state, a thread and a step to go on at; the values are many more.
    pub strikes: u64,
    pub alarms: u64,
    pub found: Found,
}

/// How far a search goes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub faults: u8,
    /// The paper's one exclusion (Section 4.2): no fault takes a thread that has not been counted into a handler.
    pub counted: bool,
    /// No fault takes a thread from behind V to where the same input is taken in once more.
    pub once: bool,
    /// A search with more states than this is given up.
    pub states: usize,
}

#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word))
                .wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// How a state was reached: from which, and as which of its successors.
#[derive(Clone, Copy)]
struct Way {
    from: u32,
    which: u32,
}

enum Move {
    Step(usize),
    Strike(usize, u8),
}

struct Search<'a> {
    program: &'a Program,
    bounds: Bounds,
    known: HashMap<State, u32, BuildHasherDefault<Mix>>,
    ways: Vec<Way>,
}

/// Everything that one fault, or as many as the bounds say, can do to the program.
///
/// # Panics
/// When there are more states than the bounds allow: that is a question to ask smaller, not an answer.
#[must_use]
pub fn search(program: &Program, bounds: Bounds) -> Searched {
    let mut search = Search {
        program,
        bounds,
        known: HashMap::default(),
        ways: Vec::new(),
    };
    search.run()
}

impl Search<'_> {
    fn run(&mut self) -> Searched {
        let first = State::new(self.program, self.bounds.faults);
        let (mut strikes, mut alarms) = (0, 0);
        self.add(first.clone(), Way { from: 0, which: 0 });
        let mut frontier = vec![(0, first)];
        while !frontier.is_empty() {
            let mut later = Vec::new();
            for (index, state) in frontier {
                let clean = state.faults == self.bounds.faults;
                let moves = self.moves(&state);
                let mut moved = false;
                for (which, (how, next)) in moves.into_iter().enumerate() {
                    let way = Way {
                        from: index,
                        which: u32::try_from(which).expect("a state has few successors"),
                    };
                    let is_step = matches!(how, Move::Step(_));
                    moved |= is_step;
                    strikes += u64::from(!is_step);
                    match next {
                        Next::State(s) => {
                            if let Some(new) = self.add(s.clone(), way) {
                                later.push((new, s));
                            }
                        }
                        Next::Alarm if clean => {
                            return self.end(strikes, alarms, Found::FalseAlarm(self.trace(way)));
                        }
                        Next::Alarm => alarms += 1,
                        Next::Corrupt(_) => {
                            return self.end(strikes, alarms, Found::Corrupt(self.trace(way)));
                        }
                    }
                }
                if clean && !moved && !state.is_done(self.program) {
                    let found = Found::Stuck(self.trace(self.ways[index as usize]));
                    return self.end(strikes, alarms, found);
                }
            }
            frontier = later;
        }
        self.end(strikes, alarms, Found::Nothing)
    }

    fn end(&self, strikes: u64, alarms: u64, found: Found) -> Searched {
        Searched {
            states: self.ways.len(),
            strikes,
            alarms,
            found,
        }
    }

    fn add(&mut self, state: State, way: Way) -> Option<u32> {
        let next = u32::try_from(self.ways.len()).expect("fewer than 2^32 states");
        assert!(
            self.ways.len() < self.bounds.states,
            "more than {} states: fewer inputs or faults are needed",
            self.bounds.states
        );
        match self.known.entry(state) {
            std::collections::hash_map::Entry::Occupied(_) => None,
            std::collections::hash_map::Entry::Vacant(v) => {
                v.insert(next);
                self.ways.push(way);
                Some(next)
            }
        }
    }

    /// All that can come next, always in the same order.
    fn moves(&self, state: &State) -> Vec<(Move, Next)> {
        let program = self.program;
        let op = |t: usize| program.steps[usize::from(state.threads[t].pc)].op;
        let alone = (0..program.threads).find(|&t| !op(t).is_seen());
        let mut all = Vec::new();
        for t in 0..program.threads {
            if alone.is_none_or(|a| a == t) {
                all.extend(
                    state
                        .step(program, t)
                        .into_iter()
                        .map(|n| (Move::Step(t), n)),
                );
            }
        }
        if state.faults > 0 {
            for t in 0..program.threads {
                for pc in 0..u8::try_from(program.steps.len()).expect("few steps") {
                    if !self.is_excluded(state.threads[t].pc, pc) {
                        all.push((
                            Move::Strike(t, pc),
                            Next::State(state.strike(program, t, pc)),
                        ));
                    }
                }
            }
        }
        all
    }

    fn is_excluded(&self, from: u8, to: u8) -> bool {
        let ((entered, left), (begun, validated)) = (self.program.counted, self.program.handled);
        let inside = |pc| pc > entered && pc <= left;
        let not_counted = self.program.threads > 1 && !inside(from) && inside(to);
        let begun = if self.bounds.once {
            self.program.taken_in
        } else {
            begun
        };
        let handled = (from > validated || from == 0) && to >= begun && to <= left;
        self.bounds.counted && (not_counted || handled)
    }

    /// Goes the same way once more, with words.
    fn trace(&self, last: Way) -> Trace {
        let mut ways = vec![last];
        while ways.last().is_some_and(|w| w.from != 0) {
            let from = ways.last().expect("not empty").from;
            ways.push(self.ways[from as usize]);
        }
        ways.reverse();
        let mut state = State::new(self.program, self.bounds.faults);
        let mut lines = Vec::new();
        for way in ways {
            let Some((how, next)) = self.moves(&state).into_iter().nth(way.which as usize) else {
                break;
            };
            lines.push(self.line(&state, &how, &next));
            if let Next::State(s) = next {
                state = s;
            }
        }
        Trace(lines)
    }

    fn line(&self, state: &State, how: &Move, next: &Next) -> String {
        let name = |t: &usize| {
            if self.program.threads > 1 {
                format!("thread {t}, ")
            } else {
                String::new()
            }
        };
        match how {
            Move::Strike(t, pc) => {
                let step = &self.program.steps[usize::from(*pc)];
                let stays = if state.threads[*t].pc == *pc {
                    "goes on with"
                } else {
                    "jumps to"
                };
                format!("{}FAULT: {stays} {}: {}", name(t), step.phase, step.what)
            }
            Move::Step(t) => {
                let step = &self.program.steps[usize::from(state.threads[*t].pc)];
                let value = match (next, step.op) {
                    (Next::State(s), Op::Load(reg, _)) => format!(" = {}", s.reg(*t, reg)),
                    (Next::State(s), Op::Store(cell, _)) if !cell.is_crc() => {
                        format!(" = {}", s.get(*t, cell))
                    }
                    (Next::Corrupt(value), _) => {
                        format!(" {value}, with a checksum that is right: no history explains it")
                    }
                    (Next::Alarm, _) => ": ALARM".to_owned(),
                    _ => String::new(),
                };
                format!("{}{}: {}{value}", name(t), step.phase, step.what)
            }
        }
    }
}
