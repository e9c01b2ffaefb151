/* Fault: what is to happen at an instruction, and what did.
 *
 * Layouts shared by the code that strikes (hit.h) and crates/strike/src/record.rs, which makes
 * and reads them. Images put them into records of their own (crates/agent/src/faults/flip.h,
 * crates/inject/blob/strike.h).
 */
#ifndef SF_FAULT_H
#define SF_FAULT_H
#include <stdint.h>

enum sf_what {
	SF_X_NONE = 0,
	SF_X_REG,     /* general register `reg`; 16: rflags */
	SF_X_VECTOR,  /* register `reg`, mask over its 512 bits */
	SF_X_KMASK,
	SF_X_MXCSR,
	SF_X_FSBASE,
	SF_X_MEM,
	SF_X_WVAL,    /* memory whose address is worked out before the instruction, hit after it */
	SF_X_ADDR,    /* what `place` works out to, by way of register `reg` times its scale */
	SF_X_IP,
	SF_X_CRASH,
	SF_X_STOP,
	SF_X_HANG,
	SF_X_KILL,
	SF_X_SKIP,
	SF_X_REPEAT,
	SF_X_INVERT,
	SF_X_CODE,    /* its own bytes, from here on: it goes back to its place, and is executed there */
};

enum sf_undo {
	SF_U_NONE = 0,
	SF_U_BITS,    /* bits of `undo` come back: the instruction does not write them */
	SF_U_COMPARE, /* comes back if it is still what the fault made of it */
	SF_U_DELTA,   /* the instruction adds to it: take the difference off again */
};

#define SF_REG_NONE 0xff
#define SF_REG_FLAGS 16

/* UNKNOWN: in a module that is not mapped. ENTRY: of the replicas' log. */
enum sf_from { SF_F_UNKNOWN = 0, SF_F_REGS, SF_F_FS, SF_F_ENTRY };

enum sf_change { SF_CHANGE_FLIP = 0, SF_CHANGE_STUCK0, SF_CHANGE_STUCK1 };

/* An address: registers and a displacement, then up to four pointers followed. */
struct sf_place {
	uint8_t from, base, index, scale, pointers, spare[3];
	int64_t disp[5];
};

/* Which executions, of those that a counter leads to. */
struct sf_choice {
	uint64_t first, last, step;
	uint64_t one_in, seed; /* one_in 0: every candidate hits */
	uint64_t cpus[4];      /* all zero: any */
};

struct sf_strike {
	uint32_t what, spare;
	uint64_t mask[8];
	struct sf_place place;
	uint64_t addr, next, target; /* next: where execution goes on when the instruction is left out */
	uint64_t undo;
	uint8_t change, once, reg, undo_how, signal, condition;
	uint8_t when, agent; /* of replicas: crates/agent/src/faults/flip.h */
};

/* What a strike has to remember until the instruction is done. */
struct sf_struck {
	uint64_t at; /* address */
	uint64_t old, delta;
	uint8_t bytes[64], made[64];
};

/* The first hit, and how many there were. */
struct sf_hit {
	uint64_t hits;
	uint64_t n; /* execution or event */
	uint64_t tsc;
	uint64_t addr;
	uint64_t before, after; /* the 64 bits around the lowest one hit */
	uint32_t cpu;
	uint32_t missed; /* times that the place could not be reached: no hits */
	uint64_t pid;
};

_Static_assert(sizeof(struct sf_place) == 48, "crates/strike/src/record.rs");
_Static_assert(sizeof(struct sf_choice) == 72, "crates/strike/src/record.rs");
_Static_assert(sizeof(struct sf_strike) == 160, "crates/strike/src/record.rs");
_Static_assert(sizeof(struct sf_struck) == 152, "crates/strike/src/record.rs");
_Static_assert(sizeof(struct sf_hit) == 64, "crates/strike/src/record.rs");
#endif
