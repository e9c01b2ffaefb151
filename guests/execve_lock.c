/* execve while a record lock is held: its owner is the descriptor table, which stays this process's own. */
#include "guest.h"

int main(int argc, char **argv) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (argc > 1) return puts("locked still") < 0;
    int fd = open("lock", O_CREAT | O_RDWR, 0644);
    need("lock", fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
    char *next[] = {argv[0], "again", 0}, *none[] = {0};
    execve("/proc/self/exe", next, none);
    return 1;
}
