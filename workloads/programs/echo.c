/*
 * A server that knows nothing of the message envelope and is linked with it: what it reads it sends back. Level
 * triggered, non-blocking, one thread, and with a read buffer of its caller's choice, which is where a layer beneath it
 * could go wrong.
 *
 * echo BYTES: listens on a port of 127.0.0.1 that it prints, for connections and for datagrams alike. A datagram comes
 * back with the header's QR bit set, and without its OPT record when its second byte of flags is 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64
#define WAITING_MAX (4 << 20)

struct connection {
  int fd;
  size_t length, sent;
  char *waiting;
};
static struct connection all[CONNECTIONS_MAX];
static size_t buffer_bytes;

static void end(struct connection *c) {
  close(c->fd);
  free(c->waiting);
  memset(c, 0, sizeof *c);
}

/* In three parts, as memcached sends header, value and end. */
static void put(struct connection *c) {
  while (c->sent < c->length) {
    char *at = c->waiting + c->sent;
    size_t left = c->length - c->sent, third = left / 3;
    struct iovec iov[3] = {{at, third}, {at + third, 0}, {at + third, left - third}};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = 3};
    ssize_t put = sendmsg(c->fd, &message, MSG_NOSIGNAL);
    if (put < 0 && errno != EAGAIN) end(c);
    if (put < 0) return;
    c->sent += (size_t)put;
  }
  c->length = c->sent = 0;
}

static void get(struct connection *c) {
  if (c->length + buffer_bytes > WAITING_MAX) return;
  ssize_t got = read(c->fd, c->waiting + c->length, buffer_bytes);
  if (got == 0 || (got < 0 && errno != EAGAIN)) return end(c);
  if (got > 0) c->length += (size_t)got;
}

static void datagram(int fd) {
  unsigned char bytes[4096];
  struct sockaddr_in peer;
  struct iovec iov = {bytes, sizeof bytes};
  struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &iov, .msg_iovlen = 1};
  ssize_t got = recvmsg(fd, &message, 0);
  if (got < 12) return;
  bytes[2] |= 0x80;
  if (bytes[3] == 1) bytes[11] = 0, got -= 11;
  iov.iov_len = (size_t)got;
  sendmsg(fd, &message, 0);
}

int main(int argc, char **argv) {
  buffer_bytes = argc > 1 ? (size_t)atol(argv[1]) : 16384;
  int listener = socket(AF_INET, SOCK_STREAM, 0), datagrams = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof here;
  if (bind(listener, (void *)&here, sizeof here) || listen(listener, 16)) return 1;
  getsockname(listener, (void *)&here, &length);
  if (bind(datagrams, (void *)&here, sizeof here)) return 1;
  printf("%d\n", ntohs(here.sin_port));
  fflush(stdout);
  for (;;) {
    struct pollfd fds[CONNECTIONS_MAX + 2] = {{.fd = listener, .events = POLLIN}, {.fd = datagrams, .events = POLLIN}};
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
      fds[i + 2].fd = all[i].waiting ? all[i].fd : -1;
      fds[i + 2].events = all[i].length ? POLLIN | POLLOUT : POLLIN;
    }
    if (poll(fds, CONNECTIONS_MAX + 2, -1) < 0) return 1;
    if (fds[1].revents) datagram(datagrams);
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
      if (all[i].waiting && fds[i + 2].revents & ~POLLOUT) get(&all[i]);
      if (all[i].waiting && all[i].length) put(&all[i]);
    }
    if (!fds[0].revents) continue;
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    for (int i = 0; fd >= 0 && i < CONNECTIONS_MAX; i++)
      if (!all[i].waiting) {
        all[i] = (struct connection){.fd = fd, .waiting = malloc(WAITING_MAX)};
        break;
      }
  }
}
