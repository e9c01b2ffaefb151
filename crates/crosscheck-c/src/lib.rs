//! The C ABI of the ordering and the votes, for services in C and C++. Its other side is `include/steadfast/crosscheck.h`, which says
//! what each function is for; `include/steadfast/guarded.hpp` stands on it.
//!
//! Invariants
//!  1. The service's functions are called by one thread, which [`sf_cc_start`] makes.
//!  2. A reply leaves [`sf_cc_call`] with the digest that was voted for, and only if the copy that leaves still has it.
//!
//! Not covered: a service that keeps a pointer that one of its functions was given beyond the call.

#![allow(
    unsafe_code,
    reason = "C calls these functions with pointers, and gives pointers to functions of its own"
)]

mod service;

use std::ffi::{CStr, c_char, c_void};
use std::net::{TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::mpsc as thread;
use std::thread::JoinHandle;

use steadfast_crosscheck::{Digest, Pair};
use steadfast_group::driver::{self, Event, Machine as _, News, Setup};
use steadfast_group::tls::{Files, Tls};
use steadfast_group::{Kept, Who, secret};
use tokio::sync::mpsc;

pub use service::{Service, Words};

/// Entries of the log between two snapshots, which a replica that joins begins with.
const SNAPSHOT_EVERY: u64 = 50_000;
/// A request is one part of an entry, and an entry one frame.
const REQUEST_MAX: usize = 16 << 20;

/// The number of an object, or a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Wide {
    low: u64,
    high: u64,
}

impl From<u128> for Wide {
    #[allow(clippy::cast_possible_truncation, reason = "the halves of a number")]
    fn from(number: u128) -> Self {
        Self {
            low: number as u64,
            high: (number >> 64) as u64,
        }
    }
}

impl From<Wide> for u128 {
    fn from(wide: Wide) -> Self {
        Self::from(wide.high) << 64 | Self::from(wide.low)
    }
}

/// `sf_cc_options`.
#[derive(Debug)]
#[repr(C)]
pub struct Options {
    name: *const c_char,
    replica: u64,
    peers: *const c_char,
    bind: *const c_char,
    secret_file: *const c_char,
    client: *const c_char,
    scrub_s: u64,
    tls_cert: *const c_char,
    tls_key: *const c_char,
    tls_ca: *const c_char,
}

/// `sf_cc_reply`.
#[derive(Debug)]
#[repr(C)]
pub struct Reply {
    bytes: *mut u8,
    length: usize,
    voted: Wide,
    refused: *const c_char,
}

const _: () = assert!(
    size_of::<Wide>() == 16 && size_of::<Service>() == 88,
    "shared with include/steadfast/crosscheck.h"
);
const _: () = assert!(
    size_of::<Options>() == 80 && size_of::<Reply>() == 40,
    "shared with include/steadfast/crosscheck.h"
);

/// Bytes that a function of the service says.
#[derive(Debug, Default)]
pub struct Bytes(pub(crate) Vec<u8>);

/// Objects that a function of the service names.
#[derive(Debug, Default)]
pub struct Named(pub(crate) Vec<Pair>);

/// One replica.
#[derive(Debug)]
pub struct Group {
    events: Option<mpsc::UnboundedSender<Event>>,
    driver: Option<JoinHandle<()>>,
}

/// A text of C; nothing for a null pointer.
///
/// # Safety
/// `text` is null, or ends with a zero byte and stays for as long as the result is used.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, String> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, as just seen, and ended by a zero byte, as the caller promises.
    let found = unsafe { CStr::from_ptr(text) };
    found
        .to_str()
        .map(Some)
        .map_err(|_| format!("{what}: requirement: UTF-8; found: other bytes"))
}

/// Bytes of C.
///
/// # Safety
/// `bytes` points to `length` bytes that nobody changes for as long as the result is used; it may be anything where `length` is 0.
unsafe fn slice<'a>(bytes: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: so many bytes are there, as the caller promises.
    unsafe { std::slice::from_raw_parts(bytes.cast(), length) }
}

impl Options {
    /// # Safety
    /// Each text is null or ends with a zero byte.
    unsafe fn setup(&self, epoch: u64) -> Result<(Setup, TcpListener), String> {
        // SAFETY: as the caller promises, for this and the texts below.
        let name = unsafe { text(self.name, "name") }?.unwrap_or("service");
        // SAFETY: as above.
        let peers = unsafe { text(self.peers, "peers") }?.unwrap_or_default();
        // SAFETY: as above.
        let bind = unsafe { text(self.bind, "bind") }?;
        // SAFETY: as above.
        let client = unsafe { text(self.client, "client") }?.unwrap_or_default();
        // SAFETY: as above.
        let file = unsafe { text(self.secret_file, "secret_file") }?
            .ok_or("secret_file: requirement: a file with the secret of the group; found: none\n  fix:   (umask 077; steadfast kv secret > FILE), and the same file on every host")?;
        let mut files = Vec::new();
        for (file, flag) in [
            (self.tls_cert, "tls_cert"),
            (self.tls_key, "tls_key"),
            (self.tls_ca, "tls_ca"),
        ] {
            // SAFETY: as above.
            files.extend(unsafe { text(file, flag) }?.map(PathBuf::from));
        }
        let peers: Vec<String> = peers
            .split(',')
            .filter(|at| !at.is_empty())
            .map(str::to_owned)
            .collect();
        let said = |why: steadfast_group::Failure| format!("{why:#}");
        secret::check_peers(&peers, self.replica).map_err(said)?;
        let secret = secret::read(Path::new(file)).map_err(said)?;
        let own = usize::try_from(self.replica).map_err(|why| why.to_string())?;
        let at = bind.unwrap_or(&peers[own]);
        let tls = match files.as_slice() {
            [] => None,
            [certificate, key, authority] => {
                let files = Files {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    authority: authority.clone(),
                };
                Some(Tls::load(&files, &peers[own]).map_err(said)?)
            }
            _ => {
                return Err("TLS: requirement: --tls-cert, --tls-key and --tls-ca together; found: not all of them".to_owned());
            }
        };
        let cannot = |why: std::io::Error| {
            format!(
                "this replica needs {at} for the other replicas, and it cannot be had: {why}\n  fix:   an address of this host and a port that nobody has"
            )
        };
        let found: Vec<_> = at.to_socket_addrs().map_err(cannot)?.collect();
        let listener = TcpListener::bind(&found[..]).map_err(cannot)?;
        let [a, b, c, d, ..] = epoch.to_le_bytes();
        let setup = Setup {
            who: Who {
                slot: self.replica,
                node: secret::fresh_node(self.replica).map_err(said)?.0,
                client: client.to_owned(),
                peers,
                service: name.to_owned(),
                memory_mib: 0,
                kept: Kept::Nothing,
            },
            secret,
            tls,
            epoch: u32::from_le_bytes([a, b, c, d]),
            snapshot_every: SNAPSHOT_EVERY,
            scrub_s: self.scrub_s,
        };
        Ok((setup, listener))
    }
}

/// Adds bytes.
///
/// # Safety
/// `to` is what a function of the service was given, during its call; `length` bytes are at `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cc_put(to: *mut Bytes, bytes: *const c_void, length: usize) {
    // SAFETY: the pointer was made from a unique reference by the caller of the service's function, which waits for it.
    let to = unsafe { &mut *to };
    // SAFETY: as the caller promises.
    to.0.extend_from_slice(unsafe { slice(bytes, length) });
}

/// Names an object.
///
/// # Safety
/// `to` is what a function of the service was given, during its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cc_touched(to: *mut Named, object: Wide, digest: Wide, at_rest: bool) {
    // SAFETY: the pointer was made from a unique reference by the caller of the service's function, which waits for it.
    let to = unsafe { &mut *to };
    to.0.push(Pair {
        object: steadfast_crosscheck::ObjectId(object.into()),
        digest: Digest(digest.into()),
        passive: at_rest,
        doubt: false,
        unproven: false,
    });
}

/// The digest that replicas compare.
///
/// # Safety
/// `length` bytes are at `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cc_digest(bytes: *const c_void, length: usize) -> Wide {
    // SAFETY: as the caller promises.
    Digest::of(unsafe { slice(bytes, length) }).0.into()
}

/// Starts one replica.
///
/// # Safety
/// `options` and `service` are what the header says; the service's functions and state stay until `sf_cc_stop`; `error` has room for
/// `error_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cc_start(
    options: *const Options,
    service: *const Service,
    error: *mut c_char,
    error_size: usize,
) -> *mut Group {
    // SAFETY: it is there, as the caller promises.
    let options = unsafe { &*options };
    // SAFETY: so is this; it is copied.
    let service = unsafe { *service };
    // SAFETY: the texts are what the header asks for, as the caller promises.
    let started = unsafe { options.setup(service.epoch) }
        .and_then(|(setup, listener)| start(setup, listener, service));
    match started {
        Ok(group) => Box::into_raw(Box::new(group)),
        Err(why) => {
            // A text that is too long is cut, and ends there.
            let mut bytes = why.into_bytes();
            bytes.truncate(error_size.saturating_sub(1));
            bytes.push(0);
            if error_size > 0 {
                // SAFETY: `error` has room for so many, as the caller promises, and is nobody else's.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), error, bytes.len()) };
            }
            ptr::null_mut()
        }
    }
}

fn start(setup: Setup, listener: TcpListener, service: Service) -> Result<Group, String> {
    service.check()?;
    let (events, received) = mpsc::unbounded_channel();
    let words = Words(service);
    let driver = std::thread::Builder::new()
        .name("crosscheck".to_owned())
        .spawn(move || {
            let mut told = words.again();
            if let Err(why) = driver::run(setup, listener, words, received) {
                told.told(&News::Ended { why });
            }
        })
        .map_err(|why| format!("a thread for the replica: {why}"))?;
    Ok(Group {
        events: Some(events),
        driver: Some(driver),
    })
}

fn refused(why: &'static CStr) -> Reply {
    Reply {
        bytes: ptr::null_mut(),
        length: 0,
        voted: 0.into(),
        refused: why.as_ptr(),
    }
}

/// Why there is no reply, as a text that stays.
fn why(text: &'static str) -> Reply {
    refused(match text {
        "the replicas disagree" => c"the replicas disagree",
        "the request was damaged on its way to the log" => {
            c"the request was damaged on its way to the log"
        }
        "the vote took too long" => c"the vote took too long",
        "a reply was corrupted after its vote" => c"a reply was corrupted after its vote",
        "this replica is joining the group" => c"this replica is joining the group",
        _ => c"the request was executed, and this replica has lost its reply",
    })
}

fn given(bytes: Vec<u8>, voted: Digest) -> Reply {
    let bytes = bytes.into_boxed_slice();
    if Digest::of(&bytes) != voted {
        return why("a reply was corrupted after its vote");
    }
    let length = bytes.len();
    Reply {
        bytes: Box::into_raw(bytes).cast(),
        length,
        voted: voted.0.into(),
        refused: ptr::null(),
    }
}

/// Orders a request, and waits for its vote.
///
/// # Safety
/// `group` comes from `sf_cc_start` and has not been given to `sf_cc_stop`; `length` bytes are at `request`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cc_call(
    group: *mut Group,
    request: *const c_void,
    length: usize,
) -> Reply {
    if length > REQUEST_MAX {
        return refused(c"requirement: a request of at most 16 MiB; found: a longer one");
    }
    // SAFETY: shared by all callers, and changed by none but `sf_cc_stop`, which no call goes beside.
    let group = unsafe { &*group };
    // SAFETY: as the caller promises.
    let request = unsafe { slice(request, length) }.to_vec();
    let (reply, answer) = thread::sync_channel(1);
    let Some(events) = &group.events else {
        return refused(c"the replica has ended");
    };
    let _ = events.send(Event::Call(request, reply));
    match answer.recv() {
        Ok(Ok(reply)) => given(reply.bytes, reply.voted),
        Ok(Err(text)) => why(text),
        Err(_) => refused(c"the replica has ended"),
    }
}

/// Frees the bytes of a reply.
#[unsafe(no_mangle)]
pub extern "C" fn sf_cc_free(reply: Reply) {
    if !reply.bytes.is_null() {
        let bytes = ptr::slice_from_raw_parts_mut(reply.bytes, reply.length);
        // SAFETY: these came out of a box of that length in `given`, and the reply that held them is gone now.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

/// What the replica is doing.
///
/// # Safety
/// As for `sf_cc_call`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cc_status(group: *mut Group) -> Reply {
    // SAFETY: as for `sf_cc_call`.
    let group = unsafe { &*group };
    let (reply, answer) = thread::sync_channel(1);
    if let Some(events) = &group.events {
        let _ = events.send(Event::Status(reply));
    }
    match answer.recv() {
        Ok(text) => {
            let digest = Digest::of(text.as_bytes());
            given(text.into_bytes(), digest)
        }
        Err(_) => refused(c"the replica has ended"),
    }
}

/// Ends the replica.
///
/// # Safety
/// As for `sf_cc_call`, with no call under way; `group` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cc_stop(group: *mut Group) {
    if group.is_null() {
        return;
    }
    // SAFETY: it was made by `sf_cc_start` from a box, and nobody uses it any more.
    let mut group = unsafe { Box::from_raw(group) };
    group.events = None;
    if let Some(driver) = group.driver.take() {
        let _ = driver.join();
    }
}
