//! `steadfast kv coverage`: what of a replica is voted on, field by field, and what is not, and why.
//!
//! Invariant: the tests hold the list against the code: each field of an item as reports name it, each field of the head.
//!
//! Not covered: fields of other services. [`steadfast_crosscheck::Critical::FIELDS`] lists those.

use serde_json::json;

/// Part of a replica.
struct Part {
    kind: &'static str,
    field: &'static str,
    /// How it is protected, or why it is not.
    how: &'static str,
    voted: bool,
}

const ITEM: &str = "voted on at each access and scrub; its digest is compared at rest";
const HEAD: &str = "voted on at each entry";

const fn voted(kind: &'static str, field: &'static str, how: &'static str) -> Part {
    Part {
        kind,
        field,
        how,
        voted: true,
    }
}

const fn open(kind: &'static str, field: &'static str, how: &'static str) -> Part {
    Part {
        kind,
        field,
        how,
        voted: false,
    }
}

const PARTS: [Part; 31] = [
    voted("item", "flags", ITEM),
    voted("item", "expires", ITEM),
    voted("item", "cas", ITEM),
    voted("item", "key length", ITEM),
    voted("item", "marks", ITEM),
    voted("item", "value length", ITEM),
    voted("item", "key", ITEM),
    voted("item", "value", ITEM),
    voted("once", "replies kept of clients", ITEM),
    voted("head", "chain", HEAD),
    voted("head", "now_ms", HEAD),
    voted("head", "cas", HEAD),
    voted("head", "flushed", HEAD),
    voted("head", "flush_at_ms", HEAD),
    voted(
        "session",
        "last submission of a replica",
        "voted on at each of its entries",
    ),
    voted(
        "reply",
        "bytes",
        "voted on before they leave; compared once more behind the vote",
    ),
    voted(
        "entry",
        "bytes",
        "CRC from their origin on; the chain of the log is part of every vote",
    ),
    voted(
        "message",
        "CHECK, DETAIL, REPORT",
        "CRC on the way; a list is told again where votes differ",
    ),
    voted(
        "message",
        "REPAIR",
        "taken only with the digest that won the vote",
    ),
    open(
        "shard",
        "table of items",
        "an item that is lost is voted on when it is asked for; the table itself has no digest",
    ),
    open(
        "weight",
        "of all items",
        "follows from them; kept twice, and counted anew where the two differ",
    ),
    open(
        "digest",
        "stored beside an item",
        "one that is hit marks the item as changed at rest, until a recovery of it; the vote is on the bytes",
    ),
    open(
        "shard",
        "list of the oldest items",
        "who goes for want of room is voted on as an object that is gone; the list itself has no digest",
    ),
    open(
        "request",
        "from the socket to its entry",
        "checked with the envelope alone: a stock client sends nothing to check it by",
    ),
    open(
        "reply",
        "from its last check to the socket",
        "checked with the envelope alone",
    ),
    open(
        "vote",
        "heard digests, lists, timers",
        "of one replica: what is hit is asked again, or outvoted by the others",
    ),
    open(
        "log",
        "entries kept for replicas that are late",
        "a wrong one differs in the chain of the replica that gets it",
    ),
    open(
        "group",
        "members, leader, term",
        "openraft's: one that is wrong may stop the service, and changes no reply",
    ),
    open(
        "connection",
        "buffers, position",
        "of one replica: answers for itself, as in the paper",
    ),
    open(
        "statistics",
        "counts, uptime",
        "of one replica: answers for itself, as in the paper",
    ),
    open(
        "reads",
        "what local reads stand on",
        "head and items are compared with voted digests; the list of open objects is not",
    ),
];

/// The list as JSON, one object.
pub(crate) fn as_json() -> String {
    let parts: Vec<_> = PARTS
        .iter()
        .map(|part| {
            json!({"type": part.kind, "field": part.field, "voted": part.voted, "how": part.how})
        })
        .collect();
    json!({ "parts": parts }).to_string()
}

/// The list for a person: what is voted on, then the rest.
pub(crate) fn as_text() -> String {
    let mut out = String::new();
    for (title, voted) in [("voted on", true), ("not voted on", false)] {
        out += &format!("{title}\n");
        for part in PARTS.iter().filter(|part| part.voted == voted) {
            out += &format!("  {:<10}  {:<40}  {}\n", part.kind, part.field, part.how);
        }
    }
    let count = PARTS.iter().filter(|part| part.voted).count();
    out + &format!("{count} of {} parts are voted on", PARTS.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Head, place};

    fn listed(kind: &str) -> Vec<&'static str> {
        PARTS
            .iter()
            .filter(|part| part.kind == kind && part.voted)
            .map(|part| part.field)
            .collect()
    }

    #[test]
    fn every_byte_of_an_item_belongs_to_a_field_of_the_list_and_none_is_missing() {
        // A header, a key of two bytes, a value of three.
        let mut packed = vec![0; 26];
        packed[20] = 2;
        packed[22] = 3;
        packed.extend_from_slice(b"kkvvv");
        let mut found: Vec<&str> = (0..packed.len())
            .map(|at| place(&packed, at).field)
            .collect();
        found.dedup();
        assert_eq!(found, listed("item"));
    }

    #[test]
    fn every_field_of_the_head_is_listed() {
        // A new field does not compile here until it is named.
        let Head {
            chain: _,
            now_ms: _,
            cas: _,
            flushed: _,
            flush_at_ms: _,
        } = Head::default();
        let fields = ["chain", "now_ms", "cas", "flushed", "flush_at_ms"];
        assert_eq!(listed("head"), fields);
    }

    #[test]
    fn what_is_not_voted_on_has_a_reason_and_lines_fit_a_screen() {
        assert!(PARTS.iter().all(|part| part.how.len() > 10));
        assert!(
            as_text().lines().all(|line| line.len() <= 160),
            "{}",
            as_text()
        );
        assert!(as_json().contains(r#""voted":false"#));
    }
}
