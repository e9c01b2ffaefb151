//! What the service manager is told: that a service is ready, what it does, and that it lives (sd_notify(3), Type=notify, WatchdogSec=).
//!
//! Invariant: the watchdog hears of a service only while [`Manager::tick`] is called; the caller is whoever must not hang.
//!
//! Not covered: reloading, and descriptors kept by systemd.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// A connection to the service manager; silent where there is none.
#[derive(Debug)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
    last: Instant,
    ready: bool,
    status: Option<&'static str>,
}

impl Manager {
    /// `path` is NOTIFY_SOCKET, `usec` WATCHDOG_USEC.
    #[must_use]
    pub fn to(path: Option<&str>, usec: Option<u64>) -> Self {
        Self {
            socket: path.filter(|path| !path.is_empty()).and_then(open),
            watchdog: usec.map(Duration::from_micros),
            last: Instant::now(),
            ready: false,
            status: None,
        }
    }

    /// As the environment says.
    #[must_use]
    pub fn from_environment() -> Self {
        let usec = std::env::var("WATCHDOG_USEC").ok();
        Self::to(
            std::env::var("NOTIFY_SOCKET").ok().as_deref(),
            usec.and_then(|text| text.parse().ok()),
        )
    }

    /// Called all the time: where the caller hangs, the watchdog goes unfed. Ready is told once.
    pub fn tick(&mut self, ready: bool, status: &'static str) {
        let Some(socket) = &self.socket else { return };
        let mut text = String::new();
        if ready && !self.ready {
            self.ready = true;
            text += "READY=1\n";
        }
        if self.status != Some(status) {
            self.status = Some(status);
            text += &format!("STATUS={status}\n");
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

fn open(path: &str) -> Option<UnixDatagram> {
    let at = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok()?,
        None => SocketAddr::from_pathname(path).ok()?,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&at).ok()?;
    // A manager that does not read must not hold the service up.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 100];
        let length = manager.recv(&mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    fn manager(of: &str) -> (UnixDatagram, String) {
        let name = format!("steadfast-manager-{of}-{}", std::process::id());
        let at = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&at).expect("a socket");
        manager.set_nonblocking(true).expect("a socket");
        (manager, format!("@{name}"))
    }

    #[test]
    fn the_manager_hears_when_a_service_is_ready_and_each_state() {
        let (manager, name) = manager("states");
        let mut told = Manager::to(Some(&name), None);
        assert_eq!(heard(&manager), "", "before the first tick nothing is told");
        told.tick(false, "joining");
        assert_eq!(heard(&manager), "STATUS=joining\n");
        told.tick(true, "ready");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=ready\n");
        told.tick(false, "repairing");
        assert_eq!(heard(&manager), "STATUS=repairing\n");
        told.tick(true, "ready");
        assert_eq!(heard(&manager), "STATUS=ready\n");
        told.tick(true, "ready");
        assert_eq!(heard(&manager), "");
    }

    #[test]
    fn the_watchdog_hears_of_ticks_alone() {
        let (manager, name) = manager("watchdog");
        let mut told = Manager::to(Some(&name), Some(20_000));
        std::thread::sleep(Duration::from_millis(11));
        assert_eq!(heard(&manager), "");
        told.tick(true, "ready");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=ready\nWATCHDOG=1\n");
        told.tick(true, "ready");
        assert_eq!(heard(&manager), "", "not half of its time later");
    }

    #[test]
    fn without_a_manager_nothing_is_told() {
        for nobody in [None, Some("")] {
            Manager::to(nobody, None).tick(true, "ready");
        }
    }
}
