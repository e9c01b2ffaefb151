//! Hold: a client is not told that bytes have arrived before the other site has them.
//!
//! ```text
//!   client ──bytes──► kernel of A ──read──► program of A ──event──► B: has done it
//!          ◄──ACK, held back at the device (hold.bpf.c)──┐                 │
//!          ◄──ACK, once more ────────────── limit := bytes that B's program has ◄┘
//! ```
//!
//! What nobody has acknowledged the client's kernel sends again: to B, when A is lost.
//!
//! Invariant: while there are two sites no acknowledgement leaves that covers a byte which the other one has not done the
//! read of, from the connection's first byte on.
//!
//! What was acknowledged while a site was alone, and not read, a site that joins gets with the program.
//!
//! Each process has descriptors of its own, and a child begins with those of its parent: a connection is known until the last of
//! them is closed. What two processes read of one is acknowledged in the order in which this site has heard of the reads.
//!
//! Not covered: bytes of a connection that nobody has accepted, come while no other site was there or before more than
//! `SEEN` others; IPv6 with headers between its own and that of TCP. A program that hands a connection on by a message has nothing
//! held back from then on, and neither has a connection that outlives an execve(2): nobody can go on with either.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use steadfast_replica::site::{Flow, Line, Step, Unread, has_room};
use steadfast_sys::bpf::{self, Attached, Kind, Map, RawSocket};
use steadfast_sys::connection::Connection;

use crate::hex::{hex, unhex};

static CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hold.code"));

/// Connections that the program has: as many as ports of one client's (16 bits).
const LIMITS: u32 = 65_536;
/// Connections that the kernel has.
const SEEN: u32 = 65536;
const RULE_BYTES: usize = 20;
const KEY_BYTES: usize = 36;
const HEAD: usize = 32;
const SEEN_BYTES: usize = 24 + HEAD;
const ACK: u8 = 16;

/// Whether `a` comes behind `b` (RFC 9293, 3.4).
fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// A connection of the program, and how much of it the program has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    line: Line,
    next: u32,
    /// The other site has all before this, and gives its program what that has not read.
    given: u32,
    /// Nobody can go on with it: it is acknowledged as the kernel likes.
    free: bool,
}

impl Known {
    /// What may be acknowledged.
    fn limit(&self) -> u32 {
        if after(self.given, self.next) {
            self.given
        } else {
            self.next
        }
    }
}

/// The same for the other site.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    fd: i32,
    own: SocketAddr,
    peer: SocketAddr,
    next: u32,
    scale: u32,
    free: bool,
    /// What has come behind `next` and was not read; hexadecimal.
    unread: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Is(Known),
    Ended(Known),
}

impl Change {
    fn line(&self) -> &Line {
        match self {
            Self::Is(known) | Self::Ended(known) => &known.line,
        }
    }
}

/// A process, by the strand that it began with, and a descriptor of its.
type At = (u64, i32);

/// The program's connections, in log order, on both sites alike.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    at: HashMap<At, u64>,
    all: HashMap<u64, Known>,
    newest: u64,
    /// Of a site that has joined: what was acknowledged by then, and its program has not read yet, by connection: what one process has
    /// read no other one gets.
    unread: HashMap<u64, Vec<u8>>,
}

impl Lines {
    fn known(&mut self, at: At) -> Option<&mut Known> {
        self.all.get_mut(self.at.get(&at)?)
    }

    /// The last descriptor of a connection ends it.
    fn ends(&mut self, ended: &[At], changes: &mut Vec<Change>) {
        for at in ended {
            let Some(connection) = self.at.remove(at) else {
                continue;
            };
            if !self.at.values().any(|other| *other == connection) {
                self.unread.remove(&connection);
                changes.extend(self.all.remove(&connection).map(Change::Ended));
            }
        }
    }

    fn begins(&mut self, at: At, known: Known) {
        self.newest += 1;
        self.at.insert(at, self.newest);
        self.all.insert(self.newest, known);
    }

    fn of(&self, table: u64) -> Vec<At> {
        let all = self.at.keys().filter(|at| at.0 == table);
        all.copied().collect()
    }

    /// A child has what its parent has.
    fn born(&mut self, parent: u64, child: u64) {
        for at in self.of(parent) {
            self.at.insert((child, at.1), self.at[&at]);
        }
    }

    fn follow(&mut self, table: u64, strand: u64, step: &Step) -> Vec<Change> {
        let mut changes = Vec::new();
        if let Some(child) = step.made(strand) {
            self.born(table, child);
        }
        for flow in step.flows() {
            self.take_in(table, flow, &mut changes);
        }
        changes
    }

    fn take_in(&mut self, table: u64, flow: Flow, changes: &mut Vec<Change>) {
        match flow {
            Flow::Accepted(fd, line) => {
                let known = Known {
                    line,
                    next: line.gets,
                    given: line.gets,
                    free: false,
                };
                self.ends(&[(table, fd)], changes);
                self.begins((table, fd), known);
                changes.push(Change::Is(known));
            }
            Flow::Read(fd, bytes) => {
                if let Some(known) = self.known((table, fd)) {
                    // Sequence numbers are what is left of it by 2^32.
                    known.next = known.next.wrapping_add((bytes & 0xffff_ffff) as u32);
                    changes.push(Change::Is(*known));
                }
                let connection = self.at.get(&(table, fd));
                if let Some(unread) = connection.and_then(|one| self.unread.get_mut(one)) {
                    let read = usize::try_from(bytes).unwrap_or(usize::MAX);
                    unread.drain(..read.min(unread.len()));
                }
            }
            Flow::Given(fd) => {
                if let Some(connection) = self.at.get(&(table, fd)) {
                    self.unread.remove(connection);
                }
                if let Some(known) = self.known((table, fd)) {
                    known.free = true;
                    changes.push(Change::Is(*known));
                }
            }
            Flow::Closed(first, last) => {
                let ended = |fd: i32| (first..=last).contains(&fd);
                let all = self.of(table).into_iter();
                let all: Vec<At> = all.filter(|at| ended(at.1)).collect();
                self.ends(&all, changes);
            }
            Flow::Moved { from, to } if from != to => {
                self.ends(&[(table, to)], changes);
                if let Some(connection) = self.at.get(&(table, from)).copied() {
                    self.at.insert((table, to), connection);
                }
            }
            Flow::Moved { .. } | Flow::Handed => {}
        }
    }

    /// For a site that joins, with what has come for each and was not read.
    pub(crate) fn tell(&self, table: u64, unread: &HashMap<i32, Vec<u8>>) -> Vec<Told> {
        let its = self.at.iter().filter(|(at, _)| at.0 == table);
        let one = |((_, fd), known): (&At, &Known)| Told {
            fd: *fd,
            own: known.line.own,
            peer: known.line.peer,
            next: known.next,
            scale: known.line.scale,
            free: known.free,
            unread: unread.get(fd).map_or_else(String::new, |bytes| hex(bytes)),
        };
        its.filter_map(|(at, connection)| Some(one((at, self.all.get(connection)?))))
            .collect()
    }

    /// What [`Self::tell`] has told.
    pub(crate) fn take(&mut self, table: u64, all: Vec<Told>) -> io::Result<()> {
        for told in all {
            let line = Line {
                own: told.own,
                peer: told.peer,
                gets: told.next,
                scale: told.scale,
            };
            let known = Known {
                line,
                next: told.next,
                given: told.next,
                free: told.free,
            };
            let at = (table, told.fd);
            let same = |one: &&u64| {
                let line = self.all.get(one).map(|known| known.line);
                line.is_some_and(|line| (line.own, line.peer) == (told.own, told.peer))
            };
            // Another process may have it as well.
            match self.at.values().find(same).copied() {
                Some(connection) => drop(self.at.insert(at, connection)),
                None => self.begins(at, known),
            }
            let unread = unhex(&told.unread)?;
            if !unread.is_empty() {
                self.unread.insert(self.at[&at], unread);
            }
        }
        Ok(())
    }

    /// What this site's program has not read of what was acknowledged, for when it leads.
    pub(crate) fn unread(&self, table: u64) -> Vec<Unread> {
        let its = |at: &At| {
            let bytes = self.unread.get(self.at.get(at)?)?;
            (!bytes.is_empty()).then(|| (at.1, Some(bytes.clone())))
        };
        self.of(table).iter().filter_map(its).collect()
    }
}

/// struct seen (hold.bpf.c), without what is that file's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    said: u32,
    acked: u32,
    next: u32,
    window: u32,
    head: [u8; HEAD],
}

impl Seen {
    fn of(bytes: &[u8]) -> Option<Self> {
        let number = |index: usize| -> Option<u32> {
            let bytes = bytes.get(4 * index..4 * index + 4)?;
            bytes.try_into().ok().map(u32::from_ne_bytes)
        };
        Some(Self {
            said: number(1)?,
            acked: number(2)?,
            next: number(3)?,
            window: number(4)?,
            head: *bytes.get(24..)?.first_chunk()?,
        })
    }

    /// The acknowledgement that is due, if there is one: up to the limit, and not more than the kernel has wanted to say.
    fn due(&self, known: &Known) -> Option<u32> {
        let ack = if known.free || after(known.limit(), self.acked) {
            self.acked
        } else {
            known.limit()
        };
        after(ack, self.said).then_some(ack)
    }
}

fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum: u32 = parts
        .iter()
        .flat_map(|part| part.chunks(2))
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded")
}

/// A packet that acknowledges up to `ack`, and else says what the kernel has said last: its place, window and time stamp.
fn packet(known: &Known, seen: &Seen, ack: u32) -> Vec<u8> {
    let Line {
        own, peer, scale, ..
    } = known.line;
    // NOP, NOP, time stamp (RFC 7323, appendix A).
    let stamped = seen.head[12] >> 4 >= 8 && seen.head[20..24] == [1, 1, 8, 10];
    let stamp = if stamped { &seen.head[20..32] } else { &[] };
    let length = 20 + u8::try_from(stamp.len()).expect("twelve");
    let wide = seen.window + (seen.acked.wrapping_sub(ack) >> scale.min(31));
    let window = u16::try_from(wide).unwrap_or(u16::MAX);
    let mut tcp = [
        &own.port().to_be_bytes()[..],
        &peer.port().to_be_bytes(),
        &seen.next.to_be_bytes(),
        &ack.to_be_bytes(),
        &[(length / 4) << 4, ACK],
        &window.to_be_bytes(),
        &[0; 4],
        stamp,
    ]
    .concat();
    match (own.ip(), peer.ip()) {
        (IpAddr::V4(own), IpAddr::V4(peer)) => {
            let (own, peer) = (own.octets(), peer.octets());
            let check = sum(&[&own, &peer, &[0, 6, 0, length], &tcp]);
            tcp[16..18].copy_from_slice(&check.to_be_bytes());
            let ip = [0x45, 0, 0, 20 + length, 0, 0, 0, 0, 64, 6, 0, 0];
            [&ip[..], &own, &peer, &tcp].concat()
        }
        (own, peer) => {
            let (own, peer) = (octets(own), octets(peer));
            let check = sum(&[&own, &peer, &[0, 0, 0, length, 0, 0, 0, 6], &tcp]);
            tcp[16..18].copy_from_slice(&check.to_be_bytes());
            let ip = [0x60, 0, 0, 0, 0, length, 6, 64];
            [&ip[..], &own, &peer, &tcp].concat()
        }
    }
}

/// An address as IPv6 has it.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
        IpAddr::V6(six) => six.octets(),
    }
}

fn key(line: &Line) -> Vec<u8> {
    [
        &octets(line.own.ip())[..],
        &octets(line.peer.ip()),
        &line.own.port().to_be_bytes(),
        &line.peer.port().to_be_bytes(),
    ]
    .concat()
}

fn limit(known: &Known) -> Vec<u8> {
    [known.limit(), known.line.scale, known.free.into()]
        .map(u32::to_ne_bytes)
        .concat()
}

/// The device's end of it, of the site that leads.
#[derive(Debug)]
pub(crate) struct Hold {
    address: IpAddr,
    rule: Map,
    limits: Map,
    seen: Map,
    socket: RawSocket,
    /// What has happened, and the other site has not said that it has done as well.
    pending: Pending,
    #[expect(dead_code, reason = "attached as long as it lives")]
    attached: Attached,
}

impl Hold {
    /// For packets from `address` that leave by `device`. Nothing is held back yet.
    pub(crate) fn open(address: IpAddr, device: &str) -> io::Result<Self> {
        let rule = Map::new(Kind::Array, 4, RULE_BYTES, 1)?;
        let limits = Map::new(Kind::Hash, KEY_BYTES, 12, LIMITS)?;
        let seen = Map::new(Kind::Lru, KEY_BYTES, SEEN_BYTES, SEEN)?;
        let attached = bpf::attach_egress(device, CODE, &[&rule, &limits, &seen])?;
        let this = Self {
            address,
            rule,
            limits,
            seen,
            socket: RawSocket::open()?,
            pending: Pending::default(),
            attached,
        };
        this.set(false)?;
        Ok(this)
    }

    fn set(&self, on: bool) -> io::Result<()> {
        let rule = [&octets(self.address)[..], &u32::from(on).to_ne_bytes()].concat();
        self.rule.set(&[0; 4], &rule)
    }

    fn apply(&self, change: Change) -> io::Result<()> {
        match change {
            Change::Is(known) => {
                self.limits.set(&key(&known.line), &limit(&known))?;
                self.acknowledge(&known)
            }
            Change::Ended(known) => {
                let free = Known {
                    free: true,
                    ..known
                };
                self.acknowledge(&free)?;
                self.limits.remove(&key(&known.line))?;
                self.seen.remove(&key(&known.line))
            }
        }
    }

    /// Says what was held back and is no more. A packet that the network does not take now, the client asks for again.
    fn acknowledge(&self, known: &Known) -> io::Result<()> {
        let seen = self.seen.get(&key(&known.line))?;
        let Some(seen) = seen.as_deref().and_then(Seen::of) else {
            return Ok(());
        };
        if let Some(ack) = seen.due(known) {
            let _ = self
                .socket
                .send(&packet(known, &seen, ack), known.line.peer);
        }
        Ok(())
    }
}

/// What has happened, by strand and event, 0 where the other site has done it, in the order in which this site has heard of it.
#[derive(Debug, Default)]
struct Pending(VecDeque<(u64, u64, Change)>);

impl Pending {
    fn push(&mut self, (strand, event): (u64, u64), change: Change) {
        self.0.push_back((strand, event, change));
    }

    /// The other site has done all of a strand up to this event. What may be said: nothing of a connection overtakes what has
    /// happened to it before, by whichever process.
    fn done(&mut self, strand: u64, event: u64) -> Vec<Change> {
        for one in self.0.iter_mut().filter(|one| one.0 == strand) {
            if one.1 <= event {
                one.1 = 0;
            }
        }
        if self.0.iter().all(|one| one.1 != 0) {
            return Vec::new();
        }
        let (mut due, mut waits) = (Vec::new(), HashSet::new());
        self.0.retain(|(_, event, change)| {
            let line = change.line();
            let is_due = *event == 0 && !waits.contains(&(line.own, line.peer));
            if is_due {
                due.push(*change);
            } else {
                waits.insert((line.own, line.peer));
            }
            !is_due
        });
        due
    }

    fn all(&mut self) -> Vec<Change> {
        self.0.drain(..).map(|(_, _, change)| change).collect()
    }
}

/// Connections, and what holds their acknowledgements back where this site leads.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) lines: Lines,
    hold: Option<Hold>,
    let_go: bool,
}

impl Clients {
    /// This site leads from now on.
    pub(crate) fn lead(&mut self, hold: Option<Hold>) -> io::Result<()> {
        self.hold = hold.filter(|_| !self.let_go);
        if let Some(hold) = &self.hold {
            for known in self.lines.all.values() {
                hold.limits.set(&key(&known.line), &limit(known))?;
            }
        }
        Ok(())
    }

    /// The program hands a connection on by a message: nobody knows who reads from it, and nothing is held back.
    fn let_go(&mut self) -> io::Result<()> {
        self.let_go = true;
        self.pair_up(false)?;
        if self.hold.take().is_some() {
            eprintln!(
                "steadfast pair: the program has handed a descriptor on by a message: acknowledgements are not held back from here on"
            );
        }
        Ok(())
    }

    fn take(&mut self, at: (u64, u64), changes: Vec<Change>) {
        if let Some(hold) = &mut self.hold {
            for change in changes {
                hold.pending.push(at, change);
            }
        }
    }

    /// The process of this table becomes another program, which knows nothing of its connections. The other site has done all of
    /// the strand that ends.
    pub(crate) fn becomes(&mut self, table: u64, strand: u64) -> io::Result<()> {
        let mut changes = Vec::new();
        for (table, fd) in self.lines.of(table) {
            self.lines.take_in(table, Flow::Given(fd), &mut changes);
        }
        self.take((strand, 0), changes);
        self.done(strand, u64::MAX)
    }

    /// The process of this table has ended, after both sites have claimed that.
    pub(crate) fn ended(&mut self, table: u64, strand: u64) -> io::Result<()> {
        let mut changes = Vec::new();
        let all = self.lines.of(table);
        self.lines.ends(&all, &mut changes);
        self.take((strand, 0), changes);
        self.done(strand, u64::MAX)
    }

    /// Whether there is another site, which has to hear of what is acknowledged.
    pub(crate) fn pair_up(&mut self, paired: bool) -> io::Result<()> {
        let Some(hold) = &mut self.hold else {
            return Ok(());
        };
        hold.set(paired)?;
        if !paired {
            for change in hold.pending.all() {
                hold.apply(change)?;
            }
            for known in self.lines.all.values() {
                let free = Known {
                    free: true,
                    ..*known
                };
                hold.acknowledge(&free)?;
            }
        }
        Ok(())
    }

    /// This site's program stands, and another site joins: what has come for each connection of a process and was not read. That site
    /// gets it, so it may be acknowledged; nothing is behind it.
    pub(crate) fn give_unread(
        &mut self,
        process: u64,
        pid: i32,
    ) -> io::Result<HashMap<i32, Vec<u8>>> {
        let mut all = HashMap::new();
        let Some(hold) = &self.hold else {
            return Ok(all);
        };
        hold.set(true)?;
        for ((table, fd), connection) in &self.lines.at {
            let known = self.lines.all.get_mut(connection);
            let Some(known) = known.filter(|known| !known.free && *table == process) else {
                continue;
            };
            let Some(connection) = Connection::of(pid, *fd) else {
                continue;
            };
            let unread = connection.waiting()?;
            let len = u32::try_from(unread.len()).map_err(io::Error::other)?;
            known.given = known.next.wrapping_add(len);
            hold.limits.set(&key(&known.line), &limit(known))?;
            all.insert(*fd, unread);
        }
        let listed: Vec<Unread> = all
            .iter()
            .map(|(fd, bytes)| (*fd, Some(bytes.clone())))
            .collect();
        if has_room(&listed) {
            return Ok(all);
        }
        Err(io::Error::other(
            "clients have sent more that was not read than the other site has room for",
        ))
    }

    pub(crate) fn follow(&mut self, (table, strand): (u64, u64), step: &Step) -> io::Result<()> {
        if step.flows().contains(&Flow::Handed) {
            self.let_go()?;
        }
        let changes = self.lines.follow(table, strand, step);
        self.take((strand, step.seq()), changes);
        Ok(())
    }

    /// The other site has done all of this strand up to this event, or there is none.
    pub(crate) fn done(&mut self, strand: u64, event: u64) -> io::Result<()> {
        let Some(hold) = &mut self.hold else {
            return Ok(());
        };
        for change in hold.pending.done(strand, event) {
            hold.apply(change)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
