//! memcached's text and meta commands: bytes in, requests out. Replies are made where requests are executed (`store`).
//!
//! Invariants
//!  1. A request that leaves here is well formed: key and value are within their limits, numbers are numbers.
//!  2. What is refused is answered here and never reaches the log.
//!
//! Not covered: the binary protocol (deprecated upstream), refused by its first byte; base64 keys and stale items of the meta commands.

use crate::once;
use crate::request::{Form, KEY_MAX, Request, VALUE_MAX, Verb};

/// What `version` says: the memcached whose commands these are, since clients decide by it what they may use; then whose server it is.
pub(crate) const VERSION: &str = concat!("1.6.18-steadfast-", env!("CARGO_PKG_VERSION"));
/// Longest command line: a multi-get of a hundred longest keys fits many times.
const LINE_MAX: usize = 1 << 16;
/// Of a get: some thousand keys.
const GET_LINE_MAX: usize = 1 << 20;
/// The same of the service's own commands: a batch of a backup, in hexadecimal digits.
const OWN_LINE_MAX: usize = 5 << 20;

/// What the head of the input is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More has to come.
    Partial,
    /// A request of so many bytes.
    Request(usize, Request),
    /// Answered at once: so many bytes.
    Answer(usize, Vec<u8>),
    /// Asks the connection itself.
    Local(usize, Local),
    /// Answer, then close.
    Close(Vec<u8>),
}

/// Commands that concern one replica or one connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Local {
    Stats(String),
    /// `sf WORD REST`: the service's own commands.
    Own(String, String),
    Quit,
}

/// Reads one command from the head of `input`.
pub(crate) fn parse(input: &[u8]) -> Parsed {
    if input.first() == Some(&0x80) {
        return Parsed::Close(
            b"SERVER_ERROR the binary protocol is not supported; use text or meta commands\r\n"
                .to_vec(),
        );
    }
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        let most = if input.starts_with(b"sf restore ") {
            OWN_LINE_MAX
        } else if input.starts_with(b"get ") || input.starts_with(b"gets ") {
            GET_LINE_MAX
        } else {
            LINE_MAX
        };
        if input.len() > most {
            return Parsed::Close(b"CLIENT_ERROR line too long\r\n".to_vec());
        }
        return Parsed::Partial;
    };
    let consumed = end + 1;
    let line = &input[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words: Vec<&[u8]> = line
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
        .collect();
    let answer = |text: &str| Parsed::Answer(consumed, format!("{text}\r\n").into_bytes());
    let bad = || answer("CLIENT_ERROR bad command line format");
    let Some((verb, rest)) = words.split_first() else {
        return answer("ERROR");
    };
    // A number that cannot be read would be no number, and the request executed as often as it comes.
    if matches!(*verb, b"md" | b"ma" | b"mg")
        && let Some(flags) = Flags::read(rest.get(1..).unwrap_or_default())
        && let Err(why) = once::read(&flags.0)
    {
        return answer(why);
    }
    match (*verb, rest) {
        (b"get" | b"gets", keys @ [_, ..]) => match names(keys) {
            Some(keys) => Parsed::Request(
                consumed,
                Request::Get {
                    keys,
                    cas: *verb == b"gets",
                    touch: None,
                },
            ),
            None => bad(),
        },
        (b"gat" | b"gats", [expires, keys @ ..]) if !keys.is_empty() => {
            match (number(expires), names(keys)) {
                (None, _) => answer("CLIENT_ERROR invalid exptime argument"),
                (Some(expires), Some(keys)) => Parsed::Request(
                    consumed,
                    Request::Get {
                        keys,
                        cas: *verb == b"gats",
                        touch: Some(expires),
                    },
                ),
                _ => bad(),
            }
        }
        (b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas", rest) => {
            store(input, consumed, verb, rest)
        }
        (b"ms", [key, length, flags @ ..]) => meta_set(input, consumed, key, length, flags),
        (b"delete", [key, rest @ ..]) => {
            let (rest, form) = form(rest);
            if !(rest.is_empty() || matches!(rest, [b"0"])) {
                if form == Form::Silent {
                    return Parsed::Answer(consumed, Vec::new());
                }
                return answer(
                    "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
                );
            }
            match name(key) {
                Some(key) => Parsed::Request(
                    consumed,
                    Request::Delete {
                        key,
                        cas: None,
                        form,
                    },
                ),
                None => bad(),
            }
        }
        (b"incr" | b"decr", [key, by, rest @ ..]) => {
            let (_, form) = form(rest);
            let Some(key) = name(key) else { return bad() };
            match unsigned(by) {
                Some(by) => Parsed::Request(
                    consumed,
                    Request::Count {
                        key,
                        up: *verb == b"incr",
                        by,
                        seed: None,
                        expires: None,
                        cas: None,
                        form,
                    },
                ),
                None => answer("CLIENT_ERROR invalid numeric delta argument"),
            }
        }
        (b"touch", [key, expires, rest @ ..]) => {
            let (_, form) = form(rest);
            match (name(key), number(expires)) {
                (None, _) => bad(),
                (_, None) => answer("CLIENT_ERROR invalid exptime argument"),
                (Some(key), Some(expires)) => {
                    Parsed::Request(consumed, Request::Touch { key, expires, form })
                }
            }
        }
        (b"flush_all", rest) => {
            let (rest, form) = form(rest);
            match rest {
                [] => Parsed::Request(consumed, Request::Flush { after: 0, form }),
                [after] => match number(after) {
                    Some(after) => Parsed::Request(consumed, Request::Flush { after, form }),
                    None => answer("CLIENT_ERROR invalid exptime argument"),
                },
                _ => answer("ERROR"),
            }
        }
        (b"mg", [key, flags @ ..]) => meta_get(consumed, key, flags),
        (b"md", [key, flags @ ..]) => {
            let (Some(key), Some(flags)) = (name(key), Flags::of(flags, "COkq")) else {
                return bad();
            };
            let cas = flags.number('C');
            Parsed::Request(
                consumed,
                Request::Delete {
                    key,
                    cas,
                    form: flags.form(false),
                },
            )
        }
        (b"ma", [key, flags @ ..]) => {
            let (Some(key), Some(flags)) = (name(key), Flags::of(flags, "CDJMNOTckqtv")) else {
                return bad();
            };
            let up = match flags.text('M') {
                None | Some("I" | "i" | "incr" | "+") => true,
                Some("D" | "d" | "decr" | "-") => false,
                Some(_) => return answer("CLIENT_ERROR invalid mode for ma"),
            };
            let by = match flags.text('D') {
                None => 1,
                Some(text) => match unsigned(text.as_bytes()) {
                    Some(by) => by,
                    None => return answer("CLIENT_ERROR invalid numeric delta argument"),
                },
            };
            let seed = flags
                .signed('N')
                .map(|expires| (flags.number('J').unwrap_or(0), expires));
            let expires = flags.signed('T');
            let cas = flags.number('C');
            let value = flags.has('v');
            Parsed::Request(
                consumed,
                Request::Count {
                    key,
                    up,
                    by,
                    seed,
                    expires,
                    cas,
                    form: flags.form(value),
                },
            )
        }
        (b"mn", _) => answer("MN"),
        (b"me", [key, ..]) if name(key).is_some() => answer("EN"),
        (b"version", _) => answer(&format!("VERSION {VERSION}")),
        (b"verbosity", [_] | [_, _]) => {
            let (_, form) = form(rest);
            if form == Form::Silent {
                Parsed::Answer(consumed, Vec::new())
            } else {
                answer("OK")
            }
        }
        (b"stats", rest) => Parsed::Local(
            consumed,
            Local::Stats(rest.first().map(|w| lossy(w)).unwrap_or_default()),
        ),
        (b"sf", [word, rest @ ..]) => {
            let rest: Vec<String> = rest.iter().map(|word| lossy(word)).collect();
            Parsed::Local(consumed, Local::Own(lossy(word), rest.join(" ")))
        }
        (b"quit", _) => Parsed::Local(consumed, Local::Quit),
        (b"shutdown", _) => answer("ERROR: shutdown not enabled"),
        // A page in somebody's browser must not reach a server that it could not ask itself; as memcached, without a word.
        (b"GET" | b"POST" | b"PUT" | b"DELETE", [.., last]) if last.starts_with(b"HTTP/") => {
            Parsed::Close(Vec::new())
        }
        _ => answer("ERROR"),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn name(word: &[u8]) -> Option<Vec<u8>> {
    (!word.is_empty()
        && word.len() <= KEY_MAX
        && word.iter().all(|byte| *byte > 32 && *byte != 127))
    .then(|| word.to_vec())
}

fn names(words: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    words.iter().map(|word| name(word)).collect()
}

fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn unsigned(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn form<'a, 'b>(words: &'b [&'a [u8]]) -> (&'b [&'a [u8]], Form) {
    match words.split_last() {
        Some((last, rest)) if *last == b"noreply" => (rest, Form::Silent),
        _ => (words, Form::Text),
    }
}

/// The data block of `length` bytes after the line; `None` while it has not all come.
fn block(input: &[u8], consumed: usize, length: usize) -> Option<Result<(usize, Vec<u8>), usize>> {
    let after = consumed + length;
    let tail = input.get(after..)?;
    if tail.starts_with(b"\r\n") {
        return Some(Ok((after + 2, input[consumed..after].to_vec())));
    }
    if tail.len() < 2 && (tail.is_empty() || tail == b"\r") {
        return None;
    }
    // As memcached: what does not end where it was said to is skipped up to the end of its line.
    let skip = tail
        .iter()
        .position(|byte| *byte == b'\n')
        .map(|at| after + at + 1)?;
    Some(Err(skip))
}

/// A value this large is read past, so that the connection goes on behind it; whoever announces more has lost its place.
const SKIPPED_MAX: usize = 8 * VALUE_MAX;

/// A value above the limit is read past without being kept. Where it was to take another one's place, that goes: it would be stale.
fn too_large(
    input: &[u8],
    consumed: usize,
    length: usize,
    stale: Option<(Vec<u8>, Form)>,
) -> Parsed {
    let whole = consumed.saturating_add(length).saturating_add(2);
    if input.len() < whole && length <= SKIPPED_MAX {
        return Parsed::Partial;
    }
    if length > SKIPPED_MAX {
        return Parsed::Close(b"SERVER_ERROR object too large for cache\r\n".to_vec());
    }
    match stale {
        Some((key, form)) => Parsed::Request(whole, Request::TooLarge { key, form }),
        None => Parsed::Answer(
            whole,
            b"SERVER_ERROR object too large for cache\r\n".to_vec(),
        ),
    }
}

/// As memcached: what an int cannot count, the end of the line included, is no length.
const LENGTH_MAX: usize = (i32::MAX - 2) as usize;

fn store(input: &[u8], consumed: usize, verb: &[u8], rest: &[&[u8]]) -> Parsed {
    let answer = |text: &str| Parsed::Answer(consumed, format!("{text}\r\n").into_bytes());
    let bad = || answer("CLIENT_ERROR bad command line format");
    let (rest, form) = form(rest);
    let verb = match verb {
        b"set" => Verb::Set,
        b"add" => Verb::Add,
        b"replace" => Verb::Replace,
        b"append" => Verb::Append,
        b"prepend" => Verb::Prepend,
        _ => Verb::Cas,
    };
    let (key, flags, expires, length, cas) = match (verb, rest) {
        (Verb::Cas, [key, flags, expires, length, cas]) => (key, flags, expires, length, Some(cas)),
        (Verb::Cas, _) => return answer("ERROR"),
        (_, [key, flags, expires, length]) => (key, flags, expires, length, None),
        _ => return answer("ERROR"),
    };
    let flags = unsigned(flags).and_then(|flags| u32::try_from(flags).ok());
    let length = unsigned(length).and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length <= LENGTH_MAX);
    let cas = match cas.map(|cas| unsigned(cas)) {
        Some(None) => return bad(),
        Some(cas) => cas,
        None => None,
    };
    let (Some(key), Some(flags), Some(expires), Some(length)) =
        (name(key), flags, number(expires), length)
    else {
        return bad();
    };
    if length > VALUE_MAX {
        let stale = (verb == Verb::Set).then_some((key, form));
        return too_large(input, consumed, length, stale);
    }
    match block(input, consumed, length) {
        None => Parsed::Partial,
        Some(Err(skip)) => Parsed::Answer(skip, b"CLIENT_ERROR bad data chunk\r\n".to_vec()),
        Some(Ok((consumed, value))) => Parsed::Request(
            consumed,
            Request::Store {
                verb,
                key,
                flags,
                expires,
                value,
                cas,
                form,
            },
        ),
    }
}

fn meta_get(consumed: usize, key: &[u8], flags: &[&[u8]]) -> Parsed {
    let bad = || {
        Parsed::Answer(
            consumed,
            b"CLIENT_ERROR bad command line format\r\n".to_vec(),
        )
    };
    let (Some(key), Some(flags)) = (name(key), Flags::of(flags, "OTcfkqstv")) else {
        return bad();
    };
    let touch = flags.signed('T');
    let value = flags.has('v');
    Parsed::Request(
        consumed,
        Request::MetaGet {
            key,
            touch,
            form: flags.form(value),
        },
    )
}

/// The flags of `ms`.
const META_SET: &str = "CFMOTcfkqst";

fn meta_set(input: &[u8], consumed: usize, key: &[u8], length: &[u8], flags: &[&[u8]]) -> Parsed {
    let bad = |consumed| Parsed::Answer(consumed, b"CLIENT_ERROR bad data chunk\r\n".to_vec());
    let Some(length) = unsigned(length).and_then(|length| usize::try_from(length).ok()) else {
        return bad(consumed);
    };
    if length > VALUE_MAX {
        let stale = name(key).zip(Flags::of(flags, META_SET));
        let stale = stale.filter(|(_, flags)| !flags.has('C') && !flags.has('M'));
        let stale =
            stale.filter(|(_, flags)| once::read(&flags.0).is_ok_and(|once| once.is_none()));
        let stale = stale.map(|(key, flags)| (key, flags.form(false)));
        return too_large(input, consumed, length, stale);
    }
    let (consumed, value) = match block(input, consumed, length) {
        None => return Parsed::Partial,
        Some(Err(skip)) => return bad(skip),
        Some(Ok(read)) => read,
    };
    let (Some(key), Some(flags)) = (name(key), Flags::of(flags, META_SET)) else {
        return Parsed::Answer(
            consumed,
            b"CLIENT_ERROR bad command line format\r\n".to_vec(),
        );
    };
    if let Err(why) = once::read(&flags.0) {
        return Parsed::Answer(consumed, format!("{why}\r\n").into_bytes());
    }
    let verb = match flags.text('M') {
        None | Some("S" | "s" | "set") => Verb::Set,
        Some("E" | "e" | "add") => Verb::Add,
        Some("A" | "a" | "append") => Verb::Append,
        Some("P" | "p" | "prepend") => Verb::Prepend,
        Some("R" | "r" | "replace") => Verb::Replace,
        Some(_) => {
            return Parsed::Answer(consumed, b"CLIENT_ERROR invalid mode for ms\r\n".to_vec());
        }
    };
    let cas = flags.number('C');
    let request = Request::Store {
        verb,
        key,
        flags: flags
            .number('F')
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(0),
        expires: flags.signed('T').unwrap_or(0),
        value,
        cas,
        form: flags.form(false),
    };
    Parsed::Request(consumed, request)
}

/// The flags of a meta command.
struct Flags(Vec<String>);

impl Flags {
    /// Nothing where a word is no text, or a flag that takes a number has another token: without it the request would mean something else.
    fn read(words: &[&[u8]]) -> Option<Self> {
        let words = words.iter().map(|word| std::str::from_utf8(word).ok());
        let flags = Self(
            words
                .map(|word| word.map(str::to_owned))
                .collect::<Option<_>>()?,
        );
        let numbers = flags.0.iter().all(|word| match word.split_at_checked(1) {
            Some(("C" | "F" | "J", token)) => token.parse::<u64>().is_ok(),
            Some(("T" | "N", token)) => token.parse::<i64>().is_ok(),
            _ => true,
        });
        numbers.then_some(flags)
    }

    /// The same; nothing where a flag is not among these letters: what it asks for would not be done.
    fn of(words: &[&[u8]], letters: &str) -> Option<Self> {
        Self::read(words).filter(|flags| {
            flags
                .0
                .iter()
                .all(|word| word.starts_with(|c| letters.contains(c)))
        })
    }

    fn has(&self, flag: char) -> bool {
        self.0.iter().any(|word| word.starts_with(flag))
    }

    fn text(&self, flag: char) -> Option<&str> {
        self.0.iter().find_map(|word| word.strip_prefix(flag))
    }

    fn number(&self, flag: char) -> Option<u64> {
        self.text(flag)?.parse().ok()
    }

    fn signed(&self, flag: char) -> Option<i64> {
        self.text(flag)?.parse().ok()
    }

    /// The flags that a reply repeats, in the order of the request.
    fn form(self, value: bool) -> Form {
        let quiet = self.has('q');
        let flags = self
            .0
            .into_iter()
            .filter(|word| "fsctkO".contains(|c| word.starts_with(c)))
            .collect();
        Form::Meta {
            flags,
            quiet,
            value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(input: &str) -> String {
        match parse(input.as_bytes()) {
            Parsed::Answer(_, text) => lossy(&text),
            other => panic!("{input:?}: {other:?}"),
        }
    }

    #[test]
    fn what_is_refused_says_why() {
        let long = "k".repeat(251);
        for (line, reply) in [
            ("nonsense\r\n".to_owned(), "ERROR\r\n"),
            ("get\r\n".to_owned(), "ERROR\r\n"),
            (
                format!("get {long}\r\n"),
                "CLIENT_ERROR bad command line format\r\n",
            ),
            (
                "incr key1 abc\r\n".to_owned(),
                "CLIENT_ERROR invalid numeric delta argument\r\n",
            ),
            (
                "touch key1 abc\r\n".to_owned(),
                "CLIENT_ERROR invalid exptime argument\r\n",
            ),
            (
                "set a 0 0 3\r\nabcd\r\n".to_owned(),
                "CLIENT_ERROR bad data chunk\r\n",
            ),
            (
                "mg a k N30 v\r\n".to_owned(),
                "CLIENT_ERROR bad command line format\r\n",
            ),
            (
                "md a I T30\r\n".to_owned(),
                "CLIENT_ERROR bad command line format\r\n",
            ),
            (
                "ms YQ== 1 b\r\nx\r\n".to_owned(),
                "CLIENT_ERROR bad command line format\r\n",
            ),
        ] {
            assert_eq!(answered(&line), reply, "{line:?}");
        }
        assert!(matches!(parse(b"\x80\x00"), Parsed::Close(_)));
        for line in ["GET / HTTP/1.0\r\n", "POST /x HTTP/1.1\r\n"] {
            assert_eq!(
                parse(line.as_bytes()),
                Parsed::Close(Vec::new()),
                "{line:?}"
            );
        }
        for length in ["-1", "2147483646", "4294967295"] {
            let line = format!("set a 0 0 {length}\r\n");
            assert!(answered(&line).contains("bad command line"), "{line:?}");
        }
        assert_eq!(answered("delete a 10 noreply\r\n"), "");
    }

    #[test]
    fn what_was_to_be_replaced_by_a_value_above_the_limit_goes() {
        let length = VALUE_MAX + 1;
        let value = "v".repeat(length);
        for (line, goes) in [
            (format!("set a 0 0 {length}"), true),
            (format!("ms a {length} T30"), true),
            (format!("add a 0 0 {length}"), false),
            (format!("cas a 0 0 {length} 7"), false),
            (format!("ms a {length} C7"), false),
            (format!("ms a {length} MA"), false),
            (format!("ms a {length} Oonce:web:1"), false),
        ] {
            let whole = format!("{line}\r\n{value}\r\n");
            let read = parse(whole.as_bytes());
            match &read {
                Parsed::Request(all, Request::TooLarge { key, .. }) if goes => {
                    assert_eq!((*all, key.as_slice()), (whole.len(), &b"a"[..]), "{line}");
                }
                Parsed::Answer(all, _) if !goes => assert_eq!(*all, whole.len(), "{line}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_get_may_have_thousands_of_keys_and_no_other_line_so_many_words() {
        let keys = "foobarbaz ".repeat(18_000);
        let get = format!("get {keys}");
        assert_eq!(parse(get.as_bytes()), Parsed::Partial);
        assert!(matches!(
            parse(format!("{get}\r\n").as_bytes()),
            Parsed::Request(..)
        ));
        for long in [format!("touch {keys}"), format!("get {}", keys.repeat(10))] {
            assert!(matches!(parse(long.as_bytes()), Parsed::Close(_)));
        }
    }

    #[test]
    fn a_request_is_read_only_when_all_of_it_is_there() {
        let whole = b"set a 1 0 5\r\nab\r\nc\r\nget a\r\n";
        for cut in 0..20 {
            assert_eq!(parse(&whole[..cut]), Parsed::Partial, "{cut}");
        }
        let Parsed::Request(20, Request::Store { value, .. }) = parse(whole) else {
            panic!()
        };
        assert_eq!(value, b"ab\r\nc");
    }

    #[test]
    fn noreply_and_flags_are_part_of_the_request() {
        let Parsed::Request(_, Request::Delete { form, .. }) = parse(b"delete a noreply\r\n")
        else {
            panic!()
        };
        assert_eq!(form, Form::Silent);
        let Parsed::Request(_, Request::MetaGet { form, .. }) = parse(b"mg a v k O7 t\r\n") else {
            panic!()
        };
        let flags = ["k", "O7", "t"].map(str::to_owned).to_vec();
        assert_eq!(
            form,
            Form::Meta {
                flags,
                quiet: false,
                value: true
            }
        );
    }
}
