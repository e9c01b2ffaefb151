//! Memory objects (memfd_create(2)) of a program that a site joins: files that have no name, and bytes.
//!
//! ```text
//!   survivor: each that a process has open ──► a segment (named.rs), whose number stands in the entry of the descriptor
//!   joiner:   its command makes them ──► entries name them in its procfs ──► processes open and map them there
//! ```
//!
//! Not covered: objects in huge pages; those that a process has mapped and nobody has open are memory that has no name.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use steadfast_sys::memfd;

use super::join::{HELD, HELD_BYTES, is_sealed, seal};
use super::named::{Name, Segment, Segments, Source};
use super::open::{List, add_text, set};
use super::step::half;

/// The descriptor class of a file that is not protected (storage.h, `F_FILE`).
const FILE: u32 = 1;
/// struct sf_held (abi.h). `domain` of a memory object: which one, from 1.
const CLASS: usize = 8;
const DOMAIN: usize = 20;

/// What the survivor's processes have open.
#[derive(Debug, Default)]
pub struct Memfds(Vec<Found>);

#[derive(Debug)]
struct Found {
    key: (u64, u64),
    link: PathBuf,
    told: (Segment, Source),
}

fn entries(area: &[u8]) -> impl Iterator<Item = usize> + use<> {
    (0..half(area, 0) as usize).map(|index| HELD + index * HELD_BYTES)
}

fn found(path: &str, link: PathBuf, name: &str) -> std::io::Result<Found> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    if !memfd::is_ordinary(&file)? {
        return Err(std::io::Error::other("it is in huge pages"));
    }
    let segment = Segment {
        bytes: about.len(),
        name: Some(Name::Object {
            name: name.to_owned(),
            seals: memfd::seals(&file)?,
            owner: (about.uid(), about.gid()),
            rights: about.mode() & 0o7777,
        }),
    };
    Ok(Found {
        key: (about.dev(), about.ino()),
        link,
        told: (segment, Source::File(file)),
    })
}

impl Memfds {
    /// Survivor: those in these lists, whose entries say so from here on. The lists are sealed later (open.rs).
    ///
    /// # Errors
    /// When one cannot be made on another host.
    pub fn of(lists: &mut [List<'_>]) -> Result<Self, String> {
        let mut this = Self::default();
        for List { pid, area } in lists {
            for at in entries(area) {
                if half(&area[at..], CLASS / 4) != FILE {
                    continue;
                }
                let fd = half(&area[at..], 0);
                let path = format!("/proc/{pid}/fd/{fd}");
                let link = fs::read_link(&path).unwrap_or_default();
                let text = link.to_string_lossy().into_owned();
                let Some(name) = memfd::name_in(&text) else {
                    continue;
                };
                let found = found(&path, link, name).map_err(|error| {
                    format!("descriptor {fd} of the program ({text}) cannot be made on another host: {error}")
                })?;
                let known = this.0.iter().position(|one| one.key == found.key);
                let index = known.unwrap_or_else(|| {
                    this.0.push(found);
                    this.0.len() - 1
                });
                let which = u32::try_from(index + 1).map_err(|error| error.to_string())?;
                set(area, at + DOMAIN, &which.to_le_bytes());
            }
        }
        Ok(this)
    }

    pub(super) fn into_told(self) -> impl Iterator<Item = (u64, PathBuf, (Segment, Source))> {
        let one = |found: Found| (found.key.1, found.link, found.told);
        self.0.into_iter().map(one)
    }
}

impl Segments {
    /// Joiner: entries of a list that are memory objects name this command's from here on. A list that is damaged stays as it is.
    ///
    /// # Errors
    /// When there is no such object.
    pub fn place(&self, area: &mut Vec<u8>) -> Result<(), String> {
        if area.is_empty() || !is_sealed(area) {
            return Ok(());
        }
        let mut any = false;
        for at in entries(area) {
            let word = |at: usize| half(&area[at..], 0);
            let (class, which) = (word(at + CLASS), word(at + DOMAIN) as usize);
            if class != FILE || which == 0 {
                continue;
            }
            let path = self.object(which - 1).ok_or("the list of it is damaged")?;
            add_text(area, at, &[path.as_os_str().as_bytes(), b"\0"].concat())?;
            any = true;
        }
        if any {
            seal(area);
        }
        Ok(())
    }
}
