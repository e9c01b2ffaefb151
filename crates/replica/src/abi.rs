//! Shared layouts: the Rust side of `crates/agent/src/layout/abi.h`, where every field is explained.

#![allow(dead_code, reason = "layouts name fields that only the agent touches")]

use std::mem::offset_of;

pub(crate) const BASE: u64 = 0x2a00_0000_0000;
pub(crate) const SHARED: u64 = 0x2a10_0000_0000;
pub(crate) const SLOTS_MAX: usize = 12;
pub(crate) const HAND_MAX: usize = 8;
pub(crate) const SIGINFO_WORDS: usize = 16;
pub(crate) const FAULTS_MAX: usize = 64;
pub(crate) const RING: usize = 64;
pub(crate) const RESULTS_MAX: usize = 65536;
pub(crate) const OFF_CLAIMS: usize = 0x10000;
pub(crate) const OFF_RESULTS: usize = 0x40000;
pub(crate) const OFF_PAYLOAD: usize = 0x80_0000;
pub(crate) const PAYLOAD_BYTES: usize = 256 << 20;
pub(crate) const OFF_TRANSFER: usize = OFF_PAYLOAD + PAYLOAD_BYTES;
pub(crate) const TRANSFER_BYTES: usize = 4 << 20;
pub(crate) const WARDS_MAX: usize = 64;
pub(crate) const FORKED_MAX: usize = 64;
/// Where the list of mappings for a new leader starts (recover.c, `sf_remap`).
pub(crate) const OFF_REMAP: usize = OFF_TRANSFER + 65536;
/// The number of a payload, and words that a state which is looked for there has in memory: how many, then address and
/// value of each.
pub(crate) const OFF_SEEK_WORDS: usize = OFF_TRANSFER + 61440;
pub(crate) const SEEK_WORDS: usize = 8;
/// Where that list ends at the latest (abi.h, `SF_OFF_PARENT_FP`).
pub(crate) const REMAP_END: usize = OFF_UNDO - 16384;
pub(crate) const OFF_UNDO: usize = OFF_TRANSFER + TRANSFER_BYTES / 2;
pub(crate) const SHARED_BYTES: usize = OFF_TRANSFER + TRANSFER_BYTES;
/// What the agent holds of files that are mapped shared (abi.h, `SF_REFS` to `SF_WINDOWS`).
pub(crate) const REFS: std::ops::Range<u64> = SHARED + (2 << 40)..SHARED + (3 << 40);
/// Where the agent's addresses end (abi.h, `SF_OWN_END`).
pub(crate) const AGENT_END: u64 = SHARED + (4 << 40);
/// The page of a domain (abi.h, `SF_DOMAIN`).
pub(crate) const DOMAIN: u64 = SHARED + (1 << 35);
/// Where it says whose turn it is at each index (domain.c, `served`).
pub(crate) const DOMAIN_SERVED: u64 = 8;
/// Commands to the keeper.
pub(crate) const KEEPER: usize = 11;
/// In the word of those who sleep: the launcher, until a replica comes to an event.
pub(crate) const LAUNCHER_RESTS: u32 = 1 << 31;
/// Of a result (abi.h, `SF_R_REST`): the call has moved a part, and the rest of it is the next event.
pub(crate) const REST: u32 = 512;
/// A child of vfork(2) has left (`SF_R_SPAWNED`).
pub(crate) const SPAWNED: u32 = 4096;
/// Room of `struct sf_traps`.
pub(crate) const TRAPS_MAX: usize = 255;
/// Place of rip in `struct sf_regs`.
pub(crate) const REG_RIP: usize = 16;
/// Place of rsp in it.
pub(crate) const REG_RSP: usize = 15;
/// General registers, which come first in it.
pub(crate) const REGISTERS: usize = 16;
/// Where the entry table of the image jumps from.
pub(crate) const ENTRY_SYSCALL: u64 = BASE;
pub(crate) const ENTRY_ENTROPY: u64 = BASE + 16;

/// Places in a thread's page: `TLS_NAME` of the agent's headers is `NAME` here (layout/tls.h, faults/flip.h).
pub(crate) mod tls {
    pub(crate) const RCX: u32 = 0;
    pub(crate) const DESC: u32 = 8;
    pub(crate) const EA: u32 = 88;
    pub(crate) const BUDGET: u32 = 112;
    pub(crate) const AIM: u32 = 120;
    pub(crate) const FLIP_RCX: u32 = 2048;
    pub(crate) const FLIP_DESC: u32 = 2056;
    pub(crate) const FLIP_COUNT: u32 = 2176;
    pub(crate) const FLIP_AFTER: u32 = 2304;
    pub(crate) const SEEK_ANY: u32 = 2440;
    pub(crate) const SEEK_LESS: u32 = 2448;
}

#[repr(C, align(64))]
pub(crate) struct ClaimRecord {
    pub(crate) seq: u64,
    pub(crate) seq_inv: u64,
    pub(crate) nr: u32,
    pub(crate) kind: u16,
    pub(crate) thread: u16,
    pub(crate) crc: u32,
    pub(crate) slot: u32,
    pub(crate) ip: u64,
    pub(crate) state: u64,
    pub(crate) bytes: [u64; 2],
    pub(crate) args: [u64; 6],
    pub(crate) sp: u64,
    pub(crate) regs: u64,
}

#[repr(C, align(64))]
pub(crate) struct Result {
    pub(crate) seq: u64,
    pub(crate) seq_inv: u64,
    pub(crate) ret: i64,
    pub(crate) agreed: u64,
    pub(crate) out_len: u32,
    pub(crate) out_off: u32,
    pub(crate) nr: u32,
    pub(crate) flags: u16,
    pub(crate) spare: u16,
    pub(crate) crc: u32,
    pub(crate) payload_crc: u32,
    pub(crate) aux: u64,
}

#[repr(C, align(64))]
pub(crate) struct Line<T>(pub(crate) T);

#[repr(C)]
pub(crate) struct Slot {
    pub(crate) phase: u32,
    pub(crate) bell: u32,
    pub(crate) sleeping: u32,
    pub(crate) cmd: u32,
    pub(crate) cmd_seq: u64,
    pub(crate) cmd_ack: u64,
    pub(crate) cmd_arg: u64,
    pub(crate) cmd_arg2: u64,
    pub(crate) cmd_ret: i64,
    pub(crate) called: u32,
    pub(crate) entered: u32,
    pub(crate) own: Line<SlotOwn>,
    pub(crate) seen: Line<SlotSeen>,
}

#[repr(C)]
pub(crate) struct SlotOwn {
    pub(crate) next: u64,
    pub(crate) done: u64,
    pub(crate) pid: i32,
    pub(crate) init_pid: i32,
    pub(crate) losers: u32,
    pub(crate) sought: u32,
    pub(crate) verdict_seq: u64,
    pub(crate) hash: [u64; 2],
    pub(crate) again: u64,
}

#[repr(C)]
pub(crate) struct SlotSeen {
    pub(crate) fault_addr: u64,
    pub(crate) fault_ip: u64,
    pub(crate) fault_signo: u32,
    pub(crate) fault_code: u32,
    pub(crate) made: u64,
    pub(crate) made_ret: i64,
    pub(crate) slow: u64,
    pub(crate) cpu: u32,
    pub(crate) exit_status: i32,
    pub(crate) own_events: u64,
}

#[repr(C, align(64))]
pub(crate) struct Sleepers {
    pub(crate) sleepers: u32,
    pub(crate) affinity_bytes: u32,
    pub(crate) affinity: [u8; 256],
    pub(crate) allowed: [u8; 256],
    pub(crate) live: u32,
}

#[repr(C, align(64))]
pub(crate) struct Rpc {
    pub(crate) rpc: u32,
    pub(crate) done: u32,
    pub(crate) arg: [u64; 6],
    pub(crate) ret: i64,
    pub(crate) len: u32,
}

#[repr(C)]
pub(crate) struct Group {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) replicas: u32,
    pub(crate) alarm: u32,
    pub(crate) alarm_slot: u32,
    pub(crate) alarm_seq: u64,
    pub(crate) launcher_bell: u32,
    pub(crate) go: u32,
    pub(crate) end: u32,
    pub(crate) end_nr: u32,
    pub(crate) end_value: i64,
    pub(crate) end_ip: u64,
    pub(crate) end_arg: [u64; 6],
    pub(crate) end_slot: u32,
    pub(crate) spin_tsc: u32,
    pub(crate) yields: u32,
    pub(crate) options: u32,
    pub(crate) stack_top_bytes: u32,
    pub(crate) healed: u32,
    pub(crate) leader_pid: u32,
    pub(crate) nonce: u32,
    pub(crate) base: u64,
    pub(crate) wrote_before: u64,
    pub(crate) wrote_seq: u64,
    pub(crate) rerun_until: u64,
    pub(crate) snapshot_seq: u64,
    pub(crate) snapshot_broken: u32,
    pub(crate) epoch_permille: u32,
    pub(crate) epoch_tsc: u64,
    pub(crate) wait: Sleepers,
    pub(crate) rpc: Rpc,
    pub(crate) slots: Line<[Slot; SLOTS_MAX]>,
    pub(crate) timer_set: [u64; 32],
    pub(crate) begun: u64,
    pub(crate) begun_at: u64,
    pub(crate) meant: u64,
    pub(crate) pdeathsig: u32,
    pub(crate) dying: u32,
    pub(crate) undo_n: u32,
    pub(crate) remade: u32,
    pub(crate) beat: u32,
    pub(crate) standstill: u32,
    pub(crate) job_bell: u32,
    pub(crate) job_ask: u32,
    pub(crate) job_answer: u32,
    pub(crate) copy_tsc: u64,
    pub(crate) copied: u64,
    pub(crate) end_inv: u32,
    pub(crate) dying_inv: u32,
    pub(crate) pdeathsig_inv: u32,
    pub(crate) spare_inv: u32,
    pub(crate) rpc_sum: u64,
    pub(crate) rpc_ret_inv: i64,
    pub(crate) hand: u32,
    pub(crate) alignment: u32,
    pub(crate) held: [[u64; SIGINFO_WORDS]; HAND_MAX],
    pub(crate) attached: [u64; SIGINFO_WORDS],
    pub(crate) attached_to: u64,
    pub(crate) held_n: u32,
    pub(crate) faults_n: u32,
    pub(crate) stand_in: u32,
    pub(crate) stand_in_inv: u32,
    pub(crate) fault_at: [u64; FAULTS_MAX],
    pub(crate) domain: u32,
    pub(crate) counts: u32,
    pub(crate) baton_given: [u64; SLOTS_MAX],
    pub(crate) baton_held: [u32; SLOTS_MAX],
    pub(crate) threads: u32,
    pub(crate) look_asked: u32,
    pub(crate) look_heard: u32,
    pub(crate) look_found: u32,
    pub(crate) settled: u64,
    pub(crate) slice_tsc: u64,
    pub(crate) segment_ids: [i32; SLOTS_MAX],
    pub(crate) parent: i32,
    pub(crate) parent_inv: u32,
    pub(crate) ward: [Ward; WARDS_MAX],
    pub(crate) forked: [u64; FORKED_MAX],
    pub(crate) parent_process: i32,
    pub(crate) locks: u32,
    pub(crate) domain_page: u64,
    pub(crate) unmapped: u64,
    pub(crate) renumbered: u32,
    pub(crate) spare_renumbered: u32,
}

#[repr(C)]
pub(crate) struct Ward {
    pub(crate) pid: i32,
    pub(crate) pid_inv: u32,
    pub(crate) leader: i32,
    pub(crate) leader_inv: u32,
    pub(crate) state: u32,
    pub(crate) status: u32,
    pub(crate) proxy: i32,
    pub(crate) proxy_inv: u32,
    pub(crate) over: u32,
    pub(crate) any_number: u32,
    pub(crate) looked: u32,
    pub(crate) spare: u32,
}

#[repr(C)]
pub(crate) struct Boot {
    pub(crate) regs: [u64; 18],
    pub(crate) vdso: [u64; 5],
    pub(crate) shared_fd: i32,
    pub(crate) launcher_pid: i32,
    pub(crate) auxv: u64,
    pub(crate) stack_lo: u64,
    pub(crate) secret: u64,
    pub(crate) mask: u64,
    pub(crate) vdso_ok: u8,
    pub(crate) fsgsbase: u8,
    pub(crate) clocks: u8,
}

const _: () = assert!(
    size_of::<ClaimRecord>() == 128,
    "shared with crates/agent/src/layout/abi.h"
);
const _: () = assert!(
    size_of::<Result>() == 64,
    "shared with crates/agent/src/layout/abi.h"
);
const _: () = assert!(
    size_of::<Slot>() == 192,
    "shared with crates/agent/src/layout/abi.h"
);
const _: () = assert!(
    size_of::<Group>() <= OFF_CLAIMS,
    "shared with crates/agent/src/layout/abi.h"
);

/// Byte offset of a slot in the shared memory.
pub(crate) const fn slot(index: usize) -> usize {
    offset_of!(Group, slots) + index * size_of::<Slot>()
}

/// Byte offset of a claim in the shared memory.
pub(crate) fn claim(slot: usize, seq: u64) -> usize {
    let place = usize::try_from(seq % RING as u64).expect("below RING");
    OFF_CLAIMS + (slot * RING + place) * size_of::<ClaimRecord>()
}

pub(crate) mod option {
    pub(crate) const SUD: u32 = 1;
    pub(crate) const SECCOMP: u32 = 2;
    pub(crate) const HUGE: u32 = 4;
    pub(crate) const PRIV_NS: u32 = 8;
    pub(crate) const USER_NS: u32 = 16;
    pub(crate) const RETAIN: u32 = 32;
    pub(crate) const CHECK_DIRTY: u32 = 64;
    pub(crate) const CHECK_FULL: u32 = 128;
    pub(crate) const PRIVATE_TEXT: u32 = 512;
    pub(crate) const PRIVATE_RODATA: u32 = 1024;
    pub(crate) const PRIVATE_REST: u32 = 2048;
    pub(crate) const PROFILE: u32 = 4096;
    pub(crate) const NS_OR_NOT: u32 = 8192;
    pub(crate) const PAIR: u32 = 16384;
    pub(crate) const PAIR_SECONDARY: u32 = 32768;
    pub(crate) const PAIR_JOIN: u32 = 131_072;
    pub(crate) const TREE: u32 = 65536;
    pub(crate) const FAULTS: u32 = 262_144;
}

pub(crate) mod phase {
    pub(crate) const RUNNING: u32 = 2;
    pub(crate) const PAUSED: u32 = 3;
    pub(crate) const DEAD: u32 = 5;
}

pub(crate) mod cmd {
    pub(crate) const VOTE: u32 = 1;
    pub(crate) const FORK: u32 = 2;
    pub(crate) const SEND: u32 = 3;
    pub(crate) const RECEIVE: u32 = 4;
    pub(crate) const RESUME: u32 = 5;
    pub(crate) const RERUN: u32 = 6;
    pub(crate) const EXIT: u32 = 7;
    pub(crate) const SPAWN: u32 = 8;
    pub(crate) const REMAP: u32 = 9;
    pub(crate) const TOUCH: u32 = 10;
    pub(crate) const DROP: u32 = 12;
    pub(crate) const HASH: u32 = 11;
    pub(crate) const KEEPER: u32 = 13;
    pub(crate) const SEEK: u32 = 14;
    pub(crate) const HEAR: u32 = 15;
    pub(crate) const PATCH: u32 = 16;
    pub(crate) const LEAD: u32 = 17;
    pub(crate) const GIVE: u32 = 18;
    pub(crate) const TAKE: u32 = 19;
    pub(crate) const INHERIT: u32 = 20;
    pub(crate) const SEGMENTS: u32 = 21;
    pub(crate) const POOL: u32 = 22;
    pub(crate) const BEAR: u32 = 23;
    pub(crate) const WATCH: u32 = 24;
}

/// How a replica looks for a state.
pub(crate) mod seek {
    pub(crate) const HERE: u64 = 0;
    pub(crate) const ON: u64 = 1;
    pub(crate) const PLACE: u64 = 2;
    pub(crate) const FREE: u64 = 3;
    pub(crate) const NEXT: u64 = 4;
}

/// Who was stopped (job_control.rs).
pub(crate) mod standstill {
    pub(crate) const MOVING: u32 = 0;
    pub(crate) const LEADER: u32 = 1;
    pub(crate) const LAUNCHER: u32 = 2;
}

pub(crate) mod end {
    pub(crate) const RUNNING: u32 = 0;
    pub(crate) const EXITED: u32 = 1;
    pub(crate) const SIGNALED: u32 = 2;
    pub(crate) const REFUSED: u32 = 3;
    pub(crate) const SETUP: u32 = 4;
    pub(crate) const BUG: u32 = 5;
    pub(crate) const TORN: u32 = 6;
}

/// What a ward is (abi.h, `enum sf_ward_state`).
pub(crate) mod ward {
    pub(crate) const FREE: u32 = 0;
    pub(crate) const CLAIMED: u32 = 1;
    pub(crate) const KEPT: u32 = 2;
    pub(crate) const PROXY: u32 = 3;
    pub(crate) const ENDED: u32 = 4;
    pub(crate) const FAILED: u32 = 5;
    pub(crate) const GONE: u32 = 6;
    pub(crate) const ADOPT: u32 = 7;
    pub(crate) const ADOPTED: u32 = 8;
}

pub(crate) mod alarm {
    pub(crate) const QUIET: u32 = 0;
    pub(crate) const DIVERGED: u32 = 1;
    pub(crate) const LOG: u32 = 2;
    pub(crate) const FAULTED: u32 = 3;
    pub(crate) const DIED: u32 = 4;
    pub(crate) const HUNG: u32 = 5;
    pub(crate) const REQUEST: u32 = 6;
}

/// In a slot's `made`: bytes came with the answer.
pub(crate) const MADE_OUT: u64 = 1 << 63;

/// A replica's `fault_signo` when it failed its own check.
pub(crate) const BUG_SIGNO: u32 = 0xb06;

pub(crate) mod kind {
    pub(crate) const SYSCALL: u16 = 1;
    pub(crate) const ENTROPY: u16 = 2;
    pub(crate) const FAULT: u16 = 3;
    pub(crate) const CHECK: u16 = 4;
    pub(crate) const SIGNAL: u16 = 5;
    pub(crate) const WRITEBACK: u16 = 6;
    pub(crate) const TURN: u16 = 7;

    /// What an event is, for a message.
    pub(crate) fn name(kind: u16, nr: u32) -> String {
        match kind {
            SYSCALL => steadfast_agent::call(nr).0.to_owned(),
            ENTROPY => "entropy".to_owned(),
            FAULT => format!("signal {nr}"),
            SIGNAL => "delivery of signals".to_owned(),
            TURN => "its turn among processes that share memory".to_owned(),
            WRITEBACK => "write-back of a shared mapping".to_owned(),
            _ => "memory check".to_owned(),
        }
    }
}

/// What `cmd::GIVE` answers below 0, with a descriptor that has bytes under way (abi.h, `SF_UNDER_WAY`).
pub(crate) const UNDER_WAY: i64 = 1_000_000;

pub(crate) const RPC_PATCH: u32 = 1;
pub(crate) const RPC_HOLD: u32 = 2;
pub(crate) const RPC_DROP: u32 = 3;
pub(crate) const RPC_EXEC: u32 = 4;
pub(crate) const RPC_STAY: u32 = 5;
pub(crate) const RPC_SPAWN: u32 = 6;
pub(crate) const RPC_FORK: u32 = 7;
pub(crate) const RPC_UNFORK: u32 = 8;
pub(crate) const RPC_MADE: u32 = 17;
/// Of it: a memory object; and one that goes to other processes.
pub(crate) const MADE_MEMORY: u64 = 1;
pub(crate) const MADE_HANDED_ON: u64 = 2;
pub(crate) const RPC_SEGMENT: u32 = 18;
pub(crate) const RPC_KILL: u32 = 19;
pub(crate) const RPC_OTHERS: u32 = 20;
/// An answer to it.
pub(crate) const OTHERS_IN_TURNS: i64 = 2;
pub(crate) const RPC_NAMED: u32 = 21;
pub(crate) const RPC_LATE: u32 = 22;
pub(crate) const RPC_PARENT: u32 = 23;
pub(crate) const RPC_LIVES: u32 = 24;
pub(crate) const RPC_COPIES: u32 = 25;
pub(crate) const RPC_SITE: u32 = 16;
/// Of [`RPC_SEGMENT`]: in its last argument, and in the answer above the sum.
pub(crate) const SEGMENT_NOW: u64 = 1 << 63;
pub(crate) const SEGMENT_HELD: u64 = 1 << 62;
pub(crate) const SEGMENT_SUM: i64 = 1 << 40;
/// What a process shares with others has no name (abi.h, `SF_D_ANONYMOUS`).
pub(crate) const DOMAIN_ANONYMOUS: u32 = 1;
/// ... and nobody knows all of it.
pub(crate) const DOMAIN_LOST: u32 = 3;
/// An answer: the file that is held has no name any more.
pub(crate) const SEGMENT_NAMELESS: i64 = 2;
pub(crate) const SEGMENT_OWN: i64 = 3;
pub(crate) const NR_EXEC_FILTER: u32 = 0x8000_0104;
pub(crate) const NR_EXEC_TRACE: u32 = 0x8000_0105;
pub(crate) const NR_EXEC_COUNT: u32 = 0x8000_0106;
pub(crate) const NR_EXEC_LOCKS: u32 = 0x8000_0107;
pub(crate) const NR_EXEC_BARE: u32 = 0x8000_0114;
/// With the file in the value, as `SF_REFUSED_FILE` has it.
pub(crate) const NR_SPAWN_SHARED: u32 = 0x8000_010b;
pub(crate) const NR_SHARED_NAMED: u32 = 0x8000_0115;
/// An answer to [`RPC_EXEC`] and [`RPC_SPAWN`]: the new program runs unprotected.
pub(crate) const EXEC_BARE: i64 = 1;
pub(crate) const RPC_STRUCK: i64 = -4096;

/// `#define NAME NUMBER` of a header; tests hold numbers of this side against it.
#[cfg(test)]
pub(crate) fn defined(header: &str, name: &str) -> u64 {
    let value = header
        .lines()
        .find_map(|line| {
            line.strip_prefix("#define ")?
                .strip_prefix(name)?
                .strip_prefix(' ')
        })
        .unwrap_or_else(|| panic!("#define {name}"));
    let number = value.split("/*").next().unwrap_or_default();
    let number = number.trim().trim_matches(['(', ')']);
    let (number, shift) = number.split_once(" << ").unwrap_or((number, "0"));
    let digits = number.trim_end_matches(['u', 'l']);
    let number = match digits.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16),
        None => digits.parse(),
    };
    number.expect("a number") << shift.parse::<u32>().expect("bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_page_of_a_thread_are_the_agents() {
        let page = concat!(
            include_str!("../../agent/src/layout/tls.h"),
            include_str!("../../agent/src/faults/flip.h")
        );
        for (name, place) in [
            ("RCX", tls::RCX),
            ("DESC", tls::DESC),
            ("EA", tls::EA),
            ("BUDGET", tls::BUDGET),
            ("AIM", tls::AIM),
            ("FLIP_RCX", tls::FLIP_RCX),
            ("FLIP_DESC", tls::FLIP_DESC),
            ("FLIP_COUNT", tls::FLIP_COUNT),
            ("FLIP_AFTER", tls::FLIP_AFTER),
            ("SEEK_ANY", tls::SEEK_ANY),
            ("SEEK_LESS", tls::SEEK_LESS),
        ] {
            assert_eq!(
                defined(page, &format!("TLS_{name}")),
                u64::from(place),
                "{name}"
            );
        }
    }

    #[test]
    fn a_number_of_a_header_is_read_in_each_form() {
        let header =
            "#define A_B 1\n#define A 0x2a0ull /* why */\n#define C (1u << 16)\n#define D 16u\n";
        let read = |name| defined(header, name);
        assert_eq!((read("A_B"), read("C"), read("D")), (1, 1 << 16, 16));
        // A name that another begins with is not that one.
        assert_eq!(read("A"), 0x2a0);
    }
}
