/* A handler that writes where it fails after validation: argument 1 says how, and in which place; argument 2 what is done next. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <steadfast/sei.h>

static int fd, said, failed;
static FILE *stream;
static char path[64];

SF_LOCAL_HANDLER void record(int n) {
  char line[32];
  int length = snprintf(line, sizeof line, "record %d\n", n);
  if (write(fd, line, (size_t)length) == length)
    said++;
  else
    failed = errno;
}

SF_LOCAL_HANDLER void message(int n) {
  if (send(fd, &n, sizeof n, MSG_NOSIGNAL) == sizeof n)
    said++;
  else
    failed = errno;
}

SF_LOCAL_HANDLER void to_stream(int n) {
  if (fprintf(stream, "record %d\n", n) > 0)
    said++;
  if (fflush(stream) != 0)
    failed = errno;
}

SF_LOCAL_HANDLER void closes(void) {
  fputs("the end\n", stream);
  fclose(stream);
}

/* Both in one event: there is no next call. */
SF_LOCAL_HANDLER void last(void) {
  if (write(fd, "the last\n", 9) == 9 && close(fd) == 0)
    said++;
}

SF_LOCAL_HANDLER void removes(void) { unlink(path); }

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "fine", *next = argc > 2 ? argv[2] : "handler";
  signal(SIGPIPE, SIG_IGN);
  int pair[2];
  if (!strcmp(how, "fine")) {
    fd = open("/dev/null", O_WRONLY);
  } else if (!strcmp(how, "full")) {
    fd = open("/dev/full", O_WRONLY);
  } else if (!strcmp(how, "closed")) {
    fd = 77;
  } else if (!strcmp(how, "pipe") && pipe(pair) == 0) {
    close(pair[0]);
    fd = pair[1];
  } else if (!strcmp(how, "peer") && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) {
    close(pair[0]);
    fd = pair[1];
  } else if (!strcmp(how, "stream")) {
    stream = fopen("/dev/full", "w");
    to_stream(1);
    return puts("went on") < 0;
  } else if (!strcmp(how, "fclose")) {
    stream = fopen("/dev/full", "w");
    closes();
    return puts("went on") < 0;
  } else if (!strcmp(how, "unlink")) {
    strcpy(path, "/proc/self/status");
    removes();
    return puts("went on") < 0;
  }
  if (!strcmp(next, "last")) {
    last();
    return puts("went on") < 0;
  }
  for (int i = 0; i < 3; i++) {
    if (!strcmp(how, "peer"))
      message(i);
    else
      record(i);
    if (!strcmp(next, "outside") && i == 0) {
      ssize_t n = write(fd, "x", 1);
      printf("outside: %s\n", n < 0 ? strerrorname_np(errno) : "written");
    }
    if (!strcmp(next, "close") && i == 0) {
      printf("close: %s\n", close(fd) ? strerrorname_np(errno) : "closed");
      return 0;
    }
  }
  printf("said %d, failed %s\n", said, failed ? strerrorname_np(failed) : "not");
  return 0;
}
