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
//!   makes the other processes, and each theirs ◄ theirs (site/several.rs)             │
//!   ready ────────────────────────────────────► go, under a new name                 ┘
//! ```
//!
//! The survivor's part is in door.rs, with what holds of both.
//!
//! Not covered: record locks on the joiner's files; connections that nobody has accepted yet.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_replica::site::{Known, Pages, Part, Site};

use crate::alone::{self, Address};
use crate::bring;
use crate::cli::Side;
use crate::control::Outcome;
use crate::crew::{Adopted, end_all};
use crate::door::BEFORE_LIMIT;
use crate::error::PairError;
use crate::files::Files;
use crate::given::{Descriptors, Other, Others, Runs, Told, parse_given};
use crate::ledger::Ledger;
use crate::link::{self, Frame, Greeting, Manifest, Receiver, Sender, Tag, answer, connect};
use crate::prepare::{self, Prepared};
use crate::secondary::Follower;
use crate::tls::Security;

/// For one word of the survivor when only the rest is to come: it says that it is there while its program is not to be halted.
const SOON_LIMIT: Duration = Duration::from_secs(60);

/// From one attempt to be heard to the next.
const MEET_AGAIN: Duration = Duration::from_millis(200);

/// Runs the program as secondary of a site that runs it already; how it ended.
pub(crate) fn run(side: &Side) -> Result<Outcome, PairError> {
    let mut prepared = prepare::prepare(side)?;
    let address = side.address.as_deref().map(Address::guarded).transpose()?;
    let held = alone::hold(side, address.as_ref())?;
    let security = Security::of(side)?;
    prepared.greeting.right = None;
    let (sender, mut receiver, theirs) = meet(side, &prepared.greeting, &security)?;
    let mut pages = Pages::default();
    let greeted = greet(&mut prepared, &theirs, &sender, &mut receiver, &mut pages);
    if let Err(error) = &greeted {
        let _ = sender.say(Tag::Refusal, &error.to_string());
    }
    let (ledger, runs, mappings) = greeted?;
    if runs.strand != 0 {
        prepared.plan.path = runs.program;
    }
    let start = prepare::start(&prepared, Part::Secondary, runs.random, Some(runs.strand));
    let site = Arc::new(start?);
    let joined = stand(&site, &mappings, &pages).and_then(|known| {
        become_secondary(
            &prepared,
            &site,
            (&sender, &mut receiver),
            ledger,
            &mappings,
            (pages, known),
        )
    });

    if let Err(error) = &joined {
        let _ = sender.say(Tag::Refusal, &error.to_string());
        end_all(site.pid());
    }
    let (files, event, others) = joined?;
    eprintln!("steadfast pair: this site has joined, and is the secondary from event {event} on");
    Follower {
        side,
        site,
        files: files.shared(),
        greeting: prepared.greeting,
        address,
        hold: held,
        security,
        others,
    }
    .run(sender, receiver, Site::begun_at(runs.strand, event))
}

/// Whose program it is to join. One that has just let another site in, or has given it up, closes the link without a word: it is asked
/// again, for as long as a site is waited for.
fn meet(
    side: &Side,
    own: &Greeting,
    security: &Security,
) -> Result<(Sender, Receiver, Greeting), PairError> {
    let deadline = Instant::now() + Duration::from_secs(side.patience);
    loop {
        let (sender, mut receiver) = link::halves(security.connected(connect(side)?)?);
        let greeted = sender
            .expect_within(BEFORE_LIMIT)
            .and_then(|()| sender.say(Tag::Greeting, own))
            .map_err(PairError::Link)
            .and_then(|()| answer(&mut receiver, Tag::Greeting));
        match greeted {
            Ok(theirs) => return Ok((sender, receiver, theirs)),
            Err(PairError::Link(_)) if Instant::now() < deadline => {
                std::thread::sleep(MEET_AGAIN);
            }
            Err(error) => return Err(error),
        }
    }
}

fn greet(
    prepared: &mut Prepared,
    theirs: &Greeting,
    sender: &Sender,
    receiver: &mut Receiver,
    pages: &mut Pages,
) -> Result<(Ledger, Runs, Vec<u8>), PairError> {
    if let Some((what, here, there)) = prepared.greeting.differences(theirs).into_iter().next() {
        return Err(PairError::Unequal { what, here, there });
    }
    prepared.greeting.random.clone_from(&theirs.random);
    let ledger = Ledger::open(&prepared.ledger_dir)?;
    // What its own ledger says does not matter: the survivor's files are right.
    let own = prepare::manifest(&prepared.data, &Ledger::in_memory())?;
    sender.say(Tag::Manifest, &own).map_err(PairError::Link)?;
    bring::receive(receiver, &prepared.data)?.tell("the other site has given");
    let last = take_memory(receiver, pages)?;
    let (runs, mappings) = Some(&last)
        .filter(|last| last.tag == Tag::Ready)
        .and_then(Runs::parse)
        .ok_or_else(|| unexpected(&last))?;
    if runs.strand != 0 {
        runs.check()?;
    }
    Ok((ledger, runs, mappings))
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
fn stand(site: &Site, mappings: &[u8], pages: &Pages) -> Result<Known, PairError> {
    // The thread that waits for the program is not to take signals that are the program's.
    let _ = steadfast_sys::signals::block_all();
    site.go()?;
    site.stand()
        .and_then(|()| site.map(mappings, pages))
        .and_then(|()| site.known(pages))
        .map_err(cannot)
}

/// From a process that is nobody to the survivor's program, one event before both go on.
fn become_secondary(
    prepared: &Prepared,
    site: &Site,
    (sender, receiver): (&Sender, &mut Receiver),
    mut ledger: Ledger,
    mappings: &[u8],
    has: (Pages, Known),
) -> Result<(Files, u64, Vec<Adopted>), PairError> {
    sender.say(Tag::Ready, &()).map_err(PairError::Link)?;
    // What the program has changed since, while it still runs.
    let mut fresh = Pages::default();
    let last = take_memory(receiver, &mut fresh)?;
    if last.tag != Tag::Ready {
        return Err(unexpected(&last));
    }
    sender.expect_within(SOON_LIMIT).map_err(PairError::Link)?;
    bring::receive(receiver, &prepared.data)?;
    let manifest: Manifest = answer(receiver, Tag::Manifest)?;
    check_sizes(&manifest)?;
    prepare::enrol(&mut ledger, &manifest)?;
    let (mut given, descriptors) = take_given(receiver, &mut fresh)?;
    let mut pages = Pages::default();
    let last = take_memory(receiver, &mut pages)?;
    let mut others = Some(&last)
        .filter(|last| last.tag == Tag::Others)
        .and_then(Others::parse)
        .ok_or_else(|| unexpected(&last))?;
    let mut theirs = Vec::new();
    for _ in &others.all {
        let mut fresh = Pages::default();
        theirs.push((take_given(receiver, &mut fresh)?, fresh));
    }
    // All has come: who refuses is heard.
    let mut segments = others.memory(&pages).map_err(cannot)?;
    site.owns(&segments).map_err(cannot)?;
    let beside = theirs.iter_mut().map(|((given, _), _)| given);
    let lists = std::iter::once(&mut given).chain(beside);
    let lists = lists.map(|given| &mut given.descriptors);
    for list in lists.chain(std::iter::once(&mut others.pool)) {
        segments.place(list).map_err(cannot)?;
    }
    let mut objects = others.counterparts().map_err(cannot)?;
    // They inherit what they have in common, and begin as the first one is now.
    site.pool(&others.pool).map_err(cannot)?;
    let kin = bear(site, &others.all).map_err(cannot)?;
    let pids: Vec<i32> = std::iter::once(site.pid())
        .chain(kin.iter().map(|its| its.pid()))
        .collect();
    objects.tell(site, &pids).map_err(cannot)?;
    let mut files = Files::new(ledger, prepared.data.clone());
    take_descriptors(&mut files, 0, descriptors)?;
    let mut spent = Vec::from(
        site.become_given(&given, mappings, has, (fresh, &segments))
            .map_err(cannot)?,
    );
    let mut adopted = Vec::new();
    for ((its, other), told) in kin.into_iter().zip(&others.all).zip(theirs) {
        let ((given, descriptors), fresh) = told;
        take_descriptors(&mut files, other.table, descriptors)?;
        let all = its.become_given(&given, &[], Default::default(), (fresh, &segments));
        spent.extend(all.map_err(cannot)?);
        adopted.push(Adopted {
            place: Site::begun_at(other.strand, given.event),
            table: other.table,
            site: its,
        });
    }
    objects.settle().map_err(cannot)?;
    segments.settle().map_err(cannot)?;
    sender.say(Tag::Ready, &()).map_err(PairError::Link)?;
    let () = answer(receiver, Tag::Go)?;
    segments.keep();
    objects.keep();
    // What they take is given back page by page, and the program would wait for that.
    std::thread::spawn(move || drop(spent));
    Ok((files, given.event, adopted))
}

/// What one process is, and its pages before that.
fn take_given(receiver: &mut Receiver, pages: &mut Pages) -> Result<Told, PairError> {
    let last = take_memory(receiver, pages)?;
    Some(&last)
        .filter(|last| last.tag == Tag::Given)
        .and_then(parse_given)
        .ok_or_else(|| unexpected(&last))
}

fn take_descriptors(
    files: &mut Files,
    table: u64,
    (descriptors, lines): Descriptors,
) -> Result<(), PairError> {
    files.take_descriptors(table, descriptors);
    let taken = files.clients.lines.take(table, lines);
    taken.map_err(PairError::Link)
}

/// Processes beside the first one, each forked by its parent; nobody yet.
fn bear(first: &Site, others: &[Other]) -> Result<Vec<Arc<Site>>, String> {
    let mut all: Vec<Arc<Site>> = Vec::new();
    for other in others {
        let parent = match other.parent.map(|place| place.checked_sub(1)) {
            None | Some(None) => first,
            Some(Some(index)) => all
                .get(index)
                .ok_or("the list of its processes is damaged")?,
        };
        let born = parent.bear(other.strand, other.number, other.parent.is_none())?;
        all.push(Arc::new(born));
    }
    if !others.is_empty() {
        first.has_others();
    }
    Ok(all)
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
