/* Vector state across a handler: the handler wipes every register, sigreturn brings all of xmm, ymm, zmm back; a handler
 * that edits the saved state changes the register. */
#include "guest.h"
#include <ucontext.h>

static unsigned char want[32][64] __attribute__((aligned(64))), got[32][64] __attribute__((aligned(64)));
static int wide, edit;

__attribute__((target("avx512f"))) static void wipe512(void) {
    __asm__ volatile(".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\tvpxorq %%zmm\\n, %%zmm\\n, %%zmm\\n\n\t.endr\n\tkxorw %%k3, %%k3, %%k3" : : : "memory");
}
static void on(int s, siginfo_t *i, void *c) {
    (void)s, (void)i;
    if (edit) memset(((ucontext_t *)c)->uc_mcontext.fpregs->_xmm[5].element, 0x77, 16);
    if (wide) wipe512();
    else __asm__ volatile(".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tpxor %%xmm\\n, %%xmm\\n\n\t.endr" : : : "memory");
}
__attribute__((target("avx512f"), noinline)) static int across512(long pid) {
    int k;
    __asm__ volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\tvmovdqa64 64*\\n(%1), %%zmm\\n\n\t.endr\n\t"
        "mov $0xbeef, %%eax\n\tkmovw %%eax, %%k3\n\tmov $62, %%eax\n\tsyscall\n\tkmovw %%k3, %0\n\t"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\tvmovdqa64 %%zmm\\n, 64*\\n(%2)\n\t.endr\n\tvzeroupper"
        : "=&r"(k) : "r"(want), "r"(got), "D"(pid), "S"(SIGUSR1) : "rax", "rcx", "r11", "memory");
    return k == 0xbeef;
}
__attribute__((noinline)) static void across128(long pid) {
    __asm__ volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tmovdqa 64*\\n(%0), %%xmm\\n\n\t.endr\n\tmov $62, %%eax\n\tsyscall\n\t"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tmovdqa %%xmm\\n, 64*\\n(%1)\n\t.endr"
        : : "r"(want), "r"(got), "D"(pid), "S"(SIGUSR1) : "rax", "rcx", "r11", "memory");
}

int main(void) {
    struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &a, 0);
    for (int i = 0; i < 32 * 64; i++) want[i / 64][i % 64] = i * 29 + (i >> 5);
    int ok = 1, masks = 1;
    across128(getpid());
    for (int i = 0; i < 16; i++) ok &= !memcmp(want[i], got[i], 16);
    check("xmm", ok);
    edit = 1;
    across128(getpid());
    check("edited", got[5][0] == 0x77 && got[5][15] == 0x77 && !memcmp(got[4], want[4], 16));
    edit = 0, wide = __builtin_cpu_supports("avx512f");
    if (wide) {
        masks = across512(getpid());
        for (int i = 0; i < 32; i++) ok &= !memcmp(want[i], got[i], 64);
    }
    check("zmm", ok && masks);
    return done();
}
