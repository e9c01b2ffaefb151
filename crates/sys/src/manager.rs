//! What the service manager is told: that a service is ready, what it does, and that it lives (sd_notify(3), Type=notify, WatchdogSec=).
//!
//! Invariant: the watchdog hears of a service only while [`Manager::tick`] is called; the caller is whoever must not hang.
//!
//! It keeps descriptors, too: what [`Manager::keep`] gives it, the next process of the service has from [`given`] (FDSTORE=1, FileDescriptorStoreMax=).
//!
//! Not covered: reloading, and a manager's answer: it has none for what it does not keep.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use crate::descriptor;

/// How long a manager may take to read.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
/// The first descriptor that it gives: SD_LISTEN_FDS_START.
const FIRST: i32 = 3;

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

    /// Whether there is one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Asks it to keep descriptors under a name, for the next process of this service.
    ///
    /// # Errors
    /// When there is no manager, or it does not read.
    pub fn keep(&self, name: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let text = format!("FDSTORE=1\nFDNAME={name}\n");
        let end = Instant::now() + PATIENCE;
        loop {
            match descriptor::send_with(socket.as_fd(), text.as_bytes(), fds) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
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

/// Descriptors that the manager gives this process, with their names (sd_listen_fds_with_names(3)). To be asked once.
///
/// # Errors
/// When what LISTEN_FDS says is not so.
pub fn given() -> io::Result<Vec<(String, File)>> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    // Whoever inherits the variables alone inherits no descriptor.
    if number("LISTEN_PID") != i32::try_from(std::process::id()).ok() {
        return Ok(Vec::new());
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').chain(std::iter::repeat("unknown"));
    let all = FIRST..FIRST + number("LISTEN_FDS").unwrap_or(0);
    let all = all.zip(names);
    all.map(|(fd, name)| Ok((name.to_owned(), descriptor::inherited(fd)?)))
        .collect()
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
    fn the_manager_is_given_descriptors_under_a_name() {
        let (manager, name) = manager("keeps");
        let told = Manager::to(Some(&name), None);
        let memory = crate::shared::Shared::sealed(c"kept", 4096).expect("a memfd");
        let two = [memory.as_fd(), memory.as_fd()];
        told.keep("fs", &two).expect("told");
        assert_eq!(heard(&manager), "FDSTORE=1\nFDNAME=fs\n");
        for nobody in [None, Some("")] {
            let refused = Manager::to(nobody, None).keep("fs", &two);
            assert_eq!(
                refused.expect_err("nobody").kind(),
                io::ErrorKind::NotConnected
            );
        }
        assert!(given().expect("none").is_empty());
    }

    #[test]
    fn without_a_manager_nothing_is_told() {
        for nobody in [None, Some("")] {
            Manager::to(nobody, None).tick(true, "ready");
        }
    }
}
