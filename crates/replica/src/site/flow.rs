//! Flow: what an event says about the program's TCP connections.
//!
//! The account is the agent's (storage.c, `count`): of each connection the sequence number at its accept, and what the
//! program has read since.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::step::{Kind, Step, half, word};
use crate::abi;

/// struct sf_line (crates/agent/src/pair/storage.h).
const LINE: usize = 92;
const OWN: usize = 36;
const PEER: usize = 64;
/// struct sf_came, and `F_FOREIGN` (crates/agent/src/pair/storage.h).
const CAME: usize = 8;
const FOREIGN: u32 = 14;
/// SF_R_PARK (crates/agent/src/layout/abi.h).
const PARKED: u16 = 2048;
/// `SF_R_PARTS`: the call itself was not made; of a write, which moves nothing here, it says something else.
const PARTS: u16 = 32768;

/// A connection that a site can go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub own: SocketAddr,
    pub peer: SocketAddr,
    /// The sequence number of the first byte that the program gets.
    pub gets: u32,
    /// Of the window that this end announces, as a power of two.
    pub scale: u32,
}

/// What has become of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Accepted(i32, Line),
    Read(i32, u64),
    /// Nobody can go on with the connection any more.
    Given(i32),
    Closed(i32, i32),
    Moved {
        from: i32,
        to: i32,
    },
    /// A descriptor that is no pipe has come by a message: it may be a connection, and nobody says which.
    Handed,
}

/// Of a socket for both families a client by IPv4 has a mapped address (ipv6(7)); what it sends is IPv4.
fn internet(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let four = |octets: &[u8]| -> Option<SocketAddr> {
        let octets: [u8; 4] = octets.try_into().ok()?;
        Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(octets)), port))
    };
    match family {
        libc::AF_INET => four(&bytes[4..8]),
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes[8..24].try_into().ok()?;
            let address = Ipv6Addr::from(octets);
            if let Some(mapped) = address.to_ipv4_mapped() {
                return four(&mapped.octets());
            }
            let scope = u32::from_le_bytes(bytes[24..28].try_into().ok()?);
            let whole = SocketAddrV6::new(address, port, 0, scope);
            (!address.is_unspecified()).then_some(SocketAddr::V6(whole))
        }
        _ => None,
    }
}

/// From what the agent has learnt at an accept.
fn line(bytes: &[u8]) -> Option<Line> {
    if bytes.len() != LINE || half(bytes, 0) == 0 {
        return None;
    }
    Some(Line {
        own: internet(&bytes[OWN..PEER])?,
        peer: internet(&bytes[PEER..])?,
        gets: half(bytes, 2),
        scale: half(bytes, 4) >> 16,
    })
}

fn number(word: u64) -> i32 {
    u32::try_from(word & 0xffff_ffff)
        .expect("masked")
        .cast_signed()
}

impl Step {
    /// The system call, and its arguments.
    fn call(&self) -> Option<(i64, [u64; 6])> {
        let kind = u16::from_le_bytes([self.claim[20], self.claim[21]]);
        let nr = half(&self.claim, 4);
        let args = [8, 9, 10, 11, 12, 13].map(|index| word(&self.claim, index));
        (kind == abi::kind::SYSCALL).then_some((nr.into(), args))
    }

    /// What this event did to connections; a call has one descriptor, but for `splice` and `tee`.
    #[must_use]
    pub fn flows(&self) -> Vec<Flow> {
        if let Some(note) = self.note() {
            let last = |word: u64| i32::try_from(word).unwrap_or(i32::MAX);
            match note.kind {
                Kind::Close if note.fd >= 0 => return vec![Flow::Closed(note.fd, note.fd)],
                Kind::Close => return vec![Flow::Closed(last(note.offset), last(note.len))],
                Kind::Duplicate => {
                    let (from, to) = (number(note.len), note.fd);
                    return vec![Flow::Moved { from, to }];
                }
                _ => {}
            }
        }
        // A call that is parked was not made, and its result is a time; that of one made of others is a plan.
        match self.call() {
            Some((nr, args)) if self.flags() & (PARKED | PARTS) == 0 => self.moved(nr, args),
            _ => Vec::new(),
        }
    }

    fn brings_foreign(&self) -> bool {
        let mut came = self.extra().chunks_exact(CAME);
        came.any(|one| half(one, 1) == FOREIGN)
    }

    fn moved(&self, nr: i64, args: [u64; 6]) -> Vec<Flow> {
        const MSG_PEEK: u64 = 2;
        let (fd, ret) = (number(args[0]), self.ret());
        let looks = match nr {
            libc::SYS_recvfrom => args[3] & MSG_PEEK != 0,
            libc::SYS_recvmsg => args[2] & MSG_PEEK != 0,
            _ => false,
        };
        match nr {
            libc::SYS_accept | libc::SYS_accept4 if ret >= 0 => {
                let fd = number(ret.cast_unsigned());
                let known = line(self.extra()).map(|line| Flow::Accepted(fd, line));
                vec![known.unwrap_or(Flow::Given(fd))]
            }
            libc::SYS_recvmsg if self.brings_foreign() => vec![Flow::Handed],
            libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg => {
                match u64::try_from(ret) {
                    Ok(0) => vec![Flow::Given(fd)],
                    Ok(n) if !looks => vec![Flow::Read(fd, n)],
                    _ => Vec::new(),
                }
            }
            libc::SYS_shutdown => vec![Flow::Given(fd)],
            libc::SYS_splice | libc::SYS_tee | libc::SYS_vmsplice if ret > 0 => args[..3]
                .iter()
                .map(|arg| Flow::Given(number(*arg)))
                .collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `read(7, ...)` has come to.
    fn step(ret: i64, flags: u16) -> Step {
        let mut head = vec![0; Step::HEAD];
        head[16..20].copy_from_slice(&0_u32.to_le_bytes());
        head[20..22].copy_from_slice(&abi::kind::SYSCALL.to_le_bytes());
        head[64..72].copy_from_slice(&7_u64.to_le_bytes());
        head[144..152].copy_from_slice(&ret.to_le_bytes());
        head[172..174].copy_from_slice(&flags.to_le_bytes());
        Step::from_parts(&head, Vec::new()).expect("a step")
    }

    #[test]
    fn a_read_moves_bytes_and_one_that_is_parked_moves_none_and_ends_nothing() {
        assert_eq!(step(5, 0).flows(), [Flow::Read(7, 5)]);
        assert_eq!(step(0, 0).flows(), [Flow::Given(7)]);
        assert_eq!(step(0, PARKED).flows(), []);
        assert_eq!(step(5, PARKED).flows(), []);
        assert_eq!(step(5, PARTS).flows(), []);
    }

    #[test]
    fn an_address_is_one_of_ipv4_if_it_is_mapped_although_the_socket_is_one_of_ipv6() {
        let mut bytes = [0; 28];
        bytes[..4].copy_from_slice(&[10, 0, 0x1f, 0x90]);
        assert_eq!(internet(&bytes), None, "::");
        bytes[18..24].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 5]);
        assert_eq!(internet(&bytes), Some("10.0.0.5:8080".parse().unwrap()));
        bytes[..8].copy_from_slice(&[2, 0, 0x1f, 0x90, 10, 0, 0, 6]);
        assert_eq!(internet(&bytes), Some("10.0.0.6:8080".parse().unwrap()));
        bytes[0] = 10;
        bytes[8] = 0x20;
        bytes[24] = 3;
        let six = internet(&bytes).expect("IPv6");
        assert!(matches!(six, SocketAddr::V6(six) if six.scope_id() == 3 && six.port() == 8080));
        bytes[0] = 1;
        assert_eq!(internet(&bytes), None, "a socket of this host");
    }
}
