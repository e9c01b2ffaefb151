//! Pages of another process that are closed to stores, and opened for whoever stores to them (userfaultfd(2)).
//!
//! Invariant: whoever stores to such a page, be it the kernel in a call, waits until it is open, and loses nothing.
//!
//! Not covered: who closes them, and which were opened since: the agent does, and asks the kernel (crates/agent/src/repair/epoch.c).

#![allow(unsafe_code, reason = "poll(2) and the ioctl have no wrappers in std")]

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;

const PAGE: u64 = 4096;
/// linux/userfaultfd.h: `struct uffd_msg`, and where a page fault has its address.
const MESSAGE: usize = 32;
const ADDRESS: usize = 16;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
/// `_IOWR(0xaa, 6, struct uffdio_writeprotect)`.
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
/// For so long nobody looks whether the process is there.
const LOOK_MS: libc::c_int = 200;

/// Opens each page that is stored to, until `lives` says that nobody stores any more. The descriptor does not block.
pub fn open_pages(faults: &File, lives: impl Fn() -> bool) {
    let mut message = [0; MESSAGE];
    while lives() {
        let mut wait = libc::pollfd {
            fd: faults.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure, valid for the call.
        unsafe { libc::poll(&raw mut wait, 1, LOOK_MS) };
        loop {
            match (&*faults).read(&mut message) {
                Ok(MESSAGE) if message[0] == UFFD_EVENT_PAGEFAULT => open_page(faults, &message),
                Ok(MESSAGE) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
    }
}

fn open_page(faults: &File, message: &[u8; MESSAGE]) {
    let address = message[ADDRESS..].first_chunk().expect("eight bytes");
    let page = u64::from_ne_bytes(*address) / PAGE * PAGE;
    // Where it begins, how long it is, and no protection.
    let open: [u64; 3] = [page, PAGE, 0];
    loop {
        // SAFETY: the structure is as long as the request says, and read alone.
        let done = unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_WRITEPROTECT, open.as_ptr()) };
        // A mapping of the process is being changed: again, when that is done.
        if done == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EAGAIN) {
            return;
        }
        std::thread::yield_now();
    }
}
