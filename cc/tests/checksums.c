/* What copies, compares and sums up bytes in the runtime and in the envelope, against loops of single bits and bytes: all lengths around
 * the seams of words, vectors and lanes. Built together with cc/envelope/crc32c.c.
 *
 *     checksums        one line for each; status 1 when something differs */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <steadfast/sei.h>

#include "../../cc/lanes.h"

uint32_t sf_envelope_crc32c(uint32_t so_far, const void *bytes, size_t length);
bool sf_equal(const void *a, const void *b, size_t length);
void *sf_copy(void *to, const void *from, size_t length);

enum { MOST = 7000, SHORT = 300 };
static uint8_t bytes[MOST + 8], other[MOST + 8];
static struct sf_lanes lanes;

/* Links the runtime. */
SF_LOCAL_HANDLER static void handle(void) { other[0] = 0; }

static uint32_t by_bits(uint32_t crc, uint8_t byte) {
  crc = ~crc ^ byte;
  for (int bit = 0; bit < 8; bit++)
    crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
  return ~crc;
}

static int sums(size_t from, size_t most) {
  int wrong = 0;
  uint32_t crc = 0x1234567;
  for (size_t n = 0; n <= most; n++) {
    const uint8_t *at = bytes + from;
    uint32_t start = 0x1234567;
    wrong += sf_crc32c(start, at, n) != crc || sf_envelope_crc32c(start, at, n) != crc || ~sf_one_lane(~start, at, n) != crc ||
             ~sf_three_lanes(&lanes, ~start, at, n) != crc || sf_crc32c(sf_crc32c(start, at, n / 3), at + n / 3, n - n / 3) != crc;
    crc = by_bits(crc, at[n]);
  }
  return wrong;
}

static int comparisons(void) {
  int wrong = 0;
  for (size_t n = 0; n < SHORT; n++)
    for (size_t i = 0; i < n + 2; i++) {
      memcpy(other, bytes, SHORT + 2);
      other[i] ^= 1 << i % 8;
      wrong += sf_equal(bytes + 1, other + 1, n) != (i == 0 || i == n + 1);
    }
  return wrong;
}

static int copies(void) {
  int wrong = 0;
  for (size_t n = 0; n < SHORT; n++) {
    memset(other, 0xa5, SHORT + 2);
    sf_copy(other + 1, bytes, n);
    wrong += memcmp(other + 1, bytes, n) != 0 || other[0] != 0xa5 || other[n + 1] != 0xa5;
    for (size_t down = 1; down < 20; down++) {
      memcpy(other, bytes, 2 * SHORT + 20);
      sf_copy(other + 20 - down, other + 20, n);
      wrong += memcmp(other + 20 - down, bytes + 20, n) != 0 || memcmp(other + 20 - down + n, bytes + 20 - down + n, SHORT) != 0;
    }
  }
  return wrong;
}

int main(void) {
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)(i * i * 31 + i / 7);
  handle();
  sf_lanes_prepare(&lanes);
  int summed = sums(0, MOST);
  for (size_t from = 1; from < 8; from++)
    summed += sums(from, 500);
  int compared = comparisons(), copied = copies();
  printf("checksums %d wrong\ncomparisons %d wrong\ncopies %d wrong\n", summed, compared, copied);
  return summed + compared + copied != 0;
}
