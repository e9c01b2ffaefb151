//! Given: what a site that comes back needs of the program besides memory and files, as one frame.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use steadfast_replica::site::Given;

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
