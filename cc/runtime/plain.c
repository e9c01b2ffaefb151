/*
 * What stands for the runtime in a shared library, none of whose code runs hardened (steadfast cc -shared).
 *
 *     clones, which nothing calls ----> names.S: every name of the runtime, on one instruction that traps
 *     the library's plain code -------> here, and crc.c, between.c, fail.c as they are
 *
 * A library with the runtime itself would bring half a kilobyte of thread-local memory of the kind that a program has 1.6 KiB
 * of for all that it opens with dlopen: a server with ten modules would not find the last of them. Here it is 16 bytes.
 *
 * Invariant: what plain code calls works, or says why it cannot.
 *
 * names.S is made from the names of the runtime (Makefile).
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

/* As clones name it; nobody reads it. */
__attribute__((visibility("hidden"))) __thread char __sf_tls_plain[8] __asm__("__sf_tls");
/* What fail.c asks: no context, no handler. */
__thread struct sf_context *__sf_own;

/* Takes the names along: what inline assembly calls is not seen by a link-time optimiser. */
extern void __sf_slow8(void);
__attribute__((used)) static void (*const names)(void) = __sf_slow8;

size_t sf_length(const char *s) {
  size_t n = 0;
  while (s[n])
    n++;
  return n;
}

/* Outside handlers, as a policy has named these functions: nothing is known here that could be carried along. */
SF_API void __sf_output_outside(const void *bytes, uint64_t length, uint64_t skip) { (void)bytes, (void)length, (void)skip; }
SF_API void *__sf_provenance_move(void *to, const void *from, size_t length) { return memmove(to, from, length); }
SF_API void *__sf_provenance_realloc(void *old, size_t size) { return realloc(old, size); }

SF_API int sf_run(void) { return 0; }

#define NOT_HERE(TYPE, NAME, ...)                                                                               \
  SF_API TYPE NAME(__VA_ARGS__) {                                                                               \
    sf_stop(#NAME " belongs in the program that has the handlers, found in a shared library", "call it there"); \
  }
#pragma clang diagnostic ignored "-Wunused-parameter"
NOT_HERE(int, sf_input, const void *message, size_t length, uint32_t crc)
NOT_HERE(void, sf_input_edge, const void *message, size_t length)
NOT_HERE(void, sf_output_append, const void *bytes, size_t length)
NOT_HERE(void, sf_output_done, void)
NOT_HERE(uint32_t, sf_crc_pop, void)
NOT_HERE(size_t, sf_crc_count, void)
NOT_HERE(int, sf_barrier, void)
NOT_HERE(void, sf_ignore, const void *bytes, size_t length)
NOT_HERE(size_t, sf_scrub, size_t bytes)
NOT_HERE(uint64_t, sf_committed, void)
