/* The micro-benchmark of the CARP paper (4.1), and its four variants rebuilt in the process itself.
 *
 * micro FILE OPERATIONS N DIRTY MEMORY_MB [EXCHANGE DIGEST TRACKING]
 * micro FILE DIGEST: what the digest of its first page is.
 *
 * Reads and writes of a page in turns, random and sequential in turns; between two reads DIRTY pages of memory are stored to.
 * With the last three, every N reads: the digest of what was read goes to a peer by TCP on this machine, and the pages that
 * were stored to are collected. sync waits for the peer's word; async takes it at the next exchange.
 *
 * EXCHANGE sync or async; DIGEST md5, crc32c or xxh3; TRACKING mprotect (a fault for each page), wp-async (a scan; Linux 6.7) or none.
 * Says the milliseconds that it took, and the pages that it collected. See PAGEMAP_SCAN, userfaultfd(2), RFC 1321, and the
 * specification of XXH3. */
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

static const uint8_t xxh3_secret[192] = {
	0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb,
	0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
	0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
	0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
	0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
	0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
	0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc,
	0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static uint64_t secret_at(unsigned at)
{
	uint64_t word;
	memcpy(&word, xxh3_secret + at, sizeof word);
	return word;
}

static void xxh3_stripe(uint64_t acc[8], const uint8_t *in, unsigned secret)
{
	uint64_t w[8];
	memcpy(w, in, sizeof w);
	for (unsigned i = 0; i < 8; i++) {
		const uint64_t key = w[i] ^ secret_at(secret + 8 * i);
		acc[i ^ 1] += w[i];
		acc[i] += (key & 0xffffffffu) * (key >> 32);
	}
}

/* 64 bits of a page: four blocks of sixteen stripes; the last stripe has a secret of its own. */
static uint64_t xxh3_page(const uint8_t *page)
{
	const uint64_t p1 = 0x9e3779b185ebca87u, q1 = 0x9e3779b1u;
	uint64_t acc[8] = { 0xc2b2ae3du, p1, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u, 0x85ebca77c2b2ae63u, 0x85ebca77u, 0x27d4eb2f165667c5u, q1 };
	for (unsigned block = 0; block < 4; block++) {
		for (unsigned n = 0; n < (block < 3 ? 16u : 15u); n++)
			xxh3_stripe(acc, page + 1024 * block + 64 * n, 8 * n);
		for (unsigned i = 0; block < 3 && i < 8; i++)
			acc[i] = (acc[i] ^ acc[i] >> 47 ^ secret_at(128 + 8 * i)) * q1;
	}
	xxh3_stripe(acc, page + PAGE - 64, 121);
	uint64_t sum = PAGE * p1;
	for (unsigned i = 0; i < 8; i += 2) {
		const unsigned __int128 both = (unsigned __int128)(acc[i] ^ secret_at(11 + 8 * i)) * (acc[i + 1] ^ secret_at(19 + 8 * i));
		sum += (uint64_t)both ^ (uint64_t)(both >> 64);
	}
	sum = (sum ^ sum >> 37) * 0x165667919e3779f9u;
	return sum ^ sum >> 32;
}

enum kind { MD5, CRC32C, XXH3 };

static enum kind kind_of(const char *name)
{
	return !strcmp(name, "md5") ? MD5 : !strcmp(name, "crc32c") ? CRC32C : XXH3;
}

static void digest_page(const uint8_t *page, enum kind kind)
{
	if (kind == XXH3)
		digest.crc = (digest.crc << 1 | digest.crc >> 63) ^ xxh3_page(page);
	for (unsigned i = 0; kind == MD5 && i < PAGE; i += 64)
		md5_block(page + i);
	for (unsigned i = 0; kind == CRC32C && i < PAGE; i += 8)
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

enum tracking { FAULTS, SCANS, NONE };

static void track(enum tracking how)
{
	if (how == NONE)
		return;
	if (how == FAULTS) {
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
	static uint8_t page[PAGE];
	if (argc == 3) {
		const int only = open(argv[1], O_RDONLY);
		need(only >= 0 && read(only, page, PAGE) == PAGE, argv[1]);
		digest_page(page, kind_of(argv[2]));
		printf("%016llx\n", (unsigned long long)digest.crc);
		return 0;
	}
	need(argc == 6 || argc == 9, "micro FILE OPERATIONS N DIRTY MEMORY_MB [EXCHANGE DIGEST TRACKING]");
	const unsigned operations = (unsigned)atoi(argv[2]), n = (unsigned)atoi(argv[3]), dirty = (unsigned)atoi(argv[4]);
	const int variant = argc == 9, waits = variant && !strcmp(argv[6], "sync");
	const enum kind kind = kind_of(variant ? argv[7] : "md5");
	const enum tracking tracking = !variant || !strcmp(argv[8], "none") ? NONE : !strcmp(argv[8], "mprotect") ? FAULTS : SCANS;
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
		track(tracking);
		if (tracking == FAULTS)
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
		digest_page(page, kind);
		if (++reads % n)
			continue;
		exchange(waits, &owed);
		if (tracking == FAULTS)
			mprotect(memory, memory_bytes, PROT_READ);
		else if (tracking == SCANS)
			scan();
		total += collected;
		collected = 0;
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%.3f ms %u pages\n", (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6, total);
	return 0;
}
