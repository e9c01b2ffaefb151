/*
 * What a handler costs the thread that serves, all processors together, and the one who waits for the answer, when its second
 * run comes at once, on another core, or later.
 *
 *     later KIND EVENTS RATE     RATE 0: one event after the other; else so many a second
 *
 * One line: nanoseconds an event of the serving thread's processor time, of all processes' processor time, of wall time, and
 * from an event's due time to the end of its message. The work is done by a child, so that all of its processes are counted
 * when it has ended.
 */
#define _GNU_SOURCE
#include <steadfast/sei.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct entry {
  struct entry *next;
  uint64_t key, count;
  char text[32];
};
static struct entry *table[1024];
static uint64_t columns[64][64];

static struct entry *entry_of(uint64_t key) {
  struct entry **at = &table[key % 1024];
  while (*at && (*at)->key != key)
    at = &(*at)->next;
  if (!*at) {
    *at = calloc(1, sizeof **at);
    (*at)->key = key;
  }
  return *at;
}

/* A counter: a few words. */
SF_HANDLER uint64_t count(uint64_t key) {
  struct entry *e = entry_of(key % 4096);
  return ++e->count;
}

/* A request: text in, tables, text out. */
SF_HANDLER uint64_t request(uint64_t key) {
  char name[32];
  snprintf(name, sizeof name, "key-%lu", (unsigned long)(key % 4096));
  struct entry *e = entry_of(strtoul(name + 4, NULL, 10));
  uint64_t sum = ++e->count;
  for (int i = 0; i < 64; i++) {
    sum += columns[key % 64][i] * 31 + (unsigned char)e->text[i % 32];
    if (i % 4 == 0)
      columns[i][key % 64] += sum;
  }
  snprintf(e->text, sizeof e->text, "%s=%lx", name, (unsigned long)sum);
  return sum;
}

/* Much computation on little memory. */
SF_HANDLER uint64_t compute(uint64_t key) {
  struct entry *e = entry_of(key % 4096);
  uint64_t x = e->count + key;
  for (int i = 0; i < 3000; i++)
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull + (uint64_t)i;
  return e->count = x;
}

static uint64_t ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc < 4)
    return 64;
  uint64_t events = strtoull(argv[2], NULL, 10), rate = strtoull(argv[3], NULL, 10);
  uint64_t (*handler)(uint64_t) = *argv[1] == 'c' && argv[1][3] == 'p' ? compute : *argv[1] == 'r' ? request : count;
  int result[2];
  if (pipe(result) != 0)
    return 1;
  pid_t child = fork();
  if (child == 0) {
    int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    uint64_t begin = 0, own = 0, response = 0, due = 0;
    for (uint64_t i = 0; i < events + events / 10; i++) {
      if (i == events / 10) {
        begin = due = ns(CLOCK_MONOTONIC);
        own = ns(CLOCK_THREAD_CPUTIME_ID);
      }
      if (rate && begin) {
        due += 1000000000u / rate;
        while (ns(CLOCK_MONOTONIC) < due)
          ;
      } else {
        due = rate ? 0 : due;
      }
      uint64_t before = rate ? due : ns(CLOCK_MONOTONIC), reply = handler(i * 2654435761u);
      if (write(out, &reply, sizeof reply) != sizeof reply)
        _exit(1);
      if (begin)
        response += ns(CLOCK_MONOTONIC) - before;
    }
    uint64_t all[3] = {ns(CLOCK_THREAD_CPUTIME_ID) - own, ns(CLOCK_MONOTONIC) - begin, response};
    if (write(result[1], all, sizeof all) != sizeof all)
      _exit(1);
    exit(0);
  }
  int status = 1;
  uint64_t all[3];
  if (child < 0 || read(result[0], all, sizeof all) != sizeof all || waitpid(child, &status, 0) != child || status != 0)
    return 1;
  struct rusage used;
  getrusage(RUSAGE_CHILDREN, &used);
  double total = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
  printf("%.1f %.1f %.1f %.1f\n", (double)all[0] / (double)events, total / (double)(events + events / 10),
         (double)all[1] / (double)events, (double)all[2] / (double)events);
  return 0;
}
