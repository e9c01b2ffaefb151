//! A replica that nobody could repair ends, and a fresh process takes its place: with a new number, a state of another replica, and a voice
//! from the entry on that makes it a member.

use super::service::Entry;
use super::{Group, Replica};
use crate::core::{Core, Standing};
use crate::ids::{Index, Node};

impl Group {
    /// A process ends: its connections break, and nobody waits for it.
    pub(super) fn end(&mut self, who: usize) {
        self.outcome.replaced += 1;
        self.silent = self.silent.filter(|(silent, _)| *silent != who);
        let old = self.replicas[who].node;
        self.born += 1;
        let size = self.plan.size;
        self.replicas[who] = Replica::new(Node(self.born), size);
        self.replicas[who].crashed = true;
        self.replicas[who].joins = true;
        for other in 0..size {
            self.network.remove(&(who, other));
            self.network.remove(&(other, who));
            self.replicas[other].core.set_alive(old, false);
        }
        for other in 0..size {
            self.act(other);
        }
    }

    /// Whether a fresh process still waits for its state or its voice.
    pub(super) fn joining(&self) -> bool {
        self.replicas.iter().any(|replica| replica.joins)
    }

    /// A fresh process gets the state of another replica, once f+1 have agreed on all of that, and is made a member by the log.
    pub(super) fn join(&mut self, who: usize, from: usize) {
        let donor = &self.replicas[from];
        let at = Index(donor.next as u64);
        if !self.replicas[who].joins
            || !self.replicas[who].crashed
            || donor.crashed
            || donor.since.is_none()
            || donor.core.standing(at) != Standing::Agreed
            // The shadow stands for what all vote on with every entry: how much is stored.
            || donor.store.0.len() != donor.shadow.0.len()
        {
            return;
        }
        let (store, shadow, next) = (donor.store.handed_on(), donor.shadow.clone(), donor.next);
        let members = |replica: &&Replica| !replica.joins;
        let mut nodes: Vec<Node> = self
            .replicas
            .iter()
            .filter(members)
            .map(|r| r.node)
            .collect();
        let gone: Vec<Node> = self
            .replicas
            .iter()
            .filter(|replica| replica.crashed)
            .map(|replica| replica.node)
            .collect();
        let replica = &mut self.replicas[who];
        replica.core = Core::new(replica.node, self.plan.size, 1);
        replica.core.keeps_undo();
        replica.core.set_members(&nodes, at);
        for node in gone {
            replica.core.set_alive(node, false);
        }
        replica.store = store;
        replica.shadow = shadow;
        replica.next = next;
        replica.since = None;
        replica.crashed = false;
        nodes.push(replica.node);
        self.log.push(Entry::Members(nodes));
        self.right.push(Vec::new());
    }

    /// The log has said who belongs to the group.
    pub(super) fn members(&mut self, who: usize, index: Index, nodes: &[Node]) {
        let replica = &mut self.replicas[who];
        replica.core.set_members(nodes, index);
        if replica.since.is_none() && nodes.contains(&replica.node) {
            replica.since = Some(index);
            replica.joins = false;
        }
        self.act(who);
    }
}
