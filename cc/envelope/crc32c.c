/*
 * CRC32C by the processor's instruction (SSE 4.2), in three lanes (lanes.h) where it has PCLMULQDQ.
 *
 * Independent on purpose of the tables in crates/envelope/src/crc.rs. The constants are computed here at the first use.
 *
 * Not covered: processors without SSE 4.2 (before 2008). The program stops there with the reason.
 */
#include "../lanes.h"
#include "envelope.h"
#include "system.h"

static struct sf_lanes lanes;
static enum { UNKNOWN, ONE, THREE } ways;

static int prepare(void) {
  uint32_t features = sf_cpuid_1_ecx();
  if (!(features & SF_CPUID_SSE42))
    sf_stop("the envelope needs a processor with SSE 4.2 (cpuid 1, ecx bit 20), found one without\n");
  int found = features & SF_CPUID_PCLMULQDQ ? THREE : ONE;
  sf_lanes_prepare(&lanes);
  __atomic_store_n(&ways, found, __ATOMIC_RELEASE);
  return found;
}

uint32_t sf_envelope_crc32c(uint32_t so_far, const void *bytes, size_t length) {
  int found = __atomic_load_n(&ways, __ATOMIC_ACQUIRE);
  /* Two threads that meet here compute the same constants. */
  if (found == UNKNOWN)
    found = prepare();
  return ~(found == THREE ? sf_three_lanes(&lanes, ~so_far, bytes, length) : sf_one_lane(~so_far, bytes, length));
}
