/*
 * --recover: after a mismatch, memory as it was before the handler, and both runs again, on another core if there is one.
 *
 * Linked only when asked for (`steadfast cc --recover`): core.c asks whether __sf_recover_on is there.
 *
 *     mismatch or crash in E1, E2 or V
 *       old values still have their sum and checksums?   no: stop, as without --recover
 *       put back from O alone, read back, look again
 *       what the runs had taken from outside (input, calls of class once) is kept and given again
 *       memory they had been given is freed, locks stay held
 *     begin again; at most 3 times, then stop
 *
 * A retry is not believed because it is later: both of its runs must agree with each other, as in any handler. When the
 * same difference comes again, the handler is not deterministic, which is said, and no core is blamed.
 *
 * Not covered: stores that were never logged (a wild pointer outside the handler's own stores), and an input that has
 * changed in memory.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

SF_API const int __sf_recover_on = 1;

/* Crashes in a run: a flipped pointer ends here as often as in a mismatch. */
static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
static struct sigaction before[65];

static void crashed(int number, siginfo_t *info, void *context) {
  (void)context;
  if (__sf_tls.phase != SF_OUTSIDE)
    sf_differ(sf_crash, (uint64_t)info->si_addr, (uint64_t)number, __sf_tls.phase);
  /* The program's own crash: as if nobody had been here. The instruction runs again and is not caught. */
  sigaction(number, &before[number], NULL);
}

__attribute__((constructor(105))) static void prepare(void) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = crashed;
  a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
    sigaction(crashes[i], &a, &before[crashes[i]]);
}

/* A stack for the handler above: the fault may be that of the stack pointer. */
void sf_recover_thread(void) {
  stack_t s;
  if (sigaltstack(NULL, &s) == 0 && (s.ss_flags & SS_DISABLE)) {
    s = (stack_t){.ss_sp = sf_map(16384), .ss_size = 16384};
    sigaltstack(&s, NULL);
  }
}

/* Another core, for as long as the retry lasts. Where there is one core, the same. */
void sf_recover_move(struct sf_context *c) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0)
    return;
  if (c->retry == 1) {
    memcpy(c->affinity, &all, sizeof c->affinity < sizeof all ? sizeof c->affinity : sizeof all);
  } else {
    memcpy(&all, c->affinity, sizeof c->affinity < sizeof all ? sizeof c->affinity : sizeof all);
  }
  int here = sched_getcpu();
  for (int i = 1; i < CPU_SETSIZE; i++) {
    int there = (here + i) % CPU_SETSIZE;
    if (there != here && CPU_ISSET(there, &all)) {
      CPU_ZERO(&one);
      CPU_SET(there, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
  }
}

void sf_recover_done(struct sf_context *c) {
  cpu_set_t all;
  CPU_ZERO(&all);
  memcpy(&all, c->affinity, sizeof c->affinity < sizeof all ? sizeof c->affinity : sizeof all);
  sched_setaffinity(0, sizeof all, &all);
}
