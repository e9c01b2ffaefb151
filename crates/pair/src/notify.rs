//! What systemd is told: that both sites run, what this one does, and that it lives (sd_notify(3), Type=notify, WatchdogSec=).
//!
//! The program's environment is the command's, so the socket comes as a flag ([`crate::settle`]).
//!
//! Invariant: the watchdog hears of a site only while the thread that decides comes round.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use crate::status::State;

/// A connection to the service manager; silent where there is none.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
    last: Instant,
    told: Option<State>,
}

impl Notify {
    /// `path` is NOTIFY_SOCKET, `usec` WATCHDOG_USEC.
    pub(crate) fn to(path: Option<&str>, usec: Option<u64>) -> Self {
        let open = |path: &str| -> Option<UnixDatagram> {
            let at = match path.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name).ok()?,
                None => SocketAddr::from_pathname(path).ok()?,
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.connect_addr(&at).ok()?;
            // A manager that does not read must not hold the program up.
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        };
        Self {
            socket: path.and_then(open),
            watchdog: usec.map(Duration::from_micros),
            last: Instant::now(),
            told: None,
        }
    }

    /// Called each time that the thread that decides comes round: where it hangs, the watchdog goes unfed.
    pub(crate) fn tick(&mut self, state: State) {
        let Some(socket) = &self.socket else { return };
        let mut text = String::new();
        if self.told.is_none() {
            text += "READY=1\n";
        }
        if self.told != Some(state) {
            self.told = Some(state);
            text += &format!("STATUS={}\n", state.name());
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
    fn the_manager_hears_ready_once_and_each_state_and_the_watchdog_only_of_ticks() {
        let dir =
            std::env::temp_dir().join(format!("steadfast-pair-notify-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("socket");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        manager.set_nonblocking(true).expect("a socket");
        let heard = || {
            let mut bytes = [0; 256];
            manager
                .recv(&mut bytes)
                .map(|n| String::from_utf8_lossy(&bytes[..n]).into_owned())
                .unwrap_or_default()
        };
        let mut notify = Notify::to(path.to_str(), Some(20_000));
        assert_eq!(heard(), "", "before the first tick nothing is ready");
        notify.tick(State::Running);
        assert_eq!(heard(), "READY=1\nSTATUS=running\n");
        notify.tick(State::Running);
        assert_eq!(heard(), "");
        std::thread::sleep(Duration::from_millis(11));
        notify.tick(State::Alone);
        assert_eq!(heard(), "STATUS=alone\nWATCHDOG=1\n");
        std::fs::remove_dir_all(dir).expect("clean");
    }
}
