/* Raw system calls and the way to stop: this folder calls no C library. Results are the kernel's: negative is an error. */
#ifndef STEADFAST_ENVELOPE_SYSTEM_H
#define STEADFAST_ENVELOPE_SYSTEM_H

#include "envelope.h"

#define SF_SYS_WRITE 1
#define SF_SYS_MMAP 9
#define SF_SYS_MUNMAP 11
#define SF_SYS_SENDTO 44
#define SF_SYS_RECVFROM 45
#define SF_SYS_SENDMSG 46
#define SF_SYS_RECVMSG 47
#define SF_SYS_EXIT_GROUP 231

#define SF_MSG_PEEK 2
#define SF_MSG_DONTWAIT 0x40
#define SF_MSG_NOSIGNAL 0x4000

#define SF_EAGAIN 11

static inline long sf_call6(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}

static inline long sf_recv(int descriptor, void *into, size_t length, int flags) {
  return sf_call6(SF_SYS_RECVFROM, descriptor, (long)into, (long)length, flags, 0, 0);
}

static inline void sf_say(const char *text) {
  size_t length = 0;
  while (text[length])
    length++;
  sf_call6(SF_SYS_WRITE, 2, (long)text, (long)length, 0, 0, 0);
}

__attribute__((noreturn)) static inline void sf_exit(const char *text, int status) {
  sf_say("steadfast: ");
  sf_say(text);
  for (;;)
    sf_call6(SF_SYS_EXIT_GROUP, status, 0, 0, 0, 0, 0);
}

/* What the envelope needs is missing. */
__attribute__((noreturn)) static inline void sf_stop(const char *text) { sf_exit(text, 121); }

/* A fault was found. */
__attribute__((noreturn)) static inline void sf_mismatch(const char *text) { sf_exit(text, 122); }

/* The hardening runtime's end (cc/runtime/provenance.c), where the program has one: copies of what has been received, which
   handlers' inputs are compared with, and checksums of what handlers have sent. */
uint8_t *sf_received_room(size_t length) __attribute__((weak));
void sf_received(const void *at, size_t length, const uint8_t *copy) __attribute__((weak));
void sf_received_unknown(const void *at, size_t length) __attribute__((weak));
void sf_received_none(void) __attribute__((weak));
void sf_outputs_leave(const struct sf_iovec *parts, size_t count, size_t bytes) __attribute__((weak));
void sf_outputs_left(const struct sf_iovec *parts, size_t count, size_t bytes) __attribute__((weak));
/* Waits for threads inside handlers, in programs linked with --barrier (cc/runtime/barrier.c). */
void sf_leaves(void) __attribute__((weak));

/* The compiler turns loops and assignments into calls of these; they come from the program's C library or, in a
   freestanding program, from the runtime. */
void *memcpy(void *to, const void *from, size_t length);
void *memmove(void *to, const void *from, size_t length);
void *memset(void *to, int byte, size_t length);
int memcmp(const void *a, const void *b, size_t length);

#endif
