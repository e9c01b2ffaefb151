/* Thread page: what entry code reaches through %gs before it has a stack.
 * Shared by gate.S and C; offsets are asserted in state.h. */
#ifndef SF_TLS_H
#define SF_TLS_H
#define TLS_RCX 0      /* rcx of an entropy site; written by the trampoline (crates/patch) */
#define TLS_DESC 8     /* kind | register << 8 | size << 16 of an entropy site */
#define TLS_RSP 16     /* the program's stack pointer while the agent runs */
#define TLS_STACK 24   /* top of the agent's stack */
#define TLS_RIP 32     /* where sf_leave jumps */
#define TLS_TOKEN 40   /* what the gate expects next */
#define TLS_SECRET 48  /* value of TLS_TOKEN between calls: nobody is told */
#define TLS_SELECTOR 56 /* syscall user dispatch: 0 lets the next call through, 1 traps it */
#define TLS_RESUME 64  /* where the tail of a signal return jumps */
#define TLS_ABORT 80    /* 1: a signal waits, the call in preparation ends with EINTR */
#define TLS_EA 88       /* where a vector image was saved (modules.rs, after_save) */
#define TLS_SCRATCH 96
#define TLS_LEAVING 104  /* what the way back from a signal expects */
#define TLS_BUDGET 112 /* passes of planted payloads until the running thread gives way (thread.c) */
#define TLS_AIM 120 /* 1 more than the number of the lock at which it is to do so, or 0 */
#define TLS_INSIDE 72  /* 1 while the agent runs on its own stack */
#define TLS_SEEK_ANY 2440 /* any state will do for a payload (align.c) */
#define TLS_SEEK_LESS 2448 /* what it compares registers with otherwise */
#endif
