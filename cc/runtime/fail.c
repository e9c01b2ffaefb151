/*
 * The end: what differed, where, in which handler, said with system calls alone; then all threads stop at once.
 *
 *     122  the runs of a handler differ: a verdict, nothing wrong has left
 *     121  the program does something, or the machine lacks something, so that hardening is not possible
 *     123  a bug of this runtime
 *
 * Invariants
 *  1. Only write, open and exit_group are used: no lock, no stdio, no atexit handler, since any memory may be wrong.
 *  2. One line to standard error for people; the same as JSON to the file that STEADFAST_EVENTS names. The first is what
 *     crates/inject/src/judge.rs reads, the second what crates/contract/src/event.rs describes.
 */
#include "state.h"

#include <elf.h>

/* STEADFAST_EVENTS as it was at the start, from the root: programs change their directory, write over their environment, and
   may be wrong by then. PATH_MAX bytes. */
static char events[4096];
static uint64_t started;   /* nanoseconds of CLOCK_MONOTONIC */
static _Atomic uint64_t lines;

long sf_syscall(long number, long a, long b, long c, long d, long e, long f) {
  long r;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return r;
}

static uint64_t now_fail(void) {
  uint64_t t[2];
  sf_syscall(228 /* clock_gettime */, 1 /* MONOTONIC */, (long)t, 0, 0, 0, 0);
  return t[0] * 1000000000ull + t[1];
}

static void keep_events(const char *path) {
  size_t length = sf_length(path), used = 0;
  if (*path && *path != '/') {
    long got = sf_syscall(79 /* getcwd */, (long)events, sizeof events, 0, 0, 0, 0);
    used = got > 0 ? (size_t)got : 0; /* with its zero, in whose place the slash comes */
    if (used)
      events[used - 1] = '/';
  }
  if (used + length >= sizeof events)
    length = used = 0, path = "";
  for (size_t i = 0; i <= length; i++)
    events[used + i] = path[i];
}

__attribute__((constructor(102))) static void prepare_fail(int argc, char **argv, char **environment) {
  (void)argc, (void)argv;
  started = now_fail();
  static const char name[] = "STEADFAST_EVENTS=";
  for (char **e = environment; e && *e; e++)
    if (sf_length(*e) >= sizeof name - 1 && sf_equal(*e, name, sizeof name - 1))
      keep_events(*e + sizeof name - 1);
}

struct text {
  char bytes[1024];
  size_t used;
};

static void put_fail(struct text *t, const char *s) {
  for (; *s && t->used < sizeof t->bytes - 2; s++)
    t->bytes[t->used++] = *s;
}

/* JSON strings: names of functions and files hold nothing worse than these. */
static void put_quoted(struct text *t, const char *s) {
  put_fail(t, "\"");
  for (; *s && t->used < sizeof t->bytes - 8; s++) {
    if (*s == '"' || *s == '\\')
      t->bytes[t->used++] = '\\';
    t->bytes[t->used++] = (unsigned char)*s < ' ' ? ' ' : *s;
  }
  put_fail(t, "\"");
}

static void put_number_fail(struct text *t, uint64_t v, unsigned base) {
  char digits[24];
  int n = 0;
  do
    digits[n++] = "0123456789abcdef"[v % base];
  while (v /= base);
  if (base == 16)
    put_fail(t, "0x");
  while (n)
    t->bytes[t->used++] = digits[--n];
}

static void put_hex(struct text *t, const char *key, uint64_t v) {
  put_fail(t, ",\"");
  put_fail(t, key);
  put_fail(t, "\":\"");
  put_number_fail(t, v, 16);
  put_fail(t, "\"");
}

/* What every line of an event file begins with (docs/events.schema.json). */
static void put_head(struct text *t, const char *type) {
  t->used = 0;
  put_fail(t, "{\"v\":1,\"seq\":");
  put_number_fail(t, lines++, 10);
  put_fail(t, ",\"t_ns\":");
  put_number_fail(t, now_fail() - started, 10);
  put_fail(t, ",\"type\":\"");
  put_fail(t, type);
  put_fail(t, "\",\"handler\":");
}

static _Noreturn void leave_fail(int status) {
  for (;;)
    sf_syscall(231 /* exit_group */, status, 0, 0, 0, 0, 0);
}

static void say(struct text *t) {
  t->bytes[t->used++] = '\n';
  sf_syscall(1 /* write */, 2, (long)t->bytes, (long)t->used, 0, 0, 0);
}

static void record(struct text *t) {
  t->bytes[t->used++] = '\n';
  if (!*events)
    return;
  long fd = sf_syscall(2 /* open */, (long)events, 02001 | 0100 | 02000000 /* APPEND|WRONLY|CREAT|CLOEXEC */, 0644, 0, 0, 0);
  if (fd >= 0)
    sf_syscall(1, fd, (long)t->bytes, (long)t->used, 0, 0, 0);
}

/* The object that an address lies in: a variable's name (the pass lists them), or "memory"; and where in it. */
extern const struct sf_object_name __start_sf_objects[] __attribute__((weak, visibility("hidden")));
extern const struct sf_object_name __stop_sf_objects[] __attribute__((weak, visibility("hidden")));

static const char *object_of(uintptr_t at, uint64_t *offset) {
  if (!sf_state() || (!sf_is_dup(at) && !sf_is_crc(at)))
    return NULL;
  const struct sf_object_name *from = __start_sf_objects, *to = __stop_sf_objects;
  __asm__("" : "+r"(from), "+r"(to)); /* without any both are 0 */
  for (; from != to; from++)
    if (at - (uintptr_t)from->at < from->length) {
      *offset = at - (uintptr_t)from->at;
      return from->name;
    }
  *offset = at;
  return "memory";
}

SF_COLD void sf_tell(const char *what, const char *name, uint64_t at, uint64_t first, uint64_t second, const char *action) {
  uint64_t tsc = __builtin_ia32_rdtsc(); /* the clock of injected faults */
  struct sf_context *c = __sf_own;
  const char *handler = c && c->handler ? c->handler->name : "?";
  const char *where = c && c->handler ? c->handler->where : "?";
  struct text t;
  t.used = 0;
  put_fail(&t, "steadfast: handler ");
  put_fail(&t, handler);
  put_fail(&t, " (");
  put_fail(&t, where);
  put_fail(&t, "), event ");
  put_number_fail(&t, c ? c->event : 0, 10);
  put_fail(&t, ": ");
  put_fail(&t, what);
  put_fail(&t, name ? " " : " at ");
  if (name)
    put_fail(&t, name);
  else
    put_number_fail(&t, at, 16);
  uint64_t offset;
  const char *object = name ? NULL : object_of(at, &offset);
  if (object) {
    put_fail(&t, " (");
    put_fail(&t, object);
    put_fail(&t, " at ");
    put_number_fail(&t, offset, 16);
    put_fail(&t, ")");
  }
  put_fail(&t, ": ");
  put_number_fail(&t, first, 16);
  put_fail(&t, " and ");
  put_number_fail(&t, second, 16);
  uint64_t later = sf_async() && __sf_tls.phase == SF_E2 ? __sf_async.later() : 0;
  if (later) {
    put_fail(&t, "; stopped ");
    put_number_fail(&t, later, 10);
    put_fail(&t, " events on, what it sent may have left");
  } else if (c && c->leaves) {
    put_fail(&t, "; stopped, what it sent may have left");
  } else {
    put_fail(&t, action[0] == 's' ? "; stopped, nothing of this event has left" : "; runs again");
  }
  say(&t);
  put_head(&t, "harden_mismatch");
  put_quoted(&t, handler);
  put_fail(&t, ",\"where\":");
  put_quoted(&t, where);
  put_fail(&t, ",\"event\":");
  put_number_fail(&t, c ? c->event : 0, 10);
  put_fail(&t, ",\"run\":");
  put_number_fail(&t, __sf_tls.phase, 10);
  put_fail(&t, ",\"what\":");
  put_quoted(&t, what);
  if (name) {
    put_fail(&t, ",\"name\":");
    put_quoted(&t, name);
  } else {
    put_hex(&t, "at", at);
  }
  if (object) {
    put_fail(&t, ",\"object\":");
    put_quoted(&t, object);
  }
  put_hex(&t, "first", first);
  put_hex(&t, "second", second);
  put_hex(&t, "tsc", tsc);
  if (later) {
    put_fail(&t, ",\"later\":");
    put_number_fail(&t, later, 10);
  }
  put_fail(&t, ",\"action\":");
  put_quoted(&t, action);
  put_fail(&t, "}");
  record(&t);
}

const char sf_crash[] = "a run has crashed";

SF_COLD void sf_tell_not_repaired(const char *why) {
  struct text t;
  t.used = 0;
  put_fail(&t, "steadfast: not repaired: ");
  put_fail(&t, why);
  say(&t);
}

SF_COLD void sf_tell_held(const char *what, const char *but) {
  struct text t;
  t.used = 0;
  put_fail(&t, "steadfast: outside handlers: ");
  put_fail(&t, what);
  put_fail(&t, but);
  put_fail(&t, "; repaired");
  say(&t);
  put_head(&t, "harden_recovered");
  put_fail(&t, "\"\",\"event\":0,\"retries\":0}");
  record(&t);
}

static _Noreturn SF_COLD void verdict(const char *what, const char *name, uint64_t at, uint64_t first, uint64_t second) {
  struct sf_context *c = __sf_own;
  /* The same values in another place may be the same difference; of a crash the place is all there is. */
  bool again = c && c->retry && c->last[0] == (uint64_t)what && c->last[2] == first && c->last[3] == second &&
               (what != sf_crash || c->last[1] == at);
  if (!again)
    sf_try_again(what, name, at, first, second);
  /* Frames kept at a wait are each run's own, and nothing tells which is right. */
  if (again && !(c->split_state & SF_SPLIT_HALF)) {
    static const char text[] =
        "steadfast: the same difference in a retry: the handler is not deterministic, or what it reads has changed in memory\n"
        "  fix:   build with --find-nondeterminism, which names the store\n";
    static const char two[] = "steadfast: the same difference in a retry: the handler is not deterministic, what it reads has changed in "
                              "memory, or one of its two cores is always wrong\n"
                              "  fix:   build with --find-nondeterminism, which names the store; if it finds none, run on other cores\n";
    sf_syscall(1, 2, (long)(sf_second_core() ? two : text), (sf_second_core() ? sizeof two : sizeof text) - 1, 0, 0, 0);
  }
  sf_tell(what, name, at, first, second, "stopped");
  leave_fail(122);
}

static void repaired(const struct sf_context *c, const char *what, bool number, const char *rest) {
  struct text t;
  t.used = 0;
  put_fail(&t, "steadfast: handler ");
  put_fail(&t, c->handler->name);
  put_fail(&t, ", event ");
  put_number_fail(&t, c->event, 10);
  put_fail(&t, ": ");
  put_fail(&t, what);
  if (number)
    put_number_fail(&t, c->retry, 10);
  put_fail(&t, rest);
  say(&t);
  put_head(&t, "harden_recovered");
  put_quoted(&t, c->handler->name);
  put_fail(&t, ",\"event\":");
  put_number_fail(&t, c->event, 10);
  put_fail(&t, ",\"retries\":");
  put_number_fail(&t, c->retry, 10);
  put_fail(&t, "}");
  record(&t);
}

void sf_recovered(const struct sf_context *c) { repaired(c, "recovered, both runs of retry ", true, " agree"); }

SF_COLD void sf_tell_mended(const struct sf_context *c, const char *what) { repaired(c, what, false, "; repaired"); }

SF_COLD void sf_tell_state(const char *what, uintptr_t at, uint64_t first, uint64_t second, const char *action) {
  uint64_t tsc = __builtin_ia32_rdtsc(), offset;
  const char *object = object_of(at, &offset);
  struct text t;
  t.used = 0;
  put_fail(&t, "steadfast: outside handlers: ");
  put_fail(&t, what);
  put_fail(&t, " ");
  put_fail(&t, object);
  put_fail(&t, " at ");
  put_number_fail(&t, offset, 16);
  put_fail(&t, ": ");
  put_number_fail(&t, first, 16);
  put_fail(&t, " and ");
  put_number_fail(&t, second, 16);
  put_fail(&t, action[0] == 's' ? "; stopped" : "; repaired");
  say(&t);
  put_head(&t, "harden_state");
  put_quoted(&t, "");
  put_fail(&t, ",\"what\":");
  put_quoted(&t, what);
  put_fail(&t, ",\"object\":");
  put_quoted(&t, object);
  put_hex(&t, "at", at);
  put_hex(&t, "offset", offset);
  put_hex(&t, "first", first);
  put_hex(&t, "second", second);
  put_hex(&t, "tsc", tsc);
  put_fail(&t, ",\"action\":");
  put_quoted(&t, action);
  put_fail(&t, "}");
  record(&t);
}

SF_COLD void sf_tell_between(const char *where, uint64_t first, uint64_t second) {
  static const char what[] = "two computations of one value differ";
  uint64_t tsc = __builtin_ia32_rdtsc();
  struct text t;
  t.used = 0;
  put_fail(&t, "steadfast: between handlers, ");
  put_fail(&t, where);
  put_fail(&t, ": ");
  put_fail(&t, what);
  put_fail(&t, ": ");
  put_number_fail(&t, first, 16);
  put_fail(&t, " and ");
  put_number_fail(&t, second, 16);
  put_fail(&t, "; stopped");
  say(&t);
  put_head(&t, "harden_mismatch");
  put_quoted(&t, "");
  put_fail(&t, ",\"where\":");
  put_quoted(&t, where);
  put_fail(&t, ",\"event\":0,\"run\":0,\"what\":");
  put_quoted(&t, what);
  put_hex(&t, "first", first);
  put_hex(&t, "second", second);
  put_hex(&t, "tsc", tsc);
  put_fail(&t, ",\"action\":\"stopped\"}");
  record(&t);
}

void sf_leave(int status) { leave_fail(status); }

void sf_differ(const char *what, uint64_t at, uint64_t first, uint64_t second) { verdict(what, NULL, at, first, second); }

void sf_differ_name(const char *what, const char *name, uint64_t first, uint64_t second) { verdict(what, name, 0, first, second); }

void sf_stop(const char *what, const char *fix) {
  struct text t;
  t.used = 0;
  put_fail(&t, "steadfast: ");
  put_fail(&t, what);
  put_fail(&t, "\n  fix:   ");
  put_fail(&t, fix);
  say(&t);
  leave_fail(121);
}

void sf_bug(const char *what) {
  struct text t;
  t.used = 0;
  put_fail(&t, "steadfast: a bug of the runtime: ");
  put_fail(&t, what);
  say(&t);
  leave_fail(123);
}

/* As addr2line takes it: from where the program was loaded, if that is not fixed. */
extern const Elf64_Ehdr __ehdr_start __attribute__((visibility("hidden")));
static uint64_t in_file(uintptr_t code) { return code - (__ehdr_start.e_type == ET_DYN ? (uintptr_t)&__ehdr_start : 0); }

/* Without a place: that of the call of the caller, which has a frame of its own (pass/clones.cpp). */
SF_API _Noreturn void __sf_refuse(const char *what, const char *where) {
  struct text t;
  t.used = 0;
  put_fail(&t, "steadfast: hardened code at ");
  if (where) {
    put_fail(&t, where);
  } else {
    const uintptr_t *caller = *(const uintptr_t *const *)__builtin_frame_address(0);
    put_number_fail(&t, in_file(caller[1]) - 1, 16);
    put_fail(&t, " (addr2line)");
  }
  put_fail(&t, " reaches ");
  put_fail(&t, what);
  put_fail(&t,
           "\n  fix:   harden the function, or name its class in a policy, steadfast-policy(5); `steadfast cc --coverage=json` lists more "
           "such places");
  say(&t);
  leave_fail(121);
}
