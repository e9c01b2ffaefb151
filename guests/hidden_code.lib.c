/* The library that loaded_code loads: a system call that no symbol leads to, so that it has no jump before it traps, beside a
 * number that tells one copy of the library from another; and a count in the middle of code. */

__asm__(".pushsection .text\n"
        ".globl before_hidden_call\n"
        ".type before_hidden_call, @object\n"
        "before_hidden_call: ret\n"
        ".byte 0xb8\n" /* who decodes on from here sees a mov of what follows */
        "syscall\n"
        "add $0x11111111, %rax\n"
        "ret\n"
        ".popsection");

__attribute__((section(".text"))) int in_the_code = 5;

int count(void) {
    long rc;
    __asm__ volatile("syscall" : "=a"(rc) : "a"(39l /* getpid */) : "rcx", "r11", "memory");
    return in_the_code += rc > 0;
}
