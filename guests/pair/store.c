/* Store: a server of two processes, and a thread a client. `store serve PORT [shared]`: for each `put N` a line in the file `log`, made
 * of a page of the file `data`, of memory and of all lines before, and another one that its child writes to `copy`. A `put` that it has
 * done last is answered again. `store ask ADDRESS PORT COUNT`: the client; it says each answer once, and goes on after any loss. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 40, OWN = 60 * PAGE / 8, LINE = 18 };

static uint64_t own[OWN], *shared, sum = 1;
static uint32_t count;
static int to[2], from[2], data, files[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t mix(uint64_t of, uint64_t word) {
  of = (of ^ word) * 0x9e3779b97f4a7c15u;
  return of ^ of >> 29;
}

/* What a process makes of a number, and of all before. */
static uint64_t turn(uint64_t n, uint64_t of) {
  uint64_t page[PAGE / 8];
  if (pread(data, page, PAGE, (off_t)(n * 7 % PAGES) * PAGE) != PAGE)
    exit(3);
  for (int i = 0; i < PAGE / 8; i++)
    of = mix(of, page[i]);
  for (int i = 0; i < OWN; i += 16)
    of = mix(of, own[i]);
  own[of % OWN & ~15u] = of;
  if (shared) {
    of = mix(of, shared[n % 512]);
    shared[of % 512] += of;
  }
  return of;
}

/* A line of the file, which is read again from where the last page of it begins. */
static uint64_t keep(int file, uint64_t n, uint64_t of) {
  char line[LINE], page[PAGE];
  const off_t end = (off_t)(n * LINE), at = end > PAGE ? end - PAGE : 0;
  snprintf(line, sizeof line, "%08x %08x", (unsigned)n, (unsigned)(of >> 32));
  line[LINE - 1] = '\n';
  if (pwrite(file, line, LINE, end - LINE) != LINE || fdatasync(file) || pread(file, page, (size_t)(end - at), at) != end - at)
    exit(4);
  for (off_t i = 0; i < end - at; i++)
    of = mix(of, (uint64_t)page[i]);
  return of;
}

static void serve_child(void) {
  uint64_t n, mine = 2;
  while (read(to[0], &n, sizeof n) == sizeof n) {
    mine = keep(files[1], n, turn(n, mine));
    if (write(from[1], &mine, sizeof mine) != sizeof mine)
      break;
  }
  _exit(0);
}

static void put(uint64_t n, char *said, size_t size) {
  static uint64_t theirs;
  pthread_mutex_lock(&lock);
  if (n == count + 1) {
    sum = keep(files[0], n, turn(n, sum));
    if (write(to[1], &n, sizeof n) != sizeof n || read(from[0], &theirs, sizeof theirs) != sizeof theirs)
      exit(5);
    count++;
  }
  if (n == count)
    snprintf(said, size, "%u %08x %08x\n", count, (unsigned)(sum >> 32), (unsigned)(theirs >> 32));
  else
    snprintf(said, size, "%u instead\n", count);
  pthread_mutex_unlock(&lock);
}

static void *serve(void *client) {
  char line[80], said[80];
  FILE *stream = fdopen((int)(intptr_t)client, "r+");
  while (fgets(line, sizeof line, stream)) {
    if (line[0] == 'e') {
      close(to[1]);
      while (wait(0) > 0)
        ;
      exit(0);
    }
    put(strtoull(line + 4, 0, 10), said, sizeof said);
    if (write(fileno(stream), said, strlen(said)) < 0)
      break;
  }
  fclose(stream);
  return 0;
}

static int serve_all(int port, int shares) {
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  const int door = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  signal(SIGPIPE, SIG_IGN);
  setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(door, (struct sockaddr *)&any, sizeof any) || listen(door, 8))
    return 2;
  data = open("data", O_RDONLY);
  files[0] = open("log", O_RDWR | O_CREAT, 0600);
  files[1] = open("copy", O_RDWR | O_CREAT, 0600);
  for (int i = 0; i < OWN; i++)
    own[i] = mix(7, (uint64_t)i);
  if (shares)
    shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pipe(to) || pipe(from))
    return 2;
  if (fork() == 0) {
    close(to[1]);
    serve_child();
  }
  close(to[0]);
  close(from[1]);
  for (;;) {
    pthread_t thread;
    const int client = accept(door, 0, 0);
    if (client >= 0 && pthread_create(&thread, 0, serve, (void *)(intptr_t)client) == 0)
      pthread_detach(thread);
  }
}

static FILE *reach(struct sockaddr_in *server) {
  const struct timeval patience = {.tv_sec = 8}, soon = {.tv_sec = 1};
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
    if (connect(fd, (struct sockaddr *)server, sizeof *server) == 0) {
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      return fdopen(fd, "r+");
    }
    close(fd);
    usleep(20000);
  }
}

static int ask(const char *address, int port, unsigned all) {
  struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  char line[80];
  FILE *stream = 0;
  inet_aton(address, &server.sin_addr);
  signal(SIGPIPE, SIG_IGN);
  for (unsigned n = 1; n <= all; n++) {
    struct pollfd told = {.fd = 0, .events = POLLIN};
    for (;;) {
      if (!stream)
        stream = reach(&server);
      if (dprintf(fileno(stream), "put %u\n", n) > 0 && fgets(line, sizeof line, stream))
        break;
      fclose(stream);
      stream = 0;
    }
    fputs(line, stdout);
    fflush(stdout);
    if (poll(&told, 1, 2) > 0)
      break;
  }
  dprintf(fileno(stream), "end\n");
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 4)
    return ask(argv[2], atoi(argv[3]), (unsigned)atoi(argv[4]));
  return argc > 2 ? serve_all(atoi(argv[2]), argc > 3) : 2;
}
