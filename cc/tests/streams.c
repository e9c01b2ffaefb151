/* Buffered input in handlers: what streams bring, and where they end, is what the plain build gets. */
#define _GNU_SOURCE
#include <steadfast/sei.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char name[] = "/tmp/streams.XXXXXX";
static FILE *file;
static char text[40], *line;
static size_t room;
static long sum, total;
static int ends;

/* A part of a line, a byte and back, a block, the rest of the line, all with what is said about it. */
SF_LOCAL_HANDLER static int some(void) {
  if (!file && !(file = fopen(name, "r")))
    return -1;
  char *got = fgets(text, 9, file);
  int byte = fgetc(file), next = getc(file);
  ungetc(next, file);
  size_t many = fread(text + 10, 3, 5, file);
  ssize_t n = getline(&line, &room, file);
  for (ssize_t i = 0; i < n; i++)
    total = total * 7 % 1000003 + line[i];
  for (size_t i = 0; i < sizeof text; i++)
    total = total * 5 % 1000003 + text[i];
  total += n * 100 + byte * 10 + next;
  sum += (got != NULL) + (byte > 0) + (byte != EOF && next != EOF) + (long)many + (n > 0 && line[n - 1] == '\n') + (ftell(file) > 0);
  if (!feof(file))
    return 1;
  ends += ferror(file) == 0;
  rewind(file);
  sum += feof(file) * 1000 + (fseek(file, 4, SEEK_SET) == 0) * 10 + ftell(file) + (fgets(text, 1, file) == text && text[0] == 0);
  fclose(file);
  file = NULL;
  return 0;
}

SF_LOCAL_HANDLER static int none(int k) {
  char path[40];
  snprintf(path, sizeof path, "/nothing/of/this/name/%d", k);
  FILE *f = fopen(path, "r");
  int why = errno;
  f = fopen("/dev/null", "r");
  int answer = (fgets(text, sizeof text, f) == NULL) + 2 * (fgetc(f) == EOF) + 4 * (feof(f) != 0) + 8 * (getdelim(&line, &room, 0, f) == -1);
  clearerr(f);
  answer += 16 * (feof(f) == 0) + 32 * (why == ENOENT);
  fclose(f);
  return answer;
}

int main(void) {
  int answer, fd = mkstemp(name);
  FILE *out = fdopen(fd, "w");
  for (int i = 0; i < 100; i++)
    fprintf(out, "line %d of a file: %0*d\n", i, i % 30, i * i);
  fclose(out);
  for (int round = 0; round < 3; round++)
    while ((answer = some()) > 0)
      ;
  unlink(name);
  printf("%d %d %ld %ld %d\n", answer, ends, sum, total, none(3));
  return 0;
}
