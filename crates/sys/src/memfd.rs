//! Memory objects: files without a name that live in memory (memfd_create(2)), and what is sealed of them.

#![allow(
    unsafe_code,
    reason = "memfd_create(2) and its seals have no wrappers in std"
)]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// What procfs calls one: `/memfd:NAME (deleted)`.
const LINK: (&str, &str) = ("/memfd:", " (deleted)");

/// The name that a memory object was made with, where this is what procfs calls one.
#[must_use]
pub fn name_in(link: &str) -> Option<&str> {
    link.strip_prefix(LINK.0)?.strip_suffix(LINK.1)
}

/// Makes one that may be sealed.
///
/// # Errors
/// As memfd_create(2).
pub fn made(name: &CStr) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` ends with a NUL, and the call keeps no pointer.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create returned a descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Whether it is one in pages of the usual size: another one is a file of hugetlbfs.
///
/// # Errors
/// As fstatfs(2).
pub fn is_ordinary(file: &File) -> io::Result<bool> {
    // SAFETY: zeros are a value of this structure, which the call fills.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for the call.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(about.f_type == libc::TMPFS_MAGIC)
}

/// What is sealed: `F_SEAL_*` (fcntl(2)).
///
/// # Errors
/// As fcntl(2).
pub fn seals(file: &File) -> io::Result<i32> {
    // SAFETY: numbers only.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) } {
        -1 => Err(io::Error::last_os_error()),
        seals => Ok(seals),
    }
}

/// # Errors
/// As fcntl(2).
pub fn seal(file: &File, seals: i32) -> io::Result<()> {
    // SAFETY: numbers only.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
