/*
 * Which processors run first runs, and which run second ones (--other-core, --validate=async).
 *
 * Invariant: processors that are threads of one core are never on different sides.
 */
#define _GNU_SOURCE
#include "cores.h"
#include "runtime.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint16_t sf_core_of[CPU_SETSIZE];

static uint16_t core_from_kernel(int cpu) {
  char path[] = "/sys/devices/system/cpu/cpu0000/topology/thread_siblings_list", *at = path + sizeof "/sys/devices/system/cpu/cpu" - 1;
  char digits[8];
  int n = 0, v = cpu;
  do
    digits[n++] = (char)('0' + v % 10);
  while (v /= 10);
  char *to = at;
  while (n)
    *to++ = digits[--n];
  static const char rest[] = "/topology/thread_siblings_list";
  memcpy(to, rest, sizeof rest);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  char text[16] = {0};
  ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0)
    close(fd);
  /* Without /sys nobody knows which processors are one core. */
  if (got <= 0)
    sf_stop("the second run belongs on another core, and the kernel does not say which processors are one core",
            "mount /sys, or link without --other-core and --validate=async");
  return (uint16_t)atoi(text);
}

/* Two phrases as one: sf_stop takes one. */
static const char *joined(const char *a, const char *b) {
  static char text[256];
  size_t n = strlen(a), m = strlen(b);
  if (n + m >= sizeof text)
    return a;
  memcpy(text, a, n);
  memcpy(text + n, b, m + 1);
  return text;
}

void sf_share_out(cpu_set_t *here, cpu_set_t *there, const char *why, const char *fix) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0)
    sf_stop(joined(why, ", and the program's processors are not known"), fix);
  int cores = 0;
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &all)) {
      sf_core_of[i] = core_from_kernel(i);
      cores += sf_core_of[i] == i || !CPU_ISSET(sf_core_of[i], &all);
    }
  CPU_ZERO(here);
  CPU_ZERO(there);
  int seen = 0;
  uint8_t side[CPU_SETSIZE] = {0}; /* of a core: 1 or 2 */
  for (int i = 0; i < CPU_SETSIZE && cores >= 2; i++)
    if (CPU_ISSET(i, &all)) {
      uint8_t *s = &side[sf_core_of[i]];
      if (!*s)
        *s = seen++ < cores / 2 ? 1 : 2;
      CPU_SET(i, *s == 1 ? here : there);
    }
  if (CPU_COUNT(here) == 0 || CPU_COUNT(there) == 0)
    sf_stop(joined(why, ", and the program may use one core only"), fix);
}
