# An object that `steadfast cc` has not compiled: without its section, with one as the pass writes it, and with one that was damaged,
# cut short, or written by a newer pass.
.globl other
other:
  ret

.macro lines
.section .steadfast.cov,"",@progbits
.ascii "M\tother.c\n"
.endm

.ifdef whole
lines
.ascii "F\tother\tother.c:1\t1\t0\t0\t0\t0\t0\n"
.endif
.ifdef damaged
lines
.ascii "F\tf\tother.c:1\t1\t0\tq\t0\t0\t0\n"
.endif
.ifdef short
lines
.ascii "A\tf"
.endif
.ifdef newer
lines
.ascii "Z\tf\n"
.endif
.section .note.GNU-stack,"",@progbits
