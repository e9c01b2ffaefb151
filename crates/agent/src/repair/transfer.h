/* Transfer: what a transplant carries besides memory. */
#ifndef SF_TRANSFER_H
#define SF_TRANSFER_H

#include "layout/state.h"

struct sf_transfer {
	u64 next, base;
	struct sf_regs regs;
	struct sf_mirror app;
	u64 fs_base;
	u64 doing, doing_desc;
	u64 tsc_traps, slot;
	u64 tls_budget, tls_aim;
	u64 tls_rcx, tls_desc, tls_ea; /* of a trampoline that it may stand in */
	u64 holds, ticket, spent, ready; /* of struct sf_me: whether it has the baton of its domain, and its part of the turn */
	struct sf_traps traps;
	u64 fp_bytes;
	u8 fp[16384] __attribute__((aligned(64)));
};
#define TRANSFER ((struct sf_transfer *)(SF_SHARED + SF_OFF_TRANSFER))
#define SEEK_WORDS ((const volatile struct sf_seek_words *)(SF_SHARED + SF_OFF_SEEK_WORDS))
_Static_assert(SF_OFF_TRANSFER + sizeof(struct sf_transfer) <= SF_OFF_SEEK_WORDS, "a state, then words");
_Static_assert(SF_OFF_SEEK_WORDS + sizeof(struct sf_seek_words) <= SF_OFF_TRANSFER + 65536, "words, then what recover.c lists");

#endif
