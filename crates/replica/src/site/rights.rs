//! Rights: what a process of the program may not do to its own sockets, since it has given up root, and this one may.
//!
//! A connection is gone on with by TCP_REPAIR, which asks for CAP_NET_ADMIN of whoever sets it (tcp(7)), and not of whoever has
//! the socket. So the agent asks here, and this process sets it for the same socket ([`connection`]).
//!
//! Invariant: nothing else is done for it than what a take-over needs.

use std::io;
use std::time::Duration;

use steadfast_sys::connection::{self, Guarded};
use steadfast_sys::memory::Remote;

use super::{RPC_BIND, RPC_SET, Site, number};

/// struct sockaddr_in6, the longest that a connection has.
const ADDRESS_MAX: usize = 28;

impl Site {
    /// Gives a command that may need rights, and waits for it to be carried out. Nothing: it was not, in time.
    pub(super) fn order(&self, slot: usize, cmd: u32, arg: u64, limit: Duration) -> Option<i64> {
        let group = self.group();
        group.command(slot, cmd, arg);
        group.obeyed_with(slot, limit, || self.acts_for_it())
    }

    /// Answers the agent, if it asks for something of the kind: whether it does. Several threads may come to that.
    pub(super) fn acts_for_it(&self) -> bool {
        let _one = self.acts.lock().expect("no panic under it");
        let done = match self.group().question() {
            Some(Ok((RPC_SET, arg))) => self.sets(arg),
            Some(Ok((RPC_BIND, arg))) => self.binds(arg),
            _ => return false,
        };
        let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        self.group()
            .answer(-i64::from(done.map_or_else(errno, |()| 0)));
        true
    }

    fn sets(&self, [fd, level, name, value, _]: [u64; 5]) -> io::Result<()> {
        let what = Guarded::of(number(level), number(name))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        connection::set_for(self.pid, number(fd), what, number(value))
    }

    fn binds(&self, [fd, at, len, ..]: [u64; 5]) -> io::Result<()> {
        let mut address = [0; ADDRESS_MAX];
        let address = usize::try_from(len)
            .ok()
            .and_then(|len| address.get_mut(..len))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        Remote::open(self.pid)?.read(at, address)?;
        connection::bind_for(self.pid, number(fd), address)
    }
}
