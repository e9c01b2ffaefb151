; A local function is called as it is.
; POLICY: local helper
; CHECK: define hidden void @outer.sf(
; CHECK: call void @helper(ptr %p)
; NEVER: call void @helper.sf(
define void @helper(ptr %p) {
  store i64 1, ptr %p
  ret void
}
define void @outer(ptr %p) {
  call void @helper(ptr %p)
  ret void
}
