/*
 * A small key-value store whose state is protected at rest: buckets, entries and values by copies, its limits and its
 * counters by checksums. It answers a fixed list of requests, and prints what it answers.
 *
 *     state [PLACE REQUEST [BIT]]    before that request one bit of PLACE is changed, as memory would: by nobody's store
 *
 * Place any: any bit of all that is protected, by its number and the number's own chance whether in an object or a copy.
 * Other places: object, copy (an entry's value), pointer, pointer_copy (a bucket), root, root_copy (a variable), limit, count
 * (checksums), unused, unused_copy (protected memory that no handler reads again), none.
 *
 * Built with --state=dup,crc it must print what the plain build prints; see harden.rs for what it does when struck.
 */
#include <steadfast/sei.h>

#ifdef TRUSTED /* built without --state: nothing is protected at rest */
#undef SF_DUP
#undef SF_CRC
#define SF_DUP
#define SF_CRC
#endif
#ifdef ONLY /* with one kind of protection: what has the other annotation is trusted */
#undef SF_DUP
#undef SF_CRC
#if ONLY == 1
#define SF_DUP __attribute__((annotate("steadfast.dup")))
#define SF_CRC
#else
#define SF_DUP
#define SF_CRC __attribute__((annotate("steadfast.crc")))
#endif
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
  struct entry *next, *older, *newer;
  unsigned uses;
  char key[24];
  char *value;
  size_t length, room;
};

SF_DUP static struct entry *buckets[16];
SF_DUP static struct {
  struct entry *oldest, *newest;
  size_t entries;
} order;
SF_CRC static struct {
  size_t entries_max, value_max;
  char name[32];
} limits = {.entries_max = 40, .value_max = 300};
SF_CRC static unsigned long counts[8];
static struct entry *const none = 0;
static unsigned long plain; /* trusted */

SF_DUP static struct entry *entry_new(void) { return calloc(1, sizeof(struct entry)); }
SF_DUP static char *value_room(char *old, size_t room) { return old ? realloc(old, room) : malloc(room); }
SF_CRC static unsigned long *tally_new(size_t n) { return calloc(n, sizeof(unsigned long)); }
SF_DUP static char *note_new(const char *s) { return strdup(s); }
static unsigned long *tally;
static char *note;
SF_DUP static char *rest;

static unsigned slot(const char *key) {
  unsigned h = 5381;
  for (; *key; key++)
    h = h * 33 ^ (unsigned char)*key;
  return h % 16;
}

static struct entry **find(const char *key) {
  struct entry **at = &buckets[slot(key)];
  while (*at && strcmp((*at)->key, key) != 0)
    at = &(*at)->next;
  return at;
}

static void unlink_order(struct entry *e) {
  if (e->older)
    e->older->newer = e->newer;
  else
    order.oldest = e->newer;
  if (e->newer)
    e->newer->older = e->older;
  else
    order.newest = e->older;
}

static void link_newest(struct entry *e) {
  e->older = order.newest;
  e->newer = none;
  if (order.newest)
    order.newest->newer = e;
  else
    order.oldest = e;
  order.newest = e;
}

static void drop(struct entry *e) {
  struct entry **at = find(e->key);
  *at = e->next;
  unlink_order(e);
  order.entries--;
  free(e->value);
  free(e);
  counts[3]++;
}

static int put(const char *key, const char *value, size_t length) {
  if (length > limits.value_max)
    return -1;
  struct entry **at = find(key), *e = *at;
  if (!e) {
    if (order.entries == limits.entries_max)
      drop(order.oldest);
    at = find(key);
    e = entry_new();
    strncpy(e->key, key, sizeof e->key - 1);
    e->next = *at;
    *at = e;
    order.entries++;
  } else {
    unlink_order(e);
  }
  link_newest(e);
  if (e->room < length + 1) {
    e->room = length + 17;
    e->value = value_room(e->value, e->room);
  }
  memcpy(e->value, value, length);
  e->value[length] = 0;
  e->length = length;
  counts[1]++;
  return 0;
}

/* One request of text: set KEY VALUE, get KEY, add KEY NUMBER, cut KEY, drop KEY, list. */
SF_HANDLER int handle(const char *request, size_t length) {
  char verb[8], key[24], rest[400];
  int n = 0, fields = 0;
  sf_input_edge(request, length);
  plain++;
  counts[0]++;
  tally[length % 32]++;
  verb[0] = key[0] = rest[0] = 0;
  for (size_t i = 0; i < length; i++) {
    if (request[i] == ' ' && fields < 2) {
      fields++;
      n = 0;
      continue;
    }
    char *to = fields == 0 ? verb : fields == 1 ? key : rest;
    int room = fields == 0 ? 8 : fields == 1 ? 24 : 400;
    if (n + 1 < room) {
      to[n++] = request[i];
      to[n] = 0;
    }
  }
  if (!strcmp(verb, "set"))
    return printf("%s %d\n", limits.name, put(key, rest, strlen(rest)));
  struct entry **at = find(key), *e = *at;
  if (!strcmp(verb, "list")) {
    int size = 0;
    for (e = order.oldest; e; e = e->newer)
      size += printf("%s=%.*s;", e->key, (int)e->length, e->value);
    printf("\n");
    return size;
  }
  if (!e)
    return printf("none\n");
  e->uses++;
  if (!strcmp(verb, "get")) {
    sf_output_append(e->value, e->length);
    sf_output_done();
    return printf("%s (%u)\n", e->value, e->uses);
  }
  if (!strcmp(verb, "add")) {
    char *end;
    long v = strtol(e->value, &end, 10) + atol(rest);
    if (*end)
      return printf("no number: %s\n", end);
    if (e->room < 24)
      e->value = value_room(e->value, e->room = 24);
    e->length = (size_t)snprintf(e->value, e->room, "%ld", v);
    memmove(e->value + 1, e->value, e->length);
    e->value[0] = '0';
    e->value[++e->length] = 0;
    return printf("%s\n", e->value);
  }
  if (!strcmp(verb, "cut")) {
    char *comma = strchr(e->value, ','), *save;
    if (comma) {
      *comma = 0;
      e->length = (size_t)(comma - e->value);
      printf("%s\n", comma + 1);
    }
    for (char *word = strtok_r(e->value, "-", &save); word; word = strtok_r(NULL, "-", &save))
      printf("[%s]", word);
    return printf("%zu\n", e->length);
  }
  drop(e);
  return printf("dropped\n");
}

/* What a particle does: no store of the program's. */
static void strike(void *at, int bit) {
#ifndef STEADFAST_PLAIN
  __asm__ volatile("xorb %1, (%0)" ::"r"((char *)at + bit / 8), "q"((char)(1 << bit % 8)) : "memory");
#else
  (void)at, (void)bit;
#endif
}

static void *copy_of(void *at) { return (char *)at + (1ul << 44); }

static struct entry *some(void) {
  for (int i = 0; i < 16; i++)
    if (buckets[i] && buckets[i]->value)
      return buckets[i];
  return 0;
}

struct span {
  void *at;
  size_t bytes;
  int copied;
};

static void strike_any(unsigned long number) {
  static struct span all[512];
  size_t n = 0, bytes = 0;
  all[n++] = (struct span){buckets, sizeof buckets, 1};
  all[n++] = (struct span){&order, sizeof order, 1};
  all[n++] = (struct span){&limits, sizeof limits, 0};
  all[n++] = (struct span){counts, sizeof counts, 0};
  all[n++] = (struct span){tally, 32 * sizeof *tally, 0};
  all[n++] = (struct span){note, strlen(note) + 1, 1};
  for (struct entry *e = order.oldest; e; e = e->newer) {
    all[n++] = (struct span){e, sizeof *e, 1};
    all[n++] = (struct span){e->value, e->room, 1};
  }
  for (size_t i = 0; i < n; i++)
    bytes += all[i].bytes;
  size_t offset = number / 16 % bytes, i = 0;
  while (offset >= all[i].bytes)
    offset -= all[i++].bytes;
  char *at = (char *)all[i].at + offset;
#ifndef TRUSTED
  if (all[i].copied && number & 8)
    at += 1ul << 44;
#endif
  strike(at, (int)(number & 7));
}

static void strike_place(const char *place, int bit) {
  void *at = 0;
  struct entry *e = some();
  if (strstr(place, "object") || !strcmp(place, "copy"))
    at = e->value;
  else if (strstr(place, "pointer"))
    at = &e->next;
  else if (strstr(place, "root"))
    at = &order.newest;
  else if (!strcmp(place, "limit"))
    at = &limits.entries_max;
  else if (!strcmp(place, "count"))
    at = &tally[7];
  else if (strstr(place, "unused"))
    at = note;
  if (at)
    strike(strstr(place, "copy") ? copy_of(at) : at, bit);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* what was answered is out before anything stops the program */
  const char *scrub = getenv("STATE_SCRUB");
  int when = argc > 2 ? atoi(argv[2]) : -1, bit = argc > 3 ? atoi(argv[3]) : 0;
  /* Written outside handlers: both are. */
  strcpy(limits.name, "stored");
  tally = tally_new(32);
  note = note_new("kept for later");
  char seed[40];
  for (int i = 0; i < 4; i++) {
    snprintf(seed, sizeof seed, "seed%d", i);
    struct entry *e = entry_new();
    memcpy(e->key, seed, strlen(seed) + 1);
    e->value = value_room(0, 32);
    e->room = 32;
    e->length = (size_t)snprintf(e->value, 32, "value-%d,%d", i, i * i);
    e->next = buckets[slot(seed)];
    buckets[slot(seed)] = e;
    link_newest(e);
    order.entries++;
  }
  unsigned long sum = 0;
  for (int i = 0; i < 400; i++) {
    char request[512];
    unsigned pick = (unsigned)i * 2654435761u >> 16;
    switch (pick % 8) {
    case 0:
    case 1:
      snprintf(request, sizeof request, "set key%u a-%u-b,%0*u", pick / 8 % 60, pick, (int)(pick % 310), pick);
      break;
    case 2:
      snprintf(request, sizeof request, "set num%u %u", pick / 8 % 12, pick);
      break;
    case 3:
      snprintf(request, sizeof request, "add num%u %u", pick / 8 % 12, pick % 1000);
      break;
    case 4:
      snprintf(request, sizeof request, "cut key%u", pick / 8 % 60);
      break;
    case 5:
      snprintf(request, sizeof request, i % 5 ? "get seed%u" : "drop key%u", pick / 8 % (i % 5 ? 4 : 60));
      break;
    case 6:
      snprintf(request, sizeof request, i % 40 ? "get key%u" : "list x%u", pick / 8 % 60);
      break;
    default:
      snprintf(request, sizeof request, "get num%u", pick / 8 % 12);
    }
    if (i == when && !strcmp(argv[1], "any"))
      strike_any(strtoul(argv[3], 0, 10));
    else if (i == when)
      strike_place(argv[1], bit);
    if (scrub && i % 10 == 0)
      sf_scrub((size_t)atol(scrub));
    sum = sum * 31 + (unsigned long)handle(request, strlen(request));
    while (sf_crc_count())
      sf_crc_pop();
  }
  /* Read and cut outside handlers. */
  size_t chars = 0;
  for (char *word = strtok_r(note, " ,:", &rest); word; word = strtok_r(NULL, " ,:", &rest))
    chars = chars * 7 + strlen(word);
  for (struct entry *e = order.oldest; e; e = e->newer)
    chars += strlen(e->value) + e->uses;
  printf("%lu %zu %zu %lu %lu %lu %lu %s\n", sum, chars, order.entries, counts[0], counts[1], counts[3], plain, note);
  return 0;
}
