/*
 * What a program says about itself to be hardened by `steadfast cc`: which functions are event handlers, which bytes
 * are their input, which bytes they send.
 *
 * A handler runs twice. After the first run memory is put back, the second run is compared with the first, and only
 * then do its effects (locks released, memory freed, bytes written) happen. A message leaves with the checksum that
 * the second run computed, so a receiver recognises a message that was damaged on the way out.
 *
 *     int valid = sf_input(bytes, length, crc);      // phase I: wrong checksum, then drop the message
 *     if (valid) handle(connection, bytes, length);  // SF_HANDLER: first run, reset, second run, comparison
 *     send_with_crc(reply, reply_length, sf_crc_pop());
 *
 * Rules for callers
 *  1. Everything here works on the calling thread. sf_input, sf_crc_pop and sf_barrier are called outside handlers,
 *     the others inside.
 *  2. A handler that is called from a handler is a part of it.
 *  3. Bytes given to sf_output_append must be alive, and be final, when the handler returns.
 *
 * This header is only of use to `steadfast cc`. A plain compiler stops here, so that a build is never unhardened in
 * silence; a baseline for measurements defines STEADFAST_PLAIN and gets the same source without protection.
 *
 * Not covered: programs whose source stays untouched. They say the same things in a policy file (docs/reference/policy.md).
 * See Behrens et al., "Scalable Error Isolation", NSDI 2015, Figure 5.
 */
#ifndef STEADFAST_SEI_H
#define STEADFAST_SEI_H

#include <stddef.h>
#include <stdint.h>

#if !defined(__STEADFAST__) && !defined(STEADFAST_PLAIN)
#error "steadfast/sei.h needs the compiler `steadfast cc` (CC='steadfast cc'); for an unprotected baseline define STEADFAST_PLAIN"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef STEADFAST_PLAIN

/* On a function: an event handler, with a message as input (sf_input before it, or sf_input_edge inside). */
#define SF_HANDLER __attribute__((annotate("steadfast.handler"), noinline))
/* On a function: a handler without a message, such as housekeeping by a background thread. */
#define SF_LOCAL_HANDLER __attribute__((annotate("steadfast.local_handler"), noinline))
/* On a function: it writes nothing that outlives it, so its stores are not logged. Unchecked. */
#define SF_LOCAL __attribute__((annotate("steadfast.local"), noinline))
/* On a function without hardened source: reads arguments and memory, writes nothing: called in both runs. */
#define SF_PURE __attribute__((annotate("steadfast.pure")))
/* On a function without hardened source: called in the first run; the second compares arguments and is given the
   result. It may write no memory of the program. */
#define SF_ONCE __attribute__((annotate("steadfast.once")))
/* On a function without hardened source that returns nothing: called after validation. Both runs' arguments are
   compared, by value: what a pointer points to must not change meanwhile. */
#define SF_DEFER __attribute__((annotate("steadfast.defer")))
/* On a function of this program: hardened code calls it in place of NAME, in both runs, as ordinary code. Inside it,
   sf_run() tells the run. */
#define SF_WRAPPER(NAME) __attribute__((annotate("steadfast.wrapper:" NAME), used, noinline))

/* On a variable, or on a function that allocates: the variable, or the memory that the function's own calls of malloc,
   calloc, realloc, aligned_alloc, posix_memalign, strdup and operator new take, is protected at rest: SF_DUP by a copy that the second
   run works on, SF_CRC by checksums of each 64 bytes. Needs --state=dup or --state=crc (docs/concepts/hardening.md). */
#define SF_DUP __attribute__((annotate("steadfast.dup")))
#define SF_CRC __attribute__((annotate("steadfast.crc")))

/* Phase I. Takes a message and the checksum it came with: 1 if they fit, and the next handler of this thread checks
   them again before it commits; 0 if not: drop the message. */
int sf_input(const void *message, size_t length, uint32_t crc);
/* For senders that attach no checksum: computed here, at the edge, and checked again before the handler commits. Called
   outside (for the next handler) or inside, before the message is used. Weaker: damage before this line is not seen. */
void sf_input_edge(const void *message, size_t length);
/* Adds bytes to the message that this handler sends; done ends the message. Several may be sent. */
void sf_output_append(const void *bytes, size_t length);
void sf_output_done(void);
/* Outside: the checksum of the oldest message not yet taken. Without one the program stops. */
uint32_t sf_crc_pop(void);
/* Outside: how many checksums wait. */
size_t sf_crc_count(void);
/* Outside, before bytes of a handler leave: 1 when no other thread may still be inside a critical section that this
   thread's last handler could have raced with; 0: serve something else, and ask again. */
int sf_barrier(void);
/* Inside: stores to these bytes are not logged, not reset and not compared until the handler ends. */
void sf_ignore(const void *bytes, size_t length);
/* 0 outside a handler, 1 in the first run, 2 in the second. */
int sf_run(void);
/* Outside, with --state: looks through so many bytes of what is protected at rest, from where the last call ended; 0: all
   of it once. How many bytes it has repaired; what cannot be repaired stops the program. */
size_t sf_scrub(size_t bytes);
/* Handlers that this thread has committed. */
uint64_t sf_committed(void);

#else /* STEADFAST_PLAIN: the same source, unprotected */

#define SF_HANDLER __attribute__((noinline))
#define SF_LOCAL_HANDLER __attribute__((noinline))
#define SF_LOCAL
#define SF_PURE
#define SF_ONCE
#define SF_DEFER
#define SF_WRAPPER(NAME) __attribute__((unused))
#define SF_DUP
#define SF_CRC

static inline int sf_input(const void *message, size_t length, uint32_t crc) {
  (void)message, (void)length, (void)crc;
  return 1;
}
static inline void sf_input_edge(const void *message, size_t length) { (void)message, (void)length; }
static inline void sf_output_append(const void *bytes, size_t length) { (void)bytes, (void)length; }
static inline void sf_output_done(void) {}
static inline uint32_t sf_crc_pop(void) { return 0; }
static inline size_t sf_crc_count(void) { return 0; }
static inline int sf_barrier(void) { return 1; }
static inline void sf_ignore(const void *bytes, size_t length) { (void)bytes, (void)length; }
static inline int sf_run(void) { return 0; }
static inline size_t sf_scrub(size_t bytes) { return (void)bytes, (size_t)0; }
static inline uint64_t sf_committed(void) { return 0; }

#endif /* STEADFAST_PLAIN */

/* CRC32C (Castagnoli), the checksum of messages: start with 0, go on with the result. */
#ifndef STEADFAST_PLAIN
uint32_t sf_crc32c(uint32_t crc, const void *bytes, size_t length);
#endif

#ifdef __cplusplus
}
#endif

#endif
