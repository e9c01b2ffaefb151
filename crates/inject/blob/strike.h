/* Strike: layouts shared by the code that runs inside a target and crates/inject/src/payload.rs.
 *
 * One memfd, mapped into the target near each patched module: this control block, then faults,
 * sites, records of hits, and counters, which payloads reach by displacement.
 *
 * Invariant: the injector writes faults and sites before the target's first instruction and
 * never again; the target writes records and counters.
 */
#ifndef SI_STRIKE_H
#define SI_STRIKE_H
#include <stdint.h>
#include <stddef.h>

#define SI_MAGIC 0x5453464a45434e49ull
#define SI_FAULTS_MAX 64u
#define SI_OFF_FAULTS 0x1000ull
#define SI_OFF_HITS 0x6000ull
#define SI_OFF_COUNTERS 0x8000ull /* [fault] executions left, then [fault] nothing to finish */
#define SI_OFF_AFTER 0x8400ull
#define SI_OFF_SITES 0x10000ull
#define SI_SITES_MAX 16384u

enum si_what {
	SI_NONE = 0,
	SI_REG,     /* general register `reg` of the site; 16: rflags */
	SI_VECTOR,  /* vector register `reg`, mask over its 512 bits */
	SI_KMASK,
	SI_MXCSR,
	SI_FSBASE,
	SI_MEM,
	SI_WVAL,    /* memory whose address is worked out before the instruction, hit after it */
	SI_ADDR,    /* what `place` works out to, by way of register `reg` */
	SI_IP,
	SI_CRASH,
	SI_STOP,
	SI_HANG,
	SI_KILL,
	SI_SKIP,
	SI_REPEAT,
	SI_INVERT,
};

enum si_undo { SI_U_NONE = 0, SI_U_BITS, SI_U_COMPARE, SI_U_DELTA };
#define SI_REG_NONE 0xff
#define SI_REG_FLAGS 16
enum si_from { SI_F_REGS = 0, SI_F_FS };

struct si_place {
	uint8_t from, base, index, scale, pointers, spare[3];
	int64_t disp[5];
};

/* What all sites of a fault share. */
struct si_fault {
	uint64_t first, last, step;
	uint64_t one_in, seed; /* one_in 0: every candidate hits */
	uint64_t cpus[4];      /* all zero: any */
	uint64_t next;         /* the execution that its counter leads to; written by the target */
	uint64_t change;       /* 0 invert, 1 force to zero, 2 force to one */
	uint64_t spare[21];
};

/* One instruction of a fault. */
struct si_site {
	uint32_t fault, what;
	uint64_t mask[8];
	struct si_place place;
	uint64_t addr, next, target; /* next: where execution goes on when the instruction is left out */
	uint64_t undo;
	uint8_t once, reg, undo_how, signal, condition, spare1[3];
	uint64_t kept[2];       /* address, value before: for the finish phase; written by the target */
	uint64_t delta, spare2;
	uint64_t spare[4];
	uint8_t bytes[64], made[64];
};

/* The first hit of a fault, and how many there were. */
struct si_hit {
	uint64_t hits, n, tsc, addr, before, after;
	uint32_t cpu, missed;
	uint64_t pid;
};

/* At offset 0: what the injector tells the code. */
struct si_head {
	uint64_t magic;
	uint32_t ymm, kmask, zmm_high, zmm_more; /* places in the vector image */
	uint64_t xmask;
	uint64_t lost; /* hits given up because the code was busy */
};

_Static_assert(sizeof(struct si_place) == 48, "crates/inject/src/payload.rs");
_Static_assert(sizeof(struct si_fault) == 256, "crates/inject/src/payload.rs");
_Static_assert(sizeof(struct si_site) == 352, "crates/inject/src/payload.rs");
_Static_assert(sizeof(struct si_hit) == 64, "crates/inject/src/payload.rs");
_Static_assert(SI_OFF_FAULTS + SI_FAULTS_MAX * 256 <= SI_OFF_HITS, "faults fit");
_Static_assert(SI_OFF_HITS + SI_FAULTS_MAX * 64 <= SI_OFF_COUNTERS, "hits fit");
#endif
