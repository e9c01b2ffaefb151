/* --recover: a crash in a run is a difference, and the next attempt is made on another core (recover.c). */
#define _GNU_SOURCE
#include "runtime.h"

#include <sched.h>
#include <signal.h>
#include <string.h>

void sf_recover_thread(void); /* for recover.c */
void sf_recover_move(struct sf_context *);
void sf_recover_done(struct sf_context *);

/* Crashes in a run: a flipped pointer ends here as often as in a mismatch. */
static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
static struct sigaction previous[65];

static void crashed(int number, siginfo_t *info, void *context) {
  (void)context;
  if (__sf_tls.phase != SF_OUTSIDE)
    sf_differ(sf_crash, (uint64_t)info->si_addr, (uint64_t)number, __sf_tls.phase);
  /* The program's own crash: as if nobody had been here. The instruction runs again and is not caught. */
  sigaction(number, &previous[number], NULL);
}

__attribute__((constructor(105))) static void prepare_crashes(void) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = crashed;
  a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
    sigaction(crashes[i], &a, &previous[crashes[i]]);
}

/* A stack for the signal handler above: the fault may be that of the stack pointer. */
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
