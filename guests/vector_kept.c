/* Vector registers survive system calls: all of xmm, ymm or zmm with mask registers, as far as the processor has them. */
#include "guest.h"
#include <cpuid.h>

static unsigned char want[32][64] __attribute__((aligned(64))), got[32][64] __attribute__((aligned(64)));
static uint64_t masks[2] = {0xfeed, 0};

__attribute__((target("avx512f"), noinline)) static void zmm(void) {
    __asm__ volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\tvmovdqa64 64*\\n(%0), %%zmm\\n\n\t.endr\n\t"
        "kmovw (%2), %%k3\n\tmov $110, %%eax\n\tsyscall\n\tkmovw %%k3, 8(%2)\n\t"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\tvmovdqa64 %%zmm\\n, 64*\\n(%1)\n\t.endr\n\tvzeroupper"
        : : "r"(want), "r"(got), "r"(masks) : "rax", "rcx", "r11", "memory");
}
__attribute__((target("avx"), noinline)) static void ymm(void) {
    __asm__ volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tvmovdqa 64*\\n(%0), %%ymm\\n\n\t.endr\n\tmov $110, %%eax\n\tsyscall\n\t"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tvmovdqa %%ymm\\n, 64*\\n(%1)\n\t.endr\n\tvzeroupper"
        : : "r"(want), "r"(got) : "rax", "rcx", "r11", "memory");
}
__attribute__((noinline)) static void xmm(void) {
    __asm__ volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tmovdqa 64*\\n(%0), %%xmm\\n\n\t.endr\n\tmov $110, %%eax\n\tsyscall\n\t"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tmovdqa %%xmm\\n, 64*\\n(%1)\n\t.endr"
        : : "r"(want), "r"(got) : "rax", "rcx", "r11", "memory");
}

static int same(int registers, int bytes) {
    for (int i = 0; i < registers; i++)
        if (memcmp(want[i], got[i], bytes)) return 0;
    return 1;
}

int main(void) {
    for (int i = 0; i < 32 * 64; i++) want[i / 64][i % 64] = i * 37 + (i >> 6);
    xmm();
    check("xmm", same(16, 16));
    memset(got, 0, sizeof got);
    if (__builtin_cpu_supports("avx")) ymm();
    check("ymm", !__builtin_cpu_supports("avx") || same(16, 32));
    memset(got, 0, sizeof got);
    if (__builtin_cpu_supports("avx512f")) zmm();
    check("zmm", !__builtin_cpu_supports("avx512f") || (same(32, 64) && masks[1] == 0xfeed));
    return done();
}
