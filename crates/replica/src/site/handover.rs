//! Handover: the primary gives its program to the secondary, as somebody has asked.
//!
//! ```text
//!   pause ──► the other site has done the same events ──► connections fall silent ──► what nobody has read of them
//!         ──► the other site leads (site.rs, `lead`) ──► this program is ended, and nobody hears of it
//!         └─► go_on_paused, if it does not
//! ```
//!
//! Invariant: until the other site leads, everything can be taken back.

use std::time::{Duration, Instant};

use steadfast_sys::connection::{self, Connection};

use super::Site;
use crate::abi::{self, alarm, cmd};
use crate::group::at;

const ANSWER: Duration = Duration::from_secs(5);
/// A connection that is cut: its peer has said that no more will come, and the kernel has acknowledged that.
const CUT: u32 = u32::MAX;

/// What has come for a descriptor and was not read; nothing: it cannot be gone on with.
pub type Unread = (i32, Option<Vec<u8>>);

/// Connections that say nothing, until this ends, or for good.
#[derive(Debug)]
pub struct Silence(Vec<Connection>);

impl Silence {
    fn unread(&self) -> std::io::Result<Vec<Unread>> {
        let one = |connection: &Connection| Ok((connection.fd, connection.unread()?));
        let all: Vec<Unread> = self.0.iter().map(one).collect::<std::io::Result<_>>()?;
        if has_room(&all) {
            return Ok(all);
        }
        Err(std::io::Error::other(
            "clients have sent more that was not read than the other site has room for",
        ))
    }

    /// They speak again.
    pub fn end(self) {
        for connection in self.0 {
            let _ = connection.speak();
        }
    }
}

/// Whether the area that the agent reads it from holds it: eight bytes for each, its bytes, and eight at the end.
#[must_use]
pub fn has_room(all: &[Unread]) -> bool {
    let one = |(_, bytes): &Unread| 8 + bytes.as_ref().map_or(0, Vec::len).next_multiple_of(8);
    all.iter().map(one).sum::<usize>() + 8 <= abi::PAYLOAD_BYTES
}

/// As the agent takes it (storage.c, `input_of`).
pub(super) fn encode(all: &[Unread]) -> Vec<u8> {
    let mut out = Vec::new();
    for (fd, bytes) in all {
        let len = bytes.as_ref().map_or(CUT, |bytes| {
            u32::try_from(bytes.len()).expect("a receive buffer")
        });
        out.extend(fd.cast_unsigned().to_le_bytes());
        out.extend(len.to_le_bytes());
        out.extend(bytes.iter().flatten());
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out.extend([0xff; 8]);
    out
}

impl Site {
    /// Primary, paused: whether the other site could lead its program.
    ///
    /// # Errors
    /// What of it is this site's alone.
    pub fn may_be_led(&self) -> Result<(), String> {
        super::led(self.group().order(0, cmd::LEAD, 1, ANSWER))
    }

    /// Primary, paused at event `seq`: whether the other site has done all before it, in time.
    #[must_use]
    pub fn is_even(&self, seq: u64, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.group().get64(at!(own 1, done)) < seq {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Primary, paused: its connections fall silent. What has come and was not read. One that this site may not silence is
    /// left as it is, and lost.
    ///
    /// # Errors
    /// When they cannot be listed or read, or more was left unread than the other site has room for; they speak again.
    pub fn hush(&self) -> std::io::Result<(Silence, Vec<Unread>)> {
        let mut silent = connection::all(self.pid)?;
        silent.retain(|connection| connection.hush().is_ok());
        let silence = Silence(silent);
        match silence.unread() {
            Ok(unread) => Ok((silence, unread)),
            Err(error) => {
                silence.end();
                Err(error)
            }
        }
    }

    /// Primary, paused in the middle of a pair, or asked to: goes on as if nothing had been.
    ///
    /// # Errors
    /// When it does not.
    pub fn go_on_paused(&self) -> Result<(), String> {
        if self.stands_at().is_none() {
            self.pause_no_more();
            return Ok(());
        }
        self.group().withdraw(0);
        self.group().set32(at!(alarm), alarm::QUIET);
        match self.group().order(0, cmd::RESUME, 0, ANSWER) {
            Some(_) => Ok(()),
            None => Err("its program does not go on".into()),
        }
    }

    /// Secondary, whose program stands: what it is given to lead with.
    pub(super) fn put_unread(&self, all: &[Unread]) -> Result<(), String> {
        if !has_room(all) {
            return Err("more was left unread than there is room for".into());
        }
        self.group().memory.write(abi::OFF_PAYLOAD, &encode(all));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_bytes_stand_behind_their_number_and_length_and_a_cut_connection_has_none() {
        let bytes = encode(&[(5, Some(b"abc".to_vec())), (7, None)]);
        let right: Vec<u8> = [
            &5_u32.to_le_bytes()[..],
            &3_u32.to_le_bytes(),
            b"abc\0\0\0\0\0",
            &7_u32.to_le_bytes(),
            &CUT.to_le_bytes(),
            &[0xff; 8],
        ]
        .concat();
        assert_eq!(bytes, right);
    }

    #[test]
    fn more_than_the_area_holds_is_refused_before_it_is_handed_over() {
        assert!(has_room(&[(5, Some(vec![0; abi::PAYLOAD_BYTES - 16]))]));
        assert!(!has_room(&[(5, Some(vec![0; abi::PAYLOAD_BYTES - 15]))]));
    }
}
