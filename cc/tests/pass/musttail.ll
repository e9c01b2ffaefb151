; A call that must be the last stays it, and goes to the clone.
; CHECK: define hidden i32 @first.sf(i32 %v)
; CHECK: musttail call i32 @second.sf(i32 %v)
; CHECK: ret i32
define i32 @second(i32 %v) {
  ret i32 %v
}
define i32 @first(i32 %v) {
  %r = musttail call i32 @second(i32 %v)
  ret i32 %r
}
