//! The service as the engine sees it: a place in the log, a channel, and the last state.
//!
//! `apply` only hands entries on: what the engine calls applied is what has been dispatched.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use openraft::alias::{LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use openraft::entry::RaftEntry as _;
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use steadfast_crosscheck::Node;
use tokio::sync::{mpsc, oneshot};

use super::hand::Hand;
use super::{Delivery, Member};
use crate::disk::{Keeper, State};
use crate::entry::{Bytes, Types};
use crate::state;

/// Between two tries to hand a state out that is in doubt.
const DOUBT: Duration = Duration::from_millis(50);

/// The engine's view of the service: a place in the log, and a channel.
#[derive(Debug)]
pub struct Machine {
    hand: Arc<Hand<Place, Delivery>>,
    current: Current,
}

/// A state and the entry behind which it stands. Its bytes are there once: of a large one a copy would hold up all that the thread does.
type Last = (SnapshotMetaOf<Types>, Arc<Vec<u8>>);

/// The last state that was made or taken over, on disk too where the replica has a directory.
#[derive(Clone, Debug, Default)]
struct Current {
    last: Arc<Mutex<Option<Last>>>,
    disk: Option<Keeper>,
}

impl Current {
    fn get(&self) -> Option<Last> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn forget(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The later of two stays, whichever comes last: one may be under way for long while another is taken over.
    async fn put(&self, meta: SnapshotMetaOf<Types>, bytes: Arc<Vec<u8>>) -> io::Result<()> {
        if let Some(disk) = &self.disk {
            disk.state(meta.clone(), bytes.clone()).await?;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_later = last
            .as_ref()
            .is_none_or(|(before, _)| before.last_log_id < meta.last_log_id);
        if is_later {
            *last = Some((meta, bytes));
        }
        Ok(())
    }
}

/// What the engine asks about.
#[derive(Clone, Debug, Default)]
struct Place {
    applied: Option<LogIdOf<Types>>,
    membership: StoredMembershipOf<Types>,
}

/// The state behind an entry goes to the service, and what follows goes behind it.
fn install(
    hand: &Hand<Place, Delivery>,
    meta: &SnapshotMetaOf<Types>,
    bytes: Arc<Vec<u8>>,
    done: oneshot::Sender<Result<(), String>>,
) {
    hand.go(|place| {
        place.applied = meta.last_log_id;
        place.membership = meta.last_membership.clone();
        Delivery::Install {
            index: meta.last_log_id.map_or(0, |id| id.index()),
            members: members_of(&place.membership),
            bytes,
            done,
        }
    });
}

fn members_of(membership: &StoredMembershipOf<Types>) -> BTreeMap<Node, Member> {
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    membership
        .nodes()
        .filter(|(id, _)| voters.contains(id))
        .map(|(id, member)| (Node(*id), member.clone()))
        .collect()
}

impl Machine {
    /// One that has executed nothing yet.
    pub(super) fn new(out: mpsc::UnboundedSender<Delivery>) -> Self {
        Self {
            hand: Arc::new(Hand::new(Place::default(), out)),
            current: Current::default(),
        }
    }

    /// Goes on with the state that was found on disk; the service is handed it before any entry.
    pub(super) fn keep(&mut self, disk: Keeper, state: Option<State>) {
        let state = state.map(|(meta, bytes)| (meta, Arc::new(bytes)));
        if let Some((meta, bytes)) = &state {
            // Whoever takes it ends the process if it cannot: nobody waits.
            let (done, _) = oneshot::channel();
            install(&self.hand, meta, bytes.clone(), done);
        }
        self.current = Current {
            last: Arc::new(Mutex::new(state)),
            disk: Some(disk),
        };
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Arc<Vec<u8>>;
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogIdOf<Types>>, StoredMembershipOf<Types>), io::Error> {
        let place = self.hand.place();
        Ok((place.applied, place.membership))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let id = entry.log_id();
            let index = id.index();
            self.hand.go(|place| {
                place.applied = Some(id);
                match entry.payload {
                    EntryPayload::Blank => Delivery::Blank { index },
                    EntryPayload::Normal(Bytes(bytes)) => Delivery::Entry { index, bytes },
                    EntryPayload::Membership(membership) => {
                        place.membership = StoredMembershipOf::<Types>::new(Some(id), membership);
                        let members = members_of(&place.membership);
                        Delivery::Members { index, members }
                    }
                }
            });
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        Builder {
            hand: self.hand.clone(),
            current: self.current.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Types>,
        snapshot: Arc<Vec<u8>>,
    ) -> Result<(), io::Error> {
        let (done, ready) = oneshot::channel();
        install(&self.hand, meta, snapshot.clone(), done);
        ready
            .await
            .map_err(io::Error::other)?
            .map_err(io::Error::other)?;
        self.current.put(meta.clone(), snapshot).await
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<Types, Arc<Vec<u8>>>>, io::Error> {
        let current = self.current.get();
        // It may have lain in memory for hours: one that was hit is made anew.
        if current
            .as_ref()
            .is_some_and(|(_, bytes)| state::opened(bytes).is_none())
        {
            self.current.forget();
            return self
                .get_snapshot_builder()
                .await
                .build_snapshot()
                .await
                .map(Some);
        }
        Ok(current.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

/// A snapshot that is being made.
#[derive(Debug)]
pub struct Builder {
    hand: Arc<Hand<Place, Delivery>>,
    current: Current,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Arc<Vec<u8>>;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<Types, Arc<Vec<u8>>>, io::Error> {
        let (meta, bytes) = loop {
            let (want, have) = oneshot::channel();
            let place = self.hand.ask(Delivery::Snapshot(want));
            let meta = SnapshotMetaOf::<Types> {
                last_log_id: place.applied,
                last_membership: place.membership,
            };
            if let Some(bytes) = have.await.map_err(io::Error::other)? {
                break (meta, Arc::new(bytes));
            }
            // Something in it is in doubt: later, at another place of the log.
            tokio::time::sleep(DOUBT).await;
        };
        self.current.put(meta.clone(), bytes.clone()).await?;
        Ok(Snapshot {
            meta,
            snapshot: bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use openraft::vote::RaftLeaderId as _;

    use super::*;

    #[tokio::test]
    async fn a_state_that_comes_late_does_not_replace_a_later_one() {
        let leader = openraft::alias::LeaderIdOf::<Types>::new(1, 9).to_committed();
        let current = Current::default();
        for (index, bytes) in [(20, 2), (50, 5), (30, 3)] {
            let meta = SnapshotMetaOf::<Types> {
                last_log_id: Some(LogIdOf::<Types>::new(leader, index)),
                ..Default::default()
            };
            current.put(meta, Arc::new(vec![bytes])).await.unwrap();
        }
        assert_eq!(*current.get().unwrap().1, [5]);
    }
}
