//! Disks: a page that the two sites do not have alike, from the question to the repair.

use std::path::Path;
use std::time::{Duration, Instant};

use steadfast_replica::site::{Part, Question};

use super::Pair;
use crate::arbiter::{Evidence, Verdict, judge};
use crate::asks::{ANSWER, Silence};
use crate::board::State;
use crate::crew::Strand;
use crate::error::PairError;
use crate::files::{Where, failure};
use crate::hex::{hex, unhex};
use crate::incident::{Found, Incident, Sighting};
use crate::link::{Ask, Tag, Tell};
use crate::mosaic::put_together;
use crate::page::{PAGE, chosen, page_digest};
use crate::scrub::Suspect;

/// The same read is put right this often; then the disk, or the path to it, is beyond repair.
const TRIES_MAX: u32 = 3;
/// For the secondary to do what the primary has done.
const EVEN: Duration = Duration::from_secs(1);

/// A disk that cannot be read or repaired is this site's alone.
fn leaves(path: &Path, error: &std::io::Error) -> PairError {
    PairError::Leaves(format!(
        "its disk has failed, at {}: {error}",
        path.display()
    ))
}

/// Whether the primary need not have waited behind this read (storage.c, `reads_at_once`).
fn is_at_a_place(strand: &Strand, seq: u64) -> bool {
    let call = strand.site.claimed_call(Part::Secondary, seq);
    call.is_none_or(|(nr, _)| {
        matches!(
            i64::from(nr),
            libc::SYS_pread64 | libc::SYS_preadv | libc::SYS_preadv2
        )
    })
}

/// What the program has made of System V, of which each site has its own (ipc.c).
fn of_system_v(name: &str, own: i64) -> Option<String> {
    let made = match name {
        "shmget" => "a segment",
        "semget" => "a set of semaphores",
        "msgget" => "a queue",
        "semop" | "semtimedop" | "semctl" | "msgsnd" | "msgrcv" | "msgctl" => {
            return Some(format!(
                "{name} of System V did on A what it did not on B: their kernels hold something else, and nobody can say which is right"
            ));
        }
        _ => return None,
    };
    let error = std::io::Error::from_raw_os_error(i32::try_from(-own).unwrap_or(0));
    Some(format!(
        "the program has made {made} of System V, and B cannot have one by that key ({error}): see ipcs(1) there"
    ))
}

impl Pair<'_> {
    pub(super) fn decide(&mut self, strand: &Strand, question: Question) -> Result<(), PairError> {
        match question {
            Question::Read {
                seq,
                fd,
                offset,
                own,
                theirs,
            } => self.read_differs(strand, (seq, fd, offset), own, theirs),
            Question::Differs {
                seq,
                nr,
                own,
                theirs,
                fd,
            } => {
                let (name, _) = steadfast_agent::call(nr);
                let file = self
                    .files
                    .lock()
                    .expect("no panic under it")
                    .at(strand.table, fd)
                    .map(|at| at.path.clone())
                    .or_else(|| strand.site.named_path(seq))
                    .map_or_else(String::new, |path| format!(" ({})", path.display()));
                if theirs >= 0
                    && let Some(error) = failure(own)
                {
                    return Err(PairError::Leaves(format!(
                        "its disk has failed: at event {seq} {name}{file} gave an error: {error}"
                    )));
                }
                if let Some(why) = of_system_v(name, own) {
                    return Err(PairError::Stopped(format!("at event {seq} {why}")));
                }
                let what = match name {
                    "getdents64" => format!("listed {theirs} names on A and {own} on B, or others"),
                    _ if own == theirs => "gave different rights, owners or links".to_owned(),
                    _ => format!("gave {theirs} on A and {own} on B"),
                };
                Err(PairError::Stopped(format!(
                    "at event {seq} {name}{file} {what}: the metadata of one site is wrong, or its disk is full"
                )))
            }
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Tell, PairError> {
        let answer = self
            .send(ask)
            .and_then(|()| self.asks.answer(ANSWER, || self.shared.has_lost()));
        Err(PairError::Stopped(match answer {
            Ok(Tell::Failed(why)) => format!("the primary cannot help: {why}"),
            Ok(tell) => return Ok(tell),
            Err(Silence::Lost) => {
                "the two disks differ, and the primary is lost before it was said which is right"
                    .into()
            }
            Err(Silence::Late) => format!(
                "the two disks differ, and the primary, which is there, has not answered for {} s",
                ANSWER.as_secs()
            ),
        }))
    }

    fn send(&mut self, ask: &Ask) -> Result<(), Silence> {
        let sender = self.sender;
        self.asks.ask(ask, |asked| sender.say(Tag::Ask, asked))
    }

    fn read_differs(
        &mut self,
        strand: &Strand,
        (seq, fd, offset): (u64, i32, u64),
        own: i64,
        theirs: i64,
    ) -> Result<(), PairError> {
        let began = Instant::now();
        let event = (strand.site.strand(), seq);
        self.tries = if self.tries.0 == event {
            (event, self.tries.1 + 1)
        } else {
            (event, 1)
        };
        let at = {
            let files = self.files.lock().expect("no panic under it");
            let at = files.at(strand.table, fd);
            at.map(|at| {
                let now = at
                    .file
                    .map(|file| files.ledger.path(file).map(Path::to_path_buf));
                (at, now)
            })
        };
        let Some((mut at, now)) = at else {
            return Err(PairError::Stopped(format!(
                "at event {seq} descriptor {fd} is of a file that nobody has seen opened"
            )));
        };
        match now {
            // It may have another name than when it was opened.
            Some(Some(path)) => at.path = path,
            Some(None) => {
                return Err(PairError::Stopped(format!(
                    "at event {seq} a read of {} at byte {offset} is different on A and B, and its name is gone: nobody but the program can look at it",
                    at.path.display()
                )));
            }
            None => {
                return Err(PairError::Stopped(format!(
                    "at event {seq} {} differs between the sites, and is not below a protected directory (--data)",
                    at.path.display()
                )));
            }
        }
        let name = at.path.display();
        if theirs >= 0
            && let Some(error) = failure(own)
        {
            return Err(PairError::Leaves(format!(
                "its disk has failed: at event {seq} a read of {name} at byte {offset} gave an error: {error}"
            )));
        }
        if own != theirs {
            return Err(PairError::Stopped(format!(
                "at event {seq} a read of {name} at byte {offset} gave {theirs} on A and {own} on B: one of the two files is shorter"
            )));
        }
        if self.tries.1 > TRIES_MAX {
            return Err(PairError::Stopped(format!(
                "at event {seq} {name} is still different after {TRIES_MAX} repairs"
            )));
        }
        let len = u64::try_from(theirs).unwrap_or(0);
        let mut incidents = Vec::new();
        for page in offset / PAGE as u64..=(offset + len.max(1) - 1) / PAGE as u64 {
            incidents.extend(match self.page_differs(seq, &at, page, Found::Read) {
                Err(error) if self.shared.has_lost() => {
                    self.judge_alone(strand, seq, &at, page, (offset, len), error)?
                }
                found => found?,
            });
        }
        let is_a = incidents.iter().any(|incident| incident.disk_of == 'A');
        let gone_on = is_a && self.side.runs_ahead() && is_at_a_place(strand, seq);
        if is_a && !gone_on {
            self.correct(strand, seq, &at, (offset, len))?;
        }
        self.tell(incidents, began);
        if gone_on {
            return Err(PairError::Stopped(format!(
                "at event {seq} the program of A may have gone on with the wrong bytes of {name} (--exchange, --every): its disk is right again, start both anew"
            )));
        }
        Ok(())
    }

    /// The primary is lost before it has said anything: this site's ledger tells alone whether its own disk is right, or what the
    /// log holds of the page, if that is all of it. Otherwise what has come before stands.
    fn judge_alone(
        &self,
        strand: &Strand,
        seq: u64,
        at: &Where,
        page: u64,
        (offset, len): (u64, u64),
        otherwise: PairError,
    ) -> Result<Vec<Incident>, PairError> {
        let own = crate::disk::page(&at.path, page).map_err(|source| PairError::Directory {
            path: at.path.clone(),
            source,
        })?;
        let file = at.file.expect("protected");
        let right = {
            let files = self.files.lock().expect("no panic under it");
            files.ledger.expected(file, page)
        };
        let len = usize::try_from(len).expect("bounded by the log");
        let log = strand
            .base(seq)
            .map_or_else(Vec::new, |base| strand.site.payload(base, seq, len));
        let start = page * PAGE as u64;
        let end = (offset + log.len() as u64).min(start + own.len() as u64);
        let from = offset.max(start).min(end);
        let index = |at: u64, origin: u64| usize::try_from(at - origin).expect("of a page");
        let covered = &log[index(from.max(offset), offset)..index(end.max(offset), offset)];
        let mut theirs = own.clone();
        theirs[index(from, start)..index(end, start)].copy_from_slice(covered);
        let (disk_of, agrees) = if right == Some(page_digest(&own)) {
            if theirs == own {
                return Ok(Vec::new());
            }
            ('A', 'B')
        } else if covered.len() == own.len() && right == Some(page_digest(covered)) {
            self.repair_own(at, page, (&own, &theirs))?;
            ('B', 'A')
        } else {
            return Err(otherwise);
        };
        let (wrong, right) = if disk_of == 'A' {
            (&theirs, &own)
        } else {
            (&own, &theirs)
        };
        let sighting = Sighting {
            event: seq,
            found: Found::Read,
            path: &at.path,
            page,
        };
        Ok(vec![sighting.repaired(
            disk_of,
            agrees,
            (wrong, right),
            true,
        )])
    }

    /// Whose pause has begun then.
    fn tell(&self, incidents: Vec<Incident>, began: Instant) {
        for mut incident in incidents {
            incident.pause_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.board.count(&incident);
            incident.tell(self.side.events.as_deref());
            let _ = self.sender.say(Tag::Incident, &incident);
        }
    }

    /// A page that some scrubber does not find as its ledger has it: both programs are held, and both devices looked at again.
    pub(super) fn arbitrate_scrubbed(&mut self, suspect: &Suspect) -> Result<(), PairError> {
        let began = Instant::now();
        // The scrubber comes by again; a primary that is lost is noticed elsewhere. One that answers late is not to be held.
        let Ok(Tell::Held(seq)) = self.ask(&Ask::Hold) else {
            let _ = self.send(&Ask::Release);
            return Ok(());
        };
        let deadline = began + EVEN;
        while self.site.done() < seq && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut found = Ok(Vec::new());
        // Otherwise its program asks about an event: that comes first.
        if self.site.done() >= seq {
            let file = {
                let files = self.files.lock().expect("no panic under it");
                let file = files.ledger.id(&suspect.path);
                // What was cut off since it was found is no page of anybody's.
                file.filter(|file| suspect.page < files.ledger.pages(*file))
            };
            if file.is_some() {
                let at = Where {
                    path: suspect.path.clone(),
                    file,
                };
                self.board.set(State::Arbitrating);
                found = self.page_differs(seq, &at, suspect.page, Found::Scrub);
                self.board.set(State::Running);
            }
        }
        self.tell(self.unless_lost(found)?, began);
        let released = self.ask(&Ask::Release).map(|_| Vec::new());
        self.unless_lost(released)?;
        Ok(())
    }

    /// A primary that is lost is no reason to stop: nothing has been repaired, and the program knows nothing of it.
    pub(super) fn unless_lost(
        &self,
        found: Result<Vec<Incident>, PairError>,
    ) -> Result<Vec<Incident>, PairError> {
        match found {
            Err(_) if self.shared.has_lost() => Ok(Vec::new()),
            other => other,
        }
    }

    fn page_differs(
        &mut self,
        seq: u64,
        at: &Where,
        page: u64,
        how: Found,
    ) -> Result<Vec<Incident>, PairError> {
        let path = at.path.display().to_string();
        let asked = match how {
            Found::Read => Ask::Page {
                path: path.clone(),
                page,
            },
            Found::Scrub => Ask::OnDevice {
                path: path.clone(),
                page,
            },
        };
        let Tell::Page { bytes, ledger } = self.ask(&asked)? else {
            return Err(PairError::Link(std::io::Error::other(
                "a page was asked for",
            )));
        };
        let theirs = unhex(&bytes).map_err(PairError::Link)?;
        let own = match how {
            Found::Read => crate::disk::page(&at.path, page),
            Found::Scrub => crate::disk::page_on_device(&at.path, page),
        };
        let own = own.map_err(|error| leaves(&at.path, &error))?;
        let secondary_ledger = self
            .files
            .lock()
            .expect("no panic under it")
            .ledger
            .accepted(at.file.expect("protected"), page);
        let evidence = Evidence {
            primary: page_digest(&theirs),
            secondary: page_digest(&own),
            primary_ledger: ledger
                .iter()
                .map(|digest| crate::hex::digest_of(digest))
                .collect::<std::io::Result<_>>()
                .map_err(PairError::Link)?,
            secondary_ledger,
        };
        let sighting = Sighting {
            event: seq,
            found: how,
            path: &at.path,
            page,
        };
        match judge(&evidence) {
            Verdict::Equal => {
                if how == Found::Scrub {
                    self.mend_ledger(at, page, &evidence)?;
                }
                Ok(Vec::new())
            }
            Verdict::SecondaryWrong => {
                let on_device = self.repair_own(at, page, (&own, &theirs))?;
                Ok(vec![sighting.repaired(
                    'B',
                    'A',
                    (&own, &theirs),
                    on_device,
                )])
            }
            Verdict::PrimaryWrong => {
                self.repair_theirs(&path, page, &own)?;
                Ok(vec![sighting.repaired('A', 'B', (&theirs, &own), true)])
            }
            Verdict::Undecided => {
                let right = evidence
                    .nowhere()
                    .filter(|_| chosen().proves())
                    .and_then(|digest| {
                        put_together(&theirs, &own, |page| page_digest(page) == digest)
                    });
                let Some(right) = right else {
                    return Err(PairError::Stopped(format!(
                        "at event {seq} page {page} of {path} is different on A and B, and the ledgers do not tell which is right: {:032x} on A, {:032x} on B",
                        evidence.primary, evidence.secondary
                    )));
                };
                let on_device = self.repair_own(at, page, (&own, &right))?;
                self.repair_theirs(&path, page, &right)?;
                Ok(vec![
                    sighting.repaired('A', '-', (&theirs, &right), true),
                    sighting.repaired('B', '-', (&own, &right), on_device),
                ])
            }
        }
    }

    /// Whether the device itself had the wrong bytes.
    fn repair_own(
        &self,
        at: &Where,
        page: u64,
        (wrong, right): (&[u8], &[u8]),
    ) -> Result<bool, PairError> {
        let device = crate::disk::page_on_device(&at.path, page);
        crate::disk::put_page(&at.path, page, right).map_err(|error| leaves(&at.path, &error))?;
        Ok(device.is_ok_and(|bytes| bytes == wrong))
    }

    /// The primary's ledger is asked once more before anything is written.
    fn repair_theirs(&mut self, path: &str, page: u64, right: &[u8]) -> Result<(), PairError> {
        match self.ask(&Ask::Repair {
            path: path.to_owned(),
            page,
            bytes: hex(right),
        })? {
            Tell::Done => Ok(()),
            _ => Err(PairError::Link(std::io::Error::other(
                "a repair was asked for",
            ))),
        }
    }

    /// Both devices hold the same page. Where one ledger vouches for it and the other one does not, that one's memory was damaged.
    fn mend_ledger(&mut self, at: &Where, page: u64, evidence: &Evidence) -> Result<(), PairError> {
        let (path, digest) = (at.path.display().to_string(), evidence.primary);
        let vouches =
            [&evidence.primary_ledger, &evidence.secondary_ledger].map(|it| it.contains(&digest));
        let whose = match vouches {
            [true, true] => return Ok(()),
            [false, false] => {
                return Err(PairError::Stopped(format!(
                    "scrubber: page {page} of {path} is equal on both sites, and not as their ledgers have it: both disks are wrong alike, or somebody else has written there"
                )));
            }
            [false, true] => {
                let mended = self.ask(&Ask::Mend {
                    path: path.clone(),
                    page,
                    digest: format!("{digest:032x}"),
                });
                // The scrubber comes by again; a primary that is lost is noticed elsewhere.
                if mended.is_err() {
                    return Ok(());
                }
                'A'
            }
            [true, false] => {
                let mut files = self.files.lock().expect("no panic under it");
                files.ledger.mend(at.file.expect("protected"), page, digest);
                files.ledger.flush(false)?;
                'B'
            }
        };
        eprintln!(
            "steadfast pair: scrubber: ledger of {whose}, page {page} of {path}: both disks and the other ledger agree against it; put right"
        );
        Ok(())
    }

    /// The primary's program was given wrong bytes, which it has not seen yet.
    fn correct(
        &mut self,
        strand: &Strand,
        seq: u64,
        at: &Where,
        (offset, len): (u64, u64),
    ) -> Result<(), PairError> {
        use std::os::unix::fs::FileExt;
        let base = strand
            .base(seq)
            .ok_or_else(|| PairError::Bug(format!("event {seq} is not the newest")))?;
        let mut bytes = vec![0; usize::try_from(len).expect("bounded by the log")];
        let read =
            std::fs::File::open(&at.path).and_then(|file| file.read_exact_at(&mut bytes, offset));
        read.map_err(|source| PairError::Directory {
            path: at.path.clone(),
            source,
        })?;
        let corrected = self.ask(&Ask::Correct {
            strand: strand.site.strand(),
            seq,
            base,
            bytes: hex(&bytes),
        });
        self.unless_lost(corrected.map(|_| Vec::new()))?;
        strand.site.correct(base, seq, &bytes);
        Ok(())
    }
}
