//! Held: files that the program maps shared, kept for a leader that has to be made anew.
//!
//! The leader asks at the mapping and gives back at the last unmapping (crates/agent, shared.c).
//! A duplicate in this process is in nobody's way: in the group's own descriptor table, closing
//! it would drop the program's record locks on the file. A new leader opens it by way of procfs.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use steadfast_sys::descriptor;

/// By number: the descriptor's own, which `/proc/PID/fd` shows.
#[derive(Debug, Default)]
pub(crate) struct Held {
    files: HashMap<i32, File>,
}

impl Held {
    /// Keeps descriptor `fd` of `pid`, if it is the file that the leader means; its number here.
    pub(crate) fn hold(&mut self, pid: i32, fd: u64, dev: u64, ino: u64) -> io::Result<i32> {
        let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        let file = descriptor::duplicate(pid, fd)?;
        let found = file.metadata()?;
        if (found.dev(), found.ino()) != (dev, ino) {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        let number = file.as_raw_fd();
        self.files.insert(number, file);
        Ok(number)
    }

    /// Closes the file that `hold` gave this number.
    pub(crate) fn drop(&mut self, number: u64) {
        if let Ok(number) = i32::try_from(number) {
            self.files.remove(&number);
        }
    }
}
