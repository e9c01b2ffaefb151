//! Memory of other processes: which pages they own, reading, and writing regardless of
//! protection. And this process's own heap.
#![allow(
    unsafe_code,
    reason = "malloc_trim(3) and process_vm_readv(2) have no safe wrappers"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::pagemap::{self, IS_FILE, IS_PRESENT, IS_SWAPPED, IS_ZERO, Region, Wanted};

const PAGE: u64 = 4096;

fn join(runs: &mut Vec<Range<u64>>, next: Range<u64>) {
    match runs.last_mut() {
        Some(run) if run.end == next.start => run.end = next.end,
        _ => runs.push(next),
    }
}

/// Gives back to the system what is free or can be read again: the heap's free pages, where the C library
/// can, and this program's code and constants, most of which were needed for the last time when a program has started.
pub fn trim() {
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let maps = i32::try_from(std::process::id())
        .ok()
        .and_then(|pid| crate::procfs::maps(pid).ok());
    let of_file = |map: &&crate::procfs::Mapping| !map.writable && !map.shared && map.path == own;
    // Behind the code lies what the loader has written to before it became read-only.
    let mut before = true;
    let fixed = maps.iter().flatten().filter(of_file).take_while(|map| {
        let is_fixed = before || map.executable;
        before &= !map.executable;
        is_fixed
    });
    for map in fixed {
        let Ok(len) = usize::try_from(map.range.end - map.range.start) else {
            continue;
        };
        // SAFETY: what nobody has written to comes back from the file (madvise(2)).
        unsafe {
            libc::madvise(
                map.range.start as *mut libc::c_void,
                len,
                libc::MADV_DONTNEED,
            );
        }
    }
    // SAFETY: malloc_trim(3) takes the allocator's own locks and touches free memory alone.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Another process's memory and page map, open for as long as it is at hand.
#[derive(Debug)]
pub struct Remote {
    pid: i32,
    mem: File,
    pagemap: File,
}

impl Remote {
    /// Opens `/proc/PID/mem` and `/proc/PID/pagemap`.
    ///
    /// # Errors
    /// As ptrace(2) access checks decide.
    pub fn open(pid: i32) -> io::Result<Self> {
        Ok(Self {
            pid,
            mem: File::options()
                .read(true)
                .write(true)
                .open(format!("/proc/{pid}/mem"))?,
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
        })
    }

    /// Copies memory out.
    ///
    /// # Errors
    /// When the range is not mapped.
    pub fn read(&self, addr: u64, to: &mut [u8]) -> io::Result<()> {
        self.mem.read_exact_at(to, addr)
    }

    /// Copies memory out, with zeros for pages that cannot be read: those of a mapping that
    /// reaches beyond the end of its file.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn read_sparse(&self, addr: u64, to: &mut [u8]) -> io::Result<()> {
        if self.read(addr, to).is_ok() {
            return Ok(());
        }
        for (index, page) in (0..).zip(to.chunks_mut(4096)) {
            match self.read(addr + index * PAGE, page) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error),
                Err(_) => page.fill(0),
            }
        }
        Ok(())
    }

    /// As [`Self::read_sparse`], three times as fast where all of it can be read: `/proc/PID/mem` copies each page twice. For a
    /// process that is not reaped meanwhile, since it is named by number, and that shares no pages with a copy of it: the kernel pins
    /// what it reads here, and gives the process a page of its own first.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn read_living(&self, addr: u64, to: &mut [u8]) -> io::Result<()> {
        if self.read_pinned(addr, to)? {
            return Ok(());
        }
        self.read_sparse(addr, to)
    }

    /// Whether all of it could be read so.
    fn read_pinned(&self, addr: u64, to: &mut [u8]) -> io::Result<bool> {
        let ours = libc::iovec {
            iov_base: to.as_mut_ptr().cast(),
            iov_len: to.len(),
        };
        let theirs = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(
                usize::try_from(addr).map_err(io::Error::other)?,
            ),
            iov_len: to.len(),
        };
        // SAFETY: `ours` is `to`, writable for its length; the kernel checks the other process's range.
        let n = unsafe {
            libc::process_vm_readv(self.pid, &raw const ours, 1, &raw const theirs, 1, 0)
        };
        Ok(usize::try_from(n) == Ok(to.len()))
    }

    /// As [`Self::read_living`], and as fast, where each page has to be there: a page that the kernel does not give (it has found an error
    /// in it, or it is a guard) is no page of zeros. `is_one`: the process shares no pages with a copy of it.
    ///
    /// # Errors
    /// When a page cannot be read: which.
    pub fn read_all(&self, addr: u64, to: &mut [u8], is_one: bool) -> io::Result<()> {
        if (is_one && self.read_pinned(addr, to)?) || self.read(addr, to).is_ok() {
            return Ok(());
        }
        for (index, page) in (0..).zip(to.chunks_mut(4096)) {
            let at = addr + index * PAGE;
            self.read(at, page).map_err(|error| {
                io::Error::other(format!("the page at {at:#x} cannot be read: {error}"))
            })?;
        }
        Ok(())
    }

    /// Copies memory in, read-only pages included (they become private copies).
    ///
    /// # Errors
    /// When the range is not mapped.
    pub fn write(&self, addr: u64, from: &[u8]) -> io::Result<()> {
        match self.mem.write_all_at(from, addr) {
            // A page that is closed until somebody opens it (write_faults.rs), for which procfs does not wait.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => self.write_waiting(addr, from),
            other => other,
        }
    }

    fn write_waiting(&self, addr: u64, from: &[u8]) -> io::Result<()> {
        let ours = libc::iovec {
            iov_base: from.as_ptr().cast_mut().cast(),
            iov_len: from.len(),
        };
        let theirs = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(
                usize::try_from(addr).map_err(io::Error::other)?,
            ),
            iov_len: from.len(),
        };
        // SAFETY: `from` is valid for the call, which reads it; the other range is checked by the kernel.
        let n = unsafe {
            libc::process_vm_writev(self.pid, &raw const ours, 1, &raw const theirs, 1, 0)
        };
        match usize::try_from(n) {
            Ok(n) if n == from.len() => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Runs of pages in `range` that are the process's own: present or swapped, and not a page of a
    /// file. What it costs goes by the pages that are there, from Linux 6.7 on: a sanitizer reserves 16 TiB.
    ///
    /// # Errors
    /// When the page map cannot be read.
    pub fn owned(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.scan(&range).or_else(|_| self.look_up(range))
    }

    fn scan(&self, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let own = Wanted {
            all: IS_FILE | IS_ZERO,
            inverted: IS_FILE | IS_ZERO,
            any: IS_PRESENT | IS_SWAPPED,
            told: IS_PRESENT,
            ..Wanted::default()
        };
        let mut found = [Region::default(); 512];
        let mut runs = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (n, end) = pagemap::scan(&self.pagemap, &(at..range.end), &own, &mut found)?;
            for region in &found[..n] {
                join(&mut runs, region.start..region.end);
            }
            at = if n == found.len() { end } else { range.end };
        }
        Ok(runs)
    }

    /// Where the pages of a range lie in the machine's memory, 0 for those that do not, or of which the kernel does not tell
    /// (proc_pid_pagemap(5), without CAP_SYS_ADMIN).
    ///
    /// # Errors
    /// When the process is gone.
    pub fn frames(&self, range: &Range<u64>) -> io::Result<Vec<u64>> {
        const PRESENT: u64 = 1 << 63;
        const FRAME: u64 = (1 << 55) - 1;
        let pages = usize::try_from((range.end - range.start) / PAGE).map_err(io::Error::other)?;
        let mut entries = vec![0_u8; 8 * pages];
        self.pagemap
            .read_exact_at(&mut entries, range.start / PAGE * 8)?;
        let frame = |entry: &[u8]| {
            let entry = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
            if entry & PRESENT == 0 {
                0
            } else {
                entry & FRAME
            }
        };
        Ok(entries.chunks_exact(8).map(frame).collect())
    }

    /// Page by page: bits 63, 62, 61 of proc_pid_pagemap(5).
    fn look_up(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut runs = Vec::new();
        let mut entries = vec![0_u8; 8 * 4096];
        let mut at = range.start;
        while at < range.end {
            let want = usize::try_from(((range.end - at) / PAGE).min(4096)).expect("small") * 8;
            let got = self.pagemap.read_at(&mut entries[..want], at / PAGE * 8)?;
            if got == 0 {
                break;
            }
            for entry in entries[..got].chunks_exact(8) {
                let entry = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
                if entry >> 62 != 0 && entry >> 61 & 1 == 0 {
                    join(&mut runs, at..at + PAGE);
                }
                at += PAGE;
            }
        }
        Ok(runs)
    }
}
