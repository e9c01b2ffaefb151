/* Stores to a shared file mapping outlive the program however it ends; argument: how. Some pages are stored to and
 * synced before, some are new. */
#include "guest.h"

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "exit";
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("size", ftruncate(fd, 1 << 20) == 0);
    char *m = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("mmap", m != MAP_FAILED);
    close(fd);
    for (int i = 0; i < 256; i += 3) m[i * 4096 + i] = (char)i;
    msync(m, 1 << 20, MS_SYNC);
    for (int i = 0; i < 256; i += 5) m[i * 4096 + 1] = (char)~i;
    puts("stored");
    fflush(stdout);
    strcpy(m + 4000, "the last words");
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "null")) *(volatile int *)0 = 1;
    if (!strcmp(how, "fpe")) raise(SIGFPE);
    if (!strcmp(how, "alarm")) alarm(1), pause();
    if (!strcmp(how, "quick")) _exit(3);
    return 4;
}
