/* Strike: layouts shared by the code that runs inside a target and crates/inject/src/payload.rs.
 *
 * One memfd, mapped into the target near each patched module: this control block, then faults,
 * sites, records of hits (struct sf_hit), and counters, which payloads reach by displacement.
 *
 * Invariant: the injector writes faults and sites before the target's first instruction and
 * never again; the target writes records and counters.
 */
#ifndef SI_STRIKE_H
#define SI_STRIKE_H
#include <stdint.h>
#include "fault.h"

#define SI_MAGIC 0x5453464a45434e49ull
#define SI_FAULTS_MAX 64u
#define SI_OFF_FAULTS 0x1000ull
#define SI_OFF_HITS 0x6000ull
#define SI_OFF_COUNTERS 0x8000ull /* [fault] executions left, then [fault] nothing to finish */
#define SI_OFF_AFTER 0x8400ull
#define SI_OFF_SITES 0x10000ull
#define SI_SITES_MAX 16384u

/* Whom a fault is bound to. */
enum si_who { SI_ALL = 0, SI_PROCESS, SI_THREAD };

/* What all sites of a fault share. */
struct si_fault {
	struct sf_choice choice;
	uint64_t next; /* the execution that its counter leads to; written by the target */
	/* Of one process, or one thread: who != 0, and no counter stands before it. The injector
	 * writes the number when the victim is made, before it executes anything. */
	uint32_t who, pid, tid, spare1;
	uint64_t seen; /* executions by the victim; written by the target */
	/* While something waits to be undone behind an instruction: what the counter would stand at, which
	 * is kept at one so that whoever executes next is met; who was struck, and where. Written by
	 * the target. */
	uint64_t left;
	uint32_t struck_tid, struck_site;
	/* Who has taken the counter's last one while it was kept there, and comes in when all is undone: its
	 * execution is counted already. Written by the target. */
	uint32_t late, spare2;
	uint64_t spare[16];
};

/* One instruction of a fault. */
struct si_site {
	/* beside: bytes of the copy of the instruction at the payload's end, if it has one, in which
	 * an address that the stack pointer forms is wrong (crates/inject/src/payload.rs); moves: what
	 * the instruction adds to the stack pointer. */
	uint32_t fault;
	uint16_t beside;
	int16_t moves;
	struct sf_strike strike;
	struct sf_struck struck; /* written by the target */
};

/* At offset 0: what the injector tells the code. */
struct si_head {
	uint64_t magic;
	uint32_t ymm, kmask, zmm_high, zmm_more; /* places in the vector image */
	uint64_t xmask;
	uint64_t lost; /* hits given up because the code was busy */
};

_Static_assert(sizeof(struct si_fault) == 256, "crates/inject/src/payload.rs");
_Static_assert(sizeof(struct si_site) == 320, "crates/inject/src/payload.rs");
_Static_assert(SI_OFF_FAULTS + SI_FAULTS_MAX * 256 <= SI_OFF_HITS, "faults fit");
_Static_assert(SI_OFF_HITS + SI_FAULTS_MAX * 64 <= SI_OFF_COUNTERS, "hits fit");
#endif
