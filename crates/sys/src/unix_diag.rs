//! Unix sockets of this network namespace: which one is whose other end (sock_diag(7)).
//!
//! Invariant: a socket that is told of was there while it was asked for. Who misses one has to take that for "unknown", not for "alone".
//!
//! Not covered: sockets of other network namespaces; those that come or go meanwhile, since the kernel tells bucket by bucket.

use std::collections::HashMap;
use std::io;

use crate::netlink;

/// linux/sock_diag.h, linux/unix_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_SHUTDOWN: u16 = 6;
/// struct nlmsghdr, and struct unix_diag_msg.
const HEAD: usize = 16;
const ABOUT: usize = 16;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

/// What a socket has at its other end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    /// Its inode; 0: there is none, or none any more.
    pub peer: u64,
    /// shutdown(2) was called on one of the two, or the other one is closed.
    pub is_shut: bool,
}

/// The inode that a message is about, and its other end.
fn end(message: &[u8]) -> Option<(u64, End)> {
    let own = word(message, HEAD + 4)?;
    let mut end = End::default();
    let mut at = HEAD + ABOUT;
    while let (Some(len), Some(kind)) = (half(message, at), half(message, at + 2)) {
        match kind {
            UNIX_DIAG_PEER => end.peer = word(message, at + 4)?.into(),
            UNIX_DIAG_SHUTDOWN => end.is_shut = *message.get(at + 4)? != 0,
            _ => {}
        }
        at += usize::from(len).max(4).next_multiple_of(4);
    }
    Some((own.into(), end))
}

/// The other end of each, by their inodes.
///
/// # Errors
/// As netlink(7): where the kernel has no CONFIG_UNIX_DIAG, ENOENT.
pub fn peers() -> io::Result<HashMap<u64, End>> {
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).expect("sixteen bits");
    // struct nlmsghdr, and struct unix_diag_req: all states, all inodes.
    let mut message = Vec::new();
    message.extend(40_u32.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([1 /* AF_UNIX */, 0, 0, 0]);
    for value in [u32::MAX, 0, UDIAG_SHOW_PEER, u32::MAX, u32::MAX] {
        message.extend(value.to_ne_bytes());
    }
    let asked = netlink::ask(libc::NETLINK_SOCK_DIAG, &message)?;
    let mut all = HashMap::new();
    // A datagram of a dump has 32 KiB at most (af_netlink.c).
    let mut answer = vec![0_u8; 65_536];
    loop {
        let got = asked.answer(&mut answer)?;
        let mut rest = &answer[..got];
        while let (Some(len), Some(kind)) = (word(rest, 0), half(rest, 4)) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(all),
                libc::NLMSG_ERROR => {
                    // struct nlmsgerr: an errno below 0.
                    let error = word(rest, HEAD).unwrap_or(0).cast_signed();
                    return Err(io::Error::from_raw_os_error(-error));
                }
                _ => {}
            }
            let len = usize::try_from(len).expect("a length").max(HEAD);
            all.extend(end(&rest[..len.min(rest.len())]));
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    fn inode(socket: &UnixStream) -> u64 {
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        std::fs::metadata(path).expect("it is open").ino()
    }

    #[test]
    fn both_ends_of_a_pair_name_each_other_and_no_other_pair() {
        let ((a, b), (c, _d)) = (
            UnixStream::pair().expect("a pair"),
            UnixStream::pair().expect("a pair"),
        );
        let peers = peers().expect("CONFIG_UNIX_DIAG");
        let end = |socket| peers.get(&inode(socket)).copied().expect("it is open");
        assert_eq!(end(&a).peer, inode(&b));
        assert_eq!(end(&b).peer, inode(&a));
        assert_ne!(end(&c).peer, inode(&a));
        assert!(!end(&a).is_shut);
    }

    #[test]
    fn an_end_whose_other_end_is_closed_has_none_and_one_that_is_shut_has_it_still() {
        let ((a, b), (c, d)) = (
            UnixStream::pair().expect("a pair"),
            UnixStream::pair().expect("a pair"),
        );
        drop(b);
        c.shutdown(std::net::Shutdown::Both).expect("a socket");
        let peers = peers().expect("CONFIG_UNIX_DIAG");
        let end = |socket| peers.get(&inode(socket)).copied().expect("it is open");
        assert_eq!(end(&a).peer, 0);
        assert_eq!((end(&d).peer, end(&d).is_shut), (inode(&c), true));
    }
}
