#define _GNU_SOURCE
#include <steadfast/sei.h>
#include <unistd.h>
#include <sys/mman.h>
static int fd;
SF_LOCAL_HANDLER int handle(void) { return write(fd, "x", 1) == 1 && lseek(fd, 0, SEEK_END) == 1; }
int main(void) {
  fd = memfd_create("file", 0);
  return !handle();
}
