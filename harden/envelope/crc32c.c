/*
 * CRC32C by the processor's instruction (SSE 4.2), eight bytes a step; in three lanes where the message is long enough
 * that the instruction's latency of three cycles would show.
 *
 * Independent on purpose of the tables in crates/integrity/src/envelope/crc.rs. The constants that put lanes together
 * are computed here at the first use, from the polynomial; the tests compare all lengths around the seams.
 *
 * Not covered: processors without SSE 4.2 (before 2008). The program stops there with the reason.
 */
#include "envelope.h"
#include "system.h"

#define POLYNOMIAL 0x82f63b78u
/* Bytes of one lane: a third of what pays for the joining (two products of 32 shifts, about 60 ns together). */
#define LANE 512

static uint32_t lane_shift;     /* x^(8*LANE) mod P, reflected */
static uint32_t two_lane_shift; /* x^(16*LANE) mod P, reflected */
static int ready;

/* The product of two polynomials modulo P, reflected: bit 31 is x^0. */
static uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; bit--) {
    product ^= b & -(a >> bit & 1);
    b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
  }
  return product;
}

static uint32_t power_of_x(uint64_t exponent) {
  uint32_t power = 1u << 31, square = 1u << 30;
  for (; exponent; exponent >>= 1, square = multiply(square, square))
    if (exponent & 1) power = multiply(power, square);
  return power;
}

static void prepare(void) {
  uint32_t a = 1, b = 0, c = 0, d = 0;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  if (!(c >> 20 & 1)) sf_stop("the envelope needs a processor with SSE 4.2 (cpuid 1, ecx bit 20), found one without\n");
  lane_shift = power_of_x(8 * LANE);
  two_lane_shift = power_of_x(16 * LANE);
  __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
}

static uint64_t load(const unsigned char *at) {
  uint64_t word;
  __builtin_memcpy(&word, at, 8);
  return word;
}

__attribute__((target("sse4.2"))) uint32_t sf_envelope_crc32c(uint32_t so_far, const void *bytes, size_t length) {
  /* Two threads that meet here compute the same constants. */
  if (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) prepare();
  const unsigned char *at = bytes;
  uint64_t rest = (uint32_t)~so_far;
  for (; length >= 3 * LANE; at += 3 * LANE, length -= 3 * LANE) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < LANE; i += 8) {
      rest = __builtin_ia32_crc32di(rest, load(at + i));
      second = __builtin_ia32_crc32di(second, load(at + LANE + i));
      third = __builtin_ia32_crc32di(third, load(at + 2 * LANE + i));
    }
    rest = multiply((uint32_t)rest, two_lane_shift) ^ multiply((uint32_t)second, lane_shift) ^ (uint32_t)third;
  }
  for (; length >= 8; at += 8, length -= 8) rest = __builtin_ia32_crc32di(rest, load(at));
  uint32_t last = (uint32_t)rest;
  for (; length; at++, length--) last = __builtin_ia32_crc32qi(last, *at);
  return ~last;
}
