/* Errors of effects that happen after validation (late.c, late_calls.c, libc.c). */
#ifndef STEADFAST_LATE_H
#define STEADFAST_LATE_H

#include <stdatomic.h>
#include <stdint.h>
#include <stddef.h>

/* Which errors are handed to the next call on the descriptor, in place of a stop: `late-errors` of a policy. Without the word:
   those of the network. */
extern const int __sf_late_next __attribute__((weak)); /* late-errors next-call: all */
extern const int __sf_late_stop __attribute__((weak)); /* late-errors stop: none */

/* Descriptors that owe the program an error. */
extern _Atomic uint32_t sf_late_count;
/* The error that this descriptor owes, or 0. It stays. */
int sf_late_owed(int fd);
/* It has been handed over, or the descriptor is closed. */
void sf_late_paid(int fd);
/* Before a handler's close happens. */
void sf_late_closed(int fd);
/* What `name` was to do with fd has failed. Returns if the program is told by its next call; stops it otherwise. */
void sf_late_failed(const char *name, int fd, int error, size_t left, size_t all);
/* The same for an effect that nobody can be told of later. */
_Noreturn void sf_late_lost(const char *name, const char *on, int error);

/* libc.c: in a handler, the error that fd owes, in errno as well. */
int sf_owes(const char *name, int fd);

#endif
