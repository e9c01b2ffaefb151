//! Incident: what was found, whose fault it was, and what was done, for people and for machines.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// How an error came to light.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Found {
    Read,
    Scrub,
}

/// One page that the two disks returned differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Incident {
    pub(crate) event: u64,
    pub(crate) found: Found,
    pub(crate) path: String,
    pub(crate) page: u64,
    /// The site whose disk was wrong: A is the primary, B the secondary.
    pub(crate) disk_of: char,
    /// Bits that differed, and the first of them in the page.
    pub(crate) bits: u32,
    pub(crate) first_bit: Option<u32>,
    /// The other site, or `-`: both disks were wrong, and the page was put together from what each had left.
    pub(crate) ledger_agrees_with: char,
    pub(crate) pages_repaired: u32,
    /// Pages of the program's memory that had to be put right: the read is held back until both disks agree.
    pub(crate) memory_pages: u32,
    /// The wrong bytes were on the device as well, and not only in the page cache.
    pub(crate) on_device: bool,
    pub(crate) pause_us: u64,
}

/// A page that is about to be put right: by which event it was found, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sighting<'a> {
    pub(crate) event: u64,
    pub(crate) found: Found,
    pub(crate) path: &'a Path,
    pub(crate) page: u64,
}

impl Sighting<'_> {
    /// What the disk of a site had, and what is right. `agrees`: the site whose page the ledger vouches for.
    pub(crate) fn repaired(
        &self,
        disk_of: char,
        agrees: char,
        (wrong, right): (&[u8], &[u8]),
        on_device: bool,
    ) -> Incident {
        let (bits, first_bit) = bits(wrong, right);
        Incident {
            event: self.event,
            found: self.found,
            path: self.path.display().to_string(),
            page: self.page,
            disk_of,
            bits,
            first_bit,
            ledger_agrees_with: agrees,
            pages_repaired: 1,
            memory_pages: 0,
            on_device,
            pause_us: 0,
        }
    }
}

impl Incident {
    pub(crate) fn line(&self) -> String {
        let name = Path::new(&self.path).file_name().map_or_else(
            || self.path.clone(),
            |name| name.to_string_lossy().into_owned(),
        );
        let plural = |n: u32| if n == 1 { "page" } else { "pages" };
        let scrubber = match self.found {
            Found::Read => "",
            Found::Scrub => "scrubber: ",
        };
        let agrees = match self.ledger_agrees_with {
            '-' => "neither: put together from both".to_owned(),
            one => one.to_string(),
        };
        format!(
            "{scrubber}disk of {}, {name} page {}, ledger agrees with {agrees}; repaired, {} {}, {} {} of memory, {}.{} ms",
            self.disk_of,
            self.page,
            self.pages_repaired,
            plural(self.pages_repaired),
            self.memory_pages,
            plural(self.memory_pages),
            self.pause_us / 1000,
            self.pause_us % 1000 / 100,
        )
    }

    pub(crate) fn tell(&self, events: Option<&Path>) {
        eprintln!("steadfast pair: {}", self.line());
        record(self, events);
    }
}

/// The two programs claimed different things, and the past was run again to know who was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Erred {
    pub(crate) event: u64,
    /// Whose event, of a process beside the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u32>,
    /// The sites whose processor or memory erred: A, B, AB, or nobody: a record was damaged on its way.
    pub(crate) erred: String,
    /// Events that each host ran again.
    pub(crate) reran: u64,
    /// Pages of the programs' memory that were put right.
    pub(crate) memory_pages: u64,
    pub(crate) pause_us: u64,
}

impl Erred {
    pub(crate) fn line(&self) -> String {
        let who = match self.erred.as_str() {
            "" => "a record on its way".to_owned(),
            "AB" => "processor or memory of A and of B".to_owned(),
            one => format!("processor or memory of {one}"),
        };
        let plural = if self.memory_pages == 1 { "" } else { "s" };
        let whose = self
            .process
            .map_or_else(String::new, |process| format!(" of process {process}"));
        format!(
            "{who} at event {}{whose}, as both hosts find that run {} events again; repaired, {} page{plural} of memory, {}.{} ms",
            self.event,
            self.reran,
            self.memory_pages,
            self.pause_us / 1000,
            self.pause_us % 1000 / 100,
        )
    }

    pub(crate) fn tell(&self, events: Option<&Path>) {
        eprintln!("steadfast pair: {}", self.line());
        record(self, events);
    }
}

fn record<T: Serialize>(what: &T, events: Option<&Path>) {
    let Some(path) = events else { return };
    let line = serde_json::to_string(what).expect("plain data");
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| writeln!(file, "{line}"));
    if let Err(error) = written {
        eprintln!(
            "steadfast pair: {} cannot be written: {error}",
            path.display()
        );
    }
}

/// How many bits differ, and the first.
fn bits(a: &[u8], b: &[u8]) -> (u32, Option<u32>) {
    let mut count = 0;
    let mut first = None;
    for at in 0..a.len().max(b.len()) {
        let differ = a.get(at).copied().unwrap_or(0) ^ b.get(at).copied().unwrap_or(0);
        if differ != 0 && first.is_none() {
            first = u32::try_from(8 * at)
                .ok()
                .map(|bit| bit + differ.trailing_zeros());
        }
        count += differ.count_ones();
    }
    (count, first)
}
