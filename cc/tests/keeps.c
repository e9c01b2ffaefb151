/* Objects with a copy, a part of which a library keeps and writes by itself; and names that the kernel writes.
 *
 *     keeps [STRIKE]   strike: before, hook, after, beside (what has a checksum still), or reused: in a block that took the place
 *                      of one with a hook */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef LIBRARY
struct hook {
  struct hook *next;
  long hits;
};
static struct hook *all;
void hook_set(struct hook *h) {
  h->next = all;
  all = h;
  h->hits = 0;
}
void hook_unset(struct hook *h) {
  for (struct hook **p = &all; *p; p = &(*p)->next)
    if (*p == h) {
      *p = h->next;
      return;
    }
}
void hook_run(void) {
  for (struct hook *h = all; h; h = h->next)
    h->hits++;
}
#else
struct hook {
  struct hook *next;
  long hits;
};
void hook_set(struct hook *), hook_unset(struct hook *), hook_run(void);

struct connection {
  long before;
  struct hook hook;
  long after;
  struct sockaddr_in peer, self;
  socklen_t length;
  char text[32];
  long spare[32]; /* no two hooks share a checksum of the scrubber's */
};
enum { COUNT = 20 };
static struct connection *connections[COUNT];

static struct connection *make(void) { return calloc(1, sizeof(struct connection)); }

void handle(struct connection *c, long v) {
  if (v < 0)
    memset(c, 0, sizeof *c); /* what the library keeps as well */
  c->before += v;
  c->after ^= c->before * 3;
}

static long *place(const char *strike) {
  struct connection *c = connections[7];
  if (strcmp(strike, "before") == 0)
    return &c->before;
  if (strcmp(strike, "hook") == 0)
    return &c->hook.hits;
  if (strcmp(strike, "after") == 0)
    return &c->after;
  /* The same block again, with no hook in it. */
  hook_unset(&c->hook);
  free(c);
  connections[7] = make();
  if (connections[7] != c)
    exit(3);
  return &c->hook.hits;
}

/* What has a checksum, over a hook that the library has not written yet, is repaired; the hook stays as it is by now. */
static void beside(struct connection *c) {
  usleep(100000);
  hook_run();
  __asm__ volatile("xorb $4, (%0)" ::"r"(c->spare + 1) : "memory");
  usleep(100000);
  if (c->hook.hits != 1 || c->spare[1] != 0)
    exit(7);
  exit(0);
}

static void names(struct connection *c) {
  int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (bind(server, (struct sockaddr *)&at, sizeof at) != 0)
    exit(4);
  c->length = sizeof c->self;
  getsockname(server, (struct sockaddr *)&c->self, &c->length);
  sendto(client, "hello", 5, 0, (struct sockaddr *)&c->self, sizeof c->self);
  c->length = sizeof c->peer;
  long n = recvfrom(server, c->text, sizeof c->text, 0, (struct sockaddr *)&c->peer, &c->length);
  printf("%ld %s %s %u %d\n", n, c->text, inet_ntoa(c->peer.sin_addr), c->length, c->self.sin_port != 0);
  struct iovec part = {c->text, sizeof c->text};
  struct msghdr m = {.msg_name = &c->peer, .msg_namelen = sizeof c->peer, .msg_iov = &part, .msg_iovlen = 1};
  sendto(client, "again", 5, 0, (struct sockaddr *)&c->self, sizeof c->self);
  n = recvmsg(server, &m, 0);
  printf("%ld %s %u\n", n, c->text, m.msg_namelen);
  int listening = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0);
  at.sin_port = 0;
  if (bind(listening, (struct sockaddr *)&at, sizeof at) != 0 || listen(listening, 1) != 0)
    exit(5);
  c->length = sizeof c->self;
  getsockname(listening, (struct sockaddr *)&c->self, &c->length);
  if (connect(other, (struct sockaddr *)&c->self, sizeof c->self) != 0)
    exit(6);
  c->length = sizeof c->peer;
  int taken = accept(listening, (struct sockaddr *)&c->peer, &c->length);
  printf("%d %s %u\n", taken >= 0, inet_ntoa(c->peer.sin_addr), c->length);
  memset(&c->peer, 0, sizeof c->peer);
  c->length = sizeof c->peer;
  getpeername(other, (struct sockaddr *)&c->peer, &c->length);
  printf("%d\n", memcmp(&c->peer, &c->self, sizeof c->self));
  close(server), close(client), close(listening), close(other), close(taken);
}

int main(int argc, char **argv) {
  long sum = 0;
  for (int i = 0; i < COUNT; i++) {
    connections[i] = make();
    hook_set(&connections[i]->hook);
  }
  if (argc > 1 && strcmp(argv[1], "beside") == 0)
    beside(connections[0]);
  names(connections[3]);
  for (int round = 0; round < 300; round++) {
    if (round == 150 && argc > 1)
      __asm__ volatile("xorb $4, (%0)" ::"r"(place(argv[1])) : "memory");
    for (int i = 0; i < COUNT; i++)
      handle(connections[i], round * i);
    hook_run();
    if (round % 10 == 0)
      usleep(1000); /* the scrubber's turn */
    for (int i = 0; i < COUNT; i++)
      sum = sum * 5 + connections[i]->hook.hits + connections[i]->after;
  }
  printf("%ld\n", sum);
  /* Handled as a whole, and given back: neither is a difference. */
  for (int i = 0; i < COUNT; i++) {
    hook_unset(&connections[i]->hook);
    if (i % 2)
      handle(connections[i], -1);
    free(connections[i]);
  }
  usleep(100000);
  return 0;
}
#endif
