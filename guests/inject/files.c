/* Every way of moving bytes of a file, at places that the tests know.
 *
 * x.db gets blocks of 4096 letters A B C D, of which the second is written over by b; then it is
 * read back by each call, and so is a copy. A line tells of a read block which letter begins it and
 * how many of its bytes are others.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 4096 };
static char page[BLOCK];

static void say(const char *what, const char *bytes, long n)
{
	long other = 0;
	for (long i = 0; i < n; i++)
		other += bytes[i] != bytes[n / 2];
	printf("%s %ld %c %ld\n", what, n, bytes[n / 2] ? bytes[n / 2] : '0', other);
}

int main(void)
{
	int fd = open("x.db", O_RDWR | O_CREAT | O_TRUNC, 0644);
	for (int i = 0; i < 4; i++) {
		memset(page, 'A' + i, BLOCK);
		if (i < 2) {
			if (write(fd, page, BLOCK) != BLOCK)
				return 1;
		} else {
			struct iovec two[2] = { { page, 100 }, { page + 100, BLOCK - 100 } };
			if (writev(fd, two, 2) != BLOCK)
				return 1;
		}
	}
	memset(page, 'b', BLOCK);
	if (pwrite(fd, page, BLOCK, BLOCK) != BLOCK || lseek(fd, 0, SEEK_CUR) != 4 * BLOCK)
		return 2;
	lseek(fd, 0, SEEK_SET);
	say("read", page, read(fd, page, BLOCK));
	say("read", page, read(fd, page, BLOCK));
	struct iovec two[2] = { { page, 100 }, { page + 100, BLOCK - 100 } };
	say("readv", page, readv(fd, two, 2));
	say("preadv2", page, preadv2(fd, two, 2, -1, 0));
	printf("end %ld\n", (long)read(fd, page, BLOCK));
	say("pread", page, pread(fd, page, BLOCK, BLOCK));
	say("preadv", page, preadv(fd, two, 2, 2 * BLOCK));
	fflush(stdout);
	/* Another process, and a copy that the kernel would make by itself. */
	if (!fork()) {
		say("child", page, pread(fd, page, BLOCK, 3 * BLOCK));
		fflush(stdout);
		_exit(0);
	}
	wait(0);
	int copy = open("y.db", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
	lseek(fd, 0, SEEK_SET);
	int plain = open("z.db", O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (copy_file_range(fd, 0, plain, 0, BLOCK, 0) != BLOCK) {
		if (read(fd, page, BLOCK) != BLOCK || write(plain, page, BLOCK) != BLOCK)
			return 3;
	}
	say("copy", page, pread(plain, page, BLOCK, 0));
	for (int i = 0; i < 2; i++) {
		memset(page, 'x' + i, 10);
		if (write(copy, page, 10) != 10)
			return 4;
	}
	printf("%ld\n", (long)lseek(copy, 0, SEEK_END));
	return 0;
}
