//! The envelope of one DNS message: an EDNS option (RFC 6891, section 6.1.2) that is its last bytes.
//!
//! ```text
//! ... | OPT record, the last one: 0, 41, size, flags, length | options | 65319 | 8 | serial | crc |
//! crc = CRC32C(everything before it), the lengths and counts that mention the option included
//! ```
//!
//! Because the checksum is the last field, it covers the message up to itself. A reply repeats
//! the serial of its query; whether it is a query or a reply says the header's QR bit, which is
//! under the checksum like everything else. All numbers are in network order.
//!
//! Not covered: DNS over TCP, and messages that are signed as a whole (TSIG must be the last
//! record, and so must this).

use super::{Damage, crc};

/// From the range for local and experimental use (65001 to 65534).
pub const OPTION: u16 = 65_319;

/// Option code, option length, serial, checksum.
pub const OPTION_BYTES: usize = OPTION_LENGTH as usize;

const OPTION_LENGTH: u16 = 12;

const TYPE_OPT: u16 = 41;
const HEADER: usize = 12;
const ADDITIONAL_COUNT: usize = 10;

/// A message that carried the envelope and is sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub serial: u32,
    /// The message without the option; its OPT record stays.
    pub message: Vec<u8>,
}

/// Appends the option to a message, and an OPT record that announces `size` if it has none.
///
/// # Errors
/// When the message is not well formed, or another record stands behind its OPT record.
pub fn seal(message: &[u8], serial: u32, size: u16) -> Result<Vec<u8>, Damage> {
    let mut out = message.to_vec();
    let record = match find_opt(message)? {
        Some(found) if found.end == message.len() => found.start,
        Some(_) => return Err(Damage::Malformed),
        None => {
            out.push(0);
            for word in [TYPE_OPT, size, 0, 0, 0] {
                out.extend_from_slice(&word.to_be_bytes());
            }
            let count = u16_at(&out, ADDITIONAL_COUNT).ok_or(Damage::Malformed)?;
            put_u16(
                &mut out,
                ADDITIONAL_COUNT,
                count.checked_add(1).ok_or(Damage::Malformed)?,
            );
            message.len()
        }
    };
    let length = u16_at(&out, record + 9).ok_or(Damage::Malformed)?;
    let length = length.checked_add(OPTION_LENGTH).ok_or(Damage::Malformed)?;
    put_u16(&mut out, record + 9, length);
    out.extend_from_slice(&OPTION.to_be_bytes());
    out.extend_from_slice(&8_u16.to_be_bytes());
    out.extend_from_slice(&serial.to_be_bytes());
    out.extend_from_slice(&crc::crc32c(&out).to_be_bytes());
    Ok(out)
}

/// Checks a message; `None` means that it carries no envelope.
///
/// # Errors
/// When it is not well formed or its checksum is wrong.
pub fn open(message: &[u8]) -> Result<Option<Opened>, Damage> {
    let Some(opt) = find_opt(message)? else {
        return Ok(None);
    };
    let Some(at) = opt.option else {
        return Ok(None);
    };
    if opt.end != message.len() || at + OPTION_BYTES != message.len() {
        return Err(Damage::Malformed);
    }
    let (covered, last) = message.split_last_chunk::<4>().ok_or(Damage::Malformed)?;
    let (computed, found) = (crc::crc32c(covered), u32::from_be_bytes(*last));
    if computed != found {
        return Err(Damage::Checksum { computed, found });
    }
    let serial = covered.last_chunk::<4>().ok_or(Damage::Malformed)?;
    let mut bare = message[..at].to_vec();
    let length = u16_at(message, opt.start + 9).ok_or(Damage::Malformed)?;
    put_u16(&mut bare, opt.start + 9, length - OPTION_LENGTH);
    Ok(Some(Opened {
        serial: u32::from_be_bytes(*serial),
        message: bare,
    }))
}

/// Where an OPT record lies, and our option in it.
struct Opt {
    start: usize,
    end: usize,
    option: Option<usize>,
}

/// Walks over all records.
fn find_opt(message: &[u8]) -> Result<Option<Opt>, Damage> {
    walk(message).ok_or(Damage::Malformed)
}

fn walk(message: &[u8]) -> Option<Option<Opt>> {
    message.get(..HEADER)?;
    let count = |at| u16_at(message, at);
    let mut at = HEADER;
    for _ in 0..count(4)? {
        at = skip_name(message, at)? + 4;
    }
    let records = u32::from(count(6)?) + u32::from(count(8)?) + u32::from(count(10)?);
    let mut opt = None;
    for _ in 0..records {
        let start = at;
        let name_end = skip_name(message, start)?;
        let kind = u16_at(message, name_end)?;
        let data = name_end + 10;
        let end = data + usize::from(u16_at(message, name_end + 8)?);
        message.get(..end)?;
        if kind == TYPE_OPT && name_end == start + 1 {
            opt = Some(Opt {
                start,
                end,
                option: find_option(message.get(data..end)?)?.map(|offset| data + offset),
            });
        }
        at = end;
    }
    Some(opt)
}

fn find_option(data: &[u8]) -> Option<Option<usize>> {
    let mut at = 0;
    let mut found = None;
    while at < data.len() {
        let code = u16_at(data, at)?;
        let length = usize::from(u16_at(data, at + 2)?);
        if code == OPTION {
            // A wrong length within the option is damage, not another option.
            (length + 4 == OPTION_BYTES).then_some(())?;
            found = Some(at);
        }
        at += 4 + length;
    }
    (at == data.len()).then_some(found)
}

/// Where a name ends: labels, and a pointer (two bytes) at most at its end.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(*length),
            192..=255 => return Some(at + 2),
            64..=191 => return None,
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
