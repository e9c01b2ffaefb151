/* Faults: those that are injected, and what they are drawn from. */
#ifndef SF_FAULTS_H
#define SF_FAULTS_H

#include "layout/state.h"

/* flip.c: the faults that `--flip` asks for, carried out inside the victim */
void sf_flip_hit(struct sf_regs *, u64 desc);
void sf_flip_arm(void);
void sf_flip_disarm(void);
void sf_flip_rearm(void);
void sf_flip_alarm(void);
void sf_flip_moved(void);
int sf_flip_is_due(void);
void sf_flip_tick(struct sf_regs *, u8 *fp);

/* profile.c: how often each instruction of the program is executed */
void sf_profile(u64 ip);

#define SF_STRING2(x) #x
#define SF_STRING(x) SF_STRING2(x)
/* A moment of event `seq` at which a fault may strike: the program's registers in me.regs,
 * memory, or the registers of the function that this stands in. No register is declared
 * clobbered, as a particle declares nothing. */
#define SF_FLIP_POINT(seq, waits, when) \
	do { \
		if (unlikely((seq) == tls.waits)) \
			__asm__ volatile( \
				"movq %0, %%gs:" SF_STRING(TLS_FLIP_DESC) "; call sf_flip_own" ::"i"(SF_DESC_FLIP_EVENT | (when) << 8) \
				: "memory"); \
	} while (0)

#endif
