//! `PAGEMAP_SCAN`: which pages of a process are of a kind, asked of its `/proc/PID/pagemap`. Linux 6.7 and later.
//!
//! See Documentation/admin-guide/mm/pagemap.rst and linux/fs.h of the kernel.
#![allow(unsafe_code, reason = "PAGEMAP_SCAN has no wrapper in libc")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Kinds of pages, `PAGE_IS_*`.
pub const IS_WRITTEN: u64 = 1 << 1;
pub const IS_FILE: u64 = 1 << 2;
pub const IS_PRESENT: u64 = 1 << 3;
pub const IS_SWAPPED: u64 = 1 << 4;
pub const IS_ZERO: u64 = 1 << 5;

/// Protects what is found from writing again: the next write of it is a new one.
pub const WP_MATCHING: u64 = 1 << 0;
/// Fails where writes are not told by `UFFD_FEATURE_WP_ASYNC`.
pub const CHECK_WPASYNC: u64 = 1 << 1;

/// A run of pages, `struct page_region`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    pub kinds: u64,
}

/// What to look for: pages that are of all kinds of `all`, and of one of `any` if there is any.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// `WP_MATCHING`, `CHECK_WPASYNC`.
    pub flags: u64,
    pub all: u64,
    /// Kinds that count where a page is *not* of them.
    pub inverted: u64,
    pub any: u64,
    /// Kinds to be told in [`Region::kinds`]; runs end where these change.
    pub told: u64,
}

/// `struct pm_scan_arg`.
#[derive(Debug, Default)]
#[repr(C)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 0xc060_6610;
const _: () = assert!(
    size_of::<Argument>() as u64 == PAGEMAP_SCAN >> 16 & 0x3fff,
    "the size stands in the number (asm-generic/ioctl.h)"
);

/// Fills `found` from the start of `range` on. How many runs there are, and where the kernel has stopped: at the end,
/// or because `found` is full.
///
/// # Errors
/// ENOTTY before Linux 6.7; EPERM for `CHECK_WPASYNC`; EINTR.
pub fn scan(
    pagemap: &File,
    range: &Range<u64>,
    wanted: &Wanted,
    found: &mut [Region],
) -> io::Result<(usize, u64)> {
    let mut argument = Argument {
        size: size_of::<Argument>() as u64,
        flags: wanted.flags,
        start: range.start,
        end: range.end,
        vec: found.as_mut_ptr().expose_provenance() as u64,
        vec_len: found.len() as u64,
        category_inverted: wanted.inverted,
        category_mask: wanted.all,
        category_anyof_mask: wanted.any,
        return_mask: wanted.told,
        ..Argument::default()
    };
    // SAFETY: the argument has the size that it says, and `found` has room for `vec_len` regions.
    let n = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    Ok((n.min(found.len()), argument.walk_end))
}
