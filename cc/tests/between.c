/*
 * What --between=duplicate is for: code outside handlers, struck one instruction after the other.
 *
 *     between         one line: how many of the strikes ended right, detected, wrong, crashed
 *     between quiet   threads that store what others read, outside handlers and unguarded; prints a sum when all are done
 *
 * A strike is the processor's: a child steps through `outside` by the trap flag, and at one step a bit of one register
 * changes. What `outside` leaves is compared with what it leaves by itself. Every instruction and nine registers that calls do not keep are struck,
 * so the counts follow from the build alone.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <steadfast/sei.h>

struct node {
  struct node *next;
  unsigned value;
};

static struct node nodes[4];
static unsigned table[8], kept;

SF_HANDLER static void keep(unsigned value) { kept = kept * 31 + value; }

static void before(void) {
  for (int i = 0; i < 4; i++)
    nodes[i] = (struct node){i < 3 ? &nodes[i + 1] : NULL, 3u * i + 1};
  memset(table, 0, sizeof table);
}

/* An event loop in small: walks what it keeps, and carries values and addresses on. */
__attribute__((noinline)) static void outside(struct node *first, unsigned salt) {
  int most = 16; /* a list that a fault has bent into a ring */
  for (struct node *n = first; n && most; n = n->next, most--) {
    unsigned at = (n->value ^ salt) & 7;
    table[at] += n->value * 5 + salt;
    n->value += at;
  }
}

static volatile int left, reg;
#define TRAP_FLAG 0x100
static const int registers[] = {REG_RAX, REG_RCX, REG_RDX, REG_RSI,
                                REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11};

static void step(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  ucontext_t *c = context;
  if (--left)
    return;
  c->uc_mcontext.gregs[registers[reg]] ^= 4;
  c->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

static inline void stepping(void) { __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc"); }
static inline void running(void) { __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc"); }

/* 0 right, 1 wrong; other ends are the verdict's and the kernel's. */
static int strike(int at, int which, const unsigned *golden, const struct node *after) {
  left = at;
  reg = which;
  before();
  stepping();
  outside(nodes, 9);
  running();
  return memcmp(table, golden, sizeof table) || memcmp(nodes, after, sizeof nodes);
}

static volatile int stop;
static unsigned shared;

static void *store(void *unused) {
  for (unsigned i = 0; !stop; i++)
    *(volatile unsigned *)&shared = i;
  return unused;
}

__attribute__((noinline)) static unsigned look(unsigned *at) { return *at; }

static int quiet(void) {
  pthread_t writer;
  pthread_create(&writer, NULL, store, NULL);
  unsigned last = 0, sum = 0;
  for (int i = 0; i < 3000000; i++) {
    last = look(&shared);
    sum += last >= 1u << 31; /* never: there is no time for so many stores */
  }
  stop = 1;
  pthread_join(writer, NULL);
  keep(sum);
  printf("quiet %u\n", sum);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "quiet"))
    return quiet();
  before();
  outside(nodes, 9);
  keep(table[0]);
  unsigned golden[8];
  struct node after[4];
  memcpy(golden, table, sizeof table);
  memcpy(after, nodes, sizeof nodes);
  struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
  sigaction(SIGTRAP, &action, NULL);
  int steps = 1 << 20; /* none is struck */
  left = steps;
  before();
  stepping();
  outside(nodes, 9);
  running();
  steps -= left;
  unsigned counts[4] = {0};
  for (int at = 1; at <= steps; at++)
    for (int which = 0; which < (int)(sizeof registers / sizeof *registers); which++) {
      pid_t child = fork();
      if (!child) {
        close(2);
        _exit(strike(at, which, golden, after));
      }
      int status = 0;
      waitpid(child, &status, 0);
      counts[!WIFEXITED(status) ? 3 : WEXITSTATUS(status) == 122 ? 1 : WEXITSTATUS(status) ? 2 : 0]++;
    }
  printf("right %u detected %u wrong %u crashed %u\n", counts[0], counts[1], counts[2], counts[3]);
  return 0;
}
