//! What the vote asks for is done here, and what it found is told.

use std::time::{Duration, Instant};

use steadfast_crosscheck::{Action, Digest, Index, Message, Node, ObjectId, refresh};
use steadfast_fault::Passing;
use steadfast_group::Post;

use super::{Body, Reply, Service, deliver};
use crate::news::{self, Flipped, News};
use crate::store;

/// What a person is told about the repair of one object.
pub(super) struct Repaired {
    index: Index,
    passive: bool,
    name: String,
    line: String,
}

/// One line for each fault: where a recovery repairs one object that changed at rest, the others were made of it.
fn told(repaired: Vec<Repaired>) -> Vec<String> {
    let mut lines = Vec::new();
    for of_one in repaired.chunk_by(|one, next| one.index == next.index) {
        let mut at_rest = of_one.iter().filter(|it| it.passive);
        match (at_rest.next(), at_rest.next()) {
            (Some(cause), None) if of_one.len() > 1 => {
                let made = of_one.iter().filter(|it| !it.passive);
                let made: Vec<&str> = made.map(|it| it.name.as_str()).collect();
                let line = &cause.line;
                lines.push(format!(
                    "{line}; also what was made of it: {}",
                    made.join(", ")
                ));
            }
            _ => lines.extend(of_one.iter().map(|it| it.line.clone())),
        }
    }
    lines
}

impl Service {
    /// Does what the vote asks for.
    pub(super) fn act(&mut self) {
        loop {
            let actions = self.core.actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.action(action);
            }
        }
        for line in told(std::mem::take(&mut self.repaired)) {
            crate::say::sentence(&line);
        }
    }

    fn action(&mut self, action: Action) {
        match action {
            Action::Send(to, mut message) => {
                self.struck.message(&mut message);
                let check = matches!(message, Message::Check { .. });
                let bytes = self.peers.send(to, &Post::Vote(message));
                if check {
                    self.counts.check_bytes += bytes as u64;
                }
            }
            Action::Release(index, digests) => {
                self.note_won(index);
                let digests = digests.into_iter().map(|digest| (None, digest)).collect();
                self.release(index, digests);
            }
            Action::ReleaseWith(index, replies) => self.release(index, replies),
            Action::Undecided(index) => {
                self.counts.refused += 1;
                if let Some(out) = self.out.get_mut(&index) {
                    deliver(
                        std::mem::take(&mut out.groups),
                        Err("the replicas disagree"),
                    );
                }
            }
            Action::Rerun(index) => {
                self.counts.reruns += 1;
                let tuple = self.rerun(index);
                self.core.reran(index, tuple.as_ref());
            }
            Action::Forget(index) => {
                let first = self.core.first_open();
                self.store.forget(first.map_or(u64::MAX, |index| index.0));
                self.reads.forgotten(index);
                if let Some(out) = self.out.remove(&index) {
                    deliver(out.groups, Err("the vote took too long"));
                }
            }
            Action::Order(recover) => self.submit(Body::Recover(recover), Vec::new(), false),
            Action::Mismatch(index) => {
                self.counts.mismatches += 1;
                self.tell_all = true;
                self.mismatch_at.entry(index).or_insert_with(Instant::now);
            }
            Action::Blame {
                index,
                nodes,
                objects,
            } => self.blame(index, &nodes, &objects),
            Action::Repaired {
                index,
                object,
                was,
                is,
                passive,
                source,
            } => {
                // The session of an origin that was a member at that recovery, and is none any more: the others have forgotten it since.
                self.keep_sessions();
                self.repaired(
                    index,
                    object,
                    was.as_deref(),
                    is.as_deref(),
                    passive,
                    source,
                );
            }
            Action::Refresh(object, digest) => {
                let name = self.name(object, None);
                if steadfast_crosscheck::Objects::intact(&self.store, object) {
                    return;
                }
                refresh(&mut self.store, object, digest);
                self.say(
                    &format!("replica {}: {name} did not fit the digest stored with it, and is what was voted for; it is stored anew", self.slot),
                    &News::Refreshed { replica: self.slot, object: name },
                );
            }
            // What it held back is executed in the same turn: here, an entry may be in the middle of its own.
            Action::Resume(index) => {
                self.held.remove(&index);
                self.recovering.remove(&index);
            }
            Action::Stuck(index, objects) => {
                let names: Vec<String> = objects.iter().map(|id| self.name(*id, None)).collect();
                self.say(
                    &format!(
                        "replica {}: no majority for {} at entry {index}: requests for them wait",
                        self.slot,
                        names.join(", ")
                    ),
                    &News::Stuck {
                        replica: self.slot,
                        entry: index.0,
                        objects: names,
                    },
                );
            }
            Action::Replace(node, why) => {
                let slot = self
                    .members
                    .get(&node)
                    .map_or(self.slot, |member| member.slot);
                self.say(
                    &format!("replica {slot} is to be replaced: {why}"),
                    &News::Replace {
                        replica: slot,
                        why: why.to_string(),
                    },
                );
                // Its place is taken by a fresh process; what this one holds cannot be trusted.
                if node == self.me {
                    crate::say::exit(steadfast_contract::exit::Own::Mismatch);
                }
            }
        }
    }

    /// Lets replies go, if they are still what was voted for.
    fn release(&mut self, index: Index, voted: Vec<(Option<Vec<u8>>, Digest)>) {
        let Some(out) = self.out.get_mut(&index) else {
            return;
        };
        let groups = std::mem::take(&mut out.groups);
        if groups.is_empty() {
            return;
        }
        let replies: Vec<Vec<u8>> = voted
            .iter()
            .enumerate()
            .map(|(k, (reply, _))| {
                reply
                    .clone()
                    .or_else(|| out.replies.get(k).cloned())
                    .unwrap_or_default()
            })
            .collect();
        // Between its vote and the socket a reply is only bytes in memory.
        let right = replies
            .iter()
            .zip(&voted)
            .all(|(reply, (_, digest))| Digest::of(reply) == *digest);
        if right {
            let mut replies: Vec<Reply> = replies
                .into_iter()
                .zip(&voted)
                .map(|(bytes, (_, digest))| Reply {
                    bytes,
                    voted: Some(*digest),
                    strike: None,
                })
                .collect();
            if let Some(reply) = replies.iter_mut().find(|reply| !reply.bytes.is_empty()) {
                reply.strike = self.struck.bit(Passing::Reply);
            }
            deliver(groups, Ok(replies));
        } else {
            self.counts.refused += 1;
            deliver(groups, Err("a reply was corrupted after its vote"));
        }
    }

    pub(super) fn name(&self, id: ObjectId, packed: Option<&[u8]>) -> String {
        if id == store::head_id() {
            return "log:head".to_owned();
        }
        if let Some(node) = self
            .members
            .keys()
            .find(|node| store::session_id(node.0) == id)
        {
            return format!("session:{node}");
        }
        let own = steadfast_crosscheck::Objects::pack(&self.store, id);
        match packed.or(own.as_deref()).and_then(store::key_in) {
            Some(key) => crate::once::name(&key).unwrap_or_else(|| format!("item:{key}")),
            None => format!("object:{id}"),
        }
    }

    fn blame(&mut self, index: Index, nodes: &[Node], objects: &[ObjectId]) {
        let slots: Vec<u64> = nodes
            .iter()
            .filter_map(|node| self.members.get(node))
            .map(|member| member.slot)
            .collect();
        let names: Vec<String> = objects.iter().map(|id| self.name(*id, None)).collect();
        if let Some(verify) = &mut self.verify
            && verify.indexes.contains(&index)
        {
            for name in &names {
                verify.found.push(match slots.as_slice() {
                    // No f+1 have the same: the recovery decides which of them are wrong.
                    [] => format!("{name}, of which no majority has the same"),
                    [slot] => format!("replica {slot} {name}"),
                    slots => format!("replicas {slots:?} {name}"),
                });
            }
        }
        let scrub = self.scrubs.contains(&index);
        if scrub {
            self.counts.scrub_found += objects.len() as u64;
        }
        // Everybody knows; one says it: the first of those that are right.
        let speaks = self.members.keys().find(|node| !nodes.contains(node)) == Some(&self.me);
        if self.json && speaks {
            self.say(
                "",
                &News::Mismatch {
                    entry: index.0,
                    wrong: slots,
                    objects: names,
                    scrub,
                },
            );
        }
    }

    pub(super) fn corrupt(&mut self, index: Index, id: ObjectId) {
        self.counts.local += 1;
        let name = self.name(id, None);
        self.say(
            &format!(
                "replica {} found {name} changed while nobody used it, at entry {index}",
                self.slot
            ),
            &News::Corrupt {
                replica: self.slot,
                entry: index.0,
                object: name,
            },
        );
    }

    /// One line for one repair: what a person has to know to look for the hardware behind it.
    fn repaired(
        &mut self,
        index: Index,
        id: ObjectId,
        was: Option<&[u8]>,
        is: Option<&[u8]>,
        passive: bool,
        source: Node,
    ) {
        self.counts.repairs += 1;
        let (cause, ordered) = self
            .recovering
            .get(&index)
            .copied()
            .unwrap_or((index, Instant::now()));
        let since = self.mismatch_at.get(&cause).copied().unwrap_or(ordered);
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let took_us = us(since.elapsed());
        // From the mismatch to the recovery's place in the log, and from there to the right bytes.
        let ordered_us = us(ordered.saturating_duration_since(since));
        let moved_us = us(ordered.elapsed());
        self.counts.passive += u64::from(passive);
        let cpu = rustix::thread::sched_getcpu();
        let source = self
            .members
            .get(&source)
            .map_or(source.0, |member| member.slot);
        let name = self.name(id, is.or(was));
        let kind = if passive { "at rest" } else { "while in use" };
        let at_rest = self.at_rest.remove(&id).filter(|_| passive);
        let flip = at_rest.and_then(store::AtRest::flip);
        let (what, flipped) = match flip {
            // What it was before requests made something else of it.
            Some((place, bit)) => self.one_bit(&place, bit),
            None => self.difference(id, &name, was, is),
        };
        if let Some(verify) = &mut self.verify {
            verify.repaired += 1;
        }
        if self.json {
            let event = News::Repaired(news::Repaired {
                replica: self.slot,
                object: name,
                entry: cause.0,
                passive,
                cpu,
                took_us,
                ordered_us,
                moved_us,
                source,
                flipped,
            });
            return self.say("", &event);
        }
        let line = format!(
            "replica {} object {name}: {what} ({kind}), on CPU {cpu}; repaired from replica {source} in {took_us} µs, entry {cause}",
            self.slot
        );
        self.repaired.push(Repaired {
            index,
            passive,
            name,
            line,
        });
    }

    fn one_bit(&mut self, place: &store::Place, bit: u32) -> (String, Option<Flipped>) {
        let (field, byte, bits) = (place.field, place.byte, 1);
        self.counts.single_bit += 1;
        let flipped = Flipped {
            field,
            byte,
            bit,
            xor: 1 << bit,
            bits,
        };
        let what = format!("{field} byte {byte} bit {bit} had flipped");
        (what, Some(flipped))
    }

    /// What differs between the bytes that were wrong and those that are right.
    fn difference(
        &mut self,
        id: ObjectId,
        name: &str,
        was: Option<&[u8]>,
        is: Option<&[u8]>,
    ) -> (String, Option<Flipped>) {
        let what = match (was, is) {
            (Some(was), Some(is)) if was.len() == is.len() => {
                let wrong: Vec<usize> = (0..was.len()).filter(|at| was[*at] != is[*at]).collect();
                let bits: u32 = wrong
                    .iter()
                    .map(|at| (was[*at] ^ is[*at]).count_ones())
                    .sum();
                let at = wrong.first().copied().unwrap_or(0);
                let place = match name.split_once(':') {
                    Some(("log", _)) => store::place_in_head(at),
                    Some(("session", _)) => store::Place {
                        field: "number",
                        byte: at,
                    },
                    _ => store::place(is, at),
                };
                let xor = was.get(at).zip(is.get(at)).map_or(0, |(a, b)| a ^ b);
                if bits == 1 {
                    return self.one_bit(&place, xor.trailing_zeros());
                }
                let flipped = Flipped {
                    field: place.field,
                    byte: place.byte,
                    bit: xor.trailing_zeros(),
                    xor,
                    bits,
                };
                let what = format!(
                    "{bits} bits in {} bytes were wrong, the first in {} byte {}, XOR {xor:#04x}",
                    wrong.len(),
                    place.field,
                    place.byte
                );
                return (what, Some(flipped));
            }
            (Some(was), None) if store::has_moved(was, id) => {
                "its key had changed, so nobody found it".to_owned()
            }
            (Some(_), None) => "existed and should not".to_owned(),
            (None, Some(_)) => "was missing".to_owned(),
            _ => "had another length".to_owned(),
        };
        (what, None)
    }

    pub(super) fn say(&self, text: &str, news: &News) {
        crate::say::line(self.json, text, news);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_line_whatever_was_made_of_what_it_struck() {
        let repaired = |index, passive, name: &str| Repaired {
            index: Index(index),
            passive,
            name: name.to_owned(),
            line: format!("{name} was wrong"),
        };
        let told = told(vec![
            repaired(4, false, "log:head"),
            repaired(4, true, "once:7"),
            repaired(4, false, "item:a"),
            repaired(5, true, "item:b"),
            // Nobody can tell which of these was the cause.
            repaired(6, false, "item:c"),
            repaired(6, false, "log:head"),
            repaired(7, true, "item:d"),
            repaired(7, true, "item:e"),
        ]);
        let lines = [
            "once:7 was wrong; also what was made of it: log:head, item:a",
            "item:b was wrong",
            "item:c was wrong",
            "log:head was wrong",
            "item:d was wrong",
            "item:e was wrong",
        ];
        assert_eq!(told, lines);
    }
}
