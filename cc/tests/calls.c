/* Calls by class: once, pure, defer, wrap, what the C library writes, and files. */
#define _GNU_SOURCE
#include <steadfast/sei.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int asked, deferred;
static char buffer[300], words[64];
static long numbers[32];
static char *end;
static int pipes[2];

SF_ONCE int ask(int k) { return ++asked * 10 + k; }
SF_PURE int doubled(int k) { return 2 * k; }
SF_DEFER void later(int k) { deferred += k; }
static int plain(int k) { return k + 1000; }
SF_WRAPPER("plain") int wrapped(int k) { return plain(k) + 1; }
#ifdef STEADFAST_PLAIN
#define plain wrapped /* what the pass does in hardened code */
#endif

static int descending(const void *a, const void *b) {
  long x = *(const long *)a, y = *(const long *)b;
  return (x < y) - (x > y);
}

SF_LOCAL_HANDLER long libc(int k) {
  long sum = 0;
  snprintf(buffer, sizeof buffer, "%d-%s-%f %0200d", k, "text", k / 3.0, k);
  strcat(strcpy(words, "some "), "words to,take:apart");
  strncat(words, " and more", 4);
  char *rest, *word = strtok_r(words, " ,:", &rest);
  for (; word; word = strtok_r(NULL, " ,:", &rest))
    sum += (long)strlen(word);
  strcpy(words, "once,more");
  for (word = strtok(words, ","); word; word = strtok(NULL, ","))
    sum += word[0];
  sum += strtol("123abc", &end, 10) + *end;
  for (int i = 0; i < 32; i++)
    numbers[i] = (i * 37 + k) % 32;
  qsort(numbers, 32, sizeof *numbers, descending);
  long key = 5;
  long *at = bsearch(&key, numbers, 32, sizeof *numbers, descending);
  sum += at ? at - numbers : -1;
  struct in_addr a;
  sum += inet_pton(AF_INET, "10.1.2.3", &a) + (long)(ntohl(a.s_addr) & 0xff);
  inet_ntop(AF_INET, &a, buffer + 250, 40);
  struct tm t;
  time_t when = 86400 * (time_t)k;
  gmtime_r(&when, &t);
  strftime(words, sizeof words, "%Y-%m-%d", &t);
  errno = 0;
  char *copy = strdup(buffer);
  memmove(copy + 1, copy, 20);
  sum += (long)strlen(copy) + copy[5];
  free(copy);
  return sum;
}

SF_LOCAL_HANDLER int classes(int k) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  int now = (int)(time(NULL) > 1000000) + (t.tv_nsec < 0);
  later(k);
  return ask(k) + doubled(k) + plain(k) + now;
}

SF_LOCAL_HANDLER int input(int k) {
  char c[16];
  ssize_t n = read(pipes[0], c, sizeof c);
  /* Leaves after the handler: the next one reads it. */
  if (write(pipes[1], "0123456789", (size_t)(k % 10) + 1) < 0)
    return -1;
  for (ssize_t i = 0; i < n; i++)
    buffer[i] = c[n - 1 - i];
  return (int)n;
}

/* Locks that a handler makes, uses and unmakes, in memory that it takes and gives back. */
struct guarded {
  pthread_mutex_t lock;
  pthread_rwlock_t all;
  pthread_cond_t changed;
  long value;
};
static struct guarded *shared;
SF_LOCAL_HANDLER long locks(int k) {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_settype(&kind, k % 2 ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL);
  struct guarded *g = shared;
  long sum = 0;
  if (g) {
    if (k % 3 != 2) {
      if (k % 3)
        pthread_mutex_lock(&g->lock); /* else the last handler has left it locked */
      sum = g->value;
      if (pthread_mutex_trylock(&g->lock) == 0) {
        sum += 1000;
        pthread_mutex_unlock(&g->lock);
      }
      pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_destroy(&g->lock);
    pthread_rwlock_destroy(&g->all);
    pthread_cond_destroy(&g->changed);
    if (k % 3 != 2) {
      free(g);
      g = NULL;
    }
  }
  if (!g)
    g = malloc(sizeof *g);
  if (!g)
    return -1;
  memset(g, 0, sizeof *g);
  pthread_mutex_init(&g->lock, &kind);
  pthread_rwlock_init(&g->all, NULL);
  pthread_cond_init(&g->changed, NULL);
  pthread_mutex_lock(&g->lock);
  sum += 10 * (pthread_mutex_trylock(&g->lock) == 0);
  pthread_rwlock_rdlock(&g->all);
  pthread_rwlock_unlock(&g->all);
  g->value = k;
  pthread_cond_signal(&g->changed);
  if (k % 2)
    pthread_mutex_unlock(&g->lock);
  if (k % 3 != 2)
    pthread_mutex_unlock(&g->lock);
  shared = g;
  return sum;
}

/* A file without a name is made, written by one event, and read by the next; a path that is built on the stack. */
static int file = -1;
static struct stat about;
static char part[16];

SF_LOCAL_HANDLER long files(int k) {
  char path[64];
  struct tm when;
  long sum = 0;
  if (k % 8 == 0) {
    if (file >= 0)
      close(file);
    snprintf(path, sizeof path, "/tmp/calls.%d.XXXXXX", k);
    file = mkstemp(path);
    unlink(path);
    return file >= 0;
  }
  if (k % 8 == 1)
    return write(file, "some bytes for later", 20);
  sum += fstat(file, &about) == 0 ? about.st_size * 10 + about.st_nlink : -1;
  sum += pread(file, part, 10, k % 8) * 1000 + part[0];
  sum += lseek(file, 0, SEEK_END) * 100000;
  snprintf(path, sizeof path, "/nothing/of/this/name/%d", k);
  sum += 7 * (open(path, O_RDONLY) == -1 && errno == ENOENT) + 3 * (stat(path, &about) == -1) + access("/", R_OK);
  int folder = open("/proc", O_RDONLY | O_DIRECTORY);
  sum += folder >= 0 && fstatat(folder, "self", &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(about.st_mode);
  close(folder);
  sum += readlink("/proc/self/exe", part, 4) * 20 + part[2] + (readlink(path, part, sizeof part) == -1 && errno == ENOENT);
  char *whole = realpath("/usr/../proc/./", NULL), *here = getcwd(NULL, 0), name[PATH_MAX];
  sum += (long)strlen(whole) + whole[4] + (realpath(path, name) == NULL) + (realpath("/dev/", name) == name) + name[3];
  sum += strcmp(here, getcwd(name, sizeof name)) == 0 && getcwd(name, 1) == NULL && errno == ERANGE;
  free(whole);
  free(here);
  if (strptime("Fri, 01 Jan 2021 00:00:07 GMT", "%a, %d %b %Y %H:%M:%S GMT", &when))
    sum += timegm(&when) % 1000;
  return sum;
}

/* What is refused, and why it was, is the same to both runs. */
static void *volatile none;
SF_LOCAL_HANDLER long refusals(int k) {
  errno = k;
  long answer = sysconf(-1 - k);
  int why = errno;
  none = malloc(SIZE_MAX / 2 - (size_t)k);
  return answer * 10000 + why * 100 + errno;
}

/* Fills that begin where words are left alone and end elsewhere, and one that comes before they are. */
static _Alignas(8) uint8_t ground[400];
__attribute__((noinline)) static void fill(uint8_t *at, int byte, size_t n) { memset(at, byte, n); }
SF_LOCAL_HANDLER long aside(int k) {
  fill(ground + 200, k, 100 + (size_t)k);
  sf_ignore(ground, 64);
  sf_ignore(ground + 240, 16);
  fill(ground + 10, ground[100] + 1, 90 + (size_t)k);
  fill(ground + 130, ground[310] + ground[199] + 1, 190);
  long sum = 0;
  for (int i = 64; i < 400; i++)
    sum = sum * 5 + ground[i] * (i < 240 || i >= 256);
  return sum;
}

int main(void) {
  if (pipe(pipes) != 0)
    return 1;
  if (write(pipes[1], "first", 5) != 5)
    return 1;
  for (int k = 0; k < 40; k++) {
    printf("%ld %s %s", libc(k), buffer, words);
    printf(" %d %d %d", classes(k), asked, deferred);
    printf(" %d %.5s", input(k), buffer);
    printf(" %ld", locks(k));
    printf(" %ld %ld %ld\n", files(k), refusals(k), aside(k));
  }
  return 0;
}
