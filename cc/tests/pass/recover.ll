; With --recover a store takes its address from a register of its own: looked up by that once more before it, by the run's other key,
; and compared with what was logged behind it. Ranges are asked for before they are written.
; POLICY: recover x
; NEVER: @__sf_unguarded
; CHECK: define hidden void @whole.sf(
; CHECK: call i64 asm "", "=r,0"(i64 %
; CHECK: call __sf_slow8
; CHECK: call __sf_before
; CHECK: store i64 %v, ptr %
; CHECK: call __sf_astray
; CHECK: call __sf_check
; CHECK: define hidden void @narrow.sf(
; CHECK: call void @__sf_log(ptr %to, i64 8)
; CHECK: call void @__sf_ready(ptr %
; CHECK: store i64 1, ptr %
; CHECK: call void @__sf_logged(ptr %
define void @whole(ptr %to, i64 %v) {
  store i64 %v, ptr %to, align 8
  ret void
}
define void @narrow(ptr %to) {
  store i64 1, ptr %to, align 1
  ret void
}
