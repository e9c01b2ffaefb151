/*
 * --hold-output: what leaves the process waits until every handler that has run is validated (async.c). With --barrier the
 * same calls wait for something else (barrier.c).
 *
 * The C library's calls that send or write have their names here, so the program's own calls and those of its shared
 * libraries come here first, are held, and are then made as they are: order, result and errno are the kernel's.
 *
 * An object of its own, not in the library: its names must not be given to other programs. async.c asks whether __sf_hold_on
 * is there.
 *
 * Not covered: system calls that the C library makes by itself (buffered streams when they are flushed outside handlers),
 * those made without it, memory shared with other processes, io_uring and asynchronous I/O (docs/reference/limits-cc.md).
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/types.h>

#ifndef SF_WAIT
#define SF_WAIT __sf_async.hold
SF_API const int __sf_hold_on = 1;
#endif

/* Pointers are passed on as they come; the C library's headers have types of their own for some of them. */
struct iovec;
struct msghdr;
struct mmsghdr;

static long held(long number, long a, long b, long c, long d, long e, long f) {
  SF_WAIT();
  long r = sf_syscall(number, a, b, c, d, e, f);
  if (r < 0 && r > -4096) {
    errno = (int)-r;
    return -1;
  }
  return r;
}

SF_API ssize_t write(int fd, const void *from, size_t n) { return held(SYS_write, fd, (long)from, (long)n, 0, 0, 0); }
SF_API ssize_t pwrite(int fd, const void *from, size_t n, off_t at) { return held(SYS_pwrite64, fd, (long)from, (long)n, at, 0, 0); }
SF_API ssize_t pwrite64(int fd, const void *from, size_t n, off_t at) { return held(SYS_pwrite64, fd, (long)from, (long)n, at, 0, 0); }
SF_API ssize_t writev(int fd, const struct iovec *v, int n) { return held(SYS_writev, fd, (long)v, n, 0, 0, 0); }
SF_API ssize_t send(int fd, const void *from, size_t n, int flags) { return held(SYS_sendto, fd, (long)from, (long)n, flags, 0, 0); }
SF_API ssize_t sendto(int fd, const void *from, size_t n, int flags, const void *to, unsigned length) {
  return held(SYS_sendto, fd, (long)from, (long)n, flags, (long)to, length);
}
SF_API ssize_t sendmsg(int fd, const struct msghdr *m, int flags) { return held(SYS_sendmsg, fd, (long)m, flags, 0, 0, 0); }
SF_API int sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags) { return (int)held(SYS_sendmmsg, fd, (long)m, n, flags, 0, 0); }
SF_API ssize_t sendfile(int to, int from, off_t *at, size_t n) { return held(SYS_sendfile, to, from, (long)at, (long)n, 0, 0); }
SF_API ssize_t sendfile64(int to, int from, off_t *at, size_t n) { return held(SYS_sendfile, to, from, (long)at, (long)n, 0, 0); }
SF_API ssize_t splice(int from, off_t *a, int to, off_t *b, size_t n, unsigned flags) {
  return held(SYS_splice, from, (long)a, to, (long)b, (long)n, flags);
}
SF_API int connect(int fd, const void *to, unsigned length) { return (int)held(SYS_connect, fd, (long)to, length, 0, 0, 0); }
SF_API int shutdown(int fd, int how) { return (int)held(SYS_shutdown, fd, how, 0, 0, 0, 0); }
