//! Address: has this host answer to another address, and tells the network that it has moved here
//! (netdevice(7); gratuitous ARP, RFC 5227, section 3; IPv6: neighbour.rs). No process is started for it.
//!
//! Invariant: the address is taken away again when its [`Alias`] is dropped.
//!
//! Not covered: an address that another host still answers to.

#![allow(
    unsafe_code,
    reason = "packet(7) sockets and netdevice(7) are only reachable through libc"
)]

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::neighbour;

const ETH_P_ARP: u16 = 0x0806;
const ETH_P_IPV6: u16 = 0x86dd;

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request
        .ifr_name
        .iter_mut()
        .zip(name.as_bytes().iter().take(libc::IFNAMSIZ - 1))
    {
        *to = from.cast_signed();
    }
    request
}

/// An alias is named after its device, and has no more room for it.
fn label(device: &str) -> io::Result<String> {
    let label = format!("{device}:p");
    if label.len() < libc::IFNAMSIZ {
        Ok(label)
    } else {
        Err(io::Error::other(format!(
            "the name {device} is too long for an alias, give the device a shorter one"
        )))
    }
}

fn internet(address: Ipv4Addr) -> libc::sockaddr {
    let octets = address.octets();
    let mut data = [0; 14];
    // struct sockaddr_in behind its family: a port, then the address.
    for (to, from) in data[2..6].iter_mut().zip(octets) {
        *to = from.cast_signed();
    }
    libc::sockaddr {
        sa_family: libc::AF_INET
            .unsigned_abs()
            .try_into()
            .expect("a small number"),
        sa_data: data,
    }
}

fn index_of(device: &str) -> io::Result<u32> {
    let name = CString::new(device).map_err(io::Error::other)?;
    // SAFETY: `name` ends with a NUL.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// What netdevice(7) is asked through.
fn datagrams() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A further address of a device, for as long as this lives.
#[derive(Debug)]
pub struct Alias(Kind);

#[derive(Debug)]
enum Kind {
    Four {
        socket: OwnedFd,
        label: String,
    },
    Six {
        index: u32,
        address: Ipv6Addr,
        prefix: u8,
    },
}

impl Alias {
    /// # Errors
    /// When there is no such device, or without CAP_NET_ADMIN.
    pub fn set(device: &str, address: IpAddr, prefix: u8) -> io::Result<Self> {
        match address {
            IpAddr::V4(address) => Self::set_four(device, address, prefix),
            IpAddr::V6(address) => {
                let index = index_of(device)?;
                neighbour::change(true, index, address, prefix)?;
                Ok(Self(Kind::Six {
                    index,
                    address,
                    prefix,
                }))
            }
        }
    }

    /// Takes it away where a process that had it has ended without a word. It may be gone already.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn forget(device: &str, address: IpAddr, prefix: u8) -> io::Result<()> {
        let kind = match address {
            IpAddr::V4(_) => Kind::Four {
                socket: datagrams()?,
                label: label(device)?,
            },
            IpAddr::V6(address) => Kind::Six {
                index: index_of(device)?,
                address,
                prefix,
            },
        };
        drop(Self(kind));
        Ok(())
    }

    fn set_four(device: &str, address: Ipv4Addr, prefix: u8) -> io::Result<Self> {
        let label = label(device)?;
        let socket = datagrams()?;
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        for (operation, value) in [
            (libc::SIOCSIFADDR, address),
            (libc::SIOCSIFNETMASK, Ipv4Addr::from(mask)),
        ] {
            let mut request = request(&label);
            request.ifr_ifru.ifru_addr = internet(value);
            // SAFETY: `request` is one, with the member that the operation reads.
            if unsafe { libc::ioctl(socket.as_raw_fd(), operation, &raw mut request) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self(Kind::Four { socket, label }))
    }
}

impl Drop for Alias {
    fn drop(&mut self) {
        match &self.0 {
            Kind::Four { socket, label } => {
                // An alias without IFF_UP is no more.
                let mut request = request(label);
                // SAFETY: `request` is one; its flags are zeros.
                unsafe {
                    libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request);
                }
            }
            Kind::Six {
                index,
                address,
                prefix,
            } => drop(neighbour::change(false, *index, *address, *prefix)),
        }
    }
}

/// A device to announce on. Opening it takes tens of milliseconds, so it is done ahead of time.
#[derive(Debug)]
pub struct Announcer {
    socket: OwnedFd,
    index: i32,
    hardware: [u8; 6],
}

impl Announcer {
    /// # Errors
    /// When there is no such device, or without CAP_NET_RAW.
    pub fn open(device: &str) -> io::Result<Self> {
        label(device)?;
        let index = index_of(device)?;
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: takes numbers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(ETH_P_ARP.to_be())) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is new, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut request = request(device);
        // SAFETY: `request` is one, with the name of a device.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has stored this member.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let mut hardware = [0; 6];
        for (to, from) in hardware.iter_mut().zip(address.sa_data) {
            *to = from.cast_unsigned();
        }
        Ok(Self {
            socket,
            index: index.cast_signed(),
            hardware,
        })
    }

    /// Says that `address` is here. By ARP as a request and as a reply, since hosts differ in which they heed.
    ///
    /// # Errors
    /// As sendto(2).
    pub fn announce(&self, address: IpAddr) -> io::Result<()> {
        let address = match address {
            IpAddr::V4(address) => address,
            IpAddr::V6(address) => {
                let packet = neighbour::advertisement(address, self.hardware);
                return self.send(ETH_P_IPV6, neighbour::ALL_HARDWARE, &packet);
            }
        };
        for operation in [1_u8, 2] {
            let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation];
            for hardware in [self.hardware, [0xff; 6]] {
                packet.extend(hardware);
                packet.extend(address.octets());
            }
            self.send(ETH_P_ARP, [0xff; 6], &packet)?;
        }
        Ok(())
    }

    fn send(&self, protocol: u16, hardware: [u8; 6], packet: &[u8]) -> io::Result<()> {
        // SAFETY: all zeros is a value of it.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET
            .unsigned_abs()
            .try_into()
            .expect("a small number");
        to.sll_protocol = protocol.to_be();
        to.sll_ifindex = self.index;
        to.sll_halen = 6;
        to.sll_addr[..6].copy_from_slice(&hardware);
        let len = size_of::<libc::sockaddr_ll>()
            .try_into()
            .expect("a small number");
        // SAFETY: `packet` and `to` are read, within their lengths.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const to).cast(),
                len,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}
