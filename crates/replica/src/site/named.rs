//! Named: memory that the processes of a program share and know by a name, for a site that joins (several.rs): files that it has made in
//! /dev/shm or another tmpfs, segments of System V, and memory objects, which it knows by descriptors (memfd.rs).
//!
//! ```text
//!   survivor: who maps what, what the program has made ──► bytes, name, owner, rights ──► joiner: made anew
//!                                                            joiner's tree: which files are the program's own, which number is whose
//! ```
//!
//! Invariants
//!  1. What is made here goes again, unless the site has joined.
//!  2. What stands in its place on the joiner's host goes only if no process has it: a program that has ended left it behind.
//!
//! Not covered: files of a tmpfs that are not in /dev/shm, while no process maps them: the joiner opens what stands there.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use steadfast_sys::ipc::Made;
use steadfast_sys::procfs::{self, Mapping};
use steadfast_sys::shared::Shared;
use steadfast_sys::{memfd, segment};

use super::Site;
use crate::segments::Way;

/// struct sf_tree (abi.h).
const MADE_N: usize = 8;
const MADE: usize = 16;
const MADE_MAX: usize = 256;
const NUMBERS: usize = 12_312;
const NUMBERS_MAX: usize = 128;
/// Where shm_open(3) has its files.
const SHM: &str = "/dev/shm";
const PAGE: usize = 4096;
/// Seals that come when the program has its mappings: those that are written to were there before, and none comes behind F_SEAL_SEAL.
const LAST: i32 = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;

/// What a program knows memory by that its processes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    File {
        path: PathBuf,
        owner: (u32, u32),
        rights: u32,
    },
    System {
        key: i32,
        /// As the program knows it.
        number: i32,
        owner: (u32, u32),
        rights: u32,
        /// It goes with the last process that has it.
        is_removed: bool,
    },
    /// A memory object (memfd_create(2)), which nobody can open by its name.
    Object {
        name: String,
        seals: i32,
        owner: (u32, u32),
        rights: u32,
    },
}

/// Memory that processes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub bytes: u64,
    pub name: Option<Name>,
}

/// Where the survivor reads it.
#[derive(Debug)]
pub(super) enum Source {
    /// From those who have it.
    Processes,
    File(File),
    System(Shared),
}

impl Source {
    /// Nothing: in the processes.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> Option<io::Result<()>> {
        match self {
            Self::Processes => None,
            Self::File(file) => Some(read_padded(file, at, to)),
            Self::System(shared) => Some(read_segment(shared, at, to)),
        }
    }
}

/// Behind the end of the file there are zeros, as in its last page.
fn read_padded(file: &File, at: u64, to: &mut [u8]) -> io::Result<()> {
    let mut got = 0;
    while got < to.len() {
        match file.read_at(&mut to[got..], at + got as u64)? {
            0 => break,
            n => got += n,
        }
    }
    to[got..].fill(0);
    Ok(())
}

fn read_segment(shared: &Shared, at: u64, to: &mut [u8]) -> io::Result<()> {
    let at = usize::try_from(at).map_err(io::Error::other)?;
    let inside = shared.bytes().saturating_sub(at).min(to.len());
    shared.read(at, &mut to[..inside]);
    to[inside..].fill(0);
    Ok(())
}

/// A segment of System V: its own number here, and the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered {
    own: i32,
    number: i32,
}

/// What the survivor's processes have made.
#[derive(Debug)]
pub(super) struct Own {
    files: HashSet<(u64, u64)>,
    segments: Vec<Numbered>,
}

impl Site {
    /// Survivor: what its processes have made of such memory.
    pub(super) fn own_memory(&self) -> Own {
        let file = |index| {
            let at = MADE + 16 * index;
            (self.turns.get64(at), self.turns.get64(at + 8))
        };
        let half = |word: u64| u32::try_from(word & 0xffff_ffff).expect("half a word");
        let numbered = |index| {
            let word = self.turns.get64(NUMBERS + 8 * index);
            (word != 0).then(|| Numbered {
                own: half(word >> 32).wrapping_sub(1).cast_signed(),
                number: half(word).wrapping_sub(1).cast_signed(),
            })
        };
        Own {
            files: (0..MADE_MAX)
                .map(file)
                .filter(|key| *key != (0, 0))
                .collect(),
            segments: (0..NUMBERS_MAX).filter_map(numbered).collect(),
        }
    }

    /// Joiner: what its processes may map as their own, and which number is whose.
    ///
    /// # Errors
    /// When there are too many.
    pub fn owns(&self, segments: &Segments) -> Result<(), String> {
        let (mut files, mut numbers) = (0, 0);
        for held in &segments.0 {
            if let Kept::File { key, .. } | Kept::Object { key, .. } = &held.kept {
                let at = MADE + 16 * (files % MADE_MAX);
                self.turns.set64(at, key.0);
                self.turns.set64(at + 8, key.1);
                files += 1;
            }
            if let Some(Numbered { own, number }) = held.numbered() {
                if numbers == NUMBERS_MAX {
                    return Err("the program has too many segments of System V".into());
                }
                let [own, number] = [own, number].map(|id| u64::from(id.cast_unsigned()) + 1);
                self.turns.set64(NUMBERS + 8 * numbers, own << 32 | number);
                numbers += 1;
            }
        }
        let files = u32::try_from(files % MADE_MAX).expect("few");
        self.turns.set32(MADE_N, files);
        Ok(())
    }
}

impl Own {
    /// Of memory that a process has mapped: what the program knows it by, how much there is by that name, and where it is read.
    pub(super) fn named(&self, map: &Mapping) -> Result<Option<(Segment, Source)>, String> {
        let text = map.path.to_string_lossy();
        let told = if text.starts_with("/SYSV") {
            let own = i32::try_from(map.inode).map_err(|error| error.to_string())?;
            let Some(known) = self.segments.iter().find(|known| known.own == own) else {
                return Ok(None);
            };
            let len = map.range.end - map.range.start;
            numbered(*known, |bytes| map.offset == 0 && len >= bytes)
        } else {
            // A file whose name is gone is memory like any other.
            match fs::metadata(&map.path) {
                Ok(about) if about.ino() == map.inode && about.is_file() => of_file(&map.path),
                Ok(about) if about.ino() == map.inode => {
                    Err(io::Error::other("it is no file of memory"))
                }
                _ => return Ok(None),
            }
        };
        told.map(Some).map_err(|error| {
            format!(
                "memory that the program shares by a name ({text}) cannot be handed on: {error}"
            )
        })
    }

    /// What nobody has mapped, and may map by its name.
    pub(super) fn unmapped(&self, mapped: &[Segment]) -> Vec<(Segment, Source)> {
        let is_mapped = |wanted: &Name| {
            mapped.iter().any(|segment| match (&segment.name, wanted) {
                (Some(Name::System { number, .. }), Name::System { number: other, .. }) => {
                    number == other
                }
                (name, wanted) => name.as_ref() == Some(wanted),
            })
        };
        let files = fs::read_dir(SHM).into_iter().flatten().flatten();
        let files = files
            .filter(|entry| {
                let about = entry.metadata();
                about.is_ok_and(|about| self.files.contains(&(about.dev(), about.ino())))
            })
            .filter_map(|entry| of_file(&entry.path()).ok());
        // What the kernel has no more nobody can have.
        let segments = self
            .segments
            .iter()
            .filter_map(|known| numbered(*known, |_| false).ok());
        let all = files.chain(segments);
        all.filter(|(segment, _)| segment.name.as_ref().is_some_and(|name| !is_mapped(name)))
            .collect()
    }
}

fn of_file(path: &Path) -> io::Result<(Segment, Source)> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    let segment = Segment {
        bytes: about.len(),
        name: Some(Name::File {
            path: path.to_owned(),
            owner: (about.uid(), about.gid()),
            rights: about.mode() & 0o7777,
        }),
    };
    Ok((segment, Source::File(file)))
}

/// `is_whole`: whether a process has so many bytes of it mapped, which is all.
fn numbered(known: Numbered, is_whole: impl Fn(u64) -> bool) -> io::Result<(Segment, Source)> {
    let about = segment::about(known.own)?;
    let segment = Segment {
        bytes: about.bytes,
        name: Some(Name::System {
            key: about.key,
            number: known.number,
            owner: about.owner,
            rights: about.rights,
            is_removed: about.is_removed,
        }),
    };
    let bytes = usize::try_from(about.bytes).map_err(io::Error::other)?;
    let source = if is_whole(about.bytes) {
        Source::Processes
    } else if about.was_attached {
        Source::System(Shared::attach(known.own, bytes)?)
    } else {
        // The first one who attaches it finds zeros, and is to be the first (domain.c).
        Source::File(File::open("/dev/null")?)
    };
    Ok((segment, source))
}

#[derive(Debug)]
enum Kept {
    Memory(Shared),
    /// A file, by device and inode; it goes when this does.
    File {
        file: File,
        key: (u64, u64),
        kept: bool,
    },
    System(Made),
    /// By device and inode.
    Object {
        file: File,
        key: (u64, u64),
        /// Where another process opens it.
        path: PathBuf,
    },
}

#[derive(Debug)]
struct Held {
    segment: Segment,
    kept: Kept,
}

/// Memory that a joiner has made for its processes.
#[derive(Debug, Default)]
pub struct Segments(Vec<Held>);

impl Segments {
    /// The site has joined: what has a name stays.
    pub fn keep(&mut self) {
        for held in &mut self.0 {
            match &mut held.kept {
                Kept::Memory(_) | Kept::Object { .. } => {}
                Kept::File { kept, .. } => *kept = true,
                Kept::System(made) => made.keep(),
            }
        }
    }

    pub(super) fn add(&mut self, segment: &Segment, owner: (u32, u32)) -> io::Result<()> {
        let whole = segment.bytes.next_multiple_of(PAGE as u64);
        let len = usize::try_from(whole).map_err(io::Error::other)?;
        let kept = match &segment.name {
            None => Kept::Memory(Shared::attachable(len, owner, 0o600)?),
            Some(Name::File {
                path,
                owner,
                rights,
            }) => {
                let file = made_file(path)?;
                let about = file.metadata()?;
                let kept = Kept::File {
                    key: (about.dev(), about.ino()),
                    file: file.try_clone()?,
                    kept: false,
                };
                // From here on it goes with this.
                self.0.push(Held {
                    segment: segment.clone(),
                    kept,
                });
                file.set_len(segment.bytes)?;
                fchown(&file, Some(owner.0), Some(owner.1))?;
                return file.set_permissions(fs::Permissions::from_mode(*rights));
            }
            Some(Name::Object {
                name,
                owner,
                rights,
                ..
            }) => {
                let name = CString::new(name.as_str()).map_err(io::Error::other)?;
                let file = memfd::made(&name)?;
                file.set_len(segment.bytes)?;
                fchown(&file, Some(owner.0), Some(owner.1))?;
                file.set_permissions(fs::Permissions::from_mode(*rights))?;
                let about = file.metadata()?;
                let key = (about.dev(), about.ino());
                Kept::Object {
                    path: own_path(&file),
                    file,
                    key,
                }
            }
            Some(Name::System {
                owner,
                rights,
                is_removed: true,
                ..
            }) => Kept::Memory(Shared::attachable(len, *owner, *rights)?),
            Some(Name::System {
                key, owner, rights, ..
            }) => Kept::System(made_segment(*key, segment.bytes, *owner, *rights)?),
        };
        self.0.push(Held {
            segment: segment.clone(),
            kept,
        });
        Ok(())
    }

    /// The newest one: writes these pages, and reads them back.
    pub(super) fn fill<'a>(
        &self,
        start: u64,
        pages: impl Iterator<Item = (u64, &'a [u8])>,
        mut back: impl FnMut(u64, &[u8]),
    ) -> io::Result<()> {
        let held = self.0.last().expect("one was added");
        let mut pages = pages.peekable();
        if pages.peek().is_none() {
            return Ok(());
        }
        let attached = match &held.kept {
            Kept::System(made) => {
                let bytes = usize::try_from(held.segment.bytes).map_err(io::Error::other)?;
                Some(Shared::attach(made.id(), bytes)?)
            }
            _ => None,
        };
        let mut read = [0; PAGE];
        for (address, page) in pages {
            let at = address - start;
            match (&held.kept, &attached) {
                (Kept::File { file, .. } | Kept::Object { file, .. }, _) => {
                    let inside = held.segment.bytes.saturating_sub(at).min(PAGE as u64);
                    let inside = usize::try_from(inside).expect("a page");
                    file.write_all_at(&page[..inside], at)?;
                    read_padded(file, at, &mut read)?;
                }
                (Kept::Memory(shared), _) | (_, Some(shared)) => {
                    let from = usize::try_from(at).map_err(io::Error::other)?;
                    let inside = shared.bytes().saturating_sub(from).min(PAGE);
                    shared.write(from, &page[..inside]);
                    read_segment(shared, at, &mut read)?;
                }
                (Kept::System(_), None) => unreachable!("it was attached"),
            }
            back(address, &read);
        }
        Ok(())
    }

    pub(super) fn way(&self, index: usize) -> Option<Way<'_>> {
        let held = self.0.get(index)?;
        match (&held.kept, &held.segment.name) {
            (Kept::Memory(shared), _) => shared.id().map(Way::Number),
            (Kept::System(made), _) => Some(Way::Number(made.id())),
            (Kept::File { .. }, Some(Name::File { path, .. })) => Some(Way::Path(path)),
            (Kept::File { .. }, _) => None,
            (Kept::Object { path, .. }, _) => Some(Way::Path(path)),
        }
    }

    /// Where a process that may do so opens a memory object.
    pub(super) fn object(&self, index: usize) -> Option<&Path> {
        match &self.0.get(index)?.kept {
            Kept::Object { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Seals memory objects: `first`, what has to be there when they are mapped, and then the rest.
    pub(super) fn seal(&self, first: bool) -> io::Result<()> {
        for held in &self.0 {
            if let (Kept::Object { file, .. }, Some(Name::Object { seals, .. })) =
                (&held.kept, &held.segment.name)
            {
                let now = if first { seals & !LAST } else { seals & LAST };
                memfd::seal(file, now)?;
            }
        }
        Ok(())
    }

    /// All have what they are to have.
    ///
    /// # Errors
    /// When a memory object cannot be as it was.
    pub fn settle(&self) -> Result<(), String> {
        let settled = self.seal(false);
        settled.map_err(|error| format!("a memory object cannot be sealed: {error}"))
    }
}

impl Held {
    fn numbered(&self) -> Option<Numbered> {
        let Some(Name::System { number, .. }) = self.segment.name else {
            return None;
        };
        let own = match &self.kept {
            Kept::Memory(shared) => shared.id()?,
            Kept::System(made) => made.id(),
            Kept::File { .. } | Kept::Object { .. } => return None,
        };
        Some(Numbered { own, number })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Kept::File { kept: false, .. } = self.kept
            && let Some(Name::File { path, .. }) = &self.segment.name
        {
            let _ = fs::remove_file(path);
        }
    }
}

fn own_path(file: &File) -> PathBuf {
    PathBuf::from(format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        file.as_raw_fd()
    ))
}

fn taken(what: &str) -> io::Error {
    io::Error::other(format!("{what} is there already, and a process has it"))
}

fn made_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let about = fs::symlink_metadata(path)?;
    if !about.is_file() || procfs::is_mapped(&about) {
        return Err(taken(&path.display().to_string()));
    }
    fs::remove_file(path)?;
    options.open(path)
}

fn made_segment(key: i32, bytes: u64, owner: (u32, u32), rights: u32) -> io::Result<Made> {
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    match segment::made(key, bytes, owner, rights) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
        other => return other,
    }
    let old = segment::of_key(key)?;
    let about = segment::about(old)?;
    // This one, if it has executed itself since.
    let is_own = about.creator.cast_unsigned() == std::process::id();
    if about.attached > 0 || !(is_own || procfs::has_ended(about.creator)) {
        return Err(taken(&format!("a segment of System V by the key {key:#x}")));
    }
    segment::remove(old)?;
    segment::made(key, bytes, owner, rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> (u32, u32) {
        let pid = i32::try_from(std::process::id()).expect("a number");
        procfs::effective_ids(pid).expect("procfs tells")
    }

    fn shm(name: &str) -> PathBuf {
        Path::new(SHM).join(format!("steadfast-named-{}-{name}", std::process::id()))
    }

    fn file(name: &str, bytes: u64) -> Segment {
        Segment {
            bytes,
            name: Some(Name::File {
                path: shm(name),
                owner: own(),
                rights: 0o640,
            }),
        }
    }

    fn page(of: u8) -> Vec<u8> {
        vec![of; PAGE]
    }

    #[test]
    fn a_file_has_its_bytes_owner_and_rights_and_goes_unless_it_is_kept() {
        let segment = file("kept", 5000);
        let mut made = Segments::default();
        made.add(&segment, own()).expect("it is new");
        let pages = [(0x8000_u64, page(7)), (0x9000, page(9))];
        let mut back = Vec::new();
        made.fill(
            0x8000,
            pages.iter().map(|(at, page)| (*at, &page[..])),
            |at, page| back.push((at, page.to_vec())),
        )
        .expect("it is written");
        let mut last = page(0);
        last[..5000 - PAGE].fill(9);
        assert_eq!(back, [(0x8000, page(7)), (0x9000, last)]);
        let (told, source) = of_file(&shm("kept")).expect("it is there");
        assert_eq!(told, segment);
        let mut read = page(1);
        source.read(4096, &mut read).expect("a file").expect("read");
        assert_eq!((read[903], read[904]), (9, 0));
        made.keep();
        drop(made);
        assert!(shm("kept").exists());

        // What nobody has mapped is made anew, and goes with what was made.
        let mut made = Segments::default();
        made.add(&segment, own()).expect("nobody has it");
        assert_eq!(fs::read(shm("kept")).expect("it is there"), [0; 5000]);
        drop(made);
        assert!(!shm("kept").exists());
    }

    #[test]
    fn what_a_process_has_mapped_is_left_alone() {
        let path = shm("mapped");
        fs::write(&path, "theirs").expect("a file");
        let mut other = std::process::Command::new("python3")
            .args(["-c", "import mmap,sys; f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0); print(flush=True); sys.stdin.read()"])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("python is installed");
        let mut line = [0];
        let from = other.stdout.as_mut().expect("piped");
        io::Read::read_exact(from, &mut line).expect("it is mapped");
        let mut made = Segments::default();
        let refused = made
            .add(&file("mapped", 10), own())
            .expect_err("it is in use");
        assert!(
            refused.to_string().contains("a process has it"),
            "{refused}"
        );
        drop(made);
        assert_eq!(fs::read(&path).expect("it is there"), b"theirs");
        drop(other.stdin.take());
        other.wait().expect("a child");
        fs::remove_file(&path).expect("clean");
    }

    fn system(key: i32) -> Segment {
        Segment {
            bytes: 5000,
            name: Some(Name::System {
                key,
                number: 4711,
                owner: own(),
                rights: 0o600,
                is_removed: false,
            }),
        }
    }

    #[test]
    fn a_segment_is_known_by_its_key_and_the_program_s_number() {
        let key = (std::process::id() << 8 | 7).cast_signed();
        let mut made = Segments::default();
        made.add(&system(key), own()).expect("it is new");
        let id = segment::of_key(key).expect("it is there");
        assert_eq!(segment::about(id).expect("it is there").attached, 0);
        let only = page(3);
        made.fill(0, [(0_u64, &only[..])].into_iter(), |_, back| {
            assert_eq!(back, only);
        })
        .expect("it is written");
        let known = made.0[0].numbered().expect("it has a number");
        assert_eq!(
            known,
            Numbered {
                own: id,
                number: 4711
            }
        );
        let (told, source) = numbered(known, |_| false).expect("it is there");
        assert_eq!(told, system(key));
        // Who reads it has it.
        let refused = Segments::default().add(&system(key), own());
        assert!(refused.is_err_and(|why| why.to_string().contains("a process has it")));
        let mut read = page(1);
        source.read(0, &mut read).expect("by itself").expect("read");
        assert_eq!(read, only);
        drop((source, made));
        assert!(segment::of_key(key).is_err());
    }
}
