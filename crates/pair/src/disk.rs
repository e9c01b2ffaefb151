//! Disk: files as the device holds them, not as the page cache remembers them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::page::{Digests, PAGE};

/// Digests of a file's pages, read from the device.
pub(crate) fn digests(path: &Path) -> io::Result<Digests> {
    let file = File::open(path)?;
    // What is dirty has to be on the device before the cache may forget it.
    file.sync_data()?;
    steadfast_sys::disk::forget(&file)?;
    Digests::of(io::BufReader::with_capacity(1 << 20, file))
}

/// A page as programs get it; shorter at the end of the file.
pub(crate) fn page(path: &Path, page: u64) -> io::Result<Vec<u8>> {
    pages(path, page, 1)
}

/// A page as the device gives it: past the cache, by direct I/O. Where the file system knows none, from the cache
/// that was told to forget it.
pub(crate) fn page_on_device(path: &Path, number: u64) -> io::Result<Vec<u8>> {
    pages_on_device(path, number, 1)
}

/// Several pages as programs get them; shorter at the end of the file.
pub(crate) fn pages(path: &Path, number: u64, count: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = vec![0; usize::try_from(count).map_err(io::Error::other)? * PAGE];
    let mut n = 0;
    while n < bytes.len() {
        match file.read_at(&mut bytes[n..], number * PAGE as u64 + n as u64)? {
            0 => break,
            more => n += more,
        }
    }
    bytes.truncate(n);
    Ok(bytes)
}

/// Several pages in one piece as the device gives them; shorter at the end of the file.
pub(crate) fn pages_on_device(path: &Path, number: u64, count: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(count).map_err(io::Error::other)? * PAGE;
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path);
    let file = match direct {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let file = File::open(path)?;
            steadfast_sys::disk::forget(&file)?;
            file
        }
        Err(error) => return Err(error),
    };
    let mut room = vec![0; len + PAGE];
    let skip = room.as_ptr().align_offset(PAGE);
    let mut n = 0;
    while n < len {
        match file.read_at(
            &mut room[skip + n..skip + len],
            number * PAGE as u64 + n as u64,
        )? {
            0 => break,
            // What is no whole page is the file's end: direct I/O goes on at none but a page.
            more if more % PAGE != 0 => {
                n += more;
                break;
            }
            more => n += more,
        }
    }
    Ok(room[skip..skip + n].to_vec())
}

/// Writes a page through to the device, and proves by direct I/O that it is there.
pub(crate) fn put_page(path: &Path, number: u64, bytes: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.write_all_at(bytes, number * PAGE as u64)?;
    file.sync_data()?;
    if page_on_device(path, number)?.get(..bytes.len()) != Some(bytes) {
        return Err(io::Error::other(
            "the device gives other bytes than were just written",
        ));
    }
    Ok(())
}
