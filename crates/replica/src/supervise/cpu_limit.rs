//! A hard limit of CPU time (setrlimit(2), `RLIMIT_CPU`). At it the kernel kills, by a signal that nobody
//! can handle: each replica where it is, some milliseconds apart, which looks like one fault after the
//! other. So the group is ended shortly before, by the same signal, as the program would have been.
//!
//! Time that a replica made again has not used is remembered with its place ([`Supervisor::charge_follower`]), or
//! a program that is repaired would outlive its limit. A replica that comes near it while another one,
//! farther on, has used half of it at most is wrong, and repaired as what the kernel kills.

use std::time::Duration;

use steadfast_sys::{child, procfs};

use crate::group::at;
use crate::supervise::Supervisor;

/// How long before the limit the program ends. The kernel counts whole ticks (10 ms at most), we the
/// scheduler's nanoseconds, and it takes a while to be woken.
const BEFORE: Duration = Duration::from_millis(50);
/// A replica that died within this of the limit died of it: looks are 100 ms apart, and ticks, by which
/// the kernel goes, are samples.
const NEAR: Duration = Duration::from_millis(300);
/// Replicas that agree use about the same time, and one of them hangs at twice the time of another
/// (pace.rs). Those that share a core with others are behind in both, time and place.
const SHARE: u32 = 2;

/// What is known of the time that the replicas have used.
#[derive(Debug, Default)]
pub(crate) struct CpuLimit {
    limit: Option<Duration>,
    used: Vec<Duration>,
    /// The limit was reached: the end that comes now is the program's own.
    pub(crate) up: bool,
}

impl Supervisor<'_> {
    /// Ends the program if its time is up. Otherwise says how long it cannot be, if there is a limit.
    pub(crate) fn look_at_the_limit(&mut self) -> Option<Duration> {
        let n = self.replicas.len();
        if n == 1 || self.cpu_limit.up {
            return None;
        }
        // A leader that has been reaped has none; it died of the one that it had.
        if self.leader_end.is_none() {
            self.cpu_limit.limit = child::cpu_limit(self.replicas[0].pid);
        }
        let limit = self.cpu_limit.limit?;
        self.cpu_limit.used.resize(n, Duration::ZERO);
        for (r, replica) in self.replicas.iter().enumerate() {
            // One that is gone keeps what it had.
            if let Some(now) = procfs::cpu_ns(replica.pid) {
                let before = replica.used.user_ns + replica.used.system_ns;
                self.cpu_limit.used[r] = Duration::from_nanos(before + now);
            }
        }
        let killed =
            (0..n).any(|r| matches!(self.died(r), Some(child::Change::Signaled(libc::SIGKILL))));
        let short_of = if killed { NEAR } else { BEFORE };
        let used = &self.cpu_limit.used;
        let most = (0..n).max_by_key(|r| used[*r]).unwrap_or(0);
        let place = |r: usize| self.group.get64(at!(own r, next));
        let right = (0..n).all(|r| used[r] >= limit / SHARE || place(r) <= place(most));
        if used[most] + short_of < limit || !right {
            return Some(
                limit
                    .saturating_sub(used[most] + short_of)
                    .max(Duration::from_millis(1)),
            );
        }
        self.cpu_limit.up = true;
        if self.leader_end.is_none() {
            child::kill(self.replicas[0].pid, libc::SIGKILL);
        }
        None
    }
}
