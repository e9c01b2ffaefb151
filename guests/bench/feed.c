/* Requests and replies without a network, beneath memcached and dnsmasq as they are built otherwise: linked in the
   envelope's place, with -Wl,--wrap=read,--wrap=recvmsg,--wrap=sendmsg,--wrap=accept,--wrap=accept4.

   A connection, or a datagram, that begins with an order (below) is not read any further. So the kernel goes on saying that
   something has come, and the server goes on asking: it is given requests that are made here, and each reply is compared
   with the one that is right. When the order is done who gave it is told so, and the server finds the connection closed.

   What the runtime keeps of messages outside handlers (cc/runtime/provenance.c) it is told as by the envelope.

   One line says what was done: "feed: REQUESTS requests, HANDLERS handlers, NANOSECONDS ns". */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define WORD "sf-feed"
struct order {
  char word[8];
  uint64_t requests, seed;
};

extern int __real_accept(int, struct sockaddr *, socklen_t *);
extern int __real_accept4(int, struct sockaddr *, socklen_t *, int);
extern ssize_t __real_read(int, void *, size_t);
extern ssize_t __real_recvmsg(int, struct msghdr *, int);
extern ssize_t __real_sendmsg(int, const struct msghdr *, int);

/* The runtime's, if there is one. */
extern uint64_t sf_committed(void) __attribute__((weak));
extern uint8_t *sf_received_room(size_t length) __attribute__((weak));
extern void sf_received(const void *at, size_t length, const uint8_t *copy) __attribute__((weak));
extern void sf_received_unknown(const void *at, size_t length) __attribute__((weak));
extern void sf_received_none(void) __attribute__((weak));
extern void sf_outputs_leave(const struct iovec *parts, size_t count, size_t bytes) __attribute__((weak));
extern void sf_outputs_left(const struct iovec *parts, size_t count, size_t bytes) __attribute__((weak));
const int sf_envelope_linked = 1;

#define DESCRIPTORS 1024
static _Atomic char is_accepted[DESCRIPTORS];
static _Atomic int stream = -1, datagrams = -1; /* what is fed */
static struct order order;
static uint64_t made, handlers_before, ns_before, state;

static uint64_t below(uint64_t n) {
  /* xorshift64* (Vigna 2016); the upper bits. */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return ((state * 0x2545f4914f6cdd1dull) >> 33) % n;
}

static uint64_t ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t handlers(void) { return sf_committed ? sf_committed() : 0; }

__attribute__((noreturn)) static void wrong(const char *what) {
  fprintf(stderr, "feed: %s, request %llu of seed %llu\n", what, (unsigned long long)made, (unsigned long long)order.seed);
  _exit(3);
}

static void begin(void) {
  made = 0;
  state = order.seed * 2 + 1;
  if (sf_received_none)
    sf_received_none();
  handlers_before = handlers();
  ns_before = ns();
}

/* The order is taken away: what lies unread when a connection is closed would reset it. */
static void done(int descriptor, const struct sockaddr *to, socklen_t to_length) {
  char line[128];
  struct order o;
  if (recv(descriptor, &o, sizeof o, MSG_DONTWAIT) != sizeof o)
    wrong("the order is gone");
  int n = snprintf(line, sizeof line, "feed: %llu requests, %llu handlers, %llu ns\n", (unsigned long long)made,
                   (unsigned long long)(handlers() - handlers_before), (unsigned long long)(ns() - ns_before));
  if (sendto(descriptor, line, (size_t)n, MSG_NOSIGNAL, to, to_length) != n)
    wrong("the end could not be told");
}

/* memcached: a stream of commands, and one of replies that must follow. */

#define KEYS 2000
#define COUNTERS 50
#define VALUE_MAX 2048
#define REPLIES ((size_t)16 << 20) /* of what has been read at most, 16 KiB of short commands with long answers: a tenth */
#define REQUESTS ((size_t)16 << 10)
static char pool[VALUE_MAX + 4096];
static char requests[REQUESTS + 2 * VALUE_MAX];
static size_t requests_from, requests_to;
static char *replies;
static size_t replies_from, replies_to; /* not wrapped */
static uint64_t counters[COUNTERS];

static size_t length_of(uint64_t key) { return 1 + key * 7919 % VALUE_MAX; }
static const char *value_of(uint64_t key) { return pool + key * 31 % 4096; }

static void ask(const char *bytes, size_t length) {
  memcpy(requests + requests_to, bytes, length);
  requests_to += length;
}

static void expect(const char *bytes, size_t length) {
  if (replies_to + length - replies_from > REPLIES)
    wrong("the server keeps more replies than there is room for");
  for (size_t i = 0; i < length; i++)
    replies[replies_to++ % REPLIES] = bytes[i];
}

static void ask_set(uint64_t key) {
  char line[64];
  ask(line, (size_t)snprintf(line, sizeof line, "set key%llu 0 0 %zu\r\n", (unsigned long long)key, length_of(key)));
  ask(value_of(key), length_of(key));
  ask("\r\n", 2);
  expect("STORED\r\n", 8);
}

static void ask_for(uint64_t key, int meta) {
  char line[64];
  unsigned long long name = key;
  ask(line, (size_t)snprintf(line, sizeof line, meta ? "mg key%llu v\r\n" : "get key%llu\r\n", name));
  if (meta)
    expect(line, (size_t)snprintf(line, sizeof line, "VA %zu\r\n", length_of(key)));
  else
    expect(line, (size_t)snprintf(line, sizeof line, "VALUE key%llu 0 %zu\r\n", name, length_of(key)));
  expect(value_of(key), length_of(key));
  expect("\r\nEND\r\n", meta ? 2 : 7);
}

/* Keys and counters first; then a mix. */
static void ask_next(void) {
  char line[64];
  uint64_t n = made++;
  if (n < KEYS) {
    ask_set(n);
    return;
  }
  uint64_t counter = n < KEYS + COUNTERS ? n - KEYS : below(COUNTERS), key = below(KEYS), kind = below(100);
  if (n < KEYS + COUNTERS) {
    counters[counter] = 0;
    ask(line, (size_t)snprintf(line, sizeof line, "set counter%llu 0 0 1\r\n0\r\n", (unsigned long long)counter));
    expect("STORED\r\n", 8);
  } else if (kind < 60) {
    ask_for(key, 0);
  } else if (kind < 70) {
    ask_for(key, 1);
  } else if (kind < 85) {
    ask_set(key);
  } else if (kind < 92) {
    ask(line, (size_t)snprintf(line, sizeof line, "incr counter%llu %llu\r\n", (unsigned long long)counter, (unsigned long long)kind));
    counters[counter] += kind;
    expect(line, (size_t)snprintf(line, sizeof line, "%llu\r\n", (unsigned long long)counters[counter]));
  } else if (kind < 96) {
    ask(line, (size_t)snprintf(line, sizeof line, "touch key%llu 0\r\n", (unsigned long long)key));
    expect("TOUCHED\r\n", 9);
  } else {
    ask(line, (size_t)snprintf(line, sizeof line, "delete key%llu\r\n", (unsigned long long)key));
    expect("DELETED\r\n", 9);
    ask_set(key);
  }
}

/* Whether an order lies there; once anything does, nobody asks again. */
static int finds_order(int descriptor) {
  struct order o;
  ssize_t n = recv(descriptor, &o, sizeof o, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN)
    return 0;
  is_accepted[descriptor] = 0;
  if (n != sizeof o || memcmp(o.word, WORD, sizeof o.word) != 0)
    return 0;
  order = o;
  return 1;
}

static void begin_stream(int descriptor) {
  if (!replies)
    replies = malloc(REPLIES);
  if (!replies)
    wrong("there is no memory for replies");
  uint64_t fill = 1;
  for (size_t i = 0; i < sizeof pool; i++)
    pool[i] = (char)('a' + (fill = fill * 6364136223846793005u + 1442695040888963407u) / 0x100000000u % 26);
  requests_from = requests_to = replies_from = replies_to = 0;
  begin();
  stream = descriptor;
}

static void received(const void *at, size_t length) {
  uint8_t *copy = sf_received_room ? sf_received_room(length) : NULL;
  if (copy) {
    memcpy(copy, at, length);
    sf_received(at, length, copy);
  } else if (sf_received_unknown) {
    sf_received_unknown(at, length);
  }
}

ssize_t __wrap_read(int descriptor, void *into, size_t room) {
  if (descriptor >= 0 && descriptor < DESCRIPTORS && is_accepted[descriptor] && finds_order(descriptor))
    begin_stream(descriptor);
  if (descriptor != stream || descriptor < 0)
    return __real_read(descriptor, into, room);
  if (requests_from == requests_to) {
    requests_from = requests_to = 0;
    while (made < order.requests && requests_to < REQUESTS)
      ask_next();
  }
  size_t n = requests_to - requests_from < room ? requests_to - requests_from : room;
  if (n == 0) {
    if (replies_from != replies_to)
      wrong("replies are missing");
    done(descriptor, NULL, 0);
    stream = -1;
    return 0;
  }
  memcpy(into, requests + requests_from, n);
  requests_from += n;
  received(into, n);
  return (ssize_t)n;
}

int __wrap_accept(int listener, struct sockaddr *peer, socklen_t *length) {
  int descriptor = __real_accept(listener, peer, length);
  if (descriptor >= 0 && descriptor < DESCRIPTORS)
    is_accepted[descriptor] = 1;
  return descriptor;
}

int __wrap_accept4(int listener, struct sockaddr *peer, socklen_t *length, int flags) {
  int descriptor = __real_accept4(listener, peer, length, flags);
  if (descriptor >= 0 && descriptor < DESCRIPTORS)
    is_accepted[descriptor] = 1;
  return descriptor;
}

static ssize_t replied(const struct msghdr *m) {
  size_t all = 0;
  for (size_t i = 0; i < m->msg_iovlen; i++)
    all += m->msg_iov[i].iov_len;
  if (sf_outputs_leave)
    sf_outputs_leave(m->msg_iov, m->msg_iovlen, all);
  if (all > replies_to - replies_from)
    wrong("more is replied than was asked for");
  for (size_t i = 0; i < m->msg_iovlen; i++) {
    const char *bytes = m->msg_iov[i].iov_base;
    for (size_t left = m->msg_iov[i].iov_len; left;) {
      size_t at = replies_from % REPLIES, n = left < REPLIES - at ? left : REPLIES - at;
      if (memcmp(bytes, replies + at, n) != 0)
        wrong("a reply is wrong");
      replies_from += n;
      bytes += n;
      left -= n;
    }
  }
  if (sf_outputs_left)
    sf_outputs_left(m->msg_iov, m->msg_iovlen, all);
  return (ssize_t)all;
}

/* dnsmasq: one question after the other. Names and addresses are those of workloads/src/load/dns.rs. */

#define HOSTS 1000
#define MESSAGE_MAX 128
static uint8_t known[HOSTS][MESSAGE_MAX]; /* each host's first answer; the others must be the same */
static size_t known_length[HOSTS];
static struct sockaddr_storage peer;
static socklen_t peer_length;
static uint64_t host; /* HOSTS and more: there is none of this name */
static uint16_t asked_id;
static int is_open; /* a question has no answer yet */

static size_t question(uint8_t *to) {
  static const uint8_t head[] = {1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, tail[] = {5, 'b', 'e', 'n', 'c', 'h', 4, 't', 'e', 's', 't', 0, 0, 1, 0, 1};
  host = below(HOSTS + HOSTS / 8);
  asked_id = (uint16_t)below(65536);
  uint8_t *at = to;
  *at++ = (uint8_t)(asked_id >> 8);
  *at++ = (uint8_t)asked_id;
  at = mempcpy(at, head, sizeof head);
  *at++ = 10;
  at += snprintf((char *)at, 16, "host-%05llu", (unsigned long long)host);
  at = mempcpy(at, tail, sizeof tail);
  return (size_t)(at - to);
}

static void answered(const uint8_t *bytes, size_t length) {
  if (!is_open || length < 12 || bytes[0] != (uint8_t)(asked_id >> 8) || bytes[1] != (uint8_t)asked_id)
    wrong("an answer has no question");
  is_open = 0;
  if (host >= HOSTS) {
    if ((bytes[3] & 15) != 3)
      wrong("a name that is not there has an answer");
    return;
  }
  if (known_length[host] == 0) {
    const uint8_t address[4] = {10, 77, (uint8_t)(host >> 8), (uint8_t)host};
    if (length > MESSAGE_MAX || (bytes[3] & 15) != 0 || memcmp(bytes + length - 4, address, 4) != 0)
      wrong("an answer is wrong");
    memcpy(known[host], bytes, length);
    known_length[host] = length;
  }
  if (length != known_length[host] || memcmp(bytes + 2, known[host] + 2, length - 2) != 0)
    wrong("an answer is not what it was");
}

ssize_t __wrap_recvmsg(int descriptor, struct msghdr *m, int flags) {
  if (descriptor != datagrams) {
    struct order o;
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    ssize_t n = recvfrom(descriptor, &o, sizeof o, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)&from, &length);
    if (n != sizeof o || memcmp(o.word, WORD, sizeof o.word) != 0)
      return __real_recvmsg(descriptor, m, flags);
    order = o;
    peer = from;
    peer_length = length;
    is_open = 0;
    begin();
    datagrams = descriptor;
  }
  if (is_open)
    wrong("a question has no answer");
  if (made == order.requests) {
    done(descriptor, (struct sockaddr *)&peer, peer_length);
    datagrams = -1;
    errno = EAGAIN;
    return -1;
  }
  made++;
  is_open = 1;
  m->msg_flags = 0;
  m->msg_controllen = 0;
  memcpy(m->msg_name, &peer, peer_length);
  m->msg_namelen = peer_length;
  return (ssize_t)question(m->msg_iov[0].iov_base);
}

ssize_t __wrap_sendmsg(int descriptor, const struct msghdr *m, int flags) {
  if (descriptor < 0)
    return __real_sendmsg(descriptor, m, flags);
  if (descriptor == stream)
    return replied(m);
  if (descriptor != datagrams)
    return __real_sendmsg(descriptor, m, flags);
  answered(m->msg_iov[0].iov_base, m->msg_iov[0].iov_len);
  return (ssize_t)m->msg_iov[0].iov_len;
}
