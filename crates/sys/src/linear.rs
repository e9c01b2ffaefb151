//! Memory at a fixed place with a guard behind it, that grows in place and is emptied in place.
//!
//! Invariants
//!  1. The address never changes while the value lives.
//!  2. What lies behind the size in force is not accessible: a store there faults.
//!
//! Not covered: protection from other code of this process that writes through raw pointers.

#![allow(
    unsafe_code,
    reason = "mmap(2), and memory that generated code writes behind the compiler's back"
)]

use std::io;
use std::ptr::NonNull;

/// A reservation of address space, accessible up to a size that changes.
#[derive(Debug)]
pub struct Linear {
    base: NonNull<u8>,
    reserved: usize,
    /// What a caller may use now.
    size: usize,
    /// What has been made accessible: never less than `size`.
    open: usize,
}

// SAFETY: the value owns its mapping; what it points to is reached through methods that take &mut, or by generated code whose runtime
// serialises its calls.
unsafe impl Send for Linear {}
// SAFETY: as above.
unsafe impl Sync for Linear {}

const PAGE: usize = 4096;

impl Linear {
    /// Reserves `capacity` bytes and `guard` behind them, and makes none accessible.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn reserve(capacity: usize, guard: usize) -> io::Result<Self> {
        let reserved = (capacity + guard).max(PAGE).next_multiple_of(PAGE);
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).expect("mmap never returns page 0 unasked");
        Ok(Self {
            base,
            reserved,
            size: 0,
            open: 0,
        })
    }

    /// Bytes in use.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of address space, guard included.
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Where it lies.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn protect(&self, from: usize, to: usize, how: i32) -> io::Result<()> {
        if from >= to {
            return Ok(());
        }
        // SAFETY: the range lies in this reservation.
        let rc =
            unsafe { libc::mprotect(self.base.as_ptr().wrapping_add(from).cast(), to - from, how) };
        if rc == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Makes `size` bytes accessible; new ones read as zero.
    ///
    /// # Errors
    /// When the reservation is too small, or as mprotect(2).
    pub fn grow(&mut self, size: usize) -> io::Result<()> {
        if size > self.reserved {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        let end = size.next_multiple_of(PAGE);
        if end > self.open {
            self.protect(self.open, end, libc::PROT_READ | libc::PROT_WRITE)?;
            self.open = end;
        }
        self.size = self.size.max(size);
        Ok(())
    }

    /// Back to `size` bytes that all read as zero. Pages stay resident; what lies behind is given back.
    ///
    /// # Errors
    /// As mprotect(2) and madvise(2).
    pub fn restart(&mut self, size: usize) -> io::Result<()> {
        let end = size.next_multiple_of(PAGE);
        if self.open > end {
            self.protect(end, self.open, libc::PROT_NONE)?;
            // SAFETY: the range lies in this reservation, and nobody can read it any more.
            let rc = unsafe {
                libc::madvise(
                    self.base.as_ptr().wrapping_add(end).cast(),
                    self.open - end,
                    libc::MADV_DONTNEED,
                )
            };
            if rc != 0 {
                return Err(io::Error::last_os_error());
            }
            self.open = end;
        }
        self.size = 0;
        self.grow(size)?;
        self.bytes_mut().fill(0);
        Ok(())
    }

    /// What it holds.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the first `size` bytes are accessible and initialised, and whoever runs generated code on them holds the component's lock.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.size) }
    }

    /// What it holds, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; &mut self excludes other users of this value.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.size) }
    }
}

impl Drop for Linear {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.reserved) };
    }
}
