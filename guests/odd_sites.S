/* System call sites with hardly any room around them, in functions that C would not write; prints one line and exits 0.
 *
 * tiny_a to tiny_c are two- and three-byte functions packed without padding, so a jump of five bytes over one site must
 * not reach into the next. `into` is entered at its first byte and, from elsewhere, right at its site. `spin` jumps back to
 * the instruction just before the site and to the one just after. `rdtsc` and `cpuid` share a window with a site. */
#include <sys/syscall.h>
        .intel_syntax noprefix
        .text
        .globl  _start
_start: lea     rsi, [rip + text]
        mov     edi, 1
        mov     edx, 2
        mov     eax, SYS_write
        call    tiny_a
        mov     eax, SYS_write
        call    tiny_b
        mov     eax, SYS_write
        call    tiny_c
        call    into
        mov     eax, SYS_write
        call    into_site
        mov     ebx, 3
        call    spin
        call    shared
        call    far_cond
        mov     edx, 1
        lea     rsi, [rip + nl]
        mov     eax, SYS_write
        call    tiny_b
        xor     edi, edi
        mov     eax, SYS_exit
        call    tiny_c
        ud2
        .p2align 4
tiny_a: syscall
        ret
tiny_b: syscall
        ret
tiny_c: syscall
        ret
into:   mov     eax, SYS_write
into_site:
        syscall
        ret
spin:   mov     eax, SYS_write                  # target of the back edge: just before the site
        syscall
again:  dec     ebx                             # target of the other: just behind it
        js      out
        test    ebx, 1
        jz      spin
        jmp     again
out:    ret
shared: push    rbx
        push    rsi
        push    rdi
        rdtsc
        cpuid
        mov     eax, SYS_getppid
        syscall
        rdtsc
        pop     rdi
        pop     rsi
        pop     rbx
        mov     edx, 2
        ret
far_cond:                                       # relative operands on both sides of a site
        mov     eax, dword ptr [rip + number]
        cmp     eax, SYS_write
        jne     out
        syscall
        lea     rsi, [rip + text + 2]
        mov     eax, dword ptr [rip + number]
        syscall
        jmp     out
        .data
text:   .ascii  "ab" 
        .ascii  "cd"
nl:     .ascii  "\n"
        .p2align 2
number: .long   SYS_write
        .section .note.GNU-stack, "", @progbits
