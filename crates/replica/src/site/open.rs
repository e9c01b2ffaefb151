//! Open: what the processes of a program have open in common, and what of it the kernel tells a launcher alone, for a site that joins
//! (crates/agent, join.c).
//!
//! ```text
//!   each process's list ──► entries that are one open file ──► one of several processes, an end of a pair, a stream elsewhere:
//!                                                               made once, at a number of the pool; `as` of each entry names it
//! ```
//!
//! Invariant: an entry of the pool stands at a number that no process has.
//!
//! Not covered: sets for polling that name a descriptor which their process has closed since.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use steadfast_sys::{descriptor, unix_diag};

use super::join::{AREA_BYTES, HELD, HELD_BYTES, seal};
use super::step::{half, word};

/// Classes of descriptors (storage.h).
const STREAM: u32 = 4;
const PIPE: u32 = 10;
const DUPLEX: u32 = 12;
const SIGNALS: u32 = 13;
const FOREIGN: u32 = 14;
const TIMER: u32 = 16;
const WATCHES: u32 = 18;
/// struct sf_held_area, struct sf_held.
const END: usize = 8;
const POOL: usize = 20;
const AS: usize = 4;
const TEXT: usize = 100;
const TEXT_LEN: usize = 104;
const PLACE: usize = 112;
/// The agent moves descriptors out of its way from here on (channel.c, `HIGH`).
const POOL_END: i32 = 896;

/// A process, and the list of its descriptors (struct sf_held_area).
#[derive(Debug)]
pub struct List<'a> {
    pub pid: i32,
    pub area: &'a mut Vec<u8>,
}

/// An entry of a list that is none of another one in the same list.
struct Entry {
    list: usize,
    at: usize,
    fd: i32,
    class: u32,
    link: PathBuf,
}

pub(super) fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn entries(lists: &[List<'_>]) -> Vec<Entry> {
    let mut all = Vec::new();
    for (list, List { pid, area }) in lists.iter().enumerate() {
        for at in (0..half(area, 0) as usize).map(|index| HELD + index * HELD_BYTES) {
            let held = &area[at..at + HELD_BYTES];
            let (fd, class) = (half(held, 0).cast_signed(), half(held, 2));
            if half(held, 1) != u32::MAX || class == FOREIGN {
                continue;
            }
            let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
            all.push(Entry {
                list,
                at,
                fd,
                class,
                link,
            });
        }
    }
    all
}

/// Those that are one open file.
fn together(lists: &[List<'_>], entries: Vec<Entry>) -> Result<Vec<Vec<Entry>>, String> {
    let mut all: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        let mut of = None;
        for (index, group) in all.iter().enumerate() {
            let first = &group[0];
            if (first.class, &first.link) != (entry.class, &entry.link) {
                continue;
            }
            let place = |entry: &Entry| (lists[entry.list].pid, entry.fd);
            if descriptor::is_one_file(place(first), place(&entry))
                .map_err(|error| format!("its descriptors cannot be compared: {error}"))?
            {
                of = Some(index);
                break;
            }
        }
        match of {
            Some(index) => all[index].push(entry),
            None => all.push(vec![entry]),
        }
    }
    Ok(all)
}

/// The signals that a descriptor is for (proc_pid_fdinfo(5)).
fn signals(pid: i32, fd: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let mask = text
        .lines()
        .find_map(|line| line.strip_prefix("sigmask:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// The clock that a timer goes by (proc_pid_fdinfo(5)).
fn clock(pid: i32, fd: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let clock = text
        .lines()
        .find_map(|line| line.strip_prefix("clockid:"))?;
    clock.trim().parse().ok()
}

/// Where a watch is of: the name that its inode has now.
fn name_of(watch: &descriptor::Watch) -> Option<PathBuf> {
    let (major, minor) = watch.device;
    let device = format!("{major}:{minor}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        // Number, parent, device, root and place (proc_pid_mountinfo(5)).
        let words: Vec<_> = line.split(' ').take(5).collect();
        let [_, _, of, _, place] = words[..] else {
            return None;
        };
        let mount = (of == device).then(|| fs::File::open(place.replace("\\040", " ")))?;
        let found = fs::File::from(watch.open(mount.ok()?.as_fd()).ok()?);
        let name = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()?;
        let (there, about) = (fs::symlink_metadata(&name).ok()?, found.metadata().ok()?);
        let is_it = (there.dev(), there.ino()) == (about.dev(), about.ino());
        (is_it && there.ino() == watch.inode).then_some(name)
    })
}

/// What a descriptor of inotify(7) watches, as the agent takes it: of each watch number, mask and name (alarm.c).
fn watched(pid: i32, fd: i32) -> Result<Vec<u8>, String> {
    let why =
        |error: std::io::Error| format!("what descriptor {fd} watches cannot be read: {error}");
    let mut list = Vec::new();
    for watch in descriptor::watches(pid, fd).map_err(why)? {
        let name = name_of(&watch).ok_or_else(|| {
            format!(
                "what descriptor {fd} of the program watches has no name that can be told (inotify, inode {}): it is gone, its file system has no handles, or this command not CAP_DAC_READ_SEARCH",
                watch.inode
            )
        })?;
        list.extend_from_slice(&watch.number.to_le_bytes());
        list.extend_from_slice(&watch.mask.to_le_bytes());
        list.extend_from_slice(name.as_os_str().as_bytes());
        list.push(0);
        list.resize(list.len().next_multiple_of(4), 0);
    }
    Ok(list)
}

/// Puts a text behind a list, for the entry at `at`.
pub(super) fn add_text(area: &mut Vec<u8>, at: usize, text: &[u8]) -> Result<(), String> {
    let number = |of: usize| u32::try_from(of).map_err(|error| error.to_string());
    let (from, len) = (number(area.len())?, number(text.len())?);
    area.extend_from_slice(text);
    area.resize(area.len().next_multiple_of(64), 0);
    set(area, at + TEXT, &from.to_le_bytes());
    set(area, at + TEXT_LEN, &len.to_le_bytes());
    let end = area.len() as u64;
    set(area, END, &end.to_le_bytes());
    Ok(())
}

/// What the agent cannot ask: which sockets are a pair, which signals a descriptor is for, which clock a timer has, what is watched.
fn tell_apart(lists: &mut [List<'_>], entries: &[Entry]) -> Result<(), String> {
    let has_pairs = entries.iter().any(|entry| entry.class == DUPLEX);
    let peers = if has_pairs {
        unix_diag::peers().map_err(|error| {
            format!("which of its sockets are a pair, the kernel does not say (CONFIG_UNIX_DIAG): {error}")
        })?
    } else {
        HashMap::new()
    };
    for entry in entries {
        let list = &mut lists[entry.list];
        if entry.class == WATCHES {
            let text = watched(list.pid, entry.fd)?;
            add_text(list.area, entry.at, &text)?;
            continue;
        }
        let held = &mut list.area[entry.at..entry.at + HELD_BYTES];
        let place = match entry.class {
            DUPLEX => {
                let own = word(held, PLACE / 8);
                match peers.get(&own) {
                    Some(end) if end.peer == 0 => own,
                    Some(end) if !end.is_shut => own.min(end.peer),
                    Some(_) => {
                        return Err(format!(
                            "descriptor {} of the program cannot be made on another host now: a socket that is shut down, and its other end is open",
                            entry.fd
                        ));
                    }
                    None => {
                        return Err(format!(
                            "what is at the other end of descriptor {}, the kernel does not say",
                            entry.fd
                        ));
                    }
                }
            }
            SIGNALS => signals(list.pid, entry.fd).ok_or_else(|| {
                format!(
                    "which signals descriptor {} is for, the kernel does not say",
                    entry.fd
                )
            })?,
            TIMER => clock(list.pid, entry.fd).ok_or_else(|| {
                format!(
                    "which clock descriptor {} goes by, the kernel does not say",
                    entry.fd
                )
            })?,
            _ => continue,
        };
        set(held, PLACE, &place.to_le_bytes());
    }
    Ok(())
}

/// The pool's own list, which grows.
struct Pool {
    area: Vec<u8>,
    from: i32,
    n: i32,
}

impl Pool {
    /// The number at which this one will stand, made as `held`, whose text is in `area`.
    fn add(&mut self, held: &[u8], area: &[u8]) -> Result<i32, String> {
        let fd = self.from + self.n;
        if fd >= POOL_END {
            return Err(
                "the program has too many descriptors in common among its processes".into(),
            );
        }
        let at = HELD + usize::try_from(self.n).expect("counted") * HELD_BYTES;
        set(&mut self.area, at, held);
        let (from, len) = (
            half(held, TEXT / 4) as usize,
            half(held, TEXT_LEN / 4) as usize,
        );
        let to = u32::try_from(self.area.len()).map_err(|error| error.to_string())?;
        let text = area
            .get(from..from + len)
            .ok_or("the list of its descriptors is damaged")?;
        self.area.extend_from_slice(text);
        self.area.resize(self.area.len().next_multiple_of(64), 0);
        set(&mut self.area, at, &fd.to_le_bytes());
        set(&mut self.area, at + TEXT, &to.to_le_bytes());
        self.n += 1;
        Ok(fd)
    }

    /// Nothing: there is none.
    fn finished(mut self) -> Vec<u8> {
        if self.n == 0 {
            return Vec::new();
        }
        set(&mut self.area, 0, &self.n.to_le_bytes());
        let end = self.area.len() as u64;
        set(&mut self.area, END, &end.to_le_bytes());
        seal(&mut self.area);
        self.area
    }
}

/// What the entry for a number is, for a message.
pub(super) fn name_in(area: &[u8], fd: i64) -> String {
    let mut all = (0..half(area, 0) as usize).map(|index| HELD + index * HELD_BYTES);
    let Some(at) = all.find(|at| i64::from(half(&area[*at..], 0).cast_signed()) == fd) else {
        return "nobody says what".into();
    };
    let held = &area[at..at + HELD_BYTES];
    let (class, from) = (half(held, 2), half(held, TEXT / 4) as usize);
    let text = area.get(from..from + half(held, TEXT_LEN / 4) as usize);
    match text.filter(|text| text.first() == Some(&b'/')) {
        Some(text) => String::from_utf8_lossy(text)
            .trim_end_matches('\0')
            .to_owned(),
        None => format!("a descriptor that is no file (class {class})"),
    }
}

/// A stream that the program was started with, by its number, where one of these still has that. A child may have it at another
/// one's: the first process that has one tells.
fn stream_of(group: &[Entry]) -> Option<i32> {
    group.iter().map(|entry| entry.fd).find(|fd| *fd <= 2)
}

/// Sorts out what the processes of a program have in common: the pool's list, or nothing. Each process's own names it.
///
/// # Errors
/// What cannot be made on another host.
pub fn sort_out(lists: &mut [List<'_>]) -> Result<Vec<u8>, String> {
    let entries = entries(lists);
    tell_apart(lists, &entries)?;
    let highest = |list: &List<'_>| {
        let all = (0..half(list.area, 0) as usize).map(|index| HELD + index * HELD_BYTES);
        all.map(|at| half(&list.area[at..], 0).cast_signed()).max()
    };
    let from = lists.iter().filter_map(highest).max().unwrap_or(0).max(2) + 1;
    let mut pool = Pool {
        area: vec![0; AREA_BYTES],
        from,
        n: 0,
    };
    let several = lists.len() > 1;
    let mut streams = HashSet::new();
    for group in together(lists, entries)? {
        let first = &group[0];
        let mut held = lists[first.list].area[first.at..first.at + HELD_BYTES].to_vec();
        if first.class == WATCHES {
            let newest = |entry: &Entry| word(&lists[entry.list].area[entry.at..], PLACE / 8);
            let newest = group.iter().map(newest).max().unwrap_or(0);
            set(&mut held, PLACE, &newest.to_le_bytes());
        }
        let mut own = None;
        if first.class == STREAM {
            let stream = stream_of(&group).ok_or_else(|| {
                format!(
                    "descriptor {} of the program cannot be made on another host now: a stream of a parent",
                    first.fd
                )
            })?;
            if !streams.insert(stream) {
                return Err(format!(
                    "which stream its processes have as descriptor {stream}, nobody can tell: there are two"
                ));
            }
            set(
                &mut held,
                PLACE,
                &u64::try_from(stream).expect("up to 2").to_le_bytes(),
            );
            own = Some(stream);
        }
        let elsewhere = group
            .iter()
            .any(|entry| own.is_some_and(|own| own != entry.fd));
        let ends = first.class == DUPLEX || (several && first.class == PIPE);
        let shared = own.is_none() && group.iter().any(|entry| entry.list != first.list);
        if !elsewhere && !ends && !shared {
            continue;
        }
        let fd = pool.add(&held, lists[first.list].area)?;
        for entry in group.iter().filter(|entry| own != Some(entry.fd)) {
            set(lists[entry.list].area, entry.at + AS, &fd.to_le_bytes());
        }
    }
    for list in lists {
        if pool.n > 0 {
            set(list.area, POOL, &from.to_le_bytes());
        }
        seal(list.area);
    }
    Ok(pool.finished())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const FILE: u32 = 1;
    const CLASS: usize = 8;

    fn area(all: &[(i32, u32, u64)]) -> Vec<u8> {
        let mut area = vec![0; AREA_BYTES];
        for (index, (fd, class, place)) in all.iter().enumerate() {
            let at = HELD + index * HELD_BYTES;
            set(&mut area, at, &fd.to_le_bytes());
            set(&mut area, at + AS, &(-1_i32).to_le_bytes());
            set(&mut area, at + CLASS, &class.to_le_bytes());
            set(&mut area, at + PLACE, &place.to_le_bytes());
        }
        set(
            &mut area,
            0,
            &u32::try_from(all.len()).expect("few").to_le_bytes(),
        );
        area
    }

    fn alias(area: &[u8], index: usize) -> i32 {
        half(&area[HELD + index * HELD_BYTES..], 1).cast_signed()
    }

    fn sorted(one: &mut Vec<u8>, other: &mut Vec<u8>) -> Vec<u8> {
        let pid = i32::try_from(std::process::id()).expect("a number");
        let mut lists = [one, other].map(|area| List { pid, area });
        sort_out(&mut lists).expect("all of it can be made")
    }

    #[test]
    fn one_open_file_of_two_processes_is_made_once_and_two_of_one_name_are_made_twice() {
        let mut file = tempfile();
        file.write_all(b"some").expect("it is stored");
        file.seek(SeekFrom::Start(1)).expect("a file");
        let again = fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a file");
        let same = file.try_clone().expect("a file");
        let (mut a, mut b) = (
            area(&[(file.as_raw_fd(), FILE, 1), (again.as_raw_fd(), FILE, 0)]),
            area(&[(same.as_raw_fd(), FILE, 1)]),
        );
        let pool = sorted(&mut a, &mut b);
        let from = half(&a, POOL / 4).cast_signed();
        assert!(from > same.as_raw_fd().max(again.as_raw_fd()));
        assert_eq!((alias(&a, 0), alias(&a, 1), alias(&b, 0)), (from, -1, from));
        assert_eq!(
            (half(&pool, 0), half(&pool[HELD..], 0).cast_signed()),
            (1, from)
        );
        let (mut a, mut b) = (
            area(&[(file.as_raw_fd(), FILE, 1)]),
            area(&[(again.as_raw_fd(), FILE, 0)]),
        );
        assert!(sorted(&mut a, &mut b).is_empty());
        assert_eq!((alias(&a, 0), alias(&b, 0)), (-1, -1));
    }

    #[test]
    fn ends_of_one_pair_have_one_name_and_those_of_another_pair_another() {
        use std::os::unix::fs::MetadataExt;
        let (pair, other) = (
            UnixStream::pair().expect("a pair"),
            UnixStream::pair().expect("a pair"),
        );
        let inode = |fd: i32| {
            fs::metadata(format!("/proc/self/fd/{fd}"))
                .expect("it is open")
                .ino()
        };
        let [a, b, c] = [&pair.0, &pair.1, &other.0].map(AsRawFd::as_raw_fd);
        let mut one = area(&[(a, DUPLEX, inode(a)), (c, DUPLEX, inode(c))]);
        let mut two = area(&[(b, DUPLEX, inode(b))]);
        let pool = sorted(&mut one, &mut two);
        let place = |index: usize| word(&pool[HELD + index * HELD_BYTES..], PLACE / 8);
        assert_eq!(half(&pool, 0), 3);
        assert_eq!(place(0), place(2));
        assert_ne!(place(0), place(1));
    }

    fn ino(fd: i32) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let of = fs::metadata(format!("/proc/self/fd/{fd}"));
        of.expect("it is open").ino()
    }

    #[test]
    fn ends_that_have_no_other_end_are_no_pair_and_one_that_is_shut_down_is_refused() {
        let [one, other] = [(); 2].map(|()| UnixStream::pair().expect("a pair").0);
        let [a, b] = [&one, &other].map(AsRawFd::as_raw_fd);
        let mut both = area(&[(a, DUPLEX, ino(a)), (b, DUPLEX, ino(b))]);
        let pool = sorted(&mut both, &mut area(&[]));
        let place = |index: usize| word(&pool[HELD + index * HELD_BYTES..], PLACE / 8);
        assert_eq!((place(0), place(1)), (ino(a), ino(b)));
        let shut = UnixStream::pair().expect("a pair");
        shut.0.shutdown(std::net::Shutdown::Both).expect("a socket");
        let fd = shut.1.as_raw_fd();
        let pid = i32::try_from(std::process::id()).expect("a number");
        let mut list = area(&[(fd, DUPLEX, ino(fd))]);
        let refused = sort_out(&mut [List {
            pid,
            area: &mut list,
        }]);
        assert!(refused.is_err_and(|why| why.contains("shut down")));
    }

    /// As of another network, or made while the kernel told of them.
    #[test]
    fn a_pair_of_which_the_kernel_does_not_tell_is_refused() {
        let ends = UnixStream::pair().expect("a pair");
        let own = ends.0.as_raw_fd();
        let mut one = area(&[(own, DUPLEX, u64::from(u32::MAX))]);
        let pid = i32::try_from(std::process::id()).expect("a number");
        let area = &mut one;
        let refused = sort_out(&mut [List { pid, area }]);
        let why = refused.expect_err("nobody knows its other end");
        assert!(
            why.contains(&format!("at the other end of descriptor {own}")),
            "{why}"
        );
    }

    #[test]
    fn two_streams_that_stand_at_one_number_in_two_processes_are_refused() {
        use std::process::{Command, Stdio};
        let mut other = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat is installed");
        let pids = [std::process::id(), other.id()];
        let mut areas = [(); 2].map(|()| area(&[(1, STREAM, 0)]));
        let mut lists: Vec<_> = pids
            .iter()
            .zip(&mut areas)
            .map(|(pid, area)| List {
                pid: i32::try_from(*pid).expect("a number"),
                area,
            })
            .collect();
        let refused = sort_out(&mut lists);
        assert!(refused.is_err_and(|why| why.contains("there are two")));
        drop(other.stdin.take());
        other.wait().expect("a child");
    }

    #[test]
    fn a_stream_that_stands_elsewhere_is_the_one_that_it_was() {
        let mut one = area(&[(1, STREAM, 0)]);
        let elsewhere = duplicate(1).expect("a stream");
        let mut two = area(&[(elsewhere.as_raw_fd(), STREAM, 0)]);
        let pool = sorted(&mut one, &mut two);
        assert_eq!(half(&pool, 0), 1);
        assert_eq!(word(&pool[HELD..], PLACE / 8), 1);
        assert_eq!(alias(&one, 0), -1);
        assert_eq!(alias(&two, 0), half(&pool[HELD..], 0).cast_signed());
    }

    fn duplicate(fd: i32) -> std::io::Result<fs::File> {
        descriptor::duplicate(i32::try_from(std::process::id()).expect("a number"), fd)
    }

    fn tempfile() -> fs::File {
        let path = std::env::temp_dir().join(format!("steadfast-open-{}", std::process::id()));
        let file = fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        fs::remove_file(&path).expect("clean");
        file.expect("a file")
    }
}
