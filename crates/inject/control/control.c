/* Control: a target whose answers to faults are known.
 *
 * It works on a table with all kinds of operands and prints the sum. `silent` prints whatever
 * came out: faults in the work must show as wrong output. `guarded` knows the right sum, prints a
 * fixed word if it came out, and else ends with status 99: faults in the work never show.
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
	}
	return sum;
}

static void print(const char *text, u64 n)
{
	call(1, 1, (long)text, (long)n);
}

__attribute__((used)) static void begin(u64 *stack)
{
	char **argv = (char **)(stack + 1);
	int guarded = stack[0] > 1 && argv[1][0] == 'g';
	u64 sum = work(30);
	if (guarded) {
		if (sum != RIGHT)
			call(231, 99, 0, 0);
		print("the sum is right\n", 17);
	} else {
		char text[17];
		for (int i = 0; i < 16; i++)
			text[i] = "0123456789abcdef"[sum >> (60 - 4 * i) & 15];
		text[16] = '\n';
		print(text, 17);
	}
	call(231, 0, 0, 0);
}

__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tcall begin\n\tud2\n");
