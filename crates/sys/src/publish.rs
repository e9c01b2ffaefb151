//! Generated code becomes executable without a moment in which it is, or was, writable: for systems that forbid that change.
//!
//! ```text
//!   text in writable memory ──the same bytes in its file?──yes──► the file is mapped in its place, to read and execute
//!                                        │ no
//!                                        └──► the bytes go to a memfd, which is mapped in its place
//! ```
//!
//! mprotect(2) with PROT_EXEC is what MemoryDenyWriteExecute of systemd and PR_SET_MDWE refuse; a new mapping that was never writable they allow.
//!
//! Invariant: what can be executed afterwards is byte for byte what was there before.
//!
//! Not covered: memory whose code is changed later.
//! See mmap(2) MAP_FIXED, PR_SET_MDWE(2const), systemd.exec(5).

#![allow(unsafe_code, reason = "replaces a mapping that its caller owns")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

/// Makes memory readable and executable, and not writable.
///
/// # Safety
/// The memory is the caller's, begins and ends at pages, and nobody writes to it now or later.
///
/// # Errors
/// As mmap(2) and memfd_create(2).
pub unsafe fn executable(at: *const u8, len: usize) -> io::Result<()> {
    // SAFETY: the caller's memory is mapped, and nobody writes to it meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(at, len) };
    let (file, offset) = match behind(at as u64, bytes)? {
        Some(found) => found,
        None => (copy(bytes)?, 0),
    };
    let offset = i64::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: replaces mappings that are the caller's by the same bytes.
    let mapped = unsafe {
        libc::mmap(
            at.cast_mut().cast(),
            len,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_FIXED,
            file.as_raw_fd(),
            offset,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The file that is mapped there, and the place in it, if it holds the same bytes.
fn behind(at: u64, bytes: &[u8]) -> io::Result<Option<(File, u64)>> {
    let maps = crate::procfs::maps(std::process::id().cast_signed())?;
    let end = at + bytes.len() as u64;
    let whole = |map: &&crate::procfs::Mapping| map.range.start <= at && map.range.end >= end;
    let Some(map) = maps.iter().find(whole).filter(|map| map.inode != 0) else {
        return Ok(None);
    };
    let Ok(file) = File::open(&map.path) else {
        return Ok(None);
    };
    if file.metadata()?.ino() != map.inode {
        return Ok(None);
    }
    let offset = map.offset + (at - map.range.start);
    let mut found = vec![0; bytes.len()];
    let same = file.read_exact_at(&mut found, offset).is_ok() && found == bytes;
    Ok(same.then_some((file, offset)))
}

fn copy(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a C string. Kernels before 6.3 do not know MFD_EXEC, and need it not.
    let mut fd = unsafe { libc::memfd_create(c"code".as_ptr(), libc::MFD_CLOEXEC | MFD_EXEC) };
    if fd < 0 {
        // SAFETY: as above.
        fd = unsafe { libc::memfd_create(c"code".as_ptr(), libc::MFD_CLOEXEC) };
    }
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create returned a descriptor that nobody else owns.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file)
}

/// Its number in linux/memfd.h: the file may be executed, whatever vm.memfd_noexec says of others.
const MFD_EXEC: libc::c_uint = 0x10;

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// `mov eax, 7; ret`, once in each page.
    fn text() -> Vec<u8> {
        let mut text = vec![0xcc; 2 * PAGE];
        for page in text.chunks_exact_mut(PAGE) {
            page[..6].copy_from_slice(&[0xb8, 7, 0, 0, 0, 0xc3]);
        }
        text
    }

    fn mapping(at: *const u8) -> crate::procfs::Mapping {
        let maps = crate::procfs::maps(std::process::id().cast_signed()).expect("readable");
        let mut maps = maps.into_iter();
        let found = maps.find(|map| map.range.contains(&(at as u64)));
        found.expect("it is mapped")
    }

    fn mapped(file: Option<&File>) -> *mut u8 {
        let flags = libc::MAP_PRIVATE
            | if file.is_none() {
                libc::MAP_ANONYMOUS
            } else {
                0
            };
        let fd = file.map_or(-1, |file| file.as_raw_fd());
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, rights, flags, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at.cast()
    }

    fn runs(at: *const u8) -> i32 {
        // SAFETY: the bytes there are a function that takes nothing and returns a number.
        let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> i32>(at) };
        function()
    }

    #[test]
    fn the_file_is_executed_where_it_holds_the_same_bytes_and_a_copy_where_it_does_not() {
        let path = std::env::temp_dir().join(format!("steadfast-publish-{}", std::process::id()));
        std::fs::write(&path, text()).expect("written");
        let file = File::open(&path).expect("it is there");
        let same = mapped(Some(&file));
        // SAFETY: this test's mapping, whole pages.
        unsafe { executable(same.wrapping_add(PAGE), PAGE) }.expect("executable");
        let second = mapping(same.wrapping_add(PAGE));
        assert_eq!((&second.path, second.offset), (&path, PAGE as u64));
        assert!(second.executable && !second.writable);
        assert!(!mapping(same).executable, "that page alone");
        assert_eq!(runs(same.wrapping_add(PAGE)), 7);
        let changed = mapped(Some(&file));
        // SAFETY: this test's mapping.
        unsafe { changed.wrapping_add(1).write(9) };
        // SAFETY: as above.
        unsafe { executable(changed, 2 * PAGE) }.expect("executable");
        assert!(mapping(changed).path.to_string_lossy().contains("memfd"));
        assert_eq!(runs(changed), 9);
        let nowhere = mapped(None);
        // SAFETY: this test's mapping, with room for both pages.
        unsafe { nowhere.copy_from(text().as_ptr(), 2 * PAGE) };
        // SAFETY: as above.
        unsafe { executable(nowhere, 2 * PAGE) }.expect("executable");
        assert_eq!(runs(nowhere), 7);
        std::fs::remove_file(&path).expect("removed");
    }
}
