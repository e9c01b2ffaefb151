/*
 * Effects that fail after validation. The handler was told that its write succeeded, so an error must not be dropped.
 *
 *     late-errors                the network's errors        all others
 *     stop                       the program stops           the program stops
 *     (no word in the policy)    next call of a handler      the program stops
 *     next-call                  next call                   next call
 *
 * An error of the network is a peer or a way that is gone. A connection tells it once more by itself, as TCP does for bytes that it
 * had accepted; a datagram is never promised to arrive. "Next call" is the next call on this descriptor that writes, syncs or closes:
 * that of a handler (taken in libc.c), and with next-call one outside handlers as well (late_calls.c).
 *
 * Invariants
 *  1. No error is dropped: it stops the program, or a descriptor owes it until a call has returned it.
 *  2. An error is handed to the file that it belongs to: a number that names another file by now owes nothing.
 *
 * Not covered: a program that ends, or becomes another one, while a descriptor owes; a descriptor that dup2(2) replaces before its next
 * call; EBADF of close, which programs call twice; buffered streams whose bytes fail outside handlers: fflush and fclose there tell, as ever.
 */
#define _GNU_SOURCE
#include "late.h"
#include "runtime.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

SF_API _Atomic uint32_t sf_late_count;

/* More descriptors with an error each, at one time, stop the program. */
#define OWING 64
static struct owed {
  int fd, error;
  dev_t device;
  ino_t inode;
} owing[OWING];
static _Atomic int busy;

static void lock(void) {
  while (atomic_exchange(&busy, 1))
    sf_syscall(24 /* sched_yield */, 0, 0, 0, 0, 0, 0);
}
static void unlock(void) { atomic_store(&busy, 0); }

_Noreturn static void stop(const char *text) {
  sf_stop(text,
          "make room for it, or see the descriptor's other end; `late-errors next-call` in a policy hands such an error to the next call");
}

static const char *handler(char *into, size_t room) {
  const struct sf_context *c = __sf_own;
  if (c && c->handler)
    snprintf(into, room, "handler %s (%s), event %llu", c->handler->name, c->handler->where, (unsigned long long)c->event);
  else
    snprintf(into, room, "outside handlers");
  return into;
}

static const char *symbol(int error) {
  const char *name = strerrorname_np(error);
  return name ? name : "?";
}

static const char *words(int error) {
  const char *text = strerrordesc_np(error);
  return text ? text : "?";
}

void sf_late_lost(const char *name, const char *on, int error) {
  char who[256], text[640];
  snprintf(text, sizeof text, "%s: %s of %s failed after it was validated: %s (%s); stopped, what it wrote before has left",
           handler(who, sizeof who), name, on, words(error), symbol(error));
  stop(text);
}

/* A peer, or the way to it, is gone. */
static bool of_the_network(int fd, int error) {
  int type;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0)
    return false;
  switch (error) {
  case EPIPE:
  case ECONNRESET:
  case ECONNABORTED:
  case ECONNREFUSED:
  case ENOTCONN:
  case ETIMEDOUT:
  case ESHUTDOWN:
  case ENETDOWN:
  case ENETUNREACH:
  case ENETRESET:
  case EHOSTDOWN:
  case EHOSTUNREACH:
    return true;
  case EPERM:
  case ENOBUFS: /* a packet filter, a full queue: a datagram is lost there */
    return type == SOCK_DGRAM || type == SOCK_RAW;
  default:
    return false;
  }
}

void sf_late_failed(const char *name, int fd, int error, size_t left, size_t all) {
  struct stat is;
  bool known = error != EBADF && fstat(fd, &is) == 0;
  if (known && &__sf_late_stop == NULL && (&__sf_late_next != NULL || of_the_network(fd, error))) {
    lock();
    struct owed *free = NULL;
    for (struct owed *o = owing; o < owing + OWING; o++)
      if (o->error && o->fd == fd && o->device == is.st_dev && o->inode == is.st_ino) {
        unlock(); /* the first is what it hears */
        return;
      } else if (!o->error && !free) {
        free = o;
      }
    if (free) {
      *free = (struct owed){fd, error, is.st_dev, is.st_ino};
      atomic_fetch_add(&sf_late_count, 1);
      unlock();
      return;
    }
    unlock();
  }
  char who[256], text[640];
  snprintf(text, sizeof text, "%s: %s to descriptor %d failed after it was validated: %s (%s); stopped, %zu of %zu bytes have left",
           handler(who, sizeof who), name, fd, words(error), symbol(error), left, all);
  stop(text);
}

int sf_late_owed(int fd) {
  struct stat is;
  int kept = errno, error = 0;
  if (fstat(fd, &is) == 0) {
    lock();
    for (const struct owed *o = owing; o < owing + OWING; o++)
      if (o->error && o->fd == fd && o->device == is.st_dev && o->inode == is.st_ino)
        error = o->error;
    unlock();
  }
  errno = kept;
  return error;
}

void sf_late_paid(int fd) {
  lock();
  for (struct owed *o = owing; o < owing + OWING; o++)
    if (o->error && o->fd == fd) {
      o->error = 0;
      atomic_fetch_sub(&sf_late_count, 1);
    }
  unlock();
}

/* What an earlier event left is handed to this close, and paid by now: what is owed comes of a write of this very event, and goes with its
   descriptor. Of the network it is no loss: the peer is gone. */
void sf_late_closed(int fd) {
  int error = sf_late_owed(fd);
  if (error && !of_the_network(fd, error))
    sf_late_lost("a write", "a descriptor that the same event closes", error);
  sf_late_paid(fd);
}
