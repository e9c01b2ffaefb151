/*
 * Bytes compared, and their checksum: CRC32C with the processor's instruction where it has one, else by table.
 *
 * Invariant: start with 0, go on with the result; so a message may come in parts.
 *
 * The receiving side of a message should use an implementation of its own (the client library does), so that one fault
 * in one of them shows.
 */
#include "runtime.h"

#include "../lanes.h"

#define POLYNOMIAL 0x82f63b78u /* Castagnoli, bits reversed */
#define CPUID_7_AVX2 (1u << 5) /* leaf 7, ebx */

typedef uint64_t vector __attribute__((vector_size(32), aligned(1), may_alias));

/* Branch-free over 32 bytes at a time: differences are collected and looked at once. */
__attribute__((always_inline)) static inline bool equal(const uint8_t *x, const uint8_t *y, size_t length) {
  vector one = {0}, two = {0};
  uint64_t rest = 0;
  for (; length >= 64; x += 64, y += 64, length -= 64) {
    one |= *(const vector *)x ^ *(const vector *)y;
    two |= *(const vector *)(x + 32) ^ *(const vector *)(y + 32);
  }
  for (; length >= 8; x += 8, y += 8, length -= 8)
    rest |= sf_word_at(x) ^ sf_word_at(y);
  for (; length; x++, y++, length--)
    rest |= (uint64_t)(*x ^ *y);
  one |= two;
  return (one[0] | one[1] | one[2] | one[3] | rest) == 0;
}

static bool equal_anywhere(const uint8_t *x, const uint8_t *y, size_t length) { return equal(x, y, length); }
__attribute__((target("avx2"))) static bool equal_avx2(const uint8_t *x, const uint8_t *y, size_t length) { return equal(x, y, length); }

static bool has_avx2;

bool sf_equal(const void *a, const void *b, size_t length) {
  return has_avx2 && length >= 64 ? equal_avx2(a, b, length) : equal_anywhere(a, b, length);
}

static uint32_t table[256];
static struct sf_lanes lanes;
static enum { BY_TABLE, BY_INSTRUCTION, BY_LANES } way;

/* The processor has it, and the kernel saves its registers (Intel SDM vol. 1, 14.7.1). */
static bool avx2(uint32_t features) {
  if (!(features & SF_CPUID_OSXSAVE))
    return false;
  uint32_t saved, high, a = 7, b = 0, c = 0, d;
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return (saved & 6) == 6 && b & CPUID_7_AVX2;
}

__attribute__((constructor(101))) static void prepare_crc(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t v = i;
    for (int k = 0; k < 8; k++)
      v = v & 1 ? v >> 1 ^ POLYNOMIAL : v >> 1;
    table[i] = v;
  }
  uint32_t features = sf_cpuid_1_ecx();
  has_avx2 = avx2(features);
  if (!(features & SF_CPUID_SSE42))
    return;
  way = features & SF_CPUID_PCLMULQDQ ? BY_LANES : BY_INSTRUCTION;
  sf_lanes_prepare(&lanes);
}

uint32_t sf_crc32c(uint32_t crc, const void *bytes, size_t length) {
  const uint8_t *b = bytes;
  crc = ~crc;
  if (likely(way == BY_LANES))
    return ~sf_three_lanes(&lanes, crc, b, length);
  if (way == BY_INSTRUCTION)
    return ~sf_one_lane(crc, b, length);
  for (; length; b++, length--)
    crc = table[(crc ^ *b) & 0xff] ^ crc >> 8;
  return ~crc;
}
