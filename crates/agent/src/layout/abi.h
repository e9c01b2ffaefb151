/* Shared layouts: what the agent in every replica and the launcher agree on.
 *
 * The group lives in one memfd that every replica maps at SF_SHARED. It holds, in order:
 * the control block (struct sf_group), one ring of claims per replica slot, the linear
 * log of results, and the payload area that results point into.
 *
 * Invariants
 *  1. A record is valid when seq is the index asked for, seq_inv is its complement and
 *     the CRC fits; writers store seq last (x86 stores are seen in order).
 *  2. Only its owner writes a claim ring; only the leader writes results and payload.
 *     The launcher writes either only while every replica is paused.
 *  3. Layout is checked on both sides at compile time: crates/replica/src/abi.rs.
 *
 * Not covered: a process that may write the memfd and means harm. The fault model is
 * hardware, not attackers (docs/fault-model.md).
 */
#ifndef SF_ABI_H
#define SF_ABI_H

#include <stdint.h>

#define SF_ABI_VERSION 1u
#define SF_MAGIC 0x5354454144464153ull /* "STEADFAS", big-endian spelling */

/* 42 TiB: outside every default mmap, brk, ASan, MSan and TSan range of x86-64 Linux. */
#define SF_BASE 0x2a0000000000ull
#define SF_SHARED 0x2a1000000000ull

#define SF_REPLICAS_MAX 8u
/* Signals in the leader's hand: one, two where a mask was just being set, and one of each kind of fault, which the
 * kernel is never told to block. */
#define SF_HAND_MAX 8u
#define SF_SIGINFO_WORDS 16u /* siginfo_t */
#define SF_FAULTS_MAX 64u
#define SF_SLOTS_MAX 12u /* replicas and up to four re-runs that vote as well */
#define SF_RING 64u      /* claims kept per slot: how far the leader may run ahead */
#define SF_RESULTS_MAX 65536u
#define SF_RESULTS_SOFT 8192u /* where nothing is retained: half of a small second-level cache */

/* The payload area is sparse memory: pages never touched cost nothing. A call whose
 * output alone exceeds it is shortened (docs/reference/limits-run.md). */
#define SF_PAYLOAD_BYTES (256ull << 20)
#define SF_READ_MAX (SF_PAYLOAD_BYTES / 2) /* what one call may bring */
#define SF_PAYLOAD_REST (2ull << 20) /* what else a result may carry: names, messages' headers, patches, a signal */
#define SF_PAYLOAD_SOFT (2ull << 20) /* above this the log is reset at the next event */

#define SF_OFF_CLAIMS 0x10000ull
#define SF_OFF_RESULTS 0x40000ull
#define SF_OFF_PAYLOAD 0x800000ull
/* Registers, vector state and mappings on their way between replicas. */
#define SF_OFF_TRANSFER (SF_OFF_PAYLOAD + SF_PAYLOAD_BYTES)
#define SF_TRANSFER_BYTES (4ull << 20)
/* Its upper half: pages of files as they were at the newest snapshot (shared.c). */
#define SF_UNDO_BYTES (2ull << 20)
#define SF_OFF_UNDO (SF_OFF_TRANSFER + SF_TRANSFER_BYTES - SF_UNDO_BYTES)
/* Below it: the vector state of a parent whose child stands in for it (spawn.c). */
#define SF_OFF_PARENT_FP (SF_OFF_UNDO - 16384)
#define SF_SHARED_BYTES (SF_OFF_TRANSFER + SF_TRANSFER_BYTES)
/* The agent's addresses end behind these: the stage of private.c, the remembered digests of
 * epoch.c, and of each file that the program maps shared what is in it and the leader's way to
 * it (shared.c). Only some runs use them. */
#define SF_DOMAIN (SF_SHARED + (1ull << 35)) /* whose turn it is among processes that share memory (domain.c) */
#define SF_PARKED_AT 256u /* in that page: threads that wait for a word of several processes (parked.c) */
#define SF_PARKED_MAX 79u
#define SF_TREE (SF_DOMAIN + 4096) /* a page: whose turn it is among the processes of a pair's program (storage.c) */
#define SF_STAGE (SF_SHARED + (1ull << 36))
#define SF_SHADOW (SF_SHARED + (1ull << 40))
#define SF_SHADOW_BYTES (1ull << 39)
#define SF_REFS (SF_SHARED + (2ull << 40))
#define SF_WINDOWS (SF_REFS + (1ull << 40))
#define SF_OWN_END (SF_WINDOWS + (1ull << 40))
#define SF_LAUNCHER_RESTS (1u << 31) /* in `sleepers`: the launcher sleeps until a replica comes to an event */
#define SF_KEEPER_SLOT 11u /* commands to the keeper; never votes */

/* Two replicas keep this much before they take a new snapshot and drop it, whatever that
 * costs; programs that read less than this in one gap between snapshots never get here. */
#define SF_RETAIN_SOFT (32ull << 20)
#define SF_RETAIN_EVENTS (SF_RESULTS_MAX / 4 * 3)

enum sf_kind {
	SF_K_SYSCALL = 1, /* nr is the call */
	SF_K_ENTROPY,     /* nr is the instruction (enum sf_insn) */
	SF_K_FAULT,       /* nr is the signal of a synchronous fault */
	SF_K_CHECK,       /* memory digests of an epoch */
	SF_K_SIGNAL,      /* delivery of an asynchronous signal */
	SF_K_WRITEBACK,   /* stores to shared file mappings are about to reach their files */
	SF_K_TURN,        /* of processes that share memory this one comes next (domain.c) */
};

enum sf_insn {
	/* numbers of SiteKind in crates/patch */
	SF_I_RDTSC = 3,
	SF_I_RDTSCP,
	SF_I_CPUID,
	SF_I_RDRAND,
	SF_I_RDSEED,
	SF_I_RDPID,
	SF_I_XBEGIN,
};

/* What replica `slot` claims about event `seq`. First line: what the vote reads. */
struct sf_claim_record {
	uint64_t seq;
	uint64_t seq_inv;
	uint32_t nr;
	uint16_t kind;
	uint16_t thread;
	uint32_t crc;
	uint32_t slot;
	uint64_t ip;
	uint64_t state;    /* number, arguments, callee-saved registers, rsp, top of stack */
	uint64_t bytes[2]; /* 128-bit digest of what the arguments point to */
	/* second line: for the report only */
	uint64_t args[6];
	uint64_t sp;
	uint64_t regs; /* digest of callee-saved registers and stack top alone */
} __attribute__((aligned(64)));

#define SF_R_RESET 1u    /* the log starts again after this entry */
#define SF_R_EPOCH 2u    /* a memory check follows as the next event */
#define SF_R_SIGNAL 4u   /* payload is a signal to deliver before the call is made */
#define SF_R_PATCH 8u    /* payload starts with a patch plan for new code */
#define SF_R_BARRIER 16u /* the leader waits until every follower has done this one */
#define SF_R_MORE 64u    /* a signal event follows: more may have to be delivered */
#define SF_R_SHARED \
	128u /* payload starts with a struct sf_shared_file; of a write: with struct written (written.c); of shmget(2): the
			  * program has made the segment */
#define SF_R_WROTE 256u /* a write-back; payload is what part of memory it was of */
#define SF_R_REST 512u /* a repair has cut the call short: the rest of it is the next event */
#define SF_R_LOOK 1024u /* a look follows at which other threads could go on */
#define SF_R_PARK 2048u /* the call would wait, and another thread goes on: aux is its limit, ret when to try it again */
#define SF_R_TURN 8192u /* another thread has its turn */
#define SF_R_SPAWNED 4096u /* a child of vfork(2) has left: the parent's call returns this result; in a pair: a process was made */
#define SF_R_SETTLE 16384u /* what others have stored to a mapped file follows as the next event (settle.c) */
#define SF_R_RESTART 32u /* the call is made again after the signal */
#define SF_R_PARTS \
	32768u /* the call is made of others, as ret and aux say (parts.c); of a write: what mapped memory shows of it leads (shown.c) */

struct sf_result {
	uint64_t seq;
	uint64_t seq_inv;
	int64_t ret;
	uint64_t agreed; /* claim.state ^ claim.bytes[0], that every replica voted for */
	uint32_t out_len;
	uint32_t out_off;
	uint32_t nr;
	uint16_t flags;
	uint16_t spare;
	uint32_t crc;
	uint32_t payload_crc;
	uint64_t aux;
} __attribute__((aligned(64)));

enum sf_phase {
	SF_P_EMPTY = 0,
	SF_P_STARTING,
	SF_P_RUNNING,
	SF_P_PAUSED,  /* in the agent, executing the launcher's commands */
	SF_P_EXITING,
	SF_P_DEAD,
};

/* What a process shares with others (domain.c). */
#define SF_D_ANONYMOUS 1u
#define SF_D_NAMED 2u /* ... files or System V segments among it */
#define SF_D_LOST 3u  /* ... and nobody knows all of it */

/* A child whose leader the launcher can make again (ward.c). */
#define SF_WARDS_MAX 64u
#define SF_FORKED_MAX 64u
enum sf_ward_state {
	SF_W_FREE,
	SF_W_CLAIMED,
	SF_W_KEPT,   /* its leader lives, or is not known to have died */
	SF_W_PROXY,  /* a proxy has taken its number */
	SF_W_ENDED,  /* the proxy is to end, as `status` says */
	SF_W_FAILED, /* there is no proxy, and its leader is gone */
	SF_W_GONE,   /* its parent has been told of its end */
	SF_W_ADOPT,  /* its parent was made again, which is to have a proxy for it as a child */
	SF_W_ADOPTED,
};
struct sf_ward {
	int32_t pid; /* with its complement behind it, as the leader that signals are passed on to */
	uint32_t pid_inv;
	int32_t leader;
	uint32_t leader_inv;
	uint32_t state, status;
	int32_t proxy; /* of one that was adopted: the proxy's number, and whether `status` says how it is to end */
	uint32_t proxy_inv;
	uint32_t over;
	uint32_t any_number; /* an ordinary user's: the proxy cannot have the child's */
	uint32_t looked, spare; /* the launcher has read what the kernel knows of the leader that has ended */
};

enum sf_cmd {
	SF_C_NONE = 0,
	SF_C_VOTE,    /* count the claims of event alarm_seq and write losers */
	SF_C_FORK,    /* leader: create the follower of slot `arg` as a copy of itself */
	SF_C_SEND,    /* write registers and the agent's replicated state to the transfer area */
	SF_C_RECEIVE, /* take them from there; memory has been copied by the launcher */
	SF_C_RESUME,  /* leave the pause and start the current event again */
	SF_C_RERUN,   /* snapshot: a copy of it runs as slot `arg` on core `arg2` up to rerun_until */
	SF_C_EXIT,
	SF_C_SPAWN,   /* keeper: make a new, empty leader */
	SF_C_REMAP,   /* new leader: make the mappings listed in the transfer area */
	SF_C_TOUCH,   /* read the byte at `arg`: a stack grows down to it */
	SF_C_HASH,    /* digest of all memory, to slot.hash */
	SF_C_DROP,    /* give the copy of the page at `arg` back: it is the file's again */
	SF_C_KEEPER,  /* leader: leave another keeper behind */
	SF_C_SEEK,    /* go on to where the transfer area says, and pause again: at most `arg` instructions, as `arg2`
	               * (enum sf_seek) has it */
	SF_C_HEAR,    /* when resumed: hear signals here, where all replicas stand; `arg` 1: another thread has its turn */
	SF_C_PATCH,   /* apply the plan that stands `arg` behind the start of the shared memory, `arg2` bytes */
	SF_C_LEAD,    /* secondary of a pair whose primary is lost: lead, in slot 0, from the event that it waits at (storage.c);
	               * `arg` 1, and the primary: only say whether the other site could */
	SF_C_GIVE,  /* of a pair, alone: begin the log anew, and write what a site that comes back needs to SF_OFF_HELD (join.c) */
	SF_C_TAKE,  /* that site: make the descriptors that stand there */
	SF_C_INHERIT, /* end the turn of the dead replica `arg` (domain.c); answers whether its successor has the baton */
	SF_C_SEGMENTS, /* that successor, and a site that joins: attach the segments listed in the transfer area */
	SF_C_POOL, /* a site that joins: make the descriptors that stand at SF_OFF_HELD, for all of its processes (join.c) */
	SF_C_BEAR, /* ... and a process that is nobody: `arg` is its group's memory, `arg2` the number that the program knows it by,
	            * and SF_ORPHAN if its parent has ended */
	SF_C_WATCH, /* new leader: tell sets for polling anew of the `arg` descriptors listed in the transfer area (struct sf_polled) */
};
#define SF_ORPHAN (1ull << 32)
#define SF_UNDER_WAY 1000000 /* of SF_C_GIVE: crates/replica/src/abi.rs */

/* How a state is looked for: one instruction at a time, or at a payload that was planted there. */
enum sf_seek {
	SF_SEEK_HERE = 0, /* also here */
	SF_SEEK_ON,       /* not here */
	SF_SEEK_PLACE,    /* any state at the payload */
	SF_SEEK_FREE,     /* that state there */
	SF_SEEK_NEXT,     /* any state there, but not this one */
};

#define SF_SEEK_WORDS 8u
struct sf_seek_words {
	uint64_t payload; /* the number of the one where the state is */
	uint64_t n;       /* and what memory has there */
	struct {
		uint64_t at, value;
	} word[SF_SEEK_WORDS];
};
#define SF_OFF_SEEK_WORDS (SF_OFF_TRANSFER + 61440)

/* A pair: what the primary's launcher and the ledgers have to know of a storage call (storage.c). One for each
 * event that may be in flight; written by the primary's agent before the event's result, and by the relay on the
 * secondary's side. In place of the pages of SF_OFF_UNDO, which are of files that are mapped shared: a pair refuses those. */
enum sf_note_kind {
	SF_N_NONE = 0,
	SF_N_OPEN,
	SF_N_CLOSE,
	SF_N_DUP,
	SF_N_READ,
	SF_N_WRITE,
	SF_N_SYNC,
	SF_N_TRUNCATE,
	SF_N_ALLOCATE,
	SF_N_OTHER,
	SF_N_NAME,
	SF_N_NEW, /* a descriptor of something that is no file: the secondary makes one to have when it leads */
	SF_N_STATE,
				/* ... and sets it up alike */
};
struct sf_note {
	uint64_t seq;
	uint32_t kind;
	int32_t fd;
	uint64_t off; /* of the file; NAME: the call */
	uint64_t len; /* bytes moved; OPEN: the file's size; DUP: the old descriptor; NAME: a length, or flags */
	uint32_t extra_off, extra_len; /* of the result's payload: names, or pages as they were and the bytes written */
	uint32_t parts; /* WRITE, TRUNCATE: 1 a first page, 2 a last page comes before the bytes, 4 it is as it is after */
	uint32_t class;
	uint64_t spare[2];
} __attribute__((aligned(64)));
#define SF_PREFIX_BYTES 4096u
struct sf_pair {
	uint64_t fixed; /* the event whose payload the launcher has put right */
	uint64_t random[2]; /* AT_RANDOM of both sites */
	uint32_t carried, dropped; /* connections that a secondary which leads went on with, and could not */
	char prefixes[SF_PREFIX_BYTES]; /* protected directories, each with its NUL; an empty one ends them */
	struct sf_note note[SF_RING];
	/* Of a tree of processes (storage.c): the event at which the primary became another program, the segment that SF_TREE
	 * shows, and what the program before this one has left open. */
	uint64_t exec_seq;
	int32_t tree;
	uint32_t inherits;
	uint8_t classes[1024];
	/* Reads at a place of their own from one exchange to the next; late: the primary waits for what the last one had alone. */
	uint32_t every, late;
	/* What the program before this one has set for its process (struct sf_kernel_state, without its timers). */
#define SF_PAIR_KEPT 3592u
	uint8_t kept[SF_PAIR_KEPT];
};
#define SF_OFF_PAIR SF_OFF_UNDO
_Static_assert(__builtin_offsetof(struct sf_pair, kept) == 9304, "crates/replica/src/site/process.rs");
_Static_assert(__builtin_offsetof(struct sf_pair, every) == 9296, "crates/replica/src/site.rs");
_Static_assert(__builtin_offsetof(struct sf_pair, exec_seq) == 8256, "crates/replica/src/site/process.rs");

/* Of one site, for all processes of its program. */
struct sf_tree {
	uint32_t owner;     /* the process whose call it is, or 0 */
	uint32_t processes; /* that have been made, the first one not counted */
	/* Files of a tmpfs that the program has made, each device and inode: the last ones (segment.c). */
#define SF_TREE_MADE 256u
	uint32_t made_n, spare;
	uint64_t made[SF_TREE_MADE][2];
	/* Of the secondary: the number that the program knows a process by, and above it its own; 0: free (crew.c). */
#define SF_TREE_NUMBERS 1024u
	uint64_t number[SF_TREE_NUMBERS];
	uint64_t changes; /* of names on this site, by all processes (storage.c) */
	/* What the program has made of System V: the number that it knows each by, and above it this site's own, both plus one; 0:
	 * free (ipc.c). */
#define SF_TREE_IPC 128u
	uint64_t ipc[3][SF_TREE_IPC];
	/* What the kernel takes back of a semaphore when a process of this site ends (semop(2), SEM_UNDO); process 0: free. By the
	 * program's number of the set. undo_lost: there were more. */
#define SF_TREE_UNDO 256u
	struct sf_owed {
		uint32_t process;
		int32_t set;
		uint16_t which;
		int16_t by;
	} undo[SF_TREE_UNDO];
	uint32_t undo_lost, spare_undo;
	/* Files that processes of this site have mapped, shared; process 0: free. shown_lost: there were more (shown.c). */
#define SF_TREE_SHOWN 64u
	struct sf_sight {
		uint64_t dev, ino;
		uint32_t process, spare;
	} shown[SF_TREE_SHOWN];
	uint32_t shown_lost, spare_shown;
};
enum { SF_IPC_SEGMENT, SF_IPC_SET, SF_IPC_QUEUE };
#define SF_TREE_BYTES 20480u
_Static_assert(sizeof(struct sf_tree) <= SF_TREE_BYTES, "crates/replica/src/site/process.rs, turns");
_Static_assert(__builtin_offsetof(struct sf_tree, made) == 16, "crates/replica/src/site/named.rs");
_Static_assert(__builtin_offsetof(struct sf_tree, ipc) == 12312, "... as well");
_Static_assert(__builtin_offsetof(struct sf_tree, undo) == 15384 && sizeof(struct sf_owed) == 12, "crates/replica/src/site/objects.rs");
_Static_assert(__builtin_offsetof(struct sf_tree, undo_lost) == 18456, "... as well");

/* A descriptor of a program whose other site comes back. */
#define SF_HELD_OPTIONS 14u
struct sf_held {
	int32_t fd, as; /* as: another one of the same open file, a lower one or one of the pool, or -1 */
	uint32_t class, flags, cloexec;
	uint32_t domain, type, protocol, backlog, own_len;
	uint32_t set; /* a bit for each option that is known */
	int32_t option[SF_HELD_OPTIONS];
	uint32_t text, text_len; /* in the area: a path, or what a connection has not been acknowledged */
	uint64_t place; /* of the file; which pipe or pair; which signals; which stream of this site */
	uint8_t own[28], line[92]; /* struct sf_line */
} __attribute__((aligned(64)));
/* What a set for polling waits for. */
struct sf_polled {
	int32_t set, fd;
	uint32_t events, spare;
	uint64_t data;
};
#define SF_HELD_MAX 1024u
#define SF_POLLED_MAX 4096u
struct sf_held_area {
	uint32_t n, polled_n;
	uint64_t end; /* bytes of the area that are in use */
	uint32_t mask; /* umask(2) */
	uint32_t pool; /* a joiner's: what several processes have in common stands from this number on until each has its own; or 0 */
	uint64_t clock; /* CLOCK_MONOTONIC of the survivor */
	char directory[4096];
	uint64_t tickets, turn; /* of processes that share memory: the words of domain.c */
	uint64_t sum, sum_registers; /* CRC32C of the rest of it up to `end`, and of what SF_OFF_TRANSFER has up to SF_OFF_SEEK_WORDS */
	struct sf_held held[SF_HELD_MAX];
	struct sf_polled polled[SF_POLLED_MAX];
};
/* Where the log has nothing: it has just begun anew, or not begun. */
#define SF_OFF_HELD SF_OFF_PAYLOAD
_Static_assert(sizeof(struct sf_held) == 256 && __builtin_offsetof(struct sf_held, place) == 112, "crates/replica/src/site/open.rs");
_Static_assert(__builtin_offsetof(struct sf_held, text) == 100 && __builtin_offsetof(struct sf_held_area, pool) == 20, "... as well");
_Static_assert(__builtin_offsetof(struct sf_held_area, sum) == 4144 && __builtin_offsetof(struct sf_held_area, held) == 4160,
	       "crates/replica/src/site/join.rs");
_Static_assert(sizeof(struct sf_note) == 64, "shared with crates/replica/src/site/step.rs");

/* One per slot, on its own lines: `bell` and what its owner publishes. */
struct sf_replica {
	uint32_t phase;
	uint32_t bell;     /* futex: bumped when something this slot waits for has happened */
	uint32_t sleeping; /* this slot sleeps on bell */
	uint32_t cmd;
	uint64_t cmd_seq; /* bumped by the launcher with each command */
	uint64_t cmd_ack; /* copied by the replica when done */
	uint64_t cmd_arg;
	uint64_t cmd_arg2;
	int64_t cmd_ret;
	uint32_t called;  /* set by the launcher before it calls this replica to pause where it computes (`aligning`) */
	uint32_t entered; /* payloads that have led it into the agent while it was seeking, all in all */
	/* second line: written by the replica on every event */
	uint64_t next __attribute__((aligned(64))); /* index of the event it will arrive at next */
	uint64_t done;         /* events below this have been consumed */
	int32_t pid;      /* in the launcher's pid namespace, written by the launcher */
	int32_t init_pid; /* init of this slot's pid namespace, or 0 */
	uint32_t losers;  /* verdict by this replica's own count: bit per slot */
	uint32_t sought; /* SF_C_SEEK has led where it was to lead */
	uint64_t verdict_seq;
	uint64_t hash[2];
	uint64_t again; /* while paused: the event that it starts again */
	/* third line: diagnosis */
	uint64_t fault_addr __attribute__((aligned(64)));
	uint64_t fault_ip;
	uint32_t fault_signo;
	uint32_t fault_code;
	/* Of the leader: the newest event with an effect for which the kernel has acted, and what it
	 * answered. SF_MADE_OUT: bytes came with it, which nobody else has. */
	uint64_t made;
	int64_t made_ret;
	uint64_t slow;    /* events that came through the backstop */
	uint32_t cpu;     /* last known core */
	int32_t exit_status;
	uint64_t own_events; /* of all until now, those of the agent's own: see sf_mirror */
} __attribute__((aligned(64)));

enum sf_end {
	SF_E_RUNNING = 0,
	SF_E_EXITED,   /* agreed exit; end_value is the status */
	SF_E_SIGNALED, /* agreed death; end_value is the signal */
	SF_E_REFUSED,  /* a call that cannot be run protected; end_nr, end_ip, end_arg say which */
	SF_E_SETUP,    /* the agent could not start; end_value is -errno, end_nr the step */
	SF_E_BUG,      /* an assertion of the agent failed; end_nr is the line */
	SF_E_TORN,     /* what the kernel gave and what the log holds differ */
};

enum sf_alarm {
	SF_A_QUIET = 0,
	SF_A_DIVERGED,  /* claims differ */
	SF_A_LOG,       /* a record fails its check */
	SF_A_FAULTED,   /* a replica faulted where others did not arrive */
	SF_A_DIED,      /* the launcher saw a replica die */
	SF_A_HUNG,      /* the launcher's watchdog */
	SF_A_REQUEST,   /* no divergence: the launcher wants everybody paused */
};

/* Requests of the leader to the launcher, answered while it waits. */
enum sf_rpc {
	SF_RPC_NONE = 0,
	SF_RPC_PATCH, /* new executable file mapping: plan its patches */
	SF_RPC_HOLD,  /* keep what descriptor a0 names, if it is inode a2 of device a1; answers a number */
	SF_RPC_DROP,  /* give number a0 back */
	SF_RPC_EXEC,  /* the leader is about to become another program, whose signal mask is a0 and whose path is a2, in
	               * directory a3; answers 0, SF_EXEC_BARE or a number below that refuses it */
	SF_RPC_STAY,  /* it could not, and goes on as it is */
	SF_RPC_SPAWN, /* as SF_RPC_EXEC, of the child a1 of vfork(2) that stands in for the leader */
	SF_RPC_FORK,  /* a group for a copy of every replica; answers the launcher's descriptor of its memory */
	SF_RPC_UNFORK, /* there is no copy: a0 is that descriptor */
	SF_RPC_MADE = 17, /* the program has made inode a1 of device a0 in a tmpfs; a2 1: a memory object; 2: which goes to others */
	SF_RPC_SEGMENT = 18, /* descriptor a0, inode a2 of device a1, is mapped shared by a process of domain a3, up to byte a4 of it:
	               * 0: as a view; else one copy for each follower, numbers in segment_ids, answered with their sum */
	SF_RPC_KILL = 19, /* process a0, or the processes that kill(2) means by it, are about to be killed by the program's will */
	SF_RPC_OTHERS = 20, /* whether another process of the tree has inode a1 of device a0 as a view: 0, 1, or
	                    * SF_OTHERS_IN_TURNS: several of them, which take turns */
	SF_RPC_NAMED = 21, /* the process that leads the one of the tree which the program knows as a0; 0: none, or the same */
	SF_RPC_LATE = 22, /* signal a1, of code a2 and value a3, or 0, came to process a0 when its leader was dead: 1, if it is made
	                   * again, and hears of it then */
	SF_RPC_PARENT = 23, /* the number of the parent that has made this process, if its leader was killed and is made again; or 0 */
	SF_RPC_LIVES = 24, /* whether a process of the tree has number a0: 0, 1 */
	SF_RPC_COPIES = 25, /* of inode a2 of device a1, written to by a process of domain a3: 0, or as SF_RPC_SEGMENT */
	SF_RPC_PAIR_READ = 32, /* secondary, event a0: descriptor a1 gave other bytes at offset a2 than the log holds;
	                        * own result a3, the log's a4. 0: make the read again */
	SF_RPC_PAIR_DIFFERS, /* secondary, event a0: call a1 ended with a2 and not with a3. 0: it may */
	SF_RPC_PAIR_PAGE, /* primary: page a1 of what descriptor a0 names, at a4 of the payload; its length, or the errno */
	SF_RPC_PAIR_SET, /* sets option a2 of level a1 of the socket that descriptor a0 names to a3, which this process may not */
	SF_RPC_PAIR_BIND, /* the same: binds the socket that descriptor a0 names to the address at a1, of a2 bytes */
	SF_RPC_PAIR_FAULTS, /* 0: pages that descriptor a0 (userfaultfd(2)) has closed are opened for whoever stores to them */
	SF_EXEC_BARE = 1, /* an answer: the new program runs unprotected, as --unprotected says */
	SF_RPC_STRUCK = -4096, /* the answer when question and sum differ: no errno */
	SF_RPC_SITE = 16, /* a call came through the backstop: plan a jump at its instruction */
};

struct sf_group {
	uint64_t magic;
	uint32_t version;
	uint32_t replicas; /* N */
	uint32_t alarm;    /* enum sf_alarm; nonzero: everybody pauses at its next chance */
	uint32_t alarm_slot;
	uint64_t alarm_seq;
	uint32_t launcher_bell; /* futex the launcher sleeps on */
	uint32_t go;            /* set by the launcher when all replicas stand */
	uint32_t end;           /* enum sf_end */
	uint32_t end_nr;
	int64_t end_value;
	uint64_t end_ip;
	uint64_t end_arg[6];
	uint32_t end_slot;
	uint32_t spin_tsc;   /* ticks to spin before sleeping */
	uint32_t yields;     /* sched_yield calls between spinning and sleeping */
	uint32_t options;    /* SF_O_* */
	uint32_t stack_top_bytes;
	uint32_t healed;     /* generation: bumped after each recovery */
	uint32_t leader_pid; /* the number all replicas answer to */
	uint32_t nonce;
	uint64_t base;       /* index of the first result in the log, as the leader sees it */
	uint64_t wrote_before; /* bytes the leader's writes had moved before the one in flight */
	uint64_t wrote_seq;    /* the event of that one */
	uint64_t rerun_until; /* event at which re-runs stop and vote */
	uint64_t snapshot_seq; /* first event after the newest snapshot, 0: none */
	uint32_t snapshot_broken; /* a call since then cannot be repeated: events since, from 1 */
	uint32_t epoch_permille;
	uint64_t epoch_tsc;  /* ticks between memory checks; 0: never */
	uint32_t sleepers __attribute__((aligned(64))); /* bit per slot that sleeps on its bell; SF_LAUNCHER_RESTS */
	uint32_t affinity_bytes;
	uint8_t affinity[256]; /* the mask the program sees */
	uint8_t allowed[256];  /* the mask it was started with */
	uint32_t live;      /* bit per slot that takes part in the vote */
	/* request channel */
	uint32_t rpc __attribute__((aligned(64)));
	uint32_t rpc_done; /* futex */
	uint64_t rpc_arg[6];
	int64_t rpc_ret;
	uint32_t rpc_len; /* bytes of the answer at the bounce area */
	struct sf_replica slot[SF_SLOTS_MAX] __attribute__((aligned(64)));
	/* The leader's, for the next one: when timers were set, and which event's call may have
	 * begun to wait, and when, if it has a limit (CLOCK_MONOTONIC, nanoseconds). */
	uint64_t timer_set[32];
	uint64_t begun, begun_at;
	uint64_t meant; /* in a domain: the last event whose claim the leader has found to stand, so that turns end with it */
	uint32_t pdeathsig; /* what the program wants to hear when its parent dies */
	uint32_t dying;  /* a signal that ends the program waits for the leader's next event */
	uint32_t undo_n; /* pages kept at SF_OFF_UNDO */
	uint32_t remade; /* the leader was made anew: its copies of files are memory of its own */
	/* Between launcher and job control: crates/replica/src/job_control.rs. */
	uint32_t beat, standstill, job_bell, job_ask, job_answer;
	uint64_t copy_tsc; /* ticks that copying a page at the first store after a snapshot takes */
	uint64_t copied; /* page faults of the follower that left the snapshot, since then */
	/* Complements of words on which the launcher acts, each stored before its word: a word
	 * without its complement was struck, and nobody meant it. */
	uint32_t end_inv, dying_inv, pdeathsig_inv, spare_inv;
	uint64_t rpc_sum; /* of operation and arguments: sf_rpc_sum() */
	int64_t rpc_ret_inv;
	uint32_t hand;    /* signals for handlers that the leader has taken and no event has taken from it */
	uint32_t aligning; /* replicas that are `called` pause wherever the launcher's nudge finds them computing */
	/* The leader's hand, for the next one: what is in it, and what was attached to a result last, and to which event's. */
	uint64_t held[SF_HAND_MAX][SF_SIGINFO_WORDS];
	uint64_t attached[SF_SIGINFO_WORDS];
	uint64_t attached_to;
	uint32_t held_n;
	uint32_t faults_n; /* SF_FAULTS_MAX + 1: more than can be told */
	/* The child of vfork(2) that makes the leader's calls, or 0. */
	uint32_t stand_in, stand_in_inv;
	uint64_t fault_at[SF_FAULTS_MAX]; /* where faults led to a handler: it may go back there, or near it */
	/* Processes that share memory (domain.c): whether this is one, and of each slot the ticket behind the last one that it
	 * has given back, and whether it holds another. */
	uint32_t domain; /* SF_D_ANONYMOUS and on */
	uint32_t counts; /* passes of payloads that were planted are counted: signals are heard there (thread.c) */
	uint64_t baton_given[SF_SLOTS_MAX];
	uint32_t baton_held[SF_SLOTS_MAX];
	/* The launcher asks, by a number, whether another thread could go on; the leader repeats it, and if so once more. */
	uint32_t threads, look_asked, look_heard, look_found;
	uint64_t settled; /* pages of files that come to the program by events alone (settle.c) */
	uint64_t slice_tsc; /* ticks after which a thread gives way to others */
	int32_t segment_ids[SF_SLOTS_MAX]; /* an answer to SF_RPC_SEGMENT: the file's pages, then copies of followers */
	/* Of a leader that was made again: the parent it had, or 0. Then its own children whose leaders can be (ward.c). */
	int32_t parent;
	uint32_t parent_inv;
	struct sf_ward ward[SF_WARDS_MAX];
	/* The last copies that this leader has made of itself: the group's number (SF_RPC_FORK), and above it the process's. */
	uint64_t forked[SF_FORKED_MAX];
	int32_t parent_process; /* the number of that parent's process by now */
	uint32_t locks; /* numbers that were given to payloads before instructions that may take a lock */
	uint64_t domain_page; /* a program's: one more than the number of the segment that all of its tree have at SF_DOMAIN, or 0 */
	uint64_t unmapped;    /* a copy has not got its own group's memory: that group's number, as in `forked`, and above it the errno */
	/* A leader of the tree has, or had, another number than its program's neighbours know (number.c). */
	uint32_t renumbered, spare_renumbered;
};

/* Of SF_RPC_SEGMENT, in a4: the process is one of a domain; the descriptor is the launcher's own. */
#define SF_SEGMENT_NOW (1ull << 63)
#define SF_SEGMENT_HELD (1ull << 62)
#define SF_SEGMENT_SUM (1ll << 40) /* in the answer, above the sum */
#define SF_OTHERS_IN_TURNS 2 /* an answer to SF_RPC_OTHERS */
#define SF_SEGMENT_NAMELESS 2 /* an answer: the file that is held has no name any more */
#define SF_SEGMENT_OWN 3      /* ... it is a view, of a file that the program has made in a tmpfs */

/* fault_signo of a replica that failed its own check; fault_code is the line. */
#define SF_BUG_SIGNO 0xb06u
#define SF_MADE_OUT (1ull << 63)

#define SF_O_SUD 1u
#define SF_O_SECCOMP 2u
#define SF_O_HUGE 4u
#define SF_O_PRIV_NS 8u   /* followers in private pid and mount namespaces */
#define SF_O_USER_NS 16u  /* ... which need a user namespace */
#define SF_O_RETAIN 32u   /* keep results since the last snapshot */
#define SF_O_CHECK_DIRTY 64u
#define SF_O_CHECK_FULL 128u
#define SF_O_PRIVATE_TEXT 512u /* --private: own physical copies */
#define SF_O_PRIVATE_RODATA 1024u
#define SF_O_PRIVATE_REST 2048u
#define SF_O_LOCKSTEP 256u /* queries wait for agreement too */
#define SF_O_NS_OR_NOT 8192u /* PRIV_NS where they can be had: nobody can start this program a second time */
#define SF_O_TREE 65536u /* the leader is no child of the launcher: it has a keeper once it is, and outlives its parent */
#define SF_O_PAIR 16384u /* this site's group is half of a pair: the other slot lives on another host (storage.c) */
#define SF_O_PAIR_SECONDARY 32768u
#define SF_O_PAIR_JOIN 131072u /* ... of a program that runs: this process is nobody until its memory has come (join.c) */
#define SF_O_FAULTS 262144u /* with CHECK_DIRTY, in a pair: write faults keep the list (epoch.c) */
#define SF_O_PROFILE 4096u /* count executions of every instruction; no backstop */

/* Everything the launcher writes into the agent before it starts. */
/* Sites of entropy instructions on which a breakpoint stands. */
#define SF_TRAPS_MAX 255u
struct sf_traps {
	uint32_t n, spare;
	struct {
		uint64_t addr;
		uint32_t desc, len;
	} at[SF_TRAPS_MAX];
};

/* "Numbers" of things that are no call and are refused like one. */
#define SF_NR_INT80 0x80000080u /* int 0x80, sysenter: 32-bit calls */
#define SF_NR_STEP 0x80000100u  /* the trace flag set by the program itself */
#define SF_NR_PROC_MEM 0x80000101u /* writing another replica's memory through procfs */
#define SF_NR_SHARED_MAP 0x80000102u /* writable memory shared with other processes */
#define SF_NR_TWO_VIEWS 0x80000103u /* the same bytes of a file mapped twice, once writable */
#define SF_NR_EXEC_FILTER 0x80000104u /* exec under a backstop that outlives the agent */
#define SF_NR_EXEC_TRACE 0x80000105u /* exec where the launcher may not trace the leader */
#define SF_NR_EXEC_COUNT 0x80000106u /* exec while the program's instructions are counted */
#define SF_NR_EXEC_LOCKS 0x80000107u /* exec while a record lock is held */
#define SF_NR_PAIR_PROCESS 0x80000120u /* in a pair: another process or program */
#define SF_NR_PAIR_MAP 0x80000121u /* ... a protected file mapped, or any file mapped shared and writable */
#define SF_NR_PAIR_HOLE 0x80000123u /* ... fallocate that cuts or shifts */
#define SF_NR_PAIR_WRITE 0x80000124u /* ... a write of more than 64 MiB at once */
#define SF_NR_PAIR_TRUNCATE 0x80000126u /* ... truncate(2) by name, to a part of a page */
#define SF_NR_PAIR_HANDED 0x80000127u /* ... a file that comes by a message (SCM_RIGHTS) */
#define SF_NR_PAIR_UNREAD 0x80000128u /* ... a write to a part of a page that cannot be read; end_value is why */
#define SF_NR_PAIR_IPC_OTHER 0x80000129u /* ... a set of semaphores or a queue of System V that it has not made */
#define SF_NR_PAIR_SHOWN 0x8000012bu /* ... a file changed that another process has mapped */
#define SF_NR_PAIR_ROOT 0x8000012cu /* ... chroot(2) */
#define SF_NR_PAIR_IPC_MANY 0x8000012au /* ... more of System V than a pair keeps account of */
#define SF_NR_PRIVATE 0x80000108u /* a mapping that --private has no memory to copy */
#define SF_NR_SPAWN_NUMBERS 0x80000109u /* a child where replicas have process numbers of their own */
#define SF_NR_SPAWN_FILTER 0x8000010au /* a child under a backstop that outlives the agent */
#define SF_NR_SPAWN_SHARED 0x8000010bu /* fork with memory that parent and child would share */
#define SF_NR_SPAWN_NESTED 0x8000010cu /* a child of vfork(2) makes another one, and memory is shared */
#define SF_NR_SHARED_WAIT 0x8000010eu /* memory of several processes in a call that waits in another way */
#define SF_NR_SHARED_FILE 0x80000110u /* a file that processes share as memory, changed in another way */
#define SF_NR_SHARED_CHANGE 0x80000111u /* a part of such memory moved, or too many parts */
#define SF_NR_SHARED_ATTACH 0x80000113u /* a segment of System V that others have attached, or made */
#define SF_NR_SHARED_NAMED 0x80000115u /* a file of a tmpfs that processes share by its name, and this one cannot join */
#define SF_NR_SHARED_LOCK 0x80000117u /* a wait for a word of a file that several processes have as views */
#define SF_NR_SPAWN_MEMORY 0x80000112u /* no memory for what parent and child will share */
#define SF_NR_MAP_CLOSED 0x80000116u /* a file mapped that followers may not open */
#define SF_NR_EXEC_BARE 0x80000114u /* exec of a program that runs unprotected, in the first process */
/* The value beside SF_NR_SPAWN_SHARED, with a descriptor of the launcher's, and SF_NR_SHARED_NAMED, with one of the leader's; `err`:
 * why the file cannot be shared, or 0 where its name alone is in the way. */
#define SF_REFUSED_FILE(fd, err) ((s64)((uint64_t)(uint32_t)(fd) << 32 | (uint32_t)(err)))
#define SF_NR_SPAWN_DIED 0x8000010du /* a child of vfork(2) was killed in the middle of an event of the agent's */

struct sf_boot {
	uint64_t regs[18]; /* registers at the exec stop, in the order of struct sf_regs */
	uint64_t vdso_clock_gettime, vdso_gettimeofday, vdso_time, vdso_getcpu, vdso_clock_getres;
	int32_t shared_fd;
	int32_t launcher_pid;
	uint64_t auxv;     /* address of the auxiliary vector */
	uint64_t stack_lo; /* of the initial stack mapping */
	uint64_t secret;
	uint64_t mask;     /* signals blocked for the program by who started it */
	char vdso_ok;
	char fsgsbase; /* the kernel lets programs read and set FS themselves (Linux 5.9, without nofsgsbase) */
	char clocks;   /* program or loader may read the clock by an instruction that keeps its place (memory.c) */
};

_Static_assert(sizeof(struct sf_claim_record) == 128, "shared with crates/replica/src/abi.rs");
_Static_assert(sizeof(struct sf_result) == 64, "shared with crates/replica/src/abi.rs");
_Static_assert(sizeof(struct sf_replica) == 192, "shared with crates/replica/src/abi.rs");
_Static_assert(sizeof(struct sf_group) <= SF_OFF_CLAIMS, "control block fits before the rings");
_Static_assert(SF_OFF_CLAIMS + SF_SLOTS_MAX * SF_RING * 128 <= SF_OFF_RESULTS, "rings fit");
_Static_assert(SF_OFF_RESULTS + SF_RESULTS_MAX * 64 <= SF_OFF_PAYLOAD, "results fit");

#endif
