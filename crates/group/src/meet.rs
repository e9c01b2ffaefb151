//! How a process of `serve` finds its group: it asks every address of `--peers` until it belongs to one.
//!
//! ```text
//!              ┌── all others are new ──► replica 0 founds the group with the processes that answered
//!   new ── ask ┤
//!              └── somebody is a member ► whoever leads puts this process in its place, once the old process there is silent
//! ```
//!
//! A log is in memory, so a process that starts has nothing, and takes a node number that nobody had before. A group is founded only when
//! all of its processes are new and reach each other: no old majority can exist beside it. Where more than f members have been followed by
//! new processes the old group can never agree on anything again; the survivors say so and end, and all begin anew.
//!
//! Not covered: a list of peers that changes by itself. A member's address is the one that it joined with.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_crosscheck::Node;
use tokio::sync::watch;

use crate::links::Links;
use crate::sequencer::Member;
use crate::sequencer::raft::Engine;
use crate::wire::{self, Hello};

/// Between two rounds of questions.
const AGAIN: Duration = Duration::from_millis(250);
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(2);
/// What keeps this process out is told when it has lasted so long.
const PATIENCE: Duration = Duration::from_secs(3);
/// A process whose place another one holds ends after this: a restarted host's old process falls silent long before.
const TAKEN: Duration = Duration::from_secs(10);

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

async fn ask(at: &str, links: &Links, who: &Who) -> io::Result<Met> {
    let exchange = async {
        let hello = Hello::Meet {
            secret: links.secret,
            who: who.clone(),
        };
        let mut stream = links.open(at, &hello).await?;
        wire::read_preamble(&mut stream, links.epoch).await?;
        wire::read::<Met>(&mut stream).await
    };
    tokio::time::timeout(ANSWER, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Asks until this process is a member. An error is one that waiting does not mend.
pub async fn join(
    engine: Engine,
    links: Links,
    who: Who,
    mut member: watch::Receiver<bool>,
    tell: impl Fn(&str),
) -> Result<(), String> {
    let began = Instant::now();
    let mut taken: Option<Instant> = None;
    let mut told = BTreeSet::new();
    let mut founded = false;
    loop {
        let others: Vec<(u64, &String)> = (0..)
            .zip(&who.peers)
            .filter(|(slot, _)| *slot != who.slot)
            .collect();
        let answers =
            futures_util::future::join_all(others.iter().map(|(_, at)| ask(at, &links, &who)))
                .await;
        if *member.borrow() {
            return Ok(());
        }
        let mut new: BTreeMap<u64, Who> = BTreeMap::from([(who.slot, who.clone())]);
        let mut group = false;
        let mut held = None;
        let mut refused = Vec::new();
        for ((slot, at), answer) in others.iter().zip(answers) {
            let mut tell_once = |text: String| {
                if began.elapsed() > PATIENCE && told.insert(text.clone()) {
                    tell(&text);
                }
            };
            match answer {
                Ok(Met::New(other)) if other.slot == *slot => {
                    new.insert(other.slot, other);
                }
                Ok(Met::New(other)) => tell_once(format!(
                    "replica {} answers at {at}, where --peers has replica {slot}",
                    other.slot
                )),
                Ok(Met::Member(None)) => group = true,
                Ok(Met::Member(Some(why))) => {
                    group = true;
                    held = Some(why);
                }
                Ok(Met::Refused(why)) => refused.push(format!("{at} refuses this replica: {why}")),
                Err(why) if why.kind() == io::ErrorKind::Other => {
                    refused.push(format!("replica {slot} at {at}: {why}"));
                }
                Err(why) => tell_once(format!("waiting for replica {slot} at {at}: {why}")),
            }
        }
        // One that is set up wrongly is refused by most; the others only wait for it.
        if refused.len() > others.len() / 2 || (group && !refused.is_empty()) {
            return Err(refused.join("\n  and:   "));
        }
        for text in refused {
            if told.insert(text.clone()) {
                tell(&text);
            }
        }
        match held {
            Some(why) => {
                if taken.get_or_insert_with(Instant::now).elapsed() > TAKEN {
                    return Err(why);
                }
            }
            None => taken = None,
        }
        if !group && !founded && who.slot == 0 && new.len() == who.peers.len() {
            founded = true;
            let members = new
                .values()
                .map(|who| (Node(who.node), who.member()))
                .collect();
            engine
                .found(members)
                .await
                .map_err(|why| format!("the group could not be founded: {why:#}"))?;
        }
        let _ = tokio::time::timeout(AGAIN, member.changed()).await;
        if *member.borrow() {
            return Ok(());
        }
    }
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
        let mut twin = who(0);
        twin.node = 9;
        assert!(
            one.differs_at_founding(&twin)
                .unwrap()
                .contains("two that are")
        );
    }
}
