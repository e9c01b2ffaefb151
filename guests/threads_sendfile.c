/* A file is sent to a blocking pipe and to blocking sockets that another thread empties; with an argument another process does, and
 * shares memory with the sender. */
#define _GNU_SOURCE
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define BYTES (12u << 20)
static struct {
    int from;
    unsigned long sum, bytes;
} *taken;

static void *takes(void *v) {
    static unsigned char part[50000];
    long n;
    (void)v;
    while ((n = read(taken->from, part, sizeof part)) > 0) {
        for (long i = 0; i < n; i++) taken->sum = taken->sum * 31 + part[i];
        taken->bytes += (unsigned long)n;
    }
    return 0;
}

/* Sends all of it. `whole`: by one call, as to a stream. */
static void sends(const char *what, int to, int from, int file, unsigned long sum, int processes, int whole) {
    char name[80];
    pthread_t t;
    pid_t child = 0;
    off_t at = 0;
    unsigned calls = 0;
    ssize_t n = 0;
    *taken = (typeof(*taken)){from, 0, 0};
    if (!processes)
        need("pthread_create", pthread_create(&t, 0, takes, 0) == 0);
    else if ((child = fork()) == 0) {
        close(to);
        takes(0);
        _exit(0);
    }
    while (at < BYTES && (n = sendfile(to, file, &at, BYTES - (size_t)at)) > 0) calls++;
    close(to);
    if (processes)
        need("waitpid", waitpid(child, 0, 0) == child);
    else
        pthread_join(t, 0);
    close(from);
    snprintf(name, sizeof name, "%s: all of it", what);
    check(name, n > 0 && at == BYTES && taken->bytes == BYTES && taken->sum == sum);
    snprintf(name, sizeof name, "%s: by one call", what);
    if (whole) check(name, calls == 1);
}

int main(int argc, char **argv) {
    static unsigned char page[4096];
    const int processes = argc > 1;
    unsigned long sum = 0;
    int ends[2], listener, file = memfd_create("file", 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof here;
    (void)argv;
    taken = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", taken != MAP_FAILED && file >= 0);
    for (unsigned i = 0; i < BYTES / sizeof page; i++) {
        for (unsigned k = 0; k < sizeof page; k++) {
            page[k] = (unsigned char)(i * 7 + k * 13 + k / 256);
            sum = sum * 31 + page[k];
        }
        need("write", write(file, page, sizeof page) == sizeof page);
    }

    need("pipe", pipe(ends) == 0);
    sends("pipe", ends[1], ends[0], file, sum, processes, 0);
    need("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    sends("local socket", ends[1], ends[0], file, sum, processes, 1);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    need("bind", bind(listener, (struct sockaddr *)&here, sizeof here) == 0 && listen(listener, 1) == 0);
    need("getsockname", getsockname(listener, (struct sockaddr *)&here, &size) == 0);
    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    need("connect", connect(ends[1], (struct sockaddr *)&here, sizeof here) == 0);
    ends[0] = accept(listener, 0, 0);
    sends("TCP", ends[1], ends[0], file, sum, processes, 1);

    /* From where the file stands. */
    need("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pthread_t t;
    *taken = (typeof(*taken)){ends[0], 0, 0};
    need("pthread_create", lseek(file, 4096, SEEK_SET) == 4096 && pthread_create(&t, 0, takes, 0) == 0);
    check("from where it stands", sendfile(ends[1], file, 0, 2 * BYTES) == BYTES - 4096);
    close(ends[1]);
    pthread_join(t, 0);
    check("and then it is at its end", taken->bytes == BYTES - 4096 && lseek(file, 0, SEEK_CUR) == BYTES);
    return done();
}
