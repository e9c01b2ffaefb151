/*
 * Linked beneath dnsmasq (--wrap): where the cycles of one request go, in the three phases of an event-based server.
 *
 *     poll returns --dispatch--> answer_request --handling--> it returns --output--> poll is called again
 *
 * Sums lie in a shared mapping of the file PHASES, which the benchmark reads while the server runs. Turns of the event
 * loop in which the handler did not run exactly once are left out.
 *
 * Not covered: processors whose time-stamp counter does not run at a constant rate; what interrupts take.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <x86intrin.h>

/* The same stands in bench/src/sei_tables/phases.rs. */
struct sums {
  uint64_t requests, dispatch, handling, output;
};

static struct sums *sums;
static uint64_t woken, begun, ended;
static int handled;

__attribute__((constructor)) static void prepare(void) {
  int file = open(PHASES, O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || ftruncate(file, sizeof *sums)) abort();
  sums = mmap(0, sizeof *sums, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (sums == MAP_FAILED) abort();
  close(file);
}

int __real_do_poll(int timeout);
int __wrap_do_poll(int timeout) {
  if (handled == 1) {
    sums->dispatch += begun - woken;
    sums->handling += ended - begun;
    sums->output += __rdtsc() - ended;
    sums->requests++;
  }
  int result = __real_do_poll(timeout);
  handled = 0;
  woken = __rdtsc();
  return result;
}

/* dnsmasq 2.90, src/dnsmasq.h; structures of four bytes (in_addr) travel as integers. */
size_t __real_answer_request(void *, char *, size_t, uint32_t, uint32_t, long, int, int, int, int *, int *);
size_t __wrap_answer_request(void *header, char *limit, size_t length, uint32_t address, uint32_t netmask, long now, int ad,
                             int dnssec, int pseudo, int *stale, int *filtered) {
  begun = __rdtsc();
  size_t result =
      __real_answer_request(header, limit, length, address, netmask, now, ad, dnssec, pseudo, stale, filtered);
  ended = __rdtsc();
  handled++;
  return result;
}
