/* The runtime's functions of the C library against the library's own, with lengths, places and texts drawn at random: the
   plain build calls those. What is in memory goes into one sum a line. */
#define _GNU_SOURCE
#include <steadfast/sei.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 600
static char from[BYTES], to[BYTES];
static char *blocks[12];
static size_t sizes[12];
static uint64_t seed = 1;

static uint64_t below(uint64_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (seed >> 33) % n;
}

static uint64_t sum_of(const char *bytes, size_t n) {
  uint64_t sum = n;
  for (size_t i = 0; i < n; i++)
    sum = (sum ^ (unsigned char)bytes[i]) * 1099511628211u;
  return sum;
}

/* A text somewhere in `from`. */
static char *text(size_t longest) {
  size_t n = below(longest + 1), at = below(BYTES - n - 1);
  for (size_t i = 0; i < n; i++)
    from[at + i] = "abc ,;:=xyz0123456789-+."[below(24)];
  from[at + n] = 0;
  return from + at;
}

static uint64_t copies(void) {
  size_t n = below(BYTES / 2), a = below(BYTES - n), b = below(BYTES - n);
  switch (below(9)) {
  case 0: return (uint64_t)((char *)memcpy(to + a, from + b, n) - to);
  case 1: return (uint64_t)((char *)memmove(to + a, to + b, n) - to);
  case 2: return (uint64_t)((char *)memset(to + a, (int)below(600) - 300, n) - to);
  case 3: return (uint64_t)((char *)mempcpy(to + a, from + b, n) - to);
  case 4: bzero(to + a, n); return 0;
  case 5: explicit_bzero(to + a, n); return 0;
  case 6: return (uint64_t)(strncpy(to + a, text(100), n) - to);
  case 7: return (uint64_t)(stpncpy(to + a, text(100), n) - to);
  default: return (uint64_t)(memmove(from + a, from + b, n) == from + a);
  }
}

/* Results next to each other, so that one byte too many would show. */
static uint64_t scans(char *of) {
  static const char *const formats[] = {"%d,%7[^,],%lf", "%i %4s %f", "%hhd%*[ ,;:=]%hd%n", "%[abc ,;]%c%lx"};
  size_t which = below(4), begins = below(2);
  char *s = text(40);
  if (begins) {
    snprintf(s, 40, "%d,%s,%.3f", (int)below(2000) - 1000, (const char *[]){"xyz", "a b", ""}[below(3)], (double)below(90000) / 7);
    from[s - from + 40] = 0;
  }
  memset(of, 0x33, 64);
  int n = which == 2 ? sscanf(s, formats[2], of, of + 1, of + 3)
                     : sscanf(s, formats[which], of, of + (which == 3 ? 44 : 4), of + (which == 3 ? 45 : 12));
  return (uint64_t)n * 31 + sum_of(of, 64);
}

static uint64_t texts(void) {
  size_t at = below(BYTES - 300);
  char *of = to + at, *rest = of, *word;
  uint64_t sum = 0;
  *of = 0;
  switch (below(10)) {
  case 8: return scans(of);
  case 0: return (uint64_t)(strcpy(of, text(100)) - to);
  case 1: return (uint64_t)(stpcpy(of, text(100)) - to);
  case 2: strcpy(of, text(80)); return (uint64_t)(strcat(of, text(80)) - to);
  case 3: strcpy(of, text(80)); return (uint64_t)(strncat(of, text(80), below(90)) - to);
  case 4: return (uint64_t)snprintf(of, below(60), "%s|%*d|%-8.3f|%lx|%c", text(60), (int)below(30), (int)below(1000000) - 500000,
                                    (double)below(100000) / 7, (unsigned long)below(1u << 30), 'a' + (int)below(26));
  case 5:
    strcpy(of, text(120));
    for (word = strtok_r(of, " ,;", &rest); word; word = strtok_r(NULL, " ,;", &rest))
      sum = sum * 31 + (uint64_t)(word - to) + strlen(word);
    return sum;
  case 6:
    strcpy(of, text(120));
    while ((word = strsep(&rest, ":=")))
      sum = sum * 31 + (uint64_t)(word - to) + strlen(word);
    return sum;
  case 7: {
    char *s = text(25), *end;
    long a = strtol(s, &end, (int[]){0, 10, 16, 36}[below(4)]);
    sum = (uint64_t)a * 31 + (uint64_t)(end - s);
    double d = strtod(s, &end);
    return sum * 31 + (uint64_t)(end - s) + sum_of((char *)&d, sizeof d);
  }
  default: {
    char *s = text(60);
    return strlen(s) * 7 + strspn(s, "abc ") + strcspn(s, "xyz") + (strchr(s, ',') != NULL) + (strstr(s, "ab") != NULL) +
           (uint64_t)(strcmp(s, to) > 0);
  }
  }
}

static uint64_t memory(void) {
  size_t i = below(12), n = below(400), had = sizes[i];
  char *p = blocks[i];
  uint64_t sum = p ? sum_of(p, had) : 1;
  switch (below(7)) {
  case 0: free(p); p = malloc(n + 1); memset(p, (int)n, n + 1); n++; break;
  case 1: free(p); p = calloc(n + 1, 3); n = 3 * (n + 1); break;
  case 2:
    p = realloc(p, n + 1);
    if (n + 1 > had)
      memset(p + had, 7, n + 1 - had);
    n++;
    break;
  case 3: free(p); p = aligned_alloc(64, 64 * (n / 64 + 1)); n = 64 * (n / 64 + 1); sum += (uintptr_t)p % 64; memset(p, 1, n); break;
  case 4: {
    void *at = NULL;
    free(p);
    sum += (uint64_t)posix_memalign(&at, (size_t[]){8, 3, 256}[below(3)], n + 1);
    p = at;
    n = p ? n + 1 : 0;
    if (p)
      memset(p, 2, n);
    break;
  }
  case 5: free(p); p = strdup(text(200)); n = strlen(p) + 1; break;
  default: free(p); p = strndup(text(200), below(210)); n = strlen(p) + 1; break;
  }
  blocks[i] = p;
  sizes[i] = n;
  return sum;
}

SF_LOCAL_HANDLER uint64_t handle(int k) {
  uint64_t sum = (uint64_t)k;
  for (uint64_t n = 1 + below(8); n; n--)
    sum = sum * 31 + (below(3) == 0 ? memory() : below(2) ? copies() : texts());
  return sum;
}

int main(void) {
  for (int k = 0; k < 3000; k++) {
    uint64_t sum = handle(k);
    printf("%llx %llx %llx\n", (unsigned long long)sum, (unsigned long long)sum_of(from, BYTES), (unsigned long long)sum_of(to, BYTES));
  }
  return 0;
}
