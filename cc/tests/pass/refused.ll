; What cannot be hardened stops the program where it is reached, and is told to the link.
; CHECK: define hidden i32 @add.sf(
; CHECK: call void @__sf_refuse(
; CHECK: define hidden void @assembly.sf(
; CHECK: call void @__sf_refuse(
@n = global i32 0
define i32 @add() {
  %r = atomicrmw add ptr @n, i32 1 seq_cst
  ret i32 %r
}
define void @assembly() {
  call void asm sideeffect "movl $$1, $0", "=*m,~{memory}"(ptr elementtype(i32) @n)
  ret void
}
