//! What systemd is told: that a replica is ready, what it does, and that it lives (sd_notify(3), Type=notify, WatchdogSec=).
//!
//! Invariant: the watchdog hears of a replica only while the task that executes requests answers.
//!
//! Not covered: reloading, and descriptors kept by systemd.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// A connection to the service manager; silent where there is none.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
    last: Instant,
    ready: bool,
    status: Option<&'static str>,
}

impl Notify {
    /// As NOTIFY_SOCKET and WATCHDOG_USEC say.
    pub(crate) fn from_environment() -> Self {
        let path = std::env::var("NOTIFY_SOCKET").unwrap_or_default();
        let usec = std::env::var("WATCHDOG_USEC")
            .ok()
            .and_then(|text| text.parse().ok());
        Self::to(&path, usec.map(Duration::from_micros))
    }

    fn to(path: &str, watchdog: Option<Duration>) -> Self {
        let open = || -> Option<UnixDatagram> {
            let at = match path.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name).ok()?,
                None if path.is_empty() => return None,
                None => SocketAddr::from_pathname(path).ok()?,
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.connect_addr(&at).ok()?;
            // A manager that does not read must not hold the replica up.
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        };
        Self {
            socket: open(),
            watchdog,
            last: Instant::now(),
            ready: false,
            status: Some("starting"),
        }
    }

    /// Called all the time by the task that executes: where it hangs, the watchdog goes unfed.
    pub(crate) fn tick(&mut self, unready: Option<&'static str>) {
        let Some(socket) = &self.socket else { return };
        let mut text = String::new();
        if unready.is_none() && !self.ready {
            self.ready = true;
            text += "READY=1\n";
        }
        if self.status != unready {
            self.status = unready;
            text += &format!("STATUS={}\n", unready.unwrap_or("ready"));
        }
        let half = self.watchdog.map(|whole| whole / 2);
        if half.is_some_and(|half| self.last.elapsed() >= half) {
            self.last = Instant::now();
            text += "WATCHDOG=1\n";
        }
        if !text.is_empty() {
            let _ = socket.send(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_hears_when_a_replica_is_ready_and_that_it_lives() {
        let name = format!("steadfast-kv-test-{}", std::process::id());
        let at = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&at).unwrap();
        let mut notify = Notify::to(&format!("@{name}"), Some(Duration::ZERO));
        let mut heard = |unready| {
            notify.tick(unready);
            let mut bytes = [0; 100];
            let length = manager.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        assert_eq!(heard(Some("joining")), "STATUS=joining\nWATCHDOG=1\n");
        assert_eq!(heard(None), "READY=1\nSTATUS=ready\nWATCHDOG=1\n");
        assert_eq!(heard(Some("repairing")), "STATUS=repairing\nWATCHDOG=1\n");
        assert_eq!(heard(None), "STATUS=ready\nWATCHDOG=1\n");
        let mut nobody = Notify::to("", None);
        nobody.tick(None);
    }
}
