//! Shared memory, memory that tells what was written, and huge pages.

#![allow(
    unsafe_code,
    reason = "mmap(2), futex(2), userfaultfd(2) and the ioctls of pagemap"
)]

use std::fs;
use std::mem::size_of;
use std::sync::atomic::{AtomicU32, Ordering};

use steadfast_sys::pagemap::{self, Region, Wanted};

use crate::boxed::{self, Answer, Outcome};
use crate::{Finding, read};

/// What the replicas share: the log, its payloads and the transfer area (`SF_SHARED_BYTES` in
/// crates/agent/src/layout/abi.h). Sparse: pages that are not touched cost nothing, but limits count
/// them all.
const SHARED_BYTES: usize = 268 << 20;

pub(crate) const PAGE: usize = 4096;

pub(crate) fn shared() -> Vec<Finding> {
    vec![memfd(), futex()]
}

pub(crate) fn findings() -> Vec<Finding> {
    vec![write_tracking(), huge_pages(), overcommit()]
}

/// A fresh private or shared mapping; nothing if there is no room.
pub(crate) fn map(bytes: usize, flags: i32, fd: i32) -> Option<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// Writes a byte into each page of a mapping.
///
/// # Safety
/// `at` is a writable mapping of at least `bytes`, and nobody holds a reference into it.
pub(crate) unsafe fn touch(at: *mut u8, bytes: usize) {
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: inside the mapping, as the caller promises. Volatile: each page must be written.
        unsafe { at.wrapping_add(offset).write_volatile(1) };
    }
}

fn memfd() -> Finding {
    const STEPS: [&str; 3] = ["memfd_create", "268 MiB of it", "mapping it"];
    let outcome = boxed::run(boxed::LIMIT, || {
        // SAFETY: a terminated name.
        let fd = unsafe { libc::memfd_create(c"steadfast-probe".as_ptr(), libc::MFD_CLOEXEC) };
        if fd == -1 {
            return Answer::failed(1);
        }
        // SAFETY: numbers only. Over the limit on file sizes this is a signal, which is an answer.
        if unsafe { libc::ftruncate(fd, SHARED_BYTES as i64) } == -1 {
            return Answer::failed(2);
        }
        if map(SHARED_BYTES, libc::MAP_SHARED, fd).is_none() {
            Answer::failed(3)
        } else {
            Answer::fine([0; 6])
        }
    });
    let missing =
        |seen: String, fix: &str| Finding::missing("shared memory", seen).needed().fix(fix);
    let seen = outcome.why(&STEPS);
    match outcome {
        Outcome::Answered(Answer { step: 0, .. }) => {
            Finding::works("shared memory", "268 MiB of memfd, sparse").needed()
        }
        Outcome::Died(libc::SIGXFSZ) => missing(
            "268 MiB of memfd are above the limit on file sizes".to_owned(),
            "ulimit -f unlimited",
        ),
        Outcome::Answered(Answer { step: 3, .. }) => missing(seen, "ulimit -v unlimited"),
        Outcome::Answered(Answer {
            step: 1,
            errno: libc::EMFILE,
            ..
        }) => missing(seen, "ulimit -n 1024"),
        _ if read::is_filtered() => missing(seen, "docker run --security-opt seccomp=unconfined"),
        _ => missing(seen, "a kernel with CONFIG_MEMFD_CREATE"),
    }
}

/// futex(2) between processes.
pub(crate) fn futex_call(word: &AtomicU32, operation: i32, value: u32) -> i64 {
    // SAFETY: the word is alive across the call; no timeout and no second word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    }
}

fn futex() -> Finding {
    let outcome = boxed::run(boxed::LIMIT, || {
        let Some(page) = map(PAGE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1) else {
            return Answer::failed(1);
        };
        // SAFETY: the page is zeroed, aligned, never unmapped, and only accessed through atomics.
        let word = unsafe { &*page.cast::<AtomicU32>() };
        // The child may be faster than the first wait, so that there would be none.
        if futex_call(word, libc::FUTEX_WAKE, 1) == -1 {
            return Answer::failed(3);
        }
        // SAFETY: the child only stores, wakes and leaves.
        match unsafe { libc::fork() } {
            -1 => return Answer::failed(2),
            0 => {
                word.store(1, Ordering::SeqCst);
                futex_call(word, libc::FUTEX_WAKE, 1);
                // SAFETY: ends this process.
                unsafe { libc::_exit(0) };
            }
            _ => {}
        }
        while word.load(Ordering::SeqCst) == 0 {
            if futex_call(word, libc::FUTEX_WAIT, 0) == -1
                && !matches!(boxed::errno(), libc::EAGAIN | libc::EINTR)
            {
                return Answer::failed(3);
            }
        }
        Answer::fine([0; 6])
    });
    match outcome.fine() {
        Some(_) => {
            Finding::works("futex", "one process woke another through shared memory").needed()
        }
        None => {
            Finding::missing("futex", outcome.why(&["shared memory", "fork", "futex"])).needed()
        }
    }
}

// linux/userfaultfd.h
const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;

#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioRegister {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

const _: () = {
    // The size stands in the numbers of the ioctls (asm-generic/ioctl.h).
    assert!(size_of::<UffdioApi>() as u64 == UFFDIO_API >> 16 & 0x3fff);
    assert!(size_of::<UffdioRegister>() as u64 == UFFDIO_REGISTER >> 16 & 0x3fff);
};

/// Memory whose writes the kernel notes by itself.
pub(crate) struct Tracked {
    pagemap: fs::File,
    at: *mut u8,
    bytes: usize,
}

/// Steps of [`Tracked::new`] and [`Tracked::written`], from 1.
const TRACK_STEPS: [&str; 6] = [
    "memory",
    "userfaultfd",
    "UFFD_FEATURE_WP_ASYNC",
    "registering memory",
    "/proc/self/pagemap",
    "PAGEMAP_SCAN",
];

impl Tracked {
    /// Populates and registers memory, and protects it for the first time.
    pub(crate) fn new(bytes: usize) -> Result<Self, Answer> {
        let at = map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
            .ok_or_else(|| Answer::failed(1))?;
        // Huge pages would be noted as wholes.
        // SAFETY: advice on a mapping of ours.
        unsafe { libc::madvise(at.cast(), bytes, libc::MADV_NOHUGEPAGE) };
        // SAFETY: the mapping is fresh, writable and ours alone.
        unsafe { touch(at, bytes) };
        // SAFETY: numbers only.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | UFFD_USER_MODE_ONLY) };
        let fd = i32::try_from(fd)
            .ok()
            .filter(|&fd| fd >= 0)
            .ok_or_else(|| Answer::failed(2))?;
        let features =
            UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC;
        let mut api = UffdioApi {
            api: UFFD_API,
            features,
            ioctls: 0,
        };
        // SAFETY: the ioctl's own structure, alive across the call.
        if unsafe { libc::ioctl(fd, UFFDIO_API, &raw mut api) } == -1 {
            return Err(Answer::failed(3));
        }
        let (start, len) = (at.addr() as u64, bytes as u64);
        let mut register = UffdioRegister {
            start,
            len,
            mode: UFFDIO_REGISTER_MODE_WP,
            ioctls: 0,
        };
        // SAFETY: the ioctl's own structure, alive across the call, naming a mapping of ours.
        if unsafe { libc::ioctl(fd, UFFDIO_REGISTER, &raw mut register) } == -1 {
            return Err(Answer::failed(4));
        }
        let pagemap = fs::File::open("/proc/self/pagemap").map_err(|error| Answer {
            step: 5,
            errno: error.raw_os_error().unwrap_or(0),
            ..Answer::default()
        })?;
        let tracked = Self { pagemap, at, bytes };
        // The descriptor stays open: closing it would end the registration.
        tracked.written()?;
        Ok(tracked)
    }

    /// Pages written since the last time, which are protected again.
    fn written(&self) -> Result<Vec<u64>, Answer> {
        let start = self.at.addr() as u64;
        let written = Wanted {
            flags: pagemap::WP_MATCHING | pagemap::CHECK_WPASYNC,
            all: pagemap::IS_WRITTEN,
            told: pagemap::IS_WRITTEN,
            ..Wanted::default()
        };
        let mut regions = [Region::default(); 16];
        let mut pages = Vec::new();
        let mut from = start;
        let end = start + self.bytes as u64;
        while from < end {
            let Ok((found, walk_end)) =
                pagemap::scan(&self.pagemap, &(from..end), &written, &mut regions)
            else {
                return Err(Answer::failed(6));
            };
            for region in &regions[..found] {
                pages.extend(
                    (region.start..region.end)
                        .step_by(PAGE)
                        .map(|page| (page - start) / PAGE as u64),
                );
            }
            if walk_end <= from {
                return Err(Answer::wrong(6));
            }
            from = walk_end;
        }
        Ok(pages)
    }

    /// Writes to every page once.
    pub(crate) fn write_all(&self) {
        // SAFETY: the mapping is writable, ours alone and of this size.
        unsafe { touch(self.at, self.bytes) };
    }

    /// Writes to one page.
    fn write(&self, page: usize) {
        assert!(page * PAGE < self.bytes);
        // SAFETY: inside the mapping, as was just checked.
        unsafe { self.at.wrapping_add(page * PAGE).write_volatile(2) };
    }

    /// Scans and protects again; the number of pages that had been written.
    pub(crate) fn scan(&self) -> usize {
        self.written().map_or(0, |pages| pages.len())
    }
}

fn write_tracking() -> Finding {
    let outcome = boxed::run(boxed::LIMIT, || {
        let tracked = match Tracked::new(16 * PAGE) {
            Ok(tracked) => tracked,
            Err(why) => return why,
        };
        tracked.write(3);
        tracked.write(7);
        match tracked.written() {
            Ok(pages) if pages == [3, 7] => Answer::fine([0; 6]),
            Ok(_) => Answer::wrong(6),
            Err(why) => why,
        }
    });
    match outcome.fine() {
        Some(_) => Finding::works(
            "write tracking",
            "the kernel named the two pages that were written",
        ),
        None => Finding::slower(
            "write tracking",
            outcome.why(&TRACK_STEPS),
            "--check-memory=dirty is not possible; --check-memory=full hashes everything",
        )
        .fix("a kernel of 6.7 or later"),
    }
}

fn huge_pages() -> Finding {
    const HUGE: usize = 2 << 20;
    let setting =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = setting
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let outcome = boxed::run(boxed::LIMIT, || {
        // Twice the size holds one that is aligned.
        let Some(at) = map(2 * HUGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1) else {
            return Answer::failed(1);
        };
        let offset = at.align_offset(HUGE);
        // SAFETY: the aligned half lies inside the mapping, which is twice as large.
        let aligned = unsafe { at.add(offset) };
        // SAFETY: advice on a mapping of ours.
        if unsafe { libc::madvise(aligned.cast(), HUGE, libc::MADV_HUGEPAGE) } == -1 {
            return Answer::failed(2);
        }
        // SAFETY: the aligned half is writable and ours alone.
        unsafe { touch(aligned, HUGE) };
        let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let start = format!("{:x}-", aligned.addr());
        let huge = maps
            .lines()
            .skip_while(|line| !line.starts_with(&start))
            .find_map(|line| line.strip_prefix("AnonHugePages:"))
            .is_some_and(|kib| kib.trim().starts_with("2048"));
        if huge {
            Answer::fine([0; 6])
        } else {
            Answer::wrong(3)
        }
    });
    let seen = format!(
        "transparent huge pages: {}",
        chosen.unwrap_or("not in this kernel")
    );
    match outcome.fine() {
        Some(_) => Finding::works("huge pages", seen),
        None => {
            let seen = format!(
                "{seen}; {}",
                outcome.why(&["memory", "madvise", "the first touch"])
            );
            Finding::slower(
                "huge pages",
                seen,
                "4 KiB pages: snapshots and first touches of large memory cost more",
            )
            .maybe_fix(
                (chosen == Some("never")).then(|| {
                    "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".to_owned()
                }),
            )
        }
    }
}

fn overcommit() -> Finding {
    match read::number("/proc/sys/vm/overcommit_memory") {
        Some(2) => Finding::slower(
            "overcommit",
            "vm.overcommit_memory is 2: every replica's memory is reserved in full",
            "large programs may run out of memory although most of it is shared",
        )
        .fix("sysctl vm.overcommit_memory=0"),
        Some(mode) => Finding::works("overcommit", format!("vm.overcommit_memory is {mode}")),
        None => Finding::works("overcommit", "vm.overcommit_memory cannot be read"),
    }
}
