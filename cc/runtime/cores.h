/* Processors, shared out between first and second runs (cores.c). Needs _GNU_SOURCE. */
#ifndef STEADFAST_CORES_H
#define STEADFAST_CORES_H

#include <sched.h>
#include <stdint.h>

/* The lowest processor that is a thread of the same core. */
extern uint16_t sf_core_of[CPU_SETSIZE];

/* Of the cores that the program may use the first half and the second, or a refusal (121) with `fix`. */
void sf_share_out(cpu_set_t *here, cpu_set_t *there, const char *why, const char *fix);

#endif
