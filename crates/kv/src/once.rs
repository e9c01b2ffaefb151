//! Requests that are executed once, however often they are sent: the replies that are kept for those who ask again.
//!
//! A client names itself and numbers its requests in the opaque of a meta command, `Oonce:CLIENT:NUMBER`. The number may come again, at any
//! replica, after the one that was asked has died: the reply is the first one's.
//!
//! Clients live in [`SLOTS`] slots of [`WAYS`] each. A slot is an item under a key that no client can name, so it is voted on, repaired,
//! scrubbed and handed on as every item is, and no list of all clients is needed.
//!
//! Invariants
//!  1. Everything here is a function of the log.
//!  2. A number is executed at most once while its client is kept: what has left the window is refused, and never executed again.
//!  3. A client is kept for [`KEEP_MS`] after its last request; a new one that finds no place is refused.
//!
//! Not covered: a client that asks again later than that; commands of the classic protocol, which have no opaque.

use serde::{Deserialize, Serialize};
use steadfast_digest::vote128;

use crate::request::{Form, KEY_MAX, Request};

/// Slots of clients.
const SLOTS: u64 = 4096;
/// Clients of one slot.
const WAYS: usize = 4;
/// Replies that are kept of one client: so many requests it may have under way.
const WINDOW: usize = 16;
/// How long a quiet client is kept at least, in the leader's time.
const KEEP_MS: u64 = 60_000;
/// Longest name of a client.
const NAME_MAX: usize = 20;
/// Flags of a numbered request: they decide how long the kept reply is.
const FLAGS_MAX: usize = 16;
/// Longest reply that is kept: each flag of the request is answered by the key at most.
pub(crate) const REPLY_MAX: usize = 64 + FLAGS_MAX * (KEY_MAX + 2);
/// What the opaque begins with.
const OPAQUE: &str = "Oonce:";
/// What the key of a slot begins with: a byte that no client's key has.
const KEY: &str = "\0once ";

/// Who asks, and which of its requests this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Once<'a> {
    pub(crate) client: &'a str,
    pub(crate) number: u64,
}

/// The number in a list of flags, if it has one; an error if it has one that cannot be read.
pub(crate) fn read(flags: &[String]) -> Result<Option<Once<'_>>, &'static str> {
    let Some(opaque) = flags.iter().find_map(|flag| flag.strip_prefix(OPAQUE)) else {
        return Ok(None);
    };
    let is_long = |flag: &String| flag.len() > KEY_MAX;
    if flags.len() > FLAGS_MAX || flags.iter().any(is_long) {
        return Err("CLIENT_ERROR a numbered request has at most 16 flags, of 250 bytes each");
    }
    let is_name = |client: &str| {
        (1..=NAME_MAX).contains(&client.len())
            && client
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    opaque
        .rsplit_once(':')
        .filter(|(client, _)| is_name(client))
        .and_then(|(client, number)| {
            let number = number.parse().ok().filter(|number| *number > 0)?;
            Some(Some(Once { client, number }))
        })
        .ok_or("CLIENT_ERROR a numbered request is Oonce:CLIENT:NUMBER, 1 to 20 letters, digits, . _ -, and a number from 1 on")
}

/// The number of a request that changes something. One that only reads may be repeated as it is.
pub(crate) fn of(request: &Request) -> Option<Once<'_>> {
    let form = match request {
        Request::Store { form, .. }
        | Request::Delete { form, .. }
        | Request::Stale { form, .. }
        | Request::TooLarge { form, .. }
        | Request::Count { form, .. } => form,
        Request::MetaGet { form, .. } if !request.reads() => form,
        _ => return None,
    };
    match form {
        Form::Meta { flags, .. } => read(flags).ok().flatten(),
        _ => None,
    }
}

/// The key of the slot that a client is in.
pub(crate) fn key(client: &str) -> Vec<u8> {
    slot_key(hash(client.as_bytes()) % SLOTS)
}

/// The keys of all slots.
pub(crate) fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..SLOTS).map(slot_key)
}

fn slot_key(slot: u64) -> Vec<u8> {
    format!("{KEY}{slot}").into_bytes()
}

/// Whether a key is of the kind that no client may name.
pub(crate) fn is_slot(key: &[u8]) -> bool {
    key.starts_with(KEY.as_bytes())
}

/// What a slot is called in reports; nothing for the key of an item.
pub(crate) fn name(key: &str) -> Option<String> {
    key.strip_prefix(KEY).map(|slot| format!("once:{slot}"))
}

fn hash(bytes: &[u8]) -> u64 {
    u64::try_from(vote128(bytes) & u128::from(u64::MAX)).unwrap_or(0)
}

/// What tells one request from another.
pub(crate) fn print(request: &Request) -> u64 {
    postcard::to_stdvec(request).map_or(0, |bytes| hash(&bytes))
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Reply {
    number: u64,
    print: u64,
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Client {
    name: String,
    /// The highest number that has left the window.
    floor: u64,
    used_ms: u64,
    replies: Vec<Reply>,
}

/// The clients of one slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slot(Vec<Client>);

/// What is to be done with a numbered request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was executed: its reply.
    Known(Vec<u8>),
    /// It was not: execute it, and keep its reply.
    New,
    /// Neither is certain, or there is no place: an error.
    Refused(String),
}

impl Slot {
    /// Bytes that are no slot, since they were hit, read as an empty one.
    pub(crate) fn unpack(bytes: &[u8]) -> Self {
        postcard::from_bytes(bytes).unwrap_or_default()
    }

    pub(crate) fn pack(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    pub(crate) fn look(&self, once: Once<'_>, print: u64, now_ms: u64) -> Verdict {
        let Once {
            client: name,
            number,
        } = once;
        let Some(client) = self.0.iter().find(|client| client.name == name) else {
            let is_free = |client: &Client| client.used_ms.saturating_add(KEEP_MS) <= now_ms;
            return if self.0.len() < WAYS || self.0.iter().any(is_free) {
                Verdict::New
            } else {
                Verdict::Refused(
                    "SERVER_ERROR no place for another client with numbers: try again in a minute, or under another name"
                        .to_owned(),
                )
            };
        };
        match client.replies.iter().find(|reply| reply.number == number) {
            Some(reply) if reply.print == print => Verdict::Known(reply.bytes.clone()),
            Some(_) => Verdict::Refused(format!(
                "CLIENT_ERROR number {number} of client {name} was another request"
            )),
            None if number <= client.floor => Verdict::Refused(format!(
                "CLIENT_ERROR number {number} of client {name} is older than the last {WINDOW} that are kept: nobody knows its reply"
            )),
            None => Verdict::New,
        }
    }

    /// Keeps the reply of a request that was executed.
    pub(crate) fn keep(&mut self, once: Once<'_>, print: u64, now_ms: u64, reply: &[u8]) {
        let at = match self.0.iter().position(|client| client.name == once.client) {
            Some(at) => at,
            None => {
                if self.0.len() >= WAYS {
                    let oldest = (0..self.0.len()).min_by_key(|at| self.0[*at].used_ms);
                    self.0.remove(oldest.unwrap_or(0));
                }
                self.0.push(Client {
                    name: once.client.to_owned(),
                    floor: 0,
                    used_ms: now_ms,
                    replies: Vec::new(),
                });
                self.0.len() - 1
            }
        };
        let client = &mut self.0[at];
        client.used_ms = now_ms;
        client.replies.push(Reply {
            number: once.number,
            print,
            bytes: reply.to_vec(),
        });
        client.replies.sort_unstable_by_key(|reply| reply.number);
        if client.replies.len() > WINDOW {
            let gone = client.replies.remove(0);
            client.floor = client.floor.max(gone.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(client: &str, number: u64) -> Once<'_> {
        Once { client, number }
    }

    #[test]
    fn a_number_is_read_or_refused_and_never_passed_over() {
        let flags = |opaque: &str| vec!["v".to_owned(), opaque.to_owned()];
        let good = flags("Oonce:web-1.a:17");
        assert_eq!(read(&good), Ok(Some(once("web-1.a", 17))));
        assert_eq!(read(&flags("O17")), Ok(None));
        for bad in [
            "Oonce:",
            "Oonce:a",
            "Oonce:a:",
            "Oonce:a:0",
            "Oonce:a:x",
            "Oonce::1",
            "Oonce:a b:1",
            "Oonce:aaaaaaaaaaaaaaaaaaaaa:1",
        ] {
            assert!(read(&flags(bad)).is_err(), "{bad}");
        }
        let mut many = flags("Oonce:a:1");
        many.resize(20, "k".to_owned());
        assert!(read(&many).is_err());
    }

    #[test]
    fn a_window_gives_the_first_reply_and_refuses_what_it_does_not_know() {
        let mut slot = Slot::default();
        assert_eq!(slot.look(once("a", 1), 7, 0), Verdict::New);
        for number in 1..=20 {
            slot.keep(
                once("a", number),
                number,
                0,
                format!("reply {number}").as_bytes(),
            );
        }
        assert_eq!(
            slot.look(once("a", 20), 20, 0),
            Verdict::Known(b"reply 20".to_vec())
        );
        assert_eq!(
            slot.look(once("a", 5), 5, 0),
            Verdict::Known(b"reply 5".to_vec())
        );
        assert!(
            matches!(slot.look(once("a", 4), 4, 0), Verdict::Refused(why) if why.contains("older"))
        );
        assert!(
            matches!(slot.look(once("a", 20), 21, 0), Verdict::Refused(why) if why.contains("another request"))
        );
        assert_eq!(slot.look(once("a", 21), 21, 0), Verdict::New);
        assert_eq!(slot.look(once("b", 4), 4, 0), Verdict::New);
        assert_eq!(Slot::unpack(&slot.pack()), slot);
    }

    #[test]
    fn a_number_that_was_passed_over_is_new_until_the_window_has_left_it() {
        let mut slot = Slot::default();
        slot.keep(once("a", 6), 6, 0, b"six");
        assert_eq!(slot.look(once("a", 5), 5, 0), Verdict::New);
        slot.keep(once("a", 5), 5, 0, b"five");
        for number in 7..=21 {
            slot.keep(once("a", number), number, 0, b"");
        }
        assert!(matches!(slot.look(once("a", 5), 5, 0), Verdict::Refused(_)));
        assert!(matches!(slot.look(once("a", 3), 3, 0), Verdict::Refused(_)));
        assert_eq!(
            slot.look(once("a", 6), 6, 0),
            Verdict::Known(b"six".to_vec())
        );
    }

    #[test]
    fn a_quiet_client_makes_room_after_its_time_and_not_before() {
        let mut slot = Slot::default();
        for (at, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            slot.keep(once(name, 1), 1, at as u64 * 1000, b"r");
        }
        assert!(
            matches!(slot.look(once("e", 1), 1, KEEP_MS - 1), Verdict::Refused(why) if why.contains("no place"))
        );
        assert_eq!(slot.look(once("e", 1), 1, KEEP_MS), Verdict::New);
        slot.keep(once("e", 1), 1, KEEP_MS, b"r");
        assert_eq!(
            slot.look(once("b", 1), 1, KEEP_MS),
            Verdict::Known(b"r".to_vec())
        );
        assert!(matches!(
            slot.look(once("a", 1), 1, KEEP_MS),
            Verdict::Refused(_)
        ));
    }

    #[test]
    fn bytes_that_were_hit_are_no_slot_or_another_one_and_never_a_panic() {
        let mut slot = Slot::default();
        slot.keep(once("a", 1), 1, 0, b"reply");
        let bytes = slot.pack();
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Slot::unpack(&wrong), slot, "bit {bit}");
        }
    }
}
