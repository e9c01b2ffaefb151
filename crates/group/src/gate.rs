//! What a member answers a process that belongs to no group, and when the group counts as lost.
//!
//! Not covered: who founds a group; see `meet`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast_crosscheck::Node;
use tokio::time::Instant;

use crate::sequencer::Sequencer;
use crate::who::{Kept, Member, Met, Who};

/// A new process that asks to be let in is heard of several times in this.
const FRESH: Duration = Duration::from_secs(3);
/// How long more than f places must have had new processes before the group counts as lost.
const LOST: Duration = Duration::from_secs(5);
/// How long a process may take to be let in: the state has to be sent to it.
const LET_IN: Duration = Duration::from_secs(120);

/// How letting a process in has ended: its place, and the time that it took or why it could not be.
pub type LetIn = (u64, Result<Duration, String>);

/// Who stands before the group.
#[derive(Debug)]
pub struct Gate {
    who: Who,
    /// Places in which a process runs that belongs to no group, and when it was last heard of.
    fresh: HashMap<u64, Instant>,
    lost_since: Option<Instant>,
    letting_in: Arc<AtomicBool>,
}

impl Gate {
    /// Of the group that this process belongs to, or will.
    #[must_use]
    pub fn new(who: Who) -> Self {
        Self {
            who,
            fresh: HashMap::new(),
            lost_since: None,
            letting_in: Arc::default(),
        }
    }

    /// A process that belongs to no group asks about this one's. `alive` says which members answer; `told` hears how letting it in ended.
    pub fn meet<S: Sequencer>(
        &mut self,
        other: &Who,
        members: &BTreeMap<Node, Member>,
        alive: impl Fn(Node) -> bool,
        engine: &S,
        told: impl FnOnce(LetIn) + Send + 'static,
    ) -> Met {
        let me = Node(self.who.node);
        let is_member = members.contains_key(&me);
        // One that goes on with a log belongs to a group, though it does not know yet who leads it.
        let belongs = is_member || self.who.kept == Kept::Log;
        let differs = if belongs {
            self.who.differs(other)
        } else {
            self.who.differs_at_founding(other)
        };
        if let Some(why) = differs {
            return Met::Refused(why);
        }
        if !belongs {
            return Met::New(self.who.clone());
        }
        if members.is_empty() {
            return Met::Member(None);
        }
        let node = Node(other.node);
        if let Some(known) = members.get(&node) {
            self.readdress(node, known, other.member(), engine);
            return Met::Member(None);
        }
        let old = members
            .iter()
            .find(|(_, member)| member.slot == other.slot)
            .map(|(node, member)| (*node, member.clone()));
        if let Some((old, member)) = &old
            && (*old == me || alive(*old))
        {
            return Met::Member(Some(format!(
                "replica {} of the group runs at {} and answers\n  fix:   stop that process first, or give this one its own --replica",
                other.slot, member.peer
            )));
        }
        self.fresh.insert(other.slot, Instant::now());
        if engine.is_leader() && !self.letting_in.swap(true, Ordering::Relaxed) {
            let (engine, busy) = (engine.clone(), self.letting_in.clone());
            let member = other.member();
            tokio::spawn(async move {
                let slot = member.slot;
                let began = Instant::now();
                let replaced = engine.replace(old.map(|(node, _)| node), node, member);
                let done = tokio::time::timeout(LET_IN, replaced).await;
                let done = done.unwrap_or_else(|_| Err("it took too long".to_owned()));
                told((slot, done.map(|()| began.elapsed())));
                busy.store(false, Ordering::Relaxed);
            });
        }
        Met::Member(None)
    }

    /// A member that was started again may have another address for clients. Where replicas reach it is what they found it by.
    fn readdress<S: Sequencer>(&self, node: Node, known: &Member, now: Member, engine: &S) {
        let moved = known.client != now.client && known.peer == now.peer;
        if moved && engine.is_leader() && !self.letting_in.swap(true, Ordering::Relaxed) {
            let (engine, busy) = (engine.clone(), self.letting_in.clone());
            tokio::spawn(async move {
                // It asks again if this failed.
                let _ = engine.readdress(node, now).await;
                busy.store(false, Ordering::Relaxed);
            });
        }
    }

    /// The group has other members now: a process that has just become one stands before it no more.
    pub fn members_changed(&mut self, old: &BTreeMap<Node, Member>, new: &BTreeMap<Node, Member>) {
        self.fresh.retain(|slot, _| {
            new.values().all(|member| member.slot != *slot)
                || old
                    .iter()
                    .any(|(node, member)| member.slot == *slot && new.contains_key(node))
        });
    }

    /// The places that have begun anew, if they are so many, for so long, that the group can never agree on anything again.
    pub fn lost(&mut self, is_member: bool) -> Option<Vec<u64>> {
        self.fresh.retain(|_, at| at.elapsed() < FRESH);
        if self.fresh.len() <= self.who.peers.len() / 2 || !is_member {
            self.lost_since = None;
            return None;
        }
        if self.lost_since.get_or_insert_with(Instant::now).elapsed() <= LOST {
            return None;
        }
        let mut slots: Vec<u64> = self.fresh.keys().copied().collect();
        slots.sort_unstable();
        Some(slots)
    }
}
