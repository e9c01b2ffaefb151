//! Primary: the site whose kernel answers for sockets, time and standard streams.
//!
//! Two threads: one sends what the agent has done, one takes what the secondary says. lead.rs has what both are part of.
//!
//! Invariants
//!  1. The ledger has taken an event in before the event is sent, and is on its disk before the
//!     program hears that a sync is done: what the secondary confirms, this site's ledger knows.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender as Outbox;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast_replica::site::{Kind, Part, Place, Site, Step, Told, Unread};

use crate::alone::{self, Address};
use crate::bring;
use crate::cli::Side;
use crate::control::Outcome;
use crate::crew::Crew;
use crate::dispute::Dispute;
use crate::error::PairError;
use crate::files::Files;
use crate::incident::Incident;
use crate::lead::{Leading, Link};
use crate::ledger::{Ledger, page_digest};
use crate::link::{Ask, Frame, Greeting, Manifest, Receiver, Right, Sender, Tag, Tell, hex, unhex};
use crate::prepare;
use crate::status::{Board, Source, begin};
use crate::tls::Security;

/// A program that computes is held another time.
const HOLD_LIMIT: Duration = Duration::from_millis(200);

pub(crate) fn connect(side: &Side) -> Result<TcpStream, PairError> {
    let Some(address) = side.peer.clone() else {
        return Err(PairError::Missing(
            "--peer has to name the secondary".into(),
            "--peer HOST:PORT".into(),
        ));
    };
    let deadline = Instant::now() + Duration::from_secs(side.patience);
    loop {
        let tried = address.to_socket_addrs().and_then(|mut all| {
            let one = all
                .next()
                .ok_or_else(|| std::io::Error::other("no address by this name"))?;
            TcpStream::connect_timeout(&one, Duration::from_secs(2))
        });
        match tried {
            Ok(stream) => return Ok(stream),
            Err(source) if Instant::now() > deadline => {
                return Err(PairError::Peer {
                    address,
                    seconds: side.patience,
                    source,
                });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn greet(
    mut prepared: prepare::Prepared,
    sender: &Sender,
    receiver: &mut Receiver,
) -> Result<(prepare::Prepared, Ledger), PairError> {
    let mut random = [0; 16];
    steadfast_sys::random::fill(&mut random).map_err(|source| PairError::Kernel {
        part: "randomness",
        source,
    })?;
    prepared.greeting.random = hex(&random);
    sender
        .say(Tag::Greeting, &prepared.greeting)
        .map_err(PairError::Link)?;
    let theirs: Greeting = answer(receiver, Tag::Greeting)?;
    if let Some((what, here, there)) = prepared.greeting.differences(&theirs).into_iter().next() {
        return Err(PairError::Unequal { what, here, there });
    }
    let mut ledger = Ledger::open(&prepared.ledger_dir)?;
    let mut own = prepare::manifest(&prepared.data, &ledger)?;
    let mut theirs: Manifest = answer(receiver, Tag::Manifest)?;
    match prepared.greeting.right {
        None => {}
        Some(Right::Primary) => {
            bring::verify(&own, &ledger)?;
            bring::send(sender, &own, &theirs)?.tell("the secondary gets");
            theirs = answer(receiver, Tag::Manifest)?;
        }
        Some(Right::Secondary) => {
            sender.say(Tag::Manifest, &own).map_err(PairError::Link)?;
            bring::receive(receiver, &prepared.data)?.tell("the secondary has given");
            own = prepare::manifest(&prepared.data, &ledger)?;
            own.forget_wrong();
        }
    }
    if prepared.greeting.right.is_some() {
        theirs.forget_wrong();
    }
    let lines = prepare::differences(&own, &theirs);
    if !lines.is_empty() {
        return Err(PairError::Files { lines });
    }
    prepare::enrol(&mut ledger, &own)?;
    sender.say(Tag::Ready, &()).map_err(PairError::Link)?;
    Ok((prepared, ledger))
}

/// What was asked for, or the peer's refusal.
pub(crate) fn answer<T: serde::de::DeserializeOwned>(
    receiver: &mut Receiver,
    tag: Tag,
) -> Result<T, PairError> {
    let frame = receiver.next().map_err(PairError::Link)?;
    if frame.tag == Tag::Refusal {
        return Err(PairError::Refused(frame.parse().unwrap_or_default()));
    }
    if frame.tag != tag {
        return Err(PairError::Link(std::io::Error::other(format!(
            "{tag:?} was expected, {:?} came",
            frame.tag
        ))));
    }
    frame.parse().map_err(PairError::Link)
}

/// What goes from one site to the other all the time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Relay {
    Events,
    Claims,
}

/// What the threads tell the one that decides.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    closing: AtomicBool,
    /// The other site has said its last word: the program has ended there.
    pub(crate) farewell: AtomicBool,
    lost: AtomicBool,
    /// The program stands, and somebody else is to relay.
    handing: AtomicBool,
    /// Primary: the newest event that the ledger has taken in.
    followed: AtomicU64,
    /// Where the relay of events, and that of claims, is to go back to.
    back: [Mutex<Option<Place>>; 2],
    /// The other site has left, or leads since it was asked to.
    left: AtomicBool,
    leads: AtomicBool,
    /// Secondary: it is to lead, with these bytes of its clients'.
    handed: Mutex<Option<Vec<Unread>>>,
    why: Mutex<Option<PairError>>,
}

impl Shared {
    pub(crate) fn stop(&self, error: PairError) {
        self.why
            .lock()
            .expect("no panic under it")
            .get_or_insert(error);
    }

    /// The program has ended, or is to end.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Whoever relays is to end with what there is.
    pub(crate) fn hand_on(&self) {
        self.handing.store(true, Ordering::SeqCst);
    }

    pub(crate) fn hands_on(&self) -> bool {
        self.handing.load(Ordering::SeqCst)
    }

    /// Nothing is heard of the peer any more.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// Secondary: leads since it was asked to.
    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    pub(crate) fn hand_over(&self, unread: Vec<Unread>) {
        *self.handed.lock().expect("no panic under it") = Some(unread);
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed.lock().expect("no panic under it").is_some()
    }

    pub(crate) fn handed_over(&self) -> Option<Vec<Unread>> {
        self.handed.lock().expect("no panic under it").take()
    }

    /// The newest event that the ledger has taken in.
    pub(crate) fn has_followed(&self, event: u64) {
        self.followed.store(event, Ordering::SeqCst);
    }

    pub(crate) fn followed(&self) -> u64 {
        self.followed.load(Ordering::SeqCst)
    }

    pub(crate) fn rewind(&self, relay: Relay, place: Place) {
        *self.back[relay as usize].lock().expect("no panic under it") = Some(place);
    }

    /// Asked by the relay: where it is to go back to.
    pub(crate) fn rewound(&self, relay: Relay) -> Option<Place> {
        self.back[relay as usize]
            .lock()
            .expect("no panic under it")
            .take()
    }

    /// Whether the relay has gone back, in time.
    pub(crate) fn has_rewound(&self, relay: Relay, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let waits = || {
            self.back[relay as usize]
                .lock()
                .expect("no panic under it")
                .is_some()
        };
        while waits() {
            if Instant::now() > deadline || self.has_lost() {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.why.lock().expect("no panic under it").is_some()
    }

    pub(crate) fn stopped(&self) -> Option<PairError> {
        self.why.lock().expect("no panic under it").take()
    }
}

/// Says every now and then that this site is there.
pub(crate) fn beat(sender: &Sender, shared: &Shared, lost_after: Duration) {
    let pause = (lost_after / 5).min(Duration::from_millis(100));
    while !shared.is_closing() && !shared.has_lost() {
        if sender.send(Tag::Beat, &[]).is_err() {
            shared.lose();
        }
        std::thread::sleep(pause);
    }
}

/// What is acknowledged can be held back no more.
pub(crate) fn unheld(source: std::io::Error) -> PairError {
    PairError::Kernel {
        part: "the map that holds acknowledgements back",
        source,
    }
}

/// Runs the program as primary; how that ended.
pub(crate) fn run(side: &Side) -> Result<Outcome, PairError> {
    let prepared = prepare::prepare(side)?;
    let mut address = side.address.as_deref().map(Address::parse).transpose()?;
    let hold = alone::hold(side, address.as_ref())?;
    let security = Security::of(side)?;
    let (sender, mut receiver) = security.connected(connect(side)?)?;
    let greeted = greet(prepared, &sender, &mut receiver);
    if let Err(error) = &greeted {
        let _ = sender.say(Tag::Refusal, &error.to_string());
    }
    let (prepared, ledger) = greeted?;
    let random = unhex(&prepared.greeting.random)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or_default();
    let site = Arc::new(prepare::start(&prepared, Part::Primary, random, false)?);
    let started = receiver.expect(Tag::Ready).map_err(PairError::Link);
    if let Err(error) = started.and_then(|_| {
        sender
            .say(Tag::Go, &site.program_number())
            .map_err(PairError::Link)
    }) {
        steadfast_sys::child::end(site.pid());
        return Err(error);
    }
    let lost_after = Duration::from_millis(side.lost_after);
    sender.expect_within(lost_after).map_err(PairError::Link)?;
    let greeting = prepared.greeting;
    let mut files = Files::new(ledger, prepared.data);
    files
        .clients
        .lead(hold)
        .and_then(|()| files.clients.pair_up(true))
        .map_err(unheld)?;
    let files = Arc::new(Mutex::new(files));
    let source = Source::new(Part::Primary, side, &site, &files, &greeting.random);
    let (board, notify) = begin(source, side)?;
    if let Some(address) = &mut address {
        address.take()?;
        address.announce();
    }
    site.go()?;
    let link = Link {
        sender,
        receiver,
        name: greeting.random.clone(),
    };
    let leading = Leading {
        side,
        crew: Crew::new(&site, &files),
        site,
        files,
        board,
        notify,
        greeting,
        security,
        address,
    };
    leading.run(Some(link), Place::first())
}

/// Where it has come to, and the newest read: the program waits for the secondary behind each, so no other can be in doubt.
pub(crate) fn send_steps(
    site: &Site,
    sender: &Sender,
    shared: &Shared,
    files: &Mutex<Files>,
    mut place: Place,
) -> (Place, Option<Step>) {
    let mut read = None;
    let mut claimed = 0;
    loop {
        if let Some(back) = shared.rewound(Relay::Events) {
            (place, claimed) = (back, 0);
        }
        let closing = shared.is_closing();
        if shared.has_lost() {
            if closing {
                return (place, read);
            }
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let limit = Duration::from_millis(if closing { 0 } else { 20 });
        let step = match site.next_told(&mut place, &mut claimed, limit) {
            Some(Told::Step(step)) => *step,
            Some(Told::Claim(claim)) => {
                let told = [&place.strand.to_le_bytes()[..], &claim];
                if sender.send(Tag::Claimed, &told).is_err() {
                    shared.lose();
                }
                continue;
            }
            None if closing => return (place, read),
            None => continue,
        };
        // Held until the ledger is on its disk: `take` asks for it before it says that an event is done. Both sites'
        // disks and ledgers are written at the same time.
        let mut files = files.lock().expect("no panic under it");
        let durable = match files.follow((0, place.strand), &step) {
            Ok(durable) => durable,
            Err(error) => {
                shared.stop(error.into());
                return (place, read);
            }
        };
        if sender
            .send(
                Tag::Step,
                &[&place.strand.to_le_bytes(), &step.head(), &step.payload],
            )
            .is_err()
        {
            shared.lose();
        }
        if durable && let Err(error) = files.ledger.flush(true) {
            shared.stop(error.into());
            return (place, read);
        }
        drop(files);
        shared.has_followed(step.seq());
        if step.note().is_some_and(|note| note.kind == Kind::Read) {
            read = Some(step);
        }
    }
}

pub(crate) fn take(
    crew: &Crew,
    sender: &Sender,
    receiver: &mut Receiver,
    shared: &Shared,
    files: &Mutex<Files>,
    (board, disputes): (&Board, &Outbox<Dispute>),
    events: Option<&Path>,
) {
    let first = crew.first();
    let site = &first.site;
    // While the program is held, the secondary's claims wait here: without them it comes to nothing further.
    let mut gate: Option<Vec<Vec<u8>>> = None;
    let release = |gate: &mut Option<Vec<Vec<u8>>>| {
        let number = site.strand();
        for claims in gate.take().into_iter().flatten() {
            put_claims(site, number, &claims);
        }
    };
    loop {
        let Ok(frame) = receiver.next() else {
            shared.lose();
            return;
        };
        board.hear();
        match frame.tag {
            Tag::Claims => {
                let held = gate.as_mut().and_then(|waiting| {
                    let (number, rest) = frame.body.split_first_chunk()?;
                    let (done, claims) = rest.split_first_chunk()?;
                    let number = u64::from_le_bytes(*number);
                    if number != site.strand() {
                        return None;
                    }
                    waiting.push(claims.to_vec());
                    Some(crew.take_claims(first, number, u64::from_le_bytes(*done), &[]))
                });
                if let Err(error) = held.unwrap_or_else(|| crew.hear(frame)) {
                    shared.stop(error);
                    return;
                }
            }
            Tag::Ask => {
                let told = match frame.parse() {
                    // The others would go on meanwhile.
                    Ok(Ask::Hold) if crew.others() > 0 => Tell::Busy,
                    Ok(Ask::Hold) => {
                        gate.get_or_insert_default();
                        hold(site, shared, files)
                    }
                    Ok(Ask::Release) => {
                        release(&mut gate);
                        Tell::Done
                    }
                    Ok(ask) => tell(crew, files, ask),
                    Err(error) => Tell::Failed(error.to_string()),
                };
                if matches!(told, Tell::Busy) {
                    release(&mut gate);
                }
                let _ = sender.say(Tag::Tell, &told);
            }
            Tag::Incident => {
                if let Ok(incident) = frame.parse::<Incident>() {
                    board.count(&incident);
                    incident.tell(events);
                }
            }
            Tag::Stop => shared.stop(PairError::Stopped(frame.parse().unwrap_or_default())),
            Tag::Leave => shared.left.store(true, Ordering::SeqCst),
            Tag::Go => shared.leads.store(true, Ordering::SeqCst),
            Tag::Dispute => hand_over(&frame, disputes, shared),
            Tag::Beat => {}
            Tag::Bye => {
                shared.farewell.store(true, Ordering::SeqCst);
            }
            _ => shared.stop(PairError::Link(std::io::Error::other(
                "the secondary says what only a primary says",
            ))),
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

fn put_claims(site: &Site, strand: u64, claims: &[u8]) {
    for claim in claims.chunks(128) {
        site.put_claim(strand, claim);
    }
}

/// Waits until the program has done all that both sites have claimed. The secondary's claims are not handed on meanwhile, so
/// it comes to nothing further that changes anything: queries alone are made before the other site has claimed them.
fn hold(site: &Site, shared: &Shared, files: &Mutex<Files>) -> Tell {
    let deadline = Instant::now() + HOLD_LIMIT;
    while Instant::now() < deadline {
        let agreed = site.claimed_last(Part::Secondary);
        let followed = shared.followed();
        let waits = || {
            site.claimed_call(Part::Primary, agreed)
                .is_some_and(|(nr, first)| is_wait(files, nr, first))
        };
        if followed >= agreed || (followed + 1 == agreed && waits()) {
            return Tell::Held(followed);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Tell::Busy
}

/// A call that may last, and that touches no file.
fn is_wait(files: &Mutex<Files>, nr: u32, first: u64) -> bool {
    match i64::from(nr) {
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_pause => true,
        libc::SYS_read | libc::SYS_readv => {
            let fd = u32::try_from(first & 0xffff_ffff).map_or(-1, u32::cast_signed);
            files.lock().expect("no panic under it").at(0, fd).is_none()
        }
        _ => false,
    }
}

/// Answers the secondary, which arbitrates.
fn tell(crew: &Crew, files: &Mutex<Files>, ask: Ask) -> Tell {
    let done = |result: std::io::Result<()>| {
        result.map_or_else(|error| Tell::Failed(error.to_string()), |()| Tell::Done)
    };
    match ask {
        Ask::Hold | Ask::Release => Tell::Failed("asked of the wrong one".into()),
        Ask::Page { ref path, page } | Ask::OnDevice { ref path, page } => {
            let path = PathBuf::from(path);
            let files = files.lock().expect("no panic under it");
            let ledger = files
                .ledger
                .id(&path)
                .map_or_else(Vec::new, |id| files.ledger.accepted(id, page));
            let read = if matches!(ask, Ask::OnDevice { .. }) {
                crate::disk::page_on_device(&path, page)
            } else {
                crate::disk::page(&path, page)
            };
            match read {
                Ok(bytes) => Tell::Page {
                    bytes: hex(&bytes),
                    ledger: ledger
                        .iter()
                        .map(|digest| format!("{digest:032x}"))
                        .collect(),
                },
                Err(error) => Tell::Failed(error.to_string()),
            }
        }
        Ask::Repair { path, page, bytes } => {
            let path = PathBuf::from(path);
            let Ok(bytes) = unhex(&bytes) else {
                return Tell::Failed("not hexadecimal".into());
            };
            let files = files.lock().expect("no panic under it");
            // The survivor is verified before anything is copied from it.
            let vouched = files.ledger.id(&path).is_some_and(|id| {
                files
                    .ledger
                    .accepted(id, page)
                    .contains(&page_digest(&bytes))
            });
            if !vouched {
                return Tell::Failed(
                    "the primary's ledger does not vouch for the secondary's page".into(),
                );
            }
            done(crate::disk::put_page(&path, page, &bytes))
        }
        Ask::Correct {
            strand,
            seq,
            base,
            bytes,
        } => {
            let (Ok(bytes), Some(strand)) = (unhex(&bytes), crew.strand(strand)) else {
                return Tell::Failed("not hexadecimal, or of no process".into());
            };
            strand.site.correct(base, seq, &bytes);
            Tell::Done
        }
    }
}
