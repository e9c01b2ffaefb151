//! The control block, with names for its fields and commands for its replicas.
//!
//! Every word of it may have been struck by a fault. Processes are signalled and waited for by
//! numbers that only this process holds; words that make the launcher act carry a complement or
//! a sum; what is used as an index or a length is checked where it is used.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use steadfast_sys::{futex, procfs, shared::Shared};

use steadfast_fault::ids::{CoreId, ReplicaId};

use crate::abi;

macro_rules! at {
    ($field:ident) => {
        std::mem::offset_of!($crate::abi::Group, $field)
    };
    (slot $index:expr, $field:ident) => {
        $crate::abi::slot($index) + std::mem::offset_of!($crate::abi::Slot, $field)
    };
    (own $index:expr, $field:ident) => {
        $crate::abi::slot($index)
            + std::mem::offset_of!($crate::abi::Slot, own)
            + std::mem::offset_of!($crate::abi::SlotOwn, $field)
    };
    (seen $index:expr, $field:ident) => {
        $crate::abi::slot($index)
            + std::mem::offset_of!($crate::abi::Slot, seen)
            + std::mem::offset_of!($crate::abi::SlotSeen, $field)
    };
    (wait $field:ident) => {
        std::mem::offset_of!($crate::abi::Group, wait)
            + std::mem::offset_of!($crate::abi::Sleepers, $field)
    };
    (rpc $field:ident) => {
        std::mem::offset_of!($crate::abi::Group, rpc)
            + std::mem::offset_of!($crate::abi::Rpc, $field)
    };
}
pub(crate) use at;

/// What a replica claims about an event, read from its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) nr: u32,
    pub(crate) kind: u16,
    pub(crate) ip: u64,
    pub(crate) state: u64,
    pub(crate) bytes: [u64; 2],
    pub(crate) args: [u64; 6],
    pub(crate) sp: u64,
    pub(crate) regs: u64,
}

/// As crates/agent/src/repair/recover.c, `sf_rpc`. The constant is the golden ratio's, odd.
fn rpc_sum(op: u32, arg: [u64; 5]) -> u64 {
    arg.iter().fold(u64::from(op), |sum, arg| {
        (sum.rotate_left(13) ^ arg).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) memory: Shared,
    /// Processes of the slots, 0 where none is known: the launcher's own list.
    pids: [AtomicI32; abi::SLOTS_MAX],
}

/// A sleeping process whose bell rings answers at once: one that is seen asleep for so long at every
/// look (of 20 ms) will not.
const DEAF: Duration = Duration::from_secs(1);

impl Group {
    pub(crate) fn new(memory: Shared) -> Self {
        Self {
            memory,
            pids: Default::default(),
        }
    }

    /// Whose process a slot is from now on.
    pub(crate) fn set_pid(&self, slot: usize, pid: i32) {
        self.pids[slot].store(pid, Ordering::Relaxed);
    }

    /// The process of a slot, or 0.
    pub(crate) fn pid(&self, slot: usize) -> i32 {
        self.pids[slot].load(Ordering::Relaxed)
    }

    /// How the run ends, as the agent said it; a word without its complement was struck, and is
    /// put right.
    pub(crate) fn end(&self) -> u32 {
        let (end, inverse) = (self.get32(at!(end)), self.get32(at!(end_inv)));
        // One of the two may be wrong, in one bit.
        let said = |word: u32| word != abi::end::RUNNING && word <= abi::end::TORN;
        if said(!inverse) {
            return !inverse;
        }
        if said(end) && (end ^ !inverse).count_ones() == 1 {
            return end;
        }
        if end != abi::end::RUNNING && inverse.count_ones() <= 1 {
            let word = self.memory.u32(at!(end));
            let _ =
                word.compare_exchange(end, abi::end::RUNNING, Ordering::AcqRel, Ordering::Relaxed);
        }
        abi::end::RUNNING
    }

    /// A word that has its complement beside it; nothing if one of them was struck.
    pub(crate) fn meant(&self, word: usize, inverse: usize) -> Option<u32> {
        let value = self.get32(word);
        (value == 0 || self.get32(inverse) == !value).then_some(value)
    }

    /// The signal that the program wants at its parent's death.
    pub(crate) fn parent_death(&self) -> Option<u32> {
        self.meant(at!(pdeathsig), at!(pdeathsig_inv))
    }

    pub(crate) fn get32(&self, at: usize) -> u32 {
        self.memory.get32(at)
    }

    pub(crate) fn get64(&self, at: usize) -> u64 {
        self.memory.get64(at)
    }

    pub(crate) fn set32(&self, at: usize, value: u32) {
        self.memory.set32(at, value);
    }

    pub(crate) fn set64(&self, at: usize, value: u64) {
        self.memory.set64(at, value);
    }

    /// Sleeps until somebody rings the launcher, or the time is over.
    pub(crate) fn sleep(&self, seen: u32, limit: Duration) {
        futex::wait(self.memory.u32(at!(launcher_bell)), seen, limit);
    }

    /// Sleeps as well until a replica comes to an event.
    pub(crate) fn rest(&self, seen: u32, limit: Duration) {
        let sleepers = self.memory.u32(at!(wait sleepers));
        sleepers.fetch_or(abi::LAUNCHER_RESTS, Ordering::SeqCst);
        self.sleep(seen, limit);
        sleepers.fetch_and(!abi::LAUNCHER_RESTS, Ordering::SeqCst);
    }

    pub(crate) fn bell(&self) -> u32 {
        self.get32(at!(launcher_bell))
    }

    pub(crate) fn ring_launcher(&self) {
        let bell = self.memory.u32(at!(launcher_bell));
        bell.fetch_add(1, Ordering::SeqCst);
        futex::wake(bell);
    }

    pub(crate) fn ring(&self, slot: usize) {
        let bell = self.memory.u32(at!(slot slot, bell));
        bell.fetch_add(1, Ordering::SeqCst);
        futex::wake(bell);
    }

    pub(crate) fn phase(&self, slot: usize) -> u32 {
        self.get32(at!(slot slot, phase))
    }

    /// Gives a paused replica a command.
    pub(crate) fn command(&self, slot: usize, cmd: u32, arg: u64) {
        self.set32(at!(slot slot, cmd), cmd);
        self.set64(at!(slot slot, cmd_arg), arg);
        let seq = self.get64(at!(slot slot, cmd_seq)) + 1;
        self.set64(at!(slot slot, cmd_seq), seq);
        self.ring(slot);
    }

    pub(crate) fn acknowledged(&self, slot: usize) -> bool {
        self.get64(at!(slot slot, cmd_seq)) == self.get64(at!(slot slot, cmd_ack))
    }

    /// Gives a command and waits for it to be carried out. Nothing: it was not, in time.
    pub(crate) fn order(&self, slot: usize, cmd: u32, arg: u64, limit: Duration) -> Option<i64> {
        self.command(slot, cmd, arg);
        self.obeyed(slot, limit)
    }

    /// Waits for the last command of a slot to be carried out. Nothing: it was not, in time.
    pub(crate) fn obeyed(&self, slot: usize, limit: Duration) -> Option<i64> {
        self.obeyed_with(slot, limit, || false)
    }

    /// The same; `meanwhile` comes whenever the launcher is rung, and says whether the replica has waited for it.
    pub(crate) fn obeyed_with(
        &self,
        slot: usize,
        limit: Duration,
        meanwhile: impl Fn() -> bool,
    ) -> Option<i64> {
        let pid = self.pids[slot].load(Ordering::Relaxed);
        let mut asleep: Option<Instant> = None;
        self.wait_until(limit, || {
            if meanwhile() {
                asleep = None;
            }
            if self.acknowledged(slot) || self.is_gone(slot) {
                return true;
            }
            self.ring(slot);
            if pid <= 1 || !procfs::sleeps(pid) {
                asleep = None;
                return false;
            }
            asleep.get_or_insert_with(Instant::now).elapsed() > DEAF
        });
        self.acknowledged(slot)
            .then(|| self.get64(at!(slot slot, cmd_ret)).cast_signed())
    }

    /// Sleeps on the launcher's bell until a condition holds or the time is over. Time in
    /// which the launcher itself was stopped does not count.
    pub(crate) fn wait_until(&self, limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
        const SLICE: Duration = Duration::from_millis(20);
        let mut left = limit;
        loop {
            let start = Instant::now();
            let seen = self.bell();
            if holds() {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            self.sleep(seen, left.min(SLICE));
            left = left.saturating_sub(start.elapsed().min(2 * SLICE));
        }
    }

    /// Whether the process of a slot, where it is known, has ended.
    pub(crate) fn is_gone(&self, slot: usize) -> bool {
        let pid = self.pids[slot].load(Ordering::Relaxed);
        pid > 1 && !steadfast_sys::child::exists(pid)
    }

    /// The leader's question: operation and arguments. Nothing: there is none. An error: it was struck
    /// on its way.
    pub(crate) fn question(&self) -> Option<Result<(u32, [u64; 5]), ()>> {
        let op = self.get32(at!(rpc rpc));
        if op == 0 {
            return None;
        }
        let arg = [0, 1, 2, 3, 4].map(|index| self.get64(at!(rpc arg) + 8 * index));
        let sum = rpc_sum(op, arg);
        Some(if self.get64(at!(rpc_sum)) == sum {
            Ok((op, arg))
        } else {
            Err(())
        })
    }

    pub(crate) fn answer(&self, ret: i64) {
        self.set32(at!(rpc rpc), 0);
        self.set64(at!(rpc_ret_inv), !ret.cast_unsigned());
        self.set64(at!(rpc ret), ret.cast_unsigned());
        self.set32(at!(rpc done), 1);
        futex::wake(self.memory.u32(at!(rpc done)));
    }

    /// The claim of a slot about an event, if its record is there and whole.
    pub(crate) fn claim(&self, slot: usize, seq: u64) -> Option<Claim> {
        let mut raw = [0; size_of::<abi::ClaimRecord>()];
        self.memory.read(abi::claim(slot, seq), &mut raw);
        let word = |index: usize| {
            u64::from_le_bytes(
                raw[8 * index..8 * index + 8]
                    .try_into()
                    .expect("eight bytes"),
            )
        };
        if word(0) != seq || word(1) != !seq {
            return None;
        }
        let nr_kind = word(2);
        Some(Claim {
            nr: u32::try_from(nr_kind & 0xffff_ffff).expect("masked"),
            kind: u16::try_from(nr_kind >> 32 & 0xffff).expect("masked"),
            ip: word(4),
            state: word(5),
            bytes: [word(6), word(7)],
            args: [word(8), word(9), word(10), word(11), word(12), word(13)],
            sp: word(14),
            regs: word(15),
        })
    }

    /// Forgets what a slot has claimed.
    pub(crate) fn clear_ring(&self, slot: usize) {
        for seq in 0..abi::RING as u64 {
            self.set64(abi::claim(slot, seq), u64::MAX);
        }
    }

    /// Takes a paused replica's claim about the event that it starts again back: what it claims
    /// anew may depend on files (shared.c), so nobody may act on the old claim.
    pub(crate) fn withdraw(&self, slot: usize) {
        let seq = self.get64(at!(own slot, again));
        let at = abi::claim(slot, seq);
        if self.get64(at) == seq {
            self.set64(at, u64::MAX);
        }
    }

    /// Forgets results from `seq` on: a leader that was replaced had published them.
    pub(crate) fn clear_results(&self, base: u64, from: u64) {
        for index in from.saturating_sub(base)..abi::RESULTS_MAX as u64 {
            let at = abi::OFF_RESULTS
                + usize::try_from(index).expect("below RESULTS_MAX") * size_of::<abi::Result>();
            let seq = self.get64(at);
            // Results are written in order: the first that is no later event ends them.
            if seq == u64::MAX || seq < from {
                break;
            }
            self.set64(at, u64::MAX);
        }
    }

    /// Publishes the result of a call that a leader made and did not live to tell: a number
    /// without payload, in the record that its successors read (log.c, `result_crc`).
    pub(crate) fn publish(
        &self,
        base: u64,
        seq: u64,
        claim: &Claim,
        (ret, flags): (i64, u32),
        payload_at: u32,
    ) {
        let at = abi::OFF_RESULTS
            + usize::try_from(seq - base).expect("checked by log_base") * size_of::<abi::Result>();
        let words = [
            seq,
            !seq,
            ret.cast_unsigned(),
            claim.state ^ claim.bytes[0],
            u64::from(payload_at) << 32,
            u64::from(claim.nr) | u64::from(flags) << 32,
            0, // checksums: below
            0,
        ];
        let checked: Vec<u8> = [
            words[0], words[2], words[3], words[4], words[5], 0, words[7],
        ]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
        // The agent's instruction neither inverts its start value nor its result.
        let crc = !crc32c::crc32c_append(u32::MAX, &checked);
        self.set64(at, u64::MAX);
        for (index, word) in words.iter().enumerate().skip(1) {
            self.set64(at + 8 * index, *word);
        }
        self.set64(at + 48, u64::from(crc));
        self.set64(at, seq);
    }

    /// Puts the leader's claim about event `seq` as another replica has made it: a leader that was
    /// struck after the vote may have claimed something else since.
    pub(crate) fn echo(&self, from: usize, seq: u64) {
        self.echo_as(from, 0, seq);
    }

    /// The same for any slot that is to claim what another has.
    pub(crate) fn echo_as(&self, from: usize, slot: usize, seq: u64) {
        let (source, to) = (abi::claim(from, seq), abi::claim(slot, seq));
        let mut words: Vec<u64> = (0..size_of::<abi::ClaimRecord>() / 8)
            .map(|index| self.get64(source + 8 * index))
            .collect();
        if words[0] != seq {
            return;
        }
        let slot = slot as u64;
        // log.c, `claim_crc`.
        let checked: Vec<u8> = [
            words[0], words[2], slot, words[4], words[5], words[6], words[7],
        ]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
        let crc = !crc32c::crc32c_append(u32::MAX, &checked);
        words[3] = u64::from(crc) | slot << 32;
        self.set64(to, u64::MAX);
        for (index, word) in words.iter().enumerate().skip(1) {
            self.set64(to + 8 * index, *word);
        }
        self.set64(to, seq);
    }

    /// Whether the leader has told the others how event `seq` ended.
    pub(crate) fn published(&self, base: u64, seq: u64) -> bool {
        let index = seq
            .checked_sub(base)
            .and_then(|index| usize::try_from(index).ok())
            .filter(|index| *index < abi::RESULTS_MAX);
        index.is_some_and(|index| {
            self.get64(abi::OFF_RESULTS + index * size_of::<abi::Result>()) == seq
        })
    }

    /// Where the payload of the event before `seq` ends.
    pub(crate) fn payload_end(&self, base: u64, seq: u64) -> u32 {
        if seq <= base {
            return 0;
        }
        let at = abi::OFF_RESULTS
            + usize::try_from(seq - 1 - base).expect("checked by log_base")
                * size_of::<abi::Result>();
        let end = u64::from(self.get32(at + 36)) + u64::from(self.get32(at + 32));
        u32::try_from(end.next_multiple_of(64)).unwrap_or(0)
    }

    /// Gives a paused replica a command with two arguments.
    pub(crate) fn command2(&self, slot: usize, cmd: u32, arg: u64, arg2: u64) {
        self.set64(at!(slot slot, cmd_arg2), arg2);
        self.command(slot, cmd, arg);
    }
}

pub(crate) fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn id(r: usize) -> ReplicaId {
    ReplicaId(u8::try_from(r).expect("few replicas"))
}

pub(crate) fn core_id(core: Option<usize>) -> Option<CoreId> {
    core.and_then(|core| u32::try_from(core).ok()).map(CoreId)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift64* (Marsaglia 2003; Vigna 2016).
    fn next(state: &mut u64) -> u64 {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Numbers as a struck word has them: anything, the edges of things, and what is nearly right.
    fn number(state: &mut u64) -> u64 {
        match next(state) % 4 {
            0 => next(state),
            1 => next(state) % (2 * abi::RESULTS_MAX as u64),
            2 => *[
                0,
                1,
                u64::MAX,
                i64::MAX.cast_unsigned(),
                u64::from(u32::MAX),
                abi::RESULTS_MAX as u64,
            ]
            .get(next(state).leading_zeros() as usize)
            .unwrap_or(&2),
            _ => (next(state) % 64) ^ 1 << (next(state) % 64),
        }
    }

    #[test]
    fn whatever_stands_in_the_log_is_read_without_harm_and_a_claim_only_where_both_numbers_name_it()
    {
        let group = Group::new(Shared::new(c"log", abi::SHARED_BYTES).expect("shared memory"));
        let mut state = 0x5eed;
        for _ in 0..20_000 {
            let slot =
                usize::try_from(next(&mut state) % abi::SLOTS_MAX as u64).expect("few slots");
            let (seq, base) = (number(&mut state), number(&mut state));
            for word in 0..size_of::<abi::ClaimRecord>() / 8 {
                group.set64(abi::claim(slot, seq) + 8 * word, number(&mut state));
            }
            if next(&mut state).is_multiple_of(2) {
                group.set64(abi::claim(slot, seq), seq);
                group.set64(abi::claim(slot, seq) + 8, !seq);
            }
            let named = group.get64(abi::claim(slot, seq)) == seq
                && group.get64(abi::claim(slot, seq) + 8) == !seq;
            assert_eq!(group.claim(slot, seq).is_some(), named);
            let index = seq
                .checked_sub(base)
                .and_then(|index| usize::try_from(index).ok())
                .filter(|index| *index < abi::RESULTS_MAX);
            if let Some(index) = index {
                let at = abi::OFF_RESULTS + index * size_of::<abi::Result>();
                for word in 0..size_of::<abi::Result>() / 8 {
                    group.set64(at + 8 * word, number(&mut state));
                }
                assert_eq!(group.published(base, seq), group.get64(at) == seq);
                group.payload_end(base, seq.saturating_add(1));
            } else {
                assert!(!group.published(base, seq));
            }
        }
    }
}
