// A program whose first thread ends at once, and whose second does the work: its process is there for a tenth of a
// second more, with a first thread that nobody can trace.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *rest(void *unused)
{
    usleep(100000);
    puts("done");
    exit(0);
    return unused;
}

int main(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, rest, NULL) != 0)
        return 1;
    pthread_exit(NULL);
}
