/*
 * What a library keeps of an object with a copy and writes by itself (a policy's `keeps`): these bytes have no copy.
 *
 * Ranges, sorted by address, that do not overlap. They are asked for only where object and copy differ, so the price is
 * paid by who reads such bytes, and by nobody else.
 *
 * Invariant: a range ends with the block that it lies in: the next object there is compared as a whole.
 *
 * Not covered: calls of the library's function through a pointer, and in handlers (its bytes are then a difference, which
 * stops the program); a signal handler that reads such bytes while its own thread asks for them waits for ever.
 */
#define _GNU_SOURCE
#include "state.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sf_span *kept;
static _Atomic size_t count;
static size_t room;

/* A child of fork has none of the threads that may hold it. What is registered first is taken last: after heap.c's lock, as
   sf_kept_end takes it. */
static void hold_keeps(void) { pthread_mutex_lock(&lock); }
static void release_keeps(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor(102))) static void watch_forks_keeps(void) { pthread_atfork(hold_keeps, release_keeps, release_keeps); }

/* The first that ends behind an address. */
static size_t from(uintptr_t at) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (kept[middle].at + kept[middle].length > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static void take_out_keeps(size_t first, size_t end) {
  for (size_t i = end; i < count; i++)
    kept[first + i - end] = kept[i];
  count -= end - first;
}

SF_API void __sf_state_keeps(const void *p, size_t length) {
  struct sf_span added = {(uintptr_t)p, length};
  if (sf_is_crc(added.at))
    sf_stop("a library keeps and writes memory that has checksums", "take the object out of what crc protects; dup may have such parts");
  if (!sf_is_dup(added.at) || length == 0)
    return;
  struct sf_span object = sf_object(added.at);
  if (length > object.at + object.length - added.at)
    sf_stop("a policy's `keeps` names more bytes than the object has", "give the size of what the library keeps, as its header says");
  pthread_mutex_lock(&lock);
  size_t first = from(added.at), end = first;
  if (first < count && kept[first].at <= added.at && added.at + length <= kept[first].at + kept[first].length) {
    pthread_mutex_unlock(&lock);
    return;
  }
  for (; end < count && kept[end].at < added.at + added.length; end++) { /* all that it overlaps becomes one with it */
    uintptr_t low = kept[end].at < added.at ? kept[end].at : added.at;
    uintptr_t high = kept[end].at + kept[end].length, mine = added.at + added.length;
    added = (struct sf_span){low, (high > mine ? high : mine) - low};
  }
  take_out_keeps(first, end);
  if (count == room) {
    size_t more = room ? 2 * room : 4096 / sizeof *kept;
    struct sf_span *longer = sf_map(more * sizeof *kept);
    for (size_t i = 0; i < count; i++)
      longer[i] = kept[i];
    if (kept)
      sf_unmap(kept, room * sizeof *kept);
    kept = longer;
    room = more;
  }
  for (size_t i = count; i > first; i--)
    kept[i] = kept[i - 1];
  kept[first] = added;
  count++;
  pthread_mutex_unlock(&lock);
  sf_state_written(added.at, added.length); /* no checksum of the scrubber's is about these bytes */
}

/* A block is given back. From now on its bytes have a copy again, whoever is given them next, and the scrubber looks at them. */
void sf_kept_end(struct sf_span block) {
  if (likely(count == 0))
    return;
  pthread_mutex_lock(&lock);
  size_t first = from(block.at), end = first;
  for (; end < count && kept[end].at < block.at + block.length; end++) {
    sf_state_written(kept[end].at, kept[end].length);
    sf_copy((void *)(kept[end].at + SF_COPY), (void *)kept[end].at, kept[end].length);
    sf_state_written(kept[end].at, kept[end].length);
  }
  take_out_keeps(first, end);
  pthread_mutex_unlock(&lock);
}

size_t sf_difference(uintptr_t at, size_t length) {
  const volatile uint8_t *object = (const uint8_t *)at, *copy = object + SF_COPY;
  size_t i = 0;
  while (i < length && object[i] == copy[i])
    i++;
  if (i == length || count == 0)
    return i;
  pthread_mutex_lock(&lock);
  for (; i < length; i++) {
    if (object[i] == copy[i])
      continue;
    size_t k = from(at + i);
    if (k == count || kept[k].at > at + i)
      break;
    i = kept[k].at + kept[k].length - at - 1; /* on behind it */
  }
  pthread_mutex_unlock(&lock);
  return i < length ? i : length;
}
