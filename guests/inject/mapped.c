/* Writes a file and looks at it through a mapping; with an argument, by a call as well. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char page[4096];
	int fd = open("m.db", O_RDWR | O_CREAT | O_TRUNC, 0644);

	(void)argv;
	memset(page, 'A', sizeof page);
	if (write(fd, page, sizeof page) != sizeof page)
		return 1;
	const char *mapped = mmap(0, sizeof page, PROT_READ, MAP_PRIVATE, fd, 0);
	if (mapped == MAP_FAILED)
		return 2;
	printf("mapped %c\n", mapped[0]);
	if (argc > 1) {
		if (pread(fd, page, sizeof page, 0) != sizeof page)
			return 3;
		printf("read %c\n", page[0]);
	}
	return 0;
}
