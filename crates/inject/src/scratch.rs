//! Directories below a place for temporary files, each held by the process that made it.
//!
//! Invariants
//!  1. A directory that somebody holds is never taken away by another, whatever its number says:
//!     a process of another pid namespace seems to be gone.
//!  2. What a killed process left goes when the next one makes or drops one at that place.
//!
//! Not covered: places that two machines share.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where targets run.
pub const RUNS: &str = "steadfast-inject";
/// Where a doctor's controls lie.
pub const DOCTOR: &str = "steadfast-doctor";

/// A directory of its own, which goes with the value.
#[derive(Debug)]
pub struct Scratch {
    base: PathBuf,
    path: PathBuf,
    /// Locked for as long as it is open, here and in the sandboxes that were forked meanwhile.
    _held: File,
}

impl Scratch {
    /// Makes `KIND-PID-NUMBER` below `base`, and sweeps what others left there.
    ///
    /// # Errors
    /// When it cannot be made or locked.
    pub fn make(base: &Path, kind: &str) -> io::Result<Self> {
        // One process may have several at a time.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        sweep(base);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{kind}-{}-{number}", std::process::id()));
        let held = hold(&path)?;
        Ok(Self {
            base: base.to_owned(),
            path,
            _held: held,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = remove_tree(&self.path);
        // Once more: sandboxes of a caller that was killed just before this one began were dying.
        sweep(&self.base);
    }
}

/// A directory that its holder alone fills. Whatever else has the file by inheritance, the lock goes with the value.
#[derive(Debug)]
pub(crate) struct Held(File);

impl Held {
    /// Nothing where another process holds it. A file system that knows no locks keeps nobody apart.
    pub(crate) fn alone(dir: &Path) -> io::Result<Option<Self>> {
        let file = File::open(dir)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Self(file))),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Makes a directory and locks it for as long as the file is open.
fn hold(dir: &Path) -> io::Result<File> {
    loop {
        fs::create_dir_all(dir)?;
        let file = match File::open(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        // Nobody else but a sweeper has it, for a moment.
        file.lock()?;
        // It may have been swept away between the two.
        let ours = file.metadata()?.ino();
        if fs::metadata(dir).is_ok_and(|now| now.ino() == ours) {
            return Ok(file);
        }
    }
}

/// The process that made a directory, by its name.
fn maker(name: &str) -> Option<&str> {
    let numbers = [RUNS, DOCTOR]
        .iter()
        .find_map(|kind| name.strip_prefix(kind)?.strip_prefix('-'))?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (pid, number) = numbers.split_once('-').unwrap_or((numbers, "0"));
    (digits(pid) && digits(number)).then_some(pid)
}

/// Takes away what callers left that were killed: a directory goes when its process is gone and
/// nobody holds it.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let gone = name
            .to_str()
            .and_then(maker)
            .is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if gone
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(held) = File::open(entry.path())
            && held.try_lock().is_ok()
        {
            let _ = remove_tree(&entry.path());
        }
    }
}

/// Takes a directory away with what is in it, as far as it belongs to this user: also what a faulty program has
/// closed to itself.
pub(crate) fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(dir)?;
            fs::remove_dir_all(dir)
        }
        removed => removed,
    }
}

fn open_up(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_swept_is_dead_and_not_held() {
        let place = tempfile::tempdir().expect("a directory");
        // No process has a number of ten digits, as none of another pid namespace seems to.
        let [held, left, control] = [
            "steadfast-inject-4000000001-0",
            "steadfast-inject-4000000002",
            "steadfast-doctor-4000000003-1",
        ]
        .map(|name| place.path().join(name));
        let others = ["steadfast-inject-models-4000000004", "steadfast-inject-"]
            .map(|name| place.path().join(name));
        let lock = hold(&held).expect("made");
        for dir in others.iter().chain([&left, &control]) {
            fs::create_dir(dir).expect("made");
        }
        sweep(place.path());
        assert!(held.exists() && !left.exists() && !control.exists());
        drop(lock);
        sweep(place.path());
        assert!(!held.exists() && others.iter().all(|dir| dir.exists()));
    }

    #[test]
    fn one_at_a_time_fills_a_directory() {
        let place = tempfile::tempdir().expect("a directory");
        let held = Held::alone(place.path()).expect("opened").expect("free");
        // A copy of the descriptor, as a process has that was forked meanwhile.
        let inherited = held.0.try_clone().expect("copied");
        assert!(Held::alone(place.path()).expect("opened").is_none());
        drop(held);
        assert!(Held::alone(place.path()).expect("opened").is_some());
        drop(inherited);
    }

    #[test]
    fn one_process_may_have_several_at_a_time() {
        let place = tempfile::tempdir().expect("a directory");
        let [one, two] = [RUNS, RUNS].map(|kind| Scratch::make(place.path(), kind).expect("made"));
        assert!(one.path() != two.path() && one.path().exists() && two.path().exists());
        drop((one, two));
        assert!(
            fs::read_dir(place.path())
                .expect("readable")
                .next()
                .is_none()
        );
    }
}
