//! Segments of System V that have a key or a number of their own (shmget(2), shmctl(2)).
//!
//! Invariant: a segment that is made here is removed again when its value is dropped, unless it was kept.
//!
//! Not covered: what is in one: [`crate::shared::Shared::attach`].

#![allow(unsafe_code, reason = "shmget(2) and shmctl(2) have no other way in")]

use std::io;

use crate::ipc::{Made, RIGHTS, checked};

/// The bits of shmctl(2) beside rights.
const SHM_DEST: u32 = 0o1000;

/// What the kernel tells of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// 0: IPC_PRIVATE, or it is removed.
    pub key: i32,
    pub bytes: u64,
    /// User and group.
    pub owner: (u32, u32),
    pub rights: u32,
    /// It goes with the last process that has it.
    pub is_removed: bool,
    pub attached: u64,
    /// Somebody has had it attached.
    pub was_attached: bool,
    /// The process that has made it.
    pub creator: i32,
}

fn stat(id: i32) -> io::Result<libc::shmid_ds> {
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut about: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: `about` is writable for one structure.
    checked(unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut about) })?;
    Ok(about)
}

/// What the kernel tells of this one.
///
/// # Errors
/// As shmctl(2).
pub fn about(id: i32) -> io::Result<About> {
    let about = stat(id)?;
    let mode = u32::from(about.shm_perm.mode);
    Ok(About {
        key: about.shm_perm.__key,
        bytes: about.shm_segsz as u64,
        owner: (about.shm_perm.uid, about.shm_perm.gid),
        rights: mode & RIGHTS,
        is_removed: mode & SHM_DEST != 0,
        attached: about.shm_nattch,
        was_attached: about.shm_atime != 0,
        creator: about.shm_cpid,
    })
}

fn get(key: i32, bytes: usize, flags: i32) -> io::Result<i32> {
    // SAFETY: numbers only.
    checked(unsafe { libc::shmget(key, bytes, flags) })
}

/// The one of this key.
///
/// # Errors
/// As shmget(2).
pub fn of_key(key: i32) -> io::Result<i32> {
    get(key, 0, 0)
}

/// Gives one to a user and group.
///
/// # Errors
/// As shmctl(2).
pub fn give_to(id: i32, (uid, gid): (u32, u32)) -> io::Result<()> {
    let mut about = stat(id)?;
    if (about.shm_perm.uid, about.shm_perm.gid) == (uid, gid) {
        return Ok(());
    }
    about.shm_perm.uid = uid;
    about.shm_perm.gid = gid;
    // SAFETY: `about` is a whole structure that the kernel filled in.
    checked(unsafe { libc::shmctl(id, libc::IPC_SET, &raw mut about) }).map(drop)
}

/// Removes one: it goes with the last process that has it attached.
///
/// # Errors
/// As shmctl(2).
pub fn remove(id: i32) -> io::Result<()> {
    // SAFETY: IPC_RMID takes no structure.
    checked(unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) }).map(drop)
}

/// A segment of zeros that nobody has attached; key 0: IPC_PRIVATE.
///
/// # Errors
/// As shmget(2) and shmctl(2): EEXIST if there is one by that key.
pub fn made(key: i32, bytes: usize, owner: (u32, u32), rights: u32) -> io::Result<Made> {
    let rights = (rights & RIGHTS).cast_signed();
    let id = get(key, bytes, libc::IPC_CREAT | libc::IPC_EXCL | rights)?;
    let made = Made::removed_by(remove, id);
    give_to(id, owner)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;

    fn own() -> (u32, u32) {
        let pid = i32::try_from(std::process::id()).expect("a number");
        crate::procfs::effective_ids(pid).expect("procfs tells")
    }

    /// No two tests of this machine.
    fn key(of: u32) -> i32 {
        (std::process::id() << 8 | of).cast_signed()
    }

    #[test]
    fn a_segment_goes_with_its_value_unless_it_is_kept() {
        let segment = made(key(1), 5000, own(), 0o600).expect("it is new");
        let told = about(segment.id()).expect("it is there");
        assert_eq!((told.key, told.bytes, told.owner), (key(1), 5000, own()));
        assert_eq!(
            (told.rights, told.is_removed, told.attached),
            (0o600, false, 0)
        );
        assert_eq!(of_key(key(1)).ok(), Some(segment.id()));
        let again = made(key(1), 5000, own(), 0o600);
        let errno = again.expect_err("there is one").raw_os_error();
        assert_eq!(errno, Some(libc::EEXIST));
        drop(segment);
        assert!(of_key(key(1)).is_err());

        let mut kept = made(key(2), 10, own(), 0o600).expect("it is new");
        kept.keep();
        let id = kept.id();
        drop(kept);
        assert!(about(id).is_ok());
        remove(id).expect("it was there");
        assert!(about(id).is_err());
    }

    #[test]
    fn what_is_written_to_a_segment_others_read() {
        let segment = made(0, 5000, own(), 0o600).expect("it is new");
        let one = Shared::attach(segment.id(), 5000).expect("it is attached");
        one.write(4090, b"shared");
        assert_eq!(about(segment.id()).expect("it is there").attached, 1);
        remove(segment.id()).expect("it is there");
        assert!(about(segment.id()).expect("it is attached").is_removed);
        let other = Shared::attach(segment.id(), 5000).expect("by its number");
        let mut read = [0; 6];
        other.read(4090, &mut read);
        assert_eq!(&read, b"shared");
    }
}
