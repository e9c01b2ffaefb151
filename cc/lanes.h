/*
 * CRC32C by the processor's instruction in three lanes: the runtime's (runtime/crc.c) and the envelope's (envelope/crc32c.c), each
 * with a table of its own.
 *
 * The instruction takes three cycles and can begin one each cycle (Intel SDM, "Latency and throughput"; Agner Fog's tables), so one
 * chain of it uses a third of what the processor gives. Three thirds of the bytes go through chains of their own, and are put
 * together as polynomials: behind the first third come as many zeros as the other two have, which is a product with a power of x.
 *
 * The product of two reflected numbers of 32 bits by PCLMULQDQ is that of the polynomials times x; the instruction, from 0 over its 64
 * bits, multiplies by x^32 and takes the remainder. So the constant for w words of zeros is x^(64 w - 33). For one word that is x^31,
 * which is 1 in reflected bits; and eight bytes of zero behind a number multiply it by x^64, which gives the next.
 */
#ifndef STEADFAST_LANES_H
#define STEADFAST_LANES_H

#include <stddef.h>
#include <stdint.h>

/* Words of one lane, at most: 3 KiB at once, and 1 KiB of constants. */
#define SF_LANE_WORDS 128
/* Below it one chain is as fast: measured, 128 bytes take 17 ns either way, 256 take 33 and 17. */
#define SF_LANES_BYTES 192

struct sf_lanes {
  uint32_t zeros[2 * SF_LANE_WORDS + 1]; /* by words of zeros, from 1 on */
};

/* What CPUID leaf 1 says in ecx (Intel SDM vol. 2). */
#define SF_CPUID_PCLMULQDQ (1u << 1)
#define SF_CPUID_SSE42 (1u << 20)
#define SF_CPUID_OSXSAVE (1u << 27)

static inline uint32_t sf_cpuid_1_ecx(void) {
  uint32_t a = 1, b, c = 0, d;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return c;
}

__attribute__((target("sse4.2"))) static inline void sf_lanes_prepare(struct sf_lanes *lanes) {
  lanes->zeros[1] = 1;
  for (size_t w = 1; w < 2 * SF_LANE_WORDS; w++)
    lanes->zeros[w + 1] = (uint32_t)__builtin_ia32_crc32di(lanes->zeros[w], 0);
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t sf_behind_zeros(uint64_t crc, uint32_t zeros) {
  typedef long long pair __attribute__((vector_size(16)));
  pair product = __builtin_ia32_pclmulqdq128((pair){(long long)crc, 0}, (pair){zeros, 0}, 0);
  return __builtin_ia32_crc32di(0, (uint64_t)product[0]);
}

static inline uint64_t sf_word_at(const uint8_t *at) {
  uint64_t word;
  __builtin_memcpy(&word, at, 8);
  return word;
}

/* One chain. `crc` is the register of the instruction: not inverted. */
__attribute__((target("sse4.2"))) static inline uint32_t sf_one_lane(uint32_t crc, const uint8_t *at, size_t length) {
  uint64_t all = crc;
  for (; length >= 8; at += 8, length -= 8)
    all = __builtin_ia32_crc32di(all, sf_word_at(at));
  crc = (uint32_t)all;
  for (; length; at++, length--)
    crc = __builtin_ia32_crc32qi(crc, *at);
  return crc;
}

__attribute__((target("sse4.2,pclmul"))) static inline uint32_t sf_three_lanes(const struct sf_lanes *lanes, uint32_t crc,
                                                                               const uint8_t *at, size_t length) {
  while (length >= SF_LANES_BYTES) {
    size_t words = length / 24 < SF_LANE_WORDS ? length / 24 : SF_LANE_WORDS, lane = 8 * words;
    uint64_t first = crc, second = 0, third = 0;
    for (const uint8_t *end = at + lane; at != end; at += 8) {
      first = __builtin_ia32_crc32di(first, sf_word_at(at));
      second = __builtin_ia32_crc32di(second, sf_word_at(at + lane));
      third = __builtin_ia32_crc32di(third, sf_word_at(at + 2 * lane));
    }
    crc = (uint32_t)(sf_behind_zeros(first, lanes->zeros[2 * words]) ^ sf_behind_zeros(second, lanes->zeros[words]) ^ third);
    at += 2 * lane;
    length -= 3 * lane;
  }
  return sf_one_lane(crc, at, length);
}

#endif
