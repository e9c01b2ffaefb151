/* Paths and strings at their limits: PATH_MAX, NAME_MAX, empty, not terminated before the end of memory, not UTF-8. */
#include "guest.h"
#include <sys/prctl.h>

int main(void) {
    static char longest[5000];
    memset(longest, 'a', 4999);
    check("too long", open(longest, O_RDONLY) == -1 && errno == ENAMETOOLONG);
    for (int i = 0; i < 4095; i += 2) longest[i] = '.', longest[i + 1] = '/';
    longest[4094] = 0;
    struct stat s;
    check("4094 bytes", stat(longest, &s) == 0 && S_ISDIR(s.st_mode));
    longest[4094] = '.', longest[4095] = '/', longest[4096] = '.', longest[4097] = 0;
    check("4097 bytes", stat(longest, &s) == -1 && errno == ENAMETOOLONG);
    char name[300];
    memset(name, 'n', 255), name[255] = 0;
    check("255", (close(open(name, O_CREAT | O_WRONLY, 0600)), access(name, F_OK)) == 0 && unlink(name) == 0);
    name[255] = 'n', name[256] = 0;
    check("256", mkdir(name, 0700) == -1 && errno == ENAMETOOLONG);
    check("empty", open("", O_RDONLY) == -1 && errno == ENOENT);
    check("odd bytes", mkdir("\xff\xfe\n\x01", 0700) == 0 && rmdir("\xff\xfe\n\x01") == 0);
    char *p = mmap(0, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p + 4096, 4096);
    memcpy(p + 4093, "/tm", 3);
    check("ends with memory", open(p + 4093, O_RDONLY) == -1 && errno == EFAULT);
    memcpy(p + 4091, "/tmp", 5);
    check("just fits", access(p + 4091, F_OK) == 0);
    
    int q[2];
    need("pipe", pipe(q) == 0);
    ssize_t n = write(q[1], p + 4000, 200);
    printf("write beyond memory: %zd\n", n);
    p[4095] = 0;
    check("name without end", prctl(PR_SET_NAME, p + 4090) == 0 || errno == EFAULT);
    check("component through a file", stat("/proc/self/exe/x", &s) == -1 && errno == ENOTDIR);
    check("loop", symlink("l", "l") == 0 && open("l", O_RDONLY) == -1 && errno == ELOOP && unlink("l") == 0);
    check("trailing slash", open("/proc/self/stat/", O_RDONLY) == -1 && errno == ENOTDIR);
    return done();
}
