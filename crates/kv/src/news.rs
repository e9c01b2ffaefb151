//! What `--json` prints: one object a line, the name of the event in `event`.
//!
//! docs/kv-events.schema.json is generated from this type, and a test holds the two together. Tests of whole groups hold each line that a
//! group prints against the schema.
//!
//! Invariants
//!  1. Every line is of this type; whoever reads one needs no other line to understand it.
//!  2. A place of a replica is from 0, and a duration says its unit in its name.
//!
//! Not covered: what `status`, `top`, `coverage` and `verify` print, which are answers and no events.

use serde::Serialize;

/// One event. Replicas are named by their place, from 0; an entry by its place in the log.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum News {
    /// All replicas of a `--local` group take requests.
    Ready {
        stage: String,
        /// Where clients reach each of them.
        clients: Vec<String>,
        /// Their processes.
        pids: Vec<Option<u32>>,
    },
    /// A process of a `--local` group had died, and a fresh one has its place.
    Replaced {
        replica: u64,
        pid: Option<u32>,
        /// From the death to its place in the group.
        took_ms: u64,
    },
    /// What was found in the directory of `--data` that had to be left out or made anew.
    Disk { replica: u64, found: String },
    /// This process belongs to its group.
    Member { replica: u64 },
    /// A fresh process was let in.
    Joined { replica: u64, took_ms: u64 },
    /// A process could not be let in.
    NotJoined { replica: u64, why: String },
    /// Replicas have computed something else than f+1 others. One of those that are right says it.
    Mismatch {
        entry: u64,
        /// Which; none where nobody has a majority.
        wrong: Vec<u64>,
        objects: Vec<String>,
        /// Whether the scrubber has found it.
        scrub: bool,
    },
    /// This replica found an object of its own changed while nobody used it.
    Corrupt {
        replica: u64,
        entry: u64,
        object: String,
    },
    /// An object of this replica was wrong and is right now.
    Repaired(Repaired),
    /// The digest beside an object had changed, the object not: it is stored anew.
    Refreshed { replica: u64, object: String },
    /// No vote and no evidence decides on these objects: requests for them wait.
    Stuck {
        replica: u64,
        entry: u64,
        objects: Vec<String>,
    },
    /// A fresh process has to take a replica's place.
    Replace { replica: u64, why: String },
    /// This replica has executed nothing for half its watchdog's time, and the others have.
    Waits(Standing),
    /// The same for all of that time: it ends.
    Stalled(Standing),
    /// A thread of this replica has taken no turn: it ends.
    Hung { replica: u64 },
    /// More than f replicas have begun anew: the group has lost its majority, and this replica ends.
    Lost { replica: u64, fresh: Vec<u64> },
    /// This replica ends.
    Ended { replica: u64, why: String },
}

/// A repair, and what a person has to know to look for the hardware behind it.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Repaired {
    pub(crate) replica: u64,
    pub(crate) object: String,
    /// At which entry it was found.
    pub(crate) entry: u64,
    /// It changed while nobody used it; else this replica has computed it wrongly.
    pub(crate) passive: bool,
    /// The CPU that the replica runs on now.
    pub(crate) cpu: usize,
    /// From the mismatch to the right bytes, and its two parts: until the recovery was ordered, and from there on.
    pub(crate) took_us: u64,
    pub(crate) ordered_us: u64,
    pub(crate) moved_us: u64,
    /// The replica that the right bytes are from.
    pub(crate) source: u64,
    /// What was wrong in its bytes, where both have as many of them.
    #[serde(flatten)]
    pub(crate) flipped: Option<Flipped>,
}

/// Bits that differ from the right ones.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Flipped {
    /// The part of the object with the first of them.
    pub(crate) field: &'static str,
    /// Its byte in that part.
    pub(crate) byte: usize,
    /// Its place in that byte.
    pub(crate) bit: u32,
    /// That byte as it was, XOR as it is.
    pub(crate) xor: u8,
    /// How many bits there are, in all bytes.
    pub(crate) bits: u32,
}

/// What a replica waits for that does not go on.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Standing {
    pub(crate) replica: u64,
    /// The next entry.
    pub(crate) entry: u64,
    pub(crate) waits_for: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = include_str!("../../../docs/kv-events.schema.json");
    const MANUAL: &str = include_str!("../../../docs/reference/events.md");

    #[test]
    fn the_published_schema_is_the_one_of_the_type() {
        let schema = schemars::schema_for!(News);
        let type_ = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("STEADFAST_BLESS").is_some() {
            let path = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../docs/kv-events.schema.json"
            );
            std::fs::write(path, type_).unwrap();
            return;
        }
        assert_eq!(
            type_, SCHEMA,
            "run this test with STEADFAST_BLESS=1 and look at the difference"
        );
    }

    fn validator() -> jsonschema::Validator {
        let schema = serde_json::from_str(SCHEMA).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    }

    fn repaired(flipped: Option<Flipped>) -> News {
        News::Repaired(Repaired {
            replica: 1,
            object: "item:a".to_owned(),
            entry: 3,
            passive: true,
            cpu: 0,
            took_us: 497,
            ordered_us: 274,
            moved_us: 223,
            source: 0,
            flipped,
        })
    }

    /// What groups print without a test that waits for it.
    fn samples() -> Vec<News> {
        let (replica, entry) = (1, 3);
        let standing = || Standing {
            replica,
            entry,
            waits_for: vec!["the repair of item:a".to_owned()],
        };
        vec![
            repaired(None),
            repaired(Some(Flipped {
                field: "value",
                byte: 2,
                bit: 3,
                xor: 8,
                bits: 1,
            })),
            News::Replaced {
                replica,
                pid: None,
                took_ms: 3,
            },
            News::NotJoined {
                replica,
                why: "no".to_owned(),
            },
            News::Waits(standing()),
            News::Stalled(standing()),
            News::Hung { replica },
            News::Lost {
                replica,
                fresh: vec![0, 2],
            },
        ]
    }

    #[test]
    fn events_fit_the_schema() {
        let validator = validator();
        for event in samples() {
            let line = serde_json::to_value(&event).unwrap();
            if let Err(why) = validator.validate(&line) {
                panic!("{line}: {why}");
            }
        }
    }

    #[test]
    fn the_schema_refuses_what_is_no_event() {
        let validator = validator();
        for line in [
            r#"{}"#,
            r#"{"event":"party"}"#,
            r#"{"event":"hung"}"#,
            r#"{"event":"hung","replica":-1}"#,
            r#"{"event":"stuck","replica":1,"entry":3,"objects":"item:a"}"#,
            r#"{"event":"repaired","replica":1,"object":"item:a"}"#,
        ] {
            let value = serde_json::from_str(line).unwrap();
            assert!(!validator.is_valid(&value), "{line}");
        }
    }

    #[test]
    fn the_manual_names_every_event() {
        let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
        let all = schema["oneOf"].as_array().unwrap();
        assert!(all.len() > 10);
        for event in all {
            let name = event["properties"]["event"]["const"].as_str().unwrap();
            assert!(MANUAL.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}
