//! memcached's text and meta commands: bytes in, requests out. Replies are made where requests are executed (`store`).
//!
//! Invariants
//!  1. A request that leaves here is well formed: key and value are within their limits, numbers are numbers.
//!  2. What is refused is answered here and never reaches the log.
//!
//! Not covered: the binary protocol (deprecated upstream), refused by its first byte; `h` and `l` of `mg`: a read would have to change its item.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

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

/// Keys that are bytes; clients leave the padding out, or do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const INVALID: &str = "CLIENT_ERROR invalid flag";

/// What the head of the input is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More has to come.
    Partial,
    /// A request of so many bytes.
    Request(usize, Request),
    /// Answered at once: so many bytes.
    Answer(usize, Vec<u8>),
    /// A value above the limit is announced: bytes of the line, and those behind it that nobody keeps. What was there before may have to go.
    TooLarge(usize, usize, Option<Request>),
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
        && let Ok(flags) = Flags::read(rest.get(1..).unwrap_or_default())
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
        (b"mg", [key, flags @ ..]) => meta(consumed, key, flags, META_GET, meta_get),
        (b"md", [key, flags @ ..]) => meta(consumed, key, flags, "CIOTLPbkq", meta_delete),
        (b"ma", [key, flags @ ..]) => meta(consumed, key, flags, "CDJLMNOPTbckqtv", meta_count),
        (b"mn", _) => answer("MN"),
        (b"me", [key, flags @ ..]) => meta(consumed, key, flags, "b", |key, flags| {
            let form = flags.form(false);
            Ok(Request::Debug { key, form })
        }),
        (b"ms" | b"me", _) => bad(),
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

/// What is answered where a value is above the limit and nothing has to go.
pub(crate) const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

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
        // Where it was to take another one's place, that goes: it would be stale.
        let stale = (verb == Verb::Set).then_some(Request::TooLarge { key, form });
        return Parsed::TooLarge(consumed, length + 2, stale);
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
                may_be_older: false,
                form,
            },
        ),
    }
}

/// A meta command: its key, its flags, and what they make of it.
fn meta(
    consumed: usize,
    key: &[u8],
    flags: &[&[u8]],
    letters: &str,
    request: impl FnOnce(Vec<u8>, Flags) -> Result<Request, &'static str>,
) -> Parsed {
    let read = Flags::of(flags, letters)
        .and_then(|flags| Ok((flags.key(key)?, flags)))
        .and_then(|(key, flags)| request(key, flags));
    match read {
        Ok(request) => Parsed::Request(consumed, request),
        Err(why) => Parsed::Answer(consumed, format!("{why}\r\n").into_bytes()),
    }
}

/// The flags of `mg`.
const META_GET: &str = "LNOPRTbcfkqstuv";

fn meta_get(key: Vec<u8>, flags: Flags) -> Result<Request, &'static str> {
    let value = flags.has('v');
    Ok(Request::MetaGet {
        key,
        touch: flags.signed('T'),
        vivify: flags.signed('N'),
        recache: flags.signed('R'),
        form: flags.form(value),
    })
}

fn meta_delete(key: Vec<u8>, flags: Flags) -> Result<Request, &'static str> {
    let cas = flags.number('C');
    Ok(if flags.has('I') {
        Request::Stale {
            key,
            cas,
            expires: flags.signed('T'),
            form: flags.form(false),
        }
    } else {
        Request::Delete {
            key,
            cas,
            form: flags.form(false),
        }
    })
}

fn meta_count(key: Vec<u8>, flags: Flags) -> Result<Request, &'static str> {
    let up = match flags.text('M') {
        None | Some("I" | "i" | "incr" | "+") => true,
        Some("D" | "d" | "decr" | "-") => false,
        Some(_) => return Err("CLIENT_ERROR invalid mode for ma"),
    };
    let by = match flags.text('D') {
        None => 1,
        Some(text) => {
            unsigned(text.as_bytes()).ok_or("CLIENT_ERROR invalid numeric delta argument")?
        }
    };
    let seed = flags.signed('N');
    let value = flags.has('v');
    Ok(Request::Count {
        key,
        up,
        by,
        seed: seed.map(|expires| (flags.number('J').unwrap_or(0), expires)),
        expires: flags.signed('T'),
        cas: flags.number('C'),
        form: flags.form(value),
    })
}

/// The flags of `ms`.
const META_SET: &str = "CFILMOPTbcfkqst";

fn meta_set(input: &[u8], consumed: usize, key: &[u8], length: &[u8], flags: &[&[u8]]) -> Parsed {
    let answer = |consumed, text: &str| {
        let text = format!("{text}\r\n").into_bytes();
        Parsed::Answer(consumed, text)
    };
    let length = unsigned(length).and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|length| *length <= LENGTH_MAX) else {
        return answer(consumed, "CLIENT_ERROR bad data chunk");
    };
    let read = Flags::of(flags, META_SET).and_then(|flags| {
        once::read(&flags.0)?;
        Ok((flags.key(key)?, flags))
    });
    if length > VALUE_MAX {
        // As memcached: whatever the mode, the older value goes.
        let stale = read.ok().map(|(key, flags)| Request::TooLarge {
            key,
            form: flags.form(false),
        });
        return Parsed::TooLarge(consumed, length + 2, stale);
    }
    let (consumed, value) = match block(input, consumed, length) {
        None => return Parsed::Partial,
        Some(Err(skip)) => return answer(skip, "CLIENT_ERROR bad data chunk"),
        Some(Ok(read)) => read,
    };
    let (key, flags) = match read {
        Ok(read) => read,
        Err(why) => return answer(consumed, why),
    };
    let verb = match flags.text('M') {
        None | Some("S" | "s" | "set") => Verb::Set,
        Some("E" | "e" | "add") => Verb::Add,
        Some("A" | "a" | "append") => Verb::Append,
        Some("P" | "p" | "prepend") => Verb::Prepend,
        Some("R" | "r" | "replace") => Verb::Replace,
        Some(_) => return answer(consumed, "CLIENT_ERROR invalid mode for ms"),
    };
    let request = Request::Store {
        verb,
        key,
        flags: flags
            .number('F')
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(0),
        expires: flags.signed('T').unwrap_or(0),
        value,
        cas: flags.number('C'),
        may_be_older: flags.has('I'),
        form: flags.form(false),
    };
    Parsed::Request(consumed, request)
}

/// The flags of a meta command.
struct Flags(Vec<String>);

impl Flags {
    /// An error where a word is no text, comes twice, or takes a number and has another token: without it the request would mean something
    /// else.
    fn read(words: &[&[u8]]) -> Result<Self, &'static str> {
        let mut flags: Vec<String> = Vec::with_capacity(words.len());
        for word in words {
            let word = std::str::from_utf8(word).map_err(|_| INVALID)?;
            let (letter, token) = word.split_at_checked(1).ok_or(INVALID)?;
            if flags.iter().any(|flag| flag.starts_with(letter)) {
                return Err("CLIENT_ERROR duplicate flag");
            }
            let is_right = match letter {
                "C" | "F" | "J" => token.parse::<u64>().is_ok(),
                "T" | "N" | "R" => token.parse::<i64>().is_ok(),
                _ => true,
            };
            if !is_right {
                return Err("CLIENT_ERROR bad token in command line format");
            }
            flags.push(word.to_owned());
        }
        Ok(Self(flags))
    }

    /// The same; an error where a flag is not among these letters: what it asks for would not be done.
    fn of(words: &[&[u8]], letters: &str) -> Result<Self, &'static str> {
        for word in words {
            match word.first() {
                Some(first) if letters.bytes().any(|letter| letter == *first) => {}
                Some(b'h' | b'l') if letters == META_GET => {
                    return Err(
                        "CLIENT_ERROR flags h and l are not served: a read does not change its item here",
                    );
                }
                _ => return Err(INVALID),
            }
        }
        Self::read(words)
    }

    /// The key, which the flags may say is base64.
    fn key(&self, word: &[u8]) -> Result<Vec<u8>, &'static str> {
        const BAD: &str = "CLIENT_ERROR bad command line format";
        let key = name(word).ok_or(BAD)?;
        if !self.has('b') {
            return Ok(key);
        }
        match BASE64.decode(&key) {
            Ok(key) if key.is_empty() => Err(BAD),
            Ok(key) if once::is_slot(&key) => {
                Err("CLIENT_ERROR this key is one of the server's own")
            }
            Ok(key) => Ok(key),
            Err(_) => Err("CLIENT_ERROR error decoding key"),
        }
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
            .filter(|word| "fsctkObTNR".contains(|c| word.starts_with(c)))
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
            ("mg a k m\r\n".to_owned(), "CLIENT_ERROR invalid flag\r\n"),
            (
                "mg a k v k\r\n".to_owned(),
                "CLIENT_ERROR duplicate flag\r\n",
            ),
            (
                "mg a h\r\n".to_owned(),
                "CLIENT_ERROR flags h and l are not served: a read does not change its item here\r\n",
            ),
            (
                "md a Tsoon I\r\n".to_owned(),
                "CLIENT_ERROR bad token in command line format\r\n",
            ),
            (
                "ms Y= 1 b\r\nx\r\n".to_owned(),
                "CLIENT_ERROR error decoding key\r\n",
            ),
            // "\0once 7", a slot of kept replies.
            (
                "mg AG9uY2UgNw== b v\r\n".to_owned(),
                "CLIENT_ERROR this key is one of the server's own\r\n",
            ),
            (
                "ms a\r\n".to_owned(),
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
        for length in [VALUE_MAX + 1, 9 * VALUE_MAX, LENGTH_MAX] {
            for (line, goes) in [
                (format!("set a 0 0 {length}"), true),
                (format!("ms a {length} T30"), true),
                (format!("ms a {length} C7 MA"), true),
                (format!("ms a {length} Oonce:web:1"), true),
                (format!("ms YQ {length} b"), true),
                (format!("ms a {length} Z"), false),
                (format!("add a 0 0 {length}"), false),
                (format!("cas a 0 0 {length} 7"), false),
            ] {
                let line = format!("{line}\r\n");
                let Parsed::TooLarge(read, value, stale) = parse(line.as_bytes()) else {
                    panic!("{line}");
                };
                assert_eq!((read, value), (line.len(), length + 2), "{line}");
                match stale {
                    Some(Request::TooLarge { key, .. }) if goes => assert_eq!(key, b"a", "{line}"),
                    other => assert!(!goes && other.is_none(), "{line}: {other:?}"),
                }
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
