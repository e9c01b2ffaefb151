//! A memfd mapped into this process and inherited by a child.

#![allow(
    unsafe_code,
    reason = "mmap(2) and raw access to memory that other processes write"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Shared memory that other processes write at any time: only atomics and copies touch it.
#[derive(Debug)]
pub struct Shared {
    file: File,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping lives as long as the value, and every access goes through atomics or
// byte copies, so threads of this process are no different from other processes.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes `bytes` of zeroed, sparse memory named `name` in `/proc/PID/maps`.
    ///
    /// # Errors
    /// As memfd_create(2), ftruncate(2) and mmap(2).
    pub fn new(name: &std::ffi::CStr, bytes: usize) -> io::Result<Self> {
        // SAFETY: `name` is NUL-terminated and the call keeps no pointer.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: memfd_create returned a descriptor that nobody else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes as u64)?;
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).expect("mmap never returns page 0 unasked");
        Ok(Self { file, base, bytes })
    }

    /// The descriptor, for a child to inherit.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The same, borrowed.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn at(&self, offset: usize, bytes: usize, align: usize) -> *mut u8 {
        assert!(
            offset + bytes <= self.bytes && offset.is_multiple_of(align),
            "inside the mapping"
        );
        // SAFETY: the assertion keeps the result inside the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The 32-bit word at `offset`.
    #[must_use]
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: in bounds and aligned (checked by `at`), and mapped as long as `self` lives.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4, 4).cast()) }
    }

    /// The 64-bit word at `offset`.
    #[must_use]
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as for `u32`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8, 8).cast()) }
    }

    /// Copies bytes out.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        let from = self.at(offset, to.len(), 1);
        // SAFETY: both ranges are valid for `to.len()` bytes; bytes torn by a concurrent writer
        // are still bytes, and every record carries its own check.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes in.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let to = self.at(offset, from.len(), 1);
        // SAFETY: as for `read`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    /// Loads a word, acquiring what was stored before it.
    #[must_use]
    pub fn get32(&self, offset: usize) -> u32 {
        self.u32(offset).load(Ordering::Acquire)
    }

    /// Loads a word, acquiring what was stored before it.
    #[must_use]
    pub fn get64(&self, offset: usize) -> u64 {
        self.u64(offset).load(Ordering::Acquire)
    }

    /// Stores a word, releasing what was stored before it.
    pub fn set32(&self, offset: usize, value: u32) {
        self.u32(offset).store(value, Ordering::Release);
    }

    /// Stores a word, releasing what was stored before it.
    pub fn set64(&self, offset: usize, value: u64) {
        self.u64(offset).store(value, Ordering::Release);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: base and bytes are what mmap returned, and no reference outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
