/* Reads pages at random places, looks at each, and writes a page now and then.
 *
 * pages FILE MEMORY_MB PAGES
 *
 * Each page of FILE begins with its own number. Before the first read MEMORY_MB are filled, and "ready" is said; with each read five
 * pages of their first twelfth are stored to, as many as the CARP paper has in an epoch. Only the first quarter of FILE is written, so whoever strikes the rest knows what it held.
 * Ends when PAGES were read, and says how many; 0: never. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u
#define MOST 16u /* pages of a read */

static uint64_t word = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
	word ^= word << 13;
	word ^= word >> 7;
	word ^= word << 17;
	return word % below;
}

static void need(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static uint64_t pages[MOST][PAGE / 8];
	struct stat st;
	need(argc == 4, "pages FILE MEMORY_MB PAGES");
	const int fd = open(argv[1], O_RDWR);
	need(fd >= 0 && fstat(fd, &st) == 0, argv[1]);
	const uint64_t n = (uint64_t)st.st_size / PAGE, wanted = strtoull(argv[3], NULL, 10), bytes = strtoull(argv[2], NULL, 10) << 20;
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(memory != MAP_FAILED && n > MOST, "memory, and a file of more than 16 pages");
	for (uint64_t at = 0; at < bytes; at += 8)
		*(uint64_t *)(memory + at) = draw(~0ull);
	puts("ready");
	fflush(stdout);
	uint64_t done = 0;
	while (!wanted || done < wanted) {
		const uint64_t count = 1 + draw(MOST), at = draw(n - count + 1);
		need(pread(fd, pages, count * PAGE, (off_t)(at * PAGE)) == (ssize_t)(count * PAGE), "pread");
		for (uint64_t i = 0; i < count; i++)
			if (pages[i][0] != at + i) {
				printf("page %llu is wrong\n", (unsigned long long)(at + i));
				return 1;
			}
		done += count;
		for (uint64_t i = 0; i < 5; i++)
			memory[draw(bytes / PAGE / 12) * PAGE + i]++;
		if (draw(8) == 0) {
			const uint64_t own = draw(n / 4);
			memset(pages[0], (int)draw(256), PAGE);
			pages[0][0] = own;
			need(pwrite(fd, pages[0], PAGE, (off_t)(own * PAGE)) == PAGE, "pwrite");
		}
		if (draw(1024) == 0)
			need(fdatasync(fd) == 0, "fdatasync");
	}
	printf("%llu pages read\n", (unsigned long long)done);
	return 0;
}
