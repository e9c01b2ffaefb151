//! What /proc says about a process.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub range: Range<u64>,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    pub offset: u64,
    pub inode: u64,
    pub path: PathBuf,
}

/// The mappings of a process, in address order.
///
/// # Errors
/// When the file cannot be read or a line has another shape than proc_pid_maps(5) says.
pub fn maps(pid: i32) -> io::Result<Vec<Mapping>> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    text.lines()
        .map(|line| {
            parse(line).ok_or_else(|| io::Error::other(format!("unknown line in maps: {line:?}")))
        })
        .collect()
}

fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (from, to) = fields.next()?.split_once('-')?;
    let flags = fields.next()?.as_bytes();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let _device = fields.next()?;
    let inode = fields.next()?.parse().ok()?;
    Some(Mapping {
        range: u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?,
        readable: flags.first() == Some(&b'r'),
        writable: flags.get(1) == Some(&b'w'),
        executable: flags.get(2) == Some(&b'x'),
        shared: flags.get(3) == Some(&b's'),
        offset,
        inode,
        path: fields.next().unwrap_or("").trim_start().into(),
    })
}

/// The process that a thread belongs to.
///
/// # Errors
/// When it is gone.
pub fn leader(tid: i32) -> io::Result<i32> {
    fs::read_to_string(format!("/proc/{tid}/status"))?
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// The thread that traces a process, 0 for none, or none that this namespace has a number for; nothing where it cannot be read.
#[must_use]
pub fn tracer(pid: i32) -> Option<i32> {
    let text = record(&format!("/proc/{pid}/status")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse().ok())
}

/// The name of a process or thread (proc_pid_comm(5)); empty where it is gone.
#[must_use]
pub fn name(pid: i32) -> String {
    record(&format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The auxiliary vector as (type, value), in order, terminator included.
///
/// # Errors
/// When the file cannot be read.
pub fn auxv(pid: i32) -> io::Result<Vec<(u64, u64)>> {
    let bytes = fs::read(format!("/proc/{pid}/auxv"))?;
    let word = |at: &[u8]| u64::from_le_bytes(at.try_into().expect("eight bytes"));
    Ok(bytes
        .chunks_exact(16)
        .map(|pair| (word(&pair[..8]), word(&pair[8..])))
        .collect())
}

/// The number by which procfs knows this process: another one's pid namespace calls it otherwise, or
/// does not know it.
#[must_use]
pub fn own_number() -> Option<i32> {
    fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

/// Children of a process, of all its threads; none where the kernel does not list them
/// (CONFIG_PROC_CHILDREN).
#[must_use]
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let list =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let text: String = tasks.flatten().map(list).collect();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// The text of a file of one record, in one read: these are looked at while a program waits, and the
/// length that a general reader asks for first is 0 here.
fn record(path: &str) -> io::Result<String> {
    use io::Read;
    let mut bytes = [0; 4096];
    let n = fs::File::open(path)?.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..n]).into_owned())
}

/// When a process began, in ticks since the machine's start: tells it from one that has its number later.
#[must_use]
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = record(&format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    // Field 22, counted from the state, which is field 3.
    rest.split(' ').nth(19)?.parse().ok()
}

/// State letter and parent of a process (proc_pid_stat(5)).
fn state(pid: i32) -> Option<(u8, i32)> {
    let stat = record(&format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((
        *fields.next()?.as_bytes().first()?,
        fields.next()?.parse().ok()?,
    ))
}

/// The arguments that a process was started with; none where they cannot be read.
#[must_use]
pub fn command_line(pid: i32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    bytes
        .split(|byte| *byte == 0)
        .map(|arg| String::from_utf8_lossy(arg).into_owned())
        .collect()
}

/// The threads of a process and of all that descends from it, and whether each of them computes.
#[must_use]
pub fn threads_below(pid: i32) -> Vec<(i32, bool)> {
    let mut all = Vec::new();
    let mut processes = vec![pid];
    while let Some(process) = processes.pop() {
        let tasks = fs::read_dir(format!("/proc/{process}/task"));
        let tids = tasks
            .into_iter()
            .flatten()
            .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
        all.extend(tids.map(|tid| (tid, state(tid).is_some_and(|(letter, _)| letter == b'R'))));
        processes.extend(children(process));
    }
    all
}

/// Whether a process sleeps and waits for something other than a disk.
#[must_use]
pub fn sleeps(pid: i32) -> bool {
    state(pid).is_some_and(|(letter, _)| letter == b'S')
}

/// Whether a process has a processor or waits for one.
#[must_use]
pub fn runs(pid: i32) -> bool {
    state(pid).is_some_and(|(letter, _)| letter == b'R')
}

/// Signals that have been sent to a process and that it has not taken, as bits from the lowest (proc_pid_status(5), SigPnd and
/// ShdPnd); of one that has ended, until it is reaped.
#[must_use]
pub fn pending(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let of = |line: &str| {
        let mask = ["SigPnd:", "ShdPnd:"].map(|name| line.strip_prefix(name));
        let mask = mask.into_iter().flatten().next()?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    status
        .lines()
        .filter_map(of)
        .fold(0, |all, mask| all | mask)
}

/// Whether a process has ended, reaped or not.
#[must_use]
pub fn has_ended(pid: i32) -> bool {
    state(pid).is_none_or(|(letter, _)| matches!(letter, b'Z' | b'X'))
}

/// Where a private mapping ends to have pages that can be read: at its end, or with the last page of its file. Nothing: the kernel
/// does not tell how long that is.
#[must_use]
pub fn end_of_pages(pid: i32, map: &Mapping) -> Option<u64> {
    const PAGE: u64 = 4096;
    if map.inode == 0 {
        return Some(map.range.end);
    }
    let Range { start, end } = map.range;
    // The link is for those with CAP_SYS_ADMIN (proc_pid_map_files(5)).
    let about = fs::metadata(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
        .or_else(|_| fs::metadata(&map.path))
        .ok()?;
    if about.ino() != map.inode {
        return None;
    }
    let pages = about
        .len()
        .next_multiple_of(PAGE)
        .saturating_sub(map.offset);
    // Of a device they are memory, without an end.
    Some(if about.is_file() {
        end.min(start + pages)
    } else {
        end
    })
}

/// Whether any process has this file mapped, of those whose mappings may be read.
#[must_use]
pub fn is_mapped(file: &fs::Metadata) -> bool {
    let (major, minor) = (libc::major(file.dev()), libc::minor(file.dev()));
    let wanted = format!(" {major:02x}:{minor:02x} {} ", file.ino());
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(pid).any(|pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/maps"));
        text.is_ok_and(|text| text.contains(&wanted))
    })
}

/// Whether a child of a process has ended and waits for being waited for.
#[must_use]
pub fn has_zombies(pid: i32) -> bool {
    /// `exit_signal` (field 38), counted from the state, which is field 3.
    const EXIT_SIGNAL: usize = 35;
    children(pid).into_iter().any(|child| {
        let stat = record(&format!("/proc/{child}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let of = |index| fields.split(' ').nth(index);
        of(0) == Some("Z") && of(EXIT_SIGNAL).is_some_and(|signal| signal.trim() != "0")
    })
}

/// Whether a process has no memory any more: the first thing that goes when it dies, and long before it
/// can be reaped where namespaces die with it.
#[must_use]
pub fn has_no_memory(pid: i32) -> bool {
    /// `vsize` (field 23), counted from the state, which is field 3.
    const VSIZE: usize = 20;
    let Ok(stat) = record(&format!("/proc/{pid}/stat")) else {
        return true;
    };
    let size = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(VSIZE));
    size.is_none_or(|size| size == "0")
}

/// The parent of a process.
#[must_use]
pub fn parent(pid: i32) -> Option<i32> {
    state(pid).map(|(_, parent)| parent)
}

/// Effective user and group of a process.
#[must_use]
pub fn effective_ids(pid: i32) -> Option<(u32, u32)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // Real, effective, saved, of the file system (proc_pid_status(5)).
    let second = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    Some((second("Uid:")?, second("Gid:")?))
}

/// Whether `pid` is anywhere below `ancestor`.
#[must_use]
pub fn is_below(pid: i32, ancestor: i32) -> bool {
    let parent = |pid: &i32| {
        state(*pid)
            .map(|(_, parent)| parent)
            .filter(|parent| *parent > 0)
    };
    std::iter::successors(parent(&pid), parent)
        .take(4096)
        .any(|above| above == ancestor)
}

/// Whether `pid` is a child of `ancestor`, or a child's child.
#[must_use]
pub fn descends(pid: i32, ancestor: i32) -> bool {
    let parent = |pid| state(pid).map(|(_, parent)| parent);
    let first = parent(pid);
    first == Some(ancestor) || first.filter(|pid| *pid > 1).and_then(parent) == Some(ancestor)
}

/// The system call that a process sleeps in: its number.
#[must_use]
pub fn sleeps_in(pid: i32) -> Option<u32> {
    let text = record(&format!("/proc/{pid}/syscall")).ok()?;
    text.split(' ').next()?.trim().parse().ok()
}

/// The only child of `pid`, if it has one.
#[must_use]
pub fn only_child(pid: i32) -> Option<i32> {
    if let Ok(text) = record(&format!("/proc/{pid}/task/{pid}/children")) {
        return text.split_whitespace().next()?.parse().ok();
    }
    // Kernels without CONFIG_PROC_CHILDREN: the fourth field of stat, after the command.
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(candidate) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{candidate}/stat")) else {
            continue;
        };
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1))
            .and_then(|field| field.parse::<i32>().ok());
        if parent == Some(pid) {
            return Some(candidate);
        }
    }
    None
}

/// Whether a process sleeps in a futex(2) on a word in `range`.
#[must_use]
pub fn waits_on(pid: i32, range: &std::ops::Range<u64>) -> bool {
    // Number and arguments of the call in progress, or `running` (proc_pid_syscall(5)).
    let Ok(text) = record(&format!("/proc/{pid}/syscall")) else {
        return false;
    };
    let mut words = text.split(' ');
    let futex = words
        .next()
        .is_some_and(|number| number == libc::SYS_futex.to_string());
    let word = words
        .next()
        .and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    futex && word.is_some_and(|word| range.contains(&word))
}

/// CPU time a process has used, in nanoseconds; nothing once it is gone.
#[must_use]
pub fn cpu_ns(pid: i32) -> Option<u64> {
    // schedstat: time on the CPU, time waiting, slices; nanoseconds (sched-stats.rst).
    let text = record(&format!("/proc/{pid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// How long a thread has waited for a processor that others had, in nanoseconds; nothing once it is gone.
#[must_use]
pub fn delayed_ns(tid: i32) -> Option<u64> {
    delay(&format!("/proc/{tid}/schedstat"))
}

/// The same of the calling thread.
#[must_use]
pub fn own_delayed_ns() -> Option<u64> {
    delay("/proc/thread-self/schedstat")
}

fn delay(schedstat: &str) -> Option<u64> {
    record(schedstat)
        .ok()?
        .split(' ')
        .nth(1)?
        .trim()
        .parse()
        .ok()
}

/// CPU time a process has used so far, in user mode and in the kernel, in nanoseconds: the
/// scheduler's exact sum, shared out as the ticks of its stat file say.
#[must_use]
pub fn times(pid: i32) -> Option<(u64, u64)> {
    let total = cpu_ns(pid)?;
    let stat = record(&format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let in_kernel = (total * system).checked_div(user + system).unwrap_or(0);
    Some((total - in_kernel, in_kernel))
}

/// CPU time that a process itself has burned: a sixteenth of what the kernel burned for it counts. Pages
/// take the kernel longer for one process than for another that does the same: 800 MiB took 0.05 s, and 3 s
/// where the hypervisor had to find the memory first.
#[must_use]
pub fn burned_ns(pid: i32) -> Option<u64> {
    let (user, system) = times(pid)?;
    Some(user + system / 16)
}

/// Whether a process holds a record lock of fcntl(2) (proc_locks(5)).
#[must_use]
pub fn holds_record_lock(pid: i32) -> bool {
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    // Number, kind, mode, access, process; `->` after the number is one who waits.
    text.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1) == Some(&"POSIX")
            && fields.get(4).and_then(|field| field.parse().ok()) == Some(pid)
    })
}

/// Whether a process stands still because of a stop signal.
#[must_use]
pub fn is_stopped(pid: i32) -> bool {
    state(pid).is_some_and(|(letter, _)| letter == b'T')
}

/// Whether a tracer holds a child of `pid` in a stop.
#[must_use]
pub fn child_is_traced(pid: i32) -> bool {
    children(pid)
        .into_iter()
        .any(|child| state(child).is_some_and(|(letter, _)| letter == b't'))
}

/// Whether this process may do what root may: the effective user is 0.
#[must_use]
pub fn is_privileged() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Whether this thread has a capability, by its number (capabilities(7), linux/capability.h).
#[must_use]
pub fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.is_some_and(|mask| mask >> number & 1 != 0)
}

/// Clock source of the kernel.
#[must_use]
pub fn clock_source() -> String {
    fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_default()
        .trim()
        .to_owned()
}
