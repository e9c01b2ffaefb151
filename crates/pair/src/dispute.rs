//! Dispute: the two programs claim different things at one event of a process, and neither has gone beyond it with an effect.
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
//! what is wrong is in a program's memory or registers alone. Other processes go on meanwhile. One dispute is settled after the other.
//!
//! Invariants
//!  1. A program is replaced only by what the re-runs of both hosts agree on, memory included.
//!  2. Who is right is not touched, unless its memory holds an error that no event has shown yet.
//!
//! Not covered: code or libraries that one host reads wrongly each time (each then stands by its claim: the pair stops).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_replica::site::{Again, Look, Place, Site};

use crate::arbiter::{Host, judge_programs};
use crate::crew::{Crew, Strand, Watched};
use crate::error::PairError;
use crate::incident::Erred;
use crate::link::{Frame, Sender, Tag};
use crate::shared::{Relay, Shared};

/// For one word of the other site, which runs the past again meanwhile.
const WORD: Duration = Duration::from_secs(30);
/// For the primary to begin with what was raised, behind other processes' disputes.
const ANSWERED: Duration = Duration::from_secs(60);
/// A relay comes round every 50 ms.
const RELAY: Duration = Duration::from_secs(5);
/// Who watches a process looks up every 20 ms.
const HALTS: Duration = Duration::from_secs(5);
/// The same event is put right this often; then an error comes each time, and more is no repair.
const TRIES_MAX: u32 = 3;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Dispute {
    /// Secondary: the agent of a process, which goes by its strand, has found a difference at this event.
    Raised(u64, u64),
    /// Primary: that process is to stand there, and to run the past again.
    Look(u64, u64),
    /// Secondary: what it has found, or why not.
    Looked(Result<Host, String>),
    /// Primary: the secondary is wrong; what the primary has done from the event on is void.
    Settle { mend: bool, rewind: bool },
    /// Secondary: pages that were put right; it goes on.
    Settled(Result<u64, String>),
    /// Primary: what there is to tell.
    Told(Erred),
}

/// Hands what the other site says about a dispute to the thread that decides.
pub(crate) fn hand_over(frame: &Frame, to: &Outbox<Dispute>, shared: &Shared) {
    match frame.parse() {
        Ok(said) => drop(to.send(said)),
        Err(error) => shared.stop(PairError::Link(error)),
    }
}

/// By strand, the event that was disputed last, and how often.
#[derive(Debug, Default)]
pub(crate) struct Repeated(HashMap<u64, (u64, u32)>);

impl Repeated {
    pub(crate) fn again(&mut self, strand: u64, event: u64) -> Result<(), PairError> {
        let last = self.0.entry(strand).or_default();
        *last = (event, if last.0 == event { last.1 + 1 } else { 1 });
        if last.1 > TRIES_MAX {
            return Err(PairError::Stopped(format!(
                "at event {event} the two programs still claim different things after {TRIES_MAX} repairs"
            )));
        }
        Ok(())
    }
}

/// Differences that the secondary has found, and that are not settled: strand and event, and since when.
#[derive(Debug, Default)]
pub(crate) struct Raised(Vec<((u64, u64), Instant)>);

impl Raised {
    fn push(&mut self, at: (u64, u64)) {
        if !self.0.iter().any(|(known, _)| *known == at) {
            self.0.push((at, Instant::now()));
        }
    }

    /// What the secondary has said of this process so far is what both are about to settle.
    pub(crate) fn forget(&mut self, strand: u64) {
        self.0.retain(|(at, _)| at.0 != strand);
    }

    /// Secondary: tells the primary, once.
    pub(crate) fn say(&mut self, at: (u64, u64), sender: &Sender) -> Result<(), PairError> {
        let known = self.0.iter().find(|(known, _)| *known == at);
        match known {
            Some((_, since)) if since.elapsed() > ANSWERED => Err(unsettled(at.1)),
            Some(_) => Ok(()),
            None => {
                self.push(at);
                sender
                    .say(Tag::Dispute, &Dispute::Raised(at.0, at.1))
                    .map_err(|_| unsettled(at.1))
            }
        }
    }

    /// Secondary, whose primary is lost: nobody knows who is right.
    pub(crate) fn lost(&self) -> Option<PairError> {
        self.0.first().map(|(at, _)| unsettled(at.1))
    }

    /// Primary: the next difference that is to be settled, found by its own agents or by the secondary's.
    pub(crate) fn next(
        &mut self,
        crew: &Crew,
        disputes: &Inbox<Dispute>,
    ) -> Result<Option<(Arc<Strand>, u64)>, PairError> {
        while let Ok(said) = disputes.try_recv() {
            if let Dispute::Raised(strand, event) = said {
                self.push((strand, event));
            }
        }
        if let Some(((number, event), _)) = self.0.first().copied() {
            self.forget(number);
            let strand = crew.strand(number).ok_or_else(|| {
                PairError::Stopped(format!(
                    "at event {event} B claims something else in a process that has ended on A"
                ))
            })?;
            return Ok(Some((strand, event)));
        }
        let own = crew.dispute();
        Ok(own.and_then(|strand| {
            let event = strand.site.disputed()?;
            Some((strand, event))
        }))
    }
}

/// What both sites work with, and the process that is disputed.
#[derive(Debug)]
pub(crate) struct Parties<'a> {
    pub(crate) strand: &'a Strand,
    pub(crate) is_first: bool,
    pub(crate) sender: &'a Sender,
    pub(crate) disputes: &'a Inbox<Dispute>,
    pub(crate) shared: &'a Shared,
}

fn unsettled(event: u64) -> PairError {
    PairError::Stopped(format!(
        "at event {event} the two programs claim different things, and the other site is lost before it was known which is right"
    ))
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
        self.shared.stopped().unwrap_or_else(|| unsettled(event))
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

    fn cannot(&self, event: u64, why: &str) -> PairError {
        PairError::Stopped(format!(
            "at event {event} the two programs claim different things: a processor or memory erred, and {why} ({})",
            self.site().claims(event)
        ))
    }

    fn site(&self) -> &Site {
        &self.strand.site
    }

    /// Nobody else hears the news of the process from here on.
    fn alone_with_it(&self) -> Result<Watched<'_>, String> {
        let told = self.strand.alone_with_it(HALTS);
        told.ok_or_else(|| "its process does not come to a halt".into())
    }

    /// Primary: from a difference to two programs that agree, or to a stop.
    pub(crate) fn settle(&self, event: u64, raised: &mut Raised) -> Result<Erred, PairError> {
        let began = Instant::now();
        let cannot = |why: String| self.cannot(event, &why);
        let number = self.site().strand();
        self.say(&Dispute::Look(number, event))?;
        let _alone = self.alone_with_it().map_err(cannot)?;
        self.site().halt(event).map_err(cannot)?;
        let (own, again) = self.site().look(event).map_err(cannot)?;
        let theirs = loop {
            match self.hear(event)? {
                Dispute::Looked(theirs) => break theirs.map_err(cannot)?,
                // Both have found it, or it has found another one meanwhile.
                Dispute::Raised(strand, event) => raised.push((strand, event)),
                other => return Err(PairError::Bug(format!("a look was due, not {other:?}"))),
            }
        };
        raised.forget(number);
        let [a, b] = judge_programs(&host(&own), &theirs).map_err(|why| cannot(why.into()))?;
        let mut pages = self.mend(a, again).map_err(cannot)?;
        self.go_back(event, a).map_err(cannot)?;
        self.say(&Dispute::Settle { mend: b, rewind: a })?;
        loop {
            match self.hear(event)? {
                Dispute::Settled(more) => break pages += more.map_err(cannot)?,
                Dispute::Raised(strand, event) => raised.push((strand, event)),
                other => return Err(PairError::Bug(format!("an end was due, not {other:?}"))),
            }
        }
        self.site().claim_anew().map_err(cannot)?;
        let erred = Erred {
            event,
            process: (!self.is_first).then(|| self.site().program_number()),
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
        self.site().mend(&again.ok_or("there is no re-run")?)
    }

    /// Primary: its log, and its relay, as if nothing had been claimed at the event.
    fn go_back(&self, event: u64, rewind: bool) -> Result<(), String> {
        let deadline = Instant::now() + RELAY;
        // What the program has done is with the other site.
        while !self.is_followed(self.site().done_by_primary()) {
            if Instant::now() > deadline {
                return Err("the relay does not come to a halt".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let place = self.site().disagree_no_more(event, rewind)?;
        if rewind {
            self.rewind(Relay::Events, place)?;
            if self.is_first {
                self.shared.has_followed(event - 1);
            }
        }
        Ok(())
    }

    /// Primary: whether its relay has sent all up to here.
    fn is_followed(&self, event: u64) -> bool {
        if self.is_first {
            self.shared.followed() >= event
        } else {
            self.strand.has_relayed(event)
        }
    }

    /// A relay of this site goes back.
    fn rewind(&self, relay: Relay, place: Place) -> Result<(), String> {
        let back = if self.is_first {
            &self.shared.back
        } else {
            &self.strand.back
        };
        back.rewind(relay, place);
        back.has_rewound(relay, RELAY, || self.shared.has_lost())
            .then_some(())
            .ok_or_else(|| "the relay does not go back".into())
    }

    /// Secondary: tells what it has found, and does as the primary says.
    pub(crate) fn follow(&self, event: u64) -> Result<Erred, PairError> {
        let alone = self.alone_with_it();
        let looked = alone
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|_| self.site().halt(event))
            .and_then(|()| self.site().look(event));
        let (found, again) = match looked {
            Ok((look, again)) => (Ok(host(&look)), again),
            Err(why) => (Err(why), None),
        };
        self.say(&Dispute::Looked(found))?;
        let Dispute::Settle { mend, rewind } = self.hear(event)? else {
            return Err(PairError::Bug("an end was due".into()));
        };
        let settled = self.mend(mend, again).and_then(|pages| {
            let place = self.site().disagree_no_more(event, rewind)?;
            self.rewind(Relay::Claims, place)?;
            if rewind {
                self.begin_at(place);
            }
            self.site().claim_anew()?;
            Ok(pages)
        });
        self.say(&Dispute::Settled(settled.clone()))?;
        settled.map_err(|why| self.cannot(event, &why))?;
        match self.hear(event)? {
            Dispute::Told(erred) => Ok(erred),
            other => Err(PairError::Bug(format!("a word was due, not {other:?}"))),
        }
    }

    /// Secondary: where the log goes on. What the primary had sent before has been taken.
    fn begin_at(&self, place: Place) {
        if self.is_first {
            self.shared.back.rewind(Relay::Events, place);
        } else {
            self.strand.begin_at(place);
        }
    }
}
