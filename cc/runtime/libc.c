/*
 * What hardened code calls in place of the C library where a call has an effect: memory, locks, time, random numbers,
 * input and output. Named __sf_w_NAME; cc/policies/glibc.policy says which call goes where.
 *
 *     memory   given out in the first run, the same block again in the second; given back after V
 *     locks    see locks.c
 *     input    read in the first run, given again to the second
 *     output   collected by content, compared, and done after V, in order
 *
 * Invariants
 *  1. A wrapper behaves alike in both runs: what it returns and writes depends on arguments and the queue alone.
 *  2. What it writes into the program's memory is logged like any store.
 *
 * What fails after V was reported to the handler as done: late.c says what becomes of it.
 */
#define _GNU_SOURCE
#include "state.h"
#include "late.h"
#include "wrapper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <malloc.h>
#include <poll.h>
#include <stdatomic.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

/* Threads. */

static pthread_key_t ends;

static void thread_end(void *of) {
  struct sf_context *c = of;
  /* The context itself stays: other threads may be looking at its counter. The buffers go. */
  atomic_store(&c->counter, (c->counter + 1) & ~1ull);
  sf_unmap(__sf_tls.table, ((__sf_tls.index_mask >> 3) + 1) * 9);
  sf_unmap(c->entries, c->capacity * sizeof *c->entries);
  sf_unmap(c->news, c->capacity * sizeof *c->news);
  struct sf_buffer *all[] = {&c->arena, &c->ranges, &c->queue, &c->deferred, &c->locks,
                             &c->parts, &c->crcs,   &c->trace, &c->waits,    &c->kept};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i]->base) {
      sf_unmap(all[i]->base, all[i]->size);
      *all[i] = (struct sf_buffer){0};
    }
  sf_split_free(c);
  if (c->shadow)
    __sf_recover.shadow_thread_end(c);
  if (sf_second_core())
    __sf_second_core.thread_end(c);
  for (size_t i = 0; i < SF_HOLDS; i++)
    atomic_store(&c->holds[i], NULL);
  if (sf_state())
    __sf_state.thread_end();
  __sf_own = NULL;
  __sf_tls.table = NULL;
  c->epoch = c->event = c->committed = c->barrier_event = c->message_count = c->crc_cursor = 0;
  atomic_store(&c->alive, 0); /* another thread may take it from here on */
}

__attribute__((constructor(104))) static void prepare_libc(void) {
  if (pthread_key_create(&ends, thread_end) != 0)
    sf_stop("a key for thread-specific data is needed, none is left", "use fewer keys (PTHREAD_KEYS_MAX)");
}

void sf_thread_ends(struct sf_context *c) { pthread_setspecific(ends, c); }

/* Of the first thread, as they were at the start: the C library reads them from /proc, which a daemon that calls chroot before its
   first handler has left behind. */
static uintptr_t first_low, first_high;

static bool bounds(uintptr_t *low, uintptr_t *high) {
  pthread_attr_t a;
  void *base;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &a) != 0)
    return false;
  bool known = pthread_attr_getstack(&a, &base, &size) == 0;
  pthread_attr_destroy(&a);
  if (known) {
    *low = (uintptr_t)base;
    *high = (uintptr_t)base + size;
  }
  return known;
}

__attribute__((constructor(104))) static void first_thread(void) { bounds(&first_low, &first_high); }

void sf_stack_bounds(uintptr_t *low, uintptr_t *high) {
  if (bounds(low, high))
    return;
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  if (here - first_low >= first_high - first_low)
    sf_stop("the bounds of a thread's stack are needed and not known", "mount /proc");
  *low = first_low;
  *high = first_high;
}

/* Memory. */

static void *given_libc(struct sf_context *c, const char *name, uint64_t arguments, void *(*make)(size_t, size_t), size_t a, size_t b) {
  void *p;
  if (FIRST) {
    p = make(a, b);
    void *second = p; /* the other run's, from here on */
    sf_opaque(second);
    sf_record(c, name, arguments, 0)->result = (uint64_t)second;
  } else {
    p = (void *)sf_replay(c, name, arguments)->result;
  }
  if (unlikely(!p))
    errno = ENOMEM;
  return p;
}

/* Blocks that a run which is thrown away has taken. */
static const char name_memory[] = "malloc";

static void *make_malloc(size_t a, size_t b) { return (void)b, malloc(a); }
static void *make_calloc(size_t a, size_t b) { return calloc(a, b); }
static void *make_aligned(size_t a, size_t b) { return aligned_alloc(a, b); }
static void *make_memalign(size_t a, size_t b) { return memalign(a, b); }

SF_API void *__sf_w_malloc(size_t n) {
  INSIDE;
  return given_libc(c, name_memory, n, make_malloc, n, 0);
}

SF_API void *__sf_w_calloc(size_t n, size_t size) {
  INSIDE;
  return given_libc(c, name_memory, sf_mix(n, size), make_calloc, n, size);
}

SF_API void *__sf_w_aligned_alloc(size_t alignment, size_t size) {
  INSIDE;
  return given_libc(c, name_memory, sf_mix(alignment, size), make_aligned, alignment, size);
}

SF_API void *__sf_w_memalign(size_t alignment, size_t size) {
  INSIDE;
  return given_libc(c, name_memory, sf_mix(alignment, size), make_memalign, alignment, size);
}

SF_API int __sf_w_posix_memalign(void **out, size_t alignment, size_t size) {
  INSIDE;
  if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
    return EINVAL;
  void *p = given_libc(c, name_memory, sf_mix(alignment, size), make_memalign, alignment, size);
  if (!p)
    return ENOMEM;
  LOGGED(out, sizeof *out, *out = p);
  return 0;
}

/* How a block is given back. */
static void *free_of(const void *p) { return unlikely(sf_state()) && sf_is_heap(p) ? (void *)__sf_state.free : (void *)free; }
void sf_free(void *p) { ((void (*)(void *))free_of(p))(p); }

void sf_defer_last(struct sf_context *c, const char *name, void *function, void *on) {
  uint64_t a[1] = {(uint64_t)on};
  __sf_defer(name, function, 1, a);
  if (FIRST)
    ((struct sf_deferred *)(c->deferred.base + c->deferred.used) - 1)->last = 1;
}

void sf_defer_forget(struct sf_context *c, void *on) {
  struct sf_deferred *d = (struct sf_deferred *)c->deferred.base, *end = (struct sf_deferred *)(c->deferred.base + c->deferred.used);
  for (; d != end; d++)
    if (d->last && d->function != free_of((void *)d->arguments[0]) && d->arguments[0] == (uint64_t)on)
      d->last = 2;
}

SF_API void __sf_w_free(void *p) {
  INSIDE;
  if (p)
    sf_defer_last(c, "free", free_of(p), p);
}

/* A validator has its own heap, and there p is another block or none. */
static size_t usable_once(void *p) {
  uint64_t n;
  if (!__sf_once("malloc_usable_size", (uint64_t)p, &n))
    __sf_once_done(n = malloc_usable_size(p));
  return n;
}

SF_API void *__sf_w_realloc(void *p, size_t n) {
  if (!p)
    return __sf_w_malloc(n);
  if (n == 0) {
    __sf_w_free(p);
    return NULL;
  }
  bool kept = unlikely(sf_state()) && sf_is_heap(p);
  void *q = !kept ? __sf_w_malloc(n) : sf_is_dup((uintptr_t)p) ? __sf_state.take_dup(n) : __sf_state.take_crc(n);
  if (!q)
    return NULL;
  size_t had = kept ? __sf_state.size(p) : sf_async() ? usable_once(p) : malloc_usable_size(p), bytes = had < n ? had : n;
  if (sf_async())
    __sf_async.reads(p, bytes);
  if (kept)
    __sf_state.touch(p, bytes);
  __sf_memcpy(sf_own(q), sf_own(p), bytes);
  __sf_w_free(p);
  return q;
}

SF_API void *__sf_w_reallocarray(void *p, size_t n, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return __sf_w_realloc(p, bytes);
}

SF_API char *__sf_w_strndup(const char *s, size_t n) {
  size_t length = strnlen(s, n);
  char *p = __sf_w_malloc(length + 1);
  if (p) {
    __sf_memcpy(p, s, length);
    LOGGED(p + length, 1, p[length] = 0);
  }
  return p;
}

SF_API char *__sf_w_strdup(const char *s) { return __sf_w_strndup(s, strlen(s)); }

/* Input: bytes and a result, read once. */

SF_API ssize_t __sf_w_read(int fd, void *to, size_t n) {
  READING("read", sf_mix(sf_mix((uint64_t)fd, sf_home(to)), n), to, n, read(fd, into, n));
}

SF_API ssize_t __sf_w_recv(int fd, void *to, size_t n, int flags) {
  READING("recv", sf_mix(sf_mix((uint64_t)fd, sf_home(to)), sf_mix(n, (uint64_t)flags)), to, n, recv(fd, into, n, flags));
}

SF_API ssize_t __sf_w_recvfrom(int fd, void *to, size_t n, int flags, void *from, socklen_t *length) {
  INSIDE;
  struct kept {
    socklen_t length;
    struct sockaddr_storage from;
  };
  uint64_t mix = sf_mix(sf_mix((uint64_t)fd, sf_home(to)), sf_mix(n, (uint64_t)flags));
  struct sf_record *r;
  if (FIRST && (r = sf_kept(c, "recvfrom", mix)) != NULL) {
    /* a retry */
  } else if (FIRST) {
    r = sf_record(c, "recvfrom", mix, sizeof(struct kept) + n);
    struct kept *k = (struct kept *)sf_data(r);
    k->length = sizeof k->from;
    ssize_t got = recvfrom(fd, k + 1, n, flags, (struct sockaddr *)&k->from, &k->length);
    r->result = (uint64_t)(got < 0 ? -(int64_t)errno : got);
    r->once = 1;
  } else {
    r = sf_replay(c, "recvfrom", mix);
  }
  if ((int64_t)r->result < 0) {
    errno = (int)-(int64_t)r->result;
    return -1;
  }
  struct kept k;
  memcpy(&k, sf_data(r), sizeof k);
  __sf_memcpy(to, sf_data(r) + sizeof k, r->result < n ? r->result : n); /* with MSG_TRUNC it is what there was */
  if (from && length) {
    __sf_memcpy(from, &k.from, k.length < *length ? k.length : *length);
    LOGGED(length, sizeof *length, *length = k.length);
  }
  return (ssize_t)r->result;
}

/* Fortified: how much room there is, where the compiler knows it. */
extern ssize_t __sf_w_pread(int fd, void *to, size_t n, off_t at);
SF_API ssize_t __sf_w_read_chk(int fd, void *to, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_w_read(fd, to, n);
}
SF_API ssize_t __sf_w_pread_chk(int fd, void *to, size_t n, off_t at, size_t room) {
  if (n > room)
    abort();
  return __sf_w_pread(fd, to, n, at);
}
SF_API ssize_t __sf_w_recv_chk(int fd, void *to, size_t n, size_t room, int flags) {
  if (n > room)
    abort();
  return __sf_w_recv(fd, to, n, flags);
}
SF_API ssize_t __sf_w_recvfrom_chk(int fd, void *to, size_t n, size_t room, int flags, void *from, socklen_t *length) {
  if (n > room)
    abort();
  return __sf_w_recvfrom(fd, to, n, flags, from, length);
}

SF_API int __sf_w_clock_gettime(clockid_t id, struct timespec *to) {
  ASKING("clock_gettime", sf_mix((uint64_t)id, sf_home(to)), to, sizeof *to, clock_gettime(id, into));
}

SF_API int __sf_w_gettimeofday(struct timeval *to, void *zone) {
  (void)zone;
  ASKING("gettimeofday", sf_home(to), to, sizeof *to, gettimeofday(into, NULL));
}

SF_API int __sf_w_getrusage(int who, struct rusage *to) {
  ASKING("getrusage", sf_mix((uint64_t)who, sf_home(to)), to, sizeof *to, getrusage(who, into));
}

/* An address and its length, which goes in as the room and comes out as what was needed. */
static int address_libc(const char *name, int (*ask)(int, struct sockaddr *, socklen_t *), int fd, void *to, socklen_t *length) {
  INSIDE;
  struct kept {
    socklen_t length;
    struct sockaddr_storage at;
  };
  uint64_t mix = sf_mix(sf_mix((uint64_t)fd, sf_home(to)), *length);
  struct sf_record *r;
  if (FIRST) {
    r = sf_record(c, name, mix, sizeof(struct kept));
    struct kept *k = (struct kept *)sf_data(r);
    k->length = sizeof k->at;
    r->result = ask(fd, (struct sockaddr *)&k->at, &k->length) == 0 ? 0 : (uint64_t)errno;
  } else {
    r = sf_replay(c, name, mix);
  }
  if (r->result != 0) {
    errno = (int)r->result;
    return -1;
  }
  struct kept k;
  memcpy(&k, sf_data(r), sizeof k);
  __sf_memcpy(to, &k.at, k.length < *length ? k.length : *length);
  LOGGED(length, sizeof *length, *length = k.length);
  return 0;
}

static int ask_own(int fd, struct sockaddr *a, socklen_t *n) { return getsockname(fd, a, n); }
static int ask_peer(int fd, struct sockaddr *a, socklen_t *n) { return getpeername(fd, a, n); }

SF_API int __sf_w_getsockname(int fd, void *to, socklen_t *length) { return address_libc("getsockname", ask_own, fd, to, length); }
SF_API int __sf_w_getpeername(int fd, void *to, socklen_t *length) { return address_libc("getpeername", ask_peer, fd, to, length); }

SF_API time_t __sf_w_time(time_t *to) {
  INSIDE;
  struct sf_record *r;
  if (FIRST) {
    r = sf_record(c, "time", sf_home(to), 0);
    r->result = (uint64_t)time(NULL);
  } else {
    r = sf_replay(c, "time", sf_home(to));
  }
  time_t now = (time_t)r->result;
  if (to)
    LOGGED(to, sizeof *to, *to = now);
  return now;
}

SF_API ssize_t __sf_w_getrandom(void *to, size_t n, unsigned flags) {
  extern ssize_t getrandom(void *, size_t, unsigned);
  READING("getrandom", sf_mix(sf_mix(n, flags), sf_home(to)), to, n, getrandom(into, n, flags));
}

SF_API int __sf_w_rand_r(unsigned *seed) {
  int v;
  LOGGED(seed, sizeof *seed, v = rand_r(seed));
  return v;
}

/* Output. What is written is kept by content in the first run, compared in the second, and leaves after V. */

struct output {
  int fd, flags;
  FILE *file;
};

/* Where the bytes of a record go, when they leave: descriptor, flags, file, and how many of them are an address. */
enum { WAY = 4 };
static uint32_t sum_of_way(uint32_t sum, const uint64_t way[WAY], size_t data, size_t n) {
  uint64_t all[WAY + 2] = {way[0], way[1], way[2], way[3], data, n};
  return sf_crc32c(sum, all, sizeof all);
}

/* What leaves after validation is what one run has put down. So the second compares that with its own, and sums up its own as well:
   until V it lies in memory that a store of the second run may still reach. */
static void put_down(struct sf_context *c, const char *name, struct sf_record *r, const uint64_t way[WAY]) {
  size_t data = 1 + (size_t)((uint8_t *)r - (uint8_t *)c->queue.base);
  if (FIRST) {
    struct sf_deferred *d = sf_grow(&c->deferred, sizeof *d);
    *d = (struct sf_deferred){.name = name, .data = data, .arguments = {way[0], way[1], way[2], way[3]}};
    return;
  }
  struct sf_deferred *d = (struct sf_deferred *)c->deferred.base + c->deferred_cursor;
  if (unlikely(c->deferred_cursor >= c->deferred.used / sizeof *d))
    sf_differ_name("only the second run calls", name, 0, 0);
  if (unlikely(d->data != data))
    sf_differ_name("the runs write different bytes with", name, d->data, data);
  for (int i = 0; i < WAY; i++)
    if (unlikely(d->arguments[i] != way[i]))
      sf_differ_name("the runs write to different places with", name, d->arguments[i], way[i]);
  c->leaving = sum_of_way(c->leaving, way, data, r->length);
  c->deferred_cursor++;
}

/* In V. */
void sf_check_leaving(struct sf_context *c) {
  uint32_t sum = 0;
  struct sf_deferred *d = (struct sf_deferred *)c->deferred.base, *end = (struct sf_deferred *)(c->deferred.base + c->deferred.used);
  for (; d != end; d++) {
    if (!d->data)
      continue;
    size_t at = d->data - 1, room = at < c->queue.used ? c->queue.used - at : 0;
    struct sf_record *r = (struct sf_record *)(c->queue.base + at);
    if (unlikely(room < sizeof *r || r->length > room - sizeof *r))
      break; /* that is no record: the sum differs */
    sum = sum_of_way(sum, d->arguments, d->data, r->length);
    sum = sf_crc32c(sum, sf_data(r), r->length);
  }
  if (unlikely(sum != c->leaving))
    sf_differ_name("what is to leave is not what the second run has written in", c->handler->name, sum, c->leaving);
}

/* How many of the bytes are taken, of n for a descriptor that may not wait. They leave after V, and whoever does not read
   would then be waited for: so no more than has room, by three quarters of what the kernel counts as free (it counts what
   it keeps beside the bytes as well). What is left free then is less than the third at which it calls a socket writable:
   a program that waits for an edge of that gets one. */
static size_t room_libc(struct sf_context *c, int fd, int flags, size_t n) {
  uint32_t memory[SK_MEMINFO_VARS] = {0};
  socklen_t size = sizeof memory;
  if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &size) != 0)
    return n; /* no socket */
  size_t waiting = 0;
  const struct sf_deferred *d = (struct sf_deferred *)c->deferred.base, *end = (struct sf_deferred *)(c->deferred.base + c->deferred.used);
  for (; d < end; d++)
    if (d->data && (int)d->arguments[0] == fd && d->arguments[2] == 0)
      waiting += ((struct sf_record *)(c->queue.base + d->data - 1))->length;
  uint32_t used =
      memory[SK_MEMINFO_WMEM_QUEUED] > memory[SK_MEMINFO_WMEM_ALLOC] ? memory[SK_MEMINFO_WMEM_QUEUED] : memory[SK_MEMINFO_WMEM_ALLOC];
  uint32_t all = memory[SK_MEMINFO_SNDBUF];
  size_t free = used < all ? ((size_t)all - used) / 4 * 3 : 0;
  if (likely(waiting + n <= free) || !((flags > 0 && flags & MSG_DONTWAIT) || fcntl(fd, F_GETFL) & O_NONBLOCK))
    return n;
  struct pollfd p = {.fd = fd, .events = POLLOUT};
  if (waiting == 0 && poll(&p, 1, 0) == 0)
    return 0; /* as the kernel says; being asked, it will tell */
  if (p.revents & (POLLERR | POLLHUP))
    return n;
  int type = 0;
  size = sizeof type;
  getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size);
  if (type != SOCK_STREAM)
    return waiting < free ? n : 0;
  c->full = true;
  return waiting < free ? free - waiting : 0;
}

/* An error that the descriptor owes (late.c), the same in both runs. It is paid after V. */
static int owes(struct sf_context *c, const char *name, int fd) {
  struct sf_record *r;
  if (FIRST) {
    r = sf_record(c, "an error from before", (uint64_t)fd, 0);
    r->result = (uint64_t)(atomic_load_explicit(&sf_late_count, memory_order_relaxed) ? sf_late_owed(fd) : 0);
  } else {
    r = sf_replay(c, "an error from before", (uint64_t)fd);
  }
  if (likely(r->result == 0))
    return 0;
  int error = (int)r->result;
  uint64_t a[1] = {(uint64_t)fd};
  __sf_defer(name, (void *)sf_late_paid, 1, a);
  errno = error;
  return error;
}

/* The same in both runs; none are EAGAIN. */
static ssize_t taken(struct sf_context *c, const char *name, int fd, int flags, size_t n) {
  if (unlikely(owes(c, name, fd)))
    return -1;
  uint64_t mix = sf_mix(sf_mix((uint64_t)fd, (uint64_t)flags), n);
  struct sf_record *r;
  if (FIRST) {
    r = sf_record(c, name, mix, 0);
    r->result = room_libc(c, fd, flags, n);
  } else {
    r = sf_replay(c, name, mix);
  }
  if (n == 0 || r->result != 0)
    return (ssize_t)r->result;
  errno = EAGAIN;
  return -1;
}

/* After all has left: the kernel is asked whether sockets that were filled may be written to, and tells when they may again. */
static void ask_for_room(struct sf_context *c) {
  const struct sf_deferred *d = (struct sf_deferred *)c->deferred.base, *end = (struct sf_deferred *)(c->deferred.base + c->deferred.used);
  for (; d < end; d++)
    if (d->data && d->arguments[2] == 0) {
      struct pollfd p = {.fd = (int)d->arguments[0], .events = POLLOUT};
      poll(&p, 1, 0);
    }
  c->full = false;
}

static void keep_libc(struct sf_context *c, const char *name, struct output to, const void *bytes, size_t n) {
  uint64_t mix = sf_mix(sf_mix((uint64_t)to.fd, (uint64_t)to.flags), sf_mix((uint64_t)to.file, n));
  struct sf_record *r = FIRST ? sf_record(c, name, mix, n) : sf_replay(c, name, mix);
  if (FIRST)
    sf_copy(sf_data(r), bytes, n);
  else if (unlikely(r->length != n || !sf_equal(sf_data(r), bytes, n)))
    sf_differ_name("the runs write different bytes with", name, r->length, n);
  put_down(c, name, r, (uint64_t[WAY]){(uint64_t)to.fd, (uint64_t)to.flags, (uint64_t)to.file});
  if (!FIRST)
    c->leaving = sf_crc32c(c->leaving, bytes, n);
}

/* In place of flags. */
#define OF_A_PATH (-2) /* the bytes are a path, which is to go */
#define OF_THE_LOG (-3) /* and below: a line for syslog, with its priority */

static size_t least_libc(size_t a, size_t b) { return a < b ? a : b; }

/* A message in pieces, and where it goes. The address lies behind the bytes. */
static ssize_t keep_message(const char *name, int fd, int flags, const struct iovec *v, size_t count, const void *to, size_t length) {
  INSIDE;
  size_t n = 0, at = 0, piece;
  for (size_t i = 0; i < count; i++)
    n += v[i].iov_len;
  ssize_t some = taken(c, name, fd, flags, n);
  if (some < 0)
    return -1;
  n = (size_t)some;
  uint64_t mix = sf_mix(sf_mix((uint64_t)fd, (uint64_t)flags), sf_mix(n, length));
  uint64_t way[WAY] = {(uint64_t)fd, (uint64_t)flags, 0, length};
  if (FIRST) {
    struct sf_record *r = sf_record(c, name, mix, n + length);
    for (size_t i = 0; i < count; at += piece, i++)
      sf_copy(sf_data(r) + at, sf_own(v[i].iov_base), piece = least_libc(v[i].iov_len, n - at));
    sf_copy(sf_data(r) + n, to, length);
    put_down(c, name, r, way);
    return (ssize_t)n;
  }
  struct sf_record *r = sf_replay(c, name, mix);
  bool same = r->length == n + length && sf_equal(sf_data(r) + n, to, length);
  for (size_t i = 0; same && i < count; at += piece, i++)
    same = sf_equal(sf_data(r) + at, sf_own(v[i].iov_base), piece = least_libc(v[i].iov_len, n - at));
  if (unlikely(!same))
    sf_differ_name("the runs write different bytes with", name, r->length, n + length);
  put_down(c, name, r, way);
  at = 0;
  for (size_t i = 0; i < count; at += piece, i++)
    c->leaving = sf_crc32c(c->leaving, sf_own(v[i].iov_base), piece = least_libc(v[i].iov_len, n - at));
  c->leaving = sf_crc32c(c->leaving, to, length);
  return (ssize_t)n;
}

static void leave_libc(const struct sf_deferred *d, struct sf_record *r) {
  int fd = (int)d->arguments[0], flags = (int)d->arguments[1];
  FILE *file = (FILE *)d->arguments[2];
  const uint8_t *bytes = sf_data(r);
  size_t address = d->arguments[3], n = r->length - address;
  if (flags == OF_A_PATH) {
    if (unlink((const char *)bytes) != 0 && errno != ENOENT && errno != ENOTDIR)
      sf_late_lost(d->name, (const char *)bytes, errno);
    return;
  }
  if (flags <= OF_THE_LOG) {
    syslog(OF_THE_LOG - flags, "%.*s", (int)n, (const char *)bytes);
    return;
  }
  if (file) {
    if (fwrite(bytes, 1, n, file) != n)
      sf_late_lost(d->name, "a stream", errno);
    return;
  }
  size_t all = n;
  while (n) {
    ssize_t w = flags < 0 ? write(fd, bytes, n)
                : address ? sendto(fd, bytes, n, flags | MSG_NOSIGNAL, (const struct sockaddr *)(bytes + n), (socklen_t)address)
                          : send(fd, bytes, n, flags | MSG_NOSIGNAL);
    if (w < 0 && errno == EINTR)
      continue;
    if (w < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      struct pollfd p = {.fd = fd, .events = POLLOUT};
      poll(&p, 1, -1);
      continue;
    }
    if (unlikely(w < 0)) {
      sf_late_failed(d->name, fd, errno, all - n, all);
      break;
    }
    bytes += w;
    n -= (size_t)w;
  }
  /* No client misses bytes, and none has another's, without a word. */
  int whose = (int)*(const volatile uint64_t *)&d->arguments[0];
  if (unlikely(fd != whose))
    sf_differ("what a handler sent has gone to another descriptor", (uint64_t)(uintptr_t)d, (uint64_t)whose, (uint64_t)fd);
}

SF_API ssize_t __sf_w_write(int fd, const void *from, size_t n) {
  INSIDE;
  ssize_t some = taken(c, "write", fd, -1, n);
  if (some >= 0)
    keep_libc(c, "write", (struct output){.fd = fd, .flags = -1}, from, (size_t)some);
  return some;
}

SF_API ssize_t __sf_w_send(int fd, const void *from, size_t n, int flags) {
  INSIDE;
  ssize_t some = taken(c, "send", fd, flags, n);
  if (some >= 0)
    keep_libc(c, "send", (struct output){.fd = fd, .flags = flags}, from, (size_t)some);
  return some;
}

SF_API ssize_t __sf_w_sendto(int fd, const void *from, size_t n, int flags, const void *to, socklen_t length) {
  struct iovec whole = {(void *)from, n};
  return keep_message("sendto", fd, flags, &whole, 1, to, to ? length : 0);
}

SF_API ssize_t __sf_w_sendmsg(int fd, const struct msghdr *m, int flags) {
  if (m->msg_control && m->msg_controllen)
    sf_stop("a handler sends a message with control data", "send it outside the handler, or say `once sendmsg` in a policy");
  return keep_message("sendmsg", fd, flags, m->msg_iov, m->msg_iovlen, m->msg_name, m->msg_name ? m->msg_namelen : 0);
}

/* Reported as done; that the file was not there is not seen. */
SF_API int __sf_w_unlink(const char *path) {
  INSIDE;
  keep_libc(c, "unlink", (struct output){.fd = -1, .flags = OF_A_PATH}, path, strlen(path) + 1);
  return 0;
}

SF_API ssize_t __sf_w_writev(int fd, const struct iovec *v, int count) {
  INSIDE;
  ssize_t all = 0;
  if (sf_async() && count > 0)
    __sf_async.reads(v, (size_t)count * sizeof *v);
  for (int i = 0; i < count; i++)
    all += (ssize_t)v[i].iov_len;
  ssize_t some = taken(c, "writev", fd, -1, (size_t)all);
  for (ssize_t i = 0, left = some, piece; left > 0; i++, left -= piece) {
    piece = (ssize_t)least_libc(v[i].iov_len, (size_t)left);
    if (sf_async())
      __sf_async.reads(v[i].iov_base, (size_t)piece);
    keep_libc(c, "writev", (struct output){.fd = fd, .flags = -1}, sf_own(v[i].iov_base), (size_t)piece);
  }
  return some;
}

SF_API size_t __sf_w_fwrite(const void *from, size_t size, size_t n, FILE *file) {
  INSIDE;
  if (sf_async())
    __sf_async.reads(from, size * n);
  if (size && n)
    keep_libc(c, "fwrite", (struct output){.file = file}, from, size * n);
  return size ? n : 0;
}

SF_API int __sf_w_fputs(const char *s, FILE *file) {
  INSIDE;
  keep_libc(c, "fputs", (struct output){.file = file}, s, strlen(s));
  return 1;
}

SF_API int __sf_w_fputc(int byte, FILE *file) {
  INSIDE;
  char b = (char)byte;
  keep_libc(c, "fputc", (struct output){.file = file}, &b, 1);
  return (unsigned char)b;
}

SF_API int __sf_w_putchar(int byte) { return __sf_w_fputc(byte, stdout); }

SF_API int __sf_w_puts(const char *s) {
  __sf_w_fputs(s, stdout);
  __sf_w_fputc('\n', stdout);
  return 1;
}

static int print_to(const char *name, struct output to, const char *format, va_list list) {
  INSIDE;
  if (sf_async())
    __sf_async.reads_format(format, list);
  char small[512];
  va_list copy;
  va_copy(copy, list);
  int n = vsnprintf(small, sizeof small, format, list);
  if (n < 0) {
    va_end(copy);
    return n;
  }
  if ((size_t)n < sizeof small) {
    keep_libc(c, name, to, small, (size_t)n);
  } else {
    struct sf_buffer big = {0};
    char *text = sf_grow(&big, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, format, copy);
    keep_libc(c, name, to, text, (size_t)n);
    sf_unmap(big.base, big.size);
  }
  va_end(copy);
  return n;
}

static int print(const char *name, FILE *file, int fd, const char *format, va_list list) {
  return print_to(name, (struct output){.fd = fd, .flags = -1, .file = file}, format, list);
}

SF_API int __sf_w_vfprintf(FILE *file, const char *format, va_list list) {
  OWN_LIST(format, list);
  return print("fprintf", file, -1, format, list);
}
SF_API int __sf_w_vprintf(const char *format, va_list list) {
  OWN_LIST(format, list);
  return print("printf", stdout, -1, format, list);
}

#define VARIADIC(NAME, PARAMETERS, LAST, CALL) \
  SF_API int __sf_w_##NAME PARAMETERS {        \
    va_list list;                              \
    va_start(list, LAST);                      \
    int n = CALL;                              \
    va_end(list);                              \
    return n;                                  \
  }
VARIADIC(fprintf, (FILE * file, const char *format, ...), format, print("fprintf", file, -1, format, list))
VARIADIC(printf, (const char *format, ...), format, print("printf", stdout, -1, format, list))
VARIADIC(dprintf, (int fd, const char *format, ...), format, print("dprintf", NULL, fd, format, list))
VARIADIC(__fprintf_chk, (FILE * file, int flag, const char *format, ...), format, ((void)flag, print("fprintf", file, -1, format, list)))
VARIADIC(__printf_chk, (int flag, const char *format, ...), format, ((void)flag, print("printf", stdout, -1, format, list)))
VARIADIC(__dprintf_chk, (int fd, int flag, const char *format, ...), format, ((void)flag, print("dprintf", NULL, fd, format, list)))
#define LOG(PRIORITY) print_to("syslog", (struct output){.fd = -1, .flags = OF_THE_LOG - (PRIORITY)}, format, list)
VARIADIC(syslog, (int priority, const char *format, ...), format, LOG(priority))
VARIADIC(__syslog_chk, (int priority, int flag, const char *format, ...), format, ((void)flag, LOG(priority)))
SF_API void __sf_w_vsyslog(int priority, const char *format, va_list list) {
  OWN_LIST(format, list);
  LOG(priority);
}
SF_API int __sf_w___vfprintf_chk(FILE *file, int flag, const char *format, va_list list) {
  return (void)flag, __sf_w_vfprintf(file, format, list);
}
SF_API int __sf_w___vprintf_chk(int flag, const char *format, va_list list) { return (void)flag, __sf_w_vprintf(format, list); }

SF_API void __sf_w_perror(const char *s) {
  INSIDE;
  char line[256];
  int n = snprintf(line, sizeof line, "%s%s%s\n", s ? s : "", s && *s ? ": " : "", strerrordesc_np(errno));
  keep_libc(c, "perror", (struct output){.file = stderr}, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* The results of these are looked at when they happen: bytes that were said to be written may be lost by them. */
static void flushes(FILE *file) {
  if (fflush(file) != 0)
    sf_late_lost("fflush", "a stream", errno);
}

static void closes_libc(int fd) {
  sf_late_closed(fd);
  if (close(fd) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
    sf_late_failed("close", -1, errno, 0, 0);
}

static void shuts(int fd, int how) {
  if (shutdown(fd, how) != 0 && errno != ENOTCONN)
    sf_late_failed("shutdown", fd, errno, 0, 0);
}

SF_API int __sf_w_fflush(FILE *file) {
  uint64_t a[1] = {(uint64_t)file};
  __sf_defer("fflush", (void *)flushes, 1, a);
  return 0;
}

SF_API int __sf_w_close(int fd) {
  INSIDE;
  int owed = owes(c, "close", fd);
  uint64_t a[1] = {(uint64_t)fd};
  __sf_defer("close", (void *)closes_libc, 1, a);
  return owed && &__sf_late_next ? -1 : 0;
}

SF_API int __sf_w_shutdown(int fd, int how) {
  uint64_t a[2] = {(uint64_t)fd, (uint64_t)how};
  __sf_defer("shutdown", (void *)shuts, 2, a);
  return 0;
}

int sf_owes(const char *name, int fd) {
  INSIDE;
  return owes(c, name, fd);
}

/* After V. */

typedef void (*call6)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

/* In the order in which the program asked for it, but for memory and locks that it gave up: what it unlocked before is
   locked until here. */
void sf_commit_effects(struct sf_context *c) {
  size_t n = c->deferred.used / sizeof(struct sf_deferred), last = 0;
  bool had_locks = c->locks.used != 0;
  struct sf_deferred *all = (struct sf_deferred *)c->deferred.base, *d = all;
  if (n)
    c->leaves = true;
  for (; n; n--, d++) {
    if (d->data)
      leave_libc(d, (struct sf_record *)(c->queue.base + d->data - 1));
    else if (d->last)
      last += d->last == 1;
    else
      /* Integer and pointer arguments alone: superfluous ones are registers that the callee does not read. */
      ((call6)d->function)(d->arguments[0], d->arguments[1], d->arguments[2], d->arguments[3], d->arguments[4], d->arguments[5]);
  }
  if (unlikely(c->full))
    ask_for_room(c);
  sf_locks_hold(c);
  if (c->locks.used)
    sf_locks_release(c);
  /* Who is waited for has held a lock; after it has given way itself it may have come to its end without one. */
  if (had_locks || c->gave_way)
    sf_wake_waiting(c);
  for (d = all; last; d++)
    if (d->last == 1) {
      ((void (*)(uint64_t))d->function)(d->arguments[0]);
      last--;
    }
}

/* A process that ends inside a handler: only what both runs agree on ends it. In the first run that cannot be known yet,
   and the handler cannot be left; so nothing but the status goes out, without exit handlers and buffered output. */
SF_API _Noreturn void __sf_w_exit(int status) {
  (void)sf_inside("exit");
  _exit(status);
}
