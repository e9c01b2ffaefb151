/*
 * Bytes compared, and their checksum: CRC32C with the processor's instruction where it has one, else by table.
 *
 * Invariant: start with 0, go on with the result; so a message may come in parts.
 *
 * The receiving side of a message should use an implementation of its own (the client library does), so that one fault
 * in one of them shows.
 */
#include "runtime.h"

#define POLYNOMIAL 0x82f63b78u /* Castagnoli, bits reversed */

typedef uint64_t vector __attribute__((vector_size(32), aligned(1), may_alias));

/* Branch-free over 32 bytes at a time: differences are collected and looked at once. */
bool sf_equal(const void *a, const void *b, size_t length) {
  const uint8_t *x = a, *y = b;
  vector all = {0};
  uint64_t rest = 0;
  while (length >= 32) {
    all |= *(const vector *)x ^ *(const vector *)y;
    x += 32, y += 32, length -= 32;
  }
  while (length--)
    rest |= (uint64_t)(*x++ ^ *y++);
  return (all[0] | all[1] | all[2] | all[3] | rest) == 0;
}

static uint32_t table[256];
static int with_instruction;

__attribute__((constructor(101))) static void prepare(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t v = i;
    for (int k = 0; k < 8; k++)
      v = v & 1 ? v >> 1 ^ POLYNOMIAL : v >> 1;
    table[i] = v;
  }
  uint32_t a = 1, b, c = 0, d;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  with_instruction = c >> 20 & 1; /* SSE4.2: Intel SDM vol. 2, CPUID leaf 1 */
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *b, size_t n) {
  uint64_t v = crc;
  for (; n >= 8; b += 8, n -= 8) {
    uint64_t word;
    __builtin_memcpy(&word, b, 8);
    v = __builtin_ia32_crc32di(v, word);
  }
  crc = (uint32_t)v;
  for (; n; b++, n--)
    crc = __builtin_ia32_crc32qi(crc, *b);
  return crc;
}

uint32_t sf_crc32c(uint32_t crc, const void *bytes, size_t length) {
  const uint8_t *b = bytes;
  crc = ~crc;
  if (likely(with_instruction))
    return ~by_instruction(crc, b, length);
  for (; length; b++, length--)
    crc = table[(crc ^ *b) & 0xff] ^ crc >> 8;
  return ~crc;
}
