//! The files that a target is given: as old as the caller's, and its own.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Copies what lies in a directory, with its times: a target that prints them says the same in each run.
/// Links that stay below `top` stay links.
pub(super) fn copy_tree(top: &Path, from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, place) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&place)?;
            copy_tree(top, &source, &place)?;
        } else if kind.is_symlink() && stays_below(top, &source) {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &place)?;
        } else {
            fs::copy(&source, &place)?;
            keep_time(fs::metadata(&source)?.modified()?, &place)?;
        }
    }
    keep_time(fs::metadata(from)?.modified()?, to)
}

fn stays_below(top: &Path, link: &Path) -> bool {
    fs::read_link(link).is_ok_and(|to| to.is_relative())
        && link.canonicalize().is_ok_and(|to| to.starts_with(top))
}

pub(super) fn keep_time(time: SystemTime, at: &Path) -> io::Result<()> {
    File::open(at)?.set_modified(time)
}

pub(super) fn own_tree(at: &Path, user: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(at, Some(user), Some(user))?;
    if fs::symlink_metadata(at)?.is_dir() {
        for entry in fs::read_dir(at)? {
            own_tree(&entry?.path(), user)?;
        }
    }
    Ok(())
}
