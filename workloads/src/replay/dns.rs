//! Questions to a forwarding and caching DNS server, and the answers that its configuration and
//! its upstream make right.
//!
//! The upstream is a thread of ours ([`crate::load::upstream`]).

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use steadfast_envelope::dns as envelope;

use crate::dns::{self, NXDOMAIN, SERVFAIL, kind};
use crate::inputs::Rng;
use crate::load::dns::{HOSTS, address_of, host};
use crate::load::upstream::knows;

/// A question and what is right.
#[derive(Clone, Debug)]
pub struct Question {
    pub name: String,
    pub kind: u16,
    pub rcode: u8,
    /// Name, type and data of each answer, sorted; lifetimes may have begun to run down.
    pub answers: Vec<(String, u16, String)>,
    /// How often the upstream is asked for it when it is put twice in a row; how often a failing
    /// upstream is asked again is nobody's promise.
    pub forwarded: Option<u64>,
}

/// Options of dnsmasq that, with the hosts file, decide the local answers below.
#[must_use]
pub fn options(upstream: SocketAddr) -> Vec<String> {
    vec![
        format!("--server={}#{}", upstream.ip(), upstream.port()),
        "--cache-size=2000".to_owned(),
        "--address=/wild.test/192.0.2.9".to_owned(),
        "--address=/wild.test/2001:db8::9".to_owned(),
        "--host-record=both.test,192.0.2.7,2001:db8::7".to_owned(),
        "--cname=alias.test,both.test".to_owned(),
        "--mx-host=mail.test,mx.mail.test,10".to_owned(),
        "--txt-record=text.test,one string and no other".to_owned(),
        "--srv-host=_ldap._tcp.test,ldap.test,389,5,7".to_owned(),
        "--ptr-record=printer.test,line-printer.test".to_owned(),
        "--local=/test/".to_owned(),
    ]
}

/// Those of the hosts file that are asked for.
fn asked_hosts() -> impl Iterator<Item = usize> {
    (0..HOSTS).step_by(41)
}

/// A hosts file of those alone: reading it must not be most of what a server does while faults are drawn.
///
/// # Errors
/// When it cannot be written.
pub fn write_asked_hosts(file: &Path) -> Result<()> {
    let text: String = asked_hosts()
        .map(|index| format!("{} {}\n", address_of(index), host(index)))
        .collect();
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// All questions.
#[must_use]
pub fn questions() -> Vec<Question> {
    let local = |name: &str, kind, data: &[&str]| Question {
        name: name.to_owned(),
        kind,
        rcode: 0,
        answers: data
            .iter()
            .map(|data| (name.to_owned(), kind, (*data).to_owned()))
            .collect(),
        forwarded: Some(0),
    };
    let missing = |name: &str, kind| Question {
        rcode: NXDOMAIN,
        ..local(name, kind, &[])
    };
    let mut all = vec![
        local("anything.wild.test", kind::A, &["192.0.2.9"]),
        local("wild.test", kind::A, &["192.0.2.9"]),
        local("a.b.c.wild.test", kind::AAAA, &["2001:db8::9"]),
        local("both.test", kind::A, &["192.0.2.7"]),
        local("both.test", kind::AAAA, &["2001:db8::7"]),
        local("mail.test", kind::MX, &["10 mx.mail.test"]),
        local("text.test", kind::TXT, &["one string and no other"]),
        local("_ldap._tcp.test", kind::SRV, &["5 7 389 ldap.test"]),
        local("printer.test", kind::PTR, &["line-printer.test"]),
        local("7.2.0.192.in-addr.arpa", kind::PTR, &["both.test"]),
        // A name that exists, and has no such record.
        local("both.test", kind::MX, &[]),
        missing("nobody.test", kind::A),
        missing("nobody.bench.test", kind::AAAA),
    ];
    all.push(Question {
        answers: vec![
            ("alias.test".to_owned(), kind::CNAME, "both.test".to_owned()),
            ("both.test".to_owned(), kind::A, "192.0.2.7".to_owned()),
        ],
        ..local("alias.test", kind::A, &[])
    });
    for index in asked_hosts() {
        let [a, b, c, d] = address_of(index).octets();
        all.push(local(
            &host(index),
            kind::A,
            &[&address_of(index).to_string()],
        ));
        all.push(local(
            &format!("{d}.{c}.{b}.{a}.in-addr.arpa"),
            kind::PTR,
            &[&host(index)],
        ));
    }
    // What the upstream knows: see `load::upstream`.
    for number in 0..60_u32 {
        for kind in [kind::A, kind::AAAA, kind::TXT] {
            let name = format!("n{number}.up.example");
            all.push(upstream_question(&name, kind));
        }
        all.push(upstream_question(&format!("c{number}.up.example"), kind::A));
        all.push(upstream_question(&format!("x{number}.up.example"), kind::A));
    }
    all.push(upstream_question("fail.up.example", kind::A));
    all
}

fn upstream_question(name: &str, kind: u16) -> Question {
    let (rcode, records) = knows(name, kind);
    let mut answers: Vec<_> = records
        .into_iter()
        .map(|record| (record.name, record.kind, record.data))
        .collect();
    answers.sort();
    Question {
        name: name.to_owned(),
        kind,
        rcode,
        answers,
        // Failures are not kept, nor, in this version, records other than addresses and names;
        // negative answers would be, but the set-up of the load runs without (--no-negcache).
        forwarded: match (rcode, kind) {
            (SERVFAIL, _) => None,
            (0, kind::A | kind::AAAA) => Some(1),
            _ => Some(2),
        },
    }
}

/// Questions to a server that knows nothing by itself: the upstream's names, of which it may keep what it likes.
#[must_use]
pub fn forwarded_questions() -> Vec<Question> {
    let mut all: Vec<Question> = (0..HOSTS)
        .map(|index| upstream_question(&host(index), kind::A))
        .collect();
    for number in 0..60_u32 {
        let name = format!("n{number}.up.example");
        all.extend([kind::A, kind::AAAA, kind::TXT].map(|kind| upstream_question(&name, kind)));
        all.push(upstream_question(&format!("x{number}.up.example"), kind::A));
    }
    all
}

/// How [`ask`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All was answered.
    All,
    /// A reply did not come.
    NoAnswer,
    /// The envelope's checksum refused a reply.
    Rejected,
}

/// Puts so many questions to a server that is there, in an order that follows from the seed, and writes what each was
/// answered, but for lifetimes, which run down: for `steadfast inject run --driver`.
///
/// # Errors
/// When no socket can be had, or nothing can be written.
pub fn ask(
    server: SocketAddr,
    seed: u64,
    length: usize,
    sealed: bool,
    out: &mut dyn Write,
) -> Result<Asked> {
    let questions = questions();
    let mut rng = Rng::new(seed);
    for _ in 0..length {
        let question = rng.pick(&questions);
        let id = (rng.next_u64() & 0xffff) as u16;
        let mut query = dns::query(id, &question.name, question.kind, rng.chance(50));
        let serial = (rng.next_u64() >> 32) as u32;
        if sealed {
            query = envelope::seal(&query, serial, 1232)?;
        }
        let Some(mut reply) = answer(server, &query) else {
            return Ok(Asked::NoAnswer);
        };
        if sealed {
            match envelope::open(&reply) {
                Ok(Some(opened)) if opened.serial == serial => reply = opened.message,
                // Not a reply to this question, for a client that asks for the envelope.
                Ok(_) => return Ok(Asked::NoAnswer),
                Err(_) => {
                    writeln!(out, "rejected")?;
                    return Ok(Asked::Rejected);
                }
            }
        }
        writeln!(
            out,
            "{} {}: {}",
            question.name,
            question.kind,
            shown(&reply)
        )?;
    }
    Ok(Asked::All)
}

/// A query is sent again after so long: to a server that has died that is an error at once.
const BRIEF: Duration = Duration::from_millis(250);

/// A server that takes longer does not answer.
const TRIES: usize = 20;

fn answer(server: SocketAddr, query: &[u8]) -> Option<Vec<u8>> {
    for _ in 0..TRIES {
        match crate::load::dns::exchange(server, query, BRIEF) {
            Ok(reply) => return Some(reply),
            Err(error) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                _ => return None,
            },
        }
    }
    None
}

/// All of a message but lifetimes.
fn shown(reply: &[u8]) -> String {
    let Some(mut told) = dns::decode(reply) else {
        return format!("malformed {reply:02x?}");
    };
    for record in told
        .answers
        .iter_mut()
        .chain(&mut told.authority)
        .chain(&mut told.additional)
    {
        record.ttl = 0;
    }
    format!("{told:?}")
}

/// Says what is wrong with a reply, if anything.
///
/// # Errors
/// When it is not well formed.
pub fn compare(question: &Question, id: u16, reply: &[u8]) -> Result<Option<String>> {
    let told = dns::decode(reply).context("the reply is not well formed")?;
    let mut answers: Vec<_> = told
        .answers
        .iter()
        .map(|record| (record.name.clone(), record.kind, record.data.clone()))
        .collect();
    answers.sort();
    let right = told.id == id
        && told.flags & 0x8000 != 0
        && told.rcode == question.rcode
        && told.questions == [(question.name.clone(), question.kind)]
        && answers == question.answers
        && told.answers.iter().all(|record| record.ttl <= 3600);
    Ok((!right).then(|| {
        format!(
            "{} type {}: {:?} with code {} is right, {told:?} came",
            question.name, question.kind, question.answers, question.rcode
        )
    }))
}
