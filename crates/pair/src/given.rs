//! Given: what a site that comes back needs of the program besides memory and files: which program it is, and in the end one frame
//! for each process with the rest, and one with what they are to each other.
//!
//! ```text
//!   pages, Given of the first process ──► pages in common, Others ──► pages, Given of each other one, behind its parent's
//! ```

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadfast_digest::vote128;
use steadfast_replica::site::{
    Attached, Counterparts, Given, InCommon, Name, Objects, Pages, Segment, Segments, Site,
};
use steadfast_sys::procfs;

use crate::crew::Kin;
use crate::error::PairError;
use crate::hex::digest_of;
use crate::hold;
use crate::link::{Frame, Sender, Tag};

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
    /// Address, bytes, place and number of the segment, rights.
    attached: Vec<(u64, u64, u64, usize, u64)>,
}

/// A process beside the first one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Other {
    pub(crate) strand: u64,
    pub(crate) table: u64,
    pub(crate) number: u32,
    /// Its parent's place, of all processes; nothing: its parent has ended.
    pub(crate) parent: Option<usize>,
}

/// What the program knows memory by that its processes share.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Named {
    Nothing,
    File(PathBuf),
    System {
        key: i32,
        number: i32,
        is_removed: bool,
    },
    Object {
        name: String,
        seals: i32,
    },
}

/// Memory that processes share.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Common {
    bytes: u64,
    named: Named,
    owner: (u32, u32),
    rights: u32,
}

impl From<&Segment> for Common {
    fn from(segment: &Segment) -> Self {
        let (named, owner, rights) = match segment.name.clone() {
            None => (Named::Nothing, (0, 0), 0),
            Some(Name::File {
                path,
                owner,
                rights,
            }) => (Named::File(path), owner, rights),
            Some(Name::System {
                key,
                number,
                owner,
                rights,
                is_removed,
            }) => {
                let named = Named::System {
                    key,
                    number,
                    is_removed,
                };
                (named, owner, rights)
            }
            Some(Name::Object {
                name,
                seals,
                owner,
                rights,
            }) => (Named::Object { name, seals }, owner, rights),
        };
        Self {
            bytes: segment.bytes,
            named,
            owner,
            rights,
        }
    }
}

impl From<Common> for Segment {
    fn from(common: Common) -> Self {
        let Common {
            bytes,
            named,
            owner,
            rights,
        } = common;
        let name = match named {
            Named::Nothing => None,
            Named::File(path) => Some(Name::File {
                path,
                owner,
                rights,
            }),
            Named::System {
                key,
                number,
                is_removed,
            } => Some(Name::System {
                key,
                number,
                owner,
                rights,
                is_removed,
            }),
            Named::Object { name, seals } => Some(Name::Object {
                name,
                seals,
                owner,
                rights,
            }),
        };
        Self { bytes, name }
    }
}

/// What the processes of a program are to each other.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Others {
    pub(crate) all: Vec<Other>,
    /// Each segment of memory that they have in common, and the sum over all pages.
    segments: Vec<Common>,
    pub(crate) sum: String,
    /// Sets of semaphores and queues of System V, as they travel, and their digest.
    objects: (Vec<u8>, String),
    /// What they have open in common.
    #[serde(skip)]
    pub(crate) pool: Vec<u8>,
    #[serde(skip)]
    common: InCommon,
}

impl Others {
    pub(crate) fn of(kin: &[Kin], pool: Vec<u8>, common: InCommon, objects: &Objects) -> Self {
        let objects = objects.encode();
        let digest = format!("{:032x}", vote128(&objects));
        let one = |kin: &Kin| Other {
            strand: kin.site.strand(),
            table: kin.table,
            number: kin.site.program_number(),
            parent: kin.parent,
        };
        Self {
            all: kin.iter().skip(1).map(one).collect(),
            segments: common.segments.iter().map(Common::from).collect(),
            sum: String::new(),
            objects: (objects, digest),
            pool,
            common,
        }
    }

    /// With the memory that they have in common. How many pages that was.
    pub(crate) fn send(&self, sites: &[&Site], sender: &Sender) -> io::Result<u64> {
        let mut pages = 0;
        let sum = self.common.give(sites, |place, page| {
            pages += 1;
            sender.send(Tag::Memory, &[&place.to_le_bytes(), page])
        })?;
        let head = Self {
            all: self.all.clone(),
            segments: self.segments.clone(),
            sum: format!("{sum:032x}"),
            objects: self.objects.clone(),
            ..Self::default()
        };
        let head = serde_json::to_vec(&head).map_err(io::Error::other)?;
        let len = u32::try_from(head.len()).map_err(io::Error::other)?;
        sender.send(Tag::Others, &[&len.to_le_bytes(), &head, &self.pool])?;
        Ok(pages)
    }

    pub(crate) fn parse(frame: &Frame) -> Option<Self> {
        let (len, rest) = frame.body.split_first_chunk()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (head, pool) = rest.split_at_checked(len)?;
        let this: Self = serde_json::from_slice(head).ok()?;
        let segments = this.segments.iter().cloned().map(Segment::from);
        let common = InCommon::told(segments.collect());
        Some(Self {
            pool: pool.to_vec(),
            common,
            ..this
        })
    }

    /// Joiner: the sets of semaphores and queues that they have.
    pub(crate) fn counterparts(&self) -> Result<Counterparts, String> {
        let (bytes, digest) = &self.objects;
        Some(bytes)
            .filter(|bytes| format!("{:032x}", vote128(bytes)) == *digest)
            .and_then(|bytes| Objects::decode(bytes))
            .ok_or("what it has of System V is not what was sent")?
            .make()
    }

    /// Joiner: the memory that they have in common, of these pages.
    pub(crate) fn memory(&self, pages: &Pages) -> Result<Segments, String> {
        let sum = digest_of(&self.sum).map_err(|error| error.to_string())?;
        self.common.make(pages, sum)
    }
}

/// The program that runs, which may have taken the place of the command's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Runs {
    /// 0: it is the command's own.
    pub(crate) strand: u64,
    pub(crate) program: PathBuf,
    digest: String,
    /// What a program that it becomes, or starts, finds as AT_RANDOM.
    pub(crate) random: [u8; 16],
}

/// Whoever joins begins as the first process.
pub(crate) fn is_there(first: &Site) -> Result<(), PairError> {
    if !procfs::has_ended(first.pid()) {
        return Ok(());
    }
    Err(PairError::Unsupported(
        "the program's first process has ended: it has put itself into the background, and no site can join it".into(),
        "start it in the foreground (nginx: daemon off)".into(),
    ))
}

impl Runs {
    pub(crate) fn of(site: &Site) -> Result<Self, PairError> {
        let unreadable = |source| PairError::Kernel {
            part: "the file of the program that runs",
            source,
        };
        is_there(site)?;
        let strand = site.strand();
        let program = site.program_file().map_err(unreadable)?;
        let digest = digest_of_file(&program).map_err(unreadable)?;
        Ok(Self {
            strand,
            program,
            digest,
            random: site.random(),
        })
    }

    pub(crate) fn send(&self, sender: &Sender, mappings: &[u8]) -> io::Result<()> {
        let head = serde_json::to_vec(self).map_err(io::Error::other)?;
        let len = u32::try_from(head.len()).map_err(io::Error::other)?;
        sender.send(Tag::Ready, &[&len.to_le_bytes(), &head, mappings])
    }

    pub(crate) fn parse(frame: &Frame) -> Option<(Self, Vec<u8>)> {
        let (len, rest) = frame.body.split_first_chunk()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (head, mappings) = rest.split_at_checked(len)?;
        Some((serde_json::from_slice(head).ok()?, mappings.to_vec()))
    }

    /// Joiner: whether its own file by that name is the same.
    pub(crate) fn check(&self) -> Result<(), PairError> {
        let here = digest_of_file(&self.program).map_err(|source| PairError::Directory {
            path: self.program.clone(),
            source,
        })?;
        if here == self.digest {
            return Ok(());
        }
        Err(PairError::Unequal {
            what: "program file",
            here,
            there: self.digest.clone(),
        })
    }
}

fn digest_of_file(path: &Path) -> io::Result<String> {
    Ok(format!("{:032x}", vote128(&std::fs::read(path)?)))
}

pub(crate) fn send_given(
    sender: &Sender,
    given: &Given,
    (files, lines): Descriptors,
) -> io::Result<()> {
    let head = Head {
        event: given.event,
        number: given.number,
        ranges: given.ranges.iter().map(|r| (r.start, r.end)).collect(),
        sum: format!("{:032x}", given.sum),
        mappings: given.mappings.len(),
        descriptors: given.descriptors.len(),
        files,
        lines,
        attached: given
            .attached
            .iter()
            .map(|part| (part.at, part.bytes, part.offset, part.segment, part.rights))
            .collect(),
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
pub(crate) type Descriptors = (Vec<(i32, PathBuf, bool)>, Vec<hold::Told>);
pub(crate) type Told = (Given, Descriptors);

pub(crate) fn parse_given(frame: &Frame) -> Option<Told> {
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
        sum: digest_of(&head.sum).ok()?,
        descriptors: descriptors.to_vec(),
        registers: registers.to_vec(),
        attached: head
            .attached
            .into_iter()
            .map(|(at, bytes, offset, segment, rights)| Attached {
                at,
                bytes,
                offset,
                segment,
                rights,
            })
            .collect(),
    };
    Some((given, (head.files, head.lines)))
}
