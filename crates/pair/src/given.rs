//! Given: what a site that comes back needs of the program besides memory and files: which program it is, and in the end one frame
//! with the rest.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadfast_digest::vote128;
use steadfast_replica::site::{Given, Site};

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
}

/// The program that runs, which may have taken the place of the command's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Runs {
    /// 0: it is the command's own.
    pub(crate) strand: u64,
    pub(crate) program: PathBuf,
    digest: String,
}

impl Runs {
    pub(crate) fn of(site: &Site) -> Result<Self, PairError> {
        let unreadable = |source| PairError::Kernel {
            part: "the file of the program that runs",
            source,
        };
        let strand = site.strand();
        let program = site.program_file().map_err(unreadable)?;
        let digest = digest_of_file(&program).map_err(unreadable)?;
        Ok(Self {
            strand,
            program,
            digest,
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
    };
    Some((given, (head.files, head.lines)))
}
