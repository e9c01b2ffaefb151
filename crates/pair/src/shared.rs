//! Shared: what the threads of one site tell the one that decides, and it them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steadfast_replica::site::{Place, Unread};

use crate::error::PairError;
use crate::link::{Sender, Tag};

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
    pub(crate) left: AtomicBool,
    pub(crate) leads: AtomicBool,
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
