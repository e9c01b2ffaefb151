/* execve of a program that ends in its middle: the kernel gives this one up before it knows that it cannot load the other,
 * and kills what is left (execve(2), NOTES). */
#include "guest.h"

int main(void) {
    static char bytes[2000];
    int from = open("/proc/self/exe", O_RDONLY), to = open("broken", O_CREAT | O_WRONLY, 0755);
    need("copy", read(from, bytes, sizeof bytes) == sizeof bytes && write(to, bytes, sizeof bytes) == sizeof bytes);
    close(to);
    puts("before");
    fflush(stdout);
    char *args[] = {"broken", 0}, *none[] = {0};
    execve("./broken", args, none);
    return 1;
}
