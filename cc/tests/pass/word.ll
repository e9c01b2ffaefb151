; A store of a whole word: looked up before and after, the address as it is.
; CHECK: @__sf_abi_used = private constant ptr @__sf_abi_6
; CHECK: define hidden void @whole.sf(
; CHECK: ptrtoint ptr %to to i64
; NEVER: and i64 %1, -8
; CHECK: call __sf_slow8
; CHECK: store i64 %v, ptr %to
; CHECK: load volatile i64
; CHECK: call __sf_check
define void @whole(ptr %to, i64 %v) {
  store i64 %v, ptr %to, align 8
  ret void
}
