//! From a line to a fault, with the column of whatever is wrong.
//!
//! A line is cut into clauses first; then each part of a fault takes the clauses that belong to
//! it; what is left over at the end does not go with the rest, and is an error that says with
//! what it would.

use std::fmt;
use std::num::{NonZeroI64, NonZeroU64};

use super::bits::{self, Bits};
use super::place::{Location, MemBase, MemExpr, Module};
use super::register::{self, Register};
use super::service::{Field, Passing, Place, ServiceFault, Stored};
use super::storage::{Access, Storage};
use super::{
    Change, Effect, EventPhase, Fault, Hits, Incident, InsnClass, Lasting, Moment, Odds, Part,
    Processes, Replicas, Scope, Target, ThreadPath, Trigger, Victim,
};
use crate::cpus::CpuSet;
use crate::ids::{EventIndex, ReplicaId};
use crate::text;

/// Why a line is not a fault, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FaultError {
    /// Line of the plan, counted from 1; nothing for a single fault.
    pub line_number: Option<usize>,
    /// The line as given.
    pub line: String,
    /// First character of the clause that is wrong, counted from 1.
    pub column: usize,
    /// What the grammar wants there.
    pub requirement: String,
    /// What stands there instead.
    pub found: String,
    /// A change that makes it right.
    pub fix: String,
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line_number {
            Some(line_number) => write!(f, "fault plan, line {line_number}, ")?,
            None => write!(f, "fault \"{}\", ", self.line)?,
        }
        write!(
            f,
            "column {}: {}, found {}",
            self.column, self.requirement, self.found
        )
    }
}

impl FaultError {
    fn new(
        line: &str,
        column: usize,
        requirement: impl Into<String>,
        found: &str,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            line_number: None,
            line: line.to_owned(),
            column,
            requirement: requirement.into(),
            found: found.to_owned(),
            fix: fix.into(),
        }
    }

    /// What stands in a line of the grammar, at this clause, and is beyond what its engine has.
    #[must_use]
    pub fn beyond(
        line: &str,
        clause: &str,
        requirement: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let mut cut = Line::cut(line).ok();
        match cut.as_mut().and_then(|it| Some((it.take(clause)?, it))) {
            Some((clause, line)) => line.wrong(clause, requirement, fix),
            None => Self::new(line, 1, requirement, "none", fix),
        }
    }

    /// A value put together by hand that reads back as another one.
    pub(super) fn not_canonical(line: &str, read: &Fault) -> Self {
        Self::new(
            line,
            1,
            "a fault must print as a line that reads back the same",
            "a value outside the grammar",
            format!("build it as '{read}' does"),
        )
    }
}

/// Every clause: its name, whether it has a value, and with what it goes.
const CLAUSES: [(&str, bool, &str); 43] = [
    ("replica", true, "any fault"),
    ("process", true, "any fault"),
    ("thread", true, "any fault"),
    ("cpu", true, "any fault"),
    ("at", true, "n="),
    ("class", true, "n="),
    ("in", true, "class=, time= or every="),
    ("read", true, "n="),
    ("write", true, "n="),
    ("offset", true, "read= or write="),
    ("n", true, "at=, class=, read= or write="),
    ("one-in", true, "at=, class=, read= or write=, and seed="),
    ("seed", true, "one-in="),
    (
        "event",
        true,
        "a fault without at=, class=, read=, write=, time= or every=",
    ),
    ("after-vote", false, "event="),
    (
        "time",
        true,
        "a fault without at=, class=, read=, write= or event=",
    ),
    (
        "every",
        true,
        "a fault without at=, class=, read=, write= or event=",
    ),
    ("target", true, "a fault in bits"),
    ("reg", true, "bit=, bits= or mask="),
    ("flag", true, "a fault without reg= and bit="),
    ("mem", true, "bit=, bits= or mask="),
    ("rval", false, "at= or class="),
    ("wval", false, "at= or class="),
    ("addr", false, "at= or class="),
    ("raddr", false, "at= or class="),
    ("waddr", false, "at= or class="),
    ("ip", false, "at=, class= or event="),
    ("code", false, "at= or class="),
    (
        "byte",
        true,
        "read=, write= or object=, and bit=, bits= or mask=",
    ),
    ("keep", true, "write= and kind=torn"),
    ("by", true, "read= or write=, and kind=misdirected"),
    ("once", false, "reg=, mem= or rval with at= or class="),
    ("after", false, "reg= or mem= with at= or class="),
    (
        "bit",
        true,
        "a target other than flag=, and without bits= and mask=",
    ),
    (
        "bits",
        true,
        "a target other than flag=, and without bit= and mask=",
    ),
    (
        "mask",
        true,
        "a target other than flag=, and without bit= and bits=",
    ),
    ("stuck", true, "a fault in bits"),
    ("kind", true, "a fault without a target"),
    ("kill", true, "a fault without a target"),
    ("object", true, "replica=, byte= and bit="),
    ("field", true, "object=item: or object=client:"),
    ("message", true, "replica= and bit="),
    ("queue", true, "replica= and bit="),
];

fn known(name: &str) -> Option<&'static (&'static str, bool, &'static str)> {
    CLAUSES.iter().find(|(known, ..)| *known == name)
}

#[derive(Debug, Clone, Copy)]
struct Clause<'a> {
    column: usize,
    text: &'a str,
    name: &'a str,
    /// Empty for a clause without one.
    value: &'a str,
}

struct Line<'a> {
    text: &'a str,
    left: Vec<Clause<'a>>,
}

impl<'a> Line<'a> {
    fn cut(text: &'a str) -> Result<Self, FaultError> {
        let mut line = Self {
            text,
            left: Vec::new(),
        };
        for word in text.split_ascii_whitespace() {
            let start = word.as_ptr().addr() - text.as_ptr().addr();
            let column = text[..start].chars().count() + 1;
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let clause = Clause {
                column,
                text: word,
                name,
                value,
            };
            let Some(&(_, wants_value, _)) = known(name) else {
                let near = text::nearest(name, CLAUSES.iter().map(|(known, ..)| *known));
                let fix = near.map_or_else(
                    || "the clauses are listed in docs/reference/fault-grammar.md".to_owned(),
                    |near| format!("did you mean '{near}'?"),
                );
                return Err(line.wrong(clause, "a fault is made of known clauses", fix));
            };
            match (wants_value, word.contains('='), value.is_empty()) {
                (true, false, _) | (true, true, true) => {
                    return Err(line.wrong(
                        clause,
                        format!("{name} has a value"),
                        format!("{name}=VALUE"),
                    ));
                }
                (false, true, _) => {
                    return Err(line.wrong(clause, format!("{name} has no value"), name));
                }
                _ => {}
            }
            if let Some(first) = line.left.iter().find(|other| other.name == name) {
                let where_first = format!(
                    "{name} is given once, and stands in column {} already",
                    first.column
                );
                return Err(line.wrong(
                    clause,
                    where_first,
                    "remove one; several faults are separated by ';'",
                ));
            }
            line.left.push(clause);
        }
        Ok(line)
    }

    fn take(&mut self, name: &str) -> Option<Clause<'a>> {
        let place = self.left.iter().position(|clause| clause.name == name)?;
        Some(self.left.remove(place))
    }

    /// Takes the one clause out of a group of alternatives.
    fn take_one(&mut self, names: &[&str]) -> Result<Option<Clause<'a>>, FaultError> {
        let mut found = None;
        for name in names {
            let Some(clause) = self.take(name) else {
                continue;
            };
            if let Some(first) = found.replace(clause) {
                let (first, second) = if first.column < clause.column {
                    (first, clause)
                } else {
                    (clause, first)
                };
                let requirement = format!(
                    "a fault has one of {}, and '{}' stands before",
                    alternatives(names),
                    first.text
                );
                return Err(self.wrong(second, requirement, format!("remove '{}'", second.text)));
            }
        }
        Ok(found)
    }

    fn wrong(
        &self,
        clause: Clause<'_>,
        requirement: impl Into<String>,
        fix: impl Into<String>,
    ) -> FaultError {
        FaultError::new(
            self.text,
            clause.column,
            requirement,
            &format!("'{}'", clause.text),
            fix,
        )
    }

    fn missing(&self, requirement: impl Into<String>, fix: impl Into<String>) -> FaultError {
        FaultError::new(
            self.text,
            self.text.trim_end().chars().count() + 1,
            requirement,
            "the end of the line",
            fix,
        )
    }

    /// What no part of the fault took does not go with it.
    fn finish(self) -> Result<(), FaultError> {
        match self.left.first() {
            None => Ok(()),
            Some(&clause) => Err(self.wrong(
                clause,
                goes_with(clause),
                format!("remove '{}'", clause.text),
            )),
        }
    }

    fn positive(&self, clause: Clause<'_>, digits: &str) -> Result<NonZeroU64, FaultError> {
        text::number(digits)
            .and_then(NonZeroU64::new)
            .ok_or_else(|| {
                self.wrong(
                    clause,
                    format!("{} counts from 1", clause.name),
                    format!("{}=1", clause.name),
                )
            })
    }
}

fn goes_with(clause: Clause<'_>) -> String {
    let partners = known(clause.name).map_or("nothing", |(_, _, partners)| partners);
    format!("{} goes with {partners}", clause.name)
}

fn alternatives(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| match known(name) {
            Some((_, true, _)) => format!("{name}="),
            _ => (*name).to_owned(),
        })
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) fn plan(text: &str) -> Result<Vec<Fault>, FaultError> {
    let many = text.lines().nth(1).is_some();
    let mut faults = Vec::new();
    for (number, full) in text.lines().enumerate() {
        let content = full.split('#').next().unwrap_or_default();
        let mut start = 0;
        for part in content.split(';') {
            if !part.trim().is_empty() {
                let fault = line(part).map_err(|why| FaultError {
                    line_number: many.then_some(number + 1),
                    line: full.to_owned(),
                    column: why.column + content[..start].chars().count(),
                    ..why
                })?;
                faults.push(fault);
            }
            start += part.len() + 1;
        }
    }
    Ok(faults)
}

/// Names of the clauses that say when a program is struck; `every=` may stand beside `time=`.
const MOMENTS: [&str; 7] = ["at", "class", "read", "write", "event", "time", "every"];
/// Names of the clauses that name a place in a service.
const PLACES: [&str; 3] = ["object", "message", "queue"];

pub(super) fn line(text: &str) -> Result<Fault, FaultError> {
    let mut line = Line::cut(text)?;
    let place = line.left.iter().find(|it| PLACES.contains(&it.name));
    if let Some(&clause) = place {
        return Err(line.wrong(
            clause,
            format!(
                "{}= is a place in a service, which steadfast kv strike hits",
                clause.name
            ),
            format!("steadfast kv strike '{}'", text.trim()),
        ));
    }
    let victim = victim(&mut line)?;
    let trigger = trigger(&mut line)?;
    let effect = effect(&mut line, &trigger)?;
    line.finish()?;
    Ok(Fault {
        victim,
        trigger,
        effect,
    })
}

pub(super) fn service(text: &str) -> Result<ServiceFault, FaultError> {
    let mut line = Line::cut(text)?;
    let Some(clause) = line.take_one(&PLACES)? else {
        let moment = line.left.iter().find(|it| MOMENTS.contains(&it.name));
        if let Some(&clause) = moment {
            return Err(line.wrong(
                clause,
                format!(
                    "{}= is a moment of a program, which steadfast run --flip and inject hit",
                    clause.name
                ),
                "object=item:KEY byte=2 bit=3, or message=reply bit=77",
            ));
        }
        return Err(line.missing(
            format!(
                "a strike says what it hits: one of {}",
                alternatives(&PLACES)
            ),
            "object=item:KEY byte=2 bit=3, or message=reply bit=77",
        ));
    };
    let Some(whom) = line.take("replica") else {
        return Err(line.missing("a strike says whom it hits: replica=", "replica=1"));
    };
    let replica = text::number(whom.value)
        .and_then(|n| u8::try_from(n).ok())
        .filter(|n| *n < Replicas::COUNT_MAX)
        .map(ReplicaId)
        .ok_or_else(|| {
            let numbers = format!("a strike has one replica, below {}", Replicas::COUNT_MAX);
            line.wrong(whom, numbers, "replica=1")
        })?;
    let place = if clause.name == "object" {
        stored(&mut line, clause)?
    } else {
        let Some(passing) = Passing::from_word(clause.text) else {
            let words = Passing::ALL.iter().map(|passing| passing.word());
            let own = words.filter(|word| word.split('=').next() == Some(clause.name));
            let own = own.collect::<Vec<_>>();
            let fix = text::nearest(clause.text, own.iter().copied());
            let fix = fix.unwrap_or(own[0]).to_owned();
            return Err(line.wrong(clause, format!("it is one of {}", own.join(", ")), fix));
        };
        let bit = below(&mut line, "bit", passing.bits())?;
        Place::Next { passing, bit }
    };
    line.finish()?;
    Ok(ServiceFault { replica, place })
}

/// A bit of an object: its name, the part of it that is struck, and where in that.
fn stored(line: &mut Line<'_>, clause: Clause<'_>) -> Result<Place, FaultError> {
    let object = match clause.value.split_once(':') {
        Some(("log", "head")) => None,
        Some(("item", key)) if !key.is_empty() => Some(Stored::Item(key.to_owned())),
        Some(("client", name)) if !name.is_empty() => Some(Stored::Client(name.to_owned())),
        _ => {
            return Err(line.wrong(
                clause,
                "object= takes item:KEY, client:NAME for the replies kept of a client, or log:head",
                "object=item:a",
            ));
        }
    };
    let field = match (&object, line.take("field")) {
        (Some(_), Some(clause)) => Field::from_word(clause.value).ok_or_else(|| {
            let words = Field::ALL.iter().map(|field| field.word());
            let fix = text::nearest(clause.value, words.clone()).unwrap_or("value");
            let words = words.collect::<Vec<_>>().join(", ");
            line.wrong(
                clause,
                format!("field= takes one of {words}"),
                format!("field={fix}"),
            )
        })?,
        (None, Some(clause)) => {
            return Err(line.wrong(clause, goes_with(clause), "remove it: log:head has bytes"));
        }
        (_, None) => Field::Value,
    };
    let byte = below(line, "byte", u32::MAX)?;
    let bit = u8::try_from(below(line, "bit", 8)?).unwrap_or(0);
    Ok(match object {
        Some(object) => Place::Stored {
            object,
            field,
            byte,
            bit,
        },
        None => Place::Head { byte, bit },
    })
}

/// A clause that counts from 0.
fn below(line: &mut Line<'_>, name: &str, limit: u32) -> Result<u32, FaultError> {
    let Some(clause) = line.take(name) else {
        return Err(line.missing(format!("a strike needs {name}="), format!("{name}=0")));
    };
    text::number(clause.value)
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| *n < limit)
        .ok_or_else(|| {
            line.wrong(
                clause,
                format!("{name}= takes a number below {limit}"),
                format!("{name}=0"),
            )
        })
}

fn victim(line: &mut Line<'_>) -> Result<Victim, FaultError> {
    let mut victim = Victim::default();
    if let Some(clause) = line.take("replica") {
        victim.replicas = Some(replicas(line, clause)?);
    }
    if let Some(clause) = line.take("process") {
        let rank = text::number(clause.value)
            .and_then(|n| u32::try_from(n).ok())
            .map(Processes::Rank);
        let all = (clause.value == "all").then_some(Processes::All);
        victim.process = Some(rank.or(all).ok_or_else(|| {
            line.wrong(
                clause,
                "process= takes all or a rank, the first process being 0",
                "process=0",
            )
        })?);
    }
    if let Some(clause) = line.take("thread") {
        victim.thread = Some(thread(clause.value).ok_or_else(|| {
            line.wrong(
                clause,
                "thread= takes main, or main.2.1 for the first child of its second child",
                "thread=main",
            )
        })?);
    }
    if let Some(clause) = line.take("cpu") {
        let cpus: CpuSet = clause.value.parse().map_err(|_| {
            line.wrong(
                clause,
                "cpu= takes ascending numbers and ranges, each once",
                "cpu=0,2-3",
            )
        })?;
        victim.cpus = Some(cpus);
    }
    Ok(victim)
}

fn replicas(line: &Line<'_>, clause: Clause<'_>) -> Result<Replicas, FaultError> {
    match clause.value {
        "leader" => return Ok(Replicas::Leader),
        "follower" => return Ok(Replicas::Follower),
        "all" => return Ok(Replicas::All),
        _ => {}
    }
    let mut set = 0_u8;
    for part in clause.value.split(',') {
        let bit = text::number(part)
            .filter(|&n| n < u64::from(Replicas::COUNT_MAX))
            .map(|n| 1_u8 << n);
        match bit {
            Some(bit) if set & bit == 0 => set |= bit,
            _ => {
                return Err(line.wrong(
                    clause,
                    format!(
                        "replica= takes leader, follower, all, or numbers below {}, each once",
                        Replicas::COUNT_MAX
                    ),
                    "replica=1",
                ));
            }
        }
    }
    Ok(Replicas::Set(set))
}

fn thread(path: &str) -> Option<ThreadPath> {
    let mut ranks = path.split('.');
    (ranks.next() == Some("main")).then_some(())?;
    let ranks: Option<Vec<_>> = ranks
        .map(|rank| text::number(rank).and_then(NonZeroU64::new))
        .collect();
    ThreadPath::new(ranks?)
}

fn trigger(line: &mut Line<'_>) -> Result<Trigger, FaultError> {
    // time= and every= may stand together, so the group is taken by its first member.
    let every = line.take("every");
    match line.take_one(&MOMENTS[..6])? {
        Some(clause) if clause.name != "time" && every.is_some() => {
            let every = every.unwrap_or(clause);
            Err(line.wrong(
                every,
                format!("every= goes with time=, and '{}' stands there", clause.text),
                format!("remove '{}'", every.text),
            ))
        }
        Some(clause) if clause.name == "at" => {
            let at: Location = clause
                .value
                .parse()
                .map_err(|why| line.wrong(clause, why, "at=bzip2+0x1a2f0"))?;
            Ok(Trigger::Site {
                at,
                hits: hits(line, "at=")?,
            })
        }
        Some(clause) if clause.name == "class" => {
            let classes = classes(line, clause)?;
            let within = scope(line)?;
            Ok(Trigger::Class {
                classes,
                within,
                hits: hits(line, "class=")?,
            })
        }
        Some(clause) if clause.name == "read" || clause.name == "write" => {
            let access = if clause.name == "read" {
                Access::Read
            } else {
                Access::Write
            };
            let path = clause
                .value
                .parse()
                .map_err(|why: String| line.wrong(clause, why, format!("{}=*.db", clause.name)))?;
            let offset = match line.take("offset") {
                None => None,
                Some(clause) => Some(clause.value.parse().map_err(|()| {
                    line.wrong(
                        clause,
                        "offset= takes a position in the file, or a range of them",
                        "offset=4096 or offset=4096-8191",
                    )
                })?),
            };
            Ok(Trigger::File {
                access,
                path,
                offset,
                hits: hits(line, &format!("{access}="))?,
            })
        }
        Some(clause) if clause.name == "event" => {
            let index = EventIndex(line.positive(clause, clause.value)?.get());
            let phase = match line.take("after-vote") {
                Some(_) => EventPhase::AfterVote,
                None => EventPhase::BeforeClaim,
            };
            Ok(Trigger::Event { index, phase })
        }
        time => {
            let span = |clause: Clause<'_>| {
                duration(clause.value).ok_or_else(|| {
                    let form = format!("{}= takes a whole number of ns, us, ms or s", clause.name);
                    line.wrong(clause, form, format!("{}=10ms", clause.name))
                })
            };
            let after_ns = time.map(span).transpose()?;
            let every_ns = match every {
                None => None,
                Some(clause) => Some(NonZeroU64::new(span(clause)?).ok_or_else(|| {
                    line.wrong(clause, "every= takes a period above zero", "every=10ms")
                })?),
            };
            if after_ns.is_none() && every_ns.is_none() {
                return Err(line.missing(
                    "a fault says when it happens: at=, class=, read=, write=, event=, time= or every=",
                    "at=MODULE+OFFSET n=1, or event=1",
                ));
            }
            Ok(Trigger::Clock {
                after_ns,
                every_ns,
                within: scope(line)?,
            })
        }
    }
}

fn hits(line: &mut Line<'_>, whose: &str) -> Result<Hits, FaultError> {
    let Some(clause) = line.take("n") else {
        return Err(line.missing(
            format!("{whose} needs n=, the executions that are hit"),
            "n=1 for the first, n=1.. for all",
        ));
    };
    let form = || {
        line.wrong(
            clause,
            "n= takes K, K.., K..M, and %STEP after a range, with 1 <= K < M",
            "n=1000 or n=1..%10",
        )
    };
    let (range, step) = match clause.value.split_once('%') {
        Some((range, step)) => {
            // A step of 1 is no step: it would be a second spelling of the same range.
            let step = text::number(step)
                .filter(|&step| step > 1)
                .and_then(NonZeroU64::new);
            (range, Some(step.ok_or_else(form)?))
        }
        None => (clause.value, None),
    };
    let number = |digits: &str| {
        text::number(digits)
            .and_then(NonZeroU64::new)
            .ok_or_else(form)
    };
    let (first, last) = match range.split_once("..") {
        None if step.is_some() => return Err(form()),
        None => (number(range)?, Some(number(range)?)),
        Some((first, "")) => (number(first)?, None),
        Some((first, last)) => (number(first)?, Some(number(last)?)),
    };
    if range.contains("..") && last.is_some_and(|last| last <= first) {
        return Err(form());
    }
    let odds = match (line.take("one-in"), line.take("seed")) {
        (None, None) => None,
        (Some(one_in), Some(seed)) => Some(Odds {
            one_in: line.positive(one_in, one_in.value)?,
            seed: text::number(seed.value)
                .ok_or_else(|| line.wrong(seed, "seed= takes a number below 2^64", "seed=1"))?,
        }),
        (Some(_), None) => {
            return Err(line.missing(
                "one-in= needs seed=, or the run could not be repeated",
                "seed=1",
            ));
        }
        (None, Some(seed)) => {
            return Err(line.wrong(
                seed,
                "seed goes with one-in=",
                format!("remove '{}'", seed.text),
            ));
        }
    };
    Ok(Hits {
        first,
        last,
        step: step.unwrap_or(NonZeroU64::MIN),
        odds,
    })
}

fn classes(line: &Line<'_>, clause: Clause<'_>) -> Result<Vec<InsnClass>, FaultError> {
    let mut classes = Vec::new();
    for word in clause.value.split(',') {
        let Some(class) = InsnClass::from_word(word) else {
            let words = InsnClass::ALL.iter().map(|class| class.word());
            let fix = match text::nearest(word, words.clone()) {
                Some(near) => format!("class={near}"),
                None => format!("one of {}", words.collect::<Vec<_>>().join(", ")),
            };
            return Err(line.wrong(clause, "class= takes instruction classes", fix));
        };
        if classes.contains(&class) {
            return Err(line.wrong(
                clause,
                "class= names each class once",
                format!("remove one '{word}'"),
            ));
        }
        classes.push(class);
    }
    classes.sort_unstable();
    Ok(classes)
}

fn scope(line: &mut Line<'_>) -> Result<Option<Scope>, FaultError> {
    let Some(clause) = line.take("in") else {
        return Ok(None);
    };
    let (module, symbol) = match clause.value.split_once('!') {
        Some((module, symbol)) => (module, Some(symbol)),
        None => (clause.value, None),
    };
    // A location without an offset has the same rules for names.
    let place = match symbol {
        Some(symbol) => format!("{module}!{symbol}"),
        None => format!("{module}+0"),
    };
    match place.parse() {
        Ok(Location::Symbol {
            module,
            symbol,
            offset: 0,
        }) if clause.value.ends_with(&symbol) => Ok(Some(Scope {
            module,
            symbol: Some(symbol),
        })),
        Ok(Location::Offset { module, offset: 0 }) => Ok(Some(Scope {
            module,
            symbol: None,
        })),
        Ok(_) => Err(line.wrong(
            clause,
            "in= takes MODULE or MODULE!SYMBOL",
            "in=libc.so.6!memcpy",
        )),
        Err(why) => Err(line.wrong(clause, why, "in=libc.so.6!memcpy")),
    }
}

/// Names of the clauses that name a target.
const TARGETS: [&str; 11] = [
    "reg", "flag", "mem", "rval", "wval", "addr", "raddr", "waddr", "ip", "code", "byte",
];

/// What a transfer can have: bytes of it wrong, or one of its own incidents.
fn storage(line: &mut Line<'_>, access: Access) -> Result<Effect, FaultError> {
    let Some(clause) = line.take_one(&["byte", "kind"])? else {
        return Err(line.missing(
            format!("a fault of {access}= says what it hits: byte= or kind="),
            "byte=0 bit=3, kind=misdirected by=4096",
        ));
    };
    if clause.name == "byte" {
        let byte = text::number(clause.value).ok_or_else(|| {
            line.wrong(
                clause,
                "byte= takes a number of bytes",
                "byte=0 for the first",
            )
        })?;
        let target = Target::Data(byte);
        return Ok(Effect::Bits {
            part: Part::App,
            bits: bits_of(line, clause, &target)?,
            target,
            change: change(line)?,
        });
    }
    let own: &[&str] = match access {
        Access::Read => &["stale", "misdirected"],
        Access::Write => &["lost", "torn", "misdirected"],
    };
    if !own.contains(&clause.value) {
        return Err(line.wrong(
            clause,
            format!("a {access} can be {}", own.join(", ")),
            format!("kind={}", own[0]),
        ));
    }
    Ok(Effect::Storage(match clause.value {
        "stale" => Storage::Stale,
        "lost" => Storage::Lost,
        "torn" => {
            let Some(keep) = line.take("keep") else {
                return Err(
                    line.missing("kind=torn needs keep=, the bytes that arrive", "keep=512")
                );
            };
            Storage::Torn {
                keep: text::number(keep.value)
                    .ok_or_else(|| line.wrong(keep, "keep= takes a number of bytes", "keep=512"))?,
            }
        }
        _ => {
            let Some(by) = line.take("by") else {
                return Err(line.missing(
                    "kind=misdirected needs by=, the distance of the other place",
                    "by=4096 or by=-4096",
                ));
            };
            let magnitude = text::number(by.value.strip_prefix('-').unwrap_or(by.value))
                .and_then(|n| i64::try_from(n).ok());
            let by_bytes = magnitude
                .map(|n| if by.value.starts_with('-') { -n } else { n })
                .and_then(NonZeroI64::new);
            Storage::Misdirected {
                by: by_bytes.ok_or_else(|| {
                    line.wrong(
                        by,
                        "by= takes a distance in bytes other than 0",
                        "by=4096 or by=-4096",
                    )
                })?,
            }
        }
    }))
}

fn change(line: &mut Line<'_>) -> Result<Change, FaultError> {
    Ok(match line.take("stuck") {
        None => Change::Flip,
        Some(clause) => match clause.value {
            "0" => Change::Stuck0,
            "1" => Change::Stuck1,
            _ => return Err(line.wrong(clause, "stuck= takes 0 or 1", "stuck=0")),
        },
    })
}

fn effect(line: &mut Line<'_>, trigger: &Trigger) -> Result<Effect, FaultError> {
    if let Trigger::File { access, .. } = trigger {
        return storage(line, *access);
    }
    let mut names = TARGETS.to_vec();
    names.extend(["kind", "kill"]);
    let Some(clause) = line.take_one(&names)? else {
        return Err(line.missing(
            format!("a fault says what it hits: one of {}", alternatives(&names)),
            "reg=rax bit=17, mem=[rsi+8] bit=3, addr bit=40, ip bit=4, kind=crash or kill=9",
        ));
    };
    let at_instruction = matches!(trigger, Trigger::Site { .. } | Trigger::Class { .. });
    match clause.name {
        "kind" => {
            let Some(incident) = Incident::from_word(clause.value) else {
                if Storage::WORDS.contains(&clause.value) {
                    return Err(line.wrong(
                        clause,
                        "this needs a transfer: read= or write=",
                        "write=*.db n=1",
                    ));
                }
                let words = Incident::ALL
                    .iter()
                    .map(|incident| incident.word())
                    .collect::<Vec<_>>()
                    .join(", ");
                return Err(line.wrong(
                    clause,
                    format!("kind= takes one of {words}"),
                    "kind=crash",
                ));
            };
            if matches!(
                incident,
                Incident::Skip | Incident::Repeat | Incident::Invert
            ) && !at_instruction
            {
                return Err(line.wrong(
                    clause,
                    "this needs an instruction: at= or class=",
                    "at=MODULE+OFFSET n=1",
                ));
            }
            return Ok(Effect::Incident(incident));
        }
        "kill" => {
            // 64 is the last real-time signal (signal(7)).
            let signal = text::number(clause.value)
                .filter(|n| (1..=64).contains(n))
                .and_then(|n| u8::try_from(n).ok());
            return signal.map(Effect::Kill).ok_or_else(|| {
                line.wrong(clause, "kill= takes a signal number from 1 to 64", "kill=9")
            });
        }
        _ => {}
    }
    let needs_instruction = matches!(
        clause.name,
        "rval" | "wval" | "addr" | "raddr" | "waddr" | "code"
    ) || clause.name == "ip" && matches!(trigger, Trigger::Clock { .. });
    if needs_instruction && !at_instruction {
        return Err(line.wrong(clause, goes_with(clause), "at=MODULE+OFFSET n=1"));
    }
    if clause.name == "byte" {
        return Err(line.wrong(clause, goes_with(clause), "read=*.db n=1"));
    }
    let (target, flag_bits) = target(line, clause, at_instruction)?;
    let part = part(line, clause, trigger, &target)?;
    let bits = match flag_bits {
        Some(bits) => bits,
        None => bits_of(line, clause, &target)?,
    };
    Ok(Effect::Bits {
        part,
        target,
        bits,
        change: change(line)?,
    })
}

/// The target, and its bits where its name implies them.
fn target(
    line: &mut Line<'_>,
    clause: Clause<'_>,
    at_instruction: bool,
) -> Result<(Target, Option<Bits>), FaultError> {
    let moment = |line: &mut Line<'_>| -> Result<Moment, FaultError> {
        if !at_instruction {
            return Ok(Moment::Before);
        }
        Ok(match line.take_one(&["once", "after"])? {
            Some(clause) if clause.name == "once" => Moment::BeforeOnly,
            Some(_) => Moment::After,
            None => Moment::Before,
        })
    };
    Ok(match clause.name {
        "reg" => {
            let register: Register = clause
                .value
                .parse()
                .map_err(|fix: String| line.wrong(clause, "reg= takes a register", fix))?;
            (Target::Register(register, moment(line)?), None)
        }
        "flag" => {
            let mut bits = Bits::default();
            for name in clause.value.split(',') {
                let bit = register::FLAGS
                    .iter()
                    .find(|(flag, _)| *flag == name)
                    .map(|&(_, bit)| bit);
                if !bit.is_some_and(|bit| bits.insert(bit)) {
                    let names = register::FLAGS.map(|(flag, _)| flag).join(", ");
                    let requirement = format!("flag= takes {names}, each once");
                    return Err(line.wrong(
                        clause,
                        requirement,
                        "flag=zf, or reg=rflags bit=N for the others",
                    ));
                }
            }
            (Target::Register(Register::Flags, moment(line)?), Some(bits))
        }
        "mem" => {
            let expr: MemExpr = clause
                .value
                .parse()
                .map_err(|why: String| line.wrong(clause, why, "mem=[rsi+8]"))?;
            (Target::Memory(expr, moment(line)?), None)
        }
        "rval" => {
            let lasting = match line.take("once") {
                Some(_) => Lasting::ReadOnly,
                None => Lasting::Sticky,
            };
            (Target::ReadValue(lasting), None)
        }
        "wval" => (Target::WrittenValue, None),
        "addr" => (Target::Address, None),
        "raddr" => (Target::ReadAddress, None),
        "waddr" => (Target::WrittenAddress, None),
        "ip" => (Target::Ip, None),
        _ => (Target::Code, None),
    })
}

/// Whose state it is: said by `target=`, or by a place that belongs to one part only.
fn part(
    line: &mut Line<'_>,
    what: Clause<'_>,
    trigger: &Trigger,
    target: &Target,
) -> Result<Part, FaultError> {
    let implied = match target {
        Target::Memory(expr, _) => match &expr.base {
            MemBase::Entry if !matches!(trigger, Trigger::Event { .. }) => {
                return Err(line.wrong(
                    what,
                    "[entry] is the log entry of an event",
                    "event=1, or mem=[log+0x40]",
                ));
            }
            MemBase::Log | MemBase::Entry => Some(Part::Log),
            MemBase::Static(location) if location.module() == Some(&Module::Agent) => {
                Some(Part::Agent)
            }
            _ => None,
        },
        _ => None,
    };
    let implied = implied.or_else(|| match trigger {
        Trigger::Site { at, .. } if at.module() == Some(&Module::Agent) => Some(Part::Agent),
        _ => None,
    });
    let Some(clause) = line.take("target") else {
        return Ok(implied.unwrap_or(Part::App));
    };
    let Some(said) = Part::from_word(clause.value) else {
        return Err(line.wrong(clause, "target= takes app, agent or log", "target=agent"));
    };
    match implied {
        Some(implied) if implied != said => Err(line.wrong(
            clause,
            format!("the place belongs to {implied}"),
            format!("target={implied}"),
        )),
        None if said == Part::Log => Err(line.wrong(
            clause,
            "target=log needs a place in the log",
            "mem=[entry+8] or mem=[log+0x40]",
        )),
        _ => Ok(said),
    }
}

fn bits_of(line: &mut Line<'_>, what: Clause<'_>, target: &Target) -> Result<Bits, FaultError> {
    // An instruction has at most 15 bytes (Intel SDM vol. 2, chapter 2).
    let width = match target {
        Target::Register(register, _) => register.bits(),
        Target::Memory(..) | Target::ReadValue(_) | Target::WrittenValue | Target::Data(_) => {
            bits::WIDTH_MAX
        }
        Target::Address | Target::ReadAddress | Target::WrittenAddress | Target::Ip => 64,
        Target::Code => 15 * 8,
    };
    let Some(clause) = line.take_one(&["bit", "bits", "mask"])? else {
        return Err(line.missing(
            format!("'{}' needs bit=, bits= or mask=", what.text),
            "bit=0",
        ));
    };
    let bits = match clause.name {
        "bit" => text::number(clause.value)
            .and_then(|bit| u16::try_from(bit).ok())
            .and_then(Bits::single)
            .ok_or_else(|| {
                line.wrong(
                    clause,
                    format!("bit= takes one number below {width}"),
                    "bit=0, or bits=0,3-5",
                )
            })?,
        "bits" => {
            Bits::parse_list(clause.value).map_err(|why| line.wrong(clause, why, "bits=0,3-5"))?
        }
        _ => Bits::parse_mask(clause.value).map_err(|why| line.wrong(clause, why, "mask=0xff"))?,
    };
    match bits.highest() {
        Some(highest) if highest < width => Ok(bits),
        _ => Err(line.wrong(
            clause,
            format!("'{}' has bits 0 to {}", what.text, width - 1),
            format!("a bit below {width}"),
        )),
    }
}

/// Nanoseconds, printed in the largest unit that keeps them whole.
pub(super) struct Duration(pub(super) u64);

const UNITS: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = UNITS
            .iter()
            .rev()
            .find(|(_, factor)| self.0.is_multiple_of(*factor))
            .unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

fn duration(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at(end);
    let &(_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    text::number(digits)?.checked_mul(factor)
}
