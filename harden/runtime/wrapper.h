/* What the wrappers of libraries share (libc.c, locks.c, strings.c). */
#ifndef STEADFAST_WRAPPER_H
#define STEADFAST_WRAPPER_H

#include "runtime.h"

#define FIRST (__sf_tls.phase == SF_E1)
/* Wrappers are only reached from hardened code; a pointer to one may have escaped. */
#define INSIDE struct sf_context *c = sf_inside("a wrapper of the C library was called outside a handler")

/* A write of a wrapper into the program's memory. */
#define LOGGED(at, length, ...)                                                                                       \
  do {                                                                                                                 \
    __sf_log((at), (length));                                                                                          \
    __VA_ARGS__;                                                                                                       \
    __sf_logged((at), (length));                                                                                       \
  } while (0)

#endif
