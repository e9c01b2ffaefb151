//! Sets of semaphores and queues of messages of System V (svipc(7)).
//!
//! Invariant: what is made here is removed again when its value is dropped, unless it was kept.
//!
//! Not covered: segments, but for their end: [`crate::segment`].

#![allow(unsafe_code, reason = "semctl(2) and msgctl(2) have no other way in")]

use std::io;

pub(crate) const RIGHTS: u32 = 0o777;
/// A message stays in its queue (Linux 3.8, CONFIG_CHECKPOINT_RESTORE).
const MSG_COPY: i32 = 0o40000;
/// The largest that a semaphore may be (semop(2), SEMVMX).
pub const VALUE_MAX: u16 = 32767;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Set,
    Queue,
}

/// What the kernel tells of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// 0: IPC_PRIVATE.
    pub key: i32,
    /// User and group.
    pub owner: (u32, u32),
    pub rights: u32,
    /// Of a set: its semaphores. Of a queue: its messages.
    pub count: usize,
    /// Of a queue: bytes that it may hold.
    pub room: u64,
}

/// struct semid64_ds is 104 bytes, struct msqid64_ds 120; both begin with struct ipc64_perm, which is 48.
type Words = [u64; 16];

fn control(kind: Kind, id: i32, command: i32, words: &mut Words) -> io::Result<()> {
    let at = words.as_mut_ptr();
    let done = match kind {
        // SAFETY: the kernel reads and writes one structure at most, which fits into `words`.
        Kind::Set => unsafe { libc::semctl(id, 0, command, at) },
        // SAFETY: the same.
        Kind::Queue => unsafe { libc::msgctl(id, command, at.cast()) },
    };
    checked(done).map(drop)
}

pub(crate) fn checked(done: i32) -> io::Result<i32> {
    match done {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).expect("half a word")
}

/// What the kernel tells of this one.
///
/// # Errors
/// As semctl(2) and msgctl(2).
pub fn about(kind: Kind, id: i32) -> io::Result<About> {
    let mut words = [0; 16];
    control(kind, id, libc::IPC_STAT, &mut words)?;
    let is_queue = kind == Kind::Queue;
    Ok(About {
        key: low(words[0]).cast_signed(),
        owner: (low(words[0] >> 32), low(words[1])),
        rights: low(words[2] >> 32) & RIGHTS,
        count: usize::try_from(words[10]).map_err(io::Error::other)?,
        room: if is_queue { words[11] } else { 0 },
    })
}

/// Removes one.
///
/// # Errors
/// As semctl(2) and msgctl(2).
pub fn remove(kind: Kind, id: i32) -> io::Result<()> {
    control(kind, id, libc::IPC_RMID, &mut [0; 16])
}

/// The values of a set's semaphores.
///
/// # Errors
/// As semctl(2).
pub fn values(id: i32) -> io::Result<Vec<u16>> {
    let mut values = vec![0_u16; about(Kind::Set, id)?.count];
    // SAFETY: the kernel writes one value for each semaphore, and there are as many as it has said: a set keeps its size.
    checked(unsafe { libc::semctl(id, 0, libc::GETALL, values.as_mut_ptr()) })?;
    Ok(values)
}

/// Adds to one of a set's semaphores, without waiting.
///
/// # Errors
/// As semop(2): EAGAIN where it would come below 0.
pub fn add(id: i32, which: u16, by: i16) -> io::Result<()> {
    let flags = i16::try_from(libc::IPC_NOWAIT).expect("a small number");
    let mut operation = libc::sembuf {
        sem_num: which,
        sem_op: by,
        sem_flg: flags,
    };
    // SAFETY: one operation is read.
    checked(unsafe { libc::semop(id, &raw mut operation, 1) }).map(drop)
}

/// A message of a queue: its type and its bytes.
pub type Message = (i64, Vec<u8>);

/// The message at this place of a queue, where it stays.
///
/// # Errors
/// As msgrcv(2).
pub fn peek(id: i32, place: usize) -> io::Result<Message> {
    let place = i64::try_from(place).map_err(io::Error::other)?;
    let flags = MSG_COPY | libc::IPC_NOWAIT;
    let mut room = 8192;
    loop {
        let mut words = vec![0_u64; 1 + room / 8];
        // SAFETY: `words` has room for the type and for `room` bytes behind it.
        let got = unsafe { libc::msgrcv(id, words.as_mut_ptr().cast(), room, place, flags) };
        if let Ok(got) = usize::try_from(got) {
            let bytes = words[1..].iter().flat_map(|word| word.to_ne_bytes());
            return Ok((words[0].cast_signed(), bytes.take(got).collect()));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::E2BIG) || room > 1 << 30 {
            return Err(error);
        }
        room *= 4;
    }
}

/// A new set, queue or segment.
#[derive(Debug)]
pub struct Made {
    id: i32,
    remove: fn(i32) -> io::Result<()>,
    kept: bool,
}

impl Made {
    pub(crate) fn removed_by(remove: fn(i32) -> io::Result<()>, id: i32) -> Self {
        let kept = false;
        Self { id, remove, kept }
    }

    fn new(kind: Kind, id: i32, told: &About) -> io::Result<Self> {
        let made = match kind {
            Kind::Set => Self::removed_by(|id| remove(Kind::Set, id), id),
            Kind::Queue => Self::removed_by(|id| remove(Kind::Queue, id), id),
        };
        let mut words = [0; 16];
        control(kind, id, libc::IPC_STAT, &mut words)?;
        let (uid, gid) = told.owner;
        words[0] = words[0] & 0xffff_ffff | u64::from(uid) << 32;
        words[1] = words[1] & !0xffff_ffff | u64::from(gid);
        if kind == Kind::Queue {
            words[11] = told.room;
        }
        control(kind, id, libc::IPC_SET, &mut words)?;
        Ok(made)
    }

    /// A set with these values.
    ///
    /// # Errors
    /// As semget(2) and semctl(2): EEXIST if there is one by that key.
    pub fn set(told: &About, values: &[u16]) -> io::Result<Self> {
        let count = i32::try_from(values.len()).map_err(io::Error::other)?;
        // SAFETY: numbers only.
        let id = checked(unsafe { libc::semget(told.key, count, flags(told)) })?;
        let made = Self::new(Kind::Set, id, told)?;
        // SAFETY: the kernel reads one value for each semaphore, of which there are as many.
        checked(unsafe { libc::semctl(id, 0, libc::SETALL, values.as_ptr()) })?;
        Ok(made)
    }

    /// A queue with these messages.
    ///
    /// # Errors
    /// As msgget(2), msgctl(2) and msgsnd(2): EEXIST if there is one by that key.
    pub fn queue(told: &About, messages: &[Message]) -> io::Result<Self> {
        // SAFETY: numbers only.
        let id = checked(unsafe { libc::msgget(told.key, flags(told)) })?;
        let made = Self::new(Kind::Queue, id, told)?;
        for (kind, bytes) in messages {
            let mut message = kind.to_ne_bytes().to_vec();
            message.extend_from_slice(bytes);
            let at = message.as_ptr().cast();
            // SAFETY: the type stands before `bytes.len()` bytes.
            checked(unsafe { libc::msgsnd(id, at, bytes.len(), libc::IPC_NOWAIT) })?;
        }
        Ok(made)
    }

    #[must_use]
    pub fn id(&self) -> i32 {
        self.id
    }

    /// It stays when this value goes.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

fn flags(told: &About) -> i32 {
    libc::IPC_CREAT | libc::IPC_EXCL | (told.rights & RIGHTS).cast_signed()
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.kept {
            let _ = (self.remove)(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(of: u32) -> About {
        let pid = i32::try_from(std::process::id()).expect("a number");
        About {
            // No two tests of this machine.
            key: (std::process::id() << 8 | of).cast_signed(),
            owner: crate::procfs::effective_ids(pid).expect("procfs tells"),
            rights: 0o640,
            count: 3,
            room: 0,
        }
    }

    #[test]
    fn a_set_has_its_values_and_goes_unless_it_is_kept() {
        let told = told(1);
        let mut made = Made::set(&told, &[7, 0, VALUE_MAX]).expect("it is new");
        let id = made.id();
        assert_eq!(about(Kind::Set, id).expect("it is there"), told);
        add(id, 0, -7).expect("it had 7");
        let below = add(id, 0, -1).expect_err("it has 0").raw_os_error();
        assert_eq!(below, Some(libc::EAGAIN));
        assert_eq!(values(id).expect("it is there"), [0, 0, VALUE_MAX]);
        let again = Made::set(&told, &[1]).expect_err("there is one");
        assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
        made.keep();
        drop(made);
        remove(Kind::Set, id).expect("it was kept");
        assert!(about(Kind::Set, id).is_err());
    }

    #[test]
    fn a_queue_has_its_messages_in_order_and_they_stay() {
        let told = About {
            count: 2,
            room: 10_000,
            ..told(2)
        };
        let messages = [(5, b"first".to_vec()), (3, vec![9; 8000])];
        let made = Made::queue(&told, &messages).expect("it is new");
        let id = made.id();
        for _ in 0..2 {
            assert_eq!(about(Kind::Queue, id).expect("it is there"), told);
            let all = [0, 1].map(|place| peek(id, place).expect("it is there"));
            assert_eq!(all, messages);
        }
        assert!(peek(id, 2).is_err());
        drop(made);
        assert!(about(Kind::Queue, id).is_err());
    }
}
