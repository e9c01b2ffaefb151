/*
 * Buffered input: files that handlers open and read by the C library's streams. Done once, in the first run; the second is given
 * the same bytes and answers. What handlers write to streams waits for validation (libc.c).
 *
 * Invariants
 *  1. A path is compared by its bytes (files.c), and what comes in is logged like any store.
 *  2. A stream to which the handler has written is neither read nor asked about in the same event: it would give another answer.
 *
 * Not covered: fscanf, freopen, setvbuf, streams of memory (open_memstream); a file that is read by one stream and was written by another
 * in the same event.
 */
#define _GNU_SOURCE
#include "state.h"
#include "late.h"
#include "wrapper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__sf_w_realloc(void *old, size_t n);

static uint64_t text_mix(const char *text) { return __sf_hash(text, strlen(text)); }

static void not_written_streams(const FILE *f) {
  struct sf_context *c = sf_inside("a question about a stream");
  const struct sf_deferred *d = (struct sf_deferred *)c->deferred.base, *end = (struct sf_deferred *)(c->deferred.base + c->deferred.used);
  for (; FIRST && d < end; d++)
    if (d->data && d->arguments[2] == (uint64_t)f)
      sf_stop("a handler reads a stream to which it has written in the same event, and its writes wait for validation",
              "read it in an event of its own, or write to another stream");
}

/* An answer of one word, errno included. */
#define ANSWER(TYPE, NAME, MIX, CALL)     \
  uint64_t result;                        \
  if (!__sf_once(NAME, (MIX), &result)) { \
    result = (uint64_t)(CALL);            \
    __sf_once_done(result);               \
  }                                       \
  return (TYPE)result

SF_API FILE *__sf_w_fopen(const char *path, const char *mode) {
  ANSWER(FILE *, "fopen", sf_mix(text_mix(path), text_mix(mode)), fopen(path, mode));
}

SF_API FILE *__sf_w_fdopen(int fd, const char *mode) { ANSWER(FILE *, "fdopen", sf_mix((uint64_t)fd, text_mix(mode)), fdopen(fd, mode)); }

static void closes_streams(FILE *f) {
  if (fclose(f) != 0)
    sf_late_lost("fclose", "a stream", errno);
}

/* After V, as close is. */
SF_API int __sf_w_fclose(FILE *f) {
  __sf_defer("fclose", (void *)closes_streams, 1, (uint64_t[]){(uint64_t)f});
  return 0;
}

#define ABOUT(TYPE, NAME, PARAMETERS, MIX, ...)  \
  SF_API TYPE __sf_w_##NAME PARAMETERS {         \
    not_written_streams(f);                      \
    ANSWER(TYPE, #NAME, MIX, NAME(__VA_ARGS__)); \
  }
ABOUT(int, fgetc, (FILE * f), (uint64_t)f, f)
ABOUT(int, ungetc, (int byte, FILE *f), sf_mix((uint64_t)f, (uint64_t)byte), byte, f)
ABOUT(int, feof, (FILE * f), (uint64_t)f, f)
ABOUT(int, ferror, (FILE * f), (uint64_t)f, f)
ABOUT(long, ftell, (FILE * f), (uint64_t)f, f)
ABOUT(int, fseek, (FILE * f, long to, int whence), sf_mix((uint64_t)f, sf_mix((uint64_t)to, (uint64_t)whence)), f, to, whence)

SF_API int __sf_w_getchar(void) { return __sf_w_fgetc(stdin); }

static int at_begin(FILE *f) { return rewind(f), 0; }
static int sound(FILE *f) { return clearerr(f), 0; }
static int rewound(FILE *f) { ANSWER(int, "rewind", (uint64_t)f, at_begin(f)); }
static int cleared(FILE *f) { ANSWER(int, "clearerr", (uint64_t)f, sound(f)); }
SF_API void __sf_w_rewind(FILE *f) {
  not_written_streams(f);
  (void)rewound(f);
}
SF_API void __sf_w_clearerr(FILE *f) { (void)cleared(f); }

static ssize_t bytes_of_streams(FILE *f, void *to, size_t n) {
  READING("fread", sf_mix(sf_mix((uint64_t)f, sf_home(to)), n), to, n, (ssize_t)fread(into, 1, n, f));
}

SF_API size_t __sf_w_fread(void *to, size_t size, size_t n, FILE *f) {
  size_t all;
  not_written_streams(f);
  if (__builtin_mul_overflow(size, n, &all) || all > UINT32_MAX)
    sf_stop("fread in a handler reads up to 4 GiB, more was asked for", "read in parts");
  return all ? (size_t)bytes_of_streams(f, to, all) / size : 0;
}

/* Up to n - 1 bytes, the line's end included, and a zero; 0: there was nothing. */
static ssize_t put_line(char *to, size_t n, FILE *f) {
  size_t at = 0;
  for (int byte; at + 1 < n && (byte = getc(f)) != EOF;) {
    to[at++] = (char)byte;
    if (byte == '\n')
      break;
  }
  if (at == 0 || ferror(f))
    return 0;
  to[at++] = 0;
  return (ssize_t)at;
}

static ssize_t line_of(FILE *f, char *to, size_t n) {
  READING("fgets", sf_mix(sf_mix((uint64_t)f, sf_home(to)), n), to, n, put_line(into, n, f));
}

SF_API char *__sf_w_fgets(char *to, int n, FILE *f) {
  not_written_streams(f);
  if (n == 1) /* nothing is read */
    LOGGED(to, 1, *to = 0);
  return n == 1 ? to : n > 1 && line_of(f, to, (size_t)n) > 0 ? to : NULL;
}

SF_API ssize_t __sf_w_getdelim(char **line, size_t *room, int delimiter, FILE *f) {
  not_written_streams(f);
  INSIDE;
  uint64_t mix = sf_mix((uint64_t)f, (uint64_t)delimiter);
  struct sf_record *r = FIRST ? sf_kept(c, "getdelim", mix) : sf_replay(c, "getdelim", mix);
  if (!r) {
    char *own = NULL;
    size_t size = 0;
    ssize_t got = getdelim(&own, &size, delimiter, f);
    r = sf_record(c, "getdelim", mix, got < 0 ? 0 : (size_t)got + 1);
    r->result = (uint64_t)got;
    r->once = 1;
    if (got >= 0)
      memcpy(sf_data(r), own, (size_t)got + 1);
    free(own);
  }
  ssize_t got = (ssize_t)r->result;
  if (got < 0)
    return -1;
  size_t at = (size_t)((uint8_t *)r - c->queue.base), n = (size_t)got + 1;
  if (!*line || *room < n) {
    /* Records move when more are made. */
    char *larger = __sf_w_realloc(*line, n);
    if (!larger)
      return -1;
    LOGGED(line, sizeof *line, *line = larger);
    LOGGED(room, sizeof *room, *room = n);
    r = (struct sf_record *)(c->queue.base + at);
  }
  __sf_memcpy(*line, sf_data(r), n);
  return got;
}

SF_API ssize_t __sf_w_getline(char **line, size_t *room, FILE *f) { return __sf_w_getdelim(line, room, '\n', f); }

/* Fortified: how much room there is, where the compiler knows it. */
SF_API size_t __sf_w_fread_chk(void *to, size_t room, size_t size, size_t n, FILE *f) {
  size_t all;
  if (__builtin_mul_overflow(size, n, &all) || all > room)
    abort();
  return __sf_w_fread(to, size, n, f);
}
SF_API char *__sf_w_fgets_chk(char *to, size_t room, int n, FILE *f) {
  if (n > 0 && (size_t)n > room)
    abort();
  return __sf_w_fgets(to, n, f);
}
