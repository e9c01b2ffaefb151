//! Alone: what a site does when the other one is lost and the witness has told it to go on.
//!
//! Its program makes the same events with the same notes; nobody else claims anything about them. The
//! ledger follows as before, so that the files can be held against it later, and each page of a read is
//! held against it before the program goes on: nobody is left to repair it from, but nothing wrong leaves.
//!
//! Invariant: no step is done before its page has been held against the ledger, and none before the witness has answered.
//!
//! Not covered: errors of processor and memory, which only another run of the program would show.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver as Inbox, channel};
use std::time::{Duration, Instant};

use steadfast_replica::site::{Kind, Place, Site, Step};
use steadfast_sys::address::{Alias, Announcer};
use steadfast_sys::{child, procfs};

use crate::cli::{Side, Switch};
use crate::error::{PairError, unheld};
use crate::files::Files;
use crate::hold::Hold;
use crate::page::{PAGE, page_digest};
use crate::shared::Shared;
use crate::witness::Witness;

/// linux/capability.h.
pub(crate) const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
/// With `--prefer-primary`, of a witness that does not answer.
const PREFERRED_AFTER: Duration = Duration::from_secs(5);

/// By whose word a site goes on alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Witness,
    /// `--prefer-primary`.
    User,
}

/// Asks the witness until it answers; the program is held meanwhile. `round` is called each time. `preferred`: this site need not
/// wait for it.
pub(crate) fn decide(
    side: &Side,
    run: &str,
    (site, preferred): (char, bool),
    mut round: impl FnMut(),
) -> Result<Word, PairError> {
    let witness = Witness::of(side)?;
    if matches!(witness, Witness::None) {
        return if preferred {
            Ok(Word::User)
        } else {
            Err(PairError::Lost)
        };
    }
    let began = Instant::now();
    let mut told = false;
    loop {
        round();
        match witness.claim(run, site) {
            Ok(true) => return Ok(Word::Witness),
            Ok(false) => return Err(PairError::Outvoted),
            Err(error) if preferred && began.elapsed() > PREFERRED_AFTER => {
                eprintln!(
                    "steadfast pair: the witness does not answer ({error}), and the user prefers this site: if the other one reaches the witness, both go on until this one does"
                );
                return Ok(Word::User);
            }
            Err(error) => {
                if !told {
                    eprintln!(
                        "steadfast pair: the peer is lost, and the witness does not answer ({error}): the program is held until it does"
                    );
                    told = true;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
}

/// What a witness says in the end that has not answered when this site went on: whether the program is its own.
pub(crate) fn asked_later(side: &Side, run: &str, site: char) -> Result<Inbox<bool>, PairError> {
    let witness = Witness::of(side)?;
    let (said, heard) = channel();
    let run = run.to_owned();
    std::thread::spawn(move || {
        loop {
            if let Ok(own) = witness.claim(&run, site) {
                let _ = said.send(own);
                return;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    Ok(heard)
}

/// Stands in for the other site until the program has ended, or stands and is handed on. `echoed`: the newest event about which the other
/// one has claimed something. `unchecked`: the newest reads, of which nobody knows whether they were compared.
pub(crate) fn carry(
    site: &Site,
    shared: &Shared,
    files: &Mutex<Files>,
    mut place: Place,
    mut echoed: u64,
    unchecked: &[Step],
) -> Place {
    let take = |step: &Step, strand: u64, follows: bool| -> Result<(), PairError> {
        let mut files = files.lock().expect("no panic under it");
        let durable = follows && files.follow((0, strand), step)?;
        if durable {
            files.ledger.flush(true)?;
        }
        files.clients.done(strand, step.seq()).map_err(unheld)?;
        check(&files, 0, step)
    };
    for step in unchecked {
        if let Err(error) = take(step, 0, false) {
            shared.stop(error);
            return place;
        }
    }
    site.drop_snapshots();
    site.put_done(place.strand, place.seq);
    loop {
        let closing = shared.is_closing();
        let handing = shared.hands_on();
        let limit = Duration::from_millis(if closing || handing { 0 } else { 20 });
        let Some(step) = site.next_alone(&mut echoed, &mut place, limit) else {
            if closing || handing {
                return place;
            }
            continue;
        };
        if let Err(error) = take(&step, place.strand, true) {
            shared.stop(error);
            return place;
        }
        site.put_done(place.strand, place.seq);
    }
}

/// Holds what a read has brought against the ledger. The program waits meanwhile.
pub(crate) fn check(files: &Files, table: u64, step: &Step) -> Result<(), PairError> {
    let Some(note) = step
        .note()
        .filter(|note| note.kind == Kind::Read && note.protected && note.len > 0)
    else {
        return Ok(());
    };
    let Some(file) = files.at(table, note.fd).and_then(|at| at.file) else {
        return Ok(());
    };
    // Its name is gone: nobody can look at it any more but the program.
    let Some(path) = files.ledger.path(file) else {
        return Ok(());
    };
    let unreadable = |source| PairError::Directory {
        path: path.into(),
        source,
    };
    let end = note.offset + note.len;
    for page in note.offset / PAGE as u64..=(end - 1) / PAGE as u64 {
        let bytes = crate::disk::page(path, page).map_err(unreadable)?;
        let start = page * PAGE as u64;
        let (from, to) = (note.offset.max(start), end.min(start + PAGE as u64));
        let index =
            |at: u64, origin: u64| usize::try_from(at - origin).expect("bounded by the log");
        let given = step
            .payload
            .get(index(from, note.offset)..index(to, note.offset));
        let right = files.ledger.expected(file, page) == Some(page_digest(&bytes))
            && given == bytes.get(index(from, start)..index(to, start));
        if !right {
            return Err(PairError::Stopped(format!(
                "page {page} of {} is not as the ledger has it, and this site is alone: there is nobody to repair it from",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The address that clients use, which belongs to the site that answers them: ADDRESS/LENGTH@DEVICE.
#[derive(Debug)]
pub(crate) struct Address {
    address: IpAddr,
    prefix: u8,
    device: String,
    announcer: Announcer,
    held: Option<Alias>,
    /// The process that takes the address away where this one is killed: two hosts would answer to it otherwise.
    guard: Option<i32>,
}

impl Drop for Address {
    fn drop(&mut self) {
        self.held = None;
        if let Some(guard) = self.guard {
            child::kill(guard, libc::SIGKILL);
            child::reap(guard);
        }
    }
}

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self, PairError> {
        let wrong = || {
            PairError::Missing(
                format!(
                    "--address has to be an address, its prefix length and a device, found {text}"
                ),
                "--address 10.0.0.9/24@eth0, or fd00::9/64@eth0".into(),
            )
        };
        let (prefix, device) = text.split_once('@').ok_or_else(wrong)?;
        let (address, length) = prefix.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = length
            .parse()
            .ok()
            .filter(|length| *length <= longest)
            .ok_or_else(wrong)?;
        let lacks: Vec<&str> = [("CAP_NET_ADMIN", NET_ADMIN), ("CAP_NET_RAW", NET_RAW)]
            .into_iter()
            .filter_map(|(name, number)| (!procfs::has_capability(number)).then_some(name))
            .collect();
        if !lacks.is_empty() {
            return Err(PairError::Missing(
                format!(
                    "--address {text} can only be moved and announced with CAP_NET_ADMIN and CAP_NET_RAW, found: no {}",
                    lacks.join(", no ")
                ),
                "start the site as root, or give it these (AmbientCapabilities= of a unit, capabilities of a pod)".into(),
            ));
        }
        // Opened now: it takes longer than everything else of a take-over.
        let announcer = Announcer::open(device).map_err(failed)?;
        Ok(Self {
            address,
            prefix,
            device: device.to_owned(),
            announcer,
            held: None,
            guard: None,
        })
    }

    /// The same for a site that runs: the address does not outlive it, however it ends. Call it before there is a second thread.
    pub(crate) fn guarded(text: &str) -> Result<Self, PairError> {
        let mut own = Self::parse(text)?;
        let (device, address, prefix) = (own.device.clone(), own.address, own.prefix);
        let guard = child::survivor(|| drop(Alias::forget(&device, address, prefix)));
        own.guard = Some(guard.map_err(failed)?);
        Ok(own)
    }

    pub(crate) fn take(&mut self) -> Result<(), PairError> {
        self.held = Some(Alias::set(&self.device, self.address, self.prefix).map_err(failed)?);
        Ok(())
    }

    /// It is another site's from now on.
    pub(crate) fn give_up(&mut self) {
        self.held = None;
    }

    pub(crate) fn announce(&self) {
        if let Err(error) = self.announcer.announce(self.address) {
            eprintln!(
                "steadfast pair: {} cannot be announced: {error}",
                self.address
            );
        }
    }
}

/// What holds acknowledgements back at the device of the address, if there is one and it is to be.
pub(crate) fn hold(side: &Side, address: Option<&Address>) -> Result<Option<Hold>, PairError> {
    address
        .filter(|_| side.hold_acks == Switch::On && side.witness != "none")
        .map(|address| {
            let device = &address.device;
            Hold::open(address.address, device).map_err(|error| {
                PairError::Missing(
                    format!(
                        "acknowledgements can only be held back at {device} with CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_NET_RAW and Linux 6.6, found: {error}"
                    ),
                    "give the command these, or --hold-acks off on both sites: bytes that the leading site's kernel has acknowledged and the other one has not heard of are lost with it then".into(),
                )
            })
        })
        .transpose()
}

fn failed(source: std::io::Error) -> PairError {
    PairError::Kernel {
        part: "the address of --address",
        source,
    }
}
