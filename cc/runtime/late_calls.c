/*
 * `late-errors next-call` of a policy: what a handler's write has failed with after validation is the result of the next call on
 * that descriptor (late.c), outside handlers as well.
 *
 * An object of its own, not in the library: its names are the C library's, and other programs must not be given them.
 *
 * Not covered: system calls made without the C library, io_uring, a descriptor's duplicates (dup(2), fork(2)).
 */
#define _GNU_SOURCE
#include "late.h"
#include "runtime.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/types.h>

SF_API const int __sf_late_next = 1;

struct iovec;
struct msghdr;

static long asked_late_calls(long number, long a, long b, long c, long d, long e, long f) {
  /* What a handler has put down is leaving: that an earlier part of it failed is not this part's error. */
  if (unlikely(__sf_own && __sf_own->leaves)) {
    long r = sf_syscall(number, a, b, c, d, e, f);
    return r < 0 && r > -4096 ? (errno = (int)-r, -1) : r;
  }
  int owed = unlikely(atomic_load_explicit(&sf_late_count, memory_order_relaxed) != 0) ? sf_late_owed((int)a) : 0;
  if (unlikely(owed || number == SYS_close) && atomic_load_explicit(&sf_late_count, memory_order_relaxed))
    sf_late_paid((int)a);
  /* A descriptor is closed all the same, as close(2) has it. */
  long r = owed && number != SYS_close ? -owed : sf_syscall(number, a, b, c, d, e, f);
  if (owed && r >= 0)
    r = -owed;
  if (r < 0 && r > -4096) {
    errno = (int)-r;
    return -1;
  }
  return r;
}

SF_API ssize_t write(int fd, const void *from, size_t n) { return asked_late_calls(SYS_write, fd, (long)from, (long)n, 0, 0, 0); }
SF_API ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
  return asked_late_calls(SYS_pwrite64, fd, (long)from, (long)n, at, 0, 0);
}
SF_API ssize_t pwrite64(int fd, const void *from, size_t n, off_t at) {
  return asked_late_calls(SYS_pwrite64, fd, (long)from, (long)n, at, 0, 0);
}
SF_API ssize_t writev(int fd, const struct iovec *v, int n) { return asked_late_calls(SYS_writev, fd, (long)v, n, 0, 0, 0); }
SF_API ssize_t send(int fd, const void *from, size_t n, int flags) {
  return asked_late_calls(SYS_sendto, fd, (long)from, (long)n, flags, 0, 0);
}
SF_API ssize_t sendto(int fd, const void *from, size_t n, int flags, const void *to, unsigned length) {
  return asked_late_calls(SYS_sendto, fd, (long)from, (long)n, flags, (long)to, length);
}
SF_API ssize_t sendmsg(int fd, const struct msghdr *m, int flags) { return asked_late_calls(SYS_sendmsg, fd, (long)m, flags, 0, 0, 0); }
SF_API int fsync(int fd) { return (int)asked_late_calls(SYS_fsync, fd, 0, 0, 0, 0, 0); }
SF_API int fdatasync(int fd) { return (int)asked_late_calls(SYS_fdatasync, fd, 0, 0, 0, 0, 0); }
SF_API int close(int fd) { return (int)asked_late_calls(SYS_close, fd, 0, 0, 0, 0, 0); }
