; With --recover neighbours share their look as well: their register is looked up by the run's other key before the first of them, and compared with
; what was logged behind the last. A call between them keeps them apart.
; POLICY: recover x
; CHECK: define hidden void @two_halves.sf(
; CHECK: call i64 asm "", "=r,0"(i64
; CHECK: call __sf_slow8
; CHECK: call __sf_before
; CHECK: store i32 1
; CHECK: store i32 2
; CHECK: call i64 asm sideeffect "", "=r,0,~{memory}"(i64
; CHECK: call __sf_astray
; CHECK: call __sf_check
; CHECK: define hidden void @apart.sf(
; CHECK: call __sf_slow_part
; CHECK: store i32 1
; CHECK: call __sf_check
; CHECK: call void @other.sf()
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; CHECK: call __sf_check
define void @two_halves(ptr %to) {
  store i32 1, ptr %to, align 8
  %more = getelementptr i8, ptr %to, i64 4
  store i32 2, ptr %more, align 4
  ret void
}
define void @apart(ptr %to) {
  store i32 1, ptr %to, align 8
  call void @other()
  %more = getelementptr i8, ptr %to, i64 4
  store i32 2, ptr %more, align 4
  ret void
}
define void @other() noinline {
  ret void
}
