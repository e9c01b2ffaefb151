/* Control: a target whose answers to faults are known.
 *
 * It works on a table with all kinds of operands and prints the sum. `silent` prints whatever
 * came out: faults in the work must show as wrong output. `guarded` knows the right sum, prints a
 * fixed word if it came out, and else ends with status 99: faults in the work never show.
 *
 * `port N` is a server: each line that comes in on TCP port N of loopback is answered with the sum
 * after as many rounds as its first byte says, and `?` with the word "no"; it serves one client.
 *
 * Freestanding and static: what it executes is what is here.
 */
typedef unsigned long u64;
typedef unsigned int u32;

static u64 table[64];
static const u32 factors[8] = { 3, 5, 7, 11, 13, 17, 19, 23 };

static long call(long nr, long a, long b, long c)
{
	long r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return r;
}

__attribute__((noinline)) static u64 mix(u64 x, u64 i)
{
	u64 y;
	/* A vector register, flags, a string instruction and the stack, whatever the compiler does. */
	__asm__ volatile("movq %1, %%xmm1\n\tpaddq %%xmm1, %%xmm1\n\tmovq %%xmm1, %0" : "=r"(y) : "r"(x) : "xmm1");
	return (y >> 7) ^ (x * factors[i & 7]) ^ (x & 1 ? i : ~i);
}

__attribute__((noinline)) static void copy(u64 *to, const u64 *from, u64 n)
{
	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n)::"memory");
}

/* 1571: a store and a load at addresses that the stack pointer forms, amid live words, a push and
 * a pop. */
__attribute__((noinline)) static u64 deep(void)
{
	u64 sum = 0;
	/* Words 0 to 31 hold 1 to 32; word 8 becomes 1000, word 9 counts twice. */
	__asm__ volatile("sub $384, %%rsp\n\tmov $32, %%ecx\n"
			 "1:\tmov %%rcx, -8(%%rsp,%%rcx,8)\n\tdec %%ecx\n\tjnz 1b\n\tmov $1000, %%ecx\n"
			 "deep_store:\tmov %%rcx, 64(%%rsp)\n"
			 "deep_load:\tadd 72(%%rsp), %0\n\tmov $32, %%ecx\n"
			 "2:\tadd -8(%%rsp,%%rcx,8), %0\n\tdec %%ecx\n\tjnz 2b\n\tmov $42, %%ecx\n"
			 "deep_push:\tpush %%rcx\n\tmov %%rsp, %%rcx\n"
			 "deep_pop:\tpop %%rcx\n\tadd %%rcx, %0\n\tadd $384, %%rsp"
			 : "+r"(sum)::"rcx", "memory", "cc");
	return sum;
}

__attribute__((noinline)) u64 work(u64 rounds)
{
	u64 sum = 1, other[64];
	for (u64 i = 0; i < 64; i++)
		table[i] = i * 0x9e3779b97f4a7c15ul;
	for (u64 r = 0; r < rounds; r++) {
		for (u64 i = 0; i < 64; i++) {
			table[i] = mix(table[i] + sum, i);
			sum = (sum << 3 | sum >> 61) + table[(i * 5 + r) & 63];
		}
		copy(other, table, 64);
		sum ^= other[r & 63];
		sum += deep() - 1571;
	}
	return sum;
}

static void print(const char *text, u64 n)
{
	call(1, 1, (long)text, (long)n);
}

static void spell(char *text, u64 sum)
{
	for (int i = 0; i < 16; i++)
		text[i] = "0123456789abcdef"[sum >> (60 - 4 * i) & 15];
	text[16] = '\n';
}

static long call6(long nr, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return r;
}

static void serve(const char *digits)
{
	u32 port = 0, one = 1;
	while (*digits)
		port = port * 10 + (u32)(*digits++ - '0');
	/* sockaddr_in: AF_INET, the port in network order, 127.0.0.1. */
	u32 at[4] = { 2u | (port >> 8 & 255) << 16 | (port & 255) << 24, 0x0100007f, 0, 0 };
	long listening = call(41, 2, 1, 0);
	call6(54, listening, 1, 2, (long)&one, 4);
	if (call(49, listening, (long)at, 16) < 0 || call(50, listening, 4, 0) < 0)
		call(231, 1, 0, 0);
	long client = call(43, listening, 0, 0);
	unsigned char line[64];
	long n;
	while ((n = call(0, client, (long)line, sizeof line)) > 0) {
		char text[17];
		if (line[0] == '?') {
			call(1, client, (long)"no\n", 3);
			continue;
		}
		spell(text, work(line[0] & 15));
		call(1, client, (long)text, 17);
	}
	for (;;)
		call(34, 0, 0, 0); /* pause */
}

__attribute__((used)) static void begin(u64 *stack)
{
	char **argv = (char **)(stack + 1);
	if (stack[0] > 2 && argv[1][0] == 'p')
		serve(argv[2]);
	int guarded = stack[0] > 1 && argv[1][0] == 'g';
	u64 sum = work(30);
	if (guarded) {
		if (sum != RIGHT)
			call(231, 99, 0, 0);
		print("the sum is right\n", 17);
	} else {
		char text[17];
		spell(text, sum);
		print(text, 17);
	}
	call(231, 0, 0, 0);
}

__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tcall begin\n\tud2\n");
