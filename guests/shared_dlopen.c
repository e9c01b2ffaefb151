/* A child that shares memory with its parent maps files: libraries, and one of its own. */
#include "guest.h"
#include <dlfcn.h>
#include <sys/wait.h>

int main(void) {
    double *s = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    need("mmap", s != MAP_FAILED);
    fflush(stdout);
    if (fork() == 0) {
        void *m = dlopen("libm.so.6", RTLD_NOW);
        double (*root)(double) = m ? (double (*)(double))dlsym(m, "cbrt") : 0;
        s[0] = root ? root(27) : 0;
        int fd = open("own", O_RDWR | O_CREAT, 0600);
        need("file", fd >= 0 && write(fd, "in the file", 12) == 12);
        char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        need("map", at != MAP_FAILED);
        close(fd);
        at[0] = 'I';
        strcpy((char *)(s + 1), at);
        /* Shared with whoever reads the file: it is written back before the child ends. */
        fd = open("own", O_RDWR);
        at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        need("map shared", at != MAP_FAILED);
        at[3] = 'I';
        _exit(0);
    }
    check("child", wait(&status) > 0 && status == 0);
    printf("%.3f %s\n", s[0], (char *)(s + 1));
    char bytes[12] = "";
    int fd = open("own", O_RDONLY);
    need("read", read(fd, bytes, sizeof bytes) == sizeof bytes);
    puts(bytes);
    return done();
}
