/* Timers, a counter that is a semaphore, and watches of the working directory. Each line asks, and each has an answer.
 * alarms: all. alarms plain: without watches. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int every, once, tokens, watches = -1, copy, set;

static int waits(int fd, int ms) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  return poll(&p, 1, ms) > 0;
}

/* One is relative, the other one a time of this clock, whose zero is each host's own. */
static void arm(int ms) {
  const struct itimerspec often = {{0, 200 * 1000000}, {0, 200 * 1000000}};
  struct itimerspec at = {0};
  clock_gettime(CLOCK_MONOTONIC, &at.it_value);
  at.it_value.tv_sec += ms / 1000;
  timerfd_settime(every, 0, &often, NULL);
  timerfd_settime(once, TFD_TIMER_ABSTIME, &at, NULL);
  puts("armed");
}

static void count(const char *what, int fd, int ms) {
  uint64_t n = 0;
  if (waits(fd, ms) && read(fd, &n, sizeof n) == sizeof n)
    printf("%s %s\n", what, n ? "came" : "nothing");
  else
    printf("%s late\n", what);
}

static void left(void) {
  uint64_t n;
  int taken = 0;
  while (waits(tokens, 0) && read(tokens, &n, sizeof n) == sizeof n)
    taken += (int)n;
  printf("left %d\n", taken);
}

static void heard(void) {
  char buffer[4096];
  printf("heard");
  while (waits(watches, 100)) {
    const ssize_t n = read(watches, buffer, sizeof buffer);
    for (ssize_t at = 0; at < n;) {
      const struct inotify_event *e = (const struct inotify_event *)(buffer + at);
      printf(" %d:%s", e->wd, e->name);
      at += (ssize_t)(sizeof *e + e->len);
    }
  }
  puts("");
}

/* What a set for polling tells. */
static void ready(void) {
  struct epoll_event events[4];
  unsigned which = 0;
  for (int n = epoll_wait(set, events, 4, 1000), i = 0; i < n; i++)
    which |= 1u << events[i].data.u32;
  printf("ready %u\n", which);
}

int main(int argc, char **argv) {
  char line[64];
  setvbuf(stdout, NULL, _IOLBF, 0);
  every = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  once = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  tokens = eventfd(3, EFD_SEMAPHORE | EFD_CLOEXEC);
  set = epoll_create1(EPOLL_CLOEXEC);
  if (argc < 2) {
    watches = inotify_init1(IN_CLOEXEC);
    inotify_add_watch(watches, "/dev", IN_CREATE);
    inotify_rm_watch(watches, 1);
    inotify_add_watch(watches, ".", IN_CREATE);
    copy = dup(watches);
  }
  const int all[] = {every, once, tokens, watches};
  for (uint32_t i = 0; i < 4; i++)
    epoll_ctl(set, EPOLL_CTL_ADD, all[i], &(struct epoll_event){.events = EPOLLIN, .data = {.u32 = i}});
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    int ms = 0;
    if (sscanf(line, "arm %d", &ms) == 1)
      arm(ms);
    else if (!strcmp(line, "tick"))
      count(line, every, 2000);
    else if (!strcmp(line, "once"))
      count(line, once, 20000);
    else if (!strcmp(line, "early"))
      count(line, once, 0);
    else if (!strcmp(line, "take"))
      count(line, tokens, 0);
    else if (!strcmp(line, "left"))
      left();
    else if (!strcmp(line, "heard"))
      heard();
    else if (!strcmp(line, "ready"))
      ready();
    else if (!strncmp(line, "watch ", 6))
      printf("watch %d\n", inotify_add_watch(copy, line + 6, IN_CREATE));
    else if (!strncmp(line, "unwatch ", 8))
      printf("unwatch %d\n", inotify_rm_watch(watches, atoi(line + 8)));
    else if (!strncmp(line, "make ", 5))
      printf("%s %d\n", line, close(open(line + 5, O_CREAT | O_WRONLY, 0600)));
    else
      puts("what?");
  }
  return 0;
}
