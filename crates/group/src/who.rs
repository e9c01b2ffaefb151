//! Who belongs to a group, who wants to, and what the latter is told.
//!
//! Not covered: whether a process is who it says. The secret of the group tells, and certificates do.

use serde::{Deserialize, Serialize};

/// A member of the group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Member {
    /// Its place in the group: what users count replicas by.
    pub slot: u64,
    /// Where other replicas reach it.
    pub peer: String,
    /// Where clients reach it.
    pub client: String,
}

/// A process that wants to belong to a group, and what it was started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    pub slot: u64,
    pub node: u64,
    pub client: String,
    pub peers: Vec<String>,
    /// What it executes, and how: the stage of `steadfast kv`, the name of another service.
    pub service: String,
    pub memory_mib: u64,
    pub kept: Kept,
}

/// What a process has of its group when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Kept {
    /// Nothing, and it never had anything.
    #[default]
    Nothing,
    /// A log on disk that it goes on with: it belongs to a group and founds none.
    Log,
    /// Nothing any more: what it had was damaged. It founds no group, since that would make the loss final without a word.
    Lost,
}

impl Who {
    pub fn member(&self) -> Member {
        let slot = usize::try_from(self.slot).unwrap_or(usize::MAX);
        Member {
            slot: self.slot,
            peer: self.peers.get(slot).cloned().unwrap_or_default(),
            client: self.client.clone(),
        }
    }

    /// What must be the same in a group, if it is not.
    pub fn differs(&self, other: &Self) -> Option<String> {
        let differ = |what: &str, one: &str, two: &str| {
            Some(format!(
                "requirement: the same {what} in all replicas; found: {one} at replica {}, {two} at replica {}",
                self.slot, other.slot
            ))
        };
        if self.peers.len() != other.peers.len() {
            return differ(
                "number of --peers",
                &self.peers.len().to_string(),
                &other.peers.len().to_string(),
            );
        }
        if self.service != other.service {
            return differ("--stage, or service", &self.service, &other.service);
        }
        if self.memory_mib != other.memory_mib {
            return differ(
                "--memory",
                &self.memory_mib.to_string(),
                &other.memory_mib.to_string(),
            );
        }
        None
    }

    /// What must be the same in a group that is to be founded.
    pub fn differs_at_founding(&self, other: &Self) -> Option<String> {
        if self.slot == other.slot && self.node != other.node {
            return Some(format!(
                "requirement: one process for each place; found: two that are replica {}",
                self.slot
            ));
        }
        if self.peers != other.peers {
            return Some(format!(
                "requirement: the same --peers in all replicas; found: {} at replica {}, {} at replica {}",
                self.peers.join(","),
                self.slot,
                other.peers.join(","),
                other.slot
            ));
        }
        self.differs(other)
    }
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Met {
    /// Of no group yet either.
    New(Who),
    /// A member. The words say why the asker cannot be let in now; none if it can.
    Member(Option<String>),
    /// Cannot be of one group with the asker.
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(slot: u64) -> Who {
        Who {
            slot,
            node: slot + 1,
            client: "h:1".to_owned(),
            peers: ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec(),
            service: "RDGX".to_owned(),
            memory_mib: 64,
            kept: Kept::Nothing,
        }
    }

    #[test]
    fn replicas_that_cannot_be_one_group_say_what_differs() {
        let one = who(0);
        assert_eq!(one.differs_at_founding(&who(1)), None);
        let mut two = who(1);
        two.peers[2] = "d:1".to_owned();
        assert!(one.differs_at_founding(&two).unwrap().contains("--peers"));
        assert_eq!(one.differs(&two), None, "a member's place may have moved");
        for change in [
            |who: &mut Who| who.service = "RD".to_owned(),
            |who: &mut Who| who.memory_mib = 65,
            |who: &mut Who| drop(who.peers.pop()),
        ] {
            let mut two = who(1);
            change(&mut two);
            let why = one.differs(&two).unwrap();
            assert!(
                why.contains("requirement") && why.contains("found"),
                "{why}"
            );
        }
        let mut other = who(0);
        other.node = 9;
        assert!(
            one.differs_at_founding(&other)
                .unwrap()
                .contains("two that are")
        );
    }
}
