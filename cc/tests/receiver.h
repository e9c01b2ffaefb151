/* The checksum of a message (CRC32C), bit by bit: nothing of the runtime's. */
#include <stddef.h>
#include <stdint.h>

static uint32_t crc_of(const unsigned char *bytes, size_t n) {
  uint32_t crc = ~0u;
  while (n--) {
    crc ^= *bytes++;
    for (int k = 0; k < 8; k++)
      crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc;
}
