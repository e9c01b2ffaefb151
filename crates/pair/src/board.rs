//! Board: what the threads of a site tell each other: its state, what they count, and what an operator has asked for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_replica::site::Part;

use crate::incident::{Erred, Incident};

/// For a line to whoever has asked.
const WRITES: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Switch,
    Detach,
}

impl What {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Detach => "detach",
        }
    }
}

/// What somebody waits for an answer to.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) what: What,
    pub(crate) answer: Sender<Result<String, String>>,
    /// Says nothing, and ends when the answer is on its way: a site that leaves may be gone at once.
    pub(crate) written: Receiver<()>,
}

impl Order {
    pub(crate) fn answer(&self, answer: Result<&str, &str>) {
        let _ = self
            .answer
            .send(answer.map(str::to_owned).map_err(str::to_owned));
        let _ = self.written.recv_timeout(WRITES);
    }
}

/// What a site is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub(crate) enum State {
    Running,
    Arbitrating,
    /// The peer is lost, and the witness has not answered: the program is held.
    Held,
    Alone,
    /// Alone, and the program stands while a site that comes back gets the rest of it.
    Joining,
    Ended,
}

impl State {
    const ALL: [Self; 6] = [
        Self::Running,
        Self::Arbitrating,
        Self::Held,
        Self::Alone,
        Self::Joining,
        Self::Ended,
    ];

    pub(crate) fn name(self) -> &'static str {
        [
            "running",
            "arbitrating",
            "held",
            "alone",
            "joining",
            "ended",
        ][self as usize]
    }

    pub(crate) fn is_ready(self) -> bool {
        !matches!(self, Self::Held | Self::Ended)
    }
}

/// What the threads of a site count.
#[derive(Debug)]
pub(crate) struct Board {
    state: AtomicU8,
    /// This site's program leads: it is the primary, from the start or since a take-over.
    pub(crate) leads: AtomicBool,
    /// By which the witness knows the two sites; a pair that was made whole again has another.
    pub(crate) run: Mutex<String>,
    /// What an operator has asked for (control.rs).
    pub(crate) order: Mutex<Option<Order>>,
    /// Times that the witness has given the program to this site.
    pub(crate) generation: AtomicU64,
    pub(crate) repairs: AtomicU64,
    /// Programs that were put right after an error of processor or memory.
    pub(crate) mended: AtomicU64,
    pub(crate) scrubbed: AtomicU64,
    pub(crate) scrub_found: AtomicU64,
    pub(crate) scrub_rounds: AtomicU64,
    /// Since `began`, in ms: the last word of the peer; the last round of the thread that decides; the event that has
    /// waited longest for the other site.
    pub(crate) heard: AtomicU64,
    pub(crate) round: AtomicU64,
    waiting: Mutex<(u64, u64)>,
    pub(crate) began: Instant,
}

impl Default for Board {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            state: AtomicU8::new(0),
            leads: AtomicBool::new(false),
            run: Mutex::default(),
            order: Mutex::default(),
            generation: zero(),
            repairs: zero(),
            mended: zero(),
            scrubbed: zero(),
            scrub_found: zero(),
            scrub_rounds: zero(),
            heard: zero(),
            round: zero(),
            waiting: Mutex::new((0, 0)),
            began: Instant::now(),
        }
    }
}

impl Board {
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn set(&self, state: State) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    pub(crate) fn state(&self) -> State {
        State::ALL[usize::from(self.state.load(Ordering::SeqCst))]
    }

    /// The witness has given the program to this site.
    pub(crate) fn go_alone(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.leads.store(true, Ordering::SeqCst);
        self.set(State::Alone);
    }

    /// The other site is there again.
    pub(crate) fn pair_up(&self, run: &str) {
        run.clone_into(&mut self.run.lock().expect("no panic under it"));
        self.hear();
        self.set(State::Running);
    }

    pub(crate) fn part(&self) -> Part {
        if self.leads.load(Ordering::SeqCst) {
            Part::Primary
        } else {
            Part::Secondary
        }
    }

    /// A page was repaired, on either site.
    pub(crate) fn count(&self, incident: &Incident) {
        self.repairs
            .fetch_add(incident.pages_repaired.into(), Ordering::Relaxed);
    }

    /// A program was put right, on either site.
    pub(crate) fn count_mended(&self, erred: &Erred) {
        self.mended
            .fetch_add(erred.erred.len() as u64, Ordering::Relaxed);
    }

    pub(crate) fn take_order(&self) -> Option<Order> {
        self.order.lock().expect("no panic under it").take()
    }

    /// The peer has said something.
    pub(crate) fn hear(&self) {
        self.heard.store(self.now(), Ordering::Relaxed);
    }

    /// The thread that decides has come round.
    pub(crate) fn tick(&self) {
        self.round.store(self.now(), Ordering::Relaxed);
    }

    /// For how long the events after `done` have been open, of which there are `open`.
    pub(crate) fn lag(&self, done: u64, open: u64) -> u64 {
        let mut waiting = self.waiting.lock().expect("no panic under it");
        if open == 0 || waiting.0 != done {
            *waiting = (done, self.now());
        }
        self.now() - waiting.1
    }
}
