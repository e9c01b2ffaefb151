; A vectorised store is as many words, each looked up for itself.
; CHECK: define hidden void @two.sf(
; CHECK: call __sf_slow8
; CHECK: call __sf_slow8
; CHECK: store <2 x i64> %v, ptr %to
; CHECK: call __sf_check
define void @two(ptr %to, <2 x i64> %v) {
  store <2 x i64> %v, ptr %to, align 16
  ret void
}
