//! The controlling terminal as a program found it, to be put back when somebody else ended that program.

#![allow(unsafe_code, reason = "termios(3) takes pointers")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Modes and foreground process group of the controlling terminal.
#[derive(Debug)]
pub struct Terminal {
    file: File,
    modes: libc::termios,
    foreground: libc::pid_t,
}

impl Terminal {
    /// As it is now; nothing where a process has no terminal.
    #[must_use]
    pub fn as_found() -> Option<Self> {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
        let file = options.open("/dev/tty").ok()?;
        let modes = modes(&file).ok()?;
        // SAFETY: numbers only.
        let foreground = unsafe { libc::tcgetpgrp(file.as_raw_fd()) };
        Some(Self {
            file,
            modes,
            foreground,
        })
    }

    /// Puts back what has changed, from the background as well. The group that had the terminal gets it only if that is
    /// `ours`, the one that the caller has put the command into: any other may have given it away itself meanwhile.
    ///
    /// # Errors
    /// As tcsetattr(3) and tcsetpgrp(3).
    pub fn put_back(&self, ours: i32) -> io::Result<()> {
        let _held = crate::ptrace::HeldBack::new(libc::SIGTTOU);
        let fd = self.file.as_raw_fd();
        // SAFETY: numbers only.
        let now = unsafe { libc::tcgetpgrp(fd) };
        // SAFETY: numbers only.
        if self.foreground == ours && now != ours && unsafe { libc::tcsetpgrp(fd, ours) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let now = modes(&self.file)?;
        let same = (now.c_iflag, now.c_oflag, now.c_cflag, now.c_lflag, now.c_cc)
            == (
                self.modes.c_iflag,
                self.modes.c_oflag,
                self.modes.c_cflag,
                self.modes.c_lflag,
                self.modes.c_cc,
            );
        // SAFETY: `modes` is valid for the call.
        if !same && unsafe { libc::tcsetattr(fd, libc::TCSANOW, &raw const self.modes) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Columns and rows of the terminal that standard output is; nothing if it is none, or does not say.
#[must_use]
pub fn size_of_output() -> Option<(usize, usize)> {
    // SAFETY: plain numbers, for which zero is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: `size` has room for what the kernel writes.
    let rc = unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &raw mut size) };
    let (columns, rows) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (rc == 0 && columns > 0 && rows > 0).then_some((columns, rows))
}

fn modes(file: &File) -> io::Result<libc::termios> {
    let mut modes = std::mem::MaybeUninit::zeroed();
    // SAFETY: `modes` has room for what the kernel writes.
    if unsafe { libc::tcgetattr(file.as_raw_fd(), modes.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it.
    Ok(unsafe { modes.assume_init() })
}
