//! Requests: what a leader asks of its launcher while it makes a call: patches for new code, children, shared files.
//!
//! Not covered: `exec` (exec.rs).

use std::cell::Cell;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use steadfast_digest as digest;
use steadfast_sys::{procfs, signals};

use super::{Supervisor, bare, tree};
use crate::group::at;
use crate::modules::{Prepared, protection_at};
use crate::segments::Asks;
use crate::{LaunchError, Step, abi, held};

impl Supervisor<'_> {
    /// Answers the leader, which waits for it.
    pub(crate) fn answer_request(&mut self) {
        let (request, arg) = match self.group.question() {
            None => return,
            Some(Ok((abi::RPC_STAY, _))) => match self.on_its_way.take() {
                Some(child) => {
                    child.stays();
                    return self.group.answer(0);
                }
                None => return self.let_stay(),
            },
            Some(Ok(question)) => question,
            Some(Err(())) => return self.group.answer(abi::RPC_STRUCK),
        };
        // Its parent is dying, and it dies with that: the next leader asks for a child of its own.
        if request == abi::RPC_SPAWN && self.is_going(0) {
            return;
        }
        let ret = match request {
            abi::RPC_PATCH => {
                let plan = self.plan_patches(
                    arg[0]..arg[0].saturating_add(arg[1]),
                    arg[2].cast_signed(),
                    arg[3],
                );
                self.give(&plan, arg[4])
            }
            abi::RPC_SITE => {
                let plan = self.plan_site(arg[0]);
                self.give(&plan, arg[4])
            }
            abi::RPC_HOLD => match self.held.hold(self.replicas[0].pid, arg[0], arg[1], arg[2]) {
                Ok(number) => i64::from(number),
                Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            abi::RPC_EXEC => self.let_exec(arg[0], arg[2], arg[3]),
            abi::RPC_SPAWN => self.let_spawn(arg),
            abi::RPC_FORK => self.let_fork(),
            abi::RPC_UNFORK => {
                if let Some(asked) = self
                    .asked
                    .take()
                    .filter(|asked| u64::try_from(asked.number()) == Ok(arg[0]))
                {
                    asked.forget();
                }
                0
            }
            abi::RPC_MADE => {
                let key = (arg[0], arg[1]);
                let segments = &self.hearing.tree.segments;
                match arg[2] {
                    abi::MADE_MEMORY => segments.made_memory(key),
                    abi::MADE_HANDED_ON => segments.handed_on(key),
                    _ => segments.made(key),
                }
                0
            }
            abi::RPC_OTHERS => self.held.others_view((arg[0], arg[1])),
            abi::RPC_LIVES => i64::from(self.hearing.tree.has(arg[0])),
            abi::RPC_KILL => {
                let target = arg[0].cast_signed();
                self.hearing.tree.condemn(target, self.replicas[0].pid);
                0
            }
            abi::RPC_NAMED => self.hearing.tree.led_by_another(arg[0]),
            abi::RPC_PARENT => self.hearing.tree.parent_of(self.hearing.post()),
            abi::RPC_LATE => i64::from(self.is_heard_later(arg)),
            abi::RPC_SEGMENT => match self.let_share(arg) {
                Ok(sum) => sum,
                Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            abi::RPC_COPIES => match self.let_write(arg) {
                Ok(sum) => sum,
                Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            abi::RPC_DROP => {
                self.held.drop(arg[0]);
                0
            }
            _ => -i64::from(libc::ENOSYS),
        };
        self.group.answer(ret);
    }

    /// A signal has come to a leader that was dead. Whether it is made again, and so gets it.
    fn is_heard_later(&self, [pid, signal, code, value, _]: [u64; 5]) -> bool {
        let (Ok(pid), Ok(signal)) = (i32::try_from(pid), i32::try_from(signal)) else {
            return false;
        };
        let sender = self.replicas[0].pid;
        let taken = signals::Taken {
            signal,
            code: i32::try_from(code.cast_signed()).unwrap_or(libc::SI_USER),
            pid: self.group.get32(at!(leader_pid)).cast_signed(),
            uid: procfs::effective_ids(sender).map_or(0, |ids| ids.0),
            value,
        };
        self.hearing.tree.tell_later(pid, taken)
    }

    /// A file is mapped shared: 0, if as a view, [`abi::SEGMENT_OWN`] if one of a file that this tree has made,
    /// [`abi::SEGMENT_NAMELESS`], or the sum of its length and its copies' numbers.
    pub(super) fn let_share(&self, arg: [u64; 5]) -> std::io::Result<i64> {
        let [fd, dev, ino, domain, end] = arg;
        let file = if end & abi::SEGMENT_HELD == 0 {
            held::meant(self.replicas[0].pid, fd, (dev, ino))?.0
        } else {
            self.held.file(fd)?
        };
        let about = file.metadata()?;
        let key = (about.dev(), about.ino());
        if end & abi::SEGMENT_HELD != 0 {
            self.hearing.tree.segments.handed_on(key);
            if about.nlink() == 0 && !self.hearing.tree.segments.is_memory(key) {
                return Ok(abi::SEGMENT_NAMELESS);
            }
        }
        let pages = u32::try_from(about.len().div_ceil(4096)).map_err(std::io::Error::other)?;
        let tree = &self.hearing.tree;
        let asks = Asks {
            group: self.held.group(),
            domain,
            end: end & !(abi::SEGMENT_NOW | abi::SEGMENT_HELD),
            in_company: end & abi::SEGMENT_NOW != 0 || self.is_child() || tree.has_children(),
            followers: self.replicas.len() - 1,
        };
        let Some(numbers) = tree.segments.map(file, &asks)? else {
            if tree.segments.is_own(key) {
                return Ok(abi::SEGMENT_OWN);
            }
            if end & abi::SEGMENT_HELD != 0 {
                tree.segments.in_turns(key);
            }
            return Ok(0);
        };
        Ok(self.give_copies(pages, &numbers))
    }

    /// A file of a tmpfs is written to: 0, or, where processes share it as memory, as [`Self::let_share`].
    pub(super) fn let_write(&self, [_, dev, ino, domain, _]: [u64; 5]) -> std::io::Result<i64> {
        let segments = &self.hearing.tree.segments;
        let Some((len, numbers)) = segments.copies((dev, ino), domain)? else {
            return Ok(0);
        };
        let pages = u32::try_from(len.div_ceil(4096)).map_err(std::io::Error::other)?;
        Ok(self.give_copies(pages, &numbers))
    }

    /// Puts a file's length and the numbers of its copies where the leader takes them; their sum.
    fn give_copies(&self, pages: u32, numbers: &[i32]) -> i64 {
        let mut bytes = [0; 4 * abi::SLOTS_MAX];
        bytes[..4].copy_from_slice(&pages.to_le_bytes());
        for (at, number) in bytes.chunks_exact_mut(4).skip(1).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        self.group.memory.write(at!(segment_ids), &bytes);
        abi::SEGMENT_SUM | i64::from(digest::crc32c(&bytes))
    }

    /// The child that stands in for the leader is about to become another program, of this path in this directory: 0,
    /// [`abi::EXEC_BARE`], or the number that refuses it.
    pub(super) fn let_spawn(&mut self, [mask, pid, path, dir, parent_death]: [u64; 5]) -> i64 {
        let pid = i32::try_from(pid).unwrap_or(0);
        if pid <= 1 || !procfs::descends(pid, self.replicas[0].pid) || self.post_reaper().is_err() {
            return abi::NR_EXEC_TRACE.into();
        }
        self.hearing.tree.segments.all_handed_on();
        let bare = bare::named(self.plan, pid, path, dir);
        let parent_death = u32::try_from(parent_death).unwrap_or(0);
        let answer = if bare.is_some() { abi::EXEC_BARE } else { 0 };
        let (tree, parent) = (&self.hearing.tree, self.hearing.post());
        let event = self.group.get64(at!(own 0, next));
        match tree::by_exec(tree, parent, pid, mask, parent_death, bare, event) {
            Ok(child) => {
                self.on_its_way = Some(child);
                answer
            }
            Err(number) => number.into(),
        }
    }

    /// The replicas are about to copy themselves: the descriptor of their copies' memory, or an errno.
    pub(super) fn let_fork(&mut self) -> i64 {
        if self.post_reaper().is_err() {
            return -i64::from(libc::EAGAIN);
        }
        let fixed = self.agent_fixed.len() as u64;
        let mut modules = self.modules.copy();
        let rank = self.hearing.tree.next_rank();
        self.hearing.tree.segments.all_handed_on();
        match self.modules.flips.of_copy(self.plan, rank) {
            Ok(flips) => modules.flips = flips,
            Err(_) => return -i64::from(libc::EAGAIN),
        }
        match tree::by_fork(self.hearing, &self.group, self.acting(), modules, fixed) {
            Ok(asked) => {
                let number = asked.number();
                self.asked = Some(asked);
                number.into()
            }
            Err(_) => -i64::from(libc::EAGAIN),
        }
    }

    /// A copy of a replica that could not attach the memory of its own group has said so in this one's.
    pub(super) fn copies_have_memory(&self) -> Result<(), LaunchError> {
        let errno = i32::try_from(self.group.get64(at!(unmapped)) >> 32).unwrap_or(0);
        if errno == 0 {
            return Ok(());
        }
        Err(LaunchError::Step {
            step: Step::Attach,
            source: std::io::Error::from_raw_os_error(errno),
        })
    }

    /// The child that was on its way has gone it.
    pub(crate) fn forget_child(&mut self) {
        self.on_its_way = None;
    }

    pub(super) fn post_reaper(&self) -> std::io::Result<()> {
        if self.is_child() {
            Ok(())
        } else {
            self.hearing.tree.post_reaper()
        }
    }

    /// Writes a plan to the payload; its length.
    pub(super) fn give(&self, answer: &[u8], out: u64) -> i64 {
        let Ok(out) = usize::try_from(out) else {
            return 0;
        };
        if out.saturating_add(answer.len()) > abi::PAYLOAD_BYTES {
            return 0;
        }
        self.group.memory.write(abi::OFF_PAYLOAD + out, answer);
        i64::try_from(answer.len()).expect("bounded by the payload")
    }

    pub(super) fn plan_site(&mut self, addr: u64) -> Vec<u8> {
        let Ok(maps) = procfs::maps(self.replicas[0].pid) else {
            return Vec::new();
        };
        let protection = protection_at(&maps, addr);
        let mut taken: Vec<_> = maps.into_iter().map(|m| m.range).collect();
        taken.push(abi::BASE..abi::AGENT_END);
        self.modules
            .add_site(addr, &taken)
            .map_or_else(Vec::new, |prepared| prepared.encode(protection))
    }

    pub(super) fn plan_patches(&mut self, region: Range<u64>, fd: i64, offset: u64) -> Vec<u8> {
        let leader = self.replicas[0].pid;
        let open_as = std::path::PathBuf::from(format!("/proc/{leader}/fd/{fd}"));
        let name = std::fs::read_link(&open_as).unwrap_or_default();
        let start = region.start;
        // Only those are asked for them that have something to be patched.
        let protection = Cell::new(0);
        let taken = || {
            let maps = procfs::maps(leader).ok()?;
            protection.set(protection_at(&maps, start));
            let mut taken: Vec<_> = maps.into_iter().map(|m| m.range).collect();
            taken.push(abi::BASE..abi::AGENT_END);
            Some(taken)
        };
        let prepared = self
            .modules
            .add(&name, &open_as, region.clone(), offset, taken)
            .unwrap_or_else(|| Prepared::unknown(&region));
        self.modules.flips.write(&self.group.memory);
        if prepared.is_nothing() {
            return Vec::new();
        }
        prepared.encode(protection.get())
    }
}
