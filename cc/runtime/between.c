/*
 * What code outside handlers calls when two computations of one value differ (pass/between.cpp).
 *
 * Loads are done twice. Another thread may have stored between them, so a difference is looked at again: through the same
 * address, until two reads agree. Addresses that differ are a fault, and so is memory that does not come to rest.
 *
 * Invariant: nothing here returns a value that was read through an address with only one witness.
 *
 * Not covered: a fault that changes the memory itself between the two reads; the second read is believed.
 */
#include "runtime.h"
#include "state.h"

/* A word that a thread stores to all the time still gives two equal reads soon: they are nanoseconds apart. */
#define READS_MAX 1000000

static uint64_t read(const volatile void *at, uint64_t bytes) {
  switch (bytes) {
  case 1:
    return *(const volatile uint8_t *)at;
  case 2:
    return *(const volatile uint16_t *)at;
  case 4:
    return *(const volatile uint32_t *)at;
  default:
    return *(const volatile uint64_t *)at;
  }
}

SF_API _Noreturn SF_COLD void __sf_between_differ(const char *where, uint64_t first, uint64_t second) {
  sf_tell_between(where, first, second);
  sf_leave(122);
}

SF_API SF_COLD uint64_t __sf_between_again(const void *first, const void *second, uint64_t bytes, const char *where) {
  if (first != second)
    __sf_between_differ(where, (uint64_t)first, (uint64_t)second);
  uint64_t one = 0, two = 1;
  for (int i = 0; i < READS_MAX; i++) {
    one = read(first, bytes);
    two = read(second, bytes);
    if (one == two)
      return one;
  }
  __sf_between_differ(where, one, two);
}
