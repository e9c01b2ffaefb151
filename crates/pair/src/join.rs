//! Join: a site that was lost comes back while the program runs on the other one, and becomes its secondary.
//!
//! ```text
//!   joiner                                      survivor, alone
//!   connects, greets ─────────────────────────► greets: same command, packages, kernel, processor
//!   manifest of its files ────────────────────► sends what they lack            ┐ the program
//!   starts a process that is nobody,
//!   and gives it that memory ◄───────────────── sends the program's memory      ┘ runs
//!   ready ────────────────────────────────────► pauses the program
//!   files, memory ◄──────────────────────────── what has changed since, and manifest ┐ it stands
//!   ledger, descriptors, registers ◄─────────── the rest (site/join.rs)              │ still
//!   ready ────────────────────────────────────► go, under a new name                 ┘
//! ```
//!
//! Invariants
//!  1. Until the joiner is ready it is nobody: whatever fails, the survivor goes on alone.
//!  2. Files are handed on as the survivor's ledger has them, page by page; a page of its disk that is wrong ends the attempt.
//!  3. The survivor resumes only when the joiner holds the same program, or is given up.
//!
//! Not covered: record locks on the joiner's files; connections that nobody has accepted yet.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver as Inbox, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadfast_replica::site::{Given, Handed, Pages, Part, Site};

use crate::alone::{self, Address};
use crate::bring;
use crate::cli::Side;
use crate::control::Outcome;
use crate::error::PairError;
use crate::files::Files;
use crate::hold;
use crate::lead::{Leading, Link};
use crate::ledger::Ledger;
use crate::link::{self, Frame, Greeting, Manifest, Receiver, Sender, Tag, hex};
use crate::prepare::{self, Prepared};
use crate::primary::{Shared, answer, connect};
use crate::secondary::Follower;
use crate::tls::Security;

/// For one word of the other site while the program stands still.
const STILL_LIMIT: Duration = Duration::from_secs(10);
/// For one word of it before that: it may have to read all its files.
const BEFORE_LIMIT: Duration = Duration::from_secs(600);

/// What stands before the bytes of a [`Tag::Given`].
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    event: u64,
    number: u32,
    ranges: Vec<(u64, u64)>,
    sum: String,
    mappings: usize,
    descriptors: usize,
    files: Vec<(i32, PathBuf, bool)>,
    lines: Vec<hold::Told>,
}

/// What was sent while the program stood still.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Brought {
    pub(crate) files: u64,
    pub(crate) pages: u64,
    /// Pages of memory.
    pub(crate) memory: u64,
}

/// A site that has everything but what changes until the program is paused.
#[derive(Debug)]
pub(crate) struct Candidate {
    sender: Sender,
    receiver: Receiver,
    name: String,
    has: Manifest,
    handed: Handed,
}

/// What the thread at the door works with.
struct Host {
    site: Arc<Site>,
    security: Security,
    greeting: Greeting,
    data: Vec<PathBuf>,
}

/// Where a site that comes back is let in.
#[derive(Debug)]
pub(crate) struct Door(Inbox<Candidate>);

impl Door {
    /// Waits for one from now on, until `shared` is closed or handed on.
    pub(crate) fn open(leading: &Leading<'_>, shared: &Arc<Shared>) -> Self {
        let (found, inbox) = channel();
        let host = Host {
            site: Arc::clone(&leading.site),
            security: leading.security.clone(),
            greeting: leading.greeting.clone(),
            data: leading.greeting.data.iter().map(PathBuf::from).collect(),
        };
        let (address, welcome) = (leading.side.listen.clone(), welcome(leading.side));
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let listener = match TcpListener::bind(&address)
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            {
                Ok(listener) => listener,
                Err(error) => {
                    eprintln!("steadfast pair: no site can join this one at {address}: {error}");
                    return;
                }
            };
            while !shared.is_closing() && !shared.hands_on() {
                let Ok((stream, from)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                };
                if welcome.is_some_and(|welcome| welcome != from.ip()) {
                    continue;
                }
                match host.let_in(stream) {
                    Ok(candidate) => {
                        let _ = found.send(candidate);
                        return;
                    }
                    Err(error) => eprintln!(
                        "steadfast pair: a site that wants to join, {from}, is refused: {error}"
                    ),
                }
            }
        });
        Self(inbox)
    }

    pub(crate) fn candidate(&self) -> Option<Candidate> {
        self.0.try_recv().ok()
    }
}

/// Who may join, if the command line says so by number.
fn welcome(side: &Side) -> Option<IpAddr> {
    let peer = side.peer.as_ref()?;
    let host = peer
        .rsplit_once(':')
        .map_or(peer.as_str(), |(host, _)| host);
    host.parse().ok()
}

fn fresh_name() -> Result<String, PairError> {
    let mut random = [0; 16];
    steadfast_sys::random::fill(&mut random).map_err(|source| PairError::Kernel {
        part: "randomness",
        source,
    })?;
    Ok(hex(&random))
}

fn pages_of_memory(
    handed: &mut Handed,
    site: &Site,
    sender: &Sender,
) -> io::Result<(Vec<std::ops::Range<u64>>, u128, u64)> {
    let mut pages = 0;
    let (ranges, sum) = handed.give(site, |address, bytes| {
        pages += (bytes.len() / 4096) as u64;
        sender.send(Tag::Memory, &[&address.to_le_bytes(), bytes])
    })?;
    Ok((ranges, sum, pages))
}

impl Host {
    fn let_in(&self, stream: TcpStream) -> Result<Candidate, PairError> {
        stream.set_nonblocking(false).map_err(PairError::Link)?;
        let (sender, receiver) = self.security.accepted(stream)?;
        sender
            .expect_within(BEFORE_LIMIT)
            .map_err(PairError::Link)?;
        let told = self.prepare(&sender, receiver);
        match told {
            Ok((receiver, name, has, handed)) => Ok(Candidate {
                sender,
                receiver,
                name,
                has,
                handed,
            }),
            Err(error) => {
                let _ = sender.say(Tag::Refusal, &error.to_string());
                Err(error)
            }
        }
    }

    /// All that can be done while the program runs.
    fn prepare(
        &self,
        sender: &Sender,
        mut receiver: Receiver,
    ) -> Result<(Receiver, String, Manifest, Handed), PairError> {
        let theirs: Greeting = answer(&mut receiver, Tag::Greeting)?;
        let name = fresh_name()?;
        let own = Greeting {
            random: name.clone(),
            right: None,
            ..self.greeting.clone()
        };
        sender.say(Tag::Greeting, &own).map_err(PairError::Link)?;
        if let Some((what, here, there)) = own.differences(&theirs).into_iter().next() {
            return Err(PairError::Unequal { what, here, there });
        }
        let theirs: Manifest = answer(&mut receiver, Tag::Manifest)?;
        // What its disk holds is read and compared with the ledger in the end, when nothing changes.
        let mut has = prepare::manifest(&self.data, &Ledger::in_memory())?;
        bring::send_live(sender, &mut has, &theirs)?.tell("a site that comes back gets");
        let mut handed = Handed::default();
        pages_of_memory(&mut handed, &self.site, sender).map_err(PairError::Link)?;
        let mappings = self.site.mappings().map_err(PairError::Stopped)?;
        sender
            .send(Tag::Ready, &[&mappings])
            .map_err(PairError::Link)?;
        let () = answer(&mut receiver, Tag::Ready)?;
        Ok((receiver, name, has, handed))
    }
}

impl Candidate {
    pub(crate) fn refuse(self, why: &str) {
        eprintln!("steadfast pair: a site that came back did not join: {why}");
        let _ = self.sender.say(Tag::Refusal, &why);
    }

    /// The rest, with the program paused.
    pub(crate) fn hand_on(mut self, leading: &Leading<'_>) -> Result<(Link, Brought), PairError> {
        let handed = self.still(leading);
        match handed {
            Ok(brought) => {
                let lost_after = Duration::from_millis(leading.side.lost_after);
                self.sender
                    .expect_within(lost_after)
                    .map_err(PairError::Link)?;
                let link = Link {
                    sender: self.sender,
                    receiver: self.receiver,
                    name: self.name,
                };
                Ok((link, brought))
            }
            Err(error) => {
                let _ = self.sender.say(Tag::Refusal, &error.to_string());
                Err(error)
            }
        }
    }

    fn still(&mut self, leading: &Leading<'_>) -> Result<Brought, PairError> {
        self.sender
            .expect_within(STILL_LIMIT)
            .map_err(PairError::Link)?;
        let mut given = leading.site.hand_on().map_err(PairError::Stopped)?;
        let data: Vec<PathBuf> = leading.greeting.data.iter().map(PathBuf::from).collect();
        let mut files = leading.files.lock().expect("no panic under it");
        let manifest = prepare::manifest_of_ledger(&data, &files.ledger)?;
        let brought = bring::send_written(&self.sender, &manifest, &self.has)?;
        self.sender
            .say(Tag::Manifest, &manifest)
            .map_err(PairError::Link)?;
        let (ranges, sum, memory) = pages_of_memory(&mut self.handed, &leading.site, &self.sender)
            .map_err(PairError::Link)?;
        (given.ranges, given.sum) = (ranges, sum);
        let unread = files
            .clients
            .give_unread(leading.site.pid())
            .map_err(|error| PairError::Stopped(error.to_string()))?;
        let descriptors = (files.descriptors(), files.clients.lines.tell(&unread));
        send_given(&self.sender, &given, descriptors).map_err(PairError::Link)?;
        let () = answer(&mut self.receiver, Tag::Ready)?;
        self.sender.say(Tag::Go, &()).map_err(PairError::Link)?;
        Ok(Brought {
            files: brought.files,
            pages: brought.pages,
            memory,
        })
    }
}

fn send_given(sender: &Sender, given: &Given, (files, lines): Descriptors) -> io::Result<()> {
    let head = Head {
        event: given.event,
        number: given.number,
        ranges: given.ranges.iter().map(|r| (r.start, r.end)).collect(),
        sum: format!("{:032x}", given.sum),
        mappings: given.mappings.len(),
        descriptors: given.descriptors.len(),
        files,
        lines,
    };
    let head = serde_json::to_vec(&head).map_err(io::Error::other)?;
    let len = u32::try_from(head.len()).map_err(io::Error::other)?;
    sender.send(
        Tag::Given,
        &[
            &len.to_le_bytes(),
            &head,
            &given.mappings,
            &given.descriptors,
            &given.registers,
        ],
    )
}

/// Those that name files, and those of connections.
type Descriptors = (Vec<(i32, PathBuf, bool)>, Vec<hold::Told>);
type Told = (Given, Descriptors);

fn parse_given(frame: &Frame) -> Option<Told> {
    let (len, rest) = frame.body.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (head, rest) = rest.split_at_checked(len)?;
    let head: Head = serde_json::from_slice(head).ok()?;
    let (mappings, rest) = rest.split_at_checked(head.mappings)?;
    let (descriptors, registers) = rest.split_at_checked(head.descriptors)?;
    let given = Given {
        event: head.event,
        number: head.number,
        mappings: mappings.to_vec(),
        ranges: head.ranges.iter().map(|(from, to)| *from..*to).collect(),
        sum: link::digest_of(&head.sum).ok()?,
        descriptors: descriptors.to_vec(),
        registers: registers.to_vec(),
    };
    Some((given, (head.files, head.lines)))
}

/// Runs the program as secondary of a site that runs it already; how it ended.
pub(crate) fn run(side: &Side) -> Result<Outcome, PairError> {
    let mut prepared = prepare::prepare(side)?;
    let address = side.address.as_deref().map(Address::parse).transpose()?;
    let held = alone::hold(side, address.as_ref())?;
    let security = Security::of(side)?;
    let (sender, mut receiver) = security.connected(connect(side)?)?;
    let mut pages = Pages::default();
    let greeted = greet(&mut prepared, &sender, &mut receiver, &mut pages);
    if let Err(error) = &greeted {
        let _ = sender.say(Tag::Refusal, &error.to_string());
    }
    let (ledger, mappings) = greeted?;
    let site = Arc::new(prepare::start(&prepared, Part::Secondary, [0; 16], true)?);
    let joined = stand(&site, &mappings, &pages).and_then(|()| {
        become_secondary(
            &prepared,
            &site,
            (&sender, &mut receiver),
            ledger,
            &mappings,
            pages,
        )
    });

    if let Err(error) = &joined {
        let _ = sender.say(Tag::Refusal, &error.to_string());
        steadfast_sys::child::end(site.pid());
    }
    let (files, event) = joined?;
    eprintln!("steadfast pair: this site has joined, and is the secondary from event {event} on");
    Follower {
        side,
        site,
        files: Arc::new(Mutex::new(files)),
        greeting: prepared.greeting,
        address,
        hold: held,
        security,
    }
    .run(sender, receiver, Site::begun_at(0, event))
}

fn greet(
    prepared: &mut Prepared,
    sender: &Sender,
    receiver: &mut Receiver,
    pages: &mut Pages,
) -> Result<(Ledger, Vec<u8>), PairError> {
    prepared.greeting.right = None;
    sender
        .say(Tag::Greeting, &prepared.greeting)
        .map_err(PairError::Link)?;
    let theirs: Greeting = answer(receiver, Tag::Greeting)?;
    if let Some((what, here, there)) = prepared.greeting.differences(&theirs).into_iter().next() {
        return Err(PairError::Unequal { what, here, there });
    }
    prepared.greeting.random = theirs.random;
    let ledger = Ledger::open(&prepared.ledger_dir)?;
    // What its own ledger says does not matter: the survivor's files are right.
    let own = prepare::manifest(&prepared.data, &Ledger::in_memory())?;
    sender.say(Tag::Manifest, &own).map_err(PairError::Link)?;
    bring::receive(receiver, &prepared.data)?.tell("the other site has given");
    let last = take_memory(receiver, pages)?;
    if last.tag != Tag::Ready {
        return Err(unexpected(&last));
    }
    Ok((ledger, last.body))
}

/// Pages, until something else comes.
fn take_memory(receiver: &mut Receiver, pages: &mut Pages) -> Result<Frame, PairError> {
    loop {
        let frame = receiver.next().map_err(PairError::Link)?;
        match (frame.tag, frame.body.split_first_chunk()) {
            (Tag::Memory, Some((address, bytes))) => {
                pages.put(u64::from_le_bytes(*address), bytes);
            }
            (Tag::Refusal, _) => {
                return Err(PairError::Refused(frame.parse().unwrap_or_default()));
            }
            _ => return Ok(frame),
        }
    }
}

fn unexpected(frame: &Frame) -> PairError {
    PairError::Link(io::Error::other(format!(
        "the program was expected, {:?} came",
        frame.tag
    )))
}

/// Starts a process that is nobody, and gives it the memory that has come.
fn stand(site: &Site, mappings: &[u8], pages: &Pages) -> Result<(), PairError> {
    // The thread that waits for the program is not to take signals that are the program's.
    let _ = steadfast_sys::signals::block_all();
    site.go()?;
    site.stand()
        .and_then(|()| site.map(mappings, pages))
        .map_err(cannot)
}

/// From a process that is nobody to the survivor's program, one event before both go on.
fn become_secondary(
    prepared: &Prepared,
    site: &Site,
    (sender, receiver): (&Sender, &mut Receiver),
    mut ledger: Ledger,
    mappings: &[u8],
    pages: Pages,
) -> Result<(Files, u64), PairError> {
    sender.say(Tag::Ready, &()).map_err(PairError::Link)?;
    bring::receive(receiver, &prepared.data)?;
    let manifest: Manifest = answer(receiver, Tag::Manifest)?;
    check_sizes(&manifest)?;
    prepare::enrol(&mut ledger, &manifest)?;
    let mut fresh = Pages::default();
    let last = take_memory(receiver, &mut fresh)?;
    let (given, (descriptors, lines)) = Some(&last)
        .filter(|last| last.tag == Tag::Given)
        .and_then(parse_given)
        .ok_or_else(|| unexpected(&last))?;
    site.become_given(&given, mappings, pages, fresh)
        .map_err(cannot)?;
    let mut files = Files::new(ledger, prepared.data.clone());
    files.take_descriptors(descriptors);
    files.clients.lines.take(lines).map_err(PairError::Link)?;
    sender.say(Tag::Ready, &()).map_err(PairError::Link)?;
    let () = answer(receiver, Tag::Go)?;
    Ok((files, given.event))
}

fn cannot(why: String) -> PairError {
    PairError::Stopped(format!("this site cannot join: {why}"))
}

/// What has come has to be what the survivor's ledger has, as far as a look at names and sizes tells.
fn check_sizes(manifest: &Manifest) -> Result<(), PairError> {
    for file in &manifest.files {
        let path = Path::new(&file.path);
        let found = path.metadata().map_err(|source| PairError::Directory {
            path: path.into(),
            source,
        })?;
        if found.len() != file.size {
            return Err(PairError::Files {
                lines: vec![format!(
                    "{}: {} bytes have come, and {} were meant",
                    file.path,
                    found.len(),
                    file.size
                )],
            });
        }
    }
    Ok(())
}
