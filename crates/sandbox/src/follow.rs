//! A traced program and all that it makes: each thread and process is told of before its first instruction.

use std::io;
use std::time::{Duration, Instant};

use steadfast_sys::procfs;
use steadfast_sys::ptrace::Stopped;

use crate::end::{self, Ended};
use crate::ok;

/// A thread or process that a traced program has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Born {
    pub tid: i32,
    pub parent: i32,
    /// It is a thread of its parent's process.
    pub thread: bool,
}

/// What became of one who stopped by himself.
#[derive(Debug)]
pub enum Trapped {
    /// It stands again, and goes on with this signal (0 for none).
    Goes(Stopped, i32),
    /// It has ended meanwhile, like this.
    Ended(Ended),
    /// Its process has: who is left to be waited for says how.
    Gone,
}

/// What is done with whoever is followed.
pub trait Follower {
    /// A thread or process was made, which has not executed anything.
    fn born(&mut self, born: Born);

    /// It is about to execute its first instruction.
    ///
    /// # Errors
    /// As ptrace(2).
    fn begins(&mut self, stop: Stopped) -> io::Result<Stopped> {
        Ok(stop)
    }

    /// One of them stopped with SIGTRAP.
    ///
    /// # Errors
    /// As ptrace(2).
    fn trapped(&mut self, stop: Stopped) -> io::Result<Trapped> {
        Ok(Trapped::Goes(stop, libc::SIGTRAP))
    }

    /// The limit has passed: whether the program is given up.
    fn is_over(&self) -> bool {
        true
    }
}

/// Lets a traced program run, and all that it makes, telling of each before its first
/// instruction; until the program ends, `limit` at most. Nothing stops it that `what` does not ask for.
///
/// # Errors
/// When it cannot be followed.
pub fn follow(stop: Stopped, limit: Duration, what: &mut dyn Follower) -> io::Result<Ended> {
    const MADE: [i32; 3] = [
        libc::PTRACE_EVENT_CLONE,
        libc::PTRACE_EVENT_FORK,
        libc::PTRACE_EVENT_VFORK,
    ];
    let main = stop.pid();
    stop.set_following_options()?;
    stop.resume()?;
    let deadline = Instant::now() + limit;
    let mut ended = Ended::default();
    // Stopped at birth, and not told of yet; told of, and not stopped yet.
    let (mut waiting, mut expected) = (Vec::new(), Vec::new());
    let go = |tid: i32, signal: i32| {
        // SAFETY: PTRACE_CONT takes numbers; a thread that was killed meanwhile is no matter.
        unsafe { libc::ptrace(libc::PTRACE_CONT, tid, 0, signal) };
    };
    let mut known = vec![main];
    let mut idle = 0_u32;
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain numbers, for which zero is a value.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        let flags = libc::__WALL | libc::WNOHANG;
        // SAFETY: `status` and `used` are valid for the call.
        let tid = unsafe { libc::wait4(-1, &raw mut status, flags, &raw mut used) };
        if tid <= 0 {
            if Instant::now() > deadline && what.is_over() {
                ended.timed_out = true;
                return Ok(ended);
            }
            // Births come in groups; a program that computes is left alone.
            idle += 1;
            std::thread::sleep(Duration::from_micros(if idle < 100 { 10 } else { 500 }));
            continue;
        }
        idle = 0;
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            known.retain(|one| *one != tid);
            ended.cpu_ns += end::cpu_ns(&used);
            if tid == main {
                if libc::WIFEXITED(status) {
                    ended.status = Some(libc::WEXITSTATUS(status));
                } else {
                    ended.signal = Some(libc::WTERMSIG(status));
                }
                return Ok(ended);
            }
            continue;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if MADE.contains(&event) {
            let mut child: libc::c_ulong = 0;
            // SAFETY: PTRACE_GETEVENTMSG writes one word.
            let rc = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut child) };
            ok(rc)?;
            let child = i32::try_from(child).map_err(io::Error::other)?;
            let leader = |of| procfs::leader(of).unwrap_or(child);
            what.born(Born {
                tid: child,
                parent: tid,
                thread: event == libc::PTRACE_EVENT_CLONE && leader(child) != child,
            });
            known.push(child);
            if let Some(at) = waiting.iter().position(|one| *one == child) {
                waiting.swap_remove(at);
                what.begins(Stopped::standing(child))?.resume()?;
            } else {
                expected.push(child);
            }
            go(tid, 0);
        } else if event != 0 {
            go(tid, 0);
        } else if let Some(at) = expected.iter().position(|one| *one == tid) {
            expected.swap_remove(at);
            what.begins(Stopped::standing(tid))?.resume()?;
        } else if signal == libc::SIGTRAP && known.contains(&tid) {
            match what.trapped(Stopped::standing(tid))? {
                Trapped::Goes(stop, signal) => go(stop.pid(), signal),
                Trapped::Gone => {}
                Trapped::Ended(its) => {
                    known.retain(|one| *one != tid);
                    ended.cpu_ns += its.cpu_ns;
                    if tid == main {
                        (ended.status, ended.signal) = (its.status, its.signal);
                        return Ok(ended);
                    }
                }
            }
        } else if !known.contains(&tid) {
            waiting.push(tid);
        } else {
            go(tid, signal);
        }
    }
}
