//! Memory that other processes map too: a memfd, inherited or opened, or a segment that they attach by its number.

#![allow(
    unsafe_code,
    reason = "mmap(2), shmat(2) and raw access to memory that other processes write"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::segment;

/// Shared memory that other processes write at any time: only atomics and copies touch it.
#[derive(Debug)]
pub struct Shared {
    backing: Backing,
    base: NonNull<u8>,
    bytes: usize,
}

#[derive(Debug)]
enum Backing {
    File(File),
    Segment(i32),
}

/// Size and seals stay as they are.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

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
        Self::mapped(file, bytes)
    }

    /// Makes sparse memory whose size nobody can change any more (F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL): whoever maps it later reads what
    /// was written, and no access ends in SIGBUS.
    ///
    /// # Errors
    /// As memfd_create(2), ftruncate(2), fcntl(2) and mmap(2).
    pub fn sealed(name: &std::ffi::CStr, bytes: usize) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: `name` is NUL-terminated and the call keeps no pointer.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: memfd_create returned a descriptor that nobody else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes as u64)?;
        // SAFETY: numbers only.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Self::of(file)
    }

    /// Maps what [`Shared::sealed`] has made, perhaps in another process.
    ///
    /// # Errors
    /// When it is no such memory, or as mmap(2).
    pub fn of(file: File) -> io::Result<Self> {
        // SAFETY: numbers only.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals & SEALS != SEALS {
            return Err(io::Error::other("memory whose size may change"));
        }
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Self::mapped(file, bytes)
    }

    fn mapped(file: File, bytes: usize) -> io::Result<Self> {
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).expect("mmap never returns page 0 unasked");
        Ok(Self {
            backing: Backing::File(file),
            base,
            bytes,
        })
    }

    /// How large it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same as a System V segment, for processes that have lost the right to open a descriptor of this one: they attach
    /// it by its number, if they are its `owner` (user and group) or `mode` (the bits of chmod(2)) admits them. It is
    /// marked as removed from the start, which on Linux hinders nobody who knows the number (shmctl(2)); so nothing is left
    /// of it when its processes have ended.
    ///
    /// # Errors
    /// As shmget(2), shmctl(2) and shmat(2).
    pub fn attachable(bytes: usize, owner: (u32, u32), mode: u32) -> io::Result<Self> {
        let flags = libc::IPC_CREAT | libc::SHM_NORESERVE | (mode & 0o666).cast_signed();
        // SAFETY: numbers only.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, bytes, flags) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        let made = Self::attach(id, bytes).and_then(|made| {
            segment::give_to(id, owner)?;
            Ok(made)
        });
        let _ = segment::remove(id);
        made
    }

    /// A segment of this number and so many bytes, which others have made.
    ///
    /// # Errors
    /// As shmat(2).
    pub fn attach(id: i32, bytes: usize) -> io::Result<Self> {
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let at = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        if at.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).expect("shmat never returns page 0 unasked");
        Ok(Self {
            backing: Backing::Segment(id),
            base,
            bytes,
        })
    }

    /// The number of an [`attachable`](Self::attachable) one.
    #[must_use]
    pub fn id(&self) -> Option<i32> {
        match self.backing {
            Backing::Segment(id) => Some(id),
            Backing::File(_) => None,
        }
    }

    /// How many mappings an [`attachable`](Self::attachable) one has, this process's own included.
    #[must_use]
    pub fn attached(&self) -> u64 {
        let about = self.id().and_then(|id| segment::about(id).ok());
        about.map_or(0, |about| about.attached)
    }

    fn file(&self) -> &File {
        match &self.backing {
            Backing::File(file) => file,
            Backing::Segment(_) => panic!("a segment has no descriptor"),
        }
    }

    /// The descriptor, for a child to inherit.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.file().as_raw_fd()
    }

    /// The same, borrowed.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file().as_fd()
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
        // SAFETY: base and bytes are what mmap or shmat returned (which munmap detaches, too), and no reference outlives
        // `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
