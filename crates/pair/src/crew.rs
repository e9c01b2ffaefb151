//! Crew: the processes of the program, each with a strand of the log on both sites.
//!
//! ```text
//!   first process   watched by lead.rs or secondary.rs
//!   any other one   two threads: one is told its news, one relays what it does
//!                   Follows ──primary lost──► TakesOver ──each leads──► Alone
//!                   Leads ──secondary lost──► Held ──witness──► Alone
//! ```
//!
//! Frames name their strand. Those of a strand that has not begun here yet wait for it.
//!
//! Invariants
//!  1. Frames of one strand are taken in the order in which they came.
//!  2. A process that fails ends the program: nothing of it goes on without one of its parts.
//!
//! Not covered: re-runs of processes that share memory (docs/reference/limits-pair.md).

mod kin;
mod lives;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use steadfast_replica::site::{
    CLASSES, End, Part, Place, Question, Sent, Silence, Site, Spins, Step, Told, Unread, Watch,
};

use crate::alone;
use crate::cli::Side;
use crate::control::Handed;
use crate::error::{PairError, unheld};
use crate::files::Files;
use crate::hex::{hex, unhex};
use crate::link::{Frame, Sender, Tag};
use crate::shared::{Back, Relay};

pub(crate) use kin::{Adopted, Kin, NotNow, end_all, go_on};

/// For what a process has been told to be done.
const SETTLES: Duration = Duration::from_secs(5);
/// For every process to lead.
const TAKES_OVER: Duration = Duration::from_secs(10);
/// For the connections of every process to be set up before any of them speaks. Whoever takes longer speaks later: its clients may
/// have asked before, and have been told that there is no connection.
const SETS_UP: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);
const CLAIM_BYTES: usize = 128;

fn wait_for(limit: Duration, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under it")
}

/// What processes beside the first one are part of.
#[derive(Debug, Clone)]
enum Mode {
    Leads(Arc<Sender>),
    Follows(Arc<Sender>),
    Held,
    TakesOver,
    Alone,
    Ended,
}

/// One process.
#[derive(Debug)]
pub(crate) struct Strand {
    pub(crate) site: Arc<Site>,
    /// Its descriptors in [`Files`].
    pub(crate) table: u64,
    /// Secondary: the newest event that has come, and the next one.
    newest: Mutex<(Place, Place)>,
    /// The other site has said how it ended.
    told: AtomicBool,
    /// Nothing more comes of it.
    over: Mutex<Option<End>>,
    leads: AtomicBool,
    /// Secondary: it asks the one that arbitrates.
    asks: AtomicBool,
    /// Held by whoever hears its news; and somebody who settles a dispute wants it.
    heard: Mutex<()>,
    wanted: AtomicBool,
    pub(crate) back: Back,
    watch: Mutex<Watch>,
    /// Primary: the newest read, which nobody may have compared.
    unchecked: Mutex<Option<(u64, Step)>>,
    /// It has been asked to stand between two events; and it does, before this one.
    halts: AtomicBool,
    stands: AtomicU64,
    /// Its relay has come so far, in the log of this strand; and has seen that it is to do nothing.
    relayed: AtomicU64,
    relays: AtomicU64,
    rests: AtomicBool,
    /// When it goes on its log begins anew, for another site or not.
    begins: Mutex<Option<bool>>,
    /// ... and has begun there; its relay has not heard of that yet.
    anew: Mutex<Option<(Place, bool)>>,
}

impl Strand {
    fn new(site: Arc<Site>, table: u64, spins_after: Duration) -> Arc<Self> {
        let place = Place::first_of(site.strand());
        Arc::new(Self {
            leads: AtomicBool::new(site.leads()),
            site,
            table,
            newest: Mutex::new((place, place)),
            told: AtomicBool::new(false),
            asks: AtomicBool::new(false),
            heard: Mutex::default(),
            wanted: AtomicBool::new(false),
            back: Back::default(),
            over: Mutex::default(),
            watch: Mutex::new(Watch::new(spins_after)),
            unchecked: Mutex::default(),
            halts: AtomicBool::new(false),
            stands: AtomicU64::new(0),
            relayed: AtomicU64::new(0),
            relays: AtomicU64::new(0),
            rests: AtomicBool::new(false),
            begins: Mutex::default(),
            anew: Mutex::default(),
        })
    }

    /// To settle a dispute: nobody else hears its news until this ends. Nothing: somebody does for all this time.
    pub(crate) fn alone_with_it(&self, limit: Duration) -> Option<Watched<'_>> {
        let deadline = Instant::now() + limit;
        self.wanted.store(true, Ordering::SeqCst);
        loop {
            if let Ok(guard) = self.heard.try_lock() {
                return Some(Watched {
                    wanted: &self.wanted,
                    _heard: guard,
                });
            }
            if Instant::now() > deadline {
                self.wanted.store(false, Ordering::SeqCst);
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// To hear its news, which nobody does who settles a dispute.
    fn hears(&self) -> Option<MutexGuard<'_, ()>> {
        let wanted = || self.wanted.load(Ordering::SeqCst);
        (!wanted())
            .then(|| locked(&self.heard))
            .filter(|_| !wanted())
    }

    /// Whether its relay has sent all up to this event of its newest program.
    pub(crate) fn has_relayed(&self, event: u64) -> bool {
        self.relays.load(Ordering::SeqCst) == self.site.strand()
            && self.relayed.load(Ordering::SeqCst) > event
    }

    /// Why the program has to be stopped: this process computes while others, of its threads or beside it, wait for ever; or, where
    /// there are two sites, it has hung on one of them. `pauses`: the other site's claims are kept from it for now.
    pub(crate) fn spins(&self, paired: bool, pauses: bool) -> Result<(), PairError> {
        let process = self.site.program_number();
        let mut watch = locked(&self.watch);
        match watch.spins(&self.site) {
            Spins::No => {}
            Spins::Long => eprintln!(
                "steadfast pair: process {process} computes without a call while others of the program wait for their turn: if this goes on, both sites stop (--spins-after)"
            ),
            Spins::TooLong => return Err(PairError::Spins { process }),
        }
        match watch.hangs(&self.site, pauses).filter(|_| paired) {
            None => Ok(()),
            Some(part) => Err(PairError::Stopped(format!(
                "process {process} has come to event {} on one site, and on {} it has hung, or stands still (--spins-after)",
                self.site
                    .claimed_last(Part::Primary)
                    .max(self.site.claimed_last(Part::Secondary)),
                if part == Part::Primary { 'A' } else { 'B' },
            ))),
        }
    }

    /// What the process has asked is decided.
    pub(crate) fn answer(&self) {
        self.site.answer(0);
        self.asks.store(false, Ordering::SeqCst);
    }

    /// Primary: the newest read, if the other site has not done it. What has been compared another process may have written since.
    fn unchecked(&self) -> Option<Step> {
        let newest = locked(&self.unchecked).clone();
        newest
            .filter(|(strand, step)| {
                *strand == self.site.strand() && step.seq() >= self.site.done()
            })
            .map(|(_, step)| step)
    }

    /// Secondary: where the log begins.
    pub(crate) fn begin_at(&self, place: Place) {
        *locked(&self.newest) = (place, place);
    }

    /// Secondary: where the log ends.
    pub(crate) fn end_of_log(&self) -> Place {
        locked(&self.newest).1
    }

    /// The base of the log at the newest event, which the program may be asking about.
    pub(crate) fn base(&self, seq: u64) -> Option<u64> {
        let newest = locked(&self.newest).0;
        (newest.seq == seq).then_some(newest.base)
    }
}

/// A process whose dispute is settled.
#[derive(Debug)]
pub(crate) struct Watched<'a> {
    wanted: &'a AtomicBool,
    _heard: MutexGuard<'a, ()>,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::SeqCst);
    }
}

#[derive(Debug)]
enum Entry {
    Known(Arc<Strand>),
    Waiting(Vec<Frame>),
}

/// All of one site.
#[derive(Debug)]
pub(crate) struct Crew {
    first: Arc<Strand>,
    files: Arc<Mutex<Files>>,
    spins_after: Duration,
    all: Mutex<HashMap<u64, Entry>>,
    /// The newest strands that have ended.
    ended: Mutex<VecDeque<u64>>,
    mode: Mutex<Mode>,
    why: Mutex<Option<PairError>>,
    end: Mutex<Option<End>>,
    alive: AtomicU32,
    /// Processes that begin, or become another program: they come to no event meanwhile.
    growing: AtomicU32,
    yet_to_lead: AtomicU32,
    /// At a take-over: those whose connections are not set up, and whether the address has been announced.
    yet_to_set_up: AtomicU32,
    announced: AtomicBool,
    /// Connections that these have gone on with, and that they have lost.
    carried: Mutex<(u32, u32)>,
    /// Primary: all are to stand, since the program is handed over; and who waits for the end of that.
    halt: AtomicBool,
    gate: Mutex<()>,
    opened: Condvar,
    /// Secondary: by strand, what the primary has handed over of its clients' bytes.
    unread: Mutex<HashMap<u64, Vec<Unread>>>,
    asks: Outbox<(Arc<Strand>, Question)>,
    asked: Mutex<Inbox<(Arc<Strand>, Question)>>,
    /// Processes beside the first one that claim different things on the two sites.
    differs: Outbox<Arc<Strand>>,
    differ: Mutex<Inbox<Arc<Strand>>>,
}

impl Crew {
    pub(crate) fn new(side: &Side, site: &Arc<Site>, files: &Arc<Mutex<Files>>) -> Arc<Self> {
        let spins_after = Duration::from_secs(side.spins_after);
        let first = Strand::new(Arc::clone(site), 0, spins_after);
        let (asks, asked) = channel();
        let (differs, differ) = channel();
        Arc::new(Self {
            all: Mutex::new(HashMap::from([(
                site.strand(),
                Entry::Known(Arc::clone(&first)),
            )])),
            first,
            spins_after,
            files: Arc::clone(files),
            ended: Mutex::default(),
            mode: Mutex::new(Mode::Held),
            why: Mutex::default(),
            end: Mutex::default(),
            alive: AtomicU32::new(0),
            growing: AtomicU32::new(0),
            yet_to_lead: AtomicU32::new(0),
            yet_to_set_up: AtomicU32::new(0),
            announced: AtomicBool::new(false),
            carried: Mutex::default(),
            halt: AtomicBool::new(false),
            gate: Mutex::default(),
            opened: Condvar::new(),
            unread: Mutex::default(),
            asks,
            asked: Mutex::new(asked),
            differs,
            differ: Mutex::new(differ),
        })
    }

    pub(crate) fn first(&self) -> &Arc<Strand> {
        &self.first
    }

    /// Processes beside the first one that have not ended.
    pub(crate) fn others(&self) -> u32 {
        self.alive.load(Ordering::SeqCst)
    }

    /// Whether a process begins, or becomes another program.
    pub(crate) fn grows(&self) -> bool {
        self.growing.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn lead(&self, sender: &Arc<Sender>) {
        *locked(&self.mode) = Mode::Leads(Arc::clone(sender));
    }

    pub(crate) fn follow(&self, sender: &Arc<Sender>) {
        *locked(&self.mode) = Mode::Follows(Arc::clone(sender));
    }

    /// The other site is lost, and nobody has said who goes on.
    pub(crate) fn hold(&self) {
        *locked(&self.mode) = Mode::Held;
    }

    pub(crate) fn go_alone(&self) {
        *locked(&self.mode) = Mode::Alone;
    }

    /// Ends what is left.
    pub(crate) fn end(&self) {
        *locked(&self.mode) = Mode::Ended;
        let others = self.known();
        // All at once: each is waited for until its children have ended as well.
        std::thread::scope(|scope| {
            for strand in &others {
                if !Arc::ptr_eq(strand, &self.first) {
                    scope.spawn(|| strand.site.kill());
                }
            }
        });
        let deadline = Instant::now() + SETTLES;
        while self.others() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn known(&self) -> Vec<Arc<Strand>> {
        let known = |entry: &Entry| match entry {
            Entry::Known(strand) => Some(Arc::clone(strand)),
            Entry::Waiting(_) => None,
        };
        locked(&self.all).values().filter_map(known).collect()
    }

    fn mode(&self) -> Mode {
        locked(&self.mode).clone()
    }

    fn stop(&self, error: PairError) {
        locked(&self.why).get_or_insert(error);
    }

    /// Why the program cannot go on.
    pub(crate) fn stopped(&self) -> Option<PairError> {
        locked(&self.why).take()
    }

    /// A process has asked for what is refused.
    pub(crate) fn has_ended(&self) -> Option<End> {
        locked(&self.end).take()
    }

    /// Secondary: what a process asks of the one that arbitrates.
    pub(crate) fn question(&self) -> Option<(Arc<Strand>, Question)> {
        locked(&self.asked).try_recv().ok()
    }

    /// A process beside the first one that claims different things on the two sites, as far as is known here.
    pub(crate) fn dispute(&self) -> Option<Arc<Strand>> {
        locked(&self.differ).try_recv().ok()
    }

    // ---- frames ----

    /// The strand of this number, if it has begun here.
    pub(crate) fn strand(&self, number: u64) -> Option<Arc<Strand>> {
        match locked(&self.all).get(&number) {
            Some(Entry::Known(strand)) => Some(Arc::clone(strand)),
            _ => None,
        }
    }

    /// Takes what the other site says about a strand.
    pub(crate) fn hear(&self, frame: Frame) -> Result<(), PairError> {
        let damaged = || PairError::Link(std::io::Error::other("a damaged frame"));
        let (number, _) = frame.body.split_first_chunk().ok_or_else(damaged)?;
        let number = u64::from_le_bytes(*number);
        if locked(&self.ended).contains(&number) {
            return Ok(());
        }
        let strand = match locked(&self.all)
            .entry(number)
            .or_insert_with(|| Entry::Waiting(Vec::new()))
        {
            Entry::Known(strand) => Arc::clone(strand),
            Entry::Waiting(frames) => {
                frames.push(frame);
                return Ok(());
            }
        };
        self.take(&strand, number, &frame)
    }

    fn take(&self, strand: &Strand, number: u64, frame: &Frame) -> Result<(), PairError> {
        let damaged = || PairError::Link(std::io::Error::other("a damaged frame"));
        let body = frame.body.get(8..).ok_or_else(damaged)?;
        match frame.tag {
            Tag::Step => self.take_step(strand, number, body),
            Tag::Claims => {
                let (done, claims) = body.split_first_chunk().ok_or_else(damaged)?;
                self.take_claims(strand, number, u64::from_le_bytes(*done), claims)
            }
            Tag::Claimed => {
                strand.site.put_claim_of_primary(number, body);
                Ok(())
            }
            Tag::Exec => {
                let (event, rest) = body.split_first_chunk().ok_or_else(damaged)?;
                let (claim, classes) = rest.split_at_checked(CLAIM_BYTES).ok_or_else(damaged)?;
                if classes.len() == CLASSES {
                    strand
                        .site
                        .put_exec(u64::from_le_bytes(*event), claim, classes);
                }
                Ok(())
            }
            Tag::Ended => {
                let (claim, text): (String, String) =
                    serde_json::from_slice(body).map_err(|_| damaged())?;
                strand.told.store(true, Ordering::SeqCst);
                let end = end_of(&text).ok_or_else(damaged)?;
                strand
                    .site
                    .put_end(&unhex(&claim).unwrap_or_default(), &end);
                Ok(())
            }
            _ => Err(damaged()),
        }
    }

    pub(crate) fn take_claims(
        &self,
        strand: &Strand,
        number: u64,
        done: u64,
        claims: &[u8],
    ) -> Result<(), PairError> {
        for claim in claims.chunks(CLAIM_BYTES) {
            strand.site.put_claim(number, claim);
        }
        let told = locked(&self.files).clients.done(number, done);
        strand.site.put_done(number, done);
        told.map_err(unheld)
    }

    fn take_step(&self, strand: &Strand, number: u64, body: &[u8]) -> Result<(), PairError> {
        let wrong = |what| PairError::Link(std::io::Error::other(what));
        let (head, payload) = body
            .split_at_checked(Step::HEAD)
            .ok_or_else(|| wrong("a damaged event"))?;
        let step =
            Step::from_parts(head, payload.to_vec()).ok_or_else(|| wrong("a damaged event"))?;
        // Held until the ledger is on its disk: whoever sends claims asks for it before it says what is done.
        let mut files = locked(&self.files);
        let durable = files.follow((strand.table, number), &step)?;
        let mut newest = locked(&strand.newest);
        if newest.1.strand != number {
            newest.1 = Place::first_of(number);
        }
        newest.0 = newest.1;
        if !strand.site.put_step(&mut newest.1, &step) {
            return Err(wrong("an event out of order"));
        }
        drop(newest);
        if durable {
            files.ledger.flush(true)?;
        }
        Ok(())
    }

    /// The strand has begun: what has waited for it is taken first.
    fn register(&self, number: u64, strand: &Arc<Strand>) {
        loop {
            let frames = {
                let mut all = locked(&self.all);
                match all.remove(&number) {
                    Some(Entry::Waiting(frames)) if !frames.is_empty() => {
                        all.insert(number, Entry::Waiting(Vec::new()));
                        frames
                    }
                    _ => {
                        all.insert(number, Entry::Known(Arc::clone(strand)));
                        return;
                    }
                }
            };
            for frame in frames {
                if let Err(error) = self.take(strand, number, &frame) {
                    self.stop(error);
                }
            }
        }
    }

    // ---- relays ----

    /// From where its log begins.
    fn relay(&self, strand: &Strand, mut place: Place) {
        let site = &strand.site;
        let mut sent = Sent {
            claim: place.seq - 1,
            done: place.seq - 1,
            strand: place.strand,
        };
        let mut claimed = 0;
        let mut echoed = None;
        let mut alone = None;
        loop {
            // Before the look for a new log: there is one by the time that a mode tells of it.
            let mode = self.mode();
            if let Some((at, joined)) = locked(&strand.anew).take() {
                (place, claimed) = (at, 0);
                alone = None;
                echoed = (!joined).then_some(at.seq - 1);
                // What is not confirmed when that site is lost, has come after this.
                strand.begin_at(Place::first_of(at.strand));
                *locked(&strand.unchecked) = None;
            }
            if let Some(back) = strand.back.rewound(Relay::Events) {
                (place, claimed) = (back, 0);
                *locked(&strand.unchecked) = None;
            }
            if let Some(back) = strand.back.rewound(Relay::Claims) {
                sent.claim = back.seq - 1;
            }
            strand.relayed.store(place.seq, Ordering::SeqCst);
            strand.relays.store(place.strand, Ordering::SeqCst);
            let over = locked(&strand.over).clone();
            let limit = if over.is_some() { Duration::ZERO } else { LOOK };
            match mode {
                Mode::Ended => return,
                Mode::Held | Mode::TakesOver => {
                    strand.rests.store(true, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                }
                Mode::Leads(sender) => {
                    let step = match site.next_told(&mut place, &mut claimed, limit) {
                        Some(Told::Step(step)) => *step,
                        Some(Told::Claim(claim)) => {
                            let _ =
                                sender.send(Tag::Claimed, &[&place.strand.to_le_bytes(), &claim]);
                            continue;
                        }
                        None => {
                            if let Some(end) = over {
                                self.say_end(strand, &place, &sender, &end);
                                return;
                            }
                            continue;
                        }
                    };
                    let mut files = self.files_of(strand);
                    let followed = files
                        .fails(strand.table, &step)
                        .and_then(|()| files.follow((strand.table, place.strand), &step));
                    let durable = match followed {
                        Ok(durable) => durable,
                        Err(error) => return self.stop(error.into()),
                    };
                    let _ = sender.send(
                        Tag::Step,
                        &[&place.strand.to_le_bytes(), &step.head(), &step.payload],
                    );
                    if durable && let Err(error) = files.ledger.flush(true) {
                        return self.stop(error.into());
                    }
                    *locked(&strand.unchecked) = Some((place.strand, step));
                }
                Mode::Follows(sender) => {
                    let Some((claims, done)) = site.next_claims(&mut sent, limit) else {
                        if over.is_some() {
                            return;
                        }
                        continue;
                    };
                    drop(locked(&self.files));
                    let _ = sender.send(
                        Tag::Claims,
                        &[
                            &sent.strand.to_le_bytes(),
                            &done.to_le_bytes(),
                            &claims.concat(),
                        ],
                    );
                }
                Mode::Alone => {
                    if alone != Some(site.strand()) {
                        alone = Some(site.strand());
                        site.drop_snapshots();
                    }
                    if echoed.is_none() {
                        let end = strand.end_of_log();
                        if end.strand == site.strand() && end.seq > 1 {
                            place = Site::begun_at(end.strand, end.seq);
                            echoed = Some(end.seq - 1);
                        } else {
                            echoed = Some(site.claimed_last(Part::Secondary));
                            let unchecked = strand.unchecked();
                            let check =
                                |step| alone::check(&locked(&self.files), strand.table, step);
                            if let Some(Err(error)) = unchecked.as_ref().map(check) {
                                return self.stop(error);
                            }
                            site.put_done(place.strand, place.seq);
                        }
                    }
                    let mut known = echoed.unwrap_or(0);
                    let step = site.next_alone(&mut known, &mut place, limit);
                    echoed = Some(known);
                    let Some(step) = step else {
                        if over.is_some() {
                            return;
                        }
                        continue;
                    };
                    let mut files = self.files_of(strand);
                    let taken = files
                        .follow((strand.table, place.strand), &step)
                        .map_err(PairError::from)
                        .and_then(|durable| {
                            if durable {
                                files.ledger.flush(true)?;
                            }
                            let told = files.clients.done(place.strand, step.seq());
                            told.map_err(unheld)?;
                            alone::check(&files, strand.table, &step)
                        });
                    if let Err(error) = taken {
                        return self.stop(error);
                    }
                    site.put_done(place.strand, place.seq);
                }
            }
        }
    }

    /// Once the fork that made the process has been followed, by its parent's relay.
    fn files_of(&self, strand: &Strand) -> MutexGuard<'_, Files> {
        let deadline = Instant::now() + SETTLES;
        loop {
            let files = locked(&self.files);
            if files.has_table(strand.table) || Instant::now() > deadline {
                return files;
            }
            drop(files);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn say_end(&self, strand: &Strand, place: &Place, sender: &Sender, end: &End) {
        let text = match end {
            End::Exited(status) => format!("exited {status}"),
            End::Signaled(signal) => format!("signaled {signal}"),
            End::Refused(..) | End::Failed(_) => return,
        };
        let claim = strand.site.last_claim(place).unwrap_or_default();
        let told = serde_json::to_vec(&(hex(&claim), text)).unwrap_or_default();
        let _ = sender.send(Tag::Ended, &[&place.strand.to_le_bytes(), &told]);
    }

    /// Primary, held: whether what other processes than the first one were about to get is as the ledger has it.
    pub(crate) fn are_right(&self, files: &Files) -> Result<(), PairError> {
        for strand in self.known() {
            if let Some(step) = strand.unchecked() {
                alone::check(files, strand.table, &step)?;
            }
        }
        Ok(())
    }

    // ---- handover ----

    /// Primary: whether all processes beside the first one stand between two events.
    pub(crate) fn stand(&self) -> bool {
        self.halt.store(true, Ordering::SeqCst);
        let stands = |strand: &&Arc<Strand>| strand.stands.load(Ordering::SeqCst) > 0;
        let standing = self.known().iter().filter(stands).count();
        u32::try_from(standing) == Ok(self.others())
    }

    /// Primary: they go on.
    pub(crate) fn stand_no_more(&self) {
        let gate = locked(&self.gate);
        self.halt.store(false, Ordering::SeqCst);
        drop(gate);
        self.opened.notify_all();
    }

    /// Primary, all standing: whether the other site could lead them, and has done the same events.
    pub(crate) fn may_be_led(&self, limit: Duration) -> Result<(), String> {
        for strand in self.others_standing() {
            strand.site.may_be_led()?;
            let event = strand.stands.load(Ordering::SeqCst);
            if !strand.site.is_even(event, limit) {
                return Err("the other site does not come to where this one is".into());
            }
        }
        Ok(())
    }

    /// Primary, all standing: their connections fall silent; by strand, what has come and was not read.
    pub(crate) fn hush(&self, silent: &mut Vec<Silence>) -> std::io::Result<Handed> {
        let mut all = Vec::new();
        for strand in self.others_standing() {
            let (silence, unread) = strand.site.hush()?;
            silent.push(silence);
            all.push((strand.site.strand(), unread));
        }
        Ok(all)
    }

    fn others_standing(&self) -> Vec<Arc<Strand>> {
        let mut all = self.known();
        all.retain(|strand| !Arc::ptr_eq(strand, &self.first));
        all
    }

    /// Secondary: what was handed over, of which the first process gets its own at once.
    pub(crate) fn take_unread(&self, all: &[(u64, Vec<Unread>)]) -> Vec<Unread> {
        let mut own: HashMap<_, _> = all.iter().cloned().collect();
        let first = own.remove(&self.first.site.strand()).unwrap_or_default();
        *locked(&self.unread) = own;
        first
    }

    // ---- take-over ----

    /// The primary is lost: every process leads.
    pub(crate) fn take_over(&self) {
        let all = self.yet_to_lead.load(Ordering::SeqCst);
        self.yet_to_set_up.store(all, Ordering::SeqCst);
        *locked(&self.mode) = Mode::TakesOver;
    }

    /// The connections of a process beside the first one are set up, or it has none: it waits until the address is announced.
    fn has_set_up(&self) {
        self.is_set_up();
        wait_for(SETS_UP, || self.announced.load(Ordering::SeqCst));
    }

    fn is_set_up(&self) {
        let down = |left: u32| left.checked_sub(1);
        let order = Ordering::SeqCst;
        let _ = self.yet_to_set_up.fetch_update(order, order, down);
    }

    /// The first process's are as well: `announce` when those of all others are.
    pub(crate) fn announce(&self, announce: impl FnOnce()) {
        wait_for(SETS_UP, || self.yet_to_set_up.load(Ordering::SeqCst) == 0);
        announce();
        self.announced.store(true, Ordering::SeqCst);
    }

    /// Where those stand that do not lead.
    fn followers(&self) -> String {
        let known: Vec<Arc<Strand>> = self
            .known()
            .into_iter()
            .filter(|strand| !strand.leads.load(Ordering::SeqCst))
            .filter(|strand| !Arc::ptr_eq(strand, &self.first))
            .collect();
        if known.is_empty() {
            return "one of them has not begun".into();
        }
        let one = |strand: &Arc<Strand>| {
            let end = strand.end_of_log().seq;
            format!(
                "process {} at event {} of {end} ({})",
                strand.site.program_number(),
                strand.site.done(),
                strand
                    .site
                    .claims(strand.site.claimed_last(Part::Secondary)),
            )
        };
        known.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// All of them do, and go on alone: with so many connections, and so many cut.
    pub(crate) fn has_taken_over(&self) -> Result<(u32, u32), PairError> {
        let deadline = Instant::now() + TAKES_OVER;
        while self.yet_to_lead.load(Ordering::SeqCst) > 0 {
            if let Some(error) = self.stopped() {
                return Err(error);
            }
            if Instant::now() > deadline {
                return Err(PairError::Stopped(format!(
                    "the primary is lost, and not every process can lead: {}",
                    self.followers()
                )));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        self.go_alone();
        self.stopped().map_or(Ok(*locked(&self.carried)), Err)
    }
}

/// `exited 3`, `signaled 9`.
pub(crate) fn end_of(text: &str) -> Option<End> {
    match text.split_once(' ')? {
        ("exited", status) => Some(End::Exited(status.parse().unwrap_or(0))),
        ("signaled", signal) => Some(End::Signaled(signal.parse().unwrap_or(0))),
        _ => None,
    }
}
