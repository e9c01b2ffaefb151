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
#include <stddef.h>
#include <stdint.h>
#include "layout/abi.h"
#include "fault.h"

enum sf_flip_when {
	SF_T_SITE = 0,
	SF_T_EVENT,   /* before the claim */
	SF_T_VOTED,   /* between vote and kernel */
	SF_T_CLAIM, /* the claim's record, after its CRC was made and before it is published */
	SF_T_RESULT,  /* the same of the result's record, or a follower before it reads it */
	SF_T_TICK,    /* when the launcher says so, wherever the program is; only between `next` and `target`, if that is not 0 */
};

/* Of a payload's descriptor: its instruction is done; and the payload has a strike of its own before
 * its last SF_FLIP_TRAILER bytes, since instructions of a class differ in their operands. */
#define SF_FLIP_DONE (1u << 16)
#define SF_FLIP_OWN (1u << 17)
#define SF_FLIP_TRAILER 4

/* One fault, its `when` an enum sf_flip_when and its `agent` set where it strikes the agent's own
 * registers. Its hits: struct sf_hit (fault.h), `addr` being where it struck. */
struct sf_flip {
	uint32_t slots; /* bit per replica that it strikes */
	uint32_t spare;
	uint64_t event;
	struct sf_choice choice;
	struct sf_strike strike;
	uint64_t spare2;
};

struct sf_flip_notes {
	uint64_t alarm_tsc; /* when the newest alarm was raised */
	/* The execution that a counter leads to next, for who is made again; 0: none has hit yet. */
	uint64_t next[SF_FLIPS_MAX][SF_REPLICAS_MAX];
	uint32_t due[SF_REPLICAS_MAX]; /* flips whose time has come: a bit for each, taken by the replica */
};

_Static_assert(sizeof(struct sf_group) <= SF_OFF_FLIPS, "control block ends before the flips");
_Static_assert(sizeof(struct sf_flip) == 256, "shared with crates/replica/src/flips.rs");
_Static_assert(SF_OFF_FLIPS + SF_FLIPS_MAX * 256 <= SF_OFF_FLIP_HITS, "flips fit");
_Static_assert(SF_OFF_FLIP_HITS + SF_FLIPS_MAX * SF_REPLICAS_MAX * 64 <= SF_OFF_FLIP_NOTES, "hits fit");
_Static_assert(SF_OFF_FLIP_NOTES + sizeof(struct sf_flip_notes) <= SF_OFF_CLAIMS, "notes fit");
_Static_assert(offsetof(struct sf_flip_notes, due) == 8 + 8 * SF_FLIPS_MAX * SF_REPLICAS_MAX, "shared with crates/replica/src/flips.rs");
#endif
#endif
