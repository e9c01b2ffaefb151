/*
 * One event, in which each instruction of its driver, of both runs and of the runtime is left out once, each conditional jump goes the
 * other way once, and registers change by a bit.
 *
 *     skips skip           each instruction, each jump
 *     skips register BIT EVERY   each register at each so-manieth instruction, by this bit
 *     skips opening EVERY        each bit of each register, while the event is opened
 *
 * The event is stepped through once, by the trap flag. At each step children are forked that go on with a strike: as many as there
 * are, where cc/tests/strikes.c draws some by chance. Unlike there the event stores bytes, words that are not aligned, copies, fills and
 * moves, and around what it writes lies what it must not write.
 * With -DLOOPS it is an event of loops, whose stores fill ranges (cc/pass/ranges.cpp): bytes up to an end that they find, over the end of a
 * page, words, parts of structures, over each other, and what is there already. It has stores, too, that are not looked up because something
 * before them has logged their bytes (cc/pass/covered.cpp).
 * The first instructions are left out: until the driver has kept its arguments they are the caller's. So is the way back to it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <steadfast/sei.h>

#include "receiver.h"

#define CALLERS 16 /* instructions */
#define BACK 12
#define STEPS 100000
#define TRAP_FLAG 0x100
#define PATIENCE_US 30000 /* of processor time, some hundred events and repairs: who loops is stopped */

#ifdef LOOPS
#define PAGE 4096
#define AROUND (2 * PAGE - 20) /* what bits up to 12 lead to */
static struct {
  unsigned char before[AROUND]; /* a page ends in the middle of the text */
  unsigned char text[40], from[40], moved[40], same[40];
  unsigned long words[16];
  struct pair {
    uint32_t one;
    uint16_t two, three;
  } pairs[8];
  struct near {
    unsigned long all;
    uint32_t one;
    uint16_t two;
    uint8_t three, four;
    unsigned long same;
  } near;
  struct record {
    unsigned long first, filled[6];
    uint32_t kind, count;
    uint16_t zero, odd;
  } record;
  unsigned char after[AROUND];
} all __attribute__((aligned(PAGE))), right;
static unsigned char message[96], right_message[96];

/* Not known here: how far it goes, and what it reaches. */
__attribute__((noinline)) static unsigned long until_end(unsigned char *to, const unsigned char *from, unsigned long most) {
  unsigned long i = 0;
  for (; i < most && from[i] != 0xee; i++)
    to[i] = from[i];
  return i;
}

__attribute__((noinline)) static void one_by_one(unsigned char *to, unsigned char byte, unsigned long n) {
  for (unsigned long i = 0; i < n; i++) {
    to[i] = byte;
    __asm__ volatile("");
  }
}

/* Parts of one word, and one that is written twice; a value that is there already. */
__attribute__((noinline)) static void neighbours(struct near *n, unsigned long x) {
  n->all = x * 3;
  n->two = (uint16_t)x;
  n->one = (uint32_t)x * 5;
  n->four = (uint8_t)(x >> 3);
  n->three = 9;
  ((uint32_t *)&n->same)[0] = 7;
  ((uint32_t *)&n->same)[1] = 7;
}

/* Returns to the same event, and what it reads has to be there. */
__attribute__((noinline)) static unsigned long mix(const struct record *r) { return r->first * 5 ^ r->kind; }

/* Cleared as a whole, then filled in, on some ways only; twice over, and with what is there already. */
__attribute__((noinline)) static void fill_in(struct record *r, unsigned long x, unsigned long n) {
  unsigned short nothing = 0;
  __asm__ volatile("" : "+r"(nothing));
  memset(r, 0, sizeof *r);
  r->first = x * 7;
  r->kind = (uint32_t)mix(r);
  r->zero = nothing;
  if (x & 4) {
    r->filled[2] = mix(r) >> 2;
    r->odd = 3;
  }
  for (unsigned long i = 0; i < n; i++) {
    r->count += (uint32_t)(mix(r) + i);
    r->first ^= r->count;
  }
  all.words[15] = x;
  r->filled[5] = mix(r);
  ((uint16_t *)&all.words[15])[1] = (uint16_t)mix(r);
}

SF_HANDLER static void handle(unsigned long x, unsigned long length) {
  unsigned char own[32];
  unsigned long n = length & 15;
  all.from[3 + 2 * x] = 0xee; /* 13 bytes at most, of which the last come to the next page */
  unsigned long end = until_end(all.text + 13, all.from, sizeof all.from);
  for (unsigned long i = 0; i < n + 3; i++)
    all.words[i] = x * i ^ all.words[15];
  for (unsigned long i = 0; i < n; i++) {
    all.pairs[i].two = (uint16_t)(x + i);
    all.pairs[i].one = (uint32_t)(all.pairs[i].two * 77);
    all.pairs[i].three = (uint16_t)all.pairs[i].one;
  }
  for (unsigned long i = 0; i < n + 7; i++)
    all.moved[i + 3] = all.moved[i] ^ (unsigned char)x;
  one_by_one(all.same, 7, n + 5);
  one_by_one(own, (unsigned char)end, n + 9);
  neighbours(&all.near, x);
  fill_in(&all.record, x, n);
  memcpy(message, own, 15);
  message[15] = (unsigned char)end;
  memcpy(message + 16, all.text + 13, 16);
  memcpy(message + 32, all.words + 1, 64);
  sf_output_append(message, sizeof message);
  sf_output_done();
}
#else
static struct {
  unsigned char before[1024];
  unsigned long words[16];
  unsigned char bytes[64], from[160], copied[160], filled[160], moved[160];
  unsigned char after[1024];
} all, right;
static unsigned char message[96], right_message[96];

SF_HANDLER static void handle(unsigned long x, unsigned long length) {
  unsigned long v = x * 0x9e3779b97f4a7c15 ^ x >> 7;
  all.words[x & 7] += v;
  all.words[(x + 3) & 15] = v ^ all.words[x & 7];
  all.bytes[x & 31] ^= (unsigned char)v;
  uint16_t two;
  memcpy(&two, all.bytes + 33 + (x & 3), 2);
  two += (uint16_t)(v >> 9);
  memcpy(all.bytes + 33 + (x & 3), &two, 2);
  *(uint32_t *)(all.bytes + 40 + (x & 4)) += (uint32_t)(v >> 5);
  memcpy(all.copied + (x & 7), all.from, length);
  memset(all.filled + (x & 3), (int)x, length);
  memmove(all.moved + 13, all.moved, length + 5);
  for (int i = 0; i < 5; i++)
    all.from[i + (x & 15)] ^= (unsigned char)(v >> i);
  memcpy(message, &v, 8);
  memcpy(message + 8, all.copied, 80);
  sf_output_append(message, sizeof message);
  sf_output_done();
}
#endif

/* The next event, of which nothing comes but what a struck one may have left undone. */
static unsigned long nexts;
SF_LOCAL_HANDLER static void next(void) { nexts++; }

/* MISSING: a repair is told, and the event's message has not been made. Without a repair such a message is one that is lost, as on a network. */
enum end { RIGHT, STATE, MESSAGE, MISSING, DROPPED, STOPPED, CRASHED, ENDS };
#define JUDGED 64 /* and the end: the status of a child that has come to be judged, by which no exit goes that a fault leads to */

static int said; /* what the runtime has said to standard error */
static int repaired(void) {
  char text[4096];
  ssize_t n = pread(said, text, sizeof text, 0);
  return n > 0 && memmem(text, (size_t)n, "recovered", 9) != NULL;
}

static enum end judge(void) {
  if (nexts > 1)
    return STATE;
  if (!sf_crc_count() && !memcmp(&all, &right, sizeof all) && repaired())
    return MISSING;
  if (sf_crc_count() != 1 || sf_crc_pop() != crc_of(message, sizeof message))
    return memcmp(&all, &right, sizeof all) ? STATE : DROPPED;
  if (memcmp(message, right_message, sizeof message))
    return MESSAGE;
  return memcmp(&all, &right, sizeof all) ? STATE : RIGHT;
}

static const int registers[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
static greg_t places[STEPS + 1];
static long steps, known; /* known: of the event without a strike */
static greg_t bit;        /* 0: instructions are left out */
static long every = 1;
static int bits = 1;          /* from `bit` on */
static long until = STEPS;    /* the last step that is struck */
#define OPENED 800            /* steps: an event with --recover is open after 700 */
static unsigned counts[ENDS];

/* Returns 0 in the child, which goes on with the strike. */
static int survives(const char *how, greg_t what) {
  fflush(stdout);
  long child = syscall(SYS_fork);
  if (!child) {
    struct itimerval limit = {.it_value = {.tv_usec = PATIENCE_US}};
    setitimer(ITIMER_PROF, &limit, NULL);
    said = memfd_create("said", 0);
    dup2(said, 2);
    return 0;
  }
  int status = 0;
  waitpid((pid_t)child, &status, 0);
  int told = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  enum end e = told == 122 ? STOPPED : told >= JUDGED && told < JUDGED + ENDS ? (enum end)(told - JUDGED) : CRASHED;
  counts[e]++;
  if (e == STATE || e == MESSAGE || e == MISSING)
    printf("unnoticed at step %ld (%#llx): %s %#llx\n", steps, (unsigned long long)places[steps], how, (unsigned long long)what);
  return 1;
}

/* Where a conditional jump leads to (Intel SDM vol. 2, Jcc), or 0. */
static greg_t jump_at(greg_t at, greg_t *behind) {
  const unsigned char *code = (const unsigned char *)at;
  int32_t far;
  if (code[0] >> 4 == 7)
    return (*behind = at + 2) + (signed char)code[1];
  if (code[0] != 0x0f || code[1] >> 4 != 8)
    return 0;
  memcpy(&far, code + 2, 4);
  return (*behind = at + 6) + far;
}

static void strike(greg_t *at) {
  greg_t next = places[steps + 1], behind, target = jump_at(at[REG_RIP], &behind);
  if (bit) {
    for (int b = 0; b < bits; b++)
      for (size_t i = 0; i < sizeof registers / sizeof *registers; i++)
        if (!survives("register", (greg_t)i)) {
          at[registers[i]] ^= (greg_t)((unsigned long)bit << b);
          at[REG_EFL] &= ~TRAP_FLAG;
          return;
        }
    return;
  }
  greg_t instead = target                                                    ? (next == target ? behind : target)
                   : next > at[REG_RIP] && next - at[REG_RIP] <= 15          ? next
                   : *(const unsigned char *)at[REG_RIP] == 0xe8 /* call */ ? at[REG_RIP] + 5
                                                                             : 0;
  if (instead && !survives("to", instead)) {
    at[REG_RIP] = instead;
    at[REG_EFL] &= ~TRAP_FLAG;
  }
}

static void step(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
  if (!known)
    places[steps] = at[REG_RIP];
  else if (steps >= CALLERS && steps < known - BACK && steps <= until && steps % every == 0 && places[steps] != places[steps - 1]) /* of rep: the first */
    strike(at);
  steps += steps < STEPS;
}

__attribute__((noinline)) static void event(void) {
  static volatile unsigned long x = 5, length = 70;
  __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
  handle(x, length);
  __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

/* The table of the log is looked up by address: with others each run has other steps, and of every so-manieth other ones are struck. Where
 * a sandbox does not allow to ask for the same addresses they differ. */
static void same_addresses(char **argv) {
  int how = personality(0xffffffff);
  if (how != -1 && !(how & ADDR_NO_RANDOMIZE) && personality((unsigned long)how | ADDR_NO_RANDOMIZE) != -1)
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
  same_addresses(argv);
  if (chdir("/proc/self")) /* where nothing can be made: what is struck may open any name for writing */
    return 2;
  if (argc < 2)
    return 2;
  if (argc == 3) /* opening */
    bit = 1, bits = 64, every = atol(argv[2]), until = OPENED;
  if (argc > 3)
    bit = (greg_t)1 << atoi(argv[2]), every = atol(argv[3]);
  struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
  sigaction(SIGTRAP, &action, NULL);
  for (size_t i = 0; i < sizeof all; i++)
    ((unsigned char *)&all)[i] = (unsigned char)(i * 37 + i / 11);
#ifdef LOOPS
  memset(all.same, 7, sizeof all.same);
  all.near.same = 7ul << 32 | 7;
#endif
  handle(2, 70);
  sf_crc_pop();
  static unsigned char before[sizeof all];
  memcpy(before, &all, sizeof all);
  event();
  right = all;
  memcpy(right_message, message, sizeof message);
  if (steps >= STEPS || judge() != RIGHT)
    return 3;
  memcpy(&all, before, sizeof all);
  memset(message, 0, sizeof message);
  known = steps;
  steps = 0;
  pid_t own = getpid();
  event();
  if (getpid() != own) {
    next();
    _exit(JUDGED + (int)judge());
  }
  printf("right %u, wrong state %u, wrong message %u, repaired without it %u, dropped %u, stopped %u, crashed %u\n", counts[RIGHT], counts[STATE], counts[MESSAGE],
         counts[MISSING], counts[DROPPED], counts[STOPPED], counts[CRASHED]);
  return 0;
}
