/* Strings that have a copy or a checksum, printed through lists of arguments; and objects that the C library writes outside
 * handlers.
 *
 *     lists [STRIKE]   strike: string (between two handlers), constant (of the program), tail (of what the C library fills in part) */
#define _GNU_SOURCE
#include <steadfast/sei.h>

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#ifndef KEPT
#define KEPT SF_DUP
#endif

KEPT struct {
  char first[32], second[32];
  struct tm tm;
  struct timespec now;
  struct stat about;
  time_t begun;
  char *end, *none;
  char name[16], gone[8];
  struct in_addr address, other;
  char got[64];
} s;
KEPT int numbers[64], picked[64];
static char out[600];
static const char *const words[] = {"zero", "one", "two", "three"};

/* Before anything has a copy. */
__attribute__((constructor(101))) static void early(void) {
  char text[8];
  snprintf(text, sizeof text, "%s", words[2]);
  numbers[0] = text[0];
}

static int put(char *to, size_t room, const char *how, ...) {
  va_list list, again;
  va_start(list, how);
  va_copy(again, list);
  int n = vsnprintf(to, room / 2, how, list);
  n += vsnprintf(to + strlen(to), room / 2, how, again); /* the list itself is as it was */
  va_end(again);
  va_end(list);
  return n;
}

static void tell(const char *how, ...) {
  va_list list;
  va_start(list, how);
  vprintf(how, list);
  va_end(list);
}

SF_LOCAL_HANDLER long handle(long k) {
  snprintf(s.first, sizeof s.first, "first %ld", k);
  strcpy(s.second, words[k & 3]);
  long n = put(out, sizeof out, "%s|%.3s|%-12s|%*d|%.*s|%5.2f|%Lg|%c|%#lx|%zu|%hhd|%%|%s|%e|%s\n", s.first, s.second, s.second, 7,
               (int)k, (int)(k % 5), s.first, 1.5 * k, (long double)k / 4, 'a' + (int)(k & 7), (unsigned long)k, (size_t)k, (int)k,
               s.none ? s.none : "-", 1e9 / (k + 1), s.first);
  tell("%d %s %g %s %Lg %s %s %s %s\n", (int)k, s.second, 0.5, s.first, 2.5L, s.second, s.first, words[k & 3], s.second);
  tell("%llf %s %b\n", 3.5L, s.first, 5u);
  /* Under a mask, where the machine has those. */
  for (int i = 0; i < 64; i++)
    numbers[i] += i * (int)k;
  for (int i = 0; i < 64; i++)
    if (picked[i] & 1)
      n += numbers[i];
  return n + s.tm.tm_yday + (s.begun > 0) + (s.now.tv_sec > 0) + (s.about.st_mode & 0777) + (s.end == s.gone) + s.name[2] + (long)s.address.s_addr;
}

/* Between handlers. */
static __attribute__((noinline)) void pick(int k) {
  for (int i = 0; i < 64; i++)
    if (numbers[i] & 1)
      picked[i] = picked[i] * 3 + k + i;
}

/* The library is given constants by pointers that the compiler does not follow, and objects it fills in part. */
static __attribute__((noinline)) void library(const char *delimiters, const char *how, int k) {
  char text[] = "a one b", *rest, whole[16];
  printf("%s", strtok_r(text, delimiters, &rest));
  printf(" %s\n", strtok_r(NULL, delimiters, &rest));
  if (sscanf("5", how, &k) != 1 || inet_pton(AF_INET, "127.0.0.2", &s.other) != 1)
    exit(2);
  sprintf(whole, how, 1234567890); /* more than a half of it */
  printf("%s %d\n", whole, k);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0 || write(pair[0], "0123456789", 10) != 10)
    exit(3);
  printf("%zd\n", recv(pair[1], s.got, 4, MSG_TRUNC));
  close(pair[0]), close(pair[1]);
}

int main(int argc, char **argv) {
  struct tm year = {.tm_year = 100};
  time_t fixed = 1000000000;
  gmtime_r(&fixed, &s.tm);
  clock_gettime(CLOCK_MONOTONIC, &s.now);
  time(&s.begun);
  if (stat("/", &s.about) != 0)
    return 1;
  memcpy(s.gone, "77x", 4);
  long number = strtol(s.gone, &s.end, 10);
  s.end -= 2;
  inet_aton("127.0.0.1", &s.address);
  inet_ntop(AF_INET, &s.address, s.name, sizeof s.name);
  bzero(s.gone + 4, 4);
  strftime(s.first, sizeof s.first, "%Y-%m-%d", &s.tm);
  printf("%ld %s %s\n", number, s.name, s.first);
  library(argc > 5 ? words[0] : words[1], argc > 5 ? words[2] : "%d", argc);
  for (long k = 0; k < 60; k++) {
    pick((int)k);
    if (k == 30 && argc > 1)
      __asm__ volatile("xorb $1, (%0)" ::"r"(argv[1][0] == 's'   ? s.name + 2
                                             : argv[1][0] == 't' ? s.got + 40
                                                                 : (char *)words[2])
                       : "memory");
    strftime(s.got, sizeof s.got, "%Y", &year);
    printf("%ld %s", handle(k), out);
  }
  return 0;
}
