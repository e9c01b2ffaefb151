/* What every guest shares: checks that say what was seen, and a sink for bytes that differ from run to run.
 *
 * A guest shows one behaviour. Its output is equal in every run with equal input: it prints whether two clock reads were
 * in order, never the clock. Values that are the kernel's or the processor's whim (pids, times, addresses, random
 * bytes) go to sink(), a write to /dev/null: nobody reads them, but replicas that differ in them diverge there.
 *
 * Exit status 0 means every check held; Linux, not the guest, decides what is right: a check that says "no" in the bare
 * run is a bug of the guest. */
#ifndef GUEST_H
#define GUEST_H
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int guest_failed;

__attribute__((unused)) static void check(const char *what, int ok) {
    printf("%s: %s\n", what, ok ? "yes" : "no");
    guest_failed |= !ok;
}

/* For what a protector may answer with an errno of its own: prints which. */
__attribute__((unused)) static void answer(const char *what, int ok) { printf("%s: %s\n", what, ok ? "yes" : strerror(errno)); }

/* A setup step that the behaviour does not depend on; 99 is no status that a guest uses otherwise. */
__attribute__((unused)) static void need(const char *what, int ok) {
    if (ok) return;
    fprintf(stderr, "guest: %s: %s\n", what, strerror(errno));
    exit(99);
}

__attribute__((unused)) static void sink(const void *p, size_t n) {
    int fd = open("/dev/null", O_WRONLY);
    need("/dev/null", fd >= 0 && write(fd, p, n) == (ssize_t)n);
    close(fd);
}

/* FNV-1a: a digest that fits on one line. */
__attribute__((unused)) static uint64_t digest(const void *p, size_t n) {
    const unsigned char *b = (const unsigned char *)p;
    uint64_t h = 0xcbf29ce484222325u;
    while (n--) h = (h ^ *b++) * 0x100000001b3u;
    return h;
}

__attribute__((unused)) static int done(void) {
    if (fflush(stdout)) return 98;
    return guest_failed;
}
#endif
