//! A strike: one bit that changes behind the back of every check. It hits an object's stored bytes, or the next message or queued thing of
//! a kind.
//!
//! ```text
//! replica=1 object=item:a byte=2 bit=3
//! replica=1 object=item:a field=cas byte=0 bit=0
//! replica=1 object=log:head byte=24 bit=0
//! replica=1 message=reply bit=77
//! replica=1 queue=log bit=5
//! ```
//!
//! Not covered: when. An object is struck as soon as the replica hears of it, a message as the next of its kind leaves.

use std::collections::BTreeMap;

/// One strike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strike {
    pub(crate) replica: u64,
    pub(crate) target: Target,
}

/// What is struck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Item {
        key: String,
        field: String,
        byte: usize,
        bit: u8,
    },
    /// The head of the log, as it is packed.
    Head { byte: usize, bit: u8 },
    /// The next of its kind.
    Next { kind: Kind, bit: usize },
}

/// What is struck as it passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A reply, between its last check and the socket.
    Reply,
    /// The last digest of a CHECK: a false alarm, since nothing else is wrong.
    Check,
    /// The first object of a REPAIR.
    Repair,
    /// The order to compare objects, on its way into the log, behind its check.
    Recover,
    /// Requests of clients, on their way into the log, behind their check.
    Entry,
    /// The same, and the copy that is kept until they come out of it.
    Submit,
    /// What has come out of the log and was not executed yet.
    Log,
    /// The first request of an entry that is being executed: its value, or its key. It stands for a thread that computes wrongly once.
    Run,
    /// A reply that waits for its vote.
    Replies,
    /// The number of the recovery that holds requests back: its end is the end of another one.
    Held,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Reply,
        Self::Check,
        Self::Repair,
        Self::Recover,
        Self::Entry,
        Self::Submit,
        Self::Log,
        Self::Run,
        Self::Replies,
        Self::Held,
    ];

    /// The clause that names it.
    const fn clause(self) -> (&'static str, &'static str) {
        match self {
            Self::Reply => ("message", "reply"),
            Self::Check => ("message", "check"),
            Self::Repair => ("message", "repair"),
            Self::Recover => ("message", "recover"),
            Self::Entry => ("message", "entry"),
            Self::Submit => ("queue", "submit"),
            Self::Log => ("queue", "log"),
            Self::Run => ("queue", "run"),
            Self::Replies => ("queue", "replies"),
            Self::Held => ("queue", "held"),
        }
    }

    /// Whether there is nothing of the kind where replicas do not vote.
    pub(crate) const fn needs_votes(self) -> bool {
        !matches!(self, Self::Entry | Self::Submit | Self::Log | Self::Run)
    }

    /// The words that a clause takes, for an error.
    fn words(name: &str) -> String {
        let clauses = Self::ALL.map(Self::clause);
        let words: Vec<&str> = clauses
            .iter()
            .filter(|(n, _)| *n == name)
            .map(|(_, word)| *word)
            .collect();
        words.join(", ")
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Item {
                key,
                field,
                byte,
                bit,
            } => {
                let name = crate::once::name(key).unwrap_or_else(|| format!("item:{key}"));
                write!(f, "{name} {field} byte {byte} bit {bit}")
            }
            Self::Head { byte, bit } => {
                let place = crate::store::place_in_head(*byte);
                write!(f, "log:head {} byte {} bit {bit}", place.field, place.byte)
            }
            Self::Next { kind, bit } => {
                let (name, word) = kind.clause();
                write!(f, "the next {name}={word}, bit {bit}")
            }
        }
    }
}

const CLAUSES: [&str; 7] = [
    "replica", "object", "message", "queue", "field", "byte", "bit",
];
const FIELDS: [&str; 8] = [
    "value",
    "key",
    "flags",
    "expires",
    "cas",
    "key length",
    "marks",
    "value length",
];

impl Strike {
    /// Reads a line, for a group of `size`.
    pub(crate) fn parse(line: &str, size: usize) -> Result<Self, String> {
        let example = "fix: replica=1 object=item:KEY byte=2 bit=3";
        let mut clauses: BTreeMap<&str, &str> = BTreeMap::new();
        for clause in line.split_whitespace() {
            let Some((name, value)) = clause.split_once('=') else {
                return Err(format!(
                    "a strike is made of NAME=VALUE, found '{clause}'; {example}"
                ));
            };
            if !CLAUSES.contains(&name) {
                return Err(format!(
                    "a strike takes {}, found '{name}'; {example}",
                    CLAUSES.join(", ")
                ));
            }
            if clauses.insert(name, value).is_some() {
                return Err(format!("{name}= is given once, found twice; {example}"));
            }
        }
        let needed = |name: &str| {
            clauses
                .get(name)
                .copied()
                .ok_or_else(|| format!("a strike needs {name}=, found none; {example}"))
        };
        let number = |name: &str, below: usize| {
            let value = needed(name)?;
            match value.parse::<usize>() {
                Ok(number) if number < below => Ok(number),
                _ => Err(format!(
                    "{name}= must be a number below {below}, found '{value}'; {example}"
                )),
            }
        };
        let replica = number("replica", size)? as u64;
        for name in ["message", "queue"] {
            let Some(word) = clauses.get(name) else {
                continue;
            };
            let kind = Kind::ALL
                .into_iter()
                .find(|kind| kind.clause() == (name, word));
            let Some(kind) = kind.filter(|_| clauses.len() == 3) else {
                return Err(format!(
                    "{name}= is one of {}, and takes replica= and bit= beside it; fix: replica=1 {name}={} bit=77",
                    Kind::words(name),
                    Kind::words(name).split(',').next().unwrap_or_default(),
                ));
            };
            let bit = number("bit", if kind == Kind::Check { 128 } else { 1 << 24 })?;
            return Ok(Self {
                replica,
                target: Target::Next { kind, bit },
            });
        }
        let object = needed("object")?;
        let bit = u8::try_from(number("bit", 8)?).unwrap_or(0);
        if object == "log:head" {
            if clauses.contains_key("field") {
                return Err(
                    "field= is of items: log:head takes byte= alone, 0 to 55; fix: replica=1 object=log:head byte=24 bit=0"
                        .to_owned(),
                );
            }
            let byte = number("byte", crate::store::HEAD_LENGTH)?;
            let target = Target::Head { byte, bit };
            return Ok(Self { replica, target });
        }
        let byte = number("byte", 1 << 21)?;
        let key = match object.split_once(':') {
            Some(("item", key)) if !key.is_empty() => key.to_owned(),
            Some(("client", name)) if !name.is_empty() => {
                String::from_utf8(crate::once::key(name)).unwrap_or_default()
            }
            _ => {
                return Err(format!(
                    "object= must be item:KEY, client:NAME for the replies kept of a client, or log:head, found '{object}'; {example}"
                ));
            }
        };
        let word = clauses.get("field").copied().unwrap_or("value");
        // A clause has no space.
        let field = FIELDS.iter().find(|field| field.replace(' ', "-") == word);
        let Some(field) = field else {
            return Err(format!(
                "field= must be one of {}, found '{word}'; {example}",
                FIELDS.join(", ").replace(' ', "-").replace(",-", ", ")
            ));
        };
        Ok(Self {
            replica,
            target: Target::Item {
                key,
                field: (*field).to_owned(),
                byte,
                bit,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where() {
        let strike = Strike::parse("replica=1 object=item:a byte=2 bit=3", 3).unwrap();
        assert_eq!(
            (strike.replica, strike.target.to_string().as_str()),
            (1, "item:a value byte 2 bit 3")
        );
        let strike = Strike::parse("replica=1 object=item:a field=key-length byte=0 bit=3", 3);
        assert_eq!(
            strike.unwrap().target.to_string(),
            "item:a key length byte 0 bit 3"
        );
        for kind in Kind::ALL {
            let (name, word) = kind.clause();
            let strike = Strike::parse(&format!("replica=2 {name}={word} bit=77"), 3).unwrap();
            assert_eq!(strike.target, Target::Next { kind, bit: 77 });
        }
    }

    #[test]
    fn a_wrong_line_says_what_is_needed() {
        for (line, word) in [
            ("", "needs replica="),
            ("replica=3 object=item:a byte=2 bit=3", "below 3"),
            ("replica=1 object=a byte=2 bit=3", "item:KEY"),
            ("replica=1 object=client: byte=2 bit=3", "client:NAME"),
            ("replica=1 object=item:a byte=2 bit=8", "below 8"),
            ("replica=1 object=item:a byte=2 bit=3 bit=4", "found twice"),
            ("replica=1 object=item:a field=age byte=2 bit=3", "field="),
            ("replica 1", "NAME=VALUE"),
            ("replica=1 message=fetch bit=1", "message= is one of reply"),
            ("replica=1 queue=reply bit=1", "queue= is one of submit"),
            ("replica=1 message=check bit=128", "below 128"),
            ("replica=1 message=reply", "message= is one of"),
            (
                "replica=1 message=reply object=item:a bit=1",
                "message= is one of",
            ),
            (
                "replica=1 message=entry queue=log bit=1",
                "message= is one of",
            ),
            ("replica=1 object=log:head byte=56 bit=0", "below 56"),
            (
                "replica=1 object=log:head field=cas byte=0 bit=0",
                "byte= alone",
            ),
            ("whom=1", "found 'whom'"),
        ] {
            let why = Strike::parse(line, 3).unwrap_err();
            assert!(why.contains(word) && why.contains("fix:"), "{line}: {why}");
        }
    }
}
