//! Secondary: the same program on this host's own files, and the arbiter of what they return.
//!
//! When a read brings other bytes here than the log holds, both programs stand still: this one asks
//! its launcher, the primary's waits for this one. Nothing has been derived from the bytes yet.
//!
//! ```text
//!   read differs ──► page of A, page of B, both ledgers ──► arbiter.rs
//!        B wrong: A's page is written here
//!        A wrong: B's page is written there, and what A's program was given is put right
//!        nobody vouched for, or both: stop
//!   ──► the read is made again and compared again
//! ```

mod disks;

use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast_replica::site::{End, News, Part, Place, Question, Sent, Site};
use steadfast_sys::manager::Manager;

use crate::alone::{self, Address};
use crate::asks::Asks;
use crate::board::{Board, State, What};
use crate::bring;
use crate::cli::{Right, Side};
use crate::control::{self, Handed, Outcome};
use crate::crew::{Adopted, Crew, Strand, end_of};
use crate::dispute::{Dispute, Parties, Raised, hand_over};
use crate::error::{PairError, unheld};
use crate::files::Files;
use crate::hex::unhex;
use crate::hold::Hold;
use crate::lead::{Leading, ended_itself};
use crate::ledger::Ledger;
use crate::link::{self, Greeting, Manifest, Receiver, Sender, Tag, Tell, answer};
use crate::prepare;
use crate::scrub::{Scrubber, Suspect};
use crate::shared::{Relay, Shared, beat};
use crate::status::{Source, begin};
use crate::tls::Security;

fn accept(side: &Side) -> Result<TcpStream, PairError> {
    let refused = |source| PairError::Listen {
        address: side.listen.clone(),
        source,
    };
    let listener = TcpListener::bind(&side.listen).map_err(refused)?;
    loop {
        let (stream, from) = listener.accept().map_err(refused)?;
        let welcome = side.peer_host().is_none_or(|host| {
            let from = from.ip().to_canonical();
            host.parse()
                .map_or(host == from.to_string(), |host: IpAddr| host == from)
        });
        if welcome {
            return Ok(stream);
        }
    }
}

fn greet(
    mut prepared: prepare::Prepared,
    sender: &Sender,
    receiver: &mut Receiver,
) -> Result<(prepare::Prepared, Ledger), PairError> {
    let theirs: Greeting = answer(receiver, Tag::Greeting)?;
    sender
        .say(Tag::Greeting, &prepared.greeting)
        .map_err(PairError::Link)?;
    if let Some((what, here, there)) = prepared.greeting.differences(&theirs).into_iter().next() {
        return Err(PairError::Unequal { what, here, there });
    }
    prepared.greeting.random = theirs.random;
    let mut ledger = Ledger::open(&prepared.ledger_dir)?;
    let mut own = prepare::manifest(&prepared.data, &ledger)?;
    sender.say(Tag::Manifest, &own).map_err(PairError::Link)?;
    match prepared.greeting.right {
        None => {}
        Some(Right::Primary) => {
            bring::receive(receiver, &prepared.data)?.tell("the primary has given");
            own = prepare::manifest(&prepared.data, &ledger)?;
            sender.say(Tag::Manifest, &own).map_err(PairError::Link)?;
        }
        Some(Right::Secondary) => {
            let theirs: Manifest = answer(receiver, Tag::Manifest)?;
            bring::verify(&own, &ledger)?;
            bring::send(sender, &own, &theirs)?.tell("the primary gets");
        }
    }
    let () = answer(receiver, Tag::Ready)?;
    prepare::enrol(&mut ledger, &own)?;
    Ok((prepared, ledger))
}

struct Pair<'a> {
    side: &'a Side,
    site: &'a Site,
    sender: &'a Sender,
    files: &'a Mutex<Files>,
    crew: &'a Arc<Crew>,
    asks: Asks,
    suspects: &'a Inbox<Suspect>,
    disputes: &'a Inbox<Dispute>,
    board: &'a Board,
    shared: &'a Shared,
    /// What it has said that the two sites differ about, and that is not settled.
    raised: Raised,
    tries: ((u64, u64), u32),
}

/// Runs the program as secondary; how it ended.
pub(crate) fn run(side: &Side) -> Result<Outcome, PairError> {
    let prepared = prepare::prepare(side)?;
    let address = side.address.as_deref().map(Address::guarded).transpose()?;
    let hold = alone::hold(side, address.as_ref())?;
    let security = Security::of(side)?;
    let (sender, mut receiver) = link::halves(security.accepted(accept(side)?)?);
    let greeted = greet(prepared, &sender, &mut receiver);
    if let Err(error) = &greeted {
        let _ = sender.say(Tag::Refusal, &error.to_string());
    }
    let (prepared, ledger) = greeted?;
    let random = unhex(&prepared.greeting.random)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or_default();
    let site = Arc::new(prepare::start(&prepared, Part::Secondary, random, None)?);
    let number = sender
        .say(Tag::Ready, &())
        .map_err(PairError::Link)
        .and_then(|()| answer(&mut receiver, Tag::Go));
    let number: u32 = number.inspect_err(|_| steadfast_sys::child::end(site.pid()))?;
    site.set_program_number(number);
    Follower {
        side,
        site,
        files: Files::new(ledger, prepared.data).shared(),
        greeting: prepared.greeting,
        address,
        hold,
        security,
        others: Vec::new(),
    }
    .run(sender, receiver, Place::first())
}

/// A site whose program follows.
#[derive(Debug)]
pub(crate) struct Follower<'a> {
    pub(crate) side: &'a Side,
    pub(crate) site: Arc<Site>,
    pub(crate) files: Arc<Mutex<Files>>,
    pub(crate) greeting: Greeting,
    pub(crate) address: Option<Address>,
    /// For when it leads.
    pub(crate) hold: Option<Hold>,
    pub(crate) security: Security,
    /// Processes beside the first one, of a program that was joined.
    pub(crate) others: Vec<Adopted>,
}

impl Follower<'_> {
    /// Lets the program go from `place` on, until it has ended here, or where this site has taken it over.
    pub(crate) fn run(
        self,
        sender: Sender,
        mut receiver: Receiver,
        place: Place,
    ) -> Result<Outcome, PairError> {
        let Self {
            side,
            site,
            files,
            greeting,
            address,
            hold,
            security,
            others,
        } = self;
        let lost_after = Duration::from_millis(side.lost_after);
        sender.expect_within(lost_after).map_err(PairError::Link)?;
        let name = greeting.random.clone();
        let sender = Arc::new(sender);
        let shared = Arc::new(Shared::default());
        // Before anything that may take its time on a busy host: the primary counts from its word to go on.
        let beats = {
            let (sender, shared) = (Arc::clone(&sender), Arc::clone(&shared));
            std::thread::spawn(move || beat(&sender, &shared, lost_after))
        };
        let crew = Crew::new(side, &site, &files);
        crew.first().begin_at(place);
        crew.follow(&sender);
        let (told, tells) = channel();
        let (suspected, suspects) = channel();
        let (disputed, disputes) = channel();
        let source = Source::new(Part::Secondary, side, &site, &files, &name);
        let begun = begin(source, side).and_then(|begun| {
            if place.seq == 1 {
                site.go()?;
            } else {
                site.go_on().map_err(PairError::Bug)?;
            }
            Ok(begun)
        });
        // Nobody else knows those that were made for a join.
        let (board, mut notify) = begun.inspect_err(|_| {
            if place.seq > 1 {
                crate::crew::end_all(site.pid());
                site.forget_objects();
            }
        })?;
        others.into_iter().for_each(|one| crew.adopt(one));
        let inward = {
            let (crew, shared) = (Arc::clone(&crew), Arc::clone(&shared));
            let (board, suspected) = (Arc::clone(&board), suspected.clone());
            std::thread::spawn(move || {
                take(
                    &crew,
                    &mut receiver,
                    &shared,
                    (&told, &suspected, &disputed),
                    &board,
                );
                shared.hears_no_more();
            })
        };
        let outward = {
            let (site, sender, shared) =
                (Arc::clone(&site), Arc::clone(&sender), Arc::clone(&shared));
            let files = Arc::clone(&files);
            std::thread::spawn(move || send_claims(&site, &sender, &shared, &files, place))
        };
        let scrubber = {
            let (shared, files, board) =
                (Arc::clone(&shared), Arc::clone(&files), Arc::clone(&board));
            let rate = side.scrub;
            std::thread::spawn(move || {
                let scrubber = Scrubber {
                    files: &files,
                    shared: &shared,
                    board: &board,
                    rate,
                    unreadable: Mutex::default(),
                };
                scrubber.run(|suspect| drop(suspected.send(suspect)));
            })
        };
        let mut pair = Pair {
            side,
            site: &site,
            sender: &sender,
            files: &files,
            crew: &crew,
            asks: Asks::new(tells),
            suspects: &suspects,
            disputes: &disputes,
            board: &board,
            shared: &shared,
            raised: Raised::default(),
            tries: ((0, 0), 0),
        };
        let mut result = pair.watch(&shared, &mut notify);
        let mut decided = Ok(());
        let handed = shared.handed_over();
        if handed.is_some() && side.witness == "none" {
            // The primary's word is enough: its program stands.
            shared.lose();
        } else if matches!(result, Err(PairError::Lost)) {
            shared.tell_loss();
            board.set(State::Held);
            crew.hold();
            decided = alone::decide(side, &name, ('B', false), || {
                board.tick();
                notify.tick(true, State::Held.name());
            })
            .map(drop);
            shared.lose();
        } else {
            shared.close();
            let _ = match &result {
                Ok(_) => sender.send(Tag::Bye, &[]),
                Err(error) if error.is_own() => sender.say(Tag::Leave, &Some(error.to_string())),
                Err(error) => sender.say(Tag::Stop, &error.to_string()),
            };
        }
        let _ = outward.join();
        if handed.is_none() {
            sender.close();
        }
        let _ = beats.join();
        let _ = scrubber.join();
        inward.join().expect("the relay does not panic");
        match (&result, decided) {
            (Err(PairError::Lost), Ok(())) => {
                let leading = Leading {
                    side,
                    crew,
                    site,
                    files,
                    board,
                    notify,
                    greeting,
                    security,
                    address,
                    unasked: None,
                    gave_away: false,
                };
                let mut files = leading.files.lock().expect("no panic under it");
                files.clients.lead(hold).map_err(unheld)?;
                drop(files);
                return lead(leading, handed.map(|unread| (unread, sender)));
            }
            (_, Err(error)) => result = Err(error),
            _ => {}
        }
        board.set(State::Ended);
        crew.end();
        site.kill();
        if !ended_itself(result.as_ref().ok()) {
            site.forget_objects();
        }
        files
            .lock()
            .expect("no panic under it")
            .ledger
            .flush(true)?;
        result.map(Outcome::Ended)
    }
}

/// The primary is lost, or has handed its program over, and this site is the one that goes on: its program leads from here.
fn lead(
    mut leading: Leading<'_>,
    handed: Option<(Handed, Arc<Sender>)>,
) -> Result<Outcome, PairError> {
    let began = Instant::now();
    let unread = match &handed {
        Some((unread, _)) => leading.crew.take_unread(unread),
        None => {
            let files = leading.files.lock().expect("no panic under it");
            let unread = leading.crew.unread_of(&files.clients.lines);
            leading.crew.take_unread(&unread)
        }
    };
    if let Some(address) = &mut leading.address {
        address.take()?;
    }
    let announce = || {
        if let Some(address) = &leading.address {
            address.announce();
        }
    };
    let what = match &handed {
        None => "the primary is lost; this site goes on alone, as the witness says",
        Some(_) => "the primary has handed its program over; this site leads",
    };
    let (crew, first) = (&leading.crew, leading.crew.first());
    crew.take_over();
    let led = leading
        .site
        .lead(
            &first.end_of_log(),
            &unread,
            Duration::from_secs(leading.side.spins_after),
            || crew.announce(announce),
            |news| crew.grow(first, news),
        )
        .map_err(|why| PairError::Stopped(format!("{what}, and it cannot: {why}")))
        .and_then(|(carried, cut)| {
            let others = crew.has_taken_over()?;
            Ok((carried + others.0, cut + others.1))
        });
    if led.is_err() {
        crew.end();
        leading.site.kill();
    }
    let (carried, dropped) = led?;
    let place = first.end_of_log();
    if let Some((_, sender)) = handed {
        let _ = sender.say(Tag::Go, &());
        sender.close();
    }
    eprintln!(
        "steadfast pair: {what}, with {carried} connections ({dropped} cut), {} ms",
        began.elapsed().as_millis()
    );
    leading.board.go_alone();
    leading.run(None, Site::begun_at(place.strand, place.seq))
}

fn send_claims(site: &Site, sender: &Sender, shared: &Shared, files: &Mutex<Files>, place: Place) {
    let mut sent = Sent {
        claim: place.seq - 1,
        done: place.seq - 1,
        strand: place.strand,
    };
    while !shared.is_closing() && !shared.has_lost() {
        if let Some(back) = shared.back.rewound(Relay::Claims) {
            sent.claim = back.seq - 1;
        }
        let Some((claims, done)) = site.next_claims(&mut sent, Duration::from_millis(50)) else {
            continue;
        };
        drop(files.lock().expect("no panic under it"));
        if let Err(error) = sender.send(
            Tag::Claims,
            &[
                &sent.strand.to_le_bytes(),
                &done.to_le_bytes(),
                &claims.concat(),
            ],
        ) {
            shared.unsent(sender, &error);
            return;
        }
    }
}

fn take(
    crew: &Crew,
    receiver: &mut Receiver,
    shared: &Shared,
    (told, suspected, disputed): (&Outbox<(u64, Tell)>, &Outbox<Suspect>, &Outbox<Dispute>),
    board: &Board,
) {
    loop {
        let frame = match receiver.next() {
            Ok(frame) => frame,
            Err(error) => return shared.lose_by(&error),
        };
        board.hear();
        if let Some(back) = shared.back.rewound(Relay::Events) {
            crew.first().begin_at(back);
        }
        match frame.tag {
            Tag::Step | Tag::Claimed | Tag::Exec | Tag::Ended => {
                if let Err(error) = crew.hear(frame) {
                    shared.stop(error);
                    return;
                }
            }
            Tag::End => {
                let Ok((claim, text)) = frame.parse::<(String, String)>() else {
                    continue;
                };
                shared.farewell.store(true, Ordering::SeqCst);
                let Some(end) = end_of(&text) else {
                    let text = text.strip_prefix("stopped ").unwrap_or(&text);
                    shared.stop(PairError::Refused(text.to_owned()));
                    return;
                };
                crew.first()
                    .site
                    .put_end(&unhex(&claim).unwrap_or_default(), &end);
            }
            Tag::Tell => match frame.parse() {
                Ok(tell) => drop(told.send(tell)),
                Err(error) => shared.stop(PairError::Link(error)),
            },
            Tag::Beat => {}
            Tag::Suspect => {
                if let Ok(suspect) = frame.parse() {
                    let _ = suspected.send(suspect);
                }
            }
            Tag::Stop => {
                let why: String = frame.parse().unwrap_or_default();
                shared.stop(PairError::told(&why));
            }
            Tag::Leave => {
                let why: Option<String> = frame.parse().unwrap_or_default();
                let why = format!("the primary cannot go on: {}", why.unwrap_or_default());
                let kind = std::io::ErrorKind::ConnectionAborted;
                return shared.lose_by(&std::io::Error::new(kind, why));
            }
            Tag::Dispute => hand_over(&frame, disputed, shared),
            Tag::Handover => {
                match frame.parse().and_then(|told| control::decode(&told)) {
                    Ok(unread) => shared.hand_over(unread),
                    Err(error) => shared.stop(PairError::Link(error)),
                }
                return;
            }
            _ => shared.stop(PairError::Link(std::io::Error::other(
                "the primary says what only a secondary says",
            ))),
        }
    }
}

impl Pair<'_> {
    fn watch(&mut self, shared: &Shared, notify: &mut Manager) -> Result<End, PairError> {
        loop {
            self.board.tick();
            notify.tick(true, self.board.state().name());
            if let Some(error) = shared.stopped().or_else(|| self.crew.stopped()) {
                return Err(error);
            }
            if let Some((strand, question)) = self.crew.question() {
                self.arbitrate(&strand, question)?;
            }
            if shared.is_handed_over() {
                return Err(PairError::Lost);
            }
            if let Some(order) = self.board.take_order() {
                match order.what {
                    What::Switch => order.answer(Err("this site follows: ask the one that leads")),
                    What::Detach => {
                        let asked: Option<String> = None;
                        self.sender
                            .say(Tag::Leave, &asked)
                            .map_err(PairError::Link)?;
                        order.answer(Ok("this site has left; the other one goes on alone"));
                        return Ok(End::Exited(0));
                    }
                }
            }
            // What it said last comes before its silence.
            if shared.has_lost() && !shared.farewell.load(Ordering::SeqCst) {
                let open = || self.raised.lost().unwrap_or(PairError::Lost);
                return Err(shared.stopped().unwrap_or_else(open));
            }
            if let Ok(said) = self.disputes.try_recv() {
                self.take_part(said)?;
                continue;
            }
            if let Some(strand) = self.crew.dispute() {
                self.raise(&strand)?;
            }
            match self.site.news(Duration::from_millis(20)) {
                None => {
                    if let Ok(suspect) = self.suspects.try_recv() {
                        self.arbitrate_scrubbed(&suspect)?;
                    }
                }
                Some(News::End(end)) => return Ok(end),
                Some(News::Damaged(event)) => {
                    return Err(PairError::Stopped(format!(
                        "the log of B is damaged at event {event}"
                    )));
                }
                Some(News::Dispute(..)) => {
                    let first = Arc::clone(self.crew.first());
                    self.raise(&first)?;
                    std::thread::sleep(Duration::from_micros(200));
                }
                Some(News::Question(question)) => {
                    let first = Arc::clone(self.crew.first());
                    self.arbitrate(&first, question)?;
                }
                Some(news @ (News::Born(_) | News::Exec(_))) => {
                    let grown = self.crew.grow(self.crew.first(), news);
                    grown.map_err(PairError::Stopped)?;
                }
            }
        }
    }

    /// A process asks about what its disk gives.
    fn arbitrate(&mut self, strand: &Strand, question: Question) -> Result<(), PairError> {
        self.board.set(State::Arbitrating);
        self.decide(strand, question)?;
        self.board.set(State::Running);
        strand.answer();
        Ok(())
    }

    /// A process claims something else than the primary's does, and the primary decides.
    fn raise(&mut self, strand: &Strand) -> Result<(), PairError> {
        match strand.site.disputed() {
            Some(event) => self.raised.say((strand.site.strand(), event), self.sender),
            None => Ok(()),
        }
    }

    /// The primary has asked what this site has at an event, and decides.
    fn take_part(&mut self, said: Dispute) -> Result<(), PairError> {
        let Dispute::Look(number, event) = said else {
            return Ok(());
        };
        self.board.set(State::Arbitrating);
        self.raised.forget(number);
        let strand = self.crew.strand(number).ok_or_else(|| {
            PairError::Stopped(format!(
                "at event {event} A claims something else in a process that is not there on B"
            ))
        })?;
        let parties = Parties {
            strand: &strand,
            is_first: Arc::ptr_eq(&strand, self.crew.first()),
            sender: self.sender,
            disputes: self.disputes,
            shared: self.shared,
        };
        let erred = parties.follow(event)?;
        self.board.count_mended(&erred);
        erred.tell(self.side.events.as_deref());
        self.board.set(State::Running);
        Ok(())
    }
}
