/*
 * Descriptors, as handlers of event loops deal with them: connections taken in and their names, options and flags, what epoll
 * and poll watch; and what is to be on the disk.
 *
 * Invariants
 *  1. A change is made once, by the first run, since the program goes on by its answer. What an argument points to (an
 *     epoll_event, an option) is compared by its bytes: it is built on the stack, which is not logged.
 *  2. fsync comes after what the handler has written, which leaves after V. It is reported as done, and a disk that fails
 *     then stops the program.
 *
 * Not covered: fcntl with a structure (locks of files).
 */
#define _GNU_SOURCE
#include "state.h"
#include "late.h"
#include "wrapper.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

SF_API int __sf_w_epoll_ctl(int in, int what, int fd, struct epoll_event *event) {
  uint64_t wanted = event ? sf_mix(event->events, event->data.u64) : 0;
  if (event && sf_async())
    __sf_async.reads(event, sizeof *event);
  CALLING("epoll_ctl", sf_mix(sf_mix((uint64_t)in, (uint64_t)what), sf_mix((uint64_t)fd, wanted)), epoll_ctl(in, what, fd, event));
}

SF_API int __sf_w_setsockopt(int fd, int level, int name, const void *value, socklen_t n) {
  if (value && sf_async())
    __sf_async.reads(value, n);
  CALLING("setsockopt", sf_mix(sf_mix((uint64_t)fd, (uint64_t)level), sf_mix((uint64_t)name, value ? __sf_hash(value, n) : 0)),
          setsockopt(fd, level, name, value, n));
}

SF_API int __sf_w_fcntl(int fd, int what, ...) {
  static const int plain[] = {F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD, F_DUPFD_CLOEXEC};
  va_list rest;
  va_start(rest, what);
  int how = what == F_GETFD || what == F_GETFL ? 0 : va_arg(rest, int);
  va_end(rest);
  bool known = false;
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    known |= what == plain[i];
  if (!known)
    sf_stop("a handler calls fcntl for something else than the flags of a descriptor, or a copy of it",
            "call it outside the handler, or say `once fcntl` in a policy, if it writes nothing of the program's");
  CALLING("fcntl", sf_mix(sf_mix((uint64_t)fd, (uint64_t)what), (uint64_t)how), fcntl(fd, what, how));
}

/* The peer's name, and its length, which goes in as the room and comes out as what was needed. */
static int take_in(int fd, struct sockaddr *to, socklen_t *length, int flags) {
  INSIDE;
  struct kept {
    socklen_t length;
    struct sockaddr_storage at;
  } k;
  if (to && sf_async())
    __sf_async.reads(length, sizeof *length);
  socklen_t had = to ? *length : 0;
  uint64_t mix = sf_mix(sf_mix((uint64_t)fd, (uint64_t)flags), sf_mix(sf_home(to), had));
  struct sf_record *r;
  if (FIRST && (r = sf_kept(c, "accept", mix)) != NULL) {
    /* a retry */
  } else if (FIRST) {
    r = sf_record(c, "accept", mix, sizeof k);
    struct kept *into = (struct kept *)sf_data(r);
    into->length = sizeof into->at;
    int64_t got = accept4(fd, (struct sockaddr *)&into->at, &into->length, flags);
    r->result = (uint64_t)(got < 0 ? -(int64_t)errno : got);
    r->once = 1;
  } else {
    r = sf_replay(c, "accept", mix);
  }
  int64_t answer = (int64_t)r->result;
  if (answer < 0) {
    errno = (int)-answer;
    return -1;
  }
  if (to) {
    memcpy(&k, sf_data(r), sizeof k);
    __sf_memcpy(to, &k.at, k.length < had ? k.length : had);
    LOGGED(length, sizeof *length, *length = k.length);
  }
  return (int)answer;
}

SF_API int __sf_w_accept(int fd, struct sockaddr *to, socklen_t *length) { return take_in(fd, to, length, 0); }
SF_API int __sf_w_accept4(int fd, struct sockaddr *to, socklen_t *length, int flags) { return take_in(fd, to, length, flags); }

/* Waits where it stands, as the program does: a handler that asks so for long keeps its locks for long. */
SF_API int __sf_w_poll(struct pollfd *of, nfds_t n, int timeout) {
  INSIDE;
  size_t bytes = n * sizeof *of;
  if (sf_async())
    __sf_async.reads(of, bytes);
  uint64_t mix = sf_mix(sf_mix(sf_home(of), n), (uint64_t)timeout);
  for (nfds_t i = 0; i < n; i++)
    mix = sf_mix(mix, (uint64_t)(uint32_t)of[i].fd << 16 | (uint16_t)of[i].events);
  struct sf_record *r;
  if (FIRST && (r = sf_kept(c, "poll", mix)) != NULL) {
    /* a retry */
  } else if (FIRST) {
    r = sf_record(c, "poll", mix, bytes);
    memcpy(sf_data(r), of, bytes);
    int64_t got = poll((struct pollfd *)sf_data(r), n, timeout);
    r->result = (uint64_t)(got < 0 ? -(int64_t)errno : got);
    r->once = 1;
  } else {
    r = sf_replay(c, "poll", mix);
  }
  int64_t answer = (int64_t)r->result;
  if (answer < 0) {
    errno = (int)-answer;
    return -1;
  }
  __sf_memcpy(of, sf_data(r), bytes);
  return (int)answer;
}

SF_API int __sf_w_uname(struct utsname *to) { ASKING("uname", sf_home(to), to, sizeof *to, uname(into)); }

/* Both texts in one record, host first. Asked once: it may ask others. */
SF_API int __sf_w_getnameinfo(const struct sockaddr *of, socklen_t n, char *host, socklen_t hosts, char *service, socklen_t services,
                              int flags) {
  INSIDE;
  if (sf_async())
    __sf_async.reads(of, n);
  hosts = host ? hosts : 0, services = service ? services : 0;
  uint64_t where = sf_mix(sf_mix(sf_home(host), hosts), sf_mix(sf_home(service), services));
  uint64_t mix = sf_mix(sf_mix(__sf_hash(of, n), (uint64_t)flags), where);
  struct sf_record *r;
  if (FIRST && (r = sf_kept(c, "getnameinfo", mix)) != NULL) {
    /* a retry */
  } else if (FIRST) {
    r = sf_record(c, "getnameinfo", mix, (size_t)hosts + services);
    char *into = (char *)sf_data(r);
    r->result = (uint64_t)(int64_t)getnameinfo(of, n, into, hosts, into + hosts, services, flags);
    r->once = 1;
  } else {
    r = sf_replay(c, "getnameinfo", mix);
  }
  const char *got = (const char *)sf_data(r);
  if (r->result == 0 && hosts)
    __sf_memcpy(host, got, strlen(got) + 1);
  if (r->result == 0 && services)
    __sf_memcpy(service, got + hosts, strlen(got + hosts) + 1);
  return (int)(int64_t)r->result;
}

SF_API int __sf_w_gethostname(char *to, size_t n) {
  INSIDE;
  uint64_t mix = sf_mix(sf_home(to), n);
  struct sf_record *r;
  if (FIRST) {
    r = sf_record(c, "gethostname", mix, n);
    r->result = gethostname((char *)sf_data(r), n) == 0 ? 0 : (uint64_t)errno;
  } else {
    r = sf_replay(c, "gethostname", mix);
  }
  size_t length = strnlen((char *)sf_data(r), n);
  return sf_answer(r, to, length < n ? length + 1 : n);
}

/* What is no file answers EINVAL or EROFS, as ever without a consequence. */
static void to_disk(int fd, const char *name, int (*how)(int)) {
  if (how(fd) != 0 && errno != EINVAL && errno != EROFS)
    sf_late_failed(name, fd, errno, 0, 0);
}
static void whole(int fd) { to_disk(fd, "fsync", fsync); }
static void data(int fd) { to_disk(fd, "fdatasync", fdatasync); }

SF_API int __sf_w_fsync(int fd) {
  if (unlikely(sf_owes("fsync", fd)))
    return -1;
  uint64_t a[1] = {(uint64_t)fd};
  __sf_defer("fsync", (void *)whole, 1, a);
  return 0;
}

SF_API int __sf_w_fdatasync(int fd) {
  if (unlikely(sf_owes("fdatasync", fd)))
    return -1;
  uint64_t a[1] = {(uint64_t)fd};
  __sf_defer("fdatasync", (void *)data, 1, a);
  return 0;
}
