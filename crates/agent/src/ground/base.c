/* Base: the few library routines the agent needs, and digests.
 *
 * The 128-bit hash is what a vote depends on; folded to 32 bits it guards payload in the log.
 * Records carry CRC32C (the hardware instruction; log.c).
 */
#include "agent.h"

void *memcpy(void *d, const void *s, size_t n)
{
	void *r = d;
	__asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n)::"memory");
	return r;
}

void *memset(void *d, int c, size_t n)
{
	void *r = d;
	__asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(c) : "memory");
	return r;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const u8 *x = a, *y = b;
	for (; n; n--, x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

size_t sf_strlen(const char *s)
{
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

int sf_page_is_zero(const u64 *page)
{
	for (int i = 0; i < 512; i += 8)
		if (page[i] | page[i + 1] | page[i + 2] | page[i + 3] | page[i + 4] | page[i + 5] | page[i + 6] | page[i + 7])
			return 0;
	return 1;
}

/* Hexadecimal digits as procfs prints them, up to the first other character, where `*p` points afterwards. */
u64 sf_hex(const u8 **p)
{
	u64 v = 0;
	for (;; (*p)++) {
		u8 c = **p;
		if (c >= '0' && c <= '9')
			v = v << 4 | (c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (c - 'a' + 10);
		else
			return v;
	}
}

/* At most 20 digits and a NUL, which the answer does not count. */
u32 sf_decimal(char *to, u64 v)
{
	u32 n = 1;
	for (u64 w = v; w >= 10; w /= 10)
		n++;
	to[n] = 0;
	for (u32 i = n; i--; v /= 10)
		to[i] = (char)('0' + v % 10);
	return n;
}

/* Four lanes hide the latency of the multiply (3 to 5 cycles): 32 bytes a round. */
void sf_hash_bytes(struct sf_hash *h, const void *p, size_t n)
{
	const u8 *b = p;
	u64 l0 = h->a, l1 = h->b, l2 = h->a + 0x243f6a8885a308d3ull, l3 = h->b + 0x13198a2e03707344ull;
	u64 len = n;
	for (; n >= 32; n -= 32, b += 32) {
		u64 w[4];
		__builtin_memcpy(w, b, 32);
		l0 = sf_mix(l0, w[0]);
		l1 = sf_mix(l1, w[1]);
		l2 = sf_mix(l2, w[2]);
		l3 = sf_mix(l3, w[3]);
	}
	for (; n >= 8; n -= 8, b += 8) {
		u64 w;
		__builtin_memcpy(&w, b, 8);
		l0 = sf_mix(l0, w);
		l1 = sf_mix(l1, ~w);
	}
	if (n) {
		u64 w = 0;
		__builtin_memcpy(&w, b, n & 7);
		l2 = sf_mix(l2, w);
		l3 = sf_mix(l3, ~w);
	}
	h->a = sf_mix(sf_mix(l0, l2), len);
	h->b = sf_mix(sf_mix(l1, l3), ~len);
}

/* What guards payload in the log: as strong as the vote's digest, and as fast. */
u32 sf_check(const void *p, size_t n)
{
	struct sf_hash h = { 0, 0 };
	sf_hash_bytes(&h, p, n);
	return (u32)(h.a ^ h.b >> 32);
}

void sf_bug(u32 line, s64 value)
{
	/* Beside others this may be a fault like any other: the replica is lost, and made again. If
	 * that does not help it was our bug, and the launcher says so. */
	if (!sf_alone() && load(&G->go) && me.role != SF_KEEPER) {
		if (me.role == SF_LEADER || me.role == SF_FOLLOWER) {
			struct sf_replica *own = &G->slot[me.slot];
			own->fault_signo = SF_BUG_SIGNO;
			own->fault_code = line;
			own->fault_addr = (u64)value;
			sf_raise(SF_A_FAULTED, 0);
			store(&own->phase, SF_P_DEAD);
		}
		for (;;)
			sys1(NR_exit_group, 123);
	}
	G->end_nr = line;
	G->end_value = value;
	G->end_slot = me.slot;
	sf_say_end(SF_E_BUG);
	sf_sys(NR_futex, (u64)&G->launcher_bell, 1 /* FUTEX_WAKE */, 1, 0, 0, 0);
	for (;;)
		sys1(NR_exit_group, 123);
}
