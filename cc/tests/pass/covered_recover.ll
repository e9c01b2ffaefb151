; With --recover each store is looked at before it happens.
; POLICY: recover x
; CHECK: define hidden void @twice.sf(
; CHECK: call __sf_slow8
; CHECK: store i64 1
; CHECK: call __sf_slow_part
; CHECK: call __sf_before
; CHECK: store i32 2
define void @twice(ptr %to) {
  store i64 1, ptr %to, align 8
  call void @inner()
  store i32 2, ptr %to, align 8
  ret void
}
define void @inner() noinline {
  ret void
}
