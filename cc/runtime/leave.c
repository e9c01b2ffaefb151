/*
 * --validate=async: a program that ends without its exit handlers ends when all its handlers are validated (async.c).
 *
 * An object of its own, not in the library: it has a name of the C library, which others must not be given.
 */
#include "runtime.h"

void __sf_async_leaves(void);

SF_API _Noreturn void _exit(int status) {
  __sf_async_leaves();
  for (;;)
    sf_syscall(231 /* exit_group */, status, 0, 0, 0, 0, 0);
}

SF_API _Noreturn void _Exit(int status) { _exit(status); }
