//! Refusal: what the agent would not let happen, in words: requirement, what was found, and what to do about it.

use std::path::Path;

use steadfast_contract::event::{Refused, What};
use steadfast_contract::plan::StopReason;

use super::Supervisor;
use crate::abi;
use crate::group::at;

/// What helps where a note says nothing.
const OTHERWISE: &str = "run the program without steadfast, or report what needs this call";

impl Supervisor<'_> {
    pub(super) fn refused(&mut self) {
        let nr = self.group.get32(at!(end_nr));
        let detail = self.group.get64(at!(end_value));
        let steadfast_agent::Row { name, note } = steadfast_agent::command(nr, detail);
        let (why, fix) = note.split_once("; fix: ").unwrap_or((&note, OTHERWISE));
        let reason = match self.file_refused(nr, detail) {
            Some(found) => format!("{found}; {why}"),
            None => why.to_owned(),
        };
        let event = Refused {
            what: name,
            reason,
            event: Some(self.event(self.group.get64(at!(own 0, next)))),
            site: Some(self.modules.site(self.group.get64(at!(end_ip)))),
            fix: Some(fix.to_owned()),
        };
        self.emit(What::Refused(event));
        self.stop = Some(StopReason::Refused);
    }

    /// The file that cannot be shared, if it is one, and why: `SF_REFUSED_FILE` of the agent's abi.h.
    fn file_refused(&self, nr: u32, detail: u64) -> Option<String> {
        let [fd, errno] = [detail >> 32, detail & 0xffff_ffff];
        let whose = match nr {
            abi::NR_SPAWN_SHARED => "self".to_owned(),
            abi::NR_SHARED_NAMED => self.acting().to_string(),
            _ => return None,
        };
        let path = std::fs::read_link(format!("/proc/{whose}/fd/{fd}")).ok()?;
        let others = if nr == abi::NR_SPAWN_SHARED {
            self.held.foreign().saturating_sub(1)
        } else {
            0
        };
        Some(not_shared(&path, errno, others))
    }
}

fn not_shared(path: &Path, errno: u64, others: usize) -> String {
    let path = path.display();
    let more = match others {
        0 => String::new(),
        1 => " (as is another one)".to_owned(),
        n => format!(" (as {n} more are)"),
    };
    match i32::try_from(errno).unwrap_or(0) {
        0 => format!(
            "{path} is mapped shared and writable{more}, has a name, and is no file of /dev/shm that the program has made"
        ),
        libc::EBUSY => format!("{path} is mapped by another program of the tree, for itself"),
        libc::EXDEV => format!("{path} is shared by programs of another user"),
        libc::EFBIG => format!("{path} has another length than when it was mapped first"),
        errno => format!("{path}: {}", std::io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_named_with_what_is_in_the_way() {
        let path = Path::new("/var/lib/names.tdb");
        let by_name = not_shared(path, 0, 0);
        assert!(
            by_name.starts_with("/var/lib/names.tdb is mapped shared and writable, has a name")
        );
        assert!(not_shared(path, 0, 3).contains("writable (as 3 more are),"));
        let busy = u64::try_from(libc::EBUSY).expect("a number");
        assert!(not_shared(path, busy, 0).contains("another program of the tree"));
    }
}
