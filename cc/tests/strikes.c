/*
 * One event, struck at any instruction of its driver, of both runs and of the runtime: by a bit of a register, or by a jump to any other.
 *
 *     strikes register|jump COUNT SEED     one line: how the strikes ended, and a line for each that nobody noticed
 *
 * A strike is the processor's: a child steps through the event by the trap flag, and at one step a register changes. Wrong is a message
 * that has the checksum of its bytes and not the right bytes, and a state that is not the right one, when the program goes on.
 * The first instructions are left out: until the driver has kept its arguments they are the caller's. So is what comes of the result.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <steadfast/sei.h>

#include "receiver.h"

#define CALLERS 16 /* instructions */
#define BEGINS 192 /* and then phase I: what goes wrong there may be wrong for both runs, and it is quickly reached */
#define STEPS 8192
#define TRAP_FLAG 0x100
#define PATIENCE_US 200000 /* of processor time: who loops is stopped, and who sleeps after seconds */

static unsigned long state[8], argument;
static unsigned char message[24];

SF_HANDLER static unsigned long handle(unsigned long x) {
  unsigned long v = x * 0x9e3779b97f4a7c15 ^ x >> 7;
  v = (v * 31 ^ v >> 11) + state[x & 7];
  state[(x + 1) & 7] = v;
  memcpy(message, &v, 8);
  message[8] = (unsigned char)x;
  memcpy(message + 16, &state[x & 7], 8);
  sf_output_append(message, sizeof message);
  sf_output_done();
  return v;
}

static const int registers[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
static greg_t places[STEPS];
static volatile long steps, left;
static volatile int jumps, which;
static volatile greg_t what; /* bits of the register, or where to */

static void step(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
  if (!left) {
    places[steps++ % STEPS] = at[REG_RIP];
    return;
  }
  if (--left)
    return;
  if (jumps)
    at[REG_RIP] = what;
  else
    at[registers[which]] ^= what;
  at[REG_EFL] &= ~TRAP_FLAG;
}

__attribute__((noinline)) static void event(void) {
  __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
  handle(argument);
  __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

static unsigned long right_state[8];
static unsigned char right_message[24];

enum end { RIGHT, STATE, MESSAGE, DROPPED, STOPPED, CRASHED, ENDS };

static enum end judge(void) {
  if (sf_crc_count() != 1 || sf_crc_pop() != crc_of(message, sizeof message))
    return DROPPED;
  if (memcmp(message, right_message, sizeof message))
    return MESSAGE;
  return memcmp(state, right_state, sizeof state) ? STATE : RIGHT;
}

static uint64_t seed;
static long struck;
static uint64_t below(uint64_t n) {
  seed = seed * 6364136223846793005 + 1442695040888963407;
  return (seed >> 33) % n;
}

static enum end strike(void) {
  long of = below(4) ? BEGINS : steps - CALLERS;
  struck = CALLERS + (long)below((uint64_t)of);
  left = struck + 1;
  which = (int)below(sizeof registers / sizeof *registers);
  greg_t bit = (greg_t)(1ull << (below(4) ? below(16) : below(64))); /* most numbers here are small */
  what = jumps ? places[below((uint64_t)steps)] : bit;
  pid_t child = fork();
  if (!child) {
    struct itimerval limit = {.it_value = {.tv_usec = PATIENCE_US}};
    setitimer(ITIMER_PROF, &limit, NULL);
    close(2);
    alarm(5);
    event();
    _exit(judge());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) ? CRASHED : WEXITSTATUS(status) == 122 ? STOPPED : WEXITSTATUS(status) <= DROPPED ? (enum end)WEXITSTATUS(status) : CRASHED;
}

int main(int argc, char **argv) {
  if (chdir("/proc/self")) /* where nothing can be made: what is struck may open any name for writing */
    return 2;
  if (argc < 4)
    return 2;
  jumps = !strcmp(argv[1], "jump");
  seed = strtoul(argv[3], NULL, 0);
  struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
  sigaction(SIGTRAP, &action, NULL);
  argument = 2;
  handle(argument);
  sf_crc_pop();
  unsigned long before[8];
  memcpy(before, state, sizeof state);
  argument = 5;
  event();
  memcpy(right_state, state, sizeof state);
  memcpy(right_message, message, sizeof message);
  if (steps >= STEPS || judge() != RIGHT)
    return 3;
  memcpy(state, before, sizeof state);
  memset(message, 0, sizeof message);
  unsigned counts[ENDS] = {0};
  for (long n = atol(argv[2]); n; n--) {
    enum end e = strike();
    counts[e]++;
    if (e == STATE || e == MESSAGE)
      printf("unnoticed at step %ld (%#llx): register %d, %#llx\n", struck, (unsigned long long)places[struck], which, (unsigned long long)what);
  }
  printf("right %u, wrong state %u, wrong message %u, dropped %u, stopped %u, crashed %u\n", counts[RIGHT], counts[STATE], counts[MESSAGE],
         counts[DROPPED], counts[STOPPED], counts[CRASHED]);
  return 0;
}
