/* Bytes are spliced to and from blocking pipes and sockets that another thread fills or empties; with an argument another process does, and
 * shares memory with this one. */
#define _GNU_SOURCE
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define BYTES (1u << 20)
static struct {
    int from, to;
    unsigned long sum, bytes;
} *others;
static int processes;
static pthread_t thread;
static pid_t child;

static unsigned char at(unsigned i) { return (unsigned char)(i * 7 + i / 256 * 13); }

/* Late: this program waits for it, with a pipe full or empty. */
static void *takes(void *v) {
    static unsigned char part[50000];
    long n;
    (void)v;
    usleep(20000);
    while ((n = read(others->from, part, sizeof part)) > 0) {
        for (long i = 0; i < n; i++) others->sum = others->sum * 31 + part[i];
        others->bytes += (unsigned long)n;
    }
    return 0;
}

static void *gives(void *v) {
    static unsigned char part[50000];
    (void)v;
    usleep(20000);
    for (unsigned done = 0; done < BYTES;) {
        unsigned n = BYTES - done < sizeof part ? BYTES - done : sizeof part;
        for (unsigned i = 0; i < n; i++) part[i] = at(done + i);
        if (write(others->to, part, n) != n) break;
        done += n;
    }
    close(others->to);
    return 0;
}

static void begin(void *(*what)(void *), int from, int to, int mine) {
    others->from = from;
    others->to = to;
    others->sum = others->bytes = 0;
    if (!processes) {
        need("pthread_create", pthread_create(&thread, 0, what, 0) == 0);
    } else if ((child = fork()) == 0) {
        close(mine);
        what(0);
        _exit(0);
    } else {
        close(from < 0 ? to : from);
    }
}

static void end(int from) {
    if (processes) {
        need("waitpid", waitpid(child, 0, 0) == child);
    } else {
        pthread_join(thread, 0);
        if (from >= 0) close(from);
    }
}

static void ends_of(const char *what, int ends[2]) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof here;
    if (!strcmp(what, "pipe")) {
        need(what, pipe(ends) == 0);
    } else if (!strcmp(what, "local socket")) {
        need(what, socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    } else {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        need("bind", bind(listener, (struct sockaddr *)&here, sizeof here) == 0 && listen(listener, 1) == 0);
        need("getsockname", getsockname(listener, (struct sockaddr *)&here, &size) == 0);
        ends[1] = socket(AF_INET, SOCK_STREAM, 0);
        need("connect", connect(ends[1], (struct sockaddr *)&here, sizeof here) == 0);
        ends[0] = accept(listener, 0, 0);
        close(listener);
    }
}

/* From a file by way of a pipe, as cat and proxies do it. */
static void out(const char *what, int file, unsigned long sum) {
    char name[80];
    int ends[2], pipes[2];
    loff_t from = 0;
    unsigned long sent = 0;
    ends_of(what, ends);
    need("pipe", pipe(pipes) == 0);
    begin(takes, ends[0], -1, ends[1]);
    while (from < BYTES || sent < BYTES) {
        long n = from < BYTES ? splice(file, &from, pipes[1], 0, 1u << 20, SPLICE_F_MOVE) : 0, m = 0;
        if (n < 0 || (m = splice(pipes[0], 0, ends[1], 0, 1u << 20, 0)) <= 0) break;
        sent += (unsigned long)m;
    }
    close(ends[1]);
    end(ends[0]);
    snprintf(name, sizeof name, "%s: all of it", what);
    check(name, others->bytes == BYTES && others->sum == sum);
    close(pipes[0]), close(pipes[1]);
}

static void in(const char *what, unsigned long sum) {
    static unsigned char part[1 << 16];
    char name[80];
    int ends[2], pipes[2];
    unsigned long got = 0, is = 0;
    ends_of(what, ends);
    need("pipe", pipe(pipes) == 0);
    begin(gives, -1, ends[1], ends[0]);
    for (long n; (n = splice(ends[0], 0, pipes[1], 0, 1u << 20, 0)) > 0;)
        for (; n > 0; n -= (long)sizeof part) {
            long m = read(pipes[0], part, n < (long)sizeof part ? (size_t)n : sizeof part);
            for (long i = 0; i < m; i++) is = is * 31 + part[i];
            got += (unsigned long)m;
        }
    close(ends[0]);
    end(-1);
    snprintf(name, sizeof name, "from %s: all of it", what);
    check(name, got == BYTES && is == sum);
    close(pipes[0]), close(pipes[1]);
}

/* From one pipe to another that is emptied late; and nothing where it is not to wait. */
static void copies(int file, unsigned long sum) {
    int in[2], copy[2];
    static unsigned char part[4096];
    unsigned long done = 0;
    need("pipes", pipe(in) == 0 && pipe(copy) == 0);
    check("empty, at once", splice(in[0], 0, copy[1], 0, 4096, SPLICE_F_NONBLOCK) < 0 && errno == EAGAIN);
    check("nothing to copy, at once", tee(in[0], copy[1], 4096, SPLICE_F_NONBLOCK) < 0 && errno == EAGAIN);
    check("no pipe", splice(file, 0, file, 0, 1, 0) < 0 && errno == EINVAL);
    begin(takes, copy[0], -1, copy[1]);
    for (; done < BYTES; done += sizeof part) {
        for (unsigned i = 0; i < sizeof part; i++) part[i] = at((unsigned)done + i);
        if (write(in[1], part, sizeof part) != sizeof part || tee(in[0], copy[1], sizeof part, 0) != sizeof part ||
            read(in[0], part, sizeof part) != sizeof part)
            break;
    }
    close(copy[1]);
    end(copy[0]);
    check("copied: all of it", others->bytes == BYTES && others->sum == sum);
    close(in[0]), close(in[1]);
}

int main(int argc, char **argv) {
    static unsigned char page[4096];
    unsigned long sum = 0;
    int file = memfd_create("file", 0);
    (void)argv;
    processes = argc > 1;
    others = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", others != MAP_FAILED && file >= 0);
    for (unsigned i = 0; i < BYTES; i += sizeof page) {
        for (unsigned k = 0; k < sizeof page; k++) sum = sum * 31 + (page[k] = at(i + k));
        need("write", write(file, page, sizeof page) == sizeof page);
    }
    for (int i = 0; i < 3; i++) {
        static const char *const what[] = {"pipe", "local socket", "TCP"};
        fflush(stdout);
        out(what[i], file, sum);
        fflush(stdout);
        in(what[i], sum);
    }
    fflush(stdout);
    copies(file, sum);
    return done();
}
