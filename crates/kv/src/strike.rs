//! A strike: one bit of an object's stored bytes, changed behind the back of its digest, of a reply behind its last check, or of a digest that
//! is told to the others.
//!
//! ```text
//! replica=1 object=item:a byte=2 bit=3
//! replica=1 object=item:a field=cas byte=0 bit=0
//! replica=1 message=reply bit=77
//! replica=1 message=check bit=5
//! ```
//!
//! Not covered: when. A strike happens as soon as the replica hears of it, or to the next message that leaves it.

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
    /// The next reply that leaves, between its last check and the socket.
    Reply { bit: usize },
    /// The last digest of the next CHECK that leaves: a false alarm, since nothing else is wrong.
    Check { bit: usize },
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
            Self::Reply { bit } => write!(f, "the next reply, bit {bit}"),
            Self::Check { bit } => write!(f, "the next digest, bit {bit}"),
        }
    }
}

const FIELDS: [&str; 6] = ["value", "key", "flags", "expires", "cas", "value length"];

impl Strike {
    /// Reads a line, for a group of `size`.
    pub(crate) fn parse(line: &str, size: usize) -> Result<Self, String> {
        let example = "fix: replica=1 object=item:KEY byte=2 bit=3";
        let mut replica = None;
        let mut object = None;
        let mut message = None;
        let mut field = None;
        let mut byte = None;
        let mut bit = None;
        for clause in line.split_whitespace() {
            let Some((name, value)) = clause.split_once('=') else {
                return Err(format!(
                    "a strike is made of NAME=VALUE, found '{clause}'; {example}"
                ));
            };
            let slot = match name {
                "replica" => &mut replica,
                "object" => &mut object,
                "message" => &mut message,
                "field" => &mut field,
                "byte" => &mut byte,
                "bit" => &mut bit,
                _ => {
                    return Err(format!(
                        "a strike takes replica, object, message, field, byte and bit, found '{name}'; {example}"
                    ));
                }
            };
            if slot.replace(value.to_owned()).is_some() {
                return Err(format!("{name}= is given once, found twice; {example}"));
            }
        }
        let needed = |name: &str, value: Option<String>| {
            value.ok_or_else(|| format!("a strike needs {name}=, found none; {example}"))
        };
        let number = |name: &str, value: String, below: usize| match value.parse::<usize>() {
            Ok(number) if number < below => Ok(number),
            _ => Err(format!(
                "{name}= must be a number below {below}, found '{value}'; {example}"
            )),
        };
        let replica = number("replica", needed("replica", replica)?, size)?;
        if let Some(message) = message {
            let is_alone = object.is_none() && field.is_none() && byte.is_none();
            let bit = |below| number("bit", needed("bit", bit)?, below);
            let target = match message.as_str() {
                "reply" if is_alone => Target::Reply { bit: bit(1 << 24)? },
                "check" if is_alone => Target::Check { bit: bit(128)? },
                _ => {
                    return Err(
                        "message= is reply or check, and takes replica= and bit= beside it; fix: replica=1 message=reply bit=77"
                            .to_owned(),
                    );
                }
            };
            return Ok(Self {
                replica: replica as u64,
                target,
            });
        }
        let object = needed("object", object)?;
        let byte = number("byte", needed("byte", byte)?, 1 << 21)?;
        let bit = number("bit", needed("bit", bit)?, 8)?;
        let key = match object.split_once(':') {
            Some(("item", key)) if !key.is_empty() => key.to_owned(),
            Some(("client", name)) if !name.is_empty() => {
                String::from_utf8(crate::once::key(name)).unwrap_or_default()
            }
            _ => {
                return Err(format!(
                    "object= must be item:KEY, or client:NAME for the replies kept of a client, found '{object}'; {example}"
                ));
            }
        };
        let field = field.unwrap_or_else(|| "value".to_owned());
        if !FIELDS.contains(&field.as_str()) {
            return Err(format!(
                "field= must be one of value, key, flags, expires, cas, found '{field}'; {example}"
            ));
        }
        Ok(Self {
            replica: replica as u64,
            target: Target::Item {
                key,
                field,
                byte,
                bit: u8::try_from(bit).unwrap_or(0),
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
        let strike = Strike::parse("replica=2 message=reply bit=77", 3).unwrap();
        assert_eq!(strike.target, Target::Reply { bit: 77 });
        let strike = Strike::parse("replica=2 message=check bit=77", 3).unwrap();
        assert_eq!(strike.target, Target::Check { bit: 77 });
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
            (
                "replica=1 message=repair bit=1",
                "message= is reply or check",
            ),
            ("replica=1 message=check bit=128", "below 128"),
            (
                "replica=1 message=reply object=item:a bit=1",
                "message= is reply",
            ),
            ("whom=1", "found 'whom'"),
        ] {
            let why = Strike::parse(line, 3).unwrap_err();
            assert!(why.contains(word) && why.contains("fix:"), "{line}: {why}");
        }
    }
}
