/* Flip: layouts of injected faults, shared with crates/replica/src/flips.rs.
 *
 * The launcher compiles each `--flip` line to one struct sf_flip in the shared control block;
 * agents only read it. A replica counts executions in its own %gs page, where the payload of a
 * hook can reach the counter without a register, a flag or a byte of stack to spare.
 *
 * Invariant: one writer per record. The launcher writes flips (addresses of a library when the
 * library is mapped, which is before its code can run); replica `slot` writes its own hits.
 */
#ifndef SF_FLIP_H
#define SF_FLIP_H

#define SF_FLIPS_MAX 16u
#define SF_OFF_FLIPS 0xC000ull
#define SF_OFF_FLIP_HITS 0xD000ull /* [flip][slot below SF_REPLICAS_MAX] */
#define SF_OFF_FLIP_NOTES 0xF000ull
/* Room for hooks in the agent's own code: behind its image, and the agent's by address. */
#define SF_FLIP_ARENA 0x2a0001000000ull
#define SF_AGENT_END 0x2a0002000000ull

/* The thread page, second half: plain numbers, since payloads are assembled from them. */
#define TLS_FLIP_RCX 2048
#define TLS_FLIP_DESC 2056
#define TLS_FLIP_RSP 2064
#define TLS_FLIP_RIP 2072
#define TLS_FLIP_COUNT 2176 /* executions left until flip i hits */
#define TLS_FLIP_AFTER 2304 /* 0: flip i has something to do behind its instruction */

#ifndef __ASSEMBLER__
#include <stdint.h>
#include "abi.h"

enum sf_flip_what {
	SF_X_NONE = 0,
	SF_X_REG,     /* general register `reg`; 16: rflags */
	SF_X_VECTOR,  /* register `reg`, mask over its 512 bits */
	SF_X_KMASK,
	SF_X_MXCSR,
	SF_X_FSBASE,
	SF_X_MEM,
	SF_X_WVAL,    /* memory whose address is worked out before the instruction, hit after it */
	SF_X_ADDR,    /* what `place` works out to, by way of register `reg` times `scale` */
	SF_X_IP,
	SF_X_CRASH,
	SF_X_STOP,
	SF_X_HANG,
	SF_X_KILL,
	SF_X_SKIP,
	SF_X_REPEAT,
	SF_X_INVERT,
};

enum sf_flip_when {
	SF_T_SITE = 0,
	SF_T_EVENT,   /* before the arrival */
	SF_T_VOTED,   /* between vote and kernel */
	SF_T_ARRIVAL, /* the arrival's record, after its CRC was made and before it is published */
	SF_T_RESULT,  /* the same of the result's record, or a follower before it reads it */
};

enum sf_flip_undo {
	SF_U_NONE = 0,
	SF_U_BITS,    /* bits of `undo` come back: the instruction does not write them */
	SF_U_COMPARE, /* comes back if it is still what the fault made of it */
	SF_U_DELTA,   /* the instruction adds to it: take the difference off again */
};

#define SF_REG_NONE 0xff
#define SF_REG_FLAGS 16

enum sf_place_from { SF_PL_UNKNOWN = 0, SF_PL_REGS, SF_PL_FS, SF_PL_ENTRY };

/* An address: registers and a displacement, then up to four pointers followed. */
struct sf_place {
	uint8_t from, base, index, scale, pointers, spare[3];
	int64_t disp[5];
};

struct sf_flip {
	uint32_t what;
	uint32_t slots; /* bit per replica that it strikes */
	uint64_t first, last, step;
	uint64_t one_in, seed; /* one_in 0: every candidate hits */
	uint64_t event;
	uint64_t cpus[4];
	uint64_t mask[8];
	struct sf_place place;
	uint64_t site, next, target; /* next: where execution goes on when the instruction is left out */
	uint64_t undo;
	uint8_t when, change, once, reg, undo_how, signal, condition, agent;
	uint64_t spare[2];
};
#define SF_CHANGE_FLIP 0
#define SF_CHANGE_STUCK0 1
#define SF_CHANGE_STUCK1 2

/* The first hit of a flip in a replica, and how many there were. */
struct sf_flip_hit {
	uint64_t hits;
	uint64_t n; /* execution or event */
	uint64_t tsc;
	uint64_t ip;
	uint64_t before, after; /* the 64 bits around the lowest one hit */
	uint32_t cpu;
	uint32_t missed; /* times that the place could not be reached: no hits */
	uint64_t spare;
};

struct sf_flip_notes {
	uint64_t alarm_tsc; /* when the newest alarm was raised */
};

_Static_assert(sizeof(struct sf_group) <= SF_OFF_FLIPS, "control block ends before the flips");
_Static_assert(sizeof(struct sf_place) == 48, "shared with crates/replica/src/flips.rs");
_Static_assert(sizeof(struct sf_flip) == 256, "shared with crates/replica/src/flips.rs");
_Static_assert(sizeof(struct sf_flip_hit) == 64, "shared with crates/replica/src/flips.rs");
_Static_assert(SF_OFF_FLIPS + SF_FLIPS_MAX * 256 <= SF_OFF_FLIP_HITS, "flips fit");
_Static_assert(SF_OFF_FLIP_HITS + SF_FLIPS_MAX * SF_REPLICAS_MAX * 64 <= SF_OFF_FLIP_NOTES, "hits fit");
_Static_assert(SF_OFF_FLIP_NOTES + sizeof(struct sf_flip_notes) <= SF_OFF_ARRIVALS, "notes fit");
#endif
#endif
