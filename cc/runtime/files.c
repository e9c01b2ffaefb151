/*
 * Files, as handlers of servers look them up and read them: opened, asked about, read at a place. Done once, in the first
 * run; the second is given the same answers.
 *
 * Invariants
 *  1. What a call names (a path) is compared by its bytes, not by where they lie: a path is often built on the stack,
 *     which is not logged, and a wrong one would open a wrong file in silence.
 *  2. What a call brings is logged like any store, and errno is the first run's in both runs.
 *
 * Not covered: calls whose effect cannot wait and cannot be taken back (rename, mkdir, ftruncate): handlers may not make
 * them unless a policy says how. open() with O_CREAT or O_TRUNC has its effect in the first run.
 */
#define _GNU_SOURCE
#include "state.h"
#include "wrapper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t path_mix(const char *path) { return __sf_hash(path, strlen(path)); }

static int64_t open_once(int at, const char *path, int flags, mode_t mode) {
  CALLING("open", sf_mix(sf_mix((uint64_t)at, (uint64_t)flags), sf_mix(path_mix(path), mode)), openat(at, path, flags, mode));
}

static bool has_mode(int flags) { return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; }

#define MODE(AFTER)              \
  mode_t mode = 0;               \
  if (has_mode(AFTER)) {         \
    va_list rest;                \
    va_start(rest, AFTER);       \
    mode = va_arg(rest, mode_t); \
    va_end(rest);                \
  }

SF_API int __sf_w_open(const char *path, int flags, ...) {
  MODE(flags)
  return (int)open_once(AT_FDCWD, path, flags, mode);
}

SF_API int __sf_w_openat(int at, const char *path, int flags, ...) {
  MODE(flags)
  return (int)open_once(at, path, flags, mode);
}

/* What this handler has written goes out after V. Asked about it before, the file would give an answer that is wrong. */
static void not_written_files(int fd) {
  struct sf_context *c = sf_inside("a question about a file");
  if (!FIRST)
    return;
  const struct sf_deferred *d = (struct sf_deferred *)c->deferred.base, *end = (struct sf_deferred *)(c->deferred.base + c->deferred.used);
  for (; d < end; d++)
    if (d->data && (int)d->arguments[0] == fd && d->arguments[2] == 0)
      sf_stop("a handler asks about a file to which it has written in the same event, and its writes wait for validation",
              "`once write` in the policy, if nobody else sees the file: the first run then writes at once");
}

SF_API off_t __sf_w_lseek(int fd, off_t to, int whence) {
  not_written_files(fd);
  CALLING("lseek", sf_mix(sf_mix((uint64_t)fd, (uint64_t)to), (uint64_t)whence), lseek(fd, to, whence));
}

SF_API int __sf_w_access(const char *path, int how) { CALLING("access", sf_mix(path_mix(path), (uint64_t)how), access(path, how)); }

SF_API ssize_t __sf_w_pread(int fd, void *to, size_t n, off_t from) {
  not_written_files(fd);
  READING("pread", sf_mix(sf_mix((uint64_t)fd, sf_home(to)), sf_mix(n, (uint64_t)from)), to, n, pread(fd, into, n, from));
}

SF_API int __sf_w_fstat(int fd, struct stat *to) {
  not_written_files(fd);
  ASKING("fstat", sf_mix((uint64_t)fd, sf_home(to)), to, sizeof *to, fstat(fd, into));
}

SF_API int __sf_w_stat(const char *path, struct stat *to) {
  ASKING("stat", sf_mix(path_mix(path), sf_home(to)), to, sizeof *to, stat(path, into));
}

SF_API int __sf_w_lstat(const char *path, struct stat *to) {
  ASKING("lstat", sf_mix(path_mix(path), sf_home(to)), to, sizeof *to, lstat(path, into));
}

SF_API int __sf_w_fstatat(int at, const char *path, struct stat *to, int flags) {
  ASKING("fstatat", sf_mix(sf_mix(path_mix(path), sf_home(to)), sf_mix((uint64_t)at, (uint64_t)flags)), to, sizeof *to,
         fstatat(at, path, into, flags));
}

/* What names lead to. A name of the caller's own size, or one that is given memory. */
extern char *__sf_w_strdup(const char *s);

static ssize_t ended_files(const char *name) { return name ? (ssize_t)strlen(name) + 1 : -1; }

SF_API ssize_t __sf_w_readlink(const char *path, char *to, size_t n) {
  READING("readlink", sf_mix(sf_mix(path_mix(path), sf_home(to)), n), to, n, readlink(path, into, n));
}

static ssize_t real(const char *path, char *to) { READING("realpath", path_mix(path), to, PATH_MAX, ended_files(realpath(path, into))); }

SF_API char *__sf_w_realpath(const char *path, char *to) {
  if (!path)
    return errno = EINVAL, NULL;
  char name[PATH_MAX];
  if (real(path, to ? to : name) < 0)
    return NULL;
  return to ? to : __sf_w_strdup(name);
}

static ssize_t current(char *to, size_t n) { READING("getcwd", n, to, n, ended_files(getcwd(into, n))); }

SF_API char *__sf_w_getcwd(char *to, size_t n) {
  char name[PATH_MAX];
  if (to && n == 0)
    return errno = EINVAL, NULL;
  /* A name of more does not come from the kernel. */
  if (current(to ? to : name, n && n < sizeof name ? n : sizeof name) < 0)
    return NULL;
  return to ? to : __sf_w_strdup(name);
}

SF_API ssize_t __sf_w_readlink_chk(const char *path, char *to, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_w_readlink(path, to, n);
}
SF_API char *__sf_w_realpath_chk(const char *path, char *to, size_t room) {
  if (room < PATH_MAX)
    abort();
  return __sf_w_realpath(path, to);
}
SF_API char *__sf_w_getcwd_chk(char *to, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_w_getcwd(to, n);
}

/* The name that was made replaces the template, whose last six bytes stand before the end. */
SF_API int __sf_w_mkstemp(char *template) {
  size_t n = strlen(template);
  INSIDE;
  uint64_t mix = sf_mix(path_mix(template), sf_home(template));
  struct sf_record *r;
  if (FIRST && (r = sf_kept(c, "mkstemp", mix)) != NULL) {
    /* a retry */
  } else if (FIRST) {
    r = sf_record(c, "mkstemp", mix, n + 1);
    memcpy(sf_data(r), template, n + 1);
    int fd = mkstemp((char *)sf_data(r));
    r->result = (uint64_t)(fd < 0 ? -(int64_t)errno : fd);
    r->once = 1;
  } else {
    r = sf_replay(c, "mkstemp", mix);
  }
  int64_t answer = (int64_t)r->result;
  if (answer < 0) {
    errno = (int)-answer;
    return -1;
  }
  __sf_memcpy(template, sf_data(r), n + 1);
  return (int)answer;
}
