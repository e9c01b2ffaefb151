//! Shared: what the threads of one site tell the one that decides, and it them.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use steadfast_replica::site::{Place, Step};

use crate::control::Handed;
use crate::error::PairError;
use crate::link::{Sender, Tag};

/// What goes from one site to the other all the time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Relay {
    Events,
    Claims,
}

/// Where the relay of events, and that of claims, of a process is to go back to.
#[derive(Debug, Default)]
pub(crate) struct Back([Mutex<Option<Place>>; 2]);

impl Back {
    fn of(&self, relay: Relay) -> MutexGuard<'_, Option<Place>> {
        self.0[relay as usize].lock().expect("no panic under it")
    }

    pub(crate) fn rewind(&self, relay: Relay, place: Place) {
        *self.of(relay) = Some(place);
    }

    /// Asked by the relay: where it is to go back to.
    pub(crate) fn rewound(&self, relay: Relay) -> Option<Place> {
        self.of(relay).take()
    }

    /// Whether the relay has gone back, in time.
    pub(crate) fn has_rewound(
        &self,
        relay: Relay,
        limit: Duration,
        is_lost: impl Fn() -> bool,
    ) -> bool {
        let deadline = Instant::now() + limit;
        while self.of(relay).is_some() {
            if Instant::now() > deadline || is_lost() {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }
}

/// What the threads tell the one that decides.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    closing: AtomicBool,
    /// The other site has said its last word: the program has ended there.
    pub(crate) farewell: AtomicBool,
    lost: AtomicBool,
    /// How the link has ended; empty where this site itself has given it up.
    silence: Mutex<String>,
    /// This site cannot send any more; and nobody hears what the other one says.
    mute: AtomicBool,
    deaf: AtomicBool,
    /// Milliseconds for which this command itself had no processor when it was to say that it is there.
    stood: AtomicU64,
    /// The program stands, and somebody else is to relay.
    handing: AtomicBool,
    /// Primary: the secondary's claims are kept from the program, which is held.
    gated: AtomicBool,
    /// Primary: the newest event that the ledger has taken in.
    followed: AtomicU64,
    /// Primary: reads that the other site may not have compared: the newest, as the program waits behind each, or some more.
    unchecked: Mutex<Vec<Step>>,
    /// Of the first process.
    pub(crate) back: Back,
    /// The other site has left, or leads since it was asked to.
    pub(crate) left: AtomicBool,
    /// ... since it cannot go on.
    pub(crate) unable: AtomicBool,
    pub(crate) leads: AtomicBool,
    /// Secondary: it is to lead, with these bytes of its clients', by strand.
    handed: Mutex<Option<Handed>>,
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

    /// The link has failed, and all that the other site had said is heard: what `error` says is told with the loss.
    pub(crate) fn lose_by(&self, error: &io::Error) {
        self.note(error);
        self.lose();
    }

    /// The link has failed where this site sends. What the other one had said before is still to be heard: it may have stopped, left, or
    /// taken over. Whoever hears it comes to the end of the link then, and tells the loss.
    pub(crate) fn unsent(&self, sender: &Sender, error: &io::Error) {
        self.note(error);
        sender.close();
        self.mute.store(true, Ordering::SeqCst);
        if self.deaf.load(Ordering::SeqCst) {
            self.lose();
        }
    }

    /// Nothing more is heard from here on.
    pub(crate) fn hears_no_more(&self) {
        self.deaf.store(true, Ordering::SeqCst);
        if self.mute.load(Ordering::SeqCst) {
            self.lose();
        }
    }

    /// The first reason is the one, or what the other site has said of it.
    fn note(&self, error: &io::Error) {
        let mut silence = self.silence.lock().expect("no panic under it");
        let first = silence.is_empty() || error.kind() == io::ErrorKind::ConnectionAborted;
        if !self.has_lost() && !self.is_closing() && first {
            *silence = match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    "no word from it within --lost-after".into()
                }
                io::ErrorKind::ConnectionAborted => error.to_string(),
                io::ErrorKind::UnexpectedEof => "it has closed the link".into(),
                _ => format!("the link has failed: {error}"),
            };
        }
    }

    /// Says how the link has ended, before the witness is asked.
    pub(crate) fn tell_loss(&self) {
        let silence = self.silence.lock().expect("no panic under it");
        if silence.is_empty() {
            return;
        }
        let stood = match self.stood.load(Ordering::Relaxed) {
            0 => String::new(),
            ms => format!("; this site itself had no processor for {ms} ms"),
        };
        eprintln!("steadfast pair: nothing more is heard of the other site: {silence}{stood}");
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

    pub(crate) fn hand_over(&self, unread: Handed) {
        *self.handed.lock().expect("no panic under it") = Some(unread);
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed.lock().expect("no panic under it").is_some()
    }

    pub(crate) fn handed_over(&self) -> Option<Handed> {
        self.handed.lock().expect("no panic under it").take()
    }

    pub(crate) fn gate(&self, closed: bool) {
        self.gated.store(closed, Ordering::SeqCst);
    }

    pub(crate) fn is_gated(&self) -> bool {
        self.gated.load(Ordering::SeqCst)
    }

    /// The newest event that the ledger has taken in.
    pub(crate) fn has_followed(&self, event: u64) {
        self.followed.store(event, Ordering::SeqCst);
    }

    pub(crate) fn followed(&self) -> u64 {
        self.followed.load(Ordering::SeqCst)
    }

    /// Of the reads that nobody may have compared these stay, and this one comes to them.
    pub(crate) fn keep_unchecked(&self, keep: impl Fn(u64) -> bool, read: Option<Step>) {
        let mut all = self.unchecked.lock().expect("no panic under it");
        all.retain(|read| keep(read.seq()));
        all.extend(read);
    }

    /// Those that the other site, which has done all before `done`, has not done.
    pub(crate) fn unchecked(&self, done: u64) -> Vec<Step> {
        self.keep_unchecked(|seq| seq >= done, None);
        self.unchecked.lock().expect("no panic under it").clone()
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.why.lock().expect("no panic under it").is_some()
    }

    pub(crate) fn stopped(&self) -> Option<PairError> {
        self.why.lock().expect("no panic under it").take()
    }
}

/// Says every now and then that this site is there. On a busy host this thread comes before all ordinary ones, where the user
/// may have that: else the other site would take a lack of processors here for a loss.
pub(crate) fn beat(sender: &Sender, shared: &Shared, lost_after: Duration) {
    let pause = (lost_after / 5).min(Duration::from_millis(100));
    let _ = steadfast_sys::cpu::run_first();
    while !shared.is_closing() && !shared.has_lost() {
        let began = Instant::now();
        if let Err(error) = sender.send(Tag::Beat, &[]) {
            shared.unsent(sender, &error);
            return;
        }
        std::thread::sleep(pause);
        let took = began.elapsed();
        let late = if took > lost_after / 2 {
            took.as_millis()
        } else {
            0
        };
        let late = u64::try_from(late).unwrap_or(u64::MAX);
        shared.stood.store(late, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::link;
    use crate::tls::Security;

    #[test]
    fn what_the_other_site_has_said_is_heard_before_its_silence_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let near = TcpStream::connect(address).expect("it listens");
        let (far, _) = listener.accept().expect("it connects");
        let (own, mut hears) = link::halves(Security::Clear.connected(near).expect("set up"));
        let (other, _) = link::halves(Security::Clear.accepted(far).expect("set up"));
        other.say(Tag::Go, &()).expect("it is sent");
        other.close();

        let shared = Shared::default();
        shared.unsent(&own, &io::ErrorKind::BrokenPipe.into());
        assert!(!shared.has_lost());
        assert_eq!(hears.next().expect("it was sent before").tag, Tag::Go);
        let silence = hears.next().expect_err("nothing more comes");
        shared.lose_by(&silence);
        shared.hears_no_more();
        assert!(shared.has_lost());

        // Where nobody hears any more the loss is told at once.
        let shared = Shared::default();
        shared.hears_no_more();
        assert!(!shared.has_lost());
        shared.unsent(&own, &io::ErrorKind::BrokenPipe.into());
        assert!(shared.has_lost());
    }
}
