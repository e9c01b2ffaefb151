//! Relay: the two threads of the site that leads: one sends what the agent has done, one takes what the secondary says.
//!
//! lead.rs has what both are part of.
//!
//! Invariant: the ledger has taken an event in before the event is sent, and is on its disk before the program hears that a sync
//! is done: what the secondary confirms, this site's ledger knows.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender as Outbox;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast_replica::site::{Kind, Part, Place, Site, Told, Turn};

use crate::board::Board;
use crate::crew::Crew;
use crate::dispute::{Dispute, hand_over};
use crate::error::PairError;
use crate::files::Files;
use crate::hex::{hex, unhex};
use crate::incident::Incident;
use crate::link::{Ask, Receiver, Sender, Tag, Tell};
use crate::page::page_digest;
use crate::shared::{Relay, Shared};

/// A program that computes is held another time.
const HOLD_LIMIT: Duration = Duration::from_millis(200);

/// Where it has come to.
pub(crate) fn send_steps(
    site: &Site,
    sender: &Sender,
    shared: &Shared,
    files: &Mutex<Files>,
    mut place: Place,
) -> Place {
    let mut claimed = 0;
    loop {
        if let Some(back) = shared.back.rewound(Relay::Events) {
            (place, claimed) = (back, 0);
            shared.keep_unchecked(|seq| seq < back.seq, None);
        }
        let closing = shared.is_closing();
        if shared.has_lost() {
            if closing {
                return place;
            }
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let limit = Duration::from_millis(if closing { 0 } else { 20 });
        let step = match site.next_told(&mut place, &mut claimed, limit) {
            Some(Told::Step(step)) => *step,
            Some(Told::Claim(claim)) => {
                let told = [&place.strand.to_le_bytes()[..], &claim];
                if let Err(error) = sender.send(Tag::Claimed, &told) {
                    shared.unsent(sender, &error);
                }
                continue;
            }
            None if closing => return place,
            None => continue,
        };
        // Held until the ledger is on its disk: `take` asks for it before it says that an event is done. Both sites'
        // disks and ledgers are written at the same time.
        let mut files = files.lock().expect("no panic under it");
        let followed = files
            .fails(0, &step)
            .and_then(|()| files.follow((0, place.strand), &step));
        let durable = match followed {
            Ok(durable) => durable,
            Err(error) => {
                shared.stop(error.into());
                return place;
            }
        };
        if step.note().is_some_and(|note| note.kind == Kind::Read) {
            let done = site.done();
            shared.keep_unchecked(|seq| seq >= done, Some(step.clone()));
        }
        if let Err(error) = sender.send(
            Tag::Step,
            &[&place.strand.to_le_bytes(), &step.head(), &step.payload],
        ) {
            shared.unsent(sender, &error);
        }
        if durable && let Err(error) = files.ledger.flush(true) {
            shared.stop(error.into());
            return place;
        }
        drop(files);
        shared.has_followed(step.seq());
    }
}

/// A program that has made processes, held by the turn of all of them. The turn may need what this relay takes, so another thread
/// waits for it.
#[derive(Debug, Default)]
struct Turns(Arc<Mutex<Asked>>);

/// The question that is open, and what was taken for it.
#[derive(Debug, Default)]
struct Asked {
    number: Option<u64>,
    turn: Option<Turn>,
}

impl Turns {
    fn take(&self, number: u64, site: &Arc<Site>, sender: &Arc<Sender>) {
        let (asked, site, sender) = (Arc::clone(&self.0), Arc::clone(site), Arc::clone(sender));
        asked.lock().expect("no panic under it").number = Some(number);
        std::thread::spawn(move || {
            let turn = site.take_turn(HOLD_LIMIT);
            let told = match turn {
                Some(_) => Tell::Held(0),
                None => Tell::Busy,
            };
            let mut asked = asked.lock().expect("no panic under it");
            if asked.number == Some(number) {
                asked.turn = turn;
                // A link that is lost is noticed elsewhere.
                let _ = sender.say(Tag::Tell, &(number, told));
            }
        });
    }

    fn give(&self) {
        *self.0.lock().expect("no panic under it") = Asked::default();
    }
}

/// Nobody asks any more when the link has ended.
impl Drop for Turns {
    fn drop(&mut self) {
        self.give();
    }
}

pub(crate) fn take(
    crew: &Crew,
    sender: &Arc<Sender>,
    receiver: &mut Receiver,
    shared: &Shared,
    files: &Mutex<Files>,
    (board, disputes): (&Board, &Outbox<Dispute>),
    events: Option<&Path>,
) {
    let first = crew.first();
    let site = &first.site;
    // While the program is held, the secondary's claims wait here: without them it comes to nothing further.
    let mut gate: Option<Vec<Vec<u8>>> = None;
    let turns = Turns::default();
    let release = |gate: &mut Option<Vec<Vec<u8>>>| {
        let number = site.strand();
        for claims in gate.take().into_iter().flatten() {
            put_claims(site, number, &claims);
        }
    };
    loop {
        let frame = match receiver.next() {
            Ok(frame) => frame,
            Err(error) => return shared.lose_by(&error),
        };
        board.hear();
        match frame.tag {
            Tag::Claims => {
                let held = gate.as_mut().and_then(|waiting| {
                    let (number, rest) = frame.body.split_first_chunk()?;
                    let (done, claims) = rest.split_first_chunk()?;
                    let number = u64::from_le_bytes(*number);
                    if number != site.strand() {
                        return None;
                    }
                    waiting.push(claims.to_vec());
                    Some(crew.take_claims(first, number, u64::from_le_bytes(*done), &[]))
                });
                if let Err(error) = held.unwrap_or_else(|| crew.hear(frame)) {
                    shared.stop(error);
                    return;
                }
            }
            Tag::Ask => {
                let (number, ask) = match frame.parse::<(u64, Ask)>() {
                    Ok(asked) => asked,
                    Err(error) => {
                        shared.stop(PairError::Link(error));
                        return;
                    }
                };
                let told = match ask {
                    // The gate is the first process's alone.
                    Ask::Hold if site.processes() > 0 => {
                        turns.take(number, site, sender);
                        continue;
                    }
                    Ask::Hold => {
                        gate.get_or_insert_default();
                        hold(site, shared, files)
                    }
                    Ask::Release => {
                        turns.give();
                        release(&mut gate);
                        Tell::Done
                    }
                    ask => tell(crew, files, shared, ask),
                };
                if matches!(told, Tell::Busy) {
                    release(&mut gate);
                }
                shared.gate(gate.is_some());
                let _ = sender.say(Tag::Tell, &(number, told));
            }
            Tag::Incident => {
                if let Ok(incident) = frame.parse::<Incident>() {
                    board.count(&incident);
                    incident.tell(events);
                }
            }
            Tag::Stop => {
                let why: String = frame.parse().unwrap_or_default();
                shared.stop(PairError::told(&why));
            }
            Tag::Leave => {
                if let Ok(Some(why)) = frame.parse::<Option<String>>() {
                    eprintln!("steadfast pair: the secondary cannot go on: {why}");
                    shared.unable.store(true, Ordering::SeqCst);
                }
                shared.left.store(true, Ordering::SeqCst);
            }
            Tag::Go => shared.leads.store(true, Ordering::SeqCst),
            Tag::Dispute => hand_over(&frame, disputes, shared),
            Tag::Beat => {}
            Tag::Bye => {
                shared.farewell.store(true, Ordering::SeqCst);
            }
            _ => shared.stop(PairError::Link(std::io::Error::other(
                "the secondary says what only a primary says",
            ))),
        }
    }
}

fn put_claims(site: &Site, strand: u64, claims: &[u8]) {
    for claim in claims.chunks(128) {
        site.put_claim(strand, claim);
    }
}

/// Waits until the program has done all that both sites have claimed. The secondary's claims are not handed on meanwhile, so
/// it comes to nothing further that changes anything: queries alone are made before the other site has claimed them.
fn hold(site: &Site, shared: &Shared, files: &Mutex<Files>) -> Tell {
    let deadline = Instant::now() + HOLD_LIMIT;
    while Instant::now() < deadline {
        let agreed = site.claimed_last(Part::Secondary);
        let followed = shared.followed();
        let waits = || {
            site.claimed_call(Part::Primary, agreed)
                .is_some_and(|(nr, first)| is_wait(files, nr, first))
        };
        if followed >= agreed || (followed + 1 == agreed && waits()) {
            return Tell::Held(followed);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Tell::Busy
}

/// A call that may last, and that touches no file.
fn is_wait(files: &Mutex<Files>, nr: u32, first: u64) -> bool {
    match i64::from(nr) {
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_pause => true,
        libc::SYS_read | libc::SYS_readv => {
            let fd = u32::try_from(first & 0xffff_ffff).map_or(-1, u32::cast_signed);
            files.lock().expect("no panic under it").at(0, fd).is_none()
        }
        _ => false,
    }
}

/// Answers the secondary, which arbitrates. A disk that cannot be read or repaired has this site leave the program to that one.
fn tell(crew: &Crew, files: &Mutex<Files>, shared: &Shared, ask: Ask) -> Tell {
    let failed = |path: &Path, error: &std::io::Error| {
        let why = format!("its disk has failed, at {}: {error}", path.display());
        shared.stop(PairError::Leaves(why));
        Tell::Failed(error.to_string())
    };
    let done = |result: std::io::Result<()>| {
        result.map_or_else(|error| Tell::Failed(error.to_string()), |()| Tell::Done)
    };
    match ask {
        Ask::Hold | Ask::Release => Tell::Failed("asked of the wrong one".into()),
        Ask::Page { ref path, page } | Ask::OnDevice { ref path, page } => {
            let path = PathBuf::from(path);
            let files = files.lock().expect("no panic under it");
            let ledger = files
                .ledger
                .id(&path)
                .map_or_else(Vec::new, |id| files.ledger.accepted(id, page));
            let read = if matches!(ask, Ask::OnDevice { .. }) {
                crate::disk::page_on_device(&path, page)
            } else {
                crate::disk::page(&path, page)
            };
            match read {
                Ok(bytes) => Tell::Page {
                    bytes: hex(&bytes),
                    ledger: ledger
                        .iter()
                        .map(|digest| format!("{digest:032x}"))
                        .collect(),
                },
                Err(error) => failed(&path, &error),
            }
        }
        Ask::Repair { path, page, bytes } => {
            let path = PathBuf::from(path);
            let Ok(bytes) = unhex(&bytes) else {
                return Tell::Failed("not hexadecimal".into());
            };
            let files = files.lock().expect("no panic under it");
            // The survivor is verified before anything is copied from it.
            let vouched = files.ledger.id(&path).is_some_and(|id| {
                files
                    .ledger
                    .accepted(id, page)
                    .contains(&page_digest(&bytes))
            });
            if !vouched {
                return Tell::Failed(
                    "the primary's ledger does not vouch for the secondary's page".into(),
                );
            }
            crate::disk::put_page(&path, page, &bytes)
                .map_or_else(|error| failed(&path, &error), |()| Tell::Done)
        }
        Ask::Mend { path, page, digest } => {
            let path = PathBuf::from(path);
            let mut files = files.lock().expect("no panic under it");
            let file = files.ledger.id(&path);
            let (Some(file), Ok(digest)) = (file, crate::hex::digest_of(&digest)) else {
                return Tell::Failed("not hexadecimal, or of no file".into());
            };
            match crate::disk::page_on_device(&path, page) {
                Ok(bytes) if page_digest(&bytes) == digest => {
                    files.ledger.mend(file, page, digest);
                    done(files.ledger.flush(false).map_err(std::io::Error::other))
                }
                Ok(_) => Tell::Failed("the primary's disk has something else by now".into()),
                Err(error) => Tell::Failed(error.to_string()),
            }
        }
        Ask::Correct {
            strand,
            seq,
            base,
            bytes,
        } => {
            let (Ok(bytes), Some(strand)) = (unhex(&bytes), crew.strand(strand)) else {
                return Tell::Failed("not hexadecimal, or of no process".into());
            };
            strand.site.correct(base, seq, &bytes);
            Tell::Done
        }
    }
}
