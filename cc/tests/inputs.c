/* Messages that the handler itself writes over while it handles them: by words, by ranges that begin before the message,
   end behind it, lie inside it or contain it, and by several of these over the same bytes. Validation must find the
   message as it was, in any order of these, and still see a byte that changed without being written.

   inputs EVENT OFFSET strikes the byte at OFFSET of the message of EVENT, in the second run, behind the log's back.
   What only the hardened build has (sf_input) is left out with STEADFAST_PLAIN. */
#include <steadfast/sei.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 64, BEFORE = 128, LENGTH = 300, AFTER = 600 };
static unsigned char area[BEFORE + LENGTH + AFTER] __attribute__((aligned(16)));
static unsigned char *const message = area + BEFORE;
static unsigned char elsewhere[1 << 16];
static int event, struck_event = -1, struck_offset;

SF_LOCAL static void strike(void) {
#ifndef STEADFAST_PLAIN
  if (event == struck_event && sf_run() == 2)
    message[struck_offset] ^= 0x20;
#endif
}

SF_HANDLER unsigned take(unsigned k) {
  unsigned sum = 0;
  for (int i = 0; i < LENGTH; i++)
    sum = sum * 31 + message[i];
  /* Bytes 100 to 103 stay as they came in each event, for the strike; but for the last kind. */
  if (k & 1)
    memset(area + 10, (int)k, BEFORE + 70); /* over the front */
  if (k & 2)
    memset(message + 210, (int)k, 500); /* over the end */
  for (unsigned i = 0; i < 20 && k & 4; i++)
    *(volatile uint16_t *)(message + 3 + 4 * i) = (uint16_t)sum; /* some of it again, by words */
  if (k & 8)
    memcpy(message + 105, elsewhere + k, 77); /* inside, nothing aligned */
  if (k & 16)
    memset(elsewhere, (int)k, sizeof elsewhere); /* a large range that has nothing to do with it */
  if (k % 64 == 63)
    memmove(area + 1, area, sizeof area - 1); /* all of it */
  message[LENGTH - 1] = (unsigned char)sum;
  message[0]++;
  strike();
  return sum;
}

int main(int argc, char **argv) {
  if (argc > 2)
    struck_event = atoi(argv[1]), struck_offset = atoi(argv[2]);
  for (event = 0; event < EVENTS; event++) {
    for (int i = 0; i < LENGTH; i++)
      message[i] = (unsigned char)(i * 7 + event);
#ifndef STEADFAST_PLAIN
    size_t length = LENGTH - (size_t)event % 9;
    if (!sf_input(message, length, sf_crc32c(0, message, length)))
      return 2;
#endif
    unsigned sum = take((unsigned)event);
    for (size_t i = 0; i < sizeof area; i++)
      sum = sum * 31 + area[i];
    printf("%u\n", sum);
  }
  return 0;
}
