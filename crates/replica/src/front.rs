//! Front: the process that the caller waits for, while another one, its child, supervises.
//!
//! ```text
//!   caller ──► front ──► supervisor ──► leader, followers
//!                │  ▲        │
//!  signals, pipe └──┼──►     │
//!                   └────────┘ words of shared memory: stop, end, and a SIGCHLD to look at them
//! ```
//!
//! A program's first process may end before the others, and the caller then goes on as after a bare run. So the front
//! ends with it, and the supervisor stays for as long as the tree lives. What happens to one of the two happens to the
//! other: who kills the front kills the supervisor, a stop of the program stops both, and the front dies of what the
//! supervisor died of.
//!
//! The supervisor leads a process group of its own. What is sent to the caller's group reaches the front and the
//! program, so a signal that the supervisor takes itself was sent to it alone.
//!
//! Not covered: a front that is killed while it lets the supervisor stay; the tree then ends, or stays as it would have.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast_contract::exit::{Exit, Own};
use steadfast_sys::shared::Shared;
use steadfast_sys::signals::{self, Taken};
use steadfast_sys::{child, descriptor, procfs};

/// Words that the supervisor writes and the front reads.
const STOP: usize = 0;
const PARENT_DEATH: usize = 4;
const END: usize = 8;
const BYTES: usize = 4096;

/// How often a front that cannot hear looks.
const DEAF: Duration = Duration::from_millis(5);

/// Kinds of end: above the status or the signal.
const STATUS: u64 = 1 << 32;
const SIGNAL: u64 = 2 << 32;

/// Which of the two a process is after [`divide`].
#[derive(Debug)]
pub enum Side {
    /// The front, when there is nothing left to wait for.
    Front(Exit),
    Supervisor(Front),
}

/// The front, as the supervisor knows it.
#[derive(Debug)]
pub struct Front {
    pid: i32,
    /// Signals that were blocked before.
    mask: u64,
    words: Shared,
    signals: Mutex<Option<File>>,
    gone: AtomicBool,
}

/// Divides this process, which has one thread, into a front and a supervisor. The front returns when it is to end.
///
/// # Errors
/// As memfd_create(2), pipe2(2) and fork(2).
pub(crate) fn divide() -> io::Result<Side> {
    let words = Shared::new(c"steadfast-front", BYTES)?;
    let (taken, tell) = child::pipe()?;
    let front = i32::try_from(std::process::id()).expect("a process number");
    // From here on no signal is lost: what comes before the front can hear it waits.
    let mask = signals::try_block_all()?;
    // A process that cannot be waited for is no child of a front.
    if let Err(refused) = child::ended(-1)
        && refused.raw_os_error() != Some(libc::ECHILD)
    {
        return Err(refused);
    }
    let Some(supervisor) = child::divide()? else {
        child::die_with(front)?;
        child::join_group(0)?;
        return Ok(Side::Supervisor(Front {
            pid: front,
            mask,
            words,
            signals: Mutex::new(Some(taken)),
            gone: AtomicBool::new(false),
        }));
    };
    drop(taken);
    // Its descriptor is closed before it would be dropped.
    let words = ManuallyDrop::new(words);
    Ok(Side::Front(wait(supervisor, &words, tell)))
}

/// The life of the front.
fn wait(supervisor: i32, words: &Shared, mut tell: File) -> Exit {
    // Whatever is the program's is closed when the program closes it.
    descriptor::keep_only(tell.as_raw_fd());
    // It waits from here on.
    steadfast_sys::memory::trim();
    let mut parent_death = 0;
    loop {
        let heard = signals::try_next();
        if let Some(end) = end_of(words.get64(END)) {
            return end;
        }
        match child::ended(supervisor) {
            Ok(Some(child::Change::Exited(status))) => {
                return Exit::Status(status.to_le_bytes()[0]);
            }
            Ok(Some(child::Change::Signaled(signal))) => return Exit::Signal(signal),
            Ok(_) => {}
            Err(_) => return Exit::Own(Own::Setup),
        }
        let Some(taken) = heard else {
            // A filter refuses it, or a debugger came between.
            std::thread::sleep(DEAF);
            continue;
        };
        let wanted = words.get32(PARENT_DEATH);
        if wanted != parent_death {
            parent_death = wanted;
            child::when_parent_dies(wanted.cast_signed());
        }
        let stop = words.get32(STOP).cast_signed();
        if stop != 0 {
            words.set32(STOP, 0);
            // A stop forgets a SIGCONT that waits, which would have ended it.
            match signals::take(libc::SIGCONT) {
                Some(go_on) => pass_on(supervisor, &mut tell, go_on),
                None if taken.signal == libc::SIGCONT => {}
                None => child::stop_self(stop),
            }
        }
        let of_our_own = taken.signal == libc::SIGCHLD && taken.code > 0;
        if !of_our_own && taken.pid != supervisor {
            pass_on(supervisor, &mut tell, taken);
        }
    }
}

fn pass_on(supervisor: i32, tell: &mut File, taken: Taken) {
    // It stands when the program does.
    if taken.signal == libc::SIGCONT {
        child::kill(supervisor, libc::SIGCONT);
    }
    // One that has ended is heard of next.
    let _ = tell.write_all(&taken.to_bytes());
}

fn end_of(word: u64) -> Option<Exit> {
    let value = u32::try_from(word & 0xffff_ffff).expect("masked");
    match word & !0xffff_ffff {
        STATUS => Some(Exit::Status(value.to_le_bytes()[0])),
        SIGNAL => Some(Exit::Signal(value.cast_signed())),
        _ => None,
    }
}

impl Front {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn mask(&self) -> u64 {
        self.mask
    }

    /// Waits for the next signal that the front has taken; to be called by one thread. Nothing: there will be none.
    pub(crate) fn next(&self) -> Option<Taken> {
        let mut bytes = [0; Taken::BYTES];
        let mut signals = self.signals.lock().ok()?;
        signals.as_mut()?.read_exact(&mut bytes).ok()?;
        Some(Taken::from_bytes(bytes))
    }

    fn has_it_look(&self) {
        if !self.gone.load(Ordering::SeqCst) {
            child::kill(self.pid, libc::SIGCHLD);
        }
    }

    /// Stops the front, as its parent will see, and this process until somebody continues it.
    pub(crate) fn stop(&self, signal: i32) {
        self.words.set32(STOP, signal.cast_unsigned());
        self.has_it_look();
        child::stop_self(libc::SIGSTOP);
    }

    /// Continues the front after [`Front::stop`].
    pub(crate) fn go_on(&self) {
        self.words.set32(STOP, 0);
        if !self.gone.load(Ordering::SeqCst) {
            child::kill(self.pid, libc::SIGCONT);
        }
    }

    /// Has the front ask for a signal when its parent dies; 0 for none.
    pub(crate) fn when_parent_dies(&self, signal: u32) {
        self.words.set32(PARENT_DEATH, signal);
        self.has_it_look();
    }

    /// The process that waits for the front; 1 if there is none.
    pub(crate) fn parent(&self) -> i32 {
        if self.gone.load(Ordering::SeqCst) {
            return 1;
        }
        procfs::parent(self.pid).unwrap_or(1)
    }

    /// Ends the front, as the program's first process has ended; this process stays.
    pub(crate) fn end(&self, exit: Exit) {
        child::when_parent_dies(0);
        self.gone.store(true, Ordering::SeqCst);
        self.words.set64(
            END,
            match exit {
                Exit::Status(status) => STATUS | u64::from(status),
                Exit::Signal(signal) => SIGNAL | u64::from(signal.cast_unsigned()),
                Exit::Own(own) => STATUS | u64::from(own.code()),
            },
        );
        child::kill(self.pid, libc::SIGCHLD);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }
}
