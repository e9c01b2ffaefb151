; With --protect=sei as well, and without the comparison, which is beyond the paper's rules.
; POLICY: protect sei
; CHECK: define hidden void @twice.sf(
; CHECK: call __sf_slow8
; CHECK: store i64 1
; CHECK: store i32 2
; NEVER: __sf_slow_part
; NEVER: __sf_astray
define void @twice(ptr %to) {
  store i64 1, ptr %to, align 8
  call void @inner()
  store i32 2, ptr %to, align 8
  ret void
}
define void @inner() noinline {
  ret void
}
