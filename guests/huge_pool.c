/* Memory in huge pages of the kernel's pool, alone, and with a child: as many as fit. Takes any number of pages for an answer. */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/wait.h>

enum { LENGTH = 2 << 20 };

static void uses(const char *what, int kind) {
    int status = -1;
    char *p = mmap(0, LENGTH - 5000, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    answer(what, p != MAP_FAILED);
    if (p == MAP_FAILED) return;
    check("at a huge page", (uintptr_t)p % LENGTH == 0);
    p[0] = 1;
    p[LENGTH - 1] = 2; /* the last page is a whole one */
    if (kind == MAP_SHARED) {
        pid_t child = fork();
        if (child == 0) {
            p[1] = (char)(p[0] + p[LENGTH - 1]);
            _exit(0);
        }
        check("of a child", waitpid(child, &status, 0) == child && status == 0 && p[1] == 3);
    }
    check("unmapped", munmap(p, LENGTH) == 0);
}

int main(void) {
    uses("private", MAP_PRIVATE);
    uses("shared", MAP_SHARED);
    char *p = mmap((void *)0x12345000, LENGTH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED, -1, 0);
    check("not between two huge pages", p == MAP_FAILED && (errno == EINVAL || errno == ENOMEM));
    return done();
}
