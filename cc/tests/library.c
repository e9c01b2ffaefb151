/* Functions of the C library that write results, take memory, or send: what the plain build gets and sends. */
#ifdef __OPTIMIZE__
#define _FORTIFY_SOURCE 2
#endif
#define _GNU_SOURCE
#include <steadfast/sei.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <libintl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <wchar.h>
#include <wctype.h>

static int ends[2];
static struct sockaddr_un there;
static socklen_t there_length;
static char line[200], name[40];
static char *kept;
static long order[16];
static struct in_addr address;
static double integral;
static int power;

static int by(const void *a, const void *b, void *with) {
  long x = *(const long *)a, y = *(const long *)b;
  return ((x > y) - (x < y)) * *(int *)with;
}

static char *made(const char *how, ...) {
  char *text = NULL;
  va_list list;
  va_start(list, how);
  int n = vasprintf(&text, how, list);
  va_end(list);
  return n < 0 ? NULL : text;
}

SF_LOCAL_HANDLER long text(int k) {
  char *stop;
  free(kept);
  if (asprintf(&kept, "%d of %0*d", k, 3 + k % 40, k) < 0)
    return -1;
  char *more = made("%s/%x", kept, k);
  stpcpy(stpcpy(name, "n"), "ame");
  strncat(name, kept, 5);
  char *end = stpncpy(line, more, (size_t)(k % 30) + 1);
  free(more);
  long sum = (long)(end - line) + (long)strlen(kept);
  sum += (long)(strtof("1.25x", &stop) * 8);
  sum += *stop;
  sum += (long)(strtold("2.5e3y", &stop) * 2);
  sum += *stop;
  sum += (long)strtoimax("-77z", &stop, 10);
  sum += *stop;
  char *said = strerror_r(k % 5 ? EAGAIN : 12345, line + 100, 90);
  time_t when = 86400 * (time_t)k;
  struct tm parts;
  char day[26];
  sum += (long)strlen(said) + (long)strlen(asctime_r(gmtime_r(&when, &parts), day));
  sum += frexp(k * 1.7, &power) * 1000 + power + modf(k / 3.0, &integral) * 100 + integral;
  sum += inet_aton("10.2.3.4", &address) + (long)(ntohl(address.s_addr) >> 24);
  sum += (char *)memccpy(line + 50, "up to; here", ';', 11) - line;
  sum += fnmatch("*.[ch]", k & 1 ? "one.c" : "one.o", 0) + (long)wcslen(L"wide") + towupper(L'w');
  sum += (long)strlen(gettext("message")) + strlen(ngettext("one", "many", (unsigned long)k));
  int sign = k & 1 ? 1 : -1;
  for (int i = 0; i < 16; i++)
    order[i] = (i * 7 + k) % 16;
  qsort_r(order, 16, sizeof *order, by, &sign);
  return sum + order[0] * 100 + order[15] + day[0];
}

/* Leaves after the handler; the next one receives it. */
SF_LOCAL_HANDLER long messages(int k) {
  char got[64], tail[16];
  struct sockaddr_un from;
  socklen_t length = sizeof from;
  ssize_t n = recvfrom(ends[0], got, (size_t)(k % 3 ? 64 : 10), MSG_DONTWAIT, (struct sockaddr *)&from, &length);
  long sum = n < 0 ? -errno : n * 1000 + got[n - 1] + (long)length;
  int room = snprintf(tail, sizeof tail, ", %d", k);
  struct iovec pieces[] = {{"message", 7}, {tail, (size_t)room}};
  struct msghdr whole = {.msg_name = &there, .msg_namelen = there_length, .msg_iov = pieces, .msg_iovlen = 2};
  sum += k % 2 ? sendmsg(ends[1], &whole, 0)
               : sendto(ends[1], kept, strlen(kept), 0, (struct sockaddr *)&there, there_length);
  if (k == 50)
    shutdown(ends[1], SHUT_WR);
  return sum;
}

static int print(char *to, const char *how, ...) {
  va_list list;
  va_start(list, how);
  int n = vsnprintf(to, 8, how, list);
  va_end(list);
  return n;
}

/* Its only variable is the uppermost word of the run's frames. */
SF_LOCAL_HANDLER int brief(int k) {
  char word[8];
  return print(word, "%d.%s", k, name) + word[0];
}

int main(void) {
  /* Without a name they are given one (unix(7), autobind). */
  struct sockaddr_un none = {.sun_family = AF_UNIX};
  for (int i = 0; i < 2; i++) {
    ends[i] = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (ends[i] < 0 || bind(ends[i], (struct sockaddr *)&none, sizeof none.sun_family) != 0)
      return 1;
  }
  there_length = sizeof there;
  if (getsockname(ends[0], (struct sockaddr *)&there, &there_length) != 0)
    return 1;
  for (int k = 0; k < 60; k++) {
    printf("%ld %s|%s|%.90s", text(k), kept, name, line);
    printf(" %ld %d\n", k <= 50 ? messages(k) : 0, brief(k));
  }
  return 0;
}
