/* Reads and writes a file by every kind of call. A line of standard input names a kind; the answer is a digest of all that was read, or
 * what became of the write. kinds FILE */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
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

/* How the bytes came, where the kernel may refuse a call: by it, or by reads as programs do then. */
static const char *way = "";

/* By sendfile and splice, with an offset and without, to a pipe and to a socket. */
static ssize_t handed(const char *kind, int fd, size_t n)
{
	const int socket = !strcmp(kind, "served"), own = socket || !strcmp(kind, "streamed") || !strcmp(kind, "spliced");
	int ends[2];
	ssize_t got = -1;
	if (socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends))
		return -1;
	size_t at = 0;
	way = " by itself";
	while (at < n) {
		off_t off = (off_t)at;
		if (!strncmp(kind, "splice", 6))
			got = splice(fd, own ? NULL : &off, ends[1], NULL, own ? MOST : PAGE, 0);
		else
			got = sendfile(ends[1], fd, own ? NULL : &off, own ? MOST : PAGE);
		if (got < 0) {
			way = " by reads";
			got = pread(fd, bytes + at, PAGE, (off_t)at);
			if (got <= 0)
				return -1;
		} else if (!got || read(ends[0], bytes + at, (size_t)got) != got ||
			   (own ? lseek(fd, 0, SEEK_CUR) : off) != (off_t)at + got) {
			return -1;
		}
		at += (size_t)got;
	}
	close(ends[0]);
	close(ends[1]);
	return (ssize_t)at;
}

/* One that stays, and has room behind the file's end. */
static char *kept;

static int keeps(int fd)
{
	kept = mmap(NULL, MOST, PROT_READ, MAP_SHARED, fd, 0);
	return kept != MAP_FAILED;
}

static ssize_t mapped(const char *kind, int fd, size_t n)
{
	if (!strcmp(kind, "kept")) {
		memcpy(bytes, kept, n);
		return (ssize_t)n;
	}
	const int sync = !strcmp(kind, "synced"), changes = !strcmp(kind, "changed");
	const int flags = sync ? MAP_SHARED_VALIDATE | MAP_SYNC : strcmp(kind, "mapped") ? MAP_PRIVATE : MAP_SHARED;
	const int prot = PROT_READ | (sync || changes ? PROT_WRITE : 0) | (!strcmp(kind, "run") ? PROT_EXEC : 0);
	way = " by itself";
	char *at = mmap(NULL, n, prot, flags, fd, 0);
	if (at == MAP_FAILED) {
		way = " by reads";
		return errno == ENODEV || errno == EOPNOTSUPP ? all("pread", fd, n) : -1;
	}
	memcpy(bytes, at, n);
	for (size_t i = n; i % PAGE; i++)
		if (at[i])
			return -1;
	if (changes) /* the file does not see it */
		memset(at, 'x', n);
	/* From the middle on. */
	char *part = mmap(NULL, PAGE, prot, flags, fd, PAGE);
	if (part == MAP_FAILED || memcmp(part, bytes + PAGE, PAGE))
		return -1;
	munmap(part, PAGE);
	munmap(at, n);
	return (ssize_t)n;
}

/* A child has the mapping as well. It ends before the file is written to, or goes on. */
static int breeds(int fd, int goes_on)
{
	int ends[2];
	if (!keeps(fd) || pipe(ends))
		return 0;
	const pid_t child = fork();
	if (child == 0) {
		char byte;
		close(ends[1]);
		if (goes_on && read(ends[0], &byte, 1) < 0)
			_exit(1);
		_exit(memcmp(kept, bytes, PAGE) == 0 ? 1 : 0);
	}
	if (!goes_on && waitpid(child, NULL, 0) != child)
		return 0;
	bytes[0] ^= 1;
	return pwrite(fd, bytes, 5100, PAGE) == 5100 && !memcmp(kept + PAGE, bytes, 5100);
}

/* Two threads send the file again and again, by an offset and by its position, to one that reads slowly, while a clock rings. */
static struct sender {
	int file, ends[2], own;
	size_t n;
	pthread_t thread;
} senders[2];
#define TIMES 16

static void *sends(void *arg)
{
	struct sender *s = arg;
	for (int i = 0; i < TIMES; i++) {
		off_t off = 0;
		size_t at = 0;
		lseek(s->file, 0, SEEK_SET);
		while (at < s->n) {
			ssize_t sent = sendfile(s->ends[1], s->file, s->own ? NULL : &off, s->n - at);
			if (sent < 0 && errno == EINTR)
				continue;
			at += sent > 0 ? (size_t)sent : 0;
			if (sent <= 0 || (s->own ? lseek(s->file, 0, SEEK_CUR) : off) != (off_t)at)
				return s;
		}
	}
	return NULL;
}

static void rings(int signal)
{
	(void)signal;
}

static int alarmed(const char *path, int fd, int restarts)
{
	struct sigaction act = { .sa_handler = rings, .sa_flags = restarts ? SA_RESTART : 0 };
	struct itimerval often = { { 0, 7000 }, { 0, 7000 } }, never = { { 0, 0 }, { 0, 0 } };
	const size_t n = size(fd);
	static char piece[MOST];
	int right = pread(fd, bytes, n, 0) == (ssize_t)n;
	for (int k = 0; k < 2; k++) {
		struct sender *s = &senders[k];
		s->own = k;
		s->n = n;
		s->file = open(path, O_RDONLY);
		right &= socketpair(AF_UNIX, SOCK_STREAM, 0, s->ends) == 0;
		const int few = 8192;
		setsockopt(s->ends[1], SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
	}
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int k = 0; k < 2; k++)
		pthread_create(&senders[k].thread, NULL, sends, &senders[k]);
	for (int k = 0; k < 2; k++)
		for (size_t i = 0, at; i < TIMES; i++) {
			for (at = 0; at < n;) {
				const ssize_t got = read(senders[k].ends[0], piece + at, n - at < 5000 ? n - at : 5000);
				at += got > 0 ? (size_t)got : 0;
				if (got == 0 || (got < 0 && errno != EINTR))
					return 0;
			}
			right &= !memcmp(piece, bytes, n);
		}
	for (int k = 0; k < 2; k++) {
		void *wrong;
		pthread_join(senders[k].thread, &wrong);
		right &= !wrong && !close(senders[k].file) && !close(senders[k].ends[0]) && !close(senders[k].ends[1]);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	return right;
}

static int is_as_read(const char *map, int fd, size_t from, size_t n)
{
	return pread(fd, bytes, n, (off_t)from) == (ssize_t)n && !memcmp(map + from, bytes, n);
}

/* A shared mapping shows what the program writes, by any call, and no more when it is gone. */
static int shows(const char *path, int fd, unsigned round)
{
	const size_t n = size(fd), room = n + 8 * PAGE;
	int to = open(path, O_WRONLY | O_APPEND);
	char *map = mmap(NULL, room, PROT_READ, MAP_SHARED, fd, 0), *second = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 2 * PAGE);
	if (map == MAP_FAILED || second == MAP_FAILED || !is_as_read(map, fd, 0, n))
		return 0;
	char new[6000];
	memset(new, 'A' + (int)(round % 26), sizeof new);
	struct iovec v[2] = { { new, 700 }, { new + 700, 4400 } };
	if (pwrite(fd, new, 6000, PAGE + 100) != 6000 || memcmp(second, map + 2 * PAGE, PAGE) || map[PAGE + 100] != new[0] ||
	    map[PAGE + 99] == new[0])
		return 0;
	if (lseek(fd, 3 * PAGE - 50, SEEK_SET) < 0 || writev(fd, v, 2) != 5100 || write(to, new, 5000) != 5000 ||
	    !is_as_read(map, fd, 0, n + 5000))
		return 0;
	/* Cut, and longer again. */
	if (ftruncate(fd, (off_t)n - 100) || map[n - 99] || ftruncate(fd, (off_t)n + 200) || !is_as_read(map, fd, 0, n + 200))
		return 0;
	/* Taken from another file by the kernel. */
	off_t off = 0;
	int other = open(path, O_RDONLY);
	if (lseek(fd, 10, SEEK_SET) != 10 || sendfile(fd, other, &off, 3000) != 3000 || off != 3000 || !is_as_read(map, fd, 0, n + 200))
		return 0;
	if (madvise(map, PAGE, MADV_DONTNEED) || !is_as_read(map, fd, 0, n + 200))
		return 0;
	if (mremap(second, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno != ENOMEM)
		return 0;
	/* Not any more; the other part goes on. */
	munmap(map + PAGE, PAGE);
	char *plain = mmap(map + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (plain != map + PAGE || pwrite(fd, new, 3 * PAGE > sizeof new ? sizeof new : 0, PAGE - 300) != sizeof new || plain[0] ||
	    !is_as_read(map, fd, 0, PAGE))
		return 0;
	munmap(map, room);
	close(to);
	close(other);
	return pwrite(fd, new, 5100, 10) == 5100;
}

/* A sparse file of more than a GiB: its end is mapped, and then, if that can be, all of it. */
static int huge(const char *path)
{
	const off_t end = (1 << 30) + 100;
	char other[200];
	snprintf(other, sizeof other, "%s.huge", path);
	int to = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (to < 0 || ftruncate(to, end) || pwrite(to, "end", 3, end - 3) != 3 || unlink(other))
		return 0;
	char *last = mmap(NULL, 1 << 30, PROT_READ, MAP_PRIVATE, to, 1 << 30);
	if (last == MAP_FAILED || memcmp(last + 97, "end", 4))
		return 0;
	char *all = mmap(NULL, (size_t)end, PROT_READ, MAP_PRIVATE, to, 0);
	close(to);
	return all != MAP_FAILED && !memcmp(all + end - 3, "end", 4);
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
	} else if (!strcmp(kind, "alarmed") || !strcmp(kind, "rung"))
		done = alarmed(path, fd, !strcmp(kind, "alarmed")) ? 5100 : -1;
	else if (!strcmp(kind, "keep"))
		done = keeps(fd) ? 5100 : -1;
	else if (!strcmp(kind, "bred") || !strcmp(kind, "breeds"))
		done = breeds(fd, !strcmp(kind, "breeds")) ? 5100 : -1;
	else if (!strcmp(kind, "shows"))
		done = shows(path, fd, round) ? 5100 : -1;
	else if (!strcmp(kind, "filled")) {
		/* By way of a pipe. */
		int ends[2];
		loff_t to = at;
		done = !pipe(ends) && write(ends[1], bytes, 5100) == 5100 && splice(ends[0], NULL, fd, &to, 3000, 0) == 3000 &&
				       to == at + 3000 && lseek(fd, to, SEEK_SET) == to &&
				       splice(ends[0], NULL, fd, NULL, 2100, 0) == 2100 && lseek(fd, 0, SEEK_CUR) == at + 5100
			       ? 5100
			       : -1;
		close(ends[0]);
		close(ends[1]);
	} else if (!strcmp(kind, "taken")) {
		int from = open(path, O_RDONLY);
		off_t place = 1;
		done = lseek(fd, at, SEEK_SET) == at && sendfile(fd, from, &place, 5100) == 5100 && place == 5101 ? 5100 : -1;
		close(from);
	} else if (!strcmp(kind, "map"))
		done = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 5100;
	else if (!strcmp(kind, "link")) {
		/* By its descriptor. */
		char by[40];
		snprintf(by, sizeof by, "/proc/self/fd/%d", fd);
		done = linkat(AT_FDCWD, by, AT_FDCWD, "second", AT_SYMLINK_FOLLOW) ? -1 : 5100;
	} else if (!strcmp(kind, "huge"))
		done = huge(path) ? 5100 : -1;
	else if (!strcmp(kind, "punch"))
		done = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) ? -1 : 5100;
	else if (!strcmp(kind, "root"))
		done = chroot(".") ? -1 : 5100;
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
			const int hands = strstr("sendfile splice streamed spliced served", line) != NULL;
			const int maps = strstr("mapped private changed run synced kept", line) != NULL;
			way = "";
			ssize_t got = hands ? handed(line, fd, n) : maps ? mapped(line, fd, n) : all(line, fd, n);
			uint64_t sum = 0xcbf29ce484222325u;
			for (ssize_t i = 0; i < got; i++)
				sum = (sum ^ (unsigned char)bytes[i]) * 0x100000001b3u;
			printf("%s %zd %016llx%s\n", line, got, (unsigned long long)sum, way);
			if (own >= 0)
				close(own);
		}
		fflush(stdout);
	}
	return 0;
}
