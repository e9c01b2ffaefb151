//! Lives: what becomes of processes, from their birth to their end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_replica::site::{Becoming, End, Newborn, News, Place};
use steadfast_sys::procfs;

use super::{Crew, LOOK, Mode, SETTLES, Strand, locked};
use crate::error::{PairError, unheld};
use crate::link::Tag;

/// For a process that knows how it ends.
const ENDS: Duration = Duration::from_millis(500);
/// For a dispute to be settled, behind those of other processes.
const SETTLED: Duration = Duration::from_secs(120);
/// Between two nudges of a process that is to stand.
const HALTS: Duration = Duration::from_millis(1);
/// What is on its way about a strand when it ends comes within so many others.
const ENDED_MAX: usize = 256;

/// Whether a process is to stand.
enum Halt {
    Not,
    OnItsWay,
    Stands,
}

impl Crew {
    /// A process of `parent`'s is on its way.
    fn born(self: &Arc<Self>, newborn: Newborn) {
        let table = newborn.strand;
        self.alive.fetch_add(1, Ordering::SeqCst);
        self.yet_to_lead.fetch_add(1, Ordering::SeqCst);
        let crew = Arc::clone(self);
        let life = move || {
            let mut last = table;
            crew.growing.fetch_add(1, Ordering::SeqCst);
            let ready = newborn.ready();
            crew.growing.fetch_sub(1, Ordering::SeqCst);
            match ready {
                Some(site) => {
                    let strand = Strand::new(Arc::new(site), table, crew.spins_after);
                    last = crew.live(&strand, None);
                }
                None => drop(crew.yet_to_lead.fetch_sub(1, Ordering::SeqCst)),
            }
            crew.has_lived(table, last);
        };
        if std::thread::Builder::new().spawn(life).is_err() {
            self.alive.fetch_sub(1, Ordering::SeqCst);
            self.stop(PairError::Bug(
                "there can be no thread for a process".into(),
            ));
        }
    }

    /// Nothing is left of a process, whose last strand this was.
    pub(super) fn has_lived(&self, table: u64, last: u64) {
        let mut files = locked(&self.files);
        files.drop_table(table);
        if let Err(error) = files.clients.ended(table, last) {
            self.stop(unheld(error));
        }
        drop(files);
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }

    /// From its first event to its end, or, of one that a joiner has made, from this place on. Its last strand.
    pub(super) fn live(self: &Arc<Self>, strand: &Arc<Strand>, from: Option<Place>) -> u64 {
        let number = strand.site.strand();
        self.register(number, strand);
        match from {
            None => strand.site.let_go(),
            Some(_) => {
                if let Err(why) = strand.site.go_on() {
                    self.stop(PairError::Bug(why));
                }
            }
        }
        let relay = {
            let (crew, strand) = (Arc::clone(self), Arc::clone(strand));
            let place = from.unwrap_or_else(|| Place::first_of(number));
            std::thread::spawn(move || crew.relay(&strand, place))
        };
        let end = self.watch(strand);
        // Of itself, as the primary's has: its parent may lead, and wait for it.
        let knows = matches!(end, End::Exited(_)) && strand.told.load(Ordering::SeqCst);
        let itself = knows && strand.site.ends_within(ENDS);
        if !itself && (!strand.site.leads() || matches!(self.mode(), Mode::Ended)) {
            strand.site.kill();
        }
        if !strand.leads.swap(true, Ordering::SeqCst) {
            self.yet_to_lead.fetch_sub(1, Ordering::SeqCst);
            self.is_set_up();
        }
        *locked(&strand.over) = Some(end);
        let _ = relay.join();
        let last = strand.site.strand();
        self.forget(last);
        last
    }

    /// What is still said about a strand that has ended says nothing.
    fn forget(&self, number: u64) {
        let mut ended = locked(&self.ended);
        ended.push_back(number);
        if ended.len() > ENDED_MAX {
            ended.pop_front();
        }
        drop(ended);
        locked(&self.all).remove(&number);
    }

    /// Until it has ended here.
    fn watch(self: &Arc<Self>, strand: &Arc<Strand>) -> End {
        let site = &strand.site;
        if strand.leads.load(Ordering::SeqCst) {
            self.yet_to_lead.fetch_sub(1, Ordering::SeqCst);
        }
        loop {
            match self.mode() {
                Mode::Ended => return End::Signaled(9),
                Mode::TakesOver if !site.leads() => {
                    let place = strand.end_of_log();
                    let set_up = || self.has_set_up();
                    let unread = locked(&self.unread).remove(&site.strand());
                    let unread = unread.unwrap_or_default();
                    let grow = |news| self.grow(strand, news);
                    let led = site.lead(&place, &unread, self.spins_after, set_up, grow);
                    if led.is_err() {
                        self.is_set_up();
                    }
                    match led {
                        Ok((carried, dropped)) => {
                            let mut all = locked(&self.carried);
                            *all = (all.0 + carried, all.1 + dropped);
                        }
                        // Its end was on its way.
                        Err(_) if strand.told.load(Ordering::SeqCst) => {}
                        Err(why) => self.stop(PairError::Stopped(format!(
                            "the primary is lost, and process {} cannot lead: {why}",
                            site.program_number()
                        ))),
                    }
                    strand.leads.store(true, Ordering::SeqCst);
                    self.yet_to_lead.fetch_sub(1, Ordering::SeqCst);
                }
                _ => {}
            }
            let look = match self.halts(strand) {
                Halt::Not => LOOK,
                Halt::OnItsWay => HALTS,
                Halt::Stands => {
                    self.rest(LOOK);
                    Duration::ZERO
                }
            };
            let Some(hears) = strand.hears() else {
                std::thread::sleep(Duration::from_micros(100));
                continue;
            };
            let news = site.news(look);
            if matches!(news, Some(News::Question(_) | News::Dispute(..))) {
                drop(hears);
            }
            match news {
                None => {
                    let paired = matches!(self.mode(), Mode::Leads(_));
                    if let Err(error) = strand.spins(paired, !paired) {
                        self.stop(error);
                    }
                }
                Some(news @ (News::Born(_) | News::Exec(_))) => {
                    if let Err(why) = self.grow(strand, news) {
                        self.stop(PairError::Stopped(why));
                    }
                }
                Some(News::Question(question)) => {
                    // It is asked until it is answered.
                    strand.asks.store(true, Ordering::SeqCst);
                    let _ = self.asks.send((Arc::clone(strand), question));
                    while strand.asks.load(Ordering::SeqCst)
                        && matches!(self.mode(), Mode::Follows(_))
                    {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
                Some(News::Dispute(event, claims)) => self.differs_at(strand, event, &claims),
                Some(News::Damaged(event)) => {
                    self.stop(PairError::Stopped(format!(
                        "the log of process {} is damaged at event {event}",
                        site.program_number()
                    )));
                    std::thread::sleep(LOOK);
                }
                Some(News::End(end)) => {
                    self.ends(strand, &end);
                    return end;
                }
            }
        }
    }

    /// The two sites claim different things: until whoever decides has settled that.
    fn differs_at(&self, strand: &Arc<Strand>, event: u64, claims: &str) {
        let _ = self.differs.send(Arc::clone(strand));
        let deadline = Instant::now() + SETTLED;
        while strand.site.disputed().is_some() {
            match self.mode() {
                Mode::Ended => return,
                Mode::Leads(_) | Mode::Follows(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                _ => {
                    self.stop(PairError::Stopped(format!(
                        "process {} claims different things at event {event} ({claims}), and the other site is lost before it was known which is right",
                        strand.site.program_number()
                    )));
                    std::thread::sleep(LOOK);
                    return;
                }
            }
        }
    }

    /// Has a process stand, or go on, as it is to.
    fn halts(&self, strand: &Strand) -> Halt {
        let site = &strand.site;
        let halt = self.halt.load(Ordering::SeqCst) && site.leads();
        if halt && !strand.halts.swap(true, Ordering::SeqCst) {
            site.ask_to_pause();
        } else if !halt && strand.halts.swap(false, Ordering::SeqCst) {
            strand.stands.store(0, Ordering::SeqCst);
            let goes_on = match self.begins_anew(strand) {
                Ok(false) => site.go_on_paused(),
                other => other.map(drop),
            };
            // One that was killed while it stood says so itself.
            if let Err(why) = goes_on
                && !procfs::has_ended(site.pid())
            {
                self.stop(PairError::Bug(why));
            }
        }
        if !halt {
            return Halt::Not;
        }
        if strand.stands.load(Ordering::SeqCst) > 0 {
            return Halt::Stands;
        }
        match site.stands_at() {
            Some(event) => strand.stands.store(event, Ordering::SeqCst),
            None => site.nudge(),
        }
        Halt::OnItsWay
    }

    /// Until those that stand are to go on, or for so long.
    fn rest(&self, limit: Duration) {
        let halt = || self.halt.load(Ordering::SeqCst);
        let waits = locked(&self.gate);
        let waited = self.opened.wait_timeout_while(waits, limit, |_| halt());
        drop(waited.expect("no panic under it"));
    }

    /// A process has ended here: whether that is the program's will.
    fn ends(&self, strand: &Strand, end: &End) {
        let site = &strand.site;
        site.end_turn();
        match end {
            End::Refused(..) | End::Failed(_) => {
                locked(&self.end).get_or_insert(end.clone());
            }
            _ if site.leads() => {}
            _ if strand.told.load(Ordering::SeqCst) => {
                // What the log holds is done first.
                let deadline = Instant::now() + SETTLES;
                while site.done() < strand.end_of_log().seq && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            _ if matches!(self.mode(), Mode::Ended) => {}
            _ => self.stop(PairError::Stopped(format!(
                "process {} has ended on B alone",
                site.program_number()
            ))),
        }
    }

    /// A process makes one, or becomes another program. Where its log ends then.
    pub(crate) fn grow(
        self: &Arc<Self>,
        strand: &Arc<Strand>,
        news: News,
    ) -> Result<Place, String> {
        match news {
            News::Born(newborn) => self.born(*newborn),
            News::Exec(becoming) => self.becomes(strand, becoming)?,
            _ => {}
        }
        Ok(strand.end_of_log())
    }

    fn becomes(&self, strand: &Arc<Strand>, becoming: Becoming) -> Result<(), String> {
        let old = becoming.strand;
        let told = locked(&self.files).clients.becomes(strand.table, old);
        told.map_err(|error| error.to_string())?;
        if strand.site.leads()
            && let Mode::Leads(sender) = self.mode()
        {
            // A link that is lost is noticed elsewhere.
            let _ = sender.send(
                Tag::Exec,
                &[
                    &old.to_le_bytes(),
                    &becoming.event.to_le_bytes(),
                    &becoming.claim,
                    &becoming.classes,
                ],
            );
        }
        self.growing.fetch_add(1, Ordering::SeqCst);
        let became = strand.site.become_another(becoming);
        self.growing.fetch_sub(1, Ordering::SeqCst);
        if became.is_err() && strand.site.leads() && strand.site.ends_within(ENDS) {
            return Ok(()); // somebody has killed it on its way
        }
        let number = became.map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            format!(
                "process {} becomes a program that cannot be run: {error}{}",
                strand.site.program_number(),
                source.map_or_else(String::new, |source| format!(" ({source})"))
            )
        })?;
        // One that was to stand is asked anew: the new program has not heard of it.
        strand.halts.store(false, Ordering::SeqCst);
        strand.begin_at(Place::first_of(number));
        self.forget(old);
        self.register(number, strand);
        strand.site.let_go();
        Ok(())
    }
}
