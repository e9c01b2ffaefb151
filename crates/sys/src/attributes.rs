//! Extended attributes of a name, links not followed. See xattr(7), listxattr(2), getxattr(2).

#![allow(
    unsafe_code,
    reason = "listxattr(2) and its kind take and store through pointers"
)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the kernel gives at most, names and values alike (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX` of linux/limits.h).
const BYTES_MAX: usize = 1 << 16;

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

fn length(rc: isize) -> io::Result<usize> {
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}

/// Its attributes that the caller may see, by name. None where the file system has no attributes.
///
/// # Errors
/// As listxattr(2) and getxattr(2).
pub fn list(path: &Path) -> io::Result<Vec<(CString, Vec<u8>)>> {
    let path = c_path(path)?;
    let mut buffer = vec![0_u8; BYTES_MAX];
    // SAFETY: the path ends with a zero, and the kernel stores at most `len` bytes.
    let rc = unsafe { libc::llistxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let names = match length(rc) {
        Ok(length) => buffer[..length].to_vec(),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        // SAFETY: path and name end with a zero, and the kernel stores at most `len` bytes.
        let rc = unsafe {
            libc::lgetxattr(
                path.as_ptr(),
                name.as_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        };
        match length(rc) {
            Ok(length) => all.push((name.to_owned(), buffer[..length].to_vec())),
            // It was removed since it was listed.
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => {}
            Err(error) => return Err(error),
        }
    }
    all.sort();
    Ok(all)
}

/// Gives a name an attribute, or another value of it.
///
/// # Errors
/// As setxattr(2).
pub fn set(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: path and name end with a zero, and the kernel reads `len` bytes of the value.
    let rc = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    (rc == 0).then_some(()).ok_or_else(io::Error::last_os_error)
}

/// Takes an attribute away, if it is there.
///
/// # Errors
/// As removexattr(2).
pub fn remove(path: &Path, name: &CStr) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: path and name end with a zero.
    let rc = unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) };
    let error = io::Error::last_os_error();
    if rc == 0 || error.raw_os_error() == Some(libc::ENODATA) {
        return Ok(());
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_set_is_listed_until_it_is_removed() {
        let path = format!("steadfast-attributes-{}", std::process::id());
        let path = std::env::temp_dir().join(path);
        std::fs::write(&path, "x").expect("a file");
        let ours = |path: &std::path::Path| {
            let mut all = super::list(path).expect("listed");
            all.retain(|(name, _)| name.as_bytes().starts_with(b"user."));
            all
        };
        assert_eq!(ours(&path), []);
        super::set(&path, c"user.b", b"").expect("user attributes");
        super::set(&path, c"user.a", b"\0one").expect("user attributes");
        let right = [
            (c"user.a".to_owned(), b"\0one".to_vec()),
            (c"user.b".to_owned(), Vec::new()),
        ];
        assert_eq!(ours(&path), right);
        super::remove(&path, c"user.b").expect("it is there");
        super::remove(&path, c"user.b").expect("it is gone");
        assert_eq!(ours(&path), right[..1]);
        std::fs::remove_file(path).expect("clean");
    }
}
