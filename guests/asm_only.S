/* No libc at all: the smallest static program, with every shape of system call site that a patcher may meet.
 *
 * Each block prints one letter. The shapes: a plain site; two sites back to back; a jump straight to a site; a loop whose
 * target is the byte after a site; a site that ends its function, with nothing but another function behind; a site
 * reached both by falling in and by a branch; a short instruction before and a branch target after; a site behind a
 * conditional branch over it; a call that returns onto a site; a computed jump onto a site; prefixed `rex.w syscall`. */
#include <sys/syscall.h>
        .intel_syntax noprefix
        .text
        .globl  _start
/* One write of the letter: leaves rax ready for a bare `syscall`. */
        .macro  letter c
        mov     byte ptr [rip + buf], \c
        mov     eax, SYS_write
        mov     edi, 1
        lea     rsi, [rip + buf]
        mov     edx, 1
        .endm

_start: letter  'a'
        syscall                                 # plain
        letter  'b'
        syscall                                 # back to back: the second repeats with rax = 1 = SYS_write
        syscall
        letter  'c'
        jmp     1f                              # straight to the site, over a trap
        ud2
1:      syscall
        mov     r12d, 3                         # target right behind a site
        letter  'd'
        syscall
2:      mov     eax, SYS_write
        dec     r12d
        jz      3f
        syscall
        jmp     2b
3:      letter  'e'
        call    at_end
        letter  'f'
        xor     ebx, ebx
        jmp     5f                              # reached by a branch first, by falling in next
4:      mov     eax, SYS_write
        inc     ebx
5:      syscall
        cmp     ebx, 2
        jne     4b
        letter  'g'
        test    ebx, ebx
        jz      6f                              # the site is skipped by a branch over it
        syscall
6:      nop
        letter  'h'
        push    rax
        lea     rcx, [rip + 7f]
        push    rcx
        ret                                     # returns onto a site
7:      syscall
        pop     rax
        letter  'i'
        lea     r13, [rip + 8f]
        jmp     r13                             # computed
8:      syscall
        letter  'j'
        .byte   0x48, 0x0f, 0x05                # rex.w syscall
        letter  'k'
        jmp     9f
        .byte   0x0f, 0x05                      # never executed
9:      syscall
        .byte   0xeb, 0x00                      # jmp to the very next byte
        letter  'l'
        syscall
        mov     eax, SYS_getppid
        syscall
        cmp     rax, 0
        jg      10f
        ud2
10:     letter  '\n'
        syscall
        mov     edi, 7
        mov     eax, SYS_exit_group
        syscall                                 # the last: nothing follows but data

at_end:
        lea     r14, [rip + 11f]
        push    r14
        jmp     tail
11:     ret
        .p2align 4
tail:   syscall
        ret
        .data
buf:    .byte   0
        .section .note.GNU-stack, "", @progbits
