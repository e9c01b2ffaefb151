//! Finding the program, as execvp(3) and env(1) do, without running it.
//!
//! Not covered: a text file without `#!`, which execvp would hand to a shell. The engine says so
//! when the kernel refuses it.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;

use crate::os;

/// Where execvp(3) looks when PATH is not set (`confstr(_CS_PATH)` in glibc).
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Why there is no program to run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    #[error("a program is needed, '{}' was not found in PATH", .program.display())]
    NotInPath { program: OsString, here: bool },
    #[error("a program is needed, '{}' does not exist", .program.display())]
    Missing { program: OsString },
    #[error("'{}' must be executable, it is a directory", .path.display())]
    Directory { path: PathBuf },
    #[error("'{}' must be executable by this user", .path.display())]
    Denied { path: PathBuf, source: io::Error },
    #[error("a program is needed, this user may not look whether there is a '{}'", .path.display())]
    Hidden { path: PathBuf, source: io::Error },
}

impl Advise for FindError {
    fn exit(&self) -> Own {
        match self {
            Self::NotInPath { .. } | Self::Missing { .. } => Own::NotFound,
            Self::Directory { .. } | Self::Denied { .. } | Self::Hidden { .. } => {
                Own::NotExecutable
            }
        }
    }

    fn fix(&self) -> Option<Remedy> {
        match self {
            Self::NotInPath {
                program,
                here: true,
            } => Some(Remedy::with_note(
                format!("./{}", program.display()),
                "the current directory is not in PATH",
            )),
            Self::NotInPath { .. } => {
                Some(Remedy::new("give the path of the program, or install it"))
            }
            Self::Denied { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some(Remedy::with_note(
                    format!("chmod +x {}", path.display()),
                    "if it is a program",
                ))
            }
            // execvp, and so env(1), reports this even when no other directory has the program.
            Self::Hidden { .. } => Some(Remedy::new(
                "a PATH of directories that this user may search",
            )),
            Self::Missing { .. } | Self::Directory { .. } | Self::Denied { .. } => None,
        }
    }
}

/// The file that running `program` would run, given the value of PATH.
pub(crate) fn find(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, FindError> {
    if program.as_bytes().contains(&b'/') {
        return direct(Path::new(program)).map(|()| program.into());
    }
    let mut denied = None;
    if !program.is_empty() {
        for directory in path
            .unwrap_or(OsStr::new(PATH_DEFAULT))
            .as_bytes()
            .split(|&byte| byte == b':')
        {
            // An empty entry is the current directory (execvp(3)).
            let directory = if directory.is_empty() {
                b"."
            } else {
                directory
            };
            let candidate = Path::new(OsStr::from_bytes(directory)).join(program);
            match direct(&candidate) {
                Ok(()) => return Ok(candidate),
                Err(FindError::Missing { .. }) => {}
                // execvp goes on looking, and says so only when nothing better turns up.
                Err(why) => denied = denied.or(Some(why)),
            }
        }
    }
    let here = !program.is_empty() && direct(&Path::new(".").join(program)).is_ok();
    Err(denied.unwrap_or(FindError::NotInPath {
        program: program.to_owned(),
        here,
    }))
}

fn direct(path: &Path) -> Result<(), FindError> {
    let missing = || FindError::Missing {
        program: path.as_os_str().to_owned(),
    };
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {
            return Err(FindError::Directory {
                path: path.to_owned(),
            });
        }
        Ok(_) => {}
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Err(missing());
        }
        Err(source) => {
            return Err(FindError::Hidden {
                path: path.to_owned(),
                source,
            });
        }
    }
    // Arguments of a process hold no NUL, so neither does a path made of them.
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| missing())?;
    os::may_execute(&name).map_err(|source| FindError::Denied {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(directory: &Path, name: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, "#!/bin/sh\n").expect("a scratch file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        path
    }

    #[test]
    fn looks_through_path_in_order_and_past_what_it_may_not_run() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let (first, second) = (scratch.path().join("a"), scratch.path().join("b"));
        fs::create_dir(&first).expect("a");
        fs::create_dir(&second).expect("b");
        let plain = file(&first, "tool", 0o644);
        let right = file(&second, "tool", 0o755);
        let path = std::env::join_paths([&first, &second]).expect("PATH");

        assert_eq!(find(OsStr::new("tool"), Some(&path)).expect("found"), right);
        let only_plain =
            find(OsStr::new("tool"), Some(first.as_os_str())).expect_err("not executable");
        assert_eq!(only_plain.exit(), Own::NotExecutable);
        assert_eq!(
            only_plain.fix().map(|fix| fix.what),
            Some(format!("chmod +x {}", plain.display()))
        );
        assert_eq!(
            find(OsStr::new("other"), Some(&path))
                .expect_err("missing")
                .exit(),
            Own::NotFound
        );
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        assert_eq!(
            find(OsStr::new("/bin/sh"), Some(OsStr::new(""))).expect("sh"),
            Path::new("/bin/sh")
        );
        for (program, own) in [
            ("/no/such", Own::NotFound),
            ("/etc/passwd/x", Own::NotFound),
            ("/etc", Own::NotExecutable),
            ("/etc/passwd", Own::NotExecutable),
            ("", Own::NotFound),
        ] {
            assert_eq!(
                find(OsStr::new(program), None).expect_err(program).exit(),
                own,
                "{program}"
            );
        }
    }

    #[test]
    fn without_path_the_default_of_the_c_library_holds() {
        assert!(
            find(OsStr::new("sh"), None)
                .expect("sh")
                .ends_with("bin/sh")
        );
    }
}
