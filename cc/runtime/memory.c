/* Memory of the runtime's own: mappings, copies, tables that grow; and numbers made of bytes. */
#include "log.h"

const char sf_wrong_place[] = "a copy, a fill or an entry has gone elsewhere than it should";
const char sf_logs_differ[] = "the two logs of old values differ"; /* of recover.c and store.S */
const char sf_entry_elsewhere[] = "an entry of the log has gone to another place of it";

uint64_t sf_mix(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15ull; /* 2^64 / golden ratio */
  a *= 0xff51afd7ed558ccdull;     /* odd: no bit is lost */
  return a ^ a >> 32;
}

void *sf_map(size_t bytes) {
  /* A page on either side stays inaccessible: a wild index stops here instead of in the program's data. */
  bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
  long at = sf_syscall(9 /* mmap */, 0, (long)(bytes + 2 * PAGE), 0, 0x22 /* PRIVATE|ANONYMOUS */, -1, 0);
  if (at < 0 && at > -4096)
    sf_stop("memory for the log is needed, the kernel gives none", "raise the memory limit of the process");
  if (sf_syscall(10 /* mprotect */, at + (long)PAGE, (long)bytes, 3, 0, 0, 0) != 0)
    sf_stop("memory for the log is needed, the kernel gives none", "raise the memory limit of the process");
  return (void *)(at + (long)PAGE);
}

void sf_unmap(void *base, size_t bytes) {
  bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
  sf_syscall(11 /* munmap */, (long)base - (long)PAGE, (long)(bytes + 2 * PAGE), 0, 0, 0, 0);
}

void *sf_copy(void *to, const void *from, size_t length) { return copy_bytes(to, from, length); }

size_t sf_length(const char *s) {
  size_t n = 0;
  while (s[n])
    n++;
  return n;
}

void sf_enlarge(struct sf_buffer *b, size_t bytes) {
  size_t size = b->size ? b->size : PAGE;
  while (size < b->used + bytes)
    size *= 2;
  uint8_t *base = sf_map(size), *old = b->base;
  size_t old_size = b->size;
  if (old)
    sf_copy(base, old, b->used);
  b->base = base;
  b->size = size;
  if (__sf_own && size > SF_KEPT)
    __sf_own->grown = true;
  if (unlikely(__sf_own && __sf_own->shadow))
    __sf_recover.shadow_places(__sf_own);
  if (old) /* last: until here a retry finds it where it was */
    sf_unmap(old, old_size);
}

void sf_reset(struct sf_buffer *b) {
  bool unused = !b->used;
  b->idle = b->used < b->size / 4 ? b->idle + 1 : 0;
  b->used = 0;
  if (unlikely(b->idle > SF_IDLE && (unused || b->size > SF_KEPT))) {
    sf_unmap(b->base, b->size);
    *b = (struct sf_buffer){0};
    if (unlikely(__sf_own->shadow != NULL))
      __sf_recover.shadow_places(__sf_own);
  }
}

SF_API uint64_t __sf_hash(const void *bytes, size_t length) {
  const uint8_t *b = bytes;
  uint64_t h = length;
  for (; length >= 8; b += 8, length -= 8) {
    uint64_t v;
    __builtin_memcpy(&v, b, 8);
    h = sf_mix(h, v);
  }
  for (; length; b++, length--)
    h = sf_mix(h, *b);
  return h;
}
