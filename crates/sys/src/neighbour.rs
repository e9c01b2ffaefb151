//! Neighbour: the part of address.rs that is IPv6's: an address is set by rtnetlink(7), and announced by a neighbour advertisement that
//! nobody has asked for (RFC 4861, 7.2.6).
//!
//! Invariant: an address is in use as soon as it is set: nobody asks first whether another host has it (`IFA_F_NODAD`), since the
//! site that had it is lost.

use std::io;
use std::net::Ipv6Addr;

use crate::netlink;

/// All hosts of the link.
pub(crate) const ALL: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Where Ethernet sends what is for them (RFC 2464, 7).
pub(crate) const ALL_HARDWARE: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ICMP: u8 = 58;

/// The sum of RFC 1071, not complemented, of bytes whose first one is at an even place.
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum: u32 = parts
        .iter()
        .flat_map(|part| part.chunks(2))
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// The packet that says to all hosts of the link that `address` is at `hardware`, whatever they know.
pub(crate) fn advertisement(address: Ipv6Addr, hardware: [u8; 6]) -> Vec<u8> {
    const LENGTH: u8 = 32;
    let mut icmp = vec![136, 0, 0, 0, 0x20, 0, 0, 0]; // the flag says: override
    icmp.extend(address.octets());
    icmp.extend([2, 1]); // the target's own address, in units of eight bytes
    icmp.extend(hardware);
    let pseudo = [0, 0, 0, LENGTH, 0, 0, 0, ICMP];
    let check = !sum(&[&address.octets(), &ALL.octets(), &pseudo, &icmp]);
    icmp[2..4].copy_from_slice(&check.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0, 0, LENGTH, ICMP, 255];
    packet.extend(address.octets());
    packet.extend(ALL.octets());
    packet.extend(icmp);
    packet
}

/// Has the kernel set or take away an address of a device.
pub(crate) fn change(set: bool, index: u32, address: Ipv6Addr, prefix: u8) -> io::Result<()> {
    let (kind, flags) = if set {
        (libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
    } else {
        (libc::RTM_DELADDR, 0)
    };
    let flags = u16::try_from(flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK).expect("sixteen bits");
    const NODAD: u8 = 2;
    // struct nlmsghdr, struct ifaddrmsg, and one attribute.
    let mut message = Vec::new();
    message.extend(44_u32.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend([10 /* AF_INET6 */, prefix, NODAD, 0]);
    message.extend(index.to_ne_bytes());
    message.extend([20, 0, 1 /* IFA_ADDRESS */, 0]);
    message.extend(address.octets());
    let mut answer = [0_u8; 512];
    let got = netlink::ask(libc::NETLINK_ROUTE, &message)?.answer(&mut answer)?;
    if got < 20 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // struct nlmsgerr: 0, or an errno below 0.
    match i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes")) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertisement_is_whole_and_says_where_the_address_is() {
        let address: Ipv6Addr = "fd00::5".parse().expect("one");
        let packet = advertisement(address, [2, 0, 0, 0, 0, 7]);
        assert_eq!(packet.len(), 72);
        assert_eq!(packet[7], 255, "else it is dropped (RFC 4861, 7.1.2)");
        assert_eq!(packet[48..64], address.octets());
        assert_eq!(packet[66..], [2, 0, 0, 0, 0, 7]);
        let pseudo = [0, 0, 0, 32, 0, 0, 0, ICMP];
        assert_eq!(sum(&[&packet[8..40], &pseudo, &packet[40..]]), 0xffff);
    }
}
