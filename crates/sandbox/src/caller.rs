//! The caller's end of a sandbox whose first process answers line by line, over a pair of sockets.
//!
//! A sandbox answers one line at a time; parallel jobs have one each. It ends when its caller does.
//!
//! Invariant: sandboxes are made while the caller has one thread.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use steadfast_sys::{child, procfs, ptrace};

use crate::enter::{self, Isolation, Rules};

/// How often a silent sandbox is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The caller's end. The sandbox goes with the value.
#[derive(Debug)]
pub struct Caller {
    keeper: i32,
    to: UnixStream,
    from: BufReader<UnixStream>,
}

/// Why a line has no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// The sandbox is gone.
    Gone(io::Error),
    /// A program inside traced process 1, so that nothing of it went on; the sandbox was ended.
    Traced,
}

impl Caller {
    /// Makes a sandbox, in which `life` is to [`serve`].
    ///
    /// # Errors
    /// When a process or the sockets are refused.
    pub fn new(rules: &Rules, life: impl FnOnce(UnixStream, Isolation) -> i32) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let copy = ours.try_clone()?;
        let keeper = enter::enter(rules, move |isolation| {
            // The other end would keep this one open.
            drop(copy);
            life(theirs, isolation)
        })?;
        let from = BufReader::new(ours.try_clone()?);
        ours.set_read_timeout(Some(LOOK))?;
        Ok(Self {
            keeper,
            to: ours,
            from,
        })
    }

    /// Sends a line, and waits for the one that answers it.
    ///
    /// # Errors
    /// When the sandbox is gone or stands still.
    pub fn ask(&mut self, line: &str) -> Result<String, Unanswered> {
        send(&self.to, line).map_err(Unanswered::Gone)?;
        let mut answer = String::new();
        loop {
            // What was read before the timeout stays in `answer`.
            match self.from.read_line(&mut answer) {
                Ok(0) => return Err(Unanswered::Gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => return Ok(answer),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                Err(why) => return Err(Unanswered::Gone(why)),
            }
            // A program with the rights of root can trace process 1, and then no limit of a run would ever pass.
            if procfs::child_is_traced(self.keeper) {
                // The keeper's death ends the sandbox, and that everything in it.
                child::kill(self.keeper, libc::SIGKILL);
                return Err(Unanswered::Traced);
            }
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.to.shutdown(Shutdown::Both);
        let _ = ptrace::wait(self.keeper);
    }
}

/// The first process's end: answers each line, until the caller is gone or `answer` gives up. Returns its exit status.
pub fn serve(stream: UnixStream, mut answer: impl FnMut(&str) -> Option<String>) -> i32 {
    let Ok(to) = stream.try_clone() else {
        return 1;
    };
    for line in BufReader::new(stream).lines() {
        let Some(text) = line.ok().and_then(|line| answer(&line)) else {
            return 1;
        };
        if send(&to, &text).is_err() {
            return 0;
        }
    }
    0
}

/// One write: a line that is sent in parts wakes the other end for each.
fn send(mut to: &UnixStream, line: &str) -> io::Result<()> {
    to.write_all(format!("{line}\n").as_bytes())
}
