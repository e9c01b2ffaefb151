//! The service's own commands, which clients of any replica may send: `sf WORD REST`.
//!
//! Invariant: what changes the group, or shows what is stored, is for who knows the group's secret.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use steadfast_crosscheck::Node;
use steadfast_group::{Member, Sequencer as _, wire};
use tokio::sync::oneshot;

use super::{
    Body, Drain, NOT_ALLOWED, SHARDS, SILENT, Service, Stage, VERIFY_PARTS, Verify, Waiting,
};

/// What a replica says that does not lead, or has just ceased to.
pub(crate) const NOT_LEADER: &str = "ERROR not the leader";
/// How it begins to say that the log has not taken an order.
pub(crate) const NOT_TAKEN: &str = "ERROR the log has not taken it: ";
/// In what it says of a replica that is to be removed, and was heard a moment ago.
pub(crate) const HEARD: &str = "found: replica ";
/// Objects that a status names as the ones that hold requests back.
const HELD_SHOWN: usize = 8;

impl Service {
    /// The service's own commands.
    pub(super) fn own(&mut self, word: &str, rest: &str, reply: oneshot::Sender<String>) {
        let answer = match word {
            "status" => self.status().to_string(),
            "strike" => match self.strike(rest) {
                Ok(()) => "STRUCK".to_owned(),
                Err(why) => format!("ERROR {why}"),
            },
            "verify" if self.stage < Stage::Rdgx => "ERROR verify needs stage RDGX".to_owned(),
            "verify" => {
                self.verify_next.push_back(reply);
                return;
            }
            "replace" => {
                self.replace(rest, reply);
                return;
            }
            "drain" if wire::is_secret(rest, self.secret) => {
                let drain = self.drain.get_or_insert_with(|| Drain {
                    since: Instant::now(),
                    handed_on: None,
                    replies: Vec::new(),
                });
                drain.since = Instant::now();
                drain.replies.push(reply);
                return;
            }
            "transfer" => self.transfer(rest),
            "remove" => {
                self.remove(rest, reply);
                return;
            }
            "backup" => {
                self.backup(rest, reply);
                return;
            }
            "piece" => self.piece(rest),
            "restore" => {
                self.restore(rest, reply);
                return;
            }
            "drain" => NOT_ALLOWED.to_owned(),
            _ => "ERROR unknown word; known: status, strike, verify, replace, drain, transfer, remove, backup, piece, restore".to_owned(),
        };
        let _ = reply.send(answer);
    }

    /// `SECRET SLOT`: a member that whoever knows the secret names.
    fn named(&self, rest: &str) -> Result<Node, String> {
        let (secret, slot) = rest.split_once(' ').unwrap_or((rest, ""));
        if !wire::is_secret(secret, self.secret) {
            return Err(NOT_ALLOWED.to_owned());
        }
        self.members
            .iter()
            .find(|(_, member)| member.slot.to_string() == slot)
            .map(|(node, _)| *node)
            .ok_or_else(|| format!("ERROR the group has no replica '{slot}'"))
    }

    /// Another member is to lead.
    fn transfer(&self, rest: &str) -> String {
        let to = match self.named(rest) {
            Ok(to) => to,
            Err(why) => return why,
        };
        if self.engine.leader() == Some(to) {
            return "DONE".to_owned();
        }
        if !self.engine.is_leader() {
            return NOT_LEADER.to_owned();
        }
        if !self.alive(to) {
            return format!("ERROR replica {} does not answer", self.slot_of(to));
        }
        self.engine.transfer(to);
        "ASKED".to_owned()
    }

    /// A member that does not answer is to be none.
    fn remove(&self, rest: &str, reply: oneshot::Sender<String>) {
        let refused = match self.named(rest) {
            Err(why) => why,
            Ok(_) if !self.engine.is_leader() => NOT_LEADER.to_owned(),
            Ok(node) if node == self.me || self.alive(node) => format!(
                "ERROR requirement: a replica that does not answer; {HEARD}{} answers; fix: stop it first",
                self.slot_of(node)
            ),
            Ok(_) if self.members.len() <= self.size / 2 + 1 => format!(
                "ERROR requirement: {} replicas, which are a majority; found: no more than that; fix: start another one in its place",
                self.size / 2 + 1
            ),
            Ok(node) => {
                let engine = self.engine.clone();
                tokio::spawn(async move {
                    let done = engine.remove(node).await;
                    let _ = reply.send(
                        done.map_or_else(|why| format!("{NOT_TAKEN}{why}"), |()| "DONE".to_owned()),
                    );
                });
                return;
            }
        };
        let _ = reply.send(refused);
    }

    pub(super) fn slot_of(&self, node: Node) -> u64 {
        self.members
            .get(&node)
            .map_or(self.slot, |member| member.slot)
    }

    /// Has everything compared.
    pub(super) fn verify(&mut self, reply: oneshot::Sender<String>) {
        self.verify = Some(Verify {
            first: self.next,
            waits: VERIFY_PARTS,
            indexes: Vec::new(),
            objects: 0,
            repaired: self.counts.repairs,
            found: Vec::new(),
            began: Instant::now(),
            reply,
        });
        for part in 0..VERIFY_PARTS {
            let step = SHARDS / VERIFY_PARTS;
            let from = u16::try_from(part * step).unwrap_or(0);
            let to = u16::try_from((part + 1) * step).unwrap_or(0);
            self.submit(Body::Scrub(from, to), Vec::new(), true);
        }
    }

    /// Answers a verify once nothing of it is open. It has finished if f+1 replicas were compared, and is complete if all were.
    pub(super) fn verified(&mut self) {
        if self.verify.is_none()
            && let Some(reply) = self.verify_next.pop_front()
        {
            self.verify(reply);
        }
        let done = self.verify.as_ref().is_some_and(|verify| {
            verify.waits == 0
                && !verify.indexes.iter().any(|index| self.core.is_open(*index))
                && !self.core.is_repairing()
        });
        let late = self
            .verify
            .as_ref()
            .is_some_and(|verify| verify.began.elapsed() > Duration::from_secs(20));
        if (done || late)
            && let Some(verify) = self.verify.take()
        {
            let took_ms = u64::try_from(verify.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let unheard = verify.indexes.iter().map(|index| self.core.unheard(*index));
            let unheard: Vec<Vec<Node>> = unheard.collect();
            let quorum = self.size / 2 + 1;
            let voted = unheard
                .iter()
                .all(|silent| self.members.len() >= quorum + silent.len());
            let missing: BTreeSet<u64> = unheard
                .iter()
                .flatten()
                .map(|node| self.slot_of(*node))
                .collect();
            let finished = done && voted;
            let json = serde_json::json!({
                "finished": finished, "complete": finished && missing.is_empty(), "missing": missing,
                "objects": verify.objects, "differences": verify.found, "took_ms": took_ms,
            });
            let _ = verify.reply.send(json.to_string());
        }
    }

    /// Requests of this replica's clients by what they wait for, and what holds the log back.
    fn waiting(&self) -> serde_json::Value {
        let requests = |groups: &Waiting| groups.iter().map(|(count, _)| count).sum::<usize>();
        let to_be_ordered = self.unacked.values().map(|own| requests(&own.groups));
        let for_votes = self.out.values().map(|out| requests(&out.groups));
        serde_json::json!({
            "to_be_submitted": self.collected,
            "to_be_ordered": to_be_ordered.sum::<usize>(),
            "nothing_ordered_for_ms": self.unacked.first_key_value().map(|_| self.submitted_at.elapsed().as_millis()),
            "for_votes": for_votes.sum::<usize>(),
            "entries_to_execute": self.queue.len(),
            "for_repair_of": self.waits_for(),
        })
    }

    /// The first of the objects that hold the log back.
    pub(super) fn waits_for(&self) -> Vec<String> {
        let held: BTreeSet<_> = self.held.values().flatten().copied().collect();
        let shown = held.iter().take(HELD_SHOWN);
        shown.map(|id| self.name(*id, None)).collect()
    }

    fn status(&self) -> serde_json::Value {
        let (items, bytes) = self.store.size();
        let leader = self
            .engine
            .leader()
            .and_then(|node| self.members.get(&node))
            .map(|member| member.slot);
        let members: Vec<serde_json::Value> = self
            .members
            .iter()
            .map(|(node, member)| {
                let alive = *node == self.me || self.heard.get(node).is_some_and(|last| last.elapsed() < SILENT);
                serde_json::json!({"replica": member.slot, "node": node.0, "client": member.client, "peer": member.peer, "alive": alive})
            })
            .collect();
        let stage = self.stage.word();
        serde_json::json!({
            "replica": self.slot, "node": self.me.0, "stage": stage, "leader": leader, "executed": self.executed,
            "joined": self.joined, "open": self.core.open(), "repairing": self.core.is_repairing(), "held": self.held.len(), "waiting": self.waiting(), "items": items, "bytes": bytes, "evictions": self.store.evictions(),
            "uptime_s": self.started.elapsed().as_secs(), "members": members, "counts": self.counts,
            "reads": self.reads.modes.words().collect::<BTreeMap<_, _>>(),
            "reads_local": self.reads.local, "reads_plain": self.reads.plain, "reads_logged": self.reads.logged,
            "repairs_refused": self.core.repairs_refused(), "doubts": self.core.doubts(), "ready": self.unready().is_none(), "unready": self.unready(), "behind": self.engine.behind(self.executed),
            "workers": self.workers.count(), "spread": self.workers.spread(),
            "scrub": {"next_shard": self.scrub_next, "shards": SHARDS, "on": self.scrub_every.is_some()},
        })
    }

    /// `SECRET SLOT NODE PEER CLIENT`: a fresh process takes a place in the group.
    fn replace(&mut self, rest: &str, reply: oneshot::Sender<String>) {
        let words: Vec<&str> = rest.split(' ').collect();
        let parsed = match words.as_slice() {
            [secret, slot, node, peer, client] if wire::is_secret(secret, self.secret) => slot
                .parse()
                .ok()
                .zip(node.parse().ok())
                .map(|(slot, node)| {
                    (
                        Node(node),
                        Member {
                            slot,
                            peer: (*peer).to_owned(),
                            client: (*client).to_owned(),
                        },
                    )
                }),
            _ => None,
        };
        let Some((node, member)) = parsed else {
            let _ = reply.send("ERROR replace is for the parent of the group alone".to_owned());
            return;
        };
        if !self.engine.is_leader() {
            let _ = reply.send(NOT_LEADER.to_owned());
            return;
        }
        let old = self
            .members
            .iter()
            .find(|(_, m)| m.slot == member.slot)
            .map(|(node, _)| *node);
        let engine = self.engine.clone();
        tokio::spawn(async move {
            let done = engine.replace(old, node, member).await;
            let _ = reply
                .send(done.map_or_else(|why| format!("ERROR {why}"), |()| "REPLACED".to_owned()));
        });
    }

    /// Counts for `stats`, in memcached's form.
    pub(crate) fn stats(status: &serde_json::Value) -> String {
        let mut text = String::new();
        let mut add = |name: &str, value: &serde_json::Value| {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            text += &format!("STAT {name} {value}\r\n");
        };
        add("pid", &std::process::id().into());
        add("uptime", &status["uptime_s"]);
        add("version", &crate::protocol::VERSION.into());
        add("pointer_size", &64.into());
        add("curr_items", &status["items"]);
        add("bytes", &status["bytes"]);
        add("evictions", &status["evictions"]);
        for name in [
            "replica",
            "stage",
            "leader",
            "executed",
            "open",
            "repairing",
            "reads_local",
            "reads_plain",
            "reads_logged",
        ] {
            add(&format!("sf_{name}"), &status[name]);
        }
        for (class, mode) in status["reads"].as_object().into_iter().flatten() {
            add(&format!("sf_reads_{class}"), mode);
        }
        if let Some(counts) = status["counts"].as_object() {
            for (name, value) in counts {
                add(&format!("sf_{name}"), value);
            }
        }
        text + "END\r\n"
    }
}
