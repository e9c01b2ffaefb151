//! Dispute: the two programs claim different things at one event, and neither has gone beyond it with an effect.
//!
//! ```text
//!   primary                                              secondary
//!   found by its agent, or told ◄──────── raised ─────── found by its agent
//!   halt ───────────────────── look ──────────────────► halt
//!   runs the past again        (at the same time)        runs the past again
//!        ◄──────────────────── looked ────────────────── claim, the re-run's claim, memory
//!   arbiter.rs: whose program is wrong
//!   becomes its re-run, if so
//!        ───────────────────── settle ─────────────────► becomes its re-run, if so; goes on
//!   goes on ◄───────────────── settled ─────────────────
//! ```
//!
//! No read was wrong: a program waits at each until both disks have given the same bytes. So a processor or memory erred, and
//! what is wrong is in a program's memory or registers alone.
//!
//! Invariants
//!  1. A program is replaced only by what the re-runs of both hosts agree on, memory included.
//!  2. Who is right is not touched, unless its memory holds an error that no event has shown yet.
//!
//! Not covered: code or libraries that one host reads wrongly each time (each then stands by its claim: the pair stops).

use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_replica::site::{Again, Look, Site};

use crate::arbiter::{Host, judge_programs};
use crate::error::PairError;
use crate::incident::Erred;
use crate::link::{Frame, Sender, Tag};
use crate::shared::{Relay, Shared};

/// For one word of the other site, which runs the past again meanwhile.
const WORD: Duration = Duration::from_secs(30);
/// A relay comes round every 50 ms.
const RELAY: Duration = Duration::from_secs(5);
/// The same event is put right this often; then an error comes each time, and more is no repair.
const TRIES_MAX: u32 = 3;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Dispute {
    /// Secondary: its agent has found a difference at this event.
    Raised(u64),
    /// Primary: stand there, and run the past again.
    Look(u64),
    /// Secondary: what it has found, or why not.
    Looked(Result<Host, String>),
    /// Primary: the secondary is wrong; what the primary has done from the event on is void.
    Settle { mend: bool, rewind: bool },
    /// Secondary: pages that were put right; it goes on.
    Settled(Result<u64, String>),
    /// Primary: what there is to tell.
    Told(Erred),
}

impl Dispute {
    pub(crate) fn raised(self) -> Option<u64> {
        match self {
            Self::Raised(event) => Some(event),
            _ => None,
        }
    }
}

/// Hands what the other site says about a dispute to the thread that decides.
pub(crate) fn hand_over(frame: &Frame, to: &Outbox<Dispute>, shared: &Shared) {
    match frame.parse() {
        Ok(said) => drop(to.send(said)),
        Err(error) => shared.stop(PairError::Link(error)),
    }
}

/// Events that are disputed again and again.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    event: u64,
    times: u32,
}

impl Repeated {
    pub(crate) fn again(&mut self, event: u64) -> Result<(), PairError> {
        self.times = if self.event == event {
            self.times + 1
        } else {
            1
        };
        self.event = event;
        if self.times > TRIES_MAX {
            return Err(PairError::Stopped(format!(
                "at event {event} the two programs still claim different things after {TRIES_MAX} repairs"
            )));
        }
        Ok(())
    }
}

/// What both sites work with.
#[derive(Debug)]
pub(crate) struct Parties<'a> {
    pub(crate) site: &'a Site,
    pub(crate) sender: &'a Sender,
    pub(crate) disputes: &'a Inbox<Dispute>,
    pub(crate) shared: &'a Shared,
}

fn host(look: &Look) -> Host {
    Host {
        claim: look.claim,
        again: look.again,
        image: look.image,
        program: look.program,
    }
}

impl Parties<'_> {
    fn say(&self, what: &Dispute) -> Result<(), PairError> {
        self.sender
            .say(Tag::Dispute, what)
            .map_err(|_| self.lost(0))
    }

    fn lost(&self, event: u64) -> PairError {
        self.shared.stopped().unwrap_or_else(|| {
            PairError::Stopped(format!(
                "at event {event} the two programs claim different things, and the other site is lost before it was known which is right"
            ))
        })
    }

    /// The next word about the dispute.
    fn hear(&self, event: u64) -> Result<Dispute, PairError> {
        let deadline = Instant::now() + WORD;
        loop {
            if let Ok(said) = self.disputes.recv_timeout(Duration::from_millis(5)) {
                return Ok(said);
            }
            if let Some(error) = self.shared.stopped() {
                return Err(error);
            }
            if self.shared.has_lost() || Instant::now() > deadline {
                return Err(self.lost(event));
            }
        }
    }

    /// Secondary, whose agent has found a difference: the primary's word.
    pub(crate) fn raise(&self, event: u64) -> Result<Dispute, PairError> {
        self.say(&Dispute::Raised(event))?;
        self.hear(event)
    }

    fn cannot(&self, event: u64, why: &str) -> PairError {
        PairError::Stopped(format!(
            "at event {event} the two programs claim different things: a processor or memory erred, and {why} ({})",
            self.site.claims(event)
        ))
    }

    /// Primary: from a difference to two programs that agree, or to a stop.
    pub(crate) fn settle(&self, event: u64) -> Result<Erred, PairError> {
        let began = Instant::now();
        let cannot = |why: String| self.cannot(event, &why);
        self.say(&Dispute::Look(event))?;
        self.site.halt(event).map_err(cannot)?;
        let (own, again) = self.site.look(event).map_err(cannot)?;
        let theirs = loop {
            match self.hear(event)? {
                Dispute::Looked(theirs) => break theirs.map_err(cannot)?,
                // Both have found it.
                Dispute::Raised(_) => {}
                other => return Err(PairError::Bug(format!("a look was due, not {other:?}"))),
            }
        };
        let [a, b] = judge_programs(&host(&own), &theirs).map_err(|why| cannot(why.into()))?;
        let mut pages = self.mend(a, again).map_err(cannot)?;
        self.go_back(event, a).map_err(cannot)?;
        self.say(&Dispute::Settle { mend: b, rewind: a })?;
        match self.hear(event)? {
            Dispute::Settled(more) => pages += more.map_err(cannot)?,
            other => return Err(PairError::Bug(format!("an end was due, not {other:?}"))),
        }
        self.site.claim_anew().map_err(cannot)?;
        let erred = Erred {
            event,
            erred: [(a, "A"), (b, "B")]
                .iter()
                .filter(|(wrong, _)| *wrong)
                .map(|(_, name)| *name)
                .collect(),
            reran: own.events,
            memory_pages: pages,
            pause_us: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        };
        self.say(&Dispute::Told(erred.clone()))?;
        Ok(erred)
    }

    fn mend(&self, wrong: bool, again: Option<Again<'_>>) -> Result<u64, String> {
        if !wrong {
            return Ok(0);
        }
        self.site.mend(&again.ok_or("there is no re-run")?)
    }

    /// Primary: its log, and its relay, as if nothing had been claimed at the event.
    fn go_back(&self, event: u64, rewind: bool) -> Result<(), String> {
        let deadline = Instant::now() + RELAY;
        // What the program has done is with the other site.
        while self.shared.followed() < self.site.done_by_primary() {
            if Instant::now() > deadline {
                return Err("the relay does not come to a halt".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let place = self.site.disagree_no_more(event, rewind)?;
        if rewind {
            self.shared.rewind(Relay::Events, place);
            if !self.shared.has_rewound(Relay::Events, RELAY) {
                return Err("the relay does not go back".into());
            }
            self.shared.has_followed(event - 1);
        }
        Ok(())
    }

    /// Secondary: tells what it has found, and does as the primary says.
    pub(crate) fn follow(&self, event: u64) -> Result<Erred, PairError> {
        let looked = self.site.halt(event).and_then(|()| self.site.look(event));
        let (found, again) = match looked {
            Ok((look, again)) => (Ok(host(&look)), again),
            Err(why) => (Err(why), None),
        };
        self.say(&Dispute::Looked(found))?;
        let Dispute::Settle { mend, rewind } = self.hear(event)? else {
            return Err(PairError::Bug("an end was due".into()));
        };
        let settled = self.mend(mend, again).and_then(|pages| {
            let place = self.site.disagree_no_more(event, rewind)?;
            self.shared.rewind(Relay::Claims, place);
            if !self.shared.has_rewound(Relay::Claims, RELAY) {
                return Err("the relay does not go back".into());
            }
            if rewind {
                self.shared.rewind(Relay::Events, place);
            }
            self.site.claim_anew()?;
            Ok(pages)
        });
        self.say(&Dispute::Settled(settled.clone()))?;
        settled.map_err(|why| self.cannot(event, &why))?;
        match self.hear(event)? {
            Dispute::Told(erred) => Ok(erred),
            other => Err(PairError::Bug(format!("a word was due, not {other:?}"))),
        }
    }
}
