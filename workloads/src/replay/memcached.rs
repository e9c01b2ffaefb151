//! A trace of memcached's text and meta commands, and a model that knows each reply.
//!
//! One connection, a few dozen keys, so that most commands meet a key that others have changed.
//! The model covers: get gets gat gats touch set add replace append prepend cas incr decr delete,
//! mg ms md ma mn me with the flags that reply with state, noreply, and what is refused.
//!
//! Quirks of memcached 1.6 that are part of the model
//!  * A number that counting makes shorter is padded with spaces where it lies, unless somebody else refers to the value at
//!    that moment (the server's own list of recent uses does for a while): then it becomes a new, short one. Both are right,
//!    so no such count is asked for; memcached's own incrdecr.t covers the padding.
//!  * A number above 2^63 - 1 is looked through for a minus up to the next zero byte, which lies behind the value, in what
//!    an earlier item has left. Such a number is not counted.
//!  * A `get` that is refused takes the replies with it that were made before it and have not been sent. So it comes
//!    first where several requests are sent at once (`Step::drops_earlier`).
//!  * Each change of a value takes the next number of one counter as its `cas`, from 1 on.
//!
//! Several connections at once have keys of their own, and no reply of theirs shows a `cas`: that counter is all connections'.
//!
//! Not covered: expiry (the clock would be part of the answer), eviction, flush_all, statistics.

use std::collections::BTreeMap;

use crate::inputs::Rng;

/// A request and its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub request: Vec<u8>,
    pub reply: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
}

impl Step {
    /// Whether replies to what came before, in the same write, may be lost.
    #[must_use]
    pub fn drops_earlier(&self) -> bool {
        self.request.starts_with(b"get ")
            && self.reply == b"CLIENT_ERROR bad command line format\r\n"
    }
}

/// What a server holds after the requests so far.
#[derive(Clone, Debug, Default)]
pub struct Model {
    items: BTreeMap<String, Item>,
    cas: u64,
    /// Whether each request that may change something takes a number, whatever comes of it.
    counts_requests: bool,
    /// Before each key's name.
    of: String,
}

const KEYS: usize = 40;

/// A trace of `length` requests that depends on the seed alone.
#[must_use]
pub fn trace(seed: u64, length: usize) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let mut model = Model::default();
    (0..length).map(|_| model.step(&mut rng)).collect()
}

/// The same, and after it every key is read with all there is to read: what the requests have left behind.
#[must_use]
pub fn swept(seed: u64, length: usize) -> Vec<Step> {
    swept_by(Model::default(), seed, length)
}

/// The same, of a server in which each request that may change something takes the next number as its `cas`.
#[must_use]
pub fn swept_counting_requests(seed: u64, length: usize) -> Vec<Step> {
    let model = Model {
        counts_requests: true,
        ..Model::default()
    };
    swept_by(model, seed, length)
}

fn swept_by(mut model: Model, seed: u64, length: usize) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let mut steps: Vec<Step> = (0..length).map(|_| model.step(&mut rng)).collect();
    steps.extend((0..KEYS).map(|key| model.look(&model.key(key))));
    steps
}

/// Swept traces of connections that are played side by side: each reply follows from its own connection's requests.
#[must_use]
pub fn swept_apart(seed: u64, length: usize, connections: usize) -> Vec<Vec<Step>> {
    (0..connections)
        .map(|connection| {
            let mut rng = Rng::new(seed.wrapping_mul(64).wrapping_add(connection as u64));
            let mut model = Model {
                of: format!("c{connection}"),
                ..Model::default()
            };
            let mut steps: Vec<Step> = (0..length / connections)
                .map(|_| model.step_alone(&mut rng))
                .collect();
            steps.extend((0..KEYS).map(|key| model.look_alone(&model.key(key))));
            steps
        })
        .collect()
}

fn text(text: impl Into<String>) -> Vec<u8> {
    text.into().into_bytes()
}

impl Step {
    /// Whether the request may change something: those that a server counts which numbers requests.
    fn may_change(&self) -> bool {
        let line = self.request.split(|byte| *byte == b'\r').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default());
        let mut words = line.split(' ');
        match words.next().unwrap_or_default() {
            "get" | "gets" | "mn" | "me" => false,
            "mg" => words.skip(1).any(|word| word.starts_with('T')),
            _ => true,
        }
    }

    /// Whether the number that all connections count on is in the request or in the reply.
    fn shows_cas(&self) -> bool {
        let line = self.request.split(|byte| *byte == b'\r').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default());
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let is_meta = verb.starts_with('m');
        matches!(verb, "gets" | "gats" | "cas")
            || is_meta
                && words
                    .skip(1)
                    .any(|word| word == "c" || word.starts_with('C'))
    }
}

impl Model {
    fn key(&self, number: usize) -> String {
        format!("{}key{number}", self.of)
    }

    /// A step that means the same whatever other connections do.
    fn step_alone(&mut self, rng: &mut Rng) -> Step {
        loop {
            let mut next = self.clone();
            let step = next.step(rng);
            if !step.shows_cas() {
                *self = next;
                return step;
            }
        }
    }

    fn step(&mut self, rng: &mut Rng) -> Step {
        let key = self.key(rng.below(KEYS));
        let kind = rng.below(32);
        let (request, reply) = match kind {
            0..5 => self.get(rng),
            5..11 => self.store(rng, &key),
            11..14 => self.arithmetic(rng, &key),
            14..16 => self.delete(rng, &key),
            16..18 => self.touch(rng, &key),
            18..23 => self.meta_get(rng, &key),
            23..27 => self.meta_set(rng, &key),
            27..29 => self.meta_arithmetic(rng, &key),
            29 => self.meta_delete(&key),
            30 => (text("mn\r\n"), text("MN\r\n")),
            _ => refused(rng),
        };
        let step = Step { request, reply };
        if self.counts_requests && kind < 30 && step.may_change() {
            self.cas += 1;
        }
        step
    }

    fn put(&mut self, key: &str, value: Vec<u8>, flags: u32) -> u64 {
        let cas = self.cas + 1;
        if !self.counts_requests {
            self.cas = cas;
        }
        self.items
            .insert(key.to_owned(), Item { value, flags, cas });
        cas
    }

    fn get(&mut self, rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
        let with_cas = rng.chance(50);
        let touching = rng.chance(20);
        let mut request = match (with_cas, touching) {
            (false, false) => "get".to_owned(),
            (true, false) => "gets".to_owned(),
            (false, true) => "gat 0".to_owned(),
            (true, true) => "gats 0".to_owned(),
        };
        let mut reply = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let key = self.key(rng.below(KEYS));
            request += &format!(" {key}");
            if let Some(item) = self.items.get(&key) {
                let cas = if with_cas {
                    format!(" {}", item.cas)
                } else {
                    String::new()
                };
                reply.extend(text(format!(
                    "VALUE {key} {} {}{cas}\r\n",
                    item.flags,
                    item.value.len()
                )));
                reply.extend_from_slice(&item.value);
                reply.extend_from_slice(b"\r\n");
            }
        }
        reply.extend_from_slice(b"END\r\n");
        (text(request + "\r\n"), reply)
    }

    fn store(&mut self, rng: &mut Rng, key: &str) -> (Vec<u8>, Vec<u8>) {
        let value = some_value(rng);
        let flags = u32::try_from(rng.below(1000)).unwrap_or(0);
        let found = self.items.get(key).cloned();
        let verb = *rng.pick(&[
            "set", "set", "set", "add", "replace", "append", "prepend", "cas",
        ]);
        let noreply = rng.chance(10);
        let mut line = format!("{verb} {key} {flags} 0 {}", value.len());
        let reply = match (verb, found) {
            ("cas", found) => {
                // Right as often as wrong.
                let current = found.as_ref().map_or(1, |item| item.cas);
                let unique = if rng.chance(50) { current } else { current + 1 };
                line += &format!(" {unique}");
                match found {
                    None => "NOT_FOUND",
                    Some(item) if item.cas == unique => {
                        self.put(key, value.clone(), flags);
                        "STORED"
                    }
                    Some(_) => "EXISTS",
                }
            }
            ("append" | "prepend", Some(item)) => {
                let joined = match verb {
                    "append" => [&item.value[..], &value].concat(),
                    _ => [&value[..], &item.value].concat(),
                };
                self.put(key, joined, item.flags);
                "STORED"
            }
            ("append" | "prepend" | "replace", None) | ("add", Some(_)) => "NOT_STORED",
            _ => {
                self.put(key, value.clone(), flags);
                "STORED"
            }
        };
        if noreply {
            line += " noreply";
        }
        let mut request = text(line + "\r\n");
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        // A silent request is followed by one that speaks, or nobody could wait for it.
        if noreply {
            request.extend_from_slice(b"mn\r\n");
            return (request, text("MN\r\n"));
        }
        (request, text(format!("{reply}\r\n")))
    }

    /// The number after incr or decr; `Some(None)` where there is no such key, `None` when it is not a number.
    fn counted(&self, key: &str, up: bool, by: u64) -> Option<Option<u64>> {
        let Some(item) = self.items.get(key) else {
            return Some(None);
        };
        let old = leading_number(&item.value)?;
        Some(Some(if up {
            old.wrapping_add(by)
        } else {
            old.saturating_sub(by)
        }))
    }

    /// Whether there is one right answer: the number is as long as the value was, or longer, and was none that could be
    /// taken for a negative one.
    fn counts_one_way(&self, key: &str, up: bool, by: u64) -> bool {
        match (self.counted(key, up, by), self.items.get(key)) {
            (Some(Some(new)), Some(item)) => {
                let old = leading_number(&item.value).unwrap_or_default();
                i64::try_from(old).is_ok() && new.to_string().len() >= item.value.len()
            }
            _ => true,
        }
    }

    /// As `counted`, which becomes the value.
    fn count(&mut self, key: &str, up: bool, by: u64) -> Option<Option<u64>> {
        let result = self.counted(key, up, by)?;
        if let (Some(new), Some(item)) = (result, self.items.get(key)) {
            let flags = item.flags;
            self.put(key, new.to_string().into_bytes(), flags);
        }
        Some(result)
    }

    fn arithmetic(&mut self, rng: &mut Rng, key: &str) -> (Vec<u8>, Vec<u8>) {
        let up = rng.chance(60);
        let by = rng.next_u64() >> rng.below(63);
        if !self.counts_one_way(key, up, by) {
            let Step { request, reply } = self.look(key);
            return (request, reply);
        }
        let verb = if up { "incr" } else { "decr" };
        let reply = match self.count(key, up, by) {
            Some(Some(new)) => format!("{new}\r\n"),
            Some(None) => "NOT_FOUND\r\n".to_owned(),
            None => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned(),
        };
        (text(format!("{verb} {key} {by}\r\n")), text(reply))
    }

    fn delete(&mut self, rng: &mut Rng, key: &str) -> (Vec<u8>, Vec<u8>) {
        let found = self.items.remove(key).is_some();
        if rng.chance(20) {
            return (
                text(format!("delete {key} noreply\r\nmn\r\n")),
                text("MN\r\n"),
            );
        }
        let reply = if found {
            "DELETED\r\n"
        } else {
            "NOT_FOUND\r\n"
        };
        (text(format!("delete {key}\r\n")), text(reply))
    }

    fn touch(&mut self, rng: &mut Rng, key: &str) -> (Vec<u8>, Vec<u8>) {
        // Far enough away that no run sees it.
        let expiry = if rng.chance(50) { 0 } else { 86_400 };
        let found = self.items.contains_key(key);
        let reply = if found {
            "TOUCHED\r\n"
        } else {
            "NOT_FOUND\r\n"
        };
        (text(format!("touch {key} {expiry}\r\n")), text(reply))
    }

    fn meta_get(&mut self, rng: &mut Rng, key: &str) -> (Vec<u8>, Vec<u8>) {
        let opaque = format!("O{}", rng.below(1_000_000));
        let mut wanted: Vec<&str> = ["f", "s", "c", "k", &opaque]
            .into_iter()
            .filter(|_| rng.chance(50))
            .collect();
        let value = rng.chance(60);
        // Flags are answered in the order of the request.
        if rng.chance(50) {
            wanted.reverse();
        }
        let mut request = format!("mg {key}");
        if value {
            request += " v";
        }
        for flag in &wanted {
            request += &format!(" {flag}");
        }
        request += "\r\n";
        let Some(item) = self.items.get(key) else {
            // What says whose reply it is, and nothing else.
            let mut reply = "EN".to_owned();
            for flag in wanted {
                match flag {
                    "k" => reply += &format!(" k{key}"),
                    "f" | "s" | "c" => {}
                    opaque => reply += &format!(" {opaque}"),
                }
            }
            return (text(request), text(reply + "\r\n"));
        };
        let mut reply = if value {
            format!("VA {}", item.value.len())
        } else {
            "HD".to_owned()
        };
        for flag in wanted {
            reply += &match flag {
                "f" => format!(" f{}", item.flags),
                "s" => format!(" s{}", item.value.len()),
                "c" => format!(" c{}", item.cas),
                "k" => format!(" k{key}"),
                opaque => format!(" {opaque}"),
            };
        }
        let mut reply = text(reply + "\r\n");
        if value {
            reply.extend_from_slice(&item.value);
            reply.extend_from_slice(b"\r\n");
        }
        (text(request), reply)
    }

    fn look(&self, key: &str) -> Step {
        self.look_for(key, &["f", "c"])
    }

    fn look_alone(&self, key: &str) -> Step {
        self.look_for(key, &["f"])
    }

    fn look_for(&self, key: &str, flags: &[&str]) -> Step {
        let reply = match self.items.get(key) {
            None => text("EN\r\n"),
            Some(item) => {
                let mut head = format!("VA {}", item.value.len());
                for flag in flags {
                    head += &match *flag {
                        "c" => format!(" c{}", item.cas),
                        _ => format!(" f{}", item.flags),
                    };
                }
                [&text(head + "\r\n")[..], &item.value, b"\r\n"].concat()
            }
        };
        Step {
            request: text(format!("mg {key} v {}\r\n", flags.join(" "))),
            reply,
        }
    }

    fn meta_set(&mut self, rng: &mut Rng, key: &str) -> (Vec<u8>, Vec<u8>) {
        let value = some_value(rng);
        let flags = u32::try_from(rng.below(1000)).unwrap_or(0);
        let mode = *rng.pick(&["", "S", "E", "A", "P", "R"]);
        let found = self.items.get(key).cloned();
        let mut line = format!("ms {key} {} F{flags}", value.len());
        if !mode.is_empty() {
            line += &format!(" M{mode}");
        }
        let compare = rng.chance(25).then(|| {
            let current = found.as_ref().map_or(1, |item| item.cas);
            if rng.chance(50) { current } else { current + 7 }
        });
        // Comparing is for plain sets: with another mode it depends on which is looked at first.
        let compare = compare.filter(|_| matches!(mode, "" | "S"));
        if let Some(unique) = compare {
            line += &format!(" C{unique}");
        }
        let reply = match (mode, found, compare) {
            (_, None, Some(_)) => "NF",
            (_, Some(item), Some(unique)) if item.cas != unique => "EX",
            ("A" | "P", Some(item), _) => {
                let joined = match mode {
                    "A" => [&item.value[..], &value].concat(),
                    _ => [&value[..], &item.value].concat(),
                };
                self.put(key, joined, item.flags);
                "HD"
            }
            ("A" | "P" | "R", None, _) | ("E", Some(_), _) => "NS",
            _ => {
                self.put(key, value.clone(), flags);
                "HD"
            }
        };
        let mut request = text(line + "\r\n");
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        (request, text(format!("{reply}\r\n")))
    }

    fn meta_arithmetic(&mut self, rng: &mut Rng, key: &str) -> (Vec<u8>, Vec<u8>) {
        let up = rng.chance(50);
        let by = 1 + rng.below(100_000) as u64;
        if !self.counts_one_way(key, up, by) {
            let Step { request, reply } = self.look(key);
            return (request, reply);
        }
        let mode = if up { "MI" } else { "MD" };
        let reply = match self.count(key, up, by) {
            Some(Some(new)) => format!("VA {}\r\n{new}\r\n", new.to_string().len()),
            Some(None) => "NF\r\n".to_owned(),
            None => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned(),
        };
        (text(format!("ma {key} v D{by} {mode}\r\n")), text(reply))
    }

    fn meta_delete(&mut self, key: &str) -> (Vec<u8>, Vec<u8>) {
        let reply = if self.items.remove(key).is_some() {
            "HD\r\n"
        } else {
            "NF\r\n"
        };
        (text(format!("md {key}\r\n")), text(reply))
    }
}

/// What strtoull reads, where a space, a zero byte or the end follows.
fn leading_number(value: &[u8]) -> Option<u64> {
    // isspace(3); Rust's notion lacks the vertical tab.
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = value.iter().position(|byte| !is_space(byte))?;
    let word = &value[start..];
    let ends = |byte: &u8| is_space(byte) || *byte == 0;
    let word = &word[..word.iter().position(ends).unwrap_or(word.len())];
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
        .then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// Numbers often, so that counting has something to count; other bytes, line ends included,
/// otherwise; now and then one that takes several slab pages' chunks.
fn some_value(rng: &mut Rng) -> Vec<u8> {
    if rng.chance(40) {
        return (rng.next_u64() >> rng.below(63)).to_string().into_bytes();
    }
    let length = match rng.below(20) {
        0 => rng.below(20_000),
        1..6 => rng.below(1_500),
        _ => rng.below(40),
    };
    (0..length)
        .map(|_| rng.below(256).to_le_bytes()[0])
        .collect()
}

/// Requests that are answered with an error and change nothing.
fn refused(rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let long = "k".repeat(251);
    let (request, reply) = match rng.below(6) {
        0 => ("nonsense\r\n".to_owned(), "ERROR\r\n"),
        1 => ("get\r\n".to_owned(), "ERROR\r\n"),
        2 => (
            format!("get {long}\r\n"),
            "CLIENT_ERROR bad command line format\r\n",
        ),
        3 => (
            "incr key1 abc\r\n".to_owned(),
            "CLIENT_ERROR invalid numeric delta argument\r\n",
        ),
        4 => (
            "touch key1 abc\r\n".to_owned(),
            "CLIENT_ERROR invalid exptime argument\r\n",
        ),
        _ => (
            format!("mg {long} v\r\n"),
            "CLIENT_ERROR bad command line format\r\n",
        ),
    };
    (text(request), text(reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_ends_at_a_space() {
        for (value, number) in [
            (&b"12"[..], Some(12)),
            (b"12   ", Some(12)),
            (b"12  appended", Some(12)),
            (b"12\0\xff", Some(12)),
            (b" +7\r\n", Some(7)),
            (b"12a", None),
            (b"", None),
            (b"   ", None),
            (b"-5", None),
            (b"99999999999999999999", None),
        ] {
            assert_eq!(leading_number(value), number, "{value:?}");
        }
    }

    #[test]
    fn a_trace_depends_on_its_seed_alone() {
        assert_eq!(trace(3, 500), trace(3, 500));
        assert_ne!(trace(3, 500), trace(4, 500));
    }

    #[test]
    fn a_swept_trace_is_the_trace_and_a_look_at_every_key() {
        let swept = swept(3, 500);
        assert_eq!(swept[..500], trace(3, 500));
        assert_eq!(swept.len(), 500 + KEYS);
        assert!(
            swept[500..]
                .iter()
                .any(|step| step.reply.starts_with(b"VA "))
        );
    }

    #[test]
    fn connections_side_by_side_share_nothing_that_is_answered() {
        let traces = swept_apart(3, 400, 4);
        assert_eq!(traces.len(), 4);
        for (connection, trace) in traces.iter().enumerate() {
            assert_eq!(trace.len(), 100 + KEYS);
            assert!(trace.iter().all(|step| !step.shows_cas()));
            for other in (0..4).filter(|other| *other != connection) {
                let name = format!("c{other}key");
                assert!(
                    trace
                        .iter()
                        .all(|step| !String::from_utf8_lossy(&step.request).contains(&name))
                );
            }
        }
    }

    #[test]
    fn a_trace_meets_every_kind_of_reply() {
        let all: Vec<u8> = trace(1, 5000)
            .into_iter()
            .flat_map(|step| step.reply)
            .collect();
        let all = String::from_utf8_lossy(&all);
        for word in [
            "VALUE",
            "END",
            "STORED",
            "NOT_STORED",
            "EXISTS",
            "NOT_FOUND",
            "DELETED",
            "TOUCHED",
            "HD",
            "VA",
            "EN",
            "NS",
            "NF",
            "EX",
            "MN",
            "ERROR",
            "CLIENT_ERROR",
        ] {
            assert!(
                all.contains(&format!("{word}\r\n")) || all.contains(&format!("{word} ")),
                "{word}"
            );
        }
    }
}
