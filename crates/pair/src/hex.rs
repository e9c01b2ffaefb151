//! Hexadecimal: bytes and digests in what is said as JSON.

use std::io;

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
}

pub(crate) fn unhex(text: &str) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not hexadecimal");
    text.as_bytes()
        .chunks(2)
        .map(|pair| {
            u8::from_str_radix(std::str::from_utf8(pair).map_err(|_| wrong())?, 16)
                .map_err(|_| wrong())
        })
        .collect()
}

pub(crate) fn digest_of(text: &str) -> io::Result<u128> {
    u128::from_str_radix(text, 16).map_err(io::Error::other)
}
