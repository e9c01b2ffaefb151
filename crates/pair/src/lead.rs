//! Lead: a site whose program leads, from the start or since a take-over: in turn with another site and alone.
//!
//! ```text
//!   paired ──peer lost──► witness: this site ──► alone ──a site comes back (door.rs)──► paired
//!      │                      │ the other site     │
//!      ▼ ended                ▼ stopped 122        ▼ ended
//! ```
//!
//! Invariants
//!  1. At any time one relay stands for the other site: two threads while it is there, one that claims for it while it is not.
//!  2. A pair that is made whole again has a name of its own: what the witness said about the last one is no answer.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use steadfast_replica::site::{End, News, Part, Place, Silence, Site, Step};
use steadfast_sys::manager::Manager;

use crate::alone::{self, Address, Word};
use crate::board::{Board, Order, State, What};
use crate::cli::Side;
use crate::control::{self, Handed, Outcome};
use crate::crew::{Crew, Kin, NotNow, Strand, go_on};
use crate::dispute::{Dispute, Parties, Raised, Repeated};
use crate::door::{Candidate, Door, Survivor, whole};
use crate::error::{PairError, unheld};
use crate::files::Files;
use crate::hex::hex;
use crate::link::{Greeting, Link, Receiver, Sender, Tag};
use crate::relay::{send_steps, take};
use crate::scrub::Scrubber;
use crate::shared::{Shared, beat};
use crate::tls::Security;

/// A program that does not come to a halt within this is not handed on; a site that comes back may ask again.
const HALT: Duration = Duration::from_secs(2);

/// ... of which a process that begins, or becomes another program, uses nothing up: on a busy host that takes seconds. In all it is
/// waited for so long.
const HALT_MAX: Duration = Duration::from_secs(15);

/// Until when a program is waited for that is to come to a halt.
struct Patience {
    began: Instant,
    deadline: Instant,
}

impl Patience {
    fn new(began: Instant) -> Self {
        Self {
            began,
            deadline: began + HALT,
        }
    }

    fn is_over(&mut self, now: Instant, grows: bool) -> bool {
        if grows {
            self.deadline = now + HALT;
        }
        now > self.deadline.min(self.began + HALT_MAX)
    }
}

/// A program stands still for no more than this, and one word, while a site joins: as long as that one waits for one word.
const STANDS: Duration = Duration::from_secs(60);

/// A site that comes back waits so long until processes that it cannot be given have ended: a command of a shell.
const MAY_JOIN: Duration = Duration::from_secs(60);
/// Between two looks whether they have: a shell's commands leave it alone for as long.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Where bytes are under way in what a program has open it is looked at again after this, and after twice as long each time, up to a
/// second: it stands for some milliseconds each time.
const AGAIN: Duration = Duration::from_millis(2);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// For the other site to take over, the witness included.
const TAKES_OVER: Duration = Duration::from_secs(20);

/// What is known of the other site's work when it is lost: the newest event about which it has claimed something, and
/// the newest read, of which nobody knows whether it was compared.
#[derive(Debug, Default)]
struct Left {
    echoed: u64,
    unchecked: Vec<Step>,
}

enum Paired {
    Ended(Outcome),
    Alone(Place, Left),
}

/// Why two sites are two no more.
enum Parted {
    Ended(End),
    /// The other one is lost, and the witness, or the user, has given the program to this one.
    Lost(Word),
    /// It has said that it leaves.
    Left,
    /// It leads.
    HandedOver(What),
}

/// A site that comes back, and is not let in yet.
struct Waiting {
    candidate: Candidate,
    until: Instant,
    next: Instant,
    pause: Duration,
    told: bool,
}

impl Waiting {
    fn new(candidate: Candidate) -> Self {
        let now = Instant::now();
        Self {
            candidate,
            until: now + MAY_JOIN,
            next: now,
            pause: AGAIN,
            told: false,
        }
    }

    /// Whether it is to go on waiting: it is told that it is not forgotten.
    fn waits(&mut self, why: &NotNow) -> bool {
        let waits = why.passes() && Instant::now() < self.until && self.candidate.is_there();
        if waits && !self.told {
            eprintln!("steadfast pair: a site that comes back waits: {why}");
            self.told = true;
        }
        waits
    }

    /// Later, and later each time.
    fn later(mut self) -> Self {
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(AGAIN_MAX);
        self
    }
}

/// What has become of it.
enum Came {
    Joined(Link),
    Waits(Box<Waiting>),
    Refused,
}

enum Alone {
    Ended(End),
    Joined(Link, Place),
}

/// Then it has left behind what it wanted to.
pub(crate) fn ended_itself(end: Option<&End>) -> bool {
    matches!(end, Some(End::Exited(_) | End::Signaled(_)))
}

/// Whether a program that has stood for so long, while a site joins, may stand on.
fn may_stand(stood: Duration) -> std::io::Result<()> {
    if stood < STANDS {
        return Ok(());
    }
    Err(std::io::Error::other(format!(
        "it takes what the program has so slowly that that would have to stand still for more than {} s",
        STANDS.as_secs()
    )))
}

/// A program that is about to go on with another site, which is told meanwhile that this one is there.
struct Going(Arc<Shared>);

impl Going {
    fn new(side: &Side, link: Option<&Link>) -> Self {
        let shared = Arc::new(Shared::default());
        if let Some(link) = link {
            let (to, flags) = (Arc::clone(&link.sender), Arc::clone(&shared));
            let lost_after = Duration::from_millis(side.lost_after);
            std::thread::spawn(move || beat(&to, &flags, lost_after));
        }
        Self(shared)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A site whose program leads.
#[derive(Debug)]
pub(crate) struct Leading<'a> {
    pub(crate) side: &'a Side,
    pub(crate) site: Arc<Site>,
    pub(crate) crew: Arc<Crew>,
    pub(crate) files: Arc<Mutex<Files>>,
    pub(crate) board: Arc<Board>,
    pub(crate) notify: Manager,
    pub(crate) greeting: Greeting,
    pub(crate) security: Security,
    /// Held for as long as this site answers.
    pub(crate) address: Option<Address>,
    /// This site has gone on without the witness, which has not answered yet.
    pub(crate) unasked: Option<Inbox<bool>>,
    /// The other site was told to lead, and has not said that it does: nobody prefers this one then.
    pub(crate) gave_away: bool,
}

impl Leading<'_> {
    /// Until the program has ended. Without a link the site begins alone.
    pub(crate) fn run(mut self, link: Option<Link>, place: Place) -> Result<Outcome, PairError> {
        let result = self.in_turn(link, place);
        self.board.set(State::Ended);
        self.crew.end();
        self.site.kill();
        if !ended_itself(result.as_ref().ok().and_then(Outcome::end)) {
            self.site.forget_objects();
        }
        drop(self.address.take());
        let mut files = self.files.lock().expect("no panic under it");
        files.ledger.flush(true)?;
        result
    }

    fn in_turn(&mut self, mut link: Option<Link>, mut place: Place) -> Result<Outcome, PairError> {
        let mut left = Left {
            echoed: place.seq - 1,
            unchecked: Vec::new(),
        };
        loop {
            if let Some(link) = link.take() {
                match self.paired(link, place)? {
                    Paired::Ended(outcome) => return Ok(outcome),
                    Paired::Alone(at, what) => (place, left) = (at, what),
                }
            }
            match self.alone(place, left)? {
                Alone::Ended(end) => return Ok(Outcome::Ended(end)),
                Alone::Joined(with, at) => {
                    link = Some(with);
                    place = at;
                    left = Left::default();
                }
            }
        }
    }

    fn paired(&mut self, link: Link, place: Place) -> Result<Paired, PairError> {
        let Link {
            sender,
            receiver,
            name,
        } = link;
        let shared = Arc::new(Shared::default());
        self.board.pair_up(&name);
        self.gave_away = false;
        shared.has_followed(place.seq - 1);
        let (said, disputes) = channel();
        self.crew.lead(&sender);
        let (outward, others) = self.start(&sender, (receiver, said), &shared, place);
        let result = self.watch((&sender, &disputes), &shared, &name);
        shared.close();
        let place = outward.join().expect("the relay does not panic");
        match &result {
            Ok(Parted::Ended(end)) => self.say_farewell(end, &sender, &shared, &place),
            Ok(_) => {}
            // The witness gives the program to the other site: this one does not ask.
            Err(error) if error.is_own() && self.side.witness != "none" => {
                let _ = sender.say(Tag::Leave, &Some(error.to_string()));
            }
            Err(error) => {
                let _ = sender.say(Tag::Stop, &error.to_string());
            }
        }
        sender.close();
        for thread in others {
            let _ = thread.join();
        }
        let why = match result? {
            Parted::Ended(end) => return Ok(Paired::Ended(Outcome::Ended(end))),
            Parted::HandedOver(What::Switch) => return Ok(Paired::Ended(Outcome::Follows)),
            Parted::HandedOver(What::Detach) => return Ok(Paired::Ended(Outcome::Left)),
            Parted::Lost(Word::Witness) => {
                "the secondary is lost; this site goes on alone, as the witness says"
            }
            Parted::Lost(Word::User) => {
                "the secondary is lost; this site goes on alone, as --prefer-primary says"
            }
            Parted::Left if shared.unable.load(Ordering::SeqCst) => {
                "the secondary has left; this site goes on alone"
            }
            Parted::Left => "the secondary has left, as it was asked to; this site goes on alone",
        };
        eprintln!("steadfast pair: {why}");
        let left = Left {
            echoed: self.site.claimed_last(Part::Secondary),
            unchecked: shared.unchecked(self.site.done()),
        };
        Ok(Paired::Alone(place, left))
    }

    fn start(
        &self,
        sender: &Arc<Sender>,
        (mut receiver, disputes): (Receiver, Outbox<Dispute>),
        shared: &Arc<Shared>,
        place: Place,
    ) -> (JoinHandle<Place>, [JoinHandle<()>; 3]) {
        let all = || {
            (
                Arc::clone(&self.site),
                Arc::clone(sender),
                Arc::clone(shared),
                Arc::clone(&self.files),
                Arc::clone(&self.board),
            )
        };
        let lost_after = Duration::from_millis(self.side.lost_after);
        let (_, to, flags, ..) = all();
        let beats = std::thread::spawn(move || beat(&to, &flags, lost_after));
        let (site, to, flags, files, _) = all();
        let outward = std::thread::spawn(move || send_steps(&site, &to, &flags, &files, place));
        let (_, to, flags, files, board) = all();
        let crew = Arc::clone(&self.crew);
        let events = self.side.events.clone();
        let inward = std::thread::spawn(move || {
            take(
                &crew,
                &to,
                &mut receiver,
                &flags,
                &files,
                (&board, &disputes),
                events.as_deref(),
            );
            flags.hears_no_more();
        });
        let (_, to, flags, files, board) = all();
        let rate = self.side.scrub;
        let scrubber = std::thread::spawn(move || {
            let scrubber = Scrubber {
                files: &files,
                shared: &flags,
                board: &board,
                rate,
                unreadable: Mutex::default(),
            };
            scrubber.run(|suspect| drop(to.say(Tag::Suspect, &suspect)));
        });
        (outward, [beats, inward, scrubber])
    }

    /// The program's end, or nothing: the peer is lost, and the witness has given the program to this site.
    fn watch(
        &mut self,
        (sender, disputes): (&Sender, &Inbox<Dispute>),
        shared: &Shared,
        name: &str,
    ) -> Result<Parted, PairError> {
        let mut repeated = Repeated::default();
        let mut raised = Raised::default();
        let mut ended = None;
        loop {
            self.board.tick();
            self.notify.tick(true, self.board.state().name());
            if let Some(error) = shared.stopped().or_else(|| self.crew.stopped()) {
                return Err(error);
            }
            if let Some(end) = self.end_of_all(&mut ended) {
                return Ok(Parted::Ended(end));
            }
            if self.is_outvoted() {
                return Err(PairError::Outvoted);
            }
            if shared.has_left() {
                shared.lose();
                self.board.go_alone();
                self.crew.go_alone();
                return Ok(Parted::Left);
            }
            if let Some(order) = self.board.take_order() {
                match self.hand_over(&order, sender, shared) {
                    Ok(()) => {
                        order.answer(Ok("the other site leads"));
                        return Ok(Parted::HandedOver(order.what));
                    }
                    Err(why) => order.answer(Err(&why)),
                }
            }
            if shared.has_lost() {
                // What it said last comes before its silence.
                if let Some(error) = shared.stopped() {
                    return Err(error);
                }
                if shared.has_left() {
                    continue;
                }
                shared.tell_loss();
                self.board.set(State::Held);
                self.crew.hold();
                if self.side.witness != "none" {
                    self.is_right(shared)?;
                }
                let preferred = self.side.prefer_primary && !self.gave_away;
                let word = alone::decide(self.side, name, ('A', preferred), || {
                    self.board.tick();
                    self.notify.tick(true, State::Held.name());
                })?;
                if word == Word::User && self.side.witness != "none" {
                    self.unasked = Some(alone::asked_later(self.side, name, 'A')?);
                }
                self.board.go_alone();
                self.crew.go_alone();
                return Ok(Parted::Lost(word));
            }
            if let Some(differs) = raised.next(&self.crew, disputes)? {
                let repairs = (&mut repeated, &mut raised);
                self.settle(&differs, (sender, disputes), shared, repairs)?;
                continue;
            }
            if ended.is_some() {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let event = match self.site.news(Duration::from_millis(20)) {
                None => {
                    self.crew.first().spins(true, shared.is_gated())?;
                    continue;
                }
                Some(News::Question(_)) => continue,
                Some(News::End(end)) => {
                    self.first_ends()?;
                    ended = Some(end);
                    continue;
                }
                Some(news @ (News::Born(_) | News::Exec(_))) => {
                    self.grow(news)?;
                    continue;
                }
                Some(News::Damaged(event)) => {
                    return Err(PairError::Stopped(format!(
                        "the log of A is damaged at event {event}"
                    )));
                }
                Some(News::Dispute(event, _)) => event,
            };
            let differs = (Arc::clone(self.crew.first()), event);
            let repairs = (&mut repeated, &mut raised);
            self.settle(&differs, (sender, disputes), shared, repairs)?;
        }
    }

    /// A process claims different things on the two sites: until it does not, or both stop.
    fn settle(
        &self,
        (strand, event): &(Arc<Strand>, u64),
        (sender, disputes): (&Sender, &Inbox<Dispute>),
        shared: &Shared,
        (repeated, raised): (&mut Repeated, &mut Raised),
    ) -> Result<(), PairError> {
        self.board.set(State::Arbitrating);
        repeated.again(strand.site.strand(), *event)?;
        let parties = Parties {
            strand,
            is_first: Arc::ptr_eq(strand, self.crew.first()),
            sender,
            disputes,
            shared,
        };
        let erred = parties.settle(*event, raised)?;
        self.board.count_mended(&erred);
        erred.tell(self.side.events.as_deref());
        self.board.set(State::Running);
        Ok(())
    }

    fn grow(&self, news: News) -> Result<(), PairError> {
        self.grown(news).map_err(PairError::Stopped)
    }

    fn grown(&self, news: News) -> Result<(), String> {
        self.crew.grow(self.crew.first(), news).map(drop)
    }

    /// Before the witness is asked: what the program was about to get, and nobody has compared, has to be as the ledger has it. A
    /// site whose disk is wrong leaves the program to the other one, which has its own.
    fn is_right(&self, shared: &Shared) -> Result<(), PairError> {
        let files = self.files.lock().expect("no panic under it");
        let unchecked = shared.unchecked(self.site.done());
        let first = unchecked
            .iter()
            .try_for_each(|step| alone::check(&files, 0, step));
        let leaves = |error: PairError| match error {
            PairError::Stopped(why) => PairError::Leaves(why),
            other => other,
        };
        first
            .and_then(|()| self.crew.are_right(&files))
            .map_err(leaves)
    }

    /// The first process has ended; others may go on.
    fn first_ends(&self) -> Result<(), PairError> {
        self.site.end_turn();
        let mut files = self.files.lock().expect("no panic under it");
        let told = files.clients.ended(0, self.site.strand());
        told.map_err(unheld)
    }

    /// How the first process has ended, when no other one is left; or what one of them was refused.
    fn end_of_all(&self, ended: &mut Option<End>) -> Option<End> {
        if let Some(end) = self.crew.has_ended() {
            return Some(end);
        }
        let alone = self.crew.others() == 0;
        ended.take_if(|end| alone || matches!(end, End::Refused(..) | End::Failed(_)))
    }

    /// The witness that had not answered does, and has given the program to the other site.
    fn is_outvoted(&mut self) -> bool {
        let said = self.unasked.as_ref().map(Inbox::try_recv);
        match said {
            Some(Ok(own)) => {
                self.unasked = None;
                if own {
                    eprintln!(
                        "steadfast pair: the witness answers, and the program is this site's"
                    );
                }
                !own
            }
            _ => false,
        }
    }

    /// The other site leads from here on, or nothing has changed, and why.
    fn hand_over(&mut self, order: &Order, sender: &Sender, shared: &Shared) -> Result<(), String> {
        if order.what == What::Switch && !self.side.has_where_to_join() {
            return Err(
                "--peer of this site has no port: it could not follow. Detach it, and let it join"
                    .into(),
            );
        }
        let tried = self
            .stand()
            .and_then(|event| self.give_away(event, sender, shared));
        if tried.is_err() {
            self.crew.stand_no_more();
            self.site.go_on_paused()?;
        }
        tried
    }

    /// All processes stand between two events: the first one's. Or why not, and they are on their way still.
    fn stand(&self) -> Result<u64, String> {
        let event = self.site.pause(HALT, |news| self.grown(news))?;
        let mut patience = Patience::new(Instant::now());
        while !self.crew.stand() {
            if patience.is_over(Instant::now(), self.crew.grows()) {
                return Err("the program does not come to a halt in all its processes".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(event)
    }

    /// The program stands at `event`, and the other site has done the same.
    fn is_even(&self, event: u64, shared: &Shared) -> Result<(), String> {
        self.site.may_be_led()?;
        let even = || shared.followed() + 1 >= event && self.site.is_even(event, HALT);
        let deadline = Instant::now() + HALT;
        while !even() {
            if shared.has_lost() || Instant::now() > deadline {
                return Err("the other site does not come to where this one is".into());
            }
        }
        self.crew.may_be_led(HALT)
    }

    /// The program stands at `event`.
    fn give_away(&mut self, event: u64, sender: &Sender, shared: &Shared) -> Result<(), String> {
        self.is_even(event, shared)?;
        // What comes from here on is acknowledged by nobody.
        if let Some(address) = &mut self.address {
            address.give_up();
        }
        let mut silent = Vec::new();
        let tried = self
            .hush(&mut silent)
            .map_err(|error| format!("its connections cannot be handed over: {error}"))
            .and_then(|unread| {
                self.gave_away = true;
                sender
                    .expect_within(TAKES_OVER)
                    .map_err(|e| e.to_string())?;
                sender
                    .say(Tag::Handover, &control::encode(&unread))
                    .map_err(|error| format!("the other site is lost: {error}"))
            })
            .and_then(|()| {
                let deadline = Instant::now() + TAKES_OVER;
                loop {
                    // What it said last comes before its silence.
                    let over = shared.has_lost() || shared.has_stopped();
                    if shared.leads() {
                        return Ok(());
                    }
                    if over || Instant::now() > deadline {
                        return Err("the other site has not taken over".into());
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
        if tried.is_ok() {
            // While its connections say nothing. The first process is waited for until its children have ended as well.
            self.crew.end();
            self.site.kill();
            shared.lose();
            return Ok(());
        }
        silent.into_iter().for_each(Silence::end);
        let lost_after = Duration::from_millis(self.side.lost_after);
        let _ = sender.expect_within(lost_after);
        if let Some(address) = &mut self.address {
            address.take().map_err(|error| error.to_string())?;
            address.announce();
        }
        tried
    }

    /// Connections of all processes fall silent. By strand, what has come and nobody has read.
    fn hush(&self, silent: &mut Vec<Silence>) -> std::io::Result<Handed> {
        let (silence, unread) = self.site.hush()?;
        silent.push(silence);
        let mut all = self.crew.hush(silent)?;
        all.push((self.site.strand(), unread));
        Ok(all)
    }

    fn say_farewell(&self, end: &End, sender: &Sender, shared: &Shared, place: &Place) {
        let text = match end {
            End::Exited(status) => format!("exited {status}"),
            End::Signaled(signal) => format!("signaled {signal}"),
            End::Refused(what, _) | End::Failed(what) => format!("stopped {what}"),
        };
        let claim = self.site.last_claim(place).unwrap_or_default();
        let _ = sender.say(Tag::End, &(hex(&claim), text));
        let deadline = Instant::now() + Duration::from_secs(5);
        while !shared.farewell.load(Ordering::SeqCst)
            && !shared.has_lost()
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Nobody else is there, until a site comes back.
    fn alone(&mut self, place: Place, left: Left) -> Result<Alone, PairError> {
        self.pair_up(false)?;
        let mut shared = Arc::new(Shared::default());
        let mut carrier = self.carry(&shared, place, left);
        let mut door = Door::open(&self.survivor(), &shared);
        let (mut ended, mut waits) = (None, None::<Waiting>);
        let result = loop {
            self.board.tick();
            self.notify.tick(true, State::Alone.name());
            if let Some(error) = shared.stopped().or_else(|| self.crew.stopped()) {
                break Err(error);
            }
            if let Some(end) = self.end_of_all(&mut ended) {
                break Ok(Alone::Ended(end));
            }
            if self.is_outvoted() {
                break Err(PairError::Outvoted);
            }
            if ended.is_some() {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let look = if waits.is_some() {
                LOOK_AGAIN
            } else {
                Duration::from_millis(20)
            };
            match self.site.news(look) {
                None => {
                    if let Err(error) = self.crew.first().spins(false, true) {
                        break Err(error);
                    }
                }
                Some(News::End(end)) => {
                    if let Err(error) = self.first_ends() {
                        break Err(error);
                    }
                    ended = Some(end);
                }
                Some(news @ (News::Born(_) | News::Exec(_))) => {
                    if let Err(error) = self.grow(news) {
                        break Err(error);
                    }
                }
                Some(other @ (News::Dispute(..) | News::Damaged(_) | News::Question(_))) => {
                    break Err(PairError::Bug(format!(
                        "a site that is alone contradicts itself: {other:?}"
                    )));
                }
            }
            if let Some(order) = self.board.take_order() {
                order.answer(Err("this site is alone: there is no other one"));
            }
            if let Some(waiting) = waits.as_mut().filter(|one| Instant::now() < one.next) {
                let _ = waiting.candidate.is_there();
                continue;
            }
            let came = || door.candidate().map(Waiting::new);
            let Some(mut waiting) = waits.take().or_else(came) else {
                continue;
            };
            let why = match self.all_stand() {
                Err(why) => why,
                Ok(kin) => {
                    shared.hand_on();
                    carrier.join().expect("the relay does not panic");
                    if let Some(error) = shared.stopped() {
                        return Err(error);
                    }
                    let (came, place) = self.hand_on(waiting, &kin)?;
                    if let Came::Joined(link) = came {
                        return Ok(Alone::Joined(link, place));
                    }
                    shared = Arc::new(Shared::default());
                    let left = Left {
                        echoed: place.seq - 1,
                        unchecked: Vec::new(),
                    };
                    carrier = self.carry(&shared, place, left);
                    match came {
                        Came::Waits(one) => waits = Some(one.later()),
                        _ => door = Door::open(&self.survivor(), &shared),
                    }
                    continue;
                }
            };
            if waiting.waits(&why) {
                waits = Some(waiting);
                continue;
            }
            waiting.candidate.refuse(&why.to_string());
            door = Door::open(&self.survivor(), &shared);
        };
        shared.close();
        carrier.join().expect("the relay does not panic");
        result
    }

    /// Before there is another site, or when there is none any more: what clients are told to have arrived.
    fn pair_up(&self, paired: bool) -> Result<(), PairError> {
        let mut files = self.files.lock().expect("no panic under it");
        files.clients.pair_up(paired).map_err(unheld)
    }

    fn carry(&self, shared: &Arc<Shared>, place: Place, left: Left) -> JoinHandle<Place> {
        let (site, shared, files) = (
            Arc::clone(&self.site),
            Arc::clone(shared),
            Arc::clone(&self.files),
        );
        std::thread::spawn(move || {
            alone::carry(&site, &shared, &files, place, left.echoed, &left.unchecked)
        })
    }

    fn survivor(&self) -> Survivor<'_> {
        Survivor {
            side: self.side,
            site: &self.site,
            crew: &self.crew,
            files: &self.files,
            greeting: &self.greeting,
            security: &self.security,
        }
    }

    /// All processes, which stand, and nobody relays what those beside the first one have done. Or none does, and why.
    fn all_stand(&self) -> Result<Vec<Kin>, NotNow> {
        self.crew.may_be_joined()?;
        let kin = self
            .stand()
            .map_err(NotNow::Other)
            .and_then(|_| self.crew.kin())
            .and_then(|kin| self.crew.rests().map(|()| kin).map_err(NotNow::Other));
        if kin.is_err() {
            self.crew.stand_no_more();
            self.site.go_on_paused().map_err(NotNow::Other)?;
        }
        kin
    }

    /// The program stands, and nobody relays. It goes on in any case.
    fn hand_on(&mut self, mut waiting: Waiting, kin: &[Kin]) -> Result<(Came, Place), PairError> {
        let began = Instant::now();
        self.board.set(State::Joining);
        let survivor = Survivor {
            side: self.side,
            site: &self.site,
            crew: &self.crew,
            files: &self.files,
            greeting: &self.greeting,
            security: &self.security,
        };
        let (board, notify) = (&self.board, &mut self.notify);
        let mut round = || {
            board.tick();
            notify.tick(true, State::Joining.name());
            may_stand(began.elapsed())
        };
        let mut came = Came::Refused;
        let brought = match whole(kin).map_err(NotNow::from) {
            Err(why) if waiting.waits(&why) => {
                came = Came::Waits(Box::new(waiting));
                None
            }
            Err(why) => {
                waiting.candidate.refuse(&why.to_string());
                None
            }
            Ok(whole) => {
                let handed = waiting.candidate.hand_on(&survivor, kin, whole, &mut round);
                match handed {
                    Ok((link, brought)) => {
                        came = Came::Joined(link);
                        Some(brought)
                    }
                    Err(error) => {
                        eprintln!("steadfast pair: a site that came back did not join: {error}");
                        None
                    }
                }
            }
        };
        let link = match &came {
            Came::Joined(link) => Some(link),
            _ => None,
        };
        // Until it has gone on: the other site counts from here on.
        let going = Going::new(self.side, link);
        let joined = link.is_some();
        if joined {
            kin.iter().for_each(|kin| kin.site.keep_snapshots());
            if kin.len() > 1 {
                self.site.has_others();
            }
        }
        self.pair_up(joined)?;
        self.crew.go_on_anew(joined)?;
        let place =
            go_on(&self.site).map_err(|why| PairError::Bug(format!("after a pause {why}")))?;
        drop(going);
        self.board.tick();
        match brought {
            Some(brought) => eprintln!(
                "steadfast pair: the other site is back, with {} pages of {} files and {} of memory{} in the end; the program stood still for {:.1} ms",
                brought.pages,
                brought.files,
                brought.memory,
                match kin.len() {
                    1 => String::new(),
                    all => format!(" of {all} processes"),
                },
                began.elapsed().as_secs_f64() * 1e3
            ),
            None => self.board.set(State::Alone),
        }
        Ok((came, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_becomes_another_program_is_waited_for_longer_and_not_for_ever() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut patience = Patience::new(began);
        assert!(!patience.is_over(after(1), false));
        assert!(patience.is_over(after(3), false));
        let mut patience = Patience::new(began);
        assert!(!patience.is_over(after(9), true));
        assert!(!patience.is_over(after(10), false));
        assert!(patience.is_over(after(12), false));
        assert!(patience.is_over(after(16), true));
    }

    #[test]
    fn a_program_stands_for_a_minute_and_no_longer() {
        assert!(may_stand(Duration::from_secs(59)).is_ok());
        let why = may_stand(Duration::from_secs(60)).expect_err("it is too long");
        let said = crate::door::unsent(why).to_string();
        assert!(said.contains("stand still for more than 60 s"), "{said}");
    }
}
