//! Door: where a site that runs the program alone lets one in that comes back (join.rs draws both).
//!
//! Invariants
//!  1. Until the joiner is ready it is nobody: whatever fails, this site goes on alone.
//!  2. Files are handed on as this site's ledger has them, page by page; a page of its disk that is wrong ends the attempt.
//!  3. This site resumes only when the joiner holds the same program, or is given up.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver as Inbox, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast_replica::site::{
    Given, Handed, InCommon, List, Memfds, NotGiven, Now, Objects, Site, sort_out,
};

use crate::bring;
use crate::cli::Side;
use crate::crew::{Crew, Kin};
use crate::error::PairError;
use crate::files::Files;
use crate::given::{Others, Runs, is_there, send_given};
use crate::hex::hex;
use crate::ledger::Ledger;
use crate::link::{self, Greeting, Link, Manifest, Receiver, Sender, Tag, answer};
use crate::prepare;
use crate::shared::Shared;
use crate::tls::Security;

/// For one word of the other site while the program stands still.
const STILL_LIMIT: Duration = Duration::from_secs(10);
/// For one word of it before that: it may have to read all its files.
pub(crate) const BEFORE_LIMIT: Duration = Duration::from_secs(600);
/// From one word to a site that waits to the next.
const TOLD_AGAIN: Duration = Duration::from_millis(100);
/// Memory that has changed is sent again while the program runs: so often, or until so few pages have changed, or more than half as
/// many as the time before. The rest is sent while it stands still.
const PASSES: u32 = 4;
const PASS_MIN: u64 = 256;

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
    /// Which program it has the memory of.
    strand: u64,
    /// When it was last told that it is not forgotten.
    told: Instant,
}

/// What the thread at the door works with.
struct Greeter {
    site: Arc<Site>,
    crew: Arc<Crew>,
    security: Security,
    greeting: Greeting,
    data: Vec<PathBuf>,
}

/// What the site that lets another one in has.
#[derive(Debug)]
pub(crate) struct Survivor<'a> {
    pub(crate) side: &'a Side,
    pub(crate) site: &'a Arc<Site>,
    pub(crate) crew: &'a Arc<Crew>,
    pub(crate) files: &'a Mutex<Files>,
    pub(crate) greeting: &'a Greeting,
    pub(crate) security: &'a Security,
}

/// Where a site that comes back is let in.
#[derive(Debug)]
pub(crate) struct Door(Inbox<Candidate>);

impl Door {
    /// Waits for one from now on, until `shared` is closed or handed on.
    pub(crate) fn open(survivor: &Survivor<'_>, shared: &Arc<Shared>) -> Self {
        let (found, inbox) = channel();
        let host = Greeter {
            site: Arc::clone(survivor.site),
            crew: Arc::clone(survivor.crew),
            security: survivor.security.clone(),
            greeting: survivor.greeting.clone(),
            data: survivor.greeting.data.iter().map(PathBuf::from).collect(),
        };
        let (address, welcome) = (survivor.side.listen.clone(), welcome(survivor.side));
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
    side.peer_host()?.parse().ok()
}

fn fresh_name() -> Result<String, PairError> {
    let mut random = [0; 16];
    steadfast_sys::random::fill(&mut random).map_err(|source| PairError::Kernel {
        part: "randomness",
        source,
    })?;
    Ok(hex(&random))
}

/// Why something could not be sent: the link has failed, or this site has come upon something, and says what.
pub(crate) fn unsent(error: io::Error) -> PairError {
    if error.kind() == io::ErrorKind::Other {
        return PairError::Stopped(error.to_string());
    }
    PairError::Link(error)
}

fn pages_of_memory(
    handed: &mut Handed,
    site: &Site,
    now: Now,
    sender: &Sender,
    round: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<(Vec<std::ops::Range<u64>>, u128, u64)> {
    let mut pages = 0;
    let (ranges, sum) = handed.give(site, now, |address, bytes| {
        round()?;
        pages += (bytes.len() / 4096) as u64;
        sender.send(Tag::Memory, &[&address.to_le_bytes(), bytes])
    })?;
    Ok((ranges, sum, pages))
}

impl Greeter {
    fn let_in(&self, stream: TcpStream) -> Result<Candidate, PairError> {
        stream.set_nonblocking(false).map_err(PairError::Link)?;
        let (sender, receiver) = link::halves(self.security.accepted(stream)?);
        sender
            .expect_within(BEFORE_LIMIT)
            .map_err(PairError::Link)?;
        let told = self.prepare(&sender, receiver);
        match told {
            Ok((receiver, name, has, handed, strand)) => Ok(Candidate {
                sender,
                receiver,
                name,
                has,
                handed,
                strand,
                told: Instant::now(),
            }),
            Err(error) => {
                let error = is_there(&self.site).err().unwrap_or(error);
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
    ) -> Result<(Receiver, String, Manifest, Handed, u64), PairError> {
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
        let now = || Now {
            is_one: self.crew.others() == 0,
            stands: false,
        };
        let runs = Runs::of(&self.site)?;
        let mut handed = Handed::default();
        // The program runs, and the thread that decides has its own rounds.
        let mut round = || Ok(());
        pages_of_memory(&mut handed, &self.site, now(), sender, &mut round).map_err(unsent)?;
        let mappings = self.site.mappings().map_err(PairError::Stopped)?;
        runs.send(sender, &mappings).map_err(PairError::Link)?;
        let () = answer(&mut receiver, Tag::Ready)?;
        let mut changed = u64::MAX;
        for _ in 0..PASSES {
            let before = changed;
            (_, _, changed) = pages_of_memory(&mut handed, &self.site, now(), sender, &mut round)
                .map_err(unsent)?;
            if changed < PASS_MIN || changed > before / 2 {
                break;
            }
        }
        sender.send(Tag::Ready, &[]).map_err(PairError::Link)?;
        Ok((receiver, name, has, handed, runs.strand))
    }
}

impl Candidate {
    /// While it waits: whether it still does.
    pub(crate) fn is_there(&mut self) -> bool {
        if self.told.elapsed() < TOLD_AGAIN {
            return true;
        }
        self.told = Instant::now();
        self.sender.send(Tag::Beat, &[]).is_ok()
    }

    pub(crate) fn refuse(self, why: &str) {
        eprintln!("steadfast pair: a site that came back did not join: {why}");
        let _ = self.sender.say(Tag::Refusal, &why);
    }

    /// The rest, with the program paused in all its processes. `round` comes again and again, and may end it.
    pub(crate) fn hand_on(
        mut self,
        survivor: &Survivor<'_>,
        kin: &[Kin],
        whole: Whole,
        round: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<(Link, Brought), PairError> {
        let handed = self.still(survivor, kin, whole, round);
        match handed {
            Ok(brought) => {
                let lost_after = Duration::from_millis(survivor.side.lost_after);
                self.sender
                    .expect_within(lost_after)
                    .map_err(PairError::Link)?;
                let link = Link {
                    sender: Arc::new(self.sender),
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

    fn still(
        &mut self,
        survivor: &Survivor<'_>,
        kin: &[Kin],
        (mut all, others): Whole,
        round: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<Brought, PairError> {
        self.sender
            .expect_within(STILL_LIMIT)
            .map_err(PairError::Link)?;
        if survivor.site.strand() != self.strand {
            return Err(PairError::Stopped(
                "the program has become another one (execve) meanwhile: join again".into(),
            ));
        }
        let data: Vec<PathBuf> = survivor.greeting.data.iter().map(PathBuf::from).collect();
        let mut files = survivor.files.lock().expect("no panic under it");
        let manifest = prepare::manifest_of_ledger(&data, &files.ledger)?;
        let brought = bring::send_written(&self.sender, &manifest, &self.has)?;
        self.sender
            .say(Tag::Manifest, &manifest)
            .map_err(PairError::Link)?;
        let sites: Vec<&Site> = kin.iter().map(|kin| &*kin.site).collect();
        let mut memory = 0;
        let now = Now {
            is_one: kin.len() == 1,
            stands: true,
        };
        for (index, (kin, given)) in kin.iter().zip(&mut all).enumerate() {
            // What the first one had was sent while it ran.
            let mut nothing = Handed::default();
            let handed = if index == 0 {
                &mut self.handed
            } else {
                &mut nothing
            };
            let given_on = pages_of_memory(handed, &kin.site, now, &self.sender, round);
            let (ranges, sum, pages) = given_on.map_err(unsent)?;
            (given.ranges, given.sum) = (ranges, sum);
            memory += pages;
            let unread = files
                .clients
                .give_unread(kin.table, kin.site.pid())
                .map_err(|error| PairError::Stopped(error.to_string()))?;
            let lines = files.clients.lines.tell(kin.table, &unread);
            let descriptors = (files.descriptors(kin.table), lines);
            send_given(&self.sender, given, descriptors).map_err(PairError::Link)?;
            if index == 0 {
                memory += others.send(&sites, &self.sender).map_err(unsent)?;
            }
        }
        round().map_err(unsent)?;
        let () = answer(&mut self.receiver, Tag::Ready)?;
        self.sender.say(Tag::Go, &()).map_err(PairError::Link)?;
        Ok(Brought {
            files: brought.files,
            pages: brought.pages,
            memory,
        })
    }
}

/// All of a program that stands, but for memory and files: each process's own, and what they are to each other.
pub(crate) type Whole = (Vec<Given>, Others);

pub(crate) fn whole(kin: &[Kin]) -> Result<Whole, NotGiven> {
    let sites: Vec<&Site> = kin.iter().map(|kin| &*kin.site).collect();
    let mut all = Vec::new();
    for site in &sites {
        all.push(site.hand_on()?);
    }
    let mut lists: Vec<List<'_>> = sites
        .iter()
        .zip(&mut all)
        .map(|(site, given)| List {
            pid: site.pid(),
            area: &mut given.descriptors,
        })
        .collect();
    let memfds = Memfds::of(&mut lists)?;
    let pool = sort_out(&mut lists)?;
    let common = InCommon::of(&sites, memfds)?;
    for (given, attached) in all.iter_mut().zip(&common.attached) {
        given.attached.clone_from(attached);
    }
    let objects = Objects::of(&sites)?;
    Ok((all, Others::of(kin, pool, common, &objects)))
}
