//! The test bed: which binary is tested, where files go, and the turns that groups take.
//!
//! Scratch files live below the directory for temporary files, in a tree that an ordinary user may traverse: the same
//! cases run as one. A case owns one directory there; it is removed when the case passes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use libtest_mimic::Arguments;

use crate::{left, trial};

/// What all cases share.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The command under test; nothing if only bare runs were asked for.
    binary: Option<PathBuf>,
    scratch: PathBuf,
    keep: bool,
}

static BENCH: OnceLock<Bench> = OnceLock::new();
/// Groups that may start now.
static GROUPS: Mutex<usize> = Mutex::new(GROUPS_MOST);
static ENDED: Condvar = Condvar::new();
/// A group starts on one core, and most guests end soon after: two of them take little longer than one.
const GROUPS_MOST: usize = 2;

impl Bench {
    /// Finds the binary and makes the scratch directory.
    pub(crate) fn prepare(arguments: &Arguments) -> Result<&'static Self, String> {
        let binary = match std::env::var("STEADFAST_BIN") {
            Ok(none) if none == "none" => None,
            Ok(path) => Some(PathBuf::from(path)),
            Err(_) => Some(workspace().join("target/release/steadfast")),
        };
        let binary = match binary {
            Some(path) if !arguments.list => Some(path.canonicalize().map_err(|error| {
                format!(
                    "tests: the command under test is missing: {} ({error})\n  fix:   make build\n  or:    STEADFAST_BIN=PATH, or STEADFAST_BIN=none to check the guests bare",
                    path.display()
                )
            })?),
            other => other,
        };
        left::adopt()?;
        // The pid keeps two runs of the suite apart; the name must not hold the product's, which `left` looks for.
        let scratch = std::env::temp_dir().join(format!("guests-{}", std::process::id()));
        fs::create_dir_all(&scratch)
            .and_then(|()| fs::set_permissions(&scratch, fs::Permissions::from_mode(0o755)))
            .map_err(|error| format!("tests: cannot make {}: {error}", scratch.display()))?;
        Ok(BENCH.get_or_init(|| Self {
            binary,
            scratch,
            keep: std::env::var_os("GUESTS_KEEP").is_some(),
        }))
    }

    /// The one that `prepare` made.
    pub(crate) fn get() -> &'static Self {
        BENCH.get().expect("prepared before any case runs")
    }

    pub(crate) const fn is_bare_only(&self) -> bool {
        self.binary.is_none()
    }

    /// The command under test. Cases that need it do not exist when it was not asked for.
    pub(crate) fn binary(&self) -> &Path {
        self.binary.as_deref().expect("not asked for in a bare run")
    }

    pub(crate) fn describe(&self) -> String {
        match &self.binary {
            Some(path) => format!("bare, then under {}", path.display()),
            None => {
                "bare only: nothing is protected, so nothing is tested but the guests".to_owned()
            }
        }
    }

    /// An empty directory for the case of this name.
    pub(crate) fn case_dir(&self, name: &str) -> PathBuf {
        let dir = self
            .scratch
            .join(name.replace(['/', ' '], "_").replace("::", "."));
        if dir.exists() {
            fs::remove_dir_all(&dir).expect("scratch of an earlier case with this name");
        }
        fs::create_dir_all(&dir).expect("scratch");
        dir
    }

    /// A folder for files that several cases and every user may execute.
    pub(crate) fn shared_folder(&self) -> Result<PathBuf, String> {
        let folder = self.scratch.join("bin");
        fs::create_dir_all(&folder)
            .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }

    /// Removes the directory of a case that passed.
    pub(crate) fn passed(&self, dir: &Path) {
        if !self.keep {
            // A guest may have taken away its own permissions; what stays is only a nuisance.
            let _ = fs::remove_dir_all(dir);
        }
    }

    /// Removes the scratch directory if nothing was kept in it.
    pub(crate) fn tidy(&self) {
        for shared in ["inputs", "bin"] {
            if !self.keep {
                let _ = fs::remove_dir_all(self.scratch.join(shared));
            }
        }
        let _ = fs::remove_dir(&self.scratch);
    }
}

/// Copies a file, with its mode. By a process of its own: a descriptor open for writing in this one would be inherited by
/// whatever another thread starts at that moment, and the copy could then not be executed (ETXTBSY).
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = Command::new("/bin/cp")
        .arg("--")
        .args([from, to])
        .status()
        .is_ok_and(|status| status.success());
    if copied {
        return Ok(());
    }
    Err(format!(
        "cannot copy {} to {}",
        from.display(),
        to.display()
    ))
}

/// Writes a file that will be executed, for the same reason by way of `copy`.
pub(crate) fn write_executable(path: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
    let draft = path.with_extension("draft");
    fs::write(&draft, bytes)
        .and_then(|()| fs::set_permissions(&draft, fs::Permissions::from_mode(mode)))
        .map_err(|error| format!("{}: {error}", draft.display()))?;
    copy(&draft, path)?;
    // cp creates with the umask applied.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .and_then(|()| fs::remove_file(&draft))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// A group's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(usize);

impl Turn {
    fn take(groups: usize) -> Self {
        let begun = Instant::now();
        let free = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = ENDED
            .wait_while(free, |free| *free < groups)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= groups;
        trial::waited_since(begun);
        Self(groups)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *GROUPS.lock().unwrap_or_else(PoisonError::into_inner) += self.0;
        ENDED.notify_all();
    }
}

/// While this is held no other group of replicas runs: for cases that say when something happens.
pub(crate) fn one_group() -> Turn {
    Turn::take(GROUPS_MOST)
}

/// While this is held a few groups run at most: for cases whose end is the same however long they take.
pub(crate) fn some_groups() -> Turn {
    Turn::take(1)
}

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_path_buf()
}
