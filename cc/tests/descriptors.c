/* What handlers of event loops do to descriptors: connections, options, epoll, and a reader who does not read. */
#define _GNU_SOURCE
#include <steadfast/sei.h>

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 5000, FULL = 100000 };

static int loop, taken_in;
static char bytes[PIECE];
static size_t sent;

SF_LOCAL_HANDLER int take_in(int listening) {
  struct sockaddr_in from;
  socklen_t n = sizeof from;
  int fd = accept(listening, (struct sockaddr *)&from, &n);
  if (fd < 0)
    return errno == EAGAIN ? 0 : -1;
  taken_in++;
  int on = 1;
  if (n != sizeof from || from.sin_family != AF_INET || setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0)
    return -2;
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
    return -3;
  struct epoll_event e = {.events = EPOLLOUT | EPOLLET, .data.fd = fd};
  return epoll_ctl(loop, EPOLL_CTL_ADD, fd, &e) == 0 ? fd : -4;
}

/* As much as goes, which is less than is there: how much is the kernel's affair, and that of the runtime. */
SF_LOCAL_HANDLER int fill(int fd, int how) {
  for (int i = 0; i < FULL; i++) {
    for (int at = 0; at < PIECE; at++)
      bytes[at] = (char)((sent + (size_t)at) % 251);
    struct iovec v[2] = {{bytes, 1000}, {bytes + 1000, PIECE - 1000}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    ssize_t n = how == 0 ? write(fd, bytes, PIECE) : how == 1 ? writev(fd, v, 2) : how == 2 ? sendmsg(fd, &m, 0) : send(fd, bytes, PIECE, MSG_DONTWAIT);
    if (n < 0)
      return errno;
    sent += (size_t)n;
    if (n < PIECE && (n == 0 || how == 3))
      return n == 0 ? -1 : EAGAIN;
  }
  return 0;
}

SF_LOCAL_HANDLER int name(char *host, char *port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(80), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  char own[65];
  int failed = getnameinfo((struct sockaddr *)&at, sizeof at, host, 20, port, 10, NI_NUMERICHOST | NI_NUMERICSERV);
  return failed * 1000 + getnameinfo((struct sockaddr *)&at, sizeof at, host, 3, NULL, 0, NI_NUMERICHOST) * 10 + gethostname(own, sizeof own);
}

SF_LOCAL_HANDLER int ask(int quiet, int ready) {
  struct utsname system;
  struct pollfd p[2] = {{.fd = quiet, .events = POLLIN}, {.fd = ready, .events = POLLIN | POLLOUT}};
  int n = poll(p, 2, 0);
  return uname(&system) * 1000 + n * 100 + p[0].revents * 10 + p[1].revents + !*system.sysname;
}

SF_LOCAL_HANDLER int on_disk(int fd, time_t when) {
  struct tm *day = gmtime(&when);
  int written = dprintf(fd, "%04d-%02d-%02d\n", day->tm_year + 1900, day->tm_mon + 1, day->tm_mday);
  day = localtime(&when);
  return written + fsync(fd) + fdatasync(fd) + day->tm_year;
}

static int is_writable(void) {
  struct epoll_event e;
  return epoll_wait(loop, &e, 1, 0) == 1 && (e.events & EPOLLOUT);
}

static int connected(int listening, int *client) {
  struct sockaddr_in at;
  socklen_t n = sizeof at;
  getsockname(listening, (struct sockaddr *)&at, &n);
  *client = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(*client, (struct sockaddr *)&at, n) != 0)
    exit(1);
  return take_in(listening);
}

/* Returns whether what was read is what was sent, byte for byte. */
static int drained(int client, size_t *at) {
  static unsigned char got[65536];
  while (*at < sent) {
    ssize_t n = read(client, got, sizeof got);
    if (n <= 0)
      return 0;
    for (ssize_t i = 0; i < n; i++) {
      size_t in_piece = (*at)++;
      if (got[i] != (unsigned char)(in_piece % 251))
        return 0;
    }
  }
  return 1;
}

int main(void) {
  int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (bind(listening, (struct sockaddr *)&any, sizeof any) != 0 || listen(listening, 9) != 0)
    return 1;
  loop = epoll_create1(0);
  printf("nobody: %d\n", take_in(listening));
  for (int how = 0; how < 4; how++) {
    int client, fd = connected(listening, &client);
    int writable = is_writable();
    size_t at = 0;
    sent = 0;
    int full = fill(fd, how);
    size_t some = sent;
    int quiet = !is_writable();
    int right = drained(client, &at);
    printf("way %d: connected %d, writable %d, full %d, some %d, no edge %d, read %d, ", how, fd > 0, writable, full == EAGAIN, some > PIECE, quiet, right);
    printf("edge %d, goes on %d, ", is_writable(), fill(fd, how) == EAGAIN && sent > some);
    printf("read %d\n", drained(client, &at));
    close(client);
    close(fd);
  }
  int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
  setenv("TZ", "UTC", 1);
  printf("on disk: %d\n", on_disk(file, 86400 * 365));
  char text[20] = "";
  printf("%zd %s", pread(file, text, sizeof text - 1, 0), text);
  printf("asked: %d\n", ask(listening, file));
  char host[20] = "", port[10] = "";
  int named = name(host, port);
  printf("name: %d, %s:%s\n", named, host, port);
  printf("taken in: %d\n", taken_in);
  return 0;
}
