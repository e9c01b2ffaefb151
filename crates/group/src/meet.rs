//! How a process of `serve` finds its group: it asks every address of `--peers` until it belongs to one.
//!
//! ```text
//!              ┌── all others are new ──► replica 0 founds the group with the processes that answered
//!   new ── ask ┤
//!              └── somebody is a member ► whoever leads puts this process in its place, once the old process there is silent
//! ```
//!
//! A process without a log on disk has nothing when it starts, and takes a node number that nobody had before. A group is founded only when
//! all of its processes are new and reach each other: no old majority can exist beside it. Where more than f members have been followed by
//! new processes the old group can never agree on anything again; the survivors say so and end, and all begin anew.
//!
//! A process that goes on with a log on disk asks too, and is a member as soon as its mark has come out of the log.
//!
//! Not covered: a list of peers that changes by itself. A member's address is the one that it joined with.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use steadfast_crosscheck::Node;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::links::Links;
use crate::sequencer::raft::Engine;
use crate::who::{Kept, Met, Who};
use crate::wire::{self, Hello};

/// Between two rounds of questions.
const AGAIN: Duration = Duration::from_millis(250);
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(2);
/// What keeps this process out is told when it has lasted so long.
const PATIENCE: Duration = Duration::from_secs(3);
/// A process whose place another one holds ends after this: a restarted host's old process falls silent long before.
const TAKEN: Duration = Duration::from_secs(10);

async fn ask(at: &str, links: &Links, who: &Who) -> io::Result<Met> {
    let exchange = async {
        let hello = Hello::Meet {
            secret: links.secret,
            who: who.clone(),
        };
        let mut stream = links.open(at, &hello).await?;
        wire::read_preamble(&mut stream, links.epoch, links.mixed).await?;
        wire::read::<Met>(&mut stream).await
    };
    tokio::time::timeout(ANSWER, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Why these must not found a group: one of them has had what was stored.
fn lost(new: &BTreeMap<u64, Who>) -> Option<String> {
    let slots: Vec<u64> = new
        .values()
        .filter(|who| who.kept == Kept::Lost)
        .map(|who| who.slot)
        .collect();
    (!slots.is_empty()).then(|| {
        format!(
            "no replica has what was stored: the data of replicas {slots:?} was damaged, and the others have none\n  fix:   steadfast kv restore, from a backup; or empty --data of all replicas, which founds an empty group"
        )
    })
}

/// Asks until this process is a member. An error is one that waiting does not mend.
///
/// # Errors
/// With what waiting does not mend: others refuse this process, its place stays held, what was stored is lost, or founding fails.
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
        let complete = !group && new.len() == who.peers.len();
        if complete && let Some(why) = lost(&new) {
            return Err(why);
        }
        if complete && !founded && who.slot == 0 && who.kept == Kept::Nothing {
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
