//! What lies between a file and its device: the page cache, and where the file's blocks are.

#![allow(unsafe_code, reason = "posix_fadvise(2) and ioctl(2)")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Has the page cache forget what it holds of a file and is not dirty: the next read comes from the device.
///
/// # Errors
/// As posix_fadvise(2).
pub fn forget(file: &File) -> io::Result<()> {
    // SAFETY: takes numbers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[repr(C)]
#[derive(Default)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    // One struct fiemap_extent.
    logical: u64,
    physical: u64,
    bytes: u64,
    spare: [u64; 2],
    extent_flags: u32,
    spare2: [u32; 3],
}

const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// Its place is not known yet, or it shares a block with others, or the bytes there are not the file's.
const ELSEWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200;

/// Where on its device the byte at `offset` of a file lies (FS_IOC_FIEMAP). Nothing: in a hole, or not as such on
/// the device.
///
/// # Errors
/// As ioctl(2).
pub fn place(file: &File, offset: u64) -> io::Result<Option<u64>> {
    let mut map = Fiemap {
        start: offset,
        length: 1,
        flags: 1, /* FIEMAP_FLAG_SYNC */
        count: 1,
        ..Fiemap::default()
    };
    // SAFETY: `map` has room for the one extent that it asks for.
    if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let inside = map.mapped == 1 && map.extent_flags & ELSEWHERE == 0 && map.logical <= offset;
    Ok(inside.then(|| map.physical + (offset - map.logical)))
}
