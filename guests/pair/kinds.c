/* Reads and writes a file by every kind of call. A line of standard input names a kind; the answer is a digest of all that was read, or
 * what became of the write. kinds FILE */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define MOST (64 * PAGE)

static char bytes[MOST] __attribute__((aligned(PAGE)));
static int held = -1;

static size_t size(int fd)
{
	struct stat st;
	return fstat(fd, &st) ? 0 : (size_t)st.st_size;
}

/* In odd pieces, so that they cross pages. */
static ssize_t all(const char *kind, int fd, size_t n)
{
	size_t at = 0;
	while (at < n) {
		size_t left = n - at, piece = left < 5000 ? left : 5000;
		struct iovec v[2] = { { bytes + at, piece / 3 }, { bytes + at + piece / 3, piece - piece / 3 } };
		off_t off = (off_t)at;
		ssize_t got = -1;
		if (!strcmp(kind, "read"))
			got = read(fd, bytes + at, piece);
		else if (!strcmp(kind, "pread") || !strcmp(kind, "held"))
			got = pread(fd, bytes + at, piece, off);
		else if (!strcmp(kind, "readv"))
			got = readv(fd, v, 2);
		else if (!strcmp(kind, "preadv"))
			got = preadv(fd, v, 2, off);
		else if (!strcmp(kind, "preadv2"))
			got = preadv2(fd, v, 2, off, 0);
		else if (!strcmp(kind, "direct"))
			got = pread(fd, bytes + at, MOST - at, off);
		if (got <= 0)
			return -1;
		at += (size_t)got;
	}
	return (ssize_t)at;
}

/* As programs do: what the kernel refuses is read. */
static ssize_t handed(const char *kind, int fd, size_t n)
{
	int ends[2];
	ssize_t got = -1;
	if (pipe(ends))
		return -1;
	size_t at = 0;
	while (at < n) {
		off_t off = (off_t)at;
		if (!strcmp(kind, "sendfile"))
			got = sendfile(ends[1], fd, &off, PAGE);
		else
			got = splice(fd, &off, ends[1], NULL, PAGE, 0);
		if (got < 0) {
			got = pread(fd, bytes + at, PAGE, (off_t)at);
			if (got <= 0)
				return -1;
		} else if (got > 0 && read(ends[0], bytes + at, (size_t)got) != got) {
			return -1;
		}
		at += (size_t)got;
	}
	close(ends[0]);
	close(ends[1]);
	return (ssize_t)at;
}

/* As programs do: what cannot be mapped is read. */
static ssize_t mapped(const char *kind, int fd, size_t n)
{
	const int sync = !strcmp(kind, "synced");
	const int flags = sync ? MAP_SHARED_VALIDATE | MAP_SYNC : strcmp(kind, "mapped") ? MAP_PRIVATE : MAP_SHARED;
	void *at = mmap(NULL, n, sync ? PROT_READ | PROT_WRITE : PROT_READ, flags, fd, 0);
	if (at == MAP_FAILED)
		return errno == ENODEV || errno == EOPNOTSUPP ? all("pread", fd, n) : -1;
	memcpy(bytes, at, n);
	munmap(at, n);
	return (ssize_t)n;
}

static int put(const char *kind, const char *path, unsigned round)
{
	int direct = !strcmp(kind, "direct"), appends = !strcmp(kind, "append");
	int fd = open(path, O_RDWR | (direct ? O_DIRECT : 0) | (appends ? O_APPEND : 0) | (!strcmp(kind, "sync") ? O_SYNC : 0));
	if (fd < 0 && strcmp(kind, "gone"))
		return 0;
	memset(bytes, 'a' + (int)(round % 26), PAGE * 3);
	struct iovec v[2] = { { bytes, 700 }, { bytes + 700, 4400 } };
	off_t at = 1000 + 100 * (off_t)round;
	ssize_t done = -1;
	if (!strcmp(kind, "write") || !strcmp(kind, "sync"))
		done = lseek(fd, at, SEEK_SET) == at ? write(fd, bytes, 5100) : -1;
	else if (!strcmp(kind, "pwrite"))
		done = pwrite(fd, bytes, 5100, at);
	else if (!strcmp(kind, "writev"))
		done = lseek(fd, at, SEEK_SET) == at ? writev(fd, v, 2) : -1;
	else if (!strcmp(kind, "pwritev"))
		done = pwritev(fd, v, 2, at);
	else if (!strcmp(kind, "pwritev2"))
		done = pwritev2(fd, v, 2, at, 0);
	else if (appends)
		done = write(fd, bytes, 5100);
	else if (direct)
		done = pwrite(fd, bytes, 2 * PAGE, PAGE) == 2 * PAGE ? 5100 : -1;
	else if (!strcmp(kind, "shorter"))
		done = ftruncate(fd, (off_t)size(fd) - 3000) ? -1 : 5100;
	else if (!strcmp(kind, "longer"))
		done = ftruncate(fd, (off_t)size(fd) + 9000) ? -1 : 5100;
	else if (!strcmp(kind, "beyond"))
		done = pwrite(fd, bytes, 5100, (off_t)size(fd) + 6000);
	else if (!strcmp(kind, "room"))
		done = fallocate(fd, 0, (off_t)size(fd), 5000) ? -1 : 5100;
	else if (!strcmp(kind, "added")) {
		/* pwrite(2): whatever the place, such a file has it added. */
		int to = open(path, O_WRONLY | O_APPEND);
		done = pwrite(to, bytes, 5100, 10);
		close(to);
	} else if (!strcmp(kind, "adds"))
		done = pwritev2(fd, v, 2, 10, 0x10 /* RWF_APPEND */);
	else if (!strcmp(kind, "short") || !strcmp(kind, "even")) {
		/* Cut short by a limit in the middle of a page, and at the end of one. */
		struct rlimit had, limit;
		off_t end = strcmp(kind, "even") ? at + 3000 : (at / PAGE + 1) * PAGE;
		getrlimit(RLIMIT_FSIZE, &had);
		limit = (struct rlimit){ (rlim_t)end, had.rlim_max };
		signal(SIGXFSZ, SIG_IGN);
		done = !setrlimit(RLIMIT_FSIZE, &limit) && pwrite(fd, bytes, 3 * PAGE, at) == end - at && !setrlimit(RLIMIT_FSIZE, &had)
			       ? 5100
			       : -1;
	} else if (!strcmp(kind, "crowded")) {
		/* Open for writing alone, and no descriptor is left to read by. */
		int to = open(path, O_WRONLY);
		struct rlimit had, limit;
		getrlimit(RLIMIT_NOFILE, &had);
		limit = (struct rlimit){ (rlim_t)to + 1, had.rlim_max };
		done = !setrlimit(RLIMIT_NOFILE, &limit) && open(path, O_RDONLY) < 0 && pwrite(to, bytes, 5100, at) == 5100 &&
				       !setrlimit(RLIMIT_NOFILE, &had)
			       ? 5100
			       : -1;
		close(to);
	} else if (!strcmp(kind, "blind")) {
		/* Its owner may not read it, unless he may read all. */
		char other[200];
		snprintf(other, sizeof other, "%s.blind", path);
		int to = open(other, O_WRONLY | O_CREAT | O_APPEND, 0200);
		done = write(to, bytes, 100) == 100 ? 5100 : -1;
		close(to);
	} else if (!strcmp(kind, "anew")) {
		uint64_t how[3] = { O_RDWR | O_TRUNC, 0, 0 };
		int to = (int)syscall(SYS_openat2, AT_FDCWD, path, how, sizeof how);
		done = write(to, bytes, 2 * PAGE + 100) == 2 * PAGE + 100 ? 5100 : -1;
		close(to);
	} else if (!strcmp(kind, "map"))
		done = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 5100;
	else if (!strcmp(kind, "link"))
		done = link(path, "second") ? -1 : 5100;
	else if (!strcmp(kind, "punch"))
		done = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) ? -1 : 5100;
	else if (!strcmp(kind, "cut"))
		done = truncate(path, 5000) ? -1 : 5100;
	else if (!strcmp(kind, "exchange") || !strcmp(kind, "linked")) {
		/* Two names change places; a name by way of a symbolic link. */
		char other[200], by[200];
		int links = !strcmp(kind, "linked");
		snprintf(other, sizeof other, "%s.other", path);
		snprintf(by, sizeof by, "%s%s.other", links ? "l/" : "", path);
		if (links && symlink(".", "l") && errno != EEXIST)
			return 0;
		int to = open(by, O_RDWR | O_CREAT | O_TRUNC, 0600);
		done = write(to, bytes, 5100);
		close(to);
		char old[200];
		snprintf(old, sizeof old, "%s%s", links ? "l/" : "", path);
		if (syscall(SYS_renameat2, AT_FDCWD, by, AT_FDCWD, old, links ? 0 : 2 /* RENAME_EXCHANGE */) || (!links && unlink(other)))
			done = -1;
	} else if (!strcmp(kind, "over")) {
		/* A new file takes the name of the old one. */
		char other[200];
		snprintf(other, sizeof other, "%s.new", path);
		int to = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
		ssize_t n = pread(fd, bytes, MOST, 0);
		bytes[0] ^= 1;
		done = to >= 0 && write(to, bytes, (size_t)n) == n && !fsync(to) && !rename(other, path) ? 5100 : -1;
		close(to);
	} else if (!strcmp(kind, "hold")) {
		/* Kept open while its name changes, and goes. */
		held = open(path, O_RDONLY);
		done = held < 0 ? -1 : 5100;
	} else if (!strcmp(kind, "away") || !strcmp(kind, "gone")) {
		char other[200];
		snprintf(other, sizeof other, "%s.away", path);
		done = (!strcmp(kind, "gone") ? unlink(other) : rename(path, other)) ? -1 : 5100;
	} else if (!strcmp(kind, "nameless")) {
		/* What has no name is read and written on. */
		char other[200];
		snprintf(other, sizeof other, "%s.gone", path);
		int to = open(other, O_RDWR | O_CREAT | O_EXCL, 0600);
		done = to >= 0 && pwrite(to, bytes, 5100, 100) == 5100 && !unlink(other) && pwrite(to, bytes, 300, 50) == 300 &&
				       pread(to, bytes, MOST, 0) == 5200 && bytes[49] == 0 && bytes[50] != 0
			       ? 5100
			       : -1;
		close(to);
	}
	close(fd);
	return done == 5100;
}

int main(int words, char **word)
{
	char line[64];
	unsigned round = 0;
	if (words != 2)
		return 1;
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		round++;
		if (!strncmp(line, "put ", 4)) {
			int right = put(line + 4, word[1], round);
			printf("%s %s\n", line, right ? "done" : strerror(errno));
		} else {
			/* What is held is read without another call before. */
			int own = strcmp(line, "held") ? open(word[1], (strcmp(line, "synced") ? O_RDONLY : O_RDWR) |
									       (strcmp(line, "direct") ? 0 : O_DIRECT))
						       : -1;
			int fd = own < 0 ? held : own;
			size_t n = size(fd);
			memset(bytes, 0, sizeof bytes);
			const int hands = !strcmp(line, "sendfile") || !strcmp(line, "splice");
			const int maps = !strcmp(line, "mapped") || !strcmp(line, "private") || !strcmp(line, "synced");
			ssize_t got = hands ? handed(line, fd, n) : maps ? mapped(line, fd, n) : all(line, fd, n);
			uint64_t sum = 0xcbf29ce484222325u;
			for (ssize_t i = 0; i < got; i++)
				sum = (sum ^ (unsigned char)bytes[i]) * 0x100000001b3u;
			printf("%s %zd %016llx\n", line, got, (unsigned long long)sum);
			if (own >= 0)
				close(own);
		}
		fflush(stdout);
	}
	return 0;
}
