; A call through a pointer goes to the clone that the table knows; what has its address taken is in the table.
; CHECK: section "sf_clones"
; CHECK: define hidden i32 @through.sf(ptr %f)
; CHECK: call ptr @__sf_clone(ptr %f
; CHECK: call i32 %
define i32 @through(ptr %f) {
  %r = call i32 %f(i32 1)
  ret i32 %r
}
