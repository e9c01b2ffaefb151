/* The micro-benchmark of the CARP paper (4.1), and its four variants rebuilt in the process itself.
 *
 * micro FILE OPERATIONS N DIRTY MEMORY_MB [EXCHANGE DIGEST TRACKING]
 *
 * Reads and writes of a page in turns, random and sequential in turns; between two reads DIRTY pages of memory are stored to.
 * With the last three, every N reads: the digest of what was read goes to a peer by TCP on this machine, and the pages that
 * were stored to are collected. sync waits for the peer's word; async takes it at the next exchange.
 *
 * EXCHANGE sync or async; DIGEST md5 or crc32c; TRACKING mprotect (a fault for each page) or wp-async (a scan; Linux 6.7).
 * Says the milliseconds that it took, and the pages that it collected. See PAGEMAP_SCAN, userfaultfd(2), RFC 1321. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define FILE_PAGES 256u

static void need(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

/* ---- digests ---- */

static struct { uint32_t h[4]; uint64_t bytes; uint64_t crc; } digest;
static uint32_t md5_k[64];

static void md5_block(const uint8_t *p)
{
	static const uint8_t turn[4][4] = { { 7, 12, 17, 22 }, { 5, 9, 14, 20 }, { 4, 11, 16, 23 }, { 6, 10, 15, 21 } };
	uint32_t w[16], a = digest.h[0], b = digest.h[1], c = digest.h[2], d = digest.h[3];
	memcpy(w, p, sizeof w);
	for (unsigned i = 0; i < 64; i++) {
		uint32_t f, g;
		switch (i / 16) {
		case 0: f = (b & c) | (~b & d), g = i; break;
		case 1: f = (d & b) | (~d & c), g = (5 * i + 1) % 16; break;
		case 2: f = b ^ c ^ d, g = (3 * i + 5) % 16; break;
		default: f = c ^ (b | ~d), g = 7 * i % 16;
		}
		f += a + md5_k[i] + w[g];
		a = d, d = c, c = b;
		const unsigned s = turn[i / 16][i % 4];
		b += f << s | f >> (32 - s);
	}
	digest.h[0] += a, digest.h[1] += b, digest.h[2] += c, digest.h[3] += d;
}

static void digest_page(const uint8_t *page, int md5)
{
	for (unsigned i = 0; md5 && i < PAGE; i += 64)
		md5_block(page + i);
	for (unsigned i = 0; !md5 && i < PAGE; i += 8)
		digest.crc = _mm_crc32_u64(digest.crc, *(const uint64_t *)(page + i));
}

/* ---- tracking ---- */

static uint8_t *memory;
static size_t memory_bytes;
static unsigned collected;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	uint8_t *page = (uint8_t *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
	if (page < memory || page >= memory + memory_bytes)
		_exit(3);
	collected++;
	mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

struct region { uint64_t start, end, categories; };
struct scan { uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, returned; };
static int pagemap;

static void scan(void)
{
	static struct region found[1024];
	/* PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC, PAGE_IS_WRITTEN */
	struct scan s = { .size = sizeof s, .flags = 3, .start = (uint64_t)memory, .end = (uint64_t)memory + memory_bytes, .vec = (uint64_t)found,
		.vec_len = 1024, .mask = 2, .returned = 2 };
	while (s.start < s.end) {
		const long n = ioctl(pagemap, 0xc0606610ul /* PAGEMAP_SCAN */, &s);
		need(n >= 0, "PAGEMAP_SCAN");
		for (long i = 0; i < n; i++)
			collected += (unsigned)((found[i].end - found[i].start) / PAGE);
		s.start = s.walk_end;
	}
}

static void track(int by_faults)
{
	if (by_faults) {
		struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
		need(sigaction(SIGSEGV, &act, NULL) == 0, "sigaction");
		return;
	}
	const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
	uint64_t api[3] = { 0xaa, 1ull << 13 | 1ull << 15 /* WP_UNPOPULATED, WP_ASYNC */, 0 };
	uint64_t area[4] = { (uint64_t)memory, memory_bytes, 2 /* MODE_WP */, 0 };
	need(fd >= 0 && ioctl(fd, 0xc018aa3ful, api) == 0 && ioctl(fd, 0xc020aa00ul, area) == 0, "userfaultfd");
	need((pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) >= 0, "pagemap");
	scan();
	collected = 0;
}

/* ---- exchange ---- */

static int peer = -1;

static void meet_peer(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof at;
	const int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	need(bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 1) == 0 && getsockname(listener, (void *)&at, &len) == 0, "listen");
	if (fork() == 0) {
		char word[24];
		const int from = accept(listener, NULL, NULL);
		setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		while (read(from, word, sizeof word) == sizeof word && write(from, "=", 1) == 1)
			;
		_exit(0);
	}
	peer = socket(AF_INET, SOCK_STREAM, 0);
	need(connect(peer, (void *)&at, sizeof at) == 0, "connect");
	setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	close(listener);
}

static void exchange(int waits, unsigned *owed)
{
	char word[24], yes;
	memcpy(word, digest.h, 16);
	memcpy(word + 16, &digest.crc, 8);
	for (; *owed; --*owed)
		need(read(peer, &yes, 1) == 1, "the peer's word");
	need(write(peer, word, sizeof word) == sizeof word, "write");
	*owed = 1;
	for (; waits && *owed; --*owed)
		need(read(peer, &yes, 1) == 1, "the peer's word");
}

/* ---- the program ---- */

static uint64_t word = 88172645463325252u;

static uint64_t draw(void)
{
	word ^= word << 13;
	word ^= word >> 7;
	return word ^= word << 17;
}

int main(int argc, char **argv)
{
	need(argc == 6 || argc == 9, "micro FILE OPERATIONS N DIRTY MEMORY_MB [EXCHANGE DIGEST TRACKING]");
	const unsigned operations = (unsigned)atoi(argv[2]), n = (unsigned)atoi(argv[3]), dirty = (unsigned)atoi(argv[4]);
	const int variant = argc == 9, waits = variant && !strcmp(argv[6], "sync"), md5 = variant && !strcmp(argv[7], "md5"),
	          faults = variant && !strcmp(argv[8], "mprotect");
	static uint8_t page[PAGE];
	struct timespec from, to;
	unsigned reads = 0, owed = 0, total = 0;
	const int fd = open(argv[1], O_RDWR);
	need(fd >= 0, argv[1]);
	memory_bytes = (size_t)atoi(argv[5]) << 20;
	memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(memory != MAP_FAILED, "memory");
	memset(memory, 1, memory_bytes);
	for (unsigned i = 0; i < 64; i++) { /* floor(2^32 |sin(i + 1)|), by its series (RFC 1321, 3.4) */
		double x = i + 1, sum = 0, term;
		while (x > 3.14159265358979323846)
			x -= 2 * 3.14159265358979323846;
		term = x;
		for (int k = 1; k < 40; k += 2) {
			sum += term;
			term *= -x * x / ((k + 1) * (k + 2));
		}
		md5_k[i] = (uint32_t)((sum < 0 ? -sum : sum) * 4294967296.0);
	}
	digest.h[0] = 0x67452301, digest.h[1] = 0xefcdab89, digest.h[2] = 0x98badcfe, digest.h[3] = 0x10325476;
	if (variant) {
		meet_peer();
		track(faults);
		if (faults)
			mprotect(memory, memory_bytes, PROT_READ);
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (unsigned i = 0; i < operations; i++) {
		const unsigned at = i / 2 % 2 ? i / 4 % FILE_PAGES : (unsigned)(draw() % FILE_PAGES);
		if (i % 2) {
			page[0]++;
			need(pwrite(fd, page, PAGE, (off_t)at * PAGE) == PAGE, "pwrite");
			continue;
		}
		need(pread(fd, page, PAGE, (off_t)at * PAGE) == PAGE, "pread");
		for (unsigned k = 0; k < dirty; k++)
			memory[draw() % (memory_bytes / PAGE) * PAGE + k % PAGE]++;
		if (!variant)
			continue;
		digest_page(page, md5);
		if (++reads % n)
			continue;
		exchange(waits, &owed);
		if (faults)
			mprotect(memory, memory_bytes, PROT_READ);
		else
			scan();
		total += collected;
		collected = 0;
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%.3f ms %u pages\n", (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6, total);
	return 0;
}
