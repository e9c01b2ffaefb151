//! How replies are written.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::item::{BINARY, HEADER, STALE, View, WON};
use crate::request::Form;

/// Where key and value of an item stand in a reply.
pub(super) struct Put {
    pub(super) key: std::ops::Range<usize>,
    pub(super) value: std::ops::Range<usize>,
}

/// One item of the answer to a `get`.
pub(super) fn put_value(view: &View<'_>, with_cas: bool, reply: &mut Vec<u8>) -> Put {
    reply.extend_from_slice(b"VALUE ");
    let key = reply.len()..reply.len() + view.key.len();
    reply.extend_from_slice(view.key);
    let head = if with_cas {
        format!(" {} {} {}\r\n", view.flags, view.value.len(), view.cas)
    } else {
        format!(" {} {}\r\n", view.flags, view.value.len())
    };
    reply.extend_from_slice(head.as_bytes());
    let value = reply.len()..reply.len() + view.value.len();
    reply.extend_from_slice(view.value);
    reply.extend_from_slice(b"\r\n");
    Put { key, value }
}

/// A key as its client names it: bytes that are no text in base64, and a flag that says so.
fn put_key(key: &[u8], is_binary: bool, reply: &mut Vec<u8>) {
    reply.extend_from_slice(b" k");
    if is_binary {
        reply.extend_from_slice(STANDARD.encode(key).as_bytes());
        reply.extend_from_slice(b" b");
    } else {
        reply.extend_from_slice(key);
    }
}

/// The answer to `me`: what memcached's has, and can be said of the log alone. A read changes nothing, so it leaves no time and no mark.
pub(super) fn debugged(form: &Form, key: &[u8], view: Option<View<'_>>, now_ms: u64) -> Vec<u8> {
    let Some(view) = view else {
        return b"EN\r\n".to_vec();
    };
    let mut reply = b"ME ".to_vec();
    if view.marks & BINARY != 0 || form.is_binary() {
        reply.extend_from_slice(STANDARD.encode(key).as_bytes());
    } else {
        reply.extend_from_slice(key);
    }
    // As memcached: seconds since the end, so less than none while there are some left.
    let ends = if view.expires == 0 {
        "-1".to_owned()
    } else {
        format!("-{}", view.expires.saturating_sub(now_ms) / 1000)
    };
    let yes = |mark: u8| if view.marks & mark != 0 { "yes" } else { "no" };
    let rest = format!(
        " exp={ends} cas={} size={} stale={} won={}\r\n",
        view.cas,
        HEADER + view.key.len() + view.value.len(),
        yes(STALE),
        yes(WON)
    );
    reply.extend_from_slice(rest.as_bytes());
    reply
}

impl Form {
    pub(super) fn shows_value(&self) -> bool {
        matches!(self, Self::Meta { value: true, .. })
    }

    /// The answer to a meta command. `wins` if its client is the one that has to make the value anew; `view` is from before it was told.
    pub(super) fn meta(
        &self,
        said: Said,
        key: &[u8],
        view: Option<View<'_>>,
        wins: bool,
        now_ms: u64,
    ) -> Vec<u8> {
        match self {
            Self::Meta {
                flags,
                quiet,
                value,
            } => {
                let how = Meta {
                    flags,
                    quiet: *quiet,
                    value: *value,
                    is_binary: self.is_binary(),
                    wins,
                };
                how.reply(said, key, view, now_ms)
            }
            Self::Text | Self::Silent => said.text(),
        }
    }
}

/// How a meta command is answered.
struct Meta<'a> {
    flags: &'a [String],
    quiet: bool,
    value: bool,
    is_binary: bool,
    wins: bool,
}

impl Meta<'_> {
    fn reply(&self, said: Said, key: &[u8], view: Option<View<'_>>, now_ms: u64) -> Vec<u8> {
        let Self {
            flags,
            quiet,
            value,
            is_binary,
            wins,
        } = *self;
        let word = match said {
            Said::NoNumber | Said::TooLarge | Said::NoRoom => return said.text(),
            Said::Miss => "EN",
            Said::NotFound => "NF",
            Said::NotStored => "NS",
            Said::Exists => "EX",
            _ => "HD",
        };
        let hushed = match word {
            "HD" => !value && !matches!(said, Said::Found),
            "EN" => true,
            "NF" => true,
            _ => false,
        };
        if quiet && hushed {
            return Vec::new();
        }
        let is_mg = matches!(said, Said::Found | Said::Miss);
        let mut tail: Vec<u8> = Vec::new();
        for flag in flags {
            let (letter, _) = flag.split_at(1);
            match (letter, view) {
                ("k", Some(view)) if is_mg => put_key(key, view.marks & BINARY != 0, &mut tail),
                ("k", _) => put_key(key, is_binary, &mut tail),
                ("O", _) => tail.extend_from_slice(format!(" {flag}").as_bytes()),
                (_, None) => {}
                (_, Some(view)) => {
                    let shown = match letter {
                        "f" => format!(" f{}", view.flags),
                        "s" => format!(" s{}", view.value.len()),
                        // As memcached: whose number was another one is not told which it is.
                        "c" if said == Said::Exists => " c0".to_owned(),
                        "c" => format!(" c{}", view.cas),
                        "t" if view.expires == 0 => " t-1".to_owned(),
                        "t" => format!(" t{}", view.expires.saturating_sub(now_ms) / 1000),
                        _ => String::new(),
                    };
                    tail.extend_from_slice(shown.as_bytes());
                }
            }
        }
        if is_mg && let Some(view) = view {
            let marks = [
                (view.marks & WON != 0, " Z"),
                (view.marks & STALE != 0, " X"),
                (wins, " W"),
            ];
            let marks = marks.into_iter().filter(|(is_set, _)| *is_set);
            tail.extend(marks.flat_map(|(_, mark)| mark.bytes()));
        }
        let shown = |word: &str, length: usize| {
            let mut line = format!("{word} {length}").into_bytes();
            line.extend_from_slice(&tail);
            line.extend_from_slice(b"\r\n");
            line
        };
        let mut reply = match (said, view) {
            (Said::Number(number), _) if value => {
                let number = number.to_string();
                let mut reply = shown("VA", number.len());
                reply.extend_from_slice(number.as_bytes());
                reply
            }
            (Said::Found, Some(view)) if value => {
                let mut reply = shown("VA", view.value.len());
                reply.extend_from_slice(view.value);
                reply
            }
            _ if word == "EN" || !is_mg || word == "HD" => [word.as_bytes(), &tail].concat(),
            _ => word.as_bytes().to_vec(),
        };
        reply.extend_from_slice(b"\r\n");
        reply
    }
}

/// What a request comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Stored,
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Touched,
    Number(u64),
    NoNumber,
    TooLarge,
    NoRoom,
    Found,
    Miss,
    Ok,
}

impl Said {
    pub(super) fn text(self) -> Vec<u8> {
        match self {
            Self::Stored => "STORED",
            Self::NotStored => "NOT_STORED",
            Self::Exists => "EXISTS",
            Self::NotFound | Self::Miss => "NOT_FOUND",
            Self::Deleted => "DELETED",
            Self::Touched => "TOUCHED",
            Self::Number(number) => return format!("{number}\r\n").into_bytes(),
            Self::NoNumber => "CLIENT_ERROR cannot increment or decrement non-numeric value",
            Self::TooLarge => "SERVER_ERROR object too large for cache",
            Self::NoRoom => "SERVER_ERROR out of memory storing object",
            Self::Found | Self::Ok => "OK",
        }
        .bytes()
        .chain(*b"\r\n")
        .collect()
    }
}

/// What strtoull reads, where a space, a zero byte or the end follows.
pub(super) fn leading_number(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let word = &value[value.iter().position(|byte| !is_space(byte))?..];
    let end = word
        .iter()
        .position(|byte| is_space(byte) || *byte == 0)
        .unwrap_or(word.len());
    let digits = word[..end].strip_prefix(b"+").unwrap_or(&word[..end]);
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
        .then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}
