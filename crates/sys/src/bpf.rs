//! A program of the kernel's own machine (bpf(2)), at the egress of a network device (tcx, Linux 6.6), and its maps.
//!
//! Invariant: what was attached is gone when its [`Attached`] is dropped, or its process has ended.
//!
//! Not covered: relocations. A program names its maps by [`MAP_MARK`].

#![allow(
    unsafe_code,
    reason = "bpf(2) has no wrapper in libc; sockets of raw packets take pointers"
)]

use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const SCHED_CLS: u32 = 3;
const TCX_EGRESS: u32 = 47;
/// BPF_LD | BPF_DW | BPF_IMM: a word of 64 bits, in two instructions.
const LOAD_WORD: u8 = 0x18;
/// BPF_PSEUDO_MAP_FD, where that instruction has its source register.
const OF_A_MAP: u8 = 1 << 4;
const INSTRUCTION: usize = 8;
/// Bytes of union bpf_attr that are used here; the kernel takes what is shorter than its own.
const ATTR: usize = 64;
const LOG_BYTES: usize = 1 << 16;

/// What stands in a program for the map of number n: this, and n in the bits from 32 on.
pub const MAP_MARK: u64 = 0x6d61_7000_0000_0000;

fn bpf(command: libc::c_int, attr: &[u8; ATTR]) -> io::Result<libc::c_int> {
    // SAFETY: `attr` is read within its length; what it points to is alive in every caller, and as long as the command wants.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_ptr(), ATTR) };
    match libc::c_int::try_from(rc) {
        Ok(rc) if rc >= 0 => Ok(rc),
        _ => Err(io::Error::last_os_error()),
    }
}

fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the command has made it for this caller alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn attr(parts: &[(usize, &[u8])]) -> [u8; ATTR] {
    let mut all = [0; ATTR];
    for (at, bytes) in parts {
        all[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    all
}

fn number(fd: &OwnedFd) -> [u8; 4] {
    fd.as_raw_fd().to_ne_bytes()
}

fn address<T>(of: *const T) -> [u8; 8] {
    (of as u64).to_ne_bytes()
}

fn short(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("small").to_ne_bytes()
}

/// How a map is organised.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub enum Kind {
    Hash = 1,
    Array = 2,
    /// Forgets what was used least, where it is full.
    Lru = 9,
}

#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

impl Map {
    /// # Errors
    /// Without CAP_BPF, or a kernel that has it.
    pub fn new(kind: Kind, key: usize, value: usize, entries: u32) -> io::Result<Self> {
        let attr = attr(&[
            (0, &(kind as u32).to_ne_bytes()),
            (4, &short(key)),
            (8, &short(value)),
            (12, &entries.to_ne_bytes()),
        ]);
        let fd = owned(bpf(MAP_CREATE, &attr)?);
        Ok(Self { fd, key, value })
    }

    fn attr(&self, key: &[u8], value: *const u8) -> [u8; ATTR] {
        assert_eq!(key.len(), self.key);
        attr(&[
            (0, &number(&self.fd)),
            (8, &address(key.as_ptr())),
            (16, &address(value)),
        ])
    }

    /// # Errors
    /// As bpf(2); where there is nothing, that is no error.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.value];
        match bpf(MAP_LOOKUP, &self.attr(key, value.as_mut_ptr())) {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// # Errors
    /// When it is full.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value);
        bpf(MAP_UPDATE, &self.attr(key, value.as_ptr())).map(drop)
    }

    /// # Errors
    /// As bpf(2); where there is nothing, that is no error.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        match bpf(MAP_DELETE, &self.attr(key, std::ptr::null())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A program, as long as it is attached.
#[derive(Debug)]
pub struct Attached(#[expect(dead_code, reason = "holds it")] OwnedFd);

/// Puts the maps where a program names them.
fn with_maps(code: &[u8], maps: &[&Map]) -> io::Result<Vec<u8>> {
    let mut code = code.to_vec();
    let mut named = vec![false; maps.len()];
    let mut at = 0;
    while at + 2 * INSTRUCTION <= code.len() {
        if code[at] != LOAD_WORD {
            at += INSTRUCTION;
            continue;
        }
        let half = |at: usize| {
            u64::from(u32::from_le_bytes(
                code[at..at + 4].try_into().expect("four bytes"),
            ))
        };
        let word = half(at + 4) | half(at + 4 + INSTRUCTION) << 32;
        let index = (word.wrapping_sub(MAP_MARK) >> 32) as usize;
        if word & !(0xff << 32) == MAP_MARK && index < maps.len() {
            code[at + 1] = code[at + 1] & 15 | OF_A_MAP;
            code[at + 4..at + 8].copy_from_slice(&number(&maps[index].fd));
            code[at + 4 + INSTRUCTION..at + 8 + INSTRUCTION].fill(0);
            named[index] = true;
        }
        at += 2 * INSTRUCTION;
    }
    if named.contains(&false) {
        return Err(io::Error::other(
            "the program does not name all of its maps",
        ));
    }
    Ok(code)
}

/// Has the kernel run `code` for each packet that leaves by `device`.
///
/// # Errors
/// What the verifier says; without CAP_BPF and CAP_NET_ADMIN, or before Linux 6.6.
pub fn attach_egress(device: &str, code: &[u8], maps: &[&Map]) -> io::Result<Attached> {
    let name = CString::new(device).map_err(io::Error::other)?;
    // SAFETY: `name` ends with a NUL.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    let code = with_maps(code, maps)?;
    let licence = c"MIT or Apache-2.0";
    let load = |log: &mut [u8]| {
        let attr = attr(&[
            (0, &SCHED_CLS.to_ne_bytes()),
            (4, &short(code.len() / INSTRUCTION)),
            (8, &address(code.as_ptr())),
            (16, &address(licence.as_ptr())),
            (24, &u32::from(!log.is_empty()).to_ne_bytes()),
            (28, &short(log.len())),
            (
                32,
                &address(if log.is_empty() {
                    std::ptr::null()
                } else {
                    log.as_ptr()
                }),
            ),
        ]);
        bpf(PROG_LOAD, &attr)
    };
    let program = match load(&mut []) {
        Ok(fd) => owned(fd),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
        Err(error) => {
            let mut log = vec![0; LOG_BYTES];
            let _ = load(&mut log);
            let text = String::from_utf8_lossy(&log);
            let said = text.trim_end_matches('\0').trim_end();
            let last = said.lines().rev().nth(1).unwrap_or_default();
            return Err(io::Error::other(format!("{error}: {last}")));
        }
    };
    let attr = attr(&[
        (0, &number(&program)),
        (4, &index.to_ne_bytes()),
        (8, &TCX_EGRESS.to_ne_bytes()),
    ]);
    bpf(LINK_CREATE, &attr).map(|fd| Attached(owned(fd)))
}

/// Sends IPv4 packets as they are given, header included (raw(7)); the kernel fills in number and checksum of that header.
#[derive(Debug)]
pub struct RawSocket {
    four: OwnedFd,
    six: Option<OwnedFd>,
}

impl RawSocket {
    /// A kernel without IPv6 sends no packets of it.
    ///
    /// # Errors
    /// Without CAP_NET_RAW.
    pub fn open() -> io::Result<Self> {
        let open = |family: libc::c_int| -> io::Result<OwnedFd> {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // SAFETY: takes numbers.
            let fd = unsafe { libc::socket(family, kind, libc::IPPROTO_RAW) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(owned(fd))
        };
        Ok(Self {
            four: open(libc::AF_INET)?,
            six: open(libc::AF_INET6).ok(),
        })
    }

    /// # Errors
    /// As sendto(2).
    pub fn send(&self, packet: &[u8], to: SocketAddr) -> io::Result<()> {
        match to {
            SocketAddr::V4(to) => {
                // SAFETY: all zeros is a value of it.
                let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                name.sin_family = family(libc::AF_INET);
                name.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
                send_to(&self.four, packet, &name)
            }
            SocketAddr::V6(to) => {
                // SAFETY: all zeros is a value of it; a raw socket takes no port.
                let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
                name.sin6_family = family(libc::AF_INET6);
                name.sin6_addr.s6_addr = to.ip().octets();
                name.sin6_scope_id = to.scope_id();
                let six = self.six.as_ref();
                send_to(six.ok_or(io::ErrorKind::Unsupported)?, packet, &name)
            }
        }
    }
}

fn family(number: libc::c_int) -> libc::sa_family_t {
    number.unsigned_abs().try_into().expect("a small number")
}

fn send_to<T>(socket: &OwnedFd, packet: &[u8], name: &T) -> io::Result<()> {
    let len = size_of::<T>().try_into().expect("a small number");
    // SAFETY: `packet` and `name`, a socket address, are read within their lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            std::ptr::from_ref(name).cast(),
            len,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
