//! Random bytes from the kernel, which needs no file for them.

#![allow(unsafe_code, reason = "getrandom(2) stores through a pointer")]

use std::io;

/// Fills `bytes`, at most 256, which the kernel gives at once or not at all.
///
/// # Errors
/// As getrandom(2).
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the kernel stores at most `len` bytes there.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(got) {
        Ok(got) if got == bytes.len() => Ok(()),
        Ok(got) => Err(io::Error::other(format!(
            "{got} of {} random bytes",
            bytes.len()
        ))),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_draws_differ() {
        let mut draws = [[0_u8; 16]; 2];
        for draw in &mut draws {
            super::fill(draw).expect("getrandom");
        }
        assert_ne!(draws[0], draws[1]);
    }
}
