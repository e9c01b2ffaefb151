/* Says "ready", then sleeps for a minute in one system call; dies of whatever is sent to it. */
#include "guest.h"

int main(void) {
    puts("ready"), fflush(stdout);
    sleep(60);
    puts("woke");
    return 0;
}
