//! Forward: signals that come to this process go on to the leader; who stops, stops with all of its group.

use std::time::{Duration, Instant};

use steadfast_sys::{child, procfs, signals};

use super::{News, Supervisor, WATCH, stops};
use crate::abi::standstill;
use crate::group::at;
use crate::job_control;

/// How long a program computes on after a signal that ends it, until an event comes: default actions are promised within 100 ms.
/// Time in which it gets no processor is not its own.
const LAST_EVENT: Duration = Duration::from_millis(60);
/// The same of one that shares memory: in the middle of its turn it would leave the others something that nobody has agreed on, which
/// stops the tree. So it is held up for an event again and again (alignment.rs). Three replicas on two busy cores took 43 s.
const LAST_TURN: Duration = Duration::from_secs(120);
/// ... and of one that computes where nothing can be planted: it will come to none.
const LAST_TURN_HOPELESS: Duration = Duration::from_secs(2);
/// A SIGCONT that was sent before job control answered is heard within this: some turns of a busy
/// core. A stop sent to us alone waits as long.
const AFTERTHOUGHT: Duration = Duration::from_millis(30);

impl Supervisor<'_> {
    /// Job control stopped the leader: stand still with it, as one program, and show it to
    /// whoever waits for us.
    pub(super) fn leader_stopped(&mut self, signal: i32) {
        // Stopped by job control because we were: the SIGCONT that woke us is on its way here.
        if self.group.get32(at!(standstill)) == standstill::LAUNCHER {
            return;
        }
        // News may be older than the SIGCONT that ended the stop. Sent to us alone it continues the
        // leader when its turn comes (`forward`), which it never would if we stopped now.
        std::thread::sleep(Duration::from_millis(2));
        if !procfs::is_stopped(self.leader()) || self.continued_since() {
            return;
        }
        self.group.set32(at!(standstill), standstill::LEADER);
        for r in 1..self.replicas.len() {
            self.signal_replica(r, libc::SIGSTOP);
        }
        // A terminal's stop signal means nothing to a process group that is not the leader's.
        let signal = if child::in_group_of(self.leader(), self.hearing.front().unwrap_or(0)) {
            signal
        } else {
            libc::SIGSTOP
        };
        match &self.hearing.front {
            Some(front) => front.stop(signal),
            None => child::stop_self(signal),
        }
        self.was_stopped = true;
        self.go_on();
    }

    /// Whether the newest word of job control that waits to be heard is to go on. One thread takes
    /// all signals, and the kernel drops stops when a SIGCONT comes and the other way round, so
    /// their order here is the true one.
    pub(super) fn continued_since(&mut self) -> bool {
        self.collect();
        let mut signals = self.mail.iter().rev().filter_map(|news| match news {
            News::Signal(taken) => Some(taken.signal),
            News::Child(..) | News::Late(_) | News::Ended(_) | News::Stay(_) => None,
        });
        signals.find(|signal| *signal == libc::SIGCONT || stops(*signal)) == Some(libc::SIGCONT)
    }

    /// As above, for a stop that came to us alone, or to a group that has been continued before
    /// job control could tell: that SIGCONT is on its way here.
    pub(super) fn soon_continued(&mut self) -> bool {
        let until = Instant::now() + AFTERTHOUGHT;
        loop {
            if self.continued_since() {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Continues whatever stands, or is about to: a process that has not run since its SIGSTOP
    /// does not show it yet.
    pub(super) fn go_on(&mut self) {
        let all = self.group.get32(at!(standstill)) == standstill::LAUNCHER;
        // Before job control can take it for one that has just been stopped.
        if let Some(front) = &self.hearing.front {
            front.go_on();
        }
        self.group.set32(at!(standstill), standstill::MOVING);
        for r in 0..self.replicas.len() {
            if r > 0 || all || procfs::is_stopped(self.replicas[r].pid) {
                self.signal_replica(r, libc::SIGCONT);
            }
        }
    }

    pub(crate) fn signal_replica(&self, r: usize, signal: i32) {
        if self.replicas[r].pid > 1 {
            child::kill(self.replicas[r].pid, signal);
        }
    }

    /// A signal to us is one to the program, if the program has not had it already.
    pub(super) fn forward(&mut self, taken: signals::Taken) {
        let (signal, from_kernel) = (taken.signal, taken.code > 0);
        let of_our_own = matches!(
            signal,
            libc::SIGCHLD | libc::SIGPIPE | libc::SIGXCPU | libc::SIGXFSZ
        );
        if taken.pid == self.job_control && signal == libc::SIGCONT {
            self.was_stopped = false;
        }
        // Older than the SIGCONT that ended our own stop, and ended by it.
        if stops(signal) && self.was_stopped {
            return;
        }
        if (from_kernel && of_our_own)
            || taken.pid.cast_unsigned() == std::process::id()
            || taken.pid == self.job_control
        {
            return;
        }
        // kill(2) and the kernel can mean a group, sigqueue(3) and tgkill(2) cannot. Job control
        // may be told a moment after us.
        let may_be_for_all = (from_kernel || taken.code == libc::SI_USER) && self.job_control > 1;
        let for_all = may_be_for_all
            && (job_control::was_for_all(&self.group, signal) || {
                std::thread::sleep(Duration::from_millis(1));
                job_control::was_for_all(&self.group, signal)
            });
        self.signals += 1;
        if signal == libc::SIGCONT {
            let expected = std::mem::take(&mut self.was_stopped);
            let standing = self.group.get32(at!(standstill)) != standstill::MOVING;
            if standing || procfs::is_stopped(self.leader()) {
                return self.go_on();
            }
            if expected {
                return;
            }
        }
        // Job control forgets a stop of the group when the group is continued.
        if for_all || (stops(signal) && self.soon_continued()) {
            return;
        }
        if taken.pid == self.leader() && !from_kernel {
            // The program knows us as its parent, and means ours.
            let front = self.hearing.front.as_ref();
            let parent = front.map_or_else(child::parent, |front| front.parent());
            if parent > 1 {
                child::kill(parent, signal);
            }
            return;
        }
        self.outbox.push_back(taken);
        self.beat();
    }

    /// A program with stores to a shared mapping, or memory that it shares with other processes, dies at its next event, where they
    /// can be agreed on. One that comes to none in time dies where it is: the leader does so at the second signal.
    pub(super) fn hasten_death(&mut self) -> Duration {
        let signal = self
            .group
            .meant(at!(dying), at!(dying_inv))
            .unwrap_or(0)
            .cast_signed();
        if signal == 0 || self.leader_end.is_some() {
            self.dying = None;
            return Duration::MAX;
        }
        let leader = self.replicas[0].pid;
        let burned = procfs::burned_ns(leader).unwrap_or(0);
        let since = *self.dying.get_or_insert(burned);
        let may = match (self.shares_memory(), self.meets_in_vain()) {
            (true, false) => LAST_TURN,
            (true, true) => LAST_TURN_HOPELESS,
            (false, _) => LAST_EVENT,
        };
        let computed = Duration::from_nanos(burned.saturating_sub(since));
        if let Some(left) = may.checked_sub(computed) {
            return left.clamp(Duration::from_millis(1), LAST_EVENT);
        }
        self.dying = None;
        self.group.set32(at!(dying), 0);
        child::kill(leader, signal);
        WATCH
    }
}
