/* Reads its own memory with process_vm_readv. */
#include "guest.h"
#include <sys/uio.h>

int main(void) {
    char secret[] = "read by the kernel", b[64] = {0};
    struct iovec l = {b, sizeof secret}, r = {secret, sizeof secret};
    puts("before");
    fflush(stdout);
    answer("read", process_vm_readv(getpid(), &l, 1, &r, 1, 0) == sizeof secret && !strcmp(b, secret));
    return done();
}
