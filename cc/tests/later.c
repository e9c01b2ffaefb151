/*
 * Handlers whose second run comes later (--validate=async): state of all kinds that code outside handlers, libraries and the
 * kernel change as well, and messages that leave outside handlers. One of its handlers is struck when asked:
 *
 *     later                    no fault
 *     later PLACE RUN EVENT    at PLACE, in run 1 or 2 of EVENT
 *     later wait               ends by a signal only
 *
 * Everything that decides about a fault is read in both runs, so that the fault alone makes them differ.
 */
#define _GNU_SOURCE
#include <steadfast/sei.h>

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct item {
  struct item *next;
  unsigned long key, value;
  char text[40];
  unsigned short port;
};
struct name {
  char bytes[300];
};

static struct item *table[16], *decoys;
static unsigned long total, wide[64], *mapped, far[4096];
static unsigned char packed[64];
static char place[24], letters[4000];
static int run, now, event;
static __thread unsigned long own;
static unsigned long (*choose[2])(unsigned long);

static unsigned long add(unsigned long x) { return x + total; }
static unsigned long mix(unsigned long x) { return x * 31 ^ total; }

static int hit(const char *here) { return (run == sf_run()) & (event == now) & (strcmp(here, place) == 0); }

static struct item *find(unsigned long key) {
  struct item *i = table[key % 16];
  while (i && i->key != key)
    i = i->next;
  return i;
}

static unsigned long by_value(struct name n) { return strlen(n.bytes) + (unsigned char)n.bytes[1]; }

SF_PURE int raise(int);

SF_HANDLER unsigned long handle(const char *message, size_t length, struct name *name) {
  char copy[64];
  sf_input_edge(message, length);
  memcpy(copy, message, length);
  unsigned long key = strtoul(copy, NULL, 10);
  struct item *i = find(key % 40);
  if (!i) {
    i = malloc(sizeof *i + (hit("size") ? 8 : 0));
    memset(i, 0, sizeof *i);
    i->key = key % 40;
    i->next = table[i->key % 16];
    table[i->key % 16] = i;
  }
  if (hit("pointer"))
    i = decoys;
  i->value += key + mapped[key % 8] + (hit("value") ? 1 : 0);
  i->port = htons((unsigned short)key);
  snprintf(i->text, sizeof i->text, "%.5s-%lu-%c", copy, i->value, name->bytes[0]);
  wide[key % 64] ^= total << 3;
  mapped[8 + key % 8]++; /* shared with other processes: counted once */
  memcpy(packed + key % 40 + 1, &key, sizeof key);
  if (hit("byte"))
    packed[0] ^= 4;
  memmove(letters + key % 100, letters + key % 300, 1000 + (hit("length") ? 8 : 0));
  if (hit("bulk"))
    letters[500] ^= 1;
  if (hit("branch"))
    far[7]++;
  if (hit("endless"))
    for (;;)
      __asm__ volatile("");
  if (hit("crash"))
    *(volatile int *)16 = 1;
  if (hit("killed"))
    raise(SIGKILL);
  own += by_value(*name);
  total += choose[key & 1](key);
  for (unsigned k = 0; k < sizeof far / sizeof *far; k += 129)
    far[k] += key;
  if (key % 5 == 0) {
    struct item **at = &table[key % 40 % 16];
    while (*at && (*at)->key != key % 40)
      at = &(*at)->next;
    struct item *gone = *at;
    *at = gone->next;
    free(gone);
  }
  if (hit("extra_call")) {
    void *taken = malloc(8);
    __asm__ volatile("" ::"r"(taken)); /* or the optimiser takes both calls away */
    free(taken);
  }
  if (key % 11 == 0 || hit("extra_write"))
    dprintf(1, "from the handler: %s %lu%s\n", name->bytes, total, hit("output") ? "!" : "");
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  own += t.tv_sec > 1000;
  errno = 0;
  return total + (hit("result") ? 1 : 0);
}

static void fill(struct name *n, int k) {
  memset(n, 0, sizeof *n);
  memset(n->bytes, 'a' + k % 26, (size_t)(1 + k % 200));
}

int main(int argc, char **argv) {
  struct name name;
  char line[128];
  mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  decoys = calloc(4, sizeof *decoys);
  choose[0] = add;
  choose[1] = mix;
  event = -1;
  if (argc > 3) {
    strncpy(place, argv[1], sizeof place - 1);
    run = atoi(argv[2]);
    event = atoi(argv[3]);
  }
  for (size_t k = 0; k < sizeof letters; k++)
    letters[k] = (char)(k * 7);
  for (now = 0; now < 300; now++) {
    fill(&name, now);
    int n = snprintf(line, sizeof line, "%d", now * 37 % 1000);
    unsigned long r = handle(line, (size_t)n + 1, &name);
    /* What handlers have read and written changes before their second run. */
    mapped[now % 8] += r;
    letters[now] ^= 9;
    for (int k = 0; k < 16; k++)
      if (table[k])
        table[k]->value++;
    struct item *i = find((unsigned long)now * 37 % 1000 % 40);
    n = snprintf(line, sizeof line, "%d %lu %lu %.30s\n", now, r, i ? i->value : 0, i ? i->text : "");
    if (write(1, line, (size_t)n) != n)
      return 2;
    memset(line, 0, sizeof line);
  }
  unsigned long sum = own;
  for (size_t k = 0; k < sizeof letters; k++)
    sum = sum * 31 + (unsigned char)letters[k];
  for (int k = 0; k < 64; k++)
    sum = sum * 31 + wide[k] + packed[k] + far[k * 43 % 4096] + mapped[k % 16];
  printf("%lu\n", sum);
  /* Nothing of the validator is the program's to see. */
  if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
    puts("a child that the program did not make");
  fflush(stdout);
  if (argc == 2 && strcmp(argv[1], "wait") == 0)
    for (;;)
      pause();
  return 0;
}
