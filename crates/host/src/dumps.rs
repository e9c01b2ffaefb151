//! `--dumps DIR`: registers and memory of each failure, a folder each.
//!
//! ```text
//!   DIR/000007-fs/failure.json         cause, registers, where two bodies differ
//!   DIR/000007-fs/body0-memory0.bin    linear memory, pages of zeros left as holes
//! ```
//!
//! Invariants
//!  1. The thread that met the failure copies memory and no more: another one writes, and what it cannot take is counted as lost.
//!  2. A folder without a dot in front is complete.
//!  3. Folders and bytes stay within their bounds: the oldest folder goes first.
//!
//! Not covered: registers of failures that no signal ended, such as results that differ.

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use clap::Args;
use serde_json::{Value as Json, json};
use steadfast_restart::Dump;
use steadfast_restart::host::{BodyDump, Report};

use crate::told::Told;

/// Failures that wait for the disk, and the bytes of memory that they hold.
const WAITING_MAX: usize = 64;
const WAITING_BYTES_MAX: u64 = 128 << 20;
/// Places at which two bodies differ that are told; one flip makes one.
const DIFFERENCES_MAX: usize = 16;
const PAGE: usize = 4096;
/// In the order of `Seen::registers`.
const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// Where failures are kept, and how many.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Keeps registers and memory of each failure in this folder
    #[arg(long = "dumps", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// So many failures at most; the oldest goes first
    #[arg(
        long = "dumps-max",
        value_name = "N",
        default_value_t = 32,
        requires = "folder"
    )]
    max: usize,
    /// So many MiB on disk at most
    #[arg(
        long = "dumps-mib",
        value_name = "MIB",
        default_value_t = 256,
        requires = "folder"
    )]
    mib: u64,
}

struct Bounds {
    folder: PathBuf,
    folders: usize,
    bytes: u64,
}

/// The folder, and the thread that writes into it.
pub(crate) struct Dumps {
    sender: Mutex<Option<SyncSender<(String, Report)>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    next: AtomicU64,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    waiting_bytes: AtomicU64,
    lost: AtomicU64,
}

impl Dumps {
    pub(crate) fn open(options: &Options) -> Result<Option<Self>, Told> {
        let Some(folder) = options.folder.clone() else {
            return Ok(None);
        };
        let told = |error: io::Error| {
            let what = format!("{} cannot be written", folder.display());
            Told::setup(anyhow::Error::new(error).context(what), "--dumps DIR")
        };
        fs::create_dir_all(&folder).map_err(told)?;
        let there = kept(&folder).map_err(told)?;
        let last = there
            .last()
            .and_then(|name| name.split('-').next()?.parse::<u64>().ok());
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let counts = Arc::<Counts>::default();
        let bounds = Bounds {
            folder: folder.clone(),
            folders: options.max,
            bytes: options.mib << 20,
        };
        let counted = counts.clone();
        let writer = std::thread::Builder::new()
            .name("host-dumps".into())
            .spawn(move || write_all(&bounds, &receiver, &counted))
            .map_err(told)?;
        Ok(Some(Self {
            sender: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(writer)),
            next: AtomicU64::new(last.map_or(0, |last| last + 1)),
            counts,
        }))
    }

    /// Hands a failure to the writer; the name of its folder, or none where it was lost.
    pub(crate) fn put(&self, report: &Report) -> Option<String> {
        let bytes = bytes(report.dump.as_ref()?);
        let waiting = &self.counts.waiting_bytes;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{number:06}-{}", report.component);
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let before = waiting.fetch_add(bytes, Ordering::Relaxed);
        let fits = before == 0 || before + bytes <= WAITING_BYTES_MAX;
        if fits
            && sender
                .as_ref()?
                .try_send((name.clone(), report.clone()))
                .is_ok()
        {
            return Some(name);
        }
        waiting.fetch_sub(bytes, Ordering::Relaxed);
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Failures of which nothing was kept: the disk was too slow, or full.
    pub(crate) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    /// Waits until everything is written.
    pub(crate) fn close(&self) {
        drop(
            self.sender
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

fn write_all(bounds: &Bounds, receiver: &Receiver<(String, Report)>, counts: &Counts) {
    for (name, report) in receiver {
        if let Err(error) = bounds.write(&name, &report) {
            counts.lost.fetch_add(1, Ordering::Relaxed);
            let _ = fs::remove_dir_all(bounds.folder.join(hidden(&name)));
            eprintln!("steadfast host: the dump {name} was not written: {error}");
        }
        let written = report.dump.as_ref().map_or(0, |dump| bytes(dump));
        counts.waiting_bytes.fetch_sub(written, Ordering::Relaxed);
    }
}

/// Of all memories.
fn bytes(dump: &Dump) -> u64 {
    let memories = dump.bodies.iter().flat_map(|body| &body.memories);
    memories.map(|memory| memory.len() as u64).sum()
}

fn hidden(name: &str) -> String {
    format!(".{name}")
}

/// Complete dumps, oldest first.
fn kept(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let number = name.split('-').next().unwrap_or_default();
        if number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit()) {
            names.push(name);
        }
    }
    // Numbers of more than six digits sort by value.
    names.sort_by_key(|name| name.split('-').next().and_then(|n| n.parse::<u64>().ok()));
    Ok(names)
}

/// What a folder takes on disk.
fn occupied(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.try_fold(0, |sum, entry| Ok(sum + entry?.metadata()?.blocks() * 512))
}

impl Bounds {
    fn write(&self, name: &str, report: &Report) -> io::Result<()> {
        let Some(dump) = &report.dump else {
            return Ok(());
        };
        let making = self.folder.join(hidden(name));
        fs::create_dir_all(&making)?;
        let used = |memory: &Vec<u8>| memory.chunks(PAGE).filter(|page| !is_zero(page)).count();
        let pages: usize = dump
            .bodies
            .iter()
            .flat_map(|body| &body.memories)
            .map(used)
            .sum();
        let fits = (pages * PAGE) as u64 <= self.bytes;
        for (of, body) in dump.bodies.iter().enumerate() {
            for (place, memory) in body.memories.iter().enumerate() {
                if fits {
                    write_sparse(&making.join(memory_name(of, place)), memory)?;
                }
            }
        }
        let text = serde_json::to_string_pretty(&failure(report, dump, fits))?;
        fs::write(making.join("failure.json"), text + "\n")?;
        fs::rename(&making, self.folder.join(name))?;
        self.trim()
    }

    /// Takes the oldest away until the rest fits.
    fn trim(&self) -> io::Result<()> {
        let names = kept(&self.folder)?;
        let mut bytes = 0;
        let mut stay = 0;
        for name in names.iter().rev() {
            bytes += occupied(&self.folder.join(name))?;
            if stay == self.folders || (bytes > self.bytes && stay > 0) {
                break;
            }
            stay += 1;
        }
        for name in &names[..names.len() - stay] {
            fs::remove_dir_all(self.folder.join(name))?;
        }
        Ok(())
    }
}

fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

fn write_sparse(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (place, page) in bytes.chunks(PAGE).enumerate() {
        if !is_zero(page) {
            file.seek(SeekFrom::Start((place * PAGE) as u64))?;
            file.write_all(page)?;
        }
    }
    Ok(())
}

fn memory_name(body: usize, place: usize) -> String {
    format!("body{body}-memory{place}.bin")
}

fn failure(report: &Report, dump: &Dump, with_memory: bool) -> Json {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let bodies = dump.bodies.iter().enumerate();
    let bodies: Vec<_> = bodies
        .map(|(of, body)| body_json(of, body, dump, with_memory))
        .collect();
    json!({
        "v": 1,
        "component": report.component, "function": report.function, "cause": report.cause.word(),
        "detail": report.detail, "epoch": report.epoch,
        "unix_ms": since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        "text": { "start": hex(dump.text.start), "end": hex(dump.text.end) },
        "bodies": bodies,
        "differs": differences(dump),
    })
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

fn body_json(of: usize, body: &BodyDump, dump: &Dump, with_memory: bool) -> Json {
    let memories = body.memories.iter().enumerate().map(|(place, memory)| {
        let file = with_memory.then(|| memory_name(of, place));
        json!({ "bytes": memory.len(), "file": file })
    });
    let memories: Vec<_> = memories.collect();
    let Some(seen) = &body.seen else {
        return json!({ "signal": null, "memories": memories });
    };
    let registers = REGISTERS.iter().zip(seen.registers);
    let registers: serde_json::Map<_, _> = registers
        .map(|(name, value)| ((*name).into(), hex(value).into()))
        .collect();
    // The place in the image, as a disassembler shows it.
    let offset = dump
        .text
        .contains(&seen.rip)
        .then(|| hex(seen.rip - dump.text.start));
    json!({
        "signal": seen.signal, "rip": hex(seen.rip), "offset": offset, "address": hex(seen.address),
        "registers": registers, "memories": memories,
    })
}

/// Where the memories of two bodies differ: a flip names its address and its bit.
fn differences(dump: &Dump) -> Vec<Json> {
    let [one, other] = &dump.bodies[..] else {
        return Vec::new();
    };
    let pairs = one.memories.iter().zip(&other.memories).enumerate();
    let all = pairs.flat_map(|(memory, (one, other))| {
        let bytes = one.iter().zip(other).enumerate();
        bytes.filter(|(_, (one, other))| one != other).map(
            move |(at, (one, other))| json!({ "memory": memory, "at": at, "bytes": [one, other] }),
        )
    });
    all.take(DIFFERENCES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(bodies: &[&[u8]]) -> Dump {
        let body = |memory: &&[u8]| BodyDump {
            seen: None,
            memories: vec![memory.to_vec()],
        };
        Dump {
            text: 0..0,
            bodies: bodies.iter().map(body).collect(),
        }
    }

    #[test]
    fn a_flip_between_two_bodies_is_named_by_place_and_bytes() {
        let same = [7; 100];
        let mut flipped = same;
        flipped[41] ^= 0x10;
        let found = differences(&dump(&[&same, &flipped]));
        assert_eq!(found, [json!({"memory": 0, "at": 41, "bytes": [7, 0x17]})]);
        assert!(differences(&dump(&[&same, &same])).is_empty());
        assert!(differences(&dump(&[&flipped])).is_empty());
        assert_eq!(
            differences(&dump(&[&same, &[0; 100]])).len(),
            DIFFERENCES_MAX
        );
    }
}
