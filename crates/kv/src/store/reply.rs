//! How replies are written.

use super::item::View;

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

/// The answer to a meta command.
pub(super) fn meta_reply(
    flags: &[String],
    quiet: bool,
    value: bool,
    said: Said,
    key: &[u8],
    view: Option<View<'_>>,
    now_ms: u64,
) -> Vec<u8> {
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
            ("k", _) => {
                tail.extend_from_slice(b" k");
                tail.extend_from_slice(key);
            }
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
